//! Every bound on a number, a length or a text that a peer says, in one table.
//!
//! A message is compared with it where it is decoded ([`Signed::open`](crate::message::Signed::open) and
//! [`Signed::peek`](crate::message::Signed::peek) for signed bodies, the conversions of `dp-pvi-proto` for frames), so that nothing behind
//! that point meets a number that no honest party says. Sums of bounded numbers fit their types: 2³² units of 10⁴ sites are below 2⁴⁶, and a
//! round below 10⁹ has a successor.
//!
//! | what | who says it | bound | why this one |
//! |---|---|---|---|
//! | declared units | site | 1 to 2³² | the lattice holds sums of 2³² terms; the task's `max_units` may ask for fewer |
//! | sites of a run | server | 10⁴ | |
//! | visits of a task | server | 10⁵ | a task writes one damping a visit |
//! | rounds, and entries of a transcript | both | 10⁹ | visits × sites |
//! | number of a run | both | 10⁹ | |
//! | coordinates | both | 2²⁶ | no task asks for a longer vector |
//! | lattice exponent | site | −900 to 900 | 2^k and 2^−k are ordinary numbers |
//! | row of a ledger | both | 2⁴⁸ | a thousand rows a second for nine thousand years |
//! | seconds to a deadline | server | 31 days | a hospital's patience |
//! | seconds of a release tick | server | 1 day | a charged update waits that long at most |
//! | protocol versions | client | 16 | |
//! | a name | both | 64 bytes | file names, certificates |
//! | a text for people | client | 128 bytes, no control characters | it is printed |
//! | records of a test set | evaluator | 2⁴⁰ | |
//! | bins of a report | evaluator | 1,000 | |
//! | classes of a report | evaluator | 100 | no model has more |
//! | parts of a header, and their length | server | 4 of 64 KiB | |
//! | entries in one answer | server | 256, 8 MiB together | who lacks more asks again |
//! | sites, rounds, coordinates, thresholds of a charter; deadline of an aggregated round | server | see [`dp_pvi_secagg::bounds`] | the summer has no task to compare them with |

use std::ops::RangeInclusive;

use crate::metrics::HeldOutMetrics;
use crate::origin::{RELATION_BYTES, RELATIONS};
use dp_pvi_names::{PayloadKind, ReleaseId, RunId};
use dp_pvi_posterior::task::bounds::{MAX_DEADLINE_SECONDS, MAX_NAME_BYTES, MAX_NUMBERS, MAX_SITES, MAX_VISITS, is_plain_text};
use dp_pvi_privacy::ledger::LedgerHead;
use dp_pvi_privacy::mechanism::MAX_UNITS;

use crate::message::{Hello, MetricsReport, Receipt, Refusal, RoundHeader, TranscriptEntry, Update, Welcome};

/// Declared units of a site.
pub const UNITS: RangeInclusive<u64> = 1..=MAX_UNITS;
/// Rounds of a run: what may be counted.
pub const ROUNDS: u32 = MAX_VISITS * MAX_SITES;
/// Number of a run of one task.
pub const RUNS: u32 = 1_000_000_000;
/// Coordinates of a message.
pub(crate) const COORDINATES: u64 = MAX_NUMBERS;
/// Exponents of a lattice.
pub const EXPONENTS: RangeInclusive<i32> = -900..=900;
/// Rows of a ledger.
pub(crate) const LEDGER_ROWS: u64 = 1 << 48;
/// Protocol versions in a hello.
pub(crate) const VERSIONS: usize = 16;
/// Bytes of a text for people.
pub(crate) const TEXT_BYTES: usize = 128;
/// Records of a test set.
pub const RECORDS: u64 = 1 << 40;
/// Bins, levels, or points of a curve, of a metrics report.
pub const BINS: usize = 1000;
/// Classes of a metrics report: as many as a model has.
pub(crate) const CLASSES: usize = 100;
/// Parts of a round's header beside its own fields.
pub(crate) const PARTS: usize = 4;
/// Bytes of one part.
pub(crate) const PART_BYTES: usize = 64 << 10;
/// Entries in one answer.
pub const ENTRIES: usize = 256;
/// Bytes of the entries in one answer, but for one that is larger alone.
pub const ENTRIES_BYTES: usize = 8 << 20;
/// Bytes of a hello; a server keeps it.
pub(crate) const HELLO_BYTES: usize = 8192;
/// Bytes of a charter with all signatures.
pub const CHARTER_BYTES: usize = 4 << 20;

// A charter holds every task.
const _: () = assert!(dp_pvi_secagg::bounds::MEMBERS == MAX_SITES && dp_pvi_secagg::bounds::ROUNDS == MAX_VISITS);
const _: () = assert!(dp_pvi_secagg::bounds::RUNS == RUNS);

/// A number, length or text that no honest party says.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{0} out of bounds")]
pub struct OutOfBounds(pub &'static str);

fn within(fits: bool, what: &'static str) -> Result<(), OutOfBounds> {
    if fits { Ok(()) } else { Err(OutOfBounds(what)) }
}

/// A number of rounds that a client says it has seen, or the number of a round.
///
/// # Errors
/// More than any run has.
pub fn round(round: u32) -> Result<(), OutOfBounds> {
    within(round <= ROUNDS, "a round")
}

/// The number of sites that a transcript entry lists.
///
/// # Errors
/// More than a run has.
pub fn included(sites: usize) -> Result<(), OutOfBounds> {
    within(sites <= MAX_SITES as usize, "the sites of a transcript entry")
}

/// The name of a federation.
///
/// # Errors
/// Too long, or not plain text.
pub fn name(federation: &str) -> Result<(), OutOfBounds> {
    text(federation, MAX_NAME_BYTES, "the name of the federation")
}

fn run(run: RunId) -> Result<(), OutOfBounds> {
    within(run.number <= RUNS, "the number of a run")
}

fn release(release: &ReleaseId) -> Result<(), OutOfBounds> {
    run(release.run)?;
    round(release.round)
}

fn head(head: Option<LedgerHead>) -> Result<(), OutOfBounds> {
    within(head.is_none_or(|head| head.seq <= LEDGER_ROWS), "the row of a ledger")
}

/// Texts that people read: short, one line, nothing that moves a cursor or turns the direction of writing.
fn text(text: &str, bytes: usize, what: &'static str) -> Result<(), OutOfBounds> {
    within(text.len() <= bytes && is_plain_text(text), what)
}

pub(crate) fn hello(hello: &Hello) -> Result<(), OutOfBounds> {
    within(hello.versions.len() <= VERSIONS, "the number of protocol versions")?;
    name(&hello.federation)?;
    text(&hello.software, TEXT_BYTES, "the name of the software")?;
    within(hello.nominal_units.is_none_or(|units| UNITS.contains(&units)), "the declared number of units")?;
    if let Some(rows) = &hello.rows {
        let relations = || rows.public_tables.iter().chain(&rows.vouched);
        within(relations().count() <= RELATIONS, "the number of relations that the rows come from")?;
        relations().try_for_each(|relation| text(relation, RELATION_BYTES, "the name of a relation"))?;
    }
    head(hello.ledger_head)
}

pub(crate) fn welcome(welcome: &Welcome) -> Result<(), OutOfBounds> {
    run(welcome.run)?;
    head(welcome.witnessed)
}

pub(crate) fn round_header(header: &RoundHeader) -> Result<(), OutOfBounds> {
    run(header.run)?;
    round(header.round)?;
    within(header.visit <= MAX_VISITS, "a visit")?;
    within(header.deadline_seconds <= MAX_DEADLINE_SECONDS, "the seconds to a deadline")?;
    let parts = header.reserved.len() <= PARTS && header.reserved.iter().all(|part| part.len() <= PART_BYTES);
    within(parts, "the parts of a header")
}

pub(crate) fn update(update: &Update) -> Result<(), OutOfBounds> {
    release(&update.release)?;
    within(update.coordinates <= COORDINATES, "the number of coordinates")?;
    let exponent = match update.kind {
        PayloadKind::Lattice { exponent } | PayloadKind::Masked { exponent } => exponent,
        PayloadKind::Values => 0,
    };
    within(EXPONENTS.contains(&exponent), "the exponent of a lattice")?;
    head(Some(update.ledger_head))
}

pub(crate) fn receipt(receipt: &Receipt) -> Result<(), OutOfBounds> {
    release(&receipt.release)?;
    head(receipt.witnessed)?;
    within(receipt.reserved.is_empty(), "the parts of a receipt")
}

pub(crate) fn refusal(refusal: &Refusal) -> Result<(), OutOfBounds> {
    release(&refusal.release)
}

/// What rounding may add to a share.
const ROUNDING: f64 = 1e-9;

pub(crate) fn metrics_report(report: &MetricsReport) -> Result<(), OutOfBounds> {
    run(report.run)?;
    round(report.round)?;
    let metrics = &report.metrics;
    let HeldOutMetrics { records, reliability, pit, interval_coverage, roc, confusion, class_reliability, .. } = metrics;
    within((1..=RECORDS).contains(records), "the records of a test set")?;
    // NaN is what was found at that posterior: it gave no probabilities, or no numbers.
    let unless_nan = |number: Option<f64>, fits: &dyn Fn(f64) -> bool| number.is_none_or(|number| number.is_nan() || fits(number));
    let shares = [metrics.accuracy, metrics.calibration_error, metrics.auc];
    let a_share = |number: f64| (-ROUNDING..=1.0 + ROUNDING).contains(&number);
    within(shares.iter().all(|number| unless_nan(*number, &a_share)), "a share of a report")?;
    within(unless_nan(metrics.brier, &|brier| (-ROUNDING..=2.0 + ROUNDING).contains(&brier)), "the Brier score of a report")?;
    let errors = [metrics.rmse, metrics.deviance, metrics.ranked_probability_score];
    within(errors.iter().all(|number| unless_nan(*number, &|error| error >= -ROUNDING)), "an error of a report")?;
    within(metrics.log_likelihood != f64::INFINITY, "the likelihood of a report")?;
    within(
        confusion.len() <= CLASSES
            && class_reliability.len() <= CLASSES
            && confusion.iter().all(|row| row.len() == confusion.len() && row.iter().all(|count| *count <= RECORDS)),
        "the classes of a report",
    )?;
    let lists = || std::iter::once(reliability).chain(class_reliability);
    let bins = lists().map(Vec::len).chain([pit.len(), interval_coverage.len()]).all(|bins| bins <= BINS);
    let finite =
        lists().flatten().all(|(a, b, _)| a.is_finite() && b.is_finite()) && interval_coverage.iter().all(|(a, b)| (a + b).is_finite());
    within(bins && finite, "the bins of a report")?;
    let share = |share: &f64| (0.0..=1.0).contains(share);
    within(roc.len() <= BINS && roc.iter().all(|(x, y)| share(x) && share(y)), "the points of a ROC curve")?;
    let mut counts = lists().flatten().map(|(_, _, count)| count).chain(pit);
    within(counts.all(|count| *count <= RECORDS), "the records of a bin")
}

/// Bytes that an entry takes on the wire, at most: what an answer is cut by.
#[must_use]
pub(crate) fn entry_bytes(entry: &TranscriptEntry) -> usize {
    // A contributor is in the entry and in that of its aggregation, each time with a name of at most 64 bytes and a hash.
    1024 + entry.header.body.len() + entry.header.signature.len() + 256 * entry.included.len()
}

#[cfg(test)]
mod tests;
