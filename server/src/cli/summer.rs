//! `dp-pvi-server summer …`.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use clap::Subcommand;
use dp_pvi_names::ClientId;
use dp_pvi_programs::problem::Problem;

use super::output::{LostOutput, Output};
use super::{block_on, signals};
use crate::error::{Result, ServerError};
use crate::summer::config::{self, SummerConfig};
use crate::summer::store::FileStores;
use crate::summer::{Credentials, EventSink, make_request, run};

#[derive(Debug, Subcommand)]
pub(super) enum SummerCommand {
    /// Make the summer's keys, the request that the coordinator signs, and the public identity that every site pins.
    Csr {
        /// Name of the federation.
        #[arg(long, value_name = "NAME")]
        federation: String,
        /// Name of this summer: 1 to 64 of the characters a-z 0-9 - _ .
        #[arg(long, value_name = "NAME", default_value = "summer")]
        name: String,
        /// Directory for the files.
        #[arg(short, long, value_name = "DIR", default_value = "tls")]
        output: PathBuf,
    },
    /// Check configuration, keys and folders, and call the server.
    Check {
        /// Do not call the server.
        #[arg(long)]
        offline: bool,
    },
    /// Answer the server's questions until its run ends.
    Run,
    /// Print every key of summer.toml, what it means and a value that works.
    Schema,
}

impl SummerCommand {
    pub(super) fn serves(&self) -> bool {
        matches!(self, Self::Run)
    }
}

pub(super) fn execute(command: SummerCommand, config: &Path, output: Output) -> Result<()> {
    match command {
        SummerCommand::Csr { federation, name, output: folder } => {
            let name = ClientId::new(name).map_err(|e| ServerError::Usage(Problem::of(e)))?;
            let files = make_request(&federation, name, &folder)?;
            output.summer_request(&files)
        }
        SummerCommand::Check { offline } => {
            let config = SummerConfig::load(config)?;
            let credentials = Credentials::load(&config)?;
            drop(FileStores::open(&config.state, &config.vault)?);
            if !offline {
                block_on(async { credentials.connect().await.map(drop) })?;
            }
            output.summer_check(&config, &credentials)
        }
        SummerCommand::Run => {
            let config = SummerConfig::load(config)?;
            let untold = LostOutput::default();
            let noted = untold.clone();
            let events: EventSink = Arc::new(move |event| noted.note(output.summer_event(event)));
            let ended = block_on(async {
                let shutdown = signals()?;
                run(config, events, shutdown).await
            });
            untold.after(ended)
        }
        SummerCommand::Schema => output.raw(config::SAMPLE.as_bytes()),
    }
}
