//! What a visit will take, before a run: the task's update on invented records, by the clock.
//!
//! `check` prints it, so that a site knows whether its machine is large enough and whether it answers before the task's deadline. The invented records have as many entries
//! as the schema lets a row have. A visit's time grows in proportion to the number of units, so two sizes that are quick to compute tell that of all. So does it with the
//! number of passes over them: of many only the first are computed.
//!
//! # Privacy
//! No record of the site is read here, and what the update releases is thrown away. Its permits come from a ledger of the invented records, in a folder that is removed
//! at the end: the site's ledger is not touched.

use std::fs;
use std::num::NonZeroUsize;
use std::path::Path;

use dp_pvi_accounting::{Epsilon, PrivacyUnit};
use dp_pvi_data::{invented, memory_of};
use dp_pvi_inference::methods::{self, Job, needs_memory, shortened};
use dp_pvi_names::{ClientId, Hash, ReleaseId, RunId};
use dp_pvi_posterior::task::ResolvedTask;
use dp_pvi_privacy::ledger::{Budget, LedgerIdentity};
use dp_pvi_privacy::{Ledger, SecureNoise, SiteState};
use dp_pvi_programs::ledger::SqliteLedger;
use dp_pvi_programs::problem::Problem;
use dp_pvi_schema::Schema;
use dp_pvi_schema::content::Content;
use ed25519_dalek::SigningKey;

use crate::clock;
use crate::error::{ClientError, Result};
use crate::snapshot::cache_in;

/// Units of the smallest dry run; the next has four times as many.
const FEWEST: u64 = 32;
/// Bytes that the records of the largest may take.
const LARGEST: u64 = 64 << 20;
/// A dry run that takes so many seconds is the last.
const ENOUGH: f64 = 0.2;
/// Memory of the program beside its records, in bytes: measured for a client in a run.
const PROGRAM: u64 = 24 << 20;
/// Units that a sum over the disk reads at once.
const WINDOW: u64 = 4096;

/// Passes over the records that a dry run makes of a visit that has more; and four times as many, to tell what one more takes.
const PASSES: u32 = 50;

/// A folder that is older was left behind.
const OLD: time::Duration = time::Duration::DAY;

/// What a visit is expected to take.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Expected {
    /// By the clock.
    pub seconds: f64,
    /// Memory of the program, in bytes. `None` where units are persons, whose records are not counted.
    pub bytes: Option<u64>,
    /// Invented records of the largest dry run.
    pub invented: u64,
    /// Passes over them that the dry run made, where a visit has more.
    pub passes: Option<u32>,
}

/// Where a site's visits are computed.
#[derive(Debug, Clone, Copy)]
pub struct Where<'a> {
    /// The site's name.
    pub site: &'a ClientId,
    /// The state folder.
    pub state: &'a Path,
    /// `[site] threads`.
    pub threads: NonZeroUsize,
    /// Whether visits read the records from the disk.
    pub on_disk: bool,
}

/// The time of a first visit over this many units of one record each, without reading any file, and the memory that it needs. `None` where records are no table: documents and images have no typical size.
///
/// # Errors
/// [`ClientError::Unavailable`]: the state folder. [`ClientError::Failed`]: the task's update.
pub fn dry_run(task: &ResolvedTask, units: u64, place: Where<'_>) -> Result<Option<Expected>> {
    let failed = |problem: Problem| ClientError::Failed(problem);
    let schema = task.parsed_schema().map_err(|e| failed(Problem::of(e)))?;
    if !matches!(schema.content(), Content::Table) || units == 0 {
        return Ok(None);
    }
    let on_disk = place.on_disk && !needs_memory(task);
    clear(place.state);
    let folder = tempfile::Builder::new()
        .prefix(".dry-run-")
        .tempdir_in(place.state)
        .map_err(|e| ClientError::Unavailable(format!("{}: {e}", place.state.display()).into()))?;
    let mut ledger = throwaway(task, folder.path())?;
    let part = shortened(task, PASSES).filter(|part| part.passes() < task.passes());
    let first = part.as_ref().unwrap_or(task);
    let mut visit = |task: &ResolvedTask, number: u32, count: u64| -> Result<f64> {
        let file = if on_disk { Some(cache_in(folder.path())?) } else { None };
        let invented = invented(&schema, count, file).map_err(|e| ClientError::Unavailable(Problem::of(e)))?;
        let invented = invented.on_threads(place.threads).over_slots(count);
        let release = ReleaseId { run: RunId { task: task.hash(), number }, client: place.site.clone(), round: 0 };
        let event = task.visit_event(0).map_err(|e| failed(Problem::of(e)))?;
        let fallback = task.visit_fallback(0).map_err(|e| failed(Problem::of(e)))?;
        let permit = ledger.reserve(&release, (&event, fallback.as_ref()), Hash::default())?;
        let lambda = task.rule().initial();
        let site = task.site(place.site.as_str()).map_err(|e| failed(Problem::of(e)))?;
        let job = Job { site, task, visit: 0, lambda: &lambda, state: &SiteState::None };
        let (released, took) = clock::timed(|| methods::run(&job, &invented, permit, &SecureNoise));
        released.map(|_| took.as_secs_f64()).map_err(|e| failed(Problem::of(e)))
    };
    let mut count = FEWEST.min(units);
    let mut before = (0, 0.0);
    let mut last = (count, visit(first, 1, count)?);
    if last.1 < ENOUGH {
        // Again without what only the first visit of a process needs.
        last = (count, visit(first, 2, count)?);
    }
    for number in 4.. {
        let next = (4 * count).min(units);
        if last.1 >= ENOUGH || next == count || memory_of(&schema, next) > LARGEST {
            break;
        }
        count = next;
        before = last;
        last = (count, visit(first, number, count)?);
    }
    // What the whole visit takes over so many units, for each second of its first passes.
    let whole = match part.as_ref().map(|_| shortened(task, 4 * PASSES).unwrap_or_else(|| task.clone())) {
        None => 1.0,
        Some(more) => {
            let longer = (more.passes().into(), visit(&more, 3, count)?);
            extended((PASSES.into(), last.1), longer, task.passes().into()) / last.1.max(f64::MIN_POSITIVE)
        }
    };
    drop(folder);
    let cells = Schema::parse(&task.schema).map_err(|e| failed(Problem::of(e)))?;
    let is_counted = task.privacy.unit == PrivacyUnit::Record;
    let bytes = is_counted.then(|| PROGRAM.saturating_add(held([&cells, &schema], units, place.threads, on_disk)));
    let passes = part.map(|_| 4 * PASSES).filter(|passes| *passes < task.passes());
    Ok(Some(Expected { seconds: whole * extended(before, last, units), bytes, invented: count, passes }))
}

/// The time for so many units from those of two other numbers of them: a line through both.
#[allow(clippy::cast_precision_loss, reason = "a number of units in an estimate")]
fn extended((few, short): (u64, f64), (many, long): (u64, f64), units: u64) -> f64 {
    let slope = (long - short) / many.saturating_sub(few).max(1) as f64;
    // A clock that was disturbed may say that more units take less time.
    let slope = if slope > 0.0 { slope } else { long / many.max(1) as f64 };
    long + slope * units.saturating_sub(many) as f64
}

/// Bytes of records in memory: of their cells, as the schema alone describes them, and of the rows that a formula makes of these.
fn held([cells, rows]: [&Schema; 2], units: u64, threads: NonZeroUsize, on_disk: bool) -> u64 {
    if !on_disk {
        return memory_of(cells, units).saturating_add(memory_of(rows, units));
    }
    // Every thread has a window of its own, sealed and open; of every 32nd unit it is known where it begins.
    let threads = u64::try_from(threads.get()).unwrap_or(u64::MAX);
    memory_of(rows, WINDOW.min(units)).saturating_mul(3).saturating_mul(threads).saturating_add(units / 4)
}

/// A ledger of invented records.
fn throwaway(task: &ResolvedTask, folder: &Path) -> Result<Ledger<SqliteLedger, SigningKey>> {
    let mut secret = [0; 32];
    getrandom::fill(&mut secret).map_err(|e| ClientError::Failed(Problem::said("the system gives no random numbers", e)))?;
    let store = SqliteLedger::create(&folder.join("ledger"))?
        .ok_or_else(|| ClientError::Unavailable(format!("{}: is in use", folder.display()).into()))?;
    let identity = LedgerIdentity { data: "invented".into(), unit: task.privacy.unit, relation: task.privacy.relation };
    let budget =
        Budget { epsilon: Epsilon::INFINITE, delta: task.privacy.delta, per_run: None, max_fallback: None, allow_non_private: true };
    Ok(Ledger::open(store, SigningKey::from_bytes(&secret), identity, budget)?)
}

/// Removes the folders of dry runs that were broken off.
fn clear(state: &Path) {
    let Ok(entries) = fs::read_dir(state) else { return };
    for entry in entries.flatten() {
        let modified = entry.metadata().and_then(|metadata| metadata.modified());
        // Another `check` may be at work.
        let is_old = modified.is_ok_and(|modified| clock::now() - time::OffsetDateTime::from(modified) > OLD);
        if is_old && entry.file_name().to_string_lossy().starts_with(".dry-run-") {
            // What stays holds invented records only.
            let _ = fs::remove_dir_all(entry.path());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::extended;

    #[test]
    fn a_line_through_two_sizes_tells_of_others() {
        assert!((extended((100, 1.0), (400, 2.5), 1000) - 5.5).abs() < 1e-12);
        assert!((extended((0, 0.0), (400, 2.0), 400) - 2.0).abs() < 1e-12);
        // A clock that went the wrong way: in proportion.
        assert!((extended((100, 3.0), (400, 2.0), 800) - 4.0).abs() < 1e-12);
    }
}
