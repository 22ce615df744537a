//! A run over drawn rows, by the task's own rule; and the posterior that the same rows have without protection.

use dp_pvi_math::expfam::any::{Gaussian, Standard};
use dp_pvi_math::expfam::gaussian::full::svec;
use nalgebra::{Cholesky, DMatrix, DVector};

use dp_pvi_math::draws::Draws;
use dp_pvi_models::rows::Rows;
use dp_pvi_models::spec::{Approximation, ScheduleSpec};
use dp_pvi_posterior::methods::VisitSum;
use dp_pvi_posterior::methods::noise_aware::{ClosedRound, History};
use dp_pvi_posterior::methods::prior_predictive::{NotForecast, Player, Sent, Stage};
use dp_pvi_posterior::task::ResolvedTask;

/// The public history of a run of the task over these rows; `units` are the sites' declared sizes.
pub(super) fn simulate(task: &ResolvedTask, units: &[u64], rows: &Rows, draws: &mut Draws) -> Result<History, NotForecast> {
    let predictor = task.model.rules().predictor().ok_or(NotForecast::Model)?;
    #[allow(clippy::cast_precision_loss, reason = "a number of records")]
    let sizes: Vec<f64> = units.iter().map(|&units| units as f64).collect();
    let total: f64 = sizes.iter().sum();
    let shares: Vec<f64> = sizes.iter().map(|size| size / total).collect();
    let mut carried = vec![vec![0.0; task.site_state().len()]; shares.len()];
    let all: Vec<usize> = (0..shares.len()).collect();
    let rule = task.rule();
    let mut state = rule.initial();
    let mut rounds = Vec::new();
    for visit in 0..task.visits() {
        let groups: Vec<&[usize]> = match task.schedule {
            ScheduleSpec::Synchronous { .. } => vec![&all],
            ScheduleSpec::Sequential { .. } | ScheduleSpec::Asynchronous { .. } => all.chunks(1).collect(),
        };
        for group in groups {
            let players: Vec<Player<'_>> = group.iter().map(|&at| Player { share: shares[at], carried: &carried[at] }).collect();
            let sent = task.simulate(visit, &state, &mut Stage { rows, predictor: predictor.as_ref(), players: &players, draws })?;
            let sum = match sent {
                Sent::Sum(sum) => sum,
                Sent::Changes(changes) => {
                    let rho = task.damping.get(visit as usize).copied().unwrap_or(1.0);
                    for (&at, change) in group.iter().zip(&changes) {
                        carried[at].iter_mut().zip(change).for_each(|(own, change)| *own += rho * change);
                    }
                    changes.into_iter().reduce(|sum, change| sum.iter().zip(change).map(|(s, c)| s + c).collect()).unwrap_or_default()
                }
            };
            let sites = u32::try_from(group.len()).unwrap_or(u32::MAX);
            let step = rule.apply(&state, &VisitSum { visit, sites, sum: &sum });
            state = step.state;
            rounds.push(ClosedRound { visit, included: group.to_vec(), state: state.clone(), correction: step.correction });
        }
    }
    Ok(History { shares, rounds })
}

/// Steps of the fit without protection, at most.
const STEPS: usize = 30;

/// The posterior of the rows' records without protection, in the task's family: the maximum of the evidence lower bound, by Newton's steps
/// from a start. `None` where the task has no linear predictor, or they fail.
#[must_use]
pub fn unprotected(task: &ResolvedTask, rows: &Rows, start: &[f64]) -> Option<Gaussian> {
    let predictor = task.model.rules().predictor()?;
    let priors = task.setting().priors();
    let (prior_mean, prior_precision) = (DVector::from_vec(priors.mean), DVector::from_vec(priors.precision));
    let prior = DMatrix::from_diagonal(&prior_precision);
    let mut mean = DVector::from_column_slice(start);
    let mut matrix = &prior + rows.gram(|_| 1.0) * predictor.statistics(0.0, 0.0, 0.0).curvature.min(1.0);
    let mut q = packed(task, &mean, &matrix)?;
    for _ in 0..STEPS {
        let sums = rows.sums(predictor.as_ref(), q.standard(), |_, statistics, _| statistics);
        matrix = &prior + sums.second;
        let slope = sums.first + (&prior_mean - &mean).component_mul(&prior_precision);
        let step = Cholesky::new(matrix.clone())?.solve(&slope);
        // Far from linear a whole step may overshoot: none is longer than a prior's standard deviation in any coordinate.
        let longest = step.component_mul(&prior_precision.map(f64::sqrt)).amax();
        mean += &step / longest.max(1.0);
        q = packed(task, &mean, &matrix)?;
        let moved = step.iter().zip(matrix.diagonal().iter()).map(|(s, p)| s.abs() * p.sqrt()).fold(0.0, f64::max);
        if moved < 0.02 {
            return Some(q);
        }
    }
    Some(q)
}

fn packed(task: &ResolvedTask, mean: &DVector<f64>, precision: &DMatrix<f64>) -> Option<Gaussian> {
    let natural = match task.approximation {
        Approximation::MeanField => {
            let diagonal = precision.diagonal();
            diagonal.iter().zip(mean.iter()).map(|(p, m)| p * m).chain(diagonal.iter().copied()).collect()
        }
        Approximation::FullCovariance => (precision * mean).iter().copied().chain(svec(precision)).collect(),
    };
    Gaussian::from_natural(task.family(), natural).ok()
}

/// Marginal standard deviations.
pub(super) fn deviations(q: &Standard) -> Vec<f64> {
    q.variances().iter().map(|v| v.sqrt()).collect()
}
