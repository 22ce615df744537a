//! `contrast`: two records compared under a posterior.

use dp_pvi_posterior::task::{RawTask, ResolveContext, ResolvedTask};
use dp_pvi_results::document::PosteriorDocument;

use crate::common::{Outcome, Site, program, write};

const COLUMNS: &str = "[[columns]]\nname = \"age\"\nkind = \"number\"\nlower = 0\nupper = 110\ncentre = 50\nscale = 20\n\
                       [[columns]]\nname = \"ward\"\nkind = \"category\"\nvalues = [\"a\", \"b\", \"c\"]\n";
const BINARY: &str = "kind = \"boolean\"\ntrue_values = [\"yes\"]\nfalse_values = [\"no\"]\n";
const NUMBER: &str = "kind = \"number\"\nlower = 0\nupper = 30\ncentre = 5\nscale = 4\n";

fn task(model: &str, label: &str) -> ResolvedTask {
    let text = format!(
        "model = {{ {model} }}\nschema.file = \"s\"\n[pvi]\nschedule = \"synchronous\"\nrounds = 3\nupdate = \"pvi\"\n\
         [privacy]\nunit = \"record\"\nadjacency = \"replace-one\"\ndelta = 1e-5\ntrust = \"local\"\nmax_units = 1000000\n"
    );
    let context = ResolveContext { name: "fed", update_deadline_seconds: 60, min_sites: 1, expected_sites: 3 };
    RawTask::parse(&text).unwrap().resolve(&format!("version = 2\n[[columns]]\nname = \"days\"\n{label}{COLUMNS}"), context).unwrap()
}

/// λ of age, b, c and the intercept: Λ = 4 I but for 2 between b and c, so that Σ has 1/3 and −1/6 there.
fn full() -> Vec<f64> {
    let coupled = 2.0 * 2f64.sqrt();
    vec![2.0, 3.0, 1.0, -4.0, 4.0, 0.0, 0.0, 0.0, 4.0, coupled, 0.0, 4.0, 0.0, 4.0]
}

/// The document of a task, and what `contrast` says of it.
struct Asked {
    site: Site,
}

impl Asked {
    fn of(document: &PosteriorDocument) -> Self {
        let site = Site::new();
        write(&site.path("posterior.json"), document.to_json());
        Self { site }
    }

    fn ask(&self, arguments: &[&str]) -> Outcome {
        let posterior = self.site.path("posterior.json");
        let mut command = program();
        command.args(["contrast", "--posterior", posterior.to_str().unwrap()]);
        Outcome::of(command.args(arguments).output().unwrap())
    }
}

fn document(task: &ResolvedTask, state: &[f64]) -> PosteriorDocument {
    PosteriorDocument::new(task, 0, 3, state, Vec::new(), Vec::new()).unwrap()
}

#[test]
fn a_contrast_has_a_ratio_with_intervals() {
    let task = task("family = \"logistic-regression\", outcome = \"days\", approximation = \"full-covariance\"", BINARY);
    let asked = Asked::of(&document(&task, &full()));
    // b − c: means 5/6 and −1/6 are 1 apart, variance 1/3 + 1/3 + 2/6 = 1.
    let both = ["age=70", "ward=b", "--against", "age=60", "ward=c"];
    let outcome = asked.ask(&[&both[..], &["--format", "json"]].concat()).expect(0, "");
    let effect = outcome.json();
    assert_eq!((effect["name"].as_str(), effect["measure"].as_str()), (Some("age: 70 against 60; ward: b against c"), Some("odds-ratio")));
    let (estimate, sd) = (1.0 + 0.5 * 0.5, (1.0_f64 + 0.25 * 0.25).sqrt());
    let near = |value: &serde_json::Value, expected: f64| assert!((value.as_f64().unwrap() - expected).abs() < 1e-12, "{value} {expected}");
    near(&effect["estimate"], estimate);
    near(&effect["sd"], sd);
    near(&effect["ratio"]["estimate"], f64::exp(estimate));
    near(&effect["ratio"]["interval_95"]["upper"], f64::exp(estimate + 1.959_963_984_540_054 * sd));
    assert!(effect.get("no_interval").is_none());
    let text = asked.ask(&both).expect(0, "").stdout;
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines[0], "age: 70 against 60; ward: b against c");
    assert!(lines[1].starts_with("  odds ratio 3.4903, 90 % from 0.6405 to 19.0197, 95 % from "), "{text}");
    assert!(lines[2].starts_with("  log odds ratio 1.2500, 90 % from -0.4455 to 2.9455"), "{text}");
    assert_eq!((lines[3], lines.len()), ("  standard deviation 1.0308", 4));
    // What the schema does not know is said with what to write.
    asked.ask(&["age=70", "--against", "age=old"]).expect(2, "`old` is no number: write one from 0 to 110");
    asked.ask(&["ward=d", "--against", "ward=a"]).expect(2, "write `a` or `b` or `c`");
    asked.ask(&["age=70", "--against", "ward=a"]).expect(2, "one record only");
    asked.ask(&["age=70"]).expect(2, "--against");
    write(&asked.site.path("posterior.json"), "{}");
    asked.ask(&both).expect(4, "posterior.json");
}

/// Under a mean field several coefficients together have an estimate, and a sentence in place of the interval.
#[test]
fn a_contrast_of_independent_coefficients_has_no_interval() {
    let task = task("family = \"linear-regression\", outcome = \"days\", noise_sd = 1.0, approximation = \"mean-field\"", NUMBER);
    let asked = Asked::of(&document(&task, &[2.0, 3.0, 1.0, -4.0, 4.0, 4.0, 4.0, 4.0]));
    let text = asked.ask(&["ward=b", "--against", "ward=c"]).expect(0, "").stdout;
    // (0.75 − 0.25) · 4 days.
    assert!(text.contains("  difference of days 2.0000\n  no interval: ") && text.contains("full-covariance"), "{text}");
    let text = asked.ask(&["ward=b", "--against", "ward=a"]).expect(0, "").stdout;
    assert!(text.contains("  difference of days 3.0000, 90 % from -0.2897 to 6.2897"), "{text}");
}

/// The document's posterior is asked unless the plain one is named, and what its intervals leave out is said.
#[test]
fn a_contrast_is_of_the_posterior_of_the_document() {
    let task = task("family = \"logistic-regression\", outcome = \"days\", approximation = \"full-covariance\"", BINARY);
    let mut aware = full();
    aware.iter_mut().for_each(|number| *number *= 0.25);
    let aware = dp_pvi_posterior::methods::noise_aware::Posterior {
        natural_parameters: aware,
        signal_to_noise: 3.0,
        noise_share: None,
        scales: Vec::new(),
        precision: None,
    };
    let plain = document(&task, &full());
    let asked = Asked::of(&plain.clone().with_noise_aware(Ok(aware)).unwrap());
    let sd = |more: &[&str], said: &str| {
        let arguments = [&["age=70", "--against", "age=50", "--format", "json"], more].concat();
        asked.ask(&arguments).expect(0, said).json()["sd"].as_f64().unwrap()
    };
    assert!((sd(&[], "") - 1.0).abs() < 1e-12 && (sd(&["--intervals", "plain"], "leaves the noise") - 0.5).abs() < 1e-12);
    let without = Asked::of(&plain.with_noise_aware(Err(dp_pvi_posterior::methods::noise_aware::Absent::Unknown)).unwrap());
    without.ask(&["age=70", "--against", "age=50"]).expect(0, "too narrow");
}
