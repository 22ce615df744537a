#![allow(clippy::unwrap_used)]
use std::time::Duration;

use dp_pvi_names::{Hash, ReleaseId};
use dp_pvi_posterior::task::ResolvedTask;

use super::*;
use crate::coordinator::Stage;
use crate::message::{Next, ReceiptOutcome, Refusal, RefusalReason, Signed};
use crate::testing::{Desk, asynchronous, client, key, sequential, settings, synchronous};
use crate::time::{AttendedClock, Passed, Reading};

const DELTA: [f64; 4] = [1.0, 2.0, 3.0, 4.0];
const DEADLINE: u64 = 1800;
/// As long as a run of these tests may be suspended.
const SUSPEND: u64 = 86_400;

fn outcomes(desk: &Desk) -> Vec<RoundOutcome> {
    desk.coordinator.entries().iter().map(|entry| entry.outcome).collect()
}

/// The sites that a suspended run waits for.
fn lacks(desk: &Desk) -> Vec<String> {
    match desk.coordinator.stage() {
        Stage::Suspended { lack: Lack::Sites(sites), .. } => sites.iter().map(ToString::to_string).collect(),
        other => panic!("not suspended: {other:?}"),
    }
}

fn is_open(desk: &Desk) -> bool {
    matches!(desk.coordinator.stage(), Stage::Open { .. })
}

/// The coordinator that the records tell, as a started server has it.
fn restart(desk: &mut Desk, task: &ResolvedTask) {
    let before = desk.state();
    desk.coordinator = Coordinator::restore(settings(task), desk.records.clone()).unwrap();
    assert_eq!(desk.state(), before, "a restarted server is where it was");
    desk.poll();
}

fn withdraw(desk: &mut Desk, name: &str, reason: RefusalReason) {
    let round = u32::try_from(desk.coordinator.entries().len()).unwrap();
    let release = ReleaseId { run: desk.coordinator.run(), client: client(name), round };
    let refusal = Signed::seal(&Refusal { release, header: Hash::default(), reason }, &key(name));
    let refused = desk.coordinator.on_refusal(&client(name), &refusal, desk.now).unwrap();
    desk.durable(refused);
    desk.poll();
}

fn submit_all(desk: &mut Desk) {
    for name in ["a", "b", "c"] {
        desk.submit(name, &DELTA).unwrap();
    }
}

#[test]
fn a_server_that_was_away_longer_than_the_deadline_gives_the_open_round_a_whole_one() {
    for task in [synchronous(3, 2), sequential(2, 2), asynchronous(2, 2)] {
        let mut desk = Desk::joined(&task);
        let header = desk.header().1;
        desk.now = desk.now.plus(Duration::from_secs(10 * DEADLINE));
        restart(&mut desk, &task);
        assert!(is_open(&desk) && desk.coordinator.entries().is_empty());
        assert_eq!(desk.coordinator.wake_at(), Some(desk.now.plus(Duration::from_secs(DEADLINE))), "whole");
        desk.wait(DEADLINE - 1);
        assert_eq!(desk.header().1, header, "the same round");
        desk.submit("a", &DELTA).unwrap();
        assert_eq!(desk.coordinator.entries().first().map(|entry| entry.included.len()), task_closes_with_one(&task).then_some(1));
    }
}

fn task_closes_with_one(task: &ResolvedTask) -> bool {
    *task == sequential(2, 2) || *task == asynchronous(2, 2)
}

#[test]
fn the_start_deadline_counts_only_while_the_server_listens() {
    let task = synchronous(3, 2);
    let mut desk = Desk::new(&task);
    desk.hello("a").unwrap();
    desk.now = desk.now.plus(Duration::from_secs(100_000));
    restart(&mut desk, &task);
    desk.wait(59);
    assert_eq!(desk.coordinator.stage(), Stage::Gathering);
    desk.hello("b").unwrap();
    desk.wait(1);
    assert!(is_open(&desk));
}

/// The server's clock is set forth by an hour while a round is open whose deadline is half an hour, and back; and the process is stopped.
#[test]
fn a_jump_of_the_clock_and_a_pause_close_no_round() {
    for (wall, steady) in [(3_600_000_i64, 0_u64), (-600_000, 0), (7_200_000, 7_200_000), (7_200_000, 0)] {
        let mut desk = Desk::joined(&synchronous(3, 2));
        let start = desk.now.as_millis();
        let mut clock = AttendedClock::default();
        let mut look = |desk: &mut Desk, ahead: i64, passed: u64| {
            let wall = Timestamp::from_millis((start + passed).saturating_add_signed(ahead));
            let (now, lost) = clock.look(Reading { wall, steady: Duration::from_millis(passed) });
            desk.now = now;
            if lost == Passed::Lost {
                desk.coordinator.begin_anew();
            }
            desk.poll();
        };
        let quarter = |seconds: u64| (0..seconds * 4).map(|step| step * 250);
        // All but the last second of the deadline.
        quarter(DEADLINE - 1).for_each(|passed| look(&mut desk, 0, passed));
        let from = (DEADLINE - 1) * 1000 + steady;
        let ahead = wall - i64::try_from(steady).unwrap();
        quarter(DEADLINE - 1).for_each(|passed| look(&mut desk, ahead, from + passed));
        assert!(is_open(&desk) && desk.coordinator.entries().is_empty(), "{wall} {steady}");
        // The new deadline ends like any other.
        let from = from + (DEADLINE - 1) * 1000;
        quarter(3).for_each(|passed| look(&mut desk, ahead, from + passed));
        assert_eq!(lacks(&desk), ["a", "b", "c"]);
    }
}

#[test]
fn a_lost_quorum_suspends_the_run_which_goes_on_when_sites_return() {
    let task = synchronous(2, 2);
    let mut desk = Desk::joined(&task);
    let header = desk.header().0;
    let kept = desk.update("b", &DELTA);
    desk.submit("a", &DELTA).unwrap();
    desk.wait(DEADLINE);
    assert_eq!(lacks(&desk), ["b", "c"]);
    assert!(desk.coordinator.entries().is_empty(), "the round is still open");
    desk.wait(SUSPEND - 1);
    restart(&mut desk, &task);
    desk.wait(SUSPEND - 1);
    // The same round under the same header takes what b computed long ago.
    assert_eq!(desk.round("c").unwrap().header, header);
    let (update, bytes) = kept;
    assert_eq!(desk.send("b", &Signed::seal(&update, &key("b")), bytes).unwrap().outcome, ReceiptOutcome::Stored);
    desk.poll();
    assert!(is_open(&desk), "there is a quorum, and c has a whole deadline");
    desk.wait(DEADLINE - 1);
    desk.submit("c", &DELTA).unwrap();
    assert_eq!(outcomes(&desk), [RoundOutcome::Complete]);
    assert_eq!(desk.coordinator.entries()[0].included.len(), 3);
    submit_all(&mut desk);
    assert_eq!(desk.coordinator.stage(), Stage::Ended(RunOutcome::Complete));
    restart(&mut desk, &task);
}

#[test]
fn a_run_that_was_suspended_for_too_long_ends_with_names_and_its_last_posterior() {
    let task = synchronous(2, 2);
    let mut desk = Desk::joined(&task);
    submit_all(&mut desk);
    let lambda = desk.coordinator.lambda().clone();
    desk.submit("a", &DELTA).unwrap();
    desk.wait(DEADLINE);
    assert_eq!(lacks(&desk), ["b", "c"]);
    assert_eq!(desk.coordinator.wake_at(), Some(desk.now.plus(Duration::from_secs(SUSPEND))));
    desk.wait(SUSPEND - 1);
    assert_eq!(lacks(&desk), ["b", "c"]);
    desk.wait(1);
    assert_eq!(desk.coordinator.stage(), Stage::Ended(RunOutcome::QuorumLost));
    assert_eq!(outcomes(&desk), [RoundOutcome::Complete, RoundOutcome::Aborted]);
    assert_eq!(*desk.coordinator.lambda(), lambda);
    let Next::Finished(end) = desk.coordinator.next_for(&client("a"), 0).unwrap() else { panic!("not over") };
    assert_eq!(end.reason(), desk.coordinator.end_reason());
    assert_eq!(end.reason().unwrap(), "too few sites answered; waited in vain for b, c");
    restart(&mut desk, &task);
    assert_eq!(desk.coordinator.end_reason(), end.reason());
}

#[test]
fn a_paused_run_is_not_ended_by_its_suspension_and_a_stopped_one_ends() {
    let mut desk = Desk::joined(&synchronous(2, 2));
    desk.wait(DEADLINE);
    let paused = desk.coordinator.control(Control::Paused, desk.now);
    desk.durable(paused);
    desk.wait(2 * SUSPEND);
    assert_eq!((lacks(&desk).len(), desk.coordinator.wake_at()), (3, None));
    let stopped = desk.coordinator.stop(desk.now);
    desk.durable(stopped);
    assert_eq!(desk.coordinator.stage(), Stage::Ended(RunOutcome::Stopped));
    assert_eq!(desk.coordinator.end_reason(), None);
}

/// A site that leaves for a reason that its operator can mend, in a round and between two rounds, is asked again when it comes back.
#[test]
fn sites_that_leave_and_come_back_bring_the_quorum_back() {
    let task = synchronous(3, 3);
    let mut desk = Desk::joined(&task);
    desk.submit("a", &DELTA).unwrap();
    withdraw(&mut desk, "b", RefusalReason::Unable);
    assert!(is_open(&desk), "c is still waited for");
    desk.submit("c", &DELTA).unwrap();
    assert_eq!(lacks(&desk), ["b"]);
    desk.hello("b").unwrap();
    desk.poll();
    assert_eq!(lacks(&desk), ["b"], "a word is no update");
    desk.submit("b", &DELTA).unwrap();
    assert_eq!(outcomes(&desk), [RoundOutcome::Complete]);
    // Between two rounds.
    let paused = desk.coordinator.control(Control::Paused, desk.now);
    desk.durable(paused);
    submit_all(&mut desk);
    withdraw(&mut desk, "c", RefusalReason::Unable);
    let running = desk.coordinator.control(Control::Running, desk.now);
    desk.durable(running);
    desk.poll();
    assert_eq!(lacks(&desk), ["c"]);
    restart(&mut desk, &task);
    desk.hello("c").unwrap();
    desk.poll();
    assert!(is_open(&desk));
    submit_all(&mut desk);
    assert_eq!(desk.coordinator.stage(), Stage::Ended(RunOutcome::Complete));
}

#[test]
fn where_no_quorum_can_come_back_the_run_ends_at_once_and_says_who_refused() {
    let mut desk = Desk::joined(&synchronous(3, 3));
    withdraw(&mut desk, "b", RefusalReason::Budget);
    desk.submit("a", &DELTA).unwrap();
    desk.submit("c", &DELTA).unwrap();
    assert_eq!(desk.coordinator.stage(), Stage::Ended(RunOutcome::Refused));
    assert_eq!(desk.coordinator.end_reason().unwrap(), "refused: b (budget)");
    // A site whose certificate was revoked is not waited for.
    let task = synchronous(3, 3);
    let mut desk = Desk::joined(&task);
    let mut clients = settings(&task).clients;
    clients.remove(&client("c"));
    desk.submit("a", &DELTA).unwrap();
    desk.submit("b", &DELTA).unwrap();
    desk.coordinator.set_enrolled(clients);
    desk.poll();
    assert_eq!(desk.coordinator.stage(), Stage::Ended(RunOutcome::QuorumLost));
    // No one ever came.
    let mut desk = Desk::new(&task);
    desk.hello("a").unwrap();
    desk.wait(60);
    assert_eq!(desk.coordinator.stage(), Stage::Ended(RunOutcome::QuorumLost));
    assert_eq!(desk.coordinator.end_reason().unwrap(), "too few sites joined before start_deadline; not there: b, c");
}

#[test]
fn a_turn_without_which_the_sweep_has_no_quorum_stays_open() {
    let task = sequential(2, 2);
    let mut desk = Desk::joined(&task);
    // No one is there: a's turn passes, because b and c are a quorum.
    desk.wait(DEADLINE);
    assert_eq!(outcomes(&desk), [RoundOutcome::Skipped]);
    desk.wait(DEADLINE);
    assert_eq!(lacks(&desk), ["b"]);
    restart(&mut desk, &task);
    desk.wait(DEADLINE);
    desk.submit("b", &DELTA).unwrap();
    desk.submit("c", &DELTA).unwrap();
    submit_all(&mut desk);
    assert_eq!(desk.coordinator.stage(), Stage::Ended(RunOutcome::Complete));
    // It never comes back.
    let mut desk = Desk::joined(&task);
    desk.submit("a", &DELTA).unwrap();
    desk.refuse("b").unwrap();
    desk.wait(DEADLINE);
    assert_eq!(lacks(&desk), ["c"]);
    desk.wait(SUSPEND);
    assert_eq!(desk.coordinator.stage(), Stage::Ended(RunOutcome::QuorumLost));
    assert_eq!(outcomes(&desk), [RoundOutcome::Complete, RoundOutcome::Skipped, RoundOutcome::Aborted]);
    restart(&mut desk, &task);
}

#[test]
fn an_asynchronous_run_without_its_quorum_is_suspended_too() {
    let task = asynchronous(3, 2);
    // In a round that no one answers.
    let mut desk = Desk::joined(&task);
    desk.wait(DEADLINE);
    assert_eq!((lacks(&desk).len(), outcomes(&desk)), (3, Vec::new()));
    desk.submit("b", &DELTA).unwrap();
    assert!(is_open(&desk));
    // Between rounds: two miss the deadline of one that closes with the third.
    let mut desk = Desk::joined(&task);
    desk.submit("a", &DELTA).unwrap();
    desk.submit("a", &DELTA).unwrap();
    desk.wait(DEADLINE);
    assert_eq!(outcomes(&desk), [RoundOutcome::Complete, RoundOutcome::Deadline]);
    assert_eq!(lacks(&desk), ["b", "c"]);
    restart(&mut desk, &task);
    desk.hello("b").unwrap();
    desk.poll();
    assert!(is_open(&desk), "a and b are a quorum");
    restart(&mut desk, &task);
}
