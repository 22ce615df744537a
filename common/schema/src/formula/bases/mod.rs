//! Functions of one number over a public range [lo, hi]: polynomials, B-splines, natural splines and smooth curves.
//!
//! Knots and constants follow from the range and the formula alone. Values are clamped to the range before they come here: nothing is
//! extrapolated.

mod b_spline;
mod natural;
mod smooth;

pub use b_spline::BSpline;
pub use natural::NaturalSpline;
pub use smooth::Smooth;

/// A position in a row and the value there.
pub type Entry = (u32, f64);

/// The Legendre polynomials P_1 … P_d at u = (2x − lo − hi)/(hi − lo): |P_n| ≤ 1, and all are 1 at u = 1.
///
/// Recursion: (n + 1) P_{n+1} = (2n + 1) u P_n − n P_{n−1}.
pub fn legendre(x: f64, range: (f64, f64), degree: u32, mut push: impl FnMut(f64)) {
    let u = to_unit(x, range);
    let (mut before, mut last) = (1.0, u);
    for n in 1..=degree {
        push(last);
        let n = f64::from(n);
        (before, last) = (last, ((2.0 * n + 1.0) * u * last - n * before) / (n + 1.0));
    }
}

/// u = (2x − lo − hi)/(hi − lo) ∈ [−1, 1].
fn to_unit(x: f64, (lo, hi): (f64, f64)) -> f64 {
    ((x - lo) - (hi - x)) / (hi - lo)
}

/// Inner knots lo + i (hi − lo)/(q + 1), i = 1 … q.
#[must_use]
pub(super) fn equal_knots((lo, hi): (f64, f64), count: usize) -> Vec<f64> {
    (1..=count).map(|i| lo + i as f64 * (hi - lo) / (count + 1) as f64).collect()
}
