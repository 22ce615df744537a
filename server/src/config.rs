//! `server.toml`: raw text becomes checked values once, here; after that nothing is checked again.
//!
//! Paths are relative to the file that names them. Every key can be overridden by an environment variable
//! `DP_PVI__SECTION__KEY` (the value is TOML, or plain text where that is not TOML); with `_FILE` at its end the variable names a
//! file that holds the value.

use std::ffi::OsString;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use dp_pvi_names::ClientId;
use dp_pvi_programs::environment::{PREFIX, to_blame};
use dp_pvi_programs::identity::check_federation;
use dp_pvi_programs::outputs;
use dp_pvi_programs::problem::Problem;
use dp_pvi_protocol::driver::LONGEST_PAUSE;
use serde::Deserialize;
use serde::de::DeserializeOwned;

use crate::error::{Result, ServerError};

/// Everything that `run` needs to know.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Config {
    /// Name of the federation.
    pub federation: String,
    /// gRPC address for sites.
    pub listen: SocketAddr,
    /// Plain HTTP address for health, metrics and the status page; none if `"off"`.
    pub http: Option<SocketAddr>,
    /// Names by which the status page may be called, beside addresses and the names in the server's certificate.
    pub http_hosts: Vec<String>,
    /// State directory.
    pub state: PathBuf,
    /// Where the results of a finished run are written.
    pub output: PathBuf,
    /// Certificates and keys.
    pub tls: TlsFiles,
    /// What is kept.
    pub store: StoreConfig,
    /// The task's file.
    pub task: PathBuf,
    /// Deadlines and quorum.
    pub phases: Phases,
    /// Name of the second party of aggregated runs, as it is enrolled.
    pub summer: Option<ClientId>,
}

/// Files that say who is who.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TlsFiles {
    /// The authority's certificate.
    pub ca: PathBuf,
    /// The server's certificate.
    pub cert: PathBuf,
    /// The server's TLS key.
    pub key: PathBuf,
    /// The server's identity key.
    pub identity: PathBuf,
    /// Revoked certificates.
    pub crl: PathBuf,
    /// Enrolled clients.
    pub enrolled: PathBuf,
}

/// What is kept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoreConfig {
    /// The SQLite file.
    pub database: PathBuf,
    /// Which payloads stay on disk.
    pub updates: KeepUpdates,
}

/// Which payloads stay on disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum KeepUpdates {
    /// All: a site's factor can be rebuilt and divided out later.
    All,
    /// Only those of the open round.
    OpenRound,
}

/// Deadlines and quorum.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Phases {
    /// Fewest sites of a round.
    pub min_sites: u32,
    /// Most sites that may be enrolled.
    pub max_sites: u32,
    /// Rounds close after this long.
    pub update_deadline: Duration,
    /// The first round opens at the latest after this long.
    pub start_deadline: Duration,
    /// A run that lost its quorum is suspended, and ends after this long.
    pub suspend_for: Duration,
    /// How long the server stays after the end for clients that have not fetched it.
    pub linger: Duration,
}

/// How long a server stays after the end unless its configuration says otherwise: sites that lost it look for it often enough to hear the end.
const LINGER: Duration = LONGEST_PAUSE.saturating_mul(3);

/// Every key with its meaning: the sample that `deploy/` ships. A test holds it against the keys that are read.
pub const SAMPLE: &str = include_str!("../../deploy/server.toml");

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Raw {
    server: RawServer,
    tls: RawTls,
    #[serde(default)]
    store: RawStore,
    task: RawTask,
    phases: RawPhases,
    summer: Option<RawSummer>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawSummer {
    name: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawServer {
    listen: Option<String>,
    http: Option<String>,
    #[serde(default)]
    http_hosts: Vec<String>,
    name: String,
    state: PathBuf,
    output: Option<PathBuf>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawTls {
    ca: PathBuf,
    cert: PathBuf,
    key: PathBuf,
    identity: Option<PathBuf>,
    crl: Option<PathBuf>,
    enrolled: Option<PathBuf>,
}

#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields)]
struct RawStore {
    url: Option<String>,
    keep_updates: Option<KeepUpdates>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawTask {
    file: PathBuf,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawPhases {
    min_sites: u32,
    max_sites: Option<u32>,
    update_deadline: String,
    start_deadline: Option<String>,
    suspend_for: Option<String>,
    linger: Option<String>,
}

impl Config {
    /// Reads a configuration file and the process's environment.
    ///
    /// # Errors
    /// [`ServerError::Config`] with the file or variable at fault.
    pub fn load(path: &Path) -> Result<Self> {
        let text = dp_pvi_programs::files::read_text(path).map_err(|e| ServerError::Config {
            place: path.display().to_string(),
            message: Problem::said(format!("{e}; name the file with --config"), e),
        })?;
        outputs::needs(path);
        let config = Self::parse(&text, path, std::env::vars_os())?;
        outputs::needs(&config.store.database);
        let TlsFiles { ca, cert, key, identity, crl, enrolled } = &config.tls;
        [ca, cert, key, identity, crl, enrolled].into_iter().for_each(|file| outputs::needs(file));
        config.schema_file().iter().for_each(|file| outputs::needs(file));
        Ok(config)
    }

    /// A file that the task names.
    pub(crate) fn beside_task(&self, file: &str) -> PathBuf {
        self.task.parent().unwrap_or(Path::new("")).join(file)
    }

    /// The schema's file; of a task that cannot be parsed every file that it seems to name.
    fn schema_file(&self) -> Vec<PathBuf> {
        let text = std::fs::read_to_string(&self.task).unwrap_or_default();
        match dp_pvi_posterior::task::RawTask::parse(&text) {
            Ok(raw) => vec![self.beside_task(&raw.schema.file)],
            Err(_) => text.split(['"', '\'']).map(|part| self.beside_task(part)).filter(|path| path.is_file()).collect(),
        }
    }

    /// Parses the text of the file `path` under the given environment.
    ///
    /// # Errors
    /// [`ServerError::Config`] with the file or variable at fault.
    pub fn parse(text: &str, path: &Path, environment: impl IntoIterator<Item = (OsString, OsString)>) -> Result<Self> {
        read(text, path, environment, Raw::check)
    }
}

/// Reads and checks the file `path` with this text, under the given environment.
///
/// # Errors
/// [`ServerError::Config`] with the file or variable at fault.
pub(crate) fn read<R: DeserializeOwned, C>(
    text: &str,
    path: &Path,
    environment: impl IntoIterator<Item = (OsString, OsString)>,
    check: impl Fn(R, &Path) -> std::result::Result<C, String>,
) -> Result<C> {
    let ours = |(name, _): &(OsString, OsString)| name.to_str().is_some_and(|name| name.starts_with(PREFIX));
    let environment: Vec<(OsString, OsString)> = environment.into_iter().filter(ours).collect();
    let read = |environment: &[(OsString, OsString)]| {
        let error = |message: String| ServerError::Config { place: path.display().to_string(), message: message.into() };
        let mut table: toml::Table = text.parse().map_err(|e: toml::de::Error| error(e.to_string()))?;
        apply_environment(&mut table, environment)?;
        outputs::needs_named(&table, path.parent().unwrap_or(Path::new("")));
        // The overridden table has lost its lines, so the text itself is read again for a message with a line in it.
        let raw = R::deserialize(toml::Value::Table(table));
        let raw = raw.map_err(|merged| error(toml::from_str::<R>(text).err().unwrap_or(merged).to_string()))?;
        check(raw, path.parent().unwrap_or(Path::new(""))).map_err(error)
    };
    read(&environment).map_err(|error| {
        let blamed = to_blame(&environment, |others| read(others).is_ok());
        let names: Vec<&str> = blamed.into_iter().filter_map(|position| environment[position].0.to_str()).collect();
        match error {
            ServerError::Config { place, message } if !names.is_empty() && !names.contains(&place.as_str()) => {
                ServerError::Config { place: names.join(" or "), message: format!("{place}: {message}").into() }
            }
            other => other,
        }
    })
}

impl Raw {
    fn check(self, base: &Path) -> std::result::Result<Config, String> {
        let Self { server, tls, store, task, phases, summer } = self;
        let at = |path: PathBuf| base.join(path);
        let federation = check_federation(&server.name).map_err(|e| format!("[server] name: {e}"))?;
        let state = at(server.state);
        let ca = at(tls.ca);
        let beside = |name: &str| ca.parent().unwrap_or(Path::new("")).join(name);
        let database = match store.url.as_deref() {
            None => state.join("state.db"),
            Some(url) => match url.strip_prefix("sqlite:") {
                Some(file) if !file.is_empty() => at(PathBuf::from(file)),
                _ => return Err("[store] url: this version stores in SQLite only; write \"sqlite:FILE\"".into()),
            },
        };
        let phases = Phases {
            min_sites: at_least_one("min_sites", phases.min_sites)?,
            max_sites: at_least_one("max_sites", phases.max_sites.unwrap_or(200))?,
            update_deadline: duration("update_deadline", &phases.update_deadline)?,
            start_deadline: duration("start_deadline", phases.start_deadline.as_deref().unwrap_or("1h"))?,
            suspend_for: duration("suspend_for", phases.suspend_for.as_deref().unwrap_or("24h"))?,
            linger: phases.linger.as_deref().map_or(Ok(LINGER), |text| duration("linger", text))?,
        };
        if phases.min_sites > phases.max_sites {
            return Err("[phases] min_sites must not be above max_sites".into());
        }
        if phases.update_deadline < Duration::from_secs(1) {
            return Err("[phases] update_deadline must be at least \"1s\"".into());
        }
        let summer = summer.map(|summer| ClientId::new(summer.name).map_err(|e| format!("[summer] name: {e}"))).transpose()?;
        Ok(Config {
            summer,
            federation,
            listen: address("listen", server.listen.as_deref().unwrap_or("0.0.0.0:9092"))?,
            http: match server.http.as_deref().unwrap_or("127.0.0.1:9464") {
                "off" => None,
                text => Some(address("http", text)?),
            },
            http_hosts: server.http_hosts,
            output: server.output.map_or_else(|| state.clone(), at),
            tls: TlsFiles {
                cert: at(tls.cert),
                key: at(tls.key),
                identity: tls.identity.map_or_else(|| beside("server-identity.key"), at),
                crl: tls.crl.map_or_else(|| beside("crl.pem"), at),
                enrolled: tls.enrolled.map_or_else(|| beside("enrolled.json"), at),
                ca,
            },
            store: StoreConfig { database, updates: store.keep_updates.unwrap_or(KeepUpdates::All) },
            task: at(task.file),
            phases,
            state,
        })
    }
}

fn at_least_one(key: &str, value: u32) -> std::result::Result<u32, String> {
    if value == 0 { Err(format!("[phases] {key} must be at least 1")) } else { Ok(value) }
}

fn duration(key: &str, text: &str) -> std::result::Result<Duration, String> {
    humantime::parse_duration(text).map_err(|_| format!("[phases] {key}: {text:?} is not a duration; write for example \"30m\" or \"90s\""))
}

fn address(key: &str, text: &str) -> std::result::Result<SocketAddr, String> {
    text.parse().map_err(|_| format!("[server] {key}: {text:?} is not an address and port; write for example \"0.0.0.0:9092\""))
}

fn apply_environment(table: &mut toml::Table, environment: &[(OsString, OsString)]) -> Result<()> {
    for (name, value) in environment {
        let Some(name) = name.to_str() else { continue };
        let error = |message: String| ServerError::Config { place: name.to_owned(), message: message.into() };
        let parts: Vec<String> = name[PREFIX.len()..].split("__").map(str::to_lowercase).collect();
        let [section, key] = parts.as_slice() else {
            return Err(error(format!("write it as {PREFIX}SECTION__KEY")));
        };
        let value = value.to_str().map(str::to_owned).ok_or_else(|| error("the value is not UTF-8: set it again, or unset it".into()))?;
        let (key, value) = match key.strip_suffix("_file") {
            Some(key) => {
                outputs::needs(Path::new(&value));
                let text = std::fs::read_to_string(&value).map_err(|e| error(format!("{value}: {e}")))?;
                (key, text.trim_end_matches(['\r', '\n']).to_owned())
            }
            None => (key.as_str(), value),
        };
        let section = table.entry(section.clone()).or_insert_with(|| toml::Value::Table(toml::Table::new()));
        let toml::Value::Table(section) = section else {
            return Err(error("there is no such section".into()));
        };
        section.insert(key.to_owned(), value_of(value));
    }
    Ok(())
}

/// A TOML value, or the text itself where it is none.
fn value_of(text: String) -> toml::Value {
    let parsed = format!("v = {text}").parse::<toml::Table>().ok().and_then(|mut table| table.remove("v"));
    match parsed {
        Some(value) if !value.is_datetime() => value,
        _ => toml::Value::String(text),
    }
}

#[cfg(test)]
mod tests;
