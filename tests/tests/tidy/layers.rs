//! Rules over the dependency graph (`cargo metadata`).

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::process::Command;

use dp_pvi_tests::place::root;
use dp_pvi_tests::source::{Source, everything, production, scrub};
use serde::Deserialize;

/// Who may import whom among the crates of this workspace. `tests` may import anything.
const LAYERS: &[(&str, &[&str])] = &[
    ("names", &[]),
    ("math", &[]),
    ("accounting", &[]),
    ("verifier", &[]),
    ("schema", &[]),
    ("unsealed", &[]),
    ("exchange", &["accounting"]),
    ("privacy", &["accounting", "math", "names", "unsealed"]),
    ("models", &["accounting", "math", "names", "schema"]),
    ("records", &["privacy", "schema"]),
    ("secagg", &["accounting", "names", "privacy"]),
    ("posterior", &["accounting", "math", "models", "names", "privacy", "schema"]),
    ("data", &["names", "privacy", "records", "schema"]),
    ("inference", &["accounting", "math", "models", "names", "posterior", "privacy", "records"]),
    ("protocol", &["accounting", "math", "models", "names", "posterior", "privacy", "schema", "secagg"]),
    // For tests and the audit: server and client do not link it.
    ("catalogue", &["accounting", "models", "posterior"]),
    ("describe", &["accounting", "math"]),
    ("description", &["protocol"]),
    ("results", &["accounting", "exchange", "math", "models", "names", "posterior", "privacy", "protocol", "schema", "verifier"]),
    ("programs", &["names", "privacy", "protocol", "unsealed"]),
    ("proto", &["names", "privacy", "programs", "protocol"]),
    (
        "simulation",
        &[
            "catalogue",
            "accounting",
            "data",
            "inference",
            "math",
            "models",
            "names",
            "posterior",
            "privacy",
            "programs",
            "protocol",
            "results",
            "schema",
            "secagg",
            "unsealed",
        ],
    ),
    // Research: nothing imports it.
    (
        "papers",
        &[
            "accounting",
            "data",
            "inference",
            "math",
            "models",
            "names",
            "posterior",
            "privacy",
            "protocol",
            "records",
            "results",
            "schema",
            "simulation",
            "unsealed",
        ],
    ),
    ("server", &["accounting", "models", "names", "posterior", "privacy", "programs", "proto", "protocol", "results", "schema", "secagg"]),
    (
        "client",
        &[
            "accounting",
            "data",
            "description",
            "inference",
            "math",
            "models",
            "names",
            "posterior",
            "privacy",
            "programs",
            "proto",
            "protocol",
            "results",
            "schema",
            "secagg",
        ],
    ),
];

/// Crates that touch records, or that records' statistics pass through: they can neither log nor send.
const PURE: &[&str] = &[
    "names",
    "math",
    "accounting",
    "unsealed",
    "privacy",
    "schema",
    "records",
    "models",
    "posterior",
    "inference",
    "data",
    "secagg",
    "protocol",
    "results",
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

/// What `cargo metadata` prints, as far as it is asked here. (A library for it would give serde_json a feature, and so build it twice.)
#[derive(Deserialize)]
struct Metadata {
    packages: Vec<Package>,
    workspace_members: Vec<String>,
    resolve: Resolve,
}

#[derive(Deserialize)]
struct Package {
    name: String,
    id: String,
    manifest_path: PathBuf,
    dependencies: Vec<Dependency>,
    features: BTreeMap<String, Vec<String>>,
}

#[derive(Deserialize)]
struct Dependency {
    name: String,
    rename: Option<String>,
    kind: Kind,
}

#[derive(Deserialize)]
struct Resolve {
    nodes: Vec<Node>,
}

#[derive(Deserialize)]
struct Node {
    id: String,
    deps: Vec<Edge>,
    features: Vec<String>,
}

#[derive(Deserialize)]
struct Edge {
    pkg: String,
    dep_kinds: Vec<EdgeKind>,
}

#[derive(Deserialize)]
struct EdgeKind {
    kind: Kind,
}

/// Of a dependency: null, "build" or "dev".
#[derive(Deserialize, Clone, Copy, PartialEq, Eq)]
#[serde(from = "Option<String>")]
enum Kind {
    Normal,
    Build,
    Development,
}

impl From<Option<String>> for Kind {
    fn from(kind: Option<String>) -> Self {
        match kind.as_deref() {
            None => Self::Normal,
            Some("build") => Self::Build,
            Some(_) => Self::Development,
        }
    }
}

struct Graph {
    metadata: Metadata,
}

impl Graph {
    /// Of this machine's platform: what is compiled here.
    fn load() -> Self {
        let output = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()))
            .args(["metadata", "--locked", "--format-version", "1", &format!("--filter-platform={}", host())])
            .current_dir(root())
            .output()
            .unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        Self { metadata: serde_json::from_slice(&output.stdout).unwrap() }
    }

    fn package(&self, name: &str) -> &Package {
        self.metadata.packages.iter().find(|p| p.name == name).unwrap_or_else(|| panic!("no package {name}"))
    }

    fn members(&self) -> impl Iterator<Item = &Package> {
        self.metadata.packages.iter().filter(|package| self.metadata.workspace_members.contains(&package.id))
    }

    fn node(&self, id: &str) -> &Node {
        self.metadata.resolve.nodes.iter().find(|node| node.id == id).unwrap()
    }

    /// Names of direct normal and build dependencies.
    fn direct(&self, name: &str, kinds: &[Kind]) -> BTreeSet<String> {
        self.package(name).dependencies.iter().filter(|d| kinds.contains(&d.kind)).map(|d| d.name.clone()).collect()
    }

    /// Everything reachable through normal dependencies, with one chain that leads there.
    fn reachable(&self, name: &str) -> BTreeMap<String, String> {
        self.reachable_past(name, &[])
    }

    /// The same without what only these packages reach.
    fn reachable_past(&self, name: &str, stops: &[&str]) -> BTreeMap<String, String> {
        let mut chains = BTreeMap::new();
        let mut queue = vec![(self.package(name).id.as_str(), name.to_owned())];
        while let Some((id, chain)) = queue.pop() {
            for dependency in self.node(id).deps.iter().filter(|d| d.dep_kinds.iter().any(|k| k.kind == Kind::Normal)) {
                let name = self.metadata.packages.iter().find(|p| p.id == dependency.pkg).unwrap().name.clone();
                if stops.contains(&name.as_str()) {
                    continue;
                }
                if let Entry::Vacant(entry) = chains.entry(name) {
                    let chain = format!("{chain} -> {}", entry.key());
                    entry.insert(chain.clone());
                    queue.push((dependency.pkg.as_str(), chain));
                }
            }
        }
        chains
    }
}

fn host() -> String {
    let output = Command::new(std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into())).arg("-vV").output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    text.lines().find_map(|l| l.strip_prefix("host: ")).expect("rustc -vV names its host").to_owned()
}

fn crate_name(layer: &str) -> String {
    format!("dp-pvi-{layer}")
}

#[test]
fn every_crate_imports_only_what_its_floor_may() {
    let graph = Graph::load();
    for (layer, allowed) in LAYERS {
        let direct = graph.direct(&crate_name(layer), &[Kind::Normal, Kind::Build]);
        for dependency in direct.iter().filter_map(|d| d.strip_prefix("dp-pvi-")) {
            assert!(allowed.contains(&dependency), "{layer} may not import {dependency}; it may import {allowed:?}");
        }
    }
}

#[test]
fn every_workspace_crate_has_a_floor() {
    let graph = Graph::load();
    let members: BTreeSet<_> = graph.members().map(|p| p.name.trim_start_matches("dp-pvi-").to_owned()).collect();
    let known: BTreeSet<_> = LAYERS.iter().map(|(f, _)| (*f).to_owned()).chain(["tests".to_owned()]).collect();
    assert_eq!(members, known, "a new crate needs a row in LAYERS");
}

#[test]
fn what_touches_records_can_neither_log_nor_send() {
    let graph = Graph::load();
    for layer in PURE {
        let reachable = graph.reachable(&crate_name(layer));
        for effect in EFFECTS {
            assert!(!reachable.contains_key(*effect), "{layer} reaches {effect}: {}", reachable[*effect]);
        }
    }
}

/// Dependencies whose crate no source file of its own names: generated code does, and the guest model of the tests, a file that is included.
const UNNAMED: &[(&str, &str)] = &[("dp-pvi-proto", "tonic-prost"), ("dp-pvi-inference", "dp-pvi-schema")];

#[test]
fn every_dependency_is_used() {
    let graph = Graph::load();
    let (mut named, mut idle) = (BTreeSet::new(), Vec::new());
    for package in graph.members() {
        let folder = package.manifest_path.parent().unwrap().strip_prefix(root()).unwrap().to_str().unwrap().to_owned();
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
                Kind::Normal if folder != "tests" => sources.iter().filter(|s| s.path.contains("/src/")).collect(),
                _ => sources.iter().collect(),
            };
            let exempt = UNNAMED.contains(&(package.name.as_str(), dependency.name.as_str()));
            if !exempt && !places.into_iter().any(used) {
                idle.push(format!("{} depends on {}", package.name, dependency.name));
            }
        }
    }
    assert!(idle.is_empty(), "no source names the dependency: {idle:#?}");
    let workspace = std::fs::read_to_string(root().join("Cargo.toml")).unwrap();
    let table = workspace.split("[workspace.dependencies]\n").nth(1).expect("a table of dependencies").split("\n[").next().unwrap();
    let idle: Vec<_> = table.lines().filter_map(|l| l.split_once(" = ")).map(|(name, _)| name).filter(|n| !named.contains(*n)).collect();
    assert!(idle.is_empty(), "no crate asks for these dependencies of the workspace: {idle:?}");
}

/// The audit's faults to order are compiled for its own test only: nothing in the workspace asks for them, not even for tests of other crates.
#[test]
fn no_program_has_fault_injection() {
    let graph = Graph::load();
    for name in ["dp-pvi-privacy", "dp-pvi-simulation"] {
        let package = graph.package(name);
        assert!(package.features.contains_key("fault-injection"), "{name} has no such feature any more");
        let node = graph.node(&package.id);
        assert!(node.features.iter().all(|feature| feature != "fault-injection"), "something enables fault-injection of {name}");
    }
}

#[test]
fn the_server_cannot_touch_a_record() {
    let reachable = Graph::load().reachable("dp-pvi-server");
    for forbidden in ["dp-pvi-inference", "dp-pvi-records", "dp-pvi-data", "dp-pvi-simulation", "dp-pvi-client"] {
        assert!(!reachable.contains_key(forbidden), "the server reaches {forbidden}: {}", reachable[forbidden]);
    }
}

#[test]
fn the_client_cannot_name_the_seeded_noise_source() {
    let reachable = Graph::load().reachable("dp-pvi-client");
    assert!(!reachable.contains_key("dp-pvi-simulation"), "the client reaches {}", reachable["dp-pvi-simulation"]);
}

#[test]
fn only_proto_knows_protobuf() {
    let graph = Graph::load();
    for (layer, _) in LAYERS.iter().filter(|(f, _)| *f != "proto") {
        let direct = graph.direct(&crate_name(layer), &[Kind::Normal, Kind::Build, Kind::Development]);
        for generated in ["prost", "prost-types", "tonic-prost", "tonic-prost-build", "protox", "prost-build"] {
            assert!(!direct.contains(generated), "{layer} depends on {generated}; only proto forms wire messages");
        }
    }
}

/// Invariant 7: whoever names `dp-pvi-unsealed` can open the gate. In what a site or a coordinator runs, the gate alone does; a crate's tests may.
#[test]
fn no_shipped_program_can_open_the_gate() {
    let graph = Graph::load();
    for program in ["server", "client"] {
        let program = crate_name(program);
        let crates = graph.reachable(&program).into_keys().chain([program.clone()]);
        let mut holders = Vec::new();
        for name in crates.filter(|name| name.starts_with("dp-pvi-")) {
            if graph.direct(&name, &[Kind::Normal, Kind::Build]).contains("dp-pvi-unsealed") {
                holders.push(name);
            }
        }
        assert_eq!(holders, ["dp-pvi-privacy", "dp-pvi-programs"], "of {program}");
    }
    // The ledger's file and the place beside it are sealed, and nothing else there is; the gate cannot be opened from there.
    for source in production(&root(), &["common/programs/src"]) {
        let sealed = source.lines_with("dp_pvi_unsealed");
        let ours = [
            "impl dp_pvi_unsealed::Sealed for SqliteLedger {}",
            "impl dp_pvi_unsealed::Sealed for RollbackGuard {}",
            "impl dp_pvi_unsealed::Sealed for ViewStore {}",
        ];
        assert!(sealed.iter().all(|line| ours.iter().any(|own| line.ends_with(own))), "{sealed:?}");
    }
    // Neither hands it on: no name is exported again.
    for source in everything(&root(), &["common/privacy/src", "common/programs/src"]) {
        let handed_on = source.text.lines().any(|line| line.trim_start().starts_with("pub use") && line.contains("nsealed"));
        assert!(!handed_on && !source.text.contains("extern crate dp_pvi_unsealed"), "{} exports the seal", source.path);
    }
}

/// Features of the workspace's own crates are the injected faults, and sources of records that a build can leave out: what is tested is what is built for use.
#[test]
fn no_feature_changes_what_the_programs_are() {
    let graph = Graph::load();
    for package in graph.members() {
        let features: Vec<&str> = package.features.keys().map(String::as_str).collect();
        let known: &[&str] = match package.name.as_str() {
            "dp-pvi-client" => &["default", "parquet", "postgres"],
            "dp-pvi-data" => &["default", "parquet"],
            _ => &["fault-injection"],
        };
        assert!(features.iter().all(|feature| known.contains(feature)), "{} has the features {features:?}", package.name);
    }
}

/// Dependency half: nothing but the operating system can feed noise in the client.
#[test]
fn no_random_generator_with_a_seed_is_reachable_from_the_client() {
    let graph = Graph::load();
    // A database's driver draws the nonces of its own protocol, and temporary files get names. No crate of ours can name these generators: they are no
    // dependencies of theirs.
    let reachable = graph.reachable_past("dp-pvi-client", &["tokio-postgres", "tokio-postgres-rustls", "tempfile"]);
    // chacha20 is the secure source's own cipher, and that of masks; where it is keyed is checked over the sources (`sources.rs`).
    for generator in ["rand", "rand_distr", "rand_pcg", "rand_chacha", "rand_xoshiro", "fastrand", "oorandom", "nanorand"] {
        assert!(!reachable.contains_key(generator), "the client reaches {generator}: {}", reachable[generator]);
    }
    for (layer, _) in LAYERS.iter().filter(|(f, _)| !["privacy", "secagg", "simulation", "papers"].contains(f)) {
        assert!(!graph.direct(&crate_name(layer), &[Kind::Normal]).contains("chacha20"), "{layer} names chacha20");
    }
}
