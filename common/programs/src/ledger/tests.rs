#![allow(clippy::unwrap_used)]

use std::fs;
use std::path::Path;

use dp_pvi_names::{ClientId, Hash, ReleaseId, RunId};
use dp_pvi_privacy::ledger::{Extra, LedgerStore, StoreError, StoredRow};

use super::{OnDisk, SqliteLedger, ViewStore};

pub(super) fn row(seq: u64) -> StoredRow {
    let bytes: Vec<u8> = (0..120u64).map(|i| (seq.wrapping_mul(31).wrapping_add(i * 7) % 251) as u8).collect();
    StoredRow { hash: Hash::of("test row", &[&bytes]), signature: (0..64).map(|i| (seq as u8).wrapping_add(i)).collect(), bytes }
}

pub(super) fn run(number: u32) -> RunId {
    RunId { task: Hash([7; 32]), number }
}

pub(super) fn release(round: u32) -> ReleaseId {
    ReleaseId { run: run(1), client: ClientId::new("site-1").unwrap(), round }
}

pub(super) fn fresh(path: &Path) -> SqliteLedger {
    SqliteLedger::create(path).unwrap().unwrap()
}

pub(super) fn filled(path: &Path, rows: u64) -> Vec<StoredRow> {
    let mut store = fresh(path);
    let all: Vec<_> = (0..rows).map(row).collect();
    for (i, row) in all.iter().enumerate() {
        let extra = match i % 10 {
            3 => Some(Extra::Attachment(release(i as u32), vec![i as u8; 40])),
            7 => Some(Extra::Settled { release: release(i as u32), factor: vec![i as u8; 16], attachment: None }),
            _ => None,
        };
        store.append(row, extra.as_ref()).unwrap();
    }
    all
}

pub(super) fn error(result: Result<SqliteLedger, StoreError>) -> StoreError {
    match result {
        Ok(_) => panic!("opened"),
        Err(e) => e,
    }
}

#[test]
fn rows_attachments_and_factors_survive() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("data").join("ledger.db");
    let rows = filled(&path, 30);
    let mut store = SqliteLedger::open(&path).unwrap();
    assert_eq!(store.rows().unwrap(), rows);
    assert_eq!(store.attachment(&release(13)).unwrap(), Some(vec![13; 40]));
    assert_eq!(store.attachment(&release(14)).unwrap(), None);
    assert_eq!(store.factor(&run(1)).unwrap(), Some(vec![27; 16]), "the last factor replaces the earlier ones");
    assert_eq!(store.factor(&run(2)).unwrap(), None);
    let mode = std::os::unix::fs::PermissionsExt::mode(&fs::metadata(&path).unwrap().permissions());
    assert_eq!(mode & 0o777, 0o600);
}

#[test]
fn one_writer_many_readers() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("ledger.db");
    assert_eq!(ViewStore::open(&path).unwrap().on_disk(), OnDisk::NotYet);
    let mut writer = fresh(&path);
    writer.append(&row(0), None).unwrap();
    let second = error(SqliteLedger::open(&path));
    assert!(matches!(&second, StoreError::Unavailable(m) if m.contains(&std::process::id().to_string())), "{second}");
    let mut reader = ViewStore::open(&path).unwrap();
    assert_eq!(reader.on_disk(), OnDisk::Yes);
    writer.append(&row(1), None).unwrap();
    assert_eq!(reader.rows().unwrap(), [row(0)], "a reader sees one moment");
    assert!(matches!(reader.append(&row(2), None), Err(StoreError::Unavailable(_))));
    assert_eq!(ViewStore::open(&path).unwrap().rows().unwrap(), [row(0), row(1)]);
    drop(reader);
    drop(writer);
    assert_eq!(SqliteLedger::open(&path).unwrap().rows().unwrap().len(), 2);
}

#[test]
fn durability_settings_are_in_force() {
    let folder = tempfile::tempdir().unwrap();
    let store = fresh(&folder.path().join("ledger.db"));
    let text: String = store.connection.query_row("PRAGMA journal_mode", [], |r| r.get(0)).unwrap();
    let synchronous: i64 = store.connection.query_row("PRAGMA synchronous", [], |r| r.get(0)).unwrap();
    assert_eq!((text.as_str(), synchronous), ("delete", 3));
}

/// A settled release's payload is replaced in the transaction of its row, and its bytes are nowhere in the file.
#[test]
fn settling_takes_the_payload_off_the_disk() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("ledger.db");
    let secret = [0xa5; 64];
    let on_disk = |path: &Path| fs::read(path).unwrap().windows(secret.len()).any(|w| w == secret);
    let mut store = fresh(&path);
    store.append(&row(0), Some(&Extra::Attachment(release(1), secret.repeat(1000)))).unwrap();
    drop(store);
    assert!(on_disk(&path));
    let mut store = SqliteLedger::open(&path).unwrap();
    store.append(&row(1), Some(&Extra::Settled { release: release(1), factor: vec![1; 8], attachment: Some(vec![2; 40]) })).unwrap();
    assert_eq!(store.attachment(&release(1)).unwrap(), Some(vec![2; 40]));
    assert_eq!(store.factor(&run(1)).unwrap(), Some(vec![1; 8]));
    drop(store);
    assert!(!on_disk(&path) && !super::suffixed(&path, "-journal").exists());
}

#[test]
fn a_full_disk_loses_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("ledger.db");
    let mut store = fresh(&path);
    store.append(&row(0), None).unwrap();
    let pages: i64 = store.connection.query_row("PRAGMA page_count", [], |r| r.get(0)).unwrap();
    let set: i64 = store.connection.query_row(&format!("PRAGMA max_page_count = {pages}"), [], |r| r.get(0)).unwrap();
    assert_eq!(set, pages);
    let full = store.append(&row(1), Some(&Extra::Attachment(release(1), vec![1; 100_000]))).unwrap_err();
    assert!(matches!(&full, StoreError::Unavailable(m) if m.contains("full")), "{full}");
    assert_eq!(store.rows().unwrap(), [row(0)]);
    assert_eq!(store.attachment(&release(1)).unwrap(), None);
    let _: i64 = store.connection.query_row("PRAGMA max_page_count = 100000", [], |r| r.get(0)).unwrap();
    store.append(&row(1), None).unwrap();
    drop(store);
    assert_eq!(SqliteLedger::open(&path).unwrap().rows().unwrap(), [row(0), row(1)]);
}

#[test]
fn truncation_and_surgery_are_detected() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("ledger.db");
    filled(&path, 20);
    let whole = fs::read(&path).unwrap();
    for statement in [
        "DELETE FROM row WHERE seq = 19",
        "DELETE FROM row WHERE seq = 4",
        "DELETE FROM row",
        "DELETE FROM head",
        "UPDATE head SET rows = 19",
        "UPDATE row SET signature = zeroblob(64) WHERE seq = 2",
        "UPDATE row SET seq = 20 WHERE seq = 19",
        "INSERT INTO row SELECT 20, bytes, hash, signature, digest FROM row WHERE seq = 19",
        "CREATE TABLE other (a)",
        "PRAGMA application_id = 1",
        "DROP TABLE factor",
    ] {
        fs::write(&path, &whole).unwrap();
        let connection = rusqlite::Connection::open(&path).unwrap();
        connection.execute_batch(statement).unwrap();
        connection.close().unwrap();
        assert!(matches!(error(SqliteLedger::open(&path)), StoreError::Corrupt(_)), "{statement}");
    }
    fs::write(&path, &whole).unwrap();
    rusqlite::Connection::open(&path).unwrap().pragma_update(None, "user_version", 1).unwrap();
    let other = error(SqliteLedger::open(&path));
    assert!(matches!(other, StoreError::Form { found: 1, known: 2 }) && other.to_string().contains("another version"), "{other}");
    for length in [0, 1, 100, whole.len() / 2, whole.len() - 4096, whole.len() - 1] {
        fs::write(&path, &whole[..length]).unwrap();
        assert!(matches!(error(SqliteLedger::open(&path)), StoreError::Corrupt(_)), "cut to {length} bytes");
        assert!(matches!(ViewStore::open(&path), Err(StoreError::Corrupt(_))), "cut to {length} bytes");
    }
}

#[test]
fn a_failed_creation_is_started_again() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("ledger.db");
    fs::write(folder.path().join("ledger.db.new"), b"half a file").unwrap();
    assert_eq!(fresh(&path).rows().unwrap(), []);
}

/// Only an operator makes a ledger: what is missing, or has no first row, is not opened and not replaced.
#[test]
fn a_missing_ledger_is_not_made_by_opening_it() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("data").join("ledger.db");
    let refused = error(SqliteLedger::open(&path));
    assert!(matches!(&refused, StoreError::Unavailable(m) if m.contains("ledger create")), "{refused}");
    assert!(!path.exists() && !path.parent().unwrap().exists());
    drop(fresh(&path));
    assert!(matches!(error(SqliteLedger::open(&path)), StoreError::Unavailable(_)), "a creation that was cut off");
    fresh(&path).append(&row(0), None).unwrap();
    assert!(SqliteLedger::create(&path).unwrap().is_none());
    assert_eq!(SqliteLedger::open(&path).unwrap().rows().unwrap(), [row(0)]);
}

/// A ledger is one ledger under all its names.
#[test]
fn another_name_of_the_ledger_has_the_same_lock() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("ledger.db");
    filled(&path, 2);
    let link = folder.path().join("link.db");
    std::os::unix::fs::symlink(&path, &link).unwrap();
    let _writer = SqliteLedger::open(&path).unwrap();
    let second = error(SqliteLedger::open(&link));
    assert!(matches!(&second, StoreError::Unavailable(m) if m.contains("stop that one first")), "{second}");
}

/// Every byte of a ledger file of 100 rows, changed: corruption is reported or the rows are exactly the original ones; a changed byte
/// of a stored row is always reported. Every byte in the long tier, one in eleven else.
#[test]
fn a_changed_byte_in_eleven_is_harmless_or_reported() {
    changed_bytes_are_harmless_or_reported(11);
}

#[test]
#[ignore = "long: tests/long.sh bytes"]
fn every_changed_byte_is_harmless_or_reported() {
    changed_bytes_are_harmless_or_reported(1);
}

fn changed_bytes_are_harmless_or_reported(step: usize) {
    // 50,000 copies are made: in memory where the system has such a folder.
    let memory = Path::new("/dev/shm");
    let folder = if memory.is_dir() { tempfile::tempdir_in(memory) } else { tempfile::tempdir() }.unwrap();
    let path = folder.path().join("ledger.db");
    let rows = filled(&path, 100);
    let whole = fs::read(&path).unwrap();
    assert!(!super::suffixed(&path, "-journal").exists(), "one file");

    let workers = std::thread::available_parallelism().map_or(2, usize::from).min(4);
    let mut reported = vec![false; whole.len()];
    std::thread::scope(|scope| {
        let handles: Vec<_> = (0..workers)
            .map(|worker| {
                let (whole, rows) = (&whole, &rows);
                let path = folder.path().join(format!("copy-{worker}.db"));
                scope.spawn(move || changed_bytes(&path, whole, rows, (worker * step..whole.len()).step_by(workers * step)))
            })
            .collect();
        for at in handles.into_iter().flat_map(|h| h.join().unwrap()) {
            reported[at] = true;
        }
    });
    for (number, row) in rows.iter().enumerate() {
        for part in [row.bytes.as_slice(), &row.hash.0, &row.signature] {
            // A page that was split leaves a copy of its cells in free space, which no one reads: the cell itself is another occurrence.
            let mut occurrences = whole.windows(part.len()).enumerate().filter(|(_, window)| *window == part);
            assert!(
                occurrences.any(|(at, _)| (at..at + part.len()).all(|at| reported[at] || !at.is_multiple_of(step))),
                "a byte of row {number} was changed unnoticed"
            );
        }
    }
}

/// Opens a copy for every position, with the byte there changed; returns the positions for which corruption was reported.
fn changed_bytes(path: &Path, whole: &[u8], rows: &[StoredRow], positions: impl Iterator<Item = usize>) -> Vec<usize> {
    let mut reported = Vec::new();
    let mut changed = whole.to_vec();
    for at in positions {
        // All bits, or one: small changes of the format's own numbers are the hard ones.
        let flip = if at % 2 == 0 { 0xff } else { 1 << (at / 2 % 8) };
        changed[at] ^= flip;
        fs::write(path, &changed).unwrap();
        changed[at] ^= flip;
        match SqliteLedger::open(path).and_then(|mut store| store.rows()) {
            Ok(found) => assert!(found == *rows, "byte {at}: other rows than written"),
            Err(StoreError::Corrupt(_) | StoreError::Form { .. }) => reported.push(at),
            Err(other) => panic!("byte {at}: {other}"),
        }
        for suffix in ["-wal", "-shm", "-journal"] {
            let _ = fs::remove_file(super::suffixed(path, suffix));
        }
    }
    reported
}
