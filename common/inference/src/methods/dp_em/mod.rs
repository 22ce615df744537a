//! One visit of DP-EM: the E-step at the server's mixture, and one sum of all statistics.
//!
//! # Privacy
//! * **Unit and relation**: the task's; one term per unit.
//! * **Sensitivity**: √(a² + b²R² + c²R⁴) for rows of norm at most R, as responsibilities have norm at most 1; a unit of several records is
//!   clipped to it. The mechanism clips and checks every term.
//! * **Event**: one unsampled release a visit. **State**: none.

use dp_pvi_models::gaussian_mixture::Density;
use dp_pvi_models::gaussian_mixture::em::{add_statistics, statistics_len};
use dp_pvi_posterior::methods::EmRule;
use dp_pvi_posterior::task::{DpEmSpec, UpdateSpec};
use dp_pvi_privacy::mechanism::{Message, Summation, Summed, release_non_private};
use dp_pvi_privacy::{NoiseSource, Pending, Permit, Sensitive, UnitTable, Units};

use super::public_job::PublicJob;
use super::{Job, Output, only_step};
use crate::error::InferenceError;
use dp_pvi_records::{RecordTable, RecordView, UnitView};

pub(super) fn run<N: NoiseSource>(
    spec: &DpEmSpec,
    job: &Job<'_>,
    units: &Units<RecordTable>,
    permit: Permit,
    noise: &N,
) -> Result<Output, InferenceError> {
    Step::new(spec, job)?;
    let asked = PublicJob::of(job)?;
    let message = match spec.mechanism(&job.task.setting())? {
        Some(mechanism) => {
            let permit = only_step(permit, &mechanism.event())?;
            mechanism.of_long_terms().release(units, &Sensitive::NOTHING, &asked, statistics, permit, noise)?
        }
        None => {
            let sum = units.map(&asked, |asked, table| {
                // The very step that was made outside.
                let Ok(step) = Step::asked(asked) else { return Vec::new() };
                let mut sum = vec![0.0; statistics_len(step.components, step.dimension)];
                for position in 0..UnitTable::len(table) {
                    sum.iter_mut().zip(step.statistics(table.unit(position))).for_each(|(s, value)| *s += value);
                }
                sum
            });
            Message::values(release_non_private(sum, permit)?)
        }
    };
    Ok(Output { message, pending: Pending::None })
}

fn statistics(asked: &PublicJob, sum: Summation<'_, RecordTable>) -> Result<Summed, InferenceError> {
    let step = Step::asked(asked)?;
    Ok(sum.each(|unit, _, (), term| {
        let sum = step.statistics(unit);
        #[allow(clippy::cast_possible_truncation, reason = "a mechanism over these coordinates exists: they are 32-bit numbers")]
        term.extend(sum.iter().enumerate().map(|(i, value)| (i as u32, *value)));
    }))
}

struct Step<'a> {
    spec: &'a DpEmSpec,
    density: Density,
    components: usize,
    dimension: usize,
}

impl<'a> Step<'a> {
    fn new(spec: &'a DpEmSpec, job: &Job<'_>) -> Result<Self, InferenceError> {
        let other = InferenceError::Job("the state is not one of this update");
        let rule = EmRule::new(&job.task.setting(), spec.scales());
        let Some(mixture) = rule.mixture(job.lambda) else { return Err(other) };
        let density = mixture.density().map_err(|_| other)?;
        Ok(Self { spec, density, components: mixture.weights.len(), dimension: job.task.features as usize })
    }

    fn asked(asked: &'a PublicJob) -> Result<Self, InferenceError> {
        let UpdateSpec::DpEm(spec) = &asked.task.update else { return Err(InferenceError::Job("the task names another update")) };
        asked.job(|job| Self::new(spec, job))
    }
}

impl Step<'_> {
    /// Σ u over a unit's finite records.
    fn statistics(&self, unit: UnitView<'_>) -> Vec<f64> {
        let mut sum = vec![0.0; statistics_len(self.components, self.dimension)];
        let mut x = vec![0.0; self.dimension];
        for record in unit.records().filter(RecordView::is_finite) {
            x.fill(0.0);
            record.entries().for_each(|(j, value)| x[j] = value);
            let (log, responsibilities) = self.density.score(&x);
            if log.is_finite() {
                add_statistics(&self.spec.scales(), &x, &responsibilities, &mut sum);
            }
        }
        sum
    }
}
