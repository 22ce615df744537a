//! Rules over the dependency graph (`cargo metadata`).

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};

use cargo_metadata::{DependencyKind, Metadata, MetadataCommand, PackageId};
use dp_pvi_tests::place::root;
use dp_pvi_tests::source::{Source, everything, scrub};

/// Who may import whom among the crates of this workspace. `tests` may import anything.
const FLOORS: &[(&str, &[&str])] = &[
    ("expfam", &[]),
    ("accounting", &[]),
    ("verifier", &[]),
    ("calculator", &["accounting"]),
    ("privacy", &["accounting"]),
    ("numerics", &["expfam", "accounting", "privacy"]),
    ("schema", &[]),
    ("records", &["privacy", "schema"]),
    ("models", &["expfam", "accounting", "privacy", "numerics", "schema"]),
    ("posterior", &["expfam", "accounting", "privacy", "numerics", "schema", "models"]),
    ("reading", &["expfam", "accounting", "privacy", "numerics", "schema", "models", "posterior", "verifier"]),
    ("forecast", &["expfam", "accounting", "privacy", "posterior", "reading"]),
    ("account", &["accounting", "posterior", "forecast", "verifier"]),
    ("inference", &["expfam", "accounting", "privacy", "models", "posterior", "reading", "records"]),
    ("data", &["privacy", "records", "schema"]),
    ("secagg", &["accounting", "privacy"]),
    ("protocol", &["expfam", "accounting", "privacy", "posterior", "reading", "secagg"]),
    ("report", &["accounting", "posterior", "reading", "forecast", "privacy", "protocol"]),
    ("proto", &["protocol", "expfam", "privacy", "secagg"]),
    ("simulator", &["accounting", "privacy", "posterior", "reading", "protocol", "secagg"]),
    (
        "simulation",
        &[
            "account",
            "forecast",
            "expfam",
            "accounting",
            "privacy",
            "posterior",
            "reading",
            "inference",
            "data",
            "protocol",
            "secagg",
            "simulator",
        ],
    ),
    (
        "server",
        &["account", "forecast", "proto", "protocol", "expfam", "posterior", "reading", "accounting", "privacy", "report", "secagg"],
    ),
    (
        "client",
        &["proto", "protocol", "expfam", "posterior", "reading", "forecast", "accounting", "privacy", "inference", "data", "secagg"],
    ),
];

/// Crates that touch records, or that records' statistics pass through: they can neither log nor send. (One of them writes a file, the
/// ledger: `sources.rs` says where.)
const PURE: &[&str] = &[
    "expfam",
    "accounting",
    "privacy",
    "numerics",
    "schema",
    "records",
    "models",
    "posterior",
    "reading",
    "forecast",
    "inference",
    "data",
    "secagg",
];

/// Runtimes, networks and loggers that no pure crate may reach through any chain of normal dependencies.
const EFFECTS: &[&str] = &[
    "tokio",
    "tonic",
    "tracing",
    "tracing-core",
    "log4rs",
    "env_logger",
    "async-std",
    "smol",
    "hyper",
    "reqwest",
    "mio",
    "socket2",
    "ureq",
];

struct Graph {
    metadata: Metadata,
}

impl Graph {
    /// Of this machine's platform: what is compiled here. (Licences are checked for every platform.)
    fn load() -> Self {
        let host = format!("--filter-platform={}", host());
        let metadata = MetadataCommand::new()
            .manifest_path(root().join("Cargo.toml"))
            .other_options(["--locked".to_owned(), host])
            .exec()
            .expect("cargo metadata runs in this workspace");
        Self { metadata }
    }

    fn id(&self, name: &str) -> &PackageId {
        &self.metadata.packages.iter().find(|p| p.name.as_str() == name).unwrap_or_else(|| panic!("no package {name}")).id
    }

    /// Names of direct normal and build dependencies.
    fn direct(&self, name: &str, kinds: &[DependencyKind]) -> BTreeSet<String> {
        let package = self.metadata.packages.iter().find(|p| p.name.as_str() == name).unwrap();
        package.dependencies.iter().filter(|d| kinds.contains(&d.kind)).map(|d| d.name.clone()).collect()
    }

    /// Everything reachable through normal dependencies, with one chain that leads there.
    fn reachable(&self, name: &str) -> BTreeMap<String, String> {
        self.reachable_past(name, &[])
    }

    /// The same without what only these packages reach.
    fn reachable_past(&self, name: &str, stops: &[&str]) -> BTreeMap<String, String> {
        let resolve = self.metadata.resolve.as_ref().expect("metadata with a resolve graph");
        let mut chains = BTreeMap::new();
        let mut queue = vec![(self.id(name), name.to_owned())];
        while let Some((id, chain)) = queue.pop() {
            let node = resolve.nodes.iter().find(|n| n.id == *id).unwrap();
            for dependency in node.deps.iter().filter(|d| d.dep_kinds.iter().any(|k| k.kind == DependencyKind::Normal)) {
                let name = self.metadata[&dependency.pkg].name.to_string();
                if stops.contains(&name.as_str()) {
                    continue;
                }
                if let Entry::Vacant(entry) = chains.entry(name) {
                    let chain = format!("{chain} -> {}", entry.key());
                    entry.insert(chain.clone());
                    queue.push((&dependency.pkg, chain));
                }
            }
        }
        chains
    }
}

fn host() -> String {
    let output = std::process::Command::new(std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into())).arg("-vV").output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    text.lines().find_map(|l| l.strip_prefix("host: ")).expect("rustc -vV names its host").to_owned()
}

fn crate_name(floor: &str) -> String {
    format!("dp-pvi-{floor}")
}

#[test]
fn every_crate_imports_only_what_its_floor_may() {
    let graph = Graph::load();
    for (floor, allowed) in FLOORS {
        let direct = graph.direct(&crate_name(floor), &[DependencyKind::Normal, DependencyKind::Build]);
        for dependency in direct.iter().filter_map(|d| d.strip_prefix("dp-pvi-")) {
            assert!(allowed.contains(&dependency), "{floor} may not import {dependency}; it may import {allowed:?}");
        }
    }
}

#[test]
fn every_workspace_crate_has_a_floor() {
    let graph = Graph::load();
    let members: BTreeSet<_> =
        graph.metadata.workspace_packages().iter().map(|p| p.name.trim_start_matches("dp-pvi-").to_owned()).collect();
    let known: BTreeSet<_> = FLOORS.iter().map(|(f, _)| (*f).to_owned()).chain(["tests".to_owned()]).collect();
    assert_eq!(members, known, "a new crate needs a row in FLOORS");
}

#[test]
fn invariant_1_what_touches_records_can_neither_log_nor_send() {
    let graph = Graph::load();
    for floor in PURE {
        let reachable = graph.reachable(&crate_name(floor));
        for effect in EFFECTS {
            assert!(!reachable.contains_key(*effect), "{floor} reaches {effect}: {}", reachable[*effect]);
        }
    }
}

/// Dependencies whose crate no source file of its own names: generated code does, and the guest model of the tests, a file that is included.
const UNNAMED: &[(&str, &str)] =
    &[("dp-pvi-proto", "tonic-prost"), ("dp-pvi-inference", "dp-pvi-schema"), ("dp-pvi-inference", "dp-pvi-numerics")];

#[test]
fn every_dependency_is_used() {
    let graph = Graph::load();
    let mut named = BTreeSet::new();
    for package in graph.metadata.workspace_packages() {
        let folder = package.manifest_path.parent().unwrap().as_std_path().strip_prefix(root()).unwrap().to_str().unwrap().to_owned();
        let sources = everything(&root(), &[&folder]);
        for dependency in &package.dependencies {
            named.insert(dependency.name.clone());
            let crate_name = dependency.rename.as_ref().unwrap_or(&dependency.name).replace('-', "_");
            let used = |source: &Source| -> bool {
                // In code: comments and texts are blanks there, and so is what follows a longer name.
                let code = scrub(&source.text);
                code.match_indices(&crate_name).any(|(at, _)| {
                    let word = |c: Option<char>| c.is_some_and(|c| c.is_alphanumeric() || c == '_');
                    !word(code[..at].chars().next_back()) && !word(code[at + crate_name.len()..].chars().next())
                })
            };
            let places: Vec<_> = match dependency.kind {
                // The tests' own crate is made of tests.
                DependencyKind::Normal if folder != "tests" => sources.iter().filter(|s| s.path.contains("/src/")).collect(),
                _ => sources.iter().collect(),
            };
            let exempt = UNNAMED.contains(&(package.name.as_str(), dependency.name.as_str()));
            assert!(exempt || places.into_iter().any(used), "{} depends on {} and does not name it", package.name, dependency.name);
        }
    }
    let workspace = std::fs::read_to_string(root().join("Cargo.toml")).unwrap();
    let table = workspace.split("[workspace.dependencies]\n").nth(1).expect("a table of dependencies").split("\n[").next().unwrap();
    let idle: Vec<_> = table.lines().filter_map(|l| l.split_once(" = ")).map(|(name, _)| name).filter(|n| !named.contains(*n)).collect();
    assert!(idle.is_empty(), "no crate asks for these dependencies of the workspace: {idle:?}");
}

/// The audit's faults to order are compiled for its own test only: nothing in the workspace asks for them, not even for tests of other crates.
#[test]
fn no_program_has_the_planted_bugs() {
    let graph = Graph::load();
    let resolve = graph.metadata.resolve.as_ref().expect("metadata with a resolve graph");
    for name in ["dp-pvi-privacy", "dp-pvi-simulation"] {
        let id = graph.id(name);
        assert!(graph.metadata[id].features.contains_key("planted-bugs"), "{name} has no such feature any more");
        let node = resolve.nodes.iter().find(|node| node.id == *id).unwrap();
        assert!(
            node.features.iter().all(|feature| AsRef::<str>::as_ref(feature) != "planted-bugs"),
            "something enables planted-bugs of {name}"
        );
    }
}

#[test]
fn invariant_2_the_server_cannot_touch_a_record() {
    let reachable = Graph::load().reachable("dp-pvi-server");
    for forbidden in ["dp-pvi-inference", "dp-pvi-records", "dp-pvi-data", "dp-pvi-simulator", "dp-pvi-simulation", "dp-pvi-client"] {
        assert!(!reachable.contains_key(forbidden), "the server reaches {forbidden}: {}", reachable[forbidden]);
    }
}

#[test]
fn invariant_3_the_client_cannot_name_the_seeded_noise_source() {
    let reachable = Graph::load().reachable("dp-pvi-client");
    for forbidden in ["dp-pvi-simulator", "dp-pvi-simulation"] {
        assert!(!reachable.contains_key(forbidden), "the client reaches {}", reachable[forbidden]);
    }
}

#[test]
fn invariant_4_only_proto_knows_protobuf() {
    let graph = Graph::load();
    for (floor, _) in FLOORS.iter().filter(|(f, _)| *f != "proto") {
        let direct = graph.direct(&crate_name(floor), &[DependencyKind::Normal, DependencyKind::Build, DependencyKind::Development]);
        for generated in ["prost", "prost-types", "tonic-prost", "tonic-prost-build", "protox", "prost-build"] {
            assert!(!direct.contains(generated), "{floor} depends on {generated}; only proto forms wire messages");
        }
    }
}

/// Invariant 7: what opens the gate for tests is enabled by simulation and tests alone. Manifests are asked, because a build of the whole workspace
/// enables the feature for everybody in it.
#[test]
fn finding_gate_4_no_shipped_program_enables_the_feature_for_tests() {
    let graph = Graph::load();
    for program in ["server", "client"] {
        let mut crates: BTreeSet<String> = graph.reachable(&crate_name(program)).into_keys().filter(|n| n.starts_with("dp-pvi-")).collect();
        crates.insert(crate_name(program));
        assert!(crates.contains("dp-pvi-privacy"));
        for name in &crates {
            let package = graph.metadata.packages.iter().find(|p| p.name.as_str() == name).unwrap();
            for dependency in package.dependencies.iter().filter(|d| d.name == "dp-pvi-privacy" && d.kind != DependencyKind::Development) {
                let features = &dependency.features;
                assert!(features.is_empty(), "{name}, of which {program} is made, enables {features:?} of dp-pvi-privacy");
            }
            for (feature, enables) in &package.features {
                let own = name == "dp-pvi-privacy" && feature != "default";
                assert!(own || !enables.iter().any(|e| e.contains("unsealed")), "feature {feature} of {name} opens the gate");
            }
        }
    }
    // By the resolver, too, as for a build of one program.
    for program in ["dp-pvi-server", "dp-pvi-client"] {
        let output = std::process::Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()))
            .args([
                "tree",
                "--locked",
                "--offline",
                "-e",
                "normal,build",
                "-p",
                program,
                "-i",
                "dp-pvi-privacy",
                "--depth",
                "0",
                "-f",
                "{p} [{f}]",
            ])
            .current_dir(root())
            .output()
            .unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        assert!(
            text.contains("dp-pvi-privacy") && !text.contains("unsealed"),
            "{program}: {text}{}",
            String::from_utf8_lossy(&output.stderr)
        );
    }
}

/// Cargo unites the features of all packages of one command. So the programs of the images come from a command without the simulation, and the
/// images hold what that made.
#[test]
fn what_a_site_runs_is_built_apart_from_the_simulation() {
    let read = |file: &str| std::fs::read_to_string(root().join(file)).unwrap();
    let commands = |text: &str| -> Vec<String> {
        text.lines().filter(|line| !line.starts_with('#') && line.contains("cargo build")).map(str::to_owned).collect()
    };
    let built = commands(&read("deploy/build-programs.sh"));
    assert_eq!(built.len(), 2, "{built:?}");
    assert!(built[0].contains("-p dp-pvi-client -p dp-pvi-server ") && !built[0].contains("simulation"), "{built:?}");
    assert!(built[1].contains("-p dp-pvi-simulation ") && built[1].matches("-p ").count() == 1, "{built:?}");
    assert!(built.iter().all(|command| !command.contains("--workspace")), "{built:?}");
    let image = read("deploy/Dockerfile");
    assert!(commands(&image).is_empty() && image.contains("RUN deploy/build-programs.sh"), "the image is built by another command");
    assert!(read(".dockerignore").contains("!deploy/build-programs.sh"));
    assert!(read("deploy/compose-test.sh").contains("./build-programs.sh"));
}

/// T4.4, dependency half: nothing but the operating system can feed noise in the client.
#[test]
fn t4_4_no_random_generator_with_a_seed_is_reachable_from_the_client() {
    let graph = Graph::load();
    // A database's driver draws the nonces of its own protocol, and temporary files get names. No crate of ours can name these generators: they are no
    // dependencies of theirs.
    let reachable = graph.reachable_past("dp-pvi-client", &["tokio-postgres", "tokio-postgres-rustls", "tempfile"]);
    // chacha20 is the secure source's own cipher, and that of masks; where it is keyed is checked over the sources (`sources.rs`).
    for generator in ["rand", "rand_distr", "rand_pcg", "rand_chacha", "rand_xoshiro", "fastrand", "oorandom", "nanorand"] {
        assert!(!reachable.contains_key(generator), "the client reaches {generator}: {}", reachable[generator]);
    }
    for (floor, _) in FLOORS.iter().filter(|(f, _)| !["privacy", "secagg", "simulator", "simulation"].contains(f)) {
        assert!(!graph.direct(&crate_name(floor), &[DependencyKind::Normal]).contains("chacha20"), "{floor} names chacha20");
    }
}
