//! The summer's stream: it takes questions from the mailbox, and brings answers to the engine.

use std::sync::Arc;
use std::time::Duration;

use dp_pvi_names::ClientId;
use dp_pvi_programs::identity::Party;
use dp_pvi_proto::summer::{self, AnswerReader};
use dp_pvi_proto::v1::aggregation_server::Aggregation;
use dp_pvi_proto::{server as wire, v1};
use dp_pvi_protocol::aggregation::SummerReply;
use dp_pvi_protocol::transport::Rejection;
use tokio::sync::{mpsc, watch};
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Request, Response, Status, Streaming};
use tracing::warn;

use super::{AtWork, FrameStream, Service, connected, frame_status};
use crate::engine::Presence;
use crate::listener::ConnectedPeer;
use crate::mailbox::Posted;

/// Frames that wait for the line.
const QUEUE: usize = 4;
/// A stream ends after this long, between two questions; the summer opens the next. Certificates are looked at again then.
const STREAM: Duration = Duration::from_secs(1800);

/// The service of the one summer that the configuration names; cheap to clone.
#[derive(Clone)]
pub(crate) struct AggregationService {
    service: Service,
    summer: ClientId,
    posted: watch::Receiver<Posted>,
    /// Longest answer.
    limit: u64,
    /// Number of the newest stream: it alone is served.
    newest: Arc<watch::Sender<u64>>,
}

impl AggregationService {
    pub(crate) fn new(service: Service, summer: ClientId, posted: watch::Receiver<Posted>, limit: u64) -> Self {
        Self { service, summer, posted, limit, newest: Arc::new(watch::channel(0).0) }
    }
}

#[tonic::async_trait]
impl Aggregation for AggregationService {
    type ServeStream = FrameStream<v1::QuestionFrame>;

    async fn serve(&self, request: Request<Streaming<v1::SummerFrame>>) -> Result<Response<Self::ServeStream>, Status> {
        let caller = connected(&request)?.clone();
        let (peer, party) = self.service.summer(&caller)?;
        if party != Party::Summer || peer.client != self.summer {
            let message =
                format!("{} is not the summer of this federation ([summer] name of the server says {})", peer.client, self.summer);
            return Err(wire::rejection(Rejection::Authentication, message));
        }
        // The newest connection is served, as after one that broke. A copy would take over so, too: its operator and ours hear of it.
        self.service.twice(&self.summer, &caller);
        let at_work = self.service.session(&self.summer, &caller);
        let (frames, queue) = mpsc::channel(QUEUE);
        let mut newest = self.newest.subscribe();
        self.newest.send_modify(|number| *number += 1);
        let number = *newest.borrow_and_update();
        let stream = Stream { service: self.clone(), caller, _at_work: at_work, answers: request.into_inner(), frames, newest, number };
        tokio::spawn(stream.serve());
        Ok(Response::new(Box::pin(ReceiverStream::new(queue))))
    }
}

/// One connection of the summer.
struct Stream {
    service: AggregationService,
    caller: ConnectedPeer,
    /// Before the frames: anyone who sees their end finds that this one is not at work any more.
    _at_work: AtWork,
    answers: Streaming<v1::SummerFrame>,
    frames: mpsc::Sender<Result<v1::QuestionFrame, Status>>,
    newest: watch::Receiver<u64>,
    number: u64,
}

impl Stream {
    async fn serve(mut self) {
        self.service.service.engine.summer(Presence::Connected);
        if let Err(status) = self.exchange().await {
            // No one reads it where the connection is gone.
            drop(self.frames.send(Err(status)).await);
        }
        // The stream that took over has said that the summer is here.
        if *self.newest.borrow() == self.number {
            self.service.service.engine.summer(Presence::Gone);
        }
    }

    async fn exchange(&mut self) -> Result<(), Status> {
        let engine = self.service.service.engine.clone();
        let mut gone = engine.gone();
        let mut posted = self.service.posted.clone();
        posted.mark_changed();
        let mut reader = AnswerReader::new(self.service.limit);
        let end = tokio::time::sleep(STREAM);
        tokio::pin!(end);
        let mut asked = None;
        loop {
            tokio::select! {
                changed = posted.changed() => {
                    if changed.is_err() {
                        return Err(wire::unavailable("the server is going down"));
                    }
                    let said = posted.borrow_and_update().clone();
                    asked = self.say(said).await?;
                }
                frame = self.answers.message() => {
                    let Some(frame) = frame? else { return Ok(()) };
                    if let Some(answer) = reader.frame(frame).map_err(|e| frame_status(&e))? {
                        let Some(reply) = SummerReply::from_bytes(&answer.bytes) else {
                            warn!("the summer's answer cannot be read: is it of another version?");
                            engine.summer_replied(answer.number, SummerReply::Refused("its answer cannot be read".into()));
                            return Err(wire::rejection(Rejection::Message, "an answer that cannot be read"));
                        };
                        asked = asked.filter(|number| *number != answer.number);
                        engine.summer_replied(answer.number, reply);
                    }
                }
                _ = self.newest.changed() => {
                    return Err(self.taken_over());
                }
                _ = gone.changed() => return Err(wire::unavailable("the server is going down")),
                () = &mut end, if asked.is_none() => return Ok(()),
            }
        }
    }

    /// What the one before is told, if anyone is still there: then two of them run.
    fn taken_over(&self) -> Status {
        let others = self.service.service.clients.others(&self.service.summer, self.caller.connection).join(", ");
        let message = format!(
            "this summer calls from {}; another connection under its name took over, from {others}: where two copies of it run, stop one",
            self.caller.address
        );
        wire::rejection(Rejection::Copy, message)
    }

    /// Sends what lies on the mailbox; gives the number of the question, if it is one.
    async fn say(&self, posted: Posted) -> Result<Option<u64>, Status> {
        match posted {
            Posted::Nothing => Ok(None),
            Posted::Question { number, bytes } => {
                for frame in summer::question_frames(number, bytes) {
                    self.send(frame).await?;
                }
                Ok(Some(number))
            }
            Posted::Over { outcome, charter } => {
                self.send(summer::over(outcome, charter.as_ref())).await?;
                self.service.service.engine.summer_told();
                Ok(None)
            }
        }
    }

    async fn send(&self, frame: v1::QuestionFrame) -> Result<(), Status> {
        self.frames.send(Ok(frame)).await.map_err(|_| wire::unavailable("the summer hung up"))
    }
}
