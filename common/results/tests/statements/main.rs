//! What `dp-pvi-verify` derives of every kind of `posterior.json`: a change of a derived field is refused, and any other change alters nothing of what it says.
//! The specification is `common/accounting/proofs/statements.md`.
#![allow(clippy::unwrap_used)]

mod json;
mod kinds;

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use dp_pvi_names::Hash;
use dp_pvi_results::document::PosteriorDocument;
use dp_pvi_verifier::posterior::{FIELDS, Posterior, Source, Unproved};
use sha2::{Digest, Sha256};

use json::Leaf;
use kinds::{KINDS, Kind};

/// A posterior of some kind as its file, and the transcript of its run.
struct Given {
    name: &'static str,
    file: String,
    transcript: String,
}

impl Given {
    fn of((name, make): Kind) -> Self {
        let document = make();
        Self { name, file: document.to_json(), transcript: transcript(&document) }
    }

    fn read(&self, file: &str, with_transcript: bool) -> Result<Posterior, Unproved> {
        Posterior::read(file.as_bytes(), with_transcript.then_some(self.transcript.as_bytes()))
    }
}

/// What the server writes about a run with these statements.
fn transcript(document: &PosteriorDocument) -> String {
    let of_run = |more: serde_json::Value| {
        let mut line = serde_json::json!({"task": document.task_hash, "run": document.run});
        line.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        line.to_string() + "\n"
    };
    let hash = |name: &str, round: u32| Hash::of(name, &[&round.to_le_bytes()]).to_string();
    let round = |round: u32| {
        let asked = document.privacy.iter().filter(|statement| statement.releases > round);
        let included: Vec<_> =
            asked.map(|statement| serde_json::json!({"client": statement.site, "update": hash("update", round)})).collect();
        of_run(serde_json::json!({
            "round": round, "visit": round, "outcome": "complete", "included": included, "lambda_before": hash("state", round),
            "lambda": hash("state", round + 1), "previous": hash("entry", round), "hash": hash("entry", round + 1),
        }))
    };
    let answered: serde_json::Map<_, _> =
        document.privacy.iter().map(|statement| (statement.site.to_string(), statement.releases.into())).collect();
    (0..document.rounds).map(round).collect::<String>() + &of_run(serde_json::json!({"end": "complete", "answered": answered}))
}

/// Where a field is in the specification: the row that names it, or one that it is in.
fn row(path: &str) -> (&'static str, Source) {
    let named = |field: &&(&str, Source)| path.strip_prefix(field.0).is_some_and(|rest| rest.is_empty() || rest.starts_with(['.', '[']));
    let row = FIELDS.iter().filter(named).max_by_key(|(field, _)| field.len());
    *row.unwrap_or_else(|| panic!("{path} has no row in common/accounting/proofs/statements.md"))
}

/// A changed file: one change of a derived field is refused; another one leaves everything that is said as it was.
fn judged(given: &Given, honest: &[Posterior; 2], changed: &str, (path, source): (&str, Source), what: &str) {
    for (with_transcript, honest) in [false, true].into_iter().zip(honest) {
        let derived = matches!(source, Source::Task | Source::Signature) || source == Source::Transcript && with_transcript;
        match given.read(changed, with_transcript) {
            Ok(read) => {
                assert!(!derived, "{}: {path}: {what} is accepted", given.name);
                assert_eq!(read, *honest, "{}: {path}: {what} changes what is said", given.name);
            }
            Err(refused) => assert!(!refused.to_string().is_empty()),
        }
    }
}

/// Every leaf of the file in several ways; every field removed, doubled, and added; every list shortened, lengthened and turned round.
fn changed_everywhere(given: &Given) -> usize {
    let honest = [false, true].map(|with| given.read(&given.file, with).unwrap_or_else(|why| panic!("{}: {why}", given.name)));
    let mut changes = 0;
    let mut try_one = |changed: String, path: &str, what: &str| {
        let (_, source) = row(path);
        judged(given, &honest, &changed, (path, source), what);
        changes += 1;
    };
    let leaves = json::leaves(&given.file);
    let mut seen = BTreeMap::new();
    for leaf in &leaves {
        // Of what is not checked, some of each: a curve alone has hundreds of points.
        let number = seen.entry(&leaf.path).and_modify(|number| *number += 1).or_insert(1);
        let most = if row(&leaf.path).1 == Source::Nothing { 6 / *number } else { usize::MAX };
        for token in leaf.others().into_iter().take(most) {
            try_one(leaf.with(&given.file, &token), &leaf.path, &format!("{} for {}", short(&token), short(&leaf.token)));
        }
        // The value of another site, coefficient, effect …
        let other = leaves.iter().find(|other| most > 0 && other.path == leaf.path && other.token != leaf.token);
        if let Some(other) = other {
            try_one(json::exchanged(&given.file, leaf, other), &leaf.path, "exchanged with another entry");
        }
    }
    for (path, what, changed) in json::reshaped(&given.file) {
        // What is added has no row, and is refused where it is read.
        match what {
            "added" if path.is_empty() || path == "privacy[]" => {
                assert!(
                    [false, true].iter().all(|with| given.read(&changed, *with).is_err()),
                    "{}: a field was added to {path}",
                    given.name
                );
            }
            // A statement more or less, or in another place.
            _ if path == "privacy" => {
                let refused = given.read(&changed, true).is_err();
                let one_less = what == "an entry less" && given.read(&changed, false).is_ok_and(|read| read == honest[0]);
                assert!(refused && (one_less || given.read(&changed, false).is_err()), "{}: statements: {what}", given.name);
            }
            _ if path.is_empty() || path == "privacy[]" => {}
            _ => try_one(changed, &path, what),
        }
    }
    changes
}

fn short(token: &str) -> String {
    token.chars().take(40).collect()
}

fn sealed(text: &str) -> String {
    let body = text.rsplit_once(",\"seal\":").unwrap().0;
    let seal: String = Sha256::digest(body.as_bytes()).iter().map(|byte| format!("{byte:02x}")).collect();
    format!("{body},\"seal\":\"{seal}\"}}")
}

/// The text that is a field of the file, and the file with another one in its place.
fn inside<'a>(file: &'a str, path: &str) -> Option<(String, impl Fn(&str) -> String + 'a)> {
    let leaf = json::leaves(file).into_iter().find(|leaf| leaf.path == path)?;
    let text: String = serde_json::from_str(&leaf.token).unwrap();
    Some((text, move |other: &str| leaf.with(file, &serde_json::to_string(other).unwrap())))
}

/// What is in a certificate, under a seal that fits. Hints may be others, as long as the claim is still proved.
fn changed_certificates(given: &Given) -> usize {
    let honest = given.read(&given.file, true).unwrap();
    let claims = |read: &Posterior| {
        read.prove().map(|proved| (proved.joint.epsilon, proved.joint.delta, proved.fallback.flatten().map(|worst| worst.epsilon)))
    };
    let proved = claims(&honest).unwrap();
    let mut changes = 0;
    for field in ["certificate.text", "fallback_certificate.text"] {
        let Some((text, with)) = inside(&given.file, field) else { continue };
        let hint = |path: &str| path == "slack" || path.starts_with("proofs");
        for leaf in json::leaves(&text).iter().filter(|leaf| leaf.path != "seal") {
            // Each hint costs a whole check: one change of it.
            for token in leaf.others().into_iter().take(if hint(&leaf.path) { 1 } else { usize::MAX }) {
                let changed = with(&sealed(&leaf.with(&text, &token)));
                changes += 1;
                // What does not fit is found before anything is proved; what is no certificate any more, or proves nothing, is found then.
                let said = given.read(&changed, true).ok().and_then(|read| Some((claims(&read).ok()?, read)));
                if let Some((claims, read)) = said {
                    assert!(hint(&leaf.path), "{}: {field}: {} as {} is accepted", given.name, leaf.path, short(&token));
                    let same = (&read.task, read.run, &read.sites, claims) == (&honest.task, honest.run, &honest.sites, proved);
                    assert!(same, "{}: {field}: {} changes what is said", given.name, leaf.path);
                }
            }
        }
    }
    changes
}

/// Whatever is changed in the task's text, its hash is another one; under the new hash the certificates are of another task.
fn changed_task(given: &Given) -> usize {
    let (text, with) = inside(&given.file, "task").unwrap();
    let hash = |text: &str| Hash::of("dp-pvi task v1", &[text.as_bytes()]).to_string();
    let mut changes = 0;
    for leaf in json::leaves(&text) {
        for token in leaf.others() {
            let other = leaf.with(&text, &token);
            let changed = with(&other);
            assert!(given.read(&changed, false).is_err(), "{}: task: {} as {token} is accepted", given.name, leaf.path);
            let under_its_hash = changed.replacen(&hash(&text), &hash(&other), 1);
            assert!(
                given.read(&under_its_hash, false).is_err(),
                "{}: task: {} as {token} is accepted under its hash",
                given.name,
                leaf.path
            );
            changes += 2;
        }
    }
    changes
}

/// Finding B6, acceptance 3 of issue 40.
#[test]
fn every_change_of_a_derived_field_is_refused_and_no_other_field_is_said() {
    for kind in KINDS {
        let given = Given::of(*kind);
        let changes = [changed_everywhere(&given), changed_certificates(&given), changed_task(&given)];
        assert!(changes.iter().all(|number| *number > 40), "{}: {changes:?}", given.name);
    }
}

/// A field that is written and that the specification does not name, or the reverse.
#[test]
fn the_specification_names_the_fields_of_all_kinds_and_no_others() {
    assert!(KINDS.len() >= 10);
    let files = KINDS.iter().map(|(_, make)| make().to_json()).collect::<Vec<_>>();
    let paths = files.iter().flat_map(|file| json::leaves(file).into_iter().map(|leaf: Leaf| row(&leaf.path).0));
    let named: BTreeSet<_> = paths.collect();
    let missing: Vec<_> = FIELDS.iter().map(|(field, _)| *field).filter(|field| !named.contains(field)).collect();
    assert!(missing.is_empty(), "no kind of posterior has {missing:?}");
}

/// What was accepted: an aggregated run whose statements speak of local trust, without the fallback, of another unit, of nothing released.
#[test]
fn statements_of_an_aggregated_run_cannot_speak_of_local_trust() {
    let given = Given::of(*KINDS.iter().find(|(name, _)| *name == "aggregated").unwrap());
    let fields: serde_json::Value = serde_json::from_str(&given.file).unwrap();
    let mut lies = fields.clone();
    for statement in lies["privacy"].as_array_mut().unwrap() {
        statement["trust"] = "local".into();
        statement.as_object_mut().unwrap().remove("fallback_epsilon");
    }
    lies.as_object_mut().unwrap().remove("fallback_certificate");
    assert!(given.read(&lies.to_string(), false).is_err());
    assert!(given.read(&fields.to_string(), false).is_ok(), "the order of fields does not matter");

    // A certificate of another run of the task, and of another task, under the same seal.
    let other = make_other(&given);
    for field in ["certificate", "fallback_certificate"] {
        let mut mixed = fields.clone();
        mixed[field] = other[field].clone();
        assert!(given.read(&mixed.to_string(), false).unwrap_err().to_string().contains("of another run or task"));
    }
}

/// The same run under the next number.
fn make_other(given: &Given) -> serde_json::Value {
    let mut document = PosteriorDocument::from_json(&given.file).unwrap();
    document.run += 1;
    serde_json::from_str(&document.with_certificates().unwrap().to_json()).unwrap()
}

/// A file in which everything fits is a posterior of its task: which one that is, is said.
#[test]
fn a_file_of_another_task_shows_in_the_hash_that_is_said() {
    let [one, other] = ["local", "add-remove"].map(|name| Given::of(*KINDS.iter().find(|(kind, _)| *kind == name).unwrap()));
    let (one_said, other_said) = (one.read(&one.file, false).unwrap(), other.read(&other.file, false).unwrap());
    assert_ne!(one_said.task, other_said.task);
    assert!(
        Posterior::read(other.file.as_bytes(), Some(one.transcript.as_bytes())).is_err(),
        "and a transcript of another run does not fit"
    );
}

/// What has no certificate, and what must not leave its site, is refused whatever is changed in it.
#[test]
fn posteriors_without_a_certificate_and_personal_ones_are_refused() {
    for make in [kinds::unprotected, kinds::replaced_in_epochs] {
        let file = make().to_json();
        for leaf in json::leaves(&file) {
            for token in leaf.others() {
                assert!(Posterior::read(leaf.with(&file, &token).as_bytes(), None).is_err(), "{}: {token}", leaf.path);
            }
        }
        assert!(Posterior::read(file.as_bytes(), None).unwrap_err().to_string().contains("no certificate"));
    }
    let personal = "{\"private\":\"made from this site's records without noise: never send it, never publish it\",\"personal_form\":1}";
    assert!(Posterior::read(personal.as_bytes(), None).unwrap_err().to_string().contains("personal posterior"));
}

/// The page, as the program has it, is the page of the tree.
#[test]
fn the_tests_that_the_specification_names_are_these() {
    let page = std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("../accounting/proofs/statements.md")).unwrap();
    assert!(page.contains(&format!("{} kinds of posteriors", kinds::IN_WORDS)));
    assert_eq!(KINDS.len(), 13);
}
