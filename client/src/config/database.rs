//! `[database]`: records in PostgreSQL in place of files.

use std::fmt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use dp_pvi_names::Hash;
use serde::Deserialize;
use tokio_postgres::config::Host;

use crate::error::{ClientError, Result};

/// `[database]`, checked.
#[derive(Debug, Clone)]
pub struct Database {
    /// Host, port, user and database; no password.
    pub server: tokio_postgres::Config,
    /// What the rows are.
    pub rows: RowsBy,
    /// File with the password (0600); without it the environment may have one.
    pub password_file: Option<PathBuf>,
    /// Whether the connection is encrypted, and who vouches for the server.
    pub tls: DatabaseTls,
    /// How long the server may take to answer a question.
    pub answer: Duration,
    /// How long the rows stay on the disk.
    pub keep: KeepRows,
}

/// Where it is written what the rows are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RowsBy {
    /// In a description, of which the program makes its questions.
    Description(PathBuf),
    /// In a query of the operator's, with the hash by which the operator vouches for it.
    Query {
        /// File with the query.
        file: PathBuf,
        /// That each person's rows are that person's, for this text alone.
        vouched: Option<Hash>,
    },
}

impl RowsBy {
    /// The file.
    #[must_use]
    pub fn file(&self) -> &Path {
        match self {
            Self::Description(file) | Self::Query { file, .. } => file,
        }
    }
}

/// Whether the connection to the database is encrypted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DatabaseTls {
    /// It is, and the server's certificate is signed by this authority and has the host's name.
    Required {
        /// File with the authority's certificate.
        ca: PathBuf,
    },
    /// It is not: the database is on this machine.
    Off,
}

/// How long the rows of the query stay on the disk.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum KeepRows {
    /// Until the run has ended, so that a client which is started again in the middle finds them as they were.
    #[default]
    Run,
    /// As long as the process lives.
    Process,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawDatabase {
    url: String,
    records: Option<PathBuf>,
    query: Option<PathBuf>,
    vouched: Option<String>,
    password_file: Option<PathBuf>,
    ca: Option<PathBuf>,
    tls: Option<RawTls>,
    answer_seconds: Option<u32>,
    #[serde(default)]
    keep_rows: KeepRows,
}

#[derive(Clone, Copy, PartialEq, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum RawTls {
    Required,
    Off,
}

impl Database {
    /// Whether the rows stay in the state folder until the run has ended.
    pub(crate) fn keeps_rows_of_run(&self) -> bool {
        self.keep == KeepRows::Run
    }

    /// Host and database, for messages.
    #[must_use]
    pub fn place(&self) -> Place<'_> {
        Place(&self.server)
    }
}

/// Host and database of a server.
pub struct Place<'a>(&'a tokio_postgres::Config);

impl fmt::Display for Place<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0.get_hosts().first() {
            Some(Host::Tcp(host)) => write!(f, "{host}")?,
            Some(Host::Unix(folder)) => write!(f, "{}", folder.display())?,
            None => {}
        }
        write!(f, "/{}", self.0.get_dbname().unwrap_or_default())
    }
}

impl RawDatabase {
    pub(super) fn check(self, folder: &Path) -> Result<Database> {
        let refuse = |key: &str, message: &str| ClientError::config(format!("database.{key}"), message.to_owned());
        // The parser's words would quote the URL, which may hold a password.
        let wrong =
            || refuse("url", "is not postgresql://USER@HOST:PORT/DATABASE (for a socket: postgresql:///DATABASE?host=/FOLDER&user=USER)");
        let server: tokio_postgres::Config = self.url.parse().map_err(|_| wrong())?;
        if server.get_password().is_some() {
            return Err(refuse("url", "holds a password: put it into a file that only this user can read, and name it in password_file"));
        }
        let [host] = server.get_hosts() else { return Err(wrong()) };
        if server.get_user().is_none() || server.get_dbname().is_none() || !server.get_hostaddrs().is_empty() {
            return Err(wrong());
        }
        let local = match host {
            Host::Unix(_) => true,
            Host::Tcp(name) => name == "localhost" || name.parse::<std::net::IpAddr>().is_ok_and(|address| address.is_loopback()),
        };
        let tls = match (self.tls, self.ca, host) {
            (Some(RawTls::Required), _, Host::Unix(_)) => return Err(refuse("tls", "cannot be \"required\" over a socket: leave it out")),
            (None, None, Host::Unix(_)) => DatabaseTls::Off,
            (Some(RawTls::Off), None, _) if local => DatabaseTls::Off,
            (Some(RawTls::Off), None, _) => {
                return Err(refuse(
                    "tls",
                    "can be \"off\" only where the database is on this machine (localhost or a socket): records would cross the network in the clear",
                ));
            }
            (Some(RawTls::Off), Some(_), _) | (None, Some(_), Host::Unix(_)) => {
                return Err(refuse("ca", "has no use without TLS: leave it out"));
            }
            (Some(RawTls::Required) | None, Some(ca), _) => DatabaseTls::Required { ca: folder.join(ca) },
            (Some(RawTls::Required) | None, None, _) => {
                return Err(refuse(
                    "ca",
                    "is missing: name the file with the certificate of the authority that signed the database's (PEM)",
                ));
            }
        };
        let vouched = self.vouched.map(|text| {
            let hash = text.strip_prefix("sha256:").and_then(|_| text.parse().ok());
            hash.ok_or_else(|| refuse("vouched", "is not \"sha256:…\", as the message prints it that asks for your word"))
        });
        let rows = match (self.records, self.query, vouched.transpose()?) {
            (Some(file), None, None) => RowsBy::Description(folder.join(file)),
            (None, Some(file), vouched) => RowsBy::Query { file: folder.join(file), vouched },
            (Some(_), None, Some(_)) => {
                return Err(refuse("vouched", "goes with `query`: in a description, name the relations that you vouch for"));
            }
            _ => {
                return Err(refuse(
                    "records",
                    "is missing: name the file that describes the rows (or, in its place, `query` with a query that you vouch for)",
                ));
            }
        };
        let answer = self.answer_seconds.unwrap_or(600);
        if !(1..=86_400).contains(&answer) {
            return Err(refuse("answer_seconds", "is not 1 to 86400"));
        }
        Ok(Database {
            server,
            rows,
            password_file: self.password_file.map(|file| folder.join(file)),
            tls,
            answer: Duration::from_secs(answer.into()),
            keep: self.keep_rows,
        })
    }
}
