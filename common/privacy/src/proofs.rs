//! The arguments that the claims of this project rest on, each with the tests that check its premises.
//!
//! | claim | proof |
//! |---|---|
//! | everything that is let out keeps to the budget: the argument as a whole, and what it assumes | [`argument`] |
//! | discrete Gaussian noise on a fine lattice costs what continuous noise costs, with a margin | [`discrete_gaussian`](dp_pvi_accounting::proofs::discrete_gaussian) |
//! | a sampled term that is replaced: the worst pair, and the error of its quadrature | [`poisson_replace`](dp_pvi_accounting::proofs::poisson_replace) |
//! | the intervals that a plan states hold its ε: sums over a product of transforms, and all that is left out of them | [`transforms`](dp_pvi_accounting::proofs::transforms) |
//! | a visit with state that was carried over from earlier visits costs what its event says; one proof for every update | [`carried_state`] |
//! | a ledger keeps to its budget although its tasks are chosen in the light of earlier results | [`filter`](dp_pvi_accounting::proofs::filter) |
//! | shares of noise, what is left of them when everyone else works together, and what masks hide | [`shares`] |
//! | sums that a model forms by itself | [`batched_sums`] |
//! | how many terms of a sum one unit moves, and by how much | [`layouts`] |
//! | terms with coordinates that are never negative move a sum by √2 of their bound where they are replaced | [`cells`](dp_pvi_accounting::proofs::cells) |
//! | each person's rows of a database are made of that person's records and public tables alone | [`database_rows`] |
//! | what tells a learned scale is part of the same release, and hardly lengthens it | [`scale_statistic`] |

/// The argument as a whole.
pub mod argument {
    #![doc = include_str!("../proofs/argument.md")]
}

/// Visits with carried state.
pub mod carried_state {
    #![doc = include_str!("../proofs/carried_state.md")]
}

/// Aggregated trust.
pub mod shares {
    #![doc = include_str!("../proofs/shares.md")]
}

/// The path `sum`.
pub mod batched_sums {
    #![doc = include_str!("../proofs/batched_sums.md")]
}

/// Neighbours, slots and layouts.
pub mod layouts {
    #![doc = include_str!("../proofs/layouts.md")]
}

/// Rows made of a database.
pub mod database_rows {
    #![doc = include_str!("../proofs/database_rows.md")]
}

/// A learned scale of observations.
pub mod scale_statistic {
    #![doc = include_str!("../proofs/scale_statistic.md")]
}
