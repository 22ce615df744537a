//! A site that is killed at any arrow of its ledger, and started again, spends nothing twice and never sends two different
//! updates under one name. The site that is killed runs the shipped client with a ledger store that ends the process (as `kill -9`
//! would: no destructor, no flush) at a chosen append.
//!
//! Six seeds for every point: both schedules, and each visit at which a site is killed once or twice. `tests/long.sh crashes` runs more.

use std::path::Path;

use dp_pvi_tests::crash::{CrashPoint, OCCURRENCE, POINT};
use dp_pvi_tests::federation::{Federation, run, side_by_side};
use dp_pvi_tests::regression::{Likelihood, Records, Schedule, Task};
use dp_pvi_tests::statements::statements_cover_ledgers;
use serde_json::Value;

const VISITS: u32 = 3;

fn seeds() -> u32 {
    std::env::var("DP_PVI_CRASH_SEEDS").map_or(6, |n| n.parse().expect("DP_PVI_CRASH_SEEDS is a number"))
}

fn check(point: CrashPoint) {
    side_by_side(&(0..seeds()).collect::<Vec<_>>(), |&seed| once(point, seed, ""));
    println!("{}: {} seeds ok", point.name(), seeds());
}

/// Seeds differ in the schedule, in the visit at which the site is killed, and in how often.
/// `options` are in `[pvi]`.
fn once(point: CrashPoint, seed: u32, options: &str) {
    let schedule = if seed.is_multiple_of(2) { Schedule::Synchronous(VISITS) } else { Schedule::Sequential(VISITS) };
    let task = Task { schedule, ..Task::default() };
    let records = Records::generated(40 + seed as usize, 3, seed as usize);
    let sites = records.sites(&[20, 20], Likelihood::Logistic);
    let update = "update = \"dp-optimisation\"";
    let text = task.toml().replace(update, &format!("{update}\n{options}"));
    let federation = Federation::new(&text, &task.schema(3), &sites);
    let mut server = federation.start_server();
    let mut other = federation.start_client("site-2", &server.address);

    let crashing = Path::new(env!("CARGO_BIN_EXE_crashing-client"));
    // Once, at the first, second or third visit; or twice, at two visits in a row.
    let occurrences = if point == CrashPoint::Planned {
        vec![1]
    } else if (seed / 2).is_multiple_of(2) {
        vec![1 + seed % VISITS]
    } else {
        vec![1, 1]
    };
    for occurrence in occurrences {
        let mut command = federation.client_command_of(crashing, "site-1", &["run", "--format", "json"]);
        command.env(POINT, point.name()).env(OCCURRENCE, occurrence.to_string());
        let status = federation.start("site-1", &server.address, command).wait();
        assert_eq!(status.code(), None, "{} seed {seed}: killed by a signal, not ended by itself", point.name());
    }

    let mut victim = federation.start_client("site-1", &server.address);
    victim.expect(0);
    other.expect(0);
    server.process.expect(0);
    statements_cover_ledgers(&federation);

    let rounds: Vec<_> = server.process.events().into_iter().filter(|e| e["event"] == "round-closed").collect();
    assert!(rounds.iter().all(|r| r["outcome"] == "complete"), "{} seed {seed}: {rounds:?}", point.name());
    // What the ledgers say: every visit charged once, the same as at the site that no one disturbed.
    let budget = |site: &str| -> Value {
        serde_json::from_str(&run(&mut federation.client_command(site, &["budget", "show", "--format", "json"]))).unwrap()
    };
    let (disturbed, undisturbed) = (budget("site-1"), budget("site-2"));
    for key in ["releases", "epsilon_spent"] {
        assert_eq!(disturbed[key], undisturbed[key], "{} seed {seed}: {key}", point.name());
    }
    assert_eq!(disturbed["releases"], VISITS);
    assert!(disturbed["epsilon_spent"].as_f64().unwrap() > 0.0);
    // What the server has is what the ledger committed: bytes by bytes, through the payload hashes of the signed transcript.
    let transcript = federation.home("server").join("transcript");
    run(&mut federation.server_command(&["export", "--transcript", transcript.to_str().unwrap()]));
    for site in ["site-1", "site-2"] {
        run(&mut federation.client_command(site, &["ledger", "verify", "--transcript", transcript.to_str().unwrap()]));
    }
}

#[test]
fn killed_before_the_reservation() {
    check(CrashPoint::BeforeReserved);
}

#[test]
fn killed_after_the_reservation() {
    check(CrashPoint::Reserved);
}

#[test]
fn killed_after_the_commit() {
    check(CrashPoint::Committed);
}

#[test]
fn killed_between_the_sent_row_and_the_sending() {
    check(CrashPoint::Sent);
}

#[test]
fn killed_after_the_receipt() {
    check(CrashPoint::Receipted);
}

/// A visit of two whole epochs: lost before its message was stored, it is drawn anew and costs nothing more; stored, it is sent as it is.
#[test]
fn killed_with_whole_epochs_charged_and_none_released() {
    for point in [CrashPoint::Reserved, CrashPoint::Committed] {
        side_by_side(&(0..seeds().div_ceil(4)).collect::<Vec<_>>(), |&seed| once(point, seed, "batches = 4\nsteps = 8\n"));
    }
}

/// The run is charged and no visit is: it is not charged again.
#[test]
fn a_site_that_is_killed_after_its_run_was_charged_is_not_charged_again() {
    side_by_side(&[0, 1, 2, 3], |&seed| once(CrashPoint::Planned, seed, ""));
}
