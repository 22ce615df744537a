//! Ends an unfinished run from its state alone, while no server runs.
//!
//! Anyone who changed the task's file and wants to begin the new run need not find the old file again: the store holds the task's bytes, and the
//! run ends as `stop` ends it in a running server, signed by the same key.

use dp_pvi_names::RunId;
use dp_pvi_posterior::task::ResolvedTask;
use dp_pvi_programs::problem::Problem;
use dp_pvi_protocol::coordinator::{Coordinator, Record, Settings};

use crate::ca::Enrolled;
use crate::clock;
use crate::config::Config;
use crate::error::{Result, ServerError};
use crate::server::second_party;
use crate::store::Store;
use crate::tls::load_identity;

/// Ends the last run of the configured state, whatever its task, if it has not ended. The run that was ended.
///
/// # Errors
/// There is no unfinished run; a server uses the state; the state is damaged, or of another server's key.
pub fn stop_stored(config: &Config) -> Result<RunId> {
    let database = &config.store.database;
    if !database.exists() {
        return Err(ServerError::unavailable(database, "there is no state yet; `dp-pvi-server run` makes it"));
    }
    let mut store = Store::open(database)?;
    let Some(run) = store.last_run_of_any_task()?.filter(|run| !run.ended) else {
        return Err(ServerError::unavailable(database, "no run is unfinished"));
    };
    let mut records = Vec::new();
    while let Some(record) = store.record(&run, records.len() as u64)? {
        records.push(record);
    }
    // A run without a record has not begun: its task is not known, and no one has heard of it.
    let Some(Record::RunOpened { task, .. }) = records.first() else {
        let message = "its last run has not begun; start it with its own task file, or name another state directory";
        return Err(ServerError::unavailable(database, message));
    };
    let resolved =
        ResolvedTask::from_bytes(task).map_err(|e| ServerError::Corrupt(Problem::said(format!("{}: {e}", database.display()), e)))?;
    let enrolled = Enrolled::load(&config.tls.enrolled)?;
    let settings = Settings {
        federation: config.federation.clone(),
        task: task.clone(),
        run: run.id.number,
        key: load_identity(&config.tls.identity)?,
        clients: enrolled.active()?,
        start_deadline: config.phases.start_deadline,
        suspend_for: config.phases.suspend_for,
        witnessed: store.witnessed()?.into_iter().collect(),
        summer: second_party(config, &resolved, &enrolled)?,
    };
    let mut coordinator = Coordinator::restore(settings, records).map_err(|e| ServerError::OtherTask(Problem::of(e)))?;
    for record in coordinator.stop(clock::now()).records {
        store.append(&run, &record, None)?;
    }
    store.commit()?;
    Ok(run.id)
}
