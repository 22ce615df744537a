//! `[engine]`: a cluster of the site that sums the terms of its records.

use std::num::NonZeroU64;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::Deserialize;

/// `[engine]`, checked.
#[derive(Debug, Clone)]
pub struct Engine {
    /// The program that asks for a sum.
    pub program: PathBuf,
    /// Its own file.
    pub config: PathBuf,
    /// Folder that this client writes and all executors read. It is this client's alone.
    pub folder: PathBuf,
    /// File with the key that client and executors share (0600).
    pub key: PathBuf,
    /// The longest that a sum may take.
    pub patience: Duration,
}

/// An hour. The compiler sees that it is not 0.
const SECONDS: NonZeroU64 = NonZeroU64::new(3600).unwrap();

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawEngine {
    program: Option<PathBuf>,
    config: PathBuf,
    folder: PathBuf,
    key: PathBuf,
    seconds: Option<NonZeroU64>,
}

impl RawEngine {
    pub(super) fn check(self, folder: &Path) -> Engine {
        // A plain name is looked for where the system looks for programs.
        let program = self.program.unwrap_or_else(|| "dp-pvi-site-engine".into());
        let program = if program.components().count() > 1 { folder.join(program) } else { program };
        let patience = Duration::from_secs(self.seconds.unwrap_or(SECONDS).get());
        Engine { program, config: folder.join(self.config), folder: folder.join(self.folder), key: folder.join(self.key), patience }
    }
}
