//! UCI Adult through the gate: one site's visits, and a federation of ten clients.
//!
//! ```text
//! cargo bench -p dp-pvi-simulation --bench adult      # DP_PVI_SHARED names the folder with data/, by default ../shared
//! ```
//!
//! * `natural_gradient_pass`: visit 1 of `deploy/experiments/adult-natural-gradient.toml` over 39,074 rows of 105 columns, at most 14 non-zero:
//!   residuals, curvatures, clip, lattice, integer norm check, sum and exact noise. Target 40 ms.
//! * `dp_optimisation_visit`: visit 1 of `deploy/experiments/adult-dp-optimisation.toml` over 3,907 of them: five steps over all, records weighted.
//! * `ten_clients`: `deploy/experiments/adult-steps.toml`, 10 clients × 10 rounds × 100 steps of DP-SGD with samples of 200, evaluation of ten
//!   posteriors on 9,768 rows included; by number of threads. Target 0.5 s without noise; the noise of the 10,000 steps is `noise` of the bench
//!   `dp_sgd_step` of `dp-pvi-inference` times 10,000, shared by the threads.
//!
//! November 2026, two cores of a 2.6 GHz Xeon with AVX-512, nothing else running: `natural_gradient_pass` 7.4 ms (before records were weighted). `ten_clients` on two threads 0.43 s in the
//! median of 20 runs (0.41 to 0.46 s), noise included; that is 25 µs a step, so 0.30 s without it. On one thread 0.78 s, 0.53 s without noise. On a 2.6 GHz EPYC (Zen 5)
//! 0.37 s and 0.74 s, with noise at 27 µs a step, `natural_gradient_pass` 7.5 ms (weighted), `dp_optimisation_visit` 8.6 ms. On a 2.0 GHz Xeon whose
//! speed changes with its neighbours, with almost the same code: 0.59 s in the median of 20 runs on two threads with noise at 33 µs a step (0.42 s without noise), 0.66 s
//! of 12 with 37 µs (0.49 s), 0.79 s of 24 with 41 µs (0.59 s).
#![allow(clippy::unwrap_used, clippy::print_stdout, missing_docs)]

use std::path::PathBuf;

use dp_pvi_accounting::Epsilon;
use dp_pvi_data::{load_public, select_public};
use dp_pvi_inference::methods::{self, Job};
use dp_pvi_inference::records::RecordTable;
use dp_pvi_posterior::schema::Schema;
use dp_pvi_posterior::task::ResolvedTask;
use dp_pvi_privacy::ledger::memory::MemoryStore;
use dp_pvi_privacy::ledger::{Budget, LedgerIdentity};
use dp_pvi_privacy::{ClientId, Hash, Ledger, Permit, ReleaseId, RunId, SecureNoise, SiteState, Units};
use dp_pvi_simulation::experiment::{Experiment, Session};
use dp_pvi_simulator::federation::client_key;

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

fn units(rows: usize) -> Units<RecordTable> {
    let schema = std::fs::read_to_string(root().join("deploy/experiments/adult.schema.toml")).unwrap();
    let files = ["adult.data.gz", "adult.test.gz"].map(|file| data().join("adult").join(file));
    let all = load_public(&Schema::parse(&schema).unwrap(), &files, None).unwrap();
    let rows: Vec<usize> = (0..rows).collect();
    Units::new(select_public(all.get().dimension(), &[(&all, &rows)]).into_inner())
}

fn permit(task: &ResolvedTask) -> Permit {
    let client = ClientId::new("site").unwrap();
    let identity = LedgerIdentity { data: "adult".into(), unit: task.privacy.unit, relation: task.privacy.relation };
    let budget = Budget { epsilon: Epsilon::INFINITE, delta: task.privacy.delta, per_run: None, allow_non_private: false };
    let mut ledger = Ledger::open(MemoryStore::new(), client_key(1, &client), identity, budget).unwrap();
    let release = ReleaseId { run: RunId { task: task.hash(), number: 1 }, client, round: 1 };
    ledger.reserve(&release, &task.visit_event(1).unwrap(), Hash::default()).unwrap()
}

/// Visit 1 of an experiment over so many rows.
fn visit(bencher: divan::Bencher<'_, '_>, name: &str, rows: usize) {
    let (experiment, path) = experiment(name);
    let task = experiment.resolve(&path).unwrap().0;
    let (units, state) = (units(rows), task.rule().initial());
    let job = Job { task: &task, visit: 1, lambda: &state, state: &SiteState::None };
    bencher.with_inputs(|| permit(&task)).bench_local_values(|permit| methods::run(&job, &units, permit, &SecureNoise).unwrap());
}

#[divan::bench(sample_count = 30)]
fn natural_gradient_pass(bencher: divan::Bencher<'_, '_>) {
    visit(bencher, "adult-natural-gradient.toml", 39_074);
}

#[divan::bench(sample_count = 30)]
fn dp_optimisation_visit(bencher: divan::Bencher<'_, '_>) {
    visit(bencher, "adult-dp-optimisation.toml", 3_907);
}

#[divan::bench(sample_count = 5, args = [1, 2])]
fn ten_clients(bencher: divan::Bencher<'_, '_>, threads: usize) {
    let (experiment, path) = experiment("adult-steps.toml");
    let session = Session::open(experiment, &path, &data()).unwrap();
    bencher.bench_local(|| session.run(1, threads, || ()).unwrap());
}
