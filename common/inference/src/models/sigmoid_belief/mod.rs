//! Sigmoid belief network: a record is a binary image (positions of the pixels that are on; values between 0 and 1); parameters, E-step
//! and M-step are [`dp_pvi_models::sigmoid_belief`].
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

use dp_pvi_math::expfam::any::Gaussian;
use dp_pvi_models::sigmoid_belief as public;
use dp_pvi_models::sigmoid_belief::hidden::{Batch, Prepared};
use dp_pvi_models::sigmoid_belief::{BLOCKS, Network, Shape};
use dp_pvi_privacy::mechanism::{BatchTerms, Term};
use nalgebra::DMatrix;
use rand_core::Rng;

use crate::capabilities::Model;
use crate::models::PrivateHalf;
use dp_pvi_records::{RecordTable, RecordView, UnitView};

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

    /// The same, and keeps the network.
    #[must_use]
    pub fn owned(network: Network, scales: [f64; BLOCKS], sweeps: u32) -> ImageStatistics<'static> {
        ImageStatistics { prepared: Prepared::owned(network), scales, sweeps }
    }

    /// J and K.
    #[must_use]
    pub fn shape(&self) -> Shape {
        self.prepared.shape()
    }

    /// Number of coordinates of the statistics.
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

/// Statistics in units of a clipping norm C, clipped to norm 1, and, where C is learned, an indicator ±w/2 of being within C as a last
/// coordinate: what a visit sums.
#[derive(Debug, Clone)]
pub struct ClippedImages<'a> {
    statistics: ImageStatistics<'a>,
    clip: f64,
    weight: Option<f64>,
}

/// Images of a chunk: the last batch, and each unit's images and numbers.
#[derive(Default)]
pub struct ImageWork {
    batch: Option<ImageBatch>,
    units: Vec<UnitOfImages>,
}

#[derive(Clone, Copy)]
struct UnitOfImages {
    /// One past its last image in the batch.
    end: usize,
    /// What its statistics are multiplied by.
    factor: f64,
    /// ±w/2.
    indicator: f64,
}

/// Images to a chunk: enough for matrix products, few enough for E hhᵀ of all to stay small.
const CHUNK: usize = 128;

impl<'a> ClippedImages<'a> {
    /// With C, and w where C is learned.
    #[must_use]
    pub fn new(statistics: ImageStatistics<'a>, clip: f64, weight: Option<f64>) -> Self {
        Self { statistics, clip, weight }
    }

    /// Number of coordinates.
    #[must_use]
    pub fn coordinates(&self) -> usize {
        self.statistics.coordinates() + usize::from(self.weight.is_some())
    }

    /// Norm of a unit's term, and what makes it, for statistics of this norm.
    fn clipped(&self, norm: f64, end: usize) -> (f64, UnitOfImages) {
        let within = norm <= self.clip;
        let factor = if within { self.clip.recip() } else { norm.recip() };
        let indicator = self.weight.map_or(0.0, |weight| if within { 0.5 * weight } else { -0.5 * weight });
        // NaN stays NaN, and the mechanism leaves the unit out.
        ((norm * factor).hypot(indicator), UnitOfImages { end, factor, indicator })
    }

    /// Adds one unit's term, which is dense: for sums that look at single terms. A unit whose norm is not finite adds nothing.
    pub(crate) fn add_term(&self, unit: UnitView<'_>, term: &mut Term) {
        let mut statistics = vec![0.0; self.statistics.coordinates()];
        let mut norm = 0.0;
        for image in unit.records() {
            let mut pixels = vec![0.0; self.statistics.shape().visible()];
            image.entries().for_each(|(j, value)| pixels[j] = clamped(value));
            let batch = self.statistics.prepared.fit_one(pixels, self.statistics.sweeps);
            norm += joint(&batch.norms(0), &self.statistics.scales);
            batch.add_statistics(&[1.0], &self.statistics.scales, &mut statistics);
        }
        let (length, UnitOfImages { factor, indicator, .. }) = self.clipped(norm, 0);
        if !length.is_finite() {
            return;
        }
        term.extend((0_u32..).zip(&statistics).map(|(index, value)| (index, value * factor)));
        if self.weight.is_some() {
            #[allow(clippy::cast_possible_truncation, reason = "a shape has fewer than 2^32 coordinates")]
            term.add(statistics.len() as u32, indicator);
        }
    }
}

/// Two promises, checked by this module's tests: a unit's term is the same to the last bit in every batch ([`Prepared::fit`]), and the sums
/// are products of a few factors each, plainly added. The norm of a unit of several images is told as the sum of theirs, which is no less
/// than that of their sum.
impl BatchTerms<RecordTable> for ClippedImages<'_> {
    type Work = ImageWork;

    fn start(&self, _draws: &mut dyn Rng) -> ImageWork {
        ImageWork::default()
    }

    fn chunk(&self) -> usize {
        CHUNK
    }

    fn norms(&self, units: &[UnitView<'_>], _words: &[u64], work: &mut ImageWork, norms: &mut Vec<f64>) {
        let images: Vec<RecordView<'_>> = units.iter().flat_map(|unit| unit.records()).collect();
        let batch = self.statistics.fit(images.into_iter());
        work.units.clear();
        let mut first = 0;
        for unit in units {
            let end = first + unit.records().count();
            let norm = (first..end).map(|image| self.statistics.norm(&batch, image)).sum();
            let (length, unit) = self.clipped(norm, end);
            norms.push(length);
            work.units.push(unit);
            first = end;
        }
        work.batch = Some(batch);
    }

    fn add(&self, work: &mut ImageWork, factors: &[f64], sums: &mut [f64]) {
        let Some(batch) = &work.batch else { return };
        let (statistics, indicators) = sums.split_at_mut(self.statistics.coordinates());
        let mut images = Vec::with_capacity(batch.images);
        for (unit, &factor) in work.units.iter().zip(factors) {
            // A factor of 0 is for units whose numbers may be anything.
            images.resize(unit.end, if factor > 0.0 { factor * unit.factor } else { 0.0 });
            indicators.iter_mut().for_each(|sum| *sum += factor * unit.indicator);
        }
        self.statistics.add(batch, &images, statistics);
    }
}

/// The model as the registry knows it: it offers expected statistics only, which [`crate::methods::vips`] builds from a run's state.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ImageModel;

impl PrivateHalf for public::SigmoidBeliefSpec {
    fn model(&self) -> Box<dyn Model> {
        Box::new(ImageModel)
    }
}

impl Model for ImageModel {
    /// NaN: an image's density is a bound over its hidden units, which the network's state gives.
    fn expected_log_likelihood(&self, _record: RecordView<'_>, _q: &Gaussian) -> f64 {
        f64::NAN
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
