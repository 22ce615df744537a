#![allow(clippy::unwrap_used)]
use tempfile::TempDir;

use super::super::tests::{all, append, closed, paused, run_id};
use super::super::{Reader, Store, StoredRun};
use super::*;
use dp_pvi_protocol::coordinator::Record;

/// What a process that was killed leaves: the files as they are while it lives.
struct Killed {
    folder: TempDir,
    files: [Vec<u8>; 3],
    run: StoredRun,
    /// Records of every transaction.
    transactions: Vec<Vec<Record>>,
}

const SUFFIXES: [&str; 3] = ["", "-wal", "-shm"];
const FRAME: usize = FRAME_HEADER + 4096;

impl Killed {
    fn after(rounds: u32) -> Self {
        let memory = Path::new("/dev/shm");
        let folder = if memory.is_dir() { tempfile::tempdir_in(memory) } else { tempfile::tempdir() }.unwrap();
        let path = folder.path().join("living.db");
        let mut store = Store::open(&path).unwrap();
        let run = store.create_run(run_id()).unwrap();
        let transactions: Vec<Vec<Record>> =
            (0..rounds).map(|round| vec![closed(round, &vec![f64::from(round) + 0.5; 700]), paused(u64::from(round))]).collect();
        for records in &transactions {
            append(&mut store, &run, records).unwrap();
            store.commit().unwrap();
        }
        let mut files = SUFFIXES.map(|suffix| fs::read(beside(&path, suffix)).unwrap());
        let Log::Whole { .. } = look(&path).unwrap() else { panic!("nothing is wrong with it") };
        let committed = Index::read(&beside(&path, "-shm")).unwrap().unwrap().committed as usize;
        // Three frames of the room after it.
        files[1].truncate(HEADER + (committed + 3) * FRAME);
        drop(store);
        Self { folder, files, run, transactions }
    }

    /// Committed bytes of the log.
    fn committed(&self) -> usize {
        self.files[1].len() - 3 * FRAME
    }

    fn path(&self) -> PathBuf {
        self.folder.path().join("state.db")
    }

    /// Puts the files there, with a changed log, and with the index or (as after a loss of power) without.
    fn put(&self, log: &[u8], with_index: bool) -> PathBuf {
        let path = self.path();
        for (suffix, bytes) in SUFFIXES.into_iter().zip([&self.files[0], log, &self.files[2]]) {
            fs::write(beside(&path, suffix), bytes).unwrap();
        }
        if !with_index {
            fs::remove_file(beside(&path, "-shm")).unwrap();
        }
        path
    }

    /// The transactions that a reader finds.
    fn read(&self, path: &Path) -> Result<usize> {
        let reader = Reader::open(path)?;
        let records: Vec<Record> = (0..).map_while(|seq| reader.record(&self.run, seq).unwrap()).collect();
        let whole = records.len() / 2;
        assert_eq!(records, self.transactions[..whole].concat(), "whole transactions, as they were written");
        Ok(whole)
    }
}

#[test]
fn a_log_without_damage_is_read_to_its_end() {
    let killed = Killed::after(12);
    for with_index in [true, false] {
        let path = killed.put(&killed.files[1], with_index);
        assert_eq!(look(&path).unwrap(), Log::Whole { cut_off: 0 });
        assert_eq!(killed.read(&path).unwrap(), 12);
    }
    // And by the next server, which goes on.
    let path = killed.put(&killed.files[1], true);
    assert_eq!(all(&Store::open(&path).unwrap(), &killed.run).len(), 24);
}

/// A byte of the log is changed, anywhere: it is told, or it changes nothing. Without the index, which a loss of power takes away, the same is
/// true of all but the last transaction.
#[test]
fn a_changed_byte_in_the_log_is_not_its_end() {
    let killed = Killed::after(12);
    let mut told = [0; 2];
    for with_index in [true, false] {
        let headers = (0..killed.committed()).filter(|at| *at < HEADER || (at - HEADER) % FRAME < FRAME_HEADER);
        for at in headers.chain((0..killed.committed()).step_by(397)) {
            let mut log = killed.files[1].clone();
            log[at] ^= [0x01, 0x80, 0xff][at % 3];
            let path = killed.put(&log, with_index);
            match killed.read(&path) {
                Ok(whole) => assert!(whole == 12 || !with_index && whole == 11, "byte {at}: {whole} of 12 transactions"),
                Err(ServerError::Corrupt(_)) => told[usize::from(with_index)] += 1,
                Err(other) => panic!("byte {at}: {other}"),
            }
            assert_eq!(fs::read(beside(&path, "-wal")).unwrap_or(log.clone()), log, "nothing is dropped before somebody decides it");
        }
    }
    assert!(told[1] > 500 && told[0] > 400, "{told:?}");
}

/// The last write is cut off: everything before it is there, and it is said.
#[test]
fn a_torn_tail_is_cut() {
    let killed = Killed::after(12);
    for length in [killed.committed() - 1, killed.committed() - FRAME + 100] {
        let path = killed.put(&killed.files[1][..length], false);
        assert!(matches!(look(&path).unwrap(), Log::Whole { cut_off: 1.. }), "{length}");
        assert_eq!(killed.read(&path).unwrap(), 11);
    }
    // The last page of it arrived in half.
    let mut log = killed.files[1].clone();
    let half = killed.committed() - 2048..killed.committed();
    log[half].fill(0x5a);
    let path = killed.put(&log, false);
    assert!(matches!(look(&path).unwrap(), Log::Whole { cut_off: 1.. }));
    assert_eq!(killed.read(&path).unwrap(), 11);
    // Where the index says that it had been committed, it is damage.
    let path = killed.put(&log, true);
    assert!(matches!(killed.read(&path), Err(ServerError::Corrupt(_))));
}

/// A process that is killed in the middle of a long transaction leaves pages of it, and no damage.
#[test]
fn a_transaction_that_was_not_committed_is_no_damage() {
    let folder = TempDir::new().unwrap();
    let (path, copy) = (folder.path().join("living.db"), folder.path().join("state.db"));
    let mut store = Store::open(&path).unwrap();
    let run = store.create_run(run_id()).unwrap();
    append(&mut store, &run, &[closed(0, &[0.5; 700])]).unwrap();
    store.commit().unwrap();
    // More pages than the cache holds.
    append(&mut store, &run, &[closed(1, &vec![0.25; 600_000])]).unwrap();
    for suffix in SUFFIXES {
        fs::copy(beside(&path, suffix), beside(&copy, suffix)).unwrap();
    }
    assert!(matches!(look(&copy).unwrap(), Log::Whole { cut_off: 100.. }), "{:?}", look(&copy));
    assert_eq!(all(&Store::open(&copy).unwrap(), &run).len(), 1);
}

/// What the operator is told, and what `cut-log` leaves.
#[test]
fn a_damaged_log_is_cut_where_an_operator_says_so() {
    let killed = Killed::after(12);
    let mut log = killed.files[1].clone();
    let middle = HEADER + (log.len() - HEADER) / FRAME / 2 * FRAME + 1000;
    log[middle] ^= 1;
    let path = killed.put(&log, true);
    let words = Store::open(&path).unwrap_err().to_string();
    let Log::Damaged { sound, page_size: 4096, .. } = look(&path).unwrap() else { panic!("it is damaged") };
    let round = last_round(&path, sound, 4096).unwrap();
    assert!((3..9).contains(&round), "{round}");
    assert!(words.contains(&format!("sound up to the end of round {round}")) && words.contains("cut-log"), "{words}");
    assert!(!beside(&path, ".looked-at").exists());

    let (left, kept) = Store::cut_log(&path).unwrap();
    assert_eq!((left, fs::read(kept).unwrap()), (round, log.clone()));
    let store = Store::open(&path).unwrap();
    assert_eq!(all(&store, &killed.run), killed.transactions[..=round as usize].concat());
    assert!(Store::cut_log(&path).unwrap_err().to_string().contains("another dp-pvi-server"));
    drop(store);
    assert!(Store::cut_log(&path).unwrap_err().to_string().contains("not damaged"));
    // A second damage does not replace what was kept of the first.
    killed.put(&log, true);
    assert!(Store::cut_log(&path).unwrap_err().to_string().contains("earlier cut"));
}
