//! Texts and names of a schema, as those of records are read.

use super::super::{Blanks, Column, ColumnKind, SchemaError, text};

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
        // Blanks around a name are never part of it.
        let blanks = match key.as_str() {
            "name" => Blanks::Trimmed,
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

/// That no text which says that a value is missing is one of a column's values: no cell would ever be that value.
pub(super) fn check_missing(columns: &[Column], tokens: &[String]) -> Result<(), SchemaError> {
    let missing = |text: &&String| text.is_empty() || tokens.iter().any(|token| text::is_listed(token.as_bytes(), text.as_bytes(), b'.'));
    for column in columns {
        let found = match &column.kind {
            ColumnKind::Boolean(rule) => rule.true_values.iter().chain(&rule.false_values).find(missing),
            ColumnKind::Category(rule) => rule.values.iter().find(missing),
            ColumnKind::Number(_) | ColumnKind::Ignored => None,
        };
        if let Some(text) = found {
            let problem = format!("no cell is ever `{text}`: that text says that a value is missing");
            return Err(SchemaError::Column { column: column.name.clone(), problem });
        }
    }
    Ok(())
}
