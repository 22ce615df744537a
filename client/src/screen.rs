//! The site's own screen: how many records contribute nothing, and why; and whether so many do that the data set waits for its operator.
//!
//! No one outside hears of records that contribute nothing, so the site has to hear of it here: it is logged at the start of the program and shown by `check` and `data inspect`. Where their
//! share is above `[data] halt_above`, or fewer records contribute than half of the declared units (a file that was cut off), the program ends before its first message, and every later start
//! does, until someone says `data confirm`.
//!
//! # Privacy
//! What decides is a function of data set, schema and files, and of no task and no formula: anyone who writes a task cannot ask by it. Others see a site that stays away. A data set that was
//! halted stays halted whatever its records become, so each act of a person (a start that finds the data set open, a confirmation) tells at most one bit; `limits.md` of the guide lists it.

use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use dp_pvi_data::{Inspection, Screen};
use dp_pvi_programs::problem::Problem;
use serde::{Deserialize, Serialize};

use crate::config::Config;
use crate::error::{ClientError, Result};
use crate::snapshot::{LocalSchema, keep_in, look_at};

/// What the state folder keeps of a data set.
#[derive(Debug, Default, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct State {
    /// A start found too many records that contribute nothing, and no confirmation has come since.
    halted: bool,
    /// What someone confirmed.
    confirmed: Option<Confirmed>,
}

/// Up to so many of the records may contribute nothing, and no fewer need contribute, under this schema.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Confirmed {
    schema: String,
    percent: u64,
    records: u64,
}

/// The records as the schema reads them now, counted. For the people at the site.
///
/// # Errors
/// [`ClientError::Data`]: a file as a whole cannot be used. As [`look_at`] where the records are in a database.
pub(crate) fn inspect(config: &Config, schema: &LocalSchema) -> Result<Inspection> {
    let files = look_at(config, schema.schema())?;
    dp_pvi_data::inspect(schema.schema(), &files).map_err(|e| ClientError::Data(Problem::of(e)))
}

/// What the operator should know of the records, a sentence each.
pub(crate) fn notes(inspection: &Inspection, config: &Config) -> Vec<String> {
    let halt_above = config.data.halt_above;
    let mut notes = of_screen(config, &inspection.screen);
    let unread = inspection.columns.iter().filter(|column| column.counts.invalid as f64 > halt_above * column.counts.cells() as f64);
    notes.extend(unread.map(|column| {
        let (name, counts) = (&column.name, &column.counts);
        format!("column `{name}`: {} of {} cells hold no value that the schema knows", counts.invalid, counts.cells())
    }));
    if !inspection.near.is_empty() {
        notes.push(inspection.near.to_string());
    }
    notes.extend(inspection.shared.iter().map(ToString::to_string));
    notes
}

/// Shows an operator what a ledger is about to be made for: records and ids. What cannot be read is said, and keeps no ledger from being made.
pub(crate) fn before_ledger(config: &Config) {
    let inspected = LocalSchema::read(&config.data.schema).and_then(|schema| inspect(config, &schema));
    match inspected {
        Ok(inspection) => notes(&inspection, config).iter().for_each(|note| tracing::warn!("PRIVATE: {note}")),
        Err(error) => tracing::warn!("the records were not looked at ({}); `dp-pvi-client check` does it", error.shown()),
    }
}

/// Logs what contributes nothing, and what is missing to the declared number, for the people at the site.
pub(crate) fn log(config: &Config, screen: &Screen) {
    of_screen(config, screen).iter().for_each(|line| tracing::warn!("PRIVATE: {line}"));
}

fn of_screen(config: &Config, screen: &Screen) -> Vec<String> {
    let mut notes = Vec::new();
    if screen.count() > 0 {
        notes.extend(screen.to_string().lines().map(|line| line.trim_start().to_owned()));
    }
    #[allow(clippy::cast_precision_loss, reason = "a share")]
    let declared = declared(config) as f64;
    if (contributing(screen) as f64) < (1.0 - config.data.halt_above) * declared {
        notes.push(few(config, screen));
    }
    notes
}

fn declared(config: &Config) -> u64 {
    config.data.private.as_ref().map_or(0, |private| private.nominal_units)
}

/// Records, of which a unit has one at least.
fn contributing(screen: &Screen) -> u64 {
    screen.records.saturating_sub(screen.count())
}

fn few(config: &Config, screen: &Screen) -> String {
    let (records, units) = (contributing(screen), declared(config));
    format!("{records} records contribute, and [data] nominal_units declares {units} privacy units: was a file cut off?")
}

/// Whether a program may say hello with these records. A start that may not halts the data set.
///
/// # Errors
/// [`ClientError::Data`]: the data set is halted. [`ClientError::Unavailable`]: the state folder.
pub(crate) fn admit(config: &Config, schema: &LocalSchema, screen: &Screen) -> Result<()> {
    let place = place(config);
    let state = read(&place)?;
    let halted = admits_run_with(&state, config, schema, screen);
    if halted.is_err() && !state.halted {
        keep_in(&place, &State { halted: true, ..state })?;
    }
    halted
}

/// The same without halting anything.
///
/// # Errors
/// As [`admit`].
pub(crate) fn admits_run(config: &Config, schema: &LocalSchema, screen: &Screen) -> Result<()> {
    admits_run_with(&read(&place(config))?, config, schema, screen)
}

/// The same for a caller that has not read the records. Where they cannot be read here, which is said, only what an earlier start found is known.
///
/// # Errors
/// As [`admit`].
pub(crate) fn would_admit(config: &Config) -> Result<()> {
    match LocalSchema::read(&config.data.schema).and_then(|schema| Ok((inspect(config, &schema)?, schema))) {
        Ok((inspection, schema)) => admits_run(config, &schema, &inspection.screen),
        Err(error) => {
            tracing::warn!("the records cannot be read ({}), so whether a start would halt the data set is not known", error.shown());
            if read(&place(config))?.halted { Err(halted(BEFORE)) } else { Ok(()) }
        }
    }
}

/// Whether fewer records contribute than half of the declared units, or than `halt_above` leaves of them where that is larger.
#[allow(clippy::cast_precision_loss, reason = "a share")]
fn is_few(config: &Config, screen: &Screen) -> bool {
    (contributing(screen) as f64) < (1.0 - config.data.halt_above.max(0.5)) * declared(config) as f64
}

fn admits_run_with(state: &State, config: &Config, schema: &LocalSchema, screen: &Screen) -> Result<()> {
    let (is_over, is_few) = (screen.share() > config.data.halt_above, is_few(config, screen));
    let covers = |confirmed: &Confirmed| {
        let enough = contributing(screen) >= confirmed.records || !is_few;
        confirmed.schema == schema.hash() && percent(screen) <= confirmed.percent && enough
    };
    let is_open = !(is_over || is_few) || state.confirmed.as_ref().is_some_and(covers);
    let words = match (is_open, state.halted) {
        (true, false) => return Ok(()),
        (false, _) if !is_over => few(config, screen),
        (false, _) => format!(
            "{} of {} records contribute nothing, which is more than [data] halt_above = {}. `dp-pvi-client data inspect` says why",
            screen.count(),
            screen.records,
            config.data.halt_above
        ),
        (true, true) => BEFORE.into(),
    };
    Err(halted(&words))
}

const BEFORE: &str = "an earlier start found that too few of its records contribute";

fn halted(words: &str) -> ClientError {
    ClientError::Data(
        format!("this data set is halted: {words}. Mend the files or the schema; then, or if this is how the records are, say `dp-pvi-client data confirm`").into(),
    )
}

/// The operator's word that this is how the records are.
///
/// # Errors
/// [`ClientError::Unavailable`]: the state folder.
pub(crate) fn confirm(config: &Config, schema: &LocalSchema, screen: &Screen) -> Result<()> {
    let is_over = screen.share() > config.data.halt_above || is_few(config, screen);
    let confirmed = is_over.then(|| Confirmed { schema: schema.hash(), percent: percent(screen), records: contributing(screen) });
    keep_in(&place(config), &State { halted: false, confirmed })
}

/// The share in whole percent, rounded up.
pub(crate) fn percent(screen: &Screen) -> u64 {
    (u128::from(screen.count()) * 100).div_ceil(u128::from(screen.records.max(1))).try_into().unwrap_or(100)
}

fn place(config: &Config) -> PathBuf {
    config.site.state.join(format!("screen-{}.json", config.data.name))
}

fn read(place: &Path) -> Result<State> {
    let text = match fs::read_to_string(place) {
        Err(e) if e.kind() == ErrorKind::NotFound => return Ok(State::default()),
        text => text.map_err(|e| unavailable(place, &e.to_string()))?,
    };
    serde_json::from_str(&text)
        .map_err(|_| unavailable(place, "is not what this program wrote; remove it, and look at the records with `data inspect`"))
}

fn unavailable(place: &Path, problem: &str) -> ClientError {
    ClientError::Unavailable(format!("{}: {problem}", place.display()).into())
}
