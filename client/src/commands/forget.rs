//! `forget TASK`: a run that was given up is over for this site.

use std::collections::BTreeSet;

use dp_pvi_names::{Hash, RunId};
use serde_json::json;

use super::view;
use crate::approvals;
use crate::config::Config;
use crate::error::{ClientError, Result};
use crate::output::{Output, epsilon, json_number};
use crate::{history, keys, ledger, snapshot};

/// Fewest digits that name one of this site's own runs. No one else chose among those, so fewer are enough than where a hash is approved.
const FEWEST_DIGITS: usize = 8;

/// Where hashes stand.
const SHOWN: &str = "`dp-pvi-client budget show` lists the runs that were charged";

/// Renounces what is left of the task's open runs, and removes what was kept of them.
///
/// # Errors
/// No open run of such a task, the ledger or its lock (a client that runs), the state folder.
pub fn forget(config: &Config, task: &str, number: Option<u32>, output: Output) -> Result<()> {
    let private = config.private()?;
    keys::check_state(&config.site.state)?;
    let mut ledger = ledger::open(private, keys::identity(&config.tls.identity)?, |store| store)?;
    let joined = snapshot::open_runs(config)?;
    let mut open: BTreeSet<RunId> = view::planned_runs(ledger.rows()).filter(|run| ledger.has_visits_left(run)).collect();
    open.extend(&joined);
    let hash = named(&open, config, task)?;
    open.retain(|run| run.task == hash && number.is_none_or(|number| run.number == number));
    if open.is_empty() {
        return Err(ClientError::config(
            "forget",
            format!(
                "no run of task {hash} is open here: each is over, or this site was never in one (`dp-pvi-client budget show` lists the runs that were charged)"
            ),
        ));
    }
    let before = ledger.losses().joint.epsilon.get();
    for run in &open {
        // In this order: what fails leaves the run open, so that the same command goes on.
        history::remove(&config.site.state, &config.data.name, run)?;
        ledger.give_up(run)?;
        snapshot::give_up(config, run)?;
    }
    let after = ledger.losses().joint.epsilon.get();
    let numbers: Vec<u32> = open.iter().map(|run| run.number).collect();
    output.object(
        || json!({"task": hash.to_string(), "runs": numbers, "epsilon_before": json_number(before), "epsilon_spent": json_number(after)}),
        || {
            let runs = numbers.iter().map(u32::to_string).collect::<Vec<_>>().join(", ");
            let back = if after < before { "visits that were never released gave back what they cost" } else { "nothing came back" };
            format!(
                "forgotten: run {runs} of task {hash}. Nothing more is released under it, and this site keeps nothing of it but the ledger's rows\n\
                 spent  epsilon {} (before: {}; {back})",
                epsilon(after),
                epsilon(before)
            )
        },
    );
    Ok(())
}

/// The task's hash by all of its digits, or by the first ones of an open run's task or of a task that this site was shown.
fn named(open: &BTreeSet<RunId>, config: &Config, text: &str) -> Result<Hash> {
    let digits = text.strip_prefix("sha256:").unwrap_or(text).to_ascii_lowercase();
    let wrong = |words: String| Err(ClientError::config("forget", words));
    let is_hex = digits.bytes().all(|b| b.is_ascii_hexdigit());
    if is_hex && digits.len() < FEWEST_DIGITS {
        let given = digits.len();
        return wrong(format!("a task is named by at least {FEWEST_DIGITS} digits of its hash, and {digits:?} has {given} ({SHOWN})"));
    }
    let mut tasks: Vec<Hash> = open.iter().map(|run| run.task).filter(|task| task.to_string().starts_with(&digits)).collect();
    tasks.dedup();
    match tasks.as_slice() {
        [task] => Ok(*task),
        [] if is_hex && digits.len() < 64 => wrong(format!("no open run is of a task whose hash starts with {digits:?} ({SHOWN})")),
        [_, _, ..] => wrong(format!("{} tasks with open runs start with {digits:?}: give more digits", tasks.len())),
        _ => approvals::named(&config.site.state, "forget", text),
    }
}
