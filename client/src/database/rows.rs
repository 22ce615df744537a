//! The rows, batch by batch, into a Parquet file of texts.

use std::fs::File;
use std::path::Path;
use std::sync::Arc;

use dp_pvi_data::NUMBERS;
use dp_pvi_programs::problem::Problem;
use dp_pvi_protocol::origin::Origin as Declared;
use parquet::basic::{Compression, ConvertedType, LogicalType, Repetition, Type as Physical};
use parquet::data_type::{ByteArray, ByteArrayType};
use parquet::errors::ParquetError;
use parquet::file::metadata::KeyValue;
use parquet::file::properties::WriterProperties;
use parquet::file::reader::{FileReader, SerializedFileReader};
use parquet::file::writer::SerializedFileWriter;
use parquet::schema::types::Type;

use super::Origin;
use super::catalogue::Catalogue;
use super::columns::{self, Text};
use super::connection::{Access, BATCH, Connection};
use super::person;
use super::streams::{LONGEST_PERSON, Stream};
use crate::config::Database;
use crate::error::{ClientError, Result};
use dp_pvi_description::Description;
use dp_pvi_description::select;

/// Name under which a file of rows says where they come from.
const ORIGIN: &str = "dp-pvi rows";
/// Bytes of one row group.
const GROUP: usize = 1 << 26;
/// Cells of one row group: what is in memory at once, here and when the file is read.
const CELLS: usize = 1 << 18;
/// Encodings whose texts always have a UTF-8 form, in the same order.
const ENCODINGS: [&str; 2] = ["UTF8", "LATIN1"];

/// Writes the rows to `file`. Those of a description have the person's key in `unit_column`, if there is one.
///
/// # Errors
/// See [`super::fetch`].
pub(super) async fn write(database: &Database, origin: &Origin, unit_column: Option<&str>, file: &mut File) -> Result<()> {
    match origin {
        Origin::Description(description) => described(database, origin, description, unit_column, file).await,
        Origin::Query(query) => queried(database, origin, query, file).await,
    }
}

async fn described(
    database: &Database,
    origin: &Origin,
    description: &Description,
    unit_column: Option<&str>,
    file: &mut File,
) -> Result<()> {
    let access = Access::Described { row_security: description.vouched.is_empty() };
    let connection = Connection::open(database, access).await?;
    let place = database.rows.file().display().to_string();
    if let Err(error) = connection.hold(&select::locks(description)).await {
        // What is no table cannot be locked: the catalogue has the better words for it.
        let other = Connection::open(database, access).await?;
        Catalogue::read(&other, description, place.clone()).await?.plan()?;
        return Err(error);
    }
    let encoding = connection.ask("SHOW server_encoding").await?;
    let encoding = encoding.first().and_then(|row| row.try_get(0).ok().flatten());
    if !encoding.is_some_and(|encoding| ENCODINGS.contains(&encoding)) {
        return Err(ClientError::Refused(
            format!(
                "{place}: the database's encoding is {}, in which a text may have no form that this program can read: it must be {}",
                encoding.unwrap_or("unknown"),
                ENCODINGS.join(" or ")
            )
            .into(),
        ));
    }
    if encoding == Some("LATIN1") && !description.is_latin() {
        return Err(ClientError::Refused(
            format!("{place}: the database's encoding is Latin-1, and a name or constant has a letter that it lacks").into(),
        ));
    }
    let plan = Catalogue::read(&connection, description, place.clone()).await?.plan()?;
    let mut streams = Vec::with_capacity(plan.sources.len());
    for (place, planned) in plan.sources.iter().enumerate() {
        streams.push(Stream::open(&connection, planned, place).await?);
    }
    // A new index or partition may have come before its table's question was planned. This transaction does not see it, another one does.
    let again = Connection::open(database, access).await?;
    if Catalogue::read(&again, description, place.clone()).await?.plan()? != plan {
        let changed = format!("{place}: the form of a table changed while it was read: start again");
        return Err(ClientError::Unavailable(Problem::from(changed)));
    }
    drop(again);
    let columns = description.columns.iter().map(|column| (column.name.as_str(), person::has_numbers(column, description, &plan)));
    let columns: Vec<(&str, bool)> = unit_column.map(|name| (name, false)).into_iter().chain(columns).collect();
    let mut writer = Writer::new(file, &columns, origin)?;
    while let Some(persons) = streams.first_mut() {
        let Some(key) = persons.next_key(&connection).await?.cloned() else { break };
        let mut groups = Vec::with_capacity(streams.len());
        let mut bytes = 0;
        for stream in &mut streams {
            let (group, of_group) = stream.take(&connection, &key, LONGEST_PERSON.saturating_sub(bytes)).await?;
            bytes += of_group;
            groups.push(group);
        }
        let id = unit_column.map(|_| key.text());
        person::rows(description, &plan, &mut groups, &mut |row| writer.row(id.iter().cloned().map(Some).chain(row)))?;
    }
    writer.close()?;
    connection.execute("COMMIT").await
}

async fn queried(database: &Database, origin: &Origin, query: &str, file: &mut File) -> Result<()> {
    let connection = Connection::open(database, Access::Query).await?;
    // One statement with a result, or an error: so the text can be the body of a cursor.
    let columns = columns::of(&connection.prepare(query).await?)?;
    connection.execute(&format!("DECLARE records NO SCROLL CURSOR FOR {query}")).await?;
    let named: Vec<(&str, bool)> = columns.iter().map(|column| (column.name.as_str(), column.text == Text::Number)).collect();
    let mut writer = Writer::new(file, &named, origin)?;
    loop {
        let answer = connection.ask(&format!("FETCH FORWARD {BATCH} FROM records")).await?;
        if answer.is_empty() {
            break;
        }
        for row in &answer {
            let mut cells = Vec::with_capacity(columns.len());
            for (place, column) in columns.iter().enumerate() {
                let cell = row.try_get(place).map_err(|e| connection.failed(&e))?;
                cells.push(cell.map(|cell| column.text.read(cell).into()));
            }
            writer.row(cells.into_iter())?;
        }
    }
    writer.close()?;
    connection.execute("COMMIT").await
}

/// Where the rows of a file that this program wrote come from.
///
/// # Errors
/// [`ClientError::Data`]: it does not say so.
pub(super) fn declared(path: &Path) -> Result<Declared> {
    let damaged = || ClientError::Data(format!("{}: is not what this program wrote: remove it and start again", path.display()).into());
    let reader = File::open(path).ok().and_then(|file| SerializedFileReader::new(file).ok()).ok_or_else(damaged)?;
    let values = reader.metadata().file_metadata().key_value_metadata().ok_or_else(damaged)?;
    let origin = values.iter().find(|value| value.key == ORIGIN).and_then(|value| value.value.as_deref()).ok_or_else(damaged)?;
    serde_json::from_str(origin).map_err(|_| damaged())
}

/// A Parquet file of optional texts.
struct Writer<'f> {
    /// Per column, the cells of the row group that is not written yet.
    cells: Vec<Vec<Option<ByteArray>>>,
    /// Their bytes.
    bytes: usize,
    most: usize,
    file: SerializedFileWriter<&'f mut File>,
}

impl<'f> Writer<'f> {
    /// `columns` are their names, and whether their texts are numbers that the database spelled.
    fn new(file: &'f mut File, columns: &[(&str, bool)], origin: &Origin) -> Result<Self> {
        let numbers = columns.iter().enumerate().filter(|(_, (_, is_number))| *is_number).map(|(place, _)| place.to_string());
        let numbers = numbers.collect::<Vec<_>>().join(" ");
        let origin = serde_json::to_string(&origin.declared()).map_err(|e| ClientError::Failed(Problem::of(e)))?;
        let fields = columns.iter().map(|(column, _)| {
            Type::primitive_type_builder(column, Physical::BYTE_ARRAY)
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
            .set_key_value_metadata(Some(vec![KeyValue::new(ORIGIN.to_owned(), origin), KeyValue::new(NUMBERS.to_owned(), numbers)]))
            .set_statistics_enabled(parquet::file::properties::EnabledStatistics::None);
        let file = SerializedFileWriter::new(file, Arc::new(schema), Arc::new(properties.build())).map_err(failed)?;
        let (cells, most) = (columns.iter().map(|_| Vec::new()).collect(), (CELLS / columns.len()).max(1));
        Ok(Self { cells, bytes: 0, most, file })
    }

    /// One row more: a cell for every column.
    fn row(&mut self, row: impl Iterator<Item = person::Cell>) -> Result<()> {
        for (cells, cell) in self.cells.iter_mut().zip(row) {
            self.bytes += cell.as_ref().map_or(0, |cell| cell.len());
            cells.push(cell.map(|cell| cell.into_string().into_bytes().into()));
        }
        if self.bytes >= GROUP || self.cells.first().is_some_and(|cells| cells.len() >= self.most) { self.group() } else { Ok(()) }
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
        self.bytes = 0;
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
            ClientError::Unavailable(format!("the rows cannot be written to [site] state ({source}): is the disk full?").into())
        }
        _ => ClientError::Unavailable(Problem::from("the rows cannot be written to [site] state: is the disk full?")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_of_rows_says_where_they_come_from() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("rows.parquet");
        let description = "vouched = [\"v\"]\n[persons]\ntable = \"v\"\nkey = \"k\"\n[[columns]]\nname = \"x\"\nvalue = \"x\"\n";
        for origin in [Origin::Query("SELECT 1".into()), Origin::Description(Description::parse(description).unwrap())] {
            let mut file = File::create(&path).unwrap();
            let mut writer = Writer::new(&mut file, &[("x", true)], &origin).unwrap();
            writer.row(std::iter::once(Some("1".into()))).unwrap();
            writer.close().unwrap();
            assert_eq!(declared(&path).unwrap(), origin.declared());
        }
        std::fs::write(&path, "").unwrap();
        assert!(declared(&path).is_err());
    }
}
