//! The program is small enough to be read.
#![allow(clippy::unwrap_used)]

/// Lines of code in a folder's files, without comments and empty lines.
fn lines(folder: &str) -> usize {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join(folder);
    let files = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).filter(|path| path.is_file());
    let code = |line: &&str| !line.trim().is_empty() && !line.trim().starts_with("//");
    files.map(|path| std::fs::read_to_string(path).unwrap().lines().filter(code).count()).sum()
}

/// What proves a certificate; beside it what compares the fields of a `posterior.json`, and what prints.
#[test]
fn what_proves_has_at_most_600_lines() {
    let (proves, compares, prints) = (lines("src"), lines("src/posterior"), lines("src/bin/dp-pvi-verify"));
    assert!((400..=600).contains(&proves), "{proves}");
    assert!((200..=380).contains(&compares), "{compares}");
    assert!((40..=70).contains(&prints), "{prints}");
}

/// A check that shares code with what it checks is none.
#[test]
fn the_verifier_depends_on_no_crate_of_ours() {
    let manifest = std::fs::read_to_string(std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("Cargo.toml")).unwrap();
    let dependencies = manifest.split_once("[dependencies]").unwrap().1;
    assert!(dependencies.contains("sha2") && !dependencies.contains("dp-pvi"), "{dependencies}");
}
