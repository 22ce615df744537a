//! Claims of a row, bounds on them, and when a row is flagged.
//!
//! # Errors of the figures
//! *Printed* bounds hold all together with probability 95 %: the error is shared by all figures of the table. A *flag* says that a claim is false, and must
//! not cry wolf over years of runs: all flags that may be raised in [`MOST_RUNS`](super::MOST_RUNS) runs of [`MOST_ROWS`](super::MOST_ROWS) rows are wrong with
//! probability [`FALSE_FLAGS`](super::FALSE_FLAGS) together.
//!
//! # Comparisons
//! A row is looked at in two ways, each with an error of its own. Where its law is known, all runs are counted with the likelihood ratio at threshold 0, which no
//! data has chosen; without sampling its errors in both neighbours together bound μ, and that is the one figure that is printed. And on one half of the runs a score (the likelihood ratio, or Fisher's direction) and a threshold are chosen, which the other
//! half is counted with: that finds what the law does not expect, as a coordinate without noise.

use dp_pvi_accounting::{Delta, DiscreteGaussian, DpEvent, Epsilon, Relation, Terms};
use dp_pvi_accounting::{Gdp, Neighbours, Phase, Plan, Sampling, epsilon_upper};
use dp_pvi_names::Payload;
use dp_pvi_posterior::task::{Clip, DocumentsSpec, ImagesSpec, NaturalGradientVisit, StatisticsSpec, UpdateSpec};
use dp_pvi_privacy::audit::{ErrorRate, Rates, Scores, Test, direction, project};
use serde::Serialize;

use super::law::Law;
use super::play::Visit;
use super::registry::Case;
use super::{AuditError, FALSE_FLAGS, MOST_ROWS, MOST_RUNS, Run};

/// What the accountant says of the events that a run's permits were for.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Claim {
    /// ε at `delta`; absent: no protection is claimed.
    pub epsilon: Option<f64>,
    /// δ.
    pub delta: f64,
    /// μ, where all releases are unsampled Gaussians.
    pub mu: Option<f64>,
    /// Points of the privacy profile: (ε, δ(ε)).
    #[serde(skip)]
    pub(super) profile: Vec<(f64, f64)>,
}

/// What the runs show.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Bounds {
    /// No smaller ε at the claim's δ.
    pub epsilon: f64,
    /// No smaller μ.
    pub mu: f64,
    /// μ of these two neighbours, computed from what they sum without noise; where the law is known and nothing is sampled.
    pub law: Option<f64>,
    /// No pair of neighbours has a larger μ than this; where that is known to be below the claim.
    pub reachable: Option<f64>,
    /// The share of the declared sensitivity by which the neighbours' integer sums differ; where the law is known.
    pub sensitivity: Option<f64>,
}

/// Steps of a threshold's search.
const QUANTILES: usize = 40;

impl Claim {
    /// The price of these events under this relation.
    pub(super) fn of(events: &[DpEvent], relation: Relation, delta: Delta) -> Result<Self, AuditError> {
        let loss = epsilon_upper(events, relation, delta)?;
        let epsilon = Some(loss.epsilon.get()).filter(|epsilon| epsilon.is_finite());
        let mu = mu(events, relation);
        let Some(end) = epsilon else { return Ok(Self { epsilon, delta: delta.get(), mu, profile: Vec::new() }) };
        let grid = (0..24).map(|i| end * (f64::from(i) / 23.0).powi(2));
        let plan = if mu.is_none() { plan(events, relation) } else { None };
        let at = |epsilon: f64| -> Option<(f64, f64)> {
            let checked = Epsilon::new(epsilon).ok()?;
            let delta = match (mu, &plan) {
                // The discrete noise is at most this far from the continuous one.
                (Some(mu), _) => Gdp::of_ratio(mu).delta(checked) * (1.0 + 1e-6) + 1e-9,
                (None, Some(plan)) => plan.delta(checked).upper * (1.0 + 1e-6),
                (None, None) => return None,
            };
            Some((epsilon, delta))
        };
        let mut profile: Vec<(f64, f64)> = grid.filter_map(at).collect();
        if profile.is_empty() {
            for delta in [1e-5, 1e-3, 0.01, 0.03, 0.1, 0.2, 0.3, 0.5, 0.7, 0.9] {
                if let Ok(delta) = Delta::new(delta) {
                    profile.push((epsilon_upper(events, relation, delta)?.epsilon.get(), delta.get()));
                }
            }
        }
        Ok(Self { epsilon, delta: delta.get(), mu, profile })
    }
}

/// μ of unsampled Gaussian releases.
fn mu(events: &[DpEvent], relation: Relation) -> Option<f64> {
    fn of(event: &DpEvent, relation: Relation) -> Option<Gdp> {
        match event {
            DpEvent::DiscreteGaussian(noise) => Some(Gdp::of_ratio(noise.sensitivity_ratio(relation))),
            DpEvent::Composed { event, count } => Some(of(event, relation)?.repeated(*count)),
            _ => None,
        }
    }
    events.iter().try_fold(Gdp::default(), |total, event| Some(total.and(of(event, relation)?))).map(Gdp::mu)
}

/// The plan that Gaussian releases, sampled or not, are: its profile is tighter than that of their Rényi divergences.
fn plan(events: &[DpEvent], relation: Relation) -> Option<Plan> {
    let neighbours = match relation {
        Relation::AddRemove => Neighbours::AddRemove,
        Relation::ReplaceOne => Neighbours::ReplaceOne,
    };
    let mut plan = Plan::new(neighbours);
    for event in events {
        let (mut inner, mut steps, mut sampling) = (event, 1, Sampling::None);
        loop {
            match inner {
                DpEvent::Composed { event, count } => (inner, steps) = (event, steps * count),
                DpEvent::PoissonSampled { rate, event } => (inner, sampling) = (event, Sampling::Poisson(rate.get())),
                DpEvent::RandomAllocation { batches, event } => (inner, sampling) = (event, Sampling::RandomAllocation(*batches)),
                DpEvent::DiscreteGaussian(noise) if noise.terms == Terms::Units => {
                    let one = DiscreteGaussian { terms: Terms::Units, ..*noise }.sensitivity_ratio(Relation::AddRemove);
                    plan.append(Phase::gaussian(1.0 / one * (1.0 - 1e-12), sampling, steps)).ok()?;
                    break;
                }
                _ => return None,
            }
        }
    }
    Some(plan)
}

/// The share of the claimed μ that no pair of neighbours exceeds, where it is below 1. Under replace-one 2C is charged for terms u and v of norm at most C, and
/// ‖u − v‖² ≤ 2C² − 2⟨u, v⟩: where an inner product is at least −κC², the share is √((1 + κ)/2).
///
/// * *Natural gradients*: the first visit sums Gram matrices, which are positive semidefinite; the trace of a product of two of them is not negative. So κ = 0 there:
///   half of this visit's share g of μ² is out of reach, and √(1 − g/2) is the supremum. The gradients of the other visits can be opposite.
/// * *DP-EM*: with ρ ≥ 0 the product of the responsibilities and t = ⟨x, y⟩, ⟨u, v⟩ = ρ(a² + b²t + c²t²). Blocks have equal shares, b⁴ = a²c² ≤ 4a²c²: κ = 0.
/// * *Topics and images*: all statistics are counts or expectations of numbers that are not negative: κ = 0. The indicator ±w/2 of a learned clip adds w²/4.
/// * *Linear regression with unknown noise*: a unit has (m, S, t) = Σ(xy, xxᵀ, y²) with S ⪰ mmᵀ/t. For opposite m the inner product is at least
///   −f₁c + f₂c²/τ + f₃τ with c = −⟨m, m′⟩, τ = tt′ and f the shares, and κ = (f₁ − 2√(f₂f₃))/(f₁ + 2√(f₂f₃)).
fn reachable_share(case: &Case) -> Option<f64> {
    if case.relation == Relation::AddRemove {
        return None;
    }
    let share = |kappa: f64| Some((0.5 * (1.0 + kappa)).sqrt());
    match &case.task.update {
        UpdateSpec::NaturalGradient(spec) => {
            let gram = spec.visit(0) == NaturalGradientVisit::Gram;
            gram.then(|| (1.0 - 0.5 * spec.share(0, case.task.visits())).sqrt())
        }
        UpdateSpec::DpEm(_) => share(0.0),
        UpdateSpec::Vips(spec) => match spec.statistics {
            StatisticsSpec::PolyaGamma(_) => None,
            StatisticsSpec::LinearNoise(numbers) => {
                let [first, second, third] = numbers.shares;
                let square = 2.0 * (second * third).sqrt();
                share(((first - square) / (first + square)).max(0.0))
            }
            StatisticsSpec::Documents(DocumentsSpec { clip, .. }) | StatisticsSpec::Images(ImagesSpec { clip, .. }) => match clip {
                Clip::Fixed {} => share(0.0),
                Clip::Learned { weight, .. } => share(0.25 * weight * weight),
            },
        },
        _ => None,
    }
}

/// What the auditor saw of a run, as numbers.
fn numbers(visits: &[Visit]) -> Vec<f64> {
    let of = |visit: &Visit| match &visit.released {
        Payload::Lattice(vector) | Payload::Masked(vector) => vector.to_f64(),
        Payload::Values(values) => values.clone(),
    };
    visits.iter().flat_map(of).collect()
}

/// The runs of a row, ready to be counted.
pub(super) struct Runs {
    claim: Claim,
    trials: u32,
    /// Scores of all runs by the likelihood ratio.
    known: Option<[Scores; 2]>,
    /// For each fitted score: those of the half that chooses, and those of the half that is counted.
    fitted: Vec<[[Scores; 2]; 2]>,
    law: Option<f64>,
    reachable: Option<f64>,
    sensitivity: Option<f64>,
}

/// A row's figures, and whether a claim is refuted.
pub(super) struct Verdict {
    pub(super) bounds: Bounds,
    /// Why it is flagged.
    pub(super) flag: Option<String>,
}

/// Figures of a row that are printed, where μ is not bounded by the known law: ε and μ of fitted tests, and ε of the likelihood ratio.
const PRINTED: usize = 3;
/// Looks at a row that may raise a flag.
const COMPARISONS: usize = 2;

impl Runs {
    pub(super) fn new(claim: Claim, law: Option<&Law>, case: &Case, neighbours: &[Vec<Run>; 2]) -> Self {
        let vectors = neighbours.each_ref().map(|runs| runs.iter().map(|run| numbers(&run.visits)).collect::<Vec<_>>());
        let halves = |values: &[f64]| {
            let (choose, count) = values.split_at(values.len() / 2);
            [Scores::new(choose.to_vec()), Scores::new(count.to_vec())]
        };
        let transposed = |first: &[f64], second: &[f64]| {
            let ([a, b], [c, d]) = (halves(first), halves(second));
            [[a, c], [b, d]]
        };
        let mut fitted = Vec::new();
        let scores = |runs: &[Run]| runs.iter().map(|run| run.score).collect::<Option<Vec<_>>>();
        let known = scores(&neighbours[0]).zip(scores(&neighbours[1])).map(|(first, second)| [first, second]);
        if let Some([first, second]) = &known {
            fitted.push(transposed(first, second));
        }
        let train = |runs: &[Vec<f64>]| runs[..runs.len() / 2].to_vec();
        if let Ok(weights) = direction(&train(&vectors[0]), &train(&vectors[1])) {
            let [first, second] = vectors.map(|runs| runs.iter().map(|run| project(run, &weights)).collect::<Vec<_>>());
            fitted.push(transposed(&first, &second));
        }
        Self {
            reachable: claim.mu.zip(reachable_share(case)).map(|(mu, share)| mu * share),
            claim,
            trials: u32::try_from(neighbours[0].len()).unwrap_or(u32::MAX),
            known: known.map(|neighbours| neighbours.map(Scores::new)),
            fitted,
            law: law.and_then(Law::mu),
            sensitivity: law.zip(neighbours[0].first()).map(|(law, run)| law.sensitivity(&run.visits, case.relation)),
        }
    }

    /// Runs of each data set.
    pub(super) fn trials(&self) -> u32 {
        self.trials
    }

    /// The claim.
    pub(super) fn claim(&self) -> &Claim {
        &self.claim
    }

    /// Rates of the best fitted test by a figure: chosen on one half, counted on the other.
    fn fitted(&self, error: ErrorRate, figure: &dyn Fn(Rates) -> f64) -> Option<Rates> {
        let mut best: Option<(f64, Rates)> = None;
        for [choose, count] in &self.fitted {
            let Some(test) = Test::best(choose, QUANTILES, error, figure) else { continue };
            let value = figure(test.rates(choose, error));
            if best.is_none_or(|(before, _)| value > before) {
                best = Some((value, test.rates(count, error)));
            }
        }
        best.map(|(_, rates)| rates)
    }

    /// Counts: `rows` rows are printed together.
    pub(super) fn judge(&self, rows: usize) -> Result<Verdict, AuditError> {
        let share = |total: f64, comparisons: usize| ErrorRate::new(total).map(|total| total.shared_by(comparisons));
        let printed = if self.law.is_some() { 1 } else { PRINTED };
        let (Some(print), Some(flag)) = (share(0.05, printed * rows), share(FALSE_FLAGS, COMPARISONS * MOST_ROWS * MOST_RUNS)) else {
            return Err(AuditError::Broken("an error rate"));
        };
        let delta = self.claim.delta;
        let known = |error| self.known.as_ref().map(|scores| Test::between(0.0).rates(scores, error));
        let mut bounds = Bounds { epsilon: 0.0, mu: 0.0, law: self.law, reachable: self.reachable, sensitivity: self.sensitivity };
        match &self.known {
            Some(scores) if self.law.is_some() => bounds.mu = Test::between(0.0).mu_of_errors(scores, print),
            _ => {
                bounds.epsilon = self.fitted(print, &|rates| rates.epsilon(delta)).map_or(0.0, |rates| rates.epsilon(delta));
                bounds.mu = self.fitted(print, &Rates::mu).map_or(0.0, Rates::mu);
                bounds.epsilon = bounds.epsilon.max(known(print).map_or(0.0, |rates| rates.epsilon(delta)));
            }
        }
        if let (Some(_), Ok(delta)) = (self.claim.mu, Delta::new(delta)) {
            bounds.epsilon = bounds.epsilon.max(Gdp::of_ratio(bounds.mu).epsilon_upper(delta).get());
        }
        // Rounding of the four numbers behind this ratio; the integers themselves are exact.
        let beyond = self.sensitivity.filter(|share| *share > 1.0 + 1e-11);
        let excess = |rates: Rates| self.claim.profile.iter().map(|(e, d)| rates.excess(*e, *d)).fold(f64::NEG_INFINITY, f64::max);
        let refuted = |rates: Option<Rates>| rates.is_some_and(|rates| excess(rates) > 0.0);
        let reason = if let Some(share) = beyond {
            Some(format!("integer sums of the neighbours differ by {share:.4} times the declared sensitivity"))
        } else if refuted(known(flag)) {
            Some("the likelihood ratio accuses the right data set more often than the claim allows".to_owned())
        } else if refuted(self.fitted(flag, &excess)) {
            Some("a fitted test accuses the right data set more often than the claim allows".to_owned())
        } else {
            None
        };
        Ok(Verdict { bounds, flag: reason })
    }
}
