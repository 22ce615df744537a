//! Time counts only while a server could take an answer, and a run without its quorum waits for it: over a process that is killed, stopped and started.

use std::time::Duration;

use crate::support::{Client, Fed, Plan, Process, page};
use dp_pvi_protocol::message::ReceiptOutcome;

const VALUES: [f64; 4] = [1.0, 2.0, 3.0, 4.0];

async fn both(fed: &Fed, server: &Process) -> Vec<Client> {
    let mut sites = Vec::new();
    for name in ["a", "b"] {
        sites.push(fed.member(name).join(server.address).await);
    }
    sites
}

fn stage(fed: &Fed) -> String {
    let state: serde_json::Value = serde_json::from_str(&fed.status()).unwrap();
    state["stage"].as_str().unwrap().to_owned()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_was_killed_for_longer_than_a_deadline_goes_on() {
    let fed = Fed::new(2, &Plan { rounds: 1, update_deadline: "3s", linger: "1s", ..Plan::default() });
    let server = Process::spawn(&fed, &[]);
    let mut sites = both(&fed, &server).await;
    let first = sites[0].round().await;
    sites[0].send(&first, &VALUES).await.unwrap();
    server.kill();
    tokio::time::sleep(Duration::from_secs(4)).await;
    let server = Process::spawn(&fed, &[]);
    let mut again = both(&fed, &server).await;
    // The same round under the same header; no one was late.
    let start = again[1].round().await;
    assert_eq!(start.header, first.header);
    assert_eq!(again[1].send(&start, &VALUES).await.unwrap().outcome, ReceiptOutcome::Stored);
    let closed = server.event("round-closed");
    assert_eq!((&closed["outcome"], closed["included"].as_array().map(Vec::len)), (&serde_json::json!("complete"), Some(2)));
    for site in &mut again {
        site.finished().await;
    }
    assert_eq!(server.exit_code(), Some(0));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_process_that_was_stopped_for_longer_than_a_deadline_closes_no_round() {
    let fed = Fed::new(2, &Plan { rounds: 1, update_deadline: "3s", linger: "1s", ..Plan::default() });
    let server = Process::spawn(&fed, &[]);
    let mut sites = both(&fed, &server).await;
    let starts = [sites[0].round().await, sites[1].round().await];
    server.signal("STOP");
    tokio::time::sleep(Duration::from_secs(5)).await;
    server.signal("CONT");
    tokio::time::sleep(Duration::from_millis(500)).await;
    for (site, start) in sites.iter_mut().zip(&starts) {
        assert_eq!(site.send(start, &VALUES).await.unwrap().outcome, ReceiptOutcome::Stored);
    }
    assert_eq!(server.event("round-closed")["outcome"], "complete");
    for site in &mut sites {
        site.finished().await;
    }
    assert_eq!(server.exit_code(), Some(0));
}

/// The quorum is lost after a good round: status, page, metric and report say so. It comes back, and the run goes on to its end.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_suspended_run_is_seen_and_goes_on_when_its_sites_return() {
    let fed = Fed::new(2, &Plan { rounds: 2, update_deadline: "1s", linger: "1s", ..Plan::default() });
    let server = Process::spawn(&fed, &[]);
    let mut sites = both(&fed, &server).await;
    for site in &mut sites {
        let start = site.round().await;
        site.send(&start, &VALUES).await.unwrap();
    }
    let suspended = server.event("suspended");
    assert_eq!((&suspended["waiting_for"], &suspended["ends_in_seconds"]), (&serde_json::json!(["a", "b"]), &serde_json::json!(600)));
    assert_eq!(stage(&fed), "suspended");
    let program = |arguments: &[&str]| {
        let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_dp-pvi-server"));
        let output = command.args(arguments).arg("--config").arg(fed.config_path()).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    };
    let text = program(&["status"]);
    assert!(text.contains("stage      suspended") && text.contains("waiting    for a, b (the run ends in at most"), "{text}");
    assert!(page(server.http, "/").contains("<td>suspended</td>") && page(server.http, "/metrics").contains("dp_pvi_suspended 1"));
    program(&["export"]);
    let report = std::fs::read_to_string(fed.path("state/report.html")).unwrap();
    assert!(report.contains("Suspended: too few sites"));
    // A suspended run survives its server.
    server.kill();
    let server = Process::spawn(&fed, &[]);
    assert_eq!(stage(&fed), "suspended");
    assert!(page(server.http, "/metrics").contains("dp_pvi_suspended 1"));
    let mut again = both(&fed, &server).await;
    for site in &mut again {
        let start = site.round().await;
        assert_eq!(site.send(&start, &VALUES).await.unwrap().outcome, ReceiptOutcome::Stored);
    }
    server.event("resumed");
    for site in &mut again {
        site.finished().await;
    }
    assert_eq!(server.event("run-ended")["outcome"], "complete");
    assert_eq!(server.exit_code(), Some(0));
}
