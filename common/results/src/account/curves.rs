//! ε(δ), δ(ε) and the trade-off curve as numbers: a table for spreadsheets and plots.

use std::fmt::Write;

use dp_pvi_accounting::unit::{Delta, Epsilon};
use dp_pvi_accounting::{Interval, Plan};

/// Distances between the points of a curve.
const POINTS: u32 = 40;
/// δ from 10^−14 to 0.1, in steps of 10^(1/3).
const DECADES: (f64, f64) = (-14.0, -1.0);

/// The curves as CSV: which one, where, and what it is there between its bounds.
///
/// `epsilon` is ε at δ = x and `delta` is δ at ε = x, for ε up to half as much again as at `at`. `false-negative-rate` is the smallest of any attack with a
/// false positive rate of x; its upper bound is that of an attack that guesses. An estimate that says nothing is left out.
pub(super) fn table(plan: &Plan, at: Delta) -> String {
    let mut text = "curve,x,lower,estimate,upper\n".to_owned();
    let mut row = |curve: &str, x: f64, Interval { lower, upper, .. }: Interval, estimate: Option<f64>| {
        let estimate = estimate.map_or_else(String::new, |estimate| format!("{estimate:?}"));
        // Writing to a string cannot fail.
        let _ = writeln!(text, "{curve},{x:?},{lower:?},{estimate},{upper:?}");
    };
    let (first, last) = DECADES;
    for i in 0..POINTS {
        let delta = 10f64.powf(first + (last - first) * f64::from(i) / f64::from(POINTS - 1));
        if let Ok(at) = Delta::new(delta) {
            let interval = plan.epsilon(at);
            row("epsilon", delta, interval, interval.known_estimate());
        }
    }
    let end = Some(plan.epsilon_estimate(at)).filter(|end| end.is_finite()).unwrap_or(1.0).max(1e-3) * 1.5;
    for i in 0..=POINTS {
        let epsilon = end * f64::from(i) / f64::from(POINTS);
        if let Ok(at) = Epsilon::new(epsilon) {
            let interval = plan.delta(at);
            row("delta", epsilon, interval, interval.known_estimate());
        }
    }
    for (rate, missed) in plan.trade_off(POINTS) {
        let least = 1.0 - plan.true_positive_rate(rate);
        let estimate = missed.max(least);
        row("false-negative-rate", rate, Interval { lower: least, estimate, upper: 1.0 - rate }, Some(estimate));
    }
    text
}

#[cfg(test)]
mod tests {
    use dp_pvi_accounting::{Neighbours, Phase, Sampling};

    use super::*;

    #[test]
    fn every_curve_lies_between_its_bounds_and_falls() {
        let plan = Plan::of(Neighbours::AddRemove, Phase::gaussian(1.0, Sampling::Poisson(0.02), 200)).unwrap_or_else(|e| panic!("{e}"));
        let text = table(&plan, Delta::new(1e-5).unwrap_or_else(|e| panic!("{e}")));
        for (curve, rows) in [("epsilon", 40), ("delta", 41), ("false-negative-rate", 41)] {
            let values = text.lines().filter_map(|line| line.strip_prefix(curve)?.strip_prefix(','));
            let values: Vec<Vec<f64>> = values.map(|line| line.split(',').map(|cell| cell.parse().unwrap_or(f64::NAN)).collect()).collect();
            assert_eq!(values.len(), rows, "{curve}");
            for (row, next) in values.iter().zip(values.iter().skip(1)) {
                assert!(row[1] <= row[2] && row[2] <= row[3], "{curve}: {row:?}");
                assert!(next[3] <= row[3] * (1.0 + 1e-3), "{curve}: {row:?} {next:?}");
            }
        }
    }
}
