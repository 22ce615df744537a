//! Likelihoods in which a record has several linear predictors: the rows, residuals and curvatures from which everything else about it follows. Mathematics of a
//! record and of a q: sites evaluate it on records.
//!
//! A record becomes *rows* ρ over the d coordinates of the model, each with a residual r and a curvature c (which may be negative, as long as Σ c ρρᵀ has no
//! negative eigenvalue). With f = E_q log p(record), or a lower bound of it,
//!
//! g = ∂f/∂μ = Σ r ρ, H = −2 ∂f/∂Σ = Σ c ρρᵀ, and so ∂f/∂log σ_j = −H_jj σ_j² under a mean field.
//!
//! Natural gradients, DP optimisation, global VI and exact local optima are computed of these rows with no word of the model.
//!
//! To write such a model, implement [`ManyRows`] for its options and return it from [`ModelRules::likelihood`](crate::ModelRules::likelihood).

use crate::predictor::Statistics;
use dp_pvi_math::expfam::any::Standard;
use dp_pvi_schema::public::Example;

/// A likelihood in which a record becomes several rows.
pub trait ManyRows: Send + Sync {
    /// Writes the rows of a record, with r and c, and f. `rows` is empty before. What is not finite afterwards contributes 0: see [`PseudoRows::is_finite`].
    fn write(&self, record: Example<'_>, at: &Place<'_>, rows: &mut PseudoRows);

    /// Writes rows over `dimension` coordinates whose Σ c ρρᵀ is above that of [`Self::write`] wherever q is. r is not looked at. `bound` is the task's curvature
    /// bound, for models that have none of their own.
    fn write_bound(&self, record: Example<'_>, dimension: usize, bound: f64, rows: &mut PseudoRows);

    /// Whether [`Self::write`] adds a record's offset to its linear predictor.
    fn takes_offsets(&self) -> bool;

    /// Writes rows with curvatures of about the size that they have near an optimum: where an exact fit starts, and nothing else. Default: those at the start.
    fn write_typical(&self, record: Example<'_>, at: &Place<'_>, rows: &mut PseudoRows) {
        self.write(record, at, rows);
    }

    /// Writes rows with the curvature that [`Self::write`] leaves out because rows move, where a step of the mean that does without it would be too long. Steps are divided by it; nothing
    /// else depends on it.
    fn write_left_out(&self, record: Example<'_>, at: &Place<'_>, rows: &mut PseudoRows) {
        let _ = (record, at, rows);
    }

    /// Whether rows change with the mean of q. f, r and c are then those of rows that stay as they are at [`Place::centre`].
    fn has_moving_rows(&self) -> bool {
        false
    }

    /// True for models of times to an event: `residual_bound` then truncates the follow-up ([`Cut::follow_up`]), and neither residual nor curvature is clipped.
    fn ends_follow_up(&self) -> bool {
        false
    }
}

/// Where a record is looked at.
#[derive(Clone, Copy)]
pub struct Place<'a> {
    /// The distribution of the coordinates.
    pub q: &'a dyn Beliefs,
    /// The mean at which moving rows are taken, where it is not that of q.
    pub centre: Option<&'a [f64]>,
    /// What residuals and curvatures are cut to, by models that have no bounds of their own.
    pub cut: Cut,
}

impl<'a> Place<'a> {
    /// At q itself, with nothing cut.
    #[must_use]
    pub fn at(q: &'a dyn Beliefs) -> Self {
        Self { q, centre: None, cut: Cut::NOTHING }
    }

    /// Coordinate j of the mean at which moving rows are taken.
    #[must_use]
    pub fn centre(&self, j: u32) -> f64 {
        self.centre.map_or_else(|| self.q.mean(j), |centre| centre[j as usize])
    }
}

/// Public bounds of what a record may add.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Cut {
    /// r̄: residuals are cut to it.
    pub residual: f64,
    /// c̄: curvatures are cut to it.
    pub curvature: f64,
    /// B: watching a record ends where so many events were to be expected of it, in models of times until an event.
    pub follow_up: f64,
}

impl Cut {
    /// No bound.
    pub const NOTHING: Self = Self { residual: f64::INFINITY, curvature: f64::INFINITY, follow_up: f64::INFINITY };

    /// The residual at [−r̄, r̄] and the curvature at [0, c̄].
    #[must_use]
    pub fn of(&self, Statistics { residual, curvature }: Statistics) -> Statistics {
        Statistics { residual: residual.clamp(-self.residual, self.residual), curvature: curvature.clamp(0.0, self.curvature) }
    }
}

/// A sparse vector over the coordinates of a model.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Sparse<'a> {
    /// Ascending positions.
    pub indices: &'a [u32],
    /// The values there.
    pub values: &'a [f64],
}

impl<'a> Sparse<'a> {
    /// Pairs (position, value).
    pub fn entries(self) -> impl Iterator<Item = (u32, f64)> + 'a {
        self.indices.iter().copied().zip(self.values.iter().copied())
    }
}

/// A Gaussian over the coordinates of a model, as rows ask for it.
pub trait Beliefs {
    /// d.
    fn dimension(&self) -> usize;

    /// μ_j.
    fn mean(&self, j: u32) -> f64;

    /// aᵀΣb.
    fn covariance(&self, a: Sparse<'_>, b: Sparse<'_>) -> f64;

    /// aᵀμ and aᵀΣa.
    fn project(&self, a: Sparse<'_>) -> (f64, f64) {
        (a.entries().map(|(j, x)| x * self.mean(j)).sum(), self.covariance(a, a).max(0.0))
    }
}

impl Beliefs for Standard {
    fn dimension(&self) -> usize {
        self.mean().len()
    }

    fn mean(&self, j: u32) -> f64 {
        self.mean()[j as usize]
    }

    fn covariance(&self, a: Sparse<'_>, b: Sparse<'_>) -> f64 {
        match self {
            Self::Diagonal(q) => diagonal_covariance(a, b, |j| q.variance()[j as usize]),
            Self::Full(q) => {
                let column = |(j, y): (u32, f64)| {
                    let column = q.covariance().column(j as usize);
                    y * a.entries().map(|(i, x)| x * column[i as usize]).sum::<f64>()
                };
                b.entries().map(column).sum()
            }
        }
    }
}

/// Σ a_j b_j v_j over the positions that both have.
pub fn diagonal_covariance(a: Sparse<'_>, b: Sparse<'_>, variance: impl Fn(u32) -> f64) -> f64 {
    let (mut left, mut right) = (a.entries().peekable(), b.entries().peekable());
    let mut sum = 0.0;
    while let (Some(&(i, x)), Some(&(j, y))) = (left.peek(), right.peek()) {
        if i == j {
            sum += x * y * variance(i);
        }
        if i <= j {
            left.next();
        }
        if j <= i {
            right.next();
        }
    }
    sum
}

/// Rows with their residuals and curvatures, and f. Kept from record to record, so that nothing is allocated anew.
#[derive(Debug, Clone, Default)]
pub struct PseudoRows {
    indices: Vec<u32>,
    values: Vec<f64>,
    /// Where every row ends.
    ends: Vec<usize>,
    statistics: Vec<Statistics>,
    expected: f64,
}

impl PseudoRows {
    /// Forgets all rows, and f.
    pub fn clear(&mut self) {
        self.indices.clear();
        self.values.clear();
        self.ends.clear();
        self.statistics.clear();
        self.expected = 0.0;
    }

    /// One more row, with r and c still 0; positions ascend. Returns its number, from 0.
    pub fn push(&mut self, entries: impl Iterator<Item = (u32, f64)>) -> usize {
        for (index, value) in entries {
            self.indices.push(index);
            self.values.push(value);
        }
        self.ends.push(self.indices.len());
        self.statistics.push(Statistics { residual: 0.0, curvature: 0.0 });
        self.statistics.len() - 1
    }

    /// r and c of a row.
    pub fn set(&mut self, row: usize, statistics: Statistics) {
        self.statistics[row] = statistics;
    }

    /// One more row with r and c.
    pub(crate) fn push_with(&mut self, entries: impl Iterator<Item = (u32, f64)>, statistics: Statistics) {
        let row = self.push(entries);
        self.set(row, statistics);
    }

    /// A row.
    #[must_use]
    pub fn row(&self, number: usize) -> Sparse<'_> {
        let start = number.checked_sub(1).map_or(0, |before| self.ends[before]);
        let range = start..self.ends[number];
        Sparse { indices: &self.indices[range.clone()], values: &self.values[range] }
    }

    /// All rows with r and c.
    pub fn iter(&self) -> impl Iterator<Item = (Sparse<'_>, Statistics)> {
        self.statistics.iter().enumerate().map(|(number, statistics)| (self.row(number), *statistics))
    }

    /// f.
    #[must_use]
    pub fn expected(&self) -> f64 {
        self.expected
    }

    /// Adds to f.
    pub(crate) fn add_expected(&mut self, value: f64) {
        self.expected += value;
    }

    /// Multiplies f, and r and c of every row.
    pub fn times(&mut self, weight: f64) {
        self.expected *= weight;
        for Statistics { residual, curvature } in &mut self.statistics {
            *residual *= weight;
            *curvature *= weight;
        }
    }

    /// Whether every r, c and entry is a finite number.
    #[must_use]
    pub fn is_finite(&self) -> bool {
        self.statistics.iter().all(|s| s.residual.is_finite() && s.curvature.is_finite()) && self.values.iter().all(|x| x.is_finite())
    }
}

#[cfg(test)]
pub(crate) mod testing;

#[cfg(test)]
mod tests {
    use dp_pvi_math::expfam::any::{Family, Gaussian};
    use dp_pvi_math::expfam::gaussian::full::svec;
    use nalgebra::DMatrix;

    use super::{Beliefs, Cut, PseudoRows, Sparse};
    use crate::predictor::Statistics;

    #[test]
    #[allow(clippy::unwrap_used)]
    fn both_families_have_the_moments_of_their_matrices() {
        let (a, b) = (Sparse { indices: &[0, 2], values: &[1.5, -1.0] }, Sparse { indices: &[1, 2], values: &[0.5, 2.0] });
        let precision = DMatrix::from_row_slice(3, 3, &[2.0, 0.3, -0.2, 0.3, 1.0, 0.1, -0.2, 0.1, 4.0]);
        let covariance = precision.clone().try_inverse().unwrap();
        let full = [vec![0.1, 0.2, 0.3], svec(&precision)].concat();
        let full = Gaussian::from_natural(Family::FullGaussian { dimension: 3 }, full).unwrap();
        let dense = [nalgebra::dvector![1.5, 0.0, -1.0], nalgebra::dvector![0.0, 0.5, 2.0]];
        let expected = (dense[0].transpose() * &covariance * &dense[1])[(0, 0)];
        assert!((full.standard().covariance(a, b) - expected).abs() < 1e-14);
        let diagonal = Gaussian::from_natural(Family::DiagonalGaussian { dimension: 3 }, vec![1.0, 2.0, 3.0, 2.0, 1.0, 4.0]).unwrap();
        assert!((diagonal.standard().covariance(a, b) + 2.0 * 0.25).abs() < 1e-14);
        let (mean, variance) = Beliefs::project(diagonal.standard(), a);
        assert!((mean - (1.5 * 0.5 - 0.75)).abs() < 1e-14 && (variance - (2.25 * 0.5 + 0.25)).abs() < 1e-14);
    }

    #[test]
    fn rows_stand_in_the_order_in_which_they_were_pushed() {
        let mut rows = PseudoRows::default();
        rows.push([(0, 1.0), (2, 3.0)].into_iter());
        rows.push_with(
            [(1, 2.0)].into_iter(),
            Cut { residual: 1.0, curvature: 2.0, ..Cut::NOTHING }.of(Statistics { residual: -3.0, curvature: -1.0 }),
        );
        assert_eq!(rows.row(0), Sparse { indices: &[0, 2], values: &[1.0, 3.0] });
        assert_eq!(rows.iter().nth(1), Some((Sparse { indices: &[1], values: &[2.0] }, Statistics { residual: -1.0, curvature: 0.0 })));
        rows.set(0, Statistics { residual: f64::NAN, curvature: 0.0 });
        assert!(!rows.is_finite());
        rows.clear();
        assert!(rows.is_finite() && rows.iter().count() == 0);
    }
}
