//! Aggregated runs with real processes over TLS: a coordinator, a summer and five sites, none of which sees another's vector.
//! What is summed is proved bit for bit in `dp-pvi-simulation`; here: that the shipped programs agree on a charter, keep their books, live with
//! sites that vanish before and after their upload, and end with a name where too few are left.

use std::fs;
use std::path::Path;

use dp_pvi_tests::crash::{CrashPoint, OCCURRENCE, POINT};
use dp_pvi_tests::federation::{Federation, Party, Process, outcome, run};
use dp_pvi_tests::regression::{Likelihood, Records, Schedule, Task};
use dp_pvi_tests::statements::statements_cover_ledgers;
use serde_json::Value;

const SITES: usize = 5;

const NATURAL_GRADIENT: (&str, &str) = ("family = \"logistic-regression\"\nformula = \"y ~ 0 + .\"", "update = \"natural-gradient\"");
const VIPS: (&str, &str) =
    ("family = \"logistic-regression\"\nformula = \"y ~ 0 + .\"\napproximation = \"full-covariance\"", "update = \"vips\"");

/// `task.toml` of an aggregated run: one site may collude, and `dropouts` may be missing.
fn task((model, pvi): (&str, &str), rounds: u32, dropouts: u32, epsilon: f64) -> String {
    format!(
        "even_if_worthless = true\n[model]\n{model}\n[schema]\nfile = \"schema.toml\"\n[pvi]\nschedule = \"synchronous\"\nrounds = {rounds}\n{pvi}\n\
         [privacy]\nunit = \"record\"\nadjacency = \"replace-one\"\nepsilon = {epsilon:?}\ndelta = 1e-5\ntrust = \"aggregated\"\n\
         [aggregation]\nsites = {SITES}\ndropouts = {dropouts}\ncolluders = 1\nmax_units = 4000\n"
    )
}

fn sites(rows: usize) -> Vec<Party> {
    Records::generated(rows * SITES, 3, 0).sites(&[rows; SITES], Likelihood::Logistic)
}

/// A federation with a summer; nothing runs yet.
fn federation(task: &str, sites: &[Party]) -> Federation {
    let schema = Task { schedule: Schedule::Synchronous(1), ..Task::default() }.schema(3);
    let federation = Federation::new(task, &schema, sites);
    federation.enrol_summer();
    federation
}

fn json(text: &str) -> Value {
    serde_json::from_str(text).unwrap()
}

fn budget(federation: &Federation, site: &str) -> Value {
    json(&run(&mut federation.client_command(site, &["budget", "show", "--format", "json"])))
}

/// Closed rounds, oldest first, each with the sites in it.
fn closed(server: &Process) -> Vec<Vec<String>> {
    let rounds = server.events().into_iter().filter(|e| e["event"] == "round-closed");
    rounds.map(|e| e["included"].as_array().unwrap().iter().map(|s| s.as_str().unwrap().to_owned()).collect()).collect()
}

/// Both sides' books: every site's ledger is whole and says what the transcript says, and no release was charged twice.
fn check_books(federation: &Federation, sites: &[Party]) {
    let transcript = federation.home("server").join("transcript");
    run(&mut federation.server_command(&["export", "--transcript", transcript.to_str().unwrap()]));
    for site in sites {
        run(&mut federation.client_command(&site.name, &["ledger", "verify", "--transcript", transcript.to_str().unwrap()]));
        let rows = run(&mut federation.client_command(&site.name, &["ledger", "export"]));
        let mut reserved: Vec<u64> =
            rows.lines().map(json).filter(|row| row["kind"] == "reserved").map(|row| row["release"]["round"].as_u64().unwrap()).collect();
        let all = reserved.len();
        reserved.dedup();
        assert_eq!(reserved.len(), all, "{}: a release was charged twice", site.name);
    }
}

/// The whole of it, with two kinds of sums: posterior, statement, ledgers, transcript.
#[test]
fn an_aggregated_run_leaves_a_posterior_a_statement_and_exact_books() {
    for (method, rounds) in [(NATURAL_GRADIENT, 4), (VIPS, 3)] {
        let sites = sites(2000);
        let federation = federation(&task(method, rounds, 0, 2.0), &sites);
        let mut server = federation.start_server();
        let mut summer = federation.start_summer(&server.address);
        let mut clients: Vec<_> = sites.iter().map(|p| federation.start_client(&p.name, &server.address)).collect();
        clients.iter_mut().for_each(|client| client.expect(0));
        server.process.expect(0);
        summer.expect(0);
        let said = federation.posterior()["agreement"]["not_tested"].to_string();
        assert!(said.contains("under aggregated trust no site's vector is known"), "{said}");
        let (code, _, problem) = outcome(&mut federation.server_command(&["export", "--without", &sites[0].name]));
        assert!(code == 1 && problem.contains("only their sum"), "{code} {problem}");
        statements_cover_ledgers(&federation);
        let rounds_closed = closed(&server.process);
        assert_eq!(rounds_closed.len(), rounds as usize);
        assert!(rounds_closed.iter().all(|included| included.len() == SITES), "{rounds_closed:?}");

        // Every site saw one charter, and the same one.
        let charters: Vec<_> =
            clients.iter().flat_map(Process::events).filter(|e| e["event"] == "charter").map(|e| e["charter"].clone()).collect();
        assert!(charters.len() >= SITES && charters.iter().all(|charter| *charter == charters[0]), "{charters:?}");

        // The generator's rule is 1.5, -1, 1.5 with every seventh label turned.
        let posterior = federation.posterior();
        let means: Vec<_> = posterior["coefficients"].as_array().unwrap().iter().map(|c| c["mean"].as_f64().unwrap()).collect();
        assert!(means[0] > 0.2 && means[1] < -0.1 && means[2] > 0.2, "{means:?}");

        // What is promised, and what is left at worst, in the statement and in every ledger.
        let statements = posterior["privacy"].as_array().unwrap();
        assert_eq!(statements.len(), SITES);
        for statement in statements {
            let site = statement["site"].as_str().unwrap();
            let joint = statement["epsilon"].as_f64().unwrap();
            assert!(joint > 1.9 && joint <= 2.0 && statement["trust"] == "aggregated", "{statement}");
            let spent = budget(&federation, site);
            assert!((spent["epsilon_spent"].as_f64().unwrap() - joint).abs() < 1e-3, "{spent} against {statement}");
            // Four honest shares: the fallback's mu is twice the joint one's.
            let worst = spent["epsilon_fallback"].as_f64().unwrap();
            assert!(worst > 2.0 * joint && worst < 3.0 * joint, "{spent}");
            let words = statement["remarks"].to_string();
            let stated = words.split("epsilon is at most ").nth(1).and_then(|rest| rest.split_whitespace().next()).unwrap();
            assert!((stated.parse::<f64>().unwrap() - worst).abs() < 1e-3, "{stated}: {spent}");
            assert_eq!(spent["releases"], rounds);
        }
        check_books(&federation, &sites);
    }
}

/// Runs the client that ends itself at a point of its ledger, until it has.
fn crash(federation: &Federation, site: &str, address: &str, point: CrashPoint, occurrence: u32) -> Process {
    let crashing = Path::new(env!("CARGO_BIN_EXE_crashing-client"));
    let mut command = federation.client_command_of(crashing, site, &["run", "--format", "json"]);
    command.env(POINT, point.name()).env(OCCURRENCE, occurrence.to_string());
    federation.start(site, address, command)
}

/// A site that vanishes between its reservation and its upload is missing from that round, which closes without it, and its charge stays; one that
/// vanishes after its upload is in the sum all the same. Both come back and are in later rounds.
#[test]
fn a_site_that_vanishes_before_or_after_its_upload_costs_a_tolerant_run_nothing() {
    for (point, in_the_sum) in [(CrashPoint::Reserved, false), (CrashPoint::Receipted, true)] {
        let sites = sites(60);
        let mut federation = federation(&task(NATURAL_GRADIENT, 5, 1, 2.0), &sites);
        federation.server_environment.insert("DP_PVI__PHASES__MIN_SITES".into(), "4".into());
        federation.server_environment.insert("DP_PVI__PHASES__UPDATE_DEADLINE".into(), "8s".into());
        let mut server = federation.start_server();
        let mut summer = federation.start_summer(&server.address);
        let mut others: Vec<_> = sites[1..].iter().map(|p| federation.start_client(&p.name, &server.address)).collect();
        let ended = crash(&federation, &sites[0].name, &server.address, point, 2).wait();
        assert_eq!(ended.code(), None, "killed by a signal, not ended by itself");
        // Round 1 closes: with the victim's upload, or at its deadline without.
        server.process.wait_until("round 1 has closed", |p| (closed(p).len() >= 2).then_some(()));
        let mut victim = federation.start_client(&sites[0].name, &server.address);
        victim.expect(0);
        others.iter_mut().for_each(|client| client.expect(0));
        server.process.expect(0);
        summer.expect(0);
        statements_cover_ledgers(&federation);
        let rounds = closed(&server.process);
        assert_eq!(rounds.len(), 5);
        assert_eq!(rounds[1].contains(&sites[0].name), in_the_sum, "{rounds:?}");
        assert!(rounds[0].len() == SITES && rounds[1].len() >= SITES - 1 && rounds[4].len() == SITES, "{rounds:?}");
        check_books(&federation, &sites);
        // The charge of round 1 stays in either case; nothing was charged twice.
        let expected = rounds.iter().filter(|included| included.contains(&sites[0].name)).count() + usize::from(!in_the_sum);
        assert_eq!(budget(&federation, &sites[0].name)["releases"], expected);
    }
}

/// One missing site more than the charter allows: no sum, the run ends with a name everywhere, and no vector of the round is of any use.
#[test]
fn below_the_minimum_the_run_ends_with_a_name_and_the_charge_stays() {
    let sites = sites(60);
    let mut federation = federation(&task(NATURAL_GRADIENT, 4, 0, 2.0), &sites);
    federation.server_environment.insert("DP_PVI__PHASES__MIN_SITES".into(), "2".into());
    federation.server_environment.insert("DP_PVI__PHASES__UPDATE_DEADLINE".into(), "6s".into());
    let mut server = federation.start_server();
    let mut summer = federation.start_summer(&server.address);
    let mut others: Vec<_> = sites[1..].iter().map(|p| federation.start_client(&p.name, &server.address)).collect();
    assert_eq!(crash(&federation, &sites[0].name, &server.address, CrashPoint::Reserved, 2).wait().code(), None);
    others.iter_mut().for_each(|client| client.expect(9));
    server.process.expect(9);
    summer.expect(9);
    statements_cover_ledgers(&federation);
    let rounds = closed(&server.process);
    assert_eq!(rounds.first().map(Vec::len), Some(SITES), "{rounds:?}");
    assert!(rounds[1..].iter().all(Vec::is_empty), "{rounds:?}");
    for client in &others {
        assert!(client.log().contains("aggregation") || client.log().contains("min_sites"), "{}", client.log());
    }
    // The posterior is that of the last whole round; both rounds stay charged.
    for site in &sites {
        assert_eq!(budget(&federation, &site.name)["releases"], 2, "{}", site.name);
    }
}

/// Where an operator approves by hand, a charter needs his word as a task does: the site signs nothing before, and the server waits.
#[test]
fn a_charter_is_approved_by_hand_where_the_policy_says_so() {
    let sites = sites(60);
    let federation = federation(&task(NATURAL_GRADIENT, 2, 0, 2.0), &sites);
    let mut server = federation.start_server();
    let mut summer = federation.start_summer(&server.address);
    let mut others: Vec<_> = sites[1..].iter().map(|p| federation.start_client(&p.name, &server.address)).collect();
    let careful = |arguments: &[&str]| {
        let mut command = federation.client_command(&sites[0].name, arguments);
        command.env("DP_PVI__POLICY__APPROVE", "manual").env("DP_PVI__SITE__SERVER", &server.address);
        command
    };
    let start = || federation.start(&sites[0].name, &server.address, careful(&["run", "--format", "json"]));
    let plan = json(&run(&mut careful(&["plan", "--format", "json"])));
    assert!(plan["objections"].to_string().contains("approve") && plan["fallback"]["epsilon_run"].as_f64().unwrap() > 2.0, "{plan}");
    run(&mut careful(&["approve", plan["task"].as_str().unwrap()]));

    let mut first = start();
    first.expect(8);
    let charter = first.events().into_iter().find(|e| e["event"] == "charter").unwrap();
    let hash = charter["charter"].as_str().unwrap().to_owned();
    assert!(first.log().contains(&hash) && charter["sites"].as_array().unwrap().len() == SITES, "{charter}");
    assert_eq!(budget(&federation, &sites[0].name)["releases"], 0);
    run(&mut careful(&["approve", &hash]));
    let mut second = start();
    second.expect(0);
    others.iter_mut().for_each(|client| client.expect(0));
    server.process.expect(0);
    summer.expect(0);
    statements_cover_ledgers(&federation);
    check_books(&federation, &sites);
}

/// A summer that a site does not know, or a floor that the charter does not meet: that site signs nothing, and no round opens for anyone.
#[test]
fn a_site_that_pins_another_summer_signs_nothing() {
    let sites = sites(60);
    let mut federation = federation(&task(NATURAL_GRADIENT, 2, 0, 2.0), &sites);
    federation.server_environment.insert("DP_PVI__PHASES__START_DEADLINE".into(), "4s".into());
    federation.server_environment.insert("DP_PVI__PHASES__UPDATE_DEADLINE".into(), "4s".into());
    // The server's own key in the place of the summer's.
    let home = federation.home(&sites[0].name).join("tls");
    fs::copy(home.join("ca.pem"), home.join("summer.pub.pem")).unwrap();
    let mut server = federation.start_server();
    let _summer = federation.start_summer(&server.address);
    let mut others: Vec<_> = sites[1..].iter().map(|p| federation.start_client(&p.name, &server.address)).collect();
    let mut victim = federation.start_client(&sites[0].name, &server.address);
    victim.expect(8);
    assert!(victim.log().contains("pinned"), "{}", victim.log());
    others.iter_mut().for_each(|client| client.expect(9));
    server.process.expect(9);
    for site in &sites {
        assert_eq!(budget(&federation, &site.name)["releases"], 0, "{}", site.name);
    }
}
