//! CSV: one record a line, cells cut as the schema says.
//!
//! Every line after the header is a record, whatever it holds: lines are cut first ([`crate::lines`]), and then each line by itself into
//! cells. A quote that is not closed ends with its line, so that it takes nothing from the next one.

use crate::encode::{Cell, Purpose, Row};
use crate::error::{Clue, DataError, LineProblem};
use crate::lines::{BareReturn, LONGEST_LINE, Lines, Next};
use crate::source::{Input, Visitor};
use csv_core::{ReadRecordResult, ReaderBuilder, Terminator};
use dp_pvi_schema::{Blanks, CsvFormat};
use std::io::{BufReader, Read};

/// One line, seen through the schema's fields.
struct Line<'a> {
    cells: &'a Cells,
    positions: &'a [Option<usize>],
    blanks: Blanks,
}

impl Row for Line<'_> {
    #[inline]
    fn cell(&self, field: usize) -> Cell<'_> {
        let text = self.positions[field].and_then(|position| self.cells.get(position));
        text.map_or(Cell::Null, |text| Cell::Text(cut(text, self.blanks)))
    }
}

/// Reads a text file's rows and returns their number, without lines that hold nothing.
pub(crate) fn read(input: &Input<'_>, bytes: impl Read, visitor: &mut impl Visitor) -> Result<u64, DataError> {
    let format = input.schema.csv();
    let mut lines = Lines::new(BufReader::with_capacity(1 << 16, bytes), LONGEST_LINE);
    let mut cells = Cells::default();
    let (positions, width) = match &format.names {
        Some(names) => (input.bind(&names.iter().map(String::as_bytes).collect::<Vec<_>>())?, names.len()),
        None => header(input, format, &mut lines, &mut cells)?,
    };
    // Public records may stand between lines that are none. Among private ones such a line is a record: what it looks like is
    // something that only its own bytes decide.
    let passes_over = matches!(input.purpose, Purpose::Public | Purpose::Prediction);
    let (mut row, mut rows) = (0, 0);
    loop {
        let next = lines.next().map_err(|source| input.io(source))?;
        let found = match next {
            Next::End => return Ok(rows),
            Next::TooLong => Err(LineProblem::TooLong),
            Next::Line => {
                let line = lines.line();
                // In a file of one column an empty line is a record whose cell is empty.
                if line.first().map_or(width > 1 || passes_over, |first| format.comment == Some(*first)) {
                    if !passes_over {
                        row += 1;
                        visitor.nothing();
                    }
                    continue;
                }
                cells.cut(&mut lines, format.delimiter)
            }
        };
        row += 1;
        rows += 1;
        let visited = match found {
            Ok(found) if found == width => visitor.row(&Line { cells: &cells, positions: &positions, blanks: format.blanks }),
            Ok(found) => visitor.broken(LineProblem::Length { expected: width, found }),
            Err(problem) => visitor.broken(problem),
        };
        visited.map_err(|error| input.at(row, error))?;
    }
}

/// Finds the schema's fields in the first line that is neither empty nor a comment. Header and whatever stands before it are public.
fn header(
    input: &Input<'_>,
    format: &CsvFormat,
    lines: &mut Lines<impl std::io::BufRead>,
    cells: &mut Cells,
) -> Result<(Vec<Option<usize>>, usize), DataError> {
    let header = |problem| DataError::Header { path: input.path.to_owned(), problem };
    let mut next = match lines.first().map_err(|source| input.io(source))? {
        Ok(first) => Ok(first),
        Err(BareReturn) => return Err(header(LineProblem::BareReturn)),
    };
    loop {
        match next.map_err(|source| input.io(source))? {
            Next::End => return Err(DataError::Empty { path: input.path.to_owned() }),
            Next::TooLong => return Err(header(LineProblem::TooLong)),
            Next::Line => {}
        }
        let line = lines.line();
        if line.first().is_some_and(|first| format.comment != Some(*first)) {
            break;
        }
        next = lines.next();
    }
    let clue = Clue::of(lines.line(), format.delimiter);
    let width = match cells.cut(lines, format.delimiter) {
        Ok(width) => width,
        Err(problem) => return Err(header(problem)),
    };
    let names: Vec<_> = (0..width).filter_map(|position| cells.get(position)).map(|name| cut(name, Blanks::Trimmed)).collect();
    let positions = input.bind(&names).map_err(|error| match error {
        DataError::MissingColumn { path, column, .. } => DataError::MissingColumn { path, column, clue },
        other => other,
    })?;
    Ok((positions, width))
}

/// The cells of one line.
#[derive(Default)]
struct Cells {
    reader: Option<(u8, csv_core::Reader)>,
    text: Vec<u8>,
    ends: Vec<usize>,
    found: usize,
}

impl Cells {
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
        reader.reset();
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

#[inline]
fn cut(text: &[u8], blanks: Blanks) -> &[u8] {
    match blanks {
        Blanks::Trimmed => text.trim_ascii(),
        Blanks::Kept => text,
    }
}
