//! The written proofs and the code name the same things.

use std::fs;

use dp_pvi_posterior::task::{RawTask, ResolveContext};
use dp_pvi_tests::place::root;

const SCHEMA: &str = "[[columns]]\nname = \"y\"\nkind = \"boolean\"\ntrue_values = [\"1\"]\nfalse_values = [\"0\"]\n\
    [[columns]]\nname = \"a\"\nkind = \"number\"\nlower = -1\nupper = 1\ncentre = 0\nscale = 1\n";

/// Rows of the table of `carried_state.md`: updates, states, and why.
fn rows() -> Vec<[String; 3]> {
    let text = fs::read_to_string(root().join("common/privacy/proofs/carried_state.md")).expect("the proof is in the tree");
    let (_, table) = text.split_once("| update | state |").expect("the table of updates");
    let rows = table.lines().skip(2).take_while(|line| line.starts_with('|'));
    rows.map(|line| {
        let cells: Vec<&str> = line.trim_matches('|').splitn(3, '|').map(str::trim).collect();
        <[&str; 3]>::try_from(cells).unwrap_or_else(|cells| panic!("{cells:?}")).map(str::to_owned)
    })
    .collect()
}

/// Whether a task may name this update with this state.
fn accepted(update: &str, state: &str) -> Result<(), String> {
    let shards = if matches!(update, "local-averaging" | "virtual-clients") { "shards = 3\n" } else { "" };
    let unit = if update == "client-level" { "site" } else { "record" };
    let text = format!(
        "[model]\nfamily = \"logistic-regression\"\noutcome = \"y\"\n[schema]\nfile = \"schema.toml\"\n\
         [pvi]\nschedule = \"synchronous\"\nrounds = 3\nupdate = \"{update}\"\n{shards}clip_norm = 1.0\nstate = \"{state}\"\n\
         [privacy]\nunit = \"{unit}\"\nadjacency = \"replace-one\"\nepsilon = 1.0\ndelta = 1e-5\ntrust = \"local\"\nmax_units = 1000000\n"
    );
    let context = ResolveContext { name: "proofs", update_deadline_seconds: 60, min_sites: 2, expected_sites: 3 };
    RawTask::parse(&text).and_then(|raw| raw.resolve(SCHEMA, context)).map(drop).map_err(|error| error.to_string())
}

/// Every state that an update may keep has its line of proof, and one that is refused is told as refused.
#[test]
fn every_update_with_every_state_has_a_proof() {
    let rows = rows();
    let row = |update: &str, state: &str| {
        rows.iter().find(|[updates, states, _]| updates.contains(&format!("`{update}`")) && states.contains(state))
    };
    let mut counted = [0, 0];
    for update in ["parameter-perturbation", "local-averaging", "virtual-clients", "client-level"] {
        for state in ["released", "tied", "private-clean"] {
            let (answer, found) = (accepted(update, state), row(update, state));
            match (&answer, found) {
                (Ok(()), Some([_, _, why])) => assert!(!why.contains("**refused**"), "{update}, {state}: accepted, and told as refused"),
                (Ok(()), None) => panic!("{update}, {state}: accepted, and no proof says why"),
                (Err(_), found) => assert!(found.is_none_or(|[_, _, why]| why.contains("**refused**")), "{update}, {state}: {answer:?}"),
            }
            counted[usize::from(answer.is_ok())] += 1;
        }
    }
    assert!(counted[0] >= 1 && counted[1] >= 10, "{counted:?} refused and accepted");
    // Updates without a choice of state.
    for update in ["pvi", "dp-optimisation", "bcm", "natural-gradient", "global-vi", "vips", "dp-em", "sep", "ep"] {
        assert!(rows.iter().any(|[updates, ..]| updates.contains(&format!("`{update}`"))), "{update} has no row");
    }
}

/// Names of an enum's variants, by its source.
fn variants(file: &str, name: &str) -> Vec<String> {
    let text = fs::read_to_string(root().join(file)).unwrap();
    let (_, body) = text.split_once(&format!("pub enum {name} {{\n")).unwrap_or_else(|| panic!("{file} has no {name}"));
    let lines = body.lines().take_while(|line| *line != "}");
    let named = lines.filter_map(|line| line.strip_prefix("    ").filter(|rest| rest.starts_with(|c: char| c.is_ascii_uppercase())));
    named.map(|rest| rest.chars().take_while(|c| c.is_ascii_alphanumeric()).collect()).collect()
}

/// The argument for the guarantee is about the code of today: it names every event, every kind of terms and every row of a ledger.
#[test]
fn the_argument_names_every_event_and_row() {
    let argument = fs::read_to_string(root().join("common/privacy/proofs/argument.md")).unwrap();
    let mut missing = Vec::new();
    for (file, name, least) in [
        ("common/accounting/src/event.rs", "DpEvent", 10),
        ("common/accounting/src/adjacency.rs", "Terms", 3),
        ("common/privacy/src/ledger/row.rs", "RowBody", 10),
    ] {
        let variants = variants(file, name);
        assert!(variants.len() >= least, "{name}: {variants:?}");
        missing.extend(variants.into_iter().filter(|variant| !argument.contains(&format!("`{variant}`"))));
    }
    assert!(missing.is_empty(), "argument.md does not say what these are: {missing:?}");
}
