//! What can be wrong with a data set. Messages name files, rows and columns; no variant can hold the text of a cell.

use crate::types::Refused;
use dp_pvi_records::{LineProblem, RecordError};
use std::path::PathBuf;

/// What is said of a Parquet file that is encrypted, or of which a column is.
pub(crate) const ENCRYPTED: &str = "the file, or a column of it, is encrypted, and this program has no key for it; write it without Parquet's encryption, for example on an encrypted disk";

/// Why a data set was not loaded. Rows are counted from 1 in each file, without the header; in public files without comments and empty
/// lines, too.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DataError {
    /// No file was given.
    #[error("no data file is given: name at least one CSV or Parquet file")]
    NoFiles,
    /// The operating system could not read a file.
    #[error("{}: cannot be read ({source})", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// The cache of a site's units could not be written.
    #[error(
        "the cache of the records on the disk of the state folder cannot be written ({source}): make room there, or set [data] cache = \"memory\""
    )]
    Cache {
        /// What the system said.
        source: std::io::Error,
    },
    /// The cache of a site's units could not be read.
    #[error(transparent)]
    Unread(#[from] dp_pvi_privacy::stored::Unread),
    /// One file is named twice: by two names, a link, or a pattern.
    #[error(
        "{} and {} are one file: its records would count twice; name it once in [data] uri, and let no pattern or link lead to it again",
        path.display(),
        other.display()
    )]
    SameFile {
        /// The later name.
        path: PathBuf,
        /// The earlier one.
        other: PathBuf,
    },
    /// Two files hold the same records.
    #[error(
        "{} and {} hold the same records: they would count twice; take the copy away, or, if these are different records that look alike, put \
         them into one file",
        path.display(),
        other.display()
    )]
    SameContent {
        /// The later file.
        path: PathBuf,
        /// The earlier one.
        other: PathBuf,
    },
    /// All records of a file are in another one.
    #[error(
        "most records of {} are in {}, too, and would count twice: take them out of the first file, or, if these are different records that look \
         alike, put them into one file",
        path.display(),
        other.display()
    )]
    Contained {
        /// The smaller file.
        path: PathBuf,
        /// The one that has its records.
        other: PathBuf,
    },
    /// A directory, a pipe or a device.
    #[error("{}: this is no regular file; name a CSV or Parquet file", path.display())]
    NotAFile {
        /// What was named.
        path: PathBuf,
    },
    /// A file without a record.
    #[error("{}: the file has no records", path.display())]
    Empty {
        /// The file.
        path: PathBuf,
    },
    /// The schema describes a column that a file does not have.
    #[error(
        "{}: there is no column `{column}`; {}",
        path.display(),
        clue.as_ref().map_or_else(
            || "give it this name there (capital letters count), or change the schema; a text file has the names in its first line, or under `csv.names` in the schema".to_owned(),
            Clue::to_string
        )
    )]
    MissingColumn {
        /// The file.
        path: PathBuf,
        /// Name in the schema.
        column: String,
        /// What the header looks like instead.
        clue: Option<Clue>,
    },
    /// A file that is no table of text.
    #[error("{}: {clue}", path.display())]
    Foreign {
        /// The file.
        path: PathBuf,
        /// What it is.
        clue: Clue,
    },
    /// A header line that cannot be cut into names.
    #[error("{}: the header line {problem}", path.display())]
    Header {
        /// The file.
        path: PathBuf,
        /// Why.
        problem: LineProblem,
    },
    /// A file has a column that the schema does not describe. Only the position is told: a header line may be a record.
    #[error(
        "{}: column number {position} is not in the schema; describe it (kind = \"ignored\" skips it) or set `other_columns = \"ignore\"`",
        path.display()
    )]
    UnknownColumn {
        /// The file.
        path: PathBuf,
        /// Position from 1.
        position: usize,
    },
    /// Two columns of a file have one name.
    #[error("{}: two columns are named `{column}`; rename one of them", path.display())]
    RepeatedColumn {
        /// The file.
        path: PathBuf,
        /// Name in the schema.
        column: String,
    },
    /// A line that is no row of the file's columns.
    #[error("{}: row {row} {problem}", path.display())]
    Line {
        /// The file.
        path: PathBuf,
        /// Row from 1.
        row: u64,
        /// Why.
        problem: LineProblem,
    },
    /// A cell that the schema rejects.
    #[error("{}: row {row}, column `{column}`: {problem}", path.display())]
    Cell {
        /// The file.
        path: PathBuf,
        /// Row from 1.
        row: u64,
        /// Name in the schema.
        column: String,
        /// Why.
        problem: CellProblem,
    },
    /// A Parquet column of a type that has no meaning in a schema.
    #[error("{}: column `{column}` {refused}", path.display())]
    ColumnType {
        /// The file.
        path: PathBuf,
        /// Name in the schema.
        column: String,
        /// What it holds.
        refused: Refused,
    },
    /// A Parquet file that cannot be decoded.
    #[error("{}: {problem}", path.display())]
    Parquet {
        /// The file.
        path: PathBuf,
        /// What is wrong, and what to do.
        problem: &'static str,
    },
    /// A line of a file of documents.
    #[error("{}: line {line}: {problem}", path.display())]
    Document {
        /// The file.
        path: PathBuf,
        /// Line from 1.
        line: u64,
        /// Why.
        problem: DocumentProblem,
    },
    /// An image, or the file's header.
    #[error("{}: image {image} (0: the header): {problem}", path.display())]
    Image {
        /// The file.
        path: PathBuf,
        /// Image from 1; 0 for the header.
        image: u32,
        /// Why.
        problem: ImageProblem,
    },
    /// A private data set was named where a public one is needed.
    #[error("{}: this data set has a privacy ledger ({}), so it is private; an evaluator needs a public test set", path.display(), ledger.display())]
    HasLedger {
        /// The data file.
        path: PathBuf,
        /// The ledger.
        ledger: PathBuf,
    },
    /// Documents and images are files.
    #[error("the schema describes documents or images, which are read from files only; describe a table")]
    NoTable,
    /// A [`Source`](dp_pvi_records::Source) that is no file.
    #[error(transparent)]
    Source(Box<dyn std::error::Error + Send + Sync>),
    /// More than one table can hold.
    #[error(transparent)]
    Table(#[from] RecordError),
}

/// Why a row of a table was rejected.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RowProblem {
    /// One of its cells.
    #[error("column `{column}`: {problem}")]
    Cell {
        /// Name in the schema.
        column: String,
        /// Why.
        problem: CellProblem,
    },
    /// The line as a whole.
    #[error("the line {0}")]
    Line(LineProblem),
}

/// What a header looks like that lacks the schema's columns, and what to do about it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Clue {
    /// The cells are between other characters.
    #[error("the header has more {} than separators of the schema: set `delimiter = \"{}\"` under `[csv]` in the schema", name(*.0), char::from(*.0).escape_default())]
    Delimiter(u8),
    /// Two bytes a character.
    #[error(
        "the file is UTF-16: set `encoding = \"utf-16le\"` (or \"utf-16be\") under `[csv]` in the schema, or save it as UTF-8 (\"CSV UTF-8\" in Excel; `iconv -f UTF-16 -t UTF-8`)"
    )]
    Utf16,
    /// Four bytes a character.
    #[error("the file is UTF-32: save it as UTF-8 (\"CSV UTF-8\" in Excel; `iconv -f UTF-32 -t UTF-8`)")]
    Utf32,
    /// A line for a spreadsheet is before the header.
    #[error("the first line is `sep=`, which only spreadsheets know: take it out, so that the header is first")]
    Separator,
    /// A zip archive, which is what .xlsx and .ods files are.
    #[error("the file is a workbook or a zip archive (.xlsx, .ods, .zip): save the sheet as \"CSV UTF-8\", or unpack the archive")]
    Workbook,
    /// The format of Excel before 2007.
    #[error("the file is a workbook (.xls): save the sheet as \"CSV UTF-8\"")]
    OldWorkbook,
    /// The format of another program.
    #[error("the file is {0}: write CSV or Parquet")]
    Foreign(&'static str),
}

/// How files of other programs begin.
const FOREIGN: [(&[u8], &str); 8] = [
    (b"ARROW1", "an Arrow or Feather file"),
    (b"BZh", "compressed by bzip2, which is not read"),
    (b"\xfd7zXZ", "compressed by xz, which is not read"),
    (b"SQLite format 3", "an SQLite database"),
    (b"<stata_dta>", "a Stata file (.dta)"),
    (b"$FL2", "an SPSS file (.sav)"),
    (b"7z\xbc\xaf", "a 7-Zip archive"),
    (b"\x80\x04\x95", "a Python pickle"),
];

impl Clue {
    /// Looks at the first line of a file, which is taken for its header.
    pub(crate) fn of(line: &[u8], delimiter: u8) -> Option<Self> {
        if line.starts_with(b"PK\x03\x04") {
            return Some(Self::Workbook);
        }
        if line.starts_with(&[0xd0, 0xcf, 0x11, 0xe0]) {
            return Some(Self::OldWorkbook);
        }
        if let Some((_, what)) = FOREIGN.iter().find(|(begin, _)| line.starts_with(begin)) {
            return Some(Self::Foreign(what));
        }
        if let Some(wide) = Self::wide(line) {
            return Some(wide);
        }
        let bare = line.strip_prefix(b"\xef\xbb\xbf").unwrap_or(line);
        let bare = bare.strip_prefix(b"\"").unwrap_or(bare);
        if bare.get(..4).is_some_and(|word| word.eq_ignore_ascii_case(b"sep=")) && bare.len() <= 6 {
            return Some(Self::Separator);
        }
        let count = |wanted: u8| line.iter().filter(|byte| **byte == wanted).count();
        let others = [b',', b';', b'\t', b'|'].into_iter().filter(|other| *other != delimiter);
        others.max_by_key(|other| count(*other)).filter(|other| count(*other) > count(delimiter)).map(Self::Delimiter)
    }
}

impl Clue {
    /// Whether characters have several bytes, by the mark or the zeros that Latin letters have then.
    pub(crate) fn wide(line: &[u8]) -> Option<Self> {
        let zeros = line.iter().filter(|byte| **byte == 0).count();
        if line.starts_with(&[0xff, 0xfe, 0, 0]) || line.starts_with(&[0, 0, 0xfe, 0xff]) || 3 * zeros > 2 * line.len() {
            return Some(Self::Utf32);
        }
        (line.starts_with(&[0xff, 0xfe]) || line.starts_with(&[0xfe, 0xff]) || 3 * zeros > line.len()).then_some(Self::Utf16)
    }
}

fn name(delimiter: u8) -> &'static str {
    match delimiter {
        b',' => "commas",
        b';' => "semicolons",
        b'\t' => "tabs",
        _ => "vertical bars",
    }
}

/// Why a file of documents was rejected.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum DocumentProblem {
    /// A line that is not the expected whole numbers.
    #[error("whole numbers were expected here: a docword file has the lines D, W, NNZ and then `document word count`")]
    NotNumbers,
    /// Fewer lines than the header says.
    #[error("the file ends before the number of entries in its third line is reached: copy it again")]
    Truncated,
    /// More lines than the header says.
    #[error("the file goes on after the number of entries in its third line: correct that number")]
    TooManyEntries,
    /// Another W than the schema's.
    #[error("the file has another number of words than the schema: use the vocabulary that the schema was written for")]
    OtherVocabulary,
    /// A document number that falls, or is not between 1 and D.
    #[error("the document number is not between 1 and D, or smaller than the one before: sort the lines by document")]
    DocumentNumber,
    /// A word number that is not between 1 and W.
    #[error("the word number is not between 1 and W")]
    WordNumber,
    /// A count of 0, or above 2³²−1.
    #[error("a count must be at least 1 and below 2^32")]
    Count,
    /// Bytes that are no UTF-8 text.
    #[error("this is not UTF-8 text: convert the file")]
    NotText,
    /// A line of more than 64 MiB.
    #[error("the line is longer than 64 MiB: put one document on a line")]
    LongLine,
}

/// Why a file of images was rejected.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ImageProblem {
    /// Another magic number.
    #[error("this is no IDX file of images (magic number 2051): a file of labels is not needed")]
    NotImages,
    /// Another width or height than the schema's.
    #[error("the images have another width or height than the schema says")]
    OtherSize,
    /// Fewer bytes than the header says.
    #[error("the file ends here: copy it again")]
    Truncated,
    /// More bytes than the header says.
    #[error("the file goes on after its last image: copy it again")]
    TooLong,
}

/// A cell that the schema rejects.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Fault {
    pub(crate) field: usize,
    pub(crate) problem: CellProblem,
}

/// Why a cell was rejected.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, thiserror::Error)]
#[non_exhaustive]
pub enum CellProblem {
    /// A missing value where the schema says `missing = "reject"`.
    #[error("the value is missing; set `missing` to \"zero\" or \"drop\" in the schema, or complete the row")]
    Missing,
    /// Text that is no number.
    #[error("this is not a number; correct it, or set `invalid` in the schema")]
    NotANumber,
    /// A number with a separator of thousands, or with another decimal character than the schema's.
    #[error(
        "the number has a separator of thousands, or other decimals than `decimal` under `[csv]` in the schema says; write numbers without \
         separators of thousands, or set `decimal`"
    )]
    Separator,
    /// Text that is no date.
    #[error("this is no date of the column's `format`; correct it, or set `format` or `invalid` in the schema")]
    NotADate,
    /// A time with a zone, in a column of dates.
    #[error(
        "this is a time with a zone, and on which day it falls depends on where one is; write the local date, or the local time without a zone"
    )]
    Zoned,
    /// Text that cannot be read as UTF-8.
    #[error("this is not UTF-8 text; set `encoding` under `[csv]` in the schema to that of the file, or save the file as UTF-8")]
    Encoding,
    /// NaN or an infinity.
    #[error("this is not a finite number; correct it, or set `invalid` in the schema")]
    NotFinite,
    /// A number below the range, where the schema says `outside = "reject"`.
    #[error("the number is below the range; correct it, or set `outside` in the schema")]
    Below,
    /// A number above the range, where the schema says `outside = "reject"`.
    #[error("the number is above the range; correct it, or set `outside` in the schema")]
    Above,
    /// A level that is not listed.
    #[error("the category is not listed; add it to `values`, or set `invalid` in the schema")]
    UnknownCategory,
    /// Neither true nor false.
    #[error("this is neither true nor false; complete `true_values` and `false_values`, or set `invalid` in the schema")]
    NotBoolean,
    /// A number that is not whole, of a model of counts.
    #[error("the outcome is a count, and this is no whole number; correct it, or use a model of numbers")]
    NotACount,
    /// A record that belongs to no one.
    #[error("the record has no unit id; every record needs one, so that a person's records are protected together")]
    NoUnit,
    /// An id that cannot be distinguished from others.
    #[error("the unit id is a floating-point number of 2^53 or more, which may stand for several ids; store ids as text or integers")]
    InexactUnit,
}

impl CellProblem {
    /// What is wrong, without what to do: where the schema says what becomes of such records it would be the wrong advice.
    #[must_use]
    pub fn seen(self) -> String {
        let text = self.to_string();
        text.split_once(';').map_or(text.as_str(), |(seen, _)| seen).to_owned()
    }
}
