//! What the schema changes in a row that is to be predicted: numbers outside of their range, and rows that are too long.

use dp_pvi_schema::Schema;

use crate::Changed;
use crate::encode::{CellEvent, Fate, Watch};
use crate::error::Fault;

/// The rows that were changed.
#[derive(Default)]
pub(crate) struct Changes {
    pub(crate) rows: Vec<Changed>,
    /// Of the row that is read now.
    now: Now,
}

/// What was seen in one row.
#[derive(Default)]
pub(crate) struct Now {
    /// Fields outside of their range.
    outside: Vec<usize>,
    norm: f64,
}

impl Watch for Now {
    fn cell(&mut self, field: usize, event: CellEvent) {
        if matches!(event, CellEvent::Below | CellEvent::Above) {
            self.outside.push(field);
        }
    }

    fn row(&mut self, _: &[u32], norm: f64) {
        self.norm = norm;
    }
}

impl Changes {
    /// Encodes a row, and remembers what was changed in it where it is kept.
    pub(crate) fn of_row(
        &mut self,
        row: u64,
        schema: &Schema,
        encode: impl FnOnce(&mut Now) -> Result<Fate, Fault>,
    ) -> Result<Fate, Fault> {
        self.now.outside.clear();
        self.now.norm = 0.0;
        let fate = encode(&mut self.now)?;
        // A row at the ends of all ranges is as long as the bound, up to rounding.
        let shortened = self.now.norm > schema.row_norm_bound() * (1.0 + 1e-9);
        if fate == Fate::Kept && (shortened || !self.now.outside.is_empty()) {
            // Without a label every field is a column.
            let columns = self.now.outside.iter().filter_map(|&field| schema.columns().get(field)).map(|column| column.name.clone());
            self.rows.push(Changed { row, columns: columns.collect(), shortened });
        }
        Ok(fate)
    }
}
