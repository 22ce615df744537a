use dp_pvi_schema::EntryKind as Entry;
use nalgebra::{DMatrix, DVector};

use super::{Estimate, Seen};
use crate::methods::noise_aware::correlations::{Correlations, Products};
use dp_pvi_math::draws::Draws;

#[test]
fn a_cut_normal_density_has_these_moments() {
    for (value, variance, mean) in [(-1.0, 4.0, 3.0), (2.0, 0.25, 0.5), (5.0, 9.0, f64::INFINITY), (-30.0, 4.0, 1.0)] {
        let estimate = Estimate { value, variance }.not_negative(mean);
        let (mut total, mut first, mut second) = (0.0, 0.0, 0.0);
        for k in 0..200_000 {
            let x = (f64::from(k) + 0.5) * 1e-4;
            let density = (-0.5 * (x - value).powi(2) / variance - x / mean + 0.5 * value.min(0.0).powi(2) / variance).exp();
            (total, first, second) = (total + density, first + density * x, second + density * x * x);
        }
        let expected = first / total;
        assert!((estimate.value - expected).abs() < 1e-4 * (1.0 + expected), "{estimate:?} {expected}");
        assert!((estimate.variance - (second / total - expected * expected)).abs() < 1e-4 * (1.0 + estimate.variance), "{estimate:?}");
    }
}

#[test]
fn two_tellings_are_weighted_by_their_precisions() {
    let both = Estimate { value: 1.0, variance: 1.0 }.and(Estimate { value: 4.0, variance: 0.5 });
    assert!((both.value - 3.0).abs() < 1e-12 && (both.variance - 1.0 / 3.0).abs() < 1e-12);
    let known = Estimate { value: 2.0, variance: 3.0 };
    assert_eq!((Estimate::NOTHING.and(known), known.and(Estimate::NOTHING)), (known, known));
    let exact = Estimate { value: 7.0, variance: 0.0 };
    assert_eq!((exact.and(known), known.and(exact)), (exact, exact));
}

/// A category of six levels, a boolean, a number and an intercept.
fn entries() -> Vec<Entry> {
    let levels = (0..5).map(|_| Entry::Indicator { group: 0 });
    levels.chain([Entry::Indicator { group: 1 }, Entry::Number, Entry::Intercept]).collect()
}

/// H of 1,000 records with shares that are drawn.
fn drawn(random: &mut Draws) -> DMatrix<f64> {
    let shares: Vec<f64> = (0..6).map(|_| -(1.0 - 0.999_999 * random.uniform()).ln()).collect();
    let total: f64 = shares.iter().sum();
    let (yes, slope) = (0.5 * random.uniform(), random.normal());
    let mut matrix = DMatrix::zeros(8, 8);
    for (level, share) in shares.iter().enumerate() {
        for (is, chance) in [(0.0, 1.0 - yes), (1.0, yes)] {
            for number in [-1.0, 1.0] {
                let mut row = DVector::zeros(8);
                if level < 5 {
                    row[level] = 1.0;
                }
                (row[5], row[6], row[7]) = (is, number + 0.3 * slope * is, 1.0);
                matrix += &row * row.transpose() * (1000.0 * share / total * chance / 2.0);
            }
        }
    }
    matrix
}

/// Squared errors are as large as the variances say, with and without a Gram matrix, and smaller than those of what was released.
#[test]
fn errors_are_as_large_as_they_are_said_to_be() {
    for with_gram in [false, true] {
        let (mut random, mut squares, mut count, mut own, mut released) = (Draws::of(b"errors"), 0.0, 0.0, 0.0, 0.0);
        for _ in 0..400 {
            let truth = drawn(&mut random);
            let (sd, gram_sd) = (60.0, 40.0);
            let mut noisy = |sd: f64| {
                let mut noise = DMatrix::zeros(8, 8);
                for (i, j) in (0..8).flat_map(|i| (i..8).map(move |j| (i, j))) {
                    let e = sd * random.normal() * if i == j { 1.0 } else { std::f64::consts::FRAC_1_SQRT_2 };
                    (noise[(i, j)], noise[(j, i)]) = (e, e);
                }
                &truth + noise
            };
            let (seen, gram) = (noisy(sd), noisy(gram_sd));
            let variances = DMatrix::from_fn(8, 8, |i, j| if i == j { sd * sd } else { 0.5 * sd * sd });
            let products = with_gram.then(|| Products { matrix: gram, noise: gram_sd * gram_sd, raised: DMatrix::zeros(8, 8) });
            let correlations = Correlations::of_entries(entries(), products);
            let diagonal = seen.diagonal();
            let (matrix, doubt) = correlations.curvature(&Seen {
                diagonal: &diagonal,
                diagonal_noise: &variances.diagonal(),
                entries: Some((&seen, &variances)),
            });
            for (i, j) in (0..7).flat_map(|i| (i..7).map(move |j| (i, j))) {
                let error = matrix[(i, j)] - truth[(i, j)];
                if doubt[(i, j)] == 0.0 {
                    assert!(error.abs() < 1e-9, "two levels have no product");
                    continue;
                }
                squares += error * error / doubt[(i, j)];
                own += error * error;
                released += (seen[(i, j)] - truth[(i, j)]).powi(2);
                count += 1.0;
            }
        }
        let ratio: f64 = squares / count;
        assert!((0.5..1.3).contains(&ratio), "{with_gram}: squared errors are {ratio} of what they are said to be");
        assert!(own < 0.5 * released, "{with_gram}: {own} {released}");
    }
}

#[test]
fn without_noise_it_is_what_was_released() {
    let truth = drawn(&mut Draws::of(b"none"));
    let none = DMatrix::zeros(8, 8);
    let seen = Seen { diagonal: &truth.diagonal(), diagonal_noise: &none.diagonal(), entries: Some((&truth, &none)) };
    let (matrix, doubt) = Correlations::of_entries(entries(), None).curvature(&seen);
    assert!((matrix - truth).norm() < 1e-9 && doubt.norm() < 1e-9);
}

/// Eigenvalues that were raised to a floor of 4 are taken for 2, and the matrix knows in which directions.
#[test]
fn eigenvalues_below_a_floor_are_not_taken_for_known() {
    let rotation = DMatrix::from_row_slice(3, 3, &[0.6, 0.8, 0.0, -0.8, 0.6, 0.0, 0.0, 0.0, 1.0]);
    let of = |values: [f64; 3]| &rotation * DMatrix::from_diagonal(&DVector::from_row_slice(&values)) * rotation.transpose();
    let products = Products::new(of([50.0, 4.0, 4.0]), 1.0, 4.0);
    assert!((products.matrix - of([50.0, 2.0, 2.0])).norm() < 1e-9 && (products.raised - of([0.0, 4.0, 4.0])).norm() < 1e-9);
    // One alone, too; and none where there is no floor.
    let one = Products::new(of([50.0, 5.0, 4.0]), 1.0, 4.0);
    assert!((one.matrix - of([50.0, 5.0, 2.0])).norm() < 1e-9);
    assert_eq!(Products::new(of([50.0, 5.0, 4.0]), 1.0, 0.0).raised.norm(), 0.0);
}

/// Of weighted curvatures the unit is the intercept's entry. Where that is lost in noise, nothing is taken from the Gram matrix, and nothing is taken for exact.
#[test]
fn a_unit_that_is_not_known_leaves_what_was_released() {
    use dp_pvi_models::ModelSpec;
    use dp_pvi_models::logistic_regression::LogisticRegression;
    let model: ModelSpec = LogisticRegression {}.into();
    let products = Products::new(DMatrix::from_diagonal(&DVector::from_row_slice(&[500.0, 100.0])), 4.0, 0.0);
    let correlations = Correlations::of_entries(vec![Entry::Number, Entry::Intercept], Some(products)).of_model(model);
    let seen = DMatrix::from_row_slice(2, 2, &[420.0, 0.0, 0.0, -1.0]);
    let noise = DMatrix::from_row_slice(2, 2, &[900.0, 450.0, 450.0, 900.0]);
    let (matrix, doubt) =
        correlations.curvature(&Seen { diagonal: &seen.diagonal(), diagonal_noise: &noise.diagonal(), entries: Some((&seen, &noise)) });
    assert!((matrix[(0, 0)] - 420.0).abs() < 1.0 && doubt[(0, 0)] > 800.0, "{} {}", matrix[(0, 0)], doubt[(0, 0)]);
}

/// At slopes of 0 all records have the same weight: the curvature there can be compared with that elsewhere.
#[test]
fn weights_where_the_predictor_does_not_vary_have_the_same_unit() {
    use dp_pvi_models::ModelSpec;
    use dp_pvi_models::logistic_regression::LogisticRegression;
    let model: ModelSpec = LogisticRegression {}.into();
    let products = Products::new(DMatrix::from_diagonal(&DVector::from_row_slice(&[250.0, 250.0])), 1.0, 0.0);
    let correlations = Correlations::of_entries(vec![Entry::Number, Entry::Intercept], Some(products)).of_model(model);
    let none = DVector::from_row_slice(&[0.0, 0.0]);
    let close = correlations.difference([&none, &DVector::from_row_slice(&[1e-3, 0.0])], 200.0).unwrap();
    assert!(close.norm() < 1e-3, "{}", close.norm());
    let far = correlations.difference([&none, &DVector::from_row_slice(&[1.0, 0.0])], 200.0).unwrap();
    assert!(far[(1, 1)] < -20.0 && far[(1, 1)] > -60.0, "{far}");
}
