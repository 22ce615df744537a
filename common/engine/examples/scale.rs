//! One visit in one process and by a cluster, in turns: seconds, seconds of processors, and whether what is released has the same bits. `common/engine/scale.sh` starts it.
//!
//! ```text
//! scale DATA SNAPSHOTS KEY HEAD_TOML PROCESS…
//! ```
//!
//! DATA is what `dp-pvi-sim generate hospitals` wrote, SNAPSHOTS the folder that the executors read, and PROCESS… are scheduler and executors. Every line is printed when it is measured.
#![allow(missing_docs)]
#![allow(clippy::disallowed_methods, reason = "it measures time")]

use std::error::Error;
use std::fs;
use std::io::Write;
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;

use chacha20::ChaCha20Rng;
use chacha20::rand_core::SeedableRng;
use dp_pvi_accounting::Epsilon;
use dp_pvi_data::{Executors, load_to_disk};
use dp_pvi_inference::methods::{Job, run};
use dp_pvi_inference::records::RecordTable;
use dp_pvi_names::{ClientId, Hash, Payload, ReleaseId, RunId};
use dp_pvi_posterior::task::{RawTask, ResolveContext, ResolvedTask};
use dp_pvi_privacy::ledger::memory::MemoryStore;
use dp_pvi_privacy::ledger::{Budget, LedgerIdentity};
use dp_pvi_privacy::partial_sums::{ExecutorChannel, NoSum};
use dp_pvi_privacy::{Ledger, NoRandomness, NoiseSource, Purpose, SiteState, Units};
use dp_pvi_schema::Schema;
use dp_pvi_site_engine::config::site_key;
use dp_pvi_unsealed::{Sealed, Unsealed};
use ed25519_dalek::SigningKey;

/// Visits of each.
const TURNS: usize = 3;

/// Threads of one process, and of the executors together.
const THREADS: NonZeroUsize = NonZeroUsize::new(2).unwrap();

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [data, snapshots, key, head, processes @ ..] = arguments.as_slice() else {
        return Err(
            "name the generated folder, the folder of snapshots, the site's key, the head's file, and the cluster's processes".into()
        );
    };
    let (data, snapshots) = (Path::new(data), Path::new(snapshots));
    let text = fs::read_to_string(data.join("schema.toml"))?;
    let (schema, files) = (Schema::asking("cardiac_event ~ .", &text)?, [data.join("hospital-1.parquet")]);
    let site_key = site_key(Path::new(key))?;
    let processors = Processors { cluster: processes.to_vec() };

    let (began, cpu) = (Instant::now(), processors.own()?);
    let cached = load_to_disk(&schema, &files, &[1; 32], tempfile::tempfile_in(snapshots)?)?;
    println!("cache of one process: {:.1} s, {:.1} s of processors", began.elapsed().as_secs_f64(), processors.own()? - cpu);
    let here = cached.units(&schema, Some(tempfile::tempfile_in(snapshots)?))?.units.on_threads(THREADS);

    let (began, cpu) = (Instant::now(), processors.own()?);
    let ask = |snapshot: &Path| -> Box<dyn ExecutorChannel> { Box::new(Program { head: head.into(), snapshot: snapshot.to_owned() }) };
    let executors = Executors { folder: snapshots, key: site_key, ask: &ask };
    let blocks = cached.units_elsewhere(&schema, tempfile::tempfile_in(snapshots)?, executors)?;
    println!("snapshot of the cluster: {:.1} s, {:.1} s of processors", began.elapsed().as_secs_f64(), processors.own()? - cpu);

    let task = task(&text)?;
    let mut released = Vec::new();
    for turn in 1..=TURNS {
        for (name, units) in [("one process", &here), ("cluster", &blocks.units)] {
            let (began, cpu) = (Instant::now(), processors.all()?);
            released.push(visit(&task, units)?);
            let (seconds, cpu) = (began.elapsed().as_secs_f64(), processors.all()? - cpu);
            let load = fs::read_to_string("/proc/loadavg")?;
            let load = load.split_whitespace().next().unwrap_or_default();
            println!("visit {turn}, {name}: {seconds:.2} s, {cpu:.2} s of processors, load average {load}");
        }
    }
    let equal = released.iter().all(|bits| *bits == released[0]);
    println!("{} visits released {}", released.len(), if equal { "the same bits" } else { "DIFFERENT BITS" });
    if equal { Ok(()) } else { Err("the bits differ".into()) }
}

fn task(schema: &str) -> Result<ResolvedTask, Box<dyn Error>> {
    let text = "[model]\nfamily = \"logistic-regression\"\noutcome = \"cardiac_event\"\nprior_units = \"encoded\"\nprior_scale = 1.0\n[schema]\nfile = \"s\"\n[pvi]\nschedule = \"synchronous\"\nrounds = 4\n\
                update = \"natural-gradient\"\n[privacy]\nunit = \"record\"\nadjacency = \"add-remove\"\nepsilon = 1.0\ndelta = 1e-9\ntrust = \"local\"\n\
                max_units = 200000000\n";
    let context = ResolveContext { name: "scale", update_deadline_seconds: 60, min_sites: 1, expected_sites: 1 };
    Ok(RawTask::parse(text)?.resolve(schema, context)?)
}

/// What a site sends in the second visit, with noise from a seed.
fn visit(task: &ResolvedTask, units: &Units<RecordTable>) -> Result<Payload, Box<dyn Error>> {
    let identity = LedgerIdentity { data: "scale".into(), unit: task.privacy.unit, relation: task.privacy.relation };
    let budget =
        Budget { epsilon: Epsilon::INFINITE, delta: task.privacy.delta, per_run: None, max_fallback: None, allow_non_private: false };
    let mut ledger = Ledger::open(MemoryStore::new(Unsealed), SigningKey::from_bytes(&[7; 32]), identity, budget)?;
    let release = ReleaseId { run: RunId { task: task.hash(), number: 1 }, client: ClientId::new("site")?, round: 1 };
    let permit = ledger.reserve(&release, &task.visit_event(1)?, Hash::default())?;
    let lambda = task.rule().initial();
    let job = Job { site: None, task, visit: 1, lambda: &lambda, state: &SiteState::None };
    let output = run(&job, units, permit, &Seeded)?;
    Ok(output.message.released().ok_or("the visit released nothing")?.get().clone())
}

/// The same noise in all visits.
struct Seeded;

impl Sealed for Seeded {}

impl NoiseSource for Seeded {
    type Stream = ChaCha20Rng;
    fn stream(&self, release: &ReleaseId, step: u64, purpose: Purpose) -> Result<ChaCha20Rng, NoRandomness> {
        Ok(ChaCha20Rng::from_seed(Hash::of("scale", &[format!("{release}/{step}/{purpose:?}").as_bytes()]).0))
    }
}

/// The program that a site's client starts for a sum.
struct Program {
    head: PathBuf,
    snapshot: PathBuf,
}

impl ExecutorChannel for Program {
    fn ask(&self, question: &[u8]) -> Result<Vec<Vec<u8>>, NoSum> {
        let answers = || -> std::io::Result<Vec<u8>> {
            let mut command = Command::new("dp-pvi-site-engine");
            command.arg("sum").arg("--config").arg(&self.head).arg("--snapshot").arg(&self.snapshot);
            let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
            child.stdin.take().map_or(Ok(()), |mut stdin| stdin.write_all(question))?;
            let output = child.wait_with_output()?;
            if output.status.success() { Ok(output.stdout) } else { Err(std::io::Error::other("the program failed")) }
        };
        let list = answers().map_err(|_| NoSum::Unanswered)?;
        let (mut list, mut found) = (list.as_slice(), Vec::new());
        while let Some((length, rest)) = list.split_first_chunk::<4>() {
            let (answer, rest) = rest.split_at_checked(u32::from_le_bytes(*length) as usize).ok_or(NoSum::Foreign)?;
            found.push(answer.to_vec());
            list = rest;
        }
        Ok(found)
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        // What cannot be removed stays in the folder of the run.
        let _ = fs::remove_dir_all(&self.snapshot);
    }
}

/// Seconds that processors worked for these processes, as the kernel says.
struct Processors {
    cluster: Vec<String>,
}

impl Processors {
    /// For this process, and those that it started and that have ended.
    fn own(&self) -> Result<f64, Box<dyn Error>> {
        Self::of("self")
    }

    fn all(&self) -> Result<f64, Box<dyn Error>> {
        self.cluster.iter().try_fold(self.own()?, |sum, process| Ok(sum + Self::of(process)?))
    }

    fn of(process: &str) -> Result<f64, Box<dyn Error>> {
        let text = fs::read_to_string(format!("/proc/{process}/stat"))?;
        // After the program's name: user and system time of the process, and of its children, in hundredths.
        let fields = text.rsplit(") ").next().ok_or("the kernel does not say")?.split_whitespace().skip(11).take(4);
        Ok(fields.map(str::parse::<f64>).sum::<Result<f64, _>>()? / 100.0)
    }
}
