//! Starts everything, waits for the end, writes the results.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use dp_pvi_names::RunId;
use dp_pvi_posterior::task::ResolvedTask;
use dp_pvi_programs::problem::Problem;
use dp_pvi_proto::CHUNK_BYTES;
use dp_pvi_proto::summer::ANSWER_BYTES;
use dp_pvi_proto::v1::aggregation_server::AggregationServer;
use dp_pvi_proto::v1::federation_server::FederationServer;
use dp_pvi_protocol::coordinator::{Settings, SummerParty};
use dp_pvi_protocol::message::RunOutcome;
use tokio::net::TcpListener;
use tokio::sync::{oneshot, watch};
use tokio::task::JoinHandle;
use tracing::{debug, info, warn};

use crate::ca::Enrolled;
use crate::config::{Config, Phases};
use crate::convergence_status::StatusCache;
use crate::engine::{self, EngineHandle, Event, EventSink, Parts, Progress};
use crate::error::{Result, ServerError};
use crate::export::{Exported, export};
use crate::http::{self, Pages};
use crate::mailbox::Mailbox;
use crate::resource_backoff::Limits;
use crate::service::{AggregationService, Service};
use crate::store::{PayloadStore, Store, StoredRun};
use crate::telemetry::Telemetry;
use crate::tls::{LiveCredentials, authority_hash, load_identity};
use crate::{admin, clock, expiry, listener, resolve_task};

/// Certificate files are looked at this often.
const REFRESH: Duration = Duration::from_secs(2);
/// Interval between two reports of an expiry.
const REPEAT_AFTER: Duration = Duration::from_secs(24 * 3600);
/// Open calls may finish for this long when the server ends.
const DRAIN: Duration = Duration::from_secs(3);

/// Whether an ended run of the task is followed by another.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Start {
    /// Continue the task's run, or start its first. An ended run stays ended.
    Continue,
    /// Start the next run if the last one has ended.
    NewRun,
}

/// A started server.
#[must_use = "the server ends when this is dropped"]
pub struct Running {
    /// gRPC address.
    pub address: SocketAddr,
    /// HTTP address.
    pub http: Option<SocketAddr>,
    config: Config,
    engine: EngineHandle,
    progress: watch::Receiver<Progress>,
    engine_done: oneshot::Receiver<Result<()>>,
    grpc: JoinHandle<Result<()>>,
    stop_grpc: oneshot::Sender<()>,
    background: Vec<JoinHandle<()>>,
    events: EventSink,
}

/// Runs the configured task until its run ends or `shutdown` resolves to the number of a signal. Writes the results.
///
/// # Errors
/// See [`ServerError`]; [`ServerError::QuorumLost`] after the results of such a run were written; [`ServerError::NoRound`] where there
/// are none.
pub async fn run(config: Config, start_as: Start, events: EventSink, shutdown: impl Future<Output = u8>) -> Result<Exported> {
    start(config, start_as, events).await?.finish(shutdown).await
}

/// Opens state and ports and starts serving. A run that has ended already is served too, for as long as the server lingers: if the
/// server was killed at the end of the run, its clients still wait to hear of it.
///
/// # Errors
/// See [`ServerError`].
pub async fn start(config: Config, start_as: Start, events: EventSink) -> Result<Running> {
    let task = resolve_task(&config)?;
    let key = load_identity(&config.tls.identity)?;
    let credentials = Arc::new(LiveCredentials::load(&config.tls, &config.federation)?);
    expiry::refuse_expired(&credentials.validities(), clock::date(clock::now()))?;
    let clients = active_clients(&credentials, &config.phases)?;
    let summer = second_party(&config, &task, &credentials.current().enrolled)?;
    crate::files::create_private_directory(&config.state)?;
    crate::files::check_own(&config.state)?;
    let mut store = Store::open(&config.store.database)?;
    let run = pick_run(&mut store, &task, start_as)?;
    if run.ended {
        info!(run = run.id.number, "this run has ended; `dp-pvi-server run --new-run` starts the next");
    }
    let telemetry = Arc::new(Telemetry::new());
    let limits = Limits::of(dp_pvi_programs::process::raise_descriptor_limit());
    let payload_store = PayloadStore::open(&config.state, &run.id)?;
    let settings = Settings {
        federation: config.federation.clone(),
        task: task.to_bytes(),
        run: run.id.number,
        key,
        clients,
        start_deadline: config.phases.start_deadline,
        suspend_for: config.phases.suspend_for,
        witnessed: store.witnessed()?.into_iter().collect(),
        summer,
    };

    // Ports before the run: a port that is taken must not start the clock of a run.
    let grpc = bind(config.listen, "listen").await?;
    let http = match config.http {
        Some(address) => Some(bind(address, "http").await?),
        None => None,
    };
    let socket = admin::bind(&config.state)?;
    let address = local(&grpc)?;
    let http_address = http.as_ref().map(local).transpose()?;
    events(&Event::Listening { address: address.to_string(), http: http_address.map(|a| a.to_string()) });
    debug!(%address, http = ?http_address, task = %task.hash(), run = run.id.number, "listening");

    let (mailbox, paper) = summer.map(|_| Mailbox::new()).unzip();
    let parts = Parts {
        settings,
        store,
        run,
        payload_store: payload_store.clone(),
        updates: config.store.updates,
        telemetry: telemetry.clone(),
        events: events.clone(),
        mailbox,
    };
    let started = engine::start(parts)?;
    let engine = started.handle.clone();
    let service = Service::new(engine.clone(), credentials.clone(), &config.federation, payload_store, telemetry.clone());
    let aggregation = match (paper, &config.summer) {
        (Some(paper), Some(name)) => Some(AggregationService::new(service.clone(), name.clone(), paper, longest_answer(&task)?)),
        _ => None,
    };
    let incoming = listener::accept(grpc, credentials.clone(), telemetry.clone(), limits.handshakes);
    let (stop_grpc, stopped) = oneshot::channel();
    let grpc = tokio::spawn(serve_grpc(service, aggregation, incoming, stopped));

    let convergence = StatusCache::new(config.clone());
    let mut background = vec![tokio::spawn(admin::serve(socket, engine.clone(), credentials.clone(), convergence.clone()))];
    background.push(tokio::spawn(refresh(credentials.clone(), engine.clone(), config.phases.clone())));
    if let Some(http) = http {
        let pages = Pages {
            engine: engine.clone(),
            telemetry,
            credentials,
            convergence,
            federation: config.federation.as_str().into(),
            listen: address,
            hosts: config.http_hosts.as_slice().into(),
        };
        background.push(tokio::spawn(http::serve(http, pages, limits.pages)));
    }
    Ok(Running {
        address,
        http: http_address,
        config,
        engine,
        progress: started.progress,
        engine_done: started.done,
        grpc,
        stop_grpc,
        background,
        events,
    })
}

impl Running {
    /// Waits until the run has ended and everyone knows, or until `shutdown` resolves to the number of a signal.
    ///
    /// # Errors
    /// See [`ServerError`].
    pub async fn finish(mut self, shutdown: impl Future<Output = u8>) -> Result<Exported> {
        let ended = tokio::select! {
            signal = shutdown => Err(ServerError::Signal(signal)),
            done = &mut self.engine_done => Err(engine_error(done)),
            outcome = wait_for_end(self.progress.clone(), self.config.phases.linger) => Ok(outcome),
        };
        // The reason is asked while there is an engine; one that is gone has said more.
        let reason = self.engine.status().await.ok().and_then(|snapshot| snapshot.reason);
        self.close().await;
        let outcome = ended?;
        conclude(&self.config, outcome, reason, &self.events).await
    }

    /// Ends the server: waiting calls are answered, the state is closed.
    async fn close(&mut self) {
        self.background.iter().for_each(JoinHandle::abort);
        self.engine.close();
        let (unused, _) = oneshot::channel();
        let _ = std::mem::replace(&mut self.stop_grpc, unused).send(());
        if tokio::time::timeout(DRAIN, &mut self.grpc).await.is_err() {
            self.grpc.abort();
        }
        // Lets the thread close the database, unless it has ended already.
        if !self.engine_done.is_terminated() {
            let _ = tokio::time::timeout(DRAIN, &mut self.engine_done).await;
        }
        let _ = std::fs::remove_file(admin::socket_path(&self.config.state));
    }
}

fn engine_error(done: std::result::Result<Result<()>, oneshot::error::RecvError>) -> ServerError {
    match done {
        Ok(Err(error)) => error,
        Ok(Ok(())) | Err(_) => ServerError::Failed("the engine ended unexpectedly; start the server again".into()),
    }
}

async fn wait_for_end(mut progress: watch::Receiver<Progress>, linger: Duration) -> RunOutcome {
    let outcome = loop {
        match *progress.borrow_and_update() {
            Progress::Running => {}
            Progress::Ended(outcome) | Progress::Known(outcome) => break outcome,
        }
        if progress.changed().await.is_err() {
            // The engine is gone: its own result says why.
            std::future::pending::<()>().await;
        }
    };
    let everybody = progress.wait_for(|progress| matches!(progress, Progress::Known(_)));
    tokio::select! {
        _ = everybody => {}
        () = clock::attended(linger) => warn!("some members have not fetched the end of the run; they learn it from the operator"),
    }
    outcome
}

/// Writes the results and turns the outcome into the process's result.
async fn conclude(config: &Config, outcome: RunOutcome, reason: Option<String>, events: &EventSink) -> Result<Exported> {
    let config = config.clone();
    let exported = tokio::task::spawn_blocking(move || export(&config, &config.output))
        .await
        .map_err(|e| ServerError::Failed(Problem::of(e)))?
        .map_err(|error| if matches!(error, ServerError::NothingYet) { ServerError::NoRound(outcome, reason.clone()) } else { error })?;
    let text = |path: &Path| path.display().to_string();
    events(&Event::Exported { posterior: text(&exported.posterior), report: text(&exported.report) });
    match outcome {
        RunOutcome::QuorumLost => Err(ServerError::QuorumLost(reason)),
        RunOutcome::Refused => Err(ServerError::SitesRefused(reason)),
        RunOutcome::AggregationLost => Err(ServerError::AggregationLost(reason)),
        RunOutcome::Complete | RunOutcome::Stopped | RunOutcome::Converged => Ok(exported),
    }
}

fn pick_run(store: &mut Store, task: &ResolvedTask, start_as: Start) -> Result<StoredRun> {
    let hash = task.hash();
    if let Some(open) = store.last_run_of_any_task()?.filter(|run| !run.ended && run.id.task != hash) {
        return Err(ServerError::OtherTask(
            format!(
                "the state holds an unfinished run of another task (sha256:{}), the configured task is sha256:{hash}; end that run with \
             `dp-pvi-server stop`, or name another state directory",
                open.id.task
            )
            .into(),
        ));
    }
    match store.last_run(hash)? {
        None => store.create_run(RunId { task: hash, number: 1 }),
        Some(run) if run.ended && start_as == Start::NewRun => store.create_run(RunId { task: hash, number: run.id.number + 1 }),
        Some(run) => Ok(run),
    }
}

fn active_clients(
    credentials: &LiveCredentials,
    phases: &Phases,
) -> Result<std::collections::BTreeMap<dp_pvi_names::ClientId, dp_pvi_protocol::coordinator::Enrolled>> {
    use dp_pvi_protocol::message::Role;
    let clients = credentials.current().enrolled.active()?;
    let sites = clients.values().filter(|client| client.role == Role::Site).count();
    if sites > phases.max_sites as usize {
        let message = format!("{sites} sites are enrolled, [phases] max_sites is {}", phases.max_sites);
        return Err(ServerError::Config { place: "[phases]".into(), message: message.into() });
    }
    Ok(clients)
}

/// The summer that the configuration names, where the task needs one.
///
/// # Errors
/// [`ServerError::Config`]: it names none, or one that is not enrolled.
pub(crate) fn second_party(config: &Config, task: &ResolvedTask, enrolled: &Enrolled) -> Result<Option<SummerParty>> {
    if task.aggregation.is_none() {
        return Ok(None);
    }
    let Some(name) = &config.summer else {
        let message = "the task has trust = \"aggregated\", which needs a second party: write its enrolled name here, name = \"…\" (or \
                       use trust = \"local\" in the task)";
        return Err(ServerError::Config { place: "[summer]".into(), message: message.into() });
    };
    Ok(Some(SummerParty { key: enrolled.summer(name)?, authority: authority_hash(&config.tls.ca)? }))
}

/// Most bytes of an answer of the summer: the words of a sum of masks, and room for the rest.
fn longest_answer(task: &ResolvedTask) -> Result<u64> {
    let mut longest = 0;
    for visit in 0..task.visits() {
        longest = longest.max(task.message(visit).map_err(|e| ServerError::Failed(Problem::of(e)))?.coordinates);
    }
    Ok(longest.saturating_mul(8).saturating_add(ANSWER_BYTES))
}

async fn refresh(credentials: Arc<LiveCredentials>, engine: EngineHandle, phases: Phases) {
    let mut reported: Option<Instant> = None;
    loop {
        if reported.is_none_or(|last| last.elapsed() >= REPEAT_AFTER) {
            reported = Some(clock::instant());
            expiry::warnings(&credentials.validities(), clock::date(clock::now())).iter().for_each(|warning| warn!("{warning}"));
        }
        tokio::time::sleep(REFRESH).await;
        if credentials.refresh().is_some() {
            reported = None;
            match active_clients(&credentials, &phases) {
                Ok(clients) => engine.set_enrolled(clients),
                Err(problem) => warn!(%problem, "the run goes on with the clients that were enrolled before"),
            }
        }
    }
}

async fn serve_grpc(
    service: Service,
    aggregation: Option<AggregationService>,
    incoming: listener::Incoming,
    stopped: oneshot::Receiver<()>,
) -> Result<()> {
    let (health, health_service) = tonic_health::server::health_reporter();
    health.set_serving::<FederationServer<Service>>().await;
    let service = FederationServer::new(service).max_decoding_message_size(CHUNK_BYTES + (64 << 10));
    let aggregation = aggregation.map(|service| AggregationServer::new(service).max_decoding_message_size(CHUNK_BYTES + (64 << 10)));
    tonic::transport::Server::builder()
        .max_concurrent_streams(16)
        .concurrency_limit_per_connection(8)
        .load_shed(true)
        .http2_max_header_list_size(8 << 10)
        .http2_max_pending_accept_reset_streams(Some(32))
        .http2_keepalive_interval(Some(Duration::from_secs(30)))
        .http2_keepalive_timeout(Some(Duration::from_secs(10)))
        .max_connection_age(Duration::from_secs(3600))
        .initial_stream_window_size(1 << 20)
        .initial_connection_window_size(2 << 20)
        // A whole upload over a slow line; a silent one ends earlier.
        .timeout(Duration::from_secs(1800))
        .add_service(service)
        .add_optional_service(aggregation)
        .add_service(health_service)
        .serve_with_incoming_shutdown(incoming, async move { drop(stopped.await) })
        .await
        .map_err(|e| ServerError::Failed(Problem::said(format!("the gRPC service ended: {e}"), e)))
}

async fn bind(address: SocketAddr, key: &str) -> Result<TcpListener> {
    TcpListener::bind(address).await.map_err(|e| {
        ServerError::Unavailable(Problem::said(
            format!("port {address} cannot be opened ({e}): stop what uses it, or change [server] {key}"),
            e,
        ))
    })
}

fn local(listener: &TcpListener) -> Result<SocketAddr> {
    listener.local_addr().map_err(|e| ServerError::Unavailable(Problem::of(e)))
}
