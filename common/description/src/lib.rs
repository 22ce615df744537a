//! What a row is made of: the site's own file that names tables, columns and rules, and from which the client makes its questions to the database.
//!
//! Every rule is about one person: the row of the persons' table with that person's key, and the rows of other tables that carry the same key. There is
//! no rule over several persons, and no place for free text that the database would run. So a row is one person's by construction
//! (`proofs/database_rows.md` of `dp-pvi-privacy`).

pub mod family;
mod raw;
pub mod select;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

/// Longest name of a table or a column that PostgreSQL does not cut.
const LONGEST_NAME: usize = 63;
/// Sources of one description, and columns of one row.
const MOST: usize = 256;
/// Days around the index date that a window may reach: 400 years.
const FARTHEST: u32 = 146_097;

/// A checked description.
#[derive(Debug, Clone, PartialEq)]
pub struct Description {
    /// The tables that are read. The first is the persons'.
    pub sources: Vec<Source>,
    /// The source whose rows give one row each: 0 for one row a person.
    pub base: usize,
    /// The date that windows are measured from. A row without one is left out.
    pub index: Option<Rule>,
    /// The columns of a row, in the order of the file.
    pub columns: Vec<Column>,
    /// A row is left out where one of them does not hold.
    pub keep: Vec<Keep>,
    /// Tables that hold nothing of any person.
    pub public: Vec<Table>,
    /// Views and other relations of persons for whose rows the operator gives a word.
    pub vouched: Vec<Table>,
    /// Whether the file has no letter beyond Latin-1.
    latin: bool,
}

/// A table with its schema.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Table {
    /// Schema.
    pub schema: String,
    /// Name.
    pub name: String,
}

/// Rows of one table, those that pass the filters.
#[derive(Debug, Clone, PartialEq)]
pub struct Source {
    /// The table.
    pub table: Table,
    /// Column that holds the person's key.
    pub key: String,
    /// What a row must pass.
    pub filters: Vec<Filter>,
    /// The columns that are read.
    pub fetched: Vec<Fetched>,
}

/// A column that is read, and what it must be good for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fetched {
    /// Name.
    pub column: String,
    /// The public value in its place.
    pub lookup: Option<Lookup>,
    /// What rules ask of its type.
    pub need: Vec<Need>,
}

/// The value in a public table at the row whose unique key is the cell.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Lookup {
    /// The public table.
    pub table: Table,
    /// Its unique key.
    pub key: String,
    /// The column that is taken.
    pub column: String,
}

/// What a rule asks of a column's type.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Need {
    /// A number.
    Number,
    /// A date or a time without zone.
    Date,
    /// A date, a time without zone, or a whole number that is a year.
    DateOrYear,
    /// A number, a date or a time.
    Ordered,
}

/// A condition on one row of one table, with constants.
#[derive(Debug, Clone, PartialEq)]
pub struct Filter {
    /// The column.
    pub column: String,
    /// What is asked of it.
    pub test: Test,
}

/// What is asked of a cell. A missing cell passes [`Test::Missing`] alone.
#[derive(Debug, Clone, PartialEq)]
pub enum Test {
    /// One of these.
    In(Vec<String>),
    /// One of the values of a public table's column, in its rows that pass the filters.
    Among {
        /// The public table.
        table: Table,
        /// Its column.
        column: String,
        /// What its rows must pass.
        filters: Vec<Filter>,
    },
    /// Not less, and not more.
    Between {
        /// Lower bound.
        from: Option<String>,
        /// Upper bound.
        to: Option<String>,
    },
    /// There is no value, or there is one.
    Missing(bool),
}

/// A column of a row.
#[derive(Debug, Clone, PartialEq)]
pub struct Column {
    /// Name.
    pub name: String,
    /// How the value comes about.
    pub rule: Rule,
    /// What is given of it.
    pub give: Give,
    /// Words for values. A value that is not listed is missing.
    pub texts: Option<BTreeMap<String, String>>,
}

/// How a value comes about. Numbers are positions in [`Source::fetched`].
#[derive(Debug, Clone, PartialEq)]
pub enum Rule {
    /// A cell of the row of the base.
    Own(usize),
    /// A cell of the person's row.
    Person(usize),
    /// The value of the first or last row by a column, with ties by the value.
    Edge {
        /// The rows.
        rows: Rows,
        /// The value.
        value: usize,
        /// What orders them.
        by: usize,
        /// The last, and not the first.
        last: bool,
    },
    /// The least or greatest value.
    Extreme {
        /// The rows.
        rows: Rows,
        /// The value.
        value: usize,
        /// The greatest, and not the least.
        greatest: bool,
    },
    /// Sum or mean of the values.
    Sum {
        /// The rows.
        rows: Rows,
        /// The value.
        value: usize,
        /// The mean, and not the sum.
        mean: bool,
    },
    /// How many rows.
    Count(Rows),
    /// Whether there is a row.
    Any(Rows),
}

impl Rule {
    /// The rows that it looks at, if it looks at any but the person's own and the one that is made of.
    #[must_use]
    pub fn rows(&self) -> Option<&Rows> {
        match self {
            Self::Own(_) | Self::Person(_) => None,
            Self::Edge { rows, .. } | Self::Extreme { rows, .. } | Self::Sum { rows, .. } | Self::Count(rows) | Self::Any(rows) => {
                Some(rows)
            }
        }
    }
}

/// Rows of a source in windows around the index date.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rows {
    /// Position of the source.
    pub source: usize,
    /// All of them must hold the row.
    pub windows: Vec<Window>,
}

/// A date column must lie this many days from the index date, ends included.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Window {
    /// Position of the date.
    pub column: usize,
    /// Least days.
    pub from: Option<i32>,
    /// Most days.
    pub to: Option<i32>,
}

/// What is given of a value.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Give {
    /// Itself.
    #[default]
    Value,
    /// Of a date: days from the index date to it.
    DaysAfterIndex,
    /// Of a date: whole years from it to the index date. Of a year: the difference of the years.
    YearsBeforeIndex,
}

/// A condition on a row.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Keep {
    /// The rows.
    pub rows: Rows,
    /// Whether there must be such a row, or must not.
    pub any: bool,
}

impl Description {
    /// Reads a description.
    ///
    /// # Errors
    /// What is wrong, and what to write instead.
    pub fn parse(text: &str) -> Result<Self, String> {
        raw::parse(text)
    }

    /// The names of the columns, in their order.
    pub fn columns(&self) -> impl Iterator<Item = &str> {
        self.columns.iter().map(|column| column.name.as_str())
    }

    /// Whether every cell of a row is a cell of one row of one table, or follows from it and public tables.
    #[must_use]
    pub fn own_rows_only(&self) -> bool {
        // The rows of another table stand or fall with the person's row, too.
        self.base == 0
            && self.index.as_ref().is_none_or(|index| matches!(index, Rule::Own(_)))
            && self.keep.is_empty()
            && self.columns.iter().all(|column| matches!(column.rule, Rule::Own(_)))
    }
}

impl Description {
    /// Whether every name and constant has a form in Latin-1.
    #[must_use]
    pub fn is_latin(&self) -> bool {
        self.latin
    }
}

impl std::fmt::Display for Table {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}.{}", self.schema, self.name)
    }
}
