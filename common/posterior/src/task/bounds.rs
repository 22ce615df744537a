//! Bounds on what a task may ask of anybody, and on its texts. A task above them is refused where it is read, whoever wrote it.

use dp_pvi_privacy::mechanism::MAX_UNITS;
use dp_pvi_privacy::{DpEvent, Terms};

use super::check::{invalid, require};
use super::{ResolvedTask, TaskError};
use crate::schema::{ColumnKind, LabelKind, Schema};

/// Visits of one site.
pub const MAX_VISITS: u32 = 100_000;
/// Sites of a run.
pub const MAX_SITES: u32 = 10_000;
/// Longest deadline of a round: 31 days.
pub const MAX_DEADLINE_SECONDS: u64 = 31 * 86_400;
/// Longest release tick: a day. A site waits that long with an update that is charged.
pub const MAX_TICK_SECONDS: u64 = 86_400;
/// Bytes of a name.
pub const MAX_NAME_BYTES: usize = 64;
/// Bytes of a name that stands in a schema: a column, or one of its values.
const MAX_SCHEMA_NAME_BYTES: usize = 1024;

/// Whether a text can be printed in one line as it is: no control character, nothing that turns the direction of writing, no line separator.
#[must_use]
pub fn is_plain_text(text: &str) -> bool {
    let turns = |c: char| matches!(c, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{206f}' | '\u{feff}' | '\u{fff9}'..='\u{fffb}');
    !text.chars().any(|c| c.is_control() || turns(c))
}

impl ResolvedTask {
    /// Durations, counts and texts.
    pub(super) fn check_bounds(&self, schema: &Schema) -> Result<(), TaskError> {
        require(
            self.name.len() <= 4 * MAX_NAME_BYTES && is_plain_text(&self.name),
            "the name must be one short line without control characters",
        )?;
        check_texts(schema)?;
        require(self.visits() <= MAX_VISITS, "at most 100000 rounds (or sweeps) are possible")?;
        require(self.min_sites <= MAX_SITES, "min_sites must be at most 10000")?;
        require(self.update_deadline_seconds <= MAX_DEADLINE_SECONDS, "update_deadline must be at most 31 days")?;
        require(
            self.release_tick_seconds <= MAX_TICK_SECONDS,
            "release_tick_seconds must be at most 86400: an update that is charged waits for the tick",
        )?;
        match self.privacy.max_units {
            Some(_) if self.aggregation.is_some() => {
                invalid("max_units stands in [aggregation] where trust = \"aggregated\": remove it from [privacy]")
            }
            Some(units) => require((1..=MAX_UNITS).contains(&units), "max_units of [privacy] must lie between 1 and 4294967296"),
            None => Ok(()),
        }
    }

    /// Most units that a site may declare.
    ///
    /// Under local trust this is `max_units` of `[privacy]`. Under aggregated trust `max_units` of `[aggregation]` bounds the terms of a
    /// site; where terms are units it bounds these, too.
    ///
    /// # Errors
    /// Numbers that do not fit the lattice.
    pub fn most_units(&self) -> Result<u64, TaskError> {
        let aggregated = match (&self.aggregation, self.sum(0)?) {
            (Some(spec), Some(sum)) if sum.terms == Terms::Units => spec.max_units,
            _ => MAX_UNITS,
        };
        Ok(self.privacy.max_units.unwrap_or(MAX_UNITS).min(aggregated))
    }

    /// The event whose lattice a site's message of this visit lies on, and the most terms of norm C that are in it, where it is one noised
    /// sum of a site that declared `units`. Nothing for messages of other kinds: a `values` payload was computed from several noised sums
    /// and public values, or has no noise, and has no such bound.
    ///
    /// # Errors
    /// Numbers that do not fit the lattice.
    pub fn sum_of_site(&self, visit: u32, units: u64) -> Result<Option<(DpEvent, u64)>, TaskError> {
        match self.message(visit)?.kind {
            dp_pvi_privacy::PayloadKind::Lattice { .. } => Ok(Some((self.visit_event(visit)?, self.update.rules().most_terms(units)))),
            dp_pvi_privacy::PayloadKind::Masked { .. } | dp_pvi_privacy::PayloadKind::Values => Ok(None),
        }
    }
}

/// Names and values that a schema may print anywhere.
fn check_texts(schema: &Schema) -> Result<(), TaskError> {
    let label = schema.label();
    let mut names: Vec<&str> = vec![&label.column];
    names.extend(schema.unit_column());
    names.extend(schema.missing_tokens().iter().map(String::as_str));
    names.extend(schema.csv().names.iter().flatten().map(String::as_str));
    if let LabelKind::Binary { positive, negative, strip_suffix } = &label.kind {
        names.extend(positive.iter().chain(negative.iter().flatten()).chain(strip_suffix).map(String::as_str));
    }
    if let crate::schema::content::Content::Documents(rule) = schema.content() {
        names.extend(rule.vocabulary.iter().flatten().map(String::as_str));
    }
    for column in schema.columns() {
        names.push(&column.name);
        match &column.kind {
            ColumnKind::Category(rule) => names.extend(rule.values.iter().map(String::as_str)),
            ColumnKind::Boolean(rule) => names.extend(rule.true_values.iter().chain(&rule.false_values).map(String::as_str)),
            ColumnKind::Number(_) | ColumnKind::Ignored => {}
        }
    }
    require(
        names.iter().all(|name| name.len() <= MAX_SCHEMA_NAME_BYTES && is_plain_text(name)),
        "a name or value in the schema holds control characters, or is longer than 1024 bytes",
    )
}
