//! Lines of a text file. A line ends at a line feed, with or without a carriage return before it, whatever a record holds.
//!
//! A header that ends in a carriage return alone is refused: if such files were read, the first byte after the header, which belongs to a
//! record, would decide where every later line ends.
//!
//! A record is one line: bytes up to the next end of a line. Whatever these bytes are, the lines before and after are the same.

use std::io::{self, BufRead, Read};

/// Longest line that is kept in memory.
pub(crate) const LONGEST_LINE: u64 = 1 << 26;

/// The last byte of every line.
const END: u8 = b'\n';

const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";

/// A line without the mark of the byte order that it may begin with.
pub(crate) fn without_mark(line: &[u8]) -> &[u8] {
    line.strip_prefix(BYTE_ORDER_MARK).unwrap_or(line)
}

/// Lines of a file, numbered from 1. The end of the file ends the last line; a line end before it does not begin another.
pub(crate) struct Lines<R> {
    reader: R,
    longest: u64,
    line: Vec<u8>,
    number: u64,
}

/// What came next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Next {
    /// A line; [`Lines::line`] holds it.
    Line,
    /// A line that is longer than the limit; it was passed over.
    TooLong,
    /// The end of the file.
    End,
}

/// A first line that ends in a carriage return alone: the file is not read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct BareReturn;

impl<R: BufRead> Lines<R> {
    /// Lines that end in a line feed, with or without a carriage return before it.
    pub(crate) fn new(reader: R, longest: u64) -> Self {
        Self { reader, longest, line: Vec::new(), number: 0 }
    }

    /// Reads the first line, and refuses one that ends in a carriage return alone.
    pub(crate) fn first(&mut self) -> io::Result<Result<Next, BareReturn>> {
        self.line.clear();
        loop {
            let bytes = self.reader.fill_buf()?;
            let Some(stop) = bytes.iter().position(|byte| matches!(byte, b'\n' | b'\r')) else {
                let length = bytes.len();
                if length == 0 {
                    break;
                }
                self.line.extend_from_slice(bytes);
                self.reader.consume(length);
                if self.line.len() as u64 > self.longest {
                    self.number = 1;
                    self.line.clear();
                    self.reader.skip_until(END)?;
                    return Ok(Ok(Next::TooLong));
                }
                continue;
            };
            let stopped_at = bytes[stop];
            self.line.extend_from_slice(&bytes[..stop]);
            self.reader.consume(stop + 1);
            if stopped_at == b'\r' {
                if self.reader.fill_buf()?.first() != Some(&END) {
                    return Ok(Err(BareReturn));
                }
                self.reader.consume(1);
            }
            self.number = 1;
            self.strip_mark();
            return Ok(Ok(Next::Line));
        }
        if self.line.is_empty() {
            return Ok(Ok(Next::End));
        }
        self.number = 1;
        self.strip_mark();
        Ok(Ok(Next::Line))
    }

    /// Reads the next line. A mark of the byte order stays where it is: the first line of a file without a header is a record like the others.
    pub(crate) fn next(&mut self) -> io::Result<Next> {
        self.line.clear();
        let read = (&mut self.reader).take(self.longest + 1).read_until(END, &mut self.line)?;
        if read == 0 {
            return Ok(Next::End);
        }
        self.number += 1;
        if self.line.last() == Some(&END) {
            self.line.pop();
        } else if read as u64 > self.longest {
            self.line.clear();
            self.reader.skip_until(END)?;
            return Ok(Next::TooLong);
        }
        if self.line.last() == Some(&b'\r') {
            self.line.pop();
        }
        Ok(Next::Line)
    }

    /// The line that was read last, without its end.
    pub(crate) fn line(&self) -> &[u8] {
        &self.line
    }

    /// The same with one byte behind it that occurs nowhere in it.
    pub(crate) fn ended(&mut self) -> (&[u8], u8) {
        if self.line.last() != Some(&END) {
            self.line.push(END);
        }
        (&self.line, END)
    }

    /// Number of the line that was read last.
    pub(crate) fn number(&self) -> u64 {
        self.number
    }

    fn strip_mark(&mut self) {
        if self.line.starts_with(BYTE_ORDER_MARK) {
            self.line.drain(..BYTE_ORDER_MARK.len());
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn all(text: &[u8], longest: u64, header: bool) -> Vec<Option<Vec<u8>>> {
        // A buffer of two bytes: every boundary falls inside something.
        let mut lines = Lines::new(io::BufReader::with_capacity(2, text), longest);
        let mut found = Vec::new();
        loop {
            let next = if header && found.is_empty() { lines.first().unwrap().unwrap() } else { lines.next().unwrap() };
            match next {
                Next::End => return found,
                Next::TooLong => found.push(None),
                Next::Line => found.push(Some(lines.line().to_vec())),
            }
        }
    }

    fn texts(text: &str) -> Vec<String> {
        all(text.as_bytes(), 100, true).into_iter().map(|line| String::from_utf8(line.unwrap()).unwrap()).collect()
    }

    #[test]
    fn lines_end_at_line_feeds() {
        assert_eq!(texts("h\na\r\nb\n"), ["h", "a", "b"]);
        assert_eq!(texts("h\r\na\nb\rc"), ["h", "a", "b\rc"]);
        assert_eq!(texts("h"), ["h"]);
        assert_eq!(texts("\u{feff}h\n\u{feff}a\n\n\n"), ["h", "\u{feff}a", "", ""]);
        assert!(texts("").is_empty());
    }

    /// Were it read, a first record that begins with a line feed would decide how all lines end.
    #[test]
    fn a_header_that_ends_in_a_bare_carriage_return_is_refused() {
        for text in ["h\ra\rb\nc\r", "h\r", "h\ra\n", "\u{feff}h\r\r\n", "\ra\n"] {
            let mut lines = Lines::new(io::BufReader::with_capacity(2, text.as_bytes()), 100);
            assert_eq!(lines.first().unwrap(), Err(BareReturn), "{text:?}");
        }
        // The first record begins with a line feed: line feeds end lines here as everywhere, and what the record holds is one line.
        assert_eq!(texts("h\r\na\rb\rc"), ["h", "a\rb\rc"]);
    }

    #[test]
    fn a_long_line_is_passed_over_and_moves_no_other() {
        let line = |text: &str| Some(text.as_bytes().to_vec());
        assert_eq!(all(b"abcd\nabcde\nabcdef\r\nx\nabcdefghi", 4, false), [line("abcd"), None, None, line("x"), None]);
        assert_eq!(all(b"abcdefgh\nx\n", 4, true), [None, line("x")]);
        assert_eq!(all(b"abcde", 4, false), [None]);
    }
}
