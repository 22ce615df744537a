//! Questions of the server to the summer, and its answers. Both are bytes that the protocol made; here they are only cut into pieces.

use bytes::Bytes;
use dp_pvi_names::Hash;
use dp_pvi_protocol::message::RunOutcome;

use crate::convert::{hash_from_wire, hash_to_wire, run_outcome_from_wire, run_outcome_to_wire};
use crate::{CHUNK_BYTES, FrameError, v1};

/// Most bytes of a question: it holds the charter and, at a closing, the signed uploads of all sites, without their vectors.
pub(crate) const QUESTION_BYTES: u64 = 64 << 20;

/// Most bytes of an answer beside the words of a sum of masks.
pub const ANSWER_BYTES: u64 = 64 << 10;

/// Bytes with the number of the question that they are or answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Numbered {
    /// Number of the question.
    pub number: u64,
    /// What is asked or answered.
    pub bytes: Vec<u8>,
}

/// What a server says to its summer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FromServer {
    /// A question.
    Question(Numbered),
    /// The run is over.
    Over {
        /// How it ended.
        outcome: RunOutcome,
        /// Hash of its charter, if one was drafted.
        charter: Option<Hash>,
    },
}

/// The frames of a question.
pub fn question_frames(number: u64, bytes: Bytes) -> impl Iterator<Item = v1::QuestionFrame> + Send + 'static {
    use v1::question_frame::Frame;
    let head = Frame::Question(head(number, &bytes));
    let frames = std::iter::once(head).chain(pieces(bytes).map(Frame::Piece));
    frames.map(|frame| v1::QuestionFrame { frame: Some(frame) })
}

/// The frames of an answer.
pub fn answer_frames(number: u64, bytes: Bytes) -> impl Iterator<Item = v1::SummerFrame> + Send + 'static {
    use v1::summer_frame::Frame;
    let head = Frame::Answer(head(number, &bytes));
    let frames = std::iter::once(head).chain(pieces(bytes).map(Frame::Piece));
    frames.map(|frame| v1::SummerFrame { frame: Some(frame) })
}

/// The frame that says that a run is over.
#[must_use]
pub fn over(outcome: RunOutcome, charter: Option<&Hash>) -> v1::QuestionFrame {
    let over = v1::RunOver { outcome: run_outcome_to_wire(outcome).into(), charter: charter.map(hash_to_wire).unwrap_or_default() };
    v1::QuestionFrame { frame: Some(v1::question_frame::Frame::Over(over)) }
}

fn head(number: u64, bytes: &Bytes) -> v1::PartHead {
    v1::PartHead { number, bytes: bytes.len() as u64 }
}

fn pieces(bytes: Bytes) -> impl Iterator<Item = Bytes> + Send + 'static {
    (0..bytes.len().div_ceil(CHUNK_BYTES)).map(move |i| bytes.slice(i * CHUNK_BYTES..bytes.len().min((i + 1) * CHUNK_BYTES)))
}

/// Puts the frames of questions together, at the summer.
#[derive(Debug, Default)]
pub struct QuestionReader(Parts);

impl QuestionReader {
    /// Takes one frame; gives what it completes.
    ///
    /// # Errors
    /// Out of order, empty, or longer than 64 MiB.
    pub fn frame(&mut self, frame: v1::QuestionFrame) -> Result<Option<FromServer>, FrameError> {
        use v1::question_frame::Frame;
        match frame.frame.ok_or(FrameError::Missing("content"))? {
            Frame::Question(head) => Ok(self.0.begin(&head, QUESTION_BYTES)?.map(FromServer::Question)),
            Frame::Piece(bytes) => Ok(self.0.add(&bytes)?.map(FromServer::Question)),
            Frame::Over(over) => {
                let outcome = run_outcome_from_wire(over.outcome())?;
                let charter = (!over.charter.is_empty()).then(|| hash_from_wire(&over.charter, "charter's hash")).transpose()?;
                Ok(Some(FromServer::Over { outcome, charter }))
            }
        }
    }
}

/// Puts the frames of answers together, at the server.
#[derive(Debug)]
pub struct AnswerReader {
    parts: Parts,
    limit: u64,
}

impl AnswerReader {
    /// Accepts answers of at most this many bytes.
    #[must_use]
    pub fn new(limit: u64) -> Self {
        Self { parts: Parts::default(), limit }
    }

    /// Takes one frame; gives the answer that it completes.
    ///
    /// # Errors
    /// Out of order, empty, or too long.
    pub fn frame(&mut self, frame: v1::SummerFrame) -> Result<Option<Numbered>, FrameError> {
        use v1::summer_frame::Frame;
        match frame.frame.ok_or(FrameError::Missing("content"))? {
            Frame::Answer(head) => self.parts.begin(&head, self.limit),
            Frame::Piece(bytes) => self.parts.add(&bytes),
        }
    }
}

/// What is arriving.
#[derive(Debug, Default)]
struct Parts(Option<(Numbered, usize)>);

impl Parts {
    fn begin(&mut self, head: &v1::PartHead, limit: u64) -> Result<Option<Numbered>, FrameError> {
        if self.0.is_some() {
            return Err(FrameError::Order);
        }
        let length = usize::try_from(head.bytes).ok().filter(|_| head.bytes <= limit).ok_or(FrameError::TooLong)?;
        if length == 0 {
            return Err(FrameError::Missing("content"));
        }
        // Grows with what arrives: an announcement alone reserves nothing.
        self.0 = Some((Numbered { number: head.number, bytes: Vec::new() }, length));
        Ok(None)
    }

    fn add(&mut self, bytes: &[u8]) -> Result<Option<Numbered>, FrameError> {
        let (part, length) = self.0.as_mut().ok_or(FrameError::Order)?;
        if bytes.is_empty() {
            return Err(FrameError::Missing("piece"));
        }
        if bytes.len() > *length - part.bytes.len() {
            return Err(FrameError::TooLong);
        }
        part.bytes.extend_from_slice(bytes);
        let complete = part.bytes.len() == *length;
        Ok(if complete { self.0.take().map(|(part, _)| part) } else { None })
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn questions_and_answers_survive_the_wire() {
        for length in [1, CHUNK_BYTES - 1, CHUNK_BYTES, CHUNK_BYTES + 1, 3 * CHUNK_BYTES + 5] {
            let bytes: Vec<u8> = (0..length).map(|i| (i % 251) as u8).collect();
            let expected = Numbered { number: 7, bytes: bytes.clone() };
            let mut reader = QuestionReader::default();
            // Twice: a reader is used for a whole stream.
            for _ in 0..2 {
                let frames: Vec<_> = question_frames(7, bytes.clone().into()).map(|frame| reader.frame(frame).unwrap()).collect();
                assert_eq!(frames.iter().flatten().collect::<Vec<_>>(), [&FromServer::Question(expected.clone())]);
            }
            let mut reader = AnswerReader::new(length as u64);
            let frames: Vec<_> = answer_frames(7, bytes.clone().into()).map(|frame| reader.frame(frame).unwrap()).collect();
            assert_eq!(frames.into_iter().flatten().collect::<Vec<_>>(), [expected]);
            let mut short = AnswerReader::new(length as u64 - 1);
            assert_eq!(short.frame(answer_frames(7, bytes.into()).next().unwrap()).unwrap_err(), FrameError::TooLong);
        }
        for charter in [None, Some(Hash([3; 32]))] {
            let read = QuestionReader::default().frame(over(RunOutcome::AggregationLost, charter.as_ref())).unwrap();
            assert_eq!(read, Some(FromServer::Over { outcome: RunOutcome::AggregationLost, charter }));
        }
    }

    #[test]
    fn frames_out_of_order_and_longer_than_announced_are_refused() {
        let frames: Vec<_> = question_frames(1, vec![1; CHUNK_BYTES + 1].into()).collect();
        let mut reader = QuestionReader::default();
        assert_eq!(reader.frame(frames[1].clone()).unwrap_err(), FrameError::Order);
        reader.frame(frames[0].clone()).unwrap();
        assert_eq!(reader.frame(frames[0].clone()).unwrap_err(), FrameError::Order);
        reader.frame(frames[1].clone()).unwrap();
        assert_eq!(reader.frame(frames[1].clone()).unwrap_err(), FrameError::TooLong);
        let empty = v1::QuestionFrame { frame: Some(v1::question_frame::Frame::Piece(Bytes::new())) };
        assert!(reader.frame(empty).is_err());
        assert!(reader.frame(v1::QuestionFrame::default()).is_err());
        let nothing = v1::PartHead { number: 1, bytes: 0 };
        assert!(QuestionReader::default().frame(v1::QuestionFrame { frame: Some(v1::question_frame::Frame::Question(nothing)) }).is_err());
    }
}
