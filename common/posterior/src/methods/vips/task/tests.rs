#![allow(clippy::unwrap_used)]

use super::{Clip, Expansion, Intervals, StatisticsSpec, VipsSpec, image_shape};
use crate::methods::{VipsRule, VisitSum};
use crate::task::{RawTask, ResolveContext, ResolvedTask, TaskError, UpdateSpec};

const ROWS: &str = r#"
norm_bound = 2.0
[[columns]]
name = "age"
kind = "number"
lower = 0
upper = 110
centre = 50
scale = 20
[[columns]]
name = "died"
kind = "boolean"
true_values = ["yes"]
false_values = ["no"]
"#;

const WORDS: &str = "kind = \"bag-of-words\"\n[bag_of_words]\nformat = \"docword\"\nwords = 20\ndocument_length = 50\n";

fn task(model: &str, pvi: &str, epsilon: f64, schema: &str) -> Result<ResolvedTask, TaskError> {
    let text = format!(
        "[model]\n{model}\n[schema]\nfile = \"s\"\n[pvi]\nschedule = \"synchronous\"\nupdate = \"vips\"\n{pvi}\n[privacy]\nunit = \"record\"\n\
         adjacency = \"add-remove\"\nepsilon = {epsilon:?}\ndelta = 1e-5\ntrust = \"local\"\nmax_units = 1000000\n"
    );
    let context = ResolveContext { name: "test", update_deadline_seconds: 60, min_sites: 1, expected_sites: 3 };
    RawTask::parse(&text).unwrap().resolve(schema, context)
}

const LOGISTIC: &str = "family = \"logistic-regression\"\noutcome = \"died\"\napproximation = \"full-covariance\"";
const PIXELS: &str = "kind = \"binary-image\"\n[binary_image]\nwidth = 3\nheight = 4\nthreshold = 127\n";
const IMAGES: &str = "family = \"sigmoid-belief\"\nhidden = 2";
const TOPICS: &str = "family = \"latent-dirichlet\"\ntopics = 4";

fn spec(task: &ResolvedTask) -> VipsSpec {
    let UpdateSpec::Vips(spec) = task.update else { panic!("vips") };
    spec
}

#[test]
fn defaults_become_explicit_numbers_and_documents_survive() {
    let logistic = task(LOGISTIC, "rounds = 3", 1.0, ROWS).unwrap();
    let StatisticsSpec::PolyaGamma(numbers) = spec(&logistic).statistics else { panic!("logistic regression") };
    assert_eq!((numbers.intervals, numbers.relevance), (Intervals::NoiseAware, None));
    let Expansion::Centred { clip_norm, curvature_weight } = numbers.expansion else { panic!("about the mean") };
    assert!((clip_norm.get() - 1.4).abs() < 1e-12 && (curvature_weight - 3.0_f64.sqrt()).abs() < 1e-12);
    let topics = task(TOPICS, "rounds = 3\ndocuments = 900", 1.0, WORDS).unwrap();
    let StatisticsSpec::Documents(numbers) = spec(&topics).statistics else { panic!("topics") };
    assert!((numbers.clip_norm.get() - 5.0).abs() < 1e-12 && numbers.sweeps == 50);
    assert!(matches!(numbers.clip, Clip::Learned { units, .. } if (units - 900.0).abs() < 1e-12));
    assert_eq!((topics.features, topics.dimension), (20, 80));
    // Totals of words and an indicator at the first visit.
    assert_eq!([0, 1].map(|visit| topics.message(visit).unwrap().coordinates), [20 + 80 + 1, 80 + 1]);
    let images = task(IMAGES, "rounds = 3\nimages = 500\nsampling_rate = 0.2\ndamping = { start = 1.0, end = 0.5 }", 1.0, PIXELS).unwrap();
    let StatisticsSpec::Images(numbers) = spec(&images).statistics else { panic!("images") };
    assert!(matches!(numbers.clip, Clip::Learned { units, .. } if (units - 500.0).abs() < 1e-12));
    assert_eq!((numbers.sweeps, numbers.max_units), (10, Some(100_000)));
    assert_eq!((images.features, images.dimension), (12, 12 * 3 + 2));
    // v, π, vπᵀ, ω, ωπᵀ, ω E hhᵀ, and the indicator.
    assert_eq!(images.message(0).unwrap().coordinates, 12 + 2 + 24 + 12 + 24 + 36 + 1);
    // Batches are no sum that could be aggregated; under aggregation terms are.
    assert!(images.sum(0).unwrap().is_none());
    // The joint norm of the worst case is 1.
    let worst = image_shape(&images.setting())
        .unwrap()
        .sensitivities()
        .into_iter()
        .zip(spec(&images).scales(&images.setting(), 0))
        .map(|(d, a)| (d / a).powi(2));
    assert!((worst.sum::<f64>() - 1.0).abs() < 1e-12);
    for task in [logistic, topics, images] {
        assert_eq!(ResolvedTask::from_bytes(&task.to_bytes()).unwrap(), task);
        assert!(task.loss(task.visits()).unwrap().epsilon.get() <= 1.0);
        assert!(task.loss(task.visits()).unwrap().epsilon.get() > 0.999);
        assert!(!task.update.to_string().is_empty() && task.update.released().contains("noised sum"));
    }
}

/// The blocks of a visit are one vector whose joint sensitivity is C, and all visits together spend the budget once.
#[test]
fn blocks_are_released_together_and_spend_the_budget_once() {
    for growth in ["", "\nbudget_growth = 1.5"] {
        let task = task(LOGISTIC, &format!("rounds = 4\nexpansion = \"origin\"\nfirst_share = 0.4{growth}"), 1.0, ROWS).unwrap();
        let spec = spec(&task);
        let mut total = 0.0;
        for visit in 0..4 {
            let shares = spec.shares(visit, 4);
            total += shares.iter().sum::<f64>();
            assert_eq!(shares.len(), if visit == 0 { 2 } else { 1 });
            let (scales, sum) = (spec.scales(&task.setting(), visit), task.sum(visit).unwrap().unwrap());
            // ‖x‖ ≤ R = 2: Δ = 1 and 1.
            let joint: f64 = scales.iter().map(|a| a.powi(-2)).sum::<f64>().sqrt();
            assert!((joint / sum.clip.get() - 1.0).abs() < 1e-8);
            // zC is the same in every visit.
            assert!((sum.clip.get() * sum.noise.get() / spec.noise_multiplier.get() - 1.0).abs() < 1e-8);
            assert_eq!(task.message(visit).unwrap().coordinates, if visit == 0 { 5 } else { 3 });
        }
        assert!((total - 1.0).abs() < 1e-12);
    }
}

/// The same about the posterior's mean: every visit has both blocks, and a term of norm C is as long as the mechanism allows.
#[test]
fn blocks_about_the_mean_are_clipped_together() {
    for growth in ["", "\nbudget_growth = 1.5"] {
        let task = task(LOGISTIC, &format!("rounds = 4\nclip_norm = 0.9\ncurvature_weight = 0.6{growth}"), 1.0, ROWS).unwrap();
        let spec = spec(&task);
        let mut precision = 0.0;
        for visit in 0..4 {
            let (scales, sum) = (spec.scales(&task.setting(), visit), task.sum(visit).unwrap().unwrap());
            assert_eq!(task.message(visit).unwrap().coordinates, 5);
            // All of C on the first block, or on w times the second.
            assert!((0.9 / scales[0] / sum.clip.get() - 1.0).abs() < 1e-8 && (0.9 / 0.6 / scales[1] / sum.clip.get() - 1.0).abs() < 1e-8);
            precision += sum.noise.get().powi(-2);
        }
        // All visits together are one release at z.
        assert!((precision * spec.noise_multiplier.get().powi(2) - 1.0).abs() < 1e-8);
    }
}

#[test]
fn combinations_that_do_not_exist_are_named() {
    for (model, pvi, schema, part) in [
        ("family = \"logistic-regression\"\noutcome = \"died\"", "rounds = 3", ROWS, "full-covariance"),
        (LOGISTIC, "rounds = 3\nexpansion = \"origin\"\nclip_norm = 1.0", ROWS, "no option clip_norm"),
        (LOGISTIC, "rounds = 3\nfirst_share = 0.5", ROWS, "no option first_share"),
        (LOGISTIC, "rounds = 3\ncurvature_weight = 0.0", ROWS, "curvature_weight"),
        (TOPICS, "rounds = 3\nexpansion = \"origin\"", WORDS, "no option expansion"),
        (LOGISTIC, "rounds = 3\ndocuments = 10", ROWS, "no option documents"),
        (LOGISTIC, "rounds = 3\nexpansion = \"origin\"\nfirst_share = 1.0", ROWS, "first_share"),
        (LOGISTIC, "rounds = 3\nrelevance_shape = 1.0", ROWS, "belong together"),
        (LOGISTIC, "rounds = 3\nsteps = 5", ROWS, "steps"),
        (TOPICS, "rounds = 3\nfirst_share = 0.0", WORDS, "first_share"),
        (TOPICS, "rounds = 3\ncounts = \"clamped\"\nfirst_share = 0.5", WORDS, "remove first_share"),
        (LOGISTIC, "rounds = 3\ncounts = \"clamped\"", ROWS, "no option counts"),
        (TOPICS, "rounds = 3\nclip_target = 0.5", WORDS, "needs documents"),
        (TOPICS, "rounds = 3\nclip_norm = 51", WORDS, "document length"),
        (TOPICS, "rounds = 3", ROWS, "bag-of-words"),
        (LOGISTIC, "rounds = 3", WORDS, "a formula is for tables"),
        ("family = \"latent-dirichlet\"\ntopics = 0", "rounds = 3", WORDS, "topic"),
        ("family = \"linear-regression\"\noutcome = \"died\"\nnoise_sd = 1.0", "rounds = 3", ROWS, ""),
        (IMAGES, "rounds = 3", PIXELS, "needs images"),
        (IMAGES, "rounds = 3\nimages = 5", WORDS, "binary-image"),
        (IMAGES, "rounds = 3\nimages = 5\nclip_norm = 1.5", PIXELS, "no image exceeds"),
        (IMAGES, "rounds = 3\nimages = 5\nblock_shares = [0.5, 0.5, 0.5, 0.5, 0.5, 0.5]", PIXELS, "block_shares"),
        (IMAGES, "rounds = 3\nimages = 5\ndocuments = 5", PIXELS, "no option documents"),
        ("family = \"sigmoid-belief\"\nhidden = 0", "rounds = 3\nimages = 5", PIXELS, "hidden"),
        (TOPICS, "rounds = 3\nimages = 5", WORDS, "no option images"),
    ] {
        let error = task(model, pvi, 1.0, schema).unwrap_err().to_string();
        assert!(error.contains(part), "{model} {pvi}: {error}");
    }
}

/// Floors and damping in the rule: what a visit moves, and what the noise-aware last visit adds.
#[test]
fn the_rule_keeps_the_first_statistic_and_averages_the_second() {
    let with = |intervals: &str| {
        let options = format!("rounds = 2\ndamping = 0.5\nexpansion = \"origin\"\nintervals = \"{intervals}\"\neigenvalue_floor = 0.0");
        task(LOGISTIC, &options, 1.0, ROWS).unwrap()
    };
    let naive = with("naive");
    let (rule, spec) = (naive.rule(), spec(&naive));
    let start = rule.initial();
    let [one, two] = *spec.scales(&naive.setting(), 0).as_slice() else { panic!("two blocks") };
    let later = spec.scales(&naive.setting(), 1)[0];
    let first = rule.apply(&start, &VisitSum { visit: 0, sites: 1, sum: &[3.0 / one, -1.0 / one, 40.0 / two, 0.0, 60.0 / two] });
    // λ = prior + (s1, ½ S2).
    let expected = [3.0, -1.0, 21.0, 0.0, 31.0];
    first.state[..5].iter().zip(expected).for_each(|(a, b)| assert!((a - b).abs() < 1e-9, "{a} {b}"));
    let sum = [80.0 / later, 0.0, 100.0 / later];
    let second = rule.apply(&first.state, &VisitSum { visit: 1, sites: 1, sum: &sum });
    second.state[..5].iter().zip([3.0, -1.0, 51.0, 0.0, 66.0]).for_each(|(a, b)| assert!((a - b).abs() < 1e-9, "{a} {b}"));
    // The same sums, with the noise in the posterior: less certain in every direction.
    let aware = with("noise-aware");
    let rule = aware.rule();
    let first = rule.apply(&rule.initial(), &VisitSum { visit: 0, sites: 1, sum: &[3.0 / one, -1.0 / one, 40.0 / two, 0.0, 60.0 / two] });
    let wide = rule.apply(&first.state, &VisitSum { visit: 1, sites: 1, sum: &sum });
    assert!(wide.state[2] < 51.0 && wide.state[4] < 66.0 && wide.state[2] > 1.0);
    assert!(VipsRule::topics(&aware.setting(), &wide.state).is_err());
}

/// About the mean a visit solves (Λ0 + S2)(θ − μ) = h0 − Λ0 μ + residuals: without residuals the prior alone moves θ. Noise counts by how
/// far θ moved.
#[test]
fn residuals_move_the_mean_from_where_it_was() {
    let with =
        |intervals: &str| task(LOGISTIC, &format!("rounds = 2\nintervals = \"{intervals}\"\neigenvalue_floor = 0.0"), 1.0, ROWS).unwrap();
    let naive = with("naive");
    let (rule, spec) = (naive.rule(), spec(&naive));
    let sum_of = |visit: u32, first: [f64; 2], second: [f64; 3]| {
        let [one, two] = *spec.scales(&naive.setting(), visit).as_slice() else { panic!("two blocks") };
        [first[0] / one, first[1] / one, second[0] / two, second[1] / two, second[2] / two]
    };
    let first = rule.apply(&rule.initial(), &VisitSum { visit: 0, sites: 1, sum: &sum_of(0, [30.0, -20.0], [9.0, 0.0, 19.0]) });
    // μ = (3, −1).
    first.state[..5].iter().zip([30.0, -20.0, 10.0, 0.0, 20.0]).for_each(|(a, b)| assert!((a - b).abs() < 1e-9, "{a} {b}"));
    let sum = sum_of(1, [3.5, -1.0], [99.0, 0.0, 39.0]);
    let second = rule.apply(&first.state, &VisitSum { visit: 1, sites: 1, sum: &sum });
    let mean = |state: &[f64]| [state[0] / state[2], state[1] / state[4]];
    let moved = mean(&second.state);
    // 3 + (3.5 − 3)/100, −1 + (−1 + 1)/40.
    assert!((moved[0] - 3.005).abs() < 1e-9 && (moved[1] + 1.0).abs() < 1e-9, "{moved:?}");
    let aware = with("noise-aware").rule();
    let near = aware.apply(&first.state, &VisitSum { visit: 1, sites: 1, sum: &sum });
    let far = aware.apply(&first.state, &VisitSum { visit: 1, sites: 1, sum: &sum_of(1, [350.0, -1.0], [99.0, 0.0, 39.0]) });
    assert!(near.state[2] < 100.0 && far.state[2] < near.state[2] && far.state[2] > 1.0);
}

#[test]
fn learned_relevance_moves_the_prior() {
    let task = task(LOGISTIC, "rounds = 2\nrelevance_shape = 0.01\nrelevance_rate = 0.01\neigenvalue_floor = 0.0", 1.0, ROWS).unwrap();
    let (rule, spec) = (task.rule(), spec(&task));
    let [one, two] = *spec.scales(&task.setting(), 0).as_slice() else { panic!("two blocks") };
    let step = rule.apply(&rule.initial(), &VisitSum { visit: 0, sites: 1, sum: &[0.1 / one, 0.0, 100.0 / two, 0.0, 100.0 / two] });
    // The coefficients are small: the precision that the next visit uses is large.
    assert!(*step.state.last().unwrap() > 10.0);
}

/// Without noise expectations are the counts; with it the state carries what was released, and words that only noise has lose it.
#[test]
fn noised_counts_become_expectations() {
    let task = task(TOPICS, "rounds = 3\nclip_norm = 10.0\ndamping = { start = 1.0, end = 0.5 }", 1.0, WORDS).unwrap();
    let rule = task.rule();
    let start = rule.initial();
    let [words, cells] = *spec(&task).scales(&task.setting(), 0).as_slice() else { panic!("two blocks") };
    // A term's two blocks together are within C.
    assert!((words.powi(-2) + cells.powi(-2) - 1.0).abs() < 1e-12);
    let mut sum = vec![0.0; 100];
    sum[..20].iter_mut().for_each(|total| *total = 4_000.0 / words / 10.0);
    sum[20..].iter_mut().for_each(|count| *count = 1_000.0 / cells / 10.0);
    sum[20] = 4e5 / cells / 10.0;
    let first = rule.apply(&start, &VisitSum { visit: 0, sites: 1, sum: &sum });
    let topics = VipsRule::topics(&task.setting(), &first.state).unwrap();
    assert!(topics.lambda()[0] > 3e5 && topics.lambda().iter().all(|l| *l > 0.0));
    // The second visit has no totals; half of what was there stays.
    let again = rule.apply(&first.state, &VisitSum { visit: 1, sites: 1, sum: &[0.0; 80] });
    assert!(VipsRule::topics(&task.setting(), &again.state).unwrap().lambda()[0] < 0.9 * topics.lambda()[0]);
    assert_eq!(again.state.len(), start.len());
    // What has another length leaves the state alone.
    assert_eq!(rule.apply(&first.state, &VisitSum { visit: 1, sites: 1, sum: &[0.0; 100] }).state, first.state);
}
