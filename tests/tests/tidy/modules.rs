//! Modules: a model and a method have one name and a folder of it, and modules import in one direction.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;

use dp_pvi_models as models;
use dp_pvi_posterior::methods;
use dp_pvi_tests::place::root;
use dp_pvi_tests::source::{Source, production};

/// The sources of every crate.
fn crates() -> Vec<String> {
    let common = fs::read_dir(root().join("common")).unwrap().flatten().map(|e| format!("common/{}/src", e.file_name().to_str().unwrap()));
    let mut crates: Vec<_> = common.chain(["proto/src", "server/src", "client/src"].map(str::to_owned)).collect();
    crates.sort();
    crates
}

/// Modules of models and of methods: the public place, and that of what touches records.
const PLACES: &[(&str, &str)] =
    &[("common/models/src", "common/inference/src/models"), ("common/posterior/src/methods", "common/inference/src/methods")];

/// Methods that share an engine where records are: the engine's folder, which no task names, has all that they compute.
const ENGINES: &[(&str, &[&str])] =
    &[("propagation", &["sep", "ep"]), ("shards", &["parameter-perturbation", "local-averaging", "virtual-clients", "client-level"])];

/// Folders below `place` that hold a module.
fn folders(place: &str) -> BTreeSet<String> {
    let entries = fs::read_dir(root().join(place)).unwrap().flatten();
    entries.filter(|e| e.path().join("mod.rs").is_file()).map(|e| e.file_name().into_string().unwrap()).collect()
}

/// Models that sum records by themselves: all others say their likelihood, and have no module where records are.
const OWN: &[&str] = &["gaussian-mixture", "latent-dirichlet", "neural-network", "pbp-network", "sigmoid-belief"];

#[test]
fn a_likelihood_has_one_room_and_a_method_its_own_or_that_of_its_engine_where_records_are() {
    let models: Vec<&str> = models::registered().map(|(name, _)| name).collect();
    let methods: Vec<&str> = methods::registered().map(|(name, _)| name).chain(ENGINES.iter().map(|(engine, _)| *engine)).collect();
    let shared: Vec<&str> = ENGINES.iter().flat_map(|(_, methods)| methods.iter().copied()).collect();
    assert!(shared.iter().all(|name| methods.contains(name)), "{shared:?}");
    let modules: Vec<&str> = methods.iter().copied().filter(|name| !shared.contains(name)).collect();
    for ((public, private), (names, own)) in PLACES.iter().zip([(&models, OWN), (&methods, &modules[..])]) {
        let folders_of = |names: &[&str]| -> BTreeSet<String> { names.iter().map(|name| name.replace('-', "_")).collect() };
        assert_eq!(folders(private), folders_of(own), "folders of {private}");
        let (named, offered) = (folders_of(names), folders(public));
        let missing: Vec<_> = named.difference(&offered).collect();
        assert!(missing.is_empty(), "{public} has no module for {missing:?}");
    }
}

/// Files that may name every module of a kind: the registries, and the catalogue.
const REGISTRIES: [&[&str]; 2] = [
    &[
        "common/models/src/lib.rs",
        "common/inference/src/models/mod.rs",
        "common/catalogue/src/models.rs",
        "common/catalogue/src/updates.rs",
    ],
    &[
        "common/posterior/src/methods/mod.rs",
        "common/posterior/src/task/mod.rs",
        "common/inference/src/methods/mod.rs",
        "common/catalogue/src/models.rs",
        "common/catalogue/src/served.rs",
        "common/catalogue/src/updates.rs",
    ],
];

/// Other files of production code that name a module: methods whose public mathematics is that of one model, sentences that list who offers a
/// capability, and injected faults. The list only becomes shorter: a line that no longer holds fails as well.
const NAMED_ELSEWHERE: &[(&str, &[&str])] = &[
    (
        "logistic-regression",
        &[
            "common/posterior/src/methods/dp_optimisation/balance.rs",
            "common/posterior/src/methods/natural_gradient/task.rs",
            "common/posterior/src/methods/propagation/task.rs",
            "common/posterior/src/methods/vips/task/logistic.rs",
            "common/posterior/src/methods/vips/task.rs",
        ],
    ),
    (
        "probit-regression",
        &[
            "common/posterior/src/methods/dp_optimisation/balance.rs",
            "common/posterior/src/methods/natural_gradient/task.rs",
            "common/posterior/src/methods/propagation/task.rs",
        ],
    ),
    (
        "linear-regression",
        &[
            "common/inference/src/capabilities/statistics/linear_noise.rs",
            "common/posterior/src/methods/vips/rule/linear.rs",
            "common/posterior/src/methods/vips/task/linear.rs",
            "common/posterior/src/methods/vips/task.rs",
            "common/simulation/src/audit/injected.rs",
            "common/simulation/src/audit/scenes.rs",
        ],
    ),
    (
        "pbp-network",
        &[
            "common/inference/src/capabilities/tilted.rs",
            "common/posterior/src/methods/propagation/rule.rs",
            "common/posterior/src/methods/propagation/task.rs",
        ],
    ),
    (
        "gaussian-mixture",
        &[
            "common/inference/src/methods/dp_em/mod.rs",
            "common/posterior/src/methods/dp_em/rule.rs",
            "common/posterior/src/methods/dp_em/task.rs",
            "common/posterior/src/methods/propagation/rule.rs",
            "common/posterior/src/methods/propagation/task.rs",
            "common/simulation/src/audit/scenes.rs",
        ],
    ),
    (
        "latent-dirichlet",
        &[
            "common/inference/src/methods/vips/mod.rs",
            "common/posterior/src/methods/vips/rule/documents.rs",
            "common/posterior/src/methods/vips/rule.rs",
            "common/posterior/src/methods/vips/task.rs",
        ],
    ),
    (
        "sigmoid-belief",
        &[
            "common/inference/src/methods/vips/mod.rs",
            "common/posterior/src/methods/vips/rule/images.rs",
            "common/posterior/src/methods/vips/task/images.rs",
            "common/posterior/src/methods/vips/task.rs",
            "common/simulation/src/audit/injected.rs",
        ],
    ),
    (
        "natural-gradient",
        &["common/inference/src/methods/partial_sums.rs", "common/posterior/src/task/check.rs", "common/simulation/src/audit/injected.rs"],
    ),
    (
        "dp-optimisation",
        &[
            "common/inference/src/methods/bcm/mod.rs",
            "common/posterior/src/methods/bcm/task.rs",
            "common/posterior/src/methods/pvi/task.rs",
            "common/posterior/src/task/check.rs",
            "common/simulation/src/audit/premise.rs",
        ],
    ),
    ("virtual-clients", &["common/simulation/src/audit/injected.rs"]),
    ("local-averaging", &["common/posterior/src/methods/shards/task.rs", "common/simulation/src/audit/injected.rs"]),
    ("client-level", &["common/posterior/src/task/check.rs"]),
    ("sep", &["common/posterior/src/methods/propagation/task.rs", "common/posterior/src/task/check.rs"]),
    ("ep", &["common/posterior/src/methods/propagation/task.rs", "common/posterior/src/task/check.rs"]),
    ("global-vi", &["common/simulation/src/audit/premise.rs"]),
    (
        "pvi",
        &[
            "common/posterior/src/methods/dp_optimisation/rule.rs",
            "common/posterior/src/task/check.rs",
            "common/posterior/src/task/raw.rs",
            "common/simulation/src/experiment/config.rs",
        ],
    ),
];

/// Whether a file names a module: its folder as a module, or its name in a text, comments aside.
fn names_room(source: &Source, name: &str) -> bool {
    let module = name.replace('-', "_");
    let whole = |text: &str, needle: &str| {
        let part = |c: Option<char>| c.is_some_and(|c| c.is_ascii_alphanumeric() || c == '_' || c == '-');
        text.match_indices(needle).any(|(at, _)| !part(text[..at].chars().next_back()) && !part(text[at + needle.len()..].chars().next()))
    };
    let in_code = source.code.lines().any(|line| whole(line, &format!("{module}::")) || whole(line, &module) && line.contains("use "));
    let in_text = source.code.lines().zip(source.text.lines()).any(|(code, text)| {
        // A comment leaves nothing of its line; a string leaves its quotes.
        let quoted = code.contains('"') && whole(text, name);
        quoted && (name.contains('-') || text.contains(&format!("\"{name}\"")) || text.contains(&format!("\"{name}\\\"")))
    });
    in_code || in_text
}

/// Adding a model is one folder and a line in the registry, adding a method two folders and a line in each registry.
#[test]
fn rooms_are_named_by_the_registries_and_few_others() {
    let sources = production(&root(), &["common", "proto", "server", "client"]);
    let kinds: [(Vec<&str>, _); 2] = [
        (models::registered().map(|(name, _)| name).collect(), "model"),
        (methods::registered().map(|(name, _)| name).collect(), "method"),
    ];
    let mut wrong = Vec::new();
    for (((names, kind), (public, private)), registries) in kinds.iter().zip(PLACES).zip(REGISTRIES) {
        for name in names {
            let own = [public, private].map(|place| format!("{place}/{}/", name.replace('-', "_")));
            let outside = sources.iter().filter(|s| !own.iter().any(|own| s.path.starts_with(own.as_str())) && names_room(s, name));
            let others: Vec<&str> = outside.map(|s| s.path.as_str()).filter(|path| !registries.contains(path)).collect();
            eprintln!("{kind} {name}: {} beside the registries; {}", others.len(), others.join(" "));
            let stated = NAMED_ELSEWHERE.iter().find(|(module, _)| module == name).map_or(&[][..], |(_, paths)| *paths);
            if others != stated {
                wrong.push(format!("    (\"{name}\", &{others:?}),"));
            }
        }
    }
    assert!(wrong.is_empty(), "NAMED_ELSEWHERE should say:\n{}", wrong.join("\n"));
}

/// A module's first lines say what it computes, and they fit on a page.
#[test]
fn every_room_has_a_page() {
    for (public, private) in PLACES {
        for place in [public, private] {
            for module in folders(place) {
                let path = format!("{place}/{module}/mod.rs");
                let text = fs::read_to_string(root().join(&path)).unwrap();
                let page = text.lines().take_while(|line| line.starts_with("//!")).count();
                assert!((1..=50).contains(&page), "{path} begins with {page} lines of documentation: 1 to 50 are a page");
            }
        }
    }
}

/// The module of a file: its place below `src`, without `mod.rs`.
fn module(house: &str, path: &str) -> Vec<String> {
    let path = path.strip_prefix(house).unwrap().trim_start_matches('/').trim_end_matches(".rs");
    path.split('/').filter(|part| !["mod", "lib"].contains(part)).map(str::to_owned).collect()
}

/// Modules that a file names by `crate::` or `super::`, as far down as there are modules.
fn named(source: &Source, from: &[String], modules: &BTreeSet<Vec<String>>) -> BTreeSet<Vec<String>> {
    let mut found = BTreeSet::new();
    for (at, start) in source.code.match_indices("crate::") {
        follow(&source.code[at + start.len()..], Vec::new(), modules, &mut found);
    }
    // One `super` leads from a file to the module that declares it.
    for (at, start) in source.code.match_indices("super::") {
        let inner = source.code[..at].ends_with("super::") || source.code[at + start.len()..].starts_with("super::");
        if let (false, Some((_, parent))) = (inner, from.split_last()) {
            follow(&source.code[at + start.len()..], parent.to_vec(), modules, &mut found);
        }
    }
    found
}

/// Adds what a path names that goes on with `rest` after the module `path`, every part of a group by itself.
fn follow(rest: &str, mut path: Vec<String>, modules: &BTreeSet<Vec<String>>, found: &mut BTreeSet<Vec<String>>) {
    if let Some(group) = rest.strip_prefix('{') {
        let mut depth = 0;
        let mut start = Some(0);
        for (at, c) in group.char_indices() {
            if let (Some(from), 0) = (start, depth)
                && matches!(c, ',' | '}')
            {
                follow(group[from..at].trim_start(), path.clone(), modules, found);
                start = Some(at + 1);
            }
            match c {
                '{' => depth += 1,
                '}' if depth == 0 => return,
                '}' => depth -= 1,
                _ => {}
            }
        }
        return;
    }
    let end = rest.find(|c: char| !(c.is_ascii_alphanumeric() || c == '_')).unwrap_or(rest.len());
    path.push(rest[..end].to_owned());
    if !modules.contains(&path) {
        path.pop();
        if !path.is_empty() {
            found.insert(path);
        }
        return;
    }
    match rest[end..].strip_prefix("::") {
        Some(after) => follow(after, path, modules, found),
        None => {
            found.insert(path);
        }
    }
}

/// A circle among modules of one level: siblings and what is below them count as one. `None` where there is none.
fn circle(edges: &BTreeMap<String, BTreeSet<String>>) -> Option<Vec<String>> {
    fn walk<'a>(at: &'a str, edges: &'a BTreeMap<String, BTreeSet<String>>, path: &mut Vec<&'a str>) -> Option<Vec<String>> {
        if let Some(start) = path.iter().position(|p| *p == at) {
            return Some(path[start..].iter().map(|p| (*p).to_owned()).collect());
        }
        path.push(at);
        let found = edges.get(at).into_iter().flatten().find_map(|next| walk(next, edges, path));
        path.pop();
        found
    }
    edges.keys().find_map(|start| walk(start, edges, &mut Vec::new()))
}

#[test]
fn paths_are_followed_into_groups() {
    let module = |path: &str| path.split("::").map(str::to_owned).collect::<Vec<_>>();
    let modules = BTreeSet::from(["a", "a::b", "a::c", "a::c::d", "e"].map(module));
    let source = |code: &str| Source { path: String::new(), text: String::new(), code: code.to_owned() };
    let named = |code: &str| named(&source(code), &module("a::b"), &modules);
    assert_eq!(named("use crate::a::{b::X, c::{d::Y, Z}}; use crate::e;"), BTreeSet::from(["a::b", "a::c::d", "a::c", "e"].map(module)));
    assert_eq!(named("use super::c::d;"), BTreeSet::from(["a::c::d"].map(module)));
}

#[test]
fn a_circle_is_seen() {
    let edges = |pairs: &[(&str, &str)]| {
        let mut edges: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
        pairs.iter().for_each(|(a, b)| {
            edges.entry((*a).to_owned()).or_default().insert((*b).to_owned());
        });
        edges
    };
    assert_eq!(circle(&edges(&[("a", "b"), ("b", "c"), ("a", "c")])), None);
    assert!(circle(&edges(&[("a", "b"), ("b", "c"), ("c", "b")])).is_some());
}

/// Imports that close a circle, and stay: who is imported by whom, below which module, and why.
const CIRCLES: &[(&str, &str, &str, &str)] = &[
    // A mechanism takes a permit of the ledger, and a table of units brings a release into the bound of its mechanism.
    ("common/privacy/src", "", "records", "mechanism"),
    // A table says what its units are grouped into, and grouping takes a table.
    ("common/privacy/src", "", "records", "shards"),
    // Units may be with executors, who sum them by the form of a mechanism.
    ("common/privacy/src", "", "records", "partial_sums"),
    ("common/privacy/src", "", "stored", "partial_sums"),
    // A mechanism asks executors for its sum, and they sum by its form.
    ("common/privacy/src", "", "mechanism", "partial_sums"),
    // The ledger keeps the masked part of a visit, and a mechanism takes a permit of the ledger.
    ("common/privacy/src", "", "ledger", "mechanism"),
    // What is stored is signed, and the store takes what is signed.
    ("common/privacy/src", "ledger", "row", "store"),
    // What a server presents is loaded with the moment at which it ends, and refused once that has passed.
    ("server/src", "", "expiry", "tls"),
    // A sum is told what its coordinator expects, and the coordinator closes sums.
    ("common/protocol/src", "", "sum", "coordinator"),
    // One table holds the bounds of every message, and every message is compared with it where it is decoded.
    ("common/protocol/src", "", "bounds", "message"),
    // What sites released is a history with vectors, and a site's part of the measurements of the likelihood is compared with the others'.
    ("common/posterior/src", "methods", "agreement", "noise_aware"),
    // What is left without a site is a likelihood with noise, of which the measurements take the site's part.
    ("common/posterior/src", "methods", "divided", "noise_aware"),
];

/// Modules of one parent import each other in one direction. A child may import what its parent offers, and a parent its children.
#[test]
fn modules_import_in_one_direction() {
    let (mut circles, mut imports) = (Vec::new(), 0);
    for house in &crates() {
        let sources = production(&root(), &[house]);
        let modules: BTreeSet<Vec<String>> = sources.iter().map(|s| module(house, &s.path)).collect();
        let mut edges: BTreeMap<Vec<String>, BTreeMap<String, BTreeSet<String>>> = BTreeMap::new();
        for source in &sources {
            let from = module(house, &source.path);
            for to in named(source, &from, &modules) {
                let shared = from.iter().zip(&to).take_while(|(a, b)| a == b).count();
                if let (Some(a), Some(b)) = (from.get(shared), to.get(shared)) {
                    edges.entry(from[..shared].to_vec()).or_default().entry(a.clone()).or_default().insert(b.clone());
                }
            }
        }
        for (_, below, from, to) in CIRCLES.iter().filter(|(circle, ..)| circle == house) {
            let below: Vec<_> = below.split("::").filter(|part| !part.is_empty()).map(str::to_owned).collect();
            let known = edges.get_mut(&below).and_then(|edges| edges.get_mut(*from)).is_some_and(|of| of.remove(*to));
            assert!(known, "{house}: {from} does not import {to} any more: take it out of the list");
        }
        imports += edges.values().map(BTreeMap::len).sum::<usize>();
        for (parent, edges) in &edges {
            circles.extend(circle(edges).map(|found| format!("{house}: {}: {}", parent.join("::"), found.join(" -> "))));
        }
    }
    assert!(imports > 100, "{imports} imports between modules were seen");
    assert!(circles.is_empty(), "modules import each other in a circle:\n{}", circles.join("\n"));
}
