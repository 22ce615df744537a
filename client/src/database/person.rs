//! The rows of one person: a function of the rows that carry that person's key, and of nothing else.
//!
//! # Privacy
//! [`rows`] sees one person. It does not see in which order the database gave the rows: every group is sorted by all of its cells first, so the result
//! is a function of the set of rows, with repetitions. See `proofs/database_rows.md` of `dp-pvi-privacy`.

use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::fmt::Write;

use time::Date;

use super::catalogue::Plan;
use crate::error::{ClientError, Result};
use dp_pvi_description::family::{Family, day};
use dp_pvi_description::{Description, Give, Rows, Rule};
use dp_pvi_schema::text;

/// A cell, or no value.
pub(super) type Cell = Option<Box<str>>;
/// The cells of one row of one source.
pub(super) type Record = Vec<Cell>;

/// Rows of one person that rules look at, summed over the rules and over the rows that are made.
const MOST_LOOKS: usize = 1 << 30;

/// Gives the rows that the description makes of one person. `groups` has the rows of each source with that person's key, in any order; the first source has
/// the person's own row. Without one there is nothing.
pub(super) fn rows(
    description: &Description,
    plan: &Plan,
    groups: &mut [Vec<Record>],
    give: &mut dyn FnMut(Record) -> Result<()>,
) -> Result<()> {
    groups.iter_mut().for_each(|group| group.sort_unstable());
    let groups = &*groups;
    let Some(person) = groups.first().and_then(|persons| persons.first()) else { return Ok(()) };
    // A person has one row, or the operator's word for a view says so.
    let base =
        if description.base == 0 { std::slice::from_ref(person) } else { groups.get(description.base).map_or(&[][..], Vec::as_slice) };
    let rules = description.index.iter().chain(description.columns.iter().map(|column| &column.rule));
    let looked_at = rules.filter_map(Rule::rows).chain(description.keep.iter().map(|keep| &keep.rows));
    let each = looked_at.filter_map(|rows| groups.get(rows.source)).map(Vec::len).fold(0, usize::saturating_add);
    if base.len().saturating_mul(each) > MOST_LOOKS {
        return Err(ClientError::Unavailable(
            "one person has too many rows for rules that look at all of them for each: narrow the sources by `where`".into(),
        ));
    }
    base.iter().filter_map(|own| Row { description, plan, groups, person, own, index: None }.cells()).try_for_each(give)
}

/// Whether the texts of a column are numbers that the database or this program spells.
pub(super) fn has_numbers(column: &dp_pvi_description::Column, description: &Description, plan: &Plan) -> bool {
    let is_number = |source, cell| plan.family(source, cell).is_number();
    let values = match &column.rule {
        Rule::Own(cell) => is_number(description.base, *cell),
        Rule::Person(cell) => is_number(0, *cell),
        Rule::Edge { rows, value, .. } | Rule::Extreme { rows, value, .. } => is_number(rows.source, *value),
        Rule::Count(_) | Rule::Any(_) | Rule::Sum { .. } => true,
    };
    column.texts.is_none() && (values || column.give != Give::Value)
}

struct Row<'a> {
    description: &'a Description,
    plan: &'a Plan,
    groups: &'a [Vec<Record>],
    person: &'a Record,
    own: &'a Record,
    index: Option<Date>,
}

impl Row<'_> {
    /// The cells, unless the row is left out.
    fn cells(mut self) -> Option<Record> {
        if let Some(index) = &self.description.index {
            self.index = Some(day(&self.value(index)?)?);
        }
        let kept = self.description.keep.iter().all(|keep| self.chosen(&keep.rows).next().is_some() == keep.any);
        kept.then(|| self.description.columns.iter().map(|column| self.cell(column)).collect())
    }

    fn cell(&self, column: &dp_pvi_description::Column) -> Cell {
        let value = self.value(&column.rule)?;
        let value = match column.give {
            Give::Value => value,
            Give::DaysAfterIndex => (day(&value)? - self.index?).whole_days().to_string().into(),
            Give::YearsBeforeIndex => years(&value, self.index?)?.to_string().into(),
        };
        match &column.texts {
            None => Some(value),
            Some(texts) => listed(texts, &value).map(Into::into),
        }
    }

    fn value(&self, rule: &Rule) -> Cell {
        match rule {
            Rule::Own(cell) => self.own.get(*cell)?.clone(),
            Rule::Person(cell) => self.person.get(*cell)?.clone(),
            Rule::Count(rows) => Some(self.chosen(rows).count().to_string().into()),
            Rule::Any(rows) => Some(self.chosen(rows).next().is_some().to_string().into()),
            Rule::Edge { rows, value, by, last } => {
                let family = self.plan.family(rows.source, *by);
                let ranked =
                    self.chosen(rows).filter_map(|row| Some((Rank::of(family, row.get(*by)?.as_deref()?)?, row.get(*value)?.as_deref()?)));
                let edge = if *last { ranked.max() } else { ranked.min() };
                edge.map(|(_, value)| value.into())
            }
            Rule::Extreme { rows, value, greatest } => {
                let family = self.plan.family(rows.source, *value);
                let ranked = self.values(rows, *value).filter_map(|value| Rank::of(family, value));
                let extreme = if *greatest { ranked.max() } else { ranked.min() };
                extreme.map(|rank| rank.text.into())
            }
            Rule::Sum { rows, value, mean } => {
                let mut numbers: Vec<f64> = self.values(rows, *value).filter_map(|value| value.parse().ok()).collect();
                // One order of one set of numbers: so one sum, to the last bit.
                numbers.sort_unstable_by(f64::total_cmp);
                let sum: f64 = numbers.iter().sum();
                match (mean, numbers.len()) {
                    (false, _) => Some(number(sum)),
                    (true, 0) => None,
                    #[expect(clippy::cast_precision_loss, reason = "a count of rows of one person")]
                    (true, count) => Some(number(sum / count as f64)),
                }
            }
        }
    }

    /// The rows of a source that lie in all windows.
    fn chosen(&self, rows: &Rows) -> impl Iterator<Item = &Record> {
        let index = self.index;
        self.groups.get(rows.source).into_iter().flatten().filter(move |row| {
            rows.windows.iter().all(|window| {
                let days = || Some((day(row.get(window.column)?.as_deref()?)? - index?).whole_days());
                days().is_some_and(|days| {
                    window.from.is_none_or(|from| days >= i64::from(from)) && window.to.is_none_or(|to| days <= i64::from(to))
                })
            })
        })
    }

    fn values(&self, rows: &Rows, value: usize) -> impl Iterator<Item = &str> {
        self.chosen(rows).filter_map(move |row| row.get(value)?.as_deref())
    }
}

/// A value in the order of its family, ties by its text.
#[derive(Debug, PartialEq)]
struct Rank<'a> {
    number: f64,
    text: &'a str,
}

impl<'a> Rank<'a> {
    /// `None` for what has no place in the order: dates before the year 1 or after 9999, infinite ones.
    fn of(family: Family, text: &'a str) -> Option<Self> {
        let number = match family {
            number if number.is_number() => text.parse().ok()?,
            // The text of a date or time within these years is in their order.
            Family::Date | Family::Time => day(text).map(|_| 0.0)?,
            _ => 0.0,
        };
        Some(Self { number, text })
    }
}

impl Eq for Rank<'_> {}

impl Ord for Rank<'_> {
    fn cmp(&self, other: &Self) -> Ordering {
        self.number.total_cmp(&other.number).then_with(|| self.text.cmp(other.text))
    }
}

impl PartialOrd for Rank<'_> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

fn number(value: f64) -> Box<str> {
    let mut text = String::new();
    // Writing to a text cannot fail. Minus zero is zero.
    let _ = write!(text, "{}", value + 0.0);
    text.into()
}

/// Whole years from a date, or from a year, to the index.
fn years(text: &str, index: Date) -> Option<i32> {
    let Some(from) = day(text) else { return text.parse().ok().and_then(|year: i32| index.year().checked_sub(year)) };
    let before_the_day = (index.month() as u8, index.day()) < (from.month() as u8, from.day());
    Some(index.year() - from.year() - i32::from(before_the_day))
}

/// What a value stands for: values are compared as the cells of a file are with a schema's texts, without blanks around them, and as numbers where they are whole.
fn listed<'t>(texts: &'t BTreeMap<String, String>, value: &str) -> Option<&'t str> {
    let is_same = |listed: &str| text::is_listed(listed.as_bytes(), text::read(value).as_bytes(), b'.');
    let found = texts.get(value).or_else(|| texts.iter().find(|(listed, _)| is_same(listed)).map(|(_, text)| text));
    found.map(String::as_str)
}

#[cfg(test)]
mod tests;
