//! How many records contribute nothing, and why: what a site must not tell others, for its own people.

use std::collections::HashMap;
use std::fmt;

use dp_pvi_schema::Schema;

use crate::error::{CellProblem, Fault};
use crate::source::field_name;

/// How many of a site's records contribute nothing to any sum, and why. For the people at the site alone: the counts are as private as the records.
///
/// # Privacy
/// It follows from data set, schema and files. No task and no formula has a part in it: otherwise anyone who writes one could ask for exact counts of records, by what a site
/// does that its own screen has stopped. What a site does with it is in the guide's limits.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Screen {
    /// All records.
    pub records: u64,
    /// Those that contribute nothing by their first reason, the most frequent one first.
    pub nothing: Vec<(Nothing, u64)>,
}

/// Why a record contributes nothing.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, thiserror::Error)]
pub enum Nothing {
    /// One of its cells.
    #[error("column `{column}`: {problem}")]
    Cell {
        /// Name in the schema.
        column: String,
        /// Why.
        problem: CellProblem,
    },
    /// One of its cells, of which the schema says that it drops the record.
    #[error("column `{column}`: {}, and the schema drops such a record", problem.seen())]
    Dropped {
        /// Name in the schema.
        column: String,
        /// Why.
        problem: CellProblem,
    },
    /// The whole line.
    #[error("the line is no record of the file's columns: check delimiter, quotes and encoding")]
    Line,
    /// There is nothing in it.
    #[error("the line is empty or a comment")]
    Empty,
}

/// Reasons, as they are counted.
#[derive(Default)]
pub(crate) struct Reasons {
    cells: HashMap<Fault, u64>,
    dropped: HashMap<Fault, u64>,
    lines: u64,
    empty: u64,
}

impl Reasons {
    pub(crate) fn cell(&mut self, fault: Fault) {
        *self.cells.entry(fault).or_default() += 1;
    }

    pub(crate) fn dropped(&mut self, fault: Fault) {
        *self.dropped.entry(fault).or_default() += 1;
    }

    pub(crate) fn line(&mut self) {
        self.lines += 1;
    }

    pub(crate) fn empty(&mut self) {
        self.empty += 1;
    }

    pub(crate) fn screen(self, schema: &Schema, records: u64) -> Screen {
        let name = |field| field_name(schema, field).to_owned();
        let cell = |(Fault { field, problem }, count)| (Nothing::Cell { column: name(field), problem }, count);
        let dropped = |(Fault { field, problem }, count)| (Nothing::Dropped { column: name(field), problem }, count);
        let others = [(Nothing::Line, self.lines), (Nothing::Empty, self.empty)];
        let mut nothing: Vec<_> = self
            .cells
            .into_iter()
            .map(cell)
            .chain(self.dropped.into_iter().map(dropped))
            .chain(others)
            .filter(|(_, count)| *count > 0)
            .collect();
        nothing.sort_by(|(one, ones), (two, twos)| twos.cmp(ones).then_with(|| one.cmp(two)));
        Screen { records, nothing }
    }
}

impl Screen {
    /// Of records of which each contributes.
    pub(crate) fn of_all(records: u64) -> Self {
        Self { records, nothing: Vec::new() }
    }

    /// How many records contribute nothing.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.nothing.iter().map(|(_, count)| count).sum()
    }

    /// Their share of all records; 0 where there are none.
    #[must_use]
    pub fn share(&self) -> f64 {
        if self.records == 0 { 0.0 } else { self.count() as f64 / self.records as f64 }
    }
}

/// One line for the count and one for each reason. No value of a record is in them.
impl fmt::Display for Screen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} of {} records contribute nothing ({:.1} %)", self.count(), self.records, 100.0 * self.share())?;
        self.nothing.iter().try_for_each(|(why, count)| write!(f, "\n  {count}: {why}"))
    }
}
