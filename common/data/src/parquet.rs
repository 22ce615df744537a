//! Parquet: flat columns of integers, floating point numbers, truth values and text, one row group at a time.

use crate::error::DataError;
use ::parquet::basic::{ConvertedType, LogicalType, Type};
use ::parquet::column::reader::{ColumnReader, ColumnReaderImpl};
use ::parquet::data_type::{ByteArray, DataType};
use ::parquet::errors::ParquetError;
use ::parquet::file::reader::{FileReader, SerializedFileReader};
use ::parquet::schema::types::{ColumnDescPtr, ColumnDescriptor};
use dp_pvi_records::{CellValue, Row, Source, Visitor};
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
}

impl<'a> ParquetTable<'a> {
    /// The table in `file`, which messages call `path`.
    pub(crate) fn open(path: &'a Path, file: File) -> Result<Self, DataError> {
        let reader = guarded(|| SerializedFileReader::new(file)).map_err(|_| damaged(path))?;
        Ok(Self { path, reader })
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
            Ok(Some((leaf, meaning(&columns[leaf]).map_err(stored)?)))
        });
        let asked: Vec<Option<(usize, Meaning)>> = asked.collect::<Result<_, DataError>>()?;
        for group in 0..self.reader.num_row_groups() {
            let group = guarded(|| self.reader.get_row_group(group)).map_err(|_| damaged())?;
            let rows = usize::try_from(group.metadata().num_rows()).map_err(|_| damaged())?;
            let mut values = Vec::with_capacity(asked.len());
            for asked in &asked {
                values.push(match asked {
                    None => None,
                    Some((leaf, meaning)) => {
                        let values = guarded(|| read_column(group.get_column_reader(*leaf)?, *meaning, rows)).map_err(|_| damaged())?;
                        if values.len() != rows {
                            return Err(damaged());
                        }
                        Some(values)
                    }
                });
            }
            for row in 0..rows {
                if visitor.row(&Slice { columns: &values, row }).is_break() {
                    return Ok(());
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
