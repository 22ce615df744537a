//! Tables to be shown: the nearest ones without negative cells whose sums agree. Never used for further arithmetic: a projection is biased upward in empty cells.

use dp_pvi_math::simplex::project;
use nalgebra::DMatrix;

/// The nearest x ≥ 0 with this sum: x = (z + t)⁺.
#[must_use]
pub fn table(estimate: &[f64], total: f64) -> Vec<f64> {
    project(estimate, total)
}

/// Sweeps of [`pair`], at most.
const MOST_SWEEPS: usize = 10_000;

/// The nearest x ≥ 0 whose rows and columns have these sums, which have one total: alternating exact steps in rows and columns of the dual, x = (z + aᵢ + bⱼ)⁺, until all margins are within
/// 10⁻⁹ of the total.
///
/// # Panics
/// Sums of other lengths.
#[must_use]
pub fn pair(estimate: &DMatrix<f64>, rows: &[f64], columns: &[f64]) -> DMatrix<f64> {
    let (height, width) = estimate.shape();
    assert!(rows.len() == height && columns.len() == width, "a sum for each row and column");
    let close = 1e-9 * rows.iter().sum::<f64>().abs().max(f64::MIN_POSITIVE);
    let (mut a, mut b) = (vec![0.0; height], vec![0.0; width]);
    let at = |a: &[f64], b: &[f64], i: usize, j: usize| (estimate[(i, j)] + a[i] + b[j]).max(0.0);
    for _ in 0..MOST_SWEEPS {
        for i in 0..height {
            let moved: Vec<f64> = (0..width).map(|j| estimate[(i, j)] + b[j]).collect();
            a[i] = shift(&moved, rows[i]);
        }
        for j in 0..width {
            let moved: Vec<f64> = (0..height).map(|i| estimate[(i, j)] + a[i]).collect();
            b[j] = shift(&moved, columns[j]);
        }
        // Columns fit by the last step.
        if (0..height).all(|i| ((0..width).map(|j| at(&a, &b, i, j)).sum::<f64>() - rows[i]).abs() <= close) {
            break;
        }
    }
    DMatrix::from_fn(height, width, |i, j| at(&a, &b, i, j))
}

/// The t for which Σ(v + t)⁺ is the total: read off where the projection is largest.
fn shift(values: &[f64], total: f64) -> f64 {
    let projected = project(values, total);
    let largest = values.iter().zip(&projected).max_by(|one, other| one.0.total_cmp(other.0));
    largest.map_or(0.0, |(value, projected)| projected - value)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The conditions of the nearest point: x = (z + a + b)⁺ for some a and b, and the sums are right.
    #[test]
    fn margins_of_a_shown_pair_are_the_shown_margins() {
        let estimate = DMatrix::from_row_slice(3, 4, &[9.0, -2.0, 4.5, 0.3, 1.0, 7.0, -6.0, 2.0, 0.0, -1.0, 3.0, 5.5]);
        let (rows, columns) = ([10.0, 0.0, 9.0], [7.0, 3.0, 5.0, 4.0]);
        let found = pair(&estimate, &rows, &columns);
        for (i, row) in rows.iter().enumerate() {
            assert!((found.row(i).sum() - row).abs() <= 2e-8, "{}", found.row(i).sum());
        }
        for (j, column) in columns.iter().enumerate() {
            assert!((found.column(j).sum() - column).abs() <= 2e-8);
        }
        assert!(found.iter().all(|x| *x >= 0.0));
        // No way of moving mass around a rectangle brings it nearer.
        let harm = |x: &DMatrix<f64>| (x - &estimate).norm_squared();
        for (i, k, j, l) in (0..3).flat_map(|i| (0..3).flat_map(move |k| (0..4).flat_map(move |j| (0..4).map(move |l| (i, k, j, l))))) {
            let mut moved = found.clone();
            let step = 1e-4f64.min(found[(i, j)]).min(found[(k, l)]);
            for (place, by) in [((i, j), -step), ((k, l), -step), ((i, l), step), ((k, j), step)] {
                moved[place] += by;
            }
            assert!(harm(&moved) >= harm(&found) - 1e-9);
        }
    }
}
