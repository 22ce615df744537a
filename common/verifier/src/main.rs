//! `dp-pvi-verify FILE`: says whether a certificate holds. Exit code 0: it does; 1: it does not; 2: there is no such file.

use std::io::Write;
use std::process::ExitCode;

fn main() -> ExitCode {
    let file = std::env::args_os().nth(1).unwrap_or_default();
    let (text, code) = match std::fs::read(&file).map(|bytes| dp_pvi_verifier::verify(&bytes)) {
        Err(error) => (format!("{}: {error} (usage: dp-pvi-verify FILE)", file.display()), 2),
        Ok(Err(refusal)) => (format!("refused: {refusal}"), 1),
        Ok(Ok(holds)) => (format!("holds: epsilon {} at delta {:e}", holds.epsilon, holds.delta), 0),
    };
    // Nobody may read the words; the code says the same.
    let _ = writeln!(std::io::stdout(), "{text}");
    ExitCode::from(code)
}
