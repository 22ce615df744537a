//! Partitioned variational inference without protection (algorithms, section 5): the exact local optimum.

use dp_pvi_privacy::mechanism::{Message, release_non_private};
use dp_pvi_privacy::{Pending, Permit, Units};

use super::{Local, Output};
use crate::error::InferenceError;
use crate::model::Model;
use crate::records::RecordTable;

/// Largest d: exact optima factorise a d × d matrix (512 MB at this size).
const LARGEST_DIMENSION: usize = 8_192;

/// Δ = λ* − λ with λ* the maximiser of the local bound, by whatever exact method the model has.
///
/// # Privacy
/// None: ε = ∞. The event is `NonPrivate`, for which a ledger mints a permit only where the site allows it. A local failure
/// (numbers out of range) sends the zero change, so that even here nothing but the change speaks about records.
pub(super) fn run(local: &Local, model: &dyn Model, units: &Units<RecordTable>, permit: Permit) -> Result<Output, InferenceError> {
    let optimum = model.local_optimum().ok_or(InferenceError::Capability("PVI", "an exact local optimum"))?;
    if local.dimension() > LARGEST_DIMENSION {
        return Err(InferenceError::Job(
            "exact local optima are computed for at most 8192 coefficients; DP optimisation has no such limit",
        ));
    }
    let change = units.map(|table| match optimum.local_optimum(table, &local.cavity, &local.global) {
        Ok(q) => local.change(q.natural()),
        Err(_) => vec![0.0; local.global.natural().len()],
    });
    let released = release_non_private(change, permit)?;
    let pending = Pending::Public(released.clone());
    Ok(Output { message: Message::values(released), pending })
}
