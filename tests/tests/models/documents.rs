//! A task's document is hashed and signed. How a model stands in it is a promise: other bytes would be another task, and old posteriors could not
//! be read.

use dp_pvi_posterior::models;
use dp_pvi_posterior::task::{RawTask, ResolveContext, ResolvedTask};
use dp_pvi_privacy::Hash;
use dp_pvi_tests::methods::{MODELS, Model, Trust, UPDATES, Update, resolve, task, tried, tried_aggregated};
use serde_json::Value;

/// Name of a row, how its model stands in a resolved task, and the hash of a task that holds it. The task is the same but for the model, and no
/// number in it comes from a calibration.
const DOCUMENTS: &[(&str, &str, &str)] = &[
    ("linear", r#"{"family":"linear-regression","noise_sd":1.0}"#, "1e6bd0543392c5b861cc24ba9661d2d32cd4c31c45bbb11278a7c4e990b4c281"),
    ("logistic", r#"{"family":"logistic-regression"}"#, "e16cdcb5fe0ecc35af786007417c11c23aa5150b43c272cd3e43ce177de79996"),
    ("probit", r#"{"family":"probit-regression"}"#, "26478fde5b3e68b61e08c6b7acc70431198435c4cfbf63af5414bdd2a99edd92"),
    ("Poisson", r#"{"family":"poisson-regression"}"#, "7ef83967586c3cf4b75723178f81f4647587109a511a6c4923f18bde75fcee7c"),
    (
        "negative binomial",
        r#"{"family":"negative-binomial-regression","dispersion":1.5}"#,
        "e2e96d339efb57a01c7933a81fddf40e40673f766199bec1da9925f8748b9648",
    ),
    (
        "robust",
        r#"{"family":"robust-regression","degrees_of_freedom":4.0,"scale":1.0}"#,
        "200874fd0f9e25b910ca669cde0354d49672bab4eb883a87f374c6565d208bc6",
    ),
    (
        "multinomial",
        r#"{"family":"multinomial-regression","classes":3}"#,
        "209aeaea3f56ad75111186c71e1c6af906be415369fccd7c5e4be82e1e72b0d1",
    ),
    (
        "ordinal",
        r#"{"family":"ordinal-regression","classes":3,"threshold_mean":[0.0,0.5],"threshold_scale":[2.5,1.0]}"#,
        "7025b7a7a9b479df8e35720c81f0ff3547732774f692a133adb76781b7556cbc",
    ),
    (
        "survival",
        r#"{"family":"survival-regression","cuts":[0.0,1.0,3.0,10.0],"baseline_mean":-2.302585092994046,"baseline_scale":2.5}"#,
        "a63a83c856d34eca8637318d8e25ab58c068e78e3388d54f2702c253d0ca4e2d",
    ),
    (
        "Weibull",
        r#"{"family":"weibull-regression","time_unit":2.0,"shape_mean":0.0,"shape_scale":0.5}"#,
        "9e2f49459519557a6558a36b553d8e1f07cce316f1488d337a7959e5cc9df4cb",
    ),
    (
        "network",
        r#"{"family":"neural-network","hidden":[3],"output":{"kind":"binary"},"samples":2}"#,
        "05cd138e401d790aa106001b5f9a92e7a675cefe516a25f518387332dff30156",
    ),
    (
        "network of numbers",
        r#"{"family":"neural-network","hidden":[3,2],"output":{"kind":"number","noise_sd":1.0},"samples":1}"#,
        "9b82bb98f80755f11e65e174aa2d6670997c23b3e8bdf088d8ec6038d3e5b8a8",
    ),
    (
        "topics",
        r#"{"family":"latent-dirichlet","topics":2,"alpha":0.5,"eta":0.5}"#,
        "b90d058c9363efc595b2b6d3b924292eaa93b9b706d40a300c63407b137c9c47",
    ),
    (
        "mixture",
        r#"{"family":"gaussian-mixture","components":2,"noise_sd":0.5,"seed":0}"#,
        "ca1ac9a57772e51dab637a575870a3a9667fad68014ddb0ab4aa2df1b5baec70",
    ),
    ("moments", r#"{"family":"pbp-network","hidden":[3],"seed":0}"#, "c3ad0cfa6ca08209466431e9738d1ce63becb4c7cb07496393ef282ff0adc57c"),
    (
        "images",
        r#"{"family":"sigmoid-belief","hidden":2,"bias_scale":10.0,"start_seed":1,"start_scale":0.1}"#,
        "60b483c03572982a76345ca4af840ca972fe80956e5fb71432a3109d98ea3f96",
    ),
];

fn row(name: &str) -> &'static Model {
    MODELS.iter().find(|model| model.name == name).unwrap()
}

fn update(name: &str) -> &'static Update {
    UPDATES.iter().find(|update| update.name == name).unwrap()
}

#[test]
fn models_stand_in_tasks_as_they_always_did() {
    let base = resolve(row("linear"), update("pvi"), Trust::Local).unwrap();
    let mut others = Vec::new();
    for (name, document, hash) in DOCUMENTS {
        let task = resolve(row(name), tried(name)[0], Trust::Local).unwrap();
        assert_eq!(serde_json::to_string(&task.model).unwrap(), *document, "{name}");
        let value: Value = serde_json::from_str(document).unwrap();
        assert_eq!(serde_json::to_value(&task.model).unwrap(), value, "{name}");
        let other = ResolvedTask { model: task.model, ..base.clone() };
        if other.hash().to_string() != *hash {
            others.push((name, other.hash().to_string()));
        }
    }
    assert!(others.is_empty(), "the documents of these models have other hashes: {others:#?}");
}

/// A model without a line above could change its documents without anybody noticing.
#[test]
fn every_model_has_its_document_here() {
    for (name, _) in models::registered().filter(|(name, _)| *name != "gamma-regression") {
        assert!(DOCUMENTS.iter().any(|(_, document, _)| document.contains(&format!("\"family\":\"{name}\""))), "no document of {name}");
    }
}

/// Every task of the table reads back bit by bit, with its keys in any order.
#[test]
fn every_task_of_the_table_is_read_as_it_was_written() {
    let local = MODELS.iter().flat_map(|model| tried(model.name).into_iter().map(move |update| (model, update, Trust::Local)));
    let aggregated =
        MODELS.iter().flat_map(|model| tried_aggregated(model.name).into_iter().map(move |update| (model, update, Trust::Aggregated(3))));
    let mut all = Vec::new();
    for (model, update, trust) in local.chain(aggregated) {
        let task = resolve(model, update, trust).unwrap();
        let bytes = task.to_bytes();
        assert_eq!(ResolvedTask::from_bytes(&bytes).unwrap(), task, "{} with {}", update.name, model.name);
        // As a value the keys are in another order: the family is not the first one.
        let value: Value = serde_json::from_slice(&bytes).unwrap();
        assert_eq!(ResolvedTask::from_document(value.to_string().as_bytes()).unwrap(), task, "{} with {}", update.name, model.name);
        all.push(task.hash().to_string());
    }
    // To compare two builds by hand: numbers that come from a calibration may differ in the last digit between system libraries.
    eprintln!("{} tasks: {}", all.len(), Hash::of("all", &[all.concat().as_bytes()]));
}

/// Name of a row, and what is said of a key that nobody knows: in `task.toml`, and in a document.
const KNOWN: &[(&str, &str, &str)] = &[
    ("linear", "expected `noise_sd`", "expected `noise_sd`"),
    ("logistic", "there are no fields", "there are no fields"),
    ("probit", "there are no fields", "there are no fields"),
    ("Poisson", "there are no fields", "there are no fields"),
    ("negative binomial", "expected `dispersion`", "expected `dispersion`"),
    (
        "robust",
        "expected one of `degrees_of_freedom`, `scale`, `scale_shape`, `scale_rate`",
        "expected one of `degrees_of_freedom`, `scale`, `learned`",
    ),
    ("multinomial", "expected `classes`", "expected `classes`"),
    (
        "ordinal",
        "expected one of `classes`, `threshold_mean`, `threshold_scale`",
        "expected one of `classes`, `threshold_mean`, `threshold_scale`",
    ),
    ("survival", "expected one of `cuts`, `baseline_mean`, `baseline_scale`", "expected one of `cuts`, `baseline_mean`, `baseline_scale`"),
    ("Weibull", "expected one of `time_unit`, `shape_mean`, `shape_scale`", "expected one of `time_unit`, `shape_mean`, `shape_scale`"),
    ("network", "expected one of `hidden`, `noise_sd`, `classes`, `samples`", "expected one of `hidden`, `output`, `samples`"),
    ("network of numbers", "expected one of `hidden`, `noise_sd`, `classes`, `samples`", "expected one of `hidden`, `output`, `samples`"),
    ("network of classes", "expected one of `hidden`, `noise_sd`, `classes`, `samples`", "expected one of `hidden`, `output`, `samples`"),
    ("topics", "expected one of `topics`, `alpha`, `eta`", "expected one of `topics`, `alpha`, `eta`"),
    ("mixture", "expected one of `components`, `noise_sd`, `seed`", "expected one of `components`, `noise_sd`, `seed`"),
    ("moments", "expected `hidden` or `seed`", "expected `hidden` or `seed`"),
    (
        "images",
        "expected one of `hidden`, `bias_scale`, `start_seed`, `start_scale`",
        "expected one of `hidden`, `bias_scale`, `start_seed`, `start_scale`",
    ),
];

/// What is said of a task, written with this edit.
fn refused(name: &str, edit: impl Fn(String) -> String) -> String {
    let context = ResolveContext { name: "t", update_deadline_seconds: 60, min_sites: 2, expected_sites: 2 };
    let (model, text) = (row(name), edit(task(row(name), tried(name)[0], Trust::Local)));
    RawTask::parse(&text).and_then(|raw| raw.resolve(&model.data.schema(), context)).map(drop).unwrap_err().to_string()
}

/// What is said of a resolved task, with this edit.
fn unread(name: &str, edit: impl Fn(String) -> String) -> String {
    let task = resolve(row(name), tried(name)[0], Trust::Local).unwrap();
    let text = edit(String::from_utf8(task.to_bytes()).unwrap());
    let refused = ResolvedTask::from_bytes(text.as_bytes()).map(drop).unwrap_err().to_string();
    let inner = refused.strip_prefix("the task document cannot be read by this version (");
    inner.unwrap().strip_suffix("): use the same version on both sides").unwrap().to_owned()
}

#[test]
fn unknown_and_missing_keys_are_refused_by_name() {
    for (name, written, resolved) in KNOWN {
        let family = row(name).family();
        let found = refused(name, |text| text.replace("[model]\n", "[model]\ncolour = \"red\"\n"));
        assert_eq!(found, format!("task: [model] family = \"{family}\": unknown field `colour`, {written}"));
        let found = unread(name, |text| text.replace("\"family\":", "\"colour\": 1,\n    \"family\":"));
        assert!(found.starts_with(&format!("unknown field `colour`, {resolved} at line ")), "{name}: {found}");
    }
    let written = |from: &str, to: &str| refused("linear", |text| text.replace(from, to));
    assert!(
        written("noise_sd = 1.0\n", "")
            .starts_with("task: linear-regression needs noise_sd, the known standard deviation of an observation")
    );
    assert_eq!(
        written("noise_sd = 1.0\n", "noise_sd = \"much\"\n"),
        "task: [model] family = \"linear-regression\": invalid type: string \"much\", expected f64\nin `noise_sd`"
    );
    let resolved = |from: &str, to: &str| unread("linear", |text| text.replace(from, to));
    let noise = "\"noise_sd\": 1.0";
    assert_eq!(resolved(noise, "\"noise_sd\": \"much\""), "invalid type: string \"much\", expected f64 at line 8 column 3");
    assert_eq!(resolved(&format!(",\n    {noise}"), ""), "missing field `noise_sd` at line 7 column 3");
    assert_eq!(resolved(noise, &format!("{noise},\n    {noise}")), "duplicate field `noise_sd` at line 9 column 3");
    assert_eq!(resolved("\"family\": \"linear-regression\",\n", ""), "missing field `family` at line 7 column 3");
    let number = resolved("\"family\": \"linear-regression\"", "\"family\": 3");
    assert_eq!(number, "invalid type: integer `3`, expected variant identifier at line 6 column 15");
}

/// Whoever misspells a family is told all that there are.
#[test]
fn unknown_families_are_answered_with_the_known_ones() {
    let told = [
        refused("linear", |text| text.replace("linear-regression", "linear-progression")),
        unread("linear", |text| text.replace("linear-regression\",", "linear-progression\",")),
    ];
    for told in told {
        assert!(told.contains("unknown variant `linear-progression`, expected one of `"), "{told}");
        for (name, _) in models::registered() {
            assert!(told.contains(&format!("`{name}`")), "{name}: {told}");
        }
    }
}
