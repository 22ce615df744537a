//! Tables and settings of the database.

use std::path::Path;

use dp_pvi_protocol::text::visible;
use rusqlite::{Connection, ErrorCode, params};

use super::sqlite_error;
use crate::error::{Result, ServerError};

/// Marks the file as one of ours ("dpvS").
const APPLICATION_ID: i32 = 0x6470_7653;
/// Version of the tables.
pub(super) const VERSION: i32 = 3;
/// Domain of a record's checksum.
pub(super) const CHECKSUM: &str = "dp-pvi server record v1";

const TABLES: &str = "
    CREATE TABLE runs (
        key INTEGER PRIMARY KEY,
        task BLOB NOT NULL,
        number INTEGER NOT NULL,
        UNIQUE (task, number)
    ) STRICT;
    CREATE TABLE records (
        key INTEGER PRIMARY KEY,
        run INTEGER NOT NULL REFERENCES runs (key),
        seq INTEGER NOT NULL,
        kind TEXT NOT NULL,
        at INTEGER NOT NULL,
        client TEXT,
        round INTEGER,
        body BLOB NOT NULL,
        checksum BLOB NOT NULL,
        vector BLOB
    ) STRICT;
    CREATE TABLE heads (
        client TEXT PRIMARY KEY,
        seq INTEGER NOT NULL,
        hash BLOB NOT NULL
    ) STRICT;
    -- The messages in which sites signed the heads of `heads`.
    CREATE TABLE signed_heads (
        client TEXT PRIMARY KEY,
        seq INTEGER NOT NULL,
        message BLOB NOT NULL
    ) STRICT;
";

/// How long another program (a backup, a look at the tables) may hold the database, as of a site's ledger.
pub(super) const BUSY: std::time::Duration = std::time::Duration::from_secs(30);
/// Pages in the cache.
const CACHED_PAGES: i64 = 500;
/// Pages in the write-ahead log after which they move to the file itself.
const LOGGED_PAGES: i64 = 2000;

/// Rows of one run that a key has room for.
const ROWS: i64 = 1 << 32;

/// Key of record `seq` of a run: in the order of the records, so that a round's rows stand together, and without an index.
pub(super) fn key(run: i64, seq: i64) -> i64 {
    // Beyond, the key is not found: 2^31 runs, or 2^32 records of a run.
    if seq < ROWS { run.checked_mul(ROWS).and_then(|first| first.checked_add(seq)).unwrap_or(i64::MAX) } else { i64::MAX }
}

/// Keys of a run's records, first and last.
pub(super) fn keys(run: i64) -> (i64, i64) {
    (key(run, 0), key(run, ROWS - 1))
}

/// What every database of this program has: a write-ahead log, and commits that survive a power loss.
pub(crate) fn configure(connection: &Connection, path: &Path) -> Result<()> {
    let fail = |e: rusqlite::Error| sqlite_error(path, &e);
    connection.busy_timeout(BUSY).map_err(fail)?;
    let mode: String = connection.query_row("PRAGMA journal_mode = WAL", [], |row| row.get(0)).map_err(fail)?;
    if mode != "wal" {
        return Err(ServerError::unavailable(path, "the file system does not support SQLite's write-ahead log; use a local disk"));
    }
    connection.pragma_update(None, "synchronous", "FULL").map_err(fail)
}

/// Sets the connection up and makes or checks the tables.
pub(super) fn prepare(connection: &Connection, path: &Path) -> Result<()> {
    let fail = |e: rusqlite::Error| sqlite_error(path, &e);
    configure(connection, path)?;
    connection.pragma_update(None, "foreign_keys", true).map_err(fail)?;
    // Vectors go through the cache in pieces: more would only hold memory.
    connection.pragma_update(None, "cache_size", CACHED_PAGES).map_err(fail)?;
    // The last pages are written again with every round: most of that never has to reach the file itself.
    connection.pragma_update(None, "wal_autocheckpoint", LOGGED_PAGES).map_err(fail)?;
    connection.set_prepared_statement_cache_capacity(16);

    let tables: i64 = connection.query_row("SELECT count(*) FROM sqlite_schema", [], |row| row.get(0)).map_err(fail)?;
    if tables == 0 {
        let script = format!("BEGIN; {TABLES} PRAGMA application_id = {APPLICATION_ID}; PRAGMA user_version = {VERSION}; COMMIT;");
        connection.execute_batch(&script).map_err(fail)?;
    }
    check(connection, path)?;
    check_whole(connection, path)?;
    make_room(connection, path)
}

/// Writes zeroes into the write-ahead log, up to the length at which it is used again from its start. A flush of a file that does
/// not grow costs less, and half the time.
fn make_room(connection: &Connection, path: &Path) -> Result<()> {
    let page: i64 = connection.pragma_query_value(None, "page_size", |row| row.get(0)).map_err(|e| sqlite_error(path, &e))?;
    // Pages that the cache cannot hold go into the log before the transaction ends, and stay there, unread, when it is undone.
    let zeroes = rusqlite::blob::ZeroBlob((page * (LOGGED_PAGES + CACHED_PAGES)).unsigned_abs());
    let fill = || {
        let transaction = connection.unchecked_transaction()?;
        transaction.execute("INSERT INTO heads (client, seq, hash) VALUES ('', 0, ?1)", params![zeroes])?;
        transaction.rollback()
    };
    match fill() {
        // A full disk, or a limit on files. It is only room: what that does to a run, its own records find out.
        Err(error) if matches!(error.sqlite_error_code(), Some(ErrorCode::DiskFull | ErrorCode::SystemIoFailure)) => Ok(()),
        result => result.map_err(|e| sqlite_error(path, &e)),
    }
}

/// Looks for rows that are gone or are in another place than they were written to: a run that has lost its last records is no shorter
/// run. What a row holds is checked where it is read.
///
/// # Errors
/// [`ServerError::Corrupt`], or the database does not answer.
pub(super) fn check_whole(connection: &Connection, path: &Path) -> Result<()> {
    let fail = |e: rusqlite::Error| sqlite_error(path, &e);
    let pages: String = connection.query_row("PRAGMA quick_check(1)", [], |row| row.get(0)).map_err(fail)?;
    if pages != "ok" {
        return Err(ServerError::Corrupt(format!("{}: {}", path.display(), visible(&pages)).into()));
    }
    let count =
        |sql: &str, rows: &[i64]| connection.query_row(sql, rusqlite::params_from_iter(rows), |row| row.get::<_, i64>(0)).map_err(fail);
    // A key is the place of a record, which its row names once more; places are filled without gaps; every row is of a run that is known.
    let misplaced = count("SELECT count(*) FROM records WHERE key IS NOT run * ?1 + seq", &[ROWS])?;
    let gaps =
        count("SELECT count(*) FROM (SELECT 1 FROM records GROUP BY run HAVING count(*) IS NOT max(seq) + 1 OR min(seq) IS NOT 0)", &[])?;
    let foreign = count("SELECT count(*) FROM records WHERE run NOT IN (SELECT key FROM runs)", &[])?;
    if (misplaced, gaps, foreign) != (0, 0, 0) {
        return Err(ServerError::Corrupt(format!("{}: rows are missing, or are not where they were written", path.display()).into()));
    }
    Ok(())
}

/// Checks that this is a store of this version.
pub(super) fn check(connection: &Connection, path: &Path) -> Result<()> {
    let number = |name: &str| connection.pragma_query_value(None, name, |row| row.get::<_, i32>(0)).map_err(|e| sqlite_error(path, &e));
    if number("application_id")? != APPLICATION_ID {
        return Err(ServerError::unavailable(path, "this is another program's database; name another state directory"));
    }
    let version = number("user_version")?;
    if version != VERSION {
        let message = format!("the state is of version {version}, this server reads {VERSION}; use the server that wrote it");
        return Err(ServerError::unavailable(path, message));
    }
    Ok(())
}
