//! The summer's own keys, made here; only the request and the public identity leave.

use std::path::{Path, PathBuf};

use dp_pvi_names::ClientId;
use dp_pvi_programs::identity::{
    Enrolment, IdentityError, Party, PeerName, Together, generate_identity, identity_to_pem, public_identity_to_pem,
};
use dp_pvi_programs::problem::Problem;
use dp_pvi_proto::names::check_client;
use rcgen::{CertificateParams, DistinguishedName, DnType, KeyPair, SanType};
use zeroize::Zeroizing;

use crate::error::{Result, ServerError};
use crate::files::create_private_directory;

/// What [`make_request`] wrote.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RequestFiles {
    /// Goes to the coordinator, who signs it.
    pub request: PathBuf,
    /// Goes to every site, which pins it.
    pub public_identity: PathBuf,
    /// TLS key; stays here.
    pub tls_key: PathBuf,
    /// Identity key; stays here.
    pub identity: PathBuf,
    /// The public identity's 32 bytes in hexadecimal, to compare by telephone.
    pub fingerprint: String,
}

/// Makes the two keys of a summer, the file by which it asks to be enrolled, and the file that sites pin. Nothing is overwritten.
///
/// # Errors
/// A name that breaks the rules; a file exists or cannot be written.
pub fn make_request(federation: &str, name: ClientId, folder: &Path) -> Result<RequestFiles> {
    let uri = PeerName::client(federation, Party::Summer, name.clone()).map_err(|e| ServerError::Usage(Problem::of(e)))?;
    check_client(&name, Party::Summer).map_err(|problem| ServerError::Usage(problem.into()))?;
    let identity = generate_identity().map_err(|e| ServerError::Failed(Problem::of(e)))?;
    let files = RequestFiles {
        request: folder.join(format!("{name}.csr.pem")),
        public_identity: folder.join(format!("{name}.pub.pem")),
        tls_key: folder.join(format!("{name}.key")),
        identity: folder.join(format!("{name}.identity")),
        fingerprint: hex::encode(identity.verifying_key().to_bytes()),
    };
    for file in [&files.request, &files.public_identity, &files.tls_key, &files.identity] {
        if file.exists() {
            return Err(ServerError::Usage(format!("{} exists already: keys are never overwritten", file.display()).into()));
        }
    }
    create_private_directory(folder)?;
    let failed = |e: rcgen::Error| ServerError::Failed(Problem::said(format!("the certificate request cannot be made: {e}"), e));
    let tls_key = KeyPair::generate().map_err(failed)?;
    let mut params = CertificateParams::default();
    params.distinguished_name = DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, name.as_str());
    params.subject_alt_names = vec![SanType::URI(uri.to_string().try_into().map_err(failed)?)];
    let request = params.serialize_request(&tls_key).map_err(failed)?;
    let write = |result: std::result::Result<(), IdentityError>| result.map_err(|e| ServerError::Unavailable(Problem::of(e)));
    let pem = Zeroizing::new(tls_key.serialize_pem());
    let mut together = Together::default();
    write(together.secret(&files.tls_key, pem.as_bytes()))?;
    write(together.secret(&files.identity, identity_to_pem(&identity).map_err(|e| ServerError::Failed(Problem::of(e)))?.as_bytes()))?;
    let public = public_identity_to_pem(&identity.verifying_key()).map_err(|e| ServerError::Failed(Problem::of(e)))?;
    write(together.public(&files.public_identity, public.as_bytes()))?;
    let text = Enrolment::file(federation, name, Party::Summer, request.der(), &identity);
    write(together.public(&files.request, text.as_bytes()))?;
    together.whole();
    Ok(files)
}
