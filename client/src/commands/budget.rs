//! `budget show | freeze | history`.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;

use dp_pvi_accounting::PrivacyLoss;
use dp_pvi_names::RunId;
use dp_pvi_privacy::ledger::{FreezeState, Losses, ReleaseState, RowBody};
use serde_json::{Value, json};

use super::view;
use crate::config::Config;
use crate::error::Result;
use crate::output::{Format, Output, epsilon, json_number, name_of};
use crate::{keys, ledger};

/// Prints what was spent and what is left, beside a running client if there is one.
///
/// # Errors
/// The ledger.
pub fn show(config: &Config, output: Output) -> Result<()> {
    let private = config.private()?;
    let ledger = ledger::read_only(private, keys::identity(&config.tls.identity)?)?;
    let Losses { joint: spent, fallback } = ledger.losses();
    let budget = ledger.budget();
    let left = (budget.epsilon.get() - spent.epsilon.get()).max(0.0);
    let charges = view::charges(ledger.rows())?;
    let runs: BTreeSet<_> = charges.iter().map(|(release, _)| release.run).chain(view::planned_runs(ledger.rows())).collect();
    let frozen = view::freeze_state(ledger.rows()) == FreezeState::Frozen;
    let per_run: Vec<_> =
        runs.iter().map(|run| (run, charges.iter().filter(|(release, _)| release.run == *run).count(), ledger.losses_in(run))).collect();
    let cap = budget.max_fallback;
    let back = given_back(&ledger)?;
    let back_of = |run: &RunId| back.get(run).copied();
    // Without aggregated runs both losses are one.
    let differs = fallback.epsilon > spent.epsilon;
    output.object(
        || {
            json!({
                "data": private.identity.data,
                "unit": private.identity.unit,
                "relation": private.identity.relation,
                "epsilon_spent": json_number(spent.epsilon.get()),
                "epsilon_limit": json_number(budget.epsilon.get()),
                "epsilon_left": json_number(left),
                "per_run_epsilon": budget.per_run.map(|e| json_number(e.get())),
                "delta": budget.delta,
                "epsilon_fallback": json_number(fallback.epsilon.get()),
                "epsilon_fallback_limit": cap.map(|cap| json_number(cap.get())),
                "composition": "filter",
                "method": spent.method,
                "numerical_margin": spent.numerical_margin,
                "releases": charges.len(),
                "rows": ledger.rows().len(),
                "frozen": frozen,
                "runs": per_run.iter().map(|(run, releases, losses)| json!({
                    "task": run.task.to_string(),
                    "run": run.number,
                    "releases": releases,
                    "epsilon": json_number(losses.joint.epsilon.get()),
                    "epsilon_fallback": json_number(losses.fallback.epsilon.get()),
                    "renounced": back_of(run).is_some(),
                    "epsilon_given_back": json_number(back_of(run).unwrap_or(0.0)),
                })).collect::<Vec<_>>(),
            })
        },
        || {
            let mut text = format!(
                "data set {} (unit {}, {})\nspent  epsilon {} of {} at delta {:e} ({}, as a filter over adaptively chosen runs; {} releases in {} runs){}\n",
                private.identity.data,
                name_of(&private.identity.unit),
                name_of(&private.identity.relation),
                epsilon(spent.epsilon.get()),
                budget.epsilon.get(),
                budget.delta.get(),
                method(&spent),
                charges.len(),
                runs.len(),
                if frozen { ", frozen" } else { "" },
            );
            if differs || cap.is_some() {
                let limit = cap.map_or_else(|| "no limit".to_owned(), |cap| format!("at most {}", cap.get()));
                // Writing into a string cannot fail.
                let _ = writeln!(
                    text,
                    "worst  epsilon {} ({limit}) if all other parties of aggregated runs work together",
                    epsilon(fallback.epsilon.get())
                );
            }
            for (run, releases, losses) in &per_run {
                let (joint, fallback) = (losses.joint.epsilon, losses.fallback.epsilon);
                let _ = write!(text, "  task {} run {}: {releases} releases, epsilon {}", run.task, run.number, epsilon(joint.get()));
                if fallback > joint {
                    let _ = write!(text, " (at worst {})", epsilon(fallback.get()));
                }
                let _ = match back_of(run) {
                    Some(back) => writeln!(text, "; the rest of its visits was renounced, and {} of what is spent came back", epsilon(back)),
                    None => writeln!(text),
                };
            }
            if !left.is_finite() || left > 0.0 {
                let _ = write!(text, "left   epsilon {left:.4} by plain subtraction; what a run would really add: `dp-pvi-client plan`");
            } else {
                text.push_str("left   nothing");
            }
            text
        },
    );
    Ok(())
}

/// Runs whose visits were renounced, and by how much that lowered what is spent.
fn given_back(ledger: &ledger::LedgerView) -> Result<BTreeMap<RunId, f64>> {
    let mut back = BTreeMap::new();
    if !ledger.rows().iter().any(|(row, _)| matches!(row.body, RowBody::Renounced { .. })) {
        return Ok(back);
    }
    let mut before = 0.0;
    for ((row, _), loss) in ledger.rows().iter().zip(ledger.cumulative_losses()?) {
        let now = loss.epsilon.get();
        if let RowBody::Renounced { run } = &row.body {
            *back.entry(*run).or_insert(0.0) += if now < before { before - now } else { 0.0 };
        }
        before = now;
    }
    Ok(back)
}

/// Freezes the data set or opens it again: a row in the ledger, so a running client has to be stopped first.
///
/// # Errors
/// The ledger, or its lock.
pub fn freeze(config: &Config, state: FreezeState, output: Output) -> Result<()> {
    let private = config.private()?;
    let mut ledger = ledger::open(private, keys::identity(&config.tls.identity)?, |store| store)?;
    if view::freeze_state(ledger.rows()) != state {
        ledger.set_frozen(state)?;
    }
    let frozen = state == FreezeState::Frozen;
    output.object(
        || json!({"data": private.identity.data, "frozen": frozen}),
        || format!("data set {} is {}", private.identity.data, if frozen { "frozen: nothing can be charged" } else { "open" }),
    );
    Ok(())
}

/// Prints every release with its state and the total after it.
///
/// # Errors
/// The ledger.
pub fn history(config: &Config, output: Output) -> Result<()> {
    let private = config.private()?;
    let ledger = ledger::read_only(private, keys::identity(&config.tls.identity)?)?;
    if output.format() == Format::Text && view::charges(ledger.rows())?.is_empty() {
        output.line("nothing was released yet");
    }
    for ((row, _), total) in ledger.rows().iter().zip(ledger.cumulative_losses()?) {
        let RowBody::Reserved { release, .. } = &row.body else { continue };
        let state = ledger.state(release).map_or("unknown", state_name);
        output.object(
            || history_json(release, state, &total),
            || {
                format!(
                    "{} run {} round {:4}  {state:9}  total epsilon {}",
                    release.run.task,
                    release.run.number,
                    release.round,
                    epsilon(total.epsilon.get())
                )
            },
        );
    }
    Ok(())
}

fn history_json(release: &dp_pvi_names::ReleaseId, state: &str, total: &PrivacyLoss) -> Value {
    json!({
        "task": release.run.task.to_string(),
        "run": release.run.number,
        "round": release.round,
        "state": state,
        "epsilon_total": json_number(total.epsilon.get()),
        "delta": total.delta,
    })
}

fn method(loss: &PrivacyLoss) -> String {
    let name = name_of(&loss.method);
    if loss.numerical_margin { format!("{name}, with numerical margin") } else { name }
}

pub(super) fn state_name(state: ReleaseState) -> &'static str {
    match state {
        ReleaseState::Reserved => "reserved",
        ReleaseState::Committed => "committed",
        ReleaseState::Sent => "sent",
        ReleaseState::Receipted => "receipted",
        ReleaseState::Settled { included: true } => "included",
        ReleaseState::Settled { included: false } => "excluded",
    }
}
