//! A visit whose terms a cluster sums has the bits of one process: for any number of parts, and when an executor is killed in the middle.

#![allow(clippy::unwrap_used, missing_docs)]

use std::fmt::Write as _;
use std::fs;
use std::io::Write as _;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::{Arc, Mutex};
use std::thread::sleep;
use std::time::Duration;

use chacha20::ChaCha20Rng;
use chacha20::rand_core::SeedableRng;
use datafusion::prelude::{SessionConfig, SessionContext};
use dp_pvi_accounting::{Delta, Epsilon, PrivacyUnit, Relation};
use dp_pvi_data::{Executors, load_for_run};
use dp_pvi_inference::InferenceError;
use dp_pvi_inference::methods::{Job, run};
use dp_pvi_inference::records::RecordTable;
use dp_pvi_names::{ClientId, Hash, Payload, ReleaseId, RunId};
use dp_pvi_posterior::task::{RawTask, ResolveContext, ResolvedTask};
use dp_pvi_privacy::ledger::memory::MemoryStore;
use dp_pvi_privacy::ledger::{Budget, LedgerIdentity};
use dp_pvi_privacy::mechanism::ReleaseError;
use dp_pvi_privacy::partial_sums::{ExecutorChannel, NoSum, SiteKey};
use dp_pvi_privacy::{Ledger, NoRandomness, NoiseSource, Purpose, SiteState, Units};
use dp_pvi_schema::Schema;
use dp_pvi_site_engine::config::{Config, site_key};
use dp_pvi_site_engine::visit;
use dp_pvi_unsealed::{Sealed, Unsealed};
use ed25519_dalek::SigningKey;

const PROGRAM: &str = env!("CARGO_BIN_EXE_dp-pvi-site-engine");

const SCHEMA: &str = r#"
version = 2
norm_bound = 2.0
unit_column = "person"
[[columns]]
name = "a"
kind = "number"
lower = -1
upper = 1
centre = 0
scale = 1
[[columns]]
name = "b"
kind = "number"
lower = -1
upper = 1
centre = 0
scale = 1
[[columns]]
name = "y"
kind = "boolean"
true_values = ["1"]
false_values = ["0"]
"#;

const TASK: &str = r#"
[model]
family = "logistic-regression"
outcome = "y"
approximation = "full-covariance"
[schema]
file = "schema.toml"
[pvi]
schedule = "synchronous"
rounds = 3
update = "natural-gradient"
expected_sites = 1
[privacy]
unit = "person"
adjacency = "add-remove"
epsilon = 1.0
delta = 1e-5
trust = "local"
max_units = 1000000
"#;

struct Seeded;

impl Sealed for Seeded {}

impl NoiseSource for Seeded {
    type Stream = ChaCha20Rng;
    fn stream(&self, release: &ReleaseId, step: u64, purpose: Purpose) -> Result<ChaCha20Rng, NoRandomness> {
        Ok(ChaCha20Rng::from_seed(Hash::of("test", &[format!("{release}/{step}/{purpose:?}").as_bytes()]).0))
    }
}

/// Persons of one to three rows, which stand far from each other.
fn csv(persons: u64) -> String {
    let (mut text, mut state) = ("person,a,b,y\n".to_owned(), 1_u64);
    let mut number = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        f64::from(u32::try_from(state >> 33).unwrap()) / f64::from(1_u32 << 30) - 1.0
    };
    for visit in 0..3 {
        for person in (0..persons).filter(|person| person % 3 >= visit) {
            let (a, b) = (number(), number());
            writeln!(text, "p{person},{a},{b},{}", u8::from(a + b + number() > 0.0)).unwrap();
        }
    }
    text
}

fn task() -> ResolvedTask {
    let context = ResolveContext { name: "test", update_deadline_seconds: 60, min_sites: 1, expected_sites: 1 };
    RawTask::parse(TASK).unwrap().resolve(SCHEMA, context).unwrap()
}

/// What a site sends in a visit, with noise from a seed.
fn sent(task: &ResolvedTask, visit: u32, units: &Units<RecordTable>) -> Payload {
    asked(task, visit, units).unwrap()
}

fn asked(task: &ResolvedTask, visit: u32, units: &Units<RecordTable>) -> Result<Payload, InferenceError> {
    let identity = LedgerIdentity { data: "test".into(), unit: PrivacyUnit::Person, relation: Relation::AddRemove };
    let budget =
        Budget { epsilon: Epsilon::INFINITE, delta: Delta::new(1e-5).unwrap(), per_run: None, max_fallback: None, allow_non_private: true };
    let mut ledger = Ledger::open(MemoryStore::new(Unsealed), SigningKey::from_bytes(&[7; 32]), identity, budget).unwrap();
    let release = ReleaseId { run: RunId { task: Hash::default(), number: 0 }, client: ClientId::new("site").unwrap(), round: visit };
    let permit = ledger.reserve(&release, &task.visit_event(visit).unwrap(), Hash::default()).unwrap();
    let lambda = task.rule().initial();
    let job = Job { site: None, task, visit, lambda: &lambda, state: &SiteState::None };
    run(&job, units, permit, &Seeded).map(|output| output.message.released().unwrap().get().clone())
}

fn here(folder: &Path, persons: u64) -> Units<RecordTable> {
    let file = folder.join(format!("{persons}.csv"));
    fs::write(&file, csv(persons)).unwrap();
    let schema = Schema::asking("y ~ .", SCHEMA).unwrap();
    load_for_run(&schema, &[file], &[0; 32]).unwrap().units(&schema, None).unwrap().units
}

fn elsewhere(folder: &Path, persons: u64, key: SiteKey, ask: &dyn Fn(&Path) -> Box<dyn ExecutorChannel>) -> Units<RecordTable> {
    let file = folder.join(format!("{persons}.csv"));
    let executors = Executors { folder, key, ask };
    let schema = Schema::asking("y ~ .", SCHEMA).unwrap();
    load_for_run(&schema, &[file], &[0; 32]).unwrap().units_elsewhere(&schema, tempfile::tempfile().unwrap(), executors).unwrap().units
}

fn answers(mut list: &[u8]) -> Vec<Vec<u8>> {
    let mut found = Vec::new();
    while let Some((length, rest)) = list.split_first_chunk::<4>() {
        let (answer, rest) = rest.split_at(u32::from_le_bytes(*length) as usize);
        found.push(answer.to_vec());
        list = rest;
    }
    found
}

/// DataFusion in this process, in so many parts.
struct Local {
    snapshot: PathBuf,
    parts: usize,
    key: u8,
    /// How many answers each question got.
    seen: Arc<Mutex<Vec<usize>>>,
}

impl ExecutorChannel for Local {
    fn ask(&self, question: &[u8]) -> Result<Vec<Vec<u8>>, NoSum> {
        let session = SessionContext::new_with_config(visit::settings(SessionConfig::new(), self.parts));
        let key = Some(Arc::new(SiteKey::new([self.key; 32].into())));
        let runtime = tokio::runtime::Runtime::new().unwrap();
        let list = runtime.block_on(visit::answers(&session, question, key, &self.snapshot)).map_err(|_| NoSum::Unanswered)?;
        let answers = answers(&list);
        self.seen.lock().unwrap().push(answers.len());
        Ok(answers)
    }
}

#[test]
fn one_two_and_seven_parts_have_the_bits_of_one_process() {
    let (folder, task) = (tempfile::tempdir().unwrap(), task());
    let (own, other) = (here(folder.path(), 2000), here(folder.path(), 1999));
    for visit in [0, 1] {
        let expected = sent(&task, visit, &own);
        assert_ne!(expected, sent(&task, visit, &other), "the sum is more than its noise");
        for parts in [1, 2, 7] {
            let seen = Arc::default();
            let ask = |snapshot: &Path| -> Box<dyn ExecutorChannel> {
                Box::new(Local { snapshot: snapshot.to_owned(), parts, key: 5, seen: Arc::clone(&seen) })
            };
            let units = elsewhere(folder.path(), 2000, SiteKey::new([5; 32].into()), &ask);
            assert_eq!(sent(&task, visit, &units), expected, "visit {visit} in {parts} parts");
            // Parts that are quick take blocks of others, so one may be left without any: it has no answer.
            let answers = seen.lock().unwrap()[0];
            assert!((1..=parts).contains(&answers), "{answers} answers in {parts} parts");
        }
    }
}

#[test]
fn an_executor_with_another_key_sums_nothing() {
    let folder = tempfile::tempdir().unwrap();
    here(folder.path(), 100);
    let seen: Arc<Mutex<Vec<usize>>> = Arc::default();
    let ask = |snapshot: &Path| -> Box<dyn ExecutorChannel> {
        Box::new(Local { snapshot: snapshot.to_owned(), parts: 2, key: 6, seen: Arc::clone(&seen) })
    };
    let units = elsewhere(folder.path(), 100, SiteKey::new([5; 32].into()), &ask);
    let refused = asked(&task(), 0, &units).unwrap_err();
    assert!(matches!(refused, InferenceError::Release(ReleaseError::NoSum(NoSum::Unanswered))), "{refused}");
    assert!(seen.lock().unwrap().is_empty());
}

/// A scheduler and executors as processes.
struct Cluster {
    folder: PathBuf,
    scheduler: Child,
    executors: Vec<Child>,
}

fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

impl Cluster {
    /// One in which no executor is to be lost, however busy the machine is.
    fn start(folder: &Path, executors: usize, parts: usize) -> Self {
        Self::start_over(folder, folder, executors, parts, 120)
    }

    /// Executors read these snapshots only, and count as lost after so many seconds without a word.
    fn start_over(folder: &Path, snapshots: &Path, executors: usize, parts: usize, lost_after: u64) -> Self {
        let keys = folder.join("keys");
        assert!(Command::new(PROGRAM).arg("keys").arg("--out").arg(&keys).status().unwrap().success());
        let port = free_port();
        let write = |role: &str, name: &str, more: &str| {
            let text = format!(
                "[tls]\nca = \"ca.pem\"\ncert = \"{role}.pem\"\nkey = \"{role}.key\"\n[scheduler]\nbind = \"127.0.0.1\"\nhost = \"localhost\"\nport = {port}\n\
                 lost_after_seconds = {lost_after}\n[sum]\nparts = {parts}\n{more}"
            );
            fs::write(keys.join(name), text).unwrap();
        };
        write("scheduler", "scheduler.toml", "");
        write("head", "head.toml", "");
        let start = |command: &str, file: &str| {
            let mut command_line = Command::new(PROGRAM);
            command_line.arg(command).arg("--config").arg(keys.join(file)).stdin(Stdio::null()).spawn().unwrap()
        };
        let scheduler = start("scheduler", "scheduler.toml");
        let executor = |number: usize| {
            let work = folder.join(format!("work-{number}"));
            fs::create_dir(&work).unwrap();
            let more = format!(
                "[executor]\nbind = \"127.0.0.1\"\nhost = \"localhost\"\nport = {}\nsite_key = \"site.key\"\nsnapshots = \"{}\"\nwork = \"{}\"\nthreads = 1\n",
                free_port(),
                snapshots.display(),
                work.display()
            );
            let file = format!("executor-{number}.toml");
            write("executor", &file, &more);
            start("executor", &file)
        };
        Self { folder: folder.to_owned(), scheduler, executors: (0..executors).map(executor).collect() }
    }

    fn key(&self) -> SiteKey {
        site_key(&self.folder.join("keys/site.key")).unwrap()
    }

    /// Files below the folder of an executor.
    fn files(&self, executor: usize) -> Vec<PathBuf> {
        files(&self.folder.join(format!("work-{executor}")))
    }
}

fn files(folder: &Path) -> Vec<PathBuf> {
    let Ok(entries) = fs::read_dir(folder) else { return Vec::new() };
    entries.flatten().flat_map(|entry| if entry.path().is_dir() { files(&entry.path()) } else { vec![entry.path()] }).collect()
}

impl Drop for Cluster {
    fn drop(&mut self) {
        for child in self.executors.iter_mut().chain([&mut self.scheduler]) {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

type Meanwhile = Box<dyn FnMut(&mut Child) + Send>;

/// The words of a program on its standard error.
type Said = Arc<Mutex<Vec<u8>>>;

/// The program that a site's client starts, and what is done while it runs.
struct Asking {
    config: PathBuf,
    snapshot: PathBuf,
    meanwhile: Mutex<Meanwhile>,
    said: Said,
}

impl ExecutorChannel for Asking {
    fn ask(&self, question: &[u8]) -> Result<Vec<Vec<u8>>, NoSum> {
        let mut command = Command::new(PROGRAM);
        command.arg("sum").arg("--config").arg(&self.config).arg("--snapshot").arg(&self.snapshot);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        child.stdin.take().unwrap().write_all(question).unwrap();
        (self.meanwhile.lock().unwrap())(&mut child);
        let Output { status, stdout, stderr } = child.wait_with_output().unwrap();
        self.said.lock().unwrap().extend(stderr);
        if status.success() { Ok(answers(&stdout)) } else { Err(NoSum::Unanswered) }
    }
}

fn asking<M: FnMut(&mut Child) + Send + 'static>(
    config: &Path,
    meanwhile: M,
) -> (impl Fn(&Path) -> Box<dyn ExecutorChannel> + use<M>, Said) {
    let (meanwhile, said) = (Mutex::new(Some(meanwhile)), Said::default());
    let (config, words) = (config.to_owned(), Arc::clone(&said));
    let ask = move |snapshot: &Path| -> Box<dyn ExecutorChannel> {
        let meanwhile = meanwhile.lock().unwrap().take().unwrap();
        let said = Arc::clone(&words);
        Box::new(Asking { config: config.clone(), snapshot: snapshot.to_owned(), meanwhile: Mutex::new(Box::new(meanwhile)), said })
    };
    (ask, said)
}

/// An executor that is told to read another folder's snapshots computes no plan over this one.
#[test]
fn an_executor_reads_the_snapshots_of_its_folder_only() {
    let folder = tempfile::tempdir().unwrap();
    here(folder.path(), 100);
    let cluster = Cluster::start_over(folder.path(), &folder.path().join("keys"), 1, 2, 120);
    let (ask, said) = asking(&folder.path().join("keys/head.toml"), |_| {});
    let units = elsewhere(folder.path(), 100, cluster.key(), &ask);
    assert!(asked(&task(), 0, &units).is_err());
    let said = String::from_utf8_lossy(&said.lock().unwrap()).into_owned();
    assert!(said.contains("no part of a sum over a snapshot"), "{said}");
}

#[test]
fn a_cluster_has_the_bits_of_one_process_and_leaves_nothing_behind() {
    let (folder, task) = (tempfile::tempdir().unwrap(), task());
    let own = here(folder.path(), 2000);
    let mut cluster = Cluster::start(folder.path(), 2, 7);
    let (ask, said) = asking(&folder.path().join("keys/head.toml"), |_| {});
    let units = elsewhere(folder.path(), 2000, cluster.key(), &ask);
    for visit in [0, 1] {
        assert_eq!(sent(&task, visit, &units), sent(&task, visit, &own), "{}", String::from_utf8_lossy(&said.lock().unwrap()));
    }
    // What was shuffled is removed while the executors run, and the rest when they end.
    for _ in 0..120 {
        if (0..2).all(|executor| cluster.files(executor).is_empty()) {
            break;
        }
        sleep(Duration::from_millis(500));
    }
    assert_eq!((cluster.files(0), cluster.files(1)), (Vec::new(), Vec::new()));
    for executor in &mut cluster.executors {
        assert!(Command::new("kill").arg(executor.id().to_string()).status().unwrap().success());
        executor.wait().unwrap();
    }
    (0..2).for_each(|executor| assert_eq!(fs::read_dir(folder.path().join(format!("work-{executor}"))).unwrap().count(), 0));
    // Another authority's certificate is not let in.
    let foreign = tempfile::tempdir().unwrap();
    let keys = foreign.path().join("keys");
    assert!(Command::new(PROGRAM).arg("keys").arg("--out").arg(&keys).status().unwrap().success());
    fs::copy(folder.path().join("keys/head.toml"), keys.join("head.toml")).unwrap();
    let mut sum = Command::new(PROGRAM);
    sum.arg("sum").arg("--config").arg(keys.join("head.toml")).arg("--snapshot").arg(folder.path()).stdin(Stdio::null());
    let refused = sum.output().unwrap();
    assert!(!refused.status.success() && refused.stdout.is_empty());
}

#[test]
fn an_executor_that_is_killed_in_the_middle_changes_no_bit() {
    let (folder, task) = (tempfile::tempdir().unwrap(), task());
    let own = here(folder.path(), 20_000);
    let mut cluster = Cluster::start_over(folder.path(), folder.path(), 2, 64, 5);
    // Ended once the executor that will be killed has made a part.
    let (mut victim, kept) = (cluster.executors.remove(1), folder.path().join("work-1"));
    let killed = Arc::new(Mutex::new(false));
    let done = Arc::clone(&killed);
    let kill = move |sum: &mut Child| {
        while files(&kept).is_empty() {
            assert!(sum.try_wait().unwrap().is_none(), "the premise: the sum is not finished before the second executor made a part");
            sleep(Duration::from_millis(1));
        }
        victim.kill().unwrap();
        victim.wait().unwrap();
        *done.lock().unwrap() = sum.try_wait().unwrap().is_none();
    };
    let (ask, said) = asking(&folder.path().join("keys/head.toml"), kill);
    let units = elsewhere(folder.path(), 20_000, cluster.key(), &ask);
    assert_eq!(sent(&task, 1, &units), sent(&task, 1, &own), "{}", String::from_utf8_lossy(&said.lock().unwrap()));
    assert!(*killed.lock().unwrap(), "the premise: it was killed in the middle");
}

/// `ready`, with a head's file.
fn ready(config: &Path) -> Output {
    Command::new(PROGRAM).arg("ready").arg("--config").arg(config).stdin(Stdio::null()).output().unwrap()
}

/// A head's file with another scheduler, or the certificate of another role.
fn other_head(keys: &Path, name: &str, port: u16, role: &str) -> PathBuf {
    let text = format!(
        "[tls]\nca = \"ca.pem\"\ncert = \"{role}.pem\"\nkey = \"{role}.key\"\n[scheduler]\nbind = \"127.0.0.1\"\nhost = \"localhost\"\nport = {port}\n"
    );
    let file = keys.join(name);
    fs::write(&file, text).unwrap();
    file
}

/// It is when scheduler and executor are there, and for a head only.
#[test]
fn a_cluster_says_whether_it_can_sum() {
    let folder = tempfile::tempdir().unwrap();
    let mut cluster = Cluster::start_over(folder.path(), folder.path(), 1, 2, 5);
    let keys = folder.path().join("keys");
    let head = keys.join("head.toml");
    let there = ready(&head);
    assert!(there.status.success(), "{}", String::from_utf8_lossy(&there.stderr));
    let said = |output: Output| {
        assert!(!output.status.success() && output.stdout.is_empty());
        String::from_utf8_lossy(&output.stderr).into_owned()
    };
    let port = Config::read(&head).unwrap().scheduler.port;
    // An executor asks for no sum, and a scheduler's certificate opens no connection.
    let executor = said(ready(&other_head(&keys, "executor-as-head.toml", port, "executor")));
    assert!(executor.contains("not for a certificate of your role"), "{executor}");
    // Two that take a while: a scheduler that accepts and says nothing, and an executor's certificate at a scheduler's address.
    let hangs = TcpListener::bind("127.0.0.1:0").unwrap();
    let silent = other_head(&keys, "silent.toml", hangs.local_addr().unwrap().port(), "head");
    let port = free_port();
    let posing = other_head(&keys, "posing.toml", port, "executor");
    let mut poses = Command::new(PROGRAM).arg("scheduler").arg("--config").arg(&posing).stdin(Stdio::null()).spawn().unwrap();
    let posing = other_head(&keys, "to-posing.toml", port, "head");
    cluster.executors[0].kill().unwrap();
    let waits = [silent, posing, other_head(&keys, "scheduler-as-head.toml", port, "scheduler")]
        .map(|config| std::thread::spawn(move || said(ready(&config))));
    let [silent, posing, scheduler] = waits.map(|wait| wait.join().unwrap());
    poses.kill().unwrap();
    poses.wait().unwrap();
    assert!(silent.contains("does not answer"), "{silent}");
    assert!(posing.contains("not valid for name"), "{posing}");
    assert!(!scheduler.is_empty());
    // The executor was lost meanwhile, more than the five seconds ago that this scheduler waits for a word.
    let lost = said(ready(&head));
    assert!(lost.contains("has no executor"), "{lost}");
}

/// Anyone who asks is gone: no one would end the program if the scheduler hangs.
#[test]
fn a_program_whose_parent_has_ended_ends_too() {
    let folder = tempfile::tempdir().unwrap();
    let keys = folder.path().join("keys");
    assert!(Command::new(PROGRAM).arg("keys").arg("--out").arg(&keys).status().unwrap().success());
    let hangs = TcpListener::bind("127.0.0.1:0").unwrap();
    let config = other_head(&keys, "head.toml", hangs.local_addr().unwrap().port(), "head");
    let said = folder.path().join("said");
    let [program, snapshot] = [config.display(), folder.path().display()];
    let start =
        format!("{PROGRAM} sum --config {program} --snapshot {snapshot} </dev/null >/dev/null 2>{} & echo $!; sleep 2", said.display());
    let parent = Command::new("sh").arg("-c").arg(start).output().unwrap();
    let process = PathBuf::from("/proc").join(String::from_utf8(parent.stdout).unwrap().trim());
    // A process that no one waits for is still listed, without a program.
    while fs::read_link(process.join("exe")).is_ok() {
        sleep(Duration::from_millis(100));
    }
    let said = fs::read_to_string(said).unwrap();
    assert!(said.contains("the process that asked has ended"), "{said}");
}
