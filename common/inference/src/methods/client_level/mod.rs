//! Client-level updates on records: the engine over [shards](super::shards) with the whole site as its one shard and as its unit.
//!
//! # Privacy
//! The sum over sites changes by at most C (add-remove) or 2C (replace-one) with one site.
