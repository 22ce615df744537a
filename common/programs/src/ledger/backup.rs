//! Copies of a ledger that an operator makes, and puts back.

use std::fs::{self, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;

use rusqlite::OpenFlags;

use crate::files::{on_the_way, suffixed};
use crate::ledger::lock::WriterLock;
use crate::ledger::{SqliteLedger, check_file, connect, corrupt, exists, failure, move_into_place, opening, unavailable};
use dp_pvi_privacy::ledger::StoreError;

/// Writes the ledger at `path` as it is at one moment to a new file `target`, also while a writer is at work. The copy is on disk when
/// this returns; the caller opens it, which verifies it.
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
    let fresh = on_the_way(target);
    copy(path, &fresh)?;
    let placed = place(&fresh, target, |fresh, target| fs::hard_link(fresh, target));
    fs::remove_file(&fresh).map_err(|e| unavailable(&fresh, &e))?;
    placed
}

/// Gives a whole copy its name, durably. Nothing that came there meanwhile is replaced: a link never does that, unlike a rename.
///
/// A file system without links (exFAT, many network shares) gets a second copy in a file that must not have been there.
fn place(fresh: &Path, target: &Path, link: impl Fn(&Path, &Path) -> io::Result<()>) -> Result<(), StoreError> {
    match link(fresh, target) {
        Ok(()) => super::sync_folder(target),
        Err(e) if e.kind() == io::ErrorKind::AlreadyExists => Err(unavailable(target, &e)),
        Err(_) => copy_to_new(fresh, target).map_err(|e| unavailable(target, &e)),
    }
}

/// Length of the text by which SQLite knows its files.
const MAGIC_BYTES: usize = 16;

/// Copies a file into one that must not have been there. The first bytes are written last: a copy that was cut off is no database, so
/// it is never taken for a backup.
fn copy_to_new(from: &Path, target: &Path) -> io::Result<()> {
    let bytes = fs::read(from)?;
    let (magic, rest) = bytes.split_at_checked(MAGIC_BYTES).ok_or(io::ErrorKind::UnexpectedEof)?;
    let file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(target)?;
    let written = file
        .write_all_at(rest, magic.len() as u64)
        .and_then(|()| file.sync_all())
        .and_then(|()| file.write_all_at(magic, 0))
        .and_then(|()| file.sync_all());
    if written.is_err() {
        // This call made the file, and it is of no use; that it could not be written is what the caller has to know.
        let _ = fs::remove_file(target);
        return written;
    }
    match super::sync_folder(target) {
        Ok(()) => Ok(()),
        // Some network shares cannot flush a folder; the server behind them keeps its names by itself.
        Err(_) if fs::read(target)? == bytes => Ok(()),
        Err(e) => Err(io::Error::other(e)),
    }
}

/// Puts the backup at `from` to where the ledger was, whole or not at all. Nothing but a missing ledger is replaced. `mend` writes to the
/// copy what has to be in it before anyone can use it.
///
/// # Errors
/// A ledger, or what a ledger left, at `path`; the backup is damaged; `mend`; the disk.
pub fn restore<E: From<StoreError>>(from: &Path, path: &Path, mend: impl FnOnce(SqliteLedger) -> Result<(), E>) -> Result<(), E> {
    super::make_folder(path)?;
    let lock = WriterLock::take(path)?;
    refuse_another(path)?;
    let fresh = suffixed(path, ".new");
    copy(from, &fresh)?;
    mend(SqliteLedger::writer(&fresh, lock)?)?;
    // The lock went with the store: someone may have come between.
    let _lock = WriterLock::take(path)?;
    refuse_another(path)?;
    Ok(move_into_place(&fresh, path)?)
}

fn refuse_another(path: &Path) -> Result<(), StoreError> {
    if exists(path)? {
        return Err(StoreError::Unavailable(format!(
            "there is one at {}: a backup never takes its place; move it away first if it is the one that is damaged",
            path.display()
        )));
    }
    Ok(())
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
            StoreError::Unavailable(_) | StoreError::Form { .. } => failure(&e),
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

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;
    use crate::ledger::tests::filled;
    use crate::ledger::{SqliteLedger, ViewStore};
    use dp_pvi_privacy::ledger::LedgerStore;

    fn no_links(_: &Path, _: &Path) -> io::Result<()> {
        // What exFAT answers.
        Err(io::ErrorKind::PermissionDenied.into())
    }

    #[test]
    fn a_backup_needs_no_links_and_replaces_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let (path, fresh, target) = (folder.path().join("ledger.db"), folder.path().join("copy.new"), folder.path().join("copy"));
        let rows = filled(&path, 20);
        copy(&path, &fresh).unwrap();
        place(&fresh, &target, no_links).unwrap();
        assert_eq!(ViewStore::open(&target).unwrap().rows().unwrap(), rows);

        // A file that came there in the last moment stays what it is, with links and without.
        fs::write(&target, b"somebody else's").unwrap();
        for link in [no_links, |fresh: &Path, target: &Path| fs::hard_link(fresh, target)] {
            assert!(place(&fresh, &target, link).is_err());
            assert_eq!(fs::read(&target).unwrap(), b"somebody else's");
        }
        // Nor is a dangling name followed.
        fs::remove_file(&target).unwrap();
        std::os::unix::fs::symlink(folder.path().join("elsewhere"), &target).unwrap();
        assert!(place(&fresh, &target, no_links).is_err());
        assert!(!folder.path().join("elsewhere").exists());
    }

    /// A copy that was cut off before its first bytes were written is refused, whatever is in the rest.
    #[test]
    fn a_copy_that_was_cut_off_is_no_ledger() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("ledger.db");
        filled(&path, 20);
        let mut bytes = fs::read(&path).unwrap();
        bytes[..MAGIC_BYTES].fill(0);
        for length in [MAGIC_BYTES, bytes.len() / 2, bytes.len()] {
            fs::write(&path, &bytes[..length]).unwrap();
            assert!(matches!(SqliteLedger::open(&path), Err(StoreError::Corrupt(_))), "cut to {length} bytes");
        }
    }
}
