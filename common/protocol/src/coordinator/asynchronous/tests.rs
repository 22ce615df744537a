//! Rounds that do not wait for each other.
#![allow(clippy::unwrap_used)]

use super::super::*;
use crate::testing::{Desk, asynchronous, client, key, settings};

const DELTA: [f64; 4] = [1.0, 2.0, 3.0, 4.0];

/// An update for the header that is open now, to be sent at any time.
fn prepared(desk: &Desk, name: &str) -> (Signed<Update>, Vec<u8>) {
    let (update, bytes) = desk.update(name, &DELTA);
    (Signed::seal(&update, &key(name)), bytes)
}

fn send(desk: &mut Desk, name: &str, (update, bytes): &(Signed<Update>, Vec<u8>)) -> Result<ReceiptOutcome, Rejected> {
    let receipt = desk.send(name, update, bytes.clone())?;
    desk.poll();
    Ok(receipt.outcome)
}

fn included(desk: &Desk, round: usize) -> Vec<ClientId> {
    desk.coordinator.entries()[round].included.iter().map(|(client, _)| client.clone()).collect()
}

fn restored(desk: &Desk) -> String {
    Coordinator::restore(settings(desk.coordinator.task()), desk.records.clone()).unwrap().state_for_tests()
}

#[test]
fn a_round_closes_with_the_first_update_and_the_next_takes_the_late_ones() {
    let mut desk = Desk::joined(&asynchronous(3, 2));
    let (b, c) = (prepared(&desk, "b"), prepared(&desk, "c"));
    desk.submit("a", &DELTA).unwrap();
    assert_eq!(included(&desk, 0), [client("a")]);
    assert_eq!(desk.coordinator.lambda()[0], 0.25);
    // Round 1 is open; `b` answers header 0 in it. It stays open for `c`, which would fall two rounds behind.
    assert_eq!(send(&mut desk, "b", &b), Ok(ReceiptOutcome::Stored));
    assert!(matches!(desk.coordinator.stage(), Stage::Open { round: 1, .. }));
    assert!(desk.round("a").is_some() && desk.round("b").is_none());
    assert_eq!(restored(&desk), desk.state());
    assert_eq!(send(&mut desk, "c", &c), Ok(ReceiptOutcome::Stored));
    assert_eq!(included(&desk, 1), [client("b"), client("c")]);
    assert_eq!(desk.coordinator.lambda()[0], 0.75);
    assert!(matches!(desk.coordinator.stage(), Stage::Open { round: 2, .. }));
    assert_eq!(restored(&desk), desk.state());
}

#[test]
fn one_update_at_a_time_and_none_for_an_older_header_than_the_last() {
    let mut desk = Desk::joined(&asynchronous(5, 2));
    let (first, b) = (prepared(&desk, "a"), prepared(&desk, "b"));
    send(&mut desk, "b", &b).unwrap();
    // Round 1: `a` answers the new header, and then the old one.
    let second = prepared(&desk, "a");
    send(&mut desk, "a", &second).unwrap();
    assert_eq!(send(&mut desk, "a", &first), Err(Rejected::NotAsked));
    // The same update again is known.
    assert_eq!(send(&mut desk, "a", &second), Ok(ReceiptOutcome::Stored));
    assert_eq!(desk.coordinator.entries().len(), 1, "round 1 waits for c");
}

#[test]
fn who_misses_a_deadline_is_not_waited_for_and_its_old_update_is_excluded() {
    let mut desk = Desk::joined(&asynchronous(3, 2));
    let c = prepared(&desk, "c");
    desk.submit("a", &DELTA).unwrap();
    desk.submit("b", &DELTA).unwrap();
    desk.wait(1800);
    assert_eq!(desk.coordinator.entries()[1].outcome, RoundOutcome::Deadline);
    // Round 2 closes at once although nothing came of `c`.
    desk.submit("a", &DELTA).unwrap();
    assert_eq!(desk.coordinator.entries().len(), 3);
    assert_eq!(restored(&desk), desk.state());
    let lambda = desk.coordinator.lambda()[0];
    assert_eq!(send(&mut desk, "c", &c), Ok(ReceiptOutcome::Excluded));
    assert_eq!(desk.coordinator.lambda()[0], lambda);
    // It answers again, and counts again; round 3 waits for `b`.
    desk.submit("c", &DELTA).unwrap();
    desk.submit("b", &DELTA).unwrap();
    assert_eq!(included(&desk, 3), [client("b"), client("c")]);
}

#[test]
fn the_run_ends_when_every_site_that_is_there_has_had_its_visits() {
    let mut desk = Desk::joined(&asynchronous(2, 2));
    for _ in 0..2 {
        for name in ["a", "b", "c"] {
            desk.submit(name, &DELTA).unwrap();
        }
    }
    assert_eq!(desk.coordinator.stage(), Stage::Ended(RunOutcome::Complete));
    assert_eq!(desk.coordinator.lambda()[0], 1.5);
    assert_eq!(restored(&desk), desk.state());

    // A site that refuses has its visits, too; a run of refusals only is not complete.
    let mut desk = Desk::joined(&asynchronous(2, 3));
    for name in ["a", "b", "c"] {
        desk.refuse(name).unwrap();
    }
    assert_eq!(desk.coordinator.entries()[0].outcome, RoundOutcome::Skipped);
    for name in ["a", "b", "c"] {
        desk.refuse(name).unwrap();
    }
    assert_eq!(desk.coordinator.stage(), Stage::Ended(RunOutcome::Refused));
}
