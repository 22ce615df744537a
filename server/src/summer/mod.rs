//! The summer: the second party of aggregated runs, as a process of its own.
//!
//! It signs the charters of the one server that it knows, offers a fresh key for every round, countersigns one header a round, and once a
//! round gives out the sum of the masks of the sites that the server closed over. It sees who takes part and the seeds of masks; neither a
//! vector, masked or not, nor the model, nor a sum. What it may answer, and what must be durable before, is decided in
//! [`dp_pvi_secagg::summer`]; here are its disk ([`store`], [`vault`]), its keys and its line to the server.
//!
//! ```text
//! dp-pvi-server summer csr --federation lung-fed --name summer -o tls/     # its keys; summer.csr.pem goes to the coordinator
//! dp-pvi-server ca sign summer.csr.pem --ca tls/ -o for-summer/            # at the coordinator: summer.pem and ca.pem go back
//! dp-pvi-server summer check --config summer.toml
//! dp-pvi-server summer run --config summer.toml                            # until the run ends
//! ```
//!
//! `summer.pub.pem`, the public half of its identity, goes to every site, and not by way of the coordinator: a site pins it, and so a
//! coordinator cannot put a summer of its own in the place.
//!
//! The summer calls the server and opens no port. One round costs three exchanges: the key, the header, the closing. A summer that is killed at
//! any moment continues where it was: what it answered is answered again with the same bytes. If its database is lost or restored from
//! a copy the run ends at once, and no round is summed twice.

pub mod config;
mod keys;
mod line;
mod process;
pub mod store;
pub mod vault;

pub use keys::{RequestFiles, make_request};
pub use process::{Event, EventSink, run};

use std::sync::Arc;

use dp_pvi_programs::identity::{Party, PeerName, public_identity_from_pem};
use dp_pvi_programs::problem::Problem;
use dp_pvi_proto::connection::{self, Dial, Failure};
use dp_pvi_protocol::transport::{Rejection, TransportError};
use ed25519_dalek::{SigningKey, VerifyingKey};
use rustls::{ClientConfig, RootCertStore};
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{PrivateKeyDer, ServerName};
use time::OffsetDateTime;
use tonic::transport::Channel;
use tracing::warn;
use x509_parser::prelude::{FromDer, X509Certificate};

use crate::clock::{self, rfc3339};
use crate::error::{Result, ServerError};
use crate::expiry;
use crate::files::secret;
use crate::tls::{certificates, load_identity};
use config::SummerConfig;

/// Keys and certificates of a summer, read and checked.
pub struct Credentials {
    /// Signs charters, keys, headers and sums.
    pub identity: Arc<SigningKey>,
    /// The only server whose charters are signed.
    pub server_identity: VerifyingKey,
    /// When its certificate ends.
    pub expires: OffsetDateTime,
    client: Arc<ClientConfig>,
    server_name: ServerName<'static>,
    server: PeerName,
    host: String,
    port: u16,
}

impl Credentials {
    /// Reads the files of the configuration.
    ///
    /// # Errors
    /// [`ServerError::File`] names the file; [`ServerError::Authentication`] says what is wrong with the certificate.
    pub fn load(config: &SummerConfig) -> Result<Self> {
        let tls = &config.tls;
        let identity = load_identity(&tls.identity)?;
        let text = std::fs::read_to_string(&tls.server_identity).map_err(|e| ServerError::file(&tls.server_identity, e))?;
        let server_identity = public_identity_from_pem(&text).map_err(|e| ServerError::file(&tls.server_identity, e))?;
        let chain = certificates(&tls.cert)?;
        let expires = own_certificate(config, &chain[0])?;
        let remedy = "have the request signed again (`dp-pvi-server ca sign`)";
        if let Some(words) = expiry::ends_soon("the summer's certificate", &tls.cert, expires, remedy, clock::date(clock::now())) {
            warn!("{words}");
        }
        let mut roots = RootCertStore::empty();
        for authority in certificates(&tls.ca)? {
            roots.add(authority).map_err(|e| ServerError::file(&tls.ca, e))?;
        }
        let key = PrivateKeyDer::from_pem_slice(&secret(&tls.key)?).map_err(|e| ServerError::file(&tls.key, e))?;
        let mut client = ClientConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
            .with_protocol_versions(&[&rustls::version::TLS13])
            .map_err(|e| ServerError::Failed(Problem::of(e)))?
            .with_root_certificates(roots)
            .with_client_auth_cert(chain, key)
            .map_err(|e| ServerError::file(&tls.key, format!("does not fit the certificate {}: {e}", tls.cert.display())))?;
        client.alpn_protocols = vec![b"h2".to_vec()];
        Ok(Self {
            identity,
            server_identity,
            expires,
            client: Arc::new(client),
            server_name: ServerName::try_from(config.server_name.clone())
                .map_err(|_| ServerError::Usage("[summer] server_name is no name".into()))?,
            server: PeerName::server(&config.federation).map_err(|e| ServerError::Usage(Problem::of(e)))?,
            host: config.host.clone(),
            port: config.port,
        })
    }

    /// Calls the server; each side has accepted the other's certificate then.
    ///
    /// # Errors
    /// [`ServerError::Unreachable`] or [`ServerError::Authentication`].
    pub async fn connect(&self) -> Result<(Channel, Failure)> {
        let Self { client: tls, server_name, server, host, port, .. } = self;
        let dial = Dial { host, port: *port, tls, server_name, server };
        connection::connect(dial).await.map_err(|error| transport_error(error, &self.address()))
    }

    /// The server's address.
    #[must_use]
    pub fn address(&self) -> String {
        format!("{}:{}", self.host, self.port)
    }

    /// Fingerprint of the identity that sites pin: its 32 bytes in hexadecimal.
    #[must_use]
    pub fn fingerprint(&self) -> String {
        hex::encode(self.identity.verifying_key().to_bytes())
    }
}

/// Name and dates of our own certificate, as the server will check them.
fn own_certificate(config: &SummerConfig, der: &[u8]) -> Result<OffsetDateTime> {
    let file = config.tls.cert.display();
    let name = PeerName::from_certificate(der).map_err(|e| ServerError::file(&config.tls.cert, e))?;
    let expected =
        PeerName::client(&config.federation, Party::Summer, config.name.clone()).map_err(|e| ServerError::Usage(Problem::of(e)))?;
    if name != expected {
        return Err(ServerError::Authentication(format!("the certificate {file} is for {name}, the configuration says {expected}").into()));
    }
    let (_, certificate) = X509Certificate::from_der(der).map_err(|e| ServerError::file(&config.tls.cert, e))?;
    let (from, until) = (certificate.validity().not_before.to_datetime(), certificate.validity().not_after.to_datetime());
    let now = clock::date(clock::now());
    if now > until {
        let message = format!("the certificate {file} expired on {}: have the request signed again (`ca sign`)", rfc3339(until));
        return Err(ServerError::Authentication(message.into()));
    }
    if now < from {
        let message = format!("the certificate {file} is valid from {} only: check this machine's clock", rfc3339(from));
        return Err(ServerError::Authentication(message.into()));
    }
    Ok(until)
}

/// What a failed call means to the process.
fn transport_error(error: TransportError, address: &str) -> ServerError {
    match error {
        TransportError::Unreachable(message) => ServerError::Unreachable(format!("{address}: {message}").into()),
        TransportError::Rejected { kind: Rejection::Authentication, message } => ServerError::Authentication(message.into()),
        TransportError::Rejected { kind: Rejection::Version, message } => ServerError::OtherTask(message.into()),
        TransportError::Rejected { kind: Rejection::Copy, message } => ServerError::Unavailable(message.into()),
        TransportError::Rejected { kind: Rejection::Other, message } => ServerError::Failed(message.into()),
        TransportError::Rejected { message, .. } => ServerError::Unreachable(format!("{address}: {message}").into()),
    }
}
