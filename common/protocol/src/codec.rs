//! Parts that travel inside other messages.

use serde::Serialize;

/// Bytes of a part that travels inside another message.
pub(crate) fn encode(part: &impl Serialize) -> Vec<u8> {
    // Plain data: writing it into memory cannot fail.
    postcard::to_stdvec(part).expect("parts serialise into memory")
}

/// Reads [`encode`]d bytes, all of them.
pub(crate) fn decode<T: serde::de::DeserializeOwned>(bytes: &[u8]) -> Option<T> {
    match postcard::take_from_bytes(bytes) {
        Ok((part, [])) => Some(part),
        _ => None,
    }
}
