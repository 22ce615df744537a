//! ε and μ of one Gaussian release: δ = Φ(−ε/μ + μ/2) − e^ε Φ(−ε/μ − μ/2) (Balle & Wang 2018, Theorem 8; Dong, Roth & Su 2022, Corollary 2.13).

use dp_pvi_accounting::{Delta, Epsilon, Gdp};

use crate::DescribeError;

/// The largest μ (sensitivity over noise) of a release that is (ε, δ)-differentially private; rounded down.
///
/// # Errors
/// None is, or ε is infinite.
pub fn mu(epsilon: Epsilon, delta: Delta) -> Result<f64, DescribeError> {
    let fits = |mu: f64| Gdp::of_ratio(mu).delta(epsilon) <= delta.get();
    if epsilon.get().is_infinite() || !fits(1e-9) {
        return Err(DescribeError::Price);
    }
    let (mut low, mut high) = (1e-9, 1.0);
    while fits(high) {
        (low, high) = (high, 2.0 * high);
    }
    while high - low > 4.0 * f64::EPSILON * high {
        let middle = 0.5 * (low + high);
        if fits(middle) { low = middle } else { high = middle }
    }
    Ok(low)
}

/// The least ε at this δ of a release with this μ; rounded up.
#[must_use]
pub fn epsilon(mu: f64, delta: Delta) -> Epsilon {
    Gdp::of_ratio(mu).epsilon_upper(delta)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn epsilon_of_mu_is_not_above_what_was_asked_for() {
        for (e, d) in [(0.01, 1e-9), (0.1, 1e-5), (1.0, 1e-6), (8.0, 1e-5)] {
            let (asked, delta) = (Epsilon::new(e).unwrap(), Delta::new(d).unwrap());
            let found = mu(asked, delta).unwrap();
            let back = epsilon(found, delta).get();
            assert!(back <= e * (1.0 + 1e-11) && back > e * (1.0 - 1e-9), "{e} {d}: {found} {back}");
        }
        assert_eq!(mu(Epsilon::INFINITE, Delta::new(1e-5).unwrap()), Err(DescribeError::Price));
    }
}
