//! `dp-pvi-sim reproduce vips-sbn`: a sigmoid belief network with 100 hidden units on binarised MNIST: pixel accuracy against ε and
//! minibatch size, one pass over the 60,000 images.
//!
//! One site, the production mechanism ([`BatchSum`]: norms first, one weighted sum, discrete noise) and a ledger in memory, without the
//! protocol between site and server. Minibatches are Poisson samples, accounted as such.

use std::fmt::Write as _;

use dp_pvi_data::load_public;
use dp_pvi_inference::model::sigmoid_belief::ImageStatistics;
use dp_pvi_inference::records::RecordTable;
use dp_pvi_posterior::schema::Schema;
use dp_pvi_posterior::sigmoid_belief::hidden::Prepared;
use dp_pvi_posterior::sigmoid_belief::shrinkage::Shrinkage;
use dp_pvi_posterior::sigmoid_belief::{BLOCKS, Network, Priors, Shape, m_step};
use dp_pvi_privacy::accountant::calibrate;
use dp_pvi_privacy::ledger::memory::MemoryStore;
use dp_pvi_privacy::ledger::{Budget, LedgerIdentity};
use dp_pvi_privacy::mechanism::BatchSum;
use dp_pvi_privacy::{
    ClientId, ClipNorm, Delta, Epsilon, Hash, Ledger, NoiseMultiplier, PrivacyUnit, Relation, ReleaseId, RunId, SamplingRate, Terms,
    UnitTable, Units,
};
use ed25519_dalek::SigningKey;
use indicatif::ProgressBar;
use nalgebra::DMatrix;
use plotters::prelude::*;

use super::vips::{Line, Progress, Run, chart};
use super::{Options, ReproduceError};
use crate::noise::SeededNoise;

const HIDDEN: u32 = 100;
const PIXELS: usize = 784;
const SWEEPS: u32 = 10;
const RECORDS: u32 = 60_000;
const EPSILONS: [f64; 3] = [1.0, 4.0, 16.0];
/// Expected images of a minibatch; a run makes as many rounds as there are in the images.
const BATCHES: [u32; 2] = [6_000, 20_000];
/// ρ_t = (1 + t)^−κ.
const KAPPA: f64 = 0.7;
/// Norm of the scaled statistics above which an image is clipped: about that of an ordinary digit.
const CLIP: f64 = 1.4;
const START_SD: f64 = 0.1;
const BIAS_SD: f64 = 10.0;
const DELTA: f64 = 1e-5;

const SCHEMA: &str = "kind = \"binary-image\"\n\n[binary_image]\nwidth = 28\nheight = 28\nthreshold = 127\n";

/// Runs the reproduction and writes `vips-sbn.{csv,svg,md}` and `vips-sbn-digits.svg`.
pub(super) fn run(options: &Options<'_>) -> Result<(), ReproduceError> {
    let schema = Schema::parse(SCHEMA).map_err(|error| ReproduceError::Result(error.to_string()))?;
    let load = |name: &str| load_public(&schema, &[options.data.join("mnist").join(name)], None);
    let training = load("train-images-idx3-ubyte.gz")?.into_inner();
    let test = dense(load("t10k-images-idx3-ubyte.gz")?.get(), 2_000);
    let batches: &[u32] = if options.quick { &BATCHES[1..] } else { &BATCHES };
    let epsilons: &[f64] = if options.quick { &EPSILONS[1..2] } else { &EPSILONS };
    let rounds: u64 = batches.iter().map(|batch| u64::from(RECORDS / batch)).sum();
    let progress = Progress::new(options, rounds * (epsilons.len() as u64 + 1));
    let mut lines = Vec::new();
    let mut pictures = Vec::new();
    for &batch in batches {
        let mut one = |epsilon: Option<f64>| -> Result<(), ReproduceError> {
            let network = learn(&training, batch, epsilon, options.seed, &progress.bar())?;
            let result = Prepared::new(&network).reconstruct(test.clone(), SWEEPS);
            lines.push(Line { method: format!("minibatches of {batch}"), epsilon, metric: "pixel accuracy", value: result.accuracy });
            pictures.push((batch, epsilon, result.probabilities.columns(0, SHOWN).into_owned()));
            Ok(())
        };
        one(None)?;
        epsilons.iter().try_for_each(|&epsilon| one(Some(epsilon)))?;
    }
    digits(&options.output.join("vips-sbn-digits.svg"), &test, &pictures)?;
    chart(&options.output.join("vips-sbn.svg"), "Pixel accuracy of reconstructed digits", "epsilon", "accuracy", &lines, "pixel accuracy")?;
    let report = report(&lines, batches, epsilons, constant(&training, &test));
    Run { name: "vips-sbn", lines, report }.write(options)
}

/// One pass over the images.
fn learn(table: &RecordTable, batch: u32, epsilon: Option<f64>, seed: u64, bar: &ProgressBar) -> Result<Network, ReproduceError> {
    #[allow(clippy::cast_possible_truncation, reason = "784")]
    let shape = Shape::new(PIXELS as u32, HIDDEN).map_err(|error| ReproduceError::Result(error.to_string()))?;
    let rounds = RECORDS / batch;
    let rate = f64::from(batch) / f64::from(RECORDS);
    let scales = shape.sensitivities();
    let mut site = Site::open(table, shape, rate, rounds, epsilon, seed)?;
    let mut network = Network::start(shape, 1, START_SD);
    let mut shrinkage = Shrinkage::new(shape.visible(), shape.hidden());
    let mut state = vec![0.0; shape.coordinates()];
    let mut variance = 0.0;
    for round in 0..rounds {
        let sums = site.round(&network, scales, round)?;
        let rho = f64::from(round + 1).powf(-KAPPA);
        let mut rest = state.as_mut_slice();
        let mut sums = sums.as_slice();
        for (length, scale) in shape.block_lengths().into_iter().zip(scales) {
            let (block, after) = rest.split_at_mut(length);
            let (new, later) = sums.split_at(length);
            block.iter_mut().zip(new).for_each(|(old, new)| *old += rho * (new * scale / rate - *old));
            (rest, sums) = (after, later);
        }
        variance = (1.0 - rho).powi(2) * variance + (rho * site.noise_sd() * scales[BLOCKS - 1] / rate).powi(2);
        let priors = Priors { visible_sd: BIAS_SD, hidden_sd: BIAS_SD, records: RECORDS.into(), noise_sd: variance.sqrt() };
        network = m_step(&network, &mut shrinkage, &priors, &state).map_err(|error| ReproduceError::Result(error.to_string()))?;
        bar.inc(1);
    }
    Ok(network)
}

/// The images' side.
enum Site<'a> {
    /// Every image as it is, minibatch after minibatch.
    Free { table: &'a RecordTable, batch: usize },
    /// Behind the gate.
    Private { units: Units<RecordTable>, mechanism: Box<BatchSum>, ledger: Box<Ledger<MemoryStore, SigningKey>>, noise: SeededNoise },
}

impl<'a> Site<'a> {
    fn open(table: &'a RecordTable, shape: Shape, rate: f64, rounds: u32, epsilon: Option<f64>, seed: u64) -> Result<Self, ReproduceError> {
        let wrong = |error: &dyn std::fmt::Display| ReproduceError::Result(error.to_string());
        let Some(epsilon) = epsilon else {
            #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a number of images")]
            return Ok(Self::Free { table, batch: (rate * f64::from(RECORDS)).round() as usize });
        };
        let dimension = u32::try_from(shape.coordinates()).map_err(|e| wrong(&e))?;
        let clip = ClipNorm::new(CLIP).map_err(|e| wrong(&e))?;
        let sampling = SamplingRate::nearest(rate).map_err(|e| wrong(&e))?;
        let (epsilon, delta) = (Epsilon::new(epsilon).map_err(|e| wrong(&e))?, Delta::new(DELTA).map_err(|e| wrong(&e))?);
        let sum = |z| BatchSum::new(dimension, clip, z, Some(sampling), Terms::Units, RECORDS.into());
        // A multiplier that the lattice refuses is too small: it counts as no protection.
        let event = |z| sum(z).map_or(dp_pvi_privacy::DpEvent::NonPrivate, |s| s.event().repeated(rounds.into()));
        let z: NoiseMultiplier = calibrate(event, Relation::AddRemove, epsilon, delta).map_err(|e| wrong(&e))?;
        let identity = LedgerIdentity { data: "mnist".into(), unit: PrivacyUnit::Record, relation: Relation::AddRemove };
        let budget = Budget { epsilon: Epsilon::INFINITE, delta, per_run: None, allow_non_private: false };
        let ledger = Ledger::open(MemoryStore::new(), SigningKey::from_bytes(&[7; 32]), identity, budget).map_err(|e| wrong(&e))?;
        Ok(Self::Private {
            units: Units::new(table.clone()),
            mechanism: Box::new(sum(z).map_err(|e| wrong(&e))?),
            ledger: Box::new(ledger),
            noise: SeededNoise::new(seed),
        })
    }

    /// Noise on one scaled coordinate of a round's sum.
    fn noise_sd(&self) -> f64 {
        match self {
            Self::Free { .. } => 0.0,
            Self::Private { mechanism, .. } => mechanism.noise_multiplier().get() * mechanism.clip_norm().get(),
        }
    }

    /// The sum of scaled statistics of a round.
    fn round(&mut self, network: &Network, scales: [f64; BLOCKS], round: u32) -> Result<Vec<f64>, ReproduceError> {
        let wrong = |error: &dyn std::fmt::Display| ReproduceError::Result(error.to_string());
        let statistics = ImageStatistics::new(network, scales, SWEEPS);
        match self {
            Self::Free { table, batch } => {
                let mut sums = vec![0.0; statistics.coordinates()];
                let start = round as usize * *batch;
                let units: Vec<usize> = (start..(start + *batch).min(table.len())).collect();
                for chunk in units.chunks(128) {
                    let images: Vec<_> = chunk.iter().flat_map(|&unit| table.unit(unit).records()).collect();
                    statistics.add_clipped(&statistics.fit(images.into_iter()), f64::INFINITY, &mut sums);
                }
                Ok(sums)
            }
            Self::Private { units, mechanism, ledger, noise } => {
                let client = ClientId::new("site").map_err(|e| wrong(&e))?;
                let release = ReleaseId { run: RunId { task: Hash::default(), number: 0 }, client, round };
                let permit = ledger.reserve(&release, &mechanism.event(), Hash::default()).map_err(|e| wrong(&e))?;
                let step = permit.into_steps().next().ok_or_else(|| ReproduceError::Result("the permit holds no step".into()))?;
                let released = mechanism.release_sum(units, &statistics, step, noise).map_err(|e| wrong(&e))?;
                Ok(released.get().to_f64())
            }
        }
    }
}

/// The first images of a table as columns.
fn dense(table: &RecordTable, count: usize) -> DMatrix<f64> {
    let mut images = DMatrix::zeros(PIXELS, count.min(table.len()));
    for (mut column, record) in images.column_iter_mut().zip(table.records()) {
        record.entries().for_each(|(pixel, value)| column[pixel] = value);
    }
    images
}

/// Accuracy of the best picture that is the same for every image.
fn constant(training: &RecordTable, test: &DMatrix<f64>) -> f64 {
    let mut on = vec![0.0; PIXELS];
    training.records().for_each(|record| record.entries().for_each(|(pixel, value)| on[pixel] += value));
    let right = |pixel: usize, value: f64| (2.0 * on[pixel] > f64::from(RECORDS)) == (value > 0.5);
    let hits = test.column_iter().flat_map(|c| c.iter().copied().enumerate().collect::<Vec<_>>()).filter(|&(p, v)| right(p, v)).count();
    #[allow(clippy::cast_precision_loss, reason = "a number of pixels")]
    let accuracy = hits as f64 / test.len() as f64;
    accuracy
}

/// Digits in a row of the picture.
const SHOWN: usize = 12;

/// Rows of digits: the test images, then what each network gives back.
fn digits(file: &std::path::Path, test: &DMatrix<f64>, pictures: &[(u32, Option<f64>, DMatrix<f64>)]) -> Result<(), ReproduceError> {
    let failed = |error: &dyn std::fmt::Display| ReproduceError::Result(format!("cannot draw: {error}"));
    let rows = i32::try_from(pictures.len() + 1).map_err(|e| failed(&e))?;
    let root = SVGBackend::new(file, (220 + 58 * 12, u32::try_from(58 * rows + 4).map_err(|e| failed(&e))?)).into_drawing_area();
    root.fill(&WHITE).map_err(|e| failed(&e))?;
    let first = ("test images".to_owned(), test.columns(0, SHOWN).into_owned());
    let name = |batch: &u32, epsilon: &Option<f64>| {
        format!("epsilon {}, {batch}", epsilon.map_or_else(|| "infinite".to_owned(), |e| e.to_string()))
    };
    let all = std::iter::once(first).chain(pictures.iter().map(|(batch, epsilon, picture)| (name(batch, epsilon), picture.clone())));
    for (row, (name, picture)) in (0..).zip(all) {
        root.draw(&Text::new(name, (6, row * 58 + 20), ("sans-serif", 15))).map_err(|e| failed(&e))?;
        for (number, digit) in (0..).zip(picture.column_iter()) {
            for (place, value) in (0..).zip(digit.iter()) {
                #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "between 0 and 255")]
                let shade = (255.0 * (1.0 - value.clamp(0.0, 1.0))) as u8;
                if shade < 250 {
                    let (x, y) = (220 + number * 58 + 2 * (place % 28), row * 58 + 2 * (place / 28));
                    let style = RGBColor(shade, shade, shade).filled();
                    root.draw(&Rectangle::new([(x, y), (x + 2, y + 2)], style)).map_err(|e| failed(&e))?;
                }
            }
        }
    }
    root.present().map_err(|e| failed(&e))
}

fn report(lines: &[Line], batches: &[u32], epsilons: &[f64], constant: f64) -> String {
    let value = |batch: u32, epsilon: Option<f64>| {
        let method = format!("minibatches of {batch}");
        lines.iter().find(|l| l.method == method && l.epsilon == epsilon).map_or(f64::NAN, |l| l.value)
    };
    let mut text = format!(
        "# Sigmoid belief network on MNIST\n\n{HIDDEN} hidden units, one pass over {RECORDS} binarised images, Poisson minibatches, {SWEEPS} \
         sweeps an E-step, six statistics in one release, delta = {DELTA:e}, add-remove, one image a unit. Share of the pixels of 2,000 test \
         images that come back right; the best constant picture: {constant:.4}.\n\n| epsilon |"
    );
    for batch in batches {
        let _ = write!(text, " minibatches of {batch} |");
    }
    text.push_str("\n|---|");
    batches.iter().for_each(|_| text.push_str("---|"));
    text.push('\n');
    for epsilon in epsilons.iter().copied().map(Some).chain([None]) {
        let _ = write!(text, "| {} |", epsilon.map_or_else(|| "infinite".to_owned(), |e| e.to_string()));
        for &batch in batches {
            let _ = write!(text, " {:.4} |", value(batch, epsilon));
        }
        text.push('\n');
    }
    text.push_str("\nThe digits themselves are in vips-sbn-digits.svg.\n");
    text
}
