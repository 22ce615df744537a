//! No file is read twice: one record is one term of a sum.
//!
//! # Privacy
//! The sensitivity of a sum counts one record once, and one person's records in one unit. A file that two names lead to, or whose records another file has, too, would count its records
//! twice (`proofs/layouts.md` of `dp-pvi-privacy`).
//!
//! Files are compared by their records, in any order: by all columns, and by what the schema makes of a record. So a copy is one in another format, encoding or order, too.

use std::collections::HashMap;
use std::f64::consts::PI;
use std::fmt;
use std::os::unix::fs::MetadataExt as _;
use std::slice;

use dp_pvi_records::{LineProblem, RecordView, Row};
use dp_pvi_schema::content::Content;
use dp_pvi_schema::public::Extra;
use dp_pvi_schema::{Blanks, text};
use sha2::{Digest as _, Sha256};

use crate::encode::{Encoded, Encoder, Fate, Form, Purpose};
use crate::error::DataError;
use crate::files;
use crate::source::{Reading, RecordFile, RowError, Sink};

/// Fewer distinct records may be alike by chance: a month with one patient, and another one.
const FEW: usize = 3;

/// Most records of a file are in another one by no chance where that has a probability below e⁻²⁰.
const NO_CHANCE: f64 = 20.0;

/// Two files whose records the schema reads alike, each as often, are copies where chance makes such files less often than so.
const CHANCE: f64 = 1e-9;

/// A file all of whose records another one has is shown where the other one has hardly more.
const NEARLY: f64 = 0.9;

/// A file that repeats each of its records up to so often is told from one in which records happen to be alike.
const MOST_REPEATED: u64 = 8;

/// Distinct records of all files that are kept for the comparison, some ten bytes each; of larger files a sample of the records.
const KEPT: usize = 1 << 20;

/// The share of a file's records that may be in another one without a word, where about as many are expected to be.
const UNSEEN: f64 = 0.05;

/// Records of a file that another file has, too. For the people at the site.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shared {
    /// Position of the file in the list, from 1.
    pub file: usize,
    /// Position of the other one.
    pub other: usize,
    /// How many of its records the other one has.
    pub records: u64,
    /// Of so many.
    pub of: u64,
    /// Whether the numbers are those of a sample.
    pub sampled: bool,
    /// Whether they are alike in all columns, or in what the schema makes of them.
    pub all_columns: bool,
}

/// One line. No record is in it.
impl fmt::Display for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let sampled = if self.sampled { " (of a sample)" } else { "" };
        let columns = if self.all_columns { "" } else { ", as the schema reads them" };
        write!(
            f,
            "{} of {} records of file {} are also in file {}{sampled}{columns}. If they are the same records, each of them counts twice, and is two units where a record is one: \
             take them out of one of the files. If they are others that look alike, leave them",
            self.records, self.of, self.file, self.other
        )
    }
}

/// Gives all rows of all files to a sink.
pub(crate) fn read_files(reading: Reading<'_>, files: &[impl RecordFile], sink: &mut impl Sink) -> Result<(), DataError> {
    if files.is_empty() {
        return Err(DataError::NoFiles);
    }
    reading.check_distinct(files)?;
    files.iter().try_for_each(|file| files::read(reading, file, sink))
}

impl Reading<'_> {
    /// That no record is read twice, and which records two files have. Rows to be predicted may be read twice.
    pub(crate) fn check_distinct(&self, files: &[impl RecordFile]) -> Result<Vec<Shared>, DataError> {
        match self.purpose {
            Purpose::Prediction => Ok(Vec::new()),
            Purpose::Check | Purpose::Run | Purpose::Public => check(*self, files),
        }
    }
}

/// Refuses files that are one file by device and inode; files that hold the same records, unless they are [few](FEW); and, where each record is a unit, a file most of whose records another one
/// has, where this is no chance. Returns which records two files have.
fn check(reading: Reading<'_>, files: &[impl RecordFile]) -> Result<Vec<Shared>, DataError> {
    let mut seen: Vec<(u64, u64)> = Vec::with_capacity(files.len());
    for file in files {
        let about = file.open()?.metadata().map_err(|source| DataError::Io { path: file.name().to_owned(), source })?;
        let place = (about.dev(), about.ino());
        if let Some(other) = seen.iter().position(|other| *other == place) {
            return Err(DataError::SameFile { path: file.name().to_owned(), other: files[other].name().to_owned() });
        }
        seen.push(place);
    }
    if files.len() < 2 {
        return Ok(Vec::new());
    }
    let most = (KEPT / files.len()).max(1024);
    let tables = files.iter().map(|file| FileRows::of(reading, file, most)).collect::<Result<Vec<_>, DataError>>()?;
    let mut found = Vec::new();
    for (position, one) in tables.iter().enumerate() {
        for (before, other) in tables[..position].iter().enumerate() {
            let names = || (files[position].name().to_owned(), files[before].name().to_owned());
            if one.all.is_copy(&other.all) || one.read.is_copy(&other.read) && one.read.chance() < CHANCE {
                let (path, other) = names();
                return Err(DataError::SameContent { path, other });
            }
            // The smaller one in the larger one; of two of one size, the later one.
            let ((file, small), (other, large)) =
                if one.all.count > other.all.count { ((before, other), (position, one)) } else { ((position, one), (before, other)) };
            let (all, read) = (Common::of(&small.all, &large.all), Common::of(&small.read, &large.read));
            let units = reading.schema.unit_column().is_none() && reading.purpose != Purpose::Public;
            let kinds = [Common::of_kinds(&large.all, &small.all), Common::of_kinds(&large.read, &small.read)];
            if units && [all, read].into_iter().chain(kinds).any(Common::is_no_chance) {
                return Err(DataError::Contained { path: files[file].name().to_owned(), other: files[other].name().to_owned() });
            }
            let shared = |common: Common, all_columns| {
                let Common { shared: records, of, sampled, .. } = common;
                Shared { file: file + 1, other: other + 1, records, of, sampled, all_columns }
            };
            if all.is_certain() || all.is_whole() {
                found.push(shared(all, true));
            } else if read.is_certain() || read.is_whole() && small.read.count as f64 > NEARLY * large.read.count as f64 {
                found.push(shared(read, false));
            }
        }
    }
    Ok(found)
}

/// Hashes of some rows, whatever their order.
struct Rows {
    /// Of all of them: equal sums are those of the same rows, each as often.
    sum: [u64; 4],
    count: u64,
    /// Hashes up to the limit, and how often each occurs.
    kept: HashMap<u64, u64>,
    limit: u64,
    most: usize,
}

impl Rows {
    fn new(most: usize) -> Self {
        Self { sum: [0; 4], count: 0, kept: HashMap::new(), limit: u64::MAX, most }
    }

    fn take(&mut self, row: &[u8]) {
        let hash: [u8; 32] = Sha256::digest(row).into();
        let mut words = [0; 4];
        for (word, bytes) in words.iter_mut().zip(hash.chunks_exact(8)) {
            *word = bytes.iter().fold(0, |word, byte| word << 8 | u64::from(*byte));
        }
        self.sum.iter_mut().zip(words).for_each(|(sum, word)| *sum = sum.wrapping_add(word));
        self.count += 1;
        if words[0] <= self.limit {
            *self.kept.entry(words[0]).or_default() += 1;
            while self.kept.len() > self.most {
                self.limit /= 2;
                self.kept.retain(|hash, _| *hash <= self.limit);
            }
        }
    }

    /// How often an export wrote each of its rows, as a join that doubles them does: the largest number of which nearly all counts are multiples. Rows that are drawn one by one have even
    /// counts half of the time at most.
    fn multiplicity(&self, limit: u64) -> u64 {
        let counts = || self.kept.iter().filter(|(hash, _)| **hash <= limit).map(|(_, count)| *count);
        let nearly_all = |number: &u64| 20 * counts().filter(|count| count % number == 0).count() >= 19 * counts().count();
        (2..=MOST_REPEATED).rev().find(nearly_all).filter(|_| counts().count() >= FEW).unwrap_or(1)
    }

    fn is_copy(&self, other: &Self) -> bool {
        (self.count, self.sum) == (other.count, other.sum) && self.kept.len() >= FEW
    }

    /// The probability that other records, drawn as these were, are the same, each as often: two Poisson numbers of mean c are equal with a
    /// probability of about 1/√(4πc), and the number of one kind of rows follows from all others.
    fn chance(&self) -> f64 {
        let each = |count: &u64| (4.0 * PI * *count as f64).sqrt().recip();
        let most = self.kept.values().max().map_or(1.0, each);
        self.kept.values().map(each).product::<f64>() / most
    }
}

/// What one file has of another one, among the rows that were kept of both.
#[derive(Debug, Clone, Copy)]
struct Common {
    /// Rows that the larger one has, too, each as often as both have it.
    shared: u64,
    of: u64,
    /// How many of them one expects the larger one not to have, if they are others: a row that was drawn as its rows were is none of them with a probability of about the
    /// share of its rows that occur once (Good and Turing).
    new: f64,
    sampled: bool,
}

impl Common {
    fn of(small: &Rows, large: &Rows) -> Self {
        let limit = small.limit.min(large.limit);
        let (few, many) = (small.multiplicity(limit), large.multiplicity(limit));
        let (mut shared, mut of, mut once, mut all) = (0, 0, 0, 0);
        for (_, count) in large.kept.iter().filter(|(hash, _)| **hash <= limit) {
            all += count.div_ceil(many);
            once += u64::from(count.div_ceil(many) == 1);
        }
        for (hash, count) in small.kept.iter().filter(|(hash, _)| **hash <= limit) {
            of += count.div_ceil(few);
            shared += count.min(large.kept.get(hash).unwrap_or(&0)).div_ceil(few);
        }
        let new = if all == 0 { 0.0 } else { of as f64 * once as f64 / all as f64 };
        Self { shared, of, new, sampled: limit < u64::MAX }
    }

    /// What the smaller file has of the kinds of rows of the larger one, each counted once. A kind of an independent file is new there with a probability of at least the share of the smaller
    /// file's rows that occur once (Good and Turing), since a kind is rarer than a row: also where the larger file wrote every row several times.
    fn of_kinds(large: &Rows, small: &Rows) -> Self {
        let limit = small.limit.min(large.limit);
        let (mut shared, mut of, mut once, mut all) = (0, 0, 0, 0);
        for (_, count) in small.kept.iter().filter(|(hash, _)| **hash <= limit) {
            all += count;
            once += u64::from(*count == 1);
        }
        for hash in large.kept.keys().filter(|hash| **hash <= limit) {
            of += 1;
            shared += u64::from(small.kept.contains_key(hash));
        }
        let new = if all == 0 { 0.0 } else { of as f64 * once as f64 / all as f64 };
        Self { shared, of, new, sampled: limit < u64::MAX }
    }

    fn is_whole(self) -> bool {
        self.of > 0 && self.shared == self.of
    }

    /// Whether most rows are shared, and rows that were drawn as the larger file's were are so few new ones with a probability below e⁻²⁰: by Chernoff's bound a Poisson number
    /// of mean c is at most m < c with a probability of at most e^(m − c − m ln(m/c)).
    fn is_no_chance(self) -> bool {
        let missing = (self.of - self.shared) as f64;
        let entropy = if missing > 0.0 { missing * (missing / self.new).ln() } else { 0.0 };
        2 * self.shared > self.of && missing < self.new && self.new - missing + entropy >= NO_CHANCE
    }

    /// Whether more are shared than one expects of other records.
    fn is_certain(self) -> bool {
        let (shared, of) = (self.shared as f64, self.of as f64);
        let more = shared - (of - self.new);
        // Where no row is expected twice, every one is told.
        self.shared > 0 && more >= 1.0 && (more > UNSEEN * of || of <= self.new)
    }
}

/// The rows of one file: by all columns, and as the schema reads those that contribute.
struct FileRows {
    all: Rows,
    read: Rows,
}

impl FileRows {
    fn of(reading: Reading<'_>, file: &impl RecordFile, most: usize) -> Result<Self, DataError> {
        let mut rows = Self { all: Rows::new(most), read: Rows::new(most) };
        let files = slice::from_ref(file);
        let table = match reading.schema.content() {
            Content::Table => {
                let encoder = Encoder::new(reading.schema, Purpose::Run, Form::Cells);
                let mut comparing = Comparing { rows, encoder, encoded: Encoded::default(), fields: 0, others: 0, bytes: Vec::new() };
                files::read(Reading { others: true, ..reading }, file, &mut comparing)?;
                return Ok(comparing.rows);
            }
            Content::Documents(rule) => crate::documents::load(rule, files, reading.purpose)?.table,
            Content::Images(rule) => crate::images::load(rule, files, reading.purpose)?.table,
        };
        let mut bytes = Vec::new();
        for record in table.records() {
            of_record(record, &mut bytes);
            rows.all.take(&bytes);
        }
        Ok(rows)
    }
}

/// Takes the rows of a table.
struct Comparing<'s> {
    rows: FileRows,
    encoder: Encoder<'s>,
    encoded: Encoded,
    /// Of the schema.
    fields: usize,
    /// All columns come after them.
    others: usize,
    /// Of the row that is read now.
    bytes: Vec<u8>,
}

impl Sink for Comparing<'_> {
    fn columns(&mut self, fields: usize, others: usize) {
        (self.fields, self.others) = (fields, others);
    }

    fn row(&mut self, row: &impl Row) -> Result<(), RowError> {
        self.bytes.clear();
        for field in self.fields..self.fields + self.others {
            row.cell(field).with_text(|cell| of_cell(&text::cell(cell, Blanks::Trimmed), row.decimal(field), &mut self.bytes));
        }
        self.rows.all.take(&self.bytes);
        if self.encoder.encode(row, &mut self.encoded, &mut ()) == Ok(Fate::Kept) {
            of_record(self.encoded.view(), &mut self.bytes);
            self.rows.read.take(&self.bytes);
        }
        Ok(())
    }

    /// It contributes nothing.
    fn broken(&mut self, _: LineProblem, _: &impl Row) -> Result<(), RowError> {
        Ok(())
    }

    fn nothing(&mut self) {}
}

/// Adds a cell's text, or its number however it is spelled.
fn of_cell(cell: &[u8], decimal: u8, bytes: &mut Vec<u8>) {
    // Longer ones may be ids that no floating-point number tells apart.
    let spelled = cell.len() <= 15 && cell.iter().all(|byte| byte.is_ascii_digit() || b"+-eE".contains(byte) || *byte == decimal);
    let mut plain = [0; 15];
    let number = if spelled {
        cell.iter().zip(&mut plain).for_each(|(byte, plain)| *plain = if *byte == decimal { b'.' } else { *byte });
        std::str::from_utf8(&plain[..cell.len()]).ok().and_then(|text| text.parse::<f64>().ok()).filter(|number| number.is_finite())
    } else {
        None
    };
    match number {
        Some(number) => {
            bytes.push(0);
            // −0 + 0 is 0.
            bytes.extend((number + 0.0).to_le_bytes());
        }
        None => {
            bytes.push(1);
            bytes.extend((cell.len() as u64).to_le_bytes());
            bytes.extend(cell);
        }
    }
}

/// A record's numbers.
fn of_record(record: RecordView<'_>, bytes: &mut Vec<u8>) {
    bytes.clear();
    bytes.extend((record.indices.len() as u64).to_le_bytes());
    record.indices.iter().for_each(|index| bytes.extend(index.to_le_bytes()));
    record.values.iter().chain([&record.target, &record.offset]).for_each(|value| bytes.extend(value.to_le_bytes()));
    if record.extra != Extra::NONE {
        dp_pvi_records::words(record.extra).into_iter().for_each(|word| bytes.extend(word.to_le_bytes()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rows(numbers: std::ops::Range<u32>, most: usize) -> Rows {
        let mut rows = Rows::new(most);
        numbers.for_each(|number| rows.take(&number.to_le_bytes()));
        rows
    }

    /// A join that writes each row two or three times, beside what it was made of; and two independent files of few kinds of rows.
    #[test]
    fn rows_that_were_multiplied_are_those_of_the_other_file() {
        let (once, mut joined) = (rows(0..500, 1024), rows(0..500, 1024));
        (0..500_u32).for_each(|number| (0..=number % 2).for_each(|_| joined.take(&number.to_le_bytes())));
        assert!(!Common::of(&once, &joined).is_no_chance());
        assert!(Common::of_kinds(&joined, &once).is_no_chance());
        // Two independent files of common and rare kinds, of some of which there is one row.
        let drawn = |file: u64, count: u64| {
            let mut rows = Rows::new(1 << 14);
            (0..count).for_each(|number| {
                let digest: [u8; 32] = Sha256::digest([file, number].map(u64::to_le_bytes).concat()).into();
                let at = f64::from(u32::from_le_bytes([digest[0], digest[1], digest[2], digest[3]])) / f64::from(u32::MAX);
                rows.take(&((600.0f64.powf(at)) as u64).to_le_bytes());
            });
            rows
        };
        for count in [1000, 4000] {
            let (small, large) = (drawn(1, 1000), drawn(2, count));
            let kinds = Common::of_kinds(&large, &small);
            assert!(kinds.new > 20.0 && 2 * kinds.shared > kinds.of && !kinds.is_no_chance(), "{kinds:?}");
        }
        assert!(!Common::of_kinds(&rows(400..900, 1024), &once).is_no_chance());
    }

    /// However many rows there are, so many are kept, and they are the same of both files.
    #[test]
    fn a_sample_tells_what_all_rows_tell() {
        let (earlier, later, other) = (rows(0..20_000, 256), rows(0..60_000, 256), rows(60_000..90_000, 256));
        assert!([&earlier, &later, &other].iter().all(|rows| rows.kept.len() <= 256 && rows.kept.len() > 64));
        let common = Common::of(&earlier, &later);
        assert!(common.sampled && common.is_no_chance() && common.is_certain(), "{common:?}");
        let common = Common::of(&other, &later);
        assert!(common.shared == 0 && !common.is_certain(), "{common:?}");
        assert!(rows(0..20_000, 512).is_copy(&earlier) && !earlier.is_copy(&rows(0..20_001, 256)));
    }
}
