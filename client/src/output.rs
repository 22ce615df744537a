//! stdout is data: text for people, or one JSON object a line.

use std::io::{ErrorKind, Write};
use std::sync::OnceLock;

use dp_pvi_accounting::unit::rounded_up;
use dp_pvi_protocol::text::{visible, visible_json};
use serde_json::Value;

use crate::progress;

/// `--format`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, clap::ValueEnum)]
pub enum Format {
    /// For people.
    #[default]
    Text,
    /// One object a line.
    Json,
}

/// Writes results to stdout.
#[derive(Debug, Clone, Copy)]
pub struct Output {
    format: Format,
}

impl Output {
    /// Output in this format.
    #[must_use]
    pub fn new(format: Format) -> Self {
        Self { format }
    }

    /// The format.
    #[must_use]
    pub fn format(self) -> Format {
        self.format
    }

    /// Writes one result: the object, or the text (with a line end where it has none).
    ///
    /// Anyone who puts a peer's words into the text makes them visible first ([`dp_pvi_protocol::text::visible`]), line ends included.
    pub fn object(self, json: impl FnOnce() -> Value, text: impl FnOnce() -> String) {
        match self.format {
            Format::Json => self.json_line(&json()),
            Format::Text => self.line(text().trim_end_matches('\n')),
        }
    }

    /// Writes an object on a line of its own.
    pub fn json_line(self, object: &Value) {
        let line = object.to_string();
        write_line(&visible_json(&line));
    }

    /// Writes text. Of characters that a terminal obeys, only line ends and tabs reach it.
    pub fn line(self, text: &str) {
        let lines: Vec<_> = text.split('\n').map(|line| line.split('\t').map(visible).collect::<Vec<_>>().join("\t")).collect();
        write_line(&lines.join("\n"));
    }
}

fn write_line(line: &str) {
    progress::aside(|| write_bytes(format!("{line}\n").as_bytes()));
}

/// Writes to stdout. A failed write is reported when the program ends ([`lost`]); a run goes on meanwhile.
pub(crate) fn write_bytes(bytes: &[u8]) {
    let mut out = std::io::stdout().lock();
    if let Err(error) = out.write_all(bytes).and_then(|()| out.flush())
        // A reader that closed its end (`| head`) has seen enough; there is no one to tell.
        && error.kind() != ErrorKind::BrokenPipe
    {
        LOST.get_or_init(|| error.to_string());
    }
}

static LOST: OnceLock<String> = OnceLock::new();

/// Why something could not be written to stdout, if that happened.
pub(crate) fn lost() -> Option<&'static str> {
    LOST.get().map(String::as_str)
}

/// ε for people: rounded up in the last place shown.
#[must_use]
pub fn epsilon(value: f64) -> String {
    if value.is_finite() { rounded_up(value, 4) } else { "infinite".into() }
}

/// ε for programs: JSON has no infinity, so it is the text `"infinite"`.
#[must_use]
pub fn json_number(value: f64) -> Value {
    if value.is_finite() { Value::from(value) } else { Value::from("infinite") }
}

/// Name of an enum's variant as configuration files and JSON write it.
#[must_use]
pub fn name_of(value: &impl serde::Serialize) -> String {
    match serde_json::to_value(value) {
        Ok(Value::String(name)) => name,
        // Only enums without fields are asked for their names; anything else is shown as it is.
        Ok(other) => other.to_string(),
        Err(_) => String::new(),
    }
}
