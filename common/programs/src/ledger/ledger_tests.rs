//! The ledger over its file: rollback, full disk, changed attachments.

#![allow(clippy::unwrap_used)]

use std::fs;
use std::path::Path;

use dp_pvi_accounting::{Delta, DpEvent, Epsilon, PrivacyUnit, Relation};
use dp_pvi_names::{ClientId, Hash, Payload, ReleaseId, RunId};
use dp_pvi_privacy::danger::{assume_signed, forget_minted};
use dp_pvi_privacy::ledger::{Attachment, Budget, LedgerError, LedgerIdentity, MOST_RETRIES, ReleaseState, RowBody, StoreError};
use dp_pvi_privacy::mechanism::release_non_private;
use dp_pvi_privacy::{Argument, Ledger, Pending, Permit, UnitTable, Units};
use ed25519_dalek::SigningKey;

use super::SqliteLedger;
use dp_pvi_unsealed::Unsealed;

pub(super) type FileLedger = Ledger<SqliteLedger, SigningKey>;

pub(super) fn identity() -> LedgerIdentity {
    LedgerIdentity { data: "lung-2024".into(), unit: PrivacyUnit::Record, relation: Relation::ReplaceOne }
}

pub(super) fn budget() -> Budget {
    Budget {
        epsilon: Epsilon::new(1.0).unwrap(),
        delta: Delta::new(1e-5).unwrap(),
        per_run: None,
        max_fallback: None,
        allow_non_private: true,
    }
}

pub(super) fn signer() -> SigningKey {
    SigningKey::from_bytes(&[9; 32])
}

pub(super) fn open(path: &Path) -> Result<FileLedger, LedgerError> {
    match SqliteLedger::create(path)? {
        Some(new) => Ledger::open(new, signer(), identity(), budget()),
        None => reopen(path, identity(), budget()),
    }
}

pub(super) fn reopen(path: &Path, identity: LedgerIdentity, budget: Budget) -> Result<FileLedger, LedgerError> {
    Ledger::open(SqliteLedger::open(path)?, signer(), identity, budget)
}

pub(super) fn release(round: u32) -> ReleaseId {
    ReleaseId { run: RunId { task: Hash([7; 32]), number: 0 }, client: ClientId::new("site-1").unwrap(), round }
}

struct One(Vec<f64>);

impl UnitTable for One {
    type Unit<'a> = &'a [f64];
    fn len(&self) -> usize {
        1
    }
    fn unit(&self, _: usize) -> &[f64] {
        &self.0
    }
}

fn attachment(permit: Permit, length: usize) -> Attachment {
    let released = release_non_private(Units::new(One(vec![0.5; length])).map(&Argument::nothing(), |(), t| t.0.clone()), permit).unwrap();
    let pending = Pending::Public(released.clone().map(&Argument::nothing(), |(), values| vec![1.0; values.len()]));
    assume_signed(Unsealed, b"message".to_vec(), Payload::Values(released.into_inner()), pending)
}

pub(super) fn round(ledger: &mut FileLedger, number: u32) {
    let release = release(number);
    let permit = ledger.reserve(&release, &DpEvent::NonPrivate, Hash([1; 32])).unwrap();
    ledger.commit(&release, &attachment(permit, 3)).unwrap();
    ledger.sent(&release).unwrap();
    ledger.receipted(&release, Hash([2; 32])).unwrap();
    ledger.settle(&release, true, 0.5).unwrap();
}

#[test]
fn an_old_copy_is_refused_while_the_witness_is_up() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("ledger.db");
    let mut ledger = open(&path).unwrap();
    round(&mut ledger, 0);
    drop(ledger);
    let old = fs::read(&path).unwrap();
    let mut ledger = open(&path).unwrap();
    (1..4).for_each(|number| round(&mut ledger, number));
    let witnessed = ledger.head();
    ledger.check_witness(witnessed).unwrap();
    drop(ledger);

    // Three rounds back; and three rounds back, gone on differently.
    fs::write(&path, &old).unwrap();
    let mut ledger = open(&path).unwrap();
    let refused = ledger.check_witness(witnessed).unwrap_err();
    assert!(matches!(refused, LedgerError::RolledBack { .. }), "{refused}");
    (11..20).for_each(|number| round(&mut ledger, number));
    let refused = ledger.check_witness(witnessed).unwrap_err();
    assert!(matches!(refused, LedgerError::Forked { .. }), "{refused}");
}

#[test]
fn a_full_disk_at_commit_keeps_the_reservation_and_nothing_else() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("ledger.db");
    let store = SqliteLedger::create(&path).unwrap().unwrap();
    // Room for rows, not for a payload.
    let _: i64 = store.connection.query_row("PRAGMA max_page_count = 40", [], |row| row.get(0)).unwrap();
    let mut ledger = Ledger::open(store, signer(), identity(), budget()).unwrap();
    let permit = ledger.reserve(&release(0), &DpEvent::NonPrivate, Hash([1; 32])).unwrap();
    let full = ledger.commit(&release(0), &attachment(permit, 100_000)).unwrap_err();
    assert!(matches!(full, LedgerError::Store(StoreError::Unavailable(_))), "{full}");
    drop(ledger);

    // Another process.
    forget_minted(Unsealed, &path);
    let mut ledger = open(&path).unwrap();
    assert_eq!(ledger.state(&release(0)), Some(ReleaseState::Reserved));
    let permit = ledger.reserve(&release(0), &DpEvent::NonPrivate, Hash([1; 32])).unwrap();
    ledger.commit(&release(0), &attachment(permit, 100_000)).unwrap();
    drop(ledger);
    let mut ledger = open(&path).unwrap();
    assert_eq!(ledger.state(&release(0)), Some(ReleaseState::Committed));
    assert_eq!(ledger.attachment(&release(0)).unwrap().unwrap().payload().len(), 100_000);
}

#[test]
fn changed_attachments_and_factors_are_corruption() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("ledger.db");
    let mut ledger = open(&path).unwrap();
    round(&mut ledger, 0);
    round(&mut ledger, 1);
    let permit = ledger.reserve(&release(2), &DpEvent::NonPrivate, Hash([1; 32])).unwrap();
    ledger.commit(&release(2), &attachment(permit, 3)).unwrap();
    drop(ledger);
    let whole = fs::read(&path).unwrap();
    for statement in [
        "UPDATE attachment SET bytes = zeroblob(length(bytes))",
        "DELETE FROM attachment",
        "UPDATE attachment SET bytes = CAST(bytes || x'00' AS BLOB)",
        "UPDATE factor SET bytes = zeroblob(24)",
        "DELETE FROM factor",
    ] {
        fs::write(&path, &whole).unwrap();
        let connection = rusqlite::Connection::open(&path).unwrap();
        connection.execute_batch(statement).unwrap();
        connection.close().unwrap();
        let refused = open(&path).err();
        assert!(matches!(refused, Some(LedgerError::Store(StoreError::Corrupt(_)))), "{statement}: {refused:?}");
    }
    fs::write(&path, &whole).unwrap();
    assert_eq!(open(&path).unwrap().site_state(&release(0).run).unwrap().public(3), Ok(vec![1.0; 3]));
}

/// Everything that a ledger says.
fn contents(ledger: &mut FileLedger) -> Contents {
    let rows = ledger.rows().iter().map(|(_, hash)| *hash).collect();
    let messages = (0..4).map(|number| ledger.message(&release(number)).unwrap()).collect();
    let pending = ledger.attachment(&release(3)).unwrap().map(|attachment| attachment.payload().to_bytes());
    let state = ledger.site_state(&release(0).run).unwrap().public(3).unwrap();
    (rows, messages, pending, state)
}

type Contents = (Vec<Hash>, Vec<Option<Vec<u8>>>, Option<Vec<u8>>, Vec<f64>);

/// Why a ledger can be sound after bytes of its file were changed: a file of SQLite has room in which nothing stands, the free part of each page, and
/// numbers that nothing follows from. Whatever is in such a place, the ledger says the same. A changed byte of a row, a stored update or a
/// state is always noticed.
#[test]
fn a_changed_byte_is_noticed_or_nothing_stands_there() {
    let memory = Path::new("/dev/shm");
    let folder = if memory.is_dir() { tempfile::tempdir_in(memory) } else { tempfile::tempdir() }.unwrap();
    let path = folder.path().join("ledger.db");
    let mut ledger = open(&path).unwrap();
    (0..3).for_each(|number| round(&mut ledger, number));
    let permit = ledger.reserve(&release(3), &DpEvent::NonPrivate, Hash([1; 32])).unwrap();
    ledger.commit(&release(3), &attachment(permit, 3)).unwrap();
    let expected = contents(&mut ledger);
    drop(ledger);
    let whole = fs::read(&path).unwrap();
    let noticed = |bytes: &[u8]| {
        fs::write(&path, bytes).unwrap();
        match open(&path) {
            Ok(mut ledger) => {
                assert_eq!(contents(&mut ledger), expected);
                false
            }
            Err(LedgerError::Store(StoreError::Corrupt(_) | StoreError::Form { .. })) => true,
            Err(other) => panic!("{other}"),
        }
    };
    let changed = |at: usize, byte: u8| {
        let mut bytes = whole.clone();
        bytes[at] = byte;
        noticed(&bytes)
    };
    // What the tables hold stands somewhere in the file, and each byte of it counts.
    let connection = rusqlite::Connection::open(&path).unwrap();
    for query in ["SELECT bytes FROM row", "SELECT signature FROM row", "SELECT bytes FROM attachment", "SELECT bytes FROM factor"] {
        let mut statement = connection.prepare(query).unwrap();
        let cells: Vec<Vec<u8>> = statement.query_map([], |row| row.get(0)).unwrap().collect::<Result<_, _>>().unwrap();
        assert!(!cells.is_empty());
        for cell in cells.iter().rev().take(2) {
            // A page that was split leaves a copy of its cells in free space: one of the places is the cell.
            let mut places = (0..=whole.len() - cell.len()).filter(|at| whole[*at..].starts_with(cell));
            let all = |at: usize| (at..at + cell.len()).step_by(3).all(|at| changed(at, !whole[at]));
            assert!(places.any(all), "{query}: a byte was changed unnoticed");
        }
    }
    drop(connection);
    // Of all others every ninth: those that are not noticed may be anything, all of them at once.
    let free: Vec<usize> = (0..whole.len()).step_by(9).filter(|at| !changed(*at, whole[*at] ^ 0xff)).collect();
    assert!(free.len() > whole.len() / 90 && free.len() < whole.len() / 9, "{} of {}", free.len(), whole.len());
    let mut scribbled = whole.clone();
    free.iter().for_each(|at| scribbled[*at] ^= 0xff);
    assert!(!noticed(&scribbled));
}

/// A reservation gave a permit at every opening of the ledger: any number of results for one charge.
#[test]
fn one_charge_mints_once_a_process_and_few_times_at_all() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("ledger.db");
    let reserve = || open(&path).unwrap().reserve(&release(0), &DpEvent::NonPrivate, Hash([1; 32])).map(drop);
    reserve().unwrap();
    for again in 1..=MOST_RETRIES as usize {
        assert!(matches!(reserve(), Err(LedgerError::PermitOutstanding(_))), "the same process, attempt {again}");
        forget_minted(Unsealed, &path);
        reserve().unwrap();
        let ledger = open(&path).unwrap();
        assert_eq!(ledger.rows().len(), 3 + again);
        assert!(matches!(&ledger.rows().last().unwrap().0.body, RowBody::Retried { release: id } if *id == release(0)));
    }
    forget_minted(Unsealed, &path);
    assert!(matches!(reserve(), Err(LedgerError::RetriesSpent(_))));
    // The charge stays, and nothing of it can be included.
    let mut ledger = open(&path).unwrap();
    assert_eq!(ledger.state(&release(0)), Some(ReleaseState::Reserved));
    assert!(ledger.losses().joint.epsilon.get().is_infinite());
    assert!(ledger.settle(&release(0), true, 0.5).is_err());
    ledger.settle(&release(0), false, 0.5).unwrap();
}
