//! Tables, quantiles, moments and life tables from one noised sum: the public half.
//!
//! A *look* at data sets adds up, over all units, one vector of cells and bounded numbers, with Gaussian noise. This crate says what the vector is made of
//! ([`encode`]), how much noise each of its blocks gets ([`blocks`], [`planner`], [`price`]), and what follows from the noised sum: tables that agree with each other ([`least_squares`],
//! [`shown`]), quantiles ([`ladder`], [`quantiles`]), means ([`moments`]), survival ([`survival`]), intervals of all of these ([`intervals`]), and sums over sites ([`sites`]).
//!
//! Everything here is a function of numbers that are public: of a task, of a schema's ranges and levels, and of released sums. No record is seen but by [`encode`], which is
//! one unit's function and is called behind the gate. No I/O, no randomness, no clock.
//!
//! Two readings of an interval are kept apart. *These records* are the finite population that was summed: noise is all that is uncertain. *Population*: the records are a
//! sample of one, and sampling is uncertain, too.

#![cfg_attr(test, allow(clippy::unwrap_used, clippy::float_cmp))]

pub mod blocks;
pub mod encode;
pub mod intervals;
pub mod ladder;
pub mod least_squares;
pub mod moments;
pub mod planner;
pub mod price;
pub mod quantiles;
pub mod shown;
pub mod sites;
pub mod survival;

pub use intervals::{Interval, Level};

/// Why there is no answer. All of it is public: a task's numbers or what was released.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum DescribeError {
    /// The task asks for something that is none.
    #[error("{0}")]
    Task(&'static str),
    /// No release says anything about a table that is asked for.
    #[error("a table has no block that says anything about it: ask for the table or for one that contains it")]
    Unobserved,
    /// More cells than the dense system takes.
    #[error("the tables have {0} free cells together, and 3000 are possible: leave out the largest pairs, or merge levels")]
    TooMany(usize),
    /// The noise leaves nothing.
    #[error("too small for this price: the number of records that remains is not above 0")]
    TooSmall,
    /// The accountant has no number for it.
    #[error("no noise reaches this epsilon at this delta: raise epsilon")]
    Price,
}

/// Whether it is a number above 0.
fn is_positive(x: f64) -> bool {
    x > 0.0 && x.is_finite()
}
