//! Where results go.

use std::fs;

use super::common::Site;

/// A disk that is full takes no result: the program says so, and never ends with 0.
#[test]
fn results_that_cannot_be_written_end_the_program_with_12() {
    let site = Site::new();
    for arguments in [
        &["ledger", "export"][..],
        &["ledger", "show"],
        &["ledger", "verify"],
        &["budget", "show"],
        &["budget", "history"],
        &["check", "--offline"],
        &["data", "inspect"],
        &["completions", "bash"],
        &["--version"],
        &["--help"],
        &["ledger", "--help"],
    ] {
        let full = fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
        let ended = site.command(arguments).stdout(full).output().unwrap();
        let said = String::from_utf8_lossy(&ended.stderr);
        assert_eq!(ended.status.code(), Some(12), "{arguments:?}: {said}");
        assert!(said.contains("standard output"), "{arguments:?}: {said}");
    }
}

/// Whatever becomes of the log: a full disk, or a reader that is gone.
#[test]
fn a_log_that_cannot_be_written_changes_no_exit_code() {
    let site = Site::new();
    for form in ["text", "json"] {
        for (arguments, code) in [(&["check", "--offline"][..], 0), (&["budget", "show"], 0), (&["ledger", "create"], 2)] {
            let mut command = site.command(arguments);
            command.args(["--log-format", form]).env("RUST_LOG", "trace").stdout(std::process::Stdio::null());
            let full = fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
            assert_eq!(command.stderr(full).status().unwrap().code(), Some(code), "{arguments:?}");
            let (reader, writer) = std::io::pipe().unwrap();
            drop(reader);
            assert_eq!(command.stderr(writer).status().unwrap().code(), Some(code), "{arguments:?}");
        }
    }
}

/// A disk that takes only some of the files: nothing is left of them, and the next attempt makes the whole set.
#[test]
fn keys_are_made_whole_or_not_at_all() {
    let site = Site::new();
    let arguments = ["csr", "--federation", "f", "--name", "x", "-o"];
    let mut failed = 0;
    for blocks in 0..4 {
        let folder = site.path(&format!("csr-{blocks}"));
        let script = format!("trap '' XFSZ; ulimit -f {blocks}; exec \"$0\" \"$@\"");
        let mut limited = std::process::Command::new("sh");
        let output = limited.args(["-c", &script, env!("CARGO_BIN_EXE_dp-pvi-client")]).args(arguments).arg(&folder).output().unwrap();
        if output.status.success() {
            continue;
        }
        failed += 1;
        assert_eq!(output.status.code(), Some(12), "{}", String::from_utf8_lossy(&output.stderr));
        assert_eq!(fs::read_dir(&folder).unwrap().count(), 0);
        let again = std::process::Command::new(env!("CARGO_BIN_EXE_dp-pvi-client")).args(arguments).arg(&folder).output().unwrap();
        assert!(again.status.success(), "{}", String::from_utf8_lossy(&again.stderr));
    }
    assert!(failed >= 1, "the limit is met");
}

/// The check of the value speaks, and not the parser of flags; an address or a name that no certificate can hold is told by what to write.
#[test]
fn wrong_values_are_refused_by_what_they_must_be() {
    let site = Site::new();
    for (arguments, words) in [
        (&["plan", "--units", "-1"][..], "at least 1"),
        (&["plan", "--units", "0"], "at least 1"),
        (&["plan", "--sites", "-1"], "not in 1..=10000"),
        (&["forget", "3f9a1c20", "--run", "-1"], "not in 0..=4294967295"),
        (&["ledger", "restore", "x", "--lose-rows", "-1"], "at least 0"),
        (&["forget", "3f9a1c20"], "no open run is of a task whose hash starts with"),
        (&["forget", "work"], "forget"),
    ] {
        site.run(arguments).expect(2, words);
    }
    let file = site.path("client.toml");
    let good = fs::read_to_string(&file).unwrap();
    let line = good.lines().find(|line| line.starts_with("server = ")).unwrap();
    for (server, words) in [("[fe80::1%lo]:9092", "without a zone"), ("[::1%1]:1", "without a zone"), ("f\u{eb}d.org", "xn--")] {
        fs::write(&file, good.replacen(line, &format!("server = \"{server}\""), 1)).unwrap();
        site.run(&["check", "--offline"]).expect(2, words);
    }
}
