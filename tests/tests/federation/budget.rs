//! What a site's ledger refuses, seen from outside: budget, an old copy of the ledger, disk full.

use std::fs;
use std::path::Path;
use std::process::Command;

use dp_pvi_tests::crash::{CrashPoint, OCCURRENCE, POINT};
use dp_pvi_tests::federation::{Federation, Party, outcome, run};
use dp_pvi_tests::place::binary;
use dp_pvi_tests::proxy::Proxy;
use dp_pvi_tests::regression::{Likelihood, Records, Schedule, Task};
use dp_pvi_tests::statements::statements_cover_ledgers;
use serde_json::Value;

/// One site whose update is much larger than everything else it says: 2·1500 coordinates of 8 bytes.
const WIDE: usize = 1500;
const PAYLOAD: u64 = 2 * 8 * WIDE as u64;

fn wide(visits: u32) -> (Federation, Vec<Party>) {
    let task = Task { schedule: Schedule::Synchronous(visits), ..Task::default() };
    let sites = Records::generated(6, WIDE, 0).sites(&[6], Likelihood::Logistic);
    (Federation::new(&task.toml(), &task.schema(WIDE), &sites), sites)
}

fn budget(federation: &Federation, site: &str) -> Value {
    serde_json::from_str(&run(&mut federation.client_command(site, &["budget", "show", "--format", "json"]))).unwrap()
}

/// A budget for one run. A second one is refused before its first round: the server gets a refusal with a public reason and not one byte of an update, and the client ends
/// with code 8.
#[test]
fn the_run_after_the_last_that_the_budget_pays_is_refused() {
    let (mut federation, _) = wide(3);
    federation.client_environment.insert("DP_PVI__BUDGET__EPSILON".into(), "1.0".into());
    let mut server = federation.start_server();
    let witness = Proxy::to(&server.address);
    federation.start_client("site-1", witness.address()).expect(0);
    server.process.expect(0);
    statements_cover_ledgers(&federation);
    assert!(witness.said_by_client() > 3 * PAYLOAD, "the witness sees updates when they are sent");
    let spent = budget(&federation, "site-1");
    assert_eq!(spent["releases"], 3);

    let mut server = federation.start_server_with(&["--new-run"]);
    let witness = Proxy::to(&server.address);
    let mut client = federation.start_client("site-1", witness.address());
    client.expect(8);
    assert!(witness.said_by_client() < PAYLOAD / 2, "{} bytes left the site", witness.said_by_client());
    let refused = server.process.wait_for("the site refuses", |e| e["event"] == "refused");
    assert_eq!(refused["reason"], "budget", "{refused}");
    // The only site refused: no quorum.
    server.process.expect(9);
    assert_eq!(budget(&federation, "site-1")["epsilon_spent"], spent["epsilon_spent"], "a refusal costs nothing");
}

/// No site can pay for the task: each says so before the first round, with its public reason. The server ends by itself, by name, and writes no
/// result; the reasons are in its log and were in its status.
#[test]
fn a_federation_in_which_all_sites_refuse_ends_by_itself() {
    let task = Task { schedule: Schedule::Synchronous(3), ..Task::default() };
    let sites = Records::generated(40, 3, 0).sites(&[20, 20], Likelihood::Logistic);
    let mut federation = Federation::new(&task.toml(), &task.schema(3), &sites);
    federation.client_environment.insert("DP_PVI__BUDGET__EPSILON".into(), "0.01".into());
    federation.client_environment.insert("DP_PVI__SITE__RECONNECT_SECONDS".into(), "5".into());
    let mut server = federation.start_server();
    let mut clients: Vec<_> = ["site-1", "site-2"].iter().map(|site| federation.start_client(site, &server.address)).collect();
    // One refusal leaves too few sites, so the run may end, and the server with it, before the other site has said hello: it cannot reach it then.
    let mut codes: Vec<_> = clients.iter_mut().map(|client| client.wait().code()).collect();
    codes.sort_unstable();
    assert!(codes == [Some(8), Some(8)] || codes == [Some(5), Some(8)], "{codes:?}");
    let refused = server.process.wait_for("a site refuses", |e| e["event"] == "refused");
    assert_eq!(refused["reason"], "budget", "{refused}");
    server.process.wait_for("the run is over", |e| e["event"] == "run-ended" && e["outcome"] == "refused");
    // As long as the server lingers, it says where the run stands.
    let (code, status, _) = outcome(&mut federation.server_command(&["status", "--format", "json"]));
    if code == 0 {
        let status: Value = serde_json::from_str(&status).unwrap();
        assert_eq!(status["outcome"], "refused", "{status}");
        let reasons: Vec<_> = status["members"].as_array().unwrap().iter().map(|member| &member["refused"][1]).collect();
        assert!(reasons.iter().any(|reason| *reason == "budget"), "{status}");
        assert!(reasons.iter().all(|reason| reason.is_null() || *reason == "budget"), "{status}");
    }
    server.process.expect(9);
    let log = server.process.log();
    // The run may have ended before the second one said so.
    let told =
        |site: &str| log.lines().any(|line| line.contains(site) && line.contains("had refused") && line.contains("reason=\"budget\""));
    assert!(told("site-1") || told("site-2"), "{log}");
    let home = federation.home("server");
    for file in ["posterior.json", "report.html"] {
        assert!(!home.join("results").join(file).exists() && !home.join("state").join(file).exists(), "{file}");
    }
}

/// Two servers: a data set has one ledger, whoever asks. While one client works with it a second one cannot open it, and
/// what both servers got together is what the budget paid for.
#[test]
fn two_servers_cannot_spend_one_budget_twice() {
    let task = Task { schedule: Schedule::Synchronous(3), tick: 1, ..Task::default() };
    let sites = Records::generated(40, 3, 0).sites(&[40], Likelihood::Logistic);
    let mut federation = Federation::new(&task.toml(), &task.schema(3), &sites);
    federation.client_environment.insert("DP_PVI__BUDGET__EPSILON".into(), "1.0".into());
    let mut server_1 = federation.start_server();
    // A second server of the same federation, with its own state and another task.
    let other = Task { prior_scale: 2.0, tick: 0, ..task };
    fs::write(federation.home("server").join("other-task.toml"), other.toml()).unwrap();
    for (key, value) in [("TASK__FILE", "other-task.toml"), ("SERVER__STATE", "other-state"), ("SERVER__OUTPUT", "other-results")] {
        federation.server_environment.insert(format!("DP_PVI__{key}"), value.into());
    }
    let mut server_2 = federation.start_server();

    let mut client_1 = federation.start_client("site-1", &server_1.address);
    client_1.wait_for("it has committed an update", |e| e["event"] == "committed");
    // The ledger is locked.
    federation.start_client("site-1", &server_2.address).expect(12);
    client_1.expect(0);
    server_1.process.expect(0);
    statements_cover_ledgers(&federation);
    assert_eq!(budget(&federation, "site-1")["releases"], 3);

    // The lock is free now, the budget is gone.
    let mut client_2 = federation.start_client("site-1", &server_2.address);
    client_2.expect(8);
    assert!(client_2.events().iter().all(|e| e["event"] != "sending"));
    server_2.process.expect(9);
    assert_eq!(budget(&federation, "site-1")["releases"], 3);
}

fn copy_ledger(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(to).unwrap().flatten() {
        if entry.file_name().to_string_lossy().starts_with("ledger.db") {
            fs::remove_file(entry.path()).unwrap();
        }
    }
    for entry in fs::read_dir(from).unwrap().flatten() {
        if entry.file_name().to_string_lossy().starts_with("ledger.db") {
            fs::copy(entry.path(), to.join(entry.file_name())).unwrap();
        }
    }
}

/// A ledger from three rounds back is refused with code 11, and nothing is sent; by the rollback guard, and where that is put back, too, by
/// what the server saw.
/// `DP_PVI_ROLLBACKS` sets the number of repetitions.
#[test]
fn an_old_copy_of_the_ledger_is_refused() {
    let repetitions: usize = std::env::var("DP_PVI_ROLLBACKS").map_or(5, |n| n.parse().expect("a number"));
    for repetition in 0..repetitions {
        let schedule = if repetition % 2 == 0 { Schedule::Synchronous(8) } else { Schedule::Sequential(8) };
        let task = Task { schedule, ..Task::default() };
        let sites = Records::generated(40, 3, repetition).sites(&[40], Likelihood::Logistic);
        let federation = Federation::new(&task.toml(), &task.schema(3), &sites);
        let server = federation.start_server();
        let crashing = Path::new(env!("CARGO_BIN_EXE_crashing-client"));
        let run_until_receipt = |number: usize| {
            let mut command = federation.client_command_of(crashing, "site-1", &["run", "--format", "json"]);
            command.env(POINT, CrashPoint::Receipted.name()).env(OCCURRENCE, number.to_string());
            assert_eq!(federation.start("site-1", &server.address, command).wait().code(), None);
        };
        let (data, kept) = (federation.home("site-1").join("data"), federation.home("old-copy"));
        run_until_receipt(1 + repetition % 3);
        copy_ledger(&data, &kept);
        let head = federation.home("site-1").join("state/site-1.head");
        fs::copy(&head, kept.join("site-1.head")).unwrap();
        run_until_receipt(3);
        copy_ledger(&kept, &data);
        // Anyone who puts both places back is noticed by the server alone.
        let server_alone = repetition % 3 != 0;
        if server_alone {
            fs::copy(kept.join("site-1.head"), &head).unwrap();
        }
        let mut rolled_back = federation.start_client("site-1", &server.address);
        rolled_back.expect(11);
        assert!(rolled_back.events().iter().all(|e| !["training", "sending"].contains(&e["event"].as_str().unwrap_or(""))));
        let log = rolled_back.log();
        assert!(log.contains("old copy") && log.contains("the server saw") == server_alone, "{log}");
    }
    println!("{repetitions} old copies refused");
}

/// Ten rounds, then the client is killed; the one file that an operator copies goes to another machine, where a server that remembers
/// nothing asks for a run of the same price.
#[test]
fn a_copy_of_one_file_pays_for_nothing_twice() {
    let task = Task { schedule: Schedule::Synchronous(12), ..Task::default() };
    let sites = Records::generated(40, 3, 0).sites(&[40], Likelihood::Logistic);
    let mut federation = Federation::new(&task.toml(), &task.schema(3), &sites);
    federation.client_environment.insert("DP_PVI__BUDGET__EPSILON".into(), "1.0".into());
    let mut server = federation.start_server();
    let crashing = Path::new(env!("CARGO_BIN_EXE_crashing-client"));
    let mut command = federation.client_command_of(crashing, "site-1", &["run", "--format", "json"]);
    command.env(POINT, CrashPoint::Receipted.name()).env(OCCURRENCE, "10");
    assert_eq!(federation.start("site-1", &server.address, command).wait().code(), None, "killed");
    server.process.kill();
    let before = budget(&federation, "site-1");
    assert_eq!(before["releases"], 10);

    // Another machine: the configuration, the keys and this file.
    let data = federation.home("site-1").join("data");
    let copied = fs::read(data.join("ledger.db")).unwrap();
    for entry in fs::read_dir(&data).unwrap().flatten().filter(|e| e.file_name().to_string_lossy().starts_with("ledger.db")) {
        fs::remove_file(entry.path()).unwrap();
    }
    fs::remove_dir_all(federation.home("site-1").join("state")).unwrap();
    let file = federation.home("site-1").join("copied.db");
    fs::write(&file, copied).unwrap();
    run(&mut federation.client_command("site-1", &["ledger", "restore", file.to_str().unwrap()]));
    assert_eq!(budget(&federation, "site-1")["epsilon_spent"], before["epsilon_spent"]);
    // Another task of the same price: in the same one the site would know its own visits.
    let other = Task { prior_scale: 2.0, ..task };
    fs::write(federation.home("server").join("other-task.toml"), other.toml()).unwrap();
    for (key, value) in [("TASK__FILE", "other-task.toml"), ("SERVER__STATE", "other-state"), ("SERVER__OUTPUT", "other-results")] {
        federation.server_environment.insert(format!("DP_PVI__{key}"), value.into());
    }
    let server = federation.start_server();
    let mut client = federation.start_client("site-1", &server.address);
    client.expect(8);
    assert!(client.events().iter().all(|e| e["event"] != "sending"));
}

/// The disk is full when the update is to be committed (here: a limit on the size of files). Nothing is sent, the client ends with
/// code 12, and when there is room again the run goes on under the same reservation: nothing is charged twice.
#[test]
fn a_full_disk_at_the_commit_sends_nothing_and_costs_nothing_more() {
    let (federation, _) = wide(2);
    let mut server = federation.start_server();
    let witness = Proxy::to(&server.address);
    let mut reserved_but_not_committed = 0;
    // In blocks of 512 bytes: from too little for the ledger itself to too little for the update only.
    for blocks in [8, 40, 72, 88, 96, 104, 112] {
        let client = binary("dp-pvi-client");
        let mut limited = Command::new("sh");
        limited
            .args(["-c", "trap '' XFSZ; ulimit -f $0; exec \"$@\"", &blocks.to_string()])
            .arg(client)
            .args(["run", "--format", "json", "--config"])
            .arg(federation.home("site-1").join("client.toml"))
            .envs(&federation.client_environment);
        let mut process = federation.start("site-1", witness.address(), limited);
        process.expect(12);
        let events = process.events();
        let says = |name: &str| events.iter().any(|e| e["event"] == name);
        assert!(!says("sending") && !says("committed"), "{events:?}");
        reserved_but_not_committed += u32::from(says("training"));
    }
    assert!(reserved_but_not_committed > 0, "some limit lies between the reservation and the update");
    assert!(witness.said_by_client() < 7 * PAYLOAD / 2);

    federation.start_client("site-1", witness.address()).expect(0);
    server.process.expect(0);
    statements_cover_ledgers(&federation);
    let spent = budget(&federation, "site-1");
    assert_eq!(spent["releases"], 2, "two visits, two charges: {spent}");
}

/// Code 8 also when the site does not allow what the task is, before any budget is looked at.
#[test]
fn a_task_without_protection_needs_the_site_s_word() {
    let task = Task { epsilon: None, ..Task::default() };
    let sites = Records::generated(20, 2, 0).sites(&[20], Likelihood::Logistic);
    let mut federation = Federation::new(&task.toml(), &task.schema(2), &sites);
    federation.client_environment.insert("DP_PVI__POLICY__ALLOW_NON_PRIVATE".into(), "false".into());
    let mut server = federation.start_server();
    let mut client = federation.start_client("site-1", &server.address);
    client.expect(8);
    assert!(client.events().iter().all(|e| e["event"] != "sending"));
    server.process.expect(9);
    let (code, out, _) = outcome(&mut federation.client_command("site-1", &["budget", "show", "--format", "json"]));
    assert_eq!(code, 0);
    assert_eq!(serde_json::from_str::<Value>(&out).unwrap()["releases"], 0);
}
