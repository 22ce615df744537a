//! Files that are there entirely or not at all.

use std::fs::File;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use dp_pvi_programs::files::{self, FileLock};
use dp_pvi_programs::identity::{IdentityError, read_secret};
use dp_pvi_programs::outputs;
use dp_pvi_programs::problem::Problem;
use zeroize::Zeroizing;

use crate::error::{Result, ServerError};

/// Writes a file of the server's own or of its results, as [`outputs::rewrite`] does.
pub(crate) fn replace(path: &Path, bytes: &[u8]) -> Result<()> {
    outputs::rewrite(path, bytes).map_err(|e| ServerError::unavailable(path, e))
}

/// Writes a file that a command was told to write ([`outputs::write`]).
pub(crate) fn output(path: &Path, bytes: &[u8]) -> Result<()> {
    outputs::write(path, bytes).map_err(|e| ServerError::unavailable(path, e))
}

/// Takes a lock, or says who has it.
pub(crate) fn lock(path: &Path, holder: &str) -> Result<FileLock> {
    FileLock::take(path, holder).map_err(|e| ServerError::unavailable(path, e))
}

/// Makes sure that only this user can change a folder or file of the server's state.
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
    files::create_private_directory(path).map_err(|e| ServerError::unavailable(path, e))
}

/// Reads a secret file; refuses one that others may read or change, or that is a link.
pub(crate) fn secret(path: &Path) -> Result<Zeroizing<Vec<u8>>> {
    read_secret(path).map_err(|error| match error {
        IdentityError::Unsafe { problem, .. } => ServerError::file(path, problem),
        IdentityError::Io { source, .. } => ServerError::file(path, source),
        other => ServerError::file(path, other),
    })
}
