//! What a COMMITTED row keeps beside it.

use crate::ledger::store::StoreError;
use crate::records::Released;
use crate::release::{Hash, Payload, PayloadKind};

/// What the COMMITTED row keeps: enough to resend the same bytes until the release is settled, and to move the factor then.
/// Settling leaves the message and hashes; payload and pending change are dropped.
///
/// The payload can only be a [`Released`] value, so nothing that skipped the gate can be committed or sent: there is no
/// deserialisation outside the ledger, which checks stored bytes against the signed row. The pending change may be a
/// noise-free private factor (aggregated trust): it has no getter, and this type neither `Debug` nor `Clone`.
pub struct Attachment {
    message: Vec<u8>,
    payload: Payload,
    pending: Option<Vec<f64>>,
}

impl Attachment {
    /// Puts the signed message, the released payload that it speaks of, and the pending change of the site's factor (to be
    /// scaled by ρ when the update was included) together.
    #[must_use]
    pub fn new(message: Vec<u8>, payload: Released<Payload>, pending: Option<Vec<f64>>) -> Self {
        Self { message, payload: payload.into_inner(), pending }
    }

    /// Signed update message, exactly as sent.
    #[must_use]
    pub fn message(&self) -> &[u8] {
        &self.message
    }

    /// Payload, exactly as sent.
    #[must_use]
    pub fn payload(&self) -> &Payload {
        &self.payload
    }

    pub(crate) fn pending(&self) -> Option<&[f64]> {
        self.pending.as_deref()
    }

    /// Bytes of a COMMITTED row's attachment: version, form, the message after its length, then the kind of payload and the other
    /// parts, each after its length.
    pub(crate) fn to_bytes(&self) -> Vec<u8> {
        let payload = self.payload.to_bytes();
        let pending = self.pending.as_deref().map(to_le_bytes);
        let mut bytes = Vec::with_capacity(32 + self.message.len() + payload.len() + pending.as_ref().map_or(0, Vec::len));
        begin(&mut bytes, WHOLE, &self.message);
        match self.payload.kind() {
            PayloadKind::Lattice { exponent } => {
                bytes.push(LATTICE);
                bytes.extend(exponent.to_le_bytes());
            }
            PayloadKind::Values => {
                bytes.push(VALUES);
                bytes.extend([0; 4]);
            }
        }
        for part in [Some(&payload), pending.as_ref()].into_iter().flatten() {
            bytes.extend((part.len() as u64).to_le_bytes());
            bytes.extend(part);
        }
        bytes
    }

    /// What stays of these bytes once the release is settled: the message, and a hash in place of payload and pending change.
    /// The hash in the COMMITTED row covers both forms.
    pub(crate) fn settled(bytes: &[u8]) -> Result<Vec<u8>, StoreError> {
        let parts = Parts::of(bytes)?;
        let mut kept = Vec::with_capacity(48 + parts.message.len());
        begin(&mut kept, SETTLED, parts.message);
        kept.extend(parts.rest_hash.0);
        Ok(kept)
    }

    pub(crate) fn from_bytes(bytes: &[u8]) -> Result<Self, StoreError> {
        let parts = Parts::of(bytes)?;
        parts.rest.and_then(|rest| Self::decode(parts.message, rest)).ok_or_else(unreadable)
    }

    /// The message in either form.
    pub(crate) fn message_of(bytes: &[u8]) -> Result<Vec<u8>, StoreError> {
        Ok(Parts::of(bytes)?.message.to_vec())
    }

    fn decode(message: &[u8], rest: &[u8]) -> Option<Self> {
        let (&kind, rest) = rest.split_first()?;
        let (&exponent, rest) = rest.split_first_chunk()?;
        let kind = match kind {
            LATTICE => PayloadKind::Lattice { exponent: i32::from_le_bytes(exponent) },
            VALUES => PayloadKind::Values,
            _ => return None,
        };
        let (payload, rest) = part(rest)?;
        let pending = if rest.is_empty() {
            None
        } else {
            let (pending, []) = part(rest)? else { return None };
            Some(from_le_bytes(pending)?)
        };
        Some(Self { message: message.to_vec(), payload: Payload::from_bytes(kind, payload)?, pending })
    }

    /// Hash of an attachment, the same for both of its forms.
    pub(crate) fn hash_of(bytes: &[u8]) -> Result<Hash, StoreError> {
        let parts = Parts::of(bytes)?;
        Ok(Hash::of("dp-pvi ledger attachment v1", &[parts.message, &parts.rest_hash.0]))
    }
}

/// Stored bytes, taken apart.
struct Parts<'a> {
    message: &'a [u8],
    /// Payload and pending change; gone once the release is settled.
    rest: Option<&'a [u8]>,
    rest_hash: Hash,
}

impl<'a> Parts<'a> {
    fn of(bytes: &'a [u8]) -> Result<Self, StoreError> {
        Self::split(bytes).ok_or_else(unreadable)
    }

    fn split(bytes: &'a [u8]) -> Option<Self> {
        let (&[VERSION, form], rest) = bytes.split_first_chunk()? else { return None };
        let (message, rest) = part(rest)?;
        match form {
            WHOLE => Some(Self { message, rest: Some(rest), rest_hash: Hash::of("dp-pvi ledger attachment rest v1", &[rest]) }),
            SETTLED => Some(Self { message, rest: None, rest_hash: Hash(rest.try_into().ok()?) }),
            _ => None,
        }
    }
}

fn begin(bytes: &mut Vec<u8>, form: u8, message: &[u8]) {
    bytes.extend([VERSION, form]);
    bytes.extend((message.len() as u64).to_le_bytes());
    bytes.extend(message);
}

fn unreadable() -> StoreError {
    StoreError::Corrupt("a stored update cannot be read".into())
}

const VERSION: u8 = 1;
const WHOLE: u8 = 0;
const SETTLED: u8 = 1;
const LATTICE: u8 = 0;
const VALUES: u8 = 1;

fn part(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let (&length, rest) = bytes.split_first_chunk()?;
    rest.split_at_checked(usize::try_from(u64::from_le_bytes(length)).ok()?)
}

/// A vector as little-endian words.
pub(crate) fn to_le_bytes(values: &[f64]) -> Vec<u8> {
    values.iter().flat_map(|x| x.to_le_bytes()).collect()
}

/// What [`to_le_bytes`] wrote.
pub(crate) fn from_le_bytes(bytes: &[u8]) -> Option<Vec<f64>> {
    let (words, []) = bytes.as_chunks::<8>() else { return None };
    Some(words.iter().map(|w| f64::from_le_bytes(*w)).collect())
}
