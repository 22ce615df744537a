//! Weighted records: weights that keep terms within the clipping norm, and the ratio κ of the variance of their scores to their curvature.
//!
//! A record with weight ω adds ωc xxᵀ to the curvature and ω²c xxᵀ to the covariance of the scores: about κ times as much, κ = Σω²c/Σωc. Longer rows have smaller weights, so that κ differs
//! between coordinates: a rare level, whose entry is scaled up before the clip, makes a row longer than the reference level does ([`Weighted::shares`]).

use dp_pvi_schema::EntryKind as Entry;
use nalgebra::{DMatrix, DVector};

use super::correlations::Correlations;
use dp_pvi_math::expectation::expectation;
use dp_pvi_models::ModelSpec;
use dp_pvi_models::expected::expected_curvature;
use dp_pvi_models::predictor::Statistics;

/// κ is taken to be at least this.
const LEAST_SHARE: f64 = 0.6;

/// Weight of a record: min(1, C / max norm of its term over both labels), for the clipping norm C, the weight of the curvature block, and the squared norms of both blocks at r = c = 1.
#[inline]
pub(crate) fn weight_within(clip_norm: f64, curvature_weight: f64, of: [Statistics; 2], [gradient, curvature]: [f64; 2]) -> f64 {
    let [own, other] = of.map(|s| s.residual * s.residual * gradient + (curvature_weight * s.curvature).powi(2) * curvature);
    (clip_norm / own.max(other).sqrt()).min(1.0)
}

/// How the records of a run are weighted.
#[derive(Debug, Clone)]
pub(crate) struct Weighted {
    pub(crate) model: ModelSpec,
    /// C.
    pub(crate) clip_norm: f64,
    /// What the curvature block is multiplied by.
    pub(crate) curvature_weight: f64,
    /// What entries are multiplied by before the clip where the block is a diagonal; else it is xxᵀ.
    pub(crate) scales: Option<DVector<f64>>,
}

/// Second moments of rows of which the intercept's is 1, and its coordinate.
pub(super) type Moments<'a> = (&'a DMatrix<f64>, usize);

impl Weighted {
    /// ω of a record that adds this with either label, for rows with these squared norms of both blocks at r = c = 1.
    pub(super) fn weight(&self, of: [Statistics; 2], squares: [f64; 2]) -> f64 {
        weight_within(self.clip_norm, self.curvature_weight, of, squares)
    }

    /// Mean squared norms of both blocks for r = c = 1 and rows with these moments, whose numbers are about normal.
    pub(super) fn squares(&self, moments: &DMatrix<f64>, correlations: &Correlations) -> [f64; 2] {
        let Some(scales) = &self.scales else { return [moments.trace(), moments.trace().powi(2)] };
        let of = |j: usize| Self::square(scales[j], correlations.entry(j), moments[(j, j)]);
        (0..scales.len()).map(of).fold([0.0; 2], |[a, b], [c, d]| [a + c, b + d])
    }

    /// What an entry with this scale and second moment adds to both.
    fn square(scale: f64, entry: Entry, moment: f64) -> [f64; 2] {
        let fourth = if entry == Entry::Number { 3.0 * moment * moment } else { moment };
        [moment, fourth].map(|power| scale * scale * power)
    }

    /// κ for rows with these squared norms, if the posterior is about `theta`.
    fn share(&self, theta: &DVector<f64>, (moments, intercept): Moments<'_>, squares: [f64; 2]) -> Option<f64> {
        let predictor = self.model.rules().predictor()?;
        let centre = moments.column(intercept).dot(theta);
        let variance = ((moments * theta).dot(theta) - centre * centre).max(0.0);
        let [once, twice] = expectation(centre, variance, |mean| {
            let both = [0.0, 1.0].map(|label| predictor.statistics(mean, 0.0, label));
            let (curvature, weight) = (expected_curvature(both[0], both[1]), self.weight(both, squares));
            [weight * curvature, weight * weight * curvature]
        });
        Some(twice / once).filter(|share| share.is_finite()).map(|share| share.clamp(LEAST_SHARE, 1.0))
    }

    /// κ of all, if the posterior is about `theta`. By the moments of rows, for rows of the same length and a predictor that is normal.
    pub(super) fn scores(&self, theta: &DVector<f64>, moments: Moments<'_>, correlations: &Correlations) -> Option<f64> {
        self.share(theta, moments, self.squares(moments.0, correlations))
    }

    /// κ of every coordinate over that of all: of the rows with a level, of rows by the square of a number. The intercept has that of all levels of a category, averaged over categories.
    pub(super) fn shares(&self, theta: &DVector<f64>, moments: Moments<'_>, correlations: &Correlations) -> Option<DVector<f64>> {
        let (scales, (matrix, intercept)) = (self.scales.as_ref()?, moments);
        let all = self.squares(matrix, correlations);
        let mean = self.share(theta, moments, all)?;
        let mut shares = DVector::repeat(scales.len(), 1.0);
        let groups = (0..scales.len()).filter_map(|j| match correlations.entry(j) {
            Entry::Indicator { group } => Some(group),
            _ => None,
        });
        let groups: std::collections::BTreeSet<usize> = groups.collect();
        for (j, share) in shares.iter_mut().enumerate().filter(|(j, _)| correlations.entry(*j) == Entry::Number) {
            // E x⁴ is 3 (E x²)², E x⁶ is 15 (E x²)³.
            let (moment, scale) = (matrix[(j, j)], scales[j] * scales[j]);
            *share = self.share(theta, moments, [all[0] + 2.0 * scale * moment, all[1] + 12.0 * scale * moment * moment])? / mean;
        }
        let mut of_all = Vec::with_capacity(groups.len());
        for group in groups {
            let levels: Vec<usize> = (0..scales.len()).filter(|&j| correlations.entry(j) == Entry::Indicator { group }).collect();
            let added = levels.iter().map(|&j| scales[j] * scales[j] * matrix[(j, j)]).sum::<f64>();
            let without = all.map(|square| (square - added).max(0.0));
            let rest = (1.0 - levels.iter().map(|&j| matrix[(j, j)]).sum::<f64>()).max(0.0);
            let mut sum = rest * self.share(theta, moments, without)? / mean;
            let mut seen = rest;
            for j in levels {
                shares[j] = self.share(theta, moments, without.map(|square| square + scales[j] * scales[j]))? / mean;
                sum += matrix[(j, j)] * shares[j];
                seen += matrix[(j, j)];
            }
            of_all.push(sum / seen);
        }
        if !of_all.is_empty() {
            #[allow(clippy::cast_precision_loss, reason = "a number of categories")]
            let count = of_all.len() as f64;
            shares[intercept] = of_all.iter().sum::<f64>() / count;
        }
        Some(shares)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::{Entry, Weighted};
    use crate::methods::noise_aware::correlations::Correlations;
    use dp_pvi_models::logistic_regression::LogisticRegression;
    use nalgebra::{DMatrix, DVector};

    /// One category: rows of the reference (1, 0, 0), and of two levels with longer rows.
    #[test]
    fn levels_with_longer_rows_have_a_smaller_share_and_the_intercept_that_of_all() {
        let entries = vec![Entry::Intercept, Entry::Indicator { group: 0 }, Entry::Indicator { group: 0 }];
        let correlations = Correlations::of_entries(entries, None);
        let moments = DMatrix::from_row_slice(3, 3, &[1.0, 0.3, 0.1, 0.3, 0.3, 0.0, 0.1, 0.0, 0.1]);
        let scales = DVector::from_vec(vec![0.8, 0.8, 1.6]);
        let weighted = Weighted { model: LogisticRegression {}.into(), clip_norm: 0.5, curvature_weight: 0.1, scales: Some(scales) };
        let shares = weighted.shares(&DVector::zeros(3), (&moments, 0), &correlations).unwrap();
        // At θ = 0 residuals are ½ and curvatures ¼, so that κ is ω = C/√(r²‖ax‖² + (wc)²‖ax²‖²), 1 at most.
        let of = |square: f64| (0.5 / (0.25 * square + 0.01 / 16.0 * square).sqrt()).clamp(0.6, 1.0);
        let mean = of(0.64 * 1.3 + 2.56 * 0.1);
        let [reference, one, other] = [0.64, 1.28, 0.64 + 2.56].map(of);
        assert!((shares[1] - one / mean).abs() < 1e-12 && (shares[2] - other / mean).abs() < 1e-12);
        assert!((shares[0] - (0.6 * reference + 0.3 * one + 0.1 * other) / mean).abs() < 1e-12);
        assert!(shares[2] < shares[1] && shares[1] < shares[0]);
    }
}
