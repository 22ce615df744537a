//! Bayesian robust regression (`family = "robust-regression"`): y = xᵀθ + σ t, t of Student's distribution with ν degrees of freedom.
//!
//! **Assumes** a numeric label and a known scale σ, in units of the label after centre and scale; an observation's standard deviation is σ√(ν/(ν − 2)).
//! **Bounds**: |r| ≤ (ν + 1)/(2σ√ν) and 0 ≤ c ≤ (ν + 1)/(νσ²), whatever the label is: no cut is needed, and a record that is far off moves the fit less than one
//! that is near. **Defaults**: ν = 4; none for σ, on which every interval depends.
//!
//! **When**: a number with outliers. A coefficient is a difference of the label, as in linear regression.
//!
//! **Curvature**: t is normal with a precision of its own for every record, and the posterior takes these precisions for independent of θ. Its plain intervals are
//! then about √((ν + 1)/(ν + 3)) times as wide as those of the exact posterior: 0.85 for ν = 4. The noise-aware posterior has the information of t in place of
//! the curvature, and is not too narrow.
//!
//! **Source**: Lange, Little and Taylor 1989 (the likelihood and its information); Tipping and Lawrence 2005 (the variational bound).

mod task;

pub use task::{RobustRegression, Student};
