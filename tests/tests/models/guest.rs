//! A model of another crate, from `task.toml` to predictions: [`gamma`](super::gamma) is all that there is of it, and nothing else knows its name.

use std::fmt::Write as _;
use std::fs::{read_to_string, write};
use std::path::PathBuf;
use std::sync::Once;

use dp_pvi_client::commands::predict::{Basis, predict};
use dp_pvi_client::output::{Format, Output};
use dp_pvi_inference::capabilities::Model;
use dp_pvi_inference::models::{self as private, PrivateHalf, from_spec};
use dp_pvi_math::expfam::any::Gaussian;
use dp_pvi_models::parameters::Parameters;
use dp_pvi_models::prediction::Level;
use dp_pvi_models::prediction::{Example, Prediction};
use dp_pvi_models::registry::RegisterError;
use dp_pvi_models::{self as public, Bounds, ModelFamily, ModelSpec, PredictorBounds, Ranges};
use dp_pvi_posterior::noise_aware::of_run;
use dp_pvi_posterior::task::{RawTask, ResolveContext, ResolvedTask};
use dp_pvi_privacy::UnitTable;
use dp_pvi_protocol::metrics::evaluate;
use dp_pvi_protocol::predictive::Predictor;
use dp_pvi_results::document::{PosteriorDocument, Which};
use dp_pvi_results::forecast::{Effort, forecast, rounds};
use dp_pvi_tests::memory;

use super::gamma::GammaRegression;

/// What the records are made with.
const TRUTH: [f64; 2] = [0.8, -0.5];
const SHAPE: u32 = 4;

const SCHEMA: &str = "[[columns]]
name = \"y\"
kind = \"number\"
lower = 0.001
upper = 1000
centre = 0
scale = 1
[[columns]]
name = \"x0\"
kind = \"number\"
lower = -1
upper = 1
centre = 0
scale = 1
[[columns]]
name = \"x1\"
kind = \"number\"
lower = -1
upper = 1
centre = 0
scale = 1
";

/// What a program with one more model does before anything else.
fn install() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        public::register::<GammaRegression>().unwrap();
    });
}

fn spec(options: &str) -> ModelSpec {
    install();
    ModelFamily::named("gamma-regression").unwrap().resolve(&options.parse().unwrap()).unwrap()
}

fn model(spec: &ModelSpec) -> Box<dyn Model> {
    from_spec(spec).unwrap()
}

const CONTEXT: ResolveContext<'_> = ResolveContext { name: "guest", update_deadline_seconds: 60, min_sites: 3, expected_sites: 3 };

fn raw(model: &str, pvi: &str, privacy: &str) -> Result<RawTask, String> {
    install();
    let question = if model.contains("formula") { "" } else { "formula = \"y ~ 0 + .\"\n" };
    let text = format!(
        "name = \"guest\"\n[model]\nfamily = \"gamma-regression\"\n{question}{model}\n[schema]\nfile = \"schema.toml\"\n[pvi]\n{pvi}\n[privacy]\n\
         unit = \"record\"\nadjacency = \"replace-one\"\ndelta = 1e-5\ntrust = \"local\"\nmax_units = 1000000\n{privacy}"
    );
    RawTask::parse(&text).map_err(|error| error.to_string())
}

fn task(model: &str, pvi: &str, privacy: &str) -> Result<ResolvedTask, String> {
    raw(model, pvi, privacy)?.resolve(SCHEMA, CONTEXT).map_err(|error| error.to_string())
}

/// Uniform numbers in (0, 1], the same everywhere.
struct Uniform(u64);

impl Uniform {
    fn next(&mut self) -> f64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        f64::from(u32::try_from(self.0 >> 33).unwrap() + 1) / 2_147_483_648.0
    }
}

/// A file of records: y is the mean exp(xᵀθ) times a gamma variable of mean 1, a sum of exponential ones.
fn records(seed: u64, count: u32) -> String {
    let mut uniform = Uniform(seed);
    let mut text = String::from("x0,x1,y\n");
    for _ in 0..count {
        let x = [2.0 * uniform.next() - 1.0, 2.0 * uniform.next() - 1.0];
        let mean = (x[0] * TRUTH[0] + x[1] * TRUTH[1]).exp();
        let noise: f64 = (0..SHAPE).map(|_| -uniform.next().ln()).sum::<f64>() / f64::from(SHAPE);
        writeln!(text, "{},{},{}", x[0], x[1], mean * noise).unwrap();
    }
    text
}

/// Three sites with files of their own, and one of records that no one learned from.
fn sites(folder: &tempfile::TempDir) -> (Vec<(String, PathBuf)>, PathBuf) {
    let file = |name: &str, seed: u64| {
        let path = folder.path().join(format!("{name}.csv"));
        write(&path, records(seed, 300)).unwrap();
        path
    };
    let sites = (1..=3).map(|m| (format!("site-{m}"), file(&format!("site-{m}"), m))).collect();
    (sites, file("test", 9))
}

fn run(task: &ResolvedTask, sites: &[(String, PathBuf)]) -> Vec<f64> {
    memory::posterior(task, sites.iter().map(|(name, file)| (name.as_str(), file.as_path())))
}

#[test]
fn a_guest_is_registered_once_and_under_a_name_of_its_own() {
    install();
    assert!(public::registered().any(|(name, help)| name == "gamma-regression" && !help.is_empty()));
    assert_eq!(public::register::<GammaRegression>(), Err(RegisterError::Duplicate("gamma-regression")));
    // Another test may have run a visit already.
    let taken = private::register::<public::gaussian_mixture::GaussianMixture>();
    assert!(matches!(taken, Err(RegisterError::Duplicate(name) | RegisterError::Sealed(name)) if name == "gaussian-mixture"), "{taken:?}");
}

#[test]
fn a_guests_options_have_defaults_and_no_others() {
    assert_eq!(spec(""), spec("shape = 1.0"));
    assert_ne!(spec(""), spec("shape = 2.0"));
    assert_eq!(spec("shape = 2.0").to_string(), "gamma regression, shape 2");
    let pvi = "schedule = \"sequential\"\nsweeps = 2\nupdate = \"pvi\"";
    let unknown = task("scale = 2.0", pvi, "").unwrap_err();
    assert!(unknown.contains("[model] family = \"gamma-regression\": unknown field `scale`, expected `shape`"), "{unknown}");
    assert!(task("shape = -1.0", pvi, "").unwrap_err().contains("shape must be a number between"));
    let resolved = task("shape = 2.0", pvi, "").unwrap();
    assert_eq!(serde_json::to_string(&resolved.model).unwrap(), r#"{"family":"gamma-regression","shape":2.0}"#);
    assert_eq!(ResolvedTask::from_bytes(&resolved.to_bytes()).unwrap(), resolved);
    // What it does not offer is refused before anything runs.
    let statistics = task("", "schedule = \"synchronous\"\nrounds = 2\nupdate = \"vips\"", "epsilon = 1.0").unwrap_err();
    assert!(statistics.contains("expected sufficient statistics"), "{statistics}");
}

/// r = ∂f/∂a and c = −2 ∂f/∂s².
#[test]
fn derivatives_agree_with_finite_differences() {
    for options in ["", "shape = 3.5"] {
        let model = model(&spec(options));
        let predictor = model.linear_predictor().unwrap();
        for (a, s2, y) in [(0.3, 0.5, 1.0), (-2.0, 3.0, 0.1), (2.0, 0.1, 9.0)] {
            let (f, h) = (|a: f64, s2: f64| predictor.expected_log_density(a, s2, y), 1e-5);
            let at = predictor.statistics(a, s2, y);
            assert!(((f(a + h, s2) - f(a - h, s2)) / (2.0 * h) - at.residual).abs() < 1e-6 * (1.0 + at.residual.abs()));
            assert!((-(f(a, s2 + h) - f(a, s2 - h)) / h - at.curvature).abs() < 1e-6 * (1.0 + at.curvature));
        }
    }
}

/// One value by hand, and the predictive density has mass 1 and the moments that are stated.
#[test]
fn the_density_is_one() {
    let sure = model(&spec("shape = 2.0"));
    // Mean 1, shape 2: 4 y exp(−2y) at 3.
    let expected = (12.0_f64 * (-6.0_f64).exp()).ln();
    assert!((sure.linear_predictor().unwrap().expected_log_density(0.0, 0.0, 3.0) - expected).abs() < 1e-12);
    let natural = [0.3 * 4.0, -0.2 * 9.0, 4.0, 9.0];
    let family = dp_pvi_math::expfam::any::Family::DiagonalGaussian { dimension: 2 };
    for options in ["", "shape = 2.0"] {
        let predictor = Predictor::new(&spec(options), family, &natural).unwrap();
        let row = |target: f64| Example { indices: &[0, 1], values: &[0.7, 0.4], target, offset: 0.0, extra: Default::default() };
        let (mut mass, mut first, mut second) = (0.0, 0.0, 0.0);
        // In ln y, where the density is smooth.
        let step = 0.01;
        for i in -2000..700 {
            let y = (step * f64::from(i)).exp();
            let weight = step * y * predictor.log_density(row(y)).exp();
            (mass, first, second) = (mass + weight, first + weight * y, second + weight * y * y);
        }
        assert!((mass - 1.0).abs() < 1e-6, "{options}: {mass}");
        let Prediction::Number { mean, variance } = predictor.predict(row(0.0)) else { panic!("a number") };
        assert!((mean - first).abs() < 1e-5 * mean, "{options}: {mean} {first}");
        assert!((variance - (second - first * first)).abs() < 1e-4 * variance, "{options}: {variance}");
    }
}

/// Sites one after the other arrive where one fit of all records does.
#[test]
fn a_federation_without_noise_ends_at_the_optimum_of_all_records() {
    let folder = tempfile::tempdir().unwrap();
    let (sites, _) = sites(&folder);
    let pvi = "schedule = \"sequential\"\nsweeps = 12\nupdate = \"pvi\"";
    let task = task("shape = 4.0\napproximation = \"full-covariance\"", pvi, "").unwrap();
    let lambda = run(&task, &sites);
    let files: Vec<&PathBuf> = sites.iter().map(|(_, file)| file).collect();
    let all = dp_pvi_data::load_public(&task.parsed_schema().unwrap(), &files, None).unwrap();
    assert_eq!(all.get().len(), 900);
    let prior = Gaussian::from_natural(task.family(), task.prior_natural()).unwrap();
    let optimum = model(&task.model).local_optimum().unwrap().local_optimum(all.get(), &prior, &prior).unwrap();
    for (found, expected) in lambda.iter().zip(optimum.natural()) {
        assert!((found - expected).abs() < 1e-6 * (1.0 + expected.abs()), "{found} {expected}");
    }
    for (mean, truth) in optimum.standard().mean().iter().zip(TRUTH) {
        assert!((mean - truth).abs() < 0.1, "{mean} {truth}");
    }
    // Visits have run: nothing that touches records can leave a trace in a registry any more.
    assert_eq!(public::register::<Late>(), Err(RegisterError::Sealed("late")));
    assert_eq!(private::register::<Late>(), Err(RegisterError::Sealed("late")));
    // A model that sums records by itself and has no private half is refused with what to write.
    let error = from_spec(&ModelSpec::from(Late {})).err().unwrap().to_string();
    assert!(error.contains("ModelRules::likelihood") && error.contains("models::register"), "{error}");
}

/// A private run, its file, its metrics, and the client's predictions from it.
#[test]
fn a_private_run_leaves_a_posterior_that_predicts() {
    let folder = tempfile::tempdir().unwrap();
    let (sites, test) = sites(&folder);
    let pvi = "schedule = \"sequential\"\nsweeps = 4\nupdate = \"dp-optimisation\"\nclip_norm = 4.0";
    let task = task("shape = 4.0", pvi, "epsilon = 20.0").unwrap();
    let lambda = run(&task, &sites);
    let document = PosteriorDocument::new(&task, 0, 12, &lambda, Vec::new(), Vec::new()).unwrap();
    let text = document.to_json();
    assert_eq!(PosteriorDocument::from_json(&text).unwrap(), document);
    let names: Vec<&str> = document.coefficients.iter().map(|coefficient| coefficient.name.as_str()).collect();
    assert_eq!(names, ["x0", "x1"]);
    for (coefficient, truth) in document.coefficients.iter().zip(TRUTH) {
        assert!((coefficient.mean - truth).abs() < 0.3, "{coefficient:?} {truth}");
    }

    let public = dp_pvi_data::load_public(&task.parsed_schema().unwrap(), &[&test], None).unwrap();
    let metrics = evaluate(&Predictor::of_state(&task, &lambda).unwrap(), &public).into_inner();
    let prior = evaluate(&Predictor::of_state(&task, &task.prior_natural()).unwrap(), &public).into_inner();
    assert_eq!(metrics.records, 300);
    assert!(metrics.log_likelihood > prior.log_likelihood + 0.1, "{metrics:?} {prior:?}");
    assert!(metrics.rmse.unwrap() < prior.rmse.unwrap() && metrics.accuracy.is_none());

    let (file, out) = (folder.path().join("posterior.json"), folder.path().join("predictions.csv"));
    write(&file, text).unwrap();
    predict(Basis::Posterior(file, Which::Posterior), &[test], Level::P95, None, Some(&out), Output::new(Format::Text)).unwrap();
    let predictions = read_to_string(out).unwrap();
    let mut lines = predictions.lines();
    assert_eq!(lines.next(), Some("row,mean,sd,lower,upper,problem"));
    let means: Vec<f64> = lines.map(|line| line.split(',').nth(1).unwrap().parse().unwrap()).collect();
    assert!(means.len() == 300 && means.iter().all(|mean| *mean > 0.0 && *mean < 20.0), "{means:?}");
}

/// A formula over records with a time under observation, to which y is proportional. Those with weight 0 are of another kind.
#[test]
fn a_guests_offsets_and_weights_count() {
    let folder = tempfile::tempdir().unwrap();
    let mut uniform = Uniform(5);
    let sites: Vec<(String, PathBuf)> = (1..=3)
        .map(|m| {
            let mut text = String::from("x0,x1,days,w,y\n");
            for line in records(m, 300).lines().skip(1) {
                let cells: Vec<f64> = line.split(',').map(|cell| cell.parse().unwrap()).collect();
                let (days, strange) = (1.0 + 40.0 * uniform.next(), uniform.next() < 0.3);
                let (weight, factor) = if strange { (0, 50.0) } else { (1, 1.0) };
                writeln!(text, "{},{},{days},{weight},{}", cells[0], cells[1], factor * days * cells[2]).unwrap();
            }
            let path = folder.path().join(format!("site-{m}.csv"));
            write(&path, text).unwrap();
            (format!("site-{m}"), path)
        })
        .collect();
    let column = |name: &str, lower: i32, upper: i32| {
        format!("[[columns]]\nname = \"{name}\"\nkind = \"number\"\nlower = {lower}\nupper = {upper}\ncentre = 0\nscale = 1\n")
    };
    let columns = column("x0", -1, 1) + &column("x1", -1, 1) + &column("days", 1, 90) + &column("w", 0, 2);
    let schema = format!(
        "version = 2\n[[columns]]\nname = \"y\"\nkind = \"number\"\nlower = 0.001\nupper = 100000\ncentre = 0\nscale = 1\n{columns}"
    );
    let model = "shape = 4.0\napproximation = \"full-covariance\"\nformula = \"y ~ x0 + x1 + offset(log(days))\"\nweights = \"w\"";
    let raw = raw(model, "schedule = \"sequential\"\nsweeps = 12\nupdate = \"pvi\"", "").unwrap();
    let task = raw.resolve(&schema, CONTEXT).unwrap();
    let lambda = run(&task, &sites);
    let q = Gaussian::from_natural(task.family(), lambda).unwrap();
    for (mean, truth) in q.standard().mean().iter().zip([0.0, TRUTH[0], TRUTH[1]]) {
        assert!((mean - truth).abs() < 0.15, "{mean} {truth}");
    }
}

const NATURAL: &str = "schedule = \"synchronous\"\nupdate = \"natural-gradient\"\nresidual_bound = 8.0\ncurvature_bound = 12.0\n";
const FULL: &str = "shape = 4.0\napproximation = \"full-covariance\"";

#[test]
fn a_guests_run_has_noise_aware_intervals() {
    let folder = tempfile::tempdir().unwrap();
    let (sites, _) = sites(&folder);
    let task = task(FULL, &format!("{NATURAL}rounds = 8"), "epsilon = 20.0").unwrap();
    let (lambda, history) = memory::run(&task, sites.iter().map(|(name, file)| (name.as_str(), file.as_path())));
    let aware = of_run(&task, &history).unwrap();
    let [plain, aware] = [lambda, aware.natural_parameters].map(|natural| Gaussian::from_natural(task.family(), natural).unwrap());
    for (j, truth) in TRUTH.iter().enumerate() {
        let (mean, sd) = (aware.standard().mean()[j], aware.standard().variances()[j].sqrt());
        assert!((mean - truth).abs() < 3.0 * sd && sd > plain.standard().variances()[j].sqrt(), "{mean} {sd} {truth}");
    }
}

#[test]
fn a_guest_is_forecast_and_its_rounds_are_chosen() {
    let written = task(FULL, &format!("{NATURAL}rounds = 8"), "epsilon = 20.0").unwrap();
    let effort = Effort { federations: 6, rows: 200 };
    let forecast = forecast(&written, &[300; 3], effort).unwrap();
    let names: Vec<&str> = forecast.coefficients.iter().map(|coefficient| coefficient.name.as_str()).collect();
    assert_eq!(names, ["x0", "x1"]);
    for coefficient in &forecast.coefficients {
        assert!(coefficient.unprotected > 0.0 && coefficient.width.high > coefficient.unprotected, "{coefficient:?}");
    }
    let auto = raw(FULL, &format!("{NATURAL}rounds = \"auto\"\nexpected_units = 300"), "epsilon = 20.0").unwrap();
    let chosen = rounds::resolve(&auto, SCHEMA, CONTEXT).unwrap();
    assert!(chosen.tried.iter().any(|candidate| candidate.rounds == chosen.task.visits()), "{:?}", chosen.tried);
    assert_eq!(chosen.task.model, written.model);
}

/// A capability that it does not write is refused with what it would have to write.
#[test]
fn what_a_guest_does_not_offer_is_refused_by_name() {
    let moments = task("", "schedule = \"synchronous\"\nrounds = 2\nupdate = \"sep\"\nrecords = 40", "epsilon = 1.0").unwrap_err();
    assert!(moments.contains("Predictor::tilted"), "{moments}");
    let bounds = task("", "schedule = \"synchronous\"\nrounds = 2\nupdate = \"natural-gradient\"", "epsilon = 1.0").unwrap_err();
    assert!(bounds.contains("residual_bound"), "{bounds}");
}

/// Layouts and bounds that the example does not need are open to guests, too.
#[test]
fn a_guest_may_have_classes_columns_and_public_bounds() {
    let classes = Parameters::of_classes(2, 3);
    assert_eq!((classes.count(), classes.before_rows(), classes.has_intercept()), (4, 0, true));
    assert_eq!(Parameters::from_columns(5).count(), 5);
    let ranges = Ranges { row: 2.0, entry: 1.0, label: 1.0, times: None };
    let bounds = Bounds::of(ranges, PredictorBounds::logit()).with_gradient(2.0);
    assert_eq!((bounds.gradient, bounds.blocks.map(|blocks| blocks.mean)), (Some(2.0), Some(2.0)));
}

/// A second guest, which comes when the first visit has run.
#[derive(Debug, PartialEq, serde::Serialize, serde::Deserialize)]
struct Late {}

impl std::fmt::Display for Late {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("late")
    }
}

impl public::ModelRules for Late {
    fn check(&self, _: &dp_pvi_schema::Schema) -> Result<(), public::spec::TaskError> {
        Ok(())
    }

    fn likelihood(&self) -> public::likelihood::Likelihood {
        public::likelihood::Likelihood::Own(public::Own::Gradients { initial_log_scale: 0.0 })
    }

    fn parameters(&self, features: u32) -> public::parameters::Parameters {
        public::parameters::Parameters::unnamed(features)
    }

    fn response(&self) -> public::response::Response<'_> {
        public::response::Response::of(public::response::ResponseKind::Row)
    }

    fn law(
        &self,
        _: &public::prediction::Outcome<'_>,
    ) -> Result<std::sync::Arc<dyn public::prediction::Law>, dp_pvi_math::expfam::InvalidParameters> {
        Err(dp_pvi_math::expfam::InvalidParameters::Domain("nothing"))
    }
}

impl public::ModelOptions for Late {
    const NAME: &'static str = "late";
    const HELP: &'static str = "nothing";
    type Raw = Self;

    fn explicit(written: Self) -> Result<Self, public::spec::TaskError> {
        Ok(written)
    }
}

impl PrivateHalf for Late {
    fn model(&self) -> Box<dyn Model> {
        unreachable!("it is never registered")
    }
}
