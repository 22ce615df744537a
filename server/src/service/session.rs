//! One client's stream of work: requests in, one answer to each, in order.
//!
//! A round costs a site one exchange: it sends its update and, in the same breath, asks for the next round. The engine gets both in
//! one message. Where the update was the round's last, receipt and next round leave in one frame of TCP.

use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use dp_pvi_proto::server::{self as wire, Request};
use dp_pvi_proto::v1;
use dp_pvi_protocol::coordinator::{Expected, Peer};
use dp_pvi_protocol::message::{Next, Receipt, Signed, Update};
use futures_util::{FutureExt, Stream, stream};
use tokio::sync::watch;
use tokio::time::Sleep;
use tonic::{Status, Streaming};

use super::{AtWork, Service, frame_status, status};
use crate::engine::{Answer, Begun};
use crate::listener::ConnectedPeer;
use crate::store::SMALL_PAYLOAD;

/// A request for work is held back this long.
const LONG_POLL: Duration = Duration::from_secs(20);
/// Longest silence inside an upload.
const UPLOAD_SILENCE: Duration = Duration::from_secs(60);
/// A stream ends after this long, between two requests: so a connection can end at its greatest age.
const LIFETIME: Duration = Duration::from_secs(1800);

/// The state of a stream.
pub(super) struct Session {
    service: Service,
    peer: ConnectedPeer,
    requests: Streaming<v1::SiteFrame>,
    /// A frame that was read ahead.
    ahead: Option<v1::SiteFrame>,
    state: State,
    engine_gone: watch::Receiver<()>,
    lifetime: Pin<Box<Sleep>>,
    _at_work: AtWork,
}

enum State {
    /// Waits for a request.
    Listening,
    /// The engine has the request for work.
    Asked(Answer<Next>),
    /// Frames of an answer.
    Answering(Box<dyn Iterator<Item = v1::WorkFrame> + Send>),
    /// Nothing more is said.
    Over,
}

impl Session {
    pub(super) fn new(service: Service, peer: ConnectedPeer, requests: Streaming<v1::SiteFrame>, at_work: AtWork) -> Self {
        let (engine_gone, lifetime) = (service.engine.gone(), Box::pin(tokio::time::sleep(LIFETIME)));
        Self { service, peer, requests, ahead: None, state: State::Listening, engine_gone, lifetime, _at_work: at_work }
    }

    /// The answers. A refusal is the last.
    pub(super) fn answers(self) -> impl Stream<Item = Result<v1::WorkFrame, Status>> + Send {
        // Boxed: the state moves into the future of every frame and out again.
        stream::unfold(Box::new(self), |mut session| async move {
            let answer = session.answer().await.transpose()?;
            if answer.is_err() {
                session.state = State::Over;
            }
            Some((answer, session))
        })
    }

    /// The next frame; `None` at the end.
    async fn answer(&mut self) -> Result<Option<v1::WorkFrame>, Status> {
        loop {
            match &mut self.state {
                State::Answering(frames) => match frames.next() {
                    Some(frame) => return Ok(Some(frame)),
                    None => self.state = State::Listening,
                },
                State::Asked(answer) => {
                    let next = match tokio::time::timeout(LONG_POLL, answer.get()).await {
                        Ok(next) => next.map_err(|e| status(&e))?,
                        Err(_) => Next::Wait,
                    };
                    self.state = State::Answering(Box::new(wire::next_frames(next, Arc::clone(&self.service.entries))));
                }
                State::Listening => match self.request().await? {
                    None => return Ok(None),
                    Some(request) => {
                        let peer = self.service.authorise(&self.peer)?;
                        match wire::request(request).map_err(|e| frame_status(&e))? {
                            Request::Next(seen) => self.state = State::Asked(self.service.engine.next(peer, seen).map_err(|e| status(&e))?),
                            Request::Update(update) => return self.update(peer, update).await.map(Some),
                        }
                    }
                },
                State::Over => return Ok(None),
            }
        }
    }

    /// The first frame of a request; `None` where the client ends the stream, or this side may.
    async fn request(&mut self) -> Result<Option<v1::SiteFrame>, Status> {
        if let Some(ahead) = self.ahead.take() {
            return Ok(Some(ahead));
        }
        tokio::select! {
            biased;
            frame = self.requests.message() => frame,
            // Nothing is ever sent on it: it changes when the engine ends.
            _ = self.engine_gone.changed() => Ok(None),
            () = &mut self.lifetime => Ok(None),
        }
    }

    /// Takes an update: its receipt.
    async fn update(&mut self, peer: Peer, update: Signed<Update>) -> Result<v1::WorkFrame, Status> {
        // What the update announces is not verified yet; it only says how many bytes are held before the engine decides.
        let announced = update.peek().map_or(0, |body| body.coordinates.saturating_mul(8));
        let receipt = if announced <= SMALL_PAYLOAD {
            let payload = self.small(announced).await?;
            let next = self.pipelined();
            let (mut receipt, next) = self.service.engine.small(peer, update, payload, next).map_err(|e| status(&e))?;
            if let Some(next) = next {
                self.state = State::Asked(next);
            }
            receipt.get().await.map_err(|e| self.service.status_for(&self.peer, &e))?
        } else {
            // Boxed: few sites need it, and all would carry its state.
            Box::pin(self.large(&peer, update, announced)).await?
        };
        Ok(wire::receipt(receipt))
    }

    /// A payload, whole. One frame above what was announced is kept, so that the check of the length sees it.
    async fn small(&mut self, announced: u64) -> Result<Vec<u8>, Status> {
        let mut payload = Vec::new();
        while (payload.len() as u64) < announced {
            let Some(chunk) = self.chunk().await? else { break };
            if payload.is_empty() {
                payload = chunk.into();
            } else {
                payload.extend_from_slice(&chunk);
            }
        }
        Ok(payload)
    }

    async fn large(&mut self, peer: &Peer, update: Signed<Update>, announced: u64) -> Result<Signed<Receipt>, Status> {
        let engine = self.service.engine.clone();
        match engine.begin(peer.clone(), update.clone()).await.map_err(|e| self.service.status_for(&self.peer, &e))? {
            Begun::Accepted(expected) => {
                self.keep_payload(peer, &update, expected).await?;
                engine.stored(peer.client.clone(), update).await.map_err(|e| self.service.status_for(&self.peer, &e))
            }
            Begun::Answered(receipt) => {
                // The payload is on its way all the same.
                let mut skipped = 0;
                while skipped < announced {
                    let Some(chunk) = self.chunk().await? else { break };
                    skipped += chunk.len() as u64;
                }
                Ok(receipt)
            }
        }
    }

    async fn keep_payload(&mut self, peer: &Peer, update: &Signed<Update>, expected: Expected) -> Result<(), Status> {
        let service = self.service.clone();
        let _upload = service.clients.upload(&peer.client).ok_or_else(|| wire::unavailable("this client has two uploads in progress"))?;
        let (payload_store, client, hash, bytes) = (service.payload_store.clone(), peer.client.clone(), update.hash(), expected.bytes());
        let from = (&peer.client, update.peek().map_or(0, |update| update.release.round));
        let mut writer = service.on_disk(from, move || Ok(payload_store.begin(&client, hash, expected)?)).await?;
        let mut received = 0;
        while received < bytes {
            let Some(chunk) = self.chunk().await? else { break };
            received += chunk.len() as u64;
            writer = service.on_disk(from, move || writer.write(&chunk).map(|()| writer)).await?;
        }
        service.on_disk(from, move || writer.finish()).await
    }

    /// The next bytes of a payload; `None` where the client ends the stream.
    async fn chunk(&mut self) -> Result<Option<bytes::Bytes>, Status> {
        let frame = match self.requests.message().now_or_never() {
            Some(frame) => frame?,
            None => unless_silent(UPLOAD_SILENCE, self.requests.message()).await?,
        };
        frame.map(wire::payload).transpose().map_err(|e| frame_status(&e))
    }

    /// The request for work that came together with an update, if one did.
    fn pipelined(&mut self) -> Option<u32> {
        // After an error or the end of the stream the next look finds its end.
        let frame = self.requests.message().now_or_never()?.ok()??;
        match frame.frame {
            Some(v1::site_frame::Frame::Next(next)) => Some(next.seen),
            _ => {
                self.ahead = Some(frame);
                None
            }
        }
    }
}

/// The next frame of an upload, unless none comes for too long.
async fn unless_silent<T>(silence: Duration, frame: impl Future<Output = Result<T, Status>>) -> Result<T, Status> {
    match tokio::time::timeout(silence, frame).await {
        Ok(frame) => frame,
        Err(_) => Err(wire::unavailable("nothing came for a minute")),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[tokio::test]
    async fn an_upload_that_falls_silent_ends() {
        let ended = unless_silent(Duration::from_millis(1), std::future::pending::<Result<(), Status>>()).await.unwrap_err();
        assert_eq!(ended.code(), tonic::Code::Unavailable);
        let slow = async {
            tokio::task::yield_now().await;
            Ok(7)
        };
        assert_eq!(unless_silent(UPLOAD_SILENCE, slow).await.unwrap(), 7, "a slow one does not");
    }
}
