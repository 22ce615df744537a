//! What people read names every model and method that the registries have, and the worked example of the guide is the code that runs here.

use std::fs::read_to_string;
use std::process::Command;

use dp_pvi_models as models;
use dp_pvi_posterior::methods;
use dp_pvi_tests::place::{binary, root};

/// The models of this program: those that it was built with, not the guests of its tests.
fn families() -> Vec<&'static str> {
    models::registered().map(|(name, _)| name).filter(|name| *name != "gamma-regression").collect()
}

fn updates() -> Vec<&'static str> {
    methods::registered().map(|(name, _)| name).collect()
}

fn page(path: &str) -> String {
    read_to_string(root().join(path)).unwrap()
}

/// A section of a page, from its heading to the next one.
fn section<'a>(page: &'a str, heading: &str) -> &'a str {
    let (_, rest) = page.split_once(&format!("\n{heading}\n")).unwrap_or_else(|| panic!("no section {heading}"));
    rest.split("\n## ").next().unwrap()
}

/// Of `names` those that are not in the text as code.
fn missing<'a>(text: &str, names: &[&'a str]) -> Vec<&'a str> {
    names.iter().filter(|name| !text.contains(&format!("`{name}`"))).copied().collect()
}

#[test]
fn the_tables_for_people_name_every_model_and_every_method() {
    let none: [&str; 0] = [];
    let readme = page("README.md");
    let table = section(&readme, "## Which method when");
    assert_eq!(missing(table, &families()), none, "README.md, which method when");
    assert_eq!(missing(table, &updates()), none, "README.md, which method when");
    assert_eq!(missing(&page("deploy/guide/src/models.md"), &families()), none, "models.md");
    assert_eq!(missing(&page("deploy/guide/src/methods.md"), &updates()), none, "methods.md");
    assert_eq!(missing(&page("deploy/guide/src/choosing.md"), &updates()), none, "choosing.md");
    // The test can fail.
    assert_eq!(missing(table, &["quantum-regression"]), ["quantum-regression"]);
}

#[test]
fn help_lists_every_model_and_every_method() {
    for (program, command) in [("dp-pvi-server", "check"), ("dp-pvi-sim", "run")] {
        let output = Command::new(binary(program)).args([command, "--help"]).output().unwrap();
        let help = String::from_utf8(output.stdout).unwrap();
        assert!(output.status.success(), "{program} {command} --help");
        for name in families().into_iter().chain(updates()) {
            let line = help.lines().find(|line| line.split_whitespace().next() == Some(name));
            assert!(line.is_some_and(|line| line.split_whitespace().count() > 2), "{program} {command} --help: {name}\n{help}");
        }
    }
}

/// The blocks of the page, one after the other, are the file: what a reader copies compiles, and runs in [`guest`](super::guest).
#[test]
fn the_worked_example_of_the_guide_is_the_code_that_runs() {
    let page = page("deploy/guide/src/add-a-model.md");
    let blocks: Vec<&str> = page.split("```rust,ignore\n").skip(1).map(|rest| rest.split("```").next().unwrap()).collect();
    assert!(blocks.len() >= 4, "the example has parts");
    let code = self::page("tests/tests/models/gamma.rs");
    assert_eq!(blocks.join("\n"), code);
}
