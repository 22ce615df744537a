//! Updates over shards: every shard of a site fits its records to its cavity, and one noised
//! sum of clipped changes leaves. Parameter perturbation and client-level updates have one shard, the whole site.
//!
//! The factor that a cavity leaves out is the site's (parameter perturbation, local averaging, client-level) or the shard's own (virtual
//! clients). It is one of three states, none of which holds noise that was not released:
//!
//! * released: what the site sent so far, decoded; public.
//! * tied: (λ − λ0)/M, public, not stored.
//! * private-clean: the very terms that were summed, before noise, decoded; behind the gate.
//!
//! # Privacy
//! * **Unit and relation**: the task's; the gate cuts shards as the ledger's relation demands (hash or contiguous).
//! * **Sensitivity**: one unit changes one shard's term, of norm at most 1 in the scaled coordinates: 2 under either relation, and so 2C for the one term of
//!   parameter perturbation, 2C for one of the terms of virtual clients, 2C/K for the mean of local averaging; 1 or 2 for client-level terms, where
//!   the site is the unit.
//! * **Term**: a shard's term is a function of its own records, its own private state and the public λ.
//! * A fit that fails contributes 0 and gives no error. Fits have a fixed largest number of iterations.

use std::num::NonZeroU32;

use dp_pvi_math::expfam::any::Gaussian;
use dp_pvi_names::Payload;
use dp_pvi_posterior::methods::Coding;
use dp_pvi_posterior::task::{FactorState, ShardMethod, ShardSpec, UpdateSpec};
use dp_pvi_privacy::mechanism::{CleanTerms, Message, ReleaseError, Summation, Summed};
use dp_pvi_privacy::shards::{Shard, Shards, WholeSite};
use dp_pvi_privacy::{Argument, NoiseSource, Pending, Permit, Sensitive, UnitTable, Units};

use super::public_job::PublicJob;
use super::{Job, Output, cavity, only_step};
use crate::error::InferenceError;
use crate::models::{self, LocalOptimum, Model};
use dp_pvi_records::RecordTable;

/// Relative change of the parameters at which a fit ends: far below any noise.
const TOLERANCE: f64 = 1e-10;
/// Largest d: exact optima factorise a d × d matrix.
const LARGEST_DIMENSION: usize = 8_192;

pub(super) fn run<N: NoiseSource>(
    spec: &ShardSpec,
    job: &Job<'_>,
    model: &dyn Model,
    units: &Units<RecordTable>,
    permit: Permit,
    noise: &N,
) -> Result<Output, InferenceError> {
    let fit = Fit::new(spec, job, model)?;
    match spec.method {
        ShardMethod::ParameterPerturbation | ShardMethod::ClientLevel => fit.release(job, &units.whole_site(), permit, noise),
        ShardMethod::LocalAveraging | ShardMethod::VirtualClients => {
            let count = NonZeroU32::new(spec.shards).ok_or(InferenceError::Job("the task has no shards"))?;
            let shards = units.shards(count, permit.scope());
            fit.release(job, &shards, permit, noise)
        }
    }
}

/// A table whose units are fitted as a whole.
trait Fitted: UnitTable {
    /// Calls `f` with the records of a unit.
    fn fit<'u, R>(unit: Self::Unit<'u>, f: impl FnOnce(&RecordTable) -> R) -> R
    where
        Self: 'u;
}

impl Fitted for WholeSite<'_, RecordTable> {
    fn fit<'u, R>(unit: Self::Unit<'u>, f: impl FnOnce(&RecordTable) -> R) -> R
    where
        Self: 'u,
    {
        f(unit)
    }
}

impl Fitted for Shards<'_, RecordTable> {
    fn fit<'u, R>(unit: Self::Unit<'u>, f: impl FnOnce(&RecordTable) -> R) -> R
    where
        Self: 'u,
    {
        f(&table(unit))
    }
}

/// The records of a shard as a table of their own.
fn table(shard: Shard<'_, RecordTable>) -> RecordTable {
    let mut builder = RecordTable::builder(shard.table().dimension());
    for unit in shard.units() {
        builder.start_unit();
        for record in unit.records() {
            // A row of a table fits a table of the same width that holds no more rows.
            if builder.push_record(record).is_err() {
                break;
            }
        }
    }
    builder.finish()
}

/// What every shard of a visit computes.
pub struct Fit<'a> {
    spec: &'a ShardSpec,
    coding: Coding,
    optimum: &'a dyn LocalOptimum,
    global: Gaussian,
    prior: Vec<f64>,
    /// The cavity of all shards, where the factor that it leaves out is public.
    public: Option<Gaussian>,
}

impl<'a> Fit<'a> {
    /// At the job's λ, with the site's state.
    ///
    /// # Errors
    /// The model has no exact local optimum, or λ or the state is not of this task.
    pub fn new(spec: &'a ShardSpec, job: &Job<'_>, model: &'a dyn Model) -> Result<Self, InferenceError> {
        let optimum = model.local_optimum().ok_or(InferenceError::Capability("this update", "an exact local optimum"))?;
        let family = job.task.family();
        if family.dimension() > LARGEST_DIMENSION {
            return Err(InferenceError::Job(
                "exact local optima are computed for at most 8192 coefficients; DP optimisation has no such limit",
            ));
        }
        let global = Gaussian::from_natural(family, job.lambda.to_vec())
            .map_err(|_| InferenceError::Job("lambda is not the parameters of a distribution of the task's family"))?;
        let prior = job.task.prior_natural();
        // Shards of virtual clients have equal parts of the site's public factor.
        let parts = f64::from(spec.factors());
        let factor: Option<Vec<f64>> = match spec.state {
            FactorState::Released => {
                let kept =
                    job.state.public(family.len()).map_err(|_| InferenceError::Job("the site's state is of another kind or length"))?;
                Some(kept.iter().map(|value| value / parts).collect())
            }
            FactorState::Tied => {
                let parts = parts * f64::from(spec.sites);
                Some(job.lambda.iter().zip(&prior).map(|(lambda, prior)| (lambda - prior) / parts).collect())
            }
            FactorState::PrivateClean => None,
        };
        let public = factor.map(|factor| cavity(family, &prior, job.lambda, &factor)).transpose()?;
        Ok(Self { coding: Coding::new(&job.task.setting(), spec.clone()), spec, optimum, global, prior, public })
    }

    /// clip(λ* − λ) of one shard in the coordinates of a message. Where factors are private, `own` is the shard's; `None` without one, or where
    /// the fit fails.
    #[must_use]
    pub fn message(&self, records: &RecordTable, own: Option<&[f64]>) -> Option<Vec<f64>> {
        let private;
        let cavity = match &self.public {
            Some(cavity) => cavity,
            None => {
                private = cavity(*self.global.family(), &self.prior, self.global.natural(), own?).ok()?;
                &private
            }
        };
        let weight = self.spec.divisor();
        let fit = self.optimum.weighted_optimum(records, weight, TOLERANCE, cavity, &self.global).ok()?;
        let change: Vec<f64> = fit.natural().iter().zip(self.global.natural()).map(|(new, old)| new - old).collect();
        Some(self.coding.encode(&change, &self.global))
    }

    fn release<T, N>(&self, job: &Job<'_>, shards: &Units<T>, permit: Permit, noise: &N) -> Result<Output, InferenceError>
    where
        T: Fitted,
        N: NoiseSource,
    {
        let mechanism = self.spec.mechanism(&job.task.setting())?;
        let permit = only_step(permit, &mechanism.event())?;
        let asked = PublicJob::of(job)?;
        let none = Sensitive::constant(&Vec::new()).map_err(ReleaseError::from)?;
        let (message, pending) = match self.spec.state {
            FactorState::PrivateClean => {
                let zeros = Sensitive::constant(&vec![0.0; self.prior.len() * self.spec.factors() as usize]).map_err(ReleaseError::from)?;
                let other = |_| InferenceError::Job("the site's state is of another kind");
                let state = job.state.private(|| zeros).map_err(other)?;
                let (message, kept) = mechanism.release_keeping(shards, &state, &asked, terms, permit, noise)?;
                // The very fit that was made outside. Whatever the terms are, the round goes on: a change that panicked is none.
                let clean = kept.map(&asked, |asked, kept| fitted(asked, |fit| fit.clean(kept)).unwrap_or_default());
                (message, Pending::Private(clean))
            }
            FactorState::Tied => (mechanism.release(shards, &none, &asked, terms, permit, noise)?, Pending::None),
            FactorState::Released => {
                let message = mechanism.release(shards, &none, &asked, terms, permit, noise)?;
                let pending = released(&message, &asked)?;
                (message, pending)
            }
        };
        Ok(Output { message, pending })
    }

    /// The clipped changes that were summed, as changes of the private factors.
    fn clean(&self, terms: &CleanTerms) -> Vec<f64> {
        if self.spec.method != ShardMethod::VirtualClients {
            return self.coding.decode(&terms.sum(), &self.global);
        }
        terms.to_dense().chunks(self.prior.len()).flat_map(|message| self.coding.decode(message, &self.global)).collect()
    }
}

/// What was released, as a change of the public factor.
fn released(message: &Message, asked: &Argument<PublicJob>) -> Result<Pending, InferenceError> {
    let released = message.released().ok_or(InferenceError::Job("a share of a sum gives no factor"))?;
    let change = released.clone().map(asked, |asked, payload| match payload {
        Payload::Lattice(sum) => fitted(asked, |fit| fit.coding.decode(&sum.to_f64(), &fit.global)),
        Payload::Values(values) => Ok(values),
        Payload::Masked(_) => Ok(Vec::new()),
    });
    Ok(Pending::Public(change.transpose()?))
}

/// The fit of a job, behind the gate.
fn fitted<R>(asked: &PublicJob, f: impl FnOnce(&Fit<'_>) -> R) -> Result<R, InferenceError> {
    let UpdateSpec::Shards(spec) = &asked.task.update else { return Err(InferenceError::Job("the task names another update")) };
    let model = models::from_spec(&asked.task.model)?;
    Ok(f(&asked.job(|job| Fit::new(spec, job, model.as_ref()))?))
}

fn terms<T: Fitted>(asked: &PublicJob, sum: Summation<'_, T, Vec<f64>>) -> Result<Summed, InferenceError> {
    fitted(asked, |fit| {
        let (len, own) = (fit.prior.len(), fit.spec.method == ShardMethod::VirtualClients);
        sum.each(|shard, position, state, term| {
            let start = if own { position * len } else { 0 };
            let private = state.get(start..start + len);
            // A private state of another length has no factor for this shard: it contributes 0.
            if let Some(message) = T::fit(shard, |records| fit.message(records, private)) {
                term.extend((0u32..).zip(message));
            }
        })
    })
}

#[cfg(test)]
mod tests;
