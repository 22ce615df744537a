//! Intervals that contain the truth: every operation is rounded outward by a step of the floating-point numbers.

use std::ops::{Add, Mul, Neg};

/// Relative error of [`small`] and of the exponential. Proof: [`crate::proof`], "Exponentials".
const ERROR: f64 = 4e-15;
/// ln 2 in two parts; the first has 32 digits, so that its product with a small integer is exact.
const LN2: (f64, f64) = (f64::from_bits(0x3FE6_2E42_FEE0_0000), f64::from_bits(0x3DEA_39EF_3579_3C76));
/// Numbers between two bounds.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Interval {
    pub(crate) lo: f64,
    pub(crate) hi: f64,
}

/// One number.
pub(crate) fn point(x: f64) -> Interval {
    Interval { lo: x, hi: x }
}

/// Rounds outward; what is no number says nothing.
fn outward(lo: f64, hi: f64) -> Interval {
    let (lo, hi) = if lo.is_nan() || hi.is_nan() { (f64::NEG_INFINITY, f64::INFINITY) } else { (lo, hi) };
    Interval { lo: lo.next_down(), hi: hi.next_up() }
}

impl Interval {
    /// Widened by a relative error.
    pub(crate) fn within(self, error: f64) -> Self {
        outward(self.lo - self.lo.abs() * error, self.hi + self.hi.abs() * error)
    }

    /// The reciprocal of a positive number.
    pub(crate) fn reciprocal(self) -> Self {
        if self.lo > 0.0 { outward(1.0 / self.hi, 1.0 / self.lo) } else { outward(f64::NAN, f64::NAN) }
    }

    /// The upper bound where it is a mass: between 0 and infinity.
    pub(crate) fn mass(self) -> f64 {
        if self.hi.is_nan() { f64::INFINITY } else { self.hi.max(0.0) }
    }

    pub(crate) fn exp(self) -> Self {
        self.rising(exponential, 0.0)
    }

    /// ln x: of a guess, and of what it is off by, with 1 − 1/x ≤ ln x ≤ x − 1.
    pub(crate) fn ln(self) -> Self {
        let guess = point(self.lo.ln());
        let rest = self * (-guess).exp();
        Self { lo: (guess + point(1.0) + -point(rest.lo).reciprocal()).lo, hi: (guess + point(rest.hi) + point(-1.0)).hi }
    }

    /// e^x − 1.
    pub(crate) fn exp_m1(self) -> Self {
        let one = |x: f64| if x.abs() <= 0.34 { point(x * small(x)).within(ERROR) } else { exponential(x) + point(-1.0) };
        self.rising(one, 1.0)
    }

    /// e^x less a constant: over a short interval of length d it rises by at most 2d·e^x.
    fn rising(self, f: impl Fn(f64) -> Self, constant: f64) -> Self {
        let (low, d) = (f(self.lo), self.hi - self.lo);
        let high = if d < 1e-3 { point(low.hi) + point(2.0 * d) * (point(low.hi) + point(constant)) } else { f(self.hi) };
        Self { lo: low.lo, hi: high.hi }
    }
}

/// (e^x − 1)/x for |x| ≤ 0.3467.
fn small(x: f64) -> f64 {
    (2..=14).rev().fold(1.0, |sum, k| sum * (x / f64::from(k)) + 1.0)
}

fn exponential(x: f64) -> Interval {
    if x.is_nan() || x.abs() > 700.0 {
        return Interval { lo: 0.0, hi: if x < 0.0 { 1e-304 } else { f64::INFINITY } };
    }
    let whole = (x * std::f64::consts::LOG2_E).round();
    let rest = (x - whole * LN2.0) - whole * LN2.1;
    point((1.0 + rest * small(rest)) * f64::from_bits(((whole as i64 + 1023) as u64) << 52)).within(ERROR)
}

impl Add for Interval {
    type Output = Self;
    fn add(self, other: Self) -> Self {
        outward(self.lo + other.lo, self.hi + other.hi)
    }
}

impl Neg for Interval {
    type Output = Self;
    fn neg(self) -> Self {
        Self { lo: -self.hi, hi: -self.lo }
    }
}

impl Mul for Interval {
    type Output = Self;
    fn mul(self, other: Self) -> Self {
        let all = [self.lo * other.lo, self.lo * other.hi, self.hi * other.lo, self.hi * other.hi];
        let none = if all.iter().any(|x| x.is_nan()) { f64::NAN } else { 0.0 };
        outward(none + all.into_iter().fold(f64::INFINITY, f64::min), none + all.into_iter().fold(f64::NEG_INFINITY, f64::max))
    }
}
