//! The rows of the query, batch by batch, into a Parquet file of texts.

use std::fs::File;
use std::sync::Arc;

use dp_pvi_proto::problem::Problem;
use parquet::basic::{Compression, ConvertedType, LogicalType, Repetition, Type as Physical};
use parquet::data_type::{ByteArray, ByteArrayType};
use parquet::errors::ParquetError;
use parquet::file::properties::WriterProperties;
use parquet::file::writer::SerializedFileWriter;
use parquet::schema::types::Type;
use tokio_postgres::SimpleQueryMessage;
use tokio_postgres::error::SqlState;

use super::columns::{self, Column};
use super::connection::{self, Connection};
use super::query::Promised;
use crate::config::Database;
use crate::error::{ClientError, Result};

/// Rows that are asked for at once.
const BATCH: usize = 2_048;
/// Cells of one row group: what is in memory at once, here and when the file is read.
const CELLS: usize = 1 << 18;

/// Streams the rows of the query into `file`. With `persons` every table of the query that is not public must have the column of `unit_key`.
///
/// # Errors
/// See [`super::fetch`].
pub(super) async fn stream(database: &Database, query: &Promised, persons: bool, file: &mut File) -> Result<()> {
    let connection = connection::open(database).await?;
    let failed = |e: tokio_postgres::Error| connection::explain(database, &e);
    // A column's name alone: with the table's before it PostgreSQL would take a function of the row for a column.
    let keys = query.tables.iter().filter(|_| persons).map(|table| (table, &database.unit_key));
    for (table, column) in keys.chain(query.columns.iter().map(|(table, column)| (table, column))) {
        let quoted = column.replace('"', "\"\"");
        let alias = if column == "t" { "u" } else { "t" };
        let looked = connection.client.prepare(&format!("SELECT \"{quoted}\" FROM {table} AS {alias}")).await;
        looked.map_err(|error| match error.code() {
            Some(&SqlState::UNDEFINED_COLUMN) => {
                let what = if *column == database.unit_key {
                    "(unit_key), so it cannot be told whose its rows are: if it holds nothing of any person, name it in [database] public_tables; otherwise make a view \
                     of it that has the column"
                } else {
                    "and a function of its rows in that place is not followed: name a column, or make a view of it"
                };
                let place = database.query.display();
                ClientError::Refused(format!("{place}: the table {table} has no column `{column}` {what}").into())
            }
            _ => failed(error),
        })?;
    }
    let query = query.text.as_str();
    // One statement with a result, or an error: so the text can be the body of a cursor.
    let statement = connection.client.prepare(query).await.map_err(failed)?;
    let columns = columns::of(&statement)?;
    connection.client.batch_execute(&format!("DECLARE records NO SCROLL CURSOR FOR {query}")).await.map_err(failed)?;
    let mut writer = Writer::new(file, columns)?;
    fill(database, &connection, &mut writer).await?;
    writer.close()?;
    connection.client.batch_execute("COMMIT").await.map_err(failed)
}

async fn fill(database: &Database, connection: &Connection, writer: &mut Writer<'_>) -> Result<()> {
    let fetch = format!("FETCH FORWARD {BATCH} FROM records");
    loop {
        let answer = connection.client.simple_query(&fetch).await.map_err(|e| connection::explain(database, &e))?;
        let mut rows = 0;
        for message in &answer {
            let SimpleQueryMessage::Row(row) = message else { continue };
            for (position, column) in writer.columns.iter().enumerate() {
                let cell = row.try_get(position).map_err(|e| connection::explain(database, &e))?;
                writer.cells[position].push(cell.map(|cell| column.text.read(cell).as_bytes().to_vec().into()));
            }
            rows += 1;
            writer.row()?;
        }
        if rows == 0 {
            return Ok(());
        }
    }
}

/// A Parquet file of optional texts.
struct Writer<'f> {
    columns: Vec<Column>,
    /// Per column, the cells of the row group that is not written yet.
    cells: Vec<Vec<Option<ByteArray>>>,
    most: usize,
    file: SerializedFileWriter<&'f mut File>,
}

impl<'f> Writer<'f> {
    fn new(file: &'f mut File, columns: Vec<Column>) -> Result<Self> {
        let fields = columns.iter().map(|column| {
            Type::primitive_type_builder(&column.name, Physical::BYTE_ARRAY)
                .with_repetition(Repetition::OPTIONAL)
                .with_converted_type(ConvertedType::UTF8)
                .with_logical_type(Some(LogicalType::String))
                .build()
                .map(Arc::new)
        });
        let fields = fields.collect::<std::result::Result<Vec<_>, _>>().map_err(failed)?;
        let schema = Type::group_type_builder("records").with_fields(fields).build().map_err(failed)?;
        let properties = WriterProperties::builder()
            .set_compression(Compression::SNAPPY)
            .set_statistics_enabled(parquet::file::properties::EnabledStatistics::None);
        let file = SerializedFileWriter::new(file, Arc::new(schema), Arc::new(properties.build())).map_err(failed)?;
        let (cells, most) = (columns.iter().map(|_| Vec::new()).collect(), (CELLS / columns.len()).max(1));
        Ok(Self { columns, cells, most, file })
    }

    /// One row more in every column.
    fn row(&mut self) -> Result<()> {
        if self.cells.first().is_some_and(|cells| cells.len() >= self.most) { self.group() } else { Ok(()) }
    }

    fn group(&mut self) -> Result<()> {
        let mut group = self.file.next_row_group().map_err(failed)?;
        for cells in &mut self.cells {
            let Some(mut column) = group.next_column().map_err(failed)? else { break };
            let levels: Vec<i16> = cells.iter().map(|cell| i16::from(cell.is_some())).collect();
            let values: Vec<ByteArray> = cells.drain(..).flatten().collect();
            column.typed::<ByteArrayType>().write_batch(&values, Some(&levels), None).map_err(failed)?;
            column.close().map_err(failed)?;
        }
        group.close().map(drop).map_err(failed)
    }

    fn close(mut self) -> Result<()> {
        if self.cells.first().is_some_and(|cells| !cells.is_empty()) {
            self.group()?;
        }
        self.file.close().map(drop).map_err(failed)
    }
}

/// The library's messages are not passed on: they may quote a cell.
fn failed(error: ParquetError) -> ClientError {
    match error {
        ParquetError::External(source) if source.is::<std::io::Error>() => {
            ClientError::Unavailable(format!("the query's rows cannot be written to [site] state ({source}): is the disk full?").into())
        }
        _ => ClientError::Unavailable(Problem::from("the query's rows cannot be written to [site] state: is the disk full?")),
    }
}
