//! The connection: TLS by the site's own authority, the password from a file or from the environment, one read-only transaction.

use std::sync::Arc;
use std::time::Duration;

use dp_pvi_proto::problem::Problem;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use rustls::{ClientConfig, RootCertStore};
use tokio::task::JoinHandle;
use tokio_postgres::config::SslMode;
use tokio_postgres::{Client, Error, NoTls};
use tokio_postgres_rustls::MakeRustlsConnect;
use zeroize::Zeroizing;

use crate::config::{Database, DatabaseTls};
use crate::error::{ClientError, Result};
use crate::keys;

/// How long the server may take to answer the first time.
const PATIENCE: Duration = Duration::from_secs(20);
/// The variable that PostgreSQL's own programs read.
const PASSWORD: &str = "PGPASSWORD";

/// One state of the database, until it is dropped.
pub(super) struct Connection {
    pub(super) client: Client,
    /// Moves the bytes.
    driver: JoinHandle<()>,
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.driver.abort();
    }
}

/// Connects and begins the transaction.
///
/// # Errors
/// See [`super::fetch`].
pub(super) async fn open(database: &Database) -> Result<Connection> {
    let mut config = database.server.clone();
    if let Some(password) = password(database)? {
        config.password(password.as_slice());
    }
    config.application_name("dp-pvi-client").connect_timeout(PATIENCE);
    let failed = |e: Error| explain(database, &e);
    let (client, driver) = match &database.tls {
        DatabaseTls::Required { ca } => {
            let roots = roots(&keys::read_public("database.ca", ca)?)?;
            let provider = Arc::new(rustls::crypto::ring::default_provider());
            let tls = ClientConfig::builder_with_provider(provider)
                .with_safe_default_protocol_versions()
                .map_err(|e| ClientError::Failed(Problem::of(e)))?
                .with_root_certificates(roots)
                .with_no_client_auth();
            config.ssl_mode(SslMode::Require);
            let (client, connection) = config.connect(MakeRustlsConnect::new(tls)).await.map_err(failed)?;
            (client, tokio::spawn(async move { drop(connection.await) }))
        }
        DatabaseTls::Off => {
            config.ssl_mode(SslMode::Disable);
            let (client, connection) = config.connect(NoTls).await.map_err(failed)?;
            (client, tokio::spawn(async move { drop(connection.await) }))
        }
    };
    let connection = Connection { client, driver };
    // One text for one value, whatever the server's or the role's defaults are.
    let settings = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY; SET LOCAL DateStyle = 'ISO, YMD'; SET LOCAL extra_float_digits = 1; \
                    SET LOCAL TimeZone = 'UTC'";
    connection.client.batch_execute(settings).await.map_err(failed)?;
    Ok(connection)
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

/// What went wrong, in words for the operator. What may quote a cell is told by its kind.
pub(super) fn explain(database: &Database, error: &Error) -> ClientError {
    let place = database.place();
    let Some(said) = error.as_db_error() else {
        let why = std::error::Error::source(error).map_or_else(|| error.to_string(), ToString::to_string);
        return ClientError::Unavailable(
            format!("the database at {place} cannot be reached, or the connection was lost ({why}): nothing was sent and nothing charged; start again").into(),
        );
    };
    let code = said.code().code();
    let data = |words: String| ClientError::Data(words.into());
    match code {
        "28P01" | "28000" => data(format!(
            "the database at {place} refuses the login ({}): check [database] url, and the password in password_file or in {PASSWORD}",
            said.message()
        )),
        "42501" => data(format!(
            "the database user may not read what the query asks for ({}): GRANT SELECT on it, to this user alone",
            said.message()
        )),
        "3D000" => data(format!("the database at {place} does not exist ({}): check [database] url", said.message())),
        // Syntax and names: words about the query.
        _ if code.starts_with("42") || code.starts_with("0A") || code.starts_with("25") => {
            data(format!("the query cannot run ({}): correct {}", said.message(), database.query.display()))
        }
        _ if code.starts_with("57") || code.starts_with("08") || code.starts_with("53") => ClientError::Unavailable(
            format!(
                "the database at {place} ended the connection or has no room ({}): nothing was sent and nothing charged; start again",
                said.message()
            )
            .into(),
        ),
        _ => data(format!(
            "the query failed in the database (error {code}); the database's words may quote a record and are not shown: run {} there by hand",
            database.query.display()
        )),
    }
}
