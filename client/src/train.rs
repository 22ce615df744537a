//! The site's computation: data behind the gate, updates on a thread that may block.

use std::path::PathBuf;
use std::sync::Arc;

use dp_pvi_inference::records::RecordTable;
use dp_pvi_inference::update::{self, Job};
use dp_pvi_posterior::metrics;
use dp_pvi_posterior::predictive::Predictor;
use dp_pvi_posterior::schema::Schema;
use dp_pvi_posterior::task::ResolvedTask;
use dp_pvi_privacy::{Relation, SecureNoise, Units};
use dp_pvi_protocol::driver::{Evaluate, TrainError, TrainErrorKind, Trainer};
use dp_pvi_protocol::message::PublicMetrics;
use dp_pvi_protocol::participant::{TrainJob, Trained};

use crate::config::Config;

/// Loads the site's records when the task is known, and computes its visits.
pub struct SiteTrainer {
    files: Vec<PathBuf>,
    schema: Option<PathBuf>,
    size: Size,
    units: Option<Arc<Units<RecordTable>>>,
}

impl SiteTrainer {
    /// A trainer for the configured files; nothing is read yet.
    #[must_use]
    pub fn new(config: &Config) -> Self {
        Self { files: config.data.files.clone(), schema: config.data.schema.clone(), size: Size::of(config), units: None }
    }
}

impl Trainer for SiteTrainer {
    type Random = <SecureNoise as dp_pvi_privacy::NoiseSource>::Stream;

    fn randomness(&mut self) -> Result<Self::Random, TrainError> {
        SecureNoise::fresh().map_err(|e| TrainError { kind: TrainErrorKind::Resource, message: e.to_string() })
    }

    async fn prepare(&mut self, task: &Arc<ResolvedTask>) -> Result<(), TrainError> {
        if self.units.is_some() {
            return Ok(());
        }
        let schema = schema_of(task, self.schema.as_deref())?;
        let files = self.files.clone();
        let loaded = blocking(move || dp_pvi_data::load(&schema, &files).map_err(|e| data(e.to_string()))).await?;
        self.size.check(loaded.counts.units)?;
        self.units = Some(Arc::new(loaded.units));
        Ok(())
    }

    async fn train(&mut self, job: TrainJob) -> Result<Trained, TrainError> {
        let units = self.units.clone().ok_or_else(|| internal("a visit was asked for before the data were loaded".into()))?;
        blocking(move || {
            let TrainJob { task, visit, lambda, state, permit } = job;
            let job = Job { task: &task, visit, lambda: &lambda, state: &state };
            let output = update::run(&job, &units, permit, &SecureNoise).map_err(|e| internal(e.to_string()))?;
            Ok(Trained { message: output.message, pending: output.pending })
        })
        .await
    }
}

/// `[policy] min_records`, and with what it is compared.
#[derive(Debug, Clone, Copy)]
struct Size {
    min_records: u64,
    /// Under add-remove the number of units is itself protected: whether a site takes part may only depend on the declared one.
    declared: Option<u64>,
}

impl Size {
    fn of(config: &Config) -> Self {
        let private = config.data.private.as_ref();
        let declared = private.filter(|p| p.identity.relation == Relation::AddRemove).map(|p| p.nominal_units);
        Self { min_records: config.policy.min_records, declared }
    }

    fn check(self, counted: u64) -> Result<(), TrainError> {
        if self.declared.unwrap_or(counted) >= self.min_records {
            return Ok(());
        }
        Err(data(format!(
            "the data set has fewer privacy units than [policy] min_records = {}: this site takes no part with so few",
            self.min_records
        )))
    }
}

/// Whether a task's data can be loaded here and are enough for `[policy] min_records`.
///
/// # Errors
/// The schema, the data, too few units.
pub(crate) fn check_size(config: &Config, task: &ResolvedTask) -> Result<(), TrainError> {
    let schema = schema_of(task, config.data.schema.as_deref())?;
    let loaded = dp_pvi_data::load(&schema, &config.data.files).map_err(|e| data(e.to_string()))?;
    Size::of(config).check(loaded.counts.units)
}

/// Loads a public test set when the task is known, and evaluates posteriors on it.
pub struct PublicEvaluator {
    files: Vec<PathBuf>,
    schema: Option<PathBuf>,
    loaded: Option<Arc<Loaded>>,
}

struct Loaded {
    task: Arc<ResolvedTask>,
    table: dp_pvi_data::Public<RecordTable>,
}

impl PublicEvaluator {
    /// An evaluator for the configured files; nothing is read yet.
    #[must_use]
    pub fn new(config: &Config) -> Self {
        Self { files: config.data.files.clone(), schema: config.data.schema.clone(), loaded: None }
    }
}

impl Evaluate for PublicEvaluator {
    async fn prepare(&mut self, task: &Arc<ResolvedTask>) -> Result<(), TrainError> {
        if self.loaded.is_some() {
            return Ok(());
        }
        let schema = schema_of(task, self.schema.as_deref())?;
        let files = self.files.clone();
        let table = blocking(move || dp_pvi_data::load_public(&schema, &files, None).map_err(|e| data(e.to_string()))).await?;
        self.loaded = Some(Arc::new(Loaded { task: Arc::clone(task), table }));
        Ok(())
    }

    async fn evaluate(&mut self, lambda: &[f64]) -> Result<PublicMetrics, TrainError> {
        let loaded = self.loaded.clone().ok_or_else(|| internal("a posterior came before the data were loaded".into()))?;
        let lambda = lambda.to_vec();
        blocking(move || evaluate(&loaded, &lambda)).await
    }
}

fn evaluate(loaded: &Loaded, lambda: &[f64]) -> Result<PublicMetrics, TrainError> {
    let task = &loaded.task;
    let predictor = Predictor::of_state(task, lambda).map_err(|e| internal(e.to_string()))?;
    Ok(metrics::evaluate(&predictor, &loaded.table))
}

/// The task's schema; a local copy that says otherwise stops the site.
fn schema_of(task: &ResolvedTask, local: Option<&std::path::Path>) -> Result<Schema, TrainError> {
    if let Some(path) = local {
        let text = std::fs::read_to_string(path).map_err(|e| data(format!("[data] schema: {}: {e}", path.display())))?;
        if text != task.schema {
            return Err(data(format!("the task's schema is not the one in {}: agree on one with the other sites", path.display())));
        }
    }
    Schema::parse(&task.schema).map_err(|e| data(format!("the task's schema: {e}")))
}

async fn blocking<T: Send + 'static>(work: impl FnOnce() -> Result<T, TrainError> + Send + 'static) -> Result<T, TrainError> {
    match tokio::task::spawn_blocking(work).await {
        Ok(result) => result,
        Err(e) => {
            Err(internal(format!("the computation ended early ({})", if e.is_panic() { "a bug: please report it" } else { "stopped" })))
        }
    }
}

fn data(message: String) -> TrainError {
    TrainError { kind: TrainErrorKind::Data, message }
}

fn internal(message: String) -> TrainError {
    TrainError { kind: TrainErrorKind::Internal, message }
}
