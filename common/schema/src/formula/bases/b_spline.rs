//! B-splines over a knot sequence.

use super::Entry;

/// The B-splines of degree p over an ascending knot sequence: non-negative, at most p + 1 of them not 0 at a point, and summing to 1 between
/// the knots p and m.
#[derive(Debug, Clone, PartialEq)]
pub struct BSpline {
    knots: Vec<f64>,
    degree: usize,
}

/// The largest degree that a formula can ask for.
pub(crate) const MAX_DEGREE: usize = 5;

impl BSpline {
    /// With every end of the range as a knot p + 1 times, as R's `splines::bs` with boundary knots lo and hi. `inner` is strictly
    /// ascending between lo and hi.
    #[must_use]
    pub fn clamped((lo, hi): (f64, f64), inner: &[f64], degree: usize) -> Self {
        let ends = degree + 1;
        let knots = std::iter::repeat_n(lo, ends).chain(inner.iter().copied()).chain(std::iter::repeat_n(hi, ends));
        Self { knots: knots.collect(), degree }
    }

    /// Over any ascending knots, of which the p + 1 at each end may lie outside the range (Eilers and Marx).
    #[must_use]
    pub fn over(knots: Vec<f64>, degree: usize) -> Self {
        Self { knots, degree }
    }

    /// The knots.
    #[must_use]
    pub fn knots(&self) -> &[f64] {
        &self.knots
    }

    /// p.
    #[must_use]
    pub fn degree(&self) -> usize {
        self.degree
    }

    /// Number m of functions.
    #[must_use]
    pub fn count(&self) -> usize {
        self.knots.len() - self.degree - 1
    }

    /// The functions that can be other than 0 at x: the first one's position, and p + 1 values, of which the first entries of the array count.
    ///
    /// Cox–de Boor recursion, right-continuous; at the end of the range the last interval counts as closed.
    #[must_use]
    pub fn at(&self, x: f64) -> (usize, [f64; MAX_DEGREE + 1]) {
        let p = self.degree;
        let span = self.span(x);
        let mut values = [0.0; MAX_DEGREE + 1];
        values[0] = 1.0;
        for degree in 1..=p {
            let mut saved = 0.0;
            for (i, value) in values.iter_mut().enumerate().take(degree) {
                let (left, right) = (self.knots[span + 1 + i - degree], self.knots[span + 1 + i]);
                // The interval [knots[span], knots[span + 1]) lies between them, so they differ.
                let part = *value / (right - left);
                *value = saved + (right - x) * part;
                saved = (x - left) * part;
            }
            values[degree] = saved;
        }
        (span - p, values)
    }

    /// The functions that are not 0 at x.
    pub fn entries(&self, x: f64) -> impl Iterator<Item = Entry> + use<> {
        let (first, values) = self.at(x);
        let count = self.degree + 1;
        (0..count).map(move |i| ((first + i) as u32, values[i])).filter(|(_, value)| *value != 0.0)
    }

    /// The position i of the interval [knots\[i\], knots\[i + 1\]) that holds x.
    fn span(&self, x: f64) -> usize {
        let (first, last) = (self.degree, self.knots.len() - self.degree - 2);
        let inner = &self.knots[first + 1..=last];
        first + inner.partition_point(|knot| *knot <= x)
    }
}
