//! The machine-readable statement of what a plan costs.

use serde::{Deserialize, Serialize};

use super::PrivacyLoss;
use super::plan::Plan;
use super::pld::Interval;
use super::steps::{Mechanism, Neighbours, Phase, Sampling};
use crate::adjacency::Relation;
use crate::event::DpEvent;
use crate::unit::Delta;

/// How the bounds of a statement came about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Engine {
    /// Exact Gaussian differential privacy.
    ClosedForm,
    /// Privacy loss distributions between certified bounds.
    LossDistribution,
    /// Rényi divergences, because a step is known by its ρ only.
    Renyi,
}

/// A statement that a program can read and check: everything that is needed to compute it again.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Statement {
    /// Format of this statement.
    pub version: u32,
    /// Always `plan`: fixed parameters. A ledger's statements are those of a filter.
    pub kind: String,
    /// What neighbouring data sets differ by.
    pub relation: Neighbours,
    /// The clipping norm to which every noise multiplier refers (1: multiples of it).
    pub clip_norm: f64,
    /// What ran, in canonical order.
    pub phases: Vec<Phase>,
    /// δ.
    pub delta: f64,
    /// ε(δ).
    pub epsilon: Interval,
    /// How.
    pub engine: Engine,
    /// The pairs that were composed.
    pub pairs: Vec<String>,
}

/// An event and how often it ran.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Counted {
    /// What ran.
    pub event: DpEvent,
    /// How often.
    pub count: u64,
}

/// What a ledger's filter says: a bound that holds although later parameters were chosen after earlier outputs.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct FilterStatement {
    /// Format of this statement.
    pub version: u32,
    /// Always `filter`: a fixed budget, adaptive parameters. A plan's statements are of fixed parameters.
    pub kind: String,
    /// What neighbouring data sets differ by.
    pub relation: Relation,
    /// What ran, in the order of canonical bytes.
    pub events: Vec<Counted>,
    /// ε at δ, and by which engine.
    pub loss: PrivacyLoss,
}

impl FilterStatement {
    pub(super) fn new(relation: Relation, events: Vec<Counted>, loss: PrivacyLoss) -> Self {
        Self { version: 1, kind: "filter".to_owned(), relation, events, loss }
    }
}

impl Plan {
    /// States ε(δ).
    #[must_use]
    pub fn statement(&self, delta: Delta) -> Statement {
        let plain = |p: &Phase| matches!((p.mechanism, p.sampling), (Mechanism::Gaussian { .. }, Sampling::None));
        let engine = if self.phases().iter().all(plain) {
            Engine::ClosedForm
        } else if self.phases().iter().any(|p| matches!(p.mechanism, Mechanism::Zcdp { .. })) {
            Engine::Renyi
        } else {
            Engine::LossDistribution
        };
        let mut pairs: Vec<String> = self.phases().iter().map(|p| self.pair(p).to_owned()).collect();
        pairs.dedup();
        Statement {
            version: 1,
            kind: "plan".to_owned(),
            relation: self.relation(),
            clip_norm: 1.0,
            phases: self.phases().to_vec(),
            delta: delta.get(),
            epsilon: self.epsilon(delta),
            engine,
            pairs,
        }
    }

    fn pair(&self, phase: &Phase) -> &'static str {
        match (phase.mechanism, phase.sampling, self.relation()) {
            (Mechanism::Gaussian { .. }, Sampling::Poisson(_), Neighbours::ReplaceOne) => "Poisson replace pair",
            (Mechanism::Gaussian { .. }, Sampling::Poisson(_), _) => "Poisson add and remove, each composed on its own",
            (Mechanism::Gaussian { .. }, Sampling::WithoutReplacement(_), Neighbours::ReplaceOne) => "dominating symmetrised pair",
            (Mechanism::Gaussian { .. }, Sampling::WithoutReplacement(_), _) => "Poisson add and remove with twice the shift",
            (Mechanism::Gaussian { .. }, Sampling::RandomAllocation(_), Neighbours::ReplaceOne) => {
                "random allocation of opposite terms, bounded from above"
            }
            (Mechanism::Gaussian { .. }, Sampling::RandomAllocation(_), _) => "random allocation add and remove, each composed on its own",
            (Mechanism::Gaussian { .. }, ..) => "shifted Gaussians",
            (Mechanism::DiscreteGaussian { .. }, ..) => "shifted discrete Gaussians",
            (Mechanism::Laplace { .. }, ..) => "shifted Laplace",
            (Mechanism::Zcdp { .. }, ..) => "zCDP bound",
            (Mechanism::Approximate { .. }, ..) => "worst (epsilon, delta) mechanism",
        }
    }
}
