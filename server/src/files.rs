//! Files that are there entirely or not at all.

use std::fs::File;
use std::io::{ErrorKind, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use dp_pvi_programs::files::{Arriving, folder_of, sync_folder};
use dp_pvi_programs::identity::{IdentityError, read_secret};
use dp_pvi_programs::problem::Problem;
use zeroize::Zeroizing;

use crate::error::{Result, ServerError};

/// Links that are followed before they are taken for a circle.
const MOST_LINKS: usize = 40;

/// Writes a file. A plain one is replaced durably: a reader, or the machine after a power loss, sees the old or the new one, with the old one's mode. A
/// link goes on leading where it leads; a pipe, a device, or a file that has several names is written to.
pub(crate) fn replace(path: &Path, bytes: &[u8]) -> Result<()> {
    let write = || match behind_links(path)? {
        Some(plain) => replace_plain(&plain, bytes),
        None => write_through(path, bytes),
    };
    write().map_err(|e| ServerError::unavailable(path, e))
}

/// The plain file, or the free place, to which a path leads; none where something else is there.
fn behind_links(path: &Path) -> std::io::Result<Option<PathBuf>> {
    let mut at = path.to_owned();
    for _ in 0..MOST_LINKS {
        match std::fs::symlink_metadata(&at) {
            Ok(about) if about.is_symlink() => {
                let folder = std::fs::canonicalize(folder_of(&at))?;
                // Not a place, but something that a process has open: its standard output.
                if folder.starts_with("/proc") {
                    return Ok(None);
                }
                at = folder.join(std::fs::read_link(&at)?);
            }
            Ok(about) => return Ok(about.is_file().then_some(at)),
            Err(e) if e.kind() == ErrorKind::NotFound => return Ok(Some(at)),
            Err(e) => return Err(e),
        }
    }
    Err(std::io::Error::other("its links lead in a circle: name the file itself"))
}

fn replace_plain(path: &Path, bytes: &[u8]) -> std::io::Result<()> {
    let old = std::fs::metadata(path).ok();
    if old.as_ref().is_some_and(|about| about.permissions().readonly()) {
        return Err(std::io::Error::new(ErrorKind::PermissionDenied, "it is write-protected: `chmod u+w` it, or name another file"));
    }
    // Another name of the same file goes on naming what was written.
    if old.as_ref().is_some_and(|about| about.nlink() > 1) {
        return write_through(path, bytes);
    }
    let mut fresh = Arriving::at(path, old.as_ref().map_or(0o666, |about| about.mode() & 0o777))?;
    fresh.file().write_all(bytes)?;
    // Beyond what this process gives new files.
    if let Some(about) = &old {
        fresh.file().set_permissions(about.permissions())?;
    }
    fresh.arrive().map(drop)
}

fn write_through(path: &Path, bytes: &[u8]) -> std::io::Result<()> {
    let stdout = File::from(std::io::stdout().as_fd().try_clone_to_owned()?);
    let place = |about: std::fs::Metadata| (about.dev(), about.ino());
    // Standard output goes on after these bytes, also where it is a file.
    let mut file = if place(stdout.metadata()?) == place(std::fs::metadata(path)?) {
        stdout
    } else {
        File::options().write(true).truncate(true).open(path)?
    };
    file.write_all(bytes)
}

/// A lock that lasts as long as the value and dies with the process.
#[derive(Debug)]
pub(crate) struct FileLock {
    file: File,
}

impl Drop for FileLock {
    fn drop(&mut self) {
        // Unlocked by name and not by closing: a child process that is being started may hold a copy of the file for a moment.
        let _ = self.file.unlock();
    }
}

impl FileLock {
    /// Takes the lock beside `path`, or says who has it.
    pub(crate) fn take(path: PathBuf, holder: &str) -> Result<Self> {
        let file = File::options().create(true).truncate(false).write(true).open(&path).map_err(|e| ServerError::unavailable(&path, e))?;
        match file.try_lock() {
            Ok(()) => Ok(Self { file }),
            Err(std::fs::TryLockError::WouldBlock) => Err(ServerError::unavailable(&path, format!("locked: {holder}"))),
            Err(std::fs::TryLockError::Error(e)) => Err(ServerError::unavailable(&path, e)),
        }
    }
}

/// Makes sure that nobody but this user can change a folder or file of the server's state.
pub(crate) fn check_own(path: &Path) -> Result<()> {
    dp_pvi_programs::identity::check_own(path).map_err(|e| ServerError::Unavailable(Problem::of(e)))
}

/// Makes a database's file, or takes it back from the eyes of others: an empty file that only its owner may read is an empty database,
/// and SQLite gives the files beside it the same mode.
pub(crate) fn private_database(path: &Path) -> Result<()> {
    use std::os::unix::fs::PermissionsExt;
    let unavailable = |e| ServerError::unavailable(path, e);
    drop(File::options().create(true).append(true).mode(0o600).open(path).map_err(unavailable)?);
    check_own(path)?;
    for suffix in ["", "-wal", "-shm"] {
        let mut name = path.as_os_str().to_owned();
        name.push(suffix);
        match std::fs::set_permissions(&name, std::fs::Permissions::from_mode(0o600)) {
            Err(e) if e.kind() != std::io::ErrorKind::NotFound => return Err(unavailable(e)),
            _ => {}
        }
    }
    Ok(())
}

/// Creates a directory that only its owner may enter, durably; an existing one is left as it is.
pub(crate) fn create_private_directory(path: &Path) -> Result<()> {
    use std::os::unix::fs::DirBuilderExt;
    let missing: Vec<&Path> = path.ancestors().take_while(|part| !part.as_os_str().is_empty() && !part.exists()).collect();
    let create = || {
        std::fs::DirBuilder::new().recursive(true).mode(0o700).create(path)?;
        // A file in a directory that a power loss takes away would be lost with it.
        missing.iter().try_for_each(|part| sync_folder(part))
    };
    create().map_err(|e| ServerError::unavailable(path, e))
}

/// Reads a secret file; refuses one that others may read or change, or that is a link.
pub(crate) fn secret(path: &Path) -> Result<Zeroizing<Vec<u8>>> {
    read_secret(path).map_err(|error| match error {
        IdentityError::Unsafe { problem, .. } => ServerError::file(path, problem),
        IdentityError::Io { source, .. } => ServerError::file(path, source),
        other => ServerError::file(path, other),
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::os::unix::fs::{FileTypeExt, symlink};

    use super::*;

    #[test]
    fn a_link_goes_on_leading_where_it_leads() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        std::fs::create_dir(at("inner")).unwrap();
        std::fs::write(at("inner/real"), "old").unwrap();
        symlink("real", at("inner/second")).unwrap();
        symlink("inner/second", at("first")).unwrap();
        symlink(at("inner/free"), at("dangling")).unwrap();
        for (link, target) in [("first", "inner/real"), ("dangling", "inner/free")] {
            replace(&at(link), b"new").unwrap();
            assert!(std::fs::symlink_metadata(at(link)).unwrap().is_symlink());
            assert!(std::fs::symlink_metadata(at(target)).unwrap().is_file());
            assert_eq!(std::fs::read(at(target)).unwrap(), b"new");
        }
        symlink("round", at("about")).unwrap();
        symlink("about", at("round")).unwrap();
        assert_eq!(replace(&at("round"), b"new").unwrap_err().code(), 12);
    }

    #[test]
    fn pipes_and_devices_are_written_to_and_folders_are_refused() {
        let folder = tempfile::tempdir().unwrap();
        let pipe = folder.path().join("pipe");
        assert!(std::process::Command::new("mkfifo").arg(&pipe).status().unwrap().success());
        let (sender, read) = std::sync::mpsc::channel();
        let reader = pipe.clone();
        std::thread::spawn(move || sender.send(std::fs::read(reader).unwrap()));
        replace(&pipe, b"through").unwrap();
        assert_eq!(read.recv_timeout(std::time::Duration::from_secs(20)).unwrap(), b"through");
        assert!(std::fs::symlink_metadata(&pipe).unwrap().file_type().is_fifo());
        let full = folder.path().join("full");
        symlink("/dev/full", &full).unwrap();
        assert_eq!(replace(&full, b"lost").unwrap_err().code(), 12);
        assert!(std::fs::symlink_metadata(&full).unwrap().is_symlink());
        assert_eq!(replace(folder.path(), b"no file").unwrap_err().code(), 12);
    }

    #[test]
    fn a_replaced_file_keeps_its_mode_and_its_other_names_and_a_protected_one_is_refused() {
        use std::os::unix::fs::PermissionsExt;
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("a.json");
        let mode = |path: &Path| std::fs::metadata(path).unwrap().mode() & 0o777;
        for wanted in [0o600, 0o640, 0o644] {
            std::fs::write(&file, "old").unwrap();
            std::fs::set_permissions(&file, std::fs::Permissions::from_mode(wanted)).unwrap();
            replace(&file, b"new").unwrap();
            assert_eq!((mode(&file), std::fs::read(&file).unwrap()), (wanted, b"new".to_vec()));
        }
        std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o444)).unwrap();
        let refused = replace(&file, b"newer").unwrap_err();
        assert!(refused.code() == 12 && refused.to_string().contains("write-protected"), "{refused}");
        assert_eq!((mode(&file), std::fs::read(&file).unwrap()), (0o444, b"new".to_vec()));
        let (one, other) = (folder.path().join("one"), folder.path().join("other"));
        std::fs::write(&one, "a longer one of before").unwrap();
        std::fs::hard_link(&one, &other).unwrap();
        replace(&one, b"short").unwrap();
        assert_eq!(std::fs::read(&other).unwrap(), b"short");
    }

    #[test]
    fn a_failed_write_leaves_the_old_file_and_nothing_beside_it() {
        let folder = tempfile::tempdir().unwrap();
        let (file, temporary) = (folder.path().join("a.json"), folder.path().join("a.json.new"));
        std::fs::write(&file, "old").unwrap();
        // The new file grows on a full disk.
        symlink("/dev/full", &temporary).unwrap();
        assert_eq!(replace(&file, b"new").unwrap_err().code(), 12);
        assert_eq!(std::fs::read(&file).unwrap(), b"old");
        assert!(std::fs::symlink_metadata(&temporary).is_err());
    }
}
