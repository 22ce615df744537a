//! One sum: a plan over the snapshot, for this process or for a cluster. And the question that comes before it, whether the cluster is there.

use std::io::{Read, Write};
use std::os::unix::process::parent_id;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use ballista_core::extension::{SessionConfigExt, SessionStateExt};
use datafusion::arrow::array::{Array, AsArray};
use datafusion::arrow::datatypes::{DataType, Field, Schema};
use datafusion::datasource::file_format::parquet::ParquetFormat;
use datafusion::datasource::listing::{ListingOptions, ListingTable, ListingTableConfig, ListingTableUrl};
use datafusion::error::DataFusionError;
use datafusion::execution::SessionStateBuilder;
use datafusion::logical_expr::AggregateUDF;
use datafusion::prelude::{DataFrame, SessionConfig, SessionContext, col};
use dp_pvi_privacy::partial_sums::SiteKey;

use tonic::Code;
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_check_response::ServingStatus;
use tonic_health::pb::health_client::HealthClient;

use crate::config::{Config, EXECUTORS};
use crate::term_sum::{Codec, TermSum};
use crate::tls::Mutual;

/// The library's words.
fn said(error: DataFusionError) -> String {
    error.strip_backtrace()
}

/// Blocks that are in memory at once, of about a megabyte each.
const BATCH: usize = 4;

/// Settings of a session that reads a snapshot in so many parts.
#[must_use]
pub fn settings(config: SessionConfig, parts: usize) -> SessionConfig {
    let mut config = config.with_target_partitions(parts).with_batch_size(BATCH).with_collect_statistics(false);
    let options = config.options_mut();
    // Any two row groups may be read by two processes, however short they are.
    options.optimizer.repartition_file_min_size = 0;
    options.execution.parquet.schema_force_view_types = false;
    config
}

/// Columns of a snapshot's files.
pub(crate) fn fields() -> [Field; 3] {
    [
        Field::new("first", DataType::Int64, false),
        Field::new("units", DataType::Int32, false),
        Field::new("sealed", DataType::Binary, false),
    ]
}

/// The sum that a question asks for.
pub(crate) fn plan(session: &SessionContext, question: &[u8], key: Option<Arc<SiteKey>>, snapshot: &Path) -> Result<DataFrame, String> {
    let folder = snapshot.to_str().ok_or("the snapshot's folder has a name that is no text")?;
    let options = ListingOptions::new(Arc::new(ParquetFormat::default())).with_file_extension(".parquet");
    let url = ListingTableUrl::parse(format!("{folder}/")).map_err(said)?;
    let table = ListingTableConfig::new(url).with_listing_options(options).with_schema(Arc::new(Schema::new(fields().to_vec())));
    let table = ListingTable::try_new(table).map_err(said)?;
    let sum = AggregateUDF::from(TermSum::new(question, key));
    let call = sum.call(vec![col("first"), col("units"), col("sealed")]);
    session.read_table(Arc::new(table)).and_then(|table| table.aggregate(Vec::new(), vec![call])).map_err(said)
}

/// The answers to a question, each with its length before it.
///
/// # Errors
/// The library's, in words.
pub async fn answers(session: &SessionContext, question: &[u8], key: Option<Arc<SiteKey>>, snapshot: &Path) -> Result<Vec<u8>, String> {
    let frame = plan(session, question, key, snapshot)?;
    let mut found = Vec::new();
    for batch in frame.collect().await.map_err(said)? {
        let column = batch.column(0);
        column.to_data().validate_full().map_err(|_| "the cluster gave a column that is not what it says")?;
        let column = column.as_binary_opt::<i32>().ok_or("the cluster gave something else than answers")?;
        column.iter().flatten().for_each(|answers| found.extend_from_slice(answers));
    }
    Ok(found)
}

/// A session of the cluster.
///
/// # Errors
/// In words.
pub fn session(config: &Config) -> Result<SessionContext, String> {
    let codec = Arc::new(Codec::new(None));
    let session =
        Mutual::read(config)?.session().with_ballista_logical_extension_codec(codec.clone()).with_ballista_physical_extension_codec(codec);
    let state = SessionStateBuilder::new().with_default_features().with_config(settings(session, config.sum.parts.max(1))).build();
    let scheduler = format!("http://{}:{}", config.scheduler.host, config.scheduler.port);
    let state = state.upgrade_for_ballista(scheduler).map_err(|e| e.strip_backtrace())?;
    Ok(SessionContext::new_with_state(state))
}

/// Reads a question, and writes the answers. Ends when the process that started this one has ended: no one would read them.
///
/// # Errors
/// In words.
pub async fn sum(config: Config, snapshot: PathBuf) -> Result<(), String> {
    let mut question = Vec::new();
    std::io::stdin().read_to_end(&mut question).map_err(|e| format!("the question cannot be read ({e})"))?;
    let session = session(&config)?;
    let answers = tokio::select! {
        answers = answers(&session, &question, None, &snapshot) => answers?,
        () = left_alone() => return Err("the process that asked has ended".into()),
    };
    std::io::stdout().write_all(&answers).map_err(|e| format!("the answers cannot be written ({e})"))
}

async fn left_alone() {
    let parent = parent_id();
    while parent_id() == parent {
        tokio::time::sleep(Duration::from_millis(500)).await;
    }
}

/// How long a cluster that is just starting is waited for.
const STARTING: Duration = Duration::from_secs(20);

/// Whether the scheduler is there and has an executor.
///
/// # Errors
/// Not yet after a while. In words.
pub async fn ready(config: Config) -> Result<(), String> {
    let mutual = Mutual::read(&config)?;
    let mut why = "it does not answer".to_owned();
    let asked = tokio::time::timeout(STARTING, async {
        loop {
            match look(&mutual).await {
                Ok(found) => return found,
                Err(not_yet) => why = not_yet,
            }
            tokio::time::sleep(Duration::from_millis(500)).await;
        }
    });
    let found = asked.await;
    let wrong = found.unwrap_or(Some(why));
    wrong.map_or(Ok(()), |why| Err(format!("the scheduler at {}:{}: {why}", config.scheduler.host, config.scheduler.port)))
}

/// Nothing where a sum can be made, or what is wrong and stays so.
///
/// # Errors
/// What is wrong and may pass.
async fn look(mutual: &Mutual) -> Result<Option<String>, String> {
    let channel = mutual.scheduler()?.connect().await.map_err(|e| in_full(&e))?;
    match HealthClient::new(channel).check(HealthCheckRequest { service: EXECUTORS.into() }).await {
        Ok(answer) if answer.get_ref().status() == ServingStatus::Serving => Ok(None),
        Ok(_) => Err("it has no executor".into()),
        Err(refused) if refused.code() == Code::PermissionDenied => Ok(Some(refused.message().to_owned())),
        Err(status) => Err(status.message().to_owned()),
    }
}

/// An error with its causes.
fn in_full(error: &dyn std::error::Error) -> String {
    error.source().map_or_else(|| error.to_string(), |cause| format!("{error}: {}", in_full(cause)))
}
