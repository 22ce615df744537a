//! Posterior summaries: what a person reads about a coefficient.

use dp_pvi_math::expfam::any::Standard;
use serde::{Deserialize, Serialize};

use dp_pvi_models::prediction::{Interval, Level};

/// Marginal posterior of one coefficient.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Coefficient {
    /// Name, from the schema.
    pub name: String,
    /// Posterior mean.
    pub mean: f64,
    /// Posterior standard deviation.
    pub sd: f64,
    /// Central 90 % interval.
    pub interval_90: Interval,
    /// Central 95 % interval.
    pub interval_95: Interval,
}

impl Coefficient {
    /// Whether two summaries say the same up to the rounding of different machines.
    #[must_use]
    pub fn agrees(&self, other: &Self) -> bool {
        let numbers = |c: &Self| [c.mean, c.sd, c.interval_90.lower, c.interval_90.upper, c.interval_95.lower, c.interval_95.upper];
        let tolerance = 1e-9 * (self.mean.abs() + self.sd);
        self.name == other.name && numbers(self).iter().zip(numbers(other)).all(|(a, b)| (a - b).abs() <= tolerance)
    }
}

/// Marginals of all coefficients; names and coordinates are in the same order.
#[must_use]
pub fn coefficients(names: &[String], posterior: &Standard) -> Vec<Coefficient> {
    let marginal = |((name, &mean), variance): ((&String, &f64), f64)| {
        let sd = variance.sqrt();
        Coefficient { name: name.clone(), mean, sd, interval_90: Level::P90.interval(mean, sd), interval_95: Level::P95.interval(mean, sd) }
    };
    names.iter().zip(posterior.mean()).zip(posterior.variances()).map(marginal).collect()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::{Level, coefficients};
    use dp_pvi_math::expfam::any::{Family, Gaussian};

    #[test]
    fn levels_are_quantiles_of_the_normal_distribution() {
        for (level, content) in [(Level::P90, 0.90), (Level::P95, 0.95)] {
            let inside = 1.0 - libm::erfc(level.half_width() * std::f64::consts::FRAC_1_SQRT_2);
            assert!((inside - content).abs() < 1e-15, "{inside}");
        }
    }

    #[test]
    fn coefficients_carry_names_and_marginals() {
        let q = Gaussian::from_natural(Family::DiagonalGaussian { dimension: 2 }, vec![2.0, -1.0, 4.0, 1.0]).unwrap();
        let list = coefficients(&["age".into(), "intercept".into()], q.standard());
        assert_eq!(list[0].name, "age");
        assert!((list[0].mean - 0.5).abs() < 1e-15 && (list[0].sd - 0.5).abs() < 1e-15);
        assert!((list[1].interval_95.lower + 1.0 + Level::P95.half_width()).abs() < 1e-15);
        let mut other = list[0].clone();
        other.sd *= 1.0 + 1e-12;
        assert!(list[0].agrees(&other) && !list[0].agrees(&list[1]));
        other.interval_90.upper += 1e-6;
        assert!(!list[0].agrees(&other));
    }
}
