//! Natural gradients that learn the scale of the observations.

use chacha20::ChaCha20Rng;
use chacha20::rand_core::SeedableRng;
use dp_pvi_accounting::{ClipNorm, NoiseMultiplier};
use dp_pvi_math::expfam::any::{Family, Gaussian};
use dp_pvi_math::observation::Precision;
use dp_pvi_models::predictor::Predictor;
use dp_pvi_models::robust_regression::{RobustRegression, Student};
use dp_pvi_posterior::methods::VisitSum;
use dp_pvi_posterior::task::{
    Approximation, ModelSpec, NaturalGradientSpec, Preconditioner, ResolvedTask, ScaleWeights, ScheduleSpec, UpdateSpec,
};
use dp_pvi_privacy::SiteState;
use dp_pvi_privacy::mechanism::Term;

use super::super::Terms;
use crate::capabilities::LocalOptimum;
use crate::capabilities::glm::{scale_statistic, scale_sums};
use crate::methods::Job;
use crate::models;
use crate::testing::{close, random_units, robust, table, task, uniform};
use dp_pvi_records::{RecordTable, RecordView};
use dp_pvi_schema::public::Extra;

const NU: f64 = 4.0;
const PRIOR: Precision = Precision { shape: 1.5, rate: 0.4 };
const BOTH: [Approximation; 2] = [Approximation::MeanField, Approximation::FullCovariance];

fn spec(preconditioner: Preconditioner) -> NaturalGradientSpec {
    NaturalGradientSpec {
        preconditioner,
        step: if preconditioner == Preconditioner::Gram { 1.6 } else { 0.3 },
        averaging: 0.02,
        residual_bound: 1.25,
        curvature_bound: 1.25,
        scale_weights: Some(ScaleWeights { statistic: 0.7, count: 0.4 }),
        ..super::spec()
    }
}

fn task_with(spec: NaturalGradientSpec, approximation: Approximation, rounds: u32) -> ResolvedTask {
    let model = ModelSpec::from(RobustRegression::learning(NU, PRIOR));
    let update = UpdateSpec::NaturalGradient(spec);
    ResolvedTask {
        schedule: ScheduleSpec::Synchronous { rounds },
        damping: vec![1.0; rounds as usize],
        ..task(model, approximation, 3, update)
    }
}

/// Numbers with outliers and weights from 0 to 3.
fn data(count: usize) -> RecordTable {
    let mut random = ChaCha20Rng::seed_from_u64(8);
    let mut builder = RecordTable::builder(3);
    for number in 0..count {
        let x = [1.0, 2.0 * uniform(&mut random), uniform(&mut random)];
        let outlier = if number % 9 == 0 { 6.0 * uniform(&mut random) } else { 0.0 };
        let target = 0.5 - 0.8 * x[1] + 0.4 * x[2] + 0.5 * uniform(&mut random) + outlier;
        let extra = Extra { weight: f64::from(u32::try_from(number % 4).unwrap()), ..Extra::NONE };
        builder.start_unit();
        builder.push_record(RecordView { indices: &[0, 1, 2], values: &x, target, offset: 0.1, extra }).unwrap();
    }
    builder.finish()
}

/// By exact fits and coordinate ascent in turn.
fn optimum(data: &RecordTable, family: Family) -> (Gaussian, Precision) {
    let prior = Gaussian::from_natural(family, family.isotropic(0.0, 1.0)).unwrap();
    let (mut q, mut scale) = (prior.clone(), PRIOR);
    for _ in 0..200 {
        let model = robust(NU, scale.scale());
        q = LocalOptimum::local_optimum(&model, data, &prior, &q).unwrap();
        let [count, statistic] = scale_sums(model.0.as_ref(), data, q.standard());
        scale = PRIOR.and(count, statistic, scale.square());
    }
    (q, scale)
}

/// Coefficients and scale, with weights, in both families and with both preconditioners.
#[test]
fn without_noise_the_limit_is_the_optimum_of_both() {
    let data = data(90);
    for approximation in BOTH {
        for preconditioner in [Preconditioner::Gram, Preconditioner::Diagonal] {
            // The rule looks at how much noise there is.
            let spec = NaturalGradientSpec { noise_multiplier: NoiseMultiplier::new(1e-9).unwrap(), ..spec(preconditioner) };
            let task = task_with(spec, approximation, 800);
            let last = super::without_noise(super::Sums::UnderThePosterior, &task, &spec, &data).pop().unwrap();
            let (q, scale) = optimum(&data, task.family());
            let found = task.scale_at(&last).unwrap();
            assert!((found.square() / scale.square() - 1.0).abs() < 1e-8, "{found:?} {scale:?}");
            let size = q.natural().iter().fold(1.0f64, |m, v| m.max(v.abs()));
            close(task.posterior(&last), q.natural(), 1e-8 * size);
            // The shape is that of the information: n ν/(2(ν + 3)).
            let count: f64 = data.records().map(|record| record.extra.weight).sum();
            assert!((found.shape - PRIOR.shape - count * 2.0 / 7.0).abs() < 1e-9);
            assert!((task.learned_noise(&last).unwrap() - scale.scale()).abs() < 1e-8);
        }
    }
}

/// ½(t − 1) is the derivative of the expected log density in ln σ².
#[test]
fn the_statistic_is_a_derivative() {
    for (nu, scale) in [(4.0, 0.8), (2.5, 3.0), (200.0, 0.5)] {
        for (mean, variance, target) in [(0.3, 0.5, 1.0), (-2.0, 3.0, 0.0), (2.0, 0.0, 9.0)] {
            let f = |h: f64| Student::new(nu, scale * (0.5 * h).exp()).expected_log_density(mean, variance, target);
            let curvature = Student::new(nu, scale).statistics(mean, variance, target).curvature;
            let t = scale_statistic(curvature, target - mean, variance, nu + 1.0);
            assert!(((f(1e-5) - f(-1e-5)) / 2e-5 - 0.5 * (t - 1.0)).abs() < 1e-8, "{t}");
        }
    }
    // Where the square overflows the statistic is at its bound.
    assert!((scale_statistic(0.0, 1e200, 1.0, 5.0) - 5.0).abs() < 1e-15);
}

/// What `common/privacy/proofs/scale_statistic.md` says: with the weights that a task gets, no row up to a share s of R makes a term longer than s times the longest one, wherever
/// the label is; and there are rows that come near.
#[test]
fn terms_keep_to_the_public_bound_and_short_rows_are_never_shortened() {
    let (radius, share) = (3f64.sqrt() * 2.0, 0.6);
    for approximation in BOTH {
        let square = if approximation == Approximation::MeanField { 2.0 * radius } else { radius * radius };
        let third = 1.0 / 3.0;
        let weight = third * radius / square;
        let count = third * 1.25 * radius;
        let longest = (1.25 * radius).hypot(weight * 1.25 * square).hypot(count);
        let weights = ScaleWeights { statistic: share * 2.0 * 1.25 * radius / (NU + 1.0), count: share * count };
        let spec = NaturalGradientSpec { curvature_weight: weight, scale_weights: Some(weights), ..spec(Preconditioner::Gram) };
        let task = task_with(spec, approximation, 4);
        let (mut longest_of_all, mut longest_of_short) = (0.0f64, 0.0f64);
        let mut state = task.rule().initial();
        let mean = task.family().len();
        state[mean..mean + 3].copy_from_slice(&[0.7, -0.2, 0.4]);
        // A sure predictor, whose residuals are the longest.
        state[3..mean].iter_mut().for_each(|precision| *precision *= 1e4);
        let job = Job { site: None, task: &task, visit: 1, lambda: &state, state: &SiteState::None };
        let model = models::from_spec(&job.model()).unwrap();
        let clip = share * longest;
        let within = NaturalGradientSpec { clip_norm: ClipNorm::new(clip).unwrap(), ..spec };
        let [terms, kept] = [spec, within].map(|spec| Terms::new(&spec, &job, model.as_ref()).unwrap());
        let mut shortened = 0;
        for record in table(3, &random_units(3, 300, 3)).records() {
            let size = record.values.iter().map(|x| x * x).sum::<f64>().sqrt();
            for short in [1.0, share] {
                let values: Vec<f64> = record.values.iter().map(|x| x * (short * radius / size).min(1.0)).collect();
                for target in (-40..=40).map(|k| 0.25 * f64::from(k)).chain([1e9, -1e200]) {
                    let mut term = Term::default();
                    terms.add(RecordView { values: &values, target, ..record }, &mut term);
                    let norm = term.entries().map(|(_, v)| v * v).sum::<f64>().sqrt();
                    let most = if short < 1.0 { &mut longest_of_short } else { &mut longest_of_all };
                    *most = most.max(norm / longest);
                    // Within C only gradient and curvature are shortened.
                    let mut own = Term::default();
                    kept.add(RecordView { values: &values, target, ..record }, &mut own);
                    assert!(own.entries().map(|(_, v)| v * v).sum::<f64>().sqrt() <= clip * (1.0 + 1e-12));
                    assert!(own.entries().skip(own.entries().len() - 2).eq(term.entries().skip(term.entries().len() - 2)));
                    assert!(short == 1.0 || own.entries().eq(term.entries()));
                    shortened += u32::from(!own.entries().eq(term.entries()));
                }
            }
        }
        assert!(shortened > 500, "{shortened}");
        assert!((0.7..=1.0 + 1e-12).contains(&longest_of_all), "{longest_of_all}");
        assert!((0.5..=share + 1e-12).contains(&longest_of_short), "{longest_of_short}");
    }
}

/// Two coordinates more, that follow the coefficients' and are multiplied by the record's weight; σ enters as public state only.
#[test]
fn terms_are_in_units_of_the_scale() {
    let spec = spec(Preconditioner::Gram);
    for approximation in BOTH {
        let task = task_with(spec, approximation, 4);
        let (mut state, len) = (task.rule().initial(), task.family().len());
        let term = |state: &[f64], x: &[f64], target: f64, weight: f64| {
            let job = Job { site: None, task: &task, visit: 1, lambda: state, state: &SiteState::None };
            let model = models::from_spec(&job.model()).unwrap();
            let mut term = Term::default();
            let extra = Extra { weight, ..Extra::NONE };
            Terms::new(&spec, &job, model.as_ref())
                .unwrap()
                .add(RecordView { indices: &[0, 2], values: x, target, offset: 0.0, extra }, &mut term);
            term.entries().collect::<Vec<_>>()
        };
        let one = term(&state, &[1.5, -0.5], 1.0, 1.0);
        assert_eq!(u64::from(one.last().unwrap().0) + 1, task.message(1).unwrap().coordinates);
        assert_eq!(usize::try_from(one[one.len() - 2].0).unwrap(), len);
        assert!((one[one.len() - 1].1 - 0.4).abs() < 1e-15);
        let three = term(&state, &[1.5, -0.5], 1.0, 3.0);
        one.iter().zip(&three).for_each(|(one, three)| assert!((3.0 * one.1 - three.1).abs() < 1e-12));
        // All lengths twice as large: label, posterior and σ.
        let end = state.len();
        state[end - 1] *= 4.0;
        let d = 3;
        state[d..len].iter_mut().for_each(|precision| *precision /= 4.0);
        let twice = term(&state, &[1.5, -0.5], 2.0, 1.0);
        one.iter().zip(&twice).for_each(|(one, twice)| assert!(one.0 == twice.0 && (one.1 - twice.1).abs() < 1e-12, "{one:?} {twice:?}"));
        assert!(term(&state, &[1.5, -0.5], 1.0, f64::NAN).is_empty());
    }
}

/// Sums that no records make: whatever comes, σ stays in its range, and the posterior is one.
#[test]
fn much_noise_never_makes_the_scale_run_away() {
    for approximation in BOTH {
        for preconditioner in [Preconditioner::Gram, Preconditioner::Diagonal] {
            let spec = NaturalGradientSpec { eigenvalue_floor: 2.0, shrinkage: 3.0, averaging: 0.5, ..spec(preconditioner) };
            let task = task_with(spec, approximation, 12);
            let rule = task.rule();
            let mut random = ChaCha20Rng::seed_from_u64(4);
            for size in [1.0, 1e3, 1e6, 1e12, 1e150, f64::MAX] {
                let mut state = rule.initial();
                for visit in 0..12 {
                    let length = usize::try_from(task.message(visit).unwrap().coordinates).unwrap();
                    let sum: Vec<f64> = (0..length).map(|_| size * uniform(&mut random)).collect();
                    state = rule.apply(&state, &VisitSum { visit, sites: 1, sum: &sum }).state;
                    Gaussian::from_natural(task.family(), task.posterior(&state).to_vec()).unwrap();
                    let scale = task.scale_at(&state).unwrap();
                    assert!(scale.is_within(&PRIOR), "{scale:?}");
                }
            }
        }
    }
}
