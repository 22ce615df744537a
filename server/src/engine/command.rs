//! What can be asked of the engine.

use std::collections::BTreeMap;

use dp_pvi_names::ClientId;
use dp_pvi_protocol::aggregation::SummerReply;
use dp_pvi_protocol::coordinator::{Control, Enrolled, Expected, Peer, Rejected};
use dp_pvi_protocol::message::{Hello, MetricsReport, Next, Receipt, Refusal, Signed, Update};
use dp_pvi_protocol::sum::PayloadError;
use dp_pvi_protocol::witness::Greeting;
use tokio::sync::{oneshot, watch};

use std::sync::mpsc::Sender;

use super::Snapshot;
use crate::error::ServerError;
use crate::mailbox::Presence;

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Refused {
    /// The protocol says no.
    #[error(transparent)]
    Rejected(#[from] Rejected),
    /// The server is going down.
    #[error("the server is going down")]
    Gone,
}

pub(super) type Reply<T> = oneshot::Sender<Result<T, Refused>>;

/// An answer that is on its way.
#[derive(Debug)]
pub(crate) struct Answer<T>(oneshot::Receiver<Result<T, Refused>>);

impl<T> Answer<T> {
    fn new() -> (Reply<T>, Self) {
        let (reply, answer) = oneshot::channel();
        (reply, Self(answer))
    }

    /// Waits for it. It comes once.
    pub(crate) async fn get(&mut self) -> Result<T, Refused> {
        self.used().await.unwrap_or(Err(Refused::Gone))
    }

    /// Waits for it; `None` where the engine dropped its end.
    async fn used(&mut self) -> Option<Result<T, Refused>> {
        (&mut self.0).await.ok()
    }
}

/// What the engine makes of a large update.
#[derive(Debug)]
pub(crate) enum Begun {
    /// The payload is read and stored next.
    Accepted(Expected),
    /// The payload is not needed.
    Answered(Signed<Receipt>),
}

/// A site's request for work: how much it has seen, and where the answer goes.
pub(super) struct WorkRequest {
    pub(super) seen: u32,
    pub(super) reply: Reply<Next>,
}

pub(super) enum Command {
    Hello { peer: Peer, hello: Signed<Hello>, reply: Reply<Greeting> },
    Small { peer: Peer, update: Signed<Update>, payload: Vec<u8>, reply: Reply<Signed<Receipt>>, next: Option<WorkRequest> },
    Begin { peer: Peer, update: Signed<Update>, accept: Reply<Expected>, reply: Reply<Signed<Receipt>> },
    Stored { client: ClientId, update: Signed<Update>, reply: Reply<Signed<Receipt>> },
    NotTaken { client: ClientId, round: u32, problem: PayloadError },
    Consent { peer: Peer, signature: Vec<u8>, reply: Reply<()> },
    Summer(Presence),
    SummerReply { number: u64, reply: Box<SummerReply> },
    SummerNotified,
    Refuse { peer: Peer, refusal: Signed<Refusal>, reply: Reply<()> },
    Report { peer: Peer, report: Signed<MetricsReport>, reply: Reply<()> },
    Next { peer: Peer, next: WorkRequest },
    Control { control: Control, reply: Reply<()> },
    Stop { reply: Reply<()> },
    Enrolled(BTreeMap<ClientId, Enrolled>),
    Status { reply: Reply<Snapshot> },
    Fault(ServerError),
    Close,
}

impl Command {
    /// The client that it comes from, if it comes from one.
    pub(super) fn client(&self) -> Option<&ClientId> {
        match self {
            Self::Hello { peer, .. }
            | Self::Small { peer, .. }
            | Self::Begin { peer, .. }
            | Self::Consent { peer, .. }
            | Self::Refuse { peer, .. }
            | Self::Report { peer, .. }
            | Self::Next { peer, .. } => Some(&peer.client),
            Self::Stored { client, .. } | Self::NotTaken { client, .. } => Some(client),
            Self::Summer(_)
            | Self::SummerReply { .. }
            | Self::SummerNotified
            | Self::Control { .. }
            | Self::Stop { .. }
            | Self::Enrolled(_)
            | Self::Status { .. }
            | Self::Fault(_)
            | Self::Close => None,
        }
    }
}

/// The way to the engine; cheap to clone.
#[derive(Debug, Clone)]
pub(crate) struct EngineHandle {
    sender: Sender<Command>,
    gone: watch::Receiver<()>,
}

impl std::fmt::Debug for Command {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Command")
    }
}

impl EngineHandle {
    /// `gone` is a channel whose sender lives as long as the engine.
    pub(super) fn new(sender: Sender<Command>, gone: watch::Receiver<()>) -> Self {
        Self { sender, gone }
    }

    /// A channel on which nothing is sent, and which closes with the engine.
    pub(crate) fn gone(&self) -> watch::Receiver<()> {
        self.gone.clone()
    }

    fn send(&self, command: Command) -> Result<(), Refused> {
        self.sender.send(command).map_err(|_| Refused::Gone)
    }

    async fn ask<T>(&self, command: impl FnOnce(Reply<T>) -> Command) -> Result<T, Refused> {
        let (reply, mut answer) = Answer::new();
        self.send(command(reply))?;
        answer.get().await
    }

    pub(crate) async fn hello(&self, peer: Peer, hello: Signed<Hello>) -> Result<Greeting, Refused> {
        self.ask(|reply| Command::Hello { peer, hello, reply }).await
    }

    /// A small update, whole, and the request for work that came with it: it is answered if the update is taken.
    #[allow(clippy::type_complexity, reason = "two answers")]
    pub(crate) fn small(
        &self,
        peer: Peer,
        update: Signed<Update>,
        payload: Vec<u8>,
        next: Option<u32>,
    ) -> Result<(Answer<Signed<Receipt>>, Option<Answer<Next>>), Refused> {
        let (reply, receipt) = Answer::new();
        let (next, work) = next
            .map(|seen| {
                let (reply, work) = Answer::new();
                (WorkRequest { seen, reply }, work)
            })
            .unzip();
        self.send(Command::Small { peer, update, payload, reply, next })?;
        Ok((receipt, work))
    }

    /// A large update, before its payload: what to expect of that, or its receipt.
    pub(crate) async fn begin(&self, peer: Peer, update: Signed<Update>) -> Result<Begun, Refused> {
        let ((accept, mut accepted), (reply, mut receipt)) = (Answer::new(), Answer::new());
        self.send(Command::Begin { peer, update, accept, reply })?;
        // The engine uses one of the two and drops the other.
        tokio::select! {
            Some(expected) = accepted.used() => expected.map(Begun::Accepted),
            Some(receipt) = receipt.used() => receipt.map(Begun::Answered),
            else => Err(Refused::Gone),
        }
    }

    /// The payload of an accepted update is durable.
    pub(crate) async fn stored(&self, client: ClientId, update: Signed<Update>) -> Result<Signed<Receipt>, Refused> {
        self.ask(|reply| Command::Stored { client, update, reply }).await
    }

    /// A payload was refused while it arrived.
    pub(crate) fn not_taken(&self, client: ClientId, round: u32, problem: PayloadError) {
        drop(self.sender.send(Command::NotTaken { client, round, problem }));
    }

    pub(crate) async fn consent(&self, peer: Peer, signature: Vec<u8>) -> Result<(), Refused> {
        self.ask(|reply| Command::Consent { peer, signature, reply }).await
    }

    /// The summer came or went. An engine that is gone does not care, here and below.
    pub(crate) fn summer(&self, presence: Presence) {
        drop(self.sender.send(Command::Summer(presence)));
    }

    /// The summer answered the question with this number.
    pub(crate) fn summer_replied(&self, number: u64, reply: SummerReply) {
        drop(self.sender.send(Command::SummerReply { number, reply: Box::new(reply) }));
    }

    /// The summer has been told that the run is over.
    pub(crate) fn summer_told(&self) {
        drop(self.sender.send(Command::SummerNotified));
    }

    pub(crate) async fn refuse(&self, peer: Peer, refusal: Signed<Refusal>) -> Result<(), Refused> {
        self.ask(|reply| Command::Refuse { peer, refusal, reply }).await
    }

    pub(crate) async fn report(&self, peer: Peer, report: Signed<MetricsReport>) -> Result<(), Refused> {
        self.ask(|reply| Command::Report { peer, report, reply }).await
    }

    /// Asks for work: answered when there is some for this client.
    pub(crate) fn next(&self, peer: Peer, seen: u32) -> Result<Answer<Next>, Refused> {
        let (reply, work) = Answer::new();
        self.send(Command::Next { peer, next: WorkRequest { seen, reply } })?;
        Ok(work)
    }

    pub(crate) async fn control(&self, control: Control) -> Result<(), Refused> {
        self.ask(|reply| Command::Control { control, reply }).await
    }

    /// Ends the run: where it stands then. Both are asked at once, because a server that no one waits for ends right after its run.
    pub(crate) async fn stop(&self) -> Result<Snapshot, Refused> {
        let ((stop, mut stopped), (status, mut snapshot)) = (Answer::new(), Answer::new());
        self.send(Command::Stop { reply: stop })?;
        self.send(Command::Status { reply: status })?;
        stopped.get().await?;
        snapshot.get().await
    }

    pub(crate) async fn status(&self) -> Result<Snapshot, Refused> {
        self.ask(|reply| Command::Status { reply }).await
    }

    /// Other enrolled clients from now on. An engine that is gone does not care.
    pub(crate) fn set_enrolled(&self, clients: BTreeMap<ClientId, Enrolled>) {
        drop(self.sender.send(Command::Enrolled(clients)));
    }

    /// The server's own disk failed: the run ends here and can be continued by another start.
    pub(crate) fn fault(&self, problem: ServerError) {
        drop(self.sender.send(Command::Fault(problem)));
    }

    /// Ends the engine's thread after what was asked before.
    pub(crate) fn close(&self) {
        drop(self.sender.send(Command::Close));
    }
}
