//! The stream on which the server's questions come, and answers go back.

use std::time::Duration;

use dp_pvi_programs::problem::Problem;
use dp_pvi_proto::connection::{self, Failure};
use dp_pvi_proto::summer::{FromServer, QuestionReader, answer_frames};
use dp_pvi_proto::v1::aggregation_client::AggregationClient;
use dp_pvi_proto::{MESSAGE_BYTES, client as wire, v1};
use dp_pvi_protocol::aggregation::SummerReply;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Status, Streaming};

use super::{Credentials, transport_error};
use crate::error::{Result, ServerError};

/// How long the server may take to open the stream.
const CALL: Duration = Duration::from_secs(30);
/// Frames that wait for the line.
const QUEUE: usize = 4;

/// An open stream.
pub(super) struct Line {
    address: String,
    failure: Failure,
    questions: Streaming<v1::QuestionFrame>,
    answers: mpsc::Sender<v1::SummerFrame>,
    reader: QuestionReader,
}

impl Line {
    /// Calls the server and opens the stream.
    pub(super) async fn open(credentials: &Credentials) -> Result<Self> {
        let address = credentials.address();
        let (channel, failure) = credentials.connect().await?;
        let mut client = AggregationClient::new(channel).max_decoding_message_size(MESSAGE_BYTES);
        let (answers, queue) = mpsc::channel(QUEUE);
        let opened = tokio::time::timeout(CALL, client.serve(ReceiverStream::new(queue))).await;
        let questions = match opened {
            Err(_) => return Err(ServerError::Unreachable(format!("{address}: no answer for {} s", CALL.as_secs()).into())),
            Ok(Err(status)) => return Err(named(&address, &failure, &status)),
            Ok(Ok(response)) => response.into_inner(),
        };
        Ok(Self { address, failure, questions, answers, reader: QuestionReader::default() })
    }

    /// The next question; `None` where the server ended the stream in order, to see the summer call again.
    pub(super) async fn question(&mut self) -> Result<Option<FromServer>> {
        loop {
            let frame = self.questions.message().await.map_err(|status| named(&self.address, &self.failure, &status))?;
            let Some(frame) = frame else { return Ok(None) };
            if let Some(question) = self.reader.frame(frame).map_err(|e| ServerError::OtherTask(Problem::of(e)))? {
                return Ok(Some(question));
            }
        }
    }

    /// Sends an answer.
    pub(super) async fn answer(&mut self, number: u64, reply: &SummerReply) -> Result<()> {
        for frame in answer_frames(number, reply.to_bytes().into()) {
            let sent = self.answers.send(frame).await;
            sent.map_err(|_| ServerError::Unreachable(format!("{}: the connection ended", self.address).into()))?;
        }
        Ok(())
    }
}

fn named(address: &str, failure: &Failure, status: &Status) -> ServerError {
    if status.code() == tonic::Code::Unimplemented {
        let message = format!("{address}: the server's task is not an aggregated one, or it has no [summer] in its configuration");
        return ServerError::Unreachable(message.into());
    }
    let error = failure.take().map_or_else(|| wire::transport_error(status), |alert| connection::tls_error(&alert));
    transport_error(error, address)
}
