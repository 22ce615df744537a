//! Partitioned variational inference without protection: the exact local optimum.

use dp_pvi_privacy::mechanism::{Message, release_non_private};
use dp_pvi_privacy::{Pending, Permit, Units};

use super::asked::Asked;
use super::{Job, Local, Output};
use crate::error::InferenceError;
use crate::models::{self, Model};
use dp_pvi_records::RecordTable;

/// Largest d: exact optima factorise a d × d matrix (512 MB at this size).
const LARGEST_DIMENSION: usize = 8_192;

/// Δ = λ* − λ with λ* the maximiser of the local bound, by whatever exact method the model has.
///
/// # Privacy
/// None: ε = ∞. The event is `NonPrivate`, for which a ledger mints a permit only where the site allows it. A local failure
/// (numbers out of range) sends the zero change, so that even here nothing but the change speaks about records.
pub(super) fn run(
    job: &Job<'_>,
    local: &Local,
    model: &dyn Model,
    units: &Units<RecordTable>,
    permit: Permit,
) -> Result<Output, InferenceError> {
    model.local_optimum().ok_or(InferenceError::Capability("PVI", "an exact local optimum"))?;
    if local.dimension() > LARGEST_DIMENSION {
        return Err(InferenceError::Job(
            "exact local optima are computed for at most 8192 coefficients; DP optimisation has no such limit",
        ));
    }
    let change = units.map(&Asked::of(job)?, |asked, table| {
        let fit = || {
            let (model, local) = (models::from_spec(&asked.task.model).ok()?, asked.job(Local::new).ok()?);
            let q = model.local_optimum()?.local_optimum(table, &local.cavity, &local.global).ok()?;
            Some(local.change(q.natural()))
        };
        fit().unwrap_or_else(|| vec![0.0; asked.task.family().len()])
    });
    let released = release_non_private(change, permit)?;
    let pending = Pending::Public(released.clone());
    Ok(Output { message: Message::values(released), pending })
}
