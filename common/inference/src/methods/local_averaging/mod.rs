//! Local averaging on records: the engine over [shards](super::shards); each shard fits its records, counted K times, to the site's one cavity.
//!
//! # Privacy
//! A record lies in one shard, and the cavity is public (factors are released or tied): one of K terms changes, by at most 2C, and the mean by 2C/K.
