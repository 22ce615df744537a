//! What a command writes where it is told to: `-o FILE` and the like.
//!
//! A plain file is replaced durably: a reader, or the machine after a power loss, sees the old or the new one, with the old one's mode; after a failure the old one. A link
//! goes on leading where it leads. A pipe, a device, or a file that has several names is written to. Standard output, and any file that
//! the process has open otherwise, goes on after what is written.
//!
//! No output takes the place of what its program needs: of a file or a folder of state that was named to [`needs`], of an earlier output of the same command, of a database, a
//! key or a certificate ([`refuse`]).

use std::fs::{self, File};
use std::io::{self, ErrorKind, Read, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::files::{Arriving, folder_of, on_the_way};

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
        // Another name of the same file goes on naming what was written. What this process has open, as the file that a shell collects errors in, is not replaced under it.
        if old.nlink() > 1 || is_open(&old)? {
            return Self::through(&plain);
        }
        let mut fresh = arriving(&plain, old.mode() & 0o777)?;
        // Beyond what this process gives new files.
        fresh.file().set_permissions(old.permissions())?;
        Ok(Self::Plain(fresh))
    }

    fn through(path: &Path) -> io::Result<Self> {
        let about = fs::metadata(path)?;
        let mut how = File::options();
        let file = match is_stdout(&about)? {
            true => stdout()?,
            // It may hold what others wrote.
            false if is_open(&about)? => how.append(true).open(path)?,
            false => how.write(true).truncate(true).open(path)?,
        };
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

/// Writes an output whole. No later output of this process takes its place.
///
/// # Errors
/// As [`refuse`], [`Output::open`] and [`Output::finish`].
pub fn write(path: &Path, bytes: &[u8]) -> io::Result<()> {
    refuse(path)?;
    rewrite(path, bytes)?;
    needs(path);
    Ok(())
}

/// Writes a file of the program's own, or results that it writes again and again.
///
/// # Errors
/// As [`Output::open`] and [`Output::finish`].
pub fn rewrite(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let mut output = Output::open(path, 0o666)?;
    output.write_all(bytes)?;
    output.finish()
}

/// As [`write()`], for what its owner alone may read. A pipe or a device keeps its mode.
///
/// # Errors
/// As [`write()`].
pub fn write_private(path: &Path, bytes: &[u8]) -> io::Result<()> {
    refuse(path)?;
    let mut output = Output::open(path, 0o600)?;
    let file = match &mut output {
        Output::Plain(fresh) => fresh.file(),
        Output::Through(file) => file,
    };
    if file.metadata()?.is_file() {
        file.set_permissions(std::os::unix::fs::PermissionsExt::from_mode(0o600))?;
    }
    output.write_all(bytes)?;
    output.finish()?;
    needs(path);
    Ok(())
}

/// What this process needs as it is.
static NEEDED: Mutex<Vec<PathBuf>> = Mutex::new(Vec::new());

/// What databases keep beside their file, and locks and heads beside a ledger.
const BESIDE: [&str; 6] = ["-wal", "-shm", "-journal", ".lock", ".head", ".new"];

/// How files begin that no output ever takes the place of: databases, and keys and certificates.
const PRECIOUS: [&[u8]; 2] = [b"SQLite format 3\0", b"-----BEGIN "];

fn needed() -> MutexGuard<'static, Vec<PathBuf>> {
    // A list of names is whole after a panic, too.
    NEEDED.lock().unwrap_or_else(PoisonError::into_inner)
}

/// From now on no output takes the place of this file, or of any file in this folder.
pub fn needs(path: &Path) {
    needed().push(path.to_owned());
}

/// The same of every file that a configuration in this folder names, under whatever key.
pub fn needs_named(table: &toml::Table, folder: &Path) {
    fn named(value: &toml::Value, folder: &Path) {
        match value {
            toml::Value::String(text) => {
                let path = folder.join(text);
                if path.is_file() {
                    needs(&path);
                }
            }
            toml::Value::Array(values) => values.iter().for_each(|value| named(value, folder)),
            toml::Value::Table(table) => needs_named(table, folder),
            _ => {}
        }
    }
    table.values().for_each(|value| named(value, folder));
}

/// Refuses an output in the place of what the program needs ([`needs`]), and of a database, a key or a certificate.
///
/// # Errors
/// Which file it is.
pub fn refuse(output: &Path) -> io::Result<()> {
    let refused = |what: &str| {
        let words = format!("an output would take the place of {what}: name another file");
        Err(io::Error::new(ErrorKind::InvalidInput, words))
    };
    let Some(place) = place_of(output)? else { return Ok(()) };
    let (about, name) = (identity(&place), place.to_string_lossy());
    for file in needed().iter() {
        let same = || about.is_some() && identity(file) == about;
        let at = fs::canonicalize(folder_of(file)).ok().map(|folder| folder.join(file.file_name().unwrap_or_default()));
        let beside = |at: &Path| name.strip_prefix(&*at.to_string_lossy()).is_some_and(|rest| BESIDE.contains(&rest));
        if same()
            || at.is_some_and(|at| at == place || beside(&at))
            || (file.is_dir() && fs::canonicalize(file).is_ok_and(|own| place.starts_with(own)))
        {
            return refused(&format!("what this program needs or has just written ({})", file.display()));
        }
    }
    let mut start = Vec::new();
    match File::open(&place).map(|file| file.take(16).read_to_end(&mut start)) {
        Ok(_) if PRECIOUS.iter().any(|precious| start.starts_with(precious)) => refused("a database, a key or a certificate"),
        _ => Ok(()),
    }
}

/// Refuses outputs of one command of which one would take the place of another.
fn are_apart(folder: &Path, files: &[&str]) -> io::Result<()> {
    let mut places: Vec<PathBuf> = Vec::new();
    for file in files.iter().map(|name| folder.join(name)) {
        let Some(place) = place_of(&file)? else { continue };
        let same = |other: &PathBuf| *other == place || identity(other).is_some_and(|about| identity(&place) == Some(about));
        if places.iter().any(same) {
            let words = format!("{}: another result of this command has this place: remove the link", file.display());
            return Err(io::Error::new(ErrorKind::InvalidInput, words));
        }
        places.push(place);
    }
    Ok(())
}

/// Makes a folder for these outputs and tries it: that a file can be made in it, and that those that are there can be written.
///
/// # Errors
/// The disk; permissions; a file of that name; one of the files is no file, or is what [`refuse`] protects.
pub fn make_folder(folder: &Path, files: &[&str]) -> io::Result<()> {
    fs::create_dir_all(folder)?;
    are_apart(folder, files)?;
    for file in files.iter().map(|name| folder.join(name)) {
        let named = |e: io::Error| io::Error::new(e.kind(), format!("{}: {e}", file.display()));
        refuse(&file).map_err(named)?;
        // Not opened: of a pipe that would wait for a reader.
        match fs::metadata(&file) {
            Ok(about) if about.is_dir() => return Err(named(ErrorKind::IsADirectory.into())),
            Ok(about) if about.permissions().readonly() => return Err(named(ErrorKind::PermissionDenied.into())),
            _ => {}
        }
    }
    let probe = on_the_way(&folder.join("probe"));
    File::create_new(&probe)?;
    fs::remove_file(probe)
}

/// Before `files` are written into a folder: gives those of another time that are there other names, `a-NAME.json` for `a.json`, or `a-NAME-2.json` where that is taken. `name` gets the
/// text of the first one, empty where it cannot be read, and says nothing where all may be replaced.
///
/// # Errors
/// The disk; permissions; one of the files is what [`refuse`] protects, or another one of them.
pub fn set_aside(folder: &Path, files: &[&str], name: impl FnOnce(&str) -> Option<String>) -> io::Result<()> {
    files.iter().try_for_each(|file| refuse(&folder.join(file)))?;
    are_apart(folder, files)?;
    let [first, ..] = files else { return Ok(()) };
    // What is no plain file is written to and keeps its name.
    let is_there = |file: &&str| fs::metadata(folder.join(file)).map(|about| about.is_file());
    if files.iter().all(|file| is_there(file).is_err()) || matches!(is_there(first), Ok(false)) {
        return Ok(());
    }
    let Some(name) = name(&fs::read_to_string(folder.join(first)).unwrap_or_default()) else { return Ok(()) };
    let aside = |file: &str, time: u32| {
        let (stem, end) = file.rsplit_once('.').unwrap_or((file, ""));
        let time = if time == 1 { String::new() } else { format!("-{time}") };
        folder.join(format!("{stem}-{name}{time}.{end}"))
    };
    let free = |time: &u32| files.iter().all(|file| fs::symlink_metadata(aside(file, *time)).is_err());
    let time = (1..).find(free).unwrap_or(u32::MAX);
    for file in files {
        needs(&aside(file, time));
        match fs::rename(folder.join(file), aside(file, time)) {
            Err(e) if e.kind() != ErrorKind::NotFound => return Err(e),
            _ => {}
        }
    }
    Ok(())
}

/// The one name of where an output would be. None where something else than a plain file is there, or no folder.
fn place_of(output: &Path) -> io::Result<Option<PathBuf>> {
    let Some(plain) = behind_links(output)? else { return Ok(None) };
    let folder = fs::canonicalize(folder_of(&plain)).ok();
    Ok(folder.map(|folder| folder.join(plain.file_name().unwrap_or_default())))
}

/// Device and number of a plain file.
fn identity(path: &Path) -> Option<(u64, u64)> {
    fs::metadata(path).ok().filter(fs::Metadata::is_file).map(|about| (about.dev(), about.ino()))
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

fn arriving(place: &Path, mode: u32) -> io::Result<Arriving> {
    Arriving::named(on_the_way(place), place.to_owned(), mode)
}

fn stdout() -> io::Result<File> {
    Ok(File::from(io::stdout().as_fd().try_clone_to_owned()?))
}

/// Whether a descriptor of this process leads to that file.
fn is_open(about: &fs::Metadata) -> io::Result<bool> {
    for descriptor in fs::read_dir("/proc/self/fd")? {
        // One that was closed meanwhile leads nowhere.
        if let Ok(open) = fs::metadata(descriptor?.path())
            && (open.dev(), open.ino()) == (about.dev(), about.ino())
        {
            return Ok(true);
        }
    }
    Ok(false)
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
            rewrite(&at(link), b"new").unwrap();
            assert!(std::fs::symlink_metadata(at(link)).unwrap().is_symlink());
            assert!(std::fs::symlink_metadata(at(target)).unwrap().is_file());
            assert_eq!(std::fs::read(at(target)).unwrap(), b"new");
        }
        symlink("round", at("about")).unwrap();
        symlink("about", at("round")).unwrap();
        rewrite(&at("round"), b"new").unwrap_err();
    }

    #[test]
    fn pipes_and_devices_are_written_to_and_folders_are_refused() {
        let folder = tempfile::tempdir().unwrap();
        let pipe = folder.path().join("pipe");
        assert!(std::process::Command::new("mkfifo").arg(&pipe).status().unwrap().success());
        let (sender, read) = std::sync::mpsc::channel();
        let reader = pipe.clone();
        std::thread::spawn(move || sender.send(std::fs::read(reader).unwrap()));
        rewrite(&pipe, b"through").unwrap();
        assert_eq!(read.recv_timeout(std::time::Duration::from_secs(20)).unwrap(), b"through");
        assert!(std::fs::symlink_metadata(&pipe).unwrap().file_type().is_fifo());
        let full = folder.path().join("full");
        symlink("/dev/full", &full).unwrap();
        rewrite(&full, b"lost").unwrap_err();
        assert!(std::fs::symlink_metadata(&full).unwrap().is_symlink());
        rewrite(folder.path(), b"no file").unwrap_err();
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
            rewrite(&file, b"new").unwrap();
            assert_eq!((mode(&file), std::fs::read(&file).unwrap()), (wanted, b"new".to_vec()));
        }
        std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o444)).unwrap();
        let refused = rewrite(&file, b"newer").unwrap_err();
        assert!(refused.to_string().contains("write-protected"), "{refused}");
        assert_eq!((mode(&file), std::fs::read(&file).unwrap()), (0o444, b"new".to_vec()));
        let (one, other) = (folder.path().join("one"), folder.path().join("other"));
        std::fs::write(&one, "a longer one of before").unwrap();
        std::fs::hard_link(&one, &other).unwrap();
        rewrite(&one, b"short").unwrap();
        assert_eq!(std::fs::read(&other).unwrap(), b"short");
    }

    #[test]
    fn results_of_another_time_get_names_of_their_own() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        let files = ["a.json", "b.html"];
        set_aside(folder.path(), &files, |_| unreachable!("nothing is there")).unwrap();
        for name in files {
            std::fs::write(at(name), "old").unwrap();
        }
        set_aside(folder.path(), &files, |_| None).unwrap();
        assert_eq!(std::fs::read_dir(&folder).unwrap().count(), 2, "they may be replaced");
        set_aside(folder.path(), &files, |text| (text == "old").then(|| "7".to_owned())).unwrap();
        assert!(at("a-7.json").is_file() && at("b-7.html").is_file() && !at("a.json").exists() && !at("b.html").exists());
        // A report whose posterior is gone, and one that stands where the posterior has to.
        std::fs::write(at("b.html"), "old").unwrap();
        set_aside(folder.path(), &files, |text| text.is_empty().then(|| "earlier".to_owned())).unwrap();
        assert!(at("b-earlier.html").is_file() && !at("b.html").exists());
        std::fs::write(at("b.html"), "old").unwrap();
        symlink("b.html", at("a.json")).unwrap();
        set_aside(folder.path(), &files, |_| None).unwrap_err();
        make_folder(folder.path(), &files).unwrap_err();
        std::fs::remove_file(at("a.json")).unwrap();
        std::fs::remove_file(at("b.html")).unwrap();
        // A name that one of them has already is not taken again.
        std::fs::write(at("b-7-2.html"), "older").unwrap();
        std::fs::write(at("a.json"), "old").unwrap();
        set_aside(folder.path(), &files, |_| Some("7".to_owned())).unwrap();
        assert!(at("a-7-3.json").is_file() && !at("a-7-2.json").exists() && at("a-7.json").is_file());
        make_folder(&at("new/inner"), &["a.json"]).unwrap();
        assert_eq!(std::fs::read_dir(at("new/inner")).unwrap().count(), 0);
        make_folder(&at("a-7.json"), &[]).unwrap_err();
        // A folder of that name, and a link to a key.
        std::fs::create_dir(at("b.html")).unwrap();
        make_folder(folder.path(), &["a.json", "b.html"]).unwrap_err();
        std::fs::write(at("key"), "-----BEGIN PRIVATE KEY-----").unwrap();
        std::os::unix::fs::symlink("key", at("a.json")).unwrap();
        assert!(make_folder(folder.path(), &["a.json"]).unwrap_err().to_string().contains("a key"));
    }

    #[test]
    fn what_this_process_has_open_is_written_on_and_not_cut() {
        let folder = tempfile::tempdir().unwrap();
        let log = folder.path().join("log");
        let mut collected = File::options().create(true).append(true).open(&log).unwrap();
        collected.write_all(b"before\n").unwrap();
        rewrite(&log, b"by its name\n").unwrap();
        let descriptor = std::os::fd::AsRawFd::as_raw_fd(&collected);
        rewrite(Path::new(&format!("/proc/self/fd/{descriptor}")), b"by its number\n").unwrap();
        assert_eq!(std::fs::read_to_string(&log).unwrap(), "before\nby its name\nby its number\n");
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
        rewrite(&folder.path().join("b.json"), b"new").unwrap();
        assert_eq!((std::fs::read(&file).unwrap(), std::fs::read(&other).unwrap()), (b"old".to_vec(), b"somebody's".to_vec()));
        assert_eq!(std::fs::read_dir(&folder).unwrap().count(), 3);
    }

    #[test]
    fn no_output_takes_the_place_of_what_is_needed_was_just_written_or_is_a_key_or_a_database() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        for name in ["in.csv", "ledger.db-wal", "other.csv", "state/a"] {
            std::fs::create_dir_all(folder_of(&at(name))).unwrap();
            std::fs::write(at(name), "a").unwrap();
        }
        std::fs::write(at("ca.key"), "-----BEGIN PRIVATE KEY-----\n").unwrap();
        std::fs::write(at("some.db"), b"SQLite format 3\0rest").unwrap();
        symlink(at("in.csv"), at("link")).unwrap();
        std::fs::hard_link(at("in.csv"), at("second")).unwrap();
        let table = "[a]\nb = [{ c = \"in.csv\" }]\nd = \"no such file\"\ne = \"state\"\nf = 3".parse().unwrap();
        needs_named(&table, folder.path());
        needs(&at("ledger.db"));
        needs(&at("state"));
        needs(&at("free.csv"));
        needs(Path::new("/dev/null"));
        for name in [
            "in.csv",
            "link",
            "second",
            "ledger.db",
            "ledger.db-wal",
            "state/a",
            "state/new",
            "state/../in.csv",
            "free.csv",
            "ca.key",
            "some.db",
        ] {
            let before = std::fs::read(at(name)).ok();
            for error in [write(&at(name), b"new").unwrap_err(), write_private(&at(name), b"new").unwrap_err()] {
                assert_eq!(error.kind(), ErrorKind::InvalidInput, "{name}: {error}");
            }
            assert_eq!(std::fs::read(at(name)).ok(), before, "{name}");
        }
        refuse(Path::new("/dev/null")).unwrap();
        write(&at("other.csv"), b"new").unwrap();
        assert_eq!(write(&at("state/../other.csv"), b"newer").unwrap_err().kind(), ErrorKind::InvalidInput, "of the same command");
        rewrite(&at("in.csv"), b"the program's own").unwrap();
        assert_eq!(std::fs::read(at("second")).unwrap(), b"the program's own");
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
        let (one, other) = (folder.path().join("one"), folder.path().join("other"));
        std::fs::write(&one, "old").unwrap();
        std::fs::set_permissions(&one, std::fs::Permissions::from_mode(0o644)).unwrap();
        std::fs::hard_link(&one, &other).unwrap();
        write_private(&one, b"new").unwrap();
        assert_eq!(std::fs::metadata(&other).unwrap().mode() & 0o777, 0o600, "a file with two names");
    }
}
