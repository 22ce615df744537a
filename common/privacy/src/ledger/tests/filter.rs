//! The rule of the ledger's filter, through reservations: proofs/filter.md.

use super::*;
use dp_pvi_accounting::event::Rho;
use dp_pvi_accounting::unit::NoiseMultiplier;
use dp_pvi_unsealed::Unsealed;

fn rho() -> DpEvent {
    DpEvent::Zcdp { rho: Rho::new(0.01).unwrap() }
}

/// ε = 1 under replace-one.
fn laplace() -> DpEvent {
    DpEvent::Laplace { scale: NoiseMultiplier::new(2.0).unwrap(), terms: Terms::Units }
}

fn reserve(ledger: &mut TestLedger, round: u32, event: &DpEvent) -> Result<(), LedgerError> {
    // Every event is of a run of its own: a task that somebody chose after the results of the others.
    ledger.reserve(&release(round, round), event, header(round)).map(drop)
}

/// The order of the Rényi divergences is that which the first event and the budget fix. The best order after the fact would admit the last task
/// (its ε is 3.470 then); the theorem does not.
#[test]
fn finding_privacy_filter_the_order_is_fixed_by_the_first_charge() {
    let (store, mut ledger) = fresh(4.0);
    reserve(&mut ledger, 0, &rho()).unwrap();
    reserve(&mut ledger, 1, &laplace()).unwrap();
    reserve(&mut ledger, 2, &laplace()).unwrap();
    assert!((ledger.spent().unwrap().epsilon.get() - 3.304_006_115_830_93).abs() < 1e-6);
    let afterwards = epsilon_upper(&[rho(), laplace(), laplace(), laplace()], Relation::ReplaceOne, Delta::new(1e-5).unwrap()).unwrap();
    assert!(afterwards.epsilon.get() < 4.0);
    let over = |result: Result<(), LedgerError>| match result {
        Err(LedgerError::OverBudget { would_be, .. }) => would_be,
        other => panic!("{other:?}"),
    };
    let would_be = over(reserve(&mut ledger, 3, &laplace()));
    assert!((would_be - 4.458_238_511_004_57).abs() < 1e-9, "{would_be}");
    assert!((over(ledger.would_admit(&run(7), &[(laplace(), 1)])) - would_be).abs() < 1e-12);
    assert!((ledger.would_cost(&[(laplace(), 1)]).unwrap().epsilon.get() - would_be).abs() < 1e-12);
    // Without a limit of its own, a run's ε is a plan's.
    assert!((ledger.spent_in(&run(1)).unwrap().epsilon.get() - 1.0).abs() < 1e-2);
    // Opened again it is the same ledger.
    let before = ledger.spent().unwrap();
    drop(ledger);
    let mut again = open(&store, budget(4.0)).unwrap();
    assert_eq!(again.spent().unwrap(), before);
    assert!((over(reserve(&mut again, 3, &laplace())) - would_be).abs() < 1e-12);
}

/// A site need not pay a run to its end, so which of its visits come may depend on what was released: the limit of a run is a filter, too.
#[test]
fn finding_attack2_9_the_limit_of_a_run_is_a_filter() {
    let limited = Budget { per_run: Some(Epsilon::new(4.0).unwrap()), ..budget(100.0) };
    let mut ledger = open(&MemoryStore::new(Unsealed), limited).unwrap();
    for (round, event) in (0..).zip([rho(), laplace(), laplace()]) {
        ledger.reserve(&release(1, round), &event, header(round)).unwrap();
    }
    assert!((ledger.spent_in(&run(1)).unwrap().epsilon.get() - 3.304_006_115_830_93).abs() < 1e-6);
    assert_eq!(ledger.losses_in(&run(1)).fallback, ledger.losses_in(&run(1)).joint);
    // As a plan, all four cost 3.470.
    match ledger.reserve(&release(1, 3), &laplace(), header(3)) {
        Err(LedgerError::OverRunBudget { would_be, .. }) => assert!((would_be - 4.458_238_511_004_57).abs() < 1e-9, "{would_be}"),
        other => panic!("{other:?}"),
    }
}

/// Gaussians are added up by μ² with all of δ, whatever else might come; when it comes, both rules have their own part of δ.
#[test]
fn gaussians_cost_what_they_always_did_until_something_else_comes() {
    let (_, mut ledger) = fresh(20.0);
    for round in 0..4 {
        reserve(&mut ledger, round, &event()).unwrap();
    }
    let gaussian = ledger.spent().unwrap();
    assert!((gaussian.epsilon.get() - cost(4)).abs() < 1e-12 && gaussian.method == Method::GaussianDp);
    reserve(&mut ledger, 4, &rho()).unwrap();
    let mixed = ledger.spent().unwrap();
    let plan = epsilon_upper(&[event(), event(), event(), event(), rho()], Relation::ReplaceOne, Delta::new(1e-5).unwrap()).unwrap();
    assert!(mixed.method == Method::Rdp && mixed.epsilon > plan.epsilon, "{mixed:?} {plan:?}");
}

/// A first row without a rule is one of an earlier version: its rows are priced by the rule of the proof, and the operator is told if that shows.
#[test]
fn ledgers_that_name_no_rule_are_priced_by_the_proved_one() {
    let (_, new) = fresh(4.0);
    assert_eq!((new.rule(), new.remark()), (FilterRule::FirstCharge, None));
    let store = MemoryStore::new(Unsealed);
    let row = Row { seq: 0, previous: Hash::default(), body: RowBody::Genesis(identity(), FilterRule::Unnamed) };
    let sealed = StoredRow::seal(&row, &key());
    // The very bytes of that version: kind 0, then the identity.
    assert_eq!(sealed.bytes[33..], [&[0, 6][..], b"ward 7", &[1, 1]].concat());
    store.tamper(|rows, _, _| rows.push(sealed));
    let mut old = open(&store, budget(4.0)).unwrap();
    assert_eq!((old.rule(), old.remark()), (FilterRule::Unnamed, None));
    reserve(&mut old, 0, &rho()).unwrap();
    reserve(&mut old, 1, &laplace()).unwrap();
    reserve(&mut old, 2, &laplace()).unwrap();
    assert!(matches!(reserve(&mut old, 3, &laplace()), Err(LedgerError::OverBudget { .. })));
    assert!(old.remark().unwrap().contains("older"));
    drop(old);
    assert_eq!(open(&store, budget(4.0)).unwrap().rule(), FilterRule::Unnamed);
}

/// The cap on the fallback is a budget of its own, with the first fallback as its first event.
#[test]
fn the_cap_on_the_fallback_is_a_filter_too() {
    let mut ledger = open(&MemoryStore::new(Unsealed), budget(100.0)).unwrap().cap_fallback(Some(Epsilon::new(4.0).unwrap()));
    let aggregated = |ledger: &mut TestLedger, round: u32, fallback: &DpEvent| {
        ledger.reserve_aggregated(&release(round, round), &event(), fallback, header(round)).map(drop)
    };
    for (round, fallback) in [rho(), laplace(), laplace()].iter().enumerate() {
        aggregated(&mut ledger, u32::try_from(round).unwrap(), fallback).unwrap();
    }
    match aggregated(&mut ledger, 3, &laplace()) {
        Err(LedgerError::OverFallback { would_be, .. }) => assert!((would_be - 4.458_238_511_004_57).abs() < 1e-9, "{would_be}"),
        other => panic!("{other:?}"),
    }
    assert!((ledger.losses().fallback.epsilon.get() - 3.304_006_115_830_93).abs() < 1e-6);
    assert!((ledger.losses().joint.epsilon.get() - cost(3)).abs() < 1e-12);
}
