use std::num::NonZeroU32;

use dp_pvi_accounting::{ClipNorm, NoiseMultiplier, PrivacyUnit, Relation, Terms};
use dp_pvi_math::expfam::any::Gaussian;
use dp_pvi_math::expfam::gaussian::full::unsvec;
use dp_pvi_models::{linear_regression, logistic_regression};
use dp_pvi_names::Payload;
use dp_pvi_posterior::methods::{Coding, VisitSum};
use dp_pvi_posterior::task::{
    Approximation, FactorState, ModelSpec, PrivacySpec, ResolvedTask, ScheduleSpec, ShardMethod, ShardSpec, UpdateSpec,
};
use dp_pvi_privacy::clipping::metric::ClipMetric;
use dp_pvi_privacy::{Argument, Pending, Sensitive, SiteState, Units};

use super::Fit;
use crate::methods::{Job, run};
use crate::models::{self, Model};
use crate::testing::{SeededNoise, close, logistic, matrix, permit_under, random_units, rows, table, task, vector, vectors};
use dp_pvi_records::RecordTable;

const METRICS: [ClipMetric; 5] = [ClipMetric::Flat, ClipMetric::FlatHalf, ClipMetric::Block, ClipMetric::Centred, ClipMetric::Whitened];

fn spec(method: ShardMethod, shards: u32, state: FactorState, clip_metric: ClipMetric, bound: f64) -> ShardSpec {
    let blocks = if clip_metric.has_blocks() { 2 } else { 1 };
    ShardSpec {
        method,
        shards,
        sites: 3,
        state,
        clip_metric,
        clip_norms: vec![ClipNorm::new(bound).unwrap(); blocks],
        scales: vec![bound * (blocks as f64).sqrt(); blocks],
        noise_multiplier: NoiseMultiplier::new(0.7).unwrap(),
        step_precision: 0.0,
    }
}

fn task_with(spec: &ShardSpec, model: ModelSpec, approximation: Approximation, dimension: usize, rho: f64) -> ResolvedTask {
    let base = task(model, approximation, dimension as u32, UpdateSpec::Shards(spec.clone()));
    let unit = if spec.method == ShardMethod::ClientLevel { PrivacyUnit::Site } else { PrivacyUnit::Record };
    ResolvedTask {
        schedule: ScheduleSpec::Synchronous { rounds: 1 },
        damping: vec![rho],
        privacy: PrivacySpec { unit, ..base.privacy.clone() },
        ..base
    }
}

/// One round of all sites without noise: λ, and the norms of the changes before clipping. `kept` are the private-clean factors, one list for
/// every shard of every site.
fn clean_round(task: &ResolvedTask, spec: &ShardSpec, shards: &[Vec<RecordTable>], lambda: &[f64], kept: &mut [Vec<Vec<f64>>]) -> Vec<f64> {
    let model = models::from_spec(&task.model).unwrap();
    let q = Gaussian::from_natural(task.family(), lambda.to_vec()).unwrap();
    let coding = Coding::new(&task.setting(), spec.clone());
    let fit = Fit::new(spec, &Job { site: None, task, visit: 0, lambda, state: &SiteState::None }, model.as_ref()).unwrap();
    let mut sum = vec![0.0; lambda.len()];
    for (site, factors) in shards.iter().zip(kept) {
        for (shard, factor) in site.iter().zip(factors) {
            let message = fit.message(shard, Some(factor)).unwrap();
            let change = coding.decode(&message, &q);
            factor.iter_mut().zip(&change).for_each(|(f, c)| *f += task.damping[0] * c);
            sum.iter_mut().zip(&message).for_each(|(s, m)| *s += m);
        }
    }
    task.rule().apply(lambda, &VisitSum { visit: 0, sites: shards.len() as u32, sum: &sum }).state
}

/// `logreg.one_round_from_prior_4_shards`: shard k holds rows k, k + 4, ….
#[test]
fn one_round_from_the_prior_is_the_golden_one() {
    let golden = vectors("logreg");
    let (x, y) = (matrix(&golden["X"]), vector(&golden["y"]));
    let golden = &golden["one_round_from_prior_4_shards"];
    let shard = |k: usize| {
        let pick = |i: &usize| i % 4 == k;
        let (x, y): (Vec<_>, Vec<_>) = (0..y.len()).filter(pick).map(|i| (x[i].clone(), y[i])).unzip();
        table(3, &rows(&x, &y))
    };
    let shards: Vec<RecordTable> = (0..4).map(shard).collect();
    for metric in METRICS {
        for (method, key, total) in
            [(ShardMethod::LocalAveraging, "local_avg", "local_avg_delta"), (ShardMethod::VirtualClients, "virtual", "virtual_delta")]
        {
            let spec = spec(method, 4, FactorState::Released, metric, 1e6);
            let task = task_with(&spec, ModelSpec::from(logistic_regression::LogisticRegression {}), Approximation::MeanField, 3, 1.0);
            let model = models::from_spec(&task.model).unwrap();
            let lambda = task.prior_natural();
            let q = Gaussian::from_natural(task.family(), lambda.clone()).unwrap();
            let job = Job { site: None, task: &task, visit: 0, lambda: &lambda, state: &SiteState::None };
            let fit = Fit::new(&spec, &job, model.as_ref()).unwrap();
            let mut sum = vec![0.0; 6];
            for (shard, expected) in shards.iter().zip(golden["per_shard"].as_array().unwrap()) {
                let change = fit.coding.decode(&fit.message(shard, None).unwrap(), &q);
                let whole: Vec<f64> = change.iter().map(|c| c * spec.divisor()).collect();
                close(&whole, &vector(&expected[key]), 1e-8);
                sum.iter_mut().zip(&change).for_each(|(s, c)| *s += c);
            }
            close(&sum, &vector(&golden[total]), 1e-8);
        }
    }
}

/// Without noise and with a bound that is never reached, virtual clients end at the optimum of the bound, in every metric.
#[test]
fn without_noise_virtual_clients_reach_the_optimum() {
    let raw = random_units(3, 96, 3);
    let shards: Vec<Vec<RecordTable>> = (0..3).map(|m| (0..2).map(|k| table(3, &raw[32 * m + 16 * k..][..16])).collect()).collect();
    for metric in [ClipMetric::Flat, ClipMetric::Centred] {
        let spec = spec(ShardMethod::VirtualClients, 2, FactorState::PrivateClean, metric, 1e6);
        let task = task_with(&spec, ModelSpec::from(logistic_regression::LogisticRegression {}), Approximation::MeanField, 3, 0.3);
        let mut lambda = task.prior_natural();
        let mut kept = vec![vec![vec![0.0; 6]; 2]; 3];
        for _ in 0..300 {
            lambda = clean_round(&task, &spec, &shards, &lambda, &mut kept);
        }
        let prior = Gaussian::from_natural(task.family(), task.prior_natural()).unwrap();
        let all = table(3, &raw);
        let optimum = logistic().local_optimum().unwrap().local_optimum(&all, &prior, &prior).unwrap();
        close(&lambda, optimum.natural(), 1e-6);
        // λ = λ0 + Σ λ_m.
        let total: Vec<f64> =
            (0..6).map(|j| task.prior_natural()[j] + kept.iter().flatten().map(|factor| factor[j]).sum::<f64>()).collect();
        close(&total, &lambda, 1e-9);
    }
}

/// `client_level_tied` and `client_level_private_clean`, with and without clipping.
#[test]
fn client_level_rounds_are_the_golden_ones() {
    let (linreg, tied, clean) = (vectors("linreg"), vectors("client_level_tied"), vectors("client_level_private_clean"));
    let (x, y) = (matrix(&linreg["X"]), vector(&linreg["y"]));
    let d = x[0].len();
    let mut start = 0;
    let sites: Vec<Vec<RecordTable>> = vector(&linreg["client_sizes"])
        .iter()
        .map(|&size| {
            let size = size as usize;
            let range = start..start + size;
            start += size;
            vec![table(d, &rows(&x[range.clone()], &y[range]))]
        })
        .collect();
    let precision = vector(&linreg["prior_prec"])[0];
    assert_eq!((vector(&linreg["prior_mean"]), vector(&linreg["prior_prec"])), (vec![0.0; d], vec![precision; d]));
    let bound = tied["clip_C"].as_f64().unwrap();
    for (golden, key, state, bound) in [
        (&tied, "noclip", FactorState::Tied, 1e9),
        (&tied, "clipped", FactorState::Tied, bound),
        (&clean, "clipped", FactorState::PrivateClean, bound),
    ] {
        let spec = spec(ShardMethod::ClientLevel, 1, state, ClipMetric::Flat, bound);
        let model = ModelSpec::from(linear_regression::LinearRegression { noise_sd: linreg["noise_var"].as_f64().unwrap().sqrt() });
        let mut task = task_with(&spec, model, Approximation::FullCovariance, d, golden["rho"].as_f64().unwrap());
        task.prior.scale = precision.sqrt().recip();
        let mut lambda = task.prior_natural();
        assert_eq!(sites.len(), 3);
        let mut kept = vec![vec![vec![0.0; lambda.len()]]; 3];
        for round in golden[key].as_array().unwrap() {
            lambda = clean_round(&task, &spec, &sites, &lambda, &mut kept);
            close(&lambda[..d], &vector(&round["h"]), 1e-9);
            let precision = unsvec(&lambda[d..], d);
            let golden: Vec<f64> = matrix(&round["prec"]).concat();
            close(precision.as_slice(), &golden, 1e-9);
        }
    }
}

struct Visit {
    message: Vec<i64>,
    pending: Pending,
}

fn visit(task: &ResolvedTask, raw: &[Vec<(Vec<f64>, f64)>], lambda: &[f64], state: &SiteState, relation: Relation, seed: u64) -> Visit {
    let job = Job { site: None, task, visit: 0, lambda, state };
    let permit = permit_under(task.privacy.unit, relation, &task.visit_event(0).unwrap(), 0);
    let output = run(&job, &Units::new(table(task.dimension as usize, raw)), permit, &SeededNoise::new(seed)).unwrap();
    let Payload::Lattice(sum) = output.message.released().unwrap().get().clone() else { panic!("a lattice vector") };
    Visit { message: sum.values, pending: output.pending }
}

/// Every update over shards, with every state that local trust knows.
fn registry() -> Vec<ShardSpec> {
    let mut all = Vec::new();
    for (method, shards) in [
        (ShardMethod::ParameterPerturbation, 1),
        (ShardMethod::LocalAveraging, 4),
        (ShardMethod::VirtualClients, 4),
        (ShardMethod::ClientLevel, 1),
    ] {
        for state in [FactorState::Released, FactorState::Tied, FactorState::PrivateClean] {
            if (method, state) == (ShardMethod::LocalAveraging, FactorState::PrivateClean) {
                // No task may say so.
                continue;
            }
            for metric in METRICS {
                all.push(spec(method, shards, state, metric, 0.8));
            }
        }
    }
    all
}

/// One unit more, less or other moves the sum before noise by at most the declared sensitivity, whatever the unit holds.
#[test]
fn one_unit_moves_the_sum_by_at_most_the_declared_sensitivity() {
    let d = 3;
    let base = random_units(4, 14, d);
    let row = |x: f64, y: f64| vec![(vec![x; 3], y)];
    let others = [
        vec![],
        row(0.0, 1.0),
        row(f64::NAN, 1.0),
        row(1e300, 0.0),
        row(-40.0, 1.0),
        row(3.0, f64::INFINITY),
        vec![(vec![1.0; 3], 1.0); 60],
    ];
    let mut largest = 0.0f64;
    for spec in registry() {
        let task = task_with(&spec, ModelSpec::from(logistic_regression::LogisticRegression {}), Approximation::MeanField, d, 0.5);
        let terms = if spec.method == ShardMethod::ClientLevel { Terms::Units } else { Terms::ShardResults };
        let bound_steps = 2f64.powi(-spec.mechanism(&task.setting()).unwrap().exponent());
        // λ away from the prior, so that cavities are no priors.
        let lambda = [vec![0.8, -0.5, 0.2], vec![3.0, 2.0, 4.0]].concat();
        // A site is exchanged, never absent.
        let relations = if spec.method == ShardMethod::ClientLevel { 1 } else { 2 };
        for relation in [Relation::ReplaceOne, Relation::AddRemove].into_iter().take(relations) {
            let limit = relation.sensitivity_factor(terms) * bound_steps;
            let sum = |raw: &[Vec<(Vec<f64>, f64)>]| visit(&task, raw, &lambda, &SiteState::None, relation, 9).message;
            let before = sum(&base);
            for other in &others {
                let mut raw = base.clone();
                match relation {
                    Relation::ReplaceOne => raw[5] = other.clone(),
                    Relation::AddRemove => raw.push(other.clone()),
                }
                let after = sum(&raw);
                let moved = before.iter().zip(&after).map(|(a, b)| (a.abs_diff(*b) as f64).powi(2)).sum::<f64>().sqrt();
                assert!(moved <= limit, "{spec:?} {relation:?}: {moved} {limit}");
                largest = largest.max(moved / limit);
            }
        }
    }
    assert!(largest > 0.4, "{largest}");
}

/// What a site sums in the second round is the same whatever its noise was in the first, for every state that is offered.
#[test]
fn the_state_holds_no_noise_that_was_not_released() {
    let raw = random_units(6, 20, 3);
    for spec in registry() {
        let task = task_with(&spec, ModelSpec::from(logistic_regression::LogisticRegression {}), Approximation::MeanField, 3, 0.5);
        let prior = task.prior_natural();
        // The transcript: λ of the second round is the same in all replays.
        let second = [vec![0.4, -0.2, 0.1], vec![2.0, 1.5, 1.8]].concat();
        let replay = |seed: u64, carry: fn(Visit, &ResolvedTask, &ShardSpec) -> SiteState| {
            let first = visit(&task, &raw, &prior, &SiteState::None, Relation::ReplaceOne, seed);
            visit(&task, &raw, &second, &carry(first, &task, &spec), Relation::ReplaceOne, 77).message
        };
        if spec.state != FactorState::Released {
            let reference = replay(1, carried);
            assert!((2..6).all(|seed| replay(seed, carried) == reference), "{spec:?}");
        } else {
            // A released state moves with the transcript, and with nothing else: it is the released vector.
            let first = visit(&task, &raw, &prior, &SiteState::None, Relation::ReplaceOne, 1);
            let q = Gaussian::from_natural(task.family(), prior.clone()).unwrap();
            let step = 2f64.powi(spec.mechanism(&task.setting()).unwrap().exponent());
            let sent: Vec<f64> = first.message.iter().map(|&v| v as f64 * step).collect();
            let decoded = Coding::new(&task.setting(), spec.clone()).decode(&sent, &q);
            assert_eq!(first.pending.public(), Some(decoded.as_slice()));
        }
        if spec.state == FactorState::PrivateClean {
            // A forbidden design: the state is what was sent, noise and all. The test must notice it.
            let noisy = replay(1, noise_in_state);
            assert!((2..6).any(|seed| replay(seed, noise_in_state) != noisy), "{spec:?}");
        }
    }
}

fn carried(visit: Visit, task: &ResolvedTask, _: &ShardSpec) -> SiteState {
    match visit.pending {
        Pending::None => SiteState::None,
        Pending::Public(change) => SiteState::Public(change.get().iter().map(|c| task.damping[0] * c).collect()),
        Pending::Private(change) => {
            let rho = Argument::copy_of(&task.damping[0]).unwrap();
            SiteState::Private(change.map(&rho, |rho, change| change.iter().map(|c| rho * c).collect()))
        }
    }
}

/// As the papers' code: every shard keeps its part of the noised sum.
fn noise_in_state(visit: Visit, task: &ResolvedTask, spec: &ShardSpec) -> SiteState {
    let q = Gaussian::from_natural(task.family(), task.prior_natural()).unwrap();
    let step = 2f64.powi(spec.mechanism(&task.setting()).unwrap().exponent());
    let sent: Vec<f64> = visit.message.iter().map(|&v| v as f64 * step).collect();
    let part: Vec<f64> = Coding::new(&task.setting(), spec.clone())
        .decode(&sent, &q)
        .iter()
        .map(|c| task.damping[0] * c / f64::from(spec.factors()))
        .collect();
    SiteState::Private(Sensitive::constant(&part.repeat(spec.factors() as usize)).unwrap())
}

/// The event is the accountant's for shards, and only its permit runs it.
#[test]
fn the_permit_must_be_for_the_event_of_the_task() {
    let raw = random_units(1, 10, 3);
    for spec in registry() {
        let task = task_with(&spec, ModelSpec::from(logistic_regression::LogisticRegression {}), Approximation::MeanField, 3, 0.5);
        let lambda = task.prior_natural();
        let job = Job { site: None, task: &task, visit: 0, lambda: &lambda, state: &SiteState::None };
        let event = task.visit_event(0).unwrap();
        let wrong = permit_under(task.privacy.unit, Relation::ReplaceOne, &event.repeated(2), 0);
        assert!(run(&job, &Units::new(table(3, &raw)), wrong, &SeededNoise::new(1)).is_err());
        assert!(NonZeroU32::new(spec.shards).is_some());
    }
}
