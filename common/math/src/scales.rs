//! Coefficients that share a scale: θ_k ~ N(0, τ²) for the K coefficients of a group, with τ² ~ inverse-gamma(a, b) (density ∝ τ^(−2(a+1)) e^(−b/τ²)).
//!
//! **Coordinate ascent.** With q(θ) of means m_k and variances v_k and S = Σ_k (m_k² + v_k), the best q(τ²) is inverse-gamma(a + K/2, b + S/2), and the prior
//! precision that the coefficients see is E 1/τ² = (K + 2a)/(S + 2b). So τ² := (S + 2b)/(K + 2a) ([`Group::scale`]).
//!
//! **With noise.** Noise on m_k would count as spread, and τ come out too large. For a likelihood part (h, H) that was released with noise of covariance N on h the
//! same ascent is done for the model of what was released ([`NoisyScales`]): P = H(H + N)⁻¹H, p = H(H + N)⁻¹h, then Λ = Λ0(τ) + P, μ = Λ⁻¹(Λ0 m0 + p), S and τ² in
//! turn. Its bound never falls, and nothing is subtracted.
//!
//! Source: coordinate-ascent variational Bayes for a normal with an inverse-gamma variance; the version with noise is this project's.

use crate::expfam::any::Family;
use crate::expfam::gaussian::full::unsvec;
use nalgebra::{Cholesky, DMatrix, DVector};
use serde::{Deserialize, Serialize};

/// A change of ln τ² that ends the ascent, and steps at most.
const STILL: f64 = 1e-12;
const STEPS: usize = 1000;

/// Pieces between two points of a grid.
const PIECES: i32 = 16;

/// Coefficients that share a scale, and what is known of it beforehand.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Group {
    /// Position of the first coefficient.
    pub first: usize,
    /// K.
    pub count: usize,
    /// a.
    pub shape: f64,
    /// b.
    pub rate: f64,
    /// τ², where it is known.
    pub fixed: Option<f64>,
}

impl Group {
    /// τ² before anything is known: b/a, or the known one.
    #[must_use]
    pub fn start(&self) -> f64 {
        self.fixed.unwrap_or(self.rate / self.shape)
    }

    /// τ² = (S + 2b)/(K + 2a), 1 over the expected precision. `mean` and `variance` are those of all coefficients.
    #[must_use]
    pub fn scale(&self, mean: &[f64], variance: &[f64]) -> f64 {
        let (shape, rate) = self.posterior(mean, variance);
        self.fixed.unwrap_or(rate / shape)
    }

    /// Shape and rate of q(τ²): a + K/2 and b + S/2.
    #[must_use]
    pub fn posterior(&self, mean: &[f64], variance: &[f64]) -> (f64, f64) {
        let own = self.first..self.first + self.count;
        let square: f64 = mean[own.clone()].iter().map(|m| m * m).sum::<f64>() + variance[own].iter().sum::<f64>();
        #[allow(clippy::cast_precision_loss, reason = "a number of coefficients")]
        let count = self.count as f64;
        (self.shape + 0.5 * count, self.rate + 0.5 * square)
    }
}

/// Summary of the posterior of a scale τ without a named distribution: median and central intervals.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ScaleSummary {
    /// Median.
    pub median: f64,
    /// 5 % and 95 % quantiles.
    pub central_90: [f64; 2],
    /// 2.5 % and 97.5 % quantiles.
    pub central_95: [f64; 2],
}

impl ScaleSummary {
    /// Of a density of ln τ² of which ln p is known at points k·`step` + `origin`; `log_density` has k and ln p up to a constant, in the order of k. Between two neighbours ln p is
    /// the parabola with the mean of their second differences, which is exact for a normal density; where a neighbour is missing, p is 0.
    ///
    /// # Panics
    /// No point.
    #[must_use]
    pub fn of_grid(log_density: &[(i32, f64)], step: f64, origin: f64) -> Self {
        let bend = |i: usize| {
            let [before, here, after] = [log_density[i.wrapping_sub(1)], log_density[i], log_density[i + 1]];
            (before.0 + 1 == here.0 && here.0 + 1 == after.0).then_some(before.1 - 2.0 * here.1 + after.1)
        };
        let inner = |i: usize| if i > 0 && i + 1 < log_density.len() { bend(i) } else { None };
        let best = log_density.iter().map(|(_, log)| *log).fold(f64::NEG_INFINITY, f64::max);
        // Pieces of equal width: where they end, and their mass.
        let mut pieces = vec![(f64::from(log_density[0].0), 0.0)];
        for i in 0..log_density.len() - 1 {
            let [(k, here), (next, there)] = [log_density[i], log_density[i + 1]];
            if k + 1 != next {
                pieces.push((f64::from(next), 0.0));
                continue;
            }
            let bend = match (inner(i), inner(i + 1)) {
                (Some(a), Some(b)) => 0.5 * (a + b),
                (Some(one), None) | (None, Some(one)) => one,
                (None, None) => 0.0,
            };
            for piece in 0..PIECES {
                let middle = (f64::from(piece) + 0.5) / f64::from(PIECES);
                let log = here + middle * (there - here) - 0.5 * middle * (1.0 - middle) * bend;
                pieces.push((f64::from(k) + f64::from(piece + 1) / f64::from(PIECES), (log - best).exp()));
            }
        }
        let total: f64 = pieces.iter().map(|(_, mass)| mass).sum();
        let quantile = |probability: f64| {
            let (mut below, mut start, wanted) = (0.0, pieces[0].0, probability * total);
            for (end, mass) in &pieces[1..] {
                if below + mass >= wanted && *mass > 0.0 {
                    start += (end - start) * (wanted - below) / mass;
                    break;
                }
                (below, start) = (below + mass, *end);
            }
            (0.5 * (origin + step * start)).exp()
        };
        Self { median: quantile(0.5), central_90: [0.05, 0.95].map(quantile), central_95: [0.025, 0.975].map(quantile) }
    }
}

/// The value below which an inverse-gamma variable lies with this probability, by halving on a logarithmic scale; NaN for a probability that is not inside (0, 1).
#[must_use]
pub fn inverse_gamma_quantile(shape: f64, rate: f64, probability: f64) -> f64 {
    if !(probability > 0.0 && probability < 1.0 && shape > 0.0 && rate > 0.0) {
        return f64::NAN;
    }
    // P(X ≤ x) = Q(shape, rate/x), which falls with rate/x.
    let below = |log_x: f64| statrs::function::gamma::gamma_ur(shape, rate * (-log_x).exp());
    let (mut low, mut high) = ((rate / shape).ln() - 1.0, (rate / shape).ln() + 1.0);
    while below(low) > probability && low > -700.0 {
        low -= 2.0 * (high - low);
    }
    while below(high) < probability && high < 700.0 {
        high += 2.0 * (high - low);
    }
    for _ in 0..200 {
        let middle = 0.5 * (low + high);
        if below(middle) < probability { low = middle } else { high = middle }
    }
    (0.5 * (low + high)).exp()
}

/// Puts 1/τ² of every group at its coefficients' precisions.
///
/// # Panics
/// A group reaches beyond the coefficients.
pub fn fill(groups: &[Group], scales: &[f64], precision: &mut [f64]) {
    for (group, scale) in groups.iter().zip(scales) {
        precision[group.first..group.first + group.count].fill(1.0 / scale);
    }
}

/// What was released of a likelihood, and the prior that it meets.
#[derive(Debug, Clone)]
pub struct NoisyScales<'a> {
    /// P: the precision of the released part, with its noise accounted for.
    pub precision: DMatrix<f64>,
    /// p: the same as a first natural parameter.
    pub natural: DVector<f64>,
    /// m0.
    pub prior_mean: &'a [f64],
    /// Λ0's diagonal; entries of groups are not looked at.
    pub prior_precision: &'a [f64],
    /// The groups.
    pub groups: &'a [Group],
    /// Whether q has no correlations: marginal precisions are then Λ's diagonal.
    pub mean_field: bool,
}

/// Where the ascent ended.
#[derive(Debug, Clone, PartialEq)]
pub struct Scaled {
    /// τ² of every group.
    pub scales: Vec<f64>,
    /// μ.
    pub mean: DVector<f64>,
    /// Marginal variances.
    pub variance: Vec<f64>,
}

impl<'a> NoisyScales<'a> {
    /// From what [`noisy_likelihood`](crate::noisy_likelihood) makes of (h, H, N) where the prior is 0: [p; P].
    ///
    /// # Panics
    /// It is not of this family.
    #[must_use]
    pub fn new(family: Family, noisy: &[f64], prior: (&'a [f64], &'a [f64]), groups: &'a [Group]) -> Self {
        let d = family.dimension();
        let (natural, precision) = (DVector::from_column_slice(&noisy[..d]), &noisy[d..]);
        let (precision, mean_field) = match family {
            Family::FullGaussian { .. } => (unsvec(precision, d), false),
            Family::DiagonalGaussian { .. } => (DMatrix::from_diagonal(&DVector::from_column_slice(precision)), true),
        };
        Self { precision, natural, prior_mean: prior.0, prior_precision: prior.1, groups, mean_field }
    }

    /// One step from these τ²: μ and variances under them, and the τ² that follow. `None` where Λ is not positive definite.
    #[must_use]
    pub fn step(&self, scales: &[f64]) -> Option<Scaled> {
        let mut prior = self.prior_precision.to_vec();
        fill(self.groups, scales, &mut prior);
        let prior = DVector::from_vec(prior);
        let h = &self.natural + prior.component_mul(&DVector::from_column_slice(self.prior_mean));
        let (mean, variance) = if self.mean_field {
            let precision = self.precision.diagonal() + &prior;
            (h.component_div(&precision), precision.map(|p| 1.0 / p).as_slice().to_vec())
        } else {
            let factor = Cholesky::new(&self.precision + DMatrix::from_diagonal(&prior))?;
            (factor.solve(&h), factor.inverse().diagonal().as_slice().to_vec())
        };
        let scales = self.groups.iter().map(|group| group.scale(mean.as_slice(), &variance)).collect();
        Some(Scaled { scales, mean, variance })
    }

    /// Steps from the groups' starts until no ln τ² moves by 1e-12, at most 1,000; μ and variances are those of the last τ² but one, which are equal to them
    /// by then. `None` where Λ is not positive definite.
    #[must_use]
    pub fn fixed_point(&self, start: &[f64]) -> Option<Scaled> {
        let mut at = self.step(start)?;
        for _ in 1..STEPS {
            let next = self.step(&at.scales)?;
            let moved = next.scales.iter().zip(&at.scales).map(|(new, old)| (new / old).ln().abs()).fold(0.0, f64::max);
            at = next;
            if moved < STILL {
                break;
            }
        }
        at.mean.iter().all(|v| v.is_finite()).then_some(at)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::{Group, NoisyScales, ScaleSummary};
    use crate::expfam::any::Family;
    use crate::expfam::gaussian::full::svec;
    use crate::noisy_likelihood;
    use nalgebra::{DMatrix, DVector};

    const GROUP: Group = Group { first: 1, count: 3, shape: 1.0, rate: 0.25, fixed: None };

    /// E log p(released, θ, τ²) + entropies, as far as they depend on q: what every step may only raise.
    fn bound(known: &NoisyScales<'_>, mean: &DVector<f64>, covariance: &DMatrix<f64>, shape: f64, rate: f64) -> f64 {
        let e = shape / rate; // E 1/τ²
        let square: f64 = (1..4).map(|j| mean[j] * mean[j] + covariance[(j, j)]).sum();
        let likelihood =
            known.natural.dot(mean) - 0.5 * mean.dot(&(&known.precision * mean)) - 0.5 * (&known.precision * covariance).trace();
        let shared = -0.5 * known.prior_precision[0] * ((mean[0] - known.prior_mean[0]).powi(2) + covariance[(0, 0)]);
        // E ln 1/τ² cancels against the entropy of q(τ²) but for shape, which is the same in all steps.
        let scale = -0.5 * e * square - 0.25 * e + shape - shape * rate.ln();
        likelihood + shared + scale + 0.5 * covariance.determinant().ln()
    }

    #[test]
    fn no_step_lowers_the_bound_and_the_end_is_a_fixed_point() {
        let curvature = DMatrix::from_fn(4, 4, |i, j| if i == j { 20.0 } else { 3.0 / (1.0 + i.abs_diff(j) as f64) });
        let family = Family::FullGaussian { dimension: 4 };
        let likelihood = [vec![10.0, -30.0, 25.0, 4.0], svec(&curvature)].concat();
        let noisy = noisy_likelihood::full(&vec![0.0; family.len()], &likelihood, &(DMatrix::identity(4, 4) * 8.0)).unwrap();
        let groups = [GROUP];
        let known = NoisyScales::new(family, &noisy, (&[0.1, 0.0, 0.0, 0.0], &[1.0; 4]), &groups);
        let (mut scale, mut last) = (GROUP.start(), f64::NEG_INFINITY);
        for _ in 0..20 {
            let at = known.step(&[scale]).unwrap();
            let mut prior = vec![1.0; 4];
            super::fill(&groups, &[scale], &mut prior);
            let covariance = (&known.precision + DMatrix::from_diagonal(&DVector::from_vec(prior))).try_inverse().unwrap();
            let (shape, rate) = GROUP.posterior(at.mean.as_slice(), &at.variance);
            let value = bound(&known, &at.mean, &covariance, shape, rate);
            assert!(value >= last - 1e-10, "{value} {last}");
            (scale, last) = (at.scales[0], value);
        }
        let end = known.fixed_point(&[GROUP.start()]).unwrap();
        let again = known.step(&end.scales).unwrap();
        assert!((again.scales[0] / end.scales[0] - 1.0).abs() < 1e-11);
    }

    /// Noise that hides everything leaves the guess b/a; none leaves the plain update.
    #[test]
    fn much_noise_leaves_the_guess() {
        let likelihood = [900.0, -800.0, 950.0, 700.0, 20.0, 20.0, 20.0, 20.0];
        let groups = [GROUP];
        let end = |noise: f64| {
            let noisy = noisy_likelihood::diagonal(&[0.0; 8], &likelihood, &[noise; 4]);
            let family = Family::DiagonalGaussian { dimension: 4 };
            NoisyScales::new(family, &noisy, (&[0.0; 4], &[1.0; 4]), &groups).fixed_point(&[0.25]).unwrap()
        };
        let (hidden, seen) = (end(1e12), end(0.0));
        assert!((hidden.scales[0] - 0.25).abs() < 1e-3, "{:?}", hidden.scales);
        let expected = GROUP.scale(seen.mean.as_slice(), &seen.variance);
        assert!((seen.scales[0] / expected - 1.0).abs() < 1e-9 && seen.scales[0] > 100.0);
    }

    /// With shape 1, X = b/E with E exponential: the quantile is −b/ln p. With shape ½, 2b/X is a squared normal.
    #[test]
    fn quantiles_of_inverse_gamma_are_known() {
        for p in [0.05_f64, 0.5, 0.95] {
            assert!((super::inverse_gamma_quantile(1.0, 0.7, p) / (-0.7 / p.ln()) - 1.0).abs() < 1e-10);
        }
        // The median of a squared normal is 0.454936.
        assert!((super::inverse_gamma_quantile(0.5, 1.0, 0.5) / (2.0 / 0.454_936_423_119_572_8) - 1.0).abs() < 1e-9);
        assert!(super::inverse_gamma_quantile(1.0, 1.0, 1.0).is_nan());
    }

    /// A normal ln τ², coarse as grids are; two separate bumps; and one point alone.
    #[test]
    fn quantiles_of_a_grid_are_those_of_its_density() {
        let normal: Vec<(i32, f64)> = (-4..=4).map(|k| (k, 7.0 - 0.5 * f64::from(k * k))).collect();
        let spread = ScaleSummary::of_grid(&normal, 0.5, 1.0);
        let expected = |z: f64| (0.5 * (1.0 + 0.5 * z)).exp();
        let close = |a: f64, b: f64| assert!((a / b - 1.0).abs() < 2e-3, "{a} {b}");
        close(spread.median, expected(0.0));
        close(spread.central_90[0], expected(-1.644_854));
        close(spread.central_95[1], expected(1.959_964));
        let two = [(-3, 0.0), (-2, 0.0), (5, 0.0), (6, 0.0), (7, 0.0)];
        let spread = ScaleSummary::of_grid(&two, 1.0, 0.0);
        close(spread.median, (0.5 * 5.5_f64).exp());
        close(spread.central_90[0], (0.5 * -2.85_f64).exp());
        assert!((ScaleSummary::of_grid(&[(2, 3.0)], 0.5, 0.0).median - 0.5_f64.exp()).abs() < 1e-12);
    }

    #[test]
    fn a_known_scale_stays() {
        let group = Group { fixed: Some(0.09), ..GROUP };
        assert!((group.scale(&[9.0; 4], &[1.0; 4]) - 0.09).abs() < 1e-15 && (group.start() - 0.09).abs() < 1e-15);
    }
}
