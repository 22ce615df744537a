//! TLS 1.3 with client certificates, and their revocation.
//!
//! The framework's own TLS support cannot check revocation lists, so the server terminates TLS itself. A connection is accepted
//! when its certificate was issued by the federation's authority, is valid now, and is not on a revocation list that is itself
//! still valid. Sessions are never resumed: a resumed session would not look at the revocation list again.

use std::net::IpAddr;
use std::path::Path;
use std::sync::{Arc, RwLock};
use std::time::Duration;

use dp_pvi_names::Hash;
use dp_pvi_programs::identity::{PeerName, identity_from_pem, spki_hash, without_mark};
use dp_pvi_programs::problem::Problem;
use dp_pvi_proto::connection::REVOCATION_LIST_EXPIRED;
use dp_pvi_proto::names::acceptable;
use ed25519_dalek::SigningKey;
use rustls::client::danger::HandshakeSignatureValid;
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::server::{NoServerSessionStorage, WebPkiClientVerifier};
use rustls::{DigitallySignedStruct, DistinguishedName, RootCertStore, ServerConfig, SignatureScheme};
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, CertificateRevocationListDer, PrivateKeyDer, ServerName, UnixTime};
use time::OffsetDateTime;
use tracing::{error, info};
use x509_parser::prelude::{CertificateRevocationList, FromDer, GeneralName, X509Certificate};

use crate::ca::Enrolled;
use crate::clock;
use crate::config::TlsFiles;
use crate::error::{Result, ServerError};
use crate::expiry::{self, Validity};
use crate::files::secret;

/// Who is at the other end of a connection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PeerIdentity {
    /// Name in its certificate.
    pub name: PeerName,
    /// SHA-256 of its SubjectPublicKeyInfo.
    pub tls_key: Hash,
}

impl PeerIdentity {
    /// Reads the certificate that the handshake verified.
    ///
    /// # Errors
    /// The certificate carries no name of a federation.
    pub(crate) fn read(chain: Option<&[CertificateDer<'_>]>) -> std::result::Result<Self, dp_pvi_programs::identity::IdentityError> {
        let certificate = chain.and_then(<[_]>::first).ok_or(dp_pvi_programs::identity::IdentityError::NoName)?;
        Ok(Self { name: PeerName::from_certificate(certificate)?, tls_key: spki_hash(certificate)? })
    }
}

/// What the files of `[tls]` say at one point in time.
#[derive(Debug, Clone)]
pub struct Credentials {
    /// For new connections.
    pub server: Arc<ServerConfig>,
    /// Enrolled names.
    pub enrolled: Enrolled,
    /// When the first of server certificate, authority and revocation list expires.
    pub expires: Expiry,
}

/// When files stop being valid.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Expiry {
    /// The server's certificate.
    pub certificate: OffsetDateTime,
    /// The revocation list: afterwards no client is accepted.
    pub revocation_list: OffsetDateTime,
    /// The authority's own certificate.
    pub authority: OffsetDateTime,
    /// When the server's certificate begins to be valid.
    pub from: OffsetDateTime,
}

impl Credentials {
    /// Reads and checks all files.
    ///
    /// # Errors
    /// [`ServerError::File`] names the file.
    pub fn load(files: &TlsFiles, federation: &str) -> Result<Self> {
        let authorities = certificates(&files.ca)?;
        let mut authority = end_of_validity(&authorities[0]).map_err(|message| ServerError::file(&files.ca, message))?;
        for certificate in &authorities[1..] {
            authority = authority.max(end_of_validity(certificate).map_err(|message| ServerError::file(&files.ca, message))?);
        }
        let mut roots = RootCertStore::empty();
        for authority in authorities {
            roots.add(authority).map_err(|e| ServerError::file(&files.ca, e))?;
        }
        let (crls, revocation_list) = revocation_lists(&files.crl)?;
        let (provider, roots) = (Arc::new(rustls::crypto::ring::default_provider()), Arc::new(roots));
        let verifier = WebPkiClientVerifier::builder_with_provider(roots.clone(), provider.clone())
            .with_crls(crls)
            .enforce_revocation_expiration()
            .build()
            .map(|inner| Arc::new(ClientVerifier(inner)))
            .map_err(|e| ServerError::file(&files.crl, e))?;

        let chain = certificates(&files.cert)?;
        let (from, certificate) =
            check_server_certificate(&chain[0], federation).map_err(|message| ServerError::file(&files.cert, message))?;
        let now = UnixTime::since_unix_epoch(Duration::from_millis(clock::now().as_millis()));
        server_names(&chain[0])
            .and_then(|names| acceptable(&chain, &names, roots, provider.clone(), now))
            .map_err(|message| ServerError::file(&files.cert, message))?;
        let key = PrivateKeyDer::from_pem_slice(without_mark(&secret(&files.key)?)).map_err(|e| ServerError::file(&files.key, e))?;
        let mut server = ServerConfig::builder_with_provider(provider)
            .with_protocol_versions(&[&rustls::version::TLS13])
            .map_err(|e| ServerError::Failed(Problem::of(e)))?
            .with_client_cert_verifier(verifier)
            .with_single_cert(chain, key)
            .map_err(|e| ServerError::file(&files.key, format!("does not fit the certificate {}: {e}", files.cert.display())))?;
        server.alpn_protocols = vec![b"h2".to_vec()];
        server.session_storage = Arc::new(NoServerSessionStorage {});
        server.send_tls13_tickets = 0;

        let enrolled = Enrolled::load(&files.enrolled)?;
        if enrolled.federation != federation {
            let message = format!("is of federation {:?}, the configuration says {federation:?}", enrolled.federation);
            return Err(ServerError::file(&files.enrolled, message));
        }
        Ok(Self { server: Arc::new(server), enrolled, expires: Expiry { certificate, revocation_list, authority, from } })
    }
}

/// Checks clients' certificates as its inner verifier does, but tells a client that it is the revocation list that has expired: TLS itself
/// would call that an unknown authority.
#[derive(Debug)]
struct ClientVerifier(Arc<dyn ClientCertVerifier>);

impl ClientCertVerifier for ClientVerifier {
    fn offer_client_auth(&self) -> bool {
        self.0.offer_client_auth()
    }

    fn client_auth_mandatory(&self) -> bool {
        self.0.client_auth_mandatory()
    }

    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        self.0.root_hint_subjects()
    }

    fn verify_client_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> std::result::Result<ClientCertVerified, rustls::Error> {
        use rustls::CertificateError::{ExpiredRevocationList, ExpiredRevocationListContext};
        self.0.verify_client_cert(end_entity, intermediates, now).map_err(|error| match error {
            rustls::Error::InvalidCertificate(ExpiredRevocationList | ExpiredRevocationListContext { .. }) => {
                error!("the revocation list has expired: nobody is let in until `dp-pvi-server ca renew` has written a new one");
                rustls::Error::InvalidCertificate(REVOCATION_LIST_EXPIRED)
            }
            other => other,
        })
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> std::result::Result<HandshakeSignatureValid, rustls::Error> {
        self.0.verify_tls12_signature(message, certificate, signature)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> std::result::Result<HandshakeSignatureValid, rustls::Error> {
        self.0.verify_tls13_signature(message, certificate, signature)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.supported_verify_schemes()
    }
}

/// Hash of the authority's certificate, which charters name.
///
/// # Errors
/// [`ServerError::File`].
pub(crate) fn authority_hash(ca: &Path) -> Result<Hash> {
    Ok(Hash::of("dp-pvi certificate authority v1", &[&certificates(ca)?[0]]))
}

/// An identity key of this party, in one place of memory: a value that is handed on would leave a copy of its seed in every frame.
///
/// # Errors
/// [`ServerError::File`].
pub fn load_identity(path: &Path) -> Result<Arc<SigningKey>> {
    let text = secret(path)?;
    let text = std::str::from_utf8(&text).map_err(|_| ServerError::file(path, "not a PEM file"))?;
    identity_from_pem(text).map(Arc::new).map_err(|e| ServerError::file(path, e))
}

/// Credentials that follow their files.
#[derive(Debug)]
pub struct LiveCredentials {
    files: TlsFiles,
    federation: String,
    current: RwLock<Arc<Credentials>>,
    stamp: RwLock<Stamp>,
}

type Stamp = Vec<Option<(std::time::SystemTime, u64)>>;

impl LiveCredentials {
    /// Loads the files.
    ///
    /// # Errors
    /// See [`Credentials::load`].
    pub fn load(files: &TlsFiles, federation: &str) -> Result<Self> {
        let stamp = stamp(files);
        let current = Arc::new(Credentials::load(files, federation)?);
        Ok(Self { files: files.clone(), federation: federation.to_owned(), current: RwLock::new(current), stamp: RwLock::new(stamp) })
    }

    /// What of it ends when.
    pub(crate) fn validities(&self) -> Vec<Validity> {
        expiry::of(&self.current(), &self.files)
    }

    /// What is in force now.
    #[must_use]
    pub fn current(&self) -> Arc<Credentials> {
        self.current.read().unwrap_or_else(std::sync::PoisonError::into_inner).clone()
    }

    /// Looks whether a file changed and loads all of them if so. Files that are wrong change nothing: the old ones stay in force
    /// and the log says so. Returns the new credentials.
    pub fn refresh(&self) -> Option<Arc<Credentials>> {
        let stamp = stamp(&self.files);
        if *self.stamp.read().unwrap_or_else(std::sync::PoisonError::into_inner) == stamp {
            return None;
        }
        *self.stamp.write().unwrap_or_else(std::sync::PoisonError::into_inner) = stamp;
        match Credentials::load(&self.files, &self.federation) {
            Ok(credentials) => {
                let credentials = Arc::new(credentials);
                *self.current.write().unwrap_or_else(std::sync::PoisonError::into_inner) = credentials.clone();
                info!(clients = credentials.enrolled.clients.len(), "certificates and enrolled clients were read again");
                Some(credentials)
            }
            Err(problem) => {
                error!(%problem, "changed certificate files cannot be used; the earlier ones stay in force");
                None
            }
        }
    }
}

fn stamp(files: &TlsFiles) -> Stamp {
    let of = |path: &Path| std::fs::metadata(path).ok().and_then(|meta| Some((meta.modified().ok()?, meta.len())));
    [&files.ca, &files.cert, &files.key, &files.crl, &files.enrolled].into_iter().map(|path| of(path)).collect()
}

pub(crate) fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>> {
    let bytes = std::fs::read(path).map_err(|e| ServerError::file(path, format!("{e}; [tls] in the configuration names it")))?;
    match CertificateDer::pem_slice_iter(without_mark(&bytes)).collect::<std::result::Result<Vec<_>, _>>() {
        Ok(list) if list.is_empty() => Err(ServerError::file(path, "there is no certificate in this file")),
        Ok(list) => Ok(list),
        Err(e) => Err(ServerError::file(path, e)),
    }
}

fn revocation_lists(path: &Path) -> Result<(Vec<CertificateRevocationListDer<'static>>, OffsetDateTime)> {
    let lists: Vec<_> = CertificateRevocationListDer::pem_file_iter(path)
        .and_then(Iterator::collect::<std::result::Result<Vec<_>, _>>)
        .map_err(|e| ServerError::file(path, format!("{e}; `dp-pvi-server ca renew` writes a revocation list")))?;
    let mut next: Option<OffsetDateTime> = None;
    for list in &lists {
        let (_, parsed) = CertificateRevocationList::from_der(list).map_err(|e| ServerError::file(path, e))?;
        let expires = parsed.next_update().ok_or_else(|| ServerError::file(path, "a revocation list must say when the next one comes"))?;
        let expires = expires.to_datetime();
        next = Some(next.map_or(expires, |earlier| earlier.min(expires)));
    }
    match next {
        Some(next) => Ok((lists, next)),
        None => Err(ServerError::file(path, "there is no revocation list in this file; `dp-pvi-server ca renew` writes one")),
    }
}

fn check_server_certificate(der: &[u8], federation: &str) -> std::result::Result<(OffsetDateTime, OffsetDateTime), String> {
    let name = PeerName::from_certificate(der).map_err(|e| e.to_string())?;
    let expected = PeerName::server(federation).map_err(|e| e.to_string())?;
    if name != expected {
        return Err(format!("is for {name}, the server needs {expected}"));
    }
    validity(der)
}

/// Names and addresses by which a site may call the owner of a certificate; of a star one name that it stands for.
fn server_names(der: &[u8]) -> std::result::Result<Vec<ServerName<'static>>, String> {
    let (_, certificate) = X509Certificate::from_der(der).map_err(|e| e.to_string())?;
    let names = certificate.subject_alternative_name().map_err(|e| e.to_string())?;
    let address = |bytes: &[u8]| -> Option<IpAddr> {
        let four = <[u8; 4]>::try_from(bytes).map(IpAddr::from);
        four.or_else(|_| <[u8; 16]>::try_from(bytes).map(IpAddr::from)).ok()
    };
    let name = |name: &GeneralName<'_>| match name {
        GeneralName::DNSName(name) => ServerName::try_from(name.replacen('*', "a", 1)).ok(),
        GeneralName::IPAddress(bytes) => address(bytes).map(ServerName::from),
        _ => None,
    };
    Ok(names.map(|names| names.value.general_names.iter().filter_map(name).collect()).unwrap_or_default())
}

fn end_of_validity(der: &[u8]) -> std::result::Result<OffsetDateTime, String> {
    validity(der).map(|(_, until)| until)
}

fn validity(der: &[u8]) -> std::result::Result<(OffsetDateTime, OffsetDateTime), String> {
    let (_, certificate) = X509Certificate::from_der(der).map_err(|e| e.to_string())?;
    let validity = certificate.validity();
    Ok((validity.not_before.to_datetime(), validity.not_after.to_datetime()))
}

#[cfg(test)]
mod tests;
