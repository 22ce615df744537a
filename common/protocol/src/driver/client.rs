//! The loops of a site and of an evaluator.

use dp_pvi_privacy::ledger::{LedgerStore, RowSigner};

use super::{Clock, DriveError, Evaluate, Observer, Patience, SiteOutcome, Trainer};
use crate::message::RunEnd;
use crate::participant::{EvaluatorParticipant, Participant};
use crate::transport::Transport;

/// Runs a site until the run is over. After an error (or a crash at any instant) the same call with a participant over the
/// reopened ledger goes on where it was.
///
/// # Errors
/// See [`DriveError`].
pub async fn drive_site<S: LedgerStore, K: RowSigner>(
    participant: &mut Participant<S, K>,
    transport: &mut impl Transport,
    trainer: &mut impl Trainer,
    clock: &impl Clock,
    observer: &mut impl Observer,
    patience: &Patience,
) -> Result<SiteOutcome, DriveError> {
    let _ = (participant, transport, trainer, clock, observer, patience);
    unimplemented!("contract")
}

/// Runs an evaluator until the run is over and the last posterior was reported.
///
/// # Errors
/// See [`DriveError`].
pub async fn drive_evaluator(
    participant: &mut EvaluatorParticipant,
    transport: &mut impl Transport,
    evaluator: &mut impl Evaluate,
    clock: &impl Clock,
    observer: &mut impl Observer,
    patience: &Patience,
) -> Result<RunEnd, DriveError> {
    let _ = (participant, transport, evaluator, clock, observer, patience);
    unimplemented!("contract")
}
