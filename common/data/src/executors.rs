//! Units that other processes of a site sum: they are written to a folder that all of these read.

use std::fs::File;
use std::path::Path;

use dp_pvi_names::Hash;
use dp_pvi_privacy::partial_sums::{Elsewhere, ExecutorChannel, SiteKey};
use dp_pvi_privacy::stored::UnitStore;
use dp_pvi_privacy::{SecureNoise, Units};
use dp_pvi_schema::Schema;
use rand_core::Rng;

use crate::blocks;
use crate::error::DataError;
use crate::{Made, Snapshot};

/// Where the processes of a site find its units, and how they are asked.
pub struct Executors<'a> {
    /// A folder that all of them read.
    pub folder: &'a Path,
    /// What they share.
    pub key: SiteKey,
    /// Makes the way to them, for the folder of this snapshot.
    pub ask: &'a dyn Fn(&Path) -> Box<dyn ExecutorChannel>,
}

impl Snapshot {
    /// [`Snapshot::units`] for a site whose sums other processes make ([`dp_pvi_privacy::partial_sums`]): the units are written to a new folder, encrypted, and stay neither in memory nor in `file`. Their number and
    /// their order are the same.
    ///
    /// # Errors
    /// As [`Snapshot::units`].
    pub fn units_elsewhere(&self, schema: &Schema, file: File, executors: Executors<'_>) -> Result<Made, DataError> {
        let (cache, omitted) = self.held.cache(schema, file)?;
        let mut name = Hash::default();
        let none = |none| DataError::Cache { source: std::io::Error::other(none) };
        SecureNoise::fresh().map_err(none)?.fill_bytes(&mut name.0);
        let folder = blocks::folder_of(executors.folder, name);
        let ask = (executors.ask)(&folder);
        blocks::write(&cache, blocks::Length::of(schema), &folder, &executors.key, name)?;
        let units = Units::elsewhere(Elsewhere::new(cache.len(), name, executors.key, ask));
        Ok(Made { units, omitted })
    }
}

/// Removes what is left of snapshots in a folder, of processes that ended without doing so. No other process may use them.
///
/// # Errors
/// The system's.
pub fn remove_snapshots(folder: &Path) -> std::io::Result<()> {
    for entry in std::fs::read_dir(folder)? {
        let entry = entry?;
        if entry.file_name().to_str().is_some_and(|name| name.starts_with(blocks::PREFIX)) && entry.file_type()?.is_dir() {
            std::fs::remove_dir_all(entry.path())?;
        }
    }
    Ok(())
}
