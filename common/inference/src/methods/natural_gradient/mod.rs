//! Bounded natural-gradient variational inference: one noised sum a visit, and everything else is the
//! server's ([`NaturalGradientRule`]).
//!
//! # Privacy
//! * **Unit and relation**: the task's; one term per unit.
//! * **Sensitivity**: C (add-remove) or 2C (replace-one). A record's term has a public bound, ‖(r x, w c x∘x)‖ from ‖x‖ ≤ R and the
//!   bounds on r and c (module `methods::natural_gradient` of the posterior crate); with C at that bound no record is shortened. The
//!   default C is smaller, and weights that depend on the record alone keep those of a logistic regression within it. The proof leans on
//!   neither: the mechanism clips and checks every term.
//! * **A scale that is learned** adds two coordinates to the same release: w(t − m) and w, beside (σr, σ²c) at the public σ. The bound of the joint vector is
//!   that of [`dp_pvi_privacy::proofs::scale_statistic`]; σ enters as public state only.
//! * **Coordinates**: under local trust a site releases those that all sites have and its own effects ([`places`](NaturalGradientSpec::places)); the rest of its vector is 0.
//! * **Event**: one unsampled release a visit, each with its share of the run's budget.
//! * **State**: none. What a site sends is a function of its records and of the public state.

use dp_pvi_math::expfam::any::{Gaussian, Standard};
use dp_pvi_math::expfam::gaussian::full::triangle;
use dp_pvi_models::many_rows::{Cut, ManyRows, Place, PseudoRows, Sparse};
use dp_pvi_models::predictor::{Predicted, Predictor, Statistics};
use dp_pvi_posterior::methods::NaturalGradientRule;
use dp_pvi_posterior::task::{NaturalGradientSpec, NaturalGradientVisit, ScaleWeights, TaskError, UpdateSpec};
use dp_pvi_privacy::mechanism::{SumMechanism, Summation, Summed, Term};
use dp_pvi_privacy::{NoiseSource, Pending, Permit, Sensitive, UnitTable, Units};

use super::public_job::{PublicJob, SumOfTerms};
use super::{Job, Output, only_step};
use crate::capabilities::glm::{predictor_of, project, scale_statistic};
use crate::capabilities::many_rows;
use crate::error::InferenceError;
use crate::mean_field::{MeanField, ScaleCoordinate};
use crate::models::{self, Model};
use dp_pvi_records::{RecordTable, RecordView};

pub(super) fn run<N: NoiseSource>(
    spec: &NaturalGradientSpec,
    job: &Job<'_>,
    model: &dyn Model,
    units: &Units<RecordTable>,
    permit: Permit,
    noise: &N,
) -> Result<Output, InferenceError> {
    let mechanism = mechanism(spec, job, model)?;
    let permit = only_step(permit, &mechanism.event())?;
    let message = mechanism.release(units, &Sensitive::NOTHING, &PublicJob::of(job)?, terms, permit, noise)?;
    Ok(Output { message, pending: Pending::None })
}

/// The sum of a visit, as its event has it.
fn mechanism(spec: &NaturalGradientSpec, job: &Job<'_>, model: &dyn Model) -> Result<SumMechanism, InferenceError> {
    let mut mechanism = spec.mechanism(&job.task.setting(), job.visit)?;
    if let Some(places) = spec.places(&job.task.setting(), job.visit, job.site)? {
        mechanism = mechanism.on(places).map_err(TaskError::from)?;
    }
    if Terms::new(spec, job, model)?.are_long() {
        mechanism = mechanism.of_long_terms();
    }
    Ok(mechanism)
}

/// The same sum and the same terms, for a process that holds some of the units.
pub(super) fn part(spec: &NaturalGradientSpec, job: &Job<'_>) -> Result<(SumMechanism, SumOfTerms), InferenceError> {
    Ok((mechanism(spec, job, models::from_spec(&job.model())?.as_ref())?, terms))
}

fn terms(asked: &PublicJob, sum: Summation<'_, RecordTable>) -> Result<Summed, InferenceError> {
    let UpdateSpec::NaturalGradient(spec) = &asked.task.update else {
        return Err(InferenceError::Job("the task names another update"));
    };
    let model = models::from_spec(&asked.job(|job| job.model()))?;
    let terms = asked.job(|job| Terms::new(spec, job, model.as_ref()))?;
    Ok(match terms.predictor() {
        None => sum.each(|unit, _, (), term| unit.records().for_each(|record| terms.add(record, term))),
        Some(predictor) => sum.each_in_lanes(
            |unit, _, (), notes| unit.records().for_each(|record| notes.push(terms.predicted(record))),
            |predictors| predictor.statistics_of_many(predictors),
            |unit, _, (), predictors, term| {
                unit.records().zip(predictors).for_each(|(record, predicted)| terms.add_at(predictor, record, predicted, term));
            },
        ),
    })
}

/// The sum of a visit over a table: every unit's term shortened to C where it is longer, as in the release, but neither rounded nor noised.
pub(super) fn exact_terms(spec: &NaturalGradientSpec, job: &Job<'_>, table: &RecordTable) -> Option<Vec<f64>> {
    let model = models::from_spec(&job.model()).ok()?;
    let terms = Terms::new(spec, job, model.as_ref()).ok()?;
    let (len, clip) = match spec.visit(job.visit) {
        // No one takes this visit apart: its sum is not shortened here.
        NaturalGradientVisit::Gram => (triangle(terms.dimension), f64::INFINITY),
        NaturalGradientVisit::Gradient => {
            (job.task.family().len() + if spec.scale_weights.is_some() { 2 } else { 0 }, spec.clip_norm.get())
        }
    };
    let mut sum = vec![0.0; len];
    let (mut dense, mut term) = (sum.clone(), Term::default());
    for position in 0..table.len() {
        term.clear();
        table.unit(position).records().for_each(|record| terms.add(record, &mut term));
        term.entries().for_each(|(index, value)| dense[index as usize] += value);
        // A coordinate counts once, also where a unit has several records.
        let take = |(index, _): (u32, f64)| (index as usize, std::mem::take(&mut dense[index as usize]));
        let entries: Vec<(usize, f64)> = term.entries().map(take).collect();
        let norm = entries.iter().map(|(_, value)| value * value).sum::<f64>().sqrt();
        if norm.is_finite() {
            let factor = (clip / norm).min(1.0);
            entries.iter().for_each(|(index, value)| sum[*index] += factor * value);
        }
    }
    Some(sum)
}

/// What a record adds to the sum of a visit.
pub struct Terms<'a> {
    spec: NaturalGradientSpec,
    dimension: usize,
    /// Whether the residual is the class minus its probability: with the other class it is longer or shorter by 1.
    of_class: bool,
    /// Where the scale of the observations is learned, in a visit that asks for it.
    scale: Option<OwnUnits>,
    kind: Kind<'a>,
}

/// A learned scale at its value in a state: terms are in units of it.
#[derive(Clone, Copy)]
struct OwnUnits {
    /// σ, which the model has too.
    sd: f64,
    /// No t is above this.
    largest: f64,
    weights: ScaleWeights,
    /// Place of the first of two numbers more.
    place: u32,
}

impl OwnUnits {
    fn of(spec: &NaturalGradientSpec, job: &Job<'_>) -> Result<Option<Self>, InferenceError> {
        let setting = job.task.setting();
        let (Some(scale), NaturalGradientVisit::Gradient) = (setting.learned_scale(), spec.visit(job.visit)) else { return Ok(None) };
        let (weights, at) = (spec.scale_weights, setting.scale_at(job.lambda));
        let (Some(weights), Some(at)) = (weights, at) else { return Err(InferenceError::Job("the state is not one of this update")) };
        let place = u32::try_from(job.task.family().len()).unwrap_or(u32::MAX);
        Ok(Some(Self { sd: at.scale(), largest: scale.largest, weights, place }))
    }

    /// t − m.
    fn statistic_of(&self, predictor: &dyn Predictor, record: RecordView<'_>, mean: f64, variance: f64) -> f64 {
        let curvature = predictor.statistics(mean, variance, record.target).curvature;
        scale_statistic(curvature, record.target - mean, variance, self.largest) - 0.5 * self.largest
    }

    /// (σr, σ²c).
    fn standardised(&self, Statistics { residual, curvature }: Statistics) -> Statistics {
        Statistics { residual: self.sd * residual, curvature: self.sd * self.sd * curvature }
    }
}

enum Kind<'a> {
    Gram(&'a dyn Predictor),
    MeanField(&'a dyn Predictor, MeanField),
    Full(&'a dyn Predictor, Standard),
    /// Of models whose record becomes several rows.
    GramOfRows(&'a dyn ManyRows),
    Rows(&'a dyn ManyRows, Standard),
}

impl<'a> Terms<'a> {
    /// At the point of the job's state, for the model that the job has ([`Job::model`]).
    ///
    /// # Errors
    /// The model has no linear predictors, or the state is not of this task.
    pub fn new(spec: &NaturalGradientSpec, job: &Job<'_>, model: &'a dyn Model) -> Result<Self, InferenceError> {
        let other = |_| InferenceError::Job("the state is not one of this update");
        let point = NaturalGradientRule::point(job.task.family(), job.lambda).map_err(other)?;
        Self::at(&point, spec, job, model)
    }

    /// The same as expectations under a distribution of the coefficients.
    ///
    /// # Errors
    /// As [`Self::new`].
    pub fn at(q: &Gaussian, spec: &NaturalGradientSpec, job: &Job<'_>, model: &'a dyn Model) -> Result<Self, InferenceError> {
        let (rows, predictor) = (model.many_rows(), model.linear_predictor());
        let predictor = || predictor.ok_or(InferenceError::Capability("natural gradients", "a linear predictor"));
        let kind = match (spec.visit(job.visit), rows, q.standard()) {
            (NaturalGradientVisit::Gram, Some(rows), _) => Kind::GramOfRows(rows),
            (NaturalGradientVisit::Gram, None, _) => Kind::Gram(predictor()?),
            (NaturalGradientVisit::Gradient, Some(rows), q) => Kind::Rows(rows, q.clone()),
            (NaturalGradientVisit::Gradient, None, Standard::Diagonal(q)) => {
                let other = |_| InferenceError::Job("the state is not one of this update");
                let q = MeanField::new(q.mean().to_vec(), q.variance().to_vec(), ScaleCoordinate::LogScale).map_err(other)?;
                Kind::MeanField(predictor()?, q)
            }
            (NaturalGradientVisit::Gradient, None, full @ Standard::Full(_)) => Kind::Full(predictor()?, full.clone()),
        };
        let of_class = model.linear_predictor().is_some_and(Predictor::residual_is_of_class);
        Ok(Self { spec: *spec, dimension: job.task.family().dimension(), of_class, scale: OwnUnits::of(spec, job)?, kind })
    }

    /// Whether a term has products of features, or is made of several rows: then it takes microseconds.
    fn are_long(&self) -> bool {
        !matches!(self.kind, Kind::MeanField(..))
    }

    /// Adds a record's term. A record with a number that is not finite contributes 0.
    #[inline]
    pub fn add(&self, record: RecordView<'_>, term: &mut Term) {
        match &self.kind {
            Kind::Gram(_) if !record.extra.weight.is_finite() => {}
            Kind::Gram(predictor) => {
                let (row, factor) = (sparse(record), predictor.largest_curvature(self.spec.curvature_bound, record.target));
                self.products(row, record.extra.weight * factor, 0, term);
            }
            Kind::MeanField(predictor, _) | Kind::Full(predictor, _) => {
                let mut predicted = self.predicted(record);
                predicted.statistics = predictor.statistics(predicted.mean, predicted.variance, predicted.target);
                self.add_at(*predictor, record, &predicted, term);
            }
            Kind::GramOfRows(model) => {
                let mut rows = PseudoRows::default();
                many_rows::write_bound(*model, record, self.dimension, self.spec.curvature_bound, &mut rows);
                if rows.is_finite() {
                    rows.iter().for_each(|(row, at)| self.products(row, at.curvature, 0, term));
                }
            }
            Kind::Rows(model, q) => self.rows(*model, q, record, term),
        }
    }

    /// Where a term follows from a predictor of one dimension: [`Self::add`] is [`Self::predicted`], its statistics and [`Self::add_at`].
    fn predictor(&self) -> Option<&'a dyn Predictor> {
        match self.kind {
            Kind::MeanField(predictor, _) | Kind::Full(predictor, _) => Some(predictor),
            Kind::Gram(_) | Kind::GramOfRows(_) | Kind::Rows(..) => None,
        }
    }

    /// A record's predictor, where there is one.
    #[inline]
    fn predicted(&self, record: RecordView<'_>) -> Predicted {
        let at = match &self.kind {
            Kind::MeanField(_, q) => project(record, q),
            Kind::Full(_, q) => predictor_of(record, q),
            Kind::Gram(_) | Kind::GramOfRows(_) | Kind::Rows(..) => (f64::NAN, f64::NAN),
        };
        Predicted::new(at, record.target)
    }

    /// Adds a record's term, its predictor and what the likelihood says of it being known.
    #[inline]
    fn add_at(&self, predictor: &dyn Predictor, record: RecordView<'_>, predicted: &Predicted, term: &mut Term) {
        let Some(Statistics { residual, curvature }) = self.statistics(predictor, record, predicted) else { return };
        let (offset, weight) = (self.offset(), self.spec.curvature_weight * curvature);
        let (indices, values) = (record.indices.iter(), record.values.iter());
        term.extend_beside(indices.clone().copied(), values.clone().map(|x| residual * x));
        if let Kind::MeanField(..) = self.kind {
            // Below 2d, which is a 32-bit number, too.
            term.extend_beside(indices.map(|j| offset.wrapping_add(*j)), values.map(|x| weight * x * x));
        } else {
            self.products(sparse(record), weight, offset, term);
        }
        self.scale_of(predictor, record, (predicted.mean, predicted.variance), term);
    }

    /// Σ r ρ, and Σ c ρ∘ρ or Σ c svec(ρρᵀ), of a record's rows.
    fn rows(&self, model: &dyn ManyRows, q: &Standard, record: RecordView<'_>, term: &mut Term) {
        let cut = if model.ends_follow_up() {
            Cut { follow_up: self.spec.residual_bound, ..Cut::NOTHING }
        } else {
            Cut { residual: self.spec.residual_bound, curvature: self.spec.curvature_bound, ..Cut::NOTHING }
        };
        let mut rows = PseudoRows::default();
        many_rows::write(model, record, &Place { cut, ..Place::at(q) }, &mut rows);
        if !rows.is_finite() {
            return;
        }
        for (row, at) in rows.iter().filter(|(_, at)| at.residual != 0.0) {
            term.extend(row.entries().map(|(j, x)| (j, at.residual * x)));
        }
        let (offset, weight) = (self.offset(), self.spec.curvature_weight);
        for (row, at) in rows.iter().filter(|(_, at)| at.curvature != 0.0) {
            match q {
                Standard::Diagonal(_) => term.extend(row.entries().map(|(j, x)| (offset + j, weight * at.curvature * x * x))),
                Standard::Full(_) => self.products(row, weight * at.curvature, offset, term),
            }
        }
    }

    /// Residual and curvature within their bounds, times the record's own weight (`weights` of the model), and times that which keeps it within C where the update
    /// is `weighted`.
    #[inline]
    fn statistics(&self, predictor: &dyn Predictor, record: RecordView<'_>, predicted: &Predicted) -> Option<Statistics> {
        let Predicted { mean, variance, statistics: own, .. } = *predicted;
        if !(own.residual.is_finite() && own.curvature.is_finite() && variance.is_finite() && record.extra.weight.is_finite()) {
            return None;
        }
        let own = self.spec.bounded(self.scale.map_or(own, |scale| scale.standardised(own)));
        let times = |factor: f64, s: Statistics| Statistics { residual: factor * s.residual, curvature: factor * s.curvature };
        let counted = record.extra.weight;
        if !self.spec.weighted {
            let factor = self
                .scale
                .map_or(1.0, |scale| self.room(scale, own, counted * scale.statistic_of(predictor, record, mean, variance), record));
            return Some(times(factor * counted, own));
        }
        let other = if self.of_class {
            Statistics { residual: 1.0 - own.residual.abs(), ..own }
        } else {
            self.spec.bounded(predictor.statistics(mean, variance, 1.0 - record.target))
        };
        let (square, fourth) = self.squares(record);
        let own = times(counted, own);
        Some(times(self.spec.weight([own, times(counted, other)], square, fourth), own))
    }

    /// ‖x‖², and the squared norm of the curvature block at c = 1.
    fn squares(&self, record: RecordView<'_>) -> (f64, f64) {
        let square: f64 = record.values.iter().map(|x| x * x).sum();
        let fourth = match self.kind {
            Kind::MeanField(..) => record.values.iter().map(|x| x * x * x * x).sum(),
            Kind::Gram(_) | Kind::Full(..) | Kind::GramOfRows(_) | Kind::Rows(..) => square * square,
        };
        (square, fourth)
    }

    /// By how much residual and curvature are shortened so that they have room within C beside what tells the scale, which never is: to shorten it by how far the label is
    /// off would bias σ.
    fn room(&self, scale: OwnUnits, own: Statistics, statistic: f64, record: RecordView<'_>) -> f64 {
        let (clip, weight) = (self.spec.clip_norm.get(), record.extra.weight);
        let told = (scale.weights.statistic * statistic).powi(2) + (scale.weights.count * weight).powi(2);
        let (square, fourth) = self.squares(record);
        let length = own.residual.powi(2) * square + (self.spec.curvature_weight * own.curvature).powi(2) * fourth;
        let room = (clip * clip - told).max(0.0) / (weight * weight * length);
        // No length, no weight: nothing to shorten.
        if room < 1.0 { room.sqrt() } else { 1.0 }
    }

    /// w(t − m) and w, where the scale is learned; of a record that is known to be finite.
    fn scale_of(&self, predictor: &dyn Predictor, record: RecordView<'_>, (mean, variance): (f64, f64), term: &mut Term) {
        let Some(scale) = self.scale else { return };
        let weight = record.extra.weight;
        term.add(scale.place, scale.weights.statistic * weight * scale.statistic_of(predictor, record, mean, variance));
        term.add(scale.place + 1, scale.weights.count * weight);
    }

    /// factor·svec(xxᵀ), from `offset` on: row by row, off-diagonal entries times √2.
    fn products(&self, x: Sparse<'_>, factor: f64, offset: u32, term: &mut Term) {
        for (k, (&index, value)) in x.indices.iter().zip(x.values).enumerate() {
            let i = index as usize;
            // Row i of the upper triangle begins after rows 0..i, of d, d − 1, … entries.
            let row = i * (2 * self.dimension - i + 1) / 2;
            #[allow(clippy::cast_possible_truncation, reason = "below the number of coordinates, which is a 32-bit number")]
            let row = offset + (row - i) as u32;
            let scaled = factor * value;
            term.add(row + index, scaled * value);
            let rest = x.indices[k + 1..].iter().map(|j| row.wrapping_add(*j));
            term.extend_beside(rest, x.values[k + 1..].iter().map(|y| std::f64::consts::SQRT_2 * scaled * y));
        }
    }

    fn offset(&self) -> u32 {
        // A mechanism over more coordinates than these exists.
        u32::try_from(self.dimension).unwrap_or(u32::MAX)
    }
}

/// A record's row.
fn sparse(record: RecordView<'_>) -> Sparse<'_> {
    Sparse { indices: record.indices, values: record.values }
}

#[cfg(test)]
mod tests;
