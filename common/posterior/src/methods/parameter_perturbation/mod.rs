//! Parameter perturbation (`update = "parameter-perturbation"`): the whole site is one shard.
//!
//! A site fits all its records to its cavity and sends the clipped, noised change: one shard, one term, one factor.
//!
//! **Sensitivity**: 2C under both relations, however many records the site has. **Defaults**: the factor is the sum of what the site sent (local
//! trust) or tied (aggregation); C is half the public bound on a row.
//!
//! **When**: many small sites, or to compare with. The norm of a site's change grows as the square root of its records, and the noise with it.
//!
//! **Source**: Heikkilä et al. 2022

use super::shards::{self, Combined, DefaultState, Factors, Protects, ShardCount, ShardTraits};
use crate::methods::{MethodEntry, ShardMethod, UpdateKind};
use dp_pvi_math::damping::Damping;

pub(crate) const TRAITS: ShardTraits = ShardTraits {
    name: ENTRY.name,
    words: "parameter perturbation",
    released: "the clipped change of the natural parameters, fitted to all records of the site, with noise",
    shards: ShardCount::One,
    combined: Combined::Sum,
    factors: Factors::Site,
    protects: Protects::Units,
    state: DefaultState::Public,
};

/// The registry's line.
pub(crate) const ENTRY: MethodEntry = MethodEntry {
    kind: UpdateKind::ParameterPerturbation,
    name: "parameter-perturbation",
    help: "a noised change of a site's whole fit",
    resolve: |resolving| shards::resolve(resolving, ShardMethod::ParameterPerturbation),
    damping: |pace| pace.damping(Damping::SEQUENTIAL),
};
