//! The report as a person gets it: its words, and its looks in a browser.
#![allow(clippy::unwrap_used, clippy::print_stdout)]

mod chromium;
mod looks;
mod sample;
mod words;
