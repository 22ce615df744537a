//! Files in order: which format each has, which of its columns the schema means, and where an error stands.

use crate::encode::{Encoder, Fault, Purpose, Row};
use crate::error::{DataError, LineProblem};
use dp_pvi_records::RecordError;
use dp_pvi_schema::{ColumnKind, OtherColumns, Schema};
use std::collections::HashSet;
use std::fs::File;
use std::io::{Cursor, Read};
use std::path::Path;

/// Takes rows one by one.
pub(crate) trait Visitor {
    /// One row; an error ends the reading.
    fn row(&mut self, row: &impl Row) -> Result<(), RowError>;
    /// A line that cannot be cut into the file's columns; an error ends the reading.
    fn broken(&mut self, problem: LineProblem) -> Result<(), RowError>;
    /// A line of a private file that holds nothing: it is empty, or a comment.
    fn nothing(&mut self);
}

/// Why a visitor stopped.
pub(crate) enum RowError {
    Fault(Fault),
    Line(LineProblem),
    Table(RecordError),
}

/// One file being read.
pub(crate) struct Input<'a> {
    pub(crate) path: &'a Path,
    pub(crate) schema: &'a Schema,
    pub(crate) purpose: Purpose,
    /// A column whose text is wanted beside the schema's: its field comes after all others.
    pub(crate) id: Option<&'a str>,
}

/// What a file's bytes are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Container {
    Plain,
    Gzip,
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
        let gzip = match start {
            Start::Header if bytes.starts_with(b"PAR1") => return Self::Parquet,
            Start::Header => bytes.starts_with(&[0x1f, 0x8b]),
            Start::Record => match path.extension().and_then(|extension| extension.to_str()) {
                Some("parquet") => return Self::Parquet,
                extension => extension == Some("gz"),
            },
        };
        if gzip { Self::Gzip } else { Self::Plain }
    }
}

/// Opens a regular file. Anything else would make the program wait for bytes that may never come, or never end.
fn open(path: &Path) -> Result<File, DataError> {
    let io = |source| DataError::Io { path: path.to_owned(), source };
    if !std::fs::metadata(path).map_err(io)?.is_file() {
        return Err(DataError::NotAFile { path: path.to_owned() });
    }
    File::open(path).map_err(io)
}

/// A file's bytes, without gzip.
pub(crate) fn open_plain(path: &Path, start: Start) -> Result<Box<dyn Read>, DataError> {
    let (file, bytes) = opened(path)?;
    Ok(match Container::of(path, &bytes, start) {
        Container::Gzip => Box::new(gunzip(bytes, file)),
        Container::Plain | Container::Parquet => Box::new(Cursor::new(bytes).chain(file)),
    })
}

/// A file and its first bytes.
pub(crate) fn opened(path: &Path) -> Result<(File, Vec<u8>), DataError> {
    let mut file = open(path)?;
    let mut bytes = Vec::with_capacity(4);
    (&mut file).take(4).read_to_end(&mut bytes).map_err(|source| DataError::Io { path: path.to_owned(), source })?;
    Ok((file, bytes))
}

pub(crate) fn gunzip(start: Vec<u8>, file: File) -> impl Read {
    flate2::read::MultiGzDecoder::new(std::io::BufReader::with_capacity(1 << 16, Cursor::new(start).chain(file)))
}

impl Input<'_> {
    pub(crate) fn io(&self, source: std::io::Error) -> DataError {
        DataError::Io { path: self.path.to_owned(), source }
    }

    /// Says where a visitor stopped.
    pub(crate) fn at(&self, row: u64, error: RowError) -> DataError {
        match error {
            RowError::Table(error) => DataError::Table(error),
            RowError::Line(problem) => DataError::Line { path: self.path.to_owned(), row, problem },
            RowError::Fault(Fault { field, problem }) => {
                DataError::Cell { path: self.path.to_owned(), row, column: field_name(self.schema, field).to_owned(), problem }
            }
        }
    }

    /// Finds the schema's fields among a file's columns: position per field, `None` where none is needed.
    pub(crate) fn bind(&self, names: &[&[u8]]) -> Result<Vec<Option<usize>>, DataError> {
        let needed = needed_fields(self.schema, self.purpose);
        let mut described = HashSet::with_capacity(needed.len());
        let mut positions = Vec::with_capacity(needed.len() + 1);
        let fields = needed.into_iter().enumerate().map(|(field, needed)| (field_name(self.schema, field), needed));
        for (name, needed) in fields.chain(self.id.map(|id| (id, true))) {
            described.insert(name.as_bytes());
            let mut found = names.iter().enumerate().filter(|(_, candidate)| **candidate == name.as_bytes()).map(|(position, _)| position);
            let position = found.next();
            if needed && position.is_none() {
                return Err(DataError::MissingColumn { path: self.path.to_owned(), column: name.to_owned(), clue: None });
            }
            if found.next().is_some() {
                return Err(DataError::RepeatedColumn { path: self.path.to_owned(), column: name.to_owned() });
            }
            positions.push(if needed { position } else { None });
        }
        if self.schema.other_columns() == OtherColumns::Reject
            && let Some(position) = names.iter().position(|name| !described.contains(name))
        {
            return Err(DataError::UnknownColumn { path: self.path.to_owned(), position: position + 1 });
        }
        Ok(positions)
    }
}

/// The name of a field: a column, the label, or the unit column (empty where the schema has none).
pub(crate) fn field_name(schema: &Schema, field: usize) -> &str {
    match schema.columns().get(field) {
        Some(column) => &column.name,
        None if field == Encoder::label_field(schema) => &schema.label().column,
        None => schema.unit_column().unwrap_or_default(),
    }
}

/// Which fields are looked at.
fn needed_fields(schema: &Schema, purpose: Purpose) -> Vec<bool> {
    let mut needed: Vec<bool> = schema.columns().iter().map(|column| column.kind != ColumnKind::Ignored).collect();
    needed.push(purpose.has_labels());
    if schema.unit_column().is_some() {
        needed.push(purpose.has_labels());
    }
    needed
}
