//! Partitioned variational inference without protection (`update = "pvi"`).
//!
//! A site fits q to its records at the cavity, λ* = argmax E_q log p(records | θ) − KL(q ‖ λ − λ_m), and sends the exact change λ* − λ. The
//! server moves λ ← λ + ρ ΣΔ. A fixed point is a stationary point of the global bound; for linear regression with full covariance one sweep
//! is exact.
//!
//! **Assumes** a model with an exact local optimum. **Sensitivity**: none is claimed, ε = ∞; the task states it and a site's ledger books it.
//! **Defaults**: ρ = 1 one site after the other; damping by the number of sites where all answer at once, because their changes add up.
//! **When**: as the yardstick, or where records need no protection from the coordinator.
//!
//! **Source**: Bui et al. 2018 (partitioned variational inference); Ashman et al. 2022.

mod rule;
mod task;

pub use rule::PviRule;
pub(crate) use task::Pvi;
use task::resolve;

use crate::methods::{MethodEntry, UpdateKind};
use dp_pvi_math::damping::Damping;

/// The registry's line.
pub(crate) const ENTRY: MethodEntry = MethodEntry {
    kind: UpdateKind::Pvi,
    name: "pvi",
    help: "exact local optima, no protection",
    resolve,
    damping: |pace| pace.damping(Damping::Constant(1.0)),
};
