//! The effects of a schema: every number for so many units of the file, every level against the reference, true against false, and the intercept.

use dp_pvi_math::expfam::any::Standard;

use super::contrast::Contrast;
use super::{Effect, Measure, formula};
use crate::ModelSpec;
use crate::PredictorScale;
use dp_pvi_schema::{Column, LabelKind, Schema, Transform};

/// The effects of all columns in their order, then the intercept: at the schema's centres, and at 0 of every number. None where the model's
/// coefficients are no effects.
///
/// * A number: `report_per` units of the file more; under `transform = "log1p"`, of log(1 + value).
/// * A level of a category against the reference, in any coding. Without a reference the first level is it.
/// * A boolean: the first text of true against the first one of false.
///
/// Where a formula makes the rows, only columns that are in no product have effects of their own, and of numbers those that are straight lines or
/// cut into levels.
///
/// Where classes have coefficients of their own, each has the whole list, by `class: name`, against the first class.
///
/// The label's centre and scale are undone: a linear regression's effects are in the unit of the file. An effect that is too large for a number is left
/// out.
#[must_use]
pub fn effects(model: &ModelSpec, schema: &Schema, posterior: &Standard) -> Vec<Effect> {
    derived(model, schema, posterior).into_iter().map(|(_, effect)| effect).collect()
}

/// Whether a list is that of a posterior, up to the rounding of different machines.
#[must_use]
pub fn agree(stated: &[Effect], model: &ModelSpec, schema: &Schema, posterior: &Standard) -> bool {
    let derived = derived(model, schema, posterior);
    let same = |(stated, (contrast, effect)): (&Effect, &(Contrast, Effect))| stated.agrees(effect, contrast, posterior);
    stated.len() == derived.len() && stated.iter().zip(&derived).all(same)
}

/// Every effect with its contrast. One that is too large for a number is left out.
fn derived(model: &ModelSpec, schema: &Schema, posterior: &Standard) -> Vec<(Contrast, Effect)> {
    let names = model.rules().names(schema);
    let effect = |listed: Listed| {
        let effect = Effect::new(listed.name, listed.column, listed.measure, &listed.contrast, &names, posterior);
        effect.is_finite().then_some((listed.contrast, effect))
    };
    copies(listed(model, schema), model, schema).into_iter().filter_map(effect).collect()
}

/// What is listed of one linear predictor, for every class that has coefficients of its own.
fn copies(listed: Vec<Listed>, model: &ModelSpec, schema: &Schema) -> Vec<Listed> {
    let classes = model.rules().classes_with_coefficients(schema);
    if classes.is_empty() {
        let own = model.rules().own_before_rows();
        return listed.into_iter().map(|one| Listed { contrast: one.contrast.shifted(own), ..one }).collect();
    }
    let copy = |(number, class): (u32, &String)| {
        let of = |one: &Listed| Listed {
            name: format!("{class}: {}", one.name),
            column: one.column.clone(),
            measure: one.measure,
            contrast: one.contrast.shifted(number * schema.dimension()),
        };
        listed.iter().map(of).collect::<Vec<_>>()
    };
    (0_u32..).zip(&classes).flat_map(copy).collect()
}

/// An effect before a posterior.
struct Listed {
    name: String,
    column: Option<String>,
    measure: Measure,
    contrast: Contrast,
}

fn listed(model: &ModelSpec, schema: &Schema) -> Vec<Listed> {
    let Some(outcome) = Outcome::of(model, schema) else { return Vec::new() };
    let Some(design) = schema.design() else { return Vec::new() };
    let outcome = &outcome;
    let of_column = |(position, column): (usize, &Column)| {
        let column = column.name.clone();
        let listed = move |(name, contrast): (String, Contrast)| Listed {
            name,
            column: Some(column.clone()),
            measure: outcome.comparison,
            contrast: outcome.difference(contrast),
        };
        formula::of_column(schema, design, position).into_iter().map(listed)
    };
    let mut list: Vec<Listed> = schema.columns().iter().enumerate().flat_map(of_column).collect();
    let baselines = formula::baselines(schema, design).into_iter();
    list.extend(baselines.map(|(name, contrast)| Listed { name, column: None, measure: outcome.level, contrast: outcome.value(contrast) }));
    list
}

/// What a difference of two linear predictors is called; none where coefficients are no effects.
#[must_use]
pub fn comparison(model: &ModelSpec, schema: &Schema) -> Option<Measure> {
    Outcome::of(model, schema).map(|outcome| outcome.comparison)
}

/// How the linear predictor is reported.
pub(super) struct Outcome {
    pub(super) comparison: Measure,
    level: Measure,
    /// From the predictor to what is reported: centre and scale of a numeric label.
    centre: f64,
    scale: f64,
}

impl Outcome {
    pub(super) fn of(model: &ModelSpec, schema: &Schema) -> Option<Self> {
        let plain = |comparison, level| Self { comparison, level, centre: 0.0, scale: 1.0 };
        Some(match model.rules().response().scale? {
            PredictorScale::LogOdds => plain(Measure::OddsRatio, Measure::Odds),
            PredictorScale::LogRate => plain(Measure::RateRatio, Measure::Rate),
            PredictorScale::LogHazard => plain(Measure::HazardRatio, Measure::Hazard),
            PredictorScale::Probit => plain(Measure::ProbitDifference, Measure::Probit),
            PredictorScale::Label => match &schema.label().kind {
                LabelKind::Number { rule, .. } => {
                    let (comparison, level) = match rule.transform {
                        Transform::Identity => (Measure::Difference, Measure::Value),
                        Transform::Log1p => (Measure::LogDifference, Measure::LogValue),
                    };
                    Self { comparison, level, centre: rule.centre, scale: rule.scale }
                }
                LabelKind::Binary { .. } | LabelKind::Classes { .. } | LabelKind::Survival(_) | LabelKind::Absent => {
                    plain(Measure::Difference, Measure::Value)
                }
            },
        })
    }

    /// A difference of two predictors as it is reported.
    pub(super) fn difference(&self, contrast: Contrast) -> Contrast {
        contrast.times(self.scale)
    }

    /// A predictor as it is reported.
    fn value(&self, contrast: Contrast) -> Contrast {
        let mut value = contrast.times(self.scale);
        value.constant += self.centre;
        value
    }
}
