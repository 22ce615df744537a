//! The ledger: checks the budget, appends durably, then mints a permit. No permit, no release.

mod attachment;
mod error;
pub mod memory;
mod permit;
mod row;
mod store;

pub use attachment::Attachment;
pub use error::LedgerError;
pub use permit::{Permit, StepPermit};
pub use row::{Budget, FreezeState, LedgerHead, LedgerIdentity, ReleaseState, Row, RowBody, StoredRow};
pub use store::{Extra, LedgerStore, RowSigner, StoreError};

use crate::accountant::PrivacyLoss;
use crate::event::DpEvent;
use crate::release::{Hash, ReleaseId};

/// The ledger of one data set.
pub struct Ledger<S, K> {
    #[allow(dead_code, reason = "contract")]
    store: S,
    #[allow(dead_code, reason = "contract")]
    signer: K,
}

impl<S: LedgerStore, K: RowSigner> Ledger<S, K> {
    /// Opens the ledger: verifies every row, the chain, signatures, states and attachments; writes the genesis row into an empty store.
    ///
    /// # Errors
    /// Anything doubtful.
    pub fn open(store: S, signer: K, identity: LedgerIdentity, budget: Budget) -> Result<Self, LedgerError> {
        let _ = (identity, budget);
        Ok(Self { store, signer })
    }

    /// Where the chain ends.
    #[must_use]
    pub fn head(&self) -> LedgerHead {
        unimplemented!("contract")
    }

    /// Hash of row `seq`, if there is one (a witness is checked against it).
    ///
    /// # Errors
    /// The witness saw what this ledger does not have.
    pub fn check_witness(&self, witnessed: LedgerHead) -> Result<(), LedgerError> {
        let _ = witnessed;
        unimplemented!("contract")
    }

    /// State of a release.
    #[must_use]
    pub fn state(&self, release: &ReleaseId) -> Option<ReleaseState> {
        let _ = release;
        unimplemented!("contract")
    }

    /// Charges `event` durably, then mints the permit. The same release with the same event and header that is still
    /// RESERVED (a crash) is minted again without a new charge: nothing of it left the process.
    ///
    /// # Errors
    /// Over budget, frozen, conflict, store.
    pub fn reserve(&mut self, release: &ReleaseId, event: &DpEvent, header: Hash) -> Result<Permit, LedgerError> {
        let _ = (release, event, header);
        unimplemented!("contract")
    }

    /// RESERVED → COMMITTED, with the attachment in the same transaction.
    ///
    /// # Errors
    /// Wrong state, store.
    pub fn commit(&mut self, release: &ReleaseId, attachment: &Attachment) -> Result<(), LedgerError> {
        let _ = (release, attachment);
        unimplemented!("contract")
    }

    /// What was committed.
    ///
    /// # Errors
    /// Store, or bytes that do not match their hash.
    pub fn attachment(&mut self, release: &ReleaseId) -> Result<Option<Attachment>, LedgerError> {
        let _ = release;
        unimplemented!("contract")
    }

    /// COMMITTED → SENT (no-op later).
    ///
    /// # Errors
    /// Wrong state, store.
    pub fn sent(&mut self, release: &ReleaseId) -> Result<(), LedgerError> {
        let _ = release;
        unimplemented!("contract")
    }

    /// SENT → RECEIPTED (no-op later).
    ///
    /// # Errors
    /// Wrong state, store.
    pub fn receipted(&mut self, release: &ReleaseId, receipt: Hash) -> Result<(), LedgerError> {
        let _ = (release, receipt);
        unimplemented!("contract")
    }

    /// Applies or drops the pending factor change: factor += rho·pending iff `included`. Idempotent. Returns the factor.
    ///
    /// # Errors
    /// Wrong state, store.
    pub fn settle(&mut self, release: &ReleaseId, included: bool, rho: f64) -> Result<Vec<f64>, LedgerError> {
        let _ = (release, included, rho);
        unimplemented!("contract")
    }

    /// The site's factor in a run (`None` before the first settled update).
    ///
    /// # Errors
    /// Store.
    pub fn factor(&mut self, run: &crate::release::RunId) -> Result<Option<Vec<f64>>, LedgerError> {
        let _ = run;
        unimplemented!("contract")
    }

    /// Releases of a run that are not settled yet, with their states, oldest first.
    #[must_use]
    pub fn unsettled(&self, run: &crate::release::RunId) -> Vec<(ReleaseId, ReleaseState)> {
        let _ = run;
        unimplemented!("contract")
    }

    /// Loss of all charged events, at the budget's δ.
    ///
    /// # Errors
    /// Accountant.
    pub fn spent(&self) -> Result<PrivacyLoss, LedgerError> {
        unimplemented!("contract")
    }

    /// Loss of the events of one run.
    ///
    /// # Errors
    /// Accountant.
    pub fn spent_in(&self, run: &crate::release::RunId) -> Result<PrivacyLoss, LedgerError> {
        let _ = run;
        unimplemented!("contract")
    }

    /// Loss of all charged events and `event` `times` more: what a plan would cost.
    ///
    /// # Errors
    /// Accountant.
    pub fn would_cost(&self, event: &DpEvent, times: u64) -> Result<PrivacyLoss, LedgerError> {
        let _ = (event, times);
        unimplemented!("contract")
    }

    /// The budget.
    #[must_use]
    pub fn budget(&self) -> Budget {
        unimplemented!("contract")
    }

    /// Verified rows, oldest first.
    #[must_use]
    pub fn rows(&self) -> &[(Row, Hash)] {
        unimplemented!("contract")
    }

    /// Freezes or opens the data set.
    ///
    /// # Errors
    /// Store.
    pub fn set_frozen(&mut self, state: FreezeState) -> Result<(), LedgerError> {
        let _ = state;
        unimplemented!("contract")
    }
}
