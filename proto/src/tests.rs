#![allow(clippy::unwrap_used)]

use std::sync::Arc;

use dp_pvi_names::{ClientId, Hash, RunId};
use dp_pvi_protocol::message::{
    Catchup, Next, RoundHeader, RoundOutcome, RoundStart, RunEnd, RunOutcome, Signed, TranscriptEntry, Welcome,
};
use dp_pvi_protocol::transport::{Rejection, TransportError};
use dp_pvi_protocol::witness::{Greeting, SignedHead};
use prost::Message;

use crate::client::{Answer, NextReader, WelcomeReader, transport_error};
use crate::server::{EntryEncoder, next_frames, rejection, unavailable, welcome_frames};
use crate::{CHUNK_BYTES, FrameError, MESSAGE_BYTES, WELCOME_BYTES, WITNESS_BYTES, v1};
use dp_pvi_programs::identity::generate_identity;

fn header(round: u32) -> Signed<RoundHeader> {
    let header = RoundHeader {
        run: RunId { task: Hash([7; 32]), number: 1 },
        round,
        turn: None,
        visit: round,
        lambda: Hash([1; 32]),
        previous: Hash([2; 32]),
        deadline_seconds: 60,
        reserved: Vec::new(),
    };
    Signed::seal(&header, &generate_identity().unwrap())
}

fn entries(count: u32) -> Vec<Arc<TranscriptEntry>> {
    let entry = |round| TranscriptEntry {
        header: header(round),
        included: ["a", "b"].map(|id| (ClientId::new(id).unwrap(), Hash([3; 32]))).into(),
        outcome: RoundOutcome::Deadline,
        lambda: Hash([4; 32]),
        previous: Hash([5; 32]),
        aggregation: None,
    };
    (0..count).map(entry).map(Arc::new).collect()
}

fn lambda(coordinates: usize) -> Arc<[f64]> {
    (0..coordinates).map(|i| (i as f64).sin() * 1e3).collect()
}

/// Frames as they travel: encoded and decoded.
fn travel(next: Next) -> Vec<v1::WorkFrame> {
    next_frames(next, Arc::default())
        .map(|frame| {
            let bytes = frame.encode_to_vec();
            assert!(bytes.len() <= CHUNK_BYTES + 64 && bytes.len() < MESSAGE_BYTES);
            v1::WorkFrame::decode(bytes.as_slice()).unwrap()
        })
        .collect()
}

fn read(frames: Vec<v1::WorkFrame>, limit: usize) -> Result<Next, FrameError> {
    let mut reader = NextReader::new(limit);
    let last = frames.len().wrapping_sub(1);
    for (i, frame) in frames.into_iter().enumerate() {
        // A reader must know where an answer ends: the stream goes on after it.
        if reader.frame(frame)? == Answer::Complete && i != last {
            return Err(FrameError::Order);
        }
    }
    reader.finish()
}

#[test]
fn answers_arrive_as_they_were() {
    for coordinates in [0, 1, 200, CHUNK_BYTES / 8, CHUNK_BYTES / 8 + 1, 2_000_000] {
        let round =
            Next::Round(Box::new(RoundStart { header: header(3), lambda: lambda(coordinates), entries: entries(3), charter: None }));
        assert_eq!(read(travel(round.clone()), coordinates).unwrap(), round);
    }
    for outcome in [
        RunOutcome::Complete,
        RunOutcome::QuorumLost,
        RunOutcome::AggregationLost,
        RunOutcome::Stopped,
        RunOutcome::Refused,
        RunOutcome::Converged,
    ] {
        let end = Next::Finished(Box::new(RunEnd { outcome, lambda: lambda(2), entries: entries(1), header: header(9), charter: None }));
        assert_eq!(read(travel(end.clone()), 2).unwrap(), end);
    }
    assert_eq!(read(travel(Next::Wait), 0).unwrap(), Next::Wait);
}

#[test]
fn entries_keep_their_hash() {
    let sent = entries(2);
    let frames = travel(Next::Round(Box::new(RoundStart { header: header(2), lambda: lambda(1), entries: sent.clone(), charter: None })));
    let Next::Round(round) = read(frames, 1).unwrap() else { panic!("a round was sent") };
    let hashes = |entries: &[Arc<TranscriptEntry>]| entries.iter().map(|entry| entry.hash()).collect::<Vec<_>>();
    assert_eq!(hashes(&round.entries), hashes(&sent));
}

#[test]
fn clients_that_share_an_encoder_get_their_own_entries() {
    let (encoder, entries) = (Arc::new(EntryEncoder::default()), entries(4));
    let open = header(4);
    let answer = |seen: usize| {
        let entries = entries[seen..].to_vec();
        Next::Round(Box::new(RoundStart { header: open.clone(), lambda: lambda(3), entries, charter: None }))
    };
    // Most clients lack the last entry alone; some lack others too, or have all.
    for seen in [3, 3, 0, 3, 2, 4, 3, 1, 1] {
        let frames = next_frames(answer(seen), Arc::clone(&encoder)).collect();
        assert_eq!(read(frames, 3).unwrap(), answer(seen));
    }
}

#[test]
fn a_long_welcome_arrives_in_pieces() {
    for length in [0, 1, CHUNK_BYTES, 3 * CHUNK_BYTES + 5] {
        let sent = Signed::<Welcome>::from_parts((0..length).map(|i| i as u8).collect(), vec![7; 64]);
        let sent = Greeting { welcome: sent, signed: None };
        let frames: Vec<_> = welcome_frames(sent.clone()).collect();
        assert!(frames.iter().all(|frame| frame.encoded_len() <= CHUNK_BYTES + 64));
        let read = |frames: Vec<v1::SignedFrame>| {
            let mut reader = WelcomeReader::default();
            frames.into_iter().try_for_each(|frame| reader.frame(frame))?;
            reader.finish()
        };
        assert_eq!(read(frames.clone()).unwrap(), sent);
        assert!(read(frames[1..].to_vec()).is_err(), "without a signature");
        assert!(read([frames.clone(), frames].concat()).is_err(), "twice");
    }
    let mut reader = WelcomeReader::default();
    let frame = |frame| v1::SignedFrame { frame: Some(frame) };
    reader.frame(frame(v1::signed_frame::Frame::Signature(vec![7; 64].into()))).unwrap();
    let chunk = frame(v1::signed_frame::Frame::Body(vec![0; CHUNK_BYTES].into()));
    let taken = (0..1000).take_while(|_| reader.frame(chunk.clone()).is_ok()).count();
    assert_eq!(taken, WELCOME_BYTES / CHUNK_BYTES, "a server cannot fill a client's memory");
}

#[test]
fn broken_answers_are_refused() {
    let good =
        || travel(Next::Round(Box::new(RoundStart { header: header(1), lambda: lambda(200_000), entries: entries(2), charter: None })));
    // Longer than the family allows.
    assert_eq!(read(good(), 199_999).unwrap_err(), FrameError::TooLong);
    // Every single frame left out or sent twice.
    for at in 0..good().len() {
        let mut missing = good();
        missing.remove(at);
        assert!(read(missing, 200_000).is_err(), "without frame {at}");
        let mut doubled = good();
        doubled.insert(at, doubled[at].clone());
        assert!(read(doubled, 200_000).is_err(), "frame {at} twice");
    }
    // Half a word.
    let mut cut = good();
    let last = cut.len() - 1;
    if let Some(v1::work_frame::Frame::Lambda(bytes)) = &mut cut[last].frame {
        bytes.truncate(bytes.len() - 4);
    }
    assert!(read(cut, 200_000).is_err());
    // An entry whose hash has another length, or whose client has no possible name.
    type Change = fn(&mut v1::TranscriptEntry);
    let changes: [Change; 4] =
        [|e| e.lambda.truncate(31), |e| e.included[0].client = "A B".into(), |e| e.outcome = 77, |e| e.header = None];
    for change in changes {
        let mut frames = good();
        let Some(v1::work_frame::Frame::Entry(bytes)) = &mut frames[1].frame else { panic!("entries follow the head") };
        let mut entry = v1::TranscriptEntry::decode(bytes.clone()).unwrap();
        change(&mut entry);
        *bytes = entry.encode_to_vec().into();
        assert!(read(frames, 200_000).is_err());
    }
    // Bytes that are no entry.
    let mut frames = good();
    frames[1].frame = Some(v1::work_frame::Frame::Entry(vec![0xff; 9].into()));
    assert_eq!(read(frames, 200_000).unwrap_err(), FrameError::Wrong("transcript entry"));
    assert!(read(Vec::new(), 0).is_err());
    assert!(read(vec![v1::WorkFrame { frame: None }], 0).is_err());
}

#[test]
fn every_rejection_survives_the_status() {
    for kind in
        [Rejection::Authentication, Rejection::Version, Rejection::Message, Rejection::Copy, Rejection::HelloFirst, Rejection::Other]
    {
        let error = transport_error(&rejection(kind, "why"));
        assert!(matches!(error, TransportError::Rejected { kind: read, ref message } if read == kind && message == "why"), "{kind:?}");
    }
    assert!(matches!(transport_error(&unavailable("later")), TransportError::Unreachable(_)));
    // Statuses that the framework or the network makes.
    assert!(matches!(transport_error(&tonic::Status::unavailable("gone")), TransportError::Unreachable(_)));
    assert!(matches!(transport_error(&tonic::Status::resource_exhausted("busy")), TransportError::Unreachable(_)));
    let unknown = transport_error(&tonic::Status::unimplemented("what"));
    assert!(matches!(unknown, TransportError::Rejected { kind: Rejection::Version, .. }));
}

fn entry_frame(sites: usize) -> v1::WorkFrame {
    let included = (0..sites).map(|site| v1::Included { client: format!("site-{site}"), update: vec![3; 32].into() }).collect();
    let entry = v1::TranscriptEntry {
        header: Some(v1::SignedMessage { body: vec![1; 300].into(), signature: vec![2; 64].into() }),
        included,
        outcome: v1::RoundOutcome::Complete.into(),
        lambda: vec![4; 32].into(),
        previous: vec![5; 32].into(),
        aggregation: None,
    };
    v1::WorkFrame { frame: Some(v1::work_frame::Frame::Entry(entry.encode_to_vec().into())) }
}

fn head_frame(kind: v1::next_head::Kind, entries: u32) -> v1::WorkFrame {
    let header = Some(v1::SignedMessage { body: vec![1; 300].into(), signature: vec![2; 64].into() });
    let outcome = v1::RunOutcome::Complete.into();
    let head = v1::NextHead { kind: kind.into(), header, outcome, coordinates: 0, entries, charter: None };
    v1::WorkFrame { frame: Some(v1::work_frame::Frame::Head(head)) }
}

#[test]
fn a_coordinator_cannot_fill_a_client_s_memory_with_entries() {
    use v1::next_head::Kind;
    for kind in [Kind::Round, Kind::Finished, Kind::Entries] {
        for announced in [257, 1 << 20, u32::MAX] {
            assert_eq!(NextReader::new(4).frame(head_frame(kind, announced)).unwrap_err(), FrameError::TooLong, "{announced}");
        }
        // As many as may be announced, each as long as a message may be: what is held ends at the bound.
        let mut reader = NextReader::new(4);
        reader.frame(head_frame(kind, 256)).unwrap();
        let entry = entry_frame(10_000);
        let length = entry.encoded_len();
        let taken = (0..256).take_while(|_| reader.frame(entry.clone()).is_ok()).count();
        assert!(taken * length <= dp_pvi_protocol::bounds::ENTRIES_BYTES + MESSAGE_BYTES, "{taken} of {length} bytes");
    }
    let mut reader = NextReader::new(4);
    reader.frame(head_frame(Kind::Entries, 1)).unwrap();
    assert!(matches!(reader.frame(entry_frame(10_001)), Err(FrameError::Bounds(_))), "more sites than a run has");
    assert!(NextReader::new(4).frame(head_frame(Kind::Entries, 0)).is_err(), "an answer that says nothing");
}

#[test]
fn entries_alone_arrive_as_they_were() {
    let some = Next::Entries(Box::new(Catchup { entries: entries(200), charter: None }));
    assert_eq!(read(travel(some.clone()), 0).unwrap(), some);
}

#[test]
fn the_site_s_own_word_travels_beside_a_welcome() {
    let welcome = Signed::<Welcome>::from_parts(vec![9; CHUNK_BYTES + 7], vec![7; 64]);
    let (hello, update) = (Signed::from_parts(vec![1; 200], vec![2; 64]), Signed::from_parts(vec![3; 400], vec![4; 64]));
    for signed in [SignedHead::Hello(hello), SignedHead::Update(update)] {
        let sent = Greeting { welcome: welcome.clone(), signed: Some(signed) };
        let frames: Vec<_> = welcome_frames(sent.clone()).collect();
        let mut reader = WelcomeReader::default();
        frames.iter().for_each(|frame| reader.frame(frame.clone()).unwrap());
        assert!(reader.frame(frames[2].clone()).is_err() && reader.frame(frames[1].clone()).is_err(), "nothing comes after it");
        assert_eq!(reader.finish().unwrap(), sent);
    }
    let long = SignedHead::Hello(Signed::from_parts(vec![1; WITNESS_BYTES + 1], vec![2; 64]));
    let mut reader = WelcomeReader::default();
    let refused = welcome_frames(Greeting { welcome, signed: Some(long) }).find_map(|frame| reader.frame(frame).err());
    assert_eq!(refused, Some(FrameError::TooLong));
}
