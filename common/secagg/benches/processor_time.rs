//! Processor time of a round of the one thread that works, which other work on the machine changes little: `cargo bench -p dp-pvi-secagg --bench processor_time`.
//! (`cost` measures the same and more by the clock on the wall.) Linux only: the kernel says how long a thread ran.
#![allow(clippy::unwrap_used, clippy::print_stdout, missing_docs)]

#[path = "../tests/secagg/harness/mod.rs"]
#[allow(dead_code, reason = "the tests use the rest")]
mod harness;

use std::time::Duration;

use dp_pvi_secagg::server::Closing;
use dp_pvi_secagg::summer::memory::MemoryVault;
use dp_pvi_secagg::summer::{KeyVault, Slot};
use harness::*;

/// Time that this thread has been on a processor; the kernel brings it up to date every few milliseconds, so calls are timed together.
fn on_processor() -> Duration {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap();
    Duration::from_nanos(text.split_whitespace().next().unwrap().parse().unwrap())
}

/// Mean processor time of some calls.
fn mean(times: u32, mut once: impl FnMut()) -> Duration {
    let before = on_processor();
    (0..times).for_each(|_| once());
    (on_processor() - before) / times
}

/// Accept the header, clip, sum, draw the exact noise, mask, commit, seal, sign; and the bytes that leave.
fn client(dimension: u32, times: u32) -> (Duration, usize) {
    let mut harness = Harness::new(&request(4, 0, dimension), 1);
    let header = harness.header();
    let (client, idle) = &harness.clients[0];
    let (mut rng, mut sent) = (rng(3), None);
    let time = mean(times, || {
        let accepted = idle.clone().accept(client, &header, &model(0)).unwrap();
        let share = share(harness.mechanism(), harness.shard(0), 0, 5);
        sent = Some(accepted.mask(client, share, &mut rng).unwrap().1);
    });
    let sent = sent.unwrap();
    (time, words(&sent).len() + postcard::to_stdvec(&sent.upload).unwrap().len())
}

/// A whole closing: signatures, seeds, masks, answer.
fn summer_closes(dimension: u32, members: u32, times: u32) -> Duration {
    let mut harness = Harness::new(&request(members, 0, dimension), 1);
    let header = harness.header();
    let mut collecting = harness.collecting(&header);
    for site in 0..members {
        let (_, outgoing) = harness.part(site, &header);
        collecting.accept(&outgoing.upload, &outgoing.salt, &words(&outgoing)).unwrap();
    }
    let closing: Closing = collecting.close().unwrap();
    let request = closing.request();
    let (charter, (store, vault)) = (harness.charter.clone(), harness.summer.into_parts());
    let Slot::Kept(key) = vault.slot(0).unwrap() else { panic!("the round is open") };
    mean(times, || {
        let mut vault = MemoryVault::default();
        vault.keep(0, key.clone()).unwrap();
        summer(charter.clone(), store.clone(), vault).close(&request).unwrap();
    })
}

fn main() {
    let milliseconds = |time: Duration| time.as_secs_f64() * 1e3;
    for (dimension, times) in [(105, 1000), (10_000, 200), (1_000_000, 10)] {
        let (time, bytes) = client(dimension, times);
        println!("client  d {dimension:>9}           {:9.2} ms  {bytes} bytes up", milliseconds(time));
    }
    for (dimension, members, times) in [(105, 10, 100), (105, 1000, 5), (10_000, 100, 10), (1_000_000, 100, 3)] {
        let time = summer_closes(dimension, members, times);
        println!("summer  d {dimension:>9}  M {members:>5}  {:9.2} ms", milliseconds(time));
    }
}
