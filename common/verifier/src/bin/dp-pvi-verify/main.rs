//! `dp-pvi-verify FILE [TRANSCRIPT]`: says whether a certificate holds, or what a `posterior.json` states of privacy. The help lists files and exit codes. Only what was
//! derived is printed.

use std::io::{ErrorKind, Write};
use std::process::ExitCode;

use dp_pvi_verifier::posterior::{Posterior, Unproved};
use dp_pvi_verifier::{Certificate, Refusal, verify};
use serde_json::json;

const HELP: &str = include_str!("../../../help.txt");

/// A text of which whatever could be seen otherwise than it is stands as an escape.
fn visible(text: &str) -> String {
    let plain = |c: char| {
        matches!(c, ' '..='~')
            || c.is_alphanumeric() && !matches!(c, '\u{115f}' | '\u{1160}' | '\u{3164}' | '\u{ffa0}' | '\u{13441}' | '\u{13442}')
    };
    let escaped = |c: char| c.encode_utf16(&mut [0; 2]).iter().map(|unit| format!("\\u{unit:04x}")).collect();
    text.chars().map(|c| if plain(c) { c.to_string() } else { escaped(c) }).collect()
}

fn holds(claim: &str, certificate: &Certificate) -> String {
    let Certificate { epsilon, delta, relation, .. } = certificate;
    format!("holds: {claim} {epsilon} at delta {delta:e} under {}", json!(relation))
}

/// What is proved, line by line.
fn proved(file: &[u8], transcript: Option<&[u8]>) -> Result<Vec<String>, Unproved> {
    if file.starts_with(b"{\"format\":\"") {
        let alone = if transcript.is_none() { verify(file) } else { Err(Refusal::Form("beside a transcript give a posterior.json")) };
        return Ok(vec![holds("epsilon", &alone?)]);
    }
    let posterior = Posterior::read(file, transcript)?;
    let certificates = posterior.prove()?;
    let shown = |text: &String| visible(&json!(text).to_string());
    let Posterior { task, run, unit, relation, trust, released, visits, sites, witnesses, .. } = &posterior;
    let mut lines = vec![holds("epsilon", &certificates.joint)];
    lines.extend(certificates.fallback.iter().map(|fallback| match fallback {
        Some(certificate) => holds("fallback epsilon", certificate),
        None => "not proved: fallback epsilon (it has no certificate)".to_owned(),
    }));
    lines.push(format!("of task {task}\nunit {}, relation {}, trust {}", shown(unit), shown(relation), shown(trust)));
    lines.push(format!("released by a site in at most {visits} visits: {}", shown(released)));
    lines.push(match sites {
        Some(sites) => {
            let all: Vec<_> = sites.iter().map(|(site, answered)| format!("{} ({answered} visits)", shown(site))).collect();
            format!("run {run}; sites of the transcript: {}", all.join(", "))
        }
        None => format!("not checked without a transcript: the number of the run (the file says {run}) and of rounds, which sites took part, their visits"),
    });
    for (site, row, key) in witnesses.iter().flatten() {
        lines.push(format!("key {key} signed that the ledger of {} ended at row {row}", shown(site)));
    }
    lines.push("not checked: that this is the task that your site approved (compare its hash with `dp-pvi-client ledger export`)\nnot checked: everything else in the file".to_owned());
    Ok(lines)
}

fn main() -> ExitCode {
    let arguments: Vec<_> = std::env::args_os().skip(1).collect();
    let read = |file: &std::ffi::OsString| std::fs::read(file).map_err(|error| (format!("{}: {error} (see --help)", file.display()), 4));
    let files = match arguments.as_slice() {
        [flag] if flag == "-h" || flag == "--help" => Err((HELP.trim_end().to_owned(), 0)),
        [flag] if flag == "-V" || flag == "--version" => Err((concat!("dp-pvi-verify ", env!("CARGO_PKG_VERSION")).to_owned(), 0)),
        [file] => read(file).map(|file| (file, None)),
        [file, transcript] => read(file).and_then(|file| Ok((file, Some(read(transcript)?)))),
        _ => Err((HELP.trim_end().to_owned(), 2)),
    };
    let (text, code) = match files.map(|(file, transcript)| proved(&file, transcript.as_deref())) {
        Err(message) => message,
        Ok(Err(refusal)) => (format!("refused: {}", visible(&refusal.to_string())), 1),
        Ok(Ok(lines)) => (lines.join("\n"), 0),
    };
    match writeln!(std::io::stdout(), "{text}") {
        // What is proved is in the words: without them nothing is said. A reader that has seen enough is no loss.
        Err(lost) if code == 0 && lost.kind() != ErrorKind::BrokenPipe => {
            let _ = writeln!(std::io::stderr(), "the result cannot be printed ({lost})");
            ExitCode::from(12)
        }
        _ => ExitCode::from(code),
    }
}
