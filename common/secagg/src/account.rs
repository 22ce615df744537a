//! What aggregated rounds cost: the joint loss, and the loss if every other share is known.
//!
//! Both are upper bounds of the accountants of `dp-pvi-privacy`; this module only says what to ask them. The joint loss holds if
//! server and summer do not collude and at most c sites do with either; the fallback holds whatever all others do.

use dp_pvi_accounting::{AccountantError, PrivacyLoss, epsilon_upper};
use dp_pvi_accounting::{Delta, DpEvent, Epsilon, Relation};
use dp_pvi_privacy::mechanism::ShareSum;

/// The two figures that a statement shows side by side.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct AggregatedLoss {
    /// h honest shares in every sum, server and summer apart.
    pub joint: PrivacyLoss,
    /// All other shares known: server and summer collude, or everyone else does.
    pub fallback: PrivacyLoss,
    /// h.
    pub honest: u32,
}

impl AggregatedLoss {
    /// Of `rounds` sums by the same mechanism.
    ///
    /// # Errors
    /// An event that no engine bounds.
    pub fn of(mechanism: &ShareSum, rounds: u64, relation: Relation, delta: Delta) -> Result<Self, AccountantError> {
        let loss = |event: DpEvent| epsilon_upper([&event.repeated(rounds)], relation, delta);
        Ok(Self { joint: loss(mechanism.event())?, fallback: loss(mechanism.fallback_event())?, honest: mechanism.shares() })
    }

    /// Whether a site's policy lets it take part: its budget for the joint loss, its cap on the fallback.
    #[must_use]
    pub fn within(&self, joint: Epsilon, fallback: Epsilon) -> bool {
        self.joint.epsilon <= joint && self.fallback.epsilon <= fallback
    }
}

/// Upper bound on log₁₀ τ, where e^{±τ} bounds, for every integer, the ratio of the probabilities of a sum of `shares` discrete
/// Gaussians of parameter `scale` and of one of variance shares·scale²: τ = 10 Σ_{k=1}^{n−1} exp(−2π²s²k/(k+1)) ≤
/// 10(n−1)·exp(−π²s²), since k/(k+1) ≥ ½ (Kairouz, Liu & Steinke 2021, Theorem 1).
///
/// At s = 2¹⁰ it is below −4,000,000: no floating-point number can tell τ·d from 0, and the accountants round up by more.
#[must_use]
pub fn log10_tau_upper(shares: u32, scale: u64) -> f64 {
    if shares < 2 {
        return f64::NEG_INFINITY;
    }
    let scale = scale as f64;
    let exponent = std::f64::consts::PI * std::f64::consts::PI * scale * scale * (1.0 - 1e-12);
    (10.0 * f64::from(shares - 1)).log10() - exponent * std::f64::consts::LOG10_E * (1.0 - 1e-12)
}
