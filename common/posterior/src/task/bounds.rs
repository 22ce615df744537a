//! Bounds on what a task may ask of anyone, and on its texts. A task above them is refused where it is read, whoever wrote it, and before
//! anything is built from it: sizes are computed from the task's numbers alone.

use dp_pvi_accounting::{DpEvent, PrivacyUnit, Terms};
use dp_pvi_privacy::mechanism::MAX_UNITS;

use super::{ResolvedTask, TaskError, Trust, UpdateSpec};
use dp_pvi_models::spec::check::{invalid, require};
use dp_pvi_models::spec::texts::check_texts;
pub use dp_pvi_models::spec::texts::is_plain_text;
use dp_pvi_schema::Schema;

/// Visits of one site.
pub const MAX_VISITS: u32 = 100_000;
/// Sites of a run.
pub const MAX_SITES: u32 = 10_000;
/// Longest deadline of a round: 31 days.
pub const MAX_DEADLINE_SECONDS: u64 = 31 * 86_400;
/// Longest release tick: a day. A site waits that long with an update that is charged.
pub(crate) const MAX_TICK_SECONDS: u64 = 86_400;
/// Numbers in any vector that a task asks for: parameters, a site's message, the state, what a site keeps. 512 MiB in double precision.
pub const MAX_NUMBERS: u64 = 1 << 26;
/// Passes over a site's records in one visit.
pub(crate) const MAX_PASSES_OF_A_VISIT: u64 = 1_000_000;
/// Passes over a site's records in the whole run.
pub(crate) const MAX_PASSES: u64 = 100_000_000;
/// Bytes of a name.
pub const MAX_NAME_BYTES: usize = 64;

impl ResolvedTask {
    /// Durations, counts, sizes and texts.
    pub(crate) fn check_bounds(&self, schema: &Schema) -> Result<(), TaskError> {
        // Every number that is multiplied with another one below is bounded before that.
        require(self.visits() <= MAX_VISITS, "at most 100000 rounds (or sweeps) are possible")?;
        self.check_passes()?;
        check_numbers(self.features.into(), "features")?;
        check_numbers(self.dimension.into(), "parameters")?;
        check_numbers(self.setting().family_len(), "natural parameters")?;
        require(
            self.name.len() <= 4 * MAX_NAME_BYTES && is_plain_text(&self.name),
            "the name must be one short line without control characters",
        )?;
        check_texts(schema)?;
        require(self.min_sites <= MAX_SITES, "min_sites must be at most 10000")?;
        let expected = self.expected_sites.is_none_or(|sites| (1..=MAX_SITES).contains(&sites));
        require(expected, "expected_sites of [pvi] must lie between 1 and 10000")?;
        require(self.update_deadline_seconds <= MAX_DEADLINE_SECONDS, "update_deadline must be at most 31 days")?;
        require(
            self.release_tick_seconds <= MAX_TICK_SECONDS,
            "release_tick_seconds must be at most 86400: an update that is charged waits for the tick",
        )?;
        require(
            self.release_tick_seconds == 0 || self.release_tick_seconds < self.update_deadline_seconds,
            "release_tick_seconds must be below update_deadline: an update that waits for the tick would miss its round",
        )?;
        require(self.aggregation.is_none_or(|aggregation| aggregation.sites <= MAX_SITES), "sites of [aggregation] must be at most 10000")?;
        match self.privacy.max_units {
            Some(_) if self.aggregation.is_some() => {
                invalid("max_units stands in [aggregation] where trust = \"aggregated\": remove it from [privacy]")
            }
            Some(units) => require((1..=MAX_UNITS).contains(&units), "max_units of [privacy] must lie between 1 and 4294967296"),
            None => require(
                self.privacy.epsilon.is_none() || self.privacy.trust == Trust::Aggregated || self.privacy.unit == PrivacyUnit::Site,
                "a protected task needs max_units in [privacy], the most records (or persons) that any site has: one site that lies counts as at most so many",
            ),
        }
    }

    /// Refuses more passes over the records than anyone could mean: a site computes all of them once it has paid for the visit.
    fn check_passes(&self) -> Result<(), TaskError> {
        let (passes, visits) = (u64::from(self.update.rules().traits().passes), u64::from(self.visits()));
        if passes <= MAX_PASSES_OF_A_VISIT && passes * visits <= MAX_PASSES {
            return Ok(());
        }
        invalid(&format!(
            "{passes} passes over a site's records in each of {visits} visits are too many (steps, site_passes, shards or e_step_sweeps): \
             at most {MAX_PASSES_OF_A_VISIT} in a visit and {MAX_PASSES} in the run"
        ))
    }

    /// Length of the vectors that the task asks for beside its parameters, once the update has said that its numbers belong together.
    pub(super) fn check_lengths(&self) -> Result<(), TaskError> {
        check_numbers(self.state_len(), "numbers of the state")?;
        check_numbers(self.site_state().len() as u64, "numbers that a site keeps")?;
        // Anyone who read a task may ask it for the event and the message of every visit.
        self.update.each_visit(&self.setting(), 0..self.visits(), |visit| {
            require(visit.message.coordinates > 0, "a visit would send nothing: the model has no parameters")?;
            check_numbers(visit.message.coordinates, "numbers of a message")
        })
    }

    /// Length of the state that the task's [`rule`](Self::rule) moves, without building it.
    #[must_use]
    pub fn state_len(&self) -> u64 {
        self.update.rules().state(&self.setting()).len
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
            (Some(spec), Some(sum)) if sum.terms != Terms::ShardResults => spec.max_units,
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
            dp_pvi_names::PayloadKind::Lattice { .. } => {
                Ok(Some((self.visit_event(visit)?, self.update.rules().traits().terms.unwrap_or(units))))
            }
            dp_pvi_names::PayloadKind::Masked { .. } | dp_pvi_names::PayloadKind::Values => Ok(None),
        }
    }

    /// The coordinates of a visit's message that the site of this name may fill, ascending: all but the effects of other sites. `None`: all.
    ///
    /// # Errors
    /// The task has effects of sites, and the site is not in its list.
    pub fn places_of_site(&self, visit: u32, name: &str) -> Result<Option<Vec<u32>>, TaskError> {
        match &self.update {
            UpdateSpec::NaturalGradient(update) => update.places(&self.setting(), visit, self.site(name)?),
            _ => Ok(None),
        }
    }
}

fn check_numbers(count: u64, what: &str) -> Result<(), TaskError> {
    if count <= MAX_NUMBERS {
        return Ok(());
    }
    invalid(&format!("{count} {what} are too many: at most {MAX_NUMBERS} are possible; make the model smaller"))
}

#[cfg(test)]
mod tests;
