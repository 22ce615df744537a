//! Where results go: files that replace plain files only, and a standard output whose losses are told.

use std::fs::File;
use std::os::unix::fs::{FileTypeExt, symlink};
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::Duration;

use crate::support::{Fed, Plan, Process};

fn program(fed: &Fed, arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_dp-pvi-server"));
    command.args(arguments).arg("--config").arg(fed.config_path()).stdin(Stdio::null());
    command
}

/// A standard output that takes nothing.
fn full() -> File {
    File::options().write(true).open("/dev/full").unwrap()
}

/// Results are lost, and the program says so.
#[track_caller]
fn lost(output: &Output, what: &[&str]) {
    let log = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(12), "{what:?}: {log}");
    assert!(log.contains("results are lost") && log.contains("No space left on device"), "{what:?}: {log}");
    assert!(!log.contains("panicked"), "{what:?}: {log}");
}

fn is_link(path: &Path) -> bool {
    std::fs::symlink_metadata(path).unwrap().is_symlink()
}

/// No half-written file is left beside a result.
fn nothing_beside(folder: &Path) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        assert!(!name.ends_with(".new"), "{name} is left in {}", folder.display());
    }
}

#[test]
fn check_writes_where_a_link_leads_and_into_pipes_and_devices() {
    let fed = Fed::new(2, &Plan::default());
    let task = fed.task().to_bytes();
    let check = |target: &Path| {
        let output = program(&fed, &["check", "-o", target.to_str().unwrap()]).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        output.stdout
    };
    // The task is in the file, and on the screen is where.
    let printed = String::from_utf8(check(&fed.path("resolved.json"))).unwrap();
    assert!(printed.starts_with("task                      written to ") && printed.contains("task hash"), "{printed}");
    assert!(!printed.contains('{'), "{printed}");
    let (link, real) = (fed.path("link.json"), fed.path("real.json"));
    std::fs::write(&real, "old").unwrap();
    symlink("real.json", &link).unwrap();
    check(&link);
    assert!(is_link(&link));
    assert_eq!(std::fs::read(&real).unwrap(), task);

    let pipe = fed.path("pipe");
    assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    let (sender, read) = std::sync::mpsc::channel();
    let end = pipe.clone();
    std::thread::spawn(move || sender.send(std::fs::read(end).unwrap()));
    check(&pipe);
    assert_eq!(read.recv_timeout(Duration::from_secs(20)).expect("the pipe is written to"), task);
    assert!(std::fs::symlink_metadata(&pipe).unwrap().file_type().is_fifo());

    // Standard output, by its own name and by a link: the task, then what `check` says.
    let stdout = fed.path("stdout");
    symlink("/dev/stdout", &stdout).unwrap();
    for target in [Path::new("/dev/stdout"), &stdout] {
        let printed = check(target);
        assert!(printed.starts_with(&task), "{}", String::from_utf8_lossy(&printed));
        assert!(String::from_utf8_lossy(&printed).contains("task hash"));
    }
    assert!(is_link(&stdout) && is_link(Path::new("/dev/stdout")));
    let both = fed.path("both");
    let status = program(&fed, &["check", "-o", "/dev/stdout"]).stdout(File::create(&both).unwrap()).status().unwrap();
    let printed = std::fs::read(&both).unwrap();
    assert!(status.success() && printed.starts_with(&task) && printed.len() > task.len());

    let output = program(&fed, &["check", "-o", "/dev/full"]).output().unwrap();
    assert_eq!(output.status.code(), Some(12));
    assert!(String::from_utf8_lossy(&output.stderr).contains("/dev/full"));
    nothing_beside(fed.root.path());
}

#[test]
fn no_result_is_lost_without_a_word() {
    let fed = Fed::new(2, &Plan::default());
    let [tls, made, summer] = ["tls", "made", "summer"].map(|name| fed.path(name).to_str().unwrap().to_owned());
    let commands: &[&[&str]] = &[
        &["check"],
        &["check", "--format", "json"],
        &["config", "schema"],
        &["completions", "bash"],
        &["account", "--sigma", "10", "--steps", "10", "--relation", "replace-one", "--sampling", "none"],
        &["ca", "init", "--federation", "another", "--dns", "localhost", "-o", &made],
        &["ca", "list", "--ca", &tls],
        &["ca", "renew", "--ca", &tls],
        &["summer", "csr", "--federation", "fed", "-o", &summer],
        &["summer", "schema"],
        &["--help"],
        &["check", "--help"],
        &["--version"],
    ];
    for arguments in commands {
        lost(&program(&fed, arguments).stdout(full()).output().unwrap(), arguments);
    }
    let server = Process::spawn(&fed, &[]);
    for arguments in [&["status"][..], &["status", "--format", "json"], &["pause"], &["resume"], &["migrate"], &["stop"]] {
        lost(&program(&fed, arguments).stdout(full()).output().unwrap(), arguments);
    }
    server.kill();
    // A reader that has seen enough is no full disk.
    for arguments in [&["config", "schema"][..], &["--help"], &["check"]] {
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        assert!(program(&fed, arguments).stdout(writer).status().unwrap().success(), "{arguments:?}");
    }
}

/// Whatever becomes of the log: a full disk, or a reader that is gone.
#[test]
fn a_log_that_cannot_be_written_changes_no_exit_code() {
    let fed = Fed::new(2, &Plan::default());
    for form in ["text", "json"] {
        for (arguments, code) in [(&["check", "-vv"][..], 0), (&["status"], 5), (&["migrate"], 12), (&["fly"], 2)] {
            let mut command = program(&fed, arguments);
            command.args(["--log-format", form]).env("RUST_LOG", "trace");
            assert_eq!(command.stdout(Stdio::null()).stderr(full()).status().unwrap().code(), Some(code), "{arguments:?}");
            let (reader, writer) = std::io::pipe().unwrap();
            drop(reader);
            assert_eq!(command.stderr(writer).status().unwrap().code(), Some(code), "{arguments:?}");
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn results_of_a_run_go_where_links_lead_and_their_loss_is_told() {
    let fed = Fed::new(2, &Plan { linger: "1s", ..Plan::default() });
    let server = Process::spawn(&fed, &[]);
    let mut sites = [fed.member("a").join(server.address).await, fed.member("b").join(server.address).await];
    for _ in 0..2 {
        for site in &mut sites {
            let start = site.round().await;
            site.send(&start, &[1.0, 2.0, 3.0, 4.0]).await.unwrap();
        }
    }
    for site in &mut sites {
        site.finished().await;
    }
    server.event("exported");
    assert_eq!(server.exit_code(), Some(0));

    let out = fed.path("out");
    std::fs::create_dir(&out).unwrap();
    for (link, target) in [("posterior.json", "../real.json"), ("report.html", "../real.html"), ("t.jsonl", "/dev/stdout")] {
        symlink(target, out.join(link)).unwrap();
    }
    let (folder, transcript) = (out.to_str().unwrap(), out.join("t.jsonl"));
    let output = program(&fed, &["export", "-o", folder, "--transcript", transcript.to_str().unwrap()]).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert!(["posterior.json", "report.html", "t.jsonl"].iter().all(|name| is_link(&out.join(name))));
    let posterior: serde_json::Value = serde_json::from_slice(&std::fs::read(fed.path("real.json")).unwrap()).unwrap();
    assert_eq!(posterior["rounds"], 2);
    assert!(std::fs::read_to_string(fed.path("real.html")).unwrap().ends_with("</html>"));
    let printed = String::from_utf8(output.stdout).unwrap();
    let lines: Vec<&str> = printed.lines().collect();
    // Two rounds, and how the run ended.
    assert!(lines.len() == 4 && lines[..3].iter().all(|line| line.starts_with('{')) && lines[3].contains("results written"), "{printed}");

    let exported = program(&fed, &["export", "-o", folder]).stdout(full()).output().unwrap();
    lost(&exported, &["export"]);
    let full_transcript = program(&fed, &["export", "-o", folder, "--transcript", "/dev/full"]).output().unwrap();
    assert_eq!(full_transcript.status.code(), Some(12));
    // A run that is over is served once more: it goes on to its end, and then says what was lost.
    std::fs::remove_file(fed.path("state/posterior.json")).unwrap();
    lost(&program(&fed, &["run", "--quiet"]).stdout(full()).output().unwrap(), &["run"]);
    assert!(fed.path("state/posterior.json").exists());
    nothing_beside(&out);
    nothing_beside(&fed.path("state"));
    nothing_beside(fed.root.path());
}

/// A disk that takes only some of the files, in every place: nothing is left of them, and the next attempt makes the whole set.
#[test]
fn keys_and_authorities_are_made_whole_or_not_at_all() {
    let fed = Fed::new(2, &Plan::default());
    for (name, arguments) in [
        ("ca", &["ca", "init", "--federation", "f", "--dns", "fed.example.org", "-o"][..]),
        ("summer", &["summer", "csr", "--federation", "f", "-o"]),
    ] {
        let mut failed = 0;
        for blocks in 0..6 {
            let folder = fed.path(&format!("{name}-{blocks}"));
            let script = format!("trap '' XFSZ; ulimit -f {blocks}; exec \"$0\" \"$@\"");
            let mut limited = Command::new("sh");
            limited.args(["-c", &script, env!("CARGO_BIN_EXE_dp-pvi-server")]).args(arguments).arg(&folder);
            let output = limited.output().unwrap();
            if output.status.success() {
                continue;
            }
            failed += 1;
            assert_eq!(output.status.code(), Some(12), "{blocks}: {}", String::from_utf8_lossy(&output.stderr));
            let left: Vec<_> =
                std::fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().file_name()).filter(|name| name != ".lock").collect();
            assert!(left.is_empty(), "{blocks}: {left:?}");
            let again = Command::new(env!("CARGO_BIN_EXE_dp-pvi-server")).args(arguments).arg(&folder).output().unwrap();
            assert!(again.status.success(), "{}", String::from_utf8_lossy(&again.stderr));
        }
        assert!(failed >= 1, "{name}: the limit is met");
    }
}

/// The check of the value speaks, and not the parser of flags.
#[test]
fn numbers_below_the_least_are_refused_by_what_they_must_be() {
    let fed = Fed::new(2, &Plan::default());
    for (arguments, words) in [
        (&["ca", "init", "--federation", "f", "--dns", "a.b", "--days", "-1"][..], "not in 1..=3650"),
        (&["ca", "init", "--federation", "f", "--dns", "a.b", "--crl-days", "-1"], "not in 1..=366"),
        (&["ca", "renew", "--days", "-5"], "not in 1..=3650"),
        (&["ca", "renew", "--crl-days", "-5"], "not in 1..=366"),
        (&["check", "--units", "-1"], "at least 1"),
        (&["check", "--units", "0"], "at least 1"),
        (&["check", "--units", "10,0"], "at least 1"),
        (&["check", "--units", "1.5"], "at least 1"),
        (&["check", "--units", "10", "--sites", "-1"], "not in 1..=10000"),
        (&["plan", "task.json", "--epsilon", "1", "--booked", "-1"], "not in 0..=4294967295"),
    ] {
        let output = program(&fed, arguments).output().unwrap();
        let log = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.code() == Some(2) && log.contains(words) && !log.contains("unexpected argument"), "{arguments:?}: {log}");
    }
    assert!(program(&fed, &["check", "--units", "1e3"]).output().unwrap().status.success());
}

/// Whatever names it: a flag, or a link at the place of a result.
#[test]
fn no_output_takes_the_place_of_the_schema() {
    let fed = Fed::new(2, &Plan::default());
    let (schema, state) = (fed.path("schema.toml"), fed.path("state"));
    let before = std::fs::read(&schema).unwrap();
    let name = schema.to_str().unwrap();
    std::fs::create_dir(&state).unwrap();
    std::fs::set_permissions(&state, std::os::unix::fs::PermissionsExt::from_mode(0o700)).unwrap();
    symlink("../schema.toml", state.join("report.html")).unwrap();
    let question = ["account", "--sigma", "10", "--steps", "10", "--relation", "replace-one", "--sampling", "none", "--plot", name];
    let refused = |arguments: &[&str], words: &str| {
        let output = program(&fed, arguments).output().unwrap();
        let log = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success() && log.contains(words), "{arguments:?}: {log}");
        assert_eq!(std::fs::read(&schema).unwrap(), before, "{arguments:?}");
    };
    for arguments in [&["check", "-o", name][..], &["check"], &["run"], &["export", "--transcript", name], &question] {
        refused(arguments, "name another file");
    }
    std::fs::remove_file(state.join("report.html")).unwrap();
    symlink("report.html", state.join("posterior.json")).unwrap();
    refused(&["check"], "another result of this command");
    // A task, and a configuration, with a mistake.
    let task = std::fs::read_to_string(fed.path("task.toml")).unwrap();
    std::fs::write(fed.path("task.toml"), task.replace("rounds = ", "rounds = = ")).unwrap();
    for arguments in [&["export", "--transcript", name][..], &question] {
        refused(arguments, "name another file");
    }
    let config = std::fs::read_to_string(fed.config_path()).unwrap();
    std::fs::write(fed.config_path(), config.replace("127.0.0.1:0", "nonsense")).unwrap();
    refused(&question, "nonsense");
}
