//! Certificates of what `account` says: written only where the verifier accepts them.

use dp_pvi_accounting::{Certificate, Claim, Delta, Plan, Uncertified};
use dp_pvi_verifier::verify;

use super::AccountError;

/// The certificate with the smallest slack of those that are tried, and its file.
///
/// # Errors
/// No certificate that the verifier accepts.
pub(super) fn certify(plan: &Plan, delta: Delta) -> Result<(Certificate, Vec<u8>), AccountError> {
    let certified = Claim::of_plan(plan, delta)?.certify(None, None, |bytes| verify(bytes).map(drop));
    certified.map_err(|error| match error {
        Uncertified::Accountant(error) => error.into(),
        Uncertified::Refused(refusal) => AccountError::Certificate(refusal),
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;
    use dp_pvi_accounting::{
        Binding, DiscreteGaussian, DpEvent, LatticePath, Mechanism, Neighbours, Phase, Relation, Sampling, SamplingRate, Terms,
        epsilon_upper,
    };
    use dp_pvi_verifier::Refusal;
    use sha2::{Digest, Sha256};

    /// Below this ε slacks are absolute.
    const SMALL: f64 = 0.05;

    fn plan(relation: Neighbours, phases: &[Phase]) -> Plan {
        let mut plan = Plan::new(relation);
        for phase in phases {
            plan.append(*phase).unwrap();
        }
        plan
    }

    fn discrete(scale: f64, sensitivity: u64, steps: u64) -> Phase {
        Phase { mechanism: Mechanism::DiscreteGaussian { scale, sensitivity }, sampling: Sampling::None, steps }
    }

    /// Plans and δ of the table.
    fn table() -> Vec<(Plan, f64)> {
        let mut rows = Vec::new();
        for relation in [Neighbours::AddRemove, Neighbours::ReplaceOne] {
            for (sigma, q, steps, delta) in [
                (0.5, 1e-4, 100, 1e-5),
                (0.5, 1e-2, 1, 1e-6),
                (0.7, 1e-3, 1000, 1e-8),
                (0.8, 1e-3, 1000, 1e-5),
                (1.0, 0.01, 1000, 1e-5),
                (1.0, 1e-4, 100_000, 1e-6),
                (1.0, 0.1, 1, 1e-5),
                (1.0, 0.5, 20, 1e-5),
                (2.0, 1e-3, 100_000, 1e-5),
                (4.0, 0.1, 1000, 1e-10),
                (10.0, 0.01, 10_000, 1e-5),
                (10.0, 0.9, 100, 1e-3),
            ] {
                rows.push((plan(relation, &[Phase::gaussian(sigma, Sampling::Poisson(q), steps)]), delta));
                rows.push((plan(relation, &[Phase::gaussian(sigma, Sampling::WithoutReplacement(q), steps)]), delta));
            }
            for (sigma, steps) in [(0.5, 1), (1.0, 10), (10.0, 10_000)] {
                rows.push((plan(relation, &[Phase::gaussian(sigma, Sampling::None, steps)]), 1e-5));
            }
            let mixed = [
                Phase::gaussian(1.0, Sampling::Poisson(0.01), 300),
                Phase::gaussian(1.5, Sampling::Poisson(0.02), 300),
                Phase::gaussian(5.0, Sampling::None, 2),
                Phase::gaussian(20.0, Sampling::None, 1),
                discrete(40.0, 3, 5),
            ];
            rows.push((plan(relation, &mixed), 1e-5));
            let rounds: Vec<_> = (0..100).map(|k| Phase::gaussian(2.0 + 0.01 * f64::from(k), Sampling::Poisson(0.05), 10)).collect();
            rows.push((plan(relation, &rounds), 1e-5));
            rows.push((plan(relation, &[discrete(10.0, 1, 10)]), 1e-6));
            rows.push((plan(relation, &[discrete(0.7, 1, 1)]), 1e-3));
            rows.push((plan(relation, &[discrete(1000.0, 100, 64)]), 1e-9));
        }
        for (sigma, batches, epochs, delta) in
            [(1.0, 10, 1, 1e-5), (1.0, 100, 10, 1e-6), (3.0, 39, 100, 1e-8), (0.5, 2, 1, 1e-5), (0.6, 1 << 14, 3, 1e-5)]
        {
            let epoch = Phase::gaussian(sigma, Sampling::RandomAllocation(batches), epochs);
            rows.push((plan(Neighbours::AddRemove, &[epoch]), delta));
            rows.push((plan(Neighbours::ZeroOut, &[epoch, Phase::gaussian(4.0, Sampling::Poisson(0.1), 20)]), delta));
        }
        rows
    }

    /// The file with a claim of less, sealed for it.
    fn lowered(bytes: &[u8], epsilon: f64) -> Vec<u8> {
        let text = String::from_utf8_lossy(bytes);
        let (before, rest) = text.split_once("\"epsilon\":").unwrap();
        let after = rest.split_once(",\"binding\"").unwrap().1;
        let body = format!("{before}\"epsilon\":{epsilon:?},\"slack\":0.0,\"binding\"{after}");
        let body = body.rsplit_once(",\"seal\":").unwrap().0;
        let seal: String = Sha256::digest(body.as_bytes()).iter().map(|byte| format!("{byte:02x}")).collect();
        format!("{body},\"seal\":\"{seal}\"}}").into_bytes()
    }

    #[test]
    fn a_row_in_eight_of_the_table_has_a_certificate_with_a_small_slack() {
        rows_of_the_table_have_certificates(8);
    }

    #[test]
    #[ignore = "long: tests/long.sh certificates"]
    fn every_row_of_the_table_has_a_certificate_with_a_small_slack() {
        rows_of_the_table_have_certificates(1);
    }

    fn rows_of_the_table_have_certificates(step: usize) {
        for (plan, delta) in table().into_iter().step_by(step) {
            let delta = Delta::new(delta).unwrap();
            let interval = plan.epsilon(delta);
            let upper = interval.upper;
            let (certificate, bytes) = certify(&plan, delta).unwrap_or_else(|error| panic!("{:?} {delta:?}: {error}", plan.phases()));
            verify(&bytes).unwrap();
            let slack = certificate.epsilon() - upper;
            // The two programs share nothing, and neither proves what the other disproves.
            let below = verify(&lowered(&bytes, interval.lower * (1.0 - 1e-6)));
            assert!(matches!(below, Err(Refusal::Claim(_))), "{:?}: {below:?}", plan.phases());
            assert!(slack >= 0.0 && slack <= 3e-3 * upper.max(SMALL), "{:?}: {slack:e} of {upper}", plan.phases());
        }
    }

    /// What real runs release: discrete noise on a fine lattice, `excess` in it, sampled or not.
    fn lattice(noise: f64, excess: u64, terms: Terms) -> DpEvent {
        // A clipping norm of 2^21 steps; the scale is rounded up.
        let scale = (noise * 2_097_152.0).ceil();
        DpEvent::DiscreteGaussian(DiscreteGaussian {
            exponent: -21,
            scale: format!("{scale}").parse().unwrap(),
            bound_squared: 1 << 42,
            excess,
            dimension: 210,
            terms,
            path: LatticePath::Sum,
        })
    }

    fn sampled(q: f64, event: DpEvent) -> DpEvent {
        DpEvent::PoissonSampled { rate: SamplingRate::nearest(q).unwrap(), event: Box::new(event) }
    }

    fn epoch(batches: u64, event: DpEvent) -> DpEvent {
        DpEvent::RandomAllocation { batches, event: Box::new(event) }
    }

    /// A run's name, its events with how many visits are each, and whether the claim is exactly what is stated.
    type Run = (&'static str, Vec<(DpEvent, u64)>, bool);

    fn runs() -> Vec<Run> {
        let units = |noise| lattice(noise, 3, Terms::Units);
        let shards = |noise| lattice(noise, 0, Terms::ShardResults);
        let share = |noise| match units(noise) {
            DpEvent::DiscreteGaussian(share) => DpEvent::NoiseShares { share, count: 7 },
            other => other,
        };
        let cells = |noise| lattice(noise, 0, Terms::Cells { cells: 200 });
        let rounds = |k: u32| (sampled(0.05, units(2.0 + 0.01 * f64::from(k))).repeated(10), 1);
        vec![
            ("eight looks", vec![(units(12.0), 8)], true),
            ("sums over shards", vec![(shards(12.0), 8)], true),
            ("sums of shares", vec![(share(4.0), 6), (share(5.0), 1)], true),
            ("sampled steps", vec![(sampled(0.02, units(1.1)).repeated(100), 6)], true),
            ("sampled sums over shards", vec![(sampled(0.1, shards(4.0)).repeated(30), 4)], true),
            ("rare steps", vec![(sampled(1e-4, units(1.0)).repeated(1000), 20)], false),
            ("looks and steps", vec![(units(20.0), 1), (sampled(0.1, units(3.0)).repeated(20), 4), (units(30.0), 2)], false),
            // Two scales that are the same noise multiplier, and more excess for less noise: one grid for two events, and an order of its own.
            ("the same noise twice", vec![(sampled(0.1, units(3.0)), 4), (sampled(0.1, lattice(3.0, 0, Terms::Units)), 4)], true),
            ("forty rounds", (0..40).map(rounds).collect(), false),
            ("every unit", vec![(sampled(1.0, units(6.0)).repeated(5), 2)], true),
            ("cells", vec![(cells(6.0), 8)], true),
            ("cells, units and steps", vec![(cells(20.0), 1), (units(20.0), 1), (sampled(0.1, units(3.0)).repeated(20), 4)], false),
        ]
    }

    /// Runs whose units are in one batch of each epoch.
    fn runs_of_epochs() -> Vec<Run> {
        let units = |noise| lattice(noise, 0, Terms::Units);
        vec![
            ("epochs", vec![(epoch(20, units(1.5)).repeated(3), 10)], false),
            ("many batches", vec![(epoch(1953, units(0.8)), 4)], false),
            ("a look and epochs", vec![(units(20.0), 1), (epoch(39, units(2.0)).repeated(2), 5)], false),
            ("one batch", vec![(epoch(1, units(12.0)), 8)], true),
        ]
    }

    /// The claim that a run's statement makes is certified as it stands: the accountant's bound has room for the check. Only rare steps, many kinds of them, and steps beside releases that are not sampled need more.
    #[test]
    fn a_run_in_four_of_lattice_noise_has_a_certificate_of_what_is_stated() {
        runs_have_certificates(4);
    }

    #[test]
    #[ignore = "long: tests/long.sh certificates"]
    fn runs_of_lattice_noise_have_certificates_of_what_is_stated() {
        runs_have_certificates(1);
    }

    fn runs_have_certificates(step: usize) {
        let delta = Delta::new(1e-5).unwrap();
        for relation in [Relation::AddRemove, Relation::ReplaceOne] {
            let epochs = if relation == Relation::AddRemove { runs_of_epochs() } else { Vec::new() };
            for (name, events, exact) in runs().into_iter().chain(epochs).step_by(step) {
                let all: Vec<_> = events.iter().map(|(event, visits)| event.clone().repeated(*visits)).collect();
                let stated = epsilon_upper(&all, relation, delta).unwrap().epsilon;
                let claim = Claim::of_run(&events, relation, delta).unwrap();
                let (certificate, bytes) =
                    claim.certify(Some(stated), None, |bytes| verify(bytes).map(drop)).unwrap_or_else(|error| panic!("{name}: {error}"));
                let read = verify(&bytes).unwrap();
                assert_eq!((read.epsilon, read.delta), (certificate.epsilon(), 1e-5));
                assert_eq!(serde_json::to_string(&read.events).unwrap(), claim.events_text());
                assert!(
                    read.epsilon >= stated.get() && read.epsilon - stated.get() <= 3e-3 * stated.get().max(SMALL),
                    "{name}: {} {stated:?}",
                    read.epsilon
                );
                assert!(!exact || read.epsilon == stated.get(), "{name}: {} {stated:?}", read.epsilon);
                let below = verify(&lowered(&bytes, stated.get() * 0.997));
                assert!(matches!(below, Err(Refusal::Claim(_))), "{name}: {below:?}");
            }
        }
    }

    /// Every number of an event counts: with one that is a little worse the same certificate is refused under a new seal.
    #[test]
    fn a_lattice_event_that_is_changed_is_refused() {
        let delta = Delta::new(1e-5).unwrap();
        let (_, events, _) = runs().swap_remove(3);
        let stated = epsilon_upper([&events[0].0.clone().repeated(6)], Relation::ReplaceOne, delta).unwrap().epsilon;
        let claim = Claim::of_run(&events, Relation::ReplaceOne, delta).unwrap();
        let (_, bytes) = claim.certify(Some(stated), None, |bytes| verify(bytes).map(drop)).unwrap();
        let text = String::from_utf8(bytes).unwrap();
        let noise = "[2306868,4398046511104,3,1,210]";
        assert!(text.contains(noise), "{text}");
        let sealed = |text: String| {
            let body = text.rsplit_once(",\"seal\":").unwrap().0.to_owned();
            let seal: String = Sha256::digest(body.as_bytes()).iter().map(|byte| format!("{byte:02x}")).collect();
            verify(format!("{body},\"seal\":\"{seal}\"}}").as_bytes())
        };
        sealed(text.clone()).unwrap();
        for worse in [
            "[2300000,4398046511104,3,1,210]",
            "[2306868,4410000000000,3,1,210]",
            "[2306868,4398046511104,30000,1,210]",
            "[2306868,4398046511104,3,0,210]",
            "[2306868,4398046511104,3,1,4294967295]",
            "[2306868,4398046511104.0,3,1,210]",
            "[2306868,-4398046511104,3,1,210]",
            "[2306868,4398046511104,3,210]",
        ] {
            assert!(sealed(text.replacen(noise, worse, 1)).is_err(), "{worse}");
        }
        assert!(sealed(text.replacen("\"count\":600", "\"count\":601", 1)).is_err());
    }

    /// The rule is the event's name: what is claimed of cells does not hold of the same numbers as units, and the verifier doubles the bound of these.
    #[test]
    fn a_certificate_of_cells_is_none_of_units() {
        let delta = Delta::new(1e-5).unwrap();
        let of = |terms, relation| {
            let events = vec![(lattice(6.0, 0, terms), 8)];
            let all = [events[0].0.clone().repeated(8)];
            let stated = epsilon_upper(&all, relation, delta).unwrap().epsilon;
            let claim = Claim::of_run(&events, relation, delta).unwrap();
            (stated.get(), claim.certify(Some(stated), None, |bytes| verify(bytes).map(drop)).unwrap().1)
        };
        let cells = Terms::Cells { cells: 200 };
        let (epsilon, bytes) = of(cells, Relation::ReplaceOne);
        let (of_units, units) = of(Terms::Units, Relation::ReplaceOne);
        assert!(of_units > 1.4 * epsilon);
        let text = String::from_utf8(bytes).unwrap();
        let noise = "{\"fine_cells\":[12582912,4398046511104,1,210]}";
        assert!(text.contains(noise), "{text}");
        let sealed = |text: String| {
            let body = text.rsplit_once(",\"seal\":").unwrap().0.to_owned();
            let seal: String = Sha256::digest(body.as_bytes()).iter().map(|byte| format!("{byte:02x}")).collect();
            verify(format!("{body},\"seal\":\"{seal}\"}}").as_bytes()).map(|certificate| certificate.epsilon)
        };
        assert_eq!(sealed(text.clone()), Ok(epsilon));
        let as_units = text.replacen(noise, "{\"fine_discrete_gaussian\":[12582912,4398046511104,0,1,210]}", 1);
        assert!(matches!(sealed(as_units), Err(Refusal::Claim(_))));
        // The other way round more is claimed than has to be: true, and about other events than the task's, which the promise's hash tells.
        let as_cells =
            String::from_utf8(units).unwrap().replacen("{\"fine_discrete_gaussian\":[12582912,4398046511104,0,1,210]}", noise, 1);
        assert_eq!(sealed(as_cells), Ok(of_units));
        // No sample, no other form, no name that is not known.
        for other in [
            text.replacen("\"sampling\":\"none\"", "\"sampling\":{\"poisson\":0.5}", 1),
            text.replacen(noise, "{\"fine_cells\":[12582912,4398046511104,0,1,210]}", 1),
            text.replacen(noise, "{\"fine_cells\":[12582912,4398046511104,0,210]}", 1),
            text.replacen(noise, "{\"fine_balls\":[12582912,4398046511104,1,210]}", 1),
        ] {
            assert!(matches!(sealed(other.clone()), Err(Refusal::Form(_))), "{other}");
        }
        // Where a unit comes or goes both cost the same.
        assert_eq!(of(cells, Relation::AddRemove).0.to_bits(), of(Terms::Units, Relation::AddRemove).0.to_bits());
    }

    /// What no certificate knows is refused by name, before anything is tried.
    #[test]
    fn runs_without_a_certificate_say_why() {
        let delta = Delta::new(1e-5).unwrap();
        let coarse = match lattice(1.0, 0, Terms::Units) {
            DpEvent::DiscreteGaussian(noise) => DpEvent::DiscreteGaussian(DiscreteGaussian { scale: 1 << 19, ..noise }),
            other => other,
        };
        let mixed = vec![(lattice(4.0, 0, Terms::Units), 1), (lattice(4.0, 0, Terms::ShardResults), 1)];
        for (events, why) in [
            (vec![], "nothing"),
            (vec![(DpEvent::NonPrivate, 1)], "anything but Gaussian noise"),
            (vec![(coarse, 1)], "fewer than 2^20 steps"),
            (mixed, "units in one release and of shards in another"),
        ] {
            let error = Claim::of_run(&events, Relation::AddRemove, delta).unwrap_err().to_string();
            assert!(error.contains(why), "{error}");
        }
        let replaced = Claim::of_run(&[(epoch(20, lattice(4.0, 0, Terms::Units)), 1)], Relation::ReplaceOne, delta);
        assert!(replaced.unwrap_err().to_string().contains("a random allocation in which a unit is replaced"));
    }

    /// The hashes of a binding are those of the texts that the guide names.
    #[test]
    fn a_binding_is_hashes_of_text() {
        let hash = |text: &str| <[u8; 32]>::from(Sha256::digest(text.as_bytes()));
        let binding = Binding::of_run([0xab; 32], 3, &[(vec![1, 0x0f], 4), (vec![2], 1)]);
        assert_eq!(binding.run, hash(&format!("{}/3", "ab".repeat(32))));
        assert_eq!(
            (binding.task, binding.ledger),
            (
                [0xab; 32],
                hash(
                    "010f 4
02 1
"
                )
            )
        );
    }

    /// The verifier reads back what it was bound to, and what ran.
    #[test]
    fn a_certificate_is_bound_to_its_run() {
        let (delta, plan) = (Delta::new(1e-5).unwrap(), plan(Neighbours::ZeroOut, &[Phase::gaussian(4.0, Sampling::None, 10)]));
        let binding = Binding { run: [0xa1; 32], task: [2; 32], ledger: [0; 32] };
        let claim = Claim::of_plan(&plan, delta).unwrap();
        let (certificate, bytes) = claim.certify(None, Some(binding), |bytes| verify(bytes).map(drop)).unwrap();
        let read = verify(&bytes).unwrap();
        assert_eq!(read.binding, Some(["a1".repeat(32), "02".repeat(32), "00".repeat(32)]));
        assert_eq!((read.delta, read.events.len(), read.events[0].count), (1e-5, 1, 10));
        assert_eq!(read.epsilon, certificate.epsilon());
        assert!(read.slack > 0.0 && read.epsilon - read.slack >= plan.epsilon(delta).estimate);
    }

    /// Black boxes and unprotected plans have none.
    #[test]
    fn what_has_no_certificate_is_refused() {
        let delta = Delta::new(1e-5).unwrap();
        let laplace = Phase { mechanism: Mechanism::Laplace { scale: 2.0 }, sampling: Sampling::None, steps: 1 };
        for phases in [vec![], vec![laplace]] {
            assert!(certify(&plan(Neighbours::AddRemove, &phases), delta).is_err());
        }
    }

    #[test]
    fn account_writes_a_certificate_where_it_is_asked_to() {
        use crate::account::steps::{RelationFlag, SamplingFlag, Steps};

        let file = std::env::temp_dir().join(format!("dp-pvi-certificate-{}.json", std::process::id()));
        let how =
            Steps { q: 0.1, batches: None, relation: Some(RelationFlag::ReplaceOne), sampling: Some(SamplingFlag::Poisson), delta: 1e-5 };
        let asked = crate::account::Question::Account {
            sigma: Some(2.0),
            steps: Some(5),
            how,
            queries: None,
            events: None,
            plot: None,
            curves: None,
            certificate: Some(file.clone()),
        };
        let mut out = Vec::new();
        asked.answer(&mut out, false, |file, bytes| std::fs::write(file, bytes)).unwrap();
        let read = verify(&std::fs::read(&file).unwrap()).unwrap();
        std::fs::remove_file(&file).unwrap();
        let said = String::from_utf8(out).unwrap();
        assert!(said.contains(&format!("certificate: epsilon {} in", read.epsilon)), "{said}");
    }
}
