//! Faults to order, for the audit's own test: does it see them?
//!
//! Each [`Bug`] is one that was made somewhere, in a paper's code or in a product. With the feature `fault-injection` the mechanisms have them all, and
//! do the one that [`inject`] names; without the feature not a line of this is compiled. No program enables the feature by default:
//! `cargo run -p dp-pvi-simulation --features fault-injection -- audit --injected-faults` does, and the test of the same name.
//!
//! # Privacy
//! None while a bug is injected.

use std::convert::Infallible;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU8, Ordering};

use rand_core::Rng;

use crate::ledger::StepPermit;
use crate::noise::SecureNoise;
use crate::sampler::Coins;
use dp_pvi_accounting::unit::SamplingRate;
use dp_pvi_names::Hash;

/// A fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Bug {
    /// The first coordinate has no noise.
    SilentCoordinate = 1,
    /// Half the noise that is charged.
    HalfNoise,
    /// A private state takes in the noise of what was released with it, each unit its part.
    NoiseInState,
    /// Replacing a unit is charged like adding one.
    FactorOne,
    /// In the place of Poisson coins the units are shuffled once a pass and cut into batches.
    Shuffled,
    /// Terms are clipped to the median of the batch's norms where that is below C.
    MedianClip,
    /// All shards of a site start from its one factor without noise (the audit itself builds that task).
    AveragedState,
    /// All steps and rounds of a run toss the same coins.
    ReusedCoins,
    /// Terms are rounded to the nearest lattice point, without a check of their norm.
    NearestRounding,
    /// Each batch of an epoch comes from a draw of its own: a unit can be in several batches of it, or in none.
    RedrawnBatches,
    /// On path `sum`, where nothing looks at a term afterwards, every term enters with twice its factor.
    TwiceFactor,
    /// A term of cells is let through with a negative integer in a cell.
    NegativeCell,
    /// The squares of signed coordinates enter Q once and not twice.
    SignedOnce,
    /// Terms are checked by their norm, and booked as cells.
    BallBookedAsCells,
}

/// All of them.
pub const BUGS: [Bug; 14] = [
    Bug::SilentCoordinate,
    Bug::HalfNoise,
    Bug::NoiseInState,
    Bug::FactorOne,
    Bug::Shuffled,
    Bug::MedianClip,
    Bug::AveragedState,
    Bug::ReusedCoins,
    Bug::NearestRounding,
    Bug::RedrawnBatches,
    Bug::TwiceFactor,
    Bug::NegativeCell,
    Bug::SignedOnce,
    Bug::BallBookedAsCells,
];

static INJECTED: AtomicU8 = AtomicU8::new(0);

/// Makes every mechanism of this process do this from now on, or nothing wrong again.
pub fn inject(bug: Option<Bug>) {
    dp_pvi_accounting::injected::forget_the_factor(bug == Some(Bug::FactorOne));
    INJECTED.store(bug.map_or(0, |bug| bug as u8), Ordering::SeqCst);
}

/// Whether this is what was injected.
#[must_use]
pub fn is(bug: Bug) -> bool {
    INJECTED.load(Ordering::Relaxed) == bug as u8
}

/// Makes noise what a injected fault would make of it.
pub fn spoil(noise: &mut [i64]) {
    if is(Bug::HalfNoise) {
        noise.iter_mut().for_each(|x| *x /= 2);
    }
    if is(Bug::SilentCoordinate)
        && let Some(first) = noise.first_mut()
    {
        *first = 0;
    }
}

/// The norm to which terms are clipped, given those of the whole batch.
pub(crate) fn clip(clip: f64, norms: impl FnOnce() -> Vec<f64>) -> f64 {
    if !is(Bug::MedianClip) {
        return clip;
    }
    let mut norms = norms();
    norms.sort_unstable_by(f64::total_cmp);
    norms.get(norms.len() / 2).map_or(clip, |median| median.min(clip))
}

/// Whether an integer in a cell is negative, and the sum of the signed squares, as the check of a term sees them.
pub(crate) fn of_cells(negative: bool, signed: u128) -> (bool, u128) {
    // Q doubles what is halved here; a sum that is above every bound stays there.
    let signed = if is(Bug::SignedOnce) && signed < u128::MAX { signed / 2 } else { signed };
    (negative && !is(Bug::NegativeCell), signed)
}

/// Factors of terms that a model sums by itself.
pub(crate) fn stretch(factors: &mut [f64]) {
    if is(Bug::TwiceFactor) {
        factors.iter_mut().for_each(|factor| *factor *= 2.0);
    }
}

/// Coins that may be wrong.
pub(crate) struct Faulty<'a> {
    coins: Coins,
    rate: SamplingRate,
    permit: &'a StepPermit,
}

impl<'a> Faulty<'a> {
    pub(crate) fn new(coins: Coins, rate: SamplingRate, permit: &'a StepPermit) -> Self {
        Self { coins, rate, permit }
    }

    pub(crate) fn sample(&self, rng: &mut impl Rng, units: usize) -> Vec<usize> {
        let mut sample = Vec::new();
        self.toss(rng, units, |position| sample.push(position));
        sample
    }

    fn toss(&self, rng: &mut impl Rng, units: usize, mut visit: impl FnMut(usize)) {
        if is(Bug::ReusedCoins) {
            self.coins.toss(&mut self.stream(0), units, visit);
        } else if is(Bug::Shuffled) {
            #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a small whole number")]
            let batches = (1.0 / self.rate.get()).round().max(1.0) as u64;
            let step = u64::from(self.permit.release().round) + self.permit.step();
            let mut order: Vec<usize> = (0..units).collect();
            let mut rng = self.stream(1 + step / batches);
            for last in (1..units).rev() {
                #[allow(clippy::cast_possible_truncation, reason = "at most `last`")]
                order.swap(last, (rng.next_u64() % (last as u64 + 1)) as usize);
            }
            let mut batch: Vec<usize> =
                order.into_iter().enumerate().filter(|(rank, _)| *rank as u64 % batches == step % batches).map(|(_, unit)| unit).collect();
            batch.sort_unstable();
            batch.into_iter().for_each(&mut visit);
        } else {
            self.coins.toss(rng, units, visit);
        }
    }

    /// The same for all steps and rounds of a run of a site, and unknown to anyone else.
    fn stream(&self, number: u64) -> Words {
        static SALT: OnceLock<u64> = OnceLock::new();
        // Without a salt the fault would be a worse one: it is injected all the same.
        let salt = SALT.get_or_init(|| SecureNoise::fresh().map_or(0, |mut stream| stream.next_u64()));
        let run = &self.permit.release().run;
        let parts: [&[u8]; 4] = [&salt.to_le_bytes(), &run.task.0, &run.number.to_le_bytes(), &number.to_le_bytes()];
        Words { key: Hash::of("planted coins", &parts), next: 0 }
    }
}

/// Words of a key, by hashing a counter.
struct Words {
    key: Hash,
    next: u64,
}

impl rand_core::TryRng for Words {
    type Error = Infallible;

    fn try_next_u32(&mut self) -> Result<u32, Infallible> {
        Ok((self.try_next_u64()? >> 32) as u32)
    }

    fn try_next_u64(&mut self) -> Result<u64, Infallible> {
        let mut bytes = [0; 8];
        self.try_fill_bytes(&mut bytes)?;
        Ok(u64::from_le_bytes(bytes))
    }

    fn try_fill_bytes(&mut self, bytes: &mut [u8]) -> Result<(), Infallible> {
        for block in bytes.chunks_mut(32) {
            let words = Hash::of("planted words", &[&self.key.0, &self.next.to_le_bytes()]);
            block.copy_from_slice(&words.0[..block.len()]);
            self.next += 1;
        }
        Ok(())
    }
}
