//! The site's keys: made here, kept here, erased from memory after use.

use std::fs;
use std::io::Read;
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::{Path, PathBuf};

use dp_pvi_names::ClientId;
use dp_pvi_programs::identity;
use dp_pvi_programs::identity::{Enrolment, PeerName};
use dp_pvi_programs::problem::Problem;
use dp_pvi_protocol::message::Role;
use ed25519_dalek::{SigningKey, VerifyingKey};
use rcgen::{CertificateParams, DistinguishedName, DnType, KeyPair, SanType};
use zeroize::{Zeroize, Zeroizing};

use crate::error::{ClientError, Result};

/// Longest key or certificate file that is read.
const MAX_FILE: u64 = 1 << 20;

/// Reads a secret file; its bytes are erased when dropped.
///
/// # Errors
/// Missing, unreadable, a link, of another user, or with permissions beyond 0600.
pub fn read_secret(field: &str, path: &Path) -> Result<Zeroizing<Vec<u8>>> {
    identity::read_secret(path).map_err(|e| ClientError::config(field, Problem::of(e)))
}

/// Checks that a file or folder of this program's own state is this user's (or root's) and that no one else can look into it or
/// change it.
///
/// # Errors
/// [`ClientError::Config`] with the command that mends it.
pub fn check_private(field: &str, path: &Path) -> Result<()> {
    let failed = |what: String| ClientError::config(field, what);
    identity::check_own(path).map_err(|e| ClientError::config(field, Problem::of(e)))?;
    let about = fs::metadata(path).map_err(|e| failed(format!("{}: {e}", path.display())))?;
    let (mode, right) = (about.permissions().mode() & 0o777, if about.is_dir() { "700" } else { "600" });
    if mode & 0o077 != 0 {
        let path = path.display();
        return Err(failed(format!("{path}: others can look into it (mode {mode:o}): `chmod {right} {path}`")));
    }
    Ok(())
}

/// Checks that not everyone may put another file in the place of this one.
///
/// # Errors
/// [`ClientError::Config`] with the command that mends it.
pub fn check_folder_of(field: &str, file: &Path) -> Result<()> {
    // A name without a folder lies in the one where the program was started.
    let folder = file.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    // Made where it is first needed.
    let Ok(about) = fs::metadata(folder) else { return Ok(()) };
    let mode = about.permissions().mode() & 0o7777;
    if mode & 0o002 == 0 {
        return Ok(());
    }
    let folder = folder.display();
    Err(ClientError::config(
        field,
        format!(
            "{folder}: everybody can put another file in its place (mode {mode:o}): `chmod o-w {folder}` after looking at what it holds"
        ),
    ))
}

/// Checks that only this user can change this program's own folder, which holds approvals and the ledger's highest head.
///
/// # Errors
/// [`ClientError::Config`] with the command that mends it.
pub fn check_state(folder: &Path) -> Result<()> {
    // Made where it is first needed.
    if !folder.exists() {
        return Ok(());
    }
    identity::check_own(folder).map_err(|e| ClientError::config("site.state", Problem::of(e)))
}

/// Reads a public file.
///
/// # Errors
/// Missing or unreadable.
pub fn read_public(field: &str, path: &Path) -> Result<String> {
    let mut text = String::new();
    fs::File::open(path)
        .and_then(|file| file.take(MAX_FILE).read_to_string(&mut text))
        .map_err(|e| ClientError::config(field, format!("{}: cannot be read ({e})", path.display())))?;
    Ok(text)
}

/// The site's identity key.
///
/// # Errors
/// See [`read_secret`]; not an Ed25519 key.
pub fn identity(path: &Path) -> Result<SigningKey> {
    let bytes = read_secret("tls.identity", path)?;
    let failed = |what: String| ClientError::config("tls.identity", format!("{}: {what}", path.display()));
    let text = std::str::from_utf8(&bytes).map_err(|_| failed("is not a PEM file".into()))?;
    identity::identity_from_pem(text).map_err(|e| ClientError::config("tls.identity", Problem::said(format!("{}: {e}", path.display()), e)))
}

/// The server's public identity key.
///
/// # Errors
/// Unreadable, or without exactly one Ed25519 public key.
pub fn server_identity(path: &Path) -> Result<VerifyingKey> {
    public_identity("tls.server_identity", path)
}

/// The public identity key of an aggregation's second party.
///
/// # Errors
/// As [`server_identity`], or a key under which signatures mean nothing.
pub fn summer_identity(path: &Path) -> Result<VerifyingKey> {
    let field = "aggregation.summer";
    let key = public_identity(field, path)?;
    if key.is_weak() {
        return Err(ClientError::config(field, format!("{}: is a key that anybody can sign for; get the right file", path.display())));
    }
    Ok(key)
}

/// How people compare a public identity key: its 32 bytes in hexadecimal digits.
#[must_use]
pub fn fingerprint(key: &[u8; 32]) -> String {
    hex::encode(key)
}

fn public_identity(field: &str, path: &Path) -> Result<VerifyingKey> {
    let text = read_public(field, path)?;
    identity::public_identity_from_pem(&text).map_err(|e| ClientError::config(field, format!("{}: {e}", path.display())))
}

/// What [`make_request`] wrote.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RequestFiles {
    /// The one file that goes to the operator of the server.
    pub request: PathBuf,
    /// TLS key; stays here.
    pub tls_key: PathBuf,
    /// Identity key; stays here.
    pub identity: PathBuf,
}

/// Makes the two keys of a client and the file by which it asks to be enrolled. Existing files are never overwritten.
///
/// # Errors
/// A name that breaks the rules; a file exists or cannot be written.
pub fn make_request(federation: &str, client: ClientId, role: Role, folder: &Path) -> Result<RequestFiles> {
    let name = PeerName::client(federation, role, client.clone()).map_err(|e| ClientError::config("--federation", Problem::of(e)))?;
    let files = RequestFiles {
        request: folder.join(format!("{client}.csr.pem")),
        tls_key: folder.join(format!("{client}.key")),
        identity: folder.join(format!("{client}.identity")),
    };
    for file in [&files.request, &files.tls_key, &files.identity] {
        if file.exists() {
            return Err(ClientError::config("-o", format!("{} exists already: keys are never overwritten", file.display())));
        }
    }
    fs::DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(folder)
        .map_err(|e| ClientError::Unavailable(Problem::said(format!("{}: {e}", folder.display()), e)))?;
    let identity_key = identity::generate_identity().map_err(|e| ClientError::Unavailable(Problem::of(e)))?;
    let failed = |e: rcgen::Error| ClientError::Failed(Problem::said(format!("the certificate request cannot be made: {e}"), e));
    let mut tls_key = KeyPair::generate().map_err(failed)?;
    let mut params = CertificateParams::default();
    params.distinguished_name = DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, client.as_str());
    params.subject_alt_names = vec![SanType::URI(name.to_string().try_into().map_err(failed)?)];
    let request = params.serialize_request(&tls_key).map_err(failed)?;
    let pem = Zeroizing::new(tls_key.serialize_pem());
    tls_key.zeroize();
    let write = |result: std::result::Result<(), identity::IdentityError>| result.map_err(|e| ClientError::Unavailable(Problem::of(e)));
    let identity_pem = identity::identity_to_pem(&identity_key).map_err(|e| ClientError::Failed(Problem::of(e)))?;
    let mut together = identity::Together::default();
    write(together.secret(&files.tls_key, pem.as_bytes()))?;
    write(together.secret(&files.identity, identity_pem.as_bytes()))?;
    let text = Enrolment::file(federation, client, role, request.der(), &identity_key);
    write(together.public(&files.request, text.as_bytes()))?;
    together.whole();
    Ok(files)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn a_request_binds_both_keys_and_overwrites_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path().join("tls");
        let client = ClientId::new("hospital-1").unwrap();
        let files = make_request("lung-fed", client.clone(), Role::Site, &folder).unwrap();
        for secret in [&files.tls_key, &files.identity] {
            assert_eq!(fs::metadata(secret).unwrap().permissions().mode() & 0o777, 0o600);
        }
        let (enrolment, key, request) = Enrolment::read(&fs::read_to_string(&files.request).unwrap()).unwrap();
        assert_eq!((enrolment.federation.as_str(), &enrolment.client, enrolment.role), ("lung-fed", &client, Role::Site.into()));
        assert_eq!(identity(&files.identity).unwrap().verifying_key(), key);
        assert!(!request.is_empty());
        let before = fs::read(&files.tls_key).unwrap();
        assert_eq!(make_request("lung-fed", client, Role::Site, &folder).unwrap_err().exit_code(), 2);
        assert_eq!(fs::read(&files.tls_key).unwrap(), before);
    }

    #[test]
    fn keys_that_others_can_read_are_refused() {
        let folder = tempfile::tempdir().unwrap();
        let files = make_request("f", ClientId::new("a").unwrap(), Role::Evaluator, folder.path()).unwrap();
        for mode in [0o640, 0o604, 0o644, 0o660] {
            fs::set_permissions(&files.identity, fs::Permissions::from_mode(mode)).unwrap();
            let error = identity(&files.identity).unwrap_err();
            assert!(error.to_string().contains("tls.identity") && error.to_string().contains("chmod 600"), "{error}");
        }
        fs::set_permissions(&files.identity, fs::Permissions::from_mode(0o400)).unwrap();
        identity(&files.identity).unwrap();
    }
}
