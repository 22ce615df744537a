//! Global DP variational inference by summed gradients (`update = "global-vi"`): a baseline.
//!
//! Every visit sums clip_C(∇ E_q log p(unit | θ)) in (μ, log σ) over the units or a Poisson sample; the server adds the prior's gradient, which is
//! public, and takes an Adam step. The state carries Adam's moments.
//!
//! **Assumes** a mean field and a model with gradients record by record. **Sensitivity**: C (add-remove) or 2C (replace-one) a visit. **Defaults**:
//! C is half the model's public bound on a gradient; learning rate 0.1; log σ begins at log 0.1.
//!
//! **When**: to compare with. It needs 50 to 200 rounds, and a C well below the bound makes it weak.
//!
//! **Source**: Heikkilä et al. 2022 (as baseline).

mod rule;
mod task;

pub use rule::GlobalViRule;
pub use task::GlobalViSpec;
use task::resolve;

use crate::methods::{MethodEntry, UpdateKind};
use dp_pvi_math::damping::Damping;

/// The registry's line.
pub(crate) const ENTRY: MethodEntry = MethodEntry {
    kind: UpdateKind::GlobalVi,
    name: "global-vi",
    help: "noised gradients to a server's optimiser: a baseline",
    resolve,
    damping: |_| Damping::Constant(1.0),
};
