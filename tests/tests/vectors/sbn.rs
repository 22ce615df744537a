//! `sbn`: E-step of one image by a sigmoid belief network.

use dp_pvi_math::expfam::gaussian::full::svec;
use dp_pvi_models::sigmoid_belief::hidden::{Batch, Prepared};
use dp_pvi_models::sigmoid_belief::{Network, Shape};
use nalgebra::{DMatrix, DVector};

use super::read::{FIXED_POINT, Node, Outcome, message};

fn matrix(rows: &[Vec<f64>]) -> DMatrix<f64> {
    let columns = rows.first().map_or(0, Vec::len);
    DMatrix::from_fn(rows.len(), columns, |i, j| rows[i][j])
}

fn fitted(root: &Node<'_>, sweeps: u32) -> Result<Batch, String> {
    let (c, b, v) = (root.at("c")?, root.at("b")?, root.at("v")?);
    let size = |n: usize| u32::try_from(n).map_err(message);
    let shape = Shape::new(size(c.len())?, size(b.len())?).map_err(message)?;
    let (weights, variances) = (matrix(&root.get("W_mean")?.rows()?), matrix(&root.get("W_var")?.rows()?));
    let network = Network::new(shape, weights, variances, DVector::from_vec(c), DVector::from_vec(b)).map_err(message)?;
    if v.len() != shape.visible() {
        return Err("v and c do not belong together".into());
    }
    Ok(Prepared::new(&network).fit(DMatrix::from_column_slice(v.len(), 1, &v), sweeps))
}

/// Number of sweeps of a trace entry.
fn sweeps(step: &Node<'_>) -> Result<u32, String> {
    let sweeps = step.get("sweep")?.number()?;
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a small count")]
    Ok(sweeps as u32)
}

pub(crate) fn trace(root: &Node<'_>, node: &Node<'_>) -> Outcome {
    for step in node.list()? {
        let batch = fitted(root, sweeps(&step)?)?;
        step.key_equals("pi", batch.hidden(0), FIXED_POINT)?;
        step.key_equals("omega", batch.omega(0), FIXED_POINT)?;
    }
    Ok(())
}

/// E hhᵀ at the π of the longest trace.
pub(crate) fn pairs(root: &Node<'_>, node: &Node<'_>) -> Outcome {
    let steps = root.get("trace")?.list()?;
    let longest = steps.iter().map(sweeps).collect::<Result<Vec<_>, _>>()?.into_iter().max().ok_or("an empty trace")?;
    let found: Vec<f64> = fitted(root, longest)?.pairs(0).collect();
    let expected = svec(&matrix(&node.rows()?));
    let close = found.len() == expected.len() && found.iter().zip(&expected).all(|(a, b)| (a - b).abs() <= FIXED_POINT);
    if close { Ok(()) } else { Err(format!("svec of Ehh is {found:?}, the file has {expected:?}")) }
}
