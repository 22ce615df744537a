//! Whole runs over real sockets: kill and resume, repeated and late messages, bad input, results.

use std::time::Duration;

use crate::support::{Fed, Plan};
use dp_pvi_names::{ClientId, PayloadKind};
use dp_pvi_protocol::message::{Hello, Intent, ReceiptOutcome, Role, RunOutcome, Signed};
use dp_pvi_protocol::transport::{Rejection, TransportError};
use dp_pvi_results::document::PosteriorDocument;
use dp_pvi_server::admin::{Request, ask};
use dp_pvi_server::{Event, Start};

fn rejected(error: &TransportError, expected: Rejection) -> bool {
    matches!(error, TransportError::Rejected { kind, .. } if *kind == expected)
}

/// What site number `i` sends: coordinate j gets i + 1 for the mean part, and precision grows.
fn delta(i: usize, coordinates: usize) -> Vec<f64> {
    (0..coordinates).map(|j| if j < coordinates / 2 { (i + 1) as f64 } else { 1.0 }).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_run_ends_with_the_sum_and_leaves_results() {
    let fed = Fed::new(3, &Plan { columns: 4, rounds: 3, ..Plan::default() });
    let server = fed.start().await;
    let mut sites = Vec::new();
    for name in ["a", "b", "c"] {
        sites.push(fed.member(name).join(server.address).await);
    }
    let mut eve = fed.member("eve").join(server.address).await;
    eve.report(0).await.unwrap();
    for round in 0..3 {
        for (i, site) in sites.iter_mut().enumerate() {
            let start = site.round().await;
            assert_eq!(start.header.open(&site.member.server_identity).unwrap().round, round);
            let receipt = site.send(&start, &delta(i, 10)).await.unwrap();
            assert_eq!(receipt.outcome, ReceiptOutcome::Stored);
        }
        if round < 2 {
            eve.round().await;
            eve.report(round + 1).await.unwrap();
        }
    }
    let mut lambda = Vec::new();
    for site in &mut sites {
        let end = site.finished().await;
        assert_eq!(end.outcome, RunOutcome::Complete);
        assert_eq!(end.entries.len(), 1, "the entry of the last round");
        lambda = end.lambda.to_vec();
    }
    // λ0 = [0; 1] (prior sd 1), three rounds of damping 0.1 times the sums 6 and 3.
    for (j, value) in lambda.iter().enumerate() {
        let expected = if j < 5 { 3.0 * 0.1 * 6.0 } else { 1.0 + 3.0 * 0.1 * 3.0 };
        assert!((value - expected).abs() < 1e-12, "{j}: {value} {expected}");
    }
    eve.finished().await;
    eve.report(3).await.unwrap();
    let events = server.events.clone();
    let exported = tokio::time::timeout(Duration::from_secs(3), server.finish()).await.expect("everybody knows: no lingering").unwrap();

    let document = PosteriorDocument::from_json(&std::fs::read_to_string(&exported.posterior).unwrap()).unwrap();
    assert_eq!(document.natural_parameters, lambda);
    assert_eq!((document.rounds, document.run, document.evaluations.len(), document.privacy.len()), (3, 1, 4, 3));
    assert!(document.privacy.iter().all(|statement| statement.epsilon.is_none() && statement.releases == 3));
    let report = std::fs::read_to_string(&exported.report).unwrap();
    for text in ["a test", "x=v3", "log-likelihood", "Reliability after round 3", "its ε is infinite", "</html>"] {
        assert!(report.contains(text), "{text}");
    }
    assert!(!report.contains("http://") || report.matches("http://").count() == report.matches("http://www.w3.org/2000/svg").count());
    assert!(!report.contains("NaN"));
    let events = events.all();
    assert!(matches!(events[0], Event::Listening { .. }));
    assert_eq!(events.iter().filter(|e| matches!(e, Event::RoundClosed { included, .. } if included.len() == 3)).count(), 3);
    assert!(events.contains(&Event::RunEnded { outcome: RunOutcome::Complete, reason: None }));

    // Another start serves the end of the same run, to a site that has missed it.
    let again = fed.start().await;
    let mut late = fed.member("a").join(again.address).await;
    assert_eq!(late.finished().await.lambda.to_vec(), lambda);
    again.terminate().await;
    let transcript = fed.path("transcript.jsonl");
    dp_pvi_server::export::export_transcript(&fed.config(), &transcript).unwrap();
    let lines: Vec<serde_json::Value> =
        std::fs::read_to_string(&transcript).unwrap().lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let (end, lines) = lines.split_last().unwrap();
    assert_eq!((lines.len(), &end["answered"], &end["end"]), (3, &serde_json::json!({"a": 3, "b": 3, "c": 3}), &"complete".into()));
    assert!(lines.windows(2).all(|pair| pair[1]["previous"] == pair[0]["hash"]), "the chain holds");
    if let Ok(keep) = std::env::var("DP_PVI_KEEP_REPORT") {
        std::fs::copy(&exported.report, keep).unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_restarted_server_resumes_the_open_round() {
    let fed = Fed::new(2, &Plan { columns: 2, rounds: 2, ..Plan::default() });
    let server = fed.start().await;
    let mut a = fed.member("a").join(server.address).await;
    let mut b = fed.member("b").join(server.address).await;
    let start = a.round().await;
    let (update, bytes) = a.update(&start, &delta(0, 6));
    let update = Signed::seal(&update, &a.member.identity);
    let receipt = a.submit(&update, &bytes).await.unwrap();
    let waiting = b.round().await;
    server.terminate().await;

    let server = fed.start().await;
    // Other connections, the same certificates: no new hello is needed, and the same bytes get the same receipt.
    let mut again = fed.member("a").connect(server.address).await.unwrap();
    (again.run, again.coordinates) = (a.run, a.coordinates);
    assert_eq!(again.submit(&update, &bytes).await.unwrap(), receipt);
    // Without the payload as well: it is stored.
    assert_eq!(again.submit(&update, &[]).await.unwrap(), receipt);
    // Other bytes under the same release are refused.
    let (other, other_bytes) = again.update(&start, &delta(1, 6));
    let error = again.submit(&Signed::seal(&other, &a.member.identity), &other_bytes).await.unwrap_err();
    assert!(rejected(&error, Rejection::Copy), "{error}");
    assert!(error.to_string().contains("another process") && error.to_string().contains("127.0.0.1:"), "{error}");

    let mut b = fed.member("b").join(server.address).await;
    let resumed = b.round().await;
    assert_eq!(resumed.header, waiting.header, "the round that was open is open, under the same header");
    b.send(&resumed, &delta(1, 6)).await.unwrap();
    let next = again.round().await;
    assert_eq!(next.entries[0].included.len(), 2);
    for (value, expected) in next.lambda.iter().zip([0.3, 0.3, 0.3, 1.2, 1.2, 1.2]) {
        assert!((value - expected).abs() < 1e-12, "{value} {expected}");
    }
    server.terminate().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn bad_messages_change_nothing() {
    let fed = Fed::new(2, &Plan { columns: 2, ..Plan::default() });
    let server = fed.start().await;
    let mut a = fed.member("a").connect(server.address).await.unwrap();
    // No hello yet.
    assert!(rejected(&a.next().await.unwrap_err(), Rejection::HelloFirst));
    // Signed as someone else, for another federation, role, TLS key, or task.
    let good = a.hello_body();
    let mut body = good.clone();
    body.client = ClientId::new("b").unwrap();
    assert!(rejected(&a.say(&body).await.unwrap_err(), Rejection::Authentication));
    body = good.clone();
    body.federation = "other".into();
    assert!(rejected(&a.say(&body).await.unwrap_err(), Rejection::Authentication));
    body = good.clone();
    body.role = Role::Evaluator;
    assert!(rejected(&a.say(&body).await.unwrap_err(), Rejection::Authentication));
    body = good.clone();
    body.tls_key.0[0] ^= 1;
    assert!(rejected(&a.say(&body).await.unwrap_err(), Rejection::Authentication));
    body = good.clone();
    body.task = Some(dp_pvi_names::Hash([0; 32]));
    assert!(rejected(&a.say(&body).await.unwrap_err(), Rejection::Version));
    body = good.clone();
    body.versions = vec![99];
    assert!(rejected(&a.say(&body).await.unwrap_err(), Rejection::Version));

    a.hello().await.unwrap();
    let mut b = fed.member("b").join(server.address).await;
    let start = a.round().await;
    let before = ask(&fed.config().state, Request::Status).await.unwrap();
    let (good, bytes) = a.update(&start, &delta(0, 6));
    let identity = a.member.identity.clone();
    let sealed = |update: &dp_pvi_protocol::message::Update| Signed::seal(update, &identity);

    type Change = fn(&mut dp_pvi_protocol::message::Update);
    let changes: [(&str, Change); 6] = [
        ("wrong d", |u| u.coordinates += 1),
        ("wrong round", |u| u.release.round = 7),
        ("other client's id", |u| u.release.client = ClientId::new("b").unwrap()),
        ("other run", |u| u.release.run.number = 9),
        ("other header", |u| u.header.0[0] ^= 1),
        ("lattice", |u| u.kind = PayloadKind::Lattice { exponent: -20 }),
    ];
    for (name, change) in changes {
        let mut update = good.clone();
        change(&mut update);
        let error = a.submit(&sealed(&update), &bytes).await.unwrap_err();
        assert!(matches!(error, TransportError::Rejected { .. }), "{name}: {error}");
    }
    // A signature by another key.
    let error = a.submit(&Signed::seal(&good, &b.member.identity), &bytes).await.unwrap_err();
    assert!(rejected(&error, Rejection::Authentication), "{error}");
    // NaN, infinity, too short, too long, other bytes.
    for bad in [f64::NAN, f64::INFINITY, 1e300] {
        let mut values = delta(0, 6);
        values[3] = bad;
        let error = a.send(&start, &values).await.unwrap_err();
        assert!(rejected(&error, Rejection::Message), "{bad}: {error}");
    }
    for (name, payload) in
        [("short", bytes[..40].to_vec()), ("long", [&bytes[..], &[0; 8]].concat()), ("other", vec![0; bytes.len()]), ("none", Vec::new())]
    {
        let error = a.submit(&sealed(&good), &payload).await.unwrap_err();
        assert!(rejected(&error, Rejection::Message), "{name}: {error}");
    }
    // An evaluator sends no updates, a site no metrics.
    let mut eve = fed.member("eve").join(server.address).await;
    eve.run = a.run;
    assert!(rejected(&eve.send(&start, &delta(0, 6)).await.unwrap_err(), Rejection::Authentication));
    assert!(rejected(&a.report(0).await.unwrap_err(), Rejection::Authentication));

    let mut after = ask(&fed.config().state, Request::Status).await.unwrap();
    after.members.retain(|member| member.client.as_str() != "eve");
    after.absent.clone_from(&before.absent);
    after.deadline_in_seconds = before.deadline_in_seconds;
    for (member, earlier) in after.members.iter_mut().zip(&before.members) {
        member.silent_seconds = earlier.silent_seconds;
    }
    assert_eq!(after, before);
    // The good update is still welcome, and the round still closes.
    a.submit(&sealed(&good), &bytes).await.unwrap();
    let start = b.round().await;
    b.send(&start, &delta(1, 6)).await.unwrap();
    assert_eq!(a.round().await.entries.len(), 1);
    server.terminate().await;
}

/// A person at a site looks at the task while its client works, with a certificate of its own.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_look_leaves_the_running_client_alone() {
    let mut fed = Fed::new(2, &Plan::default());
    let first = fed.member("a").clone();
    let second =
        crate::support::sign(&fed.path("tls"), fed.root.path(), "a", Role::Site, (*first.identity).clone(), crate::support::now(), 30);
    fed.members.insert("a".into(), first.clone());
    let server = fed.start().await;
    let mut a = first.join(server.address).await;
    let mut b = fed.member("b").join(server.address).await;
    let mut look = second.connect(server.address).await.unwrap();
    let body = Hello { intent: Intent::Observe, ..look.hello_body() };
    look.say(&body).await.unwrap();
    let start = a.round().await;
    let (update, bytes) = a.update(&start, &delta(0, 4));
    a.submit(&Signed::seal(&update, &a.member.identity), &bytes).await.unwrap();
    // The other certificate may not speak for the site until it joins; then the first one may not.
    assert!(rejected(&look.next().await.unwrap_err(), Rejection::HelloFirst));
    look.hello().await.unwrap();
    assert!(rejected(&a.next().await.unwrap_err(), Rejection::HelloFirst));
    let start = b.round().await;
    b.send(&start, &delta(1, 4)).await.unwrap();
    look.round().await;
    server.terminate().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_late_update_is_excluded_and_a_lost_quorum_ends_the_run_in_the_end() {
    let fed = Fed::new(3, &Plan { rounds: 3, min_sites: 2, update_deadline: "1s", suspend_for: "1s", ..Plan::default() });
    let server = fed.start().await;
    let mut a = fed.member("a").join(server.address).await;
    let mut b = fed.member("b").join(server.address).await;
    let mut c = fed.member("c").join(server.address).await;
    let (first, late) = (a.round().await, c.round().await);
    a.send(&first, &delta(0, 4)).await.unwrap();
    let start = b.round().await;
    b.send(&start, &delta(1, 4)).await.unwrap();
    // The deadline closes the round with two.
    let second = a.round().await;
    assert_eq!(second.entries[0].included.len(), 2);
    let receipt = c.send(&late, &delta(2, 4)).await.unwrap();
    assert_eq!(receipt.outcome, ReceiptOutcome::Excluded);
    // No one answers the second round.
    let end = a.finished().await;
    assert_eq!(end.outcome, RunOutcome::QuorumLost);
    b.finished().await;
    c.finished().await;
    let error = server.finish().await.unwrap_err();
    assert_eq!(error.code(), 9);
    assert!(error.to_string().contains("waited in vain for a, b, c"), "{error}");
    assert_eq!(end.reason().unwrap(), "too few sites answered; waited in vain for a, b, c");
    let document = PosteriorDocument::from_json(&std::fs::read_to_string(fed.path("state/posterior.json")).unwrap()).unwrap();
    assert_eq!(document.natural_parameters, second.lambda.to_vec(), "the posterior of the last good round");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_operator_pauses_resumes_and_stops() {
    let fed = Fed::new(2, &Plan { rounds: 5, ..Plan::default() });
    let state = fed.config().state;
    assert_eq!(ask(&state, Request::Status).await.unwrap_err().code(), 5);
    let server = fed.start().await;
    let mut a = fed.member("a").join(server.address).await;
    let mut b = fed.member("b").join(server.address).await;
    let start = a.round().await;
    ask(&state, Request::Pause).await.unwrap();
    a.send(&start, &delta(0, 4)).await.unwrap();
    let start = b.round().await;
    b.send(&start, &delta(1, 4)).await.unwrap();
    let snapshot = ask(&state, Request::Status).await.unwrap();
    assert_eq!((snapshot.stage.as_str(), snapshot.rounds_closed), ("paused", 1));
    assert_eq!(snapshot.progress(), "1 closed of 5 planned");
    let convergence = snapshot.convergence.unwrap();
    assert_eq!((convergence.rounds, convergence.verdict, convergence.overall), (1, None, None));
    assert!(convergence.text().contains("after round 1: Not known, because no noise was added"), "{}", convergence.text());
    ask(&state, Request::Resume).await.unwrap();
    a.round().await;
    let snapshot = ask(&state, Request::Stop).await.unwrap();
    assert_eq!(snapshot.outcome, Some(RunOutcome::Stopped));
    assert_eq!(a.finished().await.outcome, RunOutcome::Stopped);
    b.finished().await;
    server.finish().await.unwrap();
}

/// The start deadline passes while the run is paused: the server waits for the operator and not in a circle.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_paused_server_is_idle() {
    let fed = Fed::new(3, &Plan { start_deadline: "1s", ..Plan::default() });
    let server = crate::support::Process::spawn(&fed, &[]);
    let state = fed.config().state;
    let mut a = fed.member("a").join(server.address).await;
    fed.member("b").join(server.address).await;
    ask(&state, Request::Pause).await.unwrap();
    tokio::time::sleep(Duration::from_millis(1200)).await;
    let before = server.cpu();
    tokio::time::sleep(Duration::from_millis(1000)).await;
    let used = server.cpu() - before;
    assert!(used < Duration::from_millis(100), "{used:?} of CPU in a second of waiting");
    ask(&state, Request::Resume).await.unwrap();
    a.round().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_taken_or_foreign_is_said() {
    let fed = Fed::new(2, &Plan::default());
    let server = fed.start().await;
    let start = |config| dp_pvi_server::start(config, Start::Continue, crate::support::Events::default().sink());
    // The state is locked.
    assert_eq!(start(fed.config()).await.err().unwrap().code(), 12);
    // The port is taken; nothing of a run was begun.
    let mut config = fed.config();
    config.listen = server.address;
    config.state = fed.path("other");
    config.store.database = fed.path("other/state.db");
    let error = start(config.clone()).await.err().unwrap();
    assert_eq!(error.code(), 12);
    assert!(error.to_string().contains(&server.address.to_string()), "{error}");
    // Another task while a run is unfinished.
    server.terminate().await;
    fed.write_config(&Plan { rounds: 9, ..Plan::default() });
    assert_eq!(start(fed.config()).await.err().unwrap().code(), 7);
    // Wrong task and schema files.
    std::fs::write(fed.path("schema.toml"), "[[columns]]\nname = 3").unwrap();
    assert_eq!(start(fed.config()).await.err().unwrap().code(), 4);
    std::fs::remove_file(fed.path("schema.toml")).unwrap();
    assert!(start(fed.config()).await.err().unwrap().to_string().contains("schema.toml"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pages_tell_health_metrics_and_status() {
    let fed = Fed::new(2, &Plan::default());
    let server = fed.start().await;
    let http = server.running.as_ref().unwrap().http.unwrap();
    let mut a = fed.member("a").join(server.address).await;
    let _b = fed.member("b").join(server.address).await;
    let start = a.round().await;
    a.send(&start, &delta(0, 4)).await.unwrap();
    let get = |path: &'static str| async move {
        use tokio::io::{AsyncReadExt, AsyncWriteExt};
        let mut stream = tokio::net::TcpStream::connect(http).await.unwrap();
        stream.write_all(format!("GET {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n").as_bytes()).await.unwrap();
        let mut text = String::new();
        stream.read_to_string(&mut text).await.unwrap();
        text
    };
    assert!(get("/healthz").await.starts_with("HTTP/1.1 200"));
    assert!(get("/readyz").await.contains("ready"));
    let metrics = get("/metrics").await;
    for line in ["dp_pvi_sites_connected 2", "dp_pvi_updates_total{result=\"stored\"} 1", "dp_pvi_round 0", "dp_pvi_build_info{version="] {
        assert!(metrics.contains(line), "{line}\n{metrics}");
    }
    let page = get("/").await;
    assert!(page.contains("waiting for") && page.contains("<td>a</td>"), "{page}");
    assert!(get("/status.json").await.contains("\"stage\":\"open\""));
    assert!(get("/nowhere").await.starts_with("HTTP/1.1 404"));
    server.terminate().await;
}
