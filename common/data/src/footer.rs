//! Whether a Parquet file has encrypted columns although anyone may read its footer.
//!
//! The footer is a Thrift struct in compact form (`parquet.thrift`, FileMetaData); where columns are encrypted it has field 8, `encryption_algorithm`, also where it is not encrypted
//! itself. Fields are walked over by their types alone. What cannot be read says nothing.

use std::fs::File;
use std::os::unix::fs::FileExt;

const MAGIC: &[u8; 4] = b"PAR1";
/// `encryption_algorithm` of FileMetaData.
const ENCRYPTION: i64 = 8;
/// A longer footer is not looked at.
const LONGEST: u64 = 1 << 28;
/// Structs inside each other, at most.
const DEEPEST: u32 = 32;

/// Whether the file says so.
pub(crate) fn says_encrypted(file: &File) -> bool {
    footer(file).is_some_and(|bytes| Bytes(&bytes).has_field(ENCRYPTION).unwrap_or(false))
}

fn footer(file: &File) -> Option<Vec<u8>> {
    let end = file.metadata().ok()?.len().checked_sub(8)?;
    let mut last = [0; 8];
    file.read_exact_at(&mut last, end).ok()?;
    let (length, magic) = last.split_first_chunk::<4>()?;
    let length = u64::from(u32::from_le_bytes(*length));
    if magic != MAGIC || length > LONGEST {
        return None;
    }
    let mut bytes = vec![0; usize::try_from(length).ok()?];
    file.read_exact_at(&mut bytes, end.checked_sub(length)?).ok()?;
    Some(bytes)
}

/// What is left to walk over.
struct Bytes<'b>(&'b [u8]);

impl Bytes<'_> {
    fn byte(&mut self) -> Option<u8> {
        let (first, rest) = self.0.split_first()?;
        self.0 = rest;
        Some(*first)
    }

    fn number(&mut self) -> Option<u64> {
        let mut number = 0;
        for shift in (0..64).step_by(7) {
            let byte = self.byte()?;
            number |= u64::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return Some(number);
            }
        }
        None
    }

    fn skip(&mut self, count: u64) -> Option<()> {
        self.0 = self.0.get(usize::try_from(count).ok()?..)?;
        Some(())
    }

    /// The next field of a struct: its type and number; no type at the end.
    fn field(&mut self, before: i64) -> Option<(u8, i64)> {
        let head = self.byte()?;
        let (step, kind) = (head >> 4, head & 0x0f);
        let number = match (kind, step) {
            (0, _) => before,
            // A number of its own, zigzag.
            (_, 0) => {
                let number = self.number()?;
                i64::try_from(number >> 1).ok()? ^ -i64::try_from(number & 1).ok()?
            }
            _ => before.checked_add(step.into())?,
        };
        Some((kind, number))
    }

    fn has_field(&mut self, wanted: i64) -> Option<bool> {
        let mut number = 0;
        loop {
            let (kind, next) = self.field(number)?;
            number = next;
            match kind {
                0 => return Some(false),
                _ if number == wanted => return Some(true),
                _ => self.pass(kind, false, 0)?,
            }
        }
    }

    /// Walks over a value. In a list a truth value is a byte; in a struct it is its type.
    fn pass(&mut self, kind: u8, in_list: bool, depth: u32) -> Option<()> {
        if depth > DEEPEST {
            return None;
        }
        match kind {
            1 | 2 => {
                if in_list {
                    self.skip(1)
                } else {
                    Some(())
                }
            }
            3 => self.skip(1),
            4..=6 => self.number().map(drop),
            7 => self.skip(8),
            8 => {
                let length = self.number()?;
                self.skip(length)
            }
            9 | 10 => {
                let head = self.byte()?;
                let count = if head >> 4 == 15 { self.number()? } else { u64::from(head >> 4) };
                (0..count).try_for_each(|_| self.pass(head & 0x0f, true, depth + 1))
            }
            11 => {
                let count = self.number()?;
                if count == 0 {
                    return Some(());
                }
                let kinds = self.byte()?;
                (0..count).try_for_each(|_| {
                    self.pass(kinds >> 4, true, depth + 1)?;
                    self.pass(kinds & 0x0f, true, depth + 1)
                })
            }
            12 => {
                let mut number = 0;
                loop {
                    let (kind, next) = self.field(number)?;
                    number = next;
                    if kind == 0 {
                        return Some(());
                    }
                    self.pass(kind, false, depth + 1)?;
                }
            }
            _ => None,
        }
    }
}
