//! UCI Adult through the gate: one site's visits, and a federation of ten clients.
//!
//! ```text
//! cargo bench -p dp-pvi-simulation --bench adult      # DP_PVI_SHARED names the folder with data/, by default ../shared
//! ```
//!
//! * `natural_gradient_pass`: visit 1 of `deploy/experiments/adult-natural-gradient.toml` over 39,074 rows of 105 columns, at most 14 non-zero:
//!   residuals, curvatures, clip, lattice, integer norm check, sum and exact noise; by number of threads. Target 40 ms, and 4 ms on two threads.
//! * `natural_gradient_pass_with_splines`: the same over the formula of `adult-formula.toml` with `bs(age, df = 8)` as its curve. Target 1.3 times the time per entry that is not 0; 1.27 (2026-11-26,
//!   medians of 30, built as for tests).
//! * `dp_optimisation_visit`: visit 1 of `deploy/experiments/adult-dp-optimisation.toml` over 3,907 of them: five steps over all, records weighted; by number of threads.
//! * `ten_clients`: `deploy/experiments/adult-steps.toml`, 10 clients × 10 rounds × 100 steps of DP-SGD with samples of 200, evaluation of ten
//!   posteriors on 9,768 rows included; by number of threads. Target 0.5 s without noise; the noise of the 10,000 steps is `noise` of the bench
//!   `dp_sgd_step` of `dp-pvi-inference` times 10,000, shared by the threads.
//!
//! 7.5 ms, 8.6 ms and, on two threads, 0.37 s (two cores of a 2.6 GHz EPYC). Other machines: `deploy/guide/src/results/speed.md`.
#![allow(clippy::unwrap_used, clippy::print_stdout, missing_docs)]

use std::num::NonZeroUsize;
use std::path::PathBuf;

use dp_pvi_accounting::Epsilon;
use dp_pvi_data::{load_public, select_public};
use dp_pvi_inference::methods::{self, Job};
use dp_pvi_inference::records::RecordTable;
use dp_pvi_names::{ClientId, Hash, ReleaseId, RunId};
use dp_pvi_posterior::task::ResolvedTask;
use dp_pvi_privacy::ledger::memory::MemoryStore;
use dp_pvi_privacy::ledger::{Budget, LedgerIdentity};
use dp_pvi_privacy::{Ledger, Permit, SecureNoise, SiteState, Units};
use dp_pvi_schema::Schema;
use dp_pvi_simulation::experiment::{Experiment, Session};
use dp_pvi_simulation::federation::client_key;
use dp_pvi_unsealed::Unsealed;

fn main() {
    if data().join("adult/adult.data.gz").is_file() {
        divan::main();
    } else {
        println!("adult: skipped, there is no data; set DP_PVI_SHARED");
    }
}

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn data() -> PathBuf {
    std::env::var_os("DP_PVI_SHARED").map_or_else(|| root().join("../shared"), PathBuf::from).join("data")
}

fn experiment(name: &str) -> (Experiment, PathBuf) {
    let path = root().join("deploy/experiments").join(name);
    (Experiment::read(&path).unwrap(), path)
}

/// The rows, and how many of their entries are not 0.
fn units(schema: &Schema, rows: usize) -> (Units<RecordTable>, usize) {
    let files = ["adult.data.gz", "adult.test.gz"].map(|file| data().join("adult").join(file));
    let all = load_public(schema, &files, None).unwrap();
    let rows: Vec<usize> = (0..rows).collect();
    let table = select_public(all.get().dimension(), &[(&all, &rows)]).into_inner();
    let entries = table.records().map(|record| record.indices.len()).sum();
    (Units::new(table), entries)
}

fn permit(task: &ResolvedTask) -> Permit {
    let client = ClientId::new("site").unwrap();
    let identity = LedgerIdentity { data: "adult".into(), unit: task.privacy.unit, relation: task.privacy.relation };
    let budget =
        Budget { epsilon: Epsilon::INFINITE, delta: task.privacy.delta, per_run: None, max_fallback: None, allow_non_private: false };
    let mut ledger = Ledger::open(MemoryStore::new(Unsealed), client_key(1, &client), identity, budget).unwrap();
    let release = ReleaseId { run: RunId { task: task.hash(), number: 1 }, client, round: 1 };
    ledger.reserve(&release, &task.visit_event(1).unwrap(), Hash::default()).unwrap()
}

/// Visit 1 of a task over so many rows; items are entries that are not 0.
fn visit(bencher: divan::Bencher<'_, '_>, task: &ResolvedTask, schema: &Schema, rows: usize, threads: usize) {
    let ((units, entries), state) = (units(schema, rows), task.rule().initial());
    let units = units.on_threads(NonZeroUsize::new(threads).unwrap());
    let job = Job { site: None, task, visit: 1, lambda: &state, state: &SiteState::None };
    bencher
        .counter(divan::counter::ItemsCount::new(entries))
        .with_inputs(|| permit(task))
        .bench_local_values(|permit| methods::run(&job, &units, permit, &SecureNoise).unwrap());
}

fn visit_of(bencher: divan::Bencher<'_, '_>, name: &str, rows: usize, threads: usize) {
    let (experiment, path) = experiment(name);
    let (task, schema) = experiment.resolve(&path).unwrap();
    visit(bencher, &task, &schema, rows, threads);
}

#[divan::bench(sample_count = 30, args = [1, 2])]
fn natural_gradient_pass(bencher: divan::Bencher<'_, '_>, threads: usize) {
    visit_of(bencher, "adult-natural-gradient.toml", 39_074, threads);
}

#[divan::bench(sample_count = 30)]
fn natural_gradient_pass_with_splines(bencher: divan::Bencher<'_, '_>) {
    let path = root().join("deploy/experiments/adult-formula.toml");
    let text = std::fs::read_to_string(&path).unwrap();
    assert!(text.contains("s(age, k = 10)"), "the curve of age is written in another way: say here how");
    // A basis of which a record fills four entries; one site under local trust, as the pass beside it.
    let text = text.replace("s(age, k = 10)", "bs(age, df = 8)").replace("trust = \"aggregated\"", "trust = \"local\"");
    let (task, _) = text.split_once("[task.aggregation]").unwrap();
    let text =
        format!("{task}[data]\nfiles = [\"adult/adult.data.gz\"]\ntest_fraction = 0.0\n[clients]\nnumber = 1\n[phases]\nmin_sites = 1\n");
    let copy = tempfile::tempdir().unwrap();
    std::fs::write(copy.path().join("local.toml"), text).unwrap();
    let (task, schema) = Experiment::read(&copy.path().join("local.toml")).unwrap().resolve(&path).unwrap();
    visit(bencher, &task, &schema, 39_074, 1);
}

#[divan::bench(sample_count = 30, args = [1, 2])]
fn dp_optimisation_visit(bencher: divan::Bencher<'_, '_>, threads: usize) {
    visit_of(bencher, "adult-dp-optimisation.toml", 3_907, threads);
}

#[divan::bench(sample_count = 5, args = [1, 2])]
fn ten_clients(bencher: divan::Bencher<'_, '_>, threads: usize) {
    let (experiment, path) = experiment("adult-steps.toml");
    let session = Session::open(experiment, &path, &data()).unwrap();
    bencher.bench_local(|| session.run(1, threads, || ()).unwrap());
}
