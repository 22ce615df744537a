//! Identity and policy of a client, and its first exchange with the server.

use std::sync::Arc;

use crate::origin::Origin;
use dp_pvi_accounting::{PrivacyUnit, Relation};
use dp_pvi_names::{ClientId, Hash};
use dp_pvi_posterior::task::{ResolvedTask, Trust};
use dp_pvi_privacy::ledger::LedgerHead;
use ed25519_dalek::{SigningKey, VerifyingKey};

use super::SiteError;
use crate::aggregation::member::AggregationPolicy;
use crate::message::{Hello, Intent, PROTOCOL_VERSIONS, Role, Signed, Welcome};

/// Identity of a client, and the identities that it trusts.
#[derive(Clone)]
pub struct Identity {
    /// Name of the federation.
    pub federation: String,
    /// Client id.
    pub client: ClientId,
    /// Own identity key.
    pub key: SigningKey,
    /// The server's identity key, pinned.
    pub server: VerifyingKey,
    /// SHA-256 of the SubjectPublicKeyInfo of the TLS certificate that the transport uses.
    pub tls_key: Hash,
    /// Program version, for people.
    pub software: String,
    /// The only task that is accepted, if set.
    pub task: Option<Hash>,
}

impl std::fmt::Debug for Identity {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Identity").field("federation", &self.federation).field("client", &self.client).finish_non_exhaustive()
    }
}

/// What a site accepts.
#[derive(Debug, Clone, PartialEq)]
pub struct Policy {
    /// Which tasks.
    pub approve: Approve,
    /// Which trust models.
    pub allow_trust: Vec<Trust>,
    /// Least `release_tick_seconds` of a task; 0: any.
    pub min_release_tick_seconds: u64,
    /// What it asks of an aggregation.
    pub aggregation: AggregationPolicy,
}

/// How a task is approved (decision 18).
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Approve {
    /// Any task within the policy and the budget.
    Policy,
    /// Only tasks, and charters of aggregated runs, whose hash an operator recorded.
    Manual {
        /// The recorded hashes.
        approved: Vec<Hash>,
    },
    /// Only this task.
    Exactly(Hash),
}

impl Policy {
    /// Whether a task is allowed.
    pub(super) fn check(&self, task: &ResolvedTask, hash: Hash) -> Result<(), SiteError> {
        match &self.approve {
            Approve::Manual { approved } if !approved.contains(&hash) => {
                return Err(SiteError::Unapproved(format!(
                    "task {hash} is not approved here: read it (`plan`), then `dp-pvi-client approve {hash}`"
                )));
            }
            Approve::Exactly(only) if *only != hash => {
                return Err(SiteError::Policy(format!("task {hash} is not the one that [policy] approve names")));
            }
            Approve::Policy | Approve::Manual { .. } | Approve::Exactly(_) => {}
        }
        if !self.allow_trust.contains(&task.privacy.trust) {
            return Err(SiteError::Policy(format!("trust model {:?} is not in allow_trust", task.privacy.trust)));
        }
        let (tick, least) = (task.release_tick_seconds, self.min_release_tick_seconds);
        if tick < least {
            return Err(SiteError::Policy(format!(
                "its release_tick_seconds is {tick}, below min_release_tick_seconds = {least}: the moment at which an update leaves would tell \
                 how long its computation took"
            )));
        }
        Ok(())
    }

    /// Whether this charter, which is the one that an approved task and the floors ask for, may be signed. Its text says more than the
    /// task: which keys the other sites have. Where an operator approves by hand, he compares those, too.
    pub(super) fn check_charter(&self, hash: Hash) -> Result<(), SiteError> {
        match &self.approve {
            Approve::Manual { approved } if !approved.contains(&hash) => Err(SiteError::Unapproved(format!(
                "charter {hash} is not approved here: compare the sites' keys (above in this log) with the other sites, then `dp-pvi-client approve {hash}` and start again; the server waits"
            ))),
            Approve::Manual { .. } | Approve::Policy | Approve::Exactly(_) => Ok(()),
        }
    }
}

/// What only a site declares in its hello.
pub(super) struct Declared {
    pub(super) nominal_units: u64,
    pub(super) ledger: (PrivacyUnit, Relation),
    pub(super) head: LedgerHead,
    pub(super) rows: Origin,
}

impl Identity {
    pub(super) fn hello(&self, declared: Option<Declared>) -> Signed<Hello> {
        let hello = Hello {
            versions: PROTOCOL_VERSIONS.to_vec(),
            federation: self.federation.clone(),
            client: self.client.clone(),
            intent: Intent::Join,
            role: if declared.is_some() { Role::Site } else { Role::Evaluator },
            tls_key: self.tls_key,
            task: self.task,
            nominal_units: declared.as_ref().map(|d| d.nominal_units),
            ledger: declared.as_ref().map(|d| d.ledger),
            ledger_head: declared.as_ref().map(|d| d.head),
            rows: declared.map(|d| d.rows),
            software: self.software.clone(),
        };
        Signed::seal(&hello, &self.key)
    }

    /// The server's answer: signature and freshness.
    pub(super) fn open_welcome(&self, hello: &Signed<Hello>, welcome: &Signed<Welcome>) -> Result<Welcome, SiteError> {
        let welcome = welcome.open(&self.server)?;
        if welcome.hello != hello.hash() {
            return Err(SiteError::Server("its welcome answers another hello"));
        }
        Ok(welcome)
    }

    /// Checks the server's answer: signature, freshness, version, and that the task is the one that it names.
    pub(super) fn check_welcome(
        &self,
        hello: &Signed<Hello>,
        welcome: &Signed<Welcome>,
    ) -> Result<(Welcome, Arc<ResolvedTask>), SiteError> {
        let welcome = self.open_welcome(hello, welcome)?;
        if !PROTOCOL_VERSIONS.contains(&welcome.version) {
            return Err(SiteError::Version(format!("it chose protocol version {}", welcome.version)));
        }
        let task = ResolvedTask::from_bytes(&welcome.task).map_err(|error| SiteError::Version(error.to_string()))?;
        if task.hash() != welcome.run.task {
            return Err(SiteError::Server("the task that it sent is not the one that it names"));
        }
        if let Some(known) = self.task
            && known != welcome.run.task
        {
            return Err(SiteError::Version(format!("it runs task {}, here {known} is configured", welcome.run.task)));
        }
        Ok((welcome, Arc::new(task)))
    }
}
