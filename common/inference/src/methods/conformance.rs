//! The suite that every update passes with every model: whatever a `task.toml` can ask for is resolved, run and held
//! to what it says about itself. Models, updates and pairs are those of the [catalogue](dp_pvi_catalogue).
//!
//! | what holds | test |
//! |---|---|
//! | factors and posterior | [`a_run_is_what_the_task_says`] |
//! | sensitivity | [`one_unit_moves_a_sum_by_at_most_the_declared_sensitivity`] |
//! | with the state carried on | [`super::carried`] |
//! | transcript rule | [`what_a_site_sums_depends_on_no_earlier_noise`] |
//! | noise | [`the_noise_has_the_declared_variance_and_rounds_are_independent`] |
//! | sampling | [`samples_are_as_large_as_the_rate_says`] |
//! | floors | [`whatever_arrives_the_state_stays_a_posterior`] |
//! | federation | [`sums_of_sites_are_the_sum_of_all_records`] |
//! | budget | [`the_stated_budget_pays_for_all_visits_and_for_no_more`] |
//!
//! Limits without noise and convergence need each method's own optimum and are beside the methods.

use dp_pvi_accounting::{DiscreteGaussian, DpEvent, PrivacyUnit, Relation, SamplingRate, Terms as NoiseTerms};
pub(super) use dp_pvi_catalogue::Records;
use dp_pvi_catalogue::{Audit, GLM, MODELS, Model, Named, Terms, UPDATES, Update, update};
use dp_pvi_math::expfam::any::Gaussian;
use dp_pvi_names::{Hash, Payload, PayloadKind};
use dp_pvi_posterior::methods::VisitSum;
use dp_pvi_posterior::task::{GlobalViSpec, ResolvedTask, SiteStateForm, UpdateSpec};
use dp_pvi_privacy::ledger::memory::MemoryStore;
use dp_pvi_privacy::ledger::{Budget, LedgerError, LedgerIdentity};
use dp_pvi_privacy::mechanism::ReleaseError;
use dp_pvi_privacy::{Argument, Ledger, Pending, SiteState, Units};
use ed25519_dalek::SigningKey;

use super::{Job, Output, run};
use crate::InferenceError;
use crate::testing::{SeededNoise, permit_under, random_units, register_guests, release, table_for};
use dp_pvi_unsealed::Unsealed;

/// Of another crate, see `testing::register_guests`.
static GAMMA: Model = Model { name: "gamma-regression", text: "shape = 2.0", records: Records::Positive, served: &[GLM], audited: false };

/// Every model, the guest included.
pub(super) fn models() -> impl Iterator<Item = &'static Model> {
    MODELS.iter().chain([&GAMMA])
}

/// The model of this name, that of the guest included.
pub(super) fn model(name: &str) -> &'static Model {
    models().find(|model| model.name == name).unwrap()
}

/// The entries that run here: what the audit plays, of records and of sites, and all of `pvi`, which claims nothing. Of persons [`super::carried`] has rows of its own.
pub(super) fn updates() -> impl Iterator<Item = &'static Update> {
    UPDATES.iter().filter(|update| (update.audit == Audit::Every || update.kind() == "pvi") && update.unit != PrivacyUnit::Person)
}

fn resolve(model: &Model, update: &Update, relation: Relation) -> Result<ResolvedTask, String> {
    register_guests();
    let terms = Terms { head: "", relation, aggregation: None, max_units: 1_000_000, units: 40, epsilon: 1.0 };
    dp_pvi_catalogue::resolve(model, update, &terms)
}

/// Calls `check` with the name, the task and the records of every pair that is served.
fn every(relation: Relation, mut check: impl FnMut(&str, &ResolvedTask, Records)) {
    for model in models() {
        // Whole sites are exchanged, never absent.
        let exchanged = |update: &Update| relation == Relation::ReplaceOne || update.unit != PrivacyUnit::Site;
        for update in updates().filter(|update| model.is_served_by(update.name) && exchanged(update)) {
            let name = format!("{} of {}", update.name, model.name);
            let task = resolve(model, update, relation).unwrap_or_else(|error| panic!("{name}: {error}"));
            check(&name, &task, model.records);
        }
    }
}

pub(super) type RawUnits = Vec<Vec<(Vec<f64>, f64)>>;

/// Random units; the first is never empty.
pub(super) fn units(task: &ResolvedTask, records: Records, seed: u64, count: usize) -> RawUnits {
    let mut raw = random_units(seed, count, task.features as usize);
    for (row, target) in raw.iter_mut().flatten() {
        match records {
            Records::Documents => row.iter_mut().for_each(|x| *x = (3.0 * x.abs()).ceil()),
            Records::Images => row.iter_mut().for_each(|x| *x = f64::from(u8::from(*x > 0.0))),
            Records::Positive => *target = 0.5 + 4.0 * (row[0] + 2.0),
            Records::Numbers => *target = (4.0 * (row[0] + 2.0)).floor().clamp(0.0, 10.0),
            Records::Times => *target = (2.5 * (row[0] + 2.2)).clamp(0.5, 10.0) * if *target > 0.5 { -1.0 } else { 1.0 },
            Records::Several | Records::Ordered => *target = (1.5 * (row[0] + 1.0)).floor().clamp(0.0, 2.0),
            Records::Classes | Records::Points => {}
        }
        row.iter_mut().for_each(|x| {
            if !matches!(records, Records::Documents | Records::Images) {
                *x *= 0.5
            }
        });
    }
    raw
}

/// Units of which no schema lets any pass.
pub(super) fn intruders(features: usize) -> RawUnits {
    let row = |x: f64, y: f64| vec![(vec![x; features], y)];
    vec![
        vec![],
        row(0.0, 1.0),
        row(f64::NAN, 1.0),
        row(1e300, 0.0),
        row(-1e6, 1.0),
        row(1.0, f64::INFINITY),
        row(1.0, 1e12),
        vec![(vec![1.0; features], 1.0); 30],
    ]
}

#[derive(Clone, Copy)]
struct At<'a> {
    task: &'a ResolvedTask,
    visit: u32,
    lambda: &'a [f64],
    state: &'a SiteState,
}

fn try_visit(at: At<'_>, raw: &RawUnits, noise: SeededNoise, event: &DpEvent) -> Result<Output, InferenceError> {
    let At { task, visit, lambda, state } = at;
    let permit = permit_under(task.privacy.unit, task.privacy.relation, event, visit);
    run(&Job { site: None, task, visit, lambda, state }, &Units::new(table_for(task, raw)), permit, &noise)
}

fn visit(at: At<'_>, raw: &RawUnits, noise: SeededNoise) -> Output {
    try_visit(at, raw, noise, &at.task.visit_event(at.visit).unwrap()).unwrap()
}

/// The payload in the unit of the model, and in steps of the lattice where it has one.
fn numbers(output: &Output) -> (Vec<f64>, Option<Vec<i64>>) {
    match output.message.released().unwrap().get() {
        Payload::Lattice(sum) => (sum.to_f64(), Some(sum.values.clone())),
        Payload::Values(values) => (values.clone(), None),
        Payload::Masked(_) => panic!("nothing is aggregated here"),
    }
}

/// The one lattice release of a visit, if that is what a visit is.
fn single(event: &DpEvent) -> Option<DiscreteGaussian> {
    match event {
        DpEvent::DiscreteGaussian(noise) => Some(*noise),
        DpEvent::PoissonSampled { event, .. } => single(event),
        _ => None,
    }
}

/// State after one included update.
fn carried(pending: Pending, rho: f64) -> SiteState {
    let scaled = move |change: &Vec<f64>| change.iter().map(|c| rho * c).collect::<Vec<_>>();
    match pending {
        Pending::None => SiteState::None,
        Pending::Public(change) => SiteState::Public(scaled(change.get())),
        Pending::Private(change) => {
            let rho = Argument::copy_of(&rho).unwrap();
            SiteState::Private(change.map(&rho, |rho, change| change.iter().map(|c| rho * c).collect()))
        }
    }
}

/// What a site sends and keeps has the declared form, at every visit; the same seeds give the same bits; a permit for another event releases
/// nothing; and where the factor is public, λ moves by what the factor moves, and by the floor's correction.
#[test]
fn a_run_is_what_the_task_says() {
    every(Relation::ReplaceOne, |name, task, records| {
        assert_eq!(ResolvedTask::from_bytes(&task.to_bytes()).unwrap(), *task, "{name}");
        let (rule, raw) = (task.rule(), units(task, records, 3, 24));
        let mut lambda = rule.initial();
        assert_eq!(task.state_len(), lambda.len() as u64, "{name}");
        let mut factor: Option<Vec<f64>> = None;
        let mut state = SiteState::None;
        for round in 0..task.visits() {
            let at = At { task, visit: round, lambda: &lambda, state: &state };
            let event = task.visit_event(round).unwrap();
            for wrong in [event.clone().repeated(2), DpEvent::NonPrivate] {
                if wrong != event {
                    let refused = try_visit(at, &raw, SeededNoise::new(1), &wrong);
                    assert!(matches!(refused, Err(InferenceError::Release(ReleaseError::PermitMismatch))), "{name}: {refused:?}");
                }
            }
            let output = visit(at, &raw, SeededNoise::new(1));
            let (sum, lattice) = numbers(&output);
            assert_eq!(sum, numbers(&visit(at, &raw, SeededNoise::new(1))).0, "{name}");
            assert_eq!(sum == numbers(&visit(at, &raw, SeededNoise::new(2))).0, !task.update.is_private(), "{name}");
            let form = task.message(round).unwrap();
            assert_eq!((form.coordinates, lattice.is_some()), (sum.len() as u64, form.kind != PayloadKind::Values), "{name}");
            let step = rule.apply(&lambda, &VisitSum { visit: round, sites: 1, sum: &sum });
            let rho = task.damping[round as usize];
            match (task.site_state(), &output.pending) {
                (SiteStateForm::None, Pending::None) | (SiteStateForm::Private(_), Pending::Private(_)) => {}
                (SiteStateForm::Public(len), Pending::Public(change)) => {
                    let change = change.get();
                    assert_eq!(change.len(), len, "{name}");
                    let correction = step.correction.clone().unwrap_or_else(|| vec![0.0; len]);
                    for j in 0..len {
                        let (moved, expected) = (step.state[j] - lambda[j], rho * change[j] + correction[j]);
                        let size = 1.0 + lambda[j].abs() + (rho * change[j]).abs() + correction[j].abs();
                        assert!((moved - expected).abs() <= 1e-9 * size, "{name}, visit {round}, {j}: {moved} {expected}");
                    }
                    let kept = factor.get_or_insert_with(|| vec![0.0; len]);
                    kept.iter_mut().zip(change).for_each(|(kept, change)| *kept += rho * change);
                }
                (form, pending) => panic!("{name}: {form:?} {pending:?}"),
            }
            state = factor.clone().map_or_else(|| carried(output.pending, rho), SiteState::Public);
            lambda = step.state;
            assert!(Gaussian::from_natural(task.family(), task.posterior(&lambda).to_vec()).is_ok(), "{name}");
        }
    });
}

/// With the transcript given, the second visit's sum is the same whatever the first one's noise was.
#[test]
fn what_a_site_sums_depends_on_no_earlier_noise() {
    let mut private = 0;
    every(Relation::ReplaceOne, |name, task, records| {
        if task.visits() < 2 {
            return;
        }
        let (rule, raw) = (task.rule(), units(task, records, 4, 24));
        let start = rule.initial();
        let first =
            |seed: u64| visit(At { task, visit: 0, lambda: &start, state: &SiteState::None }, &raw, SeededNoise { noise: seed, coins: 1 });
        // The transcript is that of seed 1: λ, and every public state.
        let transcript = first(1);
        let second = rule.apply(&start, &VisitSum { visit: 0, sites: 1, sum: &numbers(&transcript).0 }).state;
        let rho = task.damping[0];
        let replay = |seed: u64| {
            let state = match (first(seed).pending, &transcript.pending) {
                (Pending::Public(_), Pending::Public(released)) => carried(Pending::Public(released.clone()), rho),
                (own, _) => carried(own, rho),
            };
            numbers(&visit(At { task, visit: 1, lambda: &second, state: &state }, &raw, SeededNoise::new(77))).0
        };
        private += u32::from(matches!(transcript.pending, Pending::Private(_)));
        let reference = replay(1);
        assert!((2..5).all(|seed| replay(seed) == reference), "{name}");
    });
    assert!(private >= 10, "{private} updates keep a private state");
}

/// Updates that release one sum a visit; sums inside a visit are looked at in the tests of DP optimisation.
#[test]
fn one_unit_moves_a_sum_by_at_most_the_declared_sensitivity() {
    for relation in [Relation::ReplaceOne, Relation::AddRemove] {
        let mut largest = 0.0f64;
        every(relation, |name, task, records| {
            let start = task.rule().initial();
            let base = units(task, records, 5, 12);
            // λ away from the start, so that cavities are no priors.
            let moved = {
                let first = visit(At { task, visit: 0, lambda: &start, state: &SiteState::None }, &base, SeededNoise::new(6));
                task.rule().apply(&start, &VisitSum { visit: 0, sites: 1, sum: &numbers(&first).0 }).state
            };
            for (round, lambda) in [(0, &start), (1, &moved)] {
                let Some(noise) = (round < task.visits()).then(|| task.visit_event(round).unwrap()).as_ref().and_then(single) else {
                    continue;
                };
                let sum = |raw: &RawUnits| {
                    numbers(&visit(At { task, visit: round, lambda, state: &SiteState::None }, raw, SeededNoise::new(9))).1.unwrap()
                };
                let factor = relation.sensitivity_factor(noise.terms);
                let limit = factor * (noise.bound_squared as f64).sqrt() + noise.excess as f64;
                let before = sum(&base);
                let pool: RawUnits = intruders(task.features as usize).into_iter().chain(units(task, records, 8, 3)).collect();
                for other in pool {
                    let mut raw = base.clone();
                    match relation {
                        Relation::ReplaceOne => raw[5] = other,
                        Relation::AddRemove => raw.push(other),
                    }
                    let after = sum(&raw);
                    let distance = before.iter().zip(&after).map(|(a, b)| (a.abs_diff(*b) as f64).powi(2)).sum::<f64>().sqrt();
                    assert!(distance <= limit * (1.0 + 1e-12), "{name}, visit {round}: {distance} {limit}");
                    largest = largest.max(distance / limit);
                }
            }
        });
        // The bound is nearly reached, so the test can fail.
        assert!(largest > 0.7, "{largest}");
    }
}

/// Differences between seeds have twice the declared variance, in every coordinate together, and do not follow from visit to visit.
#[test]
fn the_noise_has_the_declared_variance_and_rounds_are_independent() {
    const PAIRS: u64 = 60;
    every(Relation::ReplaceOne, |name, task, records| {
        let (start, raw) = (task.rule().initial(), units(task, records, 5, 2));
        let Some(noise) = single(&task.visit_event(0).unwrap()) else { return };
        // Coins are fixed: only the noise differs.
        let sum = |round: u32, seed: u64| {
            let at = At { task, visit: round, lambda: &start, state: &SiteState::None };
            numbers(&visit(at, &raw, SeededNoise { noise: seed, coins: 1 })).1.unwrap()
        };
        let differences = |round: u32| -> Vec<f64> {
            let pair = |pair: u64| {
                let (a, b) = (sum(round, 2 * pair), sum(round, 2 * pair + 1));
                a.iter().zip(&b).map(|(a, b)| (a - b) as f64 / (2f64.sqrt() * noise.scale as f64)).collect::<Vec<_>>()
            };
            (0..PAIRS).flat_map(pair).collect()
        };
        let first = differences(0);
        let count = first.len() as f64;
        let (mean, square) = (first.iter().sum::<f64>() / count, first.iter().map(|x| x * x).sum::<f64>() / count);
        assert!(mean.abs() < 5.0 / count.sqrt(), "{name}: mean {mean}");
        assert!((square - 1.0).abs() < 5.0 * (2.0 / count).sqrt(), "{name}: variance {square}");
        // The same seeds in the next visit: other noise.
        if task.visits() > 1 && task.message(1).unwrap() == task.message(0).unwrap() {
            let second = differences(1);
            let correlation = first.iter().zip(&second).map(|(a, b)| a * b).sum::<f64>() / count;
            assert!(correlation.abs() < 5.0 / count.sqrt(), "{name}: correlation {correlation}");
        }
    });
}

/// The coins of a visit: with many like units, a sampled sum is the rate's share of the whole one.
#[test]
fn samples_are_as_large_as_the_rate_says() {
    let whole = resolve(model("logistic-regression"), update("global-vi"), Relation::ReplaceOne).unwrap();
    let UpdateSpec::GlobalVi(spec) = whole.update else { panic!("another update") };
    let rate = GlobalViSpec { sampling_rate: SamplingRate::nearest(0.25).unwrap(), ..spec };
    let sampled = ResolvedTask { update: UpdateSpec::GlobalVi(rate), ..whole.clone() };
    let like = vec![vec![(vec![0.5, -0.5, 1.0], 1.0)]; 4000];
    let silent = vec![vec![]; 4000];
    let sum = |task: &ResolvedTask, round: u32, raw: &RawUnits| {
        let start = task.rule().initial();
        let at = At { task, visit: round, lambda: &start, state: &SiteState::None };
        numbers(&visit(at, raw, SeededNoise::new(3))).0
    };
    let clean = |task: &ResolvedTask, round: u32| sum(task, round, &like)[0] - sum(task, round, &silent)[0];
    let shares: Vec<f64> = (0..3).map(|round| clean(&sampled, round) / clean(&whole, round)).collect();
    // Binomial(4000, ¼)/4000 has standard deviation 0.0068.
    assert!(shares.iter().all(|share| (share - 0.25).abs() < 5.0 * 0.0068), "{shares:?}");
    assert!(shares[0] != shares[1] && shares[1] != shares[2], "{shares:?}");
}

/// Sums as large, as small and as broken as they come never leave the state without a posterior.
#[test]
fn whatever_arrives_the_state_stays_a_posterior() {
    every(Relation::ReplaceOne, |name, task, _| {
        let rule = task.rule();
        let mut state = rule.initial();
        for round in 0..task.visits() {
            let coordinates = usize::try_from(task.message(round).unwrap().coordinates).unwrap();
            let mut next = state.clone();
            for (scale, broken) in [(1e4, None), (1e12, None), (1e150, None), (1.0, Some(f64::NAN)), (1.0, Some(f64::NEG_INFINITY))] {
                let mut sum: Vec<f64> = (0..coordinates).map(|j| scale * (1.3 * j as f64 + f64::from(round)).sin()).collect();
                if let (Some(value), Some(first)) = (broken, sum.first_mut()) {
                    *first = value;
                }
                next = rule.apply(&state, &VisitSum { visit: round, sites: 3, sum: &sum }).state;
                assert_eq!(next.len(), state.len(), "{name}");
                assert!(next.iter().all(|value| value.is_finite()), "{name}, visit {round}, {scale:e} {broken:?}");
                assert!(Gaussian::from_natural(task.family(), task.posterior(&next).to_vec()).is_ok(), "{name}, visit {round}, {scale:e}");
            }
            state = next;
        }
    });
}

/// Integers are added exactly, so sites and one machine with all their records sum to the same bits.
#[test]
fn sums_of_sites_are_the_sum_of_all_records() {
    let mut compared = 0;
    every(Relation::ReplaceOne, |name, task, records| {
        let event = task.visit_event(0).unwrap();
        let Some(noise) = single(&event).filter(|noise| noise.terms == NoiseTerms::Units && noise.excess == 0) else { return };
        if task.privacy.unit == PrivacyUnit::Site || matches!(event, DpEvent::PoissonSampled { .. }) {
            return;
        }
        let (start, raw) = (task.rule().initial(), units(task, records, 5, 30));
        let sum = |raw: &[Vec<(Vec<f64>, f64)>]| {
            let at = At { task, visit: 0, lambda: &start, state: &SiteState::None };
            let of = |raw: &RawUnits| numbers(&visit(at, raw, SeededNoise::new(9))).1.unwrap();
            let silent = of(&vec![vec![]; raw.len()]);
            of(&raw.to_vec()).iter().zip(silent).map(|(a, b)| a - b).collect::<Vec<i64>>()
        };
        let parts = [&raw[..7], &raw[7..19], &raw[19..]].map(sum);
        let total: Vec<i64> = (0..noise.dimension as usize).map(|j| parts.iter().map(|part| part[j]).sum()).collect();
        assert_eq!(total, sum(&raw), "{name}");
        compared += 1;
    });
    assert!(compared >= 8, "{compared}");
}

/// A ledger with exactly the stated budget pays for every visit, and refuses one more.
#[test]
fn the_stated_budget_pays_for_all_visits_and_for_no_more() {
    every(Relation::ReplaceOne, |name, task, _| {
        let Some(epsilon) = task.privacy.epsilon else {
            assert!(!task.update.is_private(), "{name}");
            return;
        };
        assert!(task.loss(task.visits()).unwrap().epsilon <= epsilon, "{name}");
        let identity = LedgerIdentity { data: "t".into(), unit: task.privacy.unit, relation: task.privacy.relation };
        let budget = Budget { epsilon, delta: task.privacy.delta, per_run: None, max_fallback: None, allow_non_private: false };
        let mut ledger = Ledger::open(MemoryStore::new(Unsealed), SigningKey::from_bytes(&[7; 32]), identity, budget).unwrap();
        ledger.plan_run(&release(0).run, &task.visit_events(0..task.visits()).unwrap(), None).unwrap_or_else(|e| panic!("{name}: {e}"));
        for round in 0..task.visits() {
            ledger.reserve(&release(round), &task.visit_event(round).unwrap(), Hash::default()).unwrap_or_else(|e| panic!("{name}: {e}"));
        }
        let last = task.visit_event(task.visits() - 1).unwrap();
        let refused = ledger.reserve(&release(task.visits()), &last, Hash::default());
        assert!(matches!(refused, Err(LedgerError::OverBudget { .. })), "{name}");
    });
}
