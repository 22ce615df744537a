//! Files that are there entirely or not at all: a reader, or the machine after a power loss, finds the old one or the new one.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, ErrorKind, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// A file on its way to its place. Until it is there it has another name, and it is removed if it never gets there.
#[derive(Debug)]
pub struct Arriving {
    file: File,
    name: PathBuf,
    place: PathBuf,
    there: bool,
}

impl Arriving {
    /// An empty file beside `place`, for reading and writing. What a killed process left under its name goes first.
    ///
    /// # Errors
    /// The disk; permissions; another process is writing the same file.
    pub fn at(place: &Path, mode: u32) -> io::Result<Self> {
        Self::named(suffixed(place, ".new"), place.to_owned(), mode)
    }

    /// The same under another name on the way, in the folder of `place`.
    ///
    /// # Errors
    /// As [`Self::at`].
    pub fn named(name: PathBuf, place: PathBuf, mode: u32) -> io::Result<Self> {
        // Anyone who writes a file holds its lock until it has arrived. One that no one holds was left by a process that was killed.
        if fs::symlink_metadata(&name).is_ok_and(|about| about.is_file()) {
            match File::open(&name)?.try_lock() {
                Ok(()) => {}
                Err(TryLockError::WouldBlock) => return Err(written_by_another()),
                Err(TryLockError::Error(e)) => return Err(e),
            }
        }
        match fs::remove_file(&name) {
            Err(e) if e.kind() != ErrorKind::NotFound => return Err(e),
            _ => {}
        }
        let file = match OpenOptions::new().read(true).write(true).create_new(true).mode(mode).open(&name) {
            Err(e) if e.kind() == ErrorKind::AlreadyExists => return Err(written_by_another()),
            file => file?,
        };
        file.try_lock().map_err(|_| written_by_another())?;
        Ok(Self { file, name, place, there: false })
    }

    /// The file.
    pub fn file(&mut self) -> &mut File {
        &mut self.file
    }

    /// Flushes it and gives it its name, durably. What had that name is gone.
    ///
    /// # Errors
    /// The disk; permissions.
    pub fn arrive(mut self) -> io::Result<File> {
        self.file.sync_all()?;
        // A process that found it before it was locked may have put its own there.
        let (own, named) = (self.file.metadata()?, fs::symlink_metadata(&self.name)?);
        if (own.dev(), own.ino()) != (named.dev(), named.ino()) {
            self.there = true;
            return Err(written_by_another());
        }
        fs::rename(&self.name, &self.place)?;
        self.there = true;
        self.file.unlock()?;
        sync_folder(&self.place)?;
        self.file.try_clone()
    }
}

/// Two commands with one output.
fn written_by_another() -> io::Error {
    io::Error::new(ErrorKind::ResourceBusy, "another process is writing it: try again when that has ended, or name another file")
}

impl Drop for Arriving {
    fn drop(&mut self) {
        if !self.there {
            // Half a file would only keep a full disk full. One that cannot be removed now is replaced by the next attempt.
            let _ = fs::remove_file(&self.name);
        }
    }
}

/// Writes a file that its owner alone may read, in the place of what was there.
///
/// # Errors
/// The disk; permissions.
pub fn replace_private(place: &Path, bytes: &[u8]) -> io::Result<()> {
    let mut fresh = Arriving::at(place, 0o600)?;
    fresh.file().write_all(bytes)?;
    fresh.arrive().map(drop)
}

/// The text of a file that an operator wrote.
///
/// # Errors
/// The file; bytes that are no UTF-8, with their line and what to do, and never what is there.
pub fn read_text(path: &Path) -> io::Result<String> {
    as_text(fs::read(path)?)
}

/// The same of what was read.
///
/// # Errors
/// Bytes that are no UTF-8.
pub fn as_text(bytes: Vec<u8>) -> io::Result<String> {
    String::from_utf8(bytes).map_err(|wrong| {
        let (start, bytes) = (wrong.utf8_error().valid_up_to(), wrong.as_bytes());
        let message = if bytes.starts_with(&[0xff, 0xfe]) || bytes.starts_with(&[0xfe, 0xff]) {
            "it is UTF-16 text: save it as UTF-8".to_owned()
        } else {
            let line = 1 + bytes[..start].iter().filter(|byte| **byte == b'\n').count();
            format!(
                "line {line} is no UTF-8 text: the file may be in Windows-1252 or Latin-1; save it as UTF-8 in your editor, or by \
                 `iconv -f WINDOWS-1252 -t UTF-8 OLD > NEW`"
            )
        };
        io::Error::new(ErrorKind::InvalidData, message)
    })
}

/// A lock that lasts as long as the value and dies with the process.
#[derive(Debug)]
pub struct FileLock {
    file: File,
}

impl Drop for FileLock {
    fn drop(&mut self) {
        // Unlocked by name and not by closing: a child process that is being started may hold a copy of the file for a moment.
        let _ = self.file.unlock();
    }
}

impl FileLock {
    /// Takes the lock at `path`.
    ///
    /// # Errors
    /// Another process has it, which `holder` says in words; the disk, permissions.
    pub fn take(path: &Path, holder: &str) -> io::Result<Self> {
        let file = File::options().create(true).truncate(false).write(true).open(path)?;
        match file.try_lock() {
            Ok(()) => Ok(Self { file }),
            Err(TryLockError::WouldBlock) => Err(io::Error::new(ErrorKind::ResourceBusy, format!("locked: {holder}"))),
            Err(TryLockError::Error(e)) => Err(e),
        }
    }
}

/// Creates a folder that only its owner may enter, durably; an existing one is left as it is.
///
/// # Errors
/// The disk; permissions.
pub fn create_private_directory(path: &Path) -> io::Result<()> {
    let missing: Vec<&Path> = path.ancestors().take_while(|part| !part.as_os_str().is_empty() && !part.exists()).collect();
    fs::DirBuilder::new().recursive(true).mode(0o700).create(path)?;
    // A file in a directory that a power loss takes away would be lost with it.
    missing.iter().try_for_each(|part| sync_folder(part))
}

/// Makes the entry of `path` in its folder durable.
///
/// # Errors
/// The disk; permissions.
pub fn sync_folder(path: &Path) -> io::Result<()> {
    File::open(folder_of(path))?.sync_all()
}

/// The folder that a path is in.
#[must_use]
pub fn folder_of(path: &Path) -> &Path {
    path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// A name beside a file that an operator named, under which it is written: none that the operator has given a file.
#[must_use]
pub fn on_the_way(place: &Path) -> PathBuf {
    let mut name = std::ffi::OsString::from(".");
    name.push(place.file_name().unwrap_or_default());
    name.push(".dp-pvi.new");
    place.with_file_name(name)
}

/// The path with something behind its last name.
#[must_use]
pub fn suffixed(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    name.into()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn a_text_that_is_no_utf8_is_told_with_its_line_and_without_its_words() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("client.toml");
        for (bytes, words) in
            [(&b"a = 1\nname = \"Universit\xe4t\"\n"[..], "line 2 is no UTF-8 text"), (b"\xff\xfea\0", "UTF-16"), (b"\x80", "line 1 is")]
        {
            fs::write(&file, bytes).unwrap();
            let error = read_text(&file).unwrap_err().to_string();
            assert!(error.contains(words) && error.contains("save it as UTF-8") && !error.contains("Universit"), "{error}");
        }
        fs::write(&file, "name = \"Universität\"").unwrap();
        assert_eq!(read_text(&file).unwrap(), "name = \"Universität\"");
    }

    #[test]
    fn a_file_is_replaced_whole_and_nothing_is_left_of_one_that_never_arrives() {
        let folder = tempfile::tempdir().unwrap();
        let place = folder.path().join("state.json");
        fs::write(&place, "old").unwrap();
        fs::write(suffixed(&place, ".new"), "left by a process that was killed").unwrap();
        let mut fresh = Arriving::at(&place, 0o600).unwrap();
        fresh.file().write_all(b"half").unwrap();
        drop(fresh);
        assert_eq!((fs::read_to_string(&place).unwrap().as_str(), fs::read_dir(&folder).unwrap().count()), ("old", 1));
        let writing = Arriving::at(&place, 0o600).unwrap();
        let refused = replace_private(&place, b"newer").unwrap_err();
        assert!(refused.to_string().contains("another process"), "{refused}");
        drop(writing);
        replace_private(&place, b"new").unwrap();
        assert_eq!((fs::read_to_string(&place).unwrap().as_str(), fs::read_dir(&folder).unwrap().count()), ("new", 1));
        assert_eq!(fs::metadata(&place).unwrap().permissions().mode() & 0o777, 0o600);
    }
}
