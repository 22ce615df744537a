//! `engine.toml`: one file for all processes of the cluster. Paths are relative to its folder.

use std::fs::{self, File};
use std::io::Read;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use dp_pvi_privacy::partial_sums::{SiteKey, USUAL_PARTS};
use serde::Deserialize;
use zeroize::Zeroizing;

/// What a head asks the scheduler for: whether there are executors.
pub(crate) const EXECUTORS: &str = "executors";

/// Environment variable that comes before `[executor] host`: where executors are made, each has an address of its own and they share a file.
const HOST: &str = "DP_PVI_ENGINE_HOST";

/// What a process knows.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Config {
    /// Certificates.
    pub tls: Tls,
    /// Where the scheduler is.
    pub scheduler: Scheduler,
    /// Of an executor.
    pub executor: Option<Executor>,
    /// Of the process that the head starts.
    #[serde(default)]
    pub sum: Sum,
}

/// `[tls]`: an authority for this cluster alone, and this process's own certificate.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Tls {
    /// The authority's certificate.
    pub ca: PathBuf,
    /// This process's certificate.
    pub cert: PathBuf,
    /// Its key.
    pub key: PathBuf,
}

/// `[scheduler]`.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Scheduler {
    /// Address that it listens at.
    #[serde(default = "anywhere")]
    pub bind: String,
    /// Name or address by which executors and head find it.
    pub host: String,
    /// Its port.
    pub port: u16,
    /// Seconds without a word after which an executor counts as lost, and others do its part.
    #[serde(default = "lost_after")]
    pub lost_after_seconds: u64,
}

/// `[executor]`.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Executor {
    /// Address that it listens at.
    #[serde(default = "anywhere")]
    pub bind: String,
    /// Name or address by which the others find it.
    pub host: String,
    /// Its port.
    pub port: u16,
    /// File with the site's key.
    pub site_key: PathBuf,
    /// Folder of the snapshots, the only one whose files it sums.
    pub snapshots: PathBuf,
    /// Folder for what it keeps during a sum: ciphertexts. It makes one for itself there, and removes it when it ends.
    pub work: PathBuf,
    /// Blocks that are summed at once; the machine's cores unless given.
    #[serde(default)]
    pub threads: usize,
}

/// `[sum]`.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Sum {
    /// Parts into which the snapshot is cut. Several for each thread of all executors, so that one that is lost loses little.
    pub parts: usize,
}

impl Default for Sum {
    fn default() -> Self {
        Self { parts: USUAL_PARTS as usize }
    }
}

fn anywhere() -> String {
    "0.0.0.0".into()
}

fn lost_after() -> u64 {
    20
}

impl Config {
    /// Reads a file.
    ///
    /// # Errors
    /// It cannot be read, or has another form. In words.
    pub fn read(path: &Path) -> Result<Self, String> {
        let text = fs::read_to_string(path).map_err(|e| format!("{} cannot be read ({e})", path.display()))?;
        let mut config: Self = toml::from_str(&text).map_err(|e| format!("{}: {}", path.display(), e.message()))?;
        let folder = path.parent().unwrap_or(Path::new("."));
        let paths = [&mut config.tls.ca, &mut config.tls.cert, &mut config.tls.key];
        let own = config.executor.iter_mut().flat_map(|executor| [&mut executor.site_key, &mut executor.snapshots, &mut executor.work]);
        paths.into_iter().chain(own).for_each(|path| *path = folder.join(&path));
        if let (Some(executor), Ok(host)) = (&mut config.executor, std::env::var(HOST)) {
            executor.host = host;
        }
        Ok(config)
    }
}

/// The text of a file that only its owner can change, which is this user or root, and that only a group can read beside him.
pub(crate) fn secret(path: &Path) -> Result<Zeroizing<String>, String> {
    let unread = |e: std::io::Error| format!("{} cannot be read ({e})", path.display());
    let mut file = File::open(path).map_err(unread)?;
    let about = file.metadata().map_err(unread)?;
    let (mode, owner) = (about.mode() & 0o777, about.uid());
    if mode & 0o027 != 0 {
        return Err(format!("{path}: others can look into it or change it (mode {mode:o}): `chmod 600 {path}`", path = path.display()));
    }
    // A process's own entry there belongs to its user.
    if let Ok(us) = fs::metadata("/proc/self").map(|about| about.uid())
        && owner != us
        && owner != 0
    {
        return Err(format!("{} belongs to user {owner}, and this program runs as user {us}: `chown` it", path.display()));
    }
    let mut text = Zeroizing::new(String::with_capacity(usize::try_from(about.len()).unwrap_or(0).min(1 << 20)));
    file.read_to_string(&mut text).map_err(unread)?;
    Ok(text)
}

/// The site's key: 64 hexadecimal digits.
///
/// # Errors
/// The file cannot be read, or holds something else. In words.
pub fn site_key(path: &Path) -> Result<SiteKey, String> {
    let text = secret(path)?;
    let mut bytes = Zeroizing::new([0; 32]);
    hex::decode_to_slice(text.trim(), &mut *bytes)
        .map_err(|_| format!("{} does not hold 64 hexadecimal digits: make it with `dp-pvi-site-engine keys`", path.display()))?;
    Ok(SiteKey::new(bytes))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::os::unix::fs::PermissionsExt;

    use super::*;

    /// The samples are read, and name every key.
    #[test]
    fn the_samples_in_deploy_are_read() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy/engine");
        let [scheduler, executor, head] =
            ["scheduler.toml", "executor.toml", "head.toml"].map(|name| Config::read(&folder.join(name)).unwrap());
        assert!(scheduler.executor.is_none() && head.executor.is_none());
        assert_eq!(executor.executor.unwrap().site_key, folder.join("site.key"));
        assert_eq!((head.sum.parts, scheduler.scheduler.lost_after_seconds), (64, 20));
        let all = ["scheduler.toml", "executor.toml", "head.toml"].map(|name| fs::read_to_string(folder.join(name)).unwrap()).join("\n");
        for key in ["ca", "cert", "key", "bind", "host", "port", "lost_after_seconds", "site_key", "snapshots", "work", "threads", "parts"]
        {
            assert!(all.lines().any(|line| line.starts_with(&format!("{key} = "))), "{key}");
        }
    }

    #[test]
    fn a_key_that_is_none_is_refused_without_its_text() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("site.key");
        fs::write(&file, "secret words").unwrap();
        fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).unwrap();
        let said = site_key(&file).err().unwrap();
        assert!(said.contains("keys") && !said.contains("secret"), "{said}");
        fs::write(&file, format!("{}\n", "0f".repeat(32))).unwrap();
        for mode in [0o644, 0o620, 0o460, 0o601] {
            fs::set_permissions(&file, fs::Permissions::from_mode(mode)).unwrap();
            assert!(site_key(&file).err().unwrap().contains("chmod 600"), "{mode:o}");
        }
        fs::set_permissions(&file, fs::Permissions::from_mode(0o440)).unwrap();
        assert!(site_key(&file).is_ok());
        // A file can be given away by root only.
        if fs::metadata("/proc/self").unwrap().uid() == 0 {
            std::os::unix::fs::chown(&file, Some(12_345), None).unwrap();
            assert!(site_key(&file).err().unwrap().contains("chown"));
        }
    }
}
