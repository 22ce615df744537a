//! `personalised`: a site's own posterior from the posterior of all, its factor and its records.

use dp_pvi_inference::models::{self, Model};
use dp_pvi_inference::personal::fit;
use dp_pvi_inference::records::RecordTable;
use dp_pvi_math::expfam::any::{Family, Gaussian};
use dp_pvi_math::expfam::gaussian::full::svec;
use dp_pvi_models::{linear_regression, logistic_regression};
use dp_pvi_posterior::task::ModelSpec;
use nalgebra::DMatrix;

use super::{Check, square};
use crate::federation::table;
use crate::read::{FIXED_POINT, Node, Outcome, message};

pub(super) const PARTS: &[(&str, Option<Check>)] = &[("x", Some(input)), ("target", Some(input)), ("cases", Some(cases))];

fn input(_: &Node<'_>) -> Outcome {
    Ok(())
}

fn cases(node: &Node<'_>) -> Outcome {
    let x = node.get("x")?.rows()?;
    let logistic = models::from_spec(&ModelSpec::from(logistic_regression::LogisticRegression {})).map_err(message)?;
    for case in node.get("cases")?.list()? {
        let (precision, factor) = (square(&case, "precision")?, square(&case, "factor_precision")?);
        let (prior, cavity) = (case.at("prior_precision")?, precision - factor);
        let full = Family::FullGaussian { dimension: prior.len() };
        let prior_matrix = svec(&DMatrix::from_diagonal(&prior.clone().into()));
        let h = |part: &Node<'_>| -> Result<Vec<f64>, String> {
            Ok(part.at("h")?.iter().zip(case.at("factor_h")?).map(|(all, own)| all - own).collect())
        };
        let data = table(&x, &node.at("target")?)?;

        let part = case.get("full")?;
        let others = [h(&part)?, svec(&cavity)].concat();
        checked(&part, logistic.as_ref(), &data, full, &others, &prior_matrix)?;

        let part = case.get("linear_full")?;
        let noise_sd = part.get("noise_sd")?.number()?;
        let linear = models::from_spec(&ModelSpec::from(linear_regression::LinearRegression { noise_sd })).map_err(message)?;
        checked(&part, linear.as_ref(), &table(&x, &part.at("target")?)?, full, &others, &prior_matrix)?;

        let part = case.get("mean_field")?;
        let others = [h(&part)?, cavity.diagonal().as_slice().to_vec()].concat();
        checked(&part, logistic.as_ref(), &data, Family::DiagonalGaussian { dimension: prior.len() }, &others, &prior)?;
    }
    Ok(())
}

fn checked(part: &Node<'_>, model: &dyn Model, records: &RecordTable, family: Family, others: &[f64], prior: &[f64]) -> Outcome {
    let (q, floored): (Gaussian, usize) = fit(model, records, family, others, prior).ok_or("there is no optimum")?;
    let d = family.dimension();
    part.key_equals("mean", q.standard().mean(), FIXED_POINT)?;
    let precision = match family {
        Family::DiagonalGaussian { .. } => part.at("precision")?,
        Family::FullGaussian { .. } => svec(&square(part, "precision")?),
    };
    for (found, stated) in q.natural()[d..].iter().zip(&precision) {
        if (found - stated).abs() > FIXED_POINT * stated.abs().max(1.0) {
            return Err(format!("a precision is {found:e}, the file has {stated:e}"));
        }
    }
    match part.get("floored") {
        Ok(stated) if stated.flag()? != (floored > 0) => Err("whether the cavity was raised".into()),
        _ => Ok(()),
    }
}
