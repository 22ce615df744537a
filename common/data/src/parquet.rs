//! Parquet: flat columns, some thousand rows at a time, each as [`crate::types`] says.

use crate::arrow;
use crate::error::{DataError, ENCRYPTED};
use crate::footer;
use crate::types::{CellType, Refused};
use ::parquet::basic::{Compression, ConvertedType, LogicalType, TimeUnit, Type};
use ::parquet::column::reader::{ColumnReader, ColumnReaderImpl};
use ::parquet::data_type::{ByteArray, DataType};
use ::parquet::errors::ParquetError;
use ::parquet::file::reader::{FileReader, SerializedFileReader};
use ::parquet::schema::types::{ColumnDescriptor, SchemaDescriptor};
use dp_pvi_records::{CellValue, Row, Source, Visitor};
use dp_pvi_schema::{dates, text};
use std::collections::HashSet;
use std::fs::File;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;

const DAMAGED: &str = "the file is damaged, or uses a feature that is not supported; write it again, for example with pandas or DuckDB";
const LZO: &str = "the file is compressed with LZO, which is not supported; write it with Snappy, Zstandard, GZIP, LZ4 or Brotli compression, or with none";

/// A stored date or number that is none: a text that is none either, so that the schema says what becomes of its record.
const BEYOND: &str = "beyond what the type can hold";

/// Key under which a file says which of its columns of texts hold numbers that a database spelled, with a point: their places from 0 on, with blanks between.
pub const NUMBERS: &str = "dp-pvi numbers";

/// Rows that are decoded at once: whatever the size of a row group, memory stays small.
const BATCH: usize = 1 << 13;

/// The values of one column in some rows; `None` is null.
enum Values {
    Boolean(Vec<Option<bool>>),
    Integer(Vec<Option<i128>>),
    Number(Vec<Option<f64>>),
    Text(Vec<Option<ByteArray>>),
    /// So many nulls.
    Nothing(usize),
}

/// One row of some, seen through the schema's fields.
struct Slice<'a> {
    /// Per field.
    columns: &'a [Option<Values>],
    row: usize,
    /// Per field.
    decimals: &'a [u8],
}

impl Row for Slice<'_> {
    fn cell(&self, field: usize) -> CellValue<'_> {
        let cell = match &self.columns[field] {
            None | Some(Values::Nothing(_)) => None,
            Some(Values::Boolean(values)) => values[self.row].map(CellValue::Boolean),
            Some(Values::Integer(values)) => values[self.row].map(CellValue::Integer),
            Some(Values::Number(values)) => values[self.row].map(CellValue::Number),
            Some(Values::Text(values)) => values[self.row].as_ref().map(|text| CellValue::Text(text.data())),
        };
        cell.unwrap_or(CellValue::Null)
    }

    fn decimal(&self, field: usize) -> u8 {
        self.decimals[field]
    }
}

/// A Parquet file as a table.
pub(crate) struct ParquetTable<'a> {
    path: &'a Path,
    reader: SerializedFileReader<File>,
    passes_over_types: bool,
    /// Before the decimals of numbers in columns of texts.
    decimal: u8,
}

impl<'a> ParquetTable<'a> {
    /// The table in `file`, which messages call `path`; `decimal` is the decimal sign in columns of texts.
    pub(crate) fn open(path: &'a Path, file: File, decimal: u8) -> Result<Self, DataError> {
        if footer::says_encrypted(&file) {
            return Err(problem(path, ENCRYPTED));
        }
        let reader = guarded(|| SerializedFileReader::new(file)).map_err(|_| damaged(path))?;
        Ok(Self { path, reader, passes_over_types: false, decimal })
    }

    /// Columns of types that are not read have no values.
    pub(crate) fn passing_over_types(self, passes_over_types: bool) -> Self {
        Self { passes_over_types, ..self }
    }

    fn schema(&self) -> &SchemaDescriptor {
        self.reader.metadata().file_metadata().schema_descr()
    }

    /// What the program that wrote the file says under a key.
    fn said(&self, key: &str) -> Option<&str> {
        let metadata = self.reader.metadata().file_metadata().key_value_metadata();
        metadata.into_iter().flatten().find(|entry| entry.key == key).and_then(|entry| entry.value.as_deref())
    }

    /// Names of the columns that are whole numbers to Parquet, and lengths of time to who wrote them.
    fn durations(&self) -> HashSet<String> {
        self.said(arrow::KEY).map(arrow::durations).unwrap_or_default()
    }

    /// The decimal sign of each field: a point in columns of numbers.
    fn decimals(&self, asked: &[Option<(usize, Stored)>], fields: &[Option<usize>]) -> Vec<u8> {
        let spelled: HashSet<usize> =
            self.said(NUMBERS).into_iter().flat_map(|places| places.split(' ')).filter_map(|place| place.parse().ok()).collect();
        let columns = self.schema().columns();
        let of_field = |(asked, place): (&Option<(usize, Stored)>, &Option<usize>)| match (asked, place) {
            (Some((leaf, Stored::Plain)), Some(place))
                if columns[*leaf].physical_type() == Type::BYTE_ARRAY && !spelled.contains(place) =>
            {
                self.decimal
            }
            _ => b'.',
        };
        asked.iter().zip(fields).map(of_field).collect()
    }
}

fn problem(path: &Path, problem: &'static str) -> DataError {
    DataError::Parquet { path: path.to_owned(), problem }
}

/// The library's messages are not passed on: they may quote what a page holds.
fn damaged(path: &Path) -> DataError {
    problem(path, DAMAGED)
}

/// The first leaf of each column, in order: the leaves of a nested column follow each other. Columns of one name stay apart.
fn first_leaves(schema: &SchemaDescriptor) -> Vec<usize> {
    let root = |leaf| schema.get_column_root_idx(leaf);
    (0..schema.num_columns()).filter(|&leaf| leaf == 0 || root(leaf) != root(leaf - 1)).collect()
}

impl Source for ParquetTable<'_> {
    type Error = DataError;

    fn name(&self) -> &Path {
        self.path
    }

    fn columns(&mut self) -> Result<Vec<Vec<u8>>, DataError> {
        let schema = self.schema();
        Ok(first_leaves(schema).into_iter().map(|leaf| schema.get_column_root(leaf).name().as_bytes().to_vec()).collect())
    }

    fn visit(&mut self, fields: &[Option<usize>], visitor: &mut impl Visitor) -> Result<(), DataError> {
        let damaged = || damaged(self.path);
        let (schema, durations) = (self.schema(), self.durations());
        let leaves = first_leaves(schema);
        let asked = fields.iter().map(|field| {
            let Some(leaf) = field.map(|position| leaves[position]) else { return Ok(None) };
            let name = schema.get_column_root(leaf).name();
            let stored = type_of(&schema.columns()[leaf], durations.contains(name));
            let refused = |refused| DataError::ColumnType { path: self.path.to_owned(), column: text::read(name).into_owned(), refused };
            match stored {
                Err(_) if self.passes_over_types => Ok(None),
                stored => Ok(Some((leaf, stored.map_err(refused)?))),
            }
        });
        let asked: Vec<Option<(usize, Stored)>> = asked.collect::<Result<_, DataError>>()?;
        let decimals = self.decimals(&asked, fields);
        for group in 0..self.reader.num_row_groups() {
            let group = guarded(|| self.reader.get_row_group(group)).map_err(|_| damaged())?;
            let rows = usize::try_from(group.metadata().num_rows()).map_err(|_| damaged())?;
            let reader = |leaf| guarded(|| group.get_column_reader(leaf)).map_err(|_| damaged());
            if asked.iter().flatten().any(|(leaf, _)| group.metadata().column(*leaf).compression() == Compression::LZO) {
                return Err(problem(self.path, LZO));
            }
            let readers = asked.iter().map(|asked| asked.map(|(leaf, stored)| Ok((reader(leaf)?, stored))).transpose());
            let mut readers: Vec<Option<(ColumnReader, Stored)>> = readers.collect::<Result<_, DataError>>()?;
            for start in (0..rows).step_by(BATCH) {
                let batch = BATCH.min(rows - start);
                let mut values = Vec::with_capacity(readers.len());
                for reader in &mut readers {
                    values.push(match reader {
                        None => None,
                        Some((reader, stored)) => {
                            let values = guarded(|| read_column(reader, *stored, batch)).map_err(|_| damaged())?;
                            if values.len() != batch {
                                return Err(damaged());
                            }
                            Some(values)
                        }
                    });
                }
                for row in 0..batch {
                    if visitor.row(&Slice { columns: &values, row, decimals: &decimals }).is_break() {
                        return Ok(());
                    }
                }
            }
        }
        Ok(())
    }
}

/// How a stored value becomes a cell.
#[derive(Clone, Copy)]
enum Stored {
    /// As the physical type has it.
    Plain,
    Unsigned,
    /// Days from 1970-01-01 on.
    Days,
    /// A time that is counted in so many parts of a second.
    Time(i64),
    /// Digits behind the point.
    Decimal(usize),
    Uuid,
    /// Null, whatever is stored.
    Nothing,
}

/// What a column holds, and how; a refused type has no way to be read.
fn type_of(column: &ColumnDescriptor, is_duration: bool) -> Result<Stored, Refused> {
    let refused = |cell: CellType| cell.check().map(|()| Stored::Plain);
    if column.path().parts().len() > 1 || column.max_rep_level() > 0 {
        return refused(CellType::Nested);
    }
    if is_duration {
        return refused(CellType::Duration);
    }
    let (physical, logical, converted) = (column.physical_type(), column.logical_type_ref(), column.converted_type());
    if matches!(logical, Some(LogicalType::Unknown)) {
        return Ok(Stored::Nothing);
    }
    let is_bytes = matches!(physical, Type::BYTE_ARRAY | Type::FIXED_LEN_BYTE_ARRAY);
    let is_whole = matches!(physical, Type::INT32 | Type::INT64);
    match (logical, converted) {
        (Some(LogicalType::Decimal(_)), _) | (None, ConvertedType::DECIMAL) if is_bytes || is_whole => {
            match (column.type_precision(), usize::try_from(column.type_scale())) {
                (..=38, Ok(scale)) => Ok(Stored::Decimal(scale)),
                _ => refused(CellType::LongDecimal),
            }
        }
        (Some(LogicalType::Date), _) | (None, ConvertedType::DATE) if physical == Type::INT32 => Ok(Stored::Days),
        (Some(LogicalType::Timestamp(time)), _) if physical == Type::INT64 && !time.is_adjusted_to_u_t_c => {
            Ok(Stored::Time(match time.unit {
                TimeUnit::MILLIS => 1_000,
                TimeUnit::MICROS => 1_000_000,
                TimeUnit::NANOS => 1_000_000_000,
            }))
        }
        // By the format's text what says nothing of a zone is a point in time.
        (Some(LogicalType::Timestamp(_)), _) | (None, ConvertedType::TIMESTAMP_MILLIS | ConvertedType::TIMESTAMP_MICROS) => {
            refused(CellType::ZonedTime)
        }
        (Some(LogicalType::Time(_)), _) | (None, ConvertedType::TIME_MILLIS | ConvertedType::TIME_MICROS) => refused(CellType::TimeOfDay),
        (Some(LogicalType::Integer(integer)), _) if is_whole => Ok(if integer.is_signed { Stored::Plain } else { Stored::Unsigned }),
        (None, ConvertedType::UINT_8 | ConvertedType::UINT_16 | ConvertedType::UINT_32 | ConvertedType::UINT_64) if is_whole => {
            Ok(Stored::Unsigned)
        }
        (None, ConvertedType::INT_8 | ConvertedType::INT_16 | ConvertedType::INT_32 | ConvertedType::INT_64) if is_whole => {
            Ok(Stored::Plain)
        }
        (Some(LogicalType::String | LogicalType::Enum), _) | (None, ConvertedType::UTF8 | ConvertedType::ENUM) if is_bytes => {
            Ok(Stored::Plain)
        }
        (Some(LogicalType::Uuid), _) if is_bytes => Ok(Stored::Uuid),
        (Some(LogicalType::Float16), _) => refused(CellType::Half),
        (Some(LogicalType::Json | LogicalType::Variant(_)), _) | (None, ConvertedType::JSON) => refused(CellType::Json),
        (Some(LogicalType::Bson), _) | (None, ConvertedType::BSON) => refused(CellType::Bytes),
        (None, ConvertedType::INTERVAL) => refused(CellType::Duration),
        (None, ConvertedType::NONE) => match physical {
            Type::INT96 => refused(CellType::OldTime),
            Type::FIXED_LEN_BYTE_ARRAY => refused(CellType::Bytes),
            Type::BOOLEAN | Type::INT32 | Type::INT64 | Type::FLOAT | Type::DOUBLE | Type::BYTE_ARRAY => Ok(Stored::Plain),
        },
        _ => refused(CellType::Other),
    }
}

/// Decodes something. The library asserts some of what a damaged file can violate (offsets that are negative, for example); for a
/// site such a file is an error like any other.
fn guarded<T>(decode: impl FnOnce() -> Result<T, ParquetError>) -> Result<T, ParquetError> {
    // Nothing that `decode` touched is used after a panic.
    catch_unwind(AssertUnwindSafe(decode)).unwrap_or_else(|_| Err(ParquetError::General("panic".into())))
}

fn read_column(reader: &mut ColumnReader, stored: Stored, rows: usize) -> Result<Values, ParquetError> {
    let shown = |shown: Option<String>| ByteArray::from(shown.unwrap_or_else(|| BEYOND.into()).into_bytes());
    let whole = |value: i64| match stored {
        Stored::Days => shown(dates::iso_text(value)),
        Stored::Time(parts) => shown(dates::iso_time(value, parts)),
        Stored::Decimal(scale) => shown(Some(decimal(value.into(), scale))),
        Stored::Plain | Stored::Unsigned | Stored::Uuid | Stored::Nothing => ByteArray::default(),
    };
    let bytes = |value: &[u8]| match stored {
        Stored::Decimal(scale) => shown(big_endian(value).map(|unscaled| decimal(unscaled, scale))),
        _ => shown(uuid(value)),
    };
    Ok(match (reader, stored) {
        (_, Stored::Nothing) => Values::Nothing(rows),
        (ColumnReader::BoolColumnReader(reader), _) => Values::Boolean(read_values(reader, rows, |value| value)?),
        (ColumnReader::Int32ColumnReader(reader), Stored::Plain) => Values::Integer(read_values(reader, rows, i128::from)?),
        (ColumnReader::Int64ColumnReader(reader), Stored::Plain) => Values::Integer(read_values(reader, rows, i128::from)?),
        (ColumnReader::Int32ColumnReader(reader), Stored::Unsigned) => {
            Values::Integer(read_values(reader, rows, |value| value.cast_unsigned().into())?)
        }
        (ColumnReader::Int64ColumnReader(reader), Stored::Unsigned) => {
            Values::Integer(read_values(reader, rows, |value| value.cast_unsigned().into())?)
        }
        (ColumnReader::Int32ColumnReader(reader), _) => Values::Text(read_values(reader, rows, |value| whole(value.into()))?),
        (ColumnReader::Int64ColumnReader(reader), _) => Values::Text(read_values(reader, rows, whole)?),
        (ColumnReader::FloatColumnReader(reader), _) => Values::Number(read_values(reader, rows, shortest)?),
        (ColumnReader::DoubleColumnReader(reader), _) => Values::Number(read_values(reader, rows, |value| value)?),
        (ColumnReader::ByteArrayColumnReader(reader), Stored::Plain) => Values::Text(read_values(reader, rows, |value| value)?),
        (ColumnReader::ByteArrayColumnReader(reader), _) => Values::Text(read_values(reader, rows, |value| bytes(value.data()))?),
        (ColumnReader::FixedLenByteArrayColumnReader(reader), _) => Values::Text(read_values(reader, rows, |value| bytes(value.data()))?),
        (ColumnReader::Int96ColumnReader(_), _) => return Err(ParquetError::General("type".into())),
    })
}

/// The double that a text file or a database would give for a number of single precision: that of its shortest decimal.
fn shortest(value: f32) -> f64 {
    // Whole numbers of at most 24 bits are the same either way.
    if value.fract() == 0.0 && value.abs() <= 16_777_216.0 {
        f64::from(value)
    } else {
        value.to_string().parse().unwrap_or_else(|_| f64::from(value))
    }
}

/// The number that so many digits behind the point make of a whole one.
fn decimal(unscaled: i128, scale: usize) -> String {
    let digits = format!("{:0width$}", unscaled.unsigned_abs(), width = scale + 1);
    let (whole, fraction) = digits.split_at(digits.len() - scale);
    let (sign, point) = (if unscaled < 0 { "-" } else { "" }, if scale > 0 { "." } else { "" });
    format!("{sign}{whole}{point}{fraction}")
}

/// A number in two's complement, the highest byte first; none of 38 digits is absent.
fn big_endian(bytes: &[u8]) -> Option<i128> {
    let sign = bytes.first().map_or(0, |first| if first & 0x80 == 0 { 0 } else { 0xff });
    let (over, bytes) = bytes.split_at(bytes.len().saturating_sub(16));
    let mut number = [sign; 16];
    number[16 - bytes.len()..].copy_from_slice(bytes);
    let number = i128::from_be_bytes(number);
    (over.iter().all(|byte| *byte == sign) && (over.is_empty() || (number < 0) == (sign != 0))).then_some(number)
}

/// The text of a UUID.
fn uuid(bytes: &[u8]) -> Option<String> {
    let number = u128::from_be_bytes(bytes.try_into().ok()?);
    let digits = format!("{number:032x}");
    Some([&digits[..8], &digits[8..12], &digits[12..16], &digits[16..20], &digits[20..]].join("-"))
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
            Self::Nothing(rows) => *rows,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::shortest;

    #[test]
    #[allow(clippy::float_cmp, clippy::unwrap_used, clippy::cast_precision_loss, reason = "the bits are the point")]
    fn a_number_of_single_precision_is_what_its_text_says() {
        for (value, text) in [
            (123_456_792_f32, "1.2345679e+08"),
            (-123_456_792_f32, "-1.2345679e+08"),
            (16_777_216.0, "16777216"),
            (16_777_218.0, "16777218"),
            (0.1, "0.1"),
            (f32::MAX, "3.4028235e+38"),
            (1e10, "1e10"),
            (-0.0, "-0"),
        ] {
            assert_eq!(shortest(value).to_bits(), text.parse::<f64>().unwrap().to_bits(), "{text}");
        }
        assert!(shortest(f32::NAN).is_nan() && shortest(f32::INFINITY).is_infinite());
    }
}
