//! Client-level updates (`update = "client-level"`): the site is what is protected.
//!
//! A site fits all its records to its cavity and sends the clipped, noised change; its term is one unit of the sum over sites.
//!
//! **Sensitivity**: C or 2C, the site being the unit. **Defaults**: the factor is kept without noise at the site; the last steps are short, so that the
//! random walk of the noise is.
//!
//! **When**: it is taking part that shall be hidden, with many sites: M ≥ 3 z √dim, below which a run is warned.
//!
//! **Source**: Heikkilä et al. 2022 (client-level protection); McMahan et al. 2018.

use super::shards::{self, Combined, DefaultState, Factors, Protects, ShardCount, ShardTraits};
use crate::methods::{MethodEntry, ShardMethod, UpdateKind};
use dp_pvi_math::damping::Damping;
use dp_pvi_models::spec::ScheduleSpec;

pub(crate) const TRAITS: ShardTraits = ShardTraits {
    name: ENTRY.name,
    words: "client-level updates",
    released: "the clipped change of the natural parameters of the whole site, with noise",
    shards: ShardCount::One,
    combined: Combined::Sum,
    factors: Factors::Site,
    protects: Protects::Site,
    state: DefaultState::PrivateClean,
};

/// The registry's line.
pub(crate) const ENTRY: MethodEntry = MethodEntry {
    kind: UpdateKind::ClientLevel,
    name: "client-level",
    help: "a noised change of a site's whole fit, where the site is what is protected",
    resolve: |resolving| shards::resolve(resolving, ShardMethod::ClientLevel),
    damping: |pace| match pace.schedule {
        // A random walk of the noise is short where the last steps are.
        ScheduleSpec::Synchronous { .. } => Damping::CLIENT_LEVEL,
        ScheduleSpec::Sequential { .. } | ScheduleSpec::Asynchronous { .. } => pace.damping(Damping::SEQUENTIAL),
    },
};
