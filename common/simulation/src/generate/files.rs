//! Generated files on the disk.

use std::io::Write as _;
use std::path::{Path, PathBuf};

/// Why generated files were not written.
#[derive(Debug, thiserror::Error)]
pub enum WriteError {
    /// Another file is in the way.
    #[error("{}: a file with other content is there already; choose an empty directory", .0.display())]
    InTheWay(PathBuf),
    /// The operating system refused.
    #[error("{}: cannot be written ({source})", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
}

/// Writes files, each a name and its content, into a directory, which is made if needed. A file that is there with the same content is left;
/// none is overwritten.
///
/// # Errors
/// A file with other content is in the way, or the system refuses.
pub fn write(files: &[(String, String)], directory: &Path) -> Result<(), WriteError> {
    let io = |path: &Path| {
        let path = path.to_owned();
        move |source| WriteError::Io { path, source }
    };
    std::fs::create_dir_all(directory).map_err(io(directory))?;
    for (name, content) in files {
        let path = directory.join(name);
        match std::fs::File::create_new(&path) {
            Ok(mut file) => file.write_all(content.as_bytes()).map_err(io(&path))?,
            Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {
                if std::fs::read(&path).map_err(io(&path))? != content.as_bytes() {
                    return Err(WriteError::InTheWay(path));
                }
            }
            Err(source) => return Err(WriteError::Io { path, source }),
        }
    }
    Ok(())
}
