//! Conversions that both directions share. A frame becomes a checked type here or not at all.

use bytes::Bytes;
use dp_pvi_names::{ClientId, Hash};
use dp_pvi_protocol::bounds::{self, OutOfBounds};
use dp_pvi_protocol::message::{RoundOutcome, RunOutcome, Signed, TranscriptEntry};
use dp_pvi_protocol::witness::SignedHead;
use prost::Message;

use crate::{WITNESS_BYTES, v1};

/// A frame that does not say what its place asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum FrameError {
    /// A part is missing.
    #[error("a frame lacks its {0}: the other side is of another version")]
    Missing(&'static str),
    /// A part has another form.
    #[error("a frame carries a wrong {0}: the other side is of another version")]
    Wrong(&'static str),
    /// Frames come in another order, or too many.
    #[error("frames come in the wrong order or number")]
    Order,
    /// More bytes than announced or allowed.
    #[error("a vector is longer than announced")]
    TooLong,
    /// A number that no honest party says.
    #[error(transparent)]
    Bounds(#[from] OutOfBounds),
}

/// A signed message as it travels. Its bytes are copied, never encoded again.
#[must_use]
pub(crate) fn signed_to_wire<B>(message: &Signed<B>) -> v1::SignedMessage {
    v1::SignedMessage { body: Bytes::copy_from_slice(&message.body), signature: Bytes::copy_from_slice(&message.signature) }
}

/// A signed message as received; nothing is verified.
#[must_use]
pub(crate) fn signed_from_wire<B: dp_pvi_protocol::message::Body>(message: v1::SignedMessage) -> Signed<B> {
    Signed::from_parts(message.body.into(), message.signature.into())
}

/// A site's word about its ledger as it travels.
pub(crate) fn witness_to_wire(signed: &SignedHead) -> v1::LedgerWitness {
    use v1::ledger_witness::Said;
    let said = match signed {
        SignedHead::Hello(hello) => Said::Hello(signed_to_wire(hello)),
        SignedHead::Update(update) => Said::Update(signed_to_wire(update)),
    };
    v1::LedgerWitness { said: Some(said) }
}

/// A site's word about its ledger as received; nothing is verified.
pub(crate) fn witness_from_wire(witness: v1::LedgerWitness) -> Result<SignedHead, FrameError> {
    use v1::ledger_witness::Said;
    let (bytes, signed) = match witness.said.ok_or(FrameError::Missing("witness"))? {
        Said::Hello(hello) => (hello.body.len(), SignedHead::Hello(signed_from_wire(hello))),
        Said::Update(update) => (update.body.len(), SignedHead::Update(signed_from_wire(update))),
    };
    if bytes <= WITNESS_BYTES { Ok(signed) } else { Err(FrameError::TooLong) }
}

pub(crate) fn hash_from_wire(bytes: &[u8], what: &'static str) -> Result<Hash, FrameError> {
    bytes.try_into().map(Hash).map_err(|_| FrameError::Wrong(what))
}

pub(crate) fn hash_to_wire(hash: &Hash) -> Bytes {
    Bytes::copy_from_slice(&hash.0)
}

pub(crate) fn entry_to_wire(entry: &TranscriptEntry) -> v1::TranscriptEntry {
    let outcome = match entry.outcome {
        RoundOutcome::Complete => v1::RoundOutcome::Complete,
        RoundOutcome::Deadline => v1::RoundOutcome::Deadline,
        RoundOutcome::Skipped => v1::RoundOutcome::Skipped,
        RoundOutcome::Aborted => v1::RoundOutcome::Aborted,
        RoundOutcome::WithoutSilent => v1::RoundOutcome::WithoutSilent,
    };
    v1::TranscriptEntry {
        header: Some(signed_to_wire(&entry.header)),
        included: entry
            .included
            .iter()
            .map(|(client, update)| v1::Included { client: client.as_str().to_owned(), update: hash_to_wire(update) })
            .collect(),
        outcome: outcome.into(),
        lambda: hash_to_wire(&entry.lambda),
        previous: hash_to_wire(&entry.previous),
        aggregation: entry.aggregation_bytes().map(Into::into),
    }
}

pub(crate) fn entry_from_wire(bytes: Bytes) -> Result<TranscriptEntry, FrameError> {
    let entry = v1::TranscriptEntry::decode(bytes).map_err(|_| FrameError::Wrong("transcript entry"))?;
    let outcome = match entry.outcome() {
        v1::RoundOutcome::Complete => RoundOutcome::Complete,
        v1::RoundOutcome::Deadline => RoundOutcome::Deadline,
        v1::RoundOutcome::Skipped => RoundOutcome::Skipped,
        v1::RoundOutcome::Aborted => RoundOutcome::Aborted,
        v1::RoundOutcome::WithoutSilent => RoundOutcome::WithoutSilent,
        v1::RoundOutcome::Unspecified => return Err(FrameError::Wrong("round outcome")),
    };
    bounds::included(entry.included.len())?;
    Ok(TranscriptEntry {
        header: signed_from_wire(entry.header.ok_or(FrameError::Missing("header"))?),
        included: entry
            .included
            .into_iter()
            .map(|i| {
                Ok((ClientId::new(i.client).map_err(|_| FrameError::Wrong("client name"))?, hash_from_wire(&i.update, "update hash")?))
            })
            .collect::<Result<_, FrameError>>()?,
        outcome,
        lambda: hash_from_wire(&entry.lambda, "posterior hash")?,
        previous: hash_from_wire(&entry.previous, "entry hash")?,
        aggregation: match entry.aggregation {
            None => None,
            Some(bytes) => Some(TranscriptEntry::read_aggregation(&bytes).ok_or(FrameError::Wrong("entry of the aggregation"))?),
        },
    })
}

pub(crate) fn run_outcome_to_wire(outcome: RunOutcome) -> v1::RunOutcome {
    match outcome {
        RunOutcome::Complete => v1::RunOutcome::Complete,
        RunOutcome::QuorumLost => v1::RunOutcome::QuorumLost,
        RunOutcome::AggregationLost => v1::RunOutcome::AggregationLost,
        RunOutcome::Stopped => v1::RunOutcome::Stopped,
        RunOutcome::Refused => v1::RunOutcome::Refused,
        RunOutcome::Converged => v1::RunOutcome::Converged,
    }
}

pub(crate) fn run_outcome_from_wire(outcome: v1::RunOutcome) -> Result<RunOutcome, FrameError> {
    match outcome {
        v1::RunOutcome::Complete => Ok(RunOutcome::Complete),
        v1::RunOutcome::QuorumLost => Ok(RunOutcome::QuorumLost),
        v1::RunOutcome::AggregationLost => Ok(RunOutcome::AggregationLost),
        v1::RunOutcome::Stopped => Ok(RunOutcome::Stopped),
        v1::RunOutcome::Refused => Ok(RunOutcome::Refused),
        v1::RunOutcome::Converged => Ok(RunOutcome::Converged),
        v1::RunOutcome::Unspecified => Err(FrameError::Wrong("run outcome")),
    }
}
