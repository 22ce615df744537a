//! CPU and memory of a no-op round over real gRPC and TLS: the shipped server in a process of its own, ten clients in this one, all
//! sending at the same time. `cargo bench -p dp-pvi-server --bench round [small|large]`.
//!
//! The clients are the wire's part of a site: fetch the round, verify its header, sign and send an update and ask for the next round in
//! the same breath, verify the receipt. The shipped client adds its ledger (five rows, each flushed) and the training. Times are CPU
//! times of all threads, as the kernel's scheduler counts them; memory is resident memory, `idle` after all clients have joined.
//!
//! Server, a round of ten updates of 100 numbers: 1.27 ms (2 virtual CPUs of a 2.6 GHz Xeon, November 2026).
//! Other sizes and its parts: `deploy/guide/src/results/speed.md`.

#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "a program for people")]

#[path = "../tests/server/support/mod.rs"]
#[allow(dead_code, reason = "the tests use the rest")]
mod support;

use std::time::{Duration, Instant};

use support::{Client, Fed, Plan, Process, cpu_of, site_name};

const SITES: usize = 10;

fn main() {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    runtime.block_on(async {
        let only = std::env::args().nth(1).unwrap_or_default();
        if only != "large" {
            measure("100 numbers (mean field of 50)", &Plan { columns: 49, rounds: 600, min_sites: 10, ..Plan::default() }, 500).await;
        }
        if only == "small" {
            return;
        }
        for (columns, name) in
            [(499_999, "1,000,000 numbers (mean field of 500,000)"), (999_999, "2,000,000 numbers (mean field of 1,000,000)")]
        {
            measure(name, &Plan { columns, rounds: 6, min_sites: 10, ..Plan::default() }, 4).await;
        }
        let full = Plan { columns: 1412, full_covariance: true, rounds: 6, min_sites: 10, ..Plan::default() };
        measure("1,000,404 numbers (full covariance of 1413)", &full, 4).await;
    });
}

async fn measure(name: &str, plan: &Plan, rounds: u32) {
    let fed = Fed::new(SITES, plan);
    let server = Process::spawn(&fed, &[("RUST_LOG", "error")]);
    let mut sites = Vec::new();
    for i in 0..SITES {
        sites.push(fed.member(&site_name(i)).join(server.address).await);
    }
    // Reading a task with a million columns takes more than any round.
    server.forget_peak();
    let idle = server.memory("VmRSS");
    let values = vec![1e-9; sites[0].coordinates];
    // The first round pays for lazy initialisation.
    sites = round(sites, &values).await;
    let (server_before, clients_before, started) = (server.cpu(), cpu_of("self"), now());
    for _ in 0..rounds {
        sites = round(sites, &values).await;
    }
    let per = |before: Duration, after: Duration, share: u32| 1e3 * (after - before).as_secs_f64() / f64::from(rounds * share);
    let clients = u32::try_from(SITES).unwrap();
    println!(
        "{name}: server {:.3} ms CPU a round ({:.3} ms an update), client {:.3} ms CPU a round, {:.2} ms wall a round; memory {} MiB idle, peak {} MiB",
        per(server_before, server.cpu(), 1),
        per(server_before, server.cpu(), clients),
        per(clients_before, cpu_of("self"), clients),
        1e3 * started.elapsed().as_secs_f64() / f64::from(rounds),
        idle >> 20,
        server.memory("VmHWM") >> 20,
    );
}

#[allow(clippy::disallowed_methods, reason = "a benchmark reads the clock")]
fn now() -> Instant {
    Instant::now()
}

/// One round of all sites at the same time.
async fn round(sites: Vec<Client>, values: &[f64]) -> Vec<Client> {
    let tasks: Vec<_> = sites
        .into_iter()
        .map(|mut site| {
            let values = values.to_vec();
            tokio::spawn(async move {
                let start = site.round().await;
                site.send(&start, &values).await.unwrap();
                site
            })
        })
        .collect();
    let mut sites = Vec::new();
    for task in tasks {
        sites.push(task.await.unwrap());
    }
    sites
}
