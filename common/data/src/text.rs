//! CSV: one record a line, cells cut as the schema says.

use crate::encode::{Cell, Row};
use crate::error::DataError;
use crate::source::{Input, Visitor};
use csv::ByteRecord;
use dp_pvi_posterior::schema::Blanks;
use std::io::Read;

/// One line, seen through the schema's fields.
struct Line<'a> {
    record: &'a ByteRecord,
    positions: &'a [Option<usize>],
    blanks: Blanks,
}

impl Row for Line<'_> {
    #[inline]
    fn cell(&self, field: usize) -> Cell<'_> {
        let text = self.positions[field].and_then(|position| self.record.get(position));
        text.map_or(Cell::Null, |text| Cell::Text(cut(text, self.blanks)))
    }
}

/// Reads a text file's rows and returns their number.
pub(crate) fn read(input: &Input<'_>, bytes: impl Read, visitor: &mut impl Visitor) -> Result<u64, DataError> {
    let format = input.schema.csv();
    let mut reader = csv::ReaderBuilder::new()
        .has_headers(false)
        .flexible(true)
        .delimiter(format.delimiter)
        .comment(format.comment)
        .buffer_capacity(1 << 16)
        .from_reader(bytes);
    let mut record = ByteRecord::new();
    let (positions, width) = match &format.names {
        Some(names) => (input.bind(&names.iter().map(String::as_bytes).collect::<Vec<_>>())?, names.len()),
        None => {
            if !next(input, &mut reader, &mut record)? {
                return Err(DataError::Empty { path: input.path.to_owned() });
            }
            let names: Vec<_> = record.iter().map(|name| cut(name, Blanks::Trimmed)).collect();
            (input.bind(&names)?, names.len())
        }
    };
    let mut row = 0;
    while next(input, &mut reader, &mut record)? {
        row += 1;
        if record.len() != width {
            return Err(DataError::RowLength { path: input.path.to_owned(), row, expected: width, found: record.len() });
        }
        let line = Line { record: &record, positions: &positions, blanks: format.blanks };
        visitor.row(&line).map_err(|error| input.at(row, error))?;
    }
    Ok(row)
}

fn next(input: &Input<'_>, reader: &mut csv::Reader<impl Read>, record: &mut ByteRecord) -> Result<bool, DataError> {
    reader.read_byte_record(record).map_err(|error| {
        input.io(match error.into_kind() {
            csv::ErrorKind::Io(error) => error,
            // Lengths are checked by the caller and bytes are not decoded here, so no other kind occurs.
            _ => std::io::Error::from(std::io::ErrorKind::InvalidData),
        })
    })
}

#[inline]
fn cut(text: &[u8], blanks: Blanks) -> &[u8] {
    match blanks {
        Blanks::Trimmed => text.trim_ascii(),
        Blanks::Kept => text,
    }
}
