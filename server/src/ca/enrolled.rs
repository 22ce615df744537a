//! `enrolled.json`: who belongs to the federation, with which identity key and which certificates.
//!
//! The authority writes it; a running server reads it again whenever it changes.

use std::collections::BTreeMap;
use std::path::Path;

use dp_pvi_names::{ClientId, Hash};
use dp_pvi_programs::identity::Party;
use dp_pvi_programs::problem::Problem;
use dp_pvi_protocol::coordinator::Enrolled as EnrolledClient;
use ed25519_dalek::VerifyingKey;
use serde::{Deserialize, Serialize};

use crate::error::{Result, ServerError};
use crate::files::replace;

/// Members of a federation.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Enrolled {
    /// Name of the federation.
    pub federation: String,
    /// DNS names and addresses of the server's certificate.
    pub server_names: Vec<String>,
    /// Days that a revocation list is valid from when it is written.
    pub revocation_list_days: u16,
    /// Certificates of the server.
    pub server_certificates: Vec<IssuedCertificate>,
    /// Sites, evaluators and summers by name.
    pub clients: BTreeMap<ClientId, Member>,
}

/// One enrolled client.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Member {
    /// Its part.
    pub role: Party,
    /// Its identity key (Ed25519, hexadecimal).
    #[serde(with = "hex_key")]
    pub identity: [u8; 32],
    /// When the name was revoked (RFC 3339), if it was.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub revoked: Option<String>,
    /// Its certificates, oldest first.
    pub certificates: Vec<IssuedCertificate>,
}

/// A certificate that the authority issued.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct IssuedCertificate {
    /// Serial number (hexadecimal).
    pub serial: String,
    /// SHA-256 of its SubjectPublicKeyInfo.
    #[serde(with = "hex_hash")]
    pub tls_key: Hash,
    /// First second of its validity (RFC 3339).
    pub issued: String,
    /// Last second of its validity (RFC 3339).
    pub expires: String,
    /// When it was revoked (RFC 3339), if it was.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub revoked: Option<String>,
}

impl Enrolled {
    /// Reads the file.
    ///
    /// # Errors
    /// [`ServerError::File`].
    pub fn load(path: &Path) -> Result<Self> {
        let text = std::fs::read_to_string(path)
            .map_err(|e| ServerError::file(path, format!("{e}; `dp-pvi-server ca init` makes it, and [tls] enrolled names it")))?;
        serde_json::from_str(&text).map_err(|e| ServerError::file(path, format!("not a list of enrolled clients: {e}")))
    }

    /// Number of sites that may take part, where there is one.
    pub(crate) fn sites(&self) -> Option<u32> {
        u32::try_from(self.names_of_sites().count()).ok().filter(|sites| *sites > 0)
    }

    /// The names of the sites that may take part.
    pub(crate) fn names_of_sites(&self) -> impl Iterator<Item = &str> {
        self.clients.iter().filter(|(_, member)| member.role == Party::Site && member.revoked.is_none()).map(|(client, _)| client.as_str())
    }

    /// Writes the file; a reader sees the old or the new one.
    pub(crate) fn save(&self, path: &Path) -> Result<()> {
        // Plain data: serialisation into memory cannot fail.
        let text = serde_json::to_string_pretty(self).map_err(|e| ServerError::Failed(Problem::of(e)))?;
        replace(path, format!("{text}\n").as_bytes())
    }

    /// The clients that may speak now, as the protocol wants them.
    ///
    /// # Errors
    /// A key that is not one.
    pub fn active(&self) -> Result<BTreeMap<ClientId, EnrolledClient>> {
        let active = self.clients.iter().filter(|(_, member)| member.revoked.is_none());
        let clients = active.filter_map(|(client, member)| Some((client, member, member.role.as_client()?)));
        clients.map(|(client, member, role)| Ok((client.clone(), EnrolledClient { role, key: member.key(client)? }))).collect()
    }

    /// Identity key of the summer of this name.
    ///
    /// # Errors
    /// It is not enrolled, not as a summer, or revoked.
    pub fn summer(&self, name: &ClientId) -> Result<VerifyingKey> {
        let error = |message: String| Err(ServerError::Config { place: "[summer] name".into(), message: message.into() });
        match self.clients.get(name) {
            None => error(format!("{name} is not enrolled: `dp-pvi-server summer csr` at the summer, then `ca sign` here")),
            Some(member) if member.role != Party::Summer => error(format!("{name} is enrolled, but not as a summer")),
            Some(member) if member.revoked.is_some() => error(format!("{name} was revoked")),
            Some(member) => member.key(name),
        }
    }
}

impl Member {
    fn key(&self, name: &ClientId) -> Result<VerifyingKey> {
        VerifyingKey::from_bytes(&self.identity)
            .map_err(|_| ServerError::Failed(format!("the enrolled identity of {name} is not an Ed25519 key: enrol it again").into()))
    }
}

mod hex_key {
    use serde::{Deserialize, Deserializer, Serializer, de::Error};

    pub(super) fn serialize<S: Serializer>(key: &[u8; 32], serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&hex::encode(key))
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<[u8; 32], D::Error> {
        let text = String::deserialize(deserializer)?;
        hex::decode(text).ok().and_then(|bytes| bytes.try_into().ok()).ok_or_else(|| D::Error::custom("not 64 hexadecimal digits"))
    }
}

mod hex_hash {
    use dp_pvi_names::Hash;
    use serde::{Deserialize, Deserializer, Serializer, de::Error};

    pub(super) fn serialize<S: Serializer>(hash: &Hash, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&hash.to_string())
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Hash, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(|_| D::Error::custom("not 64 hexadecimal digits"))
    }
}
