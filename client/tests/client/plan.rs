//! What `plan` says beyond the price: the sites that a forecast counts on, and tasks without protection.

use dp_pvi_posterior::task::ResolvedTask;

use super::common::{Site, open_task, private_task, task, write};

/// The text and the JSON of `plan` for a task.
fn plan(site: &Site, task: &ResolvedTask, more: &[&str]) -> (String, serde_json::Value) {
    let file = site.path("task.json");
    write(&file, task.to_bytes());
    let arguments = [&["plan", "--task", file.to_str().unwrap()], more].concat();
    let text = site.run(&arguments).expect(0, "").stdout;
    (text, site.run(&[&arguments[..], &["--format", "json"]].concat()).expect(0, "").json())
}

#[test]
fn a_forecast_counts_on_the_sites_that_the_task_expects() {
    let site = Site::new();
    let expecting = private_task(0.5);
    assert_eq!((expecting.expected_sites, expecting.min_sites), (Some(3), 1));
    let (text, json) = plan(&site, &expecting, &[]);
    assert!(text.contains("counts on 3 sites ([pvi] expected_sites)") && text.contains(" at 3 sites;"), "{text}");
    assert_eq!(json["forecast_assumes"]["sites"], 3);
    assert_eq!(json["forecast"]["task"]["sites"], 3);

    // Without a guess the fewest with which it runs, and the plan says that too.
    let (text, _) = plan(&site, &task("update = \"dp-optimisation\"", "epsilon = 0.5"), &[]);
    assert!(text.contains("counts on 1 site ([phases] min_sites") && text.contains(" at 1 sites;"), "{text}");

    let (text, json) = plan(&site, &expecting, &["--sites", "7"]);
    assert!(text.contains(" at 7 sites;") && !text.contains("counts on"), "{text}");
    assert!(json["forecast_assumes"].is_null());
}

/// Where there is no protection there is no price: the plan says so once, and its verdict follows from it.
#[test]
fn a_plan_without_protection_does_not_contradict_itself() {
    let site = Site::new();
    let (text, json) = plan(&site, &open_task(), &[]);
    assert!(text.contains("stated  no protection (epsilon infinite)"), "{text}");
    assert!(text.contains("room    none: [policy] allow_non_private is not set"), "{text}");
    assert!(text.contains("refused the task has no protection"), "{text}");
    assert_eq!((json["runs_possible"].as_u64(), json["would_run"].as_bool()), (Some(0), Some(false)));

    site.configure("[budget]", "[policy]\nallow_non_private = true\n[budget]");
    let (text, json) = plan(&site, &open_task(), &[]);
    assert!(text.contains("room    not limited") && text.contains("verdict this site would take part"), "{text}");
    assert!(
        !text.contains("infinite (own computation)") && !text.contains("0 such runs") && !text.contains("no noise was added"),
        "{text}"
    );
    assert_eq!((json["counts_against_limit"].as_bool(), json["would_run"].as_bool()), (Some(false), Some(true)));
}
