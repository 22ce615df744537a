//! `dp-pvi-server`: see the library.

use std::process::ExitCode;

fn main() -> ExitCode {
    dp_pvi_server::cli::main()
}
