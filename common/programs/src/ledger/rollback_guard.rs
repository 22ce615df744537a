//! The rollback guard: the highest head of a ledger, in a small file that is kept apart from it.
//!
//! A ledger that is replaced by an older copy of itself is whole, signed and wrong: it does not know what was spent since. A witness
//! that is not copied with it shows that. The server is one; this file is one that needs no server.
//!
//! The file holds two slots of one page each, written in turn and flushed: a write that is cut off damages one, and the other still
//! says the head before. Order: the row first, then this file, then the permit. So a crash leaves the ledger at most one row *ahead* of
//! the file, which is fine; only a ledger that is *behind* is refused.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::{DirBuilderExt, FileExt};
use std::path::{Path, PathBuf};

use crate::files::Arriving;
use crate::ledger::lock::WriterLock;
use crate::ledger::{corrupt, unavailable};
use dp_pvi_names::Hash;
use dp_pvi_privacy::ledger::{HeadPlace, Kept, LedgerHead, RowSigner, StoreError};

/// Size of a slot: a page, so that a torn write of one never reaches the other.
const SLOT: usize = 4096;
const SLOTS: usize = 2;
const MAGIC: &[u8; 16] = b"dp-pvi head v1\0\0";
const LENGTH: usize = MAGIC.len() + 32 + 8 + 32 + 64;
const DOMAIN: &str = "dp-pvi ledger head v1";

/// The highest head of one ledger, in a file apart from it.
#[derive(Debug)]
pub struct RollbackGuard {
    path: PathBuf,
    /// Lock on this file: without it two copies of a ledger, each with a program of its own, could both spend.
    lock: Option<WriterLock>,
    /// Open for writing once there is a file.
    file: Option<File>,
    /// The slot that is written next.
    next: usize,
}

impl RollbackGuard {
    /// The file at `path`, which need not be there yet.
    #[must_use]
    pub fn at(path: impl Into<PathBuf>) -> Self {
        Self { path: path.into(), lock: None, file: None, next: 0 }
    }

    /// Where it is.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The highest head that was kept here, of whichever ledger of this site.
    ///
    /// # Errors
    /// [`StoreError`]: the file is there and says nothing that this site has signed, or cannot be read.
    pub fn head(&self, signer: &dyn RowSigner) -> Result<Option<LedgerHead>, StoreError> {
        Ok(self.read(signer)?.map(|(kept, _)| kept.head))
    }

    fn make_folder(&self) -> Result<(), StoreError> {
        let Some(folder) = self.path.parent().filter(|f| !f.as_os_str().is_empty()) else { return Ok(()) };
        fs::DirBuilder::new().recursive(true).mode(0o700).create(folder).map_err(|e| unavailable(folder, &e))
    }

    /// A new file, whole or not at all.
    fn replace(&mut self, slot: &[u8]) -> Result<(), StoreError> {
        self.file = None;
        self.make_folder()?;
        let write = || {
            let mut fresh = Arriving::at(&self.path, 0o600)?;
            fresh.file().set_len((SLOTS * SLOT) as u64)?;
            fresh.file().write_all_at(slot, 0)?;
            fresh.arrive()
        };
        let file = write().map_err(|e| unavailable(&self.path, &e))?;
        (self.file, self.next) = (Some(file), 1);
        Ok(())
    }

    /// The slot with the highest head, and which one it is.
    fn read(&self, signer: &dyn RowSigner) -> Result<Option<(Kept, usize)>, StoreError> {
        let file = match File::open(&self.path) {
            Ok(file) => file,
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(e) => return Err(unavailable(&self.path, &e)),
        };
        let mut bytes = Vec::with_capacity(SLOTS * SLOT);
        file.take((SLOTS * SLOT) as u64).read_to_end(&mut bytes).map_err(|e| unavailable(&self.path, &e))?;
        let slots = bytes.chunks(SLOT).enumerate().filter_map(|(slot, bytes)| Some((from_bytes(bytes, signer)?, slot)));
        match slots.max_by_key(|(kept, _)| kept.head.seq) {
            Some(found) => Ok(Some(found)),
            None => Err(corrupt(format!(
                "{}, where its highest row is kept, holds nothing that this site's identity key has signed: put the right file or key back; \
                 remove that file only if you know that the ledger is the latest one",
                self.path.display()
            ))),
        }
    }
}

impl dp_pvi_unsealed::Sealed for RollbackGuard {}

impl HeadPlace for RollbackGuard {
    fn name(&self) -> String {
        self.path.display().to_string()
    }

    fn claim(&mut self) -> Result<(), StoreError> {
        if self.lock.is_none() {
            self.make_folder()?;
            let lock = WriterLock::take(&self.path).map_err(|error| match error {
                StoreError::Unavailable(words) => StoreError::Unavailable(format!("{}: {words}", self.path.display())),
                other => other,
            })?;
            self.lock = Some(lock);
        }
        Ok(())
    }

    fn kept(&mut self, signer: &dyn RowSigner) -> Result<Option<Kept>, StoreError> {
        let Some((kept, slot)) = self.read(signer)? else { return Ok(None) };
        self.next = (slot + 1) % SLOTS;
        Ok(Some(kept))
    }

    fn keep(&mut self, kept: Kept, signer: &dyn RowSigner) -> Result<(), StoreError> {
        let bytes = to_bytes(kept, signer);
        let file = match &mut self.file {
            Some(file) => file,
            empty => match OpenOptions::new().write(true).open(&self.path) {
                Ok(file) => empty.insert(file),
                Err(e) if e.kind() == io::ErrorKind::NotFound => return self.replace(&bytes),
                Err(e) => return Err(unavailable(&self.path, &e)),
            },
        };
        file.write_all_at(&bytes, (self.next * SLOT) as u64).and_then(|()| file.sync_data()).map_err(|e| unavailable(&self.path, &e))?;
        self.next = (self.next + 1) % SLOTS;
        Ok(())
    }

    fn start_again(&mut self, kept: Kept, signer: &dyn RowSigner) -> Result<(), StoreError> {
        self.replace(&to_bytes(kept, signer))
    }
}

fn digest(kept: Kept) -> Hash {
    Hash::of(DOMAIN, &[&kept.genesis.0, &kept.head.seq.to_le_bytes(), &kept.head.hash.0])
}

fn to_bytes(kept: Kept, signer: &dyn RowSigner) -> Vec<u8> {
    let signature = signer.sign(&digest(kept));
    [MAGIC.as_slice(), &kept.genesis.0, &kept.head.seq.to_le_bytes(), &kept.head.hash.0, &signature].concat()
}

fn from_bytes(bytes: &[u8], signer: &dyn RowSigner) -> Option<Kept> {
    let rest = bytes.get(..LENGTH)?.strip_prefix(MAGIC.as_slice())?;
    let (genesis, rest) = rest.split_first_chunk()?;
    let (seq, rest) = rest.split_first_chunk()?;
    let (hash, signature) = rest.split_first_chunk()?;
    let kept = Kept { genesis: Hash(*genesis), head: LedgerHead { seq: u64::from_le_bytes(*seq), hash: Hash(*hash) } };
    signer.verify(&digest(kept), signature).then_some(kept)
}
