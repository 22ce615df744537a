//! Virtual clients (`update = "virtual-clients"`): every shard is a client of its own, with a factor of its own.
//!
//! Each of K shards fits its records to λ minus its own factor; what is sent is the noised sum of the clipped changes.
//!
//! **Sensitivity**: 2C under both relations. **Defaults**: factors are kept without noise at the site; damping follows the number of shards.
//! With `state = "tied"` and one record a shard it does best, with ρ about 0.2: private factors add the noise of all rounds up.
//!
//! **When**: aggregated trust with many records a site, where natural gradients do not apply.
//!
//! **Source**: Heikkilä et al. 2022, with the state mended.

use super::shards::{self, Combined, DefaultState, Factors, Protects, ShardCount, ShardTraits};
use crate::methods::{MethodEntry, ShardMethod, UpdateKind};
use dp_pvi_math::damping::Damping;

pub(crate) const TRAITS: ShardTraits = ShardTraits {
    name: ENTRY.name,
    words: "virtual clients",
    released: "the noised sum of clipped changes of the natural parameters over shards of the records",
    shards: ShardCount::Many,
    combined: Combined::Sum,
    factors: Factors::Shard,
    protects: Protects::Units,
    state: DefaultState::PrivateClean,
};

/// The registry's line.
pub(crate) const ENTRY: MethodEntry = MethodEntry {
    kind: UpdateKind::VirtualClients,
    name: "virtual-clients",
    help: "a noised sum of the changes of a site's shards, each with a factor of its own",
    resolve: |resolving| shards::resolve(resolving, ShardMethod::VirtualClients),
    damping: |pace| Damping::shards(pace.max_nonzeros),
};
