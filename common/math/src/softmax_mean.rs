//! E softmax(η) for jointly normal predictors η ~ N(a, S) of all classes but the reference, whose predictor is 0: the mean over fixed points, so that the same
//! posterior gives everyone the same probabilities.
//!
//! The points are z_n = Φ⁻¹(frac(½ + nα)), n = 1..1024, α_j = φ^(−j) with φ the root above 1 of x^(P+1) = x + 1, and −z_n; η = a + Lz with S = LLᵀ. They fill the
//! space evenly (Roberts 2018), and odd moments are exact. Against 65,536 points of Sobol's sequence probabilities of three classes are within 8e-4, of five
//! classes and wide predictors within 4e-3.

use nalgebra::{DMatrix, DVector};

use crate::normal;

/// Half the number of points.
const HALF: u32 = 1024;

/// The points of P predictors.
#[derive(Debug, Clone)]
pub struct SoftmaxMean {
    /// z_n, one a column.
    points: DMatrix<f64>,
}

impl SoftmaxMean {
    /// Of this many predictors.
    #[must_use]
    pub fn new(predictors: usize) -> Self {
        let ratio = ratio(predictors);
        let steps: Vec<f64> = (1..=predictors).map(|j| ratio.powi(-i32::try_from(j).unwrap_or(i32::MAX))).collect();
        let points = DMatrix::from_fn(predictors, HALF as usize, |j, n| {
            #[allow(clippy::cast_precision_loss, reason = "at most 1024")]
            let share = (0.5 + (n + 1) as f64 * steps[j]).fract();
            normal::quantile(share)
        });
        Self { points }
    }

    /// P(k) of every class, the reference first; they add up to 1. Where S is not positive definite, entries of L that have no root are 0.
    #[must_use]
    pub fn probabilities(&self, mean: &DVector<f64>, covariance: &DMatrix<f64>) -> Vec<f64> {
        let count = mean.len();
        let root = root(covariance);
        let mut sums = vec![0.0; count + 1];
        let mut exponents = vec![0.0; count + 1];
        let moved = &root * &self.points;
        for move_by in moved.column_iter() {
            for sign in [1.0, -1.0] {
                let mut largest: f64 = 0.0;
                for k in 0..count {
                    exponents[k + 1] = mean[k] + sign * move_by[k];
                    largest = largest.max(exponents[k + 1]);
                }
                exponents[0] = 0.0;
                let terms: Vec<f64> = exponents.iter().map(|eta| (eta - largest).exp()).collect();
                let total: f64 = terms.iter().sum();
                sums.iter_mut().zip(&terms).for_each(|(sum, term)| *sum += term / total);
            }
        }
        sums.iter().map(|sum| sum / f64::from(2 * HALF)).collect()
    }
}

/// The root above 1 of x^(P+1) = x + 1.
fn ratio(predictors: usize) -> f64 {
    let power = i32::try_from(predictors + 1).unwrap_or(i32::MAX);
    let mut x = 2.0_f64;
    for _ in 0..200 {
        let next = x - (x.powi(power) - x - 1.0) / (f64::from(power) * x.powi(power - 1) - 1.0);
        if (next - x).abs() <= 1e-16 {
            break;
        }
        x = next;
    }
    x
}

/// L of S = LLᵀ, lower triangular; a column whose pivot is not positive is 0.
fn root(matrix: &DMatrix<f64>) -> DMatrix<f64> {
    let count = matrix.nrows();
    let mut root = DMatrix::zeros(count, count);
    for j in 0..count {
        let pivot: f64 = matrix[(j, j)] - root.row(j).norm_squared();
        if pivot <= 0.0 {
            continue;
        }
        root[(j, j)] = pivot.sqrt();
        for i in j + 1..count {
            let below: f64 = matrix[(i, j)] - root.row(i).dot(&root.row(j));
            root[(i, j)] = below / root[(j, j)];
        }
    }
    root
}

#[cfg(test)]
mod tests {
    use nalgebra::{DMatrix, dvector};

    use super::SoftmaxMean;
    use crate::quadrature::sigmoid_moments;

    #[test]
    fn two_classes_are_those_of_a_logit() {
        let rule = SoftmaxMean::new(1);
        for (mean, variance) in [(0.3, 0.0), (-1.2, 0.5), (2.0, 4.0)] {
            let found = rule.probabilities(&dvector![mean], &DMatrix::from_element(1, 1, variance));
            assert!((found[1] - sigmoid_moments(mean, variance).sigmoid).abs() < 1e-3, "{found:?}");
            assert!((found[0] + found[1] - 1.0).abs() < 1e-12);
        }
    }

    #[test]
    fn a_certain_predictor_has_its_softmax() {
        let found = SoftmaxMean::new(2).probabilities(&dvector![2f64.ln(), 3f64.ln()], &DMatrix::zeros(2, 2));
        for (found, expected) in found.iter().zip([1.0, 2.0, 3.0]) {
            assert!((found - expected / 6.0).abs() < 1e-12);
        }
    }

    /// Classes that are exchangeable under (a, S) have the same probability, whatever their order among the points.
    #[test]
    fn alike_classes_are_nearly_alike() {
        let covariance = DMatrix::from_row_slice(3, 3, &[1.0, 0.5, 0.5, 0.5, 1.0, 0.5, 0.5, 0.5, 1.0]);
        let found = SoftmaxMean::new(3).probabilities(&dvector![0.0, 0.0, 0.0], &covariance);
        // η_k − η_l has the same law for all pairs, the reference included.
        assert!(found.iter().all(|p| (p - 0.25).abs() < 2e-3), "{found:?}");
    }
}
