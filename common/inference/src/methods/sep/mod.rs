//! Stochastic expectation propagation on records: the engine of [propagation](super::propagation) at the one cavity λ − f that the state gives.
//!
//! # Privacy
//! A record's term is a function of the record and of the public state. A site keeps nothing.
