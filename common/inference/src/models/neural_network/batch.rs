//! Gradients of a batch of units: norms first, then the sum with one factor for every unit. No unit's gradient is kept in between.
//!
//! For one record let p and q be the derivatives of E log p by the mean and by the variance of a layer's outputs, and a its inputs.
//! The gradient by the weights' means is a pᵀ, by the scale coordinates c ∘ (a∘a) qᵀ with c = 2σ² (log σ) or 2w (half variance).
//!
//! * **First layer.** a is the record itself, the same in every sample, so that the mean over samples only needs p̄ and q̄. The
//!   squared norm is ‖a‖²‖p̄‖² + Σ_j q̄_j² Σ_k a_k⁴c_kj²: O(non-zeros × outputs), without the gradient.
//! * **Later layers, one sample.** The same with matrix products over the batch; the sum is a product of batch matrices, too.
//! * **Later layers, several samples.** a differs by sample and the outer products may cancel, so their mean is formed, record by record, once
//!   for the norm and once more, to the same bits, for the sum.
//! * **Units of several records.** The unit's gradient is formed, because its records' gradients may cancel.
//!
//! # Rounding
//!
//! What a unit adds to the sum for factor 1 and the norm that is told about it differ by less than 2⁻³⁵ of that norm (10⁴·2⁻⁵³ for the sum
//! of squares, which are all positive; a few roundings an entry): nothing cancels between the two, see above.
//!
//! That counts roundings relative to a number, so every product on the way must be an ordinary number, or an exact 0. Therefore a gradient is
//! *defined* by inputs, p, q and c that are 0 or in a range: inputs in [2⁻⁶⁰, 2⁶⁰], c in [2⁻⁶⁰, 2⁶²], p and q in [2⁻¹⁵⁰, 2¹⁵⁰]. Smaller
//! inputs, p and q are 0, before anything is computed from them; a record with a larger one contributes 0. Norm and sum see the same numbers,
//! each a function of its own record. Then
//!
//! * squares of products, at most q²a⁴c², lie in [2⁻⁶⁶⁰, 2⁶⁶⁴], and norms are below 2⁴⁰⁰;
//! * a sum that cancels, over samples or over the records of a unit, is 0 or no less than a unit in the last place of its smallest product:
//!   2⁻⁴⁸⁰ after c, whose square is 2⁻⁹⁶⁰;
//! * factors are above 2⁻⁵⁰⁰, as the mechanism demands C ≥ 2⁻¹⁰⁰, and what is added, factor·a²q, is above 2⁻⁷⁷⁰.
//!
//! All of this is inside of what double precision holds without loss, 2⁻¹⁰²² to 2¹⁰²³.

use dp_pvi_math::matrix::{Matrix, add_outer_products, add_scaled, combine, dot};
use dp_pvi_models::neural_network::{Forward, LARGEST, Layer, Network, SMALLEST, Weights};

use dp_pvi_privacy::mechanism::BatchTerms;
use pulp::{Arch, Simd, WithSimd};
use rand_core::Rng;

use super::draws::Draws;
use crate::mean_field::{MeanField, ScaleCoordinate};
use dp_pvi_records::{RecordTable, RecordView, UnitView};

/// Range of the derivatives p and q; see the [module](self).
const LEAST_DERIVATIVE: f64 = 1.0 / GREATEST_DERIVATIVE;
const GREATEST_DERIVATIVE: f64 = (1u128 << 75) as f64 * (1u128 << 75) as f64;

/// Columns (units × samples) that a call should have.
const COLUMNS: usize = 64;

/// Gradients of a network at one point.
#[derive(Debug, Clone)]
pub struct BatchGradients<'a> {
    network: &'a Network,
    weights: Weights,
    /// c = slope·σ² + constant, for every weight.
    slope: f64,
    constant: f64,
    /// c² of ghost layers.
    squared_scale: Vec<Option<Matrix>>,
    samples: usize,
}

/// Draws and buffers of a batch. They hold values of records, so their owner drops them with the sum.
pub struct Work {
    draws: Draws,
    /// Records of the batch: position of the first entry, target.
    records: Vec<Row>,
    /// First record of every unit, with a closing entry.
    units: Vec<usize>,
    indices: Vec<u32>,
    values: Vec<f64>,
    squares: Vec<f64>,
    forward: Forward,
    /// p̄ and q̄ of the first layer, record by record.
    first: Derivatives,
    /// Σ_k a_k⁴c_kj² of ghost layers, column by column.
    fourth_moments: Vec<Vec<f64>>,
    /// p and q of every later layer, column by column.
    later: Vec<Derivatives>,
    /// One column of Vᵀq or of powers of activations.
    columns: Vec<f64>,
    products: Vec<f64>,
    /// Σ over records of the gradients by scale coordinates, before c.
    unscaled: Vec<f64>,
    /// One unit's gradient: by means, then by scale coordinates before c.
    unit: Vec<f64>,
    formed: Derivatives,
}

/// A record of the batch.
struct Row {
    /// Row of its draws.
    draws: usize,
    /// Its first entry; the next record's is the end.
    start: usize,
    target: f64,
}

/// By means and by variances.
#[derive(Default)]
struct Derivatives {
    mean: Vec<f64>,
    variance: Vec<f64>,
}

impl Derivatives {
    fn resize(&mut self, len: usize) {
        self.mean.resize(len, 0.0);
        self.variance.resize(len, 0.0);
    }

    fn zero(&mut self, len: usize) {
        self.resize(len);
        self.mean.fill(0.0);
        self.variance.fill(0.0);
    }
}

impl<'a> BatchGradients<'a> {
    /// At a mean field over the network's weights, with `samples` samples of every record.
    ///
    /// # Panics
    /// The point has another dimension than the network.
    #[must_use]
    pub fn new(network: &'a Network, point: &MeanField, samples: usize) -> Self {
        assert_eq!(point.dimension(), network.dimension(), "a point of the network's parameters");
        // Whatever the point is (it is public), the kernel's numbers stay in range; fits keep far inside.
        let mean = point.mean().map(|m| m.clamp(-LARGEST, LARGEST));
        let weights = Weights::new(network, mean, point.variance().map(|v| v.clamp(SMALLEST, LARGEST)));
        let (slope, constant) = match point.coordinate() {
            ScaleCoordinate::LogScale => (2.0, 0.0),
            ScaleCoordinate::HalfVariance { weight } => (0.0, 2.0 * weight.clamp(SMALLEST, LARGEST)),
        };
        let mut gradients = Self { network, weights, slope, constant, squared_scale: Vec::new(), samples: network.samples(samples) };
        gradients.squared_scale = (0..network.layers().len()).map(|number| gradients.squared_scale_of(number)).collect();
        gradients
    }

    fn squared_scale_of(&self, number: usize) -> Option<Matrix> {
        let layer = &self.network.layers()[number];
        let squares = || self.scale(number).map(|c| c * c).collect();
        self.is_ghost(number).then(|| Matrix::new(squares(), layer.inputs, layer.outputs))
    }

    /// c of a layer's weights.
    fn scale(&self, number: usize) -> impl Iterator<Item = f64> {
        self.weights.variance[number].by_input().iter().map(|v| self.slope * v + self.constant)
    }

    /// Length 2d of a gradient.
    #[must_use]
    pub fn len(&self) -> usize {
        2 * self.network.dimension()
    }

    /// Whether a gradient has no entry; never.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Units for one call of [`norms`](Self::norms) so that their activations stay in the cache nearest to the processor.
    #[must_use]
    pub fn chunk(&self) -> usize {
        (COLUMNS / self.samples).max(1)
    }

    /// Draws and empty buffers for one step.
    #[must_use]
    pub fn start(&self, stream: &mut (impl Rng + ?Sized)) -> Work {
        Work {
            draws: Draws::new(self.network, self.samples, stream),
            records: Vec::new(),
            units: Vec::new(),
            indices: Vec::new(),
            values: Vec::new(),
            squares: Vec::new(),
            forward: Forward::default(),
            first: Derivatives::default(),
            fourth_moments: vec![Vec::new(); self.network.layers().len()],
            later: Vec::new(),
            columns: Vec::new(),
            products: Vec::new(),
            unscaled: Vec::new(),
            unit: Vec::new(),
            formed: Derivatives::default(),
        }
    }

    /// L2 norm of every unit's gradient of Σ E_q log p(record | θ), in the coordinates (μ, t). A record that is not finite, out of range, or
    /// whose target the likelihood does not know contributes 0; so does a unit whose gradient overflows.
    ///
    /// `words` holds one for every unit: its own randomness.
    pub fn norms<'u>(&self, units: impl Iterator<Item = UnitView<'u>>, words: &[u64], work: &mut Work, norms: &mut Vec<f64>) {
        work.gather(self.network, units.zip(words));
        self.forward(work);
        self.backward(work);
        self.keep_in_range(work);
        self.ghost_moments(work);
        norms.clear();
        for unit in 0..work.units.len() - 1 {
            let records = work.units[unit]..work.units[unit + 1];
            let squared = match records.len() {
                0 => 0.0,
                1 => self.squared_norm(work, records.start),
                _ => self.form_unit(work, unit),
            };
            norms.push(squared.sqrt());
        }
        for (unit, norm) in norms.iter_mut().enumerate() {
            if !norm.is_finite() {
                *norm = 0.0;
                (work.units[unit]..work.units[unit + 1]).for_each(|record| self.clear(work, record));
            }
        }
    }

    /// Adds Σ factor · gradient over the units of the last call of [`norms`](Self::norms) with this `work` to `sums`, 2d numbers; once for
    /// every such call.
    ///
    /// # Panics
    /// Not one factor for every unit, or `sums` has another length.
    pub fn add(&self, work: &mut Work, factors: &[f64], sums: &mut [f64]) {
        assert!(factors.len() + 1 == work.units.len() && sums.len() == self.len(), "a factor for every unit, and 2d sums");
        let d = self.network.dimension();
        let (by_mean, by_scale) = sums.split_at_mut(d);
        // By scales the sum is taken before c, which is the same for all.
        let mut unscaled = std::mem::take(&mut work.unscaled);
        unscaled.clear();
        unscaled.resize(d, 0.0);
        for (unit, &factor) in factors.iter().enumerate() {
            if factor == 0.0 {
                continue;
            }
            match work.units[unit + 1] - work.units[unit] {
                0 => {}
                1 => self.add_formed(work, work.units[unit], factor, by_mean, &mut unscaled),
                _ => {
                    self.form_unit(work, unit);
                    add_scaled(factor, &work.unit[..d], by_mean);
                    add_scaled(factor, &work.unit[d..], &mut unscaled);
                }
            }
        }
        self.add_ghosts(work, factors, by_mean, &mut unscaled);
        let scales = (0..self.network.layers().len()).flat_map(|number| self.scale(number));
        by_scale.iter_mut().zip(&unscaled).zip(scales).for_each(|((sum, g), c)| *sum += c * g);
        work.unscaled = unscaled;
    }

    /// Whether a layer's gradients are never formed.
    fn is_ghost(&self, number: usize) -> bool {
        number > 0 && self.samples == 1
    }

    fn forward(&self, work: &mut Work) {
        let network = self.network;
        work.forward.start(network, work.records.len());
        for record in 0..work.records.len() {
            let entries = work.entries(record);
            work.forward.project(&self.weights, record, &work.indices[entries.clone()], &work.values[entries]);
        }
        let (samples, records, draws) = (self.samples, &work.records, &work.draws);
        work.forward.run(network, &self.weights, samples, |column| draws.vector(records[column / samples].draws, column % samples));
    }

    /// From the outputs to p and q of every layer.
    fn backward(&self, work: &mut Work) {
        let (layers, samples) = (self.network.layers(), self.samples);
        let (last, columns) = (layers.len() - 1, work.records.len() * samples);
        work.later.resize_with(layers.len(), Derivatives::default);
        let output = self.network.output();
        let outputs = output.len();
        let hidden: usize = self.network.hidden().sum();
        work.later[last].resize(columns * outputs);
        for (column, (mean, variance)) in
            work.forward.mean.chunks_exact(outputs).zip(work.forward.variance.chunks_exact(outputs)).enumerate()
        {
            let row = &work.records[column / samples];
            let draws = &work.draws.vector(row.draws, column % samples)[hidden..];
            let place = column * outputs..(column + 1) * outputs;
            let Derivatives { mean: p, variance: q } = &mut work.later[last];
            output.derivatives(mean, variance, draws, row.target, &mut p[place.clone()], &mut q[place]);
        }
        let mut end = hidden;
        for number in (1..=last).rev() {
            let layer = &layers[number];
            let width = layer.inputs - 1;
            let start = end - width;
            work.products.resize(columns * layer.inputs, 0.0);
            work.columns.resize(columns * layer.inputs, 0.0);
            let (below, above) = work.later.split_at_mut(number);
            self.weights.mean[number].apply_transposed(&above[0].mean, &mut work.products);
            self.weights.variance[number].apply_transposed(&above[0].variance, &mut work.columns);
            let below = &mut below[number - 1];
            below.resize(columns * width);
            let input = &work.forward.inputs[number - 1];
            for column in 0..columns {
                let row = column / samples;
                let draws = &work.draws.vector(work.records[row].draws, column % samples)[start..end];
                let sd = if number == 1 { &work.forward.first_sd[row * width..] } else { &work.forward.sd[number - 2][column * width..] };
                let source = column * layer.inputs..(column + 1) * layer.inputs;
                let place = column * width..(column + 1) * width;
                Arch::new().dispatch(ThroughRelu {
                    input: &input[source.clone()],
                    back: [&work.products[source.clone()], &work.columns[source]],
                    draws,
                    sd: &sd[..width],
                    by: [&mut below.mean[place.clone()], &mut below.variance[place]],
                });
            }
            end = start;
        }
        if samples == 1 {
            std::mem::swap(&mut work.first, &mut work.later[0]);
            return;
        }
        // Means over the samples: the first layer's inputs are the same in all of them.
        let width = layers[0].outputs;
        work.first.zero(work.records.len() * width);
        #[allow(clippy::cast_precision_loss, reason = "a number of samples")]
        let share = 1.0 / samples as f64;
        for column in 0..columns {
            let (source, place) = (column * width..(column + 1) * width, column / samples * width..(column / samples + 1) * width);
            add_scaled(share, &work.later[0].mean[source.clone()], &mut work.first.mean[place.clone()]);
            add_scaled(share, &work.later[0].variance[source], &mut work.first.variance[place]);
        }
    }

    /// Derivatives that are too small to compute with are 0. Records with one that is too large, or is no number, contribute 0: such numbers
    /// must not meet a factor of 0.
    fn keep_in_range(&self, work: &mut Work) {
        let (layers, samples) = (self.network.layers(), self.samples);
        for record in 0..work.records.len() {
            let width = layers[0].outputs;
            let place = record * width..(record + 1) * width;
            let mut sound = in_range(&mut work.first.mean[place.clone()]) & in_range(&mut work.first.variance[place]);
            for (number, layer) in layers.iter().enumerate().skip(1) {
                let columns = |width: usize| record * samples * width..(record + 1) * samples * width;
                let inputs = &work.forward.inputs[number - 1][columns(layer.inputs)];
                let later = &mut work.later[number];
                sound &= inputs.iter().all(|a| *a <= LARGEST);
                sound &= in_range(&mut later.mean[columns(layer.outputs)]) & in_range(&mut later.variance[columns(layer.outputs)]);
            }
            if !sound {
                self.clear(work, record);
            }
        }
    }

    /// Makes a record's gradient 0.
    fn clear(&self, work: &mut Work, record: usize) {
        let (layers, samples) = (self.network.layers(), self.samples);
        let width = layers[0].outputs;
        work.first.mean[record * width..][..width].fill(0.0);
        work.first.variance[record * width..][..width].fill(0.0);
        for (number, layer) in layers.iter().enumerate().skip(1) {
            let columns = |width: usize| record * samples * width..(record + 1) * samples * width;
            work.forward.inputs[number - 1][columns(layer.inputs)].fill(0.0);
            work.later[number].mean[columns(layer.outputs)].fill(0.0);
            work.later[number].variance[columns(layer.outputs)].fill(0.0);
        }
    }

    /// ‖gradient‖² of one record.
    fn squared_norm(&self, work: &mut Work, record: usize) -> f64 {
        let width = self.network.layers()[0].outputs;
        let place = record * width..(record + 1) * width;
        let (p, q) = (&work.first.mean[place.clone()], &work.first.variance[place.clone()]);
        let squares = &work.squares[work.entries(record)];
        // Σ_k a_k⁴c_kj², where one of slope and constant is 0.
        let (of_variances, of_rows) = (self.slope * self.slope, self.constant * self.constant * dot(squares, squares));
        let moments = work.forward.first_squares[place].iter().map(|n| of_variances * n + of_rows);
        let mut total = squares.iter().sum::<f64>() * dot(p, p) + q.iter().zip(moments).map(|(q, n)| q * q * n).sum::<f64>();
        for number in 1..self.network.layers().len() {
            total += if self.is_ghost(number) { self.ghost(work, number, record) } else { self.form(work, number, record) };
        }
        total
    }

    /// Σ_k a_k⁴c_kj² of ghost layers, for the whole batch.
    fn ghost_moments(&self, work: &mut Work) {
        for (number, squared_scale) in self.squared_scale.iter().enumerate() {
            let Some(squared_scale) = squared_scale else { continue };
            work.columns.clear();
            work.columns.extend(work.forward.inputs[number - 1].iter().map(|a| (a * a) * (a * a)));
            work.fourth_moments[number].resize(work.later[number].mean.len(), 0.0);
            squared_scale.apply(&work.columns, &mut work.fourth_moments[number]);
        }
    }

    /// A later layer's part of ‖gradient‖² for one sample, without the gradient.
    fn ghost(&self, work: &Work, number: usize, record: usize) -> f64 {
        let layer = &self.network.layers()[number];
        let input = &work.forward.inputs[number - 1][record * layer.inputs..][..layer.inputs];
        let place = record * layer.outputs..(record + 1) * layer.outputs;
        let (p, q) = (&work.later[number].mean[place.clone()], &work.later[number].variance[place.clone()]);
        let moments = &work.fourth_moments[number][place];
        dot(input, input) * dot(p, p) + q.iter().zip(moments).map(|(q, n)| q * q * n).sum::<f64>()
    }

    /// Forms the mean over samples of a later layer's gradient of one record, in `work.formed`, and returns its squared norm.
    fn form(&self, work: &mut Work, number: usize, record: usize) -> f64 {
        let (layer, samples) = (&self.network.layers()[number], self.samples);
        let inputs = &work.forward.inputs[number - 1][record * samples * layer.inputs..][..samples * layer.inputs];
        let columns = record * samples * layer.outputs..(record + 1) * samples * layer.outputs;
        let (p, q) = (&work.later[number].mean[columns.clone()], &work.later[number].variance[columns]);
        #[allow(clippy::cast_precision_loss, reason = "a number of samples")]
        let share = 1.0 / samples as f64;
        work.formed.zero(layer.len());
        let Derivatives { mean, variance } = &mut work.formed;
        work.columns.clear();
        work.columns.extend(inputs.iter().map(|a| a * a));
        if layer.outputs == 1 {
            combine(inputs, layer.inputs, p.iter().map(|p| share * p).enumerate(), mean);
            combine(&work.columns, layer.inputs, q.iter().map(|q| share * q).enumerate(), variance);
        } else {
            for k in 0..layer.inputs {
                let row = k * layer.outputs..(k + 1) * layer.outputs;
                let of = |values: &[f64], sample: usize| share * values[sample * layer.inputs + k];
                combine(p, layer.outputs, (0..samples).map(|s| (s, of(inputs, s))), &mut mean[row.clone()]);
                combine(q, layer.outputs, (0..samples).map(|s| (s, of(&work.columns, s))), &mut variance[row]);
            }
        }
        dot(mean, mean) + variance.iter().zip(self.scale(number)).map(|(v, c)| (v * c) * (v * c)).sum::<f64>()
    }

    /// Forms the gradient of a unit of several records in `work.unit` and returns its squared norm.
    fn form_unit(&self, work: &mut Work, unit: usize) -> f64 {
        let d = self.network.dimension();
        let mut formed = std::mem::take(&mut work.unit);
        formed.clear();
        formed.resize(2 * d, 0.0);
        let (by_mean, by_scale) = formed.split_at_mut(d);
        for record in work.units[unit]..work.units[unit + 1] {
            self.add_formed(work, record, 1.0, by_mean, by_scale);
            for (number, layer) in self.network.layers().iter().enumerate() {
                if self.is_ghost(number) {
                    self.form(work, number, record);
                    work.add_layer(layer, 1.0, by_mean, by_scale);
                }
            }
        }
        let scales = (0..self.network.layers().len()).flat_map(|number| self.scale(number));
        let scaled = formed[d..].iter().zip(scales).map(|(v, c)| (v * c) * (v * c)).sum::<f64>();
        let squared = dot(&formed[..d], &formed[..d]) + scaled;
        work.unit = formed;
        squared
    }

    /// Adds factor · a record's gradient, but for ghost layers, to `by_mean` and (before c) `by_scale`.
    fn add_formed(&self, work: &mut Work, record: usize, factor: f64, by_mean: &mut [f64], by_scale: &mut [f64]) {
        let width = self.network.layers()[0].outputs;
        let place = record * width..(record + 1) * width;
        let (p, q) = (&work.first.mean[place.clone()], &work.first.variance[place]);
        let entries = work.entries(record);
        let of = [&work.values[entries.clone()], &work.squares[entries.clone()]];
        let (derivatives, indices) = ([p, q], &work.indices[entries]);
        Arch::new().dispatch(FirstLayer { factor, derivatives, indices, of, sums: [&mut *by_mean, &mut *by_scale] });
        for (number, layer) in self.network.layers().iter().enumerate().skip(1) {
            if !self.is_ghost(number) {
                self.form(work, number, record);
                work.add_layer(layer, factor, by_mean, by_scale);
            }
        }
    }

    /// Adds Σ factor · gradients of ghost layers over units of one record, as products of batch matrices.
    fn add_ghosts(&self, work: &mut Work, factors: &[f64], by_mean: &mut [f64], by_scale: &mut [f64]) {
        let records = work.records.len();
        for (number, layer) in self.network.layers().iter().enumerate().filter(|(number, _)| self.is_ghost(*number)) {
            let Derivatives { mean: p, variance: q } = &mut work.later[number];
            for (unit, factor) in factors.iter().enumerate() {
                // Units of several records are already in the total.
                let factor = if work.units[unit + 1] - work.units[unit] == 1 { *factor } else { 0.0 };
                let place = work.units[unit] * layer.outputs..work.units[unit + 1] * layer.outputs;
                p[place.clone()].iter_mut().chain(&mut q[place]).for_each(|x| *x *= factor);
            }
            let inputs = &work.forward.inputs[number - 1];
            work.columns.clear();
            work.columns.extend(inputs.iter().map(|a| a * a));
            let place = layer.offset..layer.offset + layer.len();
            add_outer_products(p, inputs, records, &mut by_mean[place.clone()]);
            add_outer_products(q, &work.columns, records, &mut by_scale[place]);
        }
    }
}

impl BatchTerms<RecordTable> for BatchGradients<'_> {
    type Work = Work;

    fn start(&self, draws: &mut dyn Rng) -> Work {
        self.start(draws)
    }

    fn chunk(&self) -> usize {
        self.chunk()
    }

    fn norms(&self, units: &[UnitView<'_>], words: &[u64], work: &mut Work, norms: &mut Vec<f64>) {
        self.norms(units.iter().copied(), words, work, norms);
    }

    fn add(&self, work: &mut Work, factors: &[f64], sums: &mut [f64]) {
        self.add(work, factors, sums);
    }
}

impl Work {
    /// Copies the batch's rows: features and targets that take part, one record after the other.
    fn gather<'u, 'w>(&mut self, network: &Network, units: impl Iterator<Item = (UnitView<'u>, &'w u64)>) {
        self.records.clear();
        self.units.clear();
        self.indices.clear();
        self.values.clear();
        for (unit, word) in units {
            self.units.push(self.records.len());
            let coin = self.draws.row_of(*word);
            for (number, record) in unit.records().filter(|record| takes_part(network, *record)).enumerate() {
                // Records of one unit have draws of their own.
                self.records.push(Row { draws: coin + number, start: self.indices.len(), target: record.target });
                for (&index, &value) in record.indices.iter().zip(record.values) {
                    if value.abs() >= SMALLEST {
                        self.indices.push(index);
                        self.values.push(value);
                    }
                }
            }
        }
        self.units.push(self.records.len());
        self.squares.clear();
        self.squares.extend(self.values.iter().map(|x| x * x));
    }

    /// Adds factor · `formed`.
    fn add_layer(&self, layer: &Layer, factor: f64, by_mean: &mut [f64], by_scale: &mut [f64]) {
        add_scaled(factor, &self.formed.mean, &mut by_mean[layer.offset..][..layer.len()]);
        add_scaled(factor, &self.formed.variance, &mut by_scale[layer.offset..][..layer.len()]);
    }

    fn entries(&self, record: usize) -> std::ops::Range<usize> {
        let end = self.records.get(record + 1).map_or(self.indices.len(), |next| next.start);
        self.records[record].start..end
    }
}

/// Adds factor · x pᵀ and factor · x∘x qᵀ of a sparse row x: outputs lie in lanes, each with sums of its own.
struct FirstLayer<'a> {
    factor: f64,
    /// p and q.
    derivatives: [&'a [f64]; 2],
    indices: &'a [u32],
    /// x and x∘x.
    of: [&'a [f64]; 2],
    sums: [&'a mut [f64]; 2],
}

impl WithSimd for FirstLayer<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, _: S) {
        let Self { factor, derivatives: [p, q], indices, of: [values, squares], sums: [by_mean, by_scale] } = self;
        let width = p.len();
        let q = &q[..width];
        for (index, (value, square)) in indices.iter().zip(values.iter().zip(squares)) {
            let row = *index as usize * width;
            let (x, y) = (factor * value, factor * square);
            let (by_mean, by_scale) = (&mut by_mean[row..][..width], &mut by_scale[row..][..width]);
            for j in 0..width {
                by_mean[j] += x * p[j];
                by_scale[j] += y * q[j];
            }
        }
    }
}

/// Columns of one layer on their way back through mean, draw and ReLU.
struct ThroughRelu<'a> {
    input: &'a [f64],
    back: [&'a [f64]; 2],
    draws: &'a [f64],
    sd: &'a [f64],
    by: [&'a mut [f64]; 2],
}

impl WithSimd for ThroughRelu<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, _: S) {
        let Self { input, back, draws, sd, by: [by_mean, by_variance] } = self;
        through_relu(input, back, draws, sd, by_mean, by_variance);
    }
}

/// Whether a record is one that the network knows.
fn takes_part(network: &Network, record: RecordView<'_>) -> bool {
    network.output().admits(record.target)
        && record.values.iter().all(|x| x.abs() <= LARGEST)
        && record.indices.last().is_none_or(|&last| (last as usize) < network.features())
}

/// Makes derivatives that are too small 0; whether the others are in range.
fn in_range(derivatives: &mut [f64]) -> bool {
    let mut sound = true;
    for x in derivatives {
        let size = x.abs();
        // Not so for NaN.
        sound &= size <= GREATEST_DERIVATIVE;
        *x = if size < LEAST_DERIVATIVE { 0.0 } else { *x };
    }
    sound
}

/// One column back through mean, draw and ReLU: with ∂f/∂a = `back[0]` + 2a·`back[1]` for an activation a = max(m + sε, 0),
/// ∂f/∂m is that where a > 0, and ∂f/∂s² = ∂f/∂m·ε/(2s).
#[inline(always)]
fn through_relu(input: &[f64], back: [&[f64]; 2], draws: &[f64], sd: &[f64], by_mean: &mut [f64], by_variance: &mut [f64]) {
    let width = draws.len();
    let (input, by_means, by_variances, sd) = (&input[..width], &back[0][..width], &back[1][..width], &sd[..width]);
    let (by_mean, by_variance) = (&mut by_mean[..width], &mut by_variance[..width]);
    for j in 0..width {
        let a = input[j];
        let open = if a > 0.0 { 1.0 } else { 0.0 };
        let p = open * (by_means[j] + 2.0 * a * by_variances[j]);
        by_mean[j] = p;
        // Without variance (a row of zeros) there is no input to scale.
        by_variance[j] = if sd[j] > 0.0 { p * draws[j] / (2.0 * sd[j]) } else { 0.0 };
    }
}
