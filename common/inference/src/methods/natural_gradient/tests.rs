use dp_pvi_accounting::{ClipNorm, NoiseMultiplier};
use dp_pvi_math::expfam::any::{Family, Gaussian};
use dp_pvi_math::expfam::gaussian::full::{svec_times, triangle};
use dp_pvi_models::logistic_regression;
use dp_pvi_posterior::methods::VisitSum;
use dp_pvi_posterior::task::{
    Approximation, ModelSpec, NaturalGradientSpec, NaturalGradientVisit, Preconditioner, ResolvedTask, ScheduleSpec, UpdateSpec,
};
use dp_pvi_privacy::mechanism::Term;
use dp_pvi_privacy::{SiteState, UnitTable};

use super::{Job, Terms};
use crate::models::{self, Model};
use crate::testing::{close, logistic, matrix, random_units, rows, table, task, vector, vectors};
use dp_pvi_records::{RecordTable, RecordView};
use dp_pvi_schema::public::Extra;

mod learned_scale;

fn spec() -> NaturalGradientSpec {
    NaturalGradientSpec {
        noise_multiplier: NoiseMultiplier::new(1.0).unwrap(),
        preconditioner: Preconditioner::Gram,
        gram_share: 0.2,
        budget_growth: 1.0,
        step: 1.8,
        averaging: 0.0,
        eigenvalue_floor: 0.0,
        shrinkage: 0.0,
        residual_bound: 1.0,
        curvature_bound: 0.25,
        curvature_weight: 0.8,
        clip_norm: ClipNorm::new(100.0).unwrap(),
        weighted: false,
        scale_weights: None,
    }
}

fn task_with(spec: NaturalGradientSpec, approximation: Approximation, dimension: usize, rounds: u32) -> ResolvedTask {
    let update = UpdateSpec::NaturalGradient(spec);
    ResolvedTask {
        schedule: ScheduleSpec::Synchronous { rounds },
        damping: vec![1.0; rounds as usize],
        ..task(ModelSpec::from(logistic_regression::LogisticRegression {}), approximation, dimension as u32, update)
    }
}

/// Where the sums of a visit are taken.
#[derive(Clone, Copy)]
enum Sums {
    /// At the iterate, as sites do.
    AtThePoint,
    /// As expectations under a Gaussian with the iterate as its mean and the posterior's precision: natural-gradient variational inference.
    UnderThePosterior,
}

/// The state after every visit, without clip, lattice and noise: statistics and rule alone.
fn without_noise(sums: Sums, task: &ResolvedTask, spec: &NaturalGradientSpec, data: &RecordTable) -> Vec<Vec<f64>> {
    let rule = task.rule();
    let mut states = vec![rule.initial()];
    for visit in 0..task.visits() {
        let state = states.last().unwrap();
        let job = Job { site: None, task, visit, lambda: state, state: &SiteState::None };
        let model = models::from_spec(&job.model()).unwrap();
        let terms = match sums {
            Sums::AtThePoint => Terms::new(spec, &job, model.as_ref()),
            Sums::UnderThePosterior => Terms::at(&under_posterior(task.family(), state), spec, &job, model.as_ref()),
        }
        .unwrap();
        let length = match spec.visit(visit) {
            NaturalGradientVisit::Gram => triangle(task.family().dimension()),
            NaturalGradientVisit::Gradient => task.family().len() + if spec.scale_weights.is_some() { 2 } else { 0 },
        };
        let mut sum = vec![0.0; length];
        let mut term = Term::default();
        for unit in 0..data.len() {
            term.clear();
            data.unit(unit).records().for_each(|record| terms.add(record, &mut term));
            term.entries().for_each(|(j, value)| sum[j as usize] += value);
        }
        let next = rule.apply(state, &VisitSum { visit, sites: 1, sum: &sum }).state;
        states.push(next);
    }
    states
}

/// The posterior of a state, moved to the iterate.
fn under_posterior(family: Family, state: &[f64]) -> Gaussian {
    let (d, len) = (family.dimension(), family.len());
    let (precision, mean) = (&state[d..len], &state[len..len + d]);
    let h = match family {
        Family::FullGaussian { dimension } => svec_times(precision, &mean[..dimension]),
        Family::DiagonalGaussian { .. } => precision.iter().zip(mean).map(|(p, m)| p * m).collect(),
    };
    Gaussian::from_natural(family, [h.as_slice(), precision].concat()).unwrap()
}

/// `logreg.pgvi_rho1p8_from_prior`: mean, variance, g and H of six rounds.
#[test]
fn the_golden_trace_comes_out() {
    let golden = vectors("logreg");
    let data = table(3, &rows(&matrix(&golden["X"]), &vector(&golden["y"])));
    let spec = spec();
    let rounds = golden["pgvi_rho1p8_from_prior"]["rounds"].as_array().unwrap();
    let task = task_with(spec, Approximation::MeanField, 3, 1 + rounds.len() as u32);
    let states = without_noise(Sums::UnderThePosterior, &task, &spec, &data);
    for (round, state) in rounds.iter().zip(&states[2..]) {
        let q = Gaussian::from_natural(task.family(), task.posterior(state).to_vec()).unwrap();
        close(q.standard().mean(), &vector(&round["mean"]), 1e-10);
        close(&q.standard().variances(), &vector(&round["var"]), 1e-10);
        // The running mean of one curvature is that curvature.
        close(&state[9..12], &vector(&round["H"]), 1e-10);
    }
}

/// `logreg.natural_gradient_rho1_from_prior`: the diagonal preconditioner.
#[test]
fn the_golden_diagonal_trace_comes_out() {
    let golden = vectors("logreg");
    let data = table(3, &rows(&matrix(&golden["X"]), &vector(&golden["y"])));
    let spec = NaturalGradientSpec { preconditioner: Preconditioner::Diagonal, step: 1.0, ..spec() };
    let steps = golden["natural_gradient_rho1_from_prior"].as_array().unwrap();
    let task = task_with(spec, Approximation::MeanField, 3, steps.len() as u32);
    for (step, state) in steps.iter().zip(&without_noise(Sums::UnderThePosterior, &task, &spec, &data)[1..]) {
        close(&state[..3], &vector(&step["h"]), 1e-10);
        close(&state[3..6], &vector(&step["prec"]), 1e-10);
    }
}

/// Without noise and clip the fixed point is the optimum of the bound, for both families.
#[test]
fn without_noise_the_limit_is_the_optimum() {
    for approximation in [Approximation::MeanField, Approximation::FullCovariance] {
        for (averaging, tolerance) in [(0.0, 1e-10), (0.02, 1e-9)] {
            let data = table(4, &random_units(3, 80, 4));
            let spec = NaturalGradientSpec { averaging, ..spec() };
            let task = task_with(spec, approximation, 4, 300);
            let states = without_noise(Sums::UnderThePosterior, &task, &spec, &data);
            let prior = Gaussian::from_natural(task.family(), task.prior_natural()).unwrap();
            let optimum = logistic().local_optimum().unwrap().local_optimum(&data, &prior, &prior).unwrap();
            let last = task.posterior(states.last().unwrap());
            let size = optimum.natural().iter().fold(1.0f64, |m, v| m.max(v.abs()));
            close(last, optimum.natural(), tolerance * size);
        }
    }
}

/// Sites take their sums at the iterate. The limit is the mode, where the slopes of prior and likelihood add up to 0, however wide the posterior is. The precision is the curvature at the mode.
#[test]
fn without_noise_the_limit_of_sums_at_the_point_is_the_mode() {
    for approximation in [Approximation::MeanField, Approximation::FullCovariance] {
        let data = table(4, &random_units(3, 80, 4));
        let spec = NaturalGradientSpec { averaging: 0.02, ..spec() };
        let task = task_with(spec, approximation, 4, 300);
        let state = without_noise(Sums::AtThePoint, &task, &spec, &data).pop().unwrap();
        let q = Gaussian::from_natural(task.family(), task.posterior(&state).to_vec()).unwrap();
        let (mean, prior) = (q.standard().mean().to_vec(), task.setting().priors());
        let mut slope: Vec<f64> = (0..4).map(|j| prior.precision[j] * (prior.mean[j] - mean[j])).collect();
        let mut curvature = prior.precision.clone();
        for record in data.records() {
            let entries = || record.indices.iter().map(|j| *j as usize).zip(record.values);
            let p = 1.0 / (1.0 + (-entries().map(|(j, x)| x * mean[j]).sum::<f64>() - record.offset).exp());
            for (j, x) in entries() {
                slope[j] += (record.target - p) * x;
                curvature[j] += p * (1.0 - p) * x * x;
            }
        }
        assert!(slope.iter().all(|slope| slope.abs() < 1e-7), "{slope:?}");
        if approximation == Approximation::MeanField {
            close(&q.standard().variances(), &curvature.iter().map(|h| 1.0 / h).collect::<Vec<_>>(), 1e-8);
        }
    }
}

/// With ρ = 1 the bound never falls (Böhning & Lindsay).
#[test]
fn without_noise_every_step_raises_the_bound() {
    let data = table(4, &random_units(5, 120, 4));
    let spec = NaturalGradientSpec { step: 1.0, ..spec() };
    let task = task_with(spec, Approximation::MeanField, 4, 30);
    let prior = Gaussian::from_natural(task.family(), task.prior_natural()).unwrap();
    let bound = |state: &Vec<f64>| {
        let q = Gaussian::from_natural(task.family(), task.posterior(state).to_vec()).unwrap();
        crate::capabilities::glm::total(&logistic_regression::LogisticRegression {}, &data, &q) - q.kl(&prior)
    };
    let bounds: Vec<f64> = without_noise(Sums::UnderThePosterior, &task, &spec, &data)[1..].iter().map(bound).collect();
    for pair in bounds.windows(2) {
        assert!(pair[1] >= pair[0] - 1e-10, "{pair:?}");
    }
    assert!(bounds[29] > bounds[0] + 1.0);
}

/// No record's term is longer than C; a record's weight is the same for either class, and some are below 1.
#[test]
fn weights_keep_terms_within_the_clip_and_do_not_see_the_class() {
    let (d, clip) = (5, 0.9);
    let data = table(d, &random_units(4, 200, d));
    let plain = spec();
    let weighted = NaturalGradientSpec { weighted: true, clip_norm: ClipNorm::new(clip).unwrap(), ..plain };
    for approximation in [Approximation::MeanField, Approximation::FullCovariance] {
        let task = task_with(weighted, approximation, d, 3);
        let model = models::from_spec(&task.model).unwrap();
        let mut state = task.rule().initial();
        let len = task.family().len();
        state[len..][..d].copy_from_slice(&[0.9, -0.4, 0.3, 1.2, -0.7]);
        let job = Job { site: None, task: &task, visit: 1, lambda: &state, state: &SiteState::None };
        let terms = [plain, weighted].map(|spec| Terms::new(&spec, &job, model.as_ref()).unwrap());
        let mut shortened = 0;
        for record in data.records() {
            let weight = |target: f64| {
                let [plain, weighted] = [&terms[0], &terms[1]].map(|terms| {
                    let mut term = Term::default();
                    terms.add(RecordView { target, ..record }, &mut term);
                    term
                });
                let length = weighted.entries().map(|(_, value)| value * value).sum::<f64>().sqrt();
                assert!(length <= clip * (1.0 + 1e-12), "{length}");
                let ratios: Vec<f64> = plain.entries().zip(weighted.entries()).map(|((_, a), (_, b))| b / a).collect();
                close(&ratios, &vec![ratios[0]; ratios.len()], 1e-12);
                (ratios[0], length)
            };
            let [(zero, a), (one, b)] = [0.0, 1.0].map(weight);
            assert!((zero - one).abs() < 1e-12 && zero <= 1.0 + 1e-12, "{zero} {one}");
            // The longer of both is as long as it may be.
            assert!(zero > 0.999 || (a.max(b) - clip).abs() < 1e-9, "{a} {b}");
            shortened += u32::from(zero < 0.99);
        }
        assert!(shortened > 50, "{shortened}");
    }
}

/// No record of a checked table is shortened: the a-priori bound is one.
#[test]
fn no_term_is_longer_than_the_public_bound() {
    let (d, radius) = (5, 4.0);
    let data = table(d, &random_units(9, 200, d));
    let bound = |approximation| {
        // ‖x∘x‖ ≤ R·max|x|, ‖xxᵀ‖ = R²: rows here have entries of at most 2.
        let square = if approximation == Approximation::MeanField { 2.0 * radius } else { radius * radius };
        (radius, 5f64.sqrt().mul_add(0.5, 0.5).powf(2.5) * radius / square)
    };
    for approximation in [Approximation::MeanField, Approximation::FullCovariance] {
        let (bound, curvature_weight) = bound(approximation);
        let spec = NaturalGradientSpec { curvature_weight, ..spec() };
        let task = task_with(spec, approximation, d, 3);
        let model = models::from_spec(&task.model).unwrap();
        let mut state = task.rule().initial();
        let family = task.family();
        // A point with large logits: residuals from 0 to 1.
        for (j, h) in state[family.len()..][..d].iter_mut().enumerate() {
            *h = if j % 2 == 0 { 1.5 } else { -1.0 };
        }
        let mut longest = 0.0f64;
        for visit in [0, 1] {
            let terms = Terms::new(&spec, &Job { site: None, task: &task, visit, lambda: &state, state: &SiteState::None }, model.as_ref())
                .unwrap();
            for record in data.records() {
                let mut term = Term::default();
                terms.add(record, &mut term);
                let norm = term.entries().map(|(_, v)| v * v).sum::<f64>().sqrt();
                let size = record.values.iter().map(|v| v * v).sum::<f64>();
                assert!(size <= radius * radius);
                let limit = if visit == 0 { 0.25 * radius * radius } else { bound };
                assert!(norm <= limit * (1.0 + 1e-12), "{norm} {limit}");
                longest = longest.max(norm / limit);
            }
        }
        assert!(longest > 0.5, "{longest}");
    }
}

/// A record of weight w adds w times what it adds alone, in every visit and with both families, within w̄ times the bound of one; where terms are shortened to C, by a
/// factor that does not see the class.
#[test]
fn terms_are_multiplied_by_the_records_weight() {
    let spec = spec();
    let record = RecordView { indices: &[0, 2], values: &[1.5, -0.5], target: 1.0, offset: 0.0, extra: Extra::NONE };
    for approximation in [Approximation::MeanField, Approximation::FullCovariance] {
        for weighted in [false, true] {
            let clip_norm = ClipNorm::new(if weighted { 0.9 } else { 100.0 }).unwrap();
            let spec = NaturalGradientSpec { weighted, clip_norm, ..spec };
            let task = task_with(spec, approximation, 3, 2);
            let model = models::from_spec(&task.model).unwrap();
            let state = task.rule().initial();
            for visit in 0..2 {
                let terms =
                    Terms::new(&spec, &Job { site: None, task: &task, visit, lambda: &state, state: &SiteState::None }, model.as_ref())
                        .unwrap();
                let term = |weight: f64, target: f64| {
                    let mut term = Term::default();
                    terms.add(RecordView { target, extra: Extra { weight, ..Extra::NONE }, ..record }, &mut term);
                    term.entries().map(|(_, value)| value).collect::<Vec<_>>()
                };
                let norm = |term: &[f64]| term.iter().map(|x| x * x).sum::<f64>().sqrt();
                let (one, three) = (term(1.0, 1.0), term(3.0, 1.0));
                if weighted && visit == 1 {
                    assert!(norm(&three) <= 0.9 * (1.0 + 1e-12));
                    // The factor is that of the longer of the two classes.
                    let factor = |target| {
                        term(3.0, target)[0].abs()
                            / (3.0 * model.linear_predictor().unwrap().statistics(0.0, 2.5, target).residual.abs() * 1.5)
                    };
                    assert!((factor(0.0) - factor(1.0)).abs() < 1e-12);
                } else {
                    close(&three, &one.iter().map(|x| 3.0 * x).collect::<Vec<_>>(), 1e-14);
                }
                assert!(term(0.0, 1.0).iter().all(|x| *x == 0.0) && term(f64::NAN, 1.0).iter().all(|x| x.is_finite()));
            }
        }
    }
}
