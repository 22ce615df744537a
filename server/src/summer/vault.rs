//! Round keys on disk: one file a round, outside the database, gone when the round is over.
//!
//! # What keeps a round closed
//!
//! The database says which rounds are closed, and a database can be restored from a copy. So the key lives here, in a folder that no
//! backup may hold, and four things prevent a second closing of a copy:
//!
//! 1. The key of a closed round is overwritten and removed before the answer leaves, and `destroyed` says so durably before that. A
//!    restored database finds no key.
//! 2. Beside a key file stands which file it is: its inode, the time at which that was made, and the machine's current boot. Restored by
//!    `cp`, `rsync`, `tar`, or with an image of the disk that needs a boot, it is not that file any more: its round's key counts as
//!    destroyed, and is. Where a file system does not know when a file was made (FUSE, some network ones), the time of its last change
//!    stands for that: then a new owner, mode or hard link destroys the key too.
//! 3. A hard link is the same file, so overwriting reaches it.
//! 4. A running process remembers what it destroyed, whatever happens to the folder below it.
//!
//! What remains: a file system that is rolled back as a whole under the same boot (a snapshot of a volume, or of a machine with its memory)
//! while the process is down, and disks that keep overwritten blocks. Put the vault on a memory file system to exclude the first without
//! trusting anyone's care; a restart of the machine then costs the open round, as it does anyway.

use std::fs::{self, File, Metadata, OpenOptions};
use std::io::{ErrorKind, Read, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::UNIX_EPOCH;

use dp_pvi_names::Hash;
use dp_pvi_secagg::summer::{KeyVault, Slot, StoreError};
use zeroize::Zeroizing;

use dp_pvi_programs::files::sync_folder;

use crate::error::Result;
use crate::files::{check_own, create_private_directory, replace};

const DESTROYED: &str = "destroyed";
const KEY: &str = ".key";
/// End of the names of the files that say which file a key is.
const BINDING: &str = ".binding";
/// End of the names of files that are not complete.
const ARRIVING: &str = ".new";
const KEY_BYTES: usize = 32;
const BOOT_ID: &str = "/proc/sys/kernel/random/boot_id";

/// The round keys of one charter.
#[derive(Debug)]
pub struct FileVault {
    folder: PathBuf,
    boot: Hash,
    /// Rounds below this have no key any more.
    destroyed: u32,
}

impl FileVault {
    /// Opens the vault of a charter below the configured folder, finishes what a crash left, and destroys keys that are not the files
    /// that were written here.
    ///
    /// # Errors
    /// The folder cannot be used.
    pub fn open(vault: &Path, charter: Hash) -> Result<Self> {
        Self::open_in_boot(vault, charter, boot())
    }

    /// The same, as in another boot of the machine.
    fn open_in_boot(vault: &Path, charter: Hash, boot: Hash) -> Result<Self> {
        let folder = vault.join(charter.to_string());
        create_private_directory(&folder)?;
        check_own(&folder)?;
        let unavailable = |e: std::io::Error| crate::error::ServerError::unavailable(&folder, e);
        let destroyed = read_destroyed(&folder).map_err(unavailable)?;
        let mut vault = Self { folder: folder.clone(), boot, destroyed };
        vault.recover().map_err(|e| crate::error::ServerError::unavailable(&folder, e))?;
        Ok(vault)
    }

    fn recover(&mut self) -> std::result::Result<(), StoreError> {
        for (name, round) in self.files()? {
            match round {
                // Its public half never left: the file has no name yet.
                None => erase(&self.folder.join(name)).map_err(|e| self.failed(&e))?,
                Some(round) if self.is_unfinished(round)? => erase(&self.path(round)).map_err(|e| self.failed(&e))?,
                Some(round) => {
                    if self.read(round)?.is_none() {
                        self.destroy_through(round)?;
                    }
                }
            }
        }
        if let Some(last) = self.destroyed.checked_sub(1) {
            self.erase_through(last)?;
        }
        Ok(())
    }

    /// Key files and bindings with their rounds, and (without one) files that were arriving.
    fn files(&self) -> std::result::Result<Vec<(String, Option<u32>)>, StoreError> {
        let mut files = Vec::new();
        for entry in fs::read_dir(&self.folder).map_err(|e| self.failed(&e))? {
            let name = entry.map_err(|e| self.failed(&e))?.file_name().to_string_lossy().into_owned();
            let number = name.strip_suffix(KEY).or_else(|| name.strip_suffix(BINDING));
            if name.ends_with(ARRIVING) && (name.contains(KEY) || name.contains(BINDING)) {
                files.push((name, None));
            } else if let Some(round) = number.and_then(|number| number.parse().ok()) {
                files.push((name, Some(round)));
            }
        }
        Ok(files)
    }

    fn path(&self, round: u32) -> PathBuf {
        self.folder.join(format!("{round}{KEY}"))
    }

    fn binding_path(&self, round: u32) -> PathBuf {
        self.folder.join(format!("{round}{BINDING}"))
    }

    /// The key in a round's file; `None` where the file is not the one that was written, not whole, or not there.
    fn read(&self, round: u32) -> std::result::Result<Option<Zeroizing<[u8; KEY_BYTES]>>, StoreError> {
        let present = |error: std::io::Error| if error.kind() == ErrorKind::NotFound { Ok(None) } else { Err(self.failed(&error)) };
        let mut file = match File::open(self.path(round)) {
            Ok(file) => file,
            Err(error) => return present(error),
        };
        let binding = match fs::read(self.binding_path(round)) {
            Ok(binding) => binding,
            Err(error) => return present(error),
        };
        let metadata = file.metadata().map_err(|e| self.failed(&e))?;
        let mut key = Zeroizing::new([0; KEY_BYTES]);
        let whole = metadata.len() == key.len() as u64 && file.read_exact(key.as_mut()).is_ok();
        Ok((whole && binding == self.binding(round, &metadata).0).then_some(key))
    }

    /// Which file this is: a copy has another binding.
    fn binding(&self, round: u32, metadata: &Metadata) -> Hash {
        let made = metadata.created().ok().and_then(|at| at.duration_since(UNIX_EPOCH).ok()).map(|at| format!("made {}", at.as_nanos()));
        let time = made.unwrap_or_else(|| format!("changed {}.{:09}", metadata.ctime(), metadata.ctime_nsec()));
        let inode = metadata.ino().to_le_bytes();
        Hash::of("dp-pvi summer key file v2", &[&round.to_le_bytes(), &self.boot.0, &inode, time.as_bytes()])
    }

    /// Whether a crash came between a key and its binding: its public half never left.
    fn is_unfinished(&self, round: u32) -> std::result::Result<bool, StoreError> {
        Ok(self.is_there(&self.path(round))? && !self.is_there(&self.binding_path(round))?)
    }

    /// A file that cannot be looked at is not one that never was.
    fn is_there(&self, path: &Path) -> std::result::Result<bool, StoreError> {
        path.try_exists().map_err(|e| self.failed(&e))
    }

    fn write(&self, round: u32, key: &[u8; KEY_BYTES]) -> std::io::Result<()> {
        let target = self.path(round);
        let temporary = target.with_extension(format!("{}{ARRIVING}", &KEY[1..]));
        for half_way in [&temporary, &target] {
            if half_way.exists() {
                // An attempt that failed half-way: its public half never left.
                erase(half_way)?;
            }
        }
        let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&temporary)?;
        let arrived = file.write_all(key).and_then(|()| file.sync_all()).and_then(|()| fs::rename(&temporary, &target));
        // Half a key would only keep a full disk full.
        arrived.inspect_err(|_| drop(erase(&temporary)))?;
        sync_folder(&target)?;
        // Last, because the key's time of change moves until here. A key without a binding was never used.
        let binding = self.binding(round, &file.metadata()?);
        replace(&self.binding_path(round), &binding.0).map_err(std::io::Error::other)
    }

    fn erase_through(&self, round: u32) -> std::result::Result<(), StoreError> {
        for (name, kept) in self.files()? {
            if kept.is_some_and(|kept| kept <= round) {
                erase(&self.folder.join(name)).map_err(|e| self.failed(&e))?;
            }
        }
        Ok(())
    }

    fn failed(&self, error: &dyn std::fmt::Display) -> StoreError {
        StoreError(format!("{}: {error}", self.folder.display()))
    }
}

impl KeyVault for FileVault {
    fn slot(&self, round: u32) -> std::result::Result<Slot, StoreError> {
        // The folder may have been exchanged below us: what this process knows and what the folder says both count.
        let on_disk = read_destroyed(&self.folder).map_err(|e| self.failed(&e))?;
        if round < self.destroyed.max(on_disk) {
            return Ok(Slot::Destroyed);
        }
        if !self.is_there(&self.binding_path(round))? {
            return Ok(Slot::Never);
        }
        Ok(self.read(round)?.map_or(Slot::Destroyed, Slot::Kept))
    }

    fn keep(&mut self, round: u32, key: Zeroizing<[u8; KEY_BYTES]>) -> std::result::Result<(), StoreError> {
        match self.slot(round)? {
            Slot::Never => self.write(round, &key).map_err(|e| self.failed(&e)),
            Slot::Kept(_) | Slot::Destroyed => Err(self.failed(&"the round had a key before")),
        }
    }

    fn destroy_through(&mut self, round: u32) -> std::result::Result<(), StoreError> {
        let destroyed = self.destroyed.max(round.saturating_add(1));
        // First the word, then the deed: a crash between them leaves a key that counts as destroyed.
        if read_destroyed(&self.folder).map_err(|e| self.failed(&e))? < destroyed {
            replace(&self.folder.join(DESTROYED), destroyed.to_string().as_bytes()).map_err(|e| self.failed(&e))?;
        }
        self.destroyed = destroyed;
        self.erase_through(round)
    }
}

/// Overwrites a file where it lies, then removes it.
fn erase(path: &Path) -> std::io::Result<()> {
    let mut file = OpenOptions::new().write(true).open(path)?;
    let length = usize::try_from(file.metadata()?.len()).unwrap_or(usize::MAX).min(1 << 12);
    file.write_all(&vec![0; length])?;
    file.sync_all()?;
    fs::remove_file(path)?;
    sync_folder(path)
}

fn read_destroyed(folder: &Path) -> std::io::Result<u32> {
    match fs::read_to_string(folder.join(DESTROYED)) {
        Ok(text) => text.trim().parse().map_err(|_| std::io::Error::other("the file `destroyed` is not a number")),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(0),
        Err(error) => Err(error),
    }
}

/// This boot of the machine. Where the system does not say, all boots are alike.
fn boot() -> Hash {
    Hash::of("dp-pvi boot v1", &[&fs::read(BOOT_ID).unwrap_or_default()])
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use tempfile::TempDir;

    use super::*;

    const CHARTER: Hash = Hash([7; 32]);

    fn key() -> Zeroizing<[u8; KEY_BYTES]> {
        Zeroizing::new([0xA5; KEY_BYTES])
    }

    fn kept(vault: &FileVault, round: u32) -> bool {
        matches!(vault.slot(round).unwrap(), Slot::Kept(found) if found == key())
    }

    fn destroyed(vault: &FileVault, round: u32) -> bool {
        matches!(vault.slot(round).unwrap(), Slot::Destroyed)
    }

    #[test]
    fn a_key_survives_a_restart_of_the_process_and_not_one_of_the_machine() {
        let root = TempDir::new().unwrap();
        let mut vault = FileVault::open(root.path(), CHARTER).unwrap();
        vault.keep(4, key()).unwrap();
        assert!(vault.keep(4, key()).is_err(), "one key a round");
        assert!(kept(&FileVault::open(root.path(), CHARTER).unwrap(), 4));
        assert!(matches!(FileVault::open(root.path(), Hash([8; 32])).unwrap().slot(4).unwrap(), Slot::Never), "a charter has its own keys");
        let later = FileVault::open_in_boot(root.path(), CHARTER, Hash([1; 32])).unwrap();
        assert!(destroyed(&later, 4) && destroyed(&later, 0));
        // For good: the first boot does not have it any more either, and no file holds it.
        assert!(destroyed(&FileVault::open(root.path(), CHARTER).unwrap(), 4));
        assert!(!root.path().join(CHARTER.to_string()).join("4.key").exists());
    }

    #[test]
    fn a_copied_key_file_is_no_key() {
        let root = TempDir::new().unwrap();
        let mut vault = FileVault::open(root.path(), CHARTER).unwrap();
        vault.keep(0, key()).unwrap();
        let file = root.path().join(CHARTER.to_string()).join("0.key");
        let aside = root.path().join("aside");
        fs::copy(&file, &aside).unwrap();
        // While the first file still holds its inode, the copy must have another.
        fs::rename(&file, root.path().join("first")).unwrap();
        fs::rename(&aside, &file).unwrap();
        assert!(destroyed(&vault, 0), "also for a process that runs");
        assert!(destroyed(&FileVault::open(root.path(), CHARTER).unwrap(), 0));
        assert!(!file.exists());
    }

    #[test]
    fn what_is_destroyed_is_overwritten_also_behind_a_hard_link() {
        let root = TempDir::new().unwrap();
        let mut vault = FileVault::open(root.path(), CHARTER).unwrap();
        vault.keep(2, key()).unwrap();
        let link = root.path().join("link");
        fs::hard_link(root.path().join(CHARTER.to_string()).join("2.key"), &link).unwrap();
        vault.destroy_through(2).unwrap();
        assert!(destroyed(&vault, 2) && vault.keep(2, key()).is_err());
        assert!(fs::read(&link).unwrap().iter().all(|byte| *byte == 0));
        vault.keep(3, key()).unwrap();
        assert!(kept(&vault, 3));
    }

    #[test]
    fn a_crash_between_word_and_deed_leaves_no_key() {
        let root = TempDir::new().unwrap();
        let mut vault = FileVault::open(root.path(), CHARTER).unwrap();
        vault.keep(1, key()).unwrap();
        let folder = root.path().join(CHARTER.to_string());
        fs::write(folder.join(DESTROYED), "2").unwrap();
        fs::write(folder.join("9.key.new"), [1; 64]).unwrap();
        fs::write(folder.join("9.binding.new"), [1; 32]).unwrap();
        assert!(destroyed(&vault, 1), "the word counts");
        let vault = FileVault::open(root.path(), CHARTER).unwrap();
        assert!(destroyed(&vault, 1));
        let left: Vec<_> = fs::read_dir(&folder).unwrap().flatten().map(|entry| entry.file_name()).collect();
        assert_eq!(left, [DESTROYED]);
    }

    #[test]
    fn a_crash_between_key_and_binding_costs_nothing_and_a_binding_alone_is_a_destroyed_key() {
        let root = TempDir::new().unwrap();
        let folder = root.path().join(CHARTER.to_string());
        for (restarted, round) in [(false, 5), (true, 6)] {
            let mut vault = FileVault::open(root.path(), CHARTER).unwrap();
            vault.keep(round, Zeroizing::new([1; KEY_BYTES])).unwrap();
            fs::remove_file(folder.join(format!("{round}.binding"))).unwrap();
            if restarted {
                vault = FileVault::open(root.path(), CHARTER).unwrap();
                assert!(!folder.join(format!("{round}.key")).exists());
            }
            assert!(matches!(vault.slot(round).unwrap(), Slot::Never));
            vault.keep(round, key()).unwrap();
            assert!(kept(&vault, round));
        }
        fs::remove_file(folder.join("6.key")).unwrap();
        assert!(destroyed(&FileVault::open(root.path(), CHARTER).unwrap(), 6));
    }

    #[test]
    fn a_running_process_remembers_what_it_destroyed() {
        let root = TempDir::new().unwrap();
        let mut vault = FileVault::open(root.path(), CHARTER).unwrap();
        vault.keep(0, key()).unwrap();
        vault.destroy_through(0).unwrap();
        fs::remove_file(root.path().join(CHARTER.to_string()).join(DESTROYED)).unwrap();
        assert!(destroyed(&vault, 0));
        fs::write(root.path().join(CHARTER.to_string()).join(DESTROYED), "no number").unwrap();
        assert!(vault.slot(0).is_err() && FileVault::open(root.path(), CHARTER).is_err());
    }
}
