//! Numbers of aggregated trust: how many sites there are, whom the noise counts on, and what a site may add to a sum.

use dp_pvi_privacy::accountant::{PrivacyLoss, epsilon_upper};
use dp_pvi_privacy::mechanism::{LatticeSum, ShareSum, SumMechanism};
use dp_pvi_privacy::{ClipNorm, DpEvent, LatticePath, NoiseMultiplier, PayloadKind, SamplingRate, Terms};
use serde::{Deserialize, Serialize};

use super::check::{invalid, require};
use super::{MessageForm, ResolvedTask, ScheduleSpec, TaskError, Trust};

/// Aggregated trust in numbers (algorithms.md 4.3). M sites add a share of the noise each; with at most f of them missing and c of them
/// colluding with the server, h = min(M − f − c, cap) honest shares are in every sum, and each is sized for h.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AggregationSpec {
    /// M: the sites that sign the charter, all of them.
    pub sites: u32,
    /// c: sites that may collude with the server and subtract their own shares.
    pub colluders: u32,
    /// h: honest shares that the noise counts on.
    pub honest: u32,
    /// N: most terms (units, or shards) of one site.
    pub max_units: u64,
    /// Largest worst-case rounding bias of a coordinate of the sum over the standard deviation of its noise.
    pub max_rounding_loss: f64,
}

/// A visit's sum of clipped terms, before anybody says who adds the noise.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct SumSpec {
    /// Number of coordinates.
    pub coordinates: u32,
    /// C: norm of one term.
    pub clip: ClipNorm,
    /// z of the sum that the server sees.
    pub noise: NoiseMultiplier,
    /// Poisson rate of the units.
    pub sampling: Option<SamplingRate>,
    /// What the terms are.
    pub terms: Terms,
}

impl SumSpec {
    /// The mechanism under the task's trust model.
    ///
    /// # Errors
    /// Numbers that do not fit the lattice.
    pub fn mechanism(&self, task: &ResolvedTask) -> Result<SumMechanism, TaskError> {
        let Self { coordinates, clip, noise, sampling, terms } = *self;
        Ok(match task.aggregation {
            None => SumMechanism::Local(LatticeSum::new(coordinates, clip, noise, sampling, terms, LatticePath::Term)?),
            Some(AggregationSpec { honest, max_units, .. }) => {
                SumMechanism::Shared(ShareSum::new(coordinates, clip, noise, honest, max_units, sampling, terms)?)
            }
        })
    }
}

/// `[aggregation]` of `task.toml`, with `trust = "aggregated"` only.
#[derive(Debug, Clone, Copy, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RawAggregation {
    /// M. Default: `expected_sites`.
    pub sites: Option<u32>,
    /// f: sites that may be missing from a round. Default: 0.
    pub dropouts: Option<u32>,
    /// c. Default: 1.
    pub colluders: Option<u32>,
    /// Cap on h: it bounds the fallback ε, which is what a site has if all others' shares are known. Default: 20.
    pub honest_cap: Option<u32>,
    /// N: public bound on the number of units (or shards) of one site.
    pub max_units: u64,
    /// Default: 0.05.
    pub max_rounding_loss: Option<f64>,
}

impl RawAggregation {
    pub(super) fn resolve(&self, expected_sites: u32) -> Result<AggregationSpec, TaskError> {
        let (sites, colluders) = (self.sites.unwrap_or(expected_sites), self.colluders.unwrap_or(1));
        let missing = u64::from(self.dropouts.unwrap_or(0)) + u64::from(colluders);
        // At most `sites`, which fits.
        let honest = u32::try_from(u64::from(sites).saturating_sub(missing)).unwrap_or(0);
        let spec = AggregationSpec {
            sites,
            colluders,
            honest: honest.min(self.honest_cap.unwrap_or(20)),
            max_units: self.max_units,
            max_rounding_loss: self.max_rounding_loss.unwrap_or(0.05),
        };
        spec.check()?;
        Ok(spec)
    }
}

impl AggregationSpec {
    /// Fewest contributors of a sum: h honest ones beside c colluding ones.
    #[must_use]
    pub fn min_contributors(&self) -> u32 {
        self.honest.saturating_add(self.colluders)
    }

    fn check(&self) -> Result<(), TaskError> {
        require(
            self.sites >= 3,
            "aggregation buys nothing with fewer than 3 sites: each could subtract its own vector and see the other's; use trust = \"local\"",
        )?;
        require(
            self.honest >= 2,
            "at most one honest site is left after dropouts and colluders: its share would be the whole noise; ask for fewer of either, or use trust = \"local\"",
        )?;
        require(self.min_contributors() <= self.sites, "[aggregation] counts on more sites than there are")?;
        require(self.max_units >= 1, "max_units of [aggregation] must be at least 1")?;
        require(self.max_rounding_loss > 0.0 && self.max_rounding_loss <= 1.0, "max_rounding_loss must be above 0 and at most 1")
    }
}

impl ResolvedTask {
    /// What trust asks of the rest of the task.
    pub(super) fn check_aggregation(&self) -> Result<(), TaskError> {
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
                self.update.rules().each_visit(self, 0..self.visits(), &mut |visit| match visit.sum {
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
        self.update.rules().sum(self, visit)
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
        self.update.rules().each_visit(self, visits, &mut |visit| {
            let event = self.fallback_of(visit.sum)?.unwrap_or(visit.event);
            match events.last_mut() {
                Some((last, count)) if *last == event => *count += 1,
                _ => events.push((event, 1)),
            }
            Ok(())
        })?;
        Ok(events)
    }

    /// What is left of a sum if all other sites' shares of the noise are known; only under aggregation.
    fn fallback_of(&self, sum: Option<SumSpec>) -> Result<Option<DpEvent>, TaskError> {
        match (&self.aggregation, sum) {
            (Some(_), Some(sum)) => Ok(sum.mechanism(self)?.fallback_event()),
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
        self.update.rules().each_visit(self, 0..visits, &mut |visit| {
            events.extend(self.fallback_of(visit.sum)?);
            Ok(())
        })?;
        Ok(Some(epsilon_upper(&events, self.privacy.relation, self.privacy.delta)?))
    }

    /// The mechanism of a sum of clipped terms under the task's trust model; `noise` is z of the sum that the server sees.
    ///
    /// # Errors
    /// Numbers that do not fit the lattice.
    pub fn sum_mechanism(
        &self,
        coordinates: usize,
        clip: ClipNorm,
        noise: NoiseMultiplier,
        sampling: Option<SamplingRate>,
        terms: Terms,
    ) -> Result<SumMechanism, TaskError> {
        let Ok(coordinates) = u32::try_from(coordinates) else { return invalid("the model has too many parameters for one sum") };
        SumSpec { coordinates, clip, noise, sampling, terms }.mechanism(self)
    }
}

impl MessageForm {
    /// What a site sends that releases such a sum.
    #[must_use]
    pub fn of_sum(mechanism: &SumMechanism) -> Self {
        let exponent = mechanism.exponent();
        let kind = match mechanism {
            SumMechanism::Local(_) => PayloadKind::Lattice { exponent },
            SumMechanism::Shared(_) => PayloadKind::Masked { exponent },
        };
        Self { kind, coordinates: mechanism.dimension().into() }
    }
}
