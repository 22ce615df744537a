use super::learned;
use crate::methods::VisitSum;
use crate::task::{RawTask, ResolveContext, ResolvedTask};
use dp_pvi_math::expfam::any::Gaussian;

const SCHEMA: &str = "version = 2\n[[columns]]\nname = \"age\"\nkind = \"number\"\nlower = 0\nupper = 90\ncentre = 45\nscale = 45\n[[columns]]\nname = \"ward\"\nkind = \"category\"\nvalues = [\"a\", \"b\", \"c\"]\n[[columns]]\nname = \"died\"\nkind = \"boolean\"\ntrue_values = [\"yes\"]\nfalse_values = [\"no\"]\n";

pub(super) fn task(approximation: &str, update: &str, formula: &str) -> Result<ResolvedTask, String> {
    let private = update != "pvi";
    let text = format!(
        "[model]\nfamily = \"logistic-regression\"\napproximation = \"{approximation}\"\nformula = \"{formula}\"\n[schema]\nfile = \"s\"\n[pvi]\nschedule = \"synchronous\"\n\
         rounds = 4\nupdate = \"{update}\"\n[privacy]\nunit = \"record\"\nadjacency = \"replace-one\"\n{}delta = 1e-5\ntrust = \"local\"\nmax_units = 1000000\n",
        if private { "epsilon = 1.0\n" } else { "" }
    );
    let context = ResolveContext { name: "t", update_deadline_seconds: 60, min_sites: 1, expected_sites: 2 };
    RawTask::parse(&text).and_then(|raw| raw.resolve(SCHEMA, context)).map_err(|e| e.to_string())
}

/// λ = λ0(τ) + what the sites added, after every round; τ² is that of the posterior to which the round led.
#[test]
fn the_prior_in_lambda_is_that_of_the_learned_scale() {
    for approximation in ["mean-field", "full-covariance"] {
        let task = task(approximation, "pvi", "died ~ age + (1 | ward)").unwrap();
        let (family, prior) = (task.family(), task.setting().priors());
        let rule = task.rule();
        let len = family.len();
        let mut added = vec![0.0; len];
        let mut state = rule.initial();
        assert_eq!((state.len() as u64, learned(&task.setting())), (task.update.rules().state(&task.setting()).len, 1));
        for visit in 0..3_u32 {
            let mut sum = vec![0.0; len];
            (sum[0], sum[2], sum[family.dimension()]) = (1.0, 3.0, 2.0);
            let (old, scale) = (state.clone(), state[len]);
            let step = rule.apply(&state, &VisitSum { visit, sites: 2, sum: &sum });
            let rho = task.damping[visit as usize];
            added.iter_mut().zip(&sum).for_each(|(added, change)| *added += rho * change);
            state = step.state;
            let scale_now = &state[len..];
            let expected: Vec<f64> = prior.with(scale_now).natural(family).iter().zip(&added).map(|(p, a)| p + a).collect();
            for (found, expected) in state[..len].iter().zip(&expected) {
                assert!((found - expected).abs() < 1e-12, "{found} {expected}");
            }
            // With the prior of the round before, the round led to a q whose τ² is the new one.
            let before: Vec<f64> = prior.with(&[scale]).natural(family).iter().zip(&added).map(|(p, a)| p + a).collect();
            let q = Gaussian::from_natural(family, before).unwrap();
            let told = prior.groups[0].scale(q.standard().mean(), &q.standard().variances());
            assert!((scale_now[0] - if visit == 0 { 0.25 } else { told }).abs() < 1e-12);
            // λ′ = λ + ρΣΔ + r, for who follows the run.
            let correction = step.correction.unwrap_or_else(|| vec![0.0; len]);
            for (k, found) in state[..len].iter().enumerate() {
                assert!((found - old[k] - rho * sum[k] - correction[k]).abs() < 1e-12);
            }
        }
    }
}

/// Sites that have converged send 0, and τ goes on until it has converged as well.
#[test]
fn the_scale_moves_on_when_the_sites_have_converged() {
    let task = task("full-covariance", "pvi", "died ~ age + (1 | ward)").unwrap();
    let rule = task.rule();
    let mut state = rule.initial();
    state[2] = 6.0;
    let none = vec![0.0; task.family().len()];
    let scales: Vec<f64> = (1..200)
        .map(|visit| {
            state = rule.apply(&state, &VisitSum { visit, sites: 2, sum: &none }).state;
            *state.last().unwrap()
        })
        .collect();
    assert!(scales[1] != scales[0] && (scales[198] / scales[197] - 1.0).abs() < 1e-9, "{} {} {}", scales[0], scales[1], scales[198]);
}

#[test]
fn sums_that_cannot_be_used_leave_the_state_as_it_was() {
    let task = task("mean-field", "pvi", "died ~ age + (1 | ward)").unwrap();
    let rule = task.rule();
    let state = rule.initial();
    for sum in [vec![], vec![f64::NAN; task.family().len()]] {
        assert_eq!(rule.apply(&state, &VisitSum { visit: 2, sites: 1, sum: &sum }).state, state);
    }
}

#[test]
fn updates_without_a_step_for_scales_refuse_them() {
    let error = task("mean-field", "global-vi", "died ~ s(age)").unwrap_err();
    assert!(error.contains("sd = 0.5"), "{error}");
    assert!(task("mean-field", "global-vi", "died ~ s(age, sd = 0.5)").is_ok());
    assert!(task("mean-field", "dp-optimisation", "died ~ s(age)").is_ok());
    assert!(task("full-covariance", "natural-gradient", "died ~ s(age) + (1 | ward)").is_ok());
}
