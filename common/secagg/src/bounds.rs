//! Bounds on the integers that a peer says in a charter or a header.
//!
//! A site compares a charter with its task, but the summer has no task: without these bounds a server could have it reserve as much memory as
//! 32 bits of dimension name. The text of a charter is compared where it is decoded ([`SignedCharter::text`](crate::charter::SignedCharter::text)),
//! so nothing is computed from a number above its bound. Everything else that is signed here (offers, headers, closings, entries) is compared with the
//! charter, field by field.
//!
//! | what | bound | why this one |
//! |---|---|---|
//! | members | 10⁴ | sites of a run |
//! | honest, colluders, fewest contributors | the members | |
//! | sums, and rounds of all sums together | 10⁵ | visits of a task |
//! | coordinates | 2²⁶ | the summer's one vector of them is 512 MiB |
//! | units of a site | 1 to 2³² | the lattice holds sums of 2³² terms |
//! | rounding loss | above 0, at most 1 | a task allows no other |
//! | number of the run | 10⁹ | |
//! | exponent, scale | what the gate computes from clip and noise | |
//! | deadline of a header | 2⁵³ | a time in seconds that every language reads exactly |
//! | uploads of a closing | the members | each costs a signature |

/// Sites of a charter.
pub const MEMBERS: u32 = 10_000;
/// Rounds of a charter, and sums.
pub const ROUNDS: u32 = 100_000;
/// Coordinates of a sum.
pub const DIMENSION: u32 = 1 << 26;
/// Number of a run.
pub const RUNS: u32 = 1_000_000_000;
/// Seconds since 1970 at which a round closes.
pub const DEADLINE: u64 = 1 << 53;
