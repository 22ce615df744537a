//! The file by which a site, evaluator or summer asks to be enrolled: `dp-pvi-client csr` or `dp-pvi-server summer csr` writes it, `dp-pvi-server ca sign` reads it.
//!
//! It is a PEM file with two blocks. `CERTIFICATE REQUEST` is an ordinary PKCS#10 request, signed by the TLS key. `DP-PVI
//! ENROLMENT` is the postcard body of [`Enrolment`] followed by the identity key's signature, and names the hash of the request: the
//! two keys belong together, and no one can enrol a name with someone else's request.

use dp_pvi_names::{ClientId, Hash};
use dp_pvi_protocol::bounds::{self, OutOfBounds};
use dp_pvi_protocol::message::{Body, Signed};
use ed25519_dalek::{SigningKey, VerifyingKey};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::{IdentityError, Party};

const REQUEST: &str = "CERTIFICATE REQUEST";
const ENROLMENT: &str = "DP-PVI ENROLMENT";
const SIGNATURE_BYTES: usize = 64;

/// What a client asks the authority to certify.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Enrolment {
    /// The federation that it wants to join.
    pub federation: String,
    /// The name that it wants.
    pub client: ClientId,
    /// The part that it wants to play.
    pub role: Party,
    /// Its public identity key.
    pub identity: [u8; 32],
    /// SHA-256 of the certificate request (DER).
    pub request: Hash,
}

impl Body for Enrolment {
    const DOMAIN: &'static str = "dp-pvi enrolment v1";

    fn check(&self) -> Result<(), OutOfBounds> {
        bounds::name(&self.federation)
    }
}

impl Enrolment {
    /// The enrolment file for a certificate request.
    #[must_use]
    pub fn file(federation: &str, client: ClientId, role: impl Into<Party>, request_der: &[u8], identity: &SigningKey) -> String {
        let body = Self {
            federation: federation.to_owned(),
            client,
            role: role.into(),
            identity: identity.verifying_key().to_bytes(),
            request: Hash(Sha256::digest(request_der).into()),
        };
        let signed = Signed::seal(&body, identity);
        let mut block = signed.body;
        block.extend_from_slice(&signed.signature);
        let config = pem::EncodeConfig::new().set_line_ending(pem::LineEnding::LF);
        pem::encode_many_config(&[pem::Pem::new(REQUEST, request_der), pem::Pem::new(ENROLMENT, block)], config)
    }

    /// Reads an enrolment file: the checked enrolment, its public identity key, and the request (DER).
    ///
    /// The request's own signature is for the authority to check.
    ///
    /// # Errors
    /// Another file, or one that was changed after it was made.
    pub fn read(text: &str) -> Result<(Self, VerifyingKey, Vec<u8>), IdentityError> {
        let blocks = pem::parse_many(text.trim_start_matches('\u{feff}')).map_err(|_| IdentityError::Enrolment("not in PEM form"))?;
        let [request, enrolment] = blocks.as_slice() else {
            return Err(IdentityError::Enrolment("it must have two blocks"));
        };
        if request.tag() != REQUEST || enrolment.tag() != ENROLMENT {
            return Err(IdentityError::Enrolment("it must have a certificate request and an enrolment block"));
        }
        let split = enrolment.contents().len().checked_sub(SIGNATURE_BYTES).ok_or(IdentityError::Enrolment("truncated"))?;
        let (body, signature) = enrolment.contents().split_at(split);
        let signed = Signed::<Self>::from_parts(body.to_vec(), signature.to_vec());
        // The key is inside the body: the signature proves that the asker holds it.
        let claimed = signed.peek().map_err(|_| IdentityError::Enrolment("of another version"))?;
        let key = VerifyingKey::from_bytes(&claimed.identity).map_err(|_| IdentityError::Key("public key"))?;
        let body = signed.open(&key).map_err(|_| IdentityError::Signature)?;
        if body.request != Hash(Sha256::digest(request.contents()).into()) {
            return Err(IdentityError::Signature);
        }
        Ok((body, key, request.contents().to_vec()))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::identity::generate_identity;

    #[test]
    fn the_file_binds_name_keys_and_request() {
        let key = generate_identity().unwrap();
        let client = ClientId::new("hospital-1").unwrap();
        let file = Enrolment::file("fed", client.clone(), Party::Site, b"request one", &key);
        let (read, public, request) = Enrolment::read(&file).unwrap();
        assert_eq!(
            (read.client, read.role, public, request.as_slice()),
            (client.clone(), Party::Site, key.verifying_key(), &b"request one"[..])
        );

        // Another request under the same enrolment block, or a block of which a byte was changed.
        let other = Enrolment::file("fed", client, Party::Site, b"request two", &key);
        let mixed = format!("{}{}", &other[..other.find("-----BEGIN DP-PVI").unwrap()], &file[file.find("-----BEGIN DP-PVI").unwrap()..]);
        assert!(matches!(Enrolment::read(&mixed), Err(IdentityError::Signature)));
        let mut blocks = pem::parse_many(&file).unwrap();
        for at in 0..blocks[1].contents().len() {
            let mut bytes = blocks[1].contents().to_vec();
            bytes[at] ^= 1;
            let changed = pem::encode_many(&[blocks[0].clone(), pem::Pem::new("DP-PVI ENROLMENT", bytes)]);
            assert!(Enrolment::read(&changed).is_err(), "byte {at}");
        }
        blocks.swap(0, 1);
        assert!(Enrolment::read(&pem::encode_many(&blocks)).is_err());
        assert!(Enrolment::read("").is_err());
    }
}
