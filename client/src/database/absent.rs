//! A program that was built without the feature `postgres` has no [`Database`] to read.

use std::path::Path;

use dp_pvi_data::DataFile;
use dp_pvi_protocol::origin::Origin;
use dp_pvi_schema::Schema;

use crate::config::Database;
use crate::error::Result;

/// What a site keeps of its rows: nothing.
#[derive(Debug)]
pub(crate) struct Kept;

impl Kept {
    pub(crate) fn of(_: &Path, _: &str) -> Self {
        Self
    }

    pub(crate) fn rows(&self) -> Result<Option<(DataFile, Origin)>> {
        Ok(None)
    }

    pub(crate) fn fetch(&self, database: &Database, _: &Schema) -> Result<(DataFile, Origin)> {
        match *database {}
    }

    pub(crate) fn remove(&self) -> Result<()> {
        Ok(())
    }
}

pub(crate) fn fetch(database: &Database, _: &Schema, _: &Path) -> Result<(DataFile, Origin)> {
    match *database {}
}

pub(crate) fn inspect(database: &Database, _: &Schema, _: &Path) -> Result<DataFile> {
    match *database {}
}

pub(crate) fn unit_in_words(database: &Database, _: &Schema) -> Result<String> {
    match *database {}
}

pub(crate) fn declared(database: &Database, _: Option<&str>) -> Result<Origin> {
    match *database {}
}
