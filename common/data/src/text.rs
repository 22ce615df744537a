//! CSV: one record a line, cells cut as the schema says.
//!
//! Every line after the header is a record, whatever it holds: lines are cut first ([`crate::lines`]), and then each line by itself into
//! cells. A quote that is not closed ends with its line, so that it takes nothing from the next one.

use crate::decode::{Decoded, has_damage};
use crate::error::{Clue, DataError};
use crate::lines::{BareReturn, LONGEST_LINE, Lines, Next};
use csv_core::{ReadRecordResult, ReaderBuilder, Terminator};
use dp_pvi_records::{CellValue, LineProblem, Row, Source, Visitor};
use dp_pvi_schema::CsvFormat;
use std::io::{BufReader, Read};
use std::path::Path;

/// One line, seen through the schema's fields.
struct Line<'a> {
    cells: &'a Cells,
    positions: &'a [Option<usize>],
    decimal: u8,
}

impl Row for Line<'_> {
    #[inline]
    fn cell(&self, field: usize) -> CellValue<'_> {
        let text = self.positions[field].and_then(|position| self.cells.get(position));
        text.map_or(CellValue::Null, CellValue::Text)
    }

    fn decimal(&self, _field: usize) -> u8 {
        self.decimal
    }
}

/// What can be read of a line that has another number of cells than the file has columns: its first one. Where the others belong is not known.
struct Beginning<'a>(Line<'a>);

impl Row for Beginning<'_> {
    fn cell(&self, field: usize) -> CellValue<'_> {
        if self.0.positions.get(field) == Some(&Some(0)) { self.0.cell(field) } else { CellValue::Null }
    }

    fn decimal(&self, field: usize) -> u8 {
        self.0.decimal(field)
    }
}

/// A text file as a table.
pub(crate) struct TextTable<'a, R> {
    path: &'a Path,
    format: &'a CsvFormat,
    lines: Lines<BufReader<Decoded<R>>>,
    cells: Cells,
    width: usize,
    passes_over: bool,
    clue: Option<Clue>,
}

impl<'a, R: Read> TextTable<'a, R> {
    /// The table in `bytes`, which messages call `path`. Every line after the header is a record.
    pub(crate) fn new(path: &'a Path, bytes: R, format: &'a CsvFormat) -> Self {
        let lines = Lines::new(BufReader::with_capacity(1 << 16, Decoded::new(bytes, format.encoding)), LONGEST_LINE);
        Self { path, format, lines, cells: Cells::default(), width: 0, passes_over: false, clue: None }
    }

    /// Empty lines and comments are no records.
    pub(crate) fn passing_over_blanks(self) -> Self {
        Self { passes_over: true, ..self }
    }

    /// What the header looks like, if not like one of this format.
    pub(crate) fn clue(&self) -> Option<Clue> {
        self.clue
    }

    fn io(&self, source: std::io::Error) -> DataError {
        DataError::Io { path: self.path.to_owned(), source }
    }

    /// Reads the first line that is neither empty nor a comment. Header and whatever is before it are public.
    fn header(&mut self) -> Result<Vec<Vec<u8>>, DataError> {
        let path = self.path;
        let header = |problem| DataError::Header { path: path.to_owned(), problem };
        let mut next = match self.lines.first() {
            Ok(Ok(first)) => Ok(first),
            // Of UTF-16 the carriage return is half of one: the column that is then missing says so.
            Ok(Err(BareReturn)) if Clue::wide(self.lines.line()).is_some() => {
                self.clue = Clue::wide(self.lines.line());
                return Ok(Vec::new());
            }
            Ok(Err(BareReturn)) => {
                self.clue = Clue::of(self.lines.line(), self.format.delimiter);
                return Err(header(LineProblem::BareReturn));
            }
            Err(source) => Err(source),
        };
        loop {
            match next.map_err(|source| self.io(source))? {
                Next::End => return Err(DataError::Empty { path: path.to_owned() }),
                Next::TooLong => {
                    self.clue = Clue::of(self.lines.line(), self.format.delimiter);
                    return Err(header(LineProblem::TooLong));
                }
                Next::Line => {}
            }
            if self.lines.line().first().is_some_and(|first| self.format.comment != Some(*first)) {
                break;
            }
            next = self.lines.next();
        }
        self.clue = Clue::of(self.lines.line(), self.format.delimiter);
        if has_damage(self.lines.line(), self.format.encoding) {
            return Err(header(LineProblem::Encoding));
        }
        let width = self.cells.cut(&mut self.lines, self.format.delimiter).map_err(header)?;
        Ok((0..width).filter_map(|position| self.cells.get(position)).map(<[u8]>::to_vec).collect())
    }
}

impl<R: Read> Source for TextTable<'_, R> {
    type Error = DataError;

    fn name(&self) -> &Path {
        self.path
    }

    fn columns(&mut self) -> Result<Vec<Vec<u8>>, DataError> {
        let names = match &self.format.names {
            Some(names) => names.iter().map(|name| name.as_bytes().to_vec()).collect(),
            None => self.header()?,
        };
        self.width = names.len();
        Ok(names)
    }

    fn visit(&mut self, fields: &[Option<usize>], visitor: &mut impl Visitor) -> Result<(), DataError> {
        loop {
            let found = match self.lines.next().map_err(|source| self.io(source))? {
                Next::End => return Ok(()),
                Next::TooLong => Err(LineProblem::TooLong),
                Next::Line => {
                    // In a file of one column an empty line is a record whose cell is empty.
                    let first = self.lines.line().first();
                    if first.map_or(self.width > 1 || self.passes_over, |first| self.format.comment == Some(*first)) {
                        if !self.passes_over {
                            visitor.nothing();
                        }
                        continue;
                    }
                    if has_damage(self.lines.line(), self.format.encoding) {
                        Err(LineProblem::Encoding)
                    } else {
                        self.cells.cut(&mut self.lines, self.format.delimiter)
                    }
                }
            };
            let line = Line { cells: &self.cells, positions: fields, decimal: self.format.decimal };
            let visited = match found {
                Ok(found) if found == self.width => visitor.row(&line),
                Ok(found) => visitor.broken(LineProblem::Length { expected: self.width, found }, &Beginning(line)),
                Err(problem) => visitor.broken(problem, &()),
            };
            if visited.is_break() {
                return Ok(());
            }
        }
    }
}

/// The cells of one line.
#[derive(Default)]
pub(crate) struct Cells {
    reader: Option<(u8, csv_core::Reader)>,
    text: Vec<u8>,
    ends: Vec<usize>,
    found: usize,
}

impl Cells {
    /// The cells of one line that has no end; none if it cannot be cut.
    pub(crate) fn of_line(line: &[u8], delimiter: u8) -> Vec<Vec<u8>> {
        let (mut cells, mut lines) = (Self::default(), Lines::new(line, LONGEST_LINE));
        let width = match lines.next() {
            Ok(Next::Line) => cells.cut(&mut lines, delimiter).unwrap_or(0),
            _ => 0,
        };
        (0..width).filter_map(|position| cells.get(position)).map(<[u8]>::to_vec).collect()
    }

    /// Cuts the line that was read last and returns the number of its cells.
    fn cut(&mut self, lines: &mut Lines<impl std::io::BufRead>, delimiter: u8) -> Result<usize, LineProblem> {
        self.found = 0;
        let (line, end) = lines.ended();
        if line.len() == 1 {
            // An empty line of a file with one column: one empty cell.
            (self.found, self.ends) = (1, vec![0]);
            return Ok(1);
        }
        let reader = match &mut self.reader {
            Some((known, reader)) if *known == end => reader,
            _ => {
                let reader = ReaderBuilder::new().delimiter(delimiter).terminator(Terminator::Any(end)).build();
                &mut self.reader.insert((end, reader)).1
            }
        };
        // Every line is cut as if it were the only one: what the reader remembers of the last one, an open quote or that nothing was read yet, may
        // decide nothing.
        reader.reset();
        if self.text.len() < line.len() {
            self.text.resize(line.len(), 0);
        }
        let (mut taken, mut written) = (0, 0);
        while taken < line.len() {
            let (result, read, wrote, ended) = reader.read_record(&line[taken..], &mut self.text[written..], &mut self.ends[self.found..]);
            taken += read;
            written += wrote;
            self.found += ended;
            match result {
                ReadRecordResult::Record => return Ok(self.found),
                ReadRecordResult::OutputEndsFull => self.ends.resize(2 * self.ends.len() + 16, 0),
                ReadRecordResult::OutputFull => self.text.resize(2 * self.text.len() + 16, 0),
                ReadRecordResult::InputEmpty | ReadRecordResult::End => break,
            }
        }
        // The end of the line was taken for part of a cell.
        self.found = 0;
        Err(LineProblem::OpenQuote)
    }

    #[inline]
    fn get(&self, position: usize) -> Option<&[u8]> {
        let ends = &self.ends[..self.found];
        let end = *ends.get(position)?;
        let start = position.checked_sub(1).map_or(0, |before| ends[before]);
        Some(&self.text[start..end])
    }
}
