//! Rules over the source files.

use std::collections::BTreeSet;
use std::fs;

use dp_pvi_models as models;
use dp_pvi_tests::place::root;
use dp_pvi_tests::source::{Source, everything, production};

/// Every folder with code of the product; `tests` has none.
const PRODUCT: &[&str] = &["common", "proto", "server", "client"];

/// Panics with all lines of production code that contain one of `needles` in a file that `exempt` does not let through.
#[track_caller]
fn absent(sources: &[Source], needles: &[&str], exempt: impl Fn(&str) -> bool, rule: &str) {
    let found: Vec<_> = sources.iter().filter(|s| !exempt(&s.path)).flat_map(|s| needles.iter().flat_map(|n| s.lines_with(n))).collect();
    assert!(found.is_empty(), "{rule}:\n{}", found.join("\n"));
}

/// A test's name says what holds, not where it was found.
#[test]
fn tests_are_named_for_what_holds() {
    let numbered = |line: &str| {
        let name = line.split("fn ").nth(1).unwrap_or_default();
        let first = name.split('_').next().unwrap_or_default();
        let numbers = first.strip_prefix('t').is_some_and(|rest| !rest.is_empty() && rest.bytes().all(|byte| byte.is_ascii_digit()));
        ["finding_", "weakness_", "invariant_"].iter().any(|word| name.starts_with(word)) || numbers
    };
    let sources = everything(&root(), &[PRODUCT, &["tests"]].concat());
    let found: Vec<_> =
        sources.iter().flat_map(|source| source.text.lines().filter(|line| numbered(line)).map(|line| (&source.path, line))).collect();
    assert!(found.is_empty(), "{found:?}");
}

#[test]
fn the_top_level_is_fixed() {
    let allowed = BTreeSet::from([
        "Cargo.toml",
        "Cargo.lock",
        "LICENSE",
        "proto",
        "server",
        "client",
        "common",
        "deploy",
        "tests",
        "README.md",
        "target",
    ]);
    for entry in fs::read_dir(root()).unwrap().flatten() {
        let name = entry.file_name().into_string().unwrap();
        assert!(name.starts_with('.') || allowed.contains(name.as_str()), "{name} does not belong at the top level");
    }
}

/// Invariant 4, source half (the dependency half is in `layers.rs`): generated code stays inside proto, and no crate writes its
/// own encoding of a wire message.
#[test]
fn generated_code_is_named_only_in_proto() {
    let sources = production(&root(), PRODUCT);
    // The engine reads the wire forms of its library, Ballista, to refuse most of them; they are none of the federation's.
    let proto = |path: &str| path.starts_with("proto/") || path.starts_with("common/engine/");
    absent(
        &sources,
        &["include_proto!", "prost::", "tonic_prost", "encode_to_vec", "encode_length_delimited"],
        proto,
        "only proto forms wire messages",
    );
}

/// Invariant 4, for metrics: they leave a process as `PublicMetrics`, which need records that the loader of public files declared
/// public; and one place makes the message.
#[test]
fn metrics_come_from_public_records_only() {
    let sources = production(&root(), PRODUCT);
    let loader = |path: &str| ["common/schema/src/public.rs", "common/data/src/public.rs"].contains(&path);
    absent(&sources, &["Public::declare", "Public::<"], loader, "only the loader of public files declares records public");
    let posterior = |path: &str| path == "common/protocol/src/metrics.rs";
    absent(&sources, &["PublicMetrics(", "PublicMetrics {"], posterior, "public metrics come from metrics::evaluate");
    let report = |path: &str| ["common/protocol/src/message.rs", "common/protocol/src/participant/evaluator.rs"].contains(&path);
    absent(&sources, &["MetricsReport {"], report, "one place reports metrics");
}

/// The variants of an enum of the task, as the source declares them.
pub(crate) fn variants(path: &str, name: &str) -> Vec<String> {
    let text = fs::read_to_string(root().join(path)).unwrap();
    let (_, body) = text.split_once(&format!("pub enum {name} {{\n")).unwrap_or_else(|| panic!("{path} declares {name}"));
    let (body, _) = body.split_once("\n}").unwrap();
    let variant = |line: &str| -> Option<String> {
        let line = line.strip_prefix("    ").filter(|line| line.starts_with(|c: char| c.is_ascii_uppercase()))?;
        Some(line.chars().take_while(char::is_ascii_alphanumeric).collect())
    };
    let found: Vec<_> = body.lines().filter_map(variant).collect();
    assert!(found.len() > 1, "{name} has variants");
    found
}

/// `DpOptimisation` as it is in a task file: `dp-optimisation`.
pub(crate) fn kebab(name: &str) -> String {
    let mut text = String::new();
    for (i, c) in name.chars().enumerate() {
        if c.is_ascii_uppercase() && i > 0 {
            text.push('-');
        }
        text.push(c.to_ascii_lowercase());
    }
    text
}

/// Invariant 6: a model is one folder and one registry line. Nothing that carries a run knows any model or update: neither the types of
/// the task nor, in words, one of their names. The names are read from the registries, so a new one is looked for as well.
#[test]
fn server_wire_and_client_know_no_model_and_no_update() {
    let mut sources = production(&root(), &["proto/src", "server/src", "client/src", "common/protocol/src"]);
    // Post-processing of released values that both sides use: what a sum of so many units can be, and what a posterior predicts.
    sources
        .retain(|source| !["common/protocol/src/shape.rs", "common/protocol/src/predictive.rs"].iter().any(|of| source.path.ends_with(of)));
    let types = ["ModelSpec", "ModelFamily", "UpdateSpec", "UpdateKind"];
    absent(&sources, &types, |_| false, "what a task computes is the business of posterior and inference");
    let variants = ["UpdateSpec", "UpdateKind"].into_iter().flat_map(|name| variants("common/posterior/src/methods/mod.rs", name));
    let names: BTreeSet<String> =
        variants.map(|variant| kebab(&variant)).chain(models::registered().map(|(name, _)| name.to_owned())).collect();
    assert!(names.contains("linear-regression") && names.contains("dp-em"), "{names:?}");
    for name in names {
        let words = format!("\"{name}\"");
        for source in &sources {
            let found = source.text.lines().position(|line| line.contains(&words));
            assert!(found.is_none(), "{}:{} names {name}", source.path, found.map_or(0, |i| i + 1));
        }
    }
}

/// Simulation and experiments: nothing that a site runs is made of them.
fn simulation(path: &str) -> bool {
    path.starts_with("common/simulation/")
}

/// Invariant 5: no clock and no ambient randomness in common. The one exemption for randomness is the secure noise source; the
/// ones for clocks report how long a run or an answer took.
#[test]
fn no_clock_and_no_ambient_randomness_in_common() {
    let sources = production(&root(), &["common"]);
    let clocks = ["SystemTime", "Instant::now", "time::Instant", "tokio::time", "OffsetDateTime::now", "clock_gettime", "UNIX_EPOCH"];
    // The engine is a service of its own, which waits for others.
    let known = ["common/simulation/src/main.rs", "common/results/src/account/mod.rs"];
    absent(&sources, &clocks, |path| known.contains(&path) || path.starts_with("common/engine/"), "no clock in common");
    let randomness =
        ["getrandom", "thread_rng", "rand::rng()", "rand::random", "OsRng", "SysRng", "from_os_rng", "from_entropy", "RandomState::new"];
    // A program makes its identity key.
    let sources_of_randomness = |path: &str| ["common/privacy/src/noise.rs", "common/programs/src/identity/keys.rs"].contains(&path);
    absent(&sources, &randomness, sources_of_randomness, "randomness comes from a NoiseSource");
}

/// `privacy::danger` opens the gate. No one but simulation and tests may name it, or any function that it has.
#[test]
fn the_doors_in_the_gate_are_for_simulation_and_tests() {
    let sources = production(&root(), PRODUCT);
    let danger = sources.iter().find(|s| s.path == "common/privacy/src/danger.rs").expect("the doors are here");
    let functions =
        danger.code.lines().filter_map(|l| l.trim().strip_prefix("pub fn ")).map(|l| l.split(['(', '<']).next().unwrap().to_owned());
    let names: Vec<String> = functions.chain(["danger".to_owned()]).collect();
    assert!(names.len() >= 3 && names.iter().any(|n| n == "assume_public"), "{names:?}");
    let declaration = "common/privacy/src/lib.rs";
    assert_eq!(sources.iter().find(|s| s.path == declaration).unwrap().lines_with("danger").len(), 1, "declared once, not used there");
    // What rustls calls danger is a verifier of certificates.
    let other = ["server/src/tls.rs", "proto/src/names.rs"];
    let allowed = |path: &str| [&danger.path, declaration].contains(&path) || other.contains(&path) || simulation(path);
    let dangers = sources.iter().filter(|source| other.contains(&&*source.path)).flat_map(|source| source.lines_with("danger"));
    assert!(dangers.into_iter().all(|line| line.contains("rustls::")), "another danger in {other:?}");
    absent(&sources, &names.iter().map(String::as_str).collect::<Vec<_>>(), allowed, "a door in the gate is used by production code");
}

/// Source half: a generator is keyed in one place, from the operating system.
#[test]
fn noise_cannot_be_seeded_outside_simulation() {
    let sources = production(&root(), PRODUCT);
    let seeding =
        ["SeedableRng", "seed_from_u64", "from_seed", "from_rng", "ChaCha20Rng", "ChaCha12Rng", "ChaCha8Rng", "StdRng", "SmallRng"];
    let source_of_noise = |path: &str| path == "common/privacy/src/noise.rs" || simulation(path);
    // A mask is the keystream of a seed that two parties share; it hides, and protects nothing by itself.
    let allowed = |path: &str| source_of_noise(path) || path == "common/secagg/src/mask.rs";
    absent(&sources, &seeding, allowed, "a seedable generator outside the secure noise source");
    absent(&sources, &["NoiseSource for"], source_of_noise, "another source of noise");
    let noise = sources.iter().find(|s| s.path == "common/privacy/src/noise.rs").expect("the secure noise source is here");
    assert_eq!(noise.lines_with("from_seed").len(), 1, "one place keys the generator");
    assert!(noise.code.contains("getrandom::fill"), "and the operating system gives the key");
    for needle in ["seed: u64", "pub fn with_seed", "pub fn new(seed", "cfg(feature"] {
        assert!(noise.lines_with(needle).is_empty(), "no option may seed it: {needle}");
    }
}

/// Anyone who makes an argument of a value has called it public, and anyone who builds a table has seen the records: both have their places.
#[test]
fn values_are_called_public_and_tables_are_built_in_few_places() {
    let sources = production(&root(), PRODUCT);
    let elsewhere = |path: &str| simulation(path) || path.starts_with("common/privacy/src/");
    // Public halves of jobs; and the sealed seed of an upload.
    let arguments = |path: &str| {
        elsewhere(path) || ["common/inference/src/methods/public_job.rs", "common/protocol/src/participant/site.rs"].contains(&path)
    };
    absent(&sources, &["Argument::copy_of"], arguments, "an argument of the gate is made here");
    absent(
        &sources,
        &["Units::new(", "Units::stored("],
        |path| elsewhere(path) || ["common/data/src/lib.rs", "common/data/src/blocks.rs"].contains(&path),
        "only loaders build tables of units",
    );
}

/// Invariant 8: what a site's own people may see without noise has one way out of the gate. The right to look is made in one file of the client, used in
/// one of inference, and neither they nor the file's own form can send, charge or log.
#[test]
fn what_is_for_own_eyes_has_one_exit_and_goes_no_further() {
    let sources = production(&root(), PRODUCT);
    let (gate, looks, asks, form) = (
        "common/privacy/src/local_only.rs",
        "common/inference/src/personal.rs",
        "client/src/commands/personalise.rs",
        "client/src/personal.rs",
    );
    absent(&sources, &["instead_of_releases"], |path| [gate, asks].contains(&path), "the right to look is made in one command");
    absent(&sources, &["into_local_only"], |path| [gate, looks].contains(&path), "one function takes a local-only value out");
    // The errors of a process that did the other thing before.
    let errors = ["common/privacy/src/lib.rs", "common/privacy/src/ledger/error.rs", "client/src/error.rs"];
    let named = |path: &str| [gate, looks, asks].contains(&path) || errors.contains(&path);
    absent(&sources, &["LocalAccess"], named, "what is local-only is named elsewhere");
    let reads = "client/src/commands/predict.rs";
    absent(&sources, &["PersonalDocument"], |path| [asks, form, reads].contains(&path), "a personal posterior is read elsewhere");
    absent(&sources, &["personalise("], |path| [asks, "client/src/cli.rs"].contains(&path), "it is made on the operator's command alone");
    for path in [looks, asks, form] {
        let source = sources.iter().find(|source| source.path == path).unwrap_or_else(|| panic!("{path} is there"));
        for way in [
            "transport",
            "tls::",
            "drive_",
            "reserve",
            "commit(",
            "Attachment",
            "Message",
            "ledger::open",
            "SqliteLedger",
            "tracing",
            "println",
        ] {
            let found = source.lines_with(way);
            assert!(found.is_empty(), "it can send, charge or log:\n{}", found.join("\n"));
        }
    }
}

/// What a panic prints inside the gate is decided in one place; no one puts another hook before it, or looks at what a panic carried.
#[test]
fn one_place_decides_what_a_panic_says() {
    let sources = production(&root(), PRODUCT);
    let inside = |path: &str| path == "common/privacy/src/panic_redaction.rs";
    absent(&sources, &["set_hook", "take_hook", "panic_any"], inside, "the gate's hook is the last one");
    let inference = production(&root(), &["common/inference/src", "common/records/src"]);
    absent(&inference, &["catch_unwind", "resume_unwind", "::leak(", ".leak()"], |_| false, "code over records carries nothing away");
}

/// Whether the line declares a `static`.
fn is_static(line: &str) -> bool {
    let words = line.split_whitespace().skip_while(|word| word.starts_with("pub"));
    words.take(1).any(|word| word == "static")
}

/// The gate stops mistakes: code that sees a record has no place to put it (its functions capture nothing, and these are absent).
#[test]
fn inference_has_no_io_and_no_shared_state() {
    let sources = production(&root(), &["common/inference/src", "common/records/src"]);
    let needles = [
        "std::fs",
        "std::io",
        "std::net",
        "std::env",
        "std::process",
        "std::thread",
        "println!",
        "eprintln!",
        "print!",
        "dbg!",
        "Mutex",
        "RwLock",
        "RefCell",
        "Cell<",
        "Cell::",
        "OnceLock",
        "OnceCell",
        "LazyLock",
        "Atomic",
        "thread_local!",
        "mpsc",
    ];
    absent(&sources, &needles, |_| false, "inference computes and does nothing else");
    // Likelihoods are evaluated on records, too. What a formula's column holds is called a cell.
    let likelihoods = production(&root(), &["common/models/src", "common/math/src"]);
    let (registry, cells) =
        (|path: &str| path == "common/models/src/registry.rs", |path: &str| path.starts_with("common/models/src/effects/"));
    absent(&likelihoods, &needles, |path| registry(path) || cells(path), "a likelihood computes and does nothing else");
    // One static: the registry of models, which is sealed before the first record is seen.
    let statics = sources.iter().flat_map(|s| s.code.lines().filter(|line| is_static(line)).map(|line| (s.path.as_str(), line.trim())));
    let statics: Vec<_> = statics.collect();
    assert!(
        matches!(statics.as_slice(), [("common/inference/src/models/mod.rs", line)] if line.contains("Registry<ModelModule>")),
        "{statics:?}"
    );
    let programs = production(&root(), PRODUCT);
    absent(&programs, &["models::register::", "MODULES.add("], |path| path == "common/inference/src/models/mod.rs", "models are built in");
}

/// Invariant 1, source half: what computes writes no file. The ledger's file is in the programs' module.
#[test]
fn what_computes_writes_no_file() {
    let pure = [
        "common/names/src",
        "common/math/src",
        "common/privacy/src",
        "common/schema/src",
        "common/records/src",
        "common/models/src",
        "common/posterior/src",
        "common/secagg/src",
        "common/protocol/src",
    ];
    let sources = production(&root(), &pure);
    absent(&sources, &["std::fs", "std::net", "std::process", "rusqlite"], |_| false, "no file is written here");
}

#[test]
fn files_are_at_most_800_lines() {
    for source in everything(&root(), &["common", "proto", "server", "client", "tests"]) {
        let lines = source.text.lines().count();
        assert!(lines <= 800, "{} has {lines} lines: split it by meaning", source.path);
    }
}

#[test]
fn nothing_is_left_unfinished() {
    let sources = production(&root(), PRODUCT);
    absent(&sources, &["todo!(", "unimplemented!(", "dbg!("], |_| false, "unfinished code");
    for source in everything(&root(), &["common", "proto", "server", "client"]) {
        for mark in ["TODO", "FIXME", "XXX", "HACK"] {
            let found = source.text.lines().position(|l| l.contains(mark));
            assert!(found.is_none(), "{}:{} has a {mark}", source.path, found.map_or(0, |i| i + 1));
        }
    }
}

/// A panic in production code needs a sentence that says why it cannot happen: beside the call, above it, or as a lint's reason.
#[test]
fn unwrap_and_expect_come_with_a_reason() {
    let mut found = Vec::new();
    for source in production(&root(), PRODUCT) {
        let text: Vec<_> = source.text.lines().collect();
        for (i, code) in source.code.lines().enumerate() {
            let panics = [".unwrap()", ".unwrap_err()", ".expect("].iter().any(|n| code.contains(n));
            // The statement may begin some lines above the call.
            let reason = text[i.saturating_sub(8)..=i].iter().any(|l| l.contains("// ") || l.contains("reason = "));
            if panics && !reason {
                found.push(format!("{}:{}: {}", source.path, i + 1, text[i].trim()));
            }
        }
    }
    assert!(found.is_empty(), "say why it cannot fail:\n{}", found.join("\n"));
}

#[test]
fn every_crate_takes_the_lints_of_the_workspace() {
    let workspace = fs::read_to_string(root().join("Cargo.toml")).unwrap();
    assert!(workspace.contains("unsafe_code = \"forbid\"") && workspace.contains("missing_docs") && workspace.contains("unwrap_used"));
    for line in workspace.lines().map(str::trim).skip_while(|l| *l != "members = [").skip(1).take_while(|l| *l != "]") {
        let member = line.trim_matches(|c| c == '"' || c == ',');
        let manifest = fs::read_to_string(root().join(member).join("Cargo.toml")).unwrap();
        assert!(manifest.replace(' ', "").contains("[lints]\nworkspace=true"), "{member} has its own lints");
    }
}
