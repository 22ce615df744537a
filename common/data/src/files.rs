//! The rows of a file, by the reader of what its bytes are.

use std::fs::File;
use std::io::{Cursor, Read as _};
use std::os::unix::fs::FileExt as _;

use crate::encode::Purpose;
use crate::error::{Clue, DataError, ENCRYPTED};
#[cfg(feature = "parquet")]
use crate::parquet::ParquetTable;
use crate::source::{Container, Reading, RecordFile, Sink, Start, gunzip, opened, unzstd};
use crate::text::TextTable;

impl Reading<'_> {
    /// Whether a file begins with a header.
    fn start(&self) -> Start {
        if self.schema.csv().names.is_some() { Start::Record } else { Start::Header }
    }
}

/// Gives all rows of one file to a sink.
pub(crate) fn read(reading: Reading<'_>, file: &impl RecordFile, sink: &mut impl Sink) -> Result<(), DataError> {
    let format = reading.schema.csv();
    let start = reading.start();
    let path = file.name();
    let (file, bytes) = opened(file)?;
    if is_encrypted_parquet(&file, &bytes) {
        return Err(DataError::Parquet { path: path.to_owned(), problem: ENCRYPTED });
    }
    match Container::of(path, &bytes, start) {
        #[cfg(feature = "parquet")]
        Container::Parquet => reading.read(&mut ParquetTable::open(path, file, format.decimal)?.passing_over_types(reading.others), sink),
        #[cfg(not(feature = "parquet"))]
        Container::Parquet => Err(DataError::Parquet {
            path: path.to_owned(),
            problem: "this program was built without the feature `parquet`: give it a text file",
        }),
        Container::Gzip => read_text(reading, TextTable::new(path, gunzip(bytes, file), format), sink),
        Container::Zstd => read_text(reading, TextTable::new(path, unzstd(path, bytes, file)?, format), sink),
        Container::Plain => read_text(reading, TextTable::new(path, Cursor::new(bytes).chain(file), format), sink),
    }
}

/// Whether a file that begins with `bytes` is a Parquet file that is encrypted as a whole: it begins and ends so. The header of a text file may begin so, too.
fn is_encrypted_parquet(file: &File, bytes: &[u8]) -> bool {
    const MAGIC: &[u8; 4] = b"PARE";
    let end = || {
        let mut end = [0; 4];
        let at = file.metadata().ok()?.len().checked_sub(4)?;
        file.read_exact_at(&mut end, at).ok().map(|()| end)
    };
    bytes == MAGIC && end().as_ref() == Some(MAGIC)
}

fn read_text(reading: Reading<'_>, table: TextTable<'_, impl std::io::Read>, sink: &mut impl Sink) -> Result<(), DataError> {
    // Public records may be between lines that are none. Among private ones such a line is a record: what it looks like is
    // something that only its own bytes decide.
    let mut table = if matches!(reading.purpose, Purpose::Public | Purpose::Prediction) { table.passing_over_blanks() } else { table };
    reading.read(&mut table, sink).map_err(|error| match error {
        DataError::MissingColumn { path, column, .. } => DataError::MissingColumn { path, column, clue: table.clue() },
        DataError::Header { path, problem } => match table.clue() {
            Some(clue @ (Clue::Workbook | Clue::OldWorkbook | Clue::Foreign(_))) => DataError::Foreign { path, clue },
            _ => DataError::Header { path, problem },
        },
        other => other,
    })
}
