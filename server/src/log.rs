//! The log on stderr. Whatever a peer wrote in a name, a reason or a status text reaches it with hidden characters as their codes.

use std::io::{self, IsTerminal, Write};

use dp_pvi_proto::text::{Visible, visible_json};
use tracing_subscriber::EnvFilter;
use tracing_subscriber::field::MakeExt;
use tracing_subscriber::fmt::FormatFields;
use tracing_subscriber::fmt::format::debug_fn;

/// Form of the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Form {
    /// For people.
    Text,
    /// One object a line.
    Json,
}

/// Starts the log.
pub(crate) fn start(form: Form, filter: EnvFilter) {
    let colour = std::io::stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty());
    let builder = tracing_subscriber::fmt().with_env_filter(filter).with_ansi(colour);
    // A test may have set a log already.
    let _ = match form {
        Form::Text => builder.with_writer(io::stderr).with_target(false).fmt_fields(fields()).try_init(),
        Form::Json => builder.json().with_writer(|| VisibleJson(io::stderr())).try_init(),
    };
}

/// Fields of a line: the message, then `name=value`.
fn fields() -> impl for<'w> FormatFields<'w> + Send + Sync + 'static {
    debug_fn(|writer, field, value| {
        let value = format!("{value:?}");
        match field.name() {
            "message" => write!(writer, "{}", Visible(&value)),
            name => write!(writer, "{name}={}", Visible(&value)),
        }
    })
    .delimited(" ")
}

/// Lines of JSON without hidden characters.
struct VisibleJson<W>(W);

impl<W: Write> Write for VisibleJson<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.write_all(visible_json(&String::from_utf8_lossy(bytes)).as_bytes())?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::sync::{Arc, Mutex};

    use dp_pvi_proto::text::is_hidden;
    use tracing_subscriber::fmt::MakeWriter;

    use super::*;

    const FORGED: &str = "fine\u{1b}[2K\r\n2026-01-01 INFO the run is over\u{7}\u{202e}\u{9b}1m";

    #[derive(Clone, Default)]
    struct Page(Arc<Mutex<Vec<u8>>>);

    impl Write for Page {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap().extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    impl MakeWriter<'_> for Page {
        type Writer = Self;

        fn make_writer(&self) -> Self {
            self.clone()
        }
    }

    fn say() {
        tracing::warn!(reason = FORGED, words = %FORGED, "{FORGED}");
        tracing::error!(error = %crate::ServerError::Failed(FORGED.into()), "it failed");
    }

    #[test]
    fn finding_attack_b5_the_words_of_a_peer_forge_no_line_of_the_log() {
        let page = Page::default();
        let text = tracing_subscriber::fmt().with_writer(page.clone()).with_ansi(false).fmt_fields(fields()).finish();
        tracing::subscriber::with_default(text, say);
        let written = String::from_utf8(std::mem::take(&mut *page.0.lock().unwrap())).unwrap();
        assert_eq!(written.lines().count(), 2, "{written}");
        assert!(!written.contains(|c| is_hidden(c) && c != '\n'), "{written:?}");
        assert!(written.contains("fine\\u{1b}[2K\\r\\n2026-01-01 INFO"), "{written}");

        let inner = page.clone();
        let json = tracing_subscriber::fmt().json().with_writer(move || VisibleJson(inner.clone())).finish();
        tracing::subscriber::with_default(json, say);
        let written = String::from_utf8(page.0.lock().unwrap().clone()).unwrap();
        assert_eq!(written.lines().count(), 2, "{written}");
        assert!(!written.contains(|c| is_hidden(c) && c != '\n'), "{written:?}");
        let line: serde_json::Value = serde_json::from_str(written.lines().next().unwrap()).unwrap();
        assert_eq!(line["fields"]["message"], FORGED, "a program reads what was said");
    }
}
