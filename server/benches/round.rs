//! CPU and memory of a no-op round over real gRPC and TLS: the shipped server in a process of its own, ten clients in this one, all
//! sending at the same time. `cargo bench -p dp-pvi-server --bench round [small|large]`.
//!
//! The clients are the wire's part of a site: fetch the round, verify its header, sign and send an update and ask for the next round in
//! the same breath, verify the receipt. The shipped client adds its ledger (five rows, each flushed) and the training. Times are CPU
//! times of all threads, as the kernel's scheduler counts them; memory is resident memory, `idle` after all clients have joined.
//!
//! November 2026, 2 virtual CPUs of a 2.6 GHz Xeon with AVX-512, nothing else running, server and this program at real-time priority
//! (`chrt -f 50`):
//!
//! | numbers in an update | server CPU a round (an update) | client CPU a round | memory idle → peak |
//! |---|---|---|---|
//! | 100 (mean field of 50) | 0.88 ms (0.09 ms) | 0.14 ms | 15 → 20 MiB |
//! | 1,000,000 (mean field of 500,000) | 270 to 500 ms (27 to 50 ms) | 26 to 29 ms | 146 → 180 MiB |
//! | 2,000,000 (mean field of 1,000,000) | 530 to 920 ms (53 to 92 ms) | 60 ms | 155 → 192 MiB |
//! | 1,000,404 (full covariance of 1413) | 430 to 500 ms (43 to 50 ms) | 22 to 25 ms | 30 → 101 MiB |
//!
//! The first row is the median of 48 runs, which took 0.81 to 0.95 ms (target 1 ms); the others are three runs. On a 2.6 GHz EPYC (Zen 5) 24 runs with four
//! virtual CPUs took 0.96 ms in the median (0.78 to 1.14), 24 with two of them 0.80 ms (0.73 to 0.90). Machines differ more than that: before the last
//! changes a 2.4 GHz EPYC without AVX-512 took 1.95 ms, a 2.0 GHz Xeon with AVX-512 1.07 to 1.45 ms by the load of its neighbours, and this one
//! 1.04 ms. In turns with the server before it, on this machine: a log that does not grow takes 6 % off, an entry that is encoded once for
//! all sites and names that are shared 7 %, one unit of code generation 4 %. A profile of what is left: ten verifications and two
//! signatures 31 %, HTTP/2, TLS and sockets 28 %, SQLite 19 % (10 of them one flush), the engine's own work 15 %, the runtime 7 %.

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
