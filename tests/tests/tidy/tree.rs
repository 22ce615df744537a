//! The files of the tree, as a clone of it has them.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use dp_pvi_tests::place::root;
use dp_pvi_tests::source::production;

/// What lies in the folder without being part of it: what cargo builds, git's own files, what fuzzing finds.
const ASIDE: &[&str] =
    &["target", ".git", "tests/fuzz/target", "tests/fuzz/corpus", "tests/fuzz/artifacts", "common/python/target", "deploy/guide/book"];

/// Paths of all files, relative to the root.
pub(super) fn files() -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    collect(&root(), "", &mut found);
    found
}

fn collect(folder: &Path, prefix: &str, found: &mut BTreeSet<String>) {
    for entry in fs::read_dir(folder).unwrap_or_else(|e| panic!("{}: {e}", folder.display())).flatten() {
        let path = format!("{prefix}{}", entry.file_name().to_string_lossy());
        if ASIDE.contains(&path.as_str()) {
            continue;
        }
        if entry.path().is_dir() {
            collect(&entry.path(), &format!("{path}/"), found);
        } else {
            found.insert(path);
        }
    }
}

/// A file of the tree as text.
pub(super) fn read(path: &str) -> String {
    fs::read_to_string(root().join(path)).unwrap_or_else(|e| panic!("{path}: {e}"))
}

/// What a module is for fits on a screen. What needs more room is a page of its own, which the module includes or names.
#[test]
fn no_module_begins_with_more_than_forty_lines_of_documentation() {
    let long = |path: &String| read(path).lines().filter(|line| line.starts_with("//!")).count() > 40;
    let found: Vec<_> = files().into_iter().filter(|path| path.ends_with(".rs")).filter(long).collect();
    assert_eq!(found, Vec::<String>::new());
}

/// A crate is one thing. One that grows beyond this is two: comments, empty lines and tests are not counted.
#[test]
fn no_crate_has_more_than_8000_lines_of_production_code() {
    let crates = fs::read_dir(root().join("common")).unwrap().flatten().map(|e| format!("common/{}", e.file_name().to_str().unwrap()));
    let mut counted = 0;
    for house in crates.chain(["proto", "server", "client"].map(str::to_owned)) {
        let sources = production(&root(), &[&format!("{house}/src")]);
        let lines: usize = sources.iter().map(|s| s.code.lines().filter(|line| !line.trim().is_empty()).count()).sum();
        println!("{house}: {lines}");
        assert!(lines <= 8000, "{house} has {lines} lines of production code: cut it in two");
        counted += lines;
    }
    assert!(counted > 20_000, "{counted}");
}
