//! Sample configurations in deploy/, parsed by the code that reads them in production.

use std::fs;
use std::path::PathBuf;

use dp_pvi_client::config::Config as ClientConfig;
use dp_pvi_posterior::schema::Schema;
use dp_pvi_posterior::task::{RawTask, ResolveContext};
use dp_pvi_protocol::message::Role;
use dp_pvi_server::config::Config as ServerConfig;
use dp_pvi_server::summer::config::SummerConfig;
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
        "evaluator.toml",
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
    // Experiments are read by the simulator's own tests.
    found.retain(|f| !f.starts_with("experiments/"));
    found.sort();
    assert_eq!(found, covered);
}
