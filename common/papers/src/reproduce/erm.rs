//! Empirical risk minimisation for logistic regression, to compare with: exact, and by objective perturbation.

use dp_pvi_inference::records::RecordTable;
use dp_pvi_privacy::UnitTable;
use nalgebra::{Cholesky, DMatrix, DVector};

/// Σ over units of the mean loss of their records + ½ ridge ‖θ‖² + bᵀθ.
pub(super) struct Objective<'a> {
    pub(super) table: &'a RecordTable,
    pub(super) ridge: f64,
    pub(super) linear: DVector<f64>,
}

/// Noise and regularisation of objective perturbation (Kifer, Smith & Thakurta 2012, Gaussian form) for units whose loss has a gradient
/// of norm at most `bound` and curvature of rank one at most `bound`²/4: b ~ N(0, β² I) with β² = bound²(8 ln(2/δ) + 4ε)/ε², and a ridge of
/// at least 2·curvature/ε. A unit's loss is the mean over its records, so that a person with many records counts as one.
///
/// Its guarantee is about the exact minimiser for real numbers; Newton's method stops at a relative 1e-10. It is no mechanism of the product.
pub(super) fn perturbation(bound: f64, epsilon: f64, delta: f64) -> (f64, f64) {
    let sd = bound * (8.0 * (2.0 / delta).ln() + 4.0 * epsilon).sqrt() / epsilon;
    // A person's mean loss may have a Hessian of any rank; the trace, at most bound²/4, bounds its largest eigenvalue.
    (sd, 2.0 * 0.25 * bound * bound / epsilon)
}

impl Objective<'_> {
    /// The minimiser, by Newton's method with halved steps; `None` if it does not converge.
    pub(super) fn minimise(&self) -> Option<DVector<f64>> {
        let mut theta = DVector::zeros(self.linear.len());
        let mut value = self.value(&theta);
        for _ in 0..100 {
            let (gradient, hessian) = self.derivatives(&theta);
            let step = Cholesky::new(hessian)?.solve(&gradient);
            if step.dot(&gradient) < 1e-10 * (1.0 + value.abs()) {
                return Some(theta);
            }
            let mut length = 1.0;
            loop {
                let next = &theta - length * &step;
                let reached = self.value(&next);
                if reached <= value {
                    (theta, value) = (next, reached);
                    break;
                }
                length *= 0.5;
                if length < 1e-10 {
                    return Some(theta);
                }
            }
        }
        None
    }

    fn value(&self, theta: &DVector<f64>) -> f64 {
        let mut sum = 0.5 * self.ridge * theta.norm_squared() + self.linear.dot(theta);
        for unit in 0..self.table.len() {
            let view = self.table.unit(unit);
            let weight = weight(view.records().count());
            for record in view.records() {
                let logit: f64 = record.entries().map(|(j, x)| x * theta[j]).sum();
                let softplus = logit.max(0.0) + (-logit.abs()).exp().ln_1p();
                sum += weight * (softplus - record.target * logit);
            }
        }
        sum
    }

    fn derivatives(&self, theta: &DVector<f64>) -> (DVector<f64>, DMatrix<f64>) {
        let d = theta.len();
        let mut gradient = theta * self.ridge + &self.linear;
        let mut hessian = DMatrix::identity(d, d) * self.ridge;
        for unit in 0..self.table.len() {
            let view = self.table.unit(unit);
            let weight = weight(view.records().count());
            for record in view.records() {
                let logit: f64 = record.entries().map(|(j, x)| x * theta[j]).sum();
                let p = 1.0 / (1.0 + (-logit).exp());
                let (first, second) = (weight * (p - record.target), weight * p * (1.0 - p));
                for (i, x) in record.entries() {
                    gradient[i] += first * x;
                    record.entries().for_each(|(j, y)| hessian[(i, j)] += second * x * y);
                }
            }
        }
        (gradient, hessian)
    }
}

#[allow(clippy::cast_precision_loss, reason = "a number of records")]
fn weight(records: usize) -> f64 {
    1.0 / records.max(1) as f64
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::{Objective, perturbation};
    use dp_pvi_inference::records::RecordTable;
    use nalgebra::DVector;

    /// One coefficient, two units, one with two records: the root of the gradient.
    #[test]
    fn the_minimiser_has_no_gradient_and_a_person_counts_once() {
        let mut builder = RecordTable::builder(1);
        builder.start_unit();
        builder.push(&[0], &[1.0], 1.0).unwrap();
        builder.push(&[0], &[1.0], 1.0).unwrap();
        builder.start_unit();
        builder.push(&[0], &[2.0], 0.0).unwrap();
        let table = builder.finish();
        let objective = Objective { table: &table, ridge: 0.5, linear: DVector::from_element(1, 0.1) };
        let theta = objective.minimise().unwrap()[0];
        let sigmoid = |x: f64| 1.0 / (1.0 + (-x).exp());
        let gradient = (sigmoid(theta) - 1.0) + 2.0 * sigmoid(2.0 * theta) + 0.5 * theta + 0.1;
        assert!(gradient.abs() < 1e-6, "{gradient}");
        let (sd, ridge) = perturbation(2.0, 1.0, 1e-5);
        assert!((sd - 2.0 * (8.0 * 2e5_f64.ln() + 4.0).sqrt()).abs() < 1e-12 && (ridge - 2.0).abs() < 1e-12);
    }
}
