//! Natural cubic splines in a basis without a factorisation.

use super::{BSpline, Entry};

/// The natural cubic splines over inner knots: f″ = 0 at both ends of the range. q + 2 functions, non-negative and summing to 1, that span
/// what R's `splines::ns` spans.
///
/// With the cubic B-splines B_1 … B_m, f = Σ β_j B_j has f″(lo) = 0 if and only if β_2 = w β_1 + (1 − w) β_3 with w = h_2/(h_1 + h_2), where
/// h_1 and h_2 are the distances of the next two knots from lo; mirrored at hi. So B_2 is shared out between its neighbours, and so is B_{m−1}.
/// Without inner knots the functions are the straight lines (hi − x)/(hi − lo) and (x − lo)/(hi − lo).
#[derive(Debug, Clone, PartialEq)]
pub struct NaturalSpline {
    range: (f64, f64),
    cubic: Option<Cubic>,
}

#[derive(Debug, Clone, PartialEq)]
struct Cubic {
    splines: BSpline,
    /// Share of B_2 that goes to B_1, and of B_{m−1} that goes to B_m.
    shares: (f64, f64),
}

impl NaturalSpline {
    /// `inner` is strictly ascending between lo and hi.
    #[must_use]
    pub fn new(range: (f64, f64), inner: &[f64]) -> Self {
        if inner.is_empty() {
            return Self { range, cubic: None };
        }
        let (lo, hi) = range;
        let knots: Vec<f64> = [lo].into_iter().chain(inner.iter().copied()).chain([hi]).collect();
        let share = |end: f64, near: f64, far: f64| {
            let (first, second) = ((near - end).abs(), (far - end).abs());
            second / (first + second)
        };
        let last = knots.len() - 1;
        let shares = (share(lo, knots[1], knots[2]), share(hi, knots[last - 1], knots[last - 2]));
        Self { range, cubic: Some(Cubic { splines: BSpline::clamped(range, inner, 3), shares }) }
    }

    /// Number of functions.
    #[must_use]
    pub fn count(&self) -> usize {
        self.cubic.as_ref().map_or(2, |cubic| cubic.splines.count() - 2)
    }

    /// The functions at x that are not 0, ascending.
    pub fn entries(&self, x: f64, mut push: impl FnMut(Entry)) {
        let Some(Cubic { splines, shares }) = &self.cubic else {
            let (lo, hi) = self.range;
            [(0, (hi - x) / (hi - lo)), (1, (x - lo) / (hi - lo))].into_iter().filter(|entry| entry.1 != 0.0).for_each(push);
            return;
        };
        let count = self.count();
        let (first, values) = splines.at(x);
        // At most four B-splines are not 0, and each goes to at most two neighbouring functions.
        let start = first.saturating_sub(2);
        let mut own = [0.0; 7];
        for (j, value) in (first..).zip(&values[..4]) {
            for (position, share) in shared(j, count, *shares) {
                own[position - start] += share * value;
            }
        }
        (start..count).zip(own).filter(|(_, value)| *value != 0.0).for_each(|(position, value)| push((position as u32, value)));
    }
}

/// Where B-spline j (from 0) of count + 2 goes, and which part of it.
fn shared(j: usize, count: usize, (low, high): (f64, f64)) -> impl Iterator<Item = (usize, f64)> {
    let last = count - 1;
    let first = match j {
        0 => (0, 1.0),
        1 => (0, low),
        _ if j == count + 1 => (last, 1.0),
        _ if j == count => (last - 1, 1.0 - high),
        _ => (j - 1, 1.0),
    };
    let second = match j {
        1 => Some((1, 1.0 - low)),
        _ if j == count => Some((last, high)),
        _ => None,
    };
    std::iter::once(first).chain(second)
}
