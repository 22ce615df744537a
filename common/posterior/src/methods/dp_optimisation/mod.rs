//! DP optimisation (`update = "dp-optimisation"`): the local fit by noised gradient steps.
//!
//! A visit makes L steps. Each releases Σ clip_C(∇ E_q log p(unit | θ)) plus noise over all units, a Poisson sample of rate q, or one of T batches to which every unit was
//! allocated at random (`batches`; a visit then is whole epochs of T steps); the gradient
//! of prior and cavity is public given λ and is added outside the clip. A step then is *preconditioned* (μ moves by
//! η (g + h_c − Λ_c μ)/(Λ + F), the released scale block being the curvature itself, and Λ no less than Λ_c and what the visit has released of it), *positivity-preserving*, or *Adam* on (μ, log σ).
//! What is sent is a function of the L releases and of public values: Δ = λ* − λ, and of regressions the means of the released gradients and curvatures,
//! of which the noise-aware posterior is made.
//!
//! **Assumes** a mean field, local trust, and a model with gradients. **Sensitivity**: C per step (add-remove) or 2C (replace-one); a visit
//! is L such events, Poisson-sampled where q < 1, or L/T whole epochs of random allocation.
//!
//! **Defaults**: L = 5 and η = 0.3, averaged over the last half; q = 1, because it is accounted exactly and at the same ε a sample saves time and
//! no noise. The floor F = 3 K s/τ (K the gain of the run in steps, s the noise left on a gradient, τ the prior's scale) stays below the
//! best linear filter for coefficients of size τ. Logistic regression weighs records and scales features, see the file `balance.rs`; C is then
//! 0.35 of the model's public bound on a gradient, otherwise half of it. Figures: `deploy/guide/src/results/defaults.md`.
//!
//! **When**: neural networks, or sites that shall each protect themselves. For regressions under aggregation take natural gradients.
//!
//! **Source**: Heikkilä et al. 2022; Abadi et al. 2016 (clipped sums); Andrew et al. 2021 (`adaptive_clip`); Lin, Schmidt and Khan
//! 2020 (positivity-preserving steps).

mod balance;
mod noise_aware;
mod prior_predictive;
mod rule;
mod sites;
mod task;

pub(crate) use task::resolve;
pub use task::{AdaptiveClipSpec, DpOptimisationSpec, Optimizer};

use crate::methods::{MethodEntry, UpdateKind};
use dp_pvi_math::damping::Damping;

/// The registry's line.
pub(crate) const ENTRY: MethodEntry = MethodEntry {
    kind: UpdateKind::DpOptimisation,
    name: "dp-optimisation",
    help: "noised gradient steps inside the site: every model with gradients",
    resolve,
    damping: |pace| pace.damping(Damping::SEQUENTIAL),
};
