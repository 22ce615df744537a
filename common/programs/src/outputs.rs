//! What a command writes where it is told to: `-o FILE` and the like.
//!
//! A plain file is replaced durably: a reader, or the machine after a power loss, sees the old or the new one, with the old one's mode; after a failure the old one. A link
//! goes on leading where it leads. A pipe, a device, or a file that has several names is written to. Standard output goes on after what is written, also where it is a file.

use std::fs::{self, File};
use std::io::{self, ErrorKind, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use crate::files::{Arriving, folder_of};

/// Links that are followed before they are taken for a circle.
const MOST_LINKS: usize = 40;

/// A file that is being written. [`Output::finish`] makes it the one of its name.
#[derive(Debug)]
pub enum Output {
    /// It replaces a plain file, or stands where nothing is.
    Plain(Arriving),
    /// The bytes go where the name leads.
    Through(File),
}

impl Output {
    /// Opens the output; a file that is not there yet gets `mode`, which the process's mask narrows.
    ///
    /// # Errors
    /// A folder, a circle of links, a write-protected file; permissions, the disk.
    pub fn open(path: &Path, mode: u32) -> io::Result<Self> {
        let Some(plain) = behind_links(path)? else { return Self::through(path) };
        let old = match fs::metadata(&plain) {
            Ok(old) => old,
            Err(e) if e.kind() == ErrorKind::NotFound => return arriving(&plain, mode).map(Self::Plain),
            Err(e) => return Err(e),
        };
        if old.permissions().readonly() {
            return Err(io::Error::new(ErrorKind::PermissionDenied, "it is write-protected: `chmod u+w` it, or name another file"));
        }
        // Another name of the same file goes on naming what was written. What standard output leads to is not replaced under it.
        if old.nlink() > 1 || is_stdout(&old)? {
            return Self::through(&plain);
        }
        let mut fresh = arriving(&plain, old.mode() & 0o777)?;
        // Beyond what this process gives new files.
        fresh.file().set_permissions(old.permissions())?;
        Ok(Self::Plain(fresh))
    }

    fn through(path: &Path) -> io::Result<Self> {
        let to_stdout = is_stdout(&fs::metadata(path)?)?;
        let file = if to_stdout { stdout()? } else { File::options().write(true).truncate(true).open(path)? };
        Ok(Self::Through(file))
    }

    /// All is written.
    ///
    /// # Errors
    /// The disk. A plain file is then as it was before.
    pub fn finish(self) -> io::Result<()> {
        match self {
            Self::Plain(fresh) => fresh.arrive().map(drop),
            Self::Through(mut file) => file.flush(),
        }
    }
}

impl Write for Output {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Self::Plain(fresh) => fresh.file().write(bytes),
            Self::Through(file) => file.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match self {
            Self::Plain(fresh) => fresh.file().flush(),
            Self::Through(file) => file.flush(),
        }
    }
}

/// Writes an output whole.
///
/// # Errors
/// As [`Output::open`] and [`Output::finish`].
pub fn write(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let mut output = Output::open(path, 0o666)?;
    output.write_all(bytes)?;
    output.finish()
}

/// The same for what its owner alone may read.
///
/// # Errors
/// As [`write()`].
pub fn write_private(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let mut output = Output::open(path, 0o600)?;
    if let Output::Plain(fresh) = &mut output {
        fresh.file().set_permissions(std::os::unix::fs::PermissionsExt::from_mode(0o600))?;
    }
    output.write_all(bytes)?;
    output.finish()
}

/// Which of the files that a command reads, or that its configuration names, an output would overwrite.
#[must_use]
pub fn overwritten<'f>(output: &Path, files: impl IntoIterator<Item = &'f Path>) -> Option<&'f Path> {
    let place = |path: &Path| fs::metadata(path).ok().filter(fs::Metadata::is_file).map(|about| (about.dev(), about.ino()));
    let output = place(output)?;
    files.into_iter().find(|file| place(file) == Some(output))
}

/// The plain file, or the free place, to which a path leads; none where something else is there.
fn behind_links(path: &Path) -> io::Result<Option<PathBuf>> {
    let mut at = path.to_owned();
    for _ in 0..MOST_LINKS {
        match fs::symlink_metadata(&at) {
            Ok(about) if about.is_symlink() => {
                let folder = fs::canonicalize(folder_of(&at))?;
                // Not a place, but something that a process has open: its standard output.
                if folder.starts_with("/proc") {
                    return Ok(None);
                }
                at = folder.join(fs::read_link(&at)?);
            }
            Ok(about) => return Ok(about.is_file().then_some(at)),
            Err(e) if e.kind() == ErrorKind::NotFound => return Ok(Some(at)),
            Err(e) => return Err(e),
        }
    }
    Err(io::Error::other("its links lead in a circle: name the file itself"))
}

/// Under a name on the way that is no file of an operator's.
fn arriving(place: &Path, mode: u32) -> io::Result<Arriving> {
    let mut name = std::ffi::OsString::from(".");
    name.push(place.file_name().unwrap_or_default());
    name.push(".dp-pvi.new");
    Arriving::named(place.with_file_name(name), place.to_owned(), mode)
}

fn stdout() -> io::Result<File> {
    Ok(File::from(io::stdout().as_fd().try_clone_to_owned()?))
}

fn is_stdout(about: &fs::Metadata) -> io::Result<bool> {
    let stdout = stdout()?.metadata()?;
    Ok((stdout.dev(), stdout.ino()) == (about.dev(), about.ino()))
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
            write(&at(link), b"new").unwrap();
            assert!(std::fs::symlink_metadata(at(link)).unwrap().is_symlink());
            assert!(std::fs::symlink_metadata(at(target)).unwrap().is_file());
            assert_eq!(std::fs::read(at(target)).unwrap(), b"new");
        }
        symlink("round", at("about")).unwrap();
        symlink("about", at("round")).unwrap();
        write(&at("round"), b"new").unwrap_err();
    }

    #[test]
    fn pipes_and_devices_are_written_to_and_folders_are_refused() {
        let folder = tempfile::tempdir().unwrap();
        let pipe = folder.path().join("pipe");
        assert!(std::process::Command::new("mkfifo").arg(&pipe).status().unwrap().success());
        let (sender, read) = std::sync::mpsc::channel();
        let reader = pipe.clone();
        std::thread::spawn(move || sender.send(std::fs::read(reader).unwrap()));
        write(&pipe, b"through").unwrap();
        assert_eq!(read.recv_timeout(std::time::Duration::from_secs(20)).unwrap(), b"through");
        assert!(std::fs::symlink_metadata(&pipe).unwrap().file_type().is_fifo());
        let full = folder.path().join("full");
        symlink("/dev/full", &full).unwrap();
        write(&full, b"lost").unwrap_err();
        assert!(std::fs::symlink_metadata(&full).unwrap().is_symlink());
        write(folder.path(), b"no file").unwrap_err();
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
            write(&file, b"new").unwrap();
            assert_eq!((mode(&file), std::fs::read(&file).unwrap()), (wanted, b"new".to_vec()));
        }
        std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o444)).unwrap();
        let refused = write(&file, b"newer").unwrap_err();
        assert!(refused.to_string().contains("write-protected"), "{refused}");
        assert_eq!((mode(&file), std::fs::read(&file).unwrap()), (0o444, b"new".to_vec()));
        let (one, other) = (folder.path().join("one"), folder.path().join("other"));
        std::fs::write(&one, "a longer one of before").unwrap();
        std::fs::hard_link(&one, &other).unwrap();
        write(&one, b"short").unwrap();
        assert_eq!(std::fs::read(&other).unwrap(), b"short");
    }

    #[test]
    fn an_output_that_is_not_finished_leaves_the_old_file_and_nothing_beside_it() {
        let folder = tempfile::tempdir().unwrap();
        let (file, other) = (folder.path().join("a.json"), folder.path().join("a.json.new"));
        std::fs::write(&file, "old").unwrap();
        std::fs::write(&other, "somebody's").unwrap();
        let mut output = Output::open(&file, 0o666).unwrap();
        output.write_all(b"half").unwrap();
        drop(output);
        write(&folder.path().join("b.json"), b"new").unwrap();
        assert_eq!((std::fs::read(&file).unwrap(), std::fs::read(&other).unwrap()), (b"old".to_vec(), b"somebody's".to_vec()));
        assert_eq!(std::fs::read_dir(&folder).unwrap().count(), 3);
    }

    #[test]
    fn an_output_that_is_an_input_is_found_by_its_place() {
        let folder = tempfile::tempdir().unwrap();
        let (input, link, free) = (folder.path().join("in.csv"), folder.path().join("link"), folder.path().join("out.csv"));
        std::fs::write(&input, "a").unwrap();
        symlink(&input, &link).unwrap();
        assert_eq!(overwritten(&link, [free.as_path(), &input]), Some(input.as_path()));
        assert_eq!(overwritten(&free, [input.as_path()]), None);
        assert_eq!(overwritten(Path::new("/dev/null"), [Path::new("/dev/null")]), None);
    }

    #[test]
    fn what_is_private_is_read_by_its_owner_alone() {
        use std::os::unix::fs::PermissionsExt;
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("a.json");
        std::fs::write(&file, "old").unwrap();
        std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o644)).unwrap();
        write_private(&file, b"new").unwrap();
        assert_eq!(std::fs::metadata(&file).unwrap().mode() & 0o777, 0o600);
    }
}
