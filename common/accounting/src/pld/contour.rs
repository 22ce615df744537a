//! The estimate: δ(ε) = 1/(2πi) ∫ M(s)^T e^{−sε}/(s(s+1)) ds along Re s = θ, by the trapezoidal rule.

use super::cgf::{Cumulants, Nodes};

/// Products of nodes in t and in y that an estimate may cost.
const WORK: usize = 5_000_000;

/// Values of the integrand without e^{−sε}.
#[derive(Debug, Clone)]
pub(crate) struct Contour {
    theta: f64,
    log_moment: f64,
    mean: f64,
    step: f64,
    /// (Re, Im) of M(s)^T e^{−(s−θ)·mean}/M(θ)^T/(s(s+1)).
    values: Vec<(f64, f64)>,
}

impl Contour {
    /// `reach`: length of losses beyond which the tilted law is negligible; `None` if the integrand decays too slowly.
    pub(crate) fn new(parts: &[(&Nodes, f64)], theta: f64, delta: f64, reach: f64, cumulants: Cumulants) -> Option<Self> {
        let period = ((-delta.ln()).max(0.0) + 34.0) / theta;
        let step = std::f64::consts::TAU / period.max(reach);
        let mut tilted: Vec<Tilted> = parts.iter().map(|(nodes, times)| Tilted::new(nodes, theta, *times, step)).collect();
        let size: usize = tilted.iter().map(|t| t.points.len()).sum();
        let mut values = Vec::new();
        let mean: f64 = tilted.iter().map(|t| t.mean * t.times).sum();
        let most = WORK / size.max(1);
        let mut small = 0;
        let mut scale = 0.0f64;
        for k in 0..most {
            #[allow(clippy::cast_precision_loss, reason = "a small count")]
            let t = step * k as f64;
            let (mut log, mut phase) = (0.0, 0.0);
            for part in &mut tilted {
                let (re, im) = part.advance(k);
                log += part.times * 0.5 * (re * re + im * im).ln();
                phase += part.times * im.atan2(re);
            }
            // 1/(s(s+1)) = ((θ² + θ − t²) − i t(2θ+1))/|s(s+1)|²
            let (a, b) = (theta * (theta + 1.0) - t * t, t * (2.0 * theta + 1.0));
            let square = a * a + b * b;
            let size = log.exp();
            let (cos, sin) = (phase.cos() * size, phase.sin() * size);
            values.push(((cos * a + sin * b) / square, (sin * a - cos * b) / square));
            let modulus = size / square.sqrt();
            scale += modulus;
            // What is left is at most the modulus times the number of nodes of its size.
            #[allow(clippy::cast_precision_loss, reason = "a small count")]
            let rest = modulus * (k as f64 + 1.0);
            small = if rest < 1e-13 * scale { small + 1 } else { 0 };
            if small >= 12 {
                return Some(Self { theta, log_moment: cumulants.value, mean, step, values });
            }
        }
        None
    }

    /// δ(ε).
    pub(crate) fn delta(&self, epsilon: f64) -> f64 {
        let turn = self.step * (self.mean - epsilon);
        let mut sum = 0.0;
        for (k, (re, im)) in self.values.iter().enumerate() {
            #[allow(clippy::cast_precision_loss, reason = "a small count")]
            let angle = turn * k as f64;
            let value = re * angle.cos() - im * angle.sin();
            sum += if k == 0 { 0.5 * value } else { value };
        }
        sum * self.step / std::f64::consts::PI * (self.log_moment - self.theta * epsilon).exp()
    }

    /// ε(δ) by safeguarded Newton on ln δ from a start; `None` where it does not converge.
    pub(crate) fn epsilon(&self, delta: f64, start: f64) -> Option<f64> {
        let mut epsilon = start.max(0.0);
        let target = delta.ln();
        let mut slope = -self.theta;
        let (mut last, mut value) = (f64::NAN, f64::NAN);
        for _ in 0..60 {
            let value_here = self.delta(epsilon);
            // Only where the way leads there: far below the saddle point the sum is rounding.
            if epsilon <= 0.0 && value_here <= delta {
                return Some(0.0);
            }
            let log = value_here.ln();
            if !log.is_finite() {
                return None;
            }
            if last.is_finite() && (epsilon - last).abs() > 1e-14 * epsilon {
                let secant = (log - value) / (epsilon - last);
                if secant < 0.25 * slope && secant > 4.0 * slope {
                    slope = secant;
                }
            }
            (last, value) = (epsilon, log);
            let next = (epsilon + (target - log) / slope).max(0.0);
            if (next - epsilon).abs() <= 2e-15 * epsilon.max(1e-3) {
                return Some(next);
            }
            epsilon = next;
        }
        ((value - target).abs() < 1e-9).then_some(epsilon)
    }
}

/// Nodes of one step under the tilted law, turning with t.
struct Tilted {
    points: Vec<(f64, f64)>,
    turn: Vec<(f64, f64)>,
    state: Vec<(f64, f64)>,
    times: f64,
    mean: f64,
    step: f64,
}

impl Tilted {
    fn new(nodes: &Nodes, theta: f64, times: f64, step: f64) -> Self {
        let mut points = nodes.tilted(theta);
        let mean: f64 = points.iter().map(|(loss, weight)| loss * weight).sum();
        for (loss, _) in &mut points {
            *loss -= mean;
        }
        let turn = points.iter().map(|(loss, _)| ((step * loss).cos(), (step * loss).sin())).collect();
        let state = points.iter().map(|(_, weight)| (*weight, 0.0)).collect();
        Self { points, turn, state, times, mean, step }
    }

    /// E[e^{it(L − mean)}] at t = k·step; k must count up.
    fn advance(&mut self, k: usize) -> (f64, f64) {
        if k > 0 && k.is_multiple_of(1024) {
            for (state, (loss, weight)) in self.state.iter_mut().zip(&self.points) {
                #[allow(clippy::cast_precision_loss, reason = "a small count")]
                let angle = self.step * k as f64 * loss;
                *state = (weight * angle.cos(), weight * angle.sin());
            }
        } else if k > 0 {
            for (state, turn) in self.state.iter_mut().zip(&self.turn) {
                *state = (state.0 * turn.0 - state.1 * turn.1, state.0 * turn.1 + state.1 * turn.0);
            }
        }
        self.state.iter().fold((0.0, 0.0), |sum, state| (sum.0 + state.0, sum.1 + state.1))
    }
}
