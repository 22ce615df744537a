//! What records can say along the point at which they are asked.
//!
//! Of a record with the predictor a = xᵀμ + o the gradient r x has the part r (a − o) along the point μ, and c xxᵀ the part c (a − o)². Both are functions of a alone: a record that is
//! predicted well has a small residual, and one far out has little curvature. So with ω the largest weight of a record
//!
//! gᵀμ ≤ N ω max r(a)(a − o),  μᵀHμ ≤ N ω max c(a)(a − o)²,
//!
//! over |a − o| ≤ R‖μ‖, the ends of offset and label, and every spread s² ≤ R²/λ_min(Λ) of the predictor that q has. For a logit at a point the numbers are 0.28 N and 0.44 N. A site that pushes
//! the posterior away from 0 in every round is slowed down as records are that agree with it ever more.
//!
//! The maxima are taken over a grid, to which half a step times the slope of the function is added. Noise adds σ‖μ‖√(2L) and σ‖μ‖²√(2L); the lattice takes at most one step from every
//! entry of a term.

use dp_pvi_expfam::any::Standard;
use dp_pvi_models::predictor::{Predictor, Statistics};
use dp_pvi_posterior::methods::{NaturalGradientRule, NaturalGradientSpec, Setting};
use dp_pvi_schema::LabelKind;
use serde::{Deserialize, Serialize};

/// Points of the grid for a predictor, at least and at most; steps of a unit between.
const POINTS: (f64, f64) = (300.0, 20_000.0);
const STEPS: f64 = 60.0;
/// Spreads that are tried, as shares of the largest.
const SPREADS: [f64; 3] = [0.0, 0.3, 1.0];
/// What lies between them.
const BETWEEN: f64 = 1.02;
/// Largest d whose least eigenvalue is looked for; beyond, the trace of the covariance is taken, or the prior's variance.
const LARGEST: usize = 64;

/// Bounds of a part along the point of its round.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Along {
    /// μ.
    pub(super) point: Vec<f64>,
    /// Largest r (a − o) and c (a − o)² of a record.
    pub(super) gradient: f64,
    pub(super) curvature: f64,
}

impl Along {
    /// Of records of one row each, at this state. `None` for other models, and where the point is the origin.
    pub(crate) fn new(task: &Setting<'_>, spec: &NaturalGradientSpec, state: &[f64]) -> Option<Self> {
        let rules = task.model.rules();
        let predictor = rules.predictor().filter(|_| task.learned_scale().is_none())?;
        let schema = task.parsed_schema().ok()?;
        let q = NaturalGradientRule::point(task.family(), state).ok()?;
        let point = q.standard().mean().to_vec();
        let far = task.feature_bound * point.iter().map(|m| m * m).sum::<f64>().sqrt();
        let labels = match &schema.label().kind {
            LabelKind::Number(rule) => [rule.encode(rule.lower), rule.encode(rule.upper)],
            _ => [0.0, 1.0],
        };
        let offset = schema.design().map_or((0.0, 0.0), |design| design.offset_range());
        if !(far > 0.0 && far.is_finite()) {
            return None;
        }
        let spread = task.feature_bound.powi(2) * largest_variance(q.standard(), task.priors_at(state).widest());
        let most = most_of_a_record(predictor.as_ref(), spec, (far, offset), labels, spread);
        Some(Self { point, gradient: most[0], curvature: most[1] })
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

/// Largest r (a − o) and c (a − o)².
fn most_of_a_record(
    predictor: &dyn Predictor,
    spec: &NaturalGradientSpec,
    (far, (from, to)): (f64, (f64, f64)),
    labels: [f64; 2],
    spread: f64,
) -> [f64; 2] {
    let points = (STEPS * far).clamp(POINTS.0, POINTS.1).ceil();
    let step = (2.0 * far + to - from) / points;
    let (mut most, mut slope) = ([0.0_f64; 2], [0.0_f64; 2]);
    let mut before: Option<[f64; 2]> = None;
    for share in SPREADS {
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a number of points")]
        for number in 0..=points as u32 {
            let a = from - far + step * f64::from(number);
            let mut here = [0.0_f64; 2];
            for label in labels {
                let Statistics { residual, curvature } = spec.bounded(predictor.statistics(a, share * spread, label));
                for offset in [from, to] {
                    let along = a - offset;
                    if along.abs() <= far * (1.0 + 1e-9) {
                        here = [here[0].max(residual * along), here[1].max(curvature * along * along)];
                    }
                }
            }
            if let Some(before) = before.filter(|_| number > 0) {
                slope = [slope[0].max((here[0] - before[0]).abs()), slope[1].max((here[1] - before[1]).abs())];
            }
            most = [most[0].max(here[0]), most[1].max(here[1])];
            before = Some(here);
        }
    }
    // Between two points no function of the grid is above both by more than its largest difference between neighbours.
    [(most[0] + slope[0]) * BETWEEN, (most[1] + slope[1]) * BETWEEN]
}
