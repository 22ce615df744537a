//! `expfam`: conversions and divergences.

use dp_pvi_math::expfam::dirichlet;
use dp_pvi_math::expfam::dirichlet::Dirichlet;
use dp_pvi_math::expfam::gamma;
use dp_pvi_math::expfam::gamma::Gamma;
use dp_pvi_math::expfam::gaussian::diagonal;
use dp_pvi_math::expfam::gaussian::diagonal::Diagonal;
use dp_pvi_math::expfam::gaussian::full;
use dp_pvi_math::expfam::gaussian::full::{Full, svec};
use dp_pvi_math::expfam::{Distribution, ExponentialFamily};
use nalgebra::{DMatrix, DVector};

use super::read::{CLOSED_FORM, Node, Outcome, message};

pub(crate) fn diagonal(_: &Node<'_>, node: &Node<'_>) -> Outcome {
    let read = |key: &str| -> Result<Distribution<Diagonal>, String> {
        let part = node.get(key)?;
        Ok(Distribution::from_standard(diagonal::Standard::new(part.at("mean")?, part.at("var")?).map_err(message)?))
    };
    let (q, p) = (read("q")?, read("p")?);
    let (natural, mean) = (node.get("q_natural")?, node.get("q_mean_params")?);
    let d = q.family().dimension;
    natural.key_equals("h", &q.natural()[..d], CLOSED_FORM)?;
    natural.key_equals("prec", &q.natural()[d..], CLOSED_FORM)?;
    mean.key_equals("m1", &q.mean_parameters()[..d], CLOSED_FORM)?;
    mean.key_equals("m2", &q.mean_parameters()[d..], CLOSED_FORM)?;
    node.key_equals("q_log_partition", [q.log_partition()], CLOSED_FORM)?;
    node.key_equals("kl_q_p", [q.kl(&p)], CLOSED_FORM)?;
    // And back.
    let written = [natural.at("h")?, natural.at("prec")?].concat();
    let back = Distribution::from_natural(*q.family(), written).map_err(message)?;
    node.get("q")?.key_equals("mean", back.standard().mean(), CLOSED_FORM)?;
    node.get("q")?.key_equals("var", back.standard().variance(), CLOSED_FORM)?;
    let moments = [mean.at("m1")?, mean.at("m2")?].concat();
    let back = Distribution::from_mean_parameters(q.family(), &moments).map_err(message)?;
    node.get("q")?.key_equals("var", back.standard().variance(), CLOSED_FORM)
}

pub(crate) fn full(_: &Node<'_>, node: &Node<'_>) -> Outcome {
    let read = |key: &str| -> Result<Distribution<Full>, String> {
        let part = node.get(key)?;
        let mean = DVector::from_vec(part.at("mean")?);
        let covariance = DMatrix::from_row_slice(mean.len(), mean.len(), &part.at("cov")?);
        Ok(Distribution::from_standard(full::Standard::new(mean, covariance).map_err(message)?))
    };
    let (q, p) = (read("q")?, read("p")?);
    let natural = node.get("q_natural")?;
    let d = q.family().dimension;
    natural.key_equals("h", &q.natural()[..d], CLOSED_FORM)?;
    natural.key_equals("svec_prec", &q.natural()[d..], CLOSED_FORM)?;
    // Symmetric: rows are columns.
    natural.key_equals("prec", q.standard().precision().as_slice(), CLOSED_FORM)?;
    let second = DMatrix::from_row_slice(d, d, &node.at("q_second_moment")?);
    let mean = q.mean_parameters();
    Node::equals(&node.get("q")?.get("mean")?, &mean[..d], CLOSED_FORM)?;
    let wanted = svec(&second);
    if mean[d..].iter().zip(&wanted).any(|(a, b)| (a - b).abs() > CLOSED_FORM * b.abs().max(1.0)) {
        return Err(format!("the second moment is {:?}, the file has {wanted:?}", &mean[d..]));
    }
    node.key_equals("kl_q_p", [q.kl(&p)], CLOSED_FORM)?;
    let written = [natural.at("h")?, natural.at("svec_prec")?].concat();
    let back = Distribution::from_natural(*q.family(), written).map_err(message)?;
    node.get("q")?.key_equals("mean", back.standard().mean().as_slice(), CLOSED_FORM)?;
    node.get("q")?.key_equals("cov", back.standard().covariance().as_slice(), CLOSED_FORM)
}

pub(crate) fn gamma(_: &Node<'_>, node: &Node<'_>) -> Outcome {
    let read = |key: &str| -> Result<Distribution<Gamma>, String> {
        let part = node.get(key)?;
        let standard = gamma::Standard::new(part.get("shape")?.number()?, part.get("rate")?.number()?).map_err(message)?;
        Ok(Distribution::from_standard(standard))
    };
    let (q, p) = (read("q")?, read("p")?);
    node.key_equals("q_natural", q.natural(), CLOSED_FORM)?;
    node.key_equals("q_mean_params", q.mean_parameters(), CLOSED_FORM)?;
    node.key_equals("kl_q_p", [q.kl(&p)], CLOSED_FORM)?;
    let back = Gamma.standard_of_mean(&node.at("q_mean_params")?).map_err(message)?;
    node.get("q")?.key_equals("shape", [back.shape()], CLOSED_FORM)?;
    node.get("q")?.key_equals("rate", [back.rate()], CLOSED_FORM)
}

pub(crate) fn dirichlet(_: &Node<'_>, node: &Node<'_>) -> Outcome {
    let read = |key: &str| -> Result<Distribution<Dirichlet>, String> {
        Ok(Distribution::from_standard(dirichlet::Standard::new(node.at(key)?).map_err(message)?))
    };
    let (q, p) = (read("q")?, read("p")?);
    node.key_equals("q_natural", q.natural(), CLOSED_FORM)?;
    node.key_equals("q_mean_params", q.mean_parameters(), CLOSED_FORM)?;
    node.key_equals("kl_q_p", [q.kl(&p)], CLOSED_FORM)?;
    let back = q.family().standard_of_mean(&node.at("q_mean_params")?).map_err(message)?;
    node.key_equals("q", back.concentration(), CLOSED_FORM)
}
