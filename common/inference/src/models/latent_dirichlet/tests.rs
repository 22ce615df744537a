use chacha20::ChaCha20Rng;
use chacha20::rand_core::SeedableRng;
use dp_pvi_models::latent_dirichlet::document::{Document, DocumentLength, Sweeps};
use dp_pvi_models::latent_dirichlet::perplexity::held_out;
use dp_pvi_models::latent_dirichlet::{Shape, Topics};
use dp_pvi_privacy::mechanism::Term;

use super::DocumentStatistics;
use crate::capabilities::statistics::{ExpectedStatistics, total};
use crate::testing::{close, matrix, uniform, vector, vectors};
use dp_pvi_records::RecordTable;

fn documents(words: usize, counts: &[Vec<f64>]) -> RecordTable {
    let mut builder = RecordTable::builder(words);
    for row in counts {
        builder.start_unit();
        let (indices, values): (Vec<u32>, Vec<f64>) = (0_u32..).zip(row).filter(|(_, c)| **c != 0.0).map(|(v, &c)| (v, c)).unzip();
        builder.push(&indices, &values, 0.0).unwrap();
    }
    builder.finish()
}

/// Word by word from topic by topic.
fn by_word(rows: &[Vec<f64>]) -> Vec<f64> {
    (0..rows[0].len()).flat_map(|v| rows.iter().map(move |row| row[v])).collect()
}

#[test]
fn the_e_step_equals_the_reference() {
    let data = vectors("lda");
    let (lambda, counts) = (matrix(&data["lambda"]), matrix(&data["counts"]));
    let shape =
        Shape::new(lambda.len() as u32, lambda[0].len() as u32, data["alpha"].as_f64().unwrap(), data["eta"].as_f64().unwrap()).unwrap();
    let topics = Topics::new(shape, by_word(&lambda)).unwrap();
    let table = documents(shape.words(), &counts);
    for (record, expected) in table.records().zip(data["docs"].as_array().unwrap()) {
        let mut document = Document::default();
        assert!(document.fit(&topics, DocumentLength::AsIs, record.indices, record.values, Sweeps::Converged));
        close(document.gamma(), &vector(&expected["gamma"]), 1e-8);
        let norm = document.statistics(record.indices).map(|(_, s)| s * s).sum::<f64>().sqrt();
        close(
            &[document.bound(&topics, record.indices).0, norm],
            &[expected["bound"].as_f64().unwrap(), expected["stat_frobenius_norm"].as_f64().unwrap()],
            1e-8,
        );
    }
    // Fixed sweeps from the same start end at the same place.
    let sums = total(&DocumentStatistics::new(&topics, DocumentLength::AsIs, 3000), &table);
    close(&sums, &by_word(&matrix(&data["sufficient_stats"])), 1e-8);
    let held_out = held_out(&topics, table.records().map(|r| (r.indices, r.values)), Sweeps::Converged);
    close(
        &[held_out.bound, held_out.perplexity()],
        &[data["total_bound"].as_f64().unwrap(), data["perplexity_bound"].as_f64().unwrap()],
        1e-8,
    );
}

#[test]
fn no_document_exceeds_the_bound_and_one_word_attains_it() {
    let mut rng = ChaCha20Rng::seed_from_u64(3);
    let shape = Shape::new(4, 12, 0.1, 0.05).unwrap();
    let norm = |term: &Term| term.entries().map(|(_, x)| x * x).sum::<f64>().sqrt();
    let mut largest = 0.0_f64;
    for round in 0..40 {
        let mut lambda: Vec<f64> = (0..48).map(|_| 0.05 + (2.0 * uniform(&mut rng)).exp()).collect();
        if round % 3 == 0 {
            // One topic owns word 0.
            (0..4).for_each(|k| lambda[k] = if k == 0 { 1e6 } else { 0.05 });
        }
        let topics = Topics::new(shape, lambda).unwrap();
        let statistics = DocumentStatistics::new(&topics, DocumentLength::Exactly(500.0), 50);
        let mut rows: Vec<Vec<f64>> = (0..10).map(|_| (0..12).map(|_| (4.0 * uniform(&mut rng)).max(0.0).round()).collect()).collect();
        rows.push((0..12).map(|v| if v == 0 { 1.0 } else { 0.0 }).collect());
        rows.push((0..12).map(|v| if v == 0 { 1e300 } else { 1.0 }).collect());
        for record in documents(12, &rows).records() {
            let mut term = Term::default();
            statistics.add(record, &mut term);
            largest = largest.max(norm(&term));
            assert!(norm(&term) <= statistics.bound() * (1.0 + 1e-12));
        }
    }
    assert!(largest > 0.999 * 500.0, "{largest}");
}

#[test]
fn what_is_no_document_contributes_nothing_and_results_do_not_depend_on_what_came_before() {
    let shape = Shape::new(3, 5, 0.1, 0.05).unwrap();
    let topics = Topics::new(shape, shape.start(1, 50.0)).unwrap();
    let statistics = DocumentStatistics::new(&topics, DocumentLength::Exactly(10.0), 20);
    let good = vec![1.0, 0.0, 3.0, 2.0, 0.0];
    let alone = total(&statistics, &documents(5, std::slice::from_ref(&good)));
    let bad = [vec![0.0; 5], vec![f64::NAN, 1.0, 0.0, 0.0, 0.0], vec![-1.0, 5.0, 0.0, 0.0, 0.0], vec![f64::MAX; 5]];
    let rows: Vec<Vec<f64>> = bad.iter().cloned().chain([good]).collect();
    assert_eq!(total(&statistics, &documents(5, &rows)), alone);
    assert!((alone.iter().sum::<f64>() - 10.0).abs() < 1e-12);
}
