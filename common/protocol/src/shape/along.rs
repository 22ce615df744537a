//! What records can say along the point at which they are asked.
//!
//! Of a record with the predictor a = xᵀμ + o the gradient r x has the part r (a − o) along the point μ, and c xxᵀ the part c (a − o)². Both are functions of a alone: a record that is
//! predicted well has a small residual, and one far out has little curvature. So with n the weight of all records, Nω at most, and h(a) one of r (a − o) and c (a − o)²
//!
//! gᵀμ, μᵀHμ ≤ n max h(a)
//!
//! over |a − o| ≤ R‖μ‖, the ends of offset and label, and every spread s² ≤ R²/λ_min(Λ) of the predictor that q has. For a logit at a point the numbers are 0.28 n and 0.44 n. A site that pushes
//! the posterior away from 0 in every round is slowed down as records are that agree with it ever more.
//!
//! Where the site told its Gram matrix G = c̄ Σ ω xxᵀ before, it told how far out its records are, and how uncertain q is of them: Σ ω (a − o)² = μᵀGμ/c̄ and Σ ω s² = ⟨Σ, G⟩/c̄. Then for
//! all t, u ≥ 0
//!
//! gᵀμ, μᵀHμ ≤ n max (h(a) + t (a − o)² − u s²) − t μᵀGμ/c̄ + u ⟨Σ, G⟩/c̄,
//!
//! of which the least of some is taken: records that are far out on the side that they agree with say next to nothing.
//!
//! The maxima are taken over a grid, to which half a step times the slope of the function is added. Noise adds σ‖μ‖√(2L) and σ‖μ‖²√(2L), also to μᵀGμ, and σ‖Σ‖√(2L) to ⟨Σ, G⟩; the lattice takes at most one step from
//! every entry of a term.

use dp_pvi_math::expfam::any::Standard;
use dp_pvi_models::predictor::{Predictor, Statistics};
use dp_pvi_posterior::methods::{NaturalGradientRule, NaturalGradientSpec, Setting};
use dp_pvi_schema::LabelKind;
use nalgebra::{DMatrix, DVector};
use serde::{Deserialize, Serialize};

use super::together::FirstVisit;

/// Points of the grid for a predictor, at least and at most; steps of a unit between.
const POINTS: (f64, f64) = (300.0, 20_000.0);
const STEPS: f64 = 60.0;
/// Spreads that are tried, as shares of the largest.
const SPREADS: [f64; 7] = [0.0, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0];
/// What lies between them.
const BETWEEN: f64 = 1.02;
/// Largest d whose least eigenvalue is looked for; beyond, the trace of the covariance is taken, or the prior's variance.
const LARGEST: usize = 64;
/// t and u that are tried: these times the largest h over (R‖μ‖)², and over the largest s².
const SLOPES: [f64; 8] = [0.25, 0.5, 0.75, 1.0, 1.5, 2.0, 4.0, 16.0];
const SPREAD_SLOPES: [f64; 6] = [0.0, 0.25, 1.0, 4.0, 16.0, 64.0];

/// Bounds of a part along the point of its round.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Along {
    /// μ.
    pub(super) point: Vec<f64>,
    /// Most of gᵀμ and μᵀHμ.
    pub(super) gradient: f64,
    pub(super) curvature: f64,
    /// Largest |r| of a record.
    pub(super) residual: f64,
}

impl Along {
    /// Of records of one row each that weigh so much at most, at this state, with what their site told of them. `None` for other models.
    pub(crate) fn new(
        task: &Setting<'_>,
        spec: &NaturalGradientSpec,
        state: &[f64],
        records: f64,
        first_visit: Option<&FirstVisit>,
    ) -> Option<Self> {
        let rules = task.model.rules();
        let predictor = rules.predictor().filter(|_| task.learned_scale().is_none())?;
        let schema = task.parsed_schema().ok()?;
        let q = NaturalGradientRule::point(task.family(), state).ok()?;
        let point = q.standard().mean().to_vec();
        let far = task.feature_bound * point.iter().map(|m| m * m).sum::<f64>().sqrt();
        let labels = match &schema.label().kind {
            LabelKind::Number { rule, .. } => [rule.encode(rule.lower), rule.encode(rule.upper)],
            _ => [0.0, 1.0],
        };
        let offset = schema.design().map_or((0.0, 0.0), |design| design.offset_range());
        if !far.is_finite() {
            return None;
        }
        let spread = task.feature_bound.powi(2) * largest_variance(q.standard(), task.priors_at(state).widest());
        let grid = Grid::new(predictor.as_ref(), spec, (far, offset), labels, spread);
        let records = first_visit.map_or(records, |first_visit| first_visit.records(records));
        let (square, least, most) = match first_visit {
            Some(first_visit) => {
                let covariance = match q.standard() {
                    Standard::Diagonal(q) => DMatrix::from_diagonal(&DVector::from_column_slice(q.variance())),
                    Standard::Full(q) => q.covariance().clone(),
                };
                (far * far, first_visit.squares_along(&point), first_visit.spread(&covariance))
            }
            None => (0.0, 0.0, 0.0),
        };
        let total = |of: usize| {
            let whole = grid.most(of, (0.0, 0.0));
            let slopes = SLOPES
                .iter()
                .filter(|_| square > 0.0 && least > 0.0)
                .flat_map(|t| SPREAD_SLOPES.map(|u| (t * whole / square, u * whole / spread)));
            let of_slope = |(t, u): (f64, f64)| records * grid.most(of, (t, u)) - t * least + u * most;
            slopes.map(of_slope).fold(records * whole, f64::min).max(0.0)
        };
        Some(Self { gradient: total(0), curvature: total(1), residual: grid.residual, point })
    }
}

/// 1/λ_min(Λ), or what the prior says of it.
fn largest_variance(q: &Standard, widest: f64) -> f64 {
    match q {
        Standard::Diagonal(q) => q.variance().iter().copied().fold(0.0, f64::max),
        Standard::Full(q) if q.mean().len() <= LARGEST => q.covariance().symmetric_eigenvalues().max(),
        Standard::Full(q) => q.covariance().trace().min(widest * widest),
    }
}

/// Records at points of a grid: r (a − o), c (a − o)² and (a − o)², runs of neighbours one after the other.
struct Grid {
    /// Each with the spread before its own.
    runs: Vec<(f64, Vec<[f64; 3]>)>,
    residual: f64,
}

impl Grid {
    fn new(
        predictor: &dyn Predictor,
        spec: &NaturalGradientSpec,
        (far, (from, to)): (f64, (f64, f64)),
        labels: [f64; 2],
        spread: f64,
    ) -> Self {
        let points = (STEPS * far).clamp(POINTS.0, POINTS.1).ceil();
        let step = (2.0 * far + to - from) / points;
        let (mut runs, mut residual) = (Vec::new(), 0.0_f64);
        for (number, share) in SPREADS.into_iter().enumerate() {
            let less = SPREADS[number.saturating_sub(1)] * spread;
            for label in labels {
                let mut ends = [Vec::new(), Vec::new()];
                let mut before: Option<f64> = None;
                #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a number of points")]
                for number in 0..=points as u32 {
                    let a = from - far + step * f64::from(number);
                    let Statistics { residual: r, curvature: c } = spec.bounded(predictor.statistics(a, share * spread, label));
                    // What lies between two points is within their difference of both.
                    residual = residual.max(r.abs() + before.map_or(0.0, |before| (r - before).abs()));
                    before = Some(r);
                    for (end, offset) in ends.iter_mut().zip([from.max(a - far), to.min(a + far)]) {
                        let along = a - offset;
                        end.push([(r * along).max(0.0), c * along * along, along * along]);
                    }
                }
                runs.extend(ends.map(|end| (less, end)));
            }
        }
        Self { runs, residual: residual * BETWEEN }
    }

    /// Largest h(a) + t (a − o)² − u s².
    fn most(&self, of: usize, (t, u): (f64, f64)) -> f64 {
        let (mut most, mut slope) = (0.0_f64, 0.0_f64);
        for (less, run) in &self.runs {
            let mut before: Option<f64> = None;
            for point in run {
                // Between two spreads h is a little more.
                let here = BETWEEN * point[of] + t * point[2] - u * less;
                most = most.max(here);
                slope = slope.max(before.map_or(0.0, |before| (here - before).abs()));
                before = Some(here);
            }
        }
        // Between two points no function of the grid is above both by more than its largest difference between neighbours.
        most + slope
    }
}
