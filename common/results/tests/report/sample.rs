//! Reports of made-up runs.

use std::fmt::Write as _;

use dp_pvi_math::agreement::Allowance;
use dp_pvi_math::expfam::any::Gaussian;
use dp_pvi_models::effects::Ratio;
use dp_pvi_models::prediction::Interval;
use dp_pvi_names::ClientId;
use dp_pvi_posterior::methods::noise_aware::Absent;
use dp_pvi_posterior::methods::noise_aware::Posterior;
use dp_pvi_posterior::noise_aware;
use dp_pvi_posterior::task::{RawTask, ResolveContext, ResolvedTask};
use dp_pvi_protocol::message::{Role, RoundOutcome, RunOutcome};
use dp_pvi_protocol::metrics::HeldOutMetrics;
use dp_pvi_protocol::statement::statement;
use dp_pvi_results::agreement::{Agreement, Comparison, Farthest, SiteAgreement, Tested, Verdict, is_known};
use dp_pvi_results::document::{Evaluation, PosteriorDocument};
use dp_pvi_results::forecast::{Effort, forecast};
use dp_pvi_results::report::{Member, Round, Run};

const ROUNDS: u32 = 10;

/// Names and pages.
pub(crate) fn pages() -> Vec<(String, String)> {
    vec![("usual".into(), usual()), ("crowded".into(), crowded()), ("curved".into(), curved()), ("classes".into(), classes())]
}

const LOCAL: &str = "epsilon = 1.0\ntrust = \"local\"\nmax_units = 1000000";

/// The sample's own schema and task, three hospitals.
pub(crate) fn usual() -> String {
    hospitals("update = \"natural-gradient\"", LOCAL, Aware::Yes)
}

/// The same without correlations.
pub(crate) fn mean_field() -> String {
    hospitals("update = \"dp-optimisation\"", LOCAL, Aware::Yes)
}

/// The same behind a summer.
pub(crate) fn aggregated() -> String {
    hospitals("update = \"natural-gradient\"", "epsilon = 1.0\ntrust = \"aggregated\"\n[aggregation]\nmax_units = 20000", Aware::Yes)
}

/// The same without protection.
pub(crate) fn unprotected() -> String {
    hospitals("update = \"pvi\"", "trust = \"local\"\nmax_units = 1000000", Aware::No)
}

/// A run that left no distribution.
pub(crate) fn diverged() -> String {
    hospitals("update = \"natural-gradient\"", LOCAL, Aware::Diverged)
}

fn hospitals(update: &str, privacy: &str, aware: Aware) -> String {
    let schema = include_str!("../../../../deploy/schema.toml");
    let sites = ["hospital-1", "hospital-2", "hospital-3"];
    let task =
        task("cardiac event within a year", "family = \"logistic-regression\"\noutcome = \"cardiac_event\"", update, privacy, schema, 3);
    let truth = [0.9, 0.4, 0.6, 0.3, 0.2, 0.5, 0.25, -0.3, 0.1, 0.45, -1.1];
    page(&task, &sites, &truth, &[0.08, 0.06, 0.07, 0.11, 0.09, 0.07, 0.1, 0.09, 0.08, 0.12, 0.07], aware)
}

/// A small federation that asks this of deaths by age, sex, smoking and group.
pub(crate) fn asks(formula: &str, update: &str) -> String {
    let columns = ["smoker", "male"].map(|name| format!("[[columns]]\nname = \"{name}\"\nkind = \"boolean\"\n")).concat();
    let schema = format!(
        "version = 2\n[[columns]]\nname = \"died\"\nkind = \"boolean\"\n[[columns]]\nname = \"age\"\nkind = \"number\"\nlower = 18\nupper = 100\ncentre = 60\nscale = 20\n\
         [[columns]]\nname = \"g\"\nkind = \"category\"\ncoding = \"sum\"\nvalues = [\"a\", \"b\", \"c\"]\n{columns}"
    );
    let task = task("deaths", &format!("family = \"logistic-regression\"\nformula = \"{formula}\""), update, LOCAL, &schema, 2);
    let d = task.dimension as usize;
    page(&task, &["a", "b"], &vec![0.5; d], &vec![0.1; d], Aware::Yes)
}

/// A formula with a curve and effects of sites.
pub(crate) fn curved() -> String {
    let (task, sites, mean, sd) = hospitals_with_a_curve();
    page(&task, &sites, &mean, &sd, Aware::Yes)
}

fn hospitals_with_a_curve() -> (ResolvedTask, [&'static str; 3], [f64; 10], [f64; 10]) {
    let sites = ["hospital-1", "hospital-2", "hospital-3"];
    let schema = "version = 2\n[[columns]]\nname = \"died\"\nkind = \"boolean\"\ntrue_values = [\"yes\"]\nfalse_values = [\"no\"]\n[[columns]]\nname = \"age\"\nkind = \"number\"\n\
                  lower = 18\nupper = 100\ncentre = 60\nscale = 20\n[[columns]]\nname = \"smoker\"\nkind = \"boolean\"\n";
    let model = format!("family = \"logistic-regression\"\nformula = \"died ~ smoker + s(age, k = 6) + (1 | site)\"\nsites = {sites:?}");
    let task = task("deaths within a year", &model, "update = \"natural-gradient\"", LOCAL, schema, 3);
    // Intercept, smoker, the line and the bends of age, the sites.
    let mean = [-1.2, 0.45, 1.1, 0.3, -0.2, 0.1, 0.25, 0.3, -0.35, 0.05];
    (task, sites, mean, [0.1, 0.08, 0.12, 0.2, 0.15, 0.15, 0.2, 0.12, 0.12, 0.14])
}

/// The same with this number, and what follows from it, in place of every number that the run released and that an evaluator stated.
pub(crate) fn released(value: f64) -> String {
    let (task, sites, mean, sd) = hospitals_with_a_curve();
    let sites: Vec<ClientId> = sites.iter().map(|site| ClientId::new(*site).unwrap()).collect();
    let mut document = document(&task, &sites, &mean, &sd, Aware::Yes);
    let (around, ratio) = (Interval { lower: -value, upper: value }, Interval { lower: 0.0, upper: value.exp() });
    // Beside some numbers that are usual.
    for c in document.coefficients.iter_mut().skip(2) {
        (c.mean, c.sd, c.interval_90, c.interval_95) = (value, value.abs(), around, around);
    }
    for effect in document.effects.iter_mut().skip(1) {
        (effect.estimate, effect.sd, effect.interval_90, effect.interval_95) = (value, Some(value.abs()), Some(around), Some(around));
        effect.ratio = Some(Ratio { estimate: value.exp(), interval_90: Some(ratio), interval_95: Some(ratio) });
    }
    for scale in &mut document.scales {
        (scale.estimate, scale.interval_95) = (value, Some(around));
        for member in &mut scale.members {
            (member.mean, member.sd, member.interval_95, member.known) = (value, value.abs(), around, value);
        }
    }
    for point in document.curves.iter_mut().flat_map(|curve| &mut curve.points) {
        (point.mean, point.sd) = (value, Some(value.abs()));
    }
    let convergence = document.convergence.as_mut().unwrap();
    convergence.distances.fill(value.abs());
    (convergence.overall, convergence.noise_share) = (value, Some(value));
    document.signal_to_noise = Some(value);
    for evaluation in &mut document.evaluations {
        let metrics = &mut evaluation.metrics;
        (metrics.log_likelihood, metrics.accuracy, metrics.auc, metrics.brier) = (value, Some(value), Some(value), Some(value));
        metrics.reliability = vec![(value, -value, u64::MAX), (-value, value, u64::MAX)];
        metrics.roc = vec![(value, -value), (-value, value)];
        metrics.class_reliability = vec![metrics.reliability.clone(); 2];
        metrics.confusion = vec![vec![u64::MAX; 2]; 2];
        metrics.interval_coverage = vec![(value, value)];
    }
    rendered(&task, &sites, &document)
}

/// Three classes, of which one has a long name, and no one of the last.
pub(crate) fn classes() -> String {
    let schema = "version = 2\n[[columns]]\nname = \"readmitted\"\nkind = \"category\"\nvalues = [\"no\", \"after more than thirty days in <another> hospital\", \"soon\"]\n\
                  [[columns]]\nname = \"age\"\nkind = \"number\"\nlower = 18\nupper = 100\ncentre = 60\nscale = 20\n";
    let task = task(
        "readmission",
        "family = \"multinomial-regression\"\noutcome = \"readmitted\"\nclasses = 3",
        "update = \"natural-gradient\"",
        LOCAL,
        schema,
        3,
    );
    page(&task, &["hospital-1", "hospital-2", "hospital-3"], &[0.4, -0.5, 0.2, 0.1], &[0.1, 0.08, 0.12, 0.2], Aware::Several)
}

/// Long names, many levels, a coefficient that is hardly known, and a method without convergence.
fn crowded() -> String {
    let mut schema =
        "version = 2\n[[columns]]\nname = \"readmission_within_thirty_days_after_discharge\"\nkind = \"number\"\nlower = 0\nupper = 9\n\
                      centre = 4\nscale = 3\n"
            .to_owned();
    for i in 0..70 {
        let name = format!("a_very_long_name_of_a_column_that_nobody_would_want_to_type_twice_{i}");
        let _ = write!(schema, "[[columns]]\nname = \"{name}\"\nkind = \"number\"\nlower = -1\nupper = 1\ncentre = 0\nscale = 1\n");
    }
    let sites: Vec<String> = (0..24).map(|i| format!("university-hospital-of-a-large-town-{i}")).collect();
    let sites: Vec<&str> = sites.iter().map(String::as_str).collect();
    let task = task(
        "readmission",
        "family = \"linear-regression\"\noutcome = \"readmission_within_thirty_days_after_discharge\"\nnoise_sd = 1.0",
        "update = \"dp-optimisation\"\nclip_norm = 1.0",
        LOCAL,
        &schema,
        24,
    );
    let mean: Vec<f64> = (0..71).map(|i| 0.05 * f64::from(i % 13) - 0.3).collect();
    let sd: Vec<f64> = (0..71).map(|i| if i == 12 { 40.0 } else { 0.02 + 0.01 * f64::from(i % 7) }).collect();
    page(&task, &sites, &mean, &sd, Aware::No)
}

fn task(name: &str, model: &str, update: &str, privacy: &str, schema: &str, sites: u32) -> ResolvedTask {
    let approximation = if update.contains("natural-gradient") { "full-covariance" } else { "mean-field" };
    let text = format!(
        "[model]\n{model}\napproximation = \"{approximation}\"\n[schema]\nfile = \"schema.toml\"\n[pvi]\nschedule = \"synchronous\"\nrounds = {ROUNDS}\n\
         {update}\nexpected_sites = {sites}\n[privacy]\nunit = \"record\"\nadjacency = \"replace-one\"\ndelta = 1e-5\n{privacy}\n"
    );
    let context = ResolveContext { name, update_deadline_seconds: 600, min_sites: sites, expected_sites: sites };
    RawTask::parse(&text).unwrap().resolve(schema, context).unwrap()
}

#[derive(Clone, Copy, PartialEq)]
enum Aware {
    Yes,
    No,
    /// As `No`, with several classes.
    Several,
    /// The state is no distribution.
    Diverged,
}

/// [Λμ; Λ] of independent coefficients, in the task's family.
fn natural(task: &ResolvedTask, mean: &[f64], sd: &[f64]) -> Vec<f64> {
    let mut natural: Vec<f64> = mean.iter().zip(sd).map(|(m, s)| m / (s * s)).collect();
    let full = task.family().len() > 2 * mean.len();
    for (i, s) in sd.iter().enumerate() {
        natural.push(1.0 / (s * s));
        natural.extend(std::iter::repeat_n(0.0, if full { mean.len() - 1 - i } else { 0 }));
    }
    natural
}

fn page(task: &ResolvedTask, sites: &[&str], mean: &[f64], sd: &[f64], aware: Aware) -> String {
    let sites: Vec<ClientId> = sites.iter().map(|site| ClientId::new(*site).unwrap()).collect();
    rendered(task, &sites, &document(task, &sites, mean, sd, aware))
}

fn document(task: &ResolvedTask, sites: &[ClientId], mean: &[f64], sd: &[f64], aware: Aware) -> PosteriorDocument {
    let near: Vec<f64> = mean.iter().zip(sd).zip(0..).map(|((m, s), i)| m + s * (1.4 * f64::from(i)).sin()).collect();
    let narrow: Vec<f64> = sd.iter().map(|s| 0.6 * s).collect();
    let mut state = task.rule().initial();
    let plain = natural(task, &near, &narrow);
    state[..plain.len()].copy_from_slice(&plain);
    let statements = sites.iter().map(|site| statement(task, site, ROUNDS).unwrap()).collect();
    let said = match aware {
        Aware::Diverged => {
            let problem = Gaussian::from_natural(task.family(), vec![f64::NAN; task.family().len()]).unwrap_err();
            PosteriorDocument::without_posterior(task, 0, ROUNDS, &problem, statements, Vec::new())
        }
        Aware::Yes | Aware::No | Aware::Several => PosteriorDocument::new(task, 0, ROUNDS, &state, statements, evaluations(aware)).unwrap(),
    };
    said.with_noise_aware(match aware {
        Aware::Yes => Ok(Posterior {
            natural_parameters: natural(task, mean, sd),
            signal_to_noise: 9.3,
            noise_share: Some(0.93),
            scales: Vec::new(),
            precision: None,
        }),
        Aware::No | Aware::Several | Aware::Diverged => Err(noise_aware::is_known(task).err().unwrap_or(Absent::NoRound)),
    })
    .unwrap()
    .with_agreement(agreement(task, sites))
}

fn rendered(task: &ResolvedTask, sites: &[ClientId], document: &PosteriorDocument) -> String {
    let members = sites.iter().map(|site| (site, Member { role: Role::Site, units: Some(5600), answered: ROUNDS })).collect();
    let rounds = (0..ROUNDS).map(|_| Round { outcome: RoundOutcome::Complete, included: sites.to_vec() }).collect();
    let run = Run {
        federation: "Hospitals of the north",
        task,
        number: 0,
        outcome: Some(RunOutcome::Complete),
        suspended: false,
        reason: None,
        started: "2026-03-02 08:00:00 UTC".into(),
        last: "2026-03-02 08:21:40 UTC".into(),
        rounds,
        forecast: Some(forecast(task, &vec![5600; sites.len()], Effort { federations: 5, rows: 500 })),
        refusals: &[],
        members,
    };
    dp_pvi_results::report::render(&run, document)
}

/// Of every round: a fit that is nearly there after two of them.
fn evaluations(aware: Aware) -> Vec<Evaluation> {
    let evaluator = ClientId::new("evaluator").unwrap();
    let of = |round: u32| {
        let left = 0.5_f64.powi(i32::try_from(round).unwrap());
        let common = HeldOutMetrics { records: 2400, log_likelihood: -0.4883 - 0.2048 * left * left, ..HeldOutMetrics::default() };
        let metrics = match aware {
            Aware::No | Aware::Diverged => HeldOutMetrics {
                rmse: Some(1.2 + left),
                pit: vec![240; 10],
                interval_coverage: vec![(0.5, 0.51), (0.8, 0.79), (0.9, 0.91), (0.95, 0.94)],
                ..common
            },
            Aware::Several => HeldOutMetrics {
                accuracy: Some(0.625),
                auc: Some(0.7 - 0.2 * left),
                brier: Some(0.5),
                calibration_error: Some(0.02),
                ranked_probability_score: Some(0.375),
                deviance: Some(1.25),
                confusion: vec![vec![1200, 300, 0], vec![600, 300, 0], vec![0, 0, 0]],
                class_reliability: vec![vec![(0.2, 0.25, 800), (0.8, 0.9, 1600)], vec![(0.25, 0.25, 2400)], vec![(0.01, 0.0, 2400)]],
                ..common
            },
            Aware::Yes => HeldOutMetrics {
                accuracy: Some(0.76 - 0.2 * left),
                auc: Some(0.7917 - 0.29 * left),
                brier: Some(0.16 + 0.09 * left),
                calibration_error: Some(0.02 + 0.05 * left),
                reliability: (0..15_i32).map(|i| (f64::from(i) / 15.0 + 0.03, f64::from(i) / 16.0 + 0.05, 160)).collect(),
                roc: (0..=40_i32).map(|i| (f64::from(i) / 40.0, (f64::from(i) / 40.0).powf(0.26 + 0.74 * left))).collect(),
                ..common
            },
        };
        Evaluation { evaluator: evaluator.clone(), round, metrics }
    };
    (0..=ROUNDS).map(of).collect()
}

/// Of every four sites the second differs, and noise hides the fourth.
fn agreement(task: &ResolvedTask, sites: &[ClientId]) -> Agreement {
    if let Err(reason) = is_known(task) {
        return Agreement::not_tested(reason);
    }
    let coefficient = task.parameter_names().unwrap().remove(0);
    let site = |(number, site): (usize, &ClientId)| {
        let (verdict, p) =
            [(Verdict::Ordinary, 0.43), (Verdict::Differs, 3e-9), (Verdict::Ordinary, 0.08), (Verdict::NotTested, 1.0)][number % 4];
        let farthest = Farthest { coefficient: coefficient.clone(), z: -5.27 };
        let heterogeneity = Allowance { intercept: 1.0, others: 1.0 };
        let comparison = Comparison { statistic: 61.2, degrees: 11, p, p_adjusted: (3.0 * p).min(1.0), farthest, heterogeneity };
        SiteAgreement { site: site.clone(), verdict, comparison: Some(comparison) }
    };
    let allowance = Allowance { intercept: 0.3, others: 0.1 };
    Agreement::Tested(Tested { level: 0.05, allowance, sites: sites.iter().enumerate().map(site).collect() })
}
