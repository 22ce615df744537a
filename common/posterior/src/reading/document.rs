//! `posterior.json`: what a run leaves behind, complete enough to predict from and to check.

use dp_pvi_expfam::InvalidParameters;
use dp_pvi_expfam::any::{Family, Gaussian};
use dp_pvi_privacy::{ClientId, Hash};
use serde::{Deserialize, Serialize};

use crate::methods::noise_aware;
use crate::reading::metrics::HeldOutMetrics;
use crate::reading::predictive::Predictor;
use crate::reading::statement::PrivacyStatement;
use crate::reading::summary::{Coefficient, coefficients};
use crate::task::{ResolvedTask, TaskError};

/// Version of the file's form.
const FORMAT: u32 = 1;

/// The exported posterior.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PosteriorDocument {
    /// Version of this form; 1.
    pub format: u32,
    /// SHA-256 of the resolved task.
    pub task_hash: String,
    /// Number of the run of that task.
    pub run: u32,
    /// Server commits that the posterior contains.
    pub rounds: u32,
    /// Approximating family.
    pub family: Family,
    /// Marginals by name.
    pub coefficients: Vec<Coefficient>,
    /// Natural parameters: [h; Λ], or [h; svec Λ].
    pub natural_parameters: Vec<f64>,
    /// The posterior whose intervals include the noise that protects the records, where that noise is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub noise_aware: Option<NoiseAware>,
    /// Why there is no posterior, where the run left none: what it summed is no distribution. Coefficients and natural parameters are empty then.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub problem: Option<String>,
    /// One statement for every site.
    pub privacy: Vec<PrivacyStatement>,
    /// Held-out metrics, oldest first.
    pub evaluations: Vec<Evaluation>,
    /// The resolved task, its canonical bytes as text.
    pub task: String,
}

/// The noise-aware posterior (see [`noise_aware`]), in the document's family.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NoiseAware {
    /// Marginals by name.
    pub coefficients: Vec<Coefficient>,
    /// Natural parameters.
    pub natural_parameters: Vec<f64>,
    /// Signal-to-noise ratio of the released precision; 1 is noise alone.
    pub signal_to_noise: f64,
}

/// Which of a document's posteriors is asked.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Intervals {
    /// The variational posterior as it came out of the run.
    #[default]
    Plain,
    /// The one that includes the noise.
    NoiseAware,
}

/// One report of an evaluator.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Evaluation {
    /// Who evaluated.
    pub evaluator: ClientId,
    /// Number of rounds that the evaluated posterior contains (0 = prior).
    pub round: u32,
    /// What was found.
    pub metrics: HeldOutMetrics,
}

/// Why a text is not a posterior of this version.
#[derive(Debug, thiserror::Error)]
pub enum DocumentError {
    /// Not this form.
    #[error("this is not a posterior.json of this version ({0}): export it again")]
    Unreadable(String),
    /// Parts that do not belong together.
    #[error("posterior.json contradicts itself: {0}; export it again")]
    Inconsistent(&'static str),
    /// The parameters are no distribution.
    #[error("posterior.json holds no distribution ({0}): export it again")]
    Parameters(#[from] InvalidParameters),
    /// The noise on this posterior is not known.
    #[error("posterior.json has no noise-aware posterior, because its update has no known noise: predict with the plain one")]
    NoNoiseAware,
    /// The task inside.
    #[error(transparent)]
    Task(#[from] TaskError),
}

impl PosteriorDocument {
    /// Puts the result of a run together; `state` is the run's last one.
    ///
    /// # Errors
    /// Its head is not a distribution of the task's family.
    pub fn new(
        task: &ResolvedTask,
        run: u32,
        rounds: u32,
        state: &[f64],
        privacy: Vec<PrivacyStatement>,
        evaluations: Vec<Evaluation>,
    ) -> Result<Self, DocumentError> {
        let family = task.family();
        let natural_parameters = task.posterior(state).to_vec();
        let posterior = Gaussian::from_natural(family, natural_parameters.clone())?;
        let names = task.parameter_names()?;
        Ok(Self {
            format: FORMAT,
            task_hash: task.hash().to_string(),
            run,
            rounds,
            family,
            coefficients: coefficients(&names, posterior.standard()),
            natural_parameters,
            noise_aware: None,
            problem: None,
            privacy,
            evaluations,
            task: String::from_utf8_lossy(&task.to_bytes()).into_owned(),
        })
    }

    /// What is left to say of a run whose state is no distribution: who took part, what it cost, and why there is nothing to predict from.
    #[must_use]
    pub fn without_posterior(
        task: &ResolvedTask,
        run: u32,
        rounds: u32,
        problem: &InvalidParameters,
        privacy: Vec<PrivacyStatement>,
        evaluations: Vec<Evaluation>,
    ) -> Self {
        Self {
            format: FORMAT,
            task_hash: task.hash().to_string(),
            run,
            rounds,
            family: task.family(),
            coefficients: Vec::new(),
            natural_parameters: Vec::new(),
            noise_aware: None,
            problem: Some(format!("the run left no distribution ({problem}): its posterior is not finite, or has no variance")),
            privacy,
            evaluations,
            task: String::from_utf8_lossy(&task.to_bytes()).into_owned(),
        }
    }

    /// The document with the noise-aware posterior beside the plain one; the statements then say so.
    ///
    /// # Errors
    /// Natural parameters that are not a distribution of the task's family.
    pub fn with_noise_aware(mut self, aware: noise_aware::Posterior) -> Result<Self, DocumentError> {
        let noise_aware::Posterior { natural_parameters, signal_to_noise } = aware;
        let names = self.task()?.parameter_names()?;
        let posterior = Gaussian::from_natural(self.family, natural_parameters.clone())?;
        self.noise_aware =
            Some(NoiseAware { coefficients: coefficients(&names, posterior.standard()), natural_parameters, signal_to_noise });
        self.privacy.iter_mut().for_each(PrivacyStatement::intervals_include_noise);
        Ok(self)
    }

    /// The file's text.
    ///
    /// # Panics
    /// Never: the document is plain data.
    #[must_use]
    pub fn to_json(&self) -> String {
        // Strings, numbers and enums: serialisation into memory cannot fail.
        serde_json::to_string_pretty(self).expect("a posterior serialises")
    }

    /// Reads a file's text and checks that its parts belong together.
    ///
    /// # Errors
    /// See [`DocumentError`].
    pub fn from_json(text: &str) -> Result<Self, DocumentError> {
        let document: Self = serde_json::from_str(text).map_err(|e| DocumentError::Unreadable(e.to_string()))?;
        if document.format != FORMAT {
            return Err(DocumentError::Unreadable(format!("format {}, this is {FORMAT}", document.format)));
        }
        let task = document.task()?;
        if task.hash().to_string() != document.task_hash {
            return Err(DocumentError::Inconsistent("the task is not the one that task_hash names"));
        }
        if task.family() != document.family {
            return Err(DocumentError::Inconsistent("the family is not the task's"));
        }
        if document.problem.is_some() {
            let empty = document.coefficients.is_empty() && document.natural_parameters.is_empty() && document.noise_aware.is_none();
            return if empty { Ok(document) } else { Err(DocumentError::Inconsistent("it has a posterior and says that it has none")) };
        }
        let names = task.parameter_names()?;
        let stated = |natural: &[f64], stated: &[Coefficient]| -> Result<(), DocumentError> {
            let expected = coefficients(&names, Gaussian::from_natural(document.family, natural.to_vec())?.standard());
            if expected.len() != stated.len() || !expected.iter().zip(stated).all(|(a, b)| a.agrees(b)) {
                return Err(DocumentError::Inconsistent("the coefficients are not those of the natural parameters"));
            }
            Ok(())
        };
        stated(&document.natural_parameters, &document.coefficients)?;
        if let Some(aware) = &document.noise_aware {
            stated(&aware.natural_parameters, &aware.coefficients)?;
        }
        Ok(document)
    }

    /// The resolved task.
    ///
    /// # Errors
    /// The text is not a resolved task of this version.
    pub fn task(&self) -> Result<ResolvedTask, TaskError> {
        ResolvedTask::from_bytes(self.task.as_bytes())
    }

    /// The task's hash.
    ///
    /// # Errors
    /// Not 64 hexadecimal digits.
    pub fn task_hash(&self) -> Result<Hash, DocumentError> {
        self.task_hash.parse().map_err(|_| DocumentError::Inconsistent("task_hash is no SHA-256 digest"))
    }

    /// The posterior.
    ///
    /// # Errors
    /// The natural parameters are no distribution.
    pub fn posterior(&self) -> Result<Gaussian, InvalidParameters> {
        Gaussian::from_natural(self.family, self.natural_parameters.clone())
    }

    /// What predicts new rows from the plain posterior.
    ///
    /// # Errors
    /// The task or the natural parameters are invalid.
    pub fn predictor(&self) -> Result<Predictor, DocumentError> {
        self.predictor_with(Intervals::Plain)
    }

    /// What predicts new rows.
    ///
    /// # Errors
    /// The task or the natural parameters are invalid, or there is no noise-aware posterior.
    pub fn predictor_with(&self, intervals: Intervals) -> Result<Predictor, DocumentError> {
        let natural = match (intervals, &self.noise_aware) {
            (Intervals::Plain, _) => &self.natural_parameters,
            (Intervals::NoiseAware, Some(aware)) => &aware.natural_parameters,
            (Intervals::NoiseAware, None) => return Err(DocumentError::NoNoiseAware),
        };
        Ok(Predictor::new(&self.task()?.model, self.family, natural)?)
    }
}

#[cfg(test)]
mod tests;
