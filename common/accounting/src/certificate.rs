//! Certificates: a claim about a plan or a run with everything that a program of its own needs to check it.
//!
//! The format is described in the guide, on the page about certificates. What checks it is `dp-pvi-verifier`, which shares no code with this
//! crate; everything but events, relation, ε and δ is a hint to it that it does not believe.

use serde::Serialize;
use sha2::{Digest, Sha256};

use super::AccountantError;
use super::losses::{NARROWER, REACH, addition};
use super::plan::Plan;
use super::pld::Hints;
use super::steps::{Mechanism, Neighbours, Phase, Sampling};
use super::{CONTINUOUS_FROM, LARGEST_SHIFT, check_cells, repetitions};
use crate::adjacency::{Relation, Terms};
use crate::event::{DiscreteGaussian, DpEvent};
use crate::unit::{Delta, Epsilon, SamplingRate};

/// The first field of every certificate.
const FORMAT: &str = "dp-pvi-certificate-1";

/// Slack of the first try, relative to ε but not below [`SMALL`]; and where there is a closed form.
const SLACK: f64 = 2e-5;
const CLOSED: f64 = 1e-9;
/// ... below this ε it is absolute.
const SMALL: f64 = 0.05;
/// Each try has twice the slack of the one before: the last one has a third of ε.
const TRIES: i32 = 15;
/// Shares of the room that a stated ε has above the true one.
const ROOMS: [f64; 3] = [0.9, 0.5, 0.25];

/// A certificate. Its fields are in the order of the format.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Certificate {
    format: &'static str,
    relation: Neighbours,
    delta: f64,
    epsilon: f64,
    slack: f64,
    binding: Option<[String; 3]>,
    events: Vec<Event>,
    proofs: Vec<Proof>,
}

/// What a certificate belongs to, by hashes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Binding {
    /// The run.
    pub run: [u8; 32],
    /// Its task.
    pub task: [u8; 32],
    /// The ledger's events.
    pub ledger: [u8; 32],
}

impl Binding {
    /// What a certificate of run `number` of a task is bound to. `events` are those with which a ledger charges the run, in its order: their
    /// canonical bytes and the visits of each.
    ///
    /// All hashes are SHA-256 of text that a person can write: the run's is of `TASK/NUMBER`, the events' of a line `BYTES VISITS` for each, hashes and bytes in
    /// lower-case hexadecimal digits.
    #[must_use]
    pub fn of_run(task: [u8; 32], number: u32, events: &[(Vec<u8>, u64)]) -> Self {
        let lines: String = events.iter().map(|(bytes, visits)| format!("{} {visits}\n", hexadecimal(bytes))).collect();
        let hash = |text: String| Sha256::digest(text.as_bytes()).into();
        Self { run: hash(format!("{}/{number}", hexadecimal(&task))), task, ledger: hash(lines) }
    }

    /// As a certificate says it.
    #[must_use]
    pub fn to_text(&self) -> [String; 3] {
        [self.run, self.task, self.ledger].map(|hash| hexadecimal(&hash))
    }
}

#[derive(Debug, Clone, PartialEq, Serialize)]
struct Event {
    noise: Noise,
    sampling: How,
    count: u64,
}

/// In the order of the format, as [`How`] is.
#[derive(Debug, Clone, Copy, PartialEq, PartialOrd, Serialize)]
#[serde(rename_all = "snake_case")]
enum Noise {
    Gaussian(f64),
    DiscreteGaussian(f64, u64),
    /// Scale, squared bound, excess, shares, numbers.
    FineDiscreteGaussian(u64, u128, u64, u32, u32),
    /// Scale, squared bound, shares, numbers, of a sum of terms that the gate checked as cells.
    FineCells(u64, u128, u32, u32),
}

/// The verifier has no such pair.
const REPLACED_IN_ALLOCATION: AccountantError =
    AccountantError::Unsupported("a certificate of a random allocation in which a unit is replaced");

#[derive(Debug, Clone, Copy, PartialEq, PartialOrd, Serialize)]
#[serde(rename_all = "snake_case")]
enum How {
    None,
    Poisson(f64),
    FixedBatch(f64),
    RandomAllocation(u64),
}

#[derive(Debug, Clone, PartialEq, Serialize)]
struct Proof {
    width: f64,
    points: u64,
    first: i64,
    tilt: f64,
    truncation: f64,
    rounding: f64,
    parts: Vec<(f64, i64, i64, u32)>,
}

impl Event {
    fn of(phase: &Phase, relation: Neighbours) -> Result<Self, AccountantError> {
        let noise = match phase.mechanism {
            Mechanism::Gaussian { sigma } => Noise::Gaussian(sigma),
            Mechanism::DiscreteGaussian { scale, sensitivity } => Noise::DiscreteGaussian(scale, sensitivity),
            Mechanism::Laplace { .. } | Mechanism::Zcdp { .. } | Mechanism::Approximate { .. } => {
                return Err(AccountantError::Unsupported("a certificate of anything but Gaussian noise"));
            }
        };
        let sampling = match phase.sampling {
            Sampling::None | Sampling::ShuffledPasses(_) => How::None,
            Sampling::Poisson(q) => How::Poisson(q),
            Sampling::WithoutReplacement(q) => How::FixedBatch(q),
            Sampling::RandomAllocation(1) => How::None,
            Sampling::RandomAllocation(_) if relation == Neighbours::ReplaceOne => return Err(REPLACED_IN_ALLOCATION),
            Sampling::RandomAllocation(batches) => How::RandomAllocation(batches),
        };
        Ok(Self { noise, sampling, count: phase.steps })
    }

    /// What a ledger's event is, whether the terms in it change rather than appear, and the phase that it is to a plan.
    fn of_ledger(event: &DpEvent, visits: u64, relation: Relation) -> Result<(Self, bool, Phase), AccountantError> {
        const OTHER: AccountantError = AccountantError::Unsupported("a certificate of anything but Gaussian noise, and samples of it");
        let (mechanism, count) = repetitions(event)?;
        check_cells(mechanism)?;
        let count = count.checked_mul(visits).ok_or(AccountantError::Unsupported("more than 2^64 repetitions"))?;
        let (released, mut sampling) = match mechanism {
            DpEvent::PoissonSampled { rate, event } if rate.numerator() < SamplingRate::DENOMINATOR => {
                (event.as_ref(), How::Poisson(rate.get()))
            }
            DpEvent::PoissonSampled { event, .. } | DpEvent::ShuffledPass { event } => (event.as_ref(), How::None),
            DpEvent::FixedBatch { batch, units, event } if (1..=*units).contains(batch) => {
                #[allow(clippy::cast_precision_loss, reason = "rounded up")]
                let rate = (*batch as f64 / *units as f64 * (1.0 + 4.0 * f64::EPSILON)).min(1.0);
                (event.as_ref(), How::FixedBatch(rate))
            }
            DpEvent::RandomAllocation { batches: 1, event } => (event.as_ref(), How::None),
            DpEvent::RandomAllocation { batches, event } => (event.as_ref(), How::RandomAllocation(*batches)),
            other => (other, How::None),
        };
        let (noise, terms) = match released {
            DpEvent::Gaussian { noise, terms } if !released.sums_cells() => (Noise::Gaussian(noise.get()), *terms),
            DpEvent::DiscreteGaussian(noise) => (fine(noise, 1)?, noise.terms),
            DpEvent::NoiseShares { share, count } => (fine(share, *count)?, share.terms),
            _ => return Err(OTHER),
        };
        let replaced = relation.replaces(terms);
        match (mechanism, &sampling) {
            // A batch of all units that are replaced one by one is no sample.
            (_, How::FixedBatch(rate)) if *rate >= 1.0 && replaced => sampling = How::None,
            (_, How::RandomAllocation(_)) if replaced => return Err(REPLACED_IN_ALLOCATION),
            (DpEvent::ShuffledPass { .. }, _) if !replaced => return Err(AccountantError::Unsupported(super::steps::SHUFFLED)),
            _ => {}
        }
        let event = Self { noise, sampling, count };
        let phase = event.phase(replaced);
        Ok((event, replaced, phase))
    }

    /// What the event is to a plan: continuous noise, narrower by what rounding to the lattice takes away.
    #[allow(clippy::cast_precision_loss, reason = "hints, and the margin covers it")]
    fn phase(&self, replaced: bool) -> Phase {
        let sampling = match self.sampling {
            How::None => Sampling::None,
            How::Poisson(q) => Sampling::Poisson(q),
            How::FixedBatch(q) => Sampling::WithoutReplacement(q),
            How::RandomAllocation(batches) => Sampling::RandomAllocation(batches),
        };
        let mechanism = match self.noise {
            Noise::Gaussian(sigma) => Mechanism::Gaussian { sigma },
            Noise::DiscreteGaussian(scale, sensitivity) => Mechanism::DiscreteGaussian { scale, sensitivity },
            Noise::FineDiscreteGaussian(scale, squared, excess, shares, _) => {
                // A plan doubles the clipping norm where terms are replaced or change places, and a ledger does not double the excess.
                let terms = match self.sampling {
                    How::None if replaced => 2.0,
                    How::None | How::Poisson(_) | How::RandomAllocation(_) => 1.0,
                    How::FixedBatch(_) => 2.0,
                };
                let moved = terms * (squared as f64).sqrt() + excess as f64;
                let shift = moved / (scale as f64 * f64::from(shares).sqrt()) * NARROWER;
                Mechanism::Gaussian { sigma: (terms / shift).next_down() }
            }
            Noise::FineCells(scale, squared, shares, _) => {
                // The plan doubles here, too, where the sum moves by √2 times the bound.
                let terms: f64 = if replaced { 2.0 } else { 1.0 };
                let shift = terms.sqrt() * (squared as f64).sqrt() / (scale as f64 * f64::from(shares).sqrt()) * NARROWER;
                Mechanism::Gaussian { sigma: (terms / shift).next_down() }
            }
        };
        Phase { mechanism, sampling, steps: self.count }
    }

    /// Numbers with discrete noise that is accounted as continuous.
    fn numbers(&self) -> f64 {
        let releases = if let How::RandomAllocation(batches) = self.sampling { super::count(batches) } else { 1.0 };
        match self.noise {
            Noise::FineDiscreteGaussian(.., numbers) | Noise::FineCells(.., numbers) => {
                super::count(self.count) * releases * f64::from(numbers)
            }
            Noise::Gaussian(_) | Noise::DiscreteGaussian(..) => 0.0,
        }
    }
}

/// Discrete noise, or a sum of shares of it, on so fine a lattice that it may be accounted as continuous.
fn fine(noise: &DiscreteGaussian, shares: u32) -> Result<Noise, AccountantError> {
    let two = DiscreteGaussian { terms: Terms::Units, ..*noise }.sensitivity_ratio(Relation::ReplaceOne);
    if noise.scale < CONTINUOUS_FROM || shares == 0 || two / f64::from(shares).sqrt() > LARGEST_SHIFT {
        return Err(AccountantError::Unsupported("a certificate of noise on a lattice of fewer than 2^20 steps, or of next to no noise"));
    }
    if matches!(noise.terms, Terms::Cells { .. }) {
        if noise.excess > 0 {
            return Err(AccountantError::Unsupported("a certificate of a sum of cells that was rounded as a whole"));
        }
        return Ok(Noise::FineCells(noise.scale, noise.bound_squared, shares, noise.dimension));
    }
    Ok(Noise::FineDiscreteGaussian(noise.scale, noise.bound_squared, noise.excess, shares, noise.dimension))
}

impl From<Hints> for Proof {
    fn from(hints: Hints) -> Self {
        let parts = hints.parts.iter().map(|part| (part.offset, part.low, part.high, part.fineness)).collect();
        let Hints { width, points, first, tilt, truncation, rounding, .. } = hints;
        Self { width, points, first, tilt, truncation, rounding, parts }
    }
}

fn hexadecimal(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// What a certificate is to be about: events under a relation, at a δ.
#[derive(Debug, Clone)]
pub struct Claim {
    events: Vec<Event>,
    /// For each sampled event, which of the plan's grids is its own.
    places: Vec<usize>,
    plan: Plan,
    delta: Delta,
    /// The same less what discrete noise adds.
    rest: Delta,
}

/// Why there is no certificate.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum Uncertified<E: std::error::Error> {
    /// The events have none.
    #[error(transparent)]
    Accountant(#[from] AccountantError),
    /// The verifier did not accept the last one that was tried.
    #[error("none that was tried is accepted: {0}")]
    Refused(E),
}

impl Claim {
    /// The steps of a plan.
    ///
    /// # Errors
    /// A plan without steps or with an event that no certificate knows.
    pub fn of_plan(plan: &Plan, delta: Delta) -> Result<Self, AccountantError> {
        let events = plan.phases().iter().map(|phase| Event::of(phase, plan.relation())).collect::<Result<Vec<_>, _>>()?;
        let phases: Vec<_> = plan.phases().to_vec();
        Self::new(events.into_iter().zip(phases).collect(), plan.clone(), delta)
    }

    /// A run with these events, each with how many visits are it, under the relation of its task.
    ///
    /// # Errors
    /// No events, one that no certificate knows, terms that are replaced in one event and appear in another, or more numbers with discrete noise than δ has
    /// room for.
    pub fn of_run(events: &[(DpEvent, u64)], relation: Relation, delta: Delta) -> Result<Self, AccountantError> {
        let mut all: Vec<(Event, Phase)> = Vec::new();
        let mut kinds = [false; 2];
        for (event, visits) in events.iter().filter(|(_, visits)| *visits > 0) {
            let (event, replaced, phase) = Event::of_ledger(event, *visits, relation)?;
            kinds[usize::from(replaced)] = true;
            match all.iter_mut().find(|(known, _)| (known.noise, known.sampling) == (event.noise, event.sampling)) {
                Some((known, _)) => {
                    known.count = known.count.checked_add(event.count).ok_or(AccountantError::Unsupported("more than 2^64 repetitions"))?;
                }
                None => all.push((event, phase)),
            }
        }
        if kinds == [true; 2] {
            return Err(AccountantError::Unsupported("a certificate of units in one release and of shards in another"));
        }
        // Numbers of events are finite.
        let order = |event: &Event| (event.noise, event.sampling);
        all.sort_by(|a, b| order(&a.0).partial_cmp(&order(&b.0)).unwrap_or(std::cmp::Ordering::Equal));
        let mut plan = Plan::new(if kinds[1] { Neighbours::ReplaceOne } else { Neighbours::AddRemove });
        for (event, phase) in &all {
            plan.append(Phase { steps: event.count, ..*phase })?;
        }
        Self::new(all, plan, delta)
    }

    fn new(all: Vec<(Event, Phase)>, plan: Plan, delta: Delta) -> Result<Self, AccountantError> {
        const NONE: AccountantError = AccountantError::Unsupported("a certificate of nothing");
        if all.is_empty() {
            return Err(NONE);
        }
        let numbers = all.iter().map(|(event, _)| event.numbers()).sum();
        let rest = addition(numbers).and_then(|addition| Delta::new((delta.get() - addition) * (1.0 - 4.0 * f64::EPSILON)).ok());
        let rest = rest.ok_or(AccountantError::Unsupported("a certificate of more numbers with discrete noise than delta has room for"))?;
        let rest = if numbers > 0.0 { rest } else { delta };
        // Events that are the same to a plan share a grid.
        let gridded = |phase: &&Phase| !is_plain(phase);
        let grids: Vec<_> = plan.phases().iter().filter(gridded).map(Phase::key).collect();
        let places = all.iter().map(|(_, phase)| phase).filter(gridded);
        let places = places.map(|phase| grids.iter().position(|grid| *grid == phase.canonical(plan.relation()).key()).ok_or(NONE));
        let places = places.collect::<Result<_, _>>()?;
        Ok(Self { places, events: all.into_iter().map(|(event, _)| event).collect(), plan, delta, rest })
    }

    /// What neighbouring data sets differ by in a certificate: a term that changes is replaced, whether it is one unit's or a shard's.
    #[must_use]
    pub fn relation(&self) -> Neighbours {
        self.plan.relation()
    }

    /// The events as a certificate has them.
    #[must_use]
    pub fn events_text(&self) -> String {
        // Numbers and names: JSON knows all of these.
        serde_json::to_string(&self.events).expect("events serialise into memory")
    }

    /// Whether it has a closed form.
    fn is_plain(&self) -> bool {
        self.plan.phases().iter().all(is_plain)
    }

    /// A certificate of this ε, with hints for a check that may lose `room` of it. `slack` is what it says of itself.
    fn certificate(&self, (epsilon, slack): (f64, f64), room: f64, binding: Option<Binding>) -> Result<Certificate, AccountantError> {
        if !epsilon.is_finite() {
            return Err(AccountantError::Unsupported("a certificate of no protection"));
        }
        let mut proofs: Vec<Proof> = Vec::new();
        if !self.is_plain() {
            let hints = self.plan.hints(epsilon, self.rest, room);
            let hints = hints.ok_or(AccountantError::Range("a certificate with so small a slack takes too many points"))?;
            proofs.extend(hints.into_iter().map(Proof::from));
        }
        for proof in &mut proofs {
            let grids = self.plan.phases().iter().filter(|phase| !is_plain(phase)).count();
            // The unsampled Gaussians stay last.
            let ordered = self.places.iter().copied().chain(grids..proof.parts.len());
            proof.parts = ordered.map(|place| proof.parts[place]).collect();
        }
        let (relation, delta, events) = (self.plan.relation(), self.delta.get(), self.events.clone());
        let binding = binding.map(|to| to.to_text());
        Ok(Certificate { format: FORMAT, relation, delta, epsilon, slack, binding, events, proofs })
    }

    /// The accepted certificate with the smallest ε of those that are tried, and its file. `check` says whether a file is accepted. With `stated` the first tries are
    /// of exactly that ε, an upper bound that was computed elsewhere; where none of them is accepted, of a larger one.
    ///
    /// # Errors
    /// Nothing that is tried is accepted, or all of it takes too many points.
    pub fn certify<E: std::error::Error>(
        &self,
        stated: Option<Epsilon>,
        binding: Option<Binding>,
        check: impl Fn(&[u8]) -> Result<(), E>,
    ) -> Result<(Certificate, Vec<u8>), Uncertified<E>> {
        let own = self.plan.epsilon(self.rest);
        let from = stated.map_or(own.upper, Epsilon::get);
        if from > REACH && self.events.iter().any(|event| event.numbers() > 0.0) {
            return Err(AccountantError::Unsupported("a certificate of discrete noise for an epsilon above 100").into());
        }
        let above = from - own.estimate;
        let exact = ROOMS.iter().map(|share| (0.0, share * above)).filter(|(_, room)| stated.is_some() && *room > 0.0);
        let first = if self.is_plain() { CLOSED } else { SLACK } * from.max(SMALL);
        let wider = (0..TRIES).map(|k| first * 2f64.powi(k)).map(|slack| (slack, slack));
        let mut last = None;
        for (slack, room) in exact.chain(wider) {
            match self.certificate((from + slack, slack), room, binding) {
                Ok(certificate) => {
                    let bytes = certificate.to_bytes();
                    match check(&bytes) {
                        Ok(()) => return Ok((certificate, bytes)),
                        Err(refusal) => last = Some(Uncertified::Refused(refusal)),
                    }
                }
                Err(error @ AccountantError::Unsupported(_)) => return Err(error.into()),
                Err(error) => last = Some(error.into()),
            }
        }
        // Every try leaves an error.
        Err(last.unwrap_or(Uncertified::Accountant(AccountantError::Range("no certificate within reach"))))
    }
}

fn is_plain(phase: &Phase) -> bool {
    matches!((phase.mechanism, phase.sampling), (Mechanism::Gaussian { .. }, Sampling::None | Sampling::ShuffledPasses(_)))
}

impl Certificate {
    /// ε of the claim.
    #[must_use]
    pub fn epsilon(&self) -> f64 {
        self.epsilon
    }

    /// The file: canonical JSON, sealed by the SHA-256 of everything before the seal's field.
    fn to_bytes(&self) -> Vec<u8> {
        // Every field is a number, a name or a list of them: JSON knows all of these.
        let mut text = serde_json::to_string(self).expect("certificates serialise into memory");
        text.pop();
        let seal = hexadecimal(&Sha256::digest(text.as_bytes()));
        text.push_str(&format!(",\"seal\":\"{seal}\"}}"));
        text.into_bytes()
    }
}
