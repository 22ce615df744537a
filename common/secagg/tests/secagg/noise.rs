//! The planner and the noise.

use crate::harness::*;
use dp_pvi_accounting::{Delta, DpEvent, Epsilon, NoiseMultiplier, Relation};
use dp_pvi_accounting::{Gdp, epsilon_upper};
use dp_pvi_privacy::sampler::DiscreteGaussianSampler;
use dp_pvi_secagg::account::{AggregatedLoss, log10_tau_upper};
use dp_pvi_secagg::plan::{PlanError, PlanRequest, fits, worst_sum};

/// d = 105, ε = 1 after 10 rounds, C = 1: z of the sum.
fn adult(members: u32, units: u64) -> PlanRequest {
    let noise = NoiseMultiplier::new(23.55).unwrap();
    PlanRequest { noise, max_units: units, colluders: 0, ..request(members, 0, 105) }
}

/// The bound of a term is the gate's (`dp-pvi-privacy`, a million pairs); here: what leaves it is within what the planner counted on.
#[test]
fn shares_stay_within_the_bound_that_the_planner_counts_on() {
    let harness = Harness::new(&request(3, 0, 105), 1);
    for size in [0.0, 1.0, 1e300] {
        let vector = plain(harness.mechanism(), Shard { size, ..harness.shard(0) }, 0, 3);
        assert!(vector.values.iter().all(|x| u128::from(x.unsigned_abs()) <= harness.mechanism().coordinate_bound()));
    }
}

/// Worst-case coherent truncation bias below 1 % of the noise, in 64 and 32 bits; 16 bits are refused.
#[test]
fn rounding_loss_is_small_in_64_and_32_bits_and_16_bits_are_refused() {
    for members in [10, 50, 200] {
        for units in [1, 10] {
            let request = adult(members, units);
            let wide = request.plan().unwrap().figures;
            assert!(wide.rounding_loss <= 1.4e-4, "{members} {units}: {wide:?}");
            assert_eq!(request.figures(64).unwrap(), wide);
            let narrow = request.figures(32).unwrap();
            assert!(narrow.rounding_loss < 0.01 && fits(narrow.worst_sum, 32), "{members} {units}: {narrow:?}");
            // A bias b beside noise of sd 1 raises the root mean square to √(1 + b²).
            assert!((1.0 + narrow.rounding_loss.powi(2)).sqrt() - 1.0 < 1e-4);
            assert!(matches!(request.figures(16), Err(PlanError::Coarse { bits: 16, .. } | PlanError::Overflow { bits: 16, .. })));
        }
    }
    // Record-level terms of a large site: the planner says so.
    let refused = adult(10, 1_000_000).plan();
    assert!(matches!(refused, Err(PlanError::Rounding { .. })), "{refused:?}");
}

/// The planner's condition at its edge, and sums at the edge do not wrap.
#[test]
fn parameters_that_could_overflow_are_refused() {
    let request = PlanRequest { max_rounding_loss: f64::INFINITY, ..adult(10, 1) };
    let figures = request.plan().unwrap().figures;
    // The largest N that fits, by the formula M·N·C_int + 64M(s+1) < 2⁶³.
    let noise = 64 * 10 * u128::from(figures.scale + 1);
    let largest = ((1u128 << 63) - 1 - noise) / (10 * u128::from(figures.clip_steps));
    let largest = u64::try_from(largest).unwrap();
    let at = |max_units| PlanRequest { max_units, ..request.clone() }.plan();
    let edge = at(largest).unwrap().figures;
    assert!(edge.worst_sum < 1 << 63 && worst_sum(10, largest + 1, edge.clip_steps, edge.scale) >= 1 << 63);
    assert_eq!(at(largest + 1), Err(PlanError::Overflow { members: 10, bits: 64 }));
    assert!(matches!(at(u64::MAX), Err(PlanError::Overflow { .. })));
    // Worst-case inputs at the edge: M times the largest coordinate is an i64 still, and the ring gives it back.
    let largest = edge.worst_sum / 10;
    let word = i64::try_from(largest).unwrap();
    for word in [word, -word] {
        let mut sum = dp_pvi_secagg::ring::RingSum::zero(1);
        (0..10).for_each(|_| sum.add_bytes(&word.to_le_bytes()).unwrap());
        assert_eq!(sum.into_lattice(0).values, [word.checked_mul(10).unwrap()]);
    }
    assert!(!fits(1 << 63, 64) && fits((1 << 63) - 1, 64));
}

#[test]
fn planner_says_when_aggregation_buys_nothing() {
    for members in 0..3 {
        assert_eq!(request(members, 0, 5).plan(), Err(PlanError::BuysNothing { members }));
    }
    assert!(request(2, 0, 5).plan().unwrap_err().to_string().contains("buys nothing"));
    assert_eq!(request(3, 1, 5).plan(), Err(PlanError::NoHonest { honest: 1 }));
    assert_eq!(request(10, u32::MAX, 5).plan(), Err(PlanError::NoHonest { honest: 0 }));
    let plan = request(10, 2, 5).plan().unwrap();
    assert_eq!((plan.honest, plan.min_contributors), (7, 8));
    let capped = PlanRequest { honest_cap: 5, ..request(10, 2, 5) }.plan().unwrap();
    assert_eq!((capped.honest, capped.min_contributors), (5, 6));
    assert!(PlanRequest { max_rounding_loss: f64::NAN, ..request(10, 2, 5) }.plan().is_err());
}

/// Sums of h to M shares have h·s² to M·s², within 1 % over 4·10⁵ draws (4.5 sd of the estimate).
#[test]
fn variance_of_the_sum_of_shares() {
    let plan = request(10, 2, 105).plan().unwrap();
    let scale = plan.mechanism.scale();
    let sampler = DiscreteGaussianSampler::new(scale).unwrap();
    let mut source = rng(11);
    let draws = 400_000;
    for count in [plan.honest, 10] {
        let mut squares = 0.0;
        for _ in 0..draws {
            let sum: i64 = (0..count).map(|_| sampler.sample(&mut source).unwrap()).sum();
            squares += (sum as f64 / scale as f64).powi(2);
        }
        let ratio = squares / f64::from(draws) / f64::from(count);
        assert!((ratio - 1.0).abs() < 0.01, "{count} shares: {ratio}");
    }
    // What honest shares give is at least what was asked for: (zC)².
    let sd = scale as f64 * 2f64.powi(plan.mechanism.exponent()) * f64::from(plan.honest).sqrt();
    assert!((23.4..23.4 * (1.0 + 2e-6)).contains(&sd), "{sd}");
}

/// Joint ε is that of μ = 2C√S/(zC); fallback ε that of μ√h; both against the closed form, never below it.
#[test]
fn joint_and_fallback_epsilon_follow_the_formulas() {
    let delta = Delta::new(1e-5).unwrap();
    // Fallback ε where the joint ε is 1, from the formulas of `common/privacy/proofs/shares.md`.
    for (honest, fallback) in [(2, 1.47), (4, 2.15), (7, 2.95), (20, 5.4), (35, 7.5), (80, 12.5), (140, 17.9)] {
        let request = PlanRequest { colluders: 1, ..adult(honest + 1, 1) };
        let plan = request.plan().unwrap();
        assert_eq!(plan.honest, honest);
        let loss = AggregatedLoss::of(&plan.mechanism, 10, Relation::ReplaceOne, delta).unwrap();
        let mechanism = &plan.mechanism;
        let alone = 2.0 * 2f64.powi(-mechanism.exponent()) / mechanism.scale() as f64;
        for (loss, mu) in [(loss.joint, alone * (10.0 / f64::from(honest)).sqrt()), (loss.fallback, alone * 10f64.sqrt())] {
            let exact = Gdp::of_ratio(mu).epsilon_upper(delta).get();
            assert!(loss.epsilon.get() >= exact && loss.epsilon.get() < exact * (1.0 + 1e-5), "{loss:?} {exact}");
        }
        assert!((loss.joint.epsilon.get() - 1.0).abs() < 0.01, "{}", loss.joint.epsilon.get());
        assert!((loss.fallback.epsilon.get() / fallback - 1.0).abs() < 0.02, "h {honest}: {}", loss.fallback.epsilon.get());
        assert!(loss.within(Epsilon::new(1.01).unwrap(), Epsilon::new(20.0).unwrap()));
        assert!(!loss.within(Epsilon::new(1.01).unwrap(), Epsilon::new(1.4).unwrap()), "the policy caps the fallback");
    }
}

/// Never below a reference of fifty digits, and hardly above it. ε of S = 10 rounds, C = 1, replace-one, δ = 1e-5, for the noise that the
/// lattice really has where z = 24 was asked for: s is 24·2²⁰/√h shifted into [2²⁰, 2²¹), and one more. From δ = Φ(−ε/μ + μ/2) − e^ε Φ(−ε/μ − μ/2)
/// by mpmath 1.3.0.
#[test]
fn epsilon_is_never_below_a_reference_of_fifty_digits() {
    let delta = Delta::new(1e-5).unwrap();
    for (honest, scale, joint, fallback) in [
        (4, 1_572_865, 0.981_467_537_426_178_5, 2.113_977_310_115_335),
        (9, 1_048_577, 0.981_467_194_910_780_3, 3.341_405_834_048_146),
        (16, 1_572_865, 0.981_467_537_426_178_5, 4.652_981_093_180_362),
        (36, 1_048_577, 0.981_467_194_910_780_3, 7.511_267_288_598_787),
        (64, 1_572_865, 0.981_467_537_426_178_5, 10.669_514_404_541_678),
        (144, 1_048_577, 0.981_467_194_910_780_3, 17.856_564_629_779_527),
    ] {
        let noise = NoiseMultiplier::new(24.0).unwrap();
        let mechanism = PlanRequest { colluders: 1, noise, ..adult(honest + 1, 1) }.plan().unwrap().mechanism;
        assert_eq!(mechanism.scale(), scale);
        let loss = AggregatedLoss::of(&mechanism, 10, Relation::ReplaceOne, delta).unwrap();
        for (loss, reference) in [(loss.joint.epsilon.get(), joint), (loss.fallback.epsilon.get(), fallback)] {
            assert!(loss >= reference && loss <= reference * (1.0 + 1e-6), "h {honest}: {loss} {reference}");
        }
    }
}

#[test]
fn kairouz_tau_is_nothing_at_the_smallest_scale() {
    assert!(log10_tau_upper(100_000, 1 << 10) < -4.4e6);
    // At s = 0.5, M = 200 the sum is far from one discrete Gaussian: the bound must say so, so it is no bound on a round number.
    assert!(log10_tau_upper(200, 1) > -4.0 && log10_tau_upper(1, 1) == f64::NEG_INFINITY);
    // Against the series itself at s = 1.
    let exact: f64 = (1..5).map(|k| (-2.0 * std::f64::consts::PI.powi(2) * f64::from(k) / f64::from(k + 1)).exp()).sum::<f64>() * 10.0;
    assert!(log10_tau_upper(5, 1) >= exact.log10());
}

/// The ledger's event is the sum's: less than what one share alone costs, and never below the exact figure.
#[test]
fn a_ledger_books_the_sum_and_not_the_share() {
    let plan = request(10, 2, 105).plan().unwrap();
    let delta = Delta::new(1e-5).unwrap();
    let loss = |event: DpEvent| epsilon_upper([&event], Relation::ReplaceOne, delta).unwrap();
    let (joint, fallback) = (loss(plan.mechanism.event()), loss(plan.mechanism.fallback_event()));
    let exact = Gdp::of_ratio(2.0 / 23.4).epsilon_upper(delta).get();
    assert!(joint.epsilon.get() <= exact * (1.0 + 1e-5) && joint.numerical_margin);
    assert!(fallback.epsilon > joint.epsilon);
}
