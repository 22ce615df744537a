//! One TCP and TLS connection to the server, as a tonic channel: how sites, evaluators and the summer call it.

use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use dp_pvi_protocol::transport::{Rejection, TransportError};
use hyper_util::rt::TokioIo;
use rustls::ClientConfig;
use rustls_pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tonic::transport::{Channel, Endpoint};

use self::proxy::Way;
use dp_pvi_programs::identity::PeerName;

mod proxy;

/// Name resolution, TCP and TLS, each.
const CONNECT: Duration = Duration::from_secs(10);
/// Time in which the server's first bytes (or its refusal) follow a handshake.
const FIRST_BYTES: Duration = Duration::from_secs(2);

/// What the server's verifier answers where its revocation list has expired. It becomes the alert `access_denied`, so that a client can
/// tell it from a certificate of another authority, for which TLS has a name of its own.
pub const REVOCATION_LIST_EXPIRED: rustls::CertificateError = rustls::CertificateError::ApplicationVerificationFailure;

/// Whom to call, and how to know the other end.
#[derive(Debug, Clone, Copy)]
pub struct Dial<'a> {
    /// Host name or address.
    pub host: &'a str,
    /// Port.
    pub port: u16,
    /// Authority to trust, and the certificate to present.
    pub tls: &'a Arc<ClientConfig>,
    /// Name that the server's certificate must carry.
    pub server_name: &'a ServerName<'static>,
    /// URI that the server's certificate must carry.
    pub server: &'a PeerName,
}

/// Where a connection keeps the TLS error that ended it: gRPC itself only says that the stream broke.
#[derive(Debug, Clone, Default)]
pub struct Failure(Arc<Mutex<Option<rustls::Error>>>);

impl Failure {
    /// The error, once.
    #[must_use]
    pub fn take(&self) -> Option<rustls::Error> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    fn note(&self, error: &io::Error) {
        if let Some(tls) = inner(error) {
            *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(tls.clone());
        }
    }
}

/// Connects, checks the server's certificate and waits for its first bytes.
///
/// In TLS 1.3 a client finishes its handshake before the server has looked at the client's certificate. An HTTP/2 server speaks first, so
/// its first bytes say that this client was accepted, and an alert in their place says why not.
///
/// # Errors
/// Unreachable, or one side does not accept the other's certificate.
pub async fn connect(dial: Dial<'_>) -> Result<(Channel, Failure), TransportError> {
    let unreachable = |what: &str, error: &dyn std::fmt::Display| TransportError::Unreachable(format!("{what}: {error}"));
    let opened = tokio::time::timeout(2 * CONNECT, proxy::open(dial.host, dial.port)).await;
    let Way { stream: tcp, proxy } = opened.map_err(|_| unreachable("connect", &"timed out"))??;
    tcp.set_nodelay(true).map_err(|e| unreachable("connect", &e))?;
    let connector = TlsConnector::from(Arc::clone(dial.tls));
    let mut stream = tokio::time::timeout(CONNECT, connector.connect(dial.server_name.clone(), tcp))
        .await
        .unwrap_or_else(|_| Err(io::Error::new(io::ErrorKind::TimedOut, "timed out")))
        .map_err(|e| inner(&e).map_or_else(|| unreachable("TLS", &e), tls_error))
        .map_err(|error| through(error, proxy.as_deref(), dial))?;
    check_server(&stream, dial.server)?;

    let mut first = vec![0; 1024];
    let received = match tokio::time::timeout(FIRST_BYTES, stream.read(&mut first)).await {
        Err(_) => 0,
        Ok(Ok(0)) => return Err(unreachable("TLS", &"the server closed the connection")),
        Ok(Ok(count)) => count,
        Ok(Err(e)) => return Err(inner(&e).map_or_else(|| unreachable("TLS", &e), tls_error)),
    };
    first.truncate(received);

    let failure = Failure::default();
    let watched = Watched { stream, first, failure: failure.clone() };
    // The stream exists already: the connector hands it over once. A channel that lost it fails, and the transport makes another.
    let mut once = Some(watched);
    let connector = tower::service_fn(move |_: tonic::codegen::http::Uri| {
        let stream = once.take().map(TokioIo::new).ok_or_else(|| io::Error::from(io::ErrorKind::NotConnected));
        async move { stream }
    });
    let channel = Endpoint::from_static("http://dp-pvi.invalid")
        .tcp_nodelay(true)
        .http2_keep_alive_interval(Duration::from_secs(30))
        .keep_alive_timeout(Duration::from_secs(10))
        .keep_alive_while_idle(true)
        .initial_stream_window_size(4 << 20)
        .initial_connection_window_size(8 << 20)
        .connect_with_connector(connector)
        .await
        .map_err(|e| failure.take().map_or_else(|| unreachable("HTTP/2", &e), |e| tls_error(&e)))?;
    Ok((channel, failure))
}

/// A certificate of another authority may be the proxy's own, and what is no TLS may be its page.
fn through(error: TransportError, proxy: Option<&str>, dial: Dial<'_>) -> TransportError {
    match (error, proxy) {
        (TransportError::Rejected { kind: kind @ Rejection::Authentication, message }, Some(proxy)) => {
            let Dial { host, port, .. } = dial;
            let message = format!("{message}. If the proxy {proxy} opens TLS, ask for a bypass of {host}:{port}");
            TransportError::Rejected { kind, message }
        }
        (TransportError::Unreachable(words), Some(proxy)) => TransportError::Unreachable(format!("{words} (through the proxy {proxy})")),
        (error, _) => error,
    }
}

/// What a TLS error means: certificates are a matter for people, anything else may pass.
#[must_use]
pub fn tls_error(error: &rustls::Error) -> TransportError {
    use rustls::{AlertDescription as Alert, CertificateError, Error};
    let rejected = |message: String| TransportError::Rejected { kind: Rejection::Authentication, message };
    match error {
        Error::InvalidCertificate(CertificateError::Expired | CertificateError::ExpiredContext { .. }) => rejected(
            "the server's certificate has expired (or this machine's clock is wrong): its operator renews it with `dp-pvi-server ca renew`"
                .into(),
        ),
        Error::InvalidCertificate(CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. }) => {
            rejected("the server's certificate is not valid yet: check this machine's clock".into())
        }
        Error::InvalidCertificate(e) => rejected(format!("the server's certificate is not accepted ({e}): check [tls] ca and server_name")),
        // The server's own verifier sends this for nothing else (see `REVOCATION_LIST_EXPIRED`).
        Error::AlertReceived(Alert::AccessDenied) => rejected(
            "the server lets nobody in because its revocation list has expired: its operator writes a new one with `dp-pvi-server ca renew`"
                .into(),
        ),
        Error::AlertReceived(Alert::CertificateExpired) => rejected(
            "the server says that this client's certificate has expired: have a new one signed (`dp-pvi-server ca sign`), or check the clocks"
                .into(),
        ),
        Error::AlertReceived(Alert::CertificateRevoked) => {
            rejected("this client's certificate was revoked: ask the operator of the federation".into())
        }
        Error::AlertReceived(Alert::UnknownCA) => rejected(
            "this client's certificate is of another authority than the server's: get certificate and [tls] ca from the server's operator".into(),
        ),
        Error::AlertReceived(
            alert @ (Alert::BadCertificate
            | Alert::UnsupportedCertificate
            | Alert::CertificateUnknown
            | Alert::DecryptError
            | Alert::CertificateRequired),
        ) => rejected(format!(
            "the server does not accept this client's certificate ({alert:?}): check [tls] cert with the server's operator"
        )),
        Error::AlertReceived(alert @ (Alert::ProtocolVersion | Alert::HandshakeFailure | Alert::NoApplicationProtocol)) => {
            TransportError::Rejected { kind: Rejection::Version, message: format!("the server speaks another protocol ({alert:?})") }
        }
        Error::PeerIncompatible(e) => TransportError::Rejected {
            kind: Rejection::Version,
            message: format!("the server speaks another protocol ({e:?}); TLS 1.3 is needed"),
        },
        other => TransportError::Unreachable(other.to_string()),
    }
}

fn check_server(stream: &TlsStream<TcpStream>, expected: &PeerName) -> Result<(), TransportError> {
    let rejected = |message| TransportError::Rejected { kind: Rejection::Authentication, message };
    let chain = stream.get_ref().1.peer_certificates().unwrap_or_default();
    let certificate = chain.first().ok_or_else(|| rejected("the server shows no certificate".into()))?;
    match PeerName::from_certificate(certificate) {
        Ok(name) if name == *expected => Ok(()),
        Ok(name) => Err(rejected(format!("the server's certificate is for {name}, expected {expected}"))),
        Err(e) => Err(rejected(format!("the server's certificate: {e}"))),
    }
}

fn inner(error: &io::Error) -> Option<&rustls::Error> {
    error.get_ref().and_then(|e| e.downcast_ref())
}

/// The stream, with the bytes that were read already, and an eye on TLS errors.
struct Watched {
    stream: TlsStream<TcpStream>,
    first: Vec<u8>,
    failure: Failure,
}

impl AsyncRead for Watched {
    fn poll_read(mut self: Pin<&mut Self>, context: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        if !self.first.is_empty() {
            let count = self.first.len().min(buffer.remaining());
            buffer.put_slice(&self.first[..count]);
            self.first.drain(..count);
            return Poll::Ready(Ok(()));
        }
        let result = Pin::new(&mut self.stream).poll_read(context, buffer);
        if let Poll::Ready(Err(e)) = &result {
            self.failure.note(e);
        }
        result
    }
}

impl AsyncWrite for Watched {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }

    fn poll_write_vectored(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[io::IoSlice<'_>]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(context, bytes)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }
}
