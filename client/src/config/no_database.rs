//! `[database]` in a program that was built without the feature `postgres`: it is refused.

use std::path::Path;

use serde::Deserialize;
use serde::de::IgnoredAny;

use crate::error::{ClientError, Result};

/// What no configuration has.
#[derive(Debug, Clone)]
pub enum Database {}

impl Database {
    pub(crate) fn keeps_rows_of_run(&self) -> bool {
        match *self {}
    }
}

#[derive(Deserialize)]
#[serde(transparent)]
pub(super) struct RawDatabase {
    _section: IgnoredAny,
}

impl RawDatabase {
    #[allow(clippy::unused_self, reason = "as the section of a program that has the feature")]
    pub(super) fn check(self, _: &Path) -> Result<Database> {
        Err(ClientError::config(
            "database",
            "this program was built without the feature `postgres`; name files under [data], or build it with that feature".to_owned(),
        ))
    }
}
