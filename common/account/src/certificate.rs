//! Certificates of what `account` says: written only where the verifier accepts them.

use std::path::Path;

use dp_pvi_accounting::{Certificate, Delta, Mechanism, Phase, Plan, Sampling};
use dp_pvi_verifier::verify;

use super::AccountError;

/// Slack of the first try, relative to ε but not below [`SMALL`]; and where there is a closed form.
const SLACK: f64 = 2e-5;
const CLOSED: f64 = 1e-9;
/// ... below this ε it is absolute.
const SMALL: f64 = 0.05;
/// Each try has twice the slack of the one before: the last one has a third of ε.
const TRIES: usize = 15;

/// The certificate with the smallest slack of those that are tried, and its file.
///
/// # Errors
/// No certificate that the verifier accepts.
pub(super) fn certify(plan: &Plan, delta: Delta) -> Result<(Certificate, Vec<u8>), AccountError> {
    let closed = |phase: &Phase| matches!((phase.mechanism, phase.sampling), (Mechanism::Gaussian { .. }, Sampling::None));
    let first = if plan.phases().iter().all(closed) { CLOSED } else { SLACK };
    let mut slack = first * plan.epsilon(delta).upper.max(SMALL);
    let mut last = None;
    for _ in 0..TRIES {
        match Certificate::new(plan, delta, slack, None) {
            Ok(certificate) => {
                let bytes = certificate.to_bytes();
                match verify(&bytes) {
                    Ok(_) => return Ok((certificate, bytes)),
                    Err(refusal) => last = Some(AccountError::Certificate(refusal)),
                }
            }
            Err(error @ dp_pvi_accounting::AccountantError::Unsupported(_)) => return Err(error.into()),
            Err(error) => last = Some(error.into()),
        }
        slack *= 2.0;
    }
    // Every try leaves an error.
    Err(last.unwrap_or(AccountError::Usage("no certificate within reach")))
}

/// Writes the file.
///
/// # Errors
/// As [`certify`], or a file that cannot be written.
pub(super) fn write(file: &Path, plan: &Plan, delta: Delta) -> Result<Certificate, AccountError> {
    let (certificate, bytes) = certify(plan, delta)?;
    std::fs::write(file, bytes).map_err(|error| AccountError::Write { path: file.to_owned(), error })?;
    Ok(certificate)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;
    use dp_pvi_accounting::{Binding, Neighbours};
    use dp_pvi_verifier::Refusal;
    use sha2::{Digest, Sha256};

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
    fn every_row_of_the_table_has_a_certificate_with_a_small_slack() {
        for (plan, delta) in table() {
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

    /// The verifier reads back what it was bound to, and what ran.
    #[test]
    fn a_certificate_is_bound_to_its_run() {
        let (delta, plan) = (Delta::new(1e-5).unwrap(), plan(Neighbours::ZeroOut, &[Phase::gaussian(4.0, Sampling::None, 10)]));
        let binding = Binding { run: [0xa1; 32], task: [2; 32], ledger: [0; 32] };
        let bytes = Certificate::new(&plan, delta, 1e-6, Some(binding)).unwrap().to_bytes();
        let read = verify(&bytes).unwrap();
        assert_eq!(read.binding, Some(["a1".repeat(32), "02".repeat(32), "00".repeat(32)]));
        assert_eq!((read.delta, read.events.len(), read.events[0].count), (1e-5, 1, 10));
        assert!(read.epsilon > read.slack && read.slack == 1e-6);
    }

    /// Black boxes and unprotected plans have none, and nothing is written.
    #[test]
    fn what_has_no_certificate_is_refused() {
        let delta = Delta::new(1e-5).unwrap();
        let laplace = Phase { mechanism: Mechanism::Laplace { scale: 2.0 }, sampling: Sampling::None, steps: 1 };
        for phases in [vec![], vec![laplace]] {
            let file = std::env::temp_dir().join("dp-pvi-no-certificate.json");
            assert!(write(&file, &plan(Neighbours::AddRemove, &phases), delta).is_err());
            assert!(!file.exists());
        }
    }

    #[test]
    fn account_writes_a_certificate_where_it_is_asked_to() {
        use crate::steps::{RelationFlag, SamplingFlag, Steps};

        let file = std::env::temp_dir().join(format!("dp-pvi-certificate-{}.json", std::process::id()));
        let how = Steps { q: 0.1, relation: Some(RelationFlag::ReplaceOne), sampling: Some(SamplingFlag::Poisson), delta: 1e-5 };
        let asked = crate::Question::Account {
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
        asked.answer(&mut out, false).unwrap();
        let read = verify(&std::fs::read(&file).unwrap()).unwrap();
        std::fs::remove_file(&file).unwrap();
        let said = String::from_utf8(out).unwrap();
        assert!(said.contains(&format!("certificate: epsilon {} in", read.epsilon)), "{said}");
    }
}
