//! The ranked probability score of a count: Σ_k (P(y ≤ k) − 1[y ≤ k])², which is 0 for a certain prediction that is right, and lower is better.
//!
//! **Source**: Czado, Gneiting and Held 2009, *Predictive model assessment for count data*.

use crate::expfam::special::ln_gamma;

use super::negative_binomial::log_constant;

/// Standard deviations of z beyond which less than 10⁻⁸ of its mass lies.
const WIDEST: f64 = 5.75;
/// A law that reaches above this many is not summed term by term.
const MOST: f64 = 20_000.0;
/// Standard deviations of a count beside its mean that are summed.
const FAR: f64 = 12.0;
/// What is left of the mass where the sum ends.
const REST: f64 = 1e-10;

/// The score of `count` under y of mean e^z and variance e^z + e^2z/φ, z ~ N(mean, variance); φ = ∞ is Poisson. Its error is below 1e-6 of it. Absent where the law
/// reaches above 20,000, as before a run, and for parameters that are not finite.
#[must_use]
pub fn ranked_probability_score(count: f64, dispersion: f64, mean: f64, variance: f64) -> Option<f64> {
    if !(mean.is_finite() && variance.is_finite() && (0.0..=MOST).contains(&count)) {
        return None;
    }
    let mut nodes = nodes(dispersion, mean, variance.max(0.0).sqrt());
    if nodes.iter().any(|node| node.last > MOST) {
        return None;
    }
    let last = nodes.iter().map(|node| node.last).fold(count, f64::max);
    let (mut score, mut below, mut k) = (0.0, 0.0, 0.0);
    while k <= last && (k < count || below < 1.0 - REST) {
        below += nodes.iter_mut().map(|node| node.weight * node.mass(k, dispersion)).sum::<f64>();
        score += (below.min(1.0) - if count <= k { 1.0 } else { 0.0 }).powi(2);
        k += 1.0;
    }
    Some(score)
}

/// One value of z.
struct Node {
    weight: f64,
    rate: f64,
    /// The masses of counts below and above are taken for 0.
    first: f64,
    last: f64,
    /// P(y = k | z) of the count that was asked last.
    mass: f64,
}

/// The trapezoid rule over z, with steps that follow the width of the count's own law.
fn nodes(dispersion: f64, mean: f64, sd: f64) -> Vec<Node> {
    let node = |u: f64| {
        let rate = (mean + sd * u).min(700.0).exp();
        let spread = FAR * (rate + rate * rate / dispersion).sqrt();
        // The right tail of a law that spreads widely falls as slowly as (m/(m + φ))^k.
        let tail = if dispersion.is_finite() { 30.0 * (1.0 + rate / dispersion) } else { 30.0 };
        Node { weight: (-0.5 * u * u).exp(), rate, first: (rate - spread).max(0.0).floor(), last: rate + spread + tail, mass: 0.0 }
    };
    if sd <= 1e-8 {
        return vec![node(0.0)];
    }
    // Where counts are large the law is narrow in z.
    let width = ((-mean - 3.0 * sd).exp().min(1.0) + 1.0 / dispersion).sqrt();
    let step = (0.5 * width / sd).clamp(0.02, 0.5);
    let steps = (WIDEST / step).ceil();
    let mut nodes = Vec::new();
    let mut u = -steps;
    while u <= steps {
        nodes.push(node(u * step));
        u += 1.0;
    }
    let total: f64 = nodes.iter().map(|node| node.weight).sum();
    nodes.iter_mut().for_each(|node| node.weight /= total);
    nodes
}

impl Node {
    /// P(y = k | z), for k = 0, 1, 2, … in turn.
    fn mass(&mut self, k: f64, dispersion: f64) -> f64 {
        if k < self.first || k > self.last {
            return 0.0;
        }
        self.mass = if k > self.first {
            let next = if dispersion.is_infinite() { self.rate } else { (k - 1.0 + dispersion) * self.rate / (self.rate + dispersion) };
            self.mass * next / k
        } else if dispersion.is_infinite() {
            (k * self.rate.ln() - self.rate - ln_gamma(k + 1.0)).exp()
        } else {
            let log_ratio = (self.rate / dispersion).ln_1p();
            (log_constant(k, dispersion) + k * (self.rate / dispersion).ln() - (k + dispersion) * log_ratio).exp()
        };
        self.mass
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::ranked_probability_score;
    use crate::count::negative_binomial;

    /// Term by term, with the distribution.
    fn by_terms(count: f64, dispersion: f64, mean: f64, variance: f64) -> f64 {
        (0..4000)
            .map(f64::from)
            .map(|k| (negative_binomial::distribution(k, dispersion, mean, variance) - f64::from(u8::from(count <= k))).powi(2))
            .sum()
    }

    #[test]
    fn the_score_is_that_of_all_terms() {
        let laws: [(f64, f64, f64); 7] = [
            (f64::INFINITY, 0.5, 0.3),
            (f64::INFINITY, 3.0, 0.0),
            (f64::INFINITY, 4.5, 0.02),
            (1.7, 0.5, 0.3),
            (0.4, -1.0, 0.5),
            (40.0, 4.0, 0.1),
            (3.0, 2.0, 0.0),
        ];
        for (dispersion, mean, variance) in laws {
            for count in [0.0, 1.0, 4.0, 60.0] {
                let (found, expected) =
                    (ranked_probability_score(count, dispersion, mean, variance).unwrap(), by_terms(count, dispersion, mean, variance));
                assert!((found - expected).abs() < 1e-6 * (1.0 + expected), "{dispersion} {mean} {variance} {count}: {found} {expected}");
            }
        }
    }

    /// Geometric with p = ½: P(y ≤ k) = 1 − 2^−(k+1), and Σ 4^−(k+1) = 1/3 of the terms from the count on.
    #[test]
    fn a_geometric_law_has_the_score_of_its_series() {
        assert!((ranked_probability_score(0.0, 1.0, 0.0, 0.0).unwrap() - 1.0 / 3.0).abs() < 1e-9);
        // P(y ≤ 0)² = ¼ in the place of the first term ¼.
        assert!((ranked_probability_score(1.0, 1.0, 0.0, 0.0).unwrap() - 1.0 / 3.0).abs() < 1e-9);
        // And P(y ≤ 1)² = 9/16 in the place of 1/16.
        assert!((ranked_probability_score(2.0, 1.0, 0.0, 0.0).unwrap() - 1.0 / 3.0 - 0.5).abs() < 1e-9);
    }

    #[test]
    fn a_large_law_is_summed_and_one_that_reaches_too_far_has_no_score() {
        let rate = 9_000_f64;
        // A normal law's score at its mean is sd (√2 − 1)/√π.
        let expected = rate.sqrt() * (2_f64.sqrt() - 1.0) / std::f64::consts::PI.sqrt();
        let found = ranked_probability_score(rate, f64::INFINITY, rate.ln(), 0.0).unwrap();
        assert!((found / expected - 1.0).abs() < 1e-2, "{found} {expected}");
        assert_eq!(ranked_probability_score(1.0, f64::INFINITY, 0.0, 25.0), None);
        assert_eq!(ranked_probability_score(1.0, 2.0, f64::NAN, 1.0), None);
        assert_eq!(ranked_probability_score(3e4, 2.0, 0.0, 0.0), None);
    }
}
