//! Bad input of every kind that an operator can give: a clear message, the documented exit code, and nothing lost.

use std::fs;
use std::net::TcpListener;
use std::process::Command;

use dp_pvi_server::ca::Authority;
use dp_pvi_tests::federation::{Federation, Party, outcome, run};
use dp_pvi_tests::place::binary;
use dp_pvi_tests::regression::{Likelihood, Records, Schedule, Task};
use dp_pvi_tests::statements::statements_cover_ledgers;
use serde_json::Value;
use time::{Duration, OffsetDateTime};

fn small(visits: u32) -> (Federation, Vec<Party>) {
    let task = Task { schedule: Schedule::Synchronous(visits), ..Task::default() };
    let sites = Records::generated(40, 3, 0).sites(&[20, 20], Likelihood::Logistic);
    (Federation::new(&task.toml(), &task.schema(3), &sites), sites)
}

/// Runs a command, wants this code, and returns everything that it said.
#[track_caller]
fn fails(command: &mut Command, code: i32) -> String {
    let (found, out, err) = outcome(command);
    assert_eq!(found, code, "{out}{err}");
    format!("{out}{err}")
}

#[track_caller]
fn says(message: &str, words: &[&str]) {
    for word in words {
        assert!(message.contains(word), "`{word}` is not in: {message}");
    }
}

fn budget(federation: &Federation, site: &str) -> Value {
    serde_json::from_str(&run(&mut federation.client_command(site, &["budget", "show", "--format", "json"]))).unwrap()
}

/// Whichever program it is: 2 for a wrong question, 4 for a file that cannot be read, 10 for records that cannot, 12 for what cannot be written.
#[test]
fn one_fault_has_one_code_in_all_programs() {
    let (federation, _) = small(1);
    let missing = federation.home("server").join("missing");
    let missing = missing.to_str().unwrap();
    let other = |program: &str, arguments: &[&str]| {
        let mut command = Command::new(binary(program));
        command.args(arguments);
        command
    };
    let plan = ["--sigma", "1", "--steps", "1", "--relation", "add-remove", "--sampling", "none"];
    let account = |more: &[&'static str]| [&["account"][..], &plan, more].concat();
    for mut command in [
        other("dp-pvi-sim", &["account", "--queries", missing]),
        other("dp-pvi-sim", &["account", "--events", missing, "--relation", "add-remove"]),
        other("dp-pvi-sim", &["plan", missing]),
        other("dp-pvi-sim", &["run", missing]),
        other("dp-pvi-verify", &[missing]),
        federation.server_command(&["account", "--queries", missing]),
        federation.server_command(&["plan", missing]),
        federation.client_command("site-1", &["plan", "--task", missing]),
        federation.client_command("site-1", &["ledger", "verify", "--posterior", missing]),
    ] {
        says(&fails(&mut command, 4), &["missing"]);
    }
    let nowhere = ["--plot", "/proc/no/such/folder.svg"];
    for mut command in [
        other("dp-pvi-sim", &account(&nowhere)),
        federation.server_command(&account(&nowhere)),
        federation.server_command(&["check", "-o", nowhere[1]]),
    ] {
        says(&fails(&mut command, 12), &["folder.svg"]);
    }
    for mut command in [
        other("dp-pvi-sim", &["account", "--sigma", "-1"]),
        other("dp-pvi-verify", &[]),
        other("dp-pvi-verify", &["one", "two", "three"]),
        federation.server_command(&["account", "--sigma", "-1"]),
        federation.client_command("site-1", &["forget"]),
    ] {
        fails(&mut command, 2);
    }
    fs::remove_file(federation.home("site-1").join("data/records.csv")).unwrap();
    fails(&mut federation.client_command("site-1", &["data", "inspect"]), 10);
}

/// A file in another encoding is told with its line and what to do, whoever reads it; what is there is not.
#[test]
fn a_configuration_that_is_no_utf8_is_told_with_its_line() {
    let (federation, _) = small(1);
    let spoil = |party: &str, file: &str| {
        let path = federation.home(party).join(file);
        let before = fs::read(&path).unwrap();
        fs::write(&path, [&b"# one line\n# Universit\xe4tsklinikum\n"[..], &before].concat()).unwrap();
        (path, before)
    };
    for (party, file, code) in
        [("site-1", "client.toml", 2), ("server", "server.toml", 2), ("server", "task.toml", 4), ("server", "schema.toml", 4)]
    {
        let (path, before) = spoil(party, file);
        let mut command = match party {
            "server" => federation.server_command(&["check"]),
            _ => federation.client_command(party, &["check", "--offline"]),
        };
        let said = fails(&mut command, code);
        says(&said, &[file, "line 2 is no UTF-8 text", "save it as UTF-8"]);
        assert!(!said.contains("Universit"), "{said}");
        fs::write(path, before).unwrap();
    }
}

#[test]
fn a_key_that_does_not_exist_is_named() {
    let (federation, _) = small(1);
    for (party, file) in [("site-1", "client.toml"), ("server", "server.toml")] {
        let path = federation.home(party).join(file);
        let text = fs::read_to_string(&path).unwrap();
        fs::write(&path, text.replace("state = ", "stat = ")).unwrap();
        let mut command = if party == "server" {
            federation.server_command(&["check"])
        } else {
            federation.client_command(party, &["check", "--offline"])
        };
        says(&fails(&mut command, 2), &["stat"]);
    }
    let path = federation.home("server").join("task.toml");
    fs::write(&path, fs::read_to_string(&path).unwrap().replace("sweeps", "sweps").replace("rounds", "ronds")).unwrap();
    fs::write(
        federation.home("server").join("server.toml"),
        fs::read_to_string(federation.home("server").join("server.toml")).unwrap().replace("stat = ", "state = "),
    )
    .unwrap();
    says(&fails(&mut federation.server_command(&["check"]), 4), &["ronds"]);
    fails(Command::new(binary("dp-pvi-client")).arg("fly"), 2);
    fails(Command::new(binary("dp-pvi-server")).arg("--wings"), 2);
    fails(Command::new(binary("dp-pvi-sim")).arg("fly"), 2);
}

/// What is wrong, how the file is spoiled, and what the message has to name.
type Case<'a> = (&'a str, &'a dyn Fn(&str) -> String, &'a [&'a str]);

/// What `check` says names file, row and column, and never the value. What is wrong with the file as a whole keeps a run from starting;
/// what is wrong with a record does not: no one outside could tell.
#[test]
fn data_that_does_not_fit_is_rejected_by_row_and_column() {
    let cases: [(Case<'_>, bool); 6] = [
        (("a column of the schema is missing", &|csv| csv.replace("x1", "x9"), &["x1"]), false),
        (
            (
                "a column that the schema does not name",
                &|csv| csv.lines().map(|l| if l.starts_with('x') { format!("{l},extra\n") } else { format!("{l},7\n") }).collect(),
                &["column number 5"],
            ),
            false,
        ),
        (("an empty file", &|_| String::new(), &["no records"]), false),
        (("not a number", &|csv| set_cell(csv, 5, 1, "NaN"), &["5", "x1"]), true),
        (("infinite", &|csv| set_cell(csv, 7, 2, "inf"), &["7", "x2"]), true),
        (("a text that must not be repeated", &|csv| set_cell(csv, 3, 0, "Mrs-Smith-0815"), &["3", "x0"]), true),
    ];
    let (federation, sites) = small(1);
    let mut server = federation.start_server();
    let path = federation.home("site-1").join("data/records.csv");
    for ((what, spoil, words), runs) in cases {
        fs::write(&path, spoil(&sites[0].csv)).unwrap();
        let message = fails(&mut federation.client_command("site-1", &["check", "--offline"]), 10);
        says(&message, words);
        assert!(!message.contains("Mrs-Smith"), "{what}: {message}");
        if !runs {
            let mut client = federation.start_client("site-1", &server.address);
            client.expect(10);
            says(&client.log(), words);
            assert!(client.events().iter().all(|e| e["event"] == "error"), "{what}: it said hello");
        }
    }
    assert_eq!(budget(&federation, "site-1")["releases"], 0, "nothing was charged");
    // The last file has a cell that the schema rejects.
    let mut clients = [federation.start_client("site-1", &server.address), federation.start_client("site-2", &server.address)];
    clients.iter_mut().for_each(|c| c.expect(0));
    server.process.expect(0);
    statements_cover_ledgers(&federation);
    assert!(!federation.home("site-1").join("state/records-site-1.json").exists(), "the run is over: other records may come");
    // The site's own log says why a record contributes nothing, and not what it holds; what it says to programs does not.
    says(&clients[0].log(), &["1 of 20 records contribute nothing", "column `x0`"]);
    for client in &clients {
        assert!(!client.log().contains("Mrs-Smith") && client.events().iter().all(|e| !e.to_string().contains("x0")), "{}", client.log());
    }
    assert!(!clients[1].log().contains("contribute nothing"), "{}", clients[1].log());
}

/// Replaces the cell of record `row` (from 1) in column `column` (from 0).
fn set_cell(csv: &str, row: usize, column: usize, value: &str) -> String {
    let line = |(i, line): (usize, &str)| {
        let mut cells: Vec<_> = line.split(',').collect();
        if i == row {
            cells[column] = value;
        }
        cells.join(",") + "\n"
    };
    csv.lines().enumerate().map(line).collect()
}

#[test]
fn expired_and_foreign_certificates_are_refused() {
    let (federation, _) = small(1);
    let (foreign, _) = small(1);
    let server = federation.start_server();
    let tls = federation.home("site-1").join("tls");
    let certificate = tls.join("site-1.pem");
    let good = fs::read(&certificate).unwrap();

    // Signed by the federation's own authority, half a year ago, for a month.
    let past = OffsetDateTime::now_utc() - Duration::days(180);
    let (_, expired) =
        Authority::open(&federation.home("server").join("tls")).unwrap().sign(&tls.join("site-1.csr.pem"), past, 30).unwrap();
    fs::write(&certificate, expired).unwrap();
    let mut client = federation.start_client("site-1", &server.address);
    client.expect(6);
    says(&client.log(), &["expired"]);

    // Signed by another authority for the same name and key.
    run(Command::new(binary("dp-pvi-server")).args(["ca", "revoke", "site-1", "--ca"]).arg(foreign.home("server").join("tls")));
    run(Command::new(binary("dp-pvi-server"))
        .args(["ca", "sign"])
        .arg(tls.join("site-1.csr.pem"))
        .arg("--ca")
        .arg(foreign.home("server").join("tls"))
        .arg("-o")
        .arg(foreign.home("signed")));
    fs::copy(foreign.home("signed").join("site-1.pem"), &certificate).unwrap();
    federation.start_client("site-1", &server.address).expect(6);

    // A client of another federation, with everything of its own: it does not accept this server.
    foreign.start_client("site-2", &server.address).expect(6);

    fs::write(&certificate, good).unwrap();
    let mut clients = [federation.start_client("site-1", &server.address), federation.start_client("site-2", &server.address)];
    clients.iter_mut().for_each(|c| c.expect(0));
}

#[test]
fn another_task_than_the_approved_one_is_refused() {
    let (mut federation, _) = small(1);
    let mut server = federation.start_server();
    federation.client_environment.insert("DP_PVI__POLICY__APPROVE".into(), format!("sha256:{}", "ab".repeat(32)));
    federation.start_client("site-1", &server.address).expect(7);
    assert_eq!(budget(&federation, "site-1")["releases"], 0);
    federation.client_environment.clear();
    server.process.kill();

    // While the run of one task is open, the server's state does not take another.
    let path = federation.home("server").join("task.toml");
    let task = fs::read_to_string(&path).unwrap();
    fs::write(&path, task.replace("prior_scale = 1.0", "prior_scale = 3.0")).unwrap();
    fails(&mut federation.server_command(&["run"]), 7);
    fs::write(&path, task).unwrap();
    let mut server = federation.start_server();
    let mut clients = [federation.start_client("site-1", &server.address), federation.start_client("site-2", &server.address)];
    clients.iter_mut().for_each(|c| c.expect(0));
    server.process.expect(0);
    statements_cover_ledgers(&federation);
}

#[test]
fn a_damaged_ledger_is_code_11_and_a_locked_one_code_12() {
    let task = Task { schedule: Schedule::Synchronous(3), tick: 1, ..Task::default() };
    let sites = Records::generated(40, 3, 0).sites(&[40], Likelihood::Logistic);
    let federation = Federation::new(&task.toml(), &task.schema(3), &sites);
    let mut server = federation.start_server();
    let mut client = federation.start_client("site-1", &server.address);
    client.wait_for("it has committed an update", |e| e["event"] == "committed");
    let mut second = federation.start_client("site-1", &server.address);
    second.expect(12);
    client.expect(0);
    server.process.expect(0);
    statements_cover_ledgers(&federation);

    let file = federation.home("site-1").join("data/ledger.db");
    let good = fs::read(&file).unwrap();
    // The event of a stored row, found by the unit's name in the first one.
    let at = good.windows(6).position(|w| w == b"site-1").expect("rows name their release");
    let mut damaged = good.clone();
    damaged[at] ^= 1;
    fs::write(&file, &damaged).unwrap();
    fails(&mut federation.client_command("site-1", &["budget", "show"]), 11);
    fails(&mut federation.client_command("site-1", &["ledger", "verify"]), 11);
    let mut server = federation.start_server_with(&["--new-run"]);
    federation.start_client("site-1", &server.address).expect(11);
    server.process.kill();
    fs::write(&file, &good).unwrap();
    run(&mut federation.client_command("site-1", &["ledger", "verify"]));
}

#[test]
fn a_taken_port_is_code_12() {
    let (mut federation, _) = small(1);
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    federation.server_environment.insert("DP_PVI__SERVER__LISTEN".into(), taken.local_addr().unwrap().to_string());
    let message = fails(&mut federation.server_command(&["run"]), 12);
    says(&message, &[&taken.local_addr().unwrap().port().to_string()]);
}

#[test]
fn a_server_that_never_answers_is_code_5() {
    let (mut federation, _) = small(1);
    let closed = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string();
    federation.client_environment.insert("DP_PVI__SITE__RECONNECT_SECONDS".into(), "0".into());
    let mut client = federation.start_client("site-1", &closed);
    client.expect(5);
    says(&client.log(), &[&closed]);
}

/// The server is killed with `kill -9` in the middle of the run and started again on its state: clients reconnect, the run ends, every
/// visit is charged once.
#[test]
fn a_server_that_is_killed_and_started_again_goes_on() {
    let (mut federation, sites) = small(4);
    let mut server = federation.start_server();
    federation.server_environment.insert("DP_PVI__SERVER__LISTEN".into(), server.address.clone());
    let mut clients: Vec<_> = sites.iter().map(|s| federation.start_client(&s.name, &server.address)).collect();
    for round in 1..3 {
        server.process.wait_for("a round has opened", |e| e["event"] == "round-opened" && e["round"].as_u64() >= Some(round));
        server.process.kill();
        server = federation.start_server();
    }
    clients.iter_mut().for_each(|c| c.expect(0));
    server.process.expect(0);
    statements_cover_ledgers(&federation);
    for site in ["site-1", "site-2"] {
        assert_eq!(budget(&federation, site)["releases"], 4);
    }
    assert_eq!(federation.posterior()["rounds"], 4);
    // Ended is ended: the same command does nothing and says the same.
    fails(&mut federation.server_command(&["run"]), 0);
}

#[test]
fn a_signal_ends_every_program_in_order() {
    let (federation, _) = small(1);
    for (signal, code) in [("TERM", 143), ("INT", 130)] {
        let mut server = federation.start_server();
        let mut client = federation.start_client("site-1", &server.address);
        client.wait_for("it has joined", |e| e["event"] == "joined");
        client.signal(signal);
        client.expect(code);
        server.process.signal(signal);
        server.process.expect(code);
    }
    // Nothing is left over: the run can still happen.
    let mut server = federation.start_server();
    let mut clients = [federation.start_client("site-1", &server.address), federation.start_client("site-2", &server.address)];
    clients.iter_mut().for_each(|c| c.expect(0));
    server.process.expect(0);
    statements_cover_ledgers(&federation);
}
