//! Every dependency of `Cargo.lock`, on every platform, has a licence that lets a hospital use and ship the programs.

use cargo_metadata::MetadataCommand;
use dp_pvi_tests::place::root;

const ALLOWED: &[&str] = &[
    "0BSD",
    "Apache-2.0",
    "Apache-2.0 WITH LLVM-exception",
    "BSD-1-Clause",
    "BSD-2-Clause",
    "BSD-3-Clause",
    "BSL-1.0",
    "CC0-1.0",
    "CDLA-Permissive-2.0",
    "ISC",
    "MIT",
    "MIT-0",
    "MPL-2.0",
    "Unicode-3.0",
    "Unlicense",
    "Zlib",
];

/// Whether an SPDX expression can be satisfied with allowed licences: `OR` offers a choice, `AND` asks for both.
/// `/` is the old spelling of `OR`. What cannot be read is not permitted.
fn permitted(expression: &str) -> bool {
    let spaced = expression.replace('/', " OR ").replace('(', " ( ").replace(')', " ) ");
    // A stack with the next token on top.
    let mut tokens: Vec<&str> = spaced.split_whitespace().rev().collect();
    choice(&mut tokens) == Some(true) && tokens.is_empty()
}

fn choice(tokens: &mut Vec<&str>) -> Option<bool> {
    let mut value = all(tokens)?;
    while tokens.pop_if(|t| *t == "OR").is_some() {
        value |= all(tokens)?;
    }
    Some(value)
}

fn all(tokens: &mut Vec<&str>) -> Option<bool> {
    let mut value = licence(tokens)?;
    while tokens.pop_if(|t| *t == "AND").is_some() {
        value &= licence(tokens)?;
    }
    Some(value)
}

fn licence(tokens: &mut Vec<&str>) -> Option<bool> {
    if tokens.pop_if(|t| *t == "(").is_some() {
        let value = choice(tokens)?;
        return tokens.pop_if(|t| *t == ")").map(|_| value);
    }
    let mut name = tokens.pop()?.to_owned();
    if tokens.pop_if(|t| *t == "WITH").is_some() {
        name = format!("{name} WITH {}", tokens.pop()?);
    }
    Some(ALLOWED.contains(&name.as_str()))
}

#[test]
fn expressions_are_read_as_spdx_means_them() {
    for good in ["MIT", "GPL-3.0 OR MIT", "MIT/Apache-2.0", "(MIT OR GPL-2.0) AND Unicode-3.0", "Apache-2.0 WITH LLVM-exception OR X"] {
        assert!(permitted(good), "{good}");
    }
    for bad in [
        "",
        "GPL-3.0",
        "MIT AND GPL-3.0",
        "MIT AND (GPL-2.0 OR LGPL-3.0)",
        "GPL-2.0 WITH Classpath-exception-2.0",
        "MIT OR",
        "(MIT",
        "MIT ISC",
    ] {
        assert!(!permitted(bad), "{bad}");
    }
}

#[test]
fn every_dependency_has_a_permissive_licence() {
    let metadata = MetadataCommand::new()
        .manifest_path(root().join("Cargo.toml"))
        .other_options(["--locked".to_owned()])
        .exec()
        .expect("cargo metadata of all platforms; without a network run `cargo fetch --locked` before");
    let mut seen = 0;
    for package in &metadata.packages {
        let licence = package.license.as_deref().unwrap_or("");
        assert!(permitted(licence), "{} {} has licence '{licence}'", package.name, package.version);
        seen += 1;
    }
    println!("{seen} packages");
    assert!(seen > 50, "the lock file has more packages than that");
}
