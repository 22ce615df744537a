//! What Arrow's own schema says of a Parquet file's columns and Parquet does not: which whole numbers are lengths of time.
//!
//! Programs that use Arrow put its schema into the file's metadata under the key `ARROW:schema`: in base64, a message of Arrow's streaming format, which is a table of FlatBuffers
//! (`Message.fbs`, `Schema.fbs`). Read here are the columns' names and the tags of their types, and nothing of it depends on records. What cannot be read says nothing.

use std::collections::HashSet;

/// The key in a file's metadata.
pub(crate) const KEY: &str = "ARROW:schema";

/// Tag of a duration among Arrow's types.
const DURATION: u8 = 18;
/// Places of fields in their tables: two bytes each, after the table's two sizes.
const MESSAGE_HEADER: usize = 2;
const SCHEMA_FIELDS: usize = 1;
const FIELD_NAME: usize = 0;
const FIELD_TYPE_TAG: usize = 2;

/// Names of the columns that are durations.
pub(crate) fn durations(text: &str) -> HashSet<String> {
    let Some(bytes) = base64(text) else { return HashSet::new() };
    // A mark and the message's length, or (before Arrow 0.15) the length alone.
    let start = if bytes.starts_with(&[0xff; 4]) { 8 } else { 4 };
    let buffer = Buffer(bytes.get(start..).unwrap_or_default());
    let fields = || buffer.table(buffer.follow(0)?, MESSAGE_HEADER).and_then(|schema| buffer.table(schema, SCHEMA_FIELDS));
    let Some(fields) = fields() else { return HashSet::new() };
    let count = buffer.number(fields).unwrap_or(0).min(buffer.0.len());
    let durations = (0..count).filter_map(|position| {
        let field = buffer.follow(fields + 4 + 4 * position)?;
        let tag = buffer.0.get(buffer.field(field, FIELD_TYPE_TAG)?)?;
        if *tag == DURATION { buffer.text(buffer.table(field, FIELD_NAME)?) } else { None }
    });
    durations.collect()
}

/// Bytes of FlatBuffers.
struct Buffer<'b>(&'b [u8]);

impl Buffer<'_> {
    fn number(&self, at: usize) -> Option<usize> {
        let bytes = self.0.get(at..)?.first_chunk::<4>()?;
        usize::try_from(u32::from_le_bytes(*bytes)).ok()
    }

    fn short(&self, at: usize) -> Option<usize> {
        self.0.get(at..)?.first_chunk::<2>().map(|bytes| usize::from(u16::from_le_bytes(*bytes)))
    }

    /// Where the offset that is at a place leads.
    fn follow(&self, at: usize) -> Option<usize> {
        at.checked_add(self.number(at)?).filter(|place| *place < self.0.len())
    }

    /// Where a field of a table stands, if the table has it.
    fn field(&self, table: usize, field: usize) -> Option<usize> {
        let back = i32::from_le_bytes(*self.0.get(table..)?.first_chunk::<4>()?);
        let places = usize::try_from(i64::try_from(table).ok()? - i64::from(back)).ok()?;
        let place = 4 + 2 * field;
        match (self.short(places)? >= place + 2).then(|| self.short(places + place))?? {
            0 => None,
            offset => Some(table + offset),
        }
    }

    /// What a field leads to: a table, a list or a text.
    fn table(&self, table: usize, field: usize) -> Option<usize> {
        self.follow(self.field(table, field)?)
    }

    fn text(&self, at: usize) -> Option<String> {
        let bytes = self.0.get(at + 4..)?.get(..self.number(at)?)?;
        String::from_utf8(bytes.to_vec()).ok()
    }
}

fn base64(text: &str) -> Option<Vec<u8>> {
    let mut bytes = Vec::with_capacity(text.len() / 4 * 3);
    let (mut held, mut bits) = (0_u32, 0);
    for character in text.trim_end_matches('=').bytes() {
        let value = match character {
            b'A'..=b'Z' => character - b'A',
            b'a'..=b'z' => character - b'a' + 26,
            b'0'..=b'9' => character - b'0' + 52,
            b'+' => 62,
            b'/' => 63,
            _ => return None,
        };
        held = held << 6 | u32::from(value);
        bits += 6;
        if bits >= 8 {
            bits -= 8;
            #[allow(clippy::cast_possible_truncation, reason = "the lowest byte is meant")]
            bytes.push((held >> bits) as u8);
        }
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What pyarrow writes for columns `a: duration[us]`, `stay: int64`, `b: duration[s]`.
    const WRITTEN: &str = "/////9gAAAAQAAAAAAAKAAwABgAFAAgACgAAAAABBAAMAAAACAAIAAAABAAIAAAABAAAAAMAAAB8AAAAMAAAAAQAAACg////AAABEhAAAAAUAAAABAAAAAAAAAABAAAAYgAAAJL///8AAAAAyP///wAAAQIQAAAAIAAAAAQAAAAAAAAABAAAAHN0YXkAAAAACAAMAAgABwAIAAAAAAAAAUAAAAAQABQACAAGAAcADAAAABAAEAAAAAAAARIQAAAAGAAAAAQAAAAAAAAAAQAAAGEABgAIAAYABgAAAAAAAgA=";

    #[test]
    fn columns_that_are_lengths_of_time_are_found() {
        assert_eq!(durations(WRITTEN), HashSet::from(["a".to_owned(), "b".to_owned()]));
    }

    #[test]
    fn what_is_damaged_says_nothing_and_breaks_nothing() {
        for end in 0..WRITTEN.len() {
            durations(&WRITTEN[..end]);
            let mut bytes = WRITTEN.as_bytes().to_vec();
            bytes[end] = if bytes[end] == b'/' { b'A' } else { b'/' };
            durations(std::str::from_utf8(&bytes).unwrap_or_default());
        }
        assert_eq!(durations("no base64!"), HashSet::new());
    }
}
