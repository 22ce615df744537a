//! What only simulation and tests may do: `dp-pvi-unsealed`, which this program does not name, has the trait and the argument for it.

use dp_pvi_accounting::DpEvent;
use dp_pvi_privacy::ledger::memory::MemoryStore;
use dp_pvi_privacy::ledger::{Attachment, ChargeStore, Extra, LedgerError, LedgerStore, RowSigner, StoreError, StoredRow};
use dp_pvi_privacy::noise::NoRandomness;
use dp_pvi_privacy::{Ledger, NoiseSource, Pending, Permit, Purpose, Released, SecureNoise, Sensitive, danger};
use dp_pvi_names::{Hash, Payload, ReleaseId, RunId};

struct Forgets;

impl LedgerStore for Forgets {
    fn rows(&mut self) -> Result<Vec<StoredRow>, StoreError> {
        Ok(Vec::new())
    }
    fn append(&mut self, _: &StoredRow, _: Option<&Extra>) -> Result<(), StoreError> {
        Ok(())
    }
    fn attachment(&mut self, _: &ReleaseId) -> Result<Option<Vec<u8>>, StoreError> {
        Ok(None)
    }
    fn factor(&mut self, _: &RunId) -> Result<Option<Vec<u8>>, StoreError> {
        Ok(None)
    }
}

struct Replays;

impl NoiseSource for Replays {
    type Stream = <SecureNoise as NoiseSource>::Stream;
    fn stream(&self, _: &ReleaseId, _: u64, _: Purpose) -> Result<Self::Stream, NoRandomness> {
        SecureNoise::fresh()
    }
}

struct Knows;

impl RowSigner for Knows {
    fn sign(&self, _: &Hash) -> Vec<u8> {
        Vec::new()
    }
    fn verify(&self, _: &Hash, _: &[u8]) -> bool {
        true
    }
}

fn call_a_value_public(value: Sensitive<f64>) -> Released<f64> {
    danger::assume_public(value)
}

fn call_a_value_released(value: f64) -> Released<f64> {
    danger::assume_released((), value)
}

fn call_bytes_signed(message: Vec<u8>, payload: Payload) -> Attachment {
    danger::assume_signed(SecureNoise, message, payload, Pending::None)
}

fn keep_a_ledger_in_memory() -> MemoryStore {
    MemoryStore::new(Default::default())
}

/// What is shipped compiles.
fn take_a_permit<S: ChargeStore, K: RowSigner>(ledger: &mut Ledger<S, K>, id: &ReleaseId, event: &DpEvent) -> Result<Permit, LedgerError> {
    fn noise(_: &impl NoiseSource) {}
    noise(&SecureNoise);
    ledger.reserve(id, event, Hash::default())
}

fn main() {}
