//! Aggregated runs whose parties are killed, started again, and put back to old copies of their state: the run completes, or ends with a name, and
//! nothing is released twice.

use std::fs;
use std::path::Path;

use dp_pvi_tests::federation::{Federation, Party, Process, Server, run};
use dp_pvi_tests::regression::{Likelihood, Records, Schedule, Task};
use dp_pvi_tests::statements::statements_cover_ledgers;
use serde_json::Value;

const SITES: usize = 4;
const ROUNDS: usize = 6;

/// Rounds take a second at least (the release tick), so that a test can act between them.
fn federation() -> (Federation, Vec<Party>) {
    let task = format!(
        "even_if_worthless = true\n[model]\nfamily = \"logistic-regression\"\nformula = \"y ~ 0 + .\"\n[schema]\nfile = \"schema.toml\"\n\
         [pvi]\nschedule = \"synchronous\"\nrounds = {ROUNDS}\nrelease_tick_seconds = 1\nupdate = \"natural-gradient\"\n\
         [privacy]\nunit = \"record\"\nadjacency = \"replace-one\"\nepsilon = 2.0\ndelta = 1e-5\ntrust = \"aggregated\"\n\
         [aggregation]\nsites = {SITES}\ncolluders = 1\nmax_units = 100\n"
    );
    let sites = Records::generated(60 * SITES, 3, 0).sites(&[60; SITES], Likelihood::Logistic);
    let mut federation = Federation::new(&task, &Task { schedule: Schedule::Synchronous(1), ..Task::default() }.schema(3), &sites);
    federation.enrol_summer();
    federation.server_environment.insert("DP_PVI__PHASES__UPDATE_DEADLINE".into(), "20s".into());
    (federation, sites)
}

fn start(federation: &mut Federation, sites: &[Party]) -> (Server, Process, Vec<Process>) {
    let server = federation.start_server();
    // A restarted server must be found where it was.
    federation.server_environment.insert("DP_PVI__SERVER__LISTEN".into(), server.address.clone());
    let summer = federation.start_summer(&server.address);
    let clients = sites.iter().map(|p| federation.start_client(&p.name, &server.address)).collect();
    (server, summer, clients)
}

fn json(text: &str) -> Value {
    serde_json::from_str(text).unwrap()
}

fn releases(federation: &Federation, site: &str) -> u64 {
    json(&run(&mut federation.client_command(site, &["budget", "show", "--format", "json"])))["releases"].as_u64().unwrap()
}

/// Rounds that closed with a sum, as this process of the server told it.
fn closed(server: &Process) -> usize {
    server.events().iter().filter(|e| e["event"] == "round-closed" && e["outcome"] == "complete").count()
}

fn wait_for_rounds(server: &Process, count: usize) {
    server.wait_until(&format!("{count} rounds have closed"), |p| (closed(p) >= count).then_some(()));
}

/// Hashes of the payloads that each site committed, by round: one for each for ever.
fn check_ledgers(federation: &Federation, sites: &[Party]) {
    let transcript = federation.home("server").join("transcript");
    run(&mut federation.server_command(&["export", "--transcript", transcript.to_str().unwrap()]));
    for site in sites {
        run(&mut federation.client_command(&site.name, &["ledger", "verify", "--transcript", transcript.to_str().unwrap()]));
        let rows = run(&mut federation.client_command(&site.name, &["ledger", "export"]));
        for kind in ["reserved", "committed", "settled"] {
            let rounds = rows.lines().map(json).filter(|row| row["kind"] == kind).map(|row| row["release"]["round"].as_u64().unwrap());
            assert_eq!(rounds.collect::<Vec<_>>(), (0..ROUNDS as u64).collect::<Vec<_>>(), "{} {kind}", site.name);
        }
    }
}

fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap().map(Result::unwrap) {
        let kind = entry.file_type().unwrap();
        if kind.is_dir() {
            copy(&entry.path(), &to.join(entry.file_name()));
        } else if kind.is_file() {
            fs::copy(entry.path(), to.join(entry.file_name())).unwrap();
        }
    }
}

/// Puts an old copy in the place of a folder.
fn restore(folder: &Path, copy_of_it: &Path) {
    fs::remove_dir_all(folder).unwrap();
    copy(copy_of_it, folder);
}

/// Server and summer are killed, one after the other and both at once, between rounds and within them. The run completes with every round once.
#[test]
fn killed_servers_and_summers_cost_a_run_nothing() {
    let (mut federation, sites) = federation();
    let (mut server, mut summer, mut clients) = start(&mut federation, &sites);
    wait_for_rounds(&server.process, 1);
    let summer_of = || json(&run(&mut federation.server_command(&["status", "--format", "json"])))["summer"].clone();
    assert_eq!(summer_of()["state"], "connected");
    assert!(summer_of()["last_round"].as_u64().is_some(), "{}", summer_of());
    summer.kill();
    server.process.wait_until("the summer is missed", |_| (summer_of()["state"] == "gone").then_some(()));
    // The round that is open takes uploads meanwhile; its masks have to wait.
    std::thread::sleep(std::time::Duration::from_millis(1500));
    let mut summer = federation.start_summer(&server.address);
    wait_for_rounds(&server.process, 2);
    server.process.kill();
    let mut server = federation.start_server();
    wait_for_rounds(&server.process, 1);
    server.process.kill();
    summer.kill();
    let mut server = federation.start_server();
    let mut summer = federation.start_summer(&server.address);
    clients.iter_mut().for_each(|client| client.expect(0));
    server.process.expect(0);
    summer.expect(0);
    for site in &sites {
        assert_eq!(releases(&federation, &site.name), ROUNDS as u64, "{}", site.name);
    }
    check_ledgers(&federation, &sites);
    assert_eq!(federation.posterior()["rounds"], ROUNDS as u64);
    statements_cover_ledgers(&federation);
}

/// A server that goes on from an old copy would open closed rounds once more, for other models or other sets of sites: the summer signs no second
/// header for a round, the sites send nothing, and everyone says why.
#[test]
fn a_server_from_an_old_copy_gets_nothing_from_summer_or_sites() {
    let (mut federation, sites) = federation();
    let (mut server, mut summer, mut clients) = start(&mut federation, &sites);
    let (state, old) = (federation.home("server").join("state"), federation.home("server").join("old-copy"));
    wait_for_rounds(&server.process, 1);
    server.process.kill();
    copy(&state, &old);
    let mut server = federation.start_server();
    wait_for_rounds(&server.process, 2);
    server.process.kill();
    // Anyone who has reserved by now has sent, or will send the same bytes for ever. (What was on its way to a site when the server died takes a moment.)
    let computed = |clients: &[Process]| -> Vec<u64> {
        clients.iter().map(|c| c.events().iter().filter(|e| e["event"] == "training").count() as u64).collect()
    };
    std::thread::sleep(std::time::Duration::from_secs(1));
    let before: Vec<u64> = sites.iter().map(|site| releases(&federation, &site.name)).collect();
    restore(&state, &old);
    let mut server = federation.start_server();
    // Those that have seen more rounds than the copy has: the others see another round in the place of one.
    let mut ahead = 0;
    for client in &mut clients {
        let status = client.wait();
        assert_ne!(status.code(), Some(0));
        let log = client.log();
        assert!(log.contains("not to be trusted") || log.contains("old copy") || log.contains("aborted"), "{log}");
        ahead += usize::from(log.contains("runs from an old copy"));
    }
    let after: Vec<u64> = sites.iter().map(|site| releases(&federation, &site.name)).collect();
    assert_eq!(after, before, "something was reserved for a server that went back");
    assert_eq!(computed(&clients), before, "something was computed for a server that went back");
    // Left alone, the server ends with a name as well; so does the summer.
    server.process.expect(9);
    // Its operator is told once a site what happened, and what to do.
    let log = server.process.log();
    assert_eq!(log.matches("put the latest copy of its state folder back").count(), ahead, "{log}");
    println!("{ahead} sites were ahead of the server");
    assert_ne!(summer.wait().code(), Some(0));
}

/// A summer whose database is an old copy has lost track of the round, but its vault has not: no key of a closed round comes back.
#[test]
fn a_summer_from_an_old_copy_of_its_database_answers_no_closed_round_again() {
    let (mut federation, sites) = federation();
    // No one waits for it: the run ends as soon as the summer has said so.
    federation.server_environment.insert("DP_PVI__PHASES__UPDATE_DEADLINE".into(), "600s".into());
    let (mut server, mut summer, mut clients) = start(&mut federation, &sites);
    let (state, old) = (federation.home("summer").join("state"), federation.home("summer").join("old-copy"));
    wait_for_rounds(&server.process, 1);
    summer.kill();
    copy(&state, &old);
    let mut summer = federation.start_summer(&server.address);
    wait_for_rounds(&server.process, 3);
    summer.kill();
    restore(&state, &old);
    let mut summer = federation.start_summer(&server.address);
    // The server asks for what is next, which this summer does not know: it refuses, and the run ends with a name.
    clients.iter_mut().for_each(|client| client.expect(9));
    server.process.expect(9);
    assert!(server.process.events().iter().any(|e| e["event"] == "summer-refused"), "{:?}", server.process.events());
    assert_ne!(summer.wait().code(), Some(0));
    statements_cover_ledgers(&federation);
    for site in &sites {
        let rows = run(&mut federation.client_command(&site.name, &["ledger", "export"]));
        let mut rounds: Vec<_> =
            rows.lines().map(json).filter(|row| row["kind"] == "reserved").map(|row| row["release"]["round"].as_u64().unwrap()).collect();
        let all = rounds.len();
        rounds.dedup();
        assert_eq!(rounds.len(), all, "{}: a release was charged twice", site.name);
    }
}
