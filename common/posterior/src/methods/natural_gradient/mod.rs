//! Bounded natural-gradient variational inference (`update = "natural-gradient"`).
//!
//! The first visit asks for the Gram matrix c̄ Σ xxᵀ, or Σ c̄(y) xxᵀ where the label bounds a record's curvature. The server makes a preconditioner P of it. Every
//! later visit asks for [Σ r x ; w Σ c x∘x] at the current iterate μ (with full covariance w Σ c svec(xxᵀ)), r and c being a record's residual and
//! curvature there.
//! The server steps μ ← μ + ρ P⁻¹(g + Λ0(m0 − μ)) and averages.
//!
//! **Assumes** a likelihood of a linear predictor. **Sensitivity**: C (add-remove) or 2C (replace-one) a visit, clipped and checked. The terms have a
//! public bound by ‖x‖ ≤ R, |r| ≤ r̄ and 0 ≤ c ≤ c̄.
//!
//! **The curvature costs nothing** for a Bernoulli likelihood with a logit, where r = y − E σ(z) and c = E σ(z)(1 − σ(z)) ≤ |r|(1 − |r|) by Jensen's
//! inequality. With Q the bound on ‖x∘x‖ (R² for svec(xxᵀ)), r²R² + w²c²Q² ≤ R² for all |r| ≤ 1 if and only if
//! (wQ/R)² ≤ min (1 + r)/(r²(1 − r)) = φ⁵, taken at r = 1/φ, φ the golden ratio. So w = φ^(5/2) R/Q. Negative binomial
//! and multinomial regression have weights of their own with which the curvature is free; other models give it half of a visit's budget: where noise hides a
//! small eigenvalue of the curvature, an interval becomes as wide as the prior's, which no gradient mends. Linear regression, whose Gram matrix is its curvature, gives it a tenth.
//!
//! **Weights.** To shorten a term biases the fit. With `weighted` a record's term is multiplied by min(1, C/longest), longest its norm with the class
//! that makes it longer. That depends on features and public state alone, so that the mean residual of a true model stays 0. No residual is cut then.
//! Of a person with many records each is weighted by itself, and their sum is clipped.
//!
//! **A scale that is learned.** With σ unknown all is sent in units of it, (σr, σ²c), so that C does not move with σ, and two numbers of every record more: t − (ν + 1)/2 and 1, see
//! [`observation`](dp_pvi_math::observation) and `common/privacy/proofs/scale_statistic.md`. The first costs nothing in a robust regression.
//!
//! **Defaults**: ρ = 2, stable because P is above the Hessian; a fifth of the budget for the Gram matrix; C = 0.6 of the largest norm, since rows
//! are seldom as long as R. Figures: `deploy/guide/src/results/defaults.md`.
//!
//! **When**: the first choice for regressions with all sites in every round. Its intervals include the noise.
//!
//! **Source**: this project; the bound on the Hessian is Böhning and Lindsay 1988, the weights are those of Künsch, Stefanski and Carroll 1989.

mod noise_aware;
mod prior_predictive;
mod rule;
mod sites;
mod task;

pub use rule::NaturalGradientRule;
use task::resolve;
pub use task::{NaturalGradientSpec, NaturalGradientVisit, Preconditioner, ScaleWeights};

use crate::methods::{MethodEntry, UpdateKind};
use dp_pvi_math::damping::Damping;

/// The registry's line.
pub(crate) const ENTRY: MethodEntry = MethodEntry {
    kind: UpdateKind::NaturalGradient,
    name: "natural-gradient",
    help: "noised sums of bounded natural gradients: the first choice for regressions",
    resolve,
    damping: |_| Damping::Constant(1.0),
};
