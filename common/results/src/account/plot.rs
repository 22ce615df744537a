//! δ(ε), the trade-off curve and ε over rounds, as one SVG.

use std::path::Path;

use dp_pvi_accounting::Plan;
use dp_pvi_accounting::unit::Delta;
use plotters::prelude::*;

/// The drawing failed.
#[derive(Debug, thiserror::Error)]
#[error("cannot draw: {0}")]
pub struct PlotError(String);

pub(super) fn failed(error: impl std::fmt::Display) -> PlotError {
    PlotError(error.to_string())
}

/// Draws to `file`. `rounds`: ε after each round (x from 1); none: no picture of it.
///
/// # Errors
/// The file cannot be written.
pub(super) fn plot(file: &Path, plan: &Plan, delta: Delta, rounds: &[(f64, f64)]) -> Result<(), PlotError> {
    let end = Some(plan.epsilon_estimate(delta)).filter(|end| end.is_finite()).unwrap_or(1.0).max(1e-3) * 1.6;
    let curve: Vec<(f64, f64)> = (0..=60)
        .map(|i| {
            let epsilon = end * f64::from(i) / 60.0;
            (epsilon, plan.delta_estimate(epsilon).max(1e-15).log10())
        })
        .collect();
    let trade_off = plan.trade_off(60);
    let root = SVGBackend::new(file, (1500, 480)).into_drawing_area();
    root.fill(&WHITE).map_err(failed)?;
    let mut lines = vec![
        ("log10 delta(epsilon)", "epsilon", curve),
        ("trade-off: false negatives over false positives", "false positive rate", trade_off),
    ];
    if !rounds.is_empty() {
        lines.push(("epsilon over rounds", "round", rounds.to_vec()));
    }
    let areas = root.split_evenly((1, lines.len()));
    for (area, (title, x, points)) in areas.iter().zip(lines) {
        let span = |f: fn(&(f64, f64)) -> f64| {
            let low = points.iter().map(f).fold(f64::INFINITY, f64::min);
            let high = points.iter().map(f).fold(f64::NEG_INFINITY, f64::max);
            if low < high { low..high } else { 0.0..1.0 }
        };
        let mut chart = ChartBuilder::on(area)
            .margin(12)
            .caption(title, ("sans-serif", 18))
            .x_label_area_size(36)
            .y_label_area_size(52)
            .build_cartesian_2d(span(|p| p.0), span(|p| p.1))
            .map_err(failed)?;
        chart.configure_mesh().x_desc(x).draw().map_err(failed)?;
        chart.draw_series(LineSeries::new(points, &BLUE)).map_err(failed)?;
    }
    root.present().map_err(failed)
}
