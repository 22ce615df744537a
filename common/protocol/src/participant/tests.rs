#![allow(clippy::unwrap_used)]
use dp_pvi_accounting::{Delta, Epsilon, PrivacyUnit, Relation};
use dp_pvi_names::Hash;
use dp_pvi_posterior::task::{ResolvedTask, Trust};
use dp_pvi_privacy::SecureNoise;
use dp_pvi_privacy::ledger::memory::MemoryStore;
use dp_pvi_privacy::ledger::{Budget, LedgerError, LedgerIdentity, ReleaseState, RowBody};
use dp_pvi_privacy::{Ledger, Pending, danger};
use ed25519_dalek::SigningKey;

use super::*;
use crate::aggregation::member::AggregationPolicy;
use crate::coordinator::{Peer, Rejected};
use crate::message::{
    Hello, InvalidMessage, Next, Receipt, ReceiptOutcome, RoundHeader, RoundStart, RunOutcome, TranscriptEntry, Update, Welcome, end_mark,
    vector_hash,
};
use crate::testing::{Desk, asynchronous, at, client, key, sequential, settings, synchronous, task, tls};
use crate::witness::{Greeting, SignedHead};
use dp_pvi_unsealed::Unsealed;

mod copies;
mod runs;

type Site = Participant<MemoryStore, SigningKey>;

fn identity(name: &str) -> Identity {
    Identity {
        federation: "test".into(),
        client: client(name),
        key: key(name),
        server: key("server").verifying_key(),
        tls_key: tls(name),
        software: "test".into(),
        task: None,
    }
}

fn lax() -> Policy {
    Policy {
        approve: Approve::Policy,
        allow_trust: vec![Trust::Local],
        min_release_tick_seconds: 0,
        aggregation: AggregationPolicy::default(),
    }
}

fn budget() -> Budget {
    Budget { epsilon: Epsilon::INFINITE, delta: Delta::new(1e-5).unwrap(), per_run: None, max_fallback: None, allow_non_private: true }
}

fn ledger(name: &str, disk: &MemoryStore, budget: Budget) -> Result<Ledger<MemoryStore, SigningKey>, LedgerError> {
    let identity = LedgerIdentity { data: name.into(), unit: PrivacyUnit::Record, relation: Relation::ReplaceOne };
    Ledger::open(disk.clone(), key(name), identity, budget)
}

fn site(name: &str, disk: &MemoryStore) -> Site {
    Participant::new(identity(name), lax(), 100, ledger(name, disk, budget()).unwrap())
}

fn welcome(site: &mut Site, desk: &mut Desk) -> Result<(), SiteError> {
    let hello = site.hello();
    let welcome = answer(desk, &hello);
    site.on_welcome(&hello, &welcome).map(drop)
}

fn answer(desk: &mut Desk, hello: &Signed<Hello>) -> Greeting {
    let client = hello.peek().unwrap().client;
    let peer = Peer { tls_key: tls(client.as_str()), client };
    let welcome = desk.coordinator.on_hello(hello, &peer, desk.now).unwrap();
    desk.durable(welcome)
}

/// A welcomed site `a` whose server has a round open, with that round.
fn asked(task: &ResolvedTask) -> (Desk, MemoryStore, Site, RoundStart) {
    let (disk, mut desk) = (MemoryStore::new(Unsealed), Desk::new(task));
    let mut site = site("a", &disk);
    welcome(&mut site, &mut desk).unwrap();
    for name in ["b", "c"] {
        desk.hello(name).unwrap();
    }
    desk.poll();
    let start = desk.round("a").unwrap();
    (desk, disk, site, start)
}

fn next(start: &RoundStart) -> Next {
    Next::Round(Box::new(start.clone()))
}

fn trained(delta: [f64; 4]) -> Trained {
    let released = danger::assume_released(Unsealed, delta.to_vec());
    Trained { message: Message::values(released.clone()), pending: Pending::Public(released) }
}

fn train(site: &mut Site, start: &RoundStart, delta: [f64; 4]) -> Outgoing {
    let Step::Train(_) = site.on_next(next(start)).unwrap() else { panic!("not asked to train") };
    site.on_trained(trained(delta), &mut SecureNoise::fresh().unwrap()).unwrap()
}

/// Hands an update over and books the receipt.
fn deliver(site: &mut Site, desk: &mut Desk, outgoing: &Outgoing) -> ReceiptOutcome {
    site.on_sending(outgoing).unwrap();
    let update = Signed::<Update>::from_bytes(outgoing.attachment.message()).unwrap();
    let receipt = desk.send(site_name(site), &update, outgoing.attachment.payload().to_bytes()).unwrap();
    let outcome = site.on_receipt(outgoing, &Signed::seal(&receipt, &key("server"))).unwrap();
    desk.poll();
    outcome
}

fn site_name(_site: &Site) -> &'static str {
    "a"
}

/// The header of `start`, changed and signed again by a server that lies.
fn forged(start: &RoundStart, change: impl FnOnce(&mut RoundHeader)) -> RoundStart {
    let mut header = start.header.peek().unwrap();
    change(&mut header);
    RoundStart { header: Signed::seal(&header, &key("server")), ..start.clone() }
}

/// No charge was made, so nothing can leave.
fn uncharged(site: &Site) {
    assert_eq!(site.ledger().rows().len(), 1);
}

fn refused<T: std::fmt::Debug>(result: Result<T, SiteError>, words: &str) {
    match result {
        Err(SiteError::Server(problem)) => assert!(problem.contains(words), "{problem}"),
        other => panic!("expected a refusal ({words}), not {other:?}"),
    }
}

#[test]
fn a_header_that_is_not_the_servers_or_not_the_next_one_is_refused_before_any_charge() {
    let (_, _, mut site, start) = asked(&synchronous(2, 2));
    let stranger = RoundStart { header: Signed::seal(&start.header.peek().unwrap(), &key("b")), ..start.clone() };
    assert!(matches!(site.on_next(next(&stranger)), Err(SiteError::Message(InvalidMessage::Signature))));
    refused(site.on_next(next(&forged(&start, |h| h.run.number = 2))), "another run");
    refused(site.on_next(next(&forged(&start, |h| h.round = 1))), "continue");
    refused(site.on_next(next(&forged(&start, |h| h.previous = Hash([1; 32])))), "continue");
    refused(site.on_next(next(&forged(&start, |h| h.visit = 2))), "more than the task");
    refused(site.on_next(next(&forged(&start, |h| h.reserved = vec![vec![1]]))), "more than the task");
    let other = RoundStart { lambda: start.lambda.iter().map(|x| x + 1.0).collect(), ..start.clone() };
    refused(site.on_next(next(&other)), "posterior");
    // Another prior than the task's, consistently.
    let other = forged(&other, |h| h.lambda = vector_hash(&other.lambda));
    refused(site.on_next(next(&other)), "continue");
    uncharged(&site);
}

#[test]
fn a_round_that_is_opened_in_two_ways_is_refused_also_after_a_restart() {
    let (mut desk, disk, mut site_, start) = asked(&synchronous(2, 2));
    let twin = forged(&start, |h| h.deadline_seconds += 1);
    let outgoing = train(&mut site_, &start, [1.0; 4]);
    refused(site_.on_next(next(&twin)), "two different ways");
    drop((site_, outgoing));
    let mut site = site("a", &disk);
    welcome(&mut site, &mut desk).unwrap();
    refused(site.on_next(next(&twin)), "two different ways");
    // The round that it knows is fine: the stored bytes are sent.
    let mut site = self::site("a", &disk);
    welcome(&mut site, &mut desk).unwrap();
    assert!(matches!(site.on_next(next(&start)).unwrap(), Step::Send(_)));
}

#[test]
fn a_turn_of_another_site_is_not_ours() {
    let (_, _, mut site, start) = asked(&sequential(1, 1));
    let other = forged(&start, |h| h.turn = Some(client("b")));
    assert!(matches!(site.on_next(next(&other)).unwrap(), Step::Wait));
    uncharged(&site);
}

/// A server that lies about a round after it was closed.
fn next_round(start: &RoundStart, included: Vec<(dp_pvi_names::ClientId, Hash)>, change: impl FnOnce(&mut RoundHeader)) -> RoundStart {
    let before = start.header.peek().unwrap();
    let entry = TranscriptEntry {
        header: start.header.clone(),
        included,
        outcome: crate::message::RoundOutcome::Complete,
        lambda: vector_hash(&start.lambda),
        previous: before.previous,
        aggregation: None,
    };
    let mut header = RoundHeader { round: before.round + 1, visit: before.visit + 1, previous: entry.hash(), ..before };
    change(&mut header);
    RoundStart { header: Signed::seal(&header, &key("server")), lambda: start.lambda.clone(), entries: vec![entry.into()], charter: None }
}

#[test]
fn one_visit_is_computed_once() {
    let (mut desk, _, mut site, start) = asked(&synchronous(3, 2));
    let outgoing = train(&mut site, &start, [1.0; 4]);
    deliver(&mut site, &mut desk, &outgoing);
    let again = next_round(&start, Vec::new(), |h| h.visit = 0);
    refused(site.on_next(next(&again)), "visit twice");
}

#[test]
fn the_pending_change_moves_the_factor_iff_the_transcript_lists_the_update() {
    for included in [true, false] {
        let (mut desk, _, mut site, start) = asked(&synchronous(2, 2));
        let outgoing = train(&mut site, &start, [1.0, 2.0, 3.0, 4.0]);
        let update = Signed::<Update>::from_bytes(outgoing.attachment.message()).unwrap().hash();
        deliver(&mut site, &mut desk, &outgoing);
        let list = if included { vec![(client("a"), update)] } else { vec![(client("b"), Hash([3; 32]))] };
        let Step::Train(job) = site.on_next(next(&next_round(&start, list, |_| ()))).unwrap() else { panic!("not asked") };
        // The task's damping is 0.5.
        assert_eq!(job.state.public(4).unwrap(), if included { [0.5, 1.0, 1.5, 2.0] } else { [0.0; 4] });
        assert_eq!(site.ledger().state(&outgoing.release), Some(ReleaseState::Settled { included }));
    }
}

#[test]
fn a_transcript_that_lists_what_was_not_sent_is_refused() {
    let (mut desk, _, mut site_, start) = asked(&synchronous(2, 2));
    let outgoing = train(&mut site_, &start, [1.0; 4]);
    deliver(&mut site_, &mut desk, &outgoing);
    let lie = next_round(&start, vec![(client("a"), Hash([9; 32]))], |_| ());
    refused(site_.on_next(next(&lie)), "did not send");
    // A site whose ledger knows nothing of it has an old ledger.
    let mut fresh = site("a", &MemoryStore::new(Unsealed));
    let hello = fresh.hello();
    let honest =
        Welcome { version: 1, run: desk.coordinator.run(), task: desk.coordinator.task().to_bytes(), witnessed: None, hello: hello.hash() };
    fresh.on_welcome(&hello, &Greeting { welcome: Signed::seal(&honest, &key("server")), signed: None }).unwrap();
    assert!(matches!(fresh.on_next(next(&lie)), Err(SiteError::Forgotten { round: 0 })));
}

/// A site refuses an old copy of its ledger.
#[test]
fn an_old_copy_of_the_ledger_is_refused_by_the_servers_witness() {
    let (mut desk, disk, mut site_, start) = asked(&synchronous(2, 2));
    let old = disk.copy();
    let outgoing = train(&mut site_, &start, [1.0; 4]);
    deliver(&mut site_, &mut desk, &outgoing);
    let mut restored = site("a", &old);
    let error = welcome(&mut restored, &mut desk).unwrap_err();
    assert!(matches!(error, SiteError::Ledger(LedgerError::RolledBack { .. })));
    assert!(error.is_of_a_copy(), "so that it does not withdraw the site, which may be at work");
    let mut latest = site("a", &disk);
    welcome(&mut latest, &mut desk).unwrap();
}

#[test]
fn a_server_behind_the_sites_ledger_is_refused() {
    let (mut desk, disk, mut site_, start) = asked(&synchronous(3, 2));
    let before = desk.records.clone();
    let outgoing = train(&mut site_, &start, [1.0; 4]);
    deliver(&mut site_, &mut desk, &outgoing);
    for name in ["b", "c"] {
        desk.submit(name, &[1.0; 4]).unwrap();
    }
    let second = desk.coordinator.next_for(&client("a"), 0).unwrap();
    let Step::Train(_) = site_.on_next(second).unwrap() else { panic!("not asked") };
    drop(site_);
    // The server is restored from a copy in which the first round is still open.
    desk.coordinator = crate::coordinator::Coordinator::restore(settings(&synchronous(3, 2)), before).unwrap();
    let mut site = site("a", &disk);
    welcome(&mut site, &mut desk).unwrap();
    let error = site.on_next(next(&start)).unwrap_err();
    assert!(matches!(error, SiteError::ServerBehind { seen: 1 }) && error.to_string().contains("old copy"), "{error}");
    // What the driver asks then: the server finds what it lacks.
    assert_eq!(desk.coordinator.next_for(&client("a"), 1).unwrap_err(), Rejected::AheadOfServer { seen: 1, here: 0 });
}

#[test]
fn a_restarted_site_does_what_its_ledger_says() {
    let (mut desk, disk, mut site_, start) = asked(&synchronous(2, 2));
    // RESERVED: computed again under the same reservation.
    let Step::Train(_) = site_.on_next(next(&start)).unwrap() else { panic!("not asked") };
    drop(site_);
    let mut site_ = site("a", &disk);
    welcome(&mut site_, &mut desk).unwrap();
    let (rows, spent) = (site_.ledger().rows().len(), site_.ledger().losses().joint.epsilon);
    let first = train(&mut site_, &start, [1.0; 4]);
    assert_eq!(site_.ledger().rows().len(), rows + 2, "RETRIED and COMMITTED");
    assert_eq!(site_.ledger().losses().joint.epsilon, spent, "not charged again");
    // COMMITTED, SENT and RECEIPTED: the same bytes.
    for step in ["committed", "sent", "receipted"] {
        match step {
            "sent" => site_.on_sending(&first).unwrap(),
            "receipted" => drop(deliver(&mut site_, &mut desk, &first)),
            _ => {}
        }
        let mut again = site("a", &disk);
        welcome(&mut again, &mut desk).unwrap();
        let Step::Send(stored) = again.on_next(next(&start)).unwrap() else { panic!("{step}: not sent again") };
        assert_eq!(stored.attachment.message(), first.attachment.message(), "{step}");
        assert_eq!(stored.attachment.payload(), first.attachment.payload(), "{step}");
    }
}

#[test]
fn a_reservation_whose_round_closed_without_us_is_settled_and_stays_charged() {
    let (mut desk, disk, mut site_, start) = asked(&synchronous(2, 2));
    let Step::Train(job) = site_.on_next(next(&start)).unwrap() else { panic!("not asked") };
    let release = job.permit.release().clone();
    drop((site_, job));
    for name in ["b", "c"] {
        desk.submit(name, &[1.0; 4]).unwrap();
    }
    desk.wait(1800);
    let mut site = site("a", &disk);
    welcome(&mut site, &mut desk).unwrap();
    let Step::Train(_) = site.on_next(desk.coordinator.next_for(&client("a"), 0).unwrap()).unwrap() else { panic!("not asked") };
    assert_eq!(site.ledger().state(&release), Some(ReleaseState::Settled { included: false }));
    assert!(site.ledger().losses().joint.epsilon > Epsilon::ZERO);
}

#[test]
fn a_receipt_must_be_the_servers_and_for_this_update() {
    let (mut desk, _, mut site, start) = asked(&synchronous(2, 2));
    let outgoing = train(&mut site, &start, [1.0; 4]);
    site.on_sending(&outgoing).unwrap();
    let update = Signed::<Update>::from_bytes(outgoing.attachment.message()).unwrap();
    let receipt = desk.send("a", &update, outgoing.attachment.payload().to_bytes()).unwrap();
    let stranger = Signed::seal(&receipt, &key("b"));
    assert!(matches!(site.on_receipt(&outgoing, &stranger), Err(SiteError::Message(InvalidMessage::Signature))));
    let other = Signed::seal(&Receipt { update: Hash([5; 32]), ..receipt.clone() }, &key("server"));
    refused(site.on_receipt(&outgoing, &other), "another update");
    assert_eq!(site.ledger().state(&outgoing.release), Some(ReleaseState::Sent));
    assert_eq!(site.on_receipt(&outgoing, &Signed::seal(&receipt, &key("server"))).unwrap(), ReceiptOutcome::Stored);
    assert_eq!(site.ledger().state(&outgoing.release), Some(ReleaseState::Receipted));
}

#[test]
fn the_end_of_a_run_is_believed_only_when_signed() {
    let (mut desk, _, mut site, start) = asked(&synchronous(1, 2));
    let outgoing = train(&mut site, &start, [1.0; 4]);
    deliver(&mut site, &mut desk, &outgoing);
    for name in ["b", "c"] {
        desk.submit(name, &[1.0; 4]).unwrap();
    }
    let Next::Finished(end) = desk.coordinator.next_for(&client("a"), 0).unwrap() else { panic!("not finished") };
    let lie = RunEnd { outcome: RunOutcome::QuorumLost, entries: Vec::new(), ..(*end).clone() };
    let Step::Finished(_) = site.on_next(Next::Finished(end.clone())).unwrap() else { panic!("not finished") };
    refused(site.on_next(Next::Finished(Box::new(lie))), "without signing");
    let mut header = end.header.peek().unwrap();
    header.reserved = end_mark(RunOutcome::Complete, None);
    let lie = RunEnd { header: Signed::seal(&header, &key("b")), entries: Vec::new(), ..(*end).clone() };
    assert!(matches!(site.on_next(Next::Finished(Box::new(lie))), Err(SiteError::Message(InvalidMessage::Signature))));
    // Signed, but by a rule that this task does not have.
    header.reserved = end_mark(RunOutcome::Converged, None);
    let header = Signed::seal(&header, &key("server"));
    let lie = RunEnd { outcome: RunOutcome::Converged, header, entries: Vec::new(), ..(*end).clone() };
    refused(site.on_next(Next::Finished(Box::new(lie))), "by a rule that the task does not have");
    assert_eq!(site.seen(), 1);
}

/// A welcome to a two-round task, changed and signed by the server.
fn greeted(site: &mut Site, change: impl FnOnce(&mut Welcome)) -> Result<(), SiteError> {
    let hello = site.hello();
    let task = synchronous(2, 2);
    let run = dp_pvi_names::RunId { task: task.hash(), number: 1 };
    let mut body = Welcome { version: 1, run, task: task.to_bytes(), witnessed: None, hello: hello.hash() };
    change(&mut body);
    site.on_welcome(&hello, &Greeting { welcome: Signed::seal(&body, &key("server")), signed: None }).map(drop)
}

#[test]
fn a_welcome_must_answer_this_hello_with_a_task_that_is_what_it_says() {
    let mut a = site("a", &MemoryStore::new(Unsealed));
    greeted(&mut a, |_| ()).unwrap();
    refused(greeted(&mut a, |w| w.hello = Hash::default()), "another hello");
    refused(greeted(&mut a, |w| w.run.task = Hash::default()), "not the one that it names");
    assert!(matches!(greeted(&mut a, |w| w.version = 9), Err(SiteError::Version(_))));
    assert!(matches!(greeted(&mut a, |w| w.task.push(b' ')), Err(SiteError::Version(_))));
    let engine = |w: &mut Welcome| {
        let text = String::from_utf8(w.task.clone()).unwrap().replace(dp_pvi_posterior::task::ENGINE, "dp-pvi/0");
        w.task = text.into_bytes();
    };
    assert!(matches!(greeted(&mut a, engine), Err(SiteError::Version(_))));
    let mut pinned = site("a", &MemoryStore::new(Unsealed));
    pinned.identity_for_tests().task = Some(Hash([1; 32]));
    assert!(matches!(greeted(&mut pinned, |_| ()), Err(SiteError::Version(_))));
}

fn private(change: impl FnOnce(&mut ResolvedTask)) -> ResolvedTask {
    let pvi = "schedule = \"synchronous\"\nrounds = 4\ndamping = 0.5\nupdate = \"dp-optimisation\"\nsteps = 2\nmeasured = false\nexpected_sites = 3";
    let mut task = task(pvi, "epsilon = 1.0", 2);
    change(&mut task);
    task
}

#[test]
fn a_task_that_states_less_than_it_costs_is_refused() {
    let understated = private(|task| task.privacy.epsilon = Some(Epsilon::new(0.9).unwrap()));
    let mut desk = Desk::new(&understated);
    let mut site = site("a", &MemoryStore::new(Unsealed));
    assert!(matches!(welcome(&mut site, &mut desk), Err(SiteError::Understated { stated, own }) if stated < own));
    assert!(site.withdrawal(RefusalReason::Policy).is_some());
    uncharged(&site);
}

/// Decision 12: the ledger's unit and relation hold, whatever a server (here one that does not compare them itself) sends.
#[test]
fn a_task_for_another_unit_or_a_weaker_ledger_is_refused_whatever_the_server_says() {
    let welcomed = |unit, relation, task: &ResolvedTask| {
        let ledger =
            Ledger::open(MemoryStore::new(Unsealed), key("a"), LedgerIdentity { data: "a".into(), unit, relation }, budget()).unwrap();
        let mut site = Participant::new(identity("a"), lax(), 100, ledger);
        let result = greeted(&mut site, |w| (w.task, w.run.task) = (task.to_bytes(), task.hash()));
        assert!(site.withdrawal(RefusalReason::Policy).is_some());
        uncharged(&site);
        result
    };
    let record = private(|_| ());
    welcomed(PrivacyUnit::Record, Relation::ReplaceOne, &record).unwrap();
    let person = welcomed(PrivacyUnit::Person, Relation::ReplaceOne, &record);
    assert!(matches!(person, Err(SiteError::Unit { task: PrivacyUnit::Record, ledger: PrivacyUnit::Person })), "{person:?}");
    let weaker = welcomed(PrivacyUnit::Record, Relation::AddRemove, &record);
    assert!(matches!(weaker, Err(SiteError::Relation { task: Relation::ReplaceOne, ledger: Relation::AddRemove })), "{weaker:?}");
    // A stronger ledger books a weaker task.
    let added = private(|task| task.privacy.relation = Relation::AddRemove);
    welcomed(PrivacyUnit::Record, Relation::ReplaceOne, &added).unwrap();
    welcomed(PrivacyUnit::Record, Relation::AddRemove, &added).unwrap();
}

#[test]
fn policy_decides_before_anything_is_charged() {
    let task = private(|_| ());
    let with = |policy: Policy| {
        let mut desk = Desk::new(&task);
        let ledger = ledger("a", &MemoryStore::new(Unsealed), budget()).unwrap();
        let mut site = Participant::new(identity("a"), policy, 100, ledger);
        let result = welcome(&mut site, &mut desk);
        uncharged(&site);
        result
    };
    with(lax()).unwrap();
    with(Policy { approve: Approve::Exactly(task.hash()), ..lax() }).unwrap();
    with(Policy { approve: Approve::Manual { approved: vec![task.hash()] }, ..lax() }).unwrap();
    assert!(matches!(with(Policy { approve: Approve::Exactly(Hash::default()), ..lax() }), Err(SiteError::Policy(_))));
    assert!(matches!(with(Policy { approve: Approve::Manual { approved: Vec::new() }, ..lax() }), Err(SiteError::Unapproved(_))));
    assert!(matches!(with(Policy { allow_trust: vec![Trust::Aggregated], ..lax() }), Err(SiteError::Policy(_))));
}

/// When an update leaves tells how long it took to compute; how much of that a task may show is for its sites to say.
#[test]
fn a_site_may_ask_for_a_release_tick() {
    let with = |tick: u64, least: u64| {
        let mut task = synchronous(2, 2);
        task.release_tick_seconds = tick;
        let policy = Policy { min_release_tick_seconds: least, ..lax() };
        let mut site = Participant::new(identity("a"), policy, 100, ledger("a", &MemoryStore::new(Unsealed), budget()).unwrap());
        welcome(&mut site, &mut Desk::new(&task))
    };
    for (tick, least) in [(0, 0), (30, 0), (30, 30), (60, 30)] {
        with(tick, least).unwrap();
    }
    for (tick, least) in [(0, 1), (29, 30)] {
        let refused = with(tick, least).unwrap_err();
        assert_eq!(refused.reason(), RefusalReason::Policy);
        let words = refused.to_string();
        assert!(words.contains("release_tick_seconds") && words.contains(&format!("min_release_tick_seconds = {least}")), "{words}");
    }
}

/// A site that missed the first round of a run, whose event is another one than the later ones, is charged for the whole run: after a restart it goes on, and is not asked to pay the run
/// again.
#[test]
fn a_run_that_is_charged_is_paid_to_its_end_whichever_visits_came() {
    let task = task("schedule = \"synchronous\"\nrounds = 4\nupdate = \"natural-gradient\"", "epsilon = 1.0", 2);
    let (first, later) = (task.visit_event(0).unwrap(), task.visit_event(1).unwrap());
    assert_ne!(first, later);
    let run = dp_pvi_names::RunId { task: task.hash(), number: 1 };
    let enough = Budget { epsilon: task.loss(4).unwrap().epsilon, ..budget() };
    let disk = MemoryStore::new(Unsealed);
    let mut before = ledger("a", &disk, enough).unwrap();
    before.plan_run(&run, &task.visit_events(0..4).unwrap(), None).unwrap();
    before.reserve(&ReleaseId { run, client: client("a"), round: 1 }, &later, Hash::of("header", &[])).unwrap();
    drop(before);
    let mut site = Participant::new(identity("a"), lax(), 100, ledger("a", &disk, enough).unwrap());
    welcome(&mut site, &mut Desk::new(&task)).unwrap();
}

/// A run that the budget does not pay to its end is not begun: the rounds before would be charged for nothing.
#[test]
fn a_run_that_the_budget_does_not_pay_to_the_end_is_not_begun() {
    let task = private(|_| ());
    let with = |budget: Budget, disk: &MemoryStore| {
        let mut site = Participant::new(identity("a"), lax(), 100, ledger("a", disk, budget).unwrap());
        let result = welcome(&mut site, &mut Desk::new(&task));
        (site, result)
    };
    let run_cost = epsilon(&task, 4);
    let enough = Budget { epsilon: Epsilon::new(run_cost).unwrap(), ..budget() };
    let (_, result) = with(enough, &MemoryStore::new(Unsealed));
    result.unwrap();
    let (site, result) = with(Budget { epsilon: Epsilon::new(run_cost * 0.99).unwrap(), ..budget() }, &MemoryStore::new(Unsealed));
    assert_eq!(result.as_ref().unwrap_err().reason(), RefusalReason::Budget);
    assert!(matches!(result, Err(SiteError::Ledger(LedgerError::OverBudget { .. }))));
    uncharged(&site);
    let (_, result) = with(Budget { per_run: Some(Epsilon::new(run_cost * 0.99).unwrap()), ..budget() }, &MemoryStore::new(Unsealed));
    assert!(matches!(result, Err(SiteError::Ledger(LedgerError::OverRunBudget { .. }))));

    // What it has reserved of the run already counts once: a restart in the middle goes on.
    let disk = MemoryStore::new(Unsealed);
    let (mut site, mut desk) = (with(enough, &disk).0, Desk::new(&task));
    welcome(&mut site, &mut desk).unwrap();
    for name in ["b", "c"] {
        desk.hello(name).unwrap();
    }
    desk.poll();
    let start = desk.round("a").unwrap();
    assert!(matches!(site.on_next(next(&start)).unwrap(), Step::Train(_)));
    drop(site);
    with(enough, &disk).1.unwrap();
}

/// ε of this many visits at the budget's δ.
fn epsilon(task: &ResolvedTask, visits: usize) -> f64 {
    let event = task.visit_event(0).unwrap();
    let events = std::iter::repeat_n(&event, visits);
    dp_pvi_accounting::epsilon_upper(events, Relation::ReplaceOne, budget().delta).unwrap().epsilon.get()
}

#[test]
fn what_the_ledger_refuses_becomes_a_signed_refusal_with_a_public_reason() {
    let step = |task: &ResolvedTask, budget: Budget, freeze: bool| {
        let mut desk = Desk::new(task);
        let mut ledger = ledger("a", &MemoryStore::new(Unsealed), budget).unwrap();
        if freeze {
            ledger.set_frozen(dp_pvi_privacy::ledger::FreezeState::Frozen).unwrap();
        }
        let mut site = Participant::new(identity("a"), lax(), 100, ledger);
        welcome(&mut site, &mut desk).unwrap();
        desk.hello("b").unwrap();
        desk.wait(60);
        let start = desk.round("a").unwrap();
        let Step::Refuse(refusal, reason) = site.on_next(next(&start)).unwrap() else { panic!("not refused") };
        assert_eq!(refusal.open(&key("a").verifying_key()).unwrap().reason, reason);
        let refused = desk.coordinator.on_refusal(&client("a"), &refusal, at(61)).unwrap();
        desk.durable(refused);
        reason
    };
    assert_eq!(step(&private(|_| ()), budget(), true), RefusalReason::Frozen);
    assert_eq!(step(&synchronous(2, 2), Budget { allow_non_private: false, ..budget() }, false), RefusalReason::Policy);
}

#[test]
fn an_update_of_another_form_than_asked_is_not_committed() {
    let (_, _, mut site, start) = asked(&synchronous(2, 2));
    let Step::Train(_) = site.on_next(next(&start)).unwrap() else { panic!("not asked") };
    let short = Trained { message: Message::values(danger::assume_released(Unsealed, vec![1.0; 3])), pending: Pending::None };
    assert!(matches!(site.on_trained(short, &mut SecureNoise::fresh().unwrap()), Err(SiteError::Order(_))));
    assert!(matches!(site.on_trained(trained([1.0; 4]), &mut SecureNoise::fresh().unwrap()), Err(SiteError::Order(_))));
}

fn ask(site: &mut Site, desk: &Desk) -> Step {
    site.on_next(desk.coordinator.next_for(&client("a"), site.seen()).unwrap()).unwrap()
}

fn settled(site: &Site, round: u32) -> Option<ReleaseState> {
    let run = site.ledger().rows().iter().find_map(|(row, _)| match &row.body {
        RowBody::Reserved { release, .. } => Some(release.run),
        _ => None,
    });
    site.ledger().state(&ReleaseId { run: run.unwrap(), client: client("a"), round })
}

/// Asynchronous: an update that enters a later round than the one it answers moves the factor by that round's ρ.
#[test]
fn an_update_that_enters_a_later_round_is_settled_by_its_entry() {
    let task = asynchronous(3, 2);
    let (mut desk, disk, mut site, start) = asked(&task);
    let late = train(&mut site, &start, [1.0, 2.0, 3.0, 4.0]);
    desk.submit("b", &[1.0; 4]).unwrap();
    assert_eq!(desk.coordinator.entries().len(), 1);
    assert_eq!(deliver(&mut site, &mut desk, &late), ReceiptOutcome::Stored);
    desk.submit("c", &[1.0; 4]).unwrap();
    assert_eq!(desk.coordinator.entries().len(), 2);
    let Step::Train(job) = ask(&mut site, &desk) else { panic!("not asked") };
    assert_eq!(settled(&site, 0), Some(ReleaseState::Settled { included: true }));
    assert_eq!(job.state.public(4).unwrap(), [0.25, 0.5, 0.75, 1.0]);
    assert_eq!((job.permit.release().round, &job.lambda), (2, desk.coordinator.lambda()));

    // A site that starts again over the same ledger comes to the same; what it had only reserved is lost and stays charged.
    drop(site);
    let mut again = Participant::new(identity("a"), lax(), 100, ledger("a", &disk, budget()).unwrap());
    welcome(&mut again, &mut desk).unwrap();
    desk.submit("b", &[1.0; 4]).unwrap();
    desk.wait(1800);
    assert_eq!(desk.coordinator.entries().len(), 3);
    let Step::Train(job) = ask(&mut again, &desk) else { panic!("not asked") };
    assert_eq!(settled(&again, 2), Some(ReleaseState::Settled { included: false }));
    assert_eq!(job.state.public(4).unwrap(), [0.25, 0.5, 0.75, 1.0]);
    // That was its third and last reservation.
    let outgoing = again.on_trained(trained([0.0; 4]), &mut SecureNoise::fresh().unwrap()).unwrap();
    assert_eq!(deliver(&mut again, &mut desk, &outgoing), ReceiptOutcome::Stored);
    desk.submit("c", &[1.0; 4]).unwrap();
    assert!(matches!(ask(&mut again, &desk), Step::Wait));
    assert_eq!(again.ledger().rows().iter().filter(|(row, _)| matches!(row.body, RowBody::Reserved { .. })).count(), 3);
}

/// A committed update is sent again after a crash as long as the task lets it be that late, and the answer to it is not waited for longer.
#[test]
fn a_committed_update_is_sent_again_while_it_is_new_enough() {
    let task = asynchronous(4, 1);
    let (mut desk, disk, mut site, start) = asked(&task);
    drop(train(&mut site, &start, [1.0, 2.0, 3.0, 4.0]));
    drop(site);
    desk.submit("b", &[1.0; 4]).unwrap();
    let mut again = Participant::new(identity("a"), lax(), 100, ledger("a", &disk, budget()).unwrap());
    welcome(&mut again, &mut desk).unwrap();
    let Step::Send(outgoing) = ask(&mut again, &desk) else { panic!("not sent again") };
    assert_eq!(outgoing.release.round, 0);
    // No one hears it, and a deadline passes; then no one waits any more.
    desk.submit("b", &[1.0; 4]).unwrap();
    desk.wait(1800);
    desk.submit("b", &[1.0; 4]).unwrap();
    assert_eq!(desk.coordinator.entries().len(), 3);
    assert_eq!(deliver(&mut again, &mut desk, &outgoing), ReceiptOutcome::Excluded);
    let Step::Train(job) = ask(&mut again, &desk) else { panic!("not asked") };
    assert_eq!(settled(&again, 0), Some(ReleaseState::Settled { included: false }));
    assert_eq!(job.state.public(4).unwrap(), [0.0; 4]);
}

/// A server that says it saw this head, with this message as proof.
fn claimed(site: &mut Site, witnessed: dp_pvi_privacy::ledger::LedgerHead, signed: Option<SignedHead>) -> Result<(), SiteError> {
    let hello = site.hello();
    let task = synchronous(2, 2);
    let run = dp_pvi_names::RunId { task: task.hash(), number: 1 };
    let welcome = Welcome { version: 1, run, task: task.to_bytes(), witnessed: Some(witnessed), hello: hello.hash() };
    site.on_welcome(&hello, &Greeting { welcome: Signed::seal(&welcome, &key("server")), signed }).map(drop)
}

#[test]
fn a_head_that_the_site_never_signed_does_not_lock_it_out() {
    let head = crate::testing::head(1000);
    let signed = |name: &str, change: &dyn Fn(&mut Hello)| {
        let mut hello = Participant::new(identity(name), lax(), 100, ledger(name, &MemoryStore::new(Unsealed), budget()).unwrap())
            .hello()
            .peek()
            .unwrap();
        hello.ledger_head = Some(head);
        change(&mut hello);
        Some(SignedHead::Hello(Signed::seal(&hello, &key(name))))
    };
    let strange = Some(SignedHead::Hello(Signed::from_parts(vec![1, 2], vec![3])));
    let lies = [
        None,
        strange,
        // Another site's word, this site's about another head, and about a ledger of another unit.
        signed("b", &|_| ()),
        signed("b", &|hello| hello.client = client("a")),
        signed("a", &|hello| hello.ledger_head = Some(crate::testing::head(999))),
        signed("a", &|hello| hello.ledger = Some((PrivacyUnit::Person, Relation::ReplaceOne))),
    ];
    for lie in lies {
        let mut site = site("a", &MemoryStore::new(Unsealed));
        claimed(&mut site, head, lie).unwrap();
        assert_eq!(site.take_unproved(), Some(head), "and the operator is told");
        assert_eq!(site.take_unproved(), None, "once");
        // A fork at the row that the ledger has is a claim like any other.
        claimed(&mut site, crate::testing::head(0), None).unwrap();
        assert_eq!(site.take_unproved(), Some(crate::testing::head(0)));
    }
    // Its own signature says that the ledger is an old copy.
    let mut site = site("a", &MemoryStore::new(Unsealed));
    let refused = claimed(&mut site, head, signed("a", &|_| ()));
    assert!(matches!(refused, Err(SiteError::Ledger(LedgerError::RolledBack { witnessed: 1000, .. }))), "{refused:?}");
    assert_eq!(site.take_unproved(), None);
}

/// A copy of the ledger from before a release, with more rows of another run than the server saw of the ledger.
#[test]
fn a_copy_with_fewer_rows_that_grew_past_the_witnessed_row_is_refused() {
    let task = synchronous(2, 2);
    let (mut desk, _, mut site, start) = asked(&task);
    let outgoing = train(&mut site, &start, [1.0; 4]);
    deliver(&mut site, &mut desk, &outgoing);
    let seen = desk.coordinator.members()[&client("a")].head.unwrap();
    // The copy has the first row only.
    let (disk, mut elsewhere) = (MemoryStore::new(Unsealed), Desk::new(&synchronous(4, 2)));
    let mut copy = Participant::new(identity("a"), lax(), 100, ledger("a", &disk, budget()).unwrap());
    welcome(&mut copy, &mut elsewhere).unwrap();
    for name in ["b", "c"] {
        elsewhere.hello(name).unwrap();
    }
    elsewhere.poll();
    for _ in 0..3 {
        let start = match elsewhere.coordinator.next_for(&client("a"), copy.seen()).unwrap() {
            Next::Round(start) => *start,
            other => panic!("{other:?}"),
        };
        let outgoing = train(&mut copy, &start, [2.0; 4]);
        deliver(&mut copy, &mut elsewhere, &outgoing);
        drop(["b", "c"].map(|name| elsewhere.submit(name, &[1.0; 4]).unwrap()));
    }
    assert!(copy.ledger().head().seq > seen.seq);
    drop(copy);
    // Refused, as often as it asks, and also by the next run.
    let refused = |desk: &mut Desk| {
        let mut copy = Participant::new(identity("a"), lax(), 100, ledger("a", &disk, budget()).unwrap());
        let refused = welcome(&mut copy, desk);
        assert!(matches!(refused, Err(SiteError::Ledger(LedgerError::Forked { seq })) if seq == seen.seq), "{refused:?}");
    };
    refused(&mut desk);
    refused(&mut desk);
    let witnessed = desk.coordinator.members().iter().filter_map(|(client, member)| Some((client.clone(), member.witnessed()?))).collect();
    desk.coordinator =
        crate::coordinator::Coordinator::restore(crate::coordinator::Settings { run: 2, witnessed, ..settings(&task) }, []).unwrap();
    desk.poll();
    refused(&mut desk);
    refused(&mut desk);
    assert_eq!(desk.coordinator.members()[&client("a")].head, Some(seen));
}

#[test]
fn a_receipt_cannot_lock_a_site_out_either() {
    let (mut desk, _, mut site, start) = asked(&synchronous(2, 2));
    let outgoing = train(&mut site, &start, [1.0; 4]);
    site.on_sending(&outgoing).unwrap();
    let update = Signed::<Update>::from_bytes(outgoing.attachment.message()).unwrap();
    let receipt = desk.send("a", &update, outgoing.attachment.payload().to_bytes()).unwrap();
    let lie = Receipt { witnessed: Some(crate::testing::head(1000)), ..receipt };
    assert_eq!(site.on_receipt(&outgoing, &Signed::seal(&lie, &key("server"))).unwrap(), ReceiptOutcome::Stored);
    assert_eq!(site.take_unproved(), Some(crate::testing::head(1000)));
}

#[test]
fn a_posterior_that_is_not_finite_is_refused_before_it_is_paid_for() {
    for bad in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY] {
        let (_, _, mut site, start) = asked(&synchronous(3, 2));
        // A server that moved the posterior there, and says so in its transcript.
        let moved: Arc<[f64]> = start.lambda.iter().map(|_| bad).collect();
        let before = start.header.peek().unwrap();
        let entry = TranscriptEntry {
            header: start.header.clone(),
            included: Vec::new(),
            outcome: crate::message::RoundOutcome::Complete,
            lambda: vector_hash(&moved),
            previous: before.previous,
            aggregation: None,
        };
        let header = RoundHeader { round: 1, visit: 1, previous: entry.hash(), lambda: vector_hash(&moved), ..before };
        let header = Signed::seal(&header, &key("server"));
        let lie = RoundStart { header, lambda: moved, entries: vec![entry.into()], charter: None };
        let step = site.on_next(next(&lie)).unwrap();
        assert!(matches!(step, Step::Refuse(_, RefusalReason::Posterior)), "{step:?}");
        uncharged(&site);
    }
}

#[test]
fn a_posterior_of_another_length_is_refused() {
    let (_, _, mut site, start) = asked(&synchronous(3, 2));
    let longer: Arc<[f64]> = start.lambda.iter().copied().chain([0.0]).collect();
    let mut lie = next_round(&start, Vec::new(), |h| h.lambda = vector_hash(&longer));
    let entry = TranscriptEntry { lambda: vector_hash(&longer), ..(*lie.entries[0]).clone() };
    let mut header = lie.header.peek().unwrap();
    header.previous = entry.hash();
    (lie.header, lie.lambda, lie.entries) = (Signed::seal(&header, &key("server")), longer, vec![entry.into()]);
    refused(site.on_next(next(&lie)), "another length");
    uncharged(&site);
}

#[test]
fn a_transcript_has_no_more_rounds_than_the_task() {
    let (_, _, mut site, start) = asked(&synchronous(2, 2));
    let mut previous = start.header.peek().unwrap();
    let mut entries = Vec::new();
    for round in 0..3 {
        let header = Signed::seal(&RoundHeader { round, visit: 0, ..previous.clone() }, &key("server"));
        let entry = TranscriptEntry {
            header,
            included: Vec::new(),
            outcome: crate::message::RoundOutcome::Skipped,
            lambda: previous.lambda,
            previous: previous.previous,
            aggregation: None,
        };
        previous.previous = entry.hash();
        entries.push(Arc::new(entry));
    }
    let some =
        |entries: &[Arc<TranscriptEntry>]| Next::Entries(Box::new(crate::message::Catchup { entries: entries.to_vec(), charter: None }));
    assert!(matches!(site.on_next(some(&entries[..2])).unwrap(), Step::More));
    assert_eq!(site.seen(), 2);
    refused(site.on_next(some(&entries[2..])), "more rounds than the task");
    uncharged(&site);
}

#[test]
fn whatever_a_site_objects_to_reaches_the_server_with_a_public_reason() {
    // A task that this program cannot read: there is a run to refuse all the same.
    let mut a = site("a", &MemoryStore::new(Unsealed));
    let error = greeted(&mut a, |w| w.task.push(b' ')).unwrap_err();
    assert_eq!(error.reason(), RefusalReason::Task);
    let refusal = a.withdrawal(error.reason()).unwrap().open(&key("a").verifying_key()).unwrap();
    assert_eq!((refusal.reason, refusal.header, refusal.release.run.number), (RefusalReason::Task, Hash::default(), 1));
    let missing = Policy { approve: Approve::Manual { approved: Vec::new() }, ..lax() };
    let mut careful = Participant::new(identity("a"), missing, 100, ledger("a", &MemoryStore::new(Unsealed), budget()).unwrap());
    assert_eq!(greeted(&mut careful, |_| ()).unwrap_err().reason(), RefusalReason::Approval);
}
