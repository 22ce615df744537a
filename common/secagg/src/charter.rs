//! The charter: what all parties signed before the first round, and the root of everything that a client accepts.
//!
//! Thresholds, clip, lattice and rounds are in it, so nothing that a server says later can lower them: headers are compared with
//! the charter, and the charter with the floors of the site's own policy.

use std::collections::BTreeSet;

use dp_pvi_accounting::{ClipNorm, NoiseMultiplier, SamplingRate, Terms};
use dp_pvi_names::{ClientId, Hash, RunId};
use ed25519_dalek::SigningKey;
use serde::{Deserialize, Serialize};

use crate::bounds;
use crate::error::SecAggError;
use crate::plan::{Plan, PlanRequest};
use crate::signed::{PublicKey, decode, encode, sign};

const DOMAIN: &str = "dp-pvi secagg charter v1";

/// A site in the charter.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Member {
    /// Name, as in its certificate.
    pub id: ClientId,
    /// Identity key.
    pub key: PublicKey,
}

/// The charter's text.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CharterBody {
    /// The run that it is for.
    pub run: RunId,
    /// Hash of the certificate authority's certificate.
    pub authority: Hash,
    /// Identity key of the server.
    pub server: PublicKey,
    /// Identity key of the summer.
    pub summer: PublicKey,
    /// Sites, ascending by name: M of them.
    pub members: Vec<Member>,
    /// h: honest shares for which the noise is sized.
    pub honest: u32,
    /// c: sites that may collude.
    pub colluders: u32,
    /// U_min = h + c: fewer contributors abort a round.
    pub min_contributors: u32,
    /// N: most terms of one site.
    pub max_units: u64,
    /// Worst-case rounding bias over noise that the parties accept.
    pub max_rounding_loss: f64,
    /// What is summed, in the order of the rounds.
    pub sums: Vec<SumRounds>,
}

/// Rounds in a row that sum the same kind of vector.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SumRounds {
    /// How many rounds.
    pub rounds: u32,
    /// d.
    pub dimension: u32,
    /// C.
    pub clip: ClipNorm,
    /// z of the sum of h shares.
    pub noise: NoiseMultiplier,
    /// Poisson rate of the units.
    pub sampling: Option<SamplingRate>,
    /// What the terms are.
    pub terms: Terms,
    /// k: must be what the gate computes from the numbers above.
    pub exponent: i32,
    /// s of one share: likewise.
    pub scale: u64,
}

/// Who takes part in which run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Parties {
    /// The run.
    pub run: RunId,
    /// Hash of the certificate authority's certificate.
    pub authority: Hash,
    /// Identity key of the server.
    pub server: PublicKey,
    /// Identity key of the summer.
    pub summer: PublicKey,
    /// Sites, in any order.
    pub members: Vec<Member>,
}

impl CharterBody {
    /// Fills thresholds and lattices from plans, each with its number of rounds in a row. All plans are for the same sites,
    /// dropouts and colluders.
    ///
    /// # Errors
    /// A plan refuses, the plans disagree, or there is none.
    pub fn from_plans(parties: Parties, sums: &[(PlanRequest, u32)]) -> Result<Self, SecAggError> {
        let Parties { run, authority, server, summer, mut members } = parties;
        members.sort_by(|a, b| a.id.cmp(&b.id));
        let Some((first, _)) = sums.first() else { return Err(SecAggError::Charter("it has no rounds")) };
        let Plan { honest, min_contributors, .. } = first.plan()?;
        let alike = |other: &PlanRequest| {
            (other.members, other.dropouts, other.colluders, other.honest_cap, other.max_units)
                == (first.members, first.dropouts, first.colluders, first.honest_cap, first.max_units)
                && other.max_rounding_loss.total_cmp(&first.max_rounding_loss).is_eq()
        };
        if !sums.iter().all(|(request, _)| alike(request)) {
            return Err(SecAggError::Charter("its rounds are planned for different thresholds"));
        }
        let rounds = |(request, rounds): &(PlanRequest, u32)| {
            let figures = request.plan()?.figures;
            let PlanRequest { dimension, clip, noise, sampling, terms, .. } = *request;
            Ok(SumRounds { rounds: *rounds, dimension, clip, noise, sampling, terms, exponent: figures.exponent, scale: figures.scale })
        };
        Ok(Self {
            run,
            authority,
            server,
            summer,
            members,
            honest,
            colluders: first.colluders,
            min_contributors,
            max_units: first.max_units,
            max_rounding_loss: first.max_rounding_loss,
            sums: sums.iter().map(rounds).collect::<Result<_, SecAggError>>()?,
        })
    }

    /// Number of rounds; saturating.
    #[must_use]
    pub fn rounds(&self) -> u32 {
        self.sums.iter().fold(0, |sum, part| sum.saturating_add(part.rounds))
    }

    /// Whether the charter meets a site's floors.
    ///
    /// # Errors
    /// It does not.
    pub fn meets(&self, floors: &Floors) -> Result<(), SecAggError> {
        let refuse = |reason| Err(SecAggError::Charter(reason));
        if self.min_contributors < floors.min_contributors {
            return refuse("its minimum of contributors is below this site's floor");
        }
        if self.colluders < floors.colluders {
            return refuse("it counts on fewer colluders than this site's floor");
        }
        if self.honest > floors.max_honest {
            return refuse("its noise counts on more honest sites than this site's floor allows");
        }
        if self.rounds() > floors.max_rounds {
            return refuse("it has more rounds than this site's floor allows");
        }
        Ok(())
    }

    /// Everything that the text promises about itself; the plan is computed again.
    fn check(&self) -> Result<Vec<Plan>, SecAggError> {
        within_bounds(self)?;
        if !self.members.is_sorted_by(|a, b| a.id < b.id) {
            return refused("its sites are not in ascending order, each once");
        }
        let keys = || self.members.iter().map(|member| member.key).chain([self.server, self.summer]);
        if keys().collect::<BTreeSet<_>>().len() != self.members.len() + 2 {
            return refused("two parties share a key");
        }
        if !keys().all(|key| key.is_sound()) {
            return refused("a key is not a sound Ed25519 key");
        }
        let Ok(members) = u32::try_from(self.members.len()) else { return refused("it has too many sites") };
        if self.honest.checked_add(self.colluders) != Some(self.min_contributors) {
            return refused("the minimum of contributors is not honest survivors plus colluders");
        }
        let Some(dropouts) = members.checked_sub(self.min_contributors) else {
            return refused("the minimum of contributors is above the number of sites");
        };
        let plan = |sum: &SumRounds| {
            let request = PlanRequest {
                members,
                dropouts,
                colluders: self.colluders,
                honest_cap: self.honest,
                dimension: sum.dimension,
                clip: sum.clip,
                noise: sum.noise,
                max_units: self.max_units,
                sampling: sum.sampling,
                terms: sum.terms,
                max_rounding_loss: self.max_rounding_loss,
            };
            let plan = request.plan()?;
            if (plan.honest, plan.figures.exponent, plan.figures.scale) != (self.honest, sum.exponent, sum.scale) {
                return refused("its lattice is not the one that its clip, noise and honest survivors give");
            }
            Ok(plan)
        };
        self.sums.iter().map(plan).collect()
    }
}

fn refused<T>(reason: &'static str) -> Result<T, SecAggError> {
    Err(SecAggError::Charter(reason))
}

/// A charter's bytes with the signatures of the parties: server, summer, then the sites in the charter's order.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SignedCharter {
    body: Vec<u8>,
    signatures: Vec<Vec<u8>>,
}

impl SignedCharter {
    /// The text, unsigned: every party reads this and signs with [`SignedCharter::sign`].
    #[must_use]
    pub fn draft(body: &CharterBody) -> Self {
        Self { body: encode(body), signatures: vec![Vec::new(); body.members.len() + 2] }
    }

    /// Hash of the text: what the parties compare by telephone before they sign.
    #[must_use]
    pub fn hash(&self) -> Hash {
        Hash::of(DOMAIN, &[&self.body])
    }

    /// Adds the signature of whichever party the key belongs to.
    ///
    /// # Errors
    /// Unreadable, or the key is no one's.
    pub fn sign(&mut self, key: &SigningKey) -> Result<(), SecAggError> {
        let body: CharterBody = decode(&self.body, "the charter")?;
        let public = PublicKey::of(key);
        let position = parties(&body).position(|(_, party)| party == public);
        let slot = position.and_then(|position| self.signatures.get_mut(position));
        *slot.ok_or(SecAggError::Charter("the signing key belongs to none of its parties"))? = sign(key, DOMAIN, &self.body);
        Ok(())
    }

    /// The text, to be looked at before it is signed. Its integers are within their [`bounds`]; nothing else in it is checked yet.
    ///
    /// # Errors
    /// Unreadable, or an integer that no charter has.
    pub fn text(&self) -> Result<CharterBody, SecAggError> {
        let body = decode(&self.body, "the charter")?;
        within_bounds(&body)?;
        Ok(body)
    }

    /// What the text promises about itself holds: every party checks that before it signs.
    ///
    /// # Errors
    /// A contradiction, or refused parameters.
    pub fn check_text(&self) -> Result<CharterBody, SecAggError> {
        let body = self.text()?;
        body.check()?;
        Ok(body)
    }

    /// The signature of a party, if it has signed.
    #[must_use]
    pub fn signature_of(&self, party: &PublicKey) -> Option<&[u8]> {
        let body = self.text().ok()?;
        let position = parties(&body).position(|(_, key)| key == *party)?;
        self.signatures.get(position).filter(|signature| !signature.is_empty()).map(Vec::as_slice)
    }

    /// Adds a signature that a party made elsewhere.
    ///
    /// # Errors
    /// Unreadable, no one's key, or not that party's signature over this text.
    pub fn attach(&mut self, party: &PublicKey, signature: &[u8]) -> Result<(), SecAggError> {
        let body = self.text()?;
        let position = parties(&body).position(|(_, key)| key == *party);
        let slot = position.and_then(|position| self.signatures.get_mut(position));
        let slot = slot.ok_or(SecAggError::Charter("the signing key belongs to none of its parties"))?;
        party.verify(DOMAIN, &self.body, signature, "the charter")?;
        *slot = signature.to_vec();
        Ok(())
    }

    /// Parties whose signatures are missing: `server`, `summer`, or names of sites.
    #[must_use]
    pub fn missing(&self) -> Vec<String> {
        let Ok(body) = self.text() else { return Vec::new() };
        let signatures = self.signatures.iter().map(Vec::is_empty).chain(std::iter::repeat(true));
        parties(&body).zip(signatures).filter(|(_, missing)| *missing).map(|((name, _), _)| name).collect()
    }

    /// Canonical bytes, with the signatures that are there.
    #[must_use]
    pub fn to_bytes(&self) -> Vec<u8> {
        encode(self)
    }

    /// Reads [`SignedCharter::to_bytes`].
    ///
    /// # Errors
    /// Unreadable.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, SecAggError> {
        decode(bytes, "the charter")
    }

    /// The charter, once everything in it and all signatures are checked.
    ///
    /// # Errors
    /// A contradiction, refused parameters, or a missing or wrong signature.
    pub fn verify(&self) -> Result<Charter, SecAggError> {
        let body = self.text()?;
        let plans = body.check()?;
        if self.signatures.len() != body.members.len() + 2 {
            return Err(SecAggError::Malformed { what: "the charter" });
        }
        for ((party, key), signature) in parties(&body).zip(&self.signatures) {
            key.verify(DOMAIN, &self.body, signature, "the charter").map_err(|_| SecAggError::Unsigned { party })?;
        }
        Ok(Charter { hash: self.hash(), participants: participants_root(&body.members), body, plans })
    }
}

fn parties(body: &CharterBody) -> impl Iterator<Item = (String, PublicKey)> {
    let ends = [("server".to_owned(), body.server), ("summer".to_owned(), body.summer)];
    ends.into_iter().chain(body.members.iter().map(|member| (member.id.to_string(), member.key)))
}

fn participants_root(members: &[Member]) -> Hash {
    let members = encode(&members);
    Hash::of("dp-pvi secagg participants v1", &[&members])
}

/// Minimums that a site's policy asks of every charter. A charter below one of them is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Floors {
    /// Fewest contributors of a sum.
    pub min_contributors: u32,
    /// Fewest colluders against whom the noise must stand.
    pub colluders: u32,
    /// Most honest shares that the noise may count on (it bounds the fallback loss).
    pub max_honest: u32,
    /// Most rounds.
    pub max_rounds: u32,
}

impl Default for Floors {
    fn default() -> Self {
        Self { min_contributors: crate::plan::FEWEST, colluders: 1, max_honest: crate::plan::DEFAULT_HONEST_CAP, max_rounds: 1000 }
    }
}

/// A charter that every party signed and that does not contradict itself.
#[derive(Debug, Clone, PartialEq)]
pub struct Charter {
    body: CharterBody,
    hash: Hash,
    participants: Hash,
    /// One for each of the body's sums.
    plans: Vec<Plan>,
}

impl Charter {
    /// The text.
    #[must_use]
    pub fn body(&self) -> &CharterBody {
        &self.body
    }

    /// Hash of the text.
    #[must_use]
    pub fn hash(&self) -> Hash {
        self.hash
    }

    /// Hash of names and keys of the sites.
    #[must_use]
    pub fn participants(&self) -> Hash {
        self.participants
    }

    /// Mechanism and figures of a round.
    ///
    /// # Errors
    /// The charter has no such round.
    pub fn plan(&self, round: u32) -> Result<&Plan, SecAggError> {
        let mut first = round;
        for (sum, plan) in self.body.sums.iter().zip(&self.plans) {
            match first.checked_sub(sum.rounds) {
                None => return Ok(plan),
                Some(left) => first = left,
            }
        }
        Err(SecAggError::Header { field: "number of rounds" })
    }

    /// Key of a site.
    ///
    /// # Errors
    /// It is not in the charter.
    pub fn key_of(&self, client: &ClientId) -> Result<&PublicKey, SecAggError> {
        let members = &self.body.members;
        match members.binary_search_by(|member| member.id.cmp(client)) {
            Ok(position) => Ok(&members[position].key),
            Err(_) => Err(SecAggError::UnknownClient { client: client.clone() }),
        }
    }

    /// Whether the charter meets a site's floors.
    ///
    /// # Errors
    /// It does not.
    pub fn meets(&self, floors: &Floors) -> Result<(), SecAggError> {
        self.body.meets(floors)
    }
}

/// Compares every integer of a charter's text.
fn within_bounds(body: &CharterBody) -> Result<(), SecAggError> {
    let members = u32::try_from(body.members.len()).unwrap_or(u32::MAX);
    let rounds = body.sums.iter().try_fold(0u32, |rounds, sum| rounds.checked_add(sum.rounds));
    within(members <= bounds::MEMBERS, "it has more than 10000 sites")?;
    let thresholds = [body.honest, body.colluders, body.min_contributors];
    within(thresholds.iter().all(|threshold| *threshold <= members), "a threshold is above the number of sites")?;
    // Every part has a round, so there are at most as many parts as rounds.
    within(body.sums.iter().all(|sum| sum.rounds > 0) && !body.sums.is_empty(), "it has no rounds")?;
    within(rounds.is_some_and(|rounds| rounds <= bounds::ROUNDS), "it has more than 100000 rounds")?;
    within(body.sums.iter().all(|sum| (1..=bounds::DIMENSION).contains(&sum.dimension)), "a sum has no coordinates, or more than 2^26")?;
    within((1..=dp_pvi_privacy::mechanism::MAX_UNITS).contains(&body.max_units), "the units of a site are not between 1 and 2^32")?;
    within(body.max_rounding_loss > 0.0 && body.max_rounding_loss <= 1.0, "its rounding loss is not above 0 and at most 1")?;
    within(body.run.number <= bounds::RUNS, "the number of its run is above 10^9")
}

fn within(fits: bool, problem: &'static str) -> Result<(), SecAggError> {
    if fits { Ok(()) } else { Err(SecAggError::Charter(problem)) }
}
