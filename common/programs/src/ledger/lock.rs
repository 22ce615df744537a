//! One writer per ledger: an advisory lock on a file beside it, held by the operating system for as long as the process lives.

use std::fs::{File, OpenOptions, TryLockError};
use std::io::{Read, Seek, SeekFrom, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::time::Duration;

use dp_pvi_privacy::ledger::StoreError;

/// Further attempts to take a lock that someone holds, and the pause between them: one second in all.
const ATTEMPTS: u32 = 20;
const PAUSE: Duration = Duration::from_millis(50);

/// The lock; released when dropped or when the process ends, however it ends.
#[derive(Debug)]
pub(super) struct WriterLock {
    _file: File,
}

impl WriterLock {
    /// Takes the lock of the ledger at `path` or says who has it.
    pub(super) fn take(path: &Path) -> Result<Self, StoreError> {
        // One lock whatever the ledger is called: a link beside it would have another one.
        let real = std::fs::canonicalize(path);
        let path = super::suffixed(real.as_deref().unwrap_or(path), ".lock");
        let mut file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            .open(&path)
            .map_err(|e| super::unavailable(&path, &e))?;
        match try_for_a_moment(&file) {
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

/// A process that was killed holds its locks until the system has taken it down: anyone who restarts it at once waits a moment.
fn try_for_a_moment(file: &File) -> Result<(), TryLockError> {
    for _ in 0..ATTEMPTS {
        match file.try_lock() {
            Err(TryLockError::WouldBlock) => std::thread::sleep(PAUSE),
            result => return result,
        }
    }
    file.try_lock()
}
