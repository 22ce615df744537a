//! Sites against each other after runs of real processes, and posteriors without one of them.

use std::fs;

use dp_pvi_results::agreement::{Agreement, Verdict};
use dp_pvi_results::document::PosteriorDocument;
use dp_pvi_tests::federation::{Federation, Party, complete, outcome, run};
use dp_pvi_tests::regression::{Likelihood, Records, Schedule, Task};
use serde_json::Value;

const ROWS: usize = 1500;

/// Four sites of which the last one has its labels the other way round.
fn sites() -> Vec<Party> {
    let mut records = Records::generated(4 * ROWS, 3, 0);
    records.y[3 * ROWS..].iter_mut().for_each(|y| *y = 1.0 - *y);
    records.sites(&[ROWS; 4], Likelihood::Logistic)
}

fn federation(pvi: &str, epsilon: &str, parties: &[Party]) -> Federation {
    let task = format!(
        "[model]\nfamily = \"logistic-regression\"\nformula = \"y ~ 0 + .\"\napproximation = \"full-covariance\"\n[schema]\nfile = \"schema.toml\"\n[pvi]\n\
         schedule = \"synchronous\"\n{pvi}\n[privacy]\nunit = \"record\"\nadjacency = \"replace-one\"\n{epsilon}delta = 1e-5\ntrust = \"local\"\nmax_units = 1000000\n"
    );
    Federation::new(&task, &Task { schedule: Schedule::Synchronous(1), ..Task::default() }.schema(3), parties)
}

fn read(file: &str) -> PosteriorDocument {
    PosteriorDocument::from_json(&fs::read_to_string(file).unwrap()).unwrap()
}

fn result(federation: &Federation) -> PosteriorDocument {
    read(federation.home("server").join("results/posterior.json").to_str().unwrap())
}

/// Writes the posterior without a site into a folder and reads it.
fn without(federation: &Federation, site: &str) -> (PosteriorDocument, String) {
    let folder = federation.home("server").join("left");
    let said = run(&mut federation.server_command(&["export", "--without", site, "--out", folder.to_str().unwrap(), "--format", "json"]));
    let said: Value = serde_json::from_str(&said).unwrap();
    let file = said["files"][0].as_str().unwrap().to_owned();
    assert!(file.ends_with(&format!("posterior-without-{site}.json")), "{file}");
    assert!(!folder.join("posterior.json").exists(), "the run's own posterior stays where it was");
    (read(&file), file)
}

/// The test names the site whose labels are the other way round, and the posterior without it is near that of a federation which never had it.
#[test]
fn a_site_that_is_otherwise_is_named_and_divided_out() {
    let parties = sites();
    let natural = "rounds = 7\nupdate = \"natural-gradient\"";
    let all = federation(natural, "epsilon = 4.0\n", &parties);
    complete(&all, &parties);
    let document = result(&all);
    let Some(Agreement::Tested(tested)) = &document.agreement else { panic!("{:?}", document.agreement) };
    let verdicts: Vec<(&str, Verdict)> = tested.sites.iter().map(|site| (site.site.as_str(), site.verdict)).collect();
    assert_eq!(verdicts[3], ("site-4", Verdict::Differs), "{tested:?}");
    assert!(verdicts[..3].iter().all(|(_, verdict)| *verdict == Verdict::Ordinary), "{tested:?}");

    let (left, file) = without(&all, "site-4");
    let about = left.without.as_ref().unwrap();
    assert!(about.site.as_str() == "site-4" && about.remarks.iter().any(|remark| remark.contains("Nothing was erased")), "{about:?}");
    assert_eq!(left.privacy.len(), 4, "charges stay");
    assert!(left.agreement.is_none() && left.evaluations.is_empty() && left.intervals.complete);
    let others = &parties[..3];
    let never = federation(natural, "epsilon = 4.0\n", others);
    complete(&never, others);
    let never = result(&never);
    for ((left, never), all) in left.coefficients.iter().zip(&never.coefficients).zip(&document.coefficients) {
        let sd = left.sd.hypot(never.sd);
        assert!((left.mean - never.mean).abs() < 4.0 * sd, "{left:?} {never:?}");
        if left.name != "(intercept)" {
            assert!((left.mean - never.mean).abs() < (all.mean - never.mean).abs(), "{left:?} {never:?} {all:?}");
        }
    }

    // Predictions are made from it and say what it is; what cannot be made from it is refused.
    let data = all.home("site-1").join("data/records.csv");
    let (code, out, err) = outcome(&mut all.client_command("site-1", &["predict", "--posterior", &file, "--data", data.to_str().unwrap()]));
    assert!(code == 0 && out.lines().count() == ROWS + 1 && err.contains("these predictions are without site-4"), "{code} {err}");
    // A ledger says what it can of such a file, and what the file is.
    for (site, words) in
        [("site-1", "this site is in it as in the whole run"), ("site-4", "this site was divided out, and its charges stay")]
    {
        let text = run(&mut all.client_command(site, &["ledger", "verify", "--posterior", &file]));
        assert!(text.contains("without: the file is the run's posterior without site-4") && text.contains(words), "{text}");
    }
    let verified = run(&mut all.client_command("site-1", &["ledger", "verify", "--posterior", &file, "--format", "json"]));
    let verified: serde_json::Value = serde_json::from_str(&verified).unwrap();
    assert_eq!(verified["posterior"]["without"]["site"], "site-4");
    let (code, _, err) = outcome(&mut all.client_command("site-1", &["personalise", "--posterior", &file]));
    assert!(code == 4 && err.contains("is a posterior without site-4"), "{code} {err}");
    let refused = |site: &str, words: &str, expected: i32| {
        let (code, out, err) = outcome(&mut all.server_command(&["export", "--without", site]));
        assert!(code == expected && err.contains(words) && out.is_empty(), "{code} {err}");
    };
    refused("site-9", "there are site-1, site-2, site-3, site-4", 2);
}

/// A server that keeps nothing of closed rounds can do neither, and says so.
#[test]
fn what_was_not_kept_is_not_tested_and_not_divided() {
    let parties = Records::generated(400, 3, 0).sites(&[200; 2], Likelihood::Logistic);
    let federation = federation("rounds = 2\nupdate = \"natural-gradient\"", "epsilon = 4.0\n", &parties);
    let mut command = federation.server_command(&["run", "--format", "json"]);
    let mut server = federation.start_server_by(command.env("DP_PVI__STORE__KEEP_UPDATES", "open-round"));
    let mut clients: Vec<_> = parties.iter().map(|p| federation.start_client(&p.name, &server.address)).collect();
    clients.iter_mut().for_each(|client| client.expect(0));
    server.process.expect(0);
    let Some(Agreement::NotTested(reason)) = result(&federation).agreement else { panic!("nothing was kept") };
    assert!(reason.contains("keep_updates"), "{reason}");
    let (code, _, err) = outcome(&mut federation.server_command(&["export", "--without", "site-1"]));
    assert!(code == 1 && err.contains("did not keep what the sites sent"), "{code} {err}");
}

/// Without noise, one round and linear factors the run without a site is what the site's change is taken from.
#[test]
fn an_exact_factor_is_divided_out_exactly() {
    let parties = sites();
    let all = federation("rounds = 3\nupdate = \"pvi\"\ndamping = 0.5", "", &parties);
    complete(&all, &parties);
    let document = result(&all);
    let Some(Agreement::NotTested(reason)) = &document.agreement else { panic!("{:?}", document.agreement) };
    assert!(reason.contains("nothing was noised"), "{reason}");
    // Taken out one after the other, the sites' factors leave the prior.
    let total: Vec<f64> = parties.iter().fold(vec![0.0; document.natural_parameters.len()], |total, party| {
        let (left, _) = without(&all, &party.name);
        let arrival = left.without.as_ref().unwrap().remarks.last().unwrap();
        assert!(arrival.starts_with("Of the whole run: No noise was added, but the run had not settled"), "{arrival}");
        assert_eq!(left.intervals, document.intervals);
        total.iter().zip(&document.natural_parameters).zip(&left.natural_parameters).map(|((sum, all), left)| sum + all - left).collect()
    });
    let prior = document.task().unwrap().prior_natural();
    for ((all, total), prior) in document.natural_parameters.iter().zip(&total).zip(&prior) {
        assert!((all - total - prior).abs() < 1e-9 * (1.0 + all.abs()), "{all} {total} {prior}");
    }
}
