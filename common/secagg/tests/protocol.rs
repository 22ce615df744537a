//! The whole exchange: sums are exact, dropouts do not matter, transcripts are followed.
#![allow(clippy::unwrap_used, missing_docs)]

mod world;

use dp_pvi_secagg::client::Settled;
use dp_pvi_secagg::server::Acceptance;
use world::*;

/// One round with the sites that are left over; equals the plain sum bit for bit.
fn exact(members: u32, dropouts: u32, dimension: u32) {
    let mut world = World::new(&request(members, dropouts, dimension), 2);
    let header = world.header();
    let mut collecting = world.collecting(&header);
    // Whoever is missing: spread over the names.
    let missing = |site: u32| (site * 7 + 3) % members < dropouts;
    let mut spool = Vec::new();
    let mut sent = Vec::new();
    for site in (0..members).filter(|site| !missing(*site)) {
        let (state, outgoing) = world.part(site, &header);
        let bytes = words(&outgoing);
        assert_eq!(collecting.accept(&outgoing.upload, &bytes).unwrap(), Acceptance::New);
        spool.push((name(site), bytes));
        sent.push((site, state));
    }
    let closing = collecting.close().unwrap();
    let masks = world.summer.close(&closing.request()).unwrap();
    let completed = add_all(closing.answer(&masks).unwrap(), &spool, &world.server);
    assert_eq!(completed.sum.values, world.plain_sum((0..members).filter(|site| !missing(*site))), "M {members} d {dimension}");
    assert_eq!(completed.sum.exponent, world.charter.body().sums[0].exponent);
    for (site, state) in sent {
        let (client, _) = &world.clients[site as usize];
        let (idle, settled) = state.settle(client, &completed.entry).unwrap();
        assert_eq!((settled, idle.head()), (Settled::Included, completed.head));
    }
    for site in (0..members).filter(|site| missing(*site)) {
        let (client, idle) = &world.clients[site as usize];
        assert_eq!(idle.clone().settle(client, &completed.entry).unwrap().head(), completed.head);
    }
}

#[test]
fn t2_1_sum_is_exact_for_few_sites() {
    for dimension in [1, 105, 10_000] {
        exact(3, 0, dimension);
        for dropouts in [0, 1, 4] {
            exact(10, dropouts, dimension);
        }
    }
}

#[test]
fn t2_1_sum_is_exact_for_a_hundred_sites() {
    for (dropouts, dimension) in [(0, 1), (30, 105), (5, 105), (10, 10_000)] {
        exact(100, dropouts, dimension);
    }
}

#[test]
fn t2_1_sum_is_exact_for_a_thousand_sites() {
    exact(1000, 200, 1);
    exact(1000, 100, 105);
    exact(1000, 0, 10_000);
}

#[test]
fn t2_1_sum_is_exact_for_long_vectors() {
    exact(3, 0, 1_000_000);
}
