//! What a site keeps of a run for itself: the states that it was shown, who was in which round, and the sums that it sent.
//!
//! The ledger forgets a payload once its round is settled. Afterwards a site can no longer tell its own part of a result from that of the others, and
//! its personal posterior would have to do with less ([`crate::commands::personalise`]). So a connection writes down what passes over it, where the
//! task's sums tell the sites apart. All of it is public or was released: the server has the same. Nothing is written before the other side of
//! it is certain: a state when the site has accepted it, a sum when it is committed and about to be sent.
//!
//! The file is a convenience. Where it cannot be written the run goes on and the log says so; a damaged end is cut off; what is missing is a
//! round less.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::{ErrorKind, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use dp_pvi_inference::personal::others::{Released, are_told_by_sums};
use dp_pvi_names::{ClientId, Hash, Payload, PayloadKind, RunId};
use dp_pvi_posterior::methods::noise_aware::{ClosedRound, Contribution, History, OwnNoise};
use dp_pvi_posterior::task::ResolvedTask;
use dp_pvi_privacy::ledger::Attachment;
use dp_pvi_programs::problem::Problem;
use dp_pvi_protocol::message::{
    Hello, MetricsReport, Next, Receipt, Refusal, Signed, TranscriptEntry, Update, Welcome, payload_hash, vector_hash,
};
use dp_pvi_protocol::transport::{Transport, TransportError};
use dp_pvi_protocol::witness::Greeting;
use serde::{Deserialize, Serialize};
use tracing::warn;

use crate::error::{ClientError, Result};

/// Longest state that is kept, in numbers: 8 MB a round.
const LONGEST_STATE: u64 = 1 << 20;

/// First bytes of the file.
const MAGIC: &[u8] = b"dp-pvi-client history 1\n";

/// A connection that keeps what passes over it.
pub struct Recording<T> {
    inner: T,
    folder: PathBuf,
    data: String,
    /// Not verified yet.
    welcome: Option<Signed<Welcome>>,
    file: Option<Keeper>,
    /// The last answer, which the site has not accepted yet.
    answer: Vec<Frame>,
}

impl<T> Recording<T> {
    /// Around a connection; files go into the state folder `folder`, under the name of the data set.
    pub fn new(inner: T, folder: &Path, data: &str) -> Self {
        Self { inner, folder: folder.to_owned(), data: data.to_owned(), welcome: None, file: None, answer: Vec::new() }
    }

    /// The site has accepted the last answer: it goes on.
    fn accepted(&mut self) {
        let frames = std::mem::take(&mut self.answer);
        self.keep(frames);
    }

    fn keep(&mut self, frames: Vec<Frame>) {
        let Some(file) = self.file.as_mut().filter(|_| !frames.is_empty()) else { return };
        if let Err(error) = file.append(frames) {
            warn!(file = %file.path.display(), %error, "the run's history cannot be kept: a personal posterior of it will know less");
            self.file = None;
        }
    }
}

impl<T: Transport> Transport for Recording<T> {
    async fn hello(&mut self, hello: &Signed<Hello>) -> std::result::Result<Greeting, TransportError> {
        let greeting = self.inner.hello(hello).await?;
        self.answer.clear();
        self.welcome = Some(greeting.welcome.clone());
        Ok(greeting)
    }

    fn admit(&mut self, numbers: u64) {
        // The welcome was verified, and its task is one of this site.
        if let Some(welcome) = self.welcome.take().and_then(|welcome| welcome.peek().ok())
            && ResolvedTask::from_bytes(&welcome.task).is_ok_and(|task| are_told_by_sums(&task) && task.state_len() <= LONGEST_STATE)
        {
            let path = place(&self.folder, &self.data, &welcome.run);
            match Keeper::open(&path) {
                Ok(file) => self.file = Some(file),
                Err(error) => {
                    warn!(file = %path.display(), %error, "the run's history cannot be kept: a personal posterior of it will know less");
                    self.file = None;
                }
            }
        }
        self.inner.admit(numbers);
    }

    async fn next(&mut self, seen: u32) -> std::result::Result<Next, TransportError> {
        self.accepted();
        let next = self.inner.next(seen).await?;
        if self.file.is_some() {
            self.answer = frames(&next);
        }
        Ok(next)
    }

    async fn submit(&mut self, update: &Attachment) -> std::result::Result<Signed<Receipt>, TransportError> {
        self.accepted();
        // What is under a mask carries no information, here neither.
        if !matches!(update.payload().kind(), PayloadKind::Masked { .. })
            && let Some(round) =
                Signed::<Update>::from_bytes(update.message()).ok().and_then(|update| Some(update.peek().ok()?.release.round))
        {
            self.keep(vec![Frame::Sent { round, kind: update.payload().kind(), bytes: update.payload().to_bytes() }]);
        }
        self.inner.submit(update).await
    }

    async fn consent(&mut self, signature: &[u8]) -> std::result::Result<(), TransportError> {
        self.inner.consent(signature).await
    }

    async fn refuse(&mut self, refusal: &Signed<Refusal>) -> std::result::Result<(), TransportError> {
        self.inner.refuse(refusal).await
    }

    async fn report(&mut self, report: &Signed<MetricsReport>) -> std::result::Result<(), TransportError> {
        self.inner.report(report).await
    }
}

/// What is written, one by one.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
enum Frame {
    /// A round was closed: the hash of the state after it is `lambda`.
    Closed { round: u32, visit: u32, included: Vec<ClientId>, lambda: Hash },
    /// The state before a round; after the last one, that at the end.
    State { round: u32, values: Vec<f64> },
    /// What this site sent in a round.
    Sent { round: u32, kind: PayloadKind, bytes: Vec<u8> },
}

impl Frame {
    fn key(&self) -> (u8, u32) {
        match self {
            Self::Closed { round, .. } => (0, *round),
            Self::State { round, .. } => (1, *round),
            Self::Sent { round, .. } => (2, *round),
        }
    }
}

fn frames(next: &Next) -> Vec<Frame> {
    let closed = |entries: &[Arc<TranscriptEntry>]| -> Vec<Frame> {
        let frame = |entry: &Arc<TranscriptEntry>| {
            let header = entry.header.peek().ok()?;
            let included = entry.included.iter().map(|(client, _)| client.clone()).collect();
            Some(Frame::Closed { round: header.round, visit: header.visit, included, lambda: entry.lambda })
        };
        entries.iter().filter_map(frame).collect()
    };
    let (mut frames, header, lambda) = match next {
        Next::Wait | Next::Charter(_) => return Vec::new(),
        Next::Entries(some) => return closed(&some.entries),
        Next::Round(start) => (closed(&start.entries), &start.header, &start.lambda),
        Next::Finished(end) => (closed(&end.entries), &end.header, &end.lambda),
    };
    frames.extend(header.peek().ok().map(|header| Frame::State { round: header.round, values: lambda.to_vec() }));
    frames
}

/// Where the history of a run is.
fn place(folder: &Path, data: &str, run: &RunId) -> PathBuf {
    folder.join(format!("history-{data}-{}-{}", &run.task.to_string()[..16], run.number))
}

/// Removes what was kept of a run that was given up; nothing where nothing was kept. Returns whether something was.
///
/// # Errors
/// The file is there and cannot be removed.
pub fn remove(folder: &Path, data: &str, run: &RunId) -> Result<bool> {
    let path = place(folder, data, run);
    match fs::remove_file(&path) {
        Ok(()) => Ok(true),
        Err(e) if e.kind() == ErrorKind::NotFound => Ok(false),
        Err(e) => Err(ClientError::Unavailable(Problem::said(format!("{}: {e}", path.display()), e))),
    }
}

/// A file that is written.
struct Keeper {
    path: PathBuf,
    file: fs::File,
    have: BTreeSet<(u8, u32)>,
}

impl Keeper {
    /// Opens or makes the file, behind what can be read of it.
    fn open(path: &Path) -> std::io::Result<Self> {
        if let Some(folder) = path.parent() {
            fs::DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
        }
        let mut file = fs::OpenOptions::new().read(true).write(true).create(true).truncate(false).mode(0o600).open(path)?;
        let mut bytes = Vec::new();
        file.read_to_end(&mut bytes)?;
        let (frames, good) = parse(&bytes);
        file.set_len(good as u64)?;
        file.seek(SeekFrom::End(0))?;
        if good == 0 {
            file.write_all(MAGIC)?;
        }
        Ok(Self { path: path.to_owned(), file, have: frames.iter().map(Frame::key).collect() })
    }

    /// Adds what is not there yet.
    fn append(&mut self, frames: Vec<Frame>) -> std::io::Result<()> {
        for frame in frames {
            if !self.have.insert(frame.key()) {
                continue;
            }
            let body = postcard::to_stdvec(&frame).map_err(std::io::Error::other)?;
            let length = u32::try_from(body.len()).map_err(std::io::Error::other)?;
            let written = [&length.to_le_bytes()[..], &checksum(&body).0, &body].concat();
            self.file.write_all(&written)?;
        }
        Ok(())
    }
}

fn checksum(body: &[u8]) -> Hash {
    Hash::of("dp-pvi-client history frame v1", &[body])
}

/// The frames of a file, and where the last one ends; nothing of another file.
fn parse(bytes: &[u8]) -> (Vec<Frame>, usize) {
    let Some(mut rest) = bytes.strip_prefix(MAGIC) else { return (Vec::new(), 0) };
    let mut frames = Vec::new();
    while let Some((frame, after)) = first(rest) {
        frames.push(frame);
        rest = after;
    }
    (frames, bytes.len() - rest.len())
}

fn first(bytes: &[u8]) -> Option<(Frame, &[u8])> {
    let (length, rest) = bytes.split_first_chunk::<4>()?;
    let (sum, rest) = rest.split_first_chunk::<32>()?;
    let (body, rest) = rest.split_at_checked(u32::from_le_bytes(*length) as usize)?;
    (checksum(body).0 == *sum).then(|| postcard::from_bytes(body).ok()).flatten().map(|frame| (frame, rest))
}

/// What this site kept of a run, checked: states against the hashes of the transcript, sums by `message`, which gives the update that the
/// ledger holds for a round. Nothing, where nothing was kept.
///
/// # Errors
/// The file is there and cannot be read, or the ledger cannot.
pub fn released(
    folder: &Path,
    data: &str,
    run: &RunId,
    client: &ClientId,
    mut message: impl FnMut(u32) -> Result<Option<Vec<u8>>>,
) -> Result<Released> {
    let path = place(folder, data, run);
    let bytes = match fs::read(&path) {
        Err(e) if e.kind() == ErrorKind::NotFound => return Ok(Released::Unknown),
        bytes => bytes.map_err(|e| ClientError::Unavailable(Problem::said(format!("{}: {e}", path.display()), e)))?,
    };
    let (mut closed, mut states, mut sent) = (BTreeMap::new(), BTreeMap::new(), BTreeMap::new());
    for frame in parse(&bytes).0 {
        match frame {
            Frame::Closed { round, visit, included, lambda } => drop(closed.insert(round, (visit, included, lambda))),
            Frame::State { round, values } => drop(states.insert(round, values)),
            Frame::Sent { round, kind, bytes } => drop(sent.insert(round, (kind, bytes))),
        }
    }
    let names: BTreeSet<&ClientId> = closed.values().flat_map(|(_, included, _)| included).chain([client]).collect();
    let position = |name: &ClientId| names.iter().position(|known| *known == name);
    #[allow(clippy::cast_precision_loss, reason = "a number of sites")]
    let shares = vec![1.0 / names.len() as f64; names.len()];
    let mut history = History { shares, rounds: Vec::new() };
    let mut sums = Vec::new();
    for (number, (&round, (visit, included, lambda))) in (0_u32..).zip(&closed) {
        if round != number {
            // Rounds are written in order: what comes after a gap belongs to nothing.
            break;
        }
        let state = states.get(&(round + 1)).filter(|state| vector_hash(state) == *lambda).cloned().unwrap_or_default();
        let included = included.iter().filter_map(position).collect();
        history.rounds.push(ClosedRound { visit: *visit, included, state, correction: None });
        sums.push(match sent.remove(&round) {
            Some((kind, bytes)) => message(round)?.and_then(|message| own(&message, kind, &bytes)),
            None => None,
        });
    }
    let site = position(client).unwrap_or(names.len());
    Ok(if history.rounds.is_empty() {
        Released::Unknown
    } else {
        Released::Sums(history, Contribution { site, sums, noise: OwnNoise::Goes })
    })
}

/// The numbers of a payload, if it is the one of the update.
fn own(message: &[u8], kind: PayloadKind, bytes: &[u8]) -> Option<Vec<f64>> {
    let update = Signed::<Update>::from_bytes(message).ok()?.peek().ok()?;
    if update.payload != payload_hash(kind, bytes) {
        return None;
    }
    match Payload::from_bytes(kind, bytes)? {
        Payload::Lattice(vector) => Some(vector.to_f64()),
        Payload::Values(values) => Some(values),
        Payload::Masked(_) => None,
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn state(round: u32) -> Frame {
        Frame::State { round, values: vec![f64::from(round); 3] }
    }

    /// A cut file is read up to its last whole frame and goes on from there; what is known is not written twice.
    #[test]
    fn a_damaged_end_is_cut_off() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("state/history");
        Keeper::open(&path).unwrap().append(vec![state(0), state(1)]).unwrap();
        let whole = fs::read(&path).unwrap();
        for cut in 0..whole.len() {
            fs::write(&path, &whole[..cut]).unwrap();
            let known = parse(&whole[..cut]).0.len();
            let mut file = Keeper::open(&path).unwrap();
            file.append(vec![state(0), state(1), state(2), state(2)]).unwrap();
            let (frames, end) = parse(&fs::read(&path).unwrap());
            assert_eq!((frames.len(), end), (3, fs::read(&path).unwrap().len()), "cut at {cut}, {known} known");
        }
        let mut spoiled = whole.clone();
        spoiled[whole.len() - 1] ^= 1;
        assert_eq!(parse(&spoiled).0, [state(0)]);
        assert_eq!(parse(b"something else"), (Vec::new(), 0));
        use std::os::unix::fs::PermissionsExt;
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    }

    /// States that the transcript does not name, and sums that the ledger did not commit, are not there.
    #[test]
    fn what_does_not_fit_transcript_and_ledger_is_left_out() {
        let folder = tempfile::tempdir().unwrap();
        let run = RunId { task: Hash([3; 32]), number: 1 };
        let (own, other) = (ClientId::new("b").unwrap(), ClientId::new("a").unwrap());
        assert_eq!(released(folder.path(), "d", &run, &own, |_| Ok(None)).unwrap(), Released::Unknown);
        let closed = |round: u32, values: &[f64]| Frame::Closed {
            round,
            visit: round,
            included: vec![other.clone(), own.clone()],
            lambda: vector_hash(values),
        };
        let sent = Frame::Sent { round: 0, kind: PayloadKind::Values, bytes: vec![0; 8] };
        let frames = vec![state(0), closed(0, &[1.0; 3]), state(1), sent, closed(1, &[7.0; 3]), state(2), closed(3, &[4.0; 3])];
        Keeper::open(&place(folder.path(), "d", &run)).unwrap().append(frames).unwrap();
        let Released::Sums(history, part) = released(folder.path(), "d", &run, &own, |_| Ok(Some(vec![1, 2, 3]))).unwrap() else {
            panic!("it was kept");
        };
        assert_eq!(history.rounds.iter().map(|round| round.state.len()).collect::<Vec<_>>(), [3, 0], "the second is another one");
        assert_eq!(history.rounds[0].included, [0, 1]);
        assert_eq!((part.site, part.sums), (1, vec![None, None]), "the ledger has another update");
    }
}
