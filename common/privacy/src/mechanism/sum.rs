//! Sum of clipped terms plus discrete Gaussian noise.

use serde::de::DeserializeOwned;

use crate::ledger::StepPermit;
use crate::mechanism::ReleaseError;
use crate::mechanism::clean::CleanTerms;
use crate::mechanism::draw::Draw;
use crate::mechanism::lattice::Lattice;
use crate::mechanism::summation::{Pass, Summation, Summed, Totals};
use crate::noise::{NoiseSource, Purpose};
use crate::panic_redaction::{Kept, redact_panics};
use crate::partial_sums::NoSum;
use crate::records::{Argument, Released, Sensitive, UnitTable, Units};
use crate::sampler::DiscreteGaussianSampler;
use crate::shards::Grouping;
use crate::stored::Source;
use dp_pvi_accounting::adjacency::Terms;
use dp_pvi_accounting::event::{DiscreteGaussian, DpEvent, LatticePath};
use dp_pvi_accounting::unit::{ClipNorm, NoiseMultiplier, SamplingRate};
use dp_pvi_names::LatticeOverflow;
use dp_pvi_names::LatticeVector;

/// Sum of clipped terms plus discrete Gaussian noise on a power-of-two lattice, over all units, a Poisson sample, or one batch of an epoch.
///
/// # Privacy
/// Proofs: [`crate::proofs::layouts`], [`dp_pvi_accounting::proofs::discrete_gaussian`], [`crate::proofs::carried_state`].
///
/// * **Unit and relation**: one term per unit of the table; [`Terms`] says whether a unit is a privacy unit or a shard. A table that does not fit
///   the terms, or the unit and relation of the ledger that gave the permit, is refused ([`crate::shards`]).
/// * **Lattice**: γ = 2^k with k = ⌊log₂(zC)⌋ − 20, noise scale s = ⌈zC/γ⌉ ∈ [2²⁰, 2²¹].
/// * **Sensitivity** (path `term`): each term is clipped in floating point, truncated toward zero and its *integer* squared
///   norm compared with ⌊(C/γ)²⌋; a term that fails is shortened, then dropped. So one term moves the integer sum by at most
///   C/γ in L2 and replacing it by at most 2C/γ, for every input, NaN and infinities included, and however the floating-point
///   unit rounds.
/// * **Sensitivity of cells** ([`Terms::Cells`], [`dp_pvi_accounting::proofs::cells`]): after truncation every integer in a cell is at least 0 and
///   Q(x) = Σ_cells x² + 2 Σ_signed x² ≤ ⌊(C/γ)²⌋, in integers; a term with a negative cell counts as zero, one with Q too large is shortened by √Q in place of
///   the norm, then dropped. So one term moves the integer sum by at most C/γ, and replacing it by at most √2·C/γ. Every unit takes part.
/// * **Noise**: [`DiscreteGaussianSampler`], exact; all of a step is drawn before a record is touched.
/// * **Sampling**: [`Coins`](crate::sampler::Coins), from a stream of their own, or one batch of an [`Allocation`](crate::sampler::Allocation) of all units
///   ([`LatticeSum::in_batches`]).
/// * **Overflow**: impossible; [`LatticeSum::new`] refuses parameters for which 2³² terms and the largest noise could reach 2⁶³.
/// * **Number of units**: nothing depends on it. A table of any size is summed, and none is refused. Where a number is declared
///   ([`Units::over_slots`]), the noised sum is brought into the public bound of so many terms: post-processing.
/// * **Event**: [`LatticeSum::event`]; the permit must equal it, else nothing is drawn.
#[derive(Debug, Clone, PartialEq)]
pub struct LatticeSum {
    dimension: u32,
    clip: ClipNorm,
    noise: NoiseMultiplier,
    draw: Draw,
    terms: Terms,
    path: LatticePath,
    lattice: Lattice,
    sampler: DiscreteGaussianSampler,
    /// Coordinates that are released, ascending; all where absent.
    places: Option<Vec<u32>>,
    /// Fewest terms for which a thread is started.
    at_least: usize,
}

/// Terms that pay for a thread: starting one takes as long as 200 short ones.
const SHORT_TERMS: usize = 1 << 11;

/// The same of terms that take some microseconds each.
const LONG_TERMS: usize = 1 << 5;

/// Bytes of stack of a thread that is started: what a program's first one usually has.
const STACK: usize = 8 << 20;

impl LatticeSum {
    /// Checks that sums of at most [`MAX_UNITS`](crate::mechanism::MAX_UNITS) terms fit the lattice.
    ///
    /// # Errors
    /// They do not, or the path is [`LatticePath::Sum`], which is [`BatchSum`](crate::mechanism::BatchSum)'s.
    pub fn new(
        dimension: u32,
        clip: ClipNorm,
        noise: NoiseMultiplier,
        sampling: Option<SamplingRate>,
        terms: Terms,
        path: LatticePath,
    ) -> Result<Self, LatticeOverflow> {
        if dimension == 0 {
            return Err(LatticeOverflow("a sum needs at least one coordinate"));
        }
        if path == LatticePath::Sum {
            return Err(LatticeOverflow("terms that are summed in floating point are a batched sum's; this one takes the path `term`"));
        }
        if let Terms::Cells { cells } = terms {
            if cells > dimension {
                return Err(LatticeOverflow("a sum has no more cells than coordinates"));
            }
            if sampling.is_some() {
                return Err(LatticeOverflow("a sum of cells is over all units: no sample of it is accounted"));
            }
        }
        let lattice = Lattice::new(clip, noise)?;
        let sampler = DiscreteGaussianSampler::new(lattice.scale).map_err(|_| LatticeOverflow("the noise scale"))?;
        let draw = Draw::of(sampling);
        Ok(Self { dimension, clip, noise, draw, terms, path, lattice, sampler, places: None, at_least: SHORT_TERMS })
    }

    /// The same sum of which only these coordinates are released: the others are 0, without value and without noise.
    ///
    /// # Privacy
    /// Proof: [`crate::proofs::layouts`]. The places are public, and do not depend on records. What is released is the sum over fewer coordinates, whose terms are no longer than before, with the
    /// same noise on each; the rest is a constant. The event stays that of all coordinates.
    ///
    /// # Errors
    /// The places are not ascending, or one is beyond the dimension.
    pub fn on(self, places: Vec<u32>) -> Result<Self, LatticeOverflow> {
        let ascending = places.windows(2).all(|pair| pair[0] < pair[1]);
        if !ascending || places.last().is_some_and(|last| *last >= self.dimension) {
            return Err(LatticeOverflow("the places of a sum must be ascending coordinates of it"));
        }
        Ok(Self { places: Some(places), ..self })
    }

    /// The same sum of terms that take long to compute, some microseconds each: fewer of them are worth a thread. It makes no other difference.
    #[must_use]
    pub fn of_long_terms(self) -> Self {
        Self { at_least: LONG_TERMS, ..self }
    }

    /// The same sum, of which a release is over one batch of an epoch of `batches`: every unit is in exactly one of them.
    ///
    /// # Privacy
    /// Unit, relation and sensitivity of a batch's sum are those of all units. The event is the whole epoch, and the permit of an epoch
    /// gives one step for each batch ([`Permit::into_steps`](crate::Permit::into_steps)). Proof: [`dp_pvi_accounting::proofs::random_allocation`].
    ///
    /// # Errors
    /// Batches that the accountant does not take, a sum that is sampled already, or over shards.
    pub fn in_batches(self, batches: u32) -> Result<Self, LatticeOverflow> {
        let draw = self.draw.in_batches(batches, self.terms)?;
        Ok(Self { draw, ..self })
    }

    /// What one release is to an accountant; of a batch it is the epoch.
    #[must_use]
    pub fn event(&self) -> DpEvent {
        self.event_with(self.lattice.bound_squared)
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

    /// Tosses the coins, lets `f` sum the clipped terms of the sample ([`Summation::each`]) and adds noise. A term with a non-finite entry
    /// or a coordinate beyond the dimension counts as zero.
    ///
    /// What a step costs without its noise is the time of this call minus that of the same call on an empty table: 20 µs for 200
    /// of 3,907 units with 28 entries each, on a loaded machine (`benches/mechanism.rs`).
    ///
    /// # Errors
    /// The permit is for another event; no randomness; overflow; what `f` says before it looks at a record. Nothing is released then.
    pub fn release_sum<T: UnitTable, A: DeserializeOwned, E: From<ReleaseError>, N: NoiseSource>(
        &self,
        units: &Units<T>,
        argument: &Argument<A>,
        f: fn(&A, Summation<'_, T>) -> Result<Summed, E>,
        permit: StepPermit,
        noise: &N,
    ) -> Result<Released<LatticeVector>, E> {
        self.release_sum_with(units, &Sensitive::NOTHING, argument, f, permit, noise)
    }

    /// [`LatticeSum::release_sum`] of terms that also depend on the site's private state.
    ///
    /// # Privacy
    /// The state must be noise-free ([`crate::proofs::carried_state`]; [`Pending::Private`](crate::Pending::Private) can be nothing else),
    /// and what a term takes from it must belong to this unit alone. Where a panic left no state ([`Sensitive`]), every term counts as zero.
    ///
    /// # Errors
    /// As [`LatticeSum::release_sum`].
    pub(crate) fn release_sum_with<T: UnitTable, S: Sync, A: DeserializeOwned, E: From<ReleaseError>, N: NoiseSource>(
        &self,
        units: &Units<T>,
        state: &Sensitive<S>,
        argument: &Argument<A>,
        f: fn(&A, Summation<'_, T, S>) -> Result<Summed, E>,
        permit: StepPermit,
        noise: &N,
    ) -> Result<Released<LatticeVector>, E> {
        if *permit.event() != self.event() {
            return Err(ReleaseError::PermitMismatch.into());
        }
        let mut sum = self.noised_sum(units, state, argument, f, &permit, noise, &mut Form::plain())?;
        units.bring_into_bound(permit.event(), &mut sum);
        Ok(Released(sum))
    }

    /// [`LatticeSum::release_sum_with`] that also gives the clipped terms, exactly those that were summed.
    ///
    /// # Privacy
    /// The terms stay behind the gate and have no noise in them. As the pending change of a private state (ρ times them) they are
    /// `private-clean`.
    ///
    /// # Errors
    /// As [`LatticeSum::release_sum`].
    pub(crate) fn release_sum_keeping<T: UnitTable, S: Sync, A: DeserializeOwned, E: From<ReleaseError>, N: NoiseSource>(
        &self,
        units: &Units<T>,
        state: &Sensitive<S>,
        argument: &Argument<A>,
        f: fn(&A, Summation<'_, T, S>) -> Result<Summed, E>,
        permit: StepPermit,
        noise: &N,
    ) -> Result<(Released<LatticeVector>, Sensitive<CleanTerms>), E> {
        if *permit.event() != self.event() {
            return Err(ReleaseError::PermitMismatch.into());
        }
        let mut kept = self.no_terms();
        let mut sum = self.noised_sum(units, state, argument, f, &permit, noise, &mut Form::plain().keeping(&mut kept))?;
        units.bring_into_bound(permit.event(), &mut sum);
        Ok((Released(sum), Sensitive::of(kept)))
    }

    /// An empty list of terms of this sum.
    pub(super) fn no_terms(&self) -> CleanTerms {
        CleanTerms::new(self.dimension, self.lattice.exponent)
    }

    /// The sum and its noise, not yet released: the caller has checked the permit and says what the result is.
    #[allow(clippy::too_many_arguments, reason = "the one loop behind every release of a sum")]
    pub(super) fn noised_sum<T: UnitTable, S: Sync, A: DeserializeOwned, E: From<ReleaseError>, N: NoiseSource>(
        &self,
        units: &Units<T>,
        state: &Sensitive<S>,
        argument: &Argument<A>,
        f: fn(&A, Summation<'_, T, S>) -> Result<Summed, E>,
        permit: &StepPermit,
        noise: &N,
        form: &mut Form<'_>,
    ) -> Result<LatticeVector, E> {
        units.grouping.fits(self.terms, permit.scope().unit(), permit.scope().relation()).map_err(ReleaseError::from)?;
        // Everything that a release needs of randomness comes before a record is touched.
        let stream = |purpose| noise.stream(permit.release(), permit.step(), purpose).map_err(ReleaseError::from);
        let mut noised = vec![0i64; self.dimension as usize];
        match &self.places {
            None => self.sampler.fill(&mut stream(Purpose::Noise)?, &mut noised).map_err(ReleaseError::from)?,
            Some(places) => {
                let mut drawn = vec![0i64; places.len()];
                self.sampler.fill(&mut stream(Purpose::Noise)?, &mut drawn).map_err(ReleaseError::from)?;
                places.iter().zip(drawn).for_each(|(&place, noise)| noised[place as usize] = noise);
            }
        }
        #[cfg(feature = "fault-injection")]
        crate::injected::spoil(&mut noised);
        let sample = self.draw.sample(units.count(), permit, noise)?;
        let (mut totals, kept) = self.summed(units, state, argument, f, sample.as_deref(), form.kept.is_some())?;
        if let Some(places) = &self.places {
            keep_only(places, &mut totals);
        }
        if let Some(most) = form.most_units {
            confine(&mut totals, u128::from(most) * self.lattice.bound_squared.isqrt());
        }
        #[cfg(feature = "fault-injection")]
        let kept = kept.map(|mut kept| {
            kept.take_in(&noised);
            kept
        });
        for (noised, sum) in noised.iter_mut().zip(&totals) {
            // Below 2⁶³ for tables of at most 2³² units, see `LatticeSum::new`.
            *noised = noised.wrapping_add(*sum);
        }
        if let (Some(place), Some(terms)) = (&mut form.kept, kept) {
            **place = terms;
        }
        Ok(LatticeVector { exponent: self.lattice.exponent, values: noised })
    }

    /// The exact integer sum, and the terms where they are kept: split over the threads of the units ([`Units::on_threads`]).
    ///
    /// Every thread calls `f` with an argument of its own and takes visits until there are none left. A term is a function of its unit, and integers are added, so
    /// the result has the same bits for any number of threads ([`crate::proofs::layouts`]).
    ///
    /// # Errors
    /// What `f` says before a record is looked at; units that are not in memory could not be read.
    pub(crate) fn summed<T: UnitTable, S: Sync, A: DeserializeOwned, E: From<ReleaseError>>(
        &self,
        units: &Units<T>,
        state: &Sensitive<S>,
        argument: &Argument<A>,
        f: fn(&A, Summation<'_, T, S>) -> Result<Summed, E>,
        sample: Option<&[usize]>,
        keeping: bool,
    ) -> Result<(Vec<i64>, Option<CleanTerms>), E> {
        let (source, state, count) = (units.table.source(), state.value(), units.count());
        if let Source::Elsewhere(elsewhere) = source {
            // A sample, a list of terms and a private state stay where the records are.
            let plain = sample.is_none() && !keeping && state.is_some_and(|state| size_of_val(state) == 0);
            let sum = if plain { elsewhere.sum(self, argument.bytes()) } else { Err(NoSum::Unfit) };
            return Ok((sum.map_err(ReleaseError::from)?, None));
        }
        let visits = sample.map_or(count, <[usize]>::len);
        let threads = self.threads(units, visits);
        let pass = Pass::over(visits, threads, source.window());
        let part = || {
            let mut totals = Totals::new((self.clip, self.checked_as()), self.lattice, self.dimension, keeping);
            let summation = Summation { source, state, sample, pass: &pass, totals: &mut totals };
            let result = redact_panics(|| f(&Kept::new(argument.fresh()), summation));
            (totals, result)
        };
        let (mut totals, result) = std::thread::scope(|scope| {
            let helper = || {
                let (totals, result) = part();
                // The caller's own call says what is said. This one's answer is not even destroyed by its own code: it may have looked at a record.
                std::mem::forget(result);
                totals
            };
            let start = |_| std::thread::Builder::new().stack_size(STACK).spawn_scoped(scope, helper);
            // Where the system has no thread to give, those that are there do all.
            let helpers: Vec<_> = (1..threads).map_while(|number| start(number).ok()).collect();
            let (mut totals, result) = part();
            for helper in helpers {
                match helper.join() {
                    Ok(part) => totals.add(part),
                    Err(_) => unreachable!("what a thread runs beside `f`, whose panics are withheld, is integer sums"),
                }
            }
            (totals, result)
        });
        // The disk is not a record: see `crate::stored`.
        if let Err(unread) = pass.end() {
            // A record may have been looked at: what `f` made is not even destroyed by its own code.
            std::mem::forget(result);
            return Err(ReleaseError::from(unread).into());
        }
        if totals.touched {
            // A record was looked at: only the sum may say anything. What `f` made of it beside is not even destroyed by its own code.
            std::mem::forget(result);
        } else {
            result.map_err(ReleaseError::from)??;
        }
        let kept = totals.kept.take().map(|mut parts| {
            parts.sort_unstable_by_key(CleanTerms::first);
            let mut terms = self.no_terms();
            parts.iter().for_each(|part| terms.append(part));
            terms.end(count);
            terms
        });
        Ok((totals.sums, kept))
    }

    /// Threads for a sum. Where a number of units is declared they follow from public numbers alone, with the expected size of a sample; of units that no one declared there are `visits`.
    fn threads<T>(&self, units: &Units<T>, visits: usize) -> usize {
        let least = match units.grouping {
            Grouping::Shards(_) | Grouping::WholeSite => 1,
            Grouping::Units => self.at_least,
        };
        let terms = units.slots.map_or(visits, |declared| usize::try_from(self.draw.expected(declared)).unwrap_or(usize::MAX));
        units.threads.get().min(terms / least).max(1)
    }

    /// What decides the integers of a sum of given units.
    pub(crate) fn form(&self) -> [u64; 5] {
        let bound = self.lattice.bound_squared;
        #[allow(clippy::cast_possible_truncation, reason = "the two halves of a number")]
        let (low, high) = (bound as u64, (bound >> 64) as u64);
        // By which rule a term is checked.
        let cells = if let Terms::Cells { cells } = self.terms { 1 + u64::from(cells) } else { 0 };
        // Dimension and exponent side by side.
        let numbers = u64::from(self.dimension) << 32 | u64::from(self.lattice.exponent.cast_unsigned());
        [self.clip.get().to_bits(), low, high, numbers, cells]
    }

    /// The rule by which terms are checked: the one that the event names.
    fn checked_as(&self) -> Terms {
        #[cfg(feature = "fault-injection")]
        if crate::injected::is(crate::injected::Bug::BallBookedAsCells) {
            return Terms::Units;
        }
        self.terms
    }

    /// s.
    pub(super) fn scale(&self) -> u64 {
        self.lattice.scale
    }

    /// ⌊(C/γ)²⌋.
    pub(crate) fn bound_squared(&self) -> u128 {
        self.lattice.bound_squared
    }

    /// The event of one release whose squared integer sensitivity is `bound_squared` instead of ⌊(C/γ)²⌋.
    pub(super) fn event_with(&self, bound_squared: u128) -> DpEvent {
        let event = DpEvent::DiscreteGaussian(DiscreteGaussian {
            exponent: self.lattice.exponent,
            scale: self.lattice.scale,
            bound_squared,
            excess: 0,
            dimension: self.dimension,
            terms: self.terms,
            path: self.path,
        });
        self.draw.event(event)
    }
}

/// What a caller of the one loop wants beside the sum.
pub(super) struct Form<'k> {
    kept: Option<&'k mut CleanTerms>,
    most_units: Option<u64>,
}

impl<'k> Form<'k> {
    /// The sum, whatever its size.
    pub(super) fn plain() -> Self {
        Self { kept: None, most_units: None }
    }

    /// The sum of any number of terms, brought into the box that sums of `most_units` terms lie in.
    pub(super) fn within(most_units: u64) -> Self {
        Self { kept: None, most_units: Some(most_units) }
    }

    /// And the terms.
    pub(super) fn keeping(self, kept: &'k mut CleanTerms) -> Self {
        Self { kept: Some(kept), ..self }
    }
}

/// Sets all other coordinates to 0.
fn keep_only(places: &[u32], sums: &mut [i64]) {
    let mut places = places.iter().copied().peekable();
    for (j, sum) in (0_u32..).zip(sums) {
        if places.next_if_eq(&j).is_none() {
            *sum = 0;
        }
    }
}

/// Brings every coordinate into [−`largest`, `largest`].
fn confine(sums: &mut [i64], largest: u128) {
    let largest = i64::try_from(largest).unwrap_or(i64::MAX);
    sums.iter_mut().for_each(|sum| *sum = (*sum).clamp(-largest, largest));
}
