//! Dirichlet distribution.

use crate::expfam::special::{digamma, ln_gamma, trigamma};
use crate::expfam::{ExponentialFamily, InvalidParameters, check};

/// The family Dirichlet(α) over `categories` shares: natural parameters α − 1 of the statistics ln x, mean parameters
/// ψ(α_k) − ψ(Σα).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Dirichlet {
    /// Number of shares.
    pub categories: usize,
}

/// Concentrations.
#[derive(Debug, Clone, PartialEq)]
pub struct Standard(Vec<f64>);

impl Standard {
    /// Dirichlet(α).
    ///
    /// # Errors
    /// Fewer than two entries, or one that is not finite or not positive.
    pub fn new(concentration: Vec<f64>) -> Result<Self, InvalidParameters> {
        check(&concentration, concentration.len().max(2))?;
        if concentration.iter().any(|&a| a <= 0.0) {
            return Err(InvalidParameters::Domain("a concentration is not positive"));
        }
        Ok(Self(concentration))
    }

    /// α.
    #[must_use]
    pub fn concentration(&self) -> &[f64] {
        &self.0
    }

    fn total(&self) -> f64 {
        self.0.iter().sum()
    }
}

impl ExponentialFamily for Dirichlet {
    type Standard = Standard;

    fn of(standard: &Standard) -> Self {
        Self { categories: standard.0.len() }
    }

    fn len(&self) -> usize {
        self.categories
    }

    fn standard(&self, natural: &[f64]) -> Result<Standard, InvalidParameters> {
        check(natural, self.categories)?;
        Standard::new(natural.iter().map(|n| n + 1.0).collect())
    }

    /// Bisection on ln A, A = Σα: Σ_k ψ⁻¹(mean_k + ψ(A)) exceeds A below the root and falls short of it above.
    fn standard_of_mean(&self, mean: &[f64]) -> Result<Standard, InvalidParameters> {
        check(mean, self.categories)?;
        if self.categories < 2 || mean.iter().map(|m| m.exp()).sum::<f64>() >= 1.0 {
            return Err(InvalidParameters::Domain("not expectations of logarithms of shares"));
        }
        let shares = |total: f64| -> Vec<f64> { mean.iter().map(|m| inverse_digamma(m + digamma(total))).collect() };
        let gap = |log_total: f64| shares(log_total.exp()).iter().sum::<f64>() / log_total.exp() - 1.0;
        let (mut low, mut high) = (-30.0_f64, 30.0_f64);
        for _ in 0..200 {
            let middle = 0.5 * (low + high);
            if middle <= low || middle >= high {
                break;
            }
            if gap(middle) > 0.0 { low = middle } else { high = middle }
        }
        Standard::new(shares((0.5 * (low + high)).exp()))
    }

    fn natural(standard: &Standard) -> Vec<f64> {
        standard.0.iter().map(|a| a - 1.0).collect()
    }

    fn mean(standard: &Standard) -> Vec<f64> {
        let total = digamma(standard.total());
        standard.0.iter().map(|&a| digamma(a) - total).collect()
    }

    fn log_partition(standard: &Standard) -> f64 {
        standard.0.iter().map(|&a| ln_gamma(a)).sum::<f64>() - ln_gamma(standard.total())
    }

    fn kl(q: &Standard, p: &Standard) -> f64 {
        let expected = Self::mean(q);
        let linear: f64 = q.0.iter().zip(&p.0).zip(&expected).map(|((a, b), e)| (a - b) * e).sum();
        Self::log_partition(p) - Self::log_partition(q) + linear
    }

    fn expectation(&self, natural: &[f64], mean: &[f64]) -> f64 {
        natural.iter().zip(mean).map(|(n, m)| n * m).sum()
    }
}

/// x > 0 with ψ(x) = y.
fn inverse_digamma(y: f64) -> f64 {
    // Start of Minka (2000), accurate to two digits: Newton's method doubles the digits at every step.
    let mut x = if y >= -2.22 { y.exp() + 0.5 } else { -1.0 / (y - digamma(1.0)) };
    for _ in 0..8 {
        x = (x - (digamma(x) - y) / trigamma(x)).max(x * 0.1);
    }
    x
}
