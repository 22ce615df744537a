//! The arguments that the bounds of this crate rest on, each with the tests that check its premises.

/// Discrete Gaussian noise accounted as continuous.
pub mod discrete_gaussian {
    #![doc = include_str!("../proofs/discrete_gaussian.md")]
}

/// Sensitivity of sums of terms that are not negative.
pub mod cells {
    #![doc = include_str!("../proofs/cells.md")]
}

/// Black boxes in closed form.
pub mod black_boxes {
    #![doc = include_str!("../proofs/black_boxes.md")]
}

/// Poisson sampling where a term is replaced.
pub mod poisson_replace {
    #![doc = include_str!("../proofs/poisson_replace.md")]
}

/// Batches of fixed size where a term is replaced.
pub mod fixed_batches {
    #![doc = include_str!("../proofs/fixed_batches.md")]
}

/// Random allocation of units to the batches of an epoch.
pub mod random_allocation {
    #![doc = include_str!("../proofs/random_allocation.md")]
}

/// The ledger's filter.
pub mod filter {
    #![doc = include_str!("../proofs/filter.md")]
}

/// Runs with a fixed plan in a filter.
pub mod envelopes {
    #![doc = include_str!("../proofs/envelopes.md")]
}

/// Bounds on ε from products of transforms.
pub mod transforms {
    #![doc = include_str!("../proofs/transforms.md")]
}

/// What a certificate proves, and how it is checked.
pub mod verifier {
    #![doc = include_str!("../proofs/verifier.md")]
}
