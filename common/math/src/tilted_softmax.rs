//! Probabilities of several classes whose predictors are jointly normal: an upper bound of E ln Σ e^η, and what follows from it.
//!
//! η_0 = 0 belongs to the reference class, η ~ N(a, S) to the P others. For any α, multiply and divide by e^(αᵀη); with Jensen's inequality
//!
//! E ln Σ_k e^(η_k) ≤ ½ αᵀSα + ln Σ_k exp(t_k), t = a + ½ diag S − Sα, t_0 = 0,
//!
//! which is convex in α. At its minimum α is p = softmax(t), without the entry of the reference. So f = a_y − (the bound) is a lower bound of E ln p(y), and as
//! the derivative by α vanishes, ∂f/∂a = e_y − p and −2 ∂f/∂S = diag p − ppᵀ exactly. Where S = 0 the bound is the value itself.
//!
//! **Source**: Knowles and Minka 2011 (the tilted bound).

use nalgebra::{DMatrix, DVector};

/// Newton's steps, and times that one is halved.
const STEPS: usize = 50;
const HALVINGS: usize = 30;
/// Largest difference of α and the softmax that is left.
const TOLERANCE: f64 = 1e-14;
/// Below this difference a step squares it, as long as it is not of rounding.
const NEAR: f64 = 1e-8;
/// A step is taken if the bound rises by no more than this share of itself, which is rounding.
const SLACK: f64 = 1e-15;

/// The bound at its minimum.
#[derive(Debug, Clone, PartialEq)]
pub struct TiltedSoftmax {
    /// p of every class but the reference.
    pub probabilities: DVector<f64>,
    /// What E ln Σ e^η is at most.
    pub log_sum: f64,
}

impl TiltedSoftmax {
    /// Of predictors with this mean and covariance, by Newton's method from p at S = 0.
    ///
    /// 0.25 µs for three classes and 1.5 µs for ten on one core (`cargo bench -p dp-pvi-math --bench tilted_softmax`).
    #[must_use]
    pub fn new(mean: &DVector<f64>, covariance: &DMatrix<f64>) -> Self {
        let count = mean.len();
        let bound = Bound { mean: mean.as_slice(), covariance: covariance.as_slice() };
        // One piece of memory for all vectors of the search, as one record after the other comes here.
        let mut memory = vec![0.0; count * (count + 7)];
        let (slope, rest) = memory.split_at_mut(count * count);
        let mut vectors = rest.chunks_exact_mut(count.max(1));
        let mut vector = || vectors.next().unwrap_or_default();
        let (alpha, next, step, image, tilted) = (vector(), vector(), vector(), vector(), vector());
        let (mut softmax, mut reached) = (vector(), vector());
        Bound { covariance: &[], ..bound }.at(&[], &mut [], alpha);
        let mut value = bound.at(alpha, image, softmax);
        let mut last = f64::INFINITY;
        for _ in 0..STEPS {
            step.iter_mut().zip(alpha.iter().zip(softmax.iter())).for_each(|(step, (alpha, p))| *step = alpha - p);
            let left = step.iter().fold(0.0_f64, |most, excess| most.max(excess.abs()));
            if left <= TOLERANCE || (left <= NEAR && left > 0.5 * last) {
                break;
            }
            last = left;
            bound.slope(softmax, tilted, slope);
            if !solve(slope, step) {
                break;
            }
            let mut shorten = 1.0;
            let taken = (0..=HALVINGS).find_map(|_| {
                next.iter_mut().zip(alpha.iter().zip(step.iter())).for_each(|(next, (alpha, step))| *next = alpha - step * shorten);
                shorten *= 0.5;
                let there = bound.at(next, image, reached);
                (there <= value + SLACK * (1.0 + value.abs())).then_some(there)
            });
            let Some(there) = taken else { break };
            value = there;
            alpha.copy_from_slice(next);
            std::mem::swap(&mut softmax, &mut reached);
        }
        // Entries of a softmax are probabilities, also where the search ended early.
        Self { probabilities: DVector::from_column_slice(softmax), log_sum: value }
    }

    /// f, a lower bound of E ln p(`class`); class 0 is the reference.
    #[must_use]
    pub fn log_probability(&self, mean: &DVector<f64>, class: usize) -> f64 {
        class.checked_sub(1).map_or(0.0, |k| mean[k]) - self.log_sum
    }

    /// ∂f/∂a = e_y − p.
    ///
    /// # Privacy
    /// ‖r‖ ≤ √2, and 1 where there are two classes: for y other than the reference ‖r‖² = (1 − p_y)² + Σ p_k² ≤ 2(1 − p_y)², the sum running over the others, and
    /// for the reference ‖p‖ ≤ 1. It holds for the numbers that are computed, as p is a softmax.
    #[must_use]
    pub fn residual(&self, class: usize) -> DVector<f64> {
        let mut residual = -&self.probabilities;
        if let Some(k) = class.checked_sub(1) {
            residual[k] += 1.0;
        }
        residual
    }

    /// −2 ∂f/∂S = diag p − ppᵀ.
    ///
    /// # Privacy
    /// Its Frobenius norm is at most ½, and ¼ where there are two classes: with s_n = Σ p_k^n its square is s_2 − 2s_3 + s_2² ≤ s_2 − s_2² ≤ ¼, as s_2² ≤ s_1 s_3 ≤ s_3
    /// (Cauchy and Schwarz).
    #[must_use]
    pub fn curvature(&self) -> DMatrix<f64> {
        curvature(&self.probabilities)
    }
}

fn curvature(p: &DVector<f64>) -> DMatrix<f64> {
    DMatrix::from_diagonal(p) - p * p.transpose()
}

/// The bound as a function of α. Vectors have P entries, and a matrix has its columns one after the other.
#[derive(Clone, Copy)]
struct Bound<'a> {
    mean: &'a [f64],
    /// S; empty for one of zeros.
    covariance: &'a [f64],
}

impl Bound<'_> {
    /// Its value, with Sα and softmax(t). Without a covariance α and Sα are not looked at.
    fn at(&self, alpha: &[f64], image: &mut [f64], softmax: &mut [f64]) -> f64 {
        let (mut largest, mut square) = (0.0_f64, 0.0);
        let count = self.mean.len();
        for (k, (&mean, t)) in self.mean.iter().zip(softmax.iter_mut()).enumerate() {
            *t = mean;
            if let Some(column) = self.covariance.get(k * count..(k + 1) * count) {
                image[k] = column.iter().zip(alpha).map(|(s, alpha)| s * alpha).sum();
                *t += 0.5 * column[k] - image[k];
                square += alpha[k] * image[k];
            }
            largest = largest.max(*t);
        }
        let mut sum = (-largest).exp();
        for t in softmax.iter_mut() {
            *t = (*t - largest).exp();
            sum += *t;
        }
        softmax.iter_mut().for_each(|p| *p /= sum);
        0.5 * square + largest + sum.ln()
    }

    /// I + (diag p − ppᵀ)S: the derivative of α − softmax by α.
    fn slope(&self, p: &[f64], tilted: &mut [f64], slope: &mut [f64]) {
        let count = p.len();
        for (j, column) in self.covariance.chunks_exact(count).enumerate() {
            tilted[j] = column.iter().zip(p).map(|(s, p)| s * p).sum();
            for (i, (&s, entry)) in column.iter().zip(&mut slope[j * count..]).enumerate() {
                *entry = p[i] * (s - tilted[j]) + f64::from(u8::from(i == j));
            }
        }
    }
}

/// Solves Ax = b in place, by elimination with the largest pivot of a column. Whether there was one everywhere.
fn solve(matrix: &mut [f64], right: &mut [f64]) -> bool {
    let count = right.len();
    let at = |i: usize, j: usize| i + j * count;
    for j in 0..count {
        let pivot = (j..count).fold(j, |best, i| if matrix[at(i, j)].abs() > matrix[at(best, j)].abs() { i } else { best });
        if matrix[at(pivot, j)] == 0.0 || !matrix[at(pivot, j)].is_finite() {
            return false;
        }
        if pivot != j {
            (j..count).for_each(|k| matrix.swap(at(j, k), at(pivot, k)));
            right.swap(j, pivot);
        }
        for i in j + 1..count {
            let factor = matrix[at(i, j)] / matrix[at(j, j)];
            for k in j + 1..count {
                matrix[at(i, k)] -= factor * matrix[at(j, k)];
            }
            right[i] -= factor * right[j];
        }
    }
    for i in (0..count).rev() {
        let known: f64 = (i + 1..count).map(|k| matrix[at(i, k)] * right[k]).sum();
        right[i] = (right[i] - known) / matrix[at(i, i)];
    }
    true
}

#[cfg(test)]
mod tests {
    use nalgebra::{DMatrix, DVector, dvector};
    use proptest::prelude::*;

    use super::TiltedSoftmax;
    use crate::quadrature::softplus;

    /// A covariance of this root.
    fn product(root: &DMatrix<f64>) -> DMatrix<f64> {
        root * root.transpose()
    }

    #[test]
    fn certain_predictors_have_the_softmax_itself() {
        let mean = dvector![1.0, -0.5];
        let at = TiltedSoftmax::new(&mean, &DMatrix::zeros(2, 2));
        let sum = 1.0 + 1f64.exp() + (-0.5_f64).exp();
        assert!((at.log_sum - sum.ln()).abs() < 1e-15 && (at.probabilities[0] - 1f64.exp() / sum).abs() < 1e-15);
        assert!((at.log_probability(&mean, 0) + sum.ln()).abs() < 1e-15);
        assert!((at.log_probability(&mean, 2) + 0.5 + sum.ln()).abs() < 1e-15);
    }

    #[test]
    fn two_classes_are_bounded_closely_from_above() {
        for (mean, variance, slack) in [(0.3, 0.01, 1e-5), (-1.0, 0.5, 0.02), (2.0, 4.0, 0.4)] {
            let at = TiltedSoftmax::new(&dvector![mean], &DMatrix::from_element(1, 1, variance));
            let exact = softplus(mean, variance);
            assert!(at.log_sum >= exact && at.log_sum <= exact + slack, "{mean} {variance}: {} {exact}", at.log_sum);
        }
    }

    #[test]
    fn far_and_wide_predictors_stay_finite() {
        for scale in [1e-9, 1.0, 1e3, 1e6] {
            let covariance = DMatrix::from_row_slice(2, 2, &[2.0, 1.0, 1.0, 3.0]) * scale;
            for mean in [dvector![900.0, -900.0], dvector![0.0, 0.0], dvector![-5e5, -4e5]] {
                let at = TiltedSoftmax::new(&mean, &covariance);
                assert!(at.log_sum.is_finite() && at.probabilities.iter().all(|p| (0.0..=1.0).contains(p)), "{scale} {mean} {at:?}");
                assert!(at.probabilities.sum() <= 1.0 + 1e-12);
            }
        }
    }

    proptest! {
        #[test]
        fn derivatives_are_those_of_finite_differences(
            mean in prop::collection::vec(-3.0..3.0_f64, 3), root in prop::collection::vec(-1.0..1.0_f64, 9), class in 0_usize..4,
        ) {
            let (mean, covariance) = (DVector::from_vec(mean), product(&DMatrix::from_vec(3, 3, root)));
            let f = |mean: &DVector<f64>, covariance: &DMatrix<f64>| TiltedSoftmax::new(mean, covariance).log_probability(mean, class);
            let at = TiltedSoftmax::new(&mean, &covariance);
            let (residual, curvature, h) = (at.residual(class), at.curvature(), 1e-5);
            for i in 0..3 {
                let mut step = DVector::zeros(3);
                step[i] = h;
                let slope = (f(&(&mean + &step), &covariance) - f(&(&mean - &step), &covariance)) / (2.0 * h);
                prop_assert!((slope - residual[i]).abs() < 1e-8, "{slope} {residual}");
                for j in 0..3 {
                    // A symmetric change has both entries.
                    let mut change = DMatrix::zeros(3, 3);
                    (change[(i, j)], change[(j, i)]) = (h, h);
                    let slope = (f(&mean, &(&covariance + &change)) - f(&mean, &(&covariance - &change))) / (2.0 * h);
                    let expected = -0.5 * curvature.component_mul(&change).sum() / h;
                    prop_assert!((slope - expected).abs() < 1e-8, "{slope} {expected}");
                }
            }
        }

        #[test]
        fn residual_and_curvature_keep_to_their_public_bounds(
            mean in prop::collection::vec(-30.0..30.0_f64, 1..5), root in prop::collection::vec(-4.0..4.0_f64, 16), wide in 0.0..3.0_f64,
        ) {
            let p = mean.len();
            let covariance = product(&DMatrix::from_fn(p, p, |i, j| wide * root[4 * i + j]));
            let at = TiltedSoftmax::new(&DVector::from_vec(mean), &covariance);
            let (residual, curvature) = if p == 1 { (1.0, 0.25) } else { (2f64.sqrt(), 0.5) };
            for class in 0..=p {
                prop_assert!(at.residual(class).norm() <= residual + 1e-12);
            }
            prop_assert!(at.curvature().norm() <= curvature + 1e-12);
        }

        /// The minimum is where α is the softmax: the bound there is not above that of its own start, nor of any other α.
        #[test]
        fn no_other_tilt_gives_a_smaller_bound(
            mean in prop::collection::vec(-3.0..3.0_f64, 2), root in prop::collection::vec(-2.0..2.0_f64, 4), other in prop::collection::vec(-1.0..2.0_f64, 2),
        ) {
            let (mean, covariance) = (DVector::from_vec(mean), product(&DMatrix::from_vec(2, 2, root)));
            let at = TiltedSoftmax::new(&mean, &covariance);
            let bound = super::Bound { mean: mean.as_slice(), covariance: covariance.as_slice() };
            let (mut image, mut softmax) = ([0.0; 2], DVector::zeros(2));
            let elsewhere = bound.at(&other, &mut image, softmax.as_mut_slice());
            prop_assert!(at.log_sum <= elsewhere + 1e-12);
            bound.at(at.probabilities.as_slice(), &mut image, softmax.as_mut_slice());
            prop_assert!((softmax - &at.probabilities).amax() < 1e-12);
        }

        #[test]
        fn elimination_solves(matrix in prop::collection::vec(-3.0..3.0_f64, 16), right in prop::collection::vec(-3.0..3.0_f64, 4)) {
            let (dense, wanted) = (DMatrix::from_vec(4, 4, matrix.clone()), DVector::from_vec(right.clone()));
            let (mut matrix, mut solution) = (matrix, right);
            prop_assert!(super::solve(&mut matrix, &mut solution));
            let solution = DVector::from_vec(solution);
            let left = (&dense * &solution - wanted).amax();
            prop_assert!(left <= 1e-11 * (1.0 + dense.norm() * solution.norm()), "{left}");
            prop_assert!(!super::solve(&mut [0.0; 16], &mut [1.0; 4]));
        }
    }
}
