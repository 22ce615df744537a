//! One question on standard input, one answer on standard output: JSON both. What is no question ends with exit code 2 and `{"error": …}`,
//! an answer that cannot be printed with 12.

use std::io::{ErrorKind, Read, Write};
use std::process::ExitCode;

use serde_json::json;

fn main() -> ExitCode {
    let mut question = String::new();
    let answered = match std::io::stdin().read_to_string(&mut question) {
        Ok(_) => dp_pvi_exchange::calculator::answer(&question).map_err(|error| error.to_string()),
        Err(error) => Err(error.to_string()),
    };
    let (line, code) = match answered {
        Ok(answer) => (json!(answer), ExitCode::SUCCESS),
        Err(error) => (json!({ "error": error }), ExitCode::from(2)),
    };
    match writeln!(std::io::stdout(), "{line}") {
        Err(lost) if lost.kind() != ErrorKind::BrokenPipe => {
            let _ = writeln!(std::io::stderr(), "dp-pvi-calculator: the answer cannot be printed ({lost})");
            ExitCode::from(12)
        }
        _ => code,
    }
}
