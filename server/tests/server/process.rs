//! The server as a process: killed at any time, ended by signals, attacked by a client with a valid certificate.

use std::sync::Arc;
use std::time::Duration;

use crate::support::{Client, FEDERATION, Fed, Member, Plan, Process, site_name};
use dp_pvi_programs::process::ignores_hangup;
use dp_pvi_protocol::message::ReceiptOutcome;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_killed_server_continues_where_it_was() {
    let fed = Fed::new(2, &Plan { rounds: 6, linger: "1s", ..Plan::default() });
    let mut server = Process::spawn(&fed, &[]);
    let mut sites: Vec<Client> = Vec::new();
    for name in ["a", "b"] {
        sites.push(fed.member(name).join(server.address).await);
    }
    for round in 0..6_u32 {
        for i in 0..2 {
            let start = sites[i].round().await;
            let receipt = sites[i].send(&start, &[1.0, 2.0, 3.0, 4.0]).await.unwrap();
            assert_eq!(receipt.outcome, ReceiptOutcome::Stored);
            // Killed in the middle of a round, and right after one.
            if round % 2 == u32::try_from(i).unwrap() {
                server.kill();
                server = Process::spawn(&fed, &[]);
                for site in &mut sites {
                    let mut again = site.member.join(server.address).await;
                    again.seen = site.seen;
                    *site = again;
                }
            }
        }
    }
    let end = sites[0].finished().await;
    // λ0 = (0, 0, 1, 1), six rounds of 0.1 · 2 · (1, 2, 3, 4): as if nothing had happened.
    for (value, expected) in end.lambda.iter().zip([1.2, 2.4, 4.6, 5.8]) {
        assert!((value - expected).abs() < 1e-12, "{value} {expected}");
    }
    sites[1].finished().await;
    server.event("exported");
    assert_eq!(server.exit_code(), Some(0));
    assert!(fed.path("state/posterior.json").exists() && fed.path("state/report.html").exists());
    // Another start of the same run serves its end for a second and writes the results again.
    let code =
        std::process::Command::new(env!("CARGO_BIN_EXE_dp-pvi-server")).args(["run", "-q", "--config"]).arg(fed.config_path()).output();
    assert_eq!(code.unwrap().status.code(), Some(0));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn signals_and_mistakes_have_their_codes() {
    let fed = Fed::new(2, &Plan::default());
    // Under `nohup` the tests, and so their servers, live on when a terminal closes.
    let hangup = (!ignores_hangup()).then_some(("HUP", 129));
    for (signal, code) in [("INT", 130), ("TERM", 143)].into_iter().chain(hangup) {
        let server = Process::spawn(&fed, &[]);
        let mut a = fed.member("a").join(server.address).await;
        let waiting = tokio::spawn(async move { a.next().await.is_err() });
        tokio::time::sleep(Duration::from_millis(100)).await;
        server.signal(signal);
        assert_eq!(server.exit_code(), Some(code));
        assert!(waiting.await.unwrap(), "a waiting call is answered");
        assert!(!fed.path("state/admin.sock").exists());
    }
    let run = |arguments: &[&str]| {
        let output = std::process::Command::new(env!("CARGO_BIN_EXE_dp-pvi-server"))
            .args(arguments)
            .arg("--config")
            .arg(fed.config_path())
            .stdin(std::process::Stdio::null())
            .output()
            .unwrap();
        (
            output.status.code().unwrap(),
            String::from_utf8_lossy(&output.stdout).into_owned(),
            String::from_utf8_lossy(&output.stderr).into_owned(),
        )
    };
    assert_eq!(run(&["fly"]).0, 2);
    assert_eq!(run(&["status"]).0, 5);
    let (code, text, _) = run(&["check", "--format", "json"]);
    assert_eq!(code, 0);
    let checked: serde_json::Value = serde_json::from_str(&text).unwrap();
    assert_eq!(checked["task_hash"], fed.task().hash().to_string());
    assert_eq!(checked["epsilon"], serde_json::Value::Null);
    let (code, text, _) =
        run(&["export", "-o", fed.path("out").to_str().unwrap(), "--transcript", fed.path("out/t.jsonl").to_str().unwrap()]);
    assert_eq!(code, 1, "{text}");
    assert!(!fed.path("out/report.html").exists() && !fed.path("out/t.jsonl").exists(), "no round, no results");
    std::fs::write(fed.config_path(), "[server]\nnam = \"x\"\n").unwrap();
    let (code, _, log) = run(&["run"]);
    assert_eq!(code, 2);
    assert!(log.contains("server.toml") && log.contains("nam"), "{log}");
    assert!(!log.contains("\\n") && log.contains("\n    2 | nam = "), "a quoted file has its lines: {log}");
}

/// The file with the mistake is named, and not the one that names it.
#[test]
fn a_mistake_in_the_schema_names_the_schema() {
    let fed = Fed::new(2, &Plan::default());
    let schema = fed.path("schema.toml");
    let good = std::fs::read_to_string(&schema).unwrap();
    std::fs::write(&schema, good.replacen("kind = \"boolean\"", "kind = boolean", 1)).unwrap();
    let mut check = std::process::Command::new(env!("CARGO_BIN_EXE_dp-pvi-server"));
    let output = check.args(["check", "--config"]).arg(fed.config_path()).output().unwrap();
    let log = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(4), "{log}");
    let first = log.lines().next().unwrap();
    assert!(first.contains(schema.to_str().unwrap()) && first.contains("TOML parse error"), "{log}");
    assert!(log.contains(" | kind = boolean") && !log.contains("\\n"), "{log}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_full_disk_ends_the_server_and_loses_nothing() {
    let fed = Fed::new(2, &Plan { columns: 30_000, rounds: 20, ..Plan::default() });
    // 4 MB: schema and two rounds of λ fit, not more. The limit is on single files, as a quota would be.
    let mut command = std::process::Command::new("sh");
    command.args(["-c", "ulimit -f 8000; exec \"$0\" run --format json --quiet --config \"$1\"", env!("CARGO_BIN_EXE_dp-pvi-server")]);
    let child = command.arg(fed.config_path()).stdin(std::process::Stdio::null()).stdout(std::process::Stdio::piped());
    let server = Process::from_child(child.spawn().unwrap());
    let (mut a, mut b) = (fed.member("a").join(server.address).await, fed.member("b").join(server.address).await);
    let values = vec![1.0; a.coordinates];
    let mut receipts = 0;
    for _ in 0..20 {
        let Ok(start) = tokio::time::timeout(Duration::from_secs(5), a.try_round()).await.unwrap_or(Err(())) else { break };
        if a.send(&start, &values).await.is_err() {
            break;
        }
        receipts += 1;
        let Ok(start) = b.try_round().await else { break };
        if b.send(&start, &values).await.is_err() {
            break;
        }
        receipts += 1;
    }
    assert!((1..40).contains(&receipts), "the disk filled up after {receipts} receipts");
    assert_eq!(server.exit_code(), Some(12));
    // With room again, every receipt is honoured.
    let server = Process::spawn(&fed, &[]);
    let state: serde_json::Value = serde_json::from_str(&fed.status()).unwrap();
    let closed = state["rounds_closed"].as_u64().unwrap();
    let waiting = state["waiting_for"].as_array().unwrap().len() as u64;
    assert_eq!(2 * closed + (2 - waiting), receipts, "{state}");
    drop(server);
}

/// A client with a valid certificate, speaking HTTP/2 by hand.
struct Hostile(tokio_rustls::client::TlsStream<tokio::net::TcpStream>);

impl Hostile {
    async fn connect(member: &Member, address: std::net::SocketAddr) -> Self {
        let connector = tokio_rustls::TlsConnector::from(Arc::new(member.tls_config()));
        let stream = tokio::net::TcpStream::connect(address).await.unwrap();
        let mut stream = connector.connect("localhost".try_into().unwrap(), stream).await.unwrap();
        stream.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n").await.unwrap();
        let mut hostile = Self(stream);
        assert!(hostile.frame(4, 0, 0, &[]).await);
        hostile
    }

    /// Sends a frame; false once the server has had enough.
    async fn frame(&mut self, kind: u8, flags: u8, stream: u32, payload: &[u8]) -> bool {
        let length = u32::try_from(payload.len()).unwrap().to_be_bytes();
        let head = [&length[1..], &[kind, flags], &stream.to_be_bytes()].concat();
        self.0.write_all(&[head.as_slice(), payload].concat()).await.is_ok()
    }
}

/// Header block of a call that waits: POST, http, path, authority, content type.
fn headers() -> Vec<u8> {
    let literal = |index: u8, value: &str| {
        let mut bytes = vec![index, u8::try_from(value.len()).unwrap()];
        bytes.extend(value.as_bytes());
        bytes
    };
    // Indexed :method POST and :scheme http; literals with indexed names :path (4), :authority (1), content-type (31).
    let mut block = vec![0x83, 0x86];
    block.extend(literal(4, "/dp_pvi.v1.Federation/Next"));
    block.extend(literal(1, "localhost"));
    block.extend([0x0f, 31 - 15]);
    block.push(16);
    block.extend(b"application/grpc");
    block
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ten_thousand_streams_and_huge_headers_disturb_nobody() {
    let fed = Fed::new(3, &Plan { rounds: 50, min_sites: 2, ..Plan::default() });
    let server = Process::spawn(&fed, &[]);
    let (mut a, mut b, _c) = (
        fed.member("a").join(server.address).await,
        fed.member("b").join(server.address).await,
        fed.member("c").join(server.address).await,
    );
    let address = server.address;
    let attacker = fed.member("c").clone();
    let attack = tokio::spawn(async move {
        // 10 000 streams at once, never ended, on one connection.
        let mut streams = Hostile::connect(&attacker, address).await;
        let block = headers();
        let mut opened = 0;
        for i in 0..10_000_u32 {
            if !streams.frame(1, 0x4, 2 * i + 1, &block).await {
                break;
            }
            opened += 1;
        }
        // 10 MB of one header, in continuation frames.
        let mut big = Hostile::connect(&attacker, address).await;
        let mut first = headers();
        // A literal without indexing: name "x", value of 10 MB (as an HPACK integer with a 7-bit prefix).
        first.extend([0x00, 1, b'x', 0x7f, 0x81, 0xac, 0xe2, 0x04]);
        let mut sent = 0;
        if big.frame(1, 0, 1, &first).await {
            while sent < 10_000_000 && big.frame(9, 0, 1, &[b'y'; 16_000]).await {
                sent += 16_000;
            }
        }
        // Both stay open for a while.
        let mut rest = [0; 1024];
        let _ = tokio::time::timeout(Duration::from_millis(500), streams.0.read(&mut rest)).await;
        (opened, sent)
    });
    for _ in 0..3 {
        for site in [&mut a, &mut b] {
            let start = tokio::time::timeout(Duration::from_secs(5), site.round()).await.expect("others are served");
            site.send(&start, &[0.0; 4]).await.unwrap();
        }
        let mut c = fed.member("c").join(server.address).await;
        let start = c.round().await;
        c.send(&start, &[0.0; 4]).await.unwrap();
    }
    let (opened, sent) = attack.await.unwrap();
    assert!(opened > 16, "the attack was one ({opened} streams, {sent} bytes)");
    let peak = server.memory("VmHWM");
    assert!(peak < 256 << 20, "{} MiB", peak >> 20);
    // Still well.
    let start = a.round().await;
    a.send(&start, &[0.0; 4]).await.unwrap();
}

/// Nothing was learned, nothing is written, and the code says so: whether an operator ends the run or too few sites come.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_run_without_a_round_is_no_result() {
    let stopped = Fed::new(2, &Plan { linger: "1s", ..Plan::default() });
    let server = Process::spawn(&stopped, &[]);
    let program = env!("CARGO_BIN_EXE_dp-pvi-server");
    let stop = std::process::Command::new(program).args(["stop", "--config"]).arg(stopped.config_path()).output().unwrap();
    assert!(stop.status.success() && String::from_utf8_lossy(&stop.stdout).contains("stopped"), "{stop:?}");
    assert_eq!(server.exit_code(), Some(1));
    let alone = Fed::new(2, &Plan { start_deadline: "1s", linger: "1s", ..Plan::default() });
    let server = Process::spawn(&alone, &[]);
    let _a = alone.member("a").join(server.address).await;
    assert_eq!(server.exit_code(), Some(9));
    for fed in [&stopped, &alone] {
        assert!(!fed.path("state/posterior.json").exists() && !fed.path("state/report.html").exists());
    }
}

/// Who is enrolled and stays away, and who came and is gone, is seen.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn absent_and_silent_sites_are_seen() {
    let fed = Fed::new(3, &Plan { min_sites: 2, ..Plan::default() });
    let server = Process::spawn(&fed, &[]);
    let _a = fed.member("a").join(server.address).await;
    let state: serde_json::Value = serde_json::from_str(&fed.status()).unwrap();
    assert_eq!(state["waiting_for"], serde_json::json!(["b", "c"]), "{state}");
    assert_eq!(state["absent"], serde_json::json!({"b": "site", "c": "site", "eve": "evaluator"}));
    assert!(state["members"][0]["heard"] == true && state["members"][0]["silent_seconds"].is_u64(), "{state}");
    let text = std::process::Command::new(env!("CARGO_BIN_EXE_dp-pvi-server")).args(["status", "--config"]).arg(fed.config_path()).output();
    let text = String::from_utf8(text.unwrap().stdout).unwrap();
    assert!(text.contains("waiting    for b, c") && text.contains("absent     b (site): enrolled, has not joined"), "{text}");
    server.kill();
    // Another process has not heard it yet, and says so.
    let _server = Process::spawn(&fed, &[]);
    let state: serde_json::Value = serde_json::from_str(&fed.status()).unwrap();
    assert_eq!(state["members"][0]["heard"], false);
}

/// The first one is at work; the second is told, whether it is let in or not, and so is the operator.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_connections_of_one_client_are_told_of_to_the_operator_and_to_the_one_that_is_refused() {
    let fed = Fed::new(2, &Plan::default());
    let log = fed.path("log");
    let child = std::process::Command::new(env!("CARGO_BIN_EXE_dp-pvi-server"))
        .args(["run", "--format", "json", "--config"])
        .arg(fed.config_path())
        .stdin(std::process::Stdio::null())
        .stdout(std::process::Stdio::piped())
        .stderr(std::fs::File::create(&log).unwrap())
        .spawn();
    let server = Process::from_child(child.unwrap());
    let warnings = || std::fs::read_to_string(&log).unwrap().lines().filter(|line| line.contains("connected twice")).count();
    let mut a = fed.member("a").join(server.address).await;
    let _b = fed.member("b").join(server.address).await;
    a.round().await;
    assert_eq!(warnings(), 0);
    let mut copy = fed.member("a").connect(server.address).await.unwrap();
    let mut hello = copy.hello_body();
    hello.versions = vec![7];
    let refused = copy.say(&hello).await.unwrap_err().to_string();
    assert!(refused.contains("also connected under its name: 127.0.0.1:"), "{refused}");
    assert_eq!(warnings(), 1);
    copy.hello().await.unwrap();
    copy.round().await;
    assert_eq!(warnings(), 2);
}

/// Why an enrolled site does not get in is seen at the server too, and its words forge nothing there.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_refused_hello_is_kept_for_status() {
    let fed = Fed::new(2, &Plan::default());
    let server = Process::spawn(&fed, &[]);
    let mut a = fed.member("a").connect(server.address).await.unwrap();
    let mut hello = a.hello_body();
    hello.federation = "another".into();
    for _ in 0..3 {
        a.say(&hello).await.unwrap_err();
    }
    hello.federation = FEDERATION.into();
    hello.versions = vec![7, 9];
    a.say(&hello).await.unwrap_err();
    let state: serde_json::Value = serde_json::from_str(&fed.status()).unwrap();
    let refused = &state["refused_hellos"];
    assert_eq!((refused.as_object().unwrap().len(), refused["a"]["times"].as_u64()), (1, Some(4)), "{state}");
    assert!(refused["a"]["reason"].as_str().unwrap().contains('7'), "the last reason: {state}");
    let text = std::process::Command::new(env!("CARGO_BIN_EXE_dp-pvi-server")).args(["status", "--config"]).arg(fed.config_path()).output();
    let text = String::from_utf8(text.unwrap().stdout).unwrap();
    assert!(text.contains("refused    a: its hello was refused 4 times in a row"), "{text}");
    // One that is accepted ends it.
    a.hello().await.unwrap();
    let state: serde_json::Value = serde_json::from_str(&fed.status()).unwrap();
    assert_eq!(state["refused_hellos"], serde_json::json!({}));
}

/// A task that was changed before its run was over: the old run ends from the state, without its file, and the new one begins.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_run_of_an_old_task_ends_without_its_file() {
    let fed = Fed::new(2, &Plan::default());
    let program = |arguments: &[&str]| {
        let output =
            std::process::Command::new(env!("CARGO_BIN_EXE_dp-pvi-server")).args(arguments).arg("--config").arg(fed.config_path()).output();
        let output = output.unwrap();
        (output.status.code(), String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr))
    };
    assert_eq!(program(&["stop"]).0, Some(5), "there is nothing to stop");
    let server = Process::spawn(&fed, &[]);
    let mut a = fed.member("a").join(server.address).await;
    let mut b = fed.member("b").join(server.address).await;
    for site in [&mut a, &mut b] {
        let start = site.round().await;
        site.send(&start, &[1.0, 2.0, 3.0, 4.0]).await.unwrap();
    }
    a.round().await;
    server.kill();
    let task = std::fs::read_to_string(fed.path("task.toml")).unwrap();
    std::fs::write(fed.path("task.toml"), task.replace("damping = 0.1", "damping = 0.2")).unwrap();
    let (code, words) = program(&["run", "--quiet"]);
    assert!(code == Some(7) && words.contains("`dp-pvi-server stop`"), "{words}");
    let (code, words) = program(&["stop"]);
    assert!(code == Some(0) && words.contains("stopped"), "{words}");
    // What was learned is there, signed to its end.
    assert_eq!(program(&["export"]).0, Some(0));
    assert_eq!(program(&["stop"]).0, Some(12), "it has ended already");
    let server = Process::spawn(&fed, &[]);
    let state: serde_json::Value = serde_json::from_str(&fed.status()).unwrap();
    assert_eq!((&state["stage"], &state["run"]), (&serde_json::json!("gathering"), &serde_json::json!(1)), "{state}");
    server.kill();
}

/// Every event stands once in what a server prints, and not in its log as well.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_event_is_told_once() {
    let fed = Fed::new(2, &Plan { linger: "1s", rounds: 1, ..Plan::default() });
    let (out, log) = (fed.path("out.txt"), fed.path("log.txt"));
    let mut child = std::process::Command::new(env!("CARGO_BIN_EXE_dp-pvi-server"))
        .args(["run", "--config"])
        .arg(fed.config_path())
        .stdout(std::fs::File::create(&out).unwrap())
        .stderr(std::fs::File::create(&log).unwrap())
        .spawn()
        .unwrap();
    let listening = loop {
        let text = std::fs::read_to_string(&out).unwrap();
        if let Some(line) = text.lines().find_map(|line| Some(line.split_once("listening on ")?.1)) {
            break line.split(',').next().unwrap().parse().unwrap();
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    };
    let mut sites = Vec::new();
    for name in ["a", "b"] {
        sites.push(fed.member(name).join(listening).await);
    }
    for site in &mut sites {
        let start = site.round().await;
        site.send(&start, &[1.0, 2.0, 3.0, 4.0]).await.unwrap();
    }
    for site in &mut sites {
        site.finished().await;
    }
    assert_eq!(child.wait().unwrap().code(), Some(0));
    let read = |path: &std::path::Path| std::fs::read_to_string(path).unwrap();
    let both = read(&out) + &read(&log);
    for event in ["a joined (site)", "b joined (site)", "round 0: open", "round 0: closed", "the run is over", "results written"] {
        assert_eq!(both.lines().filter(|line| line.contains(event)).count(), 1, "{event}: {both}");
    }
    for word in ["joined", "round open", "round closed", "update stored"] {
        assert!(!read(&log).contains(word), "{word}: {}", read(&log));
    }
}

/// A refusal that comes after its round, or after the run, changes nothing. It is no record of the run either, so the log has it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_refusal_that_comes_too_late_is_in_the_log() {
    use dp_pvi_protocol::message::RefusalReason;
    let fed = Fed::new(3, &Plan { min_sites: 2, update_deadline: "1s", linger: "20s", ..Plan::default() });
    let log = fed.path("log.txt");
    let child = std::process::Command::new(env!("CARGO_BIN_EXE_dp-pvi-server"))
        .args(["run", "--format", "json", "--config"])
        .arg(fed.config_path())
        .stdout(std::process::Stdio::piped())
        .stderr(std::fs::File::create(&log).unwrap())
        .spawn()
        .unwrap();
    let server = Process::from_child(child);
    let mut sites = Vec::new();
    for name in ["a", "b", "c"] {
        sites.push(fed.member(name).join(server.address).await);
    }
    let mut late = sites.pop().unwrap();
    let lines = |words: &str| std::fs::read_to_string(&log).unwrap().lines().filter(|line| line.contains(words)).count();
    let mut headers = Vec::new();
    for round in 0..2 {
        headers.push(late.round().await.header.hash());
        for site in &mut sites {
            let start = site.round().await;
            site.send(&start, &[1.0, 2.0, 3.0, 4.0]).await.unwrap();
        }
        assert_eq!(server.event("round-closed")["outcome"], "deadline");
        let when = "refusal came after its round had closed";
        if round == 0 {
            for _ in 0..2 {
                late.refuse(0, headers[0], RefusalReason::Unable).await.unwrap();
            }
            assert_eq!(lines(when), 1, "it is told once");
            let text = std::fs::read_to_string(&log).unwrap();
            let line = text.lines().find(|line| line.contains(when)).unwrap();
            assert!(line.contains("client=c") && line.contains("round=0") && line.contains("unable"), "{line}");
        }
    }
    assert_eq!(server.event("run-ended")["outcome"], "complete");
    late.refuse(1, headers[1], RefusalReason::Budget).await.unwrap();
    assert_eq!(lines("refusal came after the run had ended"), 1);
    late.refuse(2, dp_pvi_names::Hash::default(), RefusalReason::Policy).await.unwrap();
    assert_eq!(lines("a site refused after the run had ended"), 1);
    assert_eq!(server.event("refused")["reason"], "policy");
    server.kill();
}

/// That an operator paused a run is seen while it gathers, while a round is open, and between rounds; `resume` takes it away.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_paused_run_is_seen_whatever_its_stage() {
    let fed = Fed::new(2, &Plan::default());
    let server = Process::spawn(&fed, &[]);
    let program = |command: &str| {
        let output =
            std::process::Command::new(env!("CARGO_BIN_EXE_dp-pvi-server")).args([command, "--config"]).arg(fed.config_path()).output();
        let output = output.unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    };
    let seen = |stage: &str, paused: bool| {
        let state: serde_json::Value = serde_json::from_str(&fed.status()).unwrap();
        assert_eq!((&state["stage"], &state["paused"]), (&serde_json::json!(stage), &serde_json::json!(paused)), "{state}");
        let text = program("status");
        assert_eq!(text.contains("paused     by an operator") && text.contains("`dp-pvi-server resume`"), paused, "{text}");
        let page = crate::support::page(server.http, "/");
        assert_eq!(page.contains("<th>paused</th>"), paused, "{page}");
    };
    seen("gathering", false);
    program("pause");
    seen("gathering", true);
    program("resume");
    seen("gathering", false);
    let (mut a, mut b) = (fed.member("a").join(server.address).await, fed.member("b").join(server.address).await);
    let (first, second) = (a.round().await, b.round().await);
    seen("open", false);
    program("pause");
    seen("open", true);
    a.send(&first, &[1.0; 4]).await.unwrap();
    b.send(&second, &[1.0; 4]).await.unwrap();
    seen("paused", true);
    program("resume");
    a.round().await;
    seen("open", false);
    program("pause");
    program("stop");
    seen("ended", false);
    server.kill();
}

/// Keys cannot end up in a core file, and files of the state are for their owner.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_core_and_no_foreign_eyes() {
    use std::os::unix::fs::PermissionsExt;
    let fed = Fed::new(2, &Plan::default());
    let server = Process::spawn(&fed, &[]);
    let limits = std::fs::read_to_string(format!("/proc/{}/limits", server.child.id())).unwrap();
    let core = limits.lines().find(|line| line.starts_with("Max core file size")).unwrap();
    assert_eq!(core.split_whitespace().filter(|word| *word == "0").count(), 2, "{core}");
    for file in ["state", "state/state.db", "state/state.db-wal", "state/state.db-shm"] {
        let mode = std::fs::metadata(fed.path(file)).unwrap().permissions().mode();
        assert_eq!(mode & 0o077, 0, "{file} {mode:o}");
    }
    server.kill();
    // What was readable to others is taken back; what others can write is refused.
    let database = fed.path("state/state.db");
    std::fs::set_permissions(&database, std::fs::Permissions::from_mode(0o644)).unwrap();
    Process::spawn(&fed, &[]).kill();
    assert_eq!(std::fs::metadata(&database).unwrap().permissions().mode() & 0o777, 0o600);
    for (path, code) in [("state", 12), ("state/state.db", 12), ("tls/server-identity.key", 4), ("tls/server.key", 4)] {
        let path = fed.path(path);
        let before = std::fs::metadata(&path).unwrap().permissions();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(before.mode() | 0o022)).unwrap();
        let output =
            std::process::Command::new(env!("CARGO_BIN_EXE_dp-pvi-server")).args(["run", "--config"]).arg(fed.config_path()).output();
        let output = output.unwrap();
        let log = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(code), "{log}");
        assert!(log.contains("chmod"), "{log}");
        std::fs::set_permissions(&path, before).unwrap();
    }
}

/// What `check` writes, what it prints and what the server sends are the same task.
#[test]
fn check_writes_the_task_that_every_plan_reads() {
    use dp_pvi_posterior::task::ResolvedTask;
    let fed = Fed::new(2, &Plan::default());
    let file = fed.path("resolved.json");
    let output = std::process::Command::new(env!("CARGO_BIN_EXE_dp-pvi-server"))
        .args(["check", "--format", "json", "--config"])
        .arg(fed.config_path())
        .args(["-o".as_ref(), file.as_os_str()])
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    for document in [std::fs::read(&file).unwrap(), output.stdout] {
        assert_eq!(ResolvedTask::from_document(&document).unwrap(), fed.task());
    }
    assert_eq!(std::fs::read(&file).unwrap(), fed.task().to_bytes());
}

/// A site that is enrolled and is in no list of effects would be refused at its hello; `check` says so before anyone starts.
#[test]
fn check_compares_the_list_of_effects_with_the_sites_that_are_enrolled() {
    let fed = Fed::new(2, &Plan::default());
    let (task, listed) = (fed.path("task.toml"), site_name(0));
    let text = std::fs::read_to_string(&task).unwrap();
    let formula = format!("[model]\nformula = \"y ~ (1 | site)\"\nsites = [\"{listed}\", \"unknown\"]\n");
    std::fs::write(&task, text.replace("outcome = \"y\"\n", "").replacen("[model]\n", &formula, 1)).unwrap();
    let output = std::process::Command::new(env!("CARGO_BIN_EXE_dp-pvi-server"))
        .args(["check", "--config"])
        .arg(fed.config_path())
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{said}{}", String::from_utf8_lossy(&output.stderr));
    assert!(said.contains(&format!("site {} is enrolled, but not in `sites` of [model]", site_name(1))), "{said}");
    assert!(said.contains("not enrolled, but in `sites` of [model]: unknown"), "{said}");
    assert!(!said.contains(&format!("site {listed} is enrolled")) && !said.contains("site eve"), "{said}");
}

/// Every place in a process's memory that holds these bytes; an error where this user may not look.
fn places_in_memory(pid: u32, bytes: &[u8]) -> std::io::Result<usize> {
    use std::io::{Read, Seek};
    let mut memory = std::fs::File::open(format!("/proc/{pid}/mem"))?;
    let mut found = 0;
    for line in std::fs::read_to_string(format!("/proc/{pid}/maps"))?.lines() {
        let (range, rest) = line.split_once(' ').unwrap();
        if !rest.starts_with("rw") {
            continue;
        }
        let (from, to) = range.split_once('-').unwrap();
        let (from, to) = (u64::from_str_radix(from, 16).unwrap(), u64::from_str_radix(to, 16).unwrap());
        let mut region = Vec::new();
        // Some regions cannot be read as a whole: what can be is enough.
        if memory.seek(std::io::SeekFrom::Start(from)).is_ok() {
            let _ = memory.by_ref().take(to - from).read_to_end(&mut region);
        }
        found += region.windows(bytes.len()).filter(|window| *window == bytes).count();
    }
    Ok(found)
}

/// Names the configuration for [`a_server_that_may_be_looked_into`], and the file in which it says its address.
const LOOKED_INTO: [&str; 2] = ["DP_PVI_TEST_CONFIG", "DP_PVI_TEST_ADDRESS"];

/// No test of its own: the process that the test below looks into. It is the server as `run` starts it, without the barrier that keeps
/// other processes of the user from looking.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "started by the_identity_seed_is_in_few_places"]
async fn a_server_that_may_be_looked_into() {
    let [Some(path), Some(told)] = LOOKED_INTO.map(std::env::var_os) else { return };
    let config = dp_pvi_server::config::Config::parse(&std::fs::read_to_string(&path).unwrap(), path.as_ref(), []).unwrap();
    let running = dp_pvi_server::start(config, dp_pvi_server::Start::Continue, Arc::new(|_| ())).await.unwrap();
    let whole = std::path::Path::new(&told).with_extension("new");
    std::fs::write(&whole, running.address.to_string()).unwrap();
    std::fs::rename(whole, told).unwrap();
    // Until it is killed.
    tokio::time::sleep(Duration::from_secs(120)).await;
}

/// A child that does not outlive its test.
struct Child(std::process::Child);

impl Drop for Child {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Anyone who gets at the memory all the same does not find the seed in every frame that the key went through.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_identity_seed_is_in_few_places() {
    let fed = Fed::new(2, &Plan::default());
    let key = dp_pvi_server::tls::load_identity(&fed.config().tls.identity).unwrap();
    let told = fed.path("address");
    let mut command = std::process::Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "process::a_server_that_may_be_looked_into", "--ignored"]).stdout(std::process::Stdio::null());
    let values = [fed.config_path(), told.clone()];
    let child = Child(command.envs(LOOKED_INTO.into_iter().zip(values)).spawn().unwrap());
    let mut address = None;
    for _ in 0..400 {
        address = std::fs::read_to_string(&told).ok().map(|text| text.parse::<std::net::SocketAddr>().unwrap());
        if address.is_some() {
            break;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    let address = address.unwrap();
    let mut a = fed.member("a").join(address).await;
    let _b = fed.member("b").join(address).await;
    // Headers and receipts are signed with it.
    let start = a.round().await;
    a.send(&start, &[0.0; 4]).await.unwrap();
    let places = places_in_memory(child.0.id(), &key.to_bytes()).expect(
        "this system lets no process look into its own children: allow ptrace among processes of one user, or run this test as root",
    );
    assert!((1..=3).contains(&places), "{places} copies of the seed");
    drop(child);

    // The program itself lets only root look, and root finds no more.
    let server = Process::spawn(&fed, &[]);
    match places_in_memory(server.child.id(), &key.to_bytes()) {
        Ok(places) => assert!(is_root() && (1..=3).contains(&places), "{places} copies of the seed"),
        Err(error) => assert_eq!(error.kind(), std::io::ErrorKind::PermissionDenied),
    }
}

/// Whether this process runs as root.
fn is_root() -> bool {
    std::fs::read_to_string("/proc/self/status").unwrap().lines().any(|line| line.starts_with("Uid:\t0"))
}
