//! Where the server's questions to the summer lie until they are answered.
//!
//! The engine puts the question that its run has now in the mailbox; the summer's stream takes it from there, and again from the next stream if
//! one breaks. An answer goes to the engine with the number of its question, so a late one changes nothing. A question whose answer
//! brought nothing is asked again, after a pause that grows.

use std::time::Duration;

use bytes::Bytes;
use dp_pvi_names::Hash;
use dp_pvi_protocol::aggregation::SummerRequest;
use dp_pvi_protocol::message::RunOutcome;
use dp_pvi_protocol::time::{Backoff, Timestamp};
use serde::{Deserialize, Serialize};
use tokio::sync::watch;

/// Pauses before a question is asked again.
const BETWEEN: Backoff = Backoff { first: Duration::from_millis(200), longest: Duration::from_secs(20) };

/// What lies in the mailbox.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) enum Posted {
    /// Nothing.
    #[default]
    Nothing,
    /// A question.
    Question {
        /// Its number.
        number: u64,
        /// A [`SummerRequest`] as it travels.
        bytes: Bytes,
    },
    /// The run is over.
    Over {
        /// How.
        outcome: RunOutcome,
        /// Its charter, if one was drafted.
        charter: Option<Hash>,
    },
}

/// Whether the summer is connected.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Presence {
    /// It is.
    Connected,
    /// Not any more.
    Gone,
}

/// The engine's side of the mailbox.
#[derive(Debug)]
pub(crate) struct Mailbox {
    posted: watch::Sender<Posted>,
    number: u64,
    /// What was asked last, until it is answered.
    open: Option<SummerRequest>,
    /// What was answered in vain, when to ask again, and after how many failures.
    vain: Option<(SummerRequest, Timestamp)>,
    failures: u32,
    /// Whether the summer knows that the run is over.
    notified: bool,
    presence: Presence,
}

impl Mailbox {
    /// An empty mailbox, and where to look at it.
    pub(crate) fn new() -> (Self, watch::Receiver<Posted>) {
        let (posted, receiver) = watch::channel(Posted::Nothing);
        (Self { posted, number: 0, open: None, vain: None, failures: 0, notified: false, presence: Presence::Gone }, receiver)
    }

    /// Puts down what the run asks now.
    pub(crate) fn put(&mut self, request: Option<SummerRequest>, now: Timestamp) {
        let Some(request) = request else {
            (self.open, self.vain, self.failures) = (None, None, 0);
            let question = |posted: &Posted| matches!(posted, Posted::Question { .. });
            self.posted.send_if_modified(|posted| question(posted) && std::mem::take(posted) != Posted::Nothing);
            return;
        };
        if self.open.as_ref() == Some(&request) {
            return;
        }
        match &self.vain {
            Some((vain, until)) if *vain == request && now < *until => return,
            Some((vain, _)) if *vain == request => {}
            _ => self.failures = 0,
        }
        self.number += 1;
        self.vain = None;
        self.posted.send_replace(Posted::Question { number: self.number, bytes: request.to_bytes().into() });
        self.open = Some(request);
    }

    /// Takes the open question off if this is its number.
    pub(crate) fn answered(&mut self, number: u64) -> Option<SummerRequest> {
        let question = if number == self.number { self.open.take() } else { None };
        if question.is_some() {
            self.posted.send_replace(Posted::Nothing);
        }
        question
    }

    /// The answer to this question brought nothing: it is asked again after a pause if the run still asks it then.
    pub(crate) fn in_vain(&mut self, question: SummerRequest, now: Timestamp) {
        self.failures = self.failures.saturating_add(1);
        self.vain = Some((question, now.plus(BETWEEN.after(self.failures))));
    }

    /// Time was lost: what was asked in vain may be asked again at once.
    pub(crate) fn begin_anew(&mut self) {
        self.vain = None;
    }

    /// When [`Mailbox::put`] may ask again.
    pub(crate) fn wake_at(&self) -> Option<Timestamp> {
        self.vain.as_ref().map(|(_, until)| *until)
    }

    /// The run is over.
    pub(crate) fn over(&mut self, outcome: RunOutcome, charter: Option<Hash>) {
        (self.open, self.vain) = (None, None);
        let over = Posted::Over { outcome, charter };
        self.posted.send_if_modified(|posted| std::mem::replace(posted, over.clone()) != over);
    }

    /// The summer has been told that the run is over.
    pub(crate) fn notify(&mut self) {
        self.notified = true;
    }

    /// Whether it has.
    pub(crate) fn is_notified(&self) -> bool {
        self.notified
    }

    /// The summer came or went.
    pub(crate) fn seat(&mut self, presence: Presence) {
        self.presence = presence;
    }

    /// Whether the run waits for an answer: a question lies here, or is asked again after a pause.
    pub(crate) fn waits(&self) -> bool {
        self.open.is_some() || self.vain.is_some()
    }

    /// Whether the summer is here.
    pub(crate) fn presence(&self) -> Presence {
        self.presence
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use dp_pvi_accounting::{ClipNorm, NoiseMultiplier, Terms};
    use dp_pvi_names::RunId;
    use dp_pvi_protocol::aggregation::SummerCall;
    use dp_pvi_secagg::charter::{CharterBody, Member, Parties, SignedCharter};
    use dp_pvi_secagg::plan::PlanRequest;
    use dp_pvi_secagg::signed::PublicKey;

    use super::*;

    fn request(run: u32) -> SummerRequest {
        let key = |number: u8| PublicKey(ed25519_dalek::SigningKey::from_bytes(&[number; 32]).verifying_key().to_bytes());
        let members = (0..3).map(|site| Member { id: dp_pvi_names::ClientId::new(format!("s{site}")).unwrap(), key: key(10 + site) });
        let parties = Parties {
            run: RunId { task: Hash::default(), number: run },
            authority: Hash::default(),
            server: key(1),
            summer: key(2),
            members: members.collect(),
        };
        let plan = PlanRequest {
            members: 3,
            dropouts: 0,
            colluders: 1,
            honest_cap: 3,
            dimension: 3,
            clip: ClipNorm::new(1.0).unwrap(),
            noise: NoiseMultiplier::new(23.4).unwrap(),
            max_units: 2,
            sampling: None,
            terms: Terms::ShardResults,
            max_rounding_loss: 0.01,
        };
        let charter = SignedCharter::draft(&CharterBody::from_plans(parties, &[(plan, 3)]).unwrap());
        SummerRequest { charter, ask: SummerCall::Sign }
    }

    fn number(posted: &watch::Receiver<Posted>) -> Option<u64> {
        match &*posted.borrow() {
            Posted::Question { number, .. } => Some(*number),
            Posted::Nothing | Posted::Over { .. } => None,
        }
    }

    #[test]
    fn a_question_stays_until_it_is_answered_or_not_asked_any_more() {
        let (mut mailbox, mut posted) = Mailbox::new();
        let now = Timestamp::from_millis(1000);
        mailbox.put(Some(request(1)), now);
        assert!(number(&posted) == Some(1) && mailbox.waits());
        posted.mark_unchanged();
        mailbox.put(Some(request(1)), now);
        assert!(!posted.has_changed().unwrap(), "the same question is not asked twice");
        mailbox.put(Some(request(2)), now);
        assert_eq!(number(&posted), Some(2));
        assert!(mailbox.answered(1).is_none(), "a late answer finds nothing");
        assert_eq!(mailbox.answered(2), Some(request(2)));
        assert!(mailbox.answered(2).is_none(), "an answer counts once");
        assert_eq!(number(&posted), None);
        mailbox.put(Some(request(3)), now);
        mailbox.put(None, now);
        assert!(*posted.borrow() == Posted::Nothing && !mailbox.waits());
    }

    #[test]
    fn a_question_that_was_answered_in_vain_is_asked_again_later_and_later() {
        let (mut mailbox, posted) = Mailbox::new();
        let mut now = Timestamp::from_millis(1000);
        let mut pauses = Vec::new();
        for asked in 1..=12 {
            mailbox.put(Some(request(1)), now);
            assert_eq!(number(&posted), Some(asked));
            let question = mailbox.answered(asked).unwrap();
            mailbox.in_vain(question, now);
            mailbox.put(Some(request(1)), now);
            assert_eq!(number(&posted), None, "not before the pause is over");
            let until = mailbox.wake_at().unwrap();
            pauses.push(until.since(now));
            now = until;
        }
        assert_eq!(pauses[0], BETWEEN.first);
        assert!(pauses.is_sorted() && pauses[11] == BETWEEN.longest);
        // Another question is asked at once, and starts from the shortest pause.
        mailbox.put(Some(request(2)), Timestamp::from_millis(1000));
        let question = mailbox.answered(13).unwrap();
        mailbox.in_vain(question, now);
        assert_eq!(mailbox.wake_at().unwrap().since(now), BETWEEN.first);
    }

    #[test]
    fn the_end_of_the_run_is_said_once() {
        let (mut mailbox, mut posted) = Mailbox::new();
        mailbox.put(Some(request(1)), Timestamp::from_millis(0));
        mailbox.over(RunOutcome::Complete, None);
        assert_eq!(*posted.borrow_and_update(), Posted::Over { outcome: RunOutcome::Complete, charter: None });
        mailbox.put(None, Timestamp::from_millis(1));
        mailbox.over(RunOutcome::Complete, None);
        assert!(!posted.has_changed().unwrap() && !mailbox.is_notified());
        mailbox.notify();
        assert!(mailbox.is_notified());
    }
}
