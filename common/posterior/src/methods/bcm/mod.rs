//! The Bayesian committee machine (`update = "bcm"`): every site fits alone, once, by DP optimisation, and the fits are multiplied.
//!
//! With the same prior at every site λ = Σ λ^(m) − (M − 1) λ0; with a split prior every site has λ0/M and λ = Σ λ^(m). Either way
//! λ = λ0 + Σ (λ^(m) − its prior): one synchronous undamped round.
//!
//! **Assumes** what DP optimisation does. **Sensitivity**: that of DP optimisation, as priors are public. **Defaults**: those of DP optimisation;
//! `committee_prior` has none, because the two committees differ much. Fits keep at least the precision of their prior, so that no member takes
//! precision away.
//!
//! **When**: one round is all that sites can take part in. It is a baseline: every site's fit knows its own records only.
//!
//! **Source**: Tresp 2000; Heikkilä et al. 2022 (as baseline).

mod task;

use task::resolve;
pub use task::{BcmSpec, CommitteePrior};

use crate::methods::{MethodEntry, UpdateKind};
use dp_pvi_math::damping::Damping;

/// The registry's line.
pub(crate) const ENTRY: MethodEntry = MethodEntry {
    kind: UpdateKind::Bcm,
    name: "bcm",
    help: "one private fit of every site, multiplied: one round",
    resolve,
    damping: |_| Damping::Constant(1.0),
};
