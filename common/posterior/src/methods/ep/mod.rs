//! Expectation propagation with private factors (`update = "ep"`): every record has a factor of its own, λ = λ0 + Σ f_n.
//!
//! A site keeps the factors of its records, without noise and behind the gate: the very terms that were summed. With `unit = "site"` it keeps
//! one, and the fixed point is that of expectation propagation over all records; λ carries the noise of all rounds, so let `damping` fall.
//!
//! **Sensitivity**: 1 (add-remove) or 2 (replace-one) in scaled coordinates, every record at every visit. **Defaults**: those of the engine,
//! [`propagation`]. **When**: records differ much, and a site may keep as many numbers a record as λ has.
//!
//! **Source**: Minka 2001; Vinaroz and Park 2022 (with protection).

use super::{FactorOwner, Resolving, UpdateSpec, propagation};
use crate::methods::{MethodEntry, UpdateKind};
use dp_pvi_math::damping::Damping;
use dp_pvi_models::spec::TaskError;

/// The registry's line.
pub(crate) const ENTRY: MethodEntry = MethodEntry {
    kind: UpdateKind::Ep,
    name: "ep",
    help: "expectation propagation with a private factor for every record",
    resolve,
    damping: |_| Damping::Constant(0.5),
};

fn resolve(resolving: &Resolving<'_>) -> Result<UpdateSpec, TaskError> {
    propagation::resolve(resolving, FactorOwner::Record)
}
