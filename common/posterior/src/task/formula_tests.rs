//! What a formula says and a model or an update does not carry is refused, with its place in the formula.
#![allow(clippy::unwrap_used)]

use super::tests::CONTEXT;
use super::{RawTask, ResolvedTask, TaskError};
use dp_pvi_schema::SchemaError;

const COLUMNS: &str = "[[columns]]\nname = \"age\"\nkind = \"number\"\nlower = 0\nupper = 90\ncentre = 45\nscale = 45\n\
                       [[columns]]\nname = \"days\"\nkind = \"number\"\nlower = 1\nupper = 90\ncentre = 0\nscale = 1\n\
                       [[columns]]\nname = \"w\"\nkind = \"number\"\nlower = 0\nupper = 4\ncentre = 0\nscale = 1\n\
                       [[columns]]\nname = \"ward\"\nkind = \"category\"\nvalues = [\"a\", \"b\"]\n";
const BINARY: &str = "name = \"y\"\nkind = \"boolean\"\ntrue_values = [\"1\"]\nfalse_values = [\"0\"]";
const CLASSES: &str = "name = \"y\"\nkind = \"category\"\nvalues = [\"a\", \"b\", \"c\"]";
const NUMBER: &str = "name = \"y\"\nkind = \"number\"\nlower = 0\nupper = 9\ncentre = 4\nscale = 2";
const COUNT: &str = "name = \"y\"\nkind = \"number\"\nlower = 0\nupper = 9\ncentre = 0\nscale = 1";
const SURVIVAL: &str =
    "name = \"t\"\nkind = \"number\"\nlower = 0.5\nupper = 9\ncentre = 0\nscale = 1\n[[columns]]\nname = \"d\"\nkind = \"boolean\"";

const NATURAL: &str = "update = \"natural-gradient\"\nclip_norm = 1.0";
const OPTIMISATION: &str = "update = \"dp-optimisation\"\nclip_norm = 1.0\nsteps = 5\nmeasured = false";
/// With what families without bounds of their own need.
const BOUNDED: &str = "update = \"natural-gradient\"\nclip_norm = 1.0\nresidual_bound = 1.0\ncurvature_bound = 1.0";

const LOGISTIC: &str = "family = \"logistic-regression\"";

/// A task of the keys under `[model]` beside the formula, the label, and the update.
fn resolve(model: &str, label: &str, update: &str, formula: &str) -> Result<ResolvedTask, TaskError> {
    let text = format!(
        "[model]\n{model}\nformula = \"{formula}\"\n[schema]\nfile = \"s\"\n[pvi]\nschedule = \"synchronous\"\nrounds = 4\n{update}\n\
         [privacy]\nunit = \"record\"\nadjacency = \"add-remove\"\nepsilon = 1.0\ndelta = 1e-5\ntrust = \"local\"\nmax_units = 1000000\n"
    );
    RawTask::parse(&text)?.resolve(&format!("version = 2\n[[columns]]\n{label}\n{COLUMNS}"), CONTEXT)
}

#[test]
fn parts_that_a_model_or_an_update_does_not_carry_are_refused_at_their_place() {
    const SEP: &str = "update = \"sep\"\nrecords = 40";
    const OF_SITES: &str = "family = \"logistic-regression\"\nsites = [\"north\", \"south\"]";
    for (model, label, update, formula, at, part) in [
        ("family = \"multinomial-regression\"\nclasses = 3", CLASSES, NATURAL, "y ~ age + offset(log(days))", 10, "one linear predictor"),
        ("family = \"ordinal-regression\"\nclasses = 3", CLASSES, NATURAL, "y ~ offset(days) + age", 4, "one linear predictor"),
        ("family = \"probit-regression\"", BINARY, SEP, "y ~ age + offset(days)", 10, "record by record"),
        ("family = \"probit-regression\"", BINARY, SEP, "y ~ age + s(days, sd = 0.5)", 10, "record by record"),
        (LOGISTIC, BINARY, OPTIMISATION, "y ~ ward + s(age)", 11, "the server learns"),
        (LOGISTIC, BINARY, OPTIMISATION, "y ~ s(age, sd = 0.5) + (1|ward) + s(days)", 23, "the server learns"),
        (OF_SITES, BINARY, OPTIMISATION, "y ~ age + (1|ward) + (1||site)", 21, "in which a site sends its own"),
    ] {
        let error = resolve(model, label, update, formula).unwrap_err();
        let TaskError::Schema(SchemaError::Formula(error)) = error else { panic!("{formula}: {error}") };
        assert!(error.problem().contains(part), "{formula}: {error}");
        assert_eq!(error.at(), at, "{formula}: {error}");
    }
    for (model, update, formula) in [
        (LOGISTIC, NATURAL, "y ~ age + offset(log(days))"),
        (LOGISTIC, NATURAL, "y ~ ward + s(age)"),
        (LOGISTIC, OPTIMISATION, "y ~ s(age, sd = 0.5) + ward"),
        (OF_SITES, NATURAL, "y ~ age + (1||site)"),
    ] {
        resolve(model, BINARY, update, formula).unwrap_or_else(|error| panic!("{formula}: {error}"));
    }
}

/// Labels that a family does not have, and constants of a likelihood that are none: no place of the formula is at fault, and the message names the key.
#[test]
fn families_and_labels_that_do_not_fit_are_refused_by_the_name_of_the_key() {
    const MULTINOMIAL: &str = "family = \"multinomial-regression\"\nclasses = 3";
    const NEGATIVE_BINOMIAL: &str = "family = \"negative-binomial-regression\"\ndispersion = 1.5";
    let dispersion = |value: &str| NEGATIVE_BINOMIAL.replace("1.5", value);
    for (model, label, update, formula, part) in [
        (MULTINOMIAL.to_owned(), BINARY, NATURAL, "y ~ age", "kind = \"category\""),
        (MULTINOMIAL.replace('3', "4"), CLASSES, NATURAL, "y ~ age", "number of values"),
        ("family = \"ordinal-regression\"\nclasses = 3".into(), NUMBER, NATURAL, "y ~ age", "kind = \"category\""),
        (NEGATIVE_BINOMIAL.into(), CLASSES, NATURAL, "y ~ age", "kind = \"number\""),
        (NEGATIVE_BINOMIAL.into(), &COUNT.replace("upper = 9", "upper = 9.5"), NATURAL, "y ~ age", "a whole number as upper"),
        (dispersion("0.0"), COUNT, NATURAL, "y ~ age", "dispersion must be"),
        (dispersion("-1.0"), COUNT, NATURAL, "y ~ age", "dispersion must be"),
        ("family = \"poisson-regression\"".into(), BINARY, BOUNDED, "y ~ age", "predicts a count"),
        ("family = \"robust-regression\"\nscale = 1.0\ndegrees_of_freedom = 2.0".into(), NUMBER, NATURAL, "y ~ age", "above 2"),
        ("family = \"robust-regression\"\nscale = 1.0".into(), BINARY, NATURAL, "y ~ age", "kind = \"number\""),
        ("family = \"survival-regression\"\ncuts = [0, 4, 9]".into(), BINARY, BOUNDED, "y ~ age", "Surv(time, event)"),
        (
            "family = \"survival-regression\"\ncuts = [0, 4, 8]".into(),
            SURVIVAL,
            BOUNDED,
            "Surv(t, d) ~ age",
            "do not cover the time's range",
        ),
        ("family = \"survival-regression\"\ncuts = [0, 4, 4, 9]".into(), SURVIVAL, BOUNDED, "Surv(t, d) ~ age", "ascend"),
        ("family = \"weibull-regression\"\ntime_unit = 2.0".into(), BINARY, BOUNDED, "y ~ age", "Surv(time, event)"),
        (LOGISTIC.into(), CLASSES, NATURAL, "y ~ age", "kind = \"boolean\""),
        (format!("{LOGISTIC}\nweights = \"ward\""), BINARY, NATURAL, "y ~ age", "`ward`"),
        (format!("{LOGISTIC}\nweights = \"age\""), BINARY, NATURAL, "y ~ age", "`age`"),
        ("family = \"neural-network\"\nhidden = [3]\nweights = \"w\"".into(), BINARY, OPTIMISATION, "y ~ age", "weights need a regression"),
    ] {
        let error = resolve(&model, label, update, formula).map(|_| ()).unwrap_err().to_string();
        assert!(error.contains(part), "{model} {label}: {error}");
    }
}

/// The scales that a server learns are behind what sites send, and in no message.
#[test]
fn sites_send_no_learned_scales() {
    // Numbers that a site sends for each coefficient.
    for (update, epsilon, sent) in [
        ("update = \"dp-optimisation\"\nclip_norm = 1.0\nsteps = 5\nmeasured = true", "epsilon = 1.0", 5),
        ("update = \"pvi\"\ndamping = 0.5", "", 2),
    ] {
        let text = format!(
            "[model]\n{LOGISTIC}\napproximation = \"mean-field\"\nformula = \"y ~ s(age, k = 5) + (1 | ward)\"\n[schema]\nfile = \"s\"\n[pvi]\nschedule = \"synchronous\"\nrounds = 4\n{update}\n\
             [privacy]\nunit = \"record\"\nadjacency = \"add-remove\"\n{epsilon}\ndelta = 1e-5\ntrust = \"local\"\nmax_units = 1000000\n"
        );
        let task = RawTask::parse(&text).unwrap().resolve(&format!("version = 2\n[[columns]]\n{BINARY}\n{COLUMNS}"), CONTEXT).unwrap();
        let sent = sent * u64::from(task.dimension);
        assert_eq!(task.message(0).unwrap().coordinates, sent);
        assert_eq!(task.update.rules().state(&task.setting()).len, sent + 2);
    }
}

/// Of a model without an intercept nothing is left then.
#[test]
fn a_formula_of_an_intercept_alone_says_what_is_missing() {
    for formula in ["y ~ 1", "y ~ ward - ward", "y ~ offset(log(days))"] {
        let refused = resolve("family = \"ordinal-regression\"\nclasses = 3", CLASSES, NATURAL, formula).unwrap_err().to_string();
        assert!(refused.contains("nothing but an intercept"), "{formula}: {refused}");
    }
}
