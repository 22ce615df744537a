//! Intervals of counts, shares and ratios, and the delta method.

use dp_pvi_math::normal;
use nalgebra::DMatrix;

/// An interval, ends included.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Interval {
    /// Lower end.
    pub lower: f64,
    /// Upper end.
    pub upper: f64,
}

impl Interval {
    /// Whether a count with this interval is shown by its upper end alone ("at most"): nothing is suppressed for being small.
    #[must_use]
    pub fn is_at_most(self) -> bool {
        self.lower <= 0.0
    }
}

/// Probability with which an interval covers: above 0 and below 1.
#[derive(Debug, Clone, Copy, PartialEq, PartialOrd)]
pub struct Level(f64);

impl Level {
    /// 95 %.
    pub const NINETY_FIVE: Self = Self(0.95);

    /// Checks the value.
    #[must_use]
    pub fn new(level: f64) -> Option<Self> {
        (level > 0.0 && level < 1.0).then_some(Self(level))
    }

    /// The plain number.
    #[must_use]
    pub fn get(self) -> f64 {
        self.0
    }

    /// z = Φ⁻¹(½ + level/2).
    #[must_use]
    pub fn z(self) -> f64 {
        normal::quantile(0.5 + 0.5 * self.0)
    }

    /// The level of each of m intervals that hold together at this one: level^(1/m) (Šidák 1967, for any correlation of normal variables).
    #[must_use]
    pub fn of_each(self, many: usize) -> Self {
        #[allow(clippy::cast_precision_loss, reason = "a number of intervals")]
        let each = self.0.powf(1.0 / many.max(1) as f64);
        Self(each)
    }
}

/// Of a count of these records among n, known to ± `sd`: [(c − z·sd)⁺, min(n, c + z·sd)] with c the estimate brought into [0, n]. It contains the usual interval cut to [0, n] wherever that
/// is not empty, and is never empty.
#[must_use]
pub fn count(estimate: f64, sd: f64, n: f64, level: Level) -> Interval {
    let n = n.max(0.0);
    let (centre, half) = (estimate.clamp(0.0, n), level.z() * sd);
    Interval { lower: (centre - half).max(0.0), upper: (centre + half).min(n) }
}

/// Of the share of the population of which n records are a sample: the roots of (1 + c)π² − (2p + c)π + p² − z²(sd/n)², c = z²/n, p the estimated share cut to [0, 1]. Wilson's interval
/// (1927) with the noise's variance beside the binomial one.
#[must_use]
pub fn share(estimate: f64, sd: f64, n: f64, level: Level) -> Interval {
    let (p, z) = ((estimate / n).clamp(0.0, 1.0), level.z());
    let (c, noise) = (z * z / n, (z * sd / n).powi(2));
    let (a, half) = (1.0 + c, 0.5 * (2.0 * p + c));
    // ¼(2p + c)² − (1 + c)(p² − noise), without a difference of near numbers.
    let root = (c * (p * (1.0 - p) + 0.25 * c) + a * noise).max(0.0).sqrt();
    Interval { lower: ((half - root) / a).max(0.0), upper: ((half + root) / a).min(1.0) }
}

/// A noised sum over a noised count: what [`ratio`] is about.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Ratio {
    /// S.
    pub sum: f64,
    /// Its variance.
    pub sum_variance: f64,
    /// c.
    pub count: f64,
    /// Its variance; independent of the sum's.
    pub count_variance: f64,
    /// A further variance of the sum, as of sampling.
    pub extra: f64,
}

/// {t : (S − tc)² ≤ z²(σ_S² + t²σ_c² + extra)} within a range (Fieller 1954); the whole range where the set has no bound. It covers whatever c is: an interval that is given
/// only where a noised count is large does not.
#[must_use]
pub fn ratio(of: Ratio, range: Interval, level: Level) -> Interval {
    let Ratio { sum, sum_variance, count, count_variance, extra } = of;
    let squared = level.z().powi(2);
    let (a, b, c) = (count * count - squared * count_variance, sum * count, sum * sum - squared * (sum_variance + extra));
    let discriminant = b * b - a * c;
    // With a > 0 the set is between two roots: t = S/c is in it. Else it has no bound.
    if !(a > 0.0 && discriminant >= 0.0) {
        return range;
    }
    let root = discriminant.sqrt();
    let cut = |t: f64| t.clamp(range.lower, range.upper);
    Interval { lower: cut((b - root) / a), upper: cut((b + root) / a) }
}

/// Variances of a smooth function of cells with this gradient: by noise gᵀSg, and by sampling Σxg² − (Σxg)²/N at the shown cells x, N their sum (the delta method; the second is that of a
/// multinomial).
///
/// # Panics
/// Lengths that differ.
#[must_use]
pub fn delta(cells: &[f64], gradient: &[f64], covariance: &DMatrix<f64>) -> [f64; 2] {
    assert!(cells.len() == gradient.len() && covariance.nrows() == cells.len(), "one entry for each cell");
    let total: f64 = cells.iter().sum();
    let moment = |power: i32| cells.iter().zip(gradient).map(|(x, g)| x * g.powi(power)).sum::<f64>();
    let sampling = if total > 0.0 { moment(2) - moment(1).powi(2) / total } else { 0.0 };
    [quadratic(gradient, covariance), sampling.max(0.0)]
}

/// gᵀSg.
pub(crate) fn quadratic(gradient: &[f64], covariance: &DMatrix<f64>) -> f64 {
    let along = |i: usize| gradient.iter().enumerate().map(|(j, g)| covariance[(i, j)] * g).sum::<f64>();
    gradient.iter().enumerate().map(|(i, g)| g * along(i)).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The interval of a count holds the usual one cut to [0, n] wherever that is not empty, and is never empty.
    #[test]
    fn a_count_s_interval_covers_at_least_what_the_usual_one_covers() {
        for estimate in [-500.0, -30.0, -9.0, 0.0, 3.0, 50.0, 97.0, 130.0, 900.0] {
            for sd in [0.1, 5.0, 40.0] {
                let found = count(estimate, sd, 100.0, Level::NINETY_FIVE);
                let half = Level::NINETY_FIVE.z() * sd;
                let (low, high) = ((estimate - half).max(0.0), (estimate + half).min(100.0));
                assert!(found.lower <= found.upper && found.lower >= 0.0 && found.upper <= 100.0);
                assert!(low > high || (found.lower <= low && found.upper >= high), "{estimate} {sd}");
            }
        }
    }

    #[test]
    fn without_noise_a_share_has_wilson_s_interval() {
        let (p, n, z) = (0.3f64, 50.0f64, Level::NINETY_FIVE.z());
        let centre = (p + z * z / (2.0 * n)) / (1.0 + z * z / n);
        let half = z / (1.0 + z * z / n) * (p * (1.0 - p) / n + z * z / (4.0 * n * n)).sqrt();
        let found = share(15.0, 0.0, 50.0, Level::NINETY_FIVE);
        assert!((found.lower - centre + half).abs() < 1e-14 && (found.upper - centre - half).abs() < 1e-14);
        assert!(share(15.0, 4.0, 50.0, Level::NINETY_FIVE).lower < found.lower);
    }

    #[test]
    fn simultaneous_levels_multiply() {
        let each = Level::NINETY_FIVE.of_each(5).get();
        assert!((each.powi(5) - 0.95).abs() < 1e-14);
        assert!(Level::new(1.0).is_none() && Level::new(0.0).is_none() && Level::new(f64::NAN).is_none());
    }
}
