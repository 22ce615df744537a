//! Invented records, to find out how long a computation takes. Nothing of them is drawn: they are a function of the schema.

use dp_pvi_records::{RecordTable, RecordView};
use dp_pvi_schema::public::Extra;
use dp_pvi_schema::{LabelKind, Schema};

use crate::error::DataError;

/// Records with as many entries as a row may have, at places that differ from row to row.
#[allow(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "places below d, and invented values"
)]
pub(crate) fn table(schema: &Schema, count: u64) -> Result<RecordTable, DataError> {
    let (dimension, entries) = (schema.dimension(), schema.max_nonzeros().min(schema.dimension()));
    let largest = schema.row_norm_bound() / f64::from(entries.max(1)).sqrt();
    let mut table = RecordTable::builder(dimension as usize);
    let (mut indices, mut values) = (Vec::new(), Vec::new());
    for number in 0..count {
        let share = |of: u64| ((number * of) % 64) as f64 / 64.0;
        indices.clear();
        values.clear();
        for entry in 0..entries {
            // Every entry has an equal stretch of the places for itself.
            indices.push(((f64::from(entry) + share(37)) * f64::from(dimension) / f64::from(entries)) as u32);
            values.push(largest * (2.0 * share(u64::from(entry) * 2 + 11) - 1.0));
        }
        let (target, extra) = outcome(schema, number, share(23));
        table.start_unit();
        table.push_record(RecordView { indices: &indices, values: &values, target, offset: 0.0, extra }).map_err(DataError::Table)?;
    }
    Ok(table.finish())
}

/// What an invented record has as its label.
#[allow(clippy::cast_precision_loss, reason = "a class")]
fn outcome(schema: &Schema, number: u64, share: f64) -> (f64, Extra) {
    match &schema.label().kind {
        LabelKind::Binary { .. } => ((number % 2) as f64, Extra::NONE),
        LabelKind::Classes { values } => ((number % values.len().max(1) as u64) as f64, Extra::NONE),
        LabelKind::Number { rule, .. } => {
            (rule.encode((rule.lower + share * (rule.upper - rule.lower)).floor().max(rule.lower)), Extra::NONE)
        }
        LabelKind::Survival(rule) => {
            let time = rule.time.lower + (0.1 + 0.9 * share) * (rule.time.upper - rule.time.lower);
            (time, Extra { event: number.is_multiple_of(2), ..Extra::NONE })
        }
        LabelKind::Absent => (0.0, Extra::NONE),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn invented_records_are_as_large_as_the_schema_allows_and_no_larger() {
        let schema = Schema::asking(
            "y ~ .",
            "version = 2\nnorm_bound = 2.0\n[[columns]]\nname = \"y\"\nkind = \"category\"\nvalues = [\"p\", \"q\", \"r\"]\n\
             [[columns]]\nname = \"a\"\nkind = \"number\"\nlower = 0\nupper = 1\ncentre = 0\nscale = 1\n\
             [[columns]]\nname = \"b\"\nkind = \"category\"\nvalues = [\"x\", \"y\", \"z\", \"w\"]\n",
        )
        .unwrap();
        let table = table(&schema, 100).unwrap();
        assert_eq!((table.records().len(), table.dimension()), (100, schema.dimension() as usize));
        let mut classes = [0; 3];
        for record in table.records() {
            assert_eq!(record.indices.len(), schema.max_nonzeros() as usize);
            assert!(record.values.iter().map(|x| x * x).sum::<f64>().sqrt() <= schema.row_norm_bound() * (1.0 + 1e-12));
            classes[(0..3).find(|class| (f64::from(*class) - record.target).abs() < 0.5).unwrap() as usize] += 1;
        }
        assert!(classes.iter().all(|count| *count > 30), "{classes:?}");
    }
}
