//! The neighbouring worlds of a row: a crowd, and one unit whose term is as large as the clip lets it be.
//!
//! A canary is one privacy unit of many like records with small features and an extreme target: its gradient is long and points one way, that of its
//! opposite the other way, so that clipped sums differ by nearly the whole sensitivity. Nothing promises that a unit keeps to the schema,
//! so neither does a canary.

use dp_pvi_accounting::{PrivacyUnit, Relation};
use dp_pvi_inference::records::RecordTable;
use dp_pvi_privacy::Units;

use super::registry::{Case, Records};

/// A record: features and target.
type Record = (Vec<f64>, f64);
/// A unit.
pub(super) type Unit = Vec<Record>;

/// Records of a canary.
const COPIES: usize = 40;
/// Short records of a canary of [`Crowd::Crossed`], and their size. Their residuals add up, while their second moments stay small.
const SHORT: (usize, f64) = (400, 0.05);

/// What the other units are.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Crowd {
    /// They contribute nothing: for sums over a sample, where what they add would be one more unknown.
    Silent,
    /// Four that say little, and three of many records: a rule that looks at the crowd to clip one unit moves all of them.
    Mixed,
    /// Seven like units with one small feature and targets of this size, and a canary with the same feature alone: what a shard of them fits is then
    /// as long as the target is large, points where the canary points, and a mean field fits it exactly.
    Alike(f64),
    /// Like `Mixed`, and a canary whose second moments differ from those of its opposite too: most of its records are short, point along the first feature
    /// and have an extreme target; one has this size along the second feature, or along the third one in the opposite.
    Crossed(f64),
}

/// Tables of a pair of neighbouring worlds, and what is needed to know their law.
pub(super) struct Worlds {
    pub(super) first: Units<RecordTable>,
    pub(super) second: Units<RecordTable>,
    /// The crowd, and the canary contributes nothing.
    pub(super) without: Units<RecordTable>,
    /// Nobody contributes anything.
    pub(super) silent: Units<RecordTable>,
}

/// The canary, or its opposite.
fn canary(case: &Case, others: Crowd, opposite: bool) -> Unit {
    let features = case.task.features as usize;
    let row = |size: f64| match others {
        Crowd::Alike(_) | Crowd::Crossed(_) => one_feature(features, 0, size),
        Crowd::Silent | Crowd::Mixed => vec![size; features],
    };
    if let Crowd::Crossed(long) = others {
        let target = target(case, opposite);
        let mut unit = vec![(row(SHORT.1), target); SHORT.0];
        unit.push((one_feature(features, if opposite { 2 } else { 1 }, long), expected(case, long)));
        return unit;
    }
    let sign = if opposite { -1.0 } else { 1.0 };
    let record = match case.records {
        Records::Classes | Records::Numbers => (row(0.3), target(case, opposite)),
        Records::Points => (vec![sign; features], sign),
        // The first half of the words or pixels, or the other one.
        Records::Documents | Records::Images => {
            let mine = |j: usize| (j < features.div_ceil(2)) != opposite;
            let value = if case.records == Records::Documents { 20.0 } else { 1.0 };
            ((0..features).map(|j| if mine(j) { value } else { 0.0 }).collect(), 0.0)
        }
    };
    vec![record; COPIES]
}

/// A target that is as far off as the model can tell, on one side or the other.
fn target(case: &Case, opposite: bool) -> f64 {
    match case.records {
        Records::Classes => f64::from(u8::from(!opposite)),
        _ if case.model.starts_with("poisson") && opposite => 0.0,
        _ => 1e4 * if opposite { -1.0 } else { 1.0 },
    }
}

/// The target that a coefficient of the standard normal prior expects for one feature of this size: its residual is next to nothing.
fn expected(case: &Case, size: f64) -> f64 {
    if case.model.starts_with("poisson") { (0.5 * size * size).exp().round() } else { 0.0 }
}

/// A unit that says something, of this size.
fn neighbour(case: &Case, size: f64, target: f64) -> Unit {
    let features = case.task.features as usize;
    let row = match case.records {
        Records::Classes | Records::Numbers | Records::Points => vec![size; features],
        Records::Documents | Records::Images => (0..features).map(|j| f64::from(u8::from(j == 0))).collect(),
    };
    vec![(row, target)]
}

fn one_feature(features: usize, which: usize, size: f64) -> Vec<f64> {
    (0..features).map(|j| if j == which { size } else { 0.0 }).collect()
}

fn crowd(case: &Case, crowd: Crowd) -> Vec<Unit> {
    match crowd {
        Crowd::Silent => vec![Unit::new(); 7],
        Crowd::Mixed | Crowd::Crossed(_) => {
            let small = neighbour(case, 1e-3, 1.0);
            (0..7).map(|k| if k < 4 { small.clone() } else { canary(case, Crowd::Mixed, false) }).collect()
        }
        Crowd::Alike(target) => vec![vec![(one_feature(case.task.features as usize, 0, 0.1), target)]; 7],
    }
}

/// The worlds of a row with this crowd.
pub(super) fn worlds(case: &Case, others: Crowd) -> Worlds {
    let features = case.task.features as usize;
    let (canary, opposite) = (canary(case, others, false), canary(case, others, true));
    if case.task.privacy.unit == PrivacyUnit::Site {
        // The whole site is the unit; it may say nothing, but it is there.
        let nothing = vec![Unit::new()];
        let table = |units: &[Unit]| Units::new(table(features, units)).over_slots(1);
        let (without, silent) = (table(&nothing), table(&nothing));
        return Worlds { first: table(&[canary]), second: table(&[opposite]), without, silent };
    }
    let crowd = crowd(case, others);
    let quiet = vec![Unit::new(); crowd.len()];
    // The declared number is public: it is the same in both worlds.
    let declared = crowd.len() as u64 + 1;
    let table = |units: &[Unit]| Units::new(table(features, units)).over_slots(declared);
    match case.relation {
        Relation::AddRemove => {
            let more = |unit: Unit| [&crowd[..], &[unit]].concat();
            Worlds { first: table(&more(canary)), second: table(&crowd), without: table(&crowd), silent: table(&quiet) }
        }
        Relation::ReplaceOne => {
            let with = |crowd: &[Unit], unit: Unit| [&crowd[..3], &[unit], &crowd[3..]].concat();
            Worlds {
                first: table(&with(&crowd, canary)),
                second: table(&with(&crowd, opposite)),
                without: table(&with(&crowd, Unit::new())),
                silent: table(&with(&quiet, Unit::new())),
            }
        }
    }
}

/// A table of these units.
pub(super) fn table(features: usize, units: &[Unit]) -> RecordTable {
    let mut builder = RecordTable::builder(features);
    for unit in units {
        builder.start_unit();
        for (row, target) in unit {
            let present = || (0u32..).zip(row).filter(|(_, x)| **x != 0.0);
            let (indices, values): (Vec<u32>, Vec<f64>) = present().map(|(j, x)| (j, *x)).unzip();
            // Ascending indices below the number of features, in a table of a few hundred rows.
            builder.push(&indices, &values, *target).expect("a row of the audit's own");
        }
    }
    builder.finish()
}
