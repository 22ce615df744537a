//! Priors, residuals and weights from public values.

use dp_pvi_accounting::{ClipNorm, NoiseMultiplier};
use dp_pvi_math::cut::{CutCount, CutNumber};
use dp_pvi_math::self_check::{LARGEST_NORM_SQUARE, Robust, Unit, mean_of_cut_squares, scale as scale_of};
use dp_pvi_math::site_weights;
use dp_pvi_math::typical::{CUT_OF_NUMBERS, Centre, Column, Label, Rate, longest_row, typical_row};
use dp_pvi_models::logistic_regression::LogisticRegression;
use dp_pvi_models::predictor::Predictor;
use dp_pvi_posterior::task::{NaturalGradientSpec, Preconditioner};
use serde_json::Value;

use super::Entry;
use crate::read::{Outcome, message};

fn json(entry: &Entry<'_>, key: &str) -> Result<Value, String> {
    serde_json::from_str(entry.inputs.get(key)?.text()?).map_err(message)
}

fn column(stated: &Value) -> Result<Column, String> {
    let published = |key: &str| stated.get(key).and_then(Value::as_f64);
    let number = |key: &str| published(key).ok_or_else(|| format!("a column has no {key}"));
    match stated.get("kind").and_then(Value::as_str) {
        Some("number") => Ok(Column::Number {
            range: [number("lower")?, number("upper")?],
            centre: number("centre")?,
            scale: number("scale")?,
            mean: published("mean"),
            sd: published("sd"),
        }),
        Some("boolean") => Ok(Column::Truth { share: published("share") }),
        Some("category") => {
            let shares = stated.get("shares").and_then(Value::as_array);
            let share = shares.map(|shares| shares.iter().skip(1).filter_map(Value::as_f64).sum());
            Ok(Column::Category { levels: number("levels")? as usize, share })
        }
        kind => Err(format!("no column is {kind:?}")),
    }
}

fn label(entry: &Entry<'_>) -> Result<Label, String> {
    let stated = json(entry, "label")?;
    let published = |key: &str| stated.get(key).and_then(Value::as_f64);
    let number = |key: &str| published(key).ok_or_else(|| format!("the label has no {key}"));
    Ok(match entry.inputs.get("family")?.text()? {
        "logit" => Label::Class { share: published("share") },
        "log" => Label::Count(match published("rate") {
            Some(rate) => Rate::Published { rate, units: number("middle_of_offset")? },
            None => Rate::Unknown { mean_offset: number("mean_offset")? },
        }),
        "identity" => {
            let centre = published("mean").map(Centre::Mean).map_or_else(|| number("middle").map(Centre::Middle), Ok)?;
            Label::Number { centre, spread: number("sd")? }
        }
        family => return Err(format!("no family is {family}")),
    })
}

pub(super) fn priors(entry: &Entry<'_>) -> Outcome {
    let columns: Vec<Column> =
        json(entry, "columns")?.as_array().ok_or("columns is no list")?.iter().map(column).collect::<Result<_, _>>()?;
    let entries: Vec<_> = columns.iter().flat_map(Column::entries).collect();
    let (label, row) = (label(entry)?, typical_row(&entries, longest_row(&columns)));
    let priors = label.priors(label.coefficient(None), &entries);
    entry.is("intercept_mean", [priors.intercept[0]])?;
    entry.is("intercept_sd", [priors.intercept[1]])?;
    entry.is("coefficient_sd", priors.coefficients)?;
    entry.is("typical_row", [row])?;
    entry.is("worst_row", [longest_row(&columns)])?;
    entry.is("clip_norm", [label.clip_norm(row, entry.number("dispersion")?)])
}

pub(super) fn weight_of_a_record(entry: &Entry<'_>) -> Outcome {
    let spec = NaturalGradientSpec {
        noise_multiplier: NoiseMultiplier::new(1.0).map_err(message)?,
        preconditioner: Preconditioner::Gram,
        gram_share: 0.2,
        budget_growth: 1.0,
        step: 2.0,
        averaging: 0.5,
        eigenvalue_floor: 2.0,
        shrinkage: 3.0,
        residual_bound: 1.0,
        curvature_bound: 0.25,
        curvature_weight: entry.number("curvature_weight")?,
        clip_norm: ClipNorm::new(entry.number("clip_norm")?).map_err(message)?,
        weighted: true,
        scale_weights: None,
    };
    let square = entry.number("square")?;
    let of = |predictor: &f64| {
        let both = [0.0, 1.0].map(|label| LogisticRegression {}.statistics(*predictor, 0.0, label));
        let weight = spec.weight(both, square, square * square);
        (weight, weight * both[0].curvature)
    };
    let (weights, curvatures): (Vec<f64>, Vec<f64>) = entry.inputs.at("predictor")?.iter().map(of).unzip();
    entry.is("weight", weights)?;
    entry.is("weighted_curvature", curvatures)
}

pub(super) fn count(entry: &Entry<'_>) -> Outcome {
    let dispersion = entry.inputs.get("dispersion")?;
    let dispersion = if dispersion.text().is_ok_and(|text| text == "infinite") { f64::INFINITY } else { dispersion.number()? };
    let cut = CutCount::new(entry.number("predictor")?, dispersion, entry.number("cut")?);
    entry.is("mean", [cut.of.mean])?;
    entry.is("slope", [cut.of.slope])?;
    entry.is("variance", [cut.of.variance])?;
    entry.is("residual", [cut.residual(entry.number("count")?)])?;
    entry.is("curvature", [cut.curvature()])?;
    entry.is("bound", [cut.bound()])?;
    entry.is("score_variance", [cut.score_variance()])
}

pub(super) fn number(entry: &Entry<'_>) -> Outcome {
    let given = entry.number("cut")?;
    if given != CUT_OF_NUMBERS {
        return Err(format!("numbers are cut at {CUT_OF_NUMBERS}, the file says {given}"));
    }
    let cut = CutNumber::new(entry.number("sigma")?, given);
    entry.is("residual", [cut.residual(entry.number("error")?)])?;
    entry.is("curvature", [cut.curvature()])?;
    entry.is("bound", [cut.bound()])?;
    entry.is("score_variance", [cut.score_variance()])
}

pub(super) fn weights_of_sites(entry: &Entry<'_>) -> Outcome {
    let z = NoiseMultiplier::new(entry.number("z")?).map_err(message)?;
    let clip = ClipNorm::new(entry.number("clip_norm")?).map_err(message)?;
    let noise = site_weights::noise_variance(z.get() * clip.get(), entry.number("gradient_share")?);
    let units = entry.inputs.at("units")?;
    let weights = site_weights::weights(&units, entry.number("information_of_a_record")?, noise);
    entry.is("noise_variance", [noise])?;
    entry.is("score_share", [site_weights::score_share(&weights, &units)])?;
    entry.is("noise_factor", [site_weights::noise_factor(&weights)])?;
    entry.is("weights", weights)
}

pub(super) fn weighted_sum(entry: &Entry<'_>) -> Outcome {
    entry.is("sum", site_weights::weighted_sum(&entry.inputs.at("weights")?, &entry.inputs.get("vectors")?.rows()?))
}

pub(super) fn vectors_of_units(entry: &Entry<'_>) -> Outcome {
    let longest = entry.number("clip_norm")?;
    let vector = |unit: &Value| -> Result<Vec<f64>, String> {
        let number = |key: &str| unit.get(key).and_then(Value::as_f64).ok_or_else(|| format!("a unit has no {key}"));
        let score: Vec<f64> =
            unit.get("score").and_then(Value::as_array).ok_or("a unit has no score")?.iter().filter_map(Value::as_f64).collect();
        let own = Unit { score: &score, relative_weight: number("relative_weight")?, mean_square: number("mean_square")? };
        let is_usable = unit.get("usable").and_then(Value::as_bool).ok_or("a unit is neither usable nor not")?;
        let vector = own.vector(longest);
        Ok(if is_usable { vector } else { vec![0.0; vector.len()] })
    };
    let units = json(entry, "units")?;
    let vectors: Vec<Vec<f64>> = units.as_array().ok_or("units is no list")?.iter().map(vector).collect::<Result<_, _>>()?;
    entry.is("sum", site_weights::weighted_sum(&vec![1.0; vectors.len()], &vectors))?;
    entry.is("vectors", vectors.concat())?;
    entry.is("bound", [LARGEST_NORM_SQUARE.sqrt()])
}

pub(super) fn scale(entry: &Entry<'_>) -> Outcome {
    let mean = entry.number("mean_t")?;
    let rho = scale_of(mean);
    if (mean_of_cut_squares(rho) - mean).abs() > entry.tolerance {
        return Err(format!("{rho} has the mean {}", mean_of_cut_squares(rho)));
    }
    entry.is("rho", [rho])
}

pub(super) fn robust(entry: &Entry<'_>) -> Outcome {
    let scores = entry.matrix("curvature")? * entry.number("score_share")?;
    let found = Robust::new(&scores, entry.number("clip_norm")?, &entry.vector("released")?, entry.number("noise_sd")?);
    entry.is("expected", found.expected.as_slice())?;
    entry.is("ratio", found.ratio.as_slice())?;
    entry.is("relative_variance", found.relative_variance.as_slice())?;
    entry.is("inflation", found.inflation.as_slice())?;
    entry.is_matrix("covariance", &found.covariance)
}
