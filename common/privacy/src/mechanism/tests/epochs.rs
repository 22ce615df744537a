//! Sums over the batches of epochs: through permits, with the noise that is in them.

use super::*;
use crate::ledger::memory::MemoryStore;
use crate::ledger::{Budget, Ledger, LedgerIdentity};
use dp_pvi_accounting::{Epsilon, Neighbours, Phase, Plan, Sampling};
use dp_pvi_unsealed::Unsealed;

const UNITS: u32 = 48;
const BATCHES: u32 = 6;

/// Every unit has a coordinate of its own.
fn own_coordinates() -> Vec<Vec<(u32, f64)>> {
    (0..UNITS).map(|unit| vec![(unit, 1.0)]).collect()
}

/// So little noise that the sample can be read off.
fn allocated(batches: u32) -> LatticeSum {
    sum(UNITS, 1.0, 1.0 / 512.0, None).in_batches(batches).unwrap()
}

/// Who is in the sum of each step.
fn seen(mechanism: &LatticeSum, permit: Permit, noise: &impl NoiseSource) -> Vec<Vec<bool>> {
    let unit = 2f64.powi(-mechanism.exponent());
    let step = |permit| {
        let values = run(mechanism, own_coordinates(), permit, noise).unwrap();
        values
            .iter()
            .map(|&value| {
                let share = value as f64 / unit;
                assert!((share - share.round()).abs() < 0.1, "{share}");
                share > 0.5
            })
            .collect()
    };
    permit.into_steps().map(step).collect()
}

/// Of each epoch: the batch of every unit, which is in exactly one.
fn batches_of(steps: &[Vec<bool>], batches: u32) -> Vec<Vec<usize>> {
    let epoch = |steps: &[Vec<bool>]| {
        (0..UNITS as usize)
            .map(|unit| {
                let of: Vec<usize> = (0..batches as usize).filter(|&t| steps[t][unit]).collect();
                assert_eq!(of.len(), 1, "unit {unit} is in the batches {of:?} of one epoch");
                of[0]
            })
            .collect()
    };
    steps.chunks(batches as usize).map(epoch).collect()
}

#[test]
fn every_unit_is_in_exactly_one_sum_of_an_epoch_and_epochs_differ() {
    let mechanism = allocated(BATCHES);
    for noise in [7, 8] {
        let steps = seen(&mechanism, mint(mechanism.event().repeated(3)), &Seeded(noise));
        assert_eq!(steps.len(), 3 * BATCHES as usize);
        let epochs = batches_of(&steps, BATCHES);
        assert!(epochs[0] != epochs[1] && epochs[1] != epochs[2] && epochs[0] != epochs[2]);
        assert!((0..BATCHES as usize).all(|t| epochs.concat().contains(&t)));
    }
}

/// Of the generator that ships: every epoch of a permit has places of its own, and they are uniform, of all units and of each.
#[test]
fn places_from_the_systems_generator_are_uniform_and_new_in_every_epoch() {
    const EPOCHS: u32 = 120;
    let mechanism = allocated(BATCHES);
    let epochs = batches_of(&seen(&mechanism, mint(mechanism.event().repeated(EPOCHS.into())), &SecureNoise), BATCHES);
    assert_eq!(epochs.len(), EPOCHS as usize);
    // Units whose places in two epochs are the same: a sixth of them, and of 48 hardly ever 30.
    for pair in epochs.windows(2) {
        assert!(pair[0].iter().zip(&pair[1]).filter(|(a, b)| a == b).count() < 30, "{pair:?}");
    }
    // Counts of n places are within 7 standard deviations.
    let within = |count: usize, n: u32| {
        let (n, p) = (f64::from(n), 1.0 / f64::from(BATCHES));
        (count as f64 - n * p).abs() < 7.0 * (n * p * (1.0 - p)).sqrt()
    };
    for batch in 0..BATCHES as usize {
        let all = epochs.iter().flatten().filter(|&&place| place == batch).count();
        assert!(within(all, EPOCHS * UNITS), "batch {batch}: {all}");
        for unit in 0..UNITS as usize {
            let own = epochs.iter().filter(|places| places[unit] == batch).count();
            assert!(within(own, EPOCHS), "unit {unit} in batch {batch}: {own} of {EPOCHS}");
        }
    }
}

/// The steps of an epoch may come in any order, and some not at all.
#[test]
fn the_draw_of_an_epoch_does_not_depend_on_the_order_of_its_steps() {
    let mechanism = allocated(BATCHES);
    let forwards = seen(&mechanism, mint(mechanism.event()), &Seeded(5));
    let mut permits: Vec<StepPermit> = mint(mechanism.event()).into_steps().collect();
    permits.remove(2);
    permits.reverse();
    let sums: Vec<Vec<i64>> = permits.into_iter().map(|permit| run(&mechanism, own_coordinates(), permit, &Seeded(5)).unwrap()).collect();
    for (number, values) in [5usize, 4, 3, 1, 0].into_iter().zip(sums) {
        let there: Vec<bool> = values.iter().map(|&value| value as f64 * 2f64.powi(mechanism.exponent()) > 0.5).collect();
        assert_eq!(there, forwards[number], "batch {number}");
    }
}

/// A site that stops in the middle of an epoch has released nothing of it. It gets a permit for the same charge, and a new draw for the whole epoch; after the
/// commit there is none.
#[test]
fn an_epoch_that_was_lost_is_drawn_anew_and_charged_once() {
    let store = MemoryStore::new(Unsealed);
    let open = || {
        let identity = LedgerIdentity { data: "here".into(), unit: PrivacyUnit::Record, relation: Relation::AddRemove };
        let delta = Delta::new(1e-5).unwrap();
        let budget = Budget { epsilon: Epsilon::INFINITE, delta, per_run: None, max_fallback: None, allow_non_private: false };
        Ledger::open(store.clone(), ed25519_dalek::SigningKey::from_bytes(&[7; 32]), identity, budget).unwrap()
    };
    let mechanism = allocated(BATCHES);
    let event = mechanism.event();
    let mut ledger = open();
    let permit = ledger.reserve(&release_id(), &event, Hash::default()).unwrap();
    let lost: Vec<Vec<i64>> =
        permit.into_steps().take(3).map(|permit| run(&mechanism, own_coordinates(), permit, &SecureNoise).unwrap()).collect();
    let spent = ledger.losses().joint.epsilon;
    drop(ledger);
    let mut ledger = open();
    let permit = ledger.reserve(&release_id(), &event, Hash::default()).unwrap();
    assert_eq!(permit.event(), &event, "the epoch is charged whole");
    let again = seen(&mechanism, permit, &SecureNoise);
    batches_of(&again, BATCHES);
    assert_eq!(ledger.losses().joint.epsilon, spent, "a lost epoch costs nothing more");
    // The same three batches a second time with probability below 2^-90.
    let lost: Vec<Vec<bool>> =
        lost.iter().map(|values| values.iter().map(|&v| v as f64 * 2f64.powi(mechanism.exponent()) > 0.5).collect()).collect();
    assert_ne!(lost[..], again[..3]);
}

/// What a mechanism says it costs is what the accountant says of epochs under the relation.
#[test]
fn the_event_costs_what_a_plan_of_epochs_does() {
    let mechanism = sum(UNITS, 1.0, 1.0, None).in_batches(10).unwrap();
    let event = mechanism.event();
    assert!(matches!(&event, DpEvent::RandomAllocation { batches: 10, event } if matches!(**event, DpEvent::DiscreteGaussian(_))));
    let delta = Delta::new(1e-5).unwrap();
    for (relation, neighbours) in [(Relation::AddRemove, Neighbours::AddRemove), (Relation::ReplaceOne, Neighbours::ReplaceOne)] {
        let told = epsilon_upper(std::slice::from_ref(&event.clone().repeated(3)), relation, delta).unwrap().epsilon.get();
        let plan = Plan::of(neighbours, Phase::gaussian(1.0, Sampling::RandomAllocation(10), 3)).unwrap().epsilon(delta);
        assert!(told >= plan.lower && told <= plan.upper * 1.001, "{relation:?}: {told} {plan:?}");
        let one = epsilon_upper(&[sum(UNITS, 1.0, 1.0, None).event().repeated(3)], relation, delta).unwrap().epsilon.get();
        assert!(told < 0.8 * one, "{relation:?}: {told} {one}");
    }
}

#[test]
fn what_does_not_go_together_is_refused() {
    for batches in [0, 1, (1 << 20) + 1] {
        assert!(sum(2, 1.0, 1.0, None).in_batches(batches).is_err(), "{batches}");
    }
    assert!(sum(2, 1.0, 1.0, Some(0.5)).in_batches(4).is_err());
    assert!(sum(2, 1.0, 1.0, None).in_batches(4).unwrap().in_batches(4).is_err());
    let shards =
        LatticeSum::new(2, ClipNorm::new(1.0).unwrap(), NoiseMultiplier::new(1.0).unwrap(), None, Terms::ShardResults, LatticePath::Term);
    assert!(shards.unwrap().in_batches(4).is_err());
    // Permits for another number of batches, for no batches, and of all units.
    let mechanism = allocated(BATCHES);
    for event in [allocated(BATCHES + 1).event(), sum(UNITS, 1.0, 1.0 / 512.0, None).event()] {
        let permit = mint(event).into_steps().next().unwrap();
        assert!(matches!(run(&mechanism, own_coordinates(), permit, &Seeded(1)), Err(ReleaseError::PermitMismatch)));
    }
    // One epoch over two tables.
    let mut permits = mint(mechanism.event()).into_steps();
    run(&mechanism, own_coordinates(), permits.next().unwrap(), &Seeded(1)).unwrap();
    let other = run(&mechanism, own_coordinates()[1..].to_vec(), permits.next().unwrap(), &Seeded(1));
    assert!(matches!(other, Err(ReleaseError::OtherUnits)), "{other:?}");
    let broken = run(&mechanism, own_coordinates(), mint(mechanism.event()).into_steps().next().unwrap(), &Broken);
    assert!(matches!(broken, Err(ReleaseError::NoRandomness(_))));
}
