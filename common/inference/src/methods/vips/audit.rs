//! Empirical audit: anyone who knows all records but one, and all that was released, cannot tell whether that one was there
//! better than the stated ε allows.
//!
//! The attack is the most powerful one against Gaussian noise: after every visit the release is projected on the victim's own clipped term
//! at the public state, Σ_t ⟨R_t − Σ others, u_t⟩/σ_t². Its mean differs by Σ‖u_t‖²/σ_t² between the two neighbours, its variance is the same sum.

use dp_pvi_accounting::Relation;
use dp_pvi_posterior::methods::VisitSum;
use dp_pvi_posterior::task::{RawTask, ResolveContext, ResolvedTask};
use dp_pvi_privacy::mechanism::Term;
use dp_pvi_privacy::{SiteState, UnitTable, Units};

use super::super::{Job, run};
use super::Point;
use super::tests::{clip_of, noise_of, spec_of};
use crate::testing::{SeededNoise, permit_under};
use dp_pvi_records::RecordTable;

const RUNS: u64 = 800;
const VISITS: u32 = 3;
const EPSILON: f64 = 4.0;
const DELTA: f64 = 1e-5;

fn task(model: &str, options: &str, schema: &str) -> ResolvedTask {
    let text = format!(
        "[model]\n{model}\n[schema]\nfile = \"s\"\n[pvi]\nschedule = \"synchronous\"\nrounds = {VISITS}\nupdate = \"vips\"\n{options}\n[privacy]\n\
         unit = \"record\"\nadjacency = \"add-remove\"\nepsilon = {EPSILON:?}\ndelta = {DELTA:?}\ntrust = \"local\"\nmax_units = 1000000\n"
    );
    let context = ResolveContext { name: "audit", update_deadline_seconds: 60, min_sites: 1, expected_sites: 1 };
    RawTask::parse(&text).unwrap().resolve(schema, context).unwrap()
}

fn rows(d: usize, rows: &[(&[f64], f64)]) -> RecordTable {
    let mut builder = RecordTable::builder(d);
    for (row, target) in rows {
        builder.start_unit();
        let (indices, values): (Vec<u32>, Vec<f64>) = (0_u32..).zip(*row).filter(|(_, x)| **x != 0.0).map(|(j, &x)| (j, x)).unzip();
        builder.push(&indices, &values, *target).unwrap();
    }
    builder.finish()
}

/// Clipped terms of all units at a public state.
fn terms(task: &ResolvedTask, visit: u32, state: &[f64], data: &RecordTable) -> Vec<Vec<f64>> {
    let point = Point::new(&spec_of(task), &Job { site: None, task, visit, lambda: state, state: &SiteState::None }).unwrap();
    let length = usize::try_from(task.message(visit).unwrap().coordinates).unwrap();
    let clip = clip_of(task, visit);
    let one = |unit| {
        let mut term = Term::default();
        point.add(data.unit(unit), &mut term);
        let norm = term.entries().map(|(_, x)| x * x).sum::<f64>().sqrt();
        let factor = (clip / norm.max(1e-300)).min(1.0);
        let mut dense = vec![0.0; length];
        term.entries().for_each(|(j, x)| dense[j as usize] += factor * x);
        dense
    };
    (0..data.len()).map(one).collect()
}

/// Statistic of one run, and what its variance is.
fn attack(task: &ResolvedTask, data: &RecordTable, others: usize, victim: &RecordTable, seed: u64) -> [f64; 2] {
    let rule = task.rule();
    let mut state = rule.initial();
    let mut totals = [0.0; 2];
    for visit in 0..VISITS {
        let event = task.visit_event(visit).unwrap();
        let permit = permit_under(task.privacy.unit, Relation::AddRemove, &event, visit);
        let job = Job { site: None, task, visit, lambda: &state, state: &SiteState::None };
        let output = run(&job, &Units::new(data.clone()), permit, &SeededNoise::new(seed)).unwrap();
        let dp_pvi_names::Payload::Lattice(released) = output.message.released().unwrap().get() else { panic!("a sum") };
        let released = released.to_f64();
        let own = &terms(task, visit, &state, victim)[0];
        let known = terms(task, visit, &state, data);
        let variance = noise_of(task, visit).powi(2);
        for (j, u) in own.iter().enumerate() {
            let rest = released[j] - known.iter().take(others).map(|term| term[j]).sum::<f64>();
            totals[0] += rest * u / variance;
            totals[1] += u * u / variance;
        }
        state = rule.apply(&state, &VisitSum { visit, sites: 1, sum: &released }).state;
    }
    totals
}

/// ε of a Gaussian mechanism with this μ, at the tests' δ.
fn epsilon_of(mu: f64) -> f64 {
    let tail = |x: f64| 0.5 * libm_erfc(x);
    let delta = |epsilon: f64| tail(epsilon / mu - 0.5 * mu) - epsilon.exp() * tail(epsilon / mu + 0.5 * mu);
    let (mut low, mut high) = (0.0, 100.0);
    for _ in 0..100 {
        let middle = f64::midpoint(low, high);
        if delta(middle) > DELTA { low = middle } else { high = middle }
    }
    low
}

/// erfc(x/√2).
fn libm_erfc(x: f64) -> f64 {
    2.0 * dp_pvi_math::normal::cdf(-x)
}

#[test]
fn nobody_is_told_apart_better_than_stated() {
    let numbers = "norm_bound = 2.0\n[[columns]]\nname = \"y\"\nkind = \"boolean\"\ntrue_values = [\"1\"]\nfalse_values = [\"0\"]\n[[columns]]\nname = \"x\"\nkind = \"number\"\n\
                   lower = -5\nupper = 5\ncentre = 0\nscale = 1\n";
    let words = "kind = \"bag-of-words\"\n[bag_of_words]\nformat = \"docword\"\nwords = 4\ndocument_length = 20\n";
    let pixels = "kind = \"binary-image\"\n[binary_image]\nwidth = 2\nheight = 2\nthreshold = 127\n";
    let logistic = "family = \"logistic-regression\"\noutcome = \"y\"\napproximation = \"full-covariance\"";
    let cases = [
        // The victim's row is as long as a row may be, the posterior narrow: its weight is nearly ¼ all the time.
        (
            task(&format!("{logistic}\nprior_units = \"encoded\"\nprior_scale = 0.05"), "expansion = \"origin\"", numbers),
            rows(2, &[(&[0.5, 1.0], 1.0)]),
            rows(2, &[(&[3f64.sqrt(), 1.0], 1.0)]),
            0.8,
        ),
        // About the mean the same row is above the clip.
        (
            task(&format!("{logistic}\nprior_units = \"encoded\"\nprior_scale = 0.05"), "", numbers),
            rows(2, &[(&[0.5, 1.0], 1.0)]),
            rows(2, &[(&[3f64.sqrt(), 1.0], 1.0)]),
            0.9,
        ),
        // One word only: far above the clip.
        (
            task("family = \"latent-dirichlet\"\ntopics = 2", "clip_norm = 2.0\ndocuments = 2", words),
            rows(4, &[(&[1.0, 2.0, 1.0, 0.0], 0.0)]),
            rows(4, &[(&[0.0, 0.0, 0.0, 9.0], 0.0)]),
            0.8,
        ),
        (
            task("family = \"latent-dirichlet\"\ntopics = 2", "clip_norm = 2.0\ncounts = \"clamped\"", words),
            rows(4, &[(&[1.0, 2.0, 1.0, 0.0], 0.0)]),
            rows(4, &[(&[0.0, 0.0, 0.0, 9.0], 0.0)]),
            0.9,
        ),
        (
            task("family = \"sigmoid-belief\"\nhidden = 2", "clip_norm = 0.1\nimages = 2", pixels),
            rows(4, &[(&[1.0, 0.0, 1.0, 0.0], 0.0)]),
            rows(4, &[(&[1.0, 1.0, 1.0, 1.0], 0.0)]),
            0.9,
        ),
    ];
    for (task, others, victim, least) in cases {
        let stated = task.loss(VISITS).unwrap().epsilon.get();
        assert!(stated <= EPSILON);
        let mut builder = RecordTable::builder(task.features as usize);
        for record in others.records().chain(victim.records()) {
            builder.start_unit();
            builder.push(record.indices, record.values, record.target).unwrap();
        }
        let both = builder.finish();
        let data_set = |data: &RecordTable, offset: u64| -> Vec<f64> {
            let run = |seed| {
                let [statistic, variance] = attack(&task, data, others.len(), &victim, offset + seed);
                // Of standard deviation 1, whatever the transcript was.
                statistic / variance.sqrt()
            };
            (0..RUNS).map(run).collect()
        };
        let (with, without) = (data_set(&both, 0), data_set(&others, RUNS));
        let mean = |values: &[f64]| values.iter().sum::<f64>() / values.len() as f64;
        let spread = |values: &[f64]| values.iter().map(|x| (x - mean(values)).powi(2)).sum::<f64>() / values.len() as f64;
        let mu = mean(&with) - mean(&without);
        let error = ((spread(&with) + spread(&without)) / RUNS as f64).sqrt();
        let (lower, upper) = (epsilon_of(mu - 3.0 * error), epsilon_of(mu + 3.0 * error));
        assert!(lower <= stated, "{}: at least {lower}, stated {stated}", task.model);
        // The attack is near what the statement allows, so that a tenth less noise would show.
        assert!(upper >= least * stated, "{}: at most {upper}, stated {stated}", task.model);
    }
}
