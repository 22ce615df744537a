//! How often each mechanism ran: all that a price depends on.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::{
    AccountantError, Charge, Cost, Counted, Curve, FilterStatement, Gdp, MARGIN, Method, Prices, PrivacyLoss, Zcdp, count, with_margin,
};
use crate::adjacency::Relation;
use crate::event::DpEvent;
use crate::unit::{Delta, Epsilon};

/// Canonical bytes of mechanisms, and how often each ran.
type Counts = Vec<(Vec<u8>, u64)>;

/// First byte of the canonical bytes.
const VERSION: u8 = 2;

/// With more released numbers than this, 2³⁶, divergences of continuous noise do not stand for those of discrete noise
/// ([`crate::proofs::discrete_gaussian`]).
pub(super) const MOST_COORDINATES: f64 = 68_719_476_736.0;

/// A sequence of events as a multiset of mechanisms, and which of them came first.
///
/// The answers depend on how often each mechanism ran (that of a filter also on which one was the first), and on nothing else, to the last
/// bit: a plan of k releases costs exactly what k rows cost.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Composition {
    /// By canonical bytes of the mechanism: its cost and the number of repetitions.
    mechanisms: BTreeMap<Vec<u8>, (Option<Arc<Cost>>, u64)>,
    /// The first mechanism with any protection: it fixes a filter's rule.
    first: Option<Vec<u8>>,
}

impl Composition {
    /// Adds `times` repetitions of a charge. More than can be counted are a release without protection.
    pub fn add(&mut self, charge: &Charge, times: u64) {
        let counted = charge.count.checked_mul(times);
        if counted != Some(0) {
            if self.first.is_none() && charge.cost.is_some() {
                self.first = Some(charge.mechanism.clone());
            }
            let (cost, count) = self.mechanisms.entry(charge.mechanism.clone()).or_insert_with(|| (charge.cost.clone(), 0));
            match counted.and_then(|times| count.checked_add(times)) {
                Some(sum) => *count = sum,
                None => (*cost, *count) = (None, u64::MAX),
            }
        }
    }

    /// Whether a release without protection was added.
    #[must_use]
    pub fn non_private(&self) -> bool {
        self.mechanisms.values().any(|(cost, _)| cost.is_none())
    }

    /// Costs of everything with any protection, and how often each came.
    pub(super) fn costs(&self) -> impl Iterator<Item = (&Cost, u64)> {
        self.mechanisms.values().filter_map(|(cost, times)| Some((cost.as_deref()?, *times)))
    }

    /// Cost of the first mechanism with any protection.
    pub(super) fn first(&self) -> Option<&Cost> {
        self.first.as_ref().and_then(|first| self.mechanisms.get(first)?.0.as_deref())
    }

    /// μ of everything with any protection, where all of it is unsampled Gaussian noise that may be accounted as such.
    pub(super) fn gdp(&self) -> Option<Gdp> {
        self.costs().try_fold(Gdp::default(), |total, (cost, times)| Some(total.and(cost.gdp?.repeated(times))))
    }

    /// The δ of all black boxes.
    pub(super) fn failure(&self) -> f64 {
        self.costs().map(|(cost, times)| cost.failure * count(times)).sum()
    }

    /// Numbers with discrete noise that were released.
    pub(super) fn coordinates(&self) -> f64 {
        self.costs().map(|(cost, times)| count(cost.coordinates) * count(times)).sum()
    }

    /// Whether divergences of continuous noise may stand for those of the discrete noise that ran.
    pub(super) fn lattice_holds(&self, margin: bool) -> bool {
        !margin || self.coordinates() <= MOST_COORDINATES
    }

    /// Upper bound on ε(δ) of all that was added, except releases without protection, if what was added was fixed before anything of it ran.
    /// What was chosen on the way needs [`Composition::protected_filtered`].
    ///
    /// # Privacy
    /// Proofs: [`crate::proofs::discrete_gaussian`], [`crate::proofs::poisson_replace`].
    ///
    /// Every order, and μ where there is one, gives a bound of the very same composition, so the smallest may be taken.
    #[must_use]
    pub(crate) fn protected_loss(&self, delta: Delta) -> PrivacyLoss {
        let costs = || self.costs();
        let gdp = self.gdp();
        let gdp_margin = costs().any(|(cost, _)| cost.gdp_margin);
        // What the margin is there for must fit into it; else the discrete noise is accounted as such.
        let fits = |gdp: &Gdp| !gdp_margin || gdp.lattice_excess(with_margin(delta, true), self.coordinates()) <= MARGIN - 1.0;
        let zcdp = costs().try_fold(Zcdp::default(), |total, (cost, times)| Some(total.and(cost.zcdp?.repeated(times))));
        let (epsilon, method, numerical_margin) = if let Some(gdp) = gdp.filter(fits) {
            (gdp.epsilon_upper(with_margin(delta, gdp_margin)), Method::GaussianDp, gdp_margin)
        } else if let Some(zcdp) = zcdp {
            (zcdp.epsilon_upper(delta), Method::Zcdp, false)
        } else {
            let margin = costs().any(|(cost, _)| cost.curve_margin);
            let mut curve = Curve::default();
            costs().for_each(|(cost, times)| curve.add(&cost.curve, times));
            // The δ of black boxes adds up (Bun & Steinke 2016, Lemma 8.3 and section 8); the rest is for the curve.
            let failure = self.failure();
            let rest = Delta::new((delta.get() - failure * (1.0 + 1e-12)) * (1.0 - f64::EPSILON));
            let epsilon = match rest {
                Ok(rest) if self.lattice_holds(margin) => curve.epsilon_upper(with_margin(rest, margin)),
                _ => Epsilon::INFINITE,
            };
            (epsilon, Method::Rdp, margin)
        };
        PrivacyLoss { epsilon, delta, method, numerical_margin }
    }

    /// Upper bound on ε(δ) of all that was added, if it was fixed before anything of it ran. Where releases are sampled, by their loss distributions.
    ///
    /// # Privacy
    /// Proofs: [`crate::proofs::discrete_gaussian`], [`crate::proofs::poisson_replace`], [`crate::proofs::transforms`].
    #[must_use]
    pub fn loss(&self, delta: Delta) -> PrivacyLoss {
        if self.non_private() {
            return PrivacyLoss { epsilon: Epsilon::INFINITE, delta, method: Method::NonPrivate, numerical_margin: false };
        }
        self.plan_loss(delta)
    }

    /// The same, with releases without protection left out.
    pub(super) fn plan_loss(&self, delta: Delta) -> PrivacyLoss {
        let loss = self.protected_loss(delta);
        let numerical_margin = self.coordinates() > 0.0;
        match self.by_losses(delta).filter(|epsilon| *epsilon < loss.epsilon) {
            Some(epsilon) => PrivacyLoss { epsilon, delta, method: Method::LossDistribution, numerical_margin },
            None => loss,
        }
    }

    /// Canonical bytes: compositions under one relation with the same first event have equal bytes, in whatever order the others came.
    #[must_use]
    pub fn to_bytes(&self, relation: Relation) -> Vec<u8> {
        let counts: Vec<(&[u8], u64)> = self.mechanisms.iter().map(|(mechanism, (_, times))| (mechanism.as_slice(), *times)).collect();
        let mut bytes = vec![VERSION];
        // Writing to a vector cannot fail and every field is serialisable.
        bytes.extend(postcard::to_stdvec(&(relation, counts, &self.first)).expect("compositions serialise into memory"));
        bytes
    }

    /// Reads canonical bytes; what every event costs is derived again.
    ///
    /// # Errors
    /// Other bytes, or an event that no engine bounds.
    pub fn from_bytes(bytes: &[u8]) -> Result<(Relation, Self), AccountantError> {
        const WRONG: AccountantError = AccountantError::Unsupported("bytes that are not a composition of a version that is known here");
        let Some((&VERSION, rest)) = bytes.split_first() else { return Err(WRONG) };
        let ((relation, counts, first), rest): ((Relation, Counts, Option<Vec<u8>>), _) =
            postcard::take_from_bytes(rest).map_err(|_| WRONG)?;
        let mut composition = Self::default();
        let mut prices = Prices::new(relation);
        for (mechanism, times) in counts {
            let event = DpEvent::from_bytes(&mechanism).map_err(|_| WRONG)?;
            composition.add(&prices.learn(&event)?, times);
        }
        composition.first = first;
        // The first one is one of them, and protected.
        if composition.first.is_some() != composition.first().is_some()
            || composition.first.is_none() != composition.costs().next().is_none()
        {
            return Err(WRONG);
        }
        if rest.is_empty() && composition.to_bytes(relation) == bytes { Ok((relation, composition)) } else { Err(WRONG) }
    }

    /// States ε(δ) of everything, as the filter of this budget reads it.
    ///
    /// # Errors
    /// None for what [`Composition::add`] was given; the bytes of its events are read back.
    pub fn statement(&self, relation: Relation, budget: Epsilon, delta: Delta) -> Result<FilterStatement, AccountantError> {
        let events = self
            .mechanisms
            .iter()
            .map(|(mechanism, (_, count))| {
                let event = DpEvent::from_bytes(mechanism).map_err(|_| AccountantError::Unsupported("an event of another version"))?;
                Ok(Counted { event, count: *count })
            })
            .collect::<Result<_, AccountantError>>()?;
        Ok(FilterStatement::new(relation, events, self.filtered(budget, delta)))
    }
}
