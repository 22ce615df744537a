//! The tail of one step in closed form, for little noise: a quadrature needs the more nodes, the larger the shift r is.
//!
//! All of P's outcomes beyond c have losses above ε, where c has the loss ε. With a = rc − r²/2, b = −rc − r²/2, Φ̄ = 1 − Φ and ε put in from the loss at c,
//! δ(ε) = P(y > c) − e^ε Q(y > c) becomes a sum of differences that are at least 0 each:
//!
//! * `Remove`: q(Φ̄(c − r) − e^a Φ̄(c)).
//! * `Add`: e^ε q(e^b Φ̄(c) − Φ̄(c + r)).
//! * `Replace`, times 1 − q + qe^b: q(1 − q)(Φ̄(c − r) − e^a Φ̄(c) + e^b Φ̄(c) − Φ̄(c + r)) + q²(e^b Φ̄(c − r) − e^a Φ̄(c + r)).
//!
//! e^a φ(c) = φ(c − r) and e^b φ(c) = φ(c + r), so that every term is a density times a ratio of Mills. The terms of a difference have ratios of Mills at places
//! r apart: from r = 4 on they differ by more than a tenth within forty standard deviations, and nothing cancels.

use super::pair::{Map, Pair, Segment};
use crate::special::erfcx;

/// From this shift on.
pub(super) const FROM: f64 = 4.0;
/// A few roundings, and the error of `erfcx`, of `exp` and of `erfc`.
const U: f64 = 4e-15;

/// φ(x).
fn density(x: f64) -> f64 {
    (-0.5 * x * x).exp() / std::f64::consts::TAU.sqrt()
}

/// Φ̄(x).
fn above(x: f64) -> f64 {
    0.5 * libm::erfc(x * std::f64::consts::FRAC_1_SQRT_2)
}

/// e^`log`·Φ̄(x), where e^`log`·φ(x) = φ(`at`).
fn moved(log: f64, x: f64, at: f64) -> f64 {
    if x < -5.0 { log.exp() * above(x) } else { density(at) * 1.253_314_137_315_500_3 * erfcx(x * std::f64::consts::FRAC_1_SQRT_2) }
}

/// As [`super::grid::tail`]; `None` where the noise is not so little, or where outcomes with losses above ε are not all those beyond one place.
pub(super) fn tail(pair: &Pair, segment: &Segment, epsilon: f64) -> Option<(f64, f64, f64)> {
    let (r, q) = (pair.ratio, pair.rate);
    if r < FROM || segment.high < f64::INFINITY || epsilon < 0.0 || segment.map == Map::Laplace {
        return None;
    }
    let c = pair.inverse(segment.map, epsilon);
    if c.is_nan() || c < segment.low {
        return None;
    }
    if c == f64::INFINITY {
        return Some((0.0, 0.0, 0.0));
    }
    let rest = 1.0 - q;
    let (a, b) = (r * (c - 0.5 * r), -r * (c + 0.5 * r));
    // Both in terms of (larger, smaller) pairs, and the mass under Q times e^ε.
    let (more, less, slope) = match segment.map {
        Map::Remove => {
            let less = q * moved(a, c, c - r);
            (q * above(c - r), less, rest * above(c) + less)
        }
        Map::Add => {
            let scale = q * epsilon.exp();
            let less = scale * above(c + r);
            (scale * moved(b, c, c + r), less, epsilon.exp() * rest * above(c) + less)
        }
        Map::Replace => {
            let scale = 1.0 / (rest + q * b.exp());
            let far = q * q * b.exp() * moved(a, c + r, c - r);
            let more = q * rest * (above(c - r) + moved(b, c, c + r)) + q * q * b.exp() * above(c - r);
            let less = q * rest * (moved(a, c, c - r) + above(c + r)) + far;
            let slope = rest * rest * above(c) + q * rest * (above(c + r) + moved(a, c, c - r)) + far;
            (scale * more, scale * less, scale * slope)
        }
        Map::Laplace => return None,
    };
    // A place that is off by roundings is the place of another ε; terms are good to roundings of their exponents.
    let other = 4e-15 * (epsilon + pair.slope(segment.map, c) * (c.abs() + r));
    let exponent = (c - r) * (c - r);
    let error = slope * other + (more + less) * U * (1.0 + exponent.min(1500.0));
    Some(((more - less - error).max(0.0), slope, 2.0 * error))
}

#[cfg(test)]
mod tests {
    use super::super::grid;
    use super::*;

    /// Against the quadrature, where that is good: the closed form's bounds hold it.
    #[test]
    fn the_closed_form_is_the_integral() {
        let mut compared = 0;
        for r in [4.0, 5.0, 9.0, 20.0] {
            for q in [1e-9, 1e-3, 0.3, 0.5, 0.999] {
                for pair in [Pair::remove(r, q), Pair::add(r, q), Pair::replace(r, q), Pair::symmetrised(r, q)] {
                    for epsilon in [0.0, 1e-3, 0.1, 1.0, 5.0, 0.3 * r * r, r * r, 2.0 * r * r] {
                        for segment in &pair.segments {
                            let Some((sum, slope, above)) = tail(&pair, segment, epsilon) else { continue };
                            let (exact, steep, beyond) = grid::quadrature_tail(&pair, segment, epsilon);
                            let room = 1e-11 * exact + beyond + 1e-300;
                            let name = format!("{:?} {r} {q} {epsilon}", segment.map);
                            assert!(sum <= exact + room && sum + above >= exact - room, "{name}: {sum:e} + {above:e}, {exact:e}");
                            assert!(above <= 1e-9 * exact + 1e-290, "{name}: {above:e} of {exact:e}");
                            assert!((slope - steep).abs() <= 1e-9 * steep + 1e-290, "{name}: {slope:e} {steep:e}");
                            compared += 1;
                        }
                    }
                }
            }
        }
        assert!(compared > 400, "{compared}");
    }
}
