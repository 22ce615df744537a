//! Every method as it ships: for every pair of a model and an update that a task may name one short federation of real processes. The tables
//! are in [`dp_pvi_catalogue`], whose tests name a model, an update or a pair that has no row.
//!
//! Every run ends with a posterior that can be read, a statement for every site, and ledgers that say what the transcript says, whose ε is what
//! `plan` announced before. Without protection the posterior is, bit by bit, that of the same federation in memory. That a method also learns is
//! shown elsewhere: here the data are few and the noise is large.

use std::collections::HashSet;
use std::fs;
use std::panic::catch_unwind;
use std::path::PathBuf;

use dp_pvi_names::PayloadKind;
use dp_pvi_posterior::task::ResolvedTask;
use dp_pvi_privacy::mechanism::{SumBound, SumMechanism};
use dp_pvi_results::document::PosteriorDocument;
use dp_pvi_tests::federation::{Federation, Party, run, side_by_side};
use dp_pvi_tests::memory;
use dp_pvi_tests::methods::{Data, MODELS, Model, Named, Trust, Update, resolve, sites, task, tried, tried_aggregated};
use dp_pvi_tests::statements::statements_cover_ledgers;
use serde_json::Value;

fn json(text: &str) -> Value {
    serde_json::from_str(text).unwrap()
}

/// Runs the pair from the first key to the last look into the ledgers.
fn once(model: &Model, update: &Update, trust: Trust) {
    let number = match trust {
        Trust::Local => 2,
        Trust::Aggregated(sites) => sites,
    };
    let sites = sites(model, update, number);
    let data = Data::of(model);
    let judge = Party::evaluator("judge", data.file(40, 10_000));
    let parties: Vec<Party> = sites.iter().cloned().chain([judge]).collect();
    let federation = Federation::new(&task(model, update, trust), &data.schema(), &parties);
    let aggregated = trust != Trust::Local;
    if aggregated {
        federation.enrol_summer();
    }
    let mut server = federation.start_server();
    let mut look = federation.client_command("site-1", &["plan", "--format", "json"]);
    let plan = json(&run(look.env("DP_PVI__SITE__SERVER", &server.address)));
    assert_eq!(plan["would_run"], true, "{plan}");
    let mut summer = aggregated.then(|| federation.start_summer(&server.address));
    let mut clients = federation.start_clients(&parties, &server.address);
    clients.iter_mut().for_each(|client| client.expect(0));
    server.process.expect(0);
    summer.iter_mut().for_each(|summer| summer.expect(0));

    statements_cover_ledgers(&federation);
    let text = fs::read_to_string(federation.home("server").join("results/posterior.json")).unwrap();
    let document = PosteriorDocument::from_json(&text).unwrap();
    let resolved = document.task().unwrap();
    assert_eq!(plan["task"], document.task_hash);
    check_statements(&document, &resolved, &plan, update);
    check_metrics(&document, model);
    assert!(fs::read_to_string(federation.home("server").join("results/report.html")).unwrap().trim_end().ends_with("</html>"));
    check_books(&federation, &sites, &resolved, &plan);
    if update.open {
        let files: Vec<(&str, PathBuf)> =
            sites.iter().map(|p| (p.name.as_str(), federation.home(&p.name).join("data/records.csv"))).collect();
        let simulated = memory::posterior(&resolved, files.iter().map(|(name, file)| (*name, file.as_path())));
        assert_eq!(document.natural_parameters, simulated, "processes and memory end at different posteriors");
    }
}

/// The evaluator reports of the last posterior what its family is judged by, and nothing else.
fn check_metrics(document: &PosteriorDocument, model: &Model) {
    let last = document.evaluations.iter().find(|e| e.round == document.rounds && e.metrics.log_likelihood.is_finite());
    let metrics = &last.expect("no evaluation").metrics;
    let is = |names: &[&str]| names.iter().any(|name| model.kind().starts_with(name));
    assert_eq!(metrics.deviance.is_some(), is(&["poisson", "negative-binomial"]), "{metrics:?}");
    // Few records may leave a count's law too wide to be summed.
    assert!(metrics.ranked_probability_score.is_some() || !is(&["ordinal"]), "{metrics:?}");
    assert!(metrics.ranked_probability_score.is_none() || is(&["ordinal", "poisson", "negative-binomial"]), "{metrics:?}");
    if is(&["multinomial", "ordinal"]) {
        assert_eq!((metrics.confusion.len(), metrics.class_reliability.len()), (3, 3), "{metrics:?}");
        assert_eq!(metrics.confusion.iter().flatten().sum::<u64>(), metrics.records, "{metrics:?}");
    }
}

/// One statement for every site, with the ε that was announced, at most the one that the task states.
fn check_statements(document: &PosteriorDocument, resolved: &ResolvedTask, plan: &Value, update: &Update) {
    assert_eq!(document.privacy.len(), document.task().unwrap().aggregation.map_or(2, |a| a.sites as usize));
    for statement in &document.privacy {
        assert_eq!((statement.unit, statement.trust), (resolved.privacy.unit, resolved.privacy.trust));
        assert_eq!(statement.releases, resolved.visits());
        assert_eq!(statement.epsilon, plan["epsilon_run"].as_f64(), "{statement:?}");
        assert_eq!(statement.fallback_epsilon, plan["fallback"]["epsilon_run"].as_f64(), "{statement:?}");
        match (update.open, statement.epsilon) {
            (true, None) => {}
            (false, Some(epsilon)) => assert!(epsilon > 1.9 && epsilon <= 2.0, "{epsilon}"),
            (open, epsilon) => panic!("open: {open}, with epsilon {epsilon:?}"),
        }
    }
}

/// The ledgers are whole, charged what was announced, and agree with the server's transcript about every update.
fn check_books(federation: &Federation, sites: &[Party], resolved: &ResolvedTask, plan: &Value) {
    let transcript = federation.home("server").join("transcript");
    let transcript = transcript.to_str().unwrap();
    run(&mut federation.server_command(&["export", "--transcript", transcript]));
    for site in sites {
        let ask = |arguments: &[&str]| json(&run(&mut federation.client_command(&site.name, arguments)));
        let verified = ask(&["ledger", "verify", "--transcript", transcript, "--format", "json"]);
        assert_eq!(verified["compared_with_transcript"], resolved.visits(), "{verified}");
        let budget = ask(&["budget", "show", "--format", "json"]);
        assert_eq!(budget["releases"], resolved.visits(), "{budget}");
        assert_eq!(budget["epsilon_spent"], plan["epsilon_run"], "{budget}");
        if resolved.aggregation.is_some() {
            assert_eq!(budget["epsilon_fallback"], plan["fallback"]["epsilon_run"], "{budget}");
        }
    }
}

/// Runs every row, and names those that fail.
fn in_lanes(rows: &[(&Model, &Update)], trust: Trust) {
    let failed = side_by_side(rows, |(model, update)| {
        let fails = catch_unwind(|| once(model, update, trust)).is_err();
        fails.then(|| format!("{}: {}", model.name, update.name))
    });
    let failed: Vec<String> = failed.into_iter().flatten().collect();
    assert!(failed.is_empty(), "failed: {failed:#?}");
}

fn local() -> Vec<(&'static Model, &'static Update)> {
    MODELS.iter().flat_map(|model| tried(model).into_iter().map(move |update| (model, update))).collect()
}

fn aggregated() -> Vec<(&'static Model, &'static Update)> {
    MODELS.iter().flat_map(|model| tried_aggregated(model).into_iter().map(move |update| (model, update))).collect()
}

/// What a site sends as a noised sum is compared with a public bound, whatever the model and the update are: one without a bound would be refused by
/// every server. The catalogue has every update of a task file.
#[test]
fn every_sum_on_a_lattice_has_a_bound() {
    let mut kinds = HashSet::new();
    let mut bounded = |model: &Model, update: &Update, trust: Trust| {
        let task = resolve(model, update, trust).unwrap();
        for visit in 0..task.visits() {
            let (form, name) = (task.message(visit).unwrap(), format!("{} with {}, visit {visit}", update.name, model.name));
            let sum = task.sum_of_site(visit, 60).unwrap();
            match form.kind {
                PayloadKind::Lattice { .. } => {
                    let (event, terms) = sum.unwrap_or_else(|| panic!("{name}: no sum"));
                    assert!(SumBound::of_event(&event, terms).is_some(), "{name}: no bound of {event:?}");
                }
                // The unmasked sum of all sites is what has a bound.
                PayloadKind::Masked { .. } => {
                    let mechanism =
                        task.sum(visit).unwrap().unwrap_or_else(|| panic!("{name}: no sum")).mechanism(&task.setting()).unwrap();
                    let SumMechanism::Shared(shares) = mechanism else { panic!("{name}: a masked vector without shares of noise") };
                    let _ = SumBound::of_shares(&shares, 3);
                }
                PayloadKind::Values => assert!(sum.is_none(), "{name}"),
            }
            kinds.insert(std::mem::discriminant(&form.kind));
        }
    };
    local().into_iter().for_each(|(model, update)| bounded(model, update, Trust::Local));
    aggregated().into_iter().for_each(|(model, update)| bounded(model, update, Trust::Aggregated(3)));
    assert_eq!(kinds.len(), 3, "every kind of payload was met");
}

#[test]
fn every_pair_runs_over_processes() {
    in_lanes(&local(), Trust::Local);
}

#[test]
fn every_sum_runs_over_a_summer() {
    in_lanes(&aggregated(), Trust::Aggregated(3));
}
