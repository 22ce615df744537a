//! Where a site's ledger ended, in the site's own hand.
//!
//! A site signs the head of its ledger with each update, apart from the update's other words, which are not for everyone. The server writes the last one into `posterior.json`. So
//! every copy of that file shows the site that a copy of its ledger is an old one, whatever became of its own rollback guard and of the server's state.

use dp_pvi_names::{ClientId, Hash, ReleaseId, RunId};
use dp_pvi_privacy::ledger::LedgerHead;
use ed25519_dalek::{Signature, Signer, SigningKey, VerifyingKey};
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
    /// Of the key, over H("dp-pvi witness v1", site, task, run, row, hash): `common/accounting/proofs/statements.md`.
    pub signature: String,
}

/// What is signed.
fn said(client: &ClientId, run: &RunId, head: LedgerHead) -> Hash {
    let parts = [client.to_string(), run.task.to_string(), run.number.to_string(), head.seq.to_string(), head.hash.to_string()];
    Hash::of("dp-pvi witness v1", &parts.each_ref().map(String::as_bytes))
}

impl Witness {
    /// Signs a head that the ledger has while this update is committed.
    #[must_use]
    pub fn sign(release: &ReleaseId, head: LedgerHead, key: &SigningKey) -> Vec<u8> {
        key.sign(&said(&release.client, &release.run, head).0).to_bytes().to_vec()
    }

    /// A head with its site's signature. `None`: this key did not sign it.
    #[must_use]
    pub fn new(client: &ClientId, run: &RunId, head: LedgerHead, key: &VerifyingKey, signature: &[u8]) -> Option<Self> {
        key.verify_strict(&said(client, run, head).0, &Signature::from_slice(signature).ok()?).ok()?;
        let (key, hash, signature) = (hex::encode(key.as_bytes()), head.hash.to_string(), hex::encode(signature));
        Some(Self { key, row: head.seq, hash, signature })
    }

    /// The head, if this site's key signed it for this run.
    #[must_use]
    pub fn head(&self, client: &ClientId, run: &RunId, key: &VerifyingKey) -> Option<LedgerHead> {
        let head = LedgerHead { seq: self.row, hash: self.hash.parse().ok()? };
        let read = Self::new(client, run, head, key, &hex::decode(&self.signature).ok()?)?;
        (read == *self).then_some(head)
    }
}
