//! The posterior of the other sites, computed by one site from released values: the public half of its personal posterior.
//!
//! A personal posterior replaces the site's noisy releases by the exact likelihood of its records. It starts from the posterior without the site's own part, the
//! *cavity*. If its releases are known, the cavity is post-processing ([`others`]); otherwise it is computed from the records, by `personal` in `dp-pvi-inference`.

use serde::{Deserialize, Serialize};

use dp_pvi_posterior::methods::noise_aware::{Absent, Contribution, History};
use dp_pvi_posterior::noise_aware;
use dp_pvi_posterior::task::ResolvedTask;

/// How a site's own part was taken out of what all sites released.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Way {
    /// Noise-aware posterior of the other sites' released sums: this site's were subtracted, and its noise with them.
    OthersReleased,
    /// Noise-aware posterior of the sums minus this site's exact terms: the noise of the sums stays.
    OthersOfSums,
    /// The posterior as it came out of the run, divided by the factor that this site released.
    ReleasedFactor,
    /// The posterior as it came out of the run, divided by this site's exact factor there: all noise stays, and is not in the intervals.
    ExactFactor,
    /// There was no other site in the run: the prior.
    Alone,
}

impl Way {
    /// In words, for the reader of the result.
    #[must_use]
    pub fn words(self) -> &'static str {
        match self {
            Self::OthersReleased => {
                "The other sites count as the noise-aware posterior of what they released; what this site released was taken out, with its noise."
            }
            Self::OthersOfSums => {
                "The other sites count as the noise-aware posterior of the released sums without this site's exact terms; the noise of the sums stays, and is in the intervals."
            }
            Self::ReleasedFactor => {
                "The posterior as it came out of the run was divided by what this site released. The noise of the other sites is not in the intervals."
            }
            Self::ExactFactor => {
                "The posterior as it came out of the run was divided by this site's exact part in it. The noise of the released values is not in the intervals."
            }
            Self::Alone => "No other site took part in the run: the prior stands for them.",
        }
    }
}

/// What the other sites say.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Others {
    /// Natural parameters in the task's family; after a division they need not be a distribution.
    pub natural: Vec<f64>,
    /// How they were found.
    pub way: Way,
}

impl Others {
    /// `posterior` divided by `factor`; natural parameters of the same family.
    #[must_use]
    pub fn divided(posterior: &[f64], factor: &[f64], way: Way) -> Self {
        Self { natural: posterior.iter().zip(factor).map(|(posterior, factor)| posterior - factor).collect(), way }
    }
}

/// What a site knows of what it released in a run.
#[derive(Debug, Clone, PartialEq)]
pub enum Released {
    /// The factor λ_m that it carries, a function of released values.
    Factor(Vec<f64>),
    /// The run as it saw it, with what it sent. States that it was not shown are empty.
    Sums(History, Contribution),
    /// Nothing from which its part follows.
    Unknown,
}

/// Whether a site of this task should keep the states that it receives and the sums that it sends: the others' part follows from them.
#[must_use]
pub fn are_told_by_sums(task: &ResolvedTask) -> bool {
    task.sums_can_be_parted()
}

/// What the other sites say, by released values alone; `plain` is the posterior as it came out of the run.
///
/// # Errors
/// Why it does not follow from released values.
pub fn others(task: &ResolvedTask, plain: &[f64], released: &Released) -> Result<Others, Absent> {
    match released {
        // What an update keeps beside its change follows it.
        Released::Factor(factor) if factor.len() >= plain.len() => Ok(Others::divided(plain, &factor[..plain.len()], Way::ReleasedFactor)),
        Released::Factor(_) | Released::Unknown => Err(Absent::Unknown),
        Released::Sums(history, part) if is_alone(history, part) => Ok(Others { natural: task.prior_natural(), way: Way::Alone }),
        Released::Sums(history, part) => match noise_aware::without(task, history, part) {
            Ok(posterior) => Ok(Others { natural: posterior.natural_parameters, way: Way::OthersReleased }),
            Err(absent) => {
                let factor = noise_aware::released_factor(task, history, part).ok_or(absent)?;
                Ok(Others::divided(plain, &factor, Way::ReleasedFactor))
            }
        },
    }
}

/// Whether no round of a run had another site in it.
fn is_alone(history: &History, part: &Contribution) -> bool {
    !history.rounds.is_empty() && history.rounds.iter().all(|round| round.included.iter().all(|site| *site == part.site))
}
