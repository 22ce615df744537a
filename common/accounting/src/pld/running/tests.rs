//! The product of transforms against the grid, against reference values, and while it grows.

use super::super::{Composition, GAP, Interval, Pair};
use super::{Effort, Running, epsilon};
use crate::plan::Plan;
use crate::steps::{Neighbours, Phase, Sampling};
use crate::unit::{Delta, Epsilon};

fn at(delta: f64) -> Delta {
    Delta::new(delta).unwrap()
}

fn fresh(parts: &[(Pair, u64)], delta: f64) -> Option<Interval> {
    epsilon(&mut None, parts, &[], delta, Effort::Interval)
}

fn wide(interval: Interval) -> f64 {
    (interval.upper - interval.lower) / interval.upper.max(0.05)
}

#[test]
fn the_interval_holds_the_grids_and_is_narrower() {
    let mut narrow = 0;
    for (sigma, q, steps, delta) in [
        (1.0, 0.01, 1000, 1e-5),
        (1.0, 0.01, 30, 1e-5),
        (2.0, 0.001, 100_000, 1e-6),
        (8.0, 0.1, 2000, 1e-5),
        (4.0, 0.01, 10_000, 1e-10),
        (1.0, 1e-4, 100_000, 1e-5),
        (3.0, 0.5, 40, 1e-3),
    ] {
        let pairs =
            [Pair::remove(1.0 / sigma, q), Pair::add(1.0 / sigma, q), Pair::replace(1.0 / sigma, q), Pair::symmetrised(2.0 / sigma, q)];
        for pair in pairs {
            let parts = vec![(pair, steps)];
            let (Some(new), Some(old)) = (fresh(&parts, delta), Composition::new(parts.clone()).epsilon(delta, GAP)) else { continue };
            assert!(new.lower <= old.upper && old.lower <= new.upper, "{parts:?}: {new:?} and {old:?} have nothing in common");
            narrow += u32::from(wide(new) < 0.2 * GAP);
        }
    }
    assert!(narrow >= 22, "{narrow} of 28 are narrow");
}

#[test]
fn unsampled_gaussians_have_their_closed_form() {
    for (mu, delta) in [(0.3, 1e-5), (2.0, 1e-9), (1.0, 1e-12), (0.05, 1e-3)] {
        let parts = vec![(Pair::gaussian(mu / 10f64.sqrt()), 7), (Pair::gaussian(mu / 10f64.sqrt()), 3)];
        let found = fresh(&parts, delta).unwrap();
        let exact = crate::Gdp::of_ratio(mu).epsilon_upper(at(delta)).get();
        assert!(found.lower <= exact && exact <= found.upper * (1.0 + 1e-11), "{mu} {delta}: {found:?} {exact}");
        assert!(wide(found) < 0.2 * GAP, "{found:?}");
    }
}

fn rounds(relation: Neighbours, from: u32, to: u32) -> Plan {
    let mut plan = Plan::new(relation);
    for i in from..to {
        plan.append(Phase::gaussian(1.0 + 0.01 * f64::from(i), Sampling::Poisson(0.01), 10)).unwrap();
    }
    plan
}

/// What a plan says while it grows is what a plan says that is read once, up to what both certify.
#[test]
fn readings_while_it_grows_agree_with_one_at_the_end() {
    for relation in [Neighbours::AddRemove, Neighbours::ReplaceOne] {
        let mut plan = rounds(relation, 0, 3);
        let mut before = 0.0;
        for i in 3..40 {
            plan.append(Phase::gaussian(1.0 + 0.01 * f64::from(i), Sampling::Poisson(0.01), 10)).unwrap();
            let now = plan.epsilon(at(1e-5));
            assert!(wide(now) <= 2.0 * GAP && now.lower > before, "{i}: {now:?} after {before}");
            before = now.upper;
            if i % 7 == 0 {
                let once = rounds(relation, 0, i + 1).epsilon(at(1e-5));
                assert!(now.lower <= once.upper && once.lower <= now.upper, "{i}: {now:?} {once:?}");
                assert!((now.estimate - once.estimate).abs() <= GAP * once.estimate, "{i}: {now:?} {once:?}");
            }
        }
        // At another δ, from the same product.
        let (low, high) = (plan.epsilon(at(1e-7)), plan.epsilon(at(1e-3)));
        let clone = plan.clone();
        for (delta, grown) in [(1e-7, low), (1e-3, high)] {
            let once = clone.epsilon(at(delta));
            assert!(grown.lower <= once.upper && once.lower <= grown.upper && wide(grown) <= 2.0 * GAP, "{delta}: {grown:?} {once:?}");
        }
        assert!(high.upper < before && before < low.lower);
    }
}

/// Against the estimate of the older contour, which is of another make: 1e-7 on mixed plans.
#[test]
fn mixed_plans_agree_with_the_contour() {
    let mut plan = Plan::new(Neighbours::ReplaceOne);
    for i in 0..12u32 {
        let (x, steps) = (f64::from(i), u64::from(1 + 37 * (i % 5)));
        plan.append(Phase::gaussian(2.0 + 0.7 * x, Sampling::Poisson(0.01 * (1.0 + x)), steps)).unwrap();
    }
    plan.append(Phase::gaussian(30.0, Sampling::None, 3)).unwrap();
    let (interval, contour) = (plan.epsilon(at(1e-6)), plan.epsilon_estimate(at(1e-6)));
    assert!(wide(interval) < GAP, "{interval:?}");
    assert!(
        (interval.estimate / contour - 1.0).abs() < 1e-6 && interval.lower <= contour && contour <= interval.upper,
        "{interval:?} {contour}"
    );
    let back = plan.delta(Epsilon::new(interval.estimate).unwrap());
    assert!(back.lower <= 1e-6 && back.upper >= 1e-6, "{back:?}");
}

/// Products that would cost too much are none, and what is left is the grid's answer.
#[test]
fn losses_without_a_density_are_the_grids() {
    assert!(fresh(&[(Pair::laplace(0.3), 20)], 1e-6).is_none());
    let mut running: Option<Running> = None;
    assert!(epsilon(&mut running, &[(Pair::approximate(0.1, 1e-9), 20)], &[], 1e-6, Effort::Interval).is_none() && running.is_none());
}

/// Products of random pairs never contradict the grid, which shares nothing with them but the pairs.
#[test]
fn random_compositions_agree_with_the_grid() {
    let mut state = 88_172_645_463_325_252_u64;
    let mut uniform = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        f64::from(u32::try_from(state >> 32).unwrap()) / 4_294_967_296.0
    };
    let kinds: [fn(f64, f64) -> Pair; 4] = [Pair::remove, Pair::add, Pair::replace, Pair::symmetrised];
    let (mut none, mut narrow) = (0, 0);
    for case in 0..60 {
        let delta = 10f64.powf(-1.0 - 11.0 * uniform());
        let parts: Vec<_> = (0..1 + case % 3)
            .map(|_| {
                let (sigma, q) = (10f64.powf(2.0 * uniform() - 0.5), 10f64.powf(-5.0 * uniform()).min(0.999));
                #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "small positive numbers")]
                let (steps, kind) = (10f64.powf(0.4 + 5.0 * uniform()) as u64 + 1, (uniform() * 4.0) as usize);
                (kinds[kind](1.0 / sigma, q), steps)
            })
            .collect();
        let Some(new) = fresh(&parts, delta) else {
            none += 1;
            continue;
        };
        narrow += u32::from(wide(new) < 2.0 * GAP);
        if let Some(old) = Composition::new(parts.clone()).epsilon(delta, GAP) {
            assert!(new.lower <= old.upper && old.lower <= new.upper, "{delta} {parts:?}: {new:?} {old:?}");
        }
    }
    assert!(none <= 10 && narrow >= 48, "{none} {narrow}");
}

#[test]
fn a_thousand_different_rounds_have_every_answer() {
    let mut plan = rounds(Neighbours::AddRemove, 0, 1000);
    let all = plan.epsilon(at(1e-5));
    assert!(wide(all) < GAP, "{all:?}");
    assert!((plan.epsilon_estimate(at(1e-5)) - all.estimate).abs() < 1e-6);
    let back = |epsilon: f64| plan.delta(Epsilon::new(epsilon).unwrap());
    let (low, high) = (back(all.lower), back(all.upper));
    assert!(high.lower <= 1e-5 && low.upper >= 1e-5, "{low:?} {high:?}");
    assert!(high.upper - high.lower < 1e-4 * high.upper, "{high:?}");
    let far = plan.delta(Epsilon::new(2.0 * all.estimate).unwrap());
    assert!(far.upper < 1e-10 && far.upper - far.lower < 1e-4 * far.upper, "{far:?}");
    // A round of another kind.
    plan.append(Phase { mechanism: crate::Mechanism::Laplace { scale: 50.0 }, sampling: Sampling::None, steps: 2 }).unwrap();
    let more = plan.epsilon(at(1e-5));
    assert!(wide(more) < GAP && more.lower > all.upper && more.upper < all.upper + 0.04, "{more:?}");
}

/// What no product and no grid can answer within their limits has a wider interval all the same.
#[test]
fn thousands_of_kinds_without_a_density_have_an_interval() {
    let mut plan = Plan::new(Neighbours::AddRemove);
    for i in 0..3000u32 {
        let scale = 100.0 + f64::from(i);
        plan.append(Phase { mechanism: crate::Mechanism::Laplace { scale }, sampling: Sampling::None, steps: 1 }).unwrap();
    }
    let found = plan.epsilon(at(1e-6));
    assert!(found.lower <= found.estimate && found.estimate <= found.upper && found.upper < 3.5, "{found:?}");
}
