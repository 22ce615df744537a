//! No file is read twice: one record is one term of a sum.
//!
//! # Privacy
//! The sensitivity of a sum counts one record once, and one person's records in one unit. A file that two names lead to, or that was copied, would count its records
//! twice (`proofs/layouts.md` of `dp-pvi-privacy`).

use std::io::{BufRead as _, BufReader, Read};
use std::os::unix::fs::MetadataExt as _;

use sha2::{Digest as _, Sha256};

use crate::error::DataError;
use crate::source::{RecordFile, Start, open_plain};

/// Bytes by which files are told apart before all of their bytes are compared.
const BEGINNING: u64 = 1 << 16;

/// Refuses files that are one file by device and inode, and files that hold the same bytes once they are unpacked.
///
/// Equal files without a record pass: where a month has no patient, its export is a header. A record is a line after the header that is not blank; of a Parquet file, a row.
pub(crate) fn check(files: &[impl RecordFile], start: Start) -> Result<(), DataError> {
    let mut seen: Vec<((u64, u64), [u8; 32])> = Vec::with_capacity(files.len());
    for (position, file) in files.iter().enumerate() {
        let about = file.open()?.metadata().map_err(io(file))?;
        let place = (about.dev(), about.ino());
        if let Some(other) = seen.iter().position(|(other, _)| *other == place) {
            return Err(DataError::SameFile { path: file.name().to_owned(), other: files[other].name().to_owned() });
        }
        let beginning = if files.len() > 1 { digest(file, start, BEGINNING)? } else { [0; 32] };
        for other in (0..position).filter(|&other| seen[other].1 == beginning) {
            if holds_records(file, start)? && digest(file, start, u64::MAX)? == digest(&files[other], start, u64::MAX)? {
                return Err(DataError::SameContent { path: file.name().to_owned(), other: files[other].name().to_owned() });
            }
        }
        seen.push((place, beginning));
    }
    Ok(())
}

fn io(file: &impl RecordFile) -> impl FnOnce(std::io::Error) -> DataError {
    |source| DataError::Io { path: file.name().to_owned(), source }
}

fn digest(file: &impl RecordFile, start: Start, most: u64) -> Result<[u8; 32], DataError> {
    let mut bytes = open_plain(file, start)?.take(most);
    let (mut hash, mut buffer) = (Sha256::new(), vec![0; 1 << 16]);
    loop {
        match bytes.read(&mut buffer).map_err(io(file))? {
            0 => return Ok(hash.finalize().into()),
            read => hash.update(&buffer[..read]),
        }
    }
}

/// Whether a file has more than its header.
fn holds_records(file: &impl RecordFile, start: Start) -> Result<bool, DataError> {
    let mut bytes = BufReader::new(open_plain(file, start)?);
    if bytes.fill_buf().map_err(io(file))?.starts_with(b"PAR1") {
        return Ok(true);
    }
    let mut lines = if start == Start::Header { 0 } else { 1 };
    let mut blank = true;
    for byte in bytes.bytes() {
        match byte.map_err(io(file))? {
            b'\n' | b'\r' => blank = true,
            byte if blank && !byte.is_ascii_whitespace() => (lines, blank) = (lines + 1, false),
            _ => {}
        }
        if lines > 1 {
            return Ok(true);
        }
    }
    Ok(false)
}
