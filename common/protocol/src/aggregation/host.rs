//! The server's part of an aggregated run: a fold of records, like the run itself.

use std::collections::BTreeMap;
use std::sync::Arc;

use dp_pvi_names::{ClientId, Hash, LatticeVector, RunId};
use dp_pvi_posterior::task::{AggregationSpec, ResolvedTask, TaskError};
use dp_pvi_secagg::charter::{Charter, CharterBody, Member, Parties, SignedCharter};
use dp_pvi_secagg::closing::MaskSum;
use dp_pvi_secagg::commitment::Commitment;
use dp_pvi_secagg::error::SecAggError;
use dp_pvi_secagg::header::{ProposedHeader, RoundHeader, SignedHeader, VerifiedHeader};
use dp_pvi_secagg::server::{Collecting, ServerRound, close, skip};
use dp_pvi_secagg::signed::PublicKey;
use dp_pvi_secagg::transcript::{Head, SignedEntry};
use dp_pvi_secagg::upload::{self, SignedUpload};
use ed25519_dalek::{SigningKey, VerifyingKey};
use serde::{Deserialize, Serialize};

use super::{SummerCall, SummerReply, SummerRequest, plans};
use crate::message::RoundOutcome;

/// A durable fact of an aggregated run, beside those that every run has.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum AggregationRecord {
    /// The charter's text, signed by the server.
    Drafted(SignedCharter),
    /// A party signed it.
    Signed {
        /// The party's key.
        party: PublicKey,
        /// Its signature.
        signature: Vec<u8>,
    },
    /// The server's half of the next round's header: whatever happens, no other header is proposed for that round.
    Proposed(ProposedHeader),
    /// The open round takes no more uploads: the summer is asked for this set and no other.
    Closing(RoundOutcome),
    /// The summer cannot open this site's seed: the round closes without it.
    LeftOut(ClientId),
    /// The aggregation ends here, and why, in words for an operator. Anyone who is known to have broken it is named.
    Broken(String),
}

/// The server's part of an aggregated run.
#[derive(Debug)]
pub struct Host {
    spec: AggregationSpec,
    summer: PublicKey,
    authority: Hash,
    agreement: Agreement,
    head: Option<Head>,
    last: Option<SignedEntry>,
    broken: Option<String>,
    /// In memory: what was wrong with the summer's last answer.
    trouble: Option<String>,
    round: Round,
}

/// How far the charter is.
#[derive(Debug)]
enum Agreement {
    None,
    Draft(SignedCharter),
    Signed(SignedCharter, Arc<Charter>),
}

/// What belongs to the round that is open or next.
#[derive(Debug, Default)]
struct Round {
    proposal: Option<ProposedHeader>,
    /// Both signatures. In memory until the round opens: a restarted server asks for it again.
    signed: Option<SignedHeader>,
    open: Option<(SignedHeader, VerifiedHeader)>,
    uploads: BTreeMap<ClientId, SignedUpload>,
    /// Sites whose seed the summer cannot open.
    left_out: Vec<ClientId>,
    closing: Option<RoundOutcome>,
    /// In memory: a restarted server asks again and gets the same bytes.
    masks: Option<MaskSum>,
}

/// What a new header is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NextRound {
    /// Its number.
    pub round: u32,
    /// Hash of λ.
    pub lambda: Hash,
    /// Seconds since 1970.
    pub deadline: u64,
}

impl Host {
    /// Before the charter.
    #[must_use]
    pub fn new(spec: AggregationSpec, summer: &VerifyingKey, authority: Hash) -> Self {
        let (agreement, round) = (Agreement::None, Round::default());
        Self {
            spec,
            summer: PublicKey(summer.to_bytes()),
            authority,
            agreement,
            head: None,
            last: None,
            broken: None,
            trouble: None,
            round,
        }
    }

    /// The numbers that the task fixed.
    #[must_use]
    pub fn spec(&self) -> &AggregationSpec {
        &self.spec
    }

    /// The charter with the signatures that are there, for sites.
    #[must_use]
    pub fn charter(&self) -> Option<&SignedCharter> {
        match &self.agreement {
            Agreement::None => None,
            Agreement::Draft(signed) | Agreement::Signed(signed, _) => Some(signed),
        }
    }

    /// Whether all parties have signed.
    #[must_use]
    pub(crate) fn is_agreed(&self) -> bool {
        matches!(self.agreement, Agreement::Signed(..))
    }

    /// Whether this party's signature is missing.
    #[must_use]
    pub(crate) fn waits_for(&self, party: &VerifyingKey) -> bool {
        matches!(&self.agreement, Agreement::Draft(draft) if draft.signature_of(&PublicKey(party.to_bytes())).is_none())
    }

    /// The text for these sites, signed by the server.
    ///
    /// # Errors
    /// Parameters that the planner refuses, or not the task's number of sites.
    pub fn draft<'a>(
        &self,
        task: &ResolvedTask,
        run: RunId,
        key: &SigningKey,
        sites: impl Iterator<Item = (&'a ClientId, &'a VerifyingKey)>,
    ) -> Result<AggregationRecord, DraftError> {
        let members: Vec<Member> = sites.map(|(id, key)| Member { id: id.clone(), key: PublicKey(key.to_bytes()) }).collect();
        if members.len() != self.spec.sites as usize {
            return Err(DraftError::Sites { expected: self.spec.sites, joined: members.len() });
        }
        let parties = Parties { run, authority: self.authority, server: PublicKey::of(key), summer: self.summer, members };
        let body = CharterBody::from_plans(parties, &plans(task, &self.spec)?)?;
        let mut draft = SignedCharter::draft(&body);
        draft.sign(key)?;
        Ok(AggregationRecord::Drafted(draft))
    }

    /// A party's signature on the draft.
    ///
    /// # Errors
    /// There is no draft, or it is not that party's signature.
    pub(crate) fn on_signature(&self, party: &VerifyingKey, signature: &[u8]) -> Result<AggregationRecord, SecAggError> {
        let Agreement::Draft(draft) = &self.agreement else { return Err(SecAggError::Charter("no charter waits for signatures")) };
        let party = PublicKey(party.to_bytes());
        draft.clone().attach(&party, signature)?;
        Ok(AggregationRecord::Signed { party, signature: signature.to_vec() })
    }

    /// What the summer is to be asked now; `next` is the round that is to be opened, if one is due.
    #[must_use]
    pub fn ask(&self, next: Option<NextRound>) -> Option<SummerRequest> {
        let (charter, ask) = match &self.agreement {
            Agreement::None => return None,
            Agreement::Draft(draft) => (draft, draft.signature_of(&self.summer).is_none().then_some(SummerCall::Sign)?),
            Agreement::Signed(signed, charter) => (signed, self.ask_for_round(charter, next)?),
        };
        Some(SummerRequest { charter: charter.clone(), ask })
    }

    /// Whether [`ask`](Self::ask) has something to ask: the same, without making it.
    #[must_use]
    pub(crate) fn is_waiting(&self, next: Option<NextRound>) -> bool {
        match &self.agreement {
            Agreement::None => false,
            Agreement::Draft(draft) => draft.signature_of(&self.summer).is_none(),
            Agreement::Signed(..) if self.round.open.is_some() => self.round.closing.is_some() && self.round.masks.is_none(),
            Agreement::Signed(..) => next.is_some() && self.round.signed.is_none(),
        }
    }

    fn ask_for_round(&self, charter: &Arc<Charter>, next: Option<NextRound>) -> Option<SummerCall> {
        let round = &self.round;
        if round.open.is_some() {
            round.closing.filter(|_| round.masks.is_none())?;
            return match self.close(charter).ok()? {
                ServerRound::Closing(closing) => Some(SummerCall::Close(closing.request())),
                _ => None,
            };
        }
        next?;
        match (&round.proposal, &round.signed) {
            (None, _) => Some(SummerCall::Offer { last: self.last.clone() }),
            (Some(proposal), None) => Some(SummerCall::Countersign(proposal.clone())),
            (Some(_), Some(_)) => None,
        }
    }

    /// The summer's answer: what must be durable because of it. What need not be is kept.
    ///
    /// # Errors
    /// The answer does not fit; in words of the summer where it refused.
    pub(crate) fn on_reply(
        &mut self,
        reply: SummerReply,
        next: Option<NextRound>,
        key: &SigningKey,
    ) -> Result<Option<AggregationRecord>, ReplyError> {
        let answer = self.answered(reply, next, key);
        self.trouble = answer.as_ref().err().map(ToString::to_string);
        answer
    }

    fn answered(&mut self, reply: SummerReply, next: Option<NextRound>, key: &SigningKey) -> Result<Option<AggregationRecord>, ReplyError> {
        match (reply, &self.agreement) {
            (SummerReply::Charter(signature), Agreement::Draft(draft)) => {
                draft.clone().attach(&self.summer, &signature)?;
                Ok(Some(AggregationRecord::Signed { party: self.summer, signature }))
            }
            (SummerReply::Offer(offer), Agreement::Signed(_, charter)) => {
                let (Some(next), None, None) = (next, &self.round.proposal, &self.round.open) else { return Ok(None) };
                let public = offer.open(&charter.body().summer)?.key;
                let header = RoundHeader::new(charter, next.round, self.head(charter).previous, next.lambda, public, next.deadline)?;
                Ok(Some(AggregationRecord::Proposed(ProposedHeader::new(&header, &offer, charter, key)?)))
            }
            (SummerReply::Header(header), Agreement::Signed(_, charter)) => {
                let Some(proposal) = &self.round.proposal else { return Ok(None) };
                if header.open(charter)? != proposal.open(charter)? {
                    return Err(SecAggError::SecondHeader { round: self.head(charter).round }.into());
                }
                self.round.signed = Some(header);
                Ok(None)
            }
            (SummerReply::Masks(masks), Agreement::Signed(_, charter)) => {
                if self.round.closing.is_some()
                    && let ServerRound::Closing(closing) = self.close(charter)?
                {
                    closing.answer(&masks).map_err(|rejected| rejected.error)?;
                    self.round.masks = Some(masks);
                }
                Ok(None)
            }
            (SummerReply::BadSeed(client), Agreement::Signed(..)) => {
                let counts = self.round.closing.is_some() && self.round.masks.is_none() && self.round.uploads.contains_key(&client);
                Ok(counts.then_some(AggregationRecord::LeftOut(client)))
            }
            (SummerReply::Refused(words), _) => Err(ReplyError::Refused(words)),
            (SummerReply::Never(words), _) if self.is_waiting(next) => Err(ReplyError::Never(words)),
            // Late: it was asked in another state.
            _ => Ok(None),
        }
    }

    /// The header of the next round, once both have signed it.
    #[must_use]
    pub fn header(&self) -> Option<&SignedHeader> {
        self.round.signed.as_ref().filter(|_| self.round.open.is_none())
    }

    /// An upload of the open round, and the commitment that its vector must have.
    ///
    /// # Errors
    /// It is not this round's, or not that site's.
    pub(crate) fn check_upload(&self, client: &ClientId, upload: &SignedUpload) -> Result<(Hash, Commitment), SecAggError> {
        let (Agreement::Signed(_, charter), Some((_, header))) = (&self.agreement, &self.round.open) else {
            return Err(SecAggError::Charter("no round is open under it"));
        };
        let verified = upload::verify(upload, charter, header)?;
        if verified.client != *client {
            return Err(SecAggError::UnknownClient { client: client.clone() });
        }
        Ok((header.hash(), verified.commitment))
    }

    /// Whether the open round is closing, and how it will have ended.
    #[must_use]
    pub fn closing(&self) -> Option<RoundOutcome> {
        self.round.closing
    }

    /// Whether the masks of the closing round are here.
    #[must_use]
    pub(crate) fn has_masks(&self) -> bool {
        self.round.masks.is_some()
    }

    /// Why the aggregation ended early, where it did so by more than silence.
    #[must_use]
    pub(crate) fn broken(&self) -> Option<&str> {
        self.broken.as_deref()
    }

    /// What the summer is at fault for, where a run ends that waits for it.
    pub(crate) fn summer_s_fault(&self) -> &str {
        self.trouble.as_deref().unwrap_or("the summer did not answer")
    }

    /// The parties whose signatures the charter lacks.
    pub(crate) fn unsigned(&self) -> Vec<String> {
        match &self.agreement {
            Agreement::Draft(draft) => draft.missing(),
            Agreement::None | Agreement::Signed(..) => Vec::new(),
        }
    }

    /// The sites without which the open round closes because the summer cannot open their seeds.
    pub(crate) fn left_out(&self) -> &[ClientId] {
        &self.round.left_out
    }

    /// The sites whose uploads are in the sum.
    pub fn contributors(&self) -> impl Iterator<Item = &ClientId> {
        self.round.uploads.keys()
    }

    /// Takes the masks off the sum of all masked vectors, and signs the entry.
    ///
    /// # Errors
    /// Masks are missing, or the sum is one that honest sites cannot have sent.
    pub fn finish(&self, total: &[u8], key: &SigningKey) -> Result<(LatticeVector, SignedEntry), SecAggError> {
        let (Agreement::Signed(_, charter), Some(masks)) = (&self.agreement, &self.round.masks) else {
            return Err(SecAggError::Incomplete { missing: self.round.uploads.len() });
        };
        let ServerRound::Closing(closing) = self.close(charter)? else {
            let present = u32::try_from(self.round.uploads.len()).unwrap_or(u32::MAX);
            return Err(SecAggError::TooFew { present, needed: self.spec.min_contributors() });
        };
        let mut summing = closing.answer(masks).map_err(|rejected| rejected.error)?;
        summing.add_total(total)?;
        let completed = summing.finish(key).map_err(|rejected| rejected.error)?;
        Ok((completed.sum, completed.entry))
    }

    /// The entry of a round that ends without a sum; none before the charter.
    #[must_use]
    pub fn abort(&self, key: &SigningKey) -> Option<SignedEntry> {
        let Agreement::Signed(_, charter) = &self.agreement else { return None };
        let head = self.head(charter);
        let entry = match &self.round.open {
            Some((header, _)) => Collecting::open(Arc::clone(charter), head, header).ok()?.abort().publish(key).0,
            None => skip(charter, head, key).0,
        };
        Some(entry)
    }

    /// Applies a record that was made from this state, or read from our own store.
    pub fn apply(&mut self, record: &AggregationRecord) {
        match record {
            AggregationRecord::Drafted(draft) => self.agreement = Agreement::Draft(draft.clone()),
            AggregationRecord::Signed { party, signature } => self.signed(party, signature),
            AggregationRecord::Proposed(proposal) => self.round.proposal = Some(proposal.clone()),
            AggregationRecord::Closing(outcome) => self.round.closing = Some(*outcome),
            AggregationRecord::LeftOut(client) => {
                self.round.uploads.remove(client);
                self.round.left_out.push(client.clone());
            }
            AggregationRecord::Broken(reason) => self.broken = Some(reason.clone()),
        }
    }

    fn signed(&mut self, party: &PublicKey, signature: &[u8]) {
        if let Agreement::Draft(draft) = &mut self.agreement {
            // Made from a signature that was checked.
            let _ = draft.attach(party, signature);
            if draft.missing().is_empty()
                && let Ok(charter) = draft.verify()
            {
                self.head = Some(Head::start(&charter));
                self.agreement = Agreement::Signed(draft.clone(), Arc::new(charter));
            }
        }
    }

    /// A round opened with this header.
    pub fn opened(&mut self, header: SignedHeader) {
        if let Agreement::Signed(_, charter) = &self.agreement
            && let Ok(verified) = header.open(charter)
        {
            self.round.open = Some((header, verified));
        }
    }

    /// An upload is stored.
    pub fn stored(&mut self, client: &ClientId, upload: SignedUpload) {
        if self.round.closing.is_none() {
            self.round.uploads.insert(client.clone(), upload);
        }
    }

    /// A round closed with this entry.
    pub fn closed(&mut self, entry: &SignedEntry) {
        if let Agreement::Signed(_, charter) = &self.agreement
            && let Ok((head, _)) = self.head(charter).follow(entry, charter)
        {
            self.head = Some(head);
        }
        self.last = Some(entry.clone());
        self.round = Round::default();
    }

    fn head(&self, charter: &Charter) -> Head {
        self.head.unwrap_or_else(|| Head::start(charter))
    }

    fn close(&self, charter: &Arc<Charter>) -> Result<ServerRound, SecAggError> {
        let Some((header, _)) = &self.round.open else { return Err(SecAggError::Charter("no round is open under it")) };
        close(Arc::clone(charter), self.head(charter), header, self.round.uploads.values().cloned().collect())
    }
}

/// Why no charter can be drafted.
#[derive(Debug, thiserror::Error)]
pub enum DraftError {
    /// Other sites than the task counts.
    #[error("the task's [aggregation] is for {expected} sites, {joined} have joined: wait for all, or state the right number")]
    Sites {
        /// M of the task.
        expected: u32,
        /// Sites that joined.
        joined: usize,
    },
    /// The planner or the keys.
    #[error(transparent)]
    SecAgg(#[from] SecAggError),
    /// The task.
    #[error(transparent)]
    Task(#[from] TaskError),
}

/// Why an answer of the summer brings nothing.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum ReplyError {
    /// It refused.
    #[error("the summer refused: {0}")]
    Refused(String),
    /// It refused for good.
    #[error("the summer refused for good: {0}; the run ends")]
    Never(String),
    /// It does not fit.
    #[error("the summer's answer does not fit: {0}")]
    Answer(#[from] SecAggError),
}
