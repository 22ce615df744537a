#![allow(clippy::unwrap_used)]

use dp_pvi_accounting::Method;
use dp_pvi_accounting::{DpEvent, Relation, SamplingRate};
use dp_pvi_schema::LabelKind;

use super::{Optimizer, RawTask, ResolveContext, ResolvedTask, ScheduleSpec, TaskError, UpdateSpec};

pub(super) const CONTEXT: ResolveContext<'_> =
    ResolveContext { name: "lung-fed", update_deadline_seconds: 60, min_sites: 2, expected_sites: 4 };

pub(crate) const SCHEMA: &str = r#"
norm_bound = 2.0

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

pub(super) const NUMERIC_LABEL: &str = r#"
norm_bound = 2.0

[[columns]]
name = "age"
kind = "number"
lower = 0
upper = 110
centre = 50
scale = 20
[[columns]]
name = "days"
kind = "number"
lower = 0
upper = 100
centre = 0
scale = 10
"#;

/// A task of private logistic regression; `edit` replaces one text by another.
fn private(edit: &[(&str, &str)]) -> String {
    let mut text = r#"
[model]
family = "logistic-regression"
outcome = "died"
prior_units = "encoded"
prior_scale = 1.0
[schema]
file = "schema.toml"
[pvi]
schedule = "sequential"
sweeps = 5
update = "dp-optimisation"
[privacy]
unit = "record"
adjacency = "replace-one"
epsilon = 1.0
delta = 1e-5
trust = "local"
max_units = 20000
"#
    .to_owned();
    for (from, to) in edit {
        assert!(text.contains(from), "{from}");
        text = text.replace(from, to);
    }
    text
}

fn open(edit: &[(&str, &str)]) -> String {
    let mut all = vec![("dp-optimisation", "pvi"), ("epsilon = 1.0\n", "")];
    all.extend(edit);
    private(&all)
}

fn resolve(text: &str, schema: &str) -> Result<ResolvedTask, TaskError> {
    RawTask::parse(text)?.resolve(schema, CONTEXT)
}

#[test]
fn defaults_become_explicit_numbers() {
    let task = resolve(&private(&[]), SCHEMA).unwrap();
    let UpdateSpec::DpOptimisation(spec) = task.update else { panic!("private") };
    assert_eq!((task.name.as_str(), task.dimension, task.max_nonzeros, task.min_sites), ("lung-fed", 2, 2, 2));
    assert_eq!((spec.steps, spec.optimizer), (5, Optimizer::Preconditioned));
    assert!((spec.clip_norm.get() - 0.7).abs() < 1e-15 && spec.weighted, "0.35 of R, which is 2");
    assert_eq!((spec.averaging, spec.level_exponent), (0.2, Some(0.25)));
    assert!((spec.sampling_rate.get() - 1.0).abs() < 1e-15);
    // K = 0.3·5·Σρ, s = √4·zC/√25.
    let way = 0.3 * 5.0 * task.damping.iter().sum::<f64>();
    let expected = 2.0 * way * 2.0 * 0.7 * spec.noise_multiplier.get() / 5.0;
    assert!((spec.step_precision - expected).abs() < 1e-9 * expected, "{} {expected}", spec.step_precision);
    assert!(spec.initial_log_scale.abs() < 1e-15 && (spec.learning_rate - 0.3).abs() < 1e-15);
    assert_eq!(task.damping.len(), 5);
    assert!((task.damping[0] - 0.5).abs() < 1e-15 && (task.damping[4] - 0.1).abs() < 1e-15);
    assert_eq!(task.schema, SCHEMA);

    let unweighted = private(&[("update = \"dp-optimisation\"\n", "update = \"dp-optimisation\"\nweighted = false\n")]);
    let UpdateSpec::DpOptimisation(spec) = resolve(&unweighted, SCHEMA).unwrap().update else { panic!("private") };
    assert_eq!((spec.clip_norm.get(), spec.averaging, spec.level_exponent), (1.0, 0.5, None));
    // K = 0.3·(5 − 1)·Σρ, and C is half of R.
    let expected = 3.0 * way / 5.0 * 4.0 * 2.0 * spec.noise_multiplier.get() / 5.0;
    assert!((spec.step_precision - expected).abs() < 1e-9 * expected, "{} {expected}", spec.step_precision);
    assert_eq!(task.prior_natural(), [0.0, 0.0, 1.0, 1.0]);
}

#[test]
fn noise_is_calibrated_to_the_whole_run_and_no_more_than_needed() {
    for adjacency in ["replace-one", "add-remove"] {
        for sampling in ["", "sampling_rate = 0.1\n", "batches = 10\n"] {
            let edit = format!("update = \"dp-optimisation\"\n{sampling}");
            let text = private(&[("replace-one", adjacency), ("update = \"dp-optimisation\"\n", &edit)]);
            let task = resolve(&text, SCHEMA).unwrap();
            let loss = task.loss(task.visits()).unwrap();
            assert!(loss.epsilon.get() <= 1.0, "{adjacency} {sampling}: {:?}", loss.epsilon);
            assert!(loss.epsilon.get() > 0.99, "{adjacency} {sampling}: {:?}", loss.epsilon);
            assert!(task.loss(task.visits() + 1).unwrap().epsilon.get() > 1.0);
            assert_eq!(loss.method, if sampling.is_empty() { Method::GaussianDp } else { Method::LossDistribution });
        }
    }
}

#[test]
fn full_batch_noise_equals_gaussian_differential_privacy() {
    // μ = 2√T/z under replace-one. μ(ε = 1, δ = 1e-5) = 0.26803 (golden: δ(μ = 0.2679, ε = 1) = 9.9068e-6).
    let UpdateSpec::DpOptimisation(spec) = resolve(&private(&[]), SCHEMA).unwrap().update else { panic!("private") };
    let mu = 2.0 * 25_f64.sqrt() / spec.noise_multiplier.get();
    assert!((0.2679..0.2682).contains(&mu), "{mu}");
}

#[test]
fn documents_are_canonical_and_checked() {
    let task = resolve(&private(&[("1e-5", "1.1e-5"), ("prior_scale = 1.0", "prior_scale = 0.1")]), SCHEMA).unwrap();
    let bytes = task.to_bytes();
    assert_eq!(ResolvedTask::from_bytes(&bytes).unwrap(), task);
    assert_eq!(ResolvedTask::from_bytes(&bytes).unwrap().hash(), task.hash());
    let text = String::from_utf8(bytes).unwrap();
    for (from, to) in [
        ("\"format\": 1", "\"format\": 2"),
        ("dp-pvi/1", "dp-pvi/0"),
        ("  \"name\"", " \"name\""),
        ("\"dimension\": 2", "\"dimension\": 3"),
        ("\"feature_bound\": 2.0", "\"feature_bound\": 1.0"),
        ("\"min_sites\": 2", "\"min_sites\": 0"),
        ("\"sweeps\": 5", "\"sweeps\": 6"),
        ("\"steps\": 5", "\"steps\": 0"),
        ("\"trust\": \"local\"", "\"trust\": \"aggregated\""),
        ("\"unit\": \"record\"", "\"unit\": \"person\""),
        ("\"approximation\": \"mean-field\"", "\"approximation\": \"full-covariance\""),
        ("\"engine\"", "\"motor\""),
    ] {
        assert!(text.contains(from), "{from}");
        assert!(ResolvedTask::from_bytes(text.replace(from, to).as_bytes()).is_err(), "{from} -> {to}");
    }
    assert!(ResolvedTask::from_bytes(b"{}").is_err());
}

#[test]
fn every_number_of_the_task_is_in_its_hash() {
    let base = resolve(&private(&[]), SCHEMA).unwrap().hash();
    for edit in [
        ("1e-5", "2e-5"),
        ("sweeps = 5", "sweeps = 6"),
        ("prior_scale = 1.0", "prior_scale = 2.0"),
        ("sweeps = 5", "sweeps = 5\nexpected_sites = 5"),
    ] {
        assert_ne!(resolve(&private(&[edit]), SCHEMA).unwrap().hash(), base, "{edit:?}");
    }
    assert_ne!(resolve(&private(&[]), &format!("{SCHEMA}\n# remark")).unwrap().hash(), base, "the schema counts byte for byte");
    assert_eq!(resolve(&private(&[]), SCHEMA).unwrap().hash(), base);
}

#[test]
fn unprotected_tasks_have_an_unprotected_event() {
    let task = resolve(&open(&[]), SCHEMA).unwrap();
    assert_eq!(task.visit_event(0).unwrap(), DpEvent::NonPrivate);
    assert_eq!(task.damping, [1.0; 5]);
    assert!(task.loss(3).unwrap().epsilon.get().is_infinite());
    let synchronous =
        open(&[("sequential", "synchronous"), ("sweeps = 5", "rounds = 7"), ("[schema]", "approximation = \"full-covariance\"\n[schema]")]);
    let task = resolve(&synchronous, SCHEMA).unwrap();
    assert_eq!(task.schedule, ScheduleSpec::Synchronous { rounds: 7 });
    assert_eq!(task.damping, [0.75; 7], "1.5/2 non-zeros");
    assert_eq!(task.prior_natural().len(), 5);
}

/// `outcome` and a formula go together where they say the same; a formula without an outcome takes the one that is named.
#[test]
fn a_formula_and_the_outcome_agree() {
    let asked = |model: &str| resolve(&private(&[("outcome = \"died\"\n", model)]), SCHEMA);
    let expected = asked("formula = \"died ~ .\"\n").unwrap().hash();
    for same in ["formula = \"died ~ .\"\noutcome = \"died\"\n", "formula = \"~ .\"\noutcome = \"died\"\n", "outcome = \"died\"\n"] {
        assert_eq!(asked(same).unwrap().hash(), expected, "{same}");
    }
    let error = asked("formula = \"age ~ .\"\noutcome = \"died\"\n").unwrap_err().to_string();
    assert!(error.contains("`outcome` says died, and the formula age"), "{error}");
}

#[test]
fn linear_regression_needs_its_own_numbers() {
    let refused = |text: &str, schema: &str| resolve(text, schema).unwrap_err().to_string();
    let days = ("outcome = \"died\"", "outcome = \"days\"");
    let linear = [("logistic-regression\"", "linear-regression\"\nnoise_sd = 0.5"), days];
    resolve(&open(&linear), NUMERIC_LABEL).unwrap();
    assert!(refused(&open(&linear[..1]), SCHEMA).contains("predicts a number"), "a class is no number");
    assert!(refused(&open(&[days]), NUMERIC_LABEL).contains("predicts one of two classes"), "a number is no class");
    assert!(refused(&open(&[("logistic", "linear"), days]), NUMERIC_LABEL).contains("noise_sd"));
    let message = refused(&private(&linear), NUMERIC_LABEL);
    assert!(message.contains("clip_norm"), "{message}");
    let task = resolve(&private(&[linear[0], days, ("delta =", "clip_norm = 3.0\ndelta =")]), NUMERIC_LABEL).unwrap();
    let UpdateSpec::DpOptimisation(spec) = task.update else { panic!("private") };
    assert!((spec.clip_norm.get() - 3.0).abs() < 1e-15);
    let given = private(&[linear[0], days, ("delta =", "clip_norm = 3.0\ndelta ="), ("sweeps = 5", "sweeps = 5\nstep_precision = 7.5")]);
    let UpdateSpec::DpOptimisation(given) = resolve(&given, NUMERIC_LABEL).unwrap().update else { panic!("private") };
    assert!(spec.step_precision > 0.0 && (given.step_precision - 7.5).abs() < 1e-15);
}

#[test]
fn expected_batches_become_rates() {
    let text = private(&[("sweeps", "expected_batch = 200\nunits_per_site = 3907\nsweeps")]);
    let UpdateSpec::DpOptimisation(spec) = resolve(&text, SCHEMA).unwrap().update else { panic!("private") };
    assert!((spec.sampling_rate.get() - 200.0 / 3907.0).abs() < 1e-9);
}

/// One epoch is the default visit; a visit is charged as so many whole epochs; the key is part of the hash where it is given, and absent elsewhere.
#[test]
fn a_visit_of_random_batches_is_whole_epochs() {
    let with = |lines: &str| resolve(&private(&[("sweeps", &format!("{lines}\nsweeps"))]), SCHEMA);
    for (lines, steps, epochs) in [("batches = 4", 4, 1), ("batches = 4\nsteps = 12", 12, 3)] {
        let task = with(lines).unwrap();
        let UpdateSpec::DpOptimisation(spec) = &task.update else { panic!("private") };
        assert_eq!((spec.steps, spec.batches, spec.sampling_rate.get()), (steps, Some(4), 0.25));
        let (event, count) = match task.visit_event(0).unwrap() {
            DpEvent::Composed { event, count } => (*event, count),
            event => (event, 1),
        };
        assert_eq!(count, epochs);
        assert!(matches!(event, DpEvent::RandomAllocation { batches: 4, .. }), "{event:?}");
        assert_eq!(ResolvedTask::from_bytes(&task.to_bytes()).unwrap(), task);
        let text = String::from_utf8(task.to_bytes()).unwrap();
        assert!(text.contains("\"batches\": 4"), "{text}");
    }
    assert!(!String::from_utf8(resolve(&private(&[]), SCHEMA).unwrap().to_bytes()).unwrap().contains("batches"));
    for (lines, words) in [
        ("batches = 4\nsteps = 6", "a visit is whole epochs: with batches = 4 give steps = 4 or a multiple of it, not 6"),
        ("batches = 1", "at least 2"),
        ("batches = 1000001", "at most 1,000,000"),
        ("batches = 4\nsampling_rate = 0.25", "not several of them"),
        ("batches = 4\nexpected_batch = 10\nunits_per_site = 40", "not several of them"),
    ] {
        let message = with(lines).unwrap_err().to_string();
        assert!(message.contains(words), "{lines}: {message}");
    }
    let mut task = with("batches = 4").unwrap();
    let UpdateSpec::DpOptimisation(spec) = &mut task.update else { panic!("private") };
    spec.sampling_rate = SamplingRate::nearest(0.5).unwrap();
    assert!(ResolvedTask::from_bytes(&task.to_bytes()).unwrap_err().to_string().contains("nearest to 1/batches"));
}

#[test]
fn combinations_that_do_not_exist_are_named() {
    let cases = [
        (private(&[("epsilon = 1.0\n", "")]), "epsilon"),
        (private(&[("epsilon = 1.0", "epsilon = inf")]), "epsilon"),
        (private(&[("trust = \"local\"", "trust = \"aggregated\"")]), "trust"),
        (private(&[("unit = \"record\"", "unit = \"site\"")]), "unit"),
        (private(&[("unit = \"record\"", "unit = \"person\"")]), "unit_column"),
        (private(&[("[schema]", "approximation = \"full-covariance\"\n[schema]")]), "mean-field"),
        (private(&[("sweeps = 5", "rounds = 5")]), "sweeps"),
        (private(&[("sweeps = 5", "sweeps = 0")]), "at least one round"),
        (private(&[("sweeps = 5", "sweeps = 5\ndamping = 1.5")]), "damping"),
        (private(&[("sweeps = 5", "sweeps = 5\ndamping = \"fast\"")]), "damping"),
        (private(&[("sweeps = 5", "sweeps = 5\nsampling_rate = 1.5")]), "sampling rate"),
        (private(&[("sweeps = 5", "sweeps = 5\nexpected_batch = 10")]), "units_per_site"),
        (private(&[("sweeps = 5", "sweeps = 5\nclip_norm = 1"), ("delta =", "clip_norm = 1\ndelta =")]), "twice"),
        (private(&[("sweeps = 5", "sweeps = 5\nlearning_rate = 0")]), "learning_rate"),
        (private(&[("sweeps = 5", "sweeps = 5\npartitions = 50")]), "partitions"),
        (private(&[("dp-optimisation", "virtual-clients")]), "virtual-clients"),
        (private(&[("prior_scale = 1.0", "prior_scale = 0.0")]), "prior_scale"),
        (private(&[("prior_scale = 1.0", "noise_sd = 1.0")]), "noise_sd"),
        (open(&[("delta =", "epsilon = 1.0\ndelta =")]), "epsilon"),
        (open(&[("sweeps = 5", "sweeps = 5\nsteps = 5")]), "steps"),
        (open(&[("sequential", "synchronous")]), "rounds"),
        (private(&[("1e-5", "0.0")]), "delta"),
    ];
    for (text, word) in cases {
        let message = resolve(&text, SCHEMA).unwrap_err().to_string();
        assert!(message.contains(word), "{word}: {message}");
    }
    let person = format!("unit_column = \"patient\"\n{SCHEMA}");
    assert!(resolve(&private(&[]), &person).unwrap_err().to_string().contains("person"));
    assert!(resolve(&private(&[("unit = \"record\"", "unit = \"person\"")]), &person).is_ok());
    assert!(matches!(resolve(&private(&[]), "norm_bound = 1.0"), Err(TaskError::Schema(_))));
}

#[test]
fn damping_is_read_in_all_its_forms() {
    for (written, last) in [("1", 1.0), ("0.5", 0.5), ("{ start = 0.4, end = 0.1 }", 0.1), ("{ start = 0.4, end = 0.1, decay = 0.5 }", 0.1)]
    {
        let text = open(&[("sweeps = 5", &format!("sweeps = 5\ndamping = {written}"))]);
        let damping = resolve(&text, SCHEMA).unwrap().damping;
        assert!((damping[4] - last).abs() < 1e-15, "{written}: {damping:?}");
    }
    assert!(resolve(&open(&[("sweeps = 5", "sweeps = 5\ndamping = { start = 0.4, end = 0.1, rate = 1 }")]), SCHEMA).is_err());
}

#[test]
fn relations_are_written_as_in_the_configuration() {
    assert_eq!(resolve(&private(&[("replace-one", "add-remove")]), SCHEMA).unwrap().privacy.relation, Relation::AddRemove);
}

/// An old λ may only move the new one by 1/(1 + its age).
#[test]
fn an_asynchronous_schedule_bounds_its_damping_by_its_staleness() {
    let schedule = "schedule = \"asynchronous\"\nmax_staleness = 3";
    let task = resolve(&private(&[("schedule = \"sequential\"", schedule)]), SCHEMA).unwrap();
    assert_eq!(task.schedule, ScheduleSpec::Asynchronous { sweeps: 5, max_staleness: 3 });
    assert_eq!((task.visits(), task.schedule.staleness()), (5, Some(3)));
    assert!(task.damping.iter().all(|rho| *rho <= 0.25 && *rho > 0.0));
    assert!(task.loss(5).unwrap().epsilon.get() <= 1.0);
    assert_eq!(ResolvedTask::from_bytes(&task.to_bytes()).unwrap(), task);
    assert!(task.schedule.to_string().contains("at most 3 rounds old"));
    for (edit, words) in [
        ("schedule = \"asynchronous\"\nmax_staleness = 3\ndamping = 0.3", "1/(1 + max_staleness)"),
        ("schedule = \"asynchronous\"\nrounds = 3", "counts the visits of a site"),
        ("schedule = \"sequential\"\nmax_staleness = 3", "belongs to schedule = \"asynchronous\""),
    ] {
        let refused = resolve(&private(&[("schedule = \"sequential\"", edit)]), SCHEMA).unwrap_err().to_string();
        assert!(refused.contains(words), "{refused}");
    }
    let gradients = private(&[("schedule = \"sequential\"", schedule), ("dp-optimisation", "natural-gradient")]);
    assert!(resolve(&gradients, SCHEMA).is_err());
}

#[test]
fn a_count_is_the_label_itself() {
    let poisson = ("logistic-regression", "poisson-regression");
    let (days, clipped) = (("outcome = \"died\"", "outcome = \"days\""), ("\"dp-optimisation\"", "\"dp-optimisation\"\nclip_norm = 2.0"));
    // Whatever centre and scale the column has for other families.
    let task = resolve(&private(&[poisson, days, clipped]), NUMERIC_LABEL).unwrap();
    assert_eq!(task.model.to_string(), "Poisson regression");
    let LabelKind::Number { rule, whole } = &task.parsed_schema().unwrap().label().kind.clone() else { panic!("a number") };
    assert!(*whole && (rule.encode(7.0) - 7.0).abs() < f64::EPSILON);
    let negative = NUMERIC_LABEL.replace("lower = 0\nupper = 100", "lower = -1\nupper = 100");
    assert!(resolve(&private(&[poisson, days, clipped]), &negative).unwrap_err().to_string().contains("a count is 0 or more"));
    assert!(resolve(&private(&[poisson, clipped]), SCHEMA).unwrap_err().to_string().contains("predicts a count"));
    // Its gradients have no public bound, so someone has to choose one.
    assert!(resolve(&private(&[poisson, days]), NUMERIC_LABEL).unwrap_err().to_string().contains("clip_norm"));
}

/// The clipping norm may adapt where no one knows one, at no further cost; where there is a public bound it may not.
#[test]
fn adaptive_clipping_is_for_networks_and_costs_nothing_more() {
    let of = |model: &str, options: &str| {
        let pvi = format!("\"dp-optimisation\"\nclip_norm = 1.0\nsampling_rate = 0.1\n{options}");
        resolve(&private(&[("\"logistic-regression\"", model), ("\"dp-optimisation\"", &pvi)]), SCHEMA)
    };
    let network = "\"neural-network\"\nhidden = [3]";
    let (fixed, adaptive) = (of(network, "").unwrap(), of(network, "adaptive_clip = { units = 4000, target = 0.8 }").unwrap());
    let spec = |task: &ResolvedTask| match &task.update {
        UpdateSpec::DpOptimisation(spec) => *spec,
        other => panic!("{other:?}"),
    };
    let (fixed, adapted) = (spec(&fixed), spec(&adaptive));
    assert!((adapted.noise_multiplier.get() / fixed.noise_multiplier.get() - 1.0).abs() < 1e-3);
    let clip = adapted.adaptive_clip.unwrap();
    assert!((clip.expected_units - 400.0).abs() < 1e-3 && (clip.target, clip.rate) == (0.8, 0.3));
    // σ_b is a twentieth of the units in the sum, and the gradient keeps nearly all of the budget.
    assert!((adapted.noise_multiplier.get() / clip.weight / clip.expected_units - 0.05).abs() < 1e-9 || clip.weight >= 0.5);
    assert!(clip.gradient_share() > 0.96);
    assert_eq!(ResolvedTask::from_bytes(&adaptive.to_bytes()).unwrap(), adaptive);
    let refused = of("\"logistic-regression\"", "adaptive_clip = { units = 4000 }").unwrap_err().to_string();
    assert!(refused.contains("public bound"), "{refused}");
}

/// Scales follow from the public schema; weights need two classes. Neither changes what a run costs.
#[test]
fn features_of_many_levels_get_more_of_the_clipping_norm() {
    let levels = "[[columns]]\nname = \"ward\"\nkind = \"category\"\ncoding = \"full\"\nvalues = [\"a\", \"b\", \"c\", \"d\"]\n";
    let schema = format!("{SCHEMA}{levels}");
    let with = |options: &str| private(&[("update = \"dp-optimisation\"\n", &format!("update = \"dp-optimisation\"\n{options}"))]);
    let task = resolve(&with("level_exponent = 0.5\nweighted = true\nclip_norm = 0.7\n"), &schema).unwrap();
    let UpdateSpec::DpOptimisation(spec) = task.update else { panic!("private") };
    let scales = spec.feature_scales(&task.setting()).unwrap();
    // One number, four levels, the intercept: mean square of 1, 2 and 1 over the columns is 2.
    let unit = 0.5_f64.sqrt();
    let expected = [unit, 2.0 * unit, 2.0 * unit, 2.0 * unit, 2.0 * unit, unit];
    assert_eq!(scales.len(), expected.len());
    scales.iter().zip(expected).for_each(|(a, b)| assert!((a - b).abs() < 1e-12, "{scales:?}"));
    let plain = resolve(&with("weighted = false\nclip_norm = 0.7\n"), &schema).unwrap();
    assert_eq!(task.visit_event(0).unwrap(), plain.visit_event(0).unwrap());
    assert_ne!(task.hash(), plain.hash());
    assert_eq!(ResolvedTask::from_bytes(&task.to_bytes()).unwrap(), task);
    let UpdateSpec::DpOptimisation(spec) = plain.update else { panic!("private") };
    assert!(spec.feature_scales(&plain.setting()).unwrap().iter().all(|a| (a - 1.0).abs() < 1e-15));
    for (options, part) in [("level_exponent = 1.5\n", "between 0 and 1"), ("level_exponent = -0.5\n", "between 0 and 1")] {
        assert!(resolve(&with(options), &schema).unwrap_err().to_string().contains(part));
    }
    let network = private(&[
        ("\"logistic-regression\"", "\"neural-network\"\nhidden = [3]"),
        ("update = \"dp-optimisation\"\n", "update = \"dp-optimisation\"\nweighted = true\nclip_norm = 1.0\n"),
    ]);
    assert!(resolve(&network, SCHEMA).unwrap_err().to_string().contains("two classes"));
}

#[test]
fn texts_with_control_characters_are_refused_in_a_task() {
    let task = resolve(&private(&[]), SCHEMA).unwrap();
    let read = |task: &ResolvedTask| ResolvedTask::from_bytes(&task.to_bytes()).map_err(|error| error.to_string());
    read(&task).unwrap();
    for text in ["three\u{1b}[1A\u{1b}[2Kepsilon 0.1", "a\nb", "a\rb", "\u{7}", "a\u{202e}b", "a\u{2028}b", "\u{9b}2J"] {
        let refused = read(&ResolvedTask { name: text.into(), ..task.clone() }).unwrap_err();
        assert!(refused.contains("control characters") && !refused.contains(text), "{refused:?}");
        // TOML can write them as escapes.
        let escaped: String = text.chars().map(|c| format!("\\u{:04x}", u32::from(c))).collect();
        for schema in [
            SCHEMA.replace("name = \"age\"", &format!("name = \"{escaped}\"")),
            SCHEMA.replace("name = \"died\"", &format!("name = \"{escaped}\"")),
            SCHEMA.replace("[\"yes\"]", &format!("[\"{escaped}\"]")),
        ] {
            let refused = resolve(&private(&[]), &schema).unwrap_err().to_string();
            assert!(!refused.chars().any(char::is_control), "{refused:?}");
            assert!(refused.contains("control characters"), "{refused:?}");
        }
    }
    // Letters of any script are no control characters.
    read(&ResolvedTask { name: "Göttingen, 東京, Αθήνα".into(), ..task }).unwrap();
}

#[test]
fn durations_and_counts_of_a_task_are_bounded() {
    let task = resolve(&private(&[]), SCHEMA).unwrap();
    let read = |change: fn(&mut ResolvedTask)| {
        let mut task = task.clone();
        change(&mut task);
        ResolvedTask::from_bytes(&task.to_bytes()).map_err(|error| error.to_string())
    };
    let refused = |change: fn(&mut ResolvedTask), part: &str| {
        let words = read(change).unwrap_err();
        assert!(words.contains(part), "{words}");
    };
    read(|task| (task.release_tick_seconds, task.update_deadline_seconds) = (86_400, 86_401)).unwrap();
    read(|task| task.release_tick_seconds = task.update_deadline_seconds - 1).unwrap();
    // Who waits for the tick would miss the round.
    refused(|task| task.release_tick_seconds = task.update_deadline_seconds, "release_tick_seconds must be below update_deadline");
    refused(|task| (task.release_tick_seconds, task.update_deadline_seconds) = (86_400, 86_400), "below update_deadline");
    refused(|task| task.release_tick_seconds = 86_401, "release_tick_seconds");
    refused(|task| task.release_tick_seconds = 4_000_000_000, "release_tick_seconds");
    refused(|task| task.release_tick_seconds = u64::MAX, "release_tick_seconds");
    read(|task| task.update_deadline_seconds = 31 * 86_400).unwrap();
    refused(|task| task.update_deadline_seconds = 31 * 86_400 + 1, "update_deadline");
    refused(|task| task.update_deadline_seconds = u64::MAX, "update_deadline");
    refused(|task| task.min_sites = u32::MAX, "min_sites");
    refused(|task| task.schedule = ScheduleSpec::Sequential { sweeps: u32::MAX }, "100000");
    refused(|task| task.privacy.max_units = Some(0), "max_units");
    refused(|task| task.privacy.max_units = Some(u64::MAX), "max_units");
    read(|task| task.privacy.max_units = Some(5000)).unwrap();
}

/// What one site that lies counts for is in every protected task, and so in its hash.
#[test]
fn a_protected_task_says_how_many_units_a_site_has_at_most() {
    let natural = (
        "schedule = \"sequential\"\nsweeps = 5\nupdate = \"dp-optimisation\"",
        "schedule = \"synchronous\"\nrounds = 3\nupdate = \"natural-gradient\"",
    );
    for edit in [vec![], vec![natural]] {
        let with = resolve(&private(&edit), SCHEMA).unwrap();
        assert_eq!((with.most_units().unwrap(), with.warnings().len()), (20_000, 0));
        assert_eq!(ResolvedTask::from_bytes(&with.to_bytes()).unwrap(), with);
        let fewer = resolve(&private(&[edit.clone(), vec![("max_units = 20000", "max_units = 700")]].concat()), SCHEMA).unwrap();
        assert_ne!(with.hash(), fewer.hash());
        let without = resolve(&private(&[edit, vec![("max_units = 20000\n", "")]].concat()), SCHEMA).unwrap_err().to_string();
        assert!(without.contains("needs max_units in [privacy]"), "{without}");
        let mut taken_out = with;
        taken_out.privacy.max_units = None;
        assert!(ResolvedTask::from_bytes(&taken_out.to_bytes()).is_err());
    }
    // Without protection nothing is counted in units.
    resolve(&open(&[("max_units = 20000\n", "")]), SCHEMA).unwrap();
}

/// A coordinator chooses these numbers: at ones that no one means, what a record sends was not clipped.
#[test]
fn numbers_that_nobody_means_are_refused() {
    let network = |model: &str, pvi: &str| {
        let text = format!(
            "[model]\nfamily = \"neural-network\"\noutcome = \"days\"\nhidden = [3]\n{model}\n[schema]\nfile = \"s\"\n[pvi]\nschedule = \"sequential\"\nsweeps = 3\n\
             update = \"dp-optimisation\"\n{pvi}\n[privacy]\nunit = \"record\"\nadjacency = \"replace-one\"\nepsilon = 1.0\ndelta = 1e-5\ntrust = \"local\"\nmax_units = 20000\n"
        );
        resolve(&text, NUMERIC_LABEL).map_err(|error| error.to_string())
    };
    let fine = network("noise_sd = 0.5", "clip_norm = 1.0").unwrap();
    for (model, pvi, why) in [
        ("noise_sd = 1e85", "clip_norm = 1e-174", "between 1e-30 and 1e30"),
        ("noise_sd = 0.5", "clip_norm = 1e-174", "clipping norms must lie between 1e-30 and 1e30"),
        ("noise_sd = 1e85", "clip_norm = 1.0", "noise_sd must be a number between 1e-30 and 1e30"),
        ("noise_sd = 0.5\nprior_units = \"encoded\"\nprior_scale = 1e-200", "clip_norm = 1.0", "prior_scale between 1e-30 and 1e30"),
        ("noise_sd = 0.5\nprior_mean = 1e200", "clip_norm = 1.0", "prior_mean must lie between -1e30 and 1e30"),
        ("noise_sd = 0.5", "clip_norm = 1.0\ncurvature_weight = 1e40", "curvature_weight must be a number between 1e-30 and 1e30"),
    ] {
        let refused = network(model, pvi).unwrap_err();
        assert!(refused.contains(why), "{model} {pvi}: {refused}");
    }
    // The other way to a task.
    let text = String::from_utf8(fine.to_bytes()).unwrap();
    for (from, to) in [("\"noise_sd\": 0.5", "\"noise_sd\": 1e85"), ("\"clip_norm\": 1.0", "\"clip_norm\": 1e-174")] {
        assert!(text.contains(from), "{from} {text}");
        assert!(ResolvedTask::from_bytes(text.replace(from, to).as_bytes()).is_err(), "{to}");
    }
}

/// What a model puts before the row belongs to no one: the effects of sites begin behind it.
#[test]
fn effects_of_sites_stand_behind_the_baseline_of_survival_times() {
    let schema = "version = 2\n[[columns]]\nname = \"t\"\nkind = \"number\"\nlower = 0\nupper = 9\ncentre = 0\nscale = 1\n[[columns]]\nname = \"d\"\nkind = \"boolean\"\n\
                  [[columns]]\nname = \"x\"\nkind = \"number\"\nlower = 0\nupper = 1\ncentre = 0\nscale = 1\n";
    let text = "[model]\nfamily = \"survival-regression\"\napproximation = \"mean-field\"\ncuts = [0, 1, 4, 9]\nprior_units = \"encoded\"\nprior_scale = 1\nformula = \"Surv(t, d) ~ x + (1 | site)\"\n\
                sites = [\"b\", \"a\"]\n[schema]\nfile = \"schema.toml\"\n[pvi]\nschedule = \"synchronous\"\nrounds = 4\nupdate = \"natural-gradient\"\n\
                residual_bound = 1\ncurvature_bound = 1\n[privacy]\nunit = \"record\"\nadjacency = \"replace-one\"\ntrust = \"local\"\nmax_units = 20000\nepsilon = 1\ndelta = 1e-5\n";
    let task = RawTask::parse(text).unwrap().resolve(schema, CONTEXT).unwrap();
    assert_eq!(task.setting().owners(), [None, None, None, None, Some(0), Some(1)]);
    let UpdateSpec::NaturalGradient(update) = &task.update else { panic!("{:?}", task.update) };
    let places = update.places(&task.setting(), 1, Some(1)).unwrap().unwrap();
    // Means and diagonal curvatures of the baselines, of x and of the own effect.
    assert_eq!(places, [0, 1, 2, 3, 5, 6, 7, 8, 9, 11]);
}
