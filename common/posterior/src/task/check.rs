//! One place that says which resolved documents can be computed. Both ways to a task lead through it: resolving, and reading what a
//! server sent.

use dp_pvi_privacy::PrivacyUnit;

use super::{Approximation, DpOptimisationSpec, ModelSpec, ResolvedTask, TaskError, Trust, UpdateSpec};
use crate::schema::{LabelKind, Schema};

/// Bounds of log σ (algorithms section 6.1): every start must lie inside.
const LOG_SCALE: std::ops::RangeInclusive<f64> = -10.0..=2.0;

impl ResolvedTask {
    /// Refuses documents that contradict themselves or that this engine cannot compute.
    pub(super) fn check(&self) -> Result<(), TaskError> {
        let schema = self.parsed_schema()?;
        self.check_model(&schema)?;
        self.check_schedule()?;
        self.check_privacy(&schema)?;
        match &self.update {
            UpdateSpec::Pvi {} => Ok(()),
            UpdateSpec::DpOptimisation(spec) => self.check_dp_optimisation(spec),
        }
    }

    fn check_model(&self, schema: &Schema) -> Result<(), TaskError> {
        // The bound may contain logarithms, whose last digit differs between system libraries.
        let same_bound = (self.feature_bound / schema.row_norm_bound() - 1.0).abs() < 1e-9;
        let same = same_bound && self.dimension == schema.dimension() && self.max_nonzeros == schema.max_nonzeros();
        require(same, "dimension, feature_bound and max_nonzeros are not those of its own schema: use the same version on both sides")?;
        require(self.prior.mean.is_finite() && positive(self.prior.scale), "prior_mean must be finite and prior_scale above 0")?;
        match (&self.model, &schema.label().kind) {
            (ModelSpec::LinearRegression { noise_sd }, LabelKind::Number(_)) => {
                require(positive(*noise_sd), "noise_sd must be a finite number above 0")
            }
            (ModelSpec::LogisticRegression {}, LabelKind::Binary { .. }) => Ok(()),
            (ModelSpec::LinearRegression { .. }, _) => {
                invalid("linear-regression predicts a number: give the schema's label kind = \"number\"")
            }
            (ModelSpec::LogisticRegression {}, _) => {
                invalid("logistic-regression predicts a class: give the schema's label kind = \"binary\"")
            }
        }
    }

    fn check_schedule(&self) -> Result<(), TaskError> {
        require(self.visits() >= 1, "at least one round (rounds, or sweeps) is needed")?;
        require(self.damping.len() == self.visits() as usize, "damping must have one value for every visit")?;
        require(self.damping.iter().all(|&rho| rho > 0.0 && rho <= 1.0), "damping must be above 0 and at most 1")?;
        require(self.min_sites >= 1, "min_sites must be at least 1")?;
        require(self.update_deadline_seconds >= 1, "update_deadline must be at least one second")
    }

    fn check_privacy(&self, schema: &Schema) -> Result<(), TaskError> {
        require(self.privacy.trust == Trust::Local, "trust = \"aggregated\" is not offered by this engine: use trust = \"local\"")?;
        match (self.privacy.unit, schema.unit_column()) {
            (PrivacyUnit::Record, None) | (PrivacyUnit::Person, Some(_)) => {}
            (PrivacyUnit::Record, Some(_)) => return invalid("the schema has a unit_column: use unit = \"person\", or remove unit_column"),
            (PrivacyUnit::Person, None) => return invalid("unit = \"person\" needs a unit_column in the schema"),
            (PrivacyUnit::Site, _) => return invalid("unit = \"site\" is not offered by this engine: use unit = \"record\" or \"person\""),
        }
        match (&self.update, self.privacy.epsilon) {
            (UpdateSpec::Pvi {}, None) => Ok(()),
            (UpdateSpec::Pvi {}, Some(_)) => {
                invalid("update = \"pvi\" protects nothing: remove epsilon, or use update = \"dp-optimisation\"")
            }
            (UpdateSpec::DpOptimisation(_), Some(epsilon)) if epsilon.get() > 0.0 && epsilon.get().is_finite() => Ok(()),
            (UpdateSpec::DpOptimisation(_), _) => invalid("update = \"dp-optimisation\" needs a finite epsilon above 0 in [privacy]"),
        }
    }

    fn check_dp_optimisation(&self, spec: &DpOptimisationSpec) -> Result<(), TaskError> {
        require(self.approximation == Approximation::MeanField, "update = \"dp-optimisation\" needs approximation = \"mean-field\"")?;
        require(spec.steps >= 1, "steps must be at least 1")?;
        require(positive(spec.learning_rate), "learning_rate must be a finite number above 0")?;
        require(spec.learning_rate_decay > 0.0 && spec.learning_rate_decay <= 1.0, "learning_rate_decay must be above 0 and at most 1")?;
        require(LOG_SCALE.contains(&spec.initial_log_scale), "initial_log_scale must lie between -10 and 2")?;
        require(spec.step_precision.is_finite() && spec.step_precision >= 0.0, "step_precision must be finite and not negative")?;
        require(positive(spec.curvature_weight), "curvature_weight must be a finite number above 0")?;
        require(spec.averaging > 0.0 && spec.averaging <= 1.0, "averaging must be above 0 and at most 1")?;
        spec.mechanism(self.gradient_length())?;
        Ok(())
    }
}

fn positive(value: f64) -> bool {
    value > 0.0 && value.is_finite()
}

fn require(condition: bool, otherwise: &str) -> Result<(), TaskError> {
    if condition { Ok(()) } else { invalid(otherwise) }
}

pub(super) fn invalid<T>(message: &str) -> Result<T, TaskError> {
    Err(TaskError::Invalid(message.to_owned()))
}
