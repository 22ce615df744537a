//! The data set's ledger as this program opens it: its file checked, its highest head compared with the rollback guard.

use std::path::Path;

use dp_pvi_privacy::Ledger;
use dp_pvi_privacy::ledger::ChargeStore;
use dp_pvi_programs::ledger::{OnDisk, RollbackGuard, SqliteLedger, ViewStore};
use ed25519_dalek::SigningKey;

use crate::config::PrivateData;
use crate::error::{ClientError, Result};
use crate::keys;

/// A verified ledger that cannot be changed through this handle.
pub type LedgerView = Ledger<ViewStore, SigningKey>;

/// Opens and verifies the ledger for writing; takes its lock. `decorate` may wrap the store.
///
/// # Errors
/// The ledger, its lock, its rollback guard, or files that others can change.
pub fn open<S: ChargeStore>(
    private: &PrivateData,
    key: SigningKey,
    decorate: impl FnOnce(SqliteLedger) -> S,
) -> Result<Ledger<S, SigningKey>> {
    check_files(private)?;
    let store = decorate(SqliteLedger::open(&private.ledger)?);
    let ledger = Ledger::open(store, key, private.identity.clone(), private.budget)?;
    check_rollback_guard(private, ledger.rows().len())?;
    Ok(ledger.kept_in(RollbackGuard::at(&private.ledger_head))?)
}

/// Reads and verifies the ledger, also beside its writer. One that is behind its rollback guard is refused, and so is one that is not there: what it
/// says was spent would be less than what was.
///
/// # Errors
/// No ledger, the ledger, its rollback guard, or files that others can change.
pub fn read_only(private: &PrivateData, key: SigningKey) -> Result<LedgerView> {
    match look_ahead(private, key)? {
        (ledger, OnDisk::Yes) => Ok(ledger),
        (_, OnDisk::NotYet) => Err(ClientError::Unavailable(
            format!(
                "there is no ledger at {}: if this data set has one, put it back (volume, path, `dp-pvi-client ledger restore FILE`); if it never had \
                 one, `dp-pvi-client ledger create` makes it",
                private.ledger.display()
            )
            .into(),
        )),
    }
}

/// The same for questions that may come before there is a ledger: where neither it nor a head of it is there, the one that it will begin with.
///
/// # Errors
/// As [`read_only`]; a ledger that is not there, and of which the rollback guard knows a row.
pub fn look_ahead(private: &PrivateData, key: SigningKey) -> Result<(LedgerView, OnDisk)> {
    check_files(private)?;
    // Before the ledger: a client that runs moves both on, the ledger first, so what is read later is never behind.
    let mut place = RollbackGuard::at(&private.ledger_head);
    let kept = place.head(&key)?;
    let store = ViewStore::open(&private.ledger)?;
    let on_disk = store.on_disk();
    // Of a ledger that was begun and never charged nothing is lost.
    if let (OnDisk::NotYet, Some(kept)) = (on_disk, kept.filter(|kept| kept.seq > 0)) {
        return Err(ClientError::LedgerCorrupt(
            format!(
                "there is no ledger at {}, and {} knows its row {}: put the latest one back (volume, path, `dp-pvi-client ledger restore FILE`)",
                private.ledger.display(),
                private.ledger_head.display(),
                kept.seq
            )
            .into(),
        ));
    }
    let ledger = Ledger::open(store, key, private.identity.clone(), private.budget)?;
    if on_disk == OnDisk::Yes {
        check_rollback_guard(private, ledger.rows().len())?;
    }
    if on_disk == OnDisk::Yes
        && let Some(kept) = kept
        && let Err(refused) = ledger.check_witness(kept)
    {
        // The same with the words of the rollback guard.
        ledger.check_kept(&mut place)?;
        return Err(refused.into());
    }
    Ok((ledger, on_disk))
}

/// Whether a run could write the ledger and its rollback guard. Nothing is changed.
///
/// # Errors
/// Which cannot be written, and why.
pub fn check_writable(private: &PrivateData) -> Result<()> {
    Ok([&private.ledger, &private.ledger_head].into_iter().try_for_each(|file| dp_pvi_programs::ledger::check_writable(file))?)
}

/// Why the rollback guard is none, if it is none.
#[must_use]
pub fn too_near(private: &PrivateData) -> Option<String> {
    let folder = |path: &Path| path.parent().and_then(|folder| folder.canonicalize().ok());
    let (ledger, head) = (folder(&private.ledger)?, folder(&private.ledger_head)?);
    head.starts_with(&ledger).then(|| {
        format!(
            "[data] ledger_head: {} lies in the ledger's folder, so whoever puts an old copy of that folder back puts back both; name another place",
            private.ledger_head.display()
        )
    })
}

/// A ledger has a rollback guard from its first row on: `ledger create` writes it. One that is not there was lost, or this ledger is a copy that came without it, and
/// no one here can tell whether it is the latest.
fn check_rollback_guard(private: &PrivateData, rows: usize) -> Result<()> {
    if private.ledger_head.exists() {
        return Ok(());
    }
    let (ledger, place) = (private.ledger.display(), private.ledger_head.display());
    let begun = if rows > 1 { "" } else { ". If it was being made and this was cut off, `dp-pvi-client ledger create` finishes it" };
    Err(ClientError::LedgerCorrupt(
        format!(
            "the ledger {ledger} has {rows} rows, and its rollback guard {place} is not there: the ledger may be an old copy, which knows less than was \
             spent. Put the rollback guard back (volume, path, [data] ledger_head). If it is lost for good, and only if this ledger is the latest one, move \
             the ledger away and run `dp-pvi-client ledger restore` on it{begun}"
        )
        .into(),
    ))
}

/// Refuses a ledger or a rollback guard behind a link, also one that leads nowhere: the disk behind it may be away.
///
/// # Errors
/// Which is a link.
pub(crate) fn refuse_links(private: &PrivateData) -> Result<()> {
    for (field, file) in [("data.ledger", &private.ledger), ("data.ledger_head", &private.ledger_head)] {
        if std::fs::symlink_metadata(file).is_ok_and(|about| about.file_type().is_symlink()) {
            return Err(ClientError::config(field, format!("{} is a link: name the file itself", file.display())));
        }
    }
    Ok(())
}

fn check_files(private: &PrivateData) -> Result<()> {
    refuse_links(private)?;
    for (field, file) in [("data.ledger", &private.ledger), ("data.ledger_head", &private.ledger_head)] {
        match std::fs::symlink_metadata(file) {
            // Whether it has to be there is the caller's matter.
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => {}
            Err(e) => return Err(ClientError::Unavailable(format!("{}: {e}", file.display()).into())),
            Ok(_) => keys::check_private(field, file)?,
        }
        keys::check_folder_of(field, file)?;
    }
    Ok(())
}
