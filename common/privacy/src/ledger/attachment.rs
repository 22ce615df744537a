//! What a COMMITTED row keeps beside it.

use crate::ledger::state::{Pending, Secret};
use crate::ledger::store::StoreError;
use crate::mechanism::Masked;
use crate::records::{Released, Sensitive};
use crate::release::{Hash, LatticeVector, Payload, PayloadKind};

/// What the COMMITTED row keeps: enough to resend the same bytes until the release is settled, and to move the factor then.
/// Settling leaves the message and hashes; payload and pending change are dropped.
///
/// The payload can only be a [`Released`] or a [`Masked`] value, so nothing that skipped the gate can be committed or sent: there is no
/// deserialisation outside the ledger, which checks stored bytes against the signed row. The pending change may be noise-free
/// and private ([`Pending::Private`]): it has no getter, and this type neither `Debug` nor `Clone`.
pub struct Attachment {
    message: Vec<u8>,
    payload: Payload,
    pending: Pending,
}

impl Attachment {
    /// Puts the signed message, the released payload that it speaks of, and the pending change of the site's state (to be
    /// scaled by ρ when the update was included) together.
    #[must_use]
    pub fn new(message: Vec<u8>, payload: Released<Payload>, pending: Pending) -> Self {
        Self { message, payload: payload.into_inner(), pending }
    }

    /// The same for a vector under a mask. Neither the seed of the mask nor the share of the noise is in it: only the masked words
    /// and the message that was made for them.
    #[must_use]
    pub fn masked(message: Vec<u8>, payload: Masked<LatticeVector>, pending: Pending) -> Self {
        Self { message, payload: Payload::Masked(payload.into_inner()), pending }
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

    pub(crate) fn pending(&self) -> &Pending {
        &self.pending
    }

    /// Bytes of a COMMITTED row's attachment: version, form, the message after its length, then the kind of payload and its words
    /// after their length, then the kind of the pending change, its secret where it is private, and its words.
    pub(crate) fn to_bytes(&self, secret: impl FnOnce(&[u8]) -> Secret) -> Vec<u8> {
        let payload = self.payload.to_bytes();
        let pending = self.pending.numbers().map(to_le_bytes).unwrap_or_default();
        let mut bytes = Vec::with_capacity(64 + self.message.len() + payload.len() + pending.len());
        begin(&mut bytes, VERSION, WHOLE, &self.message);
        match self.payload.kind() {
            PayloadKind::Lattice { exponent } => {
                bytes.push(LATTICE);
                bytes.extend(exponent.to_le_bytes());
            }
            PayloadKind::Masked { exponent } => {
                bytes.push(MASKED);
                bytes.extend(exponent.to_le_bytes());
            }
            PayloadKind::Values => {
                bytes.push(VALUES);
                bytes.extend([0; 4]);
            }
        }
        bytes.extend((payload.len() as u64).to_le_bytes());
        bytes.extend(payload);
        match self.pending {
            Pending::None => bytes.push(NONE),
            Pending::Public(_) => bytes.push(PUBLIC),
            Pending::Private(_) => {
                bytes.push(PRIVATE);
                bytes.extend(secret(&pending).0);
            }
        }
        bytes.extend(pending);
        bytes
    }

    /// What stays of these bytes once the release is settled: the message, and a hash in place of payload and pending change.
    /// The hash in the COMMITTED row covers both forms.
    pub(crate) fn settled(bytes: &[u8]) -> Result<Vec<u8>, StoreError> {
        let parts = Parts::of(bytes)?;
        let mut kept = Vec::with_capacity(48 + parts.message.len());
        begin(&mut kept, parts.version, SETTLED, parts.message);
        kept.extend(parts.rest_hash.0);
        Ok(kept)
    }

    pub(crate) fn from_bytes(bytes: &[u8]) -> Result<Self, StoreError> {
        let parts = Parts::of(bytes)?;
        parts.rest.and_then(|rest| Self::decode(parts.version, parts.message, rest)).ok_or_else(unreadable)
    }

    /// The message in either form.
    pub(crate) fn message_of(bytes: &[u8]) -> Result<Vec<u8>, StoreError> {
        Ok(Parts::of(bytes)?.message.to_vec())
    }

    fn decode(version: u8, message: &[u8], rest: &[u8]) -> Option<Self> {
        let (&kind, rest) = rest.split_first()?;
        let (&exponent, rest) = rest.split_first_chunk()?;
        let kind = match kind {
            LATTICE => PayloadKind::Lattice { exponent: i32::from_le_bytes(exponent) },
            VALUES => PayloadKind::Values,
            MASKED => PayloadKind::Masked { exponent: i32::from_le_bytes(exponent) },
            _ => return None,
        };
        let (payload, rest) = part(rest)?;
        let pending = match (version, rest) {
            (FIRST, []) | (_, [NONE]) => Pending::None,
            (FIRST, rest) => {
                let (pending, []) = part(rest)? else { return None };
                Pending::Public(Released(from_le_bytes(pending)?))
            }
            (_, [PUBLIC, words @ ..]) => Pending::Public(Released(from_le_bytes(words)?)),
            (_, [PRIVATE, rest @ ..]) => Pending::Private(Sensitive(from_le_bytes(rest.split_at_checked(Secret::LENGTH)?.1)?)),
            _ => return None,
        };
        Some(Self { message: message.to_vec(), payload: Payload::from_bytes(kind, payload)?, pending })
    }

    /// Hash of an attachment, the same for both of its forms.
    pub(crate) fn hash_of(bytes: &[u8]) -> Result<Hash, StoreError> {
        let parts = Parts::of(bytes)?;
        let domain = if parts.version == FIRST { "dp-pvi ledger attachment v1" } else { "dp-pvi ledger attachment v2" };
        Ok(Hash::of(domain, &[parts.message, &parts.rest_hash.0]))
    }
}

/// Stored bytes, taken apart.
struct Parts<'a> {
    version: u8,
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
        let (&[version @ (FIRST | VERSION), form], rest) = bytes.split_first_chunk()? else { return None };
        let (message, rest) = part(rest)?;
        let domain = if version == FIRST { "dp-pvi ledger attachment rest v1" } else { "dp-pvi ledger attachment rest v2" };
        match form {
            WHOLE => Some(Self { version, message, rest: Some(rest), rest_hash: Hash::of(domain, &[rest]) }),
            SETTLED => Some(Self { version, message, rest: None, rest_hash: Hash(rest.try_into().ok()?) }),
            _ => None,
        }
    }
}

fn begin(bytes: &mut Vec<u8>, version: u8, form: u8, message: &[u8]) {
    bytes.extend([version, form]);
    bytes.extend((message.len() as u64).to_le_bytes());
    bytes.extend(message);
}

fn unreadable() -> StoreError {
    StoreError::Corrupt("a stored update cannot be read".into())
}

/// Without kinds of pending changes: every one was public.
const FIRST: u8 = 1;
const VERSION: u8 = 2;
const WHOLE: u8 = 0;
const SETTLED: u8 = 1;
const LATTICE: u8 = 0;
const VALUES: u8 = 1;
const MASKED: u8 = 2;
const NONE: u8 = 0;
const PUBLIC: u8 = 1;
const PRIVATE: u8 = 2;

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
