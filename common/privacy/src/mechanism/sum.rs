//! Sum of clipped terms plus discrete Gaussian noise.

use crate::adjacency::Terms;
use crate::event::{DiscreteGaussian, DpEvent, LatticePath};
use crate::ledger::StepPermit;
use crate::mechanism::ReleaseError;
use crate::mechanism::clean::{CleanTerms, Keep};
use crate::mechanism::lattice::{Lattice, LatticeOverflow, MAX_UNITS};
use crate::mechanism::term::Term;
use crate::noise::{NoiseSource, Purpose};
use crate::records::{Released, Sensitive, UnitTable, Units};
use crate::release::LatticeVector;
use crate::sampler::{Coins, DiscreteGaussianSampler};
use crate::unit::{ClipNorm, NoiseMultiplier, SamplingRate};

/// Sum of clipped terms plus discrete Gaussian noise on a power-of-two lattice, over all units or a Poisson sample.
///
/// # Privacy
/// Proofs: [`crate::proofs::layouts`], [`crate::proofs::discrete_gaussian`], [`crate::proofs::carried_state`].
///
/// * **Unit and relation**: one term per unit of the table; [`Terms`] says whether a unit is a privacy unit or a shard. A table that does not fit
///   the terms, or the unit and relation of the ledger that gave the permit, is refused ([`crate::shards`]).
/// * **Lattice**: γ = 2^k with k = ⌊log₂(zC)⌋ − 20, noise scale s = ⌈zC/γ⌉ ∈ [2²⁰, 2²¹].
/// * **Sensitivity** (path `term`): each term is clipped in floating point, truncated toward zero and its *integer* squared
///   norm compared with ⌊(C/γ)²⌋; a term that fails is shortened, then dropped. So one term moves the integer sum by at most
///   C/γ in L2 and replacing it by at most 2C/γ, for every input, NaN and infinities included, and however the floating-point
///   unit rounds.
/// * **Noise**: [`DiscreteGaussianSampler`], exact; all of a step is drawn before a record is touched.
/// * **Sampling**: [`Coins`], from a stream of their own.
/// * **Overflow**: impossible; [`LatticeSum::new`] refuses parameters for which 2³² terms and the largest noise could reach 2⁶³.
/// * **Event**: [`LatticeSum::event`]; the permit must equal it, else nothing is drawn.
#[derive(Debug, Clone, PartialEq)]
pub struct LatticeSum {
    dimension: u32,
    clip: ClipNorm,
    noise: NoiseMultiplier,
    sampling: Option<SamplingRate>,
    terms: Terms,
    path: LatticePath,
    lattice: Lattice,
    sampler: DiscreteGaussianSampler,
}

impl LatticeSum {
    /// Checks that sums of at most [`MAX_UNITS`] terms fit the lattice.
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
        let lattice = Lattice::new(clip, noise)?;
        let sampler = DiscreteGaussianSampler::new(lattice.scale).map_err(|_| LatticeOverflow("the noise scale"))?;
        Ok(Self { dimension, clip, noise, sampling, terms, path, lattice, sampler })
    }

    /// What one release is to an accountant.
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

    /// Tosses the coins, sums the clipped terms `f(unit)` and adds noise. A term with a non-finite entry or a coordinate
    /// beyond the dimension counts as zero.
    ///
    /// What a step costs without its noise is the time of this call minus that of the same call on an empty table: 20 µs for 200
    /// of 3,907 units with 28 entries each, on a loaded machine (`benches/mechanism.rs`).
    ///
    /// # Errors
    /// The permit is for another event; no randomness; overflow; more than [`MAX_UNITS`] units. Nothing is released then.
    pub fn release_sum<T: UnitTable, N: NoiseSource>(
        &self,
        units: &Units<T>,
        f: impl Fn(T::Unit<'_>, &mut Term),
        permit: StepPermit,
        noise: &N,
    ) -> Result<Released<LatticeVector>, ReleaseError> {
        self.release_sum_with(units, &Sensitive(()), |unit, _, (), term| f(unit, term), permit, noise)
    }

    /// [`LatticeSum::release_sum`] of terms that also depend on the site's private state: `f(unit, position, state, term)`.
    ///
    /// # Privacy
    /// The state must be noise-free ([`crate::proofs::carried_state`]; [`Pending::Private`](crate::Pending::Private) can be nothing else),
    /// and what `f` takes from it must belong to this unit alone. `position` is there to find that part, and for nothing else: under
    /// add-remove the position itself depends on other units.
    ///
    /// # Errors
    /// As [`LatticeSum::release_sum`].
    pub fn release_sum_with<T: UnitTable, S, N: NoiseSource>(
        &self,
        units: &Units<T>,
        state: &Sensitive<S>,
        f: impl Fn(T::Unit<'_>, usize, &S, &mut Term),
        permit: StepPermit,
        noise: &N,
    ) -> Result<Released<LatticeVector>, ReleaseError> {
        if *permit.event() != self.event() {
            return Err(ReleaseError::PermitMismatch);
        }
        self.noised_sum(units, state, f, &permit, MAX_UNITS, noise, &mut ()).map(Released)
    }

    /// [`LatticeSum::release_sum_with`] that also gives the clipped terms, exactly those that were summed; `f` runs once a unit.
    ///
    /// # Privacy
    /// The terms stay behind the gate and have no noise in them. As the pending change of a private state (ρ times them) they are
    /// `private-clean`.
    ///
    /// # Errors
    /// As [`LatticeSum::release_sum`].
    pub fn release_sum_keeping<T: UnitTable, S, N: NoiseSource>(
        &self,
        units: &Units<T>,
        state: &Sensitive<S>,
        f: impl Fn(T::Unit<'_>, usize, &S, &mut Term),
        permit: StepPermit,
        noise: &N,
    ) -> Result<(Released<LatticeVector>, Sensitive<CleanTerms>), ReleaseError> {
        if *permit.event() != self.event() {
            return Err(ReleaseError::PermitMismatch);
        }
        let mut kept = self.no_terms();
        let sum = self.noised_sum(units, state, f, &permit, MAX_UNITS, noise, &mut kept)?;
        Ok((Released(sum), Sensitive(kept)))
    }

    /// An empty list of terms of this sum.
    pub(super) fn no_terms(&self) -> CleanTerms {
        CleanTerms::new(self.dimension, self.lattice.exponent)
    }

    /// The sum and its noise, not yet released: the caller has checked the permit and says what the result is.
    #[allow(clippy::too_many_arguments, reason = "the one loop behind every release of a sum")]
    pub(super) fn noised_sum<T: UnitTable, S, N: NoiseSource>(
        &self,
        units: &Units<T>,
        state: &Sensitive<S>,
        f: impl Fn(T::Unit<'_>, usize, &S, &mut Term),
        permit: &StepPermit,
        most_units: u64,
        noise: &N,
        keep: &mut impl Keep,
    ) -> Result<LatticeVector, ReleaseError> {
        let table = &units.0;
        table.grouping().fits(self.terms, permit.scope().unit(), permit.scope().relation())?;
        if table.len() as u64 > most_units.min(MAX_UNITS) {
            return Err(ReleaseError::TooManyUnits);
        }
        let mut sums = vec![0i64; self.dimension as usize];
        self.sampler.fill(&mut noise.stream(permit.release(), permit.step(), Purpose::Noise)?, &mut sums)?;
        #[cfg(feature = "planted-bugs")]
        crate::planted::spoil(&mut sums);
        #[cfg(feature = "planted-bugs")]
        let drawn = sums.clone();
        let (clip, per_step, bound) = (self.clip.get(), self.lattice.per_step(), self.lattice.bound_squared);
        let mut term = Term::default();
        #[cfg(feature = "planted-bugs")]
        let clip = crate::planted::clip(clip, || {
            let mut norm = |position| {
                term.clear();
                f(table.unit(position), position, &state.0, &mut term);
                term.norm()
            };
            (0..table.len()).map(&mut norm).collect()
        });
        let mut add = |position| {
            term.clear();
            f(table.unit(position), position, &state.0, &mut term);
            let factor = term.add_to(&mut sums, clip, per_step, bound);
            keep.keep(position, &term, factor);
        };
        match self.sampling {
            None => (0..table.len()).for_each(add),
            Some(rate) => {
                let mut stream = noise.stream(permit.release(), permit.step(), Purpose::Coins)?;
                let coins = Coins::new(rate);
                #[cfg(feature = "planted-bugs")]
                let coins = crate::planted::Faulty::new(coins, rate, permit);
                coins.toss(&mut stream, table.len(), &mut add);
            }
        }
        keep.end(table.len());
        #[cfg(feature = "planted-bugs")]
        keep.take_in(&drawn);
        Ok(LatticeVector { exponent: self.lattice.exponent, values: sums })
    }

    /// s.
    pub(super) fn scale(&self) -> u64 {
        self.lattice.scale
    }

    /// ⌊(C/γ)²⌋.
    pub(super) fn bound_squared(&self) -> u128 {
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
        match self.sampling {
            Some(rate) => DpEvent::PoissonSampled { rate, event: Box::new(event) },
            None => event,
        }
    }
}
