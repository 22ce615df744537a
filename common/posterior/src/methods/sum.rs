//! A visit's noised sum, and what a site sends that releases it.

use dp_pvi_accounting::{ClipNorm, LatticePath, NoiseMultiplier, SamplingRate, Terms};
use dp_pvi_names::PayloadKind;
use dp_pvi_privacy::mechanism::{LatticeSum, ShareSum, SumMechanism};

use super::{MessageForm, Setting};
use dp_pvi_models::spec::{AggregationSpec, TaskError};

/// A visit's sum of clipped terms, before it is decided who adds the noise.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct SumSpec {
    /// Number of coordinates.
    pub coordinates: u32,
    /// C: norm of one term.
    pub clip: ClipNorm,
    /// z of the sum that the server sees.
    pub noise: NoiseMultiplier,
    /// Poisson rate of the units.
    pub sampling: Option<SamplingRate>,
    /// What the terms are.
    pub terms: Terms,
}

impl SumSpec {
    /// The mechanism under the task's trust model.
    ///
    /// # Errors
    /// Numbers that do not fit the lattice.
    pub fn mechanism(&self, task: &Setting<'_>) -> Result<SumMechanism, TaskError> {
        let Self { coordinates, clip, noise, sampling, terms } = *self;
        Ok(match task.aggregation {
            None => SumMechanism::Local(LatticeSum::new(coordinates, clip, noise, sampling, terms, LatticePath::Term)?),
            Some(AggregationSpec { honest, max_units, .. }) => {
                SumMechanism::Shared(ShareSum::new(coordinates, clip, noise, honest, max_units, sampling, terms)?)
            }
        })
    }
}

impl MessageForm {
    /// What a site sends that releases such a sum.
    #[must_use]
    pub(crate) fn of_sum(mechanism: &SumMechanism) -> Self {
        let exponent = mechanism.exponent();
        let kind = match mechanism {
            SumMechanism::Local(_) => PayloadKind::Lattice { exponent },
            SumMechanism::Shared(_) => PayloadKind::Masked { exponent },
        };
        Self { kind, coordinates: mechanism.dimension().into() }
    }
}
