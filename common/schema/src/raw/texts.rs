//! Texts and names of a schema, as those of records are read.

use super::super::{Blanks, text};

/// Every text and every name in a value.
pub(super) fn read_texts(value: &mut toml::Value, blanks: Blanks) -> Result<(), String> {
    match value {
        toml::Value::String(text) => *text = read_text(text, blanks),
        toml::Value::Array(values) => values.iter_mut().try_for_each(|value| read_texts(value, blanks))?,
        toml::Value::Table(table) => read_table(table, blanks)?,
        _ => {}
    }
    Ok(())
}

/// The same of a table.
pub(super) fn read_table(table: &mut toml::Table, blanks: Blanks) -> Result<(), String> {
    for (key, mut value) in std::mem::take(table) {
        // A name is never part of the blanks around it; the suffix of a text may begin with one.
        let blanks = match key.as_str() {
            "name" | "column" => Blanks::Trimmed,
            "strip_suffix" => Blanks::Kept,
            _ => blanks,
        };
        read_texts(&mut value, blanks)?;
        let key = text::read(&key).into_owned();
        if table.contains_key(&key) {
            return Err(format!("`{key}` is written twice, with other blanks or in two Unicode forms: write it once"));
        }
        table.insert(key, value);
    }
    Ok(())
}

/// One text.
pub(super) fn read_text(text: &str, blanks: Blanks) -> String {
    match blanks {
        Blanks::Trimmed => text::read(text),
        Blanks::Kept => text::composed(text),
    }
    .into_owned()
}
