//! Statistics of logistic regression (Pólya–Gamma): numbers, defaults and scales.
//!
//! The M-step solves (Λ0 + S2) θ = h0 + s1 with s1 = Σ x(y−½) and S2 = Σ E ω xxᵀ, so noise N on S2 puts the error Nθ on s1: at ε = 1 about
//! ten times the noise that s1 itself has. Written about the mean μ of the posterior that everyone knows, the same equation is
//! (Λ0 + S2)(θ − μ) = h0 − Λ0 μ + Σ x(y − ½ − E ω xᵀμ), and N meets θ − μ, which shrinks from visit to visit. Each visit releases the sum on
//! the right beside S2; a run without noise has the same iterates and the same fixed point.
//!
//! The sum on the right does change with the posterior, so the budget of all its releases is spent visit by visit. Its terms have |y − ½ −
//! E ω xᵀμ| ≤ ½ + ½ tanh(c/2) < 1, most of them far less: they are clipped together with those of S2 at C.
//!
//! How the defaults were chosen: `deploy/guide/src/results/defaults.md`.

use dp_pvi_accounting::ClipNorm;
use serde::{Deserialize, Serialize};

use super::{Intervals, LARGEST_MATRIX, Raw};
use crate::methods::Resolving;
use crate::methods::Setting;
use dp_pvi_math::polya_gamma::{Relevance, sensitivities};
use dp_pvi_models::spec::check::checked;
use dp_pvi_models::spec::check::{invalid, positive, require};
use dp_pvi_models::spec::{Approximation, TaskError};

/// Statistics of logistic regression.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PolyaGammaSpec {
    /// Where the statistics are taken.
    pub expansion: Expansion,
    /// κ: eigenvalues of Σ E ω xxᵀ below κ s√(d/2), s the noise of a coordinate, are raised to it.
    pub eigenvalue_floor: f64,
    /// Prior of the common precision of all coefficients, where it is learned; otherwise the task's prior scale is it.
    pub relevance: Option<Relevance>,
    /// What the last visit's posterior says about the noise.
    pub intervals: Intervals,
}

/// The point about which the statistics of logistic regression are taken.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case", deny_unknown_fields)]
pub enum Expansion {
    /// The posterior's mean μ: every visit releases Σ x(y − ½ − E ω xᵀμ) and Σ E ω svec(xxᵀ).
    Centred {
        /// C of a record's [x(y − ½ − E ω xᵀμ) ; w E ω svec(xxᵀ)].
        clip_norm: ClipNorm,
        /// w.
        curvature_weight: f64,
    },
    /// 0: Σ x(y−½) is released once, at the first visit, and Σ E ω svec(xxᵀ) at every one. Nothing is clipped.
    Origin {
        /// Share of the budget of Σ x(y−½).
        first_share: f64,
    },
}

/// Names of [`Expansion`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum ExpansionName {
    Centred,
    Origin,
}

/// Default of C over R: the norm of a record's first block is rarely more.
const CLIP_SHARE: f64 = 0.7;

impl Raw {
    pub(crate) fn polya_gamma(&self, resolving: &Resolving<'_>) -> Result<PolyaGammaSpec, TaskError> {
        let relevance = match (self.relevance_shape, self.relevance_rate) {
            (None, None) => None,
            (Some(shape), Some(rate)) => Some(Relevance { shape, rate }),
            _ => return invalid("relevance_shape and relevance_rate belong together: give both, or neither"),
        };
        let takes = |expansion: &str, own: &[&str]| {
            let all = ["expansion", "eigenvalue_floor", "relevance_shape", "relevance_rate", "intervals"];
            self.takes(&format!("logistic-regression and expansion = \"{expansion}\""), resolving, &[&all[..], own].concat())
        };
        let (expansion, floor) = match self.expansion.unwrap_or(ExpansionName::Centred) {
            ExpansionName::Centred => {
                takes("centred", &["clip_norm", "curvature_weight"])?;
                let radius = resolving.task.feature_bound;
                let clip_norm = checked(ClipNorm::new(resolving.clip_norm(self.clip_norm)?.unwrap_or(CLIP_SHARE * radius)))?;
                // Where nothing is known, E ω = ¼ and a residual is ½: w makes the longest row's whole term as long as R.
                let curvature_weight = self.curvature_weight.unwrap_or(12_f64.sqrt() / radius);
                (Expansion::Centred { clip_norm, curvature_weight }, 1.0)
            }
            ExpansionName::Origin => {
                takes("origin", &["first_share"])?;
                (Expansion::Origin { first_share: self.first_share.unwrap_or(0.5) }, 0.5)
            }
        };
        Ok(PolyaGammaSpec {
            expansion,
            eigenvalue_floor: self.eigenvalue_floor.unwrap_or(floor),
            relevance,
            intervals: self.intervals.unwrap_or(Intervals::NoiseAware),
        })
    }
}

impl PolyaGammaSpec {
    /// Whether the statistics are taken about the posterior's mean.
    #[must_use]
    pub fn is_centred(&self) -> bool {
        matches!(self.expansion, Expansion::Centred { .. })
    }

    /// Share of a visit over that of the one before, where the task does not say.
    pub(crate) fn default_growth(&self) -> f64 {
        if self.is_centred() { 1.5 } else { 1.0 }
    }

    /// What the blocks of a visit with these shares of the budget are divided by.
    pub(crate) fn scales(&self, task: &Setting<'_>, shares: &[f64]) -> Vec<f64> {
        match self.expansion {
            Expansion::Centred { clip_norm, curvature_weight } => {
                let scale = clip_norm.get() / shares.iter().sum::<f64>().sqrt();
                vec![scale, scale / curvature_weight]
            }
            Expansion::Origin { .. } => {
                let bounds = sensitivities(task.feature_bound);
                // The last blocks are what a later visit has.
                shares.iter().zip(&bounds[bounds.len() - shares.len()..]).map(|(share, bound)| bound / share.sqrt()).collect()
            }
        }
    }

    pub(crate) fn released(&self) -> &'static str {
        match self.expansion {
            Expansion::Centred { .. } => {
                "at every visit one noised sum over the records, of features times what the model missed of the class, and of products of \
                 features weighted by how well the model knows the class"
            }
            Expansion::Origin { .. } => {
                "at every visit one noised sum over the records, of products of features weighted by how well the model knows the class \
                 (at the first visit also of features times class)"
            }
        }
    }

    /// What a summary says beside the name.
    pub(crate) fn words(&self) -> &'static str {
        match self.expansion {
            Expansion::Centred { .. } => "",
            Expansion::Origin { .. } => " about 0",
        }
    }

    pub(crate) fn check(&self, task: &Setting<'_>) -> Result<(), TaskError> {
        require(
            task.approximation == Approximation::FullCovariance,
            "update = \"vips\" with logistic-regression keeps a whole covariance: use approximation = \"full-covariance\"",
        )?;
        require(task.dimension <= LARGEST_MATRIX, "more than 2048 coefficients are too many for a covariance")?;
        match self.expansion {
            Expansion::Centred { curvature_weight, .. } => {
                require(positive(curvature_weight), "curvature_weight must be a number between 1e-30 and 1e30")?;
            }
            Expansion::Origin { first_share } => {
                require(first_share > 0.0 && first_share < 1.0, "first_share must lie strictly between 0 and 1")?;
            }
        }
        require(self.eigenvalue_floor >= 0.0 && self.eigenvalue_floor.is_finite(), "eigenvalue_floor must be finite and not negative")?;
        let relevance = self.relevance.is_none_or(|r| positive(r.shape) && positive(r.rate));
        require(relevance, "relevance_shape and relevance_rate must be finite numbers above 0")
    }
}
