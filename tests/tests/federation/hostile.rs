//! What a hostile client can send, and what the server makes of it: refused, the state as it was, other clients unharmed.

use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use dp_pvi_names::{ClientId, Hash};
use dp_pvi_server::ca::Authority;
use dp_pvi_tests::federation::{Federation, Party, Server, outcome, run};
use dp_pvi_tests::place::binary;
use dp_pvi_tests::regression::{Likelihood, Records, Schedule, Task};
use dp_pvi_tests::statements::{statements_cover_ledgers, statements_cover_ledgers_of};
use dp_pvi_tests::wire::{Liar, Lie, soon};
use serde_json::Value;
use tonic::Status;
use tonic::metadata::MetadataValue;

const D: usize = 3;

/// Two sites without protection, so that an update is plain numbers.
fn federation(rounds: u32) -> (Federation, Vec<Party>) {
    let task = Task { schedule: Schedule::Synchronous(rounds), damping: Some(0.5), epsilon: None, ..Task::default() };
    let sites = Records::generated(40, D, 0).sites(&[20, 20], Likelihood::Logistic);
    (Federation::new(&task.toml(), &task.schema(D), &sites), sites)
}

/// λ as the server would export it now; what it says instead while no update has entered.
fn state(federation: &Federation) -> Value {
    let folder = federation.home("server").join("now");
    let (code, _, problem) = outcome(&mut federation.server_command(&["export", "-o", folder.to_str().unwrap()]));
    if code == 1 && problem.contains("no update has entered the posterior yet") {
        return Value::Null;
    }
    assert_eq!(code, 0, "{problem}");
    let document: Value = serde_json::from_str(&fs::read_to_string(folder.join("posterior.json")).unwrap()).unwrap();
    serde_json::json!([document["rounds"], document["natural_parameters"]])
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap()
}

#[test]
fn false_updates_are_refused_and_change_nothing() {
    let (federation, _) = federation(1);
    let mut server = federation.start_server();
    let mut honest = federation.start_client("site-2", &server.address);
    runtime().block_on(async {
        let mut liar = Liar::connect(&federation.home("site-1"), &server.address).await.unwrap();
        // Nothing without a hello.
        let nobody = dp_pvi_names::RunId { task: Hash::default(), number: 1 };
        let early = liar.update(nobody, 0, Hash::default(), &[0.5; 2 * D]);
        liar.submit(&early).await.expect_err("an update before the hello");

        for (what, wrong) in false_hellos(&liar) {
            assert!(liar.say_hello(&wrong).await.is_err(), "a hello with {what} was welcomed");
        }
        let hello = liar.hello();
        let welcome = liar.say_hello(&hello).await.unwrap();
        let (header, header_hash, coordinates) = liar.round().await.unwrap();
        assert_eq!((header.round, coordinates), (0, 2 * D));
        let before = state(&federation);

        let good = liar.update(welcome.run, 0, header_hash, &[0.5; 2 * D]);
        for (what, lie) in lies(&good) {
            let status = liar.submit(&lie).await.map(|_| ()).expect_err(what);
            assert!(!status.message().is_empty(), "{what}: {status:?}");
            assert_eq!(state(&federation), before, "{what} changed the state");
        }

        // An update of the right form is taken (no one can see whether it is true), the same bytes get the same receipt, and other
        // bytes under the same name are refused.
        let receipt = liar.submit(&good).await.unwrap();
        assert_eq!(liar.submit(&good).await.unwrap(), receipt);
        let other = Lie { payload: [0.25f64; 2 * D].iter().flat_map(|v| v.to_le_bytes()).collect(), ..good.clone() };
        assert!(liar.submit(&other).await.is_err(), "a second, different update under one name");
    });
    honest.expect(0);
    server.process.expect(0);
    // The liar has no ledger that anything could be compared with.
    statements_cover_ledgers_of(&federation, &["site-2"]);
    let numbers = federation.posterior()["natural_parameters"].as_array().unwrap().clone();
    assert!(numbers.iter().all(|n| n.as_f64().is_some_and(f64::is_finite)));
}

fn false_hellos(liar: &Liar) -> Vec<(&'static str, dp_pvi_protocol::message::Hello)> {
    let good = liar.hello();
    let mut all = Vec::new();
    let mut with = |what, change: &dyn Fn(&mut dp_pvi_protocol::message::Hello)| {
        let mut hello = good.clone();
        change(&mut hello);
        all.push((what, hello));
    };
    with("another client's id", &|h| h.client = ClientId::new("site-2").unwrap());
    with("an unknown client's id", &|h| h.client = ClientId::new("site-9").unwrap());
    with("another federation", &|h| h.federation = "other".into());
    with("another TLS key", &|h| h.tls_key = Hash::default());
    with("another task", &|h| h.task = Some(Hash::of("x", &[])));
    with("no version in common", &|h| h.versions = vec![4_000_000]);
    with("another role than enrolled", &|h| {
        h.role = dp_pvi_protocol::message::Role::Evaluator;
        (h.nominal_units, h.ledger, h.ledger_head) = (None, None, None);
    });
    all
}

fn lies(good: &Lie) -> Vec<(&'static str, Lie)> {
    let bytes = |values: &[f64]| -> Vec<u8> { values.iter().flat_map(|v| v.to_le_bytes()).collect() };
    let with_first = |value: f64| {
        let mut values = [0.5; 2 * D];
        values[0] = value;
        Lie { payload: bytes(&values), ..good.clone() }
    };
    let sized = |n: usize| Lie { payload: bytes(&vec![0.5; n]), coordinates: n as u64, ..good.clone() };
    let mut release = good.release.clone();
    release.round = 1;
    let wrong_round = Lie { release, ..good.clone() };
    let mut release = good.release.clone();
    release.client = ClientId::new("site-2").unwrap();
    let wrong_client = Lie { release, ..good.clone() };
    let mut release = good.release.clone();
    release.run.number += 1;
    let wrong_run = Lie { release, ..good.clone() };
    vec![
        ("not a number", with_first(f64::NAN)),
        ("infinite", with_first(f64::NEG_INFINITY)),
        ("too few coordinates", sized(2 * D - 1)),
        ("too many coordinates", sized(2 * D + 1)),
        ("eight megabytes", sized(1 << 20)),
        ("fewer bytes than announced", Lie { payload: bytes(&[0.5; D]), ..good.clone() }),
        ("more bytes than announced", Lie { payload: bytes(&[0.5; 4 * D]), ..good.clone() }),
        ("bytes that are no numbers", Lie { payload: vec![1; 16 * D - 3], ..good.clone() }),
        ("another round", wrong_round),
        ("another client's id", wrong_client),
        ("another run", wrong_run),
        ("another header", Lie { header: Hash::of("x", &[]), ..good.clone() }),
    ]
}

/// A line of TLS, spoken by hand: what the server answers to a ClientHello that offers TLS 1.2 only.
fn answer_to_tls_1_2(address: &str) -> Vec<u8> {
    let mut hello = vec![3, 3];
    hello.extend([7; 32]);
    // No session, two cipher suites of TLS 1.2, no compression, extensions: groups, signature algorithms.
    hello.extend([0, 0, 4, 0xc0, 0x2b, 0xc0, 0x2f, 1, 0]);
    let extensions = [0, 10, 0, 4, 0, 2, 0, 29, 0, 13, 0, 6, 0, 4, 4, 3, 8, 4];
    hello.extend([0, extensions.len() as u8]);
    hello.extend(extensions);
    let mut record = vec![22, 3, 1, 0, hello.len() as u8 + 4, 1, 0, 0, hello.len() as u8];
    record.extend(hello);
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    stream.write_all(&record).unwrap();
    let mut answer = Vec::new();
    // The server closes after its alert.
    let _ = stream.read_to_end(&mut answer);
    answer
}

/// Whether the server takes this party for a client: connection and hello.
fn welcomed(home: &Path, address: &str) -> Result<(), String> {
    runtime().block_on(async {
        let mut client = Liar::connect(home, address).await.map_err(|e| e.to_string())?;
        let hello = client.hello();
        client.say_hello(&hello).await.map(|_| ()).map_err(|s: Status| s.to_string())
    })
}

#[test]
fn only_tls_1_3_with_a_valid_certificate_is_let_in() {
    let (federation, sites) = federation(1);
    // An evaluator's hello says nothing about a ledger, so it can be said by hand without consequences.
    federation.enrol(&Party::evaluator("probe", sites[0].csv.clone()));
    let mut server = federation.start_server();
    let probe = federation.home("probe");
    welcomed(&probe, &server.address).unwrap();

    // TLS 1.2: an alert, protocol_version (70).
    let answer = answer_to_tls_1_2(&server.address);
    assert_eq!(answer.first(), Some(&21), "an alert: {answer:?}");
    assert_eq!(answer.last(), Some(&70), "protocol_version: {answer:?}");

    // No certificate.
    assert!(without_certificate(&federation, &server).is_err());

    // Expired. The client's own check would stop it: the certificate is put in place after the configuration was read, by hand.
    let tls = federation.home("server").join("tls");
    let request = federation.home("site-1").join("tls/site-1.csr.pem");
    let long_ago = time::OffsetDateTime::now_utc() - time::Duration::days(180);
    let (_, expired) = Authority::open(&tls).unwrap().sign(&request, long_ago, 30).unwrap();
    assert!(with_certificate(&federation, &server, &expired).is_err(), "an expired certificate");
    // The authority wrote an expired revocation list with it: no one is let in while the status of certificates is unknown.
    server.process.wait_until("it has read the expired list", |_| welcomed(&probe, &server.address).err());
    run(Command::new(binary("dp-pvi-server")).args(["ca", "renew", "--ca"]).arg(&tls));
    server.process.wait_until("it has read the new list", |_| welcomed(&probe, &server.address).ok());

    // Revoked.
    federation.enrol(&Party::site("site-3", sites[0].csv.clone()));
    server.process.wait_until("it knows the new site", |_| welcomed(&federation.home("site-3"), &server.address).ok());
    run(Command::new(binary("dp-pvi-server")).args(["ca", "revoke", "site-3", "--ca"]).arg(&tls));
    server.process.wait_until("it refuses the revoked site", |_| welcomed(&federation.home("site-3"), &server.address).err());

    // Everyone else is served.
    let mut clients: Vec<_> = sites.iter().map(|s| federation.start_client(&s.name, &server.address)).collect();
    clients.iter_mut().for_each(|c| c.expect(0));
    server.process.expect(0);
    statements_cover_ledgers(&federation);
}

fn handshake(config: rustls::ClientConfig, address: &str) -> Result<(), String> {
    let limit = Duration::from_secs(30);
    let answer = async {
        let tcp = tokio::net::TcpStream::connect(address).await.map_err(|e| e.to_string())?;
        let name = rustls::pki_types::ServerName::try_from("localhost").unwrap();
        let mut stream = tokio_rustls::TlsConnector::from(Arc::new(config)).connect(name, tcp).await.map_err(|e| e.to_string())?;
        // In TLS 1.3 the server's verdict on the certificate comes with its first bytes.
        let mut first = [0; 1];
        match tokio::io::AsyncReadExt::read(&mut stream, &mut first).await {
            Ok(1) => Ok(()),
            Ok(_) => Err("closed".into()),
            Err(e) => Err(e.to_string()),
        }
    };
    runtime().block_on(async { tokio::time::timeout(limit, answer).await }).expect("an answer of the server, or the end of the connection")
}

fn roots(federation: &Federation) -> rustls::RootCertStore {
    use rustls::pki_types::pem::PemObject;
    let mut roots = rustls::RootCertStore::empty();
    let ca = fs::read(federation.home("site-1").join("tls/ca.pem")).unwrap();
    roots.add(rustls::pki_types::CertificateDer::from_pem_slice(&ca).unwrap()).unwrap();
    roots
}

fn builder(federation: &Federation) -> rustls::ConfigBuilder<rustls::ClientConfig, rustls::client::WantsClientCert> {
    rustls::ClientConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
        .with_protocol_versions(&[&rustls::version::TLS13])
        .unwrap()
        .with_root_certificates(roots(federation))
}

fn without_certificate(federation: &Federation, server: &Server) -> Result<(), String> {
    let mut config = builder(federation).with_no_client_auth();
    config.alpn_protocols = vec![b"h2".to_vec()];
    handshake(config, &server.address)
}

fn with_certificate(federation: &Federation, server: &Server, pem: &str) -> Result<(), String> {
    use rustls::pki_types::pem::PemObject;
    let certificate = rustls::pki_types::CertificateDer::from_pem_slice(pem.as_bytes()).unwrap();
    let key = fs::read(federation.home("site-1").join("tls/site-1.key")).unwrap();
    let key = rustls::pki_types::PrivateKeyDer::from_pem_slice(&key).unwrap();
    let mut config = builder(federation).with_client_auth_cert(vec![certificate], key).unwrap();
    config.alpn_protocols = vec![b"h2".to_vec()];
    handshake(config, &server.address)
}

/// Memory of the server, looked at again and again.
struct Memory<'a> {
    server: &'a Server,
    most: u64,
}

impl Memory<'_> {
    const LIMIT: u64 = 256 << 20;

    fn look(&mut self) {
        self.most = self.most.max(self.server.process.memory());
        assert!(self.most < Self::LIMIT, "the server uses {} MB", self.most >> 20);
    }
}

/// A stream that asks for work, once, and stays open.
fn one_question() -> impl futures_util::Stream<Item = dp_pvi_proto::v1::SiteFrame> + Send + 'static {
    use futures_util::StreamExt;
    futures_util::stream::iter([dp_pvi_proto::client::next(0)]).chain(futures_util::stream::pending())
}

/// Ten megabytes of header and ten thousand streams from one client: the server stays below 256 MB, and the others' rounds close.
#[test]
fn floods_of_one_client_do_not_stop_the_others() {
    const STREAMS: usize = 10_000;
    let (mut federation, _) = federation(3);
    // The flooding client is enrolled but never takes part: rounds close at their deadline with the two others.
    federation.enrol(&Party::site("flood", "x0,x1,x2,y\n0,0,0,1\n".into()));
    federation.server_environment.insert("DP_PVI__PHASES__UPDATE_DEADLINE".into(), "3s".into());
    federation.server_environment.insert("DP_PVI__PHASES__START_DEADLINE".into(), "2s".into());
    let mut server = federation.start_server();
    let mut honest: Vec<_> = ["site-1", "site-2"].iter().map(|s| federation.start_client(s, &server.address)).collect();
    let mut memory = Memory { server: &server, most: 0 };
    runtime().block_on(async {
        let home = federation.home("flood");
        let mut client = Liar::connect(&home, &server.address).await.unwrap();
        let mut request = tonic::Request::new(one_question());
        request.metadata_mut().insert("x-flood", MetadataValue::try_from("a".repeat(10 << 20)).unwrap());
        assert!(soon(client.grpc.work(request)).await.is_err(), "a header of ten megabytes was taken");
        drop(client);
        memory.look();

        // Calls that are never read to their end, from as many connections as it gets, a new call for each that ends.
        let mut clients = Vec::new();
        for _ in 0..8 {
            let Ok(mut client) = Liar::connect(&home, &server.address).await else { continue };
            let hello = client.hello();
            if client.say_hello(&hello).await.is_ok() {
                clients.push(client);
            }
        }
        assert!(!clients.is_empty(), "no connection at all");
        let mut calls = tokio::task::JoinSet::new();
        let mut held = Vec::new();
        for number in 0..STREAMS {
            let mut grpc = clients[number % clients.len()].grpc.clone();
            // Some of them hold their stream for a while, others give up at once.
            let patience = Duration::from_millis(if number % 10 == 0 { 2000 } else { 20 });
            calls.spawn(async move {
                // The answer is held back: it is waited for as long as this caller's patience lasts.
                let mut answers = tokio::time::timeout(patience, grpc.work(one_question())).await.ok().and_then(Result::ok)?.into_inner();
                let _ = tokio::time::timeout(patience, answers.message()).await;
                Some(answers)
            });
            if calls.len() >= 500 {
                held.extend(calls.join_next().await.unwrap().unwrap());
            }
            if number % 100 == 0 {
                memory.look();
            }
        }
        while let Some(answer) = calls.join_next().await {
            held.extend(answer.unwrap());
        }
        println!("{} connections, {STREAMS} calls, {} answered", clients.len(), held.len());
    });
    honest.iter_mut().for_each(|client| client.expect(0));
    memory.look();
    println!("the server used at most {} MB", memory.most >> 20);
    assert!(memory.most > 0);
    server.process.expect(0);
    statements_cover_ledgers(&federation);
    let with_two = |e: &&Value| e["event"] == "round-closed" && e["included"].as_array().is_some_and(|i| i.len() == 2);
    assert_eq!(server.process.events().iter().filter(with_two).count(), 3, "every round closed with the two others");
}

/// Without a certificate: a thousand connections that never speak, renewed as they are closed. Clients still come in, and the run
/// ends.
#[test]
fn silent_connections_of_strangers_do_not_keep_clients_out() {
    let (federation, sites) = federation(2);
    let mut server = federation.start_server();
    let address = server.address.clone();
    let (stop, made) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
    let flood = {
        let (stop, made) = (Arc::clone(&stop), Arc::clone(&made));
        std::thread::spawn(move || {
            let mut open: Vec<TcpStream> = Vec::new();
            while !stop.load(Ordering::SeqCst) {
                // Those that the server closed are renewed.
                open.retain(|s| s.set_nonblocking(true).is_ok() && !matches!((&*s).read(&mut [0]), Ok(0)));
                while open.len() < 1000 && !stop.load(Ordering::SeqCst) {
                    match TcpStream::connect(&address) {
                        Ok(stream) => open.push(stream),
                        Err(_) => break,
                    }
                    made.fetch_add(1, Ordering::SeqCst);
                }
                std::thread::sleep(Duration::from_millis(20));
            }
        })
    };
    // The strangers are there first.
    server.process.wait_until("the strangers are there", |_| (made.load(Ordering::SeqCst) >= 600).then_some(()));
    let mut clients: Vec<_> = sites.iter().map(|s| federation.start_client(&s.name, &server.address)).collect();
    clients.iter_mut().for_each(|c| c.expect(0));
    let memory = server.process.memory();
    stop.store(true, Ordering::SeqCst);
    flood.join().unwrap();
    server.process.expect(0);
    statements_cover_ledgers(&federation);
    assert!(memory < Memory::LIMIT, "the server used {} MB", memory >> 20);
}
