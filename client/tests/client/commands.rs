//! The shipped program: commands, refusals and exit codes.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::process::Stdio;
use std::time::Duration;

use crate::common::{Federation, Outcome, Site, aggregated_task, committed, open_budget, open_task, private_task, program, write};
use dp_pvi_client::snapshot::Snapshot;
use dp_pvi_names::Hash;
use dp_pvi_privacy::Ledger;
use dp_pvi_programs::identity::{generate_identity, public_identity_to_pem};
use dp_pvi_programs::ledger::SqliteLedger;
use dp_pvi_protocol::message::{Role, Signed, Update};
use dp_pvi_results::document::PosteriorDocument;

#[test]
fn usage_and_configuration_are_exit_code_2() {
    assert_eq!(program().arg("frobnicate").output().unwrap().status.code(), Some(2));
    Outcome::of(program().args(["run", "--config", "/nowhere/client.toml"]).output().unwrap()).expect(2, "/nowhere/client.toml");
    let site = Site::new();
    site.configure("reconnect_seconds = 0", "reconect_seconds = 0");
    site.run(&["run"]).expect(2, "reconect_seconds");
    assert_eq!(program().args(["completions", "bash"]).output().unwrap().status.code(), Some(0));
}

#[test]
fn csr_makes_keys_once() {
    let folder = tempfile::tempdir().unwrap();
    let arguments = ["csr", "--name", "site-a", "--federation", "fed", "--role", "evaluator", "--format", "json", "-o"];
    let outcome = Outcome::of(program().args(arguments).arg(folder.path()).output().unwrap()).expect(0, "");
    for name in ["request", "tls_key", "identity"] {
        assert!(fs::metadata(outcome.json()[name].as_str().unwrap()).unwrap().len() > 0);
    }
    Outcome::of(program().args(arguments).arg(folder.path()).output().unwrap()).expect(2, "exists already");
    let bad = ["csr", "--name", "Site A", "--federation", "fed", "-o", "/nowhere"];
    assert_eq!(program().args(bad).output().unwrap().status.code(), Some(2));
}

#[test]
fn check_names_the_failing_field() {
    let site = Site::new();
    let fine = site.run(&["check", "--offline"]).expect(0, "");
    assert!(fine.stdout.contains("ok      data: fits the schema"), "{}", fine.stdout);
    site.run(&["check"]).expect(5, "localhost:1");

    fs::set_permissions(site.path("tls/hospital-1.key"), fs::Permissions::from_mode(0o644)).unwrap();
    site.run(&["check", "--offline"]).expect(2, "tls.key");
    site.run(&["run"]).expect(2, "chmod 600");
    fs::set_permissions(site.path("tls/hospital-1.key"), fs::Permissions::from_mode(0o600)).unwrap();

    write(&site.path("tls/ca.pem"), site.federation.authority.pem());
    site.run(&["run"]).expect(2, "tls.server_identity");
    write(&site.path("tls/ca.pem"), site.federation.ca_pem());

    fs::remove_dir_all(site.path("state")).unwrap();
    write(&site.path("state"), "a file in the way");
    site.run(&["check", "--offline"]).expect(2, "site.state");
}

#[test]
fn certificates_are_checked_before_use() {
    let site = Site::new();
    site.certify("dp-pvi://lung-fed/site/hospital-1", -30..-1);
    site.run(&["run"]).expect(6, "expired");
    site.certify("dp-pvi://lung-fed/site/hospital-1", 1..30);
    site.run(&["run"]).expect(6, "clock");
    for uri in ["dp-pvi://lung-fed/site/hospital-2", "dp-pvi://other-fed/site/hospital-1", "dp-pvi://lung-fed/evaluator/hospital-1"] {
        site.certify(uri, -1..30);
        site.run(&["run"]).expect(6, uri);
    }
    site.certify("https://example.org", -1..30);
    site.run(&["run"]).expect(6, "exactly one name");

    let foreign = Federation::new();
    let usage = rcgen::ExtendedKeyUsagePurpose::ClientAuth;
    write(&site.path("tls/hospital-1.pem"), foreign.sign(&site.key(), "dp-pvi://lung-fed/site/hospital-1", usage, -1..30));
    site.run(&["run"]).expect(6, "not issued by the authority");
    let other = rcgen::KeyPair::generate().unwrap();
    let usage = rcgen::ExtendedKeyUsagePurpose::ClientAuth;
    write(&site.path("tls/hospital-1.pem"), site.federation.sign(&other, "dp-pvi://lung-fed/site/hospital-1", usage, -1..30));
    site.run(&["run"]).expect(2, "tls.key");
}

/// With fewer and fewer open files a client ends with a clear error or waits for its server as ever; the ledger is what it was.
#[test]
fn too_few_open_files_end_a_client_clearly() {
    let site = Site::new();
    let ledger = fs::read(site.path("data/ledger.db")).unwrap();
    let (mut short, mut enough) = (0, 0);
    for files in 8..=24 {
        let script = format!("ulimit -n {files}; exec \"$0\" run --config \"$1\"");
        let output = std::process::Command::new("sh")
            .args(["-c", &script, env!("CARGO_BIN_EXE_dp-pvi-client")])
            .arg(site.path("client.toml"))
            .output()
            .unwrap();
        let outcome = Outcome::of(output);
        match outcome.code {
            // The site would have called its server.
            Some(5) => enough += 1,
            // Which file could not be opened, and why.
            Some(2 | 4 | 10 | 12) => {
                let words = ["Too many open files", "unable to open database file"];
                assert!(words.iter().any(|word| outcome.stderr.contains(word)), "{files}: {}", outcome.stderr);
                short += 1;
            }
            code => panic!("{files}: {code:?} {}", outcome.stderr),
        }
    }
    assert!(short > 2 && enough > 2, "{short} {enough}");
    assert_eq!(fs::read(site.path("data/ledger.db")).unwrap(), ledger);
    site.run(&["check", "--offline"]).expect(0, "");
}

/// Two weeks before the end of its own certificate a client says so, where someone checks and in the log of a run.
#[test]
fn a_client_tells_of_the_end_of_its_certificate_weeks_before() {
    let site = Site::new();
    let told = |days: std::ops::Range<i64>| {
        site.certify("dp-pvi://lung-fed/site/hospital-1", days);
        let check = site.run(&["check", "--offline"]).expect(0, "").stdout;
        let run = site.run(&["run"]).expect(5, "localhost:1").stderr;
        [check.contains("warning certificate: "), check.contains("expires in "), run.contains("expires in ")]
    };
    assert_eq!(told(-1..30), [false; 3]);
    assert_eq!(told(-1..10), [true; 3]);
}

#[test]
fn bad_data_is_exit_code_10_and_shows_no_value() {
    // Longer than any part of a time, a port or a temporary name.
    const SECRET: &str = "871460592738";
    let site = Site::new();
    for (content, words) in [
        ("age,died\n", "no records"),
        ("", ""),
        ("age,died\n40,no\nNaN,yes\n", "row 2"),
        ("age,died\n40,no\ninf,yes\n", "row 2"),
        ("age,died\n40,no\nSECRET.5x,yes\n", "column `age`"),
        ("age,died\n40,no\n50,perhapsSECRET\n", "column `died`"),
        ("years,died\n40,no\n", "`age`"),
        ("age,died,nameSECRET\n40,no,SECRET\n", "not in the schema"),
    ] {
        write(&site.path("cohort.csv"), content.replace("SECRET", SECRET));
        let outcome = site.run(&["check", "--offline"]).expect(10, words);
        let message = outcome.stdout + &outcome.stderr;
        assert!(!message.contains(SECRET), "a value of a record is in the message: {message}");
    }
    fs::remove_file(site.path("cohort.csv")).unwrap();
    site.run(&["check", "--offline"]).expect(10, "cohort.csv");
    let site = Site::new();
    // Compared with the declared number, and with nothing else.
    site.configure("[budget]", "[policy]\nmin_records = 6\n[budget]");
    for arguments in [&["check", "--offline"][..], &["run"]] {
        site.run(arguments).expect(2, "policy.min_records");
    }
    write(&site.path("cohort.csv"), "age,died\n40,no\n40,no\n40,no\n");
    site.configure("min_records = 6", "min_records = 5");
    let fewer = site.run(&["check", "--offline"]).expect(0, "").stdout;
    assert!(fewer.contains("2 privacy units fewer than [data] nominal_units"), "{fewer}");
    write(&site.path("cohort.csv"), format!("age,died\n{}", "40,no\n".repeat(7)));
    let more = site.run(&["check", "--offline"]).expect(0, "").stdout;
    assert!(more.contains("2 privacy units more than [data] nominal_units"), "{more}");
    assert!(more.contains("is cut to that. Declare at least as many units"), "{more}");
    site.run(&["run"]).expect(5, "localhost:1");
}

/// What a whole file is, is the operator's matter before anything is sent; what one record holds is no one's in a run.
#[test]
fn a_run_reads_its_files_before_it_says_hello() {
    let site = Site::new();
    for (content, words) in [("", "no records"), ("years,died\n40,no\n", "`age`"), ("age;died\n40;no\n", "semicolons")] {
        write(&site.path("cohort.csv"), content);
        site.run(&["run"]).expect(10, words);
    }
    // The server is not there: exit code 5 says that the site would have called it.
    for row in ["", "NaN,no", "x,no", "40", "40,no,no", "\"40,no", "40,perhaps", "#", "1e9,no"] {
        write(&site.path("cohort.csv"), format!("age,died\n{}{row}\n50,yes\n", "40,no\n".repeat(8)));
        site.run(&["run"]).expect(5, "localhost:1");
    }
    write(&site.path("cohort.csv"), "age,died\n");
    site.run(&["run"]).expect(10, "0 records contribute");
    fs::remove_file(site.path("cohort.csv")).unwrap();
    site.run(&["run"]).expect(10, "cohort.csv");
    assert!(std::process::Command::new("mkfifo").arg(site.path("cohort.csv")).status().unwrap().success());
    for arguments in [&["run"][..], &["check", "--offline"], &["data", "inspect"]] {
        site.run(arguments).expect(10, "no regular file");
    }
}

/// Records that change in the middle of a run would get the state of others: noticed before the hello, from what the state folder keeps.
#[test]
fn files_that_were_edited_in_a_run_are_noticed_before_the_hello() {
    let site = Site::new();
    let config = site.config();
    let key = dp_pvi_client::keys::identity(&config.tls.identity).unwrap();
    let snapshot = Snapshot::load(&config, &key).unwrap();
    snapshot.join(&crate::common::run()).unwrap();
    let kept = site.path("state/records-lung-2024.json");
    let text = fs::read_to_string(&kept).unwrap();
    assert_eq!(fs::metadata(&kept).unwrap().permissions().mode() & 0o777, 0o600);
    site.run(&["run"]).expect(5, "localhost:1");

    let records = fs::read_to_string(site.path("cohort.csv")).unwrap();
    // Written in another way they are the same records; with one of them changed, moved or gone they are not.
    write(&site.path("cohort.csv"), records.replace('\n', "\r\n").replace("40", "40.0"));
    site.run(&["run"]).expect(5, "localhost:1");
    for changed in [records.replace("40", "41"), records.replace("35,no\n", ""), records.replace("40,no\n50,no", "50,no\n40,no")] {
        write(&site.path("cohort.csv"), changed);
        let message = site.run(&["run"]).expect(10, "not those with which this site joined run 1").stderr;
        assert!(message.contains("`dp-pvi-client forget`") && message.contains(&crate::common::run().task.to_string()), "{message}");
    }
    // What is kept says nothing about the records to who has not the key: with another one it is another.
    let other = Snapshot::load(&config, &generate_identity().unwrap()).err().unwrap();
    assert_eq!(other.exit_code(), 10);
    // The run is over, or the operator gives it up.
    snapshot.leave(&crate::common::run()).unwrap();
    assert!(!kept.exists());
    site.run(&["run"]).expect(5, "localhost:1");
    write(&kept, text.replace("\"runs\"", "\"run\""));
    site.run(&["run"]).expect(12, "remove it");
}

/// A run that was broken off keeps its entry while another one of the same records comes and goes: its state still belongs to these records.
#[test]
fn every_run_keeps_its_own_records() {
    let site = Site::new();
    let config = site.config();
    let key = dp_pvi_client::keys::identity(&config.tls.identity).unwrap();
    let (first, second) = (crate::common::run(), dp_pvi_names::RunId { number: 2, ..crate::common::run() });
    Snapshot::load(&config, &key).unwrap().join(&first).unwrap();
    let snapshot = Snapshot::load(&config, &key).unwrap();
    assert_eq!(snapshot.run(), None);
    snapshot.join(&second).unwrap();
    assert_eq!(snapshot.run(), Some(second));

    let records = fs::read_to_string(site.path("cohort.csv")).unwrap();
    let changed = |run: &str| {
        write(&site.path("cohort.csv"), records.replace("40", "41"));
        site.run(&["run"]).expect(10, run);
        write(&site.path("cohort.csv"), &records);
    };
    changed("joined run 1 of");
    snapshot.leave(&second).unwrap();
    changed("joined run 1 of");
    snapshot.join(&second).unwrap();
    snapshot.leave(&first).unwrap();
    changed("joined run 2 of");
    snapshot.leave(&second).unwrap();
    assert!(!site.path("state/records-lung-2024.json").exists());
    write(&site.path("cohort.csv"), records.replace("40", "41"));
    site.run(&["run"]).expect(5, "localhost:1");
}

#[test]
fn data_inspect_counts() {
    let site = Site::new();
    let counts = site.run(&["data", "inspect", "--format", "json"]).expect(0, "").json();
    assert_eq!((counts["records"].as_u64(), counts["columns"][0]["regular"].as_u64()), (Some(5), Some(5)));
    assert!(site.run(&["data", "inspect"]).expect(0, "").stdout.contains("PRIVATE"));
    let bound = |more: &[&str]| {
        let arguments = [&["data", "inspect", "--format", "json", "--formula", "died ~ age"], more].concat();
        site.run(&arguments).expect(0, "").json()["norm_bound"].as_f64().unwrap()
    };
    // The intercept is a 1 in every row.
    assert!((bound(&[]).powi(2) - bound(&["--no-intercept"]).powi(2) - 1.0).abs() < 1e-9);
    site.configure("schema = \"schema.toml\"\n", "");
    site.run(&["data", "inspect"]).expect(2, "data.schema");
}

/// A file that the schema's keys do not fit: what might fit is said with the error, and no value.
#[test]
fn data_inspect_guesses_keys() {
    let site = Site::new();
    assert!(site.run(&["data", "inspect", "--format", "json"]).expect(0, "").json()["guess"]["delimiter"].is_null());
    write(&site.path("cohort.csv"), "age;died\n40,5;no\n471,5;yes\n");
    let outcome = site.run(&["data", "inspect"]).expect(10, "");
    for key in ["delimiter = \";\"", "decimal = \",\""] {
        assert!(outcome.stdout.contains(key), "{}", outcome.stdout);
    }
    assert!(!outcome.stdout.contains("471") && !outcome.stderr.contains("471"), "{} {}", outcome.stdout, outcome.stderr);
}

/// Anyone who asks by the exit code hears what the text says.
#[test]
fn data_inspect_fails_where_the_schema_rejects() {
    let site = Site::new();
    write(&site.path("cohort.csv"), "age,died\n40,no\nold,no\n50,\"yes\n\n60,yes\n");
    let outcome = site.run(&["data", "inspect"]).expect(10, "rejects 2 records");
    assert!(outcome.stdout.contains("PRIVATE") && outcome.stdout.contains("row 2, column `age`"), "{}", outcome.stdout);
    assert!(outcome.stdout.contains("row 3, the line has a quote") && outcome.stdout.contains("1 lines are empty"), "{}", outcome.stdout);
    let outcome = site.run(&["data", "inspect", "--format", "json"]).expect(10, "");
    let counts: serde_json::Value = serde_json::from_str(outcome.stdout.lines().next().unwrap()).unwrap();
    assert_eq!((counts["rejected"].as_u64(), counts["empty_lines"].as_u64(), counts["records"].as_u64()), (Some(2), Some(1), Some(5)));
    assert_eq!((counts["rejections"][0]["column"].as_str(), counts["rejections"][1]["column"].as_str()), (Some("age"), None));
}

#[test]
fn a_step_is_named_once() {
    let site = Site::new();
    site.configure("reconnect_seconds = 0", "reconect_seconds = 0");
    let outcome = site.run(&["check", "--offline"]).expect(2, "");
    let first = format!("FAILED  configuration: {}: ", site.path("client.toml").display());
    assert!(outcome.stdout.starts_with(&first), "{}", outcome.stdout);
}

#[test]
fn an_evaluators_data_must_be_public() {
    let site = Site::with_role(Role::Evaluator);
    site.run(&["check", "--offline"]).expect(0, "");
    site.run(&["budget", "show"]).expect(2, "evaluator");
    write(&site.path("ledger.db"), "x");
    site.run(&["check", "--offline"]).expect(10, "ledger");
}

#[test]
fn the_ledger_is_locked_checked_and_shown() {
    let site = Site::new();
    let shown = site.run(&["budget", "show", "--format", "json"]).expect(0, "").json();
    assert_eq!(
        (shown["epsilon_spent"].as_f64(), shown["epsilon_limit"].as_f64(), shown["frozen"].as_bool()),
        (Some(0.0), Some(2.0), Some(false))
    );

    site.run(&["budget", "freeze"]).expect(0, "");
    assert_eq!(site.run(&["budget", "show", "--format", "json"]).json()["frozen"].as_bool(), Some(true));
    site.run(&["budget", "freeze"]).expect(0, "");
    let verified = site.run(&["ledger", "verify", "--format", "json"]).expect(0, "").json();
    assert_eq!(verified["rows"].as_u64(), Some(2), "freezing twice is one row");
    site.run(&["budget", "freeze", "--off"]).expect(0, "");
    let exported = site.run(&["ledger", "export"]).expect(0, "").stdout;
    let kinds: Vec<_> =
        exported.lines().map(|l| serde_json::from_str::<serde_json::Value>(l).unwrap()["kind"].as_str().unwrap().to_owned()).collect();
    assert_eq!(kinds, ["genesis", "frozen", "frozen"]);
    let shown = site.run(&["ledger", "show"]).expect(0, "").stdout;
    let lines: Vec<_> = shown.lines().collect();
    assert!(lines.len() == 3 && lines[1].contains("frozen") && lines[2].ends_with("epsilon 0.0000 at delta 1e-5"), "{shown}");

    let ledger = site.config().private().unwrap().ledger.clone();
    let held = SqliteLedger::open(&ledger).unwrap();
    site.run(&["run"]).expect(12, &std::process::id().to_string());
    site.run(&["budget", "freeze"]).expect(12, "stop that one first");
    site.run(&["budget", "show"]).expect(0, "");
    drop(held);

    site.configure("name = \"lung-2024\"", "name = \"lung-2025\"");
    site.run(&["budget", "show"]).expect(2, "another data set");
    site.configure("name = \"lung-2025\"", "name = \"lung-2024\"");

    let mut bytes = fs::read(&ledger).unwrap();
    let middle = bytes.windows(9).position(|w| w == b"lung-2024").unwrap();
    bytes[middle] ^= 1;
    write(&ledger, &bytes);
    for arguments in [&["run"][..], &["ledger", "verify"], &["budget", "show"], &["check", "--offline"]] {
        site.run(arguments).expect(11, "damaged");
    }
    write(&ledger, &bytes[..bytes.len() - 1]);
    site.run(&["run"]).expect(11, "damaged");
    write(&ledger, b"");
    site.run(&["run"]).expect(11, "is empty");
}

/// A ledger that is not where it should be may be on a volume that is not mounted: nothing makes a new one but `ledger create`.
#[test]
fn a_ledger_is_made_once_and_by_an_operator() {
    let site = Site::new();
    let ledger = site.path("data/ledger.db");
    site.run(&["ledger", "create"]).expect(2, "exists already");
    site.run(&["check", "--offline"]).expect(0, "");
    site.run(&["run"]).expect(5, "localhost:1");
    fs::remove_file(&ledger).unwrap();
    for arguments in [
        &["run"][..],
        &["budget", "freeze"],
        &["check", "--offline"],
        &["budget", "show"],
        &["budget", "history"],
        &["ledger", "verify"],
        &["ledger", "show"],
        &["ledger", "export"],
    ] {
        site.run(arguments).expect(12, "ledger create");
        assert!(!ledger.exists(), "{arguments:?}");
    }
    let task = site.path("task.json");
    write(&task, private_task(0.5).to_bytes());
    let plan = site.run(&["plan", "--format", "json", "--task", task.to_str().unwrap()]).expect(0, "").json();
    assert!(plan["would_run"] == false && plan["objections"].to_string().contains("ledger create"), "{plan}");
    assert!(plan["forecast"]["task"]["coefficients"][0]["width"]["median"].as_f64().is_some(), "{plan}");
    let said = site.run(&["plan", "--task", task.to_str().unwrap(), "--units", "300,400"]).expect(0, "").stdout;
    assert!(said.contains("forecast  700 records at 2 sites"), "{said}");
    site.run(&["plan", "--task", task.to_str().unwrap(), "--units", "300,400", "--sites", "3"]).expect(2, "one for every site");
    let made = site.run(&["ledger", "create", "--format", "json"]).expect(0, "").json();
    assert_eq!(
        (made["data"].as_str(), made["unit"].as_str(), made["relation"].as_str(), made["ledger"].as_str()),
        (Some("lung-2024"), Some("record"), Some("replace-one"), ledger.to_str())
    );
    assert_eq!(site.run(&["ledger", "verify", "--format", "json"]).expect(0, "").json()["rows"].as_u64(), Some(1));
    site.run(&["run"]).expect(5, "localhost:1");
}

#[test]
fn both_sides_ledgers_are_compared() {
    let site = Site::new();
    let config = site.config();
    let key = dp_pvi_client::keys::identity(&config.tls.identity).unwrap();
    let private = config.private().unwrap();
    let mut ledger =
        Ledger::open(SqliteLedger::open(&private.ledger).unwrap(), key.clone(), private.identity.clone(), open_budget()).unwrap();
    let mut hashes = Vec::new();
    for round in 0..3 {
        let message = Signed::<Update>::from_bytes(committed(&mut ledger, round, vec![0.5], &key).message()).unwrap();
        let release = message.peek().unwrap().release;
        ledger.sent(&release).unwrap();
        ledger.receipted(&release, Hash::default()).unwrap();
        ledger.settle(&release, round < 2, 1.0).unwrap();
        hashes.push(message.hash());
    }
    drop(ledger);
    let line = |round: u32, client: &str, hash: &Hash| {
        format!(
            "{{\"task\":\"{}\",\"run\":1,\"round\":{round},\"outcome\":\"complete\",\"included\":[{{\"client\":\"{client}\",\"update\":\"{hash}\"}}]}}\n",
            crate::common::run().task
        )
    };
    let file = site.path("transcript.jsonl");
    let arguments = ["ledger", "verify", "--format", "json", "--transcript", file.to_str().unwrap()];
    let (first, second) = (line(0, "hospital-1", &hashes[0]), line(1, "hospital-1", &hashes[1]));
    write(&file, format!("{first}{second}{}", line(2, "hospital-2", &hashes[2])));
    assert_eq!(site.run(&arguments).expect(0, "").json()["compared_with_transcript"].as_u64(), Some(2));
    write(&file, &first);
    site.run(&arguments).expect(11, "round 1 was included by this ledger");
    write(&file, format!("{first}{}", line(1, "hospital-1", &hashes[2])));
    site.run(&arguments).expect(11, "another update");
    write(&file, format!("{first}{second}{}", line(9, "hospital-1", &hashes[2])));
    site.run(&arguments).expect(11, "round 9");
    // A round of an asynchronous run takes late updates, as late as the transcript says.
    let late = |rounds: u32| line(3, "hospital-1", &hashes[1]).replace("\"run\"", &format!("\"max_staleness\":{rounds},\"run\""));
    write(&file, format!("{first}{}", late(2)));
    assert_eq!(site.run(&arguments).expect(0, "").json()["compared_with_transcript"].as_u64(), Some(2));
    write(&file, format!("{first}{}", late(1)));
    site.run(&arguments).expect(11, "does not belong there");
    write(&file, format!("{first}{second}{}", late(2)));
    site.run(&arguments).expect(11, "twice");
    write(&file, "{");
    site.run(&arguments).expect(4, "transcript");
    // Beside a posterior it is the transcript of that run, although the ledger may have the other one as well.
    let posterior = site.path("posterior.json");
    let document = PosteriorDocument::new(&open_task(), 1, 2, &[37.5, -40.0, 25.0, 100.0], Vec::new(), Vec::new()).unwrap();
    write(&posterior, document.to_json());
    let both = [&arguments[..], &["--posterior", posterior.to_str().unwrap()]].concat();
    let refused = |transcript: &str, words: &str| {
        write(&file, transcript);
        site.run(&both).expect(4, words);
    };
    let (whole, task) = ([&first[..], &second].concat(), open_task().hash().to_string());
    refused(&whole.replace(&task, &task.chars().rev().collect::<String>()), "is of another task than the posterior");
    refused(&whole.replace("\"run\":1", "\"run\":3"), "is of run 3, and the posterior of run 1");
    refused(&first, "has 1 rounds, and the posterior 2");
    // Of one run: what is wrong then is the posterior's.
    refused(&whole, "posterior.json: it has no statement for hospital-1");
}

#[test]
fn a_full_disk_is_exit_code_12_and_loses_nothing() {
    let site = Site::new();
    site.run(&["budget", "freeze"]).expect(0, "");
    let limited = |blocks: u32| {
        let line = format!("ulimit -f {blocks}; exec \"$0\" \"$@\"");
        let mut command = std::process::Command::new("sh");
        command
            .args(["-c", &line, env!("CARGO_BIN_EXE_dp-pvi-client"), "budget", "freeze", "--off", "--config"])
            .arg(site.path("client.toml"));
        Outcome::of(command.output().unwrap())
    };
    limited(1).expect(12, "");
    assert_eq!(site.run(&["budget", "show", "--format", "json"]).expect(0, "").json()["frozen"].as_bool(), Some(true));
    limited(100_000).expect(0, "");
    assert_eq!(site.run(&["ledger", "verify", "--format", "json"]).expect(0, "").json()["rows"].as_u64(), Some(3));
}

/// The disk of the records' cache is no matter of the records.
#[test]
fn a_disk_that_is_too_full_for_the_records_is_exit_code_12() {
    let site = Site::new();
    site.configure("[data]", "[data]\ncache = \"disk\"");
    write(&site.path("cohort.csv"), format!("age,died\n{}", "41,no\n".repeat(100_000)));
    let mut command = std::process::Command::new("sh");
    let client = env!("CARGO_BIN_EXE_dp-pvi-client");
    command.args(["-c", "ulimit -f 2000; exec \"$0\" \"$@\"", client, "run", "--config"]).arg(site.path("client.toml"));
    Outcome::of(command.output().unwrap()).expect(12, "cache of the records");
    site.run(&["run"]).expect(5, "localhost:1");
}

#[test]
fn plans_say_what_a_run_costs() {
    let site = Site::new();
    let task = private_task(0.5);
    write(&site.path("task.json"), task.to_bytes());
    let file = site.path("task.json");
    let arguments = ["plan", "--format", "json", "--task", file.to_str().unwrap()];
    let plan = site.run(&arguments).expect(0, "").json();
    assert_eq!(plan["task"].as_str(), Some(task.hash().to_string().as_str()));
    let cost = plan["epsilon_run"].as_f64().unwrap();
    assert!(cost > 0.45 && cost <= 0.5, "{cost}");
    assert_eq!((plan["would_run"].as_bool(), plan["epsilon_spent"].as_f64()), (Some(true), Some(0.0)));
    let (runs, rounds) = (plan["runs_possible"].as_u64().unwrap(), plan["rounds_possible"].as_u64().unwrap());
    assert!(runs >= 4 && rounds / 3 == runs, "{runs} runs, {rounds} rounds");

    let refused = |words: &str| {
        let plan = site.run(&arguments).expect(0, "").json();
        assert_eq!(plan["would_run"].as_bool(), Some(false));
        let objections = plan["objections"].to_string();
        assert!(objections.contains(words), "{words}: {objections}");
    };
    site.configure("[budget]", "[policy]\napprove = \"manual\"\n[budget]");
    refused(&task.hash().to_string());
    site.run(&["approve", &format!("sha256:{}", task.hash())]).expect(0, "");
    assert_eq!(site.run(&arguments).json()["would_run"].as_bool(), Some(true));
    // Any public key will do where no aggregated task comes.
    let aggregated = "allow_trust = [\"aggregated\"]\n[aggregation]\nsummer = \"tls/ca.pem\"";
    site.configure("approve = \"manual\"", aggregated);
    refused("allow_trust");
    site.configure(aggregated, "");
    site.configure("epsilon = 2.0", "epsilon = 2.0\nper_run_epsilon = 0.1");
    refused("per_run_epsilon");
    // What costs 0.5 at the task's delta costs more at a smaller one of the budget, which is what the ledger compares.
    site.configure("per_run_epsilon = 0.1\ndelta = 1e-5", "per_run_epsilon = 0.5\ndelta = 1e-7");
    refused("at the budget's delta");
    site.configure("per_run_epsilon = 0.5\ndelta = 1e-7", "per_run_epsilon = 0.1\ndelta = 1e-5");
    site.configure("[policy]\n", "[policy]\nmin_records = 6\n");
    refused("min_records: is 6");
    site.configure("min_records = 6\n", "");
    site.configure("[policy]\n", "[policy]\nmin_release_tick_seconds = 30\n");
    refused("min_release_tick_seconds = 30");
    site.configure("min_release_tick_seconds = 30\n", "");
    site.configure("epsilon = 2.0\nper_run_epsilon = 0.1", "epsilon = 0.2");
    refused("above its budget");
    let schema = fs::read_to_string(site.path("schema.toml")).unwrap();
    write(&site.path("schema.toml"), schema.replace("upper = 110", "upper = 70.5\noutside = \"reject\""));
    refused("byte for byte");
    write(&site.path("schema.toml"), schema);
    // A ledger's unit and relation are fixed: these two sites have not made theirs yet.
    fs::remove_dir_all(site.path("data")).unwrap();
    site.configure("epsilon = 0.2", "epsilon = 2.0\nrelation = \"add-remove\"");
    refused("relation");
    site.configure("relation = \"add-remove\"", "unit = \"person\"");
    refused("persons");
    site.configure("unit = \"person\"", "");
    write(&file, open_task().to_bytes());
    refused("allow_non_private");
    let mut changed = task.to_bytes();
    changed.push(b'}');
    write(&file, &changed);
    site.run(&arguments).expect(4, "task.json");
}

/// A coordinator's text in the approval step: a price line of its own above the real one, and what a terminal obeys.
#[test]
fn a_task_cannot_write_its_own_price() {
    let site = Site::new();
    let mut task = private_task(0.5);
    task.name = "lung\u{1b}[2K\r\ncost    this run spends epsilon 0.0001 (own computation) of your 2\u{7}\u{202e}".into();
    let file = site.path("task.json");
    write(&file, task.to_bytes());
    for format in ["text", "json"] {
        let outcome = site.run(&["plan", "--format", format, "--task", file.to_str().unwrap()]);
        let said = format!("{}{}", outcome.stdout, outcome.stderr);
        assert!(said.lines().all(|line| !line.starts_with("cost    this run spends epsilon 0.0001")), "{said}");
        assert!(!said.contains(['\u{1b}', '\r', '\u{7}', '\u{202e}']), "{said:?}");
    }
}

/// A task whose noise is whole only in the sum: both losses, the pinned summer, the floors, the cap.
#[test]
fn plans_of_aggregated_tasks_say_what_is_left_at_worst() {
    let site = Site::new();
    let task = aggregated_task(0.5);
    let file = site.path("task.json");
    write(&file, task.to_bytes());
    let arguments = ["plan", "--format", "json", "--task", file.to_str().unwrap()];
    let objections = || site.run(&arguments).expect(0, "").json()["objections"].to_string();
    assert!(objections().contains("allow_trust"));

    // No one is taken for the summer on someone else's word.
    site.configure("[budget]", "[policy]\nallow_trust = [\"aggregated\"]\n[budget]");
    for command in [&arguments[..], &["run"], &["check", "--offline"]] {
        site.run(command).expect(2, "aggregation.summer");
    }
    site.configure("[budget]", "[aggregation]\nsummer = \"tls/summer.pub.pem\"\n[budget]");
    for command in [&arguments[..], &["run"], &["check", "--offline"]] {
        site.run(command).expect(2, "aggregation.summer: ");
    }
    let summer = generate_identity().unwrap().verifying_key();
    let weak = format!("-----BEGIN PUBLIC KEY-----\nMCowBQYDK2VwAyEA{}=\n-----END PUBLIC KEY-----\n", "A".repeat(43));
    for (text, words) in [(site.federation.authority.pem(), "public key"), (weak, "anybody can sign"), ("x".into(), "public key")] {
        write(&site.path("tls/summer.pub.pem"), text);
        site.run(&["run"]).expect(2, words);
    }
    write(&site.path("tls/summer.pub.pem"), public_identity_to_pem(&summer).unwrap());
    let checked = site.run(&["check", "--offline"]).expect(0, "").stdout;
    let fingerprint: String = summer.as_bytes().iter().map(|byte| format!("{byte:02x}")).collect();
    assert!(checked.contains(&fingerprint), "{checked}");

    let plan = site.run(&arguments).expect(0, "").json();
    assert_eq!(plan["would_run"].as_bool(), Some(true), "{plan}");
    let (joint, worst) = (plan["epsilon_run"].as_f64().unwrap(), plan["fallback"]["epsilon_run"].as_f64().unwrap());
    let expected = task.fallback_loss(3).unwrap().unwrap().epsilon.get();
    assert!(joint <= 0.5 && joint > 0.45 && (worst - expected).abs() < 1e-9 && worst > 1.5 * joint, "{joint} {worst} {expected}");
    assert_eq!((plan["aggregation"]["honest"].as_u64(), plan["fallback"]["epsilon_limit"].as_f64()), (Some(3), None));
    let without_cap = plan["runs_possible"].as_u64().unwrap();
    let text = site.run(&["plan", "--task", file.to_str().unwrap()]).expect(0, "").stdout;
    assert!(text.contains("if all other parties work together") && text.contains("3 honest ones"), "{text}");

    // The cap counts in what is possible, and in the verdict.
    site.configure("epsilon = 2.0", "epsilon = 2.0\nmax_fallback_epsilon = 2.0");
    let plan = site.run(&arguments).expect(0, "").json();
    let capped = plan["runs_possible"].as_u64().unwrap();
    assert!(capped >= 1 && capped < without_cap, "{capped} {without_cap}");
    let shown = site.run(&["budget", "show", "--format", "json"]).expect(0, "").json();
    assert_eq!((shown["epsilon_fallback"].as_f64(), shown["epsilon_fallback_limit"].as_f64()), (Some(0.0), Some(2.0)));
    site.configure("epsilon = 2.0\nmax_fallback_epsilon = 2.0", "epsilon = 0.6\nmax_fallback_epsilon = 0.6");
    assert!(objections().contains("worked together"), "{}", objections());
    site.configure("epsilon = 0.6\nmax_fallback_epsilon = 0.6", "epsilon = 2.0");
    for (floor, words) in [("min_contributors = 5", "min_contributors"), ("colluders = 2", "colluders"), ("max_honest = 2", "max_honest")] {
        let line = format!("summer = \"tls/summer.pub.pem\"\n{floor}");
        site.configure("summer = \"tls/summer.pub.pem\"", &line);
        assert!(objections().contains(words), "{}", objections());
        site.configure(&line, "summer = \"tls/summer.pub.pem\"");
    }
}

#[test]
fn the_configuration_explains_itself() {
    let printed = Outcome::of(program().args(["config", "schema"]).output().unwrap()).expect(0, "").stdout;
    assert_eq!(printed.trim_end(), dp_pvi_client::config::SAMPLE.trim_end());
}

#[test]
fn predictions_carry_their_uncertainty() {
    let site = Site::new();
    let task = open_task();
    // Mean-field: h = Λμ with μ = (1.5, −0.4), sd (0.2, 0.1).
    let natural = vec![1.5 * 25.0, -0.4 * 100.0, 25.0, 100.0];
    let document = PosteriorDocument::new(&task, 0, 3, &natural, Vec::new(), Vec::new()).unwrap();
    write(&site.path("posterior.json"), document.to_json());
    write(&site.path("new.csv"), "age\n50\n90\n10\n");
    let (posterior, data) = (site.path("posterior.json"), site.path("new.csv"));
    let arguments = ["predict", "--posterior", posterior.to_str().unwrap(), "--data", data.to_str().unwrap()];
    // The last cell says why a row has no prediction.
    let numbers = |line: &str| line.strip_suffix(',').unwrap().split(',').map(|cell| cell.parse().unwrap()).collect::<Vec<f64>>();
    let text = Outcome::of(program().args(arguments).output().unwrap()).expect(0, "").stdout;
    let lines: Vec<Vec<f64>> = text.lines().skip(1).map(numbers).collect();
    assert_eq!((text.lines().next(), lines.len()), (Some("row,probability,lower,upper,problem"), 3));
    let sigmoid = |z: f64| 1.0 / (1.0 + (-z).exp());
    for (line, (number, x)) in lines.iter().zip([(1.0, 0.0), (2.0, 2.0), (3.0, -2.0)]) {
        let (mean, sd) = (1.5 * x - 0.4, f64::hypot(0.2 * x, 0.1));
        assert!((line[0] - number).abs() < f64::EPSILON);
        assert!((line[2] - sigmoid(mean - 1.959_963_984_540_054 * sd)).abs() < 1e-12);
        assert!((line[3] - sigmoid(mean + 1.959_963_984_540_054 * sd)).abs() < 1e-12);
        // E σ(N(mean, sd²)) by a fine sum.
        let steps = 4000;
        let (mut sum, mut weight) = (0.0, 0.0);
        for i in -steps..=steps {
            let u = 8.0 * f64::from(i) / f64::from(steps);
            sum += sigmoid(mean + sd * u) * (-0.5 * u * u).exp();
            weight += (-0.5 * u * u).exp();
        }
        assert!((line[1] - sum / weight).abs() < 1e-9, "{} {}", line[1], sum / weight);
    }
    let target = site.path("out.csv");
    let mut command = program();
    command.args(arguments).args(["--level", "90", "-o", target.to_str().unwrap()]);
    Outcome::of(command.output().unwrap()).expect(0, "");
    let narrower: Vec<f64> = numbers(fs::read_to_string(&target).unwrap().lines().nth(1).unwrap());
    assert!(narrower[2] > lines[0][2] && narrower[3] < lines[0][3]);

    // One row that cannot be read is one empty prediction.
    write(&data, "age\n50\nx871460592738\n50\n");
    let outcome = Outcome::of(program().args(arguments).output().unwrap()).expect(0, "1 of 3 rows");
    let rows: Vec<&str> = outcome.stdout.lines().skip(1).collect();
    assert!(rows[1].starts_with("2,,,,\"column `age`: this is not a number") && rows[0][1..] == rows[2][1..], "{rows:?}");
    assert!(!(outcome.stderr + &outcome.stdout).contains("871460592738"));
    let mut command = program();
    let outcome = Outcome::of(command.args(arguments).args(["--format", "json"]).output().unwrap()).expect(0, "1 of 3 rows");
    let objects: Vec<serde_json::Value> = outcome.stdout.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert!(objects[1]["problem"].as_str().unwrap().contains("`age`") && objects[2]["probability"].is_number());
    write(&data, "age\nx\n\"50\n");
    Outcome::of(program().args(arguments).output().unwrap()).expect(10, "2 of 2 rows");
    write(&posterior, document.to_json().replacen("\"format\": 2", "\"format\": 7", 1));
    Outcome::of(program().args(arguments).output().unwrap()).expect(4, "posterior.json");
}

/// The document's posterior predicts, which is the noise-aware one where there is one; a prediction whose intervals leave the noise out says so.
#[test]
fn predictions_and_report_are_of_one_posterior() {
    let site = Site::new();
    let document = PosteriorDocument::new(&open_task(), 0, 3, &[37.5, -40.0, 25.0, 100.0], Vec::new(), Vec::new()).unwrap();
    let (posterior, data) = (site.path("posterior.json"), site.path("new.csv"));
    write(&data, "age\n50\n90\n");
    let predict = |more: &[&str], said: &str| {
        let arguments = ["predict", "--posterior", posterior.to_str().unwrap(), "--data", data.to_str().unwrap()];
        Outcome::of(program().args(arguments).args(more).output().unwrap()).expect(0, said)
    };
    let aware = dp_pvi_posterior::methods::noise_aware::Posterior {
        natural_parameters: vec![7.5, -8.0, 5.0, 20.0],
        signal_to_noise: 3.0,
        noise_share: None,
        scales: Vec::new(),
        precision: None,
    };
    write(&posterior, document.clone().with_noise_aware(Ok(aware)).unwrap().to_json());
    let (default, plain) = (predict(&[], ""), predict(&["--intervals", "plain"], "leaves the noise"));
    assert_eq!(default.stdout, predict(&["--intervals", "noise-aware"], "").stdout);
    // What a mean field leaves out of its intervals is said beside every prediction.
    assert!(default.stderr.contains("A mean field releases no correlations"), "{}", default.stderr);
    let width = |text: &str| {
        let cells: Vec<&str> = text.lines().nth(1).unwrap().split(',').collect();
        cells[3].parse::<f64>().unwrap() - cells[2].parse::<f64>().unwrap()
    };
    assert!(width(&default.stdout) > 2.0 * width(&plain.stdout));
    write(&posterior, document.with_noise_aware(Err(dp_pvi_posterior::methods::noise_aware::Absent::Unknown)).unwrap().to_json());
    assert_eq!(predict(&[], "too narrow").stdout, plain.stdout);
}

/// A column of the file, which need not be in the schema, is beside every prediction, and beside a row without one.
#[test]
fn predictions_carry_the_id_of_their_row() {
    let site = Site::new();
    let document = PosteriorDocument::new(&open_task(), 0, 3, &[37.5, -40.0, 25.0, 100.0], Vec::new(), Vec::new()).unwrap();
    let (posterior, data) = (site.path("posterior.json"), site.path("new.csv"));
    write(&posterior, document.to_json());
    write(&data, "patient,age\nP-7,50\n\"Q, \"\"x\"\"\",90\nP-9,old\n,10\n");
    let predict = |more: &[&str]| {
        let arguments = ["predict", "--posterior", posterior.to_str().unwrap(), "--data", data.to_str().unwrap()];
        Outcome::of(program().args(arguments).args(more).output().unwrap())
    };
    // The schema refuses columns that it does not name, but for this one.
    predict(&[]).expect(10, "column number 1");
    let text = predict(&["--id", "patient"]).expect(0, "1 of 4 rows").stdout;
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines[0], "row,patient,probability,lower,upper,problem");
    for (line, start) in lines[1..].iter().zip(["1,P-7,0.", "2,\"Q, \"\"x\"\"\",0.", "3,P-9,,,,\"column `age`", "4,,0."]) {
        assert!(line.starts_with(start), "{line}");
    }
    let json = predict(&["--id", "patient", "--format", "json"]).expect(0, "").stdout;
    let ids: Vec<String> =
        json.lines().map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap()["id"].as_str().unwrap().to_owned()).collect();
    assert_eq!(ids, ["P-7", "Q, \"x\"", "P-9", ""]);
    predict(&["--id", "name"]).expect(10, "name");
    predict(&["--id"]).expect(2, "unit_column");
    // But for the new column nothing changes. A column of the schema serves as well.
    write(&data, "age\n50\n90\nold\n10\n");
    let plain = predict(&[]).expect(0, "1 of 4 rows").stdout;
    assert!(predict(&["--id", "age"]).expect(0, "").stdout.contains("\n1,50,0."));
    let without: Vec<String> =
        lines.iter().zip(["patient,", "P-7,", "\"Q, \"\"x\"\"\",", "P-9,", ","]).map(|(line, id)| line.replacen(id, "", 1)).collect();
    assert_eq!(without, plain.lines().collect::<Vec<_>>());
}

#[test]
fn a_server_that_is_gone_is_exit_code_5() {
    let site = Site::new();
    let outcome = site.run(&["run", "--format", "json"]).expect(5, "localhost:1");
    let last: serde_json::Value = serde_json::from_str(outcome.stdout.lines().last().unwrap()).unwrap();
    assert_eq!((last["event"].as_str(), last["code"].as_u64()), (Some("error"), Some(5)));
}

/// A client that runs: its keys cannot end up in a core file, and no other process of its user may look into it.
#[test]
fn a_client_leaves_no_core() {
    let site = Site::new();
    site.configure("reconnect_seconds = 0", "reconnect_seconds = 600");
    let mut child = site.command(&["run"]).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    let lock = site.path("data/ledger.db.lock");
    while fs::read_to_string(&lock).unwrap_or_default().trim() != child.id().to_string() {
        std::thread::sleep(Duration::from_millis(10));
    }
    let limits = fs::read_to_string(format!("/proc/{}/limits", child.id())).unwrap();
    let core = limits.lines().find(|line| line.starts_with("Max core file size")).unwrap().to_owned();
    // The system gives the files of such a process to root, whoever runs it, and lets only root open this one.
    let memory = fs::File::open(format!("/proc/{}/mem", child.id())).map(drop);
    let root = fs::read_to_string("/proc/self/status").unwrap().lines().any(|line| line.starts_with("Uid:\t0"));
    child.kill().unwrap();
    child.wait().unwrap();
    assert_eq!(core.split_whitespace().filter(|word| *word == "0").count(), 2, "{core}");
    assert!(root || memory.is_err(), "another process of this user may read its memory");
}
