//! Bayesian multinomial regression (`family = "multinomial-regression"`): P(y = k) ∝ exp(xᵀθ_k), θ_0 = 0 for the first class of the schema's list, the reference.
//!
//! **Assumes** a label of `classes` classes, in no order that matters. θ is class-major: all coefficients of the second class, then those of the third. **Bounds**:
//! E log p is replaced by its tilted bound ([`tilted_softmax`](dp_pvi_math::tilted_softmax)), whose derivatives are those of a softmax at one vector of
//! probabilities p: the residual e_y − p is no longer than √2, and diag p − ppᵀ no longer than ½, so that nothing is cut. The proof is at its `predictor_bounds`.
//!
//! **When**: one of three or more classes. A coefficient is a log odds ratio of its class against the reference. Its number of parameters is classes − 1 times that
//! of columns, and noise grows with it. The bound is loose where predictors are very wide: standardise columns, and keep `prior_scale` at 2 or below.
//!
//! **Defaults**: none. **Source**: Knowles and Minka 2011 (the tilted bound); Böhning 1992 (½(I − 11ᵀ/K) above all curvatures).

mod law;
mod rows;
mod task;

pub use task::MultinomialRegression;
