//! A whole federation in one program and in virtual time: one server, its sites and evaluators, over a faulty network, with
//! machines that crash at any write and start again from what their disks hold.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use std::time::Duration;

use chacha20::ChaCha20Rng;
use chacha20::rand_core::{Rng, SeedableRng};
use dp_pvi_accounting::Prices;
use dp_pvi_names::{ClientId, Hash, ReleaseId, RunId};
use dp_pvi_posterior::task::{ResolvedTask, TaskError, Trust};
use dp_pvi_privacy::Ledger;
use dp_pvi_privacy::ledger::memory::MemoryStore;
use dp_pvi_privacy::ledger::{Budget, LedgerError, LedgerIdentity, StoreError};
use dp_pvi_protocol::aggregation::member::AggregationPolicy;
use dp_pvi_protocol::coordinator::{Enrolled, Record, Settings, SummerParty};
use dp_pvi_protocol::driver::{
    Clock, DriveError, Evaluate, Event, Observer, Patience, SiteOutcome, TrainError, Trainer, drive_evaluator, drive_site,
};
use dp_pvi_protocol::message::{PublicMetrics, Role, RunEnd};
use dp_pvi_protocol::participant::{Approve, EvaluatorParticipant, Identity, Participant, Policy, SiteError, TrainJob, Trained};
use dp_pvi_protocol::witness::Witnessed;
use dp_pvi_secagg::charter::Floors;
use ed25519_dalek::SigningKey;

use crate::disk::ServerDisk;
use crate::executor::{Executor, Stopped};
use crate::network::{Faults, Host, Machine, MachineClock, SimulatedSummer, SimulatedTransport, Traffic, crash_point, tls_key};
use crate::noise::stream;
use dp_pvi_unsealed::Unsealed;

/// What a simulated site computes with.
pub trait Compute {
    /// Whether a visit can be computed now.
    ///
    /// # Errors
    /// It cannot.
    fn ready(&mut self) -> Result<(), TrainError> {
        Ok(())
    }

    /// One visit, to be computed beside those of other sites.
    fn train(&mut self, job: TrainJob) -> Visit;
}

/// Computes a visit. An error says that nothing was released.
pub type Visit = Box<dyn FnOnce() -> Result<Trained, TrainError> + Send>;

/// Metrics of a posterior, for a simulated evaluator.
pub type Evaluation = dyn FnMut(&[f64]) -> Result<PublicMetrics, TrainError>;

/// A simulated site. Its ledger's disk survives its crashes.
#[derive(Clone)]
pub struct Site {
    /// Its name.
    pub client: ClientId,
    /// Declared number of units.
    pub nominal_units: u64,
    /// Disk of its ledger.
    pub disk: MemoryStore,
    /// What the ledger is about.
    pub ledger: LedgerIdentity,
    /// Budget.
    pub budget: Budget,
    /// What it accepts.
    pub policy: Policy,
    /// What it computes.
    pub compute: Rc<RefCell<dyn Compute>>,
}

impl Site {
    /// A site with a fresh ledger that fits the task, and a policy that accepts everything.
    #[must_use]
    pub fn new(client: ClientId, nominal_units: u64, task: &ResolvedTask, budget: Budget, compute: Rc<RefCell<dyn Compute>>) -> Self {
        let ledger = LedgerIdentity { data: client.to_string(), unit: task.privacy.unit, relation: task.privacy.relation };
        // Who the summer is, is known when the federation is put together.
        let floors = Floors { max_rounds: u32::MAX, max_honest: u32::MAX, ..Floors::default() };
        let aggregation = AggregationPolicy { floors, ..AggregationPolicy::default() };
        let allow_trust = vec![Trust::Local, Trust::Aggregated];
        let policy = Policy { approve: Approve::Policy, allow_trust, min_release_tick_seconds: 0, aggregation };
        Self { client, nominal_units, disk: MemoryStore::new(Unsealed), ledger, budget, policy, compute }
    }
}

/// A simulated federation.
pub struct Federation {
    /// Canonical bytes of the task.
    pub task: Vec<u8>,
    /// Number of the run.
    pub run: u32,
    /// Seed of keys (not of noise: that belongs to the sites).
    pub seed: u64,
    /// Seed of network and crashes.
    pub fault_seed: u64,
    /// Faults.
    pub faults: Faults,
    /// The sites.
    pub sites: Vec<Site>,
    /// Evaluators.
    pub evaluators: Vec<(ClientId, Rc<RefCell<Evaluation>>)>,
    /// The server's disk.
    pub disk: ServerDisk,
    /// Ledger heads that the server saw in earlier runs.
    pub witnessed: BTreeMap<ClientId, Witnessed>,
    /// How long the server waits for sites.
    pub start_deadline: Duration,
    /// How long a run without its quorum may be suspended.
    pub suspend_for: Duration,
    /// The summer of an aggregated run does not answer for this long.
    pub summer_silent: Duration,
    /// Virtual time after which the simulation gives up.
    pub limit: Duration,
    /// Visits that are computed at the same time.
    pub threads: usize,
    /// What visits cost, as far as it is known ([`prices`]).
    pub prices: Prices,
    /// Called with every closed round's record.
    pub watch: Box<dyn FnMut(&Record)>,
}

/// What came out.
pub struct Outcome {
    /// How the simulation stopped; `Done` when all clients are through.
    pub stopped: Stopped,
    /// The end of the run, as the first site heard it.
    pub end: Option<RunEnd>,
    /// The server's records.
    pub records: Vec<Record>,
    /// What every site did, or why it stopped.
    pub sites: BTreeMap<ClientId, Result<SiteOutcome, DriveError>>,
    /// What every evaluator heard, or why it stopped.
    pub evaluators: BTreeMap<ClientId, Result<RunEnd, DriveError>>,
    /// Crashes of sites.
    pub site_crashes: u32,
    /// Crashes of the server.
    pub server_crashes: u32,
    /// Crashes of the summer.
    pub summer_crashes: u32,
    /// What arrived at the server.
    pub traffic: Traffic,
    /// Hashes of the payloads that arrived for every release, whatever became of them.
    pub arrived: BTreeMap<ReleaseId, BTreeSet<Hash>>,
    /// A failure of the server that was not injected.
    pub fault: Option<String>,
}

impl Outcome {
    /// λ after every closed round, oldest first.
    pub fn posteriors(&self) -> impl Iterator<Item = &[f64]> {
        self.records.iter().filter_map(|record| match record {
            Record::RoundClosed { lambda, .. } => Some(lambda.as_ref()),
            _ => None,
        })
    }
}

/// The server's identity key in a simulation.
#[must_use]
pub fn server_key(seed: u64) -> SigningKey {
    key(seed, "server key", "")
}

/// The summer's identity key in a simulation.
#[must_use]
pub fn summer_key(seed: u64) -> SigningKey {
    key(seed, "summer key", "")
}

/// A client's identity key in a simulation.
#[must_use]
pub fn client_key(seed: u64, client: &ClientId) -> SigningKey {
    key(seed, "client key", client.as_str())
}

fn key(seed: u64, purpose: &str, name: &str) -> SigningKey {
    SigningKey::from_bytes(&Hash::of("dp-pvi simulated key", &[&seed.to_le_bytes(), purpose.as_bytes(), name.as_bytes()]).0)
}

/// What the visits of a task cost. Those without a price are left out: a site's own ledger says what is wrong with them.
#[must_use]
pub fn prices(task: &ResolvedTask) -> Prices {
    let mut prices = Prices::new(task.privacy.relation);
    for (event, _) in task.visit_events(0..task.visits()).unwrap_or_default() {
        let _ = prices.learn(&event);
    }
    prices
}

/// Name of every simulated federation.
pub const FEDERATION: &str = "simulation";

/// Virtual time of a visit: longer than it takes until all sites know of a round, so that they compute at the same time.
const VISIT: Duration = Duration::from_millis(200);

/// Pause of a crashed site before it starts again.
const RESTART: Duration = Duration::from_secs(2);

impl Federation {
    /// A federation of these sites without faults.
    #[must_use]
    pub fn new(task: &ResolvedTask, seed: u64, sites: Vec<Site>) -> Self {
        Self {
            task: task.to_bytes(),
            run: 1,
            seed,
            fault_seed: seed,
            faults: Faults::default(),
            sites,
            evaluators: Vec::new(),
            disk: ServerDisk::default(),
            witnessed: BTreeMap::new(),
            start_deadline: Duration::from_secs(600),
            suspend_for: Duration::from_secs(3600),
            summer_silent: Duration::ZERO,
            limit: Duration::from_secs(365 * 24 * 3600),
            threads: 1,
            prices: Prices::new(task.privacy.relation),
            watch: Box::new(|_| ()),
        }
    }

    /// The server's settings for a run of this number.
    #[must_use]
    pub fn settings_of(&self, run: u32) -> Settings {
        let enrol = |client: &ClientId, role| (client.clone(), Enrolled { role, key: client_key(self.seed, client).verifying_key() });
        let sites = self.sites.iter().map(|site| enrol(&site.client, Role::Site));
        let evaluators = self.evaluators.iter().map(|(client, _)| enrol(client, Role::Evaluator));
        Settings {
            federation: FEDERATION.into(),
            task: self.task.clone(),
            run,
            key: server_key(self.seed).into(),
            clients: sites.chain(evaluators).collect(),
            start_deadline: self.start_deadline,
            suspend_for: self.suspend_for,
            witnessed: self.witnessed.clone(),
            summer: Some(SummerParty { key: summer_key(self.seed).verifying_key(), authority: Hash::default() }),
        }
    }

    /// The run's name.
    ///
    /// # Errors
    /// The task is not one.
    pub fn run_id(&self) -> Result<RunId, TaskError> {
        Ok(RunId { task: ResolvedTask::from_bytes(&self.task)?.hash(), number: self.run })
    }

    /// Runs until every site and evaluator is through, or the limit of virtual time.
    #[must_use]
    pub fn simulate(self) -> Outcome {
        let clock = Executor::new(self.threads);
        let start = clock.now();
        let faults = Rc::new(self.faults.clone());
        let mut summer =
            SimulatedSummer::new(summer_key(self.seed), &server_key(self.seed).verifying_key(), self.fault_seed, faults.crash_summer);
        summer.up_again = start.plus(self.summer_silent);
        let host = Host::new(self.settings_of(self.run), self.disk.clone(), self.watch, Some(summer));
        let host = Rc::new(RefCell::new(host.with_clock(Rc::clone(&faults), start)));
        let results = Rc::new(RefCell::new(Results::default()));
        let clients = self.sites.len() + self.evaluators.len();
        let through = Rc::new(Cell::new(0));
        clock.spawn(supervise(Rc::clone(&host), clock.clone(), self.disk.clone(), self.fault_seed, faults.crash_server));
        let prices = Rc::new(self.prices);
        let machines =
            Machines { clock: clock.clone(), start, host: Rc::clone(&host), faults, seed: self.seed, fault_seed: self.fault_seed, prices };
        for site in self.sites {
            let (machines, results, through) = (machines.clone(), Rc::clone(&results), Rc::clone(&through));
            clock.spawn(async move {
                let client = site.client.clone();
                let result = live(&machines, site, &results).await;
                results.borrow_mut().sites.insert(client, result);
                through.set(through.get() + 1);
            });
        }
        for (client, evaluation) in self.evaluators {
            let (machines, results, through) = (machines.clone(), Rc::clone(&results), Rc::clone(&through));
            clock.spawn(async move {
                let result = machines.evaluate(&client, evaluation).await;
                results.borrow_mut().evaluators.insert(client, result);
                through.set(through.get() + 1);
            });
        }
        let stopped = clock.run(self.limit, || through.get() == clients || host.borrow().fault.is_some());
        clock.clear();
        let Results { sites, evaluators, crashes } = results.take();
        let end = sites.values().flatten().next().map(|outcome| outcome.end.clone());
        let host = host.borrow();
        Outcome {
            stopped,
            end,
            records: self.disk.records(),
            sites,
            evaluators,
            site_crashes: crashes,
            server_crashes: host.crashes,
            summer_crashes: host.summer_crashes(),
            traffic: host.traffic,
            arrived: host.arrived.clone(),
            fault: host.fault.clone(),
        }
    }
}

#[derive(Default)]
struct Results {
    sites: BTreeMap<ClientId, Result<SiteOutcome, DriveError>>,
    evaluators: BTreeMap<ClientId, Result<RunEnd, DriveError>>,
    crashes: u32,
}

#[derive(Clone)]
struct Machines {
    clock: Executor,
    start: dp_pvi_protocol::time::Timestamp,
    host: Rc<RefCell<Host>>,
    faults: Rc<Faults>,
    seed: u64,
    fault_seed: u64,
    /// What the visits of the task cost: the same for all sites.
    prices: Rc<Prices>,
}

/// Keeps the server's machine going, and lets it crash as the faults say.
async fn supervise(host: Rc<RefCell<Host>>, clock: Executor, disk: ServerDisk, seed: u64, crash: f64) {
    let mut lives = 0;
    loop {
        let crashes = host.borrow().crashes;
        if crash > 0.0 && crashes >= lives {
            if let Some((after, failure)) = crash_point(&mut stream(seed, "server crash", lives.into()), crash) {
                disk.fail_after(after, failure);
            }
            lives = crashes + 1;
        }
        host.borrow_mut().tick(clock.now());
        clock.sleep(Duration::from_millis(200)).await;
    }
}

/// A site's lives: after every injected crash it starts again from its ledger.
async fn live(machines: &Machines, site: Site, results: &RefCell<Results>) -> Result<SiteOutcome, DriveError> {
    let mut dice = stream(machines.fault_seed, &format!("crash/{}", site.client), 0);
    for life in 0.. {
        if machines.faults.crash_site > 0.0
            && let Some((after, failure)) = crash_point(&mut dice, machines.faults.crash_site)
        {
            site.disk.fail_after(after, failure);
        }
        match machines.site(&site, life).await {
            Err(DriveError::Site(SiteError::Ledger(LedgerError::Store(StoreError::Unavailable(_))))) => {
                results.borrow_mut().crashes += 1;
                let pause = RESTART + Duration::from_millis(u64::from(dice.next_u32() % 1000));
                machines.clock.sleep(pause).await;
            }
            result => return result,
        }
    }
    unreachable!("the loop over lives ends by returning only")
}

impl Machines {
    fn identity(&self, client: &ClientId) -> Identity {
        Identity {
            federation: FEDERATION.into(),
            client: client.clone(),
            key: client_key(self.seed, client),
            server: server_key(self.seed).verifying_key(),
            tls_key: tls_key(client),
            software: "simulation".into(),
            task: None,
        }
    }

    fn clock_of(&self, client: &ClientId) -> MachineClock {
        MachineClock::new(self.clock.clone(), self.start, Machine::Client(client.clone()), Rc::clone(&self.faults))
    }

    fn transport(&self, client: &ClientId, life: u64) -> SimulatedTransport {
        SimulatedTransport::new(
            Rc::clone(&self.host),
            self.clock.clone(),
            self.start,
            client.clone(),
            Rc::clone(&self.faults),
            self.fault_seed,
            life,
        )
    }

    async fn site(&self, site: &Site, life: u64) -> Result<SiteOutcome, DriveError> {
        let identity = self.identity(&site.client);
        let ledger = Ledger::open(site.disk.clone(), identity.key.clone(), site.ledger.clone(), site.budget).map_err(SiteError::Ledger)?;
        let ledger = ledger.knowing(&self.prices);
        let mut policy = site.policy.clone();
        policy.aggregation.summer.get_or_insert(summer_key(self.seed).verifying_key());
        let mut participant = Participant::new(identity, policy, site.nominal_units, ledger);
        let mut transport = self.transport(&site.client, life);
        let dice = stream(self.seed, &format!("masks/{}", site.client), life);
        let mut trainer = Computes { compute: Rc::clone(&site.compute), clock: self.clock.clone(), dice };
        drive_site(&mut participant, &mut transport, &mut trainer, &self.clock_of(&site.client), &mut Quiet, &patience()).await
    }

    async fn evaluate(&self, client: &ClientId, evaluation: Rc<RefCell<Evaluation>>) -> Result<RunEnd, DriveError> {
        let mut participant = EvaluatorParticipant::new(self.identity(client));
        let mut transport = self.transport(client, 0);
        let mut evaluator = Evaluates(evaluation);
        drive_evaluator(&mut participant, &mut transport, &mut evaluator, &self.clock_of(client), &mut Quiet, &patience()).await
    }
}

fn patience() -> Patience {
    let day = Duration::from_secs(24 * 3600);
    Patience { give_up_after: day, first_contact: day, idle: Duration::from_millis(100), ..Patience::default() }
}

struct Quiet;

impl Observer for Quiet {
    fn on_event(&mut self, _event: &Event<'_>) {}
}

struct Computes {
    compute: Rc<RefCell<dyn Compute>>,
    clock: Executor,
    dice: ChaCha20Rng,
}

impl Trainer for Computes {
    type Random = ChaCha20Rng;

    fn randomness(&mut self, _release: &ReleaseId) -> Result<ChaCha20Rng, TrainError> {
        let mut seed = [0; 32];
        self.dice.fill_bytes(&mut seed);
        Ok(ChaCha20Rng::from_seed(seed))
    }

    async fn ready(&mut self) -> Result<(), TrainError> {
        self.compute.borrow_mut().ready()
    }

    async fn train(&mut self, job: TrainJob) -> Result<Trained, TrainError> {
        let visit = self.compute.borrow_mut().train(job);
        self.clock.compute(VISIT, visit).await
    }
}

struct Evaluates(Rc<RefCell<Evaluation>>);

impl Evaluate for Evaluates {
    async fn evaluate(&mut self, lambda: &[f64]) -> Result<PublicMetrics, TrainError> {
        (self.0.borrow_mut())(lambda)
    }
}
