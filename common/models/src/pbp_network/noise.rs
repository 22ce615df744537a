//! The noise precision γ: log normalisers at three shapes, and the update of (a, b) that matches two moments.

use dp_pvi_math::normal::log_density;

/// ln Z with the shape of γ raised by k = 0, 1, 2: E over γ is taken as N(y; m, v + b/(a − 1 + k)).
#[must_use]
pub fn log_normalisers(y: f64, output: [f64; 2], shape: f64, rate: f64) -> [f64; 3] {
    [0.0, 1.0, 2.0].map(|k| log_density(y, output[0], output[1] + rate / (shape - 1.0 + k)))
}

/// Derivatives of ln Z by mean and variance of the output.
#[must_use]
#[inline]
pub fn slopes(y: f64, output: [f64; 2], shape: f64, rate: f64) -> [f64; 2] {
    let precision = 1.0 / (output[1] + rate / (shape - 1.0));
    let error = (y - output[0]) * precision;
    [error, 0.5 * (error * error - precision)]
}

/// a′ and b′ of the Gamma that has the first two moments of Gamma(a, b)·Z: a′ = 1/(Z Z₂ Z₁⁻² (a+1)/a − 1),
/// b′ = 1/(Z₂ Z₁⁻¹ (a+1)/b − Z₁ Z⁻¹ a/b). `None` where they are not the parameters of a Gamma.
#[must_use]
pub fn matched_gamma(log_z: [f64; 3], shape: f64, rate: f64) -> Option<(f64, f64)> {
    let [z, z1, z2] = log_z;
    let new_shape = 1.0 / ((z + z2 - 2.0 * z1).exp() * (shape + 1.0) / shape - 1.0);
    let new_rate = 1.0 / ((z2 - z1).exp() * (shape + 1.0) / rate - (z1 - z).exp() * shape / rate);
    let valid = new_shape > 0.0 && new_rate > 0.0 && new_shape.is_finite() && new_rate.is_finite();
    valid.then_some((new_shape, new_rate))
}
