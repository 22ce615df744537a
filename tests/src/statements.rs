//! What was promised and what was charged: after a run of real processes every site's statement in `posterior.json` is compared with that site's
//! ledger, event by event.

use std::fs;
use std::path::Path;
use std::process::Command;

use dp_pvi_client::config::Config;
use dp_pvi_client::{keys, ledger};
use dp_pvi_names::{ClientId, Hash, RunId};
use dp_pvi_privacy::ledger::Row;
use dp_pvi_protocol::statement::Booked;
use dp_pvi_results::certificate::Certified;
use dp_pvi_results::document::PosteriorDocument;

use crate::federation::{Federation, outcome};
use crate::place::binary;

/// Reads the exported posterior and the ledger of every site of the federation, and compares the statements with the charges of the run: every
/// charge is that of a planned visit, all of them together cost no more than is stated, every update in the posterior was charged, and no site
/// was charged without a statement. Call it when the sites' processes have ended. Returns the number of charges of all sites.
///
/// # Panics
/// When one of these does not hold, or a file cannot be read.
pub fn statements_cover_ledgers(federation: &Federation) -> usize {
    covered(federation, |_| true)
}

/// The same for these sites only, where others did not follow the protocol.
///
/// # Panics
/// As [`statements_cover_ledgers`].
pub fn statements_cover_ledgers_of(federation: &Federation, honest: &[&str]) -> usize {
    covered(federation, |site| honest.contains(&site.as_str()))
}

fn covered(federation: &Federation, honest: impl Fn(&ClientId) -> bool) -> usize {
    let posterior = federation.home("server").join("results/posterior.json");
    let text = fs::read_to_string(&posterior).unwrap_or_else(|e| panic!("{}: {e}", posterior.display()));
    let document = PosteriorDocument::from_json(&text).expect("posterior.json can be read");
    let task = document.task().expect("its task can be read");
    let run = RunId { task: task.hash(), number: document.run };
    verified(federation, &posterior, &document);
    let mut charges = 0;
    for (site, rows) in ledgers(federation).into_iter().filter(|(site, _)| honest(site)) {
        let booked = Booked::of_run(&rows, &run).expect("its own events");
        let statement = document.privacy.iter().find(|statement| statement.site == site);
        let Some(statement) = statement else {
            assert!(booked.is_empty(), "{site} was charged {} times, and has no statement", booked.len());
            continue;
        };
        let loss = statement.compare(&task, &booked).unwrap_or_else(|problem| panic!("{site}: {problem}"));
        assert!(statement.releases as usize <= booked.len(), "{site}: {} updates, {} charges", statement.releases, booked.len());
        assert!(loss.epsilon.get() <= statement.epsilon.unwrap_or(f64::INFINITY), "{site}: {loss:?}");
        // What has an epsilon has a certificate of it, which is about what this ledger charged; epochs in which units are replaced have none, and are compared without.
        if statement.epsilon.is_some() {
            match document.check_certificates(&site, &rows) {
                Ok(proved) => assert!(Some(proved.epsilon) <= statement.epsilon && proved.charges == booked.len(), "{site}: {proved:?}"),
                Err(problem) => assert!(problem.to_string().contains("a certificate of a random allocation"), "{site}: {problem}"),
            }
        }
        charges += booked.len();
    }
    charges
}

/// `dp-pvi-verify` accepts what the server exports, and derives the sites of the statements from the transcript; it refuses what has no certificate. Where the
/// federation's settings are those of another server by now, it has the posterior alone.
fn verified(federation: &Federation, given: &Path, document: &PosteriorDocument) {
    let folder = federation.home("server").join("verified");
    let (file, transcript) = (folder.join("posterior.json"), folder.join("transcript.jsonl"));
    fs::create_dir_all(&folder).expect("a folder");
    let place = |path: &Path| path.to_str().expect("a path of the tests").to_owned();
    let (to, chain) = (place(&folder), place(&transcript));
    let export = ["export", "-o", to.as_str(), "--transcript", chain.as_str()];
    let exported = (outcome(&mut federation.server_command(&export)).0 == 0)
        .then(|| PosteriorDocument::from_json(&fs::read_to_string(&file).expect("it was exported")).expect("posterior.json can be read"))
        .filter(|exported| exported.task_hash == document.task_hash);
    let files = if exported.is_some() { vec![file.as_path(), transcript.as_path()] } else { vec![given] };
    let (code, said, _) = outcome(Command::new(binary("dp-pvi-verify")).args(files));
    let read = exported.as_ref().unwrap_or(document);
    let sites: Vec<_> = read.privacy.iter().map(|of| format!("\"{}\" ({} visits)", of.site, of.releases)).collect();
    let words = match (&read.certificate, &exported) {
        (Some(Certified::Text(_)), Some(_)) => format!("sites of the transcript: {}\n", sites.join(", ")),
        (Some(Certified::Text(_)), None) => "not checked without a transcript".to_owned(),
        (Some(Certified::Absent(_)) | None, _) => "refused: its epsilon has no certificate".to_owned(),
    };
    assert!(said.contains(&words) && (code == 0) != words.starts_with("refused"), "{code} {said}");
}

/// The rows of every site's ledger.
fn ledgers(federation: &Federation) -> Vec<(ClientId, Vec<(Row, Hash)>)> {
    let homes = federation.homes();
    let charged = homes.iter().filter_map(|home| {
        let file = home.join("client.toml");
        let text = fs::read_to_string(&file).ok()?;
        let config =
            Config::parse(&text, home, federation.client_environment.clone()).unwrap_or_else(|e| panic!("{}: {e}", file.display()));
        let private = config.data.private.as_ref()?;
        let key = keys::identity(&config.tls.identity).expect("the site's key");
        let ledger = ledger::read_only(private, key).unwrap_or_else(|e| panic!("{}: {e}", private.ledger.display()));
        Some((config.site.name, ledger.rows().to_vec()))
    });
    charged.collect()
}
