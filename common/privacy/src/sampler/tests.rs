//! Samplers against exact probabilities, with fixed seeds and stated errors.
