//! The asynchronous schedule over processes: sites of different speed, none of which waits for the others longer than the task allows, and
//! processes that are killed and started again. Books balance, nothing is charged twice, and without protection the run ends at the optimum
//! of all records.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use dp_pvi_client::config::Config;
use dp_pvi_client::keys;
use dp_pvi_data::load_public;
use dp_pvi_inference::models;
use dp_pvi_math::expfam::any::Gaussian;
use dp_pvi_privacy::Ledger;
use dp_pvi_privacy::ledger::RowBody;
use dp_pvi_programs::ledger::SqliteLedger;
use dp_pvi_protocol::message::{Signed, Update};
use dp_pvi_results::document::PosteriorDocument;
use dp_pvi_tests::crash::{CrashPoint, OCCURRENCE, POINT};
use dp_pvi_tests::federation::{Federation, Party, Process, Server, run};
use dp_pvi_tests::regression::{Likelihood, Records, Schedule, Task};
use dp_pvi_tests::statements::statements_cover_ledgers;
use serde_json::Value;

const STALENESS: u64 = 2;

fn task(sweeps: u32, update: &str, epsilon: &str) -> String {
    format!(
        "[model]\nfamily = \"logistic-regression\"\nformula = \"y ~ 0 + .\"\n[schema]\nfile = \"schema.toml\"\n[pvi]\nschedule = \"asynchronous\"\nsweeps = {sweeps}\n\
         max_staleness = {STALENESS}\nexpected_sites = 3\n{update}\n[privacy]\nunit = \"record\"\nadjacency = \"replace-one\"\n{epsilon}\
         delta = 1e-5\ntrust = \"local\"\nmax_units = 1000000\n"
    )
}

fn exact(sweeps: u32) -> String {
    task(sweeps, "update = \"pvi\"", "")
}

fn private(sweeps: u32) -> String {
    task(sweeps, "update = \"dp-optimisation\"\nsteps = 3", "epsilon = 2.0\n")
}

/// Three sites, each of which has ten times as much to do as the one before.
fn federation(task: &str, smallest: usize) -> (Federation, Vec<Party>) {
    let sizes = [smallest, 10 * smallest, 100 * smallest];
    let sites = Records::generated(sizes.iter().sum(), 3, 0).sites(&sizes, Likelihood::Logistic);
    (Federation::new(task, &Task { schedule: Schedule::Synchronous(1), ..Task::default() }.schema(3), &sites), sites)
}

/// Starts the server so that it is found at the same place when it is started again.
fn start(federation: &mut Federation) -> Server {
    let server = federation.start_server();
    federation.server_environment.insert("DP_PVI__SERVER__LISTEN".into(), server.address.clone());
    server
}

fn count(process: &Process, event: &str) -> usize {
    process.events().iter().filter(|e| e["event"] == event).count()
}

/// Waits until a process has told so many events of a kind.
fn wait_for(process: &Process, event: &str, number: usize) {
    process.wait_until(&format!("{number} times {event}"), |p| (count(p, event) >= number).then_some(()));
}

/// The rounds of the server's transcript.
fn transcript(federation: &Federation) -> Vec<Value> {
    let file = federation.home("server").join("transcript");
    run(&mut federation.server_command(&["export", "--transcript", file.to_str().unwrap()]));
    let text = fs::read_to_string(file).unwrap();
    text.lines().map(|line| serde_json::from_str::<Value>(line).unwrap()).filter(|line| line.get("round").is_some()).collect()
}

fn document(federation: &Federation) -> PosteriorDocument {
    PosteriorDocument::from_json(&fs::read_to_string(federation.home("server").join("results/posterior.json")).unwrap()).unwrap()
}

/// What a site's ledger says of the run.
struct Book {
    /// The round whose header an update answers, by the update's hash.
    answers: BTreeMap<String, u64>,
    /// λ_m.
    factor: Vec<f64>,
    /// Reservations.
    charged: usize,
}

fn book(home: &Path, document: &PosteriorDocument) -> Book {
    let config = Config::load(&home.join("client.toml")).unwrap();
    let private = config.private().unwrap();
    let store = SqliteLedger::open(&private.ledger).unwrap();
    let mut ledger = Ledger::open(store, keys::identity(&config.tls.identity).unwrap(), private.identity.clone(), private.budget).unwrap();
    let reserved: Vec<_> = ledger
        .rows()
        .iter()
        .filter_map(|(row, _)| match &row.body {
            RowBody::Reserved { release, .. } => Some(release.clone()),
            _ => None,
        })
        .collect();
    let mut answers = BTreeMap::new();
    for release in &reserved {
        // A reservation that was lost in a crash has none.
        let Some(message) = ledger.message(release).unwrap() else { continue };
        answers.insert(Signed::<Update>::from_bytes(&message).unwrap().hash().to_string(), release.round.into());
    }
    let factor = ledger.site_state(&reserved[0].run).unwrap().public(document.natural_parameters.len()).unwrap();
    Book { answers, factor, charged: reserved.len() }
}

/// Ledgers and transcript say the same; λ = λ0 + Σ λ_m; no update is later than the task allows; no one was charged for more than his visits.
/// Gives the rounds by which each included update was late.
fn check_books(federation: &Federation, sites: &[Party]) -> Vec<u64> {
    statements_cover_ledgers(federation);
    let document = document(federation);
    let task = document.task().unwrap();
    let mut lambda = task.prior_natural();
    let mut answers = BTreeMap::new();
    let rounds = transcript(federation);
    for site in sites {
        let file = federation.home("server").join("transcript");
        run(&mut federation.client_command(&site.name, &["ledger", "verify", "--transcript", file.to_str().unwrap()]));
        let book = book(&federation.home(&site.name), &document);
        assert!(book.charged <= task.visits() as usize, "{}: {} charges", site.name, book.charged);
        lambda.iter_mut().zip(&book.factor).for_each(|(sum, factor)| *sum += factor);
        answers.extend(book.answers);
    }
    // A logistic likelihood only adds precision: no floor has corrected anything, unless noise took it away.
    if !task.update.is_private() {
        for (j, (found, sum)) in document.natural_parameters.iter().zip(&lambda).enumerate() {
            assert!((found - sum).abs() <= 1e-9 * (1.0 + sum.abs()), "entry {j}: {found} is not prior and factors, {sum}");
        }
    }
    let mut late = Vec::new();
    for round in &rounds {
        for included in round["included"].as_array().unwrap() {
            let answered =
                answers.remove(included["update"].as_str().unwrap()).unwrap_or_else(|| panic!("counted twice, or unknown: {round}"));
            late.push(round["round"].as_u64().unwrap().checked_sub(answered).unwrap());
        }
    }
    assert!(late.iter().all(|late| *late <= STALENESS), "{late:?}");
    late
}

/// The optimum of all records on one machine.
fn optimum(federation: &Federation, document: &PosteriorDocument, sites: &[Party]) -> Vec<f64> {
    let file = federation.home("server").join("all.csv");
    let header = sites[0].csv.lines().next().unwrap();
    let rows = sites.iter().flat_map(|site| site.csv.lines().skip(1));
    fs::write(&file, std::iter::once(header).chain(rows).collect::<Vec<_>>().join("\n")).unwrap();
    let task = document.task().unwrap();
    let table = load_public(&task.parsed_schema().unwrap(), &[file], None).unwrap();
    let prior = Gaussian::from_natural(task.family(), task.prior_natural()).unwrap();
    let model = models::from_spec(&task.model).unwrap();
    model.local_optimum().unwrap().local_optimum(table.get(), &prior, &prior).unwrap().natural().to_vec()
}

/// Everything at once: three speeds, two sites and the server killed in the middle. The fixed point of partitioned variational inference is the
/// optimum of all records, whoever is late.
#[test]
fn sites_of_different_speed_end_at_the_optimum_of_all_records() {
    const SWEEPS: u32 = 80;
    let (mut federation, sites) = federation(&exact(SWEEPS), 20);
    let mut server = start(&mut federation);
    let mut clients: Vec<_> = sites.iter().map(|p| federation.start_client(&p.name, &server.address)).collect();
    for (site, visits) in [(1, 6), (2, 12)] {
        wait_for(&clients[site], "committed", visits);
        clients[site].kill();
        clients[site] = federation.start_client(&sites[site].name, &server.address);
    }
    wait_for(&server.process, "round-closed", 30);
    server.process.kill();
    server = federation.start_server();
    clients.iter_mut().for_each(|client| client.expect(0));
    server.process.expect(0);

    let late = check_books(&federation, &sites);
    // Every visit of every site is in the posterior, once; a site that was killed may have lost the one that it was computing.
    let all = 3 * SWEEPS as usize;
    assert!((all - 2..=all).contains(&late.len()), "{} of {all} updates", late.len());
    let some = late.iter().filter(|late| **late > 0).count();
    let rounds = document(&federation).rounds;
    // No one waited for everyone.
    assert!(some > late.len() / 20 && rounds > SWEEPS, "{some} late updates in {rounds} rounds");
    let document = document(&federation);
    for (found, expected) in document.natural_parameters.iter().zip(optimum(&federation, &document, &sites)) {
        assert!((found - expected).abs() < 1e-6 * (1.0 + expected.abs()), "{found} {expected}");
    }
}

/// A protected site that is killed at any arrow of its ledger goes on; every visit is charged once, and costs what was announced.
#[test]
fn a_site_that_is_killed_anywhere_is_charged_once_a_visit() {
    const VISITS: u32 = 4;
    for point in CrashPoint::ALL {
        let (mut federation, sites) = federation(&private(VISITS), 10);
        let mut server = start(&mut federation);
        let mut look = federation.client_command("site-2", &["plan", "--format", "json"]);
        let plan: Value = serde_json::from_str(&run(look.env("DP_PVI__SITE__SERVER", &server.address))).unwrap();
        let mut others: Vec<_> = [&sites[0], &sites[2]].iter().map(|p| federation.start_client(&p.name, &server.address)).collect();
        let crashing = Path::new(env!("CARGO_BIN_EXE_crashing-client"));
        let mut command = federation.client_command_of(crashing, "site-2", &["run", "--format", "json"]);
        command.env(POINT, point.name()).env(OCCURRENCE, "2");
        assert_eq!(federation.start("site-2", &server.address, command).wait().code(), None, "killed by a signal, not ended by itself");
        federation.start_client("site-2", &server.address).expect(0);
        others.iter_mut().for_each(|client| client.expect(0));
        server.process.expect(0);
        let updates = check_books(&federation, &sites).len();
        // A reservation whose round is over when the site is back is lost: its λ is gone. The charge stays, and the site has one visit less.
        let lost = usize::from(point == CrashPoint::Reserved);
        assert!((3 * VISITS as usize - lost..=3 * VISITS as usize).contains(&updates), "{}: {updates}", point.name());
        assert!(document(&federation).plain.is_none(), "a late update's noise is not that of the recursion");
        for site in &sites {
            let budget: Value =
                serde_json::from_str(&run(&mut federation.client_command(&site.name, &["budget", "show", "--format", "json"]))).unwrap();
            assert_eq!((&budget["releases"], &budget["epsilon_spent"]), (&VISITS.into(), &plan["epsilon_run"]), "{}", point.name());
        }
    }
}

/// A site that is away holds no one up for longer than one deadline, and where it comes back its books balance.
#[test]
fn a_site_that_is_away_costs_one_deadline() {
    const SWEEPS: u32 = 8;
    for back in [false, true] {
        let (mut federation, sites) = federation(&exact(SWEEPS), 10);
        federation.server_environment.insert("DP_PVI__PHASES__MIN_SITES".into(), "2".into());
        federation.server_environment.insert("DP_PVI__PHASES__UPDATE_DEADLINE".into(), "5s".into());
        let mut server = start(&mut federation);
        // The victim's ledger ends it at its third reservation, so that all three have joined.
        let crashing = Path::new(env!("CARGO_BIN_EXE_crashing-client"));
        let mut command = federation.client_command_of(crashing, "site-3", &["run", "--format", "json"]);
        command.env(POINT, CrashPoint::Committed.name()).env(OCCURRENCE, "3");
        let mut victim = federation.start("site-3", &server.address, command);
        let mut others: Vec<_> = sites[..2].iter().map(|p| federation.start_client(&p.name, &server.address)).collect();
        assert_eq!(victim.wait().code(), None);
        if back {
            server.process.wait_for("a deadline has passed", |e| e["event"] == "round-closed" && e["outcome"] != "complete");
            federation.start_client("site-3", &server.address).expect(0);
        }
        others.iter_mut().for_each(|client| client.expect(0));
        server.process.expect(0);
        let missed = transcript(&federation).iter().filter(|round| round["outcome"] != "complete").count();
        assert_eq!(missed, 1, "back: {back}");
        let late = check_books(&federation, &sites);
        assert!(late.len() >= 2 * SWEEPS as usize + 2, "{} updates", late.len());
    }
}
