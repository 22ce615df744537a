//! What a COMMITTED row keeps beside it.

use crate::ledger::store::StoreError;
use crate::records::Released;
use crate::release::{Hash, Payload, PayloadKind};

/// What the COMMITTED row keeps: enough to resend the same bytes for ever and to move the factor when told.
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

    /// Bytes of a COMMITTED row's attachment: a version, the kind of payload, then the three parts, each after its length.
    pub(crate) fn to_bytes(&self) -> Vec<u8> {
        let payload = self.payload.to_bytes();
        let pending = self.pending.as_deref().map(to_le_bytes);
        let mut bytes = Vec::with_capacity(32 + self.message.len() + payload.len() + pending.as_ref().map_or(0, Vec::len));
        bytes.push(VERSION);
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
        for part in [Some(&self.message), Some(&payload), pending.as_ref()].into_iter().flatten() {
            bytes.extend((part.len() as u64).to_le_bytes());
            bytes.extend(part);
        }
        bytes
    }

    pub(crate) fn from_bytes(bytes: &[u8]) -> Result<Self, StoreError> {
        Self::decode(bytes).ok_or_else(|| StoreError::Corrupt("a stored update cannot be read".into()))
    }

    fn decode(bytes: &[u8]) -> Option<Self> {
        let (&[VERSION, kind], rest) = bytes.split_first_chunk()? else { return None };
        let (&exponent, rest) = rest.split_first_chunk()?;
        let kind = match kind {
            LATTICE => PayloadKind::Lattice { exponent: i32::from_le_bytes(exponent) },
            VALUES => PayloadKind::Values,
            _ => return None,
        };
        let (message, rest) = part(rest)?;
        let (payload, rest) = part(rest)?;
        let pending = if rest.is_empty() {
            None
        } else {
            let (pending, []) = part(rest)? else { return None };
            Some(from_le_bytes(pending)?)
        };
        Some(Self { message: message.to_vec(), payload: Payload::from_bytes(kind, payload)?, pending })
    }

    pub(crate) fn hash_of(bytes: &[u8]) -> Hash {
        Hash::of("dp-pvi ledger attachment v1", &[bytes])
    }
}

const VERSION: u8 = 1;
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
