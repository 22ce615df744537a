//! Why the ledger refuses.

use crate::ledger::row::LedgerIdentity;
use crate::ledger::stage::ReleaseState;
use crate::ledger::store::StoreError;
use crate::local_only::OtherPart;
use dp_pvi_accounting::AccountantError;
use dp_pvi_names::ReleaseId;

/// Why the ledger refused.
#[derive(Debug, thiserror::Error)]
pub enum LedgerError {
    /// Over budget.
    #[error(
        "this would bring the data set to epsilon {would_be}, above its budget of {limit}: lower the task's epsilon, or raise the budget as an operator's decision"
    )]
    OverBudget {
        /// ε after the charge.
        would_be: f64,
        /// Limit.
        limit: f64,
    },
    /// Over the limit of one run.
    #[error("this run would cost epsilon {would_be}, above per_run_epsilon {limit}")]
    OverRunBudget {
        /// ε of the run.
        would_be: f64,
        /// Limit.
        limit: f64,
    },
    /// Over the site's cap on what is lost if everyone else works together.
    #[error(
        "if everybody else worked together, this site's own shares of noise would protect epsilon {would_be} only, above its cap of {limit}: ask for fewer honest sites or more noise"
    )]
    OverFallback {
        /// ε after the charge.
        would_be: f64,
        /// Limit.
        limit: f64,
    },
    /// Not allowed by the site.
    #[error("a release without protection was asked for; set allow_non_private = true in [policy] if that is intended")]
    NonPrivateForbidden,
    /// A new ledger of whole sites under add-remove.
    #[error(
        "a ledger of unit \"site\" cannot have relation \"add-remove\": whether a site is there is seen by everybody, so no noise could hide its absence; use \"replace-one\""
    )]
    SiteAddRemove,
    /// Other records than those of the run's first visit.
    #[error(
        "these are not the records, in their number and order, with which this site began run {0}: put files and nominal_units back as they were; with other records take part in a \
         new run (`dp-pvi-server run --new-run`)"
    )]
    OtherRecords(u32),
    /// Frozen by an operator.
    #[error("the data set is frozen: `dp-pvi-client budget freeze --off` opens it again")]
    Frozen,
    /// The release exists in another state or with another event.
    #[error("release {0} was already made or reserved differently; it is never made twice")]
    Conflict(ReleaseId),
    /// The release is not in the state that the step needs: a bug of ours, or a peer that speaks of a release that never was.
    #[error("release {release} is {} and cannot be {step}", state.map_or_else(|| "unknown".to_owned(), |s| s.to_string()))]
    WrongState {
        /// Which release.
        release: ReleaseId,
        /// Its state (`None`: never reserved).
        state: Option<ReleaseState>,
        /// What was asked for.
        step: &'static str,
    },
    /// The pending change of the site's state is of another kind (public, private), or a public one of another length, than the run's: a bug of
    /// ours.
    #[error(
        "the update of release {0} would change the site's state as another kind or public length than it has in this run: report this as a bug"
    )]
    OtherState(ReleaseId),
    /// The permit of this reservation was already handed out since the ledger was opened.
    #[error("the permit of release {0} was already given out in this process; restart to train again under the same reservation")]
    PermitOutstanding(ReleaseId),
    /// The release crashed again and again.
    #[error(
        "release {0} was begun too often and never finished: it is not made any more, and its charge stays; find out why this program ends"
    )]
    RetriesSpent(ReleaseId),
    /// A witness saw a later head: this ledger is an old copy.
    #[error("the server saw a later state of this ledger (row {witnessed}, here {here}): it is an old copy; restore the latest one")]
    RolledBack {
        /// Row seen by the witness.
        witnessed: u64,
        /// Last row here.
        here: u64,
    },
    /// A witness saw another row where this ledger has one: the ledger went on from an old copy.
    #[error("the server saw another row {seq} of this ledger: it went on from an old copy; restore the latest one")]
    Forked {
        /// Row seen by the witness.
        seq: u64,
    },
    /// The highest head in the rollback guard is later than this ledger's end.
    #[error(
        "the ledger ends at row {here}, but {place} says that row {kept} of it was written: this is an old copy, and what was spent since is \
         missing in it. Move it away and put the latest one back (`dp-pvi-client ledger restore FILE`). If none is left: \
         `ledger restore FILE --lose-rows {lost}`, which freezes it until you have counted what is missing", lost = kept - here
    )]
    Behind {
        /// Row in the rollback guard.
        kept: u64,
        /// Last row here.
        here: u64,
        /// File of the rollback guard.
        place: String,
    },
    /// The highest head in the rollback guard is another row than the one that this ledger has there.
    #[error(
        "{place} says that row {kept} of this ledger was another one: two copies of it went on, each without what the other spent; put the \
         one back that was in use, and ask whoever used the other what it spent"
    )]
    Apart {
        /// Row in the rollback guard.
        kept: u64,
        /// File of the rollback guard.
        place: String,
    },
    /// The rollback guard is about another ledger of the same name.
    #[error(
        "{place} says that this data set has another ledger, which came to row {kept}: put that one back (volume, path, or \
         `dp-pvi-client ledger restore FILE`). A data set has one ledger for ever; if this is another data set, give it another [data] name"
    )]
    OtherLedger {
        /// File of the rollback guard.
        place: String,
        /// Row there.
        kept: u64,
    },
    /// The file is about something else.
    #[error("the ledger is of another data set, unit or relation than the configuration says ({0})")]
    OtherIdentity(String),
    /// The schema makes other units of the same files than those that were charged.
    #[error(
        "this ledger protects {here}, and the schema now says {now}: restore the schema, or use a new [data] name with a ledger of its own; if the units are the same under another name, `dp-pvi-client ledger units --accept` records that"
    )]
    OtherUnits {
        /// As the ledger says.
        here: String,
        /// As the schema says.
        now: String,
    },
    /// This process has local access to private values.
    #[error(transparent)]
    LocalAccess(#[from] OtherPart),
    /// Store.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// Accountant.
    #[error(transparent)]
    Accountant(#[from] AccountantError),
}

impl LedgerIdentity {
    /// Compares with the identity in the first row.
    pub(crate) fn check(&self, found: &Self) -> Result<(), LedgerError> {
        if self == found {
            return Ok(());
        }
        let say = |identity: &Self| format!("`{}` per {:?} under {:?}", identity.data, identity.unit, identity.relation);
        Err(LedgerError::OtherIdentity(format!("configured {}, found {}", say(self), say(found))))
    }
}
