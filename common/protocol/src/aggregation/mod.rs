//! Aggregated trust over the protocol: who agrees on what, and what is asked of the summer. The cryptography and its rules are
//! those of `dp-pvi-secagg`; here they are tied to runs, rounds and records.
//!
//! * [`host`]: the server's part of a run: the charter and its signatures, the header of every round, the closing, the sum.
//! * [`member`]: a site's part: what it checks before it signs, accepts, masks and settles.
//! * [`summer`]: the second party's whole work, as answers to requests.
//!
//! # A run
//! 1. When all sites of the task have joined, the server drafts the charter: the sums of every visit as the task states them, the keys
//!    of all parties. Every site compares it with the task, its own floors and its pinned keys, and signs; so does the summer. Without all
//!    signatures there is no first round.
//! 2. A round's header holds the summer's fresh key, and both have signed it. It travels inside the protocol's own header, which the
//!    server signs as ever; so one chain of entries covers both.
//! 3. A site's update carries masked words, the sealed seed of the mask and the commitment. The server sees sums only.
//! 4. At close the set of contributors is durable before the summer is asked, so that a restarted server asks for the same set.
//!
//! A summer that does not answer until a deadline has passed suspends the run, one that refuses for good ends it; so does a charter that is
//! not signed by all. Charges stay.

pub mod host;
pub mod member;
pub mod summer;

use crate::codec::{decode, encode};
use dp_pvi_names::ClientId;
use dp_pvi_posterior::task::{AggregationSpec, ResolvedTask, SumSpec, TaskError};
use dp_pvi_secagg::charter::SignedCharter;
use dp_pvi_secagg::closing::{CloseRequest, MaskSum};
use dp_pvi_secagg::header::{KeyOffer, ProposedHeader, SignedHeader};
use dp_pvi_secagg::plan::PlanRequest;
use dp_pvi_secagg::signed::Signed;
use dp_pvi_secagg::transcript::SignedEntry;
use serde::{Deserialize, Serialize};

/// What the server asks the summer, under which charter. The charter comes along each time, so that a restarted summer can answer.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SummerRequest {
    /// The charter; signed by all parties but where its signature is asked for.
    pub charter: SignedCharter,
    /// What is asked.
    pub ask: SummerCall,
}

impl SummerRequest {
    /// As it travels.
    #[must_use]
    pub fn to_bytes(&self) -> Vec<u8> {
        encode(self)
    }

    /// Reads [`SummerRequest::to_bytes`]; nothing in it is verified.
    #[must_use]
    pub fn from_bytes(bytes: &[u8]) -> Option<Self> {
        decode(bytes)
    }
}

/// What is asked of the summer.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum SummerCall {
    /// To sign the charter.
    Sign,
    /// For the key of the next round.
    Offer {
        /// The entry of the round before, which the summer follows first; none before round 0.
        last: Option<SignedEntry>,
    },
    /// To sign a round's header.
    Countersign(ProposedHeader),
    /// For the sum of the masks of U.
    Close(CloseRequest),
}

/// What the summer answers.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum SummerReply {
    /// Its signature on the charter.
    Charter(Vec<u8>),
    /// The key of the round.
    Offer(Signed<KeyOffer>),
    /// The header, signed by both.
    Header(SignedHeader),
    /// The sum of the masks.
    Masks(MaskSum),
    /// A seed that cannot be opened: the round may be closed without that site.
    BadSeed(ClientId),
    /// No, in words for an operator: asked again it may say yes.
    Refused(String),
    /// No, and for ever: the run cannot go on.
    Never(String),
}

impl SummerReply {
    /// As it travels.
    #[must_use]
    pub fn to_bytes(&self) -> Vec<u8> {
        encode(self)
    }

    /// Reads [`SummerReply::to_bytes`]; nothing in it is verified.
    #[must_use]
    pub fn from_bytes(bytes: &[u8]) -> Option<Self> {
        decode(bytes)
    }
}

/// What is to be agreed in a charter: the sums of every visit, with how many visits in a row are alike.
///
/// # Errors
/// Numbers out of range, or an update without a sum.
pub fn plans(task: &ResolvedTask, spec: &AggregationSpec) -> Result<Vec<(PlanRequest, u32)>, TaskError> {
    let mut plans: Vec<(PlanRequest, u32)> = Vec::new();
    for visit in 0..task.visits() {
        let Some(SumSpec { coordinates, clip, noise, sampling, terms }) = task.sum(visit)? else {
            return Err(TaskError::Invalid("a visit has no sum that could be aggregated".into()));
        };
        let request = PlanRequest {
            members: spec.sites,
            dropouts: spec.sites - spec.min_contributors(),
            colluders: spec.colluders,
            honest_cap: spec.honest,
            dimension: coordinates,
            clip,
            noise,
            max_units: spec.max_units,
            sampling,
            terms,
            max_rounding_loss: spec.max_rounding_loss,
        };
        match plans.last_mut() {
            Some((last, count)) if *last == request => *count += 1,
            _ => plans.push((request, 1)),
        }
    }
    Ok(plans)
}
