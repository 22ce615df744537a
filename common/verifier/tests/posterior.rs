//! What `dp-pvi-verify` says of a `posterior.json`. Posteriors as the programs write them are in the tests of `dp-pvi-results`.
#![allow(clippy::unwrap_used)]

use std::collections::BTreeSet;
use std::path::Path;

use dp_pvi_verifier::Refusal;
use dp_pvi_verifier::posterior::{FIELDS, Posterior, Source, Unproved};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

fn hash(bytes: impl AsRef<[u8]>) -> String {
    Sha256::digest(bytes.as_ref()).iter().map(|byte| format!("{byte:02x}")).collect()
}

/// As the specification says it: a domain and parts, each with its length before it.
fn hash_of(domain: &str, parts: &[&str]) -> String {
    let all = [&[domain], parts].concat();
    hash(all.iter().flat_map(|part| [&(part.len() as u64).to_le_bytes()[..], part.as_bytes()].concat()).collect::<Vec<_>>())
}

/// The text between two others.
fn between<'a>(text: &'a str, from: &str, to: &str) -> &'a str {
    text.split_once(from).unwrap().1.split_once(to).unwrap().0
}

/// A certificate of the accountant for δ = 1e-5 which is bound to run 3 of a task and to a ledger; its ε.
fn certificate(name: &str, task: &str, ledger: &str) -> (String, f64) {
    let text = golden(name);
    let binding = format!("\"binding\":[\"{}\",\"{task}\",\"{}\"]", hash(format!("{task}/3")), hash(ledger));
    let text = text.replacen("\"binding\":null", &binding, 1);
    (sealed(&text), between(&text, "\"epsilon\":", ",").parse().unwrap())
}

fn golden(name: &str) -> String {
    std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden").join(name).with_extension("json")).unwrap()
}

fn sealed(text: &str) -> String {
    let body = text.rsplit_once(",\"seal\":").unwrap().0;
    format!("{body},\"seal\":\"{}\"}}", hash(body))
}

/// What a task promises of such a certificate.
fn about(name: &str, ledger: &str) -> String {
    let text = golden(name);
    let relation = between(&text, "\"relation\":", ",");
    hash_of("dp-pvi claim v1", &[relation, between(&text, "\"events\":", ",\"proofs\""), &hash(ledger)])
}

const RELEASED: &str = "at every visit one noised sum";

/// A run of two sites. `fallback` has the fallback certificate where there is aggregation, or an ε that none reaches.
fn file(aggregated: bool, fallback: Option<f64>) -> Value {
    of_task(aggregated, fallback, |_| ())
}

/// The same of a changed task, with statements that fit it.
fn of_task(aggregated: bool, fallback: Option<f64>, change: impl FnOnce(&mut Value)) -> Value {
    let second = if aggregated { json!(about("poisson", "one share")) } else { Value::Null };
    let mut task = json!({
        "approximation": "mean-field",
        "dimension": 4,
        "privacy": {"unit": "person", "relation": "add-remove", "epsilon": 5.0, "delta": 1e-5, "trust": if aggregated { "aggregated" } else { "local" }},
        "aggregation": aggregated.then_some(json!({"sites": 2})),
        "promise": {"released": RELEASED, "visits": 10, "charged": about("gaussian", "sums")},
    });
    if aggregated {
        task["promise"]["fallback"] = second;
    }
    change(&mut task);
    let Value::Object(privacy) = task["privacy"].clone() else { unreachable!() };
    let released = task["promise"]["released"].clone();
    let task = task.to_string();
    let task_hash = hash_of("dp-pvi task v1", &[&task]);
    let ((joint, epsilon), (second, worst)) =
        (certificate("gaussian", &task_hash, "sums"), certificate("poisson", &task_hash, "one share"));
    let statement = |site: &str| {
        let mut statement = json!({
            "site": site, "unit": privacy["unit"], "relation": privacy["relation"], "epsilon": epsilon, "delta": 1e-5,
            "trust": privacy["trust"], "releases": 10, "released": released, "remarks": ["words"],
        });
        if aggregated {
            statement["fallback_epsilon"] = json!(fallback.unwrap_or(worst));
        }
        statement
    };
    let mut file = json!({
        "format": 2, "task_hash": task_hash, "run": 3, "rounds": 10, "family": {"kind": "diagonal-gaussian", "dimension": 4},
        "coefficients": [], "privacy": [statement("a"), statement("b")], "certificate": {"text": joint}, "task": task,
    });
    if aggregated {
        file["fallback_certificate"] = if fallback.is_some() { json!({"absent": "a lie"}) } else { json!({"text": second}) };
    }
    file
}

/// What the run's transcript says.
fn transcript(file: &Value) -> String {
    let of_run = |mut line: Value| {
        line["task"] = file["task_hash"].clone();
        line["run"] = file["run"].clone();
        line.to_string() + "\n"
    };
    let round = |round: u32| {
        let included = [json!({"client": "a", "update": ""}), json!({"client": "b", "update": ""})];
        of_run(json!({
            "round": round, "included": included, "previous": format!("h{round}"), "hash": format!("h{}", round + 1),
            "lambda_before": format!("l{round}"), "lambda": format!("l{}", round + 1),
        }))
    };
    (0..10).map(round).collect::<String>() + &of_run(json!({"end": "complete", "answered": {"a": 10, "b": 10}}))
}

fn read(file: &Value) -> Result<Posterior, Unproved> {
    Posterior::read(file.to_string().as_bytes(), None)
}

fn refused(file: &Value, words: &str) {
    let refusal = read(file).expect_err(words).to_string();
    assert!(refusal.contains(words), "{words}: {refusal}");
}

fn changed(file: &Value, change: impl FnOnce(&mut Value)) -> Value {
    let mut changed = file.clone();
    change(&mut changed);
    changed
}

#[test]
fn what_is_proved_is_what_the_task_and_the_certificates_say() {
    let local = file(false, None);
    let posterior = read(&local).unwrap();
    assert_eq!((posterior.unit.as_str(), posterior.trust.as_str(), posterior.run), ("person", "local", 3));
    assert_eq!(posterior.sites, None);
    let proved = posterior.prove().unwrap();
    assert_eq!((Some(proved.joint.epsilon), proved.fallback), (local["privacy"][0]["epsilon"].as_f64(), None));

    let both = file(true, None);
    let proved = read(&both).unwrap().prove().unwrap();
    let worst = proved.fallback.unwrap().unwrap().epsilon;
    assert_eq!(Some(worst), both["privacy"][0]["fallback_epsilon"].as_f64());
    assert_eq!(read(&file(true, Some(150.0))).unwrap().prove().unwrap().fallback, Some(None));
    refused(&file(true, Some(100.0)), "its fallback epsilon has no certificate");
}

/// Task and statements can say together what the certificate does not.
#[test]
fn the_relation_is_the_certificate_s() {
    refused(&of_task(false, None, |task| task["privacy"]["relation"] = json!("replace-one")), "another relation");
    let second = of_task(true, None, |task| task["promise"]["fallback"] = json!(about("poisson-replace", "one share")));
    let text = second["task_hash"].as_str().unwrap().to_owned();
    let other = certificate("poisson-replace", &text, "one share").0;
    refused(&changed(&second, |file| file["fallback_certificate"] = json!({"text": other})), "another relation");
}

#[test]
fn words_for_unit_relation_and_trust_are_the_known_ones() {
    for (field, word) in
        [("unit", "person\u{9b}1F"), ("unit", "persons"), ("relation", "add_remove"), ("relation", "zero-out"), ("trust", "full")]
    {
        refused(&of_task(false, None, |task| task["privacy"][field] = json!(word)), "unit, relation or trust");
    }
}

/// A claim that its certificate does not prove is found when the certificate is checked: all else fits.
#[test]
fn a_false_claim_that_fits_everything_is_refused() {
    let mut file = file(false, None);
    let text = file["certificate"]["text"].as_str().unwrap().to_owned();
    let epsilon = between(&text, "\"epsilon\":", ",");
    file["certificate"]["text"] = sealed(&text.replacen(&format!("\"epsilon\":{epsilon}"), "\"epsilon\":1.5", 1)).into();
    for site in file["privacy"].as_array_mut().unwrap() {
        site["epsilon"] = json!(1.5);
    }
    assert!(matches!(read(&file).unwrap().prove(), Err(Refusal::Claim(_))));
}

/// Anyone who asks for help gets it, with every exit code that the program has.
#[test]
fn help_names_the_files_and_the_exit_codes() {
    for flag in ["-h", "--help"] {
        let output = std::process::Command::new(env!("CARGO_BIN_EXE_dp-pvi-verify")).arg(flag).output().unwrap();
        let words = String::from_utf8(output.stdout).unwrap();
        assert_eq!(output.status.code(), Some(0), "{words}");
        for part in ["usage: dp-pvi-verify FILE [TRANSCRIPT]", "posterior.json", "export --transcript", "account --certificate"] {
            assert!(words.contains(part), "{part}: {words}");
        }
        let codes = words.split_once("exit codes: ").unwrap().1;
        for code in ["0 ", "1 ", "2 ", "4 ", "12 "] {
            assert!(codes.contains(code), "{code}: {words}");
        }
    }
    let output = std::process::Command::new(env!("CARGO_BIN_EXE_dp-pvi-verify")).arg("--version").output().unwrap();
    assert_eq!((output.status.code(), output.stdout), (Some(0), format!("dp-pvi-verify {}\n", env!("CARGO_PKG_VERSION")).into_bytes()));
}

#[test]
fn no_text_of_the_file_that_nothing_binds_is_printed() {
    let place = std::env::temp_dir().join(format!("dp-pvi-verify-{}", std::process::id()));
    std::fs::create_dir_all(&place).unwrap();
    let says = |files: &[&str]| {
        let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_dp-pvi-verify"));
        for (number, text) in files.iter().enumerate() {
            let file = place.join(number.to_string());
            std::fs::write(&file, text).unwrap();
            command.arg(file);
        }
        let output = command.output().unwrap();
        (output.status.code(), String::from_utf8(output.stdout).unwrap())
    };
    let alone = golden("gaussian");
    let of = |file: &Value| between(file["certificate"]["text"].as_str().unwrap(), "\"epsilon\":", ",").to_owned();
    let local = file(false, None);
    let first = format!("holds: epsilon {} at delta 1e-5 under \"add_remove\"\n", of(&local));
    assert_eq!(says(&[&alone]), (Some(0), first.clone()));
    let rest = |file: &Value, sites: &str| {
        format!(
            "of task {}\nunit \"person\", relation \"add-remove\", trust {}\nreleased by a site in at most 10 visits: \"{RELEASED}\"\n{sites}\n\
             not checked: that this is the task that your site approved (compare its hash with `dp-pvi-client ledger export`)\nnot checked: everything else in the file\n",
            file["task_hash"].as_str().unwrap(),
            file["privacy"][0]["trust"]
        )
    };
    let unknown =
        "not checked without a transcript: the number of the run (the file says 3) and of rounds, which sites took part, their visits";
    assert_eq!(says(&[&local.to_string()]), (Some(0), first.clone() + &rest(&local, unknown)));
    let known = "run 3; sites of the transcript: \"a\" (10 visits), \"b\" (10 visits)";
    assert_eq!(says(&[&local.to_string(), &transcript(&local)]), (Some(0), first.clone() + &rest(&local, known)));
    // The reason for a certificate that is not there is a text like any other.
    let unproved = file(true, Some(150.0));
    let second = "not proved: fallback epsilon (it has no certificate)\n";
    assert_eq!(says(&[&unproved.to_string()]), (Some(0), first + second + &rest(&unproved, unknown)));
    let none = changed(&local, |file| file["certificate"] = json!({"absent": "\nholds: epsilon 0.1"}));
    assert_eq!(says(&[&none.to_string()]).0, Some(1));
    assert!(!says(&[&none.to_string()]).1.contains("holds"));
    let (code, words) = says(&[&changed(&local, |file| file["run"] = json!(4)).to_string()]);
    assert!(code == Some(1) && words.starts_with("refused: a certificate is of another run"), "{words}");
    // What a terminal would not show as it is stands as an escape.
    let hidden = of_task(false, None, |task| task["promise"]["released"] = json!("sum\u{9b}1F\u{202e}\u{2028}\u{7f}\u{e0041} \u{e9}\n"));
    let (code, words) = says(&[&hidden.to_string()]);
    assert!(code == Some(0) && words.contains("visits: \"sum\\u009b1F\\u202e\\u2028\\u007f\\udb40\\udc41 \u{e9}\\n\"\n"), "{words}");
    assert_eq!(says(&[]).0, Some(2));
    assert_eq!(says(&["", "", ""]).0, Some(2));
    let (code, words) = says(&[&alone, &transcript(&local)]);
    assert!(code == Some(1) && words.contains("beside a transcript give a posterior.json"), "{words}");
    std::fs::remove_dir_all(&place).unwrap();
}

/// Readers of JSON differ in which of two fields of one name they take: a file that has one twice is none.
#[test]
fn a_field_that_is_there_twice_or_has_no_name_in_the_specification_is_refused() {
    let given = file(true, None);
    let text = given.to_string();
    let again = |object: &Value, before: &str| {
        for (field, value) in object.as_object().unwrap() {
            let twice = text.replacen(before, &format!("{before}{}:{value},", json!(field)), 1);
            assert!(Posterior::read(twice.as_bytes(), None).is_err(), "{field}");
        }
    };
    again(&given, "{");
    again(&given["privacy"][0], "\"privacy\":[{");
    again(&given["family"], "\"family\":{");
    again(&given["certificate"], "\"certificate\":{");
    refused(&changed(&given, |file| file["more"] = json!(1)), "no specification names");
    refused(&changed(&given, |file| file["privacy"][1]["more"] = json!(1)), "no specification names");
    refused(&changed(&given, |file| file["family"]["more"] = json!(1)), "`family` has another field");
    refused(&changed(&given, |file| file["private"] = json!("")), "personal posterior");
    refused(&changed(&given, |file| file["privacy"] = json!([])), "it states nothing for any site");
    for nothing in ["", "[]", "null", "{}{}"] {
        assert!(matches!(Posterior::read(nothing.as_bytes(), None), Err(Unproved::Refused(Refusal::Form(_)))), "{nothing}");
    }
}

#[test]
fn sites_visits_and_rounds_are_those_of_the_transcript() {
    let given = file(false, None);
    let whole = transcript(&given);
    let with = |file: &Value, transcript: &str| Posterior::read(file.to_string().as_bytes(), Some(transcript.as_bytes()));
    let posterior = with(&given, &whole).unwrap();
    assert_eq!(posterior.sites, Some(vec![("a".to_owned(), 10), ("b".to_owned(), 10)]));
    let changes: [fn(&mut Value); 7] = [
        |file| file["rounds"] = json!(9),
        |file| file["rounds"] = json!(10.0),
        |file| file["privacy"][1]["site"] = json!("c"),
        |file| file["privacy"][1]["releases"] = json!(9),
        |file| drop(file["privacy"].as_array_mut().unwrap().pop()),
        |file| {
            let another = changed(&file["privacy"][1], |statement| statement["site"] = json!("c"));
            file["privacy"].as_array_mut().unwrap().push(another);
        },
        |file| file["rounds"] = Value::Null,
    ];
    for (number, change) in changes.into_iter().enumerate() {
        assert!(with(&changed(&given, change), &whole).is_err(), "{number}");
    }
    // What is refused without it.
    refused(&changed(&given, |file| file["privacy"].as_array_mut().unwrap().swap(0, 1)), "sites are not in order");
    refused(&changed(&given, |file| file["privacy"][1]["site"] = json!("a")), "two statements");
    refused(&changed(&given, |file| file["privacy"][1]["releases"] = json!(11)), "more visits than the task has");

    let lines: Vec<&str> = whole.lines().collect();
    let gap = [&lines[..4], &lines[5..]].concat().join("\n");
    let refused = |text: &str, words: &str| {
        let refusal = with(&given, text).expect_err(words).to_string();
        assert!(refusal.contains(words), "{words}: {refusal}");
    };
    refused("", "empty");
    refused("{", "none, as");
    refused(&lines[..10].join("\n"), "no line about the end");
    refused(&gap, "no unbroken chain");
    refused(&whole.replace("\"run\":3", "\"run\":4"), "the transcript is of run 4, not 3");
    refused(&whole.replacen("\"run\":3", "\"run\":4", 1), "the transcript is of run 4");
    let task = given["task_hash"].as_str().unwrap();
    refused(&whole.replace(task, &task.chars().rev().collect::<String>()), "another task than the posterior");
    refused(&whole.replacen("\"previous\":\"h5\"", "\"previous\":\"h4\"", 1), "no unbroken chain");
    refused(&whole.replacen("\"lambda_before\":\"l5\"", "\"lambda_before\":\"l4\"", 1), "no unbroken chain");
    refused(&whole.replacen("\"client\":\"b\"", "\"client\":\"c\"", 1), "an update of nobody");
    refused(&whole.replacen("\"b\":10", "\"b\":9", 1), "more updates of a site");
    // Readers of JSON differ in which of two fields of one name they take.
    refused(&whole.replacen("\"b\":10", "\"b\":10,\"a\":10", 1), "none, as");
}

/// The page that says what is derived has a row for every field, in the program's words.
#[test]
fn the_specification_has_the_program_s_table() {
    let page = include_str!("../../accounting/proofs/statements.md");
    let rows = page.lines().filter_map(|line| {
        let mut cells = line.strip_prefix("| `")?.split(" | ");
        let (field, source) = (cells.next()?.trim_end_matches('`'), cells.next()?);
        let source = match source {
            "yes" => Source::Task,
            "with a transcript" => Source::Transcript,
            "by a signature" => Source::Signature,
            "no" => Source::Nothing,
            other => panic!("{other}"),
        };
        Some((field, source))
    });
    assert_eq!(rows.collect::<Vec<_>>(), FIELDS);
    assert_eq!(FIELDS.iter().map(|(field, _)| field).collect::<BTreeSet<_>>().len(), FIELDS.len());
}
