//! What an executor computes: plans that sum the blocks of a snapshot, and nothing else.
//!
//! A scheduler sends plans, and the libraries' plans can read and write any file that the process can, the site's key included. So an executor looks at every plan before it computes it, and takes two
//! forms of a stage only: one writer over the sum of some blocks, or one writer over the list of what other executors have sealed.
//!
//! # Privacy
//! A plan's leaves are files of a snapshot and what other executors left: both are ciphertexts. Right above a file stands our aggregate function, which gives out sealed sums only
//! ([`term_sum`](crate::term_sum)), with the columns as they are: no filter, no expression and no limit chooses blocks by what they hold. Above what others left stands the same function, which
//! makes one list of it. So no plan of a scheduler reads a record or a key.

use std::path::{Component, Path, PathBuf};
use std::sync::Arc;

use ballista_core::JobId;
use ballista_core::execution_plans::{ShuffleReaderExec, ShuffleWriterExec};
use ballista_executor::execution_engine::{DefaultExecutionEngine, ExecutionEngine, QueryStageExecutor};
use datafusion::arrow::datatypes::{DataType, Schema};
use datafusion::datasource::listing::{ListingTableUrl, PartitionedFile};
use datafusion::datasource::physical_plan::{FileScanConfig, ParquetSource};
use datafusion::datasource::source::DataSourceExec;
use datafusion::error::{DataFusionError, Result};
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::expressions::Column;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::aggregates::{AggregateExec, AggregateMode};
use datafusion::physical_plan::coalesce_partitions::CoalescePartitionsExec;
use datafusion::prelude::SessionConfig;

use crate::term_sum::TermSum;
use crate::visit;

/// The library's way to compute a plan, for plans over one folder of snapshots.
pub(crate) struct Guard {
    inner: DefaultExecutionEngine,
    /// The folder as plans name it, and without any link.
    snapshots: ListingTableUrl,
    folder: PathBuf,
}

impl Guard {
    pub(crate) fn new(snapshots: &Path) -> Result<Self> {
        let name = snapshots.to_str().ok_or_else(|| refused("its name is no text"))?;
        // The library reads these as a pattern, and a plan's files would lie somewhere else.
        if name.contains(['*', '?', '[']) {
            return Err(refused("its name has one of * ? ["));
        }
        let folder = snapshots.canonicalize()?;
        if folder.parent().is_none() {
            return Err(refused("it is the root of the file system"));
        }
        Ok(Self { inner: DefaultExecutionEngine::new(), snapshots: ListingTableUrl::parse(format!("{name}/"))?, folder })
    }

    /// Refuses a stage that does anything but sum blocks, or make a list of what was sealed.
    fn check(&self, job: &JobId, stage: &dyn ExecutionPlan, work: &str) -> Result<()> {
        if !is_a_name(job) {
            return Err(refused("a job has a name that no folder has"));
        }
        match (stage.is::<ShuffleWriterExec>(), &*stage.children()) {
            // The library gives it the job's own folder.
            (true, [sum]) => self.check_sum(job, sum.as_ref(), work),
            _ => Err(unknown(stage)),
        }
    }

    /// Our function over blocks, or over sealed sums.
    fn check_sum(&self, job: &JobId, plan: &dyn ExecutionPlan, work: &str) -> Result<()> {
        let sum = plan.downcast_ref::<AggregateExec>().filter(|sum| is_plain(sum)).ok_or_else(|| unknown(plan))?;
        match sum.mode() {
            AggregateMode::Partial | AggregateMode::Single => {
                let scan = sum.input().downcast_ref::<DataSourceExec>().and_then(|scan| scan.downcast_to_file_source::<ParquetSource>());
                let known = scan.is_some_and(|(files, parquet)| self.are_blocks(sum.input().schema().as_ref(), files, parquet));
                if known { Ok(()) } else { Err(unknown(sum.input().as_ref())) }
            }
            AggregateMode::Final => {
                let input = sum.input();
                let input = input.downcast_ref::<CoalescePartitionsExec>().map_or(input, |all| all.input());
                match input.downcast_ref::<ShuffleReaderExec>() {
                    Some(reader) if is_of_job(reader, job, work) => Ok(()),
                    Some(_) => Err(unknown(input.as_ref())),
                    // Both steps in one process.
                    None => self.check_sum(job, input.as_ref(), work),
                }
            }
            _ => Err(unknown(plan)),
        }
    }

    /// A scan of whole columns, and of files that are a snapshot's.
    fn are_blocks(&self, schema: &Schema, files: &FileScanConfig, parquet: &ParquetSource) -> bool {
        let source: &dyn datafusion::datasource::physical_plan::FileSource = parquet;
        let columns = source.projection().is_none_or(|columns| columns.as_ref().iter().all(|column| is_column(&column.expr)));
        let all = source.filter().is_none() && files.limit.is_none();
        let same = schema.fields().iter().zip(visit::fields()).all(|(a, b)| a.name() == b.name() && a.data_type() == b.data_type());
        let of_snapshot = || files.file_groups.iter().flat_map(|group| group.iter()).all(|file| self.is_of_a_snapshot(file));
        columns && all && same && schema.fields().len() == 3 && files.object_store_url == self.snapshots.object_store() && of_snapshot()
    }

    /// Exactly `snapshot-‹64 digits›/units-‹6 digits›.parquet`, below the folder, and by no link.
    fn is_of_a_snapshot(&self, file: &PartitionedFile) -> bool {
        let Some(below) = file.path().prefix_match(self.snapshots.prefix()) else { return false };
        let below: Vec<_> = below.collect();
        let [snapshot, units] = &*below else { return false };
        let (snapshot, units) = (snapshot.as_ref(), units.as_ref());
        let named = snapshot.strip_prefix("snapshot-").is_some_and(|name| name.len() == 64 && name.bytes().all(|b| b.is_ascii_hexdigit()))
            && units
                .strip_prefix("units-")
                .and_then(|name| name.strip_suffix(".parquet"))
                .is_some_and(|number| number.len() >= 6 && number.bytes().all(|b| b.is_ascii_digit()));
        let path = self.folder.join(snapshot).join(units);
        named && file.partition_values.is_empty() && path.canonicalize().is_ok_and(|real| real == path && real.is_file())
    }
}

/// One call of our function over columns as they are.
fn is_plain(sum: &AggregateExec) -> bool {
    let [call] = sum.aggr_expr() else { return false };
    call.fun().inner().is::<TermSum>()
        && call.expressions().iter().all(is_column)
        && !call.is_distinct()
        && call.order_bys().is_empty()
        && sum.group_expr().is_empty()
        && sum.filter_expr().iter().all(Option::is_none)
        && sum.limit_options().is_none()
}

fn is_column(expression: &Arc<dyn PhysicalExpr>) -> bool {
    expression.is::<Column>()
}

/// What executors sealed for this job: one column of lists, in the job's own folder.
fn is_of_job(reader: &ShuffleReaderExec, job: &JobId, work: &str) -> bool {
    let schema = reader.schema();
    let lists = matches!(&**schema.fields(), [list] if *list.data_type() == DataType::Binary);
    let inside = |path: PathBuf| {
        path.strip_prefix(work).is_ok_and(|below| below.components().all(|component| matches!(component, Component::Normal(_))))
    };
    lists && reader.partition.iter().flatten().all(|location| location.partition_id.job_id == *job && location.path(work).is_ok_and(inside))
}

/// Whether a job has a name that one folder has, and no path.
pub(crate) fn is_a_name(job: &JobId) -> bool {
    let name = job.as_str();
    !name.is_empty() && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '-' || c == '_')
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
        self.check(&job, plan.as_ref(), work)?;
        self.inner.create_query_stage_exec(job, stage, task, partitions, plan, work, config)
    }
}

fn unknown(plan: &dyn ExecutionPlan) -> DataFusionError {
    refused(format!("{} is no part of a sum over a snapshot", plan.name()))
}

fn refused(why: impl std::fmt::Display) -> DataFusionError {
    DataFusionError::Execution(format!("refused: {why}"))
}

#[cfg(test)]
mod tests;
