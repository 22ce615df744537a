//! Gaussian families in the parametrisation (h, Λ): h = Λμ, Λ = precision, log-density −½θᵀΛθ + hᵀθ − A.
//!
//! The statistics that belong to these coordinates are (θ, −½θθᵀ); mean parameters are reported as (E θ, E θθᵀ).

pub mod diagonal;
pub mod full;

/// ln 2π.
const LN_TWO_PI: f64 = 1.837_877_066_409_345_5;
