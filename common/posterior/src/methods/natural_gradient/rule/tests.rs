#![allow(clippy::unwrap_used)]

use dp_pvi_accounting::Relation;
use dp_pvi_math::expfam::any::Gaussian;
use dp_pvi_math::expfam::gaussian::full::unsvec;
use nalgebra::{DMatrix, DVector};

use super::NaturalGradientRule;
use crate::methods::{Rule, VisitSum};
use crate::task::{AggregationSpec, NaturalGradientSpec, RawTask, ResolveContext, ResolvedTask, TaskError, Trust, UpdateSpec};

const SCHEMA: &str = "norm_bound = 2.0\n[[columns]]\nname = \"died\"\nkind = \"boolean\"\ntrue_values = [\"yes\"]\nfalse_values = [\"no\"]\n\
    [[columns]]\nname = \"age\"\nkind = \"number\"\nlower = 0\nupper = 110\ncentre = 50\nscale = 20\n";

fn task(options: &str, approximation: &str) -> Result<ResolvedTask, TaskError> {
    let text = format!(
        "[model]\nfamily = \"logistic-regression\"\noutcome = \"died\"\napproximation = \"{approximation}\"\nprior_units = \"encoded\"\n[schema]\nfile = \"schema.toml\"\n\
         [pvi]\nschedule = \"synchronous\"\nrounds = 6\nupdate = \"natural-gradient\"\n{options}\n\
         [privacy]\nunit = \"record\"\nadjacency = \"add-remove\"\nepsilon = 1.0\ndelta = 1e-5\ntrust = \"local\"\nmax_units = 1000000\n"
    );
    let context = ResolveContext { name: "test", update_deadline_seconds: 60, min_sites: 1, expected_sites: 3 };
    RawTask::parse(&text)?.resolve(SCHEMA, context)
}

fn spec(task: &ResolvedTask) -> NaturalGradientSpec {
    let UpdateSpec::NaturalGradient(spec) = task.update else { panic!("{}", task.update) };
    spec
}

fn arrived(visit: u32, sum: &[f64]) -> VisitSum<'_> {
    VisitSum { visit, sites: 1, sum }
}

#[test]
fn the_visits_of_a_run_share_its_budget_and_nothing_is_left_over() {
    for options in ["", "budget_growth = 1.4", "preconditioner = \"diagonal\"", "gram_share = 0.5\nbudget_growth = 0.7"] {
        for approximation in ["mean-field", "full-covariance"] {
            let task = task(options, approximation).unwrap();
            let spec = spec(&task);
            let total: f64 = (0..6).map(|visit| spec.share(visit, 6)).sum();
            assert!((total - 1.0).abs() < 1e-14, "{options}: {total}");
            let loss = task.loss(6).unwrap().epsilon.get();
            assert!((0.999..=1.0).contains(&loss), "{options}: {loss}");
            // One release at z costs what all visits together cost.
            let mu = 1.0 / spec.noise_multiplier.get();
            assert!((mu - 0.26803).abs() < 1e-4, "{mu}");
            assert!(task.loss_under(Relation::ReplaceOne, task.privacy.delta, 6).unwrap().epsilon > task.loss(6).unwrap().epsilon);
        }
    }
}

/// max over |r| ≤ 1 of r²R² + w²Q²(r(1 − r))² is R²: the curvature is free, and no larger weight would be.
#[test]
fn the_curvature_of_a_logit_costs_nothing() {
    let task = task("", "full-covariance").unwrap();
    let spec = spec(&task);
    let radius = task.feature_bound;
    let joint = |weight: f64| {
        let at = |r: f64| (r * radius).hypot(weight * radius * radius * r * (1.0 - r));
        (0..=100_000).map(|k| at(f64::from(k) / 100_000.0)).fold(0.0, f64::max)
    };
    assert!(joint(spec.curvature_weight) <= radius * (1.0 + 1e-12));
    assert!(joint(spec.curvature_weight * 1.001) > radius * (1.0 + 1e-7));
    // B1 − B2 ≥ B1² for Gaussian logits: the bound that the weight rests on.
    for mean in [-8.0, -2.0, -0.3, 0.0, 1.0, 5.0] {
        for variance in [0.0, 0.1, 1.0, 10.0, 100.0] {
            let m = dp_pvi_math::quadrature::sigmoid_moments(mean, variance);
            assert!(m.curvature <= m.sigmoid * (1.0 - m.sigmoid) * (1.0 + 1e-12) + 1e-15, "{mean} {variance}");
        }
    }
}

#[test]
fn huge_noise_never_gives_a_state_that_is_no_distribution() {
    for (options, approximation) in [("", "mean-field"), ("", "full-covariance"), ("preconditioner = \"diagonal\"", "mean-field")] {
        let task = task(options, approximation).unwrap();
        let rule = task.rule();
        for size in [1.0, 1e4, 1e12, 1e150, f64::MAX, f64::INFINITY, f64::NAN] {
            let mut state = rule.initial();
            for visit in 0..6 {
                let length = usize::try_from(task.message(visit).unwrap().coordinates).unwrap();
                let sum: Vec<f64> = (0..length).map(|j| size * if (j + visit as usize).is_multiple_of(2) { 1.0 } else { -1.0 }).collect();
                let step = rule.apply(&state, &arrived(visit, &sum));
                assert_eq!(step.state.len(), state.len());
                Gaussian::from_natural(task.family(), task.posterior(&step.state).to_vec()).unwrap();
                NaturalGradientRule::point(task.family(), &step.state).unwrap();
                state = step.state;
            }
            assert_eq!(rule.apply(&state, &arrived(3, &[1.0])).state, state, "a sum of another length");
        }
    }
}

#[test]
fn the_mean_is_that_of_the_last_iterates_weighted_by_budget() {
    let task = task("averaging = 0.5\nbudget_growth = 2.0\nshrinkage = 0.0\neigenvalue_floor = 0.0\nstep = 1.0", "mean-field").unwrap();
    let rule = task.rule();
    let mut state = rule.initial();
    // P = Λ0 + 3: the mean moves by (g − μ)/4; no curvature, so Λ = 1.
    state = rule.apply(&state, &arrived(0, &[3.0, 0.0, 3.0])).state;
    let (mut mu, mut iterates) = (0.0, Vec::new());
    for (visit, g) in [4.0, -2.0, 1.0, 8.0, 0.5].into_iter().enumerate() {
        mu += (g - mu) / 4.0;
        iterates.push(mu);
        let visit = u32::try_from(visit).unwrap() + 1;
        state = rule.apply(&state, &arrived(visit, &[g, 0.0, 0.0, 0.0])).state;
        // 5 gradient visits, of which ⌈2.5⌉ = 3 are averaged.
        let (weighted, weight) = iterates.iter().enumerate().skip(2).fold((0.0, 0.0), |(sum, weight), (t, m)| {
            let share = 2f64.powi(i32::try_from(t).unwrap());
            (sum + share * m, weight + share)
        });
        let expected = if iterates.len() < 3 { mu } else { weighted / weight };
        assert!((state[0] - expected).abs() < 1e-12, "visit {visit}: {} {expected}", state[0]);
        let point = NaturalGradientRule::point(task.family(), &state).unwrap();
        assert!((point.standard().mean()[0] - mu).abs() < 1e-12);
    }
}

/// Theorem of `dp_pvi_privacy::proofs::shares`: M shares of variance (zC)²/h add up to (zC)² M/h. Local noise of M sites is M (zC)².
#[test]
fn the_noise_of_a_sum_is_that_of_every_share_in_it() {
    let local = task("", "full-covariance").unwrap();
    let mut summed = local.clone();
    summed.privacy.trust = Trust::Aggregated;
    summed.aggregation = Some(AggregationSpec { sites: 3, colluders: 1, honest: 2, max_units: 1000, max_rounding_loss: 0.05 });
    let noise =
        |task: &ResolvedTask, sites| NaturalGradientRule::new(&task.setting(), spec(task)).noise(&VisitSum { visit: 1, sites, sum: &[] });
    let one = noise(&local, 1);
    for sites in 1..=5_u32 {
        assert!((noise(&local, sites) / one - f64::from(sites).sqrt()).abs() < 1e-12);
        assert!((noise(&summed, sites) / one - (f64::from(sites) / 2.0).sqrt()).abs() < 1e-12);
    }
}

#[test]
fn combinations_that_do_not_exist_are_named() {
    for (options, word) in [
        ("damping = 0.5", "damping"),
        ("step = 2.5", "step"),
        ("gram_share = 1.0", "gram_share"),
        ("budget_growth = 0.0", "budget_growth"),
        ("averaging = 1.5", "averaging"),
        ("residual_bound = -1", "residual_bound"),
        ("curvature_weight = 0", "curvature_weight"),
        ("steps = 5", "steps"),
    ] {
        let message = task(options, "mean-field").unwrap_err().to_string();
        assert!(message.contains(word), "{options}: {message}");
    }
}

/// A released curvature that clearly exceeds P raises P before the step. What the visit released can still be read off the states.
#[test]
fn the_preconditioner_rises_to_a_released_curvature_above_it() {
    for (approximation, curvature) in [("mean-field", vec![5e5, 2e6]), ("full-covariance", vec![5e5, 3e5, 2e6])] {
        let task = task("shrinkage = 0.0\neigenvalue_floor = 0.0", approximation).unwrap();
        let (spec, rule) = (spec(&task), NaturalGradientRule::new(&task.setting(), spec(&task)));
        let before = rule.apply(&rule.initial(), &arrived(0, &[4e5, 0.0, 1e6])).state;
        let sum: Vec<f64> = [300.0, -200.0].into_iter().chain(curvature.iter().map(|h| spec.curvature_weight * h)).collect();
        let after = rule.apply(&before, &arrived(1, &sum)).state;
        let preconditioner = |state: &[f64]| unsvec(rule.parts(state).unwrap().preconditioner, 2);
        let released = match approximation {
            "mean-field" => DMatrix::from_diagonal(&DVector::from_vec(curvature.clone())),
            _ => unsvec(&curvature, 2),
        };
        let (old, new) = (preconditioner(&before), preconditioner(&after));
        assert!((&new - &old).symmetric_eigenvalues().min() > -1e-6 * old.norm());
        // Up to what may be noise.
        let noise = rule.noise(&arrived(1, &[])) / spec.curvature_weight;
        assert!((&new - &released).symmetric_eigenvalues().min() > -2.0 * noise, "{new} {released}");
        let visit = rule.released(&before, &after, 1, 1).unwrap();
        for (found, sent) in visit.gradient.iter().chain(&visit.curvature).zip([300.0, -200.0].iter().chain(&curvature)) {
            assert!((found - sent).abs() <= 1e-9 * (1.0 + sent.abs()), "{found} {sent}");
        }
        // A smaller curvature leaves P unchanged.
        let small: Vec<f64> = [300.0, -200.0].into_iter().chain(curvature.iter().map(|h| 0.1 * spec.curvature_weight * h)).collect();
        assert_eq!(preconditioner(&rule.apply(&before, &arrived(1, &small)).state), old);
    }
}
