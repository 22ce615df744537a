//! The accountant's command line against a table of golden values: every row through the real `dp-pvi-sim account --queries`, with the
//! inequalities of acceptance.
//!
//! `DP_PVI_ACCOUNTING` names another table of the same format; without it the golden vectors' `accounting.json` is read.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::{Command, Output};

use dp_pvi_tests::place::{binary, vectors};
use serde_json::{Value, json};

fn table() -> PathBuf {
    std::env::var_os("DP_PVI_ACCOUNTING").map_or_else(|| vectors("accounting.json"), PathBuf::from)
}

/// The rows of a table: an object with `rows`, or a JSON object a line.
fn rows(text: &str) -> Vec<Value> {
    match serde_json::from_str::<Value>(text) {
        Ok(table) if table["rows"].is_array() => table["rows"].as_array().unwrap().clone(),
        _ => text.lines().map(|line| serde_json::from_str(line).unwrap()).collect(),
    }
}

fn ask(file: &std::path::Path) -> Output {
    Command::new(binary("dp-pvi-sim")).args(["account", "--queries"]).arg(file).output().unwrap()
}

/// Answers by id.
fn answers(output: &Output) -> BTreeMap<String, Value> {
    let lines = String::from_utf8(output.stdout.clone()).unwrap();
    lines
        .lines()
        .map(|line| serde_json::from_str::<Value>(line).unwrap())
        .map(|line| (line["id"].as_str().unwrap().to_owned(), line))
        .collect()
}

fn number(row: &Value, key: &str) -> f64 {
    row[key].as_f64().unwrap_or_else(|| panic!("{row} has no number {key}"))
}

/// What is wrong with one answer.
fn faults(row: &Value, answer: &Value) -> Vec<String> {
    let mut faults = Vec::new();
    let mut expect = |ok: bool, what: String| {
        if !ok {
            faults.push(what);
        }
    };
    if row["query"] == "rdp" {
        let golden = row["rdp"].as_array().unwrap();
        for (k, golden) in golden.iter().enumerate() {
            let golden = golden.as_f64().unwrap();
            let field = |name: &str| answer[name][k].as_f64().unwrap();
            let slack = golden * number(row, "tol_rdp_rel");
            expect((field("estimate") - golden).abs() <= slack, format!("order {k}: estimate {} is not {golden}", field("estimate")));
            expect(
                field("lower") <= golden + slack && field("upper") >= golden - slack,
                format!("order {k}: {golden} is not between {} and {}", field("lower"), field("upper")),
            );
        }
        return faults;
    }
    let (lower, estimate, upper) = (number(answer, "lower"), number(answer, "estimate"), number(answer, "upper"));
    expect(lower <= estimate && estimate <= upper, format!("{lower} {estimate} {upper} are out of order"));
    match row["query"].as_str().unwrap() {
        "calibrate_sigma" => {
            let sigma = number(row, "sigma");
            expect(upper >= sigma * (1.0 - 1e-7) && upper <= sigma * (1.0 + 1e-4), format!("sigma {upper} is not {sigma}"));
        }
        query => {
            let (value, tolerance) = match query {
                "advantage" => (number(row, "advantage"), number(row, "tol_advantage")),
                _ => (number(row, "eps"), number(row, "tol_eps")),
            };
            let fixed_batches = row["relation"] == "substitute" && row["sampling"] == "without_replacement";
            expect(upper >= value - tolerance, format!("upper {upper} is below {value}"));
            let least = if fixed_batches { number(row, "eps_lower") } else { value };
            expect(lower <= least + tolerance, format!("lower {lower} is above {least}"));
            expect((estimate - value).abs() <= tolerance.max(1e-6 * value.abs()), format!("estimate {estimate} is not {value}"));
            if query == "eps" && row["sampling"] == "poisson" && row["T"].as_u64().is_none_or(|steps| steps <= 10_000) {
                expect(upper - lower <= 1e-4 * value.max(0.05), format!("[{lower}, {upper}] is wide"));
            }
            if query == "eps" && row["mechanism"] == "gaussian" {
                expect((upper - value).abs() <= 1e-12 * value, format!("{upper} is not {value} to 1e-12"));
            }
        }
    }
    faults
}

#[test]
fn every_row_of_the_table_is_answered_within_its_tolerance() {
    let file = table();
    let rows = rows(&std::fs::read_to_string(&file).unwrap());
    let output = ask(&file);
    let answers = answers(&output);
    let mut wrong = Vec::new();
    for row in &rows {
        let id = row["id"].as_str().unwrap();
        match answers.get(id) {
            Some(answer) if answer["error"].is_null() => {
                wrong.extend(faults(row, answer).into_iter().map(|fault| format!("{id}: {fault}")))
            }
            other => wrong.push(format!("{id}: {other:?}")),
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(output.status.success() && answers.len() == rows.len(), "{} answers to {} rows", answers.len(), rows.len());
    println!("{} rows of {}", rows.len(), file.display());
}

/// A table without a single answer in it gives the same answers: nothing is read from the row but the question.
#[test]
fn answers_do_not_depend_on_the_answers_in_the_rows() {
    let file = table();
    let questions = [
        "id",
        "mechanism",
        "relation",
        "sampling",
        "query",
        "sigma",
        "q",
        "T",
        "delta",
        "n",
        "batch",
        "phases",
        "sensitivity",
        "rho",
        "orders",
    ];
    let mut picked = BTreeMap::new();
    for row in rows(&std::fs::read_to_string(&file).unwrap()) {
        picked
            .entry((row["mechanism"].to_string(), row["relation"].to_string(), row["sampling"].to_string(), row["query"].to_string()))
            .or_insert(row);
    }
    let directory = tempfile::tempdir().unwrap();
    let asked = |name: &str, strip: bool| {
        let lines: Vec<String> = picked
            .values()
            .map(|row| {
                let mut row = row.clone();
                // A calibration asks for sigma, and its epsilon is the question.
                let calibrates = row["query"] == "calibrate_sigma";
                if strip {
                    row.as_object_mut().unwrap().retain(|key, _| match key.as_str() {
                        "sigma" => !calibrates,
                        "eps" => calibrates,
                        key => questions.contains(&key),
                    });
                }
                row.to_string()
            })
            .collect();
        let file = directory.path().join(name);
        std::fs::write(&file, lines.join("\n")).unwrap();
        let mut answers = answers(&ask(&file));
        answers.values_mut().for_each(|answer| drop(answer.as_object_mut().unwrap().remove("seconds")));
        answers
    };
    let (with, without) = (asked("with.jsonl", false), asked("without.jsonl", true));
    assert!(!with.is_empty());
    assert_eq!(with, without);
}

#[test]
fn a_refused_row_says_why_and_the_others_are_answered() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("rows.jsonl");
    let row = |id: &str, sigma: f64, sampling: &str| json!({"id": id, "mechanism": "gaussian", "relation": "add_remove", "sampling": sampling, "query": "eps", "sigma": sigma, "q": 1.0, "T": 3, "delta": 1e-6});
    let text: Vec<String> =
        [row("good", 2.0, "none"), row("negative", -2.0, "none"), row("sampler", 2.0, "luck")].iter().map(Value::to_string).collect();
    std::fs::write(&file, text.join("\n")).unwrap();
    let output = ask(&file);
    assert_eq!(output.status.code(), Some(1));
    let answers = answers(&output);
    assert!(number(&answers["good"], "upper") > 0.0 && number(&answers["good"], "seconds") >= 0.0);
    for refused in ["negative", "sampler"] {
        assert!(answers[refused]["error"].is_string() && answers[refused]["upper"].is_null(), "{}", answers[refused]);
    }
}
