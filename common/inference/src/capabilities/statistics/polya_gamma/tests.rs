use chacha20::ChaCha20Rng;
use chacha20::rand_core::SeedableRng;
use dp_pvi_math::expfam::any::{Family, Gaussian, Standard};
use dp_pvi_math::expfam::gaussian::full::{svec, triangle};
use dp_pvi_math::polya_gamma::{m_step, mean};
use dp_pvi_privacy::mechanism::Term;
use nalgebra::{DMatrix, DVector};

use super::{Blocks, LogisticStatistics, total_bound};
use crate::capabilities::statistics::{ExpectedStatistics, total};
use crate::testing::{close, matrix, random_units, rows, table, uniform, vector, vectors};
use dp_pvi_records::RecordTable;

fn prior(d: usize) -> Gaussian {
    let family = Family::FullGaussian { dimension: d };
    Gaussian::from_natural(family, family.isotropic(0.0, 1.0)).unwrap()
}

/// Batch fixed point: the first statistic once, the second every round.
fn fixed_point(prior: &Gaussian, data: &RecordTable) -> Gaussian {
    let d = prior.family().dimension();
    let both = LogisticStatistics::new(prior, Blocks::Both { first: 1.0, second: 1.0 }, 1.0);
    let first = total(&both, data)[..d].to_vec();
    let mut q = prior.clone();
    for _ in 0..2000 {
        let second = total(&LogisticStatistics::new(&q, Blocks::Second { scale: 1.0 }, 1.0), data);
        let next = m_step(prior, &first, &second).unwrap();
        let change = next.natural().iter().zip(q.natural()).map(|(a, b)| (a - b).abs()).fold(0.0, f64::max);
        q = next;
        if change < 1e-14 {
            break;
        }
    }
    q
}

/// z = 0: rounds without noise end at the reference's fixed point.
#[test]
fn the_fixed_point_equals_the_reference() {
    let (data, expected) = (vectors("logreg"), vectors("pg_vb"));
    let (x, y) = (matrix(&data["X"]), vector(&data["y"]));
    let table = table(x[0].len(), &rows(&x, &y));
    let prior = prior(x[0].len());
    let q = fixed_point(&prior, &table);
    let Standard::Full(standard) = q.standard() else { panic!("full covariance") };
    close(standard.mean().as_slice(), &vector(&expected["mean"]), 1e-8);
    close(standard.covariance().as_slice(), &matrix(&expected["cov"]).concat(), 1e-8);
    let statistics = LogisticStatistics::new(&q, Blocks::Second { scale: 1.0 }, 1.0);
    let c: Vec<f64> = table.records().map(|record| statistics.tilt(record)).collect();
    close(&c, &vector(&expected["c"]), 1e-8);
    close(&c.iter().map(|&c| mean(c)).collect::<Vec<_>>(), &vector(&expected["E_omega"]), 1e-8);
    close(&[total_bound(&q, &table) - q.kl(&prior)], &[expected["lower_bound"].as_f64().unwrap()], 1e-8);
}

#[test]
fn statistics_are_those_of_the_definition() {
    let d = 5;
    let data = table(d, &random_units(3, 20, d));
    let family = Family::FullGaussian { dimension: d };
    let natural = (0..d).map(|j| 0.3 * j as f64).chain(svec(&DMatrix::from_fn(d, d, |i, j| if i == j { 3.0 } else { 0.5 }))).collect();
    let q = Gaussian::from_natural(family, natural).unwrap();
    let sums = total(&LogisticStatistics::new(&q, Blocks::Both { first: 2.0, second: 0.5 }, 4.0), &data);
    let about_mean = total(&LogisticStatistics::new(&q, Blocks::Centred { first: 2.0, second: 0.5 }, 4.0), &data);
    let (mut first, mut second) = (DVector::zeros(d), DMatrix::zeros(d, d));
    let Standard::Full(standard) = q.standard() else { panic!("full covariance") };
    let moment = standard.covariance() + standard.mean() * standard.mean().transpose();
    for record in data.records() {
        let mut x = DVector::zeros(d);
        record.entries().for_each(|(j, v)| x[j] = v);
        let c = (x.transpose() * &moment * &x)[0].sqrt();
        first += &x * (record.target - 0.5);
        second += &x * x.transpose() * ((c / 2.0).tanh() / (2.0 * c));
    }
    close(&sums[..d], (&first / 2.0).as_slice(), 1e-12);
    close(&sums[d..], &svec(&(&second * 2.0)), 1e-12);
    close(&about_mean[..d], ((&first - &second * standard.mean()) / 2.0).as_slice(), 1e-12);
    close(&about_mean[d..], &sums[d..], 1e-15);
}

/// Random search and adversarial records: no term is longer than the bound, and the bound is attained.
#[test]
fn sensitivities_hold_for_adversarial_records() {
    let (d, bound) = (4, 1.7);
    let mut rng = ChaCha20Rng::seed_from_u64(5);
    let mut largest = [0.0_f64; 3];
    for round in 0..300 {
        let family = Family::FullGaussian { dimension: d };
        // An extremely certain posterior at 0 makes every E ω ¼; an uncertain one makes it small.
        let scale = if round % 2 == 0 { 1e-16 } else { 1.0 };
        let q = Gaussian::from_natural(family, family.isotropic(0.0, scale)).unwrap();
        let mut row: Vec<f64> = (0..d).map(|_| uniform(&mut rng)).collect();
        if round % 3 == 0 {
            (1..d).for_each(|j| row[j] = 0.0);
        }
        let norm = row.iter().map(|x| x * x).sum::<f64>().sqrt();
        row.iter_mut().for_each(|x| *x *= bound / norm);
        // A posterior that is certain of the wrong class: the residual is nearly 1, and E ω nearly 0.
        let mut wrong = q.natural().to_vec();
        let sign = if round % 2 == 0 { 1.0 } else { -1.0 };
        (0..d).for_each(|j| wrong[j] = sign * 1e18 * row[j]);
        let wrong = Gaussian::from_natural(family, wrong).unwrap();
        let data = table(d, &rows(&[row], &[f64::from(round % 2)]));
        let length = |statistics: &LogisticStatistics<'_>| {
            let mut term = Term::default();
            statistics.add(data.records().next().unwrap(), &mut term);
            assert!(term.entries().zip(term.entries().skip(1)).all(|(before, after)| before.0 < after.0), "coordinates ascend");
            let length = term.entries().map(|(_, x)| x * x).sum::<f64>().sqrt();
            assert!(length <= statistics.bound() * (1.0 + 1e-12), "{length} {}", statistics.bound());
            length / statistics.bound()
        };
        largest[0] = largest[0].max(length(&LogisticStatistics::new(&q, Blocks::Both { first: 0.7, second: 1.3 }, bound)));
        largest[1] = largest[1].max(length(&LogisticStatistics::new(&q, Blocks::Second { scale: 1.0 }, bound)));
        length(&LogisticStatistics::new(&q, Blocks::Centred { first: 0.7, second: 1.3 }, bound));
        // The first block alone attains R.
        largest[2] = largest[2].max(length(&LogisticStatistics::new(&wrong, Blocks::Centred { first: 0.7, second: 1e9 }, bound)));
    }
    assert!(largest.iter().all(|l| *l > 0.999), "{largest:?}");
    // Neither NaN nor infinities nor a distribution that overflows gets through.
    let data = table(d, &rows(&[vec![f64::NAN; 4], vec![f64::INFINITY; 4], vec![1e300; 4], vec![1.0; 4]], &[1.0, 0.0, 1.0, f64::NAN]));
    let q = prior(d);
    let sums = total(&LogisticStatistics::new(&q, Blocks::Second { scale: 1.0 }, bound), &data);
    assert!(sums.len() == triangle(d) && sums.iter().all(|s| s.is_finite()));
}
