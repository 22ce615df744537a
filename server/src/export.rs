//! Output of a run: `posterior.json`, `report.html`, and the transcript for checking it.
//!
//! Everything is computed from the store, so it can be made at any time, also beside a running server. Nothing of the store is taken on
//! trust: the chain of signed headers and entries is followed from the first round to the last (`chain`).

mod chain;
mod convergence;
mod history;
mod page;
mod releases;
mod transcript;

use std::path::{Path, PathBuf};

use dp_pvi_names::Hash;
use dp_pvi_posterior::methods::agreement::{NotTested, SiteReleases};
use dp_pvi_posterior::task::TaskError;
use dp_pvi_programs::outputs;
use dp_pvi_protocol::statement::{PrivacyStatement, statement};
use dp_pvi_results::agreement;
use dp_pvi_results::agreement::Agreement;
use dp_pvi_results::divided;
use dp_pvi_results::divided::Undividable;
use dp_pvi_results::document::{DocumentError, Evaluation, PosteriorDocument};

use self::chain::Keys;
pub use self::convergence::ConvergenceStatus;
pub(crate) use self::convergence::convergence;
use self::history::History;
use self::releases::{Kept, Releases};
use crate::config::Config;
use crate::error::{Result, ServerError};
use crate::files::replace;
use crate::store::{Reader, StoredRun};

/// Files that were written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Exported {
    /// `posterior.json`.
    pub posterior: PathBuf,
    /// `report.html`.
    pub report: PathBuf,
}

/// Makes the directory of the results, so that a run whose posterior could not be written never begins.
///
/// # Errors
/// [`ServerError::Unavailable`]: permissions, the disk, a file of that name.
pub fn prepare(config: &Config) -> Result<()> {
    // The server makes its own folder.
    let own = config.output == config.state && !config.state.exists();
    let made = if own { Ok(()) } else { outputs::make_folder(&config.output, &FILES) };
    made.map_err(|e| ServerError::unavailable(&config.output, format!("{e}; [server] output names it")))
}

/// What an export writes into its directory.
pub const FILES: [&str; 2] = ["posterior.json", "report.html"];

/// Writes `posterior.json` and `report.html` of the last run into a directory. Those of another run that are there get names with its task and number, and stay.
///
/// # Errors
/// There is no run, no round of it has an update ([`ServerError::NothingYet`]), the store is damaged ([`ServerError::Corrupt`]), or the
/// directory cannot be written.
pub fn export(config: &Config, directory: &Path) -> Result<Exported> {
    let (reader, run, history) = open(config)?;
    if history.entries.iter().all(|entry| entry.included.is_empty()) {
        return Err(ServerError::NothingYet);
    }
    let document = certified(document(&history)?)?.with_agreement(agreement(config, &reader, &run, &history)?);
    std::fs::create_dir_all(directory).map_err(|e| ServerError::unavailable(directory, e))?;
    let [posterior, report] = FILES.map(|name| directory.join(name));
    let exported = Exported { posterior, report };
    set_aside(directory, &FILES, &history)?;
    replace(&exported.posterior, document.to_json().as_bytes())?;
    replace(&exported.report, page::render(&config.federation, &history, &document).as_bytes())?;
    Ok(exported)
}

/// Gives results of another run other names before these files are written.
fn set_aside(directory: &Path, files: &[&str], history: &History) -> Result<()> {
    let aside = outputs::set_aside(directory, files, |text| of_another_run(text, history));
    aside.map_err(|e| ServerError::unavailable(directory, e))
}

/// What the results in this text are called beside those of the document, where they are of another run: of another task or number, or with ledger heads that this run
/// never saw, as the first run of a new database has.
fn of_another_run(text: &str, history: &History) -> Option<String> {
    let old: serde_json::Value = serde_json::from_str(text).unwrap_or_default();
    let named = || Some((old["task_hash"].as_str()?.parse::<Hash>().ok()?, old["run"].as_u64()?));
    // No results, or results that were cut.
    let Some((task, run)) = named() else { return Some("earlier".into()) };
    let sites = old["privacy"].as_array().map(Vec::as_slice).unwrap_or_default();
    let mut heads = sites.iter().filter_map(|site| site["witness"]["hash"].as_str()?.parse::<Hash>().ok());
    let seen = |head: &Hash| history.members.values().any(|member| member.heads.contains(head));
    let same = (task, run) == (history.run.task, history.run.number.into()) && heads.all(|head| seen(&head));
    (!same).then(|| format!("{:.8}-{run}", task.to_string()))
}

/// The posterior of the last run, as `posterior.json` holds it.
///
/// # Errors
/// There is no run, or the store is damaged ([`ServerError::Corrupt`]).
pub fn posterior(config: &Config) -> Result<PosteriorDocument> {
    document(&read(config)?)
}

/// Writes the posterior of the last run without one of its sites, and returns the file's name.
///
/// # Errors
/// There is no such site ([`ServerError::Usage`]), nothing can be divided out ([`ServerError::Failed`], with the reason), and what [`export`] says.
pub fn export_without(config: &Config, site: &str, directory: &Path) -> Result<PathBuf> {
    let (reader, run, history) = open(config)?;
    let names: Vec<&str> = history.sites().map(|(client, _)| client.as_str()).collect();
    let Some(position) = names.iter().position(|name| *name == site) else {
        let message = format!("--without: no site of that name is in the last run; there are {}", names.join(", "));
        return Err(ServerError::Usage(message.into()));
    };
    let failed = |e: &dyn std::fmt::Display| ServerError::Failed(format!("--without {site}: {e}").into());
    divided::is_known(&history.task).map_err(|e| failed(&e))?;
    let releases = match Releases::read(config, &reader, &run, &history)? {
        Kept::All(releases) => releases,
        Kept::Not => return Err(failed(&Undividable::NotKept)),
        Kept::TooMany => return Err(failed(&Undividable::TooMany)),
        Kept::Damaged(client) => return Err(ServerError::Corrupt(format!("what is stored of {client} is not what it sent").into())),
    };
    let of_sites = SiteReleases { history: &releases.rounds, vectors: &releases.vectors };
    let left = divided::without(&history.task, &of_sites, position).map_err(|e| failed(&e))?;
    let site = releases.sites[position].clone();
    let name = format!("posterior-without-{site}.json");
    let file = directory.join(&name);
    let (whole, privacy) = (document(&history)?, statements(&history)?);
    let document = PosteriorDocument::without_site(&history.task, &whole, &left, site, privacy).map_err(|e| failed(&e))?;
    FILES.iter().for_each(|name| outputs::needs(&directory.join(name)));
    crate::task::refuse_to_overwrite(&file)?;
    std::fs::create_dir_all(directory).map_err(|e| ServerError::unavailable(directory, e))?;
    set_aside(directory, &[&name], &history)?;
    replace(&file, certified(document)?.to_json().as_bytes())?;
    Ok(file)
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
    open(config).map(|(_, _, history)| history)
}

fn open(config: &Config) -> Result<(Reader, StoredRun, History)> {
    let database = &config.store.database;
    let reader = Reader::open(database)?;
    let keys = Keys::load(&config.tls)?;
    reader.check_whole()?;
    let run =
        reader.last_run()?.ok_or_else(|| ServerError::unavailable(database, "there is no run yet; `dp-pvi-server run` starts one"))?;
    let history = History::read(&reader, &run, &keys)?;
    Ok((reader, run, history))
}

/// Whether the sites agree, from what each of them sent.
fn agreement(config: &Config, reader: &Reader, run: &StoredRun, history: &History) -> Result<Agreement> {
    if let Err(reason) = agreement::is_known(&history.task) {
        return Ok(Agreement::not_tested(reason));
    }
    Ok(match Releases::read(config, reader, run, history)? {
        Kept::All(Releases { sites, rounds, vectors }) => {
            agreement::of_run(&history.task, &sites, &SiteReleases { history: &rounds, vectors: &vectors })
        }
        Kept::Not => Agreement::not_tested(NotTested::NotKept),
        Kept::Damaged(_) => Agreement::not_tested(NotTested::Damaged),
        Kept::TooMany => Agreement::not_tested(NotTested::TooMany),
    })
}

fn statements(history: &History) -> Result<Vec<PrivacyStatement>> {
    let rows = |site| history.members.get(site).map(|member| member.rows.clone()).unwrap_or_default();
    let statements = history.sites().map(|(site, releases)| Ok(statement(&history.task, site, releases)?.of_rows(rows(site))));
    let failed = |e: &dyn std::fmt::Display| ServerError::Failed(format!("the posterior cannot be written: {e}").into());
    let statements = statements.collect::<std::result::Result<Vec<_>, TaskError>>().map_err(|e| failed(&e))?;
    Ok(PrivacyStatement::witnessed(statements, |site| history.members.get(site)?.witness.clone()))
}

/// The document with certificates of what it says of privacy.
fn certified(document: PosteriorDocument) -> Result<PosteriorDocument> {
    document.with_certificates().map_err(|e| ServerError::Failed(format!("the posterior cannot be certified: {e}").into()))
}

fn document(history: &History) -> Result<PosteriorDocument> {
    let failed = |e: &dyn std::fmt::Display| ServerError::Failed(format!("the posterior cannot be written: {e}").into());
    let statements = statements(history)?;
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
