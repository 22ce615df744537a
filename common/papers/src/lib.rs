//! What the papers measured and what the guide's pages of results say, each made by a command of the program `dp-pvi-papers`.
//!
//! * [`reproduce`]: figures and tables of the papers.
//! * The other modules are experiments: each writes a page, or a part of a page, of the guide's results.
#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    clippy::disallowed_methods,
    reason = "experiments: they are run by hand, print what they measure, and end where something is missing"
)]

pub mod agreement;
pub mod calibration;
pub mod choose_defaults;
pub mod curves;
pub mod forecast_drawn;
pub mod forecast_real;
pub mod larger;
pub mod liar;
pub mod personal;
pub mod real;
pub mod reproduce;
pub mod rounds;
pub mod site_effects;
pub mod survival;
mod synthetic;
