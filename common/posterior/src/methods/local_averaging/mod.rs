//! Local averaging (`update = "local-averaging"`): K shards stand for the whole site each, and their changes are averaged.
//!
//! Every shard fits its records, each counted K times, to the site's one cavity; what is sent is the noised mean of the clipped changes.
//!
//! **Sensitivity**: 2C/K on the mean. **Defaults**: C is K times half the public bound on a row, as shards stand for the whole site. Factors are
//! released or tied, never private: all shards start from the site's one factor, so that from the second visit on one record would move all terms.
//!
//! **When**: models that are nearly conjugate, with about 20 records a shard. It is biased otherwise, since a shard's fit is not the site's.
//!
//! **Source**: Heikkilä et al. 2022, with the state mended.

use super::shards::{self, Combined, DefaultState, Factors, Protects, ShardCount, ShardTraits};
use crate::methods::{MethodEntry, ShardMethod, UpdateKind};
use dp_pvi_math::damping::Damping;

pub(crate) const TRAITS: ShardTraits = ShardTraits {
    name: ENTRY.name,
    words: "local averaging",
    released: "the noised average of clipped changes of the natural parameters over shards of the records",
    shards: ShardCount::Many,
    combined: Combined::Average,
    factors: Factors::Site,
    protects: Protects::Units,
    state: DefaultState::Public,
};

/// The registry's line.
pub(crate) const ENTRY: MethodEntry = MethodEntry {
    kind: UpdateKind::LocalAveraging,
    name: "local-averaging",
    help: "a noised average of the changes of a site's shards",
    resolve: |resolving| shards::resolve(resolving, ShardMethod::LocalAveraging),
    damping: |pace| pace.damping(Damping::SEQUENTIAL),
};
