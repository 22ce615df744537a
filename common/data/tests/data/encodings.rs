//! Decimal commas, encodings and dates: the same units as from the plain file.

use crate::text_files::rows_of;
use dp_pvi_data::{CellProblem, DataError, inspect, load, load_public};
use dp_pvi_records::LineProblem;
use dp_pvi_schema::Schema;
use proptest::prelude::*;
use std::path::PathBuf;
use tempfile::TempDir;

const SCHEMA: &str = r#"
[[columns]]
name = "crp"
kind = "number"
lower = -1000
upper = 1000
centre = 3
scale = 7
missing = "zero"
[[columns]]
name = "ward"
kind = "category"
coding = "full"
values = ["Süd", "Öst"]
missing = "zero"
[[columns]]
name = "seen"
kind = "date"
since = "2015-01-01"
lower = -10000
upper = 10000
centre = 100
scale = 365
missing = "zero"
[[columns]]
name = "y"
kind = "boolean"
true_values = ["já"]
false_values = ["nein"]
"#;

/// One record of a file: number, ward, date, label.
type Record = (Option<f64>, &'static str, Option<(u16, u8, u8)>, bool);

fn schema(csv: &str, format: &str) -> Schema {
    let dated = SCHEMA.replace("since = ", &format!("format = \"{format}\"\nsince = "));
    Schema::asking("y ~ .", &format!("[csv]\n{csv}\n{dated}")).unwrap()
}

fn text(records: &[Record], delimiter: char, decimal: &str, format: &str) -> String {
    let rows = records.iter().map(|(number, ward, date, label)| {
        let number = number.map_or_else(String::new, |number| number.to_string().replace('.', decimal));
        let date = date.map_or_else(String::new, |(year, month, day)| {
            let parts = [("YYYY", format!("{year:04}")), ("MM", format!("{month:02}")), ("DD", format!("{day:02}"))];
            parts.into_iter().fold(format.to_owned(), |text, (name, part)| text.replace(name, &part))
        });
        [number, (*ward).into(), date, if *label { "já" } else { "nein" }.into()].join(&delimiter.to_string())
    });
    std::iter::once(["crp", "ward", "seen", "y"].join(&delimiter.to_string()))
        .chain(rows)
        .fold(String::new(), |text, row| text + &row + "\n")
}

fn write(directory: &TempDir, name: &str, bytes: &[u8]) -> PathBuf {
    let path = directory.path().join(name);
    std::fs::write(&path, bytes).unwrap();
    path
}

/// Rows and targets by their bits.
fn bits(schema: &Schema, bytes: &[u8]) -> Vec<Vec<(Vec<u64>, u64)>> {
    let directory = tempfile::tempdir().unwrap();
    let table = load_public(schema, &[write(&directory, "a.csv", bytes)], None).unwrap();
    let of_unit = |unit: Vec<(Vec<f64>, f64)>| {
        unit.into_iter().map(|(row, target)| (row.into_iter().map(f64::to_bits).collect(), target.to_bits())).collect()
    };
    rows_of(table.get()).into_iter().map(of_unit).collect()
}

fn refused(csv: &str, text: &[u8]) -> DataError {
    let directory = tempfile::tempdir().unwrap();
    let path = write(&directory, "a.csv", text);
    load(&schema(csv, "YYYY-MM-DD"), &[path]).err().unwrap()
}

fn latin(text: &str) -> Vec<u8> {
    text.chars().map(|character| u8::try_from(u32::from(character)).unwrap()).collect()
}

fn record() -> impl Strategy<Value = Record> {
    let number = prop_oneof![Just(None), (-2e3..2e3).prop_map(Some), (-999_i32..999).prop_map(|whole| Some(f64::from(whole)))];
    let date = prop::option::of((1990_u16..2030, 1_u8..=12, 1_u8..=28));
    (number, prop::sample::select(vec!["Süd", "Öst", ""]), date, any::<bool>())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]

    #[test]
    fn the_units_of_a_file_do_not_depend_on_how_it_is_written(records in prop::collection::vec(record(), 1..20)) {
        let plain = bits(&schema("", "YYYY-MM-DD"), text(&records, ',', ".", "YYYY-MM-DD").as_bytes());
        for format in ["YYYY-MM-DD", "DD.MM.YYYY", "DD/MM/YYYY", "MM/DD/YYYY"] {
            let written = text(&records, ';', ",", format);
            let keys = |encoding: &str| schema(&format!("delimiter = \";\"\ndecimal = \",\"\nencoding = \"{encoding}\""), format);
            prop_assert_eq!(&bits(&keys("utf-8"), written.as_bytes()), &plain);
            prop_assert_eq!(&bits(&keys("utf-8"), format!("\u{feff}{written}").as_bytes()), &plain);
            for encoding in ["windows-1252", "iso-8859-1"] {
                prop_assert_eq!(&bits(&keys(encoding), &latin(&written)), &plain);
            }
            for mark in ["", "\u{feff}"] {
                let units = || mark.encode_utf16().chain(written.encode_utf16());
                prop_assert_eq!(&bits(&keys("utf-16le"), &units().flat_map(u16::to_le_bytes).collect::<Vec<_>>()), &plain);
                prop_assert_eq!(&bits(&keys("utf-16be"), &units().flat_map(u16::to_be_bytes).collect::<Vec<_>>()), &plain);
            }
        }
    }
}

#[test]
fn separators_of_thousands_are_refused() {
    let comma = "delimiter = \";\"\ndecimal = \",\"";
    for (csv, number) in
        [(comma, "471.605"), (comma, "4.471,605"), (comma, "4,471,605"), (comma, "4 471,605"), ("delimiter = \";\"", "471,605")]
    {
        let error = refused(csv, format!("crp;ward;seen;y\n{number};;;nein\n").as_bytes());
        assert!(
            matches!(&error, DataError::Cell { row: 1, column, problem: CellProblem::Separator, .. } if column == "crp"),
            "{number}: {error}"
        );
        assert!(error.to_string().contains("`decimal`") && !error.to_string().contains("471"), "{error}");
    }
    let dots = refused("", b"crp,ward,seen,y\n,,31.01.2015,nein\n");
    assert!(matches!(&dots, DataError::Cell { problem: CellProblem::NotADate, .. }) && !dots.to_string().contains("2015"), "{dots}");
}

/// In a check the error names the row; the other lines are what they were.
#[test]
fn bytes_of_another_encoding_break_their_own_line() {
    let csv = "encoding = \"windows-1252\"";
    let bytes = b"crp,ward,seen,y\n1,S\xfcd,,nein\n2,SECRET\x81,,nein\n3,,,j\xe1\n";
    let error = refused(csv, bytes);
    assert!(matches!(error, DataError::Line { row: 2, problem: LineProblem::Encoding, .. }), "{error}");
    assert!(error.to_string().contains("set `encoding`") && !error.to_string().contains("SECRET"), "{error}");
    let directory = tempfile::tempdir().unwrap();
    let inspection = inspect(&schema(csv, "YYYY-MM-DD"), &[write(&directory, "a.csv", bytes)]).unwrap();
    assert_eq!((inspection.records, inspection.rejected, inspection.columns[0].counts.regular), (3, 1, 2));
    // Without the key it is the cell that cannot be read.
    let error = refused("", b"crp,ward,seen,y\n1,S\xfcd,,nein\n");
    assert!(matches!(&error, DataError::Cell { problem: CellProblem::Encoding, .. }), "{error}");
    // A file whose header is of another encoding is not read.
    let error = refused("encoding = \"utf-16le\"", b"crp,ward,seen,y\n1,,,neinx\n");
    assert!(!error.to_string().contains("nein"), "{error}");
}
