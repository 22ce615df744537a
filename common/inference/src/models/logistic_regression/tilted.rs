//! Tilted moments of a logit: P(y | z) = σ(±z) under a Gaussian z.

use super::LogisticRegression;
use crate::capabilities::tilted::{Tilted, TiltedPredictor};

/// Reach of the trapezoid rule from the mode of the tilted density, in standard deviations of the predictor: the tilted density of a
/// log-concave likelihood is narrower.
const REACH: f64 = 9.0;
/// Largest step in z: σ has poles at ±iπ, so the error is about exp(−2π²/0.6) = 5e-15.
const LARGEST_STEP: f64 = 0.6;
/// Largest step in standard deviations: the weights' own decay gives exp(−2π²/0.25).
const LARGEST_UNIT_STEP: f64 = 0.5;
/// Widest predictor that is integrated; wider ones are clamped, so that no record can make a site cost more than a bounded time.
const WIDEST: f64 = 1e3;

impl TiltedPredictor for LogisticRegression {
    /// Trapezoid rule. With t = 1 − σ(yz), moments under the tilted density give α = y E t and
    /// β = E t(1 − t) − Var t: no difference of nearly equal numbers divided by a power of s.
    fn tilted(&self, mean: f64, variance: f64, target: f64) -> Tilted {
        let sign = if target > 0.5 { 1.0 } else { -1.0 };
        let a = sign * mean;
        let s = variance.max(0.0).sqrt().min(WIDEST);
        // ln of the integrand up to the Gaussian's constant, and t.
        let at = |z: f64| {
            let e = (-z.abs()).exp();
            let t = if z > 0.0 { e / (1.0 + e) } else { 1.0 / (1.0 + e) };
            (z.min(0.0) - e.ln_1p(), t)
        };
        if s < 1e-8 {
            let (log, t) = at(a);
            return Tilted { log_normaliser: log, slope: sign * t, curvature: t * (1.0 - t) };
        }
        let mode = logistic_mode(a, s * s);
        let step = (LARGEST_UNIT_STEP * s).min(LARGEST_STEP);
        let height = |z: f64, log: f64| log - 0.5 * ((z - a) / s).powi(2);
        let top = height(mode, at(mode).0);
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "at most 9·1000/0.6")]
        let nodes = (REACH * s / step).ceil() as u32;
        let (mut total, mut first, mut second) = (0.0, 0.0, 0.0);
        for k in 0..=2 * nodes {
            let z = mode + step * (f64::from(k) - f64::from(nodes));
            let (log, t) = at(z);
            let weight = (height(z, log) - top).exp();
            total += weight;
            first += weight * t;
            second += weight * t * t;
        }
        let (t, square) = (first / total, second / total);
        Tilted {
            log_normaliser: top + (total * step / s).ln() - 0.5 * std::f64::consts::TAU.ln(),
            slope: sign * t,
            curvature: (t - 2.0 * square + t * t).max(0.0),
        }
    }
}

/// The mode of σ(z) N(z; a, v): z = a + v(1 − σ(z)), between a and a + v. Newton's method on a concave function, kept inside the bracket.
fn logistic_mode(a: f64, v: f64) -> f64 {
    let (mut low, mut high) = (a, a + v);
    let mut z = a;
    // A rough mode is enough: it only centres the nodes. Each step at least halves the bracket.
    for _ in 0..60 {
        let t = 1.0 / (1.0 + z.exp());
        let slope = a + v * t - z;
        if slope > 0.0 {
            low = z
        } else {
            high = z
        }
        let newton = z + slope / (1.0 + v * t * (1.0 - t));
        let next = if newton > low && newton < high { newton } else { 0.5 * (low + high) };
        let still = (next - z).abs() <= 1e-3 * v.sqrt();
        z = next;
        if still {
            break;
        }
    }
    z
}
