#![allow(clippy::unwrap_used, clippy::cast_possible_truncation, clippy::cast_precision_loss)]

use dp_pvi_accounting::DpEvent;
use dp_pvi_math::expfam::gaussian::full::svec;
use dp_pvi_privacy::sampler::DiscreteGaussianSampler;
use rand_core::SeedableRng;

use super::*;
use dp_pvi_posterior::task::{RawTask, ResolveContext};

const SCHEMA: &str = "[[columns]]\nname = \"y\"\nkind = \"boolean\"\ntrue_values = [\"1\"]\nfalse_values = [\"0\"]\n[[columns]]\nname = \"a\"\nkind = \"number\"\nlower = -1\nupper = 1\n\
    centre = 0\nscale = 1\n[[columns]]\nname = \"b\"\nkind = \"number\"\nlower = -1\nupper = 1\ncentre = 0\nscale = 1\n";

fn task(model: &str, update: &str, privacy: &str) -> ResolvedTask {
    let approximation = if model.contains("approximation") { "" } else { "approximation = \"mean-field\"\n" };
    let text = format!(
        "[model]\nfamily = \"logistic-regression\"\noutcome = \"y\"\nprior_units = \"encoded\"\n{approximation}{model}\n[schema]\nfile = \"s\"\n[pvi]\nschedule = \"synchronous\"\nrounds = 3\n{update}\n[privacy]\nunit = \"record\"\n\
         adjacency = \"replace-one\"\ndelta = 1e-5\n{privacy}trust = \"local\"\nmax_units = 20000\n"
    );
    let context = ResolveContext { name: "f", update_deadline_seconds: 60, min_sites: 1, expected_sites: 3 };
    RawTask::parse(&text).unwrap().resolve(SCHEMA, context).unwrap()
}

fn natural(model: &str) -> ResolvedTask {
    task(model, "update = \"natural-gradient\"", "epsilon = 1.0\n")
}

const FULL: &str = "approximation = \"full-covariance\"";

/// The shape of a visit of a site with so many units.
fn moments(task: &ResolvedTask, visit: u32, units: u64) -> Moments {
    let UpdateSpec::NaturalGradient(spec) = &task.update else { panic!("natural gradients") };
    super::moments(&task.setting(), spec, visit, units).unwrap().unwrap()
}

fn admits(moments: &Moments, values: &[f64]) -> Result<(), Misfit> {
    Shape::Moments(moments.clone()).admits(values.iter().copied())
}

/// Noise of a visit on every coordinate, and the sum of so many records of these rows and residuals, clipped as a site clips them.
fn honest(task: &ResolvedTask, visit: u32, records: &[([f64; 3], f64)], rng: &mut chacha20::ChaCha20Rng) -> Vec<f64> {
    let (event, _) = task.sum_of_site(visit, 1).unwrap().unwrap();
    let DpEvent::DiscreteGaussian(release) = event else { panic!("one sum") };
    let dp_pvi_names::PayloadKind::Lattice { exponent } = task.message(visit).unwrap().kind else { panic!("a lattice vector") };
    let step = 2f64.powi(exponent);
    let sampler = DiscreteGaussianSampler::new(release.scale).unwrap();
    let mut sum: Vec<f64> = (0..release.dimension).map(|_| sampler.sample(rng).unwrap() as f64 * step).collect();
    let most = (release.bound_squared as f64).sqrt() * step;
    for (row, residual) in records {
        let x = DVector::from_row_slice(row);
        let matrix = svec(&(&x * x.transpose() * (residual.abs() * (1.0 - residual.abs()))));
        let term: Vec<f64> =
            if visit == 0 { svec(&(&x * x.transpose() * 0.25)) } else { x.iter().map(|x| residual * x).chain(matrix).collect() };
        let norm = term.iter().map(|v| v * v).sum::<f64>().sqrt();
        sum.iter_mut().zip(&term).for_each(|(sum, value)| *sum += (value * (most / norm).min(1.0) / step).trunc() * step);
    }
    sum
}

/// The stated bound is 1e-18; here every one of thousands of draws passes, of sites with no record, with records that are all alike, and with as many of the longest as are declared.
#[test]
fn honest_parts_pass_whatever_their_records_are() {
    let task = natural(FULL);
    assert_eq!(task.dimension, 3);
    let mut rng = chacha20::ChaCha20Rng::from_seed([3; 32]);
    let longest = [1.0, 1.0, 1.0];
    for visit in [0, 1] {
        let shape = moments(&task, visit, 40);
        for records in
            [vec![], vec![(longest, 0.999); 40], vec![(longest, -0.5); 40], vec![([1.0, -1.0, 1.0], 0.2), ([1.0, 1.0, -1.0], -0.9)]]
        {
            for _ in 0..500 {
                let sum = honest(&task, visit, &records, &mut rng);
                assert_eq!(admits(&shape, &sum), Ok(()), "visit {visit}, {} records", records.len());
                assert_eq!(shape.factor_within(&sum), 1.0);
            }
        }
    }
}

/// The tail that is stated: the largest eigenvalue of many noise matrices is below b by more than a factor, and b is no giant.
#[test]
fn the_bound_on_a_direction_holds_and_is_no_giant() {
    let task = natural(FULL);
    let mut rng = chacha20::ChaCha20Rng::from_seed([5; 32]);
    let shape = moments(&task, 0, 1);
    let mut least = f64::INFINITY;
    for _ in 0..4000 {
        let noise = honest(&task, 0, &[], &mut rng);
        least = least.min(unsvec(&noise, 3).symmetric_eigenvalues().min());
    }
    assert!(-least < shape.below_zero() && shape.below_zero() < 4.0 * -least, "{least} {}", shape.below_zero());
}

/// One number off the diagonal, within the norm that so many units have.
#[test]
fn products_of_no_records_are_refused() {
    let task = natural(FULL);
    for (visit, at) in [(0, 0), (1, 3)] {
        let shape = moments(&task, visit, 20_000);
        let mut values = vec![0.0; if visit == 0 { 6 } else { 9 }];
        values[at + 1] = 0.9 * shape.most;
        assert_eq!(admits(&shape, &values), Err(Misfit::Negative), "an entry beside a diagonal of nothing");
        values[at] = shape.most;
        assert!(admits(&shape, &values).is_err());
        let mut values = vec![0.0; values.len()];
        values[at] = -2.0 * shape.below_zero();
        assert_eq!(admits(&shape, &values), Err(Misfit::Negative));
    }
}

/// A trace of more than N rows, although the length of the vector is that of N: three directions at once.
#[test]
fn gradient_and_trace_share_what_the_units_have() {
    let task = natural(FULL);
    let shape = moments(&task, 1, 20_000);
    let of = |gradient: f64, trace: f64| {
        let third = trace * shape.most / 3.0;
        [gradient * shape.most, 0.0, 0.0, third, 0.0, 0.0, third, 0.0, third]
    };
    assert_eq!(admits(&shape, &of(0.0, 0.99)), Ok(()));
    assert_eq!(admits(&shape, &of(0.99, 0.0)), Ok(()));
    assert_eq!(admits(&shape, &of(0.7, 0.7)), Ok(()));
    assert_eq!(admits(&shape, &of(0.0, 1.2)), Err(Misfit::Large));
    assert_eq!(admits(&shape, &of(0.85, 0.85)), Err(Misfit::Large));
    // A site with more records than it declared sends what fits, in the same direction.
    let long: Vec<f64> = of(0.85, 0.85).to_vec();
    let factor = shape.factor_within(&long);
    assert!(factor > 0.7 && factor < 1.0, "{factor}");
    assert_eq!(admits(&shape, &long.iter().map(|v| v * factor).collect::<Vec<_>>()), Ok(()));
}

#[test]
fn a_mean_field_has_the_shape_of_its_diagonal() {
    let shape = moments(&natural(""), 1, 1000);
    let good = [0.3 * shape.most, 0.0, 0.0, 0.4 * shape.most, 0.1, 0.1];
    assert_eq!(admits(&shape, &good), Ok(()));
    let mut negative = good;
    negative[4] = -1.01 * shape.below_zero();
    assert_eq!(admits(&shape, &negative), Err(Misfit::Negative));
    assert_eq!(admits(&shape, &[f64::NAN; 6]), Err(Misfit::Large));
}

/// At a state where the coefficients are far out, records that agree have nothing more to say.
#[test]
fn nobody_pushes_the_posterior_on_in_its_own_direction() {
    let task = natural(FULL);
    let mut state = task.rule().initial();
    // The point of the round follows λ: (0, 3, 0) with the precision 100.
    let len = task.family().len();
    for (i, j) in [(0, 3), (1, 6), (2, 8)] {
        state[j] = 100.0;
        state[i] = if i == 1 { 300.0 } else { 0.0 };
    }
    state[len + 1] = 3.0;
    let Some(Shape::Moments(shape)) = of_site(&task, 1, 20_000, At { state: &state, first: None }).unwrap() else {
        panic!("a sum of moments")
    };
    let of = |place: usize, value: f64| {
        let mut values = [0.0; 9];
        values[place] = value;
        admits(&shape, &values)
    };
    // On and on: 20,000 records give a third of 0.28 of them, and no more; back: all that they are.
    assert_eq!((of(1, 0.09 * 20_000.0), of(1, 0.2 * 20_000.0)), (Ok(()), Err(Misfit::Along)));
    assert_eq!((of(1, -0.9 * shape.most), of(0, 0.9 * shape.most)), (Ok(()), Ok(())));
    // Curvature, too: at most 0.44/9 of each.
    let weight = shape.weight;
    assert_eq!((of(6, 0.04 * weight * 20_000.0), of(6, 0.09 * weight * 20_000.0)), (Ok(()), Err(Misfit::Along)));
    // Honest records at this point pass, whatever they are.
    let mut rng = chacha20::ChaCha20Rng::from_seed([9; 32]);
    let few = of_site(&task, 1, 40, At { state: &state, first: None }).unwrap().unwrap();
    let Shape::Moments(few) = few else { panic!("a sum of moments") };
    for row in [[1.0, 1.0, 1.0], [0.2, 0.4, 1.0], [1.0, -0.5, 0.3]] {
        for label in [0.0, 1.0] {
            let residual = label - 1.0 / (1.0 + (-3.0_f64 * row[1]).exp());
            assert_eq!(admits(&few, &honest(&task, 1, &vec![(row, residual); 40], &mut rng)), Ok(()), "{row:?} {label}");
        }
    }
}

/// Who told of no records at the first visit has next to nothing to say later, and honest records go together.
#[test]
fn a_later_part_is_of_the_records_of_the_first_visit() {
    let task = natural(FULL);
    let state = task.rule().initial();
    let mut rng = chacha20::ChaCha20Rng::from_seed([11; 32]);
    let of = |units: u64, first: &[f64], later: &[f64]| {
        of_site(&task, 1, units, At { state: &state, first: Some(first) }).unwrap().unwrap().admits(later.iter().copied())
    };
    for records in [vec![], vec![([1.0, 1.0, 1.0], 0.5); 40], vec![([1.0, -1.0, 1.0], -0.5); 40]] {
        for _ in 0..200 {
            let [first, later] = [0, 1].map(|visit| honest(&task, visit, &records, &mut rng));
            assert_eq!(of(40, &first, &later), Ok(()), "{} records", records.len());
        }
    }
    // 15,000 rows (0, 1, 1), of which the last entry is the intercept, and what half of a residual of all says.
    let first_visit = |entries: [f64; 6]| entries.map(|entry| 0.25 * 15_000.0 * entry);
    let root = std::f64::consts::SQRT_2;
    let (there, elsewhere) = (first_visit([0.0, 0.0, 0.0, 1.0, root, 1.0]), first_visit([1.0, 0.0, root, 0.0, 0.0, 1.0]));
    let push = |value: f64| [0.0, value, value, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0];
    assert_eq!((of(20_000, &there, &push(7000.0)), of(20_000, &[0.0; 6], &push(7000.0))), (Ok(()), Err(Misfit::Together)));
    // Their gradients are no more than those of other records, in a direction in which there are none; and rows without an intercept are none.
    assert_eq!(of(20_000, &elsewhere, &push(7000.0)), Err(Misfit::Together));
    let alone = first_visit([0.0, 0.0, 0.0, 1.0, 0.0, 0.0]);
    assert_eq!(of(20_000, &alone, &[0.0, 7000.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0]), Err(Misfit::Together));
}

/// 1,440 rounds of sites whose records are alike, apart, few, on the side of the posterior and against it, at states near and far: none is refused.
#[test]
fn honest_rounds_pass_at_every_state_after_every_first_visit() {
    let task = natural(FULL);
    let mut rng = chacha20::ChaCha20Rng::from_seed([13; 32]);
    let len = task.family().len();
    for mean in [[0.0; 3], [0.5, -0.2, 0.1], [0.0, 3.0, 0.0], [-4.0, 2.0, 9.0]] {
        let mut state = task.rule().initial();
        for j in 0..3 {
            let diagonal = 3 + [0, 3, 5][j];
            (state[j], state[diagonal], state[len + j]) = (100.0 * mean[j], 100.0, mean[j]);
        }
        for rows in [[[1.0, 1.0, 1.0], [1.0, 1.0, 1.0]], [[1.0, -1.0, 1.0], [-1.0, 1.0, 1.0]], [[0.1, 0.3, 1.0], [0.0, 0.0, 1.0]]] {
            for labels in [[0.0, 0.0], [1.0, 1.0], [0.0, 1.0]] {
                let records: Vec<_> = (0..40)
                    .map(|number: usize| {
                        let row: [f64; 3] = rows[number % 2];
                        let predictor: f64 = row.iter().zip(&mean).map(|(x, m)| x * m).sum();
                        (row, labels[number % 2] - 1.0 / (1.0 + (-predictor).exp()))
                    })
                    .collect();
                for _ in 0..40 {
                    let [first, later] = [0, 1].map(|visit| honest(&task, visit, &records, &mut rng));
                    let shape = of_site(&task, 1, 40, At { state: &state, first: Some(&first) }).unwrap().unwrap();
                    assert_eq!(shape.admits(later.iter().copied()), Ok(()), "{mean:?} {rows:?} {labels:?}");
                }
            }
        }
    }
}

/// What would be λ of a fit [h ; Λ], as a change from the prior N(0, 1).
fn change_to(task: &ResolvedTask, fit: &[f64], rest: &[f64]) -> Result<(), Misfit> {
    let state = task.rule().initial();
    let shape = of_site(task, 1, 20_000, At { state: &state, first: None }).unwrap().unwrap();
    shape.admits(fit.iter().zip(&state).map(|(new, old)| new - old).chain(rest.iter().copied()))
}

/// A change that leaves no distribution, or an absurd one, of an update without protection, in both families.
#[test]
fn a_change_that_leaves_no_distribution_is_refused() {
    let plain = task("", "update = \"pvi\"", "");
    assert_eq!(change_to(&plain, &[3.0, 0.0, -1.0, 9.0, 5.0, 2.0], &[]), Ok(()));
    // Far from the prior, and certain of it, as a hundred million records are.
    assert_eq!(change_to(&plain, &[1e10, 0.0, 0.0, 1e8, 1e8, 1e8], &[]), Ok(()));
    for absurd in [1e99, -1e99, -2.0, 0.0, f64::NAN, f64::INFINITY] {
        assert_eq!(change_to(&plain, &[0.0, 0.0, 0.0, absurd, 1.0, 1.0], &[]), Err(Misfit::NoDistribution), "{absurd}");
    }
    assert_eq!(change_to(&plain, &[1e99, 0.0, 0.0, 1.0, 1.0, 1.0], &[]), Err(Misfit::NoDistribution));
    let full = task(FULL, "update = \"pvi\"", "");
    let fit = |between: f64| change_to(&full, &[1.0, 0.0, 0.0, 2.0, between, 0.0, 2.0, 0.0, 2.0], &[]);
    assert_eq!((fit(1.0), fit(3.0)), (Ok(()), Err(Misfit::NoDistribution)));
}

/// An update with protection stays within what the declared units give.
#[test]
fn a_protected_change_stays_within_its_trust_region() {
    let task = task("", "update = \"dp-optimisation\"", "epsilon = 1.0\n");
    let (good, far, nothing) = ([4.0, 0.0, 0.0, 50.0, 60.0, 50.0], 1e7, [0.0; 9]);
    assert_eq!(change_to(&task, &good, &nothing), Ok(()));
    let with = |place: usize, value: f64| {
        let mut fit = good;
        fit[place] = value;
        change_to(&task, &fit, &nothing)
    };
    assert_eq!(with(3, far), Err(Misfit::Precision));
    assert!(with(0, 1e13).is_err() && with(0, 1e99).is_err() && with(3, -1e99).is_err() && with(3, 1e99).is_err());
    let measured = |place: usize| {
        let mut rest = nothing;
        rest[place] = 1e9;
        change_to(&task, &good, &rest)
    };
    assert_eq!((measured(0), measured(4), measured(8)), (Err(Misfit::Measured), Err(Misfit::Move), Err(Misfit::Measured)));
}

/// The region grows with the declared units, so that a liar gains by no more than what it declared.
#[test]
fn a_trust_region_is_in_units_of_the_declared_records() {
    let task = task("", "update = \"dp-optimisation\"", "epsilon = 1.0\n");
    let state = task.rule().initial();
    let largest = |units: u64| {
        let mut precision = 1.0;
        let fits = |precision: f64| {
            let change = [0.0, 0.0, 0.0, precision, 0.0, 0.0].into_iter().chain([0.0; 9]);
            of_site(&task, 0, units, At { state: &state, first: None }).unwrap().unwrap().admits(change).is_ok()
        };
        while fits(precision) {
            precision *= 1.01;
        }
        precision
    };
    let ratio = largest(20_000_000) / largest(2_000_000);
    assert!((9.0..10.2).contains(&ratio), "{ratio}");
}

#[test]
fn a_state_that_is_none_is_known_before_a_visit_is_paid_for() {
    for task in [natural(FULL), natural(""), task("", "update = \"pvi\"", ""), task("", "update = \"dp-optimisation\"", "epsilon = 1.0\n")]
    {
        let state = task.rule().initial();
        assert!(is_state(&task, 0, &state) && is_state(&task, 1, &state));
        // States that are no distribution.
        for wrong in [1e308, -1.0, f64::NAN] {
            assert!(!is_state(&task, 1, &vec![wrong; state.len()]), "{wrong}");
        }
        assert!(!is_state(&task, 1, &state[1..]));
    }
}
