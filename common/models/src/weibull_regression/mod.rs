//! Bayesian Weibull regression (`family = "weibull-regression"`): the cumulative hazard is t^k e^{xᵀθ}, with a shape k = e^κ that is learned, and t in units of `time_unit`.
//!
//! **Assumes** a label of kind `survival` without entry, whose times are above 0, and a `time_unit` in the middle of them on a log scale, so that ln t is centred. κ is the last
//! coefficient, `log(shape)`.
//!
//! **Rows**: ln p = d(κ + (k − 1) ln t + η) − t^k e^η. k is linearised at the mean m of κ, k = e^m: the row ρ = (x; k ln t) with the constant k ln t (1 − m) has a and
//! s², E = exp(a + s²/2), residual −E and curvature E; the row (x; 1 + k ln t) has residual d and no curvature. Rows move with m, and the second derivative of k is left
//! out of the curvature.
//!
//! **Bounds**: none of its own. Under a bound B (`residual_bound` of natural gradients) a record is watched until E is B at the public q: where E(t) is above that, the record is one without an
//! event, with the row at the time t* < t at which E(t*) = B. As in [survival regression](crate::survival_regression) the score keeps the expectation 0 at the truth. Then E ≤ B, and a
//! unit's sum is clipped. With u = k ln t, ln E is a quadratic form in u with the variance of κ as its second derivative, so that t* is a root; where κ is so uncertain
//! that E is above B at every time up to t, t* is that at which E is smallest, with B in place of E.
//!
//! **When**: a time to an event whose hazard rises or falls steadily. A coefficient is the logarithm of a hazard ratio; where the hazard bends, use
//! survival-regression.
//!
//! **Defaults**: κ ~ N(0, 0.5²) (`shape_mean`, `shape_scale`).
//!
//! **Source**: Kalbfleisch and Prentice 2002, section 2.3 (the model); the linearisation is this project's.

mod rows;
mod task;

pub use task::WeibullRegression;
