//! Copies of a ledger that an operator makes, and puts back.

use std::fs::{self, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use rusqlite::OpenFlags;

use crate::ledger::file::lock::WriterLock;
use crate::ledger::file::{check_file, connect, corrupt, exists, failure, move_into_place, opening, suffixed, unavailable};
use crate::ledger::store::StoreError;

/// Writes the ledger at `path` as it is at one moment to a new file `target`, also while a writer is at work. The copy is on disk when
/// this returns; whoever calls this opens it, which verifies it.
///
/// # Errors
/// No ledger at `path`, a file at `target`, the disk; `target` is then not there, or as it was.
pub fn backup(path: &Path, target: &Path) -> Result<(), StoreError> {
    if !exists(path)? {
        return Err(super::missing(path));
    }
    match fs::symlink_metadata(target) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => {}
        Err(e) => return Err(unavailable(target, &e)),
        Ok(_) => {
            return Err(StoreError::Unavailable(format!("{} exists: a backup never overwrites a file, name another", target.display())));
        }
    }
    // Under another name until it is whole: a copy that was cut off is never taken for a backup.
    let fresh = suffixed(target, ".new");
    copy(path, &fresh)?;
    // Unlike a rename, a link cannot take the place of a file that came there meanwhile.
    let placed = fs::hard_link(&fresh, target).map_err(|e| unavailable(target, &e));
    fs::remove_file(&fresh).map_err(|e| unavailable(&fresh, &e))?;
    placed?;
    super::sync_folder(target)
}

/// Puts the backup at `from` to where the ledger was, whole or not at all. Nothing but a missing ledger is replaced.
///
/// # Errors
/// A ledger, or what a ledger left, at `path`; the backup is damaged; the disk.
pub fn restore(from: &Path, path: &Path) -> Result<(), StoreError> {
    super::make_folder(path)?;
    let _lock = WriterLock::take(path)?;
    if exists(path)? {
        return Err(StoreError::Unavailable(format!(
            "there is one at {}: a backup never takes its place; move it away first if it is the one that is damaged",
            path.display()
        )));
    }
    let fresh = suffixed(path, ".new");
    copy(from, &fresh)?;
    move_into_place(&fresh, path)
}

/// A whole copy of a ledger's file at `fresh`, which is replaced, flushed to the disk.
fn copy(from: &Path, fresh: &Path) -> Result<(), StoreError> {
    super::remove_leftovers(fresh)?;
    let name = fresh.to_str().ok_or_else(|| StoreError::Unavailable(format!("{}: the path is not valid UTF-8", fresh.display())))?;
    let file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(fresh).map_err(|e| unavailable(fresh, &e))?;
    let write = || {
        // Able to write, so that a transaction that a killed writer left half-done is taken back first.
        let connection = connect(from, OpenFlags::SQLITE_OPEN_READ_WRITE)?;
        check_file(&connection)?;
        // One statement, so one moment.
        connection.execute("VACUUM INTO ?1", [name]).map_err(|e| match opening(&e) {
            StoreError::Corrupt(what) => corrupt(what),
            StoreError::Unavailable(_) => failure(&e),
        })?;
        connection.close().map_err(|(_, e)| failure(&e))?;
        file.sync_all().map_err(|e| unavailable(fresh, &e))
    };
    let written = write();
    if written.is_err() {
        // The file is of no use; that it could not be written is what the caller has to know.
        let _ = fs::remove_file(fresh);
    }
    written
}
