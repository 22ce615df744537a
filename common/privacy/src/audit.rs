//! What a mechanism leaks at least, found by attacking it: a lower bound to hold beside the accountant's upper bound.
//!
//! The real release function runs many times in two neighbouring data sets (a canary of the largest norm, and its opposite). A number is
//! computed from what each run released, the *score*, and a threshold on it accuses one of the neighbours. Clopper & Pearson's (1934) exact
//! intervals bound the test's two rates with a stated confidence, and the rates bound the mechanism:
//!
//! * (ε, δ): a test with false-alarm rate ≤ p and power ≥ q refutes every ε below ln((q − δ)/p) (Kairouz, Oh & Viswanath 2015);
//! * μ: it refutes Gaussian differential privacy with every μ below Φ⁻¹(q) − Φ⁻¹(p) (Nasr et al. 2023).
//!
//! Score and threshold must be chosen before the runs that are counted are looked at. Two ways are here: where the law of what is released is known,
//! its likelihood ratio is the best score and the threshold in the middle needs no data ([`Test::between`]); else both are fitted on one half of
//! the runs and counted on the other ([`lower_bound`]).
//!
//! A bound above what is claimed is a fault of the mechanism, of its state or of its accounting. A bound below it shows nothing.
//!
//! Everything here is a function of numbers that were released, so it needs no permit.

use dp_pvi_accounting::Gdp;
use dp_pvi_accounting::unit::{Delta, Epsilon};

/// What an attack shows.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Audited {
    /// The mechanism is not (ε, δ)-differentially private for any smaller ε.
    pub epsilon: Epsilon,
    /// It is not μ-Gaussian differentially private for any smaller μ.
    pub mu: f64,
    /// ε at the given δ of a Gaussian mechanism with this μ: the bound to compare where μ-GDP is claimed.
    pub gaussian_epsilon: Epsilon,
    /// Runs of each data set that the bounds rest on.
    pub runs: usize,
}

/// Why nothing can be said.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("an audit needs at least 20 runs of each data set, all of one length, with finite numbers")]
pub struct TooLittle;

/// Lower bounds from the releases of two neighbouring data sets, one vector for every run: both hold together with probability at least
/// `1 − error` over the runs. A linear score is fitted on one half of the runs, and its thresholds are chosen there.
///
/// # Errors
/// Too few runs, runs of different lengths, numbers that are not finite.
pub fn lower_bound(first: &[Vec<f64>], second: &[Vec<f64>], delta: Delta, error: ErrorRate) -> Result<Audited, TooLittle> {
    let (train_first, test_first) = first.split_at(first.len() / 2);
    let (train_second, test_second) = second.split_at(second.len() / 2);
    let weights = direction(train_first, train_second)?;
    direction(test_first, test_second)?;
    let score = |runs: &[Vec<f64>]| Scores::new(runs.iter().map(|run| project(run, &weights)).collect());
    let train = [score(train_first), score(train_second)];
    let test = [score(test_first), score(test_second)];
    // One threshold for each of the two bounds, each with half of the error.
    let each = ErrorRate(error.0 / 2.0);
    let best = |figure: &dyn Fn(Rates) -> f64| {
        let chosen = Test::best(&train, 200, each, figure);
        chosen.map_or(0.0, |chosen| figure(chosen.rates(&test, each)))
    };
    let (epsilon, mu) = (best(&|rates| rates.epsilon(delta.get())), best(&|rates| rates.mu()));
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

    /// This much divided by a number of comparisons, so that all of them are right together (Bonferroni).
    #[must_use]
    #[allow(clippy::cast_precision_loss, reason = "a number of comparisons")]
    pub fn shared_by(self, comparisons: usize) -> Self {
        Self(self.0 / comparisons.max(1) as f64)
    }
}

/// Scores of the runs of one data set, ascending.
#[derive(Debug, Clone, PartialEq)]
pub struct Scores(Vec<f64>);

impl Scores {
    /// Sorts them. What is not a number counts as the smallest.
    #[must_use]
    pub fn new(mut scores: Vec<f64>) -> Self {
        scores.iter_mut().filter(|score| score.is_nan()).for_each(|score| *score = f64::NEG_INFINITY);
        scores.sort_unstable_by(f64::total_cmp);
        Self(scores)
    }

    /// How many lie above.
    fn above(&self, threshold: f64) -> usize {
        self.0.len() - self.0.partition_point(|score| *score <= threshold)
    }
}

/// Bounds on the two rates of a test.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Rates {
    /// It accuses the wrong data set at most so often.
    pub false_alarm: f64,
    /// It accuses the right one at least so often.
    pub power: f64,
}

impl Rates {
    /// The smallest ε at this δ that the rates do not refute; at least 0.
    #[must_use]
    pub fn epsilon(self, delta: f64) -> f64 {
        // NaN where the power is below δ: nothing is refuted. `max` gives the other operand.
        ((self.power - delta) / self.false_alarm).ln().max(0.0)
    }

    /// The smallest μ that the rates do not refute; at least 0.
    #[must_use]
    pub fn mu(self) -> f64 {
        (normal_quantile(self.power) - normal_quantile(self.false_alarm)).max(0.0)
    }

    /// By how much the power is above what (ε, δ) allows at this false-alarm rate: (ε, δ) is refuted where it is positive.
    #[must_use]
    pub fn excess(self, epsilon: f64, delta: f64) -> f64 {
        self.power - epsilon.exp() * self.false_alarm - delta
    }
}

/// A test: which data set is accused on which side of a score.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Test {
    at: f64,
    accuse: Accuse,
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Accuse {
    /// The first, above the threshold.
    First,
    /// The second, at or below it.
    Second,
}

impl Test {
    /// Accuses the first data set above this score: for a threshold that no data has chosen.
    #[must_use]
    pub fn between(at: f64) -> Self {
        Self { at, accuse: Accuse::First }
    }

    /// Bounds on its rates, from the scores of the first and of the second data set: both hold together with probability at least `1 − error`.
    #[must_use]
    pub fn rates(&self, [first, second]: &[Scores; 2], error: ErrorRate) -> Rates {
        let each = error.0 / 2.0;
        let (of_alarms, alarms, of_hits, hits) = match self.accuse {
            Accuse::First => (second.0.len(), second.above(self.at), first.0.len(), first.above(self.at)),
            Accuse::Second => (first.0.len(), first.0.len() - first.above(self.at), second.0.len(), second.0.len() - second.above(self.at)),
        };
        Rates { false_alarm: 1.0 - rate_below(of_alarms - alarms, of_alarms, each), power: rate_below(hits, of_hits, each) }
    }

    /// The smallest μ that its errors in both neighbours, counted together, do not refute with probability at least `1 − error`; at least 0.
    ///
    /// Under μ-Gaussian differential privacy the error rates α and β of any test have β ≥ Φ(Φ⁻¹(1 − α) − μ), so their mean is at least Φ(−μ/2), the value at
    /// α = β (Dong, Roth & Su 2022). As many runs of one data set as of the other have a number of errors that is the sum of independent
    /// coins of two rates, and no further from its mean than a binomial number with their mean rate (Hoeffding 1956): Clopper and Pearson's bound
    /// holds for the mean. One count of twice the runs is tighter than two counts, each with half the error. Neighbours with
    /// different numbers of runs, and errors above 1/4, for which this is not true, give 0.
    #[must_use]
    pub fn mu_of_errors(&self, scores: &[Scores; 2], error: ErrorRate) -> f64 {
        let [first, second] = scores;
        let runs = first.0.len();
        if second.0.len() != runs || error.0 > 0.25 {
            return 0.0;
        }
        // Above the threshold the first data set is meant, whichever of the two is accused.
        let right = first.above(self.at) + runs - second.above(self.at);
        let mean_error = 1.0 - rate_below(right, 2 * runs, error.0);
        (-2.0 * normal_quantile(mean_error)).max(0.0)
    }

    /// The test with the largest figure among those whose thresholds are the quantiles of these scores, in so many steps.
    #[must_use]
    pub fn best(scores: &[Scores; 2], steps: usize, error: ErrorRate, figure: &dyn Fn(Rates) -> f64) -> Option<Self> {
        let thresholds = scores.iter().filter(|scores| !scores.0.is_empty()).flat_map(|scores| {
            let quantile = move |step| scores.0[step * scores.0.len() / steps];
            (1..steps).map(quantile)
        });
        let mut best: Option<(f64, Self)> = None;
        for at in thresholds {
            for accuse in [Accuse::First, Accuse::Second] {
                let test = Self { at, accuse };
                let value = figure(test.rates(scores, error));
                if best.is_none_or(|(before, _)| value > before) {
                    best = Some((value, test));
                }
            }
        }
        best.map(|(_, test)| test)
    }
}

/// A linear score.
#[must_use]
pub fn project(run: &[f64], weights: &[f64]) -> f64 {
    run.iter().zip(weights).map(|(x, w)| x * w).sum()
}

/// Fisher's direction, the weights of a linear score: pooled covariance⁻¹ (mean of the first − mean of the second).
///
/// # Errors
/// Too few runs, runs of different lengths, numbers that are not finite.
pub fn direction(first: &[Vec<f64>], second: &[Vec<f64>]) -> Result<Vec<f64>, TooLittle> {
    let length = first.first().map_or(0, Vec::len);
    let usable = |runs: &[Vec<f64>]| runs.len() >= 10 && runs.iter().all(|run| run.len() == length && run.iter().all(|x| x.is_finite()));
    if length == 0 || !usable(first) || !usable(second) {
        return Err(TooLittle);
    }
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
    let difference: Vec<f64> = means[0].iter().zip(&means[1]).map(|(a, b)| a - b).collect();
    // In units of each coordinate's own spread, so that what is tiny counts as much as what is large.
    let unit = |j: usize| (covariance[j][j] + difference[j] * difference[j]).sqrt();
    let units: Vec<f64> = (0..length).map(|j| if unit(j) > 0.0 { unit(j) } else { 1.0 }).collect();
    for i in 0..length {
        (0..=i).for_each(|j| covariance[i][j] /= units[i] * units[j]);
        covariance[i][i] += 1e-9;
    }
    let solved = solve(covariance, difference.iter().zip(&units).map(|(x, unit)| x / unit).collect());
    Ok(solved.iter().zip(&units).map(|(x, unit)| x / unit).collect())
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
    let tail = Tail::new(hits.min(runs), runs);
    let (mut low, mut high) = (0.0, 1.0);
    for _ in 0..60 {
        let middle = 0.5 * (low + high);
        if tail.at(middle) <= error { low = middle } else { high = middle }
    }
    low
}

/// P[Bin(runs, p) ≥ hits] as a function of p, for hits ≥ 1.
struct Tail {
    hits: f64,
    runs: f64,
    /// ln of the number of ways to have `hits`, and `hits − 1`, successes.
    ways: [f64; 2],
}

impl Tail {
    fn new(hits: usize, runs: usize) -> Self {
        let (k, n) = (hits as f64, runs as f64);
        let ways = |k: f64| libm::lgamma(n + 1.0) - libm::lgamma(k + 1.0) - libm::lgamma(n - k + 1.0);
        Self { hits: k, runs: n, ways: [ways(k), ways(k - 1.0)] }
    }

    fn at(&self, p: f64) -> f64 {
        if p <= 0.0 {
            return 0.0;
        }
        if p >= 1.0 {
            return 1.0;
        }
        let (n, odds) = (self.runs, p / (1.0 - p));
        let mass = |k: f64, ways: f64| (ways + k * p.ln() + (n - k) * (-p).ln_1p()).exp();
        // Terms fall on both sides of the mean, each by a known ratio to the one before: the sum of the smaller tail is accurate, and stops where
        // nothing changes any more.
        let sum = |mut k: f64, mut term: f64, ratio: &dyn Fn(f64) -> f64, step: f64| {
            let mut total = 0.0;
            while total + term > total {
                total += term;
                term *= ratio(k);
                k += step;
            }
            total
        };
        if self.hits > n * p {
            sum(self.hits, mass(self.hits, self.ways[0]), &|k| (n - k) / (k + 1.0) * odds, 1.0).min(1.0)
        } else {
            let below = self.hits - 1.0;
            (1.0 - sum(below, mass(below, self.ways[1]), &|k| k / (n - k + 1.0) / odds, -1.0)).max(0.0)
        }
    }
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

    /// The sums by ratios against sums of masses, each by itself.
    #[test]
    fn binomial_tails_are_sums_of_masses() {
        for (hits, runs, p) in
            [(1, 1, 0.3_f64), (3, 10, 0.1), (3, 10, 0.6), (10, 10, 0.7), (180, 300, 0.5), (180, 300, 0.7), (4_700, 5_000, 0.93)]
        {
            let n = f64::from(runs);
            let mass = |k: i32| {
                let k = f64::from(k);
                (libm::lgamma(n + 1.0) - libm::lgamma(k + 1.0) - libm::lgamma(n - k + 1.0) + k * p.ln() + (n - k) * (1.0 - p).ln()).exp()
            };
            let expected: f64 = (hits..=runs).map(mass).sum();
            let found = Tail::new(hits as usize, runs as usize).at(p);
            assert!((found - expected).abs() < 1e-10 * expected.max(1e-3), "{hits} of {runs}: {found} {expected}");
        }
    }

    #[test]
    fn errors_counted_together_bound_mu_from_below_and_tighter() {
        let (mu, error) = (2.0, ErrorRate::new(1e-4).unwrap());
        let scores = |offset: f64, step: f64| Scores::new(normals(5_000, offset, step).concat());
        let neighbours = [scores(0.5 * mu, 0.618_033_988_749_895), scores(-0.5 * mu, 0.754_877_666_246_693)];
        let test = Test::between(0.0);
        let (together, apart) = (test.mu_of_errors(&neighbours, error), test.rates(&neighbours, error).mu());
        // Four standard deviations of a rate of Φ(−1) over 10,000 runs: 0.12 in μ.
        assert!(together < mu - 0.08 && together > mu - 0.14 && apart < together - 0.03, "{together} {apart}");
        // Exactly the limit of Clopper and Pearson: no error in 2n runs leaves 1 − error^{1/2n}.
        let clear = [Scores::new(vec![1.0; 50]), Scores::new(vec![-1.0; 50])];
        let rate = 1.0 - 1e-4f64.powf(0.01);
        assert!((test.mu_of_errors(&clear, error) + 2.0 * normal_quantile(rate)).abs() < 1e-9);
        // The wrong way round, and neighbours that cannot be pooled: nothing.
        assert_eq!(test.mu_of_errors(&[clear[1].clone(), clear[0].clone()], error), 0.0);
        assert_eq!(test.mu_of_errors(&[clear[0].clone(), Scores::new(vec![-1.0; 49])], error), 0.0);
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
        // The same data set twice: nothing.
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
        let data_set = |shift: f64| -> Vec<Vec<f64>> {
            wide.iter().zip(&narrow).map(|(a, b)| vec![10.0 * a[0], shift + 0.1 * b[0] - 10.0 * a[0]]).collect()
        };
        let found = lower_bound(&data_set(0.2), &data_set(0.0), Delta::new(1e-5).unwrap(), ErrorRate::new(0.05).unwrap()).unwrap();
        assert!(found.mu > 1.7 && found.mu <= 2.1, "{found:?}");
    }
}
