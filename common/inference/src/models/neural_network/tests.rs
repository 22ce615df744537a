//! Gradients against finite differences, norms against formed gradients.

use chacha20::ChaCha20Rng;
use chacha20::rand_core::{Rng, SeedableRng};
use dp_pvi_models::neural_network::{Forward, Network, Output, Weights, public_normals};
use dp_pvi_privacy::UnitTable;
use dp_pvi_privacy::mechanism::batch::compare;

use super::{BatchGradients, Draws};
use crate::mean_field::{MeanField, ScaleCoordinate};
use crate::testing::{anything, random_units, table};
use dp_pvi_records::RecordTable;

const D: usize = 5;

type Unit = Vec<(Vec<f64>, f64)>;

fn shapes() -> Vec<Network> {
    let outputs = [Output::Number { noise_sd: 0.7 }, Output::Binary, Output::Classes { count: 3 }];
    // Wide enough for ghost norms and `gemm`, and too narrow for either.
    let hidden: [&[usize]; 4] = [&[], &[4], &[4, 3], &[8, 7]];
    hidden.iter().flat_map(|h| outputs.map(|o| Network::new(D, h, o).unwrap())).collect()
}

fn parameters(network: &Network) -> (Vec<f64>, Vec<f64>) {
    let d = network.dimension();
    (public_normals(21, d).iter().map(|x| 0.7 * x).collect(), public_normals(22, d).iter().map(|x| -1.0 + 0.4 * x).collect())
}

fn point(mean: &[f64], log_scale: &[f64], coordinate: ScaleCoordinate) -> MeanField {
    MeanField::new(mean.to_vec(), log_scale.iter().map(|l| (2.0 * l).exp()).collect(), coordinate).unwrap()
}

fn stream(seed: u64) -> ChaCha20Rng {
    ChaCha20Rng::seed_from_u64(seed)
}

/// Norms and the sum with these factors.
fn run(gradients: &BatchGradients, table: &RecordTable, seed: u64, factors: &[f64]) -> (Vec<f64>, Vec<f64>) {
    let mut stream = stream(seed);
    let mut work = gradients.start(&mut stream);
    let mut norms = Vec::new();
    let words: Vec<u64> = (0..table.len()).map(|_| stream.next_u64()).collect();
    gradients.norms((0..table.len()).map(|i| table.unit(i)), &words, &mut work, &mut norms);
    let mut sums = vec![0.0; gradients.len()];
    gradients.add(&mut work, factors, &mut sums);
    (norms, sums)
}

/// The mean over samples of E log p(target | outputs) at one row of draws: what the gradients differentiate.
fn value(network: &Network, mean: &[f64], log_scale: &[f64], unit: &Unit, samples: usize, seed: u64) -> f64 {
    let variance: Vec<f64> = log_scale.iter().map(|l| (2.0 * l).exp()).collect();
    let weights = Weights::new(network, mean.iter().copied(), variance.iter().copied());
    let mut stream = stream(seed);
    let draws = Draws::new(network, samples, &mut stream);
    let samples = draws.samples();
    let coin = draws.row_of(stream.next_u64());
    let hidden: usize = network.hidden().sum();
    let mut total = 0.0;
    for (number, (row, target)) in unit.iter().enumerate() {
        let indices: Vec<u32> = (0..D as u32).collect();
        let mut forward = Forward::default();
        forward.start(network, 1);
        forward.project(&weights, 0, &indices, row);
        let of = |sample: usize| draws.vector(coin + number, sample);
        forward.run(network, &weights, samples, of);
        let k = network.output().len();
        for sample in 0..samples {
            let place = sample * k..(sample + 1) * k;
            let (m, v) = (&forward.mean[place.clone()], &forward.variance[place]);
            total += network.output().expected_log_density(m, v, &of(sample)[hidden..], *target) / samples as f64;
        }
    }
    total
}

/// Central differences by every mean and every log σ. Without classes the estimate is the gradient of the value at its draws; kinks of
/// the ReLU are too rare for these units to be met.
#[test]
fn gradients_are_those_of_finite_differences() {
    let h = 1e-5;
    for network in shapes().iter().filter(|n| !matches!(n.output(), Output::Classes { .. })) {
        let (mean, log_scale) = parameters(network);
        for samples in [1, 4] {
            for unit in random_units(31, 9, D).into_iter().filter(|unit| !unit.is_empty()).take(3) {
                let gradients = BatchGradients::new(network, &point(&mean, &log_scale, ScaleCoordinate::LogScale), samples);
                let (_, found) = run(&gradients, &table(D, std::slice::from_ref(&unit)), 5, &[1.0]);
                let at = |mean: &[f64], log_scale: &[f64]| value(network, mean, log_scale, &unit, samples, 5);
                let moved = |values: &[f64], j: usize, by: f64| {
                    let mut moved = values.to_vec();
                    moved[j] += by;
                    moved
                };
                let d = network.dimension();
                for j in 0..d {
                    let by_mean = (at(&moved(&mean, j, h), &log_scale) - at(&moved(&mean, j, -h), &log_scale)) / (2.0 * h);
                    let by_scale = (at(&mean, &moved(&log_scale, j, h)) - at(&mean, &moved(&log_scale, j, -h))) / (2.0 * h);
                    let scale = 1.0 + by_mean.abs().max(by_scale.abs());
                    assert!((found[j] - by_mean).abs() < 1e-6 * scale, "{network:?} μ_{j}: {} and {by_mean}", found[j]);
                    assert!((found[d + j] - by_scale).abs() < 1e-6 * scale, "{network:?} log σ_{j}: {} and {by_scale}", found[d + j]);
                }
            }
        }
    }
}

/// For classes the derivative by a variance is Price's, so the value and its estimate agree in expectation: means over 200 tables
/// of 64 samples, within 5 standard errors of their difference.
#[test]
fn gradients_of_classes_are_those_of_finite_differences_in_the_mean() {
    const TABLES: u64 = 200;
    for hidden in [&[][..], &[3]] {
        let network = Network::new(D, hidden, Output::Classes { count: 3 }).unwrap();
        let (mean, log_scale) = parameters(&network);
        let unit = vec![(vec![1.0, -0.5, 0.3, 0.0, 1.0], 2.0)];
        let gradients = BatchGradients::new(&network, &point(&mean, &log_scale, ScaleCoordinate::LogScale), 64);
        let table = table(D, std::slice::from_ref(&unit));
        let found: Vec<Vec<f64>> = (0..TABLES).map(|seed| run(&gradients, &table, seed, &[1.0]).1).collect();
        let (d, h) = (network.dimension(), 1e-4);
        for j in 0..2 * d {
            let moved = |by: f64, seed: u64| {
                let (mut mean, mut log_scale) = (mean.clone(), log_scale.clone());
                if j < d {
                    mean[j] += by
                } else {
                    log_scale[j - d] += by
                }
                value(&network, &mean, &log_scale, &unit, 64, seed)
            };
            let differences: Vec<f64> =
                (0..TABLES).map(|seed| found[seed as usize][j] - (moved(h, seed) - moved(-h, seed)) / (2.0 * h)).collect();
            let n = TABLES as f64;
            let difference = differences.iter().sum::<f64>() / n;
            let error = (differences.iter().map(|x| (x - difference).powi(2)).sum::<f64>() / (n * (n - 1.0))).sqrt();
            assert!(difference.abs() <= 5.0 * error + 1e-7, "{hidden:?} {j}: {difference} ± {error}");
        }
    }
}

/// Without hidden layers a network is a generalised linear model, whose gradients are exact.
#[test]
fn without_hidden_layers_gradients_are_those_of_linear_models() {
    use dp_pvi_models::{linear_regression, logistic_regression};
    use dp_pvi_posterior::task::ModelSpec;
    use dp_pvi_privacy::mechanism::Term;
    for (output, spec) in [
        (Output::Number { noise_sd: 0.7 }, ModelSpec::from(linear_regression::LinearRegression { noise_sd: 0.7 })),
        (Output::Binary, ModelSpec::from(logistic_regression::LogisticRegression {})),
    ] {
        let network = Network::new(D, &[], output).unwrap();
        let (mean, log_scale) = parameters(&network);
        let model = crate::models::from_spec(&spec).unwrap();
        for coordinate in [ScaleCoordinate::LogScale, ScaleCoordinate::HalfVariance { weight: 1.7 }] {
            let point = point(&mean, &log_scale, coordinate);
            let table = table(D, &random_units(3, 20, D));
            let (_, found) = run(&BatchGradients::new(&network, &point, 10), &table, 1, &[1.0; 20]);
            let mut expected = vec![0.0; 2 * D];
            for record in table.records() {
                let mut term = Term::default();
                model.gradients().unwrap().gradient(record, &point, &mut term);
                term.entries().for_each(|(j, x)| expected[j as usize] += x);
            }
            crate::testing::close(&found, &expected, 1e-11);
        }
    }
}

/// The norm that is told about a unit is the norm of what is added for it, and the sum is linear in the factors.
#[test]
fn norms_are_those_of_what_is_added() {
    let units = random_units(41, 30, D);
    for network in shapes() {
        let (mean, log_scale) = parameters(&network);
        for coordinate in [ScaleCoordinate::LogScale, ScaleCoordinate::HalfVariance { weight: 0.6 }] {
            for samples in [1, 3] {
                let gradients = BatchGradients::new(&network, &point(&mean, &log_scale, coordinate), samples);
                let table = table(D, &units);
                let one = |i: usize, factor: f64| {
                    let mut factors = vec![0.0; units.len()];
                    factors[i] = factor;
                    run(&gradients, &table, 9, &factors)
                };
                let factors: Vec<f64> = (0..units.len()).map(|i| 0.1 * i as f64).collect();
                let (norms, sum) = run(&gradients, &table, 9, &factors);
                let mut expected = vec![0.0; sum.len()];
                for (i, unit) in units.iter().enumerate() {
                    let (_, term) = one(i, 1.0);
                    let norm = term.iter().map(|x| x * x).sum::<f64>().sqrt();
                    assert!((norm - norms[i]).abs() <= norm * 2f64.powi(-35), "{network:?} unit {i}: {norm} and {}", norms[i]);
                    assert_eq!(norm > 0.0, !unit.is_empty());
                    expected.iter_mut().zip(&term).for_each(|(sum, x)| *sum += factors[i] * x);
                }
                crate::testing::close(&sum, &expected, 1e-9);
            }
        }
    }
}

/// A record that is not finite, out of range, or whose target is unknown contributes 0, and the rest of the batch is what it was.
#[test]
fn records_that_cannot_be_used_contribute_nothing() {
    let row = |x: f64, y: f64| vec![(vec![x; D], y)];
    let mut bad: Vec<Unit> = [f64::NAN, f64::INFINITY, -f64::INFINITY, 1e300, 1e19].iter().map(|x| row(*x, 1.0)).collect();
    bad.extend([f64::NAN, f64::INFINITY].map(|y| row(1.0, y)));
    let good = random_units(51, 12, D);
    for network in shapes() {
        let (mean, log_scale) = parameters(&network);
        for samples in [1, 3] {
            let gradients = BatchGradients::new(&network, &point(&mean, &log_scale, ScaleCoordinate::LogScale), samples);
            let among = |others: &[Unit]| {
                let units: Vec<Unit> = good.iter().chain(others).cloned().collect();
                run(&gradients, &table(D, &units), 2, &vec![1.0; units.len()])
            };
            let silent: Vec<Unit> = vec![vec![]; bad.len()];
            let (norms, sum) = among(&bad);
            assert_eq!(norms[good.len()..], vec![0.0; bad.len()]);
            assert_eq!((norms, sum), among(&silent));
            // Wild but usable numbers: finite, and no one else's term moves by more than rounding.
            let (norms, sum) = among(&[row(1e9, 1.0), row(-1e17, 1.0), row(1e-300, 1.0), row(0.0, 1.0)]);
            assert!(norms.iter().chain(&sum).all(|x| x.is_finite()));
            // A usable record of a unit counts, though another of the unit does not.
            let mixed = vec![(vec![f64::NAN; D], 0.0), (vec![0.5; D], 1.0)];
            let alone = vec![(vec![0.5; D], 1.0)];
            assert_eq!(among(&[mixed]), among(&[alone]));
        }
    }
    let classes = Network::new(D, &[4], Output::Classes { count: 3 }).unwrap();
    let (mean, log_scale) = parameters(&classes);
    let gradients = BatchGradients::new(&classes, &point(&mean, &log_scale, ScaleCoordinate::LogScale), 1);
    let norms = run(&gradients, &table(D, &[row(1.0, 3.0), row(1.0, -1.0), row(1.0, 0.5), row(1.0, 2.0)]), 1, &[0.0; 4]).0;
    assert!(norms[..3] == [0.0; 3] && norms[3] > 0.0, "{norms:?}");
}

/// The promises on which the sensitivity of a batched sum rests: norms are those of what is added and do not depend on the company, to
/// the last bit; the sum is the sum up to the rounding that is charged.
#[test]
fn the_promises_of_a_batched_sum_are_kept() {
    let mut units = random_units(71, 40, D);
    let row = |x: f64, y: f64| vec![(vec![x; D], y)];
    units.extend([row(f64::NAN, 1.0), row(1e9, 1.0), row(-1e17, 0.0), row(1e-300, 1.0), row(1.0, f64::INFINITY), row(0.0, 0.0), vec![]]);
    let table = table(D, &units);
    for network in shapes() {
        let (mean, log_scale) = parameters(&network);
        for coordinate in [ScaleCoordinate::LogScale, ScaleCoordinate::HalfVariance { weight: 0.6 }] {
            for samples in [1, 3] {
                let gradients = BatchGradients::new(&network, &point(&mean, &log_scale, coordinate), samples);
                let found = compare(&table, &gradients, gradients.len(), stream).unwrap_or_else(|e| panic!("{network:?} {samples}: {e}"));
                assert!(found.norm < 0.1, "far from the limit: {found:?}");
            }
        }
    }
}

/// The same for batch matrices of several tiles, with edges in both directions.
#[test]
fn the_promises_of_a_batched_sum_are_kept_by_wide_layers() {
    for (hidden, units) in [(&[50, 50][..], 53), (&[33, 21, 9], 61), (&[17], 7)] {
        let network = Network::new(D, hidden, Output::Binary).unwrap();
        let (mean, log_scale) = parameters(&network);
        let gradients = BatchGradients::new(&network, &point(&mean, &log_scale, ScaleCoordinate::LogScale), 1);
        let found = compare(&table(D, &random_units(72, units, D)), &gradients, gradients.len(), stream);
        assert!(found.is_ok_and(|found| found.norm < 0.1), "{hidden:?}: {found:?}");
    }
}

/// A batch in chunks is the batch.
#[test]
fn chunks_add_up() {
    let network = Network::new(D, &[8], Output::Binary).unwrap();
    let (mean, log_scale) = parameters(&network);
    let gradients = BatchGradients::new(&network, &point(&mean, &log_scale, ScaleCoordinate::LogScale), 2);
    let units = random_units(61, 25, D);
    let table = table(D, &units);
    let (norms, whole) = run(&gradients, &table, 4, &vec![0.5; units.len()]);
    let mut stream = stream(4);
    let mut work = gradients.start(&mut stream);
    let (mut sums, mut all, mut norms_of_chunk) = (vec![0.0; gradients.len()], Vec::new(), Vec::new());
    for first in (0..units.len()).step_by(7) {
        let chunk = first..units.len().min(first + 7);
        let words: Vec<u64> = chunk.clone().map(|_| stream.next_u64()).collect();
        gradients.norms(chunk.clone().map(|i| table.unit(i)), &words, &mut work, &mut norms_of_chunk);
        gradients.add(&mut work, &vec![0.5; chunk.len()], &mut sums);
        all.extend_from_slice(&norms_of_chunk);
    }
    assert_eq!(all, norms);
    crate::testing::close(&sums, &whole, 1e-12);
}

/// More samples, less variance, the same mean: the samples are averaged record by record.
#[test]
fn samples_are_averaged() {
    let network = Network::new(D, &[8], Output::Binary).unwrap();
    let (mean, log_scale) = parameters(&network);
    let point = point(&mean, &log_scale, ScaleCoordinate::LogScale);
    let table = table(D, &[vec![(vec![1.0, 0.4, -0.7, 0.2, 1.0], 1.0)]]);
    let moments = |samples: usize| {
        let gradients = BatchGradients::new(&network, &point, samples);
        let runs: Vec<Vec<f64>> = (0..400).map(|seed| run(&gradients, &table, seed, &[1.0]).1).collect();
        let mean: Vec<f64> = (0..runs[0].len()).map(|j| runs.iter().map(|r| r[j]).sum::<f64>() / 400.0).collect();
        let variance: f64 = runs.iter().map(|r| r.iter().zip(&mean).map(|(x, m)| (x - m).powi(2)).sum::<f64>()).sum::<f64>() / 400.0;
        (mean, variance)
    };
    let ((one, variance_of_one), (sixteen, variance_of_sixteen)) = (moments(1), moments(16));
    assert!(variance_of_sixteen < variance_of_one / 8.0, "{variance_of_one} {variance_of_sixteen}");
    let distance: f64 = one.iter().zip(&sixteen).map(|(a, b)| (a - b).powi(2)).sum();
    assert!(distance < 3.0 * variance_of_one / 400.0, "{distance}");
}

/// Σ of squares as (mantissa, exponent), so that nothing under- or overflows.
fn wide_length(values: &[f64]) -> (f64, i32) {
    let exponent = values.iter().filter(|x| **x != 0.0).map(|x| x.abs().log2().floor() as i32).max().unwrap_or(0);
    // In two steps: 2^1074 is no number.
    let half = 2f64.powi(-exponent / 2);
    let rest = 2f64.powi(-(exponent - exponent / 2));
    let total: f64 = values.iter().map(|x| (x * half * rest).powi(2)).sum();
    (total.sqrt(), exponent)
}

/// Path `sum` over the whole range of its inputs: whatever features, targets, weights and the noise of an output are, the norm that is told is
/// that of what is added, and what is added with the mechanism's factor is no longer than C.
#[test]
fn norms_are_those_of_what_is_added_over_the_whole_range() {
    let mut stream = stream(55);
    let mut seen = [0u32; 3];
    for case in 0..120 {
        let sd = if case % 3 == 0 { 0.7 } else { anything(&mut stream).abs().clamp(1e-300, 1e300) };
        let outputs = [Output::Number { noise_sd: sd }, Output::Number { noise_sd: sd }, Output::Binary, Output::Classes { count: 3 }];
        let hidden: [&[usize]; 3] = [&[], &[4], &[8, 7]];
        let network = Network::new(D, hidden[case % 3], outputs[case % 4]).unwrap();
        let d = network.dimension();
        // Weights of one size each time, so that they do not cancel to nothing but rarely.
        let size = 2f64.powi((stream.next_u32() % 160) as i32 - 80);
        let mean = public_normals(case as u64, d).iter().map(|x| x * size).collect();
        let variance = public_normals(900 + case as u64, d).iter().map(|x| x.exp() * size.clamp(1e-12, 1e12)).collect();
        let coordinate = if case % 2 == 0 { ScaleCoordinate::LogScale } else { ScaleCoordinate::HalfVariance { weight: 1.0 } };
        let point = MeanField::new(mean, variance, coordinate).unwrap();
        let gradients = BatchGradients::new(&network, &point, [1, 4][case % 2]);
        let units: Vec<Unit> = (0..24)
            .map(|unit| {
                let records = if unit % 6 == 5 { 3 } else { 1 };
                let class = matches!(network.output(), Output::Classes { .. });
                (0..records)
                    .map(|_| {
                        let wild = unit % 2 == 0;
                        let mut number = || if wild { anything(&mut stream) } else { f64::from(stream.next_u32()) / 2f64.powi(31) - 1.0 };
                        let row = (0..D).map(|_| number()).collect();
                        let target = anything(&mut stream);
                        (row, if class { f64::from(stream.next_u32() % 3) } else { target })
                    })
                    .collect()
            })
            .collect();
        let records = table(D, &units);
        compare(&records, &gradients, gradients.len(), ChaCha20Rng::seed_from_u64)
            .unwrap_or_else(|broken| panic!("{case}, {network:?}: {broken}"));
        for unit in 0..records.len() {
            let one = table(D, &units[unit..=unit]);
            let (norms, added) = run(&gradients, &one, 5, &[1.0]);
            let (length, exponent) = wide_length(&added);
            let told = norms[0] * 2f64.powi(-exponent / 2) * 2f64.powi(-(exponent - exponent / 2));
            assert!(
                (told - length).abs() <= length * 2f64.powi(-35),
                "{case}, unit {unit}: told {told:e}, added {length:e} (2^{exponent})"
            );
            seen[if norms[0] == 0.0 { 0 } else { 1 + usize::from(!(1e-20..1e20).contains(&norms[0])) }] += 1;
            for clip in [8e-31, 1e-9, 1.0, 1e9, 1e30] {
                let factor = if norms[0] <= clip { 1.0 } else { clip / norms[0] * (1.0 - 1e-12) };
                let (length, exponent) = wide_length(&run(&gradients, &one, 5, &[factor]).1);
                let length = length * 2f64.powi(exponent);
                assert!(length <= clip * (1.0 + 2f64.powi(-34)), "{case}, unit {unit}, C = {clip:e}: {length:e}");
            }
        }
    }
    // Nothing, ordinary numbers, and numbers far from them.
    assert!(seen.iter().all(|count| *count > 100), "{seen:?}");
}

/// Observation noise and targets at which the square of a derivative is below every number: the norm that is told is not 0 while something is added.
#[test]
fn a_gradient_whose_square_vanishes_is_not_told_as_none() {
    let network = Network::new(D, &[], Output::Number { noise_sd: 1e85 }).unwrap();
    let point = point(&[0.0; D], &[-1.0; D], ScaleCoordinate::LogScale);
    let gradients = BatchGradients::new(&network, &point, 1);
    for target in [1.0, -1.0, 1e80, -1e120] {
        let (norms, added) = run(&gradients, &table(D, &[vec![(vec![1.0; D], target)]]), 5, &[1.0]);
        assert_eq!(norms[0] == 0.0, added.iter().all(|x| *x == 0.0), "{target}: {norms:?} {added:?}");
    }
}
