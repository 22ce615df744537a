//! `dp-pvi-sim reproduce vips-blr`: Bayesian logistic regression by Pólya–Gamma augmentation on UCI Adult.
//!
//! The original experiment used stroke records that are not public. On Adult three forms are compared at the same ε: ours, the form as
//! published (both statistics in every round, noise of Analyze-Gauss, eigenvalues repaired to 1e-4 of a record), and bounded natural
//! gradients.

use std::fmt::Write as _;

use dp_pvi_expfam::any::{Family, Gaussian};
use dp_pvi_expfam::gaussian::full::{svec, unsvec};
use dp_pvi_inference::model::polya_gamma::{Blocks, LogisticStatistics};
use dp_pvi_inference::model::statistics::total;
use dp_pvi_inference::records::RecordTable;
use dp_pvi_posterior::polya_gamma::{m_step, raise_to, sensitivities};
use dp_pvi_posterior::predictive::{Example, Prediction, Predictor};
use dp_pvi_posterior::task::{ModelSpec, ResolvedTask};
use nalgebra::DMatrix;
use rand_core::Rng;

use super::vips::{Line, Progress, Run, chart, counted, counting_table, experiment, write};
use super::{Options, ReproduceError};
use crate::experiment::Session;

const EPSILONS: [f64; 4] = [0.25, 0.5, 1.0, 2.0];
const ROUNDS: u32 = 3;
/// Rounds without noise: the fixed point.
const FREE_ROUNDS: u32 = 40;

const ADULT: &str = include_str!("../../../../deploy/experiments/adult.schema.toml");
const OURS: &str = "ours";
const PUBLISHED: &str = "as published";
const GRADIENTS: &str = "natural gradients";
const FREE: &str = "no noise";

/// Runs the reproduction and writes `vips-blr.{csv,svg,md}`.
pub(super) fn run(options: &Options<'_>) -> Result<(), ReproduceError> {
    write(&options.output.join("adult.schema.toml"), ADULT)?;
    let epsilons: &[f64] = if options.quick { &[1.0] } else { &EPSILONS };
    let progress = Progress::new(options, epsilons.len() as u64 * u64::from(ROUNDS + GRADIENT_ROUNDS));
    let mut lines = Vec::new();
    for &epsilon in epsilons {
        for (method, update) in [(OURS, vips()), (GRADIENTS, gradients())] {
            let session = open(options, epsilon, method, &update)?;
            let (_, test) = session.split(options.seed)?;
            let bar = progress.bar();
            let result = session.run(options.seed, move || bar.inc(1))?;
            let predictor = Predictor::of_state(session.task(), &result.lambda).map_err(|e| ReproduceError::Result(e.to_string()))?;
            lines.extend(metrics(method, Some(epsilon), &predictor, test.get()));
            if method == OURS {
                lines.extend(counted(session.task(), epsilon)?);
            }
        }
        let session = open(options, epsilon, OURS, &vips())?;
        let (training, test) = session.split(options.seed)?;
        let published = published(session.task(), &training[0], epsilon, options.seed)?;
        lines.extend(metrics(PUBLISHED, Some(epsilon), &predictor(session.task(), &published)?, test.get()));
    }
    let session = open(options, 1.0, OURS, &vips())?;
    let (training, test) = session.split(options.seed)?;
    let free = without_noise(session.task(), &training[0])?;
    lines.extend(metrics(FREE, None, &predictor(session.task(), &free)?, test.get()));
    let shown: Vec<Line> = lines
        .iter()
        .filter(|l| l.metric == "log-likelihood" && l.method != PUBLISHED)
        .map(|l| Line { method: l.method.clone(), ..*l })
        .collect();
    chart(&options.output.join("vips-blr.svg"), "UCI Adult, held-out", "epsilon", "log-likelihood", &shown, "log-likelihood")?;
    let report = report(&lines, epsilons, session.task());
    Run { name: "vips-blr", lines, report }.write(options)
}

const GRADIENT_ROUNDS: u32 = 6;

fn vips() -> String {
    format!("schedule = \"synchronous\"\nrounds = {ROUNDS}\nupdate = \"vips\"\n")
}

fn gradients() -> String {
    format!("schedule = \"synchronous\"\nrounds = {GRADIENT_ROUNDS}\nupdate = \"natural-gradient\"\n")
}

fn open(options: &Options<'_>, epsilon: f64, method: &str, update: &str) -> Result<Session, ReproduceError> {
    let task = format!(
        "[task.model]\nfamily = \"logistic-regression\"\napproximation = \"full-covariance\"\nprior_scale = 1.0\n\n\
         [task.schema]\nfile = \"adult.schema.toml\"\n\n[task.pvi]\n{update}\n\
         [task.privacy]\nunit = \"record\"\nadjacency = \"add-remove\"\nepsilon = {epsilon:?}\ndelta = 1e-5\ntrust = \"local\"\n"
    );
    let data = "[data]\nfiles = [\"adult/adult.data.gz\", \"adult/adult.test.gz\"]\ntest_fraction = 0.2\n";
    let file = options.output.join(format!("vips-blr-{}-{epsilon:?}.toml", method.replace(' ', "-")));
    // One site: its noise is that of an aggregated sum.
    experiment(options, &file, &format!("vips-blr, {method}"), &task, data, 1)
}

fn prior(task: &ResolvedTask) -> Result<Gaussian, ReproduceError> {
    Gaussian::from_natural(task.family(), task.prior_natural()).map_err(|e| ReproduceError::Result(e.to_string()))
}

fn predictor(task: &ResolvedTask, q: &Gaussian) -> Result<Predictor, ReproduceError> {
    Predictor::new(ModelSpec::LogisticRegression {}, task.family(), q.natural()).map_err(|e| ReproduceError::Result(e.to_string()))
}

/// Both statistics of a round, not scaled.
fn both(q: &Gaussian, data: &RecordTable, bound: f64) -> (Vec<f64>, Vec<f64>) {
    let mut first = total(&LogisticStatistics::new(q, Blocks::Both { first: 1.0, second: 1.0 }, bound), data);
    let second = first.split_off(q.family().dimension());
    (first, second)
}

fn without_noise(task: &ResolvedTask, data: &RecordTable) -> Result<Gaussian, ReproduceError> {
    let prior = prior(task)?;
    let mut q = prior.clone();
    for _ in 0..FREE_ROUNDS {
        let (first, second) = both(&q, data, task.feature_bound);
        q = m_step(&prior, &first, &second).map_err(|e| ReproduceError::Result(e.to_string()))?;
    }
    Ok(q)
}

/// The form as published, at the ε of the run: 2T Gaussian releases; the same noise on every entry of the upper triangle; eigenvalues
/// below 1e-4 of a record's average raised to that.
fn published(task: &ResolvedTask, data: &RecordTable, epsilon: f64, seed: u64) -> Result<Gaussian, ReproduceError> {
    let family: Family = task.family();
    let d = family.dimension();
    let mu = super::vips::epsilon_to_mu(epsilon, task.privacy.delta.get());
    let releases = f64::from(2 * ROUNDS);
    let [first_sd, second_sd] = sensitivities(task.feature_bound).map(|bound| bound * releases.sqrt() / mu);
    #[allow(clippy::cast_precision_loss, reason = "a number of records")]
    let level = 1e-4 * data.records().len() as f64;
    let mut normal = Normal { stream: crate::noise::stream(seed, "vips as published", 0) };
    let prior = prior(task)?;
    let mut q = prior.clone();
    for _ in 0..ROUNDS {
        let (mut first, second) = both(&q, data, task.feature_bound);
        first.iter_mut().for_each(|s| *s += first_sd * normal.draw());
        let mut matrix: DMatrix<f64> = unsvec(&second, d);
        for i in 0..d {
            for j in i..d {
                let noise = second_sd * normal.draw();
                matrix[(i, j)] += noise;
                if i != j {
                    matrix[(j, i)] += noise;
                }
            }
        }
        let repaired = raise_to(&svec(&matrix), d, level);
        q = m_step(&prior, &first, &repaired.second).map_err(|e| ReproduceError::Result(e.to_string()))?;
    }
    Ok(q)
}

/// Standard normal numbers, for a form that no product offers.
struct Normal<R> {
    stream: R,
}

impl<R: Rng> Normal<R> {
    fn draw(&mut self) -> f64 {
        let mut unit = || (f64::from(self.stream.next_u32()) + 0.5) / 4_294_967_296.0;
        let (a, b) = (unit(), unit());
        (-2.0 * a.ln()).sqrt() * (std::f64::consts::TAU * b).cos()
    }
}

/// Mean log-likelihood and area under the curve on held-out records.
fn metrics(method: &str, epsilon: Option<f64>, predictor: &Predictor, test: &RecordTable) -> Vec<Line> {
    let mut scores = Vec::new();
    let mut likelihood = 0.0;
    for record in test.records() {
        let row = Example { indices: record.indices, values: record.values, target: record.target };
        likelihood += predictor.log_density(row);
        if let Prediction::Class { logit_mean, .. } = predictor.predict(row) {
            scores.push((logit_mean, record.target > 0.5));
        }
    }
    #[allow(clippy::cast_precision_loss, reason = "a number of records")]
    let count = scores.len().max(1) as f64;
    let line = |metric, value| Line { method: method.to_owned(), epsilon, metric, value };
    vec![line("log-likelihood", likelihood / count), line("auc", area_under_curve(&mut scores))]
}

/// Probability that a positive record scores above a negative one; ties count half.
fn area_under_curve(scores: &mut [(f64, bool)]) -> f64 {
    scores.sort_by(|a, b| a.0.total_cmp(&b.0));
    let (mut wins, mut below, mut positives) = (0.0, 0.0, 0.0);
    for group in scores.chunk_by(|a, b| a.0.total_cmp(&b.0).is_eq()) {
        let (mut up, mut down) = (0.0, 0.0);
        group.iter().for_each(|(_, positive)| *(if *positive { &mut up } else { &mut down }) += 1.0);
        wins += up * (below + 0.5 * down);
        below += down;
        positives += up;
    }
    wins / (positives * below)
}

fn report(lines: &[Line], epsilons: &[f64], task: &ResolvedTask) -> String {
    let value = |method: &str, epsilon: Option<f64>, metric: &str| {
        lines.iter().find(|l| l.method == method && l.epsilon == epsilon && l.metric == metric).map_or(f64::NAN, |l| l.value)
    };
    let mut text = format!(
        "# Bayesian logistic regression by Pólya–Gamma augmentation\n\nUCI Adult, {} coefficients, rows of norm at most {}, {ROUNDS} rounds, \
         delta = 1e-5, add-remove, noise as under aggregation; 20 % held out.\n\n\
         | epsilon | {OURS}: log-likelihood | AUC | {PUBLISHED}: log-likelihood | AUC | {GRADIENTS}: log-likelihood | AUC |\n\
         |---|---|---|---|---|---|---|\n",
        task.dimension, task.feature_bound
    );
    for &epsilon in epsilons {
        let _ = write!(text, "| {epsilon} ");
        for method in [OURS, PUBLISHED, GRADIENTS] {
            let _ = write!(text, "| {:.4} | {:.4} ", value(method, Some(epsilon), "log-likelihood"), value(method, Some(epsilon), "auc"));
        }
        text.push_str("|\n");
    }
    let _ = writeln!(
        text,
        "| infinite (Pólya–Gamma) | {:.4} | {:.4} | | | | |\n\n## What the noise of a run costs by other ways of counting\n\n{}",
        value(FREE, None, "log-likelihood"),
        value(FREE, None, "auc"),
        counting_table(lines)
    );
    text
}

#[cfg(test)]
mod tests {
    use super::area_under_curve;

    #[test]
    fn the_area_counts_pairs() {
        assert!((area_under_curve(&mut [(0.1, false), (0.4, true), (0.35, false), (0.8, true)]) - 1.0).abs() < 1e-15);
        assert!((area_under_curve(&mut [(0.5, false), (0.5, true)]) - 0.5).abs() < 1e-15);
        assert!((area_under_curve(&mut [(0.1, true), (0.4, false), (0.3, true), (0.2, false)]) - 0.25).abs() < 1e-15);
    }
}
