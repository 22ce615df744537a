//! Where the charge of a selection is written, before its first trial.
//!
//! A folder holds one ledger for the records of the experiment, whatever their origin: a selection charges every site the same event, and a record is
//! at one site, so one row says what each record has spent. The folder belongs to these records as long as they are used: a second selection reads
//! what the first one spent, also where its sites are other slices of the same files.

use std::fs::{self, DirBuilder, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use dp_pvi_accounting::{DpEvent, Epsilon, epsilon_filtered};
use dp_pvi_names::{ClientId, Hash, ReleaseId, RunId};
use dp_pvi_privacy::Ledger;
use dp_pvi_privacy::ledger::memory::MemoryStore;
use dp_pvi_privacy::ledger::{Budget, ChargeStore, LedgerError, LedgerIdentity, RowBody};
use dp_pvi_programs::ledger::SqliteLedger;
use ed25519_dalek::SigningKey;
use ed25519_dalek::pkcs8::spki::der::pem::LineEnding;
use ed25519_dalek::pkcs8::{DecodePrivateKey, EncodePrivateKey, KeypairBytes};
use zeroize::Zeroizing;

use super::TuneError;
use dp_pvi_unsealed::Unsealed;

/// Where a selection is booked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Book {
    /// In the ledger of this folder, which is made where there is none.
    Folder(PathBuf),
    /// In memory: anyone who uses the records again has to count what was printed.
    Forgotten,
}

/// What is booked.
pub(super) struct Charge<'a> {
    pub(super) identity: LedgerIdentity,
    pub(super) budget: Budget,
    /// Hash of the task.
    pub(super) task: Hash,
    pub(super) event: &'a DpEvent,
}

impl Book {
    /// Reserves the selection; it is durable when this returns. A new ledger's key is made of `seed`. The ε that the ledger then states, with everything that was in it before.
    pub(super) fn charge(&self, charge: &Charge<'_>, seed: &[u8; 32]) -> Result<f64, TuneError> {
        match self {
            Self::Forgotten => reserve(MemoryStore::new(Unsealed), SigningKey::from_bytes(seed), charge),
            Self::Folder(folder) => {
                let (store, key) = open(folder, seed)?;
                reserve(store, key, charge)
            }
        }
    }
}

fn reserve<S: ChargeStore>(store: S, key: SigningKey, charge: &Charge<'_>) -> Result<f64, TuneError> {
    // The ledger keeps the rows. What it compares with a budget are envelopes of runs, and a selection is a black box with half of δ for its own, which no
    // sum of envelopes has room for twice: here the filter of single events decides.
    let Budget { epsilon, delta, .. } = charge.budget;
    let mut ledger = Ledger::open(store, key, charge.identity.clone(), Budget { epsilon: Epsilon::INFINITE, ..charge.budget })?;
    let booked = ledger.rows().iter().filter_map(|(row, _)| match &row.body {
        RowBody::Reserved { event, .. } => Some(DpEvent::from_bytes(event)),
        _ => None,
    });
    let booked = booked.collect::<Result<Vec<_>, _>>().map_err(|_| TuneError::Config("its ledger has an event that is none".into()))?;
    let spent = epsilon_filtered(booked.iter().chain([charge.event]), charge.identity.relation, epsilon, delta)?.epsilon;
    if spent > epsilon {
        return Err(LedgerError::OverBudget { would_be: spent.get(), limit: epsilon.get() }.into());
    }
    // A name that no earlier row has: a selection that is repeated is another release.
    let number = u32::try_from(ledger.rows().len()).map_err(|_| TuneError::Config("its ledger has too many rows".into()))?;
    let client = ClientId::new("tune").map_err(|error| TuneError::Config(error.to_string()))?;
    let release = ReleaseId { run: RunId { task: charge.task, number }, client, round: 0 };
    // The permit is for the whole selection; each trial works under the ledgers of its own federation.
    drop(ledger.reserve(&release, charge.event, charge.task)?);
    Ok(spent.get())
}

/// Ledger and key of a folder. The ledger is made before the key, so a key without a ledger means that the ledger was taken away.
fn open(folder: &Path, seed: &[u8; 32]) -> Result<(SqliteLedger, SigningKey), TuneError> {
    let failed = |path: &Path, error: &dyn std::fmt::Display| TuneError::Folder { path: path.to_owned(), problem: error.to_string() };
    DirBuilder::new().recursive(true).mode(0o700).create(folder).map_err(|error| failed(folder, &error))?;
    let (ledger, key) = (folder.join("tune.ledger"), folder.join("tune.key"));
    if key.exists() && !ledger.exists() {
        return Err(failed(&ledger, &"the ledger of this folder's key is missing: put it back, or what was spent is forgotten"));
    }
    let store = match SqliteLedger::create(&ledger).map_err(|error| failed(&ledger, &error))? {
        Some(new) => new,
        None => SqliteLedger::open(&ledger).map_err(|error| failed(&ledger, &error))?,
    };
    let key = match fs::read_to_string(&key).map(Zeroizing::new) {
        Ok(text) => SigningKey::from_pkcs8_pem(&text).map_err(|_| failed(&key, &"is no Ed25519 key: put the folder's own key back"))?,
        Err(error) if error.kind() == io::ErrorKind::NotFound && store.is_empty() => {
            make_key(&key, seed).map_err(|error| failed(&key, &error))?
        }
        Err(error) => return Err(failed(&key, &error)),
    };
    Ok((store, key))
}

fn make_key(path: &Path, seed: &[u8; 32]) -> io::Result<SigningKey> {
    let pair = KeypairBytes { secret_key: *seed, public_key: None };
    let text = pair.to_pkcs8_pem(LineEnding::LF).map_err(|error| io::Error::other(error.to_string()))?;
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
    file.write_all(text.as_bytes())?;
    file.sync_all()?;
    Ok(SigningKey::from_bytes(seed))
}
