#![allow(clippy::unwrap_used)]
use std::time::Duration;

use dp_pvi_names::{Hash, ReleaseId};

use super::*;
use crate::coordinator::{Coordinator, Heeded, Record, Stage};
use crate::message::{Next, Refusal, Signed};
use crate::testing::{Desk, asynchronous, client, head, key, sequential, settings, synchronous};

const DELTA: [f64; 4] = [1.0, 2.0, 3.0, 4.0];
const DEADLINE: u64 = 1800;

fn outcomes(desk: &Desk) -> Vec<RoundOutcome> {
    desk.coordinator.entries().iter().map(|entry| entry.outcome).collect()
}

fn withdraw(desk: &mut Desk, name: &str, reason: RefusalReason) {
    let round = u32::try_from(desk.coordinator.entries().len()).unwrap();
    let release = ReleaseId { run: desk.coordinator.run(), client: client(name), round };
    let refusal = Signed::seal(&Refusal { release, header: Hash::default(), reason }, &key(name));
    let refused = desk.coordinator.on_refusal(&client(name), &refusal, desk.now).unwrap();
    desk.durable(refused);
    desk.poll();
}

/// The coordinator that the records tell.
fn restart(desk: &mut Desk, task: &dp_pvi_posterior::task::ResolvedTask) {
    let before = desk.state();
    desk.coordinator = Coordinator::restore(settings(task), desk.records.clone()).unwrap();
    assert_eq!(desk.state(), before, "a restarted server is where it was");
}

#[test]
fn a_site_that_was_silent_for_three_rounds_is_not_waited_for_until_it_speaks() {
    use RoundOutcome::{Complete, Deadline, WithoutSilent};
    let task = synchronous(12, 2);
    let mut desk = Desk::joined(&task);
    let others = |desk: &mut Desk| ["a", "b"].map(|name| desk.submit(name, &DELTA).unwrap());
    for round in 1..=3 {
        others(&mut desk);
        assert_eq!(desk.coordinator.members()[&client("c")].silent, round - 1);
        desk.wait(DEADLINE);
    }
    assert_eq!(outcomes(&desk), [Deadline; 3]);
    // No one waits for it now, also after a restart; it is asked all the same.
    restart(&mut desk, &task);
    assert!(desk.round("c").is_some());
    others(&mut desk);
    assert_eq!(outcomes(&desk)[3], WithoutSilent);
    // It says no more than hello: one round waits for it.
    desk.hello("c").unwrap();
    others(&mut desk);
    desk.wait(DEADLINE - 1);
    assert_eq!(outcomes(&desk).len(), 4);
    desk.wait(1);
    assert_eq!(outcomes(&desk)[4], Deadline);
    others(&mut desk);
    assert_eq!(outcomes(&desk)[5], WithoutSilent);
    // It answers: it is waited for again, three times.
    desk.submit("c", &DELTA).unwrap();
    others(&mut desk);
    assert_eq!(outcomes(&desk)[6], Complete);
    restart(&mut desk, &task);
    for _ in 0..3 {
        others(&mut desk);
        desk.wait(DEADLINE);
    }
    assert_eq!(outcomes(&desk)[7..], [Deadline; 3]);
    others(&mut desk);
    assert_eq!(outcomes(&desk)[10], WithoutSilent);
    // How each round closed is in the chain that every party checks.
    let mut previous = Hash::default();
    for entry in desk.coordinator.entries() {
        assert_eq!(entry.previous, previous);
        previous = entry.hash();
    }
}

#[test]
fn fewer_sites_than_a_round_needs_wait_for_the_silent_too() {
    let mut desk = Desk::joined(&synchronous(9, 2));
    for _ in 0..3 {
        drop(["a", "b"].map(|name| desk.submit(name, &DELTA).unwrap()));
        desk.wait(DEADLINE);
    }
    desk.submit("a", &DELTA).unwrap();
    desk.refuse("b").unwrap();
    assert_eq!(outcomes(&desk).len(), 3, "one update is no round");
    desk.submit("c", &DELTA).unwrap();
    assert_eq!(outcomes(&desk)[3], RoundOutcome::Complete);
}

#[test]
fn a_late_update_and_a_refusal_are_speech_for_one_round() {
    for refuses in [true, false] {
        let mut desk = Desk::joined(&synchronous(9, 2));
        let (late, bytes) = desk.update("c", &DELTA);
        for _ in 0..3 {
            drop(["a", "b"].map(|name| desk.submit(name, &DELTA).unwrap()));
            desk.wait(DEADLINE);
        }
        assert!(desk.coordinator.members()[&client("c")].is_silent());
        if refuses {
            desk.refuse("c").unwrap();
        } else {
            desk.send("c", &Signed::seal(&late, &key("c")), bytes).unwrap();
        }
        assert_eq!(desk.coordinator.members()[&client("c")].silent, SILENT_ROUNDS - 1);
    }
}

#[test]
fn a_site_that_is_always_late_does_not_draw_every_round_out() {
    let task = synchronous(20, 2);
    let mut desk = Desk::joined(&task);
    for _ in 0..15 {
        let (late, bytes) = desk.update("c", &DELTA);
        let round = desk.coordinator.entries().len();
        drop(["a", "b"].map(|name| desk.submit(name, &DELTA).unwrap()));
        if desk.coordinator.entries().len() == round {
            desk.wait(DEADLINE);
        }
        desk.send("c", &Signed::seal(&late, &key("c")), bytes).unwrap();
    }
    let drawn = outcomes(&desk).iter().filter(|outcome| **outcome == RoundOutcome::Deadline).count();
    assert_eq!(drawn, (SILENT_ROUNDS + MAX_RETURNS) as usize);
    restart(&mut desk, &task);
    // One update in time, and it is waited for as before.
    desk.submit("c", &DELTA).unwrap();
    drop(["a", "b"].map(|name| desk.submit(name, &DELTA).unwrap()));
    let member = &desk.coordinator.members()[&client("c")];
    assert_eq!((member.silent, member.returned), (0, 0));
}

#[test]
fn a_silent_site_gets_no_turn_until_it_speaks() {
    let task = sequential(6, 2);
    let mut desk = Desk::joined(&task);
    let turn = |desk: &Desk| match desk.coordinator.stage() {
        Stage::Open { turn, .. } => turn.unwrap(),
        stage => panic!("{stage:?}"),
    };
    for _ in 0..3 {
        for name in ["a", "b"] {
            assert_eq!(turn(&desk), client(name));
            desk.submit(name, &DELTA).unwrap();
        }
        assert_eq!(turn(&desk), client("c"));
        desk.wait(DEADLINE);
    }
    restart(&mut desk, &task);
    for name in ["a", "b", "a"] {
        assert_eq!(turn(&desk), client(name));
        desk.submit(name, &DELTA).unwrap();
    }
    desk.hello("c").unwrap();
    desk.submit("b", &DELTA).unwrap();
    assert_eq!(turn(&desk), client("c"), "it has said that it is there");
}

#[test]
fn a_run_ends_by_itself_where_too_many_sites_refuse_before_it_starts() {
    let task = synchronous(3, 2);
    let mut desk = Desk::new(&task);
    for name in ["a", "b", "c"] {
        desk.hello(name).unwrap();
        withdraw(&mut desk, name, RefusalReason::Budget);
        if name == "a" {
            assert_eq!(desk.coordinator.stage(), Stage::Gathering, "two sites are enough");
        } else {
            assert_eq!(desk.coordinator.stage(), Stage::Ended(RunOutcome::Refused), "{name}");
            break;
        }
    }
    let reasons: Vec<_> = desk.coordinator.members().values().map(|member| member.refused.unwrap().1).collect();
    assert_eq!(reasons, [RefusalReason::Budget; 2]);
    assert_eq!(desk.records.iter().filter(|record| matches!(record, Record::Refused { .. })).count(), 2);
    assert!(matches!(desk.coordinator.next_for(&client("a"), 0).unwrap(), Next::Finished(end) if end.outcome == RunOutcome::Refused));
    restart(&mut desk, &task);
}

/// What an operator can mend in minutes is waited for until the start deadline, and no longer.
#[test]
fn a_missing_approval_is_waited_for_until_the_start_deadline() {
    for reason in [RefusalReason::Approval, RefusalReason::Frozen, RefusalReason::Unable] {
        let mut desk = Desk::new(&synchronous(3, 2));
        for name in ["a", "b", "c"] {
            desk.hello(name).unwrap();
            withdraw(&mut desk, name, reason);
        }
        desk.wait(59);
        assert_eq!(desk.coordinator.stage(), Stage::Gathering);
        desk.wait(1);
        assert_eq!(desk.coordinator.stage(), Stage::Ended(RunOutcome::Refused));
    }
    let mut desk = Desk::new(&synchronous(3, 2));
    for name in ["a", "b", "c"] {
        desk.hello(name).unwrap();
        withdraw(&mut desk, name, RefusalReason::Approval);
    }
    for name in ["a", "b", "c"] {
        desk.hello(name).unwrap();
    }
    desk.poll();
    assert!(matches!(desk.coordinator.stage(), Stage::Open { .. }), "all were approved and came back");
}

/// A budget with a slip in it that was mended: the site's next hello takes its refusal back, also where the server was restarted meanwhile.
#[test]
fn a_site_that_refused_for_good_and_comes_back_is_asked_again() {
    let task = synchronous(9, 2);
    for reason in [RefusalReason::Budget, RefusalReason::Policy] {
        let mut desk = Desk::joined(&task);
        withdraw(&mut desk, "c", reason);
        assert!(desk.coordinator.members()[&client("c")].withdrawn && desk.round("c").is_none());
        restart(&mut desk, &task);
        desk.hello("c").unwrap();
        restart(&mut desk, &task);
        assert!(!desk.coordinator.members()[&client("c")].withdrawn);
        assert!(desk.round("c").is_some(), "{reason:?}: in the round that is open");
        drop(["a", "b", "c"].map(|name| desk.submit(name, &DELTA).unwrap()));
        assert_eq!(outcomes(&desk), [RoundOutcome::Complete]);
    }
}

#[test]
fn rounds_that_too_many_sites_refuse_end_the_run_and_say_so() {
    let mut desk = Desk::joined(&synchronous(3, 2));
    for name in ["a", "b", "c"] {
        desk.submit(name, &DELTA).unwrap();
    }
    desk.submit("a", &DELTA).unwrap();
    desk.refuse("b").unwrap();
    desk.refuse("c").unwrap();
    assert_eq!(desk.coordinator.stage(), Stage::Ended(RunOutcome::Refused));
    assert_eq!(outcomes(&desk), [RoundOutcome::Complete, RoundOutcome::Aborted]);
    // Sites that say nothing have not refused.
    let mut desk = Desk::joined(&synchronous(3, 2));
    desk.submit("a", &DELTA).unwrap();
    desk.wait(DEADLINE);
    assert!(matches!(desk.coordinator.stage(), Stage::Suspended { .. }));
}

#[test]
fn visits_that_all_sites_refused_are_no_complete_run() {
    let mut desk = Desk::joined(&asynchronous(2, 2));
    for _ in 0..20 {
        if !matches!(desk.coordinator.stage(), Stage::Open { .. }) {
            break;
        }
        for name in ["a", "b", "c"] {
            drop(desk.refuse(name));
        }
    }
    assert_eq!(desk.coordinator.stage(), Stage::Ended(RunOutcome::Refused));
    assert!(desk.coordinator.entries().iter().all(|entry| entry.included.is_empty()));
}

#[test]
fn a_client_that_lacks_many_entries_gets_them_in_bounded_answers() {
    let mut desk = Desk::joined(&synchronous(600, 2));
    for _ in 0..599 {
        for name in ["a", "b", "c"] {
            desk.submit(name, &DELTA).unwrap();
        }
    }
    let (mut seen, mut answers) = (0, Vec::new());
    let last = loop {
        match desk.coordinator.next_for(&client("a"), seen).unwrap() {
            Next::Entries(some) => {
                assert!(some.entries.iter().map(|entry| entry_bytes(entry)).sum::<usize>() <= ENTRIES_BYTES);
                answers.push(some.entries.len());
                seen += u32::try_from(some.entries.len()).unwrap();
            }
            Next::Round(start) => break start.entries.len(),
            other => panic!("{other:?}"),
        }
    };
    assert_eq!((answers, last), (vec![ENTRIES, ENTRIES], 599 - 2 * ENTRIES));
}

#[test]
fn a_welcome_carries_the_site_s_own_word_for_the_head_that_it_names() {
    let task = synchronous(3, 2);
    let mut desk = Desk::joined(&task);
    let ledger = desk.body("a").ledger.unwrap();
    let greet = |desk: &mut Desk| {
        let peer = crate::coordinator::Peer { client: client("a"), tls_key: crate::testing::tls("a") };
        let hello = Signed::seal(&desk.body("a"), &key("a"));
        let greeting = desk.coordinator.on_hello(&hello, &peer, desk.now).unwrap();
        let greeting = desk.durable(greeting);
        (greeting.welcome.peek().unwrap().witnessed, greeting.signed.unwrap().open(&client("a"), &key("a").verifying_key(), ledger))
    };
    assert_eq!(greet(&mut desk), (Some(head(0)), Some(head(0))));
    for name in ["a", "b", "c"] {
        desk.submit(name, &DELTA).unwrap();
    }
    // The hello names row 0, the update that came before it row 1.
    assert_eq!(greet(&mut desk), (Some(head(1)), Some(head(1))));
    restart(&mut desk, &task);
    assert_eq!(greet(&mut desk), (Some(head(1)), Some(head(1))));
    // A new run of a server that was told.
    let witnessed = desk.coordinator.members().iter().filter_map(|(client, member)| Some((client.clone(), member.witnessed()?))).collect();
    desk.coordinator = Coordinator::restore(super::super::Settings { run: 2, witnessed, ..settings(&task) }, []).unwrap();
    desk.poll();
    assert_eq!(greet(&mut desk), (Some(head(1)), Some(head(1))));
    assert_eq!(greet(&mut desk), (Some(head(1)), Some(head(1))), "also when the run has a hello with a lower head");
}

/// A month of restarts every few minutes, whatever the reason, locks no one out.
#[test]
fn a_site_that_restarts_often_in_a_long_run_is_never_locked_out() {
    use RefusalReason::{Approval, Policy, Unable};
    for (reason, every) in [(Approval, 60), (Unable, 150), (Policy, 300)] {
        let task = synchronous(3, 2);
        let mut desk = Desk::new(&task);
        desk.hello("a").unwrap();
        for restart in 0..2000 {
            desk.now = desk.now.plus(Duration::from_secs(every));
            withdraw_quietly(&mut desk, "a", reason);
            assert!(desk.hello("a").is_ok(), "{reason:?}, restart {restart}");
        }
        assert!(!desk.coordinator.members()[&client("a")].withdrawn);
        let before = desk.state();
        assert_eq!(Coordinator::restore(settings(&task), desk.records.clone()).unwrap().state_for_tests(), before);
    }
}

/// The reason that a site gives is its own word: who leaves and comes back as fast as it can fills no disk, with none of them.
#[test]
fn a_flood_of_returns_stays_bounded_and_ends_by_itself() {
    for reason in [RefusalReason::Approval, RefusalReason::Unable, RefusalReason::Policy] {
        let mut desk = Desk::new(&synchronous(3, 2));
        desk.hello("a").unwrap();
        let flood = |desk: &mut Desk| {
            let mut waits = Vec::new();
            for _ in 0..1000 {
                withdraw_quietly(desk, "a", reason);
                match desk.hello("a") {
                    Ok(_) => {}
                    Err(Rejected::TooOften { seconds }) => waits.push(seconds),
                    Err(other) => panic!("{other}"),
                }
            }
            waits
        };
        let waits = flood(&mut desk);
        let most = 2 * crate::coordinator::types::MAX_JOINS as usize + 4;
        assert!(desk.records.len() <= most && waits.iter().all(|wait| (1..=60).contains(wait)), "{} {waits:?}", desk.records.len());
        let before = desk.records.len();
        // An hour later: sixty more, and not one beyond.
        desk.now = desk.now.plus(Duration::from_secs(3600));
        flood(&mut desk);
        assert_eq!(desk.records.len() - before, 2 * 60);
        // It need not wait for the next run.
        let Err(Rejected::TooOften { seconds }) = desk.hello("a") else { panic!("nothing is left") };
        desk.now = desk.now.plus(Duration::from_secs(seconds));
        desk.hello("a").unwrap();
    }
}

/// A vector of a noised sum is taken with its bound or not at all.
#[test]
fn a_lattice_vector_without_a_bound_is_rejected() {
    let private = "schedule = \"synchronous\"\nrounds = 3\nupdate = \"natural-gradient\"";
    let task = crate::testing::task(private, "epsilon = 1.0", 2);
    let desk = Desk::joined(&task);
    let round = desk.round("a").unwrap();
    let form = task.message(0).unwrap();
    let update = |round_number: u32, header: Hash| Update {
        release: ReleaseId { run: desk.coordinator.run(), client: client("a"), round: round_number },
        header,
        kind: form.kind,
        coordinates: form.coordinates,
        payload: Hash::default(),
        ledger_head: head(1),
        upload: None,
    };
    let honest = update(0, round.header.hash());
    assert!(desk.coordinator.bound(&client("a"), &honest).unwrap().is_some());
    // A round that is not there, a site of which nothing is known, and one that declared nothing.
    assert_eq!(desk.coordinator.bound(&client("a"), &update(7, Hash::default())), Err(Rejected::UnknownRound));
    assert!(matches!(desk.coordinator.bound(&client("x"), &honest), Err(Rejected::Unbounded(_))));
    let values = Update { kind: dp_pvi_names::PayloadKind::Values, ..honest };
    assert_eq!(desk.coordinator.bound(&client("a"), &values), Ok(None));
}

/// Leaves the run, without what time brings.
fn withdraw_quietly(desk: &mut Desk, name: &str, reason: RefusalReason) {
    let release = ReleaseId { run: desk.coordinator.run(), client: client(name), round: 0 };
    let refusal = Signed::seal(&Refusal { release, header: Hash::default(), reason }, &key(name));
    let refused = desk.coordinator.on_refusal(&client(name), &refusal, desk.now).unwrap();
    desk.durable(refused);
}

/// What a refusal was, the coordinator says: the server tells of those that came too late, which are no records.
#[test]
fn a_refusal_counts_once_and_late_ones_are_told_apart() {
    let mut desk = Desk::joined(&synchronous(2, 2));
    let (header, body) = desk.header();
    let refusal = |name: &str, header: Hash, round: u32| {
        let release = ReleaseId { run: body.run, client: client(name), round };
        Signed::seal(&Refusal { release, header, reason: RefusalReason::Unable }, &key(name))
    };
    let heed = |desk: &mut Desk, name: &str, header: Hash, round: u32| {
        let refused = desk.coordinator.on_refusal(&client(name), &refusal(name, header, round), desk.now).unwrap();
        let (heeded, recorded) = (refused.then, refused.records.len());
        desk.durable(refused);
        desk.poll();
        assert_eq!(recorded, usize::from(heeded == Heeded::Now));
        heeded
    };
    assert_eq!(heed(&mut desk, "c", header.hash(), 0), Heeded::Now);
    assert_eq!(heed(&mut desk, "c", header.hash(), 0), Heeded::Before);
    drop(["a", "b"].map(|name| desk.submit(name, &DELTA).unwrap()));
    assert_eq!(heed(&mut desk, "c", header.hash(), 0), Heeded::TooLate);
    drop(["a", "b"].map(|name| desk.submit(name, &DELTA).unwrap()));
    desk.wait(DEADLINE);
    assert!(matches!(desk.coordinator.stage(), Stage::Ended(_)));
    let last = desk.coordinator.entries()[1].header.hash();
    assert_eq!(heed(&mut desk, "c", last, 1), Heeded::TooLate);
    // Leaving a run that is over is a record all the same; saying it twice is none.
    assert_eq!(heed(&mut desk, "c", Hash::default(), 2), Heeded::Now);
    assert_eq!(heed(&mut desk, "c", Hash::default(), 2), Heeded::Before);
}
