//! The noise-aware posterior of bounded natural-gradient variational inference with its Gram preconditioner.
//!
//! Every gradient visit moves μ by ρP⁻¹(g̃ + Λ0(m0 − μ)) with g̃ = δ + H(θ − μ) + ε near the posterior: δ is the records' score at θ with
//! covariance H, ε has the known variance of the visit. Iterate and running mean are affine in (θ, δ, ε); their joint covariance
//! follows the public recursion, and the final mean is an observation of θ with known slope and covariance.
//!
//! H is what was released: svec of it with full covariance; in the mean field its diagonal, with the Gram matrix' correlations
//! (H ≈ S P̂ S). Its noise acts on the displacement of the posterior. A mean field gets the marginal variances of the
//! result. Approximations: the gradient is linear on the way, and no term is shortened, which would bias the fit; of weighted records the curvature
//! is taken for the score's covariance, which is less.

use dp_pvi_expfam::any::Family;
use dp_pvi_expfam::gaussian::full::{svec, triangle, unsvec};
use nalgebra::{Cholesky, DMatrix, DVector};

use crate::methods::NaturalGradientRule;
use crate::methods::noise_aware::{ClosedRound, History, Posterior, signal_to_noise};
use crate::methods::{NaturalGradientSpec, NaturalGradientVisit, Preconditioner, Setting};

/// Largest d: the recursion multiplies d×d matrices at every visit.
const LARGEST: usize = 512;

pub(crate) fn posterior(task: &Setting<'_>, spec: &NaturalGradientSpec, history: &History) -> Option<Posterior> {
    let family = task.family();
    let (d, len) = (family.dimension(), family.len());
    let last = &history.rounds.last()?.state;
    if spec.preconditioner != Preconditioner::Gram || d > LARGEST || last.len() != 2 * len + triangle(d) {
        return None;
    }
    let prior = task.prior_natural();
    let prior_precision = task.prior.scale.powi(-2);
    let preconditioner = unsvec(&last[2 * len..], d);
    let inverse = Cholesky::new(preconditioner.clone())?.inverse();
    let likelihood = likelihood(family, &prior, last, &preconditioner, prior_precision);
    let rule = NaturalGradientRule::new(task, *spec);
    let gradient: Vec<&ClosedRound> =
        history.rounds.iter().filter(|r| !r.included.is_empty() && spec.visit(r.visit) == NaturalGradientVisit::Gradient).collect();

    let gain = &inverse * spec.step;
    let keep = DMatrix::identity(d, d) - &gain * (&likelihood + DMatrix::identity(d, d) * prior_precision);
    let drift = DVector::from_element(d, prior_precision * task.prior.mean);
    let mut moments = Moments::start(d, task.prior.mean);
    let (mut curvature_noise, mut curvature_weight) = (0.0, 0.0);
    for round in gradient {
        let sites = u32::try_from(round.included.len()).unwrap_or(u32::MAX);
        let noise = rule.sum_noise(round.visit, sites).powi(2);
        moments = moments.step(&keep, &gain, &drift, noise, rule.mean_gain(round.visit));
        curvature_noise += noise / spec.curvature_weight.powi(2);
        curvature_weight += 1.0;
    }
    // The mean of the released curvatures runs over at most the averaged visits.
    let window = (curvature_weight * spec.averaging).ceil().max(1.0);
    let curvature_variance = curvature_noise / f64::max(curvature_weight, 1.0) / window;
    let mean = mean_of(family, last)?;
    let mut displacement = 0.0;
    let mut result = None;
    for _ in 0..2 {
        let score = &likelihood + DMatrix::identity(d, d) * (0.5 * curvature_variance * displacement);
        let (precision, h) = moments.bayes(&likelihood, &score, &mean, prior_precision, task.prior.mean)?;
        let covariance = Cholesky::new(precision.clone())?.inverse();
        displacement = covariance.trace();
        result = Some(match family {
            Family::FullGaussian { .. } => [h.as_slice().to_vec(), svec(&precision)].concat(),
            Family::DiagonalGaussian { .. } => {
                let mean = &covariance * &h;
                let precision: Vec<f64> = covariance.diagonal().iter().map(|v| 1.0 / v).collect();
                [mean.iter().zip(&precision).map(|(m, p)| m * p).collect(), precision].concat()
            }
            #[allow(unreachable_patterns, reason = "families that this update does not have")]
            _ => return None,
        });
    }
    let natural_parameters = result.filter(|natural| natural.iter().all(|v| v.is_finite()))?;
    // The running mean of the released curvatures, before any floor.
    let released = &last[len + d..2 * len];
    Some(Posterior { natural_parameters, signal_to_noise: signal_to_noise(released, curvature_variance.sqrt()) })
}

/// H: Λ − Λ0 of the final posterior, with the Gram matrix' correlations where only the diagonal was released.
fn likelihood(family: Family, prior: &[f64], state: &[f64], preconditioner: &DMatrix<f64>, prior_precision: f64) -> DMatrix<f64> {
    let d = family.dimension();
    let released: Vec<f64> = state[d..family.len()].iter().zip(&prior[d..]).map(|(l, p)| l - p).collect();
    if released.len() == d {
        let gram = preconditioner - DMatrix::identity(d, d) * prior_precision;
        let scale = |j: usize| (released[j].max(0.0) / gram[(j, j)].max(f64::MIN_POSITIVE)).sqrt();
        DMatrix::from_fn(d, d, |i, j| if i == j { released[j].max(0.0) } else { gram[(i, j)] * scale(i) * scale(j) })
    } else {
        unsvec(&released, d)
    }
}

/// μ of a state's posterior.
fn mean_of(family: Family, state: &[f64]) -> Option<DVector<f64>> {
    let natural = dp_pvi_expfam::any::Gaussian::from_natural(family, state[..family.len()].to_vec()).ok()?;
    Some(DVector::from_column_slice(natural.standard().mean()))
}

/// Iterate and running mean as affine functions of the score, θ and the noise.
struct Moments {
    /// Loadings on the score.
    iterate: DMatrix<f64>,
    mean: DMatrix<f64>,
    /// Constants.
    iterate_constant: DVector<f64>,
    mean_constant: DVector<f64>,
    /// Cov(iterate), Cov(mean, iterate), Cov(mean) of the noise.
    covariance: [DMatrix<f64>; 3],
}

impl Moments {
    fn start(d: usize, mean: f64) -> Self {
        let zero = || DMatrix::zeros(d, d);
        let constant = DVector::from_element(d, mean);
        Self {
            iterate: zero(),
            mean: zero(),
            iterate_constant: constant.clone(),
            mean_constant: constant,
            covariance: [zero(), zero(), zero()],
        }
    }

    /// μ ← Kμ + G(δ + Hθ + Λ0 m0 + ε), mean ← mean + γ(μ − mean).
    fn step(self, keep: &DMatrix<f64>, gain: &DMatrix<f64>, drift: &DVector<f64>, noise: f64, share: f64) -> Self {
        let [iterate_noise, cross, mean_noise] = self.covariance;
        let iterate = keep * &self.iterate + gain;
        let iterate_constant = keep * &self.iterate_constant + gain * drift;
        let new = keep * iterate_noise * keep.transpose() + (gain * gain.transpose()) * noise;
        let carried = cross * keep.transpose();
        let both = &carried + carried.transpose();
        Self {
            mean: self.mean * (1.0 - share) + &iterate * share,
            mean_constant: self.mean_constant * (1.0 - share) + &iterate_constant * share,
            covariance: [
                new.clone(),
                carried * (1.0 - share) + &new * share,
                mean_noise * (1.0 - share).powi(2) + both * (share * (1.0 - share)) + new * share.powi(2),
            ],
            iterate,
            iterate_constant,
        }
    }

    /// (Λ_na, h_na) of θ given the observed mean: Λ0 + AᵀV⁻¹A with A = BH and V = B Cov(δ) Bᵀ + Cov(noise).
    fn bayes(
        &self,
        likelihood: &DMatrix<f64>,
        score: &DMatrix<f64>,
        observed: &DVector<f64>,
        prior_precision: f64,
        prior_mean: f64,
    ) -> Option<(DMatrix<f64>, DVector<f64>)> {
        let d = observed.len();
        let slope = &self.mean * likelihood;
        let variance = &self.mean * score * self.mean.transpose() + &self.covariance[2];
        let factor = Cholesky::new((&variance + variance.transpose()) * 0.5)?;
        let whitened = factor.l_dirty().solve_lower_triangular(&slope)?;
        let residual = factor.solve(&(observed - &self.mean_constant));
        let precision = whitened.tr_mul(&whitened) + DMatrix::identity(d, d) * prior_precision;
        let h = slope.tr_mul(&residual).add_scalar(prior_precision * prior_mean);
        Some((precision, h))
    }
}

#[cfg(test)]
mod tests {
    use nalgebra::{DMatrix, DVector};

    use super::Moments;

    /// With no noise and many steps the result is the posterior whose likelihood has precision H, wherever the iteration stood.
    #[test]
    fn converged_runs_without_noise_give_the_plain_posterior() {
        let likelihood = DMatrix::from_row_slice(2, 2, &[8.0, 2.0, 2.0, 5.0]);
        let prior = 0.5;
        let gain = (&likelihood * 1.3 + DMatrix::identity(2, 2) * prior).try_inverse().expect("positive definite");
        let keep = DMatrix::identity(2, 2) - &gain * (&likelihood + DMatrix::identity(2, 2) * prior);
        let mut moments = Moments::start(2, 0.2);
        for _ in 0..200 {
            moments = moments.step(&keep, &gain, &DVector::from_element(2, prior * 0.2), 0.0, 1.0);
        }
        let statistic = DVector::from_vec(vec![3.0, -1.0]);
        let exact = &likelihood + DMatrix::identity(2, 2) * prior;
        let mean = exact.clone().try_inverse().expect("positive definite") * statistic.add_scalar(prior * 0.2);
        let (precision, h) = moments.bayes(&likelihood, &likelihood, &mean, prior, 0.2).expect("a posterior");
        assert!((&precision - exact).norm() < 1e-9 && (h - statistic.add_scalar(prior * 0.2)).norm() < 1e-9, "{precision}");
    }

    /// The covariance of iterate and mean against explicit sums over the noise of every step.
    #[test]
    fn the_noise_of_a_mean_is_that_of_its_iterates() {
        let (keep, gain) = (DMatrix::from_row_slice(2, 2, &[0.6, 0.1, -0.2, 0.5]), DMatrix::from_row_slice(2, 2, &[0.3, 0.0, 0.1, 0.4]));
        let shares = [1.0, 1.0, 0.5, 1.0 / 3.0];
        let mut moments = Moments::start(2, 0.0);
        for share in shares {
            moments = moments.step(&keep, &gain, &DVector::zeros(2), 4.0, share);
        }
        // Weight of the noise of step t in the mean of the last three iterates.
        let mut expected = DMatrix::zeros(2, 2);
        for t in 0..4 {
            let mut weight: DMatrix<f64> = DMatrix::zeros(2, 2);
            for iterate in 1..4_i32 {
                if iterate >= t {
                    let power = (0..iterate - t).fold(DMatrix::identity(2, 2), |p, _| &keep * p);
                    weight += power * &gain / 3.0;
                }
            }
            expected += &weight * weight.transpose() * 4.0;
        }
        assert!((&moments.covariance[2] - expected).norm() < 1e-12);
    }
}
