//! Parameters of aggregated trust: number of sites, number of honest shares of noise, and bounds of a site's part.

use serde::{Deserialize, Serialize};

use super::TaskError;
use super::check::require;

/// Aggregated trust in numbers. M sites add a share of the noise each; with at most f of them missing and c of them
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
    /// The numbers with their defaults, checked.
    ///
    /// # Errors
    /// Parameters with which aggregation gives no protection.
    pub fn resolve(&self, expected_sites: u32) -> Result<AggregationSpec, TaskError> {
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

    /// Refuses parameters with which aggregation gives no protection.
    ///
    /// # Errors
    /// What is refused, in words.
    pub fn check(&self) -> Result<(), TaskError> {
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
