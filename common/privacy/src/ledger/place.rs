//! The rollback guard: where the highest head of a ledger is kept apart from its rows.
//!
//! A ledger that is replaced by an older copy of itself is whole, signed and wrong: it does not know what was spent since. A witness that is not copied with it shows
//! that. The server is one; a rollback guard is one that needs no server. Order: the row first, then the place, then the permit. So a crash leaves the ledger at most one
//! row *ahead* of the place, which is fine; only a ledger that is *behind* is refused.

use std::fmt::Debug;

use crate::ledger::row::LedgerHead;
use crate::ledger::store::{RowSigner, StoreError};
use dp_pvi_names::Hash;
use dp_pvi_unsealed::Sealed;

/// A head that a place keeps, and of which ledger it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Kept {
    /// Hash of the ledger's first row: which data set, unit and relation it is about, and whose it is.
    pub genesis: Hash,
    /// The highest head.
    pub head: LedgerHead,
}

/// A place that keeps the highest head of one ledger, signed by its site. Sealed: a place that forgets lets a ledger be replaced by its own past.
pub trait HeadPlace: Sealed + Send + Debug {
    /// What it is called, for people.
    fn name(&self) -> String;
    /// Keeps every other program from keeping heads here, for as long as this value lives.
    ///
    /// # Errors
    /// Another program keeps heads here; no lock can be made.
    fn claim(&mut self) -> Result<(), StoreError>;
    /// The highest head that was kept here, of whichever ledger of this site.
    ///
    /// # Errors
    /// The place says nothing that this site has signed, or cannot be read.
    fn kept(&mut self, signer: &dyn RowSigner) -> Result<Option<Kept>, StoreError>;
    /// Keeps a higher head; it is durable when this returns.
    ///
    /// # Errors
    /// The place cannot be written.
    fn keep(&mut self, kept: Kept, signer: &dyn RowSigner) -> Result<(), StoreError>;
    /// Forgets what was kept, and keeps this head instead: an operator's decision about a ledger that lost rows.
    ///
    /// # Errors
    /// The place cannot be written.
    fn start_again(&mut self, kept: Kept, signer: &dyn RowSigner) -> Result<(), StoreError>;
}
