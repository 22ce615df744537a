//! Sensitivity with the state carried on: for whatever a task may name, two neighbouring data sets are taken through a run side by side, and no
//! un-noised sum of a visit differs by more than what its event charges.
//!
//! What runs is the shipped update. Data set B is fed what data set A released (the states of the server, sums inside a visit, public factors); its
//! private factors are its own and are carried by a ledger, as at a site. Both neighbours have the same coins, draws and noise. The noise of a
//! sum is drawn before a record is touched, so the difference of the two noised integer sums is that of the un-noised ones, exactly; of
//! aggregated sums, whose masks are equal too, modulo 2⁶⁴. All blocks of a message are in that one vector. A visit of several steps is driven
//! step by step: a bound on every step is more than the sum that `Composed` charges.
//!
//! λ is chosen by an adversary: it stays where it began, it is what the rule makes of data set A's releases, it is random, and at the end of each
//! path a small search maximises over λ the distance between the two data sets.
//!
//! The rows come from the enums that `task.toml` is read into. The [catalogue](dp_pvi_catalogue) must have every kind of update; every row is tried with every state of a
//! factor, unit, relation and trust, and runs wherever the resolver lets it. Options of the updates have rows of their own ([`options`]).

mod options;

use std::collections::BTreeMap;

use chacha20::ChaCha20Rng;
use chacha20::rand_core::{Rng, SeedableRng};
use dp_pvi_accounting::{DiscreteGaussian, DpEvent, Epsilon, LatticePath, PrivacyUnit, Relation};
use dp_pvi_catalogue::{Model, Named as _, Update, schema};
use dp_pvi_names::{Hash, Payload};
use dp_pvi_posterior::methods::VisitSum;
use dp_pvi_posterior::task::{
    DpOptimisationSpec, FactorState, RawTask, ResolveContext, ResolvedTask, ShardMethod, SiteStateForm, Trust, UpdateKind, UpdateSpec,
};
use dp_pvi_privacy::danger::assume_signed;
use dp_pvi_privacy::ledger::memory::MemoryStore;
use dp_pvi_privacy::ledger::{Attachment, Budget, LedgerIdentity};
use dp_pvi_privacy::mechanism::Message;
use dp_pvi_privacy::{Ledger, Pending, SiteState, Units};
use ed25519_dalek::SigningKey;
use serde_json::{Value, json};

use super::conformance::{RawUnits, Records, intruders, model, models, units, updates};
use super::dp_optimisation::{self, GradientSum, Iterate};
use super::{Job, Local, bcm, run};
use crate::InferenceError;
use crate::testing::{SeededNoise, permit_under, register_guests, release, table_for};
use dp_pvi_unsealed::Unsealed;

/// Visits of tasks whose sites keep a private state: what one unit moved adds up there.
const PRIVATE_VISITS: &str = "rounds = 6";

/// Of so many rows one runs in the quick tier. It shares no factor with the numbers of units, relations and trusts, so that all of them come up.
const QUICK: usize = 29;

/// Candidates of the search for the worst λ, at the end of each path.
const TRIED: usize = 6;

/// How λ goes through a run.
#[derive(Debug, Clone, Copy)]
enum Path {
    /// It stays where it began, and every update is included.
    Fixed,
    /// The rule's, of what data set A sent.
    Honest,
    /// Anything, and updates are included or not.
    Random,
}

/// Two neighbouring data sets.
struct Neighbours {
    a: RawUnits,
    b: RawUnits,
}

/// A site in one of the neighbours: its records, its state, and the ledger that carries the state if it is private.
struct Site {
    units: Units<dp_pvi_records::RecordTable>,
    ledger: Ledger<MemoryStore, SigningKey>,
    state: SiteState,
}

impl Site {
    fn new(task: &ResolvedTask, raw: &RawUnits) -> Self {
        let identity = LedgerIdentity { data: "carried".into(), unit: task.privacy.unit, relation: task.privacy.relation };
        let budget =
            Budget { epsilon: Epsilon::INFINITE, delta: task.privacy.delta, per_run: None, max_fallback: None, allow_non_private: false };
        let ledger = Ledger::open(MemoryStore::new(Unsealed), SigningKey::from_bytes(&[7; 32]), identity, budget).unwrap();
        Self { units: Units::new(table_for(task, raw)), ledger, state: SiteState::None }
    }

    /// Moves the state as a ledger does when an update was included, or was not.
    fn settle(&mut self, event: &DpEvent, visit: u32, sent: Sent, included: bool, rho: f64) {
        let release = release(visit);
        match sent.pending {
            Pending::Private(_) => {
                self.ledger.reserve(&release, event, Hash::default()).unwrap();
                self.ledger.commit(&release, &sent.attachment()).unwrap();
                self.state = self.ledger.settle(&release, included, rho).unwrap();
            }
            Pending::Public(change) if included => {
                let old = self.state.public(change.get().len()).unwrap();
                self.state = SiteState::Public(old.iter().zip(change.get()).map(|(s, c)| s + rho * c).collect());
            }
            Pending::Public(_) | Pending::None => {}
        }
    }
}

/// What a site sent, and how it would move its state.
struct Sent {
    payload: Masked,
    pending: Pending,
}

/// A payload as it goes to the server.
enum Masked {
    Open(dp_pvi_privacy::Released<Payload>),
    Under(dp_pvi_privacy::mechanism::Masked<dp_pvi_names::LatticeVector>),
}

impl Sent {
    fn attachment(self) -> Attachment {
        match self.payload {
            Masked::Open(payload) => assume_signed(Unsealed, vec![1], payload.into_inner(), self.pending),
            Masked::Under(payload) => assume_signed(Unsealed, vec![1], Payload::Masked(payload.into_inner()), self.pending),
        }
    }

    /// Integers of the lattice, where the message is a sum.
    fn integers(&self) -> Option<&[i64]> {
        match &self.payload {
            Masked::Open(payload) => match payload.get() {
                Payload::Lattice(sum) => Some(&sum.values),
                Payload::Values(_) | Payload::Masked(_) => None,
            },
            Masked::Under(payload) => Some(&payload.get().values),
        }
    }
}

/// Where a visit takes place.
#[derive(Clone, Copy)]
struct At<'a> {
    task: &'a ResolvedTask,
    visit: u32,
    lambda: &'a [f64],
}

fn visit(at: At<'_>, site: &Site) -> Result<Sent, InferenceError> {
    let At { task, visit, lambda } = at;
    let permit = permit_under(task.privacy.unit, task.privacy.relation, &task.visit_event(visit).unwrap(), visit);
    let job = Job { site: None, task, visit, lambda, state: &site.state };
    let output = run(&job, &site.units, permit, &SeededNoise::new(11))?;
    let payload = match output.message {
        Message::Released(payload) => Masked::Open(payload),
        Message::Share(share) => Masked::Under(share.mask(&mut ChaCha20Rng::seed_from_u64(u64::from(visit)))),
    };
    Ok(Sent { payload, pending: output.pending })
}

/// The discrete noise of one step of an event.
fn noise(event: &DpEvent) -> DiscreteGaussian {
    match event {
        DpEvent::DiscreteGaussian(noise) => *noise,
        DpEvent::PoissonSampled { event, .. } | DpEvent::RandomAllocation { event, .. } | DpEvent::Composed { event, .. } => noise(event),
        other => panic!("an update that is protected has another event: {other:?}"),
    }
}

fn is_sampled(event: &DpEvent) -> bool {
    match event {
        DpEvent::PoissonSampled { .. } | DpEvent::RandomAllocation { .. } => true,
        DpEvent::Composed { event, .. } => is_sampled(event),
        _ => false,
    }
}

/// Distance of two sums over what the event charges for one unit.
fn share(task: &ResolvedTask, event: &DpEvent, a: &[i64], b: &[i64]) -> f64 {
    let noise = noise(event);
    let factor = task.privacy.relation.sensitivity_factor(noise.terms);
    let charged = factor * (noise.bound_squared as f64).sqrt() + noise.excess as f64;
    assert_eq!((a.len(), b.len()), (noise.dimension as usize, noise.dimension as usize));
    // Masked words wrap around.
    let distance = a.iter().zip(b).map(|(a, b)| (a.wrapping_sub(*b) as f64).powi(2)).sum::<f64>().sqrt();
    distance / charged
}

/// Both neighbours at one λ: what was sent and the largest share of the charge; `None` where λ is none of this task, in both neighbours.
fn both(at: At<'_>, a: &Site, b: &Site) -> Option<(Sent, Sent, f64)> {
    let event = at.task.visit_event(at.visit).unwrap();
    let (sent_a, sent_b) = match (visit(at, a), visit(at, b)) {
        (Ok(a), Ok(b)) => (a, b),
        (Err(a), Err(b)) => {
            assert_eq!(a.to_string(), b.to_string(), "the neighbours are refused for different reasons");
            return None;
        }
        (a, b) => panic!("only one data set is refused: {:?} {:?}", a.err(), b.err()),
    };
    let share = match (sent_a.integers(), sent_b.integers()) {
        (Some(a), Some(b)) => share(at.task, &event, a, b),
        _ => inside(at, a, b, &sent_a),
    };
    Some((sent_a, sent_b, share))
}

/// The steps of a visit whose message is the fit that they make. Data set B takes its gradients where data set A does.
fn inside(at: At<'_>, a: &Site, b: &Site, sent: &Sent) -> f64 {
    let At { task, visit, lambda } = at;
    let job = Job { site: None, task, visit, lambda, state: &a.state };
    let (spec, local): (&DpOptimisationSpec, Local) = match &task.update {
        UpdateSpec::DpOptimisation(spec) => (spec, dp_optimisation::local(spec, &job).unwrap()),
        UpdateSpec::Bcm(spec) => (&spec.fit, bcm::local(spec, &job).unwrap()),
        other => panic!("{other}: no sum is sent and no steps are known"),
    };
    let event = task.visit_event(visit).unwrap();
    let gradients = GradientSum::new(spec, &task.model, &local.scales).unwrap();
    let permits = || permit_under(task.privacy.unit, task.privacy.relation, &event, visit).into_steps();
    let (noise, mut iterate, mut worst) = (SeededNoise::new(11), Iterate::start(spec, &local).unwrap(), 0.0f64);
    for (permit_a, permit_b) in permits().zip(permits()) {
        let sum =
            |site: &Site, permit| gradients.release((iterate.point(), iterate.clip()), &site.units, permit, &noise).unwrap().into_inner();
        let (sum_a, sum_b) = (sum(a, permit_a), sum(b, permit_b));
        worst = worst.max(share(task, &event, &sum_a.values, &sum_b.values));
        iterate = iterate.advance(&sum_a.to_f64());
    }
    // These steps are the visit that ran.
    let Masked::Open(payload) = &sent.payload else { panic!("a fit has no mask") };
    assert_eq!(
        payload.get(),
        &Payload::Values(iterate.message(local.global.natural())),
        "the steps that were looked at are not those that ran"
    );
    worst
}

/// Another λ near this one: numbers of h move and are stretched, precisions are stretched only.
fn perturbed(task: &ResolvedTask, state: &[f64], size: f64, rng: &mut ChaCha20Rng) -> Vec<f64> {
    let mut uniform = || f64::from(rng.next_u32()) / 2_147_483_648.0 - 1.0;
    let d = task.family().dimension();
    let move_by = |(i, value): (usize, &f64)| {
        let stretched = value * (2.0 * size * uniform()).exp();
        if i < d { stretched + 2.0 * size * uniform() } else { stretched }
    };
    state.iter().enumerate().map(move_by).collect()
}

/// A state that the rule reaches from this one, for any sum whatever.
fn reached(task: &ResolvedTask, visit: u32, state: &[f64], size: f64, rng: &mut ChaCha20Rng) -> Vec<f64> {
    let coordinates = usize::try_from(task.message(visit).unwrap().coordinates).unwrap();
    let sum: Vec<f64> = (0..coordinates).map(|_| 4.0 * size * (f64::from(rng.next_u32()) / 2_147_483_648.0 - 1.0)).collect();
    task.rule().apply(state, &VisitSum { visit, sites: 1, sum: &sum }).state
}

/// The largest share of the charge along a path of λ and in a search at its end.
fn along(task: &ResolvedTask, neighbours: &Neighbours, path: Path, seed: u64) -> f64 {
    let rng = &mut ChaCha20Rng::seed_from_u64(seed);
    let (mut a, mut b) = (Site::new(task, &neighbours.a), Site::new(task, &neighbours.b));
    let mut lambda = task.rule().initial();
    let mut worst = 0.0f64;
    for number in 0..task.visits() {
        let at = At { task, visit: number, lambda: &lambda };
        if number + 1 == task.visits() {
            worst = worst.max(searched(at, &a, &b, rng));
        }
        let event = task.visit_event(number).unwrap();
        // A λ that does not fit a public state ends the run: anyone who has the transcript knows that beforehand.
        let Some((sent_a, sent_b, share)) = both(at, &a, &b) else { break };
        worst = worst.max(share);
        let (rho, included) = (task.damping[number as usize], !matches!(path, Path::Random) || rng.next_u32() % 4 > 0);
        let next = match path {
            Path::Fixed => lambda.clone(),
            Path::Honest => match sent_a.integers() {
                // Under a mask the words say nothing: the adversary takes any sum.
                _ if task.privacy.trust == Trust::Aggregated => reached(task, number, &lambda, 1.0, rng),
                _ => {
                    let Masked::Open(payload) = &sent_a.payload else { panic!("local trust has no masks") };
                    let sum = match payload.get() {
                        Payload::Lattice(sum) => sum.to_f64(),
                        Payload::Values(values) => values.clone(),
                        Payload::Masked(_) => panic!("local trust has no masks"),
                    };
                    task.rule().apply(&lambda, &VisitSum { visit: number, sites: 1, sum: &sum }).state
                }
            },
            Path::Random => {
                let next = if rng.next_u32().is_multiple_of(2) {
                    perturbed(task, &lambda, 0.5, rng)
                } else {
                    reached(task, number, &lambda, 2.0, rng)
                };
                let at = At { task, visit: number, lambda: &next };
                if visit(at, &a).is_ok() { next } else { lambda.clone() }
            }
        };
        a.settle(&event, number, sent_a, included, rho);
        if let SiteState::Public(values) = &a.state {
            // Anyone who has the transcript can compute a public state: it is data set A's.
            b.state = SiteState::Public(values.clone());
        } else {
            b.settle(&event, number, sent_b, included, rho);
        }
        lambda = next;
    }
    worst
}

/// Searches for the λ of a visit at which the two data sets differ most.
fn searched(at: At<'_>, a: &Site, b: &Site, rng: &mut ChaCha20Rng) -> f64 {
    let (mut best, mut worst, mut size) = (at.lambda.to_vec(), 0.0f64, 1.0);
    for tried in 0..TRIED {
        let candidate = match tried % 3 {
            0 => reached(at.task, at.visit, &best, size, rng),
            _ => perturbed(at.task, &best, size, rng),
        };
        if let Some((.., share)) = both(At { lambda: &candidate, ..at }, a, b)
            && share > worst
        {
            (best, worst) = (candidate, share);
        } else {
            size *= 0.7;
        }
    }
    worst
}

/// Units that pull as hard as their kind of records can, in opposite directions.
fn strong(records: Records, features: usize) -> [Vec<(Vec<f64>, f64)>; 2] {
    let row = |x: f64, y: f64| (vec![x; features], y);
    let first = |n: f64, last: bool| {
        let mut row = vec![0.0; features];
        row[if last { features - 1 } else { 0 }] = n;
        row
    };
    match records {
        Records::Classes => [vec![row(1.0, 1.0)], vec![row(1.0, 0.0)]],
        Records::Several | Records::Ordered => [vec![row(1.0, 2.0)], vec![row(1.0, 0.0)]],
        Records::Times => [vec![row(1.0, -0.5)], vec![row(1.0, 10.0)]],
        Records::Numbers => [vec![row(1.0, 10.0)], vec![row(-1.0, 10.0)]],
        Records::Positive => [vec![row(1.0, 10.0)], vec![row(-1.0, 10.0)]],
        Records::Points => [vec![row(1.0, 10.0)], vec![row(-1.0, 0.0)]],
        Records::Documents => [vec![(first(20.0, false), 0.0)], vec![(first(20.0, true), 0.0)]],
        Records::Images => [vec![row(1.0, 0.0)], vec![row(0.0, 0.0)]],
    }
}

/// Neighbours of a data set: strong units of opposite directions, a strong one and nothing, any two, and one that no schema lets pass. The other
/// units are loud, or graded: then at every visit some of them have just come within the clip, and a state that they share shows in their terms.
fn neighbours(task: &ResolvedTask, records: Records, event: &DpEvent) -> Vec<Neighbours> {
    let features = task.features as usize;
    let base = units(task, records, 5, 14);
    let mut graded = base.clone();
    if !matches!(records, Records::Documents | Records::Images) {
        for (unit, share) in graded.iter_mut().zip(std::iter::successors(Some(1.0), |share| Some(0.7 * share))) {
            for (row, target) in unit {
                row.iter_mut().for_each(|x| *x *= share);
                *target *= if matches!(records, Records::Classes | Records::Several | Records::Ordered) { 1.0 } else { share };
            }
        }
    }
    let mut pulls = strong(records, features);
    if task.privacy.unit == PrivacyUnit::Person {
        // Everything that a person has is exchanged, however much it is.
        pulls = pulls.map(|records| vec![records; 4].concat());
    }
    let [up, down] = pulls;
    if task.privacy.unit == PrivacyUnit::Site {
        // Everything that the site holds is exchanged.
        let all = |unit: &Vec<(Vec<f64>, f64)>| vec![unit.clone(); 9];
        return vec![
            Neighbours { a: all(&up), b: all(&down) },
            Neighbours { a: base.clone(), b: vec![] },
            Neighbours { a: base, b: intruders(features) },
        ];
    }
    let mut odd = intruders(features);
    let odd = odd.swap_remove(3);
    match task.privacy.relation {
        Relation::ReplaceOne => {
            let with = |unit: &Vec<(Vec<f64>, f64)>| {
                let mut raw = base.clone();
                raw[5] = unit.clone();
                raw
            };
            vec![
                Neighbours { a: with(&up), b: with(&down) },
                Neighbours { a: with(&up), b: with(&odd) },
                Neighbours { a: base.clone(), b: with(&vec![]) },
            ]
        }
        Relation::AddRemove => {
            // Coins and draws are taken in the order of units: a unit that comes last leaves those of the others where they are. They are
            // independent, so that is as good as any coupling. Without either it may stand anywhere.
            let anywhere = !is_sampled(event) && noise(event).path == LatticePath::Term;
            let with = |base: &RawUnits, unit: &Vec<(Vec<f64>, f64)>| {
                let mut raw = base.clone();
                raw.insert(if anywhere { 5 } else { raw.len() }, unit.clone());
                raw
            };
            vec![
                Neighbours { a: base.clone(), b: with(&base, &up) },
                Neighbours { a: graded.clone(), b: with(&graded, &up) },
                Neighbours { a: base.clone(), b: with(&base, &odd) },
                Neighbours { a: vec![], b: vec![up.clone()] },
            ]
        }
    }
}

/// The largest share of the charge over neighbours and paths.
fn worst(task: &ResolvedTask, records: Records) -> f64 {
    over(task, records, &[Path::Fixed, Path::Honest, Path::Random], usize::MAX)
}

/// The same over these paths and the first neighbours.
fn over(task: &ResolvedTask, records: Records, paths: &[Path], pairs: usize) -> f64 {
    let mut worst = 0.0f64;
    for (number, neighbours) in neighbours(task, records, &task.visit_event(0).unwrap()).iter().take(pairs).enumerate() {
        for &path in paths {
            worst = worst.max(along(task, neighbours, path, number as u64));
        }
    }
    worst
}

/// Every kind of update, in the order of the enum: a new one does not compile here until it is in the list.
fn kinds() -> Vec<UpdateKind> {
    use UpdateKind::{
        Bcm, ClientLevel, DpEm, DpOptimisation, Ep, GlobalVi, LocalAveraging, NaturalGradient, ParameterPerturbation, Pvi, Sep, Vips,
        VirtualClients,
    };
    let after = |kind| match kind {
        Pvi => Some(DpOptimisation),
        DpOptimisation => Some(NaturalGradient),
        NaturalGradient => Some(Bcm),
        Bcm => Some(GlobalVi),
        GlobalVi => Some(ParameterPerturbation),
        ParameterPerturbation => Some(LocalAveraging),
        LocalAveraging => Some(VirtualClients),
        VirtualClients => Some(ClientLevel),
        ClientLevel => Some(Vips),
        Vips => Some(Sep),
        Sep => Some(Ep),
        Ep => Some(DpEm),
        DpEm => None,
    };
    std::iter::successors(Some(Pvi), |kind| after(*kind)).collect()
}

/// Every state of a factor.
fn states() -> Vec<FactorState> {
    let after = |state| match state {
        FactorState::Released => Some(FactorState::Tied),
        FactorState::Tied => Some(FactorState::PrivateClean),
        FactorState::PrivateClean => None,
    };
    std::iter::successors(Some(FactorState::Released), |state| after(*state)).collect()
}

/// Every unit of privacy.
fn privacy_units() -> Vec<PrivacyUnit> {
    let after = |unit| match unit {
        PrivacyUnit::Record => Some(PrivacyUnit::Person),
        PrivacyUnit::Person => Some(PrivacyUnit::Site),
        PrivacyUnit::Site => None,
    };
    std::iter::successors(Some(PrivacyUnit::Record), |unit| after(*unit)).collect()
}

/// Both relations.
fn relations() -> Vec<Relation> {
    let after = |relation| match relation {
        Relation::ReplaceOne => Some(Relation::AddRemove),
        Relation::AddRemove => None,
    };
    std::iter::successors(Some(Relation::ReplaceOne), |relation| after(*relation)).collect()
}

/// Both kinds of trust.
fn trusts() -> Vec<Trust> {
    let after = |trust| match trust {
        Trust::Local => Some(Trust::Aggregated),
        Trust::Aggregated => None,
    };
    std::iter::successors(Some(Trust::Local), |trust| after(*trust)).collect()
}

/// As a task file writes it.
fn text(value: &Value) -> String {
    value.as_str().unwrap().to_owned()
}

/// The kind of an update of the catalogue.
fn kind_of(update: &Update) -> UpdateKind {
    kinds().into_iter().find(|kind| text(&json!(kind)) == update.kind()).unwrap()
}

/// What a task names.
#[derive(Debug, Clone, Copy)]
struct Named {
    kind: UpdateKind,
    /// Where the update has a factor whose state may be chosen.
    state: Option<FactorState>,
    unit: PrivacyUnit,
    relation: Relation,
    trust: Trust,
}

fn resolve(model: &Model, pvi: &str, named: Named) -> Result<ResolvedTask, String> {
    register_guests();
    let Named { kind, state, unit, relation, trust } = named;
    let state = state.map_or_else(String::new, |state| format!("\nstate = \"{}\"", text(&json!(state))));
    let epsilon = if kind == UpdateKind::Pvi { "" } else { "epsilon = 1.0\n" };
    let aggregation = if trust == Trust::Aggregated {
        "[aggregation]\nsites = 4\nmax_units = 60\nmax_rounding_loss = 1.0\n"
    } else {
        "max_units = 1000000\n"
    };
    let task = format!(
        "[model]\n{}\n[schema]\nfile = \"s\"\n[pvi]\n{pvi}{state}\n[privacy]\nunit = \"{}\"\nadjacency = \"{}\"\n{epsilon}delta = 1e-5\n\
         trust = \"{}\"\n{aggregation}",
        model.options(),
        text(&json!(unit)),
        text(&json!(relation)),
        text(&json!(trust))
    );
    let context = ResolveContext { name: "t", update_deadline_seconds: 60, min_sites: 1, expected_sites: 4 };
    RawTask::parse(&task).map_err(|e| e.to_string())?.resolve(&schema(model.records, unit), context).map_err(|e| e.to_string())
}

/// Whether such a task is let through, and why not: the table beside which nothing is.
fn refusal(pvi: &str, records: Records, named: Named) -> Option<&'static str> {
    let Named { kind, state, unit, relation, trust } = named;
    let of_sites = kind == UpdateKind::ClientLevel || pvi.contains("site_passes");
    let many_files = matches!(records, Records::Documents | Records::Images);
    if (unit == PrivacyUnit::Site) != of_sites {
        Some("the unit is not what the update protects")
    } else if unit == PrivacyUnit::Site && relation == Relation::AddRemove {
        Some("everybody sees which sites take part")
    } else if unit == PrivacyUnit::Person && many_files {
        Some("documents and images have no column that says whose they are")
    } else if unit == PrivacyUnit::Person
        && relation == Relation::ReplaceOne
        && matches!(kind, UpdateKind::LocalAveraging | UpdateKind::VirtualClients)
    {
        Some("one person's records decide the positions of others, and so their shards")
    } else if kind == UpdateKind::LocalAveraging && state == Some(FactorState::PrivateClean) {
        Some("one record would move the terms of all shards")
    } else if trust == Trust::Aggregated && state == Some(FactorState::Released) {
        Some("nobody sees what one site sends")
    } else if trust == Trust::Aggregated
        && (matches!(kind, UpdateKind::Pvi | UpdateKind::DpOptimisation | UpdateKind::Bcm) || !pvi.contains("\"synchronous\""))
    {
        Some("there is no sum of sites")
    } else {
        None
    }
}

/// One row for every pair of a model and an update that it serves, and everything that may be named beside it.
fn rows() -> impl Iterator<Item = (String, &'static Model, String, Named)> {
    let all = |kind| {
        let of_factors = matches!(
            kind,
            UpdateKind::ParameterPerturbation | UpdateKind::LocalAveraging | UpdateKind::VirtualClients | UpdateKind::ClientLevel
        );
        let states: Vec<Option<FactorState>> = if of_factors { states().into_iter().map(Some).collect() } else { vec![None] };
        let mut all = Vec::new();
        for state in states {
            for unit in privacy_units() {
                for relation in relations() {
                    all.extend(trusts().into_iter().map(|trust| Named { kind, state, unit, relation, trust }));
                }
            }
        }
        all
    };
    models().flat_map(move |model| {
        let pairs = updates().map(|update| (update, update.options(40)));
        let pairs = pairs.filter(|(update, pvi)| model.is_served_by(update.name) && !pvi.contains("state ="));
        pairs.flat_map(move |(update, pvi)| {
            let name = move |named: Named| (format!("{} of {}, {named:?}", update.name, model.name), model, pvi.clone(), named);
            all(kind_of(update)).into_iter().map(name)
        })
    })
}

/// With as many visits as a private state needs.
fn longer(pvi: &str) -> String {
    pvi.lines().map(|line| if line.starts_with("rounds =") { PRIVATE_VISITS } else { line }).collect::<Vec<_>>().join("\n")
}

/// The registry of what a task may name is this suite's list of rows: nothing is accepted that does not run here.
#[test]
fn every_kind_of_update_has_a_row() {
    for kind in kinds() {
        assert!(rows().any(|(.., named)| named.kind == kind), "{kind:?} has no entry in the catalogue, or no model that it serves");
    }
}

/// One row in [`QUICK`], and every row in the long tier: the rows that run say which kinds of state, relation and trust they had.
#[test]
fn no_unit_of_a_part_of_the_rows_moves_a_sum_by_more_than_is_charged() {
    rows_move_within_what_is_charged(QUICK);
}

#[test]
#[ignore = "long: tests/long.sh carried"]
fn no_unit_moves_a_sum_by_more_than_is_charged_however_long_the_state_was_carried() {
    rows_move_within_what_is_charged(1);
}

fn rows_move_within_what_is_charged(step: usize) {
    let (mut ran, mut largest): (BTreeMap<String, u32>, f64) = (BTreeMap::new(), 0.0);
    for (name, model, pvi, named) in rows().step_by(step) {
        let (pvi, records) = (pvi.as_str(), model.records);
        let task = match (resolve(model, pvi, named), refusal(pvi, records, named)) {
            (Ok(task), None) => task,
            (Err(_), Some(_)) => continue,
            (Ok(_), Some(why)) => panic!("{name} is accepted, although {why}"),
            (Err(error), None) => panic!("{name} is refused: {error}"),
        };
        let task = match task.site_state() {
            SiteStateForm::Private(_) => resolve(model, &longer(pvi), named).unwrap(),
            SiteStateForm::None | SiteStateForm::Public(_) => task,
        };
        if !task.update.is_private() {
            assert_eq!(named.kind, UpdateKind::Pvi, "{name}: only this one is not protected");
            continue;
        }
        let found = worst(&task, records);
        assert!(found <= 1.0 + 1e-12, "{name}: {found} times what is charged");
        largest = largest.max(found);
        let state = match task.site_state() {
            SiteStateForm::None => "none",
            SiteStateForm::Public(_) => "public",
            SiteStateForm::Private(_) => "private",
        };
        *ran.entry(format!("{state}, {}, {}", text(&json!(named.relation)), text(&json!(named.trust)))).or_default() += 1;
    }
    // The charge is all but reached, so the suite can fail; and no kind of state, relation or trust was left out.
    assert!(largest > 0.97, "{largest}");
    for kept in ["none", "public", "private"] {
        for relation in ["replace-one", "add-remove"] {
            assert!(
                ran.get(&format!("{kept}, {relation}, local")).is_some_and(|count| step > 1 || *count >= 5),
                "{kept}, {relation}: {ran:?}"
            );
        }
    }
    assert!(ran.iter().filter(|(name, count)| name.ends_with("aggregated") && (step > 1 || **count >= 5)).count() >= 3, "{ran:?}");
}

/// What the suite is for. The shards of local averaging start from the site's one factor. Where that holds what the site's records say, one
/// record moves the terms of all shards as soon as λ is where that matters. No task may say so; here the job is made without one.
#[test]
fn a_private_factor_that_all_shards_share_is_found_out() {
    let pvi = "schedule = \"synchronous\"\nrounds = 10\ndamping = 1.0\nupdate = \"local-averaging\"\nshards = 8\nclip_norm = 1.0";
    let model = model("linear-regression");
    let records = model.records;
    for relation in relations() {
        let named = Named {
            kind: UpdateKind::LocalAveraging,
            state: Some(FactorState::Tied),
            unit: PrivacyUnit::Record,
            relation,
            trust: Trust::Local,
        };
        let tied = resolve(model, pvi, named).unwrap();
        assert!(worst(&tied, records) <= 1.0 + 1e-12);
        let UpdateSpec::Shards(mut spec) = tied.update.clone() else { panic!("shards") };
        assert_eq!((spec.method, spec.state), (ShardMethod::LocalAveraging, FactorState::Tied));
        spec.state = FactorState::PrivateClean;
        let clean = ResolvedTask { update: UpdateSpec::Shards(spec), ..tied };
        let found = worst(&clean, records);
        assert!(found > 1.2, "{relation:?}: the suite sees {found} times what is charged, and should see more");
    }
}
