//! `[csv]`: how text files are cut into cells, and what their bytes mean.

use super::{Blanks, Column, CsvFormat, Encoding, OtherColumns, SchemaError, first_repeated, text};
use serde::Deserialize;

/// The keys as they are written.
#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Raw {
    delimiter: Option<String>,
    names: Option<Vec<String>>,
    trim: Option<bool>,
    comment: Option<String>,
    decimal: Option<String>,
    encoding: Option<String>,
}

impl Raw {
    /// Blanks around a text.
    pub(crate) fn blanks(&self) -> Blanks {
        if self.trim.unwrap_or(true) { Blanks::Trimmed } else { Blanks::Kept }
    }

    /// The format that the keys say.
    pub(crate) fn checked(self) -> Result<CsvFormat, SchemaError> {
        let blanks = self.blanks();
        let byte = |text: &str, key: &str| match text.as_bytes() {
            [byte] if byte.is_ascii() && !matches!(byte, b'\n' | b'\r' | b'"') => Ok(*byte),
            _ => Err(SchemaError::Whole(format!("`csv.{key}` must be one ASCII character"))),
        };
        let delimiter = self.delimiter.map_or(Ok(b','), |text| byte(&text, "delimiter"))?;
        let comment = self.comment.map(|text| byte(&text, "comment")).transpose()?;
        if comment == Some(delimiter) {
            return Err(SchemaError::Whole("`csv.comment` and `csv.delimiter` must be different characters".into()));
        }
        let decimal = match self.decimal.as_deref() {
            None | Some(".") => b'.',
            Some(",") => b',',
            Some(_) => {
                return Err(SchemaError::Whole("`csv.decimal` must be \".\" or \",\": what stands before the decimals of a number".into()));
            }
        };
        if decimal == b',' && decimal == delimiter {
            let words = "`csv.decimal` and `csv.delimiter` must be different characters: with `decimal = \",\"` write for example `delimiter = \";\"`";
            return Err(SchemaError::Whole(words.into()));
        }
        let encoding = match self.encoding.as_deref() {
            None => Encoding::Utf8,
            Some(name) => Encoding::named(name).ok_or_else(|| {
                let names = Encoding::NAMES.map(|name| format!("\"{name}\"")).join(", ");
                SchemaError::Whole(format!("`csv.encoding` must be one of {names}"))
            })?,
        };
        if self.names.as_ref().is_some_and(Vec::is_empty) {
            return Err(SchemaError::Whole(
                "`csv.names` is empty: list the file's columns, or leave it out if the files have a header line".into(),
            ));
        }
        let names = self.names.map(|names| names.iter().map(|name| text::read(name).into_owned()).collect());
        Ok(CsvFormat { delimiter, names, blanks, comment, decimal, encoding })
    }
}

/// The columns of files without a header are those that the schema describes.
pub(crate) fn check_names(
    names: &[String],
    columns: &[Column],
    unit_column: Option<&str>,
    others: OtherColumns,
) -> Result<(), SchemaError> {
    let fail = |column: &str, problem: &str| Err(SchemaError::Column { column: column.to_owned(), problem: problem.to_owned() });
    if let Some(name) = first_repeated(names.iter().map(String::as_str)) {
        return fail(name, "is listed twice in `csv.names`: every column needs its own name");
    }
    let described: Vec<&str> = columns.iter().map(|column| column.name.as_str()).chain(unit_column).collect();
    for name in &described {
        if !names.iter().any(|listed| listed == name) {
            return fail(name, "is not in `csv.names`: list the file's columns in their order");
        }
    }
    if others == OtherColumns::Reject {
        for name in names {
            if !described.contains(&name.as_str()) {
                return fail(
                    name,
                    "is in `csv.names` but not described: add it to `[[columns]]` (kind = \"ignored\") or set `other_columns = \"ignore\"`",
                );
            }
        }
    }
    Ok(())
}
