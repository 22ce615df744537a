//! Texts and names of a schema, as those of records are read.

use super::super::{Blanks, Column, ColumnKind, Label, LabelKind, SchemaError, text};

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

/// That no text which says that a value is missing is one of a column's values: no cell would ever be that value.
pub(super) fn check_missing(columns: &[Column], label: &Label, tokens: &[String]) -> Result<(), SchemaError> {
    let of_column = |column: &Column| match &column.kind {
        ColumnKind::Boolean(rule) => [&rule.true_values[..], &rule.false_values].concat(),
        ColumnKind::Category(rule) => rule.values.clone(),
        _ => Vec::new(),
    };
    let of_label = match &label.kind {
        LabelKind::Binary { positive, negative, .. } => [&positive[..], negative.as_deref().unwrap_or_default()].concat(),
        LabelKind::Classes { values } => values.clone(),
        LabelKind::Survival(rule) => [&rule.event.true_values[..], &rule.event.false_values].concat(),
        LabelKind::Number(_) | LabelKind::Absent => Vec::new(),
    };
    let all = columns.iter().map(|column| (&column.name, of_column(column))).chain([(&label.column, of_label)]);
    for (column, texts) in all {
        let missing = |text: &&String| text.is_empty() || tokens.iter().any(|token| text::is_listed(token.as_bytes(), text.as_bytes()));
        if let Some(text) = texts.iter().find(missing) {
            let problem = format!("no cell is ever `{text}`: that text says that a value is missing");
            return Err(SchemaError::Column { column: column.clone(), problem });
        }
    }
    Ok(())
}
