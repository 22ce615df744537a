//! Reading the store, also beside a running server.

use std::path::{Path, PathBuf};

use dp_pvi_names::{Hash, RunId};
use dp_pvi_protocol::coordinator::Record;
use dp_pvi_protocol::message::vector_hash;
use rusqlite::{Connection, OpenFlags, OptionalExtension, params};

use super::{StoredRun, ended, schema, sqlite_error, vector};
use crate::error::{Result, ServerError};

/// A read-only view of a store.
#[derive(Debug)]
pub struct Reader {
    path: PathBuf,
    connection: Connection,
}

impl Reader {
    /// Opens an existing store for reading.
    ///
    /// # Errors
    /// There is none, or it is of another version or damaged.
    pub fn open(database: &Path) -> Result<Self> {
        if !database.exists() {
            return Err(ServerError::unavailable(database, "there is no state yet; `dp-pvi-server run` makes it"));
        }
        // The first connection after a crash cuts the log where it cannot be read.
        super::check_log(database)?;
        let connection = Connection::open_with_flags(database, OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX)
            .map_err(|e| sqlite_error(database, &e))?;
        connection.busy_timeout(schema::BUSY).map_err(|e| sqlite_error(database, &e))?;
        connection.pragma_update(None, "query_only", true).map_err(|e| sqlite_error(database, &e))?;
        schema::check(&connection, database)?;
        // One snapshot for all that follows, whatever a running server adds meanwhile.
        connection.execute_batch("BEGIN").map_err(|e| sqlite_error(database, &e))?;
        Ok(Self { path: database.to_owned(), connection })
    }

    /// Version of the tables, which this program reads.
    #[must_use]
    pub fn version(&self) -> i32 {
        // Checked when it was opened.
        schema::VERSION
    }

    /// The last run of the store.
    ///
    /// # Errors
    /// The database does not answer.
    pub fn last_run(&self) -> Result<Option<StoredRun>> {
        last_run(&self.connection, None).map_err(|e| sqlite_error(&self.path, &e))
    }

    /// Record `seq` of a run; `None` after the last.
    ///
    /// # Errors
    /// The database does not answer, or holds other bytes than were written.
    pub fn record(&self, run: &StoredRun, seq: u64) -> Result<Option<Record>> {
        record(&self.connection, &self.path, run, seq, Vectors::Read)
    }

    /// Looks for what the checks of single records cannot see: rows that are gone, or are in another place than they were written to.
    ///
    /// # Errors
    /// [`ServerError::Corrupt`], or the database does not answer.
    pub(crate) fn check_whole(&self) -> Result<()> {
        schema::check_whole(&self.connection, &self.path)
    }

    /// The same without the vector of a closed round: reading a history needs none but the last.
    ///
    /// # Errors
    /// The database does not answer, or holds other bytes than were written.
    pub(crate) fn light_record(&self, run: &StoredRun, seq: u64) -> Result<Option<Record>> {
        record(&self.connection, &self.path, run, seq, Vectors::Skip)
    }

    /// The payload in the row of record `seq`, an update; `None` where it is in a file, or was not kept.
    ///
    /// # Errors
    /// The database does not answer.
    pub(crate) fn payload(&self, run: &StoredRun, seq: u64) -> Result<Option<Vec<u8>>> {
        let key = schema::key(run.key, i64::try_from(seq).unwrap_or(i64::MAX));
        let read = || self.connection.query_row("SELECT vector FROM records WHERE key = ?1", [key], |row| row.get(0)).optional();
        read().map(Option::flatten).map_err(|e| sqlite_error(&self.path, &e))
    }

    /// λ after the last closed round; `None` before the first.
    ///
    /// # Errors
    /// The database does not answer.
    pub(crate) fn last_vector(&self, run: &StoredRun) -> Result<Option<Vec<f64>>> {
        let read = || {
            let (first, last) = schema::keys(run.key);
            let sql = "SELECT key FROM records WHERE key BETWEEN ?1 AND ?2 AND kind = 'round-closed' ORDER BY key DESC LIMIT 1";
            let row: Option<i64> = self.connection.query_row(sql, [first, last], |row| row.get(0)).optional()?;
            row.map(|row| vector::read(&self.connection, row)).transpose()
        };
        read().map_err(|e| sqlite_error(&self.path, &e))
    }
}

/// Whether the vector of a closed round is read with it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Vectors {
    Read,
    Skip,
}

pub(super) fn last_run(connection: &Connection, task: Option<Hash>) -> rusqlite::Result<Option<StoredRun>> {
    let row = connection
        .query_row(
            "SELECT key, task, number FROM runs WHERE ?1 IS NULL OR task = ?1 ORDER BY key DESC LIMIT 1",
            params![task.map(|task| task.0)],
            |row| Ok((row.get::<_, i64>(0)?, row.get::<_, [u8; 32]>(1)?, row.get::<_, u32>(2)?)),
        )
        .optional()?;
    let Some((key, task, number)) = row else { return Ok(None) };
    Ok(Some(StoredRun { key, id: RunId { task: Hash(task), number }, ended: ended(connection, key)? }))
}

pub(super) fn record(connection: &Connection, path: &Path, run: &StoredRun, seq: u64, vectors: Vectors) -> Result<Option<Record>> {
    let fail = |e: rusqlite::Error| sqlite_error(path, &e);
    let read = || {
        let mut statement = connection.prepare_cached("SELECT key, body, checksum, kind = 'round-closed' FROM records WHERE key = ?1")?;
        let key = schema::key(run.key, i64::try_from(seq).unwrap_or(i64::MAX));
        let row = |row: &rusqlite::Row<'_>| Ok((row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?));
        statement.query_row([key], row).optional()
    };
    let row: Option<(i64, Vec<u8>, [u8; 32], bool)> = read().map_err(fail)?;
    let Some((key, body, checksum, heavy)) = row else { return Ok(None) };
    let damaged = || ServerError::Corrupt(format!("{}: record {seq} of run {}", path.display(), run.id.number).into());
    if Hash::of(schema::CHECKSUM, &[&body]).0 != checksum {
        return Err(damaged());
    }
    let Ok((mut record, [])) = postcard::take_from_bytes(&body) else { return Err(damaged()) };
    if vectors == Vectors::Read {
        if heavy {
            record = vector::join(record, vector::read(connection, key).map_err(fail)?);
        }
        if matches!(&record, Record::RoundClosed { entry, lambda, .. } if entry.lambda != vector_hash(lambda)) {
            let message =
                format!("{}: the posterior in record {seq} of run {} is not the one that was signed", path.display(), run.id.number);
            return Err(ServerError::Corrupt(message.into()));
        }
    }
    Ok(Some(record))
}
