//! Identity keys in PEM files (PKCS#8, as other tools write them), and files that only their owner may read.

use std::fs::OpenOptions;
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use ed25519_dalek::pkcs8::spki::der::pem::LineEnding;
use ed25519_dalek::pkcs8::{DecodePrivateKey, DecodePublicKey, EncodePrivateKey, EncodePublicKey};
use ed25519_dalek::{SigningKey, VerifyingKey};
use zeroize::{Zeroize, Zeroizing};

use super::IdentityError;

/// A fresh identity key from the operating system's randomness.
///
/// # Errors
/// No randomness.
pub fn generate_identity() -> Result<SigningKey, IdentityError> {
    let mut seed = [0; 32];
    getrandom::fill(&mut seed).map_err(|_| IdentityError::Randomness)?;
    let key = SigningKey::from_bytes(&seed);
    seed.zeroize();
    Ok(key)
}

/// PKCS#8 PEM of an identity key; wiped from memory when dropped.
///
/// # Errors
/// Never for a valid key; the encoder's signature is kept.
pub fn identity_to_pem(key: &SigningKey) -> Result<Zeroizing<String>, IdentityError> {
    key.to_pkcs8_pem(LineEnding::LF).map_err(|_| IdentityError::Key("private key"))
}

/// Reads an identity key from PKCS#8 PEM.
///
/// # Errors
/// Another kind of key or file.
pub fn identity_from_pem(text: &str) -> Result<SigningKey, IdentityError> {
    SigningKey::from_pkcs8_pem(text.trim()).map_err(|_| IdentityError::Key("private key"))
}

/// PEM of a public identity key.
///
/// # Errors
/// Never for a valid key; the encoder's signature is kept.
pub fn public_identity_to_pem(key: &VerifyingKey) -> Result<String, IdentityError> {
    key.to_public_key_pem(LineEnding::LF).map_err(|_| IdentityError::Key("public key"))
}

/// The one `PUBLIC KEY` block of a PEM file that may hold other blocks too: the authority's file `ca.pem` carries the server's
/// identity this way.
///
/// # Errors
/// No such block, several, or another kind of key.
pub fn public_identity_from_pem(text: &str) -> Result<VerifyingKey, IdentityError> {
    let error = || IdentityError::Key("public key");
    let blocks = pem::parse_many(text).map_err(|_| error())?;
    let mut keys = blocks.iter().filter(|block| block.tag() == "PUBLIC KEY");
    match (keys.next(), keys.next()) {
        (Some(block), None) => VerifyingKey::from_public_key_der(block.contents()).map_err(|_| error()),
        _ => Err(error()),
    }
}

/// Writes a file that nobody but its owner may read (0600), durably; an existing file is never overwritten.
///
/// # Errors
/// The file exists, or cannot be written.
pub fn write_secret(path: &Path, bytes: &[u8]) -> Result<(), IdentityError> {
    write_with_mode(path, bytes, 0o600)
}

/// Writes a new public file, durably; an existing file is never overwritten.
///
/// # Errors
/// The file exists, or cannot be written.
pub fn write_new(path: &Path, bytes: &[u8]) -> Result<(), IdentityError> {
    write_with_mode(path, bytes, 0o644)
}

fn write_with_mode(path: &Path, bytes: &[u8], mode: u32) -> Result<(), IdentityError> {
    let write = || {
        let mut file = OpenOptions::new().write(true).create_new(true).mode(mode).open(path)?;
        file.write_all(bytes)?;
        file.sync_all()
    };
    write().map_err(|source| IdentityError::Io { path: path.display().to_string(), source })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn keys_survive_the_round_trip() {
        let key = generate_identity().unwrap();
        let read = identity_from_pem(&identity_to_pem(&key).unwrap()).unwrap();
        assert_eq!(read.to_bytes(), key.to_bytes());
        let public = public_identity_to_pem(&key.verifying_key()).unwrap();
        assert_eq!(public_identity_from_pem(&public).unwrap(), key.verifying_key());
        assert!(public_identity_from_pem(&format!("{public}{public}")).is_err());
        assert!(identity_from_pem(&public).is_err());
    }
}
