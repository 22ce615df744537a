//! Payloads on disk: written while they arrive, durable before the receipt, read again when the round is summed.
//!
//! A file is named by its site and the hash of its update message, so its record in the database says exactly which file it
//! means; files without a record are left-overs of a crash and are removed at the next start.

use std::collections::HashSet;
use std::fs::File;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use dp_pvi_names::{ClientId, Hash, RunId};
use dp_pvi_programs::files::Arriving;
use dp_pvi_protocol::coordinator::Expected;
use dp_pvi_protocol::sum::{PayloadCheck, PayloadError};

use crate::error::{Result, ServerError};
use crate::files::create_private_directory;
use crate::resource_backoff::{passes, with_backoff};
use crate::telemetry::Telemetry;

/// Start of the names of files that are not complete.
const ARRIVING: &str = ".arriving-";

const READ_BYTES: usize = 1 << 16;

/// The folder of payloads of one run.
#[derive(Debug, Clone)]
pub(crate) struct PayloadStore {
    root: PathBuf,
}

static NUMBER: AtomicU64 = AtomicU64::new(0);

impl PayloadStore {
    /// Opens the folder of a run below the state directory.
    pub(crate) fn open(state: &Path, run: &RunId) -> Result<Self> {
        let root = folder(state, run);
        create_private_directory(&root)?;
        Ok(Self { root })
    }

    /// The folder of a run that may be gone, for reading.
    pub(crate) fn existing(state: &Path, run: &RunId) -> Self {
        Self { root: folder(state, run) }
    }

    /// A whole payload; `None` where it was not kept.
    pub(crate) fn whole(&self, client: &ClientId, update: Hash) -> std::io::Result<Option<Vec<u8>>> {
        match std::fs::read(self.path(client, update)) {
            Ok(bytes) => Ok(Some(bytes)),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Starts a payload.
    pub(crate) fn begin(&self, client: &ClientId, update: Hash, expected: Expected) -> std::io::Result<PayloadWriter> {
        let target = self.path(client, update);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let temporary = self.root.join(format!("{ARRIVING}{}-{number}", std::process::id()));
        Ok(PayloadWriter { check: PayloadCheck::new(expected), file: Arriving::named(temporary, target, 0o666)? })
    }

    /// Feeds a payload to `sink` in pieces. Waits where the system can open no more files.
    pub(crate) fn read(
        &self,
        client: &ClientId,
        update: Hash,
        telemetry: &Telemetry,
        sink: &mut dyn FnMut(&[u8]) -> std::result::Result<(), PayloadError>,
    ) -> std::result::Result<(), WriteError> {
        let path = self.path(client, update);
        let mut file = with_backoff(telemetry, "a payload could not be read", passes, || File::open(&path))?;
        let mut buffer = vec![0; READ_BYTES];
        loop {
            let read = file.read(&mut buffer)?;
            if read == 0 {
                return Ok(());
            }
            sink(&buffer[..read])?;
        }
    }

    /// Removes every file but those of `keep`: at the start, when nothing is arriving.
    pub(crate) fn retain(&self, keep: &HashSet<(ClientId, Hash)>) -> Result<()> {
        self.sweep(keep, |_| true)
    }

    /// Removes every finished payload but those of `keep`; what is arriving stays.
    pub(crate) fn retain_finished(&self, keep: &HashSet<(ClientId, Hash)>) -> Result<()> {
        self.sweep(keep, |name| !name.starts_with(ARRIVING))
    }

    fn sweep(&self, keep: &HashSet<(ClientId, Hash)>, removable: impl Fn(&str) -> bool) -> Result<()> {
        let keep: HashSet<PathBuf> = keep.iter().map(|(client, update)| self.path(client, *update)).collect();
        let unavailable = |e: std::io::Error| ServerError::unavailable(&self.root, e);
        for entry in std::fs::read_dir(&self.root).map_err(unavailable)? {
            let entry = entry.map_err(unavailable)?;
            if !keep.contains(&entry.path()) && removable(&entry.file_name().to_string_lossy()) {
                std::fs::remove_file(entry.path()).map_err(|e| ServerError::unavailable(&entry.path(), e))?;
            }
        }
        Ok(())
    }

    /// Removes the payload of an update that came too late. One that cannot be removed now goes at the next start.
    pub(crate) fn remove(&self, client: &ClientId, update: Hash) {
        let _ = std::fs::remove_file(self.path(client, update));
    }

    fn path(&self, client: &ClientId, update: Hash) -> PathBuf {
        self.root.join(format!("{client}-{update}.payload"))
    }
}

fn folder(state: &Path, run: &RunId) -> PathBuf {
    let task = run.task.to_string();
    state.join("rounds").join(format!("{}-{}", &task[..16], run.number))
}

/// Why a payload was not stored or cannot be read.
#[derive(Debug, thiserror::Error)]
pub(crate) enum WriteError {
    /// Its bytes.
    #[error(transparent)]
    Payload(#[from] PayloadError),
    /// The disk.
    #[error("the payload's file cannot be used: {0}")]
    Io(#[from] std::io::Error),
}

/// A payload on its way to disk; removed unless finished.
#[derive(Debug)]
pub(crate) struct PayloadWriter {
    check: PayloadCheck,
    file: Arriving,
}

impl PayloadWriter {
    /// Takes the next bytes.
    pub(crate) fn write(&mut self, chunk: &[u8]) -> std::result::Result<(), WriteError> {
        self.check.update(chunk)?;
        Ok(self.file.file().write_all(chunk)?)
    }

    /// Checks the whole and makes it durable.
    pub(crate) fn finish(self) -> std::result::Result<(), WriteError> {
        self.check.finish()?;
        Ok(self.file.arrive().map(drop)?)
    }
}
