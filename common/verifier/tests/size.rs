//! The program is small enough to be read.
#![allow(clippy::unwrap_used)]

/// Lines of code in a folder's files, without comments and empty lines.
fn lines(folder: &str) -> usize {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join(folder);
    let files = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).filter(|path| path.is_file());
    let code = |line: &&str| !line.trim().is_empty() && !line.trim().starts_with("//");
    files.map(|path| std::fs::read_to_string(path).unwrap().lines().filter(code).count()).sum()
}

/// What proves a certificate, and beside it the program that looks for certificates in a `posterior.json` and prints what was found.
#[test]
fn what_proves_has_at_most_600_lines() {
    let (proves, reads) = (lines("src"), lines("src/bin/dp-pvi-verify"));
    assert!((400..=600).contains(&proves), "{proves}");
    assert!((50..=100).contains(&reads), "{reads}");
}
