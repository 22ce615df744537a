//! The connection: TLS by the site's own authority, the password from a file or from the environment, one read-only transaction, and a limit for the
//! time and the length of every answer.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use dp_pvi_programs::problem::Problem;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use rustls::{ClientConfig, RootCertStore};
use tokio::net::{TcpStream, UnixStream};
use tokio::task::JoinHandle;
use tokio::time::timeout;
use tokio_postgres::config::{Host, SslMode};
use tokio_postgres::error::SqlState;
use tokio_postgres::{Client, Error, NoTls, SimpleQueryMessage, SimpleQueryRow, Statement};
use tokio_postgres_rustls::MakeRustlsConnect;
use tokio_stream::StreamExt;
use zeroize::Zeroizing;

use super::frames::{Encrypted, Frames};
use crate::config::{Database, DatabaseTls};
use crate::error::{ClientError, Result};
use crate::keys;

/// How long the server may take at most until it takes questions.
const PATIENCE: Duration = Duration::from_secs(20);
/// Rows of one answer.
pub(super) const BATCH: usize = 2_048;
/// What a row and a cell take beside their text.
const CELL: usize = 24;
/// Bytes of the rows of one answer.
const LONGEST_ANSWER: usize = 1 << 28;
/// The variable that PostgreSQL's own programs read.
const PASSWORD: &str = "PGPASSWORD";

/// One state of the database, until it is dropped.
pub(super) struct Connection {
    client: Client,
    database: Database,
    /// Why the line ended, if it did.
    ended: Ended,
    /// Moves the bytes.
    driver: JoinHandle<()>,
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.driver.abort();
    }
}

/// Why the line ended, as the part of the program knows that moves the bytes.
type Ended = Arc<Mutex<Option<Error>>>;

/// Moves the bytes until the line ends.
fn moving(connection: impl Future<Output = std::result::Result<(), Error>> + Send + 'static, ended: &Ended) -> JoinHandle<()> {
    let ended = Arc::clone(ended);
    tokio::spawn(async move {
        if let (Err(error), Ok(mut ended)) = (connection.await, ended.lock()) {
            *ended = Some(error);
        }
    })
}

/// How questions of a description are planned, with PostgreSQL's own costs.
const PLANNING: [(&str, &str); 17] = [
    ("constraint_exclusion", "off"),
    ("enable_partition_pruning", "off"),
    ("enable_indexscan", "off"),
    ("enable_indexonlyscan", "off"),
    ("enable_bitmapscan", "off"),
    ("enable_seqscan", "on"),
    ("enable_sort", "on"),
    ("enable_hashjoin", "on"),
    ("enable_mergejoin", "on"),
    ("enable_nestloop", "on"),
    ("enable_material", "on"),
    ("enable_hashagg", "on"),
    ("seq_page_cost", "1"),
    ("random_page_cost", "4"),
    ("cpu_tuple_cost", "0.01"),
    ("cpu_index_tuple_cost", "0.005"),
    ("cpu_operator_cost", "0.0025"),
];

/// What a transaction may do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Access {
    /// Read tables that a description names: every name is that of `pg_catalog` or has its schema.
    Described {
        /// A table whose rows a policy would hide ends the reading. Relations that the operator vouches for may have one.
        row_security: bool,
    },
    /// Read what a query of the operator's says.
    Query,
    /// Make temporary views, too. It ends without a trace.
    Trial,
}

impl Connection {
    /// Connects and begins the transaction.
    ///
    /// # Errors
    /// See [`super::fetch`].
    pub(super) async fn open(database: &Database, access: Access) -> Result<Self> {
        let ended = Ended::default();
        let connecting = Self::connect(database, &ended);
        let patience = PATIENCE.min(database.answer);
        let silent = |_| silent(database, patience, "has not let this program in");
        let (client, driver) = timeout(patience, connecting).await.map_err(silent)??;
        let connection = Self { client, database: database.clone(), ended, driver };
        // One text for one value, whatever the server's or the role's defaults are.
        let mode = if access == Access::Trial { "READ WRITE" } else { "READ ONLY" };
        let mut settings = format!(
            "BEGIN ISOLATION LEVEL REPEATABLE READ {mode}; SET LOCAL DateStyle = 'ISO, YMD'; SET LOCAL extra_float_digits = 1; \
             SET LOCAL TimeZone = 'UTC'; SET LOCAL standard_conforming_strings = on; \
             SET LOCAL idle_in_transaction_session_timeout = 0; SET LOCAL lock_timeout = 0; SET LOCAL statement_timeout = {}",
            database.answer.as_millis()
        );
        if let Access::Described { row_security } = access {
            // Where the planner proves that a part of a table or of an index holds no row of the answer, it calls functions of the site's: those of the table's
            // conditions and of its indexes. So it does without. It would do with them if what is left cost as much, so the server's and the role's costs do not count.
            settings.push_str("; SET LOCAL search_path = pg_catalog");
            PLANNING.iter().for_each(|(what, value)| settings.push_str(&format!("; SET LOCAL {what} = {value}")));
            if row_security {
                settings.push_str("; SET LOCAL row_security = off");
            }
        }
        connection.execute(&settings).await?;
        Ok(connection)
    }

    async fn connect(database: &Database, ended: &Ended) -> Result<(Client, JoinHandle<()>)> {
        let mut config = database.server.clone();
        if let Some(password) = password(database)? {
            config.password(password.as_slice());
        }
        config.application_name("dp-pvi-client");
        let failed = |e: Error| explain(database, &e, Words::Quoted);
        match &database.tls {
            DatabaseTls::Required { ca } => {
                let roots = roots(&keys::read_public("database.ca", ca)?)?;
                let provider = Arc::new(rustls::crypto::ring::default_provider());
                let tls = ClientConfig::builder_with_provider(provider)
                    .with_safe_default_protocol_versions()
                    .map_err(|e| ClientError::Failed(Problem::of(e)))?
                    .with_root_certificates(roots)
                    .with_no_client_auth();
                config.ssl_mode(SslMode::Require);
                let (client, connection) = config.connect(Encrypted(MakeRustlsConnect::new(tls))).await.map_err(failed)?;
                Ok((client, moving(connection, ended)))
            }
            DatabaseTls::Off => {
                config.ssl_mode(SslMode::Disable);
                let port = config.get_ports().first().copied().unwrap_or(5432);
                let unreachable = |e: std::io::Error| {
                    let place = database.place();
                    ClientError::Unavailable(
                        format!("the database at {place} cannot be reached ({e}): nothing was sent and nothing charged; start again")
                            .into(),
                    )
                };
                match config.get_hosts() {
                    [Host::Unix(folder)] => {
                        let stream = UnixStream::connect(folder.join(format!(".s.PGSQL.{port}"))).await.map_err(unreachable)?;
                        // Only the owner of the folder can listen there, so a password is not overheard.
                        let (client, connection) = config.connect_raw(Frames::new(stream, true), NoTls).await.map_err(failed)?;
                        Ok((client, moving(connection, ended)))
                    }
                    [Host::Tcp(host)] => {
                        let stream = TcpStream::connect((host.as_str(), port)).await.map_err(unreachable)?;
                        stream.set_nodelay(true).map_err(unreachable)?;
                        let (client, connection) = config.connect_raw(Frames::new(stream, false), NoTls).await.map_err(failed)?;
                        Ok((client, moving(connection, ended)))
                    }
                    _ => Err(ClientError::config("database.url", "names more than one host")),
                }
            }
        }
    }

    /// Runs a statement that gives no rows.
    ///
    /// # Errors
    /// See [`super::fetch`].
    pub(super) async fn execute(&self, sql: &str) -> Result<()> {
        let answer = timeout(self.database.answer, self.client.batch_execute(sql)).await;
        answer.map_err(|_| self.silent())?.map_err(|e| self.explained(&e, Words::Quoted))
    }

    /// Runs a statement that gives at most [`BATCH`] rows.
    ///
    /// # Errors
    /// See [`super::fetch`].
    pub(super) async fn ask(&self, sql: &str) -> Result<Vec<SimpleQueryRow>> {
        self.measured(sql).await.map(|(rows, _)| rows)
    }

    /// The same with the bytes that the rows take.
    ///
    /// # Errors
    /// See [`super::fetch`].
    pub(super) async fn measured(&self, sql: &str) -> Result<(Vec<SimpleQueryRow>, usize)> {
        timeout(self.database.answer, self.answer(sql)).await.map_err(|_| self.silent())?
    }

    /// Keeps tables as they are until the transaction ends.
    ///
    /// # Errors
    /// See [`super::fetch`].
    pub(super) async fn hold(&self, locks: &str) -> Result<()> {
        match timeout(self.database.answer, self.client.batch_execute(locks)).await.map_err(|_| self.silent())? {
            Err(error) if error.code() == Some(&SqlState::UNDEFINED_TABLE) => {
                let words = error.as_db_error().map_or_else(String::new, |said| shortened(said.message()));
                let file = self.database.rows.file().display();
                Err(ClientError::Data(
                    format!("{file}: the database has no such table ({words}); names are taken as they are written, capitals too").into(),
                ))
            }
            answer => answer.map_err(|e| self.explained(&e, Words::Quoted)),
        }
    }

    async fn answer(&self, sql: &str) -> Result<(Vec<SimpleQueryRow>, usize)> {
        let stream = self.client.simple_query_raw(sql).await.map_err(|e| self.failed(&e))?;
        tokio::pin!(stream);
        let (mut rows, mut bytes) = (Vec::new(), 0);
        while let Some(message) = stream.next().await {
            let SimpleQueryMessage::Row(row) = message.map_err(|e| self.failed(&e))? else { continue };
            for place in 0..row.len() {
                bytes += CELL + row.try_get(place).map_err(|e| self.failed(&e))?.map_or(0, str::len);
            }
            bytes += CELL;
            if rows.len() == BATCH || bytes > LONGEST_ANSWER {
                return Err(ClientError::Unavailable(
                    format!(
                        "the database at {} sends more than was asked for, or more than {LONGEST_ANSWER} bytes in {BATCH} rows: nothing was sent and nothing charged",
                        self.database.place()
                    )
                    .into(),
                ));
            }
            rows.push(row);
        }
        Ok((rows, bytes))
    }

    /// Prepares a statement, so that its columns are known.
    ///
    /// # Errors
    /// See [`super::fetch`].
    pub(super) async fn prepare(&self, sql: &str) -> Result<Statement> {
        let answer = timeout(self.database.answer, self.client.prepare(sql)).await;
        answer.map_err(|_| self.silent())?.map_err(|e| self.explained(&e, Words::Quoted))
    }

    /// What went wrong, in words for the operator.
    pub(super) fn failed(&self, error: &Error) -> ClientError {
        self.explained(error, Words::Hidden)
    }

    fn explained(&self, error: &Error, words: Words) -> ClientError {
        let ended = self.ended.lock().ok();
        let why = ended.as_ref().and_then(|ended| ended.as_ref()).filter(|_| error.is_closed());
        explain(&self.database, why.unwrap_or(error), words)
    }

    fn silent(&self) -> ClientError {
        silent(&self.database, self.database.answer, "has not answered a question (see [database] answer_seconds)")
    }
}

fn silent(database: &Database, waited: Duration, what: &str) -> ClientError {
    let (place, seconds) = (database.place(), waited.as_secs());
    ClientError::Unavailable(
        format!("the database at {place} {what} within {seconds} seconds: nothing was sent and nothing charged; start again").into(),
    )
}

fn password(database: &Database) -> Result<Option<Zeroizing<Vec<u8>>>> {
    let Some(file) = &database.password_file else {
        return Ok(std::env::var_os(PASSWORD).map(|value| Zeroizing::new(value.into_encoded_bytes())));
    };
    let mut text = keys::read_secret("database.password_file", file)?;
    let length = text.iter().rposition(|byte| !matches!(byte, b'\n' | b'\r')).map_or(0, |last| last + 1);
    text.truncate(length);
    Ok(Some(text))
}

fn roots(pem: &str) -> Result<RootCertStore> {
    let none = || {
        ClientError::config(
            "database.ca",
            "holds no certificate: name the file of the authority that signed the database's certificate (PEM)",
        )
    };
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_slice_iter(pem.as_bytes()) {
        roots.add(certificate.map_err(|_| none())?).map_err(|_| none())?;
    }
    if roots.is_empty() { Err(none()) } else { Ok(roots) }
}

/// Whether the database's own words are shown: not where it may have looked at a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Words {
    Quoted,
    Hidden,
}

/// Words of the database, of a length that a person reads.
fn shortened(words: &str) -> String {
    words.chars().take(300).collect()
}

/// The operator's message about an error. An error that may quote a cell is reported by its kind only.
fn explain(database: &Database, error: &Error, words: Words) -> ClientError {
    let place = database.place();
    let Some(said) = error.as_db_error() else {
        let why = std::error::Error::source(error).map_or_else(|| error.to_string(), ToString::to_string);
        return ClientError::Unavailable(
            format!("the database at {place} cannot be reached, or the connection was lost ({why}): nothing was sent and nothing charged; start again").into(),
        );
    };
    let code = said.code().code();
    let quoted = shortened(said.message());
    let quoted = if words == Words::Quoted { quoted.as_str() } else { code };
    let data = |words: String| ClientError::Data(words.into());
    match code {
        "28P01" | "28000" => data(format!(
            "the database at {place} refuses the login ({}): check [database] url, and the password in password_file or in {PASSWORD}",
            quoted
        )),
        "42501" => data(format!(
            "the database user may not read what is asked for ({}): GRANT SELECT on it, to this user alone",
            quoted
        )),
        "3D000" => data(format!("the database at {place} does not exist ({}): check [database] url", quoted)),
        "57014" => ClientError::Unavailable(
            format!(
                "the database at {place} stopped a question that took longer than [database] answer_seconds: nothing was sent and nothing charged; allow more, or \
                 make an index on the persons' keys"
            )
            .into(),
        ),
        _ if ["25P03", "40001", "40P01", "55P03"].contains(&code) || code.starts_with("57") || code.starts_with("08") || code.starts_with("53") => ClientError::Unavailable(
            format!(
                "the database at {place} ended the connection or has no room ({}): nothing was sent and nothing charged; start again",
                quoted
            )
            .into(),
        ),
        // Syntax and names: words about the query.
        _ if code.starts_with("42") || code.starts_with("0A") || code.starts_with("25") => {
            data(format!("the database cannot answer ({}): correct {}", quoted, database.rows.file().display()))
        }
        _ => data(format!(
            "the database failed (error {code}); its words may quote a record and are not shown: run {} there by hand",
            database.rows.file().display()
        )),
    }
}
