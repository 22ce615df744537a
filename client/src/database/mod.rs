//! Records in a PostgreSQL database, read once, before the site says hello.
//!
//! What the rows are says a description ([`dp_pvi_description`]), of which this program makes its questions, so that each row is one person's by construction;
//! or a query of the operator's ([`query`]), who vouches for that.
//!
//! All questions are asked in one read-only transaction that sees one state of the database (repeatable read), and rows come in batches through
//! cursors. They go to a Parquet file in the state folder, every cell as text, and from there through the public schema as the rows of any other file
//! do. So a row that changes in the database later changes nothing in this run.
//!
//! What messages say: the database's words where they are about tables, rights and the text of a query, and only the kind of the error where they may
//! quote a cell.

mod catalogue;
mod columns;
mod connection;
mod frames;
mod person;
pub mod query;
mod rows;
mod streams;
mod trial;

pub(crate) use self::trial::of as trial;

use std::fs::{self, File};
use std::io::Read;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use dp_pvi_data::DataFile;
use dp_pvi_programs::files::{self, as_text, folder_of};
use dp_pvi_programs::problem::Problem;
use dp_pvi_protocol::origin::{Origin as Declared, RowsBy as DeclaredBy};
use dp_pvi_schema::Schema;

use tokio::time::timeout;

use crate::config::{Database, KeepRows, RowsBy};
use crate::error::{ClientError, Result};
use crate::keys;
use dp_pvi_description::{Description, Table};

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
    /// [`ClientError::Config`]: someone else can read them.
    pub(crate) fn rows(&self) -> Result<Option<(DataFile, Declared)>> {
        if !self.path.exists() {
            return Ok(None);
        }
        keys::check_private("site.state", &self.path)?;
        Ok(Some((DataFile::At(self.path.clone()), rows::declared(&self.path)?)))
    }

    /// Reads the rows and keeps them until the run has ended, or as long as the process lives.
    ///
    /// # Errors
    /// As [`fetch`].
    pub(crate) fn fetch(&self, database: &Database, schema: &Schema) -> Result<(DataFile, Declared)> {
        if database.keep == KeepRows::Process {
            return fetch(database, schema, &self.path);
        }
        let folder = folder_of(&self.path);
        make_private(folder)?;
        let unavailable = |e: std::io::Error| ClientError::Unavailable(Problem::said(format!("{}: {e}", self.path.display()), e));
        let mut fresh = files::Arriving::at(&self.path, 0o600).map_err(unavailable)?;
        let declared = read_into(database, schema.unit_column(), fresh.file())?;
        let file = fresh.arrive().map_err(unavailable)?;
        Ok((DataFile::Open { name: database.rows.file().to_owned(), file }, declared))
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

/// Reads the rows and gives them as a file without a name, which is gone when the process ends, however it ends. `beside` is a path in the folder
/// on whose disk it stands.
///
/// # Errors
/// [`ClientError::Config`]: the description or query, the password, the authority. [`ClientError::Refused`]: a table is not what the description
/// needs, or no one vouches for the query. [`ClientError::Unavailable`]: the database does not answer, or the disk is full. [`ClientError::Data`]: the database refuses.
pub(crate) fn fetch(database: &Database, schema: &Schema, beside: &Path) -> Result<(DataFile, Declared)> {
    let folder = folder_of(beside);
    make_private(folder)?;
    let unavailable = |e: std::io::Error| ClientError::Unavailable(Problem::said(format!("{}: {e}", folder.display()), e));
    let mut file = tempfile::tempfile_in(folder).map_err(unavailable)?;
    let declared = read_into(database, schema.unit_column(), &mut file)?;
    Ok((DataFile::Open { name: database.rows.file().to_owned(), file }, declared))
}

/// The same for an inspection by the operator, which sends and charges nothing: a query need not be vouched for.
///
/// # Errors
/// As [`fetch`].
pub(crate) fn inspect(database: &Database, schema: &Schema, beside: &Path) -> Result<DataFile> {
    let mut inspected = database.clone();
    if let RowsBy::Query { file, vouched } = &mut inspected.rows {
        let name = query::name(&read_text("database.query", file)?, schema.unit_column());
        if *vouched != Some(name) {
            tracing::warn!("nobody vouches for {} yet: `check` and `run` refuse it, and say what is to be written", file.display());
            *vouched = Some(name);
        }
    }
    fetch(&inspected, schema, beside).map(|(file, _)| file)
}

/// Where the rows come from, by the file that says so.
///
/// # Errors
/// As [`Origin::read`].
pub(crate) fn declared(database: &Database, unit_column: Option<&str>) -> Result<Declared> {
    Ok(Origin::read(database, unit_column)?.declared())
}

/// What one privacy unit is, in words that stay the same: of a description also whose key a person is told by.
///
/// # Errors
/// As [`Origin::read`].
pub(crate) fn unit_in_words(database: &Database, schema: &Schema) -> Result<String> {
    let words = schema.unit_in_words();
    Ok(match Origin::read(database, schema.unit_column())? {
        Origin::Query(_) => words,
        Origin::Description(description) => match description.sources.first() {
            Some(persons) => format!("{words}, made of one `{}` of {}", persons.key, persons.table),
            None => words,
        },
    })
}

/// Writes the rows as a Parquet file of texts. Those of a description have the person's key in `unit_column`, if there is one.
///
/// # Errors
/// As reading the records of a run from a database: the description or query, a table that is not what it needs, the connection.
pub fn write_rows(database: &Database, unit_column: Option<&str>, file: &mut File) -> Result<()> {
    read_into(database, unit_column, file).map(drop)
}

/// The same, and where the rows come from. The file that says what they are is read once.
fn read_into(database: &Database, unit_column: Option<&str>, file: &mut File) -> Result<Declared> {
    let source = Origin::read(database, unit_column)?;
    block_on(async {
        let read = timeout(LONGEST_READ, rows::write(database, &source, unit_column, file)).await;
        read.unwrap_or_else(|_| {
            Err(ClientError::Unavailable("the database has not given all rows within a day: nothing was sent and nothing charged".into()))
        })
    })?;
    Ok(source.declared())
}

/// Waits for work with the database.
fn block_on<T: Send>(work: impl Future<Output = Result<T>> + Send) -> Result<T> {
    // A runtime of its own on a thread of its own: the caller may be inside one, or not.
    std::thread::scope(|scope| {
        let work = scope.spawn(|| {
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build()
                .map_err(|e| ClientError::Unavailable(Problem::said(format!("threads: {e}"), e)))?;
            runtime.block_on(work)
        });
        work.join().unwrap_or_else(|_| Err(ClientError::Failed("the reading of the database ended early (a bug: please report it)".into())))
    })
}

/// What the rows are, read from its file and checked as far as the text goes.
#[derive(Debug)]
pub(crate) enum Origin {
    /// By a description.
    Description(Description),
    /// By a query that the operator vouches for.
    Query(String),
}

impl Origin {
    /// Where a site says that its rows come from: what its hello declares.
    pub(crate) fn declared(&self) -> Declared {
        let names = |tables: &[Table]| tables.iter().map(ToString::to_string).collect();
        match self {
            Self::Description(description) => {
                Declared { by: DeclaredBy::Description, public_tables: names(&description.public), vouched: names(&description.vouched) }
            }
            Self::Query(_) => Declared { by: DeclaredBy::Query, ..Declared::default() },
        }
    }

    /// Reads the file that says what the rows are.
    ///
    /// # Errors
    /// [`ClientError::Config`]: the file. [`ClientError::Refused`]: no one vouches for the query, or the schema's unit does not fit.
    pub(crate) fn read(database: &Database, unit_column: Option<&str>) -> Result<Self> {
        let file = database.rows.file();
        match &database.rows {
            RowsBy::Query { vouched, .. } => query::read(file, *vouched, unit_column).map(Self::Query),
            RowsBy::Description(_) => {
                let text = read_text("database.records", file)?;
                let wrong = |words: String| ClientError::config("database.records", format!("{}: {words}", file.display()));
                let description = Description::parse(&text).map_err(wrong)?;
                match unit_column {
                    Some(unit) if description.columns().any(|column| column == unit) => Err(wrong(format!(
                        "column `{unit}` is the schema's unit_column, which holds the person's key by itself: leave it out"
                    ))),
                    None if !description.own_rows_only() => Err(ClientError::Refused(
                        format!(
                            "{}: rows are made of several rows of a person, so what is hidden is the person: name a unit_column in the schema (it will hold the \
                             person's key), with unit = \"person\" in task and budget",
                            file.display()
                        )
                        .into(),
                    )),
                    _ => Ok(Self::Description(description)),
                }
            }
        }
    }
}

/// How long all questions together may take.
const LONGEST_READ: Duration = Duration::from_secs(86_400);
/// Longest description or query that is read.
const LONGEST: u64 = 1 << 17;

fn read_text(key: &str, path: &Path) -> Result<String> {
    let wrong = |words: String| ClientError::config(key, format!("{}: {words}", path.display()));
    let mut bytes = Vec::new();
    let read = File::open(path).and_then(|file| file.take(LONGEST + 1).read_to_end(&mut bytes)).and_then(|_| as_text(bytes));
    let mut text = read.map_err(|e| wrong(format!("cannot be read ({e})")))?;
    // The mark of the byte order is an editor's.
    if text.starts_with('\u{feff}') {
        text.drain(..'\u{feff}'.len_utf8());
    }
    if text.len() as u64 > LONGEST { Err(wrong(format!("is longer than {LONGEST} bytes"))) } else { Ok(text) }
}

fn make_private(folder: &Path) -> Result<()> {
    fs::DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(folder)
        .map_err(|e| ClientError::Unavailable(Problem::said(format!("{}: {e}", folder.display()), e)))
}
