//! Aggregated trust over a whole federation: real updates, real shares of noise, a summer, and a network that fails.
#![allow(clippy::unwrap_used)]

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::convert::Infallible;
use std::rc::Rc;
use std::time::Duration;

use crate::support::{SCHEMA, boundless, check, client, complete};
use dp_pvi_inference::methods::{self, Job};
use dp_pvi_inference::records::RecordTable;
use dp_pvi_names::{ClientId, Hash, ReleaseId};
use dp_pvi_posterior::methods::VisitSum;
use dp_pvi_posterior::task::{RawTask, ResolveContext, ResolvedTask};
use dp_pvi_privacy::ledger::memory::MemoryStore;
use dp_pvi_privacy::mechanism::{Message, ReleaseError, ShareSum, Summation, Summed};
use dp_pvi_privacy::{Argument, Ledger, Permit, Units};
use dp_pvi_protocol::aggregation::host::AggregationRecord;
use dp_pvi_protocol::aggregation::summer::{SummerNode, SummerStores};
use dp_pvi_protocol::aggregation::{SummerCall, SummerReply};
use dp_pvi_protocol::coordinator::{Coordinator, Lack, Record, Stage};
use dp_pvi_protocol::driver::DriveError;
use dp_pvi_protocol::message::{RoundOutcome, RunEnd, RunOutcome};
use dp_pvi_protocol::participant::{Approve, SiteError, TrainJob, Trained};
use dp_pvi_protocol::time::Timestamp;
use dp_pvi_secagg::signed::PublicKey;
use dp_pvi_secagg::summer::StoreError;
use dp_pvi_secagg::summer::memory::{MemoryStore as MemoryStores, MemoryVault};
use dp_pvi_secagg::transcript::Outcome as Aggregated;
use dp_pvi_simulation::federation::{Compute, Federation, Site, Visit, client_key};
use dp_pvi_simulation::network::{Faults, Partition, Span};
use dp_pvi_simulation::noise::SeededNoise;
use dp_pvi_unsealed::Unsealed;

const NAMES: [&str; 4] = ["alpha", "beta", "delta", "gamma"];

fn task(rounds: u32, dropouts: u32) -> ResolvedTask {
    task_with(rounds, dropouts, "update = \"natural-gradient\"")
}

fn task_with(rounds: u32, dropouts: u32, update: &str) -> ResolvedTask {
    let text = format!(
        "[model]\nfamily = \"logistic-regression\"\noutcome = \"y\"\nprior_units = \"encoded\"\napproximation = \"mean-field\"\n[schema]\nfile = \"schema.toml\"\n\
         [pvi]\nschedule = \"synchronous\"\nrounds = {rounds}\n{update}\n\
         [privacy]\nunit = \"record\"\nadjacency = \"replace-one\"\nepsilon = 1.0\ndelta = 1e-5\ntrust = \"aggregated\"\n\
         [aggregation]\nsites = 4\ndropouts = {dropouts}\ncolluders = 1\nmax_units = 50\n"
    );
    let context = ResolveContext { name: "test", update_deadline_seconds: 1800, min_sites: 2, expected_sites: 4 };
    RawTask::parse(&text).unwrap().resolve(SCHEMA, context).unwrap()
}

/// A pad of zeros: shows what a share holds.
struct NoPad;

impl rand_core::TryRng for NoPad {
    type Error = Infallible;
    fn try_next_u32(&mut self) -> Result<u32, Infallible> {
        Ok(0)
    }
    fn try_next_u64(&mut self) -> Result<u64, Infallible> {
        Ok(0)
    }
    fn try_fill_bytes(&mut self, bytes: &mut [u8]) -> Result<(), Infallible> {
        bytes.fill(0);
        Ok(())
    }
}

impl rand_core::TryCryptoRng for NoPad {}

type Shares = Rc<RefCell<BTreeMap<ReleaseId, Vec<i64>>>>;

/// The real update, which also keeps what its share would be without a mask.
struct Real {
    units: Units<RecordTable>,
    noise: SeededNoise,
    shares: Shares,
    identity: dp_pvi_privacy::ledger::LedgerIdentity,
}

impl Real {
    fn run(&self, job: &TrainJob, permit: Permit) -> methods::Output {
        let job = Job { site: None, task: &job.task, visit: job.visit, lambda: &job.lambda, state: &job.state };
        methods::run(&job, &self.units, permit, &self.noise).unwrap()
    }
}

impl Compute for Real {
    fn train(&mut self, job: TrainJob) -> Visit {
        // The very same release once more, under a permit of a ledger that no one else has.
        let release = job.permit.release().clone();
        let (event, fallback) = (job.task.visit_event(job.visit).unwrap(), job.task.visit_fallback(job.visit).unwrap().unwrap());
        let mut spare =
            Ledger::open(MemoryStore::new(Unsealed), client_key(0, &release.client), self.identity.clone(), boundless()).unwrap();
        let permit = spare.reserve(&release, (&event, Some(&fallback)), Hash::default()).unwrap();
        let Message::Share(share) = self.run(&job, permit).message else { panic!("an aggregated update is a share") };
        self.shares.borrow_mut().insert(release.clone(), share.mask(&mut NoPad).into_inner().values);
        let TrainJob { task, visit, lambda, state, permit } = job;
        let job = Job { site: None, task: &task, visit, lambda: &lambda, state: &state };
        let output = methods::run(&job, &self.units, permit, &self.noise).unwrap();
        Box::new(move || Ok(Trained { message: output.message, pending: output.pending }))
    }
}

fn federation(task: &ResolvedTask, seed: u64) -> (Federation, Shares) {
    federation_of(task, seed, |number| {
        let mut builder = RecordTable::builder(3);
        for unit in 0..40 {
            let x = |k: usize| ((unit * 7 + number * 3 + k * 5) % 11) as f64 / 5.0 - 1.0;
            builder.start_unit();
            builder.push(&[0, 1, 2], &[x(1), x(2), 1.0], f64::from(u8::from(x(1) + 0.3 * x(3) > 0.1))).unwrap();
        }
        builder.finish()
    })
}

/// Every site's records come from its number.
fn federation_of(task: &ResolvedTask, seed: u64, records: impl Fn(usize) -> RecordTable) -> (Federation, Shares) {
    let shares = Shares::default();
    let site = |(number, name): (usize, &&str)| {
        let placeholder = Site::new(client(name), 40, task, boundless(), Rc::new(RefCell::new(Never)));
        let identity = placeholder.ledger.clone();
        let real = Real { units: Units::new(records(number)), noise: SeededNoise::new(seed), shares: Rc::clone(&shares), identity };
        Site { compute: Rc::new(RefCell::new(real)), ..placeholder }
    };
    (Federation::new(task, seed, NAMES.iter().enumerate().map(site).collect()), shares)
}

/// A site that sums far more units than the task admits, each of them as long as a term may be, and sends its share as any other.
struct Liar(Real);

fn all_the_same(_: &(), sum: Summation<'_, RecordTable>) -> Result<Summed, ReleaseError> {
    Ok(sum.each(|_, _, (), term| term.add(0, 1e9)))
}

impl Compute for Liar {
    fn train(&mut self, job: TrainJob) -> Visit {
        let release = job.permit.release().clone();
        let (event, fallback) = (job.task.visit_event(job.visit).unwrap(), job.task.visit_fallback(job.visit).unwrap().unwrap());
        let mut spare =
            Ledger::open(MemoryStore::new(Unsealed), client_key(0, &release.client), self.0.identity.clone(), boundless()).unwrap();
        let permit = spare.reserve(&release, (&event, Some(&fallback)), Hash::default()).unwrap();
        let pending = self.0.run(&job, permit).pending;
        let sum = job.task.sum(job.visit).unwrap().unwrap();
        let honest = job.task.aggregation.as_ref().unwrap().honest;
        let mechanism = ShareSum::new(sum.coordinates, sum.clip, sum.noise, honest, 1 << 20, sum.sampling, sum.terms).unwrap();
        let mut units = RecordTable::builder(3);
        (0..5000).for_each(|_| units.start_unit());
        let step = job.permit.into_steps().next().unwrap();
        let of = Argument::copy_of(&()).unwrap();
        let share = mechanism.share_sum(&Units::new(units.finish()), &of, all_the_same, step, &self.0.noise).unwrap();
        Box::new(move || Ok(Trained { message: Message::Share(share), pending }))
    }
}

struct Never;

impl Compute for Never {
    fn train(&mut self, _job: TrainJob) -> Visit {
        panic!("replaced before the run")
    }
}

/// λ of every closed round is, to the last bit, what the rule makes of the plain integer sum of the shares that were included.
fn equals_plain_sums(task: &ResolvedTask, records: &[Record], shares: &Shares) -> usize {
    let rule = task.rule();
    let mut state = rule.initial();
    let mut rounds = 0;
    for record in records {
        let Record::RoundClosed { entry, lambda, .. } = record else { continue };
        let header = entry.header.peek().unwrap();
        let included: Vec<&ClientId> = entry.included.iter().map(|(client, _)| client).collect();
        if included.is_empty() {
            continue;
        }
        let dp_pvi_names::PayloadKind::Masked { exponent } = task.message(header.visit).unwrap().kind else { panic!("masked") };
        let mut sum = vec![0i64; usize::try_from(task.message(header.visit).unwrap().coordinates).unwrap()];
        for client in &included {
            let release = ReleaseId { run: header.run, client: (*client).clone(), round: header.round };
            sum.iter_mut().zip(&shares.borrow()[&release]).for_each(|(total, x)| *total += x);
        }
        let sum: Vec<f64> = sum.iter().map(|&x| x as f64 * 2f64.powi(exponent)).collect();
        let sites = u32::try_from(included.len()).unwrap();
        state = rule.apply(&state, &VisitSum { visit: header.visit, sites, sum: &sum }).state;
        assert!(state.iter().map(|x| x.to_bits()).eq(lambda.iter().map(|x| x.to_bits())), "round {}", header.round);
        rounds += 1;
    }
    rounds
}

#[test]
fn an_aggregated_run_equals_plain_sums_bit_for_bit() {
    let task = task(4, 0);
    let (federation, shares) = federation(&task, 5);
    let sites = federation.sites.clone();
    let outcome = federation.simulate();
    complete(&outcome, "aggregated");
    check(&outcome, &sites, 5, "aggregated");
    assert_eq!(equals_plain_sums(&task, &outcome.records, &shares), 4);
    // What arrived at the server looks like nothing that a site computed.
    for (release, plain) in shares.borrow().iter() {
        let bytes: Vec<u8> = plain.iter().flat_map(|x| x.to_le_bytes()).collect();
        let exponent = match task.message(release.round).unwrap().kind {
            dp_pvi_names::PayloadKind::Masked { exponent } => exponent,
            other => panic!("{other:?}"),
        };
        let hash = dp_pvi_protocol::message::payload_hash(dp_pvi_names::PayloadKind::Masked { exponent }, &bytes);
        assert!(!outcome.arrived[release].contains(&hash));
    }
}

/// Messages of expectation propagation are sums, too; factors of records stay with their site, without noise and without masks.
#[test]
fn expectation_propagation_is_aggregated_as_plain_sums() {
    for update in ["update = \"sep\"\nrecords = 160", "update = \"ep\"\nrecords = 160"] {
        let task = task_with(3, 0, update);
        let (federation, shares) = federation(&task, 6);
        let sites = federation.sites.clone();
        let outcome = federation.simulate();
        complete(&outcome, update);
        check(&outcome, &sites, 6, update);
        assert_eq!(equals_plain_sums(&task, &outcome.records, &shares), 3, "{update}");
    }
}

/// Expected sufficient statistics of every model: shares of the noise, one sum, one honest ε.
#[test]
fn expected_statistics_aggregate() {
    let words = "kind = \"bag-of-words\"\n[bag_of_words]\nformat = \"docword\"\nwords = 12\ndocument_length = 30\n";
    let images = "kind = \"binary-image\"\n[binary_image]\nwidth = 4\nheight = 3\nthreshold = 127\n";
    let counts = |number: usize| {
        let mut builder = RecordTable::builder(12);
        for unit in 0..40 {
            let first = 4 * ((unit + number) % 3);
            builder.start_unit();
            builder.push(&[first as u32, first as u32 + 1, first as u32 + 3], &[1.0; 3], 0.0).unwrap();
        }
        builder.finish()
    };
    let features = |number: usize| {
        let mut builder = RecordTable::builder(3);
        for unit in 0..40 {
            let x = f64::from(u8::from((unit + number).is_multiple_of(3)));
            builder.start_unit();
            builder.push(&[0, 2], &[x, 1.0], x).unwrap();
        }
        builder.finish()
    };
    type Records<'a> = &'a dyn Fn(usize) -> RecordTable;
    let cases: [(&str, &str, &str, Records<'_>); 3] = [
        ("family = \"logistic-regression\"\noutcome = \"y\"\napproximation = \"full-covariance\"", "", SCHEMA, &features),
        ("family = \"latent-dirichlet\"\ntopics = 3", "documents = 160", words, &counts),
        ("family = \"sigmoid-belief\"\nhidden = 2", "images = 160\ndamping = { start = 1.0, end = 0.5 }", images, &counts),
    ];
    for (model, options, schema, records) in cases {
        let text = format!(
            "[model]\n{model}\n[schema]\nfile = \"schema.toml\"\n\
             [pvi]\nschedule = \"synchronous\"\nrounds = 3\nupdate = \"vips\"\n{options}\n\
             [privacy]\nunit = \"record\"\nadjacency = \"add-remove\"\nepsilon = 1.0\ndelta = 1e-5\ntrust = \"aggregated\"\n\
             [aggregation]\nsites = 4\ncolluders = 1\nmax_units = 50\n"
        );
        let context = ResolveContext { name: "test", update_deadline_seconds: 1800, min_sites: 2, expected_sites: 4 };
        let task = RawTask::parse(&text).unwrap().resolve(schema, context).unwrap();
        let (federation, shares) = federation_of(&task, 9, records);
        let sites = federation.sites.clone();
        let outcome = federation.simulate();
        complete(&outcome, model);
        check(&outcome, &sites, 9, model);
        assert_eq!(equals_plain_sums(&task, &outcome.records, &shares), 3, "{model}");
        // The sum of three honest shares is what the budget pays for; a share alone is worth less, and is said to be.
        let (joint, alone) = (task.loss(3).unwrap().epsilon.get(), task.fallback_loss(3).unwrap().unwrap().epsilon.get());
        assert!(joint <= 1.0 && joint > 0.99 && alone > 1.5, "{model}: {joint} {alone}");
    }
}

/// The joint loss is in the statement's ε, and beside it what is left if everyone else works together.
#[test]
fn a_statement_names_the_fallback_beside_the_joint_loss() {
    let task = task(4, 0);
    let statement = dp_pvi_protocol::statement::statement(&task, &client("alpha"), 4).unwrap();
    let fallback = task.fallback_loss(4).unwrap().unwrap().epsilon.get();
    // Three honest shares: the fallback's mu is sqrt(3) times the joint one's.
    assert!(statement.epsilon.unwrap() <= 1.0 && fallback > 1.5 && fallback < 3.0, "{fallback}");
    assert!(statement.remarks.iter().any(|remark| remark.contains(&format!("epsilon is at most {fallback:.4}"))));
}

#[test]
fn crashes_and_losses_change_neither_the_posterior_nor_what_is_spent() {
    let task = task(3, 0);
    let (quiet, _) = federation(&task, 5);
    let expected = crate::support::bits(&quiet.simulate());
    for seed in 0..6 {
        let (mut federation, shares) = federation(&task, 5);
        federation.faults = Faults {
            drop_request: 0.05,
            drop_response: 0.05,
            duplicate: 0.1,
            replay: 0.1,
            delay_milliseconds: 300,
            crash_site: 0.02,
            crash_server: 0.02,
            ..Faults::default()
        };
        // Another seed for luck, the same for keys and noise: the runs must agree to the last bit.
        federation.fault_seed = seed;
        let sites = federation.sites.clone();
        let outcome = federation.simulate();
        complete(&outcome, "faults");
        check(&outcome, &sites, 5, "faults");
        equals_plain_sums(&task, &outcome.records, &shares);
        assert_eq!(crate::support::bits(&outcome), expected);
    }
}

#[test]
fn a_tolerated_dropout_costs_a_round_nothing_and_one_more_ends_the_run() {
    // All have signed by then, and a third of the rounds is over.
    let cut = |name: &str| Partition { client: client(name), from_seconds: 6, until_seconds: 1_000_000 };
    let rounds = 40;
    for (dropouts, cut_off, expected) in [
        (1, vec!["delta"], Some(RunOutcome::Complete)),
        (1, vec!["alpha", "delta"], Some(RunOutcome::AggregationLost)),
        (0, vec!["delta"], Some(RunOutcome::AggregationLost)),
    ] {
        let task = task(rounds, dropouts);
        let (mut federation, shares) = federation(&task, 8);
        federation.faults.delay_milliseconds = 200;
        federation.faults.partitions = cut_off.iter().map(|name| cut(name)).collect();
        let outcome = federation.simulate();
        let end = outcome.records.iter().find_map(|record| match record {
            Record::RunEnded { outcome, .. } => Some(*outcome),
            _ => None,
        });
        assert_eq!(end, expected, "{cut_off:?}");
        let closed = equals_plain_sums(&task, &outcome.records, &shares);
        assert!(closed > 0);
        assert_eq!(closed == rounds as usize, expected == Some(RunOutcome::Complete), "{closed}");
        if let Some(end) = outcome.end.filter(|end| end.outcome == RunOutcome::AggregationLost) {
            let reason = end.reason().unwrap();
            assert!(cut_off.iter().all(|name| reason.contains(name)), "who was missing is named: {reason}");
        }
    }
}

/// A group that loses too many, or its summer, is suspended. It goes on with the same rounds, headers and masks, so that the run's sums are to the
/// last bit those of a run in which nothing happened.
#[test]
fn an_aggregated_run_is_suspended_and_goes_on_with_the_same_sums() {
    let rounds = 40;
    let task = task(rounds, 0);
    let quiet = || {
        let (mut federation, shares) = federation(&task, 8);
        federation.faults.delay_milliseconds = 200;
        (federation, shares)
    };
    let expected = crate::support::bits(&quiet().0.simulate());
    let back = 6 + 2 * task.update_deadline_seconds;
    for summer in [false, true] {
        let (mut federation, shares) = quiet();
        if summer {
            federation.faults.summer_cut_off = vec![Span { from_seconds: 6, until_seconds: back }];
        } else {
            let away = |name: &str| Partition { client: client(name), from_seconds: 6, until_seconds: back };
            federation.faults.partitions = vec![away("delta"), away("beta")];
        }
        federation.faults.crash_server = 0.01;
        let sites = federation.sites.clone();
        let outcome = federation.simulate();
        complete(&outcome, "suspended");
        check(&outcome, &sites, 8, "suspended");
        let lacks: Vec<_> = outcome
            .records
            .iter()
            .filter_map(|record| match record {
                Record::Suspended { lack, .. } => Some(*lack == Lack::Summer),
                _ => None,
            })
            .collect();
        assert!(!lacks.is_empty() && lacks.iter().all(|lack| *lack == summer), "{lacks:?}");
        assert_eq!(equals_plain_sums(&task, &outcome.records, &shares), rounds as usize);
        assert_eq!(crate::support::bits(&outcome), expected);
    }
}

/// A site that says nothing draws three rounds out to their deadline. From then on no round waits for it, as long as the others are as many as a sum
/// needs; it is in no sum, and the sums are those of the others. When it speaks again it is in them again.
#[test]
fn a_silent_site_under_aggregated_trust_is_not_waited_for() {
    const ROUNDS: u32 = 90;
    let task = task(ROUNDS, 1);
    let (mut federation, shares) = federation(&task, 8);
    federation.faults.delay_milliseconds = 200;
    let back = 6 + 3 * task.update_deadline_seconds;
    federation.faults.partitions = vec![Partition { client: client("delta"), from_seconds: 6, until_seconds: back }];
    let sites = federation.sites.clone();
    let outcome = federation.simulate();
    complete(&outcome, "a silent site");
    check(&outcome, &sites, 8, "a silent site");
    assert_eq!(equals_plain_sums(&task, &outcome.records, &shares), ROUNDS as usize);
    let (mut opened, mut rounds) = (Timestamp::from_millis(0), Vec::new());
    for record in &outcome.records {
        match record {
            Record::RoundOpened { at, .. } => opened = *at,
            Record::RoundClosed { entry, at, .. } => {
                let has = entry.included.iter().any(|(name, _)| *name == client("delta"));
                rounds.push((entry.outcome, has, at.since(opened).as_secs()));
            }
            _ => {}
        }
    }
    let first = rounds.iter().position(|(_, has, _)| !has).unwrap();
    let silent: Vec<_> = rounds[first..].iter().take_while(|(_, has, _)| !has).copied().collect();
    assert!(first > 0 && silent.len() > 3, "{first} {silent:?}");
    for (number, (outcome, _, seconds)) in silent.iter().enumerate() {
        let expected = if number < 3 { RoundOutcome::Deadline } else { RoundOutcome::WithoutSilent };
        // When it speaks again one round waits for it, and closes with it or without.
        assert!(*outcome == expected || number + 1 == silent.len(), "round {number} of its silence: {silent:?}");
        assert!(*seconds < 60 || number < 3, "{silent:?}");
    }
    let again = &rounds[first + silent.len()..];
    assert!(again.iter().any(|(outcome, has, _)| *has && *outcome == RoundOutcome::Complete), "{again:?}");
}

/// One liar among four: the sum is longer than four honest sites can make it. The round ends, and with it the run; the transcript lists no one, and
/// the reason, which names no one, is a fact of the run that a restarted server still knows.
#[test]
fn a_liar_under_aggregated_trust_ends_the_run_and_is_not_named() {
    let task = task(3, 0);
    let (mut federation, shares) = federation(&task, 4);
    let liar = &mut federation.sites[1];
    let units = Units::new(RecordTable::builder(3).finish());
    let real = Real { units, noise: SeededNoise::new(4), shares, identity: liar.ledger.clone() };
    liar.compute = Rc::new(RefCell::new(Liar(real)));
    let (settings, sites) = (federation.settings_of(federation.run), federation.sites.clone());
    let outcome = federation.simulate();
    check(&outcome, &sites, 4, "a liar");
    let closed: Vec<_> = outcome
        .records
        .iter()
        .filter_map(|record| match record {
            Record::RoundClosed { entry, .. } => Some((entry.outcome, entry.included.len(), entry.aggregation.clone().unwrap())),
            _ => None,
        })
        .collect();
    assert!(matches!(closed.as_slice(), [(RoundOutcome::Aborted, 0, _)]), "{closed:?}");
    let entry = closed[0].2.open(&PublicKey(settings.key.verifying_key().to_bytes())).unwrap();
    assert_eq!(entry.outcome, Aggregated::Aborted);
    assert_eq!(outcome.end.as_ref().map(|end| end.outcome), Some(RunOutcome::AggregationLost));
    let restored = Coordinator::restore(settings, outcome.records.clone()).unwrap();
    let reason = restored.end_reason().unwrap();
    assert_eq!(outcome.end.as_ref().and_then(RunEnd::reason).as_ref(), Some(&reason), "every site is told");
    assert!(reason.contains("larger than the contributions") && reason.contains("nobody can say"), "{reason}");
    assert!(NAMES.iter().all(|name| !reason.contains(name)), "{reason}");
}

#[test]
fn without_a_summer_no_round_opens_and_the_run_ends_with_a_name() {
    let task = task(3, 0);
    let (mut federation, _) = federation(&task, 2);
    federation.summer_silent = Duration::from_secs(10_000);
    let sites = federation.sites.clone();
    let outcome = federation.simulate();
    assert_eq!(outcome.end.as_ref().map(|end| end.outcome), Some(RunOutcome::AggregationLost));
    check(&outcome, &sites, 2, "no summer");
    assert!(outcome.arrived.is_empty());
    // Nothing was asked, so nothing was charged.
    for site in &sites {
        let ledger = Ledger::open(site.disk.clone(), client_key(2, &site.client), site.ledger.clone(), site.budget).unwrap();
        assert!(ledger.rows().iter().all(|(row, _)| !matches!(row.body, dp_pvi_privacy::ledger::RowBody::Reserved { .. })));
    }
}

/// A site whose seed the summer cannot open, under a charter that allows no one to be missing: the run ends, and everyone is told whose seed it was.
#[test]
fn a_site_whose_seed_cannot_be_opened_is_named_in_the_outcome() {
    let task = task(2, 0);
    let (federation, _) = federation(&task, 2);
    let settings = federation.settings_of(federation.run);
    let records = federation.simulate().records;
    let is_closing = |record: &Record| matches!(record, Record::Aggregation { record: AggregationRecord::Closing(_), .. });
    let closing = records.iter().position(is_closing).unwrap();
    let mut coordinator = Coordinator::restore(settings, records[..=closing].to_vec()).unwrap();
    let now = Timestamp::from_millis(0);
    assert_eq!(coordinator.on_summer(SummerReply::BadSeed(client("beta")), now).unwrap().records.len(), 1);
    for _ in 0..3 {
        drop(coordinator.poll(now).records);
    }
    assert_eq!(coordinator.stage(), Stage::Ended(RunOutcome::AggregationLost));
    assert_eq!(coordinator.end_reason().unwrap(), "the summer cannot open the seed of beta, and a sum needs 4 sites");
}

/// A summer that answers, and wrongly, until no one waits any longer: the outcome says in whose words, and not that it was silent.
#[test]
fn a_summer_that_only_refuses_is_the_author_of_the_end() {
    let task = task(2, 0);
    let (federation, _) = federation(&task, 2);
    let settings = federation.settings_of(federation.run);
    let records = federation.simulate().records;
    let is_closing = |record: &Record| matches!(record, Record::Aggregation { record: AggregationRecord::Closing(_), .. });
    let closing = records.iter().position(is_closing).unwrap();
    let ended_after = |reply: Option<SummerReply>| {
        let mut coordinator = Coordinator::restore(settings.clone(), records[..=closing].to_vec()).unwrap();
        let mut now = Timestamp::from_millis(0);
        for _ in 0..500 {
            drop(coordinator.poll(now).records);
            if let (Some(_), Some(reply)) = (coordinator.summer_request(now), &reply) {
                assert!(coordinator.on_summer(reply.clone(), now).is_err());
            }
            now = now.plus(Duration::from_secs(1800));
        }
        assert_eq!(coordinator.stage(), Stage::Ended(RunOutcome::AggregationLost));
        coordinator.end_reason().unwrap()
    };
    assert_eq!(ended_after(Some(SummerReply::Refused("its vault is gone".into()))), "the summer refused: its vault is gone");
    assert_eq!(ended_after(None), "the summer did not answer");
}

/// A refusal for good ends the run where the summer was asked; one that comes late, or after the end, changes nothing.
#[test]
fn a_refusal_for_good_ends_only_a_run_that_waits_for_the_summer() {
    let task = task(2, 0);
    let (federation, _) = federation(&task, 2);
    let settings = federation.settings_of(federation.run);
    let outcome = federation.simulate();
    complete(&outcome, "before the refusal");
    let (mut waited, mut late) = (0, 0);
    for length in 0..=outcome.records.len() {
        let mut coordinator = Coordinator::restore(settings.clone(), outcome.records[..length].to_vec()).unwrap();
        let now = Timestamp::from_millis(0);
        let ended = matches!(coordinator.stage(), Stage::Ended { .. });
        let asked = !ended && coordinator.summer_request(now).is_some();
        let durable = coordinator.on_summer(SummerReply::Never("destroyed".into()), now).unwrap();
        let ends = matches!(durable.records.as_slice(), [Record::Aggregation { .. }, Record::RunEnded { .. } | Record::RoundClosed { .. }]);
        assert_eq!((ends, durable.then.is_some()), (asked, asked), "after {length} records");
        assert!(asked || durable.records.is_empty(), "after {length} records");
        *(if asked { &mut waited } else { &mut late }) += 1;
    }
    assert!(waited > 2 && late > 2, "{waited} {late}");
}

/// A summer's disk that is full for a while: the summer refuses for now, never for good, and then gives the answer that it would have given.
#[test]
fn a_summer_whose_store_fails_is_asked_again() {
    struct Full(Rc<std::cell::Cell<u32>>);
    impl SummerStores for Full {
        type Store = MemoryStores;
        type Vault = MemoryVault;
        fn open(&mut self, _charter: Hash) -> Result<(MemoryStores, MemoryVault), StoreError> {
            let left = self.0.get();
            self.0.set(left.saturating_sub(1));
            if left > 0 { Err(StoreError("the disk is full".into())) } else { Ok(Default::default()) }
        }
    }
    let task = task(2, 0);
    let (federation, _) = federation(&task, 2);
    let settings = federation.settings_of(federation.run);
    let outcome = federation.simulate();
    complete(&outcome, "a calm run");
    // The first question after the charter.
    let offer = (0..outcome.records.len()).find_map(|length| {
        let coordinator = Coordinator::restore(settings.clone(), outcome.records[..length].to_vec()).unwrap();
        coordinator.summer_request(Timestamp::from_millis(0)).filter(|request| matches!(request.ask, SummerCall::Offer { .. }))
    });
    let offer = offer.unwrap();
    let failures = Rc::new(std::cell::Cell::new(3));
    let server = PublicKey(settings.key.verifying_key().to_bytes());
    let mut summer = SummerNode::new(dp_pvi_simulation::federation::summer_key(2), server, Full(Rc::clone(&failures)));
    let mut dice = dp_pvi_simulation::noise::stream(1, "a full disk", 0);
    for _ in 0..3 {
        let reply = summer.handle(&offer, &mut dice);
        assert!(matches!(&reply, SummerReply::Refused(words) if words.contains("the disk is full")), "{reply:?}");
    }
    assert!(matches!(summer.handle(&offer, &mut dice), SummerReply::Offer(_)));
}

#[test]
fn a_summer_that_comes_late_is_waited_for() {
    let task = task(2, 0);
    let (mut federation, shares) = federation(&task, 2);
    federation.summer_silent = Duration::from_secs(900);
    let outcome = federation.simulate();
    complete(&outcome, "late summer");
    assert_eq!(equals_plain_sums(&task, &outcome.records, &shares), 2);
}

#[test]
fn a_site_whose_floor_is_not_met_signs_nothing_and_the_run_ends() {
    let task = task(2, 0);
    let (mut federation, _) = federation(&task, 2);
    federation.sites[1].policy.aggregation.floors.max_honest = 2;
    let name = federation.sites[1].client.clone();
    let outcome = federation.simulate();
    let refused = outcome.sites[&name].as_ref().err().unwrap();
    assert!(matches!(refused, DriveError::Site(SiteError::Aggregation(_))), "{refused}");
    assert!(refused.to_string().contains("floor"), "{refused}");
    assert!(outcome.arrived.is_empty());
}

/// Where an operator approves by hand, the charter needs his word as well as the task: keys of sites are in it that no task knows.
#[test]
fn a_charter_that_no_operator_has_seen_is_not_signed() {
    let task = task(2, 0);
    let approving = |approved: Vec<Hash>| {
        let (mut federation, _) = federation(&task, 2);
        federation.sites[1].policy.approve = Approve::Manual { approved };
        let name = federation.sites[1].client.clone();
        (name, federation.simulate())
    };
    let (name, outcome) = approving(vec![task.hash()]);
    let refused = outcome.sites[&name].as_ref().err().unwrap();
    assert!(matches!(refused, DriveError::Site(SiteError::Unapproved(_))), "{refused}");
    assert_eq!(outcome.end.as_ref().map(|end| end.outcome), Some(RunOutcome::Refused));
    assert!(outcome.arrived.is_empty());
    let words = refused.to_string();
    let hash = words.split("charter ").nth(1).and_then(|rest| rest.split_whitespace().next()).unwrap().parse().unwrap();
    let (_, outcome) = approving(vec![task.hash(), hash]);
    complete(&outcome, "approved");
}
