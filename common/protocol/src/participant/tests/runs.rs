//! Two runs of one task: what tells them apart, and what does not.
#![allow(clippy::unwrap_used)]

use std::collections::BTreeMap;

use super::*;
use crate::coordinator::{Answered, Coordinator, Rejected, Settings};
use crate::message::{HeldOutMetrics, MetricsReport};

/// A coordinator of the same task with the same keys at the same instant, as another run that this site `a` has joined.
fn other_run(task: &ResolvedTask, run: u32, site: &mut Site) -> Desk {
    let settings = Settings { run, ..settings(task) };
    let coordinator = Coordinator::restore(settings, []).unwrap();
    let mut desk = Desk { coordinator, records: Vec::new(), payloads: BTreeMap::new(), now: at(0) };
    desk.poll();
    ["b", "c", "eve"].iter().for_each(|name| drop(desk.hello(name).unwrap()));
    welcome(site, &mut desk).unwrap();
    desk.poll();
    desk
}

/// Every signed message names its run, or what is of one run only: none of them is taken in another run of the same task.
#[test]
fn no_signed_message_of_one_run_passes_in_another() {
    let task = synchronous(3, 2);
    let (mut desk, _, mut site_, start) = asked(&task);
    let mut second = site("a", &MemoryStore::new(Unsealed));
    let mut other = other_run(&task, 2, &mut second);
    // λ, visit, round and everything but the run's number are the same.
    assert_ne!(start.header.hash(), other.round("a").unwrap().header.hash());
    let outgoing = train(&mut site_, &start, [1.0; 4]);
    let update = Signed::<Update>::from_bytes(outgoing.attachment.message()).unwrap();
    let begun = other.coordinator.on_update_begin(&client("a"), &update, at(0));
    assert_eq!(begun.unwrap_err(), Rejected::OtherTask("run"));
    for header in [start.header.hash(), Hash::default()] {
        let reason = RefusalReason::Budget;
        let refusal = Signed::seal(&Refusal { release: outgoing.release.clone(), header, reason }, &key("a"));
        assert_eq!(other.coordinator.on_refusal(&client("a"), &refusal, at(0)).unwrap_err(), Rejected::OtherTask("run"));
    }
    let metrics = HeldOutMetrics { records: 1, log_likelihood: -0.5, ..Default::default() };
    let report = Signed::seal(&MetricsReport { run: desk.coordinator.run(), round: 0, metrics }, &key("eve"));
    assert_eq!(other.coordinator.on_metrics(&client("eve"), &report, at(0)).unwrap_err(), Rejected::OtherTask("run"));
    // What a server signed in the one run, to a site of the other.
    deliver(&mut site_, &mut desk, &outgoing);
    let given = desk.coordinator.receipts(&[Answered { client: client("a"), round: 0, outcome: ReceiptOutcome::Stored }]);
    refused(second.on_next(next(&start)), "another run");
    let own = train(&mut second, &other.round("a").unwrap(), [1.0; 4]);
    second.on_sending(&own).unwrap();
    assert!(second.on_receipt(&own, &given[0]).is_err());
}

/// A server that lost its state opens a run of the same number: the same run to every ledger, in which no release is made twice.
#[test]
fn a_run_that_begins_again_under_its_number_gets_no_second_release() {
    let task = synchronous(3, 2);
    let (mut desk, disk, mut site_, start) = asked(&task);
    let outgoing = train(&mut site_, &start, [1.0; 4]);
    let rows = site_.ledger().rows().len();
    drop(site_);
    // Nothing but the number tells runs of a task apart: the header is the same, byte by byte, and it gets the same bytes.
    let mut site_ = site("a", &disk);
    let again = other_run(&task, 1, &mut site_);
    let repeated = again.round("a").unwrap();
    assert_eq!(repeated.header.hash(), start.header.hash());
    let Step::Send(sent) = site_.on_next(next(&repeated)).unwrap() else { panic!("what was committed is sent") };
    assert_eq!(sent.attachment.message(), outgoing.attachment.message());
    assert_eq!(site_.ledger().rows().len(), rows, "nothing is charged and nothing computed");
    drop(site_);
    // Once the round is settled nothing is sent at all.
    let mut site_ = site("a", &disk);
    welcome(&mut site_, &mut desk).unwrap();
    deliver(&mut site_, &mut desk, &outgoing);
    ["b", "c"].iter().for_each(|name| drop(desk.submit(name, &[1.0; 4]).unwrap()));
    let Step::Train(_) = site_.on_next(desk.coordinator.next_for(&client("a"), 0).unwrap()).unwrap() else { panic!("the next round") };
    drop(site_);
    let mut site_ = site("a", &disk);
    let _again = other_run(&task, 1, &mut site_);
    assert!(site_.on_next(next(&repeated)).is_err());
}
