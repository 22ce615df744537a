//! One visit of federated expectation propagation: Σ clip(f_n′ − f_n) over a site's units.
//!
//! A unit is a record or a person, or, where a task protects sites, the site: then its factor f_m stands for all its records, and f_m′ is what
//! a fixed number of passes of [`Factors`] over them make of it at the cavity λ − f_m.
//!
//! # Privacy
//! * **Unit and relation**: the task's; one term per unit. A unit's factor is a function of its own records, of the public state and, with
//!   `factors = "record"`, of its own factor so far, which holds no noise (`private-clean`). Permutation passes are not offered: each
//!   record would appear exactly once a pass, which is no Poisson sample.
//! * **Sensitivity**: the blocks of a term are clipped to their bounds and scaled so that the whole has norm at most 1; the mechanism clips and checks
//!   again, so the proof does not lean on this module. Δ = 1 (add-remove) or 2 (replace-one) in scaled coordinates. With
//!   `clip_target = "factor"` a term is clip(f_n′), and the server takes the shared factor off again, so that Δ is the same.
//! * **Event**: one release a visit, Poisson-sampled or not.
//! * **State**: none with a shared factor. With factors per record, the very terms that were summed, without noise, behind the gate.
//! * Without ε: everything is `NonPrivate` (ε = ∞).

use dp_pvi_accounting::ClipNorm;
use dp_pvi_posterior::methods::{Approximation, PropagationRule};
use dp_pvi_posterior::task::{ClipTarget, FactorOwner, PropagationSpec, UpdateSpec, VisitOrder};
use dp_pvi_privacy::clipping::metric::clip_blocks;
use dp_pvi_privacy::mechanism::{Message, SumMechanism, Summation, Summed, Term, release_non_private};
use dp_pvi_privacy::shards::WholeSite;
use dp_pvi_privacy::{Argument, NoiseSource, Pending, Permit, Sensitive, UnitTable, Units};

use super::{Adf, Factors, Shared, add};
use crate::capabilities::tilted::{MomentMatching, Scratch, Sites};
use crate::error::InferenceError;
use crate::methods::public_job::PublicJob;
use crate::methods::{Job, Output, only_step};
use crate::models::{self, Model};
use dp_pvi_records::{RecordTable, RecordView, UnitView};

pub(in crate::methods) fn run<N: NoiseSource>(
    spec: &PropagationSpec,
    job: &Job<'_>,
    model: &dyn Model,
    units: &Units<RecordTable>,
    permit: Permit,
    noise: &N,
) -> Result<Output, InferenceError> {
    Visit::new(spec, job, model)?;
    let mechanism = spec.mechanism(&job.task.setting())?.map(SumMechanism::of_long_terms);
    match (mechanism, spec.site_passes) {
        (Some(mechanism), None) => release(spec, &mechanism, job, units, permit, noise),
        (Some(mechanism), Some(_)) => release(spec, &mechanism, job, &units.whole_site(), permit, noise),
        (None, None) => without_protection(spec, job, units, permit),
        (None, Some(_)) => batch_without_protection(spec, job, &units.whole_site(), permit),
    }
}

/// A table whose units have a factor each.
trait Factored: UnitTable {
    /// A unit's new factor, from the one that it has at `lambda`; `None` if there is none.
    fn factor<'u>(visit: &Visit<'_>, unit: Self::Unit<'u>, lambda: &[f64], factor: &[f64]) -> Option<Vec<f64>>
    where
        Self: 'u;

    /// What a unit that has the shared factor makes of it: its change, or what the task clips in place of that.
    fn shared<'u>(visit: &Visit<'_>, cavity: &SharedCavity, unit: Self::Unit<'u>) -> Option<Vec<f64>>
    where
        Self: 'u;
}

impl Factored for RecordTable {
    /// The unit's records are filtered one after the other.
    fn factor<'u>(visit: &Visit<'_>, unit: UnitView<'u>, lambda: &[f64], factor: &[f64]) -> Option<Vec<f64>>
    where
        Self: 'u,
    {
        let mut cavity: Vec<f64> = lambda.iter().zip(factor).map(|(l, f)| l - f).collect();
        let mut new = vec![0.0; factor.len()];
        let (mut sites, mut scratch, mut site) = (visit.matching.sites(), Scratch::default(), vec![0.0; factor.len()]);
        let mut any = false;
        for record in unit.records().filter(RecordView::is_finite) {
            // A coordinate that cannot move keeps what the factor has there, if the unit is this record.
            if any {
                site.fill(0.0)
            } else {
                site.copy_from_slice(factor)
            }
            if !(sites.move_to(&cavity) && sites.site(record, &mut scratch, &mut site)) {
                return None;
            }
            add(&mut new, &site, 1.0);
            add(&mut cavity, &site, 1.0);
            any = true;
        }
        any.then_some(new)
    }

    fn shared<'u>(visit: &Visit<'_>, cavity: &SharedCavity, unit: UnitView<'u>) -> Option<Vec<f64>>
    where
        Self: 'u,
    {
        let sites = cavity.sites.as_ref()?;
        let (mut sum, mut site, mut scratch) = (vec![0.0; visit.len()], vec![0.0; visit.len()], Scratch::default());
        let mut any = false;
        for record in unit.records().filter(RecordView::is_finite) {
            site.copy_from_slice(&visit.shared_factor);
            if sites.site(record, &mut scratch, &mut site) {
                add(&mut sum, &site, 1.0);
                if visit.spec.clip_target == ClipTarget::Change {
                    add(&mut sum, &visit.shared_factor, -1.0);
                }
                any = true;
            }
        }
        any.then_some(sum)
    }
}

impl Factored for WholeSite<'_, RecordTable> {
    /// Expectation propagation over the site's records, each of which begins with an equal part of the site's factor. Without records the factor
    /// is 1.
    fn factor<'u>(visit: &Visit<'_>, table: Self::Unit<'u>, lambda: &[f64], factor: &[f64]) -> Option<Vec<f64>>
    where
        Self: 'u,
    {
        let records: Vec<RecordView<'_>> = table.records().filter(RecordView::is_finite).collect();
        #[allow(clippy::cast_precision_loss, reason = "a number of records is far below 2^52")]
        let part: Vec<f64> = factor.iter().map(|f| f / records.len().max(1) as f64).collect();
        let cavity: Vec<f64> = lambda.iter().zip(factor).map(|(l, f)| l - f).collect();
        let mut ep = Factors::new(visit.matching.as_ref(), &cavity, &part, records.len());
        for _ in 0..visit.spec.site_passes.unwrap_or(1) {
            ep.pass(records.iter().copied(), visit.spec.visit_step);
        }
        let new: Vec<f64> = ep.lambda.iter().zip(&cavity).map(|(l, c)| l - c).collect();
        new.iter().all(|value| value.is_finite()).then_some(new)
    }

    fn shared<'u>(visit: &Visit<'_>, _cavity: &SharedCavity, table: Self::Unit<'u>) -> Option<Vec<f64>>
    where
        Self: 'u,
    {
        let mut new = Self::factor(visit, table, &visit.lambda, &visit.shared_factor)?;
        if visit.spec.clip_target == ClipTarget::Change {
            add(&mut new, &visit.shared_factor, -1.0);
        }
        Some(new)
    }
}

/// What a visit computes from public numbers.
struct Visit<'a> {
    spec: &'a PropagationSpec,
    rule: PropagationRule,
    matching: Box<dyn MomentMatching>,
    lambda: Vec<f64>,
    prior: Vec<f64>,
    /// Mean and precision of λ.
    mean: Vec<f64>,
    precision: Vec<f64>,
    /// (λ − λ0)/N of the run's first state: where factors per record begin.
    first_factor: Vec<f64>,
    /// (λ − λ0)/N.
    shared_factor: Vec<f64>,
    /// Lengths and bounds of the blocks, and their scales.
    blocks: Vec<(usize, ClipNorm)>,
}

/// Sites at the cavity that all records share; `None` if there is none, and then all terms are zero.
struct SharedCavity {
    sites: Option<Box<dyn Sites>>,
}

impl<'a> Visit<'a> {
    fn new(spec: &'a PropagationSpec, job: &Job<'_>, model: &dyn Model) -> Result<Self, InferenceError> {
        let family = job.task.family();
        let matching = model.moment_matching(family).ok_or(InferenceError::Capability("expectation propagation", "tilted moments"))?;
        let rule = PropagationRule::new(&job.task.setting(), spec.clone());
        let factor = |of: &Approximation| of.lambda.iter().zip(&of.prior).map(|(l, p)| (l - p) / rule.records()).collect::<Vec<_>>();
        let first_factor = factor(&rule.first());
        let state = rule.approximation(job.lambda);
        if state.lambda.len() != matching.len() {
            return Err(InferenceError::Job("the state is not one of this update"));
        }
        let shared_factor = factor(&state);
        let (mean, precision) = rule.reference(&state.lambda).ok_or(InferenceError::Job("the state is not a distribution"))?;
        let blocks = rule.blocks().iter().copied().zip(spec.clip_norms.iter().copied()).collect();
        let Approximation { lambda, prior } = state;
        Ok(Self { spec, rule, matching, lambda, prior, mean, precision, first_factor, shared_factor, blocks })
    }

    /// Number of coordinates of λ, of a factor and of a message.
    fn len(&self) -> usize {
        self.lambda.len()
    }

    fn at_shared_cavity(&self) -> SharedCavity {
        let mut sites = self.matching.sites();
        let cavity: Vec<f64> = self.lambda.iter().zip(&self.shared_factor).map(|(l, f)| l - f).collect();
        SharedCavity { sites: sites.move_to(&cavity).then_some(sites) }
    }

    /// Clips a message block by block.
    fn clip(&self, message: &mut [f64]) {
        if !self.blocks.is_empty() {
            clip_blocks(message, &self.blocks);
        }
    }

    /// The clipped message of a change, scaled for the release.
    fn add_message(&self, change: &[f64], term: &mut Term) {
        let mut message = self.rule.encode(change, &self.mean, &self.precision);
        self.clip(&mut message);
        let scales = self.blocks.iter().zip(&self.spec.scales).flat_map(|((len, _), scale)| std::iter::repeat_n(*scale, *len));
        #[allow(clippy::cast_possible_truncation, reason = "a mechanism over these coordinates exists: they are 32-bit numbers")]
        term.extend(message.iter().zip(scales).enumerate().map(|(i, (value, scale))| (i as u32, value / scale)));
    }

    /// The change of a unit's own factor at `lambda`, from the deviation that the state holds for it.
    fn own_change<'u, T: Factored + 'u>(&self, lambda: &[f64], unit: T::Unit<'u>, deviation: &[f64]) -> Option<Vec<f64>> {
        let factor: Vec<f64> = self.first_factor.iter().zip(deviation).map(|(f, d)| f + d).collect();
        let mut new = T::factor(self, unit, lambda, &factor)?;
        add(&mut new, &factor, -1.0);
        Some(new)
    }

    fn add_own<'u, T: Factored + 'u>(&self, unit: T::Unit<'u>, position: usize, state: &[f64], term: &mut Term) {
        // A state of another table has no factor here: the unit then contributes 0.
        let Some(deviation) = state.get(position * self.len()..(position + 1) * self.len()) else { return };
        if let Some(change) = self.own_change::<T>(&self.lambda, unit, deviation) {
            self.add_message(&change, term);
        }
    }

    /// Clips a site's distance from the shared factor (or the site itself), in the metric's coordinates.
    fn limit(&self, site: &mut [f64], shared: &[f64]) {
        if self.blocks.is_empty() {
            return;
        }
        let from: &[f64] = match self.spec.clip_target {
            ClipTarget::Change => shared,
            ClipTarget::Factor => &[],
        };
        let change: Vec<f64> = site.iter().enumerate().map(|(i, s)| s - from.get(i).copied().unwrap_or(0.0)).collect();
        let mut message = self.rule.encode(&change, &self.mean, &self.precision);
        self.clip(&mut message);
        let clipped = self.rule.decode_message(&message, &self.mean, &self.precision);
        site.iter_mut().zip(clipped).enumerate().for_each(|(i, (s, c))| *s = from.get(i).copied().unwrap_or(0.0) + c);
    }

    /// Changes of all units' factors, one after the other, clipped; in a pass every unit sees what the ones before have changed.
    fn own_changes<T: Factored>(&self, table: &T, state: &[f64], order: VisitOrder) -> Vec<f64> {
        let mut lambda = self.lambda.clone();
        let mut changes = Vec::with_capacity(state.len());
        for (position, deviation) in state.chunks_exact(self.len()).enumerate().take(table.len()) {
            let mut change = self.own_change::<T>(&lambda, table.unit(position), deviation).unwrap_or_else(|| vec![0.0; self.len()]);
            if !self.blocks.is_empty() {
                let mut message = self.rule.encode(&change, &self.mean, &self.precision);
                self.clip(&mut message);
                change = self.rule.decode_message(&message, &self.mean, &self.precision);
            }
            if order == VisitOrder::Pass {
                change.iter_mut().for_each(|value| *value *= self.spec.visit_step);
                add(&mut lambda, &change, 1.0);
            }
            changes.extend(change);
        }
        changes
    }
}

/// The visit of a job, behind the gate.
fn at<R>(asked: &PublicJob, f: impl FnOnce(&Visit<'_>) -> R) -> Result<R, InferenceError> {
    let UpdateSpec::Propagation(spec) = &asked.task.update else { return Err(InferenceError::Job("the task names another update")) };
    let model = models::from_spec(&asked.task.model)?;
    Ok(f(&asked.job(|job| Visit::new(spec, job, model.as_ref()))?))
}

/// What [`at`] gives once the same visit was made outside.
fn computed(numbers: Result<Vec<f64>, InferenceError>) -> Vec<f64> {
    numbers.unwrap_or_default()
}

/// The one noised sum of a visit, and the private factors' change.
fn release<T: Factored, N: NoiseSource>(
    spec: &PropagationSpec,
    mechanism: &SumMechanism,
    job: &Job<'_>,
    units: &Units<T>,
    permit: Permit,
    noise: &N,
) -> Result<Output, InferenceError> {
    let permit = only_step(permit, &mechanism.event())?;
    let asked = PublicJob::of(job)?;
    match spec.factors {
        FactorOwner::Shared => {
            let message = mechanism.release(units, &Sensitive::NOTHING, &asked, shared_terms, permit, noise)?;
            Ok(Output { message, pending: Pending::None })
        }
        FactorOwner::Record => {
            let state = factors(job, &asked, units)?;
            let (message, kept) = mechanism.release_keeping(units, &state, &asked, own_terms, permit, noise)?;
            let pending = kept.map(&asked, |asked, terms| {
                computed(at(asked, |visit| {
                    let rows = (0..terms.len()).flat_map(|position| {
                        let mut row = vec![0.0; visit.len()];
                        terms.term(position).for_each(|(index, value)| row[index] = value);
                        visit.rule.decode(&row, &visit.mean, &visit.precision)
                    });
                    rows.collect()
                }))
            });
            Ok(Output { message, pending: Pending::Private(pending) })
        }
    }
}

fn shared_terms<T: Factored>(asked: &PublicJob, sum: Summation<'_, T>) -> Result<Summed, InferenceError> {
    at(asked, |visit| {
        let cavity = visit.at_shared_cavity();
        sum.each(|unit, _, (), term| {
            if let Some(change) = T::shared(visit, &cavity, unit) {
                visit.add_message(&change, term);
            }
        })
    })
}

fn own_terms<T: Factored>(asked: &PublicJob, sum: Summation<'_, T, Vec<f64>>) -> Result<Summed, InferenceError> {
    at(asked, |visit| sum.each(|unit, position, state, term| visit.add_own::<T>(unit, position, state, term)))
}

/// The factors that the site holds, as deviations from the public first one: one a unit, one after the other.
fn factors<T: UnitTable>(job: &Job<'_>, asked: &Argument<PublicJob>, units: &Units<T>) -> Result<Sensitive<Vec<f64>>, InferenceError> {
    let initial = || units.map(asked, |asked, table| computed(at(asked, |visit| vec![0.0; table.len() * visit.len()])));
    job.state.private(initial).map_err(|_| InferenceError::Job("the site's state is of another kind"))
}

/// The same sums and states without a mechanism (ε = ∞).
fn without_protection(spec: &PropagationSpec, job: &Job<'_>, units: &Units<RecordTable>, permit: Permit) -> Result<Output, InferenceError> {
    let asked = PublicJob::of(job)?;
    let change = match (spec.order, spec.factors) {
        (VisitOrder::Batch, _) => return batch_without_protection(spec, job, units, permit),
        (VisitOrder::Pass, FactorOwner::Record) => return own_without_protection(job, units, permit),
        (VisitOrder::Pass, FactorOwner::Shared) => units.map(&asked, |asked, table| {
            computed(at(asked, |visit| {
                let mut sep = Shared::new(visit.matching.as_ref(), visit.prior.clone(), visit.lambda.clone(), visit.rule.records());
                sep.pass_with(table.records(), visit.spec.visit_step, |site, shared| visit.limit(site, shared));
                sep.lambda.iter().zip(&visit.lambda).map(|(new, old)| new - old).collect()
            }))
        }),
        (VisitOrder::Filter, _) => units.map(&asked, |asked, table| {
            computed(at(asked, |visit| {
                let mut filter = Adf::new(visit.matching.as_ref(), visit.lambda.clone());
                filter.pass(table.records());
                filter.lambda.iter().zip(&visit.lambda).map(|(new, old)| new - old).collect()
            }))
        }),
    };
    Ok(Output { message: Message::values(release_non_private(change, permit)?), pending: Pending::None })
}

/// All units at the server's λ.
fn batch_without_protection<T: Factored>(
    spec: &PropagationSpec,
    job: &Job<'_>,
    units: &Units<T>,
    permit: Permit,
) -> Result<Output, InferenceError> {
    if spec.factors == FactorOwner::Record {
        return own_without_protection(job, units, permit);
    }
    let sum = units.map(&PublicJob::of(job)?, |asked, table| {
        computed(at(asked, |visit| {
            let cavity = visit.at_shared_cavity();
            let mut sum = vec![0.0; visit.len()];
            for position in 0..table.len() {
                if let Some(change) = T::shared(visit, &cavity, table.unit(position)) {
                    let mut message = visit.rule.encode(&change, &visit.mean, &visit.precision);
                    visit.clip(&mut message);
                    add(&mut sum, &message, 1.0);
                }
            }
            sum
        }))
    });
    Ok(Output { message: Message::values(release_non_private(sum, permit)?), pending: Pending::None })
}

/// Units with factors of their own.
fn own_without_protection<T: Factored>(job: &Job<'_>, units: &Units<T>, permit: Permit) -> Result<Output, InferenceError> {
    let asked = PublicJob::of(job)?;
    let state = factors(job, &asked, units)?;
    let changes = units
        .map_with(&state, &asked, |asked, table, state| computed(at(asked, |visit| visit.own_changes(table, state, visit.spec.order))));
    let sum = changes.map(&asked, |asked, rows| {
        computed(at(asked, |visit| {
            let mut sum = vec![0.0; visit.len()];
            for row in rows.chunks_exact(visit.len()) {
                match visit.spec.order {
                    VisitOrder::Pass | VisitOrder::Filter => add(&mut sum, row, 1.0),
                    VisitOrder::Batch => add(&mut sum, &visit.rule.encode(row, &visit.mean, &visit.precision), 1.0),
                }
            }
            sum
        }))
    });
    Ok(Output { message: Message::values(release_non_private(sum, permit)?), pending: Pending::Private(changes) })
}
