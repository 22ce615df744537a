//! Parquet files, written here with the `parquet` crate.

use dp_pvi_data::{CellProblem, DataError, NUMBERS, load, load_for_prediction_with_ids, load_for_run, load_public};
use dp_pvi_privacy::UnitTable;
use dp_pvi_records::RecordTable;
use dp_pvi_schema::Schema;
use parquet::basic::Compression;
use parquet::data_type::{BoolType, ByteArray, ByteArrayType, DoubleType, FloatType, Int32Type, Int64Type};
use parquet::file::metadata::KeyValue;
use parquet::file::properties::WriterProperties;
use parquet::file::writer::{SerializedFileWriter, SerializedRowGroupWriter};
use parquet::schema::parser::parse_message_type;
use std::path::{Path, PathBuf};
use std::sync::Arc;

const SCHEMA: &str = r#"
unit_column = "patient"
[missing]
tokens = ["", "?"]
[[columns]]
name = "age"
kind = "number"
lower = 0
upper = 100
centre = 50
scale = 25
missing = "centre"
[[columns]]
name = "pressure"
kind = "number"
lower = 80
upper = 220
centre = 130
scale = 40
missing = "centre"
[[columns]]
name = "ward"
kind = "category"
coding = "full"
values = ["surgery", "medicine"]
missing = "zero"
[[columns]]
name = "grade"
kind = "category"
coding = "full"
values = ["1", "2", "3"]
missing = "zero"
[[columns]]
name = "smoker"
kind = "boolean"
missing = "zero"
[[columns]]
name = "seen"
kind = "ignored"
[[columns]]
name = "died"
kind = "boolean"
true_values = ["true"]
false_values = ["false"]
"#;

const MESSAGE: &str = "message cohort {
    REQUIRED INT64 patient (INTEGER(64, false));
    OPTIONAL INT32 age;
    OPTIONAL DOUBLE pressure;
    OPTIONAL BYTE_ARRAY ward (STRING);
    REQUIRED FLOAT grade;
    OPTIONAL BOOLEAN smoker;
    REQUIRED BOOLEAN died;
    OPTIONAL INT32 seen (DATE);
}";

const CSV: &str = "patient,age,pressure,ward,grade,smoker,died,seen
18446744073709551615,75,130,medicine,1,true,true,
7,,170.5,?,2,,false,
18446744073709551615,25,?,,3,false,false,
8,0,80,surgery,2,true,true,
";

fn schema() -> Schema {
    Schema::asking("died ~ .", SCHEMA).unwrap()
}

/// Writes all columns of one row group.
type Group<'a> = &'a dyn Fn(&mut SerializedRowGroupWriter<'_, std::fs::File>);

/// Writes a file of row groups.
fn write(path: &Path, message: &str, compression: Compression, groups: &[Group<'_>]) {
    write_with(path, message, WriterProperties::builder().set_compression(compression).build(), groups);
}

fn write_with(path: &Path, message: &str, properties: WriterProperties, groups: &[Group<'_>]) {
    let (message, properties) = (Arc::new(parse_message_type(message).unwrap()), Arc::new(properties));
    let mut writer = SerializedFileWriter::new(std::fs::File::create(path).unwrap(), message, properties).unwrap();
    for group in groups {
        let mut next = writer.next_row_group().unwrap();
        group(&mut next);
        next.close().unwrap();
    }
    writer.close().unwrap();
}

macro_rules! column {
    ($group:expr, $type:ty, $values:expr $(, $levels:expr)?) => {{
        let mut column = $group.next_column().unwrap().unwrap();
        let levels: Option<&[i16]> = None $(.or(Some(&$levels)))?;
        column.typed::<$type>().write_batch(&$values, levels, None).unwrap();
        column.close().unwrap();
    }};
}

fn texts<const N: usize>(texts: [&str; N]) -> [ByteArray; N] {
    texts.map(ByteArray::from)
}

fn cohort(directory: &Path, compression: Compression) -> PathBuf {
    let path = directory.join("cohort.parquet");
    write(
        &path,
        MESSAGE,
        compression,
        &[
            &|group| {
                column!(group, Int64Type, [-1, 7, -1]);
                column!(group, Int32Type, [75, 25], [1, 0, 1]);
                column!(group, DoubleType, [130.0, 170.5], [1, 1, 0]);
                column!(group, ByteArrayType, texts(["medicine", "?"]), [1, 1, 0]);
                column!(group, FloatType, [1.0, 2.0, 3.0]);
                column!(group, BoolType, [true, false], [1, 0, 1]);
                column!(group, BoolType, [true, false, false]);
                column!(group, Int32Type, [19_000], [0, 1, 0]);
            },
            &|group| {
                column!(group, Int64Type, [8]);
                column!(group, Int32Type, [0], [1]);
                column!(group, DoubleType, [80.0], [1]);
                column!(group, ByteArrayType, texts(["surgery"]), [1]);
                column!(group, FloatType, [2.0]);
                column!(group, BoolType, [true], [1]);
                column!(group, BoolType, [true]);
                column!(group, Int32Type, [], [0]);
            },
        ],
    );
    path
}

fn same(left: &RecordTable, right: &RecordTable) {
    assert_eq!(left.len(), right.len());
    for unit in 0..left.len() {
        let records = |table: &RecordTable| -> Vec<_> {
            table.unit(unit).records().map(|record| (record.indices.to_vec(), record.values.to_vec(), record.target)).collect()
        };
        assert_eq!(records(left), records(right));
    }
}

#[test]
fn parquet_and_csv_of_the_same_records_are_the_same_table() {
    let directory = tempfile::tempdir().unwrap();
    let text = directory.path().join("cohort.csv");
    std::fs::write(&text, CSV).unwrap();
    for compression in [Compression::UNCOMPRESSED, Compression::SNAPPY] {
        let path = cohort(directory.path(), compression);
        let table = load_public(&schema(), &[&path], None).unwrap().into_inner();
        assert_eq!((table.len(), table.records().len()), (3, 4));
        same(&table, load_public(&schema(), &[&text], None).unwrap().get());
        // Both formats in one data set: the persons are the same.
        let both = load(&schema(), &[path, text.clone()]).unwrap().counts;
        assert_eq!((both.units, both.records), (3, 8));
    }
}

/// A text has the decimals of the schema wherever it is stored, a number that a program spelled has a point, and what says that a value is missing is found in both.
#[test]
fn decimals_belong_to_the_cell_and_not_to_the_file() {
    let schema = Schema::asking(
        "died ~ .",
        r#"
unit_column = "patient"
[csv]
delimiter = ";"
decimal = ","
[missing]
tokens = ["", "99,5", "31.12.9999"]
[[columns]]
name = "crp"
kind = "number"
lower = 0
upper = 100
centre = 50
scale = 25
missing = "centre"
[[columns]]
name = "dose"
kind = "number"
lower = 0
upper = 10
centre = 5
scale = 5
missing = "centre"
[[columns]]
name = "grade"
kind = "category"
coding = "full"
values = ["1", "2"]
[[columns]]
name = "seen"
kind = "date"
since = "2015-01-01"
format = "DD.MM.YYYY"
lower = 0
upper = 365
centre = 0
scale = 365
missing = "centre"
[[columns]]
name = "died"
kind = "boolean"
true_values = ["1"]
false_values = ["0"]
"#,
    )
    .unwrap();
    let directory = tempfile::tempdir().unwrap();
    let path = |name: &str| directory.path().join(name);
    // The second record has three missing values.
    let text = "patient;crp;dose;grade;seen;died\n12,0;12,5;1,50;1,0;31.01.2015;1,0\n13;99,5;99,5;2;31.12.9999;0\n";
    std::fs::write(path("comma.csv"), text).unwrap();
    let typed =
        "message cohort { REQUIRED BYTE_ARRAY patient (STRING); REQUIRED BYTE_ARRAY crp (STRING); REQUIRED INT32 dose (DECIMAL(9, 2));
        REQUIRED BYTE_ARRAY grade (STRING); REQUIRED INT32 seen (DATE); REQUIRED DOUBLE died; }";
    write(
        &path("typed.parquet"),
        typed,
        Compression::SNAPPY,
        &[&|group| {
            column!(group, ByteArrayType, texts(["12,0", "13"]));
            column!(group, ByteArrayType, texts(["12,5", "99,5"]));
            column!(group, Int32Type, [150, 9950]);
            column!(group, ByteArrayType, texts(["1,0", "2"]));
            column!(group, Int32Type, [16_466, 2_932_896]);
            column!(group, DoubleType, [1.0, 0.0]);
        }],
    );
    // As rows of a database are kept: numbers are texts, and the file says which columns they are.
    let kept = "message cohort { REQUIRED BYTE_ARRAY patient (STRING); REQUIRED BYTE_ARRAY crp (STRING); REQUIRED BYTE_ARRAY dose (STRING);
        REQUIRED BYTE_ARRAY grade (STRING); REQUIRED BYTE_ARRAY seen (STRING); REQUIRED BYTE_ARRAY died (STRING); }";
    let numbers = KeyValue::new(NUMBERS.to_owned(), "1 2 3".to_owned());
    write_with(
        &path("kept.parquet"),
        kept,
        WriterProperties::builder().set_key_value_metadata(Some(vec![numbers])).build(),
        &[&|group| {
            column!(group, ByteArrayType, texts(["12", "13"]));
            column!(group, ByteArrayType, texts(["12.5", "99.50"]));
            column!(group, ByteArrayType, texts(["1.50", "99.5"]));
            column!(group, ByteArrayType, texts(["1.0", "2"]));
            column!(group, ByteArrayType, texts(["2015-01-31", "9999-12-31 00:00:00"]));
            column!(group, ByteArrayType, texts(["1", "0,0"]));
        }],
    );
    let table = |name: &str| load_public(&schema, &[path(name)], None).unwrap().into_inner();
    let expected = table("comma.csv");
    for (unit, row) in [(0, [-1.5, -0.7, 1.0, 30.0 / 365.0, 1.0]), (1, [0.0, 0.0, 1.0, 0.0, 1.0])] {
        let found: Vec<Vec<f64>> = expected.unit(unit).records().map(|record| record.values.to_vec()).collect();
        let row: Vec<f64> = row.into_iter().filter(|value| *value != 0.0).collect();
        assert_eq!(found, [row], "{unit}");
    }
    same(&table("typed.parquet"), &expected);
    same(&table("kept.parquet"), &expected);
    // A point in a text of such a schema is no decimal sign, in any source.
    write_with(
        &path("points.parquet"),
        kept,
        WriterProperties::default(),
        &[&|group| {
            column!(group, ByteArrayType, texts(["12"]));
            column!(group, ByteArrayType, texts(["12.5"]));
            column!(group, ByteArrayType, texts(["1"]));
            column!(group, ByteArrayType, texts(["1.0"]));
            column!(group, ByteArrayType, texts(["2015-01-31"]));
            column!(group, ByteArrayType, texts(["1"]));
        }],
    );
    let error = load_public(&schema, &[path("points.parquet")], None).map(drop).unwrap_err();
    assert!(matches!(&error, DataError::Cell { column, problem: CellProblem::Separator, .. } if column == "crp"), "{error}");
    // A line of too few cells is its person's, however the id is spelled.
    std::fs::write(path("short.csv"), format!("{text}12\n12,0;1\n")).unwrap();
    let units = load_for_run(&schema, &[path("short.csv")], &[7; 32]).unwrap();
    assert_eq!((units.screen.records, units.screen.nothing.len()), (4, 1));
}

/// Levels, tokens and ids with decimals are the same number in every column that holds it, with zeros at its end or without.
#[test]
fn a_number_is_one_level_one_token_and_one_id_however_it_is_stored() {
    for (decimal, csv) in [
        (".", "id;c;b;y\n12.5;0.5;9.0;1\n13.5;1.50;1;0\n14.5;9.5;0;1\n0.75;3.0;1;0\n"),
        (",", "id;c;b;y\n12,5;0,5;9,0;1\n13,5;1,50;1;0\n14,5;9,5;0;1\n0,75;3,0;1;0\n"),
    ] {
        let token = |text: &str| text.replace('.', decimal);
        let schema = Schema::asking(
            "y ~ .",
            &format!(
                "unit_column = \"id\"\n[csv]\ndelimiter = \";\"\ndecimal = \"{decimal}\"\n[missing]\ntokens = [\"\", \"{}\", \"{}\", \"{}\"]\n\
                 [[columns]]\nname = \"c\"\nkind = \"category\"\ncoding = \"full\"\nvalues = [\"0.5\", \"1.5\", \"3\"]\nmissing = \"zero\"\n\
                 [[columns]]\nname = \"b\"\nkind = \"boolean\"\nmissing = \"zero\"\n[[columns]]\nname = \"y\"\nkind = \"boolean\"\n",
                token("9.5"),
                token("9.0"),
                token("0.75"),
            ),
        )
        .unwrap();
        let directory = tempfile::tempdir().unwrap();
        let path = |name: &str| directory.path().join(name);
        std::fs::write(path("text.csv"), csv).unwrap();
        let message =
            |kind: &str| format!("message cohort {{ REQUIRED {kind} id; REQUIRED {kind} c; REQUIRED {kind} b; REQUIRED INT32 y; }}");
        let columns = [[12.5, 13.5, 14.5, 0.75], [0.5, 1.5, 9.5, 3.0], [9.0, 1.0, 0.0, 1.0]];
        write(
            &path("double.parquet"),
            &message("DOUBLE"),
            Compression::SNAPPY,
            &[&|group| {
                columns.into_iter().for_each(|column| column!(group, DoubleType, column));
                column!(group, Int32Type, [1, 0, 1, 0]);
            }],
        );
        let message =
            message("INT32").replace("id;", "id (DECIMAL(8, 3));").replace("c;", "c (DECIMAL(8, 2));").replace("b;", "b (DECIMAL(8, 1));");
        write(
            &path("decimal.parquet"),
            &message,
            Compression::SNAPPY,
            &[&|group| {
                column!(group, Int32Type, [12_500, 13_500, 14_500, 750]);
                column!(group, Int32Type, [50, 150, 950, 300]);
                column!(group, Int32Type, [90, 10, 0, 10]);
                column!(group, Int32Type, [1, 0, 1, 0]);
            }],
        );
        for file in ["text.csv", "double.parquet", "decimal.parquet"] {
            let inspection = dp_pvi_data::inspect(&schema, &[path(file)]).unwrap();
            let counts = |column: &str| inspection.columns.iter().find(|report| report.name == column).map(|report| report.counts).unwrap();
            assert_eq!((inspection.units, counts("c").missing, counts("c").invalid, counts("b").missing), (3, 1, 0, 1), "{decimal} {file}");
        }
        let both = [path("text.csv"), path("double.parquet")];
        assert!(matches!(load_for_run(&schema, &both, &[7; 32]).map(drop), Err(DataError::SameContent { .. })), "{decimal}");
    }
}

/// Predictions carry an id through from Parquet as they do from text.
#[test]
fn ids_of_rows_to_be_predicted_are_those_of_the_text_file() {
    let directory = tempfile::tempdir().unwrap();
    let text = directory.path().join("cohort.csv");
    std::fs::write(&text, CSV).unwrap();
    let path = cohort(directory.path(), Compression::SNAPPY);
    for (column, expected) in [("patient", ["18446744073709551615", "7", "18446744073709551615", "8"]), ("grade", ["1", "2", "3", "2"])] {
        for file in [&path, &text] {
            let rows = load_for_prediction_with_ids(&schema(), &[file], column).unwrap();
            assert_eq!((rows.ids.as_slice(), rows.table.len()), (&expected.map(str::to_owned)[..], 4));
        }
    }
}

#[test]
fn nan_and_infinity_in_a_column_of_numbers() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("cohort.parquet");
    let message = "message cohort { REQUIRED DOUBLE age; REQUIRED INT32 y; }";
    let schema = |policy: &str| {
        Schema::asking("y ~ .", &format!(
            "[[columns]]\nname = \"y\"\nkind = \"boolean\"\ntrue_values = [\"1\"]\nfalse_values = [\"0\"]\n[[columns]]\nname = \"age\"\nkind = \"number\"\nlower = 0\nupper = 1\ncentre = 0\nscale = 1\n{policy}"
        ))
        .unwrap()
    };
    for (value, problem) in [(f64::NAN, CellProblem::NotFinite), (f64::INFINITY, CellProblem::NotFinite)] {
        write(
            &path,
            message,
            Compression::UNCOMPRESSED,
            &[&|group| {
                column!(group, DoubleType, [0.5, value]);
                column!(group, Int32Type, [1, 0]);
            }],
        );
        match load(&schema(""), &[&path]).err() {
            Some(DataError::Cell { row: 2, column, problem: found, .. }) => assert_eq!((column.as_str(), found), ("age", problem)),
            other => panic!("{other:?}"),
        }
        // A stored NaN is a missing value where the schema has a use for one; an infinity never is.
        assert_eq!(load(&schema("missing = \"centre\""), &[&path]).is_ok(), value.is_nan());
        assert!(load(&schema("invalid = \"drop\""), &[&path]).is_ok());
    }
}

#[test]
fn columns_without_meaning_are_refused_by_name() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("cohort.parquet");
    let schema = Schema::asking("y ~ .", 
        "[[columns]]\nname = \"y\"\nkind = \"boolean\"\ntrue_values = [\"1\"]\nfalse_values = [\"0\"]\n[[columns]]\nname = \"age\"\nkind = \"number\"\nlower = 0\nupper = 1\ncentre = 0\nscale = 1",
    )
    .unwrap();
    let refused = |message: &str, group: Group<'_>| {
        write(&path, message, Compression::UNCOMPRESSED, &[group]);
        load(&schema, &[&path]).err().unwrap()
    };
    for stored in ["TIMESTAMP(NANOS,true)", "TIMESTAMP_MILLIS"] {
        let time = refused(&format!("message cohort {{ REQUIRED INT64 age ({stored}); REQUIRED INT32 y; }}"), &|group| {
            column!(group, Int64Type, [19_000]);
            column!(group, Int32Type, [1]);
        });
        assert!(matches!(&time, DataError::ColumnType { column, .. } if column == "age"), "{time}");
        assert!(time.to_string().contains("times with a zone") && !time.to_string().contains("19000"), "{time}");
    }
    let list = refused("message cohort { REPEATED INT32 age; REQUIRED INT32 y; }", &|group| {
        let mut column = group.next_column().unwrap().unwrap();
        column.typed::<Int32Type>().write_batch(&[1, 2], Some(&[1, 1]), Some(&[0, 1])).unwrap();
        column.close().unwrap();
        column!(group, Int32Type, [1]);
    });
    assert!(list.to_string().contains("several values in a cell"), "{list}");
    let other = refused("message cohort { REQUIRED INT32 age; REQUIRED INT32 y; REQUIRED INT32 extra; }", &|group| {
        column!(group, Int32Type, [1]);
        column!(group, Int32Type, [1]);
        column!(group, Int32Type, [1]);
    });
    assert!(matches!(other, DataError::UnknownColumn { position: 3, .. }), "{other}");
    let none = refused("message cohort { REQUIRED INT32 y; }", &|group| column!(group, Int32Type, [1]));
    assert!(matches!(&none, DataError::MissingColumn { column, .. } if column == "age"), "{none}");
}

#[test]
fn a_file_without_rows_is_empty_and_a_damaged_one_is_damaged() {
    let directory = tempfile::tempdir().unwrap();
    let empty = directory.path().join("empty.parquet");
    write(&empty, MESSAGE, Compression::UNCOMPRESSED, &[]);
    assert!(matches!(load(&schema(), &[&empty]), Err(DataError::Empty { .. })));
    let path = cohort(directory.path(), Compression::UNCOMPRESSED);
    let bytes = std::fs::read(&path).unwrap();
    std::fs::write(&path, &bytes[..bytes.len() - 20]).unwrap();
    assert!(matches!(load(&schema(), &[&path]), Err(DataError::Parquet { .. })));
    // A page that is not what its header says.
    let mut flipped = bytes.clone();
    flipped[4..40].iter_mut().for_each(|byte| *byte ^= 0xff);
    std::fs::write(&path, flipped).unwrap();
    assert!(matches!(load(&schema(), &[&path]), Err(DataError::Parquet { .. })));
}

/// A table of ages, wards and labels, with ids that are numbers.
fn small(ids: &[f64], ages: &[Option<f64>], wards: &[&str]) -> dp_pvi_names::Hash {
    const MESSAGE: &str = "message cohort {
        REQUIRED DOUBLE patient;
        OPTIONAL DOUBLE age;
        REQUIRED BYTE_ARRAY ward (STRING);
        REQUIRED BOOLEAN died;
    }";
    let schema = Schema::asking("died ~ .", 
        "unit_column = \"patient\"\n[[columns]]\nname = \"died\"\nkind = \"boolean\"\ntrue_values = [\"true\"]\nfalse_values = [\"false\"]\n\
         [[columns]]\nname = \"age\"\nkind = \"number\"\nlower = 0\nupper = 100\noutside = \"reject\"\ncentre = 50\nscale = 25\n\
         [[columns]]\nname = \"ward\"\nkind = \"category\"\ncoding = \"full\"\nvalues = [\"surgery\", \"medicine\"]\nmissing = \"drop\"\n",
    )
    .unwrap();
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("cohort.parquet");
    let levels: Vec<i16> = ages.iter().map(|age| i16::from(age.is_some())).collect();
    let present: Vec<f64> = ages.iter().flatten().copied().collect();
    let wards: Vec<ByteArray> = wards.iter().map(|ward| ByteArray::from(*ward)).collect();
    write(
        &path,
        MESSAGE,
        Compression::UNCOMPRESSED,
        &[&|group| {
            column!(group, DoubleType, ids);
            column!(group, DoubleType, present, levels);
            column!(group, ByteArrayType, wards);
            column!(group, BoolType, vec![true; ids.len()]);
        }],
    );
    dp_pvi_data::load_for_run(&schema, &[path], &[7; 32]).unwrap().fingerprint
}

#[test]
fn no_cell_of_a_parquet_file_stops_a_run() {
    let wards = ["surgery", "medicine", "surgery"];
    let dropped = small(&[1.0, 2.0, 3.0], &[Some(11.0), Some(22.0), Some(33.0)], &["surgery", "", "surgery"]);
    for age in [None, Some(f64::NAN), Some(f64::INFINITY), Some(-1.0), Some(101.0)] {
        assert_eq!(small(&[1.0, 2.0, 3.0], &[Some(11.0), age, Some(33.0)], &wards), dropped, "{age:?}");
    }
    assert_eq!(small(&[1.0, 2.0, 3.0], &[Some(11.0), Some(22.0), Some(33.0)], &["surgery", "radiology", "surgery"]), dropped);
    // An id that cannot be distinguished from others is none.
    let without = small(&[1.0, 3.0], &[Some(11.0), Some(33.0)], &["surgery", "surgery"]);
    for id in [f64::NAN, 1e16, 1e300, f64::INFINITY] {
        assert_eq!(small(&[1.0, id, 3.0], &[Some(11.0), Some(22.0), Some(33.0)], &wards), without, "{id}");
    }
    assert_ne!(dropped, without);
}

/// A date is its text, a time without a zone, too; columns of dates cut the time off.
#[test]
fn stored_dates_become_days() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("cohort.parquet");
    let schema = Schema::asking("y ~ 0 + .", 
        "[[columns]]\nname = \"y\"\nkind = \"boolean\"\ntrue_values = [\"1\"]\nfalse_values = [\"0\"]\n[[columns]]\nname = \"seen\"\nkind = \"date\"\nsince = \"2015-01-01\"\nlower = -9\nupper = 99\ncentre = 0\nscale = 1",
    )
    .unwrap();
    // 2015-01-01 is day 16436 after 1970-01-01.
    let days = |stored: &str, per_day: i64| {
        let message = format!("message cohort {{ REQUIRED {stored}; REQUIRED INT32 y; }}");
        let fill = |group: &mut SerializedRowGroupWriter<'_, std::fs::File>| {
            if stored.starts_with("INT32") {
                column!(group, Int32Type, [16_436 + 31, 16_435]);
            } else {
                column!(group, Int64Type, [(16_436 + 31) * per_day + per_day - 1, 16_435 * per_day]);
            }
            column!(group, Int32Type, [1, 0]);
        };
        write(&path, &message, Compression::UNCOMPRESSED, &[&fill]);
        let table = load_public(&schema, &[&path], None).unwrap();
        crate::text_files::rows_of(table.get()).iter().map(|unit| unit[0].0[0]).collect::<Vec<_>>()
    };
    for (stored, per_day) in [
        ("INT32 seen (DATE)", 1),
        ("INT64 seen (TIMESTAMP(MILLIS,false))", 86_400_000),
        ("INT64 seen (TIMESTAMP(MICROS,false))", 86_400_000_000),
        ("INT64 seen (TIMESTAMP(NANOS,false))", 86_400_000_000_000),
    ] {
        assert_eq!(days(stored, per_day), [31.0, -1.0], "{stored}");
    }
}

/// The same number, whether Parquet has it in single precision, as a decimal of any width, or a text file has its digits.
#[test]
fn numbers_are_the_same_however_they_are_stored() {
    let directory = tempfile::tempdir().unwrap();
    let (path, text) = (directory.path().join("cohort.parquet"), directory.path().join("cohort.csv"));
    let schema = Schema::asking("y ~ 0 + .", 
        "[missing]\ntokens = [\"99\"]\n[[columns]]\nname = \"y\"\nkind = \"boolean\"\ntrue_values = [\"1\"]\nfalse_values = [\"0\"]\n[[columns]]\nname = \"x\"\nkind = \"number\"\nlower = -1e9\nupper = 1e9\ncentre = 0\nscale = 1\nmissing = \"drop\"",
    )
    .unwrap();
    let bits = |path: &Path| dp_pvi_data::load_for_run(&schema, &[path], &[7; 32]).unwrap().fingerprint;
    let of_text = |digits: &str| {
        std::fs::write(&text, format!("x,y\n{digits},1\n")).unwrap();
        bits(&text)
    };
    let stored = |column: &str, fill: Group<'_>| {
        let message = format!("message cohort {{ REQUIRED {column}; REQUIRED INT32 y; }}");
        write(
            &path,
            &message,
            Compression::UNCOMPRESSED,
            &[&|group| {
                fill(group);
                column!(group, Int32Type, [1]);
            }],
        );
        bits(&path)
    };
    assert_eq!(stored("FLOAT x", &|group| column!(group, FloatType, [0.1])), of_text("0.1"));
    assert_eq!(stored("DOUBLE x", &|group| column!(group, DoubleType, [0.1])), of_text("0.1"));
    assert_eq!(stored("INT32 x (DECIMAL(9,2))", &|group| column!(group, Int32Type, [-310])), of_text("-3.10"));
    assert_eq!(stored("INT64 x (DECIMAL(18,3))", &|group| column!(group, Int64Type, [5])), of_text("0.005"));
    let bytes = |bytes: &'static [u8]| [ByteArray::from(bytes)];
    assert_eq!(stored("BYTE_ARRAY x (DECIMAL(20,1))", &|group| column!(group, ByteArrayType, bytes(&[0xff, 0x38]))), of_text("-20"));
    // Seventeen bytes for a number of 20 digits, whose first byte is a sign; and one that is none of 20 digits.
    assert_eq!(stored("BYTE_ARRAY x (DECIMAL(20,1))", &|group| column!(group, ByteArrayType, bytes(&[0; 17]))), of_text("0"));
    assert_eq!(stored("BYTE_ARRAY x (DECIMAL(20,1))", &|group| column!(group, ByteArrayType, bytes(&[1; 17]))), of_text("no number"));
    // What says that there is no value says it of every number that is stored.
    for missing in ["99", "99.0", "9.9e1"] {
        assert_eq!(of_text(missing), of_text(""), "{missing}");
    }
    for stored in [
        stored("DOUBLE x", &|group| column!(group, DoubleType, [99.0])),
        stored("INT64 x", &|group| column!(group, Int64Type, [99])),
        stored("INT32 x (DECIMAL(9,2))", &|group| column!(group, Int32Type, [9900])),
        stored("INT32 x (UNKNOWN)", &|group| column!(group, Int32Type, [5])),
    ] {
        assert_eq!(stored, of_text(""));
    }
}

#[test]
fn an_encrypted_file_is_called_so() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("cohort.parquet");
    std::fs::write(&path, b"PARE....PARE").unwrap();
    let error = load(&schema(), &[&path]).err().unwrap().to_string();
    assert!(error.contains("is encrypted"), "{error}");
    // Written by pyarrow: a footer that anyone may read, and a column that no one can.
    std::fs::copy(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/encrypted-columns.parquet"), &path).unwrap();
    let error = load(&schema(), &[&path]).err().unwrap().to_string();
    assert!(error.contains("a column of it, is encrypted"), "{error}");
    // A header that begins with the same letters is a header.
    std::fs::write(&path, "PARENT,patient\n1,2\n").unwrap();
    let error = load(&schema(), &[&path]).err().unwrap().to_string();
    assert!(error.contains("there is no column"), "{error}");
}
