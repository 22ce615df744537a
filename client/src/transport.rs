//! The gRPC connection to the server.
//!
//! A connection is made when it is needed and dropped after any failure that may be its fault; the driver decides when to try again.
//! Vectors travel in chunks in both directions, so their length is not limited by the size of a message.

use std::time::Duration;

use dp_pvi_privacy::ledger::Attachment;
use dp_pvi_proto::client as wire;
use dp_pvi_proto::connection::{self, Dial, Failure};
use dp_pvi_proto::v1::federation_client::FederationClient;
use dp_pvi_proto::{MESSAGE_BYTES, v1};
use dp_pvi_protocol::message::{Hello, MetricsReport, Next, Receipt, Refusal, Signed};
use dp_pvi_protocol::transport::{Rejection, Transport, TransportError};
use dp_pvi_protocol::witness::Greeting;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::transport::Channel;
use tonic::{Status, Streaming};

use crate::config::Site;
use crate::tls::TlsIdentity;

/// Short calls.
const CALL: Duration = Duration::from_secs(30);
/// Longest silence while the server holds a call open or sends a vector.
const SILENCE: Duration = Duration::from_secs(60);
/// Sending an update: 1e6 coordinates over a slow line.
const SUBMIT: Duration = Duration::from_secs(600);
/// Frames of an update that wait for the line.
const QUEUE: usize = 4;

/// One client's way to its server.
pub struct GrpcTransport {
    host: String,
    port: u16,
    tls: TlsIdentity,
    open: Option<Open>,
    /// Most numbers of a vector that is taken: none until the task that the server named was verified.
    coordinates: usize,
    /// Number of transcript entries that this client has after the last answer.
    seen: u32,
}

struct Open {
    client: FederationClient<Channel>,
    failure: Failure,
    work: Option<Work>,
}

/// The stream on which rounds come and updates go.
struct Work {
    requests: mpsc::Sender<v1::SiteFrame>,
    answers: Streaming<v1::WorkFrame>,
    /// Work was asked for with this number of entries, and the answer has not been read.
    asked: Option<u32>,
}

/// Whether a stream served before: the server may end one between two requests, which is no failure.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Stream {
    Used,
    Fresh,
}

impl GrpcTransport {
    /// A transport that is not connected yet.
    #[must_use]
    pub fn new(site: &Site, tls: TlsIdentity) -> Self {
        Self { host: site.host.clone(), port: site.port, tls, open: None, coordinates: 0, seen: 0 }
    }

    /// Connects if that has not been done: the server exists and both sides accept each other's certificates.
    ///
    /// # Errors
    /// Unreachable, or rejected with [`Rejection::Authentication`].
    pub async fn connect(&mut self) -> Result<(), TransportError> {
        self.client().await.map(|_| ())
    }

    async fn client(&mut self) -> Result<FederationClient<Channel>, TransportError> {
        if let Some(open) = &self.open {
            return Ok(open.client.clone());
        }
        let (channel, failure) = {
            let TlsIdentity { client: tls, server_name, server, .. } = &self.tls;
            connection::connect(Dial { host: &self.host, port: self.port, tls, server_name, server }).await?
        };
        let client = FederationClient::new(channel).max_decoding_message_size(MESSAGE_BYTES).max_encoding_message_size(MESSAGE_BYTES);
        self.open = Some(Open { client: client.clone(), failure, work: None });
        Ok(client)
    }

    /// What a failed call means, and whether its connection can be used again.
    fn failed(&mut self, status: &Status) -> TransportError {
        let error = wire::transport_error(status);
        match &error {
            TransportError::Rejected { .. } => error,
            TransportError::Unreachable(message) => {
                let alert = self.open.take().and_then(|open| open.failure.take());
                match alert {
                    Some(alert) => connection::tls_error(&alert),
                    None => TransportError::Unreachable(if message.is_empty() { status.code().to_string() } else { message.clone() }),
                }
            }
        }
    }

    fn silent(&mut self, after: Duration) -> TransportError {
        self.open = None;
        TransportError::Unreachable(format!("no answer for {} s", after.as_secs()))
    }

    /// The stream of work, opened if there is none. It is taken out: after any failure it is gone.
    async fn work(&mut self) -> Result<(Work, Stream), TransportError> {
        let mut client = self.client().await?;
        if let Some(work) = self.open.as_mut().and_then(|open| open.work.take()) {
            return Ok((work, Stream::Used));
        }
        let (requests, queue) = mpsc::channel(QUEUE);
        match tokio::time::timeout(CALL, client.work(ReceiverStream::new(queue))).await {
            Err(_) => Err(self.silent(CALL)),
            Ok(Err(status)) => Err(self.failed(&status)),
            Ok(Ok(answer)) => Ok((Work { requests, answers: answer.into_inner(), asked: None }, Stream::Fresh)),
        }
    }

    /// Keeps a stream for the next request.
    fn keep(&mut self, work: Work) {
        if let Some(open) = &mut self.open {
            open.work = Some(work);
        }
    }

    /// The next frame of an answer; `None` where the server ended the stream.
    async fn frame(&mut self, work: &mut Work, patience: Duration) -> Result<Option<v1::WorkFrame>, TransportError> {
        match tokio::time::timeout(patience, work.answers.message()).await {
            Err(_) => Err(self.silent(patience)),
            Ok(Err(status)) => Err(self.failed(&status)),
            Ok(Ok(frame)) => Ok(frame),
        }
    }

    /// Asks for work on a stream; `None` where the server had ended it before.
    async fn ask(&mut self, work: &mut Work, seen: u32) -> Result<Option<Next>, TransportError> {
        if work.asked != Some(seen) {
            // Where the queue is closed the answers say why.
            let _ = work.requests.send(wire::next(seen)).await;
        }
        let mut reader = wire::NextReader::new(self.coordinates);
        let mut first = true;
        loop {
            match self.frame(work, SILENCE).await? {
                None if first => return Ok(None),
                None => return Err(ended()),
                Some(frame) => match reader.frame(frame).map_err(wire::frame_error)? {
                    wire::Answer::Complete => break,
                    wire::Answer::Partial => first = false,
                },
            }
        }
        work.asked = None;
        reader.finish().map_err(wire::frame_error).map(Some)
    }

    /// Sends an update and asks for the next round in the same breath; `None` where the server had ended the stream before.
    async fn send(&mut self, work: &mut Work, update: &Attachment) -> Result<Option<Signed<Receipt>>, TransportError> {
        let frames = wire::submission(update)
            .map_err(|e| TransportError::Rejected { kind: Rejection::Other, message: format!("the stored update is damaged: {e}") })?;
        let seen = self.seen;
        for frame in frames.chain(std::iter::once(wire::next(seen))) {
            if work.requests.send(frame).await.is_err() {
                // The answers say why.
                break;
            }
        }
        work.asked = Some(seen);
        let receipt = self.frame(work, SUBMIT).await?;
        receipt.map(wire::receipt).transpose().map_err(wire::frame_error)
    }
}

fn ended() -> TransportError {
    TransportError::Unreachable("the server ended the stream".into())
}

impl Transport for GrpcTransport {
    async fn hello(&mut self, hello: &Signed<Hello>) -> Result<Greeting, TransportError> {
        let mut client = self.client().await?;
        let mut stream = match tokio::time::timeout(CALL, client.join(wire::hello(hello))).await {
            Err(_) => return Err(self.silent(CALL)),
            Ok(Err(status)) => return Err(self.failed(&status)),
            Ok(Ok(answer)) => answer.into_inner(),
        };
        let mut reader = wire::WelcomeReader::default();
        let greeting = loop {
            match tokio::time::timeout(CALL, stream.message()).await {
                Err(_) => return Err(self.silent(CALL)),
                Ok(Err(status)) => return Err(self.failed(&status)),
                Ok(Ok(None)) => break reader.finish().map_err(wire::frame_error)?,
                Ok(Ok(Some(frame))) => reader.frame(frame).map_err(wire::frame_error)?,
            }
        };
        self.coordinates = 0;
        Ok(greeting)
    }

    fn admit(&mut self, numbers: u64) {
        // A vector that no address reaches is not taken either.
        self.coordinates = usize::try_from(numbers).unwrap_or(0);
    }

    async fn next(&mut self, seen: u32) -> Result<Next, TransportError> {
        loop {
            let (mut work, stream) = self.work().await?;
            if work.asked.is_some_and(|asked| asked != seen) {
                // An answer to another question is on its way there.
                continue;
            }
            match self.ask(&mut work, seen).await? {
                None if stream == Stream::Used => {}
                None => return Err(ended()),
                Some(next) => {
                    let news = match &next {
                        Next::Wait | Next::Charter(_) => 0,
                        Next::Entries(some) => some.entries.len(),
                        Next::Round(round) => round.entries.len(),
                        Next::Finished(end) => end.entries.len(),
                    };
                    // Rounds are counted in u32, and so are their entries.
                    self.seen = seen.saturating_add(u32::try_from(news).unwrap_or(u32::MAX));
                    self.keep(work);
                    return Ok(next);
                }
            }
        }
    }

    async fn submit(&mut self, update: &Attachment) -> Result<Signed<Receipt>, TransportError> {
        loop {
            let (mut work, stream) = self.work().await?;
            if work.asked.is_some() {
                // An answer that no one waits for is on its way there.
                continue;
            }
            match tokio::time::timeout(SUBMIT, self.send(&mut work, update)).await {
                Err(_) => return Err(self.silent(SUBMIT)),
                Ok(Err(error)) => return Err(error),
                Ok(Ok(None)) if stream == Stream::Used => {}
                Ok(Ok(None)) => return Err(ended()),
                Ok(Ok(Some(receipt))) => {
                    self.keep(work);
                    return Ok(receipt);
                }
            }
        }
    }

    async fn consent(&mut self, signature: &[u8]) -> Result<(), TransportError> {
        let mut client = self.client().await?;
        match tokio::time::timeout(CALL, client.consent(wire::consent(signature))).await {
            Err(_) => Err(self.silent(CALL)),
            Ok(Err(status)) => Err(self.failed(&status)),
            Ok(Ok(_)) => Ok(()),
        }
    }

    async fn refuse(&mut self, refusal: &Signed<Refusal>) -> Result<(), TransportError> {
        let mut client = self.client().await?;
        match tokio::time::timeout(CALL, client.refuse(wire::refusal(refusal))).await {
            Err(_) => Err(self.silent(CALL)),
            Ok(Err(status)) => Err(self.failed(&status)),
            Ok(Ok(_)) => Ok(()),
        }
    }

    async fn report(&mut self, report: &Signed<MetricsReport>) -> Result<(), TransportError> {
        let mut client = self.client().await?;
        match tokio::time::timeout(CALL, client.report(wire::report(report))).await {
            Err(_) => Err(self.silent(CALL)),
            Ok(Err(status)) => Err(self.failed(&status)),
            Ok(Ok(_)) => Ok(()),
        }
    }
}
