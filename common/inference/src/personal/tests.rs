use crate::personal::others::{Released, Way};
use chacha20::ChaCha20Rng;
use chacha20::rand_core::SeedableRng;
use dp_pvi_accounting::{ClipNorm, NoiseMultiplier};
use dp_pvi_math::expfam::any::{Family, Gaussian};
use dp_pvi_math::observation::Precision;
use dp_pvi_models::robust_regression::RobustRegression;
use dp_pvi_models::{gaussian_mixture, linear_regression, logistic_regression};
use dp_pvi_posterior::methods::VisitSum;
use dp_pvi_posterior::methods::noise_aware::{ClosedRound, Contribution, History, OwnNoise};
use dp_pvi_posterior::noise_aware::of_run;
use dp_pvi_posterior::task::{
    Approximation, ModelSpec, NaturalGradientSpec, Preconditioner, ResolvedTask, ScaleWeights, ScheduleSpec, Trust, UpdateSpec,
};
use dp_pvi_privacy::SiteState;

use super::{Heterogeneity, Known, exact_factor, fit, of_table};
use crate::error::InferenceError;
use crate::methods::{Job, exact_terms};
use crate::testing::{close, linear, logistic, robust, rows, table, task, uniform};
use dp_pvi_records::RecordTable;

/// At the optimum over some records, their exact factor is what they added to the prior: divided out and put back, nothing changes.
#[test]
fn an_exact_factor_is_what_the_records_added() {
    let mut random = ChaCha20Rng::seed_from_u64(5);
    let data = records(&mut random, 80, &[0.7, -0.4, 0.2]);
    for family in [Family::FullGaussian { dimension: 3 }, Family::DiagonalGaussian { dimension: 3 }] {
        let prior = family.isotropic(0.3, 2.0);
        let (q, _) = fit(&logistic(), &data, family, &prior, &prior[3..]).unwrap();
        let factor = exact_factor(&logistic(), &data, &q).unwrap();
        let back: Vec<f64> = prior.iter().zip(&factor).map(|(prior, factor)| prior + factor).collect();
        close(&back, q.natural(), 1e-8);
    }
}

/// Records whose classes follow a logistic model.
fn records(random: &mut ChaCha20Rng, count: usize, truth: &[f64]) -> RecordTable {
    let x: Vec<Vec<f64>> = (0..count).map(|_| [uniform(random) * 1.5, uniform(random) * 1.5, 1.0].to_vec()).collect();
    let label = |row: &Vec<f64>, u: f64| f64::from(u8::from(u < sigma(row.iter().zip(truth).map(|(x, t)| x * t).sum())));
    let y: Vec<f64> = x.iter().map(|row| label(row, 0.5 * (uniform(random) + 1.0))).collect();
    table(truth.len(), &rows(&x, &y))
}

fn sigma(z: f64) -> f64 {
    1.0 / (1.0 + (-z).exp())
}

fn normal(random: &mut ChaCha20Rng) -> f64 {
    (0..12).map(|_| 0.5 * uniform(random)).sum()
}

const CLIP: f64 = 3.0;

fn natural_gradients(model: ModelSpec, approximation: Approximation, noise: f64, trust: Trust) -> ResolvedTask {
    let rounds = 8;
    let update = UpdateSpec::NaturalGradient(NaturalGradientSpec {
        noise_multiplier: NoiseMultiplier::new(noise / CLIP).unwrap(),
        preconditioner: Preconditioner::Gram,
        gram_share: 0.1,
        budget_growth: 1.0,
        step: 2.0,
        averaging: 0.5,
        eigenvalue_floor: 2.0,
        shrinkage: 0.0,
        residual_bound: 50.0,
        curvature_bound: if model.name() == "linear-regression" { 4.0 } else { 0.25 },
        curvature_weight: 0.5,
        clip_norm: ClipNorm::new(CLIP).unwrap(),
        weighted: false,
        scale_weights: None,
    });
    let schedule = ScheduleSpec::Synchronous { rounds };
    let mut task = ResolvedTask { schedule, damping: vec![1.0; rounds as usize], ..task(model, approximation, 3, update) };
    task.privacy.trust = trust;
    task.feature_bound = 2.4;
    task
}

/// A federation without mechanism and ledger: exact terms, normal noise, the server's rule.
struct Run {
    state: Vec<f64>,
    history: History,
    /// What every site sent.
    sent: Vec<Vec<Option<Vec<f64>>>>,
}

fn federation(task: &ResolvedTask, sites: &[RecordTable], random: &mut ChaCha20Rng) -> Run {
    let UpdateSpec::NaturalGradient(spec) = task.update else { panic!("natural gradients") };
    let rule = task.rule();
    let mut state = rule.initial();
    let mut sent = vec![Vec::new(); sites.len()];
    let mut history = History { shares: vec![1.0 / sites.len() as f64; sites.len()], rounds: Vec::new() };
    for visit in 0..task.visits() {
        let (clip, share) = match visit {
            0 => (spec.curvature_bound * task.feature_bound * task.feature_bound, spec.gram_share),
            _ => (CLIP, (1.0 - spec.gram_share) / f64::from(task.visits() - 1)),
        };
        let sd = clip * spec.noise_multiplier.get() / share.sqrt();
        let mut sum: Vec<f64> = Vec::new();
        for (site, data) in sites.iter().enumerate() {
            let job = Job { site: None, task, visit, lambda: &state, state: &SiteState::None };
            let mut own = exact_terms(&job, data).unwrap();
            sum.resize(own.len(), 0.0);
            let noisy = task.privacy.trust == Trust::Local || site == 0;
            own.iter_mut().filter(|_| noisy).for_each(|value| *value += sd * normal(random));
            sum.iter_mut().zip(&own).for_each(|(sum, own)| *sum += own);
            sent[site].push(Some(own));
        }
        state = rule.apply(&state, &VisitSum { visit, sites: sites.len() as u32, sum: &sum }).state;
        let included = (0..sites.len()).collect();
        history.rounds.push(ClosedRound { visit, included, state: state.clone(), correction: None });
    }
    Run { state, history, sent }
}

impl Run {
    fn released(&self, site: usize) -> Released {
        Released::Sums(self.history.clone(), Contribution { site, sums: self.sent[site].clone(), noise: OwnNoise::Goes })
    }

    fn hidden(&self, site: usize) -> Released {
        Released::Sums(self.history.clone(), Contribution { site, sums: vec![None; self.sent[site].len()], noise: OwnNoise::Goes })
    }
}

/// A linear likelihood has one gradient, whatever the path: with next to no noise, every way gives the exact posterior over all records.
#[test]
fn without_noise_every_way_is_the_posterior_over_all_records() {
    let model = ModelSpec::from(linear_regression::LinearRegression { noise_sd: 0.5 });
    for approximation in [Approximation::FullCovariance, Approximation::MeanField] {
        let mut random = ChaCha20Rng::seed_from_u64(3);
        let task = natural_gradients(model.clone(), approximation, 1e-5, Trust::Local);
        let sites: Vec<RecordTable> = (0..3).map(|_| records(&mut random, 40, &[0.7, -0.4, 0.2])).collect();
        // A sum that is not shortened: terms are below C.
        let mut task = task;
        if let UpdateSpec::NaturalGradient(spec) = &mut task.update {
            spec.clip_norm = ClipNorm::new(200.0).unwrap();
        }
        let run = federation(&task, &sites, &mut random);
        let family = task.family();
        let all = whole(&sites);
        let prior = task.prior_natural();
        let (expected, _) = fit(&linear(0.5), &all, family, &prior, &prior[3..]).unwrap();
        let plain = task.posterior(&run.state);
        let ways = [
            (run.released(1), Way::OthersReleased),
            (run.hidden(1), Way::OthersOfSums),
            (Released::Unknown, Way::ExactFactor),
            (Released::Factor(exact_factor(&linear(0.5), &sites[1], &expected).unwrap()), Way::ReleasedFactor),
        ];
        for (released, way) in ways {
            let personal =
                of_table(&Known { task: &task, plain, released: &released, heterogeneity: Heterogeneity::None, scale: None }, &sites[1])
                    .unwrap();
            assert_eq!((personal.way, personal.floored), (way, 0));
            let q = Gaussian::from_natural(family, personal.natural).unwrap();
            let scale = expected.natural()[3..].iter().fold(0.0, |m: f64, v| m.max(v.abs()));
            let relative = |q: &Gaussian| q.natural().iter().map(|v| v / scale).collect::<Vec<_>>();
            // In a mean field the cavity of the noise-aware ways has the others' marginal variances, not their diagonal precisions.
            let aware = matches!(way, Way::OthersReleased | Way::OthersOfSums);
            if approximation == Approximation::FullCovariance || !aware {
                close(&relative(&q), &relative(&expected), 2e-3);
            } else {
                close(q.standard().mean(), expected.standard().mean(), 0.02);
            }
        }
    }
}

fn whole(sites: &[RecordTable]) -> RecordTable {
    let mut builder = RecordTable::builder(sites[0].dimension());
    for record in sites.iter().flat_map(RecordTable::records) {
        builder.start_unit();
        builder.push(record.indices, record.values, record.target).unwrap();
    }
    builder.finish()
}

/// Over many federations whose sites' coefficients differ by this standard deviation: how often the personal 90 % intervals cover the site's own coefficients, and
/// squared distances of the means of personal, all, alone.
fn many(trust: Trust, way: Way, heterogeneity: Heterogeneity, differences: f64) -> (f64, [f64; 3]) {
    let task = natural_gradients(ModelSpec::from(logistic_regression::LogisticRegression {}), Approximation::FullCovariance, 4.0, trust);
    let (family, prior) = (task.family(), task.prior_natural());
    let mut random = ChaCha20Rng::seed_from_u64(11);
    let (mut covered, mut squares, mut intervals) = (0.0, [0.0; 3], 0.0);
    for _ in 0..120 {
        let common: Vec<f64> = (0..3).map(|_| normal(&mut random)).collect();
        let mut own = |truths: &mut Vec<Vec<f64>>| {
            truths.push(common.iter().map(|t| if differences > 0.0 { t + differences * normal(&mut random) } else { *t }).collect());
            records(&mut random, 400, &truths[truths.len() - 1])
        };
        let mut truths = Vec::new();
        let sites: Vec<RecordTable> = (0..4).map(|_| own(&mut truths)).collect();
        let truth = &truths[2];
        let run = federation(&task, &sites, &mut random);
        let released = if trust == Trust::Local { run.released(2) } else { run.hidden(2) };
        let plain = task.posterior(&run.state);
        let personal = of_table(&Known { task: &task, plain, released: &released, heterogeneity, scale: None }, &sites[2]).unwrap();
        assert_eq!(personal.way, way);
        assert_eq!(personal.heterogeneity.others > 0.0, heterogeneity == Heterogeneity::Learned);
        let personal = Gaussian::from_natural(family, personal.natural).unwrap();
        let all = Gaussian::from_natural(family, of_run(&task, &run.history).unwrap().natural_parameters).unwrap();
        let (alone, _) = fit(&logistic(), &sites[2], family, &prior, &prior[3..]).unwrap();
        for ((mean, variance), truth) in personal.standard().mean().iter().zip(personal.standard().variances()).zip(truth) {
            covered += f64::from(u8::from((mean - truth).abs() < 1.645 * variance.sqrt()));
            intervals += 1.0;
        }
        for (square, q) in squares.iter_mut().zip([&personal, &all, &alone]) {
            *square += q.standard().mean().iter().zip(truth).map(|(m, t)| (m - t).powi(2)).sum::<f64>();
        }
    }
    (covered / intervals, squares)
}

const WAYS: [(Trust, Way); 2] = [(Trust::Local, Way::OthersReleased), (Trust::Aggregated, Way::OthersOfSums)];

/// Sites that are samples of one model: the intervals hold, and the mean is nearer to the truth than that of all and than that of the site alone.
#[test]
fn personal_intervals_hold_and_its_mean_is_nearest() {
    for (trust, way) in WAYS {
        let (covered, squares) = many(trust, way, Heterogeneity::None, 0.0);
        // 360 intervals: a standard error of 1.6 %.
        assert!((0.84..0.95).contains(&covered), "{trust:?}: {covered}");
        let [personal, all, alone] = squares;
        // The posterior of all knows a quarter of the records with noise that the site knows exactly; less noise, in a sum, leaves less to gain.
        let gain = if trust == Trust::Local { 0.95 } else { 0.98 };
        assert!(personal < gain * all && personal < 0.95 * alone, "{trust:?}: {squares:?}");
    }
}

/// Sites that differ: without heterogeneity the intervals are too narrow, with it they hold, and the mean is again the nearest.
#[test]
fn with_heterogeneity_personal_intervals_hold_at_sites_that_differ() {
    for (trust, way) in WAYS {
        let (exact, _) = many(trust, way, Heterogeneity::None, 0.25);
        let (covered, squares) = many(trust, way, Heterogeneity::Learned, 0.25);
        assert!(exact < 0.8 && (0.84..0.95).contains(&covered), "{trust:?}: {exact} without heterogeneity, {covered} with it");
        let [personal, all, alone] = squares;
        // Three coefficients and 400 records: there is little to gain over the site alone.
        assert!(personal < 0.5 * all && personal < alone, "{trust:?}: {squares:?}");
    }
}

/// No one else in the run: the prior stands for the others.
#[test]
fn a_site_alone_starts_from_the_prior() {
    let task =
        natural_gradients(ModelSpec::from(logistic_regression::LogisticRegression {}), Approximation::FullCovariance, 5.0, Trust::Local);
    let mut random = ChaCha20Rng::seed_from_u64(4);
    let sites = [records(&mut random, 200, &[0.7, -0.4, 0.2])];
    let run = federation(&task, &sites, &mut random);
    let known = Known {
        task: &task,
        plain: task.posterior(&run.state),
        released: &run.released(0),
        heterogeneity: Heterogeneity::Learned,
        scale: None,
    };
    let personal = of_table(&known, &sites[0]).unwrap();
    let prior = task.prior_natural();
    let (alone, _) = fit(&logistic(), &sites[0], task.family(), &prior, &prior[3..]).unwrap();
    assert_eq!(personal.way, Way::Alone);
    close(&personal.natural, alone.natural(), 1e-12);
}

/// A site that missed rounds, or lost what it kept of one, uses the others: the result is that of the rounds that it knows.
#[test]
fn gaps_cost_rounds_and_nothing_else() {
    let task =
        natural_gradients(ModelSpec::from(logistic_regression::LogisticRegression {}), Approximation::FullCovariance, 1e-4, Trust::Local);
    let mut random = ChaCha20Rng::seed_from_u64(9);
    let sites: Vec<RecordTable> = (0..3).map(|_| records(&mut random, 300, &[0.7, -0.4, 0.2])).collect();
    let run = federation(&task, &sites, &mut random);
    let plain = task.posterior(&run.state);
    let of = |released: &Released| {
        of_table(&Known { task: &task, plain, released, heterogeneity: Heterogeneity::None, scale: None }, &sites[0]).unwrap()
    };
    let whole = of(&run.released(0));
    let Released::Sums(mut history, mut part) = run.released(0) else { panic!("sums") };
    history.rounds[2].state.clear();
    part.sums[5] = None;
    let gaps = of(&Released::Sums(history, part));
    assert_eq!(gaps.way, Way::OthersReleased);
    let mean = |natural: &[f64]| Gaussian::from_natural(task.family(), natural.to_vec()).unwrap().standard().mean().to_vec();
    close(&mean(&gaps.natural), &mean(&whole.natural), 0.01);
    assert!(gaps.natural != whole.natural, "the premise: rounds were left out");
}

/// Models without an exact optimum are refused by name.
#[test]
fn a_mixture_has_no_personal_posterior() {
    let mut task =
        natural_gradients(ModelSpec::from(logistic_regression::LogisticRegression {}), Approximation::FullCovariance, 5.0, Trust::Local);
    let plain = task.prior_natural();
    task.model = ModelSpec::from(gaussian_mixture::GaussianMixture { components: 2, noise_sd: 0.7, seed: 3 });
    let refused = of_table(
        &Known { task: &task, plain: &plain, released: &Released::Unknown, heterogeneity: Heterogeneity::None, scale: None },
        &table(3, &[]),
    );
    assert!(matches!(refused, Err(InferenceError::Capability(..))), "{:?}", refused.err());
}

/// Of a run that learned the scale a personal posterior is made with the scale that it learned, and with no other.
#[test]
fn a_learned_scale_is_that_of_the_run() {
    let mut random = ChaCha20Rng::seed_from_u64(11);
    let model = ModelSpec::from(RobustRegression::learning(4.0, Precision { shape: 1.0, rate: 0.25 }));
    let mut task = natural_gradients(model, Approximation::FullCovariance, 1e-5, Trust::Local);
    (task.schedule, task.damping) = (ScheduleSpec::Synchronous { rounds: 30 }, vec![1.0; 30]);
    if let UpdateSpec::NaturalGradient(spec) = &mut task.update {
        spec.clip_norm = ClipNorm::new(200.0).unwrap();
        spec.curvature_bound = 1.25;
        spec.scale_weights = Some(ScaleWeights { statistic: 0.5, count: 0.5 });
    }
    let sites: Vec<RecordTable> = (0..3).map(|_| records(&mut random, 60, &[0.7, -0.4, 0.2])).collect();
    let run = federation(&task, &sites, &mut random);
    let scale = task.scale_at(&run.state).unwrap().scale();
    assert!((scale - 0.5).abs() > 0.02, "{scale}");
    let (family, prior) = (task.family(), task.prior_natural());
    let all = whole(&sites);
    let (exact, _) = fit(&robust(4.0, scale), &all, family, &prior, &prior[3..]).unwrap();
    let plain = task.posterior(&run.state);
    close(Gaussian::from_natural(family, plain.to_vec()).unwrap().standard().mean(), exact.standard().mean(), 0.01);
    for released in [run.released(0), run.hidden(0), Released::Unknown] {
        let known = Known { task: &task, plain, released: &released, heterogeneity: Heterogeneity::None, scale: Some(scale) };
        let personal = of_table(&known, &sites[0]).unwrap();
        let mean = Gaussian::from_natural(family, personal.natural).unwrap();
        close(mean.standard().mean(), exact.standard().mean(), 0.03);
        assert!(matches!(of_table(&Known { scale: None, ..known }, &sites[0]), Err(InferenceError::Job(_))));
    }
}
