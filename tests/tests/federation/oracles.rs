//! Fits over real gRPC beside those of other programs, on the records of the golden file: without protection and with a wide prior a federation ends where `nnet::multinom`,
//! `MASS::polr`, `glm`, `survival::survreg`, a maximum of the t density, `lme4::glmer` and `mgcv::gam` do. Their fits are in the file (`regression.json`, key `oracle`), with the
//! largest distance in posterior standard deviations that a mean may have from a maximum. Where the file is missing, the test says so and is skipped.

use std::fmt::Write;

use dp_pvi_tests::federation::{Federation, Party, complete};
use dp_pvi_tests::place::shared;
use serde_json::Value;

/// The key `oracle`, or a word that it is left out.
fn oracle() -> Option<Value> {
    let text = std::fs::read_to_string(shared("reference/regression.json")?).unwrap();
    Some(serde_json::from_str::<Value>(&text).unwrap()["oracle"].clone())
}

fn numbers(value: &Value) -> Vec<f64> {
    value.as_array().unwrap_or_else(|| panic!("a list: {value}")).iter().map(|number| number.as_f64().unwrap()).collect()
}

/// A fit that is asked for.
struct Fit<'a> {
    /// Keys of `[model]`.
    model: String,
    /// Key `formula`.
    formula: &'a str,
    /// Columns of the outcome, without the first `[[columns]]`.
    label: String,
    /// Keys of `[pvi]`.
    updates: &'a str,
    /// Names of the columns, in the order of `rows`.
    columns: &'a [&'a str],
    /// Lines without their end: the columns, then what the label needs.
    rows: Vec<String>,
    /// Names of what the label needs.
    rest: &'a str,
    /// Number of the site of every row, and the sites' names.
    sites: (Vec<usize>, Vec<String>),
}

/// Three sites, one third of the rows each.
fn thirds(rows: usize) -> (Vec<usize>, Vec<String>) {
    ((0..rows).map(|row| row * 3 / rows).collect(), (1..=3).map(|site| format!("site-{site}")).collect())
}

const PVI: &str = "schedule = \"sequential\"\nsweeps = 25\nupdate = \"pvi\"";
/// Scales are learned after every round of all sites.
const ROUNDS: &str = "schedule = \"synchronous\"\nrounds = 80\nupdate = \"pvi\"\ndamping = 0.5";

impl Fit<'_> {
    /// The posterior's document.
    fn run(&self) -> Value {
        let task = format!(
            "name = \"oracle\"\n[model]\n{}\nformula = \"{}\"\napproximation = \"full-covariance\"\nprior_units = \"encoded\"\nprior_scale = 10.0\n[schema]\nfile = \"schema.toml\"\n\
             [pvi]\n{}\n[privacy]\nunit = \"record\"\nadjacency = \"replace-one\"\ndelta = 1e-5\ntrust = \"local\"\nmax_units = 1000000\n",
            self.model, self.formula, self.updates
        );
        let mut schema = format!("[[columns]]\n{}\n", self.label);
        for name in self.columns {
            let (lower, upper) = if *name == "z" { (0, 10) } else { (-10, 10) };
            // Writing to a string cannot fail.
            let _ = write!(
                schema,
                "[[columns]]\nname = \"{name}\"\nkind = \"number\"\nlower = {lower}\nupper = {upper}\ncentre = 0\nscale = 1\n"
            );
        }
        let header = format!("{},{}\n", self.columns.join(","), self.rest);
        let party = |(site, name): (usize, &String)| {
            let rows = self.rows.iter().zip(&self.sites.0).filter(|(_, of)| **of == site).map(|(row, _)| row);
            let text = rows.fold(header.clone(), |text, row| text + row + "\n");
            Party::site(name, text)
        };
        let parties: Vec<Party> = self.sites.1.iter().enumerate().map(party).collect();
        let federation = Federation::new(&task, &schema, &parties);
        complete(&federation, &parties);
        federation.posterior()
    }
}

/// Means and standard deviations of all coefficients.
fn coefficients(document: &Value) -> Vec<(f64, f64)> {
    let of = |c: &Value| (c["mean"].as_f64().unwrap(), c["sd"].as_f64().unwrap());
    document["coefficients"].as_array().unwrap().iter().map(of).collect()
}

#[track_caller]
fn near(found: &[(f64, f64)], expected: &[f64], tolerance: &Value) {
    let tolerance = tolerance.as_f64().unwrap();
    assert_eq!(found.len(), expected.len(), "{found:?} {expected:?}");
    for (j, ((mean, sd), expected)) in found.iter().zip(expected).enumerate() {
        assert!((mean - expected).abs() <= tolerance * sd, "{j}: {mean} with sd {sd}, the other program has {expected}");
    }
}

/// `x1,x2,` and the values of other keys, row by row.
fn rows(all: &Value, part: &Value, keys: &[&str], word: impl Fn(f64) -> String) -> Vec<String> {
    let others: Vec<Vec<f64>> = keys.iter().map(|key| numbers(&part[key])).collect();
    let row = |(number, x): (usize, &Value)| {
        let x = numbers(x);
        let rest: Vec<String> = others.iter().map(|values| word(values[number])).collect();
        format!("{:?},{:?},{}", x[0], x[1], rest.join(","))
    };
    all["x"].as_array().unwrap().iter().enumerate().map(row).collect()
}

fn fit<'a>(all: &Value, part: &Value, keys: &[&str], model: &str, label: &str, formula: &'a str, rest: &'a str) -> Fit<'a> {
    let rows = rows(all, part, keys, |value| format!("{value}"));
    let sites = thirds(rows.len());
    Fit { model: model.into(), formula, label: label.into(), updates: PVI, columns: &["x1", "x2"], rows, rest, sites }
}

#[test]
fn classes_and_counts_end_where_other_programs_do() {
    let Some(all) = oracle() else { return };
    let part = &all["multinomial"];
    let label = "name = \"y\"\nkind = \"category\"\nvalues = [\"0\", \"1\", \"2\"]";
    let model = "family = \"multinomial-regression\"\nclasses = 3";
    let found = fit(&all, part, &["target"], model, label, "y ~ x1 + x2", "y").run();
    near(&coefficients(&found), &numbers(&part["oracle"]), &part["tolerance_sd"]);

    let part = &all["ordinal"];
    let label = "name = \"y\"\nkind = \"category\"\nvalues = [\"1\", \"2\", \"3\", \"4\"]";
    let model = "family = \"ordinal-regression\"\nclasses = 4\nthreshold_mean = [0.0, 0.5]\nthreshold_scale = [10.0, 10.0]";
    let mut found = coefficients(&fit(&all, part, &["target"], model, label, "y ~ x1 + x2", "y").run());
    // α_j = α_(j−1) + softplus(κ_j); its standard deviation is at least the smallest of its parts'.
    for j in 3..5 {
        found[j] = (found[j - 1].0 + found[j].0.exp().ln_1p(), found[j].1.min(found[j - 1].1));
    }
    near(&found, &numbers(&part["oracle"]), &part["tolerance_sd"]);

    let part = &all["negative_binomial"];
    let model = format!("family = \"negative-binomial-regression\"\ndispersion = {}", part["dispersion"]);
    let label = "name = \"y\"\nkind = \"number\"\nlower = 0\nupper = 1000\ncentre = 0\nscale = 1";
    let found = fit(&all, part, &["target"], &model, label, "y ~ x1 + x2", "y").run();
    near(&coefficients(&found), &numbers(&part["oracle"]), &part["tolerance_sd"]);

    let part = &all["robust"];
    let model = format!("family = \"robust-regression\"\ndegrees_of_freedom = {}\nscale = {}", part["nu"], part["noise_sd"]);
    let label = "name = \"y\"\nkind = \"number\"\nlower = -1000\nupper = 1000\ncentre = 0\nscale = 1";
    let found = fit(&all, part, &["target"], &model, label, "y ~ x1 + x2", "y").run();
    near(&coefficients(&found), &numbers(&part["oracle"]), &part["tolerance_sd"]);
}

#[test]
fn survival_times_end_where_other_programs_do() {
    let Some(all) = oracle() else { return };
    let part = &all["survival"];
    let upper = numbers(&part["time"]).into_iter().fold(0.0, f64::max);
    let label = |upper: f64| {
        format!(
            "name = \"t\"\nkind = \"number\"\nlower = 0.0001\nupper = {upper:?}\ncentre = 0\nscale = 1\n[[columns]]\nname = \"died\"\nkind = \"boolean\""
        )
    };
    let mut cuts = numbers(&part["cuts"]);
    let last = cuts.last_mut().unwrap();
    *last = last.max(upper);
    let model = format!("family = \"survival-regression\"\ncuts = {cuts:?}\nbaseline_mean = 0.0\nbaseline_scale = 10.0");
    let end = cuts[cuts.len() - 1];
    let found = fit(&all, part, &["time", "event"], &model, &label(end), "Surv(t, died) ~ x1 + x2", "t,died").run();
    let found = coefficients(&found);
    near(&found, &numbers(&part["oracle"]), &part["tolerance_sd"]);
    let cox = numbers(&part["cox"]);
    near(&found[found.len() - cox.len()..], &cox, &part["tolerance_sd"]);

    let part = &all["weibull"];
    let model = format!("family = \"weibull-regression\"\ntime_unit = {}\nshape_scale = 10.0", part["time_unit"]);
    let found = fit(&all, part, &["time", "event"], &model, &label(upper), "Surv(t, died) ~ x1 + x2", "t,died").run();
    near(&coefficients(&found), &numbers(&part["oracle"]), &part["tolerance_sd"]);
}

/// Sites as sites: each has the records that the file says are its own.
#[test]
fn effects_of_sites_end_where_glmer_does() {
    let Some(all) = oracle() else { return };
    let part = &all["site"];
    let of: Vec<&str> = part["site"].as_array().unwrap().iter().map(|name| name.as_str().unwrap()).collect();
    let mut names: Vec<String> = of.iter().map(|name| (*name).to_owned()).collect();
    names.sort();
    names.dedup();
    let sites = of.iter().map(|name| names.iter().position(|own| own == name).unwrap()).collect();
    let model = format!("family = \"logistic-regression\"\nsites = {names:?}");
    let label = "name = \"y\"\nkind = \"boolean\"\ntrue_values = [\"1\"]\nfalse_values = [\"0\"]";
    let mut fit = fit(&all, part, &["target"], &model, label, "y ~ x1 + (1 | site)", "y");
    (fit.updates, fit.sites) = (ROUNDS, (sites, names));
    let document = fit.run();
    let found = coefficients(&document);
    let others = [numbers(&part["oracle_fixed"]), numbers(&part["oracle_effects"])].concat();
    near(&found, &others, &part["tolerance_sd"]);
    // The file's own fixed point, to the digits that so many rounds reach.
    for ((mean, sd), expected) in found.iter().zip(numbers(&part["mean"])) {
        assert!((mean - expected).abs() < 1e-4 * sd, "{mean} against {expected}");
    }
    let scale = document["scales"][0]["estimate"].as_f64().unwrap().powi(2);
    assert!((scale / part["oracle_tau2"].as_f64().unwrap()).ln().abs() < 2f64.ln(), "{scale}");
}

/// A curve of `gam`: the coefficients are the file's, from which the golden vectors compute the curve beside that of `mgcv`.
#[test]
fn a_smooth_curve_ends_where_gam_does() {
    let Some(all) = oracle() else { return };
    let part = &all["smooth"];
    let targets = numbers(&part["target"]);
    let rows: Vec<String> = numbers(&part["z"]).iter().zip(&targets).map(|(z, y)| format!("{z:?},{y:?}")).collect();
    let formula = format!("y ~ s(z, k = {})", part["k"]);
    let fit = Fit {
        model: format!("family = \"linear-regression\"\nnoise_sd = {}", part["noise_sd"]),
        formula: &formula,
        label: "name = \"y\"\nkind = \"number\"\nlower = -1000\nupper = 1000\ncentre = 0\nscale = 1".into(),
        updates: ROUNDS,
        columns: &["z"],
        sites: thirds(rows.len()),
        rows,
        rest: "y",
    };
    let document = fit.run();
    for ((mean, sd), expected) in coefficients(&document).iter().zip(numbers(&part["mean"])) {
        assert!((mean - expected).abs() < 1e-3 * sd, "{mean} against {expected}");
    }
    let scale = document["scales"][0]["estimate"].as_f64().unwrap().powi(2);
    assert!((scale / part["tau2"].as_f64().unwrap() - 1.0).abs() < 1e-3, "{scale}");
}
