//! The report as a person gets it: its words, and its looks in a browser.
#![allow(clippy::unwrap_used, clippy::print_stdout)]

mod appearance;
mod chromium;
mod sample;
mod words;
