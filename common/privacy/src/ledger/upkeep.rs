//! What a ledger writes down beside its releases: what one unit is, and which reservations of a copy are closed.

use super::{Ledger, LedgerError, LedgerStore, RowBody, RowSigner};

impl<S: LedgerStore, K: RowSigner> Ledger<S, K> {
    /// What one privacy unit is, in words, if that was written down.
    #[must_use]
    pub fn units(&self) -> Option<&str> {
        self.totals.units()
    }

    /// Compares what a unit is now with what the ledger says. A charge holds for the units that were there when it was booked: the rows of a
    /// table are other units than its persons.
    ///
    /// # Errors
    /// [`LedgerError::OtherUnits`].
    pub fn check_units(&self, now: &str) -> Result<(), LedgerError> {
        match self.units().filter(|here| *here != now) {
            Some(here) => Err(LedgerError::OtherUnits { here: here.to_owned(), now: now.to_owned() }),
            None => Ok(()),
        }
    }

    /// The same, once for as long as this ledger is open. Where nothing is written down yet, the next charge writes `now` down before itself.
    ///
    /// # Errors
    /// [`LedgerError::OtherUnits`].
    pub fn of_units(mut self, now: String) -> Result<Self, LedgerError> {
        self.check_units(&now)?;
        self.units_now = Some(now);
        Ok(self)
    }

    /// Before a charge.
    pub(super) fn write_units(&mut self) -> Result<(), LedgerError> {
        match self.units_now.take() {
            Some(now) if self.units().is_none() => self.accept_units(&now),
            _ => Ok(()),
        }
    }

    /// Writes down what a unit is from now on, as an operator's decision that the units are the same ones.
    ///
    /// # Errors
    /// Store.
    pub fn accept_units(&mut self, now: &str) -> Result<(), LedgerError> {
        self.refuse_doubt()?;
        self.append(RowBody::Units(now.to_owned()), None)
    }

    /// Closes every reservation from which nothing was committed: it stays charged and is never minted again. For a copy that was put back: the
    /// original may have gone on from there and sent what it computed. Returns how many there were.
    ///
    /// # Errors
    /// Store.
    pub fn close_reserved(&mut self) -> Result<u64, LedgerError> {
        let open = self.totals.reserved();
        for release in &open {
            self.settle(release, false, 0.0)?;
        }
        Ok(open.len() as u64)
    }
}
