//! What a run's transcript says of sites and rounds.

use std::collections::BTreeMap;

use serde::Deserialize;

use super::fields::Fields;
use super::{Unproved, demand, refused};

/// One line: a round, or the end.
#[derive(Deserialize)]
struct Line<'a> {
    task: String,
    run: u32,
    round: Option<u32>,
    #[serde(default)]
    included: Vec<Included>,
    previous: Option<String>,
    hash: Option<String>,
    lambda_before: Option<String>,
    lambda: Option<String>,
    #[serde(borrow)]
    answered: Option<Fields<'a>>,
}

#[derive(Deserialize)]
struct Included {
    client: String,
}

/// Rounds, and the sites with the visits that each answered, in order.
pub(super) struct Transcript {
    pub(super) rounds: u32,
    pub(super) answered: Vec<(String, u32)>,
}

impl Transcript {
    /// Reads a transcript of this run: rounds of which each names the hash of the one before, and the line about the end. That the hashes are those of the rounds is not
    /// computed.
    ///
    /// # Errors
    /// Other files, another run, a round that is missing.
    pub(super) fn read(file: &[u8], task: &str, run: u32) -> Result<Self, Unproved> {
        let lines = serde_json::Deserializer::from_slice(file).into_iter().collect::<Result<Vec<Line<'_>>, _>>();
        let Ok(lines) = lines else { return refused("the transcript is none, as `dp-pvi-server export --transcript` writes it") };
        demand(lines.iter().all(|line| line.task == task), "the transcript is of another task than the posterior")?;
        lines.iter().try_for_each(|line| demand(line.run == run, format!("the transcript is of run {}, not {run}", line.run)))?;
        let Some((end, rounds)) = lines.split_last() else { return refused("the transcript is empty") };
        let Some(answered) = &end.answered else { return refused("the transcript has no line about the end: export it again") };
        let answered: BTreeMap<_, _> = answered.numbers()?.into_iter().collect();
        let numbered = rounds.iter().zip(0..).all(|(line, number)| line.round == Some(number) && line.answered.is_none());
        let linked = rounds.windows(2).all(|two| (&two[0].hash, &two[0].lambda) == (&two[1].previous, &two[1].lambda_before));
        let whole = rounds.iter().all(|line| line.hash.is_some() && line.lambda.is_some());
        demand(numbered && linked && whole && end.round.is_none(), "the transcript is no unbroken chain of rounds")?;
        for (site, visits) in &answered {
            let included = rounds.iter().flat_map(|line| &line.included).filter(|included| included.client == *site).count();
            demand(included <= *visits as usize, "the transcript has more updates of a site than it answered")?;
        }
        let known = rounds.iter().flat_map(|line| &line.included).all(|included| answered.contains_key(&included.client));
        demand(known, "the transcript has an update of nobody")?;
        Ok(Self { rounds: u32::try_from(rounds.len()).unwrap_or(u32::MAX), answered: answered.into_iter().collect() })
    }
}
