//! Bounds by the number of far outcomes against direct quadrature, the grid, and each other.

use super::super::{Composition, GAP};
use super::*;
use crate::plan::Plan;
use crate::steps::{Neighbours, Phase, Sampling};
use crate::unit::{Delta, Epsilon};

fn wide(interval: Interval) -> f64 {
    (interval.upper - interval.lower) / interval.upper.max(SMALL)
}

/// δ(ε) of two steps by a double integral over outcomes, the inner one cut where the losses sum to ε.
fn two_steps(pair: &Pair, epsilon: f64) -> f64 {
    let map = pair.segments[0].map;
    let rule = |low: f64, high: f64, width: f64, f: &dyn Fn(f64) -> f64| {
        let panels = ((high - low) / width).ceil().max(1.0);
        let half = 0.5 * (high - low) / panels;
        let (mut sum, mut middle) = (0.0, low + half);
        while middle < high {
            sum += GAUSS_16.points.iter().map(|(x, w)| half * w * f(middle + half * x)).sum::<f64>();
            middle += 2.0 * half;
        }
        sum
    };
    let end = pair.ratio + 13.0;
    let outer = |y: f64| {
        let (first, log) = pair.at(map, y);
        let from = pair.inverse(map, epsilon - first).max(-13.0);
        if from >= end {
            return 0.0;
        }
        let inner = |z: f64| {
            let (second, log) = pair.at(map, z);
            -log.exp() * (epsilon - first - second).exp_m1()
        };
        log.exp() * rule(from, end, 0.25, &inner)
    };
    // Where the first loss is about ε, the second one decides within a small range of outcomes.
    let middle = pair.inverse(map, epsilon);
    let (low, high) = (middle - 0.5, (middle + 0.5).min(end));
    rule(-13.0, low, 0.05, &outer) + rule(low, high, 4e-3, &outer) + rule(high, end, 0.1, &outer)
}

/// How many answers are narrow.
fn double_integrals(steps: &[(f64, f64)]) -> u32 {
    let mut answered = 0;
    for &(ratio, rate) in steps {
        for pair in [Pair::remove(ratio, rate), Pair::replace(ratio, rate)] {
            for factor in [1.0, 10.0, 100.0] {
                let at = factor * rate;
                let exact = two_steps(&pair, at);
                if exact > 1e-12
                    && let Some(found) = epsilon(&pair, 2, exact)
                {
                    assert!(found.lower <= at * (1.0 + 1e-7) && at <= found.upper * (1.0 + 1e-7), "{pair:?} {at}: {found:?}");
                    answered += u32::from(wide(found) < 1e-3);
                }
            }
        }
    }
    answered
}

#[test]
fn two_rare_steps_equal_the_double_integral() {
    assert!(double_integrals(&[(1.0, 1e-3)]) >= 2);
}

#[test]
#[ignore = "long: tests/long.sh grids"]
fn whole_grid_two_rare_steps_equal_the_double_integral() {
    assert!(double_integrals(&[(1.0, 1e-3), (0.8, 1e-4)]) >= 4);
}

/// δ(ε) by the inversion integral of the whole transform along Re s = θ, outcomes beyond `end` left out: no shares, no panels of `line`.
fn plain_contour(pair: &Pair, times: f64, (theta, period, end): (f64, f64, f64), epsilon: f64) -> f64 {
    let map = pair.segments[0].map;
    let mut nodes = Vec::new();
    let (mut low, mut width) = (-9.0, 0.1);
    while low < end {
        for (x, w) in &GAUSS_16.points {
            let (loss, log) = pair.at(map, low + 0.5 * width * (1.0 + x));
            nodes.push((loss, 0.5 * width * w * log.exp()));
        }
        low += width;
        width = if low > 4.0 { 0.01 } else { 0.1 };
    }
    let step = std::f64::consts::TAU / period;
    let mut sum = 0.0;
    for k in 0..3000u32 {
        let t = step * f64::from(k);
        // M − 1, so that a power of 1e5 keeps its digits.
        let (re, im) = nodes.iter().fold((0.0, 0.0), |(re, im), (loss, weight)| {
            let (sin, cos) = (t * loss).sin_cos();
            (re + weight * ((theta * loss).exp() * cos - 1.0), im + weight * (theta * loss).exp() * sin)
        });
        let (log, phase) = (0.5 * times * (2.0 * re + re * re + im * im).ln_1p(), times * im.atan2(1.0 + re) - t * epsilon);
        let (a, b) = (theta * (theta + 1.0) - t * t, t * (2.0 * theta + 1.0));
        let value = log.exp() * (phase.cos() * a + phase.sin() * b) / (a * a + b * b);
        sum += if k == 0 { 0.5 * value } else { value };
        if log < -45.0 {
            break;
        }
    }
    sum * step / std::f64::consts::PI * (-theta * epsilon).exp()
}

#[test]
fn a_plain_contour_lies_between_the_bounds() {
    for (pair, times, at, contour) in [
        (Pair::remove(1.0 / 0.7, 1e-5), 100_000u64, 0.096, (20.0, 2.5, 9.2)),
        (Pair::remove(1.0 / 0.7, 1e-5), 100_000, 0.05, (20.0, 2.5, 8.7)),
        (Pair::replace(1.0 / 0.6182, 3.203e-6), 19_086, 0.018, (12.0, 3.5, 9.0)),
    ] {
        let exact = plain_contour(&pair, count(times), contour, at);
        let found = epsilon(&pair, times, exact).unwrap();
        let slack = 2e-5 * at;
        assert!(found.lower <= at + slack && at <= found.upper + slack && wide(found) < 1e-3, "{at} {exact:e}: {found:?}");
        assert!((found.estimate - at).abs() < 3e-5 * at, "{at} {exact:e}: {found:?}");
    }
}

/// The rows that were once loose, with what the grid certifies for them.
#[test]
fn loose_rows_are_narrow_and_within_the_grids() {
    for (pair, times, delta) in [
        (Pair::replace(1.0 / 0.81, 1.5e-5), 60_423, 1.5e-12),
        (Pair::remove(1.0, 1e-6), 1_000_000, 1e-10),
        (Pair::remove(1.0 / 0.7, 1e-5), 100_000, 1e-9),
        (Pair::replace(2.0, 4.8e-6), 1671, 1.6e-4),
        (Pair::symmetrised(2.0 / 1.3323, 3.383e-5), 22_964, 9.31e-8),
        (Pair::add(1.0 / 0.6497, 3.821e-5), 10_360, 1.24e-6),
    ] {
        let found = epsilon(&pair, times, delta).unwrap();
        assert!(wide(found) < 1e-3, "{pair:?}: {found:?}");
        if let Some(grid) = Composition::new(vec![(pair.clone(), times)]).epsilon(delta, GAP) {
            assert!(found.lower <= grid.upper && grid.lower <= found.upper, "{pair:?}: {found:?} {grid:?}");
        }
    }
}

/// Where shares are divided does not matter: bounds for other splits of the same steps contain the same δ.
#[test]
fn the_split_changes_nothing_but_the_width() {
    let pair = Pair::remove(1.0 / 0.7, 1e-5);
    let steps = Steps::new(&pair, 100_000, 1e-9, AIM).unwrap();
    let at = 0.096;
    let mut bounds: Vec<(f64, f64)> = Vec::new();
    for room in [LIGHT, 0.0, -8.0, -FAINT - 0.5] {
        let terms = steps.terms_of(at, room, MOST).unwrap();
        let profile = Profile::new(&terms);
        bounds.push((profile.lower(at), profile.upper(at)));
    }
    for (lower, _) in &bounds {
        for (_, upper) in &bounds {
            assert!(lower <= upper, "{bounds:?}");
        }
    }
    assert!(bounds.iter().all(|(lower, upper)| upper - lower < 0.02 * upper), "{bounds:?}");
}

/// Random rare steps never contradict the grid, which shares nothing with them but the pairs.
#[test]
fn random_rare_steps_agree_with_the_grid() {
    let mut state = 88_172_645_463_325_252_u64;
    let mut uniform = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        f64::from(u32::try_from(state >> 32).unwrap()) / 4_294_967_296.0
    };
    let kinds: [fn(f64, f64) -> Pair; 4] = [Pair::remove, Pair::add, Pair::replace, Pair::symmetrised];
    let (mut narrow, mut compared) = (0, 0);
    for case in 0..32 {
        let (sigma, q, delta) =
            (10f64.powf(1.2 * uniform() - 0.5), 10f64.powf(-4.0 - 3.0 * uniform()), 10f64.powf(-2.0 - 10.0 * uniform()));
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "small positive numbers")]
        let steps = 10f64.powf(1.0 + 5.0 * uniform()) as u64;
        let pair = kinds[case % 4](1.0 / sigma, q);
        let Some(found) = epsilon(&pair, steps, delta) else { continue };
        narrow += u32::from(wide(found) < 1e-3);
        if let Some(grid) = Composition::new(vec![(pair.clone(), steps)]).epsilon(delta, GAP) {
            assert!(found.lower <= grid.upper && grid.lower <= found.upper, "{pair:?} {steps} {delta:e}: {found:?} {grid:?}");
            compared += 1;
        }
    }
    assert!(narrow >= 22 && compared >= 16, "{narrow} {compared}");
}

/// A plan answers with these bounds, and what it says of δ contains what it says of ε.
#[test]
fn plans_of_rare_steps_are_narrow() {
    for relation in [Neighbours::AddRemove, Neighbours::ReplaceOne] {
        let plan = Plan::of(relation, Phase::gaussian(0.7, Sampling::Poisson(1e-5), 100_000)).unwrap();
        let delta = Delta::new(1e-9).unwrap();
        let found = plan.epsilon(delta);
        assert!(wide(found) < 2e-4, "{found:?}");
        assert_eq!(plan.epsilon_upper(delta, GAP), found.upper);
        let back = plan.delta(Epsilon::new(found.estimate).unwrap());
        assert!(back.lower <= 1e-9 && back.upper >= 1e-9, "{back:?}");
    }
}
