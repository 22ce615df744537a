//! What a fit sends to check itself, and what follows from it.
//!
//! A unit with a usable record sends [1, 1{ω < ½ω̄}, t − ½, s∘s/C²]: that it is there, whether it counts less than half of a typical one, how far its labels lie from what is predicted,
//! t = min(mean u², 9)/9 of Pearson residuals u, and the squares of its weighted score s, ‖s‖ ≤ C. A unit without one sends zeros. The norm is at most √(1 + 1 + ¼ + 1).
//!
//! * The sum of the first entries is the number of units used.
//! * The mean of t tells the scale ρ of residuals: E min(ρ²χ²₁, 9)/9 ([`scale`]).
//! * The sums D of the last entries tell the covariance of scores, which rows of one unit that go together make larger than the records' curvature says ([`Robust`]).
//!
//! **Source**: this project; the covariance of scores is that of White 1980 and of Liang and Zeger 1986.

use nalgebra::{DMatrix, DVector};

use crate::normal::{cdf, density};

/// A mean squared residual is cut at this.
const LARGEST_SQUARE: f64 = 9.0;

/// F is at least this.
const LEAST_INFLATION: f64 = 0.7;

/// ‖v‖² is at most this.
pub const LARGEST_NORM_SQUARE: f64 = 3.25;

/// ln ρ is looked for between −`WIDEST` and `WIDEST`, in so many halvings.
const WIDEST: f64 = 12.0;
const HALVINGS: usize = 80;

/// What a unit with a usable record shows.
#[derive(Debug, Clone, Copy)]
pub struct Unit<'a> {
    /// s, its weighted score: no longer than C.
    pub score: &'a [f64],
    /// ω/ω̄: the smallest weight of its records over that of a typical one.
    pub relative_weight: f64,
    /// The mean of its squared Pearson residuals.
    pub mean_square: f64,
}

impl Unit<'_> {
    /// v of d + 3 numbers, for the length C that no score exceeds.
    #[must_use]
    pub fn vector(&self, longest: f64) -> Vec<f64> {
        let light = if self.relative_weight < 0.5 { 1.0 } else { 0.0 };
        let spread = self.mean_square.min(LARGEST_SQUARE) / LARGEST_SQUARE - 0.5;
        [1.0, light, spread].into_iter().chain(self.score.iter().map(|s| (s / longest).powi(2))).collect()
    }
}

/// E min(ρ²χ²₁, 9)/9, which rises with ρ from 0 to 1.
#[must_use]
pub fn mean_of_cut_squares(scale: f64) -> f64 {
    let cut = LARGEST_SQUARE.sqrt() / scale;
    (scale * scale * (1.0 - 2.0 * cdf(-cut) - 2.0 * cut * density(cut)) + 2.0 * LARGEST_SQUARE * cdf(-cut)) / LARGEST_SQUARE
}

/// ρ for a mean of t in (0, 1); NaN for one that is NaN.
#[must_use]
pub fn scale(mean: f64) -> f64 {
    if mean.is_nan() {
        return f64::NAN;
    }
    let (mut low, mut high) = (-WIDEST, WIDEST);
    for _ in 0..HALVINGS {
        let middle = f64::midpoint(low, high);
        *(if mean_of_cut_squares(middle.exp()) < mean { &mut low } else { &mut high }) = middle;
    }
    f64::midpoint(low, high).exp()
}

/// The covariance of the records' scores, with what the check says of it. All vectors have d entries.
#[derive(Debug, Clone, PartialEq)]
pub struct Robust {
    /// need = κH_jj/C².
    pub expected: DVector<f64>,
    /// f = max(D_j, 0)/need.
    pub ratio: DVector<f64>,
    /// v = (sd of D_j's noise/need)².
    pub relative_variance: DVector<f64>,
    /// F = max(0.7, 1 + (f − 1)/(1 + v/2)): drawn to 1 where noise hides it.
    pub inflation: DVector<f64>,
    /// F^½ κH F^½.
    pub covariance: DMatrix<f64>,
}

impl Robust {
    /// Of κH and D, with the length C that no score exceeds.
    ///
    /// # Panics
    /// Matrices and vectors of different dimensions.
    #[must_use]
    pub fn new(scores: &DMatrix<f64>, longest: f64, released: &DVector<f64>, noise_sd: f64) -> Self {
        let expected = scores.diagonal() / (longest * longest);
        let ratio = released.map(|sum| sum.max(0.0)).component_div(&expected);
        let relative_variance = expected.map(|need| (noise_sd / need).powi(2));
        let inflation = ratio.zip_map(&relative_variance, |f, v| (1.0 + (f - 1.0) / (1.0 + 0.5 * v)).max(LEAST_INFLATION));
        let root = DMatrix::from_diagonal(&inflation.map(f64::sqrt));
        Self { covariance: &root * scores * &root, expected, ratio, relative_variance, inflation }
    }
}

#[cfg(test)]
mod tests {
    use super::{LARGEST_NORM_SQUARE, Robust, Unit, mean_of_cut_squares, scale};
    use crate::expectation::expectation;
    use nalgebra::{DMatrix, DVector};

    #[test]
    fn no_vector_is_longer_than_its_bound() {
        for (mean_square, relative_weight) in [(0.0, 0.1), (1e300, 0.1), (4.5, 0.49)] {
            let unit = Unit { score: &[0.0, 2.0], relative_weight, mean_square };
            let square: f64 = unit.vector(2.0).iter().map(|v| v * v).sum();
            assert!(square <= LARGEST_NORM_SQUARE + 1e-12 && unit.vector(2.0).len() == 5);
        }
    }

    #[test]
    fn the_scale_is_that_of_the_residuals() {
        for rho in [0.1, 0.6, 1.0, 2.0, 20.0] {
            assert!((scale(mean_of_cut_squares(rho)) / rho - 1.0).abs() < 1e-9, "{rho}");
        }
        // A rule for smooth functions, of one that has an edge.
        let [exact] = expectation(0.0, 1.0, |u| [(u * u).min(9.0) / 9.0]);
        assert!((mean_of_cut_squares(1.0) - exact).abs() < 1e-3 && scale(f64::NAN).is_nan());
    }

    /// Scores that vary three times as much as their curvature says, seen well and hardly.
    #[test]
    fn noise_draws_the_inflation_to_1() {
        let h = DMatrix::from_diagonal(&DVector::from_vec(vec![100.0, 100.0]));
        let inflation = |sd: f64| Robust::new(&h, 2.0, &DVector::from_vec(vec![75.0, 0.0]), sd).inflation;
        assert!((inflation(1.0)[0] - 3.0).abs() < 0.01 && inflation(1.0)[1] == 0.7);
        assert!((inflation(250.0)[0] - 1.0).abs() < 0.05);
    }
}
