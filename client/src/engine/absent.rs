//! A program that was built without the feature `parquet` has no cluster's folder, and says so.

use std::fs::File;

use dp_pvi_data::{Made, Snapshot};
use dp_pvi_posterior::task::ResolvedTask;
use dp_pvi_schema::Schema;

use crate::config::Engine;
use crate::error::{ClientError, Result};

/// There is none.
pub(crate) enum Folder {}

impl Folder {
    pub(crate) fn take(_: &Engine) -> Result<Self> {
        Err(ClientError::config(
            "engine",
            "this program was built without the feature `parquet`; take the section out, or build it with that feature".to_owned(),
        ))
    }

    pub(crate) fn units(&self, _: &Snapshot, _: &Schema, _: File) -> Result<Made> {
        match *self {}
    }

    pub(crate) fn fits(&self, _: &ResolvedTask) -> Result<()> {
        match *self {}
    }

    pub(crate) fn ready(&self) -> Result<()> {
        match *self {}
    }
}
