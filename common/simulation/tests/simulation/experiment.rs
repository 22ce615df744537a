//! `dp-pvi-sim` from its files to its last line.

use std::path::Path;
use std::process::{Command, Output};

use serde_json::Value;

const EXPERIMENT: &str = r#"
name = "small"
seeds = [1, 2]

[task.model]
family = "logistic-regression"
outcome = "cardiac_event"
[task.schema]
file = "schema.toml"
[task.pvi]
schedule = "sequential"
sweeps = 6
update = "dp-optimisation"
expected_sites = 3
[task.privacy]
unit = "record"
adjacency = "replace-one"
epsilon = 4.0
delta = 1e-5
trust = "local"
max_units = 1000000

[data]
files = ["hospital-1.csv", "hospital-2.csv", "hospital-3.csv"]
test_fraction = 0.25

[clients]
number = 4
"#;

fn simulate(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_dp-pvi-sim")).args(arguments).output().unwrap()
}

/// A directory with generated hospitals and the experiment.
fn directory() -> tempfile::TempDir {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().to_str().unwrap();
    let made = simulate(&["generate", "hospitals", "-o", path, "--rows", "400", "--seed", "3"]);
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    std::fs::write(directory.path().join("small.toml"), EXPERIMENT).unwrap();
    directory
}

fn run(directory: &Path, file: &str, more: &[&str]) -> Output {
    let file = directory.join(file);
    let mut arguments = vec!["run", file.to_str().unwrap(), "--data", directory.to_str().unwrap(), "--format", "json", "-q"];
    arguments.extend(more);
    simulate(&arguments)
}

fn lines(output: &Output) -> Vec<Value> {
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout.clone()).unwrap().lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[test]
fn an_experiment_prints_its_rounds_its_runs_and_a_summary() {
    let directory = directory();
    let lines = lines(&run(directory.path(), "small.toml", &[]));
    let of = |kind: &str| lines.iter().filter(|line| line["kind"] == kind).collect::<Vec<_>>();
    assert_eq!((of("round").len(), of("seed").len(), of("summary").len()), (2 * 6 * 4, 2, 1));
    let summary = lines.last().unwrap();
    assert_eq!(summary["kind"], "summary");
    assert_eq!(summary["client_updates"], 24);
    for key in ["test_log_likelihood_mean", "test_log_likelihood_se", "accuracy_mean", "accuracy_se", "epsilon_se", "cpu_seconds"] {
        assert!(summary[key].is_number(), "{key}");
    }
    let epsilon = summary["epsilon"].as_f64().unwrap();
    assert!(epsilon <= 4.0 && epsilon > 3.9, "{epsilon}");
    let likelihoods: Vec<f64> = of("seed").iter().map(|line| line["log_likelihood"].as_f64().unwrap()).collect();
    assert!((summary["test_log_likelihood_mean"].as_f64().unwrap() - (likelihoods[0] + likelihoods[1]) / 2.0).abs() < 1e-12);
    // ε grows by visits: at the first round one client has one visit and the others none.
    let first = of("round")[0];
    let spent: Vec<f64> = first["epsilon"].as_object().unwrap().values().map(|e| e.as_f64().unwrap()).collect();
    assert_eq!(spent.iter().filter(|e| **e > 0.0).count(), 1);
    // It learned something: better than answering the base rate.
    assert!(likelihoods.iter().all(|l| *l > -0.66), "{likelihoods:?}");
}

#[test]
fn faults_and_threads_change_no_figure() {
    let directory = directory();
    let calm = lines(&run(directory.path(), "small.toml", &["--threads", "1"]));
    let faults = "\n[faults]\ndrop_request = 0.1\ndrop_response = 0.1\nduplicate = 0.1\nreplay = 0.1\ndelay_milliseconds = 500\ncrash_site = 0.05\ncrash_server = 0.05\n";
    std::fs::write(directory.path().join("stormy.toml"), format!("{EXPERIMENT}{faults}")).unwrap();
    let stormy = lines(&run(directory.path(), "stormy.toml", &["--threads", "2"]));
    let rounds = |lines: &[Value]| lines.iter().filter(|line| line["kind"] == "round").cloned().collect::<Vec<_>>();
    assert_eq!(rounds(&calm), rounds(&stormy));
    let crashes: u64 = stormy.iter().filter_map(|line| line["site_crashes"].as_u64()).sum();
    assert!(crashes > 0);
    // One seed: the threads are the sites'.
    let together = ["--seeds", "1", "--set", "task.pvi={ schedule = \"synchronous\", rounds = 3, update = \"dp-optimisation\" }"];
    let of = |file, threads| rounds(&lines(&run(directory.path(), file, &[&together[..], &["--threads", threads]].concat())));
    let alone = of("small.toml", "1");
    assert_eq!(alone.len(), 3);
    assert_eq!(alone, of("small.toml", "3"));
    assert_eq!(alone, of("stormy.toml", "3"));
}

/// Secure aggregation from an experiment file, by other values for its keys: the sum is protected as the task states, and the summary says what
/// is left at worst.
#[test]
fn an_aggregated_experiment_states_both_losses() {
    let directory = directory();
    let pvi = "task.pvi={ schedule = \"synchronous\", rounds = 4, update = \"natural-gradient\" }";
    let trust = ["--set", "task.privacy.trust=aggregated", "--set", "task.aggregation={ max_units = 400 }"];
    let common = [
        "--set",
        pvi,
        "--set",
        "clients.number=5",
        "--set",
        "phases.min_sites=5",
        "--seeds",
        "1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17,18,19,20,21,22,23,24",
        "--set",
        "task.privacy.epsilon=2",
    ];
    // Under aggregated trust the bound is in [aggregation].
    std::fs::write(directory.path().join("sum.toml"), EXPERIMENT.replace("max_units = 1000000\n", "")).unwrap();
    let summary = |file: &str, more: &[&str]| lines(&run(directory.path(), file, &[&common, more].concat())).pop().unwrap();
    let (local, aggregated) = (summary("small.toml", &[]), summary("sum.toml", &trust));
    for line in [&local, &aggregated] {
        let epsilon = line["epsilon"].as_f64().unwrap();
        assert!(epsilon <= 2.0 && epsilon > 1.99, "{line}");
        assert_eq!(line["client_updates"], 20);
    }
    // Four honest shares: mu is twice the joint one's.
    let worst = aggregated["epsilon_fallback"].as_f64().unwrap();
    assert!(local["epsilon_fallback"].is_null() && worst > 4.0 && worst < 5.5, "{worst}");
    // With the same guarantee the sum has half of the noise that five sites add alone, and more. Over two seeds chance would decide.
    let likelihood = |line: &Value| line["test_log_likelihood_mean"].as_f64().unwrap();
    assert!(likelihood(&aggregated) > likelihood(&local), "{} {}", likelihood(&aggregated), likelihood(&local));
}

#[test]
fn every_mistake_has_its_exit_code_and_says_what_is_wrong() {
    let directory = directory();
    let fails = |name: &str, text: &str, code: i32, words: &str| {
        std::fs::write(directory.path().join(name), text).unwrap();
        let output = run(directory.path(), name, &[]);
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(code), "{said}");
        assert!(said.contains(words), "{said}");
    };
    fails("key.toml", &EXPERIMENT.replace("number = 4", "numbers = 4"), 2, "numbers");
    fails("task.toml", &EXPERIMENT.replace("sweeps = 6", "rounds = 6"), 2, "sweeps");
    fails("fraction.toml", &EXPERIMENT.replace("test_fraction = 0.25", "test_fraction = 1.5"), 2, "test_fraction");
    fails("kappa.toml", &EXPERIMENT.replace("number = 4", "number = 4\nkappa = -3.0"), 2, "kappa");
    fails("missing.toml", &EXPERIMENT.replace("hospital-3.csv", "hospital-9.csv"), 10, "hospital-9.csv");
    std::fs::write(directory.path().join("broken.csv"), "age,nothing\n1,2\n").unwrap();
    fails("broken.toml", &EXPERIMENT.replace("hospital-3.csv", "broken.csv"), 10, "broken.csv");
    for (setting, words) in [("clients", "KEY=VALUE"), ("clients..number=3", "KEY=VALUE"), ("=3", "KEY=VALUE")] {
        let output = run(directory.path(), "small.toml", &["--set", setting]);
        assert_eq!(output.status.code(), Some(2));
        assert!(String::from_utf8_lossy(&output.stderr).contains(words), "{setting}");
    }
    for (setting, words) in [("clients.numbers=3", "numbers"), ("task.privacy.epsilon=-1", "psilon"), ("seeds.more=1", "section")] {
        let output = run(directory.path(), "small.toml", &["--set", setting]);
        assert_eq!(output.status.code(), Some(2), "{setting}");
        assert!(String::from_utf8_lossy(&output.stderr).contains(words), "{}", String::from_utf8_lossy(&output.stderr));
    }
    let absent = run(directory.path(), "absent.toml", &[]);
    assert_eq!(absent.status.code(), Some(4));
    assert_eq!(simulate(&["run"]).status.code(), Some(2));
}

/// The asynchronous schedule from an experiment file: every client has its visits, and pays what the task says.
#[test]
fn an_asynchronous_experiment_runs_to_its_end() {
    let directory = directory();
    let schedule = "schedule = \"asynchronous\"\nsweeps = 6\nmax_staleness = 2";
    let faults = "\n[faults]\ndelay_milliseconds = 3000\n";
    let text = EXPERIMENT.replace("schedule = \"sequential\"\nsweeps = 6", schedule) + faults;
    std::fs::write(directory.path().join("asynchronous.toml"), text).unwrap();
    let lines = lines(&run(directory.path(), "asynchronous.toml", &[]));
    let summary = lines.last().unwrap();
    assert_eq!(summary["client_updates"], 24);
    assert!(summary["epsilon"].as_f64().unwrap() <= 4.0);
    assert!(summary["test_log_likelihood_mean"].as_f64().unwrap() > -0.68, "{summary}");
    // More rounds than a synchronous run would have: no one waits for everyone.
    assert!(lines.iter().filter(|line| line["kind"] == "round").count() > 2 * 10);
}

/// An experiment that `tune` takes: a file for each site, and public test records.
fn tunable() -> String {
    EXPERIMENT
        .replace("test_fraction = 0.25", "test_files = [\"evaluation.csv\"]")
        .replace("number = 4", "slicing = \"files\"")
        .replace("replace-one", "add-remove")
}

const TUNE: &str =
    "\n[tune]\nepsilon = 8.0\nexpected_trials = 5\n[[tune.candidates]]\nlearning_rate = 0.3\n[[tune.candidates]]\nlearning_rate = 1e-6\n";

/// R7: the whole choice is paid for before the first trial, and nothing but the best is told.
#[test]
fn a_private_choice_costs_what_it_says_and_tells_the_best_alone() {
    let directory = directory();
    let file = directory.path().join("tune.toml");
    let tune = |text: String, more: &[&str]| {
        std::fs::write(&file, text).unwrap();
        let fixed = ["tune", file.to_str().unwrap(), "--data", directory.path().to_str().unwrap(), "--format", "json"];
        lines(&simulate(&[&fixed[..], more].concat()))
    };
    let plan = tune(tunable() + TUNE, &["--plan"]);
    assert_eq!(plan.len(), 1);
    let number = |key: &str| plan[0][key].as_f64().unwrap();
    assert!(number("epsilon") <= 8.0 && number("epsilon") > 7.9, "{}", plan[0]);
    // The choice between trials is not free, and all of them together do not cost five times one.
    assert!(number("epsilon_of_a_trial") < 0.8 * 8.0 && number("epsilon_of_a_trial") > 8.0 / 5.0, "{}", plan[0]);
    assert_eq!((number("delta"), plan[0]["event"][1].as_f64().unwrap()), (1e-5, 0.5e-5));
    // Every candidate is as good as the other, so that whichever is drawn ends well.
    let chosen = tune(tunable() + &TUNE.replace("1e-6", "0.25"), &["--no-ledger"]);
    assert_eq!(chosen.len(), 2);
    assert!(chosen[1]["candidate"].as_u64().unwrap() < 2);
    assert!(chosen[1]["log_likelihood"].as_f64().unwrap() > -0.69, "{}", chosen[1]);
    // The statement is what the ledgers book.
    let booked = format!("epsilon {:.4} at delta {:e}, before the first trial", chosen[0]["epsilon"].as_f64().unwrap(), 1e-5);
    assert_eq!(chosen[1]["booked"], booked.as_str());

    // What is no section, and what no trial can pay for.
    for (text, words) in [
        (tunable(), "[tune] is missing"),
        (tunable() + &TUNE.replace("expected_trials = 5", "expected_trials = 0"), "expected_trials"),
        (tunable() + &TUNE.replace("learning_rate = 1e-6", "learning_rat = 1"), "learning_rat"),
    ] {
        std::fs::write(&file, text).unwrap();
        let refused = simulate(&["tune", file.to_str().unwrap(), "--plan"]);
        assert_eq!(refused.status.code(), Some(2));
        assert!(String::from_utf8_lossy(&refused.stderr).contains(words), "{}", String::from_utf8_lossy(&refused.stderr));
    }
}

/// No seed that anyone knows takes part: the same command releases another posterior every time.
#[test]
fn noise_and_coins_of_tune_come_from_the_operating_system() {
    let directory = directory();
    let file = directory.path().join("tune.toml");
    std::fs::write(&file, tunable() + &TUNE.replace("expected_trials = 5", "expected_trials = 1").replace("1e-6", "0.3")).unwrap();
    let arguments = ["tune", file.to_str().unwrap(), "--data", directory.path().to_str().unwrap(), "--format", "json", "--no-ledger"];
    let lambda = || lines(&simulate(&arguments))[1]["lambda"].clone();
    let first = lambda();
    assert!(first.as_array().unwrap().len() > 2);
    assert_ne!(first, lambda());
    let refused = simulate(&[&arguments[..], &["--seed", "1"]].concat());
    assert_eq!(refused.status.code(), Some(2));
}

/// Nothing but a trial looks at a private record.
#[test]
fn tune_looks_at_no_private_record_outside_a_trial() {
    let directory = directory();
    let file = directory.path().join("tune.toml");
    let one_table = tunable().replace("slicing = \"files\"", "number = 4").replace("add-remove", "replace-one");
    for (text, words) in [
        (EXPERIMENT.to_owned(), "test_files"),
        (one_table.replace("[clients]", "balance = true\n[clients]"), "balance"),
        (one_table.replace("[clients]", "limit = 100\n[clients]"), "limit"),
        (one_table.replace("number = 4", "number = 4\nkappa = 0.5\nrho = 0.5"), "kappa"),
        (one_table.replace("replace-one", "add-remove"), "slicing"),
        (tunable().replace("evaluation.csv", "hospital-1.csv"), "private files"),
    ] {
        std::fs::write(&file, text + TUNE).unwrap();
        let refused = simulate(&["tune", file.to_str().unwrap(), "--data", directory.path().to_str().unwrap(), "--no-ledger"]);
        let message = String::from_utf8_lossy(&refused.stderr);
        assert!(refused.status.code() == Some(2) && message.contains(words), "{words}: {message}");
    }
    std::fs::write(&file, one_table + TUNE).unwrap();
    let plan = simulate(&["tune", file.to_str().unwrap(), "--plan"]);
    assert!(plan.status.success(), "{}", String::from_utf8_lossy(&plan.stderr));
}

/// Every selection is written down: the next one on the same records reads it, whatever its sites are, and a budget holds all of them.
#[test]
fn every_selection_is_booked_in_a_ledger_that_the_next_one_reads() {
    let directory = directory();
    let (file, ledger) = (directory.path().join("tune.toml"), directory.path().join("ledger"));
    std::fs::write(&file, tunable() + &TUNE.replace("expected_trials = 5", "expected_trials = 1").replace("1e-6", "0.3")).unwrap();
    let tune = |more: &[&str]| {
        let fixed = ["tune", file.to_str().unwrap(), "--data", directory.path().to_str().unwrap(), "--format", "json"];
        simulate(&[&fixed[..], more].concat())
    };
    let booked = |output: &Output| {
        let words = lines(output)[1]["booked"].as_str().unwrap().to_owned();
        words.strip_prefix("epsilon ").unwrap().split(' ').next().unwrap().parse::<f64>().unwrap()
    };
    // Where it is booked has to be said.
    assert_eq!(tune(&[]).status.code(), Some(2));
    let folder = ["--ledger", ledger.to_str().unwrap()];
    let first = booked(&tune(&folder));
    assert!(first > 7.9 && first <= 8.0, "{first}");
    let second = tune(&folder);
    let message = String::from_utf8_lossy(&second.stderr).into_owned();
    assert_eq!(second.status.code(), Some(8), "{message}");
    assert!(message.contains("nothing was run") && message.contains("budget of 8"), "{message}");
    // It was not charged: with a wider budget two selections are booked, and no more.
    let wider = tune(&[&folder[..], &["--budget-epsilon", "20", "--budget-delta", "2e-5"]].concat());
    let both = booked(&wider);
    assert!(both > first && both <= 20.0, "{both}");
    // A ledger that is taken away is not made anew.
    std::fs::remove_file(ledger.join("tune.ledger")).unwrap();
    let lost = tune(&folder);
    assert_eq!(lost.status.code(), Some(12));
    assert!(String::from_utf8_lossy(&lost.stderr).contains("put it back"), "{}", String::from_utf8_lossy(&lost.stderr));
}

/// A process that holds private records leaves no core file.
#[test]
fn the_simulation_leaves_no_core() {
    let directory = directory();
    let file = directory.path().join("small.toml");
    let mut child = Command::new(env!("CARGO_BIN_EXE_dp-pvi-sim"))
        .args(["run", file.to_str().unwrap(), "--data", directory.path().to_str().unwrap(), "-q"])
        .stdout(std::process::Stdio::null())
        .spawn()
        .unwrap();
    let limits = std::path::PathBuf::from(format!("/proc/{}/limits", child.id()));
    let forbidden = || {
        let limits = std::fs::read_to_string(&limits).ok()?;
        let core = limits.lines().find(|line| line.starts_with("Max core file size"))?.to_owned();
        (core.split_whitespace().filter(|word| *word == "0").count() == 2).then_some(())
    };
    // The first thing that it does, long before the run is over.
    let seen = (0..2000).any(|_| {
        std::thread::sleep(std::time::Duration::from_millis(1));
        forbidden().is_some()
    });
    child.wait().unwrap();
    assert!(seen);
}

/// Every experiment in deploy/ resolves, with the schema and the task that it names.
#[test]
fn the_samples_are_experiments() {
    use dp_pvi_simulation::experiment::Experiment;
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy/experiments");
    let mut read = 0;
    for entry in std::fs::read_dir(folder).unwrap().flatten() {
        let path = entry.path();
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        if !name.ends_with(".toml") || name.ends_with(".task.toml") {
            continue;
        }
        if name.ends_with(".schema.toml") {
            dp_pvi_schema::Schema::parse(&std::fs::read_to_string(&path).unwrap()).unwrap_or_else(|e| panic!("{name}: {e}"));
            continue;
        }
        let experiment = Experiment::read(&path).unwrap_or_else(|e| panic!("{name}: {e}"));
        experiment.resolve(&path).unwrap_or_else(|e| panic!("{name}: {e}"));
        read += 1;
    }
    assert!(read >= 6);
}

/// Metrics at every fifth round and the last one are those of a run that computes them at every round; the run is the same.
#[test]
fn metrics_may_be_computed_now_and_then() {
    let directory = directory();
    let write = |name: &str, text: &str| std::fs::write(directory.path().join(name), text).unwrap();
    write("now-and-then.toml", &EXPERIMENT.replace("seeds = [1, 2]", "seeds = [1]\nevaluate_every = 5"));
    write("all.toml", &EXPERIMENT.replace("seeds = [1, 2]", "seeds = [1]"));
    let some = lines(&run(directory.path(), "now-and-then.toml", &[]));
    let all = lines(&run(directory.path(), "all.toml", &[]));
    let rounds = |lines: &[Value]| lines.iter().filter(|line| line["kind"] == "round").cloned().collect::<Vec<_>>();
    let expected: Vec<Value> = [4, 9, 14, 19, 23].map(|round: usize| rounds(&all)[round].clone()).to_vec();
    assert_eq!(rounds(&some), expected);
    assert_eq!(some[some.len() - 2], all[all.len() - 2]);
}

/// A limit on the units leaves other records, and says so by the result.
#[test]
fn a_limit_keeps_fewer_records() {
    let directory = directory();
    let text = EXPERIMENT.replace("test_fraction = 0.25", "test_fraction = 0.25\nlimit = 600\nbalance = true").replace("[1, 2]", "[1]");
    std::fs::write(directory.path().join("limited.toml"), text).unwrap();
    let limited = lines(&run(directory.path(), "limited.toml", &[]));
    let whole = lines(&run(directory.path(), "small.toml", &["--seeds", "1"]));
    let end = |lines: &[Value]| lines[lines.len() - 2]["log_likelihood"].as_f64().unwrap();
    assert!((end(&limited) - end(&whole)).abs() > 1e-6);
}

#[test]
fn a_column_of_the_data_makes_the_clients() {
    let directory = directory();
    let by_ward =
        EXPERIMENT.replace("number = 4", "slicing = \"column\"\ncolumn = \"ward\"\nvalues = [\"surgery\", \"medicine\", \"geriatrics\"]");
    std::fs::write(directory.path().join("ward.toml"), &by_ward).unwrap();
    let lines = lines(&run(directory.path(), "ward.toml", &["--seeds", "1"]));
    let clients = lines.iter().rev().find(|line| line["kind"] == "round").unwrap()["epsilon"].as_object().unwrap();
    assert_eq!(clients.keys().collect::<Vec<_>>(), ["client-1", "client-2", "client-3"]);
    for (from, to, expected) in [
        ("\"surgery\"", "\"maternity\"", "no unit's first record has \"maternity\""),
        ("column = \"ward\"\n", "", "needs column and values"),
        ("slicing = \"column\"\n", "number = 3\n", "needs column and values"),
        ("slicing = \"column\"\n", "slicing = \"column\"\nnumber = 4\n", "leave number out"),
        ("slicing = \"column\"\n", "slicing = \"column\"\nrho = 0.5\n", "leave rho and kappa out"),
    ] {
        std::fs::write(directory.path().join("wrong.toml"), by_ward.replace(from, to)).unwrap();
        let output = run(directory.path(), "wrong.toml", &[]);
        let error = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.code() == Some(2) && error.contains(expected), "{error}");
    }
}

/// The experiment of the guide on files of the generator: the log-likelihood of the fit is near that of the truth.
#[test]
fn the_survival_study_runs_on_generated_files_and_reports_concordance() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().to_str().unwrap();
    assert!(simulate(&["generate", "survival", "-o", path]).status.success());
    let experiments = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy/experiments");
    let read = |path: &Path| std::fs::read_to_string(path).unwrap();
    assert_eq!(read(&directory.path().join("schema.toml")), read(&experiments.join("survival.schema.toml")));
    let truth: Value = serde_json::from_str(&read(&directory.path().join("truth.json"))).unwrap();
    let file = experiments.join("survival.toml");
    let more = ["--seeds", "1", "--set", "task.privacy.epsilon=4.0", "--format", "json", "-q"];
    let output = simulate(&[&["run", file.to_str().unwrap(), "--data", path], &more[..]].concat());
    let summary = lines(&output).pop().unwrap();
    let near = |found: &str, stated: &str, most: f64| {
        let (found, stated) = (summary[found].as_f64().unwrap(), truth[stated].as_f64().unwrap());
        assert!((found - stated).abs() < most, "{found} {stated}");
    };
    near("test_log_likelihood_mean", "evaluation_log_likelihood", 0.02);
    near("auc_mean", "evaluation_concordance", 0.01);

    // A bound on a site's records that is so large that the sum would have to be rounded is named.
    let output =
        simulate(&[&["run", file.to_str().unwrap(), "--data", path, "--set", "task.aggregation.max_units=100000000"], &more[..]].concat());
    let error = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.code() == Some(9) && error.contains("lower [task.aggregation] max_units"), "{error}");
}

/// Under whatever name: a certificate in place of the questions would be their end.
#[test]
fn no_answer_takes_the_place_of_the_question() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let events = "GaussianDpEvent(noise_multiplier=5.0)";
    std::fs::write(at("events"), events).unwrap();
    std::fs::hard_link(at("events"), at("second")).unwrap();
    std::os::unix::fs::symlink(at("events"), at("link")).unwrap();
    for output in ["events", "second", "link"].map(at) {
        for flag in ["--curves", "--plot", "--certificate"] {
            let ended = simulate(&["account", "--events", &at("events"), "--relation", "add-remove", flag, &output]);
            let said = String::from_utf8(ended.stderr).unwrap();
            assert!(ended.status.code() == Some(2) && said.contains("name another file"), "{flag}: {said}");
            assert_eq!(std::fs::read_to_string(at("events")).unwrap(), events);
        }
    }
    let ended = simulate(&["account", "--events", &at("events"), "--relation", "add-remove", "--curves", &at("curves.csv")]);
    assert!(ended.status.success() && std::fs::metadata(at("curves.csv")).is_ok());
}
