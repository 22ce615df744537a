//! Stochastic expectation propagation (`update = "sep"`): one factor f stands for every record, λ = λ0 + N f.
//!
//! f = (λ − λ0)/N follows from the public state, so a site keeps nothing. With `unit = "site"` f = (λ − λ0)/M, which is wrong where sites
//! differ.
//!
//! **Sensitivity**: 1 (add-remove) or 2 (replace-one) in scaled coordinates, Poisson-sampled where the task says so. **Defaults**: those of the
//! engine, [`propagation`]. **When**: probit and logistic regression, mixtures and regression networks with moment
//! matching, where a site shall keep no state.
//!
//! **Source**: Li et al. 2015; Vinaroz and Park 2022 (with protection); Hernández-Lobato and Adams 2015 (networks).

use super::{FactorOwner, Resolving, UpdateSpec, propagation};
use crate::methods::{MethodEntry, UpdateKind};
use dp_pvi_math::damping::Damping;
use dp_pvi_models::spec::TaskError;

/// The registry's line.
pub(crate) const ENTRY: MethodEntry = MethodEntry {
    kind: UpdateKind::Sep,
    name: "sep",
    help: "expectation propagation with one factor for every record",
    resolve,
    damping: |_| Damping::Constant(0.5),
};

fn resolve(resolving: &Resolving<'_>) -> Result<UpdateSpec, TaskError> {
    propagation::resolve(resolving, FactorOwner::Shared)
}
