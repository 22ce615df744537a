//! `multinomial_optimum`, `ordinal`, `ordinal_optimum`, `mean_field_gradients`, `bounds`, and what reports and other programs say of the same models.

use std::sync::Arc;

use dp_pvi_inference::capabilities::many_rows::ManyRowsModel;
use dp_pvi_inference::capabilities::{LocalOptimum, Model};
use dp_pvi_inference::mean_field::{MeanField, ScaleCoordinate};
use dp_pvi_inference::models;
use dp_pvi_inference::records::{RecordTable, RecordView};
use dp_pvi_math::expfam::any::{Family, Gaussian, Standard};
use dp_pvi_math::expfam::gaussian::full;
use dp_pvi_math::expfam::gaussian::full::{svec, unsvec};
use dp_pvi_math::softmax_mean::SoftmaxMean;
use dp_pvi_models::Ranges;
use dp_pvi_models::many_rows::{ManyRows, Place, PseudoRows};
use dp_pvi_models::multinomial_regression::MultinomialRegression;
use dp_pvi_models::negative_binomial_regression::NegativeBinomialRegression;
use dp_pvi_models::ordinal_regression::OrdinalRegression;
use dp_pvi_models::prediction::{Example, Outcome as Told, Prediction};
use dp_pvi_models::robust_regression::RobustRegression;
use dp_pvi_posterior::task::ModelSpec;
use dp_pvi_privacy::mechanism::Term;
use dp_pvi_schema::public::Extra;
use nalgebra::{DMatrix, DVector};

use super::likelihoods::{ORACLE_TOLERANCE, input};
use super::{Check, square};
use crate::federation::{table, table_of};
use crate::read::{FIXED_POINT, Node, Outcome, message};

/// Parts of `multinomial_optimum`.
pub(super) const MULTINOMIAL_OPTIMUM: &[(&str, Option<Check>)] = &[
    ("classes", Some(input)),
    ("x", Some(input)),
    ("target", Some(input)),
    ("weights", Some(input)),
    ("prior_mean", Some(input)),
    ("prior_precision", Some(input)),
    ("full", Some(|node| multinomial_optimum(node, "full"))),
    ("mean_field", Some(|node| multinomial_optimum(node, "mean_field"))),
];

/// Parts of `ordinal_optimum`.
pub(super) const ORDINAL_OPTIMUM: &[(&str, Option<Check>)] = &[
    ("classes", Some(input)),
    ("x", Some(input)),
    ("target", Some(input)),
    ("weights", Some(input)),
    ("prior_mean", Some(input)),
    ("prior_precision", Some(input)),
    ("full", Some(|node| ordinal_optimum(node, "full"))),
    ("mean_field", Some(|node| ordinal_optimum(node, "mean_field"))),
];

fn classes(node: &Node<'_>) -> Result<u32, String> {
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a number of classes")]
    let classes = node.get("classes")?.number()? as u32;
    Ok(classes)
}

fn multinomial_optimum(node: &Node<'_>, part: &str) -> Outcome {
    let model = MultinomialRegression { classes: classes(node)? };
    optimum(node, part, model, &weighted(node, node.at("target")?)?)
}

fn ordinal(node: &Node<'_>) -> Result<OrdinalRegression, String> {
    Ok(OrdinalRegression { classes: classes(node)?, threshold_mean: [0.0, 0.5], threshold_scale: [2.5, 1.0] })
}

/// The file counts ordered classes from 1.
fn ordered(targets: Vec<f64>) -> Vec<f64> {
    targets.into_iter().map(|target| target - 1.0).collect()
}

fn ordinal_optimum(node: &Node<'_>, part: &str) -> Outcome {
    optimum(node, part, ordinal(node)?, &weighted(node, ordered(node.at("target")?))?)
}

/// Thresholds, f, g and H of one record.
pub(super) fn ordinal_points(node: &Node<'_>) -> Outcome {
    let (model, tolerance) = (ordinal(node)?, node.get("tolerance")?.number()?);
    for point in node.get("points")?.list()? {
        let (x, q) = (point.at("row")?, posterior(&point)?);
        let (d, width) = (q.mean().len(), x.len());
        point.key_equals("thresholds", model.thresholds_at(&q.mean()[width..]), tolerance)?;
        let data = table(&[x], &ordered(vec![point.get("target")?.number()?]))?;
        let record = data.records().next().ok_or("no record")?;
        let mut rows = PseudoRows::default();
        model.write(record.example(), &Place::at(&q), &mut rows);
        let (gradient, hessian) = sums(&rows, d);
        point.key_equals("value", [rows.expected()], tolerance)?;
        point.key_equals("gradient", gradient.as_slice(), tolerance)?;
        point.key_equals("hessian", hessian.as_slice(), tolerance)?;
    }
    Ok(())
}

/// Σ r ρ and Σ c ρρᵀ.
pub(super) fn sums(rows: &PseudoRows, d: usize) -> (DVector<f64>, DMatrix<f64>) {
    let (mut gradient, mut hessian) = (DVector::zeros(d), DMatrix::zeros(d, d));
    for (row, at) in rows.iter() {
        let mut dense = DVector::zeros(d);
        row.entries().for_each(|(j, x)| dense[j as usize] = x);
        gradient += &dense * at.residual;
        hessian += &dense * dense.transpose() * at.curvature;
    }
    (gradient, hessian)
}

/// Mean and covariance of a part.
pub(super) fn posterior(part: &Node<'_>) -> Result<Standard, String> {
    let mean = DVector::from_vec(part.at("mean")?);
    Ok(Standard::Full(full::Standard::new(mean, square(part, "covariance")?).map_err(message)?))
}

/// The part `ordinal_probabilities` of a report.
pub(super) fn ordinal_probabilities(report: &Node<'_>) -> Outcome {
    let part = report.get("ordinal_probabilities")?;
    let model = ModelSpec::from(ordinal(&part)?);
    for case in part.get("cases")?.list()? {
        let posterior = Arc::new(Gaussian::from_standard(posterior(&case)?));
        let law = model.rules().law(&Told { posterior, state: None, noise_sd: None }).map_err(message)?;
        let data = table(&[case.at("row")?], &[0.0])?;
        let record = data.records().next().ok_or("no record")?;
        let example = Example { target: 0.0, ..record.example() };
        let Prediction::Classes { probabilities } = law.predict(example) else { return Err("no classes".into()) };
        case.key_equals("probabilities", &probabilities, FIXED_POINT)?;
    }
    Ok(())
}

/// As [`multinomial_oracle`]; the other program's estimate is of β and the thresholds themselves.
pub(super) fn ordinal_oracle(node: &Node<'_>) -> Outcome {
    let part = node.get("ordinal")?;
    let (x, model) = (node.get("x")?.rows()?, ordinal(&part)?);
    let width = x.first().map_or(0, Vec::len);
    let data = table(&x, &ordered(part.at("target")?))?;
    let (q, sd) = oracle_fit(node, &part, ManyRowsModel(Arc::new(model)), &data, part.at("mean")?.len())?;
    let mean = q.standard().mean();
    let estimate = [&mean[..width], &model.thresholds_at(&mean[width..])].concat();
    near(&part, &estimate, &sd)
}

/// The records of a part, with their weights.
fn weighted(node: &Node<'_>, targets: Vec<f64>) -> Result<RecordTable, String> {
    let weights = node.at("weights")?;
    table_of(&node.get("x")?.rows()?, &targets, |i| (0.0, Extra { weight: weights[i], ..Extra::NONE }))
}

/// The optimum of a part, from the prior, with what it is worth.
pub(super) fn optimum<M: ManyRows + 'static>(node: &Node<'_>, part: &str, model: M, data: &RecordTable) -> Outcome {
    let (mean, precision) = (node.at("prior_mean")?, node.at("prior_precision")?);
    let d = mean.len();
    let stated = node.get(part)?;
    let (family, block, expected) = match part {
        "full" => {
            let block = svec(&DMatrix::from_diagonal(&precision.clone().into()));
            (Family::FullGaussian { dimension: d }, block, svec(&square(&stated, "precision")?))
        }
        _ => (Family::DiagonalGaussian { dimension: d }, precision.clone(), stated.at("precision")?),
    };
    let h = mean.iter().zip(&precision).map(|(mean, precision)| mean * precision);
    let prior = Gaussian::from_natural(family, h.chain(block).collect()).map_err(message)?;
    let model = ManyRowsModel(Arc::new(model));
    let q = LocalOptimum::local_optimum(&model, data, &prior, &prior).map_err(message)?;
    stated.key_equals("mean", q.standard().mean(), FIXED_POINT)?;
    let far = q.natural()[d..].iter().zip(&expected).find(|(found, stated)| (*found - *stated).abs() > FIXED_POINT * stated.abs().max(1.0));
    if let Some((found, stated)) = far {
        return Err(format!("{part}: a precision is {found:e}, the file has {stated:e}"));
    }
    let fit: f64 = data.records().map(|record| model.expected_log_likelihood(record, &q)).sum();
    stated.key_equals("expected_log_likelihood", [fit], FIXED_POINT)?;
    stated.key_equals("elbo", [fit - q.kl(&prior)], FIXED_POINT)
}

/// A fit with an intercept: mean and standard deviation as stated, and the mean near another program's estimate.
pub(super) fn multinomial_oracle(node: &Node<'_>) -> Outcome {
    let part = node.get("multinomial")?;
    let x: Vec<Vec<f64>> = node.get("x")?.rows()?.into_iter().map(|row| [vec![1.0], row].concat()).collect();
    let data = table(&x, &part.at("target")?)?;
    let model = MultinomialRegression { classes: classes(&part)? };
    let d = part.at("mean")?.len();
    let (q, sd) = oracle_fit(node, &part, ManyRowsModel(Arc::new(model)), &data, d)?;
    near(&part, q.standard().mean(), &sd)
}

pub(super) fn oracle_fit(
    node: &Node<'_>,
    part: &Node<'_>,
    model: impl LocalOptimum,
    data: &RecordTable,
    d: usize,
) -> Result<(Gaussian, Vec<f64>), String> {
    let family = Family::FullGaussian { dimension: d };
    let prior = Gaussian::from_natural(family, family.isotropic(0.0, node.get("prior_sd")?.number()?.powi(2))).map_err(message)?;
    let q = model.local_optimum(data, &prior, &prior).map_err(message)?;
    let covariance = unsvec(&q.natural()[d..], d).try_inverse().ok_or("the precision has no inverse")?;
    let sd: Vec<f64> = covariance.diagonal().iter().map(|variance| variance.sqrt()).collect();
    part.key_equals("mean", q.standard().mean(), ORACLE_TOLERANCE)?;
    part.key_equals("sd", &sd, ORACLE_TOLERANCE)?;
    Ok((q, sd))
}

pub(super) fn near(part: &Node<'_>, estimate: &[f64], sd: &[f64]) -> Outcome {
    let tolerance = part.get("tolerance_sd")?.number()?;
    let far = part.at("oracle")?.iter().zip(estimate).zip(sd).any(|((other, own), sd)| (other - own).abs() > tolerance * sd);
    if far {
        Err(format!("{}: the fit is more than {tolerance} standard deviations from the other program's", part.name()))
    } else {
        Ok(())
    }
}

fn model_of(case: &Node<'_>) -> Result<ModelSpec, String> {
    let number = |key: &str| case.get(key)?.number();
    Ok(match case.get("family")?.text()? {
        "multinomial-regression" => MultinomialRegression { classes: classes(case)? }.into(),
        "ordinal-regression" => ordinal(case)?.into(),
        "negative-binomial-regression" => NegativeBinomialRegression { dispersion: number("dispersion")? }.into(),
        "robust-regression" => RobustRegression { degrees_of_freedom: number("nu")?, scale: 1.0, learned: None }.into(),
        other => return Err(format!("no family {other}")),
    })
}

/// Of one record: f, and its derivatives by the means and by the logarithms of the standard deviations.
pub(super) fn mean_field_gradients(node: &Node<'_>) -> Outcome {
    let tolerance = node.get("tolerance")?.number()?;
    for case in node.get("cases")?.list()? {
        let (mean, variance) = (case.at("mean")?, case.at("variance")?);
        let (d, x) = (mean.len(), case.at("row")?);
        let spec = model_of(&case)?;
        let model = models::from_spec(&spec).map_err(message)?;
        let target = encoded(&spec, case.get("target")?.number()?);
        let precision = variance.iter().map(|v| 1.0 / v);
        let natural = mean.iter().zip(&variance).map(|(m, v)| m / v).chain(precision).collect();
        let q = Gaussian::from_natural(Family::DiagonalGaussian { dimension: d }, natural).map_err(message)?;
        let point = MeanField::new(mean, variance, ScaleCoordinate::LogScale).map_err(message)?;
        let data = table(&[x], &[target])?;
        let record: RecordView<'_> = data.records().next().ok_or("no record")?;
        case.key_equals("value", [model.expected_log_likelihood(record, &q)], tolerance)?;
        let mut term = Term::default();
        model.gradients().ok_or("no gradients")?.gradient(record, &point, &mut term);
        let mut dense = vec![0.0; 2 * d];
        term.entries().for_each(|(j, value)| dense[j as usize] += value);
        case.key_equals("d_mean", &dense[..d], tolerance)?;
        case.key_equals("d_log_sd", &dense[d..], tolerance)?;
    }
    Ok(())
}

/// A target of the file as a record holds it.
fn encoded(spec: &ModelSpec, target: f64) -> f64 {
    if spec.options::<OrdinalRegression>().is_some() { target - 1.0 } else { target }
}

/// What no record's blocks are longer than.
pub(super) fn bounds(node: &Node<'_>) -> Outcome {
    let tolerance = node.get("tolerance")?.number()?;
    for case in node.get("cases")?.list()? {
        let spec = model_of(&case)?;
        let weight = case.get("max_weight")?.number()?;
        let row = case.get("row_norm_bound")?.number()?;
        let label = case.get("max_count").and_then(|count| count.number()).unwrap_or(1.0);
        let ranges = Ranges { row, entry: case.get("max_abs_entry")?.number()?, label, times: None };
        let blocks = spec.rules().bounds(ranges).blocks.ok_or("there are no bounds")?;
        case.key_equals("mean_block", [weight * blocks.mean], tolerance)?;
        case.key_equals("precision_full", [weight * blocks.precision_full], tolerance)?;
        case.key_equals("precision_mean_field", [weight * blocks.precision_mean_field], tolerance)?;
    }
    Ok(())
}

/// The part `class_probabilities` of a report.
pub(super) fn class_probabilities(report: &Node<'_>) -> Outcome {
    let part = report.get("class_probabilities")?;
    let tolerance = part.get("tolerance")?.number()?;
    let rule = SoftmaxMean::new(classes(&part)? as usize - 1);
    for case in part.get("cases")?.list()? {
        let found = rule.probabilities(&DVector::from_vec(case.at("mean")?), &square(&case, "covariance")?);
        case.key_equals("probabilities", &found, tolerance)?;
    }
    Ok(())
}
