//! Identity keys in PEM files (PKCS#8, as other tools write them), and files that only their owner may read.

use std::fs::{File, Metadata, OpenOptions};
use std::io::{Read, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use ed25519_dalek::pkcs8::spki::der::pem::LineEnding;
use ed25519_dalek::pkcs8::{DecodePrivateKey, DecodePublicKey, EncodePrivateKey, EncodePublicKey, KeypairBytes};
use ed25519_dalek::{SigningKey, VerifyingKey};
use zeroize::{Zeroize, Zeroizing};

use super::IdentityError;

/// A file without the mark of the byte order that editors put before its text.
#[must_use]
pub fn without_mark(bytes: &[u8]) -> &[u8] {
    bytes.strip_prefix("\u{feff}".as_bytes()).unwrap_or(bytes)
}

/// A fresh identity key from the operating system's randomness.
///
/// # Errors
/// No randomness.
pub fn generate_identity() -> Result<SigningKey, IdentityError> {
    let mut seed = [0; 32];
    getrandom::fill(&mut seed).map_err(|_| IdentityError::Randomness)?;
    let key = SigningKey::from_bytes(&seed);
    seed.zeroize();
    Ok(key)
}

/// PKCS#8 PEM of an identity key (RFC 8410, version 1: the seed alone, which every common tool reads); wiped from memory when dropped.
///
/// # Errors
/// Never for a valid key; the encoder's signature is kept.
pub fn identity_to_pem(key: &SigningKey) -> Result<Zeroizing<String>, IdentityError> {
    let seed = KeypairBytes { secret_key: key.to_bytes(), public_key: None };
    seed.to_pkcs8_pem(LineEnding::LF).map_err(|_| IdentityError::Key("private key"))
}

/// Reads an identity key from PKCS#8 PEM: version 1, or version 2 (RFC 5958), which carries the public key beside the seed.
///
/// # Errors
/// Another kind of key or file.
pub fn identity_from_pem(text: &str) -> Result<SigningKey, IdentityError> {
    SigningKey::from_pkcs8_pem(text.trim_start_matches('\u{feff}').trim()).map_err(|_| IdentityError::Key("private key"))
}

/// PEM of a public identity key.
///
/// # Errors
/// Never for a valid key; the encoder's signature is kept.
pub fn public_identity_to_pem(key: &VerifyingKey) -> Result<String, IdentityError> {
    key.to_public_key_pem(LineEnding::LF).map_err(|_| IdentityError::Key("public key"))
}

/// The one `PUBLIC KEY` block of a PEM file that may hold other blocks too: the authority's file `ca.pem` carries the server's
/// identity this way.
///
/// # Errors
/// No such block, several, or another kind of key.
pub fn public_identity_from_pem(text: &str) -> Result<VerifyingKey, IdentityError> {
    let error = || IdentityError::Key("public key");
    let blocks = pem::parse_many(text.trim_start_matches('\u{feff}')).map_err(|_| error())?;
    let mut keys = blocks.iter().filter(|block| block.tag() == "PUBLIC KEY");
    match (keys.next(), keys.next()) {
        (Some(block), None) => VerifyingKey::from_public_key_der(block.contents()).map_err(|_| error()),
        _ => Err(error()),
    }
}

/// Longest key file that is read.
const LONGEST_SECRET: u64 = 1 << 20;

/// What to do where a platform mounts keys as links, or readable to a group, and that cannot be changed.
const MOUNTED: &str = "; a key that a platform mounts this way is copied before the program starts, into a folder of its user: \
                       `install -m 400 MOUNTED-KEY OWN-FOLDER/`";

/// Reads a file that holds a secret; its bytes are wiped from memory when dropped.
///
/// # Errors
/// [`IdentityError::Unsafe`] where someone else can read or change the file, or has put a link in its place; [`IdentityError::Io`].
pub fn read_secret(path: &Path) -> Result<Zeroizing<Vec<u8>>, IdentityError> {
    let shown = || path.display().to_string();
    let link = std::fs::symlink_metadata(path).map_err(|source| IdentityError::Io { path: shown(), source })?;
    if link.file_type().is_symlink() {
        let problem = format!("is a symbolic link, which whoever owns its folder can point elsewhere: name the file itself{MOUNTED}");
        return Err(IdentityError::Unsafe { path: shown(), problem });
    }
    // Looked at before it is opened: opening a pipe would wait for someone to write.
    if !link.is_file() {
        return Err(IdentityError::Unsafe { path: shown(), problem: "is not a regular file".into() });
    }
    let read = || {
        let file = File::open(path)?;
        let about = file.metadata()?;
        Ok((file, about))
    };
    let (file, about) = read().map_err(|source| IdentityError::Io { path: shown(), source })?;
    let problem = if (about.dev(), about.ino()) != (link.dev(), link.ino()) {
        Some("was exchanged while it was read: find out by whom".into())
    } else if about.len() > LONGEST_SECRET {
        Some("is too long for a key: name the key file".into())
    } else if about.mode() & 0o077 != 0 {
        Some(format!("others may read this key (mode {:o}): `chmod 600` it{MOUNTED}", about.mode() & 0o777))
    } else {
        foreign(&about)
    };
    if let Some(problem) = problem {
        return Err(IdentityError::Unsafe { path: shown(), problem });
    }
    // Sized beforehand: a buffer that grows would leave copies behind.
    let mut bytes = Zeroizing::new(Vec::with_capacity(usize::try_from(about.len()).unwrap_or(0) + 1));
    file.take(LONGEST_SECRET).read_to_end(&mut bytes).map_err(|source| IdentityError::Io { path: shown(), source })?;
    Ok(bytes)
}

/// Checks that only this user (and root) can change a folder or file of our own state.
///
/// # Errors
/// [`IdentityError::Unsafe`] says whose it is or who may write, and what to do; [`IdentityError::Io`].
pub fn check_own(path: &Path) -> Result<(), IdentityError> {
    let shown = || path.display().to_string();
    let about = std::fs::metadata(path).map_err(|source| IdentityError::Io { path: shown(), source })?;
    let problem = if about.mode() & 0o022 != 0 {
        let command = if about.is_dir() { "700" } else { "600" };
        Some(format!("others may change it (mode {:o}): `chmod {command}` it after looking at what it holds", about.mode() & 0o777))
    } else {
        foreign(&about)
    };
    match problem {
        Some(problem) => Err(IdentityError::Unsafe { path: shown(), problem }),
        None => Ok(()),
    }
}

/// Says whose a file is where it is neither ours nor root's.
fn foreign(about: &Metadata) -> Option<String> {
    let us = rustix::process::geteuid().as_raw();
    let owner = about.uid();
    (owner != us && owner != 0)
        .then(|| format!("belongs to user {owner}, this program runs as user {us}: `chown` it, or run the program as its owner"))
}

/// Writes a file that only its owner may read (0600), durably; an existing file is never overwritten.
///
/// # Errors
/// The file exists, or cannot be written.
pub fn write_secret(path: &Path, bytes: &[u8]) -> Result<(), IdentityError> {
    write_with_mode(path, bytes, 0o600)
}

/// Writes a new public file, durably; an existing file is never overwritten.
///
/// # Errors
/// The file exists, or cannot be written.
pub fn write_new(path: &Path, bytes: &[u8]) -> Result<(), IdentityError> {
    write_with_mode(path, bytes, 0o644)
}

/// What is written together: unless it is whole at the end, its files are removed again.
#[derive(Debug, Default)]
pub struct Together {
    written: Vec<PathBuf>,
}

impl Together {
    /// As [`write_secret`].
    ///
    /// # Errors
    /// The file exists, or cannot be written.
    pub fn secret(&mut self, path: &Path, bytes: &[u8]) -> Result<(), IdentityError> {
        write_secret(path, bytes)?;
        self.written.push(path.to_owned());
        Ok(())
    }

    /// As [`write_new`].
    ///
    /// # Errors
    /// The file exists, or cannot be written.
    pub fn public(&mut self, path: &Path, bytes: &[u8]) -> Result<(), IdentityError> {
        write_new(path, bytes)?;
        self.written.push(path.to_owned());
        Ok(())
    }

    /// All of it is there.
    pub fn whole(mut self) {
        self.written.clear();
    }
}

impl Drop for Together {
    fn drop(&mut self) {
        // What cannot be removed is named by the next attempt.
        self.written.iter().for_each(|path| drop(std::fs::remove_file(path)));
    }
}

/// Moves all files of a folder into another; where one cannot be moved, none is.
///
/// # Errors
/// A file cannot be moved.
pub fn move_all(from: &Path, to: &Path) -> std::io::Result<()> {
    let mut moved: Vec<PathBuf> = Vec::new();
    let mut each = || {
        for entry in std::fs::read_dir(from)? {
            let entry = entry?;
            let place = to.join(entry.file_name());
            std::fs::rename(entry.path(), &place)?;
            moved.push(place);
        }
        File::open(to)?.sync_all()
    };
    let done: std::io::Result<()> = each();
    if done.is_err() {
        moved.iter().for_each(|place| drop(std::fs::remove_file(place)));
    }
    done
}

fn write_with_mode(path: &Path, bytes: &[u8], mode: u32) -> Result<(), IdentityError> {
    let write = || {
        let mut file = OpenOptions::new().write(true).create_new(true).mode(mode).open(path)?;
        // Half a file would be in the way of the next attempt.
        file.write_all(bytes).and_then(|()| file.sync_all()).inspect_err(|_| drop(std::fs::remove_file(path)))
    };
    write().map_err(|source| IdentityError::Io { path: path.display().to_string(), source })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn keys_survive_the_round_trip() {
        let key = generate_identity().unwrap();
        let read = identity_from_pem(&identity_to_pem(&key).unwrap()).unwrap();
        assert_eq!(read.to_bytes(), key.to_bytes());
        let public = public_identity_to_pem(&key.verifying_key()).unwrap();
        assert_eq!(public_identity_from_pem(&public).unwrap(), key.verifying_key());
        assert!(public_identity_from_pem(&format!("{public}{public}")).is_err());
        assert!(identity_from_pem(&public).is_err());
    }

    /// Version 2 of the form, which carries the public key too.
    #[test]
    fn keys_with_their_public_half_are_read() {
        let key = generate_identity().unwrap();
        let pem = key.to_pkcs8_pem(LineEnding::LF).unwrap();
        assert_ne!(*pem, *identity_to_pem(&key).unwrap());
        assert_eq!(identity_from_pem(&pem).unwrap().to_bytes(), key.to_bytes());
    }

    #[test]
    fn openssl_reads_identity_keys() {
        let folder = tempfile::tempdir().unwrap();
        let (file, key) = (folder.path().join("a.identity"), generate_identity().unwrap());
        write_secret(&file, identity_to_pem(&key).unwrap().as_bytes()).unwrap();
        let pem = std::fs::read_to_string(&file).unwrap();
        assert!(pem.starts_with("-----BEGIN PRIVATE KEY-----\n") && pem.ends_with("-----END PRIVATE KEY-----\n"));
        // SEQUENCE { version 0, { id-Ed25519 }, OCTET STRING { OCTET STRING of 32 bytes } }: the example of RFC 8410, section 10.3.
        let der = pem::parse(&pem).unwrap().into_contents();
        assert_eq!(der[..16], [0x30, 0x2e, 2, 1, 0, 0x30, 5, 6, 3, 0x2b, 0x65, 0x70, 4, 0x22, 4, 0x20]);
        assert_eq!(der[16..], key.to_bytes());
        let openssl = std::process::Command::new("openssl").args(["pkey", "-noout", "-text", "-in"]).arg(&file).output();
        // A machine without the tool has the bytes above.
        if let Ok(output) = openssl {
            assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
            assert!(String::from_utf8_lossy(&output.stdout).to_uppercase().contains("ED25519"));
        }
    }

    /// Kubernetes mounts a secret as `KEY -> ..data/KEY`, `..data -> ..TIME`, and with an fsGroup readable to that group. Both are refused, with
    /// the step that helps; after that step the key is read.
    #[test]
    fn a_key_that_a_platform_mounts_is_copied_first() {
        use std::os::unix::fs::{PermissionsExt, symlink};
        let folder = tempfile::tempdir().unwrap();
        let (mount, own) = (folder.path().join("mount"), folder.path().join("own"));
        std::fs::create_dir_all(mount.join("..2026")).unwrap();
        std::fs::create_dir(&own).unwrap();
        symlink("..2026", mount.join("..data")).unwrap();
        symlink("..data/a.identity", mount.join("a.identity")).unwrap();
        let real = mount.join("..2026/a.identity");
        write_secret(&real, b"secret").unwrap();
        std::fs::set_permissions(&real, std::fs::Permissions::from_mode(0o440)).unwrap();
        for mounted in [mount.join("a.identity"), mount.join("..data/a.identity")] {
            let error = read_secret(&mounted).unwrap_err().to_string();
            assert!(error.contains("install -m 400"), "{error}");
        }
        let copied = std::process::Command::new("install").args(["-m", "400"]).arg(mount.join("a.identity")).arg(&own).status();
        assert!(copied.unwrap().success());
        assert_eq!(**read_secret(&own.join("a.identity")).unwrap(), *b"secret");
    }

    #[test]
    fn files_that_others_can_change_are_refused() {
        use std::os::unix::fs::PermissionsExt;
        let folder = tempfile::tempdir().unwrap();
        let (file, link) = (folder.path().join("a.identity"), folder.path().join("link.identity"));
        write_secret(&file, b"secret").unwrap();
        assert_eq!(**read_secret(&file).unwrap(), *b"secret");
        std::os::unix::fs::symlink(&file, &link).unwrap();
        assert!(read_secret(&link).unwrap_err().to_string().contains("symbolic link"));
        assert!(read_secret(folder.path()).is_err());
        for mode in [0o640, 0o604, 0o620, 0o602, 0o666] {
            std::fs::set_permissions(&file, std::fs::Permissions::from_mode(mode)).unwrap();
            let error = read_secret(&file).unwrap_err().to_string();
            assert!(error.contains("a.identity") && error.contains("chmod 600"), "{error}");
        }
        for (mode, fine) in [(0o700, true), (0o755, true), (0o720, false), (0o702, false), (0o777, false)] {
            std::fs::set_permissions(folder.path(), std::fs::Permissions::from_mode(mode)).unwrap();
            assert_eq!(check_own(folder.path()).is_ok(), fine, "{mode:o}");
        }
        std::fs::set_permissions(folder.path(), std::fs::Permissions::from_mode(0o700)).unwrap();
        // Only root can give a file away.
        if rustix::process::geteuid().is_root() {
            std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o600)).unwrap();
            std::os::unix::fs::chown(&file, Some(4711), None).unwrap();
            assert!(read_secret(&file).unwrap_err().to_string().contains("belongs to user 4711"));
            assert!(check_own(&file).unwrap_err().to_string().contains("chown"));
        }
    }
}
