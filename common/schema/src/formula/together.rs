//! How much the entries of a formula's rows go together, from public values alone.

use super::piece::Cell;
use super::{Record, RowSpace};
use crate::{Column, ColumnKind, Schema};

/// Rows that are drawn, and steps of the power method.
const ROWS: u64 = 2048;
const STEPS: usize = 60;

impl Schema {
    /// The largest eigenvalue of D^−½ M D^−½, where M = E xxᵀ, D is its diagonal, and all columns are independent and spread evenly over what their rules allow. 1 where
    /// entries have no products, and at most the number of entries that are not 0. Steps that divide each coefficient's gradient by its own curvature move the
    /// coefficients together by this much too far. `None` without a formula.
    ///
    /// The rows are the same on every machine, and so is the result up to rounding. Source: the largest eigenvalue by the power method.
    #[must_use]
    pub fn entries_together(&self) -> Option<f64> {
        let design = self.design()?;
        let rows: Vec<Vec<(u32, f64)>> = {
            let mut space = RowSpace::default();
            let filled = vec![false; self.columns().len()];
            let row = |number: u64| {
                // What is predicted takes no place.
                let mut places = 0..;
                let cell = |(position, column): (usize, &Column)| {
                    let place = if self.outcome().contains(&position) { None } else { places.next() };
                    place.map_or(Cell::Missing, |place| cell(&column.kind, uniform(number, place)))
                };
                let cells: Vec<Cell> = self.columns().iter().enumerate().map(cell).collect();
                #[allow(
                    clippy::cast_possible_truncation,
                    clippy::cast_sign_loss,
                    clippy::cast_precision_loss,
                    reason = "below the number of sites"
                )]
                let site = (!design.sites().is_empty()).then(|| (uniform(number, u64::MAX) * design.sites().len() as f64) as u32);
                let mut entries = Vec::new();
                design.row(&Record { cells: &cells, filled: &filled, site }, &mut space, |position, value| entries.push((position, value)));
                entries
            };
            (0..ROWS).map(row).collect()
        };
        let d = design.dimension() as usize;
        let mut sizes = vec![0.0; d];
        rows.iter().flatten().for_each(|(j, value)| sizes[*j as usize] += value * value);
        let scales: Vec<f64> = sizes.iter().map(|square: &f64| if *square > 0.0 { 1.0 / square.sqrt() } else { 0.0 }).collect();
        let (mut vector, mut largest) = (vec![1.0; d], 1.0);
        for _ in 0..STEPS {
            let norm = vector.iter().map(|v| v * v).sum::<f64>().sqrt();
            let mut next = vec![0.0; d];
            for row in &rows {
                let product: f64 = row.iter().map(|(j, value)| value * scales[*j as usize] * vector[*j as usize] / norm).sum();
                row.iter().for_each(|(j, value)| next[*j as usize] += value * scales[*j as usize] * product);
            }
            largest = next.iter().map(|v| v * v).sum::<f64>().sqrt();
            vector = next;
        }
        Some(largest.max(1.0))
    }
}

fn cell(kind: &ColumnKind, uniform: f64) -> Cell {
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, clippy::cast_precision_loss, reason = "below the number of levels")]
    let level = |count: usize| Cell::Level((uniform * count as f64) as u32);
    match kind {
        ColumnKind::Number(rule) => Cell::Number(rule.lower + uniform * (rule.upper - rule.lower)),
        ColumnKind::Boolean(_) => level(2),
        ColumnKind::Category(rule) => level(rule.values.len()),
        ColumnKind::Ignored => Cell::Level(0),
    }
}

/// A number in [0, 1) for a row and a column: SplitMix64.
fn uniform(row: u64, column: u64) -> f64 {
    let mut z = row
        .wrapping_mul(0x9E37_79B9_7F4A_7C15)
        .wrapping_add(column.wrapping_mul(0xD1B5_4A32_D192_ED03))
        .wrapping_add(0x9E37_79B9_7F4A_7C15);
    z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    #[allow(clippy::cast_precision_loss, reason = "53 bits")]
    let unit = ((z ^ (z >> 31)) >> 11) as f64 / (1u64 << 53) as f64;
    unit
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use crate::Schema;

    fn schema(formula: &str) -> Schema {
        let text = "version = 2\n[[columns]]\nname = \"age\"\nkind = \"number\"\nlower = 0\nupper = 90\ncentre = 45\nscale = 45\n[[columns]]\nname = \"ward\"\nkind = \"category\"\n\
                    values = [\"a\", \"b\", \"c\", \"d\"]\n[[columns]]\nname = \"y\"\nkind = \"boolean\"\ntrue_values = [\"1\"]\nfalse_values = [\"0\"]\n";
        Schema::parse(text).unwrap().with_formula(formula, &[]).unwrap()
    }

    /// A level of four beside the intercept has the correlation ½: 1 + √(3/4). A number about its centre has none.
    #[test]
    fn it_is_the_eigenvalue_that_can_be_worked_out() {
        let wards = schema("y ~ ward + age").entries_together().unwrap();
        assert!((wards - (1.0 + 0.75_f64.sqrt())).abs() < 0.03, "{wards}");
        assert!((schema("y ~ age").entries_together().unwrap() - 1.0).abs() < 0.05);
    }

    #[test]
    fn entries_of_a_curve_go_together() {
        assert!(schema("y ~ s(age)").entries_together().unwrap() > 3.0);
    }
}
