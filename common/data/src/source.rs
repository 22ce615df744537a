//! Files in order: which format each has, which of its columns the schema means, and where an error stands.

use crate::encode::{Encoder, Fault, Purpose, Row};
use crate::error::DataError;
use dp_pvi_inference::records::RecordError;
use dp_pvi_posterior::schema::{ColumnKind, OtherColumns, Schema};
use std::collections::HashSet;
use std::fs::File;
use std::io::{Cursor, Read};
use std::path::Path;

/// Takes rows one by one.
pub(crate) trait Visitor {
    /// One row; an error ends the reading.
    fn row(&mut self, row: &impl Row) -> Result<(), RowError>;
}

/// Why a visitor stopped.
pub(crate) enum RowError {
    Fault(Fault),
    Table(RecordError),
}

/// One file being read.
pub(crate) struct Input<'a> {
    pub(crate) path: &'a Path,
    pub(crate) schema: &'a Schema,
    pub(crate) purpose: Purpose,
}

/// Reads all rows of all files.
pub(crate) fn read_files<P: AsRef<Path>>(
    schema: &Schema,
    files: &[P],
    purpose: Purpose,
    visitor: &mut impl Visitor,
) -> Result<(), DataError> {
    if files.is_empty() {
        return Err(DataError::NoFiles);
    }
    for path in files {
        let input = Input { path: path.as_ref(), schema, purpose };
        if input.read(visitor)? == 0 {
            return Err(DataError::Empty { path: input.path.to_owned() });
        }
    }
    Ok(())
}

/// A file's bytes; gzip is told by its first two.
pub(crate) fn open_plain(path: &Path) -> Result<Box<dyn Read>, DataError> {
    let io = |source| DataError::Io { path: path.to_owned(), source };
    let mut file = File::open(path).map_err(io)?;
    let mut start = Vec::with_capacity(2);
    (&mut file).take(2).read_to_end(&mut start).map_err(io)?;
    let gzip = start == [0x1f, 0x8b];
    let bytes = Cursor::new(start).chain(file);
    if gzip {
        Ok(Box::new(flate2::read::MultiGzDecoder::new(std::io::BufReader::with_capacity(1 << 16, bytes))))
    } else {
        Ok(Box::new(bytes))
    }
}

impl Input<'_> {
    /// Reads the file's rows and returns their number.
    fn read(&self, visitor: &mut impl Visitor) -> Result<u64, DataError> {
        let mut file = File::open(self.path).map_err(|source| self.io(source))?;
        let mut start = Vec::with_capacity(4);
        (&mut file).take(4).read_to_end(&mut start).map_err(|source| self.io(source))?;
        if start == b"PAR1" {
            return crate::parquet::read(self, file, visitor);
        }
        let gzip = start.starts_with(&[0x1f, 0x8b]);
        let bytes = Cursor::new(start).chain(file);
        if gzip {
            crate::text::read(self, flate2::read::MultiGzDecoder::new(std::io::BufReader::with_capacity(1 << 16, bytes)), visitor)
        } else {
            crate::text::read(self, bytes, visitor)
        }
    }

    pub(crate) fn io(&self, source: std::io::Error) -> DataError {
        DataError::Io { path: self.path.to_owned(), source }
    }

    /// Says where a visitor stopped.
    pub(crate) fn at(&self, row: u64, error: RowError) -> DataError {
        match error {
            RowError::Table(error) => DataError::Table(error),
            RowError::Fault(Fault { field, problem }) => {
                DataError::Cell { path: self.path.to_owned(), row, column: field_name(self.schema, field).to_owned(), problem }
            }
        }
    }

    /// Finds the schema's fields among a file's columns: position per field, `None` where none is needed.
    pub(crate) fn bind(&self, names: &[&[u8]]) -> Result<Vec<Option<usize>>, DataError> {
        let needed = needed_fields(self.schema, self.purpose);
        let mut described = HashSet::with_capacity(needed.len());
        let mut positions = Vec::with_capacity(needed.len());
        for (field, needed) in needed.into_iter().enumerate() {
            let name = field_name(self.schema, field);
            described.insert(name.as_bytes());
            let mut found = names.iter().enumerate().filter(|(_, candidate)| **candidate == name.as_bytes()).map(|(position, _)| position);
            let position = found.next();
            if needed && position.is_none() {
                return Err(DataError::MissingColumn { path: self.path.to_owned(), column: name.to_owned() });
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
    needed.push(purpose == Purpose::Training);
    if schema.unit_column().is_some() {
        needed.push(purpose == Purpose::Training);
    }
    needed
}
