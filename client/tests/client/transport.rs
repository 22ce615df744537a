//! The gRPC connection against a small server: both sides' certificates, vectors in chunks, reconnects.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};

use crate::common::{Federation, Site, committed, open_budget, open_task, run};
use dp_pvi_accounting::{PrivacyUnit, Relation};
use dp_pvi_client::tls;
use dp_pvi_client::transport::GrpcTransport;
use dp_pvi_names::Hash;
use dp_pvi_privacy::Ledger;
use dp_pvi_privacy::ledger::LedgerIdentity;
use dp_pvi_privacy::ledger::memory::MemoryStore;
use dp_pvi_proto::v1::federation_server::{Federation as Service, FederationServer};
use dp_pvi_proto::{server as wire, v1};
use dp_pvi_protocol::message::{Hello, Intent, Next, Receipt, ReceiptOutcome, Role, RoundHeader, RoundStart, Signed, Update, Welcome};
use dp_pvi_protocol::transport::{Rejection, Transport, TransportError};
use dp_pvi_protocol::witness::Greeting;
use dp_pvi_unsealed::Unsealed;
use ed25519_dalek::SigningKey;
use rcgen::{ExtendedKeyUsagePurpose, KeyPair};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::{RootCertStore, ServerConfig};
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;
use tokio_stream::StreamExt;
use tonic::{Request, Response, Status, Streaming};

/// Answers as a server would, and keeps what it got.
struct Stub {
    key: SigningKey,
    lambda: Vec<f64>,
    received: Arc<Mutex<Vec<u8>>>,
    /// Streams of work that were opened.
    streams: Arc<AtomicU32>,
}

/// Number of entries after whose question the stub ends the stream, as a server may between two requests.
const GOODBYE: u32 = 1000;

#[tonic::async_trait]
impl Service for Stub {
    type JoinStream = tokio_stream::Iter<std::vec::IntoIter<Result<v1::SignedFrame, Status>>>;

    async fn join(&self, request: Request<v1::SignedMessage>) -> Result<Response<Self::JoinStream>, Status> {
        let hello = wire::hello(request.into_inner());
        let welcome = Welcome { version: 1, run: run(), task: open_task().to_bytes(), witnessed: None, hello: hello.hash() };
        let frames: Vec<_> = wire::welcome_frames(Greeting { welcome: Signed::seal(&welcome, &self.key), signed: None }).map(Ok).collect();
        Ok(Response::new(tokio_stream::iter(frames)))
    }

    type WorkStream = std::pin::Pin<Box<dyn tokio_stream::Stream<Item = Result<v1::WorkFrame, Status>> + Send>>;

    async fn work(&self, request: Request<Streaming<v1::SiteFrame>>) -> Result<Response<Self::WorkStream>, Status> {
        let mut frames = request.into_inner();
        let (key, lambda, received) = (self.key.clone(), self.lambda.clone(), Arc::clone(&self.received));
        let (sender, answers) = tokio::sync::mpsc::unbounded_channel();
        self.streams.fetch_add(1, Ordering::SeqCst);
        tokio::spawn(async move {
            while let Some(Ok(frame)) = frames.next().await {
                match wire::request(frame).unwrap() {
                    wire::Request::Next(seen) => {
                        let next = if seen == 0 { Next::Round(Box::new(round(&key, &lambda))) } else { Next::Wait };
                        wire::next_frames(next, Arc::default()).for_each(|frame| sender.send(Ok(frame)).unwrap());
                        if seen == GOODBYE {
                            return;
                        }
                    }
                    wire::Request::Update(update) => {
                        let body = update.peek().unwrap();
                        let mut bytes = Vec::new();
                        while (bytes.len() as u64) < body.coordinates * 8 {
                            bytes.extend(wire::payload(frames.next().await.unwrap().unwrap()).unwrap());
                        }
                        *received.lock().unwrap() = bytes;
                        let (release, outcome) = (body.release, ReceiptOutcome::Stored);
                        let receipt = Receipt { release, update: update.hash(), outcome, witnessed: None, reserved: Vec::new() };
                        sender.send(Ok(wire::receipt(Signed::seal(&receipt, &key)))).unwrap();
                    }
                }
            }
        });
        Ok(Response::new(Box::pin(tokio_stream::wrappers::UnboundedReceiverStream::new(answers))))
    }

    async fn consent(&self, _: Request<v1::CharterSignature>) -> Result<Response<v1::Done>, Status> {
        Err(Status::unavailable("busy"))
    }

    async fn refuse(&self, _: Request<v1::SignedMessage>) -> Result<Response<v1::Done>, Status> {
        Err(Status::unavailable("busy"))
    }

    async fn report(&self, _: Request<v1::SignedMessage>) -> Result<Response<v1::Done>, Status> {
        Err(wire::rejection(Rejection::HelloFirst, "say hello"))
    }
}

fn round(key: &SigningKey, lambda: &[f64]) -> RoundStart {
    let header = RoundHeader {
        run: run(),
        round: 0,
        turn: None,
        visit: 0,
        lambda: Hash([1; 32]),
        previous: Hash::default(),
        deadline_seconds: 5,
        reserved: Vec::new(),
    };
    RoundStart { header: Signed::seal(&header, key), lambda: lambda.into(), entries: Vec::new(), charter: None }
}

/// What the server shows and accepts.
struct Setup<'a> {
    signed_by: &'a Federation,
    uri: &'a str,
    accepts: &'a Federation,
    /// Days from now in which the server's certificate is valid.
    days: std::ops::Range<i64>,
}

/// Days of a certificate that is valid.
const VALID: std::ops::Range<i64> = -1..30;

struct Running {
    port: u16,
    received: Arc<Mutex<Vec<u8>>>,
    streams: Arc<AtomicU32>,
    task: tokio::task::JoinHandle<()>,
}

async fn serve(setup: Setup<'_>, lambda: Vec<f64>, port: u16) -> Running {
    let key = KeyPair::generate().unwrap();
    let chain = setup.signed_by.sign(&key, setup.uri, ExtendedKeyUsagePurpose::ServerAuth, setup.days);
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_slice(setup.accepts.authority.pem().as_bytes()).unwrap()).unwrap();
    let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), Arc::clone(&provider)).build().unwrap();
    let mut config = ServerConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&rustls::version::TLS13])
        .unwrap()
        .with_client_cert_verifier(verifier)
        .with_single_cert(
            vec![CertificateDer::from_pem_slice(chain.as_bytes()).unwrap()],
            PrivateKeyDer::from_pem_slice(key.serialize_pem().as_bytes()).unwrap(),
        )
        .unwrap();
    config.alpn_protocols = vec![b"h2".to_vec()];
    let acceptor = TlsAcceptor::from(Arc::new(config));
    let received = Arc::new(Mutex::new(Vec::new()));
    let streams = Arc::new(AtomicU32::new(0));
    let stub = Stub { key: setup.signed_by.server.clone(), lambda, received: Arc::clone(&received), streams: Arc::clone(&streams) };
    let listener = TcpListener::bind(("127.0.0.1", port)).await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let (sender, receiver) = tokio::sync::mpsc::channel::<Result<tokio::io::DuplexStream, std::io::Error>>(4);
    let task = tokio::spawn(async move {
        // Everything that serves a connection ends with this task.
        let mut connections = tokio::task::JoinSet::new();
        let service = FederationServer::new(stub).max_decoding_message_size(4 << 20);
        connections.spawn(async move {
            let incoming = tokio_stream::wrappers::ReceiverStream::new(receiver);
            tonic::transport::Server::builder().add_service(service).serve_with_incoming(incoming).await.unwrap();
        });
        loop {
            let (tcp, _) = listener.accept().await.unwrap();
            let (acceptor, sender) = (acceptor.clone(), sender.clone());
            connections.spawn(async move {
                if let Ok(mut tls) = acceptor.accept(tcp).await {
                    let (near, mut far) = tokio::io::duplex(1 << 16);
                    sender.send(Ok(near)).await.unwrap();
                    let _ = tokio::io::copy_bidirectional(&mut tls, &mut far).await;
                }
            });
        }
    });
    Running { port, received, streams, task }
}

fn transport(site: &Site, port: u16) -> GrpcTransport {
    let mut config = site.config();
    config.site.host = "127.0.0.1".into();
    config.site.port = port;
    GrpcTransport::new(&config.site, tls::load(&config).unwrap())
}

fn hello(site: &Site, key: &SigningKey) -> Signed<Hello> {
    let config = site.config();
    let hello = Hello {
        versions: vec![1],
        federation: config.site.federation.clone(),
        client: config.site.name.clone(),
        role: Role::Site,
        intent: Intent::Join,
        tls_key: tls::load(&config).unwrap().key_hash,
        task: None,
        nominal_units: Some(5),
        ledger: None,
        ledger_head: None,
        rows: None,
        software: "test".into(),
    };
    Signed::seal(&hello, key)
}

fn kind(error: &TransportError) -> Option<Rejection> {
    match error {
        TransportError::Unreachable(_) => None,
        TransportError::Rejected { kind, .. } => Some(*kind),
    }
}

const SERVER: &str = "dp-pvi://lung-fed/server";

#[tokio::test]
async fn vectors_travel_in_chunks_and_connections_come_back() {
    let site = Site::new();
    let key = dp_pvi_client::keys::identity(&site.config().tls.identity).unwrap();
    let fed = &site.federation;
    let lambda: Vec<f64> = vec![0.25, -1.5, 2.0, 1e300];
    let setup = || Setup { signed_by: fed, uri: SERVER, accepts: fed, days: VALID };
    let server = serve(setup(), lambda.clone(), 0).await;
    let mut transport = transport(&site, server.port);
    let hello = hello(&site, &key);
    let welcome = transport.hello(&hello).await.unwrap().welcome.open(&fed.server.verifying_key()).unwrap();
    assert_eq!((welcome.run, welcome.hello), (run(), hello.hash()));
    transport.admit(lambda.len() as u64);
    let Next::Round(round) = transport.next(0).await.unwrap() else { panic!("a round is open") };
    assert_eq!(*round.lambda, *lambda);
    assert!(matches!(transport.next(1).await.unwrap(), Next::Wait));
    assert_eq!(server.streams.load(Ordering::SeqCst), 1, "rounds come on one stream");
    // A server may end a stream between two requests: no one notices.
    assert!(matches!(transport.next(GOODBYE).await.unwrap(), Next::Wait));
    assert!(matches!(transport.next(1).await.unwrap(), Next::Wait));
    assert_eq!(server.streams.load(Ordering::SeqCst), 2);

    // Eight megabytes, above the limit of one message.
    let values: Vec<f64> = (0..1_000_000).map(f64::from).collect();
    let attachment = {
        let identity = LedgerIdentity { data: "d".into(), unit: PrivacyUnit::Record, relation: Relation::ReplaceOne };
        let mut ledger = Ledger::open(MemoryStore::new(Unsealed), key.clone(), identity, open_budget()).unwrap();
        committed(&mut ledger, 0, values, &key)
    };
    for _ in 0..2 {
        let receipt = transport.submit(&attachment).await.unwrap().open(&fed.server.verifying_key()).unwrap();
        assert_eq!(receipt.update, Signed::<Update>::from_bytes(attachment.message()).unwrap().hash());
        assert!(*server.received.lock().unwrap() == attachment.payload().to_bytes());
        server.received.lock().unwrap().clear();
    }
    // The next round was asked for together with the update, with as many entries as were read before.
    assert!(matches!(transport.next(1).await.unwrap(), Next::Wait));
    assert_eq!(server.streams.load(Ordering::SeqCst), 3, "an answer that nobody waited for went with its stream");

    let refusal = Signed::from_parts(Vec::new(), Vec::new());
    assert!(matches!(transport.refuse(&refusal).await, Err(TransportError::Unreachable(m)) if m == "busy"));
    let report = Signed::from_parts(Vec::new(), Vec::new());
    assert_eq!(kind(&transport.report(&report).await.unwrap_err()), Some(Rejection::HelloFirst));

    server.task.abort();
    let _ = server.task.await;
    let gone = loop {
        match transport.next(0).await {
            Err(error) => break error,
            Ok(_) => tokio::task::yield_now().await,
        }
    };
    assert_eq!(kind(&gone), None, "{gone}");
    assert_eq!(kind(&transport.next(0).await.unwrap_err()), None);
    let server = serve(setup(), lambda, server.port).await;
    assert!(matches!(transport.next(0).await.unwrap(), Next::Round(_)), "a new connection is made");
    server.task.abort();
}

/// A welcome that no one has verified says nothing, and its task is not even read.
#[tokio::test]
async fn no_vector_is_read_before_the_welcome_is_verified() {
    let site = Site::new();
    let key = dp_pvi_client::keys::identity(&site.config().tls.identity).unwrap();
    let fed = &site.federation;
    let server = serve(Setup { signed_by: fed, uri: SERVER, accepts: fed, days: VALID }, vec![0.0; 4], 0).await;
    let mut transport = transport(&site, server.port);
    transport.hello(&hello(&site, &key)).await.unwrap();
    assert!(kind(&transport.next(0).await.unwrap_err()).is_some());
    // The next hello begins anew.
    transport.hello(&hello(&site, &key)).await.unwrap();
    transport.admit(4);
    assert!(matches!(transport.next(0).await.unwrap(), Next::Round(_)));
    transport.hello(&hello(&site, &key)).await.unwrap();
    assert!(kind(&transport.next(0).await.unwrap_err()).is_some());
    server.task.abort();
}

#[tokio::test]
async fn a_vector_longer_than_the_task_says_is_not_read() {
    let site = Site::new();
    let key = dp_pvi_client::keys::identity(&site.config().tls.identity).unwrap();
    let fed = &site.federation;
    let server = serve(Setup { signed_by: fed, uri: SERVER, accepts: fed, days: VALID }, vec![0.0; 5], 0).await;
    let mut transport = transport(&site, server.port);
    transport.hello(&hello(&site, &key)).await.unwrap();
    transport.admit(4);
    assert!(kind(&transport.next(0).await.unwrap_err()).is_some());
    server.task.abort();
}

#[tokio::test]
async fn certificates_of_both_sides_are_named_when_they_fail() {
    let site = Site::new();
    let (fed, foreign) = (&site.federation, Federation::new());
    for (signed_by, uri, accepts, words) in [
        (&foreign, SERVER, fed, "the server's certificate is not accepted"),
        (fed, "dp-pvi://other-fed/server", fed, "dp-pvi://other-fed/server"),
        (fed, "dp-pvi://lung-fed/site/hospital-2", fed, "site/hospital-2"),
        (fed, SERVER, &foreign, "does not accept this client's certificate"),
    ] {
        let server = serve(Setup { signed_by, uri, accepts, days: VALID }, Vec::new(), 0).await;
        let error = transport(&site, server.port).connect().await.unwrap_err();
        assert_eq!(kind(&error), Some(Rejection::Authentication), "{error}");
        assert!(error.to_string().contains(words), "{error}");
        server.task.abort();
    }
    // A listener that speaks no TLS, and none at all.
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let closing = tokio::spawn(async move { drop(listener.accept().await) });
    assert_eq!(kind(&transport(&site, port).connect().await.unwrap_err()), None);
    closing.await.unwrap();
    assert_eq!(kind(&transport(&site, port).connect().await.unwrap_err()), None);
}

/// A certificate of the server that is not valid today is called by its name and its owner, and not taken for a line that is down.
#[tokio::test]
async fn the_end_of_the_server_s_certificate_is_told_by_its_name() {
    let site = Site::new();
    let fed = &site.federation;
    for (days, words, remedy) in [
        (-30..-1, "the server's certificate has expired", "`dp-pvi-server ca renew`"),
        (1..30, "the server's certificate is not valid yet", "check this machine's clock"),
    ] {
        let server = serve(Setup { signed_by: fed, uri: SERVER, accepts: fed, days }, Vec::new(), 0).await;
        let error = transport(&site, server.port).connect().await.unwrap_err();
        assert_eq!(kind(&error), Some(Rejection::Authentication), "{error}");
        assert!(error.to_string().contains(words) && error.to_string().contains(remedy), "{error}");
        // The program ends with it at once: no one waits for a certificate as for a line.
        site.configure("server = \"localhost:1\"", &format!("server = \"localhost:{}\"", server.port));
        let outcome = tokio::task::spawn_blocking({
            let mut command = site.command(&["run"]);
            move || crate::common::Outcome::of(command.output().unwrap())
        });
        outcome.await.unwrap().expect(6, words);
        site.configure(&format!("server = \"localhost:{}\"", server.port), "server = \"localhost:1\"");
        server.task.abort();
    }
}

/// What a server says about this client's certificate, or about its own revocation list, has words of its own each.
#[test]
fn every_alert_about_validity_says_whose_it_is() {
    use rustls::AlertDescription::{AccessDenied, CertificateExpired, CertificateRevoked, UnknownCA};
    let words = |alert| dp_pvi_proto::connection::tls_error(&rustls::Error::AlertReceived(alert)).to_string();
    for (alert, expected) in [
        (AccessDenied, "revocation list has expired"),
        (CertificateExpired, "this client's certificate has expired"),
        (CertificateRevoked, "this client's certificate was revoked"),
        (UnknownCA, "another authority"),
    ] {
        assert!(words(alert).contains(expected), "{}", words(alert));
    }
}
