//! `linreg`: where everything is known in closed form.

use dp_pvi_math::expfam::any::{Family, Gaussian, Standard};
use dp_pvi_models::linear_regression;
use dp_pvi_posterior::task::ModelSpec;

use super::federation::{Federation, Problem, factors_equal, natural_equals};
use super::read::{CLOSED_FORM, FIXED_POINT, Node, Outcome};

/// Sweeps after which an undamped federation of this size stands still.
const SWEEPS: u32 = 5000;

/// Data, prior and sites of `linreg`.
pub(crate) fn problem(root: &Node<'_>, family: fn(usize) -> Family) -> Result<Problem, String> {
    let noise_sd = root.get("noise_var")?.number()?.sqrt();
    let mut problem = Problem::read(root, ModelSpec::from(linear_regression::LinearRegression { noise_sd }), family)?;
    let (mean, precision) = (root.at("prior_mean")?, root.at("prior_prec")?);
    let d = problem.family.dimension();
    if mean.len() != d || precision.len() != d {
        return Err("the prior has another dimension than X".into());
    }
    let h = precision.iter().zip(&mean).map(|(l, m)| l * m);
    problem.prior = match problem.family {
        Family::DiagonalGaussian { .. } => h.chain(precision.iter().copied()).collect(),
        Family::FullGaussian { .. } => {
            let matrix = nalgebra::DMatrix::from_diagonal(&nalgebra::DVector::from_column_slice(&precision));
            h.chain(dp_pvi_math::expfam::gaussian::full::svec(&matrix)).collect()
        }
    };
    Ok(problem)
}

pub(crate) fn full_covariance(dimension: usize) -> Family {
    Family::FullGaussian { dimension }
}

fn diagonal(dimension: usize) -> Family {
    Family::DiagonalGaussian { dimension }
}

pub(crate) fn full(root: &Node<'_>, node: &Node<'_>) -> Outcome {
    let problem = problem(root, full_covariance)?;
    // One sweep in turn and one round at once are exact, and so is one machine with all the data.
    let mut in_turn = problem.start(1.0);
    in_turn.run(&in_turn.in_turn(), 1)?;
    let mut at_once = problem.start(1.0);
    at_once.run(&at_once.at_once(), 1)?;
    let alone = problem.global_optimum()?;
    for lambda in [&in_turn.lambda, &at_once.lambda, alone.natural()] {
        natural_equals(node, problem.family, lambda, CLOSED_FORM)?;
        let q = Gaussian::from_natural(problem.family, lambda.to_vec()).map_err(super::read::message)?;
        let Standard::Full(standard) = q.standard() else { return Err("not a full covariance".into()) };
        node.key_equals("mean", standard.mean().as_slice(), CLOSED_FORM)?;
        node.key_equals("cov", standard.covariance().as_slice(), CLOSED_FORM)?;
        // At the exact posterior the bound is the evidence.
        node.key_equals("log_evidence", [problem.elbo(&q)?], CLOSED_FORM)?;
    }
    for federation in [&in_turn, &at_once] {
        factors_equal(&node.get("client_factors")?, federation, CLOSED_FORM)?;
    }
    Ok(())
}

pub(crate) fn mean_field(root: &Node<'_>, node: &Node<'_>) -> Outcome {
    let problem = problem(root, diagonal)?;
    let optimum = problem.global_optimum()?;
    node.key_equals("mean", optimum.standard().mean(), CLOSED_FORM)?;
    node.key_equals("var", optimum.standard().variances(), CLOSED_FORM)?;

    let mut converged = problem.start(1.0);
    converged.run(&converged.in_turn(), SWEEPS)?;
    let q = Gaussian::from_natural(problem.family, converged.lambda.clone()).map_err(super::read::message)?;
    node.key_equals("mean", q.standard().mean(), FIXED_POINT)?;
    node.key_equals("var", q.standard().variances(), FIXED_POINT)?;
    factors_equal(&node.get("pvi_fixed_point_factors")?, &converged, FIXED_POINT)?;

    for entry in node.fields()? {
        if entry.name().starts_with("sequential_undamped_trace") {
            let mut federation = problem.start(1.0);
            let turns = federation.in_turn();
            trace(&entry, &mut federation, &turns)?;
        }
        if let Some(rest) = entry.name().strip_prefix("synchronous_damping_") {
            let damping = rest.split('_').next().unwrap_or_default().replace('p', ".");
            let damping = damping.parse().map_err(|_| format!("no damping in the name {}", entry.name()))?;
            let mut federation = problem.start(damping);
            let turns = federation.at_once();
            trace(&entry, &mut federation, &turns)?;
        }
    }
    // The traces must be there.
    node.get("sequential_undamped_trace_first_two_sweeps")?;
    node.get("synchronous_damping_0p3_trace_first_three_rounds").map(|_| ())
}

/// One entry of the trace after every commit, the turns in a cycle.
fn trace(node: &Node<'_>, federation: &mut Federation<'_>, turns: &[Vec<usize>]) -> Outcome {
    let family = *federation.factors.first().ok_or("there is no site")?.family();
    for (entry, sites) in node.list()?.iter().zip(turns.iter().cycle()) {
        federation.round(sites)?;
        natural_equals(entry, family, &federation.lambda, CLOSED_FORM)?;
    }
    Ok(())
}

/// The mean that dropping the off-diagonal of XᵀX gives must not be ours.
pub(crate) fn wrong_diag_update(root: &Node<'_>, node: &Node<'_>) -> Outcome {
    let right = root.get("mean_field")?.at("mean")?;
    let wrong = node.at("mean")?;
    let ours = problem(root, diagonal)?.global_optimum()?;
    let distance = |a: &[f64], b: &[f64]| a.iter().zip(b).fold(0.0_f64, |m, (x, y)| m.max((x - y).abs()));
    if distance(&right, &wrong) > 1e-6 && distance(ours.standard().mean(), &wrong) < 1e-6 {
        return Err("the mean-field optimum drops the off-diagonal of X'X".into());
    }
    Ok(())
}
