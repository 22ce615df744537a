//! The gRPC service: who is calling, how much of it, and what the engine says.

use std::collections::HashMap;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use dp_pvi_privacy::ClientId;
use dp_pvi_proto::v1::federation_server::Federation;
use dp_pvi_proto::{FrameError, server as wire, v1};
use dp_pvi_protocol::coordinator::{Begin, Expected, Peer, Rejected};
use dp_pvi_protocol::message::{Next, Receipt, Signed, Update};
use dp_pvi_protocol::transport::Rejection;
use futures_util::{Stream, stream};
use tonic::{Request, Response, Status, Streaming};
use tracing::{debug, warn};

use crate::clock;
use crate::engine::{EngineHandle, Refused};
use crate::error::ServerError;
use crate::listener::ConnectedPeer;
use crate::store::{PayloadWriter, SMALL_PAYLOAD, Spool, WriteError};
use crate::tls::LiveCredentials;

/// A call for work is held open this long.
const LONG_POLL: Duration = Duration::from_secs(20);
/// Longest silence inside an upload.
const UPLOAD_SILENCE: Duration = Duration::from_secs(60);
/// Calls of one client: this many at once, and this many a second in the long run.
const BURST: f64 = 4000.0;
const RATE: f64 = 2000.0;
/// Uploads of one client at the same time.
const UPLOADS: u32 = 2;

/// The service of a federation.
pub(crate) struct Service {
    engine: EngineHandle,
    credentials: Arc<LiveCredentials>,
    federation: String,
    spool: Spool,
    clients: Arc<Clients>,
}

impl Service {
    pub(crate) fn new(engine: EngineHandle, credentials: Arc<LiveCredentials>, federation: String, spool: Spool) -> Self {
        Self { engine, credentials, federation, spool, clients: Arc::default() }
    }

    /// The peer of a call: certificate, federation, enrolment and rate are checked here, for every call.
    fn peer<T>(&self, request: &Request<T>) -> Result<Peer, Status> {
        // Every connection of our listener carries a peer.
        let peer = request.extensions().get::<ConnectedPeer>().ok_or_else(|| Status::internal("no peer"))?;
        let name = &peer.identity.name;
        let refuse = |message: String| {
            warn!(peer = %name, message, "a call was refused");
            Err(wire::rejection(Rejection::Authentication, message))
        };
        if name.federation != self.federation {
            return refuse(format!("the certificate is for {name}, this is the server of {:?}", self.federation));
        }
        let Some((client, role)) = name.as_client() else {
            return refuse("the certificate is a server's; clients need one of `dp-pvi-server ca sign`".into());
        };
        let credentials = self.credentials.current();
        match credentials.enrolled.clients.get(client) {
            None => return refuse(Rejected::NotEnrolled(client.clone()).to_string()),
            Some(member) if member.revoked.is_some() => return refuse(format!("{client} was revoked; ask the operator of the federation")),
            Some(member) if member.role != role => return refuse(format!("{client} is not enrolled in the role of its certificate")),
            Some(member) => {
                let revoked = |c: &&crate::ca::IssuedCertificate| c.tls_key == peer.identity.tls_key && c.revoked.is_some();
                if member.certificates.iter().any(|c| revoked(&c)) {
                    return refuse(format!("this certificate of {client} was revoked"));
                }
            }
        }
        if !self.clients.admit(client) {
            return Err(wire::unavailable("too many calls; slow down"));
        }
        Ok(Peer { client: client.clone(), tls_key: peer.identity.tls_key })
    }

    async fn receive(&self, peer: &Peer, update: &Signed<Update>, expected: Expected, frames: &mut Frames) -> Result<(), Status> {
        let _upload = self.clients.upload(&peer.client).ok_or_else(|| wire::unavailable("this client has two uploads in progress"))?;
        let (spool, client, hash) = (self.spool.clone(), peer.client.clone(), update.hash());
        let mut writer = self.on_disk(move || Ok(spool.begin(&client, hash, expected)?)).await?;
        while let Some(frame) = next_frame(frames).await? {
            let chunk = wire::submission_chunk(frame).map_err(|e| frame_status(&e))?;
            writer = self.on_disk(move || writer.write(&chunk).map(|()| writer)).await?;
        }
        self.on_disk(move || writer.finish()).await
    }

    /// Runs file work on a thread that may block.
    async fn on_disk<T: Send + 'static>(&self, work: impl FnOnce() -> Result<T, WriteError> + Send + 'static) -> Result<T, Status> {
        match tokio::task::spawn_blocking(work).await {
            Ok(Ok(done)) => Ok(done),
            Ok(Err(WriteError::Payload(error))) => Err(status(&Refused::Rejected(error.into()))),
            Ok(Err(error @ WriteError::Io(_))) => {
                // Not the client's fault: the server stops before it loses anything, and can be started again.
                self.engine.fault(ServerError::Unavailable(error.to_string()));
                Err(wire::unavailable("the server cannot store updates now"))
            }
            Err(_) => Err(wire::unavailable("the server is going down")),
        }
    }
}

type Frames = Streaming<v1::SubmitFrame>;
type FrameStream<T> = Pin<Box<dyn Stream<Item = Result<T, Status>> + Send>>;

#[tonic::async_trait]
impl Federation for Service {
    async fn hello(&self, request: Request<v1::SignedMessage>) -> Result<Response<v1::SignedMessage>, Status> {
        let peer = self.peer(&request)?;
        let hello = wire::hello(request.into_inner());
        let welcome = self.engine.hello(peer, hello).await.map_err(|e| status(&e))?;
        Ok(Response::new(wire::welcome(&welcome)))
    }

    type JoinStream = FrameStream<v1::SignedFrame>;

    async fn join(&self, request: Request<v1::SignedMessage>) -> Result<Response<Self::JoinStream>, Status> {
        let peer = self.peer(&request)?;
        let hello = wire::hello(request.into_inner());
        let welcome = self.engine.hello(peer, hello).await.map_err(|e| status(&e))?;
        Ok(Response::new(Box::pin(stream::iter(wire::welcome_frames(welcome).map(Ok)))))
    }

    type NextStream = FrameStream<v1::NextFrame>;

    async fn next(&self, request: Request<v1::NextRequest>) -> Result<Response<Self::NextStream>, Status> {
        let peer = self.peer(&request)?;
        let seen = request.into_inner().seen;
        let next = match tokio::time::timeout(LONG_POLL, self.engine.next(peer, seen)).await {
            Ok(answer) => answer.map_err(|e| status(&e))?,
            Err(_) => Next::Wait,
        };
        Ok(Response::new(Box::pin(stream::iter(wire::next_frames(next).map(Ok)))))
    }

    async fn submit(&self, request: Request<Frames>) -> Result<Response<v1::SignedMessage>, Status> {
        let peer = self.peer(&request)?;
        let mut frames = request.into_inner();
        let head = next_frame(&mut frames).await?.ok_or_else(|| frame_status(&FrameError::Missing("update")))?;
        let update = wire::submission_head(head).map_err(|e| frame_status(&e))?;
        // What the update announces is not verified yet; it only says how many bytes are held before the engine decides.
        let announced = update.peek().map_or(0, |body| body.coordinates.saturating_mul(8));
        if announced <= SMALL_PAYLOAD {
            let payload = collect(&mut frames).await?;
            let receipt = self.engine.small(peer, update, payload).await.map_err(|e| status(&e))?;
            return Ok(Response::new(wire::receipt(&receipt)));
        }
        let receipt: Signed<Receipt> = match self.engine.begin(peer.clone(), update.clone()).await.map_err(|e| status(&e))? {
            Begin::Answered(receipt) => receipt,
            Begin::Accept(expected) => {
                self.receive(&peer, &update, expected, &mut frames).await?;
                self.engine.stored(peer.client.clone(), update).await.map_err(|e| status(&e))?
            }
        };
        Ok(Response::new(wire::receipt(&receipt)))
    }

    async fn refuse(&self, request: Request<v1::SignedMessage>) -> Result<Response<v1::Done>, Status> {
        let peer = self.peer(&request)?;
        self.engine.refuse(peer, wire::refusal(request.into_inner())).await.map_err(|e| status(&e))?;
        Ok(Response::new(v1::Done {}))
    }

    async fn report(&self, request: Request<v1::SignedMessage>) -> Result<Response<v1::Done>, Status> {
        let peer = self.peer(&request)?;
        self.engine.report(peer, wire::report(request.into_inner())).await.map_err(|e| status(&e))?;
        Ok(Response::new(v1::Done {}))
    }
}

/// The rest of a small submission. One frame above the limit is kept, so that the check of the length sees it.
async fn collect(frames: &mut Frames) -> Result<Vec<u8>, Status> {
    let mut payload = Vec::new();
    while payload.len() as u64 <= SMALL_PAYLOAD {
        let Some(frame) = next_frame(frames).await? else { break };
        payload.extend_from_slice(&wire::submission_chunk(frame).map_err(|e| frame_status(&e))?);
    }
    Ok(payload)
}

async fn next_frame(frames: &mut Frames) -> Result<Option<v1::SubmitFrame>, Status> {
    match tokio::time::timeout(UPLOAD_SILENCE, frames.message()).await {
        Ok(frame) => frame,
        Err(_) => Err(wire::unavailable("nothing came for a minute")),
    }
}

/// The one place where a refusal becomes a status.
fn status(refused: &Refused) -> Status {
    match refused {
        Refused::Rejected(rejected) => {
            debug!(reason = %rejected, "a message was not accepted");
            wire::rejection(rejected.kind(), rejected.to_string())
        }
        Refused::Gone => wire::unavailable(refused.to_string()),
    }
}

fn frame_status(error: &FrameError) -> Status {
    wire::rejection(Rejection::Message, error.to_string())
}

/// What every client may take of the server.
#[derive(Debug, Default)]
struct Clients(Mutex<HashMap<ClientId, Share>>);

#[derive(Debug)]
struct Share {
    tokens: f64,
    filled: Instant,
    uploads: u32,
}

impl Clients {
    fn with<T>(&self, client: &ClientId, use_it: impl FnOnce(&mut Share) -> T) -> T {
        let mut shares = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        // Only enrolled names come here, so the map stays small.
        use_it(shares.entry(client.clone()).or_insert_with(|| Share { tokens: BURST, filled: clock::instant(), uploads: 0 }))
    }

    /// Takes a token from the client's bucket.
    fn admit(&self, client: &ClientId) -> bool {
        self.with(client, |share| {
            let now = clock::instant();
            share.tokens = (share.tokens + now.duration_since(share.filled).as_secs_f64() * RATE).min(BURST);
            share.filled = now;
            let enough = share.tokens >= 1.0;
            if enough {
                share.tokens -= 1.0;
            }
            enough
        })
    }

    fn upload(self: &Arc<Self>, client: &ClientId) -> Option<Upload> {
        let free = self.with(client, |share| {
            let free = share.uploads < UPLOADS;
            share.uploads += u32::from(free);
            free
        });
        free.then(|| Upload { clients: self.clone(), client: client.clone() })
    }
}

/// One upload in progress.
struct Upload {
    clients: Arc<Clients>,
    client: ClientId,
}

impl Drop for Upload {
    fn drop(&mut self) {
        self.clients.with(&self.client, |share| share.uploads -= 1);
    }
}

/// A payload writer must be able to move between threads.
const _: fn() = || {
    fn send<T: Send>() {}
    send::<PayloadWriter>();
};
