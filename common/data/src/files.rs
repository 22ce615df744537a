//! All rows of all files, each by the reader of what its bytes are.

use std::io::{Cursor, Read as _};
use std::path::Path;

use dp_pvi_schema::Schema;

use crate::encode::Purpose;
use crate::error::DataError;
use crate::source::{Container, Input, Start, Visitor, gunzip, opened};
use crate::{parquet, text};

/// Reads all rows of all files.
pub(crate) fn read_files<P: AsRef<Path>>(
    schema: &Schema,
    files: &[P],
    purpose: Purpose,
    id: Option<&str>,
    visitor: &mut impl Visitor,
) -> Result<(), DataError> {
    if files.is_empty() {
        return Err(DataError::NoFiles);
    }
    for path in files {
        let input = Input { path: path.as_ref(), schema, purpose, id };
        // In a run nothing depends on how many records there are.
        if read(&input, visitor)? == 0 && purpose != Purpose::Run {
            return Err(DataError::Empty { path: input.path.to_owned() });
        }
    }
    Ok(())
}

/// Reads a file's rows and returns their number.
fn read(input: &Input<'_>, visitor: &mut impl Visitor) -> Result<u64, DataError> {
    let start = if input.schema.csv().names.is_some() { Start::Record } else { Start::Header };
    let (file, bytes) = opened(input.path)?;
    match Container::of(input.path, &bytes, start) {
        Container::Parquet => parquet::read(input, file, visitor),
        Container::Gzip => text::read(input, gunzip(bytes, file), visitor),
        Container::Plain => text::read(input, Cursor::new(bytes).chain(file), visitor),
    }
}
