//! In simulation: a crash at any write of any machine changes nothing about the result, and nothing is spent twice.
#![allow(clippy::unwrap_used)]

use crate::support::{Numbers, bits, check, complete, federation, sequential, synchronous};
use dp_pvi_posterior::task::ResolvedTask;
use dp_pvi_privacy::ledger::memory::Failure;
use dp_pvi_simulation::federation::{Federation, Outcome, Site};
use dp_pvi_simulation::network::Faults;
use dp_pvi_simulation::noise::SeededNoise;

const SEED: u64 = 7;

fn run(federation: Federation, what: &str) -> (Outcome, Vec<Site>) {
    let (seed, sites) = (federation.seed, federation.sites.clone());
    let outcome = federation.simulate();
    check(&outcome, &sites, seed, what);
    (outcome, sites)
}

fn deterministic() -> Numbers {
    Numbers::Sensitive(SeededNoise::new(3))
}

/// Crashes every machine at every one of its writes, before and after it.
fn crash_anywhere(task: &ResolvedTask) {
    let (federation_, _) = federation(task, SEED, deterministic());
    let disk = federation_.disk.clone();
    let (undisturbed, sites) = run(federation_, "undisturbed");
    complete(&undisturbed, "undisturbed");
    let expected = bits(&undisturbed);
    let mut runs = 0;
    for failure in [Failure::Refused, Failure::WrittenUnheard] {
        for (position, site) in sites.iter().enumerate() {
            for write in 0..site.disk.len() as u64 {
                let what = format!("{} crashes at write {write} ({failure:?})", site.client);
                let (federation, _) = federation(task, SEED, deterministic());
                federation.sites[position].disk.fail_after(write, failure);
                let (outcome, _) = run(federation, &what);
                complete(&outcome, &what);
                assert_eq!(outcome.site_crashes, 1, "{what}");
                assert_eq!(bits(&outcome), expected, "{what}");
                runs += 1;
            }
        }
        for write in 0..disk.writes() {
            let what = format!("the server crashes at write {write} ({failure:?})");
            let (federation, _) = federation(task, SEED, deterministic());
            federation.disk.fail_after(write, failure);
            let (outcome, _) = run(federation, &what);
            complete(&outcome, &what);
            assert_eq!(outcome.server_crashes, 1, "{what}");
            assert_eq!(bits(&outcome), expected, "{what}");
            runs += 1;
        }
    }
    assert!(runs > 100, "{runs} crash points");
}

#[test]
fn a_crash_at_any_write_changes_no_bit_of_a_sequential_run() {
    crash_anywhere(&sequential(2));
}

#[test]
fn a_crash_at_any_write_changes_no_bit_of_a_synchronous_run() {
    crash_anywhere(&synchronous(3));
}

fn stormy() -> Faults {
    Faults {
        drop_request: 0.1,
        drop_response: 0.1,
        duplicate: 0.1,
        replay: 0.1,
        delay_milliseconds: 1500,
        crash_site: 0.05,
        crash_server: 0.03,
        ..Faults::default()
    }
}

#[test]
fn two_hundred_stormy_runs_end_with_the_same_bits() {
    for task in [sequential(3), synchronous(3)] {
        let (calm, _) = run(federation(&task, SEED, deterministic()).0, "calm");
        let (mut site_crashes, mut server_crashes) = (0, 0);
        for seed in 0..100 {
            let what = format!("storm {seed}");
            let (mut federation, _) = federation(&task, seed, deterministic());
            federation.faults = stormy();
            let (outcome, _) = run(federation, &what);
            complete(&outcome, &what);
            assert_eq!(bits(&outcome), bits(&calm), "{what}");
            site_crashes += outcome.site_crashes;
            server_crashes += outcome.server_crashes;
        }
        assert!(site_crashes > 100 && server_crashes > 50, "{site_crashes} and {server_crashes} crashes: the storm is a calm");
    }
}

#[test]
fn with_fresh_noise_at_every_call_no_release_ever_shows_two_payloads() {
    for seed in 0..50 {
        let what = format!("storm {seed}");
        let (mut federation, _) = federation(&sequential(3), seed, Numbers::Fresh(seed));
        federation.faults = stormy();
        let (outcome, _) = run(federation, &what);
        complete(&outcome, &what);
    }
}

#[test]
fn same_seed_same_trace() {
    let trace = || {
        let (mut federation, _) = federation(&synchronous(3), 11, deterministic());
        federation.faults = stormy();
        let (outcome, _) = run(federation, "trace");
        (outcome.records, outcome.traffic, outcome.site_crashes, outcome.server_crashes)
    };
    assert_eq!(trace(), trace());
}

/// Every update carries another power of two, so a sum tells which updates are in it and how often.
#[test]
fn the_sum_holds_every_included_update_exactly_once() {
    for seed in 0..50 {
        let what = format!("storm {seed}");
        let task = crate::support::task("schedule = \"synchronous\"\nrounds = 5\ndamping = 1.0\nupdate = \"pvi\"", "", 2);
        let sites = ["alpha", "beta", "gamma"].iter().zip([0, 5, 10]);
        let sites = sites
            .map(|(name, first)| crate::support::site(name, &task, crate::support::boundless(), Numbers::Unique { first }).0)
            .collect();
        let mut federation = Federation::new(&task, seed, sites);
        federation.faults = stormy();
        let (outcome, _) = run(federation, &what);
        complete(&outcome, &what);
        // 15 updates: bits 0 to 14, each once.
        let last = outcome.posteriors().last().unwrap()[0];
        assert_eq!(last.to_bits(), f64::from((1 << 15) - 1).to_bits(), "{what}: {last}");
    }
}
