//! `report`: ratios of contrasts, and coefficients on the scale of the file.

use std::fmt::Write;

use dp_pvi_math::expfam::any::Standard;
use dp_pvi_math::expfam::gaussian::full;
use dp_pvi_models::effects::{Contrast, Effect, Measure, effects};
use dp_pvi_models::logistic_regression::LogisticRegression;
use dp_pvi_models::prediction::{Interval, Level};
use dp_pvi_posterior::task::ModelSpec;
use dp_pvi_schema::Schema;
use nalgebra::{DMatrix, DVector};

use super::{Check, many_rows, scales, survival};
use crate::read::{CLOSED_FORM, FIXED_POINT, Node, Outcome, message};

pub(super) const PARTS: &[(&str, Option<Check>)] = &[
    ("level", Some(level)),
    ("normal_quantile", Some(quantile)),
    ("ratios", Some(ratios)),
    ("back_transform", Some(back_transform)),
    ("curve", Some(scales::curve)),
    ("survival_curve", Some(|report| survival::survival_curve(report, read_level(report)?))),
    ("weibull_curve", Some(|report| survival::weibull_curve(report, read_level(report)?))),
    ("class_probabilities", Some(many_rows::class_probabilities)),
    ("ordinal_probabilities", Some(many_rows::ordinal_probabilities)),
    ("site_effects", Some(scales::reported_sites)),
    ("tau_interval", Some(scales::reported_scale)),
];

/// The level of the file's intervals, one of ours.
fn read_level(report: &Node<'_>) -> Result<Level, String> {
    match report.get("level")?.number()? {
        0.9 => Ok(Level::P90),
        0.95 => Ok(Level::P95),
        other => Err(format!("level {other}: intervals are of 0.9 and 0.95")),
    }
}

fn level(report: &Node<'_>) -> Outcome {
    read_level(report).map(|_| ())
}

fn quantile(report: &Node<'_>) -> Outcome {
    report.key_equals("normal_quantile", [read_level(report)?.half_width()], CLOSED_FORM)
}

/// Mean and covariance of a part, the coordinates in the order of `order`.
fn posterior(part: &Node<'_>, order: &[usize]) -> Result<Standard, String> {
    let (mean, covariance) = (part.at("mean")?, part.get("covariance")?.rows()?);
    let d = order.len();
    if mean.len() != d || covariance.len() != d || covariance.iter().any(|row| row.len() != d) {
        return Err(format!("mean and covariance are not of {d} coefficients"));
    }
    let mean = DVector::from_fn(d, |i, _| mean[order[i]]);
    let covariance = DMatrix::from_fn(d, d, |i, j| covariance[order[i]][order[j]]);
    Ok(Standard::Full(full::Standard::new(mean, covariance).map_err(message)?))
}

fn names(d: usize) -> Vec<String> {
    (0..d).map(|j| format!("x{j}")).collect()
}

fn ratios(report: &Node<'_>) -> Outcome {
    let (part, level) = (report.get("ratios")?, read_level(report)?);
    let d = part.at("mean")?.len();
    let posterior = posterior(&part, &(0..d).collect::<Vec<_>>())?;
    let names = names(d);
    let effect = |weights: &Vec<f64>| {
        let contrast = Contrast::dense(weights);
        let effect = Effect::new("contrast".into(), None, Measure::OddsRatio, &contrast, &names, &posterior);
        let ratio = effect.ratio.ok_or("a ratio overflowed")?;
        let interval = match level {
            Level::P90 => ratio.interval_90,
            Level::P95 => ratio.interval_95,
        };
        Ok((ratio.estimate, interval.ok_or("a ratio has no interval")?))
    };
    let found: Vec<(f64, Interval)> = part.get("contrasts")?.rows()?.iter().map(effect).collect::<Result<_, String>>()?;
    part.key_equals("estimate", found.iter().map(|(estimate, _)| *estimate).collect::<Vec<_>>(), FIXED_POINT)?;
    part.key_equals("lower", found.iter().map(|(_, interval)| interval.lower).collect::<Vec<_>>(), FIXED_POINT)?;
    part.key_equals("upper", found.iter().map(|(_, interval)| interval.upper).collect::<Vec<_>>(), FIXED_POINT)
}

/// The file has the intercept first; ours is last.
fn back_transform(report: &Node<'_>) -> Outcome {
    let part = report.get("back_transform")?;
    let (centres, scales) = (part.at("centre")?, part.at("scale")?);
    let mut text = String::from("[[columns]]\nname = \"y\"\nkind = \"boolean\"\ntrue_values = [\"1\"]\nfalse_values = [\"0\"]\n");
    for (j, (centre, scale)) in centres.iter().zip(&scales).enumerate() {
        let column = format!("name = \"x{j}\"\nkind = \"number\"\nlower = -1e6\nupper = 1e6\ncentre = {centre:?}\nscale = {scale:?}\n");
        write!(text, "[[columns]]\n{column}").map_err(message)?;
    }
    let schema = Schema::asking("y ~ .", &text).map_err(message)?;
    let ours = schema.coefficient_names();
    let (numbers, d) = (centres.len(), ours.len());
    let posterior = posterior(&part, &(1..d).chain([0]).collect::<Vec<_>>())?;
    let list = effects(&ModelSpec::from(LogisticRegression {}), &schema, &posterior);
    let mut original: Vec<&Effect> = list.last().into_iter().collect();
    original.extend(list.iter().take(numbers));
    part.key_equals("original_mean", original.iter().map(|effect| effect.estimate).collect::<Vec<_>>(), FIXED_POINT)?;

    // 2 cov(a, b) = var(a + b) − var a − var b.
    let weights = |effect: &Effect| {
        let weight = |name: &String| effect.contrast.iter().find(|term| term.coefficient == *name).map_or(0.0, |term| term.weight);
        ours.iter().map(weight).collect::<Vec<f64>>()
    };
    let variance = |weights: &[f64]| {
        let effect = Effect::new("contrast".into(), None, Measure::OddsRatio, &Contrast::dense(weights), &ours, &posterior);
        effect.sd.map_or(f64::NAN, |sd| sd * sd)
    };
    let mut covariance = Vec::new();
    for a in &original {
        for b in &original {
            let (a, b) = (weights(a), weights(b));
            let sum: Vec<f64> = a.iter().zip(&b).map(|(a, b)| a + b).collect();
            covariance.push(0.5 * (variance(&sum) - variance(&a) - variance(&b)));
        }
    }
    part.key_equals("original_covariance", covariance, FIXED_POINT)
}
