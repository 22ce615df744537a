//! Visits that a site renounces: proofs `envelopes.md` of the accountant, "Visits that are renounced".

use super::*;
use dp_pvi_accounting::Gdp;
use dp_pvi_accounting::event::Rho;
use dp_pvi_accounting::unit::SamplingRate;
use dp_pvi_unsealed::Unsealed;

/// μ² of a visit of [`event`].
const SQUARED: f64 = 0.25;

fn sampled() -> DpEvent {
    let DpEvent::DiscreteGaussian(noise) = event() else { panic!() };
    let step = DpEvent::DiscreteGaussian(DiscreteGaussian { scale: 1 << 21, bound_squared: 1 << 40, ..noise });
    DpEvent::PoissonSampled { rate: SamplingRate::nearest(0.05).unwrap(), event: Box::new(step) }.repeated(20)
}

fn of_budget(store: &MemoryStore, epsilon: f64) -> TestLedger {
    Ledger::open(store.clone(), key(), identity(), budget(epsilon)).unwrap()
}

fn spent(ledger: &TestLedger) -> f64 {
    ledger.losses().joint.epsilon.get()
}

/// ε that several runs with these μ² together read, at δ − F.
fn of_squares(squared: f64) -> f64 {
    Gdp::of_ratio(squared.sqrt()).epsilon_upper(Delta::new(0.9e-5).unwrap()).get()
}

/// A run that was joined and not charged yet is given up for good, too, and what was given up can be given up again.
#[test]
fn a_run_without_a_plan_is_given_up_for_good() {
    let store = MemoryStore::new(Unsealed);
    let mut ledger = of_budget(&store, 50.0);
    for _ in 0..2 {
        ledger.give_up(&run(3)).unwrap();
        assert!(ledger.was_renounced(&run(3)) && !ledger.has_visits_left(&run(3)) && spent(&ledger) == 0.0);
    }
    let rows = ledger.rows().len();
    drop(ledger);
    let again = of_budget(&store, 50.0);
    assert!(again.was_renounced(&run(3)) && !again.was_renounced(&run(4)) && again.rows().len() == rows);
}

/// Of sixty visits four were reserved: the others come back, to the last bit of ε that is shown, also after a restart; the run's own statement stays.
#[test]
fn visits_that_were_never_reserved_give_their_squares_back() {
    let store = MemoryStore::new(Unsealed);
    let mut ledger = of_budget(&store, 50.0);
    ledger.plan_run(&run(0), &[(event(), 60)], None).unwrap();
    for round in 0..4 {
        ledger.reserve(&release(0, round), &event(), header(round)).unwrap();
    }
    let whole = spent(&ledger);
    let in_run = ledger.losses_in(&run(0)).joint;
    let (before, after) = ledger.renounce(&run(0)).unwrap().unwrap();
    assert!(before == whole && after == spent(&ledger) && (after / of_squares(4.0 * SQUARED) - 1.0).abs() < 1e-6, "{before} {after}");
    assert!(after >= plan_of(&vec![event(); 4]) * (1.0 - 1e-9), "less than what was released: {after}");
    assert_eq!(ledger.losses_in(&run(0)).joint, in_run);
    assert_eq!(ledger.renounce(&run(0)).unwrap(), None, "twice");
    assert_eq!(ledger.renounce(&run(7)).unwrap(), None, "a run that nobody planned");
    let readings: Vec<_> = ledger.cumulative_losses().unwrap().iter().map(|loss| loss.epsilon.get()).collect();
    assert_eq!(readings.last(), Some(&after));
    drop(ledger);
    let mut again = of_budget(&store, 50.0);
    assert!(spent(&again) == after && !again.has_visits_left(&run(0)));
    // What was reserved is still paid, and what was renounced is a new charge.
    crate::ledger::reserve::forget(std::path::Path::new("nowhere"));
    again.reserve(&release(0, 3), &event(), header(3)).unwrap();
    assert!(spent(&again) == after);
    again.reserve(&release(0, 4), &event(), header(4)).unwrap();
    assert!((spent(&again) / of_squares(5.0 * SQUARED) - 1.0).abs() < 1e-6);
}

/// The room that comes back is room for other runs; without the row they are refused.
#[test]
fn what_comes_back_can_be_spent_and_no_more() {
    let limit = of_squares(10.0 * SQUARED) * (1.0 + 1e-9);
    let planned = || {
        let mut ledger = of_budget(&MemoryStore::new(Unsealed), limit);
        ledger.plan_run(&run(0), &[(event(), 8)], None).unwrap();
        ledger.reserve(&release(0, 0), &event(), header(0)).unwrap();
        ledger
    };
    let mut ledger = planned();
    assert!(matches!(ledger.plan_run(&run(1), &[(event(), 8)], None), Err(LedgerError::OverBudget { .. })));
    let mut ledger = planned();
    ledger.renounce(&run(0)).unwrap();
    assert_eq!(ledger.further_runs(&[(event(), 1)], None, 20).unwrap(), 9);
    assert!(matches!(ledger.plan_run(&run(1), &[(event(), 10)], None), Err(LedgerError::OverBudget { .. })));
    ledger.plan_run(&run(1), &[(event(), 9)], None).unwrap();
    assert!(spent(&ledger) <= limit);
}

/// Only unsampled Gaussians give back, and nothing of φ: the sampled visits of the same plan stay charged.
#[test]
fn sampled_visits_and_phi_give_nothing_back() {
    let plan = |events: &[(DpEvent, u64)]| {
        let mut ledger = of_budget(&MemoryStore::new(Unsealed), 50.0);
        ledger.plan_run(&run(1), &[(event(), 1)], None).unwrap();
        ledger.plan_run(&run(0), events, None).unwrap();
        ledger
    };
    let mut only = plan(&[(sampled(), 10)]);
    let before = spent(&only);
    only.renounce(&run(0)).unwrap().unwrap();
    assert_eq!(spent(&only), before);
    for other in [DpEvent::Zcdp { rho: Rho::new(0.01).unwrap() }, sampled()] {
        let mut mixed = plan(&[(other, 5), (event(), 3)]);
        let envelope = |ledger: &TestLedger| {
            let planned = ledger.rows().iter().filter_map(|(row, _)| match &row.body {
                RowBody::Planned { joint, .. } => joint.envelope,
                _ => None,
            });
            planned.map(|(squared, _)| squared).sum::<f64>()
        };
        let booked = envelope(&mixed);
        mixed.renounce(&run(0)).unwrap().unwrap();
        let left = of_squares(booked - 3.0 * SQUARED);
        assert!(spent(&mixed) >= left * (1.0 - 1e-9) && spent(&mixed) <= left * (1.0 + 1e-6), "{} {left}", spent(&mixed));
    }
}

/// Both sums of an aggregated run get back what is left of their own events.
#[test]
fn an_aggregated_run_gives_back_in_both_sums() {
    let DpEvent::DiscreteGaussian(noise) = event() else { panic!() };
    let own = DpEvent::DiscreteGaussian(DiscreteGaussian { bound_squared: noise.bound_squared * 4, ..noise });
    let mut ledger = of_budget(&MemoryStore::new(Unsealed), 50.0);
    ledger.plan_run(&run(0), &[(event(), 10)], Some(&[(own.clone(), 10)])).unwrap();
    ledger.reserve(&release(0, 0), (&event(), Some(&own)), header(0)).unwrap();
    ledger.renounce(&run(0)).unwrap().unwrap();
    let losses = ledger.losses();
    assert!((losses.joint.epsilon.get() / of_squares(SQUARED) - 1.0).abs() < 1e-6);
    assert!((losses.fallback.epsilon.get() / of_squares(4.0 * SQUARED) - 1.0).abs() < 1e-6);
}

/// The original of a copy may have released what is left in it.
#[test]
fn a_ledger_that_was_put_back_gives_nothing_back() {
    let store = MemoryStore::new(Unsealed);
    let mut ledger = of_budget(&store, 50.0);
    ledger.plan_run(&run(0), &[(event(), 10)], None).unwrap();
    ledger.close_open().unwrap();
    let before = spent(&ledger);
    assert_eq!(ledger.renounce(&run(0)).unwrap(), None);
    ledger.plan_run(&run(1), &[(event(), 10)], None).unwrap();
    let both = spent(&ledger);
    assert_eq!(ledger.renounce(&run(1)).unwrap(), Some((both, both)));
    assert!(both > before && spent(&of_budget(&store, 50.0)) == both);
}

/// A first run that its own ε admits, and no envelope: nothing comes back, and nothing is admitted after it.
#[test]
fn a_first_run_that_its_own_epsilon_admitted_gives_nothing_back() {
    let events = [(event(), 20)];
    let limit = plan_of(&vec![event(); 20]) * (1.0 + 1e-9);
    assert!(limit < of_squares(20.0 * SQUARED));
    let store = MemoryStore::new(Unsealed);
    let mut ledger = of_budget(&store, limit);
    ledger.plan_run(&run(0), &events, None).unwrap();
    let before = spent(&ledger);
    ledger.renounce(&run(0)).unwrap().unwrap();
    assert_eq!(spent(&ledger), before);
    assert!(matches!(ledger.plan_run(&run(1), &[(event(), 1)], None), Err(LedgerError::OverBudget { .. })));
    drop(ledger);
    // A budget that is lowered later held less than what was booked once: nothing comes back in it either.
    let mut lower = of_budget(&store, of_squares(15.0 * SQUARED));
    assert!(spent(&lower) >= before && matches!(lower.plan_run(&run(1), &[(event(), 1)], None), Err(LedgerError::OverBudget { .. })));
}

/// A second row that renounces what is no plan is damage: the first one gives up a run that was not charged.
#[test]
fn renouncing_what_is_no_plan_is_damage() {
    let store = MemoryStore::new(Unsealed);
    let mut ledger = of_budget(&store, 10.0);
    ledger.append(RowBody::Renounced { run: run(0) }, None).unwrap();
    let _ = ledger.append(RowBody::Renounced { run: run(0) }, None);
    drop(ledger);
    let opened = Ledger::open(store.clone(), key(), identity(), budget(10.0));
    assert!(matches!(opened, Err(LedgerError::Store(StoreError::Corrupt(what))) if what.contains("renounced")));
}

/// Random lives of a ledger: at every moment the sum of what is released and of what can still be is within the budget.
#[test]
fn no_path_of_plans_and_renouncements_exceeds_the_budget() {
    let mut state = 88_172_645_463_325_252_u64;
    let mut draw = |below: u64| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 33) % below
    };
    for _ in 0..20 {
        let most = 12.0 * SQUARED;
        let mut ledger = of_budget(&MemoryStore::new(Unsealed), of_squares(most));
        let (mut released, mut open) = (0, BTreeMap::<u32, (u64, u32)>::new());
        for number in 0..40 {
            match draw(3) {
                0 => {
                    let visits = 1 + draw(6);
                    if ledger.plan_run(&run(number), &[(event(), visits)], None).is_ok() {
                        open.insert(number, (visits, 0));
                    }
                }
                1 => {
                    if let Some((number, (left, done))) = open.iter_mut().find(|(_, (left, _))| *left > 0) {
                        ledger.reserve(&release(*number, *done), &event(), header(*done)).unwrap();
                        (*left, *done, released) = (*left - 1, *done + 1, released + 1);
                    }
                }
                _ => {
                    if let Some((number, _)) = open.pop_first() {
                        ledger.renounce(&run(number)).unwrap();
                    }
                }
            }
            let may_come: u64 = open.values().map(|(left, _)| left).sum();
            #[allow(clippy::cast_precision_loss, reason = "a few visits")]
            let all = (released + may_come) as f64 * SQUARED;
            assert!(all <= most * (1.0 + 1e-9), "{released} released, {may_come} may come");
            // One run alone is read at δ.
            let least = Gdp::of_ratio(all.sqrt()).epsilon_upper(Delta::new(1e-5).unwrap()).get();
            assert!(spent(&ledger) >= least * (1.0 - 1e-6), "{} for {all}", spent(&ledger));
        }
    }
}

/// A run's visits are made with the records of its first one, after a restart, in a copy that was put back and with private state or without.
#[test]
fn no_visit_of_a_run_is_made_with_other_records() {
    let store = MemoryStore::new(Unsealed);
    let [these, others] = [1, 2].map(|n| Hash([n; 32]));
    let mut ledger = of_budget(&store, 50.0).of_records(these);
    ledger.plan_run(&run(0), &[(event(), 3)], None).unwrap();
    ledger.reserve(&release(0, 0), &event(), header(0)).unwrap();
    let rows = ledger.rows().len();
    ledger.reserve(&release(0, 1), &event(), header(1)).unwrap();
    assert_eq!(ledger.rows().len(), rows + 1, "once a run");
    drop(ledger);
    let mut other = of_budget(&store, 50.0).of_records(others);
    let before = spent(&other);
    assert!(matches!(other.reserve(&release(0, 2), &event(), header(2)), Err(LedgerError::OtherRecords(_))));
    other.close_open().unwrap();
    assert!(matches!(other.reserve(&release(0, 2), &event(), header(2)), Err(LedgerError::OtherRecords(_))));
    assert_eq!(spent(&other), before);
    // Another run may have other records.
    other.reserve(&release(1, 0), &event(), header(0)).unwrap();
    drop(other);
    let mut again = of_budget(&store, 50.0).of_records(these);
    again.reserve(&release(0, 2), &event(), header(2)).unwrap();
    assert!(matches!(again.reserve(&release(1, 1), &event(), header(1)), Err(LedgerError::OtherRecords(_))));
}
