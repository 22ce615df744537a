//! `logreg`: optima, and everything at one point.

use dp_pvi_expfam::any::{Family, Gaussian, Standard};
use dp_pvi_inference::model::glm::project;
use dp_pvi_inference::model::{self};
use dp_pvi_inference::point::{MeanField, ScaleCoordinate};
use dp_pvi_inference::records::RecordTable;
use dp_pvi_posterior::quadrature::logit_moments;
use dp_pvi_posterior::task::ModelSpec;
use dp_pvi_privacy::mechanism::Term;

use super::federation::{Problem, factors_equal, natural_equals};
use super::read::{CLOSED_FORM, FIXED_POINT, Node, Outcome, message};

const SWEEPS: u32 = 2000;

fn problem(root: &Node<'_>, family: fn(usize) -> Family) -> Result<Problem, String> {
    Problem::read(root, ModelSpec::LogisticRegression {}, family)
}

fn diagonal(dimension: usize) -> Family {
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
    let model = model::from_spec(&ModelSpec::LogisticRegression {});
    let gradients = model.gradients().ok_or("the model has no gradients")?;
    let d = mean.len();
    let at = |coordinate| -> Result<Vec<Vec<f64>>, String> {
        let q = MeanField::new(mean.to_vec(), variance.to_vec(), coordinate).map_err(message)?;
        let mut term = Term::default();
        let dense = |record| {
            term.clear();
            gradients.gradient(record, &q, &mut term);
            let mut row = vec![0.0; 2 * d];
            term.entries().iter().for_each(|&(j, value)| row[j as usize] += value);
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
