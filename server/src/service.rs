//! The gRPC service: who is calling, how much of it, and what the engine says.

mod aggregation;
mod session;

use std::collections::{BTreeMap, HashMap};
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use dp_pvi_names::ClientId;
use dp_pvi_programs::identity::Party;
use dp_pvi_programs::problem::Problem;
use dp_pvi_proto::v1::federation_server::Federation;
use dp_pvi_proto::{FrameError, server as wire, v1};
use dp_pvi_protocol::coordinator::{Peer, Rejected};
use dp_pvi_protocol::transport::Rejection;
use futures_util::{Stream, stream};
use tonic::{Request, Response, Status, Streaming};
use tracing::{debug, warn};

use crate::clock;
use crate::engine::{EngineHandle, Refused};
use crate::error::ServerError;
use crate::listener::ConnectedPeer;
use crate::resource_backoff;
use crate::store::{PayloadStore, WriteError};
use crate::telemetry::Telemetry;
use crate::tls::LiveCredentials;
pub(crate) use aggregation::AggregationService;
use session::Session;

/// Work that one client may cause: this much at once, this much a second in the long run, and this much more with every round that is
/// closed, so that no honest client comes near it however fast its rounds are. A request on a stream is one unit of work, a call whose
/// signature has to be verified is [`CALL`].
const BURST: f64 = 1000.0;
const RATE: f64 = 100.0;
const ROUND: f64 = 32.0;
const REQUEST: f64 = 1.0;
const CALL: f64 = 5.0;
/// Uploads of one client at the same time.
const UPLOADS: u32 = 2;

/// The service of a federation; cheap to clone.
#[derive(Clone)]
pub(crate) struct Service {
    pub(crate) engine: EngineHandle,
    credentials: Arc<LiveCredentials>,
    federation: Arc<str>,
    payload_store: PayloadStore,
    clients: Arc<Clients>,
    entries: Arc<wire::EntryEncoder>,
    telemetry: Arc<Telemetry>,
}

impl Service {
    pub(crate) fn new(
        engine: EngineHandle,
        credentials: Arc<LiveCredentials>,
        federation: &str,
        payload_store: PayloadStore,
        telemetry: Arc<Telemetry>,
    ) -> Self {
        Self {
            engine,
            credentials,
            federation: federation.into(),
            payload_store,
            clients: Arc::default(),
            entries: Arc::default(),
            telemetry,
        }
    }

    /// The peer of a call.
    fn peer<T>(&self, request: &Request<T>) -> Result<Peer, Status> {
        self.client(connected(request)?, CALL)
    }

    /// A client's request on a stream.
    fn authorise(&self, peer: &ConnectedPeer) -> Result<Peer, Status> {
        self.client(peer, REQUEST)
    }

    fn client(&self, peer: &ConnectedPeer, work: f64) -> Result<Peer, Status> {
        match self.enrolled(peer, work)? {
            (peer, Party::Site | Party::Evaluator) => Ok(peer),
            (peer, Party::Summer) => {
                Err(wire::rejection(Rejection::Authentication, format!("{} is a summer, which is no client", peer.client)))
            }
        }
    }

    /// A call of the summer.
    pub(crate) fn summer(&self, peer: &ConnectedPeer) -> Result<(Peer, Party), Status> {
        self.enrolled(peer, CALL)
    }

    /// Certificate, federation, enrolment and the client's share of work are checked here, for every call and every request on a stream.
    fn enrolled(&self, peer: &ConnectedPeer, work: f64) -> Result<(Peer, Party), Status> {
        let name = &peer.identity.name;
        let refuse = |message: String| {
            debug!(peer = %name, message, "a call was refused");
            self.telemetry.rejections.inc();
            Err(wire::rejection(Rejection::Authentication, message))
        };
        if name.federation != *self.federation {
            return refuse(format!("the certificate is for {name}, this is the server of {:?}", self.federation));
        }
        let Some((client, party)) = name.as_enrolled() else {
            return refuse("the certificate is a server's; clients need one of `dp-pvi-server ca sign`".into());
        };
        let credentials = self.credentials.current();
        match credentials.enrolled.clients.get(client) {
            None => return refuse(Rejected::NotEnrolled(client.clone()).to_string()),
            Some(member) if member.revoked.is_some() => return refuse(format!("{client} was revoked; ask the operator of the federation")),
            Some(member) if member.role != party => return refuse(format!("{client} is not enrolled in the role of its certificate")),
            Some(member) => {
                let revoked = |c: &&crate::ca::IssuedCertificate| c.tls_key == peer.identity.tls_key && c.revoked.is_some();
                if member.certificates.iter().any(|c| revoked(&c)) {
                    return refuse(format!("this certificate of {client} was revoked"));
                }
            }
        }
        if !self.clients.admit(client, work, self.telemetry.round.get(), clock::instant()) {
            self.telemetry.throttled.inc();
            return Err(wire::unavailable("too many calls; slow down"));
        }
        Ok((Peer { client: client.clone(), tls_key: peer.identity.tls_key }, party))
    }

    /// Runs file work for this client's update of this round on a thread that may block.
    async fn on_disk<T: Send + 'static>(
        &self,
        (client, round): (&ClientId, u32),
        work: impl FnOnce() -> Result<T, WriteError> + Send + 'static,
    ) -> Result<T, Status> {
        match tokio::task::spawn_blocking(work).await {
            Ok(Ok(done)) => Ok(done),
            Ok(Err(WriteError::Payload(error))) => {
                self.engine.not_taken(client.clone(), round, error);
                Err(status(&Refused::Rejected(error.into())))
            }
            // It passes: the site sends the same bytes again.
            Ok(Err(WriteError::Io(error))) if resource_backoff::passes(&error) => {
                self.telemetry.resource_exhausted("an update could not be stored", &error);
                Err(wire::unavailable("the server cannot store updates just now"))
            }
            Ok(Err(error @ WriteError::Io(_))) => {
                // Not the client's fault: the server stops before it loses anything, and can be started again.
                self.engine.fault(ServerError::Unavailable(Problem::of(error)));
                Err(wire::unavailable("the server cannot store updates now"))
            }
            Err(_) => Err(wire::unavailable("the server is going down")),
        }
    }
}

pub(crate) type FrameStream<T> = Pin<Box<dyn Stream<Item = Result<T, Status>> + Send>>;

#[tonic::async_trait]
impl Federation for Service {
    type JoinStream = FrameStream<v1::SignedFrame>;

    async fn join(&self, request: Request<v1::SignedMessage>) -> Result<Response<Self::JoinStream>, Status> {
        let peer = self.peer(&request)?;
        let (client, connected) = (peer.client.clone(), connected(&request)?.clone());
        let hello = wire::hello(request.into_inner());
        let welcome = self.engine.hello(peer, hello).await.map_err(|refused| match (&refused, self.twice(&client, &connected)) {
            (Refused::Rejected(rejected), Some(twice)) => wire::rejection(rejected.kind(), format!("{rejected}. {twice}")),
            _ => status(&refused),
        })?;
        Ok(Response::new(Box::pin(stream::iter(wire::welcome_frames(welcome).map(Ok)))))
    }

    type WorkStream = FrameStream<v1::WorkFrame>;

    async fn work(&self, request: Request<Streaming<v1::SiteFrame>>) -> Result<Response<Self::WorkStream>, Status> {
        let peer = connected(&request)?.clone();
        // Anyone who may not speak learns it before it sends anything.
        let client = self.authorise(&peer)?.client;
        self.twice(&client, &peer);
        let at_work = self.session(&client, &peer);
        Ok(Response::new(Box::pin(Session::new(self.clone(), peer, request.into_inner(), at_work).answers())))
    }

    async fn consent(&self, request: Request<v1::CharterSignature>) -> Result<Response<v1::Done>, Status> {
        let peer = self.peer(&request)?;
        self.engine.consent(peer, request.into_inner().signature.into()).await.map_err(|e| status(&e))?;
        Ok(Response::new(v1::Done {}))
    }

    async fn refuse(&self, request: Request<v1::SignedMessage>) -> Result<Response<v1::Done>, Status> {
        let connected = connected(&request)?.clone();
        let peer = self.client(&connected, CALL)?;
        let refused = self.engine.refuse(peer, wire::refusal(request.into_inner())).await;
        refused.map_err(|e| self.status_for(&connected, &e))?;
        Ok(Response::new(v1::Done {}))
    }

    async fn report(&self, request: Request<v1::SignedMessage>) -> Result<Response<v1::Done>, Status> {
        let connected = connected(&request)?.clone();
        let peer = self.client(&connected, CALL)?;
        let reported = self.engine.report(peer, wire::report(request.into_inner())).await;
        reported.map_err(|e| self.status_for(&connected, &e))?;
        Ok(Response::new(v1::Done {}))
    }
}

/// Every connection of our listener carries a peer.
pub(crate) fn connected<T>(request: &Request<T>) -> Result<&ConnectedPeer, Status> {
    request.extensions().get::<ConnectedPeer>().ok_or_else(|| Status::internal("no peer"))
}

impl Service {
    /// Tells the operator, and in what is returned the client, that another connection works under its name.
    fn twice(&self, client: &ClientId, peer: &ConnectedPeer) -> Option<String> {
        let others = self.clients.others(client, peer.connection).join(", ");
        if others.is_empty() {
            return None;
        }
        warn!(%client, from = %peer.address, also_connected_from = others, "a client is connected twice: its connection of before has not ended yet, or a copy of it is at work");
        Some(format!("This one calls from {}; also connected under its name: {others}", peer.address))
    }

    /// Notes a connection on which a client, or the summer, works.
    fn session(&self, client: &ClientId, peer: &ConnectedPeer) -> AtWork {
        self.clients.session(client, peer.connection, peer.address)
    }

    /// A refusal as a status. Where a client contradicts itself both sides learn from where: a copy of it is at work.
    fn status_for(&self, peer: &ConnectedPeer, refused: &Refused) -> Status {
        let (Refused::Rejected(rejected @ Rejected::Conflict), Some((client, _))) = (refused, peer.identity.name.as_enrolled()) else {
            return status(refused);
        };
        let others = self.clients.others(client, peer.connection);
        let elsewhere = if others.is_empty() { "nobody now".into() } else { others.join(", ") };
        warn!(
            %client,
            from = %peer.address,
            also_connected_from = elsewhere,
            "a client sent something else than it had sent before under the same name: a copy of it is at work; its operator is told, too"
        );
        let message = format!("{rejected}. This one calls from {}; also connected under its name: {elsewhere}", peer.address);
        wire::rejection(rejected.kind(), message)
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
    /// Work that may be done now.
    tokens: f64,
    filled: Instant,
    /// Closed rounds when it was filled.
    rounds: i64,
    uploads: u32,
    /// Connections on which it works, with their other ends.
    sessions: BTreeMap<u64, SocketAddr>,
}

impl Clients {
    fn with<T>(&self, client: &ClientId, use_it: impl FnOnce(&mut Share) -> T) -> T {
        let mut shares = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        // Only enrolled names come here, so the map stays small.
        let fresh = || Share { tokens: BURST, filled: clock::instant(), rounds: 0, uploads: 0, sessions: BTreeMap::new() };
        use_it(shares.entry(client.clone()).or_insert_with(fresh))
    }

    /// Takes work out of the client's bucket; `rounds` are closed so far.
    fn admit(&self, client: &ClientId, work: f64, rounds: i64, now: Instant) -> bool {
        self.with(client, |share| {
            #[allow(clippy::cast_precision_loss, reason = "a handful of rounds")]
            let closed = rounds.saturating_sub(share.rounds).clamp(0, 1000) as f64;
            let waited = now.saturating_duration_since(share.filled).as_secs_f64();
            share.tokens = (share.tokens + waited * RATE + closed * ROUND).min(BURST);
            (share.filled, share.rounds) = (now, rounds);
            let enough = share.tokens >= work;
            if enough {
                share.tokens -= work;
            }
            enough
        })
    }

    /// Notes that a client works on this connection, until what is returned is dropped.
    fn session(self: &Arc<Self>, client: &ClientId, connection: u64, address: SocketAddr) -> AtWork {
        self.with(client, |share| share.sessions.insert(connection, address));
        AtWork { clients: self.clone(), client: client.clone(), connection }
    }

    /// Where the client works beside this connection.
    fn others(&self, client: &ClientId, connection: u64) -> Vec<String> {
        self.with(client, |share| share.sessions.iter().filter(|(other, _)| **other != connection).map(|(_, at)| at.to_string()).collect())
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

/// A client's stream of work.
struct AtWork {
    clients: Arc<Clients>,
    client: ClientId,
    connection: u64,
}

impl Drop for AtWork {
    fn drop(&mut self) {
        self.clients.with(&self.client, |share| share.sessions.remove(&self.connection));
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

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::time::Duration;

    use super::*;

    fn client(name: &str) -> ClientId {
        ClientId::new(name).unwrap()
    }

    /// Two thousand calls a second of one client become its share; the others keep theirs, and rounds bring more.
    #[test]
    fn one_client_has_a_share_of_the_work() {
        let (clients, start) = (Clients::default(), clock::instant());
        clients.with(&client("a"), |share| share.filled = start);
        let at = |call: u32| start + Duration::from_micros(500) * call;
        let admitted = (0..20_000).filter(|call| clients.admit(&client("a"), CALL, 0, at(*call))).count();
        // Ten seconds: the burst and ten times the rate, five units a call.
        assert!((395..=401).contains(&admitted), "{admitted}");
        assert!(clients.admit(&client("b"), CALL, 0, at(20_000)));
        // As many rounds as one likes: three requests in each, without a pause.
        let fast = |round: i64| (0..3).all(|_| clients.admit(&client("c"), REQUEST, round, start));
        clients.with(&client("c"), |share| share.filled = start);
        assert!((0..5000).all(fast));
        // The same without rounds ends with the burst.
        assert!(!(0..5000).all(|_| fast(5000)));
    }

    #[test]
    fn a_client_that_works_twice_is_told_where() {
        let clients = Arc::new(Clients::default());
        let at = |port| SocketAddr::from(([10, 0, 0, 1], port));
        let first = clients.session(&client("a"), 7, at(1));
        let _second = clients.session(&client("a"), 9, at(2));
        let _other = clients.session(&client("b"), 8, at(3));
        assert_eq!(clients.others(&client("a"), 9), ["10.0.0.1:1"]);
        drop(first);
        assert!(clients.others(&client("a"), 9).is_empty());
    }

    #[test]
    fn a_client_has_two_uploads_at_the_same_time() {
        let clients = Arc::new(Clients::default());
        let first = clients.upload(&client("a")).unwrap();
        let _second = clients.upload(&client("a")).unwrap();
        assert!(clients.upload(&client("a")).is_none());
        assert!(clients.upload(&client("b")).is_some(), "another client has its own");
        drop(first);
        assert!(clients.upload(&client("a")).is_some());
        assert_eq!(UPLOADS, 2);
    }
}
