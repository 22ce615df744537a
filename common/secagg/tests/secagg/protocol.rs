//! The whole exchange: sums are exact, dropouts do not matter, transcripts are followed.

use crate::harness::*;
use dp_pvi_secagg::client::Settled;
use dp_pvi_secagg::ring::RingSum;
use dp_pvi_secagg::server::Acceptance;

/// One round with the sites that are left over; equals the plain sum bit for bit.
fn exact(members: u32, dropouts: u32, dimension: u32) {
    let mut harness = Harness::new(&request(members, dropouts, dimension), 2);
    let header = harness.header();
    let mut collecting = harness.collecting(&header);
    // Whoever is missing: spread over the names.
    let missing = |site: u32| (site * 7 + 3) % members < dropouts;
    let mut spool = Vec::new();
    let mut sent = Vec::new();
    for site in (0..members).filter(|site| !missing(*site)) {
        let (state, outgoing) = harness.part(site, &header);
        let bytes = words(&outgoing);
        assert_eq!(collecting.accept(&outgoing.upload, &outgoing.salt, &bytes).unwrap(), Acceptance::New);
        spool.push((name(site), bytes));
        sent.push((site, state));
    }
    let closing = collecting.close().unwrap();
    let masks = harness.summer.close(&closing.request()).unwrap();
    let completed = add_all(closing.answer(&masks).unwrap(), &spool, &harness.server);
    assert_eq!(completed.sum.values, harness.plain_sum((0..members).filter(|site| !missing(*site))), "M {members} d {dimension}");
    assert_eq!(completed.sum.exponent, harness.charter.body().sums[0].exponent);
    for (site, state) in sent {
        let (client, _) = &harness.clients[site as usize];
        let (idle, settled) = state.settle(client, &completed.entry).unwrap();
        assert_eq!((settled, idle.head()), (Settled::Included, completed.head));
    }
    for site in (0..members).filter(|site| missing(*site)) {
        let (client, idle) = &harness.clients[site as usize];
        assert_eq!(idle.clone().settle(client, &completed.entry).unwrap().head(), completed.head);
    }
}

#[test]
fn sum_is_exact_for_few_sites() {
    for dimension in [1, 105, 10_000] {
        exact(3, 0, dimension);
        for dropouts in [0, 1, 4] {
            exact(10, dropouts, dimension);
        }
    }
}

#[test]
fn sum_is_exact_for_a_hundred_sites() {
    for (dropouts, dimension) in [(0, 1), (30, 105), (5, 105), (10, 10_000)] {
        exact(100, dropouts, dimension);
    }
}

#[test]
fn sum_is_exact_for_a_thousand_sites() {
    exact(1000, 200, 1);
    exact(1000, 100, 105);
    exact(1000, 0, 10_000);
}

#[test]
fn sum_is_exact_for_long_vectors() {
    exact(3, 0, 1_000_000);
    streamed(10, 3, 1_000_000);
}

/// The two largest of the design's sizes, with O(d) memory: 2·M·d draws of exact noise, minutes of processor time.
#[test]
#[ignore = "long: tests/long.sh secagg"]
fn sum_is_exact_for_long_vectors_of_many_sites() {
    streamed(100, 10, 1_000_000);
    streamed(1000, 0, 1_000_000);
}

/// [`exact`] as a server does it: vectors are added as they come, and only the running sum is kept.
fn streamed(members: u32, dropouts: u32, dimension: u32) {
    let mut harness = Harness::new(&request(members, dropouts, dimension), 2);
    let header = harness.header();
    let mut collecting = harness.collecting(&header);
    let (mut total, mut expected) = (RingSum::zero(dimension), vec![0i64; dimension as usize]);
    for site in 0..members - dropouts {
        let (_, outgoing) = harness.part(site, &header);
        let bytes = words(&outgoing);
        assert_eq!(collecting.accept(&outgoing.upload, &outgoing.salt, &bytes).unwrap(), Acceptance::New);
        total.add_bytes(&bytes).unwrap();
        expected.iter_mut().zip(harness.plain_sum([site])).for_each(|(sum, x)| *sum += x);
    }
    let closing = collecting.close().unwrap();
    let masks = harness.summer.close(&closing.request()).unwrap();
    let mut summing = closing.answer(&masks).unwrap();
    summing.add_total(&total.to_bytes()).unwrap();
    let completed = summing.finish(&harness.server).unwrap();
    assert_eq!(completed.sum.values, expected, "M {members} d {dimension}");
}

/// Costs of a round that are not time (that part is `cargo bench -p dp-pvi-secagg`): what a site and the server send.
#[test]
fn an_upload_of_a_million_coordinates_is_below_8_01_megabytes() {
    let sizes = |members: u32, dimension: u32| {
        let mut harness = Harness::new(&request(members, 0, dimension), 1);
        let header = harness.header();
        let mut collecting = harness.collecting(&header);
        let mut upload = 0;
        for site in 0..members {
            let (_, outgoing) = harness.part(site, &header);
            let bytes = words(&outgoing);
            collecting.accept(&outgoing.upload, &outgoing.salt, &bytes).unwrap();
            upload = upload.max(bytes.len() + postcard::to_stdvec(&outgoing.upload).unwrap().len());
        }
        let request = postcard::to_stdvec(&collecting.close().unwrap().request()).unwrap().len();
        (upload, request)
    };
    let (upload, _) = sizes(3, 1_000_000);
    assert!(upload <= 8_000_400, "{upload} bytes");
    // What goes to the summer knows nothing of d: below 400 bytes a site.
    let (upload, request) = sizes(1000, 105);
    assert!(upload < 8 * 105 + 400 && request < 400 * 1000, "{upload} {request}");
}
