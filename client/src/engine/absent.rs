//! A program that was built without the feature `parquet` has no cluster's folder, and says so.

use std::fs::File;

use dp_pvi_data::{DataFile, Snapshot};
use dp_pvi_posterior::task::ResolvedTask;
use dp_pvi_schema::Schema;

use crate::config::Engine;
use crate::error::{ClientError, Result};

fn absent<T>() -> Result<T> {
    Err(ClientError::config(
        "engine",
        "this program was built without the feature `parquet`; take the section out, or build it with that feature".to_owned(),
    ))
}

pub(crate) fn load(_: &Engine, _: &Schema, _: &[DataFile], _: &[u8; 32], _: File) -> Result<Snapshot> {
    absent()
}

pub(crate) fn fits(_: &Engine, _: &ResolvedTask) -> Result<()> {
    absent()
}

pub(crate) fn ready(_: &Engine) -> Result<()> {
    absent()
}
