//! Accepts connections: one task per handshake, with a deadline, so that nobody who stalls can hold up another.

use std::collections::HashMap;
use std::io;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, mpsc};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;
use tokio_stream::wrappers::ReceiverStream;
use tonic::transport::server::Connected;
use tracing::{debug, info, warn};

use crate::telemetry::Telemetry;
use crate::tls::{LiveCredentials, PeerIdentity};

/// A client that has not finished its handshake by then is disconnected.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);
/// Handshakes at the same time; more wait in the kernel's queue.
const HANDSHAKES: usize = 128;
/// Time for the other side to read why.
const PARTING: Duration = Duration::from_secs(1);
/// Connections of one certificate name.
const CONNECTIONS_PER_PEER: usize = 4;

/// Connections whose peers proved who they are.
pub(crate) type Incoming = ReceiverStream<io::Result<Connection>>;

/// Starts accepting on a bound socket.
pub(crate) fn accept(listener: TcpListener, credentials: Arc<LiveCredentials>, telemetry: Arc<Telemetry>) -> Incoming {
    let (sender, receiver) = mpsc::channel(16);
    tokio::spawn(accept_loop(listener, credentials, telemetry, sender));
    ReceiverStream::new(receiver)
}

async fn accept_loop(
    listener: TcpListener,
    credentials: Arc<LiveCredentials>,
    telemetry: Arc<Telemetry>,
    sender: mpsc::Sender<io::Result<Connection>>,
) {
    let slots = Arc::new(Semaphore::new(HANDSHAKES));
    let peers = Arc::new(Peers::default());
    loop {
        // The semaphore is never closed.
        let Ok(slot) = slots.clone().acquire_owned().await else { return };
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            () = sender.closed() => return,
        };
        let (stream, address) = match accepted {
            Ok(accepted) => accepted,
            Err(error) => {
                // Out of file descriptors, most likely: it passes.
                warn!(%error, "a connection could not be accepted");
                tokio::time::sleep(Duration::from_millis(100)).await;
                continue;
            }
        };
        let (credentials, telemetry, peers, sender) = (credentials.clone(), telemetry.clone(), peers.clone(), sender.clone());
        tokio::spawn(async move {
            let _slot = slot;
            let acceptor = TlsAcceptor::from(credentials.current().server.clone());
            // Small messages must not wait for company.
            let _ = stream.set_nodelay(true);
            match tokio::time::timeout(HANDSHAKE_TIMEOUT, acceptor.accept(stream).into_fallible()).await {
                Ok(Ok(stream)) => match Connection::new(stream, &peers, telemetry) {
                    Ok(connection) => drop(sender.send(Ok(connection)).await),
                    Err(reason) => warn!(%address, reason, "a connection was refused"),
                },
                Ok(Err((error, stream))) => {
                    telemetry.handshake_failures.inc();
                    warn!(%address, %error, "a TLS handshake failed");
                    let _ = tokio::time::timeout(PARTING, part(stream)).await;
                }
                Err(_) => {
                    telemetry.handshake_failures.inc();
                    warn!(%address, "a TLS handshake took too long");
                }
            }
        });
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
}

static NUMBER: AtomicU64 = AtomicU64::new(0);

impl Connection {
    fn new(stream: TlsStream<TcpStream>, peers: &Arc<Peers>, telemetry: Arc<Telemetry>) -> Result<Self, String> {
        let identity = PeerIdentity::read(stream.get_ref().1.peer_certificates()).map_err(|e| e.to_string())?;
        let name = identity.name.to_string();
        let entered = peers.enter(name.clone()).ok_or_else(|| format!("{name} has {CONNECTIONS_PER_PEER} connections already"))?;
        telemetry.connections.inc();
        let connection = NUMBER.fetch_add(1, Ordering::Relaxed);
        info!(peer = name, connection, "connected");
        Ok(Self { stream, peer: ConnectedPeer { identity: Arc::new(identity), connection }, telemetry, _entered: entered })
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
