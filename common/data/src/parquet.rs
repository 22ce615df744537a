//! Parquet: flat columns of integers, floating point numbers, truth values and text, one row group at a time.

use crate::encode::{Cell, Row};
use crate::error::DataError;
use crate::source::{Input, Visitor};
use ::parquet::basic::{ConvertedType, LogicalType, Type};
use ::parquet::column::reader::{ColumnReader, ColumnReaderImpl};
use ::parquet::data_type::{ByteArray, DataType};
use ::parquet::errors::ParquetError;
use ::parquet::file::reader::{FileReader, SerializedFileReader};
use ::parquet::schema::types::ColumnDescriptor;
use std::fs::File;
use std::panic::{AssertUnwindSafe, catch_unwind};

const DAMAGED: &str = "the file is damaged or uses a feature that is not supported; write it again, for example with pandas or DuckDB \
                       (uncompressed or with Snappy compression)";

/// How the stored numbers of a column are meant.
#[derive(Clone, Copy)]
enum Meaning {
    Signed,
    Unsigned,
    Other,
}

/// The values of one column in one row group; `None` is null.
enum Values {
    Boolean(Vec<Option<bool>>),
    Integer(Vec<Option<i128>>),
    Number(Vec<Option<f64>>),
    Text(Vec<Option<ByteArray>>),
}

/// One row of a row group, seen through the schema's fields.
struct Slice<'a> {
    /// Per field.
    columns: &'a [Option<Values>],
    row: usize,
}

impl Row for Slice<'_> {
    fn cell(&self, field: usize) -> Cell<'_> {
        let cell = match &self.columns[field] {
            None => None,
            Some(Values::Boolean(values)) => values[self.row].map(Cell::Boolean),
            Some(Values::Integer(values)) => values[self.row].map(Cell::Integer),
            Some(Values::Number(values)) => values[self.row].map(Cell::Number),
            Some(Values::Text(values)) => values[self.row].as_ref().map(|text| Cell::Text(text.data())),
        };
        cell.unwrap_or(Cell::Null)
    }
}

/// Reads a Parquet file's rows and returns their number.
pub(crate) fn read(input: &Input<'_>, file: File, visitor: &mut impl Visitor) -> Result<u64, DataError> {
    // The library's messages are not passed on: they may quote what a page holds.
    let damaged = |_: ParquetError| DataError::Parquet { path: input.path.to_owned(), problem: DAMAGED };
    let reader = guarded(|| SerializedFileReader::new(file)).map_err(damaged)?;
    let columns = reader.metadata().file_metadata().schema_descr().columns();
    let names: Vec<_> = columns.iter().map(|column| column.path().parts()[0].as_bytes()).collect();
    let positions = input.bind(&top_level(&names))?;
    // From top-level names back to leaves; a nested column that is asked for is refused below.
    let leaves: Vec<_> = first_leaves(&names);
    let mut asked = Vec::with_capacity(positions.len());
    for position in positions {
        asked.push(match position {
            None => None,
            Some(position) => {
                let leaf = leaves[position];
                Some((leaf, meaning(&columns[leaf]).map_err(|stored| input.column_type(&columns[leaf], stored))?))
            }
        });
    }
    let mut number = 0;
    for group in 0..reader.num_row_groups() {
        let group = guarded(|| reader.get_row_group(group)).map_err(damaged)?;
        let rows = usize::try_from(group.metadata().num_rows()).map_err(|_| input.damaged())?;
        let mut values = Vec::with_capacity(asked.len());
        for asked in &asked {
            values.push(match asked {
                None => None,
                Some((leaf, meaning)) => {
                    let values = guarded(|| read_column(group.get_column_reader(*leaf)?, *meaning, rows)).map_err(damaged)?;
                    if values.len() != rows {
                        return Err(input.damaged());
                    }
                    Some(values)
                }
            });
        }
        for row in 0..rows {
            number += 1;
            visitor.row(&Slice { columns: &values, row }).map_err(|error| input.at(number, error))?;
        }
    }
    Ok(number)
}

impl Input<'_> {
    fn damaged(&self) -> DataError {
        DataError::Parquet { path: self.path.to_owned(), problem: DAMAGED }
    }

    fn column_type(&self, column: &ColumnDescriptor, stored: String) -> DataError {
        DataError::ColumnType { path: self.path.to_owned(), column: column.path().parts()[0].clone(), stored }
    }
}

/// Names of the top-level columns: the leaves of one nested column follow each other and share their first name.
fn top_level<'a>(names: &[&'a [u8]]) -> Vec<&'a [u8]> {
    first_leaves(names).into_iter().map(|leaf| names[leaf]).collect()
}

fn first_leaves(names: &[&[u8]]) -> Vec<usize> {
    (0..names.len()).filter(|&leaf| leaf == 0 || names[leaf] != names[leaf - 1]).collect()
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

fn read_column(reader: ColumnReader, meaning: Meaning, rows: usize) -> Result<Values, ParquetError> {
    let unsigned = matches!(meaning, Meaning::Unsigned);
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

/// All values of a flat column, with nulls where the definition level says so.
fn read_values<D: DataType, T>(
    mut reader: ColumnReaderImpl<D>,
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
