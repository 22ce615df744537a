//! Which updates serve which kinds of models: what a task may name, as the tests of this crate compare it.

/// Regressions with independent coefficients.
pub const GLM: &[&str] = &[
    "pvi",
    "pvi, synchronous",
    "pvi, asynchronous",
    "dp-optimisation",
    "dp-optimisation, Adam, sampled",
    "dp-optimisation, batches",
    "dp-optimisation, positive",
    "natural-gradient",
    "natural-gradient, diagonal",
    "bcm",
    "bcm, same",
    "global-vi",
    "global-vi, sampled",
    "parameter-perturbation",
    "parameter-perturbation, clean",
    "local-averaging",
    "local-averaging, tied",
    "local-averaging, tied, whitened",
    "virtual-clients",
    "virtual-clients, tied",
    "virtual-clients, tied, blocks",
    "virtual-clients, released",
    "client-level",
    "client-level, tied",
    "natural-gradient, persons",
    "dp-optimisation, persons",
    "virtual-clients, persons",
];

/// Regressions with a full covariance.
pub(crate) const EXACT: &[&str] = &[
    "pvi",
    "pvi, synchronous",
    "pvi, asynchronous",
    "natural-gradient",
    "natural-gradient, diagonal",
    "parameter-perturbation",
    "parameter-perturbation, clean",
    "local-averaging",
    "local-averaging, tied",
    "local-averaging, tied, whitened",
    "virtual-clients",
    "virtual-clients, tied",
    "virtual-clients, tied, blocks",
    "virtual-clients, released",
    "client-level",
    "client-level, tied",
    "natural-gradient, persons",
    "virtual-clients, persons",
];

/// Regressions of two classes.
pub(crate) const BALANCED: &[&str] = &["dp-optimisation, weighted"];

/// Regressions whose noise is learned.
pub(crate) const LEARNED: &[&str] =
    &["pvi", "pvi, synchronous", "pvi, asynchronous", "natural-gradient", "natural-gradient, diagonal", "natural-gradient, persons"];

/// Neural networks.
pub(crate) const NETWORK: &[&str] = &[
    "dp-optimisation",
    "dp-optimisation, Adam, sampled",
    "dp-optimisation, batches",
    "dp-optimisation, positive",
    "dp-optimisation, adaptive clip",
    "bcm",
    "bcm, same",
    "dp-optimisation, persons",
];

/// Models with tilted moments.
pub(crate) const PROPAGATION: &[&str] =
    &["sep", "sep, sampled", "sep, open", "sep, pass", "sep, filter", "sep, sites", "ep", "ep, open", "ep, sites", "ep, persons"];
