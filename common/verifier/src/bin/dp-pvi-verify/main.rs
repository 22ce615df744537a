//! `dp-pvi-verify FILE`: says whether a certificate holds, or those of a `posterior.json`. Exit code 0: it does; 1: it does not; 2: there is no such file.

mod posterior;

use std::io::Write;
use std::process::ExitCode;

fn main() -> ExitCode {
    let file = std::env::args_os().nth(1).unwrap_or_default();
    let line = |(claim, found): posterior::Finding| match found {
        Ok(holds) => format!("holds: {claim} {} at delta {:e} under {}", holds.epsilon, holds.delta, serde_json::json!(holds.relation)),
        Err(why) => format!("not proved: {claim} ({why})"),
    };
    let (text, code) = match std::fs::read(&file).map(|bytes| posterior::verify_file(&bytes)) {
        Err(_) if file.is_empty() || file == "--help" => ("usage: dp-pvi-verify FILE, a certificate or a posterior.json".to_owned(), 2),
        Err(error) => (format!("{}: {error} (usage: dp-pvi-verify FILE)", file.display()), 2),
        Ok(Err(refusal)) => (format!("refused: {refusal}"), 1),
        Ok(Ok(all)) => (all.into_iter().map(line).collect::<Vec<_>>().join("\n"), 0),
    };
    // Nobody may read the words; the code says the same.
    let _ = writeln!(std::io::stdout(), "{text}");
    ExitCode::from(code)
}
