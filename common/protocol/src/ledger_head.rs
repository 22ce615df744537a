//! Where a site's ledger ended, in the site's own hand.
//!
//! A site's signature of an update is over the head of its ledger and the hash of the update, whose other words are not for everyone. The server writes the last one into `posterior.json`. So
//! every copy of that file shows the site that a copy of its ledger is an old one, whatever became of its own rollback guard and of the server's state.

use dp_pvi_names::{ClientId, Hash, RunId};
use dp_pvi_privacy::ledger::LedgerHead;
use ed25519_dalek::{Signature, VerifyingKey};
use serde::{Deserialize, Serialize};

/// The head that a site's ledger had when the site's last update was committed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Witness {
    /// The site's identity key (Ed25519), 64 hexadecimal digits.
    pub key: String,
    /// Number of the ledger's last row.
    pub row: u64,
    /// Hash of that row.
    pub hash: String,
    /// Hash of the update.
    pub update: String,
    /// Of the key, over H("dp-pvi witness v1", site, task, run, row, hash, update): `common/accounting/proofs/statements.md`.
    pub signature: String,
}

/// What a site signs of an update with this hash.
pub(crate) fn said(client: &ClientId, run: &RunId, head: LedgerHead, update: Hash) -> Hash {
    let LedgerHead { seq, hash } = head;
    let parts = [client.to_string(), run.task.to_string(), run.number.to_string(), seq.to_string(), hash.to_string(), update.to_string()];
    Hash::of("dp-pvi witness v1", &parts.each_ref().map(String::as_bytes))
}

impl Witness {
    /// The head that an update with this hash and signature names. `None`: this key did not sign it.
    #[must_use]
    pub fn new(client: &ClientId, run: &RunId, head: LedgerHead, key: &VerifyingKey, (update, signature): (Hash, &[u8])) -> Option<Self> {
        key.verify_strict(&said(client, run, head, update).0, &Signature::from_slice(signature).ok()?).ok()?;
        let (key, hash, update, signature) =
            (hex::encode(key.as_bytes()), head.hash.to_string(), update.to_string(), hex::encode(signature));
        Some(Self { key, row: head.seq, hash, update, signature })
    }

    /// The head, if this site's key signed it for this run.
    #[must_use]
    pub fn head(&self, client: &ClientId, run: &RunId, key: &VerifyingKey) -> Option<LedgerHead> {
        let head = LedgerHead { seq: self.row, hash: self.hash.parse().ok()? };
        let read = Self::new(client, run, head, key, (self.update.parse().ok()?, &hex::decode(&self.signature).ok()?))?;
        (read == *self).then_some(head)
    }
}
