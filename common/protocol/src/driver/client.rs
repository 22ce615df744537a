//! The loops of a site and of an evaluator.

use std::sync::Arc;
use std::time::Duration;

use dp_pvi_posterior::task::ResolvedTask;
use dp_pvi_privacy::ledger::{ChargeStore, RowSigner};
use dp_pvi_secagg::charter::SignedCharter;

use super::{Clock, DriveError, Evaluate, Event, Observer, Patience, SiteOutcome, TrainErrorKind, Trainer};
use crate::message::{Next, RefusalReason, RunEnd, Signed, Welcome};
use crate::participant::{Evaluation, EvaluatorParticipant, EvaluatorStep, Outgoing, Participant, SiteError, Step};
use crate::time::Timestamp;
use crate::transport::{Rejection, Transport, TransportError};

/// Runs a site until the run is over. After an error (or a crash at any instant) the same call with a participant over the
/// reopened ledger goes on where it was.
///
/// # Errors
/// See [`DriveError`].
pub async fn drive_site<S: ChargeStore, K: RowSigner>(
    participant: &mut Participant<S, K>,
    transport: &mut impl Transport,
    trainer: &mut impl Trainer,
    clock: &impl Clock,
    observer: &mut impl Observer,
    patience: &Patience,
) -> Result<SiteOutcome, DriveError> {
    let mut calls = Calls::new(clock, patience);
    let mut refusals = Vec::new();
    let mut sent = 0;
    'hello: loop {
        let hello = participant.hello();
        let greeting = match transport.hello(&hello).await {
            Ok(greeting) => greeting,
            Err(error) => {
                calls.failed(error, observer).await?;
                continue;
            }
        };
        let welcomed = participant.on_welcome(&hello, &greeting);
        doubt(participant, observer);
        let task = match welcomed {
            Ok(task) => task,
            Err(error) => {
                withdraw_for(participant, &error, transport).await;
                return Err(error.into());
            }
        };
        joined(&greeting.welcome, &task, observer);
        let run = greeting.welcome.peek().map_err(SiteError::Message)?.run;
        if let Err(error) = trainer.prepare(&run, &task).await {
            let reason = match error.kind {
                TrainErrorKind::Data => RefusalReason::Policy,
                TrainErrorKind::Resource | TrainErrorKind::Internal => RefusalReason::Unable,
            };
            withdraw(participant, reason, transport).await;
            return Err(error.into());
        }
        transport.admit(task.state_len());
        calls.succeeded();
        loop {
            let next = match transport.next(participant.seen()).await {
                Ok(next) => next,
                Err(error) => {
                    calls.failed(error, observer).await?;
                    continue 'hello;
                }
            };
            calls.succeeded();
            let seen = participant.seen();
            if let Next::Charter(charter) = &next {
                proposed(charter, observer);
            }
            if participant.would_train(&next)
                && let Err(error) = trainer.ready().await
            {
                withdraw(participant, RefusalReason::Unable, transport).await;
                return Err(error.into());
            }
            let charter = matches!(next, Next::Charter(_));
            let mut step = match participant.on_next(next) {
                Ok(step) => step,
                Err(error) => {
                    // All sites sign a charter or none: the others learn why this one does not.
                    if charter && matches!(error, SiteError::Unapproved(_) | SiteError::Aggregation(_)) {
                        withdraw_for(participant, &error, transport).await;
                    }
                    // Asked for what comes after those rounds, the server finds that it lacks them, and tells its operator.
                    if let SiteError::ServerBehind { seen } = error {
                        let _ = transport.next(seen).await;
                    }
                    return Err(error.into());
                }
            };
            if participant.seen() > seen {
                observer.on_event(&Event::Seen { entries: participant.seen() });
            }
            if let Step::Train(job) = step {
                let release = job.permit.release().clone();
                let round = release.round;
                observer.on_event(&Event::Training { round, visit: job.visit });
                let trained = match trainer.train(*job).await {
                    Ok(trained) => trained,
                    Err(error) => {
                        // The reservation stays charged, and a restart computes the visit again; until then no one needs to wait.
                        withdraw(participant, RefusalReason::Unable, transport).await;
                        return Err(error.into());
                    }
                };
                let outgoing = participant.on_trained(trained, &mut trainer.randomness(&release)?)?;
                observer.on_event(&Event::Committed { round });
                step = Step::Send(Box::new(outgoing));
            }
            match step {
                Step::Wait => clock.sleep(patience.idle).await,
                Step::More => {}
                Step::Consent(signature) => {
                    if let Err(error) = transport.consent(&signature).await {
                        calls.failed(error, observer).await?;
                        continue 'hello;
                    }
                    calls.succeeded();
                }
                // Trained above.
                Step::Train(_) => {}
                Step::Send(outgoing) => {
                    wait_for_tick(&outgoing, &task, clock, observer).await;
                    participant.on_sending(&outgoing)?;
                    observer
                        .on_event(&Event::Sending { round: outgoing.release.round, bytes: outgoing.attachment.payload().len() as u64 * 8 });
                    match transport.submit(&outgoing.attachment).await {
                        Ok(receipt) => {
                            let outcome = participant.on_receipt(&outgoing, &receipt)?;
                            doubt(participant, observer);
                            sent += 1;
                            calls.succeeded();
                            observer.on_event(&Event::Receipted { round: outgoing.release.round, outcome });
                        }
                        Err(error) => {
                            calls.failed(error, observer).await?;
                            continue 'hello;
                        }
                    }
                }
                Step::Refuse(refusal, reason) => {
                    if let Err(error) = transport.refuse(&refusal).await {
                        calls.failed(error, observer).await?;
                        continue 'hello;
                    }
                    calls.succeeded();
                    let round = participant.seen();
                    observer.on_event(&Event::Refused { round, reason });
                    if refusals.last() != Some(&(round, reason)) {
                        refusals.push((round, reason));
                    }
                    clock.sleep(patience.idle).await;
                }
                Step::Finished(end) => {
                    // Everything is settled: asking once more, with all entries in hand, tells the server that it need not wait.
                    let _ = transport.next(participant.seen()).await;
                    observer.on_event(&Event::Finished { outcome: end.outcome });
                    return Ok(SiteOutcome { end: *end, refusals, sent });
                }
            }
        }
    }
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
    let mut calls = Calls::new(clock, patience);
    // A report whose answer was lost is sent again, and not computed again.
    let mut evaluated: Option<Evaluated> = None;
    'hello: loop {
        let hello = participant.hello();
        let welcome = match transport.hello(&hello).await {
            Ok(greeting) => greeting.welcome,
            Err(error) => {
                calls.failed(error, observer).await?;
                continue;
            }
        };
        let task = participant.on_welcome(&hello, &welcome)?;
        joined(&welcome, &task, observer);
        evaluator.prepare(&task).await?;
        transport.admit(task.state_len());
        calls.succeeded();
        loop {
            let next = match transport.next(participant.seen()).await {
                Ok(next) => next,
                Err(error) => {
                    calls.failed(error, observer).await?;
                    continue 'hello;
                }
            };
            calls.succeeded();
            let (evaluation, end) = match participant.on_next(next)? {
                EvaluatorStep::Wait => {
                    clock.sleep(patience.idle).await;
                    continue;
                }
                EvaluatorStep::More => continue,
                EvaluatorStep::Evaluate(evaluation) => (evaluation, None),
                EvaluatorStep::Finished(evaluation, end) => (evaluation, Some(end)),
            };
            if evaluated.as_ref().is_none_or(|known| known.round != evaluation.round) {
                evaluated = Some(evaluate(&evaluation, evaluator).await?);
            }
            if let Some(known) = evaluated.as_mut().filter(|known| !known.reported) {
                let report = participant.report(&evaluation, known.metrics.clone());
                let report = report.ok_or(SiteError::Order("metrics before the welcome"))?;
                if let Err(error) = transport.report(&report).await {
                    calls.failed(error, observer).await?;
                    continue 'hello;
                }
                known.reported = true;
                observer.on_event(&Event::Reported { round: known.round, metrics: known.metrics.get() });
            }
            if let Some(end) = end {
                // As a site does.
                let _ = transport.next(participant.seen()).await;
                observer.on_event(&Event::Finished { outcome: end.outcome });
                return Ok(*end);
            }
        }
    }
}

/// Metrics of the posterior that was evaluated last.
struct Evaluated {
    round: u32,
    metrics: crate::message::PublicMetrics,
    reported: bool,
}

async fn evaluate(evaluation: &Evaluation, evaluator: &mut impl Evaluate) -> Result<Evaluated, DriveError> {
    let metrics = evaluator.evaluate(&evaluation.lambda).await?;
    Ok(Evaluated { round: evaluation.round, metrics, reported: false })
}

/// Shows a charter, so that someone can compare it before it is signed.
fn proposed(charter: &[u8], observer: &mut impl Observer) {
    if let Ok(signed) = SignedCharter::from_bytes(charter)
        && let Ok(text) = signed.text()
    {
        observer.on_event(&Event::Charter { hash: signed.hash(), text: &text });
    }
}

/// Tells of a server that claims to have seen what this site never said.
fn doubt<S: ChargeStore, K: RowSigner>(participant: &mut Participant<S, K>, observer: &mut impl Observer) {
    if let Some(claimed) = participant.take_unproved() {
        observer.on_event(&Event::UnprovedWitness { claimed: claimed.seq, here: participant.ledger().head().seq });
    }
}

fn joined(welcome: &Signed<Welcome>, task: &Arc<ResolvedTask>, observer: &mut impl Observer) {
    if let Ok(welcome) = welcome.peek() {
        observer.on_event(&Event::Joined { run: welcome.run, task });
    }
}

/// Tells the server that it need not wait for this site. If that fails its deadline does the same.
async fn withdraw<S: ChargeStore, K: RowSigner>(participant: &Participant<S, K>, reason: RefusalReason, transport: &mut impl Transport) {
    if let Some(refusal) = participant.withdrawal(reason) {
        let _ = transport.refuse(&refusal).await;
    }
}

/// The same for an error, unless this process works on a copy of the ledger: what such a copy says would take the site itself out of the run.
async fn withdraw_for<S: ChargeStore, K: RowSigner>(participant: &Participant<S, K>, error: &SiteError, transport: &mut impl Transport) {
    if !error.is_of_a_copy() {
        withdraw(participant, error.reason(), transport).await;
    }
}

/// An update leaves at a multiple of the public tick, whatever its computation took.
async fn wait_for_tick(outgoing: &Outgoing, task: &ResolvedTask, clock: &impl Clock, observer: &mut impl Observer) {
    let wait = clock.now().until_next(Duration::from_secs(task.release_tick_seconds));
    if !wait.is_zero() {
        observer.on_event(&Event::Waiting { round: outgoing.release.round, wait });
        clock.sleep(wait).await;
    }
}

/// Longest time that one try, and the pause before it, add to how long a server is away: a clock that jumped, or a process that was stopped, does
/// not end anyone's patience.
const ONE_TRY: Duration = Duration::from_secs(60);

/// Patience over all calls.
struct Calls<'a, C> {
    clock: &'a C,
    patience: &'a Patience,
    /// Last time that a call ended.
    last: Timestamp,
    /// How long nothing has succeeded.
    away: Duration,
    reached: bool,
    failures: u32,
}

impl<'a, C: Clock> Calls<'a, C> {
    fn new(clock: &'a C, patience: &'a Patience) -> Self {
        Self { clock, patience, last: clock.now(), away: Duration::ZERO, reached: false, failures: 0 }
    }

    fn succeeded(&mut self) {
        self.last = self.clock.now();
        (self.away, self.reached, self.failures) = (Duration::ZERO, true, 0);
    }

    /// Waits before the next try, or gives the error up.
    async fn failed(&mut self, error: TransportError, observer: &mut impl Observer) -> Result<(), TransportError> {
        let again = match &error {
            TransportError::Unreachable(_) => true,
            TransportError::Rejected { kind, .. } => *kind == Rejection::HelloFirst,
        };
        let now = self.clock.now();
        self.away = self.away.saturating_add(now.since(self.last).min(ONE_TRY));
        self.last = now;
        let Patience { give_up_after, first_contact, .. } = self.patience;
        let patience = if self.reached { *give_up_after } else { *first_contact.min(give_up_after) };
        if !again || self.away >= patience {
            return Err(error);
        }
        self.failures += 1;
        let wait = self.patience.between.after(self.failures).mul_f64((self.patience.jitter)(self.failures).clamp(0.01, 1.0));
        observer.on_event(&Event::Retrying { failures: self.failures, wait, error: &error });
        self.clock.sleep(wait).await;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::pin::pin;
    use std::task::{Context, Poll, Waker};

    use super::*;

    /// A clock that goes on when someone sleeps.
    struct Steps(Cell<u64>);

    impl Clock for Steps {
        fn now(&self) -> Timestamp {
            Timestamp::from_millis(self.0.get())
        }

        async fn sleep(&self, duration: Duration) {
            self.0.set(self.now().plus(duration).as_millis());
        }
    }

    /// Fails until patience ends; `jump` sets the clock forth before the third failure. How long it took beside the jump.
    fn patience_of(reached: bool, jump: Duration) -> Duration {
        let clock = Steps(Cell::new(1_000_000));
        let patience = Patience { give_up_after: Duration::from_secs(600), first_contact: Duration::from_secs(60), ..Patience::default() };
        let mut calls = Calls::new(&clock, &patience);
        if reached {
            calls.succeeded();
        }
        let start = clock.now();
        let (mut jumped, mut nobody) = (Duration::ZERO, ());
        for failure in 0.. {
            if failure == 2 {
                clock.0.set(clock.now().plus(jump).as_millis());
                jumped = jump;
            }
            let mut failed = pin!(calls.failed(TransportError::Unreachable(String::new()), &mut nobody));
            match failed.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
                Poll::Ready(Ok(())) => {}
                Poll::Ready(Err(_)) => break,
                Poll::Pending => unreachable!("this clock never waits"),
            }
        }
        clock.now().since(start).saturating_sub(jumped)
    }

    #[test]
    fn a_server_that_was_never_reached_is_given_up_soon_and_one_that_was_is_waited_for() {
        let between = |waited: Duration, from, to| (from..=to).contains(&waited.as_secs());
        assert!(between(patience_of(false, Duration::ZERO), 60, 60 + LONGEST), "{:?}", patience_of(false, Duration::ZERO));
        assert!(between(patience_of(true, Duration::ZERO), 600, 600 + LONGEST), "{:?}", patience_of(true, Duration::ZERO));
    }

    #[test]
    fn a_jump_of_the_clock_ends_no_client_s_patience() {
        let waited = patience_of(true, Duration::from_secs(365 * 24 * 3600));
        assert!(waited >= Duration::from_secs(600) - ONE_TRY, "{waited:?}");
    }

    const LONGEST: u64 = super::super::LONGEST_PAUSE.as_secs();
}
