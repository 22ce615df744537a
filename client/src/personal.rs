//! The file of a site's personal posterior. It holds what the records say without noise, so it is made to be mistaken for nothing else: its first
//! field says what it is, its form is no other file's, and only its owner may read it. Only this crate can read it, and only `predict --personal` does.

use std::fs;
use std::path::Path;

use dp_pvi_inference::personal::Personal;
use dp_pvi_inference::personal::others::Way;
use dp_pvi_math::agreement::Allowance;
use dp_pvi_math::expfam::any::{Family, Gaussian, Standard};
use dp_pvi_names::{ClientId, RunId};
use dp_pvi_posterior::task::ResolvedTask;
use dp_pvi_programs::files::replace_private;
use dp_pvi_programs::outputs;
use dp_pvi_programs::problem::Problem;
use dp_pvi_protocol::predictive::Predictor;
use dp_pvi_protocol::summary::{Coefficient, coefficients};
use serde::{Deserialize, Serialize};

use crate::error::{ClientError, Result};
use crate::keys;

/// What the file says of itself, first of all.
pub const PRIVATE: &str = "made from this site's records without noise: never send it, never publish it";

/// Version of the file's form.
const FORM: u32 = 1;

/// Most coefficients whose covariance is written out.
const LARGEST_COVARIANCE: usize = 256;

/// A personal posterior as it is written. It has no `Debug`: nothing prints it.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PersonalDocument {
    private: String,
    personal_form: u32,
    site: ClientId,
    data: String,
    task_hash: String,
    run: u32,
    rounds: u32,
    family: Family,
    others: OthersWords,
    coefficients: Vec<Coefficient>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    covariance: Option<Vec<Vec<f64>>>,
    natural_parameters: Vec<f64>,
    /// σ, where the run learned the scale of the observations.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    scale: Option<f64>,
    task: String,
}

/// How the other sites are in it.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct OthersWords {
    way: Way,
    words: String,
    /// In how many directions what was left of the others had too little precision and was raised to a tenth of the prior's.
    raised: usize,
    /// By how much this site's coefficients may differ from the others', as its records say: standard deviations.
    heterogeneity: Allowance,
}

/// Whose it is.
pub(crate) struct Of<'a> {
    pub(crate) site: &'a ClientId,
    pub(crate) data: &'a str,
    pub(crate) task: &'a ResolvedTask,
    pub(crate) run: RunId,
    pub(crate) rounds: u32,
    pub(crate) scale: Option<f64>,
}

impl PersonalDocument {
    /// Puts it together from natural parameters.
    pub(crate) fn new(of: &Of<'_>, made: &Personal) -> Result<Self> {
        let Personal { natural, way, floored, heterogeneity } = made;
        let failed = |e: Problem| ClientError::Failed(e);
        let q = Gaussian::from_natural(of.task.family(), natural.clone()).map_err(|e| failed(Problem::of(e)))?;
        let names = of.task.parameter_names().map_err(|e| failed(Problem::of(e)))?;
        let covariance = match q.standard() {
            Standard::Full(full) if full.mean().len() == names.len() && names.len() <= LARGEST_COVARIANCE => {
                let matrix = full.covariance();
                Some((0..matrix.nrows()).map(|i| matrix.row(i).iter().copied().collect()).collect())
            }
            Standard::Full(_) | Standard::Diagonal(_) => None,
        };
        Ok(Self {
            private: PRIVATE.into(),
            personal_form: FORM,
            site: of.site.clone(),
            data: of.data.into(),
            task_hash: of.run.task.to_string(),
            run: of.run.number,
            rounds: of.rounds,
            family: of.task.family(),
            others: OthersWords { way: *way, words: way.words().into(), raised: *floored, heterogeneity: *heterogeneity },
            coefficients: coefficients(&names, q.standard()),
            covariance,
            natural_parameters: natural.clone(),
            scale: of.scale,
            task: String::from_utf8_lossy(&of.task.to_bytes()).into_owned(),
        })
    }

    /// Reads a file that only its owner can read.
    ///
    /// # Errors
    /// [`ClientError::Config`] where others can read it, [`ClientError::InvalidFile`] where it is no such file.
    pub fn read(path: &Path) -> Result<Self> {
        let invalid = |message: Problem| ClientError::InvalidFile { file: path.to_owned(), message };
        keys::check_private("--personal", path)?;
        let text = fs::read_to_string(path).map_err(|e| invalid(Problem::said(format!("cannot be read ({e})"), e)))?;
        // No word of the parser: it quotes what it found.
        let document: Self = serde_json::from_str(&text)
            .map_err(|_| invalid("is not a personal posterior of this version: `dp-pvi-client personalise` makes one".into()))?;
        let task = document.task().map_err(|e| invalid(Problem::of(e)))?;
        let whole = document.private == PRIVATE
            && document.personal_form == FORM
            && task.hash().to_string() == document.task_hash
            && task.family() == document.family
            && document.scale.is_some() == task.model.rules().learned_scale().is_some()
            && document.scale.is_none_or(|scale| scale > 0.0 && scale.is_finite())
            && Gaussian::from_natural(document.family, document.natural_parameters.clone()).is_ok();
        if whole { Ok(document) } else { Err(invalid("contradicts itself: make it again with `dp-pvi-client personalise`".into())) }
    }

    /// The resolved task.
    pub(crate) fn task(&self) -> std::result::Result<ResolvedTask, dp_pvi_posterior::task::TaskError> {
        ResolvedTask::from_bytes(self.task.as_bytes())
    }

    /// What predicts from it.
    pub(crate) fn predictor(&self, task: &ResolvedTask) -> Result<Predictor> {
        Predictor::new(&task.model_with(self.scale), self.family, &self.natural_parameters).map_err(|e| ClientError::Failed(Problem::of(e)))
    }

    /// Writes it for its owner alone, as an output that an operator named. A file that is there is replaced.
    pub(crate) fn write(&self, path: &Path) -> Result<()> {
        self.put(path, outputs::write_private)
    }

    /// The same in the program's own state.
    pub(crate) fn keep(&self, path: &Path) -> Result<()> {
        self.put(path, replace_private)
    }

    fn put(&self, path: &Path, write: impl Fn(&Path, &[u8]) -> std::io::Result<()>) -> Result<()> {
        let text = serde_json::to_string_pretty(self).map_err(|e| ClientError::Failed(Problem::of(e)))?;
        let written = write(path, format!("{text}\n").as_bytes());
        written.map_err(|e| ClientError::Unavailable(Problem::said(format!("{}: {e}", path.display()), e)))
    }
}
