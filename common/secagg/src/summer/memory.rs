//! Store and vault in memory: for simulation and tests, and as a vault for a summer that gives up the open round at a restart.

use std::collections::BTreeMap;

use zeroize::Zeroizing;

use crate::summer::store::{KeyVault, RoundRecord, Slot, StoreError, SummerStore};
use crate::transcript::Head;

/// Records in memory. `Clone` is a copy of the database.
#[derive(Debug, Clone, Default)]
pub struct MemoryStore {
    head: Option<Head>,
    rounds: BTreeMap<u32, RoundRecord>,
}

impl SummerStore for MemoryStore {
    fn head(&self) -> Result<Option<Head>, StoreError> {
        Ok(self.head)
    }

    fn save_head(&mut self, head: Head) -> Result<(), StoreError> {
        self.head = Some(head);
        self.rounds.retain(|round, _| *round >= head.round);
        Ok(())
    }

    fn round(&self, round: u32) -> Result<Option<RoundRecord>, StoreError> {
        Ok(self.rounds.get(&round).cloned())
    }

    fn save_round(&mut self, round: u32, record: &RoundRecord) -> Result<(), StoreError> {
        self.rounds.insert(round, record.clone());
        Ok(())
    }
}

/// Keys in memory.
#[derive(Default)]
pub struct MemoryVault {
    keys: BTreeMap<u32, Zeroizing<[u8; 32]>>,
    /// Rounds below this have no key any more.
    destroyed: u32,
}

impl KeyVault for MemoryVault {
    fn slot(&self, round: u32) -> Result<Slot, StoreError> {
        Ok(match self.keys.get(&round) {
            Some(key) => Slot::Kept(key.clone()),
            None if round < self.destroyed => Slot::Destroyed,
            None => Slot::Never,
        })
    }

    fn keep(&mut self, round: u32, key: Zeroizing<[u8; 32]>) -> Result<(), StoreError> {
        match self.slot(round)? {
            Slot::Never => {
                self.keys.insert(round, key);
                Ok(())
            }
            Slot::Kept(_) | Slot::Destroyed => Err(StoreError("the round had a key before".into())),
        }
    }

    fn destroy_through(&mut self, round: u32) -> Result<(), StoreError> {
        self.keys.retain(|kept, _| *kept > round);
        self.destroyed = self.destroyed.max(round.saturating_add(1));
        Ok(())
    }
}
