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
    ] {
        let full = fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
        let ended = site.command(arguments).stdout(full).output().unwrap();
        let said = String::from_utf8_lossy(&ended.stderr);
        assert_eq!(ended.status.code(), Some(12), "{arguments:?}: {said}");
        assert!(said.contains("standard output"), "{arguments:?}: {said}");
    }
}
