//! The records of a run: read once, before the site says hello, and the same until the run is over.
//!
//! Nothing that the server sees depends on reading them: what is wrong with a file as a whole ends the program before the first message,
//! and nothing that one record holds is wrong ([`dp_pvi_data::load_for_run`]). What is read are cells; rows of a task's formula are made of them in the first visit: like the
//! computation they take time, which a release tick hides, and memory up to a public bound.
//!
//! A run may last longer than this process. What a site keeps of it (factors, shards) belongs to the units at their places, so a start in
//! the middle of a run must find the same records. A file in the state folder says which runs this site joined and holds a fingerprint of
//! its records in each, which only the identity key can compare with others. Records that were changed meanwhile are told to the operator, and
//! the program does not start. From outside this looks like any site that stays away; it tells anyone who waits for it that someone may
//! have edited the files of a running study, and nothing about a record. Of a run that is over the fingerprint stays in a file beside it, so that a
//! personal posterior ([`crate::commands::personalise`]) is not made of other records than its run.

use std::collections::BTreeMap;
use std::fs;
use std::io::ErrorKind;
use std::num::NonZeroUsize;
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use dp_pvi_data::{DataError, DataFile, MOST_FORMULA_ENTRIES, Screen, load_for_run, load_to_disk, memory_of};
use dp_pvi_inference::methods::needs_memory;
use dp_pvi_inference::methods::partial_sums::can_be_in_parts;
use dp_pvi_inference::records::RecordTable;
use dp_pvi_names::{ClientId, Hash, RunId};
use dp_pvi_posterior::task::{DesignSpec, ResolvedTask};
use dp_pvi_privacy::Units;
use dp_pvi_programs::files;
use dp_pvi_programs::problem::Problem;
use dp_pvi_protocol::origin::{Origin, RowsBy};
use dp_pvi_schema::Schema;
use ed25519_dalek::{Signer, SigningKey};
use serde::{Deserialize, Serialize};
use zeroize::{Zeroize, Zeroizing};

use crate::config::{Cache, Config, Data};
use crate::database::{self, Kept};
use crate::engine;
use crate::error::{ClientError, Result};

/// A site's own copy of the public schema.
pub struct LocalSchema {
    path: PathBuf,
    text: String,
    schema: Schema,
}

impl LocalSchema {
    /// Reads and checks the file that `[data] schema` names.
    ///
    /// # Errors
    /// [`ClientError::InvalidFile`].
    pub fn read(path: &Path) -> Result<Self> {
        let invalid = |message: Problem| ClientError::InvalidFile { file: path.to_owned(), message };
        let text = dp_pvi_programs::files::read_text(path)
            .map_err(|e| invalid(Problem::said(format!("[data] schema cannot be read ({e})"), e)))?;
        let schema = Schema::parse(&text).map_err(|e| invalid(Problem::of(e)))?;
        Ok(Self { path: path.to_owned(), text, schema })
    }

    /// What it says.
    #[must_use]
    pub fn schema(&self) -> &Schema {
        &self.schema
    }

    /// A name of this text, for what is kept about it.
    #[must_use]
    pub fn hash(&self) -> String {
        Hash::of("dp-pvi-client schema v1", &[self.text.as_bytes()]).to_string()
    }

    /// Whether the task has this schema, byte for byte. Otherwise someone else would decide what a value of this site's records may be.
    ///
    /// # Errors
    /// The words for the operator.
    pub fn is_of(&self, task: &ResolvedTask) -> std::result::Result<(), String> {
        if self.text == task.schema {
            return Ok(());
        }
        Err(format!(
            "the task's schema is not the one in {} ([data] schema), byte for byte: agree on one file with the other sites",
            self.path.display()
        ))
    }
}

/// Rows, and the formula that they were made by.
type Made = (Option<DesignSpec>, Arc<Units<RecordTable>>);

/// A site's records as they were before its hello.
pub struct Snapshot {
    schema: LocalSchema,
    read: dp_pvi_data::Snapshot,
    file: PathBuf,
    site: ClientId,
    source: Source,
    /// The records as rows of a task's formula.
    made: Mutex<Option<Made>>,
    /// The run that this process joined.
    run: Mutex<Option<RunId>>,
}

/// Where the records come from, and how they are held.
struct Source {
    /// Open as long as the process runs: rows of a query are gone with it.
    _files: Vec<DataFile>,
    /// Where units go that are not held in memory.
    on_disk: Option<PathBuf>,
    /// What is kept of a database's rows until the run has ended.
    kept: Option<Kept>,
    slots: Option<u64>,
    threads: NonZeroUsize,
    /// The file that says which runs this site is in.
    runs: PathBuf,
    /// What the site says of where they come from.
    origin: Origin,
    /// A cluster of the site that sums their terms.
    engine: Option<engine::Folder>,
}

/// What the state folder keeps: every run that this site is in, and a fingerprint of its records there. A run that was broken off stays until
/// it has ended or the operator gives it up, also when other runs come and go meanwhile.
#[derive(Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Joined {
    runs: BTreeMap<String, String>,
}

/// The runs that the text of such a file names.
///
/// # Errors
/// The text is not what this program writes.
pub fn runs_in(text: &str) -> std::result::Result<Vec<String>, serde_json::Error> {
    serde_json::from_str::<Joined>(text).map(|joined| joined.runs.into_keys().collect())
}

/// What to do where the records are not those of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Changed {
    /// Refuse.
    Refuse,
    /// Go on: the operator knows of it.
    Accept,
}

/// Name of a run in the file.
fn name(run: &RunId) -> String {
    format!("run {} of task {}", run.number, run.task)
}

impl Snapshot {
    /// Reads the records, and compares them with those of the run that this site is in.
    ///
    /// # Errors
    /// [`ClientError::Data`]: a file as a whole cannot be used, or the records are not those of the run. [`ClientError::InvalidFile`]: the
    /// schema. [`ClientError::Unavailable`]: the state folder, also where its disk is full.
    pub fn load(config: &Config, identity: &SigningKey) -> Result<Self> {
        let schema = LocalSchema::read(&config.data.schema)?;
        let slots = config.data.private.as_ref().map(|private| private.nominal_units);
        let file = place(config);
        let (files, kept, origin) = records(config, schema.schema(), &file)?;
        let key = key(identity);
        let on_disk = config.data.is_on_disk(schema.schema()) || config.data.engine.is_some();
        let read = if on_disk {
            load_to_disk(schema.schema(), &files, &key, cache_in(&config.site.state)?)
        } else {
            load_for_run(schema.schema(), &files, &key)
        };
        let engine = config.data.engine.as_ref().map(engine::Folder::take).transpose()?;
        let source = Source {
            _files: files,
            on_disk: on_disk.then(|| config.site.state.clone()),
            kept,
            slots,
            threads: config.site.threads,
            runs: file.clone(),
            origin,
            engine,
        };
        let (made, run) = (Mutex::new(None), Mutex::new(None));
        let read = read.map_err(local)?;
        let snapshot = Self { schema, read, file, site: config.site.name.clone(), source, made, run };
        let now = snapshot.read.fingerprint.to_string();
        match joined(&snapshot.file)?.runs.iter().find(|(_, fingerprint)| **fingerprint != now) {
            None => Ok(snapshot),
            Some((run, _)) => Err(ClientError::Data(format!(
                "the records are not those with which this site joined {run}, and what it keeps of that run would not fit them. Put the files back as \
                 they were; or, if that run is over or given up, say `dp-pvi-client forget` with the task's hash, and start again"
            ).into())),
        }
    }

    /// Where the records come from.
    #[must_use]
    pub(crate) fn origin(&self) -> &Origin {
        &self.source.origin
    }

    /// What tells these records from any others, their order and their declared number among it; no one without the site's key can compare it with records.
    pub(crate) fn records(&self, units: u64) -> Hash {
        Hash::of("dp-pvi records of a run v1", &[self.read.fingerprint.to_string().as_bytes(), &units.to_le_bytes()])
    }

    /// The site's position in the task's list of sites, where it has one.
    ///
    /// # Errors
    /// [`ClientError::Refused`]: the site is not in the list.
    pub fn place(&self, task: &ResolvedTask) -> Result<Option<u32>> {
        task.site(self.site.as_str()).map_err(|e| ClientError::Refused(Problem::of(e)))
    }

    /// Whether a task can be computed on these records, by what is public: the list of sites, where the records come from, and the declared number of
    /// units.
    ///
    /// # Errors
    /// [`ClientError::Refused`]: the site is not in the list. [`ClientError::Data`]: the formula makes too many entries; the task gives units a place by their order, which a query's
    /// rows do not have.
    pub fn fits(&self, task: &ResolvedTask) -> Result<()> {
        self.place(task)?;
        if (self.source.origin.by != RowsBy::Files)
            && let Some(update) = task.cuts_by_order()
        {
            return Err(ClientError::Data(
                format!(
                    "update = \"{update}\" under adjacency = \"replace-one\" gives each record a place by its order, and in the answer to a query a record's \
                     values, or where the database stores it, may decide the places of others. Ask the coordinator for adjacency = \"add-remove\", shards = 1 or an \
                     update that sums over all records, or write the records to a file once"
                )
                .into(),
            ));
        }
        if let Some(engine) = &self.source.engine {
            if !can_be_in_parts(task) {
                let words = "the task has an update that is more than one sum over all records in a visit, and the site's engine sums the terms of records, and nothing else. Take [engine] out of \
                             the configuration to compute it on this machine (cache = \"disk\" for a data set that is larger than memory)";
                return Err(ClientError::Data(words.into()));
            }
            engine.fits(task)?;
        }
        if self.is_on_disk(task) {
            return Ok(());
        }
        let schema = self.asked(task)?;
        dp_pvi_data::fits(&schema, self.source.slots).map_err(|entries| {
            ClientError::Data(
                format!(
                    "the task's formula can make {entries} entries of the declared units, and at most {MOST_FORMULA_ENTRIES} are held: ask the coordinator for a \
                     formula with fewer entries in a row (max_nonzeros = {}), or use cache = \"disk\"",
                    task.max_nonzeros
                )
                .into(),
            )
        })
    }

    /// Whether a task's units are on the disk: where its update does not need all of them in memory.
    fn is_on_disk(&self, task: &ResolvedTask) -> bool {
        self.source.on_disk.is_some() && (self.source.engine.is_some() || !needs_memory(task))
    }

    /// The schema with the task's formula, for this site.
    fn asked(&self, task: &ResolvedTask) -> Result<Schema> {
        task.parsed_schema()
            .and_then(|schema| Ok(schema.of_site(self.site.as_str())?))
            .map_err(|e| ClientError::InvalidFile { file: self.schema.path.clone(), message: Problem::of(e) })
    }

    /// The units as a task sees them. They are made at the first call, from what was read when the program started: in a visit, whose time is hidden as that of the
    /// computation is.
    ///
    /// # Errors
    /// [`ClientError::InvalidFile`]: the task's formula is none for the schema. [`ClientError::Unavailable`]: the disk.
    pub fn units(&self, task: &ResolvedTask) -> Result<Arc<Units<RecordTable>>> {
        let mut made = self.made.lock().unwrap_or_else(PoisonError::into_inner);
        match &*made {
            Some((of, units)) if *of == task.design => Ok(Arc::clone(units)),
            _ => {
                let units = Arc::new(self.rows(task)?);
                *made = Some((task.design.clone(), Arc::clone(&units)));
                Ok(units)
            }
        }
    }

    /// Says where units that are on the disk will be in memory, before the first visit.
    pub fn make_ready(&self, task: &ResolvedTask) {
        if self.source.on_disk.is_some() && !self.is_on_disk(task) {
            tracing::warn!("{}", in_memory_for(self.schema.schema(), self.source.slots.unwrap_or(0)));
        }
    }

    /// Whether the site's cluster would sum now, where it has one.
    ///
    /// # Errors
    /// [`ClientError::Unavailable`]: it would not.
    pub(crate) fn ready(&self) -> Result<()> {
        self.source.engine.as_ref().map_or(Ok(()), engine::Folder::ready)
    }

    fn rows(&self, task: &ResolvedTask) -> Result<Units<RecordTable>> {
        let (schema, source) = (self.asked(task)?, &self.source);
        let file = if self.is_on_disk(task) { source.on_disk.as_deref().map(cache_in).transpose()? } else { None };
        let made = match (&source.engine, file) {
            (Some(engine), Some(file)) => engine.units(&self.read, &schema, file)?,
            (_, file) => self.read.units(&schema, file).map_err(local)?,
        };
        // For the people here, and nothing stops: a task must not ask by what a site does.
        let reasons = [
            (made.omitted.without_outcome, "they have no outcome"),
            (made.omitted.unwatched, "they were watched for no time"),
            (made.omitted.left_out, "their count is not whole, or their time ends before it begins. Are the columns the right ones?"),
        ];
        for (records, why) in reasons.into_iter().filter(|(records, _)| *records > 0) {
            tracing::warn!("PRIVATE: {records} records more contribute nothing to this task: {why}");
        }
        Ok(source.over_slots(made.units))
    }

    /// The site's schema.
    #[must_use]
    pub fn schema(&self) -> &LocalSchema {
        &self.schema
    }

    /// How many records contribute nothing, and why.
    #[must_use]
    pub(crate) fn screen(&self) -> &Screen {
        &self.read.screen
    }

    /// Notes that the site is in a run with these records. Durable when it returns.
    ///
    /// # Errors
    /// [`ClientError::Unavailable`].
    pub fn join(&self, run: &RunId) -> Result<()> {
        let mut joined = joined(&self.file)?;
        // What is there is the same fingerprint: `load` compared all of them.
        if joined.runs.insert(name(run), self.read.fingerprint.to_string()).is_none() {
            self.keep(&joined)?;
        }
        *self.run.lock().unwrap_or_else(PoisonError::into_inner) = Some(*run);
        Ok(())
    }

    /// The run that this process joined, if it joined one: other runs that this site is in keep their entries.
    #[must_use]
    pub fn run(&self) -> Option<RunId> {
        *self.run.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Marks the run as finished. Data files may change once no run is open. The fingerprint of the run's records stays, for [`Snapshot::check_is_of`].
    ///
    /// # Errors
    /// [`ClientError::Unavailable`].
    pub fn leave(&self, run: &RunId) -> Result<()> {
        leave(&self.file, run, self.source.kept.as_ref())
    }

    /// Whether these are the records with which this site took part in a run. A personal posterior takes out what was released of those, and puts the likelihood of these in:
    /// of others it would be the posterior of neither.
    ///
    /// # Errors
    /// [`ClientError::Data`]: they are others, or in another order. [`ClientError::Unavailable`]: the state folder.
    pub fn check_is_of(&self, run: &RunId, changed: Changed) -> Result<()> {
        let known = [joined(&self.file)?, joined(&self.ended())?].into_iter().find_map(|mut joined| joined.runs.remove(&name(run)));
        match (known, changed) {
            (None, _) => tracing::warn!(
                "it is not known whether these are the records with which this site took part in the run: the state folder has no fingerprint of them. If they were \
                 changed since, the result is wrong"
            ),
            (Some(fingerprint), _) if fingerprint == self.read.fingerprint.to_string() => {}
            (Some(_), Changed::Accept) => tracing::warn!(
                "these are not the records with which this site took part in the run: the personal posterior is that of the records of today"
            ),
            (Some(_), Changed::Refuse) => {
                let words = "these are not the records with which this site took part in the run, or not in that order, so what it released does not belong to them. Put \
                             the files back as they were; or, if you want the records of today in the place of what was released, say --changed-records";
                return Err(ClientError::Data(words.into()));
            }
        }
        Ok(())
    }

    /// The same file for runs that are over.
    fn ended(&self) -> PathBuf {
        ended(&self.file)
    }

    fn keep(&self, joined: &Joined) -> Result<()> {
        keep_in(&self.file, joined)
    }
}

/// What the client makes of an error of reading.
fn local(e: DataError) -> ClientError {
    match e {
        // The disk of the state folder, and not the records.
        DataError::Cache { .. } | DataError::Unread(_) => ClientError::Unavailable(Problem::of(e)),
        e => ClientError::Data(Problem::of(e)),
    }
}

/// The runs that the state folder says this site is in with this data set.
///
/// # Errors
/// [`ClientError::Unavailable`].
pub fn open_runs(config: &Config) -> Result<Vec<RunId>> {
    Ok(joined(&place(config))?.runs.keys().filter_map(|text| run_of(text)).collect())
}

/// A run was given up: this site is in it no more, and keeps its fingerprint as that of a run that is over. Rows of a query go with the last run.
///
/// # Errors
/// [`ClientError::Unavailable`].
pub fn give_up(config: &Config, run: &RunId) -> Result<()> {
    let kept = config.data.database.as_ref().map(|_| Kept::of(&config.site.state, &config.data.name));
    leave(&place(config), run, kept.as_ref())
}

/// Which file says which runs this site is in.
fn place(config: &Config) -> PathBuf {
    config.site.state.join(format!("records-{}.json", config.data.name))
}

/// The run that [`name`] names.
fn run_of(text: &str) -> Option<RunId> {
    let (number, task) = text.strip_prefix("run ")?.split_once(" of task ")?;
    Some(RunId { task: task.parse().ok()?, number: number.parse().ok()? })
}

fn leave(file: &Path, run: &RunId, rows: Option<&Kept>) -> Result<()> {
    let mut joined = joined(file)?;
    let Some(fingerprint) = joined.runs.remove(&name(run)) else { return Ok(()) };
    let kept = self::joined(&ended(file)).and_then(|mut known| {
        known.runs.insert(name(run), fingerprint);
        keep_in(&ended(file), &known)
    });
    if let Err(error) = kept {
        // The run itself needs it no more.
        tracing::warn!(%error, "a personal posterior of this run will not notice if its records are changed");
    }
    if !joined.runs.is_empty() {
        return keep_in(file, &joined);
    }
    if let Some(rows) = rows {
        rows.remove()?;
    }
    match fs::remove_file(file) {
        Err(e) if e.kind() != ErrorKind::NotFound => Err(unavailable(file, &e.to_string())),
        _ => Ok(()),
    }
}

fn ended(file: &Path) -> PathBuf {
    let name = file.file_name().unwrap_or_default().to_string_lossy();
    file.with_file_name(format!("ended-{name}"))
}

/// Writes what the state folder keeps, as JSON: the old file or the new one is there, whenever the program ends. Durable when it returns.
///
/// # Errors
/// [`ClientError::Unavailable`].
pub(crate) fn keep_in(place: &Path, state: &impl Serialize) -> Result<()> {
    let text = serde_json::to_string(state).map_err(|e| ClientError::Failed(Problem::of(e)))?;
    let write = || {
        fs::DirBuilder::new().recursive(true).mode(0o700).create(files::folder_of(place))?;
        files::replace_private(place, format!("{text}\n").as_bytes())
    };
    write().map_err(|e: std::io::Error| unavailable(place, &e.to_string()))
}

/// Rows that were kept and that no run needs are not left on the disk.
impl Drop for Source {
    fn drop(&mut self) {
        if let (Some(kept), Ok(joined)) = (&self.kept, joined(&self.runs))
            && joined.runs.is_empty()
        {
            // What cannot be removed is written over at the next start.
            let _ = kept.remove();
        }
    }
}

impl Data {
    /// Whether the units are read from the disk in every visit: the declared number of them decides, not the counted one.
    #[must_use]
    pub fn is_on_disk(&self, schema: &Schema) -> bool {
        match (self.cache, &self.private) {
            (Cache::Memory, _) | (_, None) => false,
            (Cache::Disk, Some(_)) => true,
            (Cache::Auto, Some(private)) => memory_of(schema, private.nominal_units) > Cache::LARGEST_IN_MEMORY,
        }
    }
}

/// What an update that does not stream costs: a public number.
pub(crate) fn in_memory_for(schema: &Schema, declared: u64) -> String {
    let megabytes = memory_of(schema, declared).div_ceil(1 << 20);
    format!(
        "this task's update needs all records in memory: up to {megabytes} MiB for the declared number of units, although [data] cache keeps them on the disk"
    )
}

/// A file for this process alone: it has no name, and is gone when the process ends, however it ends.
pub(crate) fn cache_in(folder: &Path) -> Result<fs::File> {
    fs::DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(folder)
        .and_then(|()| tempfile::tempfile_in(folder))
        // Without a name it is still opened with what the process's mask leaves.
        .and_then(|file| file.set_permissions(fs::Permissions::from_mode(0o600)).map(|()| file))
        .map_err(|e| unavailable(folder, &format!("the cache of the records cannot be made ({e})")))
}

fn unavailable(file: &Path, problem: &str) -> ClientError {
    ClientError::Unavailable(format!("{}: {problem}", file.display()).into())
}

/// What the state folder says of this site's runs.
fn joined(file: &Path) -> Result<Joined> {
    let text = match fs::read_to_string(file) {
        Err(e) if e.kind() == ErrorKind::NotFound => return Ok(Joined::default()),
        text => text.map_err(|e| unavailable(file, &e.to_string()))?,
    };
    serde_json::from_str(&text).map_err(|_| unavailable(file, "is not what this program wrote; if this site is in no run, remove it"))
}

/// The records of a run. Rows of a database that were kept for a run which is not over are read in place of the database's of today.
fn records(config: &Config, schema: &Schema, file: &Path) -> Result<(Vec<DataFile>, Option<Kept>, Origin)> {
    let Some(database) = config.data.database.as_ref().filter(|database| database.keeps_rows_of_run()) else {
        if joined(file)?.runs.is_empty() {
            // What a start left that was killed, when the configuration named a database.
            Kept::of(&config.site.state, &config.data.name).remove()?;
        }
        let (files, origin) = today(config, schema)?;
        return Ok((files, None, origin));
    };
    let kept = Kept::of(&config.site.state, &config.data.name);
    let rows = match joined(file)?.runs.keys().next() {
        Some(run) => kept.rows()?.inspect(|_| {
            tracing::warn!(
                "this site is in {run}: its records are those that were kept for it, not those in the database today. If that run is over or given up, say \
                 `dp-pvi-client forget` with the task's hash, and start again"
            );
        }),
        None => None,
    };
    let (rows, origin) = match rows {
        Some(rows) => rows,
        None => kept.fetch(database, schema)?,
    };
    Ok((vec![rows], Some(kept), origin))
}

/// The records as they are now, for an inspection that no run depends on.
///
/// # Errors
/// As reading a database has them: see [`crate::database`].
pub(crate) fn look_at(config: &Config, schema: &Schema) -> Result<Vec<DataFile>> {
    today(config, schema).map(|(files, _)| files)
}

/// The same for [`crate::commands::data::inspect`], which needs no one's word for a query.
///
/// # Errors
/// As [`look_at`].
pub(crate) fn inspected(config: &Config, schema: &Schema) -> Result<Vec<DataFile>> {
    match &config.data.database {
        Some(database) => Ok(vec![database::inspect(database, schema, &config.site.state.join("records"))?]),
        None => look_at(config, schema),
    }
}

/// What one privacy unit of the data set is, in words that stay the same: the ledger holds later runs to them.
///
/// # Errors
/// A description that cannot be read.
pub(crate) fn unit_in_words(config: &Config, schema: &LocalSchema) -> Result<String> {
    match &config.data.database {
        Some(database) => database::unit_in_words(database, schema.schema()),
        None => Ok(schema.schema().unit_in_words()),
    }
}

/// Where the rows come from, by the configuration of today.
///
/// # Errors
/// The schema; the file of the description or query.
pub(crate) fn declared(config: &Config) -> Result<Origin> {
    let Some(database) = &config.data.database else { return Ok(Origin::default()) };
    let schema = LocalSchema::read(&config.data.schema)?;
    database::declared(database, schema.schema().unit_column())
}

fn today(config: &Config, schema: &Schema) -> Result<(Vec<DataFile>, Origin)> {
    let Some(database) = &config.data.database else {
        return Ok((config.data.files.iter().cloned().map(DataFile::At).collect(), Origin::default()));
    };
    let (rows, origin) = database::fetch(database, schema, &config.site.state.join("records"))?;
    Ok((vec![rows], origin))
}

impl Source {
    /// Layouts are over the declared number of units, whatever the files hold; sums are split over the configured threads.
    fn over_slots(&self, units: Units<RecordTable>) -> Units<RecordTable> {
        let units = units.on_threads(self.threads);
        match self.slots {
            Some(slots) => units.over_slots(slots),
            None => units,
        }
    }
}

/// Key of fingerprints: only who has the identity key can tell records by them. Ed25519 signatures are a function of key and message, so it
/// needs no place on disk.
fn key(identity: &SigningKey) -> Zeroizing<[u8; 32]> {
    let mut signature = identity.sign(b"dp-pvi-client: key of the fingerprints of this site's records, v1").to_bytes();
    let key = Zeroizing::new(Hash::of("dp-pvi-client fingerprint key v1", &[&signature]).0);
    signature.zeroize();
    key
}
