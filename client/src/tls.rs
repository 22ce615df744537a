//! TLS 1.3 with client certificates: what this client presents, and whom it talks to.
//!
//! Only the configured authority is trusted (never the system's), the server must carry the configured name and the URI
//! `dp-pvi://FEDERATION/server`, and this client's own certificate is checked before it is ever presented, so that a wrong or expired
//! one is named here instead of failing as a closed connection.

use std::sync::Arc;
use std::time::Duration;

use dp_pvi_names::Hash;
use dp_pvi_programs::identity::{PeerName, spki_hash, without_mark};
use dp_pvi_programs::problem::Problem;
use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::server::WebPkiClientVerifier;
use rustls::sign::{CertifiedKey, SingleCertAndKey};
use rustls::{ClientConfig, RootCertStore};
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;
use x509_parser::prelude::{FromDer, X509Certificate};
use zeroize::Zeroize;

use crate::clock;
use crate::config::Config;
use crate::error::{ClientError, Result};
use crate::keys;

/// What a connection needs.
#[derive(Clone)]
pub struct TlsIdentity {
    /// For the connector.
    pub client: Arc<ClientConfig>,
    /// Name that the server's certificate must carry.
    pub server_name: ServerName<'static>,
    /// URI that the server's certificate must carry.
    pub server: PeerName,
    /// SHA-256 of the SubjectPublicKeyInfo of this client's certificate.
    pub key_hash: Hash,
    /// When this client's certificate ends.
    pub expires: OffsetDateTime,
}

/// How long before its expiry a certificate is reported.
const WEEKS_BEFORE: time::Duration = time::Duration::weeks(2);

impl TlsIdentity {
    /// What to tell the operator about the end of this client's certificate; nothing long before it.
    #[must_use]
    pub fn ends_soon(&self, now: OffsetDateTime) -> Option<String> {
        let left = self.expires - now;
        let date = self.expires.format(&Rfc3339).unwrap_or_else(|_| self.expires.unix_timestamp().to_string());
        let remedy = "send the request file that it was made from to the server's operator again (`dp-pvi-server ca sign`)";
        (left <= WEEKS_BEFORE).then(|| format!("the certificate in [tls] cert expires in {} days ({date}): {remedy}", left.whole_days()))
    }
}

/// Reads certificates and key, and checks them against the configuration and the clock.
///
/// # Errors
/// [`ClientError::Config`] names the failing key; [`ClientError::Authentication`] says what is wrong with a certificate.
pub fn load(config: &Config) -> Result<TlsIdentity> {
    let tls = &config.tls;
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let roots = Arc::new(authority(config)?);
    let chain = certificates("tls.cert", &tls.cert, &keys::read_public("tls.cert", &tls.cert)?)?;
    let key = certified_key(config, &chain)?;
    let own = &chain[0];
    let expires = check_own_certificate(config, &provider, &roots, &chain)?;

    let server = PeerName::server(&config.site.federation).map_err(|e| ClientError::config("site.federation", Problem::of(e)))?;
    let server_name = ServerName::try_from(config.site.server_name.clone())
        .map_err(|_| ClientError::config("site.server_name", "is neither a DNS name nor an IP address"))?;
    let mut client = ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&rustls::version::TLS13])
        .map_err(|e| ClientError::Failed(Problem::of(e)))?
        .with_root_certificates(roots)
        .with_client_cert_resolver(Arc::new(SingleCertAndKey::from(key)));
    client.alpn_protocols = vec![b"h2".to_vec()];
    let key_hash = spki_hash(own).map_err(|e| ClientError::Authentication(Problem::of(e)))?;
    let identity = TlsIdentity { client: Arc::new(client), server_name, server, key_hash, expires };
    if let Some(words) = identity.ends_soon(clock::now()) {
        tracing::warn!("{words}");
    }
    Ok(identity)
}

/// The TLS key with its certificate. The bytes of the key file are erased; what remains is inside the cryptographic library.
fn certified_key(config: &Config, chain: &[CertificateDer<'static>]) -> Result<CertifiedKey> {
    let path = &config.tls.key;
    let wrong = |what: &str| ClientError::config("tls.key", format!("{}: {what}", path.display()));
    let pem = keys::read_secret("tls.key", path)?;
    let mut key = PrivateKeyDer::from_pem_slice(without_mark(&pem)).map_err(|_| wrong("no private key in PEM form"))?;
    let signing = rustls::crypto::ring::sign::any_supported_type(&key);
    key.zeroize();
    let certified = CertifiedKey::new(chain.to_vec(), signing.map_err(|_| wrong("a kind of key that is not supported"))?);
    certified.keys_match().map_err(|_| wrong("is not the key of the certificate in tls.cert"))?;
    Ok(certified)
}

fn authority(config: &Config) -> Result<RootCertStore> {
    let path = &config.tls.ca;
    let mut roots = RootCertStore::empty();
    for certificate in certificates("tls.ca", path, &keys::read_public("tls.ca", path)?)? {
        roots.add(certificate).map_err(|e| ClientError::config("tls.ca", format!("{}: {e}", path.display())))?;
    }
    Ok(roots)
}

fn certificates(field: &str, path: &std::path::Path, text: &str) -> Result<Vec<CertificateDer<'static>>> {
    let all: std::result::Result<Vec<_>, _> = CertificateDer::pem_slice_iter(without_mark(text.as_bytes())).collect();
    match all {
        Ok(all) if !all.is_empty() => Ok(all),
        _ => Err(ClientError::config(field, format!("{}: no certificate in PEM form", path.display()))),
    }
}

/// Name, dates and signature of our own certificate, as the server will check them.
fn check_own_certificate(
    config: &Config,
    provider: &Arc<CryptoProvider>,
    roots: &Arc<RootCertStore>,
    chain: &[CertificateDer<'static>],
) -> Result<OffsetDateTime> {
    let file = config.tls.cert.display();
    let (_, parsed) =
        X509Certificate::from_der(&chain[0]).map_err(|_| ClientError::config("tls.cert", format!("{file}: cannot be read")))?;
    let validity = parsed.validity();
    let (from, until) = (validity.not_before.to_datetime(), validity.not_after.to_datetime());
    let now = clock::now();
    let date = |at: OffsetDateTime| at.format(&Rfc3339).unwrap_or_else(|_| at.unix_timestamp().to_string());
    if now > until {
        let message = format!(
            "the certificate {file} expired on {}: let the coordinator sign this site's old request again (`dp-pvi-server ca sign`), or check this machine's clock",
            date(until)
        );
        return Err(ClientError::Authentication(message.into()));
    }
    if now < from {
        return Err(ClientError::Authentication(
            format!("the certificate {file} is valid from {} only: check this machine's clock", date(from)).into(),
        ));
    }
    let name = PeerName::from_certificate(&chain[0]).map_err(|e| ClientError::Authentication(Problem::said(format!("{file}: {e}"), e)))?;
    let expected = PeerName::client(&config.site.federation, config.site.role, config.site.name.clone())
        .map_err(|e| ClientError::config("site.federation", Problem::of(e)))?;
    if name != expected {
        let message = format!("the certificate {file} is for {name}, the configuration ([site] federation, role, name) says {expected}");
        return Err(ClientError::Authentication(message.into()));
    }
    let verifier = WebPkiClientVerifier::builder_with_provider(Arc::clone(roots), Arc::clone(provider))
        .build()
        .map_err(|e| ClientError::config("tls.ca", Problem::of(e)))?;
    let seconds = u64::try_from(now.unix_timestamp()).unwrap_or(0);
    verifier.verify_client_cert(&chain[0], &chain[1..], UnixTime::since_unix_epoch(Duration::from_secs(seconds))).map_err(|e| {
        ClientError::Authentication(Problem::said(
            format!("the certificate {file} was not issued by the authority in tls.ca for this use ({e})"),
            e,
        ))
    })?;
    Ok(until)
}
