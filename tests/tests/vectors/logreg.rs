//! `logreg`: optima, and everything at one point.

use dp_pvi_accounting::{ClipNorm, NoiseMultiplier};
use dp_pvi_inference::capabilities::glm::project;
use dp_pvi_inference::mean_field::{MeanField, ScaleCoordinate};
use dp_pvi_inference::methods::Job;
use dp_pvi_inference::methods::natural_gradient::Terms;
use dp_pvi_inference::methods::shards::Fit;
use dp_pvi_inference::models::{self};
use dp_pvi_inference::records::RecordTable;
use dp_pvi_math::expfam::any::{Family, Gaussian, Standard};
use dp_pvi_math::quadrature::logit_moments;
use dp_pvi_models::logistic_regression;
use dp_pvi_posterior::methods::{Coding, VisitSum};
use dp_pvi_posterior::task::{FactorState, ModelSpec, NaturalGradientSpec, Preconditioner, ShardMethod, UpdateSpec};
use dp_pvi_privacy::SiteState;
use dp_pvi_privacy::clipping::metric::ClipMetric;
use dp_pvi_privacy::mechanism::Term;

use super::federation::{Problem, factors_equal, natural_equals, table};
use super::read::{CLOSED_FORM, FIXED_POINT, Node, Outcome, message};
use super::task;

const SWEEPS: u32 = 2000;

/// Data, prior and sites of `logreg`.
pub(crate) fn problem(root: &Node<'_>, family: fn(usize) -> Family) -> Result<Problem, String> {
    Problem::read(root, ModelSpec::from(logistic_regression::LogisticRegression {}), family)
}

pub(crate) fn diagonal(dimension: usize) -> Family {
    Family::DiagonalGaussian { dimension }
}

pub(crate) fn mean_field_optimum(root: &Node<'_>, node: &Node<'_>) -> Outcome {
    let problem = problem(root, diagonal)?;
    let alone = problem.global_optimum()?;
    let mut in_turn = problem.start(1.0);
    in_turn.run(&in_turn.in_turn(), SWEEPS)?;
    #[allow(clippy::cast_precision_loss, reason = "a number of sites")]
    let mut at_once = problem.start(1.0 / problem.sites.len() as f64);
    at_once.run(&at_once.at_once(), SWEEPS)?;
    // All data on one machine, sites in turn, and all sites at once: one optimum.
    for natural in [alone.natural(), &in_turn.lambda, &at_once.lambda] {
        let q = Gaussian::from_natural(problem.family, natural.to_vec()).map_err(message)?;
        node.key_equals("mean", q.standard().mean(), FIXED_POINT)?;
        node.key_equals("var", q.standard().variances(), FIXED_POINT)?;
        node.key_equals("elbo", [problem.elbo(&q)?], FIXED_POINT)?;
    }
    for federation in [&in_turn, &at_once] {
        factors_equal(&node.get("pvi_fixed_point_factors")?, federation, FIXED_POINT)?;
    }
    let Contributions { gradient, precision, .. } = contributions(&problem.all, alone.standard().mean(), &alone.standard().variances())?;
    node.key_equals("sum_g", columns(&gradient), FIXED_POINT)?;
    node.key_equals("sum_H", columns(&precision), FIXED_POINT)
}

pub(crate) fn full_cov_optimum(root: &Node<'_>, node: &Node<'_>) -> Outcome {
    let problem = problem(root, |dimension| Family::FullGaussian { dimension })?;
    let optimum = problem.global_optimum()?;
    let Standard::Full(standard) = optimum.standard() else { return Err("not a full covariance".into()) };
    node.key_equals("mean", standard.mean().as_slice(), FIXED_POINT)?;
    node.key_equals("cov", standard.covariance().as_slice(), FIXED_POINT)
}

pub(crate) fn at_point(root: &Node<'_>, node: &Node<'_>) -> Outcome {
    let problem = problem(root, diagonal)?;
    let (mean, variance) = (node.at("mean")?, node.at("var")?);
    let q = MeanField::new(mean.clone(), variance.clone(), ScaleCoordinate::LogScale).map_err(message)?;

    let logits: Vec<(f64, f64)> = problem.all.records().map(|record| project(record, &q)).collect();
    node.key_equals("logit_mean", logits.iter().map(|l| l.0).collect::<Vec<_>>(), CLOSED_FORM)?;
    node.key_equals("logit_var", logits.iter().map(|l| l.1).collect::<Vec<_>>(), CLOSED_FORM)?;
    let moments: Vec<_> = logits.iter().map(|l| logit_moments(l.0, l.1)).collect();
    node.key_equals("E_softplus", moments.iter().map(|m| m.softplus).collect::<Vec<_>>(), CLOSED_FORM)?;
    node.key_equals("E_sigma", moments.iter().map(|m| m.sigmoid).collect::<Vec<_>>(), CLOSED_FORM)?;
    node.key_equals("E_sigma_1m_sigma", moments.iter().map(|m| m.curvature).collect::<Vec<_>>(), CLOSED_FORM)?;

    let natural = mean.iter().zip(&variance).map(|(m, v)| m / v).chain(variance.iter().map(|v| 1.0 / v)).collect();
    let gaussian = Gaussian::from_natural(problem.family, natural).map_err(message)?;
    node.key_equals("elbo", [problem.elbo(&gaussian)?], CLOSED_FORM)?;

    let all = contributions(&problem.all, &mean, &variance)?;
    node.key_equals("grad_mu_per_example", all.gradient.concat(), CLOSED_FORM)?;
    node.key_equals("grad_logsigma_per_example", all.log_scale.concat(), CLOSED_FORM)?;
    let norm = |(g, l): (&Vec<f64>, &Vec<f64>)| g.iter().chain(l).map(|v| v * v).sum::<f64>().sqrt();
    node.key_equals("norm_mu_logsigma_per_example", all.gradient.iter().zip(&all.log_scale).map(norm).collect::<Vec<_>>(), CLOSED_FORM)?;
    node.key_equals("nat_h_per_example", all.h.concat(), CLOSED_FORM)?;
    node.key_equals("nat_prec_per_example", all.precision.concat(), CLOSED_FORM)
}

/// λ ← λ0 + Σ contributions at λ: the undamped natural-gradient step.
pub(crate) fn natural_gradient(root: &Node<'_>, node: &Node<'_>) -> Outcome {
    let problem = problem(root, diagonal)?;
    let mut lambda = problem.prior.clone();
    for step in node.list()? {
        let q = Gaussian::from_natural(problem.family, lambda.clone()).map_err(message)?;
        let all = contributions(&problem.all, q.standard().mean(), &q.standard().variances())?;
        let sums = columns(&all.h).into_iter().chain(columns(&all.precision));
        lambda = problem.prior.iter().zip(sums).map(|(prior, sum)| prior + sum).collect();
        natural_equals(&step, problem.family, &lambda, CLOSED_FORM)?;
    }
    Ok(())
}

/// ρ, from the key's name.
const STEP: f64 = 1.8;

/// Rounds of bounded natural gradients with a Gram matrix, no noise, no clip, no averages: the site's terms and the server's rule.
pub(crate) fn bounded_natural_gradient(root: &Node<'_>, node: &Node<'_>) -> Outcome {
    let problem = problem(root, diagonal)?;
    let d = problem.family.dimension();
    let rounds = node.get("rounds")?.list()?;
    let spec = NaturalGradientSpec {
        noise_multiplier: NoiseMultiplier::new(1.0).map_err(message)?,
        preconditioner: Preconditioner::Gram,
        gram_share: 0.2,
        budget_growth: 1.0,
        step: STEP,
        averaging: 0.0,
        eigenvalue_floor: 0.0,
        shrinkage: 0.0,
        residual_bound: 1.0,
        curvature_bound: 0.25,
        // Any weight: the rule takes it out again.
        curvature_weight: 0.8,
        clip_norm: ClipNorm::new(1e6).map_err(message)?,
        weighted: false,
        scale_weights: None,
    };
    // The first visit asks for the Gram matrix.
    let visits = u32::try_from(rounds.len() + 1).map_err(message)?;
    let task = task::synchronous(problem.model.clone(), problem.family, UpdateSpec::NaturalGradient(spec), vec![1.0; visits as usize])?;
    let (rule, model) = (task.rule(), models::from_spec(&task.model).map_err(message)?);
    let mut state = rule.initial();
    for visit in 0..visits {
        let q = Gaussian::from_natural(problem.family, task.posterior(&state).to_vec()).map_err(message)?;
        let job = Job { site: None, task: &task, visit, lambda: &state, state: &SiteState::None };
        let terms = Terms::at(&q, &spec, &job, model.as_ref()).map_err(message)?;
        let mut sum = vec![0.0; task.message(visit).map_err(message)?.coordinates.try_into().map_err(message)?];
        let mut term = Term::default();
        for record in problem.all.records() {
            term.clear();
            terms.add(record, &mut term);
            term.entries().for_each(|(j, value)| sum[j as usize] += value);
        }
        state = rule.apply(&state, &VisitSum { visit, sites: 1, sum: &sum }).state;
        let Some(expected) = visit.checked_sub(1).and_then(|round| rounds.get(round as usize)) else { continue };
        expected.key_equals("g", &sum[..d], CLOSED_FORM)?;
        expected.key_equals("H", sum[d..].iter().map(|h| h / spec.curvature_weight).collect::<Vec<_>>(), CLOSED_FORM)?;
        let after = Gaussian::from_natural(problem.family, task.posterior(&state).to_vec()).map_err(message)?;
        expected.key_equals("mean", after.standard().mean(), CLOSED_FORM)?;
        expected.key_equals("var", after.standard().variances(), CLOSED_FORM)?;
        // g and H are those of the point before the step.
        let before = contributions(&problem.all, q.standard().mean(), &q.standard().variances())?;
        expected.key_equals("g", columns(&before.gradient), CLOSED_FORM)?;
    }
    Ok(())
}

/// One round of local averaging and of virtual clients from the prior; shard k holds rows k, k + K, …, K the number of shards.
pub(crate) fn one_round_of_shards(root: &Node<'_>, node: &Node<'_>) -> Outcome {
    let problem = problem(root, diagonal)?;
    let (x, y) = (root.get("X")?.rows()?, root.at("y")?);
    let expected = node.get("per_shard")?.list()?;
    let count = expected.len();
    let shards = (0..count).map(|k| {
        let rows = || (k..y.len()).step_by(count);
        table(&rows().map(|i| x[i].clone()).collect::<Vec<_>>(), &rows().map(|i| y[i]).collect::<Vec<_>>())
    });
    let shards = shards.collect::<Result<Vec<_>, _>>()?;
    let prior = Gaussian::from_natural(problem.family, problem.prior.clone()).map_err(message)?;
    let len = problem.prior.len();
    for metric in [ClipMetric::Flat, ClipMetric::FlatHalf, ClipMetric::Block, ClipMetric::Centred, ClipMetric::Whitened] {
        for (method, key, total) in
            [(ShardMethod::LocalAveraging, "local_avg", "local_avg_delta"), (ShardMethod::VirtualClients, "virtual", "virtual_delta")]
        {
            let spec = task::shards(method, u32::try_from(count).map_err(message)?, 1, FactorState::Released, metric, 1e6)?;
            let task = task::synchronous(problem.model.clone(), problem.family, UpdateSpec::Shards(spec.clone()), vec![1.0])?;
            let (model, coding) = (models::from_spec(&task.model).map_err(message)?, Coding::new(&task.setting(), spec.clone()));
            let job = Job { site: None, task: &task, visit: 0, lambda: &problem.prior, state: &SiteState::None };
            let fit = Fit::new(&spec, &job, model.as_ref()).map_err(message)?;
            let mut sum = vec![0.0; len];
            for (shard, expected) in shards.iter().zip(&expected) {
                let change = coding.decode(&fit.message(shard, None).ok_or("a shard has no optimum")?, &prior);
                // What is averaged is divided by the number of shards in the decoding.
                let whole: Vec<f64> = change.iter().map(|c| c * spec.divisor()).collect();
                expected.key_equals(key, &whole, FIXED_POINT)?;
                sum.iter_mut().zip(&change).for_each(|(s, c)| *s += c);
            }
            node.key_equals(total, &sum, FIXED_POINT)?;
        }
    }
    Ok(())
}

/// What every record contributes at one point, from the gradients that private training sums.
struct Contributions {
    /// ∂/∂μ.
    gradient: Vec<Vec<f64>>,
    /// ∂/∂log σ.
    log_scale: Vec<Vec<f64>>,
    /// Natural parameters of the record's Gaussian site.
    h: Vec<Vec<f64>>,
    precision: Vec<Vec<f64>>,
}

fn contributions(data: &RecordTable, mean: &[f64], variance: &[f64]) -> Result<Contributions, String> {
    let model = models::from_spec(&ModelSpec::from(logistic_regression::LogisticRegression {})).map_err(message)?;
    let gradients = model.gradients().ok_or("the model has no gradients")?;
    let d = mean.len();
    let at = |coordinate| -> Result<Vec<Vec<f64>>, String> {
        let q = MeanField::new(mean.to_vec(), variance.to_vec(), coordinate).map_err(message)?;
        let mut term = Term::default();
        let dense = |record| {
            term.clear();
            gradients.gradient(record, &q, &mut term);
            let mut row = vec![0.0; 2 * d];
            term.entries().for_each(|(j, value)| row[j as usize] += value);
            row
        };
        Ok(data.records().map(dense).collect())
    };
    let log_scale = at(ScaleCoordinate::LogScale)?;
    let half_variance = at(ScaleCoordinate::HalfVariance { weight: 1.0 })?;
    let gradient: Vec<Vec<f64>> = log_scale.iter().map(|row| row[..d].to_vec()).collect();
    let precision: Vec<Vec<f64>> = half_variance.iter().map(|row| row[d..].iter().map(|v| -v).collect()).collect();
    // h = g + H μ.
    let site = |(g, p): (&Vec<f64>, &Vec<f64>)| (0..d).map(|j| g[j] + p[j] * mean[j]).collect();
    let h = gradient.iter().zip(&precision).map(site).collect();
    Ok(Contributions { gradient, log_scale: log_scale.iter().map(|row| row[d..].to_vec()).collect(), h, precision })
}

/// Column sums.
fn columns(rows: &[Vec<f64>]) -> Vec<f64> {
    let mut sums = vec![0.0; rows.first().map_or(0, Vec::len)];
    rows.iter().for_each(|row| sums.iter_mut().zip(row).for_each(|(s, v)| *s += v));
    sums
}
