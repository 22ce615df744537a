//! Does the audit see a fault? Only with the feature `fault-injection`:
//! `cargo test -p dp-pvi-simulation --features fault-injection --test injected`.
#![allow(clippy::unwrap_used, clippy::print_stdout)]

use dp_pvi_simulation::audit::injected::run;

/// One run of each fault, and one of the shipped code. DP_PVI_AUDIT_RUNS=20 for the full count.
#[test]
fn every_injected_fault_is_flagged_and_the_shipped_code_is_not() {
    let runs = std::env::var("DP_PVI_AUDIT_RUNS").map_or(1, |runs| runs.parse().unwrap());
    for _ in 0..runs {
        for outcome in run(600, |outcome| println!("{outcome}")).unwrap() {
            assert!(outcome.right, "{outcome}");
        }
    }
}
