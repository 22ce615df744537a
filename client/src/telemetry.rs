//! Logs on stderr.

use std::io::IsTerminal;

use tracing_subscriber::EnvFilter;

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

/// Starts logging. `verbosity`: 0 = warnings and progress, negative = errors only, 1 = debug, 2 = everything. `RUST_LOG` decides over it.
pub fn init(format: LogFormat, verbosity: i8) {
    let default = match verbosity {
        i8::MIN..0 => "error",
        0 => "warn,dp_pvi_client=info",
        1 => "info,dp_pvi_client=debug",
        _ => "debug",
    };
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new(default));
    let colour = std::io::stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none_or(|v| v.is_empty());
    let builder = tracing_subscriber::fmt().with_env_filter(filter).with_writer(|| progress::Stderr).with_ansi(colour).with_target(false);
    // A second start (tests that call the library) keeps the first.
    let _ = match format {
        LogFormat::Text => builder.try_init(),
        LogFormat::Json => builder.json().try_init(),
    };
}
