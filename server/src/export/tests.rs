#![allow(clippy::unwrap_used)]
use dp_pvi_names::{ClientId, Hash, RunId};
use dp_pvi_posterior::task::{RawTask, ResolveContext};
use dp_pvi_protocol::message::{Role, RunOutcome};
use dp_pvi_protocol::origin::Origin;
use dp_pvi_protocol::time::Timestamp;
use dp_pvi_results::document::PosteriorDocument;

use super::history::{History, Member};
use super::{document, of_another_run, page};

const SCHEMA: &str = r#"
[[columns]]
name = "a"
kind = "number"
lower = -1
upper = 1
centre = 0
scale = 1
[[columns]]
name = "y"
kind = "boolean"
true_values = ["1"]
false_values = ["0"]
"#;

/// A run of natural gradients with two sites that declared so many units, which ended in this state.
fn history(units: u64, change: impl FnOnce(&mut Vec<f64>)) -> History {
    let text = "[model]\nfamily = \"logistic-regression\"\noutcome = \"y\"\n[schema]\nfile = \"schema.toml\"\n[pvi]\nschedule = \"synchronous\"\nrounds = 2\n\
                update = \"natural-gradient\"\n[privacy]\nunit = \"record\"\nadjacency = \"replace-one\"\nepsilon = 1.0\ndelta = 1e-5\ntrust = \"local\"\nmax_units = 1000000\n";
    let context = ResolveContext { name: "test", update_deadline_seconds: 60, min_sites: 1, expected_sites: 2 };
    let task = RawTask::parse(text).unwrap().resolve(SCHEMA, context).unwrap();
    let mut lambda = task.rule().initial();
    change(&mut lambda);
    let member = |name: &str| {
        let member = Member {
            role: Role::Site,
            units: Some(units),
            answered: std::collections::BTreeSet::new(),
            heads: [Hash([1; 32]), Hash([2; 32])].into(),
            rows: Origin::default(),
            head: None,
            witness: None,
        };
        (ClientId::new(name).unwrap(), member)
    };
    History {
        run: RunId { task: task.hash(), number: 1 },
        task,
        started: Timestamp::from_millis(0),
        last: Timestamp::from_millis(1000),
        outcome: Some(RunOutcome::Complete),
        reason: None,
        suspended: false,
        entries: Vec::new(),
        metrics: Vec::new(),
        refusals: Vec::new(),
        members: [member("site-1"), member("site-2")].into(),
        lambda,
        states: Vec::new(),
    }
}

/// A store of another version may hold any number: what was written can be exported.
#[test]
fn units_that_do_not_add_up_in_64_bits_leave_a_result() {
    for units in [0, 1, 1 << 32, u64::MAX] {
        let history = history(units, |_| ());
        let document = document(&history).unwrap();
        assert_eq!(document.coefficients.len(), 2);
        assert!(page::render("test", &history, &document).contains("Coefficients"));
    }
}

#[test]
fn a_posterior_that_is_no_distribution_leaves_documents_that_say_so() {
    for (at, bad) in [(0, f64::NAN), (0, f64::INFINITY), (2, -1.0), (3, f64::NAN)] {
        let history = history(100, |lambda| lambda[at] = bad);
        let document = document(&history).unwrap();
        assert!(document.problem.is_some() && document.privacy.len() == 2);
        let page = page::render("test", &history, &document);
        assert!(page.contains("There is no posterior") && !page.contains("NaN"), "{page}");
        PosteriorDocument::from_json(&document.to_json()).unwrap();
    }
}

/// The first run of a new database has the task and the number of the first one of the old database.
#[test]
fn results_are_of_the_same_run_where_it_saw_their_ledger_heads() {
    let history = history(100, |_| {});
    let document = document(&history).unwrap();
    let (task, run) = (document.task_hash.clone(), document.run);
    let old = |task: &str, run: u32, heads: &[Hash]| {
        let sites: Vec<_> = heads.iter().map(|head| serde_json::json!({ "witness": { "hash": head.to_string() } })).collect();
        serde_json::json!({ "task_hash": task, "run": run, "privacy": sites }).to_string()
    };
    let (first, second, strange) = (Hash([1; 32]), Hash([2; 32]), Hash([3; 32]));
    for heads in [&[][..], &[first], &[first, second]] {
        assert_eq!(of_another_run(&old(&task, run, heads), &history), None, "{heads:?}");
    }
    let name = Some(format!("{task:.8}-{run}"));
    assert_eq!(of_another_run(&old(&task, run, &[first, strange]), &history), name);
    assert_eq!(of_another_run(&old(&task, run + 1, &[first]), &history), Some(format!("{task:.8}-{}", run + 1)));
    for cut in ["", "{\"task_hash\"", "{\"task_hash\":\"a/b\",\"run\":1}"] {
        assert_eq!(of_another_run(cut, &history), Some("earlier".into()));
    }
    let other = Hash([9; 32]).to_string();
    assert_eq!(of_another_run(&old(&other, run, &[first]), &history), Some(format!("{other:.8}-{run}")));
}
