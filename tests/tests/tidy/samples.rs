//! Sample configurations in deploy/, parsed by the code that reads them in production.

use std::collections::BTreeSet;
use std::fs;
use std::path::PathBuf;

use dp_pvi_client::config::{Config as ClientConfig, RowsBy};
use dp_pvi_description::Description;
use dp_pvi_posterior::task::{RawModel, RawPvi, RawTask, ResolveContext};
use dp_pvi_protocol::message::Role;
use dp_pvi_schema::Schema;
use dp_pvi_server::config::Config as ServerConfig;
use dp_pvi_server::summer::config::SummerConfig;
use dp_pvi_tests::methods::{Data, MODELS, Model, Update, tried};
use dp_pvi_tests::place::root;

fn deploy(name: &str) -> PathBuf {
    root().join("deploy").join(name)
}

fn read(name: &str) -> String {
    fs::read_to_string(deploy(name)).unwrap_or_else(|e| panic!("deploy/{name}: {e}"))
}

fn client(name: &str) -> ClientConfig {
    ClientConfig::parse(&read(name), &deploy(""), []).unwrap_or_else(|e| panic!("deploy/{name}: {e}"))
}

fn server(name: &str) -> ServerConfig {
    ServerConfig::parse(&read(name), &deploy(name), []).unwrap_or_else(|e| panic!("deploy/{name}: {e}"))
}

#[test]
fn the_server_s_sample_is_a_configuration() {
    let config = server("server.toml");
    assert_eq!(config.task, deploy("task.toml"));
    assert_eq!(config.federation, client("client.toml").site.federation);
}

#[test]
fn the_clients_samples_are_configurations() {
    let site = client("client.toml");
    assert_eq!(site.site.role, Role::Site);
    let private = site.private().unwrap();
    assert!(!private.budget.allow_non_private, "the sample must not invite to release without protection");
    let evaluator = client("evaluator.toml");
    assert_eq!(evaluator.site.role, Role::Evaluator);
    assert!(evaluator.private().is_err(), "an evaluator has no ledger and no budget");
}

/// The task over an OMOP database resolves with its schema, and its description has the columns of the schema.
#[test]
fn the_samples_of_an_omop_database_fit_each_other() {
    let config = client("omop/client.toml");
    let database = config.data.database.as_ref().expect("its records are in a database");
    assert!(config.data.files.is_empty() && matches!(&database.rows, RowsBy::Description(file) if file.ends_with("cohort.toml")));
    let schema = read("omop/schema.toml");
    let description = Description::parse(&read("omop/cohort.toml")).unwrap_or_else(|e| panic!("deploy/omop/cohort.toml: {e}"));
    assert!(!description.own_rows_only() && description.vouched.is_empty());
    for column in description.columns() {
        assert!(schema.contains(&format!("\"{column}\"")), "the schema has no `{column}`");
    }
    let context = ResolveContext { name: "test", update_deadline_seconds: 120, min_sites: 2, expected_sites: 3 };
    let task = RawTask::parse(&read("omop/task.toml")).unwrap().resolve(&schema, context).unwrap_or_else(|e| panic!("deploy/omop: {e}"));
    let private = config.private().unwrap();
    assert_eq!((task.privacy.unit, task.privacy.relation), (private.identity.unit, private.identity.relation));
}

/// Every task resolves with the schema beside it, and a site with the sample's budget could take part.
#[test]
fn the_tasks_resolve_within_the_sample_s_budget() {
    let schema = read("schema.toml");
    let config = server("server.toml");
    for name in ["task.toml", "compose/task.toml", "compose/aggregated.task.toml"] {
        let raw = RawTask::parse(&read(name)).unwrap_or_else(|e| panic!("deploy/{name}: {e}"));
        let context = ResolveContext {
            name: &config.federation,
            update_deadline_seconds: config.phases.update_deadline.as_secs(),
            min_sites: config.phases.min_sites,
            expected_sites: 3,
        };
        let task = raw.resolve(&schema, context).unwrap_or_else(|e| panic!("deploy/{name}: {e}"));
        let stated = task.privacy.epsilon.expect("the samples are private");
        assert!(task.loss(task.visits()).unwrap().epsilon <= stated);
        let site = client("client.toml");
        let private = site.private().unwrap();
        assert!(stated <= private.budget.per_run.unwrap());
        assert!(private.identity.relation.may_book(task.privacy.relation) && private.identity.unit == task.privacy.unit);
    }
}

/// The summer's sample belongs to the server's and the sites', and it would sign the charter of the sample task.
#[test]
fn the_summer_s_sample_fits_the_others() {
    let summer =
        SummerConfig::parse(&read("summer.toml"), &deploy("summer.toml"), []).unwrap_or_else(|e| panic!("deploy/summer.toml: {e}"));
    let server = server("server.toml");
    assert_eq!(Some(&summer.name), server.summer.as_ref());
    assert_eq!(summer.federation, server.federation);
    assert_eq!(summer.port, server.listen.port());
    let context = ResolveContext { name: "test", update_deadline_seconds: 120, min_sites: 2, expected_sites: 3 };
    let task = RawTask::parse(&read("compose/aggregated.task.toml")).unwrap().resolve(&read("schema.toml"), context).unwrap();
    let spec = task.aggregation.expect("the sample is aggregated");
    assert!(spec.min_contributors() >= summer.floors.min_contributors && spec.honest <= summer.floors.max_honest);
    assert!(spec.colluders >= summer.floors.colluders && task.visits() <= summer.floors.max_rounds);
}

/// The sample schema explains, line by line, what the generated hospitals come with.
#[test]
fn the_sample_schema_is_that_of_the_synthetic_hospitals() {
    let generated = root().join("common/simulation/src/generate/schema.toml");
    assert_eq!(Schema::parse(&read("schema.toml")).unwrap(), Schema::parse(&fs::read_to_string(generated).unwrap()).unwrap());
}

/// Keys that a table of a schema may have, as its parser names them when it meets another.
fn keys_of(schema: &str) -> Vec<String> {
    let error = Schema::parse(schema).unwrap_err().to_string();
    let (_, expected) = error.split_once("expected").unwrap_or_else(|| panic!("{error}"));
    let keys: Vec<_> = expected.split('`').skip(1).step_by(2).map(str::to_owned).collect();
    assert!(!keys.is_empty() && error.contains("no_such_key"), "{error}");
    keys
}

/// Who has a semicolon file, or a column with typing errors, finds the key in the sample, not in the source. (The configurations of the
/// programs have the same test beside their parsers.)
#[test]
fn every_key_of_a_schema_stands_in_a_sample() {
    let label = "[[columns]]\nname = \"y\"\nkind = \"boolean\"\ntrue_values = [\"1\"]\nfalse_values = [\"0\"]\n";
    let with_column = |column: &str| format!("{label}[[columns]]\nname = \"x\"\n{column}\nno_such_key = 1\n");
    let range = "lower = 0\nupper = 1\ncentre = 0\nscale = 1";
    let mut keys: Vec<String> = ["name", "kind"].map(str::to_owned).to_vec();
    for text in [
        format!("no_such_key = 1\n{label}"),
        format!("{label}[csv]\nno_such_key = 1\n"),
        format!("{label}[missing]\nno_such_key = 1\n"),
        format!("{label}no_such_key = 1\n"),
        format!("[[columns]]\nname = \"y\"\nkind = \"number\"\n{range}\nno_such_key = 1\n"),
        "[[columns]]\nname = \"y\"\nkind = \"category\"\nvalues = [\"a\", \"b\"]\nno_such_key = 1\n".into(),
        "[[columns]]\nname = \"t\"\nkind = \"number\"\nlower = 0\nupper = 1\nno_such_key = 1\ncentre = 0\nscale = 1\n[[columns]]\nname = \"d\"\nkind = \"boolean\"\n"
            .into(),
        "[[columns]]\nname = \"t\"\nkind = \"number\"\nlower = 0\nupper = 1\ncentre = 0\nscale = 1\n[[columns]]\nname = \"d\"\nkind = \"boolean\"\nno_such_key = 1\n"
            .into(),
        with_column(&format!("kind = \"number\"\n{range}")),
        with_column("kind = \"category\"\nvalues = [\"a\", \"b\"]"),
        with_column("kind = \"boolean\""),
        "kind = \"bag-of-words\"\n[bag_of_words]\nformat = \"docword\"\nwords = 4\ndocument_length = 1\nno_such_key = 1\n".into(),
        "kind = \"binary-image\"\n[binary_image]\nwidth = 1\nheight = 1\nthreshold = 1\nno_such_key = 1\n".into(),
    ] {
        keys.extend(keys_of(&text));
    }
    let samples = ["schema.toml", "experiments/kos.schema.toml", "experiments/mnist.schema.toml"].map(read).join("\n");
    let shown = |key: &str| {
        samples.lines().any(|line| {
            let line = line.trim_start_matches(['#', ' ']);
            line.strip_prefix(key).is_some_and(|rest| rest.trim_start().starts_with('='))
                || line.trim_start_matches('[').starts_with(&format!("{key}]"))
        })
    };
    let hidden: Vec<_> = keys.iter().filter(|key| !shown(key)).collect();
    assert!(hidden.is_empty(), "no sample has {hidden:?}");
    assert!(keys.len() > 40, "{keys:?}");
}

/// Keys that a table of a task may have, as its parser names them when it meets another.
fn task_keys(section: &str, rest: &str) -> Vec<String> {
    let head = [
        ("model", "family = \"logistic-regression\""),
        ("schema", "file = \"schema.toml\""),
        ("pvi", "schedule = \"synchronous\"\nrounds = 2\nupdate = \"natural-gradient\""),
        ("privacy", "unit = \"record\"\nadjacency = \"replace-one\"\nepsilon = 1.0\ndelta = 1e-5\ntrust = \"local\"\nmax_units = 1000000"),
    ];
    let table = |(name, own): &(&str, &str)| {
        let own = if *name == section && !rest.is_empty() { rest } else { own };
        let wrong = if *name == section { "no_such_key = 1\n" } else { "" };
        format!("[{name}]\n{own}\n{wrong}")
    };
    let mut text: String = head.iter().map(table).collect();
    if section == "aggregation" {
        text += "[aggregation]\nsites = 3\ncolluders = 1\nmax_units = 50\nno_such_key = 1\n";
    }
    if section.is_empty() {
        text.insert_str(0, "no_such_key = 1\n");
    }
    let error = match RawTask::parse(&text) {
        Err(error) => error.to_string(),
        Ok(raw) => {
            let context = ResolveContext { name: "t", update_deadline_seconds: 60, min_sites: 1, expected_sites: 3 };
            raw.resolve(&read("schema.toml"), context).unwrap_err().to_string()
        }
    };
    let (_, expected) = error.split_once("expected").unwrap_or_else(|| panic!("[{section}]: {error}"));
    let keys: Vec<_> = expected.split('`').skip(1).step_by(2).map(str::to_owned).collect();
    assert!(!keys.is_empty() && error.contains("no_such_key"), "{error}");
    keys
}

/// Every key that a task's own tables have is in the sample, or in an experiment's.
#[test]
fn every_key_of_a_task_stands_in_a_sample() {
    let folder = fs::read_dir(deploy("experiments")).unwrap();
    let experiments: Vec<PathBuf> =
        folder.map(|entry| entry.unwrap().path()).filter(|path| path.extension().is_some_and(|e| e == "toml")).collect();
    let mut samples = ["task.toml", "compose/task.toml", "compose/aggregated.task.toml"].map(read).join("\n");
    experiments.iter().for_each(|path| samples += &fs::read_to_string(path).unwrap());
    let shown = |key: &str| {
        samples.lines().any(|line| {
            let line = line.trim_start_matches(['#', ' ', '[']).trim_start_matches("task.");
            line.strip_prefix(key).is_some_and(|rest| rest.trim_start().starts_with(['=', ']', '.']))
        })
    };
    for section in ["", "schema", "privacy", "aggregation"] {
        let hidden: Vec<_> = task_keys(section, "").into_iter().filter(|key| !shown(key)).collect();
        assert!(hidden.is_empty(), "[{section}]: no sample has {hidden:?}");
    }
}

/// What is wrong with a task with these tables; nothing, where it can be resolved.
fn problem(model: &str, schema: &str, pvi: &str) -> String {
    let unit = if pvi.contains("site_passes") || pvi.contains("client-level") { "site" } else { "record" };
    let epsilon = if pvi.contains("\"pvi\"") { "" } else { "epsilon = 1.0\n" };
    let text = format!(
        "[model]\n{model}\n[schema]\nfile = \"s\"\n[pvi]\n{pvi}\n[privacy]\nunit = \"{unit}\"\nadjacency = \"replace-one\"\n{epsilon}delta = 1e-5\n\
         trust = \"local\"\nmax_units = 1000000\n"
    );
    let context = ResolveContext { name: "t", update_deadline_seconds: 60, min_sites: 1, expected_sites: 3 };
    let resolved = RawTask::parse(&text).and_then(|raw| raw.resolve(schema, context));
    resolved.err().map_or_else(String::new, |error| error.to_string())
}

/// A key that no parser knows. Keys are read in their order: when a parser meets it, it has read all others.
const WRONG: &str = "zz_no_such_key = 1";

/// The keys that a parser names when it meets [`WRONG`]; none where it complains about something else.
fn named(problem: &str) -> Vec<String> {
    let Some((_, expected)) = problem.split_once("unknown field `zz_no_such_key`, ") else { return Vec::new() };
    expected.split('`').skip(1).step_by(2).map(str::to_owned).collect()
}

/// The settings of a section of the sample, those that are commented out included, by their keys.
fn settings<'a>(sample: &'a str, section: &str) -> Vec<(&'a str, &'a str)> {
    let (_, rest) = sample.split_once(&format!("\n[{section}]\n")).unwrap();
    let rest = rest.split_once("\n[").map_or(rest, |(own, _)| own);
    let is_key = |key: &str| !key.is_empty() && key.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_');
    let lines = rest.lines().map(|line| line.trim_start_matches(['#', ' ']));
    lines.filter_map(|line| Some((line.split_once(" = ").filter(|(key, _)| is_key(key))?.0, line))).collect()
}

/// Lines without those of these keys, and this one.
fn with(options: &str, keys: &[&str], line: &str) -> String {
    let others = options.lines().filter(|other| other.split_once(" =").is_none_or(|(own, _)| !keys.contains(&own)));
    others.chain([line, WRONG]).collect::<Vec<_>>().join("\n")
}

/// Settings that need another beside them, or none of another key.
const TOGETHER: [(&str, &str, &str); 7] = [
    ("batches", "", "steps"),
    ("expected_batch", "units_per_site = 1000", "sampling_rate"),
    ("units_per_site", "expected_batch = 100.0", "sampling_rate"),
    ("relevance_shape", "relevance_rate = 1.0", ""),
    ("relevance_rate", "relevance_shape = 1.0", ""),
    ("clip_norms", "", "clip_norm"),
    ("clip_norm", "", "clip_norms"),
];

/// Whether some update can be resolved with this line.
fn works(key: &str, line: &str) -> bool {
    let (_, beside, without) = TOGETHER.into_iter().find(|(of, ..)| *of == key).unwrap_or_default();
    MODELS.iter().any(|model| {
        tried(model).into_iter().any(|update| {
            let others = with(&update.options(120), &[key, without], &format!("{line}\n{beside}"));
            problem(&model.options(), &Data::of(model).schema(), &others.replace(WRONG, "")).is_empty()
        })
    })
}

/// Every key of `[model]` and `[pvi]`, those of every family and update included, is in the sample of a task, with a value that is one of its
/// kind, and no other key does.
#[test]
fn every_option_of_a_model_and_of_an_update_stands_in_the_sample() {
    let sample = read("task.toml");
    let any = "schedule = \"synchronous\"\nrounds = 2\nupdate = \"natural-gradient\"";
    let model_keys = |model: &Model, line: &str| {
        let key = line.split(" =").next().unwrap_or_default();
        named(&problem(&with(&model.options(), &[key], line), &Data::of(model).schema(), any))
    };
    let update_keys = |model: &Model, update: &Update, line: &str| {
        let key = line.split(" =").next().unwrap_or_default();
        named(&problem(&model.options(), &Data::of(model).schema(), &with(&update.options(120), &[key], line)))
    };
    // Committees take this one out before the others are parsed.
    let mut keys: BTreeSet<(&str, String)> = [("pvi", "committee_prior".into())].into();
    keys.extend(RawModel::KEYS.iter().map(|key| ("model", (*key).to_owned())));
    keys.extend(RawPvi::KEYS.iter().map(|key| ("pvi", (*key).to_owned())));
    for model in MODELS {
        keys.extend(model_keys(model, "").into_iter().map(|key| ("model", key)));
        let updates = tried(model).into_iter();
        keys.extend(updates.flat_map(|update| update_keys(model, update, "")).map(|key| ("pvi", key)));
    }
    assert!(keys.len() > 60, "{keys:?}");
    let lines: Vec<_> = ["model", "pvi"]
        .into_iter()
        .flat_map(|section| settings(&sample, section).into_iter().map(move |(key, line)| (section, key, line)))
        .collect();
    let hidden: Vec<_> = keys.iter().filter(|(section, key)| !lines.iter().any(|(of, shown, _)| of == section && shown == key)).collect();
    assert!(hidden.is_empty(), "deploy/task.toml has no line for {hidden:?}");
    for (section, key, line) in lines {
        assert!(keys.contains(&(section, key.to_owned())), "[{section}] {line}: no such key");
        let takes = |keys: Vec<String>| keys.iter().any(|known| known == key);
        let common = (section == "model" && RawModel::KEYS.contains(&key)) || (section == "pvi" && RawPvi::KEYS.contains(&key));
        let read = if common {
            let replaced = |own: &str| {
                own.lines().filter(|other| !other.starts_with(&format!("{key} ="))).chain([line]).collect::<Vec<_>>().join("\n")
            };
            let (model, pvi) = ("family = \"logistic-regression\"", any);
            let (model, pvi) = if section == "model" { (replaced(model), pvi.to_owned()) } else { (model.to_owned(), replaced(pvi)) };
            RawTask::parse(&format!(
                "[model]\n{model}\n[schema]\nfile = \"s\"\n[pvi]\n{pvi}\n[privacy]\nunit = \"record\"\nadjacency = \"replace-one\"\ndelta = 1e-5\ntrust = \"local\"\nmax_units = 1000000\n"
            ))
            .is_ok()
        } else if section == "model" {
            MODELS.iter().any(|model| takes(model_keys(model, line)))
        } else {
            let takes = |model: &Model| tried(model).into_iter().any(|update| takes(update_keys(model, update, line)));
            (key == "committee_prior" || MODELS.iter().any(takes)) && works(key, line)
        };
        assert!(read, "[{section}] {line}: no family or update reads this");
    }
}

#[test]
fn every_key_of_the_samples_is_explained() {
    for name in ["server.toml", "client.toml", "summer.toml", "task.toml", "schema.toml"] {
        let text = read(name);
        let mut explained = false;
        let mut keys = 0;
        for (i, line) in text.lines().enumerate() {
            let line = line.trim();
            // A comment covers the keys right below it, up to the next blank line or table.
            if line.starts_with('#') || line.contains(" # ") {
                explained = true;
            } else if line.is_empty() || line.starts_with('[') {
                explained = false;
            } else {
                assert!(explained, "deploy/{name}:{}: nothing explains `{line}`", i + 1);
            }
            keys += usize::from(line.contains('='));
        }
        assert!(keys > 5, "deploy/{name} shows only {keys} keys");
    }
}

/// A new sample file needs a test above, or it would rot.
#[test]
fn every_sample_is_covered() {
    let covered = [
        "client.toml",
        "compose/aggregated.task.toml",
        "compose/task.toml",
        // The test of a cluster starts with these: `common/engine/federation.sh`.
        "engine/executor.toml",
        "engine/head.toml",
        "engine/scheduler.toml",
        "evaluator.toml",
        "omop/client.toml",
        "omop/cohort.toml",
        "omop/schema.toml",
        "omop/task.toml",
        "schema.toml",
        "server.toml",
        "summer.toml",
        "task.toml",
    ];
    let mut found = Vec::new();
    let mut folders = vec![deploy("")];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap().flatten() {
            let path = entry.path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|e| e == "toml") {
                found.push(path.strip_prefix(deploy("")).unwrap().to_string_lossy().into_owned());
            }
        }
    }
    // Experiments are read by the simulator's own tests, the guide's configuration by mdBook.
    found.retain(|f| !f.starts_with("experiments/") && !f.starts_with("guide/"));
    found.sort();
    assert_eq!(found, covered);
}
