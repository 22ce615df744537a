use chacha20::ChaCha20Rng;
use chacha20::rand_core::SeedableRng;
use dp_pvi_accounting::{ClipNorm, NoiseMultiplier, SamplingRate};
use dp_pvi_math::expfam::any::Gaussian;
use dp_pvi_models::latent_dirichlet::recovery::matched_l1;
use dp_pvi_models::latent_dirichlet::{LatentDirichletSpec, Shape};
use dp_pvi_models::logistic_regression;
use dp_pvi_models::sigmoid_belief::SigmoidBeliefSpec;
use dp_pvi_posterior::methods::{VipsRule, VisitSum};
use dp_pvi_posterior::task::{
    Approximation, Clip, Counts, DocumentsSpec, Expansion, ImagesSpec, Intervals, ModelSpec, PolyaGammaSpec, ResolvedTask, ScheduleSpec,
    StatisticsSpec, UpdateSpec, VipsSpec,
};
use dp_pvi_privacy::mechanism::Term;
use dp_pvi_privacy::{SiteState, UnitTable, Units};

use super::{Job, Point};
use crate::testing::{SeededNoise, close, matrix, permit, random_units, rows, table, task, uniform, vector, vectors};
use dp_pvi_records::RecordTable;

const ORIGIN: Expansion = Expansion::Origin { first_share: 0.4 };

/// With C as long as a row's term may be.
fn centred(feature_bound: f64) -> Expansion {
    let (one, two) = (feature_bound, 0.25 * feature_bound * feature_bound);
    Expansion::Centred { clip_norm: ClipNorm::new(one.hypot(1.3 * two)).unwrap(), curvature_weight: 1.3 }
}

fn polya_gamma(rounds: u32, noise: f64, expansion: Expansion) -> (VipsSpec, u32) {
    let statistics =
        StatisticsSpec::PolyaGamma(PolyaGammaSpec { expansion, eigenvalue_floor: 0.0, relevance: None, intervals: Intervals::Naive });
    (VipsSpec { noise_multiplier: NoiseMultiplier::new(noise).unwrap(), budget_growth: 1.3, statistics }, rounds)
}

fn documents(rounds: u32, clip: Clip, norm: f64) -> (VipsSpec, u32) {
    documents_with(rounds, clip, norm, Counts::Clamped {})
}

const EXPECTED: Counts = Counts::Expected { first_share: 0.3 };

fn documents_with(rounds: u32, clip: Clip, norm: f64, counts: Counts) -> (VipsSpec, u32) {
    let statistics = StatisticsSpec::Documents(DocumentsSpec {
        clip_norm: ClipNorm::new(norm).unwrap(),
        clip,
        sampling_rate: SamplingRate::nearest(1.0).unwrap(),
        sweeps: 50,
        start_seed: 2,
        counts,
    });
    (VipsSpec { noise_multiplier: NoiseMultiplier::new(1.0).unwrap(), budget_growth: 1.0, statistics }, rounds)
}

const LEARNED: Clip = Clip::Learned { units: 40.0, target: 0.9, rate: 0.3, weight: 0.2 };

fn task_of(model: ModelSpec, approximation: Approximation, features: u32, dimension: u32, (spec, rounds): (VipsSpec, u32)) -> ResolvedTask {
    ResolvedTask {
        schedule: ScheduleSpec::Synchronous { rounds },
        damping: vec![1.0; rounds as usize],
        features,
        ..task(model, approximation, dimension, UpdateSpec::Vips(spec))
    }
}

fn logistic_task(d: u32, spec: (VipsSpec, u32)) -> ResolvedTask {
    task_of(ModelSpec::from(logistic_regression::LogisticRegression {}), Approximation::FullCovariance, d, d, spec)
}

fn topic_task(topics: u32, words: u32, spec: (VipsSpec, u32)) -> ResolvedTask {
    let model = ModelSpec::from(LatentDirichletSpec { topics, alpha: 0.2, eta: 0.05 });
    ResolvedTask { feature_bound: 60.0, ..task_of(model, Approximation::MeanField, words, topics * words, spec) }
}

fn images(rounds: u32, clip: Clip, norm: f64, damping: f64) -> ResolvedTask {
    let statistics = StatisticsSpec::Images(ImagesSpec {
        images: 40.0,
        shares: [0.1, 0.1, 0.3, 0.1, 0.2, 0.2],
        clip_norm: ClipNorm::new(norm).unwrap(),
        clip,
        sampling_rate: SamplingRate::nearest(1.0).unwrap(),
        sweeps: 10,
        max_units: Some(1000),
    });
    let spec = VipsSpec { noise_multiplier: NoiseMultiplier::new(1.0).unwrap(), budget_growth: 1.0, statistics };
    let model = ModelSpec::from(SigmoidBeliefSpec { hidden: 3, bias_scale: 10.0, start_seed: 1, start_scale: 0.3 });
    let task = task_of(model, Approximation::MeanField, 12, 12 * 4 + 3, (spec, rounds));
    ResolvedTask { damping: vec![damping; rounds as usize], ..task }
}

/// Images of three patterns with flipped pixels.
fn patterns(count: usize, seed: u64) -> RecordTable {
    let mut rng = ChaCha20Rng::seed_from_u64(seed);
    let mut builder = RecordTable::builder(12);
    for i in 0..count {
        let on = |j: usize| (j / 4 == i % 3) != (uniform(&mut rng) > 0.8);
        let pixels: Vec<u32> = (0..12).scan(on, |on, j| Some(on(j).then_some(j as u32))).flatten().collect();
        builder.start_unit();
        builder.push(&pixels, &vec![1.0; pixels.len()], 0.0).unwrap();
    }
    builder.finish()
}

pub(super) fn spec_of(task: &ResolvedTask) -> VipsSpec {
    let UpdateSpec::Vips(spec) = task.update else { panic!("vips") };
    spec
}

/// Standard deviation of the noise on a coordinate.
pub(super) fn noise_of(task: &ResolvedTask, visit: u32) -> f64 {
    let z = match spec_of(task).batches(&task.setting(), visit).unwrap() {
        Some(batches) => batches.noise_multiplier(),
        None => task.sum(visit).unwrap().unwrap().noise,
    };
    clip_of(task, visit) * z.get()
}

/// C of the mechanism.
pub(super) fn clip_of(task: &ResolvedTask, visit: u32) -> f64 {
    match spec_of(task).batches(&task.setting(), visit).unwrap() {
        Some(batches) => batches.clip_norm().get(),
        None => task.sum(visit).unwrap().unwrap().clip.get(),
    }
}

/// Sum of the units' clipped terms at a state: the mechanism without lattice and noise.
fn sum_at(task: &ResolvedTask, visit: u32, state: &[f64], data: &RecordTable) -> Vec<f64> {
    let point = Point::new(&spec_of(task), &Job { site: None, task, visit, lambda: state, state: &SiteState::None }).unwrap();
    let mut sum = vec![0.0; task.message(visit).unwrap().coordinates as usize];
    let clip = clip_of(task, visit);
    let mut term = Term::default();
    for unit in 0..data.len() {
        term.clear();
        point.add(data.unit(unit), &mut term);
        let norm = term.entries().map(|(_, x)| x * x).sum::<f64>().sqrt();
        if norm.is_finite() {
            let factor = (clip / norm).min(1.0);
            term.entries().for_each(|(j, value)| sum[j as usize] += factor * value);
        }
    }
    sum
}

fn without_noise(task: &ResolvedTask, data: &RecordTable) -> Vec<f64> {
    let rule = task.rule();
    let step = |state: Vec<f64>, visit| rule.apply(&state, &VisitSum { visit, sites: 1, sum: &sum_at(task, visit, &state, data) }).state;
    (0..task.visits()).fold(rule.initial(), step)
}

/// z = 0: the scales of the blocks, the shares of the budget and the server's rule leave the golden fixed point.
#[test]
fn without_noise_logistic_rounds_end_at_the_reference() {
    let (data, expected) = (vectors("logreg"), vectors("pg_vb"));
    let (x, y) = (matrix(&data["X"]), vector(&data["y"]));
    let table = table(x[0].len(), &rows(&x, &y));
    let longest = x.iter().map(|row| row.iter().map(|v| v * v).sum::<f64>().sqrt()).fold(0.0, f64::max);
    for expansion in [ORIGIN, centred(longest)] {
        let task = logistic_task(x[0].len() as u32, polya_gamma(120, 1.0, expansion));
        let state = without_noise(&task, &table);
        let q = Gaussian::from_natural(task.family(), task.posterior(&state).to_vec()).unwrap();
        close(q.standard().mean(), &vector(&expected["mean"]), 1e-8);
        let variances: Vec<f64> = matrix(&expected["cov"]).iter().enumerate().map(|(i, row)| row[i]).collect();
        close(&q.standard().variances(), &variances, 1e-8);
    }
}

/// Visit for visit, the iterates about the mean are those about 0; with noise on S2 they are nearer to the fixed point.
#[test]
fn both_expansions_have_the_same_iterates_and_centring_keeps_noise_out() {
    // One record a unit: nothing is clipped.
    let data = table(4, &random_units(9, 560, 4).into_iter().filter(|unit| unit.len() == 1).collect::<Vec<_>>());
    let run = |expansion, noise: f64| {
        let task = logistic_task(4, polya_gamma(6, 1.0, expansion));
        let (rule, mut rng) = (task.rule(), ChaCha20Rng::seed_from_u64(3));
        let mut state = rule.initial();
        for visit in 0..6 {
            let mut sum = sum_at(&task, visit, &state, &data);
            let scale = *spec_of(&task).scales(&task.setting(), visit).last().unwrap();
            let second = sum.len() - 10;
            sum[second..].iter_mut().for_each(|s| *s += noise * uniform(&mut rng) / scale);
            state = rule.apply(&state, &VisitSum { visit, sites: 1, sum: &sum }).state;
        }
        Gaussian::from_natural(task.family(), task.posterior(&state).to_vec()).unwrap().standard().mean().to_vec()
    };
    let exact = run(ORIGIN, 0.0);
    close(&run(centred(4.0), 0.0), &exact, 1e-9);
    let error = |mean: Vec<f64>| mean.iter().zip(&exact).map(|(a, b)| (a - b).powi(2)).sum::<f64>().sqrt();
    let [about_mean, about_zero] = [centred(4.0), ORIGIN].map(|expansion| error(run(expansion, 8.0)));
    assert!(about_mean < 0.3 * about_zero, "{about_mean} {about_zero}");
}

/// Documents of drawn topics: topic k is mostly words 10k to 10k + 9.
fn drawn(count: usize, seed: u64) -> (Vec<Vec<f64>>, RecordTable) {
    let mut rng = ChaCha20Rng::seed_from_u64(seed);
    let mut unit = move || f64::midpoint(uniform(&mut rng), 1.0);
    let topics: Vec<Vec<f64>> = (0..4)
        .map(|t| {
            let row: Vec<f64> = (0..40).map(|w| if w / 10 == t { 0.5 + unit() } else { 0.02 }).collect();
            let sum: f64 = row.iter().sum();
            row.iter().map(|p| p / sum).collect()
        })
        .collect();
    let mut builder = RecordTable::builder(40);
    for _ in 0..count {
        let (a, b, share) = ((4.0 * unit()) as usize % 4, (4.0 * unit()) as usize % 4, unit());
        let mut counts = vec![0.0; 40];
        for _ in 0..60 {
            let (u, mut sum) = (unit(), 0.0);
            let topic = if unit() < share { a } else { b };
            let word = topics[topic]
                .iter()
                .position(|p| {
                    sum += p;
                    u < sum
                })
                .unwrap_or(39);
            counts[word] += 1.0;
        }
        builder.start_unit();
        let (indices, values): (Vec<u32>, Vec<f64>) = (0_u32..).zip(&counts).filter(|(_, c)| **c > 0.0).map(|(w, &c)| (w, c)).unzip();
        builder.push(&indices, &values, 0.0).unwrap();
    }
    (topics, builder.finish())
}

/// z = 0, nothing clipped: drawn topics come out.
#[test]
fn without_noise_topics_are_recovered() {
    let (expected, data) = drawn(400, 5);
    for clip in [Clip::Fixed {}, Clip::Learned { units: 400.0, target: 0.999, rate: 0.3, weight: 0.2 }] {
        let task = topic_task(4, 40, documents(25, clip, 60.0));
        let topics = VipsRule::topics(&task.setting(), &without_noise(&task, &data)).unwrap();
        let l1 = matched_l1(&topics.distributions(), &expected);
        assert!(l1 < 0.2, "{l1}");
    }
}

/// z = 0, nothing clipped: the task's rounds are the M-steps of the model, and images come back.
#[test]
fn without_noise_images_are_reconstructed() {
    let data = patterns(120, 8);
    let rows = nalgebra::DMatrix::from_iterator(
        12,
        120,
        data.records().flat_map(|r| {
            let mut row = vec![0.0; 12];
            r.entries().for_each(|(j, x)| row[j] = x);
            row
        }),
    );
    for damping in [1.0, 0.7] {
        let task = images(25, Clip::Fixed {}, 1.0, damping);
        let StatisticsSpec::Images(spec) = spec_of(&task).statistics else { panic!("images") };
        let task = ResolvedTask {
            update: UpdateSpec::Vips(VipsSpec {
                statistics: StatisticsSpec::Images(ImagesSpec { images: 120.0, ..spec }),
                ..spec_of(&task)
            }),
            ..task
        };
        // The noise that the rule reckons with belongs to sums that have it.
        let noise_multiplier = NoiseMultiplier::new(1e-12).unwrap();
        let update = UpdateSpec::Vips(VipsSpec { noise_multiplier, ..spec_of(&task) });
        let rule = ResolvedTask { update, ..task.clone() }.rule();
        let step =
            |state: Vec<f64>, visit| rule.apply(&state, &VisitSum { visit, sites: 1, sum: &sum_at(&task, visit, &state, &data) }).state;
        let state = (0..task.visits()).fold(rule.initial(), step);
        let network = VipsRule::network(&task.setting(), &state).unwrap();
        let accuracy = dp_pvi_models::sigmoid_belief::hidden::Prepared::new(&network).reconstruct(rows.clone(), 10).accuracy;
        // A constant picture gets two thirds right.
        assert!(accuracy > 0.82, "{accuracy}");
        let predictor = dp_pvi_protocol::predictive::Predictor::of_state(&task, &state).unwrap();
        let record = data.records().next().unwrap();
        let row = dp_pvi_models::prediction::Example {
            indices: record.indices,
            values: record.values,
            target: 0.0,
            offset: record.offset,
            extra: Default::default(),
        };
        let image = predictor.reconstruct(row).unwrap();
        assert!(image.accuracy > 0.5 && (predictor.log_density(row) - image.log_density).abs() < 1e-12 && image.log_density < 0.0);
    }
}

/// Batch by batch and term by term are the same sum: the first up to one rounding to the lattice, the second up to its truncations.
#[test]
fn images_are_summed_alike_by_batches_and_by_terms() {
    let data = patterns(200, 9);
    for task in [images(2, Clip::Fixed {}, 0.2, 1.0), images(2, LEARNED, 0.2, 0.5)] {
        let state = task.rule().initial();
        let batches = spec_of(&task).batches(&task.setting(), 0).unwrap().unwrap();
        let event = task.visit_event(0).unwrap();
        assert_eq!(event, batches.event());
        let job = Job { site: None, task: &task, visit: 0, lambda: &state, state: &SiteState::None };
        let run = |data: &RecordTable| {
            let output = crate::methods::run(&job, &Units::new(data.clone()), permit(&event, 0), &SeededNoise::new(3)).unwrap();
            let dp_pvi_names::Payload::Lattice(sum) = output.message.released().unwrap().get() else { panic!("a sum") };
            sum.to_f64()
        };
        let empty = patterns(0, 1);
        // The same noise: the difference is the sum.
        let sum: Vec<f64> = run(&data).iter().zip(run(&empty)).map(|(a, b)| a - b).collect();
        let step = f64::from(batches.exponent()).exp2();
        sum.iter().zip(sum_at(&task, 0, &state, &data)).for_each(|(a, b)| assert!((a - b).abs() < step, "{a} {b} {step}"));
    }
}

/// The learned clip goes to the quantile of the documents' norms, and the state carries it.
#[test]
fn the_clip_follows_the_norms() {
    let (_, data) = drawn(400, 6);
    let clip = Clip::Learned { units: 400.0, target: 0.9, rate: 0.3, weight: 0.2 };
    let task = topic_task(4, 40, documents(60, clip, 50.0));
    let state = without_noise(&task, &data);
    let found = VipsRule::clip(&state).unwrap().get();
    let topics = VipsRule::topics(&task.setting(), &state).unwrap();
    let mut norms: Vec<f64> = data
        .records()
        .map(|record| {
            use dp_pvi_models::latent_dirichlet::document::{Document, DocumentLength, Sweeps};
            let mut document = Document::default();
            assert!(document.fit(&topics, DocumentLength::Exactly(60.0), record.indices, record.values, Sweeps::Exactly(50)));
            document.statistics(record.indices).map(|(_, s)| s * s).sum::<f64>().sqrt()
        })
        .collect();
    norms.sort_by(f64::total_cmp);
    assert!(found > norms[340] && found < norms[380], "{found} {}", norms[360]);
}

fn all_tasks() -> Vec<(ResolvedTask, RecordTable)> {
    let mut data = random_units(3, 40, 4);
    data.push(vec![(vec![f64::NAN; 4], 1.0)]);
    data.push(vec![(vec![1e300; 4], 0.0)]);
    let (_, words) = drawn(30, 7);
    vec![
        (logistic_task(4, polya_gamma(2, 1.0, ORIGIN)), table(4, &data)),
        (logistic_task(4, polya_gamma(2, 1.0, centred(4.0))), table(4, &data)),
        (topic_task(4, 40, documents(2, Clip::Fixed {}, 3.0)), words.clone()),
        (topic_task(4, 40, documents(2, LEARNED, 3.0)), words.clone()),
        (topic_task(4, 40, documents_with(2, LEARNED, 3.0, EXPECTED)), words.clone()),
        (topic_task(4, 40, documents_with(2, Clip::Fixed {}, 3.0, EXPECTED)), words),
        (images(2, Clip::Fixed {}, 0.3, 1.0), patterns(30, 3)),
        (images(2, LEARNED, 0.3, 0.6), patterns(30, 3)),
    ]
}

/// The term of every unit at every visit is within C before the mechanism looks at it, for records that keep the schema's bounds.
#[test]
fn terms_are_within_the_clip() {
    for (task, data) in all_tasks() {
        let rule = task.rule();
        let mut state = rule.initial();
        for visit in 0..task.visits() {
            let clip = clip_of(&task, visit);
            let point =
                Point::new(&spec_of(&task), &Job { site: None, task: &task, visit, lambda: &state, state: &SiteState::None }).unwrap();
            let mut largest = 0.0_f64;
            for unit in 0..data.len() {
                let kept = data.unit(unit).records().all(|r| r.values.iter().map(|x| x * x).sum::<f64>().sqrt() <= task.feature_bound);
                let single = data.unit(unit).records().count() <= 1;
                let mut term = Term::default();
                point.add(data.unit(unit), &mut term);
                let norm = term.entries().map(|(_, x)| x * x).sum::<f64>().sqrt();
                if kept && single {
                    assert!(norm <= clip * (1.0 + 1e-12), "{norm} {clip}");
                    largest = largest.max(norm);
                }
            }
            assert!(largest > 0.05 * clip, "{largest} {clip}");
            state = rule.apply(&state, &VisitSum { visit, sites: 1, sum: &sum_at(&task, visit, &state, &data) }).state;
        }
    }
}

/// Purity and joint release: one event a visit, the same result for the same noise, another for other noise, and nothing kept.
#[test]
fn a_visit_is_one_release_and_a_pure_function() {
    for (task, data) in all_tasks() {
        let state = task.rule().initial();
        for visit in 0..2 {
            let event = task.visit_event(visit).unwrap();
            let run = |seed| {
                let job = Job { site: None, task: &task, visit, lambda: &state, state: &SiteState::None };
                let output = crate::methods::run(&job, &Units::new(data.clone()), permit(&event, visit), &SeededNoise::new(seed)).unwrap();
                assert!(matches!(output.pending, dp_pvi_privacy::Pending::None));
                output.message.released().unwrap().clone()
            };
            assert_eq!(run(1), run(1));
            assert_ne!(run(1), run(2));
        }
    }
}

/// Floors: whatever arrives, the next state is one that sites can use.
#[test]
fn huge_noise_leaves_a_usable_state() {
    for (task, data) in all_tasks() {
        let rule = task.rule();
        let mut rng = ChaCha20Rng::seed_from_u64(1);
        let mut state = rule.initial();
        for visit in 0..task.visits() {
            let sum: Vec<f64> = sum_at(&task, visit, &state, &data).iter().map(|s| s + 1e4 * uniform(&mut rng)).collect();
            state = rule.apply(&state, &VisitSum { visit, sites: 3, sum: &sum }).state;
            assert!(Gaussian::from_natural(task.family(), task.posterior(&state).to_vec()).is_ok());
            assert!(
                Point::new(&spec_of(&task), &Job { site: None, task: &task, visit: 0, lambda: &state, state: &SiteState::None }).is_ok()
            );
        }
        // What is no sum of this visit leaves the state as it is.
        let broken = vec![f64::NAN; sum_at(&task, 0, &state, &data).len()];
        assert_eq!(rule.apply(&state, &VisitSum { visit: 0, sites: 1, sum: &broken }).state, state);
        assert_eq!(rule.apply(&state, &VisitSum { visit: 0, sites: 1, sum: &[1.0] }).state, state);
    }
    assert!(Shape::new(4, 40, 0.2, 0.05).is_ok());
}
