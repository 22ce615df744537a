//! The log of every program. Whatever a peer wrote in a name, a reason or a status text reaches it with hidden characters as their codes.

use std::borrow::Cow;
use std::io::{self, Write};

use tracing::Subscriber;
use tracing_subscriber::EnvFilter;
use tracing_subscriber::field::MakeExt;
use tracing_subscriber::fmt::format::debug_fn;
use tracing_subscriber::fmt::{FormatFields, MakeWriter};
use tracing_subscriber::util::SubscriberInitExt;

use dp_pvi_protocol::text::{Visible, visible_json};

/// Form of the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Form {
    /// For people.
    Text,
    /// One object a line.
    Json,
}

/// Whether lines for people are coloured.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Colour {
    /// Yes, where the variable `NO_COLOR` does not say otherwise.
    OnTerminal,
    /// No.
    Never,
}

/// Starts the log of this process. Where there is one already (a test that calls the library), that one stays.
pub fn start<W>(form: Form, filter: EnvFilter, colour: Colour, writer: W)
where
    W: for<'w> MakeWriter<'w> + Send + Sync + 'static,
{
    let wanted = std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty());
    let colour = if wanted { colour } else { Colour::Never };
    let _ = to(form, filter, colour, writer).try_init();
}

/// The log, to any writer.
pub fn to<W>(form: Form, filter: EnvFilter, colour: Colour, writer: W) -> Box<dyn Subscriber + Send + Sync>
where
    W: for<'w> MakeWriter<'w> + Send + Sync + 'static,
{
    // A line that cannot be written is lost; to tell so on the same standard error would end the program.
    let builder = tracing_subscriber::fmt().log_internal_errors(false).with_env_filter(filter).with_ansi(colour == Colour::OnTerminal);
    match form {
        Form::Text => Box::new(builder.with_writer(writer).with_target(false).fmt_fields(fields()).finish()),
        Form::Json => Box::new(builder.json().with_writer(VisibleLines(writer)).finish()),
    }
}

/// Tells the error that ends a program, and its exit code. An error that quotes a file has several lines. For people the first one is a line of the log,
/// and the others follow it, set in so that none looks like a line of the log; for programs all of them are in one object.
pub fn ended(form: Form, code: u8, message: &str, mut stderr: impl Write) {
    let message = message.trim_end();
    match (form, message.split_once('\n')) {
        (Form::Text, Some((first, more))) => {
            tracing::error!(code, "{first}");
            if tracing::enabled!(tracing::Level::ERROR) {
                // Nothing can be done where standard error is closed.
                let _ = more.lines().try_for_each(|line| writeln!(stderr, "    {}", Visible(line)));
            }
        }
        _ => tracing::error!(code, "{message}"),
    }
}

/// Most characters of a line of an error. A file that is quoted may have one long line.
const LONGEST: usize = 2000;

/// An error's lines, each cut after so many characters as a person reads.
#[must_use]
pub fn shortened(message: &str) -> Cow<'_, str> {
    // No line is longer than its bytes.
    if message.lines().all(|line| line.len() <= LONGEST) {
        return message.into();
    }
    let cut = |line: &str| match line.char_indices().nth(LONGEST) {
        None => line.to_owned(),
        Some((end, _)) => format!("{}… (and {} characters more)", &line[..end], line[end..].chars().count()),
    };
    message.lines().map(cut).collect::<Vec<_>>().join("\n").into()
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

/// Makes writers of lines of JSON without hidden characters.
struct VisibleLines<M>(M);

impl<'w, M: MakeWriter<'w>> MakeWriter<'w> for VisibleLines<M> {
    type Writer = VisibleJson<M::Writer>;

    fn make_writer(&'w self) -> Self::Writer {
        VisibleJson(self.0.make_writer())
    }
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

    use super::*;
    use dp_pvi_protocol::text::is_hidden;

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

    #[test]
    fn the_lines_of_a_quoted_file_stay_lines_and_are_none_of_the_log() {
        let error = "client.toml: TOML parse error at line 3, column 1\n  |\n3 | nmae\u{1b}[2K\n  | ^\nunknown field\n";
        let filter = || EnvFilter::new("info");
        let page = Page::default();
        let tell = |form| {
            tracing::subscriber::with_default(to(form, filter(), Colour::Never, page.clone()), || ended(form, 2, error, page.clone()))
        };
        tell(Form::Text);
        let written = String::from_utf8(std::mem::take(&mut *page.0.lock().unwrap())).unwrap();
        let lines: Vec<&str> = written.lines().collect();
        assert!(lines[0].contains("ERROR") && lines[0].contains("client.toml: TOML parse error at line 3, column 1 code=2"), "{written}");
        assert_eq!(lines[1..], ["      |", "    3 | nmae\\u{1b}[2K", "      | ^", "    unknown field"]);

        tell(Form::Json);
        let written = String::from_utf8(page.0.lock().unwrap().clone()).unwrap();
        assert_eq!(written.lines().count(), 1, "{written}");
        assert!(written.contains("column 1\\n  |\\n3 | nmae\\u001b"), "{written}");
    }

    fn say() {
        tracing::warn!(reason = FORGED, words = %FORGED, "{FORGED}");
        tracing::error!(error = %io::Error::other(FORGED), "it failed");
    }

    #[test]
    fn the_words_of_a_peer_forge_no_line_of_the_log() {
        let page = Page::default();
        let filter = || EnvFilter::new("info");
        tracing::subscriber::with_default(to(Form::Text, filter(), Colour::Never, page.clone()), say);
        let written = String::from_utf8(std::mem::take(&mut *page.0.lock().unwrap())).unwrap();
        assert_eq!(written.lines().count(), 2, "{written}");
        assert!(!written.contains(|c| is_hidden(c) && c != '\n'), "{written:?}");
        assert!(written.contains("fine\\u{1b}[2K\\r\\n2026-01-01 INFO"), "{written}");

        tracing::subscriber::with_default(to(Form::Json, filter(), Colour::OnTerminal, page.clone()), say);
        let written = String::from_utf8(page.0.lock().unwrap().clone()).unwrap();
        assert_eq!(written.lines().count(), 2, "{written}");
        assert!(!written.contains(|c| is_hidden(c) && c != '\n'), "{written:?}");
        assert!(written.contains("fine\\u001b[2K\\r\\n2026-01-01 INFO"), "a program reads what was said: {written}");
    }
}
