#![allow(clippy::unwrap_used)]
use dp_pvi_names::{Hash, PayloadKind};

use super::*;
use crate::coordinator::{Begin, Coordinator, Rejected};
use crate::message::{Body, Hello, InvalidMessage, ReceiptOutcome, RefusalReason, Signed};
use crate::shape::Misfit;
use crate::sum::PayloadError;
use crate::testing::{Desk, at, client, head, key, settings, synchronous, task, task_of};

/// Decodes what a peer encoded.
fn said<B: Body>(body: &B) -> Result<(), InvalidMessage> {
    Signed::seal(body, &key("a")).open(&key("a").verifying_key()).map(|_| ())
}

fn out(what: &'static str) -> Result<(), InvalidMessage> {
    Err(InvalidMessage::Bounds(OutOfBounds(what)))
}

#[test]
fn a_declared_number_of_units_lies_between_1_and_2_to_the_32() {
    let mut desk = Desk::new(&synchronous(2, 2));
    let before = desk.state();
    for units in [0, (1 << 32) + 1, u64::MAX - 1, u64::MAX] {
        let hello = Hello { nominal_units: Some(units), ..desk.body("a") };
        let refused = desk.say("a", &hello).unwrap_err();
        assert_eq!(refused, Rejected::Invalid(InvalidMessage::Bounds(OutOfBounds("the declared number of units"))), "{units}");
        assert_eq!(desk.state(), before);
    }
    for (name, units) in [("a", 1), ("b", 1 << 32), ("c", 1 << 32)] {
        let hello = Hello { nominal_units: Some(units), ..desk.body(name) };
        desk.say(name, &hello).unwrap();
    }
}

/// Every integer of every signed message at the ends of its type, and at the ends of its bound.
#[test]
fn every_integer_of_a_signed_message_is_compared_with_the_table() {
    let desk = Desk::joined(&synchronous(2, 2));
    let hello = desk.body("a");
    assert_eq!(said(&hello), Ok(()));
    let changed = |change: fn(&mut Hello)| {
        let mut hello = hello.clone();
        change(&mut hello);
        said(&hello)
    };
    assert_eq!(changed(|h| h.versions = vec![1; VERSIONS]), Ok(()));
    assert_eq!(changed(|h| h.versions = vec![1; VERSIONS + 1]), out("the number of protocol versions"));
    assert_eq!(changed(|h| h.ledger_head = Some(head(LEDGER_ROWS))), Ok(()));
    assert_eq!(changed(|h| h.ledger_head = Some(head(LEDGER_ROWS + 1))), out("the row of a ledger"));
    assert_eq!(changed(|h| h.ledger_head = Some(head(u64::MAX))), out("the row of a ledger"));
    assert_eq!(changed(|h| h.federation = "f".repeat(65)), out("the name of the federation"));
    assert_eq!(changed(|h| h.software = "s".repeat(129)), out("the name of the software"));
    for text in ["1.0\u{1b}[2J", "1.0\n", "a\u{202e}b", "\u{7}"] {
        let mut hello = hello.clone();
        hello.software = text.into();
        assert_eq!(said(&hello), out("the name of the software"), "{text:?}");
    }

    let (update, _) = desk.update("a", &[0.0; 4]);
    let changed = |change: fn(&mut Update)| {
        let mut update = update.clone();
        change(&mut update);
        said(&update)
    };
    assert_eq!(changed(|_| ()), Ok(()));
    assert_eq!(changed(|u| u.release.round = ROUNDS), Ok(()));
    assert_eq!(changed(|u| u.release.round = u32::MAX), out("a round"));
    assert_eq!(changed(|u| u.release.run.number = u32::MAX), out("the number of a run"));
    assert_eq!(changed(|u| u.coordinates = u64::MAX), out("the number of coordinates"));
    for exponent in [i32::MIN, -901, 901, i32::MAX] {
        for kind in [PayloadKind::Lattice { exponent }, PayloadKind::Masked { exponent }] {
            assert_eq!(said(&Update { kind, ..update.clone() }), out("the exponent of a lattice"));
        }
    }
    assert_eq!(changed(|u| u.ledger_head = head(u64::MAX)), out("the row of a ledger"));

    let (_, header) = desk.header();
    let changed = |change: fn(&mut RoundHeader)| {
        let mut header = header.clone();
        change(&mut header);
        said(&header)
    };
    assert_eq!(changed(|_| ()), Ok(()));
    assert_eq!(changed(|h| h.round = u32::MAX), out("a round"));
    assert_eq!(changed(|h| h.visit = u32::MAX), out("a visit"));
    assert_eq!(changed(|h| h.deadline_seconds = u64::MAX), out("the seconds to a deadline"));
    assert_eq!(changed(|h| h.reserved = vec![Vec::new(); PARTS + 1]), out("the parts of a header"));
    assert_eq!(changed(|h| h.reserved = vec![vec![0; PART_BYTES + 1]]), out("the parts of a header"));

    let release = update.release.clone();
    let refusal =
        Refusal { release: ReleaseId { round: u32::MAX, ..release.clone() }, header: Hash::default(), reason: RefusalReason::Policy };
    assert_eq!(said(&refusal), out("a round"));
    let receipt = Receipt {
        release,
        update: Hash::default(),
        outcome: ReceiptOutcome::Stored,
        witnessed: Some(head(u64::MAX)),
        reserved: Vec::new(),
    };
    assert_eq!(said(&receipt), out("the row of a ledger"));
    assert_eq!(said(&Receipt { witnessed: None, ..receipt }), Ok(()));

    let welcome = Welcome { version: 1, run: desk.coordinator.run(), task: Vec::new(), witnessed: None, hello: Hash::default() };
    let changed = |change: fn(&mut Welcome)| {
        let mut welcome = welcome.clone();
        change(&mut welcome);
        said(&welcome)
    };
    assert_eq!(changed(|_| ()), Ok(()));
    assert_eq!(changed(|w| w.witnessed = Some(head(LEDGER_ROWS))), Ok(()));
    assert_eq!(changed(|w| w.witnessed = Some(head(LEDGER_ROWS + 1))), out("the row of a ledger"));
    assert_eq!(changed(|w| w.run.number = RUNS + 1), out("the number of a run"));

    // An entry's own numbers are those of the header in it, and how many sites it lists.
    let entry = |header: &RoundHeader| TranscriptEntry {
        header: Signed::seal(header, &key("a")),
        included: Vec::new(),
        outcome: crate::message::RoundOutcome::Complete,
        lambda: Hash::default(),
        previous: Hash::default(),
        aggregation: None,
    };
    assert!(entry(&header).header.peek().is_ok());
    assert!(entry(&RoundHeader { round: u32::MAX, ..header.clone() }).header.peek().is_err());
    assert_eq!(included(MAX_SITES as usize), Ok(()));
    assert_eq!(included(MAX_SITES as usize + 1), Err(OutOfBounds("the sites of a transcript entry")));

    let metrics = HeldOutMetrics { records: 10, reliability: vec![(0.5, 0.5, 10)], ..HeldOutMetrics::default() };
    let report = |metrics: HeldOutMetrics| said(&MetricsReport { run: desk.coordinator.run(), round: 0, metrics });
    assert_eq!(report(metrics.clone()), Ok(()));
    assert_eq!(report(HeldOutMetrics { records: u64::MAX, ..metrics.clone() }), out("the records of a test set"));
    assert_eq!(report(HeldOutMetrics { records: 0, ..metrics.clone() }), out("the records of a test set"));
    for accuracy in [f64::INFINITY, -0.1, 1.1] {
        assert_eq!(report(HeldOutMetrics { accuracy: Some(accuracy), ..metrics.clone() }), out("a share of a report"));
    }
    assert_eq!(report(HeldOutMetrics { calibration_error: Some(-1e308), ..metrics.clone() }), out("a share of a report"));
    for brier in [-1.0, f64::INFINITY, 1e308] {
        assert_eq!(report(HeldOutMetrics { brier: Some(brier), ..metrics.clone() }), out("the Brier score of a report"));
    }
    assert_eq!(report(HeldOutMetrics { rmse: Some(-1.0), ..metrics.clone() }), out("an error of a report"));
    assert_eq!(report(HeldOutMetrics { log_likelihood: f64::INFINITY, ..metrics.clone() }), out("the likelihood of a report"));
    assert_eq!(report(HeldOutMetrics { accuracy: Some(f64::NAN), brier: Some(2.0), ..metrics.clone() }), Ok(()));
    assert_eq!(report(HeldOutMetrics { pit: vec![u64::MAX], ..metrics.clone() }), out("the records of a bin"));
    assert_eq!(report(HeldOutMetrics { reliability: vec![(0.5, 0.5, 1); BINS + 1], ..metrics.clone() }), out("the bins of a report"));
    assert_eq!(report(HeldOutMetrics { reliability: vec![(f64::NAN, 0.5, 1)], ..metrics.clone() }), out("the bins of a report"));
    for roc in [vec![(0.5, 0.5); BINS + 1], vec![(0.5, 1.5)], vec![(f64::NAN, 0.5)]] {
        assert_eq!(report(HeldOutMetrics { roc, ..metrics.clone() }), out("the points of a ROC curve"));
    }
}

/// A task of one round of natural gradients, whose payloads are lattice vectors.
fn lattice(more: &str) -> dp_pvi_posterior::task::ResolvedTask {
    let pvi = "schedule = \"synchronous\"\nrounds = 2\nupdate = \"natural-gradient\"\nexpected_sites = 3";
    task(pvi, &format!("epsilon = 1.0\n{more}"), 2)
}

/// Sends a lattice vector for the open round.
fn submit(desk: &mut Desk, name: &str, values: &[i64]) -> Result<(), Rejected> {
    let task = desk.coordinator.task().clone();
    let form = task.message(0).unwrap();
    assert_eq!(values.len() as u64, form.coordinates);
    let bytes: Vec<u8> = values.iter().flat_map(|x| x.to_le_bytes()).collect();
    let (mut update, _) = desk.update(name, &[]);
    (update.kind, update.coordinates) = (form.kind, form.coordinates);
    update.payload = crate::message::payload_hash(form.kind, &bytes);
    desk.send(name, &Signed::seal(&update, &key(name)), bytes).map(|_| ())
}

#[test]
fn a_lattice_vector_is_compared_with_the_bound_of_its_sum() {
    let mut desk = Desk::joined(&lattice(""));
    let task = desk.coordinator.task().clone();
    let d = usize::try_from(task.message(0).unwrap().coordinates).unwrap();
    let (event, terms) = task.sum_of_site(0, 100).unwrap().unwrap();
    assert_eq!(terms, 100, "the declared units");
    let bound = dp_pvi_privacy::mechanism::SumBound::of_event(&event, terms).unwrap();
    let before = desk.state();
    let most = i64::try_from(bound.coordinate()).unwrap();
    let one = |value: i64| (0..d).map(|j| if j == 1 { value } else { 0 }).collect::<Vec<_>>();
    #[allow(clippy::cast_possible_truncation)]
    let longest = bound.norm() as i64;
    for values in [vec![i64::MAX; d], vec![i64::MIN; d], one(i64::MIN), one(most + 1), one(-most - 1), one(longest + 2), vec![longest; d]] {
        assert_eq!(submit(&mut desk, "a", &values), Err(Rejected::Payload(PayloadError::OutOfBounds)));
        desk.coordinator.forget_verified_for_tests();
        assert_eq!(desk.state(), before);
    }
    // Within the norm, and still no sum of squares: a number beside a diagonal of nothing, and a square below 0.
    let square = |value: i64| (0..d).map(|j| if j == 0 { value } else { 0 }).collect::<Vec<_>>();
    for values in [one(most.min(longest) / 100 * 99), square(-longest / 100 * 99)] {
        assert_eq!(submit(&mut desk, "a", &values), Err(Rejected::Payload(PayloadError::Shape(Misfit::Negative))));
        desk.coordinator.forget_verified_for_tests();
        assert_eq!(desk.state(), before);
    }
    // What the declared units and their noise could give passes: no one can tell it from an honest one.
    submit(&mut desk, "a", &square(longest / 2)).unwrap();
    // A payload that is no sum has a shape, too.
    let plain = Desk::joined(&synchronous(2, 2));
    let (update, _) = plain.update("a", &[1.0; 4]);
    let mut coordinator = plain.coordinator;
    let begun = coordinator.on_update_begin(&client("a"), &Signed::seal(&update, &key("a")), at(0)).unwrap();
    assert!(matches!(begun.then, Begin::Accept(expected) if expected.bound.is_none() && expected.shape.is_some()));
}

/// A change that would leave no distribution opens no round: it is refused with its author's name, the round takes the others, and the state stays one.
#[test]
fn a_change_that_leaves_no_distribution_is_refused_and_the_others_go_on() {
    let mut desk = Desk::joined(&synchronous(2, 2));
    for wrong in [[0.0, 0.0, 1e99, 0.0], [0.0, 0.0, -1e99, 0.0], [0.0, 0.0, -1.0, 0.0], [1e99, 0.0, 0.0, 0.0]] {
        let (update, bytes) = desk.update("c", &wrong);
        let before = desk.state();
        let refused = desk.send("c", &Signed::seal(&update, &key("c")), bytes).map(|_| ());
        assert_eq!(refused, Err(Rejected::Payload(PayloadError::Shape(Misfit::NoDistribution))), "{wrong:?}");
        desk.coordinator.forget_verified_for_tests();
        assert_eq!(desk.state(), before);
    }
    for name in ["a", "b"] {
        let (update, bytes) = desk.update(name, &[0.5, 0.0, 3.0, 2.0]);
        desk.send(name, &Signed::seal(&update, &key(name)), bytes).unwrap();
    }
    desk.now = at(2000);
    desk.poll();
    assert_eq!(desk.coordinator.entries()[0].included.iter().map(|(client, _)| client.as_str()).collect::<Vec<_>>(), ["a", "b"]);
    assert!(crate::shape::is_state(desk.coordinator.task(), 1, desk.coordinator.lambda()));
}

/// What a site says of another site's effect would move it, although that site's records alone are about it.
#[test]
fn a_site_fills_no_effect_of_another_site() {
    let model = "approximation = \"mean-field\"\nformula = \"y ~ a + (1 | site)\"\nsites = [\"a\", \"b\", \"c\"]";
    let pvi = "schedule = \"synchronous\"\nrounds = 2\nupdate = \"natural-gradient\"\nexpected_sites = 3";
    let mut desk = Desk::joined(&task_of(model, pvi, "epsilon = 1.0", 2));
    let task = desk.coordinator.task().clone();
    let d = task.message(0).unwrap().coordinates;
    let before = desk.state();
    for (name, others) in [("a", ["b", "c"]), ("b", ["a", "c"])] {
        let own = task.places_of_site(0, name).unwrap().unwrap();
        assert!(own.len() < d as usize);
        let filled = |other: Option<u64>| (0..d).map(|j| i64::from(other == Some(j) || own.contains(&(j as u32)))).collect::<Vec<_>>();
        for other in others {
            for place in task.places_of_site(0, other).unwrap().unwrap().into_iter().filter(|place| !own.contains(place)) {
                assert_eq!(submit(&mut desk, name, &filled(Some(u64::from(place)))), Err(Rejected::Payload(PayloadError::Foreign)));
                desk.coordinator.forget_verified_for_tests();
            }
        }
        if name == "a" {
            assert_eq!(desk.state(), before);
        }
        submit(&mut desk, name, &filled(None)).unwrap();
    }
}

#[test]
fn a_hello_with_more_units_than_the_task_admits_is_refused() {
    let mut desk = Desk::new(&lattice("max_units = 100"));
    let hello = Hello { nominal_units: Some(101), ..desk.body("a") };
    assert_eq!(desk.say("a", &hello), Err(Rejected::TooManyUnits { declared: 101, most: 100 }));
    assert!(Rejected::TooManyUnits { declared: 101, most: 100 }.to_string().contains("max_units"));
    desk.hello("a").unwrap();
}

/// Whole runs with the largest numbers that pass: each closes, and the posterior is finite.
#[test]
fn a_run_with_extreme_numbers_closes_and_its_posterior_is_finite() {
    let task = lattice("");
    let mut desk = Desk::new(&task);
    for name in ["a", "b", "c"] {
        let hello = Hello { nominal_units: Some(1 << 32), ledger_head: Some(head(LEDGER_ROWS)), ..desk.body(name) };
        desk.say(name, &hello).unwrap();
    }
    desk.poll();
    let d = usize::try_from(task.message(0).unwrap().coordinates).unwrap();
    let (event, terms) = task.sum_of_site(0, 1 << 32).unwrap().unwrap();
    let bound = dp_pvi_privacy::mechanism::SumBound::of_event(&event, terms).unwrap();
    // On the diagonal: all that so many units have, shared out.
    #[allow(clippy::cast_possible_truncation)]
    let most = (bound.norm() / 2.0 * 0.999) as i64;
    assert_eq!(d, 3);
    for name in ["a", "b", "c"] {
        submit(&mut desk, name, &[most, 0, most]).unwrap();
    }
    desk.poll();
    assert_eq!(desk.coordinator.entries().len(), 1);
    assert!(desk.coordinator.lambda().iter().all(|x| x.is_finite()));
    let restored = Coordinator::restore(settings(&task), desk.records.clone()).unwrap();
    assert_eq!(restored.lambda(), desk.coordinator.lambda());
}
