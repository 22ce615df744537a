//! What a copy of the file holds, whoever makes it and whenever: beside the writer, after a kill, as a backup.

use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use super::ledger_tests::{FileLedger, budget, identity, open, reopen, round, signer};
use super::tests::{error, filled, fresh, release, row};
use super::{OnDisk, RollbackGuard, SqliteLedger, ViewStore, backup, restore, suffixed};
use dp_pvi_names::ReleaseId;
use dp_pvi_privacy::Ledger;
use dp_pvi_privacy::danger::forget_minted;
use dp_pvi_privacy::ledger::{Extra, FreezeState, LedgerError, LedgerStore, ReleaseState, StoreError, StoredRow};
use dp_pvi_unsealed::Unsealed;

/// A folder in memory where the system has one: many rows are written here, and no power is lost.
fn memory() -> tempfile::TempDir {
    let memory = Path::new("/dev/shm");
    if memory.is_dir() { tempfile::tempdir_in(memory) } else { tempfile::tempdir() }.unwrap()
}

/// Numbers without a pattern, the same on every machine.
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % bound
    }
}

/// Copies a file page by page, forwards or in any order, as slowly as a tool on a busy machine may.
fn copy_slowly(from: &Path, to: &Path, numbers: &mut Numbers) {
    const PAGE: u64 = 4096;
    let source = fs::File::open(from).unwrap();
    let target = fs::File::create(to).unwrap();
    let mut pages: Vec<u64> = (0..source.metadata().unwrap().len().div_ceil(PAGE)).collect();
    if numbers.below(2) == 0 {
        for i in (1..pages.len()).rev() {
            pages.swap(i, usize::try_from(numbers.below(i as u64 + 1)).unwrap());
        }
    }
    let slow_after = numbers.below(pages.len() as u64 + 1);
    for (i, page) in (0..).zip(pages) {
        let mut bytes = [0; PAGE as usize];
        let length = source.read_at(&mut bytes, page * PAGE).unwrap();
        target.write_all_at(&bytes[..length], page * PAGE).unwrap();
        if i == slow_after {
            std::thread::sleep(Duration::from_micros(numbers.below(3000)));
        }
    }
}

/// What may be beside a row: something short, something long, its removal.
fn beside(seq: u64) -> Option<Extra> {
    let release = |seq| release(u32::try_from(seq).unwrap());
    match seq % 4 {
        1 => Some(Extra::Attachment(release(seq), vec![seq as u8; 40])),
        2 => Some(Extra::Attachment(release(seq), vec![seq as u8; 30_000])),
        3 => Some(Extra::Settled { release: release(seq - 1), factor: vec![seq as u8; 500], attachment: Some(vec![1; 40]) }),
        _ => None,
    }
}

/// Whether a copy opens; if so, with these rows or more, and nothing else.
fn opens_with(copy: &Path, at_least: u64) -> bool {
    match SqliteLedger::open(copy).and_then(|mut store| store.rows()) {
        Ok(rows) => {
            assert!(rows.len() as u64 >= at_least, "a copy holds {} rows; {at_least} were written before it was made", rows.len());
            assert!(rows.iter().enumerate().all(|(seq, found)| *found == row(seq as u64)), "rows that nobody wrote");
            true
        }
        Err(StoreError::Corrupt(_)) => false,
        Err(other) => panic!("{other}"),
    }
}

#[test]
fn a_copy_beside_the_writer_holds_every_row_or_is_refused() {
    let folder = memory();
    let path = folder.path().join("ledger.db");
    let (written, over) = (AtomicU64::new(0), AtomicBool::new(false));
    let mut store = fresh(&path);
    store.append(&row(0), None).unwrap();
    let (mut whole, mut torn) = (0, 0);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            // Until there are enough copies; never for ever, should a copy break the test.
            for seq in 1..6000 {
                if over.load(Ordering::SeqCst) {
                    break;
                }
                store.append(&row(seq), beside(seq).as_ref()).unwrap();
                written.store(seq + 1, Ordering::SeqCst);
                // A site computes between its rows: some copies fall into such a pause.
                if seq.is_multiple_of(5) {
                    std::thread::sleep(Duration::from_millis(6));
                }
            }
            over.store(true, Ordering::SeqCst);
        });
        let (mut numbers, copy) = (Numbers(1), folder.path().join("copy.db"));
        while !over.load(Ordering::SeqCst) {
            let before = written.load(Ordering::SeqCst);
            copy_slowly(&path, &copy, &mut numbers);
            if opens_with(&copy, before) {
                whole += 1
            } else {
                torn += 1
            }
            over.fetch_or(whole >= 10 && torn >= 10, Ordering::SeqCst);
        }
    });
    assert!(whole >= 5, "{whole} whole copies and {torn} torn ones say little");
}

/// Copies of file *and* journal, one after the other, as a copied folder has them: SQLite may take a transaction back in such a
/// copy, but none that had been written before the copy began.
#[test]
fn a_copied_folder_holds_every_row_or_is_refused() {
    let folder = memory();
    let path = folder.path().join("ledger.db");
    let (written, over) = (AtomicU64::new(0), AtomicBool::new(false));
    let mut store = fresh(&path);
    store.append(&row(0), None).unwrap();
    let mut whole = 0;
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for seq in 1..400 {
                store.append(&row(seq), beside(seq).as_ref()).unwrap();
                written.store(seq + 1, Ordering::SeqCst);
                // A site computes between its rows: some copies fall into such a pause.
                if seq.is_multiple_of(5) {
                    std::thread::sleep(Duration::from_millis(6));
                }
            }
            over.store(true, Ordering::SeqCst);
        });
        let copy = folder.path().join("copy.db");
        let (journal, copied_journal) = (suffixed(&path, "-journal"), suffixed(&copy, "-journal"));
        let mut journal_first = false;
        while !over.load(Ordering::SeqCst) {
            let _ = fs::remove_file(&copied_journal);
            let before = written.load(Ordering::SeqCst);
            journal_first = !journal_first;
            if journal_first {
                let _ = fs::copy(&journal, &copied_journal);
                fs::copy(&path, &copy).unwrap();
            } else {
                fs::copy(&path, &copy).unwrap();
                let _ = fs::copy(&journal, &copied_journal);
            }
            whole += u32::from(opens_with(&copy, before));
        }
    });
    assert!(whole >= 5);
}

const CHILD: &str = "DP_PVI_TEST_LEDGER_WRITER";

/// No test by itself: the process that the tests below kill. It appends for as long as it lives, and says after each row how many
/// there are.
#[test]
fn the_writer_that_is_killed() {
    let Some(path) = std::env::var_os(CHILD) else { return };
    let path = Path::new(&path);
    let say = |count: u64| {
        use std::io::Write;
        let mut out = std::io::stderr().lock();
        writeln!(out, "written {count}").unwrap();
    };
    if path.ends_with("signed.db") {
        let mut ledger = open(path).unwrap();
        for number in 0..10 {
            round(&mut ledger, number);
        }
        say(10);
        std::thread::sleep(Duration::from_secs(600));
    }
    let mut store = fresh(path);
    for seq in 0.. {
        store.append(&row(seq), beside(seq).as_ref()).unwrap();
        say(seq + 1);
    }
}

fn writer(path: &Path) -> (Child, impl Iterator<Item = u64> + use<>) {
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "ledger::copy_tests::the_writer_that_is_killed", "--nocapture"])
        .env(CHILD, path)
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let lines = BufReader::new(child.stderr.take().unwrap()).lines();
    (child, lines.map_while(Result::ok).filter_map(|line| line.strip_prefix("written ")?.parse().ok()))
}

#[test]
fn a_copy_after_kill_9_holds_every_row_or_is_refused_and_the_original_always_opens() {
    let folder = memory();
    let mut numbers = Numbers(9);
    let mut opened = 0;
    for attempt in 0..12 {
        let path = folder.path().join(format!("{attempt}.db"));
        let (mut child, mut counts) = writer(&path);
        let stop_at = 3 + numbers.below(60);
        assert!(counts.any(|count| count >= stop_at));
        std::thread::sleep(Duration::from_micros(numbers.below(2000)));
        child.kill().unwrap();
        child.wait().unwrap();
        let last = counts.last().unwrap_or(stop_at);
        let copy = folder.path().join("copy.db");
        fs::copy(&path, &copy).unwrap();
        opened += u32::from(opens_with(&copy, last));
        // A reader comes first: it takes back what was half-done.
        assert!(ViewStore::open(&path).unwrap().rows().unwrap().len() as u64 >= last);
        assert!(opens_with(&path, last), "the original, beside its journal");
    }
    assert!(opened >= 3, "only {opened} of 12 copies without the journal opened");
}

/// The attack: ten rounds, kill −9, the one file that everyone copies, and a server that remembers nothing.
#[test]
fn a_copy_of_the_file_alone_knows_all_spending() {
    let folder = memory();
    let path = folder.path().join("signed.db");
    let (mut child, mut counts) = writer(&path);
    assert_eq!(counts.next(), Some(10));
    child.kill().unwrap();
    child.wait().unwrap();
    let copy = folder.path().join("elsewhere.db");
    fs::copy(&path, &copy).unwrap();
    let ledger = reopen(&copy, identity(), budget()).unwrap();
    assert_eq!(ledger.rows().len(), 1 + 10 * 6);
    let releases: Vec<ReleaseId> = (0..10).map(super::ledger_tests::release).collect();
    assert!(releases.iter().all(|release| ledger.state(release) == Some(ReleaseState::Settled { included: true })));
}

/// A ledger that some other program opened with a write-ahead log, and was killed.
#[test]
fn a_ledger_with_a_write_ahead_log_becomes_one_file() {
    let folder = memory();
    let path = folder.path().join("ledger.db");
    let rows = filled(&path, 20);
    let old = rusqlite::Connection::open(&path).unwrap();
    let mode: String = old.query_row("PRAGMA journal_mode = WAL", [], |r| r.get(0)).unwrap();
    assert_eq!(mode, "wal");
    // The last row's digest is right already; one write brings the log into being.
    old.execute_batch("BEGIN; UPDATE head SET rows = rows; UPDATE factor SET bytes = bytes; COMMIT").unwrap();
    assert!(suffixed(&path, "-wal").exists());
    let killed = folder.path().join("killed.db");
    for suffix in ["", "-wal"] {
        fs::copy(suffixed(&path, suffix), suffixed(&killed, suffix)).unwrap();
    }
    drop(old);
    assert_eq!(ViewStore::open(&killed).unwrap().rows().unwrap(), rows);
    let mut store = SqliteLedger::open(&killed).unwrap();
    assert_eq!(store.rows().unwrap(), rows);
    assert!(["-wal", "-shm"].iter().all(|suffix| !suffixed(&killed, suffix).exists()));
    store.append(&row(20), None).unwrap();
    let copy = folder.path().join("copy.db");
    fs::copy(&killed, &copy).unwrap();
    assert!(opens_with(&copy, 21), "while the writer has it open");
}

#[test]
fn a_backup_is_whole_and_overwrites_nothing() {
    let folder = memory();
    let (path, target) = (folder.path().join("ledger.db"), folder.path().join("backup.db"));
    assert!(matches!(backup(&path, &target), Err(StoreError::Unavailable(m)) if m.contains("ledger create")));
    let rows = filled(&path, 25);
    // Beside a writer.
    let mut held = SqliteLedger::open(&path).unwrap();
    backup(&path, &target).unwrap();
    held.append(&row(25), None).unwrap();
    let mode = std::os::unix::fs::PermissionsExt::mode(&fs::metadata(&target).unwrap().permissions());
    assert_eq!(mode & 0o777, 0o600);
    let mut copy = ViewStore::open(&target).unwrap();
    assert_eq!(copy.rows().unwrap(), rows);
    assert_eq!(copy.attachment(&release(13)).unwrap(), Some(vec![13; 40]));
    let bytes = fs::read(&target).unwrap();
    assert!(matches!(backup(&path, &target), Err(StoreError::Unavailable(m)) if m.contains("never overwrites")));
    assert_eq!(fs::read(&target).unwrap(), bytes);
    let names: Vec<_> = fs::read_dir(folder.path()).unwrap().map(|e| e.unwrap().file_name()).collect();
    assert_eq!(names.len(), 3, "ledger, lock, backup: {names:?}");
}

/// The copy as it is.
fn unmended(_: SqliteLedger) -> Result<(), StoreError> {
    Ok(())
}

/// Anyone who has the copy may send once more what the lost ledger has sent under the reservation.
#[test]
fn what_a_restored_copy_has_reserved_is_closed_before_it_has_the_ledger_s_name() {
    let folder = memory();
    let (path, target) = (folder.path().join("ledger.db"), folder.path().join("backup.db"));
    drop(SqliteLedger::create(&path).unwrap());
    let created = SqliteLedger::create(&path).unwrap().unwrap();
    let mut ledger = Ledger::open(created, signer(), identity(), budget()).unwrap();
    ledger.reserve(&release(0), &dp_pvi_accounting::DpEvent::NonPrivate, dp_pvi_names::Hash::default()).unwrap();
    let rows = ledger.rows().len();
    backup(&path, &target).unwrap();
    drop(ledger);
    fs::remove_file(&path).unwrap();
    let mut closed = 0;
    restore(&target, &path, |store| {
        assert!(!path.exists());
        closed = Ledger::open(store, signer(), identity(), budget())?.close_open()?.reservations;
        Ok::<_, LedgerError>(())
    })
    .unwrap();
    // Another process.
    forget_minted(Unsealed, &path);
    let mut back = open(&path).unwrap();
    assert_eq!((closed, back.rows().len()), (1, rows + 2));
    assert_eq!(back.state(&release(0)), Some(ReleaseState::Settled { included: false }));
    let again = back.reserve(&release(0), &dp_pvi_accounting::DpEvent::NonPrivate, dp_pvi_names::Hash::default());
    assert!(matches!(again, Err(LedgerError::Conflict(_))));
}

#[test]
fn a_backup_comes_back_only_where_no_ledger_is() {
    let folder = memory();
    let (path, target) = (folder.path().join("ledger.db"), folder.path().join("backup.db"));
    let rows = filled(&path, 25);
    backup(&path, &target).unwrap();
    assert!(matches!(restore(&target, &path, unmended), Err(StoreError::Unavailable(m)) if m.contains("move it away")));
    fs::remove_file(&path).unwrap();
    // What a lost ledger left would be rolled into the restored one.
    fs::write(suffixed(&path, "-journal"), b"left").unwrap();
    assert!(matches!(restore(&target, &path, unmended), Err(StoreError::Corrupt(m)) if m.contains("move that one away")));
    fs::remove_file(suffixed(&path, "-journal")).unwrap();
    let mut damaged = fs::read(&target).unwrap();
    damaged[100] ^= 0xff;
    let bad = folder.path().join("bad.db");
    fs::write(&bad, damaged).unwrap();
    assert!(matches!(restore(&bad, &path, unmended), Err(StoreError::Corrupt(_))));
    assert!(!path.exists() && !suffixed(&path, ".new").exists());
    restore(&target, &path, unmended).unwrap();
    let mut store = SqliteLedger::open(&path).unwrap();
    assert_eq!(store.rows().unwrap(), rows);
    assert!(matches!(error(SqliteLedger::open(&path)), StoreError::Unavailable(_)), "locked");
    store.append(&row(25), None).unwrap();
}

fn kept(path: &Path, place: &Path) -> Result<FileLedger, LedgerError> {
    reopen(path, identity(), budget())?.kept_in(RollbackGuard::at(place))
}

#[test]
fn a_ledger_below_the_second_place_is_refused() {
    let folder = memory();
    let (path, place) = (folder.path().join("ledger.db"), folder.path().join("state").join("lung.head"));
    let mut ledger = open(&path).unwrap().kept_in(RollbackGuard::at(&place)).unwrap();
    assert_eq!(RollbackGuard::at(&place).head(&signer()).unwrap(), Some(ledger.head()));
    round(&mut ledger, 0);
    drop(ledger);
    let old = fs::read(&path).unwrap();
    let mut ledger = kept(&path, &place).unwrap();
    for number in 1..4 {
        round(&mut ledger, number);
        assert_eq!(RollbackGuard::at(&place).head(&signer()).unwrap(), Some(ledger.head()));
    }
    drop(ledger);
    let latest = fs::read(&path).unwrap();
    fs::write(&path, &old).unwrap();
    let refused = kept(&path, &place).err().unwrap();
    assert!(matches!(refused, LedgerError::Behind { kept: 24, here: 6, .. }), "{refused}");
    assert!(refused.to_string().contains("--lose-rows 18") && refused.to_string().contains("ledger restore"), "{refused}");
    // Gone on differently, without the rollback guard and past its row.
    let mut forked = reopen(&path, identity(), budget()).unwrap();
    (11..16).for_each(|number| round(&mut forked, number));
    drop(forked);
    assert!(matches!(kept(&path, &place).err(), Some(LedgerError::Apart { kept: 24, .. })));
    fs::write(&path, &latest).unwrap();
    kept(&path, &place).unwrap();
}

/// Row first, then the rollback guard: a crash between the two leaves the ledger ahead, and that is never refused.
#[test]
fn a_crash_between_the_row_and_the_second_place_refuses_nothing() {
    let folder = memory();
    let (path, place) = (folder.path().join("ledger.db"), folder.path().join("lung.head"));
    let mut ledger = open(&path).unwrap().kept_in(RollbackGuard::at(&place)).unwrap();
    for number in 0..3 {
        let before = fs::read(&place).unwrap();
        round(&mut ledger, number);
        drop(ledger);
        fs::write(&place, before).unwrap();
        ledger = kept(&path, &place).unwrap();
        assert_eq!(RollbackGuard::at(&place).head(&signer()).unwrap(), Some(ledger.head()));
    }
    ledger.set_frozen(FreezeState::Frozen).unwrap();
    drop(ledger);
    // A write of the rollback guard that was cut off: the other slot counts.
    let whole = fs::read(&place).unwrap();
    let slots = whole.len() / 4096;
    assert_eq!(slots, 2);
    let mut heads = Vec::new();
    for slot in 0..slots {
        let mut torn = whole.clone();
        torn[slot * 4096 + 60..slot * 4096 + 130].fill(0xee);
        fs::write(&place, &torn).unwrap();
        heads.push(RollbackGuard::at(&place).head(&signer()).unwrap().unwrap().seq);
        kept(&path, &place).unwrap();
    }
    assert!(heads.contains(&18) && heads.contains(&19), "{heads:?}");
}

#[test]
fn a_second_place_that_says_nothing_of_this_ledger_is_refused() {
    let folder = memory();
    let (path, place) = (folder.path().join("ledger.db"), folder.path().join("lung.head"));
    drop(open(&path).unwrap().kept_in(RollbackGuard::at(&place)).unwrap());
    let whole = fs::read(&place).unwrap();
    for damaged in [Vec::new(), vec![0; 8192], whole[..100].to_vec()] {
        fs::write(&place, damaged).unwrap();
        let refused = kept(&path, &place).err().unwrap();
        assert!(matches!(&refused, LedgerError::Store(StoreError::Corrupt(m)) if m.contains("lung.head")), "{refused}");
    }
    let mut changed = whole.clone();
    for at in 0..160 {
        changed[at] ^= 1;
        fs::write(&place, &changed).unwrap();
        changed[at] ^= 1;
        // Bytes after the signature are not part of a slot.
        let signed = at < 152;
        assert_eq!(kept(&path, &place).is_err(), signed, "byte {at}");
    }
    fs::write(&place, &whole).unwrap();
    let other = folder.path().join("other.db");
    let store = SqliteLedger::create(&other).unwrap().unwrap();
    let another =
        Ledger::open(store, signer(), dp_pvi_privacy::ledger::LedgerIdentity { data: "heart".into(), ..identity() }, budget()).unwrap();
    assert!(matches!(another.kept_in(RollbackGuard::at(&place)).err(), Some(LedgerError::OtherLedger { kept: 0, .. })));
}

/// The way out where the latest copy is lost: known, frozen, and from then on as strict as before.
#[test]
fn an_old_copy_is_accepted_only_frozen() {
    let folder = memory();
    let (path, place) = (folder.path().join("ledger.db"), folder.path().join("lung.head"));
    let mut ledger = open(&path).unwrap().kept_in(RollbackGuard::at(&place)).unwrap();
    round(&mut ledger, 0);
    drop(ledger);
    let old = fs::read(&path).unwrap();
    let mut ledger = kept(&path, &place).unwrap();
    round(&mut ledger, 1);
    drop(ledger);
    fs::write(&path, &old).unwrap();
    let accepted = reopen(&path, identity(), budget()).unwrap().accept_loss(RollbackGuard::at(&place)).unwrap();
    assert!(accepted.frozen());
    drop(accepted);
    let mut ledger = kept(&path, &place).unwrap();
    assert!(ledger.frozen());
    ledger.set_frozen(FreezeState::Open).unwrap();
    drop(ledger);
    fs::write(&path, &old).unwrap();
    assert!(matches!(kept(&path, &place).err(), Some(LedgerError::Behind { kept: 8, here: 6, .. })));
}

/// Two copies of one ledger in two programs, each with a lock of its own, and one rollback guard: only one of them may charge.
#[test]
fn two_copies_do_not_spend_at_the_same_time() {
    let folder = memory();
    let (path, copy, place) = (folder.path().join("ledger.db"), folder.path().join("copy.db"), folder.path().join("lung.head"));
    drop(open(&path).unwrap().kept_in(RollbackGuard::at(&place)).unwrap());
    fs::copy(&path, &copy).unwrap();
    let mut first = kept(&path, &place).unwrap();
    let refused = kept(&copy, &place).err().unwrap();
    assert!(refused.to_string().contains("lung.head") && refused.to_string().contains("is using it"), "{refused}");
    round(&mut first, 0);
    drop(first);
    // And then it is behind.
    assert!(matches!(kept(&copy, &place).err(), Some(LedgerError::Behind { .. })));
}

/// A rollback guard that cannot be written stops the ledger before a permit is minted.
#[test]
fn no_permit_without_the_rollback_guard() {
    let folder = memory();
    let (path, place) = (folder.path().join("ledger.db"), folder.path().join("lung.head"));
    drop(open(&path).unwrap().kept_in(RollbackGuard::at(&place)).unwrap());
    fs::remove_file(&place).unwrap();
    fs::create_dir(&place).unwrap();
    assert!(kept(&path, &place).is_err());
    assert_eq!(ViewStore::open(&path).unwrap().on_disk(), OnDisk::Yes);
    let stored: Vec<StoredRow> = ViewStore::open(&path).unwrap().rows().unwrap();
    assert_eq!(stored.len(), 1);
}
