//! Sites as units: the limits without noise, and what a site keeps.

use super::*;

/// Three sites that protect themselves.
fn task(bare: &ResolvedTask, factors: FactorOwner, passes: u32, clip: Option<(f64, f64)>) -> ResolvedTask {
    let mut spec = spec(bare, factors, ClipMetric::Centred, clip.map_or(1.0, |(bound, _)| bound), clip.map(|(_, noise)| noise));
    (spec.records, spec.site_passes, spec.visit_step) = (3, Some(passes), 0.5);
    if clip.is_none() {
        (spec.clip_norms, spec.scales) = (Vec::new(), Vec::new());
    }
    let mut task = with(bare, spec);
    task.privacy.unit = PrivacyUnit::Site;
    task.damping = vec![0.3];
    task
}

/// λ after so many rounds over these sites, without protection.
fn run(task: &ResolvedTask, sites: &[RawUnits], rounds: u64) -> Vec<f64> {
    let rule = task.rule();
    let mut state = rule.initial();
    let mut factors = vec![Vec::new(); sites.len()];
    for round in 0..rounds {
        let mut sum = vec![0.0; task.family().len()];
        for (raw, factor) in sites.iter().zip(&mut factors) {
            let output = visit(task, &state, &kept(factor), raw, round);
            crate::methods::propagation::add(&mut sum, &numbers(&output), 1.0);
            if matches!(output.pending, Pending::Private(_)) {
                *factor = reopened(output.pending, factor, 0.3);
            }
        }
        state = rule.apply(&state, &VisitSum { visit: 0, sites: 3, sum: &sum }).state;
    }
    state
}

/// The fixed point over all records.
fn fixed_point(task: &ResolvedTask, raw: &RawUnits) -> Vec<f64> {
    let matching = models::from_spec(&task.model).unwrap().moment_matching(task.family()).unwrap();
    let prior = task.prior_natural();
    let mut ep = Factors::new(matching.as_ref(), &prior, &vec![0.0; prior.len()], raw.len());
    for _ in 0..300 {
        ep.pass(table(D, raw).records(), 0.5);
    }
    ep.lambda
}

/// Sites that differ, each with a factor of its own, find what expectation propagation finds in all records at one place.
#[test]
fn without_noise_factors_of_sites_reach_the_fixed_point_of_all_records() {
    for bare in tasks().into_iter().take(3) {
        let raw = single(31, 30);
        let sites = [raw[..4].to_vec(), raw[4..12].to_vec(), raw[12..].to_vec()];
        let task = task(&bare, FactorOwner::Record, 60, None);
        close(&run(&task, &sites, 150), &fixed_point(&task, &raw), 1e-6);
    }
}

/// Sites that are all alike need no factors of their own.
#[test]
fn without_noise_a_shared_factor_is_right_where_sites_are_alike() {
    for bare in tasks().into_iter().take(3) {
        let raw = single(33, 8);
        let sites = [raw.clone(), raw.clone(), raw.clone()];
        let task = task(&bare, FactorOwner::Shared, 30, None);
        close(&run(&task, &sites, 150), &fixed_point(&task, &[raw.clone(), raw.clone(), raw].concat()), 1e-6);
    }
}

/// A visit is passes of expectation propagation at the site's cavity, for every model; a site without records takes its factor off.
#[test]
fn a_visit_is_the_loop_itself() {
    for bare in tasks() {
        let task = task(&bare, FactorOwner::Shared, 3, None);
        let (rule, raw, state) = (rule(&task), single(35, 12), task.rule().initial());
        let start = rule.approximation(&state);
        let factor: Vec<f64> = difference(&start.lambda, &start.prior).iter().map(|f| f / 3.0).collect();
        let part: Vec<f64> = factor.iter().map(|f| f / 12.0).collect();
        let matching = models::from_spec(&task.model).unwrap().moment_matching(task.family()).unwrap();
        let mut ep = Factors::new(matching.as_ref(), &difference(&start.lambda, &factor), &part, 12);
        for _ in 0..3 {
            ep.pass(table(D, &raw).records(), 0.5);
        }
        let (mean, precision) = rule.reference(&start.lambda).unwrap();
        let sent = |raw: &RawUnits| numbers(&visit(&task, &state, &SiteState::None, raw, 1));
        close(&sent(&raw), &rule.encode(&difference(&ep.lambda, &start.lambda), &mean, &precision), 1e-9);
        let taken: Vec<f64> = factor.iter().map(|f| -f).collect();
        close(&sent(&Vec::new()), &rule.encode(&taken, &mean, &precision), 1e-9);
    }
}

/// What a site keeps is its clipped change without noise, and its next word does not depend on the noise of the last.
#[test]
fn a_site_remembers_no_noise() {
    for bare in tasks() {
        let task = task(&bare, FactorOwner::Record, 2, Some((0.5, 1.0)));
        let (raw, first) = (single(37, 10), task.rule().initial());
        let remembered = |seed: u64| reopened(visit(&task, &first, &SiteState::None, &raw, seed).pending, &[], 0.3);
        let (a, b) = (remembered(1), remembered(2));
        assert_eq!(a, b);
        assert!(a.len() == task.family().len() && a.iter().any(|f| *f != 0.0));
        let mut next = first.clone();
        next[0] += 0.1;
        let word = |own: &[f64]| numbers(&visit(&task, &next, &kept(own), &raw, 3));
        assert_eq!(word(&a), word(&b));
        assert!(word(&a) != word(&vec![0.0; a.len()]));
    }
}
