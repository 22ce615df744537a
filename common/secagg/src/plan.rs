//! The planner: which parameters fit together, before anyone signs anything.
//!
//! With M sites of at most N terms of norm C, h honest survivors for whom the noise is sized and c colluders:
//! * lattice γ = 2^k, C_int = ⌊C/γ⌋, a share's noise s = ⌈zC/(γ√h)⌉ (the gate's own integers, `ShareSum`);
//! * no sum wraps, by construction: M·N·C_int + 64M(s+1) < 2^{b−1} for a ring of b bits (the sampler stops beyond 64(s+1));
//! * rounding: each term loses less than γ a coordinate, all in the same direction at worst: loss = M·N·γ/(sγ√h), the worst
//!   coherent bias over the noise's standard deviation;
//! * s ≥ 2¹⁰, where a sum of discrete Gaussians is one for every purpose ([`crate::account::log10_tau_upper`]);
//! * h = min(M − f − c, cap), U_min = h + c: no matter which sites are missing, h honest shares are in every sum. The cap (20 unless the charter
//!   raises it) is on trust: if all others are known, the loss is √h times larger in μ.

use dp_pvi_accounting::{ClipNorm, NoiseMultiplier, SamplingRate, Terms};
use dp_pvi_privacy::mechanism::ShareSum;

/// Bits of the ring that this crate's messages use.
pub(crate) const RING_BITS: u32 = 64;
/// h is at most this unless the charter says otherwise.
pub(crate) const DEFAULT_HONEST_CAP: u32 = 20;
/// Fewest sites for which aggregation hides anything from a participant.
pub const FEWEST: u32 = 3;

/// What is asked for.
#[derive(Debug, Clone, PartialEq)]
pub struct PlanRequest {
    /// M: sites in the charter.
    pub members: u32,
    /// f: sites that may be missing from a round.
    pub dropouts: u32,
    /// c: sites that may collude with the server and subtract their own shares.
    pub colluders: u32,
    /// Cap on h.
    pub honest_cap: u32,
    /// d: coordinates.
    pub dimension: u32,
    /// C: norm of one term.
    pub clip: ClipNorm,
    /// z of the sum of h shares.
    pub noise: NoiseMultiplier,
    /// N: most terms of one site.
    pub max_units: u64,
    /// Poisson rate of the units.
    pub sampling: Option<SamplingRate>,
    /// What the terms are.
    pub terms: Terms,
    /// Largest worst-case rounding bias over noise.
    pub max_rounding_loss: f64,
}

/// Parameters that are refused. All are configuration.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum PlanError {
    /// M < 3.
    #[error("aggregation buys nothing with {members} sites: each could subtract its own vector and see the other's; use local trust")]
    BuysNothing {
        /// M.
        members: u32,
    },
    /// h < 2.
    #[error(
        "only {honest} honest site is left after dropouts and colluders: its share would be the whole noise, and aggregation buys nothing; ask for fewer of either, or use local trust"
    )]
    NoHonest {
        /// M − f − c.
        honest: u32,
    },
    /// The gate's lattice refuses.
    #[error("the lattice refuses these parameters: {0}")]
    Lattice(&'static str),
    /// A sum could wrap.
    #[error("sums of {members} sites could leave a ring of {bits} bits: fewer units a site, more noise, or a wider ring")]
    Overflow {
        /// M.
        members: u32,
        /// b.
        bits: u32,
    },
    /// The lattice of a narrow ring is too coarse for exact accounting.
    #[error("a share's noise is {scale} lattice steps in a ring of {bits} bits, below 1024: use a wider ring")]
    Coarse {
        /// s.
        scale: u64,
        /// b.
        bits: u32,
    },
    /// Rounding is too large against the noise.
    #[error(
        "rounding could cost {loss:.2e} of the noise's standard deviation, more than the {bound:.2e} allowed: fewer units a site, or allow more"
    )]
    Rounding {
        /// Worst case.
        loss: f64,
        /// Allowed.
        bound: f64,
    },
}

/// Figures of a plan.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Figures {
    /// k: the lattice constant is 2^k.
    pub exponent: i32,
    /// s of one share.
    pub scale: u64,
    /// C_int.
    pub clip_steps: u64,
    /// M·N·C_int + 64M(s+1): no sum is larger.
    pub worst_sum: u128,
    /// Worst coherent rounding bias of a coordinate over the standard deviation of h shares.
    pub rounding_loss: f64,
}

/// Parameters that fit.
#[derive(Debug, Clone, PartialEq)]
pub struct Plan {
    /// The mechanism of every site.
    pub mechanism: ShareSum,
    /// h.
    pub honest: u32,
    /// U_min = h + c.
    pub min_contributors: u32,
    /// Figures in the ring of 64 bits.
    pub figures: Figures,
    /// √(M/h): standard deviation of the noise with all sites present, over the required one.
    pub excess_noise: f64,
}

impl PlanRequest {
    /// Checks everything; the charter is built from the answer.
    ///
    /// # Errors
    /// See [`PlanError`].
    pub fn plan(&self) -> Result<Plan, PlanError> {
        let honest = self.honest()?;
        let mechanism = self.mechanism(honest)?;
        let figures = Figures {
            exponent: mechanism.exponent(),
            scale: mechanism.scale(),
            clip_steps: mechanism.clip_steps(),
            worst_sum: worst_sum(self.members, self.max_units, mechanism.clip_steps(), mechanism.scale()),
            rounding_loss: self.rounding_loss(honest, mechanism.scale()),
        };
        if !fits(figures.worst_sum, RING_BITS) {
            return Err(PlanError::Overflow { members: self.members, bits: RING_BITS });
        }
        self.check_rounding(&figures)?;
        let excess_noise = (f64::from(self.members) / f64::from(honest)).sqrt();
        Ok(Plan { mechanism, honest, min_contributors: honest + self.colluders, figures, excess_noise })
    }

    /// Figures for a ring of `bits` bits, with the finest lattice that it holds; for comparison, since messages are 64 bits wide.
    ///
    /// # Errors
    /// See [`PlanError`].
    pub fn figures(&self, bits: u32) -> Result<Figures, PlanError> {
        let honest = self.honest()?;
        let mechanism = self.mechanism(honest)?;
        // Each step coarser halves the integers.
        for coarser in 0..63 {
            let scale = mechanism.scale().div_ceil(1 << coarser);
            let clip_steps = mechanism.clip_steps() >> coarser;
            let worst_sum = worst_sum(self.members, self.max_units, clip_steps, scale);
            if scale < ShareSum::SMALLEST_SCALE {
                return Err(PlanError::Coarse { scale, bits });
            }
            if fits(worst_sum, bits) {
                let exponent = mechanism.exponent() + coarser;
                let figures = Figures { exponent, scale, clip_steps, worst_sum, rounding_loss: self.rounding_loss(honest, scale) };
                return self.check_rounding(&figures).map(|()| figures);
            }
        }
        Err(PlanError::Overflow { members: self.members, bits })
    }

    /// h = min(M − f − c, cap).
    fn honest(&self) -> Result<u32, PlanError> {
        if self.members < FEWEST {
            return Err(PlanError::BuysNothing { members: self.members });
        }
        let honest = u64::from(self.members).saturating_sub(u64::from(self.dropouts) + u64::from(self.colluders));
        // At most M, which fits.
        let honest = u32::try_from(honest).unwrap_or(0).min(self.honest_cap);
        if honest < 2 { Err(PlanError::NoHonest { honest }) } else { Ok(honest) }
    }

    fn mechanism(&self, honest: u32) -> Result<ShareSum, PlanError> {
        ShareSum::new(self.dimension, self.clip, self.noise, honest, self.max_units, self.sampling, self.terms)
            .map_err(|error| PlanError::Lattice(error.0))
    }

    fn rounding_loss(&self, honest: u32, scale: u64) -> f64 {
        f64::from(self.members) * self.max_units as f64 / (scale as f64 * f64::from(honest).sqrt())
    }

    fn check_rounding(&self, figures: &Figures) -> Result<(), PlanError> {
        // A bound that is not a number refuses everything.
        if figures.rounding_loss <= self.max_rounding_loss {
            Ok(())
        } else {
            Err(PlanError::Rounding { loss: figures.rounding_loss, bound: self.max_rounding_loss })
        }
    }
}

/// M·N·C_int + 64M(s+1), saturating.
#[must_use]
pub fn worst_sum(members: u32, max_units: u64, clip_steps: u64, scale: u64) -> u128 {
    let signal = u128::from(max_units).saturating_mul(clip_steps.into());
    let noise = 64 * (u128::from(scale) + 1);
    signal.saturating_add(noise).saturating_mul(members.into())
}

/// Whether sums of absolute value at most `worst` stay below 2^{bits−1}.
#[must_use]
pub fn fits(worst: u128, bits: u32) -> bool {
    (1..=128).contains(&bits) && worst < 1 << (bits - 1)
}
