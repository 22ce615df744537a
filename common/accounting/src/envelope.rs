//! A run whose plan is fixed beforehand, as one event of a filter: a Gaussian that covers it but for a small probability.
//!
//! A filter adds costs, and only few costs add up without loss: μ² of Gaussians does. A run of sampled releases is no Gaussian, but nearly one where it has
//! many steps. So its certified profile δ(ε) is compared with that of a Gaussian: the run is *within (μ, φ)* where δ(ε) ≤ δ_μ(ε) + φ for every ε, in both
//! directions. Runs within (μ_i, φ_i), each chosen in the light of the ones before, are together (ε, δ_M(ε) + Σφ_i)-private where Σμ_i² ≤ M².
//!
//! # Privacy
//! Theorem and proof: [`crate::proofs::envelopes`].

use super::Gdp;
use super::rdp::Curve;
use crate::plan::Plan;
use crate::unit::Delta;

/// Gaps between the ε at which a profile is known.
const GAPS: u32 = 192;
/// Precision of the profile, as a share of ε.
const PRECISION: f64 = 3e-4;
/// The profile reaches down to this share of δ, which is the smallest φ.
const DEEPEST: f64 = 1e-5;
/// Bisections of μ, between two values of which one is twice the other.
const BISECTIONS: u32 = 36;
/// With a larger ε, e^ε and lengths in it leave the range of numbers.
const LARGEST: f64 = 600.0;
/// Shares of δ that may be the failure of one run.
const SHARES: [f64; 9] = [1e-5, 3e-5, 1e-4, 3e-4, 1e-3, 2e-3, 4e-3, 7e-3, 0.01];

/// A run is within (μ, φ): its privacy profile is nowhere more than φ above that of a μ-Gaussian.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Envelope {
    /// Of the Gaussian.
    pub gaussian: Gdp,
    /// φ, a probability.
    pub failure: f64,
}

impl Envelope {
    /// From μ² and φ. `None`: they are no such numbers.
    #[must_use]
    pub fn from_parts(mu_squared: f64, failure: f64) -> Option<Self> {
        let gaussian = Gdp::of_mu_squared(mu_squared).filter(|_| (0.0..1.0).contains(&failure))?;
        Some(Self { gaussian, failure })
    }

    /// μ² and φ.
    #[must_use]
    pub fn parts(&self) -> (f64, f64) {
        (self.gaussian.mu_squared(), self.failure)
    }

    /// Both, whatever the second was chosen from.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        let sum = self.failure + other.failure;
        let exact = self.failure == 0.0 || other.failure == 0.0;
        Self { gaussian: self.gaussian.and(other.gaussian), failure: if exact { sum } else { sum.next_up() } }
    }
}

/// Certified upper bounds on δ(ε) of a plan, from ε = 0 on.
#[derive(Debug, Clone, PartialEq)]
pub struct Profile {
    /// ε, rising from 0 in equal steps.
    epsilons: Vec<f64>,
    /// An upper bound on δ there. From the last ε on it holds as it stands.
    uppers: Vec<f64>,
}

impl Profile {
    /// Profile of a plan down to a hundred-thousandth of `delta`. `None`: at that δ its ε has no bound, or one above 600, or its steps have no loss distribution.
    #[must_use]
    pub fn of(plan: &Plan, delta: Delta) -> Option<Self> {
        let deepest = Delta::new(delta.get() * DEEPEST).ok()?;
        let last = plan.epsilon_upper(deepest, 1e-2);
        if last.is_nan() || last > LARGEST {
            return None;
        }
        let epsilons: Vec<f64> = (0..=GAPS).map(|step| last * f64::from(step) / f64::from(GAPS)).collect();
        let mut uppers = plan.uppers(&epsilons, PRECISION)?;
        // δ falls with ε.
        let mut least = 1.0_f64;
        for upper in &mut uppers {
            least = least.min(*upper);
            *upper = least;
        }
        Some(Self { epsilons, uppers })
    }

    /// Upper bounds from Rényi divergences, times `factor`. `None`: beyond ε = 600 δ is still above a hundred-thousandth of `delta`.
    pub(crate) fn of_curve(curve: &Curve, factor: f64, delta: Delta) -> Option<Self> {
        let at = |epsilon: f64| factor * curve.delta_upper(epsilon);
        // At ε = 0, δ is the total variation: at most √(1 − e^−KL) (Bretagnolle & Huber 1979) and √(KL/2) (Pinsker); KL is at most any divergence of a higher order.
        let divergence = curve.values().first().copied().unwrap_or(f64::INFINITY);
        let variation = factor * (-(-divergence).exp_m1()).min(0.5 * divergence).max(0.0).sqrt() + if factor > 1.0 { 2e-9 } else { 0.0 };
        let deepest = delta.get() * DEEPEST;
        let mut last = 1e-3;
        while at(last) > deepest {
            last *= 1.1;
            if last > LARGEST {
                return None;
            }
        }
        let epsilons: Vec<f64> = (0..=GAPS).map(|step| last * f64::from(step) / f64::from(GAPS)).collect();
        let uppers = epsilons.iter().map(|&epsilon| at(epsilon).min(variation).min(1.0)).collect();
        Some(Self { epsilons, uppers })
    }

    /// The largest ε at which the profile is known.
    pub(crate) fn reaches(&self) -> f64 {
        self.epsilons.last().copied().unwrap_or(0.0)
    }

    /// Whether the plan is certainly within (μ, φ).
    ///
    /// With γ = e^ε both profiles are convex in γ. Between two points the plan's is at most its chord, and the Gaussian's at least each of its tangents there;
    /// the chord less the higher of the two tangents is largest at an end, or where the tangents cross.
    #[must_use]
    pub fn is_within(&self, gaussian: Gdp, failure: f64) -> bool {
        if gaussian.mu() == 0.0 {
            return self.uppers.first().is_some_and(|upper| *upper <= failure);
        }
        let mut before: Option<(f64, f64, Tangent)> = None;
        for (&epsilon, &upper) in self.epsilons.iter().zip(&self.uppers) {
            let tangent = Tangent::of(gaussian, epsilon);
            if upper > tangent.value + failure {
                return false;
            }
            if let Some((start, from, first)) = before {
                let crossing = first.crossing(&tangent);
                if crossing > start && crossing < tangent.at {
                    let chord = from + (upper - from) * ((crossing - start) / (tangent.at - start));
                    if chord * (1.0 + 1e-14) > first.height(crossing).max(tangent.height(crossing)) + failure {
                        return false;
                    }
                }
            }
            before = Some((tangent.at, upper, tangent));
        }
        // Beyond the last point the plan's profile is at most what it was there.
        self.uppers.last().is_some_and(|upper| *upper <= failure)
    }

    /// The smallest Gaussian found with this φ. `None`: φ is below what the profile reaches, or no Gaussian covers it.
    #[must_use]
    pub(crate) fn envelope(&self, failure: f64) -> Option<Envelope> {
        if self.uppers.last().is_none_or(|upper| *upper > failure) {
            return None;
        }
        let of = |mu: f64| Gdp::of_ratio(mu);
        if self.is_within(of(0.0), failure) {
            return Some(Envelope { gaussian: of(0.0), failure });
        }
        // From a μ that is too small to one that is large enough.
        let mut high = 1e-6;
        while !self.is_within(of(high), failure) {
            high *= 2.0;
            if high > 1e4 {
                return None;
            }
        }
        let mut low = 0.5 * high;
        for _ in 0..BISECTIONS {
            let middle = 0.5 * (low + high);
            if self.is_within(of(middle), failure) { high = middle } else { low = middle }
        }
        Some(Envelope { gaussian: of(high), failure })
    }

    /// The envelope whose φ is the largest of the fixed shares of δ that is at most `most`, and `added` for something else: more φ needs less μ.
    #[must_use]
    pub(crate) fn largest_within(&self, most: f64, delta: Delta, added: f64) -> Option<Envelope> {
        let own = SHARES.iter().map(|share| share * delta.get()).filter(|failure| *failure <= most).fold(0.0, f64::max);
        let failure = if added > 0.0 { (own + added).next_up() } else { own };
        Some(Envelope { failure, ..self.envelope(own)? })
    }
}

/// A lower bound on a Gaussian's profile that is a line in γ = e^ε.
#[derive(Debug, Clone, Copy)]
struct Tangent {
    /// γ.
    at: f64,
    value: f64,
    slope: f64,
}

impl Tangent {
    fn of(gaussian: Gdp, epsilon: f64) -> Self {
        let (value, slope) = gaussian.profile_below(epsilon);
        Self { at: epsilon.exp(), value, slope }
    }

    /// Rounded down: the slope is good to 1e-14.
    fn height(&self, at: f64) -> f64 {
        let climb = self.slope * (at - self.at);
        self.value + climb - 1e-12 * climb.abs()
    }

    fn crossing(&self, other: &Self) -> f64 {
        (self.value - self.slope * self.at - other.value + other.slope * other.at) / (other.slope - self.slope)
    }
}

#[cfg(test)]
mod tests;
