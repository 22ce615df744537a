//! `[aggregation]`: whom this site takes for the second party of an aggregated run, and what it asks of the charter.

use std::path::{Path, PathBuf};

use dp_pvi_posterior::task::Trust;
use dp_pvi_secagg::charter::Floors;
use dp_pvi_secagg::plan::FEWEST;
use serde::Deserialize;

use crate::error::{ClientError, Result};

/// `[aggregation]`, checked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Aggregation {
    /// File with the summer's public identity key (a `PUBLIC KEY` block).
    pub summer: PathBuf,
    /// A charter below one of these is not signed, whatever the task says.
    pub floors: Floors,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawAggregation {
    summer: PathBuf,
    #[serde(default = "min_contributors")]
    min_contributors: u32,
    #[serde(default = "colluders")]
    colluders: u32,
    #[serde(default = "max_honest")]
    max_honest: u32,
    #[serde(default = "max_rounds")]
    max_rounds: u32,
}

fn min_contributors() -> u32 {
    Floors::default().min_contributors
}

fn colluders() -> u32 {
    Floors::default().colluders
}

fn max_honest() -> u32 {
    Floors::default().max_honest
}

fn max_rounds() -> u32 {
    Floors::default().max_rounds
}

impl RawAggregation {
    fn check(self, folder: &Path) -> Result<Aggregation> {
        let Self { summer, min_contributors, colluders, max_honest, max_rounds } = self;
        let refuse = |key: &str, message: String| Err(ClientError::config(format!("aggregation.{key}"), message));
        if min_contributors < FEWEST {
            return refuse("min_contributors", format!("is below {FEWEST}: a sum of two shows each of them the other's vector"));
        }
        if max_honest < 2 {
            return refuse("max_honest", "is below 2: no charter counts on fewer honest sites; use trust = \"local\" instead".into());
        }
        if max_rounds == 0 {
            return refuse(
                "max_rounds",
                "is 0, which refuses every charter: remove \"aggregated\" from [policy] allow_trust instead".into(),
            );
        }
        let floors = Floors { min_contributors, colluders, max_honest, max_rounds };
        Ok(Aggregation { summer: folder.join(summer), floors })
    }
}

/// The section, where there is one; it must be there where the policy allows aggregated trust.
pub(super) fn check(raw: Option<RawAggregation>, allow_trust: &[Trust], folder: &Path) -> Result<Option<Aggregation>> {
    match raw {
        Some(raw) => raw.check(folder).map(Some),
        None if allow_trust.contains(&Trust::Aggregated) => Err(ClientError::config(
            "aggregation.summer",
            "is missing, and [policy] allow_trust lists \"aggregated\": get the summer's public identity file from the people who run it, \
             compare its fingerprint with them, and name the file here",
        )),
        None => Ok(None),
    }
}
