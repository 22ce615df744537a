//! What an experiment prints.

use std::collections::BTreeMap;

use serde::Serialize;

/// One closed round.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct RoundLine {
    /// `round`.
    pub kind: &'static str,
    /// Name of the experiment.
    pub experiment: String,
    /// Seed of the run.
    pub seed: u64,
    /// The round.
    pub round: u32,
    /// Sweep or round, the index into the damping.
    pub visit: u32,
    /// Whose turn it was (sequential).
    pub turn: Option<String>,
    /// Updates in it.
    pub included: usize,
    /// Updates so far.
    pub client_updates: u32,
    /// Mean log predictive density of the held-out records.
    pub log_likelihood: f64,
    /// Share of correct classes (classification).
    pub accuracy: Option<f64>,
    /// Root mean squared error (regression).
    pub rmse: Option<f64>,
    /// Area under the ROC curve (classification); of survival times the concordance index.
    pub auc: Option<f64>,
    /// ε spent so far, by client, at the task's δ; null is infinite.
    pub epsilon: BTreeMap<String, Option<f64>>,
}

/// One finished run.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct SeedLine {
    /// `seed`.
    pub kind: &'static str,
    /// Name of the experiment.
    pub experiment: String,
    /// The seed.
    pub seed: u64,
    /// Rounds.
    pub rounds: u32,
    /// Updates that entered the posterior.
    pub client_updates: u32,
    /// Held-out mean log predictive density at the end.
    pub log_likelihood: f64,
    /// Held-out accuracy at the end.
    pub accuracy: Option<f64>,
    /// Held-out root mean squared error at the end.
    pub rmse: Option<f64>,
    /// Held-out area under the ROC curve, or concordance index, at the end.
    pub auc: Option<f64>,
    /// Largest ε of a client; null is infinite.
    pub epsilon: Option<f64>,
    /// The same if all other parties of an aggregated run work together; null is infinite, or a run without aggregation.
    pub epsilon_fallback: Option<f64>,
    /// Crashes of sites.
    pub site_crashes: u32,
    /// Crashes of the server.
    pub server_crashes: u32,
    /// Requests that reached the server, lost answers and copies included.
    pub requests: u64,
}

/// The experiment. Always the last line.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct SummaryLine {
    /// `summary`.
    pub kind: &'static str,
    /// Name of the experiment.
    pub experiment: String,
    /// Hash of the task.
    pub task: String,
    /// Number of seeds.
    pub seeds: usize,
    /// Mean over seeds of the held-out mean log predictive density.
    pub test_log_likelihood_mean: f64,
    /// Its standard error; null with one seed.
    pub test_log_likelihood_se: Option<f64>,
    /// Mean held-out accuracy (classification).
    pub accuracy_mean: Option<f64>,
    /// Its standard error.
    pub accuracy_se: Option<f64>,
    /// Mean held-out root mean squared error (regression).
    pub rmse_mean: Option<f64>,
    /// Its standard error.
    pub rmse_se: Option<f64>,
    /// Mean held-out area under the ROC curve (classification), or concordance index (survival times).
    pub auc_mean: Option<f64>,
    /// Its standard error.
    pub auc_se: Option<f64>,
    /// Mean over seeds of the largest ε of a client; null is infinite.
    pub epsilon: Option<f64>,
    /// Its standard error.
    pub epsilon_se: Option<f64>,
    /// Largest ε of a client in any run if all other parties of aggregated runs work together; null is infinite, or no aggregation.
    pub epsilon_fallback: Option<f64>,
    /// δ of these ε.
    pub delta: f64,
    /// Most updates that a run took.
    pub client_updates: u32,
    /// Processor time of the whole program so far; null where the system does not tell.
    pub cpu_seconds: Option<f64>,
}

/// Mean and standard error of the mean.
pub(super) fn mean_and_error(values: &[f64]) -> (f64, Option<f64>) {
    #[allow(clippy::cast_precision_loss, reason = "a number of seeds")]
    let n = values.len() as f64;
    let mean = values.iter().sum::<f64>() / n;
    let squares: f64 = values.iter().map(|x| (x - mean).powi(2)).sum();
    (mean, (values.len() > 1).then(|| (squares / (n - 1.0) / n).sqrt()))
}

impl SummaryLine {
    /// Summarises finished runs (at least one).
    #[must_use]
    pub fn of(runs: &[SeedLine], task: String, delta: f64) -> Self {
        let all = |value: &dyn Fn(&SeedLine) -> Option<f64>| {
            let values: Option<Vec<f64>> = runs.iter().map(value).collect();
            values.filter(|values| !values.is_empty()).map(|values| mean_and_error(&values))
        };
        let likelihood = all(&|run| Some(run.log_likelihood)).unwrap_or((f64::NAN, None));
        let (accuracy, rmse) = (all(&|run| run.accuracy), all(&|run| run.rmse));
        let (auc, epsilon) = (all(&|run| run.auc), all(&|run| run.epsilon));
        Self {
            kind: "summary",
            experiment: runs.first().map(|run| run.experiment.clone()).unwrap_or_default(),
            task,
            seeds: runs.len(),
            test_log_likelihood_mean: likelihood.0,
            test_log_likelihood_se: likelihood.1,
            accuracy_mean: accuracy.map(|a| a.0),
            accuracy_se: accuracy.and_then(|a| a.1),
            rmse_mean: rmse.map(|r| r.0),
            rmse_se: rmse.and_then(|r| r.1),
            auc_mean: auc.map(|a| a.0),
            auc_se: auc.and_then(|a| a.1),
            epsilon: epsilon.map(|e| e.0),
            epsilon_se: epsilon.and_then(|e| e.1),
            epsilon_fallback: runs.iter().map(|run| run.epsilon_fallback).reduce(|a, b| Some(a?.max(b?))).flatten(),
            delta,
            client_updates: runs.iter().map(|run| run.client_updates).max().unwrap_or(0),
            cpu_seconds: super::cpu_seconds(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_standard_error_is_that_of_the_mean() {
        let (mean, error) = mean_and_error(&[1.0, 2.0, 3.0, 4.0]);
        assert!((mean - 2.5).abs() < 1e-15);
        assert!((error.unwrap_or(0.0) - (5.0_f64 / 3.0 / 4.0).sqrt()).abs() < 1e-15);
        assert_eq!(mean_and_error(&[1.0]), (1.0, None));
    }
}
