//! One run of a site (or of the honest sites of an aggregated sum) as the audit sees it: a ledger in memory charges every visit, the permit goes into
//! the shipped update, and the ledger settles what the site keeps.
//!
//! The server of an audit is out to learn about the canary. Which λ it asks at which visit it has decided before the run, so that what the visits release
//! adds up, and it includes every update.

use chacha20::ChaCha20Rng;
use chacha20::rand_core::{Rng, SeedableRng};
use dp_pvi_accounting::Prices;
use dp_pvi_accounting::{DiscreteGaussian, DpEvent, Epsilon};
use dp_pvi_inference::methods::{self, Job};
use dp_pvi_inference::records::RecordTable;
use dp_pvi_names::{ClientId, Hash, LatticeVector, Payload, ReleaseId, RunId};
use dp_pvi_posterior::task::{ResolvedTask, SiteStateForm};
use dp_pvi_privacy::danger::assume_signed;
use dp_pvi_privacy::ledger::memory::MemoryStore;
use dp_pvi_privacy::ledger::{Budget, LedgerIdentity, RowSigner};
use dp_pvi_privacy::mechanism::Message;
use dp_pvi_privacy::sampler::DiscreteGaussianSampler;
use dp_pvi_privacy::{Ledger, NoiseSource, Pending, Purpose, SecureNoise, SiteState, Units};

use super::AuditError;
use super::canary::Neighbours;
use super::registry::{Case, View};
use crate::federation;
use crate::noise::SeededNoise;
use dp_pvi_unsealed::{Sealed, Unsealed};

/// What is the same for all runs of a row.
pub(super) struct Stage<'a> {
    pub(super) task: &'a ResolvedTask,
    view: View,
    /// λ of every visit for which the neighbours name none.
    lambda: Vec<f64>,
    prices: Prices,
}

/// What the auditor saw, and what the permits were for.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Visit {
    pub(super) event: DpEvent,
    pub(super) released: Payload,
    /// What the site had kept before, where that is public.
    pub(super) state: Option<Vec<f64>>,
}

impl<'a> Stage<'a> {
    pub(super) fn new(case: &'a Case) -> Result<Self, AuditError> {
        let task = &case.task;
        let mut prices = federation::prices(task);
        for visit in 0..task.visits() {
            if let Some(event) = task.visit_fallback(visit)? {
                prices.learn(&event)?;
            }
        }
        Ok(Self { task, view: case.view, lambda: task.rule().initial(), prices })
    }

    /// How many vectors, each with noise of its own, are in what the auditor sees.
    pub(super) fn vectors_seen(&self) -> f64 {
        self.sites().into()
    }

    /// One run: the server asks these λ in turn (none: that with which the task begins), the first site has these records, all others have those of
    /// `others`. Runs of different numbers share no coin and no noise.
    pub(super) fn play<N: NoiseSource>(
        &self,
        asked: &[Vec<f64>],
        units: &Units<RecordTable>,
        others: &Units<RecordTable>,
        noise: &N,
        number: u32,
    ) -> Result<Vec<Visit>, AuditError> {
        let mut sites = (0..self.sites()).map(|site| Site::open(self, site, number)).collect::<Result<Vec<_>, _>>()?;
        let mut visits = Vec::with_capacity(self.task.visits() as usize);
        for visit in 0..self.task.visits() {
            let lambda = self.asked(asked, visit);
            let mut sum: Option<LatticeVector> = None;
            for (position, site) in sites.iter_mut().enumerate() {
                let mine = if position == 0 { units } else { others };
                let Visit { event, released, state } = site.visit(self, (visit, lambda), mine, noise)?;
                match released {
                    // Under aggregation the auditor sees either the first site's vector or the sum of all honest ones.
                    Payload::Masked(vector) if self.view == View::Sum => {
                        let sum =
                            sum.get_or_insert_with(|| LatticeVector { exponent: vector.exponent, values: vec![0; vector.values.len()] });
                        sum.values.iter_mut().zip(vector.values).for_each(|(sum, x)| *sum = sum.wrapping_add(x));
                        if position == 0 {
                            visits.push(Visit { event, released: Payload::Values(Vec::new()), state });
                        }
                    }
                    Payload::Masked(vector) if position == 0 => visits.push(Visit { event, released: Payload::Lattice(vector), state }),
                    released if position == 0 => visits.push(Visit { event, released, state }),
                    _ => {}
                }
            }
            if let (Some(sum), Some(last)) = (sum, visits.last_mut()) {
                last.released = Payload::Lattice(sum);
            }
        }
        Ok(visits)
    }

    /// One visit of the first site with what it had kept before, in a run of this number. For sites that keep what they released, under local trust.
    pub(super) fn again<N: NoiseSource>(
        &self,
        asked: &[Vec<f64>],
        units: &Units<RecordTable>,
        noise: &N,
        number: u32,
        (visit, state): (u32, &[f64]),
    ) -> Result<Payload, AuditError> {
        let mut site = Site::open(self, 0, number)?;
        if !state.is_empty() {
            site.state = SiteState::Public(state.to_vec());
        }
        Ok(site.visit(self, (visit, self.asked(asked, visit)), units, noise)?.released)
    }

    /// The noise of a visit of a run of this number, in what the auditor sees: drawn once more from the same stream.
    pub(super) fn noise(
        &self,
        mechanism: &DiscreteGaussian,
        source: &SeededNoise,
        (number, visit): (u32, u32),
    ) -> Result<Vec<i64>, AuditError> {
        let sampler = DiscreteGaussianSampler::new(mechanism.scale).map_err(|_| AuditError::Broken("a scale of noise"))?;
        let mut total = vec![0i64; mechanism.dimension as usize];
        for site in 0..self.sites() {
            let mut noise = vec![0; total.len()];
            let release = ReleaseId { run: run(number), client: client(site)?, round: visit };
            sampler.fill(&mut source.stream(&release, 0, Purpose::Noise)?, &mut noise).map_err(|_| AuditError::Broken("seeded noise"))?;
            #[cfg(feature = "fault-injection")]
            dp_pvi_privacy::injected::spoil(&mut noise);
            total.iter_mut().zip(noise).for_each(|(total, x)| *total = total.wrapping_add(x));
        }
        Ok(total)
    }

    /// Sites that are played: where the vectors of all others are known, they need not be made.
    fn sites(&self) -> u32 {
        match (self.view, &self.task.aggregation) {
            (View::Sum, Some(aggregation)) => aggregation.honest,
            _ => 1,
        }
    }

    fn asked<'l>(&'l self, asked: &'l [Vec<f64>], visit: u32) -> &'l [f64] {
        if asked.is_empty() { &self.lambda } else { &asked[visit as usize % asked.len()] }
    }
}

/// Stands for a site's key: a keyed hash. Who else could sign is nothing that an audit asks, and a run makes dozens of signatures.
pub(super) struct Key(pub(super) Hash);

impl Sealed for Key {}

impl RowSigner for Key {
    fn sign(&self, hash: &Hash) -> Vec<u8> {
        [Hash::of("audit signature", &[&self.0.0, &hash.0]).0, hash.0].concat()
    }

    fn verify(&self, hash: &Hash, signature: &[u8]) -> bool {
        self.sign(hash) == signature
    }
}

pub(super) fn client(site: u32) -> Result<ClientId, AuditError> {
    ClientId::new(format!("site-{site}")).map_err(|_| AuditError::Broken("the name of a site"))
}

pub(super) fn run(number: u32) -> RunId {
    RunId { task: Hash::default(), number }
}

/// A site and its ledger.
struct Site {
    ledger: Ledger<MemoryStore, Key>,
    client: ClientId,
    run: RunId,
    state: SiteState,
}

impl Site {
    fn open(stage: &Stage<'_>, site: u32, number: u32) -> Result<Self, AuditError> {
        let privacy = &stage.task.privacy;
        let client = client(site)?;
        let identity = LedgerIdentity { data: client.to_string(), unit: privacy.unit, relation: privacy.relation };
        let budget =
            Budget { epsilon: Epsilon::INFINITE, delta: privacy.delta, per_run: None, max_fallback: None, allow_non_private: true };
        let key = Hash::of("dp-pvi audit site", &[&site.to_le_bytes(), &number.to_le_bytes()]);
        let ledger = Ledger::open(MemoryStore::new(Unsealed), Key(key), identity, budget)?.knowing(&stage.prices);
        Ok(Self { ledger, client, run: run(number), state: SiteState::None })
    }

    /// A visit: charge, permit, update, settle. What is sent under a mask is given with the mask taken away.
    fn visit<N: NoiseSource>(
        &mut self,
        stage: &Stage<'_>,
        (visit, lambda): (u32, &[f64]),
        units: &Units<RecordTable>,
        noise: &N,
    ) -> Result<Visit, AuditError> {
        let task = stage.task;
        let release = ReleaseId { run: self.run, client: self.client.clone(), round: visit };
        let event = task.visit_event(visit)?;
        let fallback = task.visit_fallback(visit)?;
        let permit = self.ledger.reserve(&release, (&event, fallback.as_ref()), Hash::default())?;
        // What is claimed is the price of what the permit is for.
        let event = match (&fallback, stage.view) {
            (Some(fallback), View::Alone) => fallback.clone(),
            _ => permit.event().clone(),
        };
        let state = match &self.state {
            SiteState::Public(values) => Some(values.clone()),
            SiteState::None | SiteState::Private(_) => None,
        };
        let job = Job { site: None, task, visit, lambda, state: &self.state };
        let output = methods::run(&job, units, permit, noise)?;
        let keeps = task.site_state() != SiteStateForm::None && !matches!(output.pending, Pending::None);
        let (released, attachment) = match output.message {
            Message::Released(payload) => {
                let released = payload.get().clone();
                let attachment = keeps.then(|| assume_signed(Unsealed, Vec::new(), released.clone(), output.pending));
                (released, attachment)
            }
            Message::Share(share) => {
                let mut seed = [0; 32];
                SecureNoise::fresh()?.fill_bytes(&mut seed);
                let mut pad = ChaCha20Rng::from_seed(seed);
                let masked = share.mask(&mut ChaCha20Rng::from_seed(seed));
                let mut vector = masked.get().clone();
                for word in &mut vector.values {
                    *word = word.wrapping_sub(pad.next_u64().cast_signed());
                }
                (
                    Payload::Masked(vector),
                    keeps.then(|| assume_signed(Unsealed, Vec::new(), Payload::Masked(masked.into_inner()), output.pending)),
                )
            }
        };
        if let Some(attachment) = attachment {
            self.ledger.commit(&release, &attachment)?;
            self.state = self.ledger.settle(&release, true, task.damping[visit as usize])?;
        }
        Ok(Visit { event, released, state })
    }
}

/// Runs in both neighbours at once.
pub(super) fn pair<N: NoiseSource>(
    stage: &Stage<'_>,
    neighbours: &Neighbours,
    noise: &N,
    number: u32,
) -> Result<[Vec<Visit>; 2], AuditError> {
    let first = stage.play(&neighbours.asked, &neighbours.first, &neighbours.silent, noise, 2 * number)?;
    let second = stage.play(&neighbours.asked, &neighbours.second, &neighbours.silent, noise, 2 * number + 1)?;
    Ok([first, second])
}
