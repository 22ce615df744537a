//! How many trials a selection makes: a number of exactly the law that the theorem is about.
//!
//! # Exactness
//! The theorems of [`super::cost`] are statements about one law of K. A number that is drawn through a quantile of 32 or 64 bits has another
//! law, at a distance that δ would have to pay. Here nothing is rounded: every decision is a comparison of a uniform integer with an
//! integer, the parameters γ and the mean are multiples of 2⁻³², and the cost is computed from those very numbers.
//!
//! * **Logarithmic**, P(K = k) = p^k/(k ln(1/γ)) with p = 1 − γ. Propose k with the geometric probability γ p^{k−1} (toss a coin of
//!   probability p until it fails), and keep it with probability 1/k. An attempt ends with k with probability γ p^{k−1}/k, which is P(K = k)
//!   times the constant γ ln(1/γ)/p; attempts are independent, so the first one that is kept has the law of K.
//! * **Poisson** with mean λ ≤ 1. Propose k with probability 2^{−k−1}, and keep it with probability λ^k 2^{k−1}/k!: the product of k coins
//!   of probability λ, and of one of probability 2/i for every i from 2 to k (for k = 0: of one of probability ½). An attempt ends with k with
//!   probability λ^k/(4 k!). A Poisson variable of mean m is the sum of ⌊m⌋ independent ones of mean 1 and one of mean m − ⌊m⌋.
//!
//! `tests` walks through all decisions of an attempt and adds their probabilities up.

use super::TuneError;
use crate::experiment::TrialsKind;
use dp_pvi_privacy::SecureNoise;
use rand_core::Rng;
use zeroize::Zeroizing;

/// Denominator of γ and of the fractional part of a mean.
const ONE: u64 = 1 << 32;

/// Most expected trials: up to here the probability that a Poisson number is 0 is a number that `f64` has.
pub(super) const MOST: f64 = 500.0;

/// A law of the number of trials.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Trials {
    /// P(K = k) ∝ (1−γ)^k/k, k ≥ 1.
    Logarithmic(Gamma),
    /// Poisson.
    Poisson(Mean),
}

/// γ, a multiple of 2⁻³² strictly between 0 and 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Gamma(u64);

/// A mean, a multiple of 2⁻³² between 1 and the most that is offered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Mean(u64);

/// Coins of rational probability.
pub(super) trait Coins {
    /// True with probability `numerator`/`denominator`, for 0 < `denominator` ≤ 2⁶³ and `numerator` ≤ `denominator`; independent of all others.
    fn toss(&mut self, numerator: u64, denominator: u64) -> bool;
}

/// Coins of the operating system's generator.
pub(super) struct SecureCoins<R>(R);

/// Coins from a fresh secure stream.
pub(super) fn secure() -> Result<SecureCoins<impl Rng>, TuneError> {
    Ok(SecureCoins(SecureNoise::fresh()?))
}

impl<R: Rng> SecureCoins<R> {
    /// Uniform in `0..bound`: words beyond the largest multiple of the bound are thrown away.
    pub(super) fn below(&mut self, bound: u64) -> u64 {
        let excess = (u64::MAX % bound + 1) % bound;
        loop {
            let word = self.0.next_u64();
            if word <= u64::MAX - excess {
                return word % bound;
            }
        }
    }

    /// What a key is made of.
    pub(super) fn key(&mut self) -> Zeroizing<[u8; 32]> {
        let mut key = Zeroizing::new([0; 32]);
        self.0.fill_bytes(key.as_mut_slice());
        key
    }

    /// A seed.
    pub(super) fn word(&mut self) -> u64 {
        self.0.next_u64()
    }
}

impl<R: Rng> Coins for SecureCoins<R> {
    fn toss(&mut self, numerator: u64, denominator: u64) -> bool {
        self.below(denominator) < numerator
    }
}

impl Trials {
    /// With this expectation, to the next representable parameter that expects no more; `None` if it is below 1, or absurd.
    #[must_use]
    pub fn new(kind: TrialsKind, mean: f64) -> Option<Self> {
        if !(1.0..=MOST).contains(&mean) {
            return None;
        }
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, clippy::cast_precision_loss, reason = "at most 500 · 2^32")]
        if kind == TrialsKind::Poisson {
            return Some(Self::Poisson(Mean((mean * ONE as f64) as u64)));
        }
        // E[K] falls with γ: the smallest γ that expects no more than asked for.
        let (mut lower, mut upper) = (0, ONE - 1);
        while upper - lower > 1 {
            let middle = u64::midpoint(lower, upper);
            if Gamma(middle).mean() > mean { lower = middle } else { upper = middle }
        }
        Some(Self::Logarithmic(Gamma(upper)))
    }

    /// E(K).
    #[must_use]
    pub fn mean(self) -> f64 {
        match self {
            Self::Logarithmic(gamma) => gamma.mean(),
            Self::Poisson(mean) => mean.get(),
        }
    }

    /// Draws K.
    pub(super) fn draw(self, coins: &mut impl Coins) -> u64 {
        match self {
            Self::Logarithmic(gamma) => until_kept(|| logarithmic(gamma, coins)),
            Self::Poisson(Mean(mean)) => {
                let whole: u64 = (0..mean / ONE).map(|_| until_kept(|| poisson(ONE, coins))).sum();
                whole + until_kept(|| poisson(mean % ONE, coins))
            }
        }
    }
}

impl Gamma {
    /// γ, exactly.
    #[must_use]
    #[allow(clippy::cast_precision_loss, reason = "below 2^32")]
    pub fn get(self) -> f64 {
        self.0 as f64 / ONE as f64
    }

    /// E[K] = (p/γ)/ln(1/γ) with p = 1 − γ, which is exact; to a few roundings.
    fn mean(self) -> f64 {
        let p = Self(ONE - self.0).get();
        p / self.get() / -(-p).ln_1p()
    }
}

impl Mean {
    /// The mean, exactly: at most 41 bits.
    #[must_use]
    #[allow(clippy::cast_precision_loss, reason = "below 2^41")]
    pub fn get(self) -> f64 {
        self.0 as f64 / ONE as f64
    }
}

fn until_kept(mut attempt: impl FnMut() -> Option<u64>) -> u64 {
    loop {
        if let Some(k) = attempt() {
            return k;
        }
    }
}

/// One attempt at a logarithmic number.
fn logarithmic(Gamma(gamma): Gamma, coins: &mut impl Coins) -> Option<u64> {
    let mut k = 1;
    while coins.toss(ONE - gamma, ONE) {
        k += 1;
    }
    coins.toss(1, k).then_some(k)
}

/// One attempt at a Poisson number of mean `mean`/2³² ≤ 1.
fn poisson(mean: u64, coins: &mut impl Coins) -> Option<u64> {
    let mut k = 0;
    while coins.toss(1, 2) {
        k += 1;
    }
    let kept = if k == 0 { coins.toss(1, 2) } else { (2..=k).all(|i| coins.toss(2, i)) && (0..k).all(|_| coins.toss(mean, ONE)) };
    kept.then_some(k)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::collections::BTreeMap;

    use super::*;

    /// Decides as told, then always "no"; remembers the probability of what it decided.
    struct Path {
        answers: Vec<bool>,
        taken: Vec<bool>,
        probability: f64,
    }

    impl Coins for Path {
        fn toss(&mut self, numerator: u64, denominator: u64) -> bool {
            let answer = self.answers.get(self.taken.len()).copied().unwrap_or(false);
            self.taken.push(answer);
            let yes = numerator as f64 / denominator as f64;
            self.probability *= if answer { yes } else { 1.0 - yes };
            answer
        }
    }

    /// Probabilities of all ends of an attempt, by walking through every decision up to a depth; the last number is what was not walked.
    fn law(depth: usize, attempt: impl Fn(&mut Path) -> Option<u64>) -> (BTreeMap<Option<u64>, f64>, f64) {
        let (mut open, mut law, mut left) = (vec![Vec::new()], BTreeMap::new(), 0.0);
        while let Some(answers) = open.pop() {
            let known = answers.len();
            let mut path = Path { answers, taken: Vec::new(), probability: 1.0 };
            let end = attempt(&mut path);
            *law.entry(end).or_insert(0.0) += path.probability;
            for position in known..path.taken.len() {
                let mut other = path.taken[..position].to_vec();
                other.push(true);
                if position < depth {
                    open.push(other);
                } else {
                    left += 1.0;
                }
            }
        }
        (law, left)
    }

    /// An attempt ends with k with exactly the stated multiple of P(K = k): all decisions are walked through.
    #[test]
    fn the_number_of_trials_has_the_law_of_its_theorem() {
        for mean in [1.5, 5.0, 40.0] {
            let Trials::Logarithmic(gamma) = Trials::new(TrialsKind::Logarithmic, mean).unwrap() else { panic!() };
            assert!(gamma.mean() <= mean && Gamma(gamma.0 - 1).mean() > mean);
            let (law, _) = law(60, |path| logarithmic(gamma, path));
            let p = 1.0 - gamma.get();
            for k in 1..30u64 {
                let stated = gamma.get() * p.powf(k as f64 - 1.0) / k as f64;
                assert!((law[&Some(k)] / stated - 1.0).abs() < 1e-12, "{mean} {k}");
            }
        }
        for mean in [ONE, ONE / 3, 1] {
            let (law, _) = law(22, |path| poisson(mean, path));
            let (lambda, mut factorial) = (mean as f64 / ONE as f64, 1.0);
            for k in 0..8u64 {
                factorial *= (k as f64).max(1.0);
                let stated = lambda.powf(k as f64) / (4.0 * factorial);
                assert!((law[&Some(k)] / stated - 1.0).abs() < 1e-12, "{mean} {k}");
            }
        }
    }

    /// A coin is a comparison of integers without rounding: every word of the generator decides as the exact fraction does.
    #[test]
    fn a_coin_throws_away_the_words_that_would_favour_small_numbers() {
        struct Words(Vec<u64>);
        impl rand_core::TryRng for Words {
            type Error = std::convert::Infallible;
            fn try_next_u32(&mut self) -> Result<u32, Self::Error> {
                unreachable!()
            }
            fn try_next_u64(&mut self) -> Result<u64, Self::Error> {
                Ok(self.0.remove(0))
            }
            fn try_fill_bytes(&mut self, _: &mut [u8]) -> Result<(), Self::Error> {
                unreachable!()
            }
        }
        // 2⁶⁴ = 3·k + 1: the last word is one too many.
        assert_eq!(SecureCoins(Words(vec![u64::MAX, 7])).below(3), 1);
        assert_eq!(SecureCoins(Words(vec![u64::MAX - 1])).below(3), (u64::MAX - 1) % 3);
        assert_eq!(SecureCoins(Words(vec![u64::MAX])).below(ONE), ONE - 1);
        assert_eq!(SecureCoins(Words(vec![u64::MAX])).below(1), 0);
    }

    #[test]
    fn numbers_of_trials_have_the_stated_mean() {
        for (kind, mean, deviation) in [
            (TrialsKind::Logarithmic, 5.0, 6.5),
            (TrialsKind::Poisson, 5.3, 5.3f64.sqrt()),
            (TrialsKind::Logarithmic, 40.0, 85.0),
            (TrialsKind::Poisson, MOST, MOST.sqrt()),
        ] {
            let trials = Trials::new(kind, mean).unwrap();
            assert!(trials.mean() <= mean && trials.mean() > mean * (1.0 - 1e-6));
            let (count, mut coins) = (4000, secure().unwrap());
            let draws: Vec<u64> = (0..count).map(|_| trials.draw(&mut coins)).collect();
            let found = draws.iter().sum::<u64>() as f64 / f64::from(count);
            // Six standard errors: once in a thousand million runs.
            assert!((found - mean).abs() < 6.0 * deviation / f64::from(count).sqrt(), "{kind:?}: {found}");
            assert!(kind == TrialsKind::Poisson || draws.iter().all(|k| *k >= 1));
        }
        assert!(Trials::new(TrialsKind::Poisson, 0.5).is_none() && Trials::new(TrialsKind::Logarithmic, f64::NAN).is_none());
        assert!(Trials::new(TrialsKind::Logarithmic, 1.0).is_some());
    }
}
