//! Bayesian Poisson regression (`family = "poisson-regression"`): y ~ Poisson(exp(xᵀθ)), y = 0, 1, 2, …
//!
//! **Assumes** a label that is the count itself: lower bound 0, no centre, no scale, no transform. **Bounds**: none; residual and curvature grow with the
//! rate, so the task gives `residual_bound` and `curvature_bound`, or a `clip_norm`. What lies beyond is cut, which biases fits of large counts.
//!
//! **When**: counts of events over the same time or place. A coefficient is the logarithm of a rate ratio. Prediction integrates the rate, see
//! [`dp_pvi_math::count`].
//!
//! **Source**: McCullagh and Nelder 1989, chapter 6.

mod task;

pub use task::PoissonRegression;
