use super::NOISE_PRIOR;
use crate::methods::VisitSum;
use crate::task::{ClipTarget, FactorOwner, RawTask, ResolveContext, ResolvedTask, SiteStateForm, UpdateSpec};
use dp_pvi_models::pbp_network::Network;
use dp_pvi_models::pbp_network::network_posterior;

const COLUMNS: &str = r#"
[[columns]]
name = "a"
kind = "number"
lower = -1.0
upper = 1.0
centre = 0.0
scale = 1.0

[[columns]]
name = "b"
kind = "number"
lower = -1.0
upper = 1.0
centre = 0.0
scale = 1.0
"#;

fn schema(label: &str) -> String {
    format!("[[columns]]\nname = \"y\"\n{label}\n{COLUMNS}")
}

fn resolve(model: &str, label: &str, pvi: &str, epsilon: Option<f64>) -> Result<ResolvedTask, String> {
    let epsilon = epsilon.map(|e| format!("epsilon = {e:?}\n")).unwrap_or_default();
    let text = format!(
        "[model]\n{model}\n[schema]\nfile = \"s\"\n[pvi]\nschedule = \"synchronous\"\nrounds = 6\n{pvi}\n[privacy]\nunit = \"record\"\nadjacency = \"replace-one\"\n{epsilon}delta = 1e-5\ntrust = \"local\"\nmax_units = 1000000\n"
    );
    let context = ResolveContext { name: "t", update_deadline_seconds: 60, min_sites: 1, expected_sites: 2 };
    RawTask::parse(&text).map_err(|e| e.to_string())?.resolve(&schema(label), context).map_err(|e| e.to_string())
}

const CLASS: &str = "kind = \"boolean\"\ntrue_values = [\"1\"]\nfalse_values = [\"0\"]";
const NUMBER: &str = "kind = \"number\"\nlower = -1.0\nupper = 1.0\ncentre = 0.0\nscale = 1.0";
const NETWORK: &str = "family = \"pbp-network\"\noutcome = \"y\"\nhidden = [4, 3]\nseed = 5";
const MIXTURE: &str = "family = \"gaussian-mixture\"\nformula = \"y ~ 0 + .\"\ncomponents = 3\nnoise_sd = 0.5";

/// Every model with every update: the stated ε holds for all rounds, documents survive the wire, and what cannot be computed is refused.
#[test]
fn tasks_of_expectation_propagation_resolve_and_keep_their_epsilon() {
    let probit = "family = \"probit-regression\"\noutcome = \"y\"";
    let logit = "family = \"logistic-regression\"\noutcome = \"y\"\napproximation = \"full-covariance\"";
    for (model, label) in [(probit, CLASS), (logit, CLASS), (MIXTURE, NUMBER), (NETWORK, NUMBER)] {
        for pvi in [
            "update = \"sep\"\nrecords = 100\nsampling_rate = 0.1",
            "update = \"ep\"\nrecords = 100",
            "update = \"sep\"\nrecords = 100\nclip_metric = \"flat\"\nclip_norm = 2.0\nclip_target = \"factor\"",
        ] {
            let task = resolve(model, label, pvi, Some(1.0)).unwrap();
            assert!(task.loss(task.visits()).unwrap().epsilon.get() <= 1.0);
            assert_eq!(ResolvedTask::from_bytes(&task.to_bytes()).unwrap(), task);
            assert_eq!(task.message(0).unwrap().coordinates, task.family().len() as u64);
            assert!(task.sum(0).unwrap().is_some());
            let without = resolve(model, label, &pvi.replace("\nsampling_rate = 0.1", ""), None).unwrap();
            assert!(!without.update.is_private());
        }
    }
    let em = resolve(MIXTURE, NUMBER, "update = \"dp-em\"", Some(1.0)).unwrap();
    assert!(em.loss(6).unwrap().epsilon.get() <= 1.0);
    assert_eq!(ResolvedTask::from_bytes(&em.to_bytes()).unwrap(), em);
    for (model, label, pvi, epsilon, why) in [
        (probit, CLASS, "update = \"sep\"", Some(1.0), "records"),
        (probit, CLASS, "update = \"sep\"\nrecords = 9\norder = \"pass\"", Some(1.0), "cannot be protected"),
        (probit, CLASS, "update = \"ep\"\nrecords = 9\nsampling_rate = 0.5", Some(1.0), "remove sampling_rate"),
        (probit, CLASS, "update = \"dp-em\"", Some(1.0), "gaussian-mixture\" only"),
        (NETWORK, CLASS, "update = \"sep\"\nrecords = 9", Some(1.0), "predicts a number"),
        (
            "family = \"linear-regression\"\noutcome = \"y\"\nnoise_sd = 1.0",
            NUMBER,
            "update = \"sep\"\nrecords = 9",
            Some(1.0),
            "tilted moments",
        ),
        (probit, CLASS, "update = \"sep\"\nrecords = 9\nclip_norms = [1.0]", Some(1.0), "2 blocks"),
    ] {
        let refused = resolve(model, label, pvi, epsilon).unwrap_err();
        assert!(refused.contains(why), "{refused}");
    }
}

/// The unit of `sep` and `ep` may be the site: one term, which is another one where the site is, and a warning where three sites cannot be heard.
#[test]
fn sites_may_be_what_is_protected() {
    let probit = "family = \"probit-regression\"\noutcome = \"y\"";
    let sites = |pvi: &str, unit: &str| {
        let text = format!(
            "[model]\n{probit}\n[schema]\nfile = \"s\"\n[pvi]\nschedule = \"synchronous\"\nrounds = 6\n{pvi}\n[privacy]\nunit = \"{unit}\"\nadjacency = \"replace-one\"\nepsilon = 2.0\ndelta = 1e-5\ntrust = \"local\"\nmax_units = 1000000\n"
        );
        let context = ResolveContext { name: "t", update_deadline_seconds: 60, min_sites: 1, expected_sites: 3 };
        RawTask::parse(&text).map_err(|e| e.to_string())?.resolve(&schema(CLASS), context).map_err(|e| e.to_string())
    };
    for (update, state) in [("sep", SiteStateForm::None), ("ep", SiteStateForm::Private(6))] {
        let task = sites(&format!("update = \"{update}\"\nsite_passes = 7"), "site").unwrap();
        let UpdateSpec::Propagation(spec) = &task.update else { panic!("another update") };
        assert_eq!((spec.records, spec.site_passes, task.site_state()), (3, Some(7), state));
        let loss = task.loss(task.visits()).unwrap().epsilon.get();
        assert!(loss <= 2.0 && loss > 1.99, "{loss}");
        // Another vector of the ball: μ = 2√6/z, and δ(μ) = 1e-5 at ε = 2 where μ = 0.5009.
        let mu = 2.0 * 6f64.sqrt() / spec.noise_multiplier.unwrap().get();
        assert!((0.498..0.504).contains(&mu), "{mu}");
        assert!(task.warnings()[0].contains("3 sites are too few"), "{:?}", task.warnings());
    }
    for (pvi, unit, why) in [
        ("update = \"sep\"\nrecords = 9", "site", "remove records"),
        ("update = \"sep\"\nsampling_rate = 0.5", "site", "every site answers"),
        ("update = \"ep\"\norder = \"pass\"", "site", "every site answers"),
        ("update = \"sep\"\nsite_passes = 0", "site", "at least 1"),
        ("update = \"sep\"\nrecords = 9\nsite_passes = 2", "record", "belongs to unit"),
    ] {
        let refused = sites(pvi, unit).unwrap_err();
        assert!(refused.contains(why), "{refused}");
    }
}

#[test]
fn a_networks_state_says_what_the_posterior_says() {
    let task = resolve(NETWORK, NUMBER, "update = \"sep\"\nrecords = 50", None).unwrap();
    let network = Network::new(2, &[4, 3]).unwrap();
    let weights = network.weights();
    let state = task.rule().initial();
    let head = dp_pvi_math::expfam::any::Gaussian::from_natural(task.family(), task.posterior(&state).to_vec()).unwrap();
    let posterior = network_posterior(&network, head.standard());
    assert!(posterior.mean.iter().zip(network.initial_means(5)).all(|(a, b)| (a - b).abs() < 1e-12));
    assert!((posterior.shape - NOISE_PRIOR.0).abs() < 1e-12 && (posterior.rate - NOISE_PRIOR.1).abs() < 1e-12);
    assert!(posterior.variance.iter().all(|v| (v - 1.0).abs() < 1e-12));
    let (shape, rate) = network_noise(task.posterior(&state), weights).unwrap();
    assert!((shape - 6.0).abs() < 1e-12 && (rate - 6.0).abs() < 1e-12);
    // A round without any change refines the prior factors only.
    let zero = vec![0.0; task.family().len()];
    let step = task.rule().apply(&state, &VisitSum { visit: 0, sites: 1, sum: &zero });
    assert_eq!((step.state.len(), step.floored), (state.len(), 0));
}

/// The published step is ρ = γ/N² at q = 1/N: a hundred passes over 1,000 records cover a tenth of the way.
#[test]
fn the_step_is_honest_about_the_distance() {
    let task = resolve(
        "family = \"probit-regression\"\noutcome = \"y\"",
        CLASS,
        "update = \"sep\"\nrecords = 10\nsampling_rate = 0.5\ndamping = 0.2",
        Some(1.0),
    )
    .unwrap();
    let UpdateSpec::Propagation(spec) = &task.update else { panic!("another update") };
    assert_eq!((spec.factors, spec.clip_target), (FactorOwner::Shared, ClipTarget::Change));
    let state = task.rule().initial();
    let mut sum = vec![0.0; state.len()];
    (sum[0], sum[3]) = (0.1, 0.2);
    let step = task.rule().apply(&state, &VisitSum { visit: 0, sites: 1, sum: &sum });
    // λ + (ρ/q)·scale·R, at zero mean.
    assert!((step.state[0] - 0.4 * spec.scales[0] * 0.1).abs() < 1e-12);
    assert!((step.state[3] - 1.0 - 0.4 * spec.scales[1] * 0.2).abs() < 1e-12);
    let way = 1.0 - (1.0 - 1.0 / 1e6_f64).powi(100_000);
    assert!((way - 0.095).abs() < 1e-3);
}

/// Means of components stay in the ball that holds all points, whatever noise says.
#[test]
fn noise_does_not_drive_a_component_out_of_the_data() {
    let task = resolve(MIXTURE, NUMBER, "update = \"sep\"\nrecords = 10", Some(1.0)).unwrap();
    let rule = task.rule();
    let mut sum = vec![0.0; rule.initial().len()];
    sum[..6].copy_from_slice(&[1e6, -1e6, 3e5, 0.0, 0.0, 0.0]);
    let state = rule.apply(&rule.initial(), &VisitSum { visit: 0, sites: 1, sum: &sum }).state;
    let head = dp_pvi_math::expfam::any::Gaussian::from_natural(task.family(), task.posterior(&state).to_vec()).unwrap();
    let norms: Vec<f64> = head.standard().mean().chunks(2).map(|m| m[0].hypot(m[1])).collect();
    // Two columns in [-1, 1].
    assert!(task.feature_bound < 1.5 && norms.iter().all(|n| *n <= task.feature_bound * (1.0 + 1e-9)), "{norms:?}");
    assert!(norms[0] > 0.99 * task.feature_bound && norms[1] > 0.99 * task.feature_bound);
}

/// A public guess of the weights' precision is where a run starts; their means stay, and the prior is what it was.
#[test]
fn a_network_may_start_with_a_public_precision() {
    let network = Network::new(2, &[4, 3]).unwrap();
    let task = resolve(NETWORK, NUMBER, "update = \"sep\"\nrecords = 50\ninitial_precision = 99.0", Some(1.0)).unwrap();
    assert_eq!(ResolvedTask::from_bytes(&task.to_bytes()).unwrap(), task);
    let state = task.rule().initial();
    let head = dp_pvi_math::expfam::any::Gaussian::from_natural(task.family(), task.posterior(&state).to_vec()).unwrap();
    let posterior = network_posterior(&network, head.standard());
    assert!(posterior.mean.iter().zip(network.initial_means(5)).all(|(a, b)| (a - b).abs() < 1e-12));
    assert!(posterior.variance.iter().all(|v| (v - 0.01).abs() < 1e-12));
    let UpdateSpec::Propagation(spec) = &task.update else { panic!("another update") };
    let first = super::PropagationRule::new(&task.setting(), spec.clone()).first();
    assert!(first.prior[network.weights()..2 * network.weights()].iter().all(|p| (p - 1.0).abs() < 1e-12));
    for (model, label, pvi, epsilon, why) in [
        (
            "family = \"probit-regression\"\noutcome = \"y\"",
            CLASS,
            "update = \"sep\"\nrecords = 9\ninitial_precision = 1.0",
            Some(1.0),
            "initial_precision",
        ),
        (NETWORK, NUMBER, "update = \"sep\"\nrecords = 9\ninitial_precision = -1.0", Some(1.0), "initial_precision"),
        (NETWORK, NUMBER, "update = \"sep\"\nrecords = 9\norder = \"filter\"", Some(1.0), "filter"),
        (NETWORK, NUMBER, "update = \"ep\"\nrecords = 9\norder = \"filter\"", None, "filter"),
    ] {
        let refused = resolve(model, label, pvi, epsilon).unwrap_err();
        assert!(refused.contains(why), "{refused}");
    }
}

/// Shape and rate of a network's noise precision from the head of a state over `weights` weights.
fn network_noise(head: &[f64], weights: usize) -> Option<(f64, f64)> {
    let (rate, precision) = (*head.get(weights)?, *head.get(2 * weights + 1)?);
    Some((rate * rate / precision, rate))
}
