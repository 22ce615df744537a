//! The site's ledger on disk: one SQLite file per data set, and one file at every instant.
//!
//! SQLite keeps what a transaction changes in a *rollback journal* and the data in the file itself (`journal_mode = DELETE`,
//! `synchronous = EXTRA`): [`LedgerStore::append`] returns when row, attachment, factor and head are in the ledger's own file, flushed to
//! the disk, and the journal is gone. A lock file beside the database keeps every second writer out.
//!
//! # Copies
//!
//! Whatever copies the file, whenever, holds every row whose append returned before the copy began, or is refused when it is opened. Every
//! page of such a copy is at least as new as the last of those rows. So is the page with the head record, which says how many rows
//! there are and their running digest: what opens has exactly these rows. A copy that mixes pages from before and after a later append, or
//! from the middle of one that a killed writer left, does not fit its own head record. (SQLite by itself does not notice a changed byte
//! inside a cell; the digest does. Attachments and factors are held by hashes inside the signed rows, which the ledger checks
//! whenever it reads one.)
//!
//! What no single file can show, the replacement of everything by an older copy, is shown by a witness: the highest head in a second
//! file ([`RollbackGuard`]), and the head that the server saw (`Ledger::check_witness`).

mod backup;
#[cfg(test)]
mod copy_tests;
#[cfg(test)]
mod ledger_tests;
mod lock;
mod rollback_guard;
#[cfg(test)]
mod tests;
mod view;

use std::fs::{self, OpenOptions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use rusqlite::{Connection, ErrorCode, OpenFlags, OptionalExtension, params};

pub use backup::{backup, restore};
use dp_pvi_names::{Hash, ReleaseId, RunId};
use dp_pvi_privacy::ledger::{APPLICATION_ID, ChargeStore, Extra, LedgerStore, StoreError, StoredRow};
use lock::WriterLock;

use crate::files::{self, suffixed};
pub use rollback_guard::RollbackGuard;
pub use view::{OnDisk, ViewStore};

/// SQLite's number for `synchronous = EXTRA`: the folder is flushed too when the journal is removed.
const EXTRA: i64 = 3;
/// How long a writer waits for readers, which read everything at once and let go, and a reader for a commit.
const BUSY: std::time::Duration = std::time::Duration::from_secs(30);
/// Form of the tables below.
const SCHEMA_VERSION: i64 = 2;
const TABLES: [(&str, &str); 4] = [
    ("attachment", "CREATE TABLE attachment (release BLOB PRIMARY KEY NOT NULL, bytes BLOB NOT NULL) STRICT"),
    ("factor", "CREATE TABLE factor (run BLOB PRIMARY KEY NOT NULL, bytes BLOB NOT NULL) STRICT"),
    ("head", "CREATE TABLE head (id INTEGER PRIMARY KEY NOT NULL CHECK (id = 0), rows INTEGER NOT NULL, digest BLOB NOT NULL) STRICT"),
    (
        "row",
        "CREATE TABLE row (seq INTEGER PRIMARY KEY NOT NULL, bytes BLOB NOT NULL, hash BLOB NOT NULL, signature BLOB NOT NULL, digest BLOB NOT NULL) STRICT",
    ),
];

/// Rows of one data set in a SQLite file.
pub struct SqliteLedger {
    connection: Connection,
    head: Head,
    /// What opening has read already, until someone asks for it.
    opened: Option<Vec<StoredRow>>,
    /// The file, without links in its path.
    place: PathBuf,
    /// Keeps other writers out for as long as it lives.
    _lock: WriterLock,
}

/// Number of rows and the running digest over all of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Head {
    rows: u64,
    digest: Hash,
}

impl SqliteLedger {
    /// Opens an existing ledger for writing. A ledger that is not where it is expected (a volume that is not mounted, a file that
    /// was moved) is never replaced by a new one, which would have forgotten what was spent.
    ///
    /// # Errors
    /// [`StoreError::Unavailable`]: no ledger, another process has the lock, permissions, disk. [`StoreError::Corrupt`]: not the
    /// bytes that were written; an existing empty file is one of these, since this program never leaves one behind.
    pub fn open(path: &Path) -> Result<Self, StoreError> {
        if !exists(path)? {
            return Err(missing(path));
        }
        let lock = WriterLock::take(path)?;
        let store = Self::writer(path, lock)?;
        // A creation that was cut off after the file and before its first row.
        if store.is_empty() { Err(missing(path)) } else { Ok(store) }
    }

    /// Makes a new ledger without rows, an operator's act; `None` where there is one already. (A file without rows, from a
    /// creation that was cut off, is none.)
    ///
    /// # Errors
    /// As [`SqliteLedger::open`].
    pub fn create(path: &Path) -> Result<Option<Self>, StoreError> {
        make_folder(path)?;
        let lock = WriterLock::take(path)?;
        if !exists(path)? {
            create(path)?;
        }
        let store = Self::writer(path, lock)?;
        Ok(store.is_empty().then_some(store))
    }

    fn writer(path: &Path, lock: WriterLock) -> Result<Self, StoreError> {
        let connection = connect(path, OpenFlags::SQLITE_OPEN_READ_WRITE)?;
        make_durable(&connection)?;
        check_file(&connection)?;
        let (rows, head) = read_rows(&connection)?;
        let place = path.canonicalize().map_err(|e| StoreError::Unavailable(format!("{}: {e}", path.display())))?;
        Ok(Self { connection, head, opened: Some(rows), place, _lock: lock })
    }

    /// Number of rows.
    #[must_use]
    pub fn len(&self) -> u64 {
        self.head.rows
    }

    /// Whether there is no row.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl dp_pvi_unsealed::Sealed for SqliteLedger {}

impl ChargeStore for SqliteLedger {
    fn place(&self) -> Option<&Path> {
        Some(&self.place)
    }
}

impl LedgerStore for SqliteLedger {
    fn rows(&mut self) -> Result<Vec<StoredRow>, StoreError> {
        if let Some(rows) = self.opened.take() {
            return Ok(rows);
        }
        let (rows, head) = read_rows(&self.connection)?;
        self.head = head;
        Ok(rows)
    }

    fn append(&mut self, row: &StoredRow, extra: Option<&Extra>) -> Result<(), StoreError> {
        self.opened = None;
        let head = self.head.followed_by(row);
        let transaction = self.connection.transaction_with_behavior(rusqlite::TransactionBehavior::Immediate).map_err(|e| failure(&e))?;
        let run = || {
            transaction
                .prepare_cached("INSERT INTO row (seq, bytes, hash, signature, digest) VALUES (?1, ?2, ?3, ?4, ?5)")?
                .execute(params![to_sql(self.head.rows), row.bytes, row.hash.0, row.signature, head.digest.0])?;
            match extra {
                None => {}
                Some(Extra::Attachment(release, bytes)) => {
                    let key = release_key(release);
                    transaction.prepare_cached("INSERT INTO attachment (release, bytes) VALUES (?1, ?2)")?.execute(params![key, bytes])?;
                }
                Some(Extra::Settled { release, factor, attachment }) => {
                    transaction
                        .prepare_cached("INSERT OR REPLACE INTO factor (run, bytes) VALUES (?1, ?2)")?
                        .execute(params![run_key(&release.run), factor])?;
                    if let Some(attachment) = attachment {
                        transaction
                            .prepare_cached("INSERT OR REPLACE INTO attachment (release, bytes) VALUES (?1, ?2)")?
                            .execute(params![release_key(release), attachment])?;
                    }
                }
            }
            let moved = transaction
                .prepare_cached("UPDATE head SET rows = ?1, digest = ?2 WHERE id = 0 AND rows = ?3 AND digest = ?4")?
                .execute(params![to_sql(head.rows), head.digest.0, to_sql(self.head.rows), self.head.digest.0])?;
            Ok(moved)
        };
        let moved = run().map_err(|e| failure(&e))?;
        if moved != 1 {
            return Err(corrupt("the file changed under this process".into()));
        }
        transaction.commit().map_err(|e| failure(&e))?;
        self.head = head;
        Ok(())
    }

    fn attachment(&mut self, release: &ReleaseId) -> Result<Option<Vec<u8>>, StoreError> {
        self.blob("SELECT bytes FROM attachment WHERE release = ?1", &release_key(release))
    }

    fn factor(&mut self, run: &RunId) -> Result<Option<Vec<u8>>, StoreError> {
        self.blob("SELECT bytes FROM factor WHERE run = ?1", &run_key(run))
    }
}

impl SqliteLedger {
    fn blob(&self, query: &str, key: &[u8]) -> Result<Option<Vec<u8>>, StoreError> {
        self.connection
            .prepare_cached(query)
            .and_then(|mut statement| statement.query_row([key], |row| row.get(0)).optional())
            .map_err(|e| opening(&e))
    }
}

impl Head {
    const EMPTY: Self = Self { rows: 0, digest: Hash([0; 32]) };

    fn followed_by(&self, row: &StoredRow) -> Self {
        let digest = Hash::of("dp-pvi ledger file v1", &[&self.digest.0, &row.bytes, &row.hash.0, &row.signature]);
        Self { rows: self.rows + 1, digest }
    }
}

/// Reads all rows, and checks digests, order and the head record.
fn read_rows(connection: &Connection) -> Result<(Vec<StoredRow>, Head), StoreError> {
    let stored = connection
        .query_row("SELECT rows, digest FROM head WHERE id = 0", [], |row| Ok((row.get::<_, i64>(0)?, row.get::<_, Vec<u8>>(1)?)))
        .map_err(|e| opening(&e))?;
    let mut statement =
        connection.prepare_cached("SELECT seq, bytes, hash, signature, digest FROM row ORDER BY seq").map_err(|e| opening(&e))?;
    let mut found = statement.query([]).map_err(|e| opening(&e))?;
    let mut rows = Vec::new();
    let mut head = Head::EMPTY;
    while let Some(row) = found.next().map_err(|e| opening(&e))? {
        let seq: i64 = row.get(0).map_err(|e| opening(&e))?;
        let stored = StoredRow {
            bytes: row.get(1).map_err(|e| opening(&e))?,
            hash: hash_of(row.get(2).map_err(|e| opening(&e))?)?,
            signature: row.get(3).map_err(|e| opening(&e))?,
        };
        let digest = hash_of(row.get(4).map_err(|e| opening(&e))?)?;
        if u64::try_from(seq) != Ok(head.rows) {
            return Err(corrupt(format!("row {} is missing", head.rows)));
        }
        head = head.followed_by(&stored);
        if head.digest != digest {
            return Err(corrupt(format!("row {seq} was changed")));
        }
        rows.push(stored);
    }
    if u64::try_from(stored.0) != Ok(head.rows) || hash_of(stored.1)? != head.digest {
        return Err(corrupt("the head record is not about these rows".into()));
    }
    Ok((rows, head))
}

/// Writes a new file under another name and moves it into place whole.
fn create(path: &Path) -> Result<(), StoreError> {
    let fresh = suffixed(path, ".new");
    remove_leftovers(&fresh)?;
    // SQLite gives its side files the permissions of the database.
    OpenOptions::new().write(true).create_new(true).mode(0o600).open(&fresh).map_err(|e| unavailable(&fresh, &e))?;
    let connection = Connection::open_with_flags(&fresh, OpenFlags::SQLITE_OPEN_READ_WRITE).map_err(|e| failure(&e))?;
    let tables: String = TABLES.iter().map(|(_, sql)| format!("{sql};\n")).collect();
    connection
        .execute_batch(&format!(
            "PRAGMA synchronous = EXTRA; PRAGMA application_id = {APPLICATION_ID}; PRAGMA user_version = {SCHEMA_VERSION};
             BEGIN; {tables} INSERT INTO head (id, rows, digest) VALUES (0, 0, zeroblob(32)); COMMIT;"
        ))
        .map_err(|e| failure(&e))?;
    connection.close().map_err(|(_, e)| failure(&e))?;
    move_into_place(&fresh, path)
}

/// Opens a connection that trusts nothing in the file.
fn connect(path: &Path, access: OpenFlags) -> Result<Connection, StoreError> {
    let connection = Connection::open_with_flags(path, access | OpenFlags::SQLITE_OPEN_NO_MUTEX).map_err(|e| failure(&e))?;
    connection.busy_timeout(BUSY).map_err(|e| failure(&e))?;
    connection.execute_batch("PRAGMA trusted_schema = OFF; PRAGMA cell_size_check = ON;").map_err(|e| opening(&e))?;
    Ok(connection)
}

/// Puts the settings in force on which durability, and the promise about copies, rest. A ledger that was written with a write-ahead log
/// becomes one file here.
fn make_durable(connection: &Connection) -> Result<(), StoreError> {
    let mode: String = connection.query_row("PRAGMA journal_mode = DELETE", [], |row| row.get(0)).map_err(|e| opening(&e))?;
    if mode != "delete" {
        return Err(StoreError::Unavailable(format!("it cannot be made one file (journal mode {mode}): stop every program that reads it")));
    }
    // What is dropped is overwritten: payloads of settled releases do not stay in free pages.
    connection.execute_batch("PRAGMA synchronous = EXTRA; PRAGMA fullfsync = ON; PRAGMA secure_delete = ON").map_err(|e| opening(&e))?;
    let synchronous: i64 = connection.query_row("PRAGMA synchronous", [], |row| row.get(0)).map_err(|e| opening(&e))?;
    if synchronous == EXTRA {
        Ok(())
    } else {
        Err(StoreError::Unavailable("synchronous = EXTRA is not in force, so a power loss could lose rows".into()))
    }
}

/// Checks identity, version, tables and structure of the file.
fn check_file(connection: &Connection) -> Result<(), StoreError> {
    let number = |pragma: &str| connection.query_row(pragma, [], |row| row.get::<_, i64>(0)).map_err(|e| opening(&e));
    if number("PRAGMA application_id")? != i64::from(APPLICATION_ID) {
        return Err(corrupt("not a dp-pvi ledger".into()));
    }
    let version = number("PRAGMA user_version")?;
    if version != SCHEMA_VERSION {
        return Err(StoreError::Form { found: version, known: SCHEMA_VERSION });
    }
    let mut statement =
        connection.prepare("SELECT name, sql FROM sqlite_schema WHERE sql IS NOT NULL ORDER BY name").map_err(|e| opening(&e))?;
    let tables = statement
        .query_map([], |row| Ok((row.get::<_, String>(0)?, row.get::<_, String>(1)?)))
        .and_then(Iterator::collect::<Result<Vec<_>, _>>)
        .map_err(|e| opening(&e))?;
    if !tables.iter().map(|(name, sql)| (name.as_str(), sql.as_str())).eq(TABLES) {
        return Err(corrupt("its tables are not those of a ledger".into()));
    }
    let verdict: String = connection.query_row("PRAGMA integrity_check(1)", [], |row| row.get(0)).map_err(|e| opening(&e))?;
    if verdict != "ok" {
        return Err(corrupt("SQLite's integrity check failed".into()));
    }
    Ok(())
}

fn missing(path: &Path) -> StoreError {
    StoreError::Unavailable(format!(
        "there is none at {}: if this data set has one, put it back (volume, path, backup); if it never had one, \
         `dp-pvi-client ledger create` makes it",
        path.display()
    ))
}

fn exists(path: &Path) -> Result<bool, StoreError> {
    match fs::metadata(path) {
        Ok(meta) if !meta.is_file() => Err(StoreError::Unavailable(format!("{} is not a file", path.display()))),
        Ok(meta) if meta.len() == 0 => Err(corrupt(format!("{} is empty", path.display()))),
        Ok(_) => Ok(true),
        Err(e) if e.kind() == io::ErrorKind::NotFound => {
            // A journal without its database means that the database was taken away.
            match ["-wal", "-journal"].map(|suffix| suffixed(path, suffix)).iter().find(|journal| journal.exists()) {
                Some(journal) => {
                    let (path, journal) = (path.display(), journal.display());
                    Err(corrupt(format!("{path} is missing beside {journal}, which belongs to it: put both back, or move that one away")))
                }
                None => Ok(false),
            }
        }
        Err(e) => Err(unavailable(path, &e)),
    }
}

/// Whether this process may write a file that is there (a ledger, or its rollback guard), and the files beside it that a change needs. Nothing is changed, and no lock is taken: a
/// program that runs keeps it.
///
/// # Errors
/// What may not be written, and why: permissions, a file system or a file that takes no changes.
pub fn check_writable(path: &Path) -> Result<(), StoreError> {
    let cannot = |what: &Path, error: io::Error| {
        let what = what.display();
        StoreError::Unavailable(format!(
            "{what} cannot be written ({error}): give this user the right to, and the file system and the file one to be changed"
        ))
    };
    for file in [path.to_owned(), suffixed(path, ".lock")] {
        // Neither made nor cut off; what may only grow cannot be opened so.
        match OpenOptions::new().read(true).write(true).open(&file) {
            Err(e) if e.kind() == io::ErrorKind::NotFound && file != path => {}
            opened => drop(opened.map_err(|e| cannot(&file, e))?),
        }
    }
    let folder = files::folder_of(path);
    rustix::fs::access(folder, rustix::fs::Access::WRITE_OK | rustix::fs::Access::EXEC_OK).map_err(|e| cannot(folder, e.into()))
}

fn make_folder(path: &Path) -> Result<(), StoreError> {
    match path.parent().filter(|f| !f.as_os_str().is_empty()) {
        Some(folder) => fs::DirBuilder::new().recursive(true).mode(0o700).create(folder).map_err(|e| unavailable(path, &e)),
        None => Ok(()),
    }
}

/// Removes what a creation that was cut off left under its first name.
fn remove_leftovers(fresh: &Path) -> Result<(), StoreError> {
    for leftover in [fresh.to_owned(), suffixed(fresh, "-journal")] {
        match fs::remove_file(&leftover) {
            Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(unavailable(&leftover, &e)),
            _ => {}
        }
    }
    Ok(())
}

/// Gives a flushed file its name, durably.
fn move_into_place(fresh: &Path, path: &Path) -> Result<(), StoreError> {
    fs::rename(fresh, path).map_err(|e| unavailable(path, &e))?;
    sync_folder(path)
}

/// Flushes the folder of a file: its name is then on disk.
fn sync_folder(path: &Path) -> Result<(), StoreError> {
    files::sync_folder(path).map_err(|e| unavailable(files::folder_of(path), &e))
}

fn release_key(release: &ReleaseId) -> Vec<u8> {
    let mut key = run_key(&release.run);
    key.extend(release.round.to_be_bytes());
    key.extend(release.client.as_str().as_bytes());
    key
}

fn run_key(run: &RunId) -> Vec<u8> {
    [run.task.0.as_slice(), &run.number.to_be_bytes()].concat()
}

fn hash_of(bytes: Vec<u8>) -> Result<Hash, StoreError> {
    bytes.try_into().map(Hash).map_err(|_| corrupt("a digest has the wrong length".into()))
}

/// A ledger has far fewer than 2⁶³ rows: every row costs a flush to the disk.
fn to_sql(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

fn corrupt(what: String) -> StoreError {
    StoreError::Corrupt(what)
}

fn unavailable(path: &Path, error: &io::Error) -> StoreError {
    StoreError::Unavailable(format!("{}: {error}", path.display()))
}

/// An error of SQLite while working: only what it calls corruption is corruption.
fn failure(error: &rusqlite::Error) -> StoreError {
    match error.sqlite_error_code() {
        Some(ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase) => corrupt(describe(error)),
        Some(ErrorCode::DiskFull) => StoreError::Unavailable("the disk is full: free space and start again, nothing was lost".into()),
        _ => StoreError::Unavailable(describe(error)),
    }
}

/// An error of SQLite while reading what we wrote: whatever is not about the environment is corruption (a column that is gone, a
/// type that is not ours).
fn opening(error: &rusqlite::Error) -> StoreError {
    match error.sqlite_error_code() {
        Some(
            ErrorCode::DatabaseBusy
            | ErrorCode::DatabaseLocked
            | ErrorCode::CannotOpen
            | ErrorCode::PermissionDenied
            | ErrorCode::SystemIoFailure
            | ErrorCode::OutOfMemory
            | ErrorCode::DiskFull,
        ) => failure(error),
        _ => corrupt(describe(error)),
    }
}

/// SQLite's own words; they name tables and files, never contents.
fn describe(error: &rusqlite::Error) -> String {
    match error {
        rusqlite::Error::SqliteFailure(code, message) => message.clone().unwrap_or_else(|| code.to_string()),
        _ => "a stored value has another type than the one written".into(),
    }
}
