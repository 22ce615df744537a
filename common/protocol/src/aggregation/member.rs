//! A site's part of an aggregated run.

use std::sync::Arc;

use dp_pvi_names::{ClientId, Hash, LatticeVector, RunId};
use dp_pvi_posterior::task::{AggregationSpec, ResolvedTask};
use dp_pvi_privacy::mechanism::{Masked, NoiseShare};
use dp_pvi_secagg::charter::{CharterBody, Floors, Member as Party, Parties, SignedCharter};
use dp_pvi_secagg::client::{Accepted, Client};
use dp_pvi_secagg::error::SecAggError;
use dp_pvi_secagg::header::SignedHeader;
use dp_pvi_secagg::signed::PublicKey;
use dp_pvi_secagg::transcript::{Head, Outcome, SignedEntry};
use dp_pvi_secagg::upload::{OpenedUpload, SignedUpload};
use ed25519_dalek::{SigningKey, VerifyingKey};
use rand_core::CryptoRng;

use super::plans;

/// What a site asks of any aggregation.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct AggregationPolicy {
    /// The summer's identity key, pinned; without it the site takes part in no aggregated task.
    pub summer: Option<VerifyingKey>,
    /// Floors of the charter. What the run may cost if all others' shares are known is capped by the site's ledger.
    pub floors: Floors,
}

/// Who a site is, to an aggregated run.
#[derive(Debug, Clone, Copy)]
pub struct Site<'a> {
    /// Its name.
    pub id: &'a ClientId,
    /// Its identity key.
    pub key: &'a SigningKey,
    /// The server's identity key.
    pub server: &'a VerifyingKey,
    /// What it asks.
    pub policy: &'a AggregationPolicy,
}

/// What a site does with a charter.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CharterStep {
    /// It signs: its signature is to be sent.
    Sign(Vec<u8>),
    /// All parties have signed: rounds may come.
    Agreed,
}

/// A site's part.
#[derive(Debug)]
pub struct Membership {
    spec: AggregationSpec,
    run: RunId,
    agreed: Option<Agreed>,
}

#[derive(Debug)]
struct Agreed {
    client: Client,
    /// Where the site is in the transcript.
    head: Head,
}

/// A masked vector with the message that goes with it.
pub(crate) struct MaskedUpload {
    pub(crate) upload: OpenedUpload,
    pub(crate) vector: Masked<LatticeVector>,
}

impl Membership {
    /// Before the charter was seen.
    #[must_use]
    pub fn new(spec: AggregationSpec, run: RunId) -> Self {
        Self { spec, run, agreed: None }
    }

    /// Whether all parties have signed, as far as this site knows.
    #[must_use]
    pub(crate) fn is_agreed(&self) -> bool {
        self.agreed.is_some()
    }

    /// Looks at a charter: it must be the one that the task asks for, under pinned keys, and meet the floors.
    ///
    /// # Errors
    /// It is another one, or a floor is not met; nothing is signed then.
    pub(crate) fn on_charter(&mut self, charter: &SignedCharter, task: &ResolvedTask, site: &Site<'_>) -> Result<CharterStep, SecAggError> {
        let body = charter.check_text()?;
        self.compare(&body, task, site)?;
        if !charter.missing().is_empty() {
            let mut own = charter.clone();
            own.sign(site.key)?;
            // It was signed on the line before.
            return Ok(CharterStep::Sign(own.signature_of(&PublicKey::of(site.key)).unwrap_or_default().to_vec()));
        }
        if self.agreed.is_none() {
            let client = Client::new(Arc::new(charter.verify()?), site.id.clone(), site.key.clone(), &site.policy.floors)?;
            self.agreed = Some(Agreed { head: Head::start(client.charter()), client });
        }
        Ok(CharterStep::Agreed)
    }

    fn compare(&self, body: &CharterBody, task: &ResolvedTask, site: &Site<'_>) -> Result<(), SecAggError> {
        let refuse = |reason| Err(SecAggError::Charter(reason));
        let Some(summer) = site.policy.summer else {
            return refuse("no summer is pinned here: configure the summer's identity key");
        };
        let server = PublicKey(site.server.to_bytes());
        if body.summer != PublicKey(summer.to_bytes()) {
            return refuse("it names another summer than the one whose key is pinned here");
        }
        let expected = Parties {
            run: self.run,
            // The authority is checked by the transport; here it only has to be the same for all, which the signatures say.
            authority: body.authority,
            server,
            summer: PublicKey(summer.to_bytes()),
            members: body.members.clone(),
        };
        let plans = plans(task, &self.spec).map_err(|_| SecAggError::Charter("the task has no sums to aggregate"))?;
        if *body != CharterBody::from_plans(expected, &plans)? {
            return refuse("it is not the one that the task and the pinned keys ask for");
        }
        if body.members.len() != self.spec.sites as usize {
            return refuse("it has another number of sites than the task");
        }
        let own = Party { id: site.id.clone(), key: PublicKey::of(site.key) };
        if !body.members.contains(&own) {
            return refuse("this site is not in it under its own key");
        }
        body.meets(&site.policy.floors)
    }

    /// Accepts the header of a round whose λ has this hash.
    ///
    /// # Errors
    /// It is not signed by both, does not continue the transcript, or speaks of another model.
    pub fn accept(&self, header: &SignedHeader, lambda: &Hash) -> Result<Accepted, SecAggError> {
        let agreed = self.agreed()?;
        agreed.client.resume(agreed.head).accept(&agreed.client, header, lambda).map_err(|rejected| rejected.error)
    }

    /// Masks a share under an accepted header.
    pub(crate) fn mask(
        &self,
        accepted: Accepted,
        share: NoiseShare<LatticeVector>,
        rng: &mut impl CryptoRng,
    ) -> Result<MaskedUpload, SecAggError> {
        let agreed = self.agreed()?;
        let (_, outgoing) = accepted.mask(&agreed.client, share, rng).map_err(|rejected| rejected.error)?;
        Ok(MaskedUpload { upload: OpenedUpload { signed: outgoing.upload, salt: outgoing.salt }, vector: outgoing.vector })
    }

    /// Follows a round's entry: it must continue the transcript, be about the header that this site saw, list exactly the sites that
    /// the protocol's entry lists, and, where it lists this site, with the commitment of the upload that it sent.
    ///
    /// # Errors
    /// Any of it fails: no further round is taken part in.
    pub fn settle(
        &mut self,
        entry: &SignedEntry,
        header: &SignedHeader,
        included: impl Iterator<Item = ClientId>,
        own: Option<(&ClientId, &SignedUpload)>,
    ) -> Result<(), SecAggError> {
        let agreed = self.agreed.as_mut().ok_or(SecAggError::Charter("no charter was seen"))?;
        let charter = agreed.client.charter();
        let expected = header.open(charter)?.hash();
        let (head, read) = agreed.head.follow(entry, charter)?;
        if read.header != expected {
            return Err(SecAggError::SecondHeader { round: read.round });
        }
        let listed = match &read.outcome {
            Outcome::Aborted => Vec::new(),
            Outcome::Completed { contributors, .. } => contributors.members().to_vec(),
        };
        if !listed.iter().map(|(client, _)| client.clone()).eq(included) {
            return Err(SecAggError::Chain);
        }
        if let Some((client, upload)) = own
            && let Some((_, commitment)) = listed.iter().find(|(listed, _)| listed == client)
        {
            let key = *charter.key_of(client)?;
            if !upload.open(&key)?.commitment.matches(commitment) {
                return Err(SecAggError::OwnCommitment);
            }
        }
        agreed.head = head;
        Ok(())
    }

    fn agreed(&self) -> Result<&Agreed, SecAggError> {
        self.agreed.as_ref().ok_or(SecAggError::Charter("no charter was seen"))
    }
}
