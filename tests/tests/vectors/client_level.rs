//! `client_level_tied` and `client_level_private_clean`: whole sites are clipped, in the stored coordinates (h, Λ).

use dp_pvi_math::expfam::any::Gaussian;
use dp_pvi_math::floor::PrecisionFloor;
use dp_pvi_posterior::methods::{Coding, PviRule};
use dp_pvi_posterior::task::{FactorState, ShardMethod, UpdateSpec};
use dp_pvi_privacy::clipping::metric::ClipMetric;

use super::federation::natural_equals;
use super::linreg;
use super::read::{FIXED_POINT, Node, Outcome, message};
use super::task;

/// A bound that no change reaches.
const NEVER: f64 = 1e9;

pub(crate) fn tied_without_clipping(parent: &Node<'_>, node: &Node<'_>) -> Outcome {
    rounds(parent, node, FactorState::Tied, NEVER)
}

pub(crate) fn tied(parent: &Node<'_>, node: &Node<'_>) -> Outcome {
    rounds(parent, node, FactorState::Tied, parent.get("clip_C")?.number()?)
}

pub(crate) fn private_clean(parent: &Node<'_>, node: &Node<'_>) -> Outcome {
    rounds(parent, node, FactorState::PrivateClean, parent.get("clip_C")?.number()?)
}

/// Rounds of all sites without noise: exact fits to the cavity, the engine's clip, the server's rule.
fn rounds(parent: &Node<'_>, node: &Node<'_>, state: FactorState, bound: f64) -> Outcome {
    let problem = linreg::problem(&parent.top("linreg")?, linreg::full_covariance)?;
    let (sites, rho) = (problem.sites.len(), parent.get("rho")?.number()?);
    let spec = task::shards(ShardMethod::ClientLevel, 1, u32::try_from(sites).map_err(message)?, state, ClipMetric::Flat, bound)?;
    let task = task::synchronous(problem.model.clone(), problem.family, UpdateSpec::Shards(spec.clone()), vec![rho])?;
    let coding = Coding::new(&task.setting(), spec);
    let rule = PviRule::from_parts(problem.family, problem.prior.clone(), PrecisionFloor::LogConcave, vec![rho]);
    let mut lambda = problem.prior.clone();
    let mut kept = vec![vec![0.0; lambda.len()]; sites];
    for expected in node.list()? {
        let global = Gaussian::from_natural(problem.family, lambda.clone()).map_err(message)?;
        #[allow(clippy::cast_precision_loss, reason = "a number of sites")]
        let tied: Vec<f64> = lambda.iter().zip(&problem.prior).map(|(l, p)| (l - p) / sites as f64).collect();
        let mut sum = vec![0.0; lambda.len()];
        let mut norms = Vec::new();
        for (site, kept) in problem.sites.iter().zip(&mut kept) {
            let factor = if state == FactorState::Tied { &tied } else { &*kept };
            let cavity: Vec<f64> = lambda.iter().zip(factor).map(|(l, f)| l - f).collect();
            let fit = problem.optimum(site, &cavity, &lambda)?;
            let change: Vec<f64> = fit.natural().iter().zip(&lambda).map(|(new, old)| new - old).collect();
            norms.push(change.iter().map(|c| c * c).sum::<f64>().sqrt());
            let clipped = coding.decode(&coding.encode(&change, &global), &global);
            kept.iter_mut().zip(&clipped).for_each(|(k, c)| *k += rho * c);
            sum.iter_mut().zip(&clipped).for_each(|(s, c)| *s += c);
        }
        lambda = rule.apply(&lambda, 0, &sum).state;
        natural_equals(&expected, problem.family, &lambda, FIXED_POINT)?;
        if expected.get("client_delta_norms").is_ok() {
            expected.key_equals("client_delta_norms", norms, FIXED_POINT)?;
        }
    }
    Ok(())
}
