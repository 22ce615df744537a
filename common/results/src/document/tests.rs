#![allow(clippy::unwrap_used)]

use dp_pvi_names::ClientId;

use super::{DocumentError, Evaluation, PosteriorDocument, Which};
use dp_pvi_math::scales::ScaleSummary;
use dp_pvi_models::prediction::{Example, Prediction};
use dp_pvi_posterior::methods::noise_aware::{Absent, Posterior};
use dp_pvi_posterior::task::{RawTask, ResolveContext, ResolvedTask};
use dp_pvi_protocol::metrics::HeldOutMetrics;
use dp_pvi_protocol::statement::{Booked, PrivacyStatement, StatementError, statement};

const SCHEMA: &str = r#"
[[columns]]
name = "age"
kind = "number"
lower = 0
upper = 110
centre = 50
scale = 20
[[columns]]
name = "died"
kind = "boolean"
true_values = ["yes"]
false_values = ["no"]
"#;

fn task(update: &str, privacy: &str) -> ResolvedTask {
    let text = format!(
        "model.family = \"logistic-regression\"\nmodel.outcome = \"died\"\nmodel.prior_units = \"encoded\"\nmodel.approximation = \"mean-field\"\nschema.file = \"s\"\n[pvi]\nschedule = \"sequential\"\nsweeps = 3\n{update}\n[privacy]\nunit = \"record\"\nadjacency = \"replace-one\"\ndelta = 1e-5\ntrust = \"local\"\nmax_units = 1000000\n{privacy}\n"
    );
    let context = ResolveContext { name: "f", update_deadline_seconds: 60, min_sites: 1, expected_sites: 3 };
    RawTask::parse(&text).unwrap().resolve(SCHEMA, context).unwrap()
}

fn open() -> ResolvedTask {
    task("update = \"pvi\"", "")
}

fn private() -> ResolvedTask {
    task("update = \"dp-optimisation\"\nexpected_sites = 3\nrelease_tick_seconds = 30", "epsilon = 2.0")
}

fn document(task: &ResolvedTask) -> PosteriorDocument {
    let site = ClientId::new("hospital-1").unwrap();
    let metrics = HeldOutMetrics {
        records: 3,
        log_likelihood: -0.4,
        accuracy: Some(0.9),
        brier: Some(0.1),
        calibration_error: Some(0.02),
        reliability: vec![(0.1, 0.2, 3)],
        ..HeldOutMetrics::default()
    };
    let evaluation = Evaluation { evaluator: ClientId::new("evaluator").unwrap(), round: 3, metrics };
    let statements = vec![statement(task, &site, 3).unwrap()];
    PosteriorDocument::new(task, 0, 9, &[0.7, -0.1, 3.0, 1.0 / 3.0], statements, vec![evaluation]).unwrap()
}

#[test]
fn documents_come_back_bit_by_bit() {
    for task in [open(), private()] {
        let document = document(&task);
        let text = document.to_json();
        let back = PosteriorDocument::from_json(&text).unwrap();
        assert_eq!(back, document);
        assert_eq!(back.task().unwrap(), task);
        assert_eq!(back.task_hash().unwrap(), task.hash());
        assert_eq!(back.coefficients[0].name, "age");
        let row = Example { indices: &[0, 1], values: &[0.5, 1.0], target: 0.0, offset: 0.0, extra: Default::default() };
        let Prediction::Class { logit_mean, .. } = back.predictor().unwrap().predict(row) else { panic!("a class") };
        assert!((logit_mean - (0.5 * 0.7 / 3.0 - 0.3)).abs() < 1e-15);
    }
}

#[test]
fn documents_that_were_changed_are_refused() {
    let text = document(&private()).to_json();
    for (from, to) in [
        ("\"format\": 2", "\"format\": 7"),
        ("\"run\"", "\"runs\""),
        ("  \"natural_parameters\": [\n    0.7", "  \"natural_parameters\": [\n    0.8"),
        ("  \"natural_parameters\": [\n    0.7", "  \"natural_parameters\": [\n    1e400"),
        ("diagonal-gaussian", "full-gaussian"),
        ("\"name\": \"age\"", "\"name\": \"weight\""),
        ("sweeps\\\": 3", "sweeps\\\": 4"),
    ] {
        assert!(text.contains(from), "{from}");
        assert!(PosteriorDocument::from_json(&text.replacen(from, to, 1)).is_err(), "{from}");
    }
    let hash = private().hash().to_string();
    let other = text.replace(&hash, &"0".repeat(64));
    assert!(matches!(PosteriorDocument::from_json(&other), Err(DocumentError::Inconsistent(_))));
    assert!(PosteriorDocument::new(&open(), 0, 1, &[0.0, 0.0, -1.0, 1.0], vec![], vec![]).is_err());
}

#[test]
fn the_noise_aware_posterior_is_the_documents_and_the_plain_one_stands_beside_it() {
    let plain = document(&private());
    assert!(!plain.intervals.complete);
    let row = Example { indices: &[0], values: &[1.0], target: 0.0, offset: 0.0, extra: Default::default() };
    let sd = |document: &PosteriorDocument, which| match document.predictor_with(which).unwrap().predict(row) {
        Prediction::Class { logit_sd, .. } => logit_sd,
        other => panic!("{other:?}"),
    };
    assert!((sd(&plain, Which::Posterior) - sd(&plain, Which::Plain)).abs() < 1e-15);
    let aware =
        |natural_parameters| Posterior { natural_parameters, signal_to_noise: 3.5, noise_share: None, scales: Vec::new(), precision: None };
    let both = plain.clone().with_noise_aware(Ok(aware(vec![0.35, -0.1, 1.5, 0.25]))).unwrap();
    let kept = both.plain.as_ref().unwrap();
    assert_eq!((&kept.coefficients, &kept.natural_parameters), (&plain.coefficients, &plain.natural_parameters));
    assert_eq!(both.natural_parameters, [0.35, -0.1, 1.5, 0.25]);
    assert!(both.intervals.complete && both.convergence.is_some() && both.signal_to_noise == Some(3.5));
    assert!(
        both.privacy[0].remarks.iter().any(|r| r.contains("contain the noise that protects") && r.contains("releases no correlations"))
    );
    assert!(!both.privacy[0].remarks.iter().any(|r| r.contains("do not include the noise")));
    let text = both.to_json();
    assert_eq!(PosteriorDocument::from_json(&text).unwrap(), both);
    assert!((sd(&both, Which::Plain) - 3f64.powf(-0.5)).abs() < 1e-15 && (sd(&both, Which::Posterior) - 1.5f64.powf(-0.5)).abs() < 1e-15);
    assert!((sd(&both, Which::default()) - sd(&both, Which::Posterior)).abs() < 1e-15);
    for (from, to) in [("0.35", "0.36"), ("\"natural_parameters\": [\n      0.7", "\"natural_parameters\": [\n      0.8")] {
        assert!(text.contains(from), "{from}");
        assert!(PosteriorDocument::from_json(&text.replacen(from, to, 1)).is_err());
    }
    for (from, to) in [("\"verdict\": \"converged\"", "\"verdict\": \"extrapolated\""), ("\"overall\": 0.", "\"overall\": 1.")] {
        assert!(text.contains(from), "{from}");
        let read = PosteriorDocument::from_json(&text.replacen(from, to, 1));
        assert!(matches!(read, Err(DocumentError::Inconsistent(why)) if why.contains("convergence")), "{from}");
    }
    for alone in [PosteriorDocument { convergence: None, ..both.clone() }, PosteriorDocument { plain: None, ..both.clone() }] {
        assert!(PosteriorDocument::from_json(&alone.to_json()).is_err());
    }
    assert!(plain.with_noise_aware(Ok(aware(vec![0.0, 0.0, -1.0, 1.0]))).is_err());
}

/// A posterior with covariance: Λ = [2 1; 1 4], whose inverse is [4 −1; −1 2]/7.
fn full() -> PosteriorDocument {
    let text = "model.family = \"logistic-regression\"\nmodel.outcome = \"died\"\nmodel.approximation = \"full-covariance\"\nschema.file = \"s\"\n[pvi]\nschedule = \"sequential\"\nsweeps = 3\nupdate = \"pvi\"\n[privacy]\nunit = \"record\"\nadjacency = \"replace-one\"\ndelta = 1e-5\ntrust = \"local\"\nmax_units = 1000000\n";
    let context = ResolveContext { name: "f", update_deadline_seconds: 60, min_sites: 1, expected_sites: 3 };
    let task = RawTask::parse(text).unwrap().resolve(SCHEMA, context).unwrap();
    PosteriorDocument::new(&task, 0, 1, &[0.1, 0.2, 2.0, 2f64.sqrt(), 4.0], vec![], vec![]).unwrap()
}

/// A covariance of full posteriors is in plain numbers, and is checked.
#[test]
fn the_covariance_is_that_of_the_posterior() {
    let document = full();
    let covariance = document.covariance.as_ref().unwrap();
    let expected = [[4.0, -1.0], [-1.0, 2.0]];
    for (row, expected) in covariance.iter().zip(expected) {
        assert!(row.iter().zip(expected).all(|(a, b)| (a - b / 7.0).abs() < 1e-15), "{covariance:?}");
    }
    assert_eq!(PosteriorDocument::from_json(&document.to_json()).unwrap(), document);
    let mut other = document.clone();
    other.covariance.as_mut().unwrap()[0][1] += 1e-6;
    assert!(PosteriorDocument::from_json(&other.to_json()).is_err());
    other.covariance = None;
    assert!(PosteriorDocument::from_json(&other.to_json()).is_err());
}

/// −1/√8 to six decimals.
#[test]
fn the_correlation_stands_beside_the_covariance() {
    let document = full();
    assert_eq!(document.correlation.as_deref().unwrap(), [[1.0, -0.353_553], [-0.353_553, 1.0]]);
    let changed = |by: f64| {
        let mut other = document.clone();
        other.correlation.as_mut().unwrap()[0][1] += by;
        PosteriorDocument::from_json(&other.to_json())
    };
    // What another machine rounds the other way is no contradiction.
    assert!(changed(1e-6).is_ok() && matches!(changed(1e-5), Err(DocumentError::Inconsistent(_))));
}

/// Effects follow from the posterior, and are that of the noise-aware one where there is one.
#[test]
fn the_effects_are_those_of_the_posterior() {
    let document = full();
    let names: Vec<_> = document.effects.iter().map(|effect| effect.name.as_str()).collect();
    assert_eq!(names, ["age, per 1", "intercept, numbers at their centres", "intercept, numbers at 0"]);
    // One year is a twentieth of the scale.
    assert!((document.effects[0].sd.unwrap() - (4.0_f64 / 7.0).sqrt() / 20.0).abs() < 1e-15);
    let mut other = document.clone();
    other.effects[0].estimate += 1e-6;
    assert!(matches!(PosteriorDocument::from_json(&other.to_json()), Err(DocumentError::Inconsistent(_))));

    let aware = Posterior {
        natural_parameters: vec![0.1, 0.2, 1.0, 0.0, 1.0],
        signal_to_noise: 9.0,
        noise_share: None,
        scales: Vec::new(),
        precision: None,
    };
    let aware = document.clone().with_noise_aware(Ok(aware)).unwrap();
    assert!((aware.effects[0].sd.unwrap() - 1.0 / 20.0).abs() < 1e-15);
    assert_eq!(aware.correlation.as_deref().unwrap(), [[1.0, 0.0], [0.0, 1.0]]);
    assert_eq!(PosteriorDocument::from_json(&aware.to_json()).unwrap(), aware);
}

/// τ of a noise-aware posterior has a distribution of its own: it is taken as it is stated where it is in order, and all that follows from it is checked.
#[test]
fn a_scale_that_is_known_by_itself_is_checked() {
    let text = "model.family = \"logistic-regression\"\nmodel.approximation = \"full-covariance\"\nmodel.formula = \"died ~ age + (1 | site)\"\nmodel.sites = [\"a\", \"b\"]\nschema.file = \"s\"\n[pvi]\nschedule = \"synchronous\"\nrounds = 3\nupdate = \"natural-gradient\"\n[privacy]\nunit = \"record\"\nadjacency = \"replace-one\"\ndelta = 1e-5\nepsilon = 2.0\ntrust = \"local\"\nmax_units = 1000000\n";
    let context = ResolveContext { name: "f", update_deadline_seconds: 60, min_sites: 2, expected_sites: 2 };
    let task = RawTask::parse(text).unwrap().resolve(SCHEMA, context).unwrap();
    let natural = task.prior_natural();
    // A run's state has more behind its posterior.
    let state = [natural.clone(), vec![0.0; 64]].concat();
    let spread = ScaleSummary { median: 0.4, central_90: [0.1, 0.9], central_95: [0.08, 1.2] };
    let aware =
        Posterior { natural_parameters: natural, signal_to_noise: 9.0, noise_share: None, scales: vec![Some(spread)], precision: None };
    let document = PosteriorDocument::new(&task, 0, 1, &state, vec![], vec![]).unwrap().with_noise_aware(Ok(aware)).unwrap();
    let scale = &document.scales[0];
    assert!((scale.estimate - 0.4).abs() < 1e-15 && scale.members.len() == 2);
    assert!((scale.interval_95.unwrap().upper - 1.2).abs() < 1e-15);
    // The prior's variance is larger than the median's square.
    assert!(scale.members.iter().all(|member| member.known == 0.0));
    assert_eq!(PosteriorDocument::from_json(&document.to_json()).unwrap(), document);
    let wrong = |change: fn(&mut PosteriorDocument)| {
        let mut other = document.clone();
        change(&mut other);
        matches!(PosteriorDocument::from_json(&other.to_json()), Err(DocumentError::Inconsistent(why)) if why.contains("scales"))
    };
    assert!(wrong(|other| other.scales[0].estimate = 2.0), "a median outside of its interval");
    assert!(wrong(|other| other.scales[0].interval_90 = None));
    assert!(wrong(|other| other.scales[0].interval_95.as_mut().unwrap().lower = f64::MIN_POSITIVE.sqrt() - 1.0));
    assert!(wrong(|other| other.scales[0].members[1].mean += 1e-3));
    assert!(wrong(|other| other.scales[0].members[1].known = 0.5));
    assert!(wrong(|other| other.scales.clear()));
}

/// Every part that follows from the natural parameters is in the file.
#[test]
fn a_file_without_effects_or_correlation_contradicts_itself() {
    let document = full();
    for other in [PosteriorDocument { correlation: None, ..document.clone() }, PosteriorDocument { effects: vec![], ..document.clone() }] {
        assert!(matches!(PosteriorDocument::from_json(&other.to_json()), Err(DocumentError::Inconsistent(_))));
    }
}

/// A reader is told why the noise is not in the intervals, and whether there is any.
#[test]
fn without_a_noise_aware_posterior_the_document_says_why() {
    for absent in [
        Absent::Unknown,
        Absent::Late,
        Absent::Optimizer,
        Absent::Correlations,
        Absent::TooLarge(9),
        Absent::NoRound,
        Absent::Stopped,
        Absent::Diverged,
    ] {
        let document = document(&private()).with_noise_aware(Err(absent)).unwrap();
        assert!(!document.intervals.complete && document.intervals.why.contains("too narrow") && document.plain.is_none());
        assert!(document.privacy[0].remarks.iter().any(|r| r.contains(&document.intervals.why)));
    }
    for absent in [Absent::NoNoise, Absent::Included] {
        assert!(document(&open()).with_noise_aware(Err(absent)).unwrap().intervals.complete);
    }
}

#[test]
fn a_file_of_another_format_or_without_a_field_is_refused_with_words() {
    let text = document(&private()).to_json();
    let refused = |text: &str| PosteriorDocument::from_json(text).unwrap_err().to_string();
    for format in [1, 3] {
        let words = refused(&text.replacen("\"format\": 2", &format!("\"format\": {format}"), 1));
        assert!(words.contains(&format!("format {format}")) && words.contains("another version wrote it; export it again"), "{words}");
    }
    let mut fields: serde_json::Value = serde_json::from_str(&text).unwrap();
    fields.as_object_mut().unwrap().remove("intervals").unwrap();
    assert!(refused(&fields.to_string()).contains("missing field `intervals`"));
    fields.as_object_mut().unwrap().insert("other".into(), 1.into());
    assert!(refused(&fields.to_string()).contains("export it again"));
}

#[test]
fn statements_say_what_the_whole_plan_costs() {
    let site = ClientId::new("hospital-1").unwrap();
    let task = private();
    let full = statement(&task, &site, 3).unwrap();
    assert!(full.epsilon.unwrap() <= 2.0 && full.epsilon.unwrap() > 1.98);
    for answered in 0..3 {
        let fewer = statement(&task, &site, answered).unwrap();
        assert_eq!((fewer.epsilon, fewer.releases), (full.epsilon, answered));
    }
    assert!(full.remarks.iter().any(|r| r.contains("30 s")));
    assert_eq!(full.numerical_margin, full.remarks.iter().any(|r| r.contains("Numerical margin")));
    assert!(full.released.contains("5 noised sums"));
    let none = statement(&open(), &site, 2).unwrap();
    assert_eq!(none.epsilon, None);
    assert!(none.remarks.iter().any(|r| r.contains("No privacy protection")) && none.remarks[0].contains("as soon as"));
}

/// A budget that grows from visit to visit: the visits that were answered may be the dear ones.
#[test]
fn no_ledger_books_more_than_the_statement_says() {
    let site = ClientId::new("hospital-1").unwrap();
    for (growth, first_three, answered_three) in [(3.0, 0.499, 0.955), (10.0, 0.424, 0.996)] {
        let text = format!(
            "model.family = \"logistic-regression\"\nmodel.outcome = \"died\"\nmodel.prior_units = \"encoded\"\nmodel.approximation = \"mean-field\"\nschema.file = \"s\"\n[pvi]\nschedule = \"synchronous\"\nrounds = 5\n\
             update = \"natural-gradient\"\nbudget_growth = {growth:?}\n\
             [privacy]\nunit = \"record\"\nadjacency = \"replace-one\"\nepsilon = 1.0\ndelta = 1e-5\ntrust = \"local\"\nmax_units = 1000000\n"
        );
        let context = ResolveContext { name: "f", update_deadline_seconds: 60, min_sites: 1, expected_sites: 3 };
        let task = RawTask::parse(&text).unwrap().resolve(SCHEMA, context).unwrap();
        let charge = |visit: u32| Booked { event: task.visit_event(visit).unwrap(), fallback: None };
        let statement = statement(&task, &site, 3).unwrap();
        assert_eq!((statement.epsilon, statement.releases), (Some(task.loss(5).unwrap().epsilon.get()), 3));
        let answered = statement.compare(&task, &[charge(0), charge(3), charge(4)]).unwrap().epsilon.get();
        assert!((answered - answered_three).abs() < 5e-4, "{growth}: {answered}");
        // The first three visits, however many were answered, are no bound.
        let prefix = task.loss(3).unwrap().epsilon.get();
        assert!((prefix - first_three).abs() < 5e-4 && prefix < answered, "{growth}: {prefix}");
        let too_low = PrivacyStatement { epsilon: Some(prefix), ..statement.clone() };
        let refused = too_low.compare(&task, &[charge(0), charge(3), charge(4)]);
        assert!(matches!(refused, Err(StatementError::TooLow { .. })), "{refused:?}");
        // A visit that is booked twice is none of the plan's.
        let twice = statement.compare(&task, &[charge(4), charge(4)]);
        assert!(matches!(twice, Err(StatementError::NotPlanned(1))), "{twice:?}");
        assert_eq!(statement.compare(&task, &[]).unwrap().epsilon.get(), 0.0);
    }
}

#[test]
fn a_run_without_a_posterior_has_a_document_all_the_same() {
    let task = private();
    let infinite = [f64::NAN, f64::INFINITY, 1.0, 1.0];
    let Err(DocumentError::Parameters(problem)) = PosteriorDocument::new(&task, 0, 1, &infinite, vec![], vec![]) else {
        panic!("no distribution")
    };
    let statements = document(&task).privacy;
    let metrics = HeldOutMetrics { records: 10, log_likelihood: f64::NAN, ..HeldOutMetrics::default() };
    let evaluation = Evaluation { evaluator: ClientId::new("eve").unwrap(), round: 1, metrics: metrics.clone() };
    let written = PosteriorDocument::without_posterior(&task, 0, 1, &problem, statements.clone(), vec![evaluation]);
    let text = written.to_json();
    assert!(text.contains("\"log_likelihood\": \"not finite\""), "{text}");
    let back = PosteriorDocument::from_json(&text).unwrap();
    assert!(back.problem.is_some() && back.predictor().is_err());
    assert_eq!(back.privacy, statements, "what it cost is said all the same");
    assert!(back.evaluations[0].metrics.is_same(&metrics) && !back.evaluations[0].metrics.is_finite());
    // A document cannot have it both ways.
    let both = document(&task).to_json().replacen("\"privacy\":", "\"problem\": \"none\",\n  \"privacy\":", 1);
    assert!(matches!(PosteriorDocument::from_json(&both), Err(DocumentError::Inconsistent(_))));
}

/// A site's personal posterior is refused by name, whatever else is in it.
#[test]
fn a_personal_posterior_is_no_posterior_json() {
    for text in ["{\"private\": \"made from this site's records\", \"format\": 2}", "{\"format\": 1, \"private\": \"\"}"] {
        assert!(matches!(PosteriorDocument::from_json(text), Err(DocumentError::Personal)));
    }
}
