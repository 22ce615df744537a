//! Tasks that an operator approved: one small file per task hash in the state folder.

use std::fs;
use std::io::{ErrorKind, Write};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use dp_pvi_privacy::Hash;
use time::format_description::well_known::Rfc3339;

use crate::clock;
use crate::error::{ClientError, Result};

fn folder(state: &Path) -> PathBuf {
    state.join("approved")
}

/// Records an approval; recording it again changes nothing.
///
/// # Errors
/// The state folder cannot be written.
pub fn record(state: &Path, task: &Hash) -> Result<()> {
    let folder = folder(state);
    let write = || {
        fs::DirBuilder::new().recursive(true).mode(0o700).create(&folder)?;
        match fs::OpenOptions::new().write(true).create_new(true).open(folder.join(task.to_string())) {
            Ok(mut file) => {
                writeln!(file, "approved {}", clock::now().format(&Rfc3339).unwrap_or_default())?;
                file.sync_all()?;
                fs::File::open(&folder)?.sync_all()
            }
            Err(e) if e.kind() == ErrorKind::AlreadyExists => Ok(()),
            Err(e) => Err(e),
        }
    };
    write().map_err(|e: std::io::Error| ClientError::Unavailable(format!("{}: {e}", folder.display())))
}

/// All recorded approvals.
///
/// # Errors
/// The state folder cannot be read, or holds a file that is not an approval.
pub fn list(state: &Path) -> Result<Vec<Hash>> {
    let folder = folder(state);
    let unavailable = |e: std::io::Error| ClientError::Unavailable(format!("{}: {e}", folder.display()));
    let entries = match fs::read_dir(&folder) {
        Err(e) if e.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries.map_err(unavailable)?,
    };
    entries
        .map(|entry| {
            let name = entry.map_err(unavailable)?.file_name();
            name.to_str()
                .and_then(|name| name.parse().ok())
                .ok_or_else(|| ClientError::Unavailable(format!("{}: {} is not an approval; remove it", folder.display(), name.display())))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn approvals_are_kept_and_strange_files_refused() {
        let state = tempfile::tempdir().unwrap();
        assert_eq!(list(state.path()).unwrap(), []);
        let hash = Hash([0xab; 32]);
        record(state.path(), &hash).unwrap();
        record(state.path(), &hash).unwrap();
        assert_eq!(list(state.path()).unwrap(), [hash]);
        fs::write(folder(state.path()).join("notes.txt"), "x").unwrap();
        assert_eq!(list(state.path()).unwrap_err().exit_code(), 12);
    }
}
