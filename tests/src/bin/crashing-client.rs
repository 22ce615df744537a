//! The shipped client with a ledger store that ends the process at a chosen append (see `dp_pvi_tests::crash`).

use std::process::ExitCode;

use dp_pvi_tests::crash::CrashingStore;

fn main() -> ExitCode {
    dp_pvi_client::cli::main_with(CrashingStore::from_environment, dp_pvi_privacy::SecureNoise)
}
