//! The suite that every update passes with every model: whatever a `task.toml` can ask for is resolved, run and held
//! to what it says about itself. A new model or update is one more line in [`MODELS`] or [`UPDATES`], and [`SERVED`] says which pairs there are.
//!
//! | test plan | here |
//! |---|---|
//! | 16.1 factors and posterior | [`a_run_is_what_the_task_says`] |
//! | 16.3 sensitivity | [`one_unit_moves_a_sum_by_at_most_the_declared_sensitivity`] |
//! | 16.3 with the state carried on | [`super::carried`] |
//! | 16.4 transcript rule | [`what_a_site_sums_depends_on_no_earlier_noise`] |
//! | 16.5 noise | [`the_noise_has_the_declared_variance_and_rounds_are_independent`] |
//! | 16.6 sampling | [`samples_are_as_large_as_the_rate_says`] |
//! | 16.8 floors | [`whatever_arrives_the_state_stays_a_posterior`] |
//! | 16.11 federation | [`sums_of_sites_are_the_sum_of_all_records`] |
//! | 16.12 budget | [`the_stated_budget_pays_for_all_visits_and_for_no_more`] |
//!
//! Limits without noise and convergence (16.2, 16.10) need each method's own optimum and stand beside the methods.

use dp_pvi_accounting::{DiscreteGaussian, DpEvent, PrivacyUnit, Relation, Terms};
use dp_pvi_math::expfam::any::Gaussian;
use dp_pvi_names::{Hash, Payload, PayloadKind};
use dp_pvi_posterior::methods::Arrived;
use dp_pvi_posterior::task::{RawTask, ResolveContext, ResolvedTask, SiteStateForm, UpdateSpec};
use dp_pvi_privacy::ledger::memory::MemoryStore;
use dp_pvi_privacy::ledger::{Budget, LedgerError, LedgerIdentity};
use dp_pvi_privacy::mechanism::ReleaseError;
use dp_pvi_privacy::{Argument, Ledger, Pending, SiteState, Units};
use ed25519_dalek::SigningKey;

use super::{Job, Output, run};
use crate::InferenceError;
use crate::testing::{SeededNoise, permit_under, random_units, register_guests, release, table_for};
use dp_pvi_unsealed::Unsealed;

const COLUMNS: &str = r#"
[[columns]]
name = "a"
kind = "number"
lower = -1.0
upper = 1.0
centre = 0.0
scale = 1.0

[[columns]]
name = "b"
kind = "number"
lower = -1.0
upper = 1.0
centre = 0.0
scale = 1.0
"#;
const CLASS: &str = "kind = \"binary\"\npositive = [\"1\"]";
const SEVERAL: &str = "kind = \"classes\"\nvalues = [\"none\", \"late\", \"early\"]";
const NUMBER: &str = "kind = \"number\"\nlower = 0.0\nupper = 10.0\ncentre = 0.0\nscale = 1.0";
const TIME: &str = "kind = \"survival\"\ntime = { column = \"t\", lower = 0.5, upper = 10.0 }\nevent = { column = \"y\" }";
const PIXELS: &str = "kind = \"binary-image\"\n[binary_image]\nwidth = 2\nheight = 3\nthreshold = 127\n";
const WORDS: &str = "kind = \"bag-of-words\"\n[bag_of_words]\nformat = \"docword\"\nwords = 5\ndocument_length = 20\n";

/// What a model learns from.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Records {
    Classes,
    /// One of three.
    Several,
    /// One of three, without an intercept column.
    Ordered,
    Numbers,
    /// Times, those of events below 0, without an intercept column.
    Times,
    /// Above 0.
    Positive,
    /// Without an intercept column.
    Points,
    Documents,
    Images,
}

/// Name, `[model]`, records.
pub(super) const MODELS: &[(&str, &str, Records)] = &[
    ("linear", "family = \"linear-regression\"\nnoise_sd = 0.7", Records::Numbers),
    ("logistic", "family = \"logistic-regression\"", Records::Classes),
    ("logistic, full", "family = \"logistic-regression\"\napproximation = \"full-covariance\"", Records::Classes),
    ("probit", "family = \"probit-regression\"", Records::Classes),
    ("Poisson", "family = \"poisson-regression\"", Records::Numbers),
    ("negative binomial", "family = \"negative-binomial-regression\"\ndispersion = 1.5", Records::Numbers),
    ("robust", "family = \"robust-regression\"\nscale = 0.7", Records::Numbers),
    ("robust, learned", "family = \"robust-regression\"\nscale = \"learned\"", Records::Numbers),
    ("robust, learned, full", "family = \"robust-regression\"\nscale = \"learned\"\napproximation = \"full-covariance\"", Records::Numbers),
    ("multinomial", "family = \"multinomial-regression\"\nclasses = 3", Records::Several),
    ("multinomial, full", "family = \"multinomial-regression\"\nclasses = 3\napproximation = \"full-covariance\"", Records::Several),
    ("ordinal", "family = \"ordinal-regression\"\nclasses = 3", Records::Ordered),
    ("ordinal, full", "family = \"ordinal-regression\"\nclasses = 3\napproximation = \"full-covariance\"", Records::Ordered),
    ("survival", "family = \"survival-regression\"\ncuts = [0, 1, 3, 10]", Records::Times),
    ("survival, full", "family = \"survival-regression\"\ncuts = [0, 1, 3, 10]\napproximation = \"full-covariance\"", Records::Times),
    ("Weibull", "family = \"weibull-regression\"\ntime_unit = 2.0", Records::Times),
    ("Weibull, full", "family = \"weibull-regression\"\ntime_unit = 2.0\napproximation = \"full-covariance\"", Records::Times),
    ("network", "family = \"neural-network\"\nhidden = [3]\nsamples = 2", Records::Classes),
    ("network of numbers", "family = \"neural-network\"\nhidden = [3, 2]\nsamples = 1\nnoise_sd = 0.5", Records::Numbers),
    ("topics", "family = \"latent-dirichlet\"\ntopics = 2", Records::Documents),
    ("mixture", "family = \"gaussian-mixture\"\ncomponents = 2\nnoise_sd = 0.5", Records::Points),
    (
        "mixture, full",
        "family = \"gaussian-mixture\"\ncomponents = 2\nnoise_sd = 0.5\napproximation = \"full-covariance\"",
        Records::Points,
    ),
    ("moments", "family = \"pbp-network\"\nhidden = [3]", Records::Points),
    ("linear, full", "family = \"linear-regression\"\nnoise_sd = 0.7\napproximation = \"full-covariance\"", Records::Numbers),
    ("images", "family = \"sigmoid-belief\"\nhidden = 2", Records::Images),
    // Of another crate, see `testing::register_guests`.
    ("gamma", "family = \"gamma-regression\"\nshape = 2.0", Records::Positive),
];

/// Name, `[pvi]`.
pub(super) const UPDATES: &[(&str, &str)] = &[
    ("pvi", "schedule = \"sequential\"\nsweeps = 3\nupdate = \"pvi\""),
    ("pvi, asynchronous", "schedule = \"asynchronous\"\nsweeps = 3\nmax_staleness = 1\nupdate = \"pvi\""),
    ("dp", "schedule = \"sequential\"\nsweeps = 3\nupdate = \"dp-optimisation\"\nsteps = 4\nclip_norm = 1.0"),
    (
        "dp, Adam, sampled",
        "schedule = \"synchronous\"\nrounds = 3\nupdate = \"dp-optimisation\"\nsteps = 4\nclip_norm = 1.0\nsampling_rate = 0.5\noptimizer = \"adam\"",
    ),
    (
        "dp, positivity",
        "schedule = \"asynchronous\"\nsweeps = 3\nmax_staleness = 2\nupdate = \"dp-optimisation\"\nsteps = 4\nclip_norm = 1.0\noptimizer = \"positivity-preserving\"",
    ),
    (
        "dp, adaptive",
        "schedule = \"sequential\"\nsweeps = 3\nupdate = \"dp-optimisation\"\nsteps = 4\nclip_norm = 1.0\nsampling_rate = 0.5\nadaptive_clip = { units = 40 }",
    ),
    ("natural", "schedule = \"synchronous\"\nrounds = 3\nupdate = \"natural-gradient\"\nresidual_bound = 2.0\ncurvature_bound = 1.0"),
    ("bcm", "schedule = \"synchronous\"\nrounds = 1\nupdate = \"bcm\"\ncommittee_prior = \"split\"\nsteps = 4\nclip_norm = 1.0"),
    ("global", "schedule = \"synchronous\"\nrounds = 3\nupdate = \"global-vi\"\nclip_norm = 1.0"),
    ("perturbation", "schedule = \"synchronous\"\nrounds = 3\nupdate = \"parameter-perturbation\"\nclip_norm = 1.0"),
    ("averaging", "schedule = \"synchronous\"\nrounds = 3\nupdate = \"local-averaging\"\nshards = 3\nclip_norm = 1.0"),
    ("virtual", "schedule = \"synchronous\"\nrounds = 3\nupdate = \"virtual-clients\"\nshards = 3\nclip_norm = 1.0"),
    (
        "virtual, tied",
        "schedule = \"synchronous\"\nrounds = 3\nupdate = \"virtual-clients\"\nshards = 3\nclip_norm = 1.0\nstate = \"tied\"",
    ),
    ("client-level", "schedule = \"synchronous\"\nrounds = 3\nupdate = \"client-level\"\nclip_norm = 1.0"),
    ("vips", "schedule = \"synchronous\"\nrounds = 3\nupdate = \"vips\""),
    ("sep", "schedule = \"synchronous\"\nrounds = 3\nupdate = \"sep\"\nrecords = 40"),
    ("ep", "schedule = \"synchronous\"\nrounds = 3\nupdate = \"ep\"\nrecords = 40"),
    ("sep, sites", "schedule = \"synchronous\"\nrounds = 3\nupdate = \"sep\"\nsite_passes = 4"),
    ("ep, sites", "schedule = \"synchronous\"\nrounds = 3\nupdate = \"ep\"\nsite_passes = 4"),
    ("dp-em", "schedule = \"synchronous\"\nrounds = 3\nupdate = \"dp-em\""),
    ("vips, unknown noise", "schedule = \"synchronous\"\nrounds = 1\nupdate = \"vips\"\nrecords = 40"),
    (
        "vips, images",
        "schedule = \"synchronous\"\nrounds = 3\ndamping = { start = 1.0, end = 0.5 }\nupdate = \"vips\"\nimages = 40\nsampling_rate = 0.5",
    ),
    (
        "dp, balanced",
        "schedule = \"sequential\"\nsweeps = 3\nupdate = \"dp-optimisation\"\nsteps = 4\nclip_norm = 1.0\nlevel_exponent = 0.5\nweighted = true",
    ),
];

const GLM: &str = "pvi; pvi, asynchronous; dp; dp, Adam, sampled; dp, positivity; natural; bcm; global; \
                   perturbation; averaging; virtual; virtual, tied; client-level";

const PROPAGATION: &str = "sep; ep; sep, sites; ep, sites";

/// Which updates serve which model; every other pair is refused before anything runs.
pub(super) fn served(model: &str) -> String {
    match model {
        "linear" | "Poisson" | "negative binomial" | "robust" | "multinomial" | "ordinal" | "survival" | "Weibull" | "gamma" => GLM.into(),
        "multinomial, full" | "ordinal, full" | "survival, full" | "Weibull, full" => {
            "pvi; pvi, asynchronous; natural; perturbation; averaging; virtual; virtual, tied; client-level".into()
        }
        "logistic" | "probit" => format!("{GLM}; {PROPAGATION}; dp, balanced"),
        "logistic, full" => {
            let exact = "pvi; pvi, asynchronous; natural; perturbation; averaging; virtual; virtual, tied; client-level; vips";
            format!("{exact}; {PROPAGATION}")
        }
        "network" | "network of numbers" => "dp; dp, Adam, sampled; dp, positivity; dp, adaptive; bcm".into(),
        "robust, learned" | "robust, learned, full" => "pvi; pvi, asynchronous; natural".into(),
        "topics" => "vips".into(),
        "mixture" => format!("{PROPAGATION}; dp-em"),
        "mixture, full" | "moments" => PROPAGATION.into(),
        "linear, full" => {
            "pvi; pvi, asynchronous; natural; perturbation; averaging; virtual; virtual, tied; client-level; vips, unknown noise".into()
        }
        "images" => "vips, images".into(),
        other => panic!("no such model: {other}"),
    }
}

pub(super) fn schema(records: Records) -> String {
    match records {
        Records::Documents => WORDS.into(),
        Records::Images => PIXELS.into(),
        Records::Classes => format!("[label]\ncolumn = \"y\"\n{CLASS}\n{COLUMNS}"),
        Records::Several => format!("[label]\ncolumn = \"y\"\n{SEVERAL}\n{COLUMNS}"),
        Records::Ordered => format!("intercept = false\n{}", schema(Records::Several)),
        Records::Times => format!("intercept = false\n[label]\n{TIME}\n{COLUMNS}"),
        Records::Numbers => format!("[label]\ncolumn = \"y\"\n{NUMBER}\n{COLUMNS}"),
        Records::Positive => schema(Records::Numbers).replace("lower = 0.0", "lower = 0.5"),
        Records::Points => format!("intercept = false\n[label]\ncolumn = \"y\"\n{NUMBER}\n{COLUMNS}"),
    }
}

fn protects_sites(pvi: &str) -> bool {
    pvi.contains("client-level") || pvi.contains("site_passes")
}

fn resolve(model: &str, records: Records, update: &str, relation: Relation) -> Result<ResolvedTask, String> {
    register_guests();
    let relation = if relation == Relation::AddRemove { "add-remove" } else { "replace-one" };
    let unit = if protects_sites(update) { "site" } else { "record" };
    let epsilon = if update.contains("\"pvi\"") { "" } else { "epsilon = 1.0\n" };
    let text = format!(
        "[model]\n{model}\n[schema]\nfile = \"s\"\n[pvi]\n{update}\n[privacy]\nunit = \"{unit}\"\nadjacency = \"{relation}\"\n{epsilon}delta = 1e-5\ntrust = \"local\"\nmax_units = 1000000\n"
    );
    let context = ResolveContext { name: "t", update_deadline_seconds: 60, min_sites: 1, expected_sites: 3 };
    RawTask::parse(&text).map_err(|e| e.to_string())?.resolve(&schema(records), context).map_err(|e| e.to_string())
}

/// Calls `check` with the name, the task and the records of every pair that is served.
fn every(relation: Relation, mut check: impl FnMut(&str, &ResolvedTask, Records)) {
    for (model, options, records) in MODELS {
        let served = served(model);
        // Whole sites are exchanged, never absent.
        let exchanged = |pvi: &str| relation == Relation::ReplaceOne || !protects_sites(pvi);
        for (update, pvi) in UPDATES.iter().filter(|(update, pvi)| served.split("; ").any(|name| name == *update) && exchanged(pvi)) {
            let task = resolve(options, *records, pvi, relation).unwrap_or_else(|error| panic!("{update} of {model}: {error}"));
            check(&format!("{update} of {model}"), &task, *records);
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

#[test]
fn every_pair_is_served_or_refused_before_anything_runs() {
    for (model, options, records) in MODELS {
        let of = |update: &&(&str, &str)| resolve(options, *records, update.1, Relation::ReplaceOne).is_ok();
        let found: Vec<&str> = UPDATES.iter().filter(of).map(|(name, _)| *name).collect();
        assert_eq!(found.join("; "), served(model), "{model}");
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
            let step = rule.apply(&lambda, &Arrived { visit: round, sites: 1, sum: &sum });
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

/// T1.4: with the transcript given, the second visit's sum is the same whatever the first one's noise was.
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
        let second = rule.apply(&start, &Arrived { visit: 0, sites: 1, sum: &numbers(&transcript).0 }).state;
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
                task.rule().apply(&start, &Arrived { visit: 0, sites: 1, sum: &numbers(&first).0 }).state
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
    let pvi = "schedule = \"synchronous\"\nrounds = 3\nupdate = \"global-vi\"\nclip_norm = 1.0";
    let of = |extra: &str| resolve(MODELS[1].1, Records::Classes, &format!("{pvi}{extra}"), Relation::ReplaceOne).unwrap();
    let (whole, sampled) = (of(""), of("\nsampling_rate = 0.25"));
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

/// T16.8: sums as large, as small and as broken as they come never leave the state without a posterior.
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
                next = rule.apply(&state, &Arrived { visit: round, sites: 3, sum: &sum }).state;
                assert_eq!(next.len(), state.len(), "{name}");
                assert!(next.iter().all(|value| value.is_finite()), "{name}, visit {round}, {scale:e} {broken:?}");
                assert!(Gaussian::from_natural(task.family(), task.posterior(&next).to_vec()).is_ok(), "{name}, visit {round}, {scale:e}");
            }
            state = next;
        }
    });
}

/// T16.11: integers are added exactly, so sites and one machine with all their records sum to the same bits.
#[test]
fn sums_of_sites_are_the_sum_of_all_records() {
    let mut compared = 0;
    every(Relation::ReplaceOne, |name, task, records| {
        let event = task.visit_event(0).unwrap();
        let Some(noise) = single(&event).filter(|noise| noise.terms == Terms::Units && noise.excess == 0) else { return };
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

/// T16.12: a ledger with exactly the stated budget pays for every visit, and refuses one more.
#[test]
fn the_stated_budget_pays_for_all_visits_and_for_no_more() {
    every(Relation::ReplaceOne, |name, task, _| {
        let Some(epsilon) = task.privacy.epsilon else {
            assert!(matches!(task.update, UpdateSpec::Pvi {}), "{name}");
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

/// The tables above are complete: what the registries hold runs here.
#[test]
fn every_registered_model_and_method_has_a_row() {
    let named = |text: &str, name: &str| text.contains(&format!("= \"{name}\""));
    for (name, _) in dp_pvi_models::registered() {
        assert!(MODELS.iter().any(|(_, options, _)| named(options, name)), "no row for model {name}");
    }
    for (name, _) in dp_pvi_posterior::methods::registered() {
        assert!(UPDATES.iter().any(|(_, options)| named(options, name)), "no row for method {name}");
    }
}
