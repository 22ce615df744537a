//! What a mechanism leaks at least, found by attacking it: a lower bound to hold beside the accountant's upper bound.
//!
//! The real release function runs many times in two neighbouring worlds (a canary of the largest norm, and its opposite). A linear score is
//! fitted on one half of the runs; its threshold is fixed there, too. The other half gives error rates, and Clopper & Pearson's (1934)
//! exact intervals bounds on them that hold with the stated confidence:
//!
//! * (ε, δ): a test with false-alarm rate ≤ p and power ≥ q refutes every ε below ln((q − δ)/p) (Kairouz, Oh & Viswanath 2015);
//! * μ: it refutes Gaussian differential privacy with every μ below Φ⁻¹(q) − Φ⁻¹(p) (Nasr et al. 2023).
//!
//! A bound above what is claimed is a fault of the mechanism, of its state or of its accounting. A bound below it shows nothing:
//!
//! Everything here is a function of numbers that were released, so it needs no permit.

use crate::accountant::Gdp;
use crate::unit::{Delta, Epsilon};

/// What an attack shows.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Audited {
    /// The mechanism is not (ε, δ)-differentially private for any smaller ε.
    pub epsilon: Epsilon,
    /// It is not μ-Gaussian differentially private for any smaller μ.
    pub mu: f64,
    /// ε at the given δ of a Gaussian mechanism with this μ: the bound to compare where μ-GDP is claimed.
    pub gaussian_epsilon: Epsilon,
    /// Runs of each world that the bounds rest on.
    pub runs: usize,
}

/// Why nothing can be said.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("an audit needs at least 20 runs of each world, all of one length, with finite numbers")]
pub struct TooLittle;

/// Lower bounds from the releases of two neighbouring worlds, one vector for every run: both hold together with probability at least
/// `1 − error` over the runs.
///
/// # Errors
/// Too few runs, runs of different lengths, numbers that are not finite.
pub fn lower_bound(first: &[Vec<f64>], second: &[Vec<f64>], delta: Delta, error: ErrorRate) -> Result<Audited, TooLittle> {
    let length = first.first().map_or(0, Vec::len);
    let usable = |runs: &[Vec<f64>]| runs.len() >= 20 && runs.iter().all(|run| run.len() == length && run.iter().all(|x| x.is_finite()));
    if length == 0 || !usable(first) || !usable(second) {
        return Err(TooLittle);
    }
    let (train_first, test_first) = first.split_at(first.len() / 2);
    let (train_second, test_second) = second.split_at(second.len() / 2);
    let weights = direction(train_first, train_second);
    let score = |runs: &[Vec<f64>]| {
        let mut scores: Vec<f64> = runs.iter().map(|run| run.iter().zip(&weights).map(|(x, w)| x * w).sum()).collect();
        scores.sort_unstable_by(f64::total_cmp);
        scores
    };
    let (train_first, train_second) = (score(train_first), score(train_second));
    let (test_first, test_second) = (score(test_first), score(test_second));
    // One threshold for each of the two bounds, each with half of the error; a test has two rates.
    let each = error.0 / 4.0;
    let bounds = |threshold: &Threshold, first: &[f64], second: &[f64]| {
        let (alarms, hits) = match threshold.accuse {
            Accuse::First => (above(second, threshold.at), above(first, threshold.at)),
            Accuse::Second => (first.len() - above(first, threshold.at), second.len() - above(second, threshold.at)),
        };
        let (of_alarms, of_hits) = match threshold.accuse {
            Accuse::First => (second.len(), first.len()),
            Accuse::Second => (first.len(), second.len()),
        };
        let false_alarm = 1.0 - rate_below(of_alarms - alarms, of_alarms, each);
        let power = rate_below(hits, of_hits, each);
        let epsilon = ((power - delta.get()) / false_alarm).ln().max(0.0);
        let mu = (normal_quantile(power) - normal_quantile(false_alarm)).max(0.0);
        (if epsilon.is_nan() { 0.0 } else { epsilon }, if mu.is_nan() { 0.0 } else { mu })
    };
    let mut candidates = Vec::new();
    for quantile in 1..200 {
        for scores in [&train_first, &train_second] {
            let at = scores[quantile * scores.len() / 200];
            candidates.extend([Threshold { at, accuse: Accuse::First }, Threshold { at, accuse: Accuse::Second }]);
        }
    }
    let best = |figure: fn((f64, f64)) -> f64| {
        let value = |threshold: &Threshold| figure(bounds(threshold, &train_first, &train_second));
        let chosen = candidates.iter().max_by(|a, b| value(a).total_cmp(&value(b)));
        chosen.map_or(0.0, |threshold| figure(bounds(threshold, &test_first, &test_second)))
    };
    let (epsilon, mu) = (best(|(epsilon, _)| epsilon), best(|(_, mu)| mu));
    Ok(Audited {
        epsilon: Epsilon::new(epsilon).unwrap_or(Epsilon::ZERO),
        mu,
        gaussian_epsilon: Gdp::of_ratio(mu).epsilon_upper(delta),
        runs: test_first.len().min(test_second.len()),
    })
}

/// Probability that a bound is wrong: between 0 and 1, exclusively.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ErrorRate(f64);

impl ErrorRate {
    /// Checks the value.
    #[must_use]
    pub fn new(rate: f64) -> Option<Self> {
        (rate > 0.0 && rate < 1.0).then_some(Self(rate))
    }
}

/// A test: which world is accused on which side of a score.
struct Threshold {
    at: f64,
    accuse: Accuse,
}

enum Accuse {
    /// The first, above the threshold.
    First,
    /// The second, at or below it.
    Second,
}

/// How many of the sorted scores lie above.
fn above(sorted: &[f64], threshold: f64) -> usize {
    sorted.len() - sorted.partition_point(|score| *score <= threshold)
}

/// Fisher's direction: pooled covariance⁻¹ (mean of the first − mean of the second).
fn direction(first: &[Vec<f64>], second: &[Vec<f64>]) -> Vec<f64> {
    let length = first[0].len();
    let mean =
        |runs: &[Vec<f64>]| -> Vec<f64> { (0..length).map(|j| runs.iter().map(|run| run[j]).sum::<f64>() / runs.len() as f64).collect() };
    let means = [mean(first), mean(second)];
    let mut covariance = vec![vec![0.0; length]; length];
    for (runs, mean) in [(first, &means[0]), (second, &means[1])] {
        for run in runs {
            for i in 0..length {
                for j in 0..=i {
                    covariance[i][j] += (run[i] - mean[i]) * (run[j] - mean[j]);
                }
            }
        }
    }
    let ridge = 1e-9 * (0..length).map(|i| covariance[i][i]).fold(f64::MIN_POSITIVE, f64::max);
    (0..length).for_each(|i| covariance[i][i] += ridge);
    let difference: Vec<f64> = means[0].iter().zip(&means[1]).map(|(a, b)| a - b).collect();
    solve(covariance, difference)
}

/// Solves Ax = b by Cholesky's factorisation of the lower triangle of a positive definite A.
fn solve(mut a: Vec<Vec<f64>>, mut b: Vec<f64>) -> Vec<f64> {
    let n = b.len();
    for i in 0..n {
        for j in 0..=i {
            let known: f64 = (0..j).map(|k| a[i][k] * a[j][k]).sum();
            a[i][j] = if i == j { (a[i][i] - known).max(f64::MIN_POSITIVE).sqrt() } else { (a[i][j] - known) / a[j][j] };
        }
        let known: f64 = (0..i).map(|k| a[i][k] * b[k]).sum();
        b[i] = (b[i] - known) / a[i][i];
    }
    for i in (0..n).rev() {
        let known: f64 = (i + 1..n).map(|k| a[k][i] * b[k]).sum();
        b[i] = (b[i] - known) / a[i][i];
    }
    b
}

/// Clopper & Pearson: with probability at least 1 − `error`, a rate that gave `hits` of `runs` is not below this. The largest p with
/// P[Bin(runs, p) ≥ hits] ≤ error, rounded down.
#[must_use]
pub fn rate_below(hits: usize, runs: usize, error: f64) -> f64 {
    if hits == 0 {
        return 0.0;
    }
    let (mut low, mut high) = (0.0, 1.0);
    for _ in 0..60 {
        let middle = 0.5 * (low + high);
        if at_least(hits, runs, middle) <= error { low = middle } else { high = middle }
    }
    low
}

/// P[Bin(runs, p) ≥ hits], for hits ≥ 1.
fn at_least(hits: usize, runs: usize, p: f64) -> f64 {
    if p <= 0.0 {
        return 0.0;
    }
    if p >= 1.0 {
        return 1.0;
    }
    let n = runs as f64;
    let term = |k: usize| {
        let k = k as f64;
        (libm::lgamma(n + 1.0) - libm::lgamma(k + 1.0) - libm::lgamma(n - k + 1.0) + k * p.ln() + (n - k) * (-p).ln_1p()).exp()
    };
    // Terms fall on both sides of the mean: the sum of the smaller tail is accurate, and stops where nothing changes any more.
    let sum = |ks: &mut dyn Iterator<Item = usize>| {
        let mut total = 0.0;
        for k in ks {
            let next = total + term(k);
            if next <= total {
                break;
            }
            total = next;
        }
        total
    };
    if hits as f64 > n * p { sum(&mut (hits..=runs)).min(1.0) } else { (1.0 - sum(&mut (0..hits).rev())).max(0.0) }
}

/// Φ⁻¹.
fn normal_quantile(p: f64) -> f64 {
    if p <= 0.0 {
        return f64::NEG_INFINITY;
    }
    if p >= 1.0 {
        return f64::INFINITY;
    }
    let (mut low, mut high) = (-40.0, 40.0);
    for _ in 0..100 {
        let middle: f64 = 0.5 * (low + high);
        if 0.5 * libm::erfc(-middle / std::f64::consts::SQRT_2) < p { low = middle } else { high = middle }
    }
    0.5 * (low + high)
}

#[cfg(test)]
mod state;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clopper_pearson_has_the_known_limits() {
        // No hit says nothing; all hits: p^n = error.
        assert_eq!(rate_below(0, 100, 0.05), 0.0);
        assert!((rate_below(100, 100, 0.05) - 0.05f64.powf(0.01)).abs() < 1e-12);
        // Rates of one run in n: 1 − (1 − error)^{1/n}.
        assert!((rate_below(1, 50, 0.025) - (1.0 - 0.975f64.powf(0.02))).abs() < 1e-12);
        // The tables' 95 % interval of 10 of 100: (0.04900469, 0.17622260).
        assert!((rate_below(10, 100, 0.025) - 0.049_004_69).abs() < 1e-7);
        assert!((1.0 - rate_below(90, 100, 0.025) - 0.176_222_6).abs() < 1e-7);
        // Far tails of many runs.
        let far = rate_below(4_000, 100_000, 1e-6);
        assert!(far > 0.036 && far < 0.0372, "{far}");
    }

    #[test]
    fn quantiles_invert_the_normal_distribution() {
        for (p, x) in [(0.5, 0.0), (0.975, 1.959_963_984_540_054), (0.001, -3.090_232_306_167_813_5)] {
            assert!((normal_quantile(p) - x).abs() < 1e-9);
        }
    }

    /// Numbers that look independent: a fixed sequence through Φ⁻¹.
    fn normals(count: usize, offset: f64, step: f64) -> Vec<Vec<f64>> {
        (0..count).map(|i| vec![offset + normal_quantile(((i as f64 + 0.5) * step).fract())]).collect()
    }

    #[test]
    fn the_bounds_of_a_gaussian_are_below_the_truth_and_near_it() {
        let (delta, error) = (Delta::new(1e-5).unwrap(), ErrorRate::new(0.05).unwrap());
        let mu = 1.0;
        let truth = Gdp::of_ratio(mu).epsilon_upper(delta).get();
        let (first, second) = (normals(40_000, mu, 0.618_033_988_749_895), normals(40_000, 0.0, 0.754_877_666_246_693));
        let found = lower_bound(&first, &second, delta, error).unwrap();
        assert!(found.mu > 0.9 && found.mu < mu, "{found:?}");
        assert!(found.epsilon.get() > 1.5 && found.epsilon.get() < truth, "{found:?} {truth}");
        assert!(found.gaussian_epsilon.get() < truth && found.runs == 20_000);
        // The same world twice: nothing.
        let found = lower_bound(&first, &normals(40_000, mu, 0.754_877_666_246_693), delta, error).unwrap();
        assert!(found.mu < 0.05 && found.epsilon.get() < 0.1, "{found:?}");
        assert_eq!(lower_bound(&first[..10], &second, delta, error), Err(TooLittle));
        assert_eq!(lower_bound(&first, &vec![vec![f64::NAN]; 30], delta, error), Err(TooLittle));
    }

    #[test]
    fn the_direction_finds_a_difference_that_only_correlation_shows() {
        // x + y differs by 0.2 and has hardly any noise, while each alone has much.
        let wide = normals(4000, 0.0, 0.618_033_988_749_895);
        let narrow = normals(4000, 0.0, 0.754_877_666_246_693);
        let world = |shift: f64| -> Vec<Vec<f64>> {
            wide.iter().zip(&narrow).map(|(a, b)| vec![10.0 * a[0], shift + 0.1 * b[0] - 10.0 * a[0]]).collect()
        };
        let found = lower_bound(&world(0.2), &world(0.0), Delta::new(1e-5).unwrap(), ErrorRate::new(0.05).unwrap()).unwrap();
        assert!(found.mu > 1.7 && found.mu <= 2.1, "{found:?}");
    }
}
