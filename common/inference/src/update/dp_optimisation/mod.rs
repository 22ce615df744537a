//! DP optimisation (algorithms, section 6.1): the local fit by noisy gradient steps.
//!
//! A visit makes L steps. Each step releases one vector, the sum over a Poisson sample (or all) of the units of
//! clip_C(∇ E_q log p(unit | θ)) plus discrete Gaussian noise; the gradient of a person's records is summed before it is
//! clipped. The prior's and the cavity's gradient is public given λ, so it is added outside the clip. Everything after a
//! release — the step, the average of iterates, Δ = λ* − λ — is post-processing, and [`Released::map`] is the only way on.
//!
//! # Privacy
//! * **Unit and relation**: the task's; one term per unit.
//! * **Sensitivity**: C (add-remove) or 2C (replace-one) per step, on the lattice of [`LatticeSum`].
//! * **Event**: L times the event of one step, Poisson-sampled where q < 1. The permit is consumed into exactly L step permits.
//! * **State**: the factor moves by ρΔ, which is public; no noise is removed later (rules R1, R2).

mod iterate;

use dp_pvi_expfam::any::Family;
use dp_pvi_posterior::task::DpOptimisationSpec;
use dp_pvi_privacy::mechanism::LatticeSum;
use dp_pvi_privacy::{LatticeVector, NoiseSource, Payload, Permit, Released, StepPermit, Units};

pub(super) use iterate::Iterate;

use super::{Local, Output};
use crate::error::InferenceError;
use crate::model::{Gradients, Model};
use crate::point::MeanField;
use crate::records::RecordTable;

pub(super) fn run<N: NoiseSource>(
    spec: &DpOptimisationSpec,
    local: &Local,
    model: &dyn Model,
    units: &Units<RecordTable>,
    permit: Permit,
    noise: &N,
) -> Result<Output, InferenceError> {
    let gradients = model.gradients().ok_or(InferenceError::Capability("DP optimisation", "gradients record by record"))?;
    if !matches!(local.global.family(), Family::DiagonalGaussian { .. }) {
        return Err(InferenceError::Job("DP optimisation fits a mean field, and the task names another family"));
    }
    let coordinates = u32::try_from(2 * local.dimension()).map_err(|_| InferenceError::Job("the dimension is above 2^31"))?;
    let mechanism = spec.mechanism(coordinates)?;
    let start = Iterate::start(spec, local)?;

    let mut permits = permit.into_steps();
    let first = permits.next().ok_or(InferenceError::Job("the permit holds no step"))?;
    let mut iterate = step(gradients, &mechanism, start.point(), units, first, noise)?.map(|sum| start.advance(&sum.to_f64()));
    for permit in permits {
        let sum = step(gradients, &mechanism, iterate.get().point(), units, permit, noise)?;
        iterate = sum.map(|sum| iterate.into_inner().advance(&sum.to_f64()));
    }
    let change = iterate.map(|iterate| local.change(&iterate.finish()));
    let pending = change.get().clone();
    Ok(Output { payload: change.map(Payload::Values), pending: Some(pending) })
}

/// One release: the noisy sum of clipped gradients at `point`.
pub(super) fn step<N: NoiseSource>(
    gradients: &dyn Gradients,
    mechanism: &LatticeSum,
    point: &MeanField,
    units: &Units<RecordTable>,
    permit: StepPermit,
    noise: &N,
) -> Result<Released<LatticeVector>, InferenceError> {
    let sum = mechanism.release_sum(
        units,
        |unit, term| {
            for record in unit.records() {
                gradients.gradient(record, point, term);
            }
        },
        permit,
        noise,
    )?;
    Ok(sum)
}
