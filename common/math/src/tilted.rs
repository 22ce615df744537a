//! Gaussian expectations of a likelihood of one number, with their derivatives: what expectation propagation asks for.

/// ln Z with its derivatives by the mean a of the number, Z(a, s²) = E p(y | z) for z ~ N(a, s²).
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Tilted {
    /// ln Z.
    pub log_normaliser: f64,
    /// α = ∂ ln Z/∂a: the mean of the predictor moves by s²α.
    pub slope: f64,
    /// β = −∂² ln Z/∂a²: its variance becomes s² − s⁴β. For log-concave likelihoods 0 ≤ β < 1/s².
    pub curvature: f64,
}

/// Reach of the trapezoid rule from the mode of the tilted density, in standard deviations of the predictor: the tilted density of a
/// log-concave likelihood is narrower.
const REACH: f64 = 9.0;
/// Largest step in z: σ has poles at ±iπ, so the error is about exp(−2π²/0.6) = 5e-15.
const LARGEST_STEP: f64 = 0.6;
/// Largest step in standard deviations: the weights' own decay gives exp(−2π²/0.25).
const LARGEST_UNIT_STEP: f64 = 0.5;
/// Widest predictor that is integrated; wider ones are clamped, so that no record can make a site cost more than a bounded time.
const WIDEST: f64 = 1e3;

impl Tilted {
    /// Of σ(z), or of σ(−z) where `sign` is −1, for z ~ N(`mean`, `variance`).
    ///
    /// Trapezoid rule. With t = 1 − σ(yz), moments under the tilted density give α = y E t and
    /// β = E t(1 − t) − Var t: no difference of nearly equal numbers divided by a power of s.
    #[must_use]
    pub fn of_logit(sign: f64, mean: f64, variance: f64) -> Self {
        let a = sign * mean;
        let s = variance.max(0.0).sqrt().min(WIDEST);
        // ln of the integrand up to the Gaussian's constant, and t.
        let at = |z: f64| {
            let e = (-z.abs()).exp();
            let t = if z > 0.0 { e / (1.0 + e) } else { 1.0 / (1.0 + e) };
            (z.min(0.0) - e.ln_1p(), t)
        };
        if s < 1e-8 {
            let (log, t) = at(a);
            return Self { log_normaliser: log, slope: sign * t, curvature: t * (1.0 - t) };
        }
        let mode = logistic_mode(a, s * s);
        let step = (LARGEST_UNIT_STEP * s).min(LARGEST_STEP);
        let height = |z: f64, log: f64| log - 0.5 * ((z - a) / s).powi(2);
        let top = height(mode, at(mode).0);
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "at most 9·1000/0.6")]
        let nodes = (REACH * s / step).ceil() as u32;
        let (mut total, mut first, mut second) = (0.0, 0.0, 0.0);
        for k in 0..=2 * nodes {
            let z = mode + step * (f64::from(k) - f64::from(nodes));
            let (log, t) = at(z);
            let weight = (height(z, log) - top).exp();
            total += weight;
            first += weight * t;
            second += weight * t * t;
        }
        let (t, square) = (first / total, second / total);
        Self {
            log_normaliser: top + (total * step / s).ln() - 0.5 * std::f64::consts::TAU.ln(),
            slope: sign * t,
            curvature: (t - 2.0 * square + t * t).max(0.0),
        }
    }
}

/// The mode of σ(z) N(z; a, v): z = a + v(1 − σ(z)), between a and a + v. Newton's method on a concave function, kept inside the bracket.
fn logistic_mode(a: f64, v: f64) -> f64 {
    let (mut low, mut high) = (a, a + v);
    let mut z = a;
    // A rough mode is enough: it only centres the nodes. Each step at least halves the bracket.
    for _ in 0..60 {
        let t = 1.0 / (1.0 + z.exp());
        let slope = a + v * t - z;
        if slope > 0.0 {
            low = z
        } else {
            high = z
        }
        let newton = z + slope / (1.0 + v * t * (1.0 - t));
        let next = if newton > low && newton < high { newton } else { 0.5 * (low + high) };
        let still = (next - z).abs() <= 1e-3 * v.sqrt();
        z = next;
        if still {
            break;
        }
    }
    z
}
