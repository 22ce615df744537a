//! Comparing mixtures: components have no order, so they are paired by the assignment of least total cost (the source paper pairs every
//! component with its nearest, which may use one twice).

use super::Components;
use nalgebra::{DMatrix, DVector};

/// An assignment of least total cost: row i goes to column `result[i]`. Exact, O(n³): shortest augmenting paths with potentials (Jonker and
/// Volgenant's form of the Hungarian method). NaN counts as a cost above every other.
///
/// # Panics
/// The matrix is not square.
#[must_use]
pub fn assignment(cost: &DMatrix<f64>) -> Vec<usize> {
    let n = cost.nrows();
    assert_eq!(n, cost.ncols(), "an assignment needs as many rows as columns");
    let at = |row: usize, column: usize| if cost[(row, column)].is_nan() { f64::MAX } else { cost[(row, column)] };
    // Column n is a place for the row that looks for one.
    let mut row_potential = vec![0.0; n];
    let mut column_potential = vec![0.0; n + 1];
    let mut row_of: Vec<Option<usize>> = vec![None; n + 1];
    for row in 0..n {
        row_of[n] = Some(row);
        let mut column = n;
        let mut slack = vec![f64::INFINITY; n];
        let mut from = vec![n; n];
        let mut seen = vec![false; n + 1];
        while let Some(current) = row_of[column] {
            seen[column] = true;
            let (mut smallest, mut next) = (f64::INFINITY, n);
            for c in 0..n {
                if seen[c] {
                    continue;
                }
                let reduced = at(current, c) - row_potential[current] - column_potential[c];
                if reduced < slack[c] {
                    (slack[c], from[c]) = (reduced, column);
                }
                if slack[c] < smallest || next == n {
                    (smallest, next) = (slack[c], c);
                }
            }
            for c in 0..=n {
                if seen[c] {
                    column_potential[c] -= smallest;
                    if let Some(r) = row_of[c] {
                        row_potential[r] += smallest;
                    }
                } else if c < n {
                    slack[c] -= smallest;
                }
            }
            column = next;
        }
        // Back along the path.
        while column != n {
            let before = from[column];
            row_of[column] = row_of[before];
            column = before;
        }
    }
    let mut result = vec![0; n];
    for (column, row) in row_of.iter().take(n).enumerate() {
        if let Some(row) = row {
            result[*row] = column;
        }
    }
    result
}

/// Distances of two posteriors over the same number of components, after matching by squared distance of means.
#[derive(Debug, Clone, PartialEq)]
pub struct Distance {
    /// Component `pairs[j]` of the other belongs to component j of the first.
    pub pairs: Vec<usize>,
    /// ‖m − m′‖ over all matched components.
    pub mean: f64,
    /// ‖V − V′‖_F over all matched components.
    pub covariance: f64,
    /// Mean of KL(N(m_j, V_j) ‖ N(m′_j, V′_j)).
    pub kl: f64,
}

impl Distance {
    /// From `truth` to `other`; `None` if the numbers of components differ or a covariance is not positive definite.
    #[must_use]
    pub fn between(truth: &Components, other: &Components) -> Option<Self> {
        let n = truth.parts.len();
        if other.parts.len() != n || n == 0 {
            return None;
        }
        let cost = DMatrix::from_fn(n, n, |i, j| (&truth.parts[i].0 - &other.parts[j].0).norm_squared());
        let pairs = assignment(&cost);
        let (mut mean, mut covariance, mut kl) = (0.0, 0.0, 0.0);
        for (p, &j) in truth.parts.iter().zip(&pairs) {
            let q = &other.parts[j];
            mean += (&p.0 - &q.0).norm_squared();
            covariance += (&p.1 - &q.1).norm_squared();
            kl += gaussian_kl(p, q)?;
        }
        #[allow(clippy::cast_precision_loss, reason = "a number of components is far below 2^52")]
        let count = n as f64;
        Some(Self { pairs, mean: mean.sqrt(), covariance: covariance.sqrt(), kl: kl / count })
    }
}

/// KL(p‖q) of two Gaussians.
fn gaussian_kl(p: &(DVector<f64>, DMatrix<f64>), q: &(DVector<f64>, DMatrix<f64>)) -> Option<f64> {
    let (from, to) = (p.1.clone().cholesky()?, q.1.clone().cholesky()?);
    let shift = &p.0 - &q.0;
    let log_det = |factor: &nalgebra::Cholesky<f64, nalgebra::Dyn>| 2.0 * factor.l_dirty().diagonal().iter().map(|l| l.ln()).sum::<f64>();
    #[allow(clippy::cast_precision_loss, reason = "a dimension is far below 2^52")]
    let d = shift.len() as f64;
    Some(0.5 * (to.solve(&p.1).trace() + shift.dot(&to.solve(&shift)) - d + log_det(&to) - log_det(&from)))
}
