//! Names in certificates.

use std::fmt;

use dp_pvi_names::{ClientId, Hash};
use dp_pvi_protocol::message::Role;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use x509_parser::prelude::{FromDer, GeneralName, X509Certificate};

use super::IdentityError;

const SCHEME: &str = "dp-pvi://";

/// Whom the authority enrols, and as what.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Party {
    /// A site with private records.
    Site,
    /// A client with a public test set.
    Evaluator,
    /// The second party of aggregated runs.
    Summer,
}

impl Party {
    /// The role of a client in a run; none for the summer, which is not one.
    #[must_use]
    pub fn as_client(self) -> Option<Role> {
        match self {
            Self::Site => Some(Role::Site),
            Self::Evaluator => Some(Role::Evaluator),
            Self::Summer => None,
        }
    }
}

impl From<Role> for Party {
    fn from(role: Role) -> Self {
        match role {
            Role::Site => Self::Site,
            Role::Evaluator => Self::Evaluator,
        }
    }
}

/// Part of a peer in the federation, as its certificate says.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum PeerRole {
    /// The federation's server.
    Server,
    /// A site with private records.
    Site(ClientId),
    /// A client with a public test set.
    Evaluator(ClientId),
    /// The second party of aggregated runs: it adds masks up.
    Summer(ClientId),
}

/// Name of a peer: `dp-pvi://FEDERATION/server`, or `dp-pvi://FEDERATION/PART/ID` where PART is `site`, `evaluator` or `summer`.
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

    /// The name of a client, or of a summer.
    ///
    /// # Errors
    /// The federation's name breaks the rules.
    pub fn client(federation: &str, party: impl Into<Party>, client: ClientId) -> Result<Self, IdentityError> {
        let role = match party.into() {
            Party::Site => PeerRole::Site(client),
            Party::Evaluator => PeerRole::Evaluator(client),
            Party::Summer => PeerRole::Summer(client),
        };
        Ok(Self { federation: check_federation(federation)?, role })
    }

    /// The client and its role, if this is one.
    #[must_use]
    pub fn as_client(&self) -> Option<(&ClientId, Role)> {
        self.as_enrolled().and_then(|(id, party)| Some((id, party.as_client()?)))
    }

    /// Whoever the authority enrols: everyone but the server.
    #[must_use]
    pub fn as_enrolled(&self) -> Option<(&ClientId, Party)> {
        match &self.role {
            PeerRole::Server => None,
            PeerRole::Site(id) => Some((id, Party::Site)),
            PeerRole::Evaluator(id) => Some((id, Party::Evaluator)),
            PeerRole::Summer(id) => Some((id, Party::Summer)),
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
            PeerRole::Summer(id) => write!(f, "summer/{id}"),
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
            [federation, "summer", id] => (federation, PeerRole::Summer(ClientId::new(*id).map_err(|_| error())?)),
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
    ClientId::new(name).map(|name| name.as_str().to_owned()).map_err(|_| IdentityError::Federation)
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
        for text in
            ["dp-pvi://lung-fed/server", "dp-pvi://lung-fed/site/hospital-1", "dp-pvi://f/evaluator/x_1.y", "dp-pvi://f/summer/university"]
        {
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
            "dp-pvi://f/summer",
            "dp-pvi://f/server/summer",
        ] {
            assert!(text.parse::<PeerName>().is_err(), "{text}");
        }
    }
}
