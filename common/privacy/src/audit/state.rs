//! What the state of a site may hold. The shipped release with private-clean state, and the build that the literature's code
//! is: every shard keeps the noise share that it drew. The second lives in this file only.

use chacha20::ChaCha20Rng;
use chacha20::rand_core::SeedableRng;
use rand_core::Rng;

use super::*;
use crate::danger::assume_public;
use crate::ledger::{Pending, Permit, SiteState};
use crate::mechanism::{LatticeSum, ReleaseError, Summation, Summed};
use crate::noise::{NoRandomness, NoiseSource, Purpose};
use crate::records::{Argument, Sensitive, UnitTable, Units};
use crate::shards::{PermitScope, ShardSalt};
use dp_pvi_accounting::adjacency::{PrivacyUnit, Relation, Terms};
use dp_pvi_accounting::calibrate;
use dp_pvi_accounting::event::LatticePath;
use dp_pvi_accounting::unit::{ClipNorm, NoiseMultiplier};
use dp_pvi_names::{ClientId, Hash, ReleaseId, RunId};
use dp_pvi_unsealed::{Sealed, Unsealed};

/// S.
const ROUNDS: u64 = 10;
/// N.
const SHARDS: usize = 400;
/// Damping of the state.
const RHO: f64 = 1.0;
/// What is claimed.
const CLAIM: f64 = 1.0;
const DELTA: f64 = 1e-5;

/// A conjugate model with one coefficient: the change that a shard wants is its statistic minus its factor.
struct Statistics(Vec<f64>);

impl UnitTable for Statistics {
    type Unit<'a> = f64;
    fn len(&self) -> usize {
        self.0.len()
    }
    fn unit(&self, position: usize) -> f64 {
        self.0[position]
    }
}

/// A canary that the clip always shortens, among shards that have nothing to say.
fn data_set(canary: f64) -> Statistics {
    Statistics((0..SHARDS).map(|k| if k == 0 { canary } else { 0.0 }).collect())
}

/// Shards of all sizes.
fn many() -> Statistics {
    Statistics((0..SHARDS).map(|k| (k as f64 - 150.0) / 40.0).collect())
}

struct Seeded(u64);

impl Sealed for Seeded {}

impl NoiseSource for Seeded {
    type Stream = ChaCha20Rng;
    fn stream(&self, _: &ReleaseId, step: u64, _: Purpose) -> Result<ChaCha20Rng, NoRandomness> {
        Ok(ChaCha20Rng::from_seed(Hash::of("audit", &[&self.0.to_le_bytes(), &step.to_le_bytes()]).0))
    }
}

fn mechanism(noise: NoiseMultiplier) -> LatticeSum {
    LatticeSum::new(1, ClipNorm::new(1.0).unwrap(), noise, None, Terms::ShardResults, LatticePath::Term).unwrap()
}

/// z for which ten rounds cost what is claimed.
fn claimed_noise() -> NoiseMultiplier {
    let event = |noise| mechanism(noise).event().repeated(ROUNDS);
    calibrate(event, Relation::ReplaceOne, Epsilon::new(CLAIM).unwrap(), Delta::new(DELTA).unwrap()).unwrap()
}

/// What a run lets out, and what it summed before noise: the second never leaves a site.
struct Run {
    released: Vec<f64>,
    clean: Vec<f64>,
}

/// A shard's statistic minus its factor.
#[allow(clippy::unnecessary_wraps, reason = "the form that a mechanism takes")]
fn wanted((): &(), sum: Summation<'_, Statistics, Vec<f64>>) -> Result<Summed, ReleaseError> {
    Ok(sum.each(|statistic, shard, factors, term| term.add(0, statistic - factors[shard])))
}

/// The shipped release function: permit, clip, lattice, noise, clean terms, private state.
fn shipped(mechanism: &LatticeSum, table: Statistics, seed: u64) -> Run {
    let release = ReleaseId { run: RunId { task: Hash::default(), number: 0 }, client: ClientId::new("here").unwrap(), round: 0 };
    let scope = PermitScope { unit: PrivacyUnit::Record, relation: Relation::ReplaceOne, salt: ShardSalt::new([0; 32]) };
    let units = Units::new(table);
    let (mut state, mut run) = (SiteState::None, Run { released: Vec::new(), clean: Vec::new() });
    for permit in Permit::mint(mechanism.event().repeated(ROUNDS), release, scope).into_steps() {
        let factors = state.private(|| Sensitive::of(vec![0.0; SHARDS])).unwrap();
        let nothing = Argument::nothing();
        let (sum, kept) = mechanism.release_sum_keeping(&units, &factors, &nothing, wanted, permit, &Seeded(seed)).unwrap();
        run.released.push(sum.get().to_f64()[0]);
        run.clean.push(assume_public(Unsealed, kept.map(&nothing, |(), kept| kept.sum()[0])).into_inner());
        state = state.moved(&Pending::Private(kept.map(&nothing, |(), kept| kept.to_dense())), RHO).unwrap();
    }
    run
}

/// The forbidden build: each shard draws its share of the same noise, and its factor takes in what it sent, noise and all.
fn noise_in_state(noise: NoiseMultiplier, table: Statistics, seed: u64) -> Run {
    let share = noise.get() / (SHARDS as f64).sqrt();
    let mut stream = ChaCha20Rng::from_seed(Hash::of("audit shares", &[&seed.to_le_bytes()]).0);
    let mut factors = vec![0.0; SHARDS];
    let mut run = Run { released: Vec::new(), clean: Vec::new() };
    for _ in 0..ROUNDS {
        let (mut released, mut clean) = (0.0, 0.0);
        for (pair, statistics) in factors.chunks_mut(2).zip(table.0.chunks(2)) {
            // Box and Muller: floating-point noise is good enough for a build that no one ships.
            let unit = |word: u64| ((word >> 11) as f64 + 0.5) / 9_007_199_254_740_992.0;
            let (radius, angle) = ((-2.0 * unit(stream.next_u64()).ln()).sqrt(), std::f64::consts::TAU * unit(stream.next_u64()));
            for ((factor, statistic), share) in pair.iter_mut().zip(statistics).zip([angle.cos(), angle.sin()].map(|x| share * radius * x))
            {
                let change = (statistic - *factor).clamp(-1.0, 1.0);
                clean += change;
                released += change + share;
                *factor += RHO * (change + share);
            }
        }
        run.released.push(released);
        run.clean.push(clean);
    }
    run
}

/// Lower bounds over so many runs of each data set; no two runs share noise.
fn attack(runs: u64, release: impl Fn(Statistics, u64) -> Run) -> Audited {
    let releases =
        |canary: f64, first: u64| -> Vec<Vec<f64>> { (first..first + runs).map(|seed| release(data_set(canary), seed).released).collect() };
    let found = lower_bound(&releases(1e9, 0), &releases(-1e9, 1 << 32), Delta::new(DELTA).unwrap(), ErrorRate::new(0.05).unwrap());
    found.unwrap()
}

/// S = 10, N = 400, claimed ε = 1. Noise in the state is flagged far above the claim; the shipped state is not, and
/// the bound comes near enough to show that the attack has teeth.
#[test]
fn noise_in_the_state_is_flagged_and_the_shipped_state_is_not() {
    let noise = claimed_noise();
    let flawed = attack(20_000, |table, seed| noise_in_state(noise, table, seed));
    assert!(flawed.epsilon.get() > 1.3, "{flawed:?}");
    assert!(flawed.gaussian_epsilon.get() > 3.0, "{flawed:?}");
    let mechanism = mechanism(noise);
    let clean = attack(20_000, |table, seed| shipped(&mechanism, table, seed));
    assert!(clean.epsilon.get() <= CLAIM && clean.gaussian_epsilon.get() <= CLAIM, "{clean:?}");
    assert!(clean.gaussian_epsilon.get() > 0.5, "{clean:?}");
}

/// Half of the noise that is charged is flagged by a third of the runs.
#[test]
fn too_little_noise_is_flagged() {
    let half = mechanism(NoiseMultiplier::new(claimed_noise().get() / 2.0).unwrap());
    let found = attack(6_000, |table, seed| shipped(&half, table, seed));
    assert!(found.gaussian_epsilon.get() > CLAIM, "{found:?}");
}

/// Whatever the noise was, what a site sums before noise is the same, to the last bit. The forbidden build fails it.
#[test]
fn sums_before_noise_do_not_depend_on_earlier_noise() {
    let noise = claimed_noise();
    let mechanism = mechanism(noise);
    let bits = |run: Run| run.clean.iter().map(|x| x.to_bits()).collect::<Vec<_>>();
    let first = shipped(&mechanism, many(), 0);
    assert!(first.clean[0] > first.clean[9] && first.clean[2] != 0.0, "the state moves: {:?}", first.clean);
    let first = bits(first);
    for seed in 1..20 {
        assert_eq!(bits(shipped(&mechanism, many(), seed)), first, "seed {seed}");
    }
    let flawed: Vec<_> = (0..2).map(|seed| bits(noise_in_state(noise, many(), seed))).collect();
    assert_eq!(flawed[0][0], flawed[1][0], "before any noise was drawn");
    assert!(flawed[0][1..].iter().zip(&flawed[1][1..]).all(|(a, b)| a != b));
}
