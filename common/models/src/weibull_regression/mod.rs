//! Bayesian Weibull regression (`family = "weibull-regression"`): the cumulative hazard is t^k e^{xᵀθ}, with a shape k = e^κ that is learned, and t in units of `time_unit`.
//!
//! **Assumes** a label of kind `survival` without entry, whose times are above 0, and a `time_unit` in the middle of them on a log scale, so that ln t is centred. κ is the last
//! coefficient, `log(shape)`.
//!
//! **Rows**: ln p = d(κ + (k − 1) ln t + η) − t^k e^η. k is linearised at the mean m of κ, k = e^m: the row ρ = (x; k ln t) with the constant k ln t (1 − m) has a and
//! s², E = exp(a + s²/2), residual −E and curvature E; the row (x; 1 + k ln t) has residual d and no curvature. Rows move with m, and the second derivative of k is left
//! out of the curvature.
//!
//! **Bounds**: none of its own: E is cut to the task's `residual_bound` as a residual and to `curvature_bound` as a curvature, and a unit's sum is clipped.
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
