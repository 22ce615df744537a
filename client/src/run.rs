//! The resident process: one run, from the first hello to the end, however often it is interrupted.

use std::time::Duration;

use dp_pvi_names::Hash;
use dp_pvi_posterior::task::Trust;
use dp_pvi_privacy::NoiseSource;
use dp_pvi_privacy::ledger::ChargeStore;
use dp_pvi_programs::ledger::SqliteLedger;
use dp_pvi_protocol::aggregation::member::AggregationPolicy;
use dp_pvi_protocol::driver::{BETWEEN, Observer, Patience, SiteOutcome, drive_evaluator, drive_site};
use dp_pvi_protocol::message::{RefusalReason, Role, RunEnd, RunOutcome};
use dp_pvi_protocol::participant::{Approve as ProtocolApprove, EvaluatorParticipant, Identity, Participant, Policy};
use dp_pvi_protocol::text::visible;
use ed25519_dalek::SigningKey;
use rand_core::CryptoRng;

use crate::clock::SystemClock;
use crate::config::{Approve, Config};
use crate::error::{ClientError, Result};
use crate::history::Recording;
use crate::snapshot::{LocalSchema, unit_in_words};
use crate::tls::{self, TlsIdentity};
use crate::train::{PublicEvaluator, SiteTrainer};
use crate::transport::GrpcTransport;
use crate::{approvals, keys, ledger};

/// What this program calls itself in a hello.
pub const SOFTWARE: &str = concat!("dp-pvi-client/", env!("CARGO_PKG_VERSION"));

/// How long a server that was never reached is tried, so that a client started together with a server that failed ends soon.
const FIRST_CONTACT: Duration = Duration::from_secs(60);

/// How a run ended for this client.
#[derive(Debug, Clone, PartialEq)]
pub struct Ended {
    /// The end, as the server signed it.
    pub end: RunEnd,
    /// Updates that this process sent.
    pub sent: u32,
    /// Refusals that this process sent.
    pub refusals: Vec<(u32, RefusalReason)>,
}

/// Takes part in a run as `config` says. `decorate` may wrap the site's ledger store (the shipped program returns it as it is), and `noise` is
/// what protects its releases (there [`SecureNoise`](dp_pvi_privacy::SecureNoise); the trait is sealed).
///
/// # Errors
/// See [`ClientError`]. The same call goes on where this one stopped.
pub async fn run<S: ChargeStore, N: NoiseSource<Stream: CryptoRng> + Clone + 'static>(
    config: &Config,
    decorate: impl FnOnce(SqliteLedger) -> S,
    noise: N,
    observer: &mut impl Observer,
) -> Result<Ended> {
    match config.site.role {
        Role::Site => {
            run_site(config, decorate, noise, observer).await.map(|SiteOutcome { end, refusals, sent }| Ended { end, sent, refusals })
        }
        Role::Evaluator => run_evaluator(config, observer).await.map(|end| Ended { end, sent: 0, refusals: Vec::new() }),
    }
}

/// Takes part as a site.
///
/// # Errors
/// See [`ClientError`].
pub async fn run_site<S: ChargeStore, N: NoiseSource<Stream: CryptoRng> + Clone + 'static>(
    config: &Config,
    decorate: impl FnOnce(SqliteLedger) -> S,
    noise: N,
    observer: &mut impl Observer,
) -> Result<SiteOutcome> {
    let private = config.private()?;
    keys::check_state(&config.site.state)?;
    let tls = tls::load(config)?;
    let identity = identity(config, &tls)?;
    let policy = policy(config)?;
    // The lock first: a second process on the same data set stops here, before it reads or sends anything.
    let ledger = ledger::open(private, identity.key.clone(), decorate)?;
    let schema = LocalSchema::read(&config.data.schema)?;
    let ledger = ledger.of_units(unit_in_words(config, &schema)?)?;
    // Then the records, before the first message: what is wrong with a file is the operator's matter, and how long it takes to read no one's.
    let mut trainer = SiteTrainer::load(config, noise).await?;
    let ledger = ledger.of_records(trainer.records(private.nominal_units));
    let mut participant = Participant::new(identity, policy, private.nominal_units, ledger).with_rows(trainer.origin().clone());
    let mut transport = Recording::new(GrpcTransport::new(&config.site, tls), &config.site.state, &config.data.name);
    let patience = patience(config);
    let outcome = drive_site(&mut participant, &mut transport, &mut trainer, &SystemClock, observer, &patience)
        .await
        .map_err(|e| ClientError::from(e).at_server(&config.site.server()))?;
    check_books(&participant);
    give_back(&mut participant);
    trainer.leave()?;
    Ok(outcome)
}

/// Checks at the end of a run that the ledger booked what the task states. The run cannot be undone, so a difference is reported.
fn check_books<S: ChargeStore>(participant: &Participant<S, SigningKey>) {
    if let Err(problem) = participant.check_books() {
        tracing::error!(
            "the ledger and the privacy statement of this run differ ({problem}): keep both files, start no further run on this data set, compare \
             `dp-pvi-client ledger export` with the task (`dp-pvi-client plan`), and report it"
        );
    }
}

/// The run is over: what its plan has left will never be released, and what that cost comes back where a theorem allows it.
fn give_back<S: ChargeStore>(participant: &mut Participant<S, SigningKey>) {
    match participant.renounce() {
        Ok(None) => {}
        Ok(Some((before, after))) if after < before => {
            tracing::info!(
                "the run ended before all of its visits: those that were never released gave back what they cost, and {after:.4} of the budget is spent in place of {before:.4}"
            );
        }
        Ok(Some(_)) => tracing::info!("the run ended before all of its visits; no part of their price can come back"),
        Err(error) => {
            tracing::warn!(%error, "the run ended before all of its visits, and that they are renounced could not be written: `dp-pvi-client forget` does it later")
        }
    }
}

/// Takes part as an evaluator: no ledger, no updates, public data.
///
/// # Errors
/// See [`ClientError`].
pub async fn run_evaluator(config: &Config, observer: &mut impl Observer) -> Result<RunEnd> {
    let tls = tls::load(config)?;
    let mut participant = EvaluatorParticipant::new(identity(config, &tls)?);
    let mut transport = GrpcTransport::new(&config.site, tls);
    let mut evaluator = PublicEvaluator::load(config).await?;
    let patience = patience(config);
    drive_evaluator(&mut participant, &mut transport, &mut evaluator, &SystemClock, observer, &patience)
        .await
        .map_err(|e| ClientError::from(e).at_server(&config.site.server()))
}

/// Turns the end of a run into the process's result. That a site had no visit left is no refusal: it was charged for all of them.
///
/// # Errors
/// This site refused to take part in a round, or the run lost its quorum.
pub fn verdict(ended: &Ended) -> Result<()> {
    let mut refusals = ended.refusals.iter().filter(|(_, reason)| *reason != RefusalReason::Visited);
    if let Some((round, reason)) = refusals.next() {
        let reason = match reason {
            RefusalReason::Budget => "the data set's budget does not allow it",
            RefusalReason::Policy => "this site's policy does not allow it",
            RefusalReason::Frozen => {
                "the data set is frozen (`dp-pvi-client budget freeze --off` opens it, and the run can be joined again)"
            }
            RefusalReason::Spent => "a release of that name exists already",
            RefusalReason::Visited => "all its visits are charged",
            RefusalReason::Approval => "nobody here has approved the task yet",
            RefusalReason::Task => "the task is not one that this program computes, or does not cost what it states",
            RefusalReason::Unable => "this site could not compute",
            RefusalReason::Posterior => "the posterior that it starts from is not finite, which is the server's matter",
        };
        let more = refusals.count();
        return Err(ClientError::Refused(
            format!("no update in round {round}: {reason} (and {more} more rounds); see `dp-pvi-client budget show`").into(),
        ));
    }
    // The server's words, cut and shown as those of someone else.
    let why = |otherwise: &str| ended.end.reason().map_or_else(|| otherwise.to_owned(), |reason| visible(&reason).into_owned());
    let aborted = |what: &str, otherwise: &str| {
        let message = format!(
            "{what}: {}; the posterior of the last complete round stands, if there was one, and what was charged stays charged",
            why(otherwise)
        );
        Err(ClientError::Aborted(message.into()))
    };
    match ended.end.outcome {
        RunOutcome::Complete | RunOutcome::Stopped | RunOutcome::Converged => Ok(()),
        RunOutcome::AggregationLost => aborted(
            "the aggregation was aborted",
            "the charter was not signed by all, or the summer did not answer, or a sum could not be right",
        ),
        RunOutcome::Refused => aborted("so many sites refused that fewer than min_sites were left", "the server's log names them"),
        RunOutcome::QuorumLost => aborted("fewer sites than min_sites answered", "the server's log names them"),
    }
}

/// Who this client is and whom it trusts.
///
/// # Errors
/// Key files.
pub fn identity(config: &Config, tls: &TlsIdentity) -> Result<Identity> {
    let task = match config.policy.approve {
        Approve::Task(hash) => Some(hash),
        Approve::Policy | Approve::Manual => None,
    };
    Ok(Identity {
        federation: config.site.federation.clone(),
        client: config.site.name.clone(),
        key: keys::identity(&config.tls.identity)?,
        server: keys::server_identity(&config.tls.server_identity)?,
        tls_key: tls.key_hash,
        software: SOFTWARE.into(),
        task,
    })
}

/// The site's policy, with the approvals recorded so far.
///
/// # Errors
/// The state folder, or the summer's key file.
pub fn policy(config: &Config) -> Result<Policy> {
    let approve = match config.policy.approve {
        Approve::Policy => ProtocolApprove::Policy,
        Approve::Manual => ProtocolApprove::Manual { approved: approvals::list(&config.site.state)? },
        Approve::Task(hash) => ProtocolApprove::Exactly(hash),
    };
    Ok(Policy {
        approve,
        allow_trust: config.policy.allow_trust.clone(),
        min_release_tick_seconds: config.policy.min_release_tick_seconds,
        aggregation: aggregation(config)?,
    })
}

/// Whom the site takes for the summer, and its floors. Without `[aggregation]` no summer is pinned, and no charter is ever signed.
fn aggregation(config: &Config) -> Result<AggregationPolicy> {
    let Some(aggregation) = config.aggregation.as_ref().filter(|_| config.policy.allow_trust.contains(&Trust::Aggregated)) else {
        return Ok(AggregationPolicy::default());
    };
    Ok(AggregationPolicy { summer: Some(keys::summer_identity(&aggregation.summer)?), floors: aggregation.floors })
}

/// Whether the policy approves a task by its hash.
#[must_use]
pub fn approves(policy: &Policy, task: &Hash) -> Approval {
    let approved = match &policy.approve {
        ProtocolApprove::Policy => true,
        ProtocolApprove::Manual { approved } => approved.contains(task),
        ProtocolApprove::Exactly(hash) => hash == task,
    };
    if approved { Approval::Given } else { Approval::Missing }
}

/// Answer of [`approves`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Approval {
    /// The task may run.
    Given,
    /// An operator has to approve it.
    Missing,
}

fn patience(config: &Config) -> Patience {
    Patience {
        between: BETWEEN,
        give_up_after: config.site.reconnect,
        first_contact: FIRST_CONTACT,
        idle: Duration::from_millis(50),
        jitter: Box::new(|_| jitter()),
    }
}

/// Between a half and one: sites that lost the same server do not come back at the same instant.
fn jitter() -> f64 {
    let mut byte = [0];
    match getrandom::fill(&mut byte) {
        Ok(()) => 0.5 + f64::from(byte[0]) / 510.0,
        // Without randomness nothing can be released anyway; the wait is then the full one.
        Err(_) => 1.0,
    }
}
