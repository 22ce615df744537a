//! Bayesian neural networks: layers with ReLU between them and a mean-field Gaussian over all weights. Shape, forward pass and
//! predictive distribution; the gradients, which touch records, are in `dp-pvi-inference` and share this forward pass.
//!
//! # Expectations
//!
//! All expectations are taken by *local* reparametrisation (Kingma, Salimans and Welling 2015): given the inputs a of a layer, its
//! outputs are independent Gaussians with mean Mᵀa and variance Vᵀ(a∘a), where M and V are the weights' means and variances, because a
//! mean field gives every output weights of its own. So outputs are drawn, not weights. Nothing is approximated: each record's
//! sample has the same distribution as with drawn weights. Three things are gained over θ = μ + σ∘u:
//!
//! * the first layer, by far the largest product, is computed once for any number of samples;
//! * the last layer is integrated exactly (a Gaussian output under a logistic or Gaussian likelihood), so that gradients and
//!   predictions have less variance per sample;
//! * draws number a layer's outputs, not its weights.
//!
//! # Parameters
//!
//! θ holds the layers one after the other, each with a row of weights for every input; the row of the constant input 1 (the
//! biases) comes last. The first layer has no such row: feature rows carry the schema's intercept. Without hidden layers a
//! network is logistic, linear, or multinomial logistic regression.
//!
//! # Predictions
//!
//! A prediction is a mixture over samples of the hidden layers, with the last layer integrated. The draws are a fixed public table, so that
//! everyone who predicts from one posterior says the same.
//!
//! **Assumes** a number or one of two classes as label. **Defaults**: one layer of 50 units, 10 samples of a gradient. **When**: many records and no
//! linear effect; by `update = "dp-optimisation"`. Gradients have no public bound: give a `clip_norm`.

mod draws;
mod output;
mod predict;
mod task;

use dp_pvi_math::matrix::{Matrix, moments};
pub use draws::{public_normals, standard_normals};
pub use output::Output;
pub use predict::{Mixture, NetworkPrediction, NetworkPredictor};
pub use task::{NetworkOutput, NeuralNetworkSpec};

/// Largest power of two of a number that takes part in a forward pass: squares of squares stay ordinary numbers.
const RANGE: f64 = 1.152_921_504_606_847e18;

/// Activations below this count as 0, so that their fourth powers do not vanish where they matter.
pub const SMALLEST: f64 = 1.0 / RANGE;

/// Features, means and variances beyond this are not used.
pub const LARGEST: f64 = RANGE;

/// Largest number of weights of a network, that of the parameters of any task.
const LARGEST_NETWORK: usize = 1 << 26;

/// A network cannot have this shape.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a network needs at least one feature, one unit in every hidden layer and one output, and at most 2^26 weights")]
pub struct InvalidShape;

/// One layer: a weight for every input and output.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Layer {
    /// Inputs, the constant 1 included where the layer has one.
    pub inputs: usize,
    /// Outputs.
    pub outputs: usize,
    /// Position of the first weight in θ.
    pub offset: usize,
}

impl Layer {
    /// Number of weights.
    #[must_use]
    pub fn len(&self) -> usize {
        self.inputs * self.outputs
    }

    /// Whether the layer has no weight; never, in a [`Network`].
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The layer's part of a vector of parameters.
    #[must_use]
    pub fn of<'a>(&self, parameters: &'a [f64]) -> &'a [f64] {
        &parameters[self.offset..][..self.len()]
    }
}

/// The shape of a network.
#[derive(Debug, Clone, PartialEq)]
pub struct Network {
    layers: Vec<Layer>,
    output: Output,
}

impl Network {
    /// From the number of features of a row, the width of every hidden layer, and the meaning of the outputs.
    ///
    /// # Errors
    /// See [`InvalidShape`].
    pub fn new(features: usize, hidden: &[usize], output: Output) -> Result<Self, InvalidShape> {
        let (mut layers, mut inputs, mut offset) = (Vec::new(), features, 0usize);
        for &outputs in hidden.iter().chain([&output.len()]) {
            let weights = inputs.checked_mul(outputs).filter(|&weights| weights > 0 && weights <= LARGEST_NETWORK).ok_or(InvalidShape)?;
            layers.push(Layer { inputs, outputs, offset });
            offset += weights;
            inputs = outputs + 1;
        }
        if offset <= LARGEST_NETWORK { Ok(Self { layers, output }) } else { Err(InvalidShape) }
    }

    /// Number of parameters d.
    #[must_use]
    pub fn dimension(&self) -> usize {
        self.layers.iter().map(Layer::len).sum()
    }

    /// Number of features of a row.
    #[must_use]
    pub fn features(&self) -> usize {
        self.layers[0].inputs
    }

    /// The layers, from the features to the outputs.
    #[must_use]
    pub fn layers(&self) -> &[Layer] {
        &self.layers
    }

    /// The hidden layers' widths.
    pub fn hidden(&self) -> impl ExactSizeIterator<Item = usize> {
        self.layers[..self.layers.len() - 1].iter().map(|layer| layer.outputs)
    }

    /// What the outputs mean.
    #[must_use]
    pub fn output(&self) -> Output {
        self.output
    }

    /// Standard normal draws of one sample: one for every hidden unit, and those of the output.
    #[must_use]
    pub fn draws(&self) -> usize {
        self.hidden().sum::<usize>() + self.output.draws()
    }

    /// `wanted`, or 1 where nothing is drawn.
    #[must_use]
    pub fn samples(&self, wanted: usize) -> usize {
        if self.draws() == 0 { 1 } else { wanted.max(1) }
    }

    /// Where a fit may start: independent normal weights of variance 1/inputs, biases 0, the same for everyone. From equal
    /// weights (a prior's mean) all units of a layer would have equal expected gradients. Without hidden layers 0.
    #[must_use]
    pub fn initial_mean(&self) -> Vec<f64> {
        if self.layers.len() == 1 {
            return vec![0.0; self.dimension()];
        }
        let mut mean = public_normals(INITIAL_SEQUENCE, self.dimension());
        for (number, layer) in self.layers.iter().enumerate() {
            let weights = &mut mean[layer.offset..][..layer.len()];
            #[allow(clippy::cast_precision_loss, reason = "below 2^31")]
            let scale = (layer.inputs as f64).sqrt().recip();
            weights.iter_mut().for_each(|w| *w *= scale);
            if number > 0 {
                weights[(layer.inputs - 1) * layer.outputs..].fill(0.0);
            }
        }
        mean
    }
}

/// Numbers of the public tables.
const INITIAL_SEQUENCE: u64 = 1;
const PREDICTIVE_SEQUENCE: u64 = 2;

/// Means and variances of all weights, layer by layer.
#[derive(Debug, Clone, PartialEq)]
pub struct Weights {
    /// M of every layer.
    pub mean: Vec<Matrix>,
    /// V of every layer.
    pub variance: Vec<Matrix>,
}

impl Weights {
    /// From the parameters of a network, in order.
    ///
    /// # Panics
    /// There are fewer parameters than the network's dimension.
    #[must_use]
    pub fn new(network: &Network, mean: impl IntoIterator<Item = f64>, variance: impl IntoIterator<Item = f64>) -> Self {
        let (mut mean, mut variance) = (mean.into_iter(), variance.into_iter());
        Self { mean: matrices(network, &mut mean), variance: matrices(network, &mut variance) }
    }
}

fn matrices(network: &Network, parameters: &mut impl Iterator<Item = f64>) -> Vec<Matrix> {
    let make = |(number, layer): (usize, &Layer)| {
        let weights = parameters.take(layer.len()).collect();
        if number == 0 { Matrix::for_rows(weights, layer.inputs, layer.outputs) } else { Matrix::new(weights, layer.inputs, layer.outputs) }
    };
    network.layers.iter().enumerate().map(make).collect()
}

/// The forward pass of a batch, kept for the backward pass. A *column* is one sample of one row: S columns a row.
#[derive(Debug, Clone, Default)]
pub struct Forward {
    /// Means of the first layer's outputs, row by row.
    pub first_mean: Vec<f64>,
    /// Their standard deviations.
    pub first_sd: Vec<f64>,
    /// Σ_k (x_k²v_kj)² of the row's features and the weights' variances.
    pub first_squares: Vec<f64>,
    /// Inputs of every layer after the first, column by column: activations with a closing 1.
    pub inputs: Vec<Vec<f64>>,
    /// Standard deviations of the outputs of hidden layers after the first, column by column.
    pub sd: Vec<Vec<f64>>,
    /// Means of the network's outputs, column by column.
    pub mean: Vec<f64>,
    /// Their variances.
    pub variance: Vec<f64>,
    squares: Vec<f64>,
}

impl Forward {
    /// Makes room for a batch of rows.
    pub fn start(&mut self, network: &Network, rows: usize) {
        let len = rows * network.layers[0].outputs;
        self.first_mean.resize(len, 0.0);
        self.first_sd.resize(len, 0.0);
        self.first_squares.resize(len, 0.0);
    }

    /// The first layer at a sparse row.
    pub fn project(&mut self, weights: &Weights, row: usize, indices: &[u32], values: &[f64]) {
        let width = weights.mean[0].outputs();
        let place = row * width..(row + 1) * width;
        let (mean, sd) = (&mut self.first_mean[place.clone()], &mut self.first_sd[place.clone()]);
        moments(&weights.mean[0], &weights.variance[0], indices, values, [mean, sd, &mut self.first_squares[place]]);
        sd.iter_mut().for_each(|v| *v = v.sqrt());
    }

    /// The rest, with `samples` columns a row: `draws(column)` gives the [`Network::draws`] numbers of a column.
    pub fn run<'d>(&mut self, network: &Network, weights: &Weights, samples: usize, draws: impl Fn(usize) -> &'d [f64]) {
        let width = network.layers[0].outputs;
        let columns = self.first_mean.len() / width * samples;
        self.inputs.resize(network.layers.len() - 1, Vec::new());
        self.sd.resize(network.layers.len().saturating_sub(2), Vec::new());
        let rows = || self.first_mean.chunks_exact(width).zip(self.first_sd.chunks_exact(width));
        let Some(first) = self.inputs.first_mut() else {
            self.mean.clear();
            self.variance.clear();
            for (mean, sd) in rows() {
                for _ in 0..samples {
                    self.mean.extend_from_slice(mean);
                    self.variance.extend(sd.iter().map(|s| s * s));
                }
            }
            return;
        };
        first.resize(columns * (width + 1), 0.0);
        for (row, (mean, sd)) in rows().enumerate() {
            for sample in 0..samples {
                let column = row * samples + sample;
                rectify(mean, sd, draws(column), &mut first[column * (width + 1)..][..width + 1]);
            }
        }
        let mut used = width;
        for (number, layer) in network.layers.iter().enumerate().skip(1) {
            let (done, rest) = self.inputs.split_at_mut(number);
            let input = &done[number - 1];
            self.squares.clear();
            self.squares.extend(input.iter().map(|a| a * a));
            self.mean.resize(columns * layer.outputs, 0.0);
            self.variance.resize(columns * layer.outputs, 0.0);
            weights.mean[number].apply(input, &mut self.mean);
            weights.variance[number].apply(&self.squares, &mut self.variance);
            let Some(next) = rest.first_mut() else { return };
            let (sd, outputs) = (&mut self.sd[number - 1], layer.outputs);
            sd.clear();
            sd.extend(self.variance.iter().map(|v| v.sqrt()));
            next.resize(columns * (outputs + 1), 0.0);
            for (column, out) in next.chunks_exact_mut(outputs + 1).enumerate() {
                let place = column * outputs..(column + 1) * outputs;
                rectify(&self.mean[place.clone()], &sd[place], &draws(column)[used..], out);
            }
            used += outputs;
        }
    }
}

/// ReLU of mean + sd·draw, with the constant 1 of the next layer behind it.
#[inline]
fn rectify(mean: &[f64], sd: &[f64], draws: &[f64], out: &mut [f64]) {
    out[mean.len()] = 1.0;
    for (((out, mean), sd), draw) in out.iter_mut().zip(mean).zip(sd).zip(draws) {
        let output = mean + sd * draw;
        // NaN is kept: a comparison that fails for it would hide that the row overflowed.
        *out = if output <= SMALLEST { 0.0 } else { output };
    }
}

#[cfg(test)]
mod tests;
