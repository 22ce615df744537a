//! Tables in order: which format a file has, which columns of a table the schema means, and where an error stands.

use crate::encode::Purpose;
use crate::error::{DataError, Fault};
use dp_pvi_records::{LineProblem, RecordError, Row, Source, Visitor};
use dp_pvi_schema::{Blanks, ColumnKind, OtherColumns, Schema, text};
use std::collections::HashSet;
use std::fs::File;
use std::io::{Cursor, Read, Seek};
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

/// Takes the rows of a data set one by one.
pub(crate) trait Sink {
    /// How many fields the schema's are, and how many come after them ([`Reading::others`]); before the first row.
    fn columns(&mut self, _fields: usize, _others: usize) {}
    /// One row; an error ends the reading.
    fn row(&mut self, row: &impl Row) -> Result<(), RowError>;
    /// A record that cannot be cut into the table's columns, with what can be read of it; an error ends the reading.
    fn broken(&mut self, problem: LineProblem, rest: &impl Row) -> Result<(), RowError>;
    /// A record that holds nothing.
    fn nothing(&mut self);
}

/// Why a sink stopped.
pub(crate) enum RowError {
    Fault(Fault),
    Line(LineProblem),
    Table(RecordError),
    Cache(std::io::Error),
}

/// Without a place: of rows that come from no table.
impl From<RowError> for DataError {
    fn from(error: RowError) -> Self {
        match error {
            RowError::Cache(source) => Self::Cache { source },
            RowError::Table(error) => Self::Table(error),
            RowError::Fault(_) | RowError::Line(_) => unreachable!("a unit that was read has neither cells nor lines"),
        }
    }
}

/// How a table is read.
#[derive(Clone, Copy)]
pub(crate) struct Reading<'a> {
    pub(crate) schema: &'a Schema,
    pub(crate) purpose: Purpose,
    /// A column whose text is wanted beside the schema's: its field comes after all others.
    pub(crate) id: Option<&'a str>,
    /// Whether all columns of the table, by their names, come after the schema's.
    pub(crate) others: bool,
}

/// A sink's rows, counted.
struct Counted<'s, K> {
    sink: &'s mut K,
    /// Records so far.
    records: u64,
    /// Those of them that hold something.
    rows: u64,
    stopped: Option<RowError>,
}

impl<K> Counted<'_, K> {
    fn unless(&mut self, stopped: Result<(), RowError>) -> ControlFlow<()> {
        // The first error stays, also with a source that goes on.
        if let Err(error) = stopped {
            self.stopped.get_or_insert(error);
        }
        if self.stopped.is_some() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    }
}

impl<K: Sink> Visitor for Counted<'_, K> {
    fn row(&mut self, row: &impl Row) -> ControlFlow<()> {
        (self.records, self.rows) = (self.records + 1, self.rows + 1);
        let taken = self.sink.row(row);
        self.unless(taken)
    }

    fn broken(&mut self, problem: LineProblem, rest: &impl Row) -> ControlFlow<()> {
        (self.records, self.rows) = (self.records + 1, self.rows + 1);
        let taken = self.sink.broken(problem, rest);
        self.unless(taken)
    }

    fn nothing(&mut self) {
        self.records += 1;
        self.sink.nothing();
    }
}

/// What a file's bytes are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Container {
    Plain,
    Gzip,
    Zstd,
    Parquet,
}

/// Whether a file begins with something public.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Start {
    /// A header: its bytes tell what the file is.
    Header,
    /// A record: the file's name tells what the file is, so that no record decides how the others are read.
    Record,
}

impl Container {
    pub(crate) fn of(path: &Path, bytes: &[u8], start: Start) -> Self {
        let extension = path.extension().and_then(|extension| extension.to_str());
        match start {
            Start::Header if bytes.starts_with(b"PAR1") => Self::Parquet,
            Start::Header if bytes.starts_with(&[0x1f, 0x8b]) => Self::Gzip,
            Start::Header if bytes.starts_with(&[0x28, 0xb5, 0x2f, 0xfd]) => Self::Zstd,
            Start::Record if extension == Some("parquet") => Self::Parquet,
            Start::Record if extension == Some("gz") => Self::Gzip,
            Start::Record if extension == Some("zst") => Self::Zstd,
            Start::Header | Start::Record => Self::Plain,
        }
    }
}

/// A file of records.
pub trait RecordFile {
    /// What messages call it.
    fn name(&self) -> &Path;

    /// Opens it, to be read from its first byte on.
    ///
    /// # Errors
    /// It is no regular file, or the operating system says no.
    fn open(&self) -> Result<File, DataError>;
}

impl<P: AsRef<Path>> RecordFile for P {
    fn name(&self) -> &Path {
        self.as_ref()
    }

    /// Anything but a regular file would make the program wait for bytes that may never come, or never end.
    fn open(&self) -> Result<File, DataError> {
        let path = self.as_ref();
        let io = |source| DataError::Io { path: path.to_owned(), source };
        if !std::fs::metadata(path).map_err(io)?.is_file() {
            return Err(DataError::NotAFile { path: path.to_owned() });
        }
        File::open(path).map_err(io)
    }
}

/// A file that is found by its path whenever it is read, or one that is open already and may have no path: what a site keeps of the answer to a
/// query, which is gone with the process.
#[derive(Debug)]
pub enum DataFile {
    /// By its path.
    At(PathBuf),
    /// Open. Read from one thread at a time.
    Open {
        /// What messages call it.
        name: PathBuf,
        /// The file.
        file: File,
    },
}

impl RecordFile for DataFile {
    fn name(&self) -> &Path {
        match self {
            Self::At(path) | Self::Open { name: path, .. } => path,
        }
    }

    fn open(&self) -> Result<File, DataError> {
        match self {
            Self::At(path) => path.open(),
            Self::Open { name, file } => {
                let rewound = file.try_clone().and_then(|mut file| file.rewind().map(|()| file));
                rewound.map_err(|source| DataError::Io { path: name.clone(), source })
            }
        }
    }
}

/// A file's bytes, unpacked.
pub(crate) fn open_plain(file: &impl RecordFile, start: Start) -> Result<Box<dyn Read>, DataError> {
    let (opened, bytes) = opened(file)?;
    Ok(match Container::of(file.name(), &bytes, start) {
        Container::Gzip => Box::new(gunzip(bytes, opened)),
        Container::Zstd => Box::new(unzstd(file.name(), bytes, opened)?),
        Container::Plain | Container::Parquet => Box::new(Cursor::new(bytes).chain(opened)),
    })
}

/// A file and its first bytes.
pub(crate) fn opened(file: &impl RecordFile) -> Result<(File, Vec<u8>), DataError> {
    let mut opened = file.open()?;
    let mut bytes = Vec::with_capacity(4);
    (&mut opened).take(4).read_to_end(&mut bytes).map_err(|source| DataError::Io { path: file.name().to_owned(), source })?;
    Ok((opened, bytes))
}

pub(crate) fn gunzip(start: Vec<u8>, file: File) -> impl Read {
    flate2::read::MultiGzDecoder::new(std::io::BufReader::with_capacity(1 << 16, Cursor::new(start).chain(file)))
}

/// All frames of a file, one after the other.
pub(crate) fn unzstd(path: &Path, start: Vec<u8>, file: File) -> Result<impl Read + use<>, DataError> {
    zstd::stream::read::Decoder::new(Cursor::new(start).chain(file)).map_err(|source| DataError::Io { path: path.to_owned(), source })
}

impl Reading<'_> {
    /// Gives all rows of a table to a sink.
    pub(crate) fn read<S: Source>(&self, source: &mut S, sink: &mut impl Sink) -> Result<(), DataError>
    where
        DataError: From<S::Error>,
    {
        // Names as those of the schema.
        let names: Vec<Vec<u8>> = source.columns()?.iter().map(|name| text::cell(name, Blanks::Trimmed).into_owned()).collect();
        let mut fields = self.bind(source.name(), &names.iter().map(Vec::as_slice).collect::<Vec<_>>())?;
        if self.others {
            let mut all: Vec<usize> = (0..names.len()).collect();
            all.sort_by_key(|position| &names[*position]);
            sink.columns(fields.len(), all.len());
            fields.extend(all.into_iter().map(Some));
        }
        let mut counted = Counted { sink, records: 0, rows: 0, stopped: None };
        source.visit(&fields, &mut counted)?;
        let Counted { records, rows, stopped, .. } = counted;
        if let Some(error) = stopped {
            return Err(self.at(source.name(), records, error));
        }
        // In a run nothing depends on how many records there are.
        if rows == 0 && self.purpose != Purpose::Run {
            return Err(DataError::Empty { path: source.name().to_owned() });
        }
        Ok(())
    }

    /// Says where a sink stopped.
    fn at(&self, path: &Path, row: u64, error: RowError) -> DataError {
        match error {
            RowError::Table(_) | RowError::Cache(_) => error.into(),
            RowError::Line(problem) => DataError::Line { path: path.to_owned(), row, problem },
            RowError::Fault(Fault { field, problem }) => {
                DataError::Cell { path: path.to_owned(), row, column: field_name(self.schema, field).to_owned(), problem }
            }
        }
    }

    /// Finds the schema's fields among a table's columns: position per field, `None` where none is needed.
    fn bind(&self, path: &Path, names: &[&[u8]]) -> Result<Vec<Option<usize>>, DataError> {
        let needed = needed_fields(self.schema, self.purpose);
        let mut described = HashSet::with_capacity(needed.len());
        let mut positions = Vec::with_capacity(needed.len() + 1);
        let fields = needed.into_iter().enumerate().map(|(field, needed)| (field_name(self.schema, field), needed));
        let id = self.id.map(text::read);
        for (name, needed) in fields.chain(id.iter().map(|id| (id.as_ref(), true))) {
            described.insert(name.as_bytes());
            let mut found = names.iter().enumerate().filter(|(_, candidate)| **candidate == name.as_bytes()).map(|(position, _)| position);
            let position = found.next();
            if needed && position.is_none() {
                return Err(DataError::MissingColumn { path: path.to_owned(), column: name.to_owned(), clue: None });
            }
            if found.next().is_some() {
                return Err(DataError::RepeatedColumn { path: path.to_owned(), column: name.to_owned() });
            }
            positions.push(if needed { position } else { None });
        }
        if self.schema.other_columns() == OtherColumns::Reject
            && let Some(position) = names.iter().position(|name| !described.contains(name))
        {
            return Err(DataError::UnknownColumn { path: path.to_owned(), position: position + 1 });
        }
        Ok(positions)
    }
}

/// The name of a field: a column, or the unit column (empty where the schema has none).
pub(crate) fn field_name(schema: &Schema, field: usize) -> &str {
    schema.columns().get(field).map_or_else(|| schema.unit_column().unwrap_or_default(), |column| &column.name)
}

/// Which fields are looked at.
fn needed_fields(schema: &Schema, purpose: Purpose) -> Vec<bool> {
    let is_known = |position: usize| purpose.has_labels() || !schema.outcome().contains(&position);
    let columns = schema.columns().iter().enumerate();
    let mut needed: Vec<bool> = columns.map(|(position, column)| column.kind != ColumnKind::Ignored && is_known(position)).collect();
    if schema.unit_column().is_some() {
        needed.push(purpose.has_labels());
    }
    needed
}
