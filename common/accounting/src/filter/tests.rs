//! The filter against numbers that were computed by hand (from the formulas of the proof, in another program), and against the rule it must not be.

use super::*;
use crate::adjacency::{Relation, Terms};
use crate::event::{DiscreteGaussian, DpEvent, LatticePath, Rho};
use crate::unit::{NoiseMultiplier, SamplingRate};
use crate::{Filter, Prices, epsilon_filtered};

fn delta() -> Delta {
    Delta::new(1e-5).unwrap()
}

fn eps(value: f64) -> Epsilon {
    Epsilon::new(value).unwrap()
}

/// Divergence 0.01 α.
fn rho() -> DpEvent {
    DpEvent::Zcdp { rho: Rho::new(0.01).unwrap() }
}

/// Divergence near 1 at large orders, and far below α/2 at small ones.
fn laplace() -> DpEvent {
    DpEvent::Laplace { scale: NoiseMultiplier::new(1.0).unwrap(), terms: Terms::Units }
}

/// A lattice release with μ = `ratio` under add-remove.
fn gaussian(ratio: f64) -> DpEvent {
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
    let bound = (ratio * f64::from(1u32 << 20)) as u128;
    DpEvent::DiscreteGaussian(DiscreteGaussian {
        exponent: -20,
        scale: 1 << 20,
        bound_squared: bound * bound,
        excess: 0,
        dimension: 100,
        terms: Terms::Units,
        path: LatticePath::Term,
    })
}

fn sampled(ratio: f64, rate: f64) -> DpEvent {
    DpEvent::PoissonSampled { rate: SamplingRate::nearest(rate).unwrap(), event: Box::new(gaussian(ratio)) }
}

fn reads(events: &[(DpEvent, u64)], budget: f64) -> f64 {
    let (mut total, mut prices) = (Composition::default(), Prices::new(Relation::AddRemove));
    for (event, times) in events {
        total.add(&prices.learn(event).unwrap(), *times);
    }
    total.filtered(eps(budget), delta()).epsilon.get()
}

/// By the best Rényi order, or μ².
fn as_plan(events: &[DpEvent]) -> f64 {
    crate::composed(events, Relation::AddRemove).unwrap().protected_loss(delta()).epsilon.get()
}

/// A budget of 4 and a first event of ρ = 0.01 fix the order 6. By hand, D₆ of the first is 0.06 and that of Laplace noise of scale 1 is 0.87878…:
/// two of them keep to the budget and three read 4.458, although the best order after the fact says 3.470.
#[test]
fn what_is_spent_is_what_the_theorem_says_by_hand() {
    let events = |laplaces| [(rho(), 1), (laplace(), laplaces)];
    assert!((reads(&events(3), 4.0) - 4.458_238_511_004_57).abs() < 1e-9, "{}", reads(&events(3), 4.0));
    assert!((reads(&events(2), 4.0) - 3.304_006_115_830_93).abs() < 1e-6, "{}", reads(&events(2), 4.0));
    assert!((reads(&events(6), 8.0) - 8.009_997_408_387_4).abs() < 1e-9, "{}", reads(&events(6), 8.0));
    let afterwards = as_plan(&[rho(), laplace(), laplace(), laplace()]);
    assert!((afterwards - 3.470_124_952_560_33).abs() < 1e-9, "{afterwards}");
}

/// Someone who sees the first outputs goes on with the event whose best order is another one: what a filter that takes the smallest ε over the
/// orders admits is more than what the order that was fixed admits. It is refused, in the order in which it comes.
#[test]
fn the_best_order_after_the_fact_is_not_taken() {
    let mut filter = Filter::new(Relation::AddRemove, eps(4.0), delta());
    let chosen = [rho(), laplace(), laplace(), laplace()];
    let admitted: Vec<bool> = chosen.iter().map(|event| filter.admit(event).unwrap()).collect();
    assert_eq!(admitted, [true, true, true, false]);
    assert!(as_plan(&chosen) <= 4.0, "a plan of these would keep to the budget: the smallest ε over the orders");
    // The filter still has room at its own order for more of the kind that it was made for.
    assert!(filter.admit(&rho()).unwrap());
    // The first event fixes the order: the same events in another sequence read another number, and never less than their plan.
    let one = epsilon_filtered(&chosen, Relation::AddRemove, eps(4.0), delta()).unwrap().epsilon;
    let other = epsilon_filtered(chosen.iter().rev(), Relation::AddRemove, eps(4.0), delta()).unwrap().epsilon;
    assert!(one > eps(4.0) && other != one && other.get() > as_plan(&chosen), "{one:?} {other:?}");
}

/// Two orders are as good as each other for the first event and a budget, but for the margin that discrete noise needs. A later event that needs it
/// is read at the order that the first event fixed.
#[test]
fn a_later_margin_does_not_change_the_order() {
    let mut prices = Prices::new(Relation::ReplaceOne);
    let charges = [rho(), laplace(), sampled(0.5, 0.02)].map(|event| prices.learn(&event).unwrap());
    let costs: Vec<_> = charges.iter().map(|charge| charge.cost.clone().unwrap()).collect();
    let first = &costs[0];
    assert!(!first.curve_margin && costs[2].curve_margin);
    // Budgets at which the best order changes, with all of δ and with the margin.
    let changes = |delta: Delta| {
        let (mut low, mut high) = (3.0, 6.0);
        let at_low = order(first, low, delta);
        assert_ne!(at_low, order(first, high, delta));
        for _ in 0..60 {
            let middle: f64 = 0.5 * (low + high);
            if order(first, middle, delta) == at_low { low = middle } else { high = middle }
        }
        high
    };
    let budget = 0.5 * (changes(delta()) + changes(with_margin(delta(), true)));
    let (fixed, other) = (order(first, budget, delta()), order(first, budget, with_margin(delta(), true)));
    assert_ne!(fixed, other, "the premise: a near tie");
    let mut curve = Curve::default();
    for (cost, times) in costs.iter().zip([1, 9, 1]) {
        curve.add(&cost.curve, times);
    }
    let by_hand = |order: usize| to_epsilon(ORDERS[order], curve.values()[order], with_margin(delta(), true));
    let mut total = Composition::default();
    charges.iter().zip([1, 9, 1]).for_each(|(charge, times)| total.add(charge, times));
    let reading = total.filtered(eps(budget), delta()).epsilon.get();
    assert!(reading > budget && (by_hand(fixed) / by_hand(other) - 1.0).abs() > 1e-3);
    assert!((reading / by_hand(fixed) - 1.0).abs() < 1e-12, "{reading} {} {}", by_hand(fixed), by_hand(other));
}

/// A filter of one kind of event pays nothing for being adaptive: it reads what a plan of as many events costs, and admits it by a budget that is
/// just that.
#[test]
fn one_kind_of_event_costs_what_its_plan_costs() {
    // A plan of events that are known by their ρ may take orders between those that are kept.
    let (reading, plan) = (reads(&[(rho(), 7)], 9.0), as_plan(&vec![rho(); 7]));
    assert!(reading >= plan && reading < plan * 1.001, "{reading} {plan}");
    for event in [gaussian(0.3), sampled(0.5, 0.02), sampled(2.0, 0.001).repeated(100), laplace()] {
        for times in [1u64, 2, 7, 60] {
            let plan = as_plan(&vec![event.clone(); usize::try_from(times).unwrap()]);
            for budget in [plan * (1.0 + 1e-9), 2.0 * plan, 50.0 * plan] {
                let reading = reads(&[(event.clone(), times)], budget);
                assert!((reading / plan - 1.0).abs() < 1e-9, "{event:?} {times} of {budget}: {reading} {plan}");
            }
            let reading = reads(&[(event.clone(), times)], plan * (1.0 - 1e-6));
            assert!(reading > plan * (1.0 - 1e-6), "{event:?} {times}: {reading} {plan}");
        }
    }
}

/// μ² of the Gaussians by hand: (4 · 0.25) = 1, ε(1e-5) = 4.377178. After an event without μ all orders share 4e-7 of δ.
#[test]
fn gaussians_first_keep_mu_until_another_event_comes() {
    let alone = reads(&[(gaussian(0.5), 4)], 5.0);
    assert!((alone - 4.377_178_095_681_22).abs() < 1e-6, "{alone}");
    let both = [(gaussian(0.5), 4), (sampled(0.5, 0.02), 10)];
    let reading = reads(&both, 20.0);
    let share = Delta::new(1e-5 * SPARE / f64::from(u32::try_from(ORDERS.len()).unwrap())).unwrap();
    let curve = |event: &DpEvent| crate::Charge::of(event, Relation::AddRemove).unwrap().divergences().unwrap();
    let mut sum = curve(&both[0].0);
    sum.add(&curve(&both[0].0), 3);
    sum.add(&curve(&both[1].0), 10);
    let by_hand = sum.epsilon_upper(share).get();
    assert!((reading / by_hand - 1.0).abs() < 1e-12 && reading > alone, "{reading} {by_hand}");
    // μ² and the orders never have the whole δ side by side.
    let events: Vec<_> = std::iter::repeat_n(both[0].0.clone(), 4).chain(std::iter::repeat_n(both[1].0.clone(), 10)).collect();
    assert!(reading > as_plan(&events), "{reading}");
}

/// A black box's δ is reserved by the first event, or there is none.
#[test]
fn the_delta_of_black_boxes_is_fixed_at_the_start() {
    let boxed = |delta: f64| DpEvent::Approximate { epsilon: eps(0.5), delta: Delta::new(delta).ok() };
    assert!(reads(&[(boxed(1e-6), 1), (rho(), 1)], 9.0) <= 9.0);
    assert!(reads(&[(boxed(1e-6), 6)], 9.0).is_infinite());
    assert!(reads(&[(boxed(5e-6), 1), (rho(), 1)], 9.0) <= 9.0);
    assert!(reads(&[(rho(), 1), (boxed(1e-9), 1)], 9.0).is_infinite());
    assert!(reads(&[(gaussian(0.1), 1), (boxed(1e-9), 1)], 9.0).is_infinite());
}

#[test]
fn a_reading_grows_with_what_is_booked() {
    let mut before = 0.0;
    for times in 1..60u64 {
        let here = reads(&[(sampled(1.0, 0.01), times), (sampled(0.3, 0.2), 2 * times)], 30.0);
        assert!(here >= before, "{times}: {before} {here}");
        before = here;
    }
}
