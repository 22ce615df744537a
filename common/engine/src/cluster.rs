//! Scheduler and executors: Ballista's, behind mutual TLS, without its web page, and with nothing left behind.
//!
//! The scheduler also tells a head whether there is an executor, by gRPC's own protocol for it (`grpc.health.v1`).

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use arrow_flight::flight_service_server::FlightServiceServer;
use ballista_core::config::TaskSchedulingPolicy;
use ballista_core::error::BallistaError;
use ballista_core::extension::SessionConfigExt;
use ballista_core::serde::protobuf::scheduler_grpc_server::SchedulerGrpcServer;
use ballista_executor::executor_process::{ExecutorProcessConfig, start_executor_process};
use ballista_scheduler::cluster::BallistaCluster;
use ballista_scheduler::config::SchedulerConfig;
use ballista_scheduler::scheduler_process::create_scheduler;
use datafusion_proto::protobuf::{LogicalPlanNode, PhysicalPlanNode};
use tonic::transport::Server;
use tonic_health::ServingStatus;

use crate::answered::AGAIN;
use crate::config::{Config, EXECUTORS, site_key};
use crate::flight::Parts;
use crate::guard::Guard;
use crate::term_sum::Codec;
use crate::tls::{Heard, LARGEST, Mutual, Role};

/// Seconds after which a sum's files are removed, where no one removed them before.
const FORGET: u64 = 5;

fn in_words(error: BallistaError) -> String {
    error.to_string()
}

fn address(host: &str, port: u16) -> Result<SocketAddr, String> {
    let address = host.parse().map_err(|_| format!("bind = {host:?} is no address of this machine: give numbers"))?;
    Ok(SocketAddr::new(address, port))
}

/// Runs the scheduler until the process is told to end.
///
/// # Errors
/// In words.
pub async fn scheduler(config: Config) -> Result<(), String> {
    let mutual = Mutual::read(&config)?;
    let codec = Arc::new(Codec::new(None));
    let session = mutual.clone();
    let settings = SchedulerConfig {
        bind_host: config.scheduler.bind.clone(),
        external_host: config.scheduler.host.clone(),
        bind_port: config.scheduler.port,
        scheduling_policy: TaskSchedulingPolicy::PullStaged,
        finished_job_data_clean_up_interval_seconds: FORGET,
        finished_job_state_clean_up_interval_seconds: FORGET,
        executor_timeout_seconds: config.scheduler.lost_after_seconds,
        no_executors_grace_period_seconds: 4 * config.scheduler.lost_after_seconds,
        expire_dead_executor_interval_seconds: 2,
        task_max_failures: AGAIN,
        stage_max_failures: AGAIN,
        grpc_server_max_decoding_message_size: LARGEST,
        grpc_server_max_encoding_message_size: LARGEST,
        grpc_client_max_message_size: LARGEST,
        override_config_producer: Some(Arc::new(move || session.session())),
        override_logical_codec: Some(codec.clone()),
        override_physical_codec: Some(codec),
        override_create_grpc_client_endpoint: Some(mutual.endpoints()),
        use_tls: true,
        ..SchedulerConfig::default()
    };
    let at = address(&config.scheduler.bind, config.scheduler.port)?;
    let cluster = BallistaCluster::new_from_config(&settings).await.map_err(in_words)?;
    let scheduler = create_scheduler::<LogicalPlanNode, PhysicalPlanNode>(cluster, Arc::new(settings)).await.map_err(in_words)?;
    let (reporter, health) = tonic_health::server::health_reporter();
    let executors = scheduler.state.executor_manager.clone();
    // One that is lost is taken off the scheduler's list.
    let look = async move {
        loop {
            let some = executors.get_executors_state().await.is_ok_and(|executors| !executors.is_empty());
            let status = if some { ServingStatus::Serving } else { ServingStatus::NotServing };
            reporter.set_service_status(EXECUTORS, status).await;
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
    };
    let service =
        SchedulerGrpcServer::new(scheduler).max_encoding_message_size(LARGEST as usize).max_decoding_message_size(LARGEST as usize);
    let mut server = Server::builder().tls_config(mutual.server()).map_err(|e| format!("[tls]: {e}"))?;
    let server = server.add_service(Heard::new(service, by_scheduler)).add_service(Heard::new(health, by_scheduler));
    tokio::select! {
        served = server.serve_with_shutdown(at, told_to_end()) => served.map_err(|e| format!("the scheduler cannot serve at {at} ({e})")),
        () = look => Ok(()),
    }
}

/// Whom the scheduler hears.
fn by_scheduler(path: &str) -> &'static [Role] {
    let Some(("", call)) = path.split_once('/') else { return &[] };
    match call.strip_prefix("ballista.protobuf.SchedulerGrpc/") {
        Some("PollWork" | "RegisterExecutor" | "HeartBeatFromExecutor" | "UpdateTaskStatus" | "ExecutorStopped") => &[Role::Executor],
        Some(
            "CreateUpdateSession"
            | "RemoveSession"
            | "ExecuteQuery"
            | "ExecuteQueryPush"
            | "GetJobStatus"
            | "GetJobMetrics"
            | "CancelJob"
            | "CleanJobData",
        ) => &[Role::Head],
        None if call == "grpc.health.v1.Health/Check" => &[Role::Head],
        _ => &[],
    }
}

/// Whom an executor hears: who fetches what it has summed.
fn by_executor(_: &str) -> &'static [Role] {
    &[Role::Executor, Role::Head]
}

/// Runs an executor until the process is told to end.
///
/// # Errors
/// In words.
pub async fn executor(config: Config) -> Result<(), String> {
    let own = config.executor.as_ref().ok_or("the file has no [executor]")?;
    let (mutual, key) = (Mutual::read(&config)?, Arc::new(site_key(&own.site_key)?));
    // Private, and removed when this function ends. Where the process is killed it holds ciphertexts whose key was the head's alone.
    let work = tempfile::Builder::new().prefix("executor-").tempdir_in(&own.work);
    let work = work.map_err(|e| format!("[executor] work = {:?}: {e}", own.work))?;
    let guard = Guard::new(&own.snapshots).map_err(|e| format!("[executor] snapshots = {:?}: {e}", own.snapshots))?;
    let codec = Arc::new(Codec::new(Some(key)));
    let (session, served, codecs) = (mutual.clone(), mutual.clone(), codec.clone());
    let settings = ExecutorProcessConfig {
        bind_host: address(&own.bind, own.port)?.ip().to_string(),
        external_host: Some(own.host.clone()),
        port: own.port,
        scheduler_host: config.scheduler.host.clone(),
        scheduler_port: config.scheduler.port,
        scheduler_connect_timeout_seconds: 60,
        vcores: own.threads,
        task_scheduling_policy: TaskSchedulingPolicy::PullStaged,
        work_dir: Some(work.path().to_string_lossy().into_owned()),
        job_data_ttl_seconds: 3600,
        job_data_clean_up_interval_seconds: 60,
        grpc_max_decoding_message_size: LARGEST,
        grpc_max_encoding_message_size: LARGEST,
        override_config_producer: Some(Arc::new(move || {
            let codec = codecs.clone();
            session.session().with_ballista_logical_extension_codec(codec.clone()).with_ballista_physical_extension_codec(codec)
        })),
        override_logical_codec: Some(codec.clone()),
        override_physical_codec: Some(codec),
        override_execution_engine: Some(Arc::new(guard)),
        override_arrow_flight_service: Some(Arc::new(move |work, at, mut shutdown, _| {
            let tls = served.server();
            tokio::spawn(async move {
                let service = FlightServiceServer::new(Parts::new(work))
                    .max_decoding_message_size(LARGEST as usize)
                    .max_encoding_message_size(LARGEST as usize);
                let server =
                    Server::builder().tls_config(tls).map_err(BallistaError::TonicError)?.add_service(Heard::new(service, by_executor));
                server.serve_with_shutdown(at, shutdown.recv()).await.map_err(BallistaError::TonicError)
            })
        })),
        override_create_grpc_client_endpoint: Some(mutual.endpoints()),
        ..ExecutorProcessConfig::default()
    };
    start_executor_process(Arc::new(settings)).await.map_err(in_words)
}

async fn told_to_end() {
    use tokio::signal::unix::{SignalKind, signal};
    let Ok(mut terminate) = signal(SignalKind::terminate()) else { return std::future::pending().await };
    tokio::select! {
        _ = terminate.recv() => {}
        _ = tokio::signal::ctrl_c() => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_scheduler_hears_each_role_for_its_own_calls() {
        let calls = [
            ("/ballista.protobuf.SchedulerGrpc/PollWork", &[Role::Executor][..]),
            ("/ballista.protobuf.SchedulerGrpc/ExecuteQuery", &[Role::Head]),
            ("/grpc.health.v1.Health/Check", &[Role::Head]),
            ("/grpc.health.v1.Health/Watch", &[]),
            ("/ballista.protobuf.SchedulerGrpc/Another", &[]),
            ("ballista.protobuf.SchedulerGrpc/PollWork", &[]),
        ];
        calls.into_iter().for_each(|(call, roles)| assert_eq!(by_scheduler(call), roles, "{call}"));
    }
}
