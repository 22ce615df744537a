//! What a model that sums records by itself offers to updates.

use crate::latent_dirichlet::LatentDirichletSpec;
use crate::sigmoid_belief::SigmoidBeliefSpec;

/// What a model that sums records by itself offers to updates.
#[derive(Debug, Clone, PartialEq)]
pub enum Own {
    /// Gradients, summed batch by batch.
    Gradients {
        /// Default of log σ at which the first fit starts.
        initial_log_scale: f64,
    },
    /// Tilted moments, for expectation propagation.
    Tilted(TiltedForm),
    /// Expected sufficient statistics.
    Statistics(StatisticsForm),
}

/// What the tilted moments of a record are over.
#[derive(Debug, Clone, PartialEq)]
pub enum TiltedForm {
    /// The parameters, through a linear predictor.
    Predictor,
    /// The means of a mixture.
    Mixture(MixtureForm),
    /// The weights of a network and the precision of its noise, which is the last parameter.
    Network {
        /// Units of every hidden layer.
        hidden: Vec<u32>,
        /// Public seed of the means at which inference starts.
        seed: u32,
    },
}

/// A mixture of Gaussians whose means are drawn at the start.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct MixtureForm {
    /// J.
    pub components: u32,
    /// Standard deviation around every mean, known or at the start.
    pub noise_sd: f64,
    /// Public seed of the means at which inference starts.
    pub seed: u32,
}

/// Expected sufficient statistics that a visit can ask for.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum StatisticsForm {
    /// Of a Bernoulli likelihood with a logit, by Pólya–Gamma variables.
    PolyaGamma,
    /// Words by topics.
    Documents(LatentDirichletSpec),
    /// Pixels and hidden units.
    Images(SigmoidBeliefSpec),
    /// Of a linear model whose noise is learned.
    LinearNoise {
        /// Standard deviation of an observation that the prior of the noise has as its mean.
        noise_sd: f64,
    },
}
