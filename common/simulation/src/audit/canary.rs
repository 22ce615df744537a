//! The neighbouring data sets of a row: a background, and one unit whose term is as large as the clip lets it be. Which units those are is in [`super::scenes`].

use dp_pvi_accounting::{PrivacyUnit, Relation};
use dp_pvi_inference::records::{RecordTable, RecordView};
use dp_pvi_posterior::task::ResolvedTask;
use dp_pvi_privacy::Units;
use dp_pvi_schema::public::Extra;

use super::registry::Case;
use super::scenes::{Scene, Unit};

/// Tables of a pair of neighbouring data sets, and what is needed to know their law.
pub(super) struct Neighbours {
    pub(super) first: Units<RecordTable>,
    pub(super) second: Units<RecordTable>,
    /// All units contribute 0.
    pub(super) silent: Units<RecordTable>,
    /// λ of the visits, in turn; none: that with which the task begins.
    pub(super) asked: Vec<Vec<f64>>,
}

/// The neighbours of a row with this scene.
pub(super) fn neighbours(case: &Case, scene: &Scene) -> Neighbours {
    let Scene { canary, opposite, background, asked } = scene.clone();
    if case.task.privacy.unit == PrivacyUnit::Site {
        // The whole site is the unit; it may say nothing, but it is there.
        let nothing = vec![Unit::new()];
        let table = |units: &[Unit]| Units::new(table(&case.task, units)).over_slots(1);
        return Neighbours { first: table(&[canary]), second: table(&[opposite]), silent: table(&nothing), asked };
    }
    let quiet = vec![Unit::new(); background.len()];
    // The declared number is public: it is the same in both neighbours.
    let declared = background.len() as u64 + 1;
    let table = |units: &[Unit]| Units::new(table(&case.task, units)).over_slots(declared);
    match case.relation {
        Relation::AddRemove => {
            let more = |unit: Unit| [&background[..], &[unit]].concat();
            Neighbours { first: table(&more(canary)), second: table(&background), silent: table(&quiet), asked }
        }
        Relation::ReplaceOne => {
            let place = background.len().min(3);
            let with = |background: &[Unit], unit: Unit| [&background[..place], &[unit], &background[place..]].concat();
            Neighbours {
                first: table(&with(&background, canary)),
                second: table(&with(&background, opposite)),
                silent: table(&with(&quiet, Unit::new())),
                asked,
            }
        }
    }
}

/// A table of these units.
pub(super) fn table(task: &ResolvedTask, units: &[Unit]) -> RecordTable {
    let of_times = task.model.rules().response().as_survival().is_some();
    let mut builder = RecordTable::builder(task.features as usize);
    for unit in units {
        builder.start_unit();
        for (row, target) in unit {
            let present = || (0u32..).zip(row).filter(|(_, x)| **x != 0.0);
            let (indices, values): (Vec<u32>, Vec<f64>) = present().map(|(j, x)| (j, *x)).unzip();
            // Ascending indices below the number of features, in a table of a few hundred rows.
            // A time below 0 is that of an event.
            let extra = Extra { event: of_times && *target < 0.0, ..Extra::NONE };
            let target = if of_times { target.abs() } else { *target };
            let record = RecordView { indices: &indices, values: &values, target, offset: 0.0, extra };
            builder.push_record(record).expect("a row of the audit's own");
        }
    }
    builder.finish()
}
