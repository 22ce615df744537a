//! `quadrature_table` and `dp_arith`.

use dp_pvi_posterior::quadrature::logit_moments;
use dp_pvi_privacy::Epsilon;
use dp_pvi_privacy::accountant::Gdp;

use super::read::{Node, Outcome, message};

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
