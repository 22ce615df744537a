//! How the program ends when a signal comes.

use std::fs;
use std::process::Stdio;
use std::time::Duration;

use crate::common::{Outcome, Site};
use dp_pvi_programs::process::ignores_hangup;

#[test]
fn signals_end_a_run_cleanly() {
    // Under `nohup` the tests, and so their clients, live on when a terminal closes.
    let hangup = (!ignores_hangup()).then_some(("HUP", 129));
    for (name, code) in [("INT", 130), ("TERM", 143)].into_iter().chain(hangup) {
        let site = Site::new();
        site.configure("reconnect_seconds = 0", "reconnect_seconds = 600");
        let child = site.command(&["run"]).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let lock = site.path("data/ledger.db.lock");
        let started = child.id().to_string();
        while fs::read_to_string(&lock).unwrap_or_default().trim() != started {
            std::thread::sleep(Duration::from_millis(10));
        }
        std::thread::sleep(Duration::from_millis(300));
        // The shell's own `kill`: a small system has no program of that name.
        let sent = std::process::Command::new("sh").args(["-c", &format!("kill -{name} {}", child.id())]).status().unwrap();
        assert!(sent.success());
        Outcome::of(child.wait_with_output().unwrap()).expect(code, "resume");
        site.run(&["ledger", "verify"]).expect(0, "");
    }
}

/// As `nohup` starts it: a terminal that closes does not end the run.
#[test]
fn a_client_under_nohup_lives_on_when_its_terminal_closes() {
    let site = Site::new();
    site.configure("reconnect_seconds = 0", "reconnect_seconds = 600");
    let run = site.command(&["run"]);
    let mut shell = std::process::Command::new("sh");
    shell.args(["-c", "trap '' HUP; exec \"$0\" \"$@\""]).arg(run.get_program()).args(run.get_args());
    if let Some(folder) = run.get_current_dir() {
        shell.current_dir(folder);
    }
    let child = shell.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let lock = site.path("data/ledger.db.lock");
    while fs::read_to_string(&lock).unwrap_or_default().trim() != child.id().to_string() {
        std::thread::sleep(Duration::from_millis(10));
    }
    std::thread::sleep(Duration::from_millis(300));
    for name in ["HUP", "TERM"] {
        assert!(std::process::Command::new("sh").args(["-c", &format!("kill -{name} {}", child.id())]).status().unwrap().success());
        std::thread::sleep(Duration::from_millis(200));
    }
    Outcome::of(child.wait_with_output().unwrap()).expect(143, "resume");
}
