//! δ(ε), the trade-off curve and ε over rounds, as one SVG.

use dp_pvi_accounting::Plan;
use dp_pvi_accounting::unit::Delta;

use crate::picture::{Chart, Picture, Scale, Series};

/// The drawing. `rounds`: ε after each round (x from 1); none: no picture of it.
pub(super) fn plot(plan: &Plan, delta: Delta, rounds: &[(f64, f64)]) -> String {
    let end = Some(plan.epsilon_estimate(delta)).filter(|end| end.is_finite()).unwrap_or(1.0).max(1e-3) * 1.6;
    let curve: Vec<(f64, f64)> = (0..=60)
        .map(|i| {
            let epsilon = end * f64::from(i) / 60.0;
            (epsilon, plan.delta_estimate(epsilon).max(1e-15).log10())
        })
        .collect();
    let trade_off = plan.trade_off(60);
    let mut lines = vec![
        ("log10 delta(epsilon)", "epsilon", curve),
        ("trade-off: false negatives over false positives", "false positive rate", trade_off),
    ];
    if !rounds.is_empty() {
        lines.push(("epsilon over rounds", "round", rounds.to_vec()));
    }
    let mut picture = Picture::new(1500.0, 480.0);
    #[allow(clippy::cast_precision_loss, reason = "two or three")]
    let width = 1500.0 / lines.len() as f64;
    let mut left = 0.0;
    for (title, label, points) in lines {
        let series = vec![Series { points, ..Series::default() }];
        picture.chart((left, 0.0, width, 480.0), &Chart { title, x: Scale { label, ..Scale::default() }, series, ..Chart::default() });
        left += width;
    }
    picture.to_svg()
}
