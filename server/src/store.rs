//! What the server must not lose: one SQLite file (WAL, `synchronous=FULL`) and the payloads beside it.
//!
//! The store keeps the protocol's [`Record`]s in order. A run is the fold of its records, so a restarted server is where the
//! killed one was; λ′, the transcript entry with the receipts it includes and the next round's header are in one transaction.
//! λ lies in a column of its own and is written and read in pieces: a vector is never held twice.
//!
//! Payloads of small updates lie in the database and become durable with their receipts, in one flush; larger ones are written to
//! files while they arrive.
//!
//! A file lock beside the database keeps a second server away. Readers ([`Reader`]) need no lock.

mod reader;
mod schema;
mod spool;
mod vector;

use std::path::{Path, PathBuf};

use dp_pvi_privacy::ledger::LedgerHead;
use dp_pvi_privacy::{ClientId, Hash, RunId};
use dp_pvi_protocol::coordinator::Record;
use rusqlite::{Connection, OptionalExtension, params};

pub use self::reader::Reader;
pub(crate) use self::spool::{Spool, WriteError};
use crate::error::{Result, ServerError};
use crate::files::{FileLock, create_private_directory, sync_directory};

/// Payloads of at most this many bytes are small: they fit into one frame, and cost less in the database than in a file.
pub(crate) const SMALL_PAYLOAD: u64 = 64 << 10;

/// The open store of a server.
#[derive(Debug)]
pub struct Store {
    path: PathBuf,
    connection: Connection,
    /// Number of the next record of the run that was written last.
    next: Option<(i64, i64)>,
    _lock: FileLock,
}

/// A run in the store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StoredRun {
    /// Row of the run.
    pub(crate) key: i64,
    /// Its name.
    pub id: RunId,
    /// Whether its last record ends it.
    pub ended: bool,
}

impl Store {
    /// Opens or creates the store.
    ///
    /// # Errors
    /// Locked by another server, of another version, damaged, or the disk is full.
    pub fn open(database: &Path) -> Result<Self> {
        let directory = database.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
        create_private_directory(directory)?;
        let mut lock_path = database.as_os_str().to_owned();
        lock_path.push(".lock");
        let lock = FileLock::take(lock_path.into(), "another dp-pvi-server uses this state; stop it, or name another state directory")?;
        let connection = Connection::open(database).map_err(|e| sqlite_error(database, &e))?;
        schema::prepare(&connection, database)?;
        sync_directory(database).map_err(|e| ServerError::unavailable(database, e))?;
        Ok(Self { path: database.to_owned(), connection, next: None, _lock: lock })
    }

    /// Limits the size of the database, so that tests can fill the disk.
    ///
    /// # Errors
    /// The database does not answer.
    pub fn limit_pages(&self, pages: u32) -> Result<()> {
        self.connection.pragma_update(None, "max_page_count", pages).map_err(|e| sqlite_error(&self.path, &e))
    }

    /// The last run of a task, if there is one.
    ///
    /// # Errors
    /// The database does not answer.
    pub fn last_run(&self, task: Hash) -> Result<Option<StoredRun>> {
        reader::last_run(&self.connection, Some(task)).map_err(|e| sqlite_error(&self.path, &e))
    }

    /// The last run, of whatever task.
    ///
    /// # Errors
    /// The database does not answer.
    pub fn last_run_of_any_task(&self) -> Result<Option<StoredRun>> {
        reader::last_run(&self.connection, None).map_err(|e| sqlite_error(&self.path, &e))
    }

    /// Adds a run.
    ///
    /// # Errors
    /// The database does not answer.
    pub fn create_run(&mut self, id: RunId) -> Result<StoredRun> {
        self.connection
            .execute("INSERT INTO runs (task, number) VALUES (?1, ?2)", params![id.task.0, id.number])
            .map_err(|e| sqlite_error(&self.path, &e))?;
        Ok(StoredRun { key: self.connection.last_insert_rowid(), id, ended: false })
    }

    /// Record `seq` of a run; `None` after the last.
    ///
    /// # Errors
    /// The database does not answer, or holds other bytes than were written.
    pub fn record(&self, run: &StoredRun, seq: u64) -> Result<Option<Record>> {
        reader::record(&self.connection, &self.path, run, seq, reader::Vectors::Read)
    }

    /// Highest ledger head of every site over all runs.
    ///
    /// # Errors
    /// The database does not answer.
    pub fn witnessed(&self) -> Result<Vec<(ClientId, LedgerHead)>> {
        let read = || {
            let mut statement = self.connection.prepare("SELECT client, seq, hash FROM heads ORDER BY client")?;
            let rows = statement.query_map([], |row| Ok((row.get::<_, String>(0)?, row.get::<_, i64>(1)?, row.get::<_, [u8; 32]>(2)?)))?;
            rows.collect::<rusqlite::Result<Vec<_>>>()
        };
        let rows = read().map_err(|e| sqlite_error(&self.path, &e))?;
        let heads = rows.into_iter().map(|(client, seq, hash)| {
            let damaged = || ServerError::Corrupt(format!("{}: a witnessed ledger head", self.path.display()));
            let client = ClientId::new(client).map_err(|_| damaged())?;
            Ok((client, LedgerHead { seq: u64::try_from(seq).map_err(|_| damaged())?, hash: Hash(hash) }))
        });
        heads.collect()
    }

    /// Appends records to the transaction in progress, and begins one if there is none. They are durable after
    /// [`Store::commit`]; a process that ends before it leaves none of them.
    ///
    /// # Errors
    /// The disk is full or the database does not answer; the transaction is lost then.
    pub fn append(&mut self, run: &StoredRun, records: &[Record]) -> Result<()> {
        // Unknown again if anything fails.
        let known = self.next.take().filter(|(key, _)| *key == run.key).map(|(_, next)| next);
        let write = || {
            if self.connection.is_autocommit() {
                self.connection.execute_batch("BEGIN IMMEDIATE")?;
            }
            let mut next = match known {
                Some(next) => next,
                None => self
                    .connection
                    .query_row("SELECT coalesce(max(seq) + 1, 0) FROM records WHERE run = ?1", [run.key], |row| row.get(0))?,
            };
            for record in records {
                append(&self.connection, run.key, next, record)?;
                next += 1;
            }
            Ok(next)
        };
        self.next = Some((run.key, write().map_err(|e| sqlite_error(&self.path, &e))?));
        Ok(())
    }

    /// Adds the payload of a small update to the transaction in progress.
    ///
    /// # Errors
    /// As [`Store::append`].
    pub(crate) fn add_payload(&mut self, run: &StoredRun, client: &ClientId, update: Hash, bytes: &[u8]) -> Result<()> {
        let write = || {
            let mut insert =
                self.connection.prepare_cached("INSERT OR REPLACE INTO payloads (run, client, hash, bytes) VALUES (?1, ?2, ?3, ?4)")?;
            insert.execute(params![run.key, client.as_str(), update.0, bytes])
        };
        write().map(drop).map_err(|e| sqlite_error(&self.path, &e))
    }

    /// The payload of a small update.
    ///
    /// # Errors
    /// The database does not answer.
    pub(crate) fn payload(&self, run: &StoredRun, client: &ClientId, update: Hash) -> Result<Option<Vec<u8>>> {
        let read = || {
            let mut select = self.connection.prepare_cached("SELECT bytes FROM payloads WHERE run = ?1 AND client = ?2 AND hash = ?3")?;
            select.query_row(params![run.key, client.as_str(), update.0], |row| row.get(0)).optional()
        };
        read().map_err(|e| sqlite_error(&self.path, &e))
    }

    /// Forgets the payloads of all small updates of a run.
    ///
    /// # Errors
    /// The database does not answer.
    pub(crate) fn forget_payloads(&mut self, run: &StoredRun) -> Result<()> {
        let forget = || self.connection.execute("DELETE FROM payloads WHERE run = ?1", [run.key]);
        forget().map(drop).map_err(|e| sqlite_error(&self.path, &e))
    }

    /// Makes everything that was appended durable, in one step.
    ///
    /// # Errors
    /// The disk is full or the database does not answer; nothing of the transaction was stored, and the caller's memory is
    /// ahead of the disk.
    pub fn commit(&mut self) -> Result<()> {
        if self.connection.is_autocommit() {
            return Ok(());
        }
        self.connection.execute_batch("COMMIT").map_err(|e| sqlite_error(&self.path, &e))
    }
}

fn append(transaction: &Connection, run: i64, seq: i64, record: &Record) -> rusqlite::Result<()> {
    let (light, vector) = vector::split(record);
    // Records are plain data: writing them into memory cannot fail.
    let body = postcard::to_stdvec(light.as_ref().unwrap_or(record)).expect("records serialise into memory");
    let facts = Facts::of(record);
    let length = vector.map_or(0, <[f64]>::len) as u64 * 8;
    let mut insert = transaction.prepare_cached(
        "INSERT INTO records (run, seq, kind, at, client, round, body, checksum, vector)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9)",
    )?;
    let checksum = Hash::of(schema::CHECKSUM, &[&body]);
    let zeroes = vector.map(|_| rusqlite::blob::ZeroBlob(length));
    let at = i64::try_from(facts.at).unwrap_or(i64::MAX);
    insert.execute(params![run, seq, facts.kind, at, facts.client.map(ClientId::as_str), facts.round, body, checksum.0, zeroes])?;
    if let Some(vector) = vector {
        let row = transaction.last_insert_rowid();
        vector::write(transaction, row, vector)?;
    }
    if let Some((client, head)) = facts.head {
        let mut witness = transaction.prepare_cached(
            "INSERT INTO heads (client, seq, hash) VALUES (?1, ?2, ?3)
             ON CONFLICT (client) DO UPDATE SET seq = excluded.seq, hash = excluded.hash WHERE excluded.seq > heads.seq",
        )?;
        witness.execute(params![client.as_str(), i64::try_from(head.seq).unwrap_or(i64::MAX), head.hash.0])?;
    }
    Ok(())
}

/// Columns beside a record's bytes: for people who look into the file, and for witnessed heads.
struct Facts<'a> {
    kind: &'static str,
    at: u64,
    client: Option<&'a ClientId>,
    round: Option<u32>,
    head: Option<(&'a ClientId, LedgerHead)>,
}

impl<'a> Facts<'a> {
    fn of(record: &'a Record) -> Self {
        let plain = |kind, at: &dp_pvi_protocol::time::Timestamp| Facts { kind, at: at.as_millis(), client: None, round: None, head: None };
        match record {
            Record::RunOpened { at, .. } => plain("run-opened", at),
            Record::Joined { client, head, at, .. } => {
                Facts { client: Some(client), head: head.map(|head| (client, head)), ..plain("joined", at) }
            }
            Record::RoundOpened { header, at, .. } => Facts { round: header.peek().ok().map(|h| h.round), ..plain("round-opened", at) },
            Record::UpdateStored { client, update, at, .. } | Record::UpdateExcluded { client, update, at, .. } => {
                let update = update.peek().ok();
                let kind = if matches!(record, Record::UpdateStored { .. }) { "update-stored" } else { "update-excluded" };
                Facts {
                    client: Some(client),
                    round: update.as_ref().map(|u| u.release.round),
                    head: update.map(|u| (client, u.ledger_head)),
                    ..plain(kind, at)
                }
            }
            Record::Refused { client, refusal, at } => {
                Facts { client: Some(client), round: refusal.peek().ok().map(|r| r.release.round), ..plain("refused", at) }
            }
            Record::RoundClosed { entry, at, .. } => {
                Facts { round: entry.header.peek().ok().map(|h| h.round), ..plain("round-closed", at) }
            }
            Record::Metrics { client, report, at } => {
                Facts { client: Some(client), round: report.peek().ok().map(|r| r.round), ..plain("metrics", at) }
            }
            Record::Control { at, .. } => plain("control", at),
            Record::RunEnded { at, .. } => plain("run-ended", at),
        }
    }
}

pub(crate) fn sqlite_error(path: &Path, error: &rusqlite::Error) -> ServerError {
    use rusqlite::ErrorCode;
    match error.sqlite_error_code() {
        Some(ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase) => ServerError::Corrupt(format!("{}: {error}", path.display())),
        Some(ErrorCode::DiskFull) => ServerError::unavailable(path, "the disk is full; nothing was lost: make room and start again"),
        _ => ServerError::unavailable(path, error),
    }
}

/// The last end of a run, if any row says so.
fn ended(connection: &Connection, run: i64) -> rusqlite::Result<bool> {
    connection
        .query_row("SELECT 1 FROM records WHERE run = ?1 AND kind = 'run-ended' LIMIT 1", [run], |_| Ok(()))
        .optional()
        .map(|row| row.is_some())
}

#[cfg(test)]
mod tests;
