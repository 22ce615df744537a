//! Names and texts of a schema, which every program prints: none is longer than a line, and none holds what a terminal obeys.

use super::{SchemaError, text};
use toml::Value;

/// Bytes of a name or a text.
const MAX_BYTES: usize = 1024;

/// Refuses a text that cannot be printed as it is, without printing it. What cannot be read as TOML is left to who reads it next.
pub(super) fn check(schema: &str) -> Result<(), SchemaError> {
    let Ok(table) = schema.parse::<toml::Table>() else { return Ok(()) };
    // Where blanks around a text are part of it, they are looked at as well.
    let kept = table.get("csv").and_then(|csv| csv.get("trim")) == Some(&Value::Boolean(false));
    let of_value = |value: &Value| of_value(value, kept);
    for (key, value) in &table {
        let refused = |place: String, problem| SchemaError::Whole(format!("{place}: {problem}"));
        match value {
            Value::Array(entries) if key == "columns" => {
                for (number, entry) in (1..).zip(entries) {
                    of_value(entry).map_err(|problem| refused(format!("entry {number} of `[[columns]]`"), problem))?;
                }
            }
            // These two may be a tab.
            Value::Table(csv) if key == "csv" => {
                let texts = csv.iter().filter(|(key, _)| !["delimiter", "comment"].contains(&key.as_str()));
                texts.map(|(_, value)| value).try_for_each(of_value).map_err(|problem| refused("`[csv]`".into(), problem))?;
            }
            value => {
                of_text(key, kept).map_err(|problem| refused("a key".into(), problem))?;
                of_value(value).map_err(|problem| refused(format!("`{key}`"), problem))?;
            }
        }
    }
    Ok(())
}

fn of_value(value: &Value, kept: bool) -> Result<(), &'static str> {
    match value {
        Value::String(text) => of_text(text, kept),
        Value::Array(values) => values.iter().try_for_each(|value| of_value(value, kept)),
        Value::Table(table) => table.iter().try_for_each(|(key, value)| of_text(key, kept).and_then(|()| of_value(value, kept))),
        _ => Ok(()),
    }
}

fn of_text(written: &str, kept: bool) -> Result<(), &'static str> {
    let read = if kept { text::composed(written) } else { text::read(written) };
    if read.len() > MAX_BYTES {
        return Err("a name or a text is longer than 1024 bytes: shorten it");
    }
    if text::is_plain(&read) { Ok(()) } else { Err("a name or a text holds control characters: write it without them") }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use crate::Schema;

    const TABLE: &str = "unit_column = \"UNIT\"\n[missing]\ntokens = [\"GAP\"]\n[csv]\ndelimiter = \"\\t\"\nnames = [\"UNIT\", \"NAME\"]\n[[columns]]\n\
                         name = \"NAME\"\nkind = \"category\"\nvalues = [\"a\", \"LEVEL\"]\nshare = [0.5, 0.5]\nsource = \"SOURCE\"\n";
    const WORDS: &str =
        "kind = \"bag-of-words\"\n[bag_of_words]\nformat = \"docword\"\nvocabulary = [\"a\", \"WORD\"]\ndocument_length = 5\n";

    #[test]
    fn a_text_that_a_terminal_obeys_or_that_is_long_is_refused_with_its_place_and_not_printed() {
        Schema::parse(TABLE).unwrap();
        Schema::parse(WORDS).unwrap();
        let places = [
            (TABLE, "UNIT", "`unit_column`"),
            (TABLE, "GAP", "`missing`"),
            (TABLE, "\"NAME\"]", "`[csv]`"),
            (TABLE, "\"NAME\"\nkind", "entry 1 of `[[columns]]`"),
            (TABLE, "LEVEL", "entry 1 of `[[columns]]`"),
            (TABLE, "SOURCE", "entry 1 of `[[columns]]`"),
            (WORDS, "WORD", "`bag_of_words`"),
        ];
        let texts = ["a\\u001b[2Kb", "a\\nb", "a\\u0007b", "a\\u202eb", "a\\u2028b", "a\\u009b2Jb"].map(str::to_owned);
        for (schema, place, told) in places {
            for (text, problem) in texts.iter().map(|text| (text, "control characters")).chain([(&"x".repeat(1025), "1024 bytes")]) {
                let name = place.trim_start_matches('"').split('"').next().unwrap();
                let written = schema.replacen(place, &place.replace(name, text), 1);
                let refused = Schema::parse(&written).unwrap_err().to_string();
                assert!(refused.contains(told) && refused.contains(problem) && refused.len() < 150, "{refused:?}");
                assert!(!refused.chars().any(char::is_control), "{refused:?}");
            }
        }
        let script = Schema::parse(&TABLE.replace("LEVEL", "Göttingen, 東京, Αθήνα")).unwrap();
        assert_eq!(script.columns().len(), 1);
        let tab = TABLE.replace("GAP", "\\t");
        Schema::parse(&tab).unwrap();
        let kept = Schema::parse(&tab.replace("[csv]", "[csv]\ntrim = false")).unwrap_err().to_string();
        assert!(kept.contains("`missing`: a name or a text holds control characters"), "{kept}");
    }
}
