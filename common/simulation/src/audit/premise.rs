//! Three premises of the claims, each looked at directly: a comparison of integers, coins that can be read off, and epochs that hold every unit once.
//!
//! Some faults change no rate that a feasible number of runs could measure. A term that is rounded up past its bound moves a release by a millionth of its noise;
//! coins that are used twice make some releases say less and others more; batches that are drawn anew for every step of an epoch cost a little more than the epoch. All are still plain to see in what a mechanism sums: the first as an
//! integer norm above the declared one, which needs no statistics, the second as equal samples where independent ones are equal once in thirty, the third as a mean over an epoch that is not that of all units.

use dp_pvi_accounting::{ClipNorm, DpEvent, NoiseMultiplier, Relation};
use dp_pvi_catalogue::{MODELS, UPDATES};
use dp_pvi_names::Payload;
use dp_pvi_posterior::task::{GlobalViSpec, ResolvedTask, Trust, UpdateSpec};
use dp_pvi_privacy::audit::rate_below;
use dp_pvi_privacy::{NoiseSource, SecureNoise, Units};

use super::canary::table;
use super::play::Stage;
use super::registry::{Case, View, resolve};
use super::scenes::Unit;
use super::{AuditError, FALSE_FLAGS, MOST_RUNS, Row};
use crate::noise::{SeededNoise, stream};
use rand_core::Rng;

/// Random terms of exactly the clipping norm.
const TERMS: u32 = 48;
/// Units whose coins are counted.
const UNITS: usize = 256;
/// Runs of two visits each.
const PAIRS: u32 = 24;

/// The rows of this module.
pub(super) fn rows() -> Result<Vec<Row>, AuditError> {
    Ok(vec![integers()?, coins()?, epochs()?])
}

/// A case of global variational inference on linear regression with these numbers in the place of the resolved ones.
fn case(section: &str, change: impl FnOnce(&mut GlobalViSpec)) -> Result<Case, AuditError> {
    let update = UPDATES.iter().find(|update| update.name == section).ok_or(AuditError::Broken("a section"))?;
    let mut task: ResolvedTask =
        resolve(&MODELS[0], update, Relation::AddRemove, Trust::Local).ok_or(AuditError::Broken("global-vi is no task"))?;
    let UpdateSpec::GlobalVi(spec) = &mut task.update else { return Err(AuditError::Broken("another update")) };
    change(spec);
    let (relation, view, records) = (Relation::AddRemove, View::Message, MODELS[0].records);
    Ok(Case { update: update.name, model: MODELS[0].name, relation, view, task, records, steady: false })
}

fn row(name: &str, trials: u32, flag: Option<String>) -> Row {
    Row { name: name.to_owned(), trials, claim: None, bounds: None, flag }
}

/// On the lattice of step 2⁻¹ no term of a unit, of any direction and at the clipping norm, has more than its declared integer norm.
fn integers() -> Result<Row, AuditError> {
    let (noise, clip) = (NoiseMultiplier::new(1.0), ClipNorm::new(524_288.0));
    let (Ok(noise), Ok(clip)) = (noise, clip) else { return Err(AuditError::Broken("two numbers")) };
    let case = case("global-vi", |spec| (spec.noise_multiplier, spec.clip_norm) = (noise, clip))?;
    let stage = Stage::new(&case)?;
    let features = case.task.features as usize;
    let mut random = stream(1, "audit directions", 0);
    let mut flag = None;
    for term in 0..TERMS {
        let mut uniform = || f64::from(random.next_u32()) / 4_294_967_296.0 - 0.5;
        // Long beyond any clip, so that the term lies on the boundary.
        let unit: Unit = vec![((0..features).map(|_| uniform()).collect(), 1e12 * uniform())];
        let play = |units: &[Unit]| {
            let units = Units::new(table(&case.task, units)).over_slots(1);
            stage.play(&[], &units, &units, &SeededNoise::new(term.into()), 0)
        };
        let (with, without) = (play(&[unit])?, play(&[])?);
        let (Payload::Lattice(with), Payload::Lattice(without), DpEvent::DiscreteGaussian(declared)) =
            (&with[0].released, &without[0].released, &with[0].event)
        else {
            return Err(AuditError::Broken("no lattice release"));
        };
        if with.exponent != -1 {
            return Err(AuditError::Broken("another lattice than that of step 1/2"));
        }
        let norm: u128 = with.values.iter().zip(&without.values).map(|(a, b)| u128::from(a.abs_diff(*b)).pow(2)).sum();
        if norm > declared.bound_squared {
            flag = Some(format!("a term's integer norm squared is {norm}, and {} is declared", declared.bound_squared));
        }
        if norm < declared.bound_squared / 2 {
            return Err(AuditError::Broken("a term that was to lie on the boundary does not"));
        }
    }
    Ok(row("premise: a term keeps its integer bound (lattice step 1/2)", TERMS, flag))
}

/// With hardly any noise the number of units in a sample can be read off. The coins of two visits are independent, so two numbers are equal
/// with the probability that two binomial variables are.
fn coins() -> Result<Row, AuditError> {
    let Ok(noise) = NoiseMultiplier::new(1.0 / 512.0) else { return Err(AuditError::Broken("a number")) };
    let case = case("global-vi, sampled", |spec| spec.noise_multiplier = noise)?;
    let UpdateSpec::GlobalVi(spec) = &case.task.update else { return Err(AuditError::Broken("another update")) };
    let (clip, rate) = (spec.clip_norm.get(), spec.sampling_rate.get());
    let stage = Stage::new(&case)?;
    let features = case.task.features as usize;
    let like: Unit = vec![(vec![0.3; features], 1e4)];
    let units = Units::new(table(&case.task, &vec![like; UNITS])).over_slots(UNITS as u64);
    let mut equal = 0;
    for number in 0..PAIRS {
        let visits = stage.play(&[], &units, &units, &SecureNoise, number)?;
        let count = |payload: &Payload| match payload {
            // All terms are the same vector of norm C.
            Payload::Lattice(sum) => Ok((sum.to_f64().iter().map(|x| x * x).sum::<f64>().sqrt() / clip).round()),
            Payload::Masked(_) | Payload::Values(_) => Err(AuditError::Broken("no lattice release")),
        };
        let (first, second) = (count(&visits[0].released)?, count(&visits[1].released)?);
        equal += usize::from((first - second).abs() < 0.5);
    }
    let expected = chance_of_equal(UNITS, rate);
    let proved = rate_below(equal, PAIRS as usize, FALSE_FLAGS / MOST_RUNS as f64);
    let flag = (proved > expected).then(|| {
        format!(
            "the samples of two visits have the same size in {equal} of {PAIRS} runs; fresh coins do that with probability {expected:.3}"
        )
    });
    Ok(row("premise: every visit tosses fresh coins", PAIRS, flag))
}

/// With hardly any noise and no way between steps, the mean gradient of whole epochs is that of all units, to a fraction of one: every unit is in exactly one batch.
fn epochs() -> Result<Row, AuditError> {
    let whole = gradient("dp-optimisation", &SeededNoise::new(1), 0)?;
    #[allow(clippy::cast_precision_loss, reason = "256")]
    let units = UNITS as f64;
    let mut flag = None;
    for number in 0..PAIRS {
        let seen = units * gradient("dp-optimisation, batches", &SecureNoise, number)? / whole;
        if (seen - units).abs() > 0.5 {
            flag = Some(format!("the batches of an epoch hold {seen:.1} units on the average, and there are {UNITS}"));
        }
    }
    Ok(row("premise: every unit is in one batch of an epoch", PAIRS, flag))
}

/// Length of the mean gradient that a visit of like units measures.
fn gradient<N: NoiseSource>(section: &str, noise: &N, number: u32) -> Result<f64, AuditError> {
    let Ok(little) = NoiseMultiplier::new(1.0 / 512.0) else { return Err(AuditError::Broken("a number")) };
    let update = UPDATES.iter().find(|update| update.name == section).ok_or(AuditError::Broken("a section"))?;
    let mut task = resolve(&MODELS[0], update, Relation::AddRemove, Trust::Local).ok_or(AuditError::Broken("no task"))?;
    let UpdateSpec::DpOptimisation(spec) = &mut task.update else { return Err(AuditError::Broken("another update")) };
    (spec.noise_multiplier, spec.learning_rate) = (little, 1e-12);
    let (relation, view, records) = (Relation::AddRemove, View::Message, MODELS[0].records);
    let case = Case { update: update.name, model: MODELS[0].name, relation, view, task, records, steady: false };
    let stage = Stage::new(&case)?;
    let like: Unit = vec![(vec![0.3; case.task.features as usize], 1e4)];
    let units = Units::new(table(&case.task, &vec![like; UNITS])).over_slots(UNITS as u64);
    let visits = stage.play(&[], &units, &units, noise, number)?;
    let Payload::Values(values) = &visits[0].released else { return Err(AuditError::Broken("no fit")) };
    // Behind the change of the natural parameters.
    let d = case.task.dimension as usize;
    let gradient = values.get(2 * d..3 * d).ok_or(AuditError::Broken("a visit that does not measure"))?;
    Ok(gradient.iter().map(|x| x * x).sum::<f64>().sqrt())
}

/// Probability that two independent binomial variables are equal.
fn chance_of_equal(n: usize, rate: f64) -> f64 {
    let mut masses = vec![1.0];
    for _ in 0..n {
        let mut next = vec![0.0; masses.len() + 1];
        for (k, mass) in masses.iter().enumerate() {
            next[k] += mass * (1.0 - rate);
            next[k + 1] += mass * rate;
        }
        masses = next;
    }
    masses.iter().map(|mass| mass * mass).sum()
}
