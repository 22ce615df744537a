//! What a ledger writes down beside its releases: what one unit is, and what of a copy is closed.

use super::{Ledger, LedgerError, LedgerStore, ReleaseState, RowBody, RowSigner};
use dp_pvi_names::{Hash, RunId};

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

    /// Says which records this process has, for as long as this ledger is open: `of` tells them from any others, their number and their order among it. The first visit of
    /// a run writes it down, and no visit of that run is ever made with others.
    ///
    /// # Privacy
    /// What a run keeps for a unit, it keeps by the unit's place: `proofs/carried_state.md`, condition 1. The ledger holds this beside the state, so that a copy, a lost
    /// folder or another number of declared units cannot part them.
    #[must_use]
    pub fn of_records(self, of: Hash) -> Self {
        Self { records_now: Some(of), ..self }
    }

    /// Before a visit.
    pub(super) fn bind_records(&mut self, run: &RunId) -> Result<(), LedgerError> {
        match (self.records_now, self.totals.records(run)) {
            (Some(now), None) => self.append(RowBody::Records { run: *run, of: now }, None),
            (Some(now), Some(then)) if now != then => Err(LedgerError::OtherRecords(run.number)),
            (None, _) | (Some(_), Some(_)) => Ok(()),
        }
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

    /// Closes what the ledger has open, for a copy that was put back: the original may have gone on from there, and have sent what it computed. Every
    /// reservation from which nothing was committed stays charged and is never minted again. Every plan keeps its price and has no visit left: what is released
    /// of its run after this is charged anew.
    ///
    /// # Privacy
    /// With the original, no visit of a plan is released twice under one charge: `dp_pvi_accounting::proofs::envelopes`, "Copies".
    ///
    /// # Errors
    /// Store.
    pub fn close_open(&mut self) -> Result<Closed, LedgerError> {
        let (reservations, plans) = (self.totals.reserved(), self.totals.open_plans());
        for release in &reservations {
            self.settle(release, false, 0.0)?;
        }
        self.append(RowBody::Restored, None)?;
        Ok(Closed { reservations: reservations.len() as u64, plans })
    }

    /// Renounces, for ever, all visits of a run's plan that are not reserved, because the run is over or was given up: nothing more is released under this plan, and
    /// going on would be a new charge. Visits that are unsampled Gaussians give their μ² back to what is left of the budget, the others and φ nothing, and no ledger
    /// that was ever put back from a copy gives anything. The run's own price stays. Returns ε before and after; `None` where nothing was left to renounce.
    ///
    /// # Privacy
    /// `dp_pvi_accounting::proofs::envelopes`, "Visits that are renounced".
    ///
    /// # Errors
    /// Store.
    pub fn renounce(&mut self, run: &RunId) -> Result<Option<(f64, f64)>, LedgerError> {
        self.refuse_doubt()?;
        if !self.totals.has_visits_left(run) {
            return Ok(None);
        }
        let before = self.losses().joint.epsilon.get();
        self.append(RowBody::Renounced { run: *run }, None)?;
        Ok(Some((before, self.losses().joint.epsilon.get())))
    }

    /// The run was given up: visits that were paid for and have not left are closed, and stay charged; all other visits are renounced, also where none was planned yet.
    ///
    /// # Errors
    /// Store.
    pub fn give_up(&mut self, run: &RunId) -> Result<(), LedgerError> {
        let kept = [ReleaseState::Reserved, ReleaseState::Committed];
        for release in self.totals.all_in(&kept).iter().filter(|release| release.run == *run) {
            self.settle(release, false, 0.0)?;
        }
        if self.renounce(run)?.is_none() && !self.was_renounced(run) {
            self.append(RowBody::Renounced { run: *run }, None)?;
        }
        Ok(())
    }

    /// Whether visits of a run's plan are neither reserved nor renounced.
    #[must_use]
    pub fn has_visits_left(&self, run: &RunId) -> bool {
        self.totals.has_visits_left(run)
    }

    /// Whether this site gave up what was left of a run's plan, because the run was over or by its operator's word.
    #[must_use]
    pub fn was_renounced(&self, run: &RunId) -> bool {
        self.totals.was_renounced(run)
    }

    /// Whether a run went on, under a charge of its own, after the ledger had been put back from a copy.
    #[must_use]
    pub fn went_on_after_restore(&self, run: &RunId) -> bool {
        let of_run = |body: &RowBody| match body {
            RowBody::Planned { run: planned, .. } => planned == run,
            RowBody::Reserved { release, .. } => release.run == *run,
            _ => false,
        };
        let mut bodies = self.rows().iter().map(|(row, _)| &row.body).skip_while(|body| !of_run(body));
        bodies.by_ref().any(|body| *body == RowBody::Restored) && bodies.any(of_run)
    }
}

/// What [`Ledger::close_open`] closed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Closed {
    /// Visits that were charged and had sent nothing.
    pub reservations: u64,
    /// Runs that were charged as a whole and had visits left.
    pub plans: u64,
}
