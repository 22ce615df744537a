//! Partitioned variational inference without protection: the exact local optimum.

use dp_pvi_privacy::mechanism::{Message, release_non_private};
use dp_pvi_privacy::{Pending, Permit, Units};

use super::public_job::PublicJob;
use super::{Job, Local, Output};
use crate::capabilities::glm;
use crate::error::InferenceError;
use crate::models::{self, Model};
use dp_pvi_records::RecordTable;

/// Largest d: exact optima factorise a d × d matrix (512 MB at this size).
const LARGEST_DIMENSION: usize = 8_192;

/// Δ = λ* − λ with λ* the maximiser of the local bound, by whatever exact method the model has. Where the scale σ of the observations is learned the local bound is that at
/// the server's σ, and the change of the site's factor of 1/σ² follows: ½ Σ w and ½σ² Σ w t at λ*, minus what it was.
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
    let change = units.map(&PublicJob::of(job)?, |asked, table| {
        let fit = || {
            let (model, local) = (models::from_spec(&asked.job(|job| job.model())).ok()?, asked.job(Local::new).ok()?);
            let q = model.local_optimum()?.local_optimum(table, &local.cavity, &local.global).ok()?;
            let mut change = local.change(q.natural());
            if let Some(own) = local.own_scale {
                let [count, squares] = glm::scale_sums(model.linear_predictor()?, table, q.standard());
                let square = asked.task.scale_at(&asked.lambda)?.square();
                change.extend([0.5 * count - own[0], 0.5 * square * squares - own[1]]);
            }
            change.iter().all(|value| value.is_finite()).then_some(change)
        };
        let length = asked.task.family().len() + if asked.task.model.rules().learned_scale().is_some() { 2 } else { 0 };
        fit().unwrap_or_else(|| vec![0.0; length])
    });
    let released = release_non_private(change, permit)?;
    let pending = Pending::Public(released.clone());
    Ok(Output { message: Message::values(released), pending })
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests;
