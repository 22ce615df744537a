//! Bayesian negative binomial regression (`family = "negative-binomial-regression"`): counts with mean m = exp(xᵀθ) and variance m + m²/φ.
//!
//! **Assumes** a label that is the count itself, with a public largest count (the label's `upper`, to which larger ones are clamped): lower bound 0 or more, no
//! centre, no scale, no transform. **Bounds**: with M = max(`upper`, φ) the residual has |r| ≤ M and the curvature lies in [0, (`upper` + φ)/4], so that nothing is
//! cut and the task gives no bounds of its own. The noise grows with M: choose `upper` no larger than what is counted.
//!
//! **When**: counts that spread more than a Poisson rate allows, as counts of events of persons do. A coefficient is the logarithm of a rate ratio.
//!
//! **Defaults**: none for `dispersion`, φ, on which every interval depends. From a mean m and a standard deviation s of published counts of like records,
//! φ = m²/(s² − m). Large φ is Poisson regression.
//!
//! **Source**: Hilbe 2011, chapter 8 (NB2 with α = 1/φ).

mod task;

pub use task::NegativeBinomialRegression;
