//! The server's side of the wire.

use std::sync::{Arc, Mutex, PoisonError};

use bytes::{BufMut, Bytes, BytesMut};
use dp_pvi_protocol::bounds;
use dp_pvi_protocol::message::{Hello, MetricsReport, Next, Receipt, Refusal, Signed, TranscriptEntry, Update};
use dp_pvi_protocol::transport::Rejection;
use dp_pvi_protocol::witness::Greeting;
use prost::Message;
use tonic::{Code, Status};

use crate::convert::{entry_to_wire, run_outcome_to_wire, signed_from_wire, signed_to_wire, witness_to_wire};
use crate::{CHUNK_BYTES, ERROR_KEY, FrameError, v1};

const CHUNK_WORDS: usize = CHUNK_BYTES / 8;

/// A received hello.
#[must_use]
pub fn hello(message: v1::SignedMessage) -> Signed<Hello> {
    signed_from_wire(message)
}

/// A received refusal.
#[must_use]
pub fn refusal(message: v1::SignedMessage) -> Signed<Refusal> {
    signed_from_wire(message)
}

/// A received metrics report.
#[must_use]
pub fn report(message: v1::SignedMessage) -> Signed<MetricsReport> {
    signed_from_wire(message)
}

/// The frames of the welcome to send, with the site's own message about its ledger after it.
pub fn welcome_frames(greeting: Greeting) -> impl Iterator<Item = v1::SignedFrame> + Send + 'static {
    use v1::signed_frame::Frame;
    let Greeting { welcome, signed } = greeting;
    let body = Bytes::from(welcome.body);
    let chunks =
        (0..body.len().div_ceil(CHUNK_BYTES)).map(move |i| Frame::Body(body.slice(i * CHUNK_BYTES..body.len().min((i + 1) * CHUNK_BYTES))));
    let witness = signed.map(|signed| Frame::Witness(witness_to_wire(&signed)));
    let frames = std::iter::once(Frame::Signature(welcome.signature.into())).chain(chunks).chain(witness);
    frames.map(|frame| v1::SignedFrame { frame: Some(frame) })
}

/// What a site says on its stream.
#[derive(Debug)]
pub enum Request {
    /// It asks for work; it has this many transcript entries.
    Next(u32),
    /// It sends an update; the payload follows.
    Update(Signed<Update>),
}

/// First frame of a request.
///
/// # Errors
/// A frame that does not begin one.
pub fn request(frame: v1::SiteFrame) -> Result<Request, FrameError> {
    use v1::site_frame::Frame;
    match frame.frame.ok_or(FrameError::Missing("content"))? {
        Frame::Next(next) => {
            bounds::round(next.seen)?;
            Ok(Request::Next(next.seen))
        }
        Frame::Update(update) => Ok(Request::Update(signed_from_wire(update))),
        Frame::Payload(_) => Err(FrameError::Order),
    }
}

/// A later frame of a submission: bytes of the payload.
///
/// # Errors
/// Another frame, an empty one, or one above [`CHUNK_BYTES`].
pub fn payload(frame: v1::SiteFrame) -> Result<Bytes, FrameError> {
    match frame.frame {
        Some(v1::site_frame::Frame::Payload(bytes)) if bytes.is_empty() => Err(FrameError::Missing("payload")),
        Some(v1::site_frame::Frame::Payload(bytes)) if bytes.len() > CHUNK_BYTES => Err(FrameError::TooLong),
        Some(v1::site_frame::Frame::Payload(bytes)) => Ok(bytes),
        _ => Err(FrameError::Order),
    }
}

/// The receipt to send.
#[must_use]
pub fn receipt(message: Signed<Receipt>) -> v1::WorkFrame {
    let message = v1::SignedMessage { body: message.body.into(), signature: message.signature.into() };
    v1::WorkFrame { frame: Some(v1::work_frame::Frame::Receipt(message)) }
}

/// Encodes transcript entries. It keeps the last: the entry of the round that just closed goes to every client.
#[derive(Debug, Default)]
pub struct EntryEncoder(Mutex<Option<(Arc<TranscriptEntry>, Bytes)>>);

impl EntryEncoder {
    fn encode(&self, entry: &Arc<TranscriptEntry>) -> Bytes {
        // What is in it is whole at any time.
        let mut last = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((known, bytes)) = &*last
            && Arc::ptr_eq(known, entry)
        {
            return bytes.clone();
        }
        let bytes = Bytes::from(entry_to_wire(entry).encode_to_vec());
        *last = Some((Arc::clone(entry), bytes.clone()));
        bytes
    }
}

/// The frames of an answer, made one at a time: λ stays shared, only the chunk on its way is a copy.
pub fn next_frames(next: Next, encoder: Arc<EntryEncoder>) -> impl Iterator<Item = v1::WorkFrame> + Send + 'static {
    use v1::next_head::Kind;
    use v1::work_frame::Frame;
    let none = v1::RunOutcome::Unspecified;
    let (kind, header, outcome, lambda, entries, charter) = match next {
        Next::Wait => (Kind::Wait, None, none, Arc::from(Vec::new()), Vec::new(), None),
        Next::Charter(charter) => (Kind::Charter, None, none, Arc::from(Vec::new()), Vec::new(), Some(charter)),
        Next::Entries(some) => (Kind::Entries, None, none, Arc::from(Vec::new()), some.entries, some.charter),
        Next::Round(round) => (Kind::Round, Some(round.header), none, round.lambda, round.entries, round.charter),
        Next::Finished(end) => (Kind::Finished, Some(end.header), run_outcome_to_wire(end.outcome), end.lambda, end.entries, end.charter),
    };
    let head = v1::NextHead {
        kind: kind.into(),
        header: header.as_ref().map(signed_to_wire),
        outcome: outcome.into(),
        coordinates: lambda.len() as u64,
        // Rounds are counted in u32, so the number of entries fits.
        entries: u32::try_from(entries.len()).unwrap_or(u32::MAX),
        charter: charter.map(Into::into),
    };
    let entries = entries.into_iter().map(move |entry| Frame::Entry(encoder.encode(&entry)));
    let chunks = (0..lambda.len().div_ceil(CHUNK_WORDS)).map(move |i| {
        let words = &lambda[i * CHUNK_WORDS..lambda.len().min((i + 1) * CHUNK_WORDS)];
        let mut bytes = BytesMut::with_capacity(words.len() * 8);
        words.iter().for_each(|word| bytes.put_f64_le(*word));
        Frame::Lambda(bytes.freeze())
    });
    std::iter::once(Frame::Head(head)).chain(entries).chain(chunks).map(|frame| v1::WorkFrame { frame: Some(frame) })
}

/// The status of a rejection: what [`crate::client::transport_error`] reads back.
#[must_use]
pub fn rejection(kind: Rejection, message: impl Into<String>) -> Status {
    let (code, name) = match kind {
        Rejection::Authentication => (Code::PermissionDenied, "authentication"),
        Rejection::Version => (Code::FailedPrecondition, "version"),
        Rejection::Message => (Code::InvalidArgument, "message"),
        Rejection::Copy => (Code::AlreadyExists, "copy"),
        Rejection::HelloFirst => (Code::FailedPrecondition, "hello-first"),
        Rejection::Other => (Code::Aborted, "other"),
    };
    named(Status::new(code, message), name)
}

/// The server cannot answer now; the client tries again.
#[must_use]
pub fn unavailable(message: impl Into<String>) -> Status {
    named(Status::new(Code::Unavailable, message), "unavailable")
}

fn named(mut status: Status, name: &'static str) -> Status {
    status.metadata_mut().insert(ERROR_KEY, tonic::metadata::MetadataValue::from_static(name));
    status
}
