//! Bytes of other encodings as UTF-8, before lines are cut.
//!
//! A byte, or two of UTF-16, decides nothing but its own character, so whole characters in a record move no line. An odd number of bytes in a UTF-16 file
//! moves what follows: such a file is no neighbour of the whole one (the guide's limits say so). What means nothing becomes a byte
//! that UTF-8 has not: the line that holds it is broken, and no other.

use dp_pvi_schema::Encoding;
use std::io::{self, Read};

/// Stands for what means nothing: no UTF-8 text holds it.
const DAMAGE: u8 = 0xff;

/// Bytes that are decoded at once.
const BLOCK: usize = 1 << 13;

/// Whether a decoded line held bytes that mean nothing. UTF-8 files are not decoded: their cells are looked at where they are read.
pub(crate) fn has_damage(line: &[u8], encoding: Encoding) -> bool {
    encoding != Encoding::Utf8 && line.contains(&DAMAGE)
}

/// A reader's bytes as UTF-8.
pub(crate) struct Decoded<R> {
    reader: R,
    mode: Mode,
    block: Box<[u8]>,
    text: Vec<u8>,
    given: usize,
}

enum Mode {
    /// UTF-8 is passed on.
    Same,
    Single {
        /// Per byte.
        characters: Box<[Option<char>; 256]>,
        start: bool,
    },
    Wide(Wide),
}

/// UTF-16, unit by unit.
struct Wide {
    little: bool,
    /// The first byte of a unit.
    byte: Option<u8>,
    /// The first unit of a pair.
    high: Option<u16>,
    start: bool,
}

impl<R: Read> Decoded<R> {
    pub(crate) fn new(reader: R, encoding: Encoding) -> Self {
        let wide = |little| Mode::Wide(Wide { little, byte: None, high: None, start: true });
        let mode = match encoding {
            Encoding::Utf8 => Mode::Same,
            Encoding::Utf16Le => wide(true),
            Encoding::Utf16Be => wide(false),
            Encoding::Single(name) => Mode::Single { characters: Box::new(characters(name)), start: true },
        };
        let block = if matches!(mode, Mode::Same) { Box::default() } else { vec![0; BLOCK].into_boxed_slice() };
        Self { reader, mode, block, text: Vec::new(), given: 0 }
    }

    /// Decodes the next block; `false` at the end.
    fn next_block(&mut self) -> io::Result<bool> {
        self.text.clear();
        self.given = 0;
        // A whole block, so that what is decoded does not depend on how many bytes come at once.
        let mut read = 0;
        while read < self.block.len() {
            match self.reader.read(&mut self.block[read..]) {
                Ok(0) => break,
                Ok(more) => read += more,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        match &mut self.mode {
            Mode::Same => {}
            Mode::Single { characters, start } => {
                // The mark of UTF-8: the file is not of one byte a character.
                if std::mem::take(start) && self.block[..read].starts_with(b"\xef\xbb\xbf") {
                    self.text.push(DAMAGE);
                }
                self.block[..read].iter().for_each(|byte| push(&mut self.text, characters[usize::from(*byte)]));
            }
            Mode::Wide(wide) if read == 0 => wide.end(&mut self.text),
            Mode::Wide(wide) => self.block[..read].iter().for_each(|byte| wide.byte(*byte, &mut self.text)),
        }
        Ok(read > 0 || !self.text.is_empty())
    }
}

impl<R: Read> Read for Decoded<R> {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        if matches!(self.mode, Mode::Same) {
            return self.reader.read(out);
        }
        // Half a unit of UTF-16 gives no text yet.
        while self.given == self.text.len() {
            if !self.next_block()? {
                return Ok(0);
            }
        }
        let length = out.len().min(self.text.len() - self.given);
        out[..length].copy_from_slice(&self.text[self.given..self.given + length]);
        self.given += length;
        Ok(length)
    }
}

impl Wide {
    fn byte(&mut self, byte: u8, text: &mut Vec<u8>) {
        match self.byte.take() {
            None => self.byte = Some(byte),
            Some(first) => {
                let bytes = [first, byte];
                let unit = if self.little { u16::from_le_bytes(bytes) } else { u16::from_be_bytes(bytes) };
                self.unit(unit, text);
            }
        }
    }

    fn unit(&mut self, unit: u16, text: &mut Vec<u8>) {
        if std::mem::take(&mut self.start) && unit == 0xfeff {
            return;
        }
        match (self.high.take(), unit) {
            (Some(high), 0xdc00..=0xdfff) => push(text, char::decode_utf16([high, unit]).next().and_then(Result::ok)),
            (high, unit) => {
                if high.is_some() {
                    text.push(DAMAGE);
                }
                match unit {
                    0xd800..=0xdbff => self.high = Some(unit),
                    // The mark of the other byte order.
                    0xfffe => text.push(DAMAGE),
                    unit => push(text, char::from_u32(unit.into())),
                }
            }
        }
    }

    /// Half a character at the end of the file means nothing.
    fn end(&mut self, text: &mut Vec<u8>) {
        if self.byte.take().is_some() | self.high.take().is_some() {
            text.push(DAMAGE);
        }
    }
}

fn push(text: &mut Vec<u8>, character: Option<char>) {
    match character {
        Some(character) => text.extend_from_slice(character.encode_utf8(&mut [0; 4]).as_bytes()),
        None => text.push(DAMAGE),
    }
}

/// What the bytes of an encoding mean. Control characters above 127 are in no file that people write: such bytes are of another encoding.
fn characters(name: &str) -> [Option<char>; 256] {
    let encoding = encoding_rs::Encoding::for_label(name.as_bytes()).filter(|encoding| encoding.is_single_byte());
    // The library takes ISO 8859-1 and -9 for the encodings of Windows that extend them.
    let is_iso = name.starts_with("iso-8859-");
    std::array::from_fn(|byte| {
        let byte = u8::try_from(byte).ok()?;
        if is_iso && (0x80..0xa0).contains(&byte) {
            return None;
        }
        let text = encoding?.decode_without_bom_handling_and_without_replacement(std::slice::from_ref(&byte))?.chars().next();
        text.filter(|character| !('\u{80}'..'\u{a0}').contains(character))
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    /// Gives one byte at a time: every boundary falls inside something.
    struct Slow<'a>(&'a [u8]);

    impl Read for Slow<'_> {
        fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
            let length = out.len().min(1);
            self.0.read(&mut out[..length])
        }
    }

    fn decoded(bytes: &[u8], name: &str) -> Vec<u8> {
        let (mut slow, mut fast) = (Vec::new(), Vec::new());
        Decoded::new(Slow(bytes), Encoding::named(name).unwrap()).read_to_end(&mut slow).unwrap();
        Decoded::new(bytes, Encoding::named(name).unwrap()).read_to_end(&mut fast).unwrap();
        assert_eq!(slow, fast);
        fast
    }

    #[test]
    fn every_encoding_that_a_schema_can_name_is_known() {
        for name in Encoding::NAMES {
            let bytes: Vec<u8> = match name {
                "utf-16le" => "a;1\n".encode_utf16().flat_map(u16::to_le_bytes).collect(),
                "utf-16be" => "a;1\n".encode_utf16().flat_map(u16::to_be_bytes).collect(),
                _ => b"a;1\n".to_vec(),
            };
            assert_eq!(decoded(&bytes, name), b"a;1\n", "{name}");
        }
    }

    #[test]
    fn characters_are_those_of_the_encoding() {
        assert_eq!(decoded(b"\x80 M\xfcnchen", "windows-1252"), "€ München".as_bytes());
        assert_eq!(decoded(b"M\xfcnchen", "iso-8859-1"), "München".as_bytes());
        assert_eq!(decoded(b"\xa4", "iso-8859-15"), "€".as_bytes());
        assert_eq!(decoded(b"\xb3\xf3d\xbc", "iso-8859-2"), "łódź".as_bytes());
        for text in ["\u{feff}h\n𝄞ü\n", "h\n𝄞ü\n"] {
            let units = || text.encode_utf16();
            assert_eq!(decoded(&units().flat_map(u16::to_le_bytes).collect::<Vec<_>>(), "utf-16le"), "h\n𝄞ü\n".as_bytes());
            assert_eq!(decoded(&units().flat_map(u16::to_be_bytes).collect::<Vec<_>>(), "utf-16be"), "h\n𝄞ü\n".as_bytes());
        }
    }

    #[test]
    fn what_means_nothing_breaks_its_own_line_only() {
        assert_eq!(decoded(b"a\x81\nb", "windows-1252"), b"a\xff\nb");
        assert_eq!(decoded(b"a\x93\nb", "iso-8859-1"), b"a\xff\nb");
        let le = |units: &[u16]| units.iter().flat_map(|unit| unit.to_le_bytes()).collect::<Vec<u8>>();
        assert_eq!(decoded(&le(&[0xd834, 10, 98]), "utf-16le"), b"\xff\nb");
        assert_eq!(decoded(&le(&[0xdd1e, 10, 98]), "utf-16le"), b"\xff\nb");
        assert_eq!(decoded(b"a\0\n", "utf-16le"), b"a\xff");
        assert_eq!(decoded(&le(&[0xfffe]), "utf-16le"), b"\xff");
        assert!(decoded(b"\xef\xbb\xbfh", "windows-1252").starts_with(b"\xff"));
    }
}
