//! Bounds on the integers that a peer says in a charter or a header.
//!
//! A site compares a charter with its task, but the summer has no task: without these bounds a server could have it reserve as much memory as
//! 32 bits of dimension name. The text of a charter is compared where it is decoded ([`SignedCharter::text`](crate::charter::SignedCharter::text)),
//! so nothing is computed from a number above its bound. Everything else that is signed here (offers, headers, closings, entries) is compared with the
//! charter, field by field.
//!
//! | what | bound | why this one |
//! |---|---|---|
//! | members | 10⁴ | sites of a run |
//! | honest, colluders, fewest contributors | the members | |
//! | sums, and rounds of all sums together | 10⁵ | visits of a task |
//! | coordinates | 2²⁶ | the summer's one vector of them is 512 MiB |
//! | units of a site | 1 to 2³² | the lattice holds sums of 2³² terms |
//! | rounding loss | above 0, at most 1 | a task allows no other |
//! | number of the run | 10⁹ | |
//! | exponent, scale | what the gate computes from clip and noise | |
//! | deadline of a header | 2⁵³ | a time in seconds that every language reads exactly |
//! | uploads of a closing | the members | each costs a signature |

use crate::charter::CharterBody;
use crate::error::SecAggError;

/// Sites of a charter.
pub const MEMBERS: u32 = 10_000;
/// Rounds of a charter, and sums.
pub const ROUNDS: u32 = 100_000;
/// Coordinates of a sum.
pub const DIMENSION: u32 = 1 << 26;
/// Number of a run.
pub const RUNS: u32 = 1_000_000_000;
/// Seconds since 1970 at which a round closes.
pub const DEADLINE: u64 = 1 << 53;

/// Compares every integer of a charter's text.
pub(crate) fn charter(body: &CharterBody) -> Result<(), SecAggError> {
    let members = u32::try_from(body.members.len()).unwrap_or(u32::MAX);
    let rounds = body.sums.iter().try_fold(0u32, |rounds, sum| rounds.checked_add(sum.rounds));
    within(members <= MEMBERS, "it has more than 10000 sites")?;
    let thresholds = [body.honest, body.colluders, body.min_contributors];
    within(thresholds.iter().all(|threshold| *threshold <= members), "a threshold is above the number of sites")?;
    // Every part has a round, so there are at most as many parts as rounds.
    within(body.sums.iter().all(|sum| sum.rounds > 0) && !body.sums.is_empty(), "it has no rounds")?;
    within(rounds.is_some_and(|rounds| rounds <= ROUNDS), "it has more than 100000 rounds")?;
    within(body.sums.iter().all(|sum| (1..=DIMENSION).contains(&sum.dimension)), "a sum has no coordinates, or more than 2^26")?;
    within((1..=dp_pvi_privacy::mechanism::MAX_UNITS).contains(&body.max_units), "the units of a site are not between 1 and 2^32")?;
    within(body.max_rounding_loss > 0.0 && body.max_rounding_loss <= 1.0, "its rounding loss is not above 0 and at most 1")?;
    within(body.run.number <= RUNS, "the number of its run is above 10^9")
}

fn within(fits: bool, problem: &'static str) -> Result<(), SecAggError> {
    if fits { Ok(()) } else { Err(SecAggError::Charter(problem)) }
}
