//! The part of a visit that a process beside the site's client computes, for a data set that one machine does not hold ([`dp_pvi_privacy::partial_sums`]).
//!
//! The client asks with the public half of its job. The process that holds some of the units sums the same terms with the same mechanism, and seals the integers to the client:
//! there is no second way to compute a visit. It has neither permit nor noise, and nothing of what it computes can be read before the client has added noise.

use dp_pvi_posterior::task::{ResolvedTask, UpdateSpec};
use dp_pvi_privacy::mechanism::SumMechanism;
use dp_pvi_privacy::partial_sums::{Part, Question};
use dp_pvi_privacy::{Argument, NoRandomness, SiteState, Units};
use dp_pvi_records::RecordTable;

use super::public_job::{PublicJob, SumOfTerms};
use super::{Job, natural_gradient};
use crate::error::InferenceError;
use crate::models;

/// Whether a visit of the task is one sum over all units and nothing else, without coins and without a private state: then it can be made in parts.
#[must_use]
pub fn can_be_in_parts(task: &ResolvedTask) -> bool {
    matches!(task.update, UpdateSpec::NaturalGradient(_))
}

/// Bytes of the integers in an answer to the longest visit of the task; none where no visit can be made in parts.
#[must_use]
pub fn answer_bytes(task: &ResolvedTask) -> Option<u64> {
    let lambda = task.rule().initial();
    // The first visit may have a sum of its own.
    let of = |visit| {
        let job = Job { site: None, task, visit, lambda: &lambda, state: &SiteState::None };
        of_update(&job).ok().map(|(mechanism, _)| 8 * u64::from(mechanism.dimension()))
    };
    [0, 1].into_iter().filter_map(of).max()
}

/// A part of a visit in the making.
pub struct VisitPart {
    question: Question,
    argument: Argument<PublicJob>,
    terms: SumOfTerms,
    part: Part,
    features: usize,
}

impl VisitPart {
    /// A part of no units so far, for the visit that is asked about.
    ///
    /// # Errors
    /// The question is of another version; its task cannot be computed in parts.
    pub fn new(question: Question) -> Result<Self, InferenceError> {
        models::seal();
        let (argument, asked) = question.argument::<PublicJob>()?;
        let (mechanism, terms) = asked.job(|job| of_update(job))?;
        let part = Part::new(&mechanism, &question)?;
        Ok(Self { features: asked.task.features as usize, question, argument, terms, part })
    }

    /// Number of features of the task's records.
    #[must_use]
    pub fn features(&self) -> usize {
        self.features
    }

    /// Adds the terms of units, of which the first one is unit number `first` of the site's snapshot.
    ///
    /// # Errors
    /// The task and the state do not go together. No message depends on a record.
    pub fn add(&mut self, units: &Units<RecordTable>, first: u64) -> Result<(), InferenceError> {
        self.part.add(units, first, &self.argument, self.terms)
    }

    /// The sum, which only the site's client can open.
    ///
    /// # Errors
    /// The system gives no randomness.
    pub fn seal(self) -> Result<Vec<u8>, NoRandomness> {
        self.part.seal(&self.question)
    }
}

/// Mechanism and terms of the update that a job names.
fn of_update(job: &Job<'_>) -> Result<(SumMechanism, SumOfTerms), InferenceError> {
    match &job.task.update {
        UpdateSpec::NaturalGradient(spec) => natural_gradient::part(spec, job),
        _ => Err(InferenceError::Job("its update cannot be computed in parts")),
    }
}

#[cfg(test)]
mod tests {
    use dp_pvi_accounting::{ClipNorm, NoiseMultiplier};
    use dp_pvi_models::logistic_regression;
    use dp_pvi_names::Hash;
    use dp_pvi_posterior::task::{Approximation, ModelSpec, NaturalGradientSpec, Preconditioner, ScheduleSpec};
    use dp_pvi_privacy::partial_sums::{Elsewhere, ExecutorChannel, NoSum, SiteKey};

    use super::*;
    use crate::methods::run;
    use crate::testing::{SeededNoise, permit, random_units, table, task};

    /// Features and label of a person's records.
    type Unit = Vec<(Vec<f64>, f64)>;
    /// Units in so many parts.
    struct Executors(Vec<Vec<Unit>>);

    fn key() -> SiteKey {
        SiteKey::new([3; 32].into())
    }

    impl ExecutorChannel for Executors {
        fn ask(&self, question: &[u8]) -> Result<Vec<Vec<u8>>, NoSum> {
            let mut first = 0;
            let answer = |raw: &Vec<Vec<(Vec<f64>, f64)>>| {
                let mut part = VisitPart::new(Question::open(question, &key()).unwrap()).unwrap();
                part.add(&Units::new(table(part.features(), raw)), first).unwrap();
                first += raw.len() as u64;
                part.seal().unwrap()
            };
            Ok(self.0.iter().map(answer).collect())
        }
    }

    #[test]
    fn a_visit_in_parts_has_the_bits_of_one_process() {
        let spec = NaturalGradientSpec {
            noise_multiplier: NoiseMultiplier::new(1.0).unwrap(),
            preconditioner: Preconditioner::Gram,
            gram_share: 0.2,
            budget_growth: 1.0,
            step: 1.8,
            averaging: 0.0,
            eigenvalue_floor: 0.0,
            shrinkage: 0.0,
            residual_bound: 1.0,
            curvature_bound: 0.25,
            curvature_weight: 0.8,
            clip_norm: ClipNorm::new(2.0).unwrap(),
            weighted: false,
            scale_weights: None,
        };
        let model = ModelSpec::from(logistic_regression::LogisticRegression {});
        for approximation in [Approximation::MeanField, Approximation::FullCovariance] {
            let task = ResolvedTask {
                schedule: ScheduleSpec::Synchronous { rounds: 2 },
                damping: vec![1.0; 2],
                ..task(model.clone(), approximation, 3, UpdateSpec::NaturalGradient(spec))
            };
            assert!(can_be_in_parts(&task));
            // The first visit's sum is a triangle of the features, the others' all parameters.
            let longest = task.family().len().max(6) as u64;
            assert_eq!(answer_bytes(&task), Some(8 * longest));
            let mut raw = random_units(4, 100, 3);
            raw.iter_mut().flatten().for_each(|(_, target)| *target = f64::from(*target > 0.0));
            let lambda = task.rule().initial();
            for visit in [0, 1] {
                let job = Job { site: None, task: &task, visit, lambda: &lambda, state: &SiteState::None };
                let sent = |units: &Units<RecordTable>| {
                    let output = run(&job, units, permit(&task.visit_event(visit).unwrap(), visit), &SeededNoise::new(9)).unwrap();
                    output.message.released().unwrap().get().clone()
                };
                let here = sent(&Units::new(table(3, &raw)));
                assert_ne!(here, sent(&Units::new(table(3, &raw[1..]))), "the sum is more than its noise");
                for size in [100, 50, 15] {
                    let parts = Executors(raw.chunks(size).map(<[_]>::to_vec).collect());
                    let units = Units::elsewhere(Elsewhere::new(raw.len(), Hash::default(), key(), Box::new(parts)));
                    assert_eq!(sent(&units), here, "parts of {size} units");
                }
            }
        }
    }
}
