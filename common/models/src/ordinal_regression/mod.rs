//! Bayesian ordinal regression (`family = "ordinal-regression"`): P(y ≤ j) = σ(α_j − xᵀβ) for the ordered classes 1..J of the schema's list, with thresholds
//! α_1 < … < α_(J−1) in place of an intercept.
//!
//! **Assumes** a label of `classes` ≥ 3 classes in their order, and rows without an intercept: that of a formula counts for the coding of its factors and is then left
//! out. θ = (β, κ) with α_1 = κ_1 and α_j = α_(j−1) + softplus(κ_j), names `threshold.1`, …
//!
//! **Rows**: since σ(u) − σ(w) = σ(u) σ(−w) (1 − e^(w−u)), and 1 − e^(−softplus κ) = σ(κ),
//!
//! log p(y = j) = log σ(α_j − η) + log σ(η − α_(j−1)) + log σ(κ_j),
//!
//! without the first term for the last class, without the second for the first class, and without the third for both. So a record is two or three logits that came out
//! as 1. The α are linearised at the mean m of κ: α_j(κ) ≈ α_j(m) + D_jᵀ(κ − m), D_j = (1, σ(m_2), …, σ(m_j), 0, …). These rows move with m, and the second derivative of α
//! is left out of the curvature (Gauss and Newton).
//!
//! **Bounds**: see [`ModelRules::bounds`](crate::ModelRules::bounds); nothing is cut.
//!
//! **When**: one of three or more ordered classes: a score, a stage. A coefficient is the log odds ratio of a higher class, the same at every threshold.
//!
//! **Defaults**: `threshold_mean = [0, 0.5]` and `threshold_scale = [2.5, 1]`, of κ_1 and of all others.
//!
//! **Source**: McCullagh 1980 (the model, without linearisation); the three logits are this project's.

mod law;
mod rows;
mod task;

pub use task::OrdinalRegression;
