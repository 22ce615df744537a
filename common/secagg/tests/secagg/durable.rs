//! What a site writes down: everything that a crash must not lose, and nothing of its share of the noise or of the seed of its mask.

use dp_pvi_accounting::{Delta, Epsilon, PrivacyUnit, Relation};
use dp_pvi_names::{Payload, ReleaseId};
use dp_pvi_privacy::danger::assume_signed;
use dp_pvi_privacy::ledger::memory::MemoryStore;
use dp_pvi_privacy::ledger::{Budget, LedgerIdentity};
use dp_pvi_privacy::{Ledger, Pending};
use dp_pvi_secagg::client::ClientState;
use dp_pvi_secagg::mask::MaskSeed;
use rand_core::Rng;

use crate::harness::{Harness, key, name, plain, request, rng};
use dp_pvi_unsealed::Unsealed;

/// R2 on the disk: the ledger and the client's state hold the masked words and the sealed seed; neither the seed, nor the share, nor a word of the pad.
#[test]
fn neither_seed_nor_share_is_in_what_a_site_stores() {
    let mut harness = Harness::new(&request(4, 1, 50), 1);
    let header = harness.header();
    harness.rng = rng(77);
    let (sent, outgoing) = harness.part(0, &header);
    let hash = header.open(&harness.charter).unwrap().hash();
    // What must not be found: drawn again from the same generators.
    let mut seed = [0; 32];
    rng(77).fill_bytes(&mut seed);
    let mut stream = MaskSeed::fresh(&mut rng(77)).stream(&hash, &name(0));
    let pad: Vec<u64> = (0..50).map(|_| stream.next_u64()).collect();
    let share = plain(harness.mechanism(), harness.shard(0), 0, 5).values;
    let masked = outgoing.vector.get().values.clone();
    assert!(masked.iter().zip(&share).zip(&pad).all(|((x, share), pad)| *x == share.wrapping_add(pad.cast_signed())));

    let store = MemoryStore::new(Unsealed);
    let identity = LedgerIdentity { data: "test".into(), unit: PrivacyUnit::Record, relation: Relation::ReplaceOne };
    let budget = Budget {
        epsilon: Epsilon::INFINITE,
        delta: Delta::new(1e-5).unwrap(),
        per_run: None,
        max_fallback: None,
        allow_non_private: false,
    };
    let open = || Ledger::open(store.clone(), key(10), identity.clone(), budget).unwrap();
    let release = ReleaseId { run: harness.charter.body().run, client: name(0), round: 0 };
    let mut ledger = open();
    let mechanism = harness.mechanism();
    ledger.reserve(&release, (&mechanism.event(), Some(&mechanism.fallback_event())), hash).unwrap();
    let message = postcard::to_stdvec(&outgoing.upload).unwrap();
    let state = postcard::to_stdvec(&ClientState::Sent(sent)).unwrap();
    ledger
        .commit(&release, &assume_signed(Unsealed, message.clone(), Payload::Masked(outgoing.vector.into_inner()), Pending::None))
        .unwrap();
    ledger.sent(&release).unwrap();

    let mut disk = vec![state];
    store.tamper(|rows, attachments, factors| {
        disk.extend(rows.iter().flat_map(|row| [row.bytes.clone(), row.signature.clone()]));
        disk.extend(attachments.values().chain(factors.values()).cloned());
    });
    let holds = |word: [u8; 8]| disk.iter().any(|bytes| bytes.windows(8).any(|window| window == word));
    assert!(masked.iter().all(|word| holds(word.to_le_bytes())), "the masked words are there");
    assert!(!share.iter().any(|word| holds(word.to_le_bytes())) && !pad.iter().any(|word| holds(word.to_le_bytes())));
    assert!(!seed.as_chunks::<8>().0.iter().any(|part| holds(*part)));

    // A crash: the same words and the same message are sent again.
    let mut again = open();
    let stored = again.attachment(&release).unwrap().unwrap();
    assert_eq!(stored.message(), message);
    assert!(matches!(stored.payload(), Payload::Masked(vector) if vector.values == masked));
}
