use chacha20::ChaCha20Rng;
use chacha20::rand_core::{Rng, SeedableRng};
use dp_pvi_math::expfam::gaussian::full::svec;
use dp_pvi_models::sigmoid_belief::hidden::Prepared;
use dp_pvi_models::sigmoid_belief::{BLOCKS, Network, Shape};
use dp_pvi_privacy::mechanism::batch;
use nalgebra::{DMatrix, DVector};

use super::{ClippedImages, ImageStatistics};
use crate::testing::{close, matrix, vector, vectors};
use dp_pvi_records::RecordTable;

fn images(pixels: usize, rows: &[Vec<f64>]) -> RecordTable {
    let mut builder = RecordTable::builder(pixels);
    for row in rows {
        builder.start_unit();
        let (indices, values): (Vec<u32>, Vec<f64>) = (0_u32..).zip(row).filter(|(_, v)| **v != 0.0).map(|(j, &v)| (j, v)).unzip();
        builder.push(&indices, &values, 0.0).unwrap();
    }
    builder.finish()
}

fn dense(rows: &[Vec<f64>]) -> DMatrix<f64> {
    DMatrix::from_fn(rows.len(), rows[0].len(), |i, j| rows[i][j])
}

#[test]
fn the_e_step_equals_the_reference() {
    let data = vectors("sbn");
    let (weights, variances) = (dense(&matrix(&data["W_mean"])), dense(&matrix(&data["W_var"])));
    let (c, b, v) = (vector(&data["c"]), vector(&data["b"]), vector(&data["v"]));
    let shape = Shape::new(c.len() as u32, b.len() as u32).unwrap();
    let network = Network::new(shape, weights, variances, DVector::from_vec(c), DVector::from_vec(b)).unwrap();
    let mut last = Vec::new();
    for step in data["trace"].as_array().unwrap() {
        let sweeps = u32::try_from(step["sweep"].as_u64().unwrap()).unwrap();
        let batch = Prepared::new(&network).fit(DMatrix::from_column_slice(v.len(), 1, &v), sweeps);
        close(batch.hidden(0), &vector(&step["pi"]), 1e-8);
        close(batch.omega(0), &vector(&step["omega"]), 1e-8);
        last = batch.pairs(0).collect();
    }
    close(&last, &svec(&dense(&matrix(&data["Ehh"]))), 1e-8);
}

#[test]
fn clipped_sums_are_within_the_clip_and_ignore_what_is_broken() {
    let network = Network::start(Shape::new(6, 3).unwrap(), 4, 0.5);
    let statistics = ImageStatistics::new(&network, [2.0, 1.0, 3.0, 0.5, 1.5, 1.0], 10);
    let rows = vec![
        vec![1.0, 0.0, 1.0, 0.0, 0.0, 1.0],
        vec![1.0; 6],
        vec![f64::NAN, 0.0, 0.0, 0.0, 0.0, 0.0],
        vec![f64::INFINITY, 1.0, 0.0, 0.0, 0.0, 0.0],
        vec![1e300, -7.0, 0.0, 0.0, 0.0, 0.0],
        vec![0.0; 6],
    ];
    let norm = |values: &[f64]| values.iter().map(|v| v * v).sum::<f64>().sqrt();
    for row in &rows {
        let table = images(6, std::slice::from_ref(row));
        let batch = statistics.fit(table.records());
        let mut free = vec![0.0; statistics.coordinates()];
        statistics.add_clipped(&batch, f64::MAX, &mut free);
        assert!(norm(&free) <= statistics.bound());
        let clip = 0.5;
        let mut clipped = vec![0.0; statistics.coordinates()];
        statistics.add_clipped(&batch, clip, &mut clipped);
        assert!(norm(&clipped) <= clip * (1.0 + 1e-12));
        let finite = row.iter().all(|v| v.is_finite());
        assert_eq!(norm(&clipped) > 0.0, finite);
        if finite {
            assert!((norm(&free) - statistics.norm(&batch, 0)).abs() < 1e-12 * norm(&free));
            let factor = (clip / norm(&free)).min(1.0);
            close(&clipped, &free.iter().map(|x| factor * x).collect::<Vec<_>>(), 1e-12);
        }
    }
    // One record more or less moves the sum by at most the clip.
    let sum = |rows: &[Vec<f64>]| {
        let mut sums = vec![0.0; statistics.coordinates()];
        let table = images(6, rows);
        statistics.add_clipped(&statistics.fit(table.records()), 0.5, &mut sums);
        sums
    };
    for left_out in 0..rows.len() {
        let neighbour: Vec<Vec<f64>> = rows.iter().enumerate().filter(|(i, _)| *i != left_out).map(|(_, row)| row.clone()).collect();
        let difference: Vec<f64> = sum(&rows).iter().zip(sum(&neighbour)).map(|(a, b)| a - b).collect();
        assert!(norm(&difference) <= 0.5 * (1.0 + 1e-9));
    }
    assert_eq!(BLOCKS, 6);
}

/// What the batched sum trusts: the same term to the last bit in every batch, and sums within their rounding bound.
#[test]
fn the_promises_of_the_batched_sum_are_kept() {
    let network = Network::start(Shape::new(40, 9).unwrap(), 4, 0.5);
    let statistics = ImageStatistics::new(&network, [2.0, 1.0, 3.0, 0.5, 1.5, 1.0], 10);
    let mut rng = ChaCha20Rng::seed_from_u64(4);
    for count in [1, 7, 53, 200] {
        let rows: Vec<Vec<f64>> =
            (0..count).map(|_| (0..40).map(|_| f64::from(u8::from(crate::testing::uniform(&mut rng) > 0.3))).collect()).collect();
        for (clip, weight) in [(1e-3, None), (0.5, Some(0.2)), (1e3, Some(0.2))] {
            let clipped = ClippedImages::new(statistics.clone(), clip, weight);
            batch::compare(&images(40, &rows), &clipped, clipped.coordinates(), ChaCha20Rng::seed_from_u64).unwrap();
        }
    }
}

/// Path `sum` over the whole range of its inputs: pixels from subnormal numbers to 1e300, and networks whose hidden units and E ω are as small as they
/// come. The told norm is that of what is added, and what is added is no longer than C.
#[test]
fn norms_of_images_are_those_of_what_is_added_over_the_whole_range() {
    const VISIBLE: usize = 6;
    let mut stream = ChaCha20Rng::seed_from_u64(77);
    let mut tiny = 0;
    for case in 0..60 {
        let shape = Shape::new(VISIBLE as u32, 3).unwrap();
        let start = Network::start(shape, case, 0.5);
        let size = 10f64.powi(case as i32 % 12 - 2);
        // Biases of either sign: σ(−700) is 1e-304.
        let bias = |len: usize, stream: &mut ChaCha20Rng| {
            DVector::from_fn(len, |_, _| 100.0 * size * (f64::from(stream.next_u32()) / 2f64.powi(31) - 1.0))
        };
        let (visible, hidden) = (bias(VISIBLE, &mut stream), bias(3, &mut stream));
        let network = Network::new(shape, start.weights().clone(), start.variances().clone(), visible, hidden).unwrap();
        let scales = shape.sensitivities().map(|scale| scale * 6f64.sqrt());
        let rows: Vec<Vec<f64>> = (0..20)
            .map(|_| {
                let pixel = |_| match stream.next_u32() % 5 {
                    0 => 0.0,
                    1 => 1.0,
                    2 => f64::from_bits(stream.next_u64() >> 12),
                    _ => 2f64.powi((stream.next_u32() % 1994) as i32 - 997),
                };
                (0..VISIBLE).map(pixel).collect()
            })
            .collect();
        let table = images(VISIBLE, &rows);
        for clip in [1e-30, 1e-3, 1.0] {
            for weight in [None, Some(0.4)] {
                let terms = ClippedImages::new(ImageStatistics::new(&network, scales, 3), clip, weight);
                batch::compare(&table, &terms, terms.coordinates(), ChaCha20Rng::seed_from_u64)
                    .unwrap_or_else(|broken| panic!("{case} {clip}: {broken}"));
            }
        }
        let fitted = ImageStatistics::new(&network, scales, 3).fit(table.records());
        tiny += usize::from(fitted.batch.hidden(0).iter().any(|p| *p < 1e-100));
    }
    assert!(tiny > 10, "{tiny}");
}

/// What the test above is for: numbers whose squares vanish. A network whose visible biases are far from 0 has E ω = tanh(c/2)/(2c) of 1e-160 and less; with
/// the pixels and hidden units as small, every square of an image's numbers is 0 although the numbers are not, and a norm that is distinguished from them
/// is 0 while something is added. Numbers as small as that are made 0 before norm and sum are taken ([`Prepared::fit`]), so both are 0. At the other end
/// stand records of 1e200, whose squares are no numbers: pixels are cut to 1 first.
#[test]
fn images_whose_squares_vanish_or_overflow_are_told_as_what_is_added() {
    const VISIBLE: usize = 6;
    let shape = Shape::new(VISIBLE as u32, 3).unwrap();
    let scales = shape.sensitivities().map(|scale| scale * 6f64.sqrt());
    let rows: Vec<Vec<f64>> =
        [0.0, 5e-324, 1e-300, 1e-200, 1e-160, 1e-100, 1e-30, 1.0, 1e200, 1e300].map(|size| vec![size; VISIBLE]).to_vec();
    let table = images(VISIBLE, &rows);
    let (mut vanishing, mut overflowing) = (0, 0);
    for bias in [1.0, 1e20, 1e60, 1e100, 1e155, 1e160, 1e200, 1e300] {
        for sign in [1.0, -1.0] {
            let (weights, variances) = (DMatrix::from_element(VISIBLE, 3, 1e-300), DMatrix::from_element(VISIBLE, 3, 1e-300));
            let (visible, hidden) = (DVector::from_element(VISIBLE, sign * bias), DVector::from_element(3, -700.0));
            let network = Network::new(shape, weights, variances, visible, hidden).unwrap();
            for (clip, weight) in [(1e-30, None), (1e-3, Some(0.4)), (1.0, None)] {
                let terms = ClippedImages::new(ImageStatistics::new(&network, scales, 3), clip, weight);
                batch::compare(&table, &terms, terms.coordinates(), ChaCha20Rng::seed_from_u64)
                    .unwrap_or_else(|broken| panic!("{bias:e} {clip}: {broken}"));
            }
            // Plain squares would fail: E ω as the formula has it, before it is made 0.
            let omega = 0.5 / bias;
            let plain = VISIBLE as f64 * omega * omega;
            let statistics = ImageStatistics::new(&network, scales, 3);
            let batch = statistics.fit(table.records());
            for (number, row) in rows.iter().enumerate() {
                let mut added = vec![0.0; statistics.coordinates()];
                let only: Vec<f64> = (0..rows.len()).map(|other| f64::from(u8::from(other == number))).collect();
                statistics.add(&batch, &only, &mut added);
                assert_eq!(statistics.norm(&batch, number) == 0.0, added.iter().all(|x| *x == 0.0), "{bias:e} {row:?}");
                assert!(statistics.norm(&batch, number) <= statistics.bound());
                vanishing += usize::from(plain == 0.0 && omega > 0.0 && row[0] < 1e-160);
                overflowing += usize::from((row[0] * row[0]).is_infinite());
            }
        }
    }
    assert!(vanishing > 10 && overflowing > 10, "{vanishing} {overflowing}");
}
