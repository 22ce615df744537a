//! The progress bar of a run, and everything else that is written to the same terminal.
//!
//! A bar redraws its line. Whatever is written meanwhile would leave half of it behind, so every other writer of this program takes
//! the bar away for a moment ([`aside`]).

use std::io::{self, Write};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

/// The bar that is on the terminal now: a process has one terminal.
static SHOWN: Mutex<Option<ProgressBar>> = Mutex::new(None);

/// A bar on stderr, for as long as this lives.
pub(crate) struct Progress {
    bar: ProgressBar,
}

impl Progress {
    /// Shows a bar over so many rounds.
    pub(crate) fn over(rounds: u64) -> Self {
        let bar = ProgressBar::with_draw_target(Some(rounds), ProgressDrawTarget::stderr_with_hz(4));
        if let Ok(style) = ProgressStyle::with_template("{elapsed_precise} [{bar:30}] round {pos}/{len} {msg}") {
            bar.set_style(style.progress_chars("=> "));
        }
        bar.enable_steady_tick(Duration::from_millis(250));
        *shown() = Some(bar.clone());
        Self { bar }
    }

    /// What goes on now.
    pub(crate) fn say(&self, message: String) {
        self.bar.set_message(message);
    }

    /// Rounds that are over. How many there will be is known to the server only, where a visit is a site's turn: the bar grows.
    pub(crate) fn reach(&self, rounds: u64) {
        self.bar.set_length(self.bar.length().unwrap_or(0).max(rounds));
        self.bar.set_position(rounds);
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        *shown() = None;
        self.bar.finish_and_clear();
    }
}

fn shown() -> std::sync::MutexGuard<'static, Option<ProgressBar>> {
    // Only ever set to a whole value.
    SHOWN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Writes something while no bar is in the way.
pub(crate) fn aside<T>(write: impl FnOnce() -> T) -> T {
    let bar = shown().clone();
    match bar {
        Some(bar) => bar.suspend(write),
        None => write(),
    }
}

/// Standard error beside a bar.
pub(crate) struct Stderr;

impl Write for Stderr {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        aside(|| io::stderr().lock().write_all(bytes)).map(|()| bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        io::stderr().flush()
    }
}
