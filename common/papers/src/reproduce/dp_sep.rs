//! What the reproductions of DP-SEP share: runs of one site through the production updates and rules, and small statistics.

use dp_pvi_accounting::Epsilon;
use dp_pvi_inference::methods::{Job, run};
use dp_pvi_inference::records::RecordTable;
use dp_pvi_names::{ClientId, Hash, Payload, ReleaseId, RunId};
use dp_pvi_posterior::methods::VisitSum;
use dp_pvi_posterior::task::{RawTask, ResolveContext, ResolvedTask};
use dp_pvi_privacy::ledger::memory::MemoryStore;
use dp_pvi_privacy::ledger::{Budget, LedgerIdentity};
use dp_pvi_privacy::{Ledger, SiteState, UnitTable, Units};
use ed25519_dalek::SigningKey;

use super::ReproduceError;
use dp_pvi_simulation::noise::SeededNoise;
use dp_pvi_unsealed::Unsealed;

/// Any error as one of a reproduction.
pub(super) fn wrong(error: impl std::fmt::Display) -> ReproduceError {
    ReproduceError::Result(error.to_string())
}

/// A task from its text and its schema's.
pub(super) fn resolve(task: &str, schema: &str) -> Result<ResolvedTask, ReproduceError> {
    let context = ResolveContext { name: "dp-sep", update_deadline_seconds: 60, min_sites: 1, expected_sites: 1 };
    Ok(RawTask::parse(task)?.resolve(schema, context)?)
}

/// A schema of `columns` numbers between ±`bound`, and a number as label; what is loaded is scaled already.
pub(super) fn schema(columns: usize, bound: f64, norm_bound: Option<f64>) -> String {
    let range = format!("kind = \"number\"\nlower = {:?}\nupper = {bound:?}\ncentre = 0.0\nscale = 1.0\n", -bound);
    let norm = norm_bound.map(|norm| format!("norm_bound = {norm:?}\n")).unwrap_or_default();
    let mut text = format!("{norm}\n[[columns]]\nname = \"y\"\n{range}");
    for column in 0..columns {
        text.push_str(&format!("\n[[columns]]\nname = \"x{column}\"\n{range}"));
    }
    text
}

/// All rounds of a task at one site that holds all records: the production update behind the gate, its ledger, and the server's rule.
/// No network: what is summed over sites is a sum of one.
pub(super) fn rounds(task: &ResolvedTask, table: RecordTable, seed: u64) -> Result<Vec<f64>, ReproduceError> {
    let identity = LedgerIdentity { data: "reproduction".into(), unit: task.privacy.unit, relation: task.privacy.relation };
    let budget =
        Budget { epsilon: Epsilon::INFINITE, delta: task.privacy.delta, per_run: None, max_fallback: None, allow_non_private: true };
    let mut ledger = Ledger::open(MemoryStore::new(Unsealed), SigningKey::from_bytes(&[7; 32]), identity, budget).map_err(wrong)?;
    let declared = table.len() as u64;
    let units = Units::new(table).over_slots(declared);
    let (rule, noise) = (task.rule(), SeededNoise::new(seed));
    let mut state = rule.initial();
    for visit in 0..task.visits() {
        let client = ClientId::new("site").map_err(wrong)?;
        let release = ReleaseId { run: RunId { task: Hash::default(), number: 0 }, client, round: visit };
        let permit = ledger.reserve(&release, &task.visit_event(visit)?, Hash::default()).map_err(wrong)?;
        let job = Job { site: None, task, visit, lambda: &state, state: &SiteState::None };
        let output = run(&job, &units, permit, &noise).map_err(wrong)?;
        let sum = match output.message.released().map(|payload| payload.get()) {
            Some(Payload::Lattice(sum)) => sum.to_f64(),
            Some(Payload::Values(values)) => values.clone(),
            Some(Payload::Masked(_)) | None => return Err(ReproduceError::Result("one site has nothing to aggregate".into())),
        };
        state = rule.apply(&state, &VisitSum { visit, sites: 1, sum: &sum }).state;
    }
    Ok(state)
}

/// Mean and standard deviation of runs.
#[allow(clippy::cast_precision_loss, reason = "a number of runs")]
pub(super) fn mean_and_deviation(values: &[f64]) -> (f64, f64) {
    let n = values.len() as f64;
    let mean = values.iter().sum::<f64>() / n;
    let squares: f64 = values.iter().map(|v| (v - mean).powi(2)).sum();
    (mean, (squares / (n - 1.0).max(1.0)).sqrt())
}
