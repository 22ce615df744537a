//! Tasks and charters that an operator approved, and those that this site was shown: one small file per hash in the state folder.

use std::fs;
use std::io::{ErrorKind, Write};
use std::os::unix::fs::DirBuilderExt;
use std::path::Path;

use dp_pvi_names::Hash;
use dp_pvi_programs::files::{Arriving, suffixed};
use dp_pvi_programs::problem::Problem;
use time::format_description::well_known::Rfc3339;

use crate::clock;
use crate::error::{ClientError, Result};
use crate::keys;

/// Fewest digits by which a hash may be named: 128 bits. A coordinator writes the tasks and charters, and can try as many as it likes until one
/// begins like a text that was compared by these digits elsewhere (a few seconds for 8 digits). So they must be too many to search for.
const FEWEST_DIGITS: usize = 32;
const APPROVED: &str = "approved";
const SEEN: &str = "seen";

/// Records an approval; recording it again changes nothing.
///
/// # Errors
/// The state folder cannot be written, or others can change it.
pub fn record(state: &Path, hash: &Hash) -> Result<()> {
    keys::check_state(state)?;
    write(&state.join(APPROVED), hash, "approved")
}

/// Notes that this site was shown a task or charter, so that its first digits are enough to name it ([`named`]).
///
/// # Errors
/// The state folder cannot be written.
pub fn saw(state: &Path, hash: &Hash) -> Result<()> {
    write(&state.join(SEEN), hash, "seen")
}

/// All recorded approvals.
///
/// # Errors
/// The state folder cannot be read, others can change it, or it holds a file that is not an approval.
pub fn list(state: &Path) -> Result<Vec<Hash>> {
    keys::check_state(state)?;
    read(&state.join(APPROVED))
}

/// The hash that an operator names: all of its digits, or the first ones of a hash that this site was shown, if only one starts so.
/// `sha256:` may be before them. `command` is what the operator calls.
///
/// # Errors
/// Not a hash, too few digits, or digits that no hash, or more than one, starts with.
pub fn named(state: &Path, command: &str, text: &str) -> Result<Hash> {
    let wrong = |message: String| ClientError::config(command, message);
    if let Ok(hash) = text.parse() {
        return Ok(hash);
    }
    let digits = text.strip_prefix("sha256:").unwrap_or(text).to_ascii_lowercase();
    if !digits.bytes().all(|b| b.is_ascii_hexdigit()) || digits.len() > 64 {
        return Err(wrong("is not a hash: give the digits that `dp-pvi-client plan` prints".into()));
    }
    if digits.len() < FEWEST_DIGITS {
        return Err(wrong(format!("{} digits could mean many hashes: give at least {FEWEST_DIGITS}", digits.len())));
    }
    let seen: Vec<Hash> = read(&state.join(SEEN))?.into_iter().filter(|hash| hash.to_string().starts_with(&digits)).collect();
    match seen.as_slice() {
        [hash] => Ok(*hash),
        [] => Err(wrong(format!(
            "this site has seen no task or charter whose hash starts with {digits}: run `dp-pvi-client plan` first, or give all 64 digits"
        ))),
        _ => Err(wrong(format!("{} hashes that this site has seen start with {digits}: give more digits", seen.len()))),
    }
}

fn write(folder: &Path, hash: &Hash, word: &str) -> Result<()> {
    let write = || {
        fs::DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
        let place = folder.join(hash.to_string());
        if place.try_exists()? {
            return Ok(());
        }
        // The name is the word, so it comes when all is written; until then the file is beside the folder.
        let mut fresh = Arriving::named(suffixed(folder, ".new"), place, 0o600)?;
        writeln!(fresh.file(), "{word} {}", clock::now().format(&Rfc3339).unwrap_or_default())?;
        fresh.arrive().map(drop)
    };
    write().map_err(|e: std::io::Error| ClientError::Unavailable(Problem::said(format!("{}: {e}", folder.display()), e)))
}

fn read(folder: &Path) -> Result<Vec<Hash>> {
    let unavailable = |e: std::io::Error| ClientError::Unavailable(Problem::said(format!("{}: {e}", folder.display()), e));
    let entries = match fs::read_dir(folder) {
        Err(e) if e.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries.map_err(unavailable)?,
    };
    entries
        .map(|entry| {
            let name = entry.map_err(unavailable)?.file_name();
            name.to_str()
                .and_then(|name| name.parse().ok())
                .ok_or_else(|| ClientError::Unavailable(format!("{}: {} is no hash; remove it", folder.display(), name.display()).into()))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn approvals_are_kept_and_strange_files_refused() {
        let state = tempfile::tempdir().unwrap();
        assert_eq!(list(state.path()).unwrap(), []);
        let hash = Hash([0xab; 32]);
        record(state.path(), &hash).unwrap();
        record(state.path(), &hash).unwrap();
        assert_eq!(list(state.path()).unwrap(), [hash]);
        fs::write(state.path().join(APPROVED).join("notes.txt"), "x").unwrap();
        assert_eq!(list(state.path()).unwrap_err().exit_code(), 12);
    }

    #[test]
    fn half_of_the_digits_name_a_hash_that_was_seen() {
        let state = tempfile::tempdir().unwrap();
        let (one, other) = (Hash([0xab; 32]), Hash([vec![0xab; 17], vec![0xcd; 15]].concat().try_into().unwrap()));
        let named = |text: &str| named(state.path(), "approve", text);
        let half = "ab".repeat(16);
        // All digits always do; half of them only once the site was shown the hash.
        assert_eq!(named(&one.to_string()).unwrap(), one);
        assert_eq!(named(&format!("sha256:{one}")).unwrap(), one);
        assert!(named(&half).unwrap_err().to_string().contains("plan"));
        saw(state.path(), &one).unwrap();
        saw(state.path(), &one).unwrap();
        for text in [&half, &half.to_ascii_uppercase(), &format!("sha256:{half}ab"), &one.to_string()[..63]] {
            assert_eq!(named(text).unwrap(), one, "{text}");
        }
        saw(state.path(), &other).unwrap();
        assert!(named(&half).unwrap_err().to_string().contains("2 hashes"));
        assert_eq!(named(&format!("{half}abcd")).unwrap(), other);
        for text in ["", &half[..31], &format!("{half}g"), "../approved", &format!("{half}\n")] {
            assert_eq!(named(text).unwrap_err().exit_code(), 2, "{text}");
        }
        // Seen is not approved.
        assert_eq!(list(state.path()).unwrap(), []);
    }

    /// Two texts with the same 8, 16 or 31 digits can be searched for: no such prefix names a hash, however plain it is which was seen.
    #[test]
    fn a_prefix_that_can_be_searched_for_names_nothing() {
        let state = tempfile::tempdir().unwrap();
        let hash = Hash([0xab; 32]);
        saw(state.path(), &hash).unwrap();
        for digits in [8, 16, 31] {
            let refused = named(state.path(), "approve", &hash.to_string()[..digits]).unwrap_err();
            assert!(refused.to_string().contains("give at least 32"), "{refused}");
        }
        assert_eq!(named(state.path(), "approve", &hash.to_string()[..32]).unwrap(), hash);
    }
}
