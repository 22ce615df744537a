//! Errors by who is at fault, each with its exit code.

use dp_pvi_results::account::AccountError;
use std::error::Error;
use std::path::Path;
use std::process::ExitCode;

use dp_pvi_programs::log::shortened;
use dp_pvi_programs::problem::Problem;
use dp_pvi_protocol::message::RunOutcome;
use dp_pvi_protocol::text::visible;
use serde::Serialize;

/// Why the server cannot go on.
#[derive(Debug, thiserror::Error)]
pub enum ServerError {
    /// Something that cannot be put down to anyone else.
    #[error("{0}")]
    Failed(#[source] Problem),
    /// The configuration file, or an override from the environment.
    #[error("{place}: {message}")]
    Config {
        /// File or variable.
        place: String,
        /// What is wrong and what to do.
        #[source]
        message: Problem,
    },
    /// An argument of the command line.
    #[error("{0}")]
    Usage(#[source] Problem),
    /// A file that the configuration or command line names.
    #[error("{path}: {message}")]
    File {
        /// Which.
        path: String,
        /// What is wrong and what to do.
        #[source]
        message: Problem,
    },
    /// No server answers on the admin socket.
    #[error("no server is running on {path} ({message}): start it with `dp-pvi-server run`, or name its configuration with --config")]
    NotRunning {
        /// The socket.
        path: String,
        /// The system's words.
        #[source]
        message: Problem,
    },
    /// The server of a summer.
    #[error("{0}: check [summer] server and the network")]
    Unreachable(#[source] Problem),
    /// A certificate that is not accepted, ours or the server's.
    #[error("{0}")]
    Authentication(#[source] Problem),
    /// State of another task or run.
    #[error("{0}")]
    OtherTask(#[source] Problem),
    /// Too few sites, and which were missing.
    #[error("the run ended because fewer than min_sites sites took part{}; the results are those of the last complete round, if there was one", because(.0.as_ref()))]
    QuorumLost(Option<String>),
    /// Sites refused, with public reasons.
    #[error(
        "the run ended because so many sites refused that fewer than min_sites were left{}; the results are those of the last complete round, if there was one", because(.0.as_ref())
    )]
    SitesRefused(Option<String>),
    /// No charter, no summer, or a sum that cannot be right.
    #[error("the run ended because the aggregation was aborted: {}; the results are those of the last complete round, if there was one", aborted(.0.as_ref()))]
    AggregationLost(Option<String>),
    /// There is a run, and nothing in it yet.
    #[error("no update has entered the posterior yet: there is nothing to export")]
    NothingYet,
    /// The run ended before its first round: there are no results.
    #[error("the run ended before any update entered the posterior ({}): nothing was learned, and no results were written; {}", name_of(.0), why(*.0, .1.as_deref()))]
    NoRound(RunOutcome, Option<String>),
    /// A question to the accountant.
    #[error(transparent)]
    Question(#[from] AccountError),
    /// Lock, disk, port.
    #[error("{0}")]
    Unavailable(#[source] Problem),
    /// The system has run out of something that someone may give back: memory, file descriptors.
    #[error("{0}")]
    Exhausted(#[source] Problem),
    /// The store is damaged.
    #[error("{0}: the state is damaged; restore the directory from a copy, or start another one")]
    Corrupt(#[source] Problem),
    /// Stopped by a signal.
    #[error("stopped by signal {0}")]
    Signal(u8),
}

/// The name of an enum's variant, as configuration and JSON write it.
pub(crate) fn name_of(value: &impl Serialize) -> String {
    match serde_json::to_value(value) {
        Ok(serde_json::Value::String(name)) => name,
        Ok(other) => other.to_string(),
        Err(_) => String::new(),
    }
}

/// What is known beyond that, in brackets.
fn because(reason: Option<&String>) -> String {
    reason.map_or_else(String::new, |reason| format!(" ({reason})"))
}

/// Why an aggregation ended, as far as it is known.
fn aborted(reason: Option<&String>) -> &str {
    reason.map_or("the charter was not signed by all, or the summer did not answer, or too few sites did", String::as_str)
}

/// Where to look when a run ended without a round.
fn why(outcome: RunOutcome, reason: Option<&str>) -> &str {
    match (outcome, reason) {
        (_, Some(reason)) => reason,
        (RunOutcome::Complete | RunOutcome::Stopped | RunOutcome::Converged, None) => "start it again with `dp-pvi-server run --new-run`",
        _ => "the log names the sites that refused, with their public reasons; `dp-pvi-server ca list` shows who is enrolled",
    }
}

/// Shorthand.
pub type Result<T> = std::result::Result<T, ServerError>;

impl ServerError {
    /// A problem with a file that was named to us.
    pub(crate) fn file(path: &Path, message: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        Self::File { path: path.display().to_string(), message: message.into().into() }
    }

    /// A problem with our own state.
    pub(crate) fn unavailable(path: &Path, message: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        let message: Problem = message.into().into();
        Self::Unavailable(Problem::said(format!("{}: {message}", path.display()), message))
    }

    /// The message as a person may see it: only messages about files and keys of this program's own operator have more than one line, because what
    /// someone else wrote must not look like another line.
    #[must_use]
    pub(crate) fn shown(&self) -> String {
        let text = self.to_string();
        let text = shortened(&text);
        match self {
            Self::Config { .. } | Self::File { .. } | Self::Question(_) => text.into_owned(),
            _ => visible(&text).into_owned(),
        }
    }

    /// The exit code (see `dp-pvi-server --help`).
    #[must_use]
    pub fn code(&self) -> u8 {
        match self {
            Self::Failed(_) | Self::NothingYet => 1,
            Self::Config { .. } | Self::Usage(_) => 2,
            Self::File { .. } => 4,
            Self::Question(question) => question.exit_code(),
            Self::NotRunning { .. } | Self::Unreachable(_) => 5,
            Self::Authentication(_) => 6,
            Self::OtherTask(_) => 7,
            Self::NoRound(RunOutcome::Complete | RunOutcome::Stopped | RunOutcome::Converged, _) => 1,
            Self::QuorumLost(_) | Self::SitesRefused(_) | Self::AggregationLost(_) | Self::NoRound(..) => 9,
            Self::Corrupt(_) => 11,
            Self::Unavailable(_) | Self::Exhausted(_) => 12,
            Self::Signal(number) => 128 + number,
        }
    }

    /// The exit code for `main`.
    #[must_use]
    pub fn exit_code(&self) -> ExitCode {
        ExitCode::from(self.code())
    }
}
