//! One place that says which resolved documents can be computed. Both ways to a task lead through it: resolving, and reading what a
//! server sent.

use dp_pvi_accounting::{PrivacyUnit, Relation};

use super::reach::Reach;
use super::{ResolvedTask, ScheduleSpec, TaskError};
use dp_pvi_models::spec::check::{invalid, positive, require};
use dp_pvi_models::spec::refuse;
use dp_pvi_schema::Schema;

impl ResolvedTask {
    /// Refuses documents that contradict themselves or that this engine cannot compute.
    pub(crate) fn check(&self) -> Result<(), TaskError> {
        let schema = self.parsed_schema()?;
        self.check_bounds(&schema)?;
        self.check_model(&schema)?;
        self.check_schedule()?;
        self.check_privacy(&schema)?;
        self.check_aggregation()?;
        self.update.rules().check(&self.setting())?;
        let (update, model) = (self.update.rules().traits().carries_offsets, self.model.rules());
        dp_pvi_models::spec::check_offset(&schema, self.design.as_ref(), update && model.takes_offsets())?;
        dp_pvi_models::spec::check_weights(&schema, self.design.as_ref(), update && model.is_linear())?;
        self.check_priors(&schema)?;
        if let Some(reach) = Reach::of(&self.model, &schema, &self.setting().priors()) {
            reach.check(&self.model, &schema)?;
        }
        require(
            model.learned_scale().is_none() || self.update.rules().traits().learns_noise_scale,
            "scale = \"learned\" needs an update in which sites send what tells it: use update = \"natural-gradient\", or \"pvi\" without protection, or state \
             the scale as a number",
        )?;
        self.check_early_end()?;
        self.check_lengths()
    }

    pub(super) fn check_model(&self, schema: &Schema) -> Result<(), TaskError> {
        require(
            self.features > 0,
            "the formula has nothing but an intercept, for which the model has other constants: name a column in it",
        )?;
        // The bound may contain logarithms, whose last digit differs between system libraries.
        let same_bound = (self.feature_bound / schema.row_norm_bound() - 1.0).abs() < 1e-9;
        let rules = self.model.rules();
        let same = same_bound
            && self.features == schema.dimension()
            && self.dimension == rules.parameters(self.features).count()
            && self.max_nonzeros == schema.max_nonzeros();
        require(
            same,
            "features, dimension, feature_bound and max_nonzeros are not those of its own schema: use the same version on both sides",
        )?;
        require(
            self.prior.mean.abs() <= 1e30 && positive(self.prior.scale),
            "prior_mean must lie between -1e30 and 1e30, and prior_scale between 1e-30 and 1e30",
        )?;
        require(
            self.design.as_ref().is_none_or(|design| design.without_intercept != rules.has_intercept()),
            "whether rows have an intercept is not what the model says: use the same version on both sides",
        )?;
        let number = |[mean, sd]: &[f64; 2]| mean.abs() <= 1e30 && positive(*sd);
        let (count, features) = (self.coefficients.len(), self.features as usize);
        require(
            count == 0
                || (rules.classes_with_coefficients(schema).len().max(1) * features == count && self.coefficients.iter().all(number)),
            "coefficients are not those of its own schema: use the same version on both sides",
        )?;
        dp_pvi_models::spec::Prior::of_rows(self.prior, &self.coefficients, schema, self.design.as_ref())?;
        rules.check(schema)
    }

    /// The position of a site in the list of sites whose effects are learned; none where the task has no such list.
    ///
    /// # Errors
    /// The site is not in the list.
    pub fn site(&self, name: &str) -> Result<Option<u32>, TaskError> {
        let schema = self.parsed_schema()?.of_site(name)?;
        Ok(schema.design().and_then(dp_pvi_schema::formula::Design::own_site))
    }

    /// Priors of single coefficients, and scales that several share.
    fn check_priors(&self, schema: &Schema) -> Result<(), TaskError> {
        let groups = schema.design().map_or(&[][..], dp_pvi_schema::formula::Design::scale_groups);
        let (prior, update) = (self.setting().priors(), self.update.rules().traits());
        let own = !prior.groups.is_empty() || self.design.as_ref().is_some_and(|design| !design.priors.is_empty());
        if own && !(self.model.rules().is_linear() && update.carries_offsets) {
            return refuse(
                self.design.as_ref(),
                |term| groups.iter().any(|group| group.term == term),
                "terms with priors or scales of their own need a regression and an update that works on it, record by record: not one by moments or summed \
                 statistics",
            );
        }
        let design = self.design.as_ref();
        if design.is_some_and(|design| !design.sites.is_empty()) && !update.carries_site_effects {
            return refuse(
                design,
                |term| term.starts_with('(') && term.ends_with("| site)"),
                "effects of sites need an update in which a site sends its own: \"natural-gradient\", or \"pvi\" without protection",
            );
        }
        if !prior.learns_scales() {
            return Ok(());
        }
        if !update.learns_scales {
            let learned: Vec<&str> = groups.iter().filter(|group| group.fixed_sd.is_none()).map(|group| group.term.as_str()).collect();
            return refuse(
                design,
                |term| learned.contains(&term),
                "s(…) and (… | …) have a scale that the server learns after each round, which this update does not allow: use update = \"natural-gradient\", or \
                 fix the scale of a curve by s(…, sd = 0.5)",
            );
        }
        require(
            matches!(self.schedule, ScheduleSpec::Synchronous { .. }),
            "a scale that is learned is learned after rounds of all sites: use schedule = \"synchronous\"",
        )
    }

    fn check_schedule(&self) -> Result<(), TaskError> {
        require(self.visits() >= 1, "at least one round (rounds, or sweeps) is needed")?;
        require(self.damping.len() == self.visits() as usize, "damping must have one value for every visit")?;
        require(self.damping.iter().all(|&rho| rho > 0.0 && rho <= 1.0), "damping must be above 0 and at most 1")?;
        if let Some(staleness) = self.schedule.staleness() {
            require(
                self.update.rules().traits().is_asynchronous,
                "schedule = \"asynchronous\" needs an update that sends changes of the posterior: \"pvi\" or \"dp-optimisation\"",
            )?;
            require(staleness <= 1000, "max_staleness must be at most 1000")?;
            // What was computed from an old λ may only move it by so much.
            let largest = 1.0 / (1.0 + f64::from(staleness));
            require(
                self.damping.iter().all(|&rho| rho <= largest * (1.0 + 1e-12)),
                "damping of an asynchronous schedule must be at most 1/(1 + max_staleness)",
            )?;
        }
        require(self.min_sites >= 1, "min_sites must be at least 1")?;
        require(self.update_deadline_seconds >= 1, "update_deadline must be at least one second")
    }

    fn check_privacy(&self, schema: &Schema) -> Result<(), TaskError> {
        match (self.privacy.unit, schema.unit_column()) {
            (PrivacyUnit::Record, None) | (PrivacyUnit::Person, Some(_)) => {}
            (PrivacyUnit::Record, Some(_)) => return invalid("the schema has a unit_column: use unit = \"person\", or remove unit_column"),
            (PrivacyUnit::Person, None) => return invalid("unit = \"person\" needs a unit_column in the schema"),
            (PrivacyUnit::Site, _) => {
                require(
                    self.update.rules().traits().protects_sites,
                    "unit = \"site\" needs update = \"client-level\", \"sep\" or \"ep\": use unit = \"record\" or \"person\"",
                )?;
                require(
                    self.privacy.relation != Relation::AddRemove,
                    "unit = \"site\" needs adjacency = \"replace-one\": whether a site is there is seen by everybody, so no noise could hide its absence",
                )?;
            }
        }
        self.check_positions()
    }

    /// The update whose shards are cut by the order of the records, under a relation where another record may be in a record's place: who gives
    /// records whose order depends on their values may not compute it.
    #[must_use]
    pub fn cuts_by_order(&self) -> Option<&'static str> {
        self.update.rules().traits().cuts_by_position.filter(|_| self.privacy.relation == Relation::ReplaceOne)
    }

    /// A person's number among the persons follows from the first record that can be read as theirs. So another content of one person may
    /// renumber the persons after them, and where shards are cut by number, move those persons to other shards.
    fn check_positions(&self) -> Result<(), TaskError> {
        let by_position = self.privacy.unit == PrivacyUnit::Person && self.privacy.relation == Relation::ReplaceOne;
        match self.update.rules().traits().cuts_by_position {
            Some(name) if by_position => invalid(&format!(
                "update = \"{name}\" cannot protect persons under adjacency = \"replace-one\": shards are then cut by position, and the records of one person \
                 decide the positions of others, so several shards would change. Use adjacency = \"add-remove\", where a person's shard follows from \
                 that person's records alone, or shards = 1, or an update that sums over persons (\"dp-optimisation\", \"natural-gradient\")"
            )),
            _ => Ok(()),
        }
    }
}
