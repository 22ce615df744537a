//! Everything that can go wrong at a site, by who is at fault, and the exit code of each.

use std::path::{Path, PathBuf};

use dp_pvi_privacy::ledger::{LedgerError, StoreError};
use dp_pvi_programs::environment::PREFIX;
use dp_pvi_programs::log::shortened;
use dp_pvi_programs::problem::Problem;
use dp_pvi_protocol::driver::{DriveError, TrainError, TrainErrorKind};
use dp_pvi_protocol::participant::SiteError;
use dp_pvi_protocol::text::visible;
use dp_pvi_protocol::transport::{Rejection, TransportError};
use dp_pvi_secagg::error::SecAggError;

/// What a message calls the configuration whose file it does not know.
pub(crate) const CONFIGURATION: &str = "client.toml";

/// Result of this crate.
pub type Result<T> = std::result::Result<T, ClientError>;

/// Why a command failed. [`ClientError::exit_code`] gives the code of `operations` for it.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// The configuration file or command line (exit code 2).
    #[error("configuration: {field}: {message}")]
    Config {
        /// `section.key`, or the name of the file or option.
        field: String,
        /// What is wrong and what to do.
        #[source]
        message: Problem,
    },
    /// A posterior, transcript, schema or task file is not what it should be (4).
    #[error("{}: {message}", file.display())]
    InvalidFile {
        /// Which file.
        file: PathBuf,
        /// What is wrong.
        #[source]
        message: Problem,
    },
    /// The server cannot be reached (5).
    #[error("cannot reach the server {server}: {message}")]
    Unreachable {
        /// As configured.
        server: String,
        /// Last failure.
        #[source]
        message: Problem,
    },
    /// Certificate, identity or signature (6).
    #[error("authentication: {0}")]
    Authentication(#[source] Problem),
    /// Version or task hash (7).
    #[error("version or task: {0}")]
    Version(#[source] Problem),
    /// The data set's budget or the site's policy does not allow it (8).
    #[error("refused by this site: {0}")]
    Refused(#[source] Problem),
    /// The run ended without a result (9).
    #[error("the run was aborted: {0}")]
    Aborted(#[source] Problem),
    /// The data cannot be used (10).
    #[error("data: {0}")]
    Data(#[source] Problem),
    /// The ledger is damaged or an old copy (11).
    #[error("ledger: {0}")]
    LedgerCorrupt(#[source] Problem),
    /// Lock, disk full, permissions (12).
    #[error("resource unavailable: {0}")]
    Unavailable(#[source] Problem),
    /// Stopped by a signal (128 + its number); the state can be resumed.
    #[error("stopped by {name}; start again to resume")]
    Signal {
        /// SIGINT, SIGTERM or SIGHUP.
        name: &'static str,
        /// Its number.
        number: u8,
    },
    /// Anything else (1).
    #[error("{0}")]
    Failed(#[source] Problem),
}

impl ClientError {
    /// A configuration error that names its field.
    pub fn config(field: impl Into<String>, message: impl Into<Problem>) -> Self {
        Self::Config { field: field.into(), message: message.into() }
    }

    /// The same with the configuration file that it is about, where it says only the field.
    #[must_use]
    pub(crate) fn in_file(self, file: &Path) -> Self {
        match self {
            // What the environment says is not in the file.
            Self::Config { field, message } if !field.starts_with(PREFIX) => {
                let place = if field == CONFIGURATION { file.display().to_string() } else { format!("{}: {field}", file.display()) };
                Self::Config { field: place, message }
            }
            other => other,
        }
    }

    /// Exit code of the process.
    #[must_use]
    pub fn exit_code(&self) -> u8 {
        match self {
            Self::Failed(_) => 1,
            Self::Config { .. } => 2,
            Self::InvalidFile { .. } => 4,
            Self::Unreachable { .. } => 5,
            Self::Authentication(_) => 6,
            Self::Version(_) => 7,
            Self::Refused(_) => 8,
            Self::Aborted(_) => 9,
            Self::Data(_) => 10,
            Self::LedgerCorrupt(_) => 11,
            Self::Unavailable(_) => 12,
            Self::Signal { number, .. } => 128 + number,
        }
    }

    /// The message as a person may see it. What someone else wrote can be in it: characters that a terminal obeys are shown as their
    /// codes. Only messages about this site's own configuration, and about a file that it was told to read, have more than one line.
    #[must_use]
    pub fn shown(&self) -> String {
        let text = self.to_string();
        let text = shortened(&text);
        match self {
            Self::Config { .. } | Self::InvalidFile { .. } => text.lines().map(visible).collect::<Vec<_>>().join("\n"),
            _ => visible(&text).into_owned(),
        }
    }

    /// Stable one-word name of the kind, for `--format json`.
    #[must_use]
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Failed(_) => "failed",
            Self::Config { .. } => "config",
            Self::InvalidFile { .. } => "invalid-file",
            Self::Unreachable { .. } => "unreachable",
            Self::Authentication(_) => "authentication",
            Self::Version(_) => "version",
            Self::Refused(_) => "refused",
            Self::Aborted(_) => "aborted",
            Self::Data(_) => "data",
            Self::LedgerCorrupt(_) => "ledger-corrupt",
            Self::Unavailable(_) => "unavailable",
            Self::Signal { .. } => "signal",
        }
    }
}

impl From<StoreError> for ClientError {
    fn from(error: StoreError) -> Self {
        match error {
            StoreError::Corrupt(_) | StoreError::Form { .. } => Self::LedgerCorrupt(Problem::of(error)),
            StoreError::Unavailable(_) => Self::Unavailable(Problem::of(error)),
        }
    }
}

impl From<LedgerError> for ClientError {
    fn from(error: LedgerError) -> Self {
        match error {
            LedgerError::Store(error) => error.into(),
            LedgerError::RolledBack { .. }
            | LedgerError::Forked { .. }
            | LedgerError::Behind { .. }
            | LedgerError::Apart { .. }
            | LedgerError::OtherLedger { .. } => Self::LedgerCorrupt(Problem::of(error)),
            LedgerError::OtherIdentity(_) | LedgerError::SiteAddRemove => Self::config("data.ledger", error.to_string()),
            LedgerError::OtherUnits { .. } => Self::config("data.schema", error.to_string()),
            LedgerError::OtherRecords(_) => Self::Data(Problem::of(error)),
            LedgerError::WrongState { .. } | LedgerError::PermitOutstanding(_) | LedgerError::OtherState(_) => {
                Self::Failed(Problem::of(error))
            }
            LedgerError::OverBudget { .. }
            | LedgerError::OverRunBudget { .. }
            | LedgerError::OverFallback { .. }
            | LedgerError::NonPrivateForbidden
            | LedgerError::Frozen
            | LedgerError::Conflict(_)
            | LedgerError::RetriesSpent(_)
            | LedgerError::LocalAccess(_)
            | LedgerError::Accountant(_) => Self::Refused(Problem::of(error)),
        }
    }
}

impl From<TransportError> for ClientError {
    fn from(error: TransportError) -> Self {
        match error {
            TransportError::Unreachable(message) => Self::Unreachable { server: String::new(), message: message.into() },
            TransportError::Rejected { kind, message } => match kind {
                Rejection::Authentication => Self::Authentication(message.into()),
                Rejection::Version => Self::Version(message.into()),
                Rejection::Copy => Self::Unavailable(message.into()),
                Rejection::Message | Rejection::HelloFirst | Rejection::Other => {
                    Self::Failed(format!("the server refused: {message}").into())
                }
            },
        }
    }
}

impl From<SiteError> for ClientError {
    fn from(error: SiteError) -> Self {
        match error {
            SiteError::Message(_) => Self::Authentication(Problem::of(error)),
            SiteError::Version(_) | SiteError::Unit { .. } | SiteError::Relation { .. } => Self::Version(Problem::of(error)),
            SiteError::Understated { .. } | SiteError::Policy(_) | SiteError::Unapproved(_) | SiteError::GivenUp(_) => {
                Self::Refused(Problem::of(error))
            }
            SiteError::Aggregation(SecAggError::Charter(_) | SecAggError::Plan(_)) => Self::Refused(Problem::of(error)),
            SiteError::Aggregation(SecAggError::Unsigned { .. } | SecAggError::Signature { .. }) => {
                Self::Authentication(Problem::of(error))
            }
            SiteError::Server(_) | SiteError::Aggregation(_) | SiteError::Accountant(_) | SiteError::Order(_) => {
                Self::Failed(Problem::of(error))
            }
            SiteError::ServerBehind { .. } => Self::Failed(Problem::of(error)),
            SiteError::Forgotten { .. } => Self::LedgerCorrupt(Problem::of(error)),
            SiteError::Ledger(error) => error.into(),
        }
    }
}

impl From<TrainError> for ClientError {
    fn from(error: TrainError) -> Self {
        match error.kind {
            TrainErrorKind::Data => Self::Data(error.message.into()),
            TrainErrorKind::Resource => Self::Unavailable(error.message.into()),
            TrainErrorKind::Internal => Self::Failed(error.message.into()),
        }
    }
}

impl From<DriveError> for ClientError {
    fn from(error: DriveError) -> Self {
        match error {
            DriveError::Transport(error) => error.into(),
            DriveError::Site(error) => error.into(),
            DriveError::Train(error) => error.into(),
        }
    }
}

impl ClientError {
    /// Adds the server's address to an error that does not know it.
    #[must_use]
    pub fn at_server(self, address: &str) -> Self {
        match self {
            Self::Unreachable { server, message } if server.is_empty() => Self::Unreachable { server: address.to_owned(), message },
            other => other,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ledger_that_went_back_is_11_and_one_that_cannot_be_used_now_is_12() {
        let back =
            [LedgerError::RolledBack { witnessed: 3, here: 1 }, LedgerError::Forked { seq: 3 }, StoreError::Corrupt("x".into()).into()];
        assert!(back.into_iter().all(|e| ClientError::from(e).exit_code() == 11));
        assert_eq!(ClientError::from(LedgerError::Store(StoreError::Unavailable("full".into()))).exit_code(), 12);
    }
}
