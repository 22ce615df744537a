//! The file, and its check.

use std::collections::{BTreeMap, BTreeSet};

use dp_pvi_protocol::origin::RELATIONS;
use serde::Deserialize;
use toml::Value;

use super::{
    Column, Description, FARTHEST, Fetched, Filter, Give, Keep, LONGEST_NAME, Lookup, MOST, Need, Rows, Rule, Source, Table, Test, Window,
};

/// Name of the vocabulary table of the OMOP common data model that says which concept lies under which.
const ANCESTORS: &str = "concept_ancestor";

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Raw {
    #[serde(default = "default_schema")]
    schema: String,
    #[serde(default)]
    public: Vec<String>,
    #[serde(default)]
    vouched: Vec<String>,
    rows: Option<String>,
    persons: RawPersons,
    #[serde(default)]
    sets: BTreeMap<String, RawSet>,
    #[serde(default)]
    sources: BTreeMap<String, RawSource>,
    index: Option<RawIndex>,
    columns: Vec<RawColumn>,
    #[serde(default)]
    keep: Vec<RawKeep>,
}

fn default_schema() -> String {
    "public".into()
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawPersons {
    table: String,
    key: String,
    #[serde(default, rename = "where")]
    filters: Vec<RawFilter>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawSource {
    table: String,
    /// Default: the name of the persons' key.
    person: Option<String>,
    #[serde(default, rename = "where")]
    filters: Vec<RawFilter>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawSet {
    table: Option<String>,
    column: Option<String>,
    #[serde(default, rename = "where")]
    filters: Vec<RawFilter>,
    descendants_of: Option<Vec<i64>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawFilter {
    column: String,
    #[serde(rename = "in")]
    any_of: Option<Vec<Value>>,
    set: Option<String>,
    from: Option<Value>,
    to: Option<Value>,
    missing: Option<bool>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawIndex {
    value: Option<String>,
    person: Option<String>,
    first: Option<String>,
    last: Option<String>,
    of: Option<String>,
    by: Option<String>,
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct RawColumn {
    name: String,
    value: Option<String>,
    person: Option<String>,
    first: Option<String>,
    last: Option<String>,
    min: Option<String>,
    max: Option<String>,
    sum: Option<String>,
    mean: Option<String>,
    count: Option<String>,
    any: Option<String>,
    of: Option<String>,
    by: Option<String>,
    #[serde(default)]
    when: BTreeMap<String, RawWindow>,
    lookup: Option<RawLookup>,
    #[serde(default)]
    give: Give,
    texts: Option<BTreeMap<String, String>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawLookup {
    table: String,
    key: String,
    column: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawWindow {
    from: Option<i32>,
    to: Option<i32>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawKeep {
    any: Option<String>,
    none: Option<String>,
    #[serde(default)]
    when: BTreeMap<String, RawWindow>,
}

type Result<T> = std::result::Result<T, String>;

/// Reads and checks a description.
pub(super) fn parse(text: &str) -> Result<Description> {
    // The parser's own words quote the line, and a description holds no record.
    let raw: Raw = toml::from_str(text).map_err(|e| e.to_string())?;
    Checker::new(&raw)?.check(raw, text.chars().all(|letter| u32::from(letter) < 256 && letter != '\\'))
}

struct Checker {
    schema: String,
    key: String,
    public: BTreeSet<Table>,
    vouched: BTreeSet<Table>,
    sets: BTreeMap<String, Test>,
    /// Position of each source by its name.
    named: BTreeMap<String, usize>,
    sources: Vec<Source>,
    base: usize,
    index: Option<Rule>,
}

impl Checker {
    fn new(raw: &Raw) -> Result<Self> {
        let mut checker = Self {
            schema: identifier("schema", &raw.schema)?,
            key: identifier("persons.key", &raw.persons.key)?,
            public: BTreeSet::new(),
            vouched: BTreeSet::new(),
            sets: BTreeMap::new(),
            named: BTreeMap::new(),
            sources: Vec::new(),
            base: 0,
            index: None,
        };
        checker.public = raw.public.iter().map(|name| checker.table("public", name)).collect::<Result<_>>()?;
        checker.vouched = raw.vouched.iter().map(|name| checker.table("vouched", name)).collect::<Result<_>>()?;
        if raw.public.len() + raw.vouched.len() > RELATIONS {
            return Err(format!("`public` and `vouched` name more than {RELATIONS} relations, and the statement lists them all"));
        }
        if let Some(both) = checker.public.intersection(&checker.vouched).next() {
            return Err(format!("{both} stands in `public` and in `vouched`: a table holds nothing of any person, or rows of persons"));
        }
        Ok(checker)
    }

    fn check(mut self, raw: Raw, latin: bool) -> Result<Description> {
        if raw.sources.len() >= MOST || raw.columns.len() > MOST || raw.keep.len() > MOST {
            return Err(format!("it has more than {MOST} sources, columns or conditions"));
        }
        for (name, set) in raw.sets {
            let set = self.set(&name, set)?;
            self.sets.insert(name, set);
        }
        let persons = self.source("persons", &raw.persons.table, raw.persons.key, raw.persons.filters)?;
        self.sources.push(persons);
        for (name, source) in raw.sources {
            let source =
                self.source(&format!("sources.{name}"), &source.table, source.person.unwrap_or_else(|| self.key.clone()), source.filters)?;
            // A row with two persons' keys would be a record of two units.
            if let Some(other) = self.sources.iter().find(|other| other.table == source.table && other.key != source.key) {
                return Err(format!(
                    "sources.{name}: {} is read by `{}` already, and a row that is one person's by one column and another's by a second one is a record of \
                     two persons, whom no budget protects together: name one column of each table",
                    source.table, other.key
                ));
            }
            self.named.insert(name, self.sources.len());
            self.sources.push(source);
        }
        if let Some(rows) = &raw.rows {
            self.base = self.find("rows", rows)?;
        }
        if let Some(index) = raw.index {
            self.index = Some(self.index(index)?);
        }
        if raw.columns.is_empty() {
            return Err("it has no columns: add [[columns]] with a `name` and a rule".into());
        }
        let mut names = BTreeSet::new();
        let mut columns = Vec::with_capacity(raw.columns.len());
        for column in raw.columns {
            if column.name.is_empty() || !names.insert(column.name.clone()) {
                return Err(format!("there are two columns `{}`, or one without a name: name each once", column.name));
            }
            columns.push(self.column(column)?);
        }
        let keep = raw.keep.into_iter().map(|keep| self.keep(keep)).collect::<Result<_>>()?;
        let used = |table: &Table| self.sources.iter().any(|source| source.table == *table);
        if let Some(idle) = self.vouched.iter().find(|table| !used(table)) {
            return Err(format!("vouched: no source reads {idle}: leave it out"));
        }
        Ok(Description {
            sources: self.sources,
            base: self.base,
            index: self.index,
            columns,
            keep,
            public: self.public.into_iter().collect(),
            vouched: self.vouched.into_iter().collect(),
            latin,
        })
    }

    /// `table` or `schema.table`.
    fn table(&self, place: &str, text: &str) -> Result<Table> {
        let (schema, name) = text.split_once('.').unwrap_or((&self.schema, text));
        if name.contains('.') {
            return Err(format!("{place}: `{text}` is not TABLE or SCHEMA.TABLE"));
        }
        if schema.starts_with("pg_") || schema == "information_schema" {
            return Err(format!("{place}: {schema} is a schema of the database's own, whose rows are about all others"));
        }
        Ok(Table { schema: identifier(place, schema)?, name: identifier(place, name)? })
    }

    fn public(&self, place: &str, text: &str) -> Result<Table> {
        let table = self.table(place, text)?;
        if self.public.contains(&table) {
            Ok(table)
        } else {
            Err(format!("{place}: {table} must hold nothing of any person: if so, name it in `public`"))
        }
    }

    fn source(&self, place: &str, table: &str, key: String, filters: Vec<RawFilter>) -> Result<Source> {
        let table = self.table(place, table)?;
        if self.public.contains(&table) {
            return Err(format!(
                "{place}: {table} stands in `public`, so it holds nothing of any person, and cannot be a source of persons' rows"
            ));
        }
        let filters = filters.into_iter().map(|filter| self.filter(place, filter)).collect::<Result<_>>()?;
        Ok(Source { table, key: identifier(place, &key)?, filters, fetched: Vec::new() })
    }

    fn set(&self, name: &str, set: RawSet) -> Result<Test> {
        let place = format!("sets.{name}");
        match (set.descendants_of, set.table, set.column) {
            (Some(concepts), table, None) if set.filters.is_empty() && !concepts.is_empty() => Ok(Test::Among {
                table: self.public(&place, table.as_deref().unwrap_or(ANCESTORS))?,
                column: "descendant_concept_id".into(),
                filters: vec![Filter {
                    column: "ancestor_concept_id".into(),
                    test: Test::In(concepts.iter().map(ToString::to_string).collect()),
                }],
            }),
            (None, Some(table), Some(column)) => Ok(Test::Among {
                table: self.public(&place, &table)?,
                column: identifier(&place, &column)?,
                filters: set.filters.into_iter().map(|filter| self.filter(&place, filter)).collect::<Result<_>>()?,
            }),
            _ => Err(format!("{place}: write descendants_of = [concepts], or the table and column of a public table, with `where`")),
        }
    }

    fn filter(&self, place: &str, filter: RawFilter) -> Result<Filter> {
        let column = identifier(place, &filter.column)?;
        let place = format!("{place}: the filter of `{column}`");
        let test = match (filter.any_of, filter.set, filter.from, filter.to, filter.missing) {
            (Some(values), None, None, None, None) if !values.is_empty() && values.len() <= 1 << 14 => {
                Test::In(values.iter().map(|value| constant(&place, value)).collect::<Result<_>>()?)
            }
            (None, Some(set), None, None, None) => {
                self.sets.get(&set).cloned().ok_or_else(|| format!("{place}: there is no [sets.{set}] (a set cannot use another)"))?
            }
            (None, None, None, None, Some(missing)) => Test::Missing(missing),
            (None, None, from, to, None) if from.is_some() || to.is_some() => Test::Between {
                from: from.map(|value| constant(&place, &value)).transpose()?,
                to: to.map(|value| constant(&place, &value)).transpose()?,
            },
            _ => {
                return Err(format!(
                    "{place} is not one of: in = […], set = \"NAME\", from = … and to = … (or one of them), missing = true or false"
                ));
            }
        };
        Ok(Filter { column, test })
    }

    fn find(&self, place: &str, name: &str) -> Result<usize> {
        self.named.get(name).copied().ok_or_else(|| format!("{place}: there is no [sources.{name}]"))
    }

    /// The position of a column among those that are read of a source.
    fn fetch(&mut self, place: &str, source: usize, column: &str, lookup: Option<Lookup>, need: Option<Need>) -> Result<usize> {
        let column = identifier(place, column)?;
        let fetched = &mut self.sources[source].fetched;
        let place = match fetched.iter().position(|other| other.column == column && other.lookup == lookup) {
            Some(place) => place,
            None => {
                fetched.push(Fetched { column, lookup, need: Vec::new() });
                fetched.len() - 1
            }
        };
        let needs = &mut fetched[place].need;
        needs.extend(need.filter(|need| !needs.contains(need)));
        Ok(place)
    }

    fn index(&mut self, index: RawIndex) -> Result<Rule> {
        let raw = RawColumn {
            name: "index".into(),
            value: index.value,
            person: index.person,
            first: index.first,
            last: index.last,
            of: index.of,
            by: index.by,
            ..RawColumn::default()
        };
        self.rule("index", &raw, Some(Need::Date), None)
    }

    fn column(&mut self, raw: RawColumn) -> Result<Column> {
        let place = format!("column `{}`", raw.name);
        let lookup = match &raw.lookup {
            None => None,
            Some(lookup) => Some(Lookup {
                table: self.public(&place, &lookup.table)?,
                key: identifier(&place, &lookup.key)?,
                column: identifier(&place, &lookup.column)?,
            }),
        };
        let need = match raw.give {
            Give::Value => None,
            Give::DaysAfterIndex => Some(Need::Date),
            Give::YearsBeforeIndex => Some(Need::DateOrYear),
        };
        if need.is_some() && self.index.is_none() {
            return Err(format!("{place}: `give` measures from the index date, and there is no [index]"));
        }
        let rule = self.rule(&place, &raw, need, lookup)?;
        if need.is_some() && matches!(rule, Rule::Sum { .. } | Rule::Count(_) | Rule::Any(_)) {
            return Err(format!("{place}: `give` needs a date: use it with value, person, first, last, min or max"));
        }
        Ok(Column { name: raw.name, rule, give: raw.give, texts: raw.texts })
    }

    fn rule(&mut self, place: &str, raw: &RawColumn, need: Option<Need>, lookup: Option<Lookup>) -> Result<Rule> {
        let rules = [&raw.value, &raw.person, &raw.first, &raw.last, &raw.min, &raw.max, &raw.sum, &raw.mean, &raw.count, &raw.any];
        if rules.iter().filter(|rule| rule.is_some()).count() != 1 {
            return Err(format!("{place}: write one of value, person, first, last, min, max, sum, mean, count, any"));
        }
        let alone = raw.of.is_none() && raw.by.is_none() && raw.when.is_empty();
        if let Some(column) = raw.value.as_ref().or(raw.person.as_ref()) {
            if !alone {
                return Err(format!(
                    "{place}: `of`, `by` and `when` choose among the rows of a source, and this is the value of one row: leave them out"
                ));
            }
            let source = if raw.value.is_some() { self.base } else { 0 };
            let column = self.fetch(place, source, column, lookup, need)?;
            return Ok(if raw.value.is_some() { Rule::Own(column) } else { Rule::Person(column) });
        }
        if let Some(source) = raw.count.as_ref().or(raw.any.as_ref()) {
            if raw.of.is_some() || raw.by.is_some() || lookup.is_some() {
                return Err(format!("{place}: `count` and `any` name a source, and need no `of`, `by` or `lookup`"));
            }
            let source = self.find(place, source)?;
            let rows = self.rows(place, source, &raw.when)?;
            return Ok(if raw.count.is_some() { Rule::Count(rows) } else { Rule::Any(rows) });
        }
        let Some(of) = &raw.of else { return Err(format!("{place}: `of` is missing: the source whose rows are meant")) };
        let source = self.find(place, of)?;
        let rows = self.rows(place, source, &raw.when)?;
        let edge = raw.first.as_ref().or(raw.last.as_ref());
        if raw.by.is_some() && edge.is_none() || lookup.is_some() && edge.is_none() {
            return Err(format!("{place}: `by` and `lookup` go with `first` and `last`"));
        }
        if let Some(column) = edge {
            let value = self.fetch(place, source, column, lookup, need)?;
            let by = self.fetch(place, source, raw.by.as_ref().unwrap_or(column), None, None)?;
            return Ok(Rule::Edge { rows, value, by, last: raw.last.is_some() });
        }
        if let Some(column) = raw.sum.as_ref().or(raw.mean.as_ref()) {
            let value = self.fetch(place, source, column, None, Some(Need::Number))?;
            return Ok(Rule::Sum { rows, value, mean: raw.mean.is_some() });
        }
        let column = raw.min.as_ref().or(raw.max.as_ref()).ok_or_else(|| format!("{place}: there is no rule"))?;
        let value = self.fetch(place, source, column, None, need.or(Some(Need::Ordered)))?;
        Ok(Rule::Extreme { rows, value, greatest: raw.max.is_some() })
    }

    fn rows(&mut self, place: &str, source: usize, when: &BTreeMap<String, RawWindow>) -> Result<Rows> {
        let mut windows = Vec::with_capacity(when.len());
        for (column, window) in when {
            if self.index.is_none() {
                return Err(format!("{place}: `when` measures from the index date, and there is no [index]"));
            }
            let far = [window.from, window.to].into_iter().flatten().any(|days| days.unsigned_abs() > FARTHEST);
            if far || (window.from.is_none() && window.to.is_none()) {
                return Err(format!(
                    "{place}: the window of `{column}` is not from = DAYS and to = DAYS (or one of them), of at most {FARTHEST} days"
                ));
            }
            let column = self.fetch(place, source, column, None, Some(Need::Date))?;
            windows.push(Window { column, from: window.from, to: window.to });
        }
        Ok(Rows { source, windows })
    }

    fn keep(&mut self, keep: RawKeep) -> Result<Keep> {
        let (any, source) = match (keep.any, keep.none) {
            (Some(source), None) => (true, source),
            (None, Some(source)) => (false, source),
            _ => return Err("keep: write any = \"SOURCE\" (there must be a row) or none = \"SOURCE\" (there must not)".into()),
        };
        let source = self.find("keep", &source)?;
        Ok(Keep { rows: self.rows("keep", source, &keep.when)?, any })
    }
}

/// A name that PostgreSQL takes whole.
fn identifier(place: &str, name: &str) -> Result<String> {
    if name.is_empty() || name.len() > LONGEST_NAME || name.contains('\0') {
        return Err(format!("{place}: a name of a schema, table or column has 1 to {LONGEST_NAME} bytes (PostgreSQL cuts longer ones)"));
    }
    Ok(name.to_owned())
}

fn constant(place: &str, value: &Value) -> Result<String> {
    match value {
        Value::String(text) if !text.contains('\0') => Ok(text.clone()),
        Value::Integer(number) => Ok(number.to_string()),
        Value::Float(number) if number.is_finite() => {
            let plain = number.to_string();
            // Hundreds of zeros are an exponent.
            Ok(if plain.len() > 64 { format!("{number:e}") } else { plain })
        }
        Value::Boolean(truth) => Ok(truth.to_string()),
        Value::Datetime(date) if date.offset.is_none() && date.date.is_some() => Ok(date.to_string().replace('T', " ")),
        _ => Err(format!("{place}: a constant is a text, a finite number, true, false, or a date or time without zone")),
    }
}
