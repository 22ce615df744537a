//! Expectation maximisation for a mixture of Gaussians from noised statistics (`update = "dp-em"`): a baseline.
//!
//! A visit asks for Σ u over the records, u = (a r, b r⊗x, c r⊗svec(xxᵀ)) with r the responsibilities: weights, means and covariances in one
//! release. The M-step is the next state.
//!
//! **Assumes** a Gaussian mixture. **Sensitivity**: √(a² + b²R² + c²R⁴), since ‖r‖ ≤ 1 and ‖x‖ ≤ R; nothing is clipped. **Defaults**: a, b and c
//! share the budget equally. The model's `noise_sd` is where covariances begin.
//!
//! **When**: to compare with. It gives a point estimate; the spread of its means is their sampling variance.
//!
//! **Source**: Park et al. 2017.

mod rule;
mod task;

pub use rule::EmRule;
pub use task::DpEmSpec;
use task::resolve;

use crate::methods::{MethodEntry, UpdateKind};
use dp_pvi_math::damping::Damping;

/// The registry's line.
pub(crate) const ENTRY: MethodEntry = MethodEntry {
    kind: UpdateKind::DpEm,
    name: "dp-em",
    help: "expectation maximisation from noised statistics: mixtures, a baseline",
    resolve,
    damping: |_| Damping::Constant(1.0),
};
