//! The program of a site; see the library for what it does.

use std::process::ExitCode;

fn main() -> ExitCode {
    dp_pvi_client::cli::main_with(|store| store, dp_pvi_privacy::SecureNoise)
}
