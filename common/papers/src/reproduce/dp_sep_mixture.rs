//! `dp-pvi-papers reproduce dp-sep-table1|dp-sep-figure1`: a mixture of four Gaussians in four dimensions with known variance, 1,000 points.
//!
//! The reference is a long Gibbs sampler of our own (the paper's is a Hamiltonian one), components are paired by a minimum-cost assignment, and every
//! private run goes through the production update at an accounted ε (full batch, add-remove).
//!
//! # Measured
//! One full run, seed 1, 5 data sets, 25 s of processor time. F-norm of means: EP 0.009, SEP 0.011; DP-SEP 0.98 at ε = 1 (standard
//! deviation 1.57: one data set far off), 0.071 at 5, 0.048 at 50; DP-EM 7.2, 5.0, 3.6. The printed step covers 9.1 % of the way to SEP's fixed point in 100 passes.

use std::fmt::Write as _;

use dp_pvi_inference::methods::propagation::{Factors, Shared};
use dp_pvi_inference::models::gaussian_mixture::GaussianMixture;
use dp_pvi_inference::records::RecordTable;
use dp_pvi_models::gaussian_mixture::matching::Distance;
use dp_pvi_models::gaussian_mixture::{Components, Covariance, MixtureShape};
use dp_pvi_posterior::methods::EmRule;
use dp_pvi_posterior::task::{ResolvedTask, UpdateSpec};
use nalgebra::{DMatrix, DVector};
use rand::{Rng, RngExt as _};
use rand_distr::StandardNormal;

use super::dp_sep::{mean_and_deviation, resolve, rounds, schema, wrong};
use super::vips::{Line, Progress, Run, chart};
use super::{Options, ReproduceError};
use dp_pvi_simulation::noise::stream;

const POINTS: usize = 1000;
const COMPONENTS: usize = 4;
const DIMENSION: usize = 4;
const NOISE_SD: f64 = 0.5;
/// Public bound on a row: 4 standard deviations of N(0, (1 + σ²)I) in 4 dimensions hold all but a few rows, which are drawn in to it.
const BOUND: f64 = 5.0;
const RUNS: u64 = 5;
const EPSILONS: [f64; 3] = [1.0, 5.0, 50.0];
const CLIPS: [f64; 3] = [20.0, 10.0, 1.0];

/// Method, F-norm on means and on covariances in the paper's Table 1.
const PAPER: [(&str, f64, f64); 10] = [
    ("SEP", 0.0020, 0.0004),
    ("SEP clipped C=20", 0.0263, 0.0004),
    ("SEP clipped C=10", 1.4950, 0.0005),
    ("SEP clipped C=1", 2.2065, 0.0459),
    ("DP-EM epsilon=50", 5.3769, 1.3189),
    ("DP-EM epsilon=5", 10.4548, 3.7573),
    ("DP-EM epsilon=1", 7.5166, 57.8665),
    ("DP-SEP epsilon=50", 2.2411, 0.0358),
    ("DP-SEP epsilon=5", 12.1623, 1.0655),
    ("DP-SEP epsilon=1", 82.9746, 5.0777),
];

/// Runs the reproduction and writes `dp-sep-table1.{csv,svg,md}`, or the same under the figure's name.
pub(super) fn run(options: &Options<'_>, name: &'static str) -> Result<(), ReproduceError> {
    let runs = if options.quick { 1 } else { RUNS };
    let bar = Progress::new(options, runs * 12).bar();
    // (method, ε) → F-norms of means and covariances, and KL, of every run.
    let mut results: Vec<(String, Option<f64>, Vec<[f64; 3]>)> = Vec::new();
    let mut record = |method: String, epsilon: Option<f64>, distance: Option<Distance>| {
        let entry = distance.map_or([f64::NAN; 3], |d| [d.mean, d.covariance, d.kl]);
        match results.iter_mut().find(|(m, ..)| *m == method) {
            Some((_, _, values)) => values.push(entry),
            None => results.push((method, epsilon, vec![entry])),
        }
    };
    for run in 0..runs {
        let seed = options.seed.wrapping_add(run);
        let points = points(seed);
        let table = table(&points)?;
        let truth = gibbs(&points, seed, if options.quick { 500 } else { 5000 });
        let shape = MixtureShape { components: COMPONENTS, dimension: DIMENSION, covariance: Covariance::Full };
        for (method, epsilon) in [("EP", None), ("SEP", None)] {
            let lambda = free(shape, &points, &table, seed, method, None);
            let distance = Components::from_natural(shape, &lambda).ok().and_then(|c| Distance::between(&truth, &c));
            record(method.into(), epsilon, distance);
            bar.inc(1);
        }
        for clip in CLIPS {
            let lambda = free(shape, &points, &table, seed, "SEP", Some(clip));
            let distance = Components::from_natural(shape, &lambda).ok().and_then(|c| Distance::between(&truth, &c));
            record(format!("SEP clipped C={clip}"), None, distance);
            bar.inc(1);
        }
        for epsilon in EPSILONS {
            let task = task(&sep_options(), epsilon, seed)?;
            let state = rounds(&task, table.clone(), seed)?;
            let diagonal = MixtureShape { covariance: Covariance::Diagonal, ..shape };
            let found = Components::from_natural(diagonal, task.posterior(&state)).map_err(wrong)?;
            record(format!("DP-SEP epsilon={epsilon}"), Some(epsilon), Distance::between(&truth, &found));
            bar.inc(1);
            let task = task_em(epsilon, seed)?;
            let state = rounds(&task, table.clone(), seed)?;
            record(format!("DP-EM epsilon={epsilon}"), Some(epsilon), em_distance(&task, &state, &truth)?);
            bar.inc(1);
        }
    }
    let curve = step_curve(options.seed, if options.quick { 5 } else { 100 })?;
    bar.finish_and_clear();
    let (mut lines, mut report) = (Vec::new(), heading(name));
    for (method, epsilon, values) in &results {
        let column = |i: usize| mean_and_deviation(&values.iter().map(|v| v[i]).collect::<Vec<_>>());
        let (mean, covariance, kl) = (column(0), column(1), column(2));
        let paper = PAPER.iter().find(|(m, ..)| m == method).map_or_else(String::new, |(_, m, c)| format!("{m} / {c}"));
        let _ = writeln!(report, "| {method} | {:.4} ± {:.4} | {:.5} | {:.3} | {paper} |", mean.0, mean.1, covariance.0, kl.0);
        for (metric, value) in
            [("f-norm mean", mean.0), ("f-norm mean deviation", mean.1), ("f-norm covariance", covariance.0), ("kl", kl.0)]
        {
            lines.push(Line { method: method.clone(), epsilon: *epsilon, metric, value });
        }
    }
    report.push_str(&curve_table(&curve));
    lines.extend(curve.iter().map(|point| Line {
        method: format!("SEP step {} after {} passes", point.step, point.passes),
        epsilon: None,
        metric: "share of the distance left",
        value: point.left,
    }));
    let drawn: Vec<Line> = curve
        .iter()
        .map(|point| Line {
            method: format!("step {}", point.step),
            epsilon: Some(f64::from(point.passes)),
            metric: "left",
            value: point.left,
        })
        .collect();
    let file = options.output.join(format!("{name}-steps.svg"));
    chart(&file, "What a step of SEP covers", "passes", "share of the distance left", &drawn, "left")?;
    // One curve for each private method, level lines for what protects nothing.
    let curves: Vec<Line> = lines
        .iter()
        .filter(|line| line.metric == "f-norm mean" && (line.epsilon.is_some() || line.method == "SEP"))
        .map(|line| Line {
            method: line.method.split(" epsilon").next().unwrap_or(&line.method).to_owned(),
            epsilon: line.epsilon,
            metric: "log10 f-norm mean",
            value: line.value.log10(),
        })
        .collect();
    let sorted =
        |name: &str| curves.iter().filter(|l| l.method == name).map(|l| Line { method: l.method.clone(), ..*l }).collect::<Vec<_>>();
    let curves: Vec<Line> = ["SEP", "DP-SEP", "DP-EM"].into_iter().flat_map(sorted).collect();
    let file = options.output.join(format!("{name}.svg"));
    chart(&file, "Distance of posterior means from the reference", "epsilon", "log10 F-norm", &curves, "log10 f-norm mean")?;
    Run { name, lines, report }.write(options)
}

fn heading(name: &str) -> String {
    format!(
        "# {name}: mixture of Gaussians\n\n{POINTS} points, {COMPONENTS} components, {DIMENSION} dimensions, sd {NOISE_SD}, prior N(0, I) on every mean; mean over \
         data sets. Reference: Gibbs sampling, started by the best of ten runs of k-means; components paired by a minimum-cost assignment. Private runs: delta = 1e-5, add-remove, \
         full batch, rows of norm at most {BOUND}; the paper's epsilon was counted for a permutation pass as if it were subsampling. F-norms are over all \
         components together.\n\n| method | F-norm of means | F-norm of covariances | mean KL | paper: means / covariances |\n|---|---|---|---|---|\n"
    )
}

/// Means from N(0, I), points around them, drawn in to the public bound.
fn points(seed: u64) -> Vec<[f64; DIMENSION]> {
    let mut coins = stream(seed, "dp-sep mixture", 0);
    let means: Vec<[f64; DIMENSION]> = (0..COMPONENTS).map(|_| std::array::from_fn(|_| coins.sample::<f64, _>(StandardNormal))).collect();
    (0..POINTS)
        .map(|_| {
            let mean = means[coins.random_range(0..COMPONENTS)];
            let x: [f64; DIMENSION] = std::array::from_fn(|i| mean[i] + NOISE_SD * coins.sample::<f64, _>(StandardNormal));
            let norm = x.iter().map(|v| v * v).sum::<f64>().sqrt();
            if norm > BOUND { x.map(|v| v * BOUND / norm) } else { x }
        })
        .collect()
}

fn table(points: &[[f64; DIMENSION]]) -> Result<RecordTable, ReproduceError> {
    let mut builder = RecordTable::builder(DIMENSION);
    for x in points {
        builder.start_unit();
        builder.push(&[0, 1, 2, 3], x, 0.0).map_err(wrong)?;
    }
    Ok(builder.finish())
}

/// Posterior means and covariances of the component means: Gibbs sampling of assignments and means, from the best of several short runs.
fn gibbs(points: &[[f64; DIMENSION]], seed: u64, sweeps: u32) -> Components {
    let mut coins = stream(seed, "dp-sep gibbs", 0);
    let start = (0..10).map(|_| lloyd(points, &mut coins)).min_by(|a, b| a.1.total_cmp(&b.1));
    let mut means = start.map_or([[0.0; DIMENSION]; COMPONENTS], |s| s.0);
    let precision = NOISE_SD.powi(-2);
    let (mut first, mut second) = (vec![DVector::zeros(DIMENSION); COMPONENTS], vec![DMatrix::zeros(DIMENSION, DIMENSION); COMPONENTS]);
    let burn_in = sweeps / 5;
    for sweep in 0..sweeps + burn_in {
        let mut counts = [0.0; COMPONENTS];
        let mut sums = [[0.0; DIMENSION]; COMPONENTS];
        for x in points {
            let mut logs: [f64; COMPONENTS] = std::array::from_fn(|j| -0.5 * precision * square(x, &means[j]));
            dp_pvi_models::gaussian_mixture::responsibilities(&mut logs);
            let mut u = coins.random::<f64>();
            let mut j = 0;
            while j + 1 < COMPONENTS && u >= logs[j] {
                u -= logs[j];
                j += 1;
            }
            counts[j] += 1.0;
            sums[j].iter_mut().zip(x).for_each(|(s, x)| *s += x);
        }
        for j in 0..COMPONENTS {
            let total = 1.0 + precision * counts[j];
            means[j] = std::array::from_fn(|i| precision * sums[j][i] / total + coins.sample::<f64, _>(StandardNormal) / total.sqrt());
            if sweep >= burn_in {
                let m = DVector::from_column_slice(&means[j]);
                second[j] += &m * m.transpose();
                first[j] += m;
            }
        }
    }
    let n = f64::from(sweeps);
    let part = |(first, second): (DVector<f64>, DMatrix<f64>)| {
        let mean = first / n;
        let covariance = second / n - &mean * mean.transpose();
        (mean, covariance)
    };
    Components { parts: first.into_iter().zip(second).map(part).collect() }
}

/// Twenty steps of k-means from random points: a start for the sampler, and its squared error.
fn lloyd(points: &[[f64; DIMENSION]], coins: &mut impl Rng) -> ([[f64; DIMENSION]; COMPONENTS], f64) {
    let mut means: [[f64; DIMENSION]; COMPONENTS] = std::array::from_fn(|_| points[coins.random_range(0..points.len())]);
    let mut error = f64::INFINITY;
    for _ in 0..20 {
        let (mut sums, mut counts) = ([[0.0; DIMENSION]; COMPONENTS], [0.0; COMPONENTS]);
        error = 0.0;
        for x in points {
            let distances: [f64; COMPONENTS] = std::array::from_fn(|j| square(x, &means[j]));
            let nearest = (0..COMPONENTS).min_by(|a, b| distances[*a].total_cmp(&distances[*b])).unwrap_or(0);
            error += distances[nearest];
            counts[nearest] += 1.0;
            sums[nearest].iter_mut().zip(x).for_each(|(s, x)| *s += x);
        }
        for j in 0..COMPONENTS {
            if counts[j] > 0.0 {
                means[j] = sums[j].map(|s| s / counts[j]);
            }
        }
    }
    (means, error)
}

/// λ0, and means of the best of several runs of k-means with the prior's precision.
fn start(shape: MixtureShape, points: &[[f64; DIMENSION]], seed: u64) -> (Vec<f64>, Vec<f64>) {
    let mut coins = stream(seed, "dp-sep start", 0);
    let best = (0..10).map(|_| lloyd(points, &mut coins)).min_by(|a, b| a.1.total_cmp(&b.1));
    let means = best.map_or([[0.0; DIMENSION]; COMPONENTS], |s| s.0);
    (shape.isotropic(&[0.0; COMPONENTS * DIMENSION], 1.0), shape.isotropic(means.as_flattened(), 1.0))
}

/// EP or SEP without protection, with full covariances, from the best of several runs of k-means: responsibilities of a vague start would
/// take precision away.
fn free(shape: MixtureShape, points: &[[f64; DIMENSION]], table: &RecordTable, seed: u64, method: &str, clip: Option<f64>) -> Vec<f64> {
    let model = GaussianMixture { shape, variance: NOISE_SD * NOISE_SD };
    let (prior, from) = start(shape, points, seed);
    #[allow(clippy::cast_precision_loss, reason = "a number of points")]
    let n = POINTS as f64;
    if method == "EP" {
        let factor: Vec<f64> = from.iter().zip(&prior).map(|(l, p)| (l - p) / n).collect();
        let mut ep = Factors::new(&model, &prior, &factor, POINTS);
        for _ in 0..60 {
            ep.pass(table.records(), 0.3);
        }
        return ep.lambda;
    }
    let mut sep = Shared::new(&model, prior, from, n);
    match clip {
        None => {
            for _ in 0..10 {
                sep.pass(table.records(), 1.0);
            }
            // Batches come to rest at the fixed point.
            for _ in 0..80 {
                sep.batch(table.records(), 0.2);
            }
        }
        // As published: the factor itself is clipped, one record after the other.
        Some(clip) => {
            for _ in 0..40 {
                sep.pass_with(table.records(), 1.0, |site, _| {
                    let norm = site.iter().map(|v| v * v).sum::<f64>().sqrt();
                    if norm > clip {
                        site.iter_mut().for_each(|v| *v *= clip / norm);
                    }
                });
            }
        }
    }
    sep.lambda
}

/// How far SEP is from its fixed point, over its distance at the start.
struct CurvePoint {
    /// λ ← λ + step·(f_n − f) at every visit: 1 is SEP, γ/N the step that the paper prints.
    step: f64,
    passes: u32,
    left: f64,
}

/// SEP with its own step, with the printed one (γ = 1) and between them, from the same start.
fn step_curve(seed: u64, passes: u32) -> Result<Vec<CurvePoint>, ReproduceError> {
    let points = points(seed);
    let table = table(&points)?;
    let shape = MixtureShape { components: COMPONENTS, dimension: DIMENSION, covariance: Covariance::Diagonal };
    let model = GaussianMixture { shape, variance: NOISE_SD * NOISE_SD };
    let (prior, from) = start(shape, &points, seed);
    #[allow(clippy::cast_precision_loss, reason = "a number of points")]
    let n = POINTS as f64;
    let fixed = free(shape, &points, &table, seed, "SEP", None);
    let distance = |lambda: &[f64]| lambda.iter().zip(&fixed).map(|(l, f)| (l - f).powi(2)).sum::<f64>().sqrt();
    let begin = distance(&from);
    let mut curve = Vec::new();
    for step in [1.0, 0.1, 0.01, 1.0 / n] {
        let mut sep = Shared::new(&model, prior.clone(), from.clone(), n);
        for pass in 1..=passes {
            sep.pass(table.records(), step);
            if [1, 2, 5, 10, 20, 50, 100].contains(&pass) {
                curve.push(CurvePoint { step, passes: pass, left: distance(&sep.lambda) / begin });
            }
        }
    }
    Ok(curve)
}

fn curve_table(curve: &[CurvePoint]) -> String {
    let mut text = String::from(
        "\n## What the printed step would do\n\nShare of the distance to SEP's fixed point that is left, without noise or clipping. A visit moves lambda by step \
         times (f_n - f); the paper prints gamma/N in its equation 4, which is 0.001 here, while SEP has 1.\n\n| step | passes | left |\n|---|---|---|\n",
    );
    for CurvePoint { step, passes, left } in curve {
        let _ = writeln!(text, "| {step} | {passes} | {left:.4} |");
    }
    text
}

/// A task of the mixture at an ε.
fn task(update: &str, epsilon: f64, seed: u64) -> Result<ResolvedTask, ReproduceError> {
    let text = format!(
        "[model]\nfamily = \"gaussian-mixture\"\nformula = \"y ~ 0 + .\"\ncomponents = {COMPONENTS}\nnoise_sd = {NOISE_SD:?}\nseed = {}\n\n[schema]\nfile = \"schema.toml\"\n\n\
         [pvi]\nschedule = \"synchronous\"\n{update}\n\n\
         [privacy]\nunit = \"record\"\nadjacency = \"add-remove\"\nepsilon = {epsilon:?}\ndelta = 1e-5\ntrust = \"local\"\nmax_units = 1000000\n",
        seed % 1_000_000
    );
    resolve(&text, &schema(DIMENSION, BOUND, Some(BOUND)))
}

/// At the fixed point a record of component j is (x − μ_j)/σ² and I/σ² away from nothing in that component: bounds of 4 and 8. Clipped means travel slowly:
/// after 20 rounds, 4 of 20 data sets had two components in one cluster, at ε = 50 as at 5, and more by luck at one or the other; after 80 none at ε = 50.
fn sep_options() -> String {
    format!(
        "rounds = 80\nupdate = \"sep\"\nrecords = {POINTS}\ndamping = {{ start = 0.5, end = 0.1 }}\nclip_norms = [4.0, 8.0]\nstep_precision = 200.0"
    )
}

fn task_em(epsilon: f64, seed: u64) -> Result<ResolvedTask, ReproduceError> {
    task("rounds = 10\nupdate = \"dp-em\"", epsilon, seed)
}

/// DP-EM estimates the mixture: its means, and σ̂²/N_j as their covariance.
fn em_distance(task: &ResolvedTask, state: &[f64], truth: &Components) -> Result<Option<Distance>, ReproduceError> {
    let UpdateSpec::DpEm(spec) = &task.update else { return Err(ReproduceError::Result("the task has another update".into())) };
    let Some(mixture) = EmRule::new(&task.setting(), spec.scales()).mixture(state) else { return Ok(None) };
    #[allow(clippy::cast_precision_loss, reason = "a number of points")]
    let part = |((mean, covariance), weight): ((DVector<f64>, DMatrix<f64>), f64)| (mean, covariance / (weight * POINTS as f64).max(1.0));
    let parts = mixture.means.into_iter().zip(mixture.covariances).zip(mixture.weights).map(part).collect();
    Ok(Distance::between(truth, &Components { parts }))
}

fn square(a: &[f64; DIMENSION], b: &[f64; DIMENSION]) -> f64 {
    a.iter().zip(b).map(|(a, b)| (a - b).powi(2)).sum()
}
