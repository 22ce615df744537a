//! What an attacker can do: trade-off curve, true positive rates, and groups.

use super::plan::Plan;
use crate::unit::{Delta, Epsilon};

/// Roundings of 1 − δ − e^ε·α, and of 1 less that: no term is above 1 where the whole is not negative.
const ROUNDED: f64 = 5.0 * f64::EPSILON;

impl Plan {
    /// The estimate of δ(ε) alone; not certified.
    #[must_use]
    pub fn delta_estimate(&self, epsilon: f64) -> f64 {
        self.estimate_of_delta(epsilon)
    }

    /// Lower bound on the false negative rate at a false positive rate that one (ε, δ) pair implies (Wasserman & Zhou 2010).
    fn implied(epsilon: f64, delta: f64, rate: f64) -> f64 {
        let steep = 1.0 - delta - epsilon.min(700.0).exp() * rate;
        let flat = (-epsilon).exp() * (1.0 - delta - rate);
        steep.max(flat).max(0.0)
    }

    /// Where the profile has fallen: ε at the smallest of these δ at which it is finite.
    fn end(&self) -> f64 {
        let epsilons = [1e-12, 1e-9, 1e-6, 1e-3, 0.1].into_iter().filter_map(|delta| Some(self.epsilon_estimate(Delta::new(delta).ok()?)));
        epsilons.into_iter().find(|epsilon| epsilon.is_finite()).unwrap_or(1.0).max(1e-6)
    }

    /// Points of the profile, where a search over it takes long.
    fn known_points(&self) -> Option<&[(f64, f64)]> {
        self.points(|| {
            let end = self.end();
            (0..=48u32).map(|i| end * (f64::from(i) / 48.0).powi(2)).collect()
        })
    }

    /// ε whose pair (ε, δ(ε)) says most about this false positive rate, by the estimate.
    fn telling(&self, rate: f64) -> (f64, f64) {
        let at = |epsilon: f64| Self::implied(epsilon, self.delta_estimate(epsilon), rate);
        let end = self.end();
        let grid: Vec<(f64, f64)> = (0..=24u32).map(|i| end * (f64::from(i) / 24.0).powi(2)).map(|e| (e, at(e))).collect();
        let mut best = grid.iter().copied().fold((0.0, -1.0), |best, new| if new.1 > best.1 { new } else { best });
        let mut step = end / 16.0;
        for _ in 0..14 {
            for candidate in [best.0 - step, best.0 + step] {
                if candidate >= 0.0 {
                    let value = at(candidate);
                    if value > best.1 {
                        best = (candidate, value);
                    }
                }
            }
            step *= 0.5;
        }
        best
    }

    /// Certified upper bound on the true positive rate of any attack with this false positive rate (in either direction of the relation).
    ///
    /// Every (ε, δ(ε)) bounds it; the estimate only chooses which one is certified. Where each estimate takes long, it is read from a table of certified
    /// points, made once: all of these are bounds, and the least of them counts ([`crate::proofs::transforms`], "Tables of δ(ε)").
    #[must_use]
    pub fn true_positive_rate(&self, false_positive_rate: f64) -> f64 {
        let rate = false_positive_rate.clamp(0.0, 1.0);
        let missed = match self.known_points() {
            Some(points) => Self::missed(points, rate),
            None => {
                let (epsilon, _) = self.telling(rate);
                let Ok(at) = Epsilon::new(epsilon) else { return 1.0 };
                Self::missed(&[(epsilon, self.delta(at).upper)], rate)
            }
        };
        (1.0 - missed).clamp(rate, 1.0)
    }

    /// Lower bound on the false negative rate of any attack with this false positive rate, from points (ε, upper bound of δ(ε)) that are known.
    #[must_use]
    pub fn missed(profile: &[(f64, f64)], false_positive_rate: f64) -> f64 {
        let rate = false_positive_rate.clamp(0.0, 1.0);
        (profile.iter().map(|&(epsilon, delta)| Self::implied(epsilon, delta, rate)).fold(0.0, f64::max) - ROUNDED).max(0.0)
    }

    /// (false positive rate, smallest false negative rate) at `points` + 1 places, estimated:
    /// f(α) = sup_ε max(0, 1 − δ(ε) − e^ε α, e^{−ε}(1 − δ(ε) − α)) (Dong, Roth & Su 2022).
    #[must_use]
    pub fn trade_off(&self, points: u32) -> Vec<(f64, f64)> {
        let end = self.end();
        let curve: Vec<(f64, f64)> = match self.known_points() {
            Some(points) => points.to_vec(),
            None => (0..=80u32).map(|i| end * (f64::from(i) / 80.0).powi(2)).map(|e| (e, self.delta_estimate(e))).collect(),
        };
        (0..=points.max(1))
            .map(|i| {
                let rate = f64::from(i) / f64::from(points.max(1));
                (rate, curve.iter().map(|&(epsilon, delta)| Self::implied(epsilon, delta, rate)).fold(0.0, f64::max))
            })
            .collect()
    }
}
