//! Cumulant generating function K(s) = ln E_P[e^{sL}; L < ∞] of one step, by Gauss panels.

use super::pair::{Map, Pair, Segment};
use super::quadrature::GAUSS_16;

/// Panels whose integrand is this many nats below the largest are left out: e^−70 times the number of panels is below rounding.
const NEGLIGIBLE: f64 = 70.0;
/// Width of the range of outcomes over which the high end fades out.
const FADE: f64 = 3.0;
/// No more panels than this; beyond, the nodes are only an estimate (the certificate does not use them).
const MOST_PANELS: usize = 60_000;

/// Quadrature nodes that serve every order of a range.
#[derive(Debug, Clone)]
pub(crate) struct Nodes {
    /// (loss, ln weight, weight); the weights sum to P(L < ∞).
    nodes: Vec<(f64, f64, f64)>,
    orders: (f64, f64),
}

/// K(s), K′(s), K″(s).
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Cumulants {
    pub(crate) value: f64,
    pub(crate) mean: f64,
    pub(crate) variance: f64,
}

impl Nodes {
    /// `nats`: outcomes beyond mass e^−nats are left out (a far mode that no window contains would only disturb the tilt). At the high end,
    /// where the tilted law may still have weight, they fade out: a cut would make the transform decay slowly.
    pub(crate) fn new(pair: &Pair, orders: (f64, f64), nats: (f64, f64)) -> Self {
        Self::build(pair, orders, nats, 1.0).0
    }

    /// As [`Nodes::new`] with panels scaled by `scale`. `None`: the panels that are allowed do not cover the outcomes.
    pub(crate) fn with_panels(pair: &Pair, orders: (f64, f64), nats: (f64, f64), scale: f64) -> Option<Self> {
        let (nodes, complete) = Self::build(pair, orders, nats, scale);
        complete.then_some(nodes)
    }

    fn build(pair: &Pair, orders: (f64, f64), nats: (f64, f64), scale: f64) -> (Self, bool) {
        let mut complete = true;
        let mut nodes: Vec<_> =
            pair.atoms_within(nats).0.iter().filter(|(_, mass)| *mass > 0.0).map(|&(loss, mass)| (loss, mass.ln(), mass)).collect();
        let probes: Vec<f64> = [0.0, 1.0, 0.25, 0.5, 0.75].iter().map(|f| orders.0 + f * (orders.1 - orders.0)).chain([0.0]).collect();
        for segment in &pair.segments {
            let fade = pair.reach(segment, nats.1).1 + 0.5 * FADE;
            let fades = fade < segment.high - FADE;
            let at = |y: f64| {
                let (loss, log_density) = pair.at(segment.map, y);
                let share = if fades { 0.5 * libm::erfc((y - fade) * (6.0 / FADE)) } else { 1.0 };
                (loss, log_density + share.ln())
            };
            let (panels, all) = panels(pair, segment, orders, nats, if fades { FADE } else { 0.0 }, scale);
            complete &= all;
            let exponents = |y: f64| {
                let (loss, log_density) = at(y);
                probes.iter().map(move |s| log_density + s * loss).collect::<Vec<_>>()
            };
            let middles: Vec<_> = panels.windows(2).map(|e| exponents(0.5 * (e[0] + e[1]))).collect();
            let best: Vec<_> = (0..probes.len()).map(|i| middles.iter().map(|v| v[i]).fold(f64::NEG_INFINITY, f64::max)).collect();
            for (edges, values) in panels.windows(2).zip(&middles) {
                if values.iter().zip(&best).all(|(v, b)| *v < b - NEGLIGIBLE) {
                    continue;
                }
                let (middle, half) = (0.5 * (edges[0] + edges[1]), 0.5 * (edges[1] - edges[0]));
                for &(x, w) in &GAUSS_16.points {
                    let (loss, log_density) = at(middle + half * x);
                    let log_weight = log_density + (half * w).ln();
                    if log_weight > f64::NEG_INFINITY {
                        nodes.push((loss, log_weight, log_weight.exp()));
                    }
                }
            }
        }
        (Self { nodes, orders }, complete)
    }

    /// Whether the nodes resolve this order.
    pub(crate) fn covers(&self, order: f64) -> bool {
        order >= self.orders.0 && order <= self.orders.1
    }

    /// K at one order.
    pub(crate) fn value(&self, order: f64) -> f64 {
        let largest = self.nodes.iter().map(|(loss, ..)| order * loss).fold(f64::NEG_INFINITY, f64::max);
        if largest < 600.0 {
            let excess: f64 = self.nodes.iter().map(|&(loss, _, weight)| weight * (order * loss).exp_m1()).sum();
            return excess.ln_1p();
        }
        let top = self.nodes.iter().map(|&(loss, log_weight, _)| log_weight + order * loss).fold(f64::NEG_INFINITY, f64::max);
        top + self.nodes.iter().map(|&(loss, log_weight, _)| (log_weight + order * loss - top).exp()).sum::<f64>().ln()
    }

    pub(crate) fn cumulants(&self, order: f64) -> Cumulants {
        let top = self.nodes.iter().map(|&(loss, log_weight, _)| log_weight + order * loss).fold(f64::NEG_INFINITY, f64::max);
        if !top.is_finite() {
            return Cumulants { value: top, mean: 0.0, variance: 0.0 };
        }
        let (mut sum, mut first) = (0.0, 0.0);
        let mut excess = 0.0;
        for &(loss, log_weight, weight) in &self.nodes {
            let tilted = (log_weight + order * loss - top).exp();
            sum += tilted;
            first += tilted * loss;
            excess += weight * (order * loss).min(700.0).exp_m1();
        }
        let mean = first / sum;
        let second: f64 =
            self.nodes.iter().map(|&(loss, log_weight, _)| (log_weight + order * loss - top).exp() * (loss - mean) * (loss - mean)).sum();
        // Near 1 the moment is distinguished from 1 by the sum of expm1.
        let value = if excess.abs() < 0.5 { excess.ln_1p() } else { top + sum.ln() };
        Cumulants { value, mean, variance: second / sum }
    }

    /// (loss, e^{order·loss}·weight/M(order)), without those below 1e-22.
    pub(crate) fn tilted(&self, order: f64) -> Vec<(f64, f64)> {
        let top = self.nodes.iter().map(|&(loss, log_weight, _)| log_weight + order * loss).fold(f64::NEG_INFINITY, f64::max);
        let sum: f64 = self.nodes.iter().map(|&(loss, log_weight, _)| (log_weight + order * loss - top).exp()).sum();
        self.nodes
            .iter()
            .map(|&(loss, log_weight, _)| (loss, (log_weight + order * loss - top).exp() / sum))
            .filter(|(_, weight)| *weight > 1e-22)
            .collect()
    }
}

/// Edges of panels that are narrow where ℓ bends, and whether they are all.
fn panels(pair: &Pair, segment: &Segment, orders: (f64, f64), nats: (f64, f64), fade: f64, scale: f64) -> (Vec<f64>, bool) {
    let ratio = pair.ratio;
    let (low, high) = (pair.reach(segment, nats.0).0, pair.reach(segment, nats.1).1 + fade);
    if low >= high {
        return (Vec::new(), true);
    }
    let bends: Vec<f64> = match (segment.map, pair.bend()) {
        (Map::Laplace, _) | (_, None) => Vec::new(),
        (Map::Remove, Some(y)) => vec![y],
        (Map::Add, Some(y)) => vec![-y],
        (Map::Replace, Some(y)) => vec![y, -y],
    };
    let order = orders.0.abs().max(orders.1.abs());
    let narrow = (1.5 / (ratio * (1.0 + order / 8.0).sqrt())).min(0.5);
    let widest = ((high - low) / 20_000.0).max(0.5);
    let width = |y: f64| {
        let distance = bends.iter().map(|bend| (y - bend).abs()).fold(f64::INFINITY, f64::min);
        scale * (distance / 4.0).clamp(narrow, widest)
    };
    let mut edges = vec![low];
    let mut y = low;
    while y < high && edges.len() < MOST_PANELS {
        let step = width(y);
        // Not across a bend with the wide step before it.
        y = (y + step.min(width(y + step).max(0.3 * step))).min(high);
        edges.push(y);
    }
    (edges, y >= high)
}
