//! Whole runs, charged before their first visit: proofs `envelopes.md` of the accountant.

use super::*;
use dp_pvi_accounting::event::Rho;
use dp_pvi_accounting::unit::SamplingRate;
use dp_pvi_unsealed::Unsealed;

/// 200 steps on samples of a twentieth of the units.
fn sampled() -> DpEvent {
    let DpEvent::DiscreteGaussian(noise) = event() else { panic!() };
    let step = DpEvent::DiscreteGaussian(DiscreteGaussian { scale: 1 << 21, bound_squared: 1 << 40, ..noise });
    DpEvent::PoissonSampled { rate: SamplingRate::nearest(0.05).unwrap(), event: Box::new(step) }.repeated(20)
}

/// ε of a run of these.
fn plan_of(events: &[(DpEvent, u64)]) -> f64 {
    super::plan_of(&events.iter().flat_map(|(event, times)| (0..*times).map(move |_| event.clone())).collect::<Vec<_>>())
}

fn spent(ledger: &TestLedger) -> f64 {
    ledger.losses().joint.epsilon.get()
}

fn damage(result: Result<TestLedger, LedgerError>) -> String {
    match result {
        Err(LedgerError::Store(StoreError::Corrupt(what))) => what,
        Err(other) => panic!("{other:?}"),
        Ok(_) => panic!("it opens"),
    }
}

/// The budget is a run's own ε: it is charged once and whole, however many of its visits come, also after a restart; nothing fits after it.
#[test]
fn a_run_is_charged_once_and_whole() {
    let store = MemoryStore::new(Unsealed);
    let events = [(sampled(), 10), (event(), 2)];
    let epsilon = plan_of(&events);
    let mut ledger = open(&store, budget(epsilon)).unwrap();
    assert!(!ledger.is_planned(&run(0)));
    assert!(ledger.would_admit(&run(0), &events, None).is_ok());
    ledger.plan_run(&run(0), &events, None).unwrap();
    let whole = spent(&ledger);
    assert!((whole / epsilon - 1.0).abs() < 1e-12, "{whole} {epsilon}");
    let rows = ledger.rows().len();
    ledger.plan_run(&run(0), &events, None).unwrap();
    assert_eq!(ledger.rows().len(), rows, "charged twice");
    for round in 0..6 {
        ledger.reserve(&release(0, round), &sampled(), header(round)).unwrap();
    }
    drop(ledger);
    let mut ledger = open(&store, budget(epsilon)).unwrap();
    assert!(ledger.is_planned(&run(0)) && spent(&ledger) == whole);
    // Visits in any order, and one that a crash interrupted.
    ledger.reserve(&release(0, 5), &sampled(), header(5)).unwrap();
    ledger.reserve(&release(0, 6), &event(), header(6)).unwrap();
    assert!(ledger.would_admit(&run(0), &[(sampled(), 4), (event(), 1)], None).is_ok());
    assert!(matches!(ledger.would_admit(&run(0), &[(sampled(), 5)], None), Err(LedgerError::OverBudget { .. })));
    for round in 7..11 {
        ledger.reserve(&release(0, round), &sampled(), header(round)).unwrap();
    }
    assert!(matches!(ledger.reserve(&release(0, 11), &sampled(), header(11)), Err(LedgerError::OverBudget { .. })));
    ledger.reserve(&release(0, 12), &event(), header(12)).unwrap();
    assert!(matches!(ledger.plan_run(&run(1), &[(event(), 1)], None), Err(LedgerError::OverBudget { .. })));
    assert!(spent(&ledger) == whole && ledger.would_cost(&[(event(), 1)], None).unwrap().joint.epsilon.get() > epsilon);
}

/// A copy that is put back pays for no visit a second time: what the original released after the copy was made is paid by the plan, so a visit that is released
/// from the copy is charged anew.
#[test]
fn a_plan_of_a_ledger_that_was_put_back_has_no_visit_left() {
    let store = MemoryStore::new(Unsealed);
    let events = [(sampled(), 3)];
    let mut original = open(&store, budget(100.0)).unwrap();
    original.plan_run(&run(0), &events, None).unwrap();
    original.reserve(&release(0, 0), &sampled(), header(0)).unwrap();
    let (copy, plan) = (store.copy(), spent(&original));
    original.commit(&release(0, 0), &attachment(0)).unwrap();
    original.reserve(&release(0, 1), &sampled(), header(1)).unwrap();

    let mut back = open(&copy, budget(100.0)).unwrap();
    assert_eq!(back.close_open().unwrap(), Closed { reservations: 1, plans: 1 });
    drop(back);
    let mut back = open(&copy, budget(100.0)).unwrap();
    assert!(spent(&back) == plan && !back.is_planned(&run(0)) && !back.went_on_after_restore(&run(0)));
    assert!(matches!(back.reserve(&release(0, 0), &sampled(), header(0)), Err(LedgerError::Conflict(_))));
    back.reserve(&release(0, 1), &sampled(), header(1)).unwrap();
    assert!(spent(&back) > plan && back.went_on_after_restore(&run(0)));
    let twice = plan_of(&[(sampled(), 4)]);
    assert!(spent(&back) >= twice * (1.0 - 1e-9), "{} {twice}", spent(&back));
    // A run that was over costs nothing more, and another one is a run like any other.
    back.plan_run(&run(1), &events, None).unwrap();
    assert!(!back.went_on_after_restore(&run(1)));
    assert_eq!(back.close_open().unwrap().plans, 1);
}

/// Three runs, each chosen after the one before: at most 5 % above the plan of all.
#[test]
fn three_runs_are_charged_by_their_envelopes() {
    let mut ledger = open(&MemoryStore::new(Unsealed), budget(100.0)).unwrap();
    let runs = [(sampled(), 10), (event(), 3), (sampled(), 40)];
    for (number, (event, times)) in (0..).zip(&runs) {
        ledger.plan_run(&run(number), &[(event.clone(), *times)], None).unwrap();
        assert!((ledger.losses_in(&run(number)).joint.epsilon.get() / plan_of(&[(event.clone(), *times)]) - 1.0).abs() < 1e-6);
    }
    let (together, exact) = (spent(&ledger), plan_of(&runs));
    assert!((exact..1.05 * exact).contains(&together), "{together} {exact}");
    assert_eq!(ledger.further_runs(&[(event(), 1)], None, 3).unwrap(), 3);
}

/// Under aggregation both sums are booked, and the cap is about the fallback's.
#[test]
fn a_planned_run_has_a_fallback() {
    let own = DpEvent::Zcdp { rho: Rho::new(0.5).unwrap() };
    let cap = Epsilon::new(plan_of(&[(own.clone(), 4)])).unwrap();
    let store = MemoryStore::new(Unsealed);
    let mut ledger = open(&store, Budget { max_fallback: Some(cap), ..budget(10.0) }).unwrap();
    ledger.plan_run(&run(0), &[(event(), 4)], Some(&[(own.clone(), 4)])).unwrap();
    for round in 0..4 {
        ledger.reserve(&release(0, round), (&event(), Some(&own)), header(round)).unwrap();
    }
    let (losses, in_run) = (ledger.losses(), ledger.losses_in(&run(0)));
    assert!((losses.joint.epsilon.get() / plan_of(&[(event(), 4)]) - 1.0).abs() < 1e-6);
    assert!((losses.fallback.epsilon.get() / cap.get() - 1.0).abs() < 1e-9 && in_run == losses);
    assert!(matches!(ledger.plan_run(&run(1), &[(event(), 1)], Some(&[(own.clone(), 1)])), Err(LedgerError::OverFallback { .. })));
    assert!(matches!(ledger.plan_run(&run(1), &[(event(), 1)], None), Err(LedgerError::OverFallback { .. })));
    // A visit with another fallback is not the one that was paid for, and nothing is written for it.
    let uncapped = open(&store, budget(10.0)).unwrap();
    assert!(matches!({ uncapped }.reserve(&release(0, 9), &event(), header(9)), Err(LedgerError::Conflict(_))));
    assert_eq!(open(&store, budget(10.0)).unwrap().losses(), losses);
}

/// The envelope that is compared with the budget is the one that is written, also where the fallback of other runs has used more of F: the visits of a run that was admitted
/// are not refused afterwards.
#[test]
fn what_is_compared_is_what_is_booked() {
    let store = MemoryStore::new(Unsealed);
    let mut ledger = open(&store, budget(50.0)).unwrap();
    for number in 0..9 {
        ledger.plan_run(&run(number), &[(event(), 1)], Some(&[(sampled(), 1)])).unwrap();
    }
    let events = [(sampled(), 10)];
    let edge = ledger.would_cost(&events, None).unwrap().joint.epsilon.get();
    drop(ledger);
    let mut ledger = open(&store, budget(edge)).unwrap();
    ledger.plan_run(&run(9), &events, None).unwrap();
    assert!((spent(&ledger) / edge - 1.0).abs() < 1e-12);
    for round in 0..10 {
        ledger.reserve(&release(9, round), &sampled(), header(round)).unwrap();
    }
}

/// What is frozen, or without protection and without consent, is not charged; with consent it is told.
#[test]
fn plans_are_refused_as_visits_are() {
    let store = MemoryStore::new(Unsealed);
    let mut ledger = open(&store, budget(10.0)).unwrap();
    ledger.set_frozen(FreezeState::Frozen).unwrap();
    assert!(matches!(ledger.plan_run(&run(0), &[(event(), 1)], None), Err(LedgerError::Frozen)));
    ledger.set_frozen(FreezeState::Open).unwrap();
    assert!(matches!(ledger.plan_run(&run(0), &[(DpEvent::NonPrivate, 2)], None), Err(LedgerError::NonPrivateForbidden)));
    let mut ledger = open(&store, Budget { allow_non_private: true, ..budget(10.0) }).unwrap();
    ledger.plan_run(&run(0), &[(DpEvent::NonPrivate, 2)], None).unwrap();
    ledger.reserve(&release(0, 0), &DpEvent::NonPrivate, header(0)).unwrap();
    ledger.plan_run(&run(1), &[(event(), 2)], None).unwrap();
    assert!(spent(&ledger).is_infinite());
    // Consent that is withdrawn counts for what was planned under it.
    let mut strict = open(&store, budget(10.0)).unwrap();
    assert!(matches!(strict.reserve(&release(0, 1), &DpEvent::NonPrivate, header(1)), Err(LedgerError::NonPrivateForbidden)));
}

/// A visit that no plan has is a run of its own: charged, and never for nothing.
#[test]
fn a_visit_without_a_plan_is_charged_by_itself() {
    let mut ledger = open(&MemoryStore::new(Unsealed), budget(plan_of(&[(event(), 3)]) * 1.01)).unwrap();
    for round in 0..3 {
        ledger.reserve(&release(0, round), &event(), header(round)).unwrap();
    }
    assert!(matches!(ledger.reserve(&release(0, 3), &event(), header(3)), Err(LedgerError::OverBudget { .. })));
    // Three runs are read at δ − F.
    assert!((1.0..1.01).contains(&(spent(&ledger) / plan_of(&[(event(), 3)]))));
}

/// Which of a run's visits come may depend on what was released: the limit of a run is a filter, and reads more than the plan of all of them.
#[test]
fn the_limit_of_a_run_is_a_filter() {
    let events = [(event(), 3), (sampled(), 1)];
    let limited = Budget { per_run: Some(Epsilon::new(plan_of(&events)).unwrap()), ..budget(100.0) };
    let mut ledger = open(&MemoryStore::new(Unsealed), limited).unwrap();
    for round in 0..3 {
        ledger.reserve(&release(1, round), &event(), header(round)).unwrap();
    }
    let losses = ledger.losses_in(&run(1));
    assert!((losses.joint.epsilon.get() / cost(3) - 1.0).abs() < 1e-12 && losses.fallback == losses.joint);
    match ledger.reserve(&release(1, 3), &sampled(), header(3)) {
        Err(LedgerError::OverRunBudget { would_be, limit }) => {
            let reading = charged(&[event(), event(), event(), sampled()]);
            assert!((would_be / reading - 1.0).abs() < 1e-9 && would_be > limit, "{would_be} {reading} {limit}");
        }
        other => panic!("{other:?}"),
    }
    // As a run that is charged before its first visit they keep to it.
    ledger.plan_run(&run(2), &events, None).unwrap();
}

/// Rows that do not fit are damage. An envelope that is stated too small is made as large as it must be.
#[test]
fn rows_that_charge_too_little_are_damage_or_priced_again() {
    let planned = |envelope| PlannedEvents { events: vec![(event().to_bytes(), 2)], envelope };
    let with = |body: RowBody| {
        let store = MemoryStore::new(Unsealed);
        let mut ledger = open(&store, budget(10.0)).unwrap();
        // The row stands although this ledger, too, refuses to book it.
        let _ = ledger.append(body, None);
        store
    };
    let delta = Delta::new(1e-5).unwrap();
    let plan = |envelope| RowBody::Planned { run: run(0), delta, joint: planned(envelope), fallback: None };
    let reserved = RowBody::Reserved { release: release(0, 0), event: event().to_bytes(), header: header(0), fallback: None };
    assert!(damage(open(&with(reserved), budget(10.0))).contains("a visit that its run does not have"));
    for impossible in [(-1.0, 0.0), (f64::NAN, 0.0), (1.0, 2.0)] {
        assert!(damage(open(&with(plan(Some(impossible))), budget(10.0))).contains("impossible"));
    }
    let ledger = open(&with(plan(Some((1e-9, 0.0)))), budget(10.0)).unwrap();
    assert!(spent(&ledger) >= plan_of(&[(event(), 2)]) * (1.0 - 1e-6));
    assert!(ledger.would_cost(&[(event(), 2)], None).unwrap().joint.epsilon.get() >= plan_of(&[(event(), 4)]) * (1.0 - 1e-6));
}
