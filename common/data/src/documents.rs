//! Documents as word counts: UCI's docword files, and plain text with a public vocabulary.
//!
//! Every document is a unit. A document without a word of the vocabulary stays a unit without a record and contributes 0. Counts are
//! scaled to the schema's document length N: what drawing N words with replacement gives on average, without the draws.

use crate::LocalCounts;
use crate::assemble::{Assembled, Predicted};
use crate::encode::Purpose;
use crate::error::{DataError, DocumentProblem};
use crate::lines::{LONGEST_LINE, Lines, Next, without_mark};
use crate::screen::Screen;
use crate::source::{RecordFile, Start, open_plain};
use dp_pvi_records::{RecordTable, RecordTableBuilder};
use dp_pvi_schema::content::{DocumentFormat, DocumentRule};
use std::collections::{HashMap, HashSet};
use std::io::{BufReader, Read};
use std::path::Path;

/// Longest line of a docword file: three 64-bit numbers and blanks.
const LONGEST_NUMBERS: u64 = 256;

/// Reads all documents of all files.
///
/// In a run a line that cannot be read makes its document contribute 0; one that names no document belongs to none.
pub(crate) fn load(rule: &DocumentRule, files: &[impl RecordFile], purpose: Purpose) -> Result<Assembled, DataError> {
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
    for file in files {
        let path = file.name();
        let before = collector.totals.units;
        match rule.format {
            DocumentFormat::Docword => docword(rule, &mut File::open(file, Start::Header, LONGEST_NUMBERS)?, &mut collector, purpose)?,
            DocumentFormat::Text => text(rule, &mut File::open(file, Start::Record, LONGEST_LINE)?, &mut collector, purpose)?,
        }
        if collector.totals.units == before && purpose != Purpose::Run {
            return Err(DataError::Empty { path: path.to_owned() });
        }
    }
    let counts = collector.totals;
    Ok(Assembled { table: collector.table.finish(), counts, predicted: Predicted::default(), screen: Screen::of_all(counts.records) })
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

/// One entry: a document, a word (both from 1) and how often it occurs there.
struct Entry {
    document: u32,
    word: u32,
    count: u32,
}

fn docword(rule: &DocumentRule, file: &mut File<'_>, collector: &mut Collector, purpose: Purpose) -> Result<(), DataError> {
    let [documents] = file.header()?;
    let [words] = file.header()?;
    let [entries] = file.header()?;
    if words != u64::from(rule.words) {
        return Err(file.fault(DocumentProblem::OtherVocabulary));
    }
    let Ok(documents) = u32::try_from(documents) else { return Err(file.fault(DocumentProblem::DocumentNumber)) };
    let (mut found, mut spoiled, mut lines) = (Vec::new(), HashSet::new(), 0);
    loop {
        let next = file.next()?;
        if next == Next::End {
            break;
        }
        lines += 1;
        if purpose != Purpose::Run && lines > entries {
            return Err(file.fault(DocumentProblem::TooManyEntries));
        }
        match entry(&file.lines, next, documents, rule.words) {
            Ok(Entry { document, .. })
                if purpose != Purpose::Run && found.last().is_some_and(|before: &Entry| document < before.document) =>
            {
                return Err(file.fault(DocumentProblem::DocumentNumber));
            }
            Ok(entry) => found.push(entry),
            Err((problem, _)) if purpose != Purpose::Run => return Err(file.fault(problem)),
            Err((_, document)) => spoiled.extend(document),
        }
    }
    if purpose != Purpose::Run && lines < entries {
        return Err(file.fault(DocumentProblem::Truncated));
    }
    // Stable: the words of a document stay in their order.
    found.sort_by_key(|entry| entry.document);
    let mut found = found.into_iter().peekable();
    for document in 1..=documents {
        while let Some(Entry { word, count, .. }) = found.next_if(|entry| entry.document == document) {
            collector.counts.push((word - 1, count.into()));
        }
        if spoiled.contains(&document) {
            collector.counts.clear();
        }
        collector.finish()?;
    }
    Ok(())
}

/// Reads an entry. An error says what is wrong, and with which document as far as the line tells.
fn entry(lines: &Lines<impl std::io::BufRead>, next: Next, documents: u32, words: u32) -> Result<Entry, (DocumentProblem, Option<u32>)> {
    let in_range = |number: u64, last: u32| u32::try_from(number).ok().filter(|number| (1..=last).contains(number));
    let numbers = if next == Next::Line { numbers(lines.line()) } else { None };
    let Some([document, word, count]) = numbers else {
        let first = lines.line().split(u8::is_ascii_whitespace).find(|part| !part.is_empty()).and_then(number);
        return Err((DocumentProblem::NotNumbers, first.and_then(|document| in_range(document, documents))));
    };
    let Some(document) = in_range(document, documents) else { return Err((DocumentProblem::DocumentNumber, None)) };
    let Some(word) = in_range(word, words) else { return Err((DocumentProblem::WordNumber, Some(document))) };
    let Some(count) = in_range(count, u32::MAX) else { return Err((DocumentProblem::Count, Some(document))) };
    Ok(Entry { document, word, count })
}

fn text(rule: &DocumentRule, file: &mut File<'_>, collector: &mut Collector, purpose: Purpose) -> Result<(), DataError> {
    // The schema lists the words of text files.
    let words = rule.vocabulary.as_deref().unwrap_or_default();
    let numbers: HashMap<&str, u32> = words.iter().map(String::as_str).zip(0..).collect();
    loop {
        let problem = match file.next()? {
            Next::End => return Ok(()),
            Next::TooLong => Some(DocumentProblem::LongLine),
            Next::Line => match std::str::from_utf8(file.lines.line()) {
                Err(_) => Some(DocumentProblem::NotText),
                Ok(line) => {
                    let small = line.to_lowercase();
                    let known = small.split(|c: char| !c.is_alphanumeric()).filter_map(|word| numbers.get(word));
                    collector.counts.extend(known.map(|&number| (number, 1.0)));
                    None
                }
            },
        };
        match problem {
            Some(problem) if purpose != Purpose::Run => return Err(file.fault(problem)),
            _ => collector.finish()?,
        }
    }
}

/// A file's lines, and what errors say of them.
struct File<'a> {
    path: &'a Path,
    lines: Lines<BufReader<Box<dyn Read>>>,
}

impl<'a> File<'a> {
    fn open(file: &'a impl RecordFile, start: Start, longest: u64) -> Result<Self, DataError> {
        let lines = Lines::new(BufReader::with_capacity(1 << 16, open_plain(file, start)?), longest);
        Ok(Self { path: file.name(), lines })
    }

    fn next(&mut self) -> Result<Next, DataError> {
        self.lines.next().map_err(|source| DataError::Io { path: self.path.to_owned(), source })
    }

    /// The next line of the header as N whole numbers.
    fn header<const N: usize>(&mut self) -> Result<[u64; N], DataError> {
        match self.next()? {
            Next::End => Err(self.fault(DocumentProblem::Truncated)),
            Next::TooLong => Err(self.fault(DocumentProblem::NotNumbers)),
            // A header is public, and may begin with a mark of the byte order.
            Next::Line => numbers(without_mark(self.lines.line())).ok_or_else(|| self.fault(DocumentProblem::NotNumbers)),
        }
    }

    /// What is wrong with the line that was read last.
    fn fault(&self, problem: DocumentProblem) -> DataError {
        DataError::Document { path: self.path.to_owned(), line: self.lines.number(), problem }
    }
}

/// A line as exactly N whole numbers.
fn numbers<const N: usize>(line: &[u8]) -> Option<[u64; N]> {
    let mut parts = line.split(u8::is_ascii_whitespace).filter(|part| !part.is_empty());
    let mut values = [0; N];
    for value in &mut values {
        *value = parts.next().and_then(number)?;
    }
    parts.next().is_none().then_some(values)
}

fn number(text: &[u8]) -> Option<u64> {
    std::str::from_utf8(text).ok()?.parse().ok()
}
