//! The summer's loop: connect, answer questions, connect again.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use dp_pvi_names::{ClientId, Hash};
use dp_pvi_privacy::noise::SecureNoise;
use dp_pvi_programs::problem::Problem;
use dp_pvi_proto::summer::FromServer;
use dp_pvi_protocol::aggregation::summer::SummerNode;
use dp_pvi_protocol::aggregation::{SummerCall, SummerReply, SummerRequest};
use dp_pvi_protocol::message::RunOutcome;
use dp_pvi_protocol::time::Backoff;
use dp_pvi_secagg::charter::Floors;
use dp_pvi_secagg::signed::PublicKey;
use serde::Serialize;
use tracing::{debug, info, warn};

use super::Credentials;
use super::config::SummerConfig;
use super::line::Line;
use super::store::FileStores;
use crate::clock;
use crate::error::{Result, ServerError};
use crate::tls::authority_hash;

/// Pauses before another attempt to connect.
const BETWEEN: Backoff = Backoff { first: Duration::from_millis(200), longest: Duration::from_secs(10) };
/// A server that was not reached yet is tried for this long.
const FIRST_CONTACT: Duration = Duration::from_secs(60);
/// Most that one try, and the pause before it, add to the time for which a server is away.
const ONE_TRY: Duration = Duration::from_secs(60);

/// One thing that happened, as `--format json` prints it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(tag = "event", rename_all = "kebab-case")]
pub enum Event {
    /// The line to the server is open.
    Connected {
        /// The server.
        server: String,
    },
    /// A charter was signed.
    CharterSigned {
        /// Hash of its text.
        charter: String,
        /// The run's number.
        run: u32,
        /// The sites in it.
        sites: Vec<ClientId>,
        /// Fewest contributors of a sum.
        min_contributors: u32,
    },
    /// The sum of the masks of a round was given out.
    RoundClosed {
        /// The round.
        round: u32,
        /// Number of sites whose masks are in the sum.
        contributors: usize,
    },
    /// Something was refused.
    Refused {
        /// Why.
        reason: String,
    },
    /// The run is over; its keys are destroyed.
    RunEnded {
        /// How.
        outcome: RunOutcome,
    },
}

/// Takes events as they happen.
pub type EventSink = Arc<dyn Fn(&Event) + Send + Sync>;

/// Answers the server's questions until its run ends or `shutdown` resolves to the number of a signal.
///
/// # Errors
/// See [`ServerError`]; [`ServerError::Unreachable`] when the server stays away for `[summer] reconnect_seconds`.
pub async fn run(config: SummerConfig, events: EventSink, shutdown: impl Future<Output = u8>) -> Result<()> {
    let credentials = Credentials::load(&config)?;
    let stores = FileStores::open(&config.state, &config.vault)?;
    let node = SummerNode::new(credentials.identity.clone(), PublicKey(credentials.server_identity.to_bytes()), stores);
    let answers = Answers { node: Arc::new(Mutex::new(node)), floors: config.floors, authority: authority_hash(&config.tls.ca)?, events };
    tokio::select! {
        signal = shutdown => Err(ServerError::Signal(signal)),
        outcome = serve(&config, &credentials, &answers) => match outcome? {
            RunOutcome::Complete | RunOutcome::Stopped | RunOutcome::Converged => Ok(()),
            RunOutcome::QuorumLost | RunOutcome::Refused => Err(ServerError::QuorumLost(None)),
            RunOutcome::AggregationLost => Err(ServerError::AggregationLost(None)),
        }
    }
}

/// Keeps a line to the server, and works on it until a run has ended.
async fn serve(config: &SummerConfig, credentials: &Credentials, answers: &Answers) -> Result<RunOutcome> {
    // Anyone who starts both waits no longer for a server that ended with an error.
    let mut patience = config.reconnect.min(FIRST_CONTACT);
    let (mut last, mut away) = (clock::instant(), Duration::ZERO);
    let mut failures = 0;
    loop {
        let ended = match Line::open(credentials).await {
            Ok(mut line) => {
                info!(server = credentials.address(), "connected");
                (answers.events)(&Event::Connected { server: credentials.address() });
                let worked = answers.work(&mut line).await;
                (last, away, failures, patience) = (clock::instant(), Duration::ZERO, 0, config.reconnect);
                worked
            }
            Err(error) => Err(error),
        };
        // A process that was stopped meanwhile has not been away from a server for so long.
        away += last.elapsed().min(ONE_TRY);
        last = clock::instant();
        match ended {
            Ok(Some(outcome)) => return Ok(outcome),
            // In order: the server wants another connection.
            Ok(None) => continue,
            Err(problem @ ServerError::Unreachable(_)) if away < patience => {
                warn!(%problem, "the line to the server is down; trying again");
            }
            Err(problem) => return Err(problem),
        }
        failures += 1;
        tokio::time::sleep(BETWEEN.after(failures)).await;
    }
}

/// Where questions are answered.
struct Answers {
    node: Arc<Mutex<SummerNode<FileStores>>>,
    floors: Floors,
    authority: Hash,
    events: EventSink,
}

impl Answers {
    /// Answers what comes on a line; `None` where the server ended it in order.
    async fn work(&self, line: &mut Line) -> Result<Option<RunOutcome>> {
        loop {
            match line.question().await? {
                None => return Ok(None),
                Some(FromServer::Question(question)) => {
                    let Some(request) = SummerRequest::from_bytes(&question.bytes) else {
                        return Err(ServerError::OtherTask("a question that cannot be read: the server is of another version".into()));
                    };
                    let reply = self.answer(request).await?;
                    line.answer(question.number, &reply).await?;
                }
                Some(FromServer::Over { outcome, charter }) => {
                    if let Some(charter) = charter {
                        self.on_disk(move |node| node.end(charter)).await?.map_err(|e| ServerError::Unavailable(Problem::of(e)))?;
                    }
                    info!(?outcome, "the run is over; its keys are destroyed");
                    (self.events)(&Event::RunEnded { outcome });
                    return Ok(Some(outcome));
                }
            }
        }
    }

    /// One answer. Disk and masks take their time: they have a thread of their own.
    async fn answer(&self, request: SummerRequest) -> Result<SummerReply> {
        if let Err(reason) = self.allowed(&request) {
            warn!(reason, "a charter is not signed");
            (self.events)(&Event::Refused { reason: reason.clone() });
            return Ok(SummerReply::Refused(reason));
        }
        let mut rng = SecureNoise::fresh().map_err(|e| ServerError::Failed(Problem::of(e)))?;
        let (request, reply) = self
            .on_disk(move |node| {
                let reply = node.handle(&request, &mut rng);
                (request, reply)
            })
            .await?;
        self.report(&request, &reply);
        Ok(reply)
    }

    /// This summer's own policy: what the charter's rules leave to the parties.
    fn allowed(&self, request: &SummerRequest) -> std::result::Result<(), String> {
        if request.ask != SummerCall::Sign {
            return Ok(());
        }
        let body = request.charter.text().map_err(|e| e.to_string())?;
        if body.authority != self.authority {
            return Err("the charter names another certificate authority than [tls] ca".into());
        }
        body.meets(&self.floors).map_err(|e| e.to_string().replace("this site's floor", "the floor of this summer ([policy])"))
    }

    /// Events of an answer.
    fn report(&self, request: &SummerRequest, reply: &SummerReply) {
        let event = match (&request.ask, reply) {
            (_, SummerReply::Refused(reason) | SummerReply::Never(reason)) => {
                warn!(reason, "refused");
                Event::Refused { reason: reason.clone() }
            }
            (_, SummerReply::BadSeed(client)) => {
                warn!(%client, "this site's seed cannot be opened");
                Event::Refused { reason: format!("the seed of {client} cannot be opened") }
            }
            (SummerCall::Sign, _) => {
                let Ok(body) = request.charter.text() else { return };
                let charter = request.charter.hash().to_string();
                let sites: Vec<ClientId> = body.members.iter().map(|member| member.id.clone()).collect();
                info!(charter, run = body.run.number, sites = sites.len(), "charter signed");
                Event::CharterSigned { charter, run: body.run.number, sites, min_contributors: body.min_contributors }
            }
            (SummerCall::Close(close), _) => {
                info!(round = close.round, contributors = close.uploads.len(), "round closed");
                Event::RoundClosed { round: close.round, contributors: close.uploads.len() }
            }
            (SummerCall::Offer { .. } | SummerCall::Countersign(_), _) => {
                debug!("a round's key or header was signed");
                return;
            }
        };
        (self.events)(&event);
    }

    async fn on_disk<T: Send + 'static>(&self, work: impl FnOnce(&mut SummerNode<FileStores>) -> T + Send + 'static) -> Result<T> {
        let node = Arc::clone(&self.node);
        tokio::task::spawn_blocking(move || work(&mut node.lock().unwrap_or_else(PoisonError::into_inner)))
            .await
            .map_err(|e| ServerError::Failed(Problem::said(format!("an answer could not be worked out: {e}"), e)))
    }
}
