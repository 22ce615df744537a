//! `personalise`: the posterior for this site alone, with the exact likelihood of its records in place of what it released.
//!
//! Nothing is sent, charged or written to the ledger. This is the one place of the workspace that takes the exit of the release gate for a site's own
//! people ([`dp_pvi_privacy::local_only`]); a process that has taken it can charge no ledger any more.

use std::path::{Path, PathBuf};

use dp_pvi_inference::personal::others::Released;
use dp_pvi_inference::personal::{self, Heterogeneity, Known};
use dp_pvi_names::{ReleaseId, RunId};
use dp_pvi_posterior::task::{ResolvedTask, SiteStateForm};
use dp_pvi_privacy::{LocalAccess, SiteState};
use dp_pvi_programs::outputs;
use dp_pvi_programs::problem::Problem;
use dp_pvi_results::document::PosteriorDocument;
use serde_json::json;

use crate::config::Config;
use crate::error::{ClientError, Result};
use crate::ledger::{self, LedgerView};
use crate::output::{Output, name_of};
use crate::personal::{Of, PRIVATE, PersonalDocument};
use crate::snapshot::{Changed, Snapshot};
use crate::{history, keys};

/// Writes the personal posterior of this site to `target`, by default into the state folder.
///
/// # Errors
/// [`ClientError::InvalidFile`] for `posterior`, [`ClientError::Data`] for the records, the ledger, [`ClientError::Failed`] where the model has none.
pub fn personalise(
    config: &Config,
    posterior: &Path,
    target: Option<&Path>,
    (heterogeneity, changed): (Heterogeneity, Changed),
    output: Output,
) -> Result<()> {
    let private = config.private()?;
    outputs::needs(posterior);
    if let Some(target) = target {
        outputs::refuse(target).map_err(|e| ClientError::config("output", format!("{}: {e}", target.display())))?;
    }
    let invalid = |message: Problem| ClientError::InvalidFile { file: posterior.to_owned(), message };
    let text = std::fs::read_to_string(posterior).map_err(|e| invalid(Problem::said(format!("cannot be read ({e})"), e)))?;
    let document = PosteriorDocument::from_json(&text).map_err(|e| invalid(Problem::of(e)))?;
    if let Some(problem) = &document.problem {
        return Err(invalid(format!("holds no posterior: {problem}").into()));
    }
    if let Some(without) = &document.without {
        return Err(invalid(format!("is a posterior without {}: name the posterior.json of the whole run", without.site).into()));
    }
    let site = &config.site.name;
    if !document.privacy.iter().any(|statement| statement.site == *site && statement.releases > 0) {
        let words =
            format!("has no part of {site}, which answered no visit of that run: there is nothing to replace, predict with it as it is");
        return Err(invalid(words.into()));
    }
    let task = document.task().map_err(|e| invalid(Problem::of(e)))?;
    let run = RunId { task: task.hash(), number: document.run };
    let identity = keys::identity(&config.tls.identity)?;
    // What is seen here is computed here: a cluster gives sealed sums only.
    let mut local = config.clone();
    local.data.engine = None;
    let snapshot = Snapshot::load(&local, &identity)?;
    snapshot.schema().is_of(&task).map_err(|e| ClientError::Data(e.into()))?;
    snapshot.check_is_of(&run, changed)?;
    let mut ledger = ledger::read_only(private, identity)?;
    let released = released(config, &task, &run, &mut ledger)?;
    let plain = document.plain.as_ref().map_or(&document.natural_parameters, |plain| &plain.natural_parameters);
    let access = LocalAccess::instead_of_releases().map_err(|e| ClientError::Failed(Problem::of(e)))?;
    let scale = document.observation_scale.map(|scale| scale.estimate);
    let known = Known { task: &task, plain, released: &released, heterogeneity, scale };
    let seen = personal::posterior(&known, &*snapshot.units(&task)?, access).map_err(|e| ClientError::Failed(Problem::of(e)))?;
    let personal = seen.reveal();
    let of = Of { site, data: &config.data.name, task: &task, run, rounds: document.rounds, scale };
    let made = PersonalDocument::new(&of, personal)?;
    let target = match target {
        Some(target) => {
            made.write(target)?;
            target.to_owned()
        }
        None => {
            let place = default_place(config, &run);
            made.keep(&place)?;
            place
        }
    };
    // Of what was computed nothing is shown but how: the numbers are in the file, for anyone who may open it.
    output.object(
        || json!({"private": PRIVATE, "file": target, "others": name_of(&personal.way)}),
        || format!("wrote {}\nPRIVATE: {PRIVATE}\n{}", target.display(), personal.way.words()),
    );
    Ok(())
}

fn default_place(config: &Config, run: &RunId) -> PathBuf {
    config.site.state.join(format!("personal-{}-{}-{}.json", config.data.name, &run.task.to_string()[..16], run.number))
}

/// What this site released in the run, by its ledger and by what it kept.
fn released(config: &Config, task: &ResolvedTask, run: &RunId, ledger: &mut LedgerView) -> Result<Released> {
    if let SiteStateForm::Public(length) = task.site_state() {
        return Ok(match ledger.site_state(run)? {
            // Nothing of this site is in the posterior.
            SiteState::None => Released::Factor(vec![0.0; length]),
            state => state.public(length).map_or(Released::Unknown, Released::Factor),
        });
    }
    let client = &config.site.name;
    history::released(&config.site.state, &config.data.name, run, client, |round| {
        let release = ReleaseId { run: *run, client: client.clone(), round };
        Ok(ledger.message(&release)?)
    })
}
