//! Perturbed expected sufficient statistics (`update = "vips"`): one noised sum a visit, and the server's M-step is post-processing.
//!
//! The E-step of a record begins where no data decides and takes a fixed number of sweeps, so that the sum is a function of records and public
//! state. All blocks of a visit are one vector, each divided by a public scale: one Gaussian release pays for all of them.
//!
//! * **Logistic regression** (Pólya–Gamma): Σ x(y − ½ − E ω xᵀμ) and Σ E ω svec(xxᵀ), about the posterior's mean μ or about 0.
//! * **Topic models**: the counts of words by topic; the first visit also asks for the counts of words, which no topic can change.
//! * **Sigmoid belief networks**: six sums over images.
//! * **Linear regression with unknown noise**: Σ xy, svec Σ xxᵀ and Σ y², once.
//!
//! **Assumes** a model with expected sufficient statistics. **Sensitivity**: the joint norm of the scaled blocks, C (add-remove) or 2C (replace-one).
//! Documents and images are clipped far below their worst case; where C is learned, each unit also reports whether it was within C, in the same
//! vector and under the same noise. **Defaults** stand with each statistic's options; figures: `deploy/guide/src/results/defaults.md`.
//!
//! **When**: topics and images; logistic regression with few visits, where hyperparameters shall be learned.
//!
//! **Source**: Park et al. 2020 (variational Bayes in private settings), with fixed-size batches, the start of the E-step and the counting of joint
//! releases mended; Polson, Scott and Windle 2013 (Pólya–Gamma).

mod rule;
mod task;

pub use rule::VipsRule;
use task::resolve;
pub use task::{Clip, Counts, DocumentsSpec, Expansion, ImagesSpec, Intervals, LinearNoiseSpec, PolyaGammaSpec, StatisticsSpec, VipsSpec};

use crate::methods::{MethodEntry, UpdateKind};
use dp_pvi_math::damping::Damping;

/// The registry's line.
pub(crate) const ENTRY: MethodEntry = MethodEntry {
    kind: UpdateKind::Vips,
    name: "vips",
    help: "noised sums of expected sufficient statistics: topics, images, hyperparameters",
    resolve,
    damping: |_| Damping::Constant(1.0),
};
