//! What the other sites of a run say, as one of them can tell it from released values: the public half of a site's personal posterior.
//!
//! A site may replace what it released, with its noise, by the exact likelihood of its records: for itself alone. For that it needs the posterior
//! without its own part, the *cavity*. Where what it released is known, this is post-processing ([`others`]). Where it is not, only
//! somebody who sees the records can take their part out, and that is `personal` in `dp-pvi-inference`.

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
    /// In words, for whoever reads the result.
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
    /// Nothing, or nothing that tells its part.
    Unknown,
}

/// Whether a site of this task should keep the states that it is shown and the sums that it sends: the others can be told from them.
#[must_use]
pub fn are_told_by_sums(task: &ResolvedTask) -> bool {
    task.sums_can_be_parted()
}

/// What the other sites say, by released values alone; `plain` is the posterior as it came out of the run.
///
/// # Errors
/// Why released values do not tell it.
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
