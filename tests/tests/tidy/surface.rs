//! What a crate offers is used by someone else: a public function or constant that only its own crate names is `pub(crate)`, and then the compiler
//! says when no one names it at all.

use std::collections::HashSet;
use std::fs;

use dp_pvi_tests::place::root;
use dp_pvi_tests::source::{everything, production, scrub};

/// Words of a text.
fn words(code: &str) -> impl Iterator<Item = &str> {
    code.split(|c: char| !c.is_alphanumeric() && c != '_').filter(|word| !word.is_empty())
}

/// The name of a public function or constant that a line declares.
fn declared(line: &str) -> Option<&str> {
    let mut words = words(line.trim_start().strip_prefix("pub ")?);
    let mut word = words.next()?;
    let mut constant = false;
    while matches!(word, "const" | "async" | "unsafe") {
        constant = word == "const";
        word = words.next()?;
    }
    if word == "fn" { words.next() } else { constant.then_some(word) }
}

#[test]
fn a_public_function_is_used_by_another_crate() {
    assert_eq!(declared("    pub const fn width(self) -> u32 {"), Some("width"));
    assert_eq!(declared("pub const WIDTH: u32 = 1;"), Some("WIDTH"));
    assert_eq!(declared("pub(crate) fn width() {}"), None);
    assert_eq!(declared("pub struct Width;"), None);

    // Unit tests of another crate count.
    let all: Vec<_> =
        everything(&root(), &["common", "proto", "server", "client", "tests"]).into_iter().map(|s| (s.path, scrub(&s.text))).collect();
    let crates = fs::read_dir(root().join("common")).unwrap().flatten().map(|e| format!("common/{}/src/", e.file_name().to_str().unwrap()));
    let mut unused = Vec::new();
    for sources in crates.chain(["proto/src/".to_owned()]) {
        // A crate's own program, integration tests and benchmarks stand outside of it.
        let program = |path: &str| path.strip_prefix(&sources).is_some_and(|path| path == "main.rs" || path.starts_with("main/"));
        let outside = all.iter().filter(|(path, _)| !path.starts_with(&sources) || program(path));
        let outside: HashSet<&str> = outside.flat_map(|(_, code)| words(code)).collect();
        for source in production(&root(), &[&sources]) {
            let lines = source.code.lines().enumerate();
            let names = lines.filter_map(|(i, line)| Some((i + 1, declared(line)?))).filter(|(_, name)| !outside.contains(name));
            unused.extend(names.map(|(line, name)| format!("{}:{line}: {name}", source.path)));
        }
    }
    assert!(unused.is_empty(), "only their own crate names these, so they are pub(crate):\n{}", unused.join("\n"));
}
