//! What `dp-pvi-verify` says of a `posterior.json`.
#![allow(clippy::unwrap_used)]

use std::path::Path;

use dp_pvi_verifier::Refusal;
use posterior::{Finding, Unproved, verify_file};
use sha2::{Digest, Sha256};

#[path = "../src/bin/dp-pvi-verify/posterior.rs"]
mod posterior;

fn hash(text: &str) -> String {
    Sha256::digest(text.as_bytes()).iter().map(|byte| format!("{byte:02x}")).collect()
}

fn task() -> String {
    hash("a task")
}

/// A certificate of the accountant for δ = 1e-5, bound to run 3 of the task and to events; and its ε.
fn certificate(name: &str, events: &str) -> (String, f64) {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden").join(name).with_extension("json");
    let binding = format!("\"binding\":[\"{}\",\"{}\",\"{}\"]", hash(&format!("{}/3", task())), task(), hash(events));
    let text = std::fs::read_to_string(file).unwrap().replacen("\"binding\":null", &binding, 1);
    let body = text.rsplit_once(",\"seal\":").unwrap().0;
    let epsilon = text.split("\"epsilon\":").nth(1).unwrap().split(',').next().unwrap().parse().unwrap();
    (format!("{body},\"seal\":\"{}\"}}", hash(body)), epsilon)
}

fn quoted(text: &str) -> String {
    format!("{{\"text\":{}}}", serde_json::json!(text))
}

fn statement(trust: &str, epsilon: &str, fallback: &str) -> String {
    format!(
        "{{\"site\":\"a\",\"unit\":\"record\",\"relation\":\"add-remove\",\"epsilon\":{epsilon}{fallback},\"delta\":1e-5,\"trust\":\"{trust}\"}}"
    )
}

/// A posterior with these statements, and further fields.
fn file(privacy: &str, certificates: &str) -> String {
    format!("{{\"format\":2,\"task_hash\":\"{}\",\"run\":3,\"privacy\":[{privacy}],{certificates}\"task\":\"{{}}\"}}", task())
}

fn local() -> String {
    let (text, epsilon) = certificate("gaussian", "sums");
    let statement = statement("local", &epsilon.to_string(), "");
    file(&format!("{statement},{statement}"), &format!("\"certificate\":{},", quoted(&text)))
}

/// Under aggregated trust, with this text for the second certificate.
fn aggregated(fallback: &str, second: &str) -> String {
    let (text, epsilon) = certificate("gaussian", "sums");
    let statement = statement("aggregated", &epsilon.to_string(), fallback);
    file(&statement, &format!("\"certificate\":{},\"fallback_certificate\":{second},", quoted(&text)))
}

fn refused(text: &str, words: &str) {
    let refusal = verify_file(text.as_bytes()).expect_err(words);
    assert!(refusal.to_string().contains(words), "{words}: {refusal}");
}

fn replaced(text: &str, from: &str, to: &str) -> String {
    assert!(text.contains(from), "{from}: {text}");
    text.replacen(from, to, 1)
}

fn proved(findings: &[Finding]) -> Vec<(&str, f64)> {
    findings.iter().map(|(claim, found)| (*claim, found.as_ref().unwrap().epsilon)).collect()
}

#[test]
fn a_posterior_states_no_more_than_its_certificate_proves() {
    let (text, (_, epsilon)) = (local(), certificate("gaussian", "sums"));
    assert_eq!(proved(&verify_file(text.as_bytes()).unwrap()), [("epsilon", epsilon)]);
    // The weaker statement is true, too.
    verify_file(replaced(&text, "\"delta\":1e-5", "\"delta\":1e-4").as_bytes()).unwrap();

    for (from, to) in [
        ("\"relation\":\"add-remove\"", "\"relation\":\"replace-one\""),
        ("\"relation\":\"add-remove\"", "\"relation\":\"none\""),
        ("\"delta\":1e-5", "\"delta\":9e-6"),
        (&*format!("\"epsilon\":{epsilon},\"delta\""), "\"epsilon\":3.36,\"delta\""),
        (&*format!("\"epsilon\":{epsilon},\"delta\""), "\"epsilon\":null,\"delta\""),
    ] {
        refused(&replaced(&text, from, to), "it states more than is proved");
    }
    for (from, to) in [("\"run\":3", "\"run\":4"), (&*task(), &*hash("another"))] {
        refused(&replaced(&text, from, to), "of another run or task");
    }
    refused(&replaced(&text, "\"certificate\":{\"text\"", "\"certificate\":{\"absent\""), "its epsilon has no certificate");
    refused(&replaced(&text, "\"certificate\":{", "\"other\":{"), "its epsilon has no certificate");
    refused(&file("", &format!("\"certificate\":{},", quoted(&certificate("gaussian", "sums").0))), "it states nothing for any site");
    // A changed byte of the certificate.
    refused(&replaced(&text, "\\\"count\\\":10", "\\\"count\\\":11"), "not sealed");
    // A certificate without a binding is of no run.
    let unbound = std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/gaussian.json")).unwrap();
    let statement = statement("local", &epsilon.to_string(), "");
    refused(&file(&statement, &format!("\"certificate\":{},", quoted(&unbound))), "of another run or task");
}

/// Readers of JSON differ in which of two fields of one name they take: a file that has one twice is none.
#[test]
fn a_field_that_is_there_twice_is_refused() {
    let text = local();
    let again = |field: &str| {
        let value: serde_json::Value = serde_json::from_str(&text).unwrap();
        replaced(&text, "{\"format\":2,", &format!("{{\"format\":2,\"{field}\":{},", value[field]))
    };
    for field in ["task_hash", "run", "privacy", "certificate"] {
        refused(&again(field), "each field once");
    }
    for (from, to) in [
        ("\"delta\":1e-5", "\"delta\":1e-5,\"delta\":1e-5"),
        ("\"trust\":\"local\"", "\"trust\":\"aggregated\",\"trust\":\"local\""),
        ("\"epsilon\":", "\"epsilon\":1.0,\"epsilon\":"),
        ("\"certificate\":{", "\"certificate\":{\"absent\":\"\","),
        ("\"privacy\":", "\"statements\":"),
        ("\"run\":3", "\"run\":-1"),
    ] {
        refused(&replaced(&text, from, to), "each field once");
    }
    for nothing in ["", "{}", "[]", "null"] {
        assert!(matches!(verify_file(nothing.as_bytes()), Err(Unproved::Refused(Refusal::Form(_)))), "{nothing}");
    }
}

#[test]
fn sums_over_sites_need_a_second_certificate_about_other_events() {
    let (second, worst) = certificate("poisson-replace", "one share");
    let stated = format!(",\"fallback_epsilon\":{worst}");
    let honest = aggregated(&stated, &quoted(&second));
    let joint = certificate("gaussian", "sums");
    assert_eq!(proved(&verify_file(honest.as_bytes()).unwrap()), [("epsilon", joint.1), ("fallback epsilon", worst)]);

    const NONE: &str = "its fallback epsilon has no certificate";
    refused(&aggregated(&stated, "null"), NONE);
    refused(&aggregated("", "null"), NONE);
    refused(&aggregated(&stated, "{\"absent\":\"lost\"}"), NONE);
    refused(&aggregated(",\"fallback_epsilon\":100.0", "{\"absent\":\"lost\"}"), NONE);
    refused(&aggregated(&format!(",\"fallback_epsilon\":{}", 0.99 * worst), &quoted(&second)), "it states more than is proved");
    // The first one again, under a larger claim.
    let again = aggregated(&format!(",\"fallback_epsilon\":{}", joint.1), &quoted(&joint.0));
    refused(&again, "both certificates are about the same events");
    let same = certificate("poisson-replace", "sums");
    refused(&aggregated(&stated, &quoted(&same.0)), "both certificates are about the same events");
    // Where one statement says so, it is there for all.
    let two = replaced(&local(), "\"trust\":\"local\"", "\"trust\":\"aggregated\"");
    refused(&two, NONE);
    refused(&replaced(&local(), ",\"delta\":1e-5", ",\"fallback_epsilon\":9.0,\"delta\":1e-5"), NONE);
    // Under local trust there is none.
    refused(&replaced(&local(), "\"certificate\"", "\"fallback_certificate\":{\"absent\":\"\"},\"certificate\""), NONE);

    // What no certificate reaches, or nobody claims, is said to be unproved.
    for stated in [",\"fallback_epsilon\":150.0", ",\"fallback_epsilon\":null", ""] {
        let findings = verify_file(aggregated(stated, "{\"absent\":\"too much\"}").as_bytes()).unwrap();
        assert_eq!(findings[0].1.as_ref().unwrap().epsilon, joint.1);
        assert_eq!(findings[1], ("fallback epsilon", Err("too much".to_owned())));
    }
}

/// What the program prints, claim by claim.
#[test]
fn the_program_says_which_line_is_which_claim() {
    let file = std::env::temp_dir().join(format!("dp-pvi-verify-{}.json", std::process::id()));
    let says = |text: &str| {
        std::fs::write(&file, text).unwrap();
        let output = std::process::Command::new(env!("CARGO_BIN_EXE_dp-pvi-verify")).arg(&file).output().unwrap();
        (output.status.code(), String::from_utf8(output.stdout).unwrap())
    };
    let ((joint, epsilon), (second, worst)) = (certificate("gaussian", "sums"), certificate("poisson-replace", "one share"));
    let holds = |claim: &str, relation: &str| format!("holds: {claim} at delta 1e-5 under \"{relation}\"\n");
    let first = holds(&format!("epsilon {epsilon}"), "add_remove");
    assert_eq!(says(&joint), (Some(0), first.clone()));
    let both = aggregated(&format!(",\"fallback_epsilon\":{worst}"), &quoted(&second));
    assert_eq!(says(&both), (Some(0), first.clone() + &holds(&format!("fallback epsilon {worst}"), "replace_one")));
    let unproved = aggregated(",\"fallback_epsilon\":150.0", "{\"absent\":\"too much\"}");
    assert_eq!(says(&unproved), (Some(0), first + "not proved: fallback epsilon (too much)\n"));
    let (code, words) = says(&replaced(&both, "\"run\":3", "\"run\":4"));
    assert!(code == Some(1) && words.starts_with("refused: a certificate is of another run"), "{words}");
    std::fs::remove_file(&file).unwrap();
}
