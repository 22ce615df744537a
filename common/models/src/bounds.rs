//! Public bounds of what one record adds.

use dp_pvi_schema::{LabelKind, Schema};

/// What a schema says of every record.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Ranges {
    /// R: no row of features is longer.
    pub row: f64,
    /// No entry of a row is larger than this or smaller than minus this.
    pub entry: f64,
    /// No label, after centre and scale, is larger than this or smaller than minus this.
    pub label: f64,
    /// Ends of the times, where the label is a time until an event.
    pub times: Option<[f64; 2]>,
}

impl Ranges {
    /// Of a schema, whose rows are at most `row` long.
    #[must_use]
    pub fn of(schema: &Schema, row: f64) -> Self {
        let times = match &schema.label().kind {
            LabelKind::Survival(rule) => Some([rule.time.lower, rule.time.upper]),
            _ => None,
        };
        Self { row, entry: schema.max_abs_entry(), label: schema.max_abs_target(), times }
    }
}

/// Public bounds of what one record adds.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Bounds {
    /// r̄ and c̄, if there are any.
    pub predictor: Option<PredictorBounds>,
    /// Of the two blocks of the natural gradient, if there are any.
    pub blocks: Option<BlockBounds>,
    /// On the norm of the gradient of E_q log p in μ, if there is one.
    pub gradient: Option<f64>,
    /// What residuals and curvatures are multiplied by, at most.
    pub lengths: Lengths,
}

impl Bounds {
    /// None, of a record of one row of features.
    #[must_use]
    pub fn none(Ranges { row, entry, .. }: Ranges) -> Self {
        let lengths = Lengths { gradient: row, full: row * row, diagonal: row * entry.min(row), gram: row * row };
        Self { predictor: None, blocks: None, gradient: None, lengths }
    }

    /// Of a residual and a curvature: those of a record of one row, times the row.
    #[must_use]
    pub fn of(ranges: Ranges, predictor: PredictorBounds) -> Self {
        let blocks = BlockBounds {
            mean: predictor.residual * ranges.row,
            precision_full: predictor.curvature * (ranges.row * ranges.row),
            precision_mean_field: predictor.curvature * (ranges.row * ranges.entry.min(ranges.row)),
        };
        Self { predictor: Some(predictor), blocks: Some(blocks), ..Self::none(ranges) }
    }

    /// The same with a bound on the gradient. A model whose residuals are cut to r̄ has none.
    #[must_use]
    pub fn with_gradient(self, gradient: f64) -> Self {
        Self { gradient: Some(gradient), ..self }
    }
}

/// Largest norms of what residuals and curvatures are multiplied by.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Lengths {
    /// ‖ρ‖.
    pub gradient: f64,
    /// ‖svec ρρᵀ‖.
    pub full: f64,
    /// ‖ρ∘ρ‖.
    pub diagonal: f64,
    /// ‖Σ svec ρρᵀ‖ over all rows of a record.
    pub gram: f64,
}

/// Public bounds of a model's residual and curvature.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct PredictorBounds {
    /// r̄.
    pub residual: f64,
    /// c̄.
    pub curvature: f64,
    /// Largest k for which r² + k²c² ≤ r̄² at every record, where the model has one.
    pub free_curvature: Option<f64>,
}

impl PredictorBounds {
    /// Logit: the curvature is free up to φ^(5/2), as natural gradients show.
    #[must_use]
    pub fn logit() -> Self {
        let golden_ratio = f64::midpoint(1.0, 5f64.sqrt());
        Self { residual: 1.0, curvature: 0.25, free_curvature: Some(golden_ratio.powf(2.5)) }
    }
}

/// What the blocks of one record's natural gradient are no longer than.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct BlockBounds {
    /// ‖g‖.
    pub mean: f64,
    /// ‖svec H‖.
    pub precision_full: f64,
    /// ‖diag H‖.
    pub precision_mean_field: f64,
}
