//! What decides whose rows are whose, and what is said of a run: descriptions of a database, ids, and statements with their transcript.

use std::collections::BTreeSet;

use dp_pvi_description::{Column, Description, Rows, Rule};
use dp_pvi_schema::Blanks;
use dp_pvi_schema::text::{self, NoId};
use dp_pvi_verifier::posterior::{FIELDS, Posterior, Source};
use serde_json::{Value, json};

use super::{Input, files};

/// Descriptions with every rule.
pub(super) fn descriptions() -> Vec<Vec<u8>> {
    let persons = "[persons]\ntable = \"p\"\nkey = \"id\"\n";
    let own = "[[columns]]\nname = \"x\"\nvalue = \"x\"\n";
    let all = "schema = \"s\"\npublic = [\"c\", \"concept_ancestor\"]\nvouched = [\"v\"]\nrows = \"e\"\n\
        [persons]\ntable = \"p\"\nkey = \"id\"\nwhere = [{ column = \"a\", in = [\"x\", 1] }, { column = \"b\", missing = false }]\n\
        [sets.d]\ndescendants_of = [7]\n\
        [sources.e]\ntable = \"e\"\nperson = \"who\"\nwhere = [{ column = \"n\", from = 1, to = 2.5 }, { column = \"m\", set = \"d\" }]\n\
        [sources.v]\ntable = \"v\"\n\
        [index]\nfirst = \"day\"\nof = \"e\"\n\
        [[columns]]\nname = \"age\"\nperson = \"born\"\ngive = \"years-before-index\"\n\
        [[columns]]\nname = \"word\"\nlast = \"w\"\nof = \"v\"\nby = \"day\"\nwhen.day = { from = -30, to = 0 }\nlookup = { table = \"c\", key = \"k\", column = \"t\" }\n\
        [[columns]]\nname = \"many\"\ncount = \"v\"\n[[columns]]\nname = \"mean\"\nmean = \"n\"\nof = \"v\"\n\
        [[keep]]\nany = \"v\"\nwhen.day = { from = -365, to = 365 }\n";
    vec![format!("{persons}{own}").into(), all.into()]
}

fn is_name(text: &str) -> bool {
    (1..=63).contains(&text.len()) && !text.contains('\0')
}

/// A description. One that is accepted names columns that are read, tables that PostgreSQL does not take for others, and no public table as one of persons.
pub(super) fn read_descriptions(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    let found = match Description::parse(text) {
        Ok(found) => found,
        Err(error) => return assert!(!error.is_empty()),
    };
    assert_eq!(Ok(&found), Description::parse(text).as_ref());
    let _ = found.own_rows_only();
    let public: BTreeSet<_> = found.public.iter().collect();
    for source in &found.sources {
        assert!(!public.contains(&source.table), "{} is public", source.table);
        assert!([&source.table.schema, &source.table.name, &source.key].into_iter().all(|name| is_name(name)), "{source:?}");
        for fetched in &source.fetched {
            assert!(is_name(&fetched.column));
            assert!(fetched.lookup.as_ref().is_none_or(|lookup| public.contains(&lookup.table) && is_name(&lookup.key)));
        }
    }
    assert_eq!(found.columns().collect::<BTreeSet<_>>().len(), found.columns.len(), "each column once");
    let read = |source: usize, column: usize| assert!(column < found.sources[source].fetched.len(), "source {source} reads no {column}");
    let within = |rows: &Rows| rows.windows.iter().for_each(|window| read(rows.source, window.column));
    found.keep.iter().for_each(|keep| within(&keep.rows));
    for rule in found.columns.iter().map(|Column { rule, .. }| rule).chain(&found.index) {
        match rule {
            Rule::Own(column) => read(found.base, *column),
            Rule::Person(column) => read(0, *column),
            Rule::Edge { rows, value, by, .. } => [value, by].into_iter().for_each(|column| read(rows.source, *column)),
            Rule::Extreme { rows, value, .. } | Rule::Sum { rows, value, .. } => read(rows.source, *value),
            Rule::Count(_) | Rule::Any(_) => {}
        }
        match rule {
            Rule::Own(_) | Rule::Person(_) => {}
            Rule::Edge { rows, .. } | Rule::Extreme { rows, .. } | Rule::Sum { rows, .. } | Rule::Count(rows) | Rule::Any(rows) => {
                within(rows)
            }
        }
    }
}

/// Ids, each after a byte for the decimal mark of its source.
pub(super) fn ids() -> Vec<Vec<u8>> {
    let texts =
        [" 12.0", "1.2E+01", "+012", "12,0", "\u{feff}A\u{308}-007\u{a0}", "1e31", "\u{ff11}\u{ff12}", "-0.0", "nan", "9007199254740993.0"];
    (0..).zip(texts).map(|(mark, text): (u8, &str)| [&[mark], text.as_bytes()].concat()).collect()
}

/// A cell that names someone. It has one form, which is its own form; ids that are equal are near each other; a number is one id however it is spelled.
pub(super) fn read_ids(bytes: &[u8]) {
    let mut input = Input(bytes);
    let decimal = if input.byte() % 4 == 3 { b',' } else { b'.' };
    for blanks in [Blanks::Trimmed, Blanks::Kept] {
        let cell = text::cell(input.0, blanks).into_owned();
        assert_eq!(text::cell(&cell, blanks), cell, "a cell is read once");
        let plain = text::plain(&cell, decimal);
        assert_eq!(text::plain(&plain, decimal), plain, "a number is read once");
    }
    if let Ok(given) = std::str::from_utf8(input.0)
        && let Ok(id) = text::id(given, decimal)
    {
        assert_eq!(text::id(&id, decimal), Ok(id.clone()), "an id is its own form");
        assert_eq!(text::near(&id), text::near(given), "an id is near what it was read from");
        assert_eq!(text::id(&format!("\u{a0}{given}\u{200b}\t"), decimal).as_ref(), Ok(&id), "blanks around it are no part of an id");
    }
    let word = input.word();
    let number = f64::from_bits(word);
    match text::id_of(number) {
        Ok(id) => {
            assert_eq!(text::id(&number.to_string(), b'.').as_deref(), Ok(id.as_str()), "{number}: a number and its text are one id");
            assert_eq!(text::id(&id, b'.').as_deref(), Ok(id.as_str()));
        }
        Err(NoId::Missing) => assert!(number.is_nan()),
        Err(NoId::Inexact) => assert!(number.abs() >= 9_007_199_254_740_992.0),
    }
    let whole = (word >> 11).to_string();
    let scaled = format!("{}.{}e+{}", &whole[..1], &whole[1..], whole.len() - 1);
    for spelled in [whole.clone(), format!("+{whole}"), format!("{whole}.0"), format!(" +{whole}.000"), scaled] {
        assert_eq!(text::id(&spelled, b'.').as_deref(), Ok(whole.as_str()), "{spelled}");
    }
}

/// Between a posterior and its transcript.
const BREAK: u8 = 0;

/// Posteriors, alone and with the transcript of a run that ended before its first round.
pub(super) fn statements() -> Vec<Vec<u8>> {
    let both = |file: Vec<u8>| {
        let task = serde_json::from_slice::<Value>(&file).expect("a document is JSON")["task_hash"].clone();
        let transcript = format!("{}\n", json!({ "task": task, "run": 1, "answered": { "a": 1 } }));
        [[&file[..], &[BREAK], transcript.as_bytes()].concat(), file]
    };
    files::documents().into_iter().flat_map(both).collect()
}

/// A `posterior.json` with the transcript of its run. Of one that is accepted, whatever is printed is bound: with another value in a derived field it is refused,
/// and with another value in any other field the same is printed.
pub(super) fn read_statements(bytes: &[u8]) {
    let mut parts = bytes.splitn(2, |byte| *byte == BREAK);
    let (file, transcript) = (parts.next().unwrap_or_default(), parts.next());
    let found = match Posterior::read(file, transcript) {
        Ok(found) => found,
        Err(error) => return assert!(!error.to_string().is_empty()),
    };
    assert_eq!(found.sites.is_some(), transcript.is_some(), "sites come from the transcript alone");
    let mut alone = Posterior::read(file, None).expect("a transcript takes nothing away");
    alone.sites.clone_from(&found.sites);
    alone.witnesses.clone_from(&found.witnesses);
    assert_eq!(alone, found, "a transcript adds the sites alone, and whose signatures are looked for");
    let Ok(value) = serde_json::from_slice::<Value>(file) else { return };
    let bound = |source: Source| source == Source::Task || source == Source::Transcript && transcript.is_some();
    for (field, source) in FIELDS {
        let field = field.rsplit_once("[].").map_or((*field, None), |(list, field)| (list, Some(field)));
        let mut other = value.clone();
        let place = match field {
            (field, None) => other.get_mut(field),
            (list, Some(field)) => other[list][0].get_mut(field),
        };
        let Some(place) = place else { continue };
        *place = json!("another");
        let other = Posterior::read(other.to_string().as_bytes(), transcript);
        match source {
            Source::Nothing => assert_eq!(other.as_ref(), Ok(&found), "{field:?} says nothing"),
            source if bound(*source) => assert!(other.is_err(), "{field:?} is another one, and the file is accepted"),
            _ => {}
        }
    }
}
