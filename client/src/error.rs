//! Everything that can go wrong at a site, by who is at fault, and the exit code of each.

use std::path::PathBuf;

use dp_pvi_privacy::ledger::{LedgerError, StoreError};
use dp_pvi_proto::text::visible;
use dp_pvi_protocol::driver::{DriveError, TrainError, TrainErrorKind};
use dp_pvi_protocol::participant::SiteError;
use dp_pvi_protocol::transport::{Rejection, TransportError};
use dp_pvi_secagg::error::SecAggError;

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
        message: String,
    },
    /// A posterior, transcript, schema or task file is not what it should be (4).
    #[error("{}: {message}", file.display())]
    InvalidFile {
        /// Which file.
        file: PathBuf,
        /// What is wrong.
        message: String,
    },
    /// The server cannot be reached (5).
    #[error("cannot reach the server {server}: {message}")]
    Unreachable {
        /// As configured.
        server: String,
        /// Last failure.
        message: String,
    },
    /// Certificate, identity or signature (6).
    #[error("authentication: {0}")]
    Authentication(String),
    /// Version or task hash (7).
    #[error("version or task: {0}")]
    Version(String),
    /// The data set's budget or the site's policy does not allow it (8).
    #[error("refused by this site: {0}")]
    Refused(String),
    /// The run ended without a result (9).
    #[error("the run was aborted: {0}")]
    Aborted(String),
    /// The data cannot be used (10).
    #[error("data: {0}")]
    Data(String),
    /// The ledger is damaged or an old copy (11).
    #[error("ledger: {0}")]
    LedgerCorrupt(String),
    /// Lock, disk full, permissions (12).
    #[error("resource unavailable: {0}")]
    Unavailable(String),
    /// Stopped by a signal (128 + its number); the state can be resumed.
    #[error("stopped by {name}; start again to resume")]
    Signal {
        /// SIGINT or SIGTERM.
        name: &'static str,
        /// Its number.
        number: u8,
    },
    /// Anything else (1).
    #[error("{0}")]
    Failed(String),
}

impl ClientError {
    /// A configuration error that names its field.
    pub fn config(field: impl Into<String>, message: impl Into<String>) -> Self {
        Self::Config { field: field.into(), message: message.into() }
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

    /// The message as a person may see it. What somebody else wrote can be in it: characters that a terminal obeys are shown as their
    /// codes. Only messages about this site's own configuration have more than one line.
    #[must_use]
    pub fn shown(&self) -> String {
        let text = self.to_string();
        match self {
            Self::Config { .. } => text.lines().map(visible).collect::<Vec<_>>().join("\n"),
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
            StoreError::Corrupt(_) => Self::LedgerCorrupt(error.to_string()),
            StoreError::Unavailable(_) => Self::Unavailable(error.to_string()),
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
            | LedgerError::OtherLedger { .. } => Self::LedgerCorrupt(error.to_string()),
            LedgerError::OtherIdentity(_) | LedgerError::SiteAddRemove => Self::config("data.ledger", error.to_string()),
            LedgerError::OtherUnits { .. } => Self::config("data.schema", error.to_string()),
            LedgerError::WrongState { .. } | LedgerError::PermitOutstanding(_) | LedgerError::OtherState(_) => {
                Self::Failed(error.to_string())
            }
            LedgerError::OverBudget { .. }
            | LedgerError::OverRunBudget { .. }
            | LedgerError::OverFallback { .. }
            | LedgerError::NonPrivateForbidden
            | LedgerError::Frozen
            | LedgerError::Conflict(_)
            | LedgerError::RetriesSpent(_)
            | LedgerError::Accountant(_) => Self::Refused(error.to_string()),
        }
    }
}

impl From<TransportError> for ClientError {
    fn from(error: TransportError) -> Self {
        match error {
            TransportError::Unreachable(message) => Self::Unreachable { server: String::new(), message },
            TransportError::Rejected { kind, message } => match kind {
                Rejection::Authentication => Self::Authentication(message),
                Rejection::Version => Self::Version(message),
                Rejection::Message | Rejection::HelloFirst | Rejection::Other => Self::Failed(format!("the server refused: {message}")),
            },
        }
    }
}

impl From<SiteError> for ClientError {
    fn from(error: SiteError) -> Self {
        match error {
            SiteError::Message(_) => Self::Authentication(error.to_string()),
            SiteError::Version(_) | SiteError::Unit { .. } | SiteError::Relation { .. } => Self::Version(error.to_string()),
            SiteError::Understated { .. } | SiteError::Policy(_) | SiteError::Unapproved(_) => Self::Refused(error.to_string()),
            SiteError::Aggregation(SecAggError::Charter(_) | SecAggError::Plan(_)) => Self::Refused(error.to_string()),
            SiteError::Aggregation(SecAggError::Unsigned { .. } | SecAggError::Signature { .. }) => Self::Authentication(error.to_string()),
            SiteError::Server(_) | SiteError::Aggregation(_) | SiteError::Accountant(_) | SiteError::Order(_) => {
                Self::Failed(error.to_string())
            }
            SiteError::Forgotten { .. } => Self::LedgerCorrupt(error.to_string()),
            SiteError::Ledger(error) => error.into(),
        }
    }
}

impl From<TrainError> for ClientError {
    fn from(error: TrainError) -> Self {
        match error.kind {
            TrainErrorKind::Data => Self::Data(error.message),
            TrainErrorKind::Resource => Self::Unavailable(error.message),
            TrainErrorKind::Internal => Self::Failed(error.message),
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
