//! Public and private-clean state: kinds never mix, private numbers never show, not even by their hash.

use super::*;
use crate::danger::assume_public;
use crate::records::Sensitive;

fn payload(value: i64) -> crate::Released<Payload> {
    assume_released(Payload::Lattice(LatticeVector { exponent: -20, values: vec![value, -value] }))
}

fn with(pending: Pending) -> Attachment {
    Attachment::new(vec![1, 2, 3], payload(1), pending)
}

fn private(values: &[f64]) -> Pending {
    Pending::Private(Sensitive::constant(values.to_vec()))
}

fn public(values: &[f64]) -> Pending {
    Pending::Public(assume_released(values.to_vec()))
}

fn commit(ledger: &mut TestLedger, id: &ReleaseId, pending: Pending) -> Result<(), LedgerError> {
    ledger.reserve(id, &event(), header(id.round))?;
    ledger.commit(id, &with(pending))
}

fn open_private(state: SiteState) -> Vec<f64> {
    assume_public(state.private(|| Sensitive::constant(Vec::new())).unwrap()).into_inner()
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

#[test]
fn kinds_and_lengths_never_mix_in_one_run() {
    for (first, others) in [
        (public as fn(&[f64]) -> Pending, [private(&[1.0, 2.0]), public(&[1.0]), private(&[])]),
        (private, [public(&[1.0, 2.0]), private(&[1.0, 2.0, 3.0]), public(&[])]),
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
                let other = Attachment::new(vec![1], payload(1), copy(other));
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
        Pending::Private(change) => Pending::Private(change.map(Clone::clone)),
    }
}

/// The head of the chain travels to the server: rows must not be a test for guesses at private numbers.
#[test]
fn hashes_in_rows_hide_private_numbers_and_bind_them() {
    let hashes = |seed: u8, pending: Pending| {
        let store = MemoryStore::new();
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
    // Public numbers: whoever knows them knows the hash, whatever the site's key is.
    assert_eq!(hashes(1, public(&[1.0, 2.0])).0, hashes(2, public(&[1.0, 2.0])).0);
    // Private numbers: knowing them is not enough.
    let (one, two) = (hashes(1, private(&[1.0, 2.0])).0, hashes(2, private(&[1.0, 2.0])).0);
    assert!(one.iter().zip(&two).all(|(a, b)| a != b));
    // The same site writes the same bytes again, and other numbers have another secret.
    assert_eq!(one, hashes(1, private(&[1.0, 2.0])).0);
    assert_ne!(one, hashes(1, private(&[1.0, 3.0])).0);
    // Every byte of the private state, its secret included, is under the signed hash.
    let (_, store) = hashes(3, private(&[1.0, 2.0]));
    for byte in 0..2 + 32 + 16 {
        let copy = store.copy();
        copy.tamper(|_, _, factors| factors.get_mut(&run(0)).unwrap()[byte] ^= 1);
        let opened = Ledger::open(copy, SigningKey::from_bytes(&[3; 32]), identity(), budget(100.0));
        assert!(matches!(opened.map(|_| ()), Err(LedgerError::Store(StoreError::Corrupt(_)))), "{byte}");
    }
}

/// Bytes of the first version, in which every change and state was public, are read as such.
#[test]
fn bytes_of_the_first_version_are_read_as_public() {
    let words = |values: &[f64]| values.iter().flat_map(|x| x.to_le_bytes()).collect::<Vec<u8>>();
    let state = SiteState::from_bytes(&words(&[1.5, -2.0])).unwrap();
    assert_eq!(state.public(2), Ok(vec![1.5, -2.0]));
    let part = |bytes: &[u8]| [&(bytes.len() as u64).to_le_bytes()[..], bytes].concat();
    for pending in [None, Some(words(&[0.25, 4.0]))] {
        let rest = [
            vec![0],
            (-20i32).to_le_bytes().to_vec(),
            part(&[7i64.to_le_bytes(), 8i64.to_le_bytes()].concat()),
            pending.as_deref().map(part).unwrap_or_default(),
        ]
        .concat();
        let bytes = [vec![1, 0], part(b"message"), rest.clone()].concat();
        let read = Attachment::from_bytes(&bytes).unwrap();
        assert_eq!((read.message(), read.payload().len()), (&b"message"[..], 2));
        assert_eq!(read.pending().public().map(<[f64]>::to_vec), pending.map(|_| vec![0.25, 4.0]));
        // Its hash is what the first version wrote into the row, whole or settled.
        let expected = Hash::of("dp-pvi ledger attachment v1", &[b"message", &Hash::of("dp-pvi ledger attachment rest v1", &[&rest]).0]);
        assert_eq!(Attachment::hash_of(&bytes).unwrap(), expected);
        assert_eq!(Attachment::hash_of(&Attachment::settled(&bytes).unwrap()).unwrap(), expected);
    }
}

#[test]
fn states_and_attachments_survive_writing_and_other_bytes_are_refused() {
    let secret = |_: &[u8]| state::Secret([9; 32]);
    for pending in [Pending::None, public(&[]), public(&[1.0, f64::MIN_POSITIVE]), private(&[]), private(&[-3.5])] {
        let bytes = with(copy(&pending)).to_bytes(secret);
        let read = Attachment::from_bytes(&bytes).unwrap();
        assert_eq!((read.pending().kind(), read.pending().numbers()), (pending.kind(), pending.numbers()));
        let state = SiteState::None.moved(&pending, 1.0).unwrap();
        let read = SiteState::from_bytes(&state.to_bytes(secret)).unwrap();
        assert_eq!(read.kind(), state.kind());
    }
    for bad in [vec![2, 1, 0], vec![2, 3, 0, 0], vec![3, 1], vec![2, 2], [&[2, 2][..], &[0; 33]].concat()] {
        assert!(SiteState::from_bytes(&bad).is_err(), "{bad:?}");
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
    let store = MemoryStore::new();
    let open = |store: &MemoryStore, seed: u8| {
        let identity = LedgerIdentity { relation: Relation::AddRemove, ..identity() };
        Ledger::open(store.clone(), SigningKey::from_bytes(&[seed; 32]), identity, budget(1000.0)).unwrap()
    };
    let shards = |ledger: &mut TestLedger, number, round| {
        let permit = ledger.reserve(&release(number, round), &event(), header(round)).unwrap();
        let units = Units::new(Many);
        let shards = units.shards(NonZeroU32::new(8).unwrap(), permit.scope());
        assume_public(shards.map(|t| (0..t.len()).map(|k| t.unit(k).units().collect::<Vec<_>>()).collect::<Vec<_>>())).into_inner()
    };
    let first = shards(&mut open(&store, 1), 0, 0);
    assert_eq!(first, shards(&mut open(&store, 1), 0, 0), "after a crash");
    assert_eq!(first, shards(&mut open(&store, 1), 0, 1), "in the next round");
    assert_ne!(first, shards(&mut open(&store, 1), 1, 0), "in another run");
    assert_ne!(first, shards(&mut open(&MemoryStore::new(), 2), 0, 0), "at another site");
}
