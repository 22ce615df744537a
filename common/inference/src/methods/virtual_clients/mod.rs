//! Virtual clients on records: the engine over [shards](super::shards), each shard with a cavity that leaves out its own factor.
//!
//! # Privacy
//! A record lies in one shard, whose term and whose private factor are functions of its own records and of public values: one term changes, by
//! at most 2C, at every visit.
