//! Federated expectation propagation: what is released, what it does without noise, and what a site keeps.

use dp_pvi_accounting::Gdp;
use dp_pvi_accounting::{ClipNorm, Delta, NoiseMultiplier, PrivacyUnit, SamplingRate};
use dp_pvi_models::gaussian_mixture::em::{Mixture, add_statistics, m_step, statistics_len};
use dp_pvi_models::{gaussian_mixture, logistic_regression, pbp_network, probit_regression};
use dp_pvi_names::Payload;
use dp_pvi_posterior::methods::{EmRule, PropagationRule, VisitSum};
use dp_pvi_posterior::task::{
    Approximation, ClipTarget, DpEmSpec, FactorOwner, ModelSpec, PropagationSpec, ResolvedTask, UpdateSpec, VisitOrder,
};
use dp_pvi_privacy::audit::{ErrorRate, lower_bound};
use dp_pvi_privacy::clipping::metric::ClipMetric;
use dp_pvi_privacy::danger::assume_public;
use dp_pvi_privacy::{Pending, Sensitive, SiteState, Units};

use super::{Adf, Factors, Shared};
use crate::methods::{Job, Output, run};
use crate::models;
use crate::testing::{SeededNoise, permit_under, random_units, table, task};
use dp_pvi_records::RecordTable;
use dp_pvi_unsealed::Unsealed;

mod sites;

type RawUnits = Vec<Vec<(Vec<f64>, f64)>>;

const D: usize = 3;

fn spec(task: &ResolvedTask, factors: FactorOwner, metric: ClipMetric, bound: f64, noise: Option<f64>) -> PropagationSpec {
    let blocks = if !metric.has_blocks() {
        1
    } else if task.model.options::<pbp_network::PbpNetwork>().is_some() {
        3
    } else {
        2
    };
    PropagationSpec {
        records: 40,
        site_passes: None,
        factors,
        order: VisitOrder::Batch,
        visit_step: 1.0,
        sampling_rate: SamplingRate::nearest(1.0).unwrap(),
        noise_multiplier: noise.map(|z| NoiseMultiplier::new(z).unwrap()),
        clip_metric: metric,
        clip_target: ClipTarget::Change,
        clip_norms: vec![ClipNorm::new(bound).unwrap(); blocks],
        scales: vec![bound * (blocks as f64).sqrt(); blocks],
        step_precision: 0.0,
        initial_precision: 0.0,
    }
}

/// A task over D columns with the model's number of parameters.
fn bare(model: ModelSpec, approximation: Approximation) -> ResolvedTask {
    let dimension = model.rules().parameters(D as u32).count();
    let mut task = task(model, approximation, dimension, UpdateSpec::Pvi {});
    task.features = D as u32;
    task.damping = vec![0.5];
    task
}

fn with(task: &ResolvedTask, spec: PropagationSpec) -> ResolvedTask {
    ResolvedTask { update: UpdateSpec::Propagation(spec), ..task.clone() }
}

fn tasks() -> Vec<ResolvedTask> {
    vec![
        bare(ModelSpec::from(logistic_regression::LogisticRegression {}), Approximation::MeanField),
        bare(ModelSpec::from(logistic_regression::LogisticRegression {}), Approximation::FullCovariance),
        bare(ModelSpec::from(probit_regression::ProbitRegression {}), Approximation::MeanField),
        bare(ModelSpec::from(gaussian_mixture::GaussianMixture { components: 2, noise_sd: 0.7, seed: 3 }), Approximation::MeanField),
        bare(ModelSpec::from(pbp_network::PbpNetwork { hidden: vec![4], seed: 5 }), Approximation::MeanField),
        bare(ModelSpec::from(gaussian_mixture::GaussianMixture { components: 2, noise_sd: 0.7, seed: 3 }), Approximation::FullCovariance),
    ]
}

/// Units of one record each.
fn single(seed: u64, count: usize) -> RawUnits {
    random_units(seed, 4 * count, D).into_iter().filter(|unit| unit.len() == 1).take(count).collect()
}

fn visit(task: &ResolvedTask, state: &[f64], kept: &SiteState, raw: &RawUnits, seed: u64) -> Output {
    let job = Job { site: None, task, visit: 0, lambda: state, state: kept };
    let units: Units<RecordTable> = Units::new(table(D, raw));
    let permit = permit_under(task.privacy.unit, task.privacy.relation, &task.visit_event(0).unwrap(), 0);
    run(&job, &units, permit, &SeededNoise::new(seed)).unwrap()
}

fn numbers(output: &Output) -> Vec<f64> {
    match output.message.released().unwrap().get() {
        Payload::Lattice(v) => v.values.iter().map(|k| *k as f64 * 2f64.powi(v.exponent)).collect(),
        Payload::Values(values) => values.clone(),
        Payload::Masked(_) => panic!("nothing is aggregated here"),
    }
}

/// The sum without its noise: the same seed adds the same noise to an empty table.
fn clean(task: &ResolvedTask, state: &[f64], kept: &SiteState, raw: &RawUnits, seed: u64) -> Vec<f64> {
    let noise = visit(task, state, kept, &Vec::new(), seed);
    let all = visit(task, state, kept, raw, seed);
    numbers(&all).iter().zip(numbers(&noise)).map(|(a, b)| a - b).collect()
}

fn rule(task: &ResolvedTask) -> PropagationRule {
    let UpdateSpec::Propagation(spec) = &task.update else { panic!("another update") };
    PropagationRule::new(&task.setting(), spec.clone())
}

fn close(a: &[f64], b: &[f64], tolerance: f64) {
    assert_eq!(a.len(), b.len());
    for (i, (x, y)) in a.iter().zip(b).enumerate() {
        assert!((x - y).abs() <= tolerance * (1.0 + y.abs()), "entry {i}: {x} instead of {y}");
    }
}

/// Without noise and with bounds that nothing reaches, two sites and a server run batch SEP, in every metric and for both targets.
#[test]
fn without_noise_and_clipping_the_federation_is_batch_sep() {
    for bare in tasks() {
        for metric in [ClipMetric::Flat, ClipMetric::FlatHalf, ClipMetric::Block, ClipMetric::Centred, ClipMetric::Whitened] {
            for target in [ClipTarget::Change, ClipTarget::Factor] {
                // Rounding to the lattice grows with the bound, and with the precisions that it is multiplied with.
                let bound = if bare.approximation == Approximation::FullCovariance { 50.0 } else { 200.0 };
                let mut spec = spec(&bare, FactorOwner::Shared, metric, bound, Some(0.01));
                spec.clip_target = target;
                let task = with(&bare, spec);
                let (rule, model) = (rule(&task), models::from_spec(&task.model).unwrap());
                let matching = model.moment_matching(task.family()).unwrap();
                let raw = single(7, 40);
                let all = table(D, &raw);
                let boxed = task.rule();
                let mut state = boxed.initial();
                for round in 0..4 {
                    let before = rule.approximation(&state);
                    let mut sep = Shared::new(matching.as_ref(), before.prior.clone(), before.lambda, 40.0);
                    sep.batch(all.records(), 0.5);
                    let (a, b) = (raw[..15].to_vec(), raw[15..].to_vec());
                    let mut sum = clean(&task, &state, &SiteState::None, &a, round);
                    super::add(&mut sum, &clean(&task, &state, &SiteState::None, &b, round + 100), 1.0);
                    let step = boxed.apply(&state, &VisitSum { visit: 0, sites: 2, sum: &sum });
                    assert_eq!(step.floored, 0);
                    state = step.state;
                    // Refining a network's prior factors moves λ and λ0 alike.
                    let after = rule.approximation(&state);
                    close(&difference(&after.lambda, &after.prior), &difference(&sep.lambda, &before.prior), 1e-4);
                }
            }
        }
    }
}

fn difference(a: &[f64], b: &[f64]) -> Vec<f64> {
    a.iter().zip(b).map(|(a, b)| a - b).collect()
}

/// A private state that a test may read and hand back.
fn reopened(pending: Pending, before: &[f64], rho: f64) -> Vec<f64> {
    let Pending::Private(change) = pending else { panic!("factors of records are private") };
    let change = assume_public(Unsealed, change).into_inner();
    if before.is_empty() {
        change.iter().map(|c| rho * c).collect()
    } else {
        before.iter().zip(&change).map(|(b, c)| b + rho * c).collect()
    }
}

fn kept(state: &[f64]) -> SiteState {
    if state.is_empty() { SiteState::None } else { SiteState::Private(Sensitive::constant(&state.to_vec()).unwrap()) }
}

/// With a factor for every record: λ = λ0 + Σ f_n in every round, and the fixed point is that of expectation propagation.
#[test]
fn without_noise_private_factors_reach_the_fixed_point_of_ep() {
    for bare in tasks().into_iter().take(3) {
        let spec = spec(&bare, FactorOwner::Record, ClipMetric::Centred, 50.0, Some(0.01));
        let task = with(&bare, spec);
        let (rule, raw, boxed) = (rule(&task), single(9, 40), task.rule());
        let (mut state, mut factors) = (boxed.initial(), Vec::new());
        for round in 0..120 {
            let sum = clean(&task, &state, &kept(&factors), &raw, round);
            let output = visit(&task, &state, &kept(&factors), &raw, round);
            factors = reopened(output.pending, &factors, 0.5);
            state = boxed.apply(&state, &VisitSum { visit: 0, sites: 1, sum: &sum }).state;
            let mut total = rule.approximation(&state).prior;
            factors.chunks_exact(state.len()).for_each(|f| super::add(&mut total, f, 1.0));
            close(&total, &state, 1e-5);
        }
        let model = models::from_spec(&task.model).unwrap();
        let matching = model.moment_matching(task.family()).unwrap();
        let mut ep = Factors::new(matching.as_ref(), &task.prior_natural(), &vec![0.0; state.len()], 40);
        let all = table(D, &raw);
        (0..300).for_each(|_| {
            let _ = ep.pass(all.records(), 0.5);
        });
        close(&state, &ep.lambda, 1e-4);
    }
}

/// A federated mixture with full covariances runs on blocks, whatever is between them in a noised sum.
#[test]
fn full_mixtures_keep_their_blocks() {
    use crate::models::gaussian_mixture::GaussianMixture;
    use dp_pvi_models::gaussian_mixture::MixtureShape;
    let bare = tasks().pop().unwrap();
    let shape = MixtureShape::of_family(2, bare.family());
    let positions = shape.positions();
    let blocks = |natural: &[f64]| positions.iter().map(|&position| natural[position]).collect::<Vec<_>>();
    let task = with(&bare, spec(&bare, FactorOwner::Shared, ClipMetric::Centred, 200.0, Some(0.01)));
    let (rule, raw) = (task.rule(), single(39, 40));
    let mut state = rule.initial();
    let mut sep = Shared::new(&GaussianMixture { shape, variance: 0.49 }, blocks(&task.prior_natural()), blocks(&state), 40.0);
    for round in 0..10 {
        sep.batch(table(D, &raw).records(), 0.5);
        let sum = clean(&task, &state, &SiteState::None, &raw, round);
        state = rule.apply(&state, &VisitSum { visit: 0, sites: 1, sum: &sum }).state;
        close(&blocks(&state), &sep.lambda, 1e-4);
    }
    // A component's coordinates are not independent.
    assert!((0..2).any(|j| shape.matrix(&blocks(&state), j)[(0, 1)].abs() > 1e-3));
    let noised = numbers(&visit(&task, &state, &SiteState::None, &raw, 1));
    let next = rule.apply(&state, &VisitSum { visit: 0, sites: 1, sum: &noised }).state;
    let between = |natural: &[f64]| (0..natural.len()).filter(|i| !positions.contains(i)).map(|i| natural[i]).collect::<Vec<_>>();
    assert!(between(&noised).iter().any(|value| *value != 0.0));
    assert!(between(&next).iter().all(|value| *value == 0.0));
}

/// T: a site that runs twice on the same data and transcript with different noise remembers the same and says the same next time.
#[test]
fn transcript_rule_no_noise_is_remembered() {
    for bare in tasks() {
        let task = with(&bare, spec(&bare, FactorOwner::Record, ClipMetric::Centred, 1.0, Some(1.0)));
        let raw = single(11, 20);
        let first = task.rule().initial();
        let run = |seed: u64| reopened(visit(&task, &first, &SiteState::None, &raw, seed).pending, &[], 0.5);
        let (a, b) = (run(1), run(2));
        assert_eq!(a, b);
        assert!(a.iter().any(|f| *f != 0.0));
        // The public state of the next round is the same for both: what is said then, too.
        let mut next = task.rule().initial();
        next.iter_mut().take(1).for_each(|h| *h += 0.1);
        assert_eq!(clean(&task, &next, &kept(&a), &raw, 3), clean(&task, &next, &kept(&b), &raw, 3));
    }
}

/// Replacing a unit moves the sum by at most 2, leaving it out by at most 1, in the coordinates of the release, whatever the unit holds.
#[test]
fn sensitivity_is_the_one_of_the_event() {
    let adversarial: Vec<Vec<(Vec<f64>, f64)>> = vec![
        vec![],
        vec![(vec![0.0; D], 1.0)],
        vec![(vec![f64::NAN; D], 1.0)],
        vec![(vec![1e300; D], 1.0)],
        vec![(vec![-1e160; D], 0.0)],
        vec![(vec![1e6; D], -1e9)],
        vec![(vec![1.0; D], f64::INFINITY)],
        vec![(vec![2.0; D], 1e12)],
        vec![(vec![30.0; D], 1.0); 5],
        vec![(vec![0.1, -4.0, 2.0], 1.0), (vec![5.0, 4.0, -2.0], 0.0)],
    ];
    for bare in tasks() {
        for factors in [FactorOwner::Shared, FactorOwner::Record] {
            for (metric, target) in [
                (ClipMetric::Flat, ClipTarget::Change),
                (ClipMetric::Centred, ClipTarget::Change),
                (ClipMetric::Whitened, ClipTarget::Change),
                (ClipMetric::Centred, ClipTarget::Factor),
            ] {
                if factors == FactorOwner::Record && target == ClipTarget::Factor {
                    continue;
                }
                let mut spec = spec(&bare, factors, metric, 0.3, Some(1.0));
                spec.clip_target = target;
                let task = with(&bare, spec);
                let state = task.rule().initial();
                let raw = single(13, 6);
                let base = clean(&task, &state, &SiteState::None, &raw, 1);
                let distance = |other: &RawUnits| {
                    let sum = clean(&task, &state, &SiteState::None, other, 1);
                    difference(&base, &sum).iter().map(|d| d * d).sum::<f64>().sqrt()
                };
                for unit in &adversarial {
                    let mut other = raw.clone();
                    other[2] = unit.clone();
                    assert!(distance(&other) <= 2.0 * (1.0 + 1e-9), "{metric:?} {target:?}");
                }
                // Left out: the unit stays as an empty one, so that no other moves.
                let mut absent = raw.clone();
                absent[2] = vec![];
                let gap = distance(&absent);
                assert!(gap > 0.0 && gap <= 1.0 + 1e-9, "{metric:?} {target:?}: {gap}");
            }
        }
    }
}

/// Noise a thousand times the signal never breaks a state.
#[test]
fn huge_noise_leaves_a_valid_state() {
    for bare in tasks() {
        let task = with(&bare, spec(&bare, FactorOwner::Shared, ClipMetric::Centred, 5.0, Some(1e4)));
        let (rule, boxed, raw) = (rule(&task), task.rule(), single(15, 20));
        let mut state = boxed.initial();
        let mut floored = 0;
        for round in 0..8 {
            let sum = numbers(&visit(&task, &state, &SiteState::None, &raw, round));
            let step = boxed.apply(&state, &VisitSum { visit: 0, sites: 1, sum: &sum });
            floored += step.floored;
            state = step.state;
            assert!(state.iter().all(|v| v.is_finite()));
            let lambda = rule.approximation(&state).lambda;
            assert!(rule.reference(&lambda).is_some());
        }
        assert!(floored > 0);
    }
}

/// Without ε: sums without noise, and passes that visit one record after the other.
#[test]
fn unprotected_runs_are_the_loops_themselves() {
    for bare in tasks() {
        let mut plain = spec(&bare, FactorOwner::Shared, ClipMetric::Flat, 1.0, None);
        (plain.clip_norms, plain.scales) = (Vec::new(), Vec::new());
        plain.order = VisitOrder::Pass;
        let task = with(&bare, plain);
        let (rule, raw) = (rule(&task), single(17, 40));
        let model = models::from_spec(&task.model).unwrap();
        let matching = model.moment_matching(task.family()).unwrap();
        let state = task.rule().initial();
        let start = rule.approximation(&state);
        let mut sep = Shared::new(matching.as_ref(), start.prior.clone(), start.lambda.clone(), 40.0);
        sep.pass(table(D, &raw).records(), 1.0);
        let sent = numbers(&visit(&task, &state, &SiteState::None, &raw, 1));
        close(&sent, &difference(&sep.lambda, &start.lambda), 1e-12);
        // Factors of their own.
        let UpdateSpec::Propagation(mut own) = task.update.clone() else { unreachable!() };
        own.factors = FactorOwner::Record;
        let task = with(&bare, own);
        let first: Vec<f64> = difference(&start.lambda, &start.prior).iter().map(|f| f / 40.0).collect();
        let mut ep = Factors::new(matching.as_ref(), &start.prior, &first, 40);
        let before = ep.lambda.clone();
        ep.pass(table(D, &raw).records(), 1.0);
        let sent = numbers(&visit(&task, &state, &SiteState::None, &raw, 1));
        close(&sent, &difference(&ep.lambda, &before), 1e-9);
    }
}

/// Filtering multiplies every record in, whatever was multiplied in before.
#[test]
fn filtering_is_the_loop_itself_and_counts_records_again() {
    for bare in tasks() {
        let mut plain = spec(&bare, FactorOwner::Shared, ClipMetric::Flat, 1.0, None);
        (plain.clip_norms, plain.scales) = (Vec::new(), Vec::new());
        plain.order = VisitOrder::Filter;
        let task = with(&bare, plain);
        let (rule, raw, boxed) = (rule(&task), single(23, 20), task.rule());
        let model = models::from_spec(&task.model).unwrap();
        let matching = model.moment_matching(task.family()).unwrap();
        let start = rule.approximation(&boxed.initial()).lambda;
        let mut filter = Adf::new(matching.as_ref(), start.clone());
        filter.pass(table(D, &raw).records());
        let sent = numbers(&visit(&task, &boxed.initial(), &SiteState::None, &raw, 1));
        close(&sent, &difference(&filter.lambda, &start), 1e-12);
        assert!(sent.iter().any(|v| v.abs() > 1e-3));
    }
}

/// Attacks three rounds of the real update from two neighbours, a canary and its opposite; what it finds must stay below what is charged, and not be nothing.
#[test]
fn an_attack_finds_no_more_than_is_charged() {
    const ROUNDS: u64 = 3;
    const RUNS: u64 = 600;
    let noise = 1.0;
    // Replace-one: factor 2.
    let claimed = Gdp::of_ratio(2.0 * (ROUNDS as f64).sqrt() / noise);
    let delta = Delta::new(1e-5).unwrap();
    let attack = |task: &ResolvedTask, canaries: [(Vec<f64>, f64); 2]| {
        let boxed = task.rule();
        let mut neighbours = canaries.into_iter().zip([0, 1 << 32]).map(|(canary, first)| {
            // A site that is replaced has no other records.
            let mut raw = single(25, if task.privacy.unit == PrivacyUnit::Site { 0 } else { 6 });
            raw.push(vec![canary]);
            let release = |run: u64| {
                let (mut state, mut factors, mut released) = (boxed.initial(), Vec::new(), Vec::new());
                for round in 0..ROUNDS {
                    let output = visit(task, &state, &kept(&factors), &raw, first + run * ROUNDS + round);
                    let sum = numbers(&output);
                    state = boxed.apply(&state, &VisitSum { visit: round as u32, sites: 1, sum: &sum }).state;
                    if matches!(output.pending, Pending::Private(_)) {
                        factors = reopened(output.pending, &factors, 0.5);
                    }
                    released.extend(sum);
                }
                released
            };
            (0..RUNS).map(release).collect::<Vec<_>>()
        });
        let (a, b) = (neighbours.next().unwrap(), neighbours.next().unwrap());
        lower_bound(&a, &b, delta, ErrorRate::new(0.01).unwrap()).unwrap()
    };
    let check = |task: &ResolvedTask, canaries: [(Vec<f64>, f64); 2]| {
        let found = attack(task, canaries);
        assert!(found.gaussian_epsilon.get() <= claimed.epsilon_upper(delta).get(), "{}: {found:?}", task.model);
        assert!(found.mu > 0.4, "the attack has no teeth at {}: {found:?}", task.model);
    };
    let probit = bare(ModelSpec::from(probit_regression::ProbitRegression {}), Approximation::MeanField);
    for factors in [FactorOwner::Shared, FactorOwner::Record] {
        let task = with(&probit, spec(&probit, factors, ClipMetric::Centred, 0.2, Some(noise)));
        check(&task, [(vec![3.0; D], 1.0), (vec![3.0; D], 0.0)]);
    }
    for factors in [FactorOwner::Shared, FactorOwner::Record] {
        let mut site = spec(&probit, factors, ClipMetric::Centred, 0.2, Some(noise));
        site.site_passes = Some(3);
        let mut task = with(&probit, site);
        task.privacy.unit = PrivacyUnit::Site;
        check(&task, [(vec![3.0; D], 1.0), (vec![3.0; D], 0.0)]);
    }
    let mixture =
        bare(ModelSpec::from(gaussian_mixture::GaussianMixture { components: 2, noise_sd: 0.7, seed: 3 }), Approximation::MeanField);
    let task = with(&mixture, spec(&mixture, FactorOwner::Shared, ClipMetric::Centred, 0.2, Some(noise)));
    check(&task, [(vec![2.0; D], 0.0), (vec![-2.0; D], 0.0)]);
    let network = bare(ModelSpec::from(pbp_network::PbpNetwork { hidden: vec![1], seed: 5 }), Approximation::MeanField);
    let task = with(&network, spec(&network, FactorOwner::Shared, ClipMetric::Centred, 0.2, Some(noise)));
    check(&task, [(vec![1.0; D], 50.0), (vec![1.0; D], -50.0)]);
    let mut em = mixture;
    em.feature_bound = 4.0;
    let scales =
        DpEmSpec { noise_multiplier: Some(NoiseMultiplier::new(noise).unwrap()), weight_scale: 1.0, mean_scale: 0.25, second_scale: 0.06 };
    em.update = UpdateSpec::DpEm(scales);
    check(&em, [(vec![2.3; D], 0.0), (vec![-2.3; D], 0.0)]);
}

/// Clipped SEP moves λ by no more than the bound a record.
#[test]
fn a_clipped_pass_moves_by_the_bound_at_most() {
    let bare = bare(ModelSpec::from(logistic_regression::LogisticRegression {}), Approximation::MeanField);
    let mut clipped = spec(&bare, FactorOwner::Shared, ClipMetric::Flat, 0.01, None);
    clipped.order = VisitOrder::Pass;
    let task = with(&bare, clipped);
    let sent = numbers(&visit(&task, &task.rule().initial(), &SiteState::None, &single(19, 40), 1));
    let norm = sent.iter().map(|v| v * v).sum::<f64>().sqrt();
    assert!(norm > 0.0 && norm <= 40.0 * 0.01 * (1.0 + 1e-12), "{norm}");
}

/// DP-EM without noise is EM.
#[test]
fn the_noiseless_m_step_is_that_of_em() {
    let mut task =
        bare(ModelSpec::from(gaussian_mixture::GaussianMixture { components: 2, noise_sd: 0.7, seed: 3 }), Approximation::MeanField);
    task.feature_bound = 4.0;
    let em =
        DpEmSpec { noise_multiplier: Some(NoiseMultiplier::new(0.01).unwrap()), weight_scale: 1.0, mean_scale: 0.25, second_scale: 0.06 };
    task.update = UpdateSpec::DpEm(em);
    let rule = EmRule::new(&task.setting(), em.scales());
    let (boxed, raw) = (task.rule(), single(21, 60));
    let mut state = boxed.initial();
    let start = rule.mixture(&state).unwrap();
    let mut expected = Mixture { ..start };
    for round in 0..5 {
        let density = expected.density().unwrap();
        let mut sum = vec![0.0; statistics_len(2, D)];
        for unit in &raw {
            add_statistics(&em.scales(), &unit[0].0, &density.score(&unit[0].0).1, &mut sum);
        }
        expected = m_step(&em.scales(), &sum, 2, D, 4.0);
        let sum = clean(&task, &state, &SiteState::None, &raw, round);
        state = boxed.apply(&state, &VisitSum { visit: round as u32, sites: 1, sum: &sum }).state;
        let found = rule.mixture(&state).unwrap();
        close(&found.weights, &expected.weights, 1e-5);
        for (a, b) in found.means.iter().zip(&expected.means) {
            close(a.as_slice(), b.as_slice(), 1e-5);
        }
        for (a, b) in found.covariances.iter().zip(&expected.covariances) {
            close(a.as_slice(), b.as_slice(), 1e-4);
        }
        // The head of the state is a distribution over the means.
        assert!(dp_pvi_math::expfam::any::Gaussian::from_natural(task.family(), task.posterior(&state).to_vec()).is_ok());
    }
}
