//! Parameter perturbation on records: the engine over [shards](super::shards) with the whole site as its one shard.
//!
//! # Privacy
//! The site's term is any vector of the ball of radius C, so another content of one record moves the sum by at most 2C.
