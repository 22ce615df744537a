//! A task's document is hashed and signed. How a model is in it is a promise: other bytes would be another task, and old posteriors could not
//! be read.

use dp_pvi_models as models;
use dp_pvi_models::ModelFamily;
use dp_pvi_names::Hash;
use dp_pvi_posterior::task::{RawTask, ResolveContext, ResolvedTask};
use dp_pvi_tests::methods::{Data, MODELS, Named, Trust, Update, model, resolve, task, tried, tried_aggregated, update};
use serde_json::Value;

/// Options of `[model]`, how the model is in a resolved task, and the hash of a task that holds it. The task is the same but for the model, and no
/// number in it comes from a calibration.
const DOCUMENTS: &[(&str, &str, &str)] = &[
    (
        "noise_sd = 1.0",
        r#"{"family":"linear-regression","noise_sd":1.0}"#,
        "01ef7af7783974728ad59f028d3bc78462a53cba019c150a40ed2b46d9bbf1cb",
    ),
    ("", r#"{"family":"logistic-regression"}"#, "c9dc2588c3061f3ff0b253657eac9dc0e5784c91f4e843074b88cb4720026d45"),
    ("", r#"{"family":"probit-regression"}"#, "ac51be407c98dc024c97db45d53297bdb320503692c45e5fbef7d725dab0ecb7"),
    ("", r#"{"family":"poisson-regression"}"#, "107ee4a4e4ca587e7d1bbe25fae465b555248dae0b88bf3f49a7f14c05ac1573"),
    (
        "dispersion = 1.5",
        r#"{"family":"negative-binomial-regression","dispersion":1.5}"#,
        "6691b330561186c02f6d27c542947cae496ddb82e584aad9fc8dac4004118f72",
    ),
    (
        "scale = 1.0",
        r#"{"family":"robust-regression","degrees_of_freedom":4.0,"scale":1.0}"#,
        "71a5573bc8d5175693b343b6fd96fa8f2c814c107d31b221c46a11ae260c0e23",
    ),
    (
        "classes = 3",
        r#"{"family":"multinomial-regression","classes":3}"#,
        "03abd839a2da5966fe84085c50b0e5bab0a851d27d76890ee3fd582a59a3f50f",
    ),
    (
        "classes = 3",
        r#"{"family":"ordinal-regression","classes":3,"threshold_mean":[0.0,0.5],"threshold_scale":[2.5,1.0]}"#,
        "c8bb7017085b22d79ac4b5614e57a652fadd865ce10a9fd7a501b6a9da58096a",
    ),
    (
        "cuts = [0, 1, 3, 10]",
        r#"{"family":"survival-regression","cuts":[0.0,1.0,3.0,10.0],"baseline_mean":-2.302585092994046,"baseline_scale":2.5,"least_exposure":0.5}"#,
        "b17aa23c248ff1e92c9c6964539b314cd04e80ada4ba198bf533b873e6e351d8",
    ),
    (
        "time_unit = 2.0",
        r#"{"family":"weibull-regression","time_unit":2.0,"shape_mean":0.0,"shape_scale":0.5}"#,
        "27136816af55b10eefabab0d982f2c24ae58c75aff6ec2867509fc5ea2c2faeb",
    ),
    (
        "hidden = [3]\nsamples = 2",
        r#"{"family":"neural-network","hidden":[3],"output":{"kind":"binary"},"samples":2}"#,
        "33c0a702cf728f2be646fb141947ac1df43e8e67cb0c31c78ef43b5e1c747a43",
    ),
    (
        "hidden = [3, 2]\nsamples = 1\nnoise_sd = 1.0",
        r#"{"family":"neural-network","hidden":[3,2],"output":{"kind":"number","noise_sd":1.0},"samples":1}"#,
        "36550634d309f4f7f9f1edf0ec7e2bd85b90535c80ad394d111c7dbb62a80ac2",
    ),
    (
        "topics = 2",
        r#"{"family":"latent-dirichlet","topics":2,"alpha":0.5,"eta":0.5}"#,
        "96641167396f50a1cba1a023d05addaf7c5c8efa3c64187e106bc294b6e16db3",
    ),
    (
        "components = 2\nnoise_sd = 0.5",
        r#"{"family":"gaussian-mixture","components":2,"noise_sd":0.5,"seed":0}"#,
        "28735e311ab8f570f09917eb783bcd864132ac6583455f90c5dc97695639be12",
    ),
    (
        "hidden = [3]",
        r#"{"family":"pbp-network","hidden":[3],"seed":0}"#,
        "51e5c14bc4071794391c1555dd000e8912e755db3875809c302e0e55032a5881",
    ),
    (
        "hidden = 2",
        r#"{"family":"sigmoid-belief","hidden":2,"bias_scale":10.0,"start_seed":1,"start_scale":0.1}"#,
        "57743cd220ef369f7431c3f0ee016bdfd0d60b2a100a2585f6819e84024a5de7",
    ),
];

#[test]
fn models_stand_in_tasks_as_they_always_did() {
    let base = resolve(model("linear-regression"), update("pvi"), Trust::Local).unwrap();
    let base = ResolvedTask { name: "pvi with linear".into(), ..base };
    let mut others = Vec::new();
    for (options, document, hash) in DOCUMENTS {
        let value: Value = serde_json::from_str(document).unwrap();
        let family = ModelFamily::named(value["family"].as_str().unwrap()).unwrap();
        let model = family.resolve(&options.parse().unwrap()).unwrap();
        assert_eq!(serde_json::to_string(&model).unwrap(), *document);
        assert_eq!(serde_json::to_value(&model).unwrap(), value);
        let other = ResolvedTask { model, ..base.clone() };
        if other.hash().to_string() != *hash {
            others.push((document, other.hash().to_string()));
        }
    }
    assert!(others.is_empty(), "the documents of these models have other hashes: {others:#?}");
}

/// A model without a line above could change its documents without anyone noticing.
#[test]
fn every_model_has_its_document_here() {
    for (name, _) in models::registered().filter(|(name, _)| *name != "gamma-regression") {
        assert!(DOCUMENTS.iter().any(|(_, document, _)| document.contains(&format!("\"family\":\"{name}\""))), "no document of {name}");
    }
}

/// Every task of the table reads back bit by bit, with its keys in any order.
#[test]
fn every_task_of_the_table_is_read_as_it_was_written() {
    let local = MODELS.iter().flat_map(|model| tried(model).into_iter().map(move |update| (model, update, Trust::Local)));
    let aggregated =
        MODELS.iter().flat_map(|model| tried_aggregated(model).into_iter().map(move |update| (model, update, Trust::Aggregated(3))));
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

/// Name of a row, and what is said of a key that no one knows: in `task.toml`, and in a document.
const KNOWN: &[(&str, &str, &str)] = &[
    ("linear-regression", "expected `noise_sd`", "expected `noise_sd`"),
    ("logistic-regression", "it has no settings of its own", "there are no fields"),
    ("probit-regression", "it has no settings of its own", "there are no fields"),
    ("poisson-regression", "it has no settings of its own", "there are no fields"),
    ("negative-binomial-regression", "expected `dispersion`", "expected `dispersion`"),
    (
        "robust-regression",
        "expected one of `degrees_of_freedom`, `scale`, `scale_shape`, `scale_rate`",
        "expected one of `degrees_of_freedom`, `scale`, `learned`",
    ),
    ("multinomial-regression", "expected `classes`", "expected `classes`"),
    (
        "ordinal-regression",
        "expected one of `classes`, `threshold_mean`, `threshold_scale`",
        "expected one of `classes`, `threshold_mean`, `threshold_scale`",
    ),
    (
        "survival-regression",
        "expected one of `cuts`, `baseline_mean`, `baseline_scale`, `least_exposure`",
        "expected one of `cuts`, `baseline_mean`, `baseline_scale`, `least_exposure`",
    ),
    (
        "weibull-regression",
        "expected one of `time_unit`, `shape_mean`, `shape_scale`",
        "expected one of `time_unit`, `shape_mean`, `shape_scale`",
    ),
    ("neural-network", "expected one of `hidden`, `noise_sd`, `classes`, `samples`", "expected one of `hidden`, `output`, `samples`"),
    (
        "neural-network, numbers",
        "expected one of `hidden`, `noise_sd`, `classes`, `samples`",
        "expected one of `hidden`, `output`, `samples`",
    ),
    (
        "neural-network, classes",
        "expected one of `hidden`, `noise_sd`, `classes`, `samples`",
        "expected one of `hidden`, `output`, `samples`",
    ),
    ("latent-dirichlet", "expected one of `topics`, `alpha`, `eta`", "expected one of `topics`, `alpha`, `eta`"),
    ("gaussian-mixture", "expected one of `components`, `noise_sd`, `seed`", "expected one of `components`, `noise_sd`, `seed`"),
    ("pbp-network", "expected `hidden` or `seed`", "expected `hidden` or `seed`"),
    (
        "sigmoid-belief",
        "expected one of `hidden`, `bias_scale`, `start_seed`, `start_scale`",
        "expected one of `hidden`, `bias_scale`, `start_seed`, `start_scale`",
    ),
];

/// The first update that a model is tried with.
fn first(name: &str) -> &'static Update {
    tried(model(name))[0]
}

/// What is said of a task, written with this edit.
fn refused(name: &str, edit: impl Fn(String) -> String) -> String {
    let context = ResolveContext { name: "t", update_deadline_seconds: 60, min_sites: 2, expected_sites: 2 };
    let (model, update) = (model(name), first(name));
    let text = edit(task(model, update, Trust::Local));
    RawTask::parse(&text).and_then(|raw| raw.resolve(&Data::of(model).schema(), context)).map(drop).unwrap_err().to_string()
}

/// What is said of a resolved task, with this edit.
fn unread(name: &str, edit: impl Fn(String) -> String) -> String {
    let task = resolve(model(name), first(name), Trust::Local).unwrap();
    let text = edit(String::from_utf8(task.to_bytes()).unwrap());
    let refused = ResolvedTask::from_bytes(text.as_bytes()).map(drop).unwrap_err().to_string();
    let inner = refused.strip_prefix("the task document cannot be read by this version (");
    inner.unwrap().strip_suffix("): use the same version on both sides").unwrap().to_owned()
}

#[test]
fn unknown_and_missing_keys_are_refused_by_name() {
    for (name, written, resolved) in KNOWN {
        let family = model(name).kind();
        let found = refused(name, |text| text.replace("[model]\n", "[model]\ncolour = \"red\"\n"));
        let always = "; every [model] has family, approximation, prior_mean, prior_scale, formula, outcome, sites, weights, priors";
        assert_eq!(found, format!("task: [model] family = \"{family}\": unknown field `colour`, {written}{always}"));
        let found = unread(name, |text| text.replace("\"family\":", "\"colour\": 1,\n    \"family\":"));
        assert!(found.starts_with(&format!("unknown field `colour`, {resolved} at line ")), "{name}: {found}");
    }
    let beside = refused("linear-regression", |text| text.replace("[pvi]\n", "[pvi]\ncolour = \"red\"\n"));
    assert!(beside.contains("unknown field `colour`, ") && beside.contains("; every [pvi] has schedule, rounds, sweeps, "), "{beside}");
    let written = |from: &str, to: &str| refused("linear-regression", |text| text.replace(from, to));
    assert!(
        written("noise_sd = 0.7\n", "")
            .starts_with("task: linear-regression needs noise_sd, the known standard deviation of an observation")
    );
    assert_eq!(
        written("noise_sd = 0.7\n", "noise_sd = \"much\"\n"),
        "task: [model] family = \"linear-regression\": invalid type: string \"much\", expected f64\nin `noise_sd`"
    );
    let resolved = |from: &str, to: &str| unread("linear-regression", |text| text.replace(from, to));
    let noise = "\"noise_sd\": 0.7";
    assert_eq!(resolved(noise, "\"noise_sd\": \"much\""), "invalid type: string \"much\", expected f64 at line 8 column 3");
    assert_eq!(resolved(&format!(",\n    {noise}"), ""), "missing field `noise_sd` at line 7 column 3");
    assert_eq!(resolved(noise, &format!("{noise},\n    {noise}")), "duplicate field `noise_sd` at line 9 column 3");
    assert_eq!(resolved("\"family\": \"linear-regression\",\n", ""), "missing field `family` at line 7 column 3");
    let number = resolved("\"family\": \"linear-regression\"", "\"family\": 3");
    assert_eq!(number, "invalid type: integer `3`, expected variant identifier at line 6 column 15");
}

/// Anyone who misspells a family is told all that there are.
#[test]
fn unknown_families_are_answered_with_the_known_ones() {
    let told = [
        refused("linear-regression", |text| text.replace("linear-regression", "linear-progression")),
        unread("linear-regression", |text| text.replace("linear-regression\",", "linear-progression\",")),
    ];
    for told in told {
        assert!(told.contains("unknown variant `linear-progression`, expected one of `"), "{told}");
        for (name, _) in models::registered() {
            assert!(told.contains(&format!("`{name}`")), "{name}: {told}");
        }
    }
}
