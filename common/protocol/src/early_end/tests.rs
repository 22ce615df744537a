#![allow(clippy::unwrap_used)]

use super::{is_met, was_met};
use dp_pvi_posterior::methods::noise_aware::{Absent, ClosedRound, History};
use dp_pvi_posterior::noise_aware;
use dp_pvi_posterior::task::{RawTask, ResolveContext, ResolvedTask, TaskError};

const SCHEMA: &str = "[[columns]]\nname = \"died\"\nkind = \"boolean\"\ntrue_values = [\"yes\"]\nfalse_values = [\"no\"]\n\
                      [[columns]]\nname = \"age\"\nkind = \"number\"\nlower = 0\nupper = 110\ncentre = 50\nscale = 20\n";

fn try_task(pvi: &str, privacy: &str) -> Result<ResolvedTask, TaskError> {
    let approximation = if pvi.contains("vips") { "full-covariance" } else { "mean-field" };
    let text = format!(
        "model.family = \"logistic-regression\"\nmodel.outcome = \"died\"\nmodel.approximation = \"{approximation}\"\nschema.file = \"s\"\n[pvi]\n{pvi}\n[privacy]\nunit = \"record\"\nadjacency = \"replace-one\"\n\
         delta = 1e-5\ntrust = \"local\"\nmax_units = 1000000\n{privacy}\n"
    );
    let context = ResolveContext { name: "f", update_deadline_seconds: 60, min_sites: 1, expected_sites: 3 };
    RawTask::parse(&text)?.resolve(SCHEMA, context)
}

fn open(schedule: &str, rule: &str) -> ResolvedTask {
    try_task(&format!("{schedule}\nupdate = \"pvi\"\n{rule}"), "").unwrap()
}

const SYNCHRONOUS: &str = "schedule = \"synchronous\"\nrounds = 8";
const RULE: &str = "end_early = { distance = 0.1, rounds = 2 }";

/// N(mean, ¼) and N(0, ¼).
fn round(visit: u32, mean: f64) -> ClosedRound {
    ClosedRound { visit, included: vec![0], state: vec![4.0 * mean, 0.0, 4.0, 4.0], correction: None }
}

fn history(rounds: Vec<ClosedRound>) -> History {
    History { shares: vec![0.5, 0.5], rounds }
}

/// Rounds with these means, one a visit.
fn run(means: &[f64]) -> History {
    history((0..).zip(means).map(|(visit, mean)| round(visit, *mean)).collect())
}

#[test]
fn a_run_is_met_when_its_last_moves_are_small() {
    let task = open(SYNCHRONOUS, RULE);
    for (means, expected) in [
        (&[1.0, 1.0, 1.0][..], true),
        // 0.04/0.5 = 0.08 standard deviations, then 0.12.
        (&[0.0, 1.0, 1.04, 1.08], true),
        (&[0.0, 1.0, 1.04, 1.10], false),
        (&[0.0, 1.0, 1.10, 1.14], false),
        (&[1.0, 1.0], false),
        (&[1.0], false),
        (&[], false),
        (&[1.0, f64::NAN, 1.0, 1.0], false),
        (&[f64::NAN, 1.0, 1.0, 1.0], true),
    ] {
        assert_eq!(is_met(&task, &run(means)), expected, "{means:?}");
    }
    assert!(!is_met(&open(SYNCHRONOUS, ""), &run(&[1.0; 5])), "no rule");
    // A round that no one was in says nothing.
    let mut silent = run(&[1.0; 4]);
    silent.rounds[3].included.clear();
    assert!(!is_met(&task, &silent));
}

/// On the border another machine's last digit does not make a liar of the server.
#[test]
fn another_machine_may_differ_in_the_last_digits() {
    let task = open(SYNCHRONOUS, RULE);
    let border = run(&[1.0, 1.0, 1.05 + 1e-9]);
    assert!(!is_met(&task, &border) && was_met(&task, &border));
    assert!(!was_met(&task, &run(&[1.0, 1.0, 1.051])));
}

/// In turn, a round is one site's: the moves are those of whole sweeps.
#[test]
fn sweeps_count_where_sites_work_in_turn() {
    let task = open("schedule = \"sequential\"\nsweeps = 8", RULE);
    let turns = |sweeps: &[[f64; 2]]| history((0..).zip(sweeps).flat_map(|(visit, means)| means.map(|mean| round(visit, mean))).collect());
    assert!(is_met(&task, &turns(&[[0.0, 1.0], [3.0, 1.0], [3.0, 1.0]])));
    assert!(!is_met(&task, &turns(&[[1.0, 1.0], [1.0, 1.0]])));
    assert!(!is_met(&task, &turns(&[[1.0, 0.0], [1.0, 1.0], [1.0, 1.0]])));
}

/// Where noise is added, a state that stays is one that could take no sum.
#[test]
fn a_private_run_that_stands_still_has_not_settled() {
    let pvi = format!("{SYNCHRONOUS}\nupdate = \"natural-gradient\"\n{RULE}");
    let task = try_task(&pvi, "epsilon = 1.0").unwrap();
    let state = task.rule().initial();
    let still = |visit| ClosedRound { visit, included: vec![0], state: state.clone(), correction: None };
    assert!(!is_met(&task, &history((0..6).map(still).collect())));
}

#[test]
fn a_rule_that_cannot_be_kept_is_refused() {
    let natural = "update = \"natural-gradient\"";
    for (pvi, privacy, why) in [
        (format!("{SYNCHRONOUS}\n{natural}\nend_early = {{ distance = 0, rounds = 2 }}"), "epsilon = 1.0", "distance of end_early"),
        (format!("{SYNCHRONOUS}\n{natural}\nend_early = {{ distance = 1.5, rounds = 2 }}"), "epsilon = 1.0", "distance of end_early"),
        (format!("{SYNCHRONOUS}\n{natural}\nend_early = {{ distance = 0.1, rounds = 0 }}"), "epsilon = 1.0", "rounds of end_early"),
        (format!("{SYNCHRONOUS}\n{natural}\nend_early = {{ distance = 0.1, rounds = 8 }}"), "epsilon = 1.0", "rounds of end_early"),
        (format!("{SYNCHRONOUS}\n{natural}\npreconditioner = \"diagonal\"\n{RULE}"), "epsilon = 1.0", "preconditioner = \"gram\""),
        (format!("{SYNCHRONOUS}\nupdate = \"vips\"\n{RULE}"), "epsilon = 1.0", "last round"),
        (format!("{SYNCHRONOUS}\nupdate = \"global-vi\"\n{RULE}"), "epsilon = 1.0", "remove end_early"),
        (format!("schedule = \"asynchronous\"\nsweeps = 8\nupdate = \"pvi\"\n{RULE}"), "", "synchronous"),
        (format!("{SYNCHRONOUS}\n{natural}\nend_early = {{ distance = 0.1 }}"), "epsilon = 1.0", "rounds"),
    ] {
        let error = try_task(&pvi, privacy).unwrap_err().to_string();
        assert!(error.contains(why), "{pvi}: {error}");
    }
}

/// A task without a rule has the bytes, and the hash, that it had before there were any.
#[test]
fn the_rule_is_in_the_task_only_where_there_is_one() {
    let (without, with) = (open(SYNCHRONOUS, ""), open(SYNCHRONOUS, RULE));
    assert!(!String::from_utf8(without.to_bytes()).unwrap().contains("early_end"));
    assert_ne!(without.hash(), with.hash());
    assert_eq!(ResolvedTask::from_bytes(&with.to_bytes()).unwrap(), with);
}

/// Without noise, intervals are those of the records once the run has settled, and not before.
#[test]
fn a_run_without_noise_is_complete_when_its_last_visit_hardly_moved_it() {
    let told = |task: &ResolvedTask, run: &History| noise_aware::of_run(task, run).unwrap_err();
    let task = open(SYNCHRONOUS, "damping = 1.0");
    assert_eq!(told(&task, &run(&[0.0, 1.0, 1.04])), Absent::NoNoise);
    assert_eq!(told(&task, &run(&[0.0, 1.0, 1.06])), Absent::Unsettled, "0.12 standard deviations");
    assert_eq!(told(&task, &run(&[1.0])), Absent::Unsettled, "far from the prior");
    let mut narrower = run(&[1.0, 1.0]);
    narrower.rounds[1].state = vec![4.4, 0.0, 4.4, 4.0];
    assert_eq!(told(&task, &narrower), Absent::Unsettled, "a standard deviation is 5 % smaller");
    // The sites of one sweep belong together.
    let turns = open("schedule = \"sequential\"\nsweeps = 8", "");
    let sweeps = |last: f64| history(vec![round(0, 0.0), round(0, 1.0), round(1, 3.0), round(1, last)]);
    assert_eq!((told(&turns, &sweeps(1.0)), told(&turns, &sweeps(2.0))), (Absent::NoNoise, Absent::Unsettled));
    assert!(noise_aware::states_tell(&task));
    let half = open(SYNCHRONOUS, "damping = 0.5");
    assert_eq!(told(&half, &run(&[0.0, 1.0, 1.04])), Absent::Unsettled, "half of the way moved it by 0.08 standard deviations");
    // What no one answered, what the server could not take, and what only one of two sites answered, are no signs of rest.
    let with = |change: fn(&mut ClosedRound)| {
        let mut run = run(&[0.0, 1.0, 1.0]);
        change(run.rounds.last_mut().unwrap());
        run
    };
    assert_eq!(told(&task, &with(|_| ())), Absent::NoNoise);
    assert_eq!(told(&task, &with(|last| last.included.clear())), Absent::Unsettled);
    assert_eq!(told(&task, &with(|last| last.correction = Some(vec![0.0; 4]))), Absent::Unsettled);
    let mut one_of_two = with(|_| ());
    one_of_two.rounds[1].included = vec![0, 1];
    assert_eq!(told(&task, &one_of_two), Absent::Unsettled);
    assert_eq!(told(&task, &run(&[])), Absent::Unsettled);
}
