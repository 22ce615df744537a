//! The posterior for a site alone, after runs of real processes: what it is made of, who can read it, and that no one takes it for anything else.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use dp_pvi_posterior::task::ResolvedTask;
use dp_pvi_protocol::message::{Hello, MetricsReport, Refusal, Signed, Update};
use dp_pvi_results::document::PosteriorDocument;
use dp_pvi_tests::federation::{Federation, Party, complete, outcome, run};
use dp_pvi_tests::place::binary;
use dp_pvi_tests::regression::{Likelihood, Records, Schedule, Task};
use serde_json::Value;

fn sites(rows: usize) -> Vec<Party> {
    Records::generated(rows * 3, 3, 0).sites(&[rows; 3], Likelihood::Logistic)
}

/// `task.toml` of natural gradients over three sites, two of which count as honest.
fn natural_gradients(trust: &str) -> String {
    let aggregation = if trust == "aggregated" {
        "[aggregation]\nsites = 3\ndropouts = 0\ncolluders = 1\nmax_units = 4000\n"
    } else {
        "max_units = 1000000\n"
    };
    format!(
        "[model]\nfamily = \"logistic-regression\"\nformula = \"y ~ 0 + .\"\napproximation = \"full-covariance\"\n[schema]\nfile = \"schema.toml\"\n[pvi]\n\
         schedule = \"synchronous\"\nrounds = 5\nupdate = \"natural-gradient\"\n[privacy]\nunit = \"record\"\nadjacency = \"replace-one\"\n\
         epsilon = 2.0\ndelta = 1e-5\ntrust = \"{trust}\"\n{aggregation}"
    )
}

fn json(text: &str) -> Value {
    serde_json::from_str(text).unwrap()
}

fn result(federation: &Federation) -> PathBuf {
    federation.home("server").join("results/posterior.json")
}

/// Makes the personal posterior of a site; how the others are in it, and the file.
fn personalise(federation: &Federation, site: &str) -> (String, PathBuf) {
    let posterior = result(federation);
    let said =
        json(&run(&mut federation.client_command(site, &["personalise", "--posterior", posterior.to_str().unwrap(), "--format", "json"])));
    (said["others"].as_str().unwrap().to_owned(), PathBuf::from(said["file"].as_str().unwrap()))
}

fn numbers(document: &Value, field: &str) -> Vec<f64> {
    document["coefficients"].as_array().unwrap().iter().map(|c| c[field].as_f64().unwrap()).collect()
}

fn mode(path: &Path) -> u32 {
    fs::metadata(path).unwrap().permissions().mode() & 0o777
}

#[test]
fn a_personal_posterior_is_for_its_site_alone() {
    let parties = sites(2000);
    let federation =
        Federation::new(&natural_gradients("local"), &Task { schedule: Schedule::Synchronous(1), ..Task::default() }.schema(3), &parties);
    complete(&federation, &parties);
    let rows = |site: &str| run(&mut federation.client_command(site, &["ledger", "export"]));
    let before = rows("site-2");
    let (others, file) = personalise(&federation, "site-2");
    assert_eq!(others, "others-released");
    assert_eq!(rows("site-2"), before, "nothing is written to the ledger");

    // What it says first, who can read it, and that it knows more than the posterior of all.
    let text = fs::read_to_string(&file).unwrap();
    assert!(
        text.starts_with("{\n  \"private\": \"made from this site's records without noise: never send it, never publish it\","),
        "{}",
        &text[..90]
    );
    assert_eq!(mode(&file), 0o600);
    let (personal, global) = (json(&text), federation.posterior());
    for (personal, global) in numbers(&personal, "sd").iter().zip(numbers(&global, "sd")) {
        assert!(*personal < global, "{personal} against {global}");
    }
    // The generator's rule is 1.5, -1, 1.5 with every seventh label turned.
    let means = numbers(&personal, "mean");
    assert!(means[0] > 0.4 && means[1] < -0.2 && means[2] > 0.4, "{means:?}");

    // A run in which this site answered nothing has nothing to replace.
    let mut foreign = json(&fs::read_to_string(result(&federation)).unwrap());
    foreign["privacy"].as_array_mut().unwrap().retain(|statement| statement["site"] != "site-2");
    let place = federation.home("site-2").join("foreign.json");
    fs::write(&place, foreign.to_string()).unwrap();
    let (code, _, err) = outcome(&mut federation.client_command("site-2", &["personalise", "--posterior", place.to_str().unwrap()]));
    assert!(code == 4 && err.contains("has no part of site-2"), "{code} {err}");

    refused_by_every_reader(&federation, &file, &text);
    predictions_are_private(&federation, &file);

    refuses_other_records(&federation);

    // Without what the client kept of the run the site's exact part takes the place of what it sent.
    let state = federation.home("site-2").join("state");
    let history = fs::read_dir(&state).unwrap().flatten().find(|e| e.file_name().to_string_lossy().starts_with("history-")).unwrap().path();
    assert_eq!(mode(&history), 0o600);
    fs::remove_file(history).unwrap();
    assert_eq!(personalise(&federation, "site-2").0, "exact-factor");
}

/// Records that were changed after the run are noticed, and taken where the operator says so.
fn refuses_other_records(federation: &Federation) {
    let data = federation.home("site-2").join("data/records.csv");
    let good = fs::read_to_string(&data).unwrap();
    let (head, last) = good.trim_end().rsplit_once('\n').unwrap();
    fs::write(&data, format!("{head}\n")).unwrap();
    let posterior = result(federation);
    let try_it = |more: &[&str]| {
        let arguments = [&["personalise", "--posterior", posterior.to_str().unwrap()], more].concat();
        outcome(&mut federation.client_command("site-2", &arguments))
    };
    let (code, _, err) = try_it(&[]);
    assert!(code == 10 && err.contains("--changed-records") && !err.contains(last), "{code} {err}");
    let (code, _, err) = try_it(&["--changed-records"]);
    assert!(code == 0 && err.contains("the records of today"), "{code} {err}");
    fs::write(&data, good).unwrap();
    let (code, _, err) = try_it(&[]);
    assert!(code == 0 && !err.contains("records with which"), "{code} {err}");
    fs::remove_file(federation.home("site-2").join("state/ended-records-site-2.json")).unwrap();
    let (code, _, err) = try_it(&[]);
    assert!(code == 0 && err.contains("it is not known"), "{code} {err}");
}

/// No reader of posteriors or tasks takes the file, and no message of the protocol is made of it.
fn refused_by_every_reader(federation: &Federation, file: &Path, text: &str) {
    let path = file.to_str().unwrap();
    let data = federation.home("site-2").join("data/records.csv");
    let refuse = |arguments: &[&str], code: i32, words: &str| {
        let (found, out, err) = outcome(&mut federation.client_command("site-2", arguments));
        assert_eq!(found, code, "{arguments:?}: {err}");
        assert!(err.contains(words) && out.is_empty(), "{arguments:?}: {err}");
    };
    refuse(&["predict", "--posterior", path, "--data", data.to_str().unwrap()], 4, "personal posterior");
    refuse(&["personalise", "--posterior", path], 4, "personal posterior");
    refuse(&["plan", "--task", path], 4, "not a resolved task");
    let (code, said, _) = outcome(Command::new(binary("dp-pvi-verify")).arg(file));
    assert!(code == 1 && said.starts_with("refused: a site's personal posterior"), "{code} {said}");
    assert!(PosteriorDocument::from_json(text).is_err_and(|e| e.to_string().contains("must not leave that site")));
    assert!(ResolvedTask::from_document(text.as_bytes()).is_err());
    let bytes = text.as_bytes();
    assert!(Signed::<Update>::from_bytes(bytes).and_then(|m| m.peek()).is_err());
    assert!(Signed::<Hello>::from_bytes(bytes).and_then(|m| m.peek()).is_err());
    assert!(Signed::<Refusal>::from_bytes(bytes).and_then(|m| m.peek()).is_err());
    assert!(Signed::<MetricsReport>::from_bytes(bytes).and_then(|m| m.peek()).is_err());
    // A posterior of all is no personal one either.
    let global = result(federation);
    fs::set_permissions(&global, fs::Permissions::from_mode(0o600)).unwrap();
    refuse(&["predict", "--personal", global.to_str().unwrap(), "--data", data.to_str().unwrap()], 4, "not a personal posterior");
    refuse(&["predict", "--personal", path, "--posterior", path, "--data", data.to_str().unwrap()], 2, "cannot be used with");
    fs::set_permissions(file, fs::Permissions::from_mode(0o644)).unwrap();
    refuse(&["predict", "--personal", path, "--data", data.to_str().unwrap()], 2, "chmod 600");
    fs::set_permissions(file, fs::Permissions::from_mode(0o600)).unwrap();
}

/// What is predicted with it says so, and is for its owner's eyes, also in a file that others could read before.
fn predictions_are_private(federation: &Federation, file: &Path) {
    let path = file.to_str().unwrap();
    let data = federation.home("site-2").join("data/records.csv");
    let predict = |more: &[&str]| {
        let arguments = [&["predict", "--personal", path, "--data", data.to_str().unwrap()][..], more].concat();
        let (code, out, err) = outcome(&mut federation.client_command("site-2", &arguments));
        assert_eq!(code, 0, "{err}");
        assert!(err.contains("PRIVATE"), "{err}");
        out
    };
    assert_eq!(predict(&[]).lines().count(), 2001);
    assert!(predict(&["--format", "json"]).lines().all(|line| json(line)["private"] == true));
    let target = federation.home("site-2").join("predictions.csv");
    fs::write(&target, "").unwrap();
    fs::set_permissions(&target, fs::Permissions::from_mode(0o644)).unwrap();
    predict(&["-o", target.to_str().unwrap()]);
    assert_eq!(mode(&target), 0o600);
    assert_eq!(fs::read_to_string(target).unwrap().lines().next().unwrap(), "row,probability,lower,upper,problem");
}

/// Behind a summer no vector of a site is ever released: its exact terms are taken out of the sums.
#[test]
fn under_aggregated_trust_a_site_takes_its_exact_terms_out() {
    let parties = sites(2000);
    let schema = Task { schedule: Schedule::Synchronous(1), ..Task::default() }.schema(3);
    let federation = Federation::new(&natural_gradients("aggregated"), &schema, &parties);
    federation.enrol_summer();
    let mut server = federation.start_server();
    let mut summer = federation.start_summer(&server.address);
    let mut clients: Vec<_> = parties.iter().map(|p| federation.start_client(&p.name, &server.address)).collect();
    clients.iter_mut().for_each(|client| client.expect(0));
    server.process.expect(0);
    summer.expect(0);
    let (others, file) = personalise(&federation, "site-1");
    assert_eq!(others, "others-of-sums");
    let (personal, global) = (json(&fs::read_to_string(file).unwrap()), federation.posterior());
    for (personal, global) in numbers(&personal, "sd").iter().zip(numbers(&global, "sd")) {
        assert!(*personal < global, "{personal} against {global}");
    }
}

/// Without noise there is nothing to replace: where every site's factor is exact, the personal posterior is the posterior.
#[test]
fn without_noise_the_personal_posterior_is_the_posterior() {
    let task = Task { schedule: Schedule::Sequential(12), epsilon: None, full_covariance: true, ..Task::default() };
    let parties = sites(300);
    let federation = Federation::new(&task.toml(), &task.schema(3), &parties);
    complete(&federation, &parties);
    let (others, file) = personalise(&federation, "site-3");
    assert_eq!(others, "released-factor");
    let (personal, global) = (json(&fs::read_to_string(file).unwrap()), federation.posterior());
    for field in ["mean", "sd"] {
        for (personal, global) in numbers(&personal, field).iter().zip(numbers(&global, field)) {
            assert!((personal - global).abs() < 1e-3, "{field}: {personal} against {global}");
        }
    }
}
