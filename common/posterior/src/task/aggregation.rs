//! What aggregated trust asks of a task, and what is left of a sum if all other sites' shares of the noise are known.

use dp_pvi_accounting::DpEvent;
use dp_pvi_accounting::{PrivacyLoss, epsilon_upper};

use super::{ResolvedTask, ScheduleSpec, SumSpec, TaskError, Trust};
use dp_pvi_models::spec::check::{invalid, require};

/// An event, and under aggregation what a site's own part is if everything else is known.
type Charge = (DpEvent, Option<DpEvent>);

impl ResolvedTask {
    /// What trust asks of the rest of the task.
    pub(crate) fn check_aggregation(&self) -> Result<(), TaskError> {
        match (self.privacy.trust, &self.aggregation) {
            (Trust::Local, None) => Ok(()),
            (Trust::Local, Some(_)) => invalid("[aggregation] belongs to trust = \"aggregated\": remove it"),
            (Trust::Aggregated, None) => {
                invalid("trust = \"aggregated\" needs an [aggregation] section with max_units, the most units (or shards) of one site")
            }
            (Trust::Aggregated, Some(spec)) => {
                spec.check()?;
                require(
                    matches!(self.schedule, ScheduleSpec::Synchronous { .. }),
                    "trust = \"aggregated\" sums all sites in every round: use schedule = \"synchronous\"",
                )?;
                require(
                    self.min_sites <= spec.sites,
                    "min_sites is above the number of sites of [aggregation]: lower it, or name all sites",
                )?;
                self.update.each_visit(&self.setting(), 0..self.visits(), |visit| match visit.sum {
                    Some(_) => Ok(()),
                    None => invalid("this update has no sum that could be aggregated: use trust = \"local\""),
                })
            }
        }
    }

    /// The sum that a visit releases, if that is what it sends.
    ///
    /// # Errors
    /// Numbers out of range.
    pub fn sum(&self, visit: u32) -> Result<Option<SumSpec>, TaskError> {
        Ok(self.update.visit(&self.setting(), visit)?.sum)
    }

    /// What a visit is to an accountant if all other sites' shares of the noise are known; only under aggregation.
    ///
    /// # Errors
    /// Numbers that do not fit the lattice.
    pub fn visit_fallback(&self, visit: u32) -> Result<Option<DpEvent>, TaskError> {
        self.fallback_of(self.sum(visit)?)
    }

    /// What these visits of one site are, in order, if all other sites' shares of the noise are known, as
    /// [`visit_events`](Self::visit_events) counts them: under local trust the very same.
    ///
    /// # Errors
    /// Numbers that do not fit the lattice.
    pub fn visit_fallbacks(&self, visits: std::ops::Range<u32>) -> Result<Vec<(DpEvent, u64)>, TaskError> {
        if self.aggregation.is_none() {
            return self.visit_events(visits);
        }
        let mut events: Vec<(DpEvent, u64)> = Vec::new();
        self.update.each_visit(&self.setting(), visits, |visit| {
            let event = self.fallback_of(visit.sum)?.unwrap_or(visit.event);
            match events.last_mut() {
                Some((last, count)) if *last == event => *count += 1,
                _ => events.push((event, 1)),
            }
            Ok(())
        })?;
        Ok(events)
    }

    /// What a ledger books for these visits of one site, in order: event and fallback of each charge, with the number of visits in a row that are it.
    ///
    /// # Errors
    /// Numbers that do not fit the lattice.
    pub fn visit_charges(&self, visits: std::ops::Range<u32>) -> Result<Vec<(Charge, u64)>, TaskError> {
        let mut charges: Vec<(Charge, u64)> = Vec::new();
        self.update.each_visit(&self.setting(), visits, |visit| {
            let charge = (visit.event, self.fallback_of(visit.sum)?);
            match charges.last_mut() {
                Some((last, count)) if *last == charge => *count += 1,
                _ => charges.push((charge, 1)),
            }
            Ok(())
        })?;
        Ok(charges)
    }

    /// What is left of a sum if all other sites' shares of the noise are known; only under aggregation.
    fn fallback_of(&self, sum: Option<SumSpec>) -> Result<Option<DpEvent>, TaskError> {
        match (&self.aggregation, sum) {
            (Some(_), Some(sum)) => Ok(sum.mechanism(&self.setting())?.fallback_event()),
            _ => Ok(None),
        }
    }

    /// What the first `visits` visits of one site cost if all other sites' shares of the noise are known; only under aggregation.
    ///
    /// # Errors
    /// Numbers that do not fit the lattice, or an event that no engine bounds.
    pub fn fallback_loss(&self, visits: u32) -> Result<Option<PrivacyLoss>, TaskError> {
        if self.aggregation.is_none() {
            return Ok(None);
        }
        let mut events = Vec::new();
        self.update.each_visit(&self.setting(), 0..visits, |visit| {
            events.extend(self.fallback_of(visit.sum)?);
            Ok(())
        })?;
        Ok(Some(epsilon_upper(&events, self.privacy.relation, self.privacy.delta)?))
    }
}
