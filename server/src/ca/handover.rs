//! What goes back to a client: NAME.pem, its certificate, and ca.pem, that of the authority. They replace earlier ones, and no other file.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use dp_pvi_names::ClientId;
use dp_pvi_programs::identity::PeerName;
use rustls_pki_types::CertificateDer;
use rustls_pki_types::pem::PemObject;
use x509_parser::prelude::{FromDer, X509Certificate};

use super::CA_KEY;
use crate::error::{Result, ServerError};
use crate::files::replace;

/// Files that are longer are no certificates.
const LONGEST: u64 = 1 << 20;

/// Where a client's files go.
pub(super) struct Handover {
    certificate: PathBuf,
    authority: PathBuf,
}

impl Handover {
    pub(super) fn of(client: &ClientId, directory: &Path) -> Self {
        Self { certificate: directory.join(format!("{client}.pem")), authority: directory.join("ca.pem") }
    }

    /// Whether both may be written: nothing lies there, or what this authority put there earlier, or both files of an earlier handover to this
    /// client by an authority that the federation had before. `authority` is what ca.pem will hold.
    pub(super) fn check(&self, name: &PeerName, authority: &[u8]) -> Result<()> {
        const MOVE: &str = "nothing was signed; move it away, or name another folder with -o";
        // What it leads to may be the other one of the two, or another authority's.
        if let Some(link) = [&self.certificate, &self.authority].into_iter().find(|file| file.is_symlink()) {
            return Err(ServerError::file(link, format!("is a link: {MOVE}")));
        }
        if self.is_of_earlier_authority(name)? {
            return Ok(());
        }
        if let Some(found) = existing(&self.certificate)?
            && !is_certificate_of(&found, name, authority)
        {
            let message = format!("is there, and is no certificate of {name} by this authority: {MOVE}");
            return Err(ServerError::file(&self.certificate, message));
        }
        if let Some(found) = existing(&self.authority)?
            && found != authority
            && (blocks(&found, "CERTIFICATE") != 1 || first_certificate(&found) != first_certificate(authority))
        {
            return Err(ServerError::file(&self.authority, format!("is there, and is not of this authority: {MOVE}")));
        }
        Ok(())
    }

    /// Whether both files are there, the one signed by the other. Where the key of that authority lies beside them it is its own folder.
    fn is_of_earlier_authority(&self, name: &PeerName) -> Result<bool> {
        let (Some(certificate), Some(authority)) = (existing(&self.certificate)?, existing(&self.authority)?) else { return Ok(false) };
        // Its certificate and the server's public key: nothing that would be missed.
        let known = blocks(&authority, "CERTIFICATE") + blocks(&authority, "PUBLIC KEY") == blocks(&authority, "");
        let handed_over = known && blocks(&authority, "CERTIFICATE") == 1 && is_certificate_of(&certificate, name, &authority);
        Ok(handed_over && !self.authority.with_file_name(CA_KEY).exists())
    }

    /// Writes both, and says where they are.
    pub(super) fn write(self, certificate: &[u8], authority: &[u8]) -> Result<[PathBuf; 2]> {
        replace(&self.certificate, certificate)?;
        // In the authority's own folder it is already.
        if std::fs::read(&self.authority).ok().as_deref() != Some(authority) {
            replace(&self.authority, authority)?;
        }
        Ok([self.certificate, self.authority])
    }
}

/// What lies at a place; nothing of a file that is too long to be read.
fn existing(path: &Path) -> Result<Option<Vec<u8>>> {
    match std::fs::metadata(path) {
        Err(e) if e.kind() == ErrorKind::NotFound => Ok(None),
        Err(e) => Err(ServerError::unavailable(path, e)),
        Ok(about) if !about.is_file() => Err(ServerError::file(path, "is no file: name another folder with -o")),
        Ok(about) if about.len() > LONGEST => Ok(Some(Vec::new())),
        Ok(_) => std::fs::read(path).map(Some).map_err(|e| ServerError::unavailable(path, e)),
    }
}

/// Blocks of a PEM file whose kind begins so.
fn blocks(pem: &[u8], kind: &str) -> usize {
    String::from_utf8_lossy(pem).matches(&format!("-----BEGIN {kind}")).count()
}

fn first_certificate(pem: &[u8]) -> Option<CertificateDer<'static>> {
    CertificateDer::from_pem_slice(pem).ok()
}

/// Whether a file holds a certificate of this name that the authority signed, and nothing beside it.
fn is_certificate_of(found: &[u8], name: &PeerName, authority: &[u8]) -> bool {
    let (Some(certificate), Some(authority)) = (first_certificate(found), first_certificate(authority)) else { return false };
    let (Ok((_, parsed)), Ok((_, authority))) = (X509Certificate::from_der(&certificate), X509Certificate::from_der(&authority)) else {
        return false;
    };
    blocks(found, "") == 1
        && PeerName::from_certificate(&certificate).is_ok_and(|found| found == *name)
        && parsed.verify_signature(Some(authority.public_key())).is_ok()
}
