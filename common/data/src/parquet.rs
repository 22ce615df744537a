//! Parquet: flat columns of integers, floating point numbers, truth values and text, some thousand rows at a time.

use crate::error::DataError;
use ::parquet::basic::{ConvertedType, LogicalType, TimeUnit, Type};
use ::parquet::column::reader::{ColumnReader, ColumnReaderImpl};
use ::parquet::data_type::{ByteArray, DataType};
use ::parquet::errors::ParquetError;
use ::parquet::file::reader::{FileReader, SerializedFileReader};
use ::parquet::schema::types::{ColumnDescPtr, ColumnDescriptor};
use dp_pvi_records::{CellValue, Row, Source, Visitor};
use dp_pvi_schema::{Column, ColumnKind, Schema, dates};
use std::collections::HashSet;
use std::fs::File;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;

const DAMAGED: &str = "the file is damaged or uses a feature that is not supported; write it again, for example with pandas or DuckDB \
                       (uncompressed or with Snappy compression)";

/// How the stored numbers of a column are meant.
#[derive(Clone, Copy)]
enum Meaning {
    Signed,
    Unsigned,
    /// Whole numbers of which so many are a day, from 1970-01-01 on.
    Days(i64),
    Other,
}

/// Rows that are decoded at once: whatever the size of a row group, memory stays small.
const BATCH: usize = 1 << 13;

/// The values of one column in some rows; `None` is null.
enum Values {
    Boolean(Vec<Option<bool>>),
    Integer(Vec<Option<i128>>),
    Number(Vec<Option<f64>>),
    Text(Vec<Option<ByteArray>>),
}

/// One row of some, seen through the schema's fields.
struct Slice<'a> {
    /// Per field.
    columns: &'a [Option<Values>],
    row: usize,
}

impl Row for Slice<'_> {
    fn cell(&self, field: usize) -> CellValue<'_> {
        let cell = match &self.columns[field] {
            None => None,
            Some(Values::Boolean(values)) => values[self.row].map(CellValue::Boolean),
            Some(Values::Integer(values)) => values[self.row].map(CellValue::Integer),
            Some(Values::Number(values)) => values[self.row].map(CellValue::Number),
            Some(Values::Text(values)) => values[self.row].as_ref().map(|text| CellValue::Text(text.data())),
        };
        cell.unwrap_or(CellValue::Null)
    }
}

/// A Parquet file as a table.
pub(crate) struct ParquetTable<'a> {
    path: &'a Path,
    reader: SerializedFileReader<File>,
    /// Names of the columns that the schema reads as dates.
    dates: HashSet<&'a str>,
}

impl<'a> ParquetTable<'a> {
    /// The table in `file`, which messages call `path`.
    pub(crate) fn open(path: &'a Path, file: File, schema: &'a Schema) -> Result<Self, DataError> {
        let reader = guarded(|| SerializedFileReader::new(file)).map_err(|_| damaged(path))?;
        let of_date =
            |column: &'a Column| matches!(&column.kind, ColumnKind::Number(rule) if rule.date.is_some()).then_some(column.name.as_str());
        Ok(Self { path, reader, dates: schema.columns().iter().filter_map(of_date).collect() })
    }

    fn leaves(&self) -> &[ColumnDescPtr] {
        self.reader.metadata().file_metadata().schema_descr().columns()
    }
}

/// The library's messages are not passed on: they may quote what a page holds.
fn damaged(path: &Path) -> DataError {
    DataError::Parquet { path: path.to_owned(), problem: DAMAGED }
}

impl Source for ParquetTable<'_> {
    type Error = DataError;

    fn name(&self) -> &Path {
        self.path
    }

    fn columns(&mut self) -> Result<Vec<Vec<u8>>, DataError> {
        let leaves = self.leaves();
        Ok(first_leaves(leaves).into_iter().map(|leaf| first_name(&leaves[leaf]).as_bytes().to_vec()).collect())
    }

    fn visit(&mut self, fields: &[Option<usize>], visitor: &mut impl Visitor) -> Result<(), DataError> {
        let damaged = || damaged(self.path);
        let columns = self.leaves();
        // From top-level names back to leaves; a nested column that is asked for is refused.
        let leaves = first_leaves(columns);
        let asked = fields.iter().map(|field| {
            let Some(leaf) = field.map(|position| leaves[position]) else { return Ok(None) };
            let stored =
                |stored| DataError::ColumnType { path: self.path.to_owned(), column: first_name(&columns[leaf]).to_owned(), stored };
            let days = units_of_day(&columns[leaf]).filter(|_| self.dates.contains(first_name(&columns[leaf])));
            let meaning = days.map_or_else(|| meaning(&columns[leaf]).map_err(stored), |units| Ok(Meaning::Days(units)))?;
            Ok(Some((leaf, meaning)))
        });
        let asked: Vec<Option<(usize, Meaning)>> = asked.collect::<Result<_, DataError>>()?;
        for group in 0..self.reader.num_row_groups() {
            let group = guarded(|| self.reader.get_row_group(group)).map_err(|_| damaged())?;
            let rows = usize::try_from(group.metadata().num_rows()).map_err(|_| damaged())?;
            let reader = |leaf| guarded(|| group.get_column_reader(leaf)).map_err(|_| damaged());
            let readers = asked.iter().map(|asked| asked.map(|(leaf, meaning)| Ok((reader(leaf)?, meaning))).transpose());
            let mut readers: Vec<Option<(ColumnReader, Meaning)>> = readers.collect::<Result<_, DataError>>()?;
            for start in (0..rows).step_by(BATCH) {
                let batch = BATCH.min(rows - start);
                let mut values = Vec::with_capacity(readers.len());
                for reader in &mut readers {
                    values.push(match reader {
                        None => None,
                        Some((reader, meaning)) => {
                            let values = guarded(|| read_column(reader, *meaning, batch)).map_err(|_| damaged())?;
                            if values.len() != batch {
                                return Err(damaged());
                            }
                            Some(values)
                        }
                    });
                }
                for row in 0..batch {
                    if visitor.row(&Slice { columns: &values, row }).is_break() {
                        return Ok(());
                    }
                }
            }
        }
        Ok(())
    }
}

/// The name of the top-level column to which a leaf belongs.
fn first_name(leaf: &ColumnDescriptor) -> &str {
    &leaf.path().parts()[0]
}

/// The first leaf of each top-level column: the leaves of one nested column follow each other and share their first name.
fn first_leaves(leaves: &[ColumnDescPtr]) -> Vec<usize> {
    (0..leaves.len()).filter(|&leaf| leaf == 0 || first_name(&leaves[leaf]) != first_name(&leaves[leaf - 1])).collect()
}

/// How many of a column's stored numbers are a day, if they are dates or times.
fn units_of_day(column: &ColumnDescriptor) -> Option<i64> {
    const SECONDS: i64 = 86_400;
    if column.path().parts().len() > 1 || column.max_rep_level() > 0 {
        return None;
    }
    match (column.physical_type(), column.logical_type_ref(), column.converted_type()) {
        (Type::INT32, Some(LogicalType::Date), _) | (Type::INT32, None, ConvertedType::DATE) => Some(1),
        (Type::INT64, None, ConvertedType::TIMESTAMP_MILLIS) => Some(SECONDS * 1_000),
        (Type::INT64, None, ConvertedType::TIMESTAMP_MICROS) => Some(SECONDS * 1_000_000),
        (Type::INT64, Some(LogicalType::Timestamp(time)), _) => Some(match time.unit {
            TimeUnit::MILLIS => SECONDS * 1_000,
            TimeUnit::MICROS => SECONDS * 1_000_000,
            TimeUnit::NANOS => SECONDS * 1_000_000_000,
        }),
        _ => None,
    }
}

/// How a column's values are meant; `Err` says what is stored where a schema has no use for it.
fn meaning(column: &ColumnDescriptor) -> Result<Meaning, String> {
    if column.path().parts().len() > 1 || column.max_rep_level() > 0 {
        return Err("a list or a nested group".into());
    }
    let converted = column.converted_type();
    let logical = column.logical_type_ref();
    let meaning = match column.physical_type() {
        Type::BOOLEAN | Type::FLOAT | Type::DOUBLE if logical.is_none() && converted == ConvertedType::NONE => Some(Meaning::Other),
        Type::INT32 | Type::INT64 => match (logical, converted) {
            (Some(LogicalType::Integer(integer)), _) if !integer.is_signed => Some(Meaning::Unsigned),
            (None, ConvertedType::UINT_8 | ConvertedType::UINT_16 | ConvertedType::UINT_32 | ConvertedType::UINT_64) => {
                Some(Meaning::Unsigned)
            }
            (Some(LogicalType::Integer(_)), _)
            | (None, ConvertedType::NONE | ConvertedType::INT_8 | ConvertedType::INT_16 | ConvertedType::INT_32 | ConvertedType::INT_64) => {
                Some(Meaning::Signed)
            }
            _ => None,
        },
        Type::BYTE_ARRAY => match (logical, converted) {
            (Some(LogicalType::String | LogicalType::Enum), _)
            | (None, ConvertedType::NONE | ConvertedType::UTF8 | ConvertedType::ENUM) => Some(Meaning::Other),
            _ => None,
        },
        _ => None,
    };
    meaning.ok_or_else(|| match (logical, converted) {
        (None, ConvertedType::NONE) => column.physical_type().to_string(),
        (None, converted) => converted.to_string(),
        (Some(logical), _) => format!("{logical:?}"),
    })
}

/// Decodes something. The library asserts some of what a damaged file can violate (offsets that are negative, for example); for a
/// site such a file is an error like any other.
fn guarded<T>(decode: impl FnOnce() -> Result<T, ParquetError>) -> Result<T, ParquetError> {
    // Nothing that `decode` touched is used after a panic.
    catch_unwind(AssertUnwindSafe(decode)).unwrap_or_else(|_| Err(ParquetError::General("panic".into())))
}

fn read_column(reader: &mut ColumnReader, meaning: Meaning, rows: usize) -> Result<Values, ParquetError> {
    let unsigned = matches!(meaning, Meaning::Unsigned);
    // A date that has no text in four digits of a year is none of a schema.
    let iso = |value: i64, units: i64| ByteArray::from(dates::iso_text(value.div_euclid(units)).unwrap_or_else(|| "?".into()).into_bytes());
    Ok(match (reader, meaning) {
        (ColumnReader::Int32ColumnReader(reader), Meaning::Days(units)) => {
            Values::Text(read_values(reader, rows, |value| iso(value.into(), units))?)
        }
        (ColumnReader::Int64ColumnReader(reader), Meaning::Days(units)) => {
            Values::Text(read_values(reader, rows, |value| iso(value, units))?)
        }
        (reader, _) => read_plain(reader, unsigned, rows)?,
    })
}

fn read_plain(reader: &mut ColumnReader, unsigned: bool, rows: usize) -> Result<Values, ParquetError> {
    Ok(match reader {
        ColumnReader::BoolColumnReader(reader) => Values::Boolean(read_values(reader, rows, |value| value)?),
        ColumnReader::Int32ColumnReader(reader) => {
            Values::Integer(read_values(reader, rows, |value| if unsigned { i128::from(value.cast_unsigned()) } else { value.into() })?)
        }
        ColumnReader::Int64ColumnReader(reader) => {
            Values::Integer(read_values(reader, rows, |value| if unsigned { i128::from(value.cast_unsigned()) } else { value.into() })?)
        }
        ColumnReader::FloatColumnReader(reader) => Values::Number(read_values(reader, rows, f64::from)?),
        ColumnReader::DoubleColumnReader(reader) => Values::Number(read_values(reader, rows, |value| value)?),
        ColumnReader::ByteArrayColumnReader(reader) => Values::Text(read_values(reader, rows, |value| value)?),
        ColumnReader::Int96ColumnReader(_) | ColumnReader::FixedLenByteArrayColumnReader(_) => {
            return Err(ParquetError::General("type".into()));
        }
    })
}

/// The next values of a flat column, with nulls where the definition level says so.
fn read_values<D: DataType, T>(
    reader: &mut ColumnReaderImpl<D>,
    rows: usize,
    convert: impl Fn(D::T) -> T,
) -> Result<Vec<Option<T>>, ParquetError> {
    let (mut values, mut levels) = (Vec::new(), Vec::new());
    let (read, ..) = reader.read_records(rows, Some(&mut levels), None, &mut values)?;
    let mut values = values.into_iter().map(convert);
    // A required column has no definition levels.
    Ok(if levels.is_empty() {
        values.map(Some).collect()
    } else {
        levels.iter().take(read).map(|&level| if level > 0 { values.next() } else { None }).collect()
    })
}

impl Values {
    fn len(&self) -> usize {
        match self {
            Self::Boolean(values) => values.len(),
            Self::Integer(values) => values.len(),
            Self::Number(values) => values.len(),
            Self::Text(values) => values.len(),
        }
    }
}
