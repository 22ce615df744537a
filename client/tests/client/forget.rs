//! `forget`: a run that was given up.

use std::fs;

use crate::common::Site;
use dp_pvi_accounting::event::{DiscreteGaussian, LatticePath};
use dp_pvi_accounting::{DpEvent, Terms};
use dp_pvi_client::{keys, ledger};
use dp_pvi_names::{ClientId, Hash, ReleaseId, RunId};

/// μ = 0.25 under replace-one.
fn event() -> DpEvent {
    DpEvent::DiscreteGaussian(DiscreteGaussian {
        exponent: -20,
        scale: 1 << 20,
        bound_squared: 1 << 34,
        excess: 0,
        dimension: 2,
        terms: Terms::Units,
        path: LatticePath::Term,
    })
}

fn spent(site: &Site) -> f64 {
    site.run(&["budget", "show", "--format", "json"]).expect(0, "").json()["epsilon_spent"].as_f64().unwrap()
}

/// Two runs are charged, of each one visit is reserved; one of them is given up.
fn charged(site: &Site, runs: &[RunId]) {
    let config = site.config();
    let key = keys::identity(&config.tls.identity).unwrap();
    let mut ledger = ledger::open(config.private().unwrap(), key, |store| store).unwrap();
    let client = ClientId::new("hospital-1").unwrap();
    for run in runs {
        ledger.plan_run(run, &[(event(), 8)], None).unwrap();
        ledger.reserve(&ReleaseId { run: *run, client: client.clone(), round: 0 }, &event(), Hash::default()).unwrap();
    }
}

#[test]
fn a_run_that_was_given_up_is_forgotten_by_a_command_and_gives_back_what_it_never_used() {
    let site = Site::new();
    site.configure("epsilon = 2.0", "epsilon = 20.0");
    let (given_up, other) = (RunId { task: Hash([7; 32]), number: 3 }, RunId { task: Hash([9; 32]), number: 1 });
    charged(&site, &[given_up, other]);
    let before = spent(&site);
    // What the state folder keeps of both runs.
    fs::create_dir_all(site.path("state")).unwrap();
    let joined = site.path("state/records-lung-2024.json");
    let name = |run: &RunId| format!("run {} of task {}", run.number, run.task);
    let fingerprint = Hash([1; 32]);
    fs::write(&joined, format!("{{\"runs\": {{\"{}\": \"{fingerprint}\", \"{}\": \"{fingerprint}\"}}}}\n", name(&given_up), name(&other)))
        .unwrap();
    let history = |run: &RunId| site.path(&format!("state/history-lung-2024-{}-{}", &run.task.to_string()[..16], run.number));
    for run in [&given_up, &other] {
        fs::write(history(run), "kept").unwrap();
    }
    // Nothing is removed for a hash that no run has, or for too few digits.
    site.run(&["forget", &Hash([8; 32]).to_string()]).expect(2, "no run of task");
    for few in ["0707", &given_up.task.to_string()[..7]] {
        site.run(&["forget", few]).expect(2, &format!("at least 8 digits of its hash, and \"{few}\" has {}", few.len()));
    }
    site.run(&["forget", &given_up.task.to_string(), "--run", "4"]).expect(2, "no run of task");
    assert!(spent(&site) == before && history(&given_up).exists());

    let hash = given_up.task.to_string();
    let told = site.run(&["forget", &hash[..8], "--format", "json"]).expect(0, "").json();
    assert!(told["runs"] == serde_json::json!([3]) && told["task"] == hash, "{told}");
    let after = spent(&site);
    assert!(after < before && told["epsilon_before"] == before && told["epsilon_spent"] == after, "{told}: {before} {after}");
    assert!(!history(&given_up).exists() && history(&other).exists());
    let left = fs::read_to_string(&joined).unwrap();
    assert!(left.contains(&name(&other)) && !left.contains(&name(&given_up)), "{left}");
    // What came back is shown beside the run, whose own price stays.
    let shown = site.run(&["budget", "show", "--format", "json"]).expect(0, "").json();
    let of = |run: &RunId| shown["runs"].as_array().unwrap().iter().find(|shown| shown["task"] == run.task.to_string()).unwrap().clone();
    let (given_up_now, other_now) = (of(&given_up), of(&other));
    assert!(given_up_now["renounced"] == true && other_now["renounced"] == false && given_up_now["epsilon"] == other_now["epsilon"]);
    assert!((given_up_now["epsilon_given_back"].as_f64().unwrap() - (before - after)).abs() < 1e-12);
    let text = site.run(&["budget", "show"]).expect(0, "").stdout;
    assert!(text.contains("was renounced, and") && text.contains("came back"), "{text}");
    assert!(site.run(&["ledger", "show"]).expect(0, "").stdout.contains("renounced"));
    // Once is enough; the ledger is whole; with the last run its file goes.
    site.run(&["forget", &hash]).expect(2, "no run of task");
    site.run(&["ledger", "verify"]).expect(0, "");
    site.run(&["forget", &other.task.to_string()]).expect(0, "");
    assert!(!joined.exists() && !history(&other).exists());
    assert!(fs::read_to_string(site.path("state/ended-records-lung-2024.json")).unwrap().contains(&name(&given_up)));
}
