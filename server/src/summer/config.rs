//! `summer.toml`: read like `server.toml`, with the same overrides from the environment.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::Duration;

use dp_pvi_names::ClientId;
use dp_pvi_programs::identity::check_federation;
use dp_pvi_programs::problem::Problem;
use dp_pvi_secagg::charter::Floors;
use rustls_pki_types::ServerName;
use serde::Deserialize;

use crate::config::read;
use crate::error::{Result, ServerError};

/// Everything that a summer needs to know.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SummerConfig {
    /// Its name, as in its certificate.
    pub name: ClientId,
    /// Name of the federation.
    pub federation: String,
    /// Host of the server.
    pub host: String,
    /// Port of the server.
    pub port: u16,
    /// Name that the server's certificate must carry.
    pub server_name: String,
    /// Folder of the database.
    pub state: PathBuf,
    /// Folder of the round keys: no backup and no copy may hold it.
    pub vault: PathBuf,
    /// An unreachable server is tried again for this long.
    pub reconnect: Duration,
    /// Certificates and keys.
    pub tls: SummerTls,
    /// Charters below these are not signed.
    pub floors: Floors,
}

/// Files that say who is who.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SummerTls {
    /// The authority's certificate.
    pub ca: PathBuf,
    /// The summer's certificate.
    pub cert: PathBuf,
    /// Its TLS key.
    pub key: PathBuf,
    /// Its identity key.
    pub identity: PathBuf,
    /// The server's public identity key.
    pub server_identity: PathBuf,
}

/// Every key with its meaning: the sample that `deploy/` ships.
pub const SAMPLE: &str = include_str!("../../../deploy/summer.toml");

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Raw {
    summer: RawSummer,
    tls: RawTls,
    #[serde(default)]
    policy: RawPolicy,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawSummer {
    name: String,
    federation: String,
    server: String,
    server_name: Option<String>,
    state: PathBuf,
    vault: PathBuf,
    reconnect_seconds: Option<u64>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawTls {
    ca: PathBuf,
    cert: PathBuf,
    key: PathBuf,
    identity: PathBuf,
    server_identity: Option<PathBuf>,
}

#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields)]
struct RawPolicy {
    min_contributors: Option<u32>,
    colluders: Option<u32>,
    max_honest: Option<u32>,
    max_rounds: Option<u32>,
}

impl SummerConfig {
    /// Reads a configuration file and the process's environment.
    ///
    /// # Errors
    /// [`ServerError::Config`] with the file or variable at fault.
    pub fn load(path: &Path) -> Result<Self> {
        let text = dp_pvi_programs::files::read_text(path).map_err(|e| ServerError::Config {
            place: path.display().to_string(),
            message: Problem::said(format!("{e}; name the file with --config"), e),
        })?;
        Self::parse(&text, path, std::env::vars_os())
    }

    /// Parses the text of the file `path` under the given environment.
    ///
    /// # Errors
    /// [`ServerError::Config`] with the file or variable at fault.
    pub fn parse(text: &str, path: &Path, environment: impl IntoIterator<Item = (OsString, OsString)>) -> Result<Self> {
        read(text, path, environment, Raw::check)
    }
}

impl Raw {
    fn check(self, base: &Path) -> std::result::Result<SummerConfig, String> {
        let Self { summer, tls, policy } = self;
        let at = |path: PathBuf| base.join(path);
        let (host, port) = host_and_port(&summer.server).ok_or_else(|| {
            format!("[summer] server: {:?} is not a host and port; write for example \"fed.example.org:9092\"", summer.server)
        })?;
        let server_name = summer.server_name.unwrap_or_else(|| host.clone());
        if ServerName::try_from(server_name.as_str()).is_err() {
            return Err("[summer] server_name: neither a DNS name nor an IP address".into());
        }
        let (state, vault) = (at(summer.state), at(summer.vault));
        if state == vault || vault.starts_with(&state) || state.starts_with(&vault) {
            return Err(
                "[summer] state and vault must be two folders, none in the other: what is copied with the state must not hold the \
                        keys"
                    .into(),
            );
        }
        let ca = at(tls.ca);
        let default = Floors::default();
        Ok(SummerConfig {
            name: ClientId::new(summer.name).map_err(|e| format!("[summer] name: {e}"))?,
            federation: check_federation(&summer.federation).map_err(|e| format!("[summer] federation: {e}"))?,
            host,
            port,
            server_name,
            state,
            vault,
            reconnect: Duration::from_secs(summer.reconnect_seconds.unwrap_or(600)),
            tls: SummerTls {
                cert: at(tls.cert),
                key: at(tls.key),
                identity: at(tls.identity),
                server_identity: tls.server_identity.map_or_else(|| ca.clone(), at),
                ca,
            },
            floors: Floors {
                min_contributors: policy.min_contributors.unwrap_or(default.min_contributors),
                colluders: policy.colluders.unwrap_or(default.colluders),
                max_honest: policy.max_honest.unwrap_or(default.max_honest),
                max_rounds: policy.max_rounds.unwrap_or(default.max_rounds),
            },
        })
    }
}

/// `host:port`, where an IPv6 address is in brackets.
fn host_and_port(text: &str) -> Option<(String, u16)> {
    let (host, port) = text.rsplit_once(':')?;
    let bare = host.strip_prefix('[').and_then(|host| host.strip_suffix(']'));
    let host = bare.unwrap_or(host);
    let sound = !host.is_empty() && (bare.is_some() || !host.contains(':'));
    sound.then_some(())?;
    Some((host.to_owned(), port.parse().ok().filter(|port| *port != 0)?))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn parse(text: &str) -> Result<SummerConfig> {
        SummerConfig::parse(text, Path::new("/etc/summer/summer.toml"), [])
    }

    #[test]
    fn the_sample_is_read_and_its_floors_are_the_defaults() {
        let config = parse(SAMPLE).unwrap();
        assert_eq!(config.floors, Floors::default());
        assert_eq!(config.state, Path::new("/etc/summer/state/"));
        assert_eq!(config.tls.server_identity, config.tls.ca);
        assert_eq!((config.host.as_str(), config.port), ("localhost", 9092));
    }

    #[test]
    fn mistakes_are_named() {
        for (from, to, word) in [
            ("server = \"localhost:9092\"", "server = \"localhost\"", "host and port"),
            ("vault = \"vault/\"", "vault = \"state/vault\"", "two folders"),
            ("vault = \"vault/\"", "vault = \"state\"", "two folders"),
            ("name = \"summer\"", "name = \"Summer!\"", "[summer] name"),
            ("[policy]", "[policy]\nmin = 3", "unknown field"),
        ] {
            assert!(SAMPLE.contains(from), "{from}");
            let error = parse(&SAMPLE.replacen(from, to, 1)).unwrap_err();
            assert_eq!(error.code(), 2);
            assert!(error.to_string().contains(word), "{error}");
        }
        assert_eq!(host_and_port("[::1]:9092"), Some(("::1".into(), 9092)));
        assert_eq!((host_and_port("::1:9092"), host_and_port("h:0"), host_and_port(":1")), (None, None, None));
    }
}
