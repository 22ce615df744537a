//! A visit over records that are larger than memory: time and peak memory.
//!
//! ```text
//! dp-pvi-sim generate hospitals --sites 1 --rows 71428572 --container parquet --output DIR       # 10^8 stays
//! cargo run --release -p dp-pvi-papers -- run larger DIR FOLDER [memory]
//! ```
//!
//! DIR is what `generate` wrote, and FOLDER is on the disk that takes the cache. With `memory` the records are in memory, as with `[data] cache = "memory"`. Every line is printed when
//! it is measured; peak memory is what the kernel says of this process (`VmHWM`: its own pages, not the page cache).
#![allow(clippy::print_stdout, missing_docs)]
#![allow(clippy::disallowed_methods, reason = "it measures time")]

use std::error::Error;
use std::path::{Path, PathBuf};
use std::time::Instant;

use dp_pvi_accounting::Epsilon;
use dp_pvi_data::{load_for_run, load_to_disk};
use dp_pvi_inference::methods::{self, Job};
use dp_pvi_inference::records::RecordTable;
use dp_pvi_names::{ClientId, Hash, ReleaseId, RunId};
use dp_pvi_posterior::task::{RawTask, ResolveContext, ResolvedTask};
use dp_pvi_privacy::ledger::memory::MemoryStore;
use dp_pvi_privacy::ledger::{Budget, LedgerIdentity};
use dp_pvi_privacy::{Ledger, SecureNoise, SiteState, Units};
use dp_pvi_schema::Schema;
use dp_pvi_simulation::federation::client_key;
use dp_pvi_unsealed::Unsealed;

/// Name, options of `[pvi]`, and the visit that is measured.
const UPDATES: [(&str, &str, u32); 2] = [
    ("natural gradient, a round", "update = \"natural-gradient\"", 1),
    ("DP optimisation, 10 steps at q = 0.01", "update = \"dp-optimisation\"\noptimizer = \"adam\"\nsteps = 10\nsampling_rate = 0.01", 1),
];

/// Runs it with the arguments that follow its name.
///
/// # Errors
/// What it reads or writes.
pub fn main(arguments: Vec<String>) -> Result<(), Box<dyn Error>> {
    let [directory, folder, rest @ ..] = arguments.as_slice() else {
        return Err("name the generated directory and the folder of the cache".into());
    };
    let directory = PathBuf::from(directory);
    let text = std::fs::read_to_string(directory.join("schema.toml"))?;
    let (schema, files) = (Schema::asking("cardiac_event ~ .", &text)?, [directory.join("hospital-1.parquet")]);
    let began = Instant::now();
    let file = || tempfile::tempfile_in(Path::new(folder));
    let made = match rest {
        [] => load_to_disk(&schema, &files, &[1; 32], file()?)?.units(&schema, Some(file()?))?,
        _ => load_for_run(&schema, &files, &[1; 32])?.units(&schema, None)?,
    };
    let threads = std::thread::available_parallelism()?;
    let units = made.units.on_threads(threads);
    println!("load: {:.2} s, {} MiB", began.elapsed().as_secs_f64(), peak()?);
    for (name, update, visit) in UPDATES {
        let task = task(&text, update)?;
        // Twice: the second time the cache may be in the memory of the kernel.
        for _ in 0..2 {
            let began = Instant::now();
            run(&task, visit, &units)?;
            println!("{name}: {:.2} s, {} MiB, {threads} threads", began.elapsed().as_secs_f64(), peak()?);
        }
    }
    Ok(())
}

fn task(schema: &str, update: &str) -> Result<ResolvedTask, Box<dyn Error>> {
    let text = format!(
        "[model]\nfamily = \"logistic-regression\"\noutcome = \"cardiac_event\"\nprior_units = \"encoded\"\nprior_scale = 1.0\n[schema]\nfile = \"s\"\n[pvi]\nschedule = \"synchronous\"\nrounds = 4\n{update}\n[privacy]\n\
         unit = \"record\"\nadjacency = \"add-remove\"\nepsilon = 1.0\ndelta = 1e-9\ntrust = \"local\"\nmax_units = 100000000\n"
    );
    let context = ResolveContext { name: "larger", update_deadline_seconds: 60, min_sites: 1, expected_sites: 1 };
    Ok(RawTask::parse(&text)?.resolve(schema, context)?)
}

fn run(task: &ResolvedTask, visit: u32, units: &Units<RecordTable>) -> Result<(), Box<dyn Error>> {
    let identity = LedgerIdentity { data: "larger".into(), unit: task.privacy.unit, relation: task.privacy.relation };
    let budget =
        Budget { epsilon: Epsilon::INFINITE, delta: task.privacy.delta, per_run: None, max_fallback: None, allow_non_private: false };
    let client = ClientId::new("site")?;
    let mut ledger = Ledger::open(MemoryStore::new(Unsealed), client_key(1, &client), identity, budget)?;
    let release = ReleaseId { run: RunId { task: task.hash(), number: 1 }, client, round: visit };
    let permit = ledger.reserve(&release, &task.visit_event(visit)?, Hash::default())?;
    let state = task.rule().initial();
    methods::run(&Job { site: None, task, visit, lambda: &state, state: &SiteState::None }, units, permit, &SecureNoise)?;
    Ok(())
}

/// MiB.
fn peak() -> Result<u64, Box<dyn Error>> {
    let status = std::fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).ok_or("the kernel does not say")?;
    Ok(line.trim().trim_end_matches(" kB").parse::<u64>()?.div_ceil(1024))
}
