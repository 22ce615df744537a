//! Sum of clipped terms that a model computes for a whole batch at once: norms first, then one weighted sum ("ghost clipping").
//!
//! [`LatticeSum`](crate::mechanism::LatticeSum) looks at every term and brings it onto the lattice by itself. For a neural network that would mean to form
//! every unit's gradient; matrix products give all norms, and the sum with a factor for each unit, much faster. Here the model does both, the
//! mechanism computes the factors between the two and rounds the sum once: path [`LatticePath::Sum`].
//!
//! # Privacy
//! Proof: [`crate::proofs::batched_sums`].
//!
//! * **Unit and relation**: as [`LatticeSum`](crate::mechanism::LatticeSum); lattice and noise, too.
//! * **Sensitivity.** Let v_i be unit i's term, n_i the norm that the model reports, c_i = min(1, C/n_i), B the public maximum number of units, u = 2⁻⁵³ and
//!   η = 2⁻³⁵. With the two promises below, ‖c_i v_i‖ ≤ C(1+2η), and the computed sum of a batch is within E = (2B+8)u·B·C(1+2η) of Σ c_i v_i. Rounding to
//!   the lattice γℤᵈ moves each of two neighbouring sums by at most γ√d/2. So their integer distance is at most
//!   (1 or 2)·C/γ + [√d + 2E/γ + 4ηC/γ], and the bracket, rounded up with 2 for ⌊(C/γ)²⌋, is the event's `excess`. If the differing unit is not in the sample, or in another batch of the epoch,
//!   both batches are the same list of units, the same chunks, and the same sum to the last bit. Units' draws are independent words, so the others' can be
//!   coupled, whoever comes or goes.
//! * **Number of units.** A batch of more than B units is not refused, and none of its units is left out, because then the one that goes would pull another
//!   one in. Its terms are computed one by one, w_i = c_i v_i to a rounding of 10u‖c_i v_i‖ (promise 2 with n = 1), each a function of its unit alone, and
//!   added in fixed point without rounding. Two such batches differ by ‖w_i‖ (or twice that) and one rounding to the lattice each. Under add-remove one
//!   of two neighbouring batches may have B + 1 units and the other one B: the exact sum is within 10u(B+1)C(1+2η) of Σ c_i v_i, which for B ≥ 3 is at most
//!   E, and the event of a smaller B is that of B = 3. So the same `excess` covers every batch. The batch decides and not the table, so that two tables
//!   have the same sum to the last bit where the unit that differs is not in the sample. (What 2^−60 of a step cuts off is below 2^−28 √d steps for
//!   2³² units, and lies in the 2 that was added.)
//! * **A model that panics.** If a panic ends the sum of a whole batch, the terms are computed one by one in place of it, in the way of the last point and
//!   from the same draws, and a unit over which the model panics by itself counts as zero. Whether that happens depends on the batch, so one of two neighbouring
//!   sums may be formed in one way and one in the other: the same bracket covers it, as above.
//! * **What is trusted of the model** ([`BatchTerms`]), because nothing here can check it at run time:
//!   1. v_i is a function of unit i, of its own draw and of public values: *to the last bit*, whatever the other units of the batch are and wherever in
//!      the batch it stands; and |n_i − ‖v_i‖| ≤ η‖v_i‖; a unit over which the model panics by itself makes every batch
//!      panic that holds it, and whether it does depends on the unit, its draw and public values;
//!   2. what [`BatchTerms::add`] adds over n units is Σ c_i v_i up to (2n+8)u·Σ c_i‖v_i‖ in L2: each entry is rounded a few times
//!      relative to itself and then plainly added, in any order.
//!
//!   Both are statements about roundings relative to a number, so nothing that a model computes on the way may vanish or overflow: a model says how it sees to
//!   that. The mechanism's part: C lies between 2⁻¹⁰⁰ and 2¹⁰⁰, and a unit whose norm is above 2⁷⁰⁰ counts as zero, so that no factor has lost digits.
//!
//!   [`compare`] checks both on given units; every model's conformance test calls it. A sum that is not finite although the model promised it counts as zero
//!   coordinate by coordinate.
//! * **Event**: [`BatchSum::event`]; the permit must equal it.

use rand_core::Rng;
use serde::de::DeserializeOwned;

use crate::ledger::StepPermit;
use crate::mechanism::ReleaseError;
use crate::mechanism::draw::Draw;
use crate::mechanism::lattice::{Lattice, MAX_UNITS};
use crate::mechanism::summation::Summed;
use crate::noise::{NoiseSource, Purpose};
use crate::panic_redaction::{Kept, redact_panics};
use crate::records::{Argument, Released, UnitTable, Units};
use crate::sampler::DiscreteGaussianSampler;
use crate::stored::{Source, Unread};
use dp_pvi_accounting::adjacency::Terms;
use dp_pvi_accounting::event::{DiscreteGaussian, DpEvent, LatticePath};
use dp_pvi_accounting::unit::{ClipNorm, NoiseMultiplier, SamplingRate};
use dp_pvi_names::LatticeOverflow;
use dp_pvi_names::LatticeVector;

/// η: largest relative difference between a reported norm and the norm of the term that is added.
pub(crate) const NORM_ERROR: f64 = 1.0 / (1u64 << 35) as f64;

/// u: unit roundoff.
const ROUNDOFF: f64 = f64::EPSILON / 2.0;

/// C of a batched sum: factors C/n then keep all their digits, and terms that are 0 for being too small are far below C.
const CLIP_NORMS: std::ops::RangeInclusive<f64> = 1.0 / (1u128 << 100) as f64..=(1u128 << 100) as f64;

/// A unit of a larger norm counts as zero: 2⁷⁰⁰.
const LARGEST_NORM: f64 = {
    let step = (1u128 << 100) as f64;
    step * step * step * step * step * step * step
};

/// Relative shortening of clipped terms, so that the rounding of the factor is on the safe side.
const SHRINK: f64 = 1e-12;

/// Terms of units, computed batch by batch. What a model promises is in the [module's](self) `Privacy` section.
///
/// Everything is `&self`: a model keeps nothing. What it remembers between [`BatchTerms::norms`] and [`BatchTerms::add`] is in its `Work`, which
/// the mechanism makes and drops.
pub trait BatchTerms<T: UnitTable> {
    /// Buffers, and draws that do not depend on data.
    type Work;

    /// Called once a release, before a record is touched.
    fn start(&self, draws: &mut dyn Rng) -> Self::Work;

    /// Most units of a call, a public number: larger batches come in chunks.
    fn chunk(&self) -> usize;

    /// Pushes the L2 norm of each unit's term onto `norms` (empty at the call). A unit's own randomness is its word of `words`, one for each unit:
    /// given that word, nothing else about a unit may depend on its position or on how many units there are.
    fn norms(&self, units: &[T::Unit<'_>], words: &[u64], work: &mut Self::Work, norms: &mut Vec<f64>);

    /// Adds Σ factor·term to `sums`, over the units of the last [`BatchTerms::norms`]. Units with factor 0 are left out, whatever their numbers are.
    fn add(&self, work: &mut Self::Work, factors: &[f64], sums: &mut [f64]);
}

/// Sum of clipped terms over a batch plus discrete Gaussian noise. See the [module](self).
#[derive(Debug, Clone, PartialEq)]
pub struct BatchSum {
    dimension: u32,
    clip: ClipNorm,
    noise: NoiseMultiplier,
    draw: Draw,
    terms: Terms,
    max_units: u64,
    lattice: Lattice,
    sampler: DiscreteGaussianSampler,
    excess: u64,
}

impl BatchSum {
    /// `max_units` is B: a public bound on the units of a site, and so on any batch.
    ///
    /// # Errors
    /// Parameters that do not fit the lattice, or a B for which rounding could cost more than the clipping norm (beyond 2²⁶).
    pub fn new(
        dimension: u32,
        clip: ClipNorm,
        noise: NoiseMultiplier,
        sampling: Option<SamplingRate>,
        terms: Terms,
        max_units: u64,
    ) -> Result<Self, LatticeOverflow> {
        if dimension == 0 || max_units == 0 || max_units > MAX_UNITS {
            return Err(LatticeOverflow("a batched sum needs at least one coordinate, and between 1 and 2^32 units"));
        }
        if matches!(terms, Terms::Cells { .. }) {
            return Err(LatticeOverflow("a batched sum does not look at single terms: it has no cells"));
        }
        if !CLIP_NORMS.contains(&clip.get()) {
            return Err(LatticeOverflow("a batched sum needs a clipping norm between 2^-100 and 2^100"));
        }
        let lattice = Lattice::new(clip, noise)?;
        let sampler = DiscreteGaussianSampler::new(lattice.scale).map_err(|_| LatticeOverflow("the noise scale"))?;
        // With fewer than 3 units E would not cover the step from B to B + 1 units.
        let excess = excess(dimension, clip, &lattice, max_units.max(3))?;
        let draw = Draw::of(sampling);
        Ok(Self { dimension, clip, noise, draw, terms, max_units, lattice, sampler, excess })
    }

    /// The same sum, of which a release is over one batch of an epoch of `batches`: as [`LatticeSum::in_batches`](crate::mechanism::LatticeSum::in_batches).
    ///
    /// # Errors
    /// As there.
    pub fn in_batches(self, batches: u32) -> Result<Self, LatticeOverflow> {
        let draw = self.draw.in_batches(batches, self.terms)?;
        Ok(Self { draw, ..self })
    }

    /// What one release is to an accountant; of a batch it is the epoch.
    #[must_use]
    pub fn event(&self) -> DpEvent {
        let event = DpEvent::DiscreteGaussian(DiscreteGaussian {
            exponent: self.lattice.exponent,
            scale: self.lattice.scale,
            bound_squared: self.lattice.bound_squared,
            excess: self.excess,
            dimension: self.dimension,
            terms: self.terms,
            path: LatticePath::Sum,
        });
        self.draw.event(event)
    }

    /// C.
    #[must_use]
    pub fn clip_norm(&self) -> ClipNorm {
        self.clip
    }

    /// z.
    #[must_use]
    pub fn noise_multiplier(&self) -> NoiseMultiplier {
        self.noise
    }

    /// Number of coordinates.
    #[must_use]
    pub fn dimension(&self) -> u32 {
        self.dimension
    }

    /// The lattice constant is 2^this.
    #[must_use]
    pub fn exponent(&self) -> i32 {
        self.lattice.exponent
    }

    /// B.
    #[must_use]
    pub fn max_units(&self) -> u64 {
        self.max_units
    }

    /// Tosses the coins, lets the model that `f` makes sum the clipped terms chunk by chunk ([`BatchSummation::of`]), rounds and adds noise. A
    /// unit whose norm is not a number counts as zero, and so does one over which the model panics: a refusal would tell of a record.
    ///
    /// # Errors
    /// The permit is for another event; no randomness; a table that does not fit the event; what `f` says, or a panic, before a record is
    /// looked at. Nothing is released then.
    pub fn release_sum<T: UnitTable, A: DeserializeOwned, E: From<ReleaseError>, N: NoiseSource>(
        &self,
        units: &Units<T>,
        argument: &Argument<A>,
        f: fn(&A, BatchSummation<'_, T>) -> Result<Summed, E>,
        permit: StepPermit,
        noise: &N,
    ) -> Result<Released<LatticeVector>, E> {
        if *permit.event() != self.event() {
            return Err(ReleaseError::PermitMismatch.into());
        }
        units.grouping.fits(self.terms, permit.scope().unit(), permit.scope().relation()).map_err(ReleaseError::from)?;
        let stream = |purpose| noise.stream(permit.release(), permit.step(), purpose).map_err(ReleaseError::from);
        let mut released = vec![0i64; self.dimension as usize];
        self.sampler.fill(&mut stream(Purpose::Noise)?, &mut released).map_err(ReleaseError::from)?;
        #[cfg(feature = "fault-injection")]
        crate::injected::spoil(&mut released);
        let mut draws = stream(Purpose::Draws)?;
        let sample = self.draw.sample(units.count(), &permit, noise).map_err(E::from)?;
        // Empty until a record was looked at.
        let mut sums = Vec::new();
        let mut unread = None;
        let source = units.table.source();
        let summation =
            BatchSummation { mechanism: self, source, sample: sample.as_deref(), draws: &mut draws, sums: &mut sums, unread: &mut unread };
        let result = redact_panics(|| f(&Kept::new(argument.fresh()), summation));
        if let Some(unread) = unread {
            // The disk is not a record: see `crate::stored`.
            std::mem::forget(result);
            return Err(ReleaseError::from(unread).into());
        }
        if sums.is_empty() {
            result.map_err(ReleaseError::from)??;
        } else {
            // A record was looked at: only the sum may say anything, and it is 0 if the model panicked on the way to it.
            std::mem::forget(result);
        }
        for (released, steps) in released.iter_mut().zip(sums) {
            // No refusal here: it could tell of a record. A sum of what the model promised stays below 2⁶³; another one goes round.
            *released = released.wrapping_add(steps);
        }
        let mut released = LatticeVector { exponent: self.lattice.exponent, values: released };
        units.bring_into_bound(permit.event(), &mut released);
        Ok(Released(released))
    }
}

/// Units whose terms a model sums batch by batch: handed by [`BatchSum`] to the function that makes the model.
pub struct BatchSummation<'g, T: UnitTable> {
    mechanism: &'g BatchSum,
    source: Source<'g, T>,
    /// Positions of the sample, ascending; everyone where there is none.
    sample: Option<&'g [usize]>,
    draws: &'g mut dyn Rng,
    /// In lattice steps.
    sums: &'g mut Vec<i64>,
    /// Units that are not in memory and could not be read.
    unread: &'g mut Option<Unread>,
}

impl<T: UnitTable> BatchSummation<'_, T> {
    /// Sums the clipped terms of the sample. More than B of them go unit by unit, and so do all of them where the model panics on the way, see the
    /// [module](self).
    #[must_use]
    pub fn of<M: BatchTerms<T>>(self, model: &M) -> Summed {
        let Self { mechanism: BatchSum { clip, dimension, max_units, lattice, .. }, source, sample, draws, sums, unread } = self;
        let mut draws = Taped::new(draws);
        let work = model.start(&mut draws);
        // From here on records are looked at.
        *sums = vec![0; *dimension as usize];
        let visits = sample.map_or(source.count(), <[usize]>::len);
        let at = |visit: usize| sample.map_or(visit, |sample| sample[visit]);
        // A unit has the same word on either way.
        let words: Vec<u64> = (0..visits).map(|_| draws.untaped()).collect();
        let chunk = model.chunk().max(1);
        let mut lender = source.lender();
        let together = if visits as u64 <= *max_units {
            redact_panics(|| {
                let mut summing = Summing::new(model, *clip, *dimension, work);
                for start in (0..visits).step_by(chunk) {
                    let chunk = start..(start + chunk).min(visits);
                    let units = lender.lend(chunk.clone(), sample)?;
                    let views: Vec<_> = chunk.clone().map(|visit| units.unit(visit, at(visit))).collect();
                    summing.add::<T>(&views, &words[chunk]);
                }
                Ok::<_, Unread>(summing.sums)
            })
            .ok()
        } else {
            None
        };
        *sums = match together {
            Some(Ok(sum)) => sum.iter().map(|sum| steps(sum * lattice.per_step())).collect(),
            Some(Err(failed)) => {
                *unread = Some(failed);
                return Summed(());
            }
            None => {
                let mut exact = Exact::new(*dimension, lattice);
                let mut summing = None;
                for (visit, word) in words.iter().enumerate() {
                    let added = redact_panics(|| {
                        let summing = summing.get_or_insert_with(|| {
                            draws.rewind();
                            Summing::new(model, *clip, *dimension, model.start(&mut draws))
                        });
                        let units = lender.lend(visit..visit + 1, sample)?;
                        exact.add(summing.alone::<T>(units.unit(visit, at(visit)), *word));
                        Ok::<_, Unread>(())
                    });
                    match added {
                        Ok(Ok(())) => {}
                        Ok(Err(failed)) => {
                            *unread = Some(failed);
                            break;
                        }
                        // What the model remembers may be half of something.
                        Err(_) => {
                            let _ = redact_panics(|| summing = None);
                        }
                    }
                }
                let _ = redact_panics(|| drop(summing));
                exact.steps()
            }
        };
        Summed(())
    }
}

/// A sum without rounding, of vectors that are the same to the last bit wherever they stand.
struct Exact {
    /// Numbers are multiplied by this, a power of two: steps of the lattice times 2^[`FRACTION`].
    scale: f64,
    sums: Vec<i128>,
}

/// Bits of a lattice step. A coordinate of a term is below 2³² steps (`Lattice::new` keeps C below 2³¹), and there are at most 2³² of them: with the
/// sign that is 32 + 32 + 1 + 60 = 125 bits.
const FRACTION: i32 = 60;

impl Exact {
    fn new(dimension: u32, lattice: &Lattice) -> Self {
        Self { scale: 2f64.powi(FRACTION - lattice.exponent), sums: vec![0; dimension as usize] }
    }

    /// Adds a vector: 0 in place of what is no number. Cut off beyond 2^−60 of a step, toward zero, which no vector becomes longer by.
    fn add(&mut self, vector: &[f64]) {
        for (sum, value) in self.sums.iter_mut().zip(vector) {
            let scaled = value * self.scale;
            if scaled.abs() < LARGEST {
                #[allow(clippy::cast_possible_truncation, reason = "below 2^92, and cut off on purpose")]
                let scaled = scaled as i128;
                *sum += scaled;
            }
        }
    }

    /// The nearest lattice steps.
    fn steps(self) -> Vec<i64> {
        let half = 1i128 << (FRACTION - 1);
        // Below 2⁶⁴ times what is allowed for sums of 2³² terms, which is below 2⁶³.
        self.sums
            .into_iter()
            .map(|sum| i64::try_from((sum + half) >> FRACTION).unwrap_or(if sum < 0 { i64::MIN } else { i64::MAX }))
            .collect()
    }
}

/// No coordinate of a clipped term is larger: 2³² steps.
const LARGEST: f64 = (1u128 << (32 + FRACTION)) as f64;

/// Draws that can be repeated from the start with the same result.
struct Taped<'r> {
    draws: &'r mut dyn Rng,
    tape: Vec<u64>,
    /// Words of the tape that were taken since the last rewinding.
    taken: usize,
}

impl<'r> Taped<'r> {
    fn new(draws: &'r mut dyn Rng) -> Self {
        Self { draws, tape: Vec::new(), taken: 0 }
    }

    fn rewind(&mut self) {
        self.taken = 0;
    }

    /// A word that no rewinding brings back.
    fn untaped(&mut self) -> u64 {
        self.draws.next_u64()
    }

    fn take(&mut self, draw: impl FnOnce(&mut dyn Rng) -> u64) -> u64 {
        self.taken += 1;
        match self.tape.get(self.taken - 1) {
            Some(word) => *word,
            None => {
                let word = draw(self.draws);
                self.tape.push(word);
                word
            }
        }
    }
}

impl rand_core::TryRng for Taped<'_> {
    type Error = std::convert::Infallible;

    fn try_next_u32(&mut self) -> Result<u32, Self::Error> {
        #[allow(clippy::cast_possible_truncation, reason = "the word was one of 32 bits")]
        let word = self.take(|draws| draws.next_u32().into()) as u32;
        Ok(word)
    }

    fn try_next_u64(&mut self) -> Result<u64, Self::Error> {
        Ok(self.take(|draws| draws.next_u64()))
    }

    fn try_fill_bytes(&mut self, bytes: &mut [u8]) -> Result<(), Self::Error> {
        for chunk in bytes.chunks_mut(8) {
            let word = self.try_next_u64()?.to_le_bytes();
            chunk.copy_from_slice(&word[..chunk.len()]);
        }
        Ok(())
    }
}

/// A sum in the making: the one step from a chunk to its part of the sum.
struct Summing<'m, M, W> {
    model: &'m M,
    clip: f64,
    work: W,
    norms: Vec<f64>,
    sums: Vec<f64>,
}

impl<'m, M, W> Summing<'m, M, W> {
    fn new(model: &'m M, clip: ClipNorm, dimension: u32, work: W) -> Self {
        Self { model, clip: clip.get(), work, norms: Vec::new(), sums: vec![0.0; dimension as usize] }
    }

    /// The clipped term of one unit, by itself.
    fn alone<'u, T: UnitTable + 'u>(&mut self, unit: T::Unit<'u>, word: u64) -> &[f64]
    where
        M: BatchTerms<T, Work = W>,
    {
        self.sums.fill(0.0);
        self.add::<T>(&[unit], &[word]);
        &self.sums
    }

    /// Adds the clipped terms of the units of one chunk.
    fn add<'u, T: UnitTable + 'u>(&mut self, units: &[T::Unit<'u>], words: &[u64])
    where
        M: BatchTerms<T, Work = W>,
    {
        self.norms.clear();
        self.model.norms(units, words, &mut self.work, &mut self.norms);
        // A model that reports too few norms gets factor 0 for the rest.
        self.norms.resize(units.len(), f64::NAN);
        self.norms.iter_mut().for_each(|norm| *norm = factor(*norm, self.clip));
        #[cfg(feature = "fault-injection")]
        crate::injected::stretch(&mut self.norms);
        self.model.add(&mut self.work, &self.norms, &mut self.sums);
    }
}

/// min(1, C/norm), or 0 for what is no norm.
fn factor(norm: f64, clip: f64) -> f64 {
    if norm <= clip && norm >= 0.0 {
        1.0
    } else if norm <= LARGEST_NORM && norm > clip {
        clip / norm * (1.0 - SHRINK)
    } else {
        0.0
    }
}

/// Nearest lattice step; 0 for what is no number.
#[allow(clippy::cast_possible_truncation, reason = "far below 2^63 for every lattice that was let through, and saturating")]
fn steps(x: f64) -> i64 {
    if x.is_finite() { x.round() as i64 } else { 0 }
}

/// ⌈√d + 2E/γ + 4ηC/γ⌉ + 2, rounded up.
fn excess(dimension: u32, clip: ClipNorm, lattice: &Lattice, max_units: u64) -> Result<u64, LatticeOverflow> {
    #[allow(clippy::cast_precision_loss, reason = "rounded up by the last factor")]
    let units = max_units as f64;
    let clip_steps = clip.get() * lattice.per_step();
    let summation = (2.0 * units + 8.0) * ROUNDOFF * units * (1.0 + 2.0 * NORM_ERROR);
    if summation > 1.0 {
        return Err(LatticeOverflow("sums of so many units in double precision could be off by the clipping norm: declare fewer units"));
    }
    let excess = f64::from(dimension).sqrt() + (2.0 * summation + 4.0 * NORM_ERROR) * clip_steps;
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "positive and below 2^33")]
    let excess = (excess * (1.0 + 1e-12)).ceil() as u64 + 2;
    Ok(excess)
}

/// How close a model came to what it may do: shares of what is allowed, so that 1 is the limit.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Comparison {
    /// Largest |n − ‖v‖| over η‖v‖.
    pub norm: f64,
    /// Largest ‖sum − Σ c v‖ over (2n+8)u·Σ c‖v‖.
    pub sum: f64,
}

/// A promise that a model breaks.
#[derive(Debug, Clone, Copy, PartialEq, thiserror::Error)]
pub enum BrokenPromise {
    /// Not one norm a unit.
    #[error("the model reported {reported} norms for {units} units: report this as a bug of the model")]
    Count {
        /// Norms.
        reported: usize,
        /// Units.
        units: usize,
    },
    /// The norm is not that of what is added.
    #[error(
        "the model reported the norm {reported:e} for unit {unit} and added a term of norm {added:e}: report this as a bug of the model"
    )]
    Norm {
        /// Which unit.
        unit: usize,
        /// Reported.
        reported: f64,
        /// Norm of what is added for factor 1.
        added: f64,
    },
    /// The norm depends on the other units.
    #[error("the norm of unit {unit} depends on the other units of its batch")]
    Company {
        /// Which unit.
        unit: usize,
    },
    /// The sum is not the sum of the terms.
    #[error("the sum of a batch is off by {error:e}; {allowed:e} is allowed")]
    Sum {
        /// ‖sum − Σ c v‖.
        error: f64,
        /// Allowed.
        allowed: f64,
    },
}

/// Checks a model's two promises on the units of a table, for tests: every unit alone against the same unit in batches, forwards and backwards, in
/// chunks of several sizes, with the factors of several clipping norms. `stream(i)` gives the draws of the start (0) and of unit i−1.
///
/// It looks at single terms, so the table must hold public test records.
///
/// # Errors
/// The first broken promise.
pub fn compare<T: UnitTable, M: BatchTerms<T>, R: Rng>(
    table: &T,
    model: &M,
    dimension: usize,
    stream: impl Fn(u64) -> R,
) -> Result<Comparison, BrokenPromise> {
    let mut worst = Comparison::default();
    // What the model tells and adds for these units, in this order, as one chunk.
    let batch = |units: &[usize], factors: &dyn Fn(usize, f64) -> f64, sums: &mut [f64]| -> Result<Vec<f64>, BrokenPromise> {
        let mut work = model.start(&mut stream(0));
        let mut norms = Vec::new();
        let views: Vec<_> = units.iter().map(|&unit| table.unit(unit)).collect();
        let words: Vec<u64> = units.iter().map(|&unit| stream(unit as u64 + 1).next_u64()).collect();
        model.norms(&views, &words, &mut work, &mut norms);
        if norms.len() != units.len() {
            return Err(BrokenPromise::Count { reported: norms.len(), units: units.len() });
        }
        let factors: Vec<f64> = units.iter().zip(&norms).map(|(&unit, &norm)| factors(unit, norm)).collect();
        model.add(&mut work, &factors, sums);
        Ok(norms)
    };
    let mut terms = Vec::with_capacity(table.len());
    let mut reported = Vec::with_capacity(table.len());
    for unit in 0..table.len() {
        let mut term = vec![0.0; dimension];
        let norm = batch(&[unit], &|_, norm| factor(norm, f64::MAX), &mut term)?[0];
        let added = length(&term);
        let error = (norm - added).abs();
        // The norm of a term that counts as zero does not matter.
        if factor(norm, f64::MAX) > 0.0 && (error > NORM_ERROR * added || error.is_nan()) {
            return Err(BrokenPromise::Norm { unit, reported: norm, added });
        }
        if added > 0.0 {
            worst.norm = worst.norm.max(error / (NORM_ERROR * added));
        }
        reported.push(norm);
        terms.push(term);
    }
    let forwards: Vec<usize> = (0..table.len()).collect();
    let backwards: Vec<usize> = forwards.iter().rev().copied().collect();
    let largest = reported.iter().copied().filter(|norm| norm.is_finite()).fold(0.0, f64::max);
    for order in [forwards, backwards] {
        for chunk in [table.len(), table.len().div_ceil(2), table.len().div_ceil(3), 7] {
            for clip in [2.0 * largest, 0.3 * largest, 1e-3 * largest] {
                let clipped = |unit: usize, norm: f64| if unit % 5 == 4 { 0.0 } else { factor(norm, clip) };
                let mut sums = vec![0.0; dimension];
                for units in order.chunks(chunk.clamp(1, model.chunk().max(1))) {
                    let norms = batch(units, &clipped, &mut sums)?;
                    if let Some((&unit, _)) = units.iter().zip(&norms).find(|&(&unit, norm)| norm.to_bits() != reported[unit].to_bits()) {
                        return Err(BrokenPromise::Company { unit });
                    }
                }
                let factors: Vec<f64> = reported.iter().enumerate().map(|(unit, &norm)| clipped(unit, norm)).collect();
                let error = length(&difference(&sums, &terms, &factors));
                let total: f64 = factors.iter().zip(&terms).map(|(factor, term)| factor * length(term)).sum();
                #[allow(clippy::cast_precision_loss, reason = "a test table")]
                let allowed = (2.0 * table.len() as f64 + 8.0) * ROUNDOFF * total;
                if error > allowed || error.is_nan() {
                    return Err(BrokenPromise::Sum { error, allowed });
                }
                if allowed > 0.0 {
                    worst.sum = worst.sum.max(error / allowed);
                }
            }
        }
    }
    Ok(worst)
}

/// Σ factor·term − sums, with errors of sums and products carried along, so that the reference does not use up the allowance.
fn difference(sums: &[f64], terms: &[Vec<f64>], factors: &[f64]) -> Vec<f64> {
    let one = |j: usize| {
        let (mut total, mut rest) = (-sums[j], 0.0);
        for (term, &factor) in terms.iter().zip(factors).filter(|(_, factor)| **factor != 0.0) {
            let product = factor * term[j];
            rest += factor.mul_add(term[j], -product);
            let next = total + product;
            // What the addition lost (Neumaier).
            rest += if total.abs() >= product.abs() { (total - next) + product } else { (product - next) + total };
            total = next;
        }
        total + rest
    };
    (0..sums.len()).map(one).collect()
}

/// L2 norm over the whole range of double precision, NaN for what has none: entries are brought to about 1 by a power of two before they are squared.
fn length(values: &[f64]) -> f64 {
    let largest = values.iter().fold(0.0f64, |largest, x| largest.max(x.abs()));
    if values.iter().any(|x| x.is_nan()) || largest.is_infinite() {
        return f64::NAN;
    }
    if largest == 0.0 {
        return 0.0;
    }
    // Inside of what a power of two can be, and close enough to largest for its square.
    #[allow(clippy::cast_possible_truncation, reason = "at most 1074 in size")]
    let scale = 2f64.powi(-(largest.log2() as i32).clamp(-1000, 1000));
    values.iter().map(|x| (x * scale).powi(2)).sum::<f64>().sqrt() / scale
}

#[cfg(test)]
mod tests;
