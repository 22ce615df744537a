//! Moment matching, the step of expectation propagation and its relatives.
//!
//! A record's *site* f_n is what the record multiplies a cavity with, in the family of the approximation: the natural parameters of
//! proj[q_c · p(record | θ)] minus those of q_c. Models that can compute it offer the capability [`MomentMatching`]; what is
//! done with sites (one factor per record, one shared factor, none) is the update's business.
//!
//! For likelihoods of a linear predictor z = xᵀθ everything follows from two derivatives of the one-dimensional normaliser
//! Z(a, s²) = E p(y | z), z ~ N(a, s²): α = ∂ ln Z/∂a and β = −∂² ln Z/∂a². See [`TiltedPredictor`].

use dp_pvi_math::expfam::any::Family;
use dp_pvi_math::expfam::gaussian::full::{svec, triangle, unsvec};
use dp_pvi_math::tilted::Tilted;
use dp_pvi_models::pbp_network::Activations;
use dp_pvi_models::predictor::TiltedPredictor;
use nalgebra::{Cholesky, DMatrix, DVector};

use dp_pvi_records::RecordView;

/// A model whose sites can be computed.
pub trait MomentMatching: Send + Sync {
    /// Number of natural parameters of the approximation.
    fn len(&self) -> usize;

    /// Never: an approximation has parameters.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// What computes sites; it has no cavity yet.
    fn sites(&self) -> Box<dyn Sites>;
}

/// Computes sites of records at one cavity at a time.
pub trait Sites: Send + Sync {
    /// Moves to another cavity, in the natural parameters of the approximation. `false` if that is not a distribution: no site may be asked for
    /// then.
    #[must_use]
    fn move_to(&mut self, cavity: &[f64]) -> bool;

    /// Replaces `site`, the record's factor so far, by its new factor. Coordinates in which the model cannot move (a variance that would not
    /// stay positive) keep their old value. `false` if there is no new factor at all: `site` is as it was.
    #[must_use]
    fn site(&self, record: RecordView<'_>, scratch: &mut Scratch, site: &mut [f64]) -> bool;
}

/// Memory that sites use and that carries nothing from one record to the next.
#[derive(Debug, Default)]
pub struct Scratch {
    pub(crate) values: Vec<f64>,
    pub(crate) more: Vec<f64>,
    pub(crate) activations: Option<Activations>,
}

/// Sites of a likelihood of a linear predictor, in either Gaussian family.
#[derive(Debug, Clone)]
pub struct PredictorSites<M> {
    model: M,
    family: Family,
    mean: DVector<f64>,
    /// Marginal variances (diagonal family), or nothing.
    variance: Vec<f64>,
    /// Covariance (full family), or an empty matrix.
    covariance: DMatrix<f64>,
}

impl<M: TiltedPredictor + Clone + 'static> PredictorSites<M> {
    /// For a family, without a cavity.
    #[must_use]
    pub fn new(model: M, family: Family) -> Self {
        Self { model, family, mean: DVector::zeros(0), variance: Vec::new(), covariance: DMatrix::zeros(0, 0) }
    }
}

/// A likelihood of a linear predictor with the family of its approximation: its moment matching.
#[derive(Debug, Clone)]
pub struct PredictorMatching<M> {
    /// The likelihood.
    pub model: M,
    /// The approximating family.
    pub family: Family,
}

impl<M: TiltedPredictor + Clone + 'static> MomentMatching for PredictorMatching<M> {
    fn len(&self) -> usize {
        self.family.len()
    }

    fn sites(&self) -> Box<dyn Sites> {
        Box::new(PredictorSites::new(self.model.clone(), self.family))
    }
}

impl<M: TiltedPredictor> Sites for PredictorSites<M> {
    fn move_to(&mut self, cavity: &[f64]) -> bool {
        let d = self.family.dimension();
        if cavity.len() != self.family.len() || !cavity.iter().all(|value| value.is_finite()) {
            return false;
        }
        let (h, precision) = cavity.split_at(d);
        match self.family {
            Family::DiagonalGaussian { .. } => {
                if precision.iter().any(|&p| p <= 0.0) {
                    return false;
                }
                self.mean = DVector::from_iterator(d, h.iter().zip(precision).map(|(h, p)| h / p));
                self.variance.clear();
                self.variance.extend(precision.iter().map(|p| 1.0 / p));
            }
            Family::FullGaussian { .. } => {
                let Some(factor) = Cholesky::new(unsvec(precision, d)) else { return false };
                self.mean = factor.solve(&DVector::from_column_slice(h));
                self.covariance = factor.inverse();
            }
        }
        true
    }

    /// Full covariance: one rank, (ν x, τ xxᵀ) with τ = β/(1 − s²β) and ν = (α + aβ)/(1 − s²β). Mean field: every coordinate is matched by itself, with
    /// g = x_j α and B = x_j² β: Λ_j = B/(1 − v_j B), h_j = (g + μ_j B)/(1 − v_j B).
    fn site(&self, record: RecordView<'_>, _scratch: &mut Scratch, site: &mut [f64]) -> bool {
        let d = self.family.dimension();
        let at = |j: u32| j as usize;
        let entries = || record.indices.iter().zip(record.values);
        let a: f64 = entries().map(|(&j, x)| x * self.mean[at(j)]).sum();
        let s2: f64 = match self.family {
            Family::DiagonalGaussian { .. } => entries().map(|(&j, x)| x * x * self.variance[at(j)]).sum(),
            Family::FullGaussian { .. } => {
                let row = |(&i, x): (&u32, &f64)| x * entries().map(|(&j, y)| y * self.covariance[(at(i), at(j))]).sum::<f64>();
                entries().map(row).sum::<f64>().max(0.0)
            }
        };
        if !(a.is_finite() && s2.is_finite() && record.target.is_finite()) {
            return false;
        }
        let Tilted { slope, curvature, .. } = self.model.tilted(a, s2, record.target);
        if !(slope.is_finite() && curvature.is_finite() && 1.0 - s2 * curvature > 0.0) {
            return false;
        }
        site.fill(0.0);
        match self.family {
            Family::DiagonalGaussian { .. } => {
                for (&j, &x) in record.indices.iter().zip(record.values) {
                    let (g, b, j) = (x * slope, x * x * curvature, at(j));
                    let rest = 1.0 - self.variance[j] * b;
                    site[j] = (g + self.mean[j] * b) / rest;
                    site[d + j] = b / rest;
                }
            }
            Family::FullGaussian { .. } => {
                let rest = 1.0 - s2 * curvature;
                let (nu, tau) = ((slope + a * curvature) / rest, curvature / rest);
                for (k, (&i, &x)) in record.indices.iter().zip(record.values).enumerate() {
                    let i = at(i);
                    site[i] = nu * x;
                    // Row i of the upper triangle begins after the rows above it.
                    let row = d + triangle(d) - triangle(d - i) - i;
                    for (&j, &y) in record.indices[k..].iter().zip(&record.values[k..]) {
                        site[row + at(j)] = tau * x * y * if at(j) == i { 1.0 } else { std::f64::consts::SQRT_2 };
                    }
                }
            }
        }
        true
    }
}

/// (τ, ν) of a full-covariance site of the row x, from its stored parameters: the site is (ν x, τ xxᵀ).
#[must_use]
pub fn rank_one(site: &[f64], x: &[f64]) -> (f64, f64) {
    let d = x.len();
    let square: f64 = x.iter().map(|v| v * v).sum();
    let x = DVector::from_column_slice(x);
    let outer = svec(&(&x * x.transpose()));
    let tau = site[d..].iter().zip(&outer).map(|(s, o)| s * o).sum::<f64>() / (square * square);
    let nu = site[..d].iter().zip(x.iter()).map(|(s, x)| s * x).sum::<f64>() / square;
    (tau, nu)
}
