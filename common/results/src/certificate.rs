//! Certificates in `posterior.json`: what its statements say of ε, with everything that `dp-pvi-verify` needs to check it, bound to the run, to its task, and to
//! the events with which a site's ledger charges the run.
//!
//! All sites of a run make the same claim, so there is one certificate for all of them; under aggregated trust a second one for what is left if all others work
//! together. Its ε is the stated one. Where the accountant's bound leaves too little room for a check on a grid, the stated ε is raised to what is proved.

use dp_pvi_accounting::unit::InvalidUnit;
use dp_pvi_accounting::{AccountantError, Binding, DpEvent, Epsilon, UnknownEvent};
use dp_pvi_names::{ClientId, Hash, RunId};
use dp_pvi_posterior::task::{ResolvedTask, TaskError};
use dp_pvi_privacy::ledger::{PlannedEvents, Row, RowBody};
use dp_pvi_verifier::{Refusal, verify};
use serde::{Deserialize, Serialize};

use dp_pvi_protocol::statement;
use dp_pvi_protocol::statement::{Booked, PrivacyStatement, StatementError};

/// A certificate, or why there is none.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Certified {
    /// The certificate's file, as one text.
    Text(String),
    /// Why there is none.
    Absent(String),
}

/// Events of a run, each with how many visits are it.
type Events = Vec<(DpEvent, u64)>;

/// The certificate of a claim, and its ε; `none` says what it means that none is stated.
fn certified(
    task: &ResolvedTask,
    run: u32,
    events: &Events,
    (stated, none): (Option<f64>, &str),
) -> Result<(Certified, Option<f64>), InvalidUnit> {
    let Some(stated) = stated else { return Ok((Certified::Absent(format!("no epsilon is stated: {none}")), None)) };
    let binding = Binding::of_run(task.hash().0, run, &bytes(events));
    let stated = Epsilon::new(stated)?;
    let found = task
        .claim(events)
        .map_err(|error| error.to_string())
        .and_then(|claim| claim.certify(Some(stated), Some(binding), |file| verify(file).map(drop)).map_err(|error| error.to_string()));
    Ok(match found {
        Ok((certificate, file)) => (Certified::Text(String::from_utf8_lossy(&file).into_owned()), Some(certificate.epsilon())),
        Err(why) => (Certified::Absent(why), None),
    })
}

fn bytes(events: &Events) -> Vec<(Vec<u8>, u64)> {
    events.iter().map(|(event, visits)| (event.to_bytes(), *visits)).collect()
}

/// All visits that the task has for a site; and under aggregated trust the site's own parts of them.
fn planned(task: &ResolvedTask) -> Result<(Events, Option<Events>), TaskError> {
    let all = 0..task.visits();
    let fallback = task.aggregation.map(|_| task.visit_fallbacks(all.clone())).transpose()?;
    Ok((task.visit_events(all)?, fallback))
}

/// The certificates of a run, and what they prove.
pub(crate) struct Certificates {
    pub(crate) joint: Certified,
    pub(crate) fallback: Option<Certified>,
    /// ε of both, where there is a certificate.
    pub(crate) proved: (Option<f64>, Option<f64>),
}

/// Certificates of what a statement of the run claims; `None` where the run has no site.
pub(crate) fn of_run(task: &ResolvedTask, run: u32, statement: Option<&PrivacyStatement>) -> Result<Certificates, MismatchError> {
    let (joint, fallback) = planned(task)?;
    let stated = statement.and_then(|statement| statement.epsilon);
    let (joint, epsilon) = certified(task, run, &joint, (stated, "what was sent has no protection"))?;
    let worst = (statement.and_then(|statement| statement.fallback_epsilon), "if all others work together, nothing is promised");
    let (fallback, worst) = fallback.map(|events| certified(task, run, &events, worst)).transpose()?.unzip();
    Ok(Certificates { joint, fallback, proved: (epsilon, worst.flatten()) })
}

/// What a certificate proves of a run, and that it is the run that a ledger charged.
#[derive(Debug, Clone, PartialEq)]
pub struct Checked {
    /// The run.
    pub run: RunId,
    /// Proved ε.
    pub epsilon: f64,
    /// Under aggregated trust: what is left if all others work together.
    pub fallback: Option<Fallback>,
    /// δ of the certificates.
    pub delta: f64,
    /// Charges of the run in the ledger.
    pub charges: usize,
}

/// What is left under aggregated trust if all others work together.
#[derive(Debug, Clone, PartialEq)]
pub enum Fallback {
    /// Proved ε.
    Proved(f64),
    /// No certificate.
    Unproved {
        /// ε as stated, at least what this build's accountant computes of the task. `None`: nothing is promised.
        epsilon: Option<f64>,
        /// Why there is none.
        why: String,
    },
}

/// Why `posterior.json` is not what its certificate, or a ledger, says.
#[derive(Debug, thiserror::Error)]
pub enum MismatchError {
    /// The site has no statement in the file.
    #[error("it has no statement for {0}: it is of a run in which this site took no part")]
    NoStatement(ClientId),
    /// The site has none, though its ledger charged the run.
    #[error("it has no statement for {0}, and this ledger charged the run: do not rely on it, and report this")]
    Unstated(ClientId),
    /// The ledger has nothing of the run.
    #[error("this ledger charged nothing for run {} of task {}: the file is of another run, or of another data set's", .0.number, .0.task)]
    UnknownRun(RunId),
    /// None was made, or it was removed.
    #[error("it has no certificate: export the posterior again with `dp-pvi-server export`")]
    Missing,
    /// There is none, and the file says why.
    #[error(
        "its claim has no certificate, so nothing is proved ({0}); it is what the accountant of this program says that the ledger's charges cost"
    )]
    Absent(String),
    /// It does not hold.
    #[error("its certificate is refused: {0}")]
    Refused(#[from] Refusal),
    /// Bound to something else.
    #[error("its certificate is of another task than the file: do not rely on it, and export the posterior again")]
    OtherTask,
    /// Bound to something else.
    #[error("its certificate is of another run than the file: do not rely on it, and export the posterior again")]
    OtherRun,
    /// Another set of events.
    #[error("its certificate is about other events than this ledger charged for the run: do not rely on it, and report this")]
    OtherEvents,
    /// Another relation than the events have.
    #[error("its certificate is about another relation between data sets than the task's: do not rely on it")]
    OtherRelation,
    /// Another δ than the task's.
    #[error("its certificate is about delta {0:e}, and the task's is {1:e}: do not rely on it")]
    OtherDelta(f64, f64),
    /// The ledger charged another plan.
    #[error("this ledger charged the run for other events than its task has: do not rely on the file, and report this")]
    OtherPlan,
    /// A part of the statement is not what the task says.
    #[error(
        "its statement for this site is not that of the task, which has another {0}: do not rely on it (if another version of dp-pvi wrote it, export it again with this one)"
    )]
    OtherStatement(&'static str),
    /// ε below that of the task.
    #[error("it states epsilon {stated}, and the plan of its task costs {planned}: do not rely on it")]
    BelowTask {
        /// ε in the statement.
        stated: f64,
        /// ε of the task.
        planned: f64,
    },
    /// Other rows than the site's.
    #[error(
        "its statement says that this site's rows are {stated}, and by this site's configuration they are {own}: do not rely on it, unless the configuration \
         was another one in that run"
    )]
    OtherRows {
        /// In the statement.
        stated: String,
        /// The site's own word.
        own: String,
    },
    /// More updates than charges.
    #[error("it says that this site answered {stated} visits, and this ledger has {booked} charges of the run: do not rely on it")]
    Releases {
        /// In the statement.
        stated: u32,
        /// In the ledger.
        booked: usize,
    },
    /// Less is proved than stated.
    #[error(
        "it states epsilon {stated} at delta {delta:e}, and its certificate proves epsilon {proved} at delta {at:e}: do not rely on it"
    )]
    Stronger {
        /// ε in the statement; 0 stands for none.
        stated: f64,
        /// δ in the statement.
        delta: f64,
        /// ε of the certificate.
        proved: f64,
        /// δ of the certificate.
        at: f64,
    },
    /// Charges and task differ.
    #[error(transparent)]
    Statement(#[from] StatementError),
    /// The ledger has an event of a later version.
    #[error(transparent)]
    Event(#[from] UnknownEvent),
    /// The task inside.
    #[error(transparent)]
    Task(#[from] TaskError),
    /// Events without a certificate.
    #[error(transparent)]
    Accountant(#[from] AccountantError),
    /// A number that is none.
    #[error(transparent)]
    Number(#[from] InvalidUnit),
}

/// Checks the certificates of a posterior with the verifier, which shares no code with the accountant, and compares them with what the ledger of a site charged for
/// the run: run, task, events, δ and ε. Everything else that the statement says is compared with the task, whose hash the ledger has.
///
/// # Errors
/// Anything that is not the same everywhere, or not proved.
pub(crate) fn check(
    (task, number): (&ResolvedTask, u32),
    statement: &PrivacyStatement,
    (joint_file, fallback_file): (&Option<Certified>, &Option<Certified>),
    rows: &[(Row, Hash)],
) -> Result<Checked, MismatchError> {
    let run = RunId { task: task.hash(), number };
    let booked = Booked::of_run(rows, &run)?;
    let (joint, fallback) = planned(task)?;
    match charged(rows, &run)? {
        Some(events) if events == (joint.clone(), fallback.clone()) => {}
        Some(_) => return Err(MismatchError::OtherPlan),
        None => return Err(MismatchError::UnknownRun(run)),
    }
    let own = statement::statement(task, &statement.site, statement.releases)?;
    same_promise(statement, &own)?;
    if statement.releases as usize > booked.len() {
        return Err(MismatchError::Releases { stated: statement.releases, booked: booked.len() });
    }
    let claim = |text: &str, events: &Events, stated: Option<f64>| {
        let certificate = verify(text.as_bytes())?;
        let [of_run, of_task, of_events] = Binding::of_run(run.task.0, run.number, &bytes(events)).to_text();
        let bound = certificate.binding.as_ref().map(|binding| binding.each_ref().map(String::as_str));
        match bound {
            Some([_, task, _]) if task != of_task => return Err(MismatchError::OtherTask),
            Some([run, ..]) if run != of_run => return Err(MismatchError::OtherRun),
            Some([.., events]) if events != of_events => return Err(MismatchError::OtherEvents),
            Some(_) => {}
            None => return Err(MismatchError::OtherRun),
        }
        let ours = task.claim(events)?;
        // Both are lists of numbers and names, in the one order of the format.
        if serde_json::to_string(&certificate.events).ok() != Some(ours.events_text()) {
            return Err(MismatchError::OtherEvents);
        }
        if serde_json::to_string(&certificate.relation).ok() != serde_json::to_string(&ours.relation()).ok() {
            return Err(MismatchError::OtherRelation);
        }
        let (proved, at) = (certificate.epsilon, certificate.delta);
        if at.to_bits() != task.privacy.delta.get().to_bits() {
            return Err(MismatchError::OtherDelta(at, task.privacy.delta.get()));
        }
        if stated.is_none_or(|stated| stated < proved) {
            return Err(MismatchError::Stronger { stated: stated.unwrap_or(0.0), delta: statement.delta, proved, at });
        }
        Ok((proved, at))
    };
    let fits = || {
        at_least(statement.epsilon, own.epsilon)?;
        at_least(statement.fallback_epsilon, own.fallback_epsilon)?;
        statement.compare(task, &booked).map_err(MismatchError::from)
    };
    let (epsilon, delta) = match joint_file {
        None => return Err(MismatchError::Missing),
        Some(Certified::Absent(why)) => {
            fits()?;
            return Err(MismatchError::Absent(why.clone()));
        }
        Some(Certified::Text(text)) => claim(text, &joint, statement.epsilon)?,
    };
    let fallback = match (&fallback, fallback_file) {
        (None, None) => None,
        // Under local trust there is nothing that it could be about.
        (None, Some(_)) => return Err(MismatchError::OtherEvents),
        (Some(_), None) => return Err(MismatchError::Missing),
        (Some(_), Some(Certified::Absent(why))) => Some(Fallback::Unproved { epsilon: statement.fallback_epsilon, why: why.clone() }),
        (Some(events), Some(Certified::Text(text))) => Some(Fallback::Proved(claim(text, events, statement.fallback_epsilon)?.0)),
    };
    fits()?;
    Ok(Checked { run, epsilon, fallback, delta, charges: booked.len() })
}

/// Why a file without a statement for a site is none of that site's.
pub(crate) fn unstated((task, number): (&ResolvedTask, u32), site: &ClientId, rows: &[(Row, Hash)]) -> MismatchError {
    let run = RunId { task: task.hash(), number };
    match (charged(rows, &run), Booked::of_run(rows, &run)) {
        (Ok(None), Ok(booked)) if booked.is_empty() => MismatchError::NoStatement(site.clone()),
        (Err(error), _) | (_, Err(error)) => error.into(),
        (Ok(_), Ok(_)) => MismatchError::Unstated(site.clone()),
    }
}

/// Whether a statement says what the task's own statement says. Numbers for ε are compared by [`at_least`].
fn same_promise(stated: &PrivacyStatement, own: &PrivacyStatement) -> Result<(), MismatchError> {
    let parts = [
        ("unit", stated.unit == own.unit),
        ("relation between data sets", stated.relation == own.relation),
        ("trust", stated.trust == own.trust),
        ("delta", stated.delta.to_bits() == own.delta.to_bits()),
        ("method of the accountant", stated.method == own.method && stated.numerical_margin == own.numerical_margin),
        ("release", stated.released == own.released),
        ("fallback epsilon", stated.fallback_epsilon.is_some() == own.fallback_epsilon.is_some()),
    ];
    match parts.into_iter().find(|(_, same)| !same) {
        Some((part, _)) => Err(MismatchError::OtherStatement(part)),
        None => Ok(()),
    }
}

/// Whether a stated ε is no less than the task's.
fn at_least(stated: Option<f64>, own: Option<f64>) -> Result<(), MismatchError> {
    let number = |epsilon: Option<f64>| epsilon.unwrap_or(f64::INFINITY);
    if number(stated) < number(own) {
        return Err(MismatchError::BelowTask { stated: number(stated), planned: number(own) });
    }
    Ok(())
}

/// Events with which a ledger charged a run as a whole. `None`: it did not.
fn charged(rows: &[(Row, Hash)], run: &RunId) -> Result<Option<(Events, Option<Events>)>, UnknownEvent> {
    let read = |planned: &PlannedEvents| {
        planned.events.iter().map(|(event, visits)| Ok((DpEvent::from_bytes(event)?, *visits))).collect::<Result<Events, UnknownEvent>>()
    };
    let mut all: Option<(Events, Option<Events>)> = None;
    for (row, _) in rows {
        let RowBody::Planned { run: of, joint, fallback, .. } = &row.body else { continue };
        if of != run {
            continue;
        }
        let (events, own) = all.get_or_insert_default();
        events.extend(read(joint)?);
        if let Some(fallback) = fallback {
            own.get_or_insert_default().extend(read(fallback)?);
        }
    }
    Ok(all)
}

#[cfg(test)]
mod tests;
