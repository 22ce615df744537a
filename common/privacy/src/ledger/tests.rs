//! The ledger against its promises: a model-based property test with crashes, and one test per refusal.

use std::collections::BTreeMap;

use ed25519_dalek::SigningKey;
use proptest::prelude::*;

use super::memory::{Failure, MemoryStore};
use super::*;
use crate::danger::{assume_released, assume_signed};
use dp_pvi_accounting::adjacency::{PrivacyUnit, Relation, Terms};
use dp_pvi_accounting::event::{DiscreteGaussian, LatticePath};
use dp_pvi_accounting::unit::Delta;
use dp_pvi_accounting::{Method, Prices, RunCost, epsilon_upper};
use dp_pvi_names::{ClientId, LatticeVector, Payload};
use dp_pvi_unsealed::Unsealed;

mod aggregated;
mod envelopes;
mod renounced;
mod state;

type TestLedger = Ledger<MemoryStore, SigningKey>;

fn key() -> SigningKey {
    SigningKey::from_bytes(&[3; 32])
}

fn identity() -> LedgerIdentity {
    LedgerIdentity { data: "ward 7".into(), unit: PrivacyUnit::Person, relation: Relation::ReplaceOne }
}

/// Half a unit of noise ratio: μ = 2·0.25 = 0.5 a release.
fn event() -> DpEvent {
    DpEvent::DiscreteGaussian(DiscreteGaussian {
        exponent: -20,
        scale: 1 << 20,
        bound_squared: 1 << 36,
        excess: 0,
        dimension: 2,
        terms: Terms::Units,
        path: LatticePath::Term,
    })
}

/// ε of these visits as a plan: at least what is charged for them one by one.
fn plan_of(events: &[DpEvent]) -> f64 {
    epsilon_upper(events, Relation::ReplaceOne, Delta::new(1e-5).unwrap()).unwrap().epsilon.get()
}

/// ε that a ledger reads after these visits, none of which is in a plan: each is a run of its own.
fn charged(events: &[DpEvent]) -> f64 {
    let (delta, mut prices, mut runs) = (Delta::new(1e-5).unwrap(), Prices::new(Relation::ReplaceOne), Runs::default());
    for event in events {
        prices.learn(event).unwrap();
        let run = RunCost::of(&[(event.clone(), 1)], &prices, delta).unwrap();
        runs.add(&run, run.envelope_after(runs.envelope().failure));
    }
    runs.loss(delta).epsilon.get()
}

fn cost(releases: usize) -> f64 {
    charged(&vec![event(); releases])
}

fn budget(epsilon: f64) -> Budget {
    Budget {
        epsilon: Epsilon::new(epsilon).unwrap(),
        delta: Delta::new(1e-5).unwrap(),
        per_run: None,
        max_fallback: None,
        allow_non_private: false,
    }
}

fn run(number: u32) -> RunId {
    RunId { task: Hash::of("task", &[]), number }
}

fn release(run_number: u32, round: u32) -> ReleaseId {
    ReleaseId { run: run(run_number), client: ClientId::new("here").unwrap(), round }
}

fn header(round: u32) -> Hash {
    Hash::of("header", &[&round.to_le_bytes()])
}

fn attachment(value: i64) -> Attachment {
    let payload = Payload::Lattice(LatticeVector { exponent: -20, values: vec![value, -value] });
    assume_signed(Unsealed, vec![1, 2, 3], payload, Pending::Public(assume_released(Unsealed, vec![value as f64, 0.5])))
}

fn open(store: &MemoryStore, budget: Budget) -> Result<TestLedger, LedgerError> {
    Ledger::open(store.clone(), key(), identity(), budget)
}

fn fresh(epsilon: f64) -> (MemoryStore, TestLedger) {
    let store = MemoryStore::new(Unsealed);
    let ledger = open(&store, budget(epsilon)).unwrap();
    (store, ledger)
}

/// A whole release, up to a receipt.
fn whole(ledger: &mut TestLedger, id: &ReleaseId) -> Result<(), LedgerError> {
    ledger.reserve(id, &event(), header(id.round))?;
    ledger.commit(id, &attachment(id.round.into()))?;
    ledger.sent(id)?;
    ledger.receipted(id, Hash::default())
}

#[test]
fn a_release_goes_through_all_states_and_its_bytes_never_change() {
    let (store, mut ledger) = fresh(10.0);
    let id = release(0, 4);
    let permit = ledger.reserve(&id, &event(), header(4)).unwrap();
    assert_eq!((permit.event(), permit.release()), (&event(), &id));
    ledger.commit(&id, &attachment(9)).unwrap();
    let first = ledger.attachment(&id).unwrap().unwrap();
    assert!(matches!(ledger.commit(&id, &attachment(10)), Err(LedgerError::WrongState { state: Some(ReleaseState::Committed), .. })));
    for _ in 0..2 {
        ledger.sent(&id).unwrap();
        ledger.receipted(&id, Hash::default()).unwrap();
    }
    assert_eq!(ledger.rows().len(), 6);
    assert_eq!(ledger.unsettled(&run(0)), vec![(id.clone(), ReleaseState::Receipted)]);
    for _ in 0..2 {
        assert_eq!(ledger.settle(&id, true, 0.5).unwrap().public(2), Ok(vec![4.5, 0.25]));
    }
    assert!(matches!(ledger.settle(&id, false, 0.5), Err(LedgerError::Conflict(_))));
    assert!(ledger.unsettled(&run(0)).is_empty());

    let mut again = open(&store, budget(10.0)).unwrap();
    assert_eq!(again.state(&id), Some(ReleaseState::Settled { included: true }));
    assert_eq!(again.head(), ledger.head());
    assert_eq!(again.site_state(&run(0)).unwrap().public(2), Ok(vec![4.5, 0.25]));
    // Settled: payload and pending change are gone, the message stays.
    assert_eq!(first.payload(), &Payload::Lattice(LatticeVector { exponent: -20, values: vec![9, -9] }));
    assert!(again.attachment(&id).unwrap().is_none());
    assert_eq!(again.message(&id).unwrap().unwrap(), first.message());
    store.tamper(|_, attachments, _| assert!(attachments[&id].len() < 48 + first.message().len()));
    // No one puts a payload back.
    let copy = store.copy();
    copy.tamper(|_, attachments, _| drop(attachments.insert(id.clone(), first.to_bytes(|_| unreachable!()))));
    assert!(matches!(open(&copy, budget(10.0)).map(|_| ()), Err(LedgerError::Store(StoreError::Corrupt(_)))));
}

#[test]
fn factors_add_up_over_rounds_and_stay_apart_between_runs() {
    let (store, mut ledger) = fresh(10.0);
    for (number, round, included) in [(0, 1, true), (0, 2, false), (1, 5, true), (0, 3, true)] {
        let id = release(number, round);
        whole(&mut ledger, &id).unwrap();
        ledger.settle(&id, included, 0.1).unwrap();
    }
    let mut again = open(&store, budget(10.0)).unwrap();
    let expected = |rounds: &[f64]| {
        let mut factor = vec![0.0, 0.0];
        for round in rounds {
            factor[0] += 0.1 * round;
            factor[1] += 0.1 * 0.5;
        }
        Ok(factor)
    };
    assert_eq!(again.site_state(&run(0)).unwrap().public(2), expected(&[1.0, 3.0]));
    assert_eq!(again.site_state(&run(1)).unwrap().public(2), expected(&[5.0]));
    assert_eq!(again.site_state(&run(2)).unwrap().kind(), None);
}

#[test]
fn a_reservation_that_never_left_can_only_be_settled_as_not_included() {
    let (_, mut ledger) = fresh(10.0);
    let id = release(0, 0);
    ledger.reserve(&id, &event(), header(0)).unwrap();
    assert!(matches!(ledger.settle(&id, true, 1.0), Err(LedgerError::WrongState { .. })));
    assert_eq!(ledger.settle(&id, false, 1.0).unwrap().kind(), None);
    assert!(matches!(ledger.commit(&id, &attachment(1)), Err(LedgerError::WrongState { .. })));
    assert!((ledger.losses().joint.epsilon.get() - cost(1)).abs() < 1e-12, "nothing is refunded");
}

/// A budget for k releases lets k through and not one more, also over several runs.
#[test]
fn the_release_after_the_last_that_fits_is_refused() {
    let limit = cost(5);
    let (store, mut ledger) = fresh(limit);
    for round in 0..5 {
        whole(&mut ledger, &release(round % 2, round)).unwrap();
    }
    let rows = store.len();
    match ledger.reserve(&release(2, 5), &event(), header(5)) {
        Err(LedgerError::OverBudget { would_be, limit: stated }) => {
            assert!((would_be - cost(6)).abs() < 1e-9 && (stated - limit).abs() < 1e-12);
        }
        other => panic!("{other:?}"),
    }
    assert_eq!(store.len(), rows, "a refusal writes nothing");
    assert!(open(&store, budget(limit)).unwrap().reserve(&release(2, 5), &event(), header(5)).is_err());
    assert!(open(&store, budget(cost(6))).unwrap().reserve(&release(2, 5), &event(), header(5)).is_ok());
}

#[test]
fn one_run_may_have_a_limit_of_its_own() {
    let store = MemoryStore::new(Unsealed);
    let limited = Budget { per_run: Some(Epsilon::new(cost(2)).unwrap()), ..budget(100.0) };
    let mut ledger = open(&store, limited).unwrap();
    whole(&mut ledger, &release(0, 0)).unwrap();
    whole(&mut ledger, &release(0, 1)).unwrap();
    assert!(matches!(ledger.reserve(&release(0, 2), &event(), header(2)), Err(LedgerError::OverRunBudget { .. })));
    whole(&mut ledger, &release(1, 0)).unwrap();
    assert!((ledger.losses_in(&run(0)).joint.epsilon.get() - cost(2)).abs() < 1e-12);
    assert!((ledger.losses().joint.epsilon.get() - cost(3)).abs() < 1e-12);
    assert!((ledger.would_cost(&[(event(), 2)], None).unwrap().joint.epsilon.get() - cost(5)).abs() < 1e-9);
}

#[test]
fn a_release_is_made_once() {
    let (store, mut ledger) = fresh(100.0);
    let id = release(0, 0);
    ledger.reserve(&id, &event(), header(0)).unwrap();
    assert!(matches!(ledger.reserve(&id, &event(), header(0)), Err(LedgerError::PermitOutstanding(_))));
    // After a crash: the same event and header only, and no new charge.
    let mut again = open(&store, budget(100.0)).unwrap();
    assert!(matches!(again.reserve(&id, &event().repeated(2), header(0)), Err(LedgerError::Conflict(_))));
    assert!(matches!(again.reserve(&id, &event(), header(1)), Err(LedgerError::Conflict(_))));
    let rows = store.len();
    again.reserve(&id, &event(), header(0)).unwrap();
    // One row, which charges nothing.
    assert_eq!(store.len(), rows + 1);
    assert!((again.losses().joint.epsilon.get() - cost(1)).abs() < 1e-12);
    again.commit(&id, &attachment(1)).unwrap();
    let mut later = open(&store, budget(100.0)).unwrap();
    assert!(matches!(later.reserve(&id, &event(), header(0)), Err(LedgerError::Conflict(_))));
}

#[test]
fn a_frozen_data_set_gives_no_permit_but_finishes_what_was_committed() {
    let (store, mut ledger) = fresh(100.0);
    let id = release(0, 0);
    ledger.reserve(&id, &event(), header(0)).unwrap();
    ledger.set_frozen(FreezeState::Frozen).unwrap();
    ledger.commit(&id, &attachment(1)).unwrap();
    let mut again = open(&store, budget(100.0)).unwrap();
    assert!(again.frozen());
    assert!(matches!(again.reserve(&release(0, 1), &event(), header(1)), Err(LedgerError::Frozen)));
    again.sent(&id).unwrap();
    again.set_frozen(FreezeState::Frozen).unwrap();
    again.set_frozen(FreezeState::Open).unwrap();
    assert!(again.reserve(&release(0, 1), &event(), header(1)).is_ok());
}

#[test]
fn a_release_without_protection_needs_consent_and_marks_the_data_set_for_good() {
    let store = MemoryStore::new(Unsealed);
    let mut ledger = open(&store, budget(cost(1))).unwrap();
    assert!(matches!(ledger.reserve(&release(0, 0), &DpEvent::NonPrivate, header(0)), Err(LedgerError::NonPrivateForbidden)));
    let consent = Budget { allow_non_private: true, ..budget(cost(1)) };
    let mut ledger = open(&store, consent).unwrap();
    ledger.reserve(&release(0, 0), &DpEvent::NonPrivate.repeated(3), header(0)).unwrap();
    let loss = ledger.losses().joint;
    assert_eq!((loss.epsilon, loss.method), (Epsilon::INFINITE, Method::NonPrivate));
    // The budget still holds for everything else.
    ledger.reserve(&release(0, 1), &event(), header(1)).unwrap();
    assert!(matches!(ledger.reserve(&release(0, 2), &event(), header(2)), Err(LedgerError::OverBudget { .. })));
    assert_eq!(ledger.losses().joint.epsilon, Epsilon::INFINITE);
    // Without consent nothing more is charged to a data set that has no protection left.
    let mut strict = open(&store, budget(1e6)).unwrap();
    assert!(matches!(strict.reserve(&release(0, 2), &event(), header(2)), Err(LedgerError::OverBudget { would_be: f64::INFINITY, .. })));
}

/// The question about a whole run has the answer that its last reservation would get.
#[test]
fn a_run_is_admitted_iff_its_last_release_is() {
    for limit in 1..4 {
        let (store, mut ledger) = fresh(cost(3));
        let per_run = Budget { per_run: Some(Epsilon::new(cost(limit)).unwrap()), ..budget(cost(3)) };
        ledger.reserve(&release(0, 0), &event(), header(0)).unwrap();
        drop(ledger);
        let mut ledger = open(&store, per_run).unwrap();
        let fits = |ledger: &TestLedger, number, times| ledger.would_admit(&run(number), &[(event(), times)], None);
        let rows = ledger.rows().len();
        for times in 0..5_u64 {
            assert_eq!(fits(&ledger, 0, times).is_ok(), times < limit as u64, "{limit} {times}");
            assert_eq!(fits(&ledger, 1, times).is_ok(), times <= 2.min(limit as u64), "{limit} {times}");
        }
        assert!(matches!(fits(&ledger, 1, 4), Err(LedgerError::OverBudget { .. })));
        assert!(matches!(ledger.would_admit(&run(0), &[(DpEvent::NonPrivate, 1)], None), Err(LedgerError::NonPrivateForbidden)));
        assert_eq!(ledger.rows().len(), rows);
        for round in 1..limit as u32 {
            ledger.reserve(&release(0, round), &event(), header(round)).unwrap();
        }
        assert!(ledger.reserve(&release(0, 9), &event(), header(9)).is_err());
    }
}

/// Persons by one column and persons by another are different units: what was spent on the ones says nothing about the others.
#[test]
fn what_a_unit_is_is_written_down_and_compared() {
    let (store, mut ledger) = fresh(100.0);
    let (before, after) = ("all rows of a table with one value of `patient`", "all rows of a table with one value of `visit`");
    // A ledger that was opened without saying what a unit is has charges and no such row.
    whole(&mut ledger, &release(0, 0)).unwrap();
    assert_eq!(ledger.units(), None);
    let open = |words: &str| open(&store, budget(100.0)).unwrap().of_units(words.into());
    let rows = store.len();
    drop(ledger);
    let mut ledger = open(before).unwrap();
    assert_eq!(store.len(), rows, "not before there is a charge");
    ledger.reserve(&release(0, 1), &event(), header(1)).unwrap();
    ledger.reserve(&release(0, 2), &event(), header(2)).unwrap();
    let rows = rows + 5;
    drop(ledger);
    match open(after).map(drop) {
        Err(LedgerError::OtherUnits { here, now }) => assert_eq!((here.as_str(), now.as_str()), (before, after)),
        other => panic!("{other:?}"),
    }
    let mut ledger = open(before).unwrap();
    assert_eq!((store.len(), ledger.units()), (rows, Some(before)), "written once, and not by a refusal");
    ledger.accept_units(after).unwrap();
    let spent = ledger.losses().joint;
    drop(ledger);
    assert!(open(before).is_err());
    let ledger = open(after).unwrap();
    assert_eq!((store.len(), ledger.losses().joint), (rows + 1, spent), "what was spent stays");
}

#[test]
fn an_event_that_nobody_bounds_is_refused() {
    let (store, mut ledger) = fresh(100.0);
    let nested =
        DpEvent::PoissonSampled { rate: dp_pvi_accounting::SamplingRate::nearest(0.5).unwrap(), event: Box::new(event().repeated(2)) };
    assert!(matches!(ledger.reserve(&release(0, 0), &nested, header(0)), Err(LedgerError::Accountant(_))));
    assert_eq!(store.len(), 1);
}

/// What is booked follows from the rule by which the gate checked the terms, and from the ledger's relation; the task's relation has no say in it. Bytes of the row are read again.
#[test]
fn cells_are_booked_at_root_two_and_units_at_two() {
    let of = |terms| match event() {
        DpEvent::DiscreteGaussian(noise) => DpEvent::DiscreteGaussian(DiscreteGaussian { terms, ..noise }),
        other => other,
    };
    let cells = of(Terms::Cells { cells: 1 });
    assert_eq!(DpEvent::from_bytes(&cells.to_bytes()), Ok(cells.clone()));
    let half = match event() {
        DpEvent::DiscreteGaussian(noise) => DpEvent::DiscreteGaussian(DiscreteGaussian { bound_squared: noise.bound_squared / 2, ..noise }),
        other => other,
    };
    let read = |relation: Relation, event: &DpEvent| {
        assert!(relation.may_book_event(Relation::AddRemove, event));
        let identity = LedgerIdentity { relation, ..identity() };
        let mut ledger = Ledger::open(MemoryStore::new(Unsealed), key(), identity, budget(1e3)).unwrap();
        assert_eq!(ledger.reserve(&release(0, 0), event, header(0)).unwrap().event(), event);
        ledger.losses().joint.epsilon.get()
    };
    let replaced = |event: &DpEvent| read(Relation::ReplaceOne, event);
    assert!((replaced(&cells) / replaced(&half) - 1.0).abs() < 1e-9, "{} {}", replaced(&cells), replaced(&half));
    assert!(replaced(&event()) > 1.3 * replaced(&cells));
    assert_eq!(read(Relation::AddRemove, &cells).to_bits(), read(Relation::AddRemove, &event()).to_bits());
}

#[test]
fn an_old_copy_is_refused_by_its_witness() {
    let (store, mut ledger) = fresh(100.0);
    whole(&mut ledger, &release(0, 0)).unwrap();
    let old = store.copy();
    let seen_then = ledger.head();
    whole(&mut ledger, &release(0, 1)).unwrap();
    let witnessed = ledger.head();
    ledger.check_witness(witnessed).unwrap();
    ledger.check_witness(seen_then).unwrap();
    let mut restored = open(&old, budget(100.0)).unwrap();
    assert!(matches!(restored.check_witness(witnessed), Err(LedgerError::RolledBack { witnessed: 10, here: 5 })));
    // The copy goes on by itself, beyond the row that the witness saw: another row is there.
    for round in 5..8 {
        whole(&mut restored, &release(0, round)).unwrap();
    }
    assert!(matches!(restored.check_witness(witnessed), Err(LedgerError::Forked { seq: 10 })));
    assert!(matches!(restored.check_witness(LedgerHead { seq: u64::MAX, hash: witnessed.hash }), Err(LedgerError::RolledBack { .. })));
}

#[test]
fn another_data_set_unit_or_relation_is_refused() {
    let (store, _) = fresh(1.0);
    for other in [
        LedgerIdentity { data: "ward 8".into(), ..identity() },
        LedgerIdentity { unit: PrivacyUnit::Record, ..identity() },
        LedgerIdentity { relation: Relation::AddRemove, ..identity() },
    ] {
        let result = Ledger::open(store.clone(), key(), other, budget(1.0));
        assert!(matches!(result.map(|_| ()), Err(LedgerError::OtherIdentity(_))));
    }
    let stranger = Ledger::open(store, SigningKey::from_bytes(&[4; 32]), identity(), budget(1.0));
    assert!(matches!(stranger.map(|_| ()), Err(LedgerError::Store(StoreError::Corrupt(_)))));
}

/// Everyone sees whether a site takes part: nothing is written for a ledger that would promise to hide it.
#[test]
fn no_ledger_is_made_of_sites_under_add_remove() {
    let made = |unit, relation| {
        let store = MemoryStore::new(Unsealed);
        let identity = LedgerIdentity { unit, relation, ..identity() };
        let made = Ledger::open(store.clone(), key(), identity, budget(1.0)).map(|_| ());
        (made, store.clone().rows().unwrap().len())
    };
    let (refused, rows) = made(PrivacyUnit::Site, Relation::AddRemove);
    assert!(matches!(refused, Err(LedgerError::SiteAddRemove)) && rows == 0, "{refused:?}");
    for (unit, relation) in [(PrivacyUnit::Site, Relation::ReplaceOne), (PrivacyUnit::Record, Relation::AddRemove)] {
        let (made, rows) = made(unit, relation);
        assert!(made.is_ok() && rows == 1);
    }
}

/// A write that fails sends nothing, and the ledger refuses everything until it was read again.
#[test]
fn a_failed_write_stops_the_ledger() {
    for failure in [Failure::Refused, Failure::WrittenUnheard] {
        let (store, mut ledger) = fresh(100.0);
        let id = release(0, 0);
        ledger.reserve(&id, &event(), header(0)).unwrap();
        store.fail_after(0, failure);
        assert!(matches!(ledger.commit(&id, &attachment(1)), Err(LedgerError::Store(StoreError::Unavailable(_)))));
        assert_eq!(ledger.state(&id), Some(ReleaseState::Reserved));
        assert!(matches!(ledger.commit(&id, &attachment(1)), Err(LedgerError::Store(StoreError::Unavailable(_)))));
        assert!(ledger.sent(&id).is_err() && ledger.settle(&id, false, 1.0).is_err() && ledger.set_frozen(FreezeState::Frozen).is_err());
        assert!(ledger.reserve(&release(0, 1), &event(), header(1)).is_err());
        let state = open(&store, budget(100.0)).unwrap().state(&id);
        assert_eq!(state, Some(if failure == Failure::Refused { ReleaseState::Reserved } else { ReleaseState::Committed }));
    }
    let store = MemoryStore::new(Unsealed);
    store.fail_after(0, Failure::Refused);
    assert!(open(&store, budget(1.0)).is_err());
}

/// Every byte of every row, signature, attachment and factor is under a hash or a signature.
#[test]
fn every_flipped_byte_is_detected() {
    let (store, mut ledger) = fresh(1000.0);
    for round in 0..5 {
        let id = release(0, round);
        whole(&mut ledger, &id).unwrap();
        // The last one keeps its whole attachment.
        if round < 4 {
            ledger.settle(&id, round != 2, 0.5).unwrap();
        }
    }
    let mut flips = 0;
    let mut check = |change: &dyn Fn(&MemoryStore) -> bool| {
        let copy = store.copy();
        let changed = change(&copy);
        if changed {
            assert!(matches!(open(&copy, budget(1000.0)).map(|_| ()), Err(LedgerError::Store(StoreError::Corrupt(_)))));
            flips += 1;
        }
        changed
    };
    for row in 0..store.len() {
        // Every third byte, so that the test stays short; all positions mod 3 occur over the rows.
        for byte in (row % 3..).step_by(3) {
            if !check(&|copy| {
                let mut hit = false;
                copy.tamper(|rows, _, _| {
                    let row = &mut rows[row];
                    let targets = row.bytes.iter_mut().chain(&mut row.hash.0).chain(&mut row.signature);
                    if let Some(target) = targets.into_iter().nth(byte) {
                        *target ^= 1;
                        hit = true;
                    }
                });
                hit
            }) {
                break;
            }
        }
    }
    for byte in 0.. {
        let mut attachment = false;
        for round in [3, 4] {
            attachment |= check(&|copy| {
                let mut hit = false;
                copy.tamper(|_, attachments, _| {
                    if let Some(target) = attachments.get_mut(&release(0, round)).and_then(|bytes| bytes.get_mut(byte)) {
                        *target ^= 0x80;
                        hit = true;
                    }
                });
                hit
            });
        }
        let factor = check(&|copy| {
            let mut hit = false;
            copy.tamper(|_, _, factors| {
                if let Some(target) = factors.get_mut(&run(0)).and_then(|bytes| bytes.get_mut(byte)) {
                    *target ^= 0x80;
                    hit = true;
                }
            });
            hit
        });
        if !attachment && !factor {
            break;
        }
    }
    assert!(flips > 1000, "{flips}");
}

#[test]
fn missing_swapped_and_repeated_rows_are_detected() {
    let (store, mut ledger) = fresh(1000.0);
    for round in 0..3 {
        whole(&mut ledger, &release(0, round)).unwrap();
    }
    type Change = fn(&mut Vec<StoredRow>, &mut BTreeMap<ReleaseId, Vec<u8>>, &mut BTreeMap<RunId, Vec<u8>>);
    let changes: [Change; 6] = [
        |rows, _, _| drop(rows.remove(0)),
        |rows, _, _| drop(rows.remove(5)),
        |rows, _, _| rows.swap(3, 4),
        |rows, _, _| rows.push(rows[2].clone()),
        |_, attachments, _| drop(attachments.remove(&release(0, 1))),
        |_, attachments, _| {
            let other = attachments[&release(0, 0)].clone();
            attachments.insert(release(0, 1), other);
        },
    ];
    for (i, change) in changes.into_iter().enumerate() {
        let copy = store.copy();
        copy.tamper(change);
        assert!(matches!(open(&copy, budget(1000.0)).map(|_| ()), Err(LedgerError::Store(StoreError::Corrupt(_)))), "change {i}");
    }
}

/// Rows that are well signed but make no sense: what a bug of ours could have written.
#[test]
fn signed_rows_that_cannot_follow_are_refused() {
    let id = || release(0, 0);
    let reserved = || RowBody::Reserved { release: id(), event: event().to_bytes(), header: header(0), fallback: None };
    let planned = |event: Vec<u8>| {
        let joint = PlannedEvents { events: vec![(event, 2)], envelope: Some((0.5, 0.0)) };
        RowBody::Planned { run: run(0), delta: Delta::new(1e-5).unwrap(), joint, fallback: None }
    };
    let plan = || planned(event().to_bytes());
    let bodies: [Vec<RowBody>; 9] = [
        vec![RowBody::Genesis(identity())],
        vec![RowBody::Committed { release: id(), attachment: Hash::default() }],
        vec![reserved()],
        vec![plan(), reserved(), reserved()],
        vec![plan(), reserved(), RowBody::Sent { release: id() }],
        vec![plan(), reserved(), RowBody::Receipted { release: id(), receipt: Hash::default() }],
        vec![plan(), reserved(), RowBody::Settled { release: id(), included: true, factor: Hash::default() }],
        vec![planned(vec![99, 0])],
        vec![plan(), reserved(), RowBody::Committed { release: id(), attachment: Hash::default() }],
    ];
    for (i, bodies) in bodies.into_iter().enumerate() {
        let (store, ledger) = fresh(1000.0);
        let (mut seq, mut previous) = (1, ledger.head().hash);
        for body in bodies {
            let row = StoredRow::seal(&Row { seq, previous, body }, &key());
            (seq, previous) = (seq + 1, row.hash);
            store.tamper(|rows, _, _| rows.push(row));
        }
        assert!(matches!(open(&store, budget(1000.0)).map(|_| ()), Err(LedgerError::Store(StoreError::Corrupt(_)))), "case {i}");
    }
}

/// What may happen to a ledger.
#[derive(Debug, Clone)]
enum Op {
    Reserve(u32, u32, u64),
    Commit(u32, u32, i64),
    Sent(u32, u32),
    Receipted(u32, u32),
    Settle(u32, u32, bool),
    Freeze(bool),
    Crash,
    FailNext(bool),
}

fn op() -> impl Strategy<Value = Op> {
    let id = || (0..2u32, 0..4u32);
    prop_oneof![
        4 => (id(), 1..3u64).prop_map(|((run, round), count)| Op::Reserve(run, round, count)),
        4 => (id(), 0..3i64).prop_map(|((run, round), value)| Op::Commit(run, round, value)),
        3 => id().prop_map(|(run, round)| Op::Sent(run, round)),
        3 => id().prop_map(|(run, round)| Op::Receipted(run, round)),
        3 => (id(), any::<bool>()).prop_map(|((run, round), included)| Op::Settle(run, round, included)),
        1 => any::<bool>().prop_map(Op::Freeze),
        3 => Just(Op::Crash),
        1 => any::<bool>().prop_map(Op::FailNext),
    ]
}

/// What a ledger must remember, written without a ledger: charges only grow, payloads never change.
#[derive(Default)]
struct Model {
    charged: BTreeMap<ReleaseId, u64>,
    payloads: BTreeMap<ReleaseId, i64>,
    permits_out: BTreeMap<ReleaseId, u32>,
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    /// Whatever happens, with crashes and failing writes anywhere: spent ≥ sum of all permits ever given, spent ≤ budget, one
    /// payload per release for ever, at most one live permit per release, and the stored rows always open again.
    #[test]
    fn ledger_survives_every_history(ops in proptest::collection::vec(op(), 1..60)) {
        let limit = cost(6);
        let store = MemoryStore::new(Unsealed);
        let mut ledger = open(&store, budget(limit)).unwrap();
        let mut model = Model::default();
        for op in ops {
            match op {
                Op::Reserve(run, round, count) => {
                    let id = release(run, round);
                    if ledger.reserve(&id, &event().repeated(count), header(round)).is_ok() {
                        prop_assert!(*model.charged.entry(id.clone()).or_insert(count) == count, "another event under the same release");
                        prop_assert!(!model.payloads.contains_key(&id), "a permit after the payload was fixed");
                        let out = model.permits_out.entry(id).or_default();
                        *out += 1;
                        prop_assert_eq!(*out, 1, "two live permits");
                    }
                }
                Op::Commit(run, round, value) => {
                    let id = release(run, round);
                    if ledger.commit(&id, &attachment(value)).is_ok() {
                        prop_assert!(model.charged.contains_key(&id) && model.payloads.insert(id, value).is_none());
                    }
                }
                Op::Sent(run, round) => {
                    let id = release(run, round);
                    if ledger.sent(&id).is_ok() {
                        prop_assert!(ledger.state(&id) != Some(ReleaseState::Reserved));
                    }
                }
                Op::Receipted(run, round) => drop(ledger.receipted(&release(run, round), header(round))),
                Op::Settle(run, round, included) => {
                    let id = release(run, round);
                    if ledger.settle(&id, included, 0.5).is_ok() && included {
                        prop_assert!(model.payloads.contains_key(&id), "a factor moved for what never left");
                    }
                }
                Op::Freeze(on) => drop(ledger.set_frozen(if on { FreezeState::Frozen } else { FreezeState::Open })),
                Op::FailNext(written) => store.fail_after(0, if written { Failure::WrittenUnheard } else { Failure::Refused }),
                Op::Crash => {
                    drop(ledger);
                    ledger = open(&store.copy(), budget(limit)).unwrap();
                    // The copy has no failures ahead; go on with the same disk.
                    drop(ledger);
                    ledger = open(&store, budget(limit)).unwrap();
                    model.permits_out.clear();
                    // A write that was not heard of may have charged or fixed a payload: learn it from the disk.
                    for (row, _) in ledger.rows() {
                        if let RowBody::Reserved { release, event: bytes, .. } = &row.body {
                            let count = if *bytes == event().to_bytes() { 1 } else { 2 };
                            prop_assert_eq!(*model.charged.entry(release.clone()).or_insert(count), count);
                        }
                    }
                    for run in 0..2 {
                        for round in 0..4 {
                            let id = release(run, round);
                            if let Some(found) = ledger.attachment(&id).unwrap() {
                                let Payload::Lattice(found) = found.payload() else { panic!("another kind") };
                                prop_assert_eq!(*model.payloads.entry(id).or_insert(found.values[0]), found.values[0]);
                            }
                        }
                    }
                }
            }
            let spent = ledger.losses().joint.epsilon.get();
            let total: u64 = model.charged.values().sum();
            prop_assert!(spent <= limit);
            let released = plan_of(&vec![event(); usize::try_from(total).unwrap()]);
            prop_assert!(spent >= released * (1.0 - 1e-12), "released more than was charged");
        }
        for (id, value) in &model.payloads {
            let mut ledger = open(&store, budget(limit)).unwrap();
            let expected = attachment(*value);
            prop_assert_eq!(ledger.message(id).unwrap().unwrap(), expected.message());
            match ledger.state(id) {
                Some(ReleaseState::Settled { .. }) => prop_assert!(ledger.attachment(id).unwrap().is_none()),
                _ => {
                    let stored = ledger.attachment(id).unwrap().unwrap();
                    prop_assert_eq!(stored.payload(), expected.payload());
                }
            }
        }
    }
}
