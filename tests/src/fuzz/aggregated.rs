//! An aggregated run: what its parties say to each other, as valid inputs for other targets; and one whose sites send whatever words the input
//! says, correctly masked, committed and signed.

use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;

use dp_pvi_accounting::Epsilon;
use dp_pvi_names::{ClientId, Hash, ReleaseId, RunId};
use dp_pvi_posterior::task::{RawTask, ResolveContext, ResolvedTask};
use dp_pvi_privacy::ledger::{Budget, LedgerHead};
use dp_pvi_protocol::aggregation::host::AggregationRecord;
use dp_pvi_protocol::coordinator::{Begin, Coordinator, Record, Settings};
use dp_pvi_protocol::driver::Server;
use dp_pvi_protocol::message::{Hello, Intent, Next, Role, Signed, Update, payload_hash};
use dp_pvi_protocol::sum::PayloadCheck;
use dp_pvi_protocol::time::Timestamp;
use dp_pvi_secagg::charter::{Charter, SignedCharter};
use dp_pvi_secagg::commitment::{Commitment, Salt};
use dp_pvi_secagg::header::{SignedHeader, VerifiedHeader};
use dp_pvi_secagg::mask::MaskSeed;
use dp_pvi_secagg::ring::RingSum;
use dp_pvi_secagg::seal::SealedSeed;
use dp_pvi_secagg::signed::{PublicKey, Signed as SecaggSigned};
use dp_pvi_secagg::summer::{Closed, Offered, Open, RoundRecord};
use dp_pvi_secagg::upload::{OpenedUpload, Upload};
use dp_pvi_simulation::disk::ServerDisk;
use dp_pvi_simulation::federation::{FEDERATION, Federation, Site, client_key, server_key, summer_key};
use dp_pvi_simulation::network::{SimulatedSummer, tls_key};
use dp_pvi_simulation::noise::stream;

use super::Input;
use super::run::{Nobody, SCHEMA, answered, client};

const NAMES: [&str; 3] = ["alpha", "beta", "gamma"];
const START: Timestamp = Timestamp::from_millis(1_000_000);

/// The task of the run.
pub(super) fn task() -> ResolvedTask {
    let text = "[model]\nfamily = \"logistic-regression\"\noutcome = \"y\"\n[schema]\nfile = \"schema.toml\"\n\
         [pvi]\nschedule = \"synchronous\"\nrounds = 2\nupdate = \"natural-gradient\"\n\
         [privacy]\nunit = \"record\"\nadjacency = \"replace-one\"\nepsilon = 1.0\ndelta = 1e-5\ntrust = \"aggregated\"\n\
         [aggregation]\nsites = 3\ndropouts = 0\ncolluders = 1\nmax_units = 50\n";
    let context = ResolveContext { name: "fuzz", update_deadline_seconds: 60, min_sites: 2, expected_sites: 3 };
    RawTask::parse(text).and_then(|task| task.resolve(SCHEMA, context)).expect("the task is valid")
}

/// What its server is made from.
pub(super) fn settings(task: &ResolvedTask) -> Settings {
    let budget =
        Budget { epsilon: Epsilon::INFINITE, delta: task.privacy.delta, per_run: None, max_fallback: None, allow_non_private: true };
    let site = |name: &&str| Site::new(client(name), 1, task, budget, Rc::new(RefCell::new(Nobody)));
    Federation::new(task, 1, NAMES.iter().map(site).collect()).settings_of(1)
}

/// The run's name.
pub(super) fn run_id() -> RunId {
    RunId { task: task().hash(), number: 1 }
}

/// A server, a summer, and sites that the caller plays.
pub(super) struct Run {
    server: Server<ServerDisk>,
    summer: SimulatedSummer,
    disk: ServerDisk,
    task: ResolvedTask,
    now: Timestamp,
    /// What was asked of the summer and what it said, as they travel.
    pub(super) requests: Vec<Vec<u8>>,
    pub(super) replies: Vec<Vec<u8>>,
}

impl Run {
    pub(super) fn new() -> Self {
        let (task, disk) = (task(), ServerDisk::default());
        let coordinator = Coordinator::restore(settings(&task), Vec::new()).expect("a new run");
        let summer = SimulatedSummer::new(summer_key(1), &server_key(1).verifying_key(), 1, 0.0);
        let server = Server::new(coordinator, disk.clone());
        let mut run = Self { server, summer, disk, task, now: START, requests: Vec::new(), replies: Vec::new() };
        run.tick();
        run
    }

    /// The records of the run so far.
    pub(super) fn records(&self) -> Vec<Record> {
        self.disk.records()
    }

    /// Lets time act, and the summer answer as long as it is asked something new.
    fn tick(&mut self) {
        answered(self.server.tick(self.now));
        while let Some(request) = self.server.summer_request(self.now) {
            let Some(reply) = self.summer.answer(&request, self.now) else { break };
            self.requests.push(request.to_bytes());
            self.replies.push(reply.to_bytes());
            match self.server.summer_replied(reply, self.now) {
                Ok(None) => {}
                Ok(Some(_)) | Err(_) => break,
            }
        }
    }

    fn hello(&mut self, who: &ClientId, units: u64) {
        let hello = Hello {
            versions: vec![1],
            federation: FEDERATION.into(),
            client: who.clone(),
            role: Role::Site,
            intent: Intent::Join,
            tls_key: tls_key(who),
            task: None,
            nominal_units: Some(units),
            ledger: Some((dp_pvi_accounting::PrivacyUnit::Record, dp_pvi_accounting::Relation::ReplaceOne)),
            ledger_head: Some(LedgerHead { seq: 1, hash: Hash([1; 32]) }),
            rows: Some(dp_pvi_protocol::origin::Origin::default()),
            software: String::new(),
        };
        let peer = dp_pvi_protocol::coordinator::Peer { client: who.clone(), tls_key: tls_key(who) };
        answered(self.server.hello(&Signed::seal(&hello, &client_key(1, who)), &peer, self.now));
        self.tick();
    }

    /// The site signs the charter that waits for it.
    fn consent(&mut self, who: &ClientId) {
        let Some(Next::Charter(draft)) = answered(self.server.next(who, 0, self.now)) else { return };
        let mut draft = SignedCharter::from_bytes(&draft).expect("the server's own draft");
        let key = client_key(1, who);
        draft.sign(&key).expect("the site is in it");
        let signature = draft.signature_of(&PublicKey::of(&key)).expect("it was just made").to_vec();
        answered(self.server.consent(who, &signature, self.now));
        self.tick();
    }

    fn charter(&self) -> Option<Charter> {
        let mut charter = None;
        for record in self.records() {
            match (record, &mut charter) {
                (Record::Aggregation { record: AggregationRecord::Drafted(draft), .. }, charter) => *charter = Some(draft),
                (Record::Aggregation { record: AggregationRecord::Signed { party, signature }, .. }, Some(draft)) => {
                    draft.attach(&party, &signature).expect("the server checked it");
                }
                _ => {}
            }
        }
        charter?.verify().ok()
    }

    /// The site sends these words under a mask; the input may change the upload.
    fn submit(&mut self, who: &ClientId, words: impl Fn(u64) -> u64, change: &mut Input<'_>) {
        let Some(Next::Round(round)) = answered(self.server.next(who, 0, self.now)) else { return };
        let header = round.header.peek().expect("the server's own header");
        let Some(charter) = self.charter() else { return };
        let Some(verified) = header.reserved.first().and_then(|part| read_header(part, &charter)) else { return };
        let form = self.task.message(header.visit).expect("a task that was read says what is sent");
        let mut dice = stream(1, &format!("fuzz/{who}"), header.round.into());
        let seed = MaskSeed::fresh(&mut dice);
        let mut sum = RingSum::zero(u32::try_from(form.coordinates).expect("a small task"));
        sum.add_stream(&mut seed.stream(&verified.hash(), who));
        let plain: Vec<u8> = (0..form.coordinates).flat_map(|i| words(i).to_le_bytes()).collect();
        sum.add_bytes(&plain).expect("as many words");
        let payload = sum.to_bytes();
        let salt = Salt::fresh(&mut dice);
        let commitment = Commitment::of_bytes(&salt, &verified.hash(), who, &payload);
        let sealed = SealedSeed::new(&seed, &verified.header().round_key, &verified.hash(), who, &commitment, &mut dice);
        let Ok(sealed) = sealed else { return };
        let mut upload =
            Upload { header: verified.hash(), client: who.clone(), commitment, seed: sealed, echo: verified.header().previous };
        match change.byte() {
            251 => upload.commitment = Commitment(Hash([9; 32])),
            252 => upload.header = Hash([9; 32]),
            253 => upload.echo = Hash([9; 32]),
            254 => upload.client = client(NAMES[0]),
            _ => {}
        }
        let update = Update {
            release: ReleaseId { run: header.run, client: who.clone(), round: header.round },
            header: round.header.hash(),
            kind: form.kind,
            coordinates: form.coordinates,
            payload: payload_hash(form.kind, &payload),
            ledger_head: LedgerHead { seq: 2, hash: Hash([2; 32]) },
            upload: Some(OpenedUpload { signed: SecaggSigned::seal(&upload, &client_key(1, who)), salt }),
        };
        let update = Signed::seal(&update, &client_key(1, who));
        let Some(Begin::Accept(expected)) = answered(self.server.begin(who, &update, self.now)) else { return };
        let mut check = PayloadCheck::new(*expected);
        if payload.chunks(24).try_for_each(|chunk| check.update(chunk)).is_err() || check.finish().is_err() {
            return;
        }
        self.disk.spool(who, update.hash(), &payload).expect("the disk in memory takes it");
        answered(self.server.stored(who, &update, self.now));
        self.tick();
    }
}

fn read_header(part: &[u8], charter: &Charter) -> Option<VerifiedHeader> {
    postcard::from_bytes::<SignedHeader>(part).ok()?.open(charter).ok()
}

/// A run in which everyone does what it should: sums of small numbers.
pub(super) fn played() -> Run {
    let mut run = Run::new();
    let all = NAMES.map(client);
    all.iter().for_each(|who| run.hello(who, 40));
    all.iter().for_each(|who| run.consent(who));
    for _ in 0..2 {
        all.iter().for_each(|who| run.submit(who, |word| 5 + word, &mut Input(&[])));
    }
    run
}

/// Bytes for [`run`]: calm, with one liar, and with an upload of another header.
pub(super) fn seeds() -> Vec<Vec<u8>> {
    // Steps and who; a hello is followed by the edge that is 100, a submission by an edge for its words and a change.
    let open: Vec<u8> = [[0, 0, 1], [0, 1, 1], [0, 2, 1]].concat().into_iter().chain([1, 0, 1, 1, 1, 2]).collect();
    let submit = |who: u8, edge: u8, change: u8| vec![2, who, edge, change];
    let calm =
        [open.clone(), submit(0, 1, 0), submit(1, 1, 0), submit(2, 1, 0), submit(0, 0, 0), submit(1, 0, 0), submit(2, 0, 0)].concat();
    let liar = [open.clone(), submit(0, 1, 0), submit(1, 3, 0), submit(2, 1, 0)].concat();
    let foreign = [open, submit(0, 1, 252), submit(1, 1, 251), submit(2, 1, 0), vec![3, 0]].concat();
    vec![calm, liar, foreign]
}

/// Plays a run whose sites say what the input says; afterwards a restarted server is where this one was. The records, to be exported.
pub(super) fn run(input: &mut Input<'_>) -> Vec<Record> {
    let mut run = Run::new();
    for _ in 0..40 {
        if input.0.is_empty() {
            break;
        }
        let (step, who) = (input.byte() % 4, client(NAMES[usize::from(input.byte()) % NAMES.len()]));
        match step {
            0 => {
                let units = input.number();
                run.hello(&who, units);
            }
            1 => run.consent(&who),
            2 => {
                let value = input.number();
                run.submit(&who, |word| value.wrapping_mul(word + 1), input);
            }
            _ => {
                run.now = run.now.plus(Duration::from_secs(20));
                run.tick();
            }
        }
    }
    answered(run.server.stop(run.now));
    let records = run.records();
    let restored = Coordinator::restore(settings(&run.task), records.clone()).expect("a run's own records are read back");
    assert_eq!(restored.lambda(), run.server.coordinator().lambda());
    assert!(restored.lambda().iter().all(|x| x.is_finite()), "a posterior is finite");
    records
}

/// What a summer keeps of a round, at every step of it.
pub(super) fn summer_records(played: &Run) -> Vec<RoundRecord> {
    let Some(charter) = played.charter() else { return Vec::new() };
    let mut records = Vec::new();
    for record in played.records() {
        let Record::RoundOpened { header, .. } = record else { continue };
        let Some(part) = header.peek().ok().and_then(|header| header.reserved.into_iter().next()) else { continue };
        let Some(verified) = read_header(&part, &charter) else { continue };
        let signed: SignedHeader = postcard::from_bytes(&part).expect("it was read above");
        records.push(RoundRecord::Offered(Offered { key: verified.header().round_key }));
        records.push(RoundRecord::Open(Open { header: signed.clone() }));
        records.push(RoundRecord::Closed(Closed { header: signed, contributors: Hash([5; 32]) }));
    }
    records
}
