//! Sigmoid belief network: a record is a binary image (positions of the pixels that are on; values between 0 and 1); parameters, E-step
//! and M-step are [`dp_pvi_posterior::sigmoid_belief`].
//!
//! A record's statistics have J·K²/2 coordinates, 4 million for 784 pixels and 100 hidden units, but they are outer products: norms
//! follow from the factors, and clipped sums over a batch are matrix products. So images are taken in batches.
//!
//! # Privacy
//! * **Unit**: an image, or all images of a person; a person's norm is bounded by the sum of their images' norms.
//! * **Sensitivity**: √Σ(Δ_b/a_b)² with the worst cases of [`Shape::sensitivities`]; real images are far below, so the clip is set lower.
//! * An image with a value that is not finite has a norm that is not finite, and contributes 0; other values are clamped to [0, 1].

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::cast_possible_truncation, clippy::cast_precision_loss)]
mod tests;

use dp_pvi_posterior::sigmoid_belief::hidden::{Batch, Prepared};
use dp_pvi_posterior::sigmoid_belief::{BLOCKS, Network, Shape};
use dp_pvi_privacy::mechanism::BatchTerms;
use nalgebra::DMatrix;
use rand_core::Rng;

use crate::records::{RecordTable, RecordView, UnitView};

/// E-steps at a given network.
#[derive(Debug, Clone)]
pub struct ImageStatistics<'a> {
    prepared: Prepared<'a>,
    scales: [f64; BLOCKS],
    sweeps: u32,
}

/// A batch of images after its E-step.
pub struct ImageBatch {
    batch: Batch,
    images: usize,
}

impl<'a> ImageStatistics<'a> {
    /// With public scales of the six blocks and this many sweeps for every image.
    #[must_use]
    pub fn new(network: &'a Network, scales: [f64; BLOCKS], sweeps: u32) -> Self {
        Self { prepared: Prepared::new(network), scales, sweeps }
    }

    /// J and K.
    #[must_use]
    pub fn shape(&self) -> Shape {
        self.prepared.shape()
    }

    /// Number of coordinates of the released vector.
    #[must_use]
    pub fn coordinates(&self) -> usize {
        self.shape().coordinates()
    }

    /// Largest norm of one image's scaled statistics.
    #[must_use]
    pub fn bound(&self) -> f64 {
        joint(&self.shape().sensitivities(), &self.scales)
    }

    /// The E-step of a batch.
    #[must_use]
    pub fn fit<'r>(&self, images: impl ExactSizeIterator<Item = RecordView<'r>>) -> ImageBatch {
        let count = images.len();
        let mut pixels = DMatrix::zeros(self.shape().visible(), count);
        for (mut column, image) in pixels.column_iter_mut().zip(images) {
            image.entries().for_each(|(j, value)| column[j] = clamped(value));
        }
        ImageBatch { batch: self.prepared.fit(pixels, self.sweeps), images: count }
    }

    /// Norm of the scaled statistics of an image of a batch.
    #[must_use]
    pub fn norm(&self, batch: &ImageBatch, image: usize) -> f64 {
        joint(&batch.batch.norms(image), &self.scales)
    }

    /// Adds Σ_i factor_i · scaled statistics of image i to `sums`; images with factor 0 are not touched.
    ///
    /// # Panics
    /// A slice has another length.
    pub fn add(&self, batch: &ImageBatch, factors: &[f64], sums: &mut [f64]) {
        batch.batch.add_statistics(factors, &self.scales, sums);
    }

    /// Adds the scaled statistics of a batch, each image's clipped to norm `clip`, and returns the number of images that were clipped.
    /// An image whose norm is not finite adds nothing.
    ///
    /// # Panics
    /// `sums` has another length.
    pub fn add_clipped(&self, batch: &ImageBatch, clip: f64, sums: &mut [f64]) -> usize {
        let norms: Vec<f64> = (0..batch.images).map(|i| self.norm(batch, i)).collect();
        let factor = |&norm: &f64| if norm.is_finite() { (clip / norm).min(1.0) } else { 0.0 };
        let factors: Vec<f64> = norms.iter().map(factor).collect();
        self.add(batch, &factors, sums);
        factors.iter().filter(|f| **f < 1.0).count()
    }
}

/// Images of a chunk: the last batch, and which images are each unit's.
#[derive(Default)]
pub struct ImageWork {
    batch: Option<ImageBatch>,
    /// One past the last image of every unit.
    ends: Vec<usize>,
}

/// Images to a chunk: enough for matrix products, few enough for E hhᵀ of all to stay small.
const CHUNK: usize = 128;

/// Two promises, checked by this module's tests: an image's statistics are the same to the last bit in every batch
/// ([`Prepared::fit`]), and the sums are products of two factors each, plainly added.
impl BatchTerms<RecordTable> for ImageStatistics<'_> {
    type Work = ImageWork;

    fn start(&self, _draws: &mut dyn Rng) -> ImageWork {
        ImageWork::default()
    }

    fn chunk(&self) -> usize {
        CHUNK
    }

    fn norms(&self, units: &[UnitView<'_>], _draws: &mut dyn Rng, work: &mut ImageWork, norms: &mut Vec<f64>) {
        let mut images = Vec::with_capacity(units.len());
        work.ends.clear();
        for unit in units {
            images.extend(unit.records());
            work.ends.push(images.len());
        }
        let batch = self.fit(images.into_iter());
        let mut first = 0;
        for &end in &work.ends {
            // No less than the norm of the sum of a person's images, and that of a single one.
            norms.push((first..end).map(|image| self.norm(&batch, image)).sum());
            first = end;
        }
        work.batch = Some(batch);
    }

    fn add(&self, work: &mut ImageWork, factors: &[f64], sums: &mut [f64]) {
        let Some(batch) = &work.batch else { return };
        let mut images = Vec::with_capacity(batch.images);
        for (&end, &factor) in work.ends.iter().zip(factors) {
            images.resize(end, factor);
        }
        ImageStatistics::add(self, batch, &images, sums);
    }
}

/// NaN stays NaN, so that the image's norm shows it.
fn clamped(value: f64) -> f64 {
    if value.is_finite() { value.clamp(0.0, 1.0) } else { f64::NAN }
}

/// √Σ (Δ_b/a_b)².
fn joint(norms: &[f64; BLOCKS], scales: &[f64; BLOCKS]) -> f64 {
    norms.iter().zip(scales).map(|(n, a)| (n / a).powi(2)).sum::<f64>().sqrt()
}
