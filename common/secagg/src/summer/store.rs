//! What the summer remembers, and where. This crate does no I/O: the process brings the store and the vault.

use dp_pvi_names::Hash;
use serde::{Deserialize, Serialize};
use zeroize::Zeroizing;

use crate::closing::MaskSum;
pub use crate::error::StoreError;
use crate::header::SignedHeader;
use crate::seal::RoundPublicKey;
use crate::transcript::Head;

/// A round's state at the summer: offered → open → closed → answered. A transition uses the old state up.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum RoundRecord {
    /// A key is offered.
    Offered(Offered),
    /// The header is signed.
    Open(Open),
    /// CLOSED(round, H(U)): from here on only this set is ever answered.
    Closed(Closed),
    /// The answer exists; the key is destroyed.
    Answered(Answered),
}

/// A key is offered.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Offered {
    /// Public half.
    pub key: RoundPublicKey,
}

/// The header is signed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Open {
    /// The header: the only one of this round.
    pub header: SignedHeader,
}

/// CLOSED(round, H(U)).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Closed {
    /// The header.
    pub header: SignedHeader,
    /// H(U).
    pub contributors: Hash,
}

/// The answer exists.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Answered {
    /// The header.
    pub header: SignedHeader,
    /// H(U).
    pub contributors: Hash,
    /// What was answered: a retry gets the same bytes.
    pub answer: MaskSum,
}

impl Offered {
    pub(crate) fn open(self, header: SignedHeader) -> Open {
        Open { header }
    }
}

impl Open {
    pub(crate) fn close(self, contributors: Hash) -> Closed {
        Closed { header: self.header, contributors }
    }
}

impl Closed {
    pub(crate) fn answer(self, answer: MaskSum) -> Answered {
        Answered { header: self.header, contributors: self.contributors, answer }
    }
}

/// The summer's durable memory. `save` returns only when the bytes would survive a power cut.
pub trait SummerStore {
    /// Where the transcript stands; `None` before anything was saved.
    ///
    /// # Errors
    /// The store cannot be read.
    fn head(&self) -> Result<Option<Head>, StoreError>;

    /// Moves to a head; records of earlier rounds may be dropped.
    ///
    /// # Errors
    /// Not durable.
    fn save_head(&mut self, head: Head) -> Result<(), StoreError>;

    /// The record of a round.
    ///
    /// # Errors
    /// The store cannot be read.
    fn round(&self, round: u32) -> Result<Option<RoundRecord>, StoreError>;

    /// Replaces the record of a round.
    ///
    /// # Errors
    /// Not durable.
    fn save_round(&mut self, round: u32, record: &RoundRecord) -> Result<(), StoreError>;
}

/// What the vault knows of a round's key.
pub enum Slot {
    /// No key was ever kept for this round.
    Never,
    /// The key.
    Kept(Zeroizing<[u8; 32]>),
    /// There was one; it is gone for ever.
    Destroyed,
}

/// Where round keys are kept: *not* in the store, so that a copy of the database holds no key. In memory (a restart then costs
/// the open round), or one file a round outside every backup.
pub trait KeyVault {
    /// The key of a round.
    ///
    /// # Errors
    /// The vault cannot be read.
    fn slot(&self, round: u32) -> Result<Slot, StoreError>;

    /// Keeps a key for a round that never had one.
    ///
    /// # Errors
    /// Not durable, or the round had one.
    fn keep(&mut self, round: u32, key: Zeroizing<[u8; 32]>) -> Result<(), StoreError>;

    /// Erases the keys of all rounds up to and including this one, and remembers that they are gone. Idempotent.
    ///
    /// # Errors
    /// Not durable.
    fn destroy_through(&mut self, round: u32) -> Result<(), StoreError>;
}
