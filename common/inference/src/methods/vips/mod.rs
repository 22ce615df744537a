//! Perturbed expected sufficient statistics: one noised sum a visit, and everything else is the server's
//! ([`VipsRule`]).
//!
//! # Privacy
//! * **Unit and relation**: the task's; one term per unit.
//! * **Sensitivity**: C (add-remove) or 2C (replace-one) for all blocks of a visit together. For logistic regression about 0 C is a public
//!   bound on every record's term, so nothing is shortened; about the posterior's mean it is the task's clipping norm; documents and
//!   images are clipped at the state's public C, and their terms are sent in units of it. The proof does not lean on any of these: the
//!   mechanism clips and checks every term.
//! * **Event**: one release a visit, Poisson-sampled where the task says so, each with its share of the run's budget.
//! * **State**: none; the mean about which residuals are taken is that of the public posterior. Every E-step begins where no data decides and takes the same number of sweeps, so what a site sends is a function
//!   of its records and of the public state.

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::cast_precision_loss)]
mod audit;
#[cfg(test)]
mod tests;

use dp_pvi_math::expfam::any::Gaussian;
use dp_pvi_models::latent_dirichlet::Topics;
use dp_pvi_models::latent_dirichlet::document::DocumentLength;
use dp_pvi_posterior::methods::VipsRule;
use dp_pvi_posterior::task::{Clip, DocumentsSpec, StatisticsSpec, UpdateSpec, VipsSpec};
use dp_pvi_privacy::mechanism::{BatchSummation, Message, Summation, Summed, Term};
use dp_pvi_privacy::{NoiseSource, Pending, Permit, Sensitive, Units};

use super::public_job::PublicJob;
use super::{Job, Output, only_step};
use crate::capabilities::statistics::ExpectedStatistics;
use crate::capabilities::statistics::linear_noise::LinearStatistics;
use crate::capabilities::statistics::polya_gamma::{Blocks, LogisticStatistics};
use crate::error::InferenceError;
use crate::models::latent_dirichlet::DocumentStatistics;
use crate::models::sigmoid_belief::{ClippedImages, ImageStatistics};
use dp_pvi_records::{RecordTable, UnitView};

pub(super) fn run<N: NoiseSource>(
    spec: &VipsSpec,
    job: &Job<'_>,
    units: &Units<RecordTable>,
    permit: Permit,
    noise: &N,
) -> Result<Output, InferenceError> {
    Point::new(spec, job)?;
    let asked = PublicJob::of(job)?;
    if let Some(batches) = spec.batches(&job.task.setting(), job.visit)? {
        let permit = only_step(permit, &batches.event())?;
        let sum = batches.release_sum(units, &asked, images, permit, noise)?;
        return Ok(Output { message: Message::lattice(sum), pending: Pending::None });
    }
    let mut mechanism = spec.mechanism(&job.task.setting(), job.visit)?;
    // An E-step of a document takes many sweeps.
    if matches!(spec.statistics, StatisticsSpec::Documents(_) | StatisticsSpec::Images(_)) {
        mechanism = mechanism.of_long_terms();
    }
    let permit = only_step(permit, &mechanism.event())?;
    let message = mechanism.release(units, &Sensitive::NOTHING, &asked, statistics, permit, noise)?;
    Ok(Output { message, pending: Pending::None })
}

fn statistics(asked: &PublicJob, sum: Summation<'_, RecordTable>) -> Result<Summed, InferenceError> {
    let point = Point::asked(asked)?;
    Ok(sum.each(|unit, _, (), term| point.add(unit, term)))
}

/// All of a batch of images at once.
fn images(asked: &PublicJob, sum: BatchSummation<'_, RecordTable>) -> Result<Summed, InferenceError> {
    match Point::asked(asked)?.kind {
        Kind::Images(images) => Ok(sum.of(images.as_ref())),
        _ => Err(InferenceError::Job("batches are of images")),
    }
}

/// The public state, ready for E-steps.
pub struct Point {
    kind: Kind,
}

enum Kind {
    PolyaGamma { q: Gaussian, blocks: Blocks, feature_bound: f64 },
    Documents { topics: Topics, spec: DocumentsSpec, clip: f64, length: f64, scales: Vec<f64> },
    Images(Box<ClippedImages<'static>>),
    LinearNoise(LinearStatistics),
}

impl Point {
    /// The state of a job.
    ///
    /// # Errors
    /// The state is not of this task.
    pub fn new(spec: &VipsSpec, job: &Job<'_>) -> Result<Self, InferenceError> {
        const OTHER: InferenceError = InferenceError::Job("the state is not one of this update");
        let task = job.task;
        let scales = spec.scales(&task.setting(), job.visit);
        let kind = match spec.statistics {
            StatisticsSpec::PolyaGamma(spec) => {
                let q = Gaussian::from_natural(task.family(), task.posterior(job.lambda).to_vec()).map_err(|_| OTHER)?;
                let blocks = match *scales.as_slice() {
                    [first, second] if spec.is_centred() => Blocks::Centred { first, second },
                    [first, second] => Blocks::Both { first, second },
                    [scale] => Blocks::Second { scale },
                    _ => return Err(OTHER),
                };
                Kind::PolyaGamma { q, blocks, feature_bound: task.feature_bound }
            }
            StatisticsSpec::Documents(spec) => {
                let topics = VipsRule::topics(&task.setting(), job.lambda).map_err(|_| OTHER)?;
                let clip = VipsRule::clip(job.lambda).map_err(|_| OTHER)?.get();
                Kind::Documents { topics, spec, clip, length: task.feature_bound, scales }
            }
            StatisticsSpec::LinearNoise(spec) => {
                let scales = scales.try_into().map_err(|_| OTHER)?;
                Kind::LinearNoise(LinearStatistics::new(task.dimension as usize, scales, [task.feature_bound, spec.target_bound]))
            }
            StatisticsSpec::Images(spec) => {
                let network = VipsRule::network(&task.setting(), job.lambda).map_err(|_| OTHER)?;
                let clip = VipsRule::clip(job.lambda).map_err(|_| OTHER)?.get();
                // A rule stays within a thousandfold of the task's C.
                if !(1e-40..=1e40).contains(&clip) {
                    return Err(OTHER);
                }
                let weight = match spec.clip {
                    Clip::Fixed {} => None,
                    Clip::Learned { weight, .. } => Some(weight),
                };
                let scales = spec.scales(&network.shape());
                Kind::Images(Box::new(ClippedImages::new(ImageStatistics::owned(network, scales, spec.sweeps), clip, weight)))
            }
        };
        Ok(Self { kind })
    }

    fn asked(asked: &PublicJob) -> Result<Self, InferenceError> {
        let UpdateSpec::Vips(spec) = &asked.task.update else { return Err(InferenceError::Job("the task names another update")) };
        asked.job(|job| Self::new(spec, job))
    }

    /// Adds a unit's term.
    pub fn add(&self, unit: UnitView<'_>, term: &mut Term) {
        match &self.kind {
            Kind::PolyaGamma { q, blocks, feature_bound } => {
                let statistics = LogisticStatistics::new(q, *blocks, *feature_bound);
                unit.records().for_each(|record| statistics.add(record, term));
            }
            Kind::Documents { topics, spec, clip, length, scales } => {
                let length = DocumentLength::Exactly(*length);
                let statistics = DocumentStatistics::new(topics, length, spec.sweeps);
                documents(&statistics, length, spec, *clip, scales, unit, term);
            }
            Kind::Images(images) => images.add_term(unit, term),
            Kind::LinearNoise(statistics) => unit.records().for_each(|record| statistics.add(record, term)),
        }
    }
}

/// The unit's counts in units of C, clipped, and the indicator that it was within. With two scales the counts of its words alone come
/// first. Of several documents the norms are added, which is no less than the norm of their sum.
fn documents(
    statistics: &DocumentStatistics<'_>,
    length: DocumentLength,
    spec: &DocumentsSpec,
    clip: f64,
    scales: &[f64],
    unit: UnitView<'_>,
    term: &mut Term,
) {
    let (mut words, mut counts) = (Term::default(), Term::default());
    let mut norm = 0.0;
    for record in unit.records() {
        let before = counts.entries().len();
        statistics.add(record, &mut counts);
        let added = || counts.entries().skip(before);
        if added().len() == 0 {
            continue;
        }
        norm += if scales.len() > 1 {
            // The words' norm is no less than that of what topics make of them.
            let factor = length.factor(record.values.iter().sum());
            words.extend(record.indices.iter().zip(record.values).map(|(&word, count)| (word, count * factor)));
            record.values.iter().map(|count| (count * factor).powi(2)).sum::<f64>().sqrt()
        } else {
            added().map(|(_, value)| value * value).sum::<f64>().sqrt()
        };
    }
    let factor = if norm > clip { 1.0 / norm } else { 1.0 / clip };
    #[allow(clippy::cast_possible_truncation, reason = "a mechanism over more coordinates than these exists")]
    let [first, cells] = match scales {
        [_, _] => [statistics.words() as u32, statistics.coordinates() as u32],
        _ => [0, statistics.coordinates() as u32],
    };
    if let [scale, _] = scales {
        term.extend(words.entries().map(|(index, value)| (index, value * factor / scale)));
    }
    let scale = scales.last().copied().unwrap_or(1.0);
    term.extend(counts.entries().map(|(index, value)| (first + index, value * factor / scale)));
    if let Clip::Learned { weight, .. } = spec.clip {
        term.add(first + cells, if norm <= clip { 0.5 * weight } else { -0.5 * weight });
    }
}
