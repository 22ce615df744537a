//! What a client sends: the masked vector beside a small signed message.

use dp_pvi_names::{ClientId, Hash};
use serde::{Deserialize, Serialize};

use crate::charter::Charter;
use crate::commitment::{Commitment, Salt};
use crate::error::SecAggError;
use crate::header::VerifiedHeader;
use crate::seal::SealedSeed;
use crate::signed::{Body, Signed};

/// One client's part in one round, without its vector.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Upload {
    /// Hash of the round header.
    pub header: Hash,
    /// Who.
    pub client: ClientId,
    /// Of the masked vector.
    pub commitment: Commitment,
    /// For the summer, through the server.
    pub seed: SealedSeed,
    /// Hash of the last transcript entry that the client holds: shows when the server tells different histories.
    pub echo: Hash,
}

impl Body for Upload {
    const DOMAIN: &'static str = "dp-pvi secagg upload v1";
    const WHAT: &'static str = "an upload";
}

/// An upload as it is sent, stored and forwarded.
pub type SignedUpload = Signed<Upload>;

/// An upload with what opens its commitment: for the server, which holds the masked vector. The summer gets the signed message alone.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct OpenedUpload {
    /// What server and summer read.
    pub signed: SignedUpload,
    /// Of the commitment in it.
    pub salt: Salt,
}

/// Checks who signed, and that the upload is for this header and the history that it continues.
///
/// # Errors
/// Any of it fails.
pub fn verify(upload: &SignedUpload, charter: &Charter, header: &VerifiedHeader) -> Result<Upload, SecAggError> {
    open(upload, charter, header.hash(), header.header().previous)
}

pub(crate) fn open(upload: &SignedUpload, charter: &Charter, header: Hash, previous: Hash) -> Result<Upload, SecAggError> {
    let claimed = upload.unverified()?.client;
    let upload = upload.open(charter.key_of(&claimed)?)?;
    if upload.header != header {
        return Err(SecAggError::OtherHeader { client: upload.client });
    }
    if upload.echo != previous {
        return Err(SecAggError::SplitView { client: upload.client });
    }
    Ok(upload)
}
