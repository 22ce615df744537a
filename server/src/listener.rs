//! Accepts connections: one task per handshake, with a deadline, so that a stalled peer delays no other.
//!
//! # Limits
//!
//! Connections of strangers take at most a quarter (sites' port) and an eighth (status pages) of the files that the system allows this
//! process. A status page's connection has 5 s for its request's head of 8 KiB, and 20 s in all. What the system has run out of (files,
//! memory, room for payloads) is waited for. Per connection: 16 streams, 8 calls at once, headers of 8 KiB, messages of 320 KiB. A
//! connection says hello within 2 s and proves who it is within 10 s; of 128 such in progress the greediest address loses its oldest. Per
//! client: 4 connections, 2 uploads at once, 100 units of work a second (a request is one, a call five) and 32 for every round. A stream
//! ends after 30 minutes, between two requests.
//! Large payloads go straight to disk, so memory is O(dimension).

use std::collections::HashMap;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use rustls::server::Acceptor;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;
use tokio_rustls::LazyConfigAcceptor;
use tokio_rustls::server::TlsStream;
use tokio_stream::wrappers::ReceiverStream;
use tonic::transport::server::Connected;
use tracing::{debug, info, warn};

use crate::connection_limiter::ConnectionLimiter;
use crate::resource_backoff::ResourceBackoff;
use crate::telemetry::Telemetry;
use crate::tls::{LiveCredentials, PeerIdentity};

/// A client that has not said hello by then is disconnected.
const HELLO_TIMEOUT: Duration = Duration::from_secs(2);
/// And one that has not proved who it is by then.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);
/// Time for the other side to read why.
const PARTING: Duration = Duration::from_secs(1);
/// Connections of one certificate name.
const CONNECTIONS_PER_PEER: usize = 4;

/// Connections whose peers proved who they are.
pub(crate) type Incoming = ReceiverStream<io::Result<Connection>>;

/// Starts accepting on a bound socket, with at most `handshakes` of them in progress.
pub(crate) fn accept(listener: TcpListener, credentials: Arc<LiveCredentials>, telemetry: Arc<Telemetry>, handshakes: usize) -> Incoming {
    let (sender, receiver) = mpsc::channel(16);
    tokio::spawn(accept_loop(listener, credentials, telemetry, ConnectionLimiter::new(handshakes), sender));
    ReceiverStream::new(receiver)
}

async fn accept_loop(
    listener: TcpListener,
    credentials: Arc<LiveCredentials>,
    telemetry: Arc<Telemetry>,
    handshakes: Arc<ConnectionLimiter>,
    sender: mpsc::Sender<io::Result<Connection>>,
) {
    let peers = Arc::new(Peers::default());
    let mut backoff = ResourceBackoff::default();
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            () = sender.closed() => return,
        };
        let (stream, address) = match accepted {
            Ok(accepted) => accepted,
            Err(error) => {
                tokio::time::sleep(backoff.pause(&telemetry, "a connection could not be accepted", &error)).await;
                continue;
            }
        };
        backoff = ResourceBackoff::default();
        let (credentials, telemetry, peers, sender) = (credentials.clone(), telemetry.clone(), peers.clone(), sender.clone());
        handshakes.start(address.ip(), async move {
            match handshake(stream, &credentials).await {
                Ok(stream) => match Connection::new(stream, address, &peers, telemetry) {
                    Ok(connection) => drop(sender.send(Ok(connection)).await),
                    Err(reason) => warn!(%address, reason, "a connection was refused"),
                },
                Err(error) => {
                    telemetry.handshake_failures.inc();
                    let error = meaning(&error);
                    warn!(%address, error, "a TLS handshake failed");
                }
            }
        });
    }
}

async fn handshake(stream: TcpStream, credentials: &LiveCredentials) -> io::Result<TlsStream<TcpStream>> {
    // Small messages must not wait for company.
    let _ = stream.set_nodelay(true);
    let late = |_| io::Error::new(io::ErrorKind::TimedOut, "it took too long");
    let hello = LazyConfigAcceptor::new(Acceptor::default(), stream);
    let start = tokio::time::timeout(HELLO_TIMEOUT, hello).await.map_err(late)??;
    let config = credentials.current().server.clone();
    match tokio::time::timeout(HANDSHAKE_TIMEOUT, start.into_stream(config).into_fallible()).await.map_err(late)? {
        Ok(stream) => Ok(stream),
        Err((error, stream)) => {
            let _ = tokio::time::timeout(PARTING, part(stream)).await;
            Err(error)
        }
    }
}

/// What a failed handshake means. An alert's name does not say whose certificate it is about.
fn meaning(error: &io::Error) -> String {
    use rustls::AlertDescription::CertificateExpired;
    use rustls::CertificateError::{Expired, ExpiredContext};
    match error.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>()) {
        Some(rustls::Error::AlertReceived(CertificateExpired)) => {
            "the client finds that this server's certificate has expired: `dp-pvi-server ca renew` writes a new one (or one of the clocks is wrong)"
                .into()
        }
        Some(rustls::Error::InvalidCertificate(Expired | ExpiredContext { .. })) => {
            "the client's certificate has expired: it is renewed with `dp-pvi-server ca sign` on the request that it was made from".into()
        }
        _ => error.to_string(),
    }
}

/// Lets the other side read the alert: closing a socket with unread bytes in it would throw the alert away, and a client could
/// not tell an expired certificate from a broken line.
async fn part(mut stream: TcpStream) -> io::Result<()> {
    stream.shutdown().await?;
    let mut rest = [0; 1024];
    while stream.read(&mut rest).await? > 0 {}
    Ok(())
}

/// Open connections per certificate name.
#[derive(Debug, Default)]
struct Peers(Mutex<HashMap<String, usize>>);

impl Peers {
    fn enter(self: &Arc<Self>, name: String) -> Option<Entered> {
        let mut open = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let count = open.entry(name.clone()).or_default();
        if *count >= CONNECTIONS_PER_PEER {
            return None;
        }
        *count += 1;
        Some(Entered { peers: self.clone(), name })
    }
}

#[derive(Debug)]
struct Entered {
    peers: Arc<Peers>,
    name: String,
}

impl Drop for Entered {
    fn drop(&mut self) {
        let mut open = self.peers.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(count) = open.get_mut(&self.name) {
            *count -= 1;
            if *count == 0 {
                open.remove(&self.name);
            }
        }
    }
}

/// An authenticated connection.
#[derive(Debug)]
pub(crate) struct Connection {
    stream: TlsStream<TcpStream>,
    peer: ConnectedPeer,
    telemetry: Arc<Telemetry>,
    _entered: Entered,
}

/// Peer of a connection, as requests carry it.
#[derive(Debug, Clone)]
pub(crate) struct ConnectedPeer {
    pub(crate) identity: Arc<PeerIdentity>,
    /// Numbers connections, for the log.
    pub(crate) connection: u64,
    /// The other end.
    pub(crate) address: SocketAddr,
}

static NUMBER: AtomicU64 = AtomicU64::new(0);

impl Connection {
    fn new(stream: TlsStream<TcpStream>, address: SocketAddr, peers: &Arc<Peers>, telemetry: Arc<Telemetry>) -> Result<Self, String> {
        let identity = PeerIdentity::read(stream.get_ref().1.peer_certificates()).map_err(|e| e.to_string())?;
        let name = identity.name.to_string();
        let entered = peers.enter(name.clone()).ok_or_else(|| format!("{name} has {CONNECTIONS_PER_PEER} connections already"))?;
        telemetry.connections.inc();
        let connection = NUMBER.fetch_add(1, Ordering::Relaxed);
        info!(peer = name, connection, %address, "connected");
        Ok(Self { stream, peer: ConnectedPeer { identity: Arc::new(identity), connection, address }, telemetry, _entered: entered })
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.telemetry.connections.dec();
        debug!(peer = %self.peer.identity.name, connection = self.peer.connection, "disconnected");
    }
}

impl Connected for Connection {
    type ConnectInfo = ConnectedPeer;

    fn connect_info(&self) -> ConnectedPeer {
        self.peer.clone()
    }
}

impl AsyncRead for Connection {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let before = buf.filled().len();
        let poll = Pin::new(&mut self.stream).poll_read(cx, buf);
        self.telemetry.bytes_in.inc_by((buf.filled().len() - before) as u64);
        poll
    }
}

impl AsyncWrite for Connection {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        let poll = Pin::new(&mut self.stream).poll_write(cx, buf);
        if let Poll::Ready(Ok(written)) = poll {
            self.telemetry.bytes_out.inc_by(written as u64);
        }
        poll
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }

    fn poll_write_vectored(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bufs: &[io::IoSlice<'_>]) -> Poll<io::Result<usize>> {
        let poll = Pin::new(&mut self.stream).poll_write_vectored(cx, bufs);
        if let Poll::Ready(Ok(written)) = poll {
            self.telemetry.bytes_out.inc_by(written as u64);
        }
        poll
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }
}
