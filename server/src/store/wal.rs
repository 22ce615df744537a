//! Checks SQLite's write-ahead log before SQLite reads it.
//!
//! After a crash SQLite takes the first frame with a wrong checksum for the end of the log. That is right for a torn write, which was never acknowledged. It is
//! wrong for bit rot in the middle: SQLite would silently drop every later transaction, although sites have receipts for them. This module distinguishes the two.
//!
//! # What shows that more was committed
//! * *The index.* SQLite keeps how far the log is committed in a file beside it (`-shm`), after the log was flushed. It outlives the process, not
//!   a loss of power.
//! * *A later transaction.* A transaction is written after the one before it was flushed. So a frame that follows a commit shows that this commit was
//!   complete. A frame's checksum continues that of the frame before it, which is in that frame: so frames after a damaged one are known
//!   as frames of this log.
//!
//! Without either (a loss of power, and damage in the very last transaction) damage cannot be distinguished from a write that was cut off.
//!
//! The formats are those of SQLite's documents "WAL-mode File Format" and "Database File Format", section 4.

use std::fs::{self, File};
use std::io::{self, BufReader, Read, Write};
use std::path::{Path, PathBuf};

use rusqlite::{Connection, OpenFlags, OptionalExtension};

use dp_pvi_programs::files::sync_folder;

use crate::error::{Result, ServerError};
use crate::files::create_private_directory;

const HEADER: usize = 32;
const FRAME_HEADER: usize = 24;
/// First word of a log whose checksums read words with the low byte first; one more with the high byte first.
const MAGIC: u32 = 0x377f_0682;
const INDEX_VERSION: u32 = 3_007_000;
/// A reader looks again at most this often: a server beside it may write into the log meanwhile. Damage stays where it is.
const TRIES: u32 = 8;

/// What is in a log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Log {
    /// No log, or one whose frames are all older than the file.
    Empty,
    /// Whole up to its last commit.
    Whole {
        /// Pages of a transaction after it that was not complete.
        cut_off: u64,
    },
    /// Committed pages cannot be read.
    Damaged {
        /// Frames up to the last commit before the damage.
        sound: u64,
        page_size: usize,
        /// Whether pages of after that are in the database file already.
        written_back: bool,
    },
}

/// Makes sure that SQLite will not lose a committed page of the database at `path`, and says so in the log where a write was cut off.
///
/// # Errors
/// [`ServerError::Corrupt`] names the round up to which the log is sound, and what to do.
pub(crate) fn check(path: &Path) -> Result<()> {
    let log = || look(path).map_err(|e| ServerError::unavailable(&beside(path, "-wal"), e));
    let mut found = log()?;
    for _ in 0..TRIES {
        if !matches!(found, Log::Damaged { .. }) {
            break;
        }
        let before = std::mem::replace(&mut found, log()?);
        if found == before {
            break;
        }
    }
    match found {
        Log::Empty | Log::Whole { cut_off: 0 } => Ok(()),
        Log::Whole { cut_off } => {
            tracing::warn!(
                database = %path.display(),
                pages = cut_off,
                "the last write to the database was cut off; it is dropped, and it was never acknowledged"
            );
            Ok(())
        }
        Log::Damaged { sound, page_size, written_back } => Err(damaged(path, sound, page_size, written_back)),
    }
}

fn damaged(path: &Path, sound: u64, page_size: usize, written_back: bool) -> ServerError {
    let log = beside(path, "-wal");
    let round = if written_back { None } else { last_round(path, sound, page_size) };
    let (until, cut) = match round {
        Some(round) => (
            format!("it is sound up to the end of round {round}"),
            "; or, where there is no such copy, `dp-pvi-server cut-log` drops what comes after that round and keeps the damaged log beside it: \
             then `export` and a new run. Sites keep what they spent",
        ),
        None => ("no closed round can be read from it for certain".into(), ""),
    };
    ServerError::Corrupt(format!(
        "{}: bytes in the middle of the write-ahead log are not those that were written; {until}. More was committed after that, and is not dropped \
         silently. Put the whole folder back from a copy that was made since{cut}",
        log.display()
    ).into())
}

/// Drops what comes after the last sound commit of a damaged log. What was there is kept under other names.
///
/// # Errors
/// The log is not damaged, or the sound part is not enough; the disk.
pub(super) fn cut(path: &Path) -> Result<(u32, PathBuf)> {
    let log = beside(path, "-wal");
    let unavailable = |e: io::Error| ServerError::unavailable(&log, e);
    let Log::Damaged { sound, page_size, written_back } = look(path).map_err(unavailable)? else {
        return Err(ServerError::Usage(format!("{} is not damaged: nothing to cut", log.display()).into()));
    };
    let round = if written_back { None } else { last_round(path, sound, page_size) };
    let Some(round) = round else { return Err(damaged(path, sound, page_size, written_back)) };
    let kept = beside(path, "-wal.damaged");
    if kept.exists() {
        return Err(ServerError::unavailable(&kept, "is there from an earlier cut: move it away first"));
    }
    let fresh = beside(path, "-wal.new");
    let replace = || {
        copy_sound(path, &fresh, sound, page_size).inspect_err(|_| drop(fs::remove_file(&fresh)))?;
        fs::rename(&log, &kept)?;
        // An index of the longer log; SQLite makes it anew.
        match fs::remove_file(beside(path, "-shm")) {
            Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(e),
            _ => {}
        }
        fs::rename(&fresh, &log)?;
        sync_folder(&log)
    };
    replace().map_err(unavailable)?;
    Ok((round, kept))
}

/// The last closed round that the database and the sound part of its log hold, where they can be read together.
fn last_round(path: &Path, sound: u64, page_size: usize) -> Option<u32> {
    // Beside the state, which its owner alone may read.
    let folder = beside(path, ".looked-at");
    let read = || -> Option<u32> {
        create_private_directory(&folder).ok()?;
        let copy = folder.join("copy.db");
        fs::copy(path, &copy).ok()?;
        copy_sound(path, &beside(&copy, "-wal"), sound, page_size).ok()?;
        let connection = Connection::open_with_flags(&copy, OpenFlags::SQLITE_OPEN_READ_WRITE).ok()?;
        super::schema::check_whole(&connection, &copy).ok()?;
        let sql = "SELECT max(round) FROM records WHERE kind = 'round-closed' AND run = (SELECT max(key) FROM runs)";
        connection.query_row(sql, [], |row| row.get::<_, Option<u32>>(0)).optional().ok()??
    };
    let round = read();
    // Only a copy.
    let _ = fs::remove_dir_all(&folder);
    round
}

/// Copies the sound part of a log.
fn copy_sound(path: &Path, target: &Path, sound: u64, page_size: usize) -> io::Result<()> {
    use std::os::unix::fs::OpenOptionsExt;
    let length = HEADER as u64 + sound * (FRAME_HEADER + page_size) as u64;
    let mut file = File::options().write(true).create(true).truncate(true).mode(0o600).open(target)?;
    io::copy(&mut File::open(beside(path, "-wal"))?.take(length), &mut file)?;
    file.flush()?;
    file.sync_all()
}

/// Reads the log as it is now.
pub(super) fn look(path: &Path) -> io::Result<Log> {
    // Before the log: what it says is then in the log.
    let index = Index::read(&beside(path, "-shm"))?;
    let mut file = match File::open(beside(path, "-wal")) {
        Ok(file) => BufReader::with_capacity(1 << 18, file),
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(Log::Empty),
        Err(e) => return Err(e),
    };
    let mut header = [0; HEADER];
    if fill(&mut file, &mut header)? < HEADER {
        return Ok(Log::Empty);
    }
    let (order, page_size) = (Order::of(word(&header, 0)), word(&header, 8) as usize);
    let salts = [word(&header, 16), word(&header, 20)];
    let stored = [word(&header, 24), word(&header, 28)];
    let fits = (512..=65536).contains(&page_size) && page_size.is_power_of_two();
    if word(&header, 0) & !1 != MAGIC || !fits || order.sum([0, 0], &header[..24]) != stored {
        // A header that was cut off has nothing to do with the frames after it; in a changed one a salt, at least, is theirs.
        let mut first = [0; FRAME_HEADER];
        let theirs = fill(&mut file, &mut first)? == FRAME_HEADER && (word(&first, 8) == salts[0] || word(&first, 12) == salts[1]);
        let damaged = theirs && salts != [0, 0];
        let written_back = index.is_some_and(|index| index.written_back > 0);
        return Ok(if damaged { Log::Damaged { sound: 0, page_size: 4096, written_back } } else { Log::Empty });
    }
    let mut scan = Scan { order, salts, before: [stored; 2], intact: true, frames: 0, sound: 0, cut_off: 0, open_commit: false };
    let mut frame = vec![0; FRAME_HEADER + page_size];
    let mut more_committed = false;
    while !more_committed && fill(&mut file, &mut frame)? == frame.len() {
        more_committed = scan.frame(&frame);
    }
    let index = index.filter(|index| index.salts == header[16..24]);
    let damaged = more_committed || index.is_some_and(|index| u64::from(index.committed) > scan.sound);
    Ok(match (damaged, scan.sound) {
        (true, sound) => {
            let written_back = index.is_some_and(|index| u64::from(index.written_back) > sound);
            Log::Damaged { sound, page_size, written_back }
        }
        (false, 0) if scan.cut_off == 0 => Log::Empty,
        (false, _) => Log::Whole { cut_off: scan.cut_off },
    })
}

/// A log that is being read.
struct Scan {
    order: Order,
    salts: [u32; 2],
    /// Checksum of the frame before, as it is there and as it was computed: they differ in a damaged frame.
    before: [[u32; 2]; 2],
    /// No damaged frame so far.
    intact: bool,
    frames: u64,
    /// Frames up to the last commit before the first damaged one.
    sound: u64,
    /// Written frames right after that.
    cut_off: u64,
    /// The frame before ends a transaction that is not in `sound`.
    open_commit: bool,
}

impl Scan {
    /// The next frame; says whether it shows that more was committed than what is sound.
    fn frame(&mut self, frame: &[u8]) -> bool {
        self.frames += 1;
        let (head, page) = frame.split_at(FRAME_HEADER);
        let [salt, other] = [word(head, 8) == self.salts[0], word(head, 12) == self.salts[1]];
        let stored = [word(head, 16), word(head, 20)];
        let computed = self.before.map(|before| self.order.sum(self.order.sum(before, &head[..8]), page));
        let ours = salt && other && word(head, 0) > 0;
        let follows = ours && computed.contains(&stored);
        let commits = word(head, 4) > 0;
        if self.open_commit && follows {
            return true;
        }
        self.intact &= ours && computed[0] == stored;
        if self.intact && commits {
            (self.sound, self.cut_off) = (self.frames, 0);
        } else if salt && other && self.frames == self.sound + self.cut_off + 1 && page[4..].iter().any(|byte| *byte != 0) {
            // Pages of zeroes are the room that the store makes for the log.
            self.cut_off += 1;
        }
        // One changed byte leaves one of the two salts.
        self.open_commit = !self.intact && commits && (salt || other);
        self.before = [stored, computed[0]];
        false
    }
}

/// What the index of the log says.
#[derive(Clone, Copy)]
struct Index {
    salts: [u8; 8],
    /// Committed frames.
    committed: u32,
    /// Of them, frames whose pages are in the file.
    written_back: u32,
}

impl Index {
    const LENGTH: usize = 100;

    /// `None` where there is no index, or one that was cut off.
    fn read(path: &Path) -> io::Result<Option<Self>> {
        let mut bytes = [0; Self::LENGTH];
        let mut file = match File::open(path) {
            Ok(file) => file,
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(e) => return Err(e),
        };
        if fill(&mut file, &mut bytes)? < Self::LENGTH {
            return Ok(None);
        }
        let native = |at: usize| u32::from_ne_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]);
        let order = if cfg!(target_endian = "big") { Order::HighFirst } else { Order::LowFirst };
        let whole = bytes[..48] == bytes[48..96] && order.sum([0, 0], &bytes[..40]) == [native(40), native(44)];
        let mut salts = [0; 8];
        salts.copy_from_slice(&bytes[32..40]);
        let index = Self { salts, committed: native(16), written_back: native(96) };
        Ok((whole && native(0) == INDEX_VERSION && bytes[12] == 1).then_some(index))
    }
}

/// How a checksum reads words.
#[derive(Clone, Copy)]
enum Order {
    LowFirst,
    HighFirst,
}

impl Order {
    fn of(magic: u32) -> Self {
        if magic & 1 == 0 { Self::LowFirst } else { Self::HighFirst }
    }

    /// SQLite's checksum of whole pairs of words, continued.
    fn sum(self, start: [u32; 2], bytes: &[u8]) -> [u32; 2] {
        let word = |bytes: [u8; 4]| match self {
            Self::LowFirst => u32::from_le_bytes(bytes),
            Self::HighFirst => u32::from_be_bytes(bytes),
        };
        let [mut a, mut b] = start;
        for [first, second] in bytes.as_chunks::<4>().0.as_chunks::<2>().0 {
            a = a.wrapping_add(word(*first)).wrapping_add(b);
            b = b.wrapping_add(word(*second)).wrapping_add(a);
        }
        [a, b]
    }
}

/// A number of the log's headers.
fn word(bytes: &[u8], at: usize) -> u32 {
    u32::from_be_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}

/// Reads until the buffer is full or the file ends.
fn fill(file: &mut impl Read, buffer: &mut [u8]) -> io::Result<usize> {
    let mut filled = 0;
    while filled < buffer.len() {
        match file.read(&mut buffer[filled..]) {
            Ok(0) => break,
            Ok(read) => filled += read,
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(e) => return Err(e),
        }
    }
    Ok(filled)
}

fn beside(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    name.into()
}

#[cfg(test)]
mod tests;
