//! Real programs: how far a run is, asked while it goes on, and a run that ends by its task's rule, under both kinds of trust.

use std::fs;

use dp_pvi_results::document::PosteriorDocument;
use dp_pvi_tests::federation::{Federation, Party, Process, Server, run};
use dp_pvi_tests::regression::{Likelihood, Records, Schedule, Task};
use dp_pvi_tests::statements::statements_cover_ledgers;
use serde_json::Value;

const SITES: usize = 4;
const ROUNDS: usize = 20;

/// A rule that is met after a few rounds, where the noise is small.
const RULE: &str = "end_early = { distance = 0.3, rounds = 1 }";

fn json(text: &str) -> Value {
    serde_json::from_str(text).unwrap()
}

/// `tick`: seconds that a round takes at least.
fn federation(trust: &str, rule: &str, tick: u32) -> (Federation, Vec<Party>) {
    let aggregation = if trust == "aggregated" {
        format!("[aggregation]\nsites = {SITES}\ncolluders = 1\nmax_units = 500\n")
    } else {
        "max_units = 1000000\n".to_owned()
    };
    let task = format!(
        "[model]\nfamily = \"logistic-regression\"\nformula = \"y ~ 0 + .\"\napproximation = \"full-covariance\"\n[schema]\nfile = \"schema.toml\"\n\
         [pvi]\nschedule = \"synchronous\"\nrounds = {ROUNDS}\nrelease_tick_seconds = {tick}\nupdate = \"natural-gradient\"\n{rule}\n\
         [privacy]\nunit = \"record\"\nadjacency = \"replace-one\"\nepsilon = 40.0\ndelta = 1e-5\ntrust = \"{trust}\"\n{aggregation}"
    );
    let sites = Records::generated(300 * SITES, 3, 0).sites(&[300; SITES], Likelihood::Logistic);
    let federation = Federation::new(&task, &Task { schedule: Schedule::Synchronous(1), ..Task::default() }.schema(3), &sites);
    if trust == "aggregated" {
        federation.enrol_summer();
    }
    (federation, sites)
}

fn closed(server: &Process) -> usize {
    server.events().iter().filter(|event| event["event"] == "round-closed").count()
}

fn clients(federation: &Federation, sites: &[Party], server: &Server) -> Vec<Process> {
    sites.iter().map(|site| federation.start_client(&site.name, &server.address)).collect()
}

fn document(federation: &Federation) -> PosteriorDocument {
    PosteriorDocument::from_json(&fs::read_to_string(federation.home("server").join("results/posterior.json")).unwrap()).unwrap()
}

/// What `status` says of the run so far is what a posterior exported at that moment says.
#[test]
fn status_says_how_far_the_run_is() {
    let (federation, sites) = federation("local", "", 1);
    let server = federation.start_server();
    let clients = clients(&federation, &sites, &server);
    server.process.wait_until("three rounds have closed", |process| (closed(process) >= 3).then_some(()));
    run(&mut federation.server_command(&["pause"]));
    let paused = || json(&run(&mut federation.server_command(&["status", "--format", "json"])));
    server.process.wait_until("the run is paused", |_| (paused()["stage"] == "paused").then_some(()));
    let status = paused();
    assert_eq!((&status["rounds_planned"], &status["rounds_closed"]), (&ROUNDS.into(), &status["convergence"]["rounds"]), "{status}");
    run(&mut federation.server_command(&["export"]));
    let convergence = json(&serde_json::to_string(&document(&federation).convergence).unwrap());
    assert_eq!((&status["convergence"]["verdict"], &status["convergence"]["overall"]), (&convergence["verdict"], &convergence["overall"]));
    let text = run(&mut federation.server_command(&["status"]));
    let rounds = status["rounds_closed"].as_u64().unwrap();
    assert!(text.contains(&format!("{rounds} closed of {ROUNDS} planned")), "{text}");
    assert!(text.contains("standard deviations overall"), "{text}");
    run(&mut federation.server_command(&["stop"]));
    drop(clients);
}

/// The server makes a number of it before anyone is asked, and another process finds the same one.
#[test]
fn rounds_that_a_forecast_chooses_are_a_number_of_the_task() {
    let (federation, _) = federation("local", "expected_units = 300\nexpected_sites = 4", 0);
    let file = federation.home("server").join("task.toml");
    let text = fs::read_to_string(&file).unwrap();
    fs::write(&file, text.replace(&format!("rounds = {ROUNDS}"), "rounds = \"auto\"")).unwrap();
    let check = || json(&run(&mut federation.server_command(&["check", "--format", "json"])));
    let (first, second) = (check(), check());
    assert_eq!((&first["task_hash"], first["rounds_tried"].as_array().unwrap().len()), (&second["task_hash"], 8));
    let rounds = first["visits"].as_u64().unwrap();
    assert_eq!(first["task"]["schedule"]["rounds"], rounds);
    fs::write(&file, text.replace(&format!("rounds = {ROUNDS}"), &format!("rounds = {rounds}"))).unwrap();
    assert_eq!(check()["task_hash"], first["task_hash"], "the same task as if a person had written the number");
}

/// Everyone ends in order, and statement and books say what the plan costs.
fn ends_early(trust: &str) {
    let (federation, sites) = federation(trust, RULE, 0);
    let mut server = federation.start_server();
    let mut summer = (trust == "aggregated").then(|| federation.start_summer(&server.address));
    let mut clients = clients(&federation, &sites, &server);
    clients.iter_mut().for_each(|client| client.expect(0));
    server.process.expect(0);
    summer.iter_mut().for_each(|summer| summer.expect(0));
    assert!(server.process.events().iter().any(|event| event["event"] == "run-ended" && event["outcome"] == "converged"));
    let document = document(&federation);
    let (rounds, task) = (document.rounds, document.task().unwrap());
    assert!(rounds >= 3 && (rounds as usize) < ROUNDS, "{rounds}");
    assert!(document.intervals.complete && document.convergence.is_some(), "a posterior of the rounds that there are");
    statements_cover_ledgers(&federation);
    for statement in &document.privacy {
        assert_eq!((statement.epsilon, statement.releases), (Some(task.loss(task.visits()).unwrap().epsilon.get()), rounds));
    }
    let report = fs::read_to_string(federation.home("server").join("results/report.html")).unwrap();
    assert!(report.contains("ended by the rule of the task"));
    // What an outsider needs to find the same: states with their hashes, and how many units everyone declared.
    let transcript = federation.home("server").join("transcript");
    run(&mut federation.server_command(&["export", "--transcript", transcript.to_str().unwrap()]));
    let lines: Vec<Value> = fs::read_to_string(&transcript).unwrap().lines().map(json).collect();
    assert_eq!(lines.len(), rounds as usize + 1);
    assert_eq!((&lines[rounds as usize]["end"], &lines[rounds as usize]["units"][&sites[0].name]), (&"converged".into(), &300.into()));
    assert!(lines[..rounds as usize].iter().all(|line| line["state"].as_array().is_some_and(|state| !state.is_empty())));
    for site in &sites {
        run(&mut federation.client_command(&site.name, &["ledger", "verify", "--transcript", transcript.to_str().unwrap()]));
        let budget = json(&run(&mut federation.client_command(&site.name, &["budget", "show", "--format", "json"])));
        assert_eq!(budget["releases"], rounds, "{budget}");
        // The run keeps the price of its plan; of what is spent the visits that were never released are given back.
        assert_eq!(
            (budget["runs"][0]["epsilon"].as_f64(), &budget["runs"][0]["renounced"]),
            (document.privacy[0].epsilon, &true.into()),
            "{budget}"
        );
        assert!(budget["epsilon_spent"].as_f64() <= document.privacy[0].epsilon, "{budget}");
    }
}

#[test]
fn a_run_that_has_converged_ends_early() {
    ends_early("local");
}

#[test]
fn an_aggregated_run_that_has_converged_ends_early() {
    ends_early("aggregated");
}
