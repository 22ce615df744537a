//! A federation of real processes in a temporary folder: the shipped binaries, real certificates, real TLS on loopback.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::sleep;
use std::time::{Duration, Instant};

use dp_pvi_accounting::PrivacyUnit;
use serde_json::Value;
use tempfile::TempDir;

use crate::place::binary;
use crate::statements::statements_cover_ledgers;

/// Longest that any single wait of a test may take.
const PATIENCE: Duration = Duration::from_secs(90);
const NAME: &str = "test-federation";

/// What a client of the test federation is and has.
#[derive(Debug, Clone)]
pub struct Party {
    /// Client id.
    pub name: String,
    /// Text of its data file: CSV, where nothing else is said.
    pub csv: String,
    /// Declared number of units; none for an evaluator.
    pub nominal_units: Option<u64>,
    /// Whose data its ledger protects.
    pub unit: PrivacyUnit,
}

impl Party {
    /// A site with its records.
    #[must_use]
    pub fn site(name: &str, csv: String) -> Self {
        let rows = csv.lines().count().saturating_sub(1) as u64;
        Self::site_of(name, csv, rows)
    }

    /// A site with another file than CSV, which holds so many units.
    #[must_use]
    pub fn site_of(name: &str, file: String, units: u64) -> Self {
        Self { name: name.into(), csv: file, nominal_units: Some(units.max(1)), unit: PrivacyUnit::Record }
    }

    /// The same site with a ledger that protects another unit than the record.
    #[must_use]
    pub fn protecting(self, unit: PrivacyUnit) -> Self {
        Self { unit, ..self }
    }

    /// An evaluator with its public test set.
    #[must_use]
    pub fn evaluator(name: &str, csv: String) -> Self {
        Self { name: name.into(), csv, nominal_units: None, unit: PrivacyUnit::Record }
    }
}

/// Folders, keys, certificates and configurations of a federation; nothing runs yet.
#[derive(Debug)]
pub struct Federation {
    folder: TempDir,
    /// Overrides of the server's configuration, as environment variables.
    pub server_environment: BTreeMap<String, String>,
    /// Overrides of every client's configuration.
    pub client_environment: BTreeMap<String, String>,
}

impl Federation {
    /// Writes everything for the given public task, schema and parties. Sites get a generous budget and allow releases without
    /// protection; tests of the budget override that.
    ///
    /// # Panics
    /// When a program fails: these are test fixtures.
    #[must_use]
    pub fn new(task: &str, schema: &str, parties: &[Party]) -> Self {
        let federation = Self {
            folder: tempfile::tempdir().expect("a temporary folder"),
            server_environment: BTreeMap::from([
                ("DP_PVI__SERVER__HTTP".into(), "off".into()),
                ("DP_PVI__SERVER__LISTEN".into(), "127.0.0.1:0".into()),
            ]),
            client_environment: BTreeMap::new(),
        };
        let server = federation.home("server");
        fs::create_dir_all(&server).expect("a folder");
        let sites = parties.iter().filter(|p| p.nominal_units.is_some()).count();
        write(&server.join("task.toml"), task);
        write(&server.join("schema.toml"), schema);
        write(&server.join("server.toml"), &server_toml(sites));
        run(Command::new(binary("dp-pvi-server"))
            .args(["ca", "init", "--federation", NAME, "--dns", "localhost", "--ip", "127.0.0.1", "-o"])
            .arg(server.join("tls")));
        for party in parties {
            federation.enrol(party);
        }
        federation
    }

    /// Gives one more party keys, a certificate and a configuration.
    ///
    /// # Panics
    /// When a program fails.
    pub fn enrol(&self, party: &Party) {
        let home = self.home(&party.name);
        let role = if party.nominal_units.is_some() { "site" } else { "evaluator" };
        fs::create_dir_all(home.join("data")).expect("a folder");
        write(&home.join("data/records.csv"), &party.csv);
        // Each party's own copy, as it would come by mail.
        fs::copy(self.home("server").join("schema.toml"), home.join("data/schema.toml")).expect("the public schema");
        write(&home.join("client.toml"), &client_toml(party));
        run(Command::new(binary("dp-pvi-client"))
            .args(["csr", "--federation", NAME, "--name", &party.name, "--role", role, "-o"])
            .arg(home.join("tls")));
        run(Command::new(binary("dp-pvi-server"))
            .args(["ca", "sign"])
            .arg(home.join(format!("tls/{}.csr.pem", party.name)))
            .arg("--ca")
            .arg(self.home("server").join("tls"))
            .arg("-o")
            .arg(home.join("tls")));
        if party.nominal_units.is_some() {
            run(Command::new(binary("dp-pvi-client")).args(["ledger", "create", "--config"]).arg(home.join("client.toml")));
        }
    }

    /// Gives the federation a summer, the second party of aggregated runs: keys, certificate and configuration in `home("summer")`, its
    /// name in the server's configuration, and its public identity, pinned, in the configuration of every site enrolled so far.
    ///
    /// # Panics
    /// When a program fails.
    pub fn enrol_summer(&self) {
        let (home, server) = (self.home("summer"), self.home("server"));
        let tls = home.join("tls");
        run(Command::new(binary("dp-pvi-server")).args(["summer", "csr", "--federation", NAME, "--name", "summer", "-o"]).arg(&tls));
        run(Command::new(binary("dp-pvi-server"))
            .args(["ca", "sign"])
            .arg(tls.join("summer.csr.pem"))
            .arg("--ca")
            .arg(server.join("tls"))
            .arg("-o")
            .arg(&tls));
        write(&home.join("summer.toml"), &summer_toml());
        append(&server.join("server.toml"), "[summer]\nname = \"summer\"\n");
        for entry in fs::read_dir(self.folder.path()).expect("a folder").flatten() {
            let config = entry.path().join("client.toml");
            let Ok(text) = fs::read_to_string(&config) else { continue };
            if !text.contains("role = \"site\"") {
                continue;
            }
            let trusts = text.replacen("[policy]\n", "[policy]\nallow_trust = [\"local\", \"aggregated\"]\n", 1);
            write(&config, &format!("{trusts}[aggregation]\nsummer = \"tls/summer.pub.pem\"\n"));
            fs::copy(tls.join("summer.pub.pem"), entry.path().join("tls/summer.pub.pem")).expect("a copy");
        }
    }

    /// A command of the summer with its configuration, calling the server at `address`.
    #[must_use]
    pub fn summer_command(&self, arguments: &[&str], address: &str) -> Command {
        let mut command = Command::new(binary("dp-pvi-server"));
        command.arg("summer").args(arguments).arg("--config").arg(self.home("summer").join("summer.toml"));
        command.env("DP_PVI__SUMMER__SERVER", address);
        command
    }

    /// Starts the summer against `address`.
    #[must_use]
    pub fn start_summer(&self, address: &str) -> Process {
        Process::start("summer", &mut self.summer_command(&["run", "--format", "json"], address), &self.home("summer"))
    }

    /// Folder of a party (`server` for the coordinator).
    #[must_use]
    pub fn home(&self, party: &str) -> PathBuf {
        self.folder.path().join(party)
    }

    /// Folders of all parties.
    ///
    /// # Panics
    /// When the federation's folder cannot be read.
    #[must_use]
    pub fn homes(&self) -> Vec<PathBuf> {
        let mut homes: Vec<_> = fs::read_dir(self.folder.path()).expect("a folder").flatten().map(|entry| entry.path()).collect();
        homes.sort();
        homes
    }

    /// A command of the server with its configuration.
    #[must_use]
    pub fn server_command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(binary("dp-pvi-server"));
        command.args(arguments).arg("--config").arg(self.home("server").join("server.toml")).envs(&self.server_environment);
        command
    }

    /// A command of a client with its configuration, run by `program` (the shipped client, or one with a fault).
    #[must_use]
    pub fn client_command_of(&self, program: &Path, client: &str, arguments: &[&str]) -> Command {
        let mut command = Command::new(program);
        command.args(arguments).arg("--config").arg(self.home(client).join("client.toml")).envs(&self.client_environment);
        command
    }

    /// A command of the shipped client.
    #[must_use]
    pub fn client_command(&self, client: &str, arguments: &[&str]) -> Command {
        self.client_command_of(&binary("dp-pvi-client"), client, arguments)
    }

    /// Starts the server and waits until it listens.
    ///
    /// # Panics
    /// When it does not.
    #[must_use]
    pub fn start_server(&self) -> Server {
        self.start_server_with(&[])
    }

    /// The same with more arguments for `run`.
    ///
    /// # Panics
    /// When it does not listen.
    #[must_use]
    pub fn start_server_with(&self, arguments: &[&str]) -> Server {
        let mut command = self.server_command(&["run", "--format", "json"]);
        self.start_server_by(command.args(arguments))
    }

    /// The same by a command that was prepared for it.
    ///
    /// # Panics
    /// When it does not listen.
    #[must_use]
    pub fn start_server_by(&self, command: &mut Command) -> Server {
        let process = Process::start("server", command, &self.home("server"));
        let listening = process.wait_for("it listens", |event| event["event"] == "listening");
        let address = listening["address"].as_str().expect("an address").to_owned();
        Server { process, address }
    }

    /// Starts all parties of a run. Evaluators join first: sites alone may bring a short run to its end before a slow evaluator comes.
    ///
    /// # Panics
    /// An evaluator does not join.
    #[must_use]
    pub fn start_clients(&self, parties: &[Party], address: &str) -> Vec<Process> {
        let (evaluators, sites): (Vec<&Party>, Vec<&Party>) = parties.iter().partition(|party| party.nominal_units.is_none());
        let mut clients: Vec<Process> = evaluators.iter().map(|party| self.start_client(&party.name, address)).collect();
        for evaluator in &clients {
            evaluator.wait_for("it has joined", |event| event["event"] == "joined");
        }
        clients.extend(sites.iter().map(|party| self.start_client(&party.name, address)));
        clients
    }

    /// Starts a client against `address`.
    #[must_use]
    pub fn start_client(&self, client: &str, address: &str) -> Process {
        self.start(client, address, self.client_command(client, &["run", "--format", "json"]))
    }

    /// Starts a prepared `run` command of a client against `address`.
    #[must_use]
    pub fn start(&self, client: &str, address: &str, mut command: Command) -> Process {
        command.env("DP_PVI__SITE__SERVER", address);
        Process::start(client, &mut command, &self.home(client))
    }

    /// What the server exported at the end.
    ///
    /// # Panics
    /// When there is no readable `posterior.json`.
    #[must_use]
    pub fn posterior(&self) -> Value {
        let file = self.home("server").join("results/posterior.json");
        let text = fs::read_to_string(&file).unwrap_or_else(|e| panic!("{}: {e}", file.display()));
        serde_json::from_str(&text).expect("posterior.json is JSON")
    }
}

/// A running coordinator.
#[derive(Debug)]
pub struct Server {
    /// The process.
    pub process: Process,
    /// `127.0.0.1:PORT`.
    pub address: String,
}

/// A running program; killed when dropped. Its output goes to files, so that nothing blocks on a full pipe.
#[derive(Debug)]
pub struct Process {
    name: String,
    child: Child,
    events: PathBuf,
    log: PathBuf,
}

impl Process {
    /// Starts a command; output goes to new files in `folder`.
    ///
    /// # Panics
    /// When it cannot be started.
    #[must_use]
    pub fn start(name: &str, command: &mut Command, folder: &Path) -> Self {
        let number = (0..).find(|n| !folder.join(format!("events-{n}.jsonl")).exists()).expect("a free number");
        let (events, log) = (folder.join(format!("events-{number}.jsonl")), folder.join(format!("log-{number}")));
        let child = command
            .stdin(Stdio::null())
            .stdout(File::create(&events).expect("a file"))
            .stderr(File::create(&log).expect("a file"))
            .spawn()
            .unwrap_or_else(|e| panic!("{name}: {e}"));
        Self { name: name.into(), child, events, log }
    }

    /// Process id.
    #[must_use]
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// All events so far (complete lines of JSON on standard output).
    #[must_use]
    pub fn events(&self) -> Vec<Value> {
        let Ok(file) = File::open(&self.events) else { return Vec::new() };
        BufReader::new(file).lines().map_while(Result::ok).filter_map(|l| serde_json::from_str(&l).ok()).collect()
    }

    /// Standard error so far.
    #[must_use]
    pub fn log(&self) -> String {
        fs::read_to_string(&self.log).unwrap_or_default()
    }

    /// Waits for an event.
    ///
    /// # Panics
    /// When the process ends or patience does before.
    pub fn wait_for(&self, what: &str, mut wanted: impl FnMut(&Value) -> bool) -> Value {
        self.wait_until(what, |p| p.events().into_iter().find(|e| wanted(e)))
    }

    /// Waits until `ready` gives something.
    ///
    /// # Panics
    /// When patience ends before.
    pub fn wait_until<T>(&self, what: &str, mut ready: impl FnMut(&Self) -> Option<T>) -> T {
        let deadline = now() + PATIENCE;
        loop {
            if let Some(value) = ready(self) {
                return value;
            }
            assert!(now() < deadline && self.alive(), "{} did not come to: {what}\n{}", self.name, self.report());
            sleep(Duration::from_millis(5));
        }
    }

    /// Whether it still runs (a process that ended but was not waited for counts as ended).
    #[must_use]
    pub fn alive(&self) -> bool {
        let stat = fs::read_to_string(format!("/proc/{}/stat", self.id())).unwrap_or_default();
        // pid (name) state …
        stat.rsplit_once(')').is_some_and(|(_, rest)| !rest.trim_start().starts_with(['Z', 'X']))
    }

    /// Resident memory in bytes.
    #[must_use]
    pub fn memory(&self) -> u64 {
        let status = fs::read_to_string(format!("/proc/{}/status", self.id())).unwrap_or_default();
        let kib = status.lines().find_map(|l| l.strip_prefix("VmRSS:")).and_then(|l| l.trim().trim_end_matches(" kB").parse::<u64>().ok());
        kib.unwrap_or(0) * 1024
    }

    /// `kill -9`.
    ///
    /// # Panics
    /// When the process cannot be killed.
    pub fn kill(&mut self) {
        self.child.kill().expect("a child can be killed");
        self.child.wait().expect("a child can be waited for");
    }

    /// Sends a signal by name, such as `TERM`.
    ///
    /// # Panics
    /// When there is no `kill`.
    pub fn signal(&self, name: &str) {
        // `kill` is part of every POSIX shell; the standard library sends SIGKILL only.
        run(Command::new("sh").arg("-c").arg(format!("kill -{name} {}", self.id())));
    }

    /// Waits for the end.
    ///
    /// # Panics
    /// When it takes too long.
    pub fn wait(&mut self) -> ExitStatus {
        let deadline = now() + PATIENCE;
        loop {
            if let Some(status) = self.child.try_wait().expect("a child can be waited for") {
                return status;
            }
            assert!(now() < deadline, "{} does not end\n{}", self.name, self.report());
            sleep(Duration::from_millis(5));
        }
    }

    /// Waits for the end and wants this exit code.
    ///
    /// # Panics
    /// When it is another one.
    #[track_caller]
    pub fn expect(&mut self, code: i32) {
        let status = self.wait();
        assert_eq!(status.code(), Some(code), "{} ended with {status}\n{}", self.name, self.report());
    }

    fn report(&self) -> String {
        let events: Vec<_> = self.events().iter().rev().take(20).rev().map(Value::to_string).collect();
        let log = self.log();
        let lines: Vec<_> = log.lines().collect();
        format!("events:\n{}\nlog:\n{}", events.join("\n"), lines[lines.len().saturating_sub(30)..].join("\n"))
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // Already ended is as good.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Runs a command to its end and gives its output.
///
/// # Panics
/// When it fails.
pub fn run(command: &mut Command) -> String {
    let (code, out, err) = outcome(command);
    assert_eq!(code, 0, "{command:?} ended with {code}\n{out}{err}");
    out
}

/// Runs a command to its end and gives its exit code (128 + signal), standard output and standard error.
///
/// # Panics
/// When it cannot be started.
pub fn outcome(command: &mut Command) -> (i32, String, String) {
    let output = command.stdin(Stdio::null()).output().unwrap_or_else(|e| panic!("{command:?}: {e}"));
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (output.status.code().unwrap_or(-1), text(&output.stdout), text(&output.stderr))
}

/// Runs a whole federation to its end: the server and all parties, every one of which has to end with code 0. Statements and ledgers are
/// compared then ([`statements_cover_ledgers`]).
///
/// # Panics
/// When one does not.
pub fn complete(federation: &Federation, parties: &[Party]) -> Vec<Value> {
    let mut server = federation.start_server();
    let mut clients = federation.start_clients(parties, &server.address);
    for client in &mut clients {
        client.expect(0);
    }
    server.process.expect(0);
    statements_cover_ledgers(federation);
    server.process.events()
}

#[allow(clippy::disallowed_methods, reason = "a test may look at the clock")]
fn now() -> Instant {
    Instant::now()
}

fn write(file: &Path, text: &str) {
    fs::write(file, text).unwrap_or_else(|e| panic!("{}: {e}", file.display()));
}

fn append(file: &Path, text: &str) {
    let before = fs::read_to_string(file).unwrap_or_else(|e| panic!("{}: {e}", file.display()));
    write(file, &(before + text));
}

fn summer_toml() -> String {
    format!(
        r#"
[summer]
name = "summer"
federation = "{NAME}"
server = "127.0.0.1:1"
server_name = "localhost"
state = "state"
vault = "vault"
reconnect_seconds = 60
[tls]
ca = "tls/ca.pem"
cert = "tls/summer.pem"
key = "tls/summer.key"
identity = "tls/summer.identity"
"#
    )
}

fn server_toml(sites: usize) -> String {
    format!(
        r#"
[server]
name = "{NAME}"
state = "state"
output = "results"
[tls]
ca = "tls/ca.pem"
cert = "tls/server.pem"
key = "tls/server.key"
[task]
file = "task.toml"
[phases]
min_sites = {sites}
update_deadline = "60s"
start_deadline = "60s"
suspend_for = "5s"
linger = "5s"
"#
    )
}

fn client_toml(party: &Party) -> String {
    let name = &party.name;
    let role = if party.nominal_units.is_some() { "site" } else { "evaluator" };
    let unit = match party.unit {
        PrivacyUnit::Record => "record",
        PrivacyUnit::Person => "person",
        PrivacyUnit::Site => "site",
    };
    let private = party.nominal_units.map_or(String::new(), |units| {
        format!(
            r#"
ledger = "data/ledger.db"
nominal_units = {units}
[policy]
allow_non_private = true
[budget]
epsilon = 100.0
delta = 1e-5
unit = "{unit}"
"#
        )
    });
    format!(
        r#"
[site]
name = "{name}"
role = "{role}"
server = "127.0.0.1:1"
server_name = "localhost"
federation = "{NAME}"
state = "state"
reconnect_seconds = 60
[tls]
ca = "tls/ca.pem"
cert = "tls/{name}.pem"
key = "tls/{name}.key"
identity = "tls/{name}.identity"
[data]
name = "{name}"
uri = "data/records.csv"
schema = "data/schema.toml"
{private}"#
    )
}

/// Federations that run at the same time: they wait for each other's messages and for the disk most of the time.
const LANES: usize = 3;

/// Calls `run` for every item, several at a time, and returns what it gives in the order of the items.
///
/// # Panics
/// When one of the calls does.
pub fn side_by_side<T: Sync, R: Send>(items: &[T], run: impl Fn(&T) -> R + Sync) -> Vec<R> {
    let next = AtomicUsize::new(0);
    let lane = || {
        let mut done = Vec::new();
        loop {
            let number = next.fetch_add(1, Ordering::Relaxed);
            let Some(item) = items.get(number) else { return done };
            done.push((number, run(item)));
        }
    };
    let mut done: Vec<(usize, R)> = std::thread::scope(|scope| {
        let lanes: Vec<_> = (0..LANES).map(|_| scope.spawn(lane)).collect();
        lanes.into_iter().flat_map(|lane| lane.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))).collect()
    });
    done.sort_by_key(|(number, _)| *number);
    done.into_iter().map(|(_, result)| result).collect()
}
