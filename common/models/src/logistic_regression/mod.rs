//! Bayesian logistic regression (`family = "logistic-regression"`): P(y = 1) = σ(xᵀθ).
//!
//! **Assumes** a label of two classes. **Bounds**: the expected residual r = y − E σ(z) has |r| ≤ 1, the expected curvature c = E σ(z)(1 − σ(z)) lies in
//! [0, ¼], so that a record's gradient is no longer than R, the bound on its row. r is the class minus its probability: what a record would add with
//! the other class follows from its features, and records can be weighted in place of being cut.
//!
//! **When**: the first choice for a yes or no. A coefficient is a log odds ratio. Expectations are one-dimensional and exact by quadrature; with
//! `update = "vips"` they are those of Pólya–Gamma variables, whose intervals are a little narrower.
//!
//! **Source**: Böhning and Lindsay 1988 (the bound ¼); Polson, Scott and Windle 2013 (Pólya–Gamma).

mod task;

pub use task::LogisticRegression;
