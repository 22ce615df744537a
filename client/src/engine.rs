//! A site whose records are summed by a cluster of its own (`[engine]`): this client writes the snapshot that executors read, asks for a sum, and is the only one that can open the
//! answers ([`dp_pvi_privacy::parts`]). Ledger, permit and noise stay here.
//!
//! What carries questions and answers is another program, which this one starts for each sum: what it is made of is not in this process. It gets a ciphertext on its standard input and
//! writes ciphertexts to its standard output.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;

use dp_pvi_data::{DataError, DataFile, Executors, Snapshot, load_for_executors, remove_snapshots};
use dp_pvi_inference::methods::parts::answer_bytes;
use dp_pvi_posterior::schema::Schema;
use dp_pvi_posterior::task::ResolvedTask;
use dp_pvi_privacy::parts::{Ask, NoSum, SiteKey};
use dp_pvi_proto::problem::Problem;
use zeroize::Zeroizing;

use crate::config::Engine;
use crate::error::{ClientError, Result};
use crate::keys;

mod room;

/// Locked in the snapshots' folder by the client that has one there.
const LOCK: &str = "lock";

/// Reads a site's files, and writes the snapshot that its executors sum. What another process of this site left in the folder is removed.
///
/// # Errors
/// [`ClientError::Unavailable`]: the folder, or the key; [`ClientError::Data`].
pub(crate) fn load(engine: &Engine, schema: &Schema, files: &[DataFile], key: &[u8; 32], cache: File) -> Result<Snapshot> {
    let unavailable = |path: &Path, e: &dyn std::fmt::Display| ClientError::Unavailable(format!("{}: {e}", path.display()).into());
    let site_key = site_key(&engine.key)?;
    // As long as this process has the snapshot: another one would remove it.
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
    let lock = Arc::new(lock);
    if let Err(e) = remove_snapshots(&engine.folder) {
        tracing::warn!("{}: what an earlier client left there, which nobody can read, could not be removed ({e})", engine.folder.display());
    }
    let ask = |folder: &Path| -> Box<dyn Ask> {
        Box::new(Program { engine: engine.clone(), snapshot: folder.to_owned(), _lock: Arc::clone(&lock) })
    };
    let executors = Executors { folder: &engine.folder, key: site_key, ask: &ask };
    load_for_executors(schema, files, key, cache, executors).map_err(|e| match e {
        DataError::Cache { source } => unavailable(&engine.folder, &source),
        other => ClientError::Data(Problem::of(other)),
    })
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

/// Whether the answers to a visit of a task can be carried.
///
/// # Errors
/// [`ClientError::Data`].
pub(crate) fn fits(engine: &Engine, task: &ResolvedTask) -> Result<()> {
    answer_bytes(task).map_or(Ok(()), |bytes| room::fits(&engine.config, bytes)).map_err(|why| ClientError::Data(why.into()))
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
    _lock: Arc<File>,
}

impl Drop for Program {
    fn drop(&mut self) {
        // What cannot be removed is removed at the next start.
        let _ = fs::remove_dir_all(&self.snapshot);
    }
}

impl Ask for Program {
    fn ask(&self, question: &[u8]) -> std::result::Result<Vec<Vec<u8>>, NoSum> {
        let Engine { program, config, .. } = &self.engine;
        let mut command = Command::new(program);
        command.arg("sum").arg("--config").arg(config).arg("--snapshot").arg(&self.snapshot);
        // The client's environment may hold secrets of its configuration.
        command.env_clear().envs(std::env::var_os("PATH").map(|path| ("PATH", path)));
        let unanswered = |e: std::io::Error| {
            tracing::error!("{}: {e}", program.display());
            NoSum::Unanswered
        };
        // It says on the standard error what is wrong: that is this client's own.
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().map_err(unanswered)?;
        let asked = child.stdin.take().map_or(Ok(()), |mut stdin| stdin.write_all(question));
        let output = room::output(child).map_err(unanswered)?;
        asked.map_err(unanswered)?;
        if !output.status.success() {
            tracing::error!("{} ended with {}", program.display(), output.status);
            return Err(NoSum::Unanswered);
        }
        answers(&output.stdout).ok_or(NoSum::Foreign)
    }
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
    use super::*;

    #[test]
    fn a_list_of_answers_is_taken_apart_or_refused() {
        let list = [&3u32.to_le_bytes()[..], b"abc", &0u32.to_le_bytes(), &1u32.to_le_bytes(), b"d"].concat();
        assert_eq!(answers(&list), Some(vec![b"abc".to_vec(), Vec::new(), b"d".to_vec()]));
        assert_eq!(answers(&[]), Some(Vec::new()));
        (1..list.len()).filter(|cut| ![7, 11].contains(cut)).for_each(|cut| assert_eq!(answers(&list[..cut]), None, "{cut}"));
    }

    #[test]
    fn a_program_that_fails_gives_no_sum() {
        let engine = |program: &str| Engine { program: program.into(), config: "c".into(), folder: "f".into(), key: "k".into() };
        let lock = Arc::new(tempfile::tempfile().unwrap());
        let ask = |program: &str, question: &[u8]| {
            Program { engine: engine(program), snapshot: "/there/is/none".into(), _lock: Arc::clone(&lock) }.ask(question)
        };
        for program in ["false", "/there/is/none"] {
            assert_eq!(ask(program, b"question"), Err(NoSum::Unanswered));
        }
        assert_eq!(ask("true", b""), Ok(Vec::new()));
    }

    /// A second client does not remove the snapshot of the first, and takes over once that has ended.
    #[test]
    fn a_folder_has_one_client() {
        use std::os::unix::fs::PermissionsExt;
        let folder = tempfile::tempdir().unwrap();
        let [key, data, snapshots] = ["site.key", "data.csv", "snapshots"].map(|name| folder.path().join(name));
        fs::write(&key, "0f".repeat(32)).unwrap();
        fs::set_permissions(&key, fs::Permissions::from_mode(0o600)).unwrap();
        fs::write(&data, "a,y\n0.5,1\n0.2,0\n").unwrap();
        fs::create_dir(&snapshots).unwrap();
        let schema = r#"
            version = 2
            norm_bound = 2.0
            [label]
            column = "y"
            kind = "binary"
            positive = ["1"]
            negative = ["0"]
            [[columns]]
            name = "a"
            kind = "number"
            lower = 0
            upper = 1
            centre = 0
            scale = 1
        "#;
        let schema = Schema::parse(schema).unwrap();
        let engine = Engine { program: "true".into(), config: "c".into(), folder: snapshots.clone(), key: key.clone() };
        let files = [DataFile::At(data)];
        let load = || load(&engine, &schema, &files, &[0; 32], tempfile::tempfile().unwrap());
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
