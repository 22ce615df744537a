//! Sums of cells ([`Terms::Cells`]), looked at directly: the gate's mechanism on terms of the audit's own, under either relation. No update of a posterior has such
//! terms, so no task makes these rows.
//!
//! Of every pair of terms the integer sums of the two neighbours are compared with the declared sensitivity, which needs no statistics. The pair that is furthest apart runs
//! with secure noise, and the likelihood ratio of its two neighbours bounds μ, as in the rows of tasks.

use crate::noise::SeededNoise;
use dp_pvi_accounting::{ClipNorm, Delta, DpEvent, Gdp, LatticePath, NoiseMultiplier, PrivacyUnit, Relation, Terms};
use dp_pvi_names::{Hash, ReleaseId};
use dp_pvi_privacy::audit::{ErrorRate, Scores, Test};
use dp_pvi_privacy::ledger::memory::MemoryStore;
use dp_pvi_privacy::ledger::{Budget, LedgerIdentity};
use dp_pvi_privacy::mechanism::{LatticeSum, ReleaseError, Summation, Summed};
use dp_pvi_privacy::{Argument, Ledger, NoiseSource, SecureNoise, UnitTable, Units};
use dp_pvi_unsealed::Unsealed;

use super::judge::{Bounds, Claim};
use super::play::{Key, client, run};
use super::{AuditError, FALSE_FLAGS, MOST_ROWS, MOST_RUNS, Row};

/// Cells, and coordinates.
const CELLS: u32 = 4;
const DIMENSION: u32 = 6;
/// C and z. A larger z would need more runs for a bound as tight: at μ = 0.8 three thousand runs leave a standard deviation of 4 %, here of less than 2 %.
const CLIP: f64 = 1.0;
const NOISE: f64 = 0.4;

type Entries = Vec<(u32, f64)>;

struct Table(Vec<Entries>);

impl UnitTable for Table {
    type Unit<'a> = &'a [(u32, f64)];

    fn len(&self) -> usize {
        self.0.len()
    }

    fn unit(&self, position: usize) -> Self::Unit<'_> {
        &self.0[position]
    }
}

fn entries(&(): &(), sum: Summation<'_, Table>) -> Result<Summed, ReleaseError> {
    Ok(sum.each(|unit, _, (), term| term.extend(unit.iter().copied())))
}

/// Pairs of terms that stand for one unit in the two neighbours: those that attain the lemma, and those that would break it if signs, weights or the rule itself were not checked.
fn pairs() -> Vec<[Entries; 2]> {
    let part = CLIP / 2f64.sqrt();
    vec![
        [vec![(0, CLIP)], vec![(1, CLIP)]],
        [vec![(4, part)], vec![(4, -part)]],
        [vec![(0, part), (5, 0.5 * CLIP)], vec![(3, part), (5, -0.5 * CLIP)]],
        // Too long, with a negative cell, and both.
        [vec![(4, 1e3)], vec![(4, -1e3)]],
        [vec![(2, CLIP)], vec![(2, -CLIP)]],
        [vec![(0, 1e3), (1, -1e3)], vec![(1, 1e3), (0, -1e3)]],
        [vec![(0, 0.1), (4, 1e3), (5, 1e3)], vec![(0, 0.1), (4, -1e3), (5, -1e3)]],
    ]
}

/// The rows of this module, with so many runs of each data set.
pub(super) fn rows(trials: u32) -> Result<Vec<Row>, AuditError> {
    [Relation::AddRemove, Relation::ReplaceOne].into_iter().map(|relation| row(relation, trials)).collect()
}

fn row(relation: Relation, trials: u32) -> Result<Row, AuditError> {
    let stage = Stage::new(relation)?;
    let mut worst: Option<(f64, usize, [Vec<f64>; 2])> = None;
    for place in 0..pairs().len() {
        let sums = stage.sums(place)?;
        let apart = sums[0].iter().zip(&sums[1]).map(|(a, b)| (a - b).powi(2)).sum::<f64>().sqrt();
        if worst.as_ref().is_none_or(|(before, ..)| apart > *before) {
            worst = Some((apart, place, sums));
        }
    }
    let (apart, place, [first, second]) = worst.ok_or(AuditError::Broken("no pair of terms"))?;
    let DpEvent::DiscreteGaussian(declared) = stage.mechanism.event() else { return Err(AuditError::Broken("another event")) };
    #[allow(clippy::cast_precision_loss, reason = "at most 2^21")]
    let scale = declared.scale as f64;
    let sensitivity = apart / (declared.sensitivity_ratio(relation) * scale);
    let score = |values: &[i64]| -> f64 {
        let term = |((y, a), b): ((&i64, &f64), &f64)| {
            #[allow(clippy::cast_precision_loss, reason = "a score")]
            let y = *y as f64;
            (y - 0.5 * (a + b)) * (a - b)
        };
        values.iter().zip(&first).zip(&second).map(term).sum()
    };
    let mut scores = [Vec::new(), Vec::new()];
    for number in 0..trials {
        for (data_set, scores) in (0u32..).zip(&mut scores) {
            scores.push(score(&stage.release(place, data_set as usize, &SecureNoise, 2 * number + data_set)?));
        }
    }
    let scores = scores.map(Scores::new);
    let rates = |total: f64, looks: usize| ErrorRate::new(total).map(|error| error.shared_by(looks));
    let (Some(print), Some(flag)) = (rates(0.05, 2), rates(FALSE_FLAGS, MOST_ROWS * MOST_RUNS)) else {
        return Err(AuditError::Broken("an error rate"));
    };
    let delta = Delta::new(1e-5).map_err(|_| AuditError::Broken("a delta"))?;
    let claim = Claim::of(&[stage.mechanism.event()], relation, delta)?;
    let mu = Test::between(0.0).mu_of_errors(&scores, print);
    let found = Test::between(0.0).rates(&scores, flag);
    let reason = if sensitivity > 1.0 + 1e-11 {
        Some(format!("integer sums of the neighbours differ by {sensitivity:.4} times the declared sensitivity"))
    } else if claim.profile.iter().any(|(epsilon, delta)| found.excess(*epsilon, *delta) > 0.0) {
        Some("the likelihood ratio accuses the right data set more often than the claim allows".to_owned())
    } else {
        None
    };
    let epsilon = Gdp::of_ratio(mu).epsilon_upper(delta).get();
    let bounds = Bounds { epsilon, mu, law: Some(apart / scale), reachable: None, sensitivity: Some(sensitivity) };
    let name = match relation {
        Relation::AddRemove => "sum of cells | no task | add-remove | local",
        Relation::ReplaceOne => "sum of cells | no task | replace-one | local",
    };
    Ok(Row { name: name.to_owned(), trials, claim: Some(claim), bounds: Some(bounds), flag: reason })
}

/// The mechanism under a relation.
struct Stage {
    mechanism: LatticeSum,
    relation: Relation,
}

impl Stage {
    fn new(relation: Relation) -> Result<Self, AuditError> {
        let (Ok(clip), Ok(noise)) = (ClipNorm::new(CLIP), NoiseMultiplier::new(NOISE)) else {
            return Err(AuditError::Broken("two numbers"));
        };
        let mechanism = LatticeSum::new(DIMENSION, clip, noise, None, Terms::Cells { cells: CELLS }, LatticePath::Term);
        Ok(Self { mechanism: mechanism.map_err(|_| AuditError::Broken("a sum of cells"))?, relation })
    }

    /// One release: a background, and the unit of this pair in this data set, which is absent from the second one under add-remove. A third data set has no units.
    fn release<N: NoiseSource>(&self, place: usize, data_set: usize, noise: &N, number: u32) -> Result<Vec<i64>, AuditError> {
        let mut units: Vec<Entries> = vec![vec![(0, 0.5)], vec![(3, CLIP)], vec![(1, 0.1), (4, -0.3)]];
        let [first, second] = pairs().swap_remove(place);
        match (data_set, self.relation) {
            (0, _) => units.insert(1, first),
            (1, Relation::ReplaceOne) => units.insert(1, second),
            (1, Relation::AddRemove) => {}
            _ => units.clear(),
        }
        let event = self.mechanism.event();
        let identity = LedgerIdentity { data: "cells".to_owned(), unit: PrivacyUnit::Record, relation: self.relation };
        let budget = Budget {
            epsilon: dp_pvi_accounting::Epsilon::INFINITE,
            delta: Delta::new(1e-5).map_err(|_| AuditError::Broken("a delta"))?,
            per_run: None,
            max_fallback: None,
            allow_non_private: true,
        };
        let key = Key(Hash::of("dp-pvi audit of cells", &[&number.to_le_bytes()]));
        let mut ledger = Ledger::open(MemoryStore::new(Unsealed), key, identity, budget)?;
        let release = ReleaseId { run: run(number), client: client(0)?, round: 0 };
        let permit = ledger.reserve(&release, &event, Hash::default())?;
        let step = permit.into_steps().next().ok_or(AuditError::Broken("a permit without a step"))?;
        let units = Units::new(Table(units)).over_slots(4);
        let released = self.mechanism.release_sum(&units, &Argument::nothing(), entries, step, noise);
        Ok(released.map_err(|_| AuditError::Broken("a release of cells"))?.into_inner().values)
    }

    /// What the two neighbours sum without noise: with the same seed it is the difference from the release of no units.
    fn sums(&self, place: usize) -> Result<[Vec<f64>; 2], AuditError> {
        let [first, second, nothing] = [0, 1, 2].map(|data_set| self.release(place, data_set, &SeededNoise::new(7), 0));
        let nothing = nothing?;
        #[allow(clippy::cast_precision_loss, reason = "a few terms of at most 2^31 steps")]
        let exact = |values: Vec<i64>| values.iter().zip(&nothing).map(|(a, b)| (a - b) as f64).collect::<Vec<_>>();
        Ok([exact(first?), exact(second?)])
    }
}
