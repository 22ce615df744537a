//! Version 1 of `posterior.json`, in which the noise-aware posterior stood beside the plain one.

use dp_pvi_expfam::any::{Family, Gaussian};
use serde::Deserialize;
use serde::de::IgnoredAny;

use super::{Coefficient, Evaluation, FORMAT, Intervals, PosteriorDocument, PrivacyStatement, matrices};

/// A document of version 1.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Document {
    #[serde(rename = "format")]
    _format: u32,
    task_hash: String,
    run: u32,
    rounds: u32,
    family: Family,
    coefficients: Vec<Coefficient>,
    natural_parameters: Vec<f64>,
    #[serde(rename = "noise_aware")]
    _noise_aware: Option<IgnoredAny>,
    problem: Option<String>,
    privacy: Vec<PrivacyStatement>,
    evaluations: Vec<Evaluation>,
    task: String,
}

impl From<Document> for PosteriorDocument {
    /// The noise-aware posterior of version 1 took the curvature of the end for that of the whole run, and was wrong where they differ: it is left out.
    fn from(old: Document) -> Self {
        let intervals = Intervals {
            complete: false,
            why: "An earlier version wrote this file: export it again for intervals that contain the noise that protects the records."
                .into(),
        };
        // Version 1 had none. A file that holds no distribution is refused where its parts are compared.
        let covariance = Gaussian::from_natural(old.family, old.natural_parameters.clone())
            .ok()
            .and_then(|q| matrices::covariance(q.standard(), old.coefficients.len()));
        Self {
            format: FORMAT,
            task_hash: old.task_hash,
            run: old.run,
            rounds: old.rounds,
            family: old.family,
            coefficients: old.coefficients,
            natural_parameters: old.natural_parameters,
            covariance,
            correlation: None,
            effects: Vec::new(),
            scales: Vec::new(),
            curves: Vec::new(),
            observation_scale: None,
            observation_sd: None,
            intervals,
            plain: None,
            convergence: None,
            signal_to_noise: None,
            agreement: None,
            without: None,
            problem: old.problem,
            privacy: old.privacy,
            certificate: None,
            fallback_certificate: None,
            evaluations: old.evaluations,
            task: old.task,
        }
    }
}
