//! Expected gradient and its variance at a point μ if the truth is θ, for models whose curvature changes between the two.
//!
//! A record with features x and weight ω (of its gradient at μ) adds ω r̄ x to the gradient, with r̄(η; η′) the residual at η = xᵀμ of the label that is expected at η′ = xᵀθ, while the curvature
//! that was released at μ has ωc at xᵀμ. A probit's c falls from 0.64 at a predictor of 0 to 0.13 at 2: measurements on the way to θ, taken with their own curvature, stop short of it. And records near
//! xᵀθ = 0 are heavy, among which numbers are correlated though they are not among all. With D = r₁ − r₀ the residuals of the two labels at η, and p the chance of label 1 at η′,
//!
//! * a gradient is E ω r̄ x a record,
//! * the released curvature E ωc xxᵀ,
//! * the derivative of the gradient by θ is J = E ωD p′ xxᵀ,
//! * its variance over the draw of the labels is S = E (ωD)² p(1 − p) xxᵀ; for several measurements with weights w it is at most the weighted mean, since
//!   (Σ w ωD)² ≤ Σ w (ωD)².
//!
//! Rows are taken for normal given the two predictors. Their moments follow from the diagonal of H and the schema, in which records are weighted by c; whoever asks takes c out. A residual
//! has to be linear in the label, as that of two classes always is. Source: this project; with J it is a Gauss–Newton step.

use nalgebra::{DMatrix, DVector};

use crate::ModelSpec;
use crate::predictor::{Predictor, Statistics};
use dp_pvi_math::expectation::{expectation, expectation_of_two};

/// Expectations a record, over the measurements of a run by their weights.
#[derive(Debug)]
pub struct Expected {
    /// Of the gradient.
    pub gradient: DVector<f64>,
    /// Of the released curvature.
    pub curvature: DMatrix<f64>,
    /// J.
    pub tangent: DMatrix<f64>,
    /// S.
    pub scores: DMatrix<f64>,
    /// The trace of every measurement's curvature, over that of all.
    pub proportions: Vec<f64>,
}

/// Rows, and how heavy a record is in a gradient.
pub struct Rows<'a> {
    /// Second moments, of which the intercept's is 1.
    pub moments: &'a DMatrix<f64>,
    /// The intercept's coordinate.
    pub intercept: usize,
    /// ω, of what a record adds with either label.
    pub weight: &'a dyn Fn([Statistics; 2]) -> f64,
}

/// Moments of a weight f with the standard scores u and v of the predictors: E f, E fu, E fv, E fu², E fuv, E fv².
type Moments = [f64; 6];

impl Expected {
    /// Of looks at these points with these weights, if the truth is `end`. `None` for numbers that cannot be computed with.
    pub fn new(model: &dyn Predictor, (points, weights): (&[&DVector<f64>], &[f64]), end: &DVector<f64>, rows: &Rows<'_>) -> Option<Self> {
        let d = end.len();
        let mean: DVector<f64> = rows.moments.column(rows.intercept).into_owned();
        let covariance = rows.moments - &mean * mean.transpose();
        let centre = mean.dot(end);
        let of_end = &covariance * end;
        let sd = of_end.dot(end).max(0.0).sqrt();
        // Cov(x, u).
        let first = if sd > 0.0 { of_end / sd } else { DVector::zeros(d) };
        let with_labels = |at: f64| [0.0, 1.0].map(|label| model.statistics(at, 0.0, label));
        let mut all = Self {
            gradient: DVector::zeros(d),
            curvature: DMatrix::zeros(d, d),
            tangent: DMatrix::zeros(d, d),
            scores: DMatrix::zeros(d, d),
            proportions: Vec::with_capacity(points.len()),
        };
        for (point, share) in points.iter().zip(weights) {
            let of_point = &covariance * *point;
            let (here_mean, along) = (mean.dot(point), first.dot(point));
            let across = (of_point.dot(point) - along * along).max(0.0).sqrt();
            // Cov(x, v); rounding leaves a little where both predictors are one.
            let second = if across > 1e-6 * (1.0 + along.abs()) { (of_point - &first * along) / across } else { DVector::zeros(d) };
            let sums = expectation_of_two([0.0, 0.0], [1.0, 0.0, 1.0], |[u, v]| {
                let (there, here) = (centre + sd * u, here_mean + along * u + across * v);
                let [zero, one] = with_labels(there);
                let difference = one.residual - zero.residual;
                let label = -zero.residual / difference;
                let slope = (zero.curvature * one.residual - one.curvature * zero.residual) / (difference * difference);
                let at_measurement = with_labels(here);
                let weight = (rows.weight)(at_measurement);
                let [zero, one] = at_measurement;
                let difference = weight * (one.residual - zero.residual);
                let curvature = weight * (zero.curvature + label * (one.curvature - zero.curvature));
                let residual = weight * zero.residual + label * difference;
                let varies = difference * difference * label * (1.0 - label);
                let mut terms = [0.0; 21];
                for (part, f) in [curvature, difference * slope, varies].into_iter().enumerate() {
                    terms[6 * part..6 * part + 6].copy_from_slice(&[f, f * u, f * v, f * u * u, f * u * v, f * v * v]);
                }
                terms[18..].copy_from_slice(&[residual, residual * u, residual * v]);
                terms
            });
            let rest = &covariance - &first * first.transpose() - &second * second.transpose();
            let matrix = |[one, u, v, uu, uv, vv]: Moments| {
                let side = &mean * (&first * u + &second * v).transpose();
                let mixed = &first * second.transpose() * uv;
                (&mean * mean.transpose() + &rest) * one
                    + &side
                    + side.transpose()
                    + &first * first.transpose() * uu
                    + &second * second.transpose() * vv
                    + &mixed
                    + mixed.transpose()
            };
            let part = |k: usize| -> Moments { std::array::from_fn(|i| sums[6 * k + i]) };
            let curvature = matrix(part(0));
            all.proportions.push(curvature.trace());
            all.curvature += curvature * *share;
            all.tangent += matrix(part(1)) * *share;
            all.scores += matrix(part(2)) * *share;
            all.gradient += (&mean * sums[18] + &first * sums[19] + &second * sums[20]) * *share;
        }
        let trace = all.curvature.trace();
        all.proportions.iter_mut().for_each(|own| *own /= trace);
        let positive = |value: &f64| value.is_finite() && *value > 0.0;
        let usable = [&all.curvature, &all.tangent, &all.scores].iter().all(|matrix| matrix.diagonal().iter().all(positive))
            && all.gradient.iter().all(|value| value.is_finite())
            && all.proportions.iter().all(positive);
        usable.then_some(all)
    }

    /// The same of all records, whose released curvature has this diagonal.
    #[must_use]
    pub fn of_all(self, diagonal: &DVector<f64>) -> Self {
        let records = diagonal.component_div(&self.curvature.diagonal());
        let root = records.map(f64::sqrt);
        let scaled = |matrix: DMatrix<f64>| DMatrix::from_fn(root.len(), root.len(), |i, j| matrix[(i, j)] * root[i] * root[j]);
        Self {
            gradient: self.gradient.component_mul(&records),
            curvature: scaled(self.curvature),
            tangent: scaled(self.tangent),
            scores: scaled(self.scores),
            proportions: self.proportions,
        }
    }
}

/// E c xxᵀ for rows with these second moments, of which entry `intercept` is 1. `None` for numbers that cannot be computed with.
pub fn weighted_moments(moments: &DMatrix<f64>, intercept: usize, coefficients: &DVector<f64>, model: &ModelSpec) -> Option<DMatrix<f64>> {
    let predictor = model.rules().predictor()?;
    let mean = moments.column(intercept);
    let centre = mean.dot(coefficients);
    let shared = moments * coefficients - mean * centre;
    let variance = shared.dot(coefficients);
    let weight = |t: f64| {
        let [zero, one] = [0.0, 1.0].map(|label| predictor.statistics(centre + t, 0.0, label));
        expected_curvature(zero, one)
    };
    let usable = |matrix: &DMatrix<f64>| matrix.diagonal().iter().all(|entry| *entry > 0.0 && entry.is_finite());
    if variance.partial_cmp(&1e-12).is_none_or(std::cmp::Ordering::is_lt) {
        // All records have the same predictor.
        return Some(moments * weight(0.0)).filter(usable);
    }
    let [none, one, two] = expectation(0.0, variance, |t| {
        let weight = weight(t);
        [weight, weight * t / variance, weight * t * t / variance]
    });
    let both = mean * shared.transpose();
    let matrix = moments * none + (&both + both.transpose()) * one + &shared * shared.transpose() * ((two - none) / variance);
    Some(matrix).filter(usable)
}

/// Mean of the curvature over both labels, from what either adds. Label 1 has the probability for which the mean of the residual is 0; without two classes any number serves, since
/// the curvature does not depend on the label.
pub fn expected_curvature(zero: Statistics, one: Statistics) -> f64 {
    let ones = zero.residual / (zero.residual - one.residual);
    let ones = if ones.is_finite() { ones.clamp(0.0, 1.0) } else { 0.5 };
    zero.curvature + ones * (one.curvature - zero.curvature)
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::cast_precision_loss)]
mod tests {
    use super::{Expected, Rows};
    use crate::logistic_regression::LogisticRegression;
    use crate::predictor::{Predictor, Statistics};
    use crate::probit_regression::ProbitRegression;
    use dp_pvi_math::expectation::expectation_of_two;
    use dp_pvi_math::normal::{cdf, density};
    use nalgebra::{DMatrix, DVector};

    fn close(got: &DMatrix<f64>, expected: &DMatrix<f64>, tolerance: f64) {
        assert!((got - expected).norm() <= tolerance * expected.norm(), "{got} {expected}");
    }

    /// By sums over rows (a, b, 1) of two normal numbers that are correlated and off their centre.
    #[test]
    fn measurements_have_the_expectations_of_their_records() {
        let model = ProbitRegression {};
        let (means, spread) = ([0.3, -0.2], [1.0, 0.4, 0.8]);
        let moments = {
            let mean = DVector::from_vec(vec![means[0], means[1], 1.0]);
            let covariance = DMatrix::from_row_slice(3, 3, &[spread[0], spread[1], 0.0, spread[1], spread[2], 0.0, 0.0, 0.0, 0.0]);
            &mean * mean.transpose() + covariance
        };
        let own = |s: [Statistics; 2]| 1.0 / (1.0 + s[0].curvature + s[1].curvature);
        let points = [DVector::from_vec(vec![0.4, 0.3, -0.2]), DVector::from_vec(vec![-0.2, 0.6, 0.1])];
        let (end, weights) = (DVector::from_vec(vec![1.3, -0.4, 0.3]), [0.25, 0.75]);
        let rows = Rows { moments: &moments, intercept: 2, weight: &own };
        let got = Expected::new(&model, (&[&points[0], &points[1]], &weights), &end, &rows).unwrap();
        let sums = expectation_of_two(means, spread, |[a, b]| {
            let x = DVector::from_vec(vec![a, b, 1.0]);
            let mut sums = [0.0; 30];
            for (point, share) in points.iter().zip(weights) {
                let (here, there) = (x.dot(point), x.dot(&end));
                let [zero, one] = [0.0, 1.0].map(|label| model.statistics(here, 0.0, label));
                let (p, omega, difference) = (cdf(there), own([zero, one]), one.residual - zero.residual);
                let curvature = omega * (p * one.curvature + (1.0 - p) * zero.curvature);
                let varies = (omega * difference).powi(2) * p * (1.0 - p);
                for i in 0..3 {
                    sums[27 + i] += share * omega * (p * one.residual + (1.0 - p) * zero.residual) * x[i];
                    for j in 0..3 {
                        let parts = [curvature, omega * difference * density(there), varies];
                        parts.iter().enumerate().for_each(|(k, part)| sums[9 * k + 3 * i + j] += share * part * x[i] * x[j]);
                    }
                }
            }
            sums
        });
        let matrix = |k: usize| DMatrix::from_row_slice(3, 3, &sums[9 * k..9 * k + 9]);
        close(&got.curvature, &matrix(0), 3e-3);
        close(&got.tangent, &matrix(1), 3e-3);
        close(&got.scores, &matrix(2), 3e-3);
        assert!((&got.gradient - DVector::from_column_slice(&sums[27..])).norm() < 3e-3 * got.gradient.norm());
        // Records near xᵀθ = 0 are heavy: a and b are correlated otherwise than among all records.
        assert!(got.tangent[(0, 1)] > 1.2 * got.tangent[(0, 0)] * moments[(0, 1)] / moments[(0, 0)]);
    }

    /// Where a measurement has converged its gradient is 0 and changes by its curvature, by which it varies too; a weight ω adds ω and ω².
    #[test]
    fn measurements_that_have_arrived_have_their_own_curvature() {
        let end = DVector::from_vec(vec![0.8, -0.3]);
        let moments = DMatrix::identity(2, 2);
        let rows = Rows { moments: &moments, intercept: 1, weight: &|_| 0.5 };
        for model in [&ProbitRegression {} as &dyn Predictor, &LogisticRegression {}] {
            let got = Expected::new(model, (&[&end, &end], &[0.5, 0.5]), &end, &rows).unwrap();
            close(&got.tangent, &got.curvature, 1e-9);
            close(&(got.scores * 2.0), &got.curvature, 1e-9);
            assert!(got.gradient.norm() < 1e-9 && (got.proportions[0] - 1.0).abs() < 1e-9);
        }
    }

    /// Of a count with rate e^η and normal rows, Σ c xxᵀ is that of rows about Cov(x, η), times E e^η.
    #[test]
    fn weights_of_counts_move_the_mean_of_rows() {
        use crate::poisson_regression::PoissonRegression;
        let coefficients = DVector::from_vec(vec![0.4, -0.3, 0.2]);
        // Two numbers of means 0.5 and 0, variance 1 and correlation 0.6, and the intercept.
        let moments =
            |[a, b]: [f64; 2]| DMatrix::from_row_slice(3, 3, &[1.0 + a * a, 0.6 + a * b, a, 0.6 + a * b, 1.0 + b * b, b, a, b, 1.0]);
        let got = super::weighted_moments(&moments([0.5, 0.0]), 2, &coefficients, &PoissonRegression {}.into()).unwrap();
        let shift = [0.4 - 0.3 * 0.6, 0.4 * 0.6 - 0.3];
        let variance = 0.4 * shift[0] - 0.3 * shift[1];
        let expected = moments([0.5 + shift[0], shift[1]]) * (0.4f64 * 0.5 + 0.2 + 0.5 * variance).exp();
        assert!((got - &expected).norm() < 1e-9 * expected.norm());
    }
}
