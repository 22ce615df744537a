//! Names in certificates.

use std::fmt;

use dp_pvi_privacy::{ClientId, Hash};
use dp_pvi_protocol::message::Role;
use sha2::{Digest, Sha256};
use x509_parser::prelude::{FromDer, GeneralName, X509Certificate};

use super::IdentityError;

const SCHEME: &str = "dp-pvi://";

/// Part of a peer in the federation, as its certificate says.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum PeerRole {
    /// The federation's server.
    Server,
    /// A site with private records.
    Site(ClientId),
    /// A client with a public test set.
    Evaluator(ClientId),
}

/// Name of a peer: `dp-pvi://FEDERATION/server`, `dp-pvi://FEDERATION/site/ID` or `dp-pvi://FEDERATION/evaluator/ID`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PeerName {
    /// Name of the federation.
    pub federation: String,
    /// Who in it.
    pub role: PeerRole,
}

impl PeerName {
    /// The server's name.
    ///
    /// # Errors
    /// The federation's name breaks the rules.
    pub fn server(federation: &str) -> Result<Self, IdentityError> {
        Ok(Self { federation: check_federation(federation)?, role: PeerRole::Server })
    }

    /// A client's name.
    ///
    /// # Errors
    /// The federation's name breaks the rules.
    pub fn client(federation: &str, role: Role, client: ClientId) -> Result<Self, IdentityError> {
        let role = match role {
            Role::Site => PeerRole::Site(client),
            Role::Evaluator => PeerRole::Evaluator(client),
        };
        Ok(Self { federation: check_federation(federation)?, role })
    }

    /// The client and its role, unless this is the server.
    #[must_use]
    pub fn as_client(&self) -> Option<(&ClientId, Role)> {
        match &self.role {
            PeerRole::Server => None,
            PeerRole::Site(id) => Some((id, Role::Site)),
            PeerRole::Evaluator(id) => Some((id, Role::Evaluator)),
        }
    }

    /// The one name in a certificate's subject alternative names. Says nothing about who signed the certificate.
    ///
    /// # Errors
    /// Not a certificate, or without exactly one name of this form.
    pub fn from_certificate(der: &[u8]) -> Result<Self, IdentityError> {
        let certificate = parse(der)?;
        let names = certificate.subject_alternative_name().map_err(|_| IdentityError::NoName)?.ok_or(IdentityError::NoName)?;
        let mut uris = names.value.general_names.iter().filter_map(|name| match name {
            GeneralName::URI(uri) if uri.starts_with(SCHEME) => Some(*uri),
            _ => None,
        });
        match (uris.next(), uris.next()) {
            (Some(uri), None) => uri.parse(),
            _ => Err(IdentityError::NoName),
        }
    }
}

impl fmt::Display for PeerName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{SCHEME}{}/", self.federation)?;
        match &self.role {
            PeerRole::Server => write!(f, "server"),
            PeerRole::Site(id) => write!(f, "site/{id}"),
            PeerRole::Evaluator(id) => write!(f, "evaluator/{id}"),
        }
    }
}

impl std::str::FromStr for PeerName {
    type Err = IdentityError;

    fn from_str(text: &str) -> Result<Self, IdentityError> {
        let error = || IdentityError::Name(text.chars().take(120).collect());
        let parts: Vec<&str> = text.strip_prefix(SCHEME).ok_or_else(error)?.split('/').collect();
        let (federation, role) = match parts.as_slice() {
            [federation, "server"] => (federation, PeerRole::Server),
            [federation, "site", id] => (federation, PeerRole::Site(ClientId::new(*id).map_err(|_| error())?)),
            [federation, "evaluator", id] => (federation, PeerRole::Evaluator(ClientId::new(*id).map_err(|_| error())?)),
            _ => return Err(error()),
        };
        Ok(Self { federation: check_federation(federation).map_err(|_| error())?, role })
    }
}

/// Checks a federation's name: the same rules as a site's.
///
/// # Errors
/// Empty, longer than 64 bytes, or with other characters than `a-z 0-9 - _ .`.
pub fn check_federation(name: &str) -> Result<String, IdentityError> {
    ClientId::new(name).map(String::from).map_err(|_| IdentityError::Federation)
}

/// SHA-256 of a certificate's SubjectPublicKeyInfo: what a hello signs as its `tls_key`.
///
/// # Errors
/// Not a certificate.
pub fn spki_hash(certificate_der: &[u8]) -> Result<Hash, IdentityError> {
    Ok(Hash(Sha256::digest(parse(certificate_der)?.tbs_certificate.subject_pki.raw).into()))
}

fn parse(der: &[u8]) -> Result<X509Certificate<'_>, IdentityError> {
    match X509Certificate::from_der(der) {
        Ok(([], certificate)) => Ok(certificate),
        Ok(_) => Err(IdentityError::Certificate("it is followed by other bytes".into())),
        Err(error) => Err(IdentityError::Certificate(error.to_string())),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn names_survive_the_round_trip() {
        for text in ["dp-pvi://lung-fed/server", "dp-pvi://lung-fed/site/hospital-1", "dp-pvi://f/evaluator/x_1.y"] {
            assert_eq!(text.parse::<PeerName>().unwrap().to_string(), text);
        }
    }

    #[test]
    fn other_names_are_refused() {
        for text in [
            "",
            "dp-pvi://",
            "dp-pvi:///server",
            "dp-pvi://f",
            "dp-pvi://f/site",
            "dp-pvi://f/site/",
            "dp-pvi://f/site/A",
            "dp-pvi://f/site/a/b",
            "dp-pvi://f/server/",
            "dp-pvi://F/server",
            "https://f/server",
            "dp-pvi://f/site/a?b",
            "dp-pvi://f/site/../server",
            "dp-pvi://f/admin/a",
        ] {
            assert!(text.parse::<PeerName>().is_err(), "{text}");
        }
    }
}
