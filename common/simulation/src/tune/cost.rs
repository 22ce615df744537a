//! What the choice of the best of a random number of private trials costs (Papernot and Steinke, "Hyperparameter Tuning with Renyi
//! Differential Privacy", 2022).
//!
//! With (α, D(α))-Rényi private trials and K of them, independent of the data, releasing the best is (α, D′(α))-Rényi private with
//!
//! * K logarithmic, P(K = k) ∝ (1−γ)^k/k (their Theorem 2 for the truncated negative binomial of shape 0):
//!   D′(α) = D(α) + (1 − 1/β)D(β) + ln(1/γ)/β + ln E[K]/(α − 1), for every β ≥ 1;
//! * K ~ Poisson(m) (their Theorem 6): D′(α) = D(α) + m δ̂ + ln m/(α − 1), for (ε̂, δ̂)-private trials with e^ε̂ ≤ 1 + 1/(α − 1).

use dp_pvi_accounting::Delta;
use dp_pvi_accounting::rdp::ORDERS;
use dp_pvi_accounting::{Charge, Curve};
use dp_pvi_posterior::task::ResolvedTask;

use super::TuneError;
use super::count::Trials;

/// Relative error of a few roundings, for what must not come out too small.
const ROUNDED_UP: f64 = 1.0 + 1e-12;

/// Divergences of the worst candidate at every order.
pub(super) fn worst(tasks: &[ResolvedTask]) -> Result<Vec<f64>, TuneError> {
    let mut worst = vec![0.0f64; ORDERS.len()];
    for task in tasks {
        let mut total = Curve::default();
        for (event, count) in task.visit_events(0..task.visits())? {
            let charge = Charge::of(&event, task.privacy.relation)?;
            let curve = charge.divergences().ok_or_else(|| TuneError::Config("a candidate is not protected".into()))?;
            total.add(&curve, count);
        }
        worst.iter_mut().zip(total.values()).for_each(|(worst, value)| *worst = worst.max(*value));
    }
    Ok(worst)
}

/// ε at δ of releasing the best of the trials, from their divergences at [`ORDERS`].
pub(super) fn epsilon(divergences: &[f64], trials: Trials, delta: Delta) -> f64 {
    // Discrete noise that is accounted as continuous is off by less than this share of δ.
    let delta = delta.get() / (1.0 + 1e-6);
    let at = |(order, divergence): (&f64, f64)| divergence + (1.0 - 1.0 / order).ln() - (delta * order).ln() / (order - 1.0);
    ORDERS.iter().zip(selected(divergences, trials)).map(at).fold(f64::INFINITY, f64::min).max(0.0)
}

/// D′ at [`ORDERS`].
fn selected(divergences: &[f64], trials: Trials) -> Vec<f64> {
    let curve = || ORDERS.iter().copied().zip(divergences.iter().copied());
    match trials {
        Trials::Logarithmic(gamma) => {
            let mean = trials.mean() * ROUNDED_UP;
            let cost = -gamma.get().ln() * ROUNDED_UP;
            let choice = curve().map(|(beta, value)| (1.0 - 1.0 / beta) * value + cost / beta).fold(f64::INFINITY, f64::min);
            curve().map(|(order, value)| value + choice + mean.ln() / (order - 1.0)).collect()
        }
        Trials::Poisson(mean) => {
            let mean = mean.get();
            let at =
                |(order, value): (f64, f64)| value + mean * failure(divergences, (1.0 / (order - 1.0)).ln_1p()) + mean.ln() / (order - 1.0);
            curve().map(at).collect()
        }
    }
}

/// The smallest δ̂ at ε̂ that the divergences prove: min over α of e^{(α−1)(D − ε̂)}(1 − 1/α)^{α−1}/α, at most 1.
fn failure(divergences: &[f64], epsilon: f64) -> f64 {
    let at = |(&order, &value): (&f64, &f64)| (order - 1.0) * (value - epsilon + (1.0 - 1.0 / order).ln()) - order.ln();
    ORDERS.iter().zip(divergences).map(at).fold(0.0, f64::min).exp()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::{ORDERS, Trials, epsilon, selected};
    use crate::experiment::TrialsKind;
    use dp_pvi_accounting::Delta;

    /// A trial with five outcomes, in the order of their scores.
    const P: [f64; 5] = [0.30, 0.25, 0.20, 0.15, 0.10];
    const Q: [f64; 5] = [0.22, 0.24, 0.21, 0.18, 0.15];

    fn divergence(p: &[f64], q: &[f64], order: f64) -> f64 {
        let logs: Vec<f64> = p.iter().zip(q).filter(|(p, _)| **p > 0.0).map(|(p, q)| order * p.ln() + (1.0 - order) * q.ln()).collect();
        let largest = logs.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        (largest + logs.iter().map(|log| (log - largest).exp()).sum::<f64>().ln()) / (order - 1.0)
    }

    /// The best of K: its cumulative distribution is the generating function of K at that of one trial.
    fn best(p: &[f64; 5], trials: Trials) -> Vec<f64> {
        let generate = |x: f64| match trials {
            Trials::Logarithmic(gamma) => (1.0 - (1.0 - gamma.get()) * x).ln() / gamma.get().ln(),
            Trials::Poisson(mean) => (mean.get() * (x - 1.0)).exp(),
        };
        let mut cumulative = 0.0;
        // With no trial there is one more outcome.
        let mut before = generate(0.0);
        let mut all = vec![before];
        for mass in p {
            cumulative += mass;
            let after = generate(cumulative);
            all.push(after - before);
            before = after;
        }
        all
    }

    /// On a mechanism whose selection can be written down, the stated divergence is above the true one at every order, and not by everything.
    #[test]
    fn the_cost_is_above_the_divergence_of_an_exact_selection() {
        let both = |order: f64, p: &[f64], q: &[f64]| divergence(p, q, order).max(divergence(q, p, order));
        let single: Vec<f64> = ORDERS.iter().map(|&order| both(order, &P, &Q)).collect();
        for kind in [TrialsKind::Logarithmic, TrialsKind::Poisson] {
            for mean in [1.0 + 1e-3, 3.0, 20.0] {
                let trials = Trials::new(kind, mean).unwrap();
                let (p, q) = (best(&P, trials), best(&Q, trials));
                assert!((p.iter().sum::<f64>() - 1.0).abs() < 1e-12);
                for (&order, stated) in ORDERS.iter().zip(selected(&single, trials)) {
                    let truth = both(order, &p, &q);
                    assert!(truth <= stated + 1e-12, "{kind:?} {mean} {order}: {truth} {stated}");
                }
                let delta = Delta::new(1e-5).unwrap();
                assert!(epsilon(&single, trials, delta) > epsilon(&single, Trials::new(kind, 1.0 + 1e-6).unwrap(), delta) - 1e-9);
            }
        }
    }
}
