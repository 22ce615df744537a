//! A comment or a page that names a file names one that is in the tree: what a claim rests on can be read beside it.

use std::collections::BTreeSet;

use super::tree::{files, read};

/// Endings of files that a sentence is taken to name.
const NAMED: &[&str] = &[".md", ".proto", ".rs", ".sh"];

/// The same, where the first folder says that the file is ours: configurations of an operator have these endings, too.
const NAMED_IN: &[&str] = &[".png", ".svg", ".toml", ".yml"];
const FOLDERS: &[&str] = &["client/", "common/", "deploy/", "proto/", "server/", "tests/"];

/// Names by which documents outside of the tree were cited, each followed by a number.
const CITED: &[&str] = &["algorithms", "architecture", "decisions"];

/// The lines of a file in which someone speaks to a reader: all of a page, the comments of everything else.
fn prose<'a>(path: &str, text: &'a str) -> Vec<(usize, &'a str)> {
    let name = path.rsplit('/').next().unwrap_or(path);
    let mark = match name.rsplit_once('.').map(|(_, ending)| ending) {
        Some("md") => return text.lines().enumerate().map(|(i, line)| (i + 1, line)).collect(),
        Some("rs" | "proto") => "//",
        Some("toml" | "sh" | "yml") => "#",
        _ if ["Dockerfile", "run", ".dockerignore"].contains(&name) => "#",
        _ => return Vec::new(),
    };
    let comment = |line: &'a str| {
        let at = line.match_indices(mark).map(|(at, _)| at).find(|at| line[..*at].trim().is_empty() || line[..*at].ends_with(' '))?;
        Some(&line[at..])
    };
    text.lines().enumerate().filter_map(|(i, line)| Some((i + 1, comment(line)?))).collect()
}

/// What a line names that looks like a file of ours.
fn named(line: &str) -> Vec<String> {
    let inside = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '.' | '/' | '-' | '<' | '*' | '{' | '}' | '$' | '…' | ':' | '~');
    let words = line.split(|c| !inside(c)).map(|word| word.trim_matches(|c| matches!(c, '.' | ':' | '-' | '…')));
    // Addresses, patterns and paths with a place to fill in name no single file.
    let single = words.filter(|word| !word.contains(['<', '*', '{', '$', ':', '~', '…']) && !word.starts_with('/'));
    let is_file = |word: &&str| {
        let stem = |ending: &&str| {
            word.strip_suffix(*ending).is_some_and(|stem| stem.ends_with(|c: char| c.is_ascii_lowercase() || c.is_ascii_digit()))
        };
        NAMED.iter().any(&stem) || FOLDERS.iter().any(|f| word.starts_with(f)) && NAMED_IN.iter().any(stem) || word.starts_with("design/")
    };
    single.filter(is_file).map(|word| word.trim_start_matches("./").trim_start_matches("../").to_owned()).collect()
}

/// The document that a line cites by number: `algorithms, section 5`, `algorithms R2`, `decisions 24`.
fn cited(line: &str) -> Option<&'static str> {
    let number = |rest: &str| {
        let rest = rest.strip_prefix(',').unwrap_or(rest).trim_start();
        let rest = ["sections ", "section ", "rule "].iter().find_map(|word| rest.strip_prefix(word)).unwrap_or(rest);
        rest.strip_prefix('R').unwrap_or(rest).starts_with(|c: char| c.is_ascii_digit())
    };
    CITED.iter().copied().find(|name| line.match_indices(name).any(|(at, _)| number(&line[at + name.len()..])))
}

/// Everything that is wrong with a file's references.
fn missing(path: &str, text: &str, files: &BTreeSet<String>) -> Vec<String> {
    let there = |name: &String| files.contains(name) || files.iter().any(|file| file.ends_with(&format!("/{name}")));
    let mut found = Vec::new();
    for (line, words) in prose(path, text) {
        found.extend(named(words).into_iter().filter(|name| !there(name)).map(|name| format!("{path}:{line}: there is no {name}")));
        found.extend(cited(words).map(|words| format!("{path}:{line}: \"{words}\" is no document of the tree")));
    }
    found
}

#[test]
fn files_that_are_named_are_in_the_tree() {
    let files = files();
    let mut found = Vec::new();
    // This file has references to nowhere, to show that they are seen.
    for path in files.iter().filter(|path| !prose(path, "// #").is_empty() && !path.ends_with("tidy/references.rs")) {
        found.extend(missing(path, &read(path), &files));
    }
    assert!(found.is_empty(), "say it in the tree, or name another place:\n{}", found.join("\n"));
}

/// The rule above sees what it is for.
#[test]
fn missing_files_are_seen() {
    let files: BTreeSet<_> =
        ["common/privacy/proofs/shares.md", "tests/src/place.rs", "deploy/task.toml", "README.md"].map(str::to_owned).into();
    let problems = |path: &str, text: &str| missing(path, text, &files).len();
    for text in [
        "//! See `proofs/shares.md` and (README.md), deploy/task.toml; place.rs, models/<name>/page.md.",
        "let a = \"algorithms.md\"; // written to NAME.md, read from tls/ca.toml",
        "let url = \"http://example.org/x.md\";",
        "// The algorithms, and decisions of ten people.",
    ] {
        assert_eq!(problems("common/x.rs", text), 0, "{text}");
    }
    for text in [
        "/// (algorithms.md 4.3)",
        "let x = 1; // proofs/gone.md",
        "// as in deploy/gone.toml",
        "// (algorithms, section 5)",
        "// (algorithms sections 5 and 6)",
        "// rule (algorithms R2)",
        "// decisions 24",
        "// design/x",
    ] {
        assert_eq!(problems("common/x.rs", text), 1, "{text}");
    }
    assert_eq!(problems("deploy/a.toml", "key = \"gone.md\" # gone.md"), 1);
    assert_eq!(problems("README.md", "`deploy/gone.sh`\n"), 1);
}
