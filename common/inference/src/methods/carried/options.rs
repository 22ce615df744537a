//! Rows for the options of the updates: sampling, learned clips, metrics, schedules of the budget.
//!
//! Which options there are, the parsers of the updates say; a new one fails here until it is in [`OPTIONS`], with lines that some row takes or
//! with the reason why no sum of a site depends on it.

use std::collections::{BTreeMap, BTreeSet};

use super::*;

/// How an option is tried.
enum Tried {
    /// By each of these lines of `[pvi]`, with every update that takes them.
    With(&'static [&'static str]),
    /// By every row that has it, or a default for it.
    InRows,
    /// Only the server's rule, or a task without protection, knows it.
    NotAtSites(&'static str),
}

use Tried::{InRows, NotAtSites, With};

const OPTIONS: &[(&str, Tried)] = &[
    ("adaptive_clip", With(&["adaptive_clip = { units = 40 }", "adaptive_clip = { units = 40 }\nsampling_rate = 0.3"])),
    ("averaging", NotAtSites("the mean of iterates is taken of released sums")),
    ("batches", With(&["batches = 2\nsteps = 4"])),
    ("block_shares", With(&["block_shares = [0.05, 0.1, 0.15, 0.05, 0.1, 0.55]"])),
    ("budget_growth", With(&["budget_growth = 3.0"])),
    (
        "clip_metric",
        With(&["clip_metric = \"flat\"", "clip_metric = \"flat-half\"", "clip_metric = \"block\"", "clip_metric = \"whitened\""]),
    ),
    ("clip_norm", With(&["clip_norm = 0.05", "clip_norm = 30.0", "clip_norm = 0.3\nclip_metric = \"flat\""])),
    ("clip_norms", With(&["clip_norms = [1.0, 0.2]", "clip_metric = \"block\"\nclip_norms = [1.0, 0.2, 3.0]"])),
    ("clip_rate", With(&["clip_rate = 0.9\ndocuments = 40", "clip_rate = 0.9"])),
    ("clip_target", With(&["clip_target = \"factor\"", "clip_target = 0.5\ndocuments = 40", "clip_target = 0.5"])),
    ("committee_prior", With(&["committee_prior = \"same\"", "committee_prior = \"split\""])),
    ("counts", With(&["counts = \"clamped\""])),
    ("curvature_bound", With(&["curvature_bound = 0.05"])),
    ("curvature_weight", With(&["curvature_weight = 0.3"])),
    ("documents", With(&["documents = 40", "documents = 40\nsampling_rate = 0.5"])),
    ("e_step_sweeps", With(&["e_step_sweeps = 2"])),
    ("eigenvalue_floor", NotAtSites("the server's floor of a released matrix")),
    ("expansion", With(&["expansion = \"origin\"", "expansion = \"centred\""])),
    ("expected_batch", With(&["expected_batch = 12.0\nunits_per_site = 40"])),
    ("first_share", With(&["first_share = 0.6", "first_share = 0.6\nexpansion = \"origin\""])),
    ("gram_share", With(&["gram_share = 0.7"])),
    ("images", InRows),
    ("importances", With(&["importances = [1.0, 20.0]", "importances = [1.0, 20.0, 3.0]"])),
    ("initial_log_scale", With(&["initial_log_scale = -3.0"])),
    ("initial_precision", With(&["initial_precision = 0.5"])),
    ("intervals", NotAtSites("how the end of a run is read")),
    ("learning_rate", With(&["learning_rate = 1.5"])),
    ("learning_rate_decay", With(&["learning_rate_decay = 0.5"])),
    ("level_exponent", With(&["level_exponent = 0.5"])),
    ("max_units", With(&["max_units = 6"])),
    ("measured", With(&["measured = true", "measured = false"])),
    ("noise_shape", With(&["noise_shape = 5.0"])),
    ("optimizer", With(&["optimizer = \"adam\"", "optimizer = \"preconditioned\"", "optimizer = \"positivity-preserving\""])),
    ("order", NotAtSites("records one after the other, without protection only")),
    ("preconditioner", With(&["preconditioner = \"diagonal\""])),
    ("records", InRows),
    ("relevance_rate", With(&["relevance_rate = 2.0\nrelevance_shape = 2.0"])),
    ("relevance_shape", With(&["relevance_rate = 1.0\nrelevance_shape = 3.0"])),
    ("residual_bound", With(&["residual_bound = 0.3"])),
    ("sampling_rate", With(&["sampling_rate = 0.5"])),
    ("shards", With(&["shards = 5"])),
    ("shrinkage", With(&["shrinkage = 9.0"])),
    ("site_passes", With(&["site_passes = 1"])),
    ("start_seed", With(&["start_seed = 9"])),
    ("state", InRows),
    ("step", NotAtSites("the length of the server's step")),
    ("step_precision", With(&["step_precision = 2.0"])),
    ("steps", With(&["steps = 2"])),
    ("units_per_site", With(&["expected_batch = 4.0\nunits_per_site = 40"])),
    ("visit_step", With(&["visit_step = 0.5"])),
    ("weighted", With(&["weighted = true", "weighted = false"])),
];

/// Options that a parser knows for the sake of another update: sites of these have one shard, and messages of `ep` are of all records, as changes.
const OF_OTHERS: [(&str, &str); 4] =
    [("client-level", "shards"), ("ep", "clip_target"), ("ep", "sampling_rate"), ("parameter-perturbation", "shards")];

/// The keys of these lines.
fn keys_of(lines: &str) -> impl Iterator<Item = &str> {
    lines.lines().filter_map(|line| line.split_once('=')).map(|(key, _)| key.trim())
}

/// `[pvi]` with these lines in the place of those with the same keys.
fn with(pvi: &str, lines: &str) -> String {
    // One bound or several: a task has either.
    let same = |key: &str, other: &str| key == other || [key, other].iter().all(|key| ["clip_norm", "clip_norms"].contains(key));
    let others = pvi.lines().filter(|line| keys_of(line).all(|key| !keys_of(lines).any(|other| same(key, other))));
    others.chain(lines.lines()).collect::<Vec<_>>().join("\n")
}

/// Kinds of updates with the options that their parsers take.
fn registry() -> BTreeMap<String, BTreeSet<String>> {
    let mut registry: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for (_, model, pvi, named) in rows().filter(|(.., named)| named.trust == Trust::Local) {
        let pvi = pvi.as_str();
        let taken = registry.entry(text(&json!(named.kind))).or_default();
        if !taken.is_empty() {
            continue;
        }
        let state = named.state.map(|_| FactorState::Tied);
        let Err(error) = resolve(model, &with(pvi, "no_such_key = 1"), Named { state, ..named }) else { panic!("{pvi}") };
        // unknown field `no_such_key`, expected one of `a`, `b`
        let Some((_, expected)) = error.split_once("unknown field `no_such_key`, ") else { continue };
        taken.extend(expected.split('`').skip(1).step_by(2).map(str::to_owned));
        taken.extend(keys_of(pvi).filter(|key| *key == "committee_prior").map(str::to_owned));
    }
    registry
}

/// The options that parsers take are those of the table, and none of its lines is taken by no one.
#[test]
fn every_option_of_an_update_is_tried_or_is_not_at_sites() {
    let registry = registry();
    for kind in kinds() {
        let kind = text(&json!(kind));
        assert!(kind == "pvi" || registry.get(&kind).is_some_and(|keys| !keys.is_empty()), "{kind}: the parser names no options");
    }
    let taken: BTreeSet<&str> = registry.values().flatten().map(String::as_str).collect();
    let known: BTreeSet<&str> = OPTIONS.iter().map(|(key, _)| *key).collect();
    assert_eq!(known.len(), OPTIONS.len(), "an option stands twice");
    assert_eq!(known.difference(&taken).collect::<Vec<_>>(), [] as [&&str; 0], "no update has these options any more");
    assert_eq!(taken.difference(&known).collect::<Vec<_>>(), [] as [&&str; 0], "no row tries these options, and nothing says why");
    let rows = || updates().map(|update| update.options(40));
    for (key, tried) in OPTIONS {
        match tried {
            InRows => assert!(*key == "state" || rows().any(|pvi| keys_of(&pvi).any(|other| other == *key)), "no row has {key}"),
            NotAtSites(why) => assert!(!why.is_empty()),
            With(values) => assert!(values.iter().all(|lines| keys_of(lines).any(|other| other == *key)), "{key}"),
        }
    }
    // Lines that no task may have would try nothing.
    let lines = OPTIONS.iter().flat_map(|(_, tried)| if let With(values) = tried { *values } else { &[] });
    let local = || super::rows().filter(|(.., named)| named.trust == Trust::Local && named.unit != PrivacyUnit::Person);
    let takes = |lines: &str| local().any(|(_, model, pvi, named)| resolve(model, &with(&pvi, lines), named).is_ok());
    assert_eq!(lines.filter(|lines| !takes(lines)).collect::<Vec<_>>(), [] as [&&str; 0], "no row takes these");
    // Every update that has an option is tried with it.
    let mut refused = Vec::new();
    for (kind, keys) in &registry {
        for (key, tried) in OPTIONS.iter().filter(|(key, _)| keys.contains(*key)) {
            let With(values) = tried else { continue };
            let of_kind = || super::rows().filter(|(.., named)| text(&json!(named.kind)) == *kind && named.trust == Trust::Local);
            let takes = |lines: &str| of_kind().any(|(_, model, pvi, named)| resolve(model, &with(&pvi, lines), named).is_ok());
            if !values.iter().any(|lines| takes(lines)) {
                refused.push((kind.as_str(), *key));
            }
        }
    }
    assert_eq!(refused, OF_OTHERS, "no row of the update tries the option");
}

/// The rows of [`rows`] with one option changed, for the first model that takes it of each kind of records, with records and with persons, or with
/// sites, as units, under both relations and both trusts: nothing differs by more than what is charged.
#[test]
fn an_option_of_an_update_in_a_part_of_the_rows_moves_no_sum_by_more_than_is_charged() {
    options_move_within_what_is_charged(QUICK);
}

#[test]
#[ignore = "long: tests/long.sh carried"]
fn no_option_of_an_update_moves_a_sum_by_more_than_is_charged() {
    options_move_within_what_is_charged(1);
}

fn options_move_within_what_is_charged(step: usize) {
    let (mut ran, mut largest): (BTreeMap<(&str, &str), BTreeSet<String>>, f64) = (BTreeMap::new(), 0.0);
    let mut done = BTreeSet::new();
    for (name, model, pvi, named) in rows().step_by(step) {
        let (pvi, records) = (pvi.as_str(), model.records);
        // Whatever state there is by default, and the one that carries most.
        if named.kind == UpdateKind::Pvi || named.state.is_some_and(|state| state == FactorState::Released) {
            continue;
        }
        for (key, tried) in OPTIONS {
            let With(values) = tried else { continue };
            for lines in *values {
                let changed = with(pvi, lines);
                if changed.lines().eq(pvi.lines()) {
                    continue;
                }
                let row = (text(&json!(named.kind)), *lines, format!("{records:?} {:?} {named:?}", named.state));
                if done.contains(&row) {
                    continue;
                }
                let task = match (resolve(model, &changed, named), refusal(&changed, records, named)) {
                    (Ok(task), None) => task,
                    (Err(_), _) => continue,
                    (Ok(_), Some(why)) => panic!("{name} with {lines} is accepted, although {why}"),
                };
                let found = over(&task, records, &[Path::Random], 2);
                assert!(found <= 1.0 + 1e-12, "{name} with {lines}: {found} times what is charged");
                largest = largest.max(found);
                ran.entry((*key, *lines)).or_default().insert(row.0.clone());
                done.insert(row);
            }
        }
    }
    for (kind, lines) in
        [("global-vi", "sampling_rate = 0.5"), ("sep", "sampling_rate = 0.5"), ("vips", "documents = 40\nsampling_rate = 0.5")]
    {
        assert!(step > 1 || ran.iter().any(|((_, other), kinds)| *other == lines && kinds.contains(kind)), "{kind} with {lines}");
    }
    assert!(largest > 0.97, "{largest}");
}
