//! Statistics of a sigmoid belief network: numbers, defaults and sums.
//!
//! Block b of a term is divided by a_b = Δ_b/√f_b with Δ_b the worst-case norm of the statistic and f_b its share, Σ f = 1: an image's
//! joint norm is then at most 1, and C is a share of the worst case. The noise on a coordinate of block b is zC·Δ_b/√f_b.
//!
//! Under local trust terms are summed batch by batch ([`BatchSum`]); under aggregation a site adds its share of the noise to a sum of
//! single terms, which is exact and far slower.

use dp_pvi_accounting::{ClipNorm, SamplingRate, Terms};
use dp_pvi_privacy::mechanism::BatchSum;
use serde::{Deserialize, Serialize};

use super::{Clip, INDICATOR_WEIGHT, Raw, VipsSpec};
use crate::methods::Resolving;
use crate::methods::Setting;
use dp_pvi_models::StatisticsForm;
use dp_pvi_models::sigmoid_belief::shrinkage::Shrinkage;
use dp_pvi_models::sigmoid_belief::{BLOCKS, Shape};
use dp_pvi_models::spec::check::checked;
use dp_pvi_models::spec::check::{invalid, require, requires_clip_norms};
use dp_pvi_models::spec::{Approximation, TaskError, Trust};

/// Statistics of a sigmoid belief network.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ImagesSpec {
    /// n: public number of images of all sites.
    pub images: f64,
    /// f: shares of the six statistics, which sum to 1.
    pub shares: [f64; BLOCKS],
    /// C of the first visit (of all visits, where it is not learned), as a share of the worst-case norm.
    pub clip_norm: ClipNorm,
    /// How C moves.
    pub clip: Clip,
    /// Poisson rate of the images.
    pub sampling_rate: SamplingRate,
    /// Sweeps of every image's E-step.
    pub sweeps: u32,
    /// B: public bound on the images of a site; absent under aggregation, whose section has its own.
    pub max_units: Option<u64>,
}

/// Default of B: rounding a sum of so many terms costs less than rounding it to the lattice.
const MAX_UNITS: u64 = 100_000;

impl Raw {
    pub(crate) fn images(&self, resolving: &Resolving<'_>) -> Result<ImagesSpec, TaskError> {
        self.takes(
            "sigmoid-belief",
            resolving,
            &["clip_norm", "clip_target", "clip_rate", "sampling_rate", "e_step_sweeps", "images", "block_shares", "max_units"],
        )?;
        let Some(images) = self.images else {
            return invalid("update = \"vips\" with sigmoid-belief needs images, the public number of images of all sites");
        };
        let norm = resolving.clip_norm(self.clip_norm)?;
        // A norm that is given, and nothing else, is meant.
        let clip = if norm.is_some() && self.clip_target.is_none() && self.clip_rate.is_none() {
            Clip::Fixed {}
        } else {
            Clip::Learned {
                units: images,
                target: self.clip_target.unwrap_or(dp_pvi_privacy::clipping::adaptive::TARGET),
                rate: self.clip_rate.unwrap_or(dp_pvi_privacy::clipping::adaptive::RATE),
                weight: INDICATOR_WEIGHT,
            }
        };
        let local = resolving.task.privacy.trust == Trust::Local;
        Ok(ImagesSpec {
            images,
            shares: self.block_shares.unwrap_or([1.0 / 6.0; BLOCKS]),
            clip_norm: checked(ClipNorm::new(norm.unwrap_or(0.5)))?,
            clip,
            sampling_rate: checked(SamplingRate::nearest(self.sampling_rate.unwrap_or(1.0)))?,
            sweeps: self.e_step_sweeps.unwrap_or(10),
            max_units: if local { Some(self.max_units.unwrap_or(MAX_UNITS)) } else { self.max_units },
        })
    }
}

impl ImagesSpec {
    /// a: what the blocks are divided by.
    #[must_use]
    pub fn scales(&self, shape: &Shape) -> [f64; BLOCKS] {
        let mut scales = shape.sensitivities();
        scales.iter_mut().zip(self.shares).for_each(|(scale, share)| *scale /= share.sqrt());
        scales
    }

    /// Whether a run's state carries sums from visit to visit: where the damping never forgets all of them.
    #[must_use]
    pub(crate) fn keeps_sums(&self, task: &Setting<'_>) -> bool {
        task.damping.iter().skip(1).any(|rho| *rho < 1.0)
    }

    /// Numbers of the state behind λ: shrinkage, running sums, a variance and C.
    pub(super) fn state_len(&self, task: &Setting<'_>, shape: &Shape) -> u64 {
        let sums = if self.keeps_sums(task) { shape.coordinates() } else { 0 };
        (Shrinkage::state_length(shape.visible(), shape.hidden()) + sums + 2) as u64
    }

    pub(crate) fn check(&self, task: &Setting<'_>) -> Result<(), TaskError> {
        require(
            task.approximation == Approximation::MeanField,
            "weights and biases are independent of each other: approximation = \"mean-field\" is the only one for sigmoid-belief",
        )?;
        require(self.images >= 1.0 && self.images.is_finite(), "images must be a finite number of at least 1")?;
        let total: f64 = self.shares.iter().sum();
        require(
            self.shares.iter().all(|share| *share >= 1e-12) && (total - 1.0).abs() < 1e-9,
            "block_shares must be six numbers of at least 1e-12 that sum to 1",
        )?;
        require((1..=10_000).contains(&self.sweeps), "e_step_sweeps must lie between 1 and 10000")?;
        requires_clip_norms([&self.clip_norm])?;
        require(self.clip_norm.get() <= 1.0, "clip_norm is above 1, the norm that no image exceeds")?;
        self.clip.check()?;
        require(
            self.max_units.is_some() == (task.privacy.trust == Trust::Local),
            "max_units of [pvi] belongs to trust = \"local\"; under aggregation [aggregation] has it",
        )
    }
}

impl VipsSpec {
    /// The mechanism of a visit that sums batch by batch, if it does.
    ///
    /// # Errors
    /// Numbers that do not fit the lattice.
    pub fn batches(&self, task: &Setting<'_>, visit: u32) -> Result<Option<BatchSum>, TaskError> {
        let (super::StatisticsSpec::Images(ImagesSpec { max_units: Some(max_units), .. }), Some(StatisticsForm::Images(_))) =
            (self.statistics, task.model.rules().statistics())
        else {
            return Ok(None);
        };
        let super::SumSpec { coordinates, clip, noise, sampling, terms } = self.sum_of(task, visit, &self.shares(visit, task.visits()))?;
        debug_assert_eq!(terms, Terms::Units);
        Ok(Some(BatchSum::new(coordinates, clip, noise, sampling, terms, max_units)?))
    }
}
