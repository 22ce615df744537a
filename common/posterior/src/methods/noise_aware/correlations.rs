//! Entries of a curvature matrix H = Σ c xxᵀ off its diagonal, of which a mean field releases the diagonal only.
//!
//! The public schema knows a part of them. Two levels of one category are never seen together: 0. An indicator (of a level, or a boolean)
//! beside the intercept: Σ c x_j·1 = Σ c x_j², the indicator's own entry. The rest has the correlations of a released Gram matrix where there is
//! one. Without one, numbers are taken for uncorrelated with everything, and indicators of different columns for independent of each other.

use dp_pvi_schema::ColumnKind;
use dp_pvi_schema::coding::Coding;
use nalgebra::{DMatrix, DVector};

use crate::methods::Setting;

/// How far, relative to its norm, H may be from the matrix that is put together here: of correlations that nothing tells, and of those of a Gram matrix, which
/// lacks the weights c.
const WITHOUT_GRAM: f64 = 0.5;
const WITH_GRAM: f64 = 0.2;

/// What an entry of a feature row is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Entry {
    /// Anything: nothing is known of its products.
    Number,
    /// 0 or 1, and 1 for at most one entry of its column.
    Indicator { column: usize },
    /// Always 1.
    Intercept,
}

/// How entries of H off the diagonal follow from the diagonal.
#[derive(Debug, Clone)]
pub(crate) struct Correlations {
    entries: Vec<Entry>,
    /// A released matrix of which only the correlations count.
    gram: Option<DMatrix<f64>>,
}

impl Correlations {
    /// Of a model with one coefficient for every entry of a feature row; others have no structure.
    pub(crate) fn new(task: &Setting<'_>, gram: Option<DMatrix<f64>>) -> Self {
        let dimension = task.dimension as usize;
        let entries = task.parsed_schema().map(|schema| {
            let column = |(column, kind): (usize, &ColumnKind)| {
                let entry = match kind {
                    ColumnKind::Boolean(_) => Entry::Indicator { column },
                    ColumnKind::Category(rule) if rule.coding != Coding::Sum => Entry::Indicator { column },
                    ColumnKind::Number(_) | ColumnKind::Category(_) | ColumnKind::Ignored => Entry::Number,
                };
                std::iter::repeat_n(entry, kind.width())
            };
            let mut entries: Vec<Entry> = schema.columns().iter().map(|column| &column.kind).enumerate().flat_map(column).collect();
            entries.extend(schema.intercept().map(|_| Entry::Intercept));
            entries
        });
        let entries = entries.ok().filter(|entries| entries.len() == dimension).unwrap_or_else(|| vec![Entry::Number; dimension]);
        Self { entries, gram }
    }

    /// H with this diagonal, which is not negative.
    pub(crate) fn matrix(&self, diagonal: &DVector<f64>) -> DMatrix<f64> {
        let intercept = self.entries.iter().position(|entry| *entry == Entry::Intercept);
        let of_gram = |gram: &DMatrix<f64>, i: usize, j: usize| {
            let scale = |k: usize| (diagonal[k] / gram[(k, k)].max(f64::MIN_POSITIVE)).sqrt();
            gram[(i, j)] * scale(i) * scale(j)
        };
        DMatrix::from_fn(diagonal.len(), diagonal.len(), |i, j| match (self.entries[i], self.entries[j], &self.gram) {
            _ if i == j => diagonal[i],
            (Entry::Indicator { column }, Entry::Indicator { column: other }, _) if column == other => 0.0,
            (Entry::Indicator { .. }, Entry::Intercept, _) | (Entry::Intercept, Entry::Indicator { .. }, _) => diagonal[i].min(diagonal[j]),
            (_, _, Some(gram)) => of_gram(gram, i, j),
            (Entry::Indicator { .. }, Entry::Indicator { .. }, None) => match intercept {
                Some(k) if diagonal[k] > 0.0 => diagonal[i].min(diagonal[k]) * diagonal[j].min(diagonal[k]) / diagonal[k],
                _ => 0.0,
            },
            (_, _, None) => 0.0,
        })
    }

    /// How far, relative to its norm, H may be from [`Self::matrix`].
    pub(crate) fn doubt(&self) -> f64 {
        if self.gram.is_some() { WITH_GRAM } else { WITHOUT_GRAM }
    }

    /// Without a schema: the correlations of a matrix.
    #[cfg(test)]
    pub(crate) fn of_gram(gram: DMatrix<f64>) -> Self {
        Self { entries: vec![Entry::Number; gram.nrows()], gram: Some(gram) }
    }
}

#[cfg(test)]
mod tests {
    use super::{Correlations, Entry};
    use nalgebra::{DMatrix, DVector};

    /// Σ c xxᵀ over all combinations of two independent columns: a category of three levels under treatment coding, a boolean, the intercept.
    #[test]
    fn independent_indicators_have_the_matrix_of_their_records() {
        let mut matrix = DMatrix::zeros(4, 4);
        for (level, share) in [(0, 0.5), (1, 0.3), (2, 0.2)] {
            for (yes, chance) in [(0.0, 0.9), (1.0, 0.1)] {
                let row = DVector::from_vec(vec![f64::from(u8::from(level == 1)), f64::from(u8::from(level == 2)), yes, 1.0]);
                matrix += &row * row.transpose() * (share * chance * 1000.0);
            }
        }
        let entries =
            vec![Entry::Indicator { column: 0 }, Entry::Indicator { column: 0 }, Entry::Indicator { column: 1 }, Entry::Intercept];
        let guessed = Correlations { entries, gram: None }.matrix(&matrix.diagonal());
        assert!((guessed - matrix).norm() < 1e-9);
    }

    #[test]
    fn a_gram_matrix_lends_its_correlations() {
        let gram = DMatrix::from_row_slice(2, 2, &[4.0, 3.0, 3.0, 9.0]);
        let guessed = Correlations::of_gram(gram).matrix(&DVector::from_vec(vec![1.0, 36.0]));
        assert!((guessed - DMatrix::from_row_slice(2, 2, &[1.0, 3.0, 3.0, 36.0])).norm() < 1e-12);
    }
}
