#![allow(clippy::unwrap_used)]
use dp_pvi_accounting::{PrivacyUnit, Relation};
use dp_pvi_names::{Hash, PayloadKind, ReleaseId, RunId};
use dp_pvi_privacy::ledger::LedgerHead;

use super::*;
use crate::message::{RefusalReason, vector_hash};
use crate::sum::PayloadError;
use crate::testing::{Desk, at, client, head, key, sequential, settings, synchronous, tls};

const DELTA: [f64; 4] = [1.0, 2.0, 3.0, 4.0];

fn outcomes(desk: &Desk) -> Vec<RoundOutcome> {
    desk.coordinator.entries().iter().map(|entry| entry.outcome).collect()
}

#[test]
fn a_hello_that_does_not_fit_its_connection_or_the_run_is_rejected_and_changes_nothing() {
    let mut desk = Desk::new(&synchronous(2, 2));
    desk.hello("a").unwrap();
    let before = desk.state();
    let mut rejected = |name: &str, change: &dyn Fn(&mut Hello)| {
        let mut body = desk.body(name);
        change(&mut body);
        let error = desk.say(name, &body).unwrap_err();
        assert_eq!(desk.state(), before, "{error}");
        error
    };
    assert_eq!(rejected("nobody", &|_| ()), Rejected::NotEnrolled(client("nobody")));
    assert_eq!(rejected("b", &|h| h.client = client("c")), Rejected::Foreign("client id"));
    assert_eq!(rejected("b", &|h| h.tls_key = tls("c")), Rejected::Foreign("TLS key"));
    assert_eq!(rejected("b", &|h| h.federation = "other".into()), Rejected::Foreign("federation"));
    assert_eq!(rejected("b", &|h| h.role = Role::Evaluator), Rejected::Foreign("role"));
    assert_eq!(rejected("eve", &|h| h.role = Role::Site), Rejected::Foreign("role"));
    assert!(matches!(rejected("b", &|h| h.versions = vec![99]), Rejected::Version { .. }));
    assert_eq!(rejected("b", &|h| h.task = Some(Hash::default())), Rejected::OtherTask("task hash"));
    assert!(matches!(rejected("b", &|h| h.ledger = Some((PrivacyUnit::Person, Relation::ReplaceOne))), Rejected::OtherTask(_)));
    assert!(matches!(rejected("b", &|h| h.ledger = Some((PrivacyUnit::Record, Relation::AddRemove))), Rejected::OtherTask(_)));
    assert!(matches!(rejected("b", &|h| h.ledger_head = None), Rejected::Foreign(_)));
    assert!(matches!(rejected("eve", &|h| h.nominal_units = Some(1)), Rejected::Foreign(_)));
    assert_eq!(rejected("a", &|h| h.nominal_units = Some(101)), Rejected::Changed("the number of units"));

    // Signed by another enrolled client.
    let forged = Signed::seal(&desk.body("b"), &key("a"));
    let peer = Peer { client: client("b"), tls_key: tls("b") };
    assert_eq!(desk.coordinator.on_hello(&forged, &peer, at(0)).unwrap_err(), Rejected::Invalid(InvalidMessage::Signature));
    assert_eq!(desk.state(), before);
}

#[test]
fn the_first_round_opens_when_all_enrolled_sites_are_in() {
    let mut desk = Desk::new(&synchronous(2, 2));
    desk.hello("eve").unwrap();
    for name in ["a", "b"] {
        desk.hello(name).unwrap();
        desk.poll();
        assert_eq!(desk.coordinator.stage(), Stage::Gathering);
    }
    desk.hello("c").unwrap();
    desk.poll();
    assert!(matches!(desk.coordinator.stage(), Stage::Open { round: 0, turn: None, waiting, .. } if waiting.len() == 3));
}

#[test]
fn at_the_start_deadline_a_quorum_starts_and_less_ends_the_run() {
    let mut desk = Desk::new(&synchronous(2, 2));
    desk.hello("a").unwrap();
    desk.hello("b").unwrap();
    desk.wait(59);
    assert_eq!(desk.coordinator.stage(), Stage::Gathering);
    desk.wait(1);
    assert!(matches!(desk.coordinator.stage(), Stage::Open { waiting, .. } if waiting == [client("a"), client("b")]));

    let mut desk = Desk::new(&synchronous(2, 2));
    desk.hello("a").unwrap();
    desk.wait(60);
    assert_eq!(desk.coordinator.stage(), Stage::Ended(RunOutcome::QuorumLost));
    assert!(matches!(desk.coordinator.next_for(&client("a"), 0).unwrap(), Next::Finished(end) if end.outcome == RunOutcome::QuorumLost));
}

/// Each of these is refused with its own error, and the state stays.
#[test]
fn a_bad_update_is_rejected_and_changes_nothing() {
    let mut desk = Desk::joined(&synchronous(2, 2));
    let before = desk.state();
    let mut rejected = |name: &str, signer: &str, payload: &[f64], change: &dyn Fn(&mut Update, &mut Vec<u8>)| {
        let (mut update, mut bytes) = desk.update(name, payload);
        change(&mut update, &mut bytes);
        let error = desk.send(name, &Signed::seal(&update, &key(signer)), bytes).unwrap_err();
        desk.coordinator.verified.clear();
        assert_eq!(desk.state(), before, "{error}");
        error
    };
    let payload = |error| Rejected::Payload(error);
    assert_eq!(rejected("a", "a", &[1.0, f64::NAN, 1.0, 1.0], &|_, _| ()), payload(PayloadError::NotFinite));
    assert_eq!(rejected("a", "a", &[1.0, f64::INFINITY, 1.0, 1.0], &|_, _| ()), payload(PayloadError::NotFinite));
    assert_eq!(rejected("a", "a", &[1.0, 1.1e100, 1.0, 1.0], &|_, _| ()), payload(PayloadError::NotFinite));
    assert_eq!(rejected("a", "a", &DELTA, &|_, bytes| bytes.push(0)), payload(PayloadError::Length));
    assert_eq!(rejected("a", "a", &DELTA, &|_, bytes| bytes.truncate(31)), payload(PayloadError::Length));
    assert_eq!(rejected("a", "a", &DELTA, &|_, bytes| bytes[0] ^= 1), payload(PayloadError::Hash));
    assert_eq!(rejected("a", "a", &[1.0; 3], &|_, _| ()), Rejected::WrongSize("coordinates"));
    assert_eq!(rejected("a", "a", &DELTA, &|u, _| u.coordinates = 1 << 26), Rejected::WrongSize("coordinates"));
    assert!(matches!(rejected("a", "a", &DELTA, &|u, _| u.coordinates = u64::MAX), Rejected::Invalid(InvalidMessage::Bounds(_))));
    assert_eq!(rejected("a", "a", &DELTA, &|u, _| u.kind = PayloadKind::Lattice { exponent: 0 }), Rejected::WrongSize("kind"));
    assert_eq!(rejected("a", "a", &DELTA, &|u, _| u.release.round = 1), Rejected::UnknownRound);
    assert_eq!(rejected("a", "a", &DELTA, &|u, _| u.release.round = 1_000_000_000), Rejected::UnknownRound);
    assert!(matches!(rejected("a", "a", &DELTA, &|u, _| u.release.round = u32::MAX), Rejected::Invalid(InvalidMessage::Bounds(_))));
    assert_eq!(rejected("a", "a", &DELTA, &|u, _| u.header = Hash::default()), Rejected::UnknownRound);
    assert_eq!(rejected("a", "a", &DELTA, &|u, _| u.release.client = client("b")), Rejected::Foreign("client of the release"));
    assert_eq!(rejected("a", "a", &DELTA, &|u, _| u.release.run.task = Hash::default()), Rejected::OtherTask("run"));
    assert_eq!(rejected("a", "a", &DELTA, &|u, _| u.release.run.number = 2), Rejected::OtherTask("run"));
    assert_eq!(rejected("a", "b", &DELTA, &|_, _| ()), Rejected::Invalid(InvalidMessage::Signature));
    assert_eq!(rejected("eve", "eve", &DELTA, &|_, _| ()), Rejected::WrongRole);
    assert_eq!(rejected("nobody", "nobody", &DELTA, &|_, _| ()), Rejected::NotEnrolled(client("nobody")));

    let garbled = Signed::from_parts(vec![1, 2, 3], key("a").to_bytes().to_vec());
    assert!(matches!(desk.coordinator.on_update_begin(&client("a"), &garbled, at(0)), Err(Rejected::Invalid(_))));
    assert_eq!(desk.state(), before);
}

#[test]
fn a_client_that_never_said_hello_is_told_to() {
    let mut desk = Desk::new(&synchronous(2, 2));
    desk.hello("a").unwrap();
    desk.hello("b").unwrap();
    desk.wait(60);
    assert_eq!(desk.submit("c", &DELTA).unwrap_err(), Rejected::HelloFirst);
    assert_eq!(desk.coordinator.next_for(&client("c"), 0).unwrap_err(), Rejected::HelloFirst);
    // It joins while a round is open: it is asked from the next round on.
    desk.hello("c").unwrap();
    assert_eq!(desk.submit("c", &DELTA).unwrap_err(), Rejected::NotAsked);
    desk.submit("a", &DELTA).unwrap();
    desk.submit("b", &DELTA).unwrap();
    assert!(desk.round("c").is_some());
}

#[test]
fn the_same_update_gets_the_same_receipt_and_another_one_none() {
    let mut desk = Desk::joined(&synchronous(2, 2));
    let (update, bytes) = desk.update("a", &DELTA);
    let signed = Signed::seal(&update, &key("a"));
    let first = desk.send("a", &signed, bytes.clone()).unwrap();
    let state = desk.state();
    assert_eq!(desk.send("a", &signed, bytes.clone()).unwrap(), first);
    assert_eq!(desk.state(), state);
    assert_eq!(desk.submit("a", &[9.0; 4]).unwrap_err(), Rejected::Conflict);
    // After the round closed the same bytes still get the same receipt, and other bytes none.
    desk.submit("b", &DELTA).unwrap();
    desk.submit("c", &DELTA).unwrap();
    assert_eq!(desk.coordinator.entries().len(), 1);
    assert_eq!(desk.send("a", &signed, bytes).unwrap(), first);
    let (mut other, bytes) = desk.update("a", &[9.0; 4]);
    (other.release.round, other.header) = (update.release.round, update.header);
    assert_eq!(desk.send("a", &Signed::seal(&other, &key("a")), bytes).unwrap_err(), Rejected::Conflict);
}

#[test]
fn a_synchronous_round_closes_when_all_answered_and_moves_lambda_by_rho_times_the_sum() {
    let mut desk = Desk::joined(&synchronous(1, 2));
    let before = desk.coordinator.lambda().clone();
    for (name, scale) in [("c", 3.0), ("a", 1.0), ("b", 2.0)] {
        assert_eq!(outcomes(&desk), []);
        desk.submit(name, &DELTA.map(|x| x * scale)).unwrap();
    }
    assert_eq!(outcomes(&desk), [RoundOutcome::Complete]);
    let entry = &desk.coordinator.entries()[0];
    assert_eq!(entry.included.iter().map(|(c, _)| c.as_str()).collect::<Vec<_>>(), ["a", "b", "c"]);
    assert_eq!(entry.lambda, vector_hash(desk.coordinator.lambda()));
    for (j, (after, before)) in desk.coordinator.lambda().iter().zip(before.iter()).enumerate() {
        assert!((after - (before + 0.5 * 6.0 * DELTA[j])).abs() < 1e-12);
    }
    assert_eq!(desk.coordinator.stage(), Stage::Ended(RunOutcome::Complete));
}

#[test]
fn at_the_deadline_a_quorum_closes_the_round_and_a_late_update_is_excluded() {
    let mut desk = Desk::joined(&synchronous(2, 2));
    let (late, late_bytes) = desk.update("c", &DELTA);
    desk.submit("a", &DELTA).unwrap();
    desk.submit("b", &DELTA).unwrap();
    desk.wait(1799);
    assert_eq!(outcomes(&desk), []);
    desk.wait(1);
    assert_eq!(outcomes(&desk), [RoundOutcome::Deadline]);
    let lambda = desk.coordinator.lambda().clone();
    let signed = Signed::seal(&late, &key("c"));
    let receipt = desk.send("c", &signed, late_bytes.clone()).unwrap();
    assert_eq!(receipt.outcome, ReceiptOutcome::Excluded);
    assert_eq!(receipt.witnessed, Some(late.ledger_head));
    assert_eq!(*desk.coordinator.lambda(), lambda);
    assert_eq!(desk.send("c", &signed, late_bytes).unwrap(), receipt);
    // It is asked again in the next round.
    assert!(desk.round("c").is_some());
}

#[test]
fn a_refusal_is_an_answer() {
    let mut desk = Desk::joined(&synchronous(2, 2));
    desk.submit("a", &DELTA).unwrap();
    desk.refuse("b").unwrap();
    desk.refuse("b").unwrap();
    assert_eq!(desk.submit("b", &DELTA).unwrap_err(), Rejected::NotAsked);
    assert_eq!(desk.refuse("a").unwrap_err(), Rejected::Conflict);
    desk.submit("c", &DELTA).unwrap();
    assert_eq!(outcomes(&desk), [RoundOutcome::Complete]);
    assert_eq!(desk.coordinator.members()[&client("b")].refused, Some((0, RefusalReason::Budget)));
    // Two of three refuse: no quorum, and no one waits for the deadline.
    desk.refuse("a").unwrap();
    desk.refuse("b").unwrap();
    desk.submit("c", &DELTA).unwrap();
    assert_eq!(desk.coordinator.stage(), Stage::Ended(RunOutcome::Refused));
}

#[test]
fn a_site_that_withdraws_is_not_waited_for_until_it_comes_back() {
    let mut desk = Desk::joined(&synchronous(3, 2));
    let release = ReleaseId { run: desk.coordinator.run(), client: client("c"), round: 0 };
    let refusal = Signed::seal(&Refusal { release, header: Hash::default(), reason: RefusalReason::Policy }, &key("c"));
    let withdrawn = desk.coordinator.on_refusal(&client("c"), &refusal, at(0)).unwrap();
    desk.durable(withdrawn);
    desk.submit("a", &DELTA).unwrap();
    desk.submit("b", &DELTA).unwrap();
    assert_eq!(outcomes(&desk), [RoundOutcome::Complete]);
    assert!(matches!(desk.coordinator.stage(), Stage::Open { waiting, .. } if waiting == [client("a"), client("b")]));
    desk.hello("c").unwrap();
    desk.submit("a", &DELTA).unwrap();
    desk.submit("b", &DELTA).unwrap();
    assert!(matches!(desk.coordinator.stage(), Stage::Open { waiting, .. } if waiting.len() == 3));
}

#[test]
fn sequential_turns_go_in_ascending_order_and_a_missed_turn_is_skipped() {
    let mut desk = Desk::joined(&sequential(2, 2));
    let mut turns = Vec::new();
    for round in 0..6 {
        let (_, header) = desk.header();
        assert_eq!((header.round, header.visit), (round, round / 3));
        let turn = header.turn.unwrap();
        turns.push(turn.to_string());
        for name in ["a", "b", "c"] {
            assert_eq!(desk.round(name).is_some(), name == turn.as_str());
        }
        if round == 4 {
            assert_eq!(desk.submit("c", &DELTA).unwrap_err(), Rejected::NotAsked);
            desk.wait(1800);
        } else {
            desk.submit(turn.as_str(), &DELTA).unwrap();
        }
    }
    assert_eq!(turns, ["a", "b", "c", "a", "b", "c"]);
    assert_eq!(outcomes(&desk)[4], RoundOutcome::Skipped);
    assert_eq!(outcomes(&desk).iter().filter(|outcome| **outcome == RoundOutcome::Complete).count(), 5);
    assert_eq!(desk.coordinator.stage(), Stage::Ended(RunOutcome::Complete));
}

/// Decision 23.
#[test]
fn an_evaluator_neither_delays_nor_influences_a_run() {
    let run = |with: bool| {
        let mut desk = Desk::new(&synchronous(2, 2));
        if with {
            desk.hello("eve").unwrap();
        }
        for name in ["a", "b", "c"] {
            desk.hello(name).unwrap();
        }
        desk.poll();
        for round in 0..2 {
            if with && round == 0 {
                // It reports on the prior once, and is slow ever after.
                assert!(desk.round("eve").is_some());
                report(&mut desk, 0, 0.5).unwrap();
                report(&mut desk, 0, 0.5).unwrap();
                assert_eq!(report(&mut desk, 0, 0.6).unwrap_err(), Rejected::Conflict);
                assert!(desk.round("eve").is_none());
            }
            for name in ["a", "b", "c"] {
                desk.submit(name, &DELTA).unwrap();
            }
        }
        assert_eq!(desk.coordinator.stage(), Stage::Ended(RunOutcome::Complete));
        if with {
            assert_eq!(report(&mut desk, 3, 0.5).unwrap_err(), Rejected::UnknownRound);
            // A number that is none is what was found at that posterior; the same report again is no other one.
            report(&mut desk, 2, f64::NAN).unwrap();
            report(&mut desk, 2, f64::NAN).unwrap();
            assert_eq!(report(&mut desk, 2, 0.7).unwrap_err(), Rejected::Conflict);
            assert_eq!(desk.coordinator.metrics().keys().copied().collect::<Vec<_>>(), [0, 2]);
        }
        desk.coordinator.lambda().clone()
    };
    assert_eq!(run(false), run(true));
}

fn report(desk: &mut Desk, round: u32, accuracy: f64) -> Result<(), Rejected> {
    let metrics = HeldOutMetrics { records: 10, log_likelihood: -0.5, accuracy: Some(accuracy), ..HeldOutMetrics::default() };
    let report = Signed::seal(&MetricsReport { run: desk.coordinator.run(), round, metrics }, &key("eve"));
    let reported = desk.coordinator.on_metrics(&client("eve"), &report, desk.now)?;
    desk.durable(reported);
    Ok(())
}

#[test]
fn sites_send_no_metrics() {
    let mut desk = Desk::joined(&synchronous(2, 2));
    let metrics = HeldOutMetrics { records: 1, log_likelihood: 0.0, accuracy: None, ..HeldOutMetrics::default() };
    let report = Signed::seal(&MetricsReport { run: desk.coordinator.run(), round: 0, metrics }, &key("a"));
    assert_eq!(desk.coordinator.on_metrics(&client("a"), &report, at(0)).unwrap_err(), Rejected::WrongRole);
}

#[test]
fn the_highest_ledger_head_is_witnessed_and_never_forgotten() {
    let mut desk = Desk::new(&synchronous(3, 2));
    assert_eq!(desk.hello("a").unwrap().witnessed, None, "nothing was seen before");
    assert_eq!(desk.hello("a").unwrap().witnessed, Some(head(0)));
    drop(["b", "c"].map(|name| desk.hello(name).unwrap()));
    desk.poll();
    let receipt = desk.submit("a", &DELTA).unwrap();
    assert_eq!(receipt.witnessed, Some(head(1)));
    // An old copy of the ledger says hello: it is told what was seen, and does not lower it.
    assert_eq!(desk.hello("a").unwrap().witnessed, Some(head(1)));
    let mut later = desk.body("a");
    later.ledger_head = Some(head(9));
    // A hello with a later head, of this ledger or of a fork that grew past the row, does not replace what was seen.
    assert_eq!(desk.say("a", &later).unwrap().witnessed, Some(head(1)));
    let mut fork = desk.body("a");
    fork.ledger_head = Some(LedgerHead { seq: 10, hash: Hash::default() });
    assert_eq!(desk.say("a", &fork).unwrap().witnessed, Some(head(1)));
    assert_eq!(desk.hello("a").unwrap().witnessed, Some(head(1)));

    // Heads of earlier runs count.
    let mut settings = settings(&synchronous(3, 2));
    settings.witnessed.insert(client("a"), crate::witness::Witnessed { head: head(77), signed: None });
    let mut desk = Desk::new(&synchronous(3, 2));
    desk.coordinator = Coordinator::restore(settings, desk.records.clone()).unwrap();
    assert_eq!(desk.hello("a").unwrap().witnessed, Some(head(77)));
}

/// Someone who asks what the task costs is not a member, and asks as often as they like.
#[test]
fn a_look_gets_the_welcome_and_changes_nothing() {
    let mut desk = Desk::new(&synchronous(3, 2));
    let before = (desk.state(), desk.records.len(), desk.coordinator.wake_at());
    let look = |desk: &Desk, name: &str| Hello { intent: Intent::Observe, ..desk.body(name) };
    for name in ["a", "b", "c", "eve", "a"] {
        let body = look(&desk, name);
        let welcome = desk.say(name, &body).unwrap();
        assert_eq!((welcome.task, welcome.witnessed), (synchronous(3, 2).to_bytes(), None));
        assert_eq!(desk.coordinator.next_for(&client(name), 0), Err(Rejected::HelloFirst));
    }
    desk.poll();
    assert_eq!((desk.state(), desk.records.len(), desk.coordinator.wake_at()), before);
    // What was witnessed is told, and a look does not witness a later head.
    desk.hello("a").unwrap();
    let before = (desk.state(), desk.records.len());
    let later = Hello { ledger_head: Some(head(9)), ..look(&desk, "a") };
    assert_eq!(desk.say("a", &later).unwrap().witnessed, Some(head(0)));
    assert_eq!((desk.state(), desk.records.len()), before);
    // It is checked like any other hello.
    let other = Hello { ledger: Some((PrivacyUnit::Person, Relation::ReplaceOne)), ..look(&desk, "b") };
    assert!(matches!(desk.say("b", &other), Err(Rejected::OtherTask(_))));
}

/// A restarted server is where it was: at every prefix of the records the restored state is the live one.
#[test]
fn restoring_any_prefix_of_the_records_gives_the_state_that_wrote_them() {
    for task in [synchronous(2, 2), sequential(2, 2)] {
        let mut desk = Desk::new(&task);
        let mut seen = vec![(desk.records.len(), desk.state())];
        let mut note = |desk: &Desk| {
            if desk.records.len() > seen.last().unwrap().0 {
                seen.push((desk.records.len(), desk.state()));
            }
        };
        for name in ["a", "eve", "b", "c"] {
            desk.hello(name).unwrap();
            note(&desk);
        }
        desk.poll();
        note(&desk);
        report(&mut desk, 0, 0.5).unwrap();
        note(&desk);
        let (late, bytes) = desk.update("b", &DELTA);
        while !matches!(desk.coordinator.stage(), Stage::Ended(_)) {
            for name in ["a", "b", "c"] {
                match desk.round(name) {
                    Some(_) if name == "b" && desk.coordinator.entries().len() < 3 => desk.refuse(name).unwrap(),
                    Some(_) => drop(desk.submit(name, &DELTA).unwrap()),
                    None => {}
                }
                note(&desk);
            }
        }
        // The turn of b, or b's part of the first round, was refused; an update for it is late.
        if task == synchronous(2, 2) {
            let receipt = desk.send("b", &Signed::seal(&late, &key("b")), bytes).unwrap();
            assert_eq!(receipt.outcome, ReceiptOutcome::Excluded);
            note(&desk);
        }
        assert!(seen.len() > 10);
        for (length, state) in &seen {
            let restored = Coordinator::restore(settings(&task), desk.records[..*length].to_vec()).unwrap();
            assert_eq!(restored.state_for_tests(), *state, "after {length} records");
        }
    }
}

#[test]
fn records_of_another_task_key_or_order_are_not_continued() {
    let mut desk = Desk::joined(&synchronous(2, 2));
    for name in ["a", "b", "c"] {
        desk.submit(name, &DELTA).unwrap();
    }
    let restore = |settings, records: Vec<Record>| Coordinator::restore(settings, records).map(|_| ()).unwrap_err();
    let records = desk.records.clone();
    let ours = || settings(&synchronous(2, 2));
    assert!(matches!(restore(settings(&synchronous(3, 2)), records.clone()), RestoreError::Inconsistent(_)));
    assert!(matches!(restore(Settings { run: 2, ..ours() }, records.clone()), RestoreError::Inconsistent(_)));
    assert!(matches!(restore(Settings { key: key("other").into(), ..ours() }, records.clone()), RestoreError::Inconsistent(_)));
    assert!(matches!(restore(ours(), records[1..].to_vec()), RestoreError::Inconsistent(_)));
    for gap in 0..records.len() {
        // Only hellos (the members of a finished round do not matter any more) may be missing without being noticed.
        if !matches!(records[gap], Record::Joined { .. } | Record::UpdateStored { .. }) && gap + 1 < records.len() {
            let mut holed = records.clone();
            holed.remove(gap);
            assert!(matches!(restore(ours(), holed), RestoreError::Inconsistent(_)), "without record {gap}");
        }
    }
    let mut changed = records;
    for record in &mut changed {
        if let Record::RoundClosed { lambda, .. } = record {
            *lambda = lambda.iter().map(|x| x + 1.0).collect();
        }
    }
    assert!(matches!(restore(ours(), changed), RestoreError::Inconsistent(_)));
}

#[test]
fn a_client_ahead_of_the_server_is_told_that_the_server_is_an_old_copy() {
    let desk = Desk::joined(&synchronous(2, 2));
    assert_eq!(desk.coordinator.next_for(&client("a"), 1).unwrap_err(), Rejected::AheadOfServer { seen: 1, here: 0 });
}

#[test]
fn paused_runs_open_no_round_and_stopped_ones_end() {
    let mut desk = Desk::joined(&synchronous(3, 2));
    let paused = desk.coordinator.control(Control::Paused, at(0));
    desk.durable(paused);
    for name in ["a", "b", "c"] {
        desk.submit(name, &DELTA).unwrap();
    }
    assert_eq!(desk.coordinator.stage(), Stage::Paused);
    desk.wait(10_000);
    assert_eq!(desk.coordinator.stage(), Stage::Paused);
    let running = desk.coordinator.control(Control::Running, at(0));
    desk.durable(running);
    desk.poll();
    assert!(matches!(desk.coordinator.stage(), Stage::Open { round: 1, .. }));
    desk.submit("a", &DELTA).unwrap();
    let stopped = desk.coordinator.stop(at(0));
    desk.durable(stopped);
    assert_eq!(desk.coordinator.stage(), Stage::Ended(RunOutcome::Stopped));
    assert_eq!(outcomes(&desk), [RoundOutcome::Complete, RoundOutcome::Aborted]);
    assert!(desk.coordinator.stop(at(0)).records.is_empty());
    Coordinator::restore(settings(&synchronous(3, 2)), desk.records.clone()).unwrap();
}

/// A paused run asks for no wake-up that would find nothing to do, and its start deadline does not end it.
#[test]
fn a_run_that_is_paused_while_it_gathers_sleeps_until_it_is_resumed() {
    for sites in [["a", "b"].as_slice(), &["a"]] {
        let mut desk = Desk::new(&synchronous(3, 2));
        for name in sites {
            desk.hello(name).unwrap();
        }
        let paused = desk.coordinator.control(Control::Paused, desk.now);
        desk.durable(paused);
        for _ in 0..3 {
            desk.wait(60);
            assert_eq!((desk.coordinator.wake_at(), desk.coordinator.stage()), (None, Stage::Gathering));
        }
        let running = desk.coordinator.control(Control::Running, desk.now);
        desk.durable(running);
        desk.poll();
        match sites.len() {
            2 => assert!(matches!(desk.coordinator.stage(), Stage::Open { round: 0, .. })),
            _ => assert_eq!(desk.coordinator.stage(), Stage::Ended(RunOutcome::QuorumLost)),
        }
    }
}

/// Whatever one enrolled client does, a run keeps a bounded number of records of it.
#[test]
fn hellos_and_withdrawals_without_end_leave_few_records() {
    let mut desk = Desk::joined(&synchronous(3, 2));
    for seq in 1..2000 {
        let body = Hello { ledger_head: Some(head(seq)), ..desk.body("a") };
        desk.say("a", &body).unwrap();
    }
    assert!(desk.records.len() < 300, "{}", desk.records.len());
    // Its update still counts, and with it the later head.
    assert_eq!(desk.submit("a", &DELTA).unwrap().outcome, ReceiptOutcome::Stored);
    let release = ReleaseId { run: desk.coordinator.run(), client: client("b"), round: 0 };
    let withdrawal = Signed::seal(&Refusal { release, header: Hash::default(), reason: RefusalReason::Policy }, &key("b"));
    let mut rejected = 0;
    for _ in 0..2000 {
        let withdrawn = desk.coordinator.on_refusal(&client("b"), &withdrawal, desk.now).unwrap();
        desk.durable(withdrawn);
        rejected += usize::from(matches!(desk.hello("b"), Err(Rejected::TooOften { .. })));
    }
    assert!(rejected > 1000 && desk.records.len() < 900, "{rejected} {}", desk.records.len());
    let long = Hello { software: "x".repeat(9000), ..desk.body("c") };
    assert_eq!(desk.say("c", &long), Err(Rejected::Invalid(InvalidMessage::Malformed)));
    Coordinator::restore(settings(&synchronous(3, 2)), desk.records.clone()).unwrap();
}

#[test]
fn a_client_that_is_no_longer_enrolled_is_neither_heard_nor_waited_for() {
    let mut desk = Desk::joined(&synchronous(3, 2));
    for name in ["a", "b", "c"] {
        desk.submit(name, &DELTA).unwrap();
    }
    let mut clients = settings(&synchronous(3, 2)).clients;
    clients.remove(&client("c"));
    desk.coordinator.set_enrolled(clients);
    assert_eq!(desk.submit("c", &DELTA).unwrap_err(), Rejected::NotEnrolled(client("c")));
    desk.submit("a", &DELTA).unwrap();
    desk.submit("b", &DELTA).unwrap();
    desk.submit("a", &DELTA).unwrap();
    desk.submit("b", &DELTA).unwrap();
    assert_eq!(desk.coordinator.stage(), Stage::Ended(RunOutcome::Complete));
}

#[test]
fn the_transcript_is_a_chain_that_ends_in_a_signed_end() {
    let mut desk = Desk::joined(&synchronous(2, 2));
    for _ in 0..2 {
        for name in ["a", "b", "c"] {
            desk.submit(name, &DELTA).unwrap();
        }
    }
    let Next::Finished(end) = desk.coordinator.next_for(&client("a"), 0).unwrap() else { panic!("not finished") };
    let mut previous = Hash::default();
    for (round, entry) in end.entries.iter().enumerate() {
        let header = entry.header.open(&key("server").verifying_key()).unwrap();
        assert_eq!(header.round as usize, round);
        assert_eq!((header.previous, entry.previous), (previous, previous));
        previous = entry.hash();
    }
    let last = end.header.open(&key("server").verifying_key()).unwrap();
    assert_eq!((last.previous, last.lambda), (previous, vector_hash(&end.lambda)));
    assert_eq!(last.reserved, end_mark(RunOutcome::Complete, None));
    assert_eq!(last.run, RunId { task: synchronous(2, 2).hash(), number: 1 });
}
