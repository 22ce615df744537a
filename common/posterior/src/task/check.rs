//! One place that says which resolved documents can be computed. Both ways to a task lead through it: resolving, and reading what a
//! server sent.

use dp_pvi_privacy::{ClipNorm, PrivacyUnit, Relation};

use super::{ResolvedTask, TaskError, Trust, UpdateSpec};
use crate::schema::Schema;

impl ResolvedTask {
    /// Refuses documents that contradict themselves or that this engine cannot compute.
    pub(super) fn check(&self) -> Result<(), TaskError> {
        let schema = self.parsed_schema()?;
        self.check_bounds(&schema)?;
        self.check_model(&schema)?;
        self.check_schedule()?;
        self.check_privacy(&schema)?;
        self.check_aggregation()?;
        self.update.rules().check(self)?;
        // Whoever read a task may ask it for the event and the message of every visit.
        self.update.rules().each_visit(self, 0..self.visits(), &mut |visit| {
            require(visit.message.coordinates > 0, "a visit would send nothing: the model has no parameters")
        })
    }

    fn check_model(&self, schema: &Schema) -> Result<(), TaskError> {
        // The bound may contain logarithms, whose last digit differs between system libraries.
        let same_bound = (self.feature_bound / schema.row_norm_bound() - 1.0).abs() < 1e-9;
        let rules = self.model.rules();
        let same = same_bound
            && self.features == schema.dimension()
            && self.dimension == rules.parameters(self.features)
            && self.max_nonzeros == schema.max_nonzeros();
        require(
            same,
            "features, dimension, feature_bound and max_nonzeros are not those of its own schema: use the same version on both sides",
        )?;
        require(
            self.prior.mean.abs() <= 1e30 && positive(self.prior.scale),
            "prior_mean must lie between -1e30 and 1e30, and prior_scale between 1e-30 and 1e30",
        )?;
        rules.check(schema)
    }

    fn check_schedule(&self) -> Result<(), TaskError> {
        require(self.visits() >= 1, "at least one round (rounds, or sweeps) is needed")?;
        require(self.damping.len() == self.visits() as usize, "damping must have one value for every visit")?;
        require(self.damping.iter().all(|&rho| rho > 0.0 && rho <= 1.0), "damping must be above 0 and at most 1")?;
        if let Some(staleness) = self.schedule.staleness() {
            require(
                self.update.rules().is_asynchronous(),
                "schedule = \"asynchronous\" needs an update that sends changes of the posterior: \"pvi\" or \"dp-optimisation\"",
            )?;
            require(staleness <= 1000, "max_staleness must be at most 1000")?;
            // Algorithms, section 5: what was computed from an old λ may only move it by so much.
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
                    self.update.rules().protects_sites(),
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

    /// A person's number among the persons follows from the first record that can be read as theirs. So another content of one person may
    /// renumber the persons after them, and where shards are cut by number, move those persons to other shards.
    fn check_positions(&self) -> Result<(), TaskError> {
        let UpdateSpec::Shards(spec) = &self.update else { return Ok(()) };
        let by_position = self.privacy.unit == PrivacyUnit::Person && self.privacy.relation == Relation::ReplaceOne;
        if by_position && spec.method.has_shards() && spec.shards > 1 {
            return invalid(&format!(
                "update = \"{}\" cannot protect persons under adjacency = \"replace-one\": shards are then cut by position, and the records of one person \
                 decide the positions of others, so several shards would change. Use adjacency = \"add-remove\", where a person's shard follows from \
                 that person's records alone, or shards = 1, or an update that sums over persons (\"dp-optimisation\", \"natural-gradient\")",
                spec.method.name()
            ));
        }
        Ok(())
    }
}

/// An update that is protected states its ε.
pub(super) fn requires_epsilon(task: &ResolvedTask, update: &str) -> Result<(), TaskError> {
    match task.privacy.epsilon {
        Some(epsilon) if epsilon.get() > 0.0 && epsilon.get().is_finite() => Ok(()),
        _ => invalid(&format!("update = \"{update}\" needs a finite epsilon above 0 in [privacy]")),
    }
}

/// An update without a sum that could be aggregated.
pub(super) fn requires_local_trust(task: &ResolvedTask, update: &str) -> Result<(), TaskError> {
    match task.privacy.trust {
        Trust::Local => Ok(()),
        Trust::Aggregated => invalid(&format!("update = \"{update}\" has no sum that could be aggregated: use trust = \"local\"")),
    }
}

/// Whether a number that must be above 0 is one that anybody could mean: between 1e-30 and 1e30. What is computed from such numbers stays far
/// inside of what double precision can hold, where roundings are relative and nothing vanishes.
pub(super) fn positive(value: f64) -> bool {
    (1e-30..=1e30).contains(&value)
}

/// Refuses clipping norms that nobody can mean, see [`positive`].
pub(super) fn requires_clip_norms<'a>(norms: impl IntoIterator<Item = &'a ClipNorm>) -> Result<(), TaskError> {
    require(norms.into_iter().all(|norm| positive(norm.get())), "clipping norms must lie between 1e-30 and 1e30")
}

pub(super) fn require(condition: bool, otherwise: &str) -> Result<(), TaskError> {
    if condition { Ok(()) } else { invalid(otherwise) }
}

pub(super) fn invalid<T>(message: &str) -> Result<T, TaskError> {
    Err(TaskError::Invalid(message.to_owned()))
}
