//! Mixture of Gaussians with known variance σ² and equal weights: x ~ (1/J) Σ_j N(μ_j, σ²I), unknown means.
//!
//! The site of a point lowers the precision of a component that may or may not have made it: **site precisions can be negative**, which is
//! correct, and nothing here projects them. A cavity that is not positive definite has no site: the visit is skipped.

use dp_pvi_math::expfam::any::{Family, Gaussian};
use dp_pvi_models::gaussian_mixture as public;
use dp_pvi_models::gaussian_mixture::{Components, Covariance, Density, MixtureShape, responsibilities};
use nalgebra::{Cholesky, DMatrix, DVector};

use crate::capabilities::Model;
use crate::capabilities::tilted::{MomentMatching, Scratch, Sites};
use crate::models::PrivateHalf;
use dp_pvi_records::RecordView;

/// Points around J unknown means with variance σ² in every direction.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct GaussianMixture {
    /// Layout of the approximation.
    pub shape: MixtureShape,
    /// σ².
    pub variance: f64,
}

impl MomentMatching for GaussianMixture {
    fn len(&self) -> usize {
        self.shape.len()
    }

    fn sites(&self) -> Box<dyn Sites> {
        Box::new(MixtureSites { model: *self, components: Vec::new(), density: None })
    }
}

/// The likelihood with its numbers, before its columns are known.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct MixtureModel {
    /// J.
    pub components: usize,
    /// σ.
    pub noise_sd: f64,
}

impl MixtureModel {
    fn mixture(&self, family: Family) -> GaussianMixture {
        GaussianMixture { shape: MixtureShape::of_family(self.components, family), variance: self.noise_sd * self.noise_sd }
    }
}

impl PrivateHalf for public::GaussianMixture {
    fn model(&self) -> Box<dyn Model> {
        Box::new(MixtureModel { components: self.components as usize, noise_sd: self.noise_sd })
    }
}

impl Model for MixtureModel {
    /// The bound that the best responsibilities give: ln (1/J) Σ_j exp E ln N(x; μ_j, σ²I) ≤ E ln p(x | μ).
    fn expected_log_likelihood(&self, record: RecordView<'_>, q: &Gaussian) -> f64 {
        let GaussianMixture { shape, variance } = self.mixture(*q.family());
        let (mean, spread) = (q.standard().mean(), q.standard().variances());
        let mut x = vec![0.0; shape.dimension];
        record.entries().for_each(|(j, value)| x[j] = value);
        let one = |j: usize| {
            let start = j * shape.dimension;
            let terms = x.iter().enumerate().map(|(i, x)| {
                let square = (x - mean[start + i]).powi(2) + spread[start + i];
                -0.5 * (square / variance + (std::f64::consts::TAU * variance).ln())
            });
            terms.sum::<f64>()
        };
        let mut logs: Vec<f64> = (0..shape.components).map(one).collect();
        #[allow(clippy::cast_precision_loss, reason = "a number of components is far below 2^52")]
        let count = shape.components as f64;
        responsibilities(&mut logs) - count.ln()
    }

    fn moment_matching(&self, family: Family) -> Option<Box<dyn MomentMatching>> {
        let mixture = self.mixture(family);
        Some(match mixture.shape.covariance {
            Covariance::Diagonal => Box::new(mixture),
            Covariance::Full => Box::new(JointMixture { mixture, len: family.len() }),
        })
    }
}

/// A mixture with full covariances as a block-diagonal Gaussian over the means of all components together.
#[derive(Debug, Clone, Copy, PartialEq)]
struct JointMixture {
    mixture: GaussianMixture,
    len: usize,
}

impl MomentMatching for JointMixture {
    fn len(&self) -> usize {
        self.len
    }

    fn sites(&self) -> Box<dyn Sites> {
        let Self { mixture, len } = *self;
        let blocks = MixtureSites { model: mixture, components: Vec::new(), density: None };
        Box::new(JointSites { blocks, positions: mixture.shape.positions(), len })
    }
}

/// Sites of [`JointMixture`].
#[derive(Debug, Clone)]
struct JointSites {
    blocks: MixtureSites,
    /// Of the blocks' numbers among all.
    positions: Vec<usize>,
    len: usize,
}

impl Sites for JointSites {
    fn move_to(&mut self, cavity: &[f64]) -> bool {
        if cavity.len() != self.len {
            return false;
        }
        let blocks: Vec<f64> = self.positions.iter().map(|&position| cavity[position]).collect();
        self.blocks.move_to(&blocks)
    }

    fn site(&self, record: RecordView<'_>, scratch: &mut Scratch, site: &mut [f64]) -> bool {
        let mut blocks = vec![0.0; self.positions.len()];
        if !self.blocks.site(record, scratch, &mut blocks) {
            return false;
        }
        self.positions.iter().zip(blocks).for_each(|(&position, value)| site[position] = value);
        true
    }
}

/// Sites of points at one cavity.
#[derive(Debug, Clone)]
pub struct MixtureSites {
    model: GaussianMixture,
    components: Vec<Component>,
    /// (1/J) Σ N(x; m_j, V_j + σ²I).
    density: Option<Density>,
}

/// A component of the cavity, and what it becomes if it made the point.
#[derive(Debug, Clone)]
struct Component {
    h: DVector<f64>,
    precision: DMatrix<f64>,
    mean: DVector<f64>,
    covariance: DMatrix<f64>,
    /// V⁺ = (Λ + I/σ²)⁻¹.
    conditional: DMatrix<f64>,
}

/// Moments of the tilted distribution of one point.
#[derive(Debug, Clone, PartialEq)]
pub struct TiltedMixture {
    /// ln Z = ln (1/J) Σ_j N(x; m_j, V_j + σ²I).
    pub log_normaliser: f64,
    /// r_j.
    pub responsibilities: Vec<f64>,
    /// m′_j and V′_j.
    pub components: Components,
}

impl MixtureSites {
    /// At a cavity; `None` if it is not a distribution.
    #[must_use]
    pub fn at(model: GaussianMixture, cavity: &[f64]) -> Option<Self> {
        let mut sites = Self { model, components: Vec::new(), density: None };
        sites.move_to(cavity).then_some(sites)
    }

    /// Moments of cavity × p(x | θ) / Z. With δ = m⁺ − m: m′ = m + rδ and V′ = rV⁺ + (1 − r)V + r(1 − r)δδᵀ, restricted to the layout.
    #[must_use]
    pub fn tilted(&self, x: &[f64]) -> Option<TiltedMixture> {
        let (log_normaliser, responsibilities) = self.density.as_ref()?.score(x);
        if !log_normaliser.is_finite() {
            return None;
        }
        let push = DVector::from_column_slice(x) / self.model.variance;
        let part = |(c, &r): (&Component, &f64)| {
            let shift = &c.conditional * (&c.h + &push) - &c.mean;
            let mut covariance = &c.conditional * r + &c.covariance * (1.0 - r);
            match self.model.shape.covariance {
                Covariance::Full => covariance.ger(r * (1.0 - r), &shift, &shift, 1.0),
                Covariance::Diagonal => (0..shift.len()).for_each(|i| covariance[(i, i)] += r * (1.0 - r) * shift[i] * shift[i]),
            }
            (&c.mean + shift * r, covariance)
        };
        let parts = self.components.iter().zip(&responsibilities).map(part).collect();
        Some(TiltedMixture { log_normaliser, responsibilities, components: Components { parts } })
    }
}

impl Sites for MixtureSites {
    fn move_to(&mut self, cavity: &[f64]) -> bool {
        let shape = self.model.shape;
        let Ok(components) = Components::from_natural(shape, cavity) else { return false };
        let Ok(density) = Density::predictive(&components, self.model.variance) else { return false };
        let part = |(j, (mean, covariance)): (usize, (DVector<f64>, DMatrix<f64>))| {
            let precision = shape.matrix(cavity, j);
            let with = &precision + DMatrix::from_diagonal_element(shape.dimension, shape.dimension, 1.0 / self.model.variance);
            let conditional = Cholesky::new(with)?.inverse();
            Some(Component { h: DVector::from_column_slice(shape.h(cavity, j)), precision, mean, covariance, conditional })
        };
        let Some(components) = components.parts.into_iter().enumerate().map(part).collect() else { return false };
        (self.components, self.density) = (components, Some(density));
        true
    }

    fn site(&self, record: RecordView<'_>, scratch: &mut Scratch, site: &mut [f64]) -> bool {
        let shape = self.model.shape;
        let x = &mut scratch.values;
        x.clear();
        x.resize(shape.dimension, 0.0);
        record.entries().for_each(|(j, value)| x[j] = value);
        let Some(tilted) = self.tilted(x) else { return false };
        // The new factor, component by component, before anything is written.
        let new = &mut scratch.more;
        new.clear();
        new.resize(shape.len(), 0.0);
        for (j, ((mean, covariance), cavity)) in tilted.components.parts.iter().zip(&self.components).enumerate() {
            let Some(factor) = Cholesky::new(covariance.clone()) else { return false };
            let h = factor.solve(mean) - &cavity.h;
            let precision = factor.inverse() - &cavity.precision;
            let (start, block) = (j * shape.dimension, shape.means() + j * shape.block());
            new[start..start + shape.dimension].copy_from_slice(h.as_slice());
            new[block..block + shape.block()].copy_from_slice(&shape.coordinates(&precision));
        }
        if !new.iter().all(|value| value.is_finite()) {
            return false;
        }
        site.copy_from_slice(new);
        true
    }
}
