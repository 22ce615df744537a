//! One writer per ledger: an advisory lock on a file beside it, held by the operating system for as long as the process lives.

use std::fs::{File, OpenOptions, TryLockError};
use std::io::{Read, Seek, SeekFrom, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use dp_pvi_privacy::ledger::StoreError;

/// The lock; released when dropped or when the process ends, however it ends.
pub(super) struct WriterLock {
    _file: File,
}

impl WriterLock {
    /// Takes the lock of the ledger at `path` or says who has it.
    pub(super) fn take(path: &Path) -> Result<Self, StoreError> {
        let path = super::suffixed(path, ".lock");
        let mut file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            .open(&path)
            .map_err(|e| super::unavailable(&path, &e))?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                let mut holder = String::new();
                // The number is a courtesy; the lock itself is what counts.
                let _ = file.read_to_string(&mut holder);
                let holder = holder.trim().parse::<u32>().map_or_else(|_| "another process".into(), |pid| format!("process {pid}"));
                return Err(StoreError::Unavailable(format!("{holder} is using it; stop that one first")));
            }
            Err(TryLockError::Error(e)) => return Err(super::unavailable(&path, &e)),
        }
        // A full disk must not keep a reader of the ledger's state out, so a number that cannot be written is left out.
        let _ = file.set_len(0).and_then(|()| file.seek(SeekFrom::Start(0))).and_then(|_| writeln!(file, "{}", std::process::id()));
        Ok(Self { _file: file })
    }
}
