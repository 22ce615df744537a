//! Measurements of a likelihood from points on the way, taken to θ̄ by the model.
//!
//! Measurement t released the gradient g̃_t at a public point μ_t, with noise. On the way δ_t = θ̄ − μ_t the curvature changes. By how much follows from the model and the moments of rows: with
//! n rows of mean m and covariance V, and normal predictors z ~ N(mᵀθ, s²), s² = θᵀVθ,
//!
//! M(θ) = n[E c (mmᵀ + V) + E c′ (m(Vθ)ᵀ + (Vθ)mᵀ) + E c″ Vθ(Vθ)ᵀ], E c′ = E(cu)/s, E c″ = E(c(u² − 1))/s² (Stein's identity).
//!
//! The mean over the way, by Gauss's rule of three points, is the slope of the secant: g(θ̄) ≈ g̃_t − A_t δ_t with
//!
//! A_t = H + M̄_t − M(θ̄) without negative eigenvalues, H what is known of the curvature at θ̄. Then with weights w_t that add up to 1
//!
//! A = Σ w_t A_t, y = Σ w_t (g̃_t + A_t μ_t), ε = Σ w_t (M̄_t − M(μ_t)) δ_t.
//!
//! y ~ N(Aθ, S) finds the mean, S = κH + N + (¼)² εεᵀ and errors of H: the model may be wrong by a quarter of what it moves the gradient by. An interval is as wide as the curvature at θ̄ makes it,
//! not as the secant does: y′ = y + (H − A)θ̄ ~ N(Hθ, S) is what widths and other priors are found from ([`gaussian_likelihood`](crate::gaussian_likelihood)).
//!
//! **Source**: this project.

use nalgebra::{Cholesky, DMatrix, DVector};

use crate::gaussian_likelihood::GaussianLikelihood;
use crate::uncertain_curvature::without_negative_eigenvalues;

/// Nodes of the trapezoid rule, to either side, and their distance in standard deviations.
const NODES: i32 = 12;
const STEP: f64 = 0.5;

/// A predictor is taken to vary by at least this.
const LEAST_SPREAD: f64 = 0.05;

/// Gauss's rule of three points on [0, 1].
const WAY: [(f64, f64); 3] = [(5.0 / 18.0, 0.1127), (8.0 / 18.0, 0.5), (5.0 / 18.0, 0.8873)];

/// By how much of what the model moves a gradient by it may be wrong, as a standard deviation.
pub const BY_MODEL: f64 = 0.25;

/// Least and largest ratio of the released curvatures to the model's, where the unit of the rows' number is known.
const SCALES: (f64, f64) = (0.2, 5.0);

/// If the noise on the trace of the released curvatures exceeds this multiple of the model's trace, the model is not scaled.
const UNKNOWN_SCALE: f64 = 0.5;

/// Ratio of κ for rows of different lengths to κ for rows of one length.
const OF_TYPICAL_ROWS: f64 = 1.5;

/// Largest change of a typical record's predictor in one step of θ.
const LONGEST: f64 = 1.5;

/// Rows by their moments.
#[derive(Debug, Clone, PartialEq)]
pub struct Rows {
    /// n.
    pub count: f64,
    /// m, d numbers.
    pub mean: DVector<f64>,
    /// V, d × d, positive semidefinite.
    pub covariance: DMatrix<f64>,
}

impl Rows {
    /// The standard deviation of the predictor at θ, and where its nodes lie with their weights.
    fn nodes(&self, theta: &DVector<f64>) -> (f64, impl Iterator<Item = (f64, f64, f64)> + Clone) {
        let spread = theta.dot(&(&self.covariance * theta)).max(0.0).sqrt().max(LEAST_SPREAD);
        let centre = self.mean.dot(theta);
        let density = |u: f64| (-0.5 * u * u).exp();
        let total: f64 = (-NODES..=NODES).map(|k| density(STEP * f64::from(k))).sum();
        let node = move |k: i32| {
            let u = STEP * f64::from(k);
            (u, centre + spread * u, density(u) / total)
        };
        (spread, (-NODES..=NODES).map(node))
    }

    /// E f(z) at θ.
    #[must_use]
    pub fn expectation<const N: usize>(&self, theta: &DVector<f64>, f: impl Fn(f64) -> [f64; N]) -> [f64; N] {
        let mut sums = [0.0; N];
        for (_, z, weight) in self.nodes(theta).1 {
            sums.iter_mut().zip(f(z)).for_each(|(sum, value)| *sum += weight * value);
        }
        sums
    }

    /// The step of θ, shortened so that the predictor of a typical record changes by at most 1.5: the model is evaluated near a point where it fitted.
    #[must_use]
    pub fn shortened(&self, step: DVector<f64>) -> DVector<f64> {
        let along = self.mean.dot(&step);
        let length = (along * along + step.dot(&(&self.covariance * &step))).max(0.0).sqrt();
        if length > LONGEST { step * (LONGEST / length) } else { step }
    }

    /// M(θ), d × d, for the curvature c of a record by its predictor.
    ///
    /// # Panics
    /// θ of another dimension than the rows.
    #[must_use]
    pub fn curvature(&self, theta: &DVector<f64>, c: impl Fn(f64) -> f64) -> DMatrix<f64> {
        let (spread, nodes) = self.nodes(theta);
        let (mut none, mut one, mut two) = (0.0, 0.0, 0.0);
        for (u, z, weight) in nodes {
            let c = weight * c(z);
            none += c;
            one += c * u / spread;
            two += c * (u * u - 1.0) / (spread * spread);
        }
        let along = &self.covariance * theta;
        let side = &self.mean * along.transpose();
        let moments = &self.mean * self.mean.transpose() + &self.covariance;
        (moments * none + (&side + side.transpose()) * one + &along * along.transpose() * two) * self.count
    }
}

/// A model's curvatures of records.
pub struct Curvatures<'a> {
    /// The records.
    pub rows: Rows,
    /// The weight ω and the curvature c of a record with this predictor.
    pub of_record: Box<dyn Fn(f64) -> [f64; 2] + 'a>,
    /// How far the released curvatures may differ from the model's.
    pub scale: Scale,
}

/// The allowed ratio of the released curvatures to the model's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scale {
    /// Between 0.2 and 5: rows are not normal, and their number has noise.
    Near,
    /// Any: the unit of the rows' number is unknown.
    Free,
}

impl Curvatures<'_> {
    /// Σ ωc xxᵀ at θ.
    #[must_use]
    pub fn at(&self, theta: &DVector<f64>) -> DMatrix<f64> {
        self.rows.curvature(theta, |z| (self.of_record)(z).iter().product())
    }

    /// κ, the ratio of the covariance of the records' scores to H: E ω²c/E ωc times a factor for rows of different lengths, at most 1. No weight exceeds 1, and without weights κ is 1.
    #[must_use]
    pub fn score_share(&self, theta: &DVector<f64>) -> f64 {
        let [once, twice] = self.rows.expectation(theta, |z| {
            let [weight, c] = (self.of_record)(z);
            [weight * c, weight * weight * c]
        });
        (OF_TYPICAL_ROWS * twice / once).min(1.0)
    }

    /// The difference between the curvature at θ and its weighted mean over the points, and the ratio of the released curvatures to the model's, by which the difference is multiplied. `seen`
    /// is Σ w tr H̃_t, `noise` the variance of its noise; the ratio is that of `seen` to the model's trace.
    #[must_use]
    pub fn change<'p>(
        &self,
        points: impl Iterator<Item = (&'p DVector<f64>, f64)>,
        theta: &DVector<f64>,
        (seen, noise): (f64, f64),
    ) -> (DMatrix<f64>, f64) {
        let there = self.at(theta);
        let mean = points.map(|(point, weight)| self.at(point) * weight).reduce(|a, b| a + b).unwrap_or_else(|| there.clone());
        let of_model = mean.trace();
        let scale = match self.scale {
            _ if noise.max(0.0).sqrt() > UNKNOWN_SCALE * of_model => 1.0,
            Scale::Near => (seen / of_model).clamp(SCALES.0, SCALES.1),
            Scale::Free => (seen / of_model).max(0.0),
        };
        ((there - mean) * scale, scale)
    }
}

/// A measurement of a likelihood.
#[derive(Debug, Clone, Copy)]
pub struct Measurement<'a> {
    /// μ_t.
    pub point: &'a DVector<f64>,
    /// g̃_t.
    pub gradient: &'a DVector<f64>,
    /// w_t.
    pub weight: f64,
}

/// Measurements that were taken to θ̄.
#[derive(Debug, Clone, PartialEq)]
pub struct Taken {
    /// M(μ_t).
    pub at_points: Vec<DMatrix<f64>>,
    /// M̄_t.
    pub on_path: Vec<DMatrix<f64>>,
    /// A.
    pub secant: DMatrix<f64>,
    /// y.
    pub pull: DVector<f64>,
    /// Σ w_t A_t μ_t = A μ_r.
    pub of_points: DVector<f64>,
    /// ε.
    pub moved: DVector<f64>,
    /// Error variance of every measurement due to the model: (¼)² times the mean square of the entries of (M̄_t − M(μ_t)) δ_t.
    pub bends: Vec<f64>,
}

impl Taken {
    /// Takes measurements to `theta`, where the likelihood has the curvature H. `model` is M. `None` without a measurement, or for numbers that are not finite.
    ///
    /// # Panics
    /// Vectors and matrices of different dimensions.
    #[must_use]
    pub fn new(
        measurements: &[Measurement<'_>],
        theta: &DVector<f64>,
        curvature: &DMatrix<f64>,
        model: impl Fn(&DVector<f64>) -> DMatrix<f64>,
    ) -> Option<Self> {
        let d = theta.len();
        let there = model(theta);
        let mut all = Self {
            at_points: Vec::with_capacity(measurements.len()),
            on_path: Vec::with_capacity(measurements.len()),
            secant: DMatrix::zeros(d, d),
            pull: DVector::zeros(d),
            of_points: DVector::zeros(d),
            moved: DVector::zeros(d),
            bends: Vec::with_capacity(measurements.len()),
        };
        for measurement in measurements {
            let way = theta - measurement.point;
            let here = model(measurement.point);
            let path = WAY.iter().map(|(weight, along)| model(&(measurement.point + &way * *along)) * *weight).reduce(|a, b| a + b)?;
            let secant = curvature + &path - &there;
            // The secant is nearly always positive definite, and a factorisation is faster than eigenvalues.
            let secant = if Cholesky::new(secant.clone()).is_some() { secant } else { without_negative_eigenvalues(secant)? };
            let of_point = &secant * measurement.point;
            all.pull += (measurement.gradient + &of_point) * measurement.weight;
            all.of_points += of_point * measurement.weight;
            all.secant += secant * measurement.weight;
            let moved = (&path - &here) * way;
            all.bends.push(BY_MODEL * BY_MODEL * moved.map(|value| value * value).mean());
            all.moved += moved * measurement.weight;
            all.at_points.push(here);
            all.on_path.push(path);
        }
        (!measurements.is_empty() && all.pull.iter().all(|value| value.is_finite())).then_some(all)
    }

    /// μ_r = A⁻¹ Σ w_t A_t μ_t, the point at which errors of H cancel. `None` if A has no inverse.
    #[must_use]
    pub fn reference(&self) -> Option<DVector<f64>> {
        Some(Cholesky::new(self.secant.clone())?.solve(&self.of_points)).filter(|point| point.iter().all(|value| value.is_finite()))
    }

    /// (¼)² εεᵀ.
    #[must_use]
    pub fn by_model(&self) -> DMatrix<f64> {
        &self.moved * self.moved.transpose() * (BY_MODEL * BY_MODEL)
    }

    /// The θ of the largest −½(y − Aθ)ᵀS⁻¹(y − Aθ) − ½(θ − m0)ᵀΛ0(θ − m0), for an S that is taken for known and a Λ0 of this diagonal. `None` where S is not positive definite.
    #[must_use]
    pub fn mode(&self, covariance: &DMatrix<f64>, prior_mean: &DVector<f64>, prior_precision: &DVector<f64>) -> Option<DVector<f64>> {
        let factor = Cholesky::new(covariance.clone())?;
        let matrix = &self.secant * factor.solve(&self.secant) + DMatrix::from_diagonal(prior_precision);
        let vector = &self.secant * factor.solve(&self.pull) + prior_precision.component_mul(prior_mean);
        Some(Cholesky::new(matrix)?.solve(&vector))
    }

    /// (y′, H, S): what widths and other priors are found from.
    #[must_use]
    pub fn at(&self, theta: &DVector<f64>, curvature: DMatrix<f64>, covariance: DMatrix<f64>) -> GaussianLikelihood {
        GaussianLikelihood { pull: &self.pull + (&curvature - &self.secant) * theta, curvature, covariance }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::{Measurement, Rows, Taken};
    use crate::expectation::expectation_of_two;
    use nalgebra::{DMatrix, DVector};

    fn rows() -> Rows {
        let covariance = DMatrix::from_row_slice(3, 3, &[0.0, 0.0, 0.0, 0.0, 1.2, 0.4, 0.0, 0.4, 0.7]);
        Rows { count: 500.0, mean: DVector::from_vec(vec![1.0, 0.3, -0.2]), covariance }
    }

    fn sigmoid(z: f64) -> f64 {
        1.0 / (1.0 + (-z).exp())
    }

    fn logistic(z: f64) -> f64 {
        sigmoid(z) * sigmoid(-z)
    }

    /// Σ f(xᵀθ) x and Σ c x xᵀ of normal rows, by a sum over their two numbers.
    fn sums(theta: &DVector<f64>, truth: &DVector<f64>) -> (DVector<f64>, DMatrix<f64>) {
        let rows = rows();
        let found = expectation_of_two([0.3, -0.2], [1.2, 0.4, 0.7], |[a, b]| {
            let x = DVector::from_vec(vec![1.0, a, b]);
            let (z, residual) = (x.dot(theta), sigmoid(x.dot(truth)) - sigmoid(x.dot(theta)));
            let mut sums = [0.0; 12];
            for i in 0..3 {
                sums[i] = residual * x[i];
                (0..3).for_each(|j| sums[3 + 3 * i + j] = logistic(z) * x[i] * x[j]);
            }
            sums
        });
        (DVector::from_column_slice(&found[..3]) * rows.count, DMatrix::from_row_slice(3, 3, &found[3..]) * rows.count)
    }

    #[test]
    fn the_model_has_the_curvature_of_normal_rows() {
        let theta = DVector::from_vec(vec![-0.8, 1.1, -0.6]);
        let (_, exact) = sums(&theta, &theta);
        let found = rows().curvature(&theta, logistic);
        assert!((&found - &exact).norm() < 1e-3 * exact.norm(), "{found} {exact}");
    }

    /// Exact gradients on the way to a far truth: their secants lead to it, their tangents do not.
    #[test]
    fn measurements_on_the_way_lead_to_where_the_gradient_is_0() {
        let truth = DVector::from_vec(vec![-1.5, 1.4, -1.0]);
        let points: Vec<DVector<f64>> = [0.0, 0.3, 0.6].iter().map(|part| &truth * *part).collect();
        let gradients: Vec<DVector<f64>> = points.iter().map(|point| sums(point, &truth).0).collect();
        let measurements: Vec<Measurement<'_>> =
            points.iter().zip(&gradients).map(|(point, gradient)| Measurement { point, gradient, weight: 1.0 / 3.0 }).collect();
        let h = rows().curvature(&truth, logistic);
        let model = |theta: &DVector<f64>| rows().curvature(theta, logistic);
        let taken = Taken::new(&measurements, &truth, &h, model).unwrap();
        let (mean, precision) = (DVector::zeros(3), DVector::repeat(3, 1e-9));
        let found = taken.mode(&h, &mean, &precision).unwrap();
        assert!((&found - &truth).norm() < 5e-3, "{found}");
        let linear = Taken::new(&measurements, &truth, &h, |_| h.clone()).unwrap().mode(&h, &mean, &precision).unwrap();
        assert!((linear - &truth).norm() > 0.1);
        // About θ̄ both forms of the likelihood say the same.
        let at = taken.at(&found, h.clone(), h.clone());
        let pulled = h.clone().cholesky().unwrap().solve(&at.pull);
        assert!((pulled - &found).norm() < 1e-6);
    }
}
