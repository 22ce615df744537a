//! Penalised splines in coordinates whose prior is diagonal.

use nalgebra::{DMatrix, SVector};

use super::{BSpline, to_unit};

/// A smooth curve with k cubic B-splines over equally spaced knots (P-spline: Eilers and Marx 1996), written as a straight line and k − 2
/// deviations from it with independent priors of one scale.
///
/// With the (k − 2) × k matrix D of second differences, β = ℓ b + E δ, where ℓ is linear in the position and E = Dᵀ(DDᵀ)⁻¹. The row has k − 1
/// entries: u(x) ∈ [−1, 1], and W(x)/ω with W(x) = EᵀB(x). On an interval between two knots W is a cubic Bézier curve; ω is the largest norm of
/// its control points, so ‖W(x)/ω‖ ≤ 1. The prior N(0, τ²) of the coefficients γ = ωδ is the penalty (ω²/τ²)‖Dβ‖² on second differences.
#[derive(Debug, Clone, PartialEq)]
pub struct Smooth {
    range: (f64, f64),
    splines: BSpline,
    /// E, k × (k − 2).
    deviations: DMatrix<f64>,
    omega: f64,
}

impl Smooth {
    /// With k ≥ 5 B-splines.
    #[must_use]
    pub fn new(range: (f64, f64), k: usize) -> Self {
        let (lo, hi) = range;
        let step = (hi - lo) / (k - 3) as f64;
        let knots = (0..=k + 3).map(|i| lo + (i as f64 - 3.0) * step).collect();
        let deviations = deviations(k);
        let omega = largest_control_point(&deviations);
        Self { range, splines: BSpline::over(knots, 3), deviations, omega }
    }

    /// k, the number of B-splines.
    #[must_use]
    pub fn splines(&self) -> &BSpline {
        &self.splines
    }

    /// E, k × (k − 2).
    #[must_use]
    pub fn deviations(&self) -> &DMatrix<f64> {
        &self.deviations
    }

    /// ω.
    #[must_use]
    pub fn omega(&self) -> f64 {
        self.omega
    }

    /// u(x), and the k − 2 entries of W(x)/ω, in order.
    pub fn row(&self, x: f64, mut push: impl FnMut(f64)) {
        push(to_unit(x, self.range));
        let (first, values) = self.splines.at(x);
        let rows = first..first + 4;
        for column in self.deviations.column_iter() {
            let sum: f64 = rows.clone().zip(&values).map(|(row, value)| column[row] * value).sum();
            push(sum / self.omega);
        }
    }
}

/// E = Dᵀ(DDᵀ)⁻¹: DE = I, and every column is orthogonal to constants and straight lines.
fn deviations(k: usize) -> DMatrix<f64> {
    let differences = DMatrix::from_fn(k - 2, k, |i, j| match j.checked_sub(i) {
        Some(0 | 2) => 1.0,
        Some(1) => -2.0,
        _ => 0.0,
    });
    let gram = (&differences * differences.transpose()).cholesky().expect("the rows of D are linearly independent");
    gram.solve(&differences).transpose()
}

/// ω: the largest norm of the four control points of W on each of the k − 3 intervals.
fn largest_control_point(deviations: &DMatrix<f64>) -> f64 {
    const POINTS: [[f64; 4]; 4] = [[1.0, 4.0, 1.0, 0.0], [0.0, 4.0, 2.0, 0.0], [0.0, 2.0, 4.0, 0.0], [0.0, 1.0, 4.0, 1.0]];
    let intervals = 0..deviations.nrows() - 3;
    let norm = |interval, weights: &[f64; 4]| (deviations.rows(interval, 4).transpose() * SVector::from(*weights) / 6.0).norm();
    intervals.flat_map(|interval| POINTS.iter().map(move |weights| norm(interval, weights))).fold(0.0, f64::max)
}
