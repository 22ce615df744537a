//! Parts of different visits that go together.
//!
//! At the first visit a site told G = c̄ Σ ω xxᵀ. What it says later, g = Σ ω r x and H = Σ ω c xxᵀ, is of the same records, whatever they are:
//! * c ≤ c̄, so G − H has no direction below −(b_G + b_H), b the bounds on a direction of the noise;
//! * every row has an intercept, of x₀ at least where long rows are shortened, so that all records weigh n = (G₀₀ + σ_G√(2L))/(c̄x₀²) at most;
//! * (vᵀg)² ≤ Σ ω r² Σ ω (vᵀx)² by Cauchy and Schwarz for every v, so c̄ gᵀ(G + (1 + δ)b_G)⁻¹g ≤ n r̄², r̄ the largest residual at the round's state. The noise of g adds at most
//!   σ(√tr K + √(2L‖K‖)) to the root of the left side, K = c̄ (G + (1 + δ)b_G)⁻¹ (Hsu, Kakade & Zhang 2012, whose bound asks for sub-Gaussian numbers only), and ‖K‖ ≤ c̄/(δb_G).
//!
//! Who hides its records from the Gram matrix, so that the server's steps are long, has little to say in the rounds after it. Only of records of one row each whose curvature has the
//! same bound whatever their label is.

use dp_pvi_accounting::PrivacyUnit;
use dp_pvi_math::expfam::gaussian::full::{svec_times, triangle, unsvec};
use dp_pvi_posterior::methods::{NaturalGradientSpec, Setting};
use nalgebra::{Cholesky, DMatrix, DVector};
use serde::{Deserialize, Serialize};

use super::{Moments, SLACK, TAIL, as_f64, moments};

/// δ.
const MORE: f64 = 0.25;
/// Largest d whose matrix is inverted.
const LARGEST: usize = 256;

/// Statistics of a site's records from its first visit.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct FirstVisit {
    /// svec G.
    gram: Vec<f64>,
    first: Box<Moments>,
    /// c̄.
    bound: f64,
    /// n: the most that its records weigh, by their intercepts.
    counted: f64,
}

impl FirstVisit {
    /// Of a site with at most so many units that sent this at its first visit. `None` where nothing follows.
    pub(crate) fn new(task: &Setting<'_>, spec: &NaturalGradientSpec, units: u64, gram: &[f64]) -> Option<Self> {
        let rules = task.model.rules();
        let constant = rules.predictor().is_some_and(|predictor| predictor.has_constant_curvature());
        let fits = (rules.has_two_classes() || constant) && task.learned_scale().is_none();
        let first = moments(task, spec, 0, units).ok().flatten()?;
        if !fits || task.privacy.unit != PrivacyUnit::Record || gram.len() != triangle(first.dimension) {
            return None;
        }
        let bound = spec.curvature_bound;
        let counted = counted(task, &first, bound, gram).unwrap_or(f64::INFINITY);
        Some(Self { gram: gram.to_vec(), first: Box::new(first), bound, counted })
    }

    /// n of records that weigh so much at most.
    pub(super) fn records(&self, most: f64) -> f64 {
        most.min(self.counted)
    }

    /// The least that Σ ω (xᵀμ)² can be.
    pub(super) fn squares_along(&self, point: &[f64]) -> f64 {
        let length = point.iter().map(|m| m * m).sum::<f64>();
        let form: f64 = svec_times(&self.gram, point).iter().zip(point).map(|(a, m)| a * m).sum();
        ((form - self.noise() * length) / self.bound).max(0.0) / SLACK
    }

    /// The most that Σ ω xᵀΣx can be.
    pub(super) fn spread(&self, covariance: &DMatrix<f64>) -> f64 {
        let form = unsvec(&self.gram, covariance.nrows()).dot(covariance);
        (form + self.noise() * covariance.norm()).max(0.0) / self.bound * SLACK
    }

    /// What noise and lattice add to ⟨A, G⟩, ‖A‖ = 1.
    fn noise(&self) -> f64 {
        self.first.noise * (2.0 * TAIL).sqrt() + self.first.steps * as_f64(self.gram.len()).sqrt()
    }
}

/// What follows of that for a later part.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Together {
    first_visit: FirstVisit,
    /// n r̄².
    squares: f64,
}

impl Together {
    /// Of records whose residuals are so large at most.
    pub(crate) fn new(first_visit: FirstVisit, residual: f64) -> Self {
        let squares = first_visit.records(first_visit.first.records) * residual.powi(2);
        Self { first_visit, squares }
    }

    /// Whether a later part [g ; A ; …] is of the same records.
    pub(crate) fn holds(&self, later: &Moments, sent: &[f64]) -> bool {
        let d = later.dimension;
        let (Some(gradient), Some(rest)) = (sent.get(..d), sent.get(d..d + later.numbers())) else { return false };
        let FirstVisit { gram, first, bound, .. } = &self.first_visit;
        let (gram, identity, below_zero) = (unsvec(gram, d), DMatrix::identity(d, d), first.below_zero());
        let room = below_zero + later.below_zero() / later.weight;
        let within = if later.is_matrix {
            Cholesky::new(&gram - unsvec(rest, d) / later.weight + &identity * room).is_some()
        } else {
            (0..d).all(|j| gram[(j, j)] - rest[j] / later.weight >= -room)
        };
        let Some(factor) = Cholesky::new(gram + identity * ((1.0 + MORE) * below_zero)) else { return false };
        let gradient = DVector::from_column_slice(gradient);
        let length = (bound * gradient.dot(&factor.solve(&gradient))).max(0.0).sqrt();
        let largest = bound / (MORE * below_zero);
        let trace = if d <= LARGEST { bound * factor.inverse().trace() } else { as_f64(d) * largest };
        let noise = later.noise * (trace.max(0.0).sqrt() + (2.0 * TAIL * largest).sqrt());
        within && length <= (self.squares.sqrt() + noise) * SLACK
    }
}

/// The most that the records weigh together by their own Gram matrix: Σ ω, where every row has an intercept.
fn counted(task: &Setting<'_>, first: &Moments, bound: f64, gram: &[f64]) -> Option<f64> {
    let schema = task.parsed_schema().ok()?;
    let j = schema.intercept().filter(|_| schema.dimension() == task.dimension)? as usize;
    // A row that is too long is shortened, and its intercept with it.
    let least = (schema.row_norm_bound() / schema.worst_case_norm()).min(1.0);
    let entry = gram.get(j * first.dimension - j * j.saturating_sub(1) / 2)?;
    Some((entry + first.noise * (2.0 * TAIL).sqrt() + first.steps).max(0.0) / (bound * least * least))
}
