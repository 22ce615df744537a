//! What releases tell of coefficients as a Gaussian likelihood, y ~ N(Hθ, S), and what different priors make of it.
//!
//! A prior N(m0, Σ0) with Σ0 = Λ0⁻¹ diagonal gives the precision Λ0 + H S⁻¹ H and the mean (Λ0 + H S⁻¹ H)⁻¹(Λ0 m0 + H S⁻¹ y). y has the density
//! N(y; H m0, S + H Σ0 H) beforehand. Two questions are answered from these alone, without another release:
//!
//! * [`against_prior`](GaussianLikelihood::against_prior): whether data and prior disagree, and which coefficients the prior decides about;
//! * [`over_scales`](GaussianLikelihood::over_scales): predictions that average over scales of the prior by how well each foresees y. The smallest scale stands for "nothing was learned". All
//!   scales have one S: with one of its own each density would be of another thing.
//!
//! **Source**: this project; the tail area of y is Box's (1980) check of a prior.

use nalgebra::{Cholesky, DMatrix, DVector, Dyn};

use crate::chi_square::upper_tail;

/// By how much wider a prior is tried.
const WIDER: f64 = 4.0;

/// By how many standard deviations the wider prior moves a coefficient that the prior decides about.
const MOVED: f64 = 1.0;

/// How far off the prior's mean the data alone put such a coefficient, in standard deviations of both.
const AWAY: f64 = 2.0;

/// y, H and S, for d coefficients.
#[derive(Debug, Clone, PartialEq)]
pub struct GaussianLikelihood {
    /// H, d × d, positive semidefinite.
    pub curvature: DMatrix<f64>,
    /// y.
    pub pull: DVector<f64>,
    /// S, d × d, positive definite.
    pub covariance: DMatrix<f64>,
}

/// Independent normal priors of d coefficients.
#[derive(Debug, Clone, PartialEq)]
pub struct Independent {
    /// m0.
    pub mean: DVector<f64>,
    /// Standard deviations, above 0.
    pub sd: DVector<f64>,
}

/// A mean and a covariance.
#[derive(Debug, Clone, PartialEq)]
pub struct Moments {
    /// d numbers.
    pub mean: DVector<f64>,
    /// d × d.
    pub covariance: DMatrix<f64>,
}

impl Moments {
    /// Of a mixture with these weights, which add up to 1. `None` without a part.
    #[must_use]
    pub(crate) fn of_mixture<'a>(parts: impl Iterator<Item = (f64, &'a Self)> + Clone) -> Option<Self> {
        let mean = parts.clone().map(|(weight, part)| &part.mean * weight).reduce(|a, b| a + b)?;
        let square = |part: &Self| {
            let off = &part.mean - &mean;
            &part.covariance + &off * off.transpose()
        };
        let covariance = parts.map(|(weight, part)| square(part) * weight).reduce(|a, b| a + b)?;
        Some(Self { mean, covariance })
    }

    /// The standard deviation of a coordinate.
    #[must_use]
    pub fn sd(&self, j: usize) -> f64 {
        self.covariance[(j, j)].max(0.0).sqrt()
    }
}

/// How a prior and the data go together.
#[derive(Debug, Clone, PartialEq)]
pub struct AgainstPrior {
    /// (y − Hm0)ᵀ(S + HΣ0H)⁻¹(y − Hm0), χ² with d degrees of freedom where the prior is right.
    pub statistic: f64,
    /// Its upper tail.
    pub p: f64,
    /// The mean with a prior four times as wide.
    pub wider: DVector<f64>,
    /// By how much that moves every coefficient, in posterior standard deviations.
    pub shift: DVector<f64>,
    /// The mean without a prior.
    pub flat: DVector<f64>,
    /// The coefficients about which the prior decides: they move by more than a standard deviation, and the data alone put them further off the prior's mean than both allow.
    pub decides: Vec<usize>,
}

/// A posterior that averages over scales of the prior.
#[derive(Debug, Clone, PartialEq)]
pub struct OverScales {
    /// Of every scale; they add up to 1.
    pub weights: Vec<f64>,
    /// The posterior with every scale.
    pub parts: Vec<Moments>,
    /// Mean and covariance of the mixture.
    pub all: Moments,
}

/// H S⁻¹ H and H S⁻¹ y.
struct Information {
    matrix: DMatrix<f64>,
    vector: DVector<f64>,
}

impl Information {
    /// The posterior with a prior of these precisions.
    fn with(&self, mean: &DVector<f64>, precision: &DVector<f64>) -> Option<Moments> {
        let factor = Cholesky::new(&self.matrix + DMatrix::from_diagonal(precision))?;
        Some(Moments { mean: factor.solve(&(precision.component_mul(mean) + &self.vector)), covariance: factor.inverse() })
    }
}

impl GaussianLikelihood {
    fn information(&self) -> Option<Information> {
        let factor = Cholesky::new(self.covariance.clone())?;
        Some(Information { matrix: &self.curvature * factor.solve(&self.curvature), vector: &self.curvature * factor.solve(&self.pull) })
    }

    /// The posterior with a prior. `None` where a matrix is not positive definite.
    #[must_use]
    pub fn posterior(&self, prior: &Independent) -> Option<Moments> {
        self.information()?.with(&prior.mean, &prior.precision())
    }

    /// S + HΣ0H as a factor, and y − Hm0.
    fn foreseen(&self, prior: &Independent) -> Option<(Cholesky<f64, Dyn>, DVector<f64>)> {
        let of_prior = &self.curvature * DMatrix::from_diagonal(&prior.sd.map(|sd| sd * sd)) * &self.curvature;
        Some((Cholesky::new(&self.covariance + of_prior)?, &self.pull - &self.curvature * &prior.mean))
    }

    /// ln N(y; Hm0, S + HΣ0H) up to a constant. `None` where a matrix is not positive definite.
    #[must_use]
    pub(crate) fn log_evidence(&self, prior: &Independent) -> Option<f64> {
        let (factor, residual) = self.foreseen(prior)?;
        let half_log_determinant: f64 = factor.l_dirty().diagonal().iter().map(|entry| entry.ln()).sum();
        Some(-0.5 * residual.dot(&factor.solve(&residual)) - half_log_determinant)
    }

    /// How these data go with a prior. `None` where a matrix is not positive definite: without a prior H has to be.
    #[must_use]
    pub fn against_prior(&self, prior: &Independent) -> Option<AgainstPrior> {
        let (factor, residual) = self.foreseen(prior)?;
        let statistic = residual.dot(&factor.solve(&residual));
        #[allow(clippy::cast_precision_loss, reason = "a dimension")]
        let p = upper_tail(statistic, residual.len() as f64);
        let (information, precision) = (self.information()?, prior.precision());
        let own = information.with(&prior.mean, &precision)?;
        let wider = information.with(&prior.mean, &(&precision / (WIDER * WIDER)))?.mean;
        let flat = information.with(&prior.mean, &DVector::zeros(precision.len()))?;
        let shift = DVector::from_fn(wider.len(), |j, _| (wider[j] - own.mean[j]) / own.sd(j));
        let is_away = |j: usize| (flat.mean[j] - prior.mean[j]).abs() > AWAY * (flat.covariance[(j, j)] + prior.sd[j].powi(2)).sqrt();
        let decides = (0..shift.len()).filter(|&j| shift[j].abs() > MOVED && is_away(j)).collect();
        Some(AgainstPrior { statistic, p, wider, shift, flat: flat.mean, decides })
    }

    /// The posterior over these priors, which are alike beforehand. `None` where a matrix is not positive definite, or without a prior.
    #[must_use]
    pub fn over_scales(&self, priors: &[Independent]) -> Option<OverScales> {
        let information = self.information()?;
        let logs: Vec<f64> = priors.iter().map(|prior| self.log_evidence(prior)).collect::<Option<_>>()?;
        let parts: Vec<Moments> = priors.iter().map(|prior| information.with(&prior.mean, &prior.precision())).collect::<Option<_>>()?;
        let weights = shares(&logs);
        let all = Moments::of_mixture(weights.iter().copied().zip(&parts))?;
        Some(OverScales { weights, parts, all })
    }
}

impl Independent {
    fn precision(&self) -> DVector<f64> {
        self.sd.map(|sd| sd.powi(-2))
    }
}

/// e^l over their sum.
pub(crate) fn shares(logs: &[f64]) -> Vec<f64> {
    let most = logs.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let weights: Vec<f64> = logs.iter().map(|log| (log - most).exp()).collect();
    let total: f64 = weights.iter().sum();
    weights.iter().map(|weight| weight / total).collect()
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::{GaussianLikelihood, Independent};
    use nalgebra::{DMatrix, DVector};

    /// Of one coefficient with estimate y/H and variance S/H².
    fn estimated(estimate: f64, variance: f64) -> GaussianLikelihood {
        let (h, one) = (10.0, |value| DMatrix::from_element(1, 1, value));
        GaussianLikelihood { curvature: one(h), pull: DVector::from_element(1, h * estimate), covariance: one(variance * h * h) }
    }

    fn prior(mean: f64, sd: f64) -> Independent {
        Independent { mean: DVector::from_element(1, mean), sd: DVector::from_element(1, sd) }
    }

    #[test]
    fn one_coefficient_is_a_mean_by_precisions() {
        let found = estimated(2.0, 0.25).posterior(&prior(1.0, 1.0)).unwrap();
        assert!((found.mean[0] - (1.0 + 4.0 * 2.0) / 5.0).abs() < 1e-12 && (found.covariance[(0, 0)] - 0.2).abs() < 1e-12);
    }

    /// A narrow prior that the data contradict decides; a wide one does not, and neither does a narrow one where the data say the same.
    #[test]
    fn a_prior_decides_where_a_wider_one_moves_what_the_data_put_elsewhere() {
        let decides = |estimate: f64, sd: f64| estimated(estimate, 0.04).against_prior(&prior(0.0, sd)).unwrap();
        assert_eq!(decides(2.0, 0.2).decides, [0]);
        assert!(decides(2.0, 2.5).decides.is_empty() && decides(0.1, 0.2).decides.is_empty());
        let found = decides(2.0, 0.2);
        assert!((found.statistic - 4.0 / 0.08).abs() < 1e-9 && found.p < 1e-9);
        assert!((found.flat[0] - 2.0).abs() < 1e-12 && (found.wider[0] - 2.0 * 25.0 / (25.0 + 25.0 / 16.0)).abs() < 1e-12);
    }

    #[test]
    fn the_scale_that_foresees_the_data_has_the_weight() {
        let scales = [0.02, 1.0, 2.5].map(|sd| prior(0.0, sd));
        let weights = |estimate: f64| estimated(estimate, 0.01).over_scales(&scales).unwrap().weights;
        assert!(weights(0.0)[0] > 0.8 && weights(1.0)[1] > 0.5 && weights(8.0)[2] > 0.9);
        let found = estimated(0.0, 0.01).over_scales(&scales).unwrap();
        assert!((found.weights.iter().sum::<f64>() - 1.0).abs() < 1e-12);
        assert!(found.all.covariance[(0, 0)] < found.parts[2].covariance[(0, 0)]);
    }
}
