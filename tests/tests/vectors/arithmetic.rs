//! `quadrature_table` and `dp_arith`.

use dp_pvi_accounting::Gdp;
use dp_pvi_accounting::{ClipNorm, Epsilon, NoiseMultiplier};
use dp_pvi_math::quadrature::logit_moments;
use dp_pvi_math::simplex;
use dp_pvi_posterior::methods::noise_aware;
use dp_pvi_privacy::clipping::adaptive::{next_bound, split_noise};
use dp_pvi_privacy::clipping::metric::{clip, clip_blocks, joint_norm};

use super::read::{CLOSED_FORM, Node, Outcome, message};

/// Logistic expectations.
const TABLE: f64 = 1e-12;
/// δ(ε), relative.
const DELTA: f64 = 1e-9;

pub(crate) fn quadrature_table(_: &Node<'_>, node: &Node<'_>) -> Outcome {
    let columns: Vec<&str> = node.get("columns")?.list()?.iter().map(Node::text).collect::<Result<_, _>>()?;
    let column = |name: &str| columns.iter().position(|c| *c == name).ok_or_else(|| format!("there is no column {name}"));
    let (a, s2) = (column("a")?, column("s2")?);
    let results = ["E softplus", "E sigma", "E sigma(1-sigma)"].map(column);
    for row in node.get("rows")?.list()? {
        let cells = row.list()?;
        let cell = |i: usize| cells.get(i).ok_or_else(|| "a row is too short".to_owned());
        let moments = logit_moments(cell(a)?.number()?, cell(s2)?.number()?);
        for (position, value) in results.iter().zip([moments.softplus, moments.sigmoid, moments.curvature]) {
            cell(position.clone()?)?.equals([value], TABLE)?;
        }
    }
    Ok(())
}

pub(crate) fn gdp(_: &Node<'_>, node: &Node<'_>) -> Outcome {
    for row in node.list()? {
        let (mu, epsilon) = (row.get("mu")?.number()?, Epsilon::new(row.get("eps")?.number()?).map_err(message)?);
        let (got, expected) = (Gdp::of_ratio(mu).delta(epsilon), row.get("delta")?.number()?);
        // NaN is not within.
        let within = (got / expected - 1.0).abs() <= DELTA;
        if !within {
            return Err(format!("delta is {got:e} at mu {mu}, epsilon {}; the file has {expected:e}", epsilon.get()));
        }
    }
    Ok(())
}

pub(crate) fn clipped(_: &Node<'_>, node: &Node<'_>) -> Outcome {
    let mut values = node.at("v")?;
    clip(&mut values, norm(&node.get("C")?)?);
    node.key_equals("out", values, CLOSED_FORM)
}

/// The bounds are in the key's text only: "mean block bound 0.8, … precision block bound 0.5".
pub(crate) fn block_clipped(parent: &Node<'_>, node: &Node<'_>) -> Outcome {
    let doc = node.get("doc")?;
    let bounds = doc.text()?.split("bound ").skip(1).map(|rest| {
        let digits: String = rest.chars().take_while(|c| c.is_ascii_digit() || *c == '.').collect();
        digits.parse().map_err(message).and_then(|bound| ClipNorm::new(bound).map_err(message))
    });
    let bounds: Vec<ClipNorm> = bounds.collect::<Result<_, _>>()?;
    let mut values = parent.get("clip")?.at("v")?;
    let length = values.len() / bounds.len().max(1);
    let blocks: Vec<_> = bounds.iter().map(|&bound| (length, bound)).collect();
    clip_blocks(&mut values, &blocks);
    node.key_equals("out", values, CLOSED_FORM)?;
    node.key_equals("joint_sensitivity", [joint_norm(&bounds).get()], CLOSED_FORM)
}

pub(crate) fn quantile_update(_: &Node<'_>, node: &Node<'_>) -> Outcome {
    let (bound, within) = (norm(&node.get("C")?)?, node.get("b")?.number()?);
    let next = next_bound(bound, bound, within, node.get("target")?.number()?, node.get("eta")?.number()?);
    node.key_equals("out", [next.get()], CLOSED_FORM)
}

pub(crate) fn quantile_noise_split(_: &Node<'_>, node: &Node<'_>) -> Outcome {
    let z = NoiseMultiplier::new(node.get("z")?.number()?).map_err(message)?;
    let split = split_noise(z, node.get("sigma_b")?.number()?).ok_or("the indicator costs more than the whole")?;
    node.key_equals("z_delta", [split.get()], CLOSED_FORM)
}

pub(crate) fn simplex_projection(_: &Node<'_>, node: &Node<'_>) -> Outcome {
    node.key_equals("out", simplex::project(&node.at("x")?, node.get("total")?.number()?), CLOSED_FORM)
}

pub(crate) fn noise_aware_combination(_: &Node<'_>, node: &Node<'_>) -> Outcome {
    let natural = |h: &str, precision: &str| Ok::<_, String>([node.at(h)?, node.at(precision)?].concat());
    let (prior, likelihood, noise) = (natural("prior_h", "prior_prec")?, natural("lik_h", "lik_prec")?, node.at("S")?);
    let combined = noise_aware::diagonal(&prior, &likelihood, &noise);
    let (h, precision) = combined.split_at(noise.len());
    node.key_equals("h", h, CLOSED_FORM)?;
    node.key_equals("prec", precision, CLOSED_FORM)
}

fn norm(node: &Node<'_>) -> Result<ClipNorm, String> {
    ClipNorm::new(node.number()?).map_err(message)
}
