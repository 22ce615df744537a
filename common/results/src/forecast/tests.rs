#![allow(clippy::unwrap_used)]

use super::forecast_table::forecast_table;
use super::{Effort, Forecast, ForecastResult, ForecastTable, NotForecast, Range, forecast, simulated, sizes};
use dp_pvi_posterior::noise_aware::of_run;
use dp_pvi_posterior::task::{RawTask, ResolveContext, ResolvedTask, Trust};

const SCHEMA: &str = r#"
version = 2
norm_bound = 2.5
[[columns]]
name = "age"
kind = "number"
lower = 18
upper = 100
centre = 60
scale = 20
[[columns]]
name = "male"
kind = "boolean"
[[columns]]
name = "ward"
kind = "category"
values = ["a", "b", "c"]
[[columns]]
name = "died"
kind = "boolean"
true_values = ["yes"]
false_values = ["no"]
"#;

const UPDATE: &str = "schedule = \"synchronous\"\nrounds = 6\nupdate = \"natural-gradient\"";

/// What a small test has time for.
const EFFORT: Effort = Effort { federations: 8, rows: 300 };

pub(super) fn task(schema: &str, pvi: &str, model: &str, epsilon: f64) -> ResolvedTask {
    let text = format!(
        "[model]\n{model}\n[schema]\nfile = \"schema.toml\"\n[pvi]\n{pvi}\n[privacy]\nunit = \"record\"\nadjacency = \"replace-one\"\n\
         epsilon = {epsilon}\ndelta = 1e-5\ntrust = \"local\"\nmax_units = 1000000\n"
    );
    let context = ResolveContext { name: "forecast", update_deadline_seconds: 60, min_sites: 2, expected_sites: 3 };
    RawTask::parse(&text).unwrap().resolve(schema, context).unwrap()
}

const LOGISTIC: &str = "family = \"logistic-regression\"\noutcome = \"died\"\napproximation = \"full-covariance\"";

/// The schema with everything published.
fn known() -> String {
    SCHEMA
        .replace("true_values = [\"yes\"]", "true_values = [\"yes\"]\nshare = 0.2\nsource = \"register\"")
        .replace("scale = 20", "scale = 20\nmean = 62\nsd = 12\nsource = \"register\"")
        .replace("kind = \"boolean\"\n[[", "kind = \"boolean\"\nshare = 0.5\nsource = \"register\"\n[[")
        .replace("\"c\"]", "\"c\"]\nshare = [0.6, 0.3, 0.1]\nsource = \"register\"")
}

fn of(schema: &str, units: u64, epsilon: f64) -> Forecast {
    forecast(&task(schema, UPDATE, LOGISTIC, epsilon), &[units; 3], EFFORT).unwrap()
}

#[test]
fn the_same_task_gives_the_same_bits() {
    let first = serde_json::to_string(&of(SCHEMA, 2000, 1.0)).unwrap();
    assert_eq!(first, serde_json::to_string(&of(SCHEMA, 2000, 1.0)).unwrap());
    assert_eq!(serde_json::from_str::<Forecast>(&first).unwrap(), of(SCHEMA, 2000, 1.0));
}

#[test]
fn more_records_and_more_budget_narrow_the_intervals_and_published_numbers_the_range() {
    let at = |forecast: &Forecast| forecast.width.median;
    let base = of(SCHEMA, 2000, 1.0);
    assert_eq!(base.coefficients.iter().map(|c| c.name.as_str()).collect::<Vec<_>>(), ["age", "male", "ward=b", "ward=c", "(intercept)"]);
    assert_eq!((base.records, base.sites, base.published), (6000, 3, (0, 4)));
    assert!(at(&of(SCHEMA, 8000, 1.0)) < at(&base) && at(&of(SCHEMA, 500, 1.0)) > at(&base));
    assert!(at(&of(SCHEMA, 2000, 4.0)) < at(&base) && at(&of(SCHEMA, 2000, 0.3)) > at(&base));
    assert!(base.loss.low >= -1e-4 && base.loss.median > of(SCHEMA, 2000, 4.0).loss.median);
    for coefficient in &base.coefficients {
        assert!(coefficient.width.low <= coefficient.width.median && coefficient.width.median <= coefficient.width.high);
        assert!(coefficient.unprotected < coefficient.width.median && coefficient.width.high < 4.0);
    }
    // Far from the prior's width, at which every range ends.
    let (known, base) = (of(&known(), 8000, 4.0), of(SCHEMA, 8000, 4.0));
    assert_eq!(known.published, (4, 4));
    let ratio = |forecast: &Forecast| forecast.coefficients.iter().map(|c| (c.width.high / c.width.low).ln()).sum::<f64>();
    assert!(ratio(&known) < ratio(&base), "{known:?} {base:?}");
    // A tenth of the records are in ward c, three tenths in ward b.
    assert!(known.coefficients[3].width.median > known.coefficients[2].width.median);
}

/// Without noise to speak of, the run converges where the rows lead without protection.
#[test]
fn a_simulation_without_noise_arrives_at_the_posterior_without_protection() {
    for family in ["full-covariance", "mean-field"] {
        let model = format!("family = \"logistic-regression\"\noutcome = \"died\"\napproximation = \"{family}\"");
        // No term is shortened or weighted.
        let pvi = format!("{}\nclip_norm = 2.5\nweighted = false", UPDATE.replace('6', "30"));
        let task = task(&known(), &pvi, &model, 1e4);
        let simulated = simulated(&task, &[4000, 4000], 500, 0).unwrap();
        let aware = of_run(&task, &simulated.history).unwrap().natural_parameters;
        let q = |natural: Vec<f64>| dp_pvi_math::expfam::any::Gaussian::from_natural(task.family(), natural).unwrap();
        let (aware, exact) = (q(aware), q(simulated.unprotected.clone()));
        for j in 0..5 {
            let sd = exact.standard().variances()[j].sqrt();
            assert!((aware.standard().mean()[j] - exact.standard().mean()[j]).abs() < 0.15 * sd, "{family} {j}");
            if family == "full-covariance" {
                assert!((aware.standard().variances()[j].sqrt() / sd - 1.0).abs() < 0.05, "{family} {j}");
            }
        }
    }
}

#[test]
fn what_is_not_forecast_says_why() {
    let why = |pvi: &str, model: &str, units: &[u64]| {
        let mut task = task(SCHEMA, UPDATE, LOGISTIC, 1.0);
        if !pvi.is_empty() {
            task = self::task(SCHEMA, pvi, model, 1.0);
        }
        forecast(&task, units, EFFORT).unwrap_err()
    };
    assert_eq!(why("", "", &[]), NotForecast::Nobody);
    let network = "family = \"neural-network\"\noutcome = \"died\"\nhidden = [3]";
    let of_network =
        why("schedule = \"sequential\"\nsweeps = 2\nupdate = \"dp-optimisation\"\nclip_norm = 1.0\noptimizer = \"adam\"", network, &[9]);
    assert!(matches!(of_network, NotForecast::Intervals(_)), "{of_network:?}");
    let diagonal = why(&format!("{UPDATE}\npreconditioner = \"diagonal\""), LOGISTIC, &[9]);
    assert!(diagonal.to_string().contains("gram"), "{diagonal}");
}

#[test]
fn a_forecast_table_compares_budgets_and_a_summer() {
    let task = task(&known(), UPDATE, LOGISTIC, 1.0);
    let forecast_table = forecast_table(&task, &[1500; 4]).unwrap();
    let median = |trust, epsilon: f64| {
        let of = forecast_table.settings.iter().find(|s| s.trust == trust && (s.epsilon - epsilon).abs() < 1e-9).unwrap();
        (of.width.unwrap().median, of.loss.unwrap().median, of.own)
    };
    for trust in [Trust::Local, Trust::Aggregated] {
        let (half, one, two) = (median(trust, 0.5), median(trust, 1.0), median(trust, 2.0));
        assert!(half.0 > one.0 && one.0 > two.0 && half.1 > two.1, "{half:?} {one:?} {two:?}");
        assert_eq!(one.2, trust == Trust::Local);
    }
    assert!(median(Trust::Aggregated, 1.0).0 < median(Trust::Local, 1.0).0);
    let text = forecast_table.text();
    assert!(text.contains("6000 records at 4 sites; 4 of 4 columns") && text.contains("* ") && text.contains("ward=c"), "{text}");
    let json = serde_json::to_string(&forecast_table).unwrap();
    assert_eq!(serde_json::from_str::<super::ForecastTable>(&json).unwrap(), forecast_table);
}

#[test]
fn a_setting_that_the_update_does_not_allow_says_why() {
    let task = task(
        SCHEMA,
        "schedule = \"sequential\"\nsweeps = 2\nupdate = \"dp-optimisation\"",
        "family = \"logistic-regression\"\noutcome = \"died\"",
        1.0,
    );
    let forecast_table = forecast_table(&task, &[1000; 2]).unwrap();
    let why = |trust| forecast_table.settings.iter().filter(|s| s.trust == trust).map(|s| s.why.clone()).collect::<Vec<_>>();
    assert_eq!(why(Trust::Local), [None, None, None]);
    assert!(why(Trust::Aggregated).iter().all(|why| why.as_ref().is_some_and(|why| why.contains("local"))), "{forecast_table:?}");
    assert!(forecast_table.text().contains("none: "));
}

#[test]
fn a_forecast_is_a_table_or_says_why_not() {
    let task = task(SCHEMA, &format!("{UPDATE}\npreconditioner = \"diagonal\""), LOGISTIC, 1.0);
    let none = ForecastResult::of(&task, &[100]);
    assert!(none.text().starts_with("forecast  none: a diagonal"), "{none:?}");
    let json = serde_json::to_string(&none).unwrap();
    assert!(json.starts_with("{\"why\":") && serde_json::from_str::<ForecastResult>(&json).unwrap() == none);
}

#[test]
fn sizes_are_one_number_for_all_or_one_for_each() {
    let task = task(SCHEMA, UPDATE, LOGISTIC, 1.0);
    assert_eq!(sizes(&task, &[70], None).unwrap(), [70, 70], "the fewest, where nobody expected a number");
    let expecting = ResolvedTask { expected_sites: Some(5), ..task.clone() };
    assert_eq!(sizes(&expecting, &[70], None).unwrap(), [70; 5]);
    assert_eq!(sizes(&expecting, &[70], Some(3)).unwrap(), [70; 3], "a flag says more than the task");
    assert_eq!(sizes(&task, &[70], Some(3)).unwrap(), [70, 70, 70]);
    assert_eq!(sizes(&task, &[70, 80, 90], None).unwrap(), [70, 80, 90]);
    assert_eq!(sizes(&task, &[70, 80], Some(2)).unwrap(), [70, 80]);
    assert!(sizes(&task, &[70, 80], Some(3)).unwrap_err().to_string().contains("one for every site"));
}

#[test]
fn small_widths_keep_two_digits() {
    for (value, digits) in [(0.0, 2), (3.2, 2), (0.1, 2), (0.042, 3), (0.0034, 4), (1e-300, 9)] {
        assert_eq!(super::forecast_table::decimals(value), digits, "{value}");
    }
    let mut forecast = of(SCHEMA, 1000, 1.0);
    forecast.coefficients[0].width = Range { low: 0.0021, median: 0.0034, high: 0.0048 };
    forecast.coefficients[0].unprotected = 0.0012;
    let text = ForecastTable { task: forecast, settings: Vec::new() }.text();
    assert!(text.contains("0.0034 (0.0021 to 0.0048)") && text.contains(" 0.0012\n"), "{text}");
}

/// A few records under a small epsilon: the noise decides, and the task says so before anyone pays for it.
#[test]
fn a_task_that_is_worse_than_a_constant_is_known_before_it_runs() {
    let hopeless = task(SCHEMA, UPDATE, LOGISTIC, 0.05);
    let why = super::worthless(Some(60), &hopeless).unwrap();
    assert!(why.contains("60 records at each of 2 sites") && why.contains("even_if_worthless = true"), "{why}");
    // As many records as the task admits, its author's word, or a budget that is enough.
    assert_eq!(super::worthless(None, &hopeless), None);
    assert_eq!(super::worthless(Some(60), &ResolvedTask { even_if_worthless: true, ..hopeless }), None);
    assert_eq!(super::worthless(Some(2000), &task(SCHEMA, UPDATE, LOGISTIC, 1.0)), None);
    let (good, bad) = (of(SCHEMA, 4000, 4.0), forecast(&task(SCHEMA, UPDATE, LOGISTIC, 0.05), &[60; 3], EFFORT).unwrap());
    assert!(!good.is_worthless() && good.gain.unwrap().median > 0.0, "{:?}", good.gain);
    assert!(bad.is_worthless() && bad.gain.unwrap().median < 0.0, "{:?}", bad.gain);
}

/// Where the best end gains more than the middle loses, the drawn coefficients decide; and an intercept is a constant itself.
#[test]
fn a_run_that_may_gain_is_not_refused_and_an_intercept_alone_never() {
    let forecast_of = |low: f64, median: f64, high: f64| Forecast { gain: Some(Range { low, median, high }), ..of(SCHEMA, 1000, 1.0) };
    assert!(!forecast_of(-1.02, -0.0355, 1.2).is_worthless());
    assert!(forecast_of(-1.02, -0.5, -0.1).is_worthless() && forecast_of(-1.02, -0.5, 0.1).is_worthless());
    let alone = task(SCHEMA, UPDATE, &LOGISTIC.replace("outcome = \"died\"", "formula = \"died ~ 1\""), 0.05);
    assert_eq!(super::worthless(Some(60), &alone), None);
    assert_eq!(forecast(&alone, &[60; 3], EFFORT).unwrap().gain, None);
}

mod liar;
