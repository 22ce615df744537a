//! Public and private-clean state: kinds never mix, private numbers never show, not even by their hash.

use super::*;
use crate::danger::assume_public;
use crate::records::Sensitive;
use dp_pvi_unsealed::Unsealed;

fn payload(value: i64) -> Payload {
    Payload::Lattice(LatticeVector { exponent: -20, values: vec![value, -value] })
}

fn with(pending: Pending) -> Attachment {
    assume_signed(Unsealed, vec![1, 2, 3], payload(1), pending)
}

fn private(values: &[f64]) -> Pending {
    Pending::Private(Sensitive::of(values.to_vec()))
}

fn public(values: &[f64]) -> Pending {
    Pending::Public(assume_released(Unsealed, values.to_vec()))
}

fn commit(ledger: &mut TestLedger, id: &ReleaseId, pending: Pending) -> Result<(), LedgerError> {
    ledger.reserve(id, &event(), header(id.round))?;
    ledger.commit(id, &with(pending))
}

fn open_private(state: SiteState) -> Vec<f64> {
    assume_public(Unsealed, state.private(|| Sensitive::of(Vec::new())).unwrap()).into_inner()
}

#[test]
fn a_private_change_moves_a_private_state_iff_the_update_was_included() {
    let (store, mut ledger) = fresh(100.0);
    for (round, included) in [(0, true), (1, false), (2, true)] {
        let id = release(0, round);
        commit(&mut ledger, &id, private(&[f64::from(round) + 1.0, -2.0])).unwrap();
        // A crash between COMMITTED and SETTLED loses nothing.
        ledger = open(&store, budget(100.0)).unwrap();
        let state = ledger.settle(&id, included, 0.5).unwrap();
        assert_eq!(state.kind(), Some(StateKind::Private));
        assert_eq!(state.public(2), Err(OtherState), "a private state is never read as a public one");
    }
    let mut again = open(&store, budget(100.0)).unwrap();
    let state = again.site_state(&run(0)).unwrap();
    assert_eq!(format!("{state:?}"), "Private(..)");
    assert_eq!(open_private(state), vec![0.5 + 1.5, -2.0]);
    assert_eq!(open_private(again.site_state(&run(1)).unwrap()), Vec::<f64>::new());
    assert!(matches!(public(&[1.0]).public(), Some([_])) && private(&[1.0]).public().is_none() && Pending::None.public().is_none());
}

/// How many private words there are is a function of the records. A refusal of one number and not of another would be seen by the server.
#[test]
fn no_answer_depends_on_the_length_of_a_private_state() {
    let (store, mut ledger) = fresh(1000.0);
    for (round, words) in [&[1.0, 2.0][..], &[1.0, 1.0, 3.0], &[4.0], &[]].iter().enumerate() {
        let id = release(0, u32::try_from(round).unwrap());
        commit(&mut ledger, &id, private(words)).unwrap();
        drop(ledger);
        ledger = open(&store, budget(1000.0)).unwrap();
        ledger.settle(&id, true, 1.0).unwrap();
    }
    assert_eq!(open_private(ledger.site_state(&run(0)).unwrap()), [6.0, 3.0, 3.0]);
}

#[test]
fn kinds_and_public_lengths_never_mix_in_one_run() {
    for (first, others) in [
        (public as fn(&[f64]) -> Pending, [private(&[1.0, 2.0]), public(&[1.0]), private(&[])]),
        (private, [public(&[1.0, 2.0]), public(&[1.0]), public(&[])]),
    ] {
        for settled in [true, false] {
            let (store, mut ledger) = fresh(1000.0);
            commit(&mut ledger, &release(0, 0), first(&[1.0, 2.0])).unwrap();
            if settled {
                ledger.settle(&release(0, 0), true, 1.0).unwrap();
            }
            ledger.reserve(&release(0, 1), &event(), header(1)).unwrap();
            let rows = store.len();
            for other in &others {
                let other = assume_signed(Unsealed, vec![1], payload(1), copy(other));
                assert!(matches!(ledger.commit(&release(0, 1), &other), Err(LedgerError::OtherState(_))), "{first:?} {settled}");
            }
            assert_eq!(store.len(), rows, "a refusal writes nothing");
            // The same kind, no change, or another run: fine.
            ledger.commit(&release(0, 1), &with(first(&[0.0, 1.0]))).unwrap();
            commit(&mut ledger, &release(0, 2), Pending::None).unwrap();
            commit(&mut ledger, &release(1, 0), copy(&others[0])).unwrap();
            open(&store, budget(1000.0)).unwrap();
        }
    }
}

fn copy(pending: &Pending) -> Pending {
    match pending {
        Pending::None => Pending::None,
        Pending::Public(change) => Pending::Public(change.clone()),
        Pending::Private(change) => Pending::Private(Sensitive::of(change.value().unwrap().clone())),
    }
}

/// The head of the chain travels to the server: rows must not be a test for guesses at private numbers.
#[test]
fn hashes_in_rows_hide_private_numbers_and_bind_them() {
    let hashes = |seed: u8, pending: Pending| {
        let store = MemoryStore::new(Unsealed);
        let mut ledger = Ledger::open(store.clone(), SigningKey::from_bytes(&[seed; 32]), identity(), budget(100.0)).unwrap();
        let id = release(0, 0);
        ledger.reserve(&id, &event(), header(0)).unwrap();
        ledger.commit(&id, &with(pending)).unwrap();
        ledger.settle(&id, true, 1.0).unwrap();
        let mut found = Vec::new();
        for (row, _) in ledger.rows() {
            match &row.body {
                RowBody::Committed { attachment, .. } => found.push(*attachment),
                RowBody::Settled { factor, .. } => found.push(*factor),
                _ => {}
            }
        }
        (found, store)
    };
    // Public numbers: anyone who knows them knows the hash, whatever the site's key is.
    assert_eq!(hashes(1, public(&[1.0, 2.0])).0, hashes(2, public(&[1.0, 2.0])).0);
    // Private numbers: knowing them is not enough.
    let (one, two) = (hashes(1, private(&[1.0, 2.0])).0, hashes(2, private(&[1.0, 2.0])).0);
    assert!(one.iter().zip(&two).all(|(a, b)| a != b));
    // The same site writes the same bytes again, and other numbers have another secret.
    assert_eq!(one, hashes(1, private(&[1.0, 2.0])).0);
    assert_ne!(one, hashes(1, private(&[1.0, 3.0])).0);
    // Every byte of the private state, its secret included, is under the signed hash.
    let (_, store) = hashes(3, private(&[1.0, 2.0]));
    for byte in 0..2 + 32 + 16 + 16 {
        let copy = store.copy();
        copy.tamper(|_, _, factors| factors.get_mut(&run(0)).unwrap()[byte] ^= 1);
        let opened = Ledger::open(copy, SigningKey::from_bytes(&[3; 32]), identity(), budget(100.0));
        assert!(matches!(opened.map(|_| ()), Err(LedgerError::Store(StoreError::Corrupt(_)))), "{byte}");
    }
}

#[test]
fn states_and_attachments_survive_writing_and_other_bytes_are_refused() {
    let key = key();
    let seal = Seal::new(&key, Hash([9; 32]), "here", String::new());
    for pending in [Pending::None, public(&[]), public(&[1.0, f64::MIN_POSITIVE]), private(&[]), private(&[-3.5])] {
        let bytes = with(copy(&pending)).to_bytes(|words| seal.close(words));
        let read = Attachment::from_bytes(&bytes, |sealed| seal.open(sealed)).unwrap();
        assert_eq!((read.pending().kind(), read.pending().numbers()), (pending.kind(), pending.numbers()));
        let state = SiteState::None.moved(&pending, 1.0).unwrap();
        let read = SiteState::from_bytes(&state.to_bytes(|words| seal.close(words)), |sealed| seal.open(sealed)).unwrap();
        assert_eq!(read.kind(), state.kind());
    }
    for bad in [
        vec![3, 1, 0],
        vec![3, 3, 0, 0],
        vec![4, 1],
        vec![3, 2],
        vec![0; 8],
        [&[2, 1][..], &[0; 8]].concat(),
        [&[3, 2][..], &[0; 64]].concat(),
    ] {
        assert!(SiteState::from_bytes(&bad, |sealed| seal.open(sealed)).is_err(), "{bad:?}");
    }
}

/// Shards stay the same over crashes within a run, and differ between runs and sites.
#[test]
fn a_runs_shard_salt_outlives_crashes_and_is_the_runs_own() {
    use std::num::NonZeroU32;

    use crate::{ContentId, StableIds, UnitTable, Units};

    struct Many;
    impl UnitTable for Many {
        type Unit<'a> = usize;
        fn len(&self) -> usize {
            64
        }
        fn unit(&self, position: usize) -> usize {
            position
        }
    }
    impl StableIds for Many {
        fn id(&self, position: usize) -> u64 {
            let mut id = ContentId::default();
            id.absorb(position as u64);
            id.finish()
        }
    }
    let store = MemoryStore::new(Unsealed);
    let open = |store: &MemoryStore, seed: u8| {
        let identity = LedgerIdentity { relation: Relation::AddRemove, ..identity() };
        Ledger::open(store.clone(), SigningKey::from_bytes(&[seed; 32]), identity, budget(1000.0)).unwrap()
    };
    let shards = |ledger: &mut TestLedger, number, round| {
        let permit = ledger.reserve(&release(number, round), &event(), header(round)).unwrap();
        let units = Units::new(Many);
        let shards = units.shards(NonZeroU32::new(8).unwrap(), permit.scope());
        assume_public(
            Unsealed,
            shards
                .map(&crate::Argument::nothing(), |(), t| (0..t.len()).map(|k| t.unit(k).units().collect::<Vec<_>>()).collect::<Vec<_>>()),
        )
        .into_inner()
    };
    let first = shards(&mut open(&store, 1), 0, 0);
    assert_eq!(first, shards(&mut open(&store, 1), 0, 0), "after a crash");
    assert_eq!(first, shards(&mut open(&store, 1), 0, 1), "in the next round");
    assert_ne!(first, shards(&mut open(&store, 1), 1, 0), "in another run");
    assert_ne!(first, shards(&mut open(&MemoryStore::new(Unsealed), 2), 0, 0), "at another site");
}

/// What a store sees of a private state: no word of it, under any key but the site's.
#[test]
fn a_store_sees_no_private_word() {
    let store = MemoryStore::new(Unsealed);
    let mut ledger = open(&store, budget(100.0)).unwrap();
    let words = [70.01, -3.5, 1e-300];
    let mut stored = Vec::new();
    for round in 0..2 {
        commit(&mut ledger, &release(0, round), private(&words)).unwrap();
        store.tamper(|_, attachments, _| stored.extend(attachments.values().cloned()));
        ledger.settle(&release(0, round), true, 1.0).unwrap();
        store.tamper(|_, _, factors| stored.extend(factors.values().cloned()));
    }
    assert_eq!(stored.len(), 5);
    let sums = words.map(|x| x + x);
    for bytes in &stored {
        for word in words.iter().chain(&sums) {
            assert!(!bytes.windows(8).any(|window| window == word.to_le_bytes()), "{word}");
        }
    }
    // The site itself reads them.
    assert_eq!(open_private(open(&store, budget(100.0)).unwrap().site_state(&run(0)).unwrap()), sums);
    // Words of one run are not taken for another one's, even by anyone who can write rows' hashes: the place is in the key.
    let key = key();
    let at = |run: &str| Seal::new(&key, Hash([1; 32]), "state", run.to_owned());
    assert!(at("one").open(&at("two").close(&[0; 8])).is_none());
}

/// A message says the release, the header and the head that the ledger has, or is not committed.
#[test]
fn a_message_claims_what_the_ledger_charged() {
    let (_, mut ledger) = fresh(100.0);
    let id = release(0, 0);
    ledger.reserve(&id, &event(), header(0)).unwrap();
    let truth = Claim { release: id.clone(), header: header(0), ledger_head: ledger.head() };
    let attachment = |claim: Claim| {
        let write: fn(&Claim, &Payload, &SigningKey) -> Vec<u8> = |claim, payload, key| {
            let said = Hash::of("said", &[claim.release.to_string().as_bytes(), &claim.header.0, &payload.to_bytes()]);
            ed25519_dalek::Signer::sign(key, &said.0).to_bytes().to_vec()
        };
        Attachment::new(claim, assume_released(Unsealed, payload(1)), Pending::None, &key(), write)
    };
    for lie in [
        Claim { release: release(0, 1), ..truth.clone() },
        Claim { header: Hash([7; 32]), ..truth.clone() },
        Claim { ledger_head: LedgerHead { seq: 70, ..truth.ledger_head }, ..truth.clone() },
        Claim { ledger_head: LedgerHead { hash: Hash([7; 32]), ..truth.ledger_head }, ..truth.clone() },
    ] {
        assert!(matches!(ledger.commit(&id, &attachment(lie)), Err(LedgerError::Conflict(_))));
    }
    ledger.commit(&id, &attachment(truth)).unwrap();
}

/// A private change that panicked: it is committed and settled like any other, at any time of a run, and moves nothing.
#[test]
fn a_change_that_panicked_leaves_the_state_as_it_is() {
    let broken = || Pending::Private(Sensitive::of(0.0).map(&crate::Argument::nothing(), |(), _| panic!("a record")));
    let (store, mut ledger) = fresh(1000.0);
    for (round, change) in [(0, broken()), (1, private(&[1.0, -2.0])), (2, broken()), (3, private(&[0.5, 0.5]))] {
        let id = release(0, round);
        commit(&mut ledger, &id, change).unwrap();
        ledger = open(&store, budget(1000.0)).unwrap();
        ledger.settle(&id, true, 1.0).unwrap();
        ledger = open(&store, budget(1000.0)).unwrap();
    }
    assert_eq!(open_private(ledger.site_state(&run(0)).unwrap()), vec![1.5, -1.5]);
}
