//! Hospitals of any size, straight into Parquet files: the cohort of [`hospitals`](super::hospitals), without ever being in memory.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::sync_channel;

use parquet::basic::Compression;
use parquet::column::writer::ColumnWriter;
use parquet::data_type::ByteArray;
use parquet::errors::ParquetError;
use parquet::file::properties::{EnabledStatistics, WriterProperties};
use parquet::file::writer::SerializedFileWriter;
use parquet::schema::parser::parse_message_type;

use super::cohort::{HospitalSummary, Stay, Ward, yes_no};
use super::files::WriteError;

/// Rows of a row group.
const GROUP: usize = 1 << 17;

/// Groups that are drawn ahead of the one that is written.
const AHEAD: usize = 2;

/// The columns of the CSV files, in their order. Words are written once for each row group and named by number.
const COLUMNS: &str = "message stays {
    required int32 stay (UINT_32);
    required int32 age (UINT_32);
    required binary male (UTF8);
    optional binary smoker (UTF8);
    required int32 systolic_pressure (UINT_32);
    optional double cholesterol;
    required binary diabetes (UTF8);
    required int32 prior_stays (UINT_32);
    required binary ward (UTF8);
    required binary cardiac_event (UTF8);
}";

/// Writes the stays of one hospital as they are drawn, on a thread beside the one that draws.
pub(super) fn write_stays(name: &str, stays: impl Iterator<Item = Stay> + Send, directory: &Path) -> Result<HospitalSummary, WriteError> {
    let path = directory.join(format!("{name}.parquet"));
    let file = File::create_new(&path).map_err(|source| match source.kind() {
        std::io::ErrorKind::AlreadyExists => WriteError::InTheWay(path.clone()),
        _ => WriteError::Io { path: path.clone(), source },
    })?;
    let (groups, written) = sync_channel::<Vec<Stay>>(AHEAD);
    std::thread::scope(|scope| {
        let path = &path;
        let writer = scope.spawn(move || {
            let failed = |error: ParquetError| WriteError::Io { path: PathBuf::from(path), source: std::io::Error::other(error) };
            let mut groups = Groups::new(file).map_err(failed)?;
            written.into_iter().try_for_each(|stays| groups.write(&stays)).map_err(failed)?;
            groups.end().map_err(failed)
        });
        let mut summary = HospitalSummary { name: name.to_owned(), rows: 0, events: 0 };
        let mut stays = stays;
        loop {
            let group: Vec<Stay> = stays.by_ref().take(GROUP).collect();
            summary.rows += group.len() as u64;
            summary.events += group.iter().filter(|stay| stay.cardiac_event).count() as u64;
            // A writer that is gone has an error to tell.
            if group.is_empty() || groups.send(group).is_err() {
                break;
            }
        }
        drop(groups);
        // It takes no lock and indexes nothing: it ends with a result.
        writer
            .join()
            .unwrap_or_else(|_| Err(WriteError::Io { path: path.clone(), source: std::io::Error::other("the writer ended early") }))?;
        Ok(summary)
    })
}

/// A file in the making.
struct Groups {
    file: SerializedFileWriter<File>,
    /// Number of the next stay.
    next: i32,
}

impl Groups {
    fn new(file: File) -> Result<Self, ParquetError> {
        let properties =
            WriterProperties::builder().set_compression(Compression::SNAPPY).set_statistics_enabled(EnabledStatistics::None).build();
        let file = SerializedFileWriter::new(file, Arc::new(parse_message_type(COLUMNS)?), Arc::new(properties))?;
        Ok(Self { file, next: 1 })
    }

    fn write(&mut self, stays: &[Stay]) -> Result<(), ParquetError> {
        #[allow(clippy::cast_possible_wrap, reason = "unsigned numbers are stored as their bits")]
        let numbers = |of: &dyn Fn(&Stay) -> u32| -> Vec<i32> { stays.iter().map(|stay| of(stay).cast_signed()).collect() };
        let words = |of: &dyn Fn(&Stay) -> &'static str| -> Vec<ByteArray> { stays.iter().map(|stay| ByteArray::from(of(stay))).collect() };
        let present = |of: &dyn Fn(&Stay) -> bool| -> Vec<i16> { stays.iter().map(|stay| i16::from(of(stay))).collect() };
        let first = self.next;
        #[allow(clippy::cast_possible_truncation, clippy::cast_possible_wrap, reason = "a group is small, and numbers go round")]
        let group = stays.len() as i32;
        self.next = first.wrapping_add(group);
        let mut row_group = self.file.next_row_group()?;
        let mut column = 0;
        while let Some(mut writer) = row_group.next_column()? {
            match (column, writer.untyped()) {
                (0, ColumnWriter::Int32ColumnWriter(to)) => {
                    let numbered: Vec<i32> = (0..group).map(|i| first.wrapping_add(i)).collect();
                    to.write_batch(&numbered, None, None)?;
                }
                (1, ColumnWriter::Int32ColumnWriter(to)) => _ = to.write_batch(&numbers(&|stay| stay.age), None, None)?,
                (2, ColumnWriter::ByteArrayColumnWriter(to)) => _ = to.write_batch(&words(&|stay| yes_no(stay.male)), None, None)?,
                (3, ColumnWriter::ByteArrayColumnWriter(to)) => {
                    let asked: Vec<ByteArray> = stays.iter().filter_map(|stay| stay.smoker).map(|s| ByteArray::from(yes_no(s))).collect();
                    to.write_batch(&asked, Some(&present(&|stay| stay.smoker.is_some())), None)?;
                }
                (4, ColumnWriter::Int32ColumnWriter(to)) => _ = to.write_batch(&numbers(&|stay| stay.systolic_pressure), None, None)?,
                (5, ColumnWriter::DoubleColumnWriter(to)) => {
                    // The double next to the decimal number: division rounds correctly, as reading the text does.
                    let measured: Vec<f64> = stays.iter().filter_map(|stay| stay.cholesterol_tenths).map(|t| f64::from(t) / 10.0).collect();
                    to.write_batch(&measured, Some(&present(&|stay| stay.cholesterol_tenths.is_some())), None)?;
                }
                (6, ColumnWriter::ByteArrayColumnWriter(to)) => _ = to.write_batch(&words(&|stay| yes_no(stay.diabetes)), None, None)?,
                (7, ColumnWriter::Int32ColumnWriter(to)) => _ = to.write_batch(&numbers(&|stay| stay.prior_stays), None, None)?,
                (8, ColumnWriter::ByteArrayColumnWriter(to)) => _ = to.write_batch(&words(&|stay| Ward::name(stay.ward)), None, None)?,
                (9, ColumnWriter::ByteArrayColumnWriter(to)) => {
                    _ = to.write_batch(&words(&|stay| yes_no(stay.cardiac_event)), None, None)?
                }
                _ => unreachable!("the columns are those of COLUMNS"),
            }
            writer.close()?;
            column += 1;
        }
        row_group.close()?;
        Ok(())
    }

    fn end(self) -> Result<(), ParquetError> {
        self.file.close().map(|_| ())
    }
}
