#![allow(clippy::unwrap_used, clippy::cast_precision_loss, clippy::cast_possible_truncation, clippy::cast_sign_loss)]

use super::document::{Document, DocumentLength, Sweeps};
use super::perplexity::held_out;
use super::recovery::{assignment, matched_l1};
use super::{LdaError, Shape, Topics, uniform};

/// φ and γ as the formulas say, in logarithms and without any of the kernel's scalings.
fn plain_e_step(topics: &Topics, indices: &[u32], counts: &[f64], sweeps: u32) -> (Vec<f64>, Vec<Vec<f64>>) {
    use dp_pvi_math::expfam::special::digamma;
    let (shape, k) = (topics.shape(), topics.shape().topics());
    let totals: Vec<f64> = (0..k).map(|t| topics.lambda().iter().skip(t).step_by(k).sum()).collect();
    let log_beta = |v: u32, t: usize| digamma(topics.lambda()[v as usize * k + t]) - digamma(totals[t]);
    let phi = |gamma: &[f64]| -> Vec<Vec<f64>> {
        let total: f64 = gamma.iter().sum();
        indices
            .iter()
            .map(|&v| {
                let row: Vec<f64> = (0..k).map(|t| (digamma(gamma[t]) - digamma(total) + log_beta(v, t)).exp()).collect();
                let sum: f64 = row.iter().sum();
                row.iter().map(|p| p / sum).collect()
            })
            .collect()
    };
    let mut gamma = vec![shape.alpha() + counts.iter().sum::<f64>() / k as f64; k];
    for _ in 0..sweeps {
        let phi = phi(&gamma);
        gamma = (0..k).map(|t| shape.alpha() + phi.iter().zip(counts).map(|(row, c)| row[t] * c).sum::<f64>()).collect();
    }
    let phi = phi(&gamma);
    (gamma, phi)
}

fn random_topics(topics: u32, words: u32, seed: u64) -> Topics {
    let shape = Shape::new(topics, words, 0.1, 0.05).unwrap();
    let mut state = seed;
    let lambda = (0..shape.coordinates()).map(|_| 0.05 + 5.0 * uniform(&mut state).powi(3)).collect();
    Topics::new(shape, lambda).unwrap()
}

fn random_document(words: u32, seed: u64) -> (Vec<u32>, Vec<f64>) {
    let mut state = seed;
    let indices: Vec<u32> = (0..words).filter(|_| uniform(&mut state) < 0.4).collect();
    let counts = indices.iter().map(|_| 1.0 + (4.0 * uniform(&mut state)).floor()).collect();
    (indices, counts)
}

#[test]
fn the_kernel_equals_the_formulas() {
    let topics = random_topics(7, 30, 1);
    let mut step = Document::default();
    for seed in 0..20 {
        let (indices, counts) = random_document(30, 100 + seed);
        for sweeps in [0, 1, 50] {
            assert!(step.fit(&topics, DocumentLength::AsIs, &indices, &counts, Sweeps::Exactly(sweeps)));
            let (gamma, phi) = plain_e_step(&topics, &indices, &counts, sweeps);
            step.gamma().iter().zip(&gamma).for_each(|(a, b)| assert!((a - b).abs() < 1e-11, "{a} {b}"));
            let statistics: Vec<_> = step.statistics(&indices).collect();
            assert!(statistics.windows(2).all(|pair| pair[0].0 < pair[1].0), "coordinates ascend");
            for (i, (&v, row)) in indices.iter().zip(&phi).enumerate() {
                step.phi(i).zip(row).for_each(|(a, b)| assert!((a - b).abs() < 1e-12));
                for (t, p) in row.iter().enumerate() {
                    let (index, value) = statistics[i * 7 + t];
                    assert_eq!(index, v * 7 + t as u32);
                    assert!((value - counts[i] * p).abs() < 1e-11);
                }
            }
        }
    }
}

#[test]
fn extreme_parameters_give_finite_numbers() {
    let shape = Shape::new(3, 4, super::SMALLEST_CONCENTRATION, super::SMALLEST_CONCENTRATION).unwrap();
    let mut lambda = vec![super::SMALLEST_CONCENTRATION; 12];
    lambda[1] = 1e12;
    let topics = Topics::new(shape, lambda).unwrap();
    let mut step = Document::default();
    assert!(step.fit(&topics, DocumentLength::Exactly(500.0), &[0, 3], &[1.0, 1e9], Sweeps::Exactly(50)));
    let (bound, words) = step.bound(&topics, &[0, 3]);
    assert!(bound.is_finite() && (words - 500.0).abs() < 1e-9);
    assert!(step.statistics(&[0, 3]).all(|(_, value)| value.is_finite()));
    // What is no document gives no result.
    for counts in [[0.0, 0.0], [f64::NAN, 1.0], [-1.0, 3.0], [f64::INFINITY, 1.0], [f64::MAX, f64::MAX]] {
        assert!(!step.fit(&topics, DocumentLength::Exactly(500.0), &[0, 3], &counts, Sweeps::Exactly(5)));
    }
    assert!(!step.fit(&topics, DocumentLength::AsIs, &[], &[], Sweeps::Exactly(5)));
    assert_eq!(Shape::new(3, 4, 1e-4, 1.0), Err(LdaError::Concentration));
    assert_eq!(Shape::new(1 << 20, 1 << 20, 1.0, 1.0), Err(LdaError::Size));
    assert_eq!(Topics::new(shape, vec![0.0; 12]), Err(LdaError::Topics));
}

#[test]
fn the_bound_rises_from_sweep_to_sweep() {
    let topics = random_topics(5, 40, 3);
    let mut step = Document::default();
    for seed in 0..10 {
        let (indices, counts) = random_document(40, seed);
        let mut last = f64::NEG_INFINITY;
        for sweeps in 0..30 {
            assert!(step.fit(&topics, DocumentLength::AsIs, &indices, &counts, Sweeps::Exactly(sweeps)));
            let bound = step.bound(&topics, &indices).0;
            assert!(bound > last - 1e-9, "{sweeps}: {bound} after {last}");
            last = bound;
        }
    }
}

#[test]
fn lengths_scale_counts_and_bound_the_norm() {
    let topics = random_topics(4, 20, 5);
    let mut step = Document::default();
    let (indices, counts) = random_document(20, 77);
    let total: f64 = counts.iter().sum();
    for (length, expected) in [
        (DocumentLength::AsIs, total),
        (DocumentLength::Exactly(500.0), 500.0),
        (DocumentLength::AtMost(500.0), total),
        (DocumentLength::AtMost(3.0), 3.0),
    ] {
        assert!(step.fit(&topics, length, &indices, &counts, Sweeps::Exactly(10)));
        let (sum, norm) = step.statistics(&indices).fold((0.0, 0.0), |(s, n), (_, x)| (s + x, n + x * x));
        assert!((sum - expected).abs() < 1e-9 * expected);
        assert!(f64::sqrt(norm) <= length.sensitivity());
    }
}

/// Twenty rounds over all documents.
fn without_noise(shape: Shape, mut lambda: Vec<f64>, documents: &[(Vec<u32>, Vec<f64>)]) -> Topics {
    let mut step = Document::default();
    for _ in 0..20 {
        let topics = Topics::new(shape, lambda.clone()).unwrap();
        let mut sums = vec![0.0; shape.coordinates()];
        for (indices, counts) in documents {
            assert!(step.fit(&topics, DocumentLength::AsIs, indices, counts, Sweeps::Exactly(50)));
            step.statistics(indices).for_each(|(index, value)| sums[index as usize] += value);
        }
        lambda = shape.m_step(&lambda, 1.0, &sums);
    }
    Topics::new(shape, lambda).unwrap()
}

#[test]
fn planted_topics_are_recovered_without_noise() {
    // Five topics over 50 words: topic k is mostly words 10k to 10k+9. Every document mixes two topics.
    let (k, v) = (5_usize, 50_usize);
    let mut state = 9;
    let drawn: Vec<Vec<f64>> = (0..k)
        .map(|t| {
            let row: Vec<f64> = (0..v).map(|w| if w / 10 == t { 0.5 + uniform(&mut state) } else { 0.02 }).collect();
            let sum: f64 = row.iter().sum();
            row.iter().map(|p| p / sum).collect()
        })
        .collect();
    let draw = |row: &[f64], state: &mut u64| {
        let u = uniform(state);
        let mut sum = 0.0;
        row.iter()
            .position(|p| {
                sum += p;
                u < sum
            })
            .unwrap_or(v - 1)
    };
    let documents: Vec<(Vec<u32>, Vec<f64>)> = (0..600)
        .map(|_| {
            let (a, b, share) = ((5.0 * uniform(&mut state)) as usize, (5.0 * uniform(&mut state)) as usize, uniform(&mut state));
            let mut counts = vec![0.0; v];
            for _ in 0..60 {
                let topic = if uniform(&mut state) < share { a } else { b };
                counts[draw(&drawn[topic], &mut state)] += 1.0;
            }
            (0..v as u32).filter(|&w| counts[w as usize] > 0.0).map(|w| (w, counts[w as usize])).unzip()
        })
        .collect();
    let (train, test) = documents.split_at(500);
    let shape = Shape::new(5, 50, 0.2, 0.05).unwrap();
    // Some starts end in a local optimum where one topic covers two; the bound of the training documents tells them apart.
    let (_, topics) = (0..3)
        .map(|seed| {
            let topics = without_noise(shape, shape.start(seed, 3000.0), train);
            let bound = held_out(&topics, train.iter().map(|(i, c)| (&i[..], &c[..])), Sweeps::Exactly(50)).bound;
            (bound, topics)
        })
        .max_by(|a, b| a.0.total_cmp(&b.0))
        .unwrap();
    let l1 = matched_l1(&topics.distributions(), &drawn);
    assert!(l1 < 0.2, "{l1}");
    let pairs = |documents: &[(Vec<u32>, Vec<f64>)]| held_out(&topics, documents.iter().map(|(i, c)| (&i[..], &c[..])), Sweeps::Converged);
    let perplexity = pairs(test).perplexity();
    assert!(perplexity < 30.0, "{perplexity}: uniform is 50");
    // The ten words of the topic that matches topic 0 best are words 0 to 9.
    let best = (0..5).max_by(|&a, &b| topics.distributions()[a][3].total_cmp(&topics.distributions()[b][3])).unwrap();
    assert!(topics.top_words(best, 10).iter().all(|(word, _)| *word < 10));
}

#[test]
fn the_m_step_clamps_and_damps() {
    let shape = Shape::new(1, 3, 0.1, 0.5).unwrap();
    assert_eq!(shape.m_step(&[1.0, 2.0, 3.0], 0.5, &[4.0, -9.0, 0.0]), vec![2.75, 1.25, 1.75]);
}

#[test]
fn assignments_are_the_cheapest_of_all_permutations() {
    let mut state = 4;
    for n in 1..6_usize {
        for _ in 0..30 {
            let cost: Vec<Vec<f64>> = (0..n).map(|_| (0..n).map(|_| uniform(&mut state)).collect()).collect();
            let total = |columns: &[usize]| columns.iter().enumerate().map(|(r, &c)| cost[r][c]).sum::<f64>();
            let found = assignment(&cost);
            let mut sorted = found.clone();
            sorted.sort_unstable();
            assert_eq!(sorted, (0..n).collect::<Vec<_>>());
            let mut best = f64::INFINITY;
            let mut columns: Vec<usize> = (0..n).collect();
            permutations(&mut columns, 0, &mut |p| best = best.min(total(p)));
            assert!((total(&found) - best).abs() < 1e-12);
        }
    }
}

fn permutations(items: &mut Vec<usize>, from: usize, visit: &mut impl FnMut(&[usize])) {
    if from == items.len() {
        return visit(items);
    }
    for i in from..items.len() {
        items.swap(from, i);
        permutations(items, from + 1, visit);
        items.swap(from, i);
    }
}
