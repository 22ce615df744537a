//! Frames of the wire, signed bodies, and what goes between server and summer.

use std::fmt::Debug;

use bytes::Bytes;
use dp_pvi_accounting::DpEvent;
use dp_pvi_accounting::{Neighbours, Phase, Plan, Sampling};
use dp_pvi_names::{ClientId, Hash, PayloadKind, ReleaseId, RunId};
use dp_pvi_privacy::ledger::LedgerHead;
use dp_pvi_proto::client::NextReader;
use dp_pvi_proto::summer::{ANSWER_BYTES, AnswerReader, QuestionReader};
use dp_pvi_proto::{client, server, v1};
use dp_pvi_protocol::aggregation::host::AggregationRecord;
use dp_pvi_protocol::aggregation::{SummerReply, SummerRequest};
use dp_pvi_protocol::coordinator::Record;
use dp_pvi_protocol::message::{
    Body, HeldOutMetrics, Hello, Intent, MetricsReport, Receipt, ReceiptOutcome, Refusal, RefusalReason, Role, RoundHeader, Signed,
    TranscriptEntry, Update, Welcome,
};
use dp_pvi_secagg::charter::SignedCharter;
use ed25519_dalek::SigningKey;
use prost::Message;

use super::Input;

fn key() -> SigningKey {
    SigningKey::from_bytes(&[7; 32])
}

fn release() -> ReleaseId {
    let run = RunId { task: Hash([1; 32]), number: 1 };
    ReleaseId { run, client: ClientId::new("hospital-1").expect("a name"), round: 3 }
}

fn hello() -> Signed<Hello> {
    let hello = Hello {
        versions: vec![1],
        federation: "fuzz".into(),
        client: release().client,
        role: Role::Site,
        intent: Intent::Join,
        tls_key: Hash([2; 32]),
        task: None,
        nominal_units: Some(500),
        ledger: None,
        ledger_head: Some(LedgerHead { seq: 4, hash: Hash([3; 32]) }),
        rows: Some(dp_pvi_protocol::origin::Origin::default()),
        software: "fuzz".into(),
    };
    Signed::seal(&hello, &key())
}

fn header() -> Signed<RoundHeader> {
    let header = RoundHeader {
        run: release().run,
        round: 3,
        turn: None,
        visit: 3,
        lambda: Hash([4; 32]),
        previous: Hash([5; 32]),
        deadline_seconds: 60,
        reserved: Vec::new(),
    };
    Signed::seal(&header, &key())
}

fn update() -> Signed<Update> {
    let update = Update {
        release: release(),
        header: Hash([6; 32]),
        kind: PayloadKind::Lattice { exponent: -20 },
        coordinates: 4,
        payload: Hash([7; 32]),
        ledger_head: LedgerHead { seq: 5, hash: Hash([8; 32]) },
        upload: None,
    };
    Signed::seal(&update, &key())
}

fn receipt() -> Signed<Receipt> {
    let receipt =
        Receipt { release: release(), update: Hash([9; 32]), outcome: ReceiptOutcome::Stored, witnessed: None, reserved: Vec::new() };
    Signed::seal(&receipt, &key())
}

fn refusal() -> Signed<Refusal> {
    Signed::seal(&Refusal { release: release(), header: Hash([6; 32]), reason: RefusalReason::Budget }, &key())
}

/// The first byte says what the rest is.
fn marked(mark: u8, bytes: impl AsRef<[u8]>) -> Vec<u8> {
    [&[mark], bytes.as_ref()].concat()
}

/// Frames in the form of the wire, each after the number of its kind; several follow each other with their lengths.
pub(super) fn frames() -> Vec<Vec<u8>> {
    let several = |mark: u8, frames: Vec<Vec<u8>>| {
        let parts = frames.into_iter().flat_map(|frame| [&u16::try_from(frame.len()).expect("short").to_le_bytes()[..], &frame].concat());
        marked(mark, parts.collect::<Vec<u8>>())
    };
    let entry = TranscriptEntry {
        header: header(),
        included: vec![(release().client, Hash([1; 32]))],
        outcome: dp_pvi_protocol::message::RoundOutcome::Complete,
        lambda: Hash([2; 32]),
        previous: Hash([3; 32]),
        aggregation: None,
    };
    let round =
        dp_pvi_protocol::message::RoundStart { header: header(), lambda: vec![0.5; 4].into(), entries: vec![entry.into()], charter: None };
    let next = dp_pvi_protocol::message::Next::Round(Box::new(round));
    let answer = server::next_frames(next, std::sync::Arc::default()).map(|frame| frame.encode_to_vec()).collect();
    let question = dp_pvi_proto::summer::question_frames(1, Bytes::from_static(b"question")).map(|frame| frame.encode_to_vec()).collect();
    let reply = dp_pvi_proto::summer::answer_frames(1, Bytes::from_static(b"answer")).map(|frame| frame.encode_to_vec()).collect();
    vec![
        several(0, vec![client::next(3).encode_to_vec()]),
        several(1, answer),
        several(2, question),
        several(3, reply),
        several(4, vec![client::hello(&hello()).encode_to_vec()]),
    ]
}

/// Frames, as either side takes them from its stream.
pub(super) fn wire(bytes: &[u8]) {
    let mut input = Input(bytes);
    let mark = input.byte() % 5;
    let mut next = NextReader::new(4);
    let (mut question, mut answer) = (QuestionReader::default(), AnswerReader::new(ANSWER_BYTES));
    while !input.0.is_empty() {
        let length = usize::from(input.byte()) | usize::from(input.byte()) << 8;
        let frame = Bytes::copy_from_slice(input.take(length));
        let goes_on = match mark {
            0 => v1::SiteFrame::decode(frame).is_ok_and(|frame| {
                drop(server::payload(frame.clone()));
                server::request(frame).is_ok()
            }),
            1 => v1::WorkFrame::decode(frame).is_ok_and(|frame| {
                drop(client::receipt(frame.clone()));
                next.frame(frame).is_ok()
            }),
            2 => v1::QuestionFrame::decode(frame).is_ok_and(|frame| question.frame(frame).is_ok()),
            3 => v1::SummerFrame::decode(frame).is_ok_and(|frame| answer.frame(frame).is_ok()),
            _ => v1::SignedMessage::decode(frame).is_ok_and(|message| server::hello(message).peek().is_ok()),
        };
        if !goes_on {
            return;
        }
    }
    drop(next.finish());
}

/// Signed bodies, each after the number of its kind.
pub(super) fn bodies() -> Vec<Vec<u8>> {
    let mut bodies = vec![
        marked(0, hello().body),
        marked(1, update().body),
        marked(2, receipt().body),
        marked(3, refusal().body),
        marked(4, header().body),
    ];
    let metrics = HeldOutMetrics {
        records: 10,
        reliability: vec![(0.25, 0.5, 4), (0.75, 1.0, 6)],
        pit: vec![3, 7],
        interval_coverage: vec![(0.9, 0.8)],
        roc: vec![(0.0, 0.0), (0.25, 0.75), (1.0, 1.0)],
        ..HeldOutMetrics::default()
    };
    bodies.push(marked(5, Signed::seal(&MetricsReport { run: release().run, round: 2, metrics }, &key()).body));
    let witnessed = Some(LedgerHead { seq: 4, hash: Hash([3; 32]) });
    let welcome = Welcome { version: 1, run: release().run, task: vec![1, 2, 3], witnessed, hello: Hash([4; 32]) };
    bodies.push(marked(6, Signed::seal(&welcome, &key()).body));
    bodies
}

/// A body that its sender signed, whatever is in it, and the signature's form.
pub(super) fn read_bodies(bytes: &[u8]) {
    fn read<B: Body + Debug>(body: &[u8]) {
        drop(Signed::<B>::from_bytes(body));
        let signed = Signed::<B>::from_parts(body.to_vec(), body.iter().rev().copied().collect());
        drop(signed.open(&key().verifying_key()));
        if let Ok(body) = signed.peek() {
            // What is read can be shown and signed.
            let _shown = format!("{body:?}");
            drop(Signed::seal(&body, &key()));
        }
    }
    let mut input = Input(bytes);
    match input.byte() % 7 {
        0 => read::<Hello>(input.0),
        1 => read::<Update>(input.0),
        2 => read::<Receipt>(input.0),
        3 => read::<Refusal>(input.0),
        4 => read::<RoundHeader>(input.0),
        5 => read::<MetricsReport>(input.0),
        _ => read::<Welcome>(input.0),
    }
}

/// What went between server and summer in a run, its charter, and its entries.
pub(super) fn aggregated() -> Vec<Vec<u8>> {
    let played = super::aggregated::played();
    let of = |mark: u8, all: &[Vec<u8>]| all.iter().map(|bytes| marked(mark, bytes)).collect::<Vec<_>>();
    let mut seeds = [of(0, &played.requests), of(1, &played.replies)].concat();
    for record in played.records() {
        match record {
            Record::Aggregation { record: AggregationRecord::Drafted(draft), .. } => seeds.push(marked(2, draft.to_bytes())),
            Record::RoundClosed { entry, .. } => seeds.extend(entry.aggregation_bytes().map(|bytes| marked(3, bytes))),
            _ => {}
        }
    }
    if let Some(request) = played.requests.last().and_then(|bytes| SummerRequest::from_bytes(bytes)) {
        // With all signatures.
        seeds.push(marked(2, request.charter.to_bytes()));
    }
    seeds
}

/// What goes between server and summer, and the charter.
pub(super) fn aggregation(bytes: &[u8]) {
    let mut input = Input(bytes);
    match input.byte() % 4 {
        0 => drop(SummerRequest::from_bytes(input.0)),
        1 => drop(SummerReply::from_bytes(input.0)),
        2 => {
            if let Ok(charter) = SignedCharter::from_bytes(input.0) {
                drop(charter.check_text());
                drop(charter.verify());
            }
        }
        _ => drop(TranscriptEntry::read_aggregation(input.0)),
    }
}

/// Canonical bytes of events and plans.
pub(super) fn events() -> Vec<Vec<u8>> {
    let event = DpEvent::NonPrivate;
    let phases = [Phase::gaussian(2.0, Sampling::Poisson(0.01), 100), Phase::gaussian(1.5, Sampling::None, 3)];
    let mut plan = Plan::new(Neighbours::AddRemove);
    phases.into_iter().for_each(|phase| plan.append(phase).expect("numbers in their ranges"));
    let (aggregated, local) = (super::aggregated::task(), super::run::task(1));
    let of_visit = |task: &dp_pvi_posterior::task::ResolvedTask| task.visit_event(0).expect("a task that was read has events");
    vec![
        marked(0, event.to_bytes()),
        marked(0, of_visit(&aggregated).to_bytes()),
        marked(0, of_visit(&local).to_bytes()),
        marked(1, plan.to_bytes()),
    ]
}

/// What a ledger's rows and a statement's plan hold.
pub(super) fn read_events(bytes: &[u8]) {
    let mut input = Input(bytes);
    match input.byte() % 2 {
        0 => {
            if let Ok(event) = DpEvent::from_bytes(input.0) {
                assert_eq!(event.to_bytes(), input.0, "an event has one form");
            }
        }
        _ => drop(Plan::from_bytes(input.0)),
    }
}
