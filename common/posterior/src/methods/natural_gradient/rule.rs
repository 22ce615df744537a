//! The server's step of bounded natural-gradient variational inference.
//!
//! The state is [λ | μ | H̄ | svec P | σ | τ²]: the posterior, the point at which the next gradient is taken, the running mean of the released
//! curvatures, the preconditioner (absent with a diagonal one, 0 before it is known), and the scales that are learned (absent where none is): the observations'
//! ([`learned_scale`](dp_pvi_math::learned_scale)), and those that coefficients share. λ has the mean of the averaged iterates and precision Λ = Λ0 + H̄, floored at Λ0.
//!
//! Where σ is learned, sums are in units of it, and H̄ is the mean of Σ σ²c xxᵀ: then Λ = Λ0 + H̄/σ² with the σ that follows from the visit, and the likelihood's part of P moves with
//! 1/σ². Everywhere else σ stands for 1.
//!
//! * Gram visit: P = Λ0 + V max(E, f) Vᵀ with V E Vᵀ the released matrix. Since c ≤ c̄, P is a bound on the Hessian wherever q is
//!   (Böhning & Lindsay), so that ρ ≤ 2 is stable. f is the larger of κ s√(d/2), s the noise of a coordinate, below which an
//!   eigenvalue says nothing, and of the floor below which moves are noise (next paragraph).
//! * Gradient visit at μ: H̄ moves towards the released curvature, P is raised in directions in which the released curvature clearly exceeds it, and
//!   μ ← μ + ρ P⁻¹(g + Λ0(m0 − μ)).
//!
//! A direction with little curvature moves by K/f times its gradient over the whole run, with K = ρ times the mean index of the
//! averaged iterates; s, zC√sites under local trust, is left of the noise on that gradient after all visits. For a coefficient of size τ the
//! best linear filter has gain τ/(2s) at its peak, so f is at least `shrinkage`·K s/τ: the same argument as for the step precision of DP
//! optimisation. τ is 2.5 typical units whatever the prior is, since the prior does not say how far a run has to go.
//!
//! Without noise the fixed point is the mode of the posterior, with the curvature at the mode. Averages run over ⌈averaging·T⌉ visits, weighted by budget.

use dp_pvi_math::expfam::any::{Family, Gaussian};
use dp_pvi_math::expfam::gaussian::full::{svec, svec_times, triangle, unsvec};
use nalgebra::{Cholesky, DMatrix, DVector, SymmetricEigen};

use crate::methods::noise_aware::correlations::Products;
use crate::methods::noise_aware::{Contribution, History};
use crate::methods::{NaturalGradientSpec, NaturalGradientVisit, Preconditioner, Rule, Setting, Step, VisitSum};
use dp_pvi_math::floor::PrecisionFloor;
use dp_pvi_math::learned_scale::{LearnedScale, ScaleState, ScaleSums};
use dp_pvi_math::noisy_likelihood;
use dp_pvi_math::observation::Precision;
use dp_pvi_math::scales::NoisyScales;
use dp_pvi_math::uncertain_curvature::{above, without_negative_eigenvalues};
use dp_pvi_models::spec::{GatheredNoise, Prior, Trust};

/// Variance of every coefficient in a distribution that stands for a point.
const POINT: f64 = 1e-20;

/// A step to a state with a number as large as this is refused.
const FURTHEST: f64 = 1e100;

/// τ: the size of an effect, in typical units, that a run can reach whatever the prior is.
const REACH: f64 = 2.5;

/// An eigenvalue of a released curvature counts as signal above this multiple of s√(d/2), s the noise on a coordinate. The largest eigenvalue of noise alone is about as large.
const SEEN: f64 = 2.0;

/// The rule of one task.
#[derive(Debug, Clone, PartialEq)]
pub struct NaturalGradientRule {
    spec: NaturalGradientSpec,
    family: Family,
    prior: Prior,
    /// Budget share of every visit.
    shares: Vec<f64>,
    /// Noise on one coordinate of one site's sum, in every visit.
    noise: Vec<f64>,
    gathered: GatheredNoise,
    /// The site whose effect a coefficient is, where sites release their own effects only; empty where all release all.
    owners: Vec<Option<u32>>,
    /// What is known beforehand of a learned scale of the observations.
    scale: Option<LearnedScale>,
}

impl NaturalGradientRule {
    /// The rule of a task with this update.
    #[must_use]
    pub fn new(task: &Setting<'_>, spec: NaturalGradientSpec) -> Self {
        let visits = task.visits();
        // A task that was checked has both for every visit.
        let noise = |(visit, &share)| spec.clip_and_noise(task, visit, share).map_or(0.0, |(clip, noise)| clip.get() * noise.get());
        let shares = spec.shares(visits);
        Self {
            family: task.family(),
            prior: task.priors(),
            noise: (0..visits).zip(&shares).map(noise).collect(),
            shares,
            gathered: task.gathered_noise(),
            owners: if task.privacy.trust == Trust::Local { task.owners() } else { Vec::new() },
            scale: task.learned_scale(),
            spec,
        }
    }

    /// Where a site takes its gradient: the iterate of a state, as a Gaussian so narrow that a record's predictor is a number. The posterior λ is as wide as the prior in directions whose
    /// curvature is hidden by noise. Expected residuals under λ would be those of a flatter curve, and would reach 0 too far out.
    ///
    /// # Errors
    /// The state is not one of this rule.
    pub fn point(family: Family, state: &[f64]) -> Result<Gaussian, dp_pvi_math::expfam::InvalidParameters> {
        let parts = Parts::new(family, state).ok_or(dp_pvi_math::expfam::InvalidParameters::Domain("the state is too short"))?;
        let narrow = family.isotropic(0.0, POINT);
        Gaussian::from_natural(family, with_mean(family, parts.mean, &narrow[family.dimension()..]))
    }

    fn gram(&self, state: &[f64], received: &VisitSum<'_>) -> Option<Vec<f64>> {
        let d = self.family.dimension();
        let parts = self.parts(state)?;
        if received.sum.len() != triangle(d) || parts.preconditioner.len() != triangle(d) || !received.sum.iter().all(|v| v.is_finite()) {
            return None;
        }
        let floor = self.floor(received, &parts);
        let eigen = SymmetricEigen::try_new(unsvec(received.sum, d) / parts.square(), f64::EPSILON, 1000 * d.max(10))?;
        let raised = DMatrix::from_diagonal(&eigen.eigenvalues.map(|e| e.max(floor)));
        let prior = DMatrix::from_diagonal(&DVector::from_vec(self.prior.precisions(parts.scales)));
        let matrix = svec(&(&eigen.eigenvectors * raised * eigen.eigenvectors.transpose() + prior));
        let mut state = state.to_vec();
        let start = state.len() - matrix.len() - parts.scale.map_or(0, |_| ScaleState::LEN) - parts.scales.len();
        state[start..start + matrix.len()].copy_from_slice(&matrix);
        Some(state)
    }

    fn gradient(&self, state: &[f64], received: &VisitSum<'_>) -> Option<Step> {
        let d = self.family.dimension();
        let parts = self.parts(state)?;
        let sent = self.sent(received.sum, parts.square()).filter(|_| received.sum.iter().all(|v| v.is_finite()))?;
        let (gain, old_square) = (self.gain(received.visit), parts.square());
        // In units of 1/σ².
        let curvature: Vec<f64> = parts
            .curvature
            .iter()
            .zip(&sent.curvature)
            .map(|(mean, released)| mean + gain.curvature * (old_square * released - mean))
            .collect();
        let of_likelihood = |square: f64| curvature.iter().map(move |h| h / square);
        let prior = self.prior.precisions(parts.scales);
        let slope: Vec<f64> = sent.gradient.iter().zip(self.pull_of_prior(&prior, parts.mean)).map(|(g, pull)| g + pull).collect();
        let scales = self.scales(&parts, received, &sent.gradient, &of_likelihood(old_square).collect::<Vec<_>>())?;
        let scale = self.scale(&parts, received, sent.scale);
        let square = scale.map_or(1.0, |scale| scale.precision.square());
        let new_prior = self.prior.with(&scales).natural(self.family);
        let mut precision: Vec<f64> = new_prior[d..].iter().zip(of_likelihood(square)).map(|(prior, h)| prior + h).collect();
        let mut floored = 0;
        if let Some(raised) = PrecisionFloor::LogConcave.apply(self.family, &new_prior[d..], &precision) {
            (precision, floored) = (raised.precision, raised.directions);
        }
        let raised =
            self.raised(parts.preconditioner, &sent.curvature, self.noise(received) / (self.spec.curvature_weight * old_square))?;
        let parts = Parts { preconditioner: &raised, ..parts };
        let direction = match self.spec.preconditioner {
            Preconditioner::Gram => Cholesky::new(unsvec(parts.preconditioner, d))?.solve(&DVector::from_vec(slope)).as_slice().to_vec(),
            Preconditioner::Diagonal => {
                let noise = self.noise(received) / (self.spec.curvature_weight * old_square);
                let floor = (self.spec.eigenvalue_floor * noise).max(self.smallest_precision(received, &parts));
                let diagonal = diagonal(self.family, &precision);
                slope.iter().zip(diagonal).map(|(slope, precision)| slope / precision.max(floor)).collect()
            }
        };
        let mean: Vec<f64> = parts.mean.iter().zip(&direction).map(|(mu, step)| mu + self.spec.step * step).collect();
        let old = Gaussian::from_natural(self.family, parts.lambda.to_vec()).ok()?;
        let average: Vec<f64> = mean.iter().zip(old.standard().mean()).map(|(new, old)| old + gain.mean * (new - old)).collect();
        let lambda = with_mean(self.family, &average, &precision);
        Gaussian::from_natural(self.family, lambda.clone()).ok()?;
        let preconditioner = self.preconditioner(&parts, &scales, square);
        let next =
            Parts { lambda: &lambda, mean: &mean, curvature: &curvature, preconditioner: &preconditioner, scale, scales: &scales }.concat();
        next.iter().all(|v| v.abs() < FURTHEST).then_some(Step { state: next, correction: None, floored })
    }

    /// P, raised in the directions in which a released curvature exceeds it by more than its noise, which has this standard deviation: P stays a bound of the Hessian. With a mean field only the
    /// diagonal was released and is raised.
    fn raised(&self, preconditioner: &[f64], curvature: &[f64], noise: f64) -> Option<Vec<f64>> {
        let d = self.family.dimension();
        // There is no preconditioner, or none yet.
        if preconditioner.len() != triangle(d) || preconditioner.iter().all(|entry| *entry == 0.0) {
            return Some(preconditioner.to_vec());
        }
        #[allow(clippy::cast_precision_loss, reason = "a dimension")]
        let seen = SEEN * noise * (d as f64 / 2.0).sqrt();
        let matrix = unsvec(preconditioner, d);
        let more = match self.family {
            Family::DiagonalGaussian { .. } => {
                let own = DVector::from_column_slice(curvature) - matrix.diagonal();
                DMatrix::from_diagonal(&own.map(|value| if value > SEEN * noise { value } else { 0.0 }))
            }
            Family::FullGaussian { .. } => match above(unsvec(curvature, d) - &matrix, seen)? {
                Some(above) => above,
                None => return Some(preconditioner.to_vec()),
            },
        };
        Some(svec(&(matrix + more)))
    }

    /// What a gradient visit over so many sites released, read off the states before and after it. `None` where they are not states of this
    /// rule with its Gram matrix.
    pub(crate) fn released(&self, before: &[f64], after: &[f64], visit: u32, sites: u32) -> Option<ReleasedVisit> {
        let d = self.family.dimension();
        let (old, new) = (self.parts(before)?, self.parts(after)?);
        if old.preconditioner.len() != triangle(d) {
            return None;
        }
        let moved: Vec<f64> = new.mean.iter().zip(old.mean).map(|(new, old)| (new - old) / self.spec.step).collect();
        // The step was divided by the raised preconditioner, with the scales before the step.
        let slope = svec_times(&self.preconditioner(&new, old.scales, old.square()), &moved);
        let prior = self.prior.precisions(old.scales);
        let gradient = slope.iter().zip(self.pull_of_prior(&prior, old.mean)).map(|(slope, pull)| slope - pull);
        let gain = self.gain(visit).curvature;
        let square = old.square();
        let curvature = old.curvature.iter().zip(new.curvature).map(|(old, new)| (old + (new - old) / gain) / square);
        let (noise, of_curvature) = self.noises(visit, sites);
        let weight = self.spec.curvature_weight * square;
        Some(ReleasedVisit {
            point: old.mean.to_vec(),
            gradient: gradient.collect(),
            curvature: curvature.collect(),
            noise: noise.into_iter().map(|variance| variance / square).collect(),
            curvature_noise: of_curvature.into_iter().map(|variance| variance / weight.powi(2)).collect(),
            square,
        })
    }

    /// A gradient visit's sum, in part or whole, at this σ²; `None` where it is not as long as such a sum.
    pub(super) fn sent(&self, sum: &[f64], square: f64) -> Option<Sent> {
        let (d, len) = (self.family.dimension(), self.family.len());
        let (own, scale) = sum.split_at_checked(len)?;
        let scale = match (self.scale, scale) {
            (None, []) => None,
            (Some(_), [statistic, count]) => {
                let weights = self.spec.scale_weights?;
                Some([statistic / weights.statistic, count / weights.count])
            }
            _ => return None,
        };
        let (sd, weight) = (square.sqrt(), self.spec.curvature_weight * square);
        let (gradient, curvature) = own.split_at(d);
        Some(Sent { gradient: gradient.iter().map(|g| g / sd).collect(), curvature: curvature.iter().map(|h| h / weight).collect(), scale })
    }

    /// σ² of a state; 1 where it is known.
    pub(super) fn square(&self, state: &[f64]) -> Option<f64> {
        Some(self.parts(state)?.square())
    }

    /// The learned scale after a visit. Averages the same visits as the mean does; the first gradient is skipped, as for τ.
    fn scale(&self, parts: &Parts<'_>, received: &VisitSum<'_>, sums: Option<[f64; 2]>) -> Option<ScaleState> {
        let (state, known) = (parts.scale?, self.scale?);
        let (visits, first) = self.visits();
        let (Some(sums), Some(weights), true) = (sums, self.spec.scale_weights, received.visit > first) else { return Some(state) };
        let start = (visits.saturating_sub(self.window()) + 1).clamp(first + 1, visits - 1);
        let gain = if received.visit <= start { 1.0 } else { self.share_since(start, received.visit) };
        Some(state.next(&known, &weights, ScaleSums { sums, noise: self.noise(received).powi(2), gain }))
    }

    /// q(1/σ²) of a state, with the noise in the points of the visits that are averaged taken out: δᵀHδ of their errors δ has this mean and variance. `None` where no scale is
    /// learned.
    pub(super) fn precision(&self, state: &[f64], (mean, variance): (f64, f64)) -> Option<Precision> {
        let (state, known, weights) = (self.parts(state)?.scale?, self.scale?, self.spec.scale_weights?);
        Some(state.without(&known, &weights, known.excess * mean, known.excess.powi(2) * variance))
    }

    /// Σ xxᵀ from the preconditioner of the state after a Gram visit over so many sites, in units of σ² = `square`.
    pub(super) fn products(&self, state: &[f64], sites: u32, square: f64) -> Option<Products> {
        let (d, parts) = (self.family.dimension(), self.parts(state)?);
        let prior = DMatrix::from_diagonal(&DVector::from_vec(self.prior.precisions(parts.scales)));
        let ratio = parts.square() / square;
        let matrix = (unsvec(parts.preconditioner, d) - prior) * ratio;
        let received = VisitSum { visit: 0, sites, sum: &[] };
        Some(Products::new(matrix, (self.noise(&received) / square).powi(2), self.floor(&received, &parts) * ratio))
    }

    /// Λ0(m0 − μ), for a Λ0 of this diagonal.
    fn pull_of_prior(&self, precision: &[f64], mean: &[f64]) -> Vec<f64> {
        self.prior.mean.iter().zip(precision).zip(mean).map(|((m0, p), mu)| p * (m0 - mu)).collect()
    }

    /// τ² of every group after a visit. What the visit released is one measurement of the likelihood, (g + H̄μ, H̄) with the noise of g; the ascent is that of
    /// [`scales`](dp_pvi_math::scales). The first gradient, which is one at the prior's mean, says nothing of the size of effects.
    fn scales(&self, parts: &Parts<'_>, received: &VisitSum<'_>, gradient: &[f64], curvature: &[f64]) -> Option<Vec<f64>> {
        if !self.prior.learns_scales() || received.visit <= self.visits().1 {
            return Some(parts.scales.to_vec());
        }
        let noise: Vec<f64> = self.noises(received.visit, received.sites).0.into_iter().map(|variance| variance / parts.square()).collect();
        let none = vec![0.0; self.family.len()];
        let noisy = match self.family {
            Family::FullGaussian { dimension } => {
                let curvature = svec(&without_negative_eigenvalues(unsvec(curvature, dimension))?);
                let mut likelihood = with_mean(self.family, parts.mean, &curvature);
                likelihood.iter_mut().zip(gradient).for_each(|(h, g)| *h += g);
                // Directions of which nothing is known have H = 0, and with little noise no inverse of H + N.
                let least = 1e-9 * curvature.iter().copied().fold(f64::MIN_POSITIVE, f64::max);
                let noise = DVector::from_vec(noise).map(|variance| variance.max(least));
                noisy_likelihood::full(&none, &likelihood, &DMatrix::from_diagonal(&noise))?
            }
            Family::DiagonalGaussian { .. } => {
                let mut likelihood = with_mean(self.family, parts.mean, curvature);
                likelihood.iter_mut().zip(gradient).for_each(|(h, g)| *h += g);
                noisy_likelihood::diagonal(&none, &likelihood, &noise)
            }
        };
        let known = NoisyScales::new(self.family, &noisy, (&self.prior.mean, &self.prior.precision), &self.prior.groups);
        Some(known.fixed_point(parts.scales)?.scales)
    }

    /// P with the prior of these scales, and the likelihood's part with this σ².
    fn preconditioner(&self, parts: &Parts<'_>, scales: &[f64], square: f64) -> Vec<f64> {
        let (d, mut matrix, ratio) = (self.family.dimension(), parts.preconditioner.to_vec(), parts.square() / square);
        if !matrix.is_empty() && (scales != parts.scales || square != parts.square()) {
            let (old, new) = (self.prior.precisions(parts.scales), self.prior.precisions(scales));
            matrix.iter_mut().for_each(|entry| *entry *= ratio);
            let mut place = 0;
            for j in 0..d {
                matrix[place] += new[j] - ratio * old[j];
                place += d - j;
            }
        }
        matrix
    }

    /// A state of this rule, cut.
    fn parts<'s>(&self, state: &'s [f64]) -> Option<Parts<'s>> {
        let parts = Parts::new(self.family, state)?;
        let (rest, scales) = parts.preconditioner.split_at_checked(parts.preconditioner.len().checked_sub(self.learned())?)?;
        let own = if self.scale.is_some() { ScaleState::LEN } else { 0 };
        let (preconditioner, scale) = rest.split_at_checked(rest.len().checked_sub(own)?)?;
        Some(Parts { preconditioner, scale: ScaleState::read(scale), scales, ..parts })
    }

    /// Number of τ² in a state: none where no scale is learned.
    fn learned(&self) -> usize {
        if self.prior.learns_scales() { self.prior.groups.len() } else { 0 }
    }

    /// Σ over rounds of (g̃ + H̃μ, H̃) of one site, with the weights that the mean of the curvatures gives to rounds; μ is the point of the round. `None`
    /// where a part or a point is not known.
    pub(crate) fn factor(&self, history: &History, part: &Contribution) -> Option<Vec<f64>> {
        let mut factor = vec![0.0; self.family.len()];
        let initial = self.initial();
        let mut before = initial.as_slice();
        // All in units of the last σ.
        let last = history.rounds.iter().rev().find(|round| !round.state.is_empty()).map_or(before, |round| round.state.as_slice());
        let square = self.square(last)?;
        for (round, sum) in history.rounds.iter().zip(&part.sums).filter(|(round, _)| !round.included.is_empty()) {
            if self.spec.visit(round.visit) == NaturalGradientVisit::Gradient {
                let gain = self.gain(round.visit).curvature;
                factor.iter_mut().for_each(|value| *value *= 1.0 - gain);
                if round.included.contains(&part.site) {
                    let parts = self.parts(before)?;
                    let sent = self.sent(sum.as_ref()?, parts.square())?.at(parts.square() / square);
                    let h = with_mean(self.family, parts.mean, &sent.curvature);
                    factor.iter_mut().zip(&h).for_each(|(value, h)| *value += gain * h);
                    factor.iter_mut().zip(&sent.gradient).for_each(|(value, g)| *value += gain * g);
                }
            }
            before = &round.state;
        }
        Some(factor)
    }

    /// Standard deviation of the noise on one coordinate of a sum.
    pub(super) fn noise(&self, received: &VisitSum<'_>) -> f64 {
        self.noise.get(received.visit as usize).copied().unwrap_or(0.0) * self.gathered.of(received.sites).sqrt()
    }

    /// Variances of the noise on a gradient visit's sum over so many sites: of the gradient, and of what is sent of the curvature. The effect of one site has
    /// that site's noise alone, and a product of two sites' effects has none.
    fn noises(&self, visit: u32, sites: u32) -> (Vec<f64>, Vec<f64>) {
        let of = |sites| self.noise(&VisitSum { visit, sites, sum: &[] }).powi(2);
        let (all, one) = (of(sites), of(1));
        let d = self.family.dimension();
        let Some(owners) = Some(&self.owners).filter(|owners| owners.len() == d) else {
            return (vec![all; d], vec![all; self.family.len() - d]);
        };
        let single: Vec<f64> = owners.iter().map(|owner| if owner.is_none() { all } else { one }).collect();
        let of_pair = |i: usize, j: usize| match (owners[i], owners[j]) {
            (None, None) => all,
            (Some(a), Some(b)) if a != b => 0.0,
            _ => one,
        };
        let curvature = match self.family {
            Family::DiagonalGaussian { .. } => single.clone(),
            Family::FullGaussian { .. } => (0..d).flat_map(|i| (i..d).map(move |j| of_pair(i, j))).collect(),
        };
        (single, curvature)
    }

    /// What no eigenvalue of the Gram matrix is left below.
    fn floor(&self, received: &VisitSum<'_>, parts: &Parts<'_>) -> f64 {
        let noise = self.noise(received) / parts.square();
        #[allow(clippy::cast_precision_loss, reason = "a dimension")]
        let half = self.family.dimension() as f64 / 2.0;
        (self.spec.eigenvalue_floor * noise * half.sqrt()).max(self.smallest_precision(received, parts))
    }

    /// `shrinkage`·K s/τ.
    fn smallest_precision(&self, received: &VisitSum<'_>, parts: &Parts<'_>) -> f64 {
        let (visits, first) = self.visits();
        let window = f64::from(self.window());
        let gain = self.spec.step * (f64::from(visits - first) - 0.5 * (window - 1.0));
        let gradient = |visit: u32| self.shares.get(visit as usize).copied().unwrap_or(0.0);
        let share: f64 = (first..visits).map(gradient).sum();
        let gathered = self.gathered.of(received.sites);
        let noise = self.spec.noise_multiplier.get() * self.spec.clip_norm.get() * (gathered / share.max(f64::MIN_POSITIVE)).sqrt();
        self.spec.shrinkage * gain * noise / (parts.square().sqrt() * REACH)
    }

    /// Number of visits, and the first one that brings a gradient.
    fn visits(&self) -> (u32, u32) {
        let visits = u32::try_from(self.shares.len()).unwrap_or(u32::MAX);
        (visits, u32::from(self.spec.visit(0) == NaturalGradientVisit::Gram))
    }

    /// Number of visits that are averaged.
    pub(super) fn window(&self) -> u32 {
        let (visits, first) = self.visits();
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a share of a number of visits")]
        let window = (self.spec.averaging * f64::from(visits - first)).ceil().max(1.0) as u32;
        window
    }

    /// How much of a running mean a visit replaces. The mean of iterates begins with the last ⌈averaging·T⌉ gradient visits and is the
    /// iterate itself before; the mean of curvatures runs over at most as many visits from the first on.
    fn gain(&self, visit: u32) -> Gain {
        let ((visits, first), window) = (self.visits(), self.window());
        let tail = visits.saturating_sub(window);
        Gain {
            mean: if visit <= tail { 1.0 } else { self.share_since(tail, visit) },
            curvature: self.share_since(first.max((visit + 1).saturating_sub(window)), visit),
        }
    }

    /// A visit's share in the budget of the visits from this one to it.
    fn share_since(&self, start: u32, visit: u32) -> f64 {
        let share = |t: u32| self.shares.get(t as usize).copied().unwrap_or(1.0);
        share(visit) / (start.min(visit)..=visit).map(share).sum::<f64>()
    }
}

/// What a gradient visit released.
pub(crate) struct ReleasedVisit {
    /// Where the gradient was taken.
    pub(crate) point: Vec<f64>,
    /// The likelihood's gradient there, with its noise.
    pub(crate) gradient: Vec<f64>,
    /// The likelihood's curvature there, with its noise: svec, or the diagonal.
    pub(crate) curvature: Vec<f64>,
    /// Variance of the noise on every coordinate of the gradient, and of the curvature.
    pub(crate) noise: Vec<f64>,
    pub(crate) curvature_noise: Vec<f64>,
    /// σ² there; 1 where it is known.
    pub(crate) square: f64,
}

impl ReleasedVisit {
    /// Whether the visit was at nearly this σ²: else it looked at another likelihood.
    pub(crate) fn is_near(&self, square: f64) -> bool {
        (self.square / square).ln().abs() <= std::f64::consts::LN_2
    }

    /// As if the visit had been at this σ²: g and H then differ by the ratio of both, as far as records keep their weights σ²c.
    pub(crate) fn at(mut self, square: f64) -> Self {
        let ratio = self.square / square;
        self.gradient.iter_mut().chain(&mut self.curvature).for_each(|value| *value *= ratio);
        self.noise.iter_mut().chain(&mut self.curvature_noise).for_each(|value| *value *= ratio * ratio);
        Self { square, ..self }
    }
}

/// A gradient visit's sum without its weights and units.
pub(super) struct Sent {
    /// Σ r x.
    pub(super) gradient: Vec<f64>,
    /// Σ c svec(xxᵀ), or its diagonal.
    pub(super) curvature: Vec<f64>,
    /// Σ w(t − m) and Σ w, where the scale is learned.
    scale: Option<[f64; 2]>,
}

impl Sent {
    /// Both times this.
    pub(super) fn at(mut self, ratio: f64) -> Self {
        self.gradient.iter_mut().chain(&mut self.curvature).for_each(|value| *value *= ratio);
        self
    }
}

struct Gain {
    mean: f64,
    curvature: f64,
}

impl Rule for NaturalGradientRule {
    fn initial(&self) -> Vec<f64> {
        let d = self.family.dimension();
        let preconditioner = match self.spec.preconditioner {
            Preconditioner::Gram => triangle(d),
            Preconditioner::Diagonal => 0,
        };
        let (lambda, curvature) = (self.prior.natural(self.family), vec![0.0; self.family.len() - d]);
        let (preconditioner, scales) = (vec![0.0; preconditioner], self.prior.starts());
        let (scale, scales) = (self.scale.map(|scale| ScaleState::initial(scale.prior)), &scales[..self.learned()]);
        Parts { lambda: &lambda, mean: &self.prior.mean, curvature: &curvature, preconditioner: &preconditioner, scale, scales }.concat()
    }

    fn apply(&self, state: &[f64], received: &VisitSum<'_>) -> Step {
        let step = match self.spec.visit(received.visit) {
            NaturalGradientVisit::Gram => self.gram(state, received).map(|state| Step { state, correction: None, floored: 0 }),
            NaturalGradientVisit::Gradient => self.gradient(state, received),
        };
        step.unwrap_or_else(|| Step { state: state.to_vec(), correction: None, floored: self.family.dimension() })
    }
}

/// A state, cut.
struct Parts<'a> {
    lambda: &'a [f64],
    mean: &'a [f64],
    curvature: &'a [f64],
    preconditioner: &'a [f64],
    scale: Option<ScaleState>,
    scales: &'a [f64],
}

impl<'a> Parts<'a> {
    /// What is learned of scales stands with the preconditioner.
    fn new(family: Family, state: &'a [f64]) -> Option<Self> {
        let (len, d) = (family.len(), family.dimension());
        let (lambda, rest) = state.split_at_checked(len)?;
        let (mean, rest) = rest.split_at_checked(d)?;
        let (curvature, preconditioner) = rest.split_at_checked(len - d)?;
        Some(Self { lambda, mean, curvature, preconditioner, scale: None, scales: &[] })
    }

    fn concat(&self) -> Vec<f64> {
        let scale = self.scale.map(|scale| scale.numbers());
        let scale = scale.as_ref().map_or(&[][..], |numbers| numbers);
        [self.lambda, self.mean, self.curvature, self.preconditioner, scale, self.scales].concat()
    }

    /// σ², where it is learned; else 1.
    fn square(&self) -> f64 {
        self.scale.map_or(1.0, |scale| scale.precision.square())
    }
}

/// (Λμ, Λ).
fn with_mean(family: Family, mean: &[f64], precision: &[f64]) -> Vec<f64> {
    let h = match family {
        Family::FullGaussian { dimension } => (unsvec(precision, dimension) * DVector::from_column_slice(mean)).as_slice().to_vec(),
        Family::DiagonalGaussian { .. } => precision.iter().zip(mean).map(|(p, m)| p * m).collect(),
    };
    [h.as_slice(), precision].concat()
}

/// The diagonal of a precision block.
fn diagonal(family: Family, precision: &[f64]) -> Vec<f64> {
    match family {
        Family::FullGaussian { dimension } => unsvec(precision, dimension).diagonal().as_slice().to_vec(),
        Family::DiagonalGaussian { .. } => precision.to_vec(),
    }
}

#[cfg(test)]
mod tests;
