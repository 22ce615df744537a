//! Properties of the choice between engines.

use proptest::prelude::*;

use super::*;
use crate::event::LatticePath;

fn discrete(scale: u64, bound: u64, terms: Terms) -> DpEvent {
    DpEvent::DiscreteGaussian(DiscreteGaussian {
        exponent: -20,
        scale,
        bound_squared: u128::from(bound * bound),
        excess: 0,
        dimension: 10,
        terms,
        path: LatticePath::Term,
    })
}

fn sampled(event: DpEvent, q: f64) -> DpEvent {
    DpEvent::PoissonSampled { rate: SamplingRate::nearest(q).unwrap(), event: Box::new(event) }
}

fn epsilon(event: &DpEvent, relation: Relation, delta: f64) -> f64 {
    epsilon_upper([event], relation, Delta::new(delta).unwrap()).unwrap().epsilon.get()
}

const FINE: u64 = CONTINUOUS_FROM;

#[test]
fn engines_are_chosen_by_what_is_proved() {
    let delta = Delta::new(1e-5).unwrap();
    let method = |events: &[&DpEvent], relation| {
        let loss = epsilon_upper(events.iter().copied(), relation, delta).unwrap();
        (loss.method, loss.numerical_margin)
    };
    let (fine, coarse) = (discrete(FINE, FINE, Terms::Units), discrete(1000, 1000, Terms::Units));
    let (ar, ro) = (Relation::AddRemove, Relation::ReplaceOne);
    assert_eq!(method(&[&fine], ar), (Method::GaussianDp, true));
    assert_eq!(method(&[&coarse], ar), (Method::Zcdp, false));
    assert_eq!(method(&[&fine, &coarse], ar), (Method::Zcdp, false));
    assert_eq!(method(&[&sampled(coarse.clone(), 0.1)], ar), (Method::Rdp, false));
    assert_eq!(method(&[&fine, &sampled(fine.clone(), 0.1)], ar), (Method::Rdp, false));
    assert_eq!(method(&[&sampled(fine.clone(), 0.1)], ro), (Method::Rdp, true));
    assert_eq!(method(&[&sampled(coarse.clone(), 0.1)], ro), (Method::Zcdp, false));
    assert_eq!(method(&[&fine, &DpEvent::NonPrivate], ar), (Method::NonPrivate, false));
    assert_eq!(method(&[], ar), (Method::GaussianDp, false));
}

#[test]
fn the_sensitivity_follows_relation_and_terms() {
    let units = discrete(FINE, FINE, Terms::Units);
    let shards = discrete(FINE, FINE, Terms::ShardResults);
    let one = epsilon(&units, Relation::AddRemove, 1e-5);
    let two = epsilon(&units, Relation::ReplaceOne, 1e-5);
    assert!((one - 4.377_178_095_681_22).abs() < 1e-4 && two > 2.0 * one);
    for relation in [Relation::AddRemove, Relation::ReplaceOne] {
        assert!((epsilon(&shards, relation, 1e-5) - two).abs() < 1e-12);
        // A sampled shard changes; it does not appear: the pair of replacement, under either relation.
        let sampled_shards = epsilon(&sampled(shards.clone(), 0.1), relation, 1e-5);
        assert!((sampled_shards - epsilon(&sampled(units.clone(), 0.1), Relation::ReplaceOne, 1e-5)).abs() < 1e-12);
    }
}

#[test]
fn events_that_nobody_bounds_are_refused() {
    let nested = sampled(sampled(discrete(FINE, FINE, Terms::Units), 0.5), 0.5);
    let composed = sampled(discrete(FINE, FINE, Terms::Units).repeated(3), 0.5);
    let silent = discrete(0, 1, Terms::Units);
    let endless = discrete(FINE, 1, Terms::Units).repeated(u64::MAX).repeated(2);
    for event in [nested, composed, silent, endless] {
        assert!(matches!(Charge::of(&event, Relation::AddRemove), Err(AccountantError::Unsupported(_))), "{event:?}");
    }
}

#[test]
fn sampling_everybody_is_no_sampling() {
    let plain = discrete(FINE, FINE / 2, Terms::Units);
    for relation in [Relation::AddRemove, Relation::ReplaceOne] {
        let (a, b) = (epsilon(&sampled(plain.clone(), 1.0), relation, 1e-6), epsilon(&plain, relation, 1e-6));
        assert!((a - b).abs() < 1e-15);
    }
}

#[test]
fn calibration_reports_what_it_cannot_reach() {
    let event = |z| DpEvent::Gaussian { noise: z, terms: Terms::Units }.repeated(1_000_000);
    let (tiny, delta) = (Epsilon::new(1e-9).unwrap(), Delta::new(1e-15).unwrap());
    assert_eq!(calibrate(event, Relation::AddRemove, tiny, delta), Err(AccountantError::OutOfReach));
    assert_eq!(
        calibrate(|_| DpEvent::NonPrivate, Relation::AddRemove, Epsilon::new(1.0).unwrap(), delta),
        Err(AccountantError::OutOfReach)
    );
}

/// A ledger of thousands of events answers quickly because each distinct event is accounted once.
#[test]
fn thousands_of_events_are_cheap_after_the_first() {
    let event = sampled(discrete(FINE, FINE / 5, Terms::Units), 0.05).repeated(200);
    let charge = Charge::of(&event, Relation::ReplaceOne).unwrap();
    let (mut one_by_one, mut at_once) = (Composition::default(), Composition::default());
    for _ in 0..5000 {
        one_by_one.add(&charge, 1);
    }
    at_once.add(&charge, 5000);
    let delta = Delta::new(1e-5).unwrap();
    let (a, b) = (one_by_one.loss(delta).epsilon.get(), at_once.loss(delta).epsilon.get());
    assert!(((a - b) / b).abs() < 1e-11, "{a} {b}");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]

    /// ε falls with δ and with the noise, grows with q and the number of steps; the order of events is irrelevant.
    #[test]
    fn epsilon_is_monotone(scale in 0.2..20.0f64, q in 1e-4..0.9f64, count in 1u64..2000, log_delta in -30.0..-2.0f64, replace: bool) {
        let relation = if replace { Relation::ReplaceOne } else { Relation::AddRemove };
        let delta = f64::exp(log_delta);
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, clippy::cast_precision_loss)]
        let event = |scale: f64, q: f64, count: u64| sampled(discrete(FINE, (FINE as f64 / scale) as u64, Terms::Units), q).repeated(count);
        let here = epsilon(&event(scale, q, count), relation, delta);
        let slack = 1.0 - 1e-9;
        prop_assert!(epsilon(&event(scale, q, count), relation, delta * 1.5) <= here / slack);
        prop_assert!(epsilon(&event(scale * 1.2, q, count), relation, delta) <= here / slack);
        prop_assert!(epsilon(&event(scale, (q * 1.1).min(1.0), count), relation, delta) >= here * slack);
        prop_assert!(epsilon(&event(scale, q, count + 1), relation, delta) >= here * slack);
        let other = event(scale * 2.0, q, 3);
        let this = event(scale, q, count);
        let delta = Delta::new(delta).unwrap();
        let ab = epsilon_upper([&this, &other], relation, delta).unwrap().epsilon.get();
        let ba = epsilon_upper([&other, &this], relation, delta).unwrap().epsilon.get();
        prop_assert!((ab - ba).abs() <= 1e-12 * ab && ab >= here * slack);
    }
}
