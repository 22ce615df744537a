#![allow(clippy::unwrap_used)]

use std::fs;

use ballista_core::serde::scheduler::{
    ExecutorMetadata, ExecutorOperatingSystemSpecification, ExecutorSpecification, PartitionId, PartitionLocation, PartitionStats,
};
use datafusion::arrow::array::{BinaryArray, RecordBatch};
use datafusion::arrow::datatypes::Field;
use datafusion::arrow::ipc::writer::StreamWriter;
use datafusion::datasource::physical_plan::{CsvSource, FileScanConfigBuilder};
use datafusion::datasource::table_schema::TableSchema;
use datafusion::execution::TaskContext;
use datafusion::execution::object_store::ObjectStoreUrl;
use datafusion::logical_expr::{AggregateUDF, Expr, ExprFunctionExt};
use datafusion::physical_expr::Partitioning;
use datafusion::physical_expr::expressions::lit as physical_lit;
use datafusion::physical_plan::aggregates::PhysicalGroupBy;
use datafusion::prelude::{CsvReadOptions, ParquetReadOptions, SessionConfig, SessionContext, col, lit};

use super::*;

type Plan = Arc<dyn ExecutionPlan>;

const WORK: &str = "/work";

fn job() -> JobId {
    "job-1".into()
}

/// A stage of the job: one writer over a plan.
fn stage(plan: Plan) -> Plan {
    // The library gives it the executor's folder later.
    Arc::new(ShuffleWriterExec::try_new(job(), 1, plan, String::new()).unwrap())
}

fn said(guard: &Guard, plan: Plan) -> Option<String> {
    guard.check(&job(), stage(plan).as_ref(), WORK).err().map(|e| e.to_string())
}

/// A folder of snapshots with one of them, and a guard over it.
struct Site {
    folder: tempfile::TempDir,
    session: SessionContext,
    guard: Guard,
}

const FILE: &str = "units-000000.parquet";

fn name() -> String {
    format!("snapshot-{}", "0f".repeat(32))
}

impl Site {
    async fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let session = SessionContext::new_with_config(visit::settings(SessionConfig::new(), 4));
        // Files with a snapshot's columns, made by the library.
        let rows = "SELECT CAST(0 AS BIGINT) AS first, CAST(1 AS INT) AS units, CAST('00' AS BYTEA) AS sealed";
        for parent in ["snapshots", "other"] {
            let file = folder.path().join(parent).join(name()).join(FILE);
            fs::create_dir_all(file.parent().unwrap()).unwrap();
            session.sql(rows).await.unwrap().write_parquet(file.to_str().unwrap(), Default::default(), None).await.unwrap();
        }
        let guard = Guard::new(&folder.path().join("snapshots")).unwrap();
        Self { folder, session, guard }
    }

    fn snapshot(&self) -> PathBuf {
        self.folder.path().join("snapshots").join(name())
    }

    async fn sum(&self, snapshot: &Path) -> Plan {
        visit::plan(&self.session, b"question", None, snapshot).unwrap().create_physical_plan().await.unwrap()
    }

    /// Our function over the snapshot, called in another way.
    async fn calling(&self, call: impl FnOnce(Expr) -> Expr, arguments: Vec<Expr>) -> Plan {
        let table = self.session.read_parquet(self.snapshot().to_str().unwrap(), ParquetReadOptions::default()).await.unwrap();
        let call = call(AggregateUDF::from(TermSum::new(b"question", None)).call(arguments));
        table.aggregate(Vec::new(), vec![call]).unwrap().create_physical_plan().await.unwrap()
    }
}

/// The first node of a kind, from the top.
fn find<T: ExecutionPlan>(plan: &Plan) -> Plan {
    if plan.is::<T>() { Arc::clone(plan) } else { find::<T>(plan.children()[0]) }
}

/// What is summed in the first step, and the same over another input.
fn partial(sum: &Plan) -> (Plan, impl Fn(Plan) -> Plan) {
    let scan = find::<DataSourceExec>(sum);
    let first = sum.downcast_ref::<AggregateExec>().unwrap().clone();
    let over = move |input: Plan| -> Plan {
        let (call, schema) = (first.aggr_expr().to_vec(), input.schema());
        Arc::new(AggregateExec::try_new(AggregateMode::Partial, PhysicalGroupBy::default(), call, vec![None], input, schema).unwrap())
    };
    (scan, over)
}

#[tokio::test]
async fn only_sums_over_a_snapshot_are_computed() {
    let site = Site::new().await;
    let wanted = site.sum(&site.snapshot()).await;
    let said = |plan| said(&site.guard, plan);
    assert_eq!(said(Arc::clone(&wanted)), None);
    let other = said(site.sum(&site.folder.path().join("other").join(name())).await).unwrap();
    assert!(other.contains("DataSourceExec"), "{other}");
    // A text file, another function over a snapshot's own file, and rows out of nothing.
    let text = site.folder.path().join("site.csv");
    fs::write(&text, "a\n1\n").unwrap();
    let text = site.session.read_csv(text.to_str().unwrap(), CsvReadOptions::new()).await.unwrap();
    site.session.register_parquet("t", site.snapshot().to_str().unwrap(), ParquetReadOptions::default()).await.unwrap();
    let plans = [text, site.session.sql("SELECT max(first) FROM t").await.unwrap(), site.session.sql("SELECT 1").await.unwrap()];
    for plan in plans {
        let plan = plan.create_physical_plan().await.unwrap();
        assert!(said(Arc::clone(&plan)).is_some(), "{plan:?}");
    }
    // The blocks themselves, a second list of lists, and a file that is not Parquet below our function.
    let (scan, over) = partial(&wanted);
    assert_eq!(said(over(Arc::clone(&scan))), None);
    assert!(said(Arc::clone(&scan)).unwrap().contains("DataSourceExec"));
    assert!(said(Arc::new(CoalescePartitionsExec::new(Arc::clone(&scan)))).unwrap().contains("CoalescePartitionsExec"));
    let columns = TableSchema::from(scan.schema());
    let text = FileScanConfigBuilder::new(ObjectStoreUrl::parse("file:///").unwrap(), Arc::new(CsvSource::new(columns)));
    assert!(said(over(Arc::new(DataSourceExec::new(Arc::new(text.build()))))).is_some());
}

/// A writer further below would write where the plan says.
#[tokio::test]
async fn a_stage_has_one_writer_at_its_top() {
    let site = Site::new().await;
    let wanted = site.sum(&site.snapshot()).await;
    let check = |plan: &Plan| site.guard.check(&job(), plan.as_ref(), WORK);
    assert!(check(&wanted).is_err());
    assert!(check(&stage(Arc::clone(&wanted))).is_ok());
    assert!(check(&stage(stage(Arc::clone(&wanted)))).unwrap_err().to_string().contains("ShuffleWriterExec"));
    let (scan, over) = partial(&wanted);
    assert!(check(&stage(over(stage(scan)))).is_err());
    for name in ["", "..", "/etc", "a/b", "a.b"] {
        assert!(site.guard.check(&name.into(), stage(Arc::clone(&wanted)).as_ref(), WORK).is_err(), "{name}");
    }
}

/// No filter, expression, order or limit chooses what is summed.
#[tokio::test]
async fn blocks_are_summed_as_they_are() {
    let site = Site::new().await;
    let said = |plan| said(&site.guard, plan);
    let columns = || vec![col("first"), col("units"), col("sealed")];
    assert_eq!(said(site.calling(|call| call, columns()).await), None);
    assert!(said(site.calling(|call| call.filter(col("first").gt(lit(3_i64))).build().unwrap(), columns()).await).is_some());
    assert!(said(site.calling(|call| call.distinct().build().unwrap(), columns()).await).is_some());
    assert!(said(site.calling(|call| call.order_by(vec![col("first").sort(true, true)]).build().unwrap(), columns()).await).is_some());
    assert!(said(site.calling(|call| call, vec![col("first") + lit(1_i64), col("units"), col("sealed")]).await).is_some());
    assert!(said(site.calling(|call| call, vec![col("first"), lit(7_i32), col("sealed")]).await).is_some());
    // The same over a scan that leaves rows out.
    let sum = site.sum(&site.snapshot()).await;
    let (scan, over) = partial(&sum);
    let (files, parquet) = scan.downcast_ref::<DataSourceExec>().unwrap().downcast_to_file_source::<ParquetSource>().unwrap();
    let builder = || FileScanConfigBuilder::from(files.clone());
    let scanned = |builder: FileScanConfigBuilder| over(Arc::new(DataSourceExec::new(Arc::new(builder.build()))));
    assert_eq!(said(scanned(builder())), None);
    assert!(said(scanned(builder().with_limit(Some(1)))).is_some());
    assert!(said(scanned(builder().with_source(Arc::new(parquet.with_predicate(physical_lit(true)))))).is_some());
}

/// Files of exactly the names that a head gives, by no link.
#[tokio::test]
async fn a_file_is_one_that_a_head_wrote() {
    let site = Site::new().await;
    let file = site.snapshot().join(FILE);
    let said = |plan| said(&site.guard, plan);
    let beside = |snapshot: &str, name: &str| {
        let path = site.folder.path().join("snapshots").join(snapshot).join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        path
    };
    let names = [
        (format!("snapshot-{}", "0".repeat(64)), FILE, true),
        (format!("snapshot-{}", "1".repeat(63)), FILE, false),
        ("other".to_owned(), FILE, false),
        (format!("snapshot-{}", "2".repeat(64)), "0.parquet", false),
        (format!("snapshot-{}", "3".repeat(64)), "units-00000x.parquet", false),
        (format!("snapshot-{}/deeper", "4".repeat(64)), FILE, false),
    ];
    for (snapshot, name, taken) in names {
        let path = beside(&snapshot, name);
        fs::copy(&file, &path).unwrap();
        assert_eq!(said(site.sum(path.parent().unwrap()).await).is_none(), taken, "{}", path.display());
    }
    let path = beside(&format!("snapshot-{}", "5".repeat(64)), FILE);
    std::os::unix::fs::symlink(&file, &path).unwrap();
    assert!(said(site.sum(path.parent().unwrap()).await).is_some(), "a link to a file");
    let link = site.folder.path().join("snapshots").join(format!("snapshot-{}", "6".repeat(64)));
    std::os::unix::fs::symlink(site.snapshot(), &link).unwrap();
    assert!(said(site.sum(&link).await).is_some(), "a link to a folder");
}

#[test]
fn a_folder_that_is_a_pattern_or_everything_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    for name in ["a*", "a?", "a[b]"] {
        let path = folder.path().join(name);
        fs::create_dir(&path).unwrap();
        assert!(Guard::new(&path).err().unwrap().to_string().contains("* ? ["), "{name}");
    }
    assert!(Guard::new(Path::new("/")).err().unwrap().to_string().contains("root"));
    assert!(Guard::new(&folder.path().join("none")).is_err());
    assert!(Guard::new(folder.path()).is_ok());
}

fn reader(job: &str, schema: Schema, work: &Path) -> ShuffleReaderExec {
    let system = ExecutorOperatingSystemSpecification::default();
    let executor_meta = ExecutorMetadata {
        id: "executor".into(),
        host: "localhost".into(),
        port: 1,
        grpc_port: 1,
        specification: ExecutorSpecification::default(),
        os_info: system,
    };
    let location = PartitionLocation {
        map_partition_id: 0,
        partition_id: PartitionId { job_id: job.into(), stage_id: 1, partition_id: 0 },
        executor_meta,
        partition_stats: PartitionStats::default(),
        file_id: None,
        is_sort_shuffle: false,
    };
    let reader = ShuffleReaderExec::try_new(1, vec![vec![location]], Arc::new(schema), Partitioning::UnknownPartitioning(1)).unwrap();
    reader.with_work_dir(work.to_str().unwrap().into())
}

fn lists() -> Schema {
    Schema::new(vec![Field::new("state", DataType::Binary, true)])
}

/// What is read from other executors is this job's, and goes into one list.
#[tokio::test]
async fn what_others_sealed_is_put_into_one_list() {
    let site = Site::new().await;
    let said = |plan| said(&site.guard, plan);
    let wanted = site.sum(&site.snapshot()).await;
    let sum = wanted.downcast_ref::<AggregateExec>().unwrap();
    let over = |input: Plan| -> Plan {
        let call = sum.aggr_expr().to_vec();
        let schema = sum.input_schema();
        Arc::new(AggregateExec::try_new(AggregateMode::Final, PhysicalGroupBy::default(), call, vec![None], input, schema).unwrap())
    };
    let read = |job: &str, schema: Schema| -> Plan { Arc::new(reader(job, schema, Path::new(WORK))) };
    let all = |input: Plan| -> Plan { Arc::new(CoalescePartitionsExec::new(input)) };
    assert_eq!(said(over(read("job-1", lists()))), None);
    assert_eq!(said(over(all(read("job-1", lists())))), None);
    for job in ["job-2", "../job-1", "/work/job-1", ""] {
        assert!(said(over(all(read(job, lists())))).unwrap().contains("ShuffleReaderExec"), "{job}");
    }
    for data in [DataType::Utf8, DataType::BinaryView, DataType::LargeBinary] {
        assert!(said(over(read("job-1", Schema::new(vec![Field::new("state", data, true)])))).is_some());
    }
    assert!(said(read("job-1", lists())).is_some(), "handed on as it is");
    assert!(said(all(read("job-1", lists()))).is_some());
    // In place of the blocks.
    let (_, first) = partial(&wanted);
    let blocks = Schema::new(visit::fields().to_vec());
    assert!(said(first(read("job-1", blocks))).is_some());
}

/// Ballista hands on what it fetched unvalidated. Offsets that lead out of the values would be read from this process's memory.
#[tokio::test]
async fn lists_whose_offsets_lie_are_refused() {
    let work = tempfile::tempdir().unwrap();
    let file = work.path().join("job-1/1/0/data.arrow");
    fs::create_dir_all(file.parent().unwrap()).unwrap();
    let schema = Arc::new(lists());
    let list = vec![7_u8; 0x123];
    let batch = RecordBatch::try_new(Arc::clone(&schema), vec![Arc::new(BinaryArray::from(vec![Some(&*list)]))]).unwrap();
    let mut bytes = Vec::new();
    let mut writer = StreamWriter::try_new(&mut bytes, &schema).unwrap();
    writer.write(&batch).unwrap();
    writer.finish().unwrap();
    drop(writer);
    let read = async |bytes: &[u8]| {
        fs::write(&file, bytes).unwrap();
        let plan = Arc::new(reader("job-1", lists(), work.path()));
        datafusion::physical_plan::collect(plan, Arc::new(TaskContext::default())).await
    };
    assert_eq!(read(&bytes).await.unwrap(), [batch]);
    let offsets = [0_i32.to_le_bytes(), 0x123_i32.to_le_bytes()].concat();
    // The last of these bytes: the message's head, which says how long the values are, comes before its body.
    let place = (0..bytes.len() - 8).rfind(|place| bytes[*place..place + 8] == offsets).unwrap();
    for end in [0x124_i32, 0x10_0000, i32::MAX, -1] {
        bytes[place + 4..place + 8].copy_from_slice(&end.to_le_bytes());
        let said = read(&bytes).await.unwrap_err().to_string();
        assert!(said.to_lowercase().contains("offset"), "{said}");
    }
}
