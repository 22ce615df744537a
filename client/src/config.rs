//! `client.toml`: read once at the edge, turned into checked types, never checked again.
//!
//! Every key can be overridden by the environment as `DP_PVI__SECTION__KEY`; values are TOML (`true`, `2.0`, `["a", "b"]`), and
//! what is not TOML is taken as text. Paths are relative to the folder of the file. Unknown keys are errors.

mod aggregation;
#[cfg(feature = "postgres")]
mod database;
#[cfg(not(feature = "postgres"))]
#[path = "config/no_database.rs"]
mod database;
mod engine;

use std::ffi::OsString;
use std::fmt;
use std::net::{IpAddr, Ipv6Addr};
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::thread::available_parallelism;
use std::time::Duration;

use dp_pvi_accounting::{Delta, Epsilon, PrivacyUnit, Relation};
use dp_pvi_names::{ClientId, Hash};
use dp_pvi_posterior::task::Trust;
use dp_pvi_privacy::ledger::{Budget, LedgerIdentity};
use dp_pvi_programs::environment::{PREFIX, to_blame};
use dp_pvi_programs::outputs;
use dp_pvi_programs::problem::Problem;
use dp_pvi_protocol::message::Role;
use serde::Deserialize;
use tracing::warn;

pub use self::aggregation::Aggregation;
use self::aggregation::RawAggregation;
pub use self::database::Database;
use self::database::RawDatabase;
#[cfg(feature = "postgres")]
pub use self::database::{DatabaseTls, KeepRows, RowsBy};
pub use self::engine::Engine;
use self::engine::RawEngine;
use crate::error::{CONFIGURATION, ClientError, Result};

/// Port of the server for sites, where `[site] server` names none.
const DEFAULT_PORT: u16 = 9092;

/// Every key with its meaning: the sample that `deploy/` ships. A test holds it against the keys that are read.
pub const SAMPLE: &str = include_str!("../../deploy/client.toml");

/// Checked configuration of one client.
#[derive(Debug, Clone)]
pub struct Config {
    /// Who this client is and whom it talks to.
    pub site: Site,
    /// Keys and certificates.
    pub tls: Tls,
    /// The data set.
    pub data: Data,
    /// What this site takes part in.
    pub policy: Policy,
    /// The second party of aggregated runs, and what is asked of them; there where the policy allows aggregated trust.
    pub aggregation: Option<Aggregation>,
}

/// `[site]`.
#[derive(Debug, Clone)]
pub struct Site {
    /// Name, as in the certificate.
    pub name: ClientId,
    /// Site or evaluator.
    pub role: Role,
    /// Host of the server.
    pub host: String,
    /// Port of the server.
    pub port: u16,
    /// Name that the server's certificate must carry (the host unless given).
    pub server_name: String,
    /// Name of the federation.
    pub federation: String,
    /// Folder of this process's own state (approvals).
    pub state: PathBuf,
    /// How long an unreachable server is tried again before the client gives up.
    pub reconnect: Duration,
    /// Threads that compute a visit: those of the machine unless given.
    pub threads: NonZeroUsize,
}

impl Site {
    /// `host:port`.
    #[must_use]
    pub fn server(&self) -> String {
        match self.host.parse::<Ipv6Addr>() {
            Ok(address) => format!("[{address}]:{}", self.port),
            Err(_) => format!("{}:{}", self.host, self.port),
        }
    }
}

/// `[tls]`: files only; secrets are read where they are used and erased afterwards.
#[derive(Debug, Clone)]
pub struct Tls {
    /// Certificate of the federation's authority.
    pub ca: PathBuf,
    /// This client's certificate chain.
    pub cert: PathBuf,
    /// Key of that certificate (0600).
    pub key: PathBuf,
    /// Ed25519 identity key (0600).
    pub identity: PathBuf,
    /// File with the server's public identity key (the `PUBLIC KEY` block that `ca` writes beside its certificate, unless named).
    pub server_identity: PathBuf,
}

/// `[data]`.
#[derive(Debug, Clone)]
pub struct Data {
    /// Name of the data set: part of the ledger's identity.
    pub name: String,
    /// Files, in order; none where the records are in a database.
    pub files: Vec<PathBuf>,
    /// Where the records are rows of a query.
    pub database: Option<Database>,
    /// This site's own copy of the public schema; a task with another one is refused.
    pub schema: PathBuf,
    /// Where the records are while the program runs.
    pub cache: Cache,
    /// Share of the records that may contribute nothing before the data set waits for its operator.
    pub halt_above: f64,
    /// The cluster that sums their terms, where there is one.
    pub engine: Option<Engine>,
    /// What belongs to a private data set only.
    pub private: Option<PrivateData>,
}

/// `[data] cache`: where a site's records are between its hello and the end of the run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Cache {
    /// In memory.
    #[default]
    Memory,
    /// On the disk if the declared units would take more than [`Cache::LARGEST_IN_MEMORY`], in memory otherwise.
    Auto,
    /// In a file without a name in the state folder; a sum reads some thousand units at a time.
    Disk,
}

impl Cache {
    /// Bytes: 1 GiB.
    pub const LARGEST_IN_MEMORY: u64 = 1 << 30;
}

/// The part of `[data]` and `[budget]` that an evaluator does not have.
#[derive(Debug, Clone)]
pub struct PrivateData {
    /// The data set's ledger.
    pub ledger: PathBuf,
    /// Where the ledger's highest head is kept apart from it.
    pub ledger_head: PathBuf,
    /// Declared number of privacy units; public, fixed for a run.
    pub nominal_units: u64,
    /// What the ledger is about; fixed by its first row.
    pub identity: LedgerIdentity,
    /// The data set's budget.
    pub budget: Budget,
}

/// `[policy]`: what this site agrees to.
#[derive(Debug, Clone)]
pub struct Policy {
    /// Trust models.
    pub allow_trust: Vec<Trust>,
    /// Whether ε = ∞ may be released.
    pub allow_non_private: bool,
    /// Fewest privacy units with which the site takes part.
    pub min_records: u64,
    /// Who approves a task.
    pub approve: Approve,
    /// Least `release_tick_seconds` of a task; 0: any.
    pub min_release_tick_seconds: u64,
}

/// Who approves a task.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Approve {
    /// Whatever the rest of the policy allows.
    Policy,
    /// Only tasks, and charters of aggregated runs, recorded by `approve HASH`.
    Manual,
    /// Only this task.
    Task(Hash),
}

impl Config {
    /// Reads a file, applies overrides of the process environment and checks everything. The log names the variables: a policy or a budget may be
    /// among them.
    ///
    /// # Errors
    /// [`ClientError::Config`] with the failing field.
    pub fn load(file: &Path) -> Result<Self> {
        let text = dp_pvi_programs::files::read_text(file)
            .map_err(|e| ClientError::config(file.display().to_string(), format!("cannot be read ({e}): name the file with --config")))?;
        outputs::needs(file);
        let folder = file.parent().unwrap_or(Path::new(""));
        let environment = overrides(std::env::vars_os())?;
        if !environment.is_empty() {
            let names: Vec<&str> = environment.iter().map(|(name, _)| name.as_str()).collect();
            warn!(variables = names.join(", "), "the environment sets these in place of {}", file.display());
        }
        let config = Self::parse(&text, folder, environment).map_err(|error| error.in_file(file))?;
        outputs::needs(&config.site.state);
        config.data.files.iter().for_each(|file| outputs::needs(file));
        if let Some(private) = &config.data.private {
            outputs::needs(&private.ledger);
            outputs::needs(&private.ledger_head);
        }
        Ok(config)
    }

    /// The same from memory: paths are relative to `folder`, overrides come from `environment`.
    ///
    /// # Errors
    /// [`ClientError::Config`] with the failing field, or with the variable that is at fault.
    pub fn parse(text: &str, folder: &Path, environment: impl IntoIterator<Item = (String, String)>) -> Result<Self> {
        let ours = |(name, _): &(String, String)| name.starts_with(PREFIX);
        let environment: Vec<(String, String)> = environment.into_iter().filter(ours).collect();
        Self::parse_with(text, folder, &environment).map_err(|error| {
            let blamed = to_blame(&environment, |others| Self::parse_with(text, folder, others).is_ok());
            let names: Vec<&str> = blamed.into_iter().map(|position| environment[position].0.as_str()).collect();
            match error {
                // The line that is quoted is not one of the file.
                ClientError::Config { field, message } if !names.is_empty() && !names.contains(&field.as_str()) => {
                    ClientError::config(names.join(" or "), format!("{field}: {message}"))
                }
                other => other,
            }
        })
    }

    fn parse_with(text: &str, folder: &Path, environment: &[(String, String)]) -> Result<Self> {
        let mut table: toml::Table =
            toml::from_str(text).map_err(|e| ClientError::config(CONFIGURATION, e.to_string().trim_end().to_owned()))?;
        for (name, value) in environment {
            apply_override(&mut table, name, value)?;
        }
        // Serialised again so that messages of the checks below quote the line with the key, overrides included.
        outputs::needs_named(&table, folder);
        let merged = toml::to_string(&table).map_err(|e| ClientError::config(CONFIGURATION, Problem::of(e)))?;
        let raw: RawConfig =
            toml::from_str(&merged).map_err(|e| ClientError::config(CONFIGURATION, e.to_string().trim_end().to_owned()))?;
        raw.check(folder)
    }

    /// The private part of the data section.
    ///
    /// # Errors
    /// The client is an evaluator.
    pub fn private(&self) -> Result<&PrivateData> {
        self.data.private.as_ref().ok_or_else(|| {
            ClientError::config("site.role", "an evaluator holds public data only: it has no ledger, no budget and nothing to approve")
        })
    }
}

/// Our variables of an environment.
///
/// # Errors
/// [`ClientError::Config`] with the name of one whose value cannot be read.
pub fn overrides(environment: impl IntoIterator<Item = (OsString, OsString)>) -> Result<Vec<(String, String)>> {
    let ours = environment.into_iter().filter_map(|(name, value)| Some((name.into_string().ok()?, value)));
    ours.filter(|(name, _)| name.starts_with(PREFIX))
        .map(|(name, value)| match value.into_string() {
            Ok(value) => Ok((name, value)),
            Err(_) => Err(ClientError::config(name, "the value is not UTF-8: set it again, or unset it")),
        })
        .collect()
}

fn apply_override(table: &mut toml::Table, name: &str, value: &str) -> Result<()> {
    let Some(path) = name.strip_prefix(PREFIX) else { return Ok(()) };
    let Some((section, key)) = path.split_once("__") else {
        return Err(ClientError::config(name, "overrides are named DP_PVI__SECTION__KEY"));
    };
    // Only configuration of this process reaches here; what is not a TOML value is text.
    let parsed = format!("v = {value}").parse::<toml::Table>().ok().and_then(|mut t| t.remove("v"));
    let value = parsed.unwrap_or_else(|| toml::Value::String(value.to_owned()));
    let section = section.to_ascii_lowercase();
    match table.entry(section).or_insert_with(|| toml::Value::Table(toml::Table::new())) {
        toml::Value::Table(inner) => {
            inner.insert(key.to_ascii_lowercase(), value);
            Ok(())
        }
        _ => Err(ClientError::config(name, "the section is not a table")),
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawConfig {
    site: RawSite,
    tls: RawTls,
    data: RawData,
    #[serde(default)]
    policy: RawPolicy,
    budget: Option<RawBudget>,
    database: Option<RawDatabase>,
    engine: Option<RawEngine>,
    aggregation: Option<RawAggregation>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawSite {
    name: ClientId,
    #[serde(default = "site_role")]
    role: Role,
    server: String,
    server_name: Option<String>,
    federation: String,
    #[serde(default = "state_folder")]
    state: PathBuf,
    #[serde(default = "reconnect_seconds")]
    reconnect_seconds: u64,
    threads: Option<NonZeroUsize>,
}

fn site_role() -> Role {
    Role::Site
}

fn state_folder() -> PathBuf {
    "state".into()
}

fn reconnect_seconds() -> u64 {
    600
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

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawData {
    name: String,
    uri: Option<OneOrMany>,
    schema: Option<PathBuf>,
    ledger: Option<PathBuf>,
    ledger_head: Option<PathBuf>,
    nominal_units: Option<u64>,
    #[serde(default)]
    cache: Cache,
    #[serde(default = "halt_above")]
    halt_above: f64,
}

fn halt_above() -> f64 {
    0.2
}

#[derive(Deserialize)]
#[serde(untagged)]
enum OneOrMany {
    One(String),
    Many(Vec<String>),
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, default)]
struct RawPolicy {
    allow_trust: Vec<Trust>,
    allow_non_private: bool,
    min_records: u64,
    approve: RawApprove,
    min_release_tick_seconds: u64,
}

impl Default for RawPolicy {
    fn default() -> Self {
        Self {
            allow_trust: vec![Trust::Local],
            allow_non_private: false,
            min_records: 1,
            approve: RawApprove(Approve::Policy),
            min_release_tick_seconds: 0,
        }
    }
}

#[derive(Deserialize)]
#[serde(try_from = "String")]
struct RawApprove(Approve);

impl TryFrom<String> for RawApprove {
    type Error = &'static str;
    fn try_from(text: String) -> std::result::Result<Self, Self::Error> {
        match text.as_str() {
            "policy" => Ok(Self(Approve::Policy)),
            "manual" => Ok(Self(Approve::Manual)),
            text if text.starts_with("sha256:") => {
                text.parse().map(|hash| Self(Approve::Task(hash))).map_err(|_| "sha256: must be followed by 64 hexadecimal digits")
            }
            _ => Err("approve is \"policy\", \"manual\" or \"sha256:…\" (the hash that `dp-pvi-client plan` prints)"),
        }
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawBudget {
    epsilon: Epsilon,
    delta: Delta,
    per_run_epsilon: Option<Epsilon>,
    max_fallback_epsilon: Option<Epsilon>,
    #[serde(default = "record_unit")]
    unit: PrivacyUnit,
    #[serde(default = "replace_one")]
    relation: Relation,
}

fn record_unit() -> PrivacyUnit {
    PrivacyUnit::Record
}

/// The stronger one: a ledger under it may book tasks of both.
fn replace_one() -> Relation {
    Relation::ReplaceOne
}

impl RawConfig {
    fn check(self, folder: &Path) -> Result<Config> {
        let at = |path: &Path| folder.join(path);
        let (host, port) = split_server(&self.site.server)?;
        check_name("site.federation", &self.site.federation)?;
        check_name("data.name", &self.data.name)?;
        let files = match self.data.uri {
            Some(OneOrMany::One(uri)) => vec![uri],
            Some(OneOrMany::Many(uris)) => uris,
            None => Vec::new(),
        };
        if !(0.0..=1.0).contains(&self.data.halt_above) {
            return Err(ClientError::config(
                "data.halt_above",
                "must be a share between 0 and 1: above it records that contribute nothing halt the data set",
            ));
        }
        let database = self.database.map(|database| database.check(folder)).transpose()?;
        match &database {
            None if files.is_empty() => {
                return Err(ClientError::config(
                    "data.uri",
                    "names no file (records in a database: leave the key out, and write a section [database])",
                ));
            }
            Some(_) if !files.is_empty() => {
                return Err(ClientError::config(
                    "data.uri",
                    "names files beside [database]: a data set is in one place; remove the key or the section",
                ));
            }
            _ => {}
        }
        let files = files.iter().map(|uri| files_of(uri, folder)).collect::<Result<Vec<_>>>()?.concat();
        if self.policy.allow_trust.is_empty() {
            return Err(ClientError::config("policy.allow_trust", "allows nothing: list \"local\", \"aggregated\" or both"));
        }
        // Evaluators, too: one rule, and no one reads a file through a schema that came from elsewhere.
        let schema = self.data.schema.ok_or_else(|| {
            ClientError::config(
                "data.schema",
                "is missing: name this site's own copy of the public schema. A task is accepted with this schema only, whoever approves it \
                 (approve = \"policy\" included): otherwise the coordinator would decide what a value of your records may be",
            )
        })?;
        let private = match self.site.role {
            Role::Evaluator => {
                for (field, given) in [
                    ("data.ledger", self.data.ledger.is_some()),
                    ("data.ledger_head", self.data.ledger_head.is_some()),
                    ("data.nominal_units", self.data.nominal_units.is_some()),
                    ("budget", self.budget.is_some()),
                    ("database", database.is_some()),
                    ("engine", self.engine.is_some()),
                    ("aggregation", self.aggregation.is_some()),
                ] {
                    if given {
                        return Err(ClientError::config(
                            field,
                            "an evaluator holds public data only; remove the key or set role = \"site\"",
                        ));
                    }
                }
                None
            }
            Role::Site => {
                let ledger = self.data.ledger.ok_or_else(|| {
                    ClientError::config("data.ledger", "is missing: every private data set has one ledger, wherever it is used")
                })?;
                let nominal_units = self.data.nominal_units.filter(|n| *n > 0).ok_or_else(|| {
                    ClientError::config(
                        "data.nominal_units",
                        "is missing or 0: declare how many privacy units a data set of this kind holds, as a round number that everybody may know; \
                         it need not be, and under add-remove must not be, the exact count",
                    )
                })?;
                let budget =
                    self.budget.ok_or_else(|| ClientError::config("budget", "is missing: set epsilon and delta of this data set"))?;
                if budget.unit == PrivacyUnit::Site && budget.relation == Relation::AddRemove {
                    return Err(ClientError::config(
                        "budget.relation",
                        "cannot be \"add-remove\" with unit = \"site\": whether a site is there is seen by everybody, so no noise could hide its absence; use \"replace-one\"",
                    ));
                }
                if budget.max_fallback_epsilon.is_some_and(|cap| cap < budget.epsilon) {
                    return Err(ClientError::config(
                        "budget.max_fallback_epsilon",
                        "is below epsilon: what all others together could learn is never less than what one of them can; raise it, or lower epsilon",
                    ));
                }
                let identity = LedgerIdentity { data: self.data.name.clone(), unit: budget.unit, relation: budget.relation };
                let budget = Budget {
                    epsilon: budget.epsilon,
                    delta: budget.delta,
                    per_run: budget.per_run_epsilon,
                    max_fallback: budget.max_fallback_epsilon,
                    allow_non_private: self.policy.allow_non_private,
                };
                let head = self.data.ledger_head.unwrap_or_else(|| self.site.state.join(format!("{}.head", self.data.name)));
                Some(PrivateData { ledger: at(&ledger), ledger_head: at(&head), nominal_units, identity, budget })
            }
        };
        // An evaluator sends no updates: it signs no charter.
        let aggregation = match self.site.role {
            Role::Evaluator => None,
            Role::Site => aggregation::check(self.aggregation, &self.policy.allow_trust, folder)?,
        };
        Ok(Config {
            site: Site {
                name: self.site.name,
                role: self.site.role,
                server_name: self.site.server_name.unwrap_or_else(|| host.clone()),
                host,
                port,
                federation: self.site.federation,
                state: at(&self.site.state),
                reconnect: Duration::from_secs(self.site.reconnect_seconds),
                threads: self.site.threads.unwrap_or_else(|| available_parallelism().unwrap_or(NonZeroUsize::MIN)),
            },
            tls: Tls {
                ca: at(&self.tls.ca),
                cert: at(&self.tls.cert),
                key: at(&self.tls.key),
                identity: at(&self.tls.identity),
                server_identity: at(self.tls.server_identity.as_ref().unwrap_or(&self.tls.ca)),
            },
            data: Data {
                name: self.data.name,
                files,
                database,
                schema: at(&schema),
                cache: self.data.cache,
                halt_above: self.data.halt_above,
                engine: self.engine.map(|engine| engine.check(folder)),
                private,
            },
            policy: Policy {
                allow_trust: self.policy.allow_trust,
                allow_non_private: self.policy.allow_non_private,
                min_records: self.policy.min_records,
                approve: self.policy.approve.0,
                min_release_tick_seconds: self.policy.min_release_tick_seconds,
            },
            aggregation,
        })
    }
}

/// Federation and data names follow the rule of site names: they end up in certificates, ledgers and file names.
pub(crate) fn check_name(field: &str, name: &str) -> Result<()> {
    ClientId::new(name).map(|_| ()).map_err(|e| ClientError::config(field, Problem::of(e)))
}

/// The file that a URI names, or all that a name with `*` fits, in the order of their names.
fn files_of(uri: &str, folder: &Path) -> Result<Vec<PathBuf>> {
    let path = match uri.split_once("://") {
        Some(("file", path)) => path,
        Some((scheme, _)) => {
            return Err(ClientError::config(
                "data.uri",
                format!("{scheme}:// is not supported here: name CSV or Parquet files (a database has a section of its own, [database])"),
            ));
        }
        None => uri,
    };
    if path.is_empty() {
        return Err(ClientError::config("data.uri", "is empty"));
    }
    let path = folder.join(path);
    let Some(pattern) = path.to_str().filter(|_| uri.contains('*')) else { return Ok(vec![path]) };
    // As in a shell: names that begin with a point are what other programs keep beside the data.
    let rule = glob::MatchOptions { require_literal_leading_dot: true, ..glob::MatchOptions::new() };
    let found =
        glob::glob_with(pattern, rule).map_err(|e| ClientError::config("data.uri", format!("{uri} is no pattern of names ({e})")))?;
    let mut files =
        found.collect::<std::result::Result<Vec<_>, _>>().map_err(|e| ClientError::config("data.uri", format!("{uri}: {e}")))?;
    files.sort();
    if files.is_empty() {
        let folder = if folder.as_os_str().is_empty() { Path::new(".") } else { folder };
        return Err(ClientError::config("data.uri", format!("{uri} fits no file in the folder {}", folder.display())));
    }
    Ok(files)
}

fn split_server(server: &str) -> Result<(String, u16)> {
    let wrong = || ClientError::config("site.server", "is not HOST or HOST:PORT");
    if server.contains('%') {
        let zone =
            "names a zone (%): a certificate holds none, and the zone is of one machine alone. Write a name, or an address without a zone";
        return Err(ClientError::config("site.server", zone));
    }
    if !server.is_ascii() {
        let form = "has letters that a certificate cannot hold: write the name as DNS has it, in its form with xn--";
        return Err(ClientError::config("site.server", form));
    }
    let (host, port) = if let Some(rest) = server.strip_prefix('[') {
        let (host, rest) = rest.split_once(']').ok_or_else(wrong)?;
        host.parse::<Ipv6Addr>().map_err(|_| wrong())?;
        (host, rest.strip_prefix(':').or(rest.is_empty().then_some("9092")).ok_or_else(wrong)?.parse().map_err(|_| wrong())?)
    } else {
        match server.rsplit_once(':') {
            Some((host, port)) => (host, port.parse().map_err(|_| wrong())?),
            None => (server, DEFAULT_PORT),
        }
    };
    let plain = |b: u8| b.is_ascii_alphanumeric() || b == b'-' || b == b'.' || b == b'_';
    if host.is_empty() || !(host.bytes().all(plain) || host.parse::<IpAddr>().is_ok()) {
        return Err(wrong());
    }
    Ok((host.to_owned(), port))
}

impl fmt::Display for Approve {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Policy => f.write_str("policy"),
            Self::Manual => f.write_str("manual"),
            Self::Task(hash) => write!(f, "sha256:{hash}"),
        }
    }
}
