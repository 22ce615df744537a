//! What the first lines of a file look like, for the people who write a schema. A run never guesses.
//!
//! A guess holds keys of a schema and names that the schema has: no cell and no name of a file's header.

use crate::decode::Decoded;
use crate::error::DataError;
use crate::source::{Container, RecordFile, Start, open_plain, opened};
use crate::text::Cells;
use dp_pvi_schema::content::Content;
use dp_pvi_schema::dates::DateFormat;
use dp_pvi_schema::{Blanks, ColumnKind, Encoding, Schema, text};
use std::fmt;
use std::io::Read;

/// So much of a file is looked at.
const LOOKED_AT: u64 = 1 << 16;
const DELIMITERS: [u8; 4] = [b',', b';', b'\t', b'|'];

/// Keys that would fit the first lines better than those of the schema; empty where the schema's fit.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Guess {
    /// `[csv] delimiter`.
    pub delimiter: Option<char>,
    /// `[csv] encoding`.
    pub encoding: Option<&'static str>,
    /// `[csv] decimal`.
    pub decimal: Option<char>,
    /// Columns of the schema whose cells are dates, with the formats that fit.
    pub dates: Vec<(String, Vec<&'static str>)>,
}

/// Looks at the first lines of the first file. Documents, images and Parquet files have nothing to guess.
///
/// # Errors
/// The file cannot be opened or unpacked.
pub fn guess(schema: &Schema, files: &[impl RecordFile]) -> Result<Guess, DataError> {
    let Some(file) = files.first().filter(|_| *schema.content() == Content::Table) else { return Ok(Guess::default()) };
    let format = schema.csv();
    let start = if format.names.is_some() { Start::Record } else { Start::Header };
    if Container::of(file.name(), &opened(file)?.1, start) == Container::Parquet {
        return Ok(Guess::default());
    }
    let io = |source| DataError::Io { path: file.name().to_owned(), source };
    let mut bytes = Vec::new();
    open_plain(file, start)?.take(LOOKED_AT).read_to_end(&mut bytes).map_err(io)?;
    let encoding = encoding_of(&bytes, format.encoding);
    let mut text = Vec::new();
    Decoded::new(bytes.as_slice(), encoding).read_to_end(&mut text).map_err(io)?;
    Ok(of_text(schema, encoding, crate::lines::without_mark(&text), bytes.len() as u64 == LOOKED_AT))
}

fn of_text(schema: &Schema, encoding: Encoding, text: &[u8], is_cut: bool) -> Guess {
    let format = schema.csv();
    let mut lines: Vec<&[u8]> = text.split(|byte| *byte == b'\n').map(|line| line.strip_suffix(b"\r").unwrap_or(line)).collect();
    if is_cut {
        lines.pop();
    }
    lines.retain(|line| line.first().is_some_and(|first| format.comment != Some(*first)));
    let Some(first) = lines.first().copied() else { return Guess::default() };
    let count = |wanted: u8| first.iter().filter(|byte| **byte == wanted).count();
    // A record of a file without a header may hold decimal commas: only another character that occurs more often counts.
    let other = DELIMITERS.into_iter().max_by_key(|other| count(*other)).filter(|other| count(*other) > count(format.delimiter));
    let delimiter = other.unwrap_or(format.delimiter);
    let mut rows = lines.iter().map(|line| Cells::of_line(line, delimiter));
    let names = match &format.names {
        Some(names) => names.iter().map(|name| name.as_bytes().to_vec()).collect(),
        None => rows.next().unwrap_or_default(),
    };
    let rows: Vec<_> = rows.map(read).filter(|row| row.len() == names.len()).collect();
    let names = read(names);
    let cells = |position: usize| {
        let cells = rows.iter().map(move |row| row[position].as_slice());
        cells.filter(|cell| !schema.missing_tokens().iter().any(|token| token.as_bytes() == *cell))
    };
    let fits = |position: usize, wanted: &dyn Fn(&[u8]) -> bool| cells(position).next().is_some() && cells(position).all(wanted);
    let position_of = |name: &str| names.iter().position(|known| *known == name.as_bytes());
    let mut guess =
        Guess { delimiter: other.map(char::from), encoding: (encoding != format.encoding).then(|| encoding.name()), ..Guess::default() };
    let mut decimals = [false; 2];
    for column in schema.columns() {
        let ColumnKind::Number(rule) = &column.kind else { continue };
        let Some(position) = position_of(&column.name) else { continue };
        let formats: Vec<_> =
            DateFormat::ALL.into_iter().filter(|format| fits(position, &|cell| format.julian_day(cell).is_some())).collect();
        if formats.is_empty() {
            for (found, decimal) in decimals.iter_mut().zip(*b".,") {
                *found |= fits(position, &|cell| is_number(cell, decimal)) && cells(position).any(|cell| cell.contains(&decimal));
            }
        } else if rule.date.is_none_or(|date| !formats.contains(&date.format) && !formats.contains(&DateFormat::Iso)) {
            guess.dates.push((column.name.clone(), formats.into_iter().map(DateFormat::name).collect()));
        }
    }
    guess.decimal = match (decimals, format.decimal) {
        ([false, true], b'.') if delimiter != b',' => Some(','),
        ([true, false], b',') => Some('.'),
        _ => None,
    };
    guess
}

/// The cells of a line, as a schema reads them.
fn read(line: Vec<Vec<u8>>) -> Vec<Vec<u8>> {
    line.iter().map(|cell| text::cell(cell, Blanks::Trimmed).into_owned()).collect()
}

/// The encoding of a file's first bytes. What no rule excludes stays what the schema says.
fn encoding_of(bytes: &[u8], stated: Encoding) -> Encoding {
    let zeros = |odd: usize| bytes.iter().skip(odd).step_by(2).filter(|byte| **byte == 0).count();
    let is_utf8 = match std::str::from_utf8(bytes) {
        Ok(_) => true,
        // The last character may be cut.
        Err(error) => error.error_len().is_none(),
    };
    match bytes {
        [0xff, 0xfe, ..] => Encoding::Utf16Le,
        [0xfe, 0xff, ..] => Encoding::Utf16Be,
        _ if 6 * zeros(1) > bytes.len() => Encoding::Utf16Le,
        _ if 6 * zeros(0) > bytes.len() => Encoding::Utf16Be,
        [0xef, 0xbb, 0xbf, ..] => Encoding::Utf8,
        _ if is_utf8 && (!bytes.is_ascii() || !matches!(stated, Encoding::Single(_))) => Encoding::Utf8,
        _ if matches!(stated, Encoding::Single(_)) => stated,
        _ => Encoding::Single("windows-1252"),
    }
}

fn is_number(cell: &[u8], decimal: u8) -> bool {
    let digits = cell.strip_prefix(b"-").unwrap_or(cell);
    digits.iter().filter(|byte| **byte == decimal).count() <= 1
        && digits.first().is_some_and(u8::is_ascii_digit)
        && digits.iter().all(|byte| byte.is_ascii_digit() || *byte == decimal)
}

impl Guess {
    /// Whether the schema's keys fit.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

impl fmt::Display for Guess {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_empty() {
            return Ok(());
        }
        writeln!(f, "A guess from the first lines of the first file. If it is right, these keys of the schema should say so (a run reads")?;
        writeln!(f, "only what the schema says, and all sites share one schema):")?;
        if self.delimiter.is_some() || self.encoding.is_some() || self.decimal.is_some() {
            writeln!(f, "  [csv]")?;
        }
        self.delimiter.iter().try_for_each(|delimiter| writeln!(f, "  delimiter = \"{}\"", delimiter.escape_default()))?;
        self.encoding.iter().try_for_each(|encoding| writeln!(f, "  encoding = \"{encoding}\""))?;
        self.decimal.iter().try_for_each(|decimal| writeln!(f, "  decimal = \"{decimal}\""))?;
        for (column, formats) in &self.dates {
            let formats: Vec<_> = formats.iter().map(|format| format!("format = \"{format}\"")).collect();
            writeln!(f, "  column `{column}`: kind = \"date\", {}", formats.join(" or "))?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    const SCHEMA: &str =
        "other_columns = \"ignore\"\n[[columns]]\nname = \"y\"\nkind = \"boolean\"\ntrue_values = [\"ja\"]\nfalse_values = [\"nein\"]
[[columns]]\nname = \"crp\"\nkind = \"number\"\nlower = 0\nupper = 9\ncentre = 0\nscale = 1
[[columns]]\nname = \"seen\"\nkind = \"number\"\nlower = 0\nupper = 9\ncentre = 0\nscale = 1\n";

    fn guessed(bytes: &[u8]) -> Guess {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("a.csv");
        std::fs::write(&path, bytes).unwrap();
        guess(&Schema::asking("y ~ .", SCHEMA).unwrap(), &[path]).unwrap()
    }

    #[test]
    fn keys_are_guessed_from_the_first_lines() {
        let found = guessed(b"crp;seen;y;SECRET\n1,5;31.01.2015;ja;M\xfcller\n;;nein;SECRET\n2;01.02.2015;ja;\n");
        let dates = vec![("seen".to_owned(), vec!["DD.MM.YYYY"])];
        assert_eq!(found, Guess { delimiter: Some(';'), encoding: Some("windows-1252"), decimal: Some(','), dates });
        let text = found.to_string();
        assert!(
            text.contains("delimiter = \";\"\n  encoding = \"windows-1252\"\n  decimal = \",\"\n  column `seen`: kind = \"date\""),
            "{text}"
        );
        assert!(!text.contains("SECRET") && !text.contains("ller") && !text.contains("2015"), "{text}");
        let wide: Vec<u8> = "crp,seen,y\n1.5,01/02/2015,ja\n".encode_utf16().flat_map(u16::to_le_bytes).collect();
        let dates = vec![("seen".to_owned(), vec!["DD/MM/YYYY", "MM/DD/YYYY"])];
        assert_eq!(guessed(&wide), Guess { encoding: Some("utf-16le"), dates, ..Guess::default() });
    }

    #[test]
    fn nothing_is_guessed_where_the_schema_fits() {
        for text in ["crp,seen,y\n1.5,2,ja\n", "crp,seen,y\n", "", "\u{feff}crp,seen,y,note\n1,2,ja,Müller\n"] {
            assert!(guessed(text.as_bytes()).is_empty(), "{text}");
        }
    }
}
