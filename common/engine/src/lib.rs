//! Sums the terms of a site's records on a cluster of its own, for a data set that is larger than a machine: Apache DataFusion reads the site's snapshot, and Apache Ballista shares it out over
//! executors.
//!
//! The site's client (`dp-pvi-client`, the *head*) keeps ledger, permit and noise. For each visit it asks one question, which the executors answer with sums that only the head can open
//! ([`dp_pvi_privacy::partial_sums`]). This program is what carries the question to the executors, computes there, and brings the answers back:
//!
//! * [`term_sum`] is the aggregate function: its input is the snapshot's encrypted blocks, its state a list of sealed answers. So what DataFusion plans, spills, shuffles, logs and counts are ciphertexts and
//!   the number of blocks.
//! * [`visit`] asks for one sum: the program that the head starts.
//! * `guard` is what an executor refuses to compute, all but sums over a snapshot; `asked` is what it refuses to compute again, and `flight` what it refuses to hand out.
//! * [`cluster`] is Ballista's scheduler and its executors, which talk to each other and to the head with mutual TLS, and have no web page.

mod answered;
pub mod cluster;
pub mod config;
mod flight;
mod guard;
pub mod keys;
pub mod term_sum;
pub mod tls;
pub mod visit;
