//! `check`: everything that a run needs, one line each, with the name of what fails.

use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::Path;

use dp_pvi_accounting::PrivacyLoss;
use dp_pvi_data::{DataError, Inspection};
use dp_pvi_inference::methods::needs_memory;
use dp_pvi_inference::records::RecordError;
use dp_pvi_posterior::task::{ResolvedTask, Trust};
use dp_pvi_programs::log::shortened;
use dp_pvi_programs::problem::Problem;
use dp_pvi_protocol::text::visible;
use serde_json::json;
use time::format_description::well_known::Rfc3339;

use super::plan;
use crate::config::Config;
#[cfg(feature = "postgres")]
use crate::config::Database;
#[cfg(feature = "postgres")]
use crate::database::trial;
use crate::dry_run::{Expected, Where, dry_run};
use crate::error::{ClientError, Result};
use crate::ledger::{self, LedgerView};
use crate::output::{Output, name_of};
use crate::snapshot::{LocalSchema, in_memory_for, look_at, unit_in_words};
use crate::transport::GrpcTransport;
use crate::{clock, keys, run, screen, tls, train};

/// Whether the server is asked too.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Server {
    /// Connect, and check its certificate.
    Connect,
    /// Do not connect.
    Skip,
}

/// Runs all checks and fails with the first that failed.
///
/// # Errors
/// The first failure; all are printed.
pub async fn check(file: &Path, server: Server, output: Output) -> Result<()> {
    let mut report = Report { output, first: None };
    let Some(config) = report.step("configuration", Config::load(file), |c| format!("{} ({})", c.site.name, name_of(&c.site.role))) else {
        return report.end();
    };
    report.step("state folder", state_folder(&config.site.state), |()| config.site.state.display().to_string());
    report.step("policy", run::policy(&config), |_| format!("approval by {}", config.policy.approve));
    let identity = report.step("identity key", keys::identity(&config.tls.identity), |_| config.tls.identity.display().to_string());
    report
        .step("server identity", keys::server_identity(&config.tls.server_identity), |_| config.tls.server_identity.display().to_string());
    if config.policy.allow_trust.contains(&Trust::Aggregated)
        && let Some(aggregation) = &config.aggregation
    {
        report.step("summer identity", keys::summer_identity(&aggregation.summer), |key| {
            format!("{} (compare with its operators: {})", aggregation.summer.display(), keys::fingerprint(key.as_bytes()))
        });
    }
    let tls = report.step("certificate", tls::load(&config), |t| {
        format!("valid until {}", t.expires.format(&Rfc3339).unwrap_or_else(|_| t.expires.unix_timestamp().to_string()))
    });
    if let Some(words) = tls.as_ref().and_then(|tls| tls.ends_soon(clock::now())) {
        report.warn("certificate", &words);
    }
    let words = |loaded: &Loaded| match loaded.on_disk {
        true => "fits the schema; visits read the records from a file in the state folder, some thousand at a time".into(),
        false => "fits the schema".into(),
    };
    let inspected = inspect(&config);
    // What the site's own people have to know of its records, whether they can be used or not.
    if let Ok(Inspected { inspection: Some(inspection), .. }) = &inspected {
        screen::notes(inspection, &config).iter().for_each(|note| report.warn("data", note));
    }
    let admitted = match &inspected {
        Ok(Inspected { schema, inspection: Some(inspection), .. }) => Some(screen::admits_run(&config, schema, &inspection.screen)),
        _ => None,
    };
    let loaded = report.step("data", inspected.and_then(Inspected::loaded), words);
    if let Some(admitted) = admitted {
        report.step("records", admitted, |()| "so many of them contribute that a run may begin".into());
    }
    if let Some(note) = loaded.as_ref().and_then(Loaded::note) {
        report.warn("data", &note);
    }
    #[cfg(feature = "postgres")]
    if let (Some(database), Some(loaded)) = (&config.data.database, &loaded) {
        try_query(&mut report, database, loaded.schema.schema().unit_column());
    }
    readable_by_all(&config).iter().for_each(|warning| report.warn("data", warning));
    let ledger = match (config.private(), identity) {
        (Ok(private), Some(key)) => {
            let opened = ledger::read_only(private, key).map(|ledger| {
                let spent = ledger.losses().joint;
                (ledger, spent)
            });
            let words = |(ledger, spent): &(LedgerView, PrivacyLoss)| {
                format!("{} rows, epsilon {} spent", ledger.rows().len(), crate::output::epsilon(spent.epsilon.get()))
            };
            let opened = opened.and_then(|(ledger, spent)| match &loaded {
                Some(loaded) => Ok(ledger.check_units(&unit_in_words(&config, &loaded.schema)?).map(|()| (ledger, spent))?),
                None => Ok((ledger, spent)),
            });
            // What can be read may still be on a disk, or of a user, that lets no row be added.
            let opened = opened.and_then(|opened| ledger::check_writable(private).map(|()| opened));
            let opened = report.step("ledger", opened, words).map(|(ledger, _)| (private, ledger));
            crate::ledger::too_near(private).iter().for_each(|warning| report.warn("ledger", warning));
            opened
        }
        _ => None,
    };
    if let (Server::Connect, Some(tls)) = (server, tls) {
        let mut transport = GrpcTransport::new(&config.site, tls);
        let connected = transport.connect().await.map_err(|e| ClientError::from(e).at_server(&config.site.server()));
        let connected = report.step("server", connected, |()| format!("{} answers and accepts this client", config.site.server()));
        if let (Some(()), Some((private, ledger))) = (connected, ledger) {
            let task = plan::ask_server(&config, private, &ledger).await;
            let task = task.and_then(|task| match loaded.as_ref().map_or(Ok(()), |loaded| loaded.schema.is_of(&task)) {
                Ok(()) => Ok(task),
                Err(other) => Err(ClientError::Data(other.into())),
            });
            let task = report.step("task", task, |task| format!("{} ({})", task.name, task.hash()));
            if let (Some(loaded), Some(task)) = (&loaded, &task)
                && loaded.on_disk
                && needs_memory(task)
            {
                report.warn("task", &in_memory_for(loaded.schema.schema(), private.nominal_units));
            }
            if let (Some(loaded), Some(task)) = (&loaded, &task) {
                visits(&mut report, &config, task, private.nominal_units, loaded.on_disk);
            }
            task.iter().flat_map(ResolvedTask::warnings).for_each(|warning| report.warn("task", &warning));
        }
    }
    report.end()
}

#[cfg(feature = "postgres")]
/// What can be tried of a query that the operator vouches for.
fn try_query(report: &mut Report, database: &Database, unit_column: Option<&str>) {
    let found = match trial(database, unit_column) {
        Ok(None) => return,
        Ok(Some(found)) => found,
        Err(error) => return report.warn("query", &format!("it was not tried: {}", error.shown())),
    };
    found.untried.iter().for_each(|words| report.warn("query", &format!("not tried: {words}")));
    let outcome = match found.against.is_empty() {
        true => Ok(found.tried),
        false => Err(ClientError::Refused(
            format!("{}: {}; so it is not as its operator says", database.rows.file().display(), found.against.join("; ")).into(),
        )),
    };
    report.step("query", outcome, |tried| {
        format!("the same rows of all others when {} (a trial proves nothing: it stands on your word)", tried.join(", "))
    });
}

/// What a visit will take, by a dry run on invented records.
fn visits(report: &mut Report, config: &Config, task: &ResolvedTask, units: u64, on_disk: bool) {
    let place = Where { site: &config.site.name, state: &config.site.state, threads: config.site.threads, on_disk };
    let expected = match dry_run(task, units, place) {
        Ok(expected) => expected,
        // What a run needs is not in this: it is only not known.
        Err(error) => return report.warn("visits", &format!("time and memory are not estimated: {}", error.shown())),
    };
    let words = |expected: &Option<Expected>| match expected {
        Some(Expected { seconds, bytes, invented, passes }) => format!(
            "the first of {} takes about {} on {} threads{} (by {invented} invented records, one a unit{})",
            task.visits(),
            clock::in_words(*seconds),
            place.threads,
            bytes.map_or_else(String::new, |bytes| format!(", and the program {} MiB of memory", bytes.div_ceil(1 << 20))),
            passes.map_or_else(String::new, |passes| format!(", and {passes} of the {} passes over them", task.passes())),
        ),
        None => "time and memory are not estimated for records that are no table".into(),
    };
    let expected = report.step("visits", Ok(expected), words).flatten();
    let deadline = task.update_deadline_seconds;
    if let Some(Expected { seconds, .. }) = expected
        && seconds > std::time::Duration::from_secs(deadline).as_secs_f64()
    {
        report.warn(
            "visits",
            &format!(
                "the server waits {deadline} seconds for an update: ask the coordinator for a longer update_deadline, or set [site] threads"
            ),
        );
    }
}

struct Report {
    output: Output,
    first: Option<ClientError>,
}

impl Report {
    fn step<T>(&mut self, name: &str, result: Result<T>, words: impl FnOnce(&T) -> String) -> Option<T> {
        match result {
            Ok(value) => {
                let words = visible(&words(&value)).into_owned();
                self.output.object(|| json!({"check": name, "ok": true, "detail": words}), || format!("ok      {name}: {words}"));
                Some(value)
            }
            Err(error) => {
                let (detail, shown) = (shortened(&error.to_string()).into_owned(), error.shown());
                // The kind of an error is often the name of the step.
                let words = shown.strip_prefix(&format!("{name}: ")).unwrap_or(&shown);
                self.output.object(
                    || json!({"check": name, "ok": false, "code": error.exit_code(), "detail": detail}),
                    || format!("FAILED  {name}: {words}"),
                );
                self.first.get_or_insert(error);
                None
            }
        }
    }

    /// What someone should know although nothing failed.
    fn warn(&self, name: &str, words: &str) {
        self.output.object(|| json!({"check": name, "ok": true, "warning": words}), || format!("warning {name}: {}", visible(words)));
    }

    fn end(self) -> Result<()> {
        self.first.map_or(Ok(()), Err)
    }
}

/// Files with private records that every user of this machine can read. A warning only: who may read them is for the site to say.
fn readable_by_all(config: &Config) -> Vec<String> {
    let files = config.data.files.iter().filter(|_| config.data.private.is_some());
    files
        .filter_map(|file| {
            let mode = std::fs::metadata(file).ok()?.mode() & 0o777;
            let path = file.display();
            (mode & 0o004 != 0)
                .then(|| format!("{path}: every user of this machine can read these records (mode {mode:o}): `chmod o-r {path}`"))
        })
        .collect()
}

fn state_folder(path: &Path) -> Result<()> {
    let unwritten = |e: std::io::Error| ClientError::config("site.state", format!("{}: cannot be written ({e})", path.display()));
    std::fs::DirBuilder::new().recursive(true).mode(0o700).create(path).map_err(unwritten)?;
    // First: in a folder that others may change, a name may be their link.
    keys::check_state(path)?;
    tempfile::tempfile_in(path).map(drop).map_err(unwritten)
}

/// Reads the data through the site's schema and counts what it does to them.
fn inspect(config: &Config) -> Result<Inspected> {
    let schema = LocalSchema::read(&config.data.schema)?;
    let failed = |e: DataError| ClientError::Data(Problem::of(e));
    let Some(private) = &config.data.private else {
        dp_pvi_data::PublicCells::load(schema.schema(), &config.data.files, None).map_err(failed)?;
        return Ok(Inspected { schema, inspection: None, rejected: None, declared: 0, on_disk: false });
    };
    train::check_declared(config)?;
    let files = look_at(config, schema.schema())?;
    let on_disk = config.data.is_on_disk(schema.schema());
    let inspection = dp_pvi_data::inspect(schema.schema(), &files).map_err(failed)?;
    // A table in memory has fewer than 2^32 entries.
    let too_large = (!on_disk && inspection.entries_held > u64::from(u32::MAX)).then_some(DataError::Table(RecordError::TooLarge));
    let rejected = inspection.first_rejection(&files).or(too_large);
    Ok(Inspected { schema, inspection: Some(inspection), rejected, declared: private.nominal_units, on_disk })
}

/// The records, as they were looked at.
struct Inspected {
    schema: LocalSchema,
    /// Of private ones.
    inspection: Option<Inspection>,
    /// The first reason why they cannot be used as they are.
    rejected: Option<DataError>,
    /// Units, as the site declares them.
    declared: u64,
    on_disk: bool,
}

impl Inspected {
    /// Unlike a run this stops at the first record that the schema rejects.
    fn loaded(self) -> Result<Loaded> {
        if let Some(rejected) = self.rejected {
            return Err(ClientError::Data(Problem::of(rejected)));
        }
        let more = |a: u64, b: u64| a.checked_sub(b).filter(|difference| *difference > 0);
        let (surplus, missing) = match self.inspection {
            None => (None, None),
            Some(Inspection { units, .. }) => (more(units, self.declared), more(self.declared, units)),
        };
        Ok(Loaded { schema: self.schema, surplus, missing, on_disk: self.on_disk })
    }
}

/// What `check` says of the data.
struct Loaded {
    schema: LocalSchema,
    /// Units above the declared number.
    surplus: Option<u64>,
    /// Units below it.
    missing: Option<u64>,
    /// Whether visits read the records from the disk.
    on_disk: bool,
}

impl Loaded {
    /// How the counted number of units and the declared one go together, for the operator's eyes.
    fn note(&self) -> Option<String> {
        if let Some(surplus) = self.surplus {
            return Some(format!(
                "{surplus} privacy units more than [data] nominal_units: where an update gives every unit a place, they contribute nothing; where it \
                 sums over all units, a sum that is larger than the declared number allows is cut to that. Declare at least as many units as there are"
            ));
        }
        let missing = self.missing?;
        Some(format!("{missing} privacy units fewer than [data] nominal_units: where an update gives every unit a place, theirs are empty"))
    }
}
