//! A site whose records are summed by a cluster of its own (`[engine]`): this client writes the snapshot that executors read, asks for a sum, and is the only one that can open the
//! answers ([`dp_pvi_privacy::partial_sums`]). Ledger, permit and noise stay here.
//!
//! What carries questions and answers is another program, which this one starts for each sum: what it is made of is not in this process. It gets a ciphertext on its standard input and
//! writes ciphertexts to its standard output.

use std::ffi::OsStr;
use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, Write};
use std::os::unix::fs::MetadataExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Arc, mpsc};
use std::thread;

use dp_pvi_data::{DataError, Executors, Made, Snapshot, remove_snapshots};
use dp_pvi_inference::methods::partial_sums::answer_bytes;
use dp_pvi_posterior::task::ResolvedTask;
use dp_pvi_privacy::partial_sums::{ExecutorChannel, NoSum, SiteKey};
use dp_pvi_programs::problem::Problem;
use dp_pvi_programs::process::Group;
use dp_pvi_schema::Schema;
use zeroize::Zeroizing;

use crate::config::Engine;
use crate::error::{ClientError, Result};
use crate::keys;

mod room;

/// Locked in the snapshots' folder by the client that has one there.
const LOCK: &str = "lock";

/// The folder of a site's cluster: no other client has its snapshots there while this one does.
pub(crate) struct Folder {
    engine: Engine,
    lock: Arc<Lock>,
}

impl Folder {
    /// Takes it. What another process of this site left there is removed.
    ///
    /// # Errors
    /// [`ClientError::Unavailable`]: the folder, or the key.
    pub(crate) fn take(engine: &Engine) -> Result<Self> {
        site_key(&engine.key)?;
        // As long as this process has snapshots there: another one would remove them.
        let lock = lock_file(&engine.folder.join(LOCK)).map_err(|e| unavailable(&engine.folder, &e))?;
        if let Err(e) = lock.try_lock() {
            let why = match e {
                TryLockError::WouldBlock => {
                    "another client has its snapshot there: wait until it has ended, or give each client a folder of its own".into()
                }
                TryLockError::Error(e) => format!("it cannot be locked ({e})"),
            };
            return Err(unavailable(&engine.folder, &why));
        }
        let lock = Arc::new(Lock(lock));
        if let Err(e) = remove_snapshots(&engine.folder) {
            tracing::warn!(
                "{}: what an earlier client left there, which nobody can read, could not be removed ({e})",
                engine.folder.display()
            );
        }
        Ok(Self { engine: engine.clone(), lock })
    }

    /// Writes the snapshot that the executors sum: a data set as rows of a schema's formula.
    ///
    /// # Errors
    /// [`ClientError::Unavailable`]: the folder, or the key; [`ClientError::Data`].
    pub(crate) fn units(&self, read: &Snapshot, schema: &Schema, cache: File) -> Result<Made> {
        let Self { engine, lock } = self;
        let ask = |folder: &Path| -> Box<dyn ExecutorChannel> {
            Box::new(Program { engine: engine.clone(), snapshot: folder.to_owned(), _lock: Arc::clone(lock) })
        };
        let executors = Executors { folder: &engine.folder, key: site_key(&engine.key)?, ask: &ask };
        read.units_elsewhere(schema, cache, executors).map_err(|e| match e {
            DataError::Cache { source } => unavailable(&engine.folder, &source),
            other => ClientError::Data(Problem::of(other)),
        })
    }

    /// Whether the answers to a visit of a task can be carried.
    ///
    /// # Errors
    /// [`ClientError::Data`].
    pub(crate) fn fits(&self, task: &ResolvedTask) -> Result<()> {
        let fits = answer_bytes(task).map_or(Ok(()), |bytes| room::fits(&self.engine.config, bytes));
        fits.map_err(|why| ClientError::Data(why.into()))
    }

    /// Whether the cluster would answer now. A visit is begun only then: who begins it has used one of its few tries, whatever comes of it.
    ///
    /// # Errors
    /// [`ClientError::Unavailable`].
    pub(crate) fn ready(&self) -> Result<()> {
        ready(&self.engine)
    }
}

fn unavailable(path: &Path, e: &dyn std::fmt::Display) -> ClientError {
    ClientError::Unavailable(format!("{}: {e}", path.display()).into())
}

/// Opens or makes the lock. Others may write into the folder: a link that they put there is not followed to a file of this user's, and no file is changed.
fn lock_file(path: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.read(true).write(true);
    let file = match options.clone().create_new(true).open(path) {
        Err(e) if e.kind() == io::ErrorKind::AlreadyExists => options.open(path),
        made => made,
    }?;
    let (named, opened) = (fs::symlink_metadata(path)?, file.metadata()?);
    if named.is_file() && (named.dev(), named.ino()) == (opened.dev(), opened.ino()) {
        Ok(file)
    } else {
        Err(io::Error::other(format!("{} is a link: look who put it there, and remove it", path.display())))
    }
}

fn site_key(path: &Path) -> Result<SiteKey> {
    let text = keys::read_secret("engine.key", path)?;
    let mut bytes = Zeroizing::new([0; 32]);
    hex::decode_to_slice(text.trim_ascii(), &mut *bytes).map_err(|_| {
        let why = format!("{}: does not hold 64 hexadecimal digits: make it with `dp-pvi-site-engine keys`", path.display());
        ClientError::config("engine.key", why)
    })?;
    Ok(SiteKey::new(bytes))
}

/// The program that asks, for one snapshot. The snapshot goes with it.
struct Program {
    engine: Engine,
    snapshot: PathBuf,
    _lock: Arc<Lock>,
}

/// The lock of a folder of snapshots.
struct Lock(File);

impl Drop for Lock {
    fn drop(&mut self) {
        // Unlocked by name and not by closing: a child process that is being started may hold a copy of the file for a moment.
        let _ = self.0.unlock();
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        // What cannot be removed is removed at the next start.
        let _ = fs::remove_dir_all(&self.snapshot);
    }
}

impl ExecutorChannel for Program {
    fn ask(&self, question: &[u8]) -> std::result::Result<Vec<Vec<u8>>, NoSum> {
        let arguments =
            ["sum".as_ref(), "--config".as_ref(), self.engine.config.as_os_str(), "--snapshot".as_ref(), self.snapshot.as_os_str()];
        let answer = started(&self.engine, &arguments, question).map_err(|why| {
            tracing::error!("{why}");
            NoSum::Unanswered
        })?;
        answers(&answer).ok_or(NoSum::Foreign)
    }
}

fn ready(engine: &Engine) -> Result<()> {
    let arguments = ["ready".as_ref(), "--config".as_ref(), engine.config.as_os_str()];
    started(engine, &arguments, &[]).map(drop).map_err(|why| {
        let words = format!(
            "{why}; its own output says why. The site's engine sums nothing now, and no visit was begun: look at scheduler and executors, and start this program again"
        );
        ClientError::Unavailable(words.into())
    })
}

/// Starts the program, and waits for its end as long as `[engine] seconds` says: what it wrote, or why there is nothing. It gets the question on its standard input.
fn started(engine: &Engine, arguments: &[&OsStr], question: &[u8]) -> std::result::Result<Vec<u8>, String> {
    let Engine { program, patience, .. } = engine;
    let failed = |why: &dyn std::fmt::Display| format!("{}: {why}", program.display());
    let mut command = Command::new(program);
    command.args(arguments);
    // The client's environment may hold secrets of its configuration.
    command.env_clear().envs(std::env::var_os("PATH").map(|path| ("PATH", path)));
    // A group of its own ends with whatever it starts. It says on the standard error what is wrong: that is this client's own.
    let mut child = command.process_group(0).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().map_err(|e| failed(&e))?;
    let group = Group::of(&child);
    let (stdin, question) = (child.stdin.take(), question.to_vec());
    let (sender, receiver) = mpsc::channel();
    // On threads of their own, because it may neither read nor write nor end. Anyone who did not get the whole question cannot answer it.
    let write = thread::Builder::new().spawn(move || stdin.map(|mut stdin| stdin.write_all(&question)));
    let wait = write.and_then(|_| thread::Builder::new().spawn(move || sender.send(room::output(child))));
    let ended = wait.map_err(|e| failed(&e)).and_then(|_| match receiver.recv_timeout(*patience) {
        Ok(output) => output.map_err(|e| failed(&e)),
        Err(_) => Err(failed(&format_args!(
            "was ended, as it did not answer within {} s ([engine] seconds). Look for a scheduler or executor that hangs, start those again, and then this program",
            patience.as_secs()
        ))),
    });
    let (status, written) = ended.inspect_err(|_| drop(group.end()))?;
    if status.success() { Ok(written) } else { Err(failed(&format_args!("ended with {status}"))) }
}

/// Takes a list of answers apart: each has its length before it, 4 bytes, little-endian.
fn answers(mut list: &[u8]) -> Option<Vec<Vec<u8>>> {
    let mut found = Vec::new();
    while let Some((length, rest)) = list.split_first_chunk::<4>() {
        let (answer, rest) = rest.split_at_checked(u32::from_le_bytes(*length) as usize)?;
        found.push(answer.to_vec());
        list = rest;
    }
    list.is_empty().then_some(found)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;
    use std::time::Duration;

    use dp_pvi_data::{DataFile, load_to_disk};

    use super::*;

    fn engine(program: &Path) -> Engine {
        let patience = Duration::from_secs(60);
        Engine { program: program.into(), config: "c".into(), folder: "f".into(), key: "k".into(), patience }
    }

    /// A program of these lines. Another process writes it: one that a test beside this one starts could have the file open as well, and then the system does not run it.
    fn script(folder: &Path, lines: &str) -> PathBuf {
        let (text, program) = (folder.join("text"), folder.join("program"));
        fs::write(&text, format!("#!/bin/sh\n{lines}\n")).unwrap();
        assert!(Command::new("install").args(["-m", "700"]).args([&text, &program]).status().unwrap().success());
        program
    }

    #[test]
    fn a_list_of_answers_is_taken_apart_or_refused() {
        let list = [&3u32.to_le_bytes()[..], b"abc", &0u32.to_le_bytes(), &1u32.to_le_bytes(), b"d"].concat();
        assert_eq!(answers(&list), Some(vec![b"abc".to_vec(), Vec::new(), b"d".to_vec()]));
        assert_eq!(answers(&[]), Some(Vec::new()));
        (1..list.len()).filter(|cut| ![7, 11].contains(cut)).for_each(|cut| assert_eq!(answers(&list[..cut]), None, "{cut}"));
    }

    #[test]
    fn a_program_that_fails_gives_no_sum() {
        let lock = Arc::new(Lock(tempfile::tempfile().unwrap()));
        let ask = |program: &str, question: &[u8]| {
            Program { engine: engine(program.as_ref()), snapshot: "/there/is/none".into(), _lock: Arc::clone(&lock) }.ask(question)
        };
        for program in ["false", "/there/is/none"] {
            assert_eq!(ask(program, b"question"), Err(NoSum::Unanswered));
        }
        assert_eq!(ask("true", b""), Ok(Vec::new()));
    }

    /// A program that hangs, with one that it started, whether it reads the question or not: both are ended, and there is no sum.
    #[test]
    fn a_program_that_hangs_is_ended_with_what_it_started() {
        let folder = tempfile::tempdir().unwrap();
        // Longer than what a pipe holds.
        let question = vec![0; 1 << 20];
        for reads in ["cat >/dev/null; ", ""] {
            let program = script(folder.path(), &format!("{reads}sleep 1000 & echo $! $$ >{}/processes; wait", folder.path().display()));
            let engine = Engine { patience: Duration::from_secs(2), ..engine(&program) };
            let lock = Arc::new(Lock(tempfile::tempfile().unwrap()));
            let program = Program { engine: engine.clone(), snapshot: "/there/is/none".into(), _lock: lock };
            assert_eq!(program.ask(&question), Err(NoSum::Unanswered));
            let processes = fs::read_to_string(folder.path().join("processes")).unwrap();
            assert_eq!(processes.split_whitespace().count(), 2);
            // One that no one has waited for yet is a zombie.
            let runs = |process: &str| {
                let state = fs::read_to_string(format!("/proc/{process}/stat")).unwrap_or_default();
                state.rsplit(") ").next().is_some_and(|state| !state.is_empty() && !state.starts_with(['Z', 'X']))
            };
            for _ in 0..1000 {
                if !processes.split_whitespace().any(runs) {
                    break;
                }
                thread::sleep(Duration::from_millis(10));
            }
            assert!(!processes.split_whitespace().any(runs), "{processes}");
            let said = ready(&engine).unwrap_err().to_string();
            assert!(said.contains("within 2 s ([engine] seconds)") && said.contains("no visit was begun"), "{said}");
        }
    }

    #[test]
    fn a_cluster_is_ready_when_the_program_says_so() {
        let folder = tempfile::tempdir().unwrap();
        let program = script(folder.path(), r#"[ "$*" = "ready --config c" ]"#);
        ready(&engine(&program)).unwrap();
        let program = script(folder.path(), "exit 3");
        assert!(matches!(ready(&engine(&program)), Err(ClientError::Unavailable(_))));
    }

    /// A second client does not remove the snapshot of the first, and takes over once that has ended.
    #[test]
    fn a_folder_has_one_client() {
        let folder = tempfile::tempdir().unwrap();
        let [key, data, snapshots] = ["site.key", "data.csv", "snapshots"].map(|name| folder.path().join(name));
        fs::write(&key, "0f".repeat(32)).unwrap();
        fs::set_permissions(&key, fs::Permissions::from_mode(0o600)).unwrap();
        fs::write(&data, "a,y\n0.5,1\n0.2,0\n").unwrap();
        fs::create_dir(&snapshots).unwrap();
        let schema = r#"
            version = 2
            norm_bound = 2.0
            [[columns]]
            name = "a"
            kind = "number"
            lower = 0
            upper = 1
            centre = 0
            scale = 1
            [[columns]]
            name = "y"
            kind = "boolean"
            true_values = ["1"]
            false_values = ["0"]
        "#;
        let schema = Schema::asking("y ~ .", schema).unwrap();
        let engine = Engine { folder: snapshots.clone(), key: key.clone(), ..engine("true".as_ref()) };
        let files = [DataFile::At(data)];
        let read = load_to_disk(&schema, &files, &[0; 32], tempfile::tempfile().unwrap()).unwrap();
        let load = || Folder::take(&engine)?.units(&read, &schema, tempfile::tempfile().unwrap());
        let there = || fs::read_dir(&snapshots).unwrap().flatten().filter(|e| e.path().is_dir()).count();
        let first = load().unwrap();
        let refused = load().err().unwrap().to_string();
        assert!(refused.contains("another client") && there() == 1, "{refused}");
        drop(first);
        assert_eq!(there(), 0);
        // What cannot be removed is left; a link is not followed, and nothing behind it is changed.
        fs::create_dir(snapshots.join("snapshot-of-an-earlier-client")).unwrap();
        load().unwrap();
        assert_eq!(there(), 0);
        let (lock, other) = (snapshots.join(LOCK), folder.path().join("other"));
        fs::write(&other, "text").unwrap();
        fs::remove_file(&lock).unwrap();
        std::os::unix::fs::symlink(&other, &lock).unwrap();
        assert!(load().err().unwrap().to_string().contains("link"));
        assert_eq!(fs::read_to_string(&other).unwrap(), "text");
        fs::remove_file(&other).unwrap();
        assert!(load().is_err() && !other.exists(), "nothing is made behind a link");
        fs::remove_file(&lock).unwrap();
        load().unwrap();
        fs::set_permissions(&key, fs::Permissions::from_mode(0o644)).unwrap();
        assert!(load().is_err());
    }
}
