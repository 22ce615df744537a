//! Means, standard deviations and standardised differences from noised pairs (Σx, Σ2(x² − ¼)) and a noised count.

use crate::intervals::{Interval, Level, Ratio, ratio};

/// A noised pair of sums and its count.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Sums {
    /// S1, the sum of x = (v − middle)/(upper − lower).
    pub first: f64,
    /// S2, the sum of 2(x² − ¼).
    pub second: f64,
    /// Standard deviation of the noise of each.
    pub sd: f64,
    /// N, the number of records that have a value, estimated from tables.
    pub count: f64,
    /// Its variance; independent of the sums'.
    pub count_variance: f64,
}

/// Mean and variance of x, in units of the range.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Coded {
    /// m = S1/N.
    mean: f64,
    /// e2 = S2/(2N) + ¼.
    square: f64,
    /// v = (e2 − m²)⁺.
    variance: f64,
}

impl Sums {
    fn coded(&self) -> Coded {
        let (mean, square) = (self.first / self.count, self.second / (2.0 * self.count) + 0.25);
        Coded { mean, square, variance: (square - mean * mean).max(0.0) }
    }

    /// ∂v/∂N·N = 2m² − (e2 − ¼).
    fn by_count(&self) -> f64 {
        let Coded { mean, square, .. } = self.coded();
        2.0 * mean * mean - (square - 0.25)
    }

    /// Variance of am + bv by noise: gradients of m and v in (S1, S2, N) are (1, 0, −m)/N and (−2m, ½, 2m² − (e2 − ¼))/N.
    fn noise(&self, a: f64, b: f64) -> f64 {
        let mean = self.coded().mean;
        let (first, second, count) = (a - 2.0 * mean * b, 0.5 * b, -a * mean + b * self.by_count());
        ((first * first + second * second) * self.sd * self.sd + count * count * self.count_variance) / (self.count * self.count)
    }

    /// Whether N is known so badly that nothing can be said of a spread: N² ≤ 16 Var N.
    fn is_vague(&self) -> bool {
        self.count <= 0.0 || self.count * self.count <= 16.0 * self.count_variance
    }
}

/// A number's mean and spread, in the column's units.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Spread {
    /// Mean.
    pub mean: f64,
    /// Its standard deviation by noise.
    pub mean_sd: f64,
    /// The same with sampling.
    pub mean_sd_population: f64,
    /// Variance.
    pub variance: f64,
    /// Its standard deviation by noise.
    pub variance_sd: f64,
    /// The same with sampling.
    pub variance_sd_population: f64,
    /// Interval of the mean of these records (Fieller).
    pub mean_interval: Interval,
    /// Of the population's.
    pub mean_interval_population: Interval,
    /// Interval of the standard deviation of these records.
    pub sd_interval: Interval,
    /// Of the population's.
    pub sd_interval_population: Interval,
}

impl Spread {
    /// Of sums of a number with this range. κ is the kurtosis of the shown histogram, at least 1; 3 where there is none. It is for the population's variance alone: (κ − 1)v²/N.
    #[must_use]
    pub fn of(sums: &Sums, range: Interval, kurtosis: f64, level: Level) -> Self {
        let (width, middle) = (range.upper - range.lower, 0.5 * (range.lower + range.upper));
        let Coded { mean, variance, .. } = sums.coded();
        let count = sums.count;
        let (of_mean, of_variance) = (sums.noise(1.0, 0.0), sums.noise(0.0, 1.0));
        let sampled = |by_noise: f64, by_sampling: f64| (by_noise + by_sampling.max(0.0)).sqrt();
        let of_variance_population = sampled(of_variance, (kurtosis.max(1.0) - 1.0) * variance * variance / count);
        let in_units = |interval: Interval| Interval { lower: middle + width * interval.lower, upper: middle + width * interval.upper };
        let fieller = |extra: f64| {
            let of = Ratio { sum: sums.first, sum_variance: sums.sd * sums.sd, count, count_variance: sums.count_variance, extra };
            let whole = Interval { lower: -0.5, upper: 0.5 };
            in_units(if count > 0.0 { ratio(of, whole, level) } else { whole })
        };
        let spread = |sd: f64| {
            // No spread is above half of the range.
            let root = |v: f64| width * v.clamp(0.0, 0.25).sqrt();
            if sums.is_vague() {
                return Interval { lower: 0.0, upper: 0.5 * width };
            }
            Interval { lower: root(variance - level.z() * sd), upper: root(variance + level.z() * sd) }
        };
        Self {
            mean: middle + width * mean,
            mean_sd: width * of_mean.sqrt(),
            mean_sd_population: width * sampled(of_mean, variance / count),
            variance: width * width * variance,
            variance_sd: width * width * of_variance.sqrt(),
            variance_sd_population: width * width * of_variance_population,
            mean_interval: fieller(0.0),
            mean_interval_population: fieller((count * variance).max(0.0)),
            sd_interval: spread(of_variance.sqrt()),
            sd_interval_population: spread(of_variance_population),
        }
    }
}

/// Standardised difference of the means of two groups.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Difference {
    /// d = (m₁ − m₀)/s, s² = (v₀ + v₁)/2.
    pub estimate: f64,
    /// Its standard deviation by noise.
    pub sd: f64,
    /// The same with sampling.
    pub sd_population: f64,
}

impl Difference {
    /// By the delta method in sums and counts of both groups: ∂d/∂m = ±1/s, ∂d/∂v = −d/(4s²). Sampling adds v/N for a mean and (κ − 1)v²/N, κ = 3, for a variance.
    ///
    /// Nothing where a count or the variance of both is not above 0.
    #[must_use]
    pub fn of([first, second]: &[Sums; 2]) -> Option<Self> {
        let spread = (0.5 * (first.coded().variance + second.coded().variance)).sqrt();
        if !(first.count > 0.0 && second.count > 0.0 && spread > 0.0) {
            return None;
        }
        let estimate = (second.coded().mean - first.coded().mean) / spread;
        let by_variance = -estimate / (4.0 * spread * spread);
        let noise = first.noise(-1.0 / spread, by_variance) + second.noise(1.0 / spread, by_variance);
        let sampling = |sums: &Sums| {
            let variance = sums.coded().variance;
            (variance / (spread * spread) + by_variance * by_variance * 2.0 * variance * variance) / sums.count
        };
        Some(Self { estimate, sd: noise.sqrt(), sd_population: (noise + sampling(first) + sampling(second)).sqrt() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SUMS: Sums = Sums { first: -17.0, second: -90.0, sd: 3.0, count: 250.0, count_variance: 30.0 };

    /// The variances of mean and variance are those of their numerical derivatives.
    #[test]
    fn variances_follow_from_derivatives() {
        let step = 1e-5;
        let moved = |k: usize, by: f64| match k {
            0 => Sums { first: SUMS.first + by, ..SUMS },
            1 => Sums { second: SUMS.second + by, ..SUMS },
            _ => Sums { count: SUMS.count + by, ..SUMS },
        };
        let variances = [SUMS.sd * SUMS.sd, SUMS.sd * SUMS.sd, SUMS.count_variance];
        for (a, b) in [(1.0, 0.0), (0.0, 1.0), (0.7, -2.0)] {
            let value = |sums: Sums| a * sums.coded().mean + b * sums.coded().variance;
            let expected: f64 =
                (0..3).map(|k| ((value(moved(k, step)) - value(moved(k, -step))) / (2.0 * step)).powi(2) * variances[k]).sum();
            assert!((SUMS.noise(a, b) / expected - 1.0).abs() < 1e-6);
        }
    }

    #[test]
    fn with_a_vague_count_the_whole_range_is_the_interval() {
        let vague = Sums { count: 20.0, count_variance: 100.0, ..SUMS };
        let range = Interval { lower: 10.0, upper: 30.0 };
        let spread = Spread::of(&vague, range, 3.0, Level::NINETY_FIVE);
        assert_eq!(spread.sd_interval, Interval { lower: 0.0, upper: 10.0 });
        let none = Spread::of(&Sums { count: -3.0, ..vague }, range, 3.0, Level::NINETY_FIVE);
        assert_eq!((none.mean_interval, none.sd_interval_population), (range, Interval { lower: 0.0, upper: 10.0 }));
        assert_eq!(Difference::of(&[SUMS, Sums { count: -3.0, ..vague }]), None);
    }
}
