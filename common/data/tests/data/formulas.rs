//! Rows that a formula makes of files: fills, indicators, dropped records, persons, and the fingerprint of what was read.

use dp_pvi_data::{PublicCells, load_for_prediction, load_for_run, load_public, load_to_disk};
use dp_pvi_records::RecordTable;
use dp_pvi_schema::{ColumnKind, Schema};
use std::path::PathBuf;

const SCHEMA: &str = r#"
[[columns]]
name = "age"
kind = "number"
lower = 0
upper = 100
centre = 50
scale = 25
missing = "indicator"
fill = 40
[[columns]]
name = "days"
kind = "number"
lower = 1
upper = 100
centre = 0
scale = 1
[[columns]]
name = "ward"
kind = "category"
values = ["a", "b"]
missing = "indicator"
[[columns]]
name = "smoker"
kind = "boolean"
true_values = ["yes"]
false_values = ["no"]
missing = "drop"
[[columns]]
name = "died"
kind = "boolean"
true_values = ["yes"]
false_values = ["no"]
missing = "drop"
"#;
const ROWS: &str = "age,days,ward,smoker,died\n200,10,b,yes,yes\n,1,,no,no\n75,1,a,,no\n25,1,a,no,\n75,1,b,no,no\n";
const FORMULA: &str = "died ~ age*smoker + bin(age, [40, 60]) + ward + offset(log(days))";

fn by_formula(schema: &str) -> Schema {
    Schema::parse(schema).unwrap().with_formula(FORMULA, &[]).unwrap()
}

fn rows(table: &RecordTable) -> Vec<(Vec<(u32, f64)>, f64)> {
    let entries = |r: dp_pvi_records::RecordView<'_>| r.indices.iter().copied().zip(r.values.iter().copied()).collect();
    table.records().map(|record| (entries(record), record.offset)).collect()
}

fn file(text: &str) -> (tempfile::TempDir, Vec<PathBuf>) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("records.csv");
    std::fs::write(&path, text).unwrap();
    (folder, vec![path])
}

/// (Intercept), age, smokerTRUE, two bins, wardb, age:smokerTRUE, is.na(age)TRUE, is.na(ward)TRUE.
#[test]
fn cells_become_the_rows_of_the_formula() {
    let (_folder, files) = file(ROWS);
    let schema = by_formula(SCHEMA);
    assert_eq!(schema.dimension(), 9);
    let table = load_public(&schema, &files, None).unwrap().into_inner();
    assert_eq!(
        rows(&table),
        [
            // 200 is clamped to 100, which is 2 units above the centre and in the last bin.
            (vec![(0, 1.0), (1, 2.0), (2, 1.0), (4, 1.0), (5, 1.0), (6, 2.0)], 10_f64.ln()),
            // The fill is 40: in the first bin, and 0.4 below the centre. A ward without a value is no level.
            (vec![(0, 1.0), (1, -0.4), (7, 1.0), (8, 1.0)], 0.0),
            (vec![(0, 1.0), (1, 1.0), (4, 1.0), (5, 1.0)], 0.0),
        ]
    );
    // To predict, the label is not looked at; a dropped record is an empty unit.
    let rows = load_for_prediction(&schema, &files).unwrap().table;
    let records: Vec<usize> = (0..5).map(|unit| dp_pvi_privacy::UnitTable::unit(&rows, unit).records().count()).collect();
    assert_eq!(records, [1, 1, 0, 1, 1]);
}

#[test]
fn one_data_set_has_one_fingerprint_whatever_is_asked_of_it() {
    let (plain, asked) = (Schema::asking("died ~ .", SCHEMA).unwrap(), by_formula(SCHEMA));
    let (_folder, files) = file(ROWS);
    let read = load_for_run(&plain, &files, &[1; 32]).unwrap();
    assert_eq!(read.fingerprint, load_for_run(&asked, &files, &[1; 32]).unwrap().fingerprint);
    assert_eq!(read.fingerprint, load_to_disk(&plain, &files, &[1; 32], tempfile::tempfile().unwrap()).unwrap().fingerprint);
    let (_other_folder, others) = file(&ROWS.replace("75,1,b", "76,1,b"));
    assert_ne!(load_for_run(&asked, &others, &[1; 32]).unwrap().fingerprint, read.fingerprint);
}

/// Files are read once, into cells: rows that are made of these are those that are made while reading.
#[test]
fn rows_of_cells_are_those_of_the_files() {
    const OF_PERSONS: &str = "patient,age,days,ward,smoker,died\n1,50,10,a,no,no\n2,,1,,no,yes\n1,500,100,b,yes,no\n";
    for (head, text) in [("", ROWS), ("unit_column = \"patient\"\n", OF_PERSONS)] {
        let (_folder, files) = file(text);
        let text = format!("{head}{SCHEMA}");
        let asked = |formula: &str| Schema::parse(&text).unwrap().with_formula(formula, &[]).unwrap();
        let cells = PublicCells::load(&Schema::asking("died ~ .", &text).unwrap(), &files, None).unwrap();
        for formula in ["died ~ .", FORMULA] {
            let read = load_public(&asked(formula), &files, None).unwrap().into_inner();
            assert_eq!(rows(&read), rows(cells.rows(&asked(formula)).unwrap().get()), "{formula}");
        }
    }
}

const CODED: &str = r#"
version = 2
[[columns]]
name = "far"
kind = "number"
lower = 10
upper = 20
centre = 3
scale = 7
missing = "centre"
[[columns]]
name = "ward"
kind = "category"
coding = "full"
values = ["a", "b", "c"]
missing = "zero"
[[columns]]
name = "cost"
kind = "number"
lower = 0
upper = 1000
transform = "log1p"
centre = 1.1
scale = 0.3
missing = { fill = 5 }
[[columns]]
name = "level"
kind = "category"
coding = "sum"
values = ["x", "y", "z"]
[[columns]]
name = "site"
kind = "ignored"
[[columns]]
name = "sex"
kind = "category"
values = ["f", "m"]
reference = "m"
[[columns]]
name = "smoker"
kind = "boolean"
missing = "zero"
[[columns]]
name = "died"
kind = "boolean"
true_values = ["yes"]
false_values = ["no"]
"#;
const CODED_ROWS: &str = "far,ward,cost,level,site,sex,smoker,died\n12.5,a,17,x,1,f,1,yes\n,,,z,2,m,,no\n99,c,1e6,y,3,m,0,no\n";

/// `~ .`: the columns in the schema's order, each as the schema codes it, and the intercept last. To the bit.
#[test]
fn all_columns_stand_as_the_schema_codes_them() {
    let schema = Schema::parse(CODED).unwrap().with_formula("died ~ .", &[]).unwrap();
    assert_eq!(
        schema.coefficient_names(),
        ["far", "ward=a", "ward=b", "ward=c", "cost", "level=x vs mean", "level=y vs mean", "sex=f", "smoker", "(intercept)"]
    );
    assert_eq!((schema.intercept(), schema.max_nonzeros(), schema.widths()), (Some(9), 8, vec![1, 3, 1, 2, 1, 1, 1]));
    let ColumnKind::Number(rule) = schema.columns()[2].kind else { panic!("a number") };
    let (far, cost) = (|value: f64| (value - 3.0) / 7.0, |value: f64| rule.encode(value));
    // Its largest entries: 17/7, one of three, log1p(1000), two of the last level, and three ones.
    let longest = (far(20.0).powi(2) + cost(1000.0).powi(2) + 6.0).sqrt();
    assert!((schema.worst_case_norm() / longest - 1.0).abs() < 1e-11 && schema.max_abs_entry() == cost(1000.0));
    let (_folder, files) = file(CODED_ROWS);
    let expected = [
        vec![(0, far(12.5)), (1, 1.0), (4, cost(17.0)), (5, 1.0), (7, 1.0), (8, 1.0), (9, 1.0)],
        // Nothing stands in for a number without a fill, also where its range does not hold the centre.
        vec![(4, cost(5.0)), (5, -1.0), (6, -1.0), (9, 1.0)],
        vec![(0, far(20.0)), (3, 1.0), (4, cost(1000.0)), (6, 1.0), (9, 1.0)],
    ];
    let found: Vec<_> = rows(load_public(&schema, &files, None).unwrap().get()).into_iter().map(|(row, _)| row).collect();
    assert_eq!(found, expected);
    let without = Schema::parse(CODED).unwrap().with_formula("died ~ 0 + .", &[]).unwrap();
    assert_eq!((without.intercept(), without.dimension()), (None, 9));
}

/// All rows of one person stay together, with their offsets.
#[test]
fn rows_of_a_person_keep_their_offsets() {
    let schema = by_formula(&format!("unit_column = \"patient\"\n{SCHEMA}"));
    let text = "patient,age,days,ward,smoker,died\n1,50,10,a,no,no\n2,50,1,a,no,no\n1,50,100,a,no,no\n";
    let (_folder, files) = file(text);
    let table = load_public(&schema, &files, None).unwrap().into_inner();
    let offsets: Vec<f64> = table.records().map(|record| record.offset).collect();
    assert_eq!(offsets, [10_f64.ln(), 100_f64.ln(), 0.0]);
}

const FILLED: &str = r#"
version = 2
[[columns]]
name = "bmi"
kind = "number"
lower = 10
upper = 60
centre = 20
scale = 10
missing = { fill = { constant = 20, age = 0.1, smoker = -2, ward = { icu = 4 } } }
[[columns]]
name = "age"
kind = "number"
lower = 0
upper = 100
centre = 50
scale = 25
missing = "indicator"
fill = { constant = 30, weight = 0.25 }
[[columns]]
name = "weight"
kind = "number"
lower = 40
upper = 200
centre = 81
scale = 10
missing = "centre"
[[columns]]
name = "ward"
kind = "category"
values = ["surgery", "icu"]
missing = "zero"
invalid = "zero"
[[columns]]
name = "smoker"
kind = "boolean"
missing = "zero"
[[columns]]
name = "died"
kind = "boolean"
true_values = ["yes"]
false_values = ["no"]
"#;
/// Nothing is missing; `bmi`, with a value of `age` outside of its range; `bmi` and `age`; everything; a ward that is none.
const GAPS: &str = "bmi,age,weight,ward,smoker,died\n30,75,91,icu,1,yes\n,300,91,icu,1,no\n,,120,surgery,0,no\n,,,,,no\n,50,81,er,0,no\n";

/// What stands in for a missing number is computed of what stands in for others, and the same with and without a formula, and for what is to be predicted.
#[test]
fn numbers_are_filled_by_other_cells() {
    let plain = Schema::asking("died ~ .", FILLED).unwrap();
    let formula = Schema::parse(FILLED).unwrap().with_formula("died ~ bmi + age + weight", &[]).unwrap();
    let (_folder, files) = file(GAPS);
    // bmi, age and weight in units of their scales.
    let expected = [
        [1.0, 1.0, 1.0],
        // 20 + 0.1 · 100 + 4 − 2 = 32.
        [1.2, 2.0, 1.0],
        // age 30 + 30 = 60; bmi 20 + 6.
        [0.6, 0.4, 3.9],
        // weight is its centre 81: age 50.25, bmi 25.025.
        [0.5025, 0.01, 0.0],
        // No level of ward is known: 20 + 5.
        [0.5, 0.0, 0.0],
    ];
    let close = |found: &[(u32, f64)], at: u32, expected: f64| {
        let value = found.iter().find(|(position, _)| *position == at).map_or(0.0, |entry| entry.1);
        assert!((value - expected).abs() < 1e-12, "{found:?} {at} {expected}");
    };
    for (schema, first) in [(&plain, 0), (&formula, 1)] {
        let table = load_public(schema, &files, None).unwrap().into_inner();
        let predicted = load_for_prediction(schema, &files).unwrap().table;
        let found = rows(&table);
        assert_eq!(found, rows(&predicted));
        assert_eq!(found.len(), expected.len());
        for ((row, _), numbers) in found.iter().zip(expected) {
            (first..).zip(numbers).for_each(|(at, number)| close(row, at, number));
        }
        // With a formula the indicator of age says which of them it was; the fill of bmi has none.
        let marked: Vec<usize> = (0..5).filter(|row| found[*row].0.iter().any(|entry| entry.0 == 4)).collect();
        if first == 1 {
            assert_eq!(marked, [2, 3]);
            assert_eq!(schema.coefficient_names(), ["(Intercept)", "bmi", "age", "weight", "is.na(age)TRUE"]);
        }
    }
}

/// A site looks through its records as a run reads them.
#[test]
fn an_inspection_counts_filled_numbers_as_missing_and_their_rows_as_records() {
    let schema = Schema::parse(FILLED).unwrap().with_formula("died ~ bmi + age", &[]).unwrap();
    let (_folder, files) = file(GAPS);
    let report = dp_pvi_data::inspect(&schema, &files).unwrap();
    assert_eq!((report.records, report.rejected, report.dropped), (5, 0, 0));
    assert_eq!((report.columns[0].counts.missing, report.columns[1].counts.missing), (4, 2));
    let entries: Vec<(&str, u64)> = report.entries.iter().map(|(name, count)| (name.as_str(), *count)).collect();
    // The fifth record's age is 50, the centre.
    assert_eq!(entries, [("(Intercept)", 5), ("bmi", 5), ("age", 4), ("is.na(age)TRUE", 2)]);
}

/// A record that contributes nothing anyway is not in the way of fills.
#[test]
fn what_a_fill_looks_at_may_drop_the_record() {
    let text = FILLED
        .replace("name = \"smoker\"\nkind = \"boolean\"\nmissing = \"zero\"", "name = \"smoker\"\nkind = \"boolean\"\nmissing = \"drop\"");
    let (_folder, files) = file(GAPS);
    let table = load_public(&Schema::asking("died ~ .", &text).unwrap(), &files, None).unwrap().into_inner();
    assert_eq!(rows(&table).len(), 4);
}
