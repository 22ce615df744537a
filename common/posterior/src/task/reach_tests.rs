//! Which predictors fit their link and label.
#![allow(clippy::unwrap_used)]

use crate::task::{RawTask, ResolveContext, ResolvedTask, TaskError};

const SCHEMA: &str = "version = 2\n[[columns]]\nname = \"visits\"\nkind = \"number\"\nlower = 0\nupper = 20\ncentre = 0\nscale = 1\n[[columns]]\nname = \"age\"\n\
    kind = \"number\"\nlower = 20\nupper = 90\ncentre = 55\nscale = 35\n[[columns]]\nname = \"days\"\nkind = \"number\"\nlower = 1\nupper = 2000\ncentre = 0\n\
    scale = 1\n";

fn resolved(family: &str, formula: &str, more: &str, schema: &str) -> Result<ResolvedTask, TaskError> {
    let text = format!(
        "[model]\nfamily = \"{family}\"\nformula = \"{formula}\"\n{more}\n[schema]\nfile = \"s\"\n[pvi]\nschedule = \"synchronous\"\nrounds = 3\n\
         update = \"natural-gradient\"\nresidual_bound = 5.0\ncurvature_bound = 5.0\n[privacy]\nunit = \"record\"\nadjacency = \"replace-one\"\nepsilon = 1.0\n\
         delta = 1e-5\ntrust = \"local\"\nmax_units = 20000\n"
    );
    let context = ResolveContext { name: "f", update_deadline_seconds: 60, min_sites: 1, expected_sites: 3 };
    RawTask::parse(&text).unwrap().resolve(schema, context)
}

fn refused(family: &str, formula: &str, more: &str) -> String {
    resolved(family, formula, more, SCHEMA).err().map(|error| error.to_string()).unwrap_or_default()
}

const NB: (&str, &str) = ("negative-binomial-regression", "dispersion = 1.5");

#[test]
fn an_offset_that_is_no_logarithm_is_refused() {
    for (family, more) in [("poisson-regression", ""), NB] {
        let why = refused(family, "visits ~ age + offset(days)", more);
        assert!(why.contains("between 1 and 2000") && why.contains("offset(log(…))"), "{family}: {why}");
        assert!(refused(family, "visits ~ age + offset(sqrt(days))", more).contains("offset(log(…))"));
        assert_eq!(refused(family, "visits ~ age + offset(log(days))", more), "");
        assert_eq!(refused(family, "visits ~ age + offset(scale(days))", more), "");
    }
}

#[test]
fn powers_of_a_number_that_is_not_scaled_are_refused_where_the_link_overflows() {
    let encoded = "prior_units = \"encoded\"";
    let why = refused("poisson-regression", "visits ~ poly(days, 3, raw = TRUE)", encoded);
    assert!(why.contains("e to that is no number") && why.contains("raw = TRUE"), "{why}");
    assert_eq!(refused("poisson-regression", "visits ~ poly(days, 3)", ""), "");
    assert_eq!(refused("poisson-regression", "visits ~ poly(age, 3, raw = TRUE)", ""), "");
    assert!(refused("poisson-regression", "visits ~ age + days", encoded).contains("rows are up to"));
    // What a typical difference changes does not depend on the scale.
    assert_eq!(refused("poisson-regression", "visits ~ age + days", ""), "");
    assert_eq!(refused("poisson-regression", "visits ~ age + days", "prior_units = \"encoded\"\nprior_scale = 0.01"), "");
    // A number has no such link.
    assert_eq!(refused("linear-regression", "visits ~ age + days", "noise_sd = 1.0"), "");
}

#[test]
fn an_offset_that_no_label_can_follow_is_refused() {
    let why = refused("linear-regression", "visits ~ age + offset(days)", "noise_sd = 1.0");
    assert!(why.contains("the same units"), "{why}");
    assert_eq!(refused("linear-regression", "visits ~ age + offset(log(days))", "noise_sd = 1.0"), "");
    let binary = SCHEMA.replace(
        "kind = \"number\"\nlower = 0\nupper = 20\ncentre = 0\nscale = 1",
        "kind = \"boolean\"\ntrue_values = [\"1\"]\nfalse_values = [\"0\"]",
    );
    let logit = |formula: &str| {
        let task = resolved("logistic-regression", formula, "", &binary.replace("visits", "died"));
        task.err().map(|error| error.to_string()).unwrap_or_default()
    };
    assert!(logit("died ~ age + offset(days)").contains("decides every label"));
    assert_eq!(logit("died ~ age + offset(log(days))"), "");
}

/// The prior's mean moves the range that is printed and checked.
#[test]
fn a_prior_that_decides_every_label_or_lets_nothing_differ_is_refused() {
    let died = SCHEMA.replace(
        "kind = \"number\"\nlower = 0\nupper = 20\ncentre = 0\nscale = 1",
        "kind = \"boolean\"\ntrue_values = [\"1\"]\nfalse_values = [\"0\"]",
    );
    let died = died.replace("visits", "died");
    let of = |family: &str, formula: &str, more: &str| {
        resolved(family, formula, more, &died).err().map(|error| error.to_string()).unwrap_or_default()
    };
    let with_mean = |mean: f64| format!("priors = [{{ term = \"(Intercept)\", mean = {mean}, scale = 2 }}]");
    let task = resolved("logistic-regression", "died ~ age", &with_mean(-7.0), &died).unwrap();
    let (low, high) = task.reach().unwrap().unwrap().range();
    assert!((low + high + 14.0).abs() < 1e-9, "{low} {high}");
    for mean in [1000.0, -1000.0] {
        assert!(of("logistic-regression", "died ~ age", &with_mean(mean)).contains("it decides every label by itself"), "{mean}");
    }
    assert!(of("logistic-regression", "died ~ age", "prior_units = \"encoded\"\nprior_scale = 1e6").contains("e to that is no number"));
    assert!(of("logistic-regression", "died ~ age", "prior_units = \"encoded\"\nprior_scale = 1e-6").contains("nothing can be learned"));
}

/// Who got the task from a server checks the same.
#[test]
fn the_range_is_checked_where_a_resolved_task_is_read() {
    let task = resolved("poisson-regression", "visits ~ age + offset(log(days))", "prior_units = \"encoded\"", SCHEMA).unwrap();
    let reach = task.reach().unwrap().unwrap();
    assert!(reach.offset.0 == 0.0 && (reach.offset.1 - 2000_f64.ln()).abs() < 1e-12, "{reach:?}");
    // (Intercept) and age: both at most 1, under N(0, 1).
    assert!((reach.spread - 2_f64.sqrt()).abs() < 1e-9, "{reach:?}");
    assert!(reach.text().contains("the offset alone 0 to 7.6"), "{}", reach.text());
    let text = String::from_utf8(task.to_bytes()).unwrap();
    let other = text.replace("offset(log(days))", "offset(days)");
    assert!(text != other && ResolvedTask::from_bytes(other.as_bytes()).is_err());
}
