//! Parts of different visits that go together.
//!
//! At the first visit a site told G = c̄ Σ xxᵀ. What it says later, g = Σ r x and H = Σ c xxᵀ, is of the same records, whatever they are:
//! * c ≤ c̄, so G − H has no direction below −(b_G + b_H), b the bounds on a direction of the noise;
//! * (vᵀg)² ≤ Σ r² Σ (vᵀx)² by Cauchy and Schwarz for every v, so c̄ gᵀ(G + (1 + δ)b_G)⁻¹g ≤ N ω r̄². The noise of g adds at most σ(√tr K + √(2L‖K‖)) to the root of the left side,
//!   K = c̄ (G + (1 + δ)b_G)⁻¹ (Hsu, Kakade & Zhang 2012, whose bound asks for sub-Gaussian numbers only), and ‖K‖ ≤ c̄/(δb_G).
//!
//! Who hides its records from the Gram matrix, so that the server's steps are long, has little to say in the rounds after it. Only of records of one row each whose curvature has the
//! same bound whatever their label is.

use dp_pvi_accounting::PrivacyUnit;
use dp_pvi_expfam::gaussian::full::{triangle, unsvec};
use dp_pvi_posterior::methods::{NaturalGradientSpec, Setting};
use nalgebra::{Cholesky, DMatrix, DVector};
use serde::{Deserialize, Serialize};

use super::{Moments, SLACK, TAIL, as_f64, moments};

/// δ.
const MORE: f64 = 0.25;
/// Largest d whose matrix is inverted.
const LARGEST: usize = 256;

/// What a site told of its records at its first visit, and what follows for a later one.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Together {
    /// svec G.
    gram: Vec<f64>,
    /// b_G.
    below_zero: f64,
    /// N ω r̄².
    squares: f64,
    /// c̄.
    bound: f64,
}

impl Together {
    /// Of a site with at most so many units that sent this at its first visit. `None` where nothing follows.
    pub(crate) fn new(task: &Setting<'_>, spec: &NaturalGradientSpec, units: u64, gram: &[f64]) -> Option<Self> {
        let rules = task.model.rules();
        let constant = rules.predictor().is_some_and(|predictor| predictor.has_constant_curvature());
        let fits = (rules.has_two_classes() || constant) && task.learned_scale().is_none();
        let first = moments(task, spec, 0, units).ok().flatten()?;
        if !fits || task.privacy.unit != PrivacyUnit::Record || gram.len() != triangle(first.dimension) {
            return None;
        }
        let squares = first.records * spec.residual_bound.powi(2);
        Some(Self { gram: gram.to_vec(), below_zero: first.below_zero(), squares, bound: spec.curvature_bound })
    }

    /// Whether a later part [g ; A ; …] is of the same records.
    pub(crate) fn holds(&self, later: &Moments, sent: &[f64]) -> bool {
        let d = later.dimension;
        let (Some(gradient), Some(rest)) = (sent.get(..d), sent.get(d..d + later.numbers())) else { return false };
        let (gram, identity) = (unsvec(&self.gram, d), DMatrix::identity(d, d));
        let room = self.below_zero + later.below_zero() / later.weight;
        let within = if later.is_matrix {
            Cholesky::new(&gram - unsvec(rest, d) / later.weight + &identity * room).is_some()
        } else {
            (0..d).all(|j| gram[(j, j)] - rest[j] / later.weight >= -room)
        };
        let Some(factor) = Cholesky::new(gram + identity * ((1.0 + MORE) * self.below_zero)) else { return false };
        let gradient = DVector::from_column_slice(gradient);
        let length = (self.bound * gradient.dot(&factor.solve(&gradient))).max(0.0).sqrt();
        let largest = self.bound / (MORE * self.below_zero);
        let trace = if d <= LARGEST { self.bound * factor.inverse().trace() } else { as_f64(d) * largest };
        let noise = later.noise * (trace.max(0.0).sqrt() + (2.0 * TAIL * largest).sqrt());
        within && length <= (self.squares.sqrt() + noise) * SLACK
    }
}
