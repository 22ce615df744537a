//! Accepts connections: one task per handshake, with a deadline, so that nobody who stalls can hold up another.

use std::collections::{BTreeMap, HashMap};
use std::io;
use std::net::IpAddr;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use rustls::server::Acceptor;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;
use tokio::task::AbortHandle;
use tokio_rustls::LazyConfigAcceptor;
use tokio_rustls::server::TlsStream;
use tokio_stream::wrappers::ReceiverStream;
use tonic::transport::server::Connected;
use tracing::{debug, info, warn};

use crate::telemetry::Telemetry;
use crate::tls::{LiveCredentials, PeerIdentity};

/// A client that has not said hello by then is disconnected.
const HELLO_TIMEOUT: Duration = Duration::from_secs(2);
/// And one that has not proved who it is by then.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);
/// Handshakes at the same time. Beyond them the address that has most of them loses its oldest, so whoever stalls makes room for
/// those who do not, and a flood from one address displaces itself.
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
    let handshakes = Arc::new(Handshakes::default());
    let peers = Arc::new(Peers::default());
    loop {
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
        handshakes.start(address.ip(), async move {
            match handshake(stream, &credentials).await {
                Ok(stream) => match Connection::new(stream, &peers, telemetry) {
                    Ok(connection) => drop(sender.send(Ok(connection)).await),
                    Err(reason) => warn!(%address, reason, "a connection was refused"),
                },
                Err(error) => {
                    telemetry.handshake_failures.inc();
                    warn!(%address, %error, "a TLS handshake failed");
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

/// Handshakes in progress.
#[derive(Debug, Default)]
struct Handshakes {
    open: Mutex<BTreeMap<u64, (IpAddr, AbortHandle)>>,
    number: AtomicU64,
}

impl Handshakes {
    /// Starts one, and ends another if there are too many.
    fn start(self: &Arc<Self>, address: IpAddr, work: impl Future<Output = ()> + Send + 'static) {
        let number = self.number.fetch_add(1, Ordering::Relaxed);
        let ended = Ended { handshakes: self.clone(), number };
        // The task cannot take itself off the list before it is on it: the list is locked until then.
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        let task = tokio::spawn(async move {
            let _ended = ended;
            work.await;
        });
        open.insert(number, (address, task.abort_handle()));
        if open.len() > HANDSHAKES
            && let Some(victim) = oldest_of_the_greediest(open.iter().map(|(number, (address, _))| (*number, *address)))
            && let Some((_, task)) = open.remove(&victim)
        {
            task.abort();
        }
    }
}

/// The first handshake, in order of age, of the address that has most of them.
fn oldest_of_the_greediest(open: impl Iterator<Item = (u64, IpAddr)>) -> Option<u64> {
    let mut addresses: HashMap<IpAddr, (usize, u64)> = HashMap::new();
    for (number, address) in open {
        addresses.entry(address).or_insert((0, number)).0 += 1;
    }
    addresses.values().max_by_key(|(count, oldest)| (*count, std::cmp::Reverse(*oldest))).map(|(_, oldest)| *oldest)
}

/// Takes a handshake off the list when its task ends, however it ends.
#[derive(Debug)]
struct Ended {
    handshakes: Arc<Handshakes>,
    number: u64,
}

impl Drop for Ended {
    fn drop(&mut self) {
        self.handshakes.open.lock().unwrap_or_else(PoisonError::into_inner).remove(&self.number);
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flood_displaces_itself() {
        let (flood, other, third) = (IpAddr::from([10, 0, 0, 1]), IpAddr::from([10, 0, 0, 2]), IpAddr::from([10, 0, 0, 3]));
        let victim = |open: &[(u64, IpAddr)]| oldest_of_the_greediest(open.iter().copied());
        assert_eq!(victim(&[(1, other), (2, flood), (3, flood), (4, third), (5, flood)]), Some(2));
        assert_eq!(victim(&[(1, other), (2, flood)]), Some(1), "the oldest where all have as many");
        assert_eq!(victim(&[]), None);
    }
}
