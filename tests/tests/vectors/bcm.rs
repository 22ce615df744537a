//! `bcm`: every site fits alone to its own prior, and the fits are multiplied.

use dp_pvi_math::floor::PrecisionFloor;
use dp_pvi_posterior::methods::PviRule;

use super::federation::{Problem, natural_equals};
use super::read::{CLOSED_FORM, FIXED_POINT, Node, Outcome};
use super::{linreg, logreg};

pub(crate) fn linreg_full(parent: &Node<'_>, node: &Node<'_>) -> Outcome {
    let problem = linreg::problem(&parent.top("linreg")?, linreg::full_covariance)?;
    both(&problem, node, CLOSED_FORM)
}

pub(crate) fn logreg_mean_field(parent: &Node<'_>, node: &Node<'_>) -> Outcome {
    let problem = logreg::problem(&parent.top("logreg")?, logreg::diagonal)?;
    both(&problem, node, FIXED_POINT)
}

fn both(problem: &Problem, node: &Node<'_>, tolerance: f64) -> Outcome {
    for (key, split) in [("same", false), ("split", true)] {
        committee(problem, &node.get(key)?, split, tolerance)?;
    }
    Ok(())
}

/// λ0 + Σ (λ^(m) − w_m λ0) with exact fits to priors w_m λ0, w_m = 1 or n_m/n, by the server's rule for a committee.
fn committee(problem: &Problem, node: &Node<'_>, split: bool, tolerance: f64) -> Outcome {
    let d = problem.family.dimension();
    let mut sum = vec![0.0; problem.family.len()];
    let (mut client_h, mut client_precision) = (Vec::new(), Vec::new());
    for site in &problem.sites {
        #[allow(clippy::cast_precision_loss, reason = "numbers of records")]
        let share = if split { site.records().len() as f64 / problem.all.records().len() as f64 } else { 1.0 };
        let own: Vec<f64> = problem.prior.iter().map(|value| share * value).collect();
        let fit = problem.optimum(site, &own, &own)?;
        sum.iter_mut().zip(fit.natural()).zip(&own).for_each(|((s, fit), own)| *s += fit - own);
        client_h.extend_from_slice(&fit.natural()[..d]);
        client_precision.extend_from_slice(&fit.natural()[d..]);
    }
    let rule = PviRule::from_parts(problem.family, problem.prior.clone(), PrecisionFloor::LogConcave, vec![1.0]);
    natural_equals(node, problem.family, &rule.apply(&problem.prior, 0, &sum).state, tolerance)?;
    // Only the mean-field key lists the members.
    if node.get("client_h").is_ok() {
        node.key_equals("client_h", client_h, tolerance)?;
        node.key_equals("client_prec", client_precision, tolerance)?;
    }
    Ok(())
}
