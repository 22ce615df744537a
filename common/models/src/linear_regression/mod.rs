//! Bayesian linear regression (`family = "linear-regression"`): y ~ N(xᵀθ, noise_sd²).
//!
//! **Assumes** a numeric label, and noise of one known standard deviation; `update = "vips"` learns it from `noise_sd` on, see [`unknown_noise`].
//! **Bounds**: ‖x‖ ≤ R by the schema. A residual has no bound of its own: natural gradients cut it at the task's `residual_bound`, and gradients need
//! a `clip_norm`. **Defaults**: none for `noise_sd`, on which every interval depends.
//!
//! **When**: a number whose noise is about the same everywhere. The posterior is exact with full covariance.
//!
//! **Source**: any text on Bayesian linear models, for instance Bishop 2006, section 3.3.

mod task;
pub mod unknown_noise;

pub use task::LinearRegression;
