//! What the database's catalogue says of the tables of a description: whether they are what the construction needs, and of which type each column is.
//!
//! The checks see names, kinds and types, and no row. Their errors are the same whatever the tables hold.

use std::collections::BTreeMap;

use dp_pvi_data::types::Refused;

use super::columns::{Text, family_of};
use super::connection::Connection;
use crate::error::{ClientError, Result};
use dp_pvi_description::family::Family;
use dp_pvi_description::select;
use dp_pvi_description::{Description, Fetched, Filter, Lookup, Need, Source, Table, Test};

/// A column as the catalogue has it.
#[derive(Debug, Clone)]
struct Known {
    not_null: bool,
    generated: bool,
    /// The name of the type without domains.
    kind: String,
    /// What it holds and how its text is meant, or why it is not read.
    read: std::result::Result<(Family, Text), Refused>,
    deterministic: bool,
    /// Whether it alone is the key of a unique index.
    unique: bool,
}

/// A relation as the catalogue has it.
#[derive(Debug)]
struct Relation {
    kind: char,
    columns: BTreeMap<String, Known>,
}

/// A description with the types of its columns.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Plan {
    pub(super) sources: Vec<Planned>,
}

impl Plan {
    /// The family of a source's cell.
    pub(super) fn family(&self, source: usize, cell: usize) -> Family {
        self.sources.get(source).and_then(|source| source.cells.get(cell)).map_or(Family::Text, |(_, family)| *family)
    }
}

/// A source with its SELECT.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Planned {
    /// Gives the key and the cells, in the order of the keys.
    pub(super) select: String,
    pub(super) key: Family,
    pub(super) cells: Vec<(Text, Family)>,
}

/// What is in the catalogue of the tables of one description.
pub(super) struct Catalogue<'a> {
    description: &'a Description,
    /// Where errors point to.
    file: String,
    relations: BTreeMap<Table, Relation>,
}

impl<'a> Catalogue<'a> {
    /// Reads it.
    ///
    /// # Errors
    /// [`ClientError::Refused`]: a relation is not what the construction needs. [`ClientError::Data`]: there is no such table.
    pub(super) async fn read(connection: &Connection, description: &'a Description, file: String) -> Result<Self> {
        let mut catalogue = Self { description, file, relations: BTreeMap::new() };
        let mut tables: Vec<&Table> = description.sources.iter().map(|source| &source.table).collect();
        tables.extend(&description.public);
        for table in tables {
            if !catalogue.relations.contains_key(table) {
                let relation = catalogue.relation(connection, table).await?;
                catalogue.relations.insert(table.clone(), relation);
            }
        }
        Ok(catalogue)
    }

    fn refuse(&self, words: &str) -> ClientError {
        ClientError::Refused(format!("{}: {words}", self.file).into())
    }

    async fn relation(&self, connection: &Connection, table: &Table) -> Result<Relation> {
        let found = connection.ask(&select::relation(table)).await?;
        let Some(row) = found.first() else {
            return Err(ClientError::Data(
                format!("{}: the database has no table {table} (names are taken as they are written, capitals too)", self.file).into(),
            ));
        };
        let cell = |place| row.try_get(place).ok().flatten().unwrap_or_default();
        let (oid, kind) = (cell(0).to_owned(), cell(1).chars().next().unwrap_or('?'));
        let [secured, children, foreign, partition, stored, functions, operators] = [2, 3, 4, 5, 6, 7, 8].map(|place| cell(place) == "t");
        if operators {
            return Err(self.refuse(
                "comparisons or collations that are not PostgreSQL's own stand in the schema pg_catalog, where they would be found in place of its own: move them",
            ));
        }
        if !self.description.vouched.contains(table) {
            let word = match self.description.public.contains(table) {
                true => "make a table of it",
                false => "if your word stands for its rows, name it in `vouched`, and the statement will say so",
            };
            match kind {
                'r' | 'p' => {}
                'v' | 'm' => {
                    return Err(self.refuse(&format!("{table} is a view, and no catalogue shows what it does: name tables; or {word}")));
                }
                'f' => return Err(self.refuse(&format!("{table} is a foreign table, whose rows another server makes: {word}"))),
                _ => return Err(self.refuse(&format!("{table} is no table"))),
            }
            if secured {
                return Err(self.refuse(&format!("{table} has row security, whose conditions may look at other rows: {word}")));
            }
            if foreign {
                return Err(
                    self.refuse(&format!("{table} has a partition that is a foreign table, whose rows another server makes: {word}"))
                );
            }
            if partition {
                return Err(self.refuse(&format!("{table} is a part of a partitioned table: name the whole one; or {word}")));
            }
            if stored {
                return Err(self.refuse(&format!("the rows of {table} are stored by a method that is not PostgreSQL's own: {word}")));
            }
            if functions {
                return Err(self.refuse(&format!(
                    "an index, the extended statistics or the partition key of {table} uses a function, operator or type that is not PostgreSQL's own, which may look at other rows \
                     and is called while a question is planned: {word}"
                )));
            }
            if kind == 'r' && children {
                return Err(self.refuse(&format!("other tables inherit from {table}, and its keys are not unique over them: {word}")));
            }
        }
        let mut columns = BTreeMap::new();
        for row in connection.ask(&select::columns(&oid)).await? {
            let cell = |place| row.try_get(place).ok().flatten().unwrap_or_default();
            let known = Known {
                not_null: cell(1) == "t",
                generated: cell(2) == "t",
                kind: cell(4).to_owned(),
                read: family_of(cell(3), cell(4), cell(5)),
                deterministic: cell(6) == "t",
                unique: cell(7) == "t",
            };
            columns.insert(cell(0).to_owned(), known);
        }
        Ok(Relation { kind, columns })
    }

    /// The plan of the description.
    ///
    /// # Errors
    /// As [`Catalogue::read`].
    pub(super) fn plan(&self) -> Result<Plan> {
        let mut sources = Vec::with_capacity(self.description.sources.len());
        for (place, source) in self.description.sources.iter().enumerate() {
            sources.push(self.source(source, place == 0)?);
        }
        let persons = sources.first().map(|source| source.key);
        if let Some((other, _)) = self.description.sources.iter().zip(&sources).find(|(_, planned)| Some(planned.key) != persons) {
            return Err(self.refuse(&format!(
                "the key `{}` of {} is of another type than the persons' key: both are whole numbers, both uuid, or both text",
                other.key, other.table
            )));
        }
        Ok(Plan { sources })
    }

    fn source(&self, source: &Source, persons: bool) -> Result<Planned> {
        let (key, family, text) = self.column(&source.table, &source.key)?;
        let whole = matches!(family, Family::Integer | Family::Uuid) || family == Family::Text && text == Text::Same;
        if !whole {
            return Err(self.refuse(&format!(
                "the key `{}` of {} is of type {}: a person's key is smallint, integer, bigint, uuid, text or varchar",
                source.key, source.table, key.kind
            )));
        }
        if !key.deterministic {
            return Err(self.refuse(&format!(
                "the key `{}` of {} has a collation under which different texts are equal: use a deterministic one",
                source.key, source.table
            )));
        }
        if persons && !self.description.vouched.contains(&source.table) && !(key.unique && key.not_null) {
            return Err(self.refuse(&format!(
                "the persons' key `{}` of {} must be NOT NULL and alone have a unique index, so that nobody stands there twice",
                source.key, source.table
            )));
        }
        for filter in &source.filters {
            self.filter(&source.table, filter)?;
        }
        let cells = source.fetched.iter().map(|fetched| self.cell(&source.table, fetched)).collect::<Result<_>>()?;
        let select = select::source(source, family, &|table| self.only(table), &|table, column| self.family(table, column));
        Ok(Planned { select, key: family, cells })
    }

    fn cell(&self, table: &Table, fetched: &Fetched) -> Result<(Text, Family)> {
        let (own, family, text) = self.column(table, &fetched.column)?;
        let (known, family, text) = match &fetched.lookup {
            None => (own, family, text),
            Some(lookup) => self.lookup(table, &fetched.column, family, lookup)?,
        };
        for need in &fetched.need {
            let number = matches!(family, Family::Integer | Family::Decimal | Family::Float | Family::Real);
            let date = matches!(family, Family::Date | Family::Time);
            let (held, words) = match need {
                Need::Number => (number, "a number"),
                Need::Date => (date, "a date or a timestamp without time zone"),
                Need::DateOrYear => (date || family == Family::Integer, "a date, a timestamp without time zone, or a year"),
                Need::Ordered => (number || date, "a number, a date or a timestamp without time zone"),
            };
            if !held {
                return Err(
                    self.refuse(&format!("column `{}` of {table} is of type {}, and the rule needs {words}", fetched.column, known.kind))
                );
            }
        }
        Ok((text, family))
    }

    fn lookup(&self, table: &Table, column: &str, family: Family, lookup: &Lookup) -> Result<(&Known, Family, Text)> {
        let (key, of_key, _) = self.column(&lookup.table, &lookup.key)?;
        if !key.unique {
            return Err(self.refuse(&format!(
                "lookup: `{}` of {} has no unique index of its own, so a value could have two rows",
                lookup.key, lookup.table
            )));
        }
        if family != of_key || !matches!(family, Family::Integer | Family::Uuid | Family::Text) {
            return Err(self.refuse(&format!(
                "lookup: `{column}` of {table} and `{}` of {} are both whole numbers, both uuid, or both text",
                lookup.key, lookup.table
            )));
        }
        self.column(&lookup.table, &lookup.column)
    }

    fn filter(&self, table: &Table, filter: &Filter) -> Result<()> {
        let (known, family, _) = self.column(table, &filter.column)?;
        let place = format!("the filter of `{}` of {table}", filter.column);
        let constants: Vec<&String> = match &filter.test {
            Test::Missing(_) => return Ok(()),
            Test::Among { table: public, column, filters } => {
                let (_, other, _) = self.column(public, column)?;
                if other != family || !matches!(family, Family::Integer | Family::Uuid | Family::Text) {
                    return Err(
                        self.refuse(&format!("{place}: it and `{column}` of {public} are both whole numbers, both uuid, or both text"))
                    );
                }
                return filters.iter().try_for_each(|filter| self.filter(public, filter));
            }
            Test::In(values) => values.iter().collect(),
            Test::Between { from, to } => {
                if !matches!(family, Family::Integer | Family::Decimal | Family::Float | Family::Real | Family::Date | Family::Time) {
                    return Err(self.refuse(&format!("{place}: from and to are for numbers and dates, and it is of type {}", known.kind)));
                }
                from.iter().chain(to).collect()
            }
        };
        if family == Family::Enumeration {
            return Err(
                self.refuse(&format!("{place}: it is an enumeration, which a filter cannot compare: give its value and use `texts`"))
            );
        }
        match constants.into_iter().find(|constant| !family.has(constant)) {
            Some(constant) => Err(self.refuse(&format!("{place}: `{constant}` is no value of type {}", known.kind))),
            None => Ok(()),
        }
    }

    fn column(&self, table: &Table, column: &str) -> Result<(&Known, Family, Text)> {
        let known = self.relations.get(table).and_then(|relation| relation.columns.get(column));
        let known = known.ok_or_else(|| {
            ClientError::Data(
                format!("{}: the table {table} has no column `{column}` (names are taken as they are written)", self.file).into(),
            )
        })?;
        if known.generated && !self.description.vouched.contains(table) {
            return Err(self.refuse(&format!(
                "column `{column}` of {table} is generated, by an expression that may be a function of the site's own: name the columns it is made of"
            )));
        }
        match known.read {
            Ok((family, text)) => Ok((known, family, text)),
            Err(refused) => {
                Err(ClientError::Data(format!("{}: column `{column}` of {table} {refused} (type {})", self.file, known.kind).into()))
            }
        }
    }

    fn family(&self, table: &Table, column: &str) -> Family {
        self.column(table, column).map_or(Family::Text, |(_, family, _)| family)
    }

    /// Whether rows of this table alone are meant, and not of tables that inherit from it. The partitions of a partitioned table are meant.
    fn only(&self, table: &Table) -> bool {
        self.relations.get(table).is_some_and(|relation| relation.kind == 'r')
    }
}
