//! Records on the disk: every update releases the same bits as from memory, and those that are sums never bring the table into memory.

use std::num::NonZeroUsize;

use dp_pvi_accounting::Epsilon;
use dp_pvi_data::{load_for_run, load_to_disk};
use dp_pvi_inference::methods::{self, Job, needs_memory};
use dp_pvi_inference::records::RecordTable;
use dp_pvi_names::{ClientId, Hash, Payload, ReleaseId, RunId};
use dp_pvi_posterior::task::{RawTask, ResolveContext, ResolvedTask};
use dp_pvi_privacy::ledger::memory::MemoryStore;
use dp_pvi_privacy::ledger::{Budget, LedgerIdentity};
use dp_pvi_privacy::{Ledger, SiteState, Units};
use dp_pvi_schema::Schema;
use dp_pvi_simulation::federation::client_key;
use dp_pvi_simulation::generate::{self, Options};
use dp_pvi_simulation::noise::SeededNoise;
use dp_pvi_unsealed::Unsealed;

const LOGISTIC: &str = "family = \"logistic-regression\"\noutcome = \"cardiac_event\"\nprior_units = \"encoded\"\nprior_scale = 1.0";
const FULL: &str = "family = \"logistic-regression\"\noutcome = \"cardiac_event\"\napproximation = \"full-covariance\"\nprior_units = \"encoded\"\nprior_scale = 1.0";
const PROBIT: &str = "family = \"probit-regression\"\noutcome = \"cardiac_event\"\nprior_units = \"encoded\"\nprior_scale = 1.0";
const NETWORK: &str =
    "family = \"neural-network\"\noutcome = \"cardiac_event\"\nhidden = [3]\nsamples = 2\nprior_units = \"encoded\"\nprior_scale = 1.0";
const ROUNDS: &str = "schedule = \"synchronous\"\nrounds = 3\n";

/// Model, update and its options, and whether it streams.
const UPDATES: [(&str, &str, bool); 11] = [
    (LOGISTIC, "update = \"natural-gradient\"", true),
    (FULL, "update = \"natural-gradient\"", true),
    (LOGISTIC, "update = \"dp-optimisation\"\nsteps = 3\nsampling_rate = 0.02\noptimizer = \"adam\"", true),
    (LOGISTIC, "update = \"dp-optimisation\"\nsteps = 2", true),
    (
        NETWORK,
        "update = \"dp-optimisation\"\nsteps = 2\noptimizer = \"adam\"\nexpected_batch = 700\nunits_per_site = 9000\nclip_norm = 5.0",
        true,
    ),
    (LOGISTIC, "update = \"global-vi\"\nclip_norm = 1.0", true),
    (FULL, "update = \"vips\"", true),
    (PROBIT, "update = \"sep\"\nrecords = 9000", true),
    (PROBIT, "update = \"ep\"\nrecords = 9000", false),
    (LOGISTIC, "update = \"virtual-clients\"\nshards = 3\nclip_norm = 1.0", false),
    (LOGISTIC, "update = \"parameter-perturbation\"\nclip_norm = 1.0", false),
];

fn task(schema: &str, model: &str, update: &str) -> ResolvedTask {
    let text = format!(
        "[model]\n{model}\n[schema]\nfile = \"s\"\n[pvi]\n{ROUNDS}{update}\n[privacy]\nunit = \"record\"\nadjacency = \"add-remove\"\nepsilon = 2.0\n\
         delta = 1e-5\ntrust = \"local\"\nmax_units = 9000\n"
    );
    let context = ResolveContext { name: "larger", update_deadline_seconds: 60, min_sites: 1, expected_sites: 1 };
    RawTask::parse(&text).unwrap().resolve(schema, context).unwrap_or_else(|error| panic!("{update}: {error}"))
}

/// What a visit sends.
fn sent(task: &ResolvedTask, visit: u32, units: &Units<RecordTable>) -> Payload {
    let identity = LedgerIdentity { data: "larger".into(), unit: task.privacy.unit, relation: task.privacy.relation };
    let budget =
        Budget { epsilon: Epsilon::INFINITE, delta: task.privacy.delta, per_run: None, max_fallback: None, allow_non_private: false };
    let client = ClientId::new("site").unwrap();
    let mut ledger = Ledger::open(MemoryStore::new(Unsealed), client_key(1, &client), identity, budget).unwrap();
    let release = ReleaseId { run: RunId { task: task.hash(), number: 1 }, client, round: visit };
    let permit = ledger.reserve(&release, &task.visit_event(visit).unwrap(), Hash::default()).unwrap();
    let state = task.rule().initial();
    let job = Job { site: None, task, visit, lambda: &state, state: &SiteState::None };
    let output = methods::run(&job, units, permit, &SeededNoise::new(5)).unwrap();
    output.message.released().expect("under local trust a site releases").get().clone()
}

#[test]
fn records_on_the_disk_give_the_same_bits_as_in_memory() {
    let folder = tempfile::tempdir().unwrap();
    // More than one window of units, and more than threads start for; the first hospital has 1.4 times as many.
    let options = Options { rows: 6_100, hospitals: 1, ..Options::default() };
    generate::write_columns(options, folder.path()).unwrap();
    let text = std::fs::read_to_string(folder.path().join("schema.toml")).unwrap();
    let (schema, files) = (Schema::asking("cardiac_event ~ .", &text).unwrap(), [folder.path().join("hospital-1.parquet")]);
    let in_memory = load_for_run(&schema, &files, &[1; 32]).unwrap();
    for (model, update, streams) in UPDATES {
        let task = task(&text, model, update);
        assert_eq!(needs_memory(&task), !streams, "{update}");
        let read = load_to_disk(&schema, &files, &[1; 32], tempfile::tempfile().unwrap()).unwrap();
        assert_eq!(read.fingerprint, in_memory.fingerprint);
        let on_disk = read.units(&schema, Some(tempfile::tempfile().unwrap())).unwrap().units.on_threads(NonZeroUsize::new(3).unwrap());
        let held = in_memory.units(&schema, None).unwrap().units;
        for visit in 0..2.min(task.visits()) {
            assert_eq!(sent(&task, visit, &on_disk), sent(&task, visit, &held), "{update}, visit {visit}");
        }
        assert_eq!(on_disk.is_in_memory(), !streams, "{update}");
    }
}
