//! Costs of a round by party; `cargo bench -p dp-pvi-secagg` prints them, the table in the crate's documentation is from here.
#![allow(clippy::unwrap_used, missing_docs)]

#[path = "../tests/secagg/harness/mod.rs"]
#[allow(dead_code, reason = "the tests use the rest")]
mod harness;

use divan::Bencher;
use dp_pvi_secagg::client::{Accepted, Client};
use dp_pvi_secagg::closing::MaskSum;
use dp_pvi_secagg::header::SignedHeader;
use dp_pvi_secagg::ring::RingSum;
use dp_pvi_secagg::server::Closing;
use harness::*;

fn main() {
    divan::main();
}

/// (d, M) of the acceptance test, and the small ones of the design's table.
const SHAPES: [(u32, u32); 4] = [(105, 10), (105, 1000), (10_000, 100), (1_000_000, 100)];

fn accepted(dimension: u32) -> (Harness, SignedHeader) {
    let mut harness = Harness::new(&request(4, 0, dimension), 1);
    let header = harness.header();
    (harness, header)
}

/// One client: accept the header, clip, sum, draw the exact noise, mask, commit, seal, sign.
#[divan::bench(args = [105, 10_000, 1_000_000], sample_count = 10)]
fn client(bencher: Bencher, dimension: u32) {
    let (harness, header) = accepted(dimension);
    let (client, idle) = &harness.clients[0];
    bencher.with_inputs(|| rng(1)).bench_values(|mut rng| {
        let accepted = idle.clone().accept(client, &header, &model(0)).unwrap();
        let share = share(harness.mechanism(), harness.shard(0), 0, 5);
        accepted.mask(client, share, &mut rng).unwrap()
    });
}

/// The same without clip, sum and noise.
#[divan::bench(args = [105, 10_000, 1_000_000], sample_count = 10)]
fn client_mask_only(bencher: Bencher, dimension: u32) {
    let (harness, header) = accepted(dimension);
    let (client, idle) = &harness.clients[0];
    let prepare = || {
        let accepted = idle.clone().accept(client, &header, &model(0)).unwrap();
        (accepted, share(harness.mechanism(), harness.shard(0), 0, 5), rng(1))
    };
    let mask = |client: &Client, accepted: Accepted, share, rng: &mut _| accepted.mask(client, share, rng).unwrap();
    bencher.with_inputs(prepare).bench_values(|(accepted, share, mut rng)| mask(client, accepted, share, &mut rng));
}

/// A round of `members` up to its closing. Every site sends the same short-lived vector: only its bytes' number matters here.
fn closing(dimension: u32, members: u32) -> (Harness, Closing, Vec<u8>) {
    let mut harness = Harness::new(&request(members, 0, dimension), 1);
    let header = harness.header();
    let mut collecting = harness.collecting(&header);
    let mut words_of_one = Vec::new();
    for site in 0..members {
        let (_, outgoing) = harness.part(site, &header);
        let words = words(&outgoing);
        collecting.accept(&outgoing.upload, &outgoing.salt, &words).unwrap();
        words_of_one = words;
    }
    (harness, collecting.close().unwrap(), words_of_one)
}

/// The summer closes: signatures, seeds, masks, answer.
#[divan::bench(args = SHAPES, sample_count = 5, sample_size = 1)]
fn summer_close(bencher: Bencher, (dimension, members): (u32, u32)) {
    use dp_pvi_secagg::summer::memory::MemoryVault;
    use dp_pvi_secagg::summer::{KeyVault, Slot};
    let (harness, closing, _) = closing(dimension, members);
    let request = closing.request();
    let (charter, (store, vault)) = (harness.charter.clone(), harness.summer.into_parts());
    let Slot::Kept(key) = vault.slot(0).unwrap() else { panic!("the round is open") };
    let prepare = || {
        let mut vault = MemoryVault::default();
        vault.keep(0, key.clone()).unwrap();
        summer(charter.clone(), store.clone(), vault)
    };
    bencher.with_inputs(prepare).bench_values(|mut summer| summer.close(&request).unwrap());
}

/// The server takes the masks off and adds the spooled vectors, without reading them from a disk.
#[divan::bench(args = SHAPES, sample_count = 5, sample_size = 1)]
fn server_sum(bencher: Bencher, (dimension, members): (u32, u32)) {
    let (mut harness, closing, words) = closing(dimension, members);
    let masks: MaskSum = harness.summer.close(&closing.request()).unwrap();
    bencher.bench_local(|| {
        let mut sum = RingSum::from_bytes(dimension, &masks.words).unwrap().negated();
        (0..members).for_each(|_| sum.add_bytes(&words).unwrap());
        sum
    });
}

/// The server checks one upload at its door: signature, commitment.
#[divan::bench(args = [105, 10_000, 1_000_000], sample_count = 10)]
fn server_accept(bencher: Bencher, dimension: u32) {
    let (mut harness, header) = accepted(dimension);
    let (_, outgoing) = harness.part(0, &header);
    let words = words(&outgoing);
    bencher
        .with_inputs(|| harness.collecting(&header))
        .bench_values(|mut collecting| collecting.accept(&outgoing.upload, &outgoing.salt, &words).unwrap());
}
