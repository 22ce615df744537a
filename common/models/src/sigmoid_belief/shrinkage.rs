//! Three-parameter-beta-normal shrinkage of the weights: W_jk ~ N(0, ζ_jk), ζ ~ Gam(½, ξ_jk), ξ_jk ~ Gam(½, φ_k), φ_k ~ Gam(½, w),
//! w ~ Gam(½, 1). Everything in here is computed from released values: free.

use nalgebra::DMatrix;

/// Euler's constant γ.
const EULER: f64 = 0.577_215_664_901_532_9;

/// K₁(x)/K₀(x) for x > 0; above 1, and 1 + 1/(2x) for large x. Relative error below 1e-14.
#[must_use]
pub(crate) fn bessel_ratio(x: f64) -> f64 {
    if x < 2.0 { ratio_by_series(x) } else { ratio_by_fraction(x) }
}

/// The series of K₀ and K₁ about 0.
fn ratio_by_series(x: f64) -> f64 {
    let q = 0.25 * x * x;
    let log = (0.5 * x).ln() + EULER;
    // Of term k: q^k/(k!)², q^k/(k!(k+1)!) and the harmonic number H_k.
    let (mut a, mut b, mut harmonic) = (1.0, 1.0, 0.0);
    let (mut k0, mut k1) = (-log, log - 0.5);
    for k in 1..30_u32 {
        let k = f64::from(k);
        a *= q / (k * k);
        b *= q / (k * (k + 1.0));
        harmonic += 1.0 / k;
        k0 += a * (harmonic - log);
        // ln(x/2) − ½(ψ(k+1) + ψ(k+2)).
        k1 += b * (log - harmonic - 0.5 / (k + 1.0));
        if a < 1e-18 * k0.abs() {
            break;
        }
    }
    (1.0 / x + 0.5 * x * k1) / k0
}

/// Temme's continued fraction for K_{ν+1}/K_ν at ν = 0, evaluated with Steed's method.
fn ratio_by_fraction(x: f64) -> f64 {
    let a1 = 0.25;
    let mut b = 2.0 * (1.0 + x);
    let mut d = 1.0 / b;
    let (mut h, mut delta) = (d, d);
    let mut a = -a1;
    for i in 2..10_000_u32 {
        a -= 2.0 * f64::from(i - 1);
        b += 2.0;
        d = 1.0 / (b + a * d);
        delta *= b * d - 1.0;
        h += delta;
        if delta.abs() < 1e-17 * h.abs() {
            break;
        }
    }
    (x + 0.5 - a1 * h) / x
}

/// Expectations of the scales.
#[derive(Debug, Clone, PartialEq)]
pub struct Shrinkage {
    /// E 1/ζ_jk: prior precision of W_jk (visible × hidden).
    pub precision: DMatrix<f64>,
    /// E ξ_jk.
    xi: DMatrix<f64>,
    /// E φ_k.
    phi: Vec<f64>,
    /// E w.
    global: f64,
}

impl Shrinkage {
    /// Before any data: every expectation 1.
    #[must_use]
    pub fn new(visible: usize, hidden: usize) -> Self {
        Self {
            precision: DMatrix::from_element(visible, hidden, 1.0),
            xi: DMatrix::from_element(visible, hidden, 1.0),
            phi: vec![1.0; hidden],
            global: 1.0,
        }
    }

    /// All expectations as one vector, and back: what a run's state carries.
    #[must_use]
    pub fn to_state(&self) -> Vec<f64> {
        let matrices = self.precision.iter().chain(&self.xi);
        matrices.chain(&self.phi).chain(std::iter::once(&self.global)).copied().collect()
    }

    /// Number of entries of [`Self::to_state`].
    #[must_use]
    pub fn state_length(visible: usize, hidden: usize) -> usize {
        2 * visible * hidden + hidden + 1
    }

    /// From a vector of [`Self::to_state`]; `None` for another length or an expectation that is not positive.
    #[must_use]
    pub fn from_state(visible: usize, hidden: usize, state: &[f64]) -> Option<Self> {
        if state.len() != Self::state_length(visible, hidden) || !state.iter().all(|v| v.is_finite() && *v > 0.0) {
            return None;
        }
        let (precision, rest) = state.split_at(visible * hidden);
        let (xi, rest) = rest.split_at(visible * hidden);
        let (phi, global) = rest.split_at(hidden);
        let matrix = |values: &[f64]| DMatrix::from_column_slice(visible, hidden, values);
        Some(Self { precision: matrix(precision), xi: matrix(xi), phi: phi.to_vec(), global: global[0] })
    }

    /// One pass of updates from E W² (visible × hidden).
    ///
    /// # Panics
    /// The matrix has another shape.
    pub fn update(&mut self, second: &DMatrix<f64>) {
        assert_eq!(second.shape(), self.xi.shape(), "weights of another network");
        #[allow(clippy::cast_precision_loss, reason = "numbers of units")]
        let (visible, hidden) = (second.nrows() as f64, second.ncols() as f64);
        for (k, phi) in self.phi.iter_mut().enumerate() {
            let mut total = 0.0;
            for (j, &second) in second.column(k).iter().enumerate() {
                let (a, b) = (2.0 * self.xi[(j, k)], second.max(SMALLEST_SQUARE));
                let ratio = bessel_ratio((a * b).sqrt());
                self.precision[(j, k)] = (a / b).sqrt() * ratio;
                let xi = 1.0 / ((b / a).sqrt() * ratio + *phi);
                self.xi[(j, k)] = xi;
                total += xi;
            }
            *phi = (0.5 + 0.5 * visible) / (self.global + total);
        }
        self.global = (0.5 + 0.5 * hidden) / (1.0 + self.phi.iter().sum::<f64>());
    }
}

/// E W² below this counts as this: the precision 1/E W² stays finite.
const SMALLEST_SQUARE: f64 = 1e-12;

#[cfg(test)]
mod tests {
    use super::{Shrinkage, bessel_ratio, ratio_by_fraction, ratio_by_series};
    use nalgebra::DMatrix;

    /// K₁(x)/K₀(x) = ∫ cosh t e^{−x(cosh t − 1)} dt / ∫ e^{−x(cosh t − 1)} dt, by the trapezoid rule, which converges exponentially.
    fn by_integration(x: f64) -> f64 {
        let step = 1.0 / 256.0;
        let (mut k0, mut k1) = (0.5, 0.5);
        for i in 1..20_000 {
            let c = (step * f64::from(i)).cosh();
            let weight = (-x * (c - 1.0)).exp();
            k0 += weight;
            k1 += weight * c;
            if weight * c < 1e-30 {
                break;
            }
        }
        k1 / k0
    }

    #[test]
    fn the_ratio_equals_the_integrals() {
        for x in [1e-9, 1e-4, 0.01, 0.3, 1.0, 1.999, 2.0, 2.001, 3.0, 10.0, 77.0, 1e3] {
            let (found, expected) = (bessel_ratio(x), by_integration(x));
            assert!((found / expected - 1.0).abs() < 2e-13, "{x}: {found} {expected}");
        }
        assert!((ratio_by_series(2.0) / ratio_by_fraction(2.0) - 1.0).abs() < 1e-13);
    }

    #[test]
    fn the_ratio_is_stable_at_both_ends() {
        // x → 0: 1/(x(−ln(x/2) − γ)); x → ∞: 1 + 1/(2x).
        let x = 1e-150_f64;
        assert!((bessel_ratio(x) * x * (-(0.5 * x).ln() - super::EULER) - 1.0).abs() < 1e-13);
        for x in [1e6, 1e12, 1e200] {
            assert!((bessel_ratio(x) - 1.0 - 0.5 / x).abs() < 1e-12);
        }
        let mut last = f64::INFINITY;
        for k in -300..300 {
            let ratio = bessel_ratio(10f64.powf(0.02 * f64::from(k)));
            assert!(ratio < last && ratio > 1.0);
            last = ratio;
        }
    }

    #[test]
    fn small_weights_are_shrunk_and_large_ones_are_not() {
        let mut shrinkage = Shrinkage::new(3, 2);
        let second = DMatrix::from_row_slice(3, 2, &[1e-6, 9.0, 1e-6, 9.0, 1e-6, 0.0]);
        for _ in 0..50 {
            shrinkage.update(&second);
        }
        assert!(shrinkage.precision.iter().all(|p| p.is_finite() && *p > 0.0));
        assert_eq!(Shrinkage::from_state(3, 2, &shrinkage.to_state()), Some(shrinkage.clone()));
        assert_eq!(Shrinkage::from_state(2, 2, &shrinkage.to_state()), None);
        assert!(shrinkage.precision[(0, 0)] > 1e3 && shrinkage.precision[(0, 1)] < 1.0);
    }
}
