//! The decoders of a ledger's bytes, for fuzz targets: a file that was copied, restored or damaged says whatever it says.
//!
//! For tests only: in a ledger these bytes are read behind hashes and signatures.

use dp_pvi_unsealed::Unsealed;
use zeroize::Zeroizing;

use crate::ledger::attachment::Attachment;
use crate::ledger::row::StoredRow;
use crate::ledger::state::{Pending, SiteState};
use crate::ledger::store::RowSigner;
use crate::records::{Released, Sensitive};
use dp_pvi_names::{Hash, Payload};

/// A row of these bytes, hashed and signed as if they were a row's.
#[must_use]
pub fn sealed(_: Unsealed, bytes: Vec<u8>, signer: &impl RowSigner) -> StoredRow {
    let hash = Hash::of(super::row::DOMAIN, &[&bytes]);
    let signature = signer.sign(&hash);
    StoredRow { bytes, hash, signature }
}

/// Words as they are, in the place of encrypted ones.
fn open(words: &[u8]) -> Option<Zeroizing<Vec<u8>>> {
    Some(Zeroizing::new(words.to_vec()))
}

/// Stored updates of every form.
#[must_use]
pub fn attachments(_: Unsealed) -> Vec<Vec<u8>> {
    let pending = [Pending::None, Pending::Public(Released(vec![0.5; 2])), Pending::Private(Sensitive::of(vec![0.25; 2]))];
    let whole = pending
        .map(|pending| Attachment::unclaimed(b"a message".to_vec(), Payload::Values(vec![1.0, 2.0]), pending).to_bytes(<[u8]>::to_vec));
    // Settled ones have the message alone.
    let settled = whole.iter().filter_map(|bytes| Attachment::settled(bytes).ok()).collect::<Vec<_>>();
    whole.into_iter().chain(settled).collect()
}

/// Reads a stored update in every way in which a ledger does.
pub fn read_attachment(_: Unsealed, bytes: &[u8]) {
    let message = Attachment::message_of(bytes).ok();
    if let Ok(attachment) = Attachment::from_bytes(bytes, open) {
        assert_eq!(message.as_deref(), Some(attachment.message()), "an update has one message");
    }
    if let Ok(settled) = Attachment::settled(bytes) {
        let hash = |bytes: &[u8]| Attachment::hash_of(bytes).ok();
        assert_eq!(hash(&settled), hash(bytes), "a settled update keeps its hash");
    }
}

/// Stored states of every kind.
#[must_use]
pub fn states(_: Unsealed) -> Vec<Vec<u8>> {
    let states = [SiteState::None, SiteState::Public(vec![0.5; 2]), SiteState::Private(Sensitive::of(vec![0.25; 2]))];
    states.map(|state| state.to_bytes(<[u8]>::to_vec)).into()
}

/// Reads a stored state.
pub fn read_state(_: Unsealed, bytes: &[u8]) {
    if let Ok(state) = SiteState::from_bytes(bytes, open) {
        let again = SiteState::from_bytes(&state.to_bytes(<[u8]>::to_vec), open).ok();
        let same = again.is_some_and(|again| again.kind() == state.kind() && bits(&again) == bits(&state));
        // No public words at all are written as no state: both are zero.
        assert!(same || bits(&state).is_empty(), "a state reads back");
    }
}

fn bits(state: &SiteState) -> Vec<u64> {
    let words: &[f64] = match state {
        SiteState::None => &[],
        SiteState::Public(values) => values,
        SiteState::Private(values) => values.value().map_or(&[], Vec::as_slice),
    };
    words.iter().map(|word| word.to_bits()).collect()
}
