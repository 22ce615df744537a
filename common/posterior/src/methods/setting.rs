//! What a method is told of its task: the model, the family, the prior, the public facts of the schema, the order of work and the
//! guarantee; not what the update is.

use dp_pvi_math::expfam::any::Family;

use dp_pvi_math::observation::Precision;
use dp_pvi_models::response::ResponseKind;
use dp_pvi_models::spec;
use dp_pvi_models::spec::{
    AggregationSpec, Approximation, DesignSpec, GatheredNoise, Prior, PriorSpec, PrivacySpec, ScheduleSpec, TaskError, Trust,
};
use dp_pvi_models::{LearnedScale, ModelSpec, Ranges};
use dp_pvi_schema::Schema;

/// A task as models and methods see it. The fields are those of the task's document.
#[derive(Debug, Clone, Copy)]
pub struct Setting<'a> {
    /// Likelihood.
    pub model: &'a ModelSpec,
    /// Approximating family.
    pub approximation: Approximation,
    /// Prior of every coefficient.
    pub prior: PriorSpec,
    /// Mean and standard deviation of every coefficient of a row, class by class, where `prior` is in typical units; else empty.
    pub coefficients: &'a [[f64; 2]],
    /// The schema file, as text.
    pub schema: &'a str,
    /// What rows are made of, where a formula says it.
    pub design: Option<&'a DesignSpec>,
    /// Number of features: columns of the encoded rows.
    pub features: u32,
    /// Number of model parameters d.
    pub dimension: u32,
    /// Public bound R on the L2 norm of a feature row.
    pub feature_bound: f64,
    /// Largest number of non-zero entries of a feature row.
    pub max_nonzeros: u32,
    /// Order of work.
    pub schedule: ScheduleSpec,
    /// ρ of every visit.
    pub damping: &'a [f64],
    /// Guarantee.
    pub privacy: &'a PrivacySpec,
    /// Numbers of aggregated trust; absent with local trust.
    pub aggregation: Option<AggregationSpec>,
}

impl Setting<'_> {
    /// Times that one site is asked for an update.
    #[must_use]
    pub fn visits(&self) -> u32 {
        self.schedule.visits()
    }

    /// The approximating family.
    #[must_use]
    pub fn family(&self) -> Family {
        self.approximation.family(self.dimension)
    }

    /// Length of λ, without building it.
    #[must_use]
    pub(crate) fn family_len(&self) -> u64 {
        let d = u64::from(self.dimension);
        match self.approximation {
            Approximation::MeanField => 2 * d,
            Approximation::FullCovariance => d + triangle_numbers(d),
        }
    }

    /// λ0: natural parameters of the prior.
    #[must_use]
    pub fn prior_natural(&self) -> Vec<f64> {
        self.priors().natural(self.family())
    }

    /// The prior of every parameter.
    #[must_use]
    pub fn priors(&self) -> Prior {
        // Without reading the schema, which may be long, where it says nothing of priors.
        let rows = self
            .design
            .filter(|design| !design.has_one_prior())
            .and_then(|design| Prior::of_rows(self.prior, self.coefficients, &self.parsed_schema().ok()?, Some(design)).ok());
        // A task that was checked has a schema and priors of its terms.
        let rows = rows.unwrap_or_else(|| Prior::of_entries(self.prior, self.coefficients, self.features as usize));
        let mut prior = self.model.rules().parameters(self.features).prior(rows, self.prior);
        // Classes differ in the means of their intercepts.
        let first = self.coefficients.get(..self.features as usize).unwrap_or_default();
        for (mean, (own, first)) in prior.mean.iter_mut().zip(self.coefficients.iter().zip(first.iter().cycle())).skip(first.len()) {
            *mean += own[0] - first[0];
        }
        prior
    }

    /// The prior of every parameter in a state, which ends with the scales that were learned.
    #[must_use]
    pub fn priors_at(&self, state: &[f64]) -> Prior {
        let prior = self.priors();
        let learned = if prior.learns_scales() { prior.groups.len() } else { 0 };
        match state.len().checked_sub(learned) {
            Some(end) if learned > 0 && end >= self.family().len() => prior.with(&state[end..]),
            _ => prior,
        }
    }

    /// What is known beforehand of the scale of an observation's noise, where it is learned.
    #[must_use]
    pub fn learned_scale(&self) -> Option<LearnedScale> {
        self.model.rules().learned_scale()
    }

    /// Numbers of a learned scale in what a site sends beside its coefficients, and in what it keeps: 0 where the scale is known.
    #[must_use]
    pub(crate) fn scale_numbers(&self) -> usize {
        if self.learned_scale().is_some() { 2 } else { 0 }
    }

    /// The distribution of 1/σ² in a state, where it is learned: the two numbers before the scales that coefficients share.
    #[must_use]
    pub fn scale_at(&self, state: &[f64]) -> Option<Precision> {
        let prior = self.learned_scale()?.prior;
        let end = state.len().checked_sub(usize::try_from(super::scaled::learned(self)).ok()?)?;
        let start = end.checked_sub(2).filter(|start| *start >= self.family().len())?;
        Some(Precision { shape: state[start], rate: state[start + 1] }).filter(|precision| precision.is_within(&prior))
    }

    /// The model with the scale of a state where it is learned; else as it is. A state that says nothing of it has the guess.
    #[must_use]
    pub fn model_at(&self, state: &[f64]) -> ModelSpec {
        let scale = || self.scale_at(state).or_else(|| Some(self.learned_scale()?.prior)).map(|precision| precision.scale());
        scale().and_then(|scale| self.model.rules().with_scale(scale)).unwrap_or_else(|| self.model.clone())
    }

    /// For every coefficient the site whose effect it is; empty where the task has no effects of sites.
    #[must_use]
    pub fn owners(&self) -> Vec<Option<u32>> {
        let sites = self.design.is_some_and(|design| !design.sites.is_empty());
        let Some(schema) = Some(self.parsed_schema()).filter(|_| sites).and_then(Result::ok) else { return Vec::new() };
        let Some(design) = schema.design() else { return Vec::new() };
        // Every class has its own copy of the coefficients; what a model adds before and behind them belongs to no one.
        let rules = self.model.rules();
        let copies = rules.classes_with_coefficients(&schema).len().max(1);
        let mut owners = vec![None; rules.own_before_rows() as usize];
        owners.extend(design.owners().repeat(copies));
        owners.resize(self.dimension as usize, None);
        owners
    }

    /// λ: the natural parameters of the posterior, which are the head of a state.
    #[must_use]
    pub fn posterior<'a>(&self, state: &'a [f64]) -> &'a [f64] {
        &state[..self.family().len().min(state.len())]
    }

    /// What noise the sites' messages bring into their sum.
    #[must_use]
    pub(crate) fn gathered_noise(&self) -> GatheredNoise {
        match (self.privacy.trust, self.aggregation) {
            (Trust::Local, _) => GatheredNoise::OfEverySite,
            (Trust::Aggregated, Some(aggregation)) => GatheredNoise::Shares(aggregation.honest.max(1)),
            (Trust::Aggregated, None) => GatheredNoise::OfTheSum,
        }
    }

    /// What the schema says of every record.
    ///
    /// # Errors
    /// The text is not a schema (never for a task that was resolved or read).
    pub fn ranges(&self) -> Result<Ranges, TaskError> {
        Ok(Ranges::of(&self.parsed_schema()?, self.feature_bound))
    }

    /// Norm of what the bound of a record's curvature is multiplied by in the Gram matrix.
    ///
    /// # Errors
    /// As [`Self::ranges`].
    pub(crate) fn gram_length(&self) -> Result<f64, TaskError> {
        let rules = self.model.rules();
        match rules.many_rows() {
            None => Ok(self.feature_bound * self.feature_bound),
            Some(_) => Ok(rules.bounds(self.ranges()?).lengths.gram),
        }
    }

    /// w̄: no record counts more often.
    #[must_use]
    pub fn max_weight(&self) -> f64 {
        self.design.and_then(|design| design.weights.as_ref()).map_or(1.0, |weights| weights.largest)
    }

    /// Public bound on the norm of one record's gradient of E_q log p in μ, its weight included, if there is one.
    ///
    /// # Errors
    /// As [`Self::ranges`].
    pub(crate) fn gradient_bound(&self) -> Result<Option<f64>, TaskError> {
        Ok(self.model.rules().bounds(self.ranges()?).gradient.map(|bound| self.max_weight() * bound))
    }

    /// The schema.
    ///
    /// # Errors
    /// The text is not a schema (never for a task that was resolved or read).
    pub fn parsed_schema(&self) -> Result<Schema, TaskError> {
        let schema = spec::schema(self.schema, self.design)?;
        Ok(if matches!(self.model.rules().response().kind, ResponseKind::Count) { schema.with_counts() } else { schema })
    }
}

/// d(d + 1)/2, which fits: d is below 2³².
pub(crate) fn triangle_numbers(d: u64) -> u64 {
    d * (d + 1) / 2
}
