//! A federation in memory: real gate, real ledgers' permits, real messages.
#![allow(unreachable_pub, reason = "the benchmarks include it")]

use std::sync::Arc;

use chacha20::ChaCha20Rng;
use chacha20::rand_core::SeedableRng;
use dp_pvi_accounting::{ClipNorm, Delta, Epsilon, NoiseMultiplier, PrivacyUnit, Relation, Terms};
use dp_pvi_names::{ClientId, Hash, LatticeVector, ReleaseId, RunId};
use dp_pvi_privacy::ledger::memory::MemoryStore as LedgerStore;
use dp_pvi_privacy::ledger::{Budget, LedgerIdentity};
use dp_pvi_privacy::mechanism::{NoiseShare, ReleaseError, ShareSum, Summation, Summed};
use dp_pvi_privacy::noise::NoRandomness;
use dp_pvi_privacy::{Argument, Ledger, NoiseSource, Purpose, StepPermit, UnitTable, Units};
use dp_pvi_secagg::charter::{Charter, CharterBody, Floors, Member, Parties, SignedCharter};
use dp_pvi_secagg::client::{Client, Idle, Outgoing, Sent};
use dp_pvi_secagg::header::{ProposedHeader, RoundHeader, SignedHeader};
use dp_pvi_secagg::plan::PlanRequest;
use dp_pvi_secagg::ring;
use dp_pvi_secagg::server::{Collecting, Completed, Summing};
use dp_pvi_secagg::signed::PublicKey;
use dp_pvi_secagg::summer::Summer;
use dp_pvi_secagg::summer::memory::{MemoryStore, MemoryVault};
use dp_pvi_secagg::transcript::{Head, SignedEntry};
use dp_pvi_unsealed::{Sealed, Unsealed};
use ed25519_dalek::SigningKey;

pub const UNITS: u64 = 2;

pub fn key(number: u32) -> SigningKey {
    SigningKey::from_bytes(&Hash::of("test key", &[&number.to_le_bytes()]).0)
}

pub fn rng(seed: u8) -> ChaCha20Rng {
    ChaCha20Rng::from_seed([seed; 32])
}

pub fn name(site: u32) -> ClientId {
    ClientId::new(format!("site-{site:04}")).unwrap()
}

pub fn model(round: u32) -> Hash {
    Hash::of("model", &[&round.to_le_bytes()])
}

pub fn request(members: u32, dropouts: u32, dimension: u32) -> PlanRequest {
    PlanRequest {
        members,
        dropouts,
        colluders: 1,
        honest_cap: members,
        dimension,
        clip: ClipNorm::new(1.0).unwrap(),
        noise: NoiseMultiplier::new(23.4).unwrap(),
        max_units: UNITS,
        sampling: None,
        terms: Terms::ShardResults,
        max_rounding_loss: 0.01,
    }
}

/// Noise that can be drawn again, to know what was masked.
pub struct SeededNoise(pub u8);

impl Sealed for SeededNoise {}

impl NoiseSource for SeededNoise {
    type Stream = ChaCha20Rng;

    fn stream(&self, release: &ReleaseId, step: u64, purpose: Purpose) -> Result<ChaCha20Rng, NoRandomness> {
        let name = format!("{} {release} {step} {purpose:?}", self.0);
        Ok(ChaCha20Rng::from_seed(Hash::of("noise", &[name.as_bytes()]).0))
    }
}

/// A pad of zeros: shows what a share holds.
struct NoPad;

impl rand_core::TryRng for NoPad {
    type Error = std::convert::Infallible;
    fn try_next_u32(&mut self) -> Result<u32, Self::Error> {
        Ok(0)
    }
    fn try_next_u64(&mut self) -> Result<u64, Self::Error> {
        Ok(0)
    }
    fn try_fill_bytes(&mut self, bytes: &mut [u8]) -> Result<(), Self::Error> {
        bytes.fill(0);
        Ok(())
    }
}

impl rand_core::TryCryptoRng for NoPad {}

/// Two units: one saturates one coordinate, one is spread.
pub struct Shard {
    pub site: u32,
    pub dimension: u32,
    /// 0 where the vector shall be zero.
    pub size: f64,
}

impl UnitTable for Shard {
    type Unit<'a> = usize;
    fn len(&self) -> usize {
        UNITS as usize
    }
    fn unit(&self, position: usize) -> usize {
        position
    }
}

pub fn permit(mechanism: &ShareSum, client: &ClientId, round: u32) -> StepPermit {
    let identity = LedgerIdentity { data: "test".into(), unit: PrivacyUnit::Record, relation: Relation::ReplaceOne };
    let budget = Budget {
        epsilon: Epsilon::INFINITE,
        delta: Delta::new(1e-5).unwrap(),
        per_run: None,
        max_fallback: None,
        allow_non_private: false,
    };
    let mut ledger = Ledger::open(LedgerStore::new(Unsealed), key(0), identity, budget).unwrap();
    let release = ReleaseId { run: RunId { task: Hash::default(), number: 1 }, client: client.clone(), round };
    ledger.reserve(&release, (&mechanism.event(), Some(&mechanism.fallback_event())), Hash::default()).unwrap().into_steps().next().unwrap()
}

fn fill(&(site, dimension, size): &(u32, u32, f64), sum: Summation<'_, Shard>) -> Result<Summed, ReleaseError> {
    Ok(sum.each(|unit, _, (), term| {
        if unit == 0 {
            term.add(site % dimension, if site % 2 == 0 { 3.0 * size } else { -3.0 * size });
        } else {
            term.extend((0..dimension.min(50)).map(|i| (i, size * 0.01 * f64::from(i + site))));
        }
    }))
}

pub fn share(mechanism: &ShareSum, shard: Shard, round: u32, seed: u8) -> NoiseShare<LatticeVector> {
    let permit = permit(mechanism, &name(shard.site), round);
    let of = Argument::copy_of(&(shard.site, shard.dimension, shard.size)).unwrap();
    mechanism.share_sum(&Units::new(shard), &of, fill, permit, &SeededNoise(seed)).unwrap()
}

/// The very vector that [`share`] holds.
pub fn plain(mechanism: &ShareSum, shard: Shard, round: u32, seed: u8) -> LatticeVector {
    share(mechanism, shard, round, seed).mask(&mut NoPad).into_inner()
}

pub struct Harness {
    pub signed: SignedCharter,
    pub charter: Arc<Charter>,
    pub server: SigningKey,
    pub clients: Vec<(Client, Idle)>,
    pub summer: Summer<MemoryStore, MemoryVault>,
    pub head: Head,
    pub rng: ChaCha20Rng,
}

pub fn body(request: &PlanRequest, rounds: u32) -> CharterBody {
    let members = (0..request.members).map(|site| Member { id: name(site), key: PublicKey::of(&key(10 + site)) }).collect();
    let run = RunId { task: Hash::default(), number: 1 };
    let parties = Parties { run, authority: Hash::default(), server: PublicKey::of(&key(1)), summer: PublicKey::of(&key(2)), members };
    CharterBody::from_plans(parties, &[(request.clone(), rounds)]).unwrap()
}

pub fn signed(body: &CharterBody) -> SignedCharter {
    let mut charter = SignedCharter::draft(body);
    charter.sign(&key(1)).unwrap();
    charter.sign(&key(2)).unwrap();
    (0..body.members.len() as u32).for_each(|site| charter.sign(&key(10 + site)).unwrap());
    charter
}

pub fn floors() -> Floors {
    Floors { max_honest: 10_000, min_contributors: 2, ..Floors::default() }
}

pub fn summer(charter: Arc<Charter>, store: MemoryStore, vault: MemoryVault) -> Summer<MemoryStore, MemoryVault> {
    Summer::open(charter, key(2), store, vault).unwrap()
}

impl Harness {
    pub fn new(request: &PlanRequest, rounds: u32) -> Self {
        let signed = signed(&body(request, rounds));
        let charter = Arc::new(signed.verify().unwrap());
        let clients = (0..request.members)
            .map(|site| {
                let client = Client::new(charter.clone(), name(site), key(10 + site), &floors()).unwrap();
                let idle = client.start();
                (client, idle)
            })
            .collect();
        let summer = summer(charter.clone(), MemoryStore::default(), MemoryVault::default());
        Self { head: Head::start(&charter), signed, charter, server: key(1), clients, summer, rng: rng(7) }
    }

    pub fn mechanism(&self) -> &ShareSum {
        &self.charter.plan(0).unwrap().mechanism
    }

    pub fn shard(&self, site: u32) -> Shard {
        Shard { site, dimension: self.mechanism().dimension(), size: 1.0 }
    }

    /// A header that both signed.
    pub fn header(&mut self) -> SignedHeader {
        let offer = self.summer.offer(&mut self.rng).unwrap();
        let key = offer.open(&self.charter.body().summer).unwrap().key;
        let header = RoundHeader::new(&self.charter, self.head.round, self.head.previous, model(self.head.round), key, 0).unwrap();
        self.summer.countersign(&ProposedHeader::new(&header, &offer, &self.charter, &self.server).unwrap()).unwrap()
    }

    pub fn collecting(&self, header: &SignedHeader) -> Collecting {
        Collecting::open(self.charter.clone(), self.head, header).unwrap()
    }

    /// One site's part.
    pub fn part(&mut self, site: u32, header: &SignedHeader) -> (Sent, Outgoing) {
        let round = self.head.round;
        let share = share(self.mechanism(), self.shard(site), round, 5);
        let (client, idle) = &self.clients[site as usize];
        let accepted = idle.clone().accept(client, header, &model(round)).unwrap();
        accepted.mask(client, share, &mut self.rng).unwrap()
    }

    /// Sum of the very vectors that these sites masked.
    pub fn plain_sum(&self, sites: impl IntoIterator<Item = u32>) -> Vec<i64> {
        let mut sum = vec![0i64; self.mechanism().dimension() as usize];
        for site in sites {
            let vector = plain(self.mechanism(), self.shard(site), self.head.round, 5);
            sum.iter_mut().zip(&vector.values).for_each(|(sum, x)| *sum += x);
        }
        sum
    }

    /// Every client that has no part follows.
    pub fn follow(&mut self, entry: &SignedEntry, head: Head) {
        self.summer.follow(entry).unwrap();
        self.head = head;
    }
}

/// Adds spooled vectors and finishes.
pub fn add_all(mut summing: Summing, spool: &[(ClientId, Vec<u8>)], server: &SigningKey) -> Completed {
    for (client, words) in spool {
        summing.add(client, words).unwrap();
    }
    summing.finish(server).unwrap()
}

pub fn words(outgoing: &Outgoing) -> Vec<u8> {
    ring::to_bytes(outgoing.vector.get())
}
