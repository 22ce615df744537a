//! The site's computation: updates, and an evaluator's metrics, on a thread that may block.

use std::sync::Arc;

use dp_pvi_inference::InferenceError;
use dp_pvi_inference::methods::{self, Job};
use dp_pvi_inference::records::RecordTable;
use dp_pvi_names::{Hash, ReleaseId, RunId};
use dp_pvi_posterior::task::ResolvedTask;
use dp_pvi_privacy::mechanism::ReleaseError;
use dp_pvi_privacy::{NoiseSource, Purpose};
use dp_pvi_protocol::driver::{Evaluate, TrainError, TrainErrorKind, Trainer};
use dp_pvi_protocol::message::PublicMetrics;
use dp_pvi_protocol::metrics;
use dp_pvi_protocol::participant::{TrainJob, Trained};
use dp_pvi_protocol::predictive::Predictor;
use rand_core::CryptoRng;

use crate::config::Config;
use crate::error::ClientError;
use crate::error::Result as ClientResult;
use crate::keys;
use crate::screen;
use crate::snapshot::{LocalSchema, Snapshot};

/// Computes a site's visits on the records that it read before its hello, with this noise.
pub struct SiteTrainer<N> {
    snapshot: Arc<Snapshot>,
    noise: N,
}

impl<N> SiteTrainer<N> {
    /// Where the records come from.
    pub(crate) fn origin(&self) -> &dp_pvi_protocol::origin::Origin {
        self.snapshot.origin()
    }

    /// What tells these records from any others, their declared number among it.
    pub(crate) fn records(&self, units: u64) -> Hash {
        self.snapshot.records(units)
    }

    /// Reads the configured files.
    ///
    /// # Errors
    /// See [`Snapshot::load`]; so many records contribute nothing that the data set is halted; the declared number of units is below `[policy] min_records`.
    pub async fn load(config: &Config, noise: N) -> ClientResult<Self> {
        check_declared(config)?;
        let identity = keys::identity(&config.tls.identity)?;
        let config = config.clone();
        let load = move || {
            let snapshot = Snapshot::load(&config, &identity)?;
            screen::log(&config, snapshot.screen());
            screen::admit(&config, snapshot.schema(), snapshot.screen())?;
            Ok::<_, ClientError>(snapshot)
        };
        let snapshot = blocking(move || Ok(load())).await??;
        Ok(Self { snapshot: Arc::new(snapshot), noise })
    }

    /// The run that this process was in is over. Where it is in no other, the files may change again.
    ///
    /// # Errors
    /// [`ClientError::Unavailable`].
    pub fn leave(&self) -> ClientResult<()> {
        self.snapshot.run().map_or(Ok(()), |run| self.snapshot.leave(&run))
    }
}

/// What the seeds of masks are drawn as: no step of a release has this number.
const MASKS: u64 = u64::MAX;

impl<N: NoiseSource<Stream: CryptoRng> + Clone + 'static> Trainer for SiteTrainer<N> {
    type Random = N::Stream;

    fn randomness(&mut self, release: &ReleaseId) -> Result<Self::Random, TrainError> {
        self.noise.stream(release, MASKS, Purpose::Draws).map_err(|e| TrainError { kind: TrainErrorKind::Resource, message: e.to_string() })
    }

    /// What can be wrong here is the task, or the disk of the state folder: the records were read before.
    async fn prepare(&mut self, run: &RunId, task: &Arc<ResolvedTask>) -> Result<(), TrainError> {
        self.snapshot.schema().is_of(task).map_err(data)?;
        self.snapshot.fits(task).map_err(|e| data(e.to_string()))?;
        let (snapshot, run, task) = (Arc::clone(&self.snapshot), *run, Arc::clone(task));
        blocking(move || {
            snapshot.make_ready(&task);
            snapshot.join(&run).map_err(resource)
        })
        .await
    }

    async fn ready(&mut self) -> Result<(), TrainError> {
        let snapshot = Arc::clone(&self.snapshot);
        blocking(move || snapshot.ready().map_err(resource)).await
    }

    async fn train(&mut self, job: TrainJob) -> Result<Trained, TrainError> {
        let (snapshot, noise) = (Arc::clone(&self.snapshot), self.noise.clone());
        blocking(move || {
            let units = snapshot.units(&job.task).map_err(resource)?;
            let TrainJob { task, visit, lambda, state, permit } = job;
            let site = snapshot.place(&task).map_err(|e| internal(e.to_string()))?;
            let job = Job { site, task: &task, visit, lambda: &lambda, state: &state };
            let output = methods::run(&job, &units, permit, &noise).map_err(failed)?;
            Ok(Trained { message: output.message, pending: output.pending })
        })
        .await
    }
}

/// Whether the declared number of units is enough for `[policy] min_records`. The counted one is never compared: who sees that a site
/// takes part would learn from it.
///
/// # Errors
/// [`ClientError::Config`].
pub(crate) fn check_declared(config: &Config) -> ClientResult<()> {
    match &config.data.private {
        Some(private) if private.nominal_units < config.policy.min_records => Err(ClientError::config(
            "policy.min_records",
            format!(
                "is {}, above [data] nominal_units = {}: this site takes no part with so few",
                config.policy.min_records, private.nominal_units
            ),
        )),
        _ => Ok(()),
    }
}

/// Evaluates posteriors on a public test set that was read before the hello.
pub struct PublicEvaluator {
    schema: LocalSchema,
    records: Arc<dp_pvi_data::PublicCells>,
    /// The task, and the records as its formula makes rows of them.
    task: Option<(Arc<ResolvedTask>, Arc<dp_pvi_data::Public<RecordTable>>)>,
}

impl PublicEvaluator {
    /// Reads the configured files.
    ///
    /// # Errors
    /// [`ClientError::Data`], [`ClientError::InvalidFile`].
    pub async fn load(config: &Config) -> ClientResult<Self> {
        let schema = LocalSchema::read(&config.data.schema)?;
        let (rules, files) = (schema.schema().clone(), config.data.files.clone());
        let records = blocking(move || dp_pvi_data::PublicCells::load(&rules, &files, None).map_err(|e| data(e.to_string()))).await?;
        Ok(Self { schema, records: Arc::new(records), task: None })
    }
}

impl Evaluate for PublicEvaluator {
    async fn prepare(&mut self, task: &Arc<ResolvedTask>) -> Result<(), TrainError> {
        self.schema.is_of(task).map_err(data)?;
        let (rules, records) = (task.parsed_schema().map_err(|e| data(e.to_string()))?, Arc::clone(&self.records));
        let table = blocking(move || records.rows(&rules).map_err(|e| data(e.to_string()))).await?;
        self.task = Some((Arc::clone(task), Arc::new(table)));
        Ok(())
    }

    async fn evaluate(&mut self, lambda: &[f64]) -> Result<PublicMetrics, TrainError> {
        let (task, table) = self.task.clone().ok_or_else(|| internal("a posterior came before the task".into()))?;
        let lambda = lambda.to_vec();
        blocking(move || evaluate(&task, &table, &lambda)).await
    }
}

fn evaluate(task: &ResolvedTask, table: &dp_pvi_data::Public<RecordTable>, lambda: &[f64]) -> Result<PublicMetrics, TrainError> {
    // A posterior that is no distribution is reported: someone should know.
    Ok(match Predictor::of_state(task, lambda) {
        Ok(predictor) => metrics::evaluate(&predictor, table),
        Err(_) => PublicMetrics::of_no_distribution(table),
    })
}

/// A panic of the work is about public values and the program: one of code over records does not leave the release gate, which sends noise then. So
/// what becomes of it on the network carries no information on a record.
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

fn resource(error: ClientError) -> TrainError {
    TrainError { kind: TrainErrorKind::Resource, message: error.to_string() }
}

/// What other processes of the site did not give may come at the next start; the rest is a bug.
fn failed(error: InferenceError) -> TrainError {
    let unanswered = matches!(error, InferenceError::Release(ReleaseError::NoSum(_)));
    TrainError { kind: if unanswered { TrainErrorKind::Resource } else { TrainErrorKind::Internal }, message: error.to_string() }
}

fn internal(message: String) -> TrainError {
    TrainError { kind: TrainErrorKind::Internal, message }
}
