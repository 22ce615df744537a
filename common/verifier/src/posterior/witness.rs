//! What a site signed of its ledger.

use ed25519_dalek::{Signature, VerifyingKey};
use serde_json::json;

use super::fields::{Fields, object};
use super::{Unproved, demand, hash_of};

/// The row at which the ledger of a statement's site ended when the site last answered in the run, and the key that signed so.
///
/// # Errors
/// A witness that this key did not sign.
pub(super) fn read(statement: &Fields<'_>, site: &str, task: &str, run: u32) -> Result<Option<(u64, String)>, Unproved> {
    let Some(witness) = statement.get("witness").map(object).transpose()? else { return Ok(None) };
    let [key, hash, update, signature] = [witness.text("key")?, witness.text("hash")?, witness.text("update")?, witness.text("signature")?];
    let row: u64 = witness.number("row")?;
    witness.is("row", &json!(row))?;
    let said = hash_of("dp-pvi witness v1", &[site, task, &run.to_string(), &row.to_string(), &hash, &update]);
    let signed = || {
        let [_, _, said] = [bytes::<32>(&hash)?, bytes(&update)?, bytes(&said)?];
        VerifyingKey::from_bytes(&bytes(&key)?).ok()?.verify_strict(&said, &Signature::from_bytes(&bytes(&signature)?)).ok()
    };
    demand(witness.len() == 5 && signed().is_some(), "a `witness` is not signed by its key")?;
    Ok(Some((row, key)))
}

/// So many bytes, each as two lower-case hexadecimal digits.
fn bytes<const N: usize>(text: &str) -> Option<[u8; N]> {
    let digit = |byte: u8| (byte as char).to_digit(16).filter(|_| !byte.is_ascii_uppercase());
    let all: Option<Vec<u8>> = text.as_bytes().chunks(2).map(|two| Some((digit(two[0])? * 16 + digit(*two.get(1)?)?) as u8)).collect();
    all?.try_into().ok()
}
