//! The public half of a job, passed to functions over records.
//!
//! The gate gives such a function a copy that was made from bytes ([`Argument`]), so this is a type that can be written and read again.

use dp_pvi_posterior::task::ResolvedTask;
use dp_pvi_privacy::mechanism::{ReleaseError, Summation, Summed};
use dp_pvi_privacy::{Argument, SiteState};
use serde::{Deserialize, Serialize};

use super::Job;
use crate::error::InferenceError;
use dp_pvi_records::RecordTable;

/// The function of an update that makes the terms of a sum.
pub(super) type SumOfTerms = fn(&PublicJob, Summation<'_, RecordTable>) -> Result<Summed, InferenceError>;

/// A job without what is private in it.
#[derive(Serialize, Deserialize)]
pub(super) struct PublicJob {
    #[serde(with = "text")]
    pub(super) task: ResolvedTask,
    pub(super) visit: u32,
    pub(super) lambda: Vec<f64>,
    pub(super) site: Option<u32>,
    /// The site's state, where it is public.
    pub(super) state: Option<Vec<f64>>,
}

impl PublicJob {
    /// The public half of a job, for the gate.
    pub(super) fn of(job: &Job<'_>) -> Result<Argument<Self>, InferenceError> {
        let state = match job.state {
            SiteState::Public(values) => Some(values.clone()),
            SiteState::None | SiteState::Private(_) => None,
        };
        copied(&Self { task: job.task.clone(), visit: job.visit, lambda: job.lambda.to_vec(), site: job.site, state })
    }

    /// Runs `f` on the job; a private state is none here.
    pub(super) fn job<R>(&self, f: impl FnOnce(&Job<'_>) -> R) -> R {
        let state = self.state.clone().map_or(SiteState::None, SiteState::Public);
        f(&Job { site: self.site, task: &self.task, visit: self.visit, lambda: &self.lambda, state: &state })
    }
}

/// A copy of a public value for the gate.
pub(crate) fn copied<A: Serialize + serde::de::DeserializeOwned>(value: &A) -> Result<Argument<A>, InferenceError> {
    Ok(Argument::copy_of(value).map_err(ReleaseError::from)?)
}

/// Tasks and their parts are written as in their files: as JSON, whose numbers are read to the last bit.
pub(crate) mod text {
    use serde::de::{DeserializeOwned, Error as _};
    use serde::ser::Error as _;
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    pub(crate) fn serialize<T: Serialize, S: Serializer>(value: &T, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&serde_json::to_string(value).map_err(S::Error::custom)?)
    }

    pub(crate) fn deserialize<'de, T: DeserializeOwned, D: Deserializer<'de>>(deserializer: D) -> Result<T, D::Error> {
        serde_json::from_str(&String::deserialize(deserializer)?).map_err(D::Error::custom)
    }
}
