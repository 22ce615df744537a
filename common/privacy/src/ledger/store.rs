//! Where rows are kept, and who signs them.

use std::path::Path;

use ed25519_dalek::{Signature, Signer, SigningKey};

use crate::ledger::row::StoredRow;
use dp_pvi_names::{Hash, ReleaseId, RunId};
use dp_pvi_unsealed::Sealed;

/// The store failed.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// Bytes are not what was written.
    #[error("the ledger is damaged ({0}): restore it from a copy; nothing is released until then")]
    Corrupt(String),
    /// A file of another version of this program.
    #[error(
        "the ledger has form {found}, and this version of dp-pvi knows form {known}: another version wrote it; use that version, or begin a new ledger \
         whose budget is what this one has left"
    )]
    Form {
        /// Form of the file.
        found: i64,
        /// The one that this version writes.
        known: i64,
    },
    /// Lock, disk full, permissions.
    #[error("the ledger cannot be used now ({0})")]
    Unavailable(String),
}

/// Durable, append-only rows. `append` returns only when the row (and its attachment) would survive a power loss.
///
/// Sealed: a store that forgets what it is given would have the budget spent again and again.
pub trait LedgerStore: Sealed + Send {
    /// All rows in order.
    ///
    /// # Errors
    /// Damaged or unavailable.
    fn rows(&mut self) -> Result<Vec<StoredRow>, StoreError>;
    /// Appends a row, and in the same transaction an attachment or the site's factor where given.
    ///
    /// # Errors
    /// Damaged or unavailable; then nothing was appended.
    fn append(&mut self, row: &StoredRow, extra: Option<&Extra>) -> Result<(), StoreError>;
    /// Attachment bytes of a release.
    ///
    /// # Errors
    /// Damaged or unavailable.
    fn attachment(&mut self, release: &ReleaseId) -> Result<Option<Vec<u8>>, StoreError>;
    /// The site's factor in a run, as last settled.
    ///
    /// # Errors
    /// Damaged or unavailable.
    fn factor(&mut self, run: &RunId) -> Result<Option<Vec<u8>>, StoreError>;
}

/// A store that a ledger can charge: a writer, not a view. Sealed, as every store is.
pub trait ChargeStore: LedgerStore {
    /// Where the rows are, if they outlive the process: what a process minted from there it does not mint again.
    fn place(&self) -> Option<&Path>;
}

/// What goes into the store beside a row.
#[derive(Debug, Clone, PartialEq)]
pub enum Extra {
    /// Bytes of an [`Attachment`](crate::ledger::Attachment) (COMMITTED).
    Attachment(ReleaseId, Vec<u8>),
    /// A release is settled: the factor of its run, and what replaces its attachment.
    Settled {
        /// Which release.
        release: ReleaseId,
        /// The site's state in the release's run from now on, as [`SiteState`](crate::ledger::SiteState) is written.
        factor: Vec<u8>,
        /// What stays of the attachment in place of the stored one, if there is one.
        attachment: Option<Vec<u8>>,
    },
}

/// Signs row hashes; the identity key stays with the caller.
///
/// Signatures are deterministic, as Ed25519's are: the ledger derives the secrets of a site from signatures that it never shows. Sealed: whoever
/// could sign without a key would know these secrets.
pub trait RowSigner: Sealed + Send {
    /// Ed25519 signature over `hash`.
    fn sign(&self, hash: &Hash) -> Vec<u8>;
    /// Whether `signature` is one of ours.
    fn verify(&self, hash: &Hash, signature: &[u8]) -> bool;
}

/// The site's identity key itself.
impl RowSigner for SigningKey {
    fn sign(&self, hash: &Hash) -> Vec<u8> {
        Signer::sign(self, &hash.0).to_bytes().to_vec()
    }

    fn verify(&self, hash: &Hash, signature: &[u8]) -> bool {
        Signature::from_slice(signature).is_ok_and(|signature| self.verifying_key().verify_strict(&hash.0, &signature).is_ok())
    }
}
