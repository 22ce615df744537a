//! What an executor computes: plans that sum the blocks of a snapshot, and nothing else.
//!
//! A scheduler sends plans, and the libraries' plans can read any file that the process can, the site's key included. So an executor looks at every plan before it computes it.
//!
//! # Privacy
//! A plan's leaves are files of a snapshot and what other executors left: both are ciphertexts. Above them stand our aggregate function, which gives out sealed sums only
//! ([`term_sum`](crate::term_sum)), and nodes that hand on what they get. So no plan of a scheduler reads a record or a key.

use std::path::Path;
use std::sync::Arc;

use ballista_core::JobId;
use ballista_core::execution_plans::{ShuffleReaderExec, ShuffleWriterExec};
use ballista_executor::execution_engine::{DefaultExecutionEngine, ExecutionEngine, QueryStageExecutor};
use datafusion::datasource::listing::ListingTableUrl;
use datafusion::datasource::physical_plan::{FileScanConfig, ParquetSource};
use datafusion::datasource::source::DataSourceExec;
use datafusion::error::{DataFusionError, Result};
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::aggregates::AggregateExec;
use datafusion::physical_plan::coalesce_partitions::CoalescePartitionsExec;
use datafusion::prelude::SessionConfig;

use crate::term_sum::TermSum;

/// The library's way to compute a plan, for plans over one folder of snapshots.
pub(crate) struct Guard {
    inner: DefaultExecutionEngine,
    snapshots: ListingTableUrl,
}

impl Guard {
    pub(crate) fn new(snapshots: &Path) -> Result<Self> {
        let folder = snapshots.to_str().ok_or_else(|| refused("[executor] snapshots is no text"))?;
        Ok(Self { inner: DefaultExecutionEngine::new(), snapshots: ListingTableUrl::parse(format!("{folder}/"))? })
    }

    /// Refuses a stage that is not a plan below one writer, which the library gives a place in the executor's work folder. A writer further below would write where the scheduler says.
    fn check_stage(&self, stage: &dyn ExecutionPlan) -> Result<()> {
        match (stage.is::<ShuffleWriterExec>(), stage.children().as_slice()) {
            (true, [plan]) => self.check(plan.as_ref()),
            _ => Err(refused(format!("a stage begins with {}", stage.name()))),
        }
    }

    /// Refuses a plan that does anything but sum blocks and hand on what was sealed.
    fn check(&self, plan: &dyn ExecutionPlan) -> Result<()> {
        let known = if let Some(scan) = plan.downcast_ref::<DataSourceExec>() {
            scan.downcast_to_file_source::<ParquetSource>().is_some_and(|(files, _)| self.are_of_a_snapshot(files))
        } else if let Some(aggregate) = plan.downcast_ref::<AggregateExec>() {
            let ours = |function: &datafusion::logical_expr::AggregateUDF| function.inner().is::<TermSum>();
            aggregate.group_expr().is_empty() && aggregate.aggr_expr().iter().all(|function| ours(function.fun()))
        } else {
            plan.is::<ShuffleReaderExec>() || plan.is::<CoalescePartitionsExec>()
        };
        if !known {
            return Err(refused(format!("{} is no part of a sum over a snapshot", plan.name())));
        }
        plan.children().into_iter().try_for_each(|child| self.check(child.as_ref()))
    }

    fn are_of_a_snapshot(&self, files: &FileScanConfig) -> bool {
        files.object_store_url == self.snapshots.object_store()
            && files.file_groups.iter().flat_map(|group| group.iter()).all(|file| {
                // Below the folder, by no name that the file system would read as another one.
                let below = file.path().prefix_match(self.snapshots.prefix());
                below.is_some_and(|mut parts| parts.all(|part| !part.as_ref().starts_with('.') && !part.as_ref().contains('%')))
            })
    }
}

impl ExecutionEngine for Guard {
    fn create_query_stage_exec(
        &self,
        job: JobId,
        stage: usize,
        task: usize,
        partitions: Vec<usize>,
        plan: Arc<dyn ExecutionPlan>,
        work: &str,
        config: &SessionConfig,
    ) -> Result<Arc<dyn QueryStageExecutor>> {
        // It names a folder below the executor's own.
        if !job.as_str().chars().all(|c| c.is_ascii_alphanumeric() || c == '-' || c == '_') {
            return Err(refused("a job has a name that no folder has"));
        }
        self.check_stage(plan.as_ref())?;
        self.inner.create_query_stage_exec(job, stage, task, partitions, plan, work, config)
    }
}

fn refused(why: impl std::fmt::Display) -> DataFusionError {
    DataFusionError::Execution(format!("refused: {why}"))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use datafusion::datasource::physical_plan::{CsvSource, FileScanConfigBuilder};
    use datafusion::datasource::table_schema::TableSchema;
    use datafusion::execution::object_store::ObjectStoreUrl;
    use datafusion::prelude::{CsvReadOptions, ParquetReadOptions, SessionContext};

    use super::*;
    use crate::visit;

    /// The plan that is wanted is taken, over a snapshot's folder and over no other; whatever else reads or computes is refused.
    #[tokio::test]
    async fn only_sums_over_a_snapshot_are_computed() {
        let folder = tempfile::tempdir().unwrap();
        let (snapshots, other) = (folder.path().join("snapshots"), folder.path().join("other"));
        let name = "snapshot-0f";
        for parent in [&snapshots, &other] {
            std::fs::create_dir_all(parent.join(name)).unwrap();
            std::fs::write(parent.join(name).join("blocks.csv"), "a\n1\n").unwrap();
        }
        let session = SessionContext::new();
        let guard = Guard::new(&snapshots).unwrap();
        // A Parquet file with a snapshot's columns, made by the library.
        let rows = "SELECT CAST(0 AS BIGINT) AS first, CAST(1 AS INT) AS units, CAST('00' AS BYTEA) AS sealed";
        for parent in [&snapshots, &other] {
            let file = parent.join(name).join("0.parquet");
            session.sql(rows).await.unwrap().write_parquet(file.to_str().unwrap(), Default::default(), None).await.unwrap();
        }
        let sum = |parent: &Path| {
            let folder = parent.join(name);
            let session = session.clone();
            async move { visit::plan(&session, b"question", None, &folder).unwrap().create_physical_plan().await.unwrap() }
        };
        let wanted = sum(&snapshots).await;
        guard.check(wanted.as_ref()).unwrap();
        // A stage is one writer over it.
        let written = |plan: &Arc<dyn ExecutionPlan>| -> Arc<dyn ExecutionPlan> {
            Arc::new(ShuffleWriterExec::try_new("job".to_owned().into(), 1, Arc::clone(plan), String::new()).unwrap())
        };
        let stage = written(&wanted);
        guard.check_stage(stage.as_ref()).unwrap();
        assert!(guard.check_stage(wanted.as_ref()).is_err());
        assert!(guard.check_stage(written(&stage).as_ref()).unwrap_err().to_string().contains("ShuffleWriterExec"));
        let said = |plan: &dyn ExecutionPlan| guard.check(plan).unwrap_err().to_string();
        assert!(said(sum(&other).await.as_ref()).contains("DataSourceExec"));
        let around = FileScanConfigBuilder::new(
            ObjectStoreUrl::parse("file:///").unwrap(),
            Arc::new(CsvSource::new(TableSchema::from(wanted.schema()))),
        );
        assert!(said(&DataSourceExec::new(Arc::new(around.build()))).contains("DataSourceExec"));
        // A text file, another function over a snapshot's own file, and rows out of nothing.
        let key = snapshots.join(name).join("blocks.csv");
        let text = session.read_csv(key.to_str().unwrap(), CsvReadOptions::new()).await.unwrap();
        session.register_parquet("t", snapshots.join(name).to_str().unwrap(), ParquetReadOptions::default()).await.unwrap();
        let plans = [text, session.sql("SELECT max(first) FROM t").await.unwrap(), session.sql("SELECT 1").await.unwrap()];
        for plan in plans {
            let plan = plan.create_physical_plan().await.unwrap();
            assert!(guard.check(plan.as_ref()).is_err(), "{plan:?}");
        }
    }
}
