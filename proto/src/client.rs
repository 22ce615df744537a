//! A client's side of the wire.
//!
//! # Privacy
//! Nothing here takes a plain vector. [`submission`] takes an [`Attachment`], which a ledger committed; [`report`] takes an
//! evaluator's signed metrics on public data.

use std::sync::Arc;

use bytes::Bytes;
use dp_pvi_privacy::ledger::Attachment;
use dp_pvi_protocol::bounds;
use dp_pvi_protocol::message::{
    Catchup, Hello, MetricsReport, Next, Receipt, Refusal, RoundHeader, RoundStart, RunEnd, RunOutcome, Signed, TranscriptEntry, Update,
};
use dp_pvi_protocol::transport::{Rejection, TransportError};
use dp_pvi_protocol::witness::{Greeting, SignedHead};
use tonic::{Code, Status};

use crate::convert::{entry_from_wire, run_outcome_from_wire, signed_from_wire, signed_to_wire, witness_from_wire};
use crate::{CHUNK_BYTES, ERROR_KEY, FrameError, WELCOME_BYTES, v1};
use dp_pvi_protocol::text::visible;

/// The hello to send.
#[must_use]
pub fn hello(message: &Signed<Hello>) -> v1::SignedMessage {
    signed_to_wire(message)
}

/// Puts the frames of a welcome together. Feed every frame, then [`WelcomeReader::finish`].
#[derive(Debug, Default)]
pub struct WelcomeReader {
    signature: Option<Bytes>,
    body: Vec<u8>,
    witness: Option<SignedHead>,
}

impl WelcomeReader {
    /// Takes one frame.
    ///
    /// # Errors
    /// Out of order, empty, or more than 64 MiB.
    pub fn frame(&mut self, frame: v1::SignedFrame) -> Result<(), FrameError> {
        use v1::signed_frame::Frame;
        match (frame.frame.ok_or(FrameError::Missing("content"))?, &self.signature) {
            (Frame::Signature(signature), None) => self.signature = Some(signature),
            (Frame::Witness(witness), Some(_)) if self.witness.is_none() => self.witness = Some(witness_from_wire(witness)?),
            (Frame::Body(bytes), Some(_)) if !bytes.is_empty() && self.witness.is_none() => {
                if self.body.len() + bytes.len() > WELCOME_BYTES {
                    return Err(FrameError::TooLong);
                }
                self.body.extend_from_slice(&bytes);
            }
            _ => return Err(FrameError::Order),
        }
        Ok(())
    }

    /// The welcome, once the stream has ended; nothing is verified yet.
    ///
    /// # Errors
    /// The stream ended before it began.
    pub fn finish(self) -> Result<Greeting, FrameError> {
        let signature = self.signature.ok_or(FrameError::Missing("signature"))?;
        Ok(Greeting { welcome: Signed::from_parts(self.body, signature.into()), signed: self.witness })
    }
}

/// A received receipt; nothing is verified yet.
///
/// # Errors
/// Another frame came.
pub fn receipt(frame: v1::WorkFrame) -> Result<Signed<Receipt>, FrameError> {
    match frame.frame {
        Some(v1::work_frame::Frame::Receipt(message)) => Ok(signed_from_wire(message)),
        _ => Err(FrameError::Order),
    }
}

/// Asks for work, with this many transcript entries at hand.
#[must_use]
pub fn next(seen: u32) -> v1::SiteFrame {
    v1::SiteFrame { frame: Some(v1::site_frame::Frame::Next(v1::NextRequest { seen })) }
}

/// A site's signature on a charter.
#[must_use]
pub fn consent(signature: &[u8]) -> v1::CharterSignature {
    v1::CharterSignature { signature: signature.to_vec().into() }
}

/// The refusal to send.
#[must_use]
pub fn refusal(message: &Signed<Refusal>) -> v1::SignedMessage {
    signed_to_wire(message)
}

/// The metrics to send.
#[must_use]
pub fn report(message: &Signed<MetricsReport>) -> v1::SignedMessage {
    signed_to_wire(message)
}

/// The frames of a submission: the signed update, then the payload in chunks. The same attachment always gives the same bytes.
///
/// # Privacy
/// The only way to put a vector on the wire: the attachment was committed to the site's ledger before.
///
/// # Errors
/// The attachment does not hold a signed update.
pub fn submission(attachment: &Attachment) -> Result<impl Iterator<Item = v1::SiteFrame> + Send + 'static, FrameError> {
    use v1::site_frame::Frame;
    let message = Signed::<Update>::from_bytes(attachment.message()).map_err(|_| FrameError::Wrong("update"))?;
    let payload = Bytes::from(attachment.payload().to_bytes());
    let chunks = (0..payload.len().div_ceil(CHUNK_BYTES))
        .map(move |i| Frame::Payload(payload.slice(i * CHUNK_BYTES..payload.len().min((i + 1) * CHUNK_BYTES))));
    let frames = std::iter::once(Frame::Update(signed_to_wire(&message))).chain(chunks);
    Ok(frames.map(|frame| v1::SiteFrame { frame: Some(frame) }))
}

/// Puts the frames of an answer together. Feed frames until one completes it, then [`NextReader::finish`].
#[derive(Debug)]
pub struct NextReader {
    limit: usize,
    head: Option<Head>,
    entries: Vec<Arc<TranscriptEntry>>,
    /// Bytes of these entries.
    bytes: usize,
    lambda: Vec<f64>,
}

/// Whether an answer has all its frames.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Answer {
    /// More frames follow.
    Partial,
    /// This was the last.
    Complete,
}

#[derive(Debug)]
struct Head {
    kind: Kind,
    coordinates: usize,
    entries: usize,
    charter: Option<Vec<u8>>,
}

#[derive(Debug)]
enum Kind {
    Wait,
    Charter,
    Entries,
    Round(Signed<RoundHeader>),
    Finished(Signed<RoundHeader>, RunOutcome),
}

impl NextReader {
    /// A reader that accepts at most `coordinates` words of λ (the family's number of parameters).
    #[must_use]
    pub fn new(coordinates: usize) -> Self {
        Self { limit: coordinates, head: None, entries: Vec::new(), bytes: 0, lambda: Vec::new() }
    }

    /// Takes one frame, and says whether the answer is complete with it.
    ///
    /// # Errors
    /// Out of order, of wrong form, or longer than announced.
    pub fn frame(&mut self, frame: v1::WorkFrame) -> Result<Answer, FrameError> {
        use v1::work_frame::Frame;
        match (frame.frame.ok_or(FrameError::Missing("content"))?, &self.head) {
            (Frame::Head(head), None) => self.head = Some(read_head(head, self.limit)?),
            (Frame::Entry(entry), Some(head)) if self.entries.len() < head.entries => {
                self.bytes = self.bytes.saturating_add(entry.len());
                if self.bytes > bounds::ENTRIES_BYTES && !self.entries.is_empty() {
                    return Err(FrameError::TooLong);
                }
                self.entries.push(Arc::new(entry_from_wire(entry)?));
            }
            (Frame::Lambda(bytes), Some(head)) if self.entries.len() == head.entries => {
                let coordinates = head.coordinates;
                self.lambda.reserve_exact(coordinates - self.lambda.len());
                let (words, []) = bytes.as_chunks::<8>() else { return Err(FrameError::Wrong("chunk")) };
                if words.is_empty() {
                    return Err(FrameError::Missing("chunk"));
                }
                if self.lambda.len() + words.len() > coordinates {
                    return Err(FrameError::TooLong);
                }
                self.lambda.extend(words.iter().map(|word| f64::from_le_bytes(*word)));
            }
            _ => return Err(FrameError::Order),
        }
        let complete = |head: &Head| self.entries.len() == head.entries && self.lambda.len() == head.coordinates;
        Ok(if self.head.as_ref().is_some_and(complete) { Answer::Complete } else { Answer::Partial })
    }

    /// The complete answer.
    ///
    /// # Errors
    /// It ended early.
    pub fn finish(self) -> Result<Next, FrameError> {
        let head = self.head.ok_or(FrameError::Missing("head"))?;
        if self.entries.len() != head.entries || self.lambda.len() != head.coordinates {
            return Err(FrameError::Missing("end"));
        }
        let (lambda, entries) = (Arc::from(self.lambda), self.entries);
        Ok(match head.kind {
            Kind::Wait => Next::Wait,
            Kind::Charter => Next::Charter(head.charter.ok_or(FrameError::Missing("charter"))?),
            Kind::Entries => Next::Entries(Box::new(Catchup { entries, charter: head.charter })),
            Kind::Round(header) => Next::Round(Box::new(RoundStart { header, lambda, entries, charter: head.charter })),
            Kind::Finished(header, outcome) => Next::Finished(Box::new(RunEnd { outcome, lambda, entries, header, charter: head.charter })),
        })
    }
}

fn read_head(head: v1::NextHead, limit: usize) -> Result<Head, FrameError> {
    let header = |head: &v1::NextHead| head.header.clone().map(signed_from_wire).ok_or(FrameError::Missing("header"));
    let kind = match head.kind() {
        v1::next_head::Kind::Wait => Kind::Wait,
        v1::next_head::Kind::Round => Kind::Round(header(&head)?),
        v1::next_head::Kind::Finished => Kind::Finished(header(&head)?, run_outcome_from_wire(head.outcome())?),
        v1::next_head::Kind::Charter => Kind::Charter,
        v1::next_head::Kind::Entries => Kind::Entries,
        v1::next_head::Kind::Unspecified => return Err(FrameError::Wrong("kind of answer")),
    };
    let coordinates = usize::try_from(head.coordinates).ok().filter(|n| *n <= limit).ok_or(FrameError::TooLong)?;
    let entries = usize::try_from(head.entries).ok().filter(|n| *n <= bounds::ENTRIES).ok_or(FrameError::TooLong)?;
    let fits = match kind {
        Kind::Wait | Kind::Charter => (coordinates, entries) == (0, 0),
        Kind::Entries => coordinates == 0 && entries > 0,
        Kind::Round(_) | Kind::Finished(..) => true,
    };
    if !fits {
        return Err(FrameError::Wrong("answer"));
    }
    if head.charter.as_ref().is_some_and(|charter| charter.len() > bounds::CHARTER_BYTES) {
        return Err(FrameError::TooLong);
    }
    Ok(Head { kind, coordinates, entries, charter: head.charter.map(Into::into) })
}

/// The one place where a status becomes an error of the protocol.
#[must_use]
pub fn transport_error(status: &Status) -> TransportError {
    let rejected = |kind| TransportError::Rejected { kind, message: visible(status.message()).into_owned() };
    match reason(status) {
        Some("authentication") => rejected(Rejection::Authentication),
        Some("version") => rejected(Rejection::Version),
        Some("message") => rejected(Rejection::Message),
        Some("copy") => rejected(Rejection::Copy),
        Some("hello-first") => rejected(Rejection::HelloFirst),
        Some("other") => rejected(Rejection::Other),
        Some(_) => TransportError::Unreachable(words(status)),
        // Not from our server's code: its framework, a proxy, or the network.
        None => match status.code() {
            Code::Unauthenticated | Code::PermissionDenied => rejected(Rejection::Authentication),
            Code::Unimplemented => rejected(Rejection::Version),
            Code::InvalidArgument | Code::OutOfRange => rejected(Rejection::Message),
            _ => TransportError::Unreachable(words(status)),
        },
    }
}

/// An answer that cannot be read: another version on the other side.
#[must_use]
pub fn frame_error(error: FrameError) -> TransportError {
    TransportError::Rejected { kind: Rejection::Version, message: error.to_string() }
}

/// A status with everything that lies below it: "transport error" alone would not say that a certificate has expired.
fn words(status: &Status) -> String {
    let mut text = status.message().to_owned();
    let mut source = std::error::Error::source(status);
    while let Some(error) = source {
        let words = error.to_string();
        if !text.contains(&words) {
            text.push_str(": ");
            text.push_str(&words);
        }
        source = error.source();
    }
    visible(&text).into_owned()
}

fn reason(status: &Status) -> Option<&str> {
    status.metadata().get(ERROR_KEY).and_then(|value| value.to_str().ok())
}
