//! Sigmoid belief network with one hidden layer, public side: parameters, M-step and shrinkage; [`hidden`] is
//! the E-step, which sites apply to their records and an evaluator to public ones.
//!
//! P(h_k = 1) = σ(b_k), P(v_j = 1 | h) = σ(w_jᵀh + c_j). With a Pólya–Gamma variable for every visible unit (argument w_jᵀπ + c_j) and for
//! every hidden prior (argument b_k), the posterior of w_j is Gaussian given six sums over records.
//!
//! **Assumes** a schema of binary images. **Defaults**: biases have standard deviation 10 under the prior; weights begin at draws of scale 0.1.
//! **When**: structure in binary vectors, with `update = "vips"`. **Source**: Gan et al. 2015; Park et al. 2020 (with protection).

pub mod hidden;
pub mod shrinkage;
mod task;

#[cfg(test)]
mod tests;

pub use task::SigmoidBeliefSpec;

use dp_pvi_math::expfam::gaussian::full::{triangle, unsvec};
use nalgebra::{Cholesky, DMatrix, DVector};

use dp_pvi_math::polya_gamma;
use shrinkage::Shrinkage;

/// Numbers that are no network.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum NetworkError {
    /// J or K, or the number of statistics.
    #[error("a network needs at least one visible and one hidden unit, and fewer than 2^32 statistics")]
    Size,
    /// A parameter.
    #[error("the network's parameters must be finite, with positive variances, for every pair of units")]
    Parameters,
    /// Released statistics from which no network follows.
    #[error("the released statistics give no positive definite precision: raise the noise floor")]
    Statistics,
}

/// J visible and K hidden units, and where each statistic is in a released vector.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shape {
    visible: usize,
    hidden: usize,
}

/// The six statistics of a record: v, π, vπᵀ, ω, ωπᵀ, and ω_j E hhᵀ in svec form for every visible unit. E ξ depends on b only and is
/// not released.
pub const BLOCKS: usize = 6;

impl Shape {
    /// J visible, K hidden units.
    ///
    /// # Errors
    /// A size of 0, or too many statistics for one vector.
    pub fn new(visible: u32, hidden: u32) -> Result<Self, NetworkError> {
        let statistics = u64::from(hidden) * u64::from(hidden.saturating_add(1)) / 2 + 2 * u64::from(hidden) + 2;
        let fits = statistics.checked_mul(u64::from(visible)).is_some_and(|n| n + u64::from(hidden) < 1 << 32);
        if visible == 0 || hidden == 0 || !fits {
            return Err(NetworkError::Size);
        }
        Ok(Self { visible: visible as usize, hidden: hidden as usize })
    }

    /// J.
    #[must_use]
    pub fn visible(&self) -> usize {
        self.visible
    }

    /// K.
    #[must_use]
    pub fn hidden(&self) -> usize {
        self.hidden
    }

    /// Lengths of the six statistics, in order. Pairs are stored visible unit by visible unit.
    #[must_use]
    pub fn block_lengths(&self) -> [usize; BLOCKS] {
        let (j, k) = (self.visible, self.hidden);
        [j, k, j * k, j, j * k, j * triangle(k)]
    }

    /// Number of coordinates of all statistics.
    #[must_use]
    pub fn coordinates(&self) -> usize {
        self.block_lengths().iter().sum()
    }

    /// Worst-case norms of the six statistics of one record: √J, √K, √(JK), √J/4, √(JK)/4, √J K/4.
    #[must_use]
    pub fn sensitivities(&self) -> [f64; BLOCKS] {
        #[allow(clippy::cast_precision_loss, reason = "numbers of units")]
        let (j, k) = (self.visible as f64, self.hidden as f64);
        [j.sqrt(), k.sqrt(), (j * k).sqrt(), 0.25 * j.sqrt(), 0.25 * (j * k).sqrt(), 0.25 * j.sqrt() * k]
    }
}

/// Parameters under q: what an E-step needs.
#[derive(Debug, Clone, PartialEq)]
pub struct Network {
    shape: Shape,
    /// E W (visible × hidden).
    weights: DMatrix<f64>,
    /// Variances of W.
    variances: DMatrix<f64>,
    /// Means of c.
    visible_bias: DVector<f64>,
    /// Means of b.
    hidden_bias: DVector<f64>,
    /// Variances of c, then of b: no E-step needs them, a posterior is not one without.
    bias_variances: Vec<f64>,
}

impl Network {
    /// From means and variances of the weights (visible × hidden) and means of the biases.
    ///
    /// # Errors
    /// Other shapes, a number that is not finite, a variance that is not positive.
    pub fn new(
        shape: Shape,
        weights: DMatrix<f64>,
        variances: DMatrix<f64>,
        visible_bias: DVector<f64>,
        hidden_bias: DVector<f64>,
    ) -> Result<Self, NetworkError> {
        let pairs = (shape.visible, shape.hidden);
        let fits = weights.shape() == pairs
            && variances.shape() == pairs
            && visible_bias.len() == shape.visible
            && hidden_bias.len() == shape.hidden;
        let finite = weights.iter().chain(&variances).chain(&visible_bias).chain(&hidden_bias).all(|p| p.is_finite());
        if !(fits && finite && variances.iter().all(|v| *v > 0.0)) {
            return Err(NetworkError::Parameters);
        }
        let bias_variances = vec![1.0; shape.visible + shape.hidden];
        Ok(Self { shape, weights, variances, visible_bias, hidden_bias, bias_variances })
    }

    /// Natural parameters [h; Λ] of the mean-field Gaussian over W (visible unit by visible unit), c and b.
    #[must_use]
    pub fn natural(&self) -> Vec<f64> {
        let (means, variances) = (self.weights.transpose(), self.variances.transpose());
        let means = means.iter().chain(&self.visible_bias).chain(&self.hidden_bias);
        let variances: Vec<f64> = variances.iter().chain(&self.bias_variances).copied().collect();
        let h = means.zip(&variances).map(|(m, v)| m / v);
        h.chain(variances.iter().map(|v| 1.0 / v)).collect()
    }

    /// From such natural parameters.
    ///
    /// # Errors
    /// Another length, or not the parameters of a distribution.
    pub fn from_natural(shape: Shape, natural: &[f64]) -> Result<Self, NetworkError> {
        let (visible, hidden) = (shape.visible, shape.hidden);
        let parameters = visible * hidden + visible + hidden;
        if natural.len() != 2 * parameters {
            return Err(NetworkError::Parameters);
        }
        let (h, precision) = natural.split_at(parameters);
        let variances: Vec<f64> = precision.iter().map(|p| 1.0 / p).collect();
        let means: Vec<f64> = h.iter().zip(&variances).map(|(h, v)| h * v).collect();
        let pairs = visible * hidden;
        let mut network = Self::new(
            shape,
            DMatrix::from_row_slice(visible, hidden, &means[..pairs]),
            DMatrix::from_row_slice(visible, hidden, &variances[..pairs]),
            DVector::from_column_slice(&means[pairs..pairs + visible]),
            DVector::from_column_slice(&means[pairs + visible..]),
        )?;
        if !variances[pairs..].iter().all(|v| v.is_finite() && *v > 0.0) {
            return Err(NetworkError::Parameters);
        }
        network.bias_variances = variances[pairs..].to_vec();
        Ok(network)
    }

    /// Where the iteration starts: biases 0, weights of this standard deviation from a public seed. Hidden units that start equal
    /// stay equal, so something must tell them apart, and it must not be data.
    #[must_use]
    pub fn start(shape: Shape, seed: u64, sd: f64) -> Self {
        let mut state = seed;
        // A sum of twelve uniform numbers is close enough to normal for a start.
        let mut normal = || (0..12).map(|_| dp_pvi_math::start::uniform(&mut state)).sum::<f64>() - 6.0;
        Self {
            shape,
            weights: DMatrix::from_fn(shape.visible, shape.hidden, |_, _| sd * normal()),
            variances: DMatrix::from_element(shape.visible, shape.hidden, sd * sd),
            visible_bias: DVector::zeros(shape.visible),
            hidden_bias: DVector::zeros(shape.hidden),
            bias_variances: vec![sd * sd; shape.visible + shape.hidden],
        }
    }

    /// J and K.
    #[must_use]
    pub fn shape(&self) -> Shape {
        self.shape
    }

    /// E W (visible × hidden).
    #[must_use]
    pub fn weights(&self) -> &DMatrix<f64> {
        &self.weights
    }

    /// Variances of W.
    #[must_use]
    pub fn variances(&self) -> &DMatrix<f64> {
        &self.variances
    }

    /// E c.
    #[cfg(test)]
    pub(crate) fn visible_bias(&self) -> &DVector<f64> {
        &self.visible_bias
    }

    /// E b.
    #[cfg(test)]
    pub(crate) fn hidden_bias(&self) -> &DVector<f64> {
        &self.hidden_bias
    }

    /// E W∘W.
    fn second_moments(&self) -> DMatrix<f64> {
        self.weights.component_mul(&self.weights) + &self.variances
    }
}

/// What an M-step assumes.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Priors {
    /// σ_c, standard deviation of the visible biases.
    pub visible_sd: f64,
    /// σ_b, standard deviation of the hidden biases.
    pub hidden_sd: f64,
    /// n, the public nominal number of records.
    pub records: f64,
    /// Standard deviation of the noise per svec coordinate of the sixth statistic: its eigenvalues are raised to this noise's level.
    pub noise_sd: f64,
}

/// M-step from the six sums over all records, concatenated: a new network, the number of directions that were raised to the noise's
/// level, and the new shrinkage. Sums are clamped to what n records can
/// give, and every svec block is raised to its noise's level ([`polya_gamma::noise_floor`]), before they are used.
///
/// w_j: Λ = diag E 1/ζ_j + S6_j, h = S3_j − ½S2 − c_j S5_j. c_j: Λ = 1/σ_c² + S4_j, h = S1_j − n/2 − E w_jᵀS5_j.
/// b_k: Λ = 1/σ_b² + n E ξ_k, h = S2_k − n/2 with E ξ_k = tanh(b_k/2)/(2b_k).
///
/// # Errors
/// A precision is not positive definite.
///
/// # Panics
/// `statistics` or the shrinkage has another shape.
pub fn m_step(network: &Network, shrinkage: &mut Shrinkage, priors: &Priors, statistics: &[f64]) -> Result<(Network, usize), NetworkError> {
    let shape = network.shape;
    let (visible, hidden) = (shape.visible, shape.hidden);
    assert_eq!(statistics.len(), shape.coordinates(), "statistics of another network");
    let mut rest = statistics;
    let [v, pi, v_pi, omega, omega_pi, omega_hh] = shape.block_lengths().map(|length| {
        let (block, after) = rest.split_at(length);
        rest = after;
        block
    });
    let n = priors.records;
    let activity = DVector::from_iterator(hidden, pi.iter().map(|s| s.clamp(0.0, n)));

    let mut weights = DMatrix::zeros(visible, hidden);
    let mut variances = DMatrix::zeros(visible, hidden);
    let mut visible_bias = DVector::zeros(visible);
    let mut bias_variances = Vec::with_capacity(visible + hidden);
    let mut floored = 0;
    let pairs = omega_hh.chunks_exact(triangle(hidden));
    let rows = v_pi.chunks_exact(hidden).zip(omega_pi.chunks_exact(hidden)).zip(pairs);
    for (j, ((v_pi, omega_pi), omega_hh)) in rows.enumerate() {
        let omega_pi = DVector::from_iterator(hidden, omega_pi.iter().map(|s| s.clamp(0.0, 0.25 * n)));
        let raised = polya_gamma::noise_floor(omega_hh, hidden, priors.noise_sd);
        floored += raised.directions;
        let mut precision = unsvec(&raised.second, hidden);
        (0..hidden).for_each(|k| precision[(k, k)] += shrinkage.precision[(j, k)]);
        let factor = Cholesky::new(precision).ok_or(NetworkError::Statistics)?;
        let sums = DVector::from_iterator(hidden, v_pi.iter().map(|s| s.clamp(0.0, n)));
        let h = sums - &activity * 0.5 - &omega_pi * network.visible_bias[j];
        let mean = factor.solve(&h);
        let scale = omega[j].clamp(0.0, 0.25 * n) + priors.visible_sd.powi(-2);
        bias_variances.push(1.0 / scale);
        visible_bias[j] = (v[j].clamp(0.0, n) - 0.5 * n - mean.dot(&omega_pi)) / scale;
        weights.set_row(j, &mean.transpose());
        variances.set_row(j, &inverse_diagonal(&factor).transpose());
    }
    let hidden_bias = DVector::from_fn(hidden, |k, _| hidden_bias(network.hidden_bias[k], activity[k], priors));
    bias_variances.extend(hidden_bias.iter().map(|&b| 1.0 / (priors.hidden_sd.powi(-2) + n * polya_gamma::mean(b))));
    let mut network = Network::new(shape, weights, variances, visible_bias, hidden_bias).map_err(|_| NetworkError::Statistics)?;
    network.bias_variances = bias_variances;
    shrinkage.update(&network.second_moments());
    Ok((network, floored))
}

/// Fixed point of b = (S2 − n/2)/(1/σ_b² + n E ξ(b)); rounds cost nothing.
fn hidden_bias(mut b: f64, activity: f64, priors: &Priors) -> f64 {
    for _ in 0..50 {
        b = (activity - 0.5 * priors.records) / (priors.hidden_sd.powi(-2) + priors.records * polya_gamma::mean(b));
    }
    b
}

/// diag Λ⁻¹ from the Cholesky factor: column norms of L⁻¹.
fn inverse_diagonal(factor: &Cholesky<f64, nalgebra::Dyn>) -> DVector<f64> {
    let l = factor.l_dirty();
    let d = l.nrows();
    let mut inverse = DMatrix::identity(d, d);
    // The strict upper triangle of `l` is not read.
    l.solve_lower_triangular_unchecked_mut(&mut inverse);
    DVector::from_iterator(d, inverse.column_iter().map(|column| column.norm_squared()))
}
