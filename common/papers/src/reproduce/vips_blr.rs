//! `dp-pvi-papers reproduce vips-blr`: Bayesian logistic regression by Pólya–Gamma augmentation.
//!
//! The original experiment used stroke records that are not public. Stays in 130 hospitals stand in for them: will a patient be readmitted
//! within 30 days? On UCI Adult three forms are compared at the same ε: ours (statistics about the posterior's mean), the form as published (both statistics in every round, noise of
//! Analyze-Gauss, eigenvalues repaired to 1e-4 of a record), and bounded natural gradients.
//!
//! A full run is 18 s of processor time. Adult at ε = 1, ten sites under aggregation, splits 1 to 5: log-likelihood −0.3348 ± 0.0019
//! (replace-one, `deploy/experiments/adult-polya-gamma.toml`: −0.3367 ± 0.0018), where the published form has none that is finite; with
//! statistics about 0, splits 1 to 4, it was −0.3449, −0.3455, −0.3495 and −0.3406. Readmission (seed 2), AUC at ε = 0.25, 0.5, 1 and 2:
//! ours 0.620, 0.642, 0.644 and 0.647 (about 0: 0.625, 0.636, 0.643 and 0.650), natural gradients 0.642, 0.648, 0.651 and 0.653, objective
//! perturbation 0.573, 0.609, 0.636 and 0.649; ERM without protection 0.655.

use std::fmt::Write as _;
use std::path::Path;

use dp_pvi_inference::capabilities::statistics::polya_gamma::{Blocks, LogisticStatistics};
use dp_pvi_inference::capabilities::statistics::total;
use dp_pvi_inference::records::RecordTable;
use dp_pvi_math::expfam::any::{Family, Gaussian};
use dp_pvi_math::expfam::gaussian::full::{svec, unsvec};
use dp_pvi_math::polya_gamma::{m_step, raise_to, sensitivities};
use dp_pvi_models::logistic_regression;
use dp_pvi_models::prediction::Level;
use dp_pvi_models::prediction::{Example, Prediction};
use dp_pvi_posterior::task::{ModelSpec, ResolvedTask};
use dp_pvi_protocol::predictive::Predictor;
use nalgebra::{DMatrix, DVector};
use rand_core::Rng;

use super::erm::{Objective, perturbation};
use dp_pvi_results::picture::{Anchor, COLOURS, Picture};

use super::vips::{Counted, Line, Progress, Run, chart, counted, counting_table, experiment, write, wrong};
use super::{Options, ReproduceError};
use dp_pvi_simulation::experiment::{Session, processors};

const EPSILONS: [f64; 4] = [0.25, 0.5, 1.0, 2.0];
const ROUNDS: u32 = 3;
const GRADIENT_ROUNDS: u32 = 6;
/// Rounds without noise: the fixed point.
const FREE_ROUNDS: u32 = 40;
/// Sites of an aggregated run.
const SITES: u32 = 10;
const DELTA: f64 = 1e-5;

const OURS: &str = "ours";
const PUBLISHED: &str = "as published";
const GRADIENTS: &str = "natural gradients";
const FREE: &str = "no noise";
const ERM: &str = "ERM";
const PERTURBED: &str = "objective perturbation";

/// A data set with its public schema.
struct Set {
    name: &'static str,
    schema: &'static str,
    files: &'static str,
    unit: &'static str,
    /// Public bound on the units of a site.
    max_units: u32,
}

const ADULT: Set = Set {
    name: "adult",
    schema: include_str!("../../../../deploy/experiments/adult.schema.toml"),
    files: "\"adult/adult.data.gz\", \"adult/adult.test.gz\"",
    unit: "record",
    max_units: 5_000,
};

const DIABETES: Set = Set {
    name: "diabetes",
    schema: include_str!("../../../../deploy/experiments/diabetes.schema.toml"),
    files: "\"health/diabetes-130/diabetic_data.csv.gz\"",
    unit: "person",
    max_units: 8_000,
};

/// Runs the reproduction and writes `vips-blr.{csv,svg,md}`, `vips-blr-health.svg` and `vips-blr-intervals.svg`.
pub(super) fn run(options: &Options<'_>) -> Result<(), ReproduceError> {
    let epsilons: &[f64] = if options.quick { &[1.0] } else { &EPSILONS };
    let progress = Progress::new(options, 2 * epsilons.len() as u64 * u64::from(ROUNDS + GRADIENT_ROUNDS));
    let (mut lines, mut countings) = (Vec::new(), Vec::new());
    let mut headings = Vec::new();
    for set in [&ADULT, &DIABETES] {
        write(&options.output.join(format!("{}.schema.toml", set.name)), set.schema)?;
        let (found, counted, heading) = compare(options, set, epsilons, &progress)?;
        lines.extend(found);
        countings.extend(counted);
        headings.push(heading);
    }
    let shown = |metric: &'static str, prefix: &str, without: &str| -> Vec<Line> {
        let kept = lines.iter().filter(|l| l.metric == metric && l.method.starts_with(prefix) && !l.method.ends_with(without));
        kept.map(|l| Line { method: l.method.clone(), ..*l }).collect()
    };
    let adult = shown("log-likelihood", ADULT.name, PUBLISHED);
    chart(&options.output.join("vips-blr.svg"), "UCI Adult, held-out", "epsilon", "log-likelihood", &adult, "log-likelihood")?;
    let health = shown("auc", DIABETES.name, "nothing");
    chart(&options.output.join("vips-blr-health.svg"), "Readmission within 30 days, held-out", "epsilon", "AUC", &health, "auc")?;
    let mut report = report(&lines, epsilons, &headings);
    report.push_str(&counting_table(&countings));
    lines.extend(countings.iter().flat_map(Counted::lines));
    Run { name: "vips-blr", lines, report }.write(options)
}

/// All methods on one data set.
fn compare(
    options: &Options<'_>,
    set: &Set,
    epsilons: &[f64],
    progress: &Progress,
) -> Result<(Vec<Line>, Vec<Counted>, String), ReproduceError> {
    let (mut lines, mut countings) = (Vec::new(), Vec::new());
    let whole = open(options, set, 1.0, OURS, &vips(), 1)?;
    let (training, test) = whole.split(options.seed)?;
    let (training, test) = (&training[0], test.get());
    let add = |lines: &mut Vec<Line>, method: &str, epsilon, score: &dyn Fn(Example<'_>) -> Scored| {
        lines.extend(metrics(&format!("{}: {method}", set.name), epsilon, score, test));
    };
    for &epsilon in epsilons {
        for (method, update) in [(OURS, vips()), (GRADIENTS, gradients())] {
            let session = open(options, set, epsilon, method, &update, SITES)?;
            let bar = progress.bar();
            let result = session.run(options.seed, processors(), move || bar.inc(1))?;
            let predictor = Predictor::of_state(session.task(), &result.lambda).map_err(|e| wrong(&e))?;
            add(&mut lines, method, Some(epsilon), &|row| by_posterior(&predictor, row));
            if method == OURS {
                countings.push(counted(session.task(), epsilon, set.name)?);
                #[allow(clippy::float_cmp, reason = "one of the list's own values")]
                if epsilon == 1.0 && set.name == ADULT.name {
                    let free = predictor_of(session.task(), &without_noise(whole.task(), training)?)?;
                    intervals(&options.output.join("vips-blr-intervals.svg"), session.task(), &predictor, &free)?;
                }
            }
        }
        if set.name == ADULT.name {
            let published = predictor_of(whole.task(), &published(whole.task(), training, epsilon, options.seed)?)?;
            add(&mut lines, PUBLISHED, Some(epsilon), &|row| by_posterior(&published, row));
        }
        let theta = perturbed(whole.task(), training, epsilon, options.seed)?;
        add(&mut lines, PERTURBED, Some(epsilon), &|row| by_point(&theta, row));
    }
    if set.name == ADULT.name {
        let free = predictor_of(whole.task(), &without_noise(whole.task(), training)?)?;
        add(&mut lines, FREE, None, &|row| by_posterior(&free, row));
    }
    let d = whole.task().dimension as usize;
    let objective = Objective { table: training, ridge: whole.task().prior.scale.powi(-2), linear: DVector::zeros(d) };
    let theta = objective.minimise().ok_or_else(|| wrong(&"Newton's method does not end"))?;
    add(&mut lines, ERM, None, &|row| by_point(&theta, row));
    let units = dp_pvi_privacy::UnitTable::len(training);
    let heading =
        format!("{}: {units} units for training, {d} coefficients, rows of norm at most {}", set.name, whole.task().feature_bound);
    Ok((lines, countings, heading))
}

fn vips() -> String {
    format!("schedule = \"synchronous\"\nrounds = {ROUNDS}\nupdate = \"vips\"\n")
}

fn gradients() -> String {
    format!("schedule = \"synchronous\"\nrounds = {GRADIENT_ROUNDS}\nupdate = \"natural-gradient\"\n")
}

/// With more than one site the sum is aggregated: every site adds a share of the noise, a summer takes the masks off the sum.
fn open(options: &Options<'_>, set: &Set, epsilon: f64, method: &str, update: &str, sites: u32) -> Result<Session, ReproduceError> {
    let trust = if sites > 1 {
        format!("trust = \"aggregated\"\n\n[task.aggregation]\nsites = {sites}\ncolluders = 1\nmax_units = {}\n", set.max_units)
    } else {
        "trust = \"local\"\n".to_owned()
    };
    let task = format!(
        "[task.model]\nfamily = \"logistic-regression\"\noutcome = \"{}\"\napproximation = \"full-covariance\"\nprior_units = \"encoded\"\nprior_scale = 1.0\n\n\
         [task.schema]\nfile = \"{}.schema.toml\"\n\n[task.pvi]\n{update}\n\
         [task.privacy]\nunit = \"{}\"\nadjacency = \"add-remove\"\nepsilon = {epsilon:?}\ndelta = {DELTA:?}\n{trust}",
        if set.name == "adult" { "income" } else { "readmitted" },
        set.name,
        set.unit
    );
    let data = format!("[data]\nfiles = [{}]\ntest_fraction = 0.2\n", set.files);
    let file = options.output.join(format!("vips-blr-{}-{}-{epsilon:?}-{sites}.toml", set.name, method.replace(' ', "-")));
    experiment(options, &file, &format!("vips-blr, {}, {method}", set.name), &task, &data, sites)
}

fn prior(task: &ResolvedTask) -> Result<Gaussian, ReproduceError> {
    Gaussian::from_natural(task.family(), task.prior_natural()).map_err(|e| wrong(&e))
}

fn predictor_of(task: &ResolvedTask, q: &Gaussian) -> Result<Predictor, ReproduceError> {
    Predictor::new(&ModelSpec::from(logistic_regression::LogisticRegression {}), task.family(), q.natural()).map_err(|e| wrong(&e))
}

/// The minimiser of a perturbed objective; a form that no product offers.
fn perturbed(task: &ResolvedTask, table: &RecordTable, epsilon: f64, seed: u64) -> Result<DVector<f64>, ReproduceError> {
    let (sd, ridge) = perturbation(task.feature_bound, epsilon, DELTA);
    let mut normal = Normal { stream: dp_pvi_simulation::noise::stream(seed, "objective perturbation", 0) };
    let linear = DVector::from_fn(task.dimension as usize, |_, _| sd * normal.draw());
    let objective = Objective { table, ridge: ridge.max(task.prior.scale.powi(-2)), linear };
    objective.minimise().ok_or_else(|| wrong(&"Newton's method does not end"))
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
        q = m_step(&prior, &first, &second).map_err(|e| wrong(&e))?;
    }
    Ok(q)
}

/// Standard normal numbers, for a form that no product offers.
pub(super) struct Normal<R> {
    pub(super) stream: R,
}

impl<R: Rng> Normal<R> {
    /// Uniform in (0, 1).
    pub(super) fn uniform(&mut self) -> f64 {
        (f64::from(self.stream.next_u32()) + 0.5) / 4_294_967_296.0
    }

    pub(super) fn draw(&mut self) -> f64 {
        let (a, b) = (self.uniform(), self.uniform());
        (-2.0 * a.ln()).sqrt() * (std::f64::consts::TAU * b).cos()
    }
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
    let mut normal = Normal { stream: dp_pvi_simulation::noise::stream(seed, "vips as published", 0) };
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
        q = m_step(&prior, &first, &repaired.second).map_err(|e| wrong(&e))?;
    }
    Ok(q)
}

/// A record's log-likelihood and what it is ranked by.
struct Scored {
    log_likelihood: f64,
    score: f64,
}

fn by_posterior(predictor: &Predictor, row: Example<'_>) -> Scored {
    let score = match predictor.predict(row) {
        Prediction::Class { logit_mean, .. } => logit_mean,
        _ => f64::NAN,
    };
    Scored { log_likelihood: predictor.log_density(row), score }
}

fn by_point(theta: &DVector<f64>, row: Example<'_>) -> Scored {
    let logit: f64 = row.indices.iter().zip(row.values).map(|(&j, x)| x * theta[j as usize]).sum();
    let softplus = logit.max(0.0) + (-logit.abs()).exp().ln_1p();
    Scored { log_likelihood: row.target * logit - softplus, score: logit }
}

/// Mean log-likelihood and area under the curve on held-out records.
fn metrics(method: &str, epsilon: Option<f64>, score: &dyn Fn(Example<'_>) -> Scored, test: &RecordTable) -> Vec<Line> {
    let mut scores = Vec::new();
    let mut likelihood = 0.0;
    for record in test.records() {
        let scored = score(record.example());
        likelihood += scored.log_likelihood;
        scores.push((scored.score, record.target > 0.5));
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

/// Coefficients that are shown with their intervals.
const SHOWN: usize = 24;

/// The largest coefficients: 95 % intervals of the protected run (thick) beside those without noise (thin).
fn intervals(file: &Path, task: &ResolvedTask, private: &Predictor, free: &Predictor) -> Result<(), ReproduceError> {
    let names = task.parameter_names()?;
    let [private, free] = [private, free].map(|p| {
        let standard = p.posterior();
        standard.mean().iter().zip(standard.variances()).map(|(m, v)| Level::P95.interval(*m, v.sqrt())).collect::<Vec<_>>()
    });
    let mut order: Vec<usize> = (0..names.len()).collect();
    let middle = |j: usize| f64::midpoint(free[j].lower, free[j].upper).abs();
    order.sort_by(|&a, &b| middle(b).total_cmp(&middle(a)));
    order.truncate(SHOWN);
    let (mut low, mut high) = (f64::INFINITY, f64::NEG_INFINITY);
    for &j in &order {
        low = low.min(private[j].lower).min(free[j].lower);
        high = high.max(private[j].upper).max(free[j].upper);
    }
    let place = |value: f64| 250.0 + 480.0 * (value - low) / (high - low).max(1e-9);
    #[allow(clippy::cast_precision_loss, reason = "at most SHOWN")]
    let bottom = 40.0 + 20.0 * order.len() as f64;
    let mut picture = Picture::new(760.0, bottom + 16.0);
    picture.text((12.0, 24.0), 16.0, Anchor::Start, "UCI Adult, epsilon = 1: 95 % intervals (thin: no noise)");
    picture.line((place(0.0), 36.0), (place(0.0), bottom), "#9aa7b5", 1.0);
    let mut y = 48.0;
    for j in order {
        picture.text((12.0, y + 4.0), 13.0, Anchor::Start, &names[j]);
        picture.line((place(private[j].lower), y - 2.0), (place(private[j].upper), y - 2.0), COLOURS[0], 4.0);
        picture.line((place(free[j].lower), y + 3.0), (place(free[j].upper), y + 3.0), "#1c2430", 1.0);
        y += 20.0;
    }
    write(file, &picture.to_svg())
}

fn report(lines: &[Line], epsilons: &[f64], headings: &[String]) -> String {
    let value = |set: &Set, method: &str, epsilon: Option<f64>, metric: &str| {
        let method = format!("{}: {method}", set.name);
        lines.iter().find(|l| l.method == method && l.epsilon == epsilon && l.metric == metric).map_or(f64::NAN, |l| l.value)
    };
    let mut text = format!(
        "# Bayesian logistic regression by Pólya–Gamma augmentation\n\n{ROUNDS} rounds (natural gradients: {GRADIENT_ROUNDS}), delta = {DELTA:e}, \
         add-remove, {SITES} sites under aggregation with one colluder (each adds a ninth of the variance); 20 % of the units held out, one \
         split. Objective perturbation and the published form see all records in one place. ERM: the penalised maximum of the likelihood, every \
         person's records together counting as one.\n\n"
    );
    for heading in headings {
        let _ = writeln!(text, "* {heading}");
    }
    for (set, title, methods, free) in [
        (&ADULT, "UCI Adult, one record a unit", &[OURS, PUBLISHED, GRADIENTS, PERTURBED][..], &[FREE, ERM][..]),
        (
            &DIABETES,
            "Readmission within 30 days (diabetes, 130 hospitals), one patient a unit",
            &[OURS, GRADIENTS, PERTURBED][..],
            &[ERM][..],
        ),
    ] {
        let _ = write!(text, "\n## {title}\n\n| epsilon |");
        for method in methods {
            let _ = write!(text, " {method}: log-likelihood | AUC |");
        }
        text.push_str("\n|---|");
        methods.iter().for_each(|_| text.push_str("---|---|"));
        text.push('\n');
        for &epsilon in epsilons {
            let _ = write!(text, "| {epsilon} |");
            for method in methods {
                let of = |metric| value(set, method, Some(epsilon), metric);
                let _ = write!(text, " {:.4} | {:.4} |", of("log-likelihood"), of("auc"));
            }
            text.push('\n');
        }
        text.push('\n');
        for method in free {
            let of = |metric| value(set, method, None, metric);
            let _ = writeln!(text, "Without protection, {method}: log-likelihood {:.4}, AUC {:.4}.", of("log-likelihood"), of("auc"));
        }
    }
    text.push_str(
        "\nCoefficients with their intervals are in vips-blr-intervals.svg.\n\n## What the noise of a run costs by other ways of counting\n\n",
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
