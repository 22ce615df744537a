//! What a COMMITTED row keeps beside it.

use ed25519_dalek::SigningKey;
use serde::de::DeserializeOwned;
use zeroize::Zeroizing;

use crate::ledger::row::LedgerHead;
use crate::ledger::state::Pending;
use crate::ledger::store::StoreError;
use crate::ledger::words::{from_le_bytes, to_le_bytes};
use crate::mechanism::Masked;
use crate::records::{Argument, Released, Sensitive};
use dp_pvi_names::{Hash, LatticeVector, Payload, PayloadKind, ReleaseId};

/// What the COMMITTED row keeps: enough to resend the same bytes until the release is settled, and to move the factor then.
/// Settling leaves the message and hashes; payload and pending change are dropped.
///
/// The payload can only be a [`Released`] or a [`Masked`] value, and the message is written in here, by a function that captures nothing and sees
/// a [`Claim`], the payload and the site's key: so nothing that skipped the gate can be committed or sent. There is no deserialisation outside
/// the ledger, which checks stored bytes against the signed row. The pending change may be noise-free and private ([`Pending::Private`]): it
/// has no getter, and this type neither `Debug` nor `Clone`.
pub struct Attachment {
    message: Vec<u8>,
    payload: Payload,
    pending: Pending,
    about: About,
}

/// What is known of a message's claim.
enum About {
    /// It was made here, for this claim.
    Made(Claim),
    /// It was read from a store.
    Stored,
    /// A test calls it the message of any release.
    Assumed,
}

/// What a message says beside its payload. [`Ledger::commit`](crate::Ledger::commit) takes it for exactly the release and header that were charged, and
/// for exactly the head that the chain has then: these words are the ledger's own, and no one can say anything else in them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Claim {
    /// The release.
    pub release: ReleaseId,
    /// Hash of the header that asked for it.
    pub header: Hash,
    /// Where the ledger ends before the update is committed.
    pub ledger_head: LedgerHead,
}

impl Attachment {
    /// Puts the released payload, the message about it that `write` makes and signs, and the pending change of the site's state (to be
    /// scaled by ρ when the update was included) together.
    #[must_use]
    pub fn new(
        claim: Claim,
        payload: Released<Payload>,
        pending: Pending,
        key: &SigningKey,
        write: fn(&Claim, &Payload, &SigningKey) -> Vec<u8>,
    ) -> Self {
        let payload = payload.into_inner();
        Self { message: write(&claim, &payload, key), payload, pending, about: About::Made(claim) }
    }

    /// The same for a vector under a mask. Neither the seed of the mask nor the share of the noise is in it: only the masked words
    /// and the message that is made for them.
    ///
    /// `upload` is what goes to the holder of the masks: a commitment, and the seed of the mask, sealed. The gate cannot tell a sealed seed from
    /// other bytes, so this is the one part of a message whose content rests on the code that makes it (`dp-pvi-secagg`).
    #[must_use]
    pub fn masked<X: DeserializeOwned>(
        claim: Claim,
        payload: Masked<LatticeVector>,
        upload: &Argument<X>,
        pending: Pending,
        key: &SigningKey,
        write: fn(&Claim, &Payload, &X, &SigningKey) -> Vec<u8>,
    ) -> Self {
        let payload = Payload::Masked(payload.into_inner());
        Self { message: write(&claim, &payload, &upload.fresh(), key), payload, pending, about: About::Made(claim) }
    }

    /// With a message of any bytes, for no release in particular: for tests of what comes after a release.
    pub(crate) fn unclaimed(message: Vec<u8>, payload: Payload, pending: Pending) -> Self {
        Self { message, payload, pending, about: About::Assumed }
    }

    /// Whether the message claims this release, this header and this head of the chain, and nothing else.
    pub(crate) fn claims(&self, release: &ReleaseId, header: Option<Hash>, head: LedgerHead) -> bool {
        match &self.about {
            About::Made(claim) => claim.release == *release && Some(claim.header) == header && claim.ledger_head == head,
            About::Stored => false,
            About::Assumed => true,
        }
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
    /// after their length, then the kind of the pending change and its words, encrypted where they are private.
    pub(crate) fn to_bytes(&self, close: impl FnOnce(&[u8]) -> Vec<u8>) -> Vec<u8> {
        let payload = self.payload.to_bytes();
        let pending = Zeroizing::new(self.pending.numbers().map(to_le_bytes).unwrap_or_default());
        let mut bytes = Vec::with_capacity(64 + self.message.len() + payload.len() + pending.len());
        begin(&mut bytes, WHOLE, &self.message);
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
            Pending::Public(_) => {
                bytes.push(PUBLIC);
                bytes.extend(pending.iter());
            }
            Pending::Private(_) => {
                bytes.push(PRIVATE);
                bytes.extend(close(&pending));
            }
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

    /// Reads what [`Attachment::to_bytes`] wrote.
    pub(crate) fn from_bytes(bytes: &[u8], open: impl FnOnce(&[u8]) -> Option<Zeroizing<Vec<u8>>>) -> Result<Self, StoreError> {
        let parts = Parts::of(bytes)?;
        parts.rest.and_then(|rest| Self::decode(parts.message, rest, open)).ok_or_else(unreadable)
    }

    /// The message in either form.
    pub(crate) fn message_of(bytes: &[u8]) -> Result<Vec<u8>, StoreError> {
        Ok(Parts::of(bytes)?.message.to_vec())
    }

    fn decode(message: &[u8], rest: &[u8], open: impl FnOnce(&[u8]) -> Option<Zeroizing<Vec<u8>>>) -> Option<Self> {
        let (&kind, rest) = rest.split_first()?;
        let (&exponent, rest) = rest.split_first_chunk()?;
        let kind = match kind {
            LATTICE => PayloadKind::Lattice { exponent: i32::from_le_bytes(exponent) },
            VALUES => PayloadKind::Values,
            MASKED => PayloadKind::Masked { exponent: i32::from_le_bytes(exponent) },
            _ => return None,
        };
        let (payload, rest) = part(rest)?;
        let pending = match rest {
            [NONE] => Pending::None,
            [PUBLIC, words @ ..] => Pending::Public(Released(from_le_bytes(words)?)),
            [PRIVATE, sealed @ ..] => Pending::Private(Sensitive::of(from_le_bytes(&open(sealed)?)?)),
            _ => return None,
        };
        Some(Self { message: message.to_vec(), payload: Payload::from_bytes(kind, payload)?, pending, about: About::Stored })
    }

    /// Hash of an attachment, the same for both of its forms.
    pub(crate) fn hash_of(bytes: &[u8]) -> Result<Hash, StoreError> {
        let parts = Parts::of(bytes)?;
        Ok(Hash::of("dp-pvi ledger attachment v3", &[parts.message, &parts.rest_hash.0]))
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
            WHOLE => Some(Self { message, rest: Some(rest), rest_hash: Hash::of("dp-pvi ledger attachment rest v3", &[rest]) }),
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

const VERSION: u8 = 3;
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
