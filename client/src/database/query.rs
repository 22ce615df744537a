//! A query of the operator's. Whether each person's rows depend on that person's records and on public tables only does not follow from its text: it is the
//! operator's word, given for this text by its hash, and the run's statement says that it rests on that word.

use std::path::Path;

use dp_pvi_names::Hash;

use super::read_text;
use crate::error::{ClientError, Result};

/// Names a query, under the unit of the schema: what a word is given for.
#[must_use]
pub fn name(text: &str, unit_column: Option<&str>) -> Hash {
    let unit = unit_column.map_or_else(String::new, |unit| format!("unit {unit}"));
    Hash::of("dp-pvi-client vouched query v1", &[text.as_bytes(), unit.as_bytes()])
}

/// Reads a query and looks for the word.
///
/// # Errors
/// [`ClientError::Config`]: the file. [`ClientError::Refused`]: no one vouches for it.
pub(super) fn read(file: &Path, vouched: Option<Hash>, unit_column: Option<&str>) -> Result<String> {
    let text = read_text("database.query", file)?;
    let (hash, place) = (name(&text, unit_column), file.display());
    if vouched == Some(hash) {
        tracing::warn!(
            "that each person's rows of {place} depend on that person's records and on public tables only is the operator's word"
        );
        return Ok(text);
    }
    let other = if vouched.is_some() { " (the word that is given there is for another text, or another unit_column)" } else { "" };
    Err(ClientError::Refused(
        format!(
            "{place}: no program can tell from a query whether each person's rows depend on that person's records and on public tables only. Describe the rows in \
             place of it ([database] records); or, if it is so, say so for this text: [database] vouched = \"sha256:{hash}\"{other}. The statement of every run \
             will say that it stands on your word"
        )
        .into(),
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_word_is_for_one_text_and_one_unit() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("cohort.sql");
        std::fs::write(&file, "SELECT 1 AS x").unwrap();
        let hash = name("SELECT 1 AS x", Some("id"));
        assert!(read(&file, Some(hash), Some("id")).is_ok());
        for (vouched, unit) in [(None, Some("id")), (Some(hash), None), (Some(hash), Some("other"))] {
            let error = read(&file, vouched, unit).unwrap_err();
            assert!(matches!(error, ClientError::Refused(_)), "{error}");
        }
        std::fs::write(&file, "SELECT 2 AS x").unwrap();
        let error = read(&file, Some(hash), Some("id")).unwrap_err().to_string();
        assert!(error.contains(&name("SELECT 2 AS x", Some("id")).to_string()) && error.contains("another text"), "{error}");
    }
}
