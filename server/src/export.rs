//! What a run leaves behind: `posterior.json`, `report.html`, and the transcript for whoever wants to check it.
//!
//! Everything is computed from the store, so it can be made at any time, also beside a running server. Nothing of the store is taken on
//! trust: the chain of signed headers and entries is followed from the first round to the last (`chain`).

mod chain;
mod history;
mod page;
mod standing;
mod transcript;

use std::path::{Path, PathBuf};

use dp_pvi_posterior::reading::document::{DocumentError, Evaluation, PosteriorDocument};
use dp_pvi_posterior::reading::statement::statement;

use self::chain::Keys;
use self::history::History;
pub use self::standing::Standing;
pub(crate) use self::standing::standing;
use crate::config::Config;
use crate::error::{Result, ServerError};
use crate::files::replace;
use crate::store::Reader;

/// Files that were written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Exported {
    /// `posterior.json`.
    pub posterior: PathBuf,
    /// `report.html`.
    pub report: PathBuf,
}

/// Writes `posterior.json` and `report.html` of the last run into a directory.
///
/// # Errors
/// There is no run, no round of it has an update ([`ServerError::NothingYet`]), the store is damaged ([`ServerError::Corrupt`]), or the
/// directory cannot be written.
pub fn export(config: &Config, directory: &Path) -> Result<Exported> {
    let history = read(config)?;
    if history.entries.iter().all(|entry| entry.included.is_empty()) {
        return Err(ServerError::NothingYet);
    }
    let document = document(&history)?;
    std::fs::create_dir_all(directory).map_err(|e| ServerError::unavailable(directory, e))?;
    let exported = Exported { posterior: directory.join("posterior.json"), report: directory.join("report.html") };
    replace(&exported.posterior, document.to_json().as_bytes())?;
    replace(&exported.report, page::render(&config.federation, &history, &document).as_bytes())?;
    Ok(exported)
}

/// The posterior of the last run, as `posterior.json` holds it.
///
/// # Errors
/// There is no run, or the store is damaged ([`ServerError::Corrupt`]).
pub fn posterior(config: &Config) -> Result<PosteriorDocument> {
    document(&read(config)?)
}

/// Writes the transcript of the last run, one JSON object a line.
///
/// # Errors
/// There is no run, the store is damaged ([`ServerError::Corrupt`]), or the file cannot be written.
pub fn export_transcript(config: &Config, file: &Path) -> Result<()> {
    let history = read(config)?;
    replace(file, transcript::render(&history)?.as_bytes())
}

fn read(config: &Config) -> Result<History> {
    let database = &config.store.database;
    let reader = Reader::open(database)?;
    let keys = Keys::load(&config.tls)?;
    reader.check_whole()?;
    let run =
        reader.last_run()?.ok_or_else(|| ServerError::unavailable(database, "there is no run yet; `dp-pvi-server run` starts one"))?;
    History::read(&reader, &run, &keys)
}

fn document(history: &History) -> Result<PosteriorDocument> {
    let failed = |e: &dyn std::fmt::Display| ServerError::Failed(format!("the posterior cannot be written: {e}").into());
    let statements = history.sites().map(|(site, releases)| statement(&history.task, site, releases));
    let statements = statements.collect::<std::result::Result<Vec<_>, _>>().map_err(|e| failed(&e))?;
    let evaluations = history
        .metrics
        .iter()
        .map(|(client, report)| Evaluation { evaluator: client.clone(), round: report.round, metrics: report.metrics.clone() })
        .collect::<Vec<_>>();
    let (task, run, rounds) = (&history.task, history.run.number, history.rounds());
    let document = match PosteriorDocument::new(task, run, rounds, &history.lambda, statements.clone(), evaluations.clone()) {
        Ok(document) => document,
        // Whatever the sites sent, there is a result: it says what went wrong.
        Err(DocumentError::Parameters(problem)) => {
            return Ok(PosteriorDocument::without_posterior(task, run, rounds, &problem, statements, evaluations));
        }
        Err(error) => return Err(failed(&error)),
    };
    document.with_noise_aware(history.noise_aware()).map_err(|e| failed(&e))
}

#[cfg(test)]
mod tests;
