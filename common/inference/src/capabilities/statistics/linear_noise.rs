//! Linear regression with unknown noise: statistics of a record, xy, svec xxᵀ and y²; the server's fixed point is
//! [`dp_pvi_models::linear_regression::unknown_noise`].
//!
//! # Privacy
//! * **Sensitivity** for ‖x‖ ≤ R and |y| ≤ Y: RY, R² and Y² in norm, joint √Σ(Δ_b/a_b)² with scales a. Nothing needs to be clipped.

use dp_pvi_math::expfam::gaussian::full::triangle;
use dp_pvi_models::linear_regression::unknown_noise::sensitivities;
use dp_pvi_privacy::mechanism::Term;

use crate::capabilities::statistics::{ExpectedStatistics, add_outer};
use dp_pvi_records::RecordView;

/// Statistics with public scales of the three blocks.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct LinearStatistics {
    dimension: usize,
    scales: [f64; 3],
    bounds: [f64; 2],
}

impl LinearStatistics {
    /// For rows of `dimension` entries, of norm at most the first bound, with targets of at most the second.
    #[must_use]
    pub fn new(dimension: usize, scales: [f64; 3], bounds: [f64; 2]) -> Self {
        Self { dimension, scales, bounds }
    }
}

impl ExpectedStatistics for LinearStatistics {
    fn coordinates(&self) -> usize {
        self.dimension + triangle(self.dimension) + 1
    }

    fn bound(&self) -> f64 {
        let bounds = sensitivities(self.bounds[0], self.bounds[1]);
        bounds.iter().zip(self.scales).map(|(bound, scale)| (bound / scale).powi(2)).sum::<f64>().sqrt()
    }

    fn add(&self, record: RecordView<'_>, term: &mut Term) {
        if !record.is_finite() {
            return;
        }
        let [first, second, third] = self.scales;
        let weight = record.target / first;
        term.extend(record.indices.iter().zip(record.values).map(|(&j, x)| (j, weight * x)));
        add_outer(record, 1.0 / second, self.dimension, self.dimension, term);
        #[allow(clippy::cast_possible_truncation, reason = "a mechanism has 32-bit coordinates")]
        term.add((self.coordinates() - 1) as u32, record.target * record.target / third);
    }
}

#[cfg(test)]
mod tests {
    use super::LinearStatistics;
    use crate::capabilities::statistics::{ExpectedStatistics, total};
    use crate::testing::{close, random_units, table};
    use dp_pvi_math::expfam::gaussian::full::svec;
    use dp_pvi_privacy::mechanism::Term;
    use nalgebra::{DMatrix, DVector};

    #[test]
    fn statistics_are_those_of_the_definition_and_within_their_bound() {
        let d = 3;
        let data = table(d, &random_units(4, 30, d));
        let statistics = LinearStatistics::new(d, [2.0, 0.5, 3.0], [2.0 * 3f64.sqrt(), 1.0]);
        let sums = total(&statistics, &data);
        let (mut first, mut second, mut squares) = (DVector::zeros(d), DMatrix::zeros(d, d), 0.0);
        for record in data.records() {
            let mut x = DVector::zeros(d);
            record.entries().for_each(|(j, v)| x[j] = v);
            first += &x * record.target;
            second += &x * x.transpose();
            squares += record.target * record.target;
            let mut term = Term::default();
            statistics.add(record, &mut term);
            let norm = term.entries().map(|(_, x)| x * x).sum::<f64>().sqrt();
            assert!(norm <= statistics.bound() * (1.0 + 1e-12));
        }
        close(&sums[..d], (first / 2.0).as_slice(), 1e-12);
        close(&sums[d..d + 6], &svec(&(second * 2.0)), 1e-12);
        close(&sums[d + 6..], &[squares / 3.0], 1e-12);
    }
}
