//! What the server must not lose: one SQLite file (WAL, `synchronous=FULL`) and the payloads beside it.
//!
//! The store keeps the protocol's [`Record`]s in order. A run is the fold of its records, so a restarted server is where the
//! killed one was; λ′, the transcript entry with the receipts it includes and the next round's header are in one transaction.
//! λ lies in a column of its own and is written and read in pieces: a vector is never held twice.
//!
//! The payload of a small update lies in the row of its record and becomes durable with it, in one flush; larger ones are written
//! to files while they arrive.
//!
//! A write-ahead log in which a disk changed a byte is distinguished from one whose last write was cut off (`wal`): nothing that was committed is
//! forgotten without a word.
//!
//! A file lock beside the database keeps a second server away. Readers ([`Reader`]) need no lock.

mod payloads;
mod reader;
mod schema;
mod vector;
mod wal;

use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};

use dp_pvi_names::{ClientId, Hash, RunId};
use dp_pvi_privacy::ledger::LedgerHead;
use dp_pvi_protocol::coordinator::Record;
use dp_pvi_protocol::witness::{SignedHead, Witnessed};
use rusqlite::types::{Null, ToSql};
use rusqlite::{Connection, OptionalExtension, params};

pub(crate) use self::payloads::{PayloadStore, WriteError};
pub use self::reader::Reader;
pub(crate) use self::schema::configure;
pub(crate) use self::wal::check as check_log;
use dp_pvi_programs::files::FileLock;
use dp_pvi_programs::files::sync_folder;

use crate::error::{Result, ServerError};
use crate::files::{self, create_private_directory, private_database};

/// Payloads of at most this many bytes are small: they fit into one frame, and cost less in the database than in a file.
pub(crate) const SMALL_PAYLOAD: u64 = 64 << 10;

/// The open store of a server.
#[derive(Debug)]
pub struct Store {
    path: PathBuf,
    connection: Connection,
    /// Number of the next record of the run that was written last.
    next: Option<(i64, i64)>,
    /// Rows of the small payloads that this process stored in the open round.
    small: HashMap<(ClientId, Hash), i64>,
    /// Rows before this one hold no payload of the open round.
    open_from: i64,
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
    /// Locked by another server, of another version, damaged (the log too), or the disk is full.
    pub fn open(database: &Path) -> Result<Self> {
        let directory = database.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
        create_private_directory(directory)?;
        let lock = lock(database)?;
        private_database(database)?;
        wal::check(database)?;
        let connection = Connection::open(database).map_err(|e| sqlite_error(database, &e))?;
        schema::prepare(&connection, database)?;
        sync_folder(database).map_err(|e| ServerError::unavailable(database, e))?;
        Ok(Self { path: database.to_owned(), connection, next: None, small: HashMap::new(), open_from: 0, _lock: lock })
    }

    /// Drops what comes after the last sound commit of a damaged write-ahead log, as an operator's decision. Returns the last closed round that
    /// is left, and where the damaged log is kept.
    ///
    /// # Errors
    /// A server is running; the log is not damaged, or not enough of it is sound; the disk.
    pub fn cut_log(database: &Path) -> Result<(u32, PathBuf)> {
        let _lock = lock(database)?;
        wal::cut(database)
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

    /// Adds a run, and notes the ledger heads that the last one saw.
    ///
    /// # Errors
    /// The database does not answer, or holds other bytes than were written.
    pub fn create_run(&mut self, id: RunId) -> Result<StoredRun> {
        let heads = match self.last_run_of_any_task()? {
            Some(last) => self.heads_of(&last)?,
            None => BTreeMap::new(),
        };
        let write = || {
            let transaction = self.connection.unchecked_transaction()?;
            for (client, Witnessed { head, signed }) in heads {
                // Of two heads at one row the first that was seen stays, so that a forked ledger is not witnessed.
                transaction.execute(
                    "INSERT INTO heads (client, seq, hash) VALUES (?1, ?2, ?3)
                     ON CONFLICT (client) DO UPDATE SET seq = excluded.seq, hash = excluded.hash WHERE excluded.seq > heads.seq",
                    params![client.as_str(), i64::try_from(head.seq).unwrap_or(i64::MAX), head.hash.0],
                )?;
                if let Some(message) = signed {
                    transaction.execute(
                        "INSERT INTO signed_heads (client, seq, message) VALUES (?1, ?2, ?3)
                         ON CONFLICT (client) DO UPDATE SET seq = excluded.seq, message = excluded.message WHERE excluded.seq > signed_heads.seq",
                        params![client.as_str(), i64::try_from(head.seq).unwrap_or(i64::MAX), message.to_bytes()],
                    )?;
                }
            }
            transaction.execute("INSERT INTO runs (task, number) VALUES (?1, ?2)", params![id.task.0, id.number])?;
            let key = transaction.last_insert_rowid();
            transaction.commit()?;
            Ok(key)
        };
        Ok(StoredRun { key: write().map_err(|e| sqlite_error(&self.path, &e))?, id, ended: false })
    }

    /// Highest ledger head of every site that a run's records show, with the message in which the site signed it.
    fn heads_of(&self, run: &StoredRun) -> Result<BTreeMap<ClientId, Witnessed>> {
        let mut heads: BTreeMap<ClientId, Witnessed> = BTreeMap::new();
        for seq in 0.. {
            let Some(record) = reader::record(&self.connection, &self.path, run, seq, reader::Vectors::Skip)? else { break };
            let (client, head, message) = match record {
                Record::Joined { client, head: Some(head), hello, .. } => (client, head, SignedHead::Hello(hello)),
                Record::UpdateStored { client, update, .. } | Record::UpdateExcluded { client, update, .. } => match update.peek() {
                    Ok(body) => (client, body.ledger_head, SignedHead::Update(update)),
                    Err(_) => continue,
                },
                _ => continue,
            };
            // Of two messages about one head an update says more than a hello.
            let says_more =
                |known: &Witnessed| head == known.head && message.is_update() && !known.signed.as_ref().is_some_and(SignedHead::is_update);
            if heads.get(&client).is_none_or(|known| head.seq > known.head.seq || says_more(known)) {
                // A hello may show a lower head than the one that was known before.
                let signed = Some(message).filter(|message| message.peek() == Some(head));
                heads.insert(client, Witnessed { head, signed });
            }
        }
        Ok(heads)
    }

    /// Record `seq` of a run; `None` after the last.
    ///
    /// # Errors
    /// The database does not answer, or holds other bytes than were written.
    pub fn record(&self, run: &StoredRun, seq: u64) -> Result<Option<Record>> {
        reader::record(&self.connection, &self.path, run, seq, reader::Vectors::Read)
    }

    /// Highest ledger head of every site over all runs before the last; those of the last are in its records.
    ///
    /// # Errors
    /// The database does not answer.
    pub fn witnessed(&self) -> Result<Vec<(ClientId, Witnessed)>> {
        type Row = (String, i64, [u8; 32], Option<Vec<u8>>);
        let read = || {
            let mut statement = self.connection.prepare(
                "SELECT heads.client, heads.seq, hash, message FROM heads
                 LEFT JOIN signed_heads ON signed_heads.client = heads.client AND signed_heads.seq = heads.seq ORDER BY heads.client",
            )?;
            let rows = statement.query_map([], |row| Ok::<Row, _>((row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?)))?;
            rows.collect::<rusqlite::Result<Vec<_>>>()
        };
        let rows = read().map_err(|e| sqlite_error(&self.path, &e))?;
        let heads = rows.into_iter().map(|(client, seq, hash, message)| {
            let damaged = || ServerError::Corrupt(format!("{}: a witnessed ledger head", self.path.display()).into());
            let client = ClientId::new(client).map_err(|_| damaged())?;
            let head = LedgerHead { seq: u64::try_from(seq).map_err(|_| damaged())?, hash: Hash(hash) };
            let signed = message.map(|bytes| SignedHead::from_bytes(&bytes).ok_or_else(damaged)).transpose()?;
            Ok((client, Witnessed { head, signed }))
        });
        heads.collect()
    }

    /// Appends a record to the transaction in progress, and begins one if there is none; with the payload of its update, if that is
    /// small and may still be read. Durable after [`Store::commit`]; a process that ends before it leaves nothing.
    ///
    /// # Errors
    /// The disk is full or the database does not answer; the transaction is lost then.
    pub fn append(&mut self, run: &StoredRun, record: &Record, payload: Option<&[u8]>) -> Result<()> {
        // Unknown again if anything fails.
        let known = self.next.take().filter(|(key, _)| *key == run.key).map(|(_, next)| next);
        let write = || {
            if self.connection.is_autocommit() {
                self.connection.prepare_cached("BEGIN IMMEDIATE")?.execute([])?;
            }
            let next = match known {
                Some(next) => next,
                None => {
                    let (first, last) = schema::keys(run.key);
                    let sql = "SELECT coalesce(max(seq) + 1, 0) FROM records WHERE key BETWEEN ?1 AND ?2";
                    self.connection.query_row(sql, [first, last], |row| row.get(0))?
                }
            };
            append(&self.connection, run.key, next, record, payload).map(|()| next)
        };
        let seq: i64 = write().map_err(|e| sqlite_error(&self.path, &e))?;
        if let (Record::UpdateStored { client, update, .. }, Some(_)) = (record, payload) {
            self.small.insert((client.clone(), update.hash()), schema::key(run.key, seq));
        }
        self.next = Some((run.key, seq + 1));
        Ok(())
    }

    /// The payload of a small update.
    ///
    /// # Errors
    /// The database does not answer.
    pub(crate) fn payload(&self, run: &StoredRun, client: &ClientId, update: Hash) -> Result<Option<Vec<u8>>> {
        let key = match self.small.get(&(client.clone(), update)) {
            Some(key) => Some(*key),
            None => self.find_payload(run, client, update)?,
        };
        let Some(key) = key else { return Ok(None) };
        let read = || {
            let mut select = self.connection.prepare_cached("SELECT vector FROM records WHERE key = ?1")?;
            select.query_row([key], |row| row.get(0)).optional()
        };
        read().map(Option::flatten).map_err(|e| sqlite_error(&self.path, &e))
    }

    /// The row of a small payload that an earlier process stored.
    fn find_payload(&self, run: &StoredRun, client: &ClientId, update: Hash) -> Result<Option<i64>> {
        let (first, last) = schema::keys(run.key);
        let read = || {
            let mut select = self.connection.prepare_cached(
                "SELECT key, seq FROM records WHERE key BETWEEN ?1 AND ?2 AND kind = 'update-stored' AND client = ?3 AND vector IS NOT NULL
                 ORDER BY key DESC",
            )?;
            let rows = select.query_map(params![first.max(self.open_from), last, client.as_str()], |row| Ok((row.get(0)?, row.get(1)?)))?;
            rows.collect::<rusqlite::Result<Vec<(i64, i64)>>>()
        };
        for (key, seq) in read().map_err(|e| sqlite_error(&self.path, &e))? {
            // Never negative: this process or an earlier one counted them.
            if let Some(Record::UpdateStored { update: stored, .. }) = self.record(run, seq.unsigned_abs())?
                && stored.hash() == update
            {
                return Ok(Some(key));
            }
        }
        Ok(None)
    }

    /// Forgets the payloads of all small updates that were stored so far.
    ///
    /// # Errors
    /// As [`Store::append`].
    pub(crate) fn forget_payloads(&mut self, run: &StoredRun) -> Result<()> {
        let (first, last) = schema::keys(run.key);
        // Where this process closed the round before, it knows of all.
        if self.small.is_empty() && self.open_from > first {
            self.rounds_closed(run);
            return Ok(());
        }
        let forget = || {
            let sql = "UPDATE records SET vector = NULL WHERE key BETWEEN ?1 AND ?2 AND kind = 'update-stored' AND vector IS NOT NULL";
            self.connection.prepare_cached(sql)?.execute([first.max(self.open_from), last])
        };
        forget().map_err(|e| sqlite_error(&self.path, &e))?;
        self.rounds_closed(run);
        Ok(())
    }

    /// No payload that was stored so far is read again.
    pub(crate) fn rounds_closed(&mut self, run: &StoredRun) {
        self.small.clear();
        self.open_from = self.next.map_or(0, |(_, next)| schema::key(run.key, next));
    }

    /// Drops what was appended and not committed.
    pub(crate) fn roll_back(&mut self) {
        self.next = None;
        if !self.connection.is_autocommit() {
            // A database that cannot do this either says so at the next append.
            let _ = self.connection.execute_batch("ROLLBACK");
        }
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
        let commit = || self.connection.prepare_cached("COMMIT")?.execute([]);
        commit().map(drop).map_err(|e| sqlite_error(&self.path, &e))
    }
}

fn lock(database: &Path) -> Result<FileLock> {
    let mut path = database.as_os_str().to_owned();
    path.push(".lock");
    files::lock(Path::new(&path), "another dp-pvi-server uses this state; stop it, or name another state directory")
}

/// A payload that fits into the row of its record.
#[derive(Debug)]
pub(crate) struct SmallPayload {
    pub(crate) client: ClientId,
    /// Hash of the update message.
    pub(crate) update: Hash,
    pub(crate) bytes: Vec<u8>,
}

fn append(transaction: &Connection, run: i64, seq: i64, record: &Record, payload: Option<&[u8]>) -> rusqlite::Result<()> {
    let (light, vector) = vector::split(record);
    // Most records fit without moving the buffer. Plain data: writing it into memory cannot fail.
    let body = postcard::to_extend(light.as_ref().unwrap_or(record), Vec::with_capacity(1024)).expect("records serialise into memory");
    let facts = Facts::of(record);
    let length = vector.map_or(0, <[f64]>::len) as u64 * 8;
    let short = vector.filter(|_| length <= SMALL_PAYLOAD).map(vector::to_bytes);
    let zeroes = rusqlite::blob::ZeroBlob(length);
    let column: &dyn ToSql = match (&payload, &short, vector) {
        (Some(payload), _, _) => payload,
        (None, Some(short), _) => short,
        (None, None, Some(_)) => &zeroes,
        (None, None, None) => &Null,
    };
    let mut insert = transaction.prepare_cached(
        "INSERT INTO records (key, run, seq, kind, at, client, round, body, checksum, vector)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10)",
    )?;
    let checksum = Hash::of(schema::CHECKSUM, &[&body]);
    let at = i64::try_from(facts.at).unwrap_or(i64::MAX);
    let key = schema::key(run, seq);
    insert.execute(params![key, run, seq, facts.kind, at, facts.client.map(ClientId::as_str), facts.round, body, checksum.0, column])?;
    match vector {
        Some(vector) if short.is_none() => vector::write(transaction, key, vector),
        _ => Ok(()),
    }
}

/// Columns beside a record's bytes: for people who look into the file.
struct Facts<'a> {
    kind: &'static str,
    at: u64,
    client: Option<&'a ClientId>,
    round: Option<u32>,
}

impl<'a> Facts<'a> {
    fn of(record: &'a Record) -> Self {
        let plain = |kind, at: &dp_pvi_protocol::time::Timestamp| Facts { kind, at: at.as_millis(), client: None, round: None };
        match record {
            Record::RunOpened { at, .. } => plain("run-opened", at),
            Record::Joined { client, at, .. } => Facts { client: Some(client), ..plain("joined", at) },
            Record::RoundOpened { header, at, .. } => Facts { round: header.peek().ok().map(|h| h.round), ..plain("round-opened", at) },
            Record::UpdateStored { client, update, at, .. } | Record::UpdateExcluded { client, update, at, .. } => {
                let kind = if matches!(record, Record::UpdateStored { .. }) { "update-stored" } else { "update-excluded" };
                Facts { client: Some(client), round: update.peek().ok().map(|u| u.release.round), ..plain(kind, at) }
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
            Record::Aggregation { at, .. } => plain("aggregation", at),
            Record::Suspended { at, .. } => plain("suspended", at),
            Record::Resumed { at } => plain("resumed", at),
            Record::RunEnded { at, .. } => plain("run-ended", at),
        }
    }
}

pub(crate) fn sqlite_error(path: &Path, error: &rusqlite::Error) -> ServerError {
    use rusqlite::ErrorCode;
    match error.sqlite_error_code() {
        Some(ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase) => ServerError::Corrupt(format!("{}: {error}", path.display()).into()),
        Some(ErrorCode::OutOfMemory | ErrorCode::CannotOpen) => ServerError::Exhausted(format!("{}: {error}", path.display()).into()),
        // As where payloads are stored: someone may make room.
        Some(ErrorCode::DiskFull) => {
            ServerError::Exhausted(format!("{}: the disk is full; nothing was lost: make room", path.display()).into())
        }
        _ => ServerError::unavailable(path, error.to_string()),
    }
}

/// The last end of a run, if any row says so.
fn ended(connection: &Connection, run: i64) -> rusqlite::Result<bool> {
    let (first, last) = schema::keys(run);
    connection
        .query_row(
            "SELECT 1 FROM records WHERE key BETWEEN ?1 AND ?2 AND kind = 'run-ended' ORDER BY key DESC LIMIT 1",
            [first, last],
            |_| Ok(()),
        )
        .optional()
        .map(|row| row.is_some())
}

#[cfg(test)]
mod tests;
