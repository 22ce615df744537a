//! The query, and whether each person's rows depend on that person's records and on public tables only.
//!
//! That is what makes a row of the answer a record: if another person's records could change it, or decide whether it is there, then a sum over rows
//! that hides one person's records would not hide that person. The text is parsed and followed from its tables to its columns
//! (module `blocks`). What breaks the promise is refused: `LIMIT`, samples, functions of time and chance, aggregates and windows over several persons,
//! persons' tables that are not joined person by person. What cannot be told from the text (a function of the site's own, say) is the operator's
//! word, given for this text alone by its hash. A view is taken as a table: what it does is the word of whoever made it.

mod blocks;
mod scope;
mod words;

use std::collections::BTreeSet;
use std::fs::File;
use std::io::Read;

use dp_pvi_privacy::Hash;
use sqlparser::dialect::PostgreSqlDialect;
use sqlparser::parser::Parser;

use self::blocks::Checker;
use crate::config::Database;
use crate::error::{ClientError, Result};

/// Longest query that is read.
const LONGEST: u64 = 1 << 15;

/// What is known of a query beside its text.
#[derive(Debug, Clone, Copy)]
pub struct Asked<'a> {
    /// The schema's `unit_column`: without one every row is a unit of its own.
    pub unit_column: Option<&'a str>,
    /// Column that holds a person's id in every table that is not public.
    pub unit_key: &'a str,
    /// Tables that hold nothing of any person.
    pub public_tables: &'a [String],
}

/// What the text of a query says about the promise.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// It is kept.
    Kept,
    /// It cannot be told, for these reasons.
    Undecided(Vec<String>),
    /// It is broken, for this reason.
    Broken(String),
}

/// A query, and what its text says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Judged {
    /// About the promise.
    pub verdict: Verdict,
    /// Persons' tables that it reads, as it writes their names. The verdict takes for granted that each has the column of `unit_key`: a name that a table in a
    /// subquery lacks would mean a column of the row outside.
    pub tables: BTreeSet<String>,
    /// Tables with the columns that are named with them. Each must have them: of a name that a table lacks PostgreSQL makes a function of its rows.
    pub columns: BTreeSet<(String, String)>,
}

/// A query that is kept to.
#[derive(Debug)]
pub(super) struct Promised {
    pub(super) text: String,
    pub(super) tables: BTreeSet<String>,
    pub(super) columns: BTreeSet<(String, String)>,
}

/// Judges a query.
///
/// # Errors
/// The parser's words: the text is no single query of PostgreSQL.
pub fn judge(text: &str, asked: &Asked<'_>) -> std::result::Result<Judged, String> {
    let mut statements = Parser::parse_sql(&PostgreSqlDialect {}, text).map_err(|e| e.to_string())?;
    let (Some(statement), true) = (statements.pop(), statements.is_empty()) else {
        return Err("it must be one SELECT, and nothing else".into());
    };
    let sqlparser::ast::Statement::Query(query) = statement else { return Err("it must be a SELECT".into()) };
    Ok(Checker::new(asked).judged(&query))
}

impl Asked<'_> {
    /// Names a text with the doubts about it and all that they follow from: a word that is given for one of them is for these doubts alone.
    fn named(&self, text: &str, doubts: &[String]) -> Hash {
        let mut public = self.public_tables.to_vec();
        public.sort();
        let lines = |list: &[String]| list.join("\n");
        let (public, doubts) = (lines(&public), lines(doubts));
        let unit = self.unit_column.map_or_else(String::new, |unit| format!("unit {unit}"));
        let parts = [text, &unit, self.unit_key, &public, &doubts].map(str::as_bytes);
        Hash::of("dp-pvi-client query v2", &parts)
    }
}

/// Reads the query of a configuration and checks it.
///
/// # Errors
/// [`ClientError::Config`]: the file. [`ClientError::Refused`]: the promise is broken, or nobody has given a word for it.
pub(super) fn read(database: &Database, unit_column: Option<&str>) -> Result<Promised> {
    let path = database.query.display();
    let wrong = |words: String| ClientError::config("database.query", format!("{path}: {words}"));
    let mut text = String::new();
    let read = File::open(&database.query).and_then(|file| file.take(LONGEST + 1).read_to_string(&mut text));
    read.map_err(|e| wrong(format!("cannot be read ({e})")))?;
    if text.len() as u64 > LONGEST {
        return Err(wrong(format!("is longer than {LONGEST} bytes: make a view of a part of it")));
    }
    let asked = Asked { unit_column, unit_key: &database.unit_key, public_tables: &database.public_tables };
    let Judged { verdict, tables, columns } =
        judge(&text, &asked).map_err(|e| wrong(format!("is no query that this program can read ({e})")))?;
    let doubts = match verdict {
        Verdict::Kept => return Ok(Promised { text, tables, columns }),
        Verdict::Broken(why) => {
            return Err(ClientError::Refused(
                format!("{path}: {why}. Each person's rows must depend on that person's records and on public tables only").into(),
            ));
        }
        Verdict::Undecided(doubts) => doubts,
    };
    let (hash, why) = (asked.named(&text, &doubts), doubts.join("; "));
    if database.vouched == Some(hash) {
        tracing::warn!("that each person's rows of {path} depend on that person alone stands on the operator's word: {why}");
        return Ok(Promised { text, tables, columns });
    }
    let other = if database.vouched.is_some() {
        " (the word that is given there is for another text, other doubts, or another unit_column, unit_key or public_tables)"
    } else {
        ""
    };
    Err(ClientError::Refused(
        format!(
            "{path}: it cannot be told from the text whether each person's rows depend on that person's records and on public tables only: {why}. If they do, \
             say so for this text and these doubts: [database] vouched = \"sha256:{hash}\"{other}"
        )
        .into(),
    ))
}

#[cfg(test)]
mod tests;
