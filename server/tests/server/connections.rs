//! Who may connect: certificates, revocation, protocol versions.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use crate::support::{Client, FEDERATION, Fed, Member, Plan, now, sign};
use dp_pvi_programs::identity::generate_identity;
use dp_pvi_protocol::message::Role;
use dp_pvi_protocol::transport::{Rejection, TransportError};
use dp_pvi_server::ca::{Authority, NewFederation};
use tempfile::TempDir;

/// Connects and reads until the server says why not. A client with TLS 1.3 has ended its handshake before the server has judged
/// its certificate, so the alert comes with the first read.
async fn alert(address: SocketAddr, config: rustls::ClientConfig) -> String {
    use tokio::io::AsyncReadExt;
    let connector = tokio_rustls::TlsConnector::from(Arc::new(config));
    let stream = tokio::net::TcpStream::connect(address).await.unwrap();
    let mut stream = match connector.connect("localhost".try_into().unwrap(), stream).await {
        Ok(stream) => stream,
        Err(error) => return error.to_string(),
    };
    let mut bytes = Vec::new();
    match tokio::time::timeout(Duration::from_secs(5), stream.read_to_end(&mut bytes)).await {
        Ok(Err(error)) => error.to_string(),
        Ok(Ok(_)) => "closed without a word".into(),
        Err(_) => "not refused".into(),
    }
}

/// The calls of a client that is refused at the level of connections fail.
async fn refused(connected: Result<Client, String>) {
    if let Ok(mut client) = connected {
        client.hello().await.expect_err("the server must refuse");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn only_valid_certificates_of_this_authority_get_in() {
    let mut fed = Fed::new(2, &Plan::default());
    let long_ago = now() - time::Duration::days(400);
    let expired = fed.enrol("expired", Role::Site, long_ago);
    // Enrolling as of long ago wrote an old revocation list: write today's.
    Authority::open(&fed.path("tls")).unwrap().renew(now(), 90, None).unwrap();
    let server = fed.start().await;

    // A good one, first and last: the server is there all the time.
    fed.member("a").join(server.address).await;

    refused(expired.connect(server.address).await).await;
    let text = alert(server.address, expired.tls_config()).await;
    assert!(text.contains("CertificateExpired"), "{text}");

    // The same name, certified by another authority.
    let other = TempDir::new().unwrap();
    let tls = other.path().join("tls");
    let new =
        NewFederation { name: FEDERATION.into(), dns: vec!["localhost".into()], addresses: Vec::new(), days: 90, revocation_list_days: 90 };
    drop(Authority::init(&tls, &new, now()).unwrap());
    let mut foreign = sign(&tls, other.path(), "a", Role::Site, generate_identity().unwrap(), now(), 30);
    foreign.roots = fed.member("a").roots.clone();
    refused(foreign.connect(server.address).await).await;
    let text = alert(server.address, foreign.tls_config()).await;
    assert!(text.contains("UnknownCA") || text.contains("DecryptError"), "{text}");

    // No certificate.
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut anonymous = rustls::ClientConfig::builder_with_provider(provider.clone())
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(fed.member("a").roots.clone())
        .with_no_client_auth();
    anonymous.alpn_protocols = vec![b"h2".to_vec()];
    let text = alert(server.address, anonymous).await;
    assert!(text.contains("CertificateRequired"), "{text}");

    // The server's own certificate is not a client's.
    let mut impostor: Member = fed.member("a").clone();
    let files = fed.config().tls;
    use rustls::pki_types::pem::PemObject;
    impostor.chain = vec![rustls::pki_types::CertificateDer::from_pem_file(&files.cert).unwrap()];
    impostor.key = Arc::new(rustls::pki_types::PrivateKeyDer::from_pem_file(&files.key).unwrap());
    refused(impostor.connect(server.address).await).await;
    let text = alert(server.address, impostor.tls_config()).await;
    assert!(text.contains("alert"), "{text}");

    fed.member("b").join(server.address).await;
    server.terminate().await;
}

/// The server's side of TLS has no word of TLS 1.2: a hello without the extension for 1.3 gets an alert.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tls_1_2_is_refused() {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    let fed = Fed::new(2, &Plan::default());
    let server = fed.start().await;
    let mut body = vec![3, 3];
    body.extend([7; 32]);
    body.push(0);
    // ECDHE-ECDSA-AES128-GCM-SHA256 and ECDHE-RSA-AES128-GCM-SHA256; null compression.
    body.extend([0, 4, 0xc0, 0x2b, 0xc0, 0x2f, 1, 0]);
    // supported_groups x25519, signature_algorithms ecdsa_secp256r1_sha256.
    body.extend([0, 16, 0, 10, 0, 4, 0, 2, 0, 0x1d, 0, 13, 0, 4, 0, 2, 4, 3]);
    let length = u16::try_from(body.len()).unwrap().to_be_bytes();
    let record_length = u16::try_from(body.len() + 4).unwrap().to_be_bytes();
    let hello = [&[22, 3, 1][..], &record_length, &[1, 0], &length, &body].concat();
    let mut stream = tokio::net::TcpStream::connect(server.address).await.unwrap();
    stream.write_all(&hello).await.unwrap();
    let mut answer = Vec::new();
    tokio::time::timeout(Duration::from_secs(5), stream.read_to_end(&mut answer)).await.unwrap().unwrap();
    // Alert record, fatal, protocol_version (70).
    assert_eq!((answer[0], answer[5], answer[6]), (21, 2, 70), "{answer:?}");
    server.terminate().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sites_come_and_go_without_a_restart() {
    let mut fed = Fed::new(2, &Plan::default());
    let server = fed.start().await;
    let mut a = fed.member("a").join(server.address).await;
    let mut b = fed.member("b").join(server.address).await;

    // A new site is certified at once, and known within seconds.
    let late = fed.enrol("late", Role::Site, now());
    let mut joined = late.connect(server.address).await.unwrap();
    let mut tries = 0;
    while joined.hello().await.is_err() {
        tries += 1;
        assert!(tries < 50, "the new site is not heard");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }

    // A revoked one is cut off: its open connection is not heard, and a new one is not accepted.
    fed.revoke("b");
    let mut tries = 0;
    loop {
        match b.hello().await {
            Err(TransportError::Rejected { kind: Rejection::Authentication, message }) => {
                assert!(message.contains("revoked"), "{message}");
                break;
            }
            other => assert!(tries < 50, "{other:?}"),
        }
        tries += 1;
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    refused(fed.member("b").connect(server.address).await).await;
    let text = alert(server.address, fed.member("b").tls_config()).await;
    assert!(text.contains("CertificateRevoked"), "{text}");
    a.hello().await.unwrap();
    server.terminate().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_expired_revocation_list_is_called_by_its_name() {
    let fed = Fed::new(2, &Plan::default());
    // The list of 100 days ago was valid for 90.
    Authority::open(&fed.path("tls")).unwrap().renew(now() - time::Duration::days(100), 90, None).unwrap();
    Authority::open(&fed.path("tls")).unwrap().renew(now(), 90, None).unwrap();
    let crl = std::fs::read(fed.path("tls/crl.pem")).unwrap();
    Authority::open(&fed.path("tls")).unwrap().renew(now() - time::Duration::days(100), 90, None).unwrap();
    // Today's server certificate with that old list.
    let old = std::fs::read(fed.path("tls/crl.pem")).unwrap();
    Authority::open(&fed.path("tls")).unwrap().renew(now(), 90, None).unwrap();
    std::fs::write(fed.path("tls/crl.pem"), &old).unwrap();
    // A server does not start with it, and says which file it is and what to do.
    let problem = dp_pvi_server::start(fed.config(), dp_pvi_server::Start::Continue, crate::support::Events::default().sink()).await;
    let problem = problem.err().unwrap();
    assert!(
        problem.code() == 6 && problem.to_string().contains("crl.pem has expired") && problem.to_string().contains("ca renew"),
        "{problem}"
    );
    // One that runs already lets no one in any more, and the client is told what has expired.
    std::fs::write(fed.path("tls/crl.pem"), &crl).unwrap();
    let server = fed.start().await;
    fed.member("a").join(server.address).await;
    std::fs::write(fed.path("tls/crl.pem"), &old).unwrap();
    let mut tries = 0;
    while alert(server.address, fed.member("a").tls_config()).await == "not refused" {
        tries += 1;
        assert!(tries < 50, "the old list is not noticed");
    }
    refused(fed.member("a").connect(server.address).await).await;
    let text = alert(server.address, fed.member("a").tls_config()).await;
    assert!(text.contains("AccessDenied"), "{text}");
    let told = dp_pvi_proto::connection::tls_error(&rustls::Error::AlertReceived(rustls::AlertDescription::AccessDenied)).to_string();
    assert!(told.contains("revocation list has expired") && told.contains("ca renew"), "{told}");
    // With a fresh one the same server lets the same client in.
    std::fs::write(fed.path("tls/crl.pem"), crl).unwrap();
    let mut tries = 0;
    while let Err(error) = match fed.member("a").connect(server.address).await {
        Ok(mut client) => client.hello().await.map(drop).map_err(|e| e.to_string()),
        Err(error) => Err(error),
    } {
        tries += 1;
        assert!(tries < 50, "{error}");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    server.terminate().await;
}

/// A server whose own certificate has expired while it runs: the client says whose it is, and so do log, readiness and status of the server. The same
/// for a client's certificate.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whose_certificate_has_expired_is_said_on_both_sides() {
    let mut fed = Fed::new(2, &Plan::default());
    let late = fed.enrol("late", Role::Site, now() - time::Duration::days(400));
    let authority = || Authority::open(&fed.path("tls")).unwrap();
    // A certificate of 100 days ago that was valid for 90, beside today's revocation list.
    authority().renew(now() - time::Duration::days(100), 90, None).unwrap();
    let expired = std::fs::read(fed.path("tls/server.pem")).unwrap();
    authority().renew(now(), 90, None).unwrap();
    let fresh = std::fs::read(fed.path("tls/server.pem")).unwrap();
    std::fs::write(fed.path("tls/server.pem"), &expired).unwrap();
    let problem = dp_pvi_server::start(fed.config(), dp_pvi_server::Start::Continue, crate::support::Events::default().sink()).await;
    let problem = problem.err().unwrap();
    assert!(problem.code() == 6 && problem.to_string().contains("server.pem has expired"), "{problem}");

    std::fs::write(fed.path("tls/server.pem"), &fresh).unwrap();
    let log = fed.path("log.txt");
    let child = std::process::Command::new(env!("CARGO_BIN_EXE_dp-pvi-server"))
        .args(["run", "--format", "json", "--config"])
        .arg(fed.config_path())
        .stdout(std::process::Stdio::piped())
        .stderr(std::fs::File::create(&log).unwrap())
        .spawn()
        .unwrap();
    let server = crate::support::Process::from_child(child);
    let logged = |words: &str| std::fs::read_to_string(&log).unwrap().lines().any(|line| line.contains(words));
    fed.member("a").join(server.address).await;
    let text = alert(server.address, late.tls_config()).await;
    assert!(text.contains("CertificateExpired"), "{text}");
    // The server gives the other side a second to read why, and then writes it down.
    let eventually = async |words: &str| {
        for _ in 0..50 {
            if logged(words) {
                return;
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        panic!("{words}: {}", std::fs::read_to_string(&log).unwrap());
    };
    eventually("the client's certificate has expired").await;
    assert!(!logged("this server's certificate has expired"));
    std::fs::write(fed.path("tls/server.pem"), &expired).unwrap();
    let mut tries = 0;
    let text = loop {
        let text = alert(server.address, fed.member("a").tls_config()).await;
        if text != "not refused" {
            break text;
        }
        tries += 1;
        assert!(tries < 20, "the old certificate is not noticed");
    };
    assert!(text.contains("certificate expired"), "{text}");
    eventually("the client finds that this server's certificate has expired").await;
    // The operator is told without any client, too: log, readiness, status, page and metric.
    assert!(logged("server.pem has expired") && logged("ca renew"));
    let ready = crate::support::page(server.http, "/readyz");
    assert!(ready.starts_with("HTTP/1.1 503") && ready.contains("the server's certificate has expired"), "{ready}");
    let state: serde_json::Value = serde_json::from_str(&fed.status()).unwrap();
    assert!(state["warnings"].to_string().contains("server.pem has expired"), "{state}");
    assert!(crate::support::page(server.http, "/").contains("server.pem has expired"));
    let metrics = crate::support::page(server.http, "/metrics");
    let line = metrics.lines().find(|line| line.starts_with("dp_pvi_certificate_expiry_seconds{subject=\"server\"} ")).unwrap();
    assert!(line.rsplit(' ').next().unwrap().parse::<i64>().unwrap() < -9 * 24 * 3600, "{line}");
    server.kill();
}

/// Weeks before, everything an operator looks at says so, and everyone is still let in.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ends_are_told_weeks_before_wherever_an_operator_looks() {
    let fed = Fed::new(2, &Plan::default());
    // Ten days are left to the certificate and to the list.
    Authority::open(&fed.path("tls")).unwrap().renew(now() - time::Duration::days(80), 90, Some(90)).unwrap();
    let words = ["server.pem expires in ", "crl.pem expires in "];
    let program = |arguments: &[&str]| {
        let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_dp-pvi-server"));
        let output = command.args(arguments).arg("--config").arg(fed.config_path()).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    };
    let told = |place: &str, text: &str| words.iter().for_each(|word| assert!(text.contains(word), "{place}: {text}"));
    told("check", &program(&["check"]));
    let log = fed.path("log.txt");
    let child = std::process::Command::new(env!("CARGO_BIN_EXE_dp-pvi-server"))
        .args(["run", "--format", "json", "--config"])
        .arg(fed.config_path())
        .stdout(std::process::Stdio::piped())
        .stderr(std::fs::File::create(&log).unwrap())
        .spawn()
        .unwrap();
    let server = crate::support::Process::from_child(child);
    fed.member("a").join(server.address).await;
    told("status", &program(&["status"]));
    told("page", &crate::support::page(server.http, "/"));
    told("log", &std::fs::read_to_string(&log).unwrap());
    assert!(crate::support::page(server.http, "/readyz").starts_with("HTTP/1.1 200"));
    let metrics = crate::support::page(server.http, "/metrics");
    for subject in ["server", "revocation-list"] {
        let line = metrics.lines().find(|line| line.starts_with(&format!("dp_pvi_certificate_expiry_seconds{{subject=\"{subject}\"}} ")));
        let seconds: i64 = line.unwrap().rsplit(' ').next().unwrap().parse().unwrap();
        assert!((9 * 24 * 3600..=10 * 24 * 3600).contains(&seconds), "{subject}: {seconds}");
    }
    server.kill();
}

/// Four hundred connections that say nothing, more than the server looks at at the same time, from the very address of the sites.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn stalled_handshakes_hold_nobody_up() {
    let fed = Fed::new(2, &Plan::default());
    let server = fed.start().await;
    let mut silent = Vec::new();
    for _ in 0..400 {
        silent.push(tokio::net::TcpStream::connect(server.address).await.unwrap());
    }
    for _ in 0..3 {
        tokio::time::timeout(Duration::from_secs(2), fed.member("a").join(server.address)).await.expect("others are served");
    }
    // Those who say nothing for two seconds are sent away.
    use tokio::io::AsyncReadExt;
    for stream in &mut silent {
        let read = tokio::time::timeout(Duration::from_secs(5), stream.read(&mut [0; 1])).await.expect("disconnected");
        assert!(matches!(read, Ok(0) | Err(_)));
    }
    server.terminate().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_name_has_few_connections() {
    let fed = Fed::new(2, &Plan::default());
    let server = fed.start().await;
    let mut held = Vec::new();
    for _ in 0..4 {
        held.push(fed.member("a").join(server.address).await);
    }
    refused(fed.member("a").connect(server.address).await).await;
    fed.member("b").join(server.address).await;
    drop(held);
    server.terminate().await;
}

/// Calls of one client far beyond its share are refused, and the others are served as before.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_flood_of_calls_is_cut_off() {
    let fed = Fed::new(2, &Plan::default());
    let server = fed.start().await;
    let mut flood = fed.member("a").join(server.address).await;
    let mut refused = 0;
    for _ in 0..400 {
        match flood.hello().await {
            Ok(_) => {}
            Err(TransportError::Unreachable(words)) if words.contains("slow down") => refused += 1,
            Err(other) => panic!("{other}"),
        }
    }
    // 1,000 units of work at five a call, and 100 a second.
    assert!((50..=200).contains(&refused), "{refused} of 400 calls");
    let mut other = fed.member("b").join(server.address).await;
    for _ in 0..20 {
        other.hello().await.unwrap();
    }
    let metrics = server.running.as_ref().unwrap().http.unwrap();
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    let mut stream = tokio::net::TcpStream::connect(metrics).await.unwrap();
    stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n").await.unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).await.unwrap();
    assert!(text.contains(&format!("dp_pvi_throttled_calls_total {refused}")), "{text}");
    for subject in ["server", "revocation-list", "authority", "a"] {
        let line = text.lines().find(|line| line.starts_with(&format!("dp_pvi_certificate_expiry_seconds{{subject=\"{subject}\"}} ")));
        let seconds: i64 = line.unwrap_or_else(|| panic!("{subject}\n{text}")).rsplit(' ').next().unwrap().parse().unwrap();
        assert!(seconds > 20 * 24 * 3600, "{subject}: {seconds}");
    }
    server.terminate().await;
}

/// Eight calls that send no end hold their connection's share; the ninth is refused at once and does not wait behind them.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn calls_beyond_a_connections_share_are_shed() {
    let fed = Fed::new(2, &Plan::default());
    let server = fed.start().await;
    let channel = crate::support::connect(server.address, fed.member("a").tls_config()).await.unwrap();
    let join = |channel: tonic::transport::Channel| async move {
        let mut grpc = tonic::client::Grpc::new(channel);
        grpc.ready().await.unwrap();
        let path = tonic::codegen::http::uri::PathAndQuery::from_static("/dp_pvi.v1.Federation/Join");
        // A request whose message never comes.
        grpc.streaming(tonic::Request::new(tokio_stream::pending::<()>()), path, Silence).await.map(drop)
    };
    let held: Vec<_> = (0..8).map(|_| tokio::spawn(join(channel.clone()))).collect();
    tokio::time::sleep(Duration::from_millis(300)).await;
    assert!(held.iter().all(|call| !call.is_finished()), "they wait");
    let shed = tokio::time::timeout(Duration::from_secs(2), join(channel.clone())).await.expect("the ninth does not wait");
    assert_eq!(shed.unwrap_err().code(), tonic::Code::ResourceExhausted);
    // Another connection of the same client is served.
    fed.member("a").join(server.address).await;
    held.iter().for_each(tokio::task::JoinHandle::abort);
    server.terminate().await;
}

/// Messages of no bytes: for calls that say nothing.
struct Silence;

impl tonic::codec::Codec for Silence {
    type Encode = ();
    type Decode = ();
    type Encoder = Self;
    type Decoder = Self;

    fn encoder(&mut self) -> Self {
        Self
    }

    fn decoder(&mut self) -> Self {
        Self
    }
}

impl tonic::codec::Encoder for Silence {
    type Item = ();
    type Error = tonic::Status;

    fn encode(&mut self, _item: (), _buffer: &mut tonic::codec::EncodeBuf<'_>) -> Result<(), tonic::Status> {
        Ok(())
    }
}

impl tonic::codec::Decoder for Silence {
    type Item = ();
    type Error = tonic::Status;

    fn decode(&mut self, _buffer: &mut tonic::codec::DecodeBuf<'_>) -> Result<Option<()>, tonic::Status> {
        Ok(None)
    }
}
