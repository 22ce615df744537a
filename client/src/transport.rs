//! The gRPC connection to the server.
//!
//! A connection is made when it is needed and dropped after any failure that may be its fault; the driver decides when to try again.
//! Vectors travel in chunks in both directions, so their length is not limited by the size of a message.

mod connection;

use std::time::Duration;

use dp_pvi_posterior::task::ResolvedTask;
use dp_pvi_privacy::ledger::Attachment;
use dp_pvi_proto::client as wire;
use dp_pvi_proto::v1::NextRequest;
use dp_pvi_proto::v1::federation_client::FederationClient;
use dp_pvi_proto::{MESSAGE_BYTES, v1};
use dp_pvi_protocol::message::{Hello, MetricsReport, Next, Receipt, Refusal, Signed, Welcome};
use dp_pvi_protocol::transport::{Rejection, Transport, TransportError};
use tonic::Status;
use tonic::transport::Channel;

use crate::config::Site;
use crate::tls::TlsIdentity;
use connection::Failure;

/// Short calls.
const CALL: Duration = Duration::from_secs(30);
/// Longest silence while the server holds a call open or sends a vector.
const SILENCE: Duration = Duration::from_secs(60);
/// Sending an update: 1e6 coordinates over a slow line.
const SUBMIT: Duration = Duration::from_secs(600);

/// One client's way to its server.
pub struct GrpcTransport {
    host: String,
    port: u16,
    tls: TlsIdentity,
    open: Option<Open>,
    /// Number of natural parameters of the task; longer vectors are not accepted.
    coordinates: usize,
}

struct Open {
    client: FederationClient<Channel>,
    failure: Failure,
}

impl GrpcTransport {
    /// A transport that is not connected yet.
    #[must_use]
    pub fn new(site: &Site, tls: TlsIdentity) -> Self {
        Self { host: site.host.clone(), port: site.port, tls, open: None, coordinates: 0 }
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
        let (channel, failure) = connection::connect(&self.host, self.port, &self.tls).await?;
        let client = FederationClient::new(channel).max_decoding_message_size(MESSAGE_BYTES).max_encoding_message_size(MESSAGE_BYTES);
        self.open = Some(Open { client: client.clone(), failure });
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

    async fn collect(&mut self, mut stream: tonic::Streaming<v1::NextFrame>) -> Result<Next, TransportError> {
        let mut reader = wire::NextReader::new(self.coordinates);
        loop {
            match tokio::time::timeout(SILENCE, stream.message()).await {
                Err(_) => return Err(self.silent(SILENCE)),
                Ok(Err(status)) => return Err(self.failed(&status)),
                Ok(Ok(None)) => return reader.finish().map_err(wire::frame_error),
                Ok(Ok(Some(frame))) => reader.frame(frame).map_err(wire::frame_error)?,
            }
        }
    }
}

impl Transport for GrpcTransport {
    async fn hello(&mut self, hello: &Signed<Hello>) -> Result<Signed<Welcome>, TransportError> {
        let mut client = self.client().await?;
        let mut stream = match tokio::time::timeout(CALL, client.join(wire::hello(hello))).await {
            Err(_) => return Err(self.silent(CALL)),
            Ok(Err(status)) => return Err(self.failed(&status)),
            Ok(Ok(answer)) => answer.into_inner(),
        };
        let mut reader = wire::WelcomeReader::default();
        let welcome = loop {
            match tokio::time::timeout(CALL, stream.message()).await {
                Err(_) => return Err(self.silent(CALL)),
                Ok(Err(status)) => return Err(self.failed(&status)),
                Ok(Ok(None)) => break reader.finish().map_err(wire::frame_error)?,
                Ok(Ok(Some(frame))) => reader.frame(frame).map_err(wire::frame_error)?,
            }
        };
        // The participant verifies the welcome; here it only says how long a vector may be.
        let task = welcome.peek().ok().and_then(|body| ResolvedTask::from_bytes(&body.task).ok());
        self.coordinates = task.map_or(0, |task| task.family().len());
        Ok(welcome)
    }

    async fn next(&mut self, seen: u32) -> Result<Next, TransportError> {
        let mut client = self.client().await?;
        match tokio::time::timeout(SILENCE, client.next(NextRequest { seen })).await {
            Err(_) => Err(self.silent(SILENCE)),
            Ok(Err(status)) => Err(self.failed(&status)),
            Ok(Ok(answer)) => self.collect(answer.into_inner()).await,
        }
    }

    async fn submit(&mut self, update: &Attachment) -> Result<Signed<Receipt>, TransportError> {
        let mut client = self.client().await?;
        let frames = wire::submission(update)
            .map_err(|e| TransportError::Rejected { kind: Rejection::Other, message: format!("the stored update is damaged: {e}") })?;
        match tokio::time::timeout(SUBMIT, client.submit(frames)).await {
            Err(_) => Err(self.silent(SUBMIT)),
            Ok(Err(status)) => Err(self.failed(&status)),
            Ok(Ok(answer)) => Ok(wire::receipt(answer.into_inner())),
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
