//! `multinomial`, `negative_binomial`, `robust`, the optima of the last two, and fits beside those of other programs (`oracle`).

use dp_pvi_inference::capabilities::LocalOptimum;
use dp_pvi_inference::capabilities::glm;
use dp_pvi_inference::capabilities::predictor::PredictorModel;
use dp_pvi_inference::records::RecordTable;
use dp_pvi_math::expfam::any::{Family, Gaussian};
use dp_pvi_math::expfam::gaussian::full::{svec, unsvec};
use dp_pvi_math::observation::Precision;
use dp_pvi_math::tilted_softmax::TiltedSoftmax;
use dp_pvi_models::negative_binomial_regression::NegativeBinomialRegression;
use dp_pvi_models::predictor::{Predictor, Statistics};
use dp_pvi_models::robust_regression::Student;
use dp_pvi_schema::public::Extra;
use nalgebra::{DMatrix, DVector};

use super::{Check, many_rows, scales, square, survival};
use crate::federation::{table, table_of};
use crate::read::{FIXED_POINT, Node, Outcome, message};

/// Parts of `negative_binomial_optimum`.
pub(super) const NEGATIVE_BINOMIAL_OPTIMUM: &[(&str, Option<Check>)] = &[
    ("dispersion", Some(input)),
    ("x", Some(input)),
    ("target", Some(input)),
    ("offset", Some(input)),
    ("weights", Some(input)),
    ("prior_mean", Some(input)),
    ("prior_precision", Some(input)),
    ("full", Some(negative_binomial_full)),
    ("mean_field", Some(negative_binomial_mean_field)),
];

/// Parts of `robust_optimum`.
pub(super) const ROBUST_OPTIMUM: &[(&str, Option<Check>)] = &[
    ("nu", Some(input)),
    ("sd", Some(input)),
    ("x", Some(input)),
    ("target", Some(input)),
    ("prior_mean", Some(input)),
    ("prior_precision", Some(input)),
    ("full", Some(robust_full)),
    ("mean_field", Some(robust_mean_field)),
    ("unknown_scale", Some(unknown_scale)),
];

/// Parts of `oracle`.
pub(super) const ORACLE: &[(&str, Option<Check>)] = &[
    ("x", Some(input)),
    ("prior_sd", Some(input)),
    ("note", Some(input)),
    ("multinomial", Some(many_rows::multinomial_oracle)),
    ("ordinal", Some(many_rows::ordinal_oracle)),
    ("negative_binomial", Some(negative_binomial_oracle)),
    ("survival", Some(survival::survival_oracle)),
    ("weibull", Some(survival::weibull_oracle)),
    ("robust", Some(robust_oracle)),
    ("site", Some(scales::site_oracle)),
    ("smooth", Some(scales::smooth_oracle)),
];

/// What other checks use.
pub(super) fn input(_: &Node<'_>) -> Outcome {
    Ok(())
}

pub(super) fn multinomial(node: &Node<'_>) -> Outcome {
    let tolerance = node.get("tolerance")?.number()?;
    for point in node.get("points")?.list()? {
        let mean = DVector::from_vec(point.at("mean")?);
        let at = TiltedSoftmax::new(&mean, &square(&point, "covariance")?);
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "the position of a class")]
        let class = point.get("target")?.number()? as usize;
        if class > mean.len() {
            return Err(format!("there is no class {class}"));
        }
        point.key_equals("value", [at.log_probability(&mean, class)], tolerance)?;
        point.key_equals("residual", at.residual(class).as_slice(), tolerance)?;
        // Symmetric: by rows as by columns.
        point.key_equals("curvature", at.curvature().as_slice(), tolerance)?;
    }
    Ok(())
}

pub(super) fn negative_binomial(node: &Node<'_>) -> Outcome {
    let tolerance = node.get("tolerance")?.number()?;
    for point in node.get("points")?.list()? {
        let model = NegativeBinomialRegression { dispersion: point.get("dispersion")?.number()? };
        check_point(&model, &point, tolerance)?;
    }
    Ok(())
}

pub(super) fn robust(node: &Node<'_>) -> Outcome {
    let tolerance = node.get("tolerance")?.number()?;
    for point in node.get("points")?.list()? {
        let model = Student::new(point.get("nu")?.number()?, point.get("sd")?.number()?);
        let (at, square) = check_point(&model, &point, tolerance)?;
        point.key_equals("scale_statistic", [at.curvature * square], tolerance)?;
    }
    Ok(())
}

/// Value, residual and curvature; returns the last two, and Q.
fn check_point(model: &dyn Predictor, point: &Node<'_>, tolerance: f64) -> Result<(Statistics, f64), String> {
    let number = |key: &str| point.get(key)?.number();
    let (mean, variance, target) = (number("mean")?, number("variance")?, number("target")?);
    let at = model.statistics(mean, variance, target);
    point.key_equals("value", [model.expected_log_density(mean, variance, target)], tolerance)?;
    point.key_equals("residual", [at.residual], tolerance)?;
    point.key_equals("curvature", [at.curvature], tolerance)?;
    Ok((at, (target - mean).powi(2) + variance))
}

fn negative_binomial_full(node: &Node<'_>) -> Outcome {
    weighted_optimum(node, "full")
}

fn negative_binomial_mean_field(node: &Node<'_>) -> Outcome {
    weighted_optimum(node, "mean_field")
}

fn weighted_optimum(node: &Node<'_>, part: &str) -> Outcome {
    let model = NegativeBinomialRegression { dispersion: node.get("dispersion")?.number()? };
    let (offset, weights) = (node.at("offset")?, node.at("weights")?);
    let beside = |i: usize| (offset[i], Extra { weight: weights[i], ..Extra::NONE });
    optimum(node, part, PredictorModel::of(model), &table_of(&node.get("x")?.rows()?, &node.at("target")?, beside)?)
}

fn robust_full(node: &Node<'_>) -> Outcome {
    robust_optimum(node, "full")
}

fn robust_mean_field(node: &Node<'_>) -> Outcome {
    robust_optimum(node, "mean_field")
}

/// The scale is learned with the coefficients, as a site of PVI does that is alone.
fn unknown_scale(node: &Node<'_>) -> Outcome {
    let part = node.get("unknown_scale")?;
    let prior = Precision { shape: part.get("shape")?.number()?, rate: part.get("rate")?.number()? };
    let data = table(&node.get("x")?.rows()?, &node.at("target")?)?;
    for family in ["full", "mean_field"] {
        let (start, expected) = prior_and_precision(node, &part, family)?;
        let (mut q, mut scale) = (start.clone(), prior);
        for _ in 0..100 {
            let model = Student::new(node.get("nu")?.number()?, scale.scale());
            q = PredictorModel::of(model).local_optimum(&data, &start, &q).map_err(message)?;
            let [count, statistic] = glm::scale_sums(&model, &data, q.standard());
            scale = prior.and(count, statistic, scale.square());
        }
        let stated = part.get(family)?;
        stated.key_equals("sd", [scale.scale()], FIXED_POINT)?;
        stated.key_equals("statistic", [2.0 * (scale.rate - prior.rate) / scale.square()], FIXED_POINT)?;
        stated.key_equals("mean", q.standard().mean(), FIXED_POINT)?;
        same_precision(family, &q, &expected)?;
    }
    Ok(())
}

fn robust_optimum(node: &Node<'_>, part: &str) -> Outcome {
    let model = Student::new(node.get("nu")?.number()?, node.get("sd")?.number()?);
    optimum(node, part, PredictorModel::of(model), &table(&node.get("x")?.rows()?, &node.at("target")?)?)
}

/// The optimum of a part, from the prior, with what it is worth.
fn optimum(node: &Node<'_>, part: &str, model: PredictorModel, data: &RecordTable) -> Outcome {
    let stated = node.get(part)?;
    let (prior, expected) = prior_and_precision(node, node, part)?;
    let q = model.local_optimum(data, &prior, &prior).map_err(message)?;
    stated.key_equals("mean", q.standard().mean(), FIXED_POINT)?;
    same_precision(part, &q, &expected)?;
    let fit = glm::total(model.0.as_ref(), data, &q);
    stated.key_equals("expected_log_likelihood", [fit], FIXED_POINT)?;
    stated.key_equals("elbo", [fit - q.kl(&prior)], FIXED_POINT)
}

/// The prior of `node` in the family of this key of `of`, and the precision block that is there.
fn prior_and_precision(node: &Node<'_>, of: &Node<'_>, part: &str) -> Result<(Gaussian, Vec<f64>), String> {
    let (mean, precision) = (node.at("prior_mean")?, node.at("prior_precision")?);
    let d = mean.len();
    let stated = of.get(part)?;
    let (family, block, expected) = match part {
        "full" => {
            let block = svec(&DMatrix::from_diagonal(&precision.clone().into()));
            (Family::FullGaussian { dimension: d }, block, svec(&square(&stated, "precision")?))
        }
        _ => (Family::DiagonalGaussian { dimension: d }, precision.clone(), stated.at("precision")?),
    };
    let h = mean.iter().zip(&precision).map(|(mean, precision)| mean * precision);
    Ok((Gaussian::from_natural(family, h.chain(block).collect()).map_err(message)?, expected))
}

fn same_precision(part: &str, q: &Gaussian, expected: &[f64]) -> Outcome {
    let found = &q.natural()[q.family().dimension()..];
    let far = found.iter().zip(expected).find(|(found, stated)| (*found - *stated).abs() > FIXED_POINT * stated.abs().max(1.0));
    far.map_or(Ok(()), |(found, stated)| Err(format!("{part}: a precision is {found:e}, the file has {stated:e}")))
}

fn negative_binomial_oracle(node: &Node<'_>) -> Outcome {
    let part = node.get("negative_binomial")?;
    oracle(node, &part, &PredictorModel::of(NegativeBinomialRegression { dispersion: part.get("dispersion")?.number()? }))
}

fn robust_oracle(node: &Node<'_>) -> Outcome {
    let part = node.get("robust")?;
    oracle(node, &part, &PredictorModel::of(Student::new(part.get("nu")?.number()?, part.get("noise_sd")?.number()?)))
}

/// A fit with an intercept: mean and standard deviation as stated, and the mean near another program's estimate.
fn oracle(node: &Node<'_>, part: &Node<'_>, model: &PredictorModel) -> Outcome {
    let x: Vec<Vec<f64>> = node.get("x")?.rows()?.into_iter().map(|row| [vec![1.0], row].concat()).collect();
    let d = x.first().map_or(0, Vec::len);
    let family = Family::FullGaussian { dimension: d };
    let prior = Gaussian::from_natural(family, family.isotropic(0.0, node.get("prior_sd")?.number()?.powi(2))).map_err(message)?;
    let q = model.local_optimum(&table(&x, &part.at("target")?)?, &prior, &prior).map_err(message)?;
    let mean = q.standard().mean();
    let covariance = unsvec(&q.natural()[d..], d).try_inverse().ok_or("the precision has no inverse")?;
    let sd: Vec<f64> = covariance.diagonal().iter().map(|variance| variance.sqrt()).collect();
    part.key_equals("mean", mean, ORACLE_TOLERANCE)?;
    part.key_equals("sd", &sd, ORACLE_TOLERANCE)?;
    let tolerance = part.get("tolerance_sd")?.number()?;
    let far = part.at("oracle")?.iter().zip(mean).zip(&sd).any(|((other, own), sd)| (other - own).abs() > tolerance * sd);
    if far {
        Err(format!("{}: the fit is more than {tolerance} standard deviations from the other program's", part.name()))
    } else {
        Ok(())
    }
}

/// Of our own fits in `oracle`.
pub(super) const ORACLE_TOLERANCE: f64 = 1e-6;
