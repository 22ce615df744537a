//! What can be tried of a query that the operator vouches for: the same rows twice, with tables read in another order, and with one person less.
//!
//! The tables that the query names without a schema are hidden behind temporary views of the same names, in a transaction that ends without a trace. A trial
//! that finds nothing proves nothing; one that finds something shows that the word is wrong.

use std::collections::hash_map::DefaultHasher;
use std::collections::{BTreeSet, HashMap};
use std::hash::{Hash, Hasher};

use super::connection::{Access, BATCH, Connection};
use super::{Origin, block_on};
use crate::config::Database;
use crate::error::{ClientError, Result};
use dp_pvi_description::Table;
use dp_pvi_description::select::{literal, name};

/// What was found.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Found {
    /// Against the word.
    pub(crate) against: Vec<String>,
    /// What could not be tried, and why.
    pub(crate) untried: Vec<String>,
    /// What was tried.
    pub(crate) tried: Vec<String>,
}

/// In the place of a person's hash: rows without an id.
const NOBODY: u64 = 0;

/// Rows of a person, as the sum of their hashes, so that their order does not count; and how many there are.
type ByPerson = HashMap<u64, (u64, u64)>;

/// Tries the query of a configuration; nothing for a description.
///
/// # Errors
/// As [`super::fetch`].
pub(crate) fn of(database: &Database, unit_column: Option<&str>) -> Result<Option<Found>> {
    match Origin::read(database, unit_column)? {
        Origin::Description(_) => Ok(None),
        Origin::Query(query) => block_on(async {
            let connection = Connection::open(database, Access::Trial).await?;
            let found = Trial { connection: &connection, query: &query, unit_column }.run().await;
            // Whatever happened, nothing stays.
            connection.execute("ROLLBACK").await?;
            found.map(Some)
        }),
    }
}

struct Trial<'a> {
    connection: &'a Connection,
    query: &'a str,
    unit_column: Option<&'a str>,
}

impl Trial<'_> {
    async fn run(&self) -> Result<Found> {
        let mut found = Found::default();
        let (first, persons) = self.rows().await?;
        found.compare("asked twice in a row", &first, &self.rows().await?.0, &[]);
        let mut tables = Vec::new();
        for table in self.relations().await? {
            // With an empty table in its place, the plan reads it only where its name does not lead to that one.
            match self.hidden(&table).await {
                Ok(()) if self.relations().await?.contains(&table) => {
                    found
                        .untried
                        .push(format!("{table} is read through a view or by a name with its schema, so nothing can be put in its place"));
                }
                Ok(()) => tables.push(table),
                Err(error) => {
                    self.undo().await?;
                    found.untried.push(format!(
                        "nothing can be put in the place of {table} ({error}): GRANT TEMPORARY on the database, for this trial"
                    ));
                    continue;
                }
            }
            self.undo().await?;
        }
        for table in &tables {
            self.connection.execute("SAVEPOINT trial").await?;
            self.view(table, "SELECT * FROM ", " ORDER BY ctid DESC").await?;
            found.compare(&format!("with the rows of {table} in another order"), &first, &self.rows().await?.0, &[]);
            self.undo().await?;
        }
        self.without_persons(&tables, &first, &persons, &mut found).await?;
        Ok(found)
    }

    /// One person less: with all of that person's rows, and with rows that stay and lose the person's id.
    async fn without_persons(&self, tables: &[Table], first: &ByPerson, persons: &[String], found: &mut Found) -> Result<()> {
        let Some(key) = self.unit_column else {
            found.untried.push("one record less: the schema has no unit_column by which a record could be told".to_owned());
            return Ok(());
        };
        let mut keyed = Vec::new();
        for table in tables {
            let columns = self.columns(table).await?;
            if columns.iter().any(|column| column == key) {
                keyed.push((table, columns));
            } else {
                found.untried.push(format!("one person less in {table}: it has no column `{key}`"));
            }
        }
        for person in persons {
            for (words, keep) in [("one person less", false), ("one person less, whose other rows lose their id", true)] {
                self.connection.execute("SAVEPOINT trial").await?;
                for (table, columns) in &keyed {
                    let is = format!("{}::text = {}", name(key), literal(person));
                    let one = |column: &String| match column == key {
                        true => format!("CASE WHEN {is} THEN NULL ELSE {0} END AS {0}", name(key)),
                        false => name(column),
                    };
                    let (select, filter) = if keep && !self.unique(table, key).await? {
                        (columns.iter().map(one).collect::<Vec<_>>().join(", "), String::new())
                    } else {
                        ("*".to_owned(), format!(" WHERE ({is}) IS NOT TRUE"))
                    };
                    self.view(table, &format!("SELECT {select} FROM "), &filter).await?;
                }
                let (second, _) = self.rows().await?;
                if second.contains_key(&hash(person)) {
                    let what = format!("{words}: the query gives that person's rows also without them");
                    found.untried.extend((!found.untried.contains(&what)).then_some(what));
                } else {
                    found.compare(words, first, &second, &[hash(person), NOBODY]);
                }
                self.undo().await?;
            }
        }
        Ok(())
    }

    /// The rows by person, and three persons: the first, one in the middle, the last.
    async fn rows(&self) -> Result<(ByPerson, Vec<String>)> {
        let statement = self.connection.prepare(self.query).await?;
        let place = self.unit_column.and_then(|unit| statement.columns().iter().position(|column| column.name() == unit));
        self.connection.execute(&format!("DECLARE trial NO SCROLL CURSOR FOR {}", self.query)).await?;
        let (mut units, mut persons) = (ByPerson::new(), Vec::new());
        let mut seen: u64 = 0;
        loop {
            let answer = self.connection.ask(&format!("FETCH FORWARD {BATCH} FROM trial")).await?;
            if answer.is_empty() {
                break;
            }
            for row in &answer {
                let cells: Vec<Option<&str>> = (0..row.len()).map(|place| row.try_get(place).ok().flatten()).collect();
                let person = place.and_then(|place| cells.get(place).copied().flatten());
                let (sum, count) = units.entry(person.map_or(NOBODY, hash)).or_default();
                *sum = sum.wrapping_add(hash(&cells));
                *count += 1;
                seen += 1;
                if let Some(person) = person {
                    // The middle of what has come: replaced at every power of two.
                    match persons.as_mut_slice() {
                        [_, middle, last] if seen.is_power_of_two() => {
                            std::mem::swap(middle, last);
                            person.clone_into(last);
                        }
                        [_, _, _] => {}
                        _ => persons.push(person.to_owned()),
                    }
                }
            }
        }
        self.connection.execute("CLOSE trial").await?;
        persons.dedup();
        Ok((units, persons))
    }

    /// The relations that the plan of the query reads.
    async fn relations(&self) -> Result<BTreeSet<Table>> {
        let answer = self.connection.ask(&format!("EXPLAIN (VERBOSE, FORMAT JSON) {}", self.query)).await?;
        let mut text = String::new();
        for row in &answer {
            text.push_str(row.try_get(0).ok().flatten().unwrap_or_default());
        }
        let plan: serde_json::Value =
            serde_json::from_str(&text).map_err(|_| ClientError::Failed("the database explains its plan in no JSON".into()))?;
        let mut tables = BTreeSet::new();
        let mut open = vec![&plan];
        while let Some(value) = open.pop() {
            match value {
                serde_json::Value::Object(object) => {
                    let text = |key: &str| object.get(key).and_then(serde_json::Value::as_str).map(ToOwned::to_owned);
                    tables.extend(text("Schema").zip(text("Relation Name")).map(|(schema, name)| Table { schema, name }));
                    open.extend(object.values());
                }
                serde_json::Value::Array(values) => open.extend(values),
                _ => {}
            }
        }
        Ok(tables)
    }

    async fn columns(&self, table: &Table) -> Result<Vec<String>> {
        let sql = format!(
            "SELECT a.attname FROM pg_catalog.pg_attribute a JOIN pg_catalog.pg_class c ON c.oid = a.attrelid JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace \
             WHERE a.attnum > 0 AND NOT a.attisdropped AND n.nspname = {} AND c.relname = {} ORDER BY a.attnum",
            literal(&table.schema),
            literal(&table.name)
        );
        self.texts(&sql).await
    }

    async fn unique(&self, table: &Table, column: &str) -> Result<bool> {
        let sql = format!(
            "SELECT 1 FROM pg_catalog.pg_index i JOIN pg_catalog.pg_class c ON c.oid = i.indrelid JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace \
             JOIN pg_catalog.pg_attribute a ON a.attrelid = c.oid AND a.attnum = i.indkey[0] \
             WHERE i.indisunique AND i.indnkeyatts = 1 AND n.nspname = {} AND c.relname = {} AND a.attname = {}",
            literal(&table.schema),
            literal(&table.name),
            literal(column)
        );
        Ok(!self.texts(&sql).await?.is_empty())
    }

    async fn texts(&self, sql: &str) -> Result<Vec<String>> {
        let answer = self.connection.ask(sql).await?;
        Ok(answer.iter().filter_map(|row| row.try_get(0).ok().flatten().map(ToOwned::to_owned)).collect())
    }

    /// Puts an empty table in the place of a table until [`Trial::undo`].
    async fn hidden(&self, table: &Table) -> Result<()> {
        let shadow = name(&table.name);
        self.connection.execute("SAVEPOINT trial").await?;
        self.connection.execute(&format!("CREATE TEMPORARY TABLE {shadow} (LIKE {}.{shadow})", name(&table.schema))).await
    }

    async fn view(&self, table: &Table, select: &str, rest: &str) -> Result<()> {
        let shadow = name(&table.name);
        self.connection.execute(&format!("CREATE TEMPORARY VIEW {shadow} AS {select}{}.{shadow}{rest}", name(&table.schema))).await
    }

    async fn undo(&self) -> Result<()> {
        self.connection.execute("ROLLBACK TO SAVEPOINT trial").await
    }
}

impl Found {
    /// Compares the rows of every unit but those that are left out.
    fn compare(&mut self, what: &str, first: &ByPerson, second: &ByPerson, without: &[u64]) {
        let units: BTreeSet<&u64> = first.keys().chain(second.keys()).filter(|unit| !without.contains(unit)).collect();
        let differ = units.into_iter().filter(|unit| first.get(unit) != second.get(unit)).count();
        let words = if without.is_empty() { "persons" } else { "other persons" };
        if differ == 0 {
            self.tried.extend((!self.tried.iter().any(|tried| tried == what)).then(|| what.to_owned()));
        } else {
            self.against.push(format!("{what}, the rows of {differ} {words} differ"));
        }
    }
}

fn hash(value: impl Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    value.hash(&mut hasher);
    hasher.finish()
}
