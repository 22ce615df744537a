//! The HTTP port: who may ask what, how long it may take, and what unfinished requests can do to a run (nothing).

use std::net::SocketAddr;
use std::time::Duration;

use crate::support::{Fed, Plan, Process};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// Sends bytes and reads until the server ends the connection.
async fn talk(address: SocketAddr, request: &[u8]) -> String {
    let mut stream = TcpStream::connect(address).await.unwrap();
    let _ = stream.write_all(request).await;
    let mut answer = Vec::new();
    // A server that has had enough may reset the connection: what came before is the answer.
    let _ = tokio::time::timeout(Duration::from_secs(30), stream.read_to_end(&mut answer)).await.expect("the connection ends");
    String::from_utf8(answer).unwrap()
}

async fn get(address: SocketAddr, path: &str, host: &str) -> String {
    talk(address, format!("GET {path} HTTP/1.1\r\nHost: {host}\r\n\r\n").as_bytes()).await
}

fn in_process() -> Fed {
    let fed = Fed::new(2, &Plan::default());
    let config = std::fs::read_to_string(fed.config_path()).unwrap();
    std::fs::write(fed.config_path(), config.replace("[tls]", "http_hosts = [\"status.example.org\"]\n[tls]")).unwrap();
    fed
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_answer_forbids_scripts_and_other_names_are_refused() {
    let fed = in_process();
    let server = fed.start().await;
    let address = server.running.as_ref().unwrap().http.unwrap();
    for path in ["/", "/status.json", "/healthz", "/readyz", "/metrics", "/style.css", "/nothing", "/../../etc/passwd"] {
        let answer = get(address, path, &address.to_string()).await;
        let lower = answer.to_lowercase();
        for header in [
            "content-security-policy: default-src 'none'; style-src 'self'",
            "x-content-type-options: nosniff",
            "x-frame-options: deny",
            "referrer-policy: no-referrer",
            "cache-control: no-store",
        ] {
            assert!(lower.contains(header), "{path}: {header}\n{answer}");
        }
        assert!(!answer.contains("<script") && !answer.contains("style=\"") && !answer.contains("<style"), "{answer}");
        assert_eq!(answer.starts_with("HTTP/1.1 200"), !matches!(path, "/nothing" | "/../../etc/passwd"), "{path}: {answer}");
    }
    for host in ["localhost", "LOCALHOST:9464", "127.0.0.1", "[::1]:1", "status.example.org", "Status.Example.Org:80"] {
        assert!(get(address, "/healthz", host).await.starts_with("HTTP/1.1 200"), "{host}");
    }
    for host in ["evil.example.org", "localhost.evil.example.org", "localhost:80:80", "", "127.0.0.1.evil.example.org"] {
        let answer = get(address, "/status.json", host).await;
        assert!(answer.starts_with("HTTP/1.1 421") && !answer.contains("rounds_closed"), "{host}: {answer}");
    }
    assert!(talk(address, b"GET /healthz HTTP/1.1\r\n\r\n").await.starts_with("HTTP/1.1 421"), "no host is no name of ours");
    assert!(talk(address, b"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 5\r\n\r\nhello").await.starts_with("HTTP/1.1 405"));
    let _ = server.terminate().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn requests_have_limits_of_length_and_time() {
    let fed = in_process();
    let server = fed.start().await;
    let address = server.running.as_ref().unwrap().http.unwrap();
    let long = format!("GET /healthz HTTP/1.1\r\nHost: localhost\r\nX: {}\r\n\r\n", "y".repeat(100_000));
    assert!(!talk(address, long.as_bytes()).await.starts_with("HTTP/1.1 200"));
    let many = format!("GET /healthz HTTP/1.1\r\nHost: localhost\r\n{}\r\n", "X: y\r\n".repeat(100));
    assert!(!talk(address, many.as_bytes()).await.starts_with("HTTP/1.1 200"));
    // A head that never ends is not waited for.
    let endless = talk(address, b"GET /healthz HTTP/1.1\r\nHost: lo");
    let answer = tokio::time::timeout(Duration::from_secs(120), endless).await.expect("the connection is closed");
    assert_eq!(answer.find("200 OK"), None);
    // One answer, and the connection is over: no one holds it.
    let two = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\nGET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n";
    assert_eq!(talk(address, two).await.matches("HTTP/1.1 200").count(), 1);
    let _ = server.terminate().await;
}

/// The attack of the finding: more unfinished requests than the process may have files, while updates are written to files.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn unfinished_requests_do_not_end_a_run() {
    for descriptors in [64, 256] {
        let rounds = 6;
        let fed = Fed::new(2, &Plan { columns: 20_000, rounds, linger: "1s", ..Plan::default() });
        let server = Process::spawn_with_descriptors(&fed, descriptors);
        let page = server.http;
        let flood = tokio::spawn(async move {
            let mut open = Vec::new();
            loop {
                if let Ok(Ok(mut stream)) = tokio::time::timeout(Duration::from_millis(200), TcpStream::connect(page)).await {
                    let _ = stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: local").await;
                    open.push(stream);
                }
                if open.len() > 400 {
                    open.drain(..200);
                }
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        });
        // The flood is before the sites come.
        tokio::time::sleep(Duration::from_millis(500)).await;
        let mut sites = [fed.member("a").join(server.address).await, fed.member("b").join(server.address).await];
        let values = vec![0.5; sites[0].coordinates];
        assert!(values.len() * 8 > 65_536, "payloads are files");
        for _ in 0..rounds {
            for site in &mut sites {
                let start = tokio::time::timeout(Duration::from_secs(20), site.round()).await.expect("sites are served");
                site.send(&start, &values).await.unwrap();
            }
        }
        for site in &mut sites {
            site.finished().await;
        }
        server.event("exported");
        assert_eq!(server.exit_code(), Some(0), "{descriptors} descriptors");
        flood.abort();
    }
}
