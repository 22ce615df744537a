//! Records in a PostgreSQL database: the rows of a query of the site's own, read once, before the site says hello.
//!
//! The query runs in one read-only transaction that sees one state of the database (repeatable read), and its rows come in batches through a
//! cursor. They go to a Parquet file in the state folder, every cell as the text that PostgreSQL shows for it, and from there through the
//! public schema as the rows of any other file do. So a row that changes in the database later changes nothing in this run.
//!
//! What messages say: the database's words where they are about the query, its tables and its rights, and only the kind of the error where they may
//! quote a cell.

mod columns;
mod connection;
pub mod query;
mod rows;

use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use dp_pvi_data::DataFile;
use dp_pvi_posterior::schema::Schema;
use dp_pvi_proto::problem::Problem;

use crate::config::{Database, KeepRows};
use crate::error::{ClientError, Result};
use crate::keys;

/// What a site keeps of the rows of a query.
#[derive(Debug)]
pub(crate) struct Kept {
    path: PathBuf,
}

impl Kept {
    /// Of the data set with this name.
    pub(crate) fn of(state: &Path, data: &str) -> Self {
        Self { path: state.join(format!("records-{data}.parquet")) }
    }

    /// The rows that were kept, if they were.
    ///
    /// # Errors
    /// [`ClientError::Config`]: somebody else can read them.
    pub(crate) fn rows(&self) -> Result<Option<DataFile>> {
        if !self.path.exists() {
            return Ok(None);
        }
        keys::check_private("site.state", &self.path)?;
        Ok(Some(DataFile::At(self.path.clone())))
    }

    /// Runs the query and keeps its rows until the run has ended, or as long as the process lives.
    ///
    /// # Errors
    /// As [`fetch`].
    pub(crate) fn fetch(&self, database: &Database, schema: &Schema) -> Result<DataFile> {
        if database.keep == KeepRows::Process {
            return fetch(database, schema, &self.path);
        }
        let folder = folder_of(&self.path);
        make_private(folder)?;
        let fresh = self.path.with_extension("parquet.new");
        let unavailable = |e: std::io::Error| ClientError::Unavailable(Problem::said(format!("{}: {e}", fresh.display()), e));
        // What a process left that was killed while it was reading.
        match fs::remove_file(&fresh) {
            Err(e) if e.kind() != std::io::ErrorKind::NotFound => return Err(unavailable(e)),
            _ => {}
        }
        let mut file = OpenOptions::new().read(true).write(true).create_new(true).mode(0o600).open(&fresh).map_err(unavailable)?;
        let written = write(database, schema, &mut file)
            .and_then(|()| file.sync_all().and_then(|()| fs::rename(&fresh, &self.path)).map_err(unavailable))
            .and_then(|()| File::open(folder).and_then(|folder| folder.sync_all()).map_err(unavailable));
        if let Err(error) = written {
            // The error says what to do; a file that stays is removed at the next start.
            let _ = fs::remove_file(&fresh);
            return Err(error);
        }
        Ok(DataFile::Open { name: database.query.clone(), file })
    }

    /// Deletes them.
    ///
    /// # Errors
    /// [`ClientError::Unavailable`].
    pub(crate) fn remove(&self) -> Result<()> {
        match fs::remove_file(&self.path) {
            Err(e) if e.kind() != std::io::ErrorKind::NotFound => {
                Err(ClientError::Unavailable(Problem::said(format!("{}: {e}", self.path.display()), e)))
            }
            _ => Ok(()),
        }
    }
}

/// Runs the query and gives its rows as a file without a name, which is gone when the process ends, however it ends. `beside` is a path in the folder
/// on whose disk it stands.
///
/// # Errors
/// [`ClientError::Config`]: the query's file, the password, the authority. [`ClientError::Refused`]: the query is not one whose rows of a person depend
/// on that person alone. [`ClientError::Unavailable`]: the database does not answer, or the disk is full. [`ClientError::Data`]: the database refuses.
pub(crate) fn fetch(database: &Database, schema: &Schema, beside: &Path) -> Result<DataFile> {
    let folder = folder_of(beside);
    make_private(folder)?;
    let unavailable = |e: std::io::Error| ClientError::Unavailable(Problem::said(format!("{}: {e}", folder.display()), e));
    let mut file = tempfile::tempfile_in(folder).map_err(unavailable)?;
    write(database, schema, &mut file)?;
    Ok(DataFile::Open { name: database.query.clone(), file })
}

fn write(database: &Database, schema: &Schema, file: &mut File) -> Result<()> {
    let promised = query::read(database, schema.unit_column())?;
    // A runtime of its own on a thread of its own: whoever calls may be inside one, or not.
    std::thread::scope(|scope| {
        let work = scope.spawn(|| {
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build()
                .map_err(|e| ClientError::Unavailable(Problem::said(format!("threads: {e}"), e)))?;
            runtime.block_on(rows::stream(database, &promised, schema.unit_column().is_some(), file))
        });
        work.join().unwrap_or_else(|_| Err(ClientError::Failed("the reading of the database ended early (a bug: please report it)".into())))
    })
}

fn folder_of(path: &Path) -> &Path {
    path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

fn make_private(folder: &Path) -> Result<()> {
    fs::DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(folder)
        .map_err(|e| ClientError::Unavailable(Problem::said(format!("{}: {e}", folder.display()), e)))
}
