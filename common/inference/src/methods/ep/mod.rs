//! Expectation propagation on records with private factors: the engine of [propagation](super::propagation) at the cavities λ − f_n.
//!
//! # Privacy
//! A record's term is a function of the record, of the public state and of its own factor, which holds no noise and stays behind the gate.
