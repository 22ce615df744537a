//! What the summer must not forget while a run goes on: one SQLite file (WAL, `synchronous=FULL`) for all charters.
//!
//! It holds no key: those are in the [vault](super::vault). A copy of this file opens no seed.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use dp_pvi_names::Hash;
use dp_pvi_protocol::aggregation::summer::SummerStores;
use dp_pvi_secagg::summer::{RoundRecord, StoreError, SummerStore};
use dp_pvi_secagg::transcript::Head;
use rusqlite::{Connection, OptionalExtension, params};

use super::vault::FileVault;
use dp_pvi_programs::files::FileLock;
use dp_pvi_programs::files::sync_folder;

use crate::error::{Result, ServerError};
use crate::files::{check_own, create_private_directory, lock, private_database};
use crate::store::{check_log, configure, sqlite_error};

/// Marks the file as a summer's ("dpvM").
const APPLICATION_ID: i32 = 0x6470_764d;
const VERSION: i32 = 1;
const CHECKSUM: &str = "dp-pvi summer record v1";

const TABLES: &str = "
    CREATE TABLE heads (
        charter BLOB PRIMARY KEY,
        round INTEGER NOT NULL,
        previous BLOB NOT NULL
    ) STRICT;
    CREATE TABLE rounds (
        charter BLOB NOT NULL,
        round INTEGER NOT NULL,
        state TEXT NOT NULL,
        body BLOB NOT NULL,
        checksum BLOB NOT NULL,
        PRIMARY KEY (charter, round)
    ) STRICT;
";

/// The summer's folders: one database, and one vault folder for every charter.
#[derive(Debug)]
pub struct FileStores {
    path: PathBuf,
    vault: PathBuf,
    connection: Arc<Mutex<Connection>>,
    _lock: FileLock,
}

impl FileStores {
    /// Opens or makes the database below `state`, and the folder of keys.
    ///
    /// # Errors
    /// Locked by another summer, of another version, damaged, or the disk is full.
    pub fn open(state: &Path, vault: &Path) -> Result<Self> {
        create_private_directory(state)?;
        create_private_directory(vault)?;
        check_own(state)?;
        check_own(vault)?;
        let lock = lock(&vault.join(".lock"), "another summer uses this vault; stop it, or name other folders")?;
        let path = state.join("summer.db");
        let fail = |e: rusqlite::Error| sqlite_error(&path, &e);
        private_database(&path)?;
        check_log(&path)?;
        let connection = Connection::open(&path).map_err(fail)?;
        configure(&connection, &path)?;
        connection.pragma_update(None, "secure_delete", true).map_err(fail)?;
        let tables: i64 = connection.query_row("SELECT count(*) FROM sqlite_schema", [], |row| row.get(0)).map_err(fail)?;
        if tables == 0 {
            let script = format!("BEGIN; {TABLES} PRAGMA application_id = {APPLICATION_ID}; PRAGMA user_version = {VERSION}; COMMIT;");
            connection.execute_batch(&script).map_err(fail)?;
        }
        let number = |name: &str| connection.pragma_query_value(None, name, |row| row.get::<_, i32>(0)).map_err(fail);
        if (number("application_id")?, number("user_version")?) != (APPLICATION_ID, VERSION) {
            return Err(ServerError::unavailable(&path, "this is not a summer's database of this version; name another state folder"));
        }
        sync_folder(&path).map_err(|e| ServerError::unavailable(&path, e))?;
        Ok(Self { path, vault: vault.to_owned(), connection: Arc::new(Mutex::new(connection)), _lock: lock })
    }
}

impl SummerStores for FileStores {
    type Store = CharterStore;
    type Vault = FileVault;

    fn open(&mut self, charter: Hash) -> std::result::Result<(CharterStore, FileVault), StoreError> {
        let vault = FileVault::open(&self.vault, charter).map_err(|e| StoreError(e.to_string()))?;
        Ok((CharterStore { path: self.path.clone(), connection: Arc::clone(&self.connection), charter }, vault))
    }
}

/// The records of one charter.
#[derive(Debug)]
pub struct CharterStore {
    path: PathBuf,
    connection: Arc<Mutex<Connection>>,
    charter: Hash,
}

impl CharterStore {
    fn database(&self) -> MutexGuard<'_, Connection> {
        // A thread that panicked left the database as its last transaction did.
        self.connection.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn failed(&self, error: &rusqlite::Error) -> StoreError {
        StoreError(sqlite_error(&self.path, error).to_string())
    }

    fn damaged(&self) -> StoreError {
        StoreError(format!("{}: it holds other bytes than were written", self.path.display()))
    }
}

impl SummerStore for CharterStore {
    fn head(&self) -> std::result::Result<Option<Head>, StoreError> {
        let row = self
            .database()
            .query_row("SELECT round, previous FROM heads WHERE charter = ?1", [self.charter.0], |row| {
                Ok((row.get::<_, u32>(0)?, row.get::<_, [u8; 32]>(1)?))
            })
            .optional()
            .map_err(|e| self.failed(&e))?;
        Ok(row.map(|(round, previous)| Head { round, previous: Hash(previous) }))
    }

    fn save_head(&mut self, head: Head) -> std::result::Result<(), StoreError> {
        let save = || {
            let database = self.database();
            let transaction = database.unchecked_transaction()?;
            transaction.execute(
                "INSERT INTO heads (charter, round, previous) VALUES (?1, ?2, ?3)
                 ON CONFLICT (charter) DO UPDATE SET round = excluded.round, previous = excluded.previous",
                params![self.charter.0, head.round, head.previous.0],
            )?;
            transaction.execute("DELETE FROM rounds WHERE charter = ?1 AND round < ?2", params![self.charter.0, head.round])?;
            transaction.commit()
        };
        save().map_err(|e| self.failed(&e))
    }

    fn round(&self, round: u32) -> std::result::Result<Option<RoundRecord>, StoreError> {
        let row = self
            .database()
            .query_row("SELECT body, checksum FROM rounds WHERE charter = ?1 AND round = ?2", params![self.charter.0, round], |row| {
                Ok((row.get::<_, Vec<u8>>(0)?, row.get::<_, [u8; 32]>(1)?))
            })
            .optional()
            .map_err(|e| self.failed(&e))?;
        let Some((body, checksum)) = row else { return Ok(None) };
        if Hash::of(CHECKSUM, &[&body]).0 != checksum {
            return Err(self.damaged());
        }
        postcard::from_bytes(&body).map(Some).map_err(|_| self.damaged())
    }

    fn save_round(&mut self, round: u32, record: &RoundRecord) -> std::result::Result<(), StoreError> {
        let state = match record {
            RoundRecord::Offered(_) => "offered",
            RoundRecord::Open(_) => "open",
            RoundRecord::Closed(_) => "closed",
            RoundRecord::Answered(_) => "answered",
        };
        let body = postcard::to_stdvec(record).map_err(|e| StoreError(e.to_string()))?;
        let checksum = Hash::of(CHECKSUM, &[&body]);
        self.database()
            .execute(
                "INSERT INTO rounds (charter, round, state, body, checksum) VALUES (?1, ?2, ?3, ?4, ?5)
                 ON CONFLICT (charter, round) DO UPDATE SET state = excluded.state, body = excluded.body, checksum = excluded.checksum",
                params![self.charter.0, round, state, body, checksum.0],
            )
            .map(drop)
            .map_err(|e| self.failed(&e))
    }
}
