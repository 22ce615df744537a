//! What one site's data was promised, in numbers and in words: part of every exported posterior.

use dp_pvi_privacy::accountant::Method;
use dp_pvi_privacy::{ClientId, PrivacyUnit, Relation};
use serde::{Deserialize, Serialize};

use crate::task::{ResolvedTask, TaskError, Trust};

/// The guarantee that one site's releases of one run have.
///
/// # Privacy
/// (ε, δ) differential privacy of everything that the site sent in the run, for the named unit and relation. It bounds one run; the
/// site's own ledger adds up all runs over the same data.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PrivacyStatement {
    /// The site.
    pub site: ClientId,
    /// Whose data is protected.
    pub unit: PrivacyUnit,
    /// Neighbouring data sets.
    pub relation: Relation,
    /// Upper bound on ε of the site's releases; absent: no guarantee (ε = ∞).
    pub epsilon: Option<f64>,
    /// Under aggregated trust: upper bound on ε if everybody else works together, so that only the site's own share of the noise counts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fallback_epsilon: Option<f64>,
    /// δ.
    pub delta: f64,
    /// Who adds the noise.
    pub trust: Trust,
    /// How ε was computed.
    pub method: Method,
    /// The discrete noise was accounted as continuous noise, with δ divided by 1 + 1e-6 for the difference.
    pub numerical_margin: bool,
    /// Number of releases (visits).
    pub releases: u32,
    /// What was released.
    pub released: String,
    /// What a reader should know beside the numbers.
    pub remarks: Vec<String>,
}

/// The statement for a site that made `releases` releases in a run of `task`.
///
/// # Errors
/// Numbers that do not fit the lattice, or an event that no engine bounds.
pub fn statement(task: &ResolvedTask, site: &ClientId, releases: u32) -> Result<PrivacyStatement, TaskError> {
    let loss = task.loss(releases.max(1))?;
    let fallback = task.fallback_loss(releases.max(1))?.map(|loss| if releases == 0 { 0.0 } else { loss.epsilon.get() });
    let fallback = fallback.filter(|epsilon| epsilon.is_finite());
    let epsilon = match releases {
        0 => Some(0.0),
        _ => Some(loss.epsilon.get()).filter(|e| e.is_finite()),
    };
    Ok(PrivacyStatement {
        site: site.clone(),
        unit: task.privacy.unit,
        relation: task.privacy.relation,
        epsilon,
        fallback_epsilon: fallback,
        delta: task.privacy.delta.get(),
        trust: task.privacy.trust,
        method: loss.method,
        numerical_margin: loss.numerical_margin,
        releases,
        released: task.update.released(),
        remarks: remarks(task, loss.numerical_margin).into_iter().chain(conditions(task, releases)?).collect(),
    })
}

/// What aggregated trust asks of the other parties, and what is left where they do not keep to it.
fn conditions(task: &ResolvedTask, releases: u32) -> Result<Option<String>, TaskError> {
    let (Some(spec), Some(fallback)) = (&task.aggregation, task.fallback_loss(releases)?) else { return Ok(None) };
    Ok(Some(format!(
        "Epsilon counts on {} honest sites in every sum, at most {} sites that work with the server or with the summer, and on server and summer not working together. Whatever all others do, epsilon is at most {:.4} (fallback: this site's own share of the noise alone).",
        spec.honest,
        spec.colluders,
        fallback.epsilon.get()
    )))
}

impl PrivacyStatement {
    /// For a document that has the noise-aware posterior too.
    pub(crate) fn intervals_include_noise(&mut self) {
        for remark in self.remarks.iter_mut().filter(|remark| *remark == PLAIN_INTERVALS) {
            AWARE_INTERVALS.clone_into(remark);
        }
    }
}

const PLAIN_INTERVALS: &str = "Intervals are those of the variational posterior: they do not include the noise that protects the records, and are too narrow for coefficients on which that noise weighs.";
const AWARE_INTERVALS: &str = "Two posteriors are given. The plain one does not include the noise that protects the records. The noise-aware one does, and its intervals are the ones to read; neither includes the bias of clipping, where records were clipped, nor the approximation by the variational family.";

fn remarks(task: &ResolvedTask, margin: bool) -> Vec<String> {
    let mut remarks = vec![match task.release_tick_seconds {
        0 => "An update is sent as soon as its training ends: the time of sending is not covered by epsilon.".to_owned(),
        tick => format!(
            "An update is sent at the next multiple of {tick} s after its training began: only a missed multiple shows in the time of sending, which is not covered by epsilon."
        ),
    }];
    if !task.update.is_private() {
        remarks.push("No privacy protection: whoever sees the updates can learn about single records.".to_owned());
        return remarks;
    }
    if margin {
        remarks.push(
            "Numerical margin: the discrete Gaussian noise was accounted as continuous noise, with delta divided by 1 + 1e-6.".to_owned(),
        );
    }
    remarks.push(PLAIN_INTERVALS.to_owned());
    remarks.push("Epsilon bounds this run at this site. Sites hold different people: the federation's epsilon is the largest of its sites'. A person whose records are at several sites, or who is in several runs, adds them up.".to_owned());
    remarks
}
