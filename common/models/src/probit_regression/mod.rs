//! Bayesian probit regression (`family = "probit-regression"`): P(y = 1) = Φ(xᵀθ).
//!
//! **Assumes** a label of two classes. **Bounds**: the curvature −∂² ln Φ lies in [0, 1]. A residual grows like the distance from the right side and is
//! cut at 2.4, what a record two standard deviations on the wrong side has; gradients need a `clip_norm`.
//!
//! **When**: expectation propagation, whose tilted moments are closed forms here; or where a coefficient shall be a shift of a latent normal score.
//!
//! **Source**: Rasmussen and Williams 2006, section 3.6 (moments).

mod task;

pub use task::ProbitRegression;
