//! Logs on stderr.

use std::io::IsTerminal;

use dp_pvi_programs::log;
use dp_pvi_programs::log::{Colour, Form};
use tracing_subscriber::EnvFilter;

use crate::error::ClientError;
use crate::progress;

/// `--log-format`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, clap::ValueEnum)]
pub enum LogFormat {
    /// For people.
    #[default]
    Text,
    /// One object a line.
    Json,
}

/// What is never logged.
const QUIET: [&str; 2] = ["tokio_postgres=off", "postgres_protocol=off"];

/// Starts logging. `verbosity`: 0 = warnings and progress, negative = errors only, 1 = debug, 2 = everything. `RUST_LOG` decides over it.
pub fn init(format: LogFormat, verbosity: i8) {
    let default = match verbosity {
        i8::MIN..0 => "error",
        0 => "warn,dp_pvi_client=info",
        1 => "info,dp_pvi_client=debug",
        _ => "debug",
    };
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new(default));
    // What a database says unasked, and the questions that it is asked, may hold values of records: whatever is wished for, they are not logged.
    let filter = QUIET.iter().filter_map(|quiet| quiet.parse().ok()).fold(filter, EnvFilter::add_directive);
    let colour = if std::io::stderr().is_terminal() { Colour::OnTerminal } else { Colour::Never };
    log::start(format.form(), filter, colour, || progress::Stderr);
}

/// Tells the error that ends the program.
pub fn ended(format: LogFormat, error: &ClientError) {
    log::ended(format.form(), error.exit_code(), &error.shown(), progress::Stderr);
}

impl LogFormat {
    fn form(self) -> Form {
        match self {
            Self::Text => Form::Text,
            Self::Json => Form::Json,
        }
    }
}
