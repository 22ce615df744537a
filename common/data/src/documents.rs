//! Documents as word counts: UCI's docword files, and plain text with a public vocabulary.
//!
//! Every document is a unit. A document without a word of the vocabulary stays a unit without a record and contributes 0. Counts are
//! scaled to the schema's document length N: what drawing N words with replacement gives on average, without the draws.

use crate::LocalCounts;
use crate::error::{DataError, DocumentProblem};
use crate::source::open_plain;
use dp_pvi_inference::records::{RecordTable, RecordTableBuilder};
use dp_pvi_posterior::schema::content::{DocumentFormat, DocumentRule};
use std::collections::HashMap;
use std::io::{BufRead, BufReader};
use std::path::Path;

/// Longest line of a docword file: three 64-bit numbers and blanks.
const LONGEST_LINE: u64 = 256;
/// Longest line of a text file.
const LONGEST_DOCUMENT: u64 = 1 << 26;

/// Reads all documents of all files.
pub(crate) fn load<P: AsRef<Path>>(rule: &DocumentRule, files: &[P]) -> Result<(RecordTable, LocalCounts), DataError> {
    if files.is_empty() {
        return Err(DataError::NoFiles);
    }
    let mut collector = Collector {
        length: rule.length,
        table: RecordTable::builder(rule.words as usize),
        counts: Vec::new(),
        indices: Vec::new(),
        values: Vec::new(),
        totals: LocalCounts { units: 0, records: 0, dropped: 0 },
    };
    for path in files {
        let mut lines = Lines::open(path.as_ref())?;
        let before = collector.totals.units;
        match rule.format {
            DocumentFormat::Docword => docword(rule, &mut lines, &mut collector)?,
            DocumentFormat::Text => text(rule, &mut lines, &mut collector)?,
        }
        if collector.totals.units == before {
            return Err(DataError::Empty { path: path.as_ref().to_owned() });
        }
    }
    Ok((collector.table.finish(), collector.totals))
}

/// One document after the other becomes a unit.
struct Collector {
    length: f64,
    table: RecordTableBuilder,
    /// Words of the current document.
    counts: Vec<(u32, f64)>,
    indices: Vec<u32>,
    values: Vec<f64>,
    totals: LocalCounts,
}

impl Collector {
    /// Ends the current document; it may have no words.
    fn finish(&mut self) -> Result<(), DataError> {
        self.totals.units += 1;
        self.totals.records += 1;
        self.table.start_unit();
        let total: f64 = self.counts.iter().map(|(_, count)| count).sum();
        if total > 0.0 {
            self.counts.sort_unstable_by_key(|(word, _)| *word);
            self.counts.dedup_by(|(word, count), (kept, sum)| {
                let same = word == kept;
                if same {
                    *sum += *count;
                }
                same
            });
            self.indices.clear();
            self.values.clear();
            self.indices.extend(self.counts.iter().map(|(word, _)| *word));
            let scale = self.length / total;
            self.values.extend(self.counts.iter().map(|(_, count)| count * scale));
            self.table.push(&self.indices, &self.values, 0.0)?;
        } else {
            self.totals.dropped += 1;
        }
        self.counts.clear();
        Ok(())
    }
}

fn docword(rule: &DocumentRule, lines: &mut Lines<'_>, collector: &mut Collector) -> Result<(), DataError> {
    let [documents] = lines.required()?;
    let [words] = lines.required()?;
    let [entries] = lines.required()?;
    if words != u64::from(rule.words) {
        return Err(lines.fault(DocumentProblem::OtherVocabulary));
    }
    let mut current = 1;
    for _ in 0..entries {
        let [document, word, count] = lines.required()?;
        if document < current || document > documents {
            return Err(lines.fault(DocumentProblem::DocumentNumber));
        }
        if word == 0 || word > words {
            return Err(lines.fault(DocumentProblem::WordNumber));
        }
        if count == 0 || count > u64::from(u32::MAX) {
            return Err(lines.fault(DocumentProblem::Count));
        }
        while current < document {
            collector.finish()?;
            current += 1;
        }
        #[allow(clippy::cast_possible_truncation, clippy::cast_precision_loss, reason = "both are below 2^32")]
        collector.counts.push(((word - 1) as u32, count as f64));
    }
    if lines.next()? {
        return Err(lines.fault(DocumentProblem::TooManyEntries));
    }
    // Documents at the end may be empty; a header that promises more than a table holds is refused by the table.
    while current <= documents {
        collector.finish()?;
        current += 1;
        if collector.totals.units > u64::from(u32::MAX) {
            return Err(lines.fault(DocumentProblem::DocumentNumber));
        }
    }
    Ok(())
}

fn text(rule: &DocumentRule, lines: &mut Lines<'_>, collector: &mut Collector) -> Result<(), DataError> {
    // The schema lists the words of text files.
    let words = rule.vocabulary.as_deref().unwrap_or_default();
    let numbers: HashMap<&str, u32> = words.iter().map(String::as_str).zip(0..).collect();
    while lines.next()? {
        let Ok(line) = std::str::from_utf8(&lines.line) else {
            return Err(lines.fault(DocumentProblem::NotText));
        };
        let small = line.to_lowercase();
        for word in small.split(|c: char| !c.is_alphanumeric()) {
            if let Some(&number) = numbers.get(word) {
                collector.counts.push((number, 1.0));
            }
        }
        collector.finish()?;
    }
    Ok(())
}

/// A file's lines, numbered from 1.
struct Lines<'a> {
    path: &'a Path,
    reader: Box<dyn BufRead>,
    line: Vec<u8>,
    number: u64,
}

impl<'a> Lines<'a> {
    fn open(path: &'a Path) -> Result<Self, DataError> {
        Ok(Self { path, reader: Box::new(BufReader::with_capacity(1 << 16, open_plain(path)?)), line: Vec::new(), number: 0 })
    }

    /// Reads the next line, without its end; `false` after the last.
    fn next(&mut self) -> Result<bool, DataError> {
        use std::io::Read;
        self.line.clear();
        let mut limited = (&mut self.reader).take(LONGEST_DOCUMENT);
        let read = limited.read_until(b'\n', &mut self.line).map_err(|source| DataError::Io { path: self.path.to_owned(), source })?;
        if read == 0 {
            return Ok(false);
        }
        self.number += 1;
        if self.line.last() == Some(&b'\n') {
            self.line.pop();
        } else if read as u64 == LONGEST_DOCUMENT {
            return Err(self.fault(DocumentProblem::LongLine));
        }
        Ok(true)
    }

    /// The next line as N whole numbers.
    fn required<const N: usize>(&mut self) -> Result<[u64; N], DataError> {
        if !self.next()? {
            return Err(self.fault(DocumentProblem::Truncated));
        }
        if self.line.len() as u64 > LONGEST_LINE {
            return Err(self.fault(DocumentProblem::NotNumbers));
        }
        let mut numbers = self.line.split(u8::is_ascii_whitespace).filter(|part| !part.is_empty());
        let mut values = [0; N];
        for value in &mut values {
            let number = numbers.next().and_then(|part| std::str::from_utf8(part).ok()?.parse().ok());
            match number {
                Some(number) => *value = number,
                None => return Err(self.fault(DocumentProblem::NotNumbers)),
            }
        }
        if numbers.next().is_some() { Err(self.fault(DocumentProblem::NotNumbers)) } else { Ok(values) }
    }

    /// What is wrong with the line that was read last.
    fn fault(&self, problem: DocumentProblem) -> DataError {
        DataError::Document { path: self.path.to_owned(), line: self.number, problem }
    }
}
