#![allow(clippy::unwrap_used)]
use std::collections::HashSet;
use std::sync::Arc;

use dp_pvi_names::PayloadKind;
use dp_pvi_protocol::coordinator::{Control, Expected};
use dp_pvi_protocol::message::{RoundHeader, RoundOutcome, Signed, TranscriptEntry, payload_hash, vector_hash};
use dp_pvi_protocol::sum::PayloadError;
use dp_pvi_protocol::time::Timestamp;
use ed25519_dalek::SigningKey;
use tempfile::TempDir;

use super::*;

pub(super) fn run_id() -> RunId {
    RunId { task: Hash([7; 32]), number: 1 }
}

pub(super) fn paused(at: u64) -> Record {
    Record::Control { control: Control::Paused, at: Timestamp::from_millis(at) }
}

pub(super) fn closed(round: u32, lambda: &[f64]) -> Record {
    let header = RoundHeader {
        run: run_id(),
        round,
        turn: None,
        visit: round,
        lambda: Hash([1; 32]),
        previous: Hash::default(),
        deadline_seconds: 1,
        reserved: Vec::new(),
    };
    let entry = TranscriptEntry {
        header: Signed::seal(&header, &SigningKey::from_bytes(&[3; 32])),
        included: Vec::new(),
        outcome: RoundOutcome::Complete,
        lambda: vector_hash(lambda),
        previous: Hash::default(),
        aggregation: None,
    };
    Record::RoundClosed { entry, lambda: Arc::from(lambda), correction: None, at: Timestamp::from_millis(5) }
}

pub(super) fn append(store: &mut Store, run: &StoredRun, records: &[Record]) -> Result<()> {
    records.iter().try_for_each(|record| store.append(run, record, None))
}

pub(super) fn all(store: &Store, run: &StoredRun) -> Vec<Record> {
    (0..).map_while(|seq| store.record(run, seq).unwrap()).collect()
}

#[test]
fn records_come_back_as_they_were() {
    let directory = TempDir::new().unwrap();
    let path = directory.path().join("state.db");
    let vector: Vec<f64> = (0..20_000).map(|i| f64::from(i).sin()).collect();
    let records = vec![paused(1), closed(0, &vector), closed(1, &[]), paused(2)];
    let run = {
        let mut store = Store::open(&path).unwrap();
        let run = store.create_run(run_id()).unwrap();
        append(&mut store, &run, &records).unwrap();
        store.commit().unwrap();
        run
    };
    let store = Store::open(&path).unwrap();
    assert_eq!(store.last_run(run_id().task).unwrap(), Some(run));
    assert_eq!(store.last_run(Hash([8; 32])).unwrap(), None);
    assert_eq!(all(&store, &run), records);
    let reader = Reader::open(&path).unwrap();
    assert_eq!(reader.last_vector(&run).unwrap(), Some(Vec::new()));
    assert!(matches!(reader.light_record(&run, 1).unwrap(), Some(Record::RoundClosed { lambda, .. }) if lambda.is_empty()));
}

#[test]
fn what_was_not_committed_is_not_there() {
    let directory = TempDir::new().unwrap();
    let path = directory.path().join("state.db");
    let run = {
        let mut store = Store::open(&path).unwrap();
        let run = store.create_run(run_id()).unwrap();
        append(&mut store, &run, &[paused(1)]).unwrap();
        store.commit().unwrap();
        append(&mut store, &run, &[paused(2), closed(0, &[1.0; 5000])]).unwrap();
        run
        // The process ends here: no commit.
    };
    assert_eq!(all(&Store::open(&path).unwrap(), &run), [paused(1)]);
}

#[test]
fn a_second_server_is_kept_away() {
    let directory = TempDir::new().unwrap();
    let path = directory.path().join("state.db");
    let store = Store::open(&path).unwrap();
    let error = Store::open(&path).unwrap_err();
    assert_eq!(error.code(), 12);
    assert!(error.to_string().contains("another dp-pvi-server"), "{error}");
    drop(store);
    Store::open(&path).unwrap();
}

#[test]
fn a_full_disk_loses_nothing_that_was_committed() {
    let directory = TempDir::new().unwrap();
    let path = directory.path().join("state.db");
    let run = {
        let mut store = Store::open(&path).unwrap();
        let run = store.create_run(run_id()).unwrap();
        append(&mut store, &run, &[paused(1)]).unwrap();
        store.commit().unwrap();
        store.limit_pages(24).unwrap();
        let error = append(&mut store, &run, &[paused(2), closed(0, &[1.0; 50_000])]).and_then(|()| store.commit()).unwrap_err();
        assert_eq!(error.code(), 12);
        assert!(error.to_string().contains("the disk is full"), "{error}");
        run
    };
    let mut store = Store::open(&path).unwrap();
    assert_eq!(all(&store, &run), [paused(1)]);
    append(&mut store, &run, &[paused(2)]).unwrap();
    store.commit().unwrap();
    assert_eq!(all(&store, &run), [paused(1), paused(2)]);
}

/// A full disk is an exhausted resource like any other: the transaction is tried again until someone has made room, and then holds every record.
#[test]
fn a_full_disk_delays_and_loses_nothing() {
    let directory = TempDir::new().unwrap();
    let mut store = Store::open(&directory.path().join("state.db")).unwrap();
    let run = store.create_run(run_id()).unwrap();
    store.limit_pages(24).unwrap();
    let telemetry = crate::telemetry::Telemetry::new();
    let mut tries = 0;
    let stored = crate::resource_backoff::with_backoff(
        &telemetry,
        "records could not be stored",
        |error| matches!(error, ServerError::Exhausted(_)),
        || {
            tries += 1;
            if tries == 3 {
                store.limit_pages(10_000).unwrap();
            }
            append(&mut store, &run, &[paused(1), closed(0, &[1.0; 50_000])])
                .and_then(|()| store.commit())
                .inspect_err(|_| store.roll_back())
        },
    );
    stored.unwrap();
    assert_eq!((tries, telemetry.resource_exhaustions.get()), (3, 2));
    assert_eq!(all(&store, &run), [paused(1), closed(0, &[1.0; 50_000])]);
}

/// What the other exhausted resources are to this store: a lack of memory and of descriptors waits, a disk that fails does not.
#[test]
fn only_what_somebody_gives_back_is_waited_for() {
    use rusqlite::ffi;
    let of = |code| {
        let error = rusqlite::Error::SqliteFailure(ffi::Error::new(code), None);
        matches!(super::sqlite_error(std::path::Path::new("state.db"), &error), ServerError::Exhausted(_))
    };
    assert!([ffi::SQLITE_NOMEM, ffi::SQLITE_CANTOPEN, ffi::SQLITE_FULL].map(of).iter().all(|waits| *waits));
    assert!([ffi::SQLITE_IOERR_WRITE, ffi::SQLITE_READONLY, ffi::SQLITE_PERM, ffi::SQLITE_CORRUPT].map(of).iter().all(|waits| !*waits));
}

/// A backup holds it for longer than SQLite's five seconds.
#[test]
fn a_database_that_another_program_holds_is_waited_for_as_long_as_a_ledger() {
    let directory = TempDir::new().unwrap();
    let path = directory.path().join("state.db");
    let store = Store::open(&path).unwrap();
    assert_eq!(store.connection.pragma_query_value(None, "busy_timeout", |row| row.get::<_, i64>(0)).unwrap(), 30_000);
}

#[test]
fn other_files_and_versions_are_refused() {
    let directory = TempDir::new().unwrap();
    let path = directory.path().join("state.db");
    std::fs::write(&path, "this is no database, it is a letter to my aunt, long enough to have a header").unwrap();
    assert_eq!(Store::open(&path).unwrap_err().code(), 11);
    std::fs::remove_file(&path).unwrap();
    let other = Connection::open(&path).unwrap();
    other.execute_batch("CREATE TABLE x (y)").unwrap();
    drop(other);
    assert!(Store::open(&path).unwrap_err().to_string().contains("another program"));
    std::fs::remove_file(&path).unwrap();
    drop(Store::open(&path).unwrap());
    Connection::open(&path).unwrap().pragma_update(None, "user_version", 1000).unwrap();
    assert!(Store::open(&path).unwrap_err().to_string().contains("version 1000"));
    assert_eq!(Reader::open(&directory.path().join("none.db")).unwrap_err().code(), 12);
}

#[test]
fn damaged_records_are_noticed() {
    let directory = TempDir::new().unwrap();
    let path = directory.path().join("state.db");
    let run = {
        let mut store = Store::open(&path).unwrap();
        let run = store.create_run(run_id()).unwrap();
        append(&mut store, &run, &[paused(1), paused(2)]).unwrap();
        store.commit().unwrap();
        run
    };
    Connection::open(&path).unwrap().execute("UPDATE records SET body = zeroblob(3) WHERE seq = 1", []).unwrap();
    let store = Store::open(&path).unwrap();
    assert_eq!(store.record(&run, 0).unwrap(), Some(paused(1)));
    assert!(matches!(store.record(&run, 1), Err(ServerError::Corrupt(_))));
}

/// A posterior that was changed on the disk, a record that is gone and one that is elsewhere are no part of a run.
#[test]
fn changed_vectors_and_missing_rows_are_noticed() {
    let changes: [(&str, bool); 6] = [
        ("UPDATE records SET vector = zeroblob(16) WHERE seq = 1", false),
        ("UPDATE records SET vector = NULL WHERE seq = 1", false),
        ("UPDATE records SET kind = 'paused' WHERE seq = 1", false),
        ("DELETE FROM records WHERE seq = 0", true),
        ("UPDATE records SET key = key + 1 WHERE seq = 2", true),
        ("UPDATE records SET run = 7 WHERE seq = 2", true),
    ];
    for (change, whole) in changes {
        let directory = TempDir::new().unwrap();
        let path = directory.path().join("state.db");
        let mut store = Store::open(&path).unwrap();
        let run = store.create_run(run_id()).unwrap();
        append(&mut store, &run, &[paused(1), closed(0, &[1.0, 2.0]), paused(2)]).unwrap();
        store.commit().unwrap();
        drop(store);
        let connection = Connection::open(&path).unwrap();
        connection.pragma_update(None, "foreign_keys", false).unwrap();
        connection.execute(change, []).unwrap();
        drop(connection);
        if whole {
            assert!(matches!(Store::open(&path), Err(ServerError::Corrupt(_))), "{change}");
            assert!(matches!(Reader::open(&path).unwrap().check_whole(), Err(ServerError::Corrupt(_))), "{change}");
        } else {
            let store = Store::open(&path).unwrap();
            let damaged = |result: Result<Option<Record>>| matches!(result, Err(ServerError::Corrupt(_) | ServerError::Unavailable(_)));
            assert!(damaged(store.record(&run, 1)), "{change}");
            assert!(damaged(Reader::open(&path).unwrap().record(&run, 1)), "{change}");
        }
    }
}

fn site() -> ClientId {
    ClientId::new("a").unwrap()
}

fn expected(bytes: &[u8]) -> Expected {
    Expected {
        kind: PayloadKind::Values,
        coordinates: bytes.len() as u64 / 8,
        payload: payload_hash(PayloadKind::Values, bytes),
        commitment: None,
        bound: None,
        shape: None,
        places: None,
    }
}

fn stored(payload_store: &PayloadStore, update: Hash) -> Option<Vec<u8>> {
    let mut bytes = Vec::new();
    let mut sink = |chunk: &[u8]| -> std::result::Result<(), PayloadError> {
        bytes.extend_from_slice(chunk);
        Ok(())
    };
    payload_store.read(&site(), update, &crate::telemetry::Telemetry::new(), &mut sink).ok().map(|()| bytes)
}

#[test]
fn payloads_are_there_entirely_or_not_at_all() {
    let directory = TempDir::new().unwrap();
    let payload_store = PayloadStore::open(directory.path(), &run_id()).unwrap();
    let folder = directory.path().join("rounds").read_dir().unwrap().next().unwrap().unwrap().path();
    let files = || folder.read_dir().unwrap().count();
    let bytes: Vec<u8> = (0..100).flat_map(|i| f64::from(i).to_le_bytes()).collect();
    let update = Hash([9; 32]);

    let mut good = payload_store.begin(&site(), update, expected(&bytes)).unwrap();
    bytes.chunks(37).for_each(|chunk| good.write(chunk).unwrap());
    assert_eq!(stored(&payload_store, update), None, "not before it is finished");
    good.finish().unwrap();
    assert_eq!(stored(&payload_store, update).as_deref(), Some(bytes.as_slice()));

    // Too short, too long, other bytes, NaN, or given up: nothing remains, and what is there stays.
    let mut short = payload_store.begin(&site(), update, expected(&bytes)).unwrap();
    short.write(&bytes[..40]).unwrap();
    assert!(matches!(short.finish(), Err(WriteError::Payload(PayloadError::Length))));
    let mut long = payload_store.begin(&site(), update, expected(&bytes)).unwrap();
    long.write(&bytes).unwrap();
    assert!(matches!(long.write(&[0]), Err(WriteError::Payload(PayloadError::Length))));
    drop(long);
    let mut other = bytes.clone();
    other[0] ^= 1;
    let mut changed = payload_store.begin(&site(), update, expected(&bytes)).unwrap();
    changed.write(&other).unwrap();
    assert!(matches!(changed.finish(), Err(WriteError::Payload(PayloadError::Hash))));
    let nan = f64::NAN.to_le_bytes();
    let mut not_finite = payload_store.begin(&site(), update, expected(&nan)).unwrap();
    assert!(matches!(not_finite.write(&nan), Err(WriteError::Payload(PayloadError::NotFinite))));
    drop(not_finite);
    assert_eq!(files(), 1);
    assert_eq!(stored(&payload_store, update).as_deref(), Some(bytes.as_slice()));

    // Left-overs of a crash go at the next start; what a record names stays.
    std::fs::write(folder.join(".arriving-1-2"), "half").unwrap();
    std::fs::write(folder.join("b-00.payload"), "nobody knows me").unwrap();
    payload_store.retain(&HashSet::from([(site(), update)])).unwrap();
    assert_eq!(files(), 1);
    assert_eq!(stored(&payload_store, update).as_deref(), Some(bytes.as_slice()));
}

#[test]
fn the_log_has_its_length_before_the_first_round() {
    let directory = TempDir::new().unwrap();
    let path = directory.path().join("state.db");
    let length = |name: &str| std::fs::metadata(directory.path().join(name)).unwrap().len();
    let mut store = Store::open(&path).unwrap();
    let run = store.create_run(run_id()).unwrap();
    let before = length("state.db-wal");
    assert!(before >= 2000 * 4096, "{before} bytes");
    let mut written = 0;
    for round in 0..300 {
        append(&mut store, &run, &[closed(round, &[0.5; 4000])]).unwrap();
        store.commit().unwrap();
        written += 8 * 4000;
    }
    // More was written than it holds, and it is as long as before, up to the commit that filled it.
    assert!(written > before && length("state.db-wal") <= before + (1 << 16), "{before}, then {}", length("state.db-wal"));
    let records = all(&store, &run);
    drop(store);
    // The zeroes never reach the file itself.
    let file = length("state.db");
    assert!(file < written + written / 4, "{file} bytes");
    assert_eq!(all(&Store::open(&path).unwrap(), &run), records);
}

#[test]
fn a_disk_without_room_for_the_log_does_not_keep_a_store_closed() {
    let directory = TempDir::new().unwrap();
    let path = directory.path().join("state.db");
    drop(Store::open(&path).unwrap());
    let connection = Connection::open(&path).unwrap();
    connection.pragma_update(None, "max_page_count", 24).unwrap();
    schema::prepare(&connection, &path).unwrap();
    assert!(connection.is_autocommit(), "nothing is left open");
    let heads: i64 = connection.query_row("SELECT count(*) FROM heads", [], |row| row.get(0)).unwrap();
    assert_eq!(heads, 0);
}
