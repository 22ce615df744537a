//! Perturbed expected sufficient statistics (algorithms, section 12): one noised sum a visit, and everything else is the server's
//! ([`VipsRule`]).
//!
//! # Privacy
//! * **Unit and relation**: the task's; one term per unit.
//! * **Sensitivity**: C (add-remove) or 2C (replace-one) for all blocks of a visit together (R4). For logistic regression C is a public
//!   bound on every record's term, so nothing is shortened; documents are clipped at the state's public C, and their terms are
//!   sent in units of it. The proof does not lean on either: the mechanism clips and checks every term.
//! * **Event**: one release a visit, Poisson-sampled where the task says so, each with its share of the run's budget.
//! * **State**: none. Every E-step begins where no data decides and takes the same number of sweeps, so what a site sends is a function
//!   of its records and of the public state (R1).

#[cfg(test)]
mod tests;

use dp_pvi_expfam::any::Gaussian;
use dp_pvi_posterior::lda::Topics;
use dp_pvi_posterior::lda::document::DocumentLength;
use dp_pvi_posterior::rule::VipsRule;
use dp_pvi_posterior::task::{Clip, DocumentsSpec, StatisticsSpec, VipsSpec};
use dp_pvi_privacy::mechanism::Term;
use dp_pvi_privacy::{NoiseSource, Pending, Permit, Sensitive, Units};

use super::{Job, Output, only_step};
use crate::error::InferenceError;
use crate::model::lda::DocumentStatistics;
use crate::model::polya_gamma::{Blocks, LogisticStatistics};
use crate::model::statistics::ExpectedStatistics;
use crate::records::{RecordTable, UnitView};

pub(super) fn run<N: NoiseSource>(
    spec: &VipsSpec,
    job: &Job<'_>,
    units: &Units<RecordTable>,
    permit: Permit,
    noise: &N,
) -> Result<Output, InferenceError> {
    let mechanism = spec.mechanism(job.task, job.visit)?;
    let point = Point::new(spec, job)?;
    let permit = only_step(permit, &mechanism.event())?;
    let none = Sensitive::constant(());
    let message =
        mechanism.release(units, &none, |unit: UnitView<'_>, _, (): &(), term: &mut Term| point.add(unit, term), permit, noise)?;
    Ok(Output { message, pending: Pending::None })
}

/// The public state, ready for E-steps.
pub struct Point {
    kind: Kind,
}

enum Kind {
    PolyaGamma { q: Gaussian, blocks: Blocks, feature_bound: f64 },
    Documents { topics: Topics, spec: DocumentsSpec, clip: f64, length: f64 },
}

impl Point {
    /// The state of a job.
    ///
    /// # Errors
    /// The state is not of this task.
    pub fn new(spec: &VipsSpec, job: &Job<'_>) -> Result<Self, InferenceError> {
        const OTHER: InferenceError = InferenceError::Job("the state is not one of this update");
        let task = job.task;
        let kind = match spec.statistics {
            StatisticsSpec::PolyaGamma(_) => {
                let q = Gaussian::from_natural(task.family(), task.posterior(job.lambda).to_vec()).map_err(|_| OTHER)?;
                let blocks = match *spec.scales(task, job.visit).as_slice() {
                    [first, second] => Blocks::Both { first, second },
                    [scale] => Blocks::Second { scale },
                    _ => return Err(OTHER),
                };
                Kind::PolyaGamma { q, blocks, feature_bound: task.feature_bound }
            }
            StatisticsSpec::Documents(spec) => {
                let topics = VipsRule::topics(task, job.lambda).map_err(|_| OTHER)?;
                let clip = VipsRule::clip(job.lambda).map_err(|_| OTHER)?.get();
                Kind::Documents { topics, spec, clip, length: task.feature_bound }
            }
        };
        Ok(Self { kind })
    }

    /// Adds a unit's term.
    pub fn add(&self, unit: UnitView<'_>, term: &mut Term) {
        match &self.kind {
            Kind::PolyaGamma { q, blocks, feature_bound } => {
                let statistics = LogisticStatistics::new(q, *blocks, *feature_bound);
                unit.records().for_each(|record| statistics.add(record, term));
            }
            Kind::Documents { topics, spec, clip, length } => {
                let statistics = DocumentStatistics::new(topics, DocumentLength::Exactly(*length), spec.sweeps);
                documents(&statistics, spec, *clip, unit, term);
            }
        }
    }
}

/// The unit's counts in units of C, clipped, and the indicator that it was within. Of several documents the norms are added, which is
/// no less than the norm of their sum.
fn documents(statistics: &DocumentStatistics<'_>, spec: &DocumentsSpec, clip: f64, unit: UnitView<'_>, term: &mut Term) {
    let mut counts = Term::default();
    let mut norm = 0.0;
    for record in unit.records() {
        let before = counts.entries().len();
        statistics.add(record, &mut counts);
        norm += counts.entries()[before..].iter().map(|(_, value)| value * value).sum::<f64>().sqrt();
    }
    let factor = if norm > clip { 1.0 / norm } else { 1.0 / clip };
    term.extend(counts.entries().iter().map(|&(index, value)| (index, value * factor)));
    if let Clip::Learned { weight, .. } = spec.clip {
        #[allow(clippy::cast_possible_truncation, reason = "a mechanism over more coordinates than these exists")]
        let last = statistics.coordinates() as u32;
        term.add(last, if norm <= clip { 0.5 * weight } else { -0.5 * weight });
    }
}
