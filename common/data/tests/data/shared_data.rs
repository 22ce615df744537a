//! Real files: Adult, four hospitals of heart patients, 130 hospitals of diabetes patients. Skipped where they are not there.

use dp_pvi_data::{inspect, load, load_public};
use dp_pvi_privacy::UnitTable;
use dp_pvi_schema::Schema;
use std::path::{Path, PathBuf};

fn workspace() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Paths under the shared data folder, or `None` (with a message) where it does not exist.
fn shared(names: &[&str]) -> Option<Vec<PathBuf>> {
    let root = std::env::var_os("DP_PVI_SHARED").map_or_else(|| workspace().join("../shared"), PathBuf::from).join("data");
    let files: Vec<_> = names.iter().map(|name| root.join(name)).collect();
    match files.iter().find(|file| !file.exists()) {
        None => Some(files),
        Some(missing) => {
            println!("skipped: {} is not there", missing.display());
            None
        }
    }
}

#[test]
fn adult_has_105_entries_of_which_at_most_14_are_not_0() {
    let schema =
        Schema::asking("income ~ .", &std::fs::read_to_string(workspace().join("deploy/experiments/adult.schema.toml")).unwrap()).unwrap();
    assert_eq!((schema.dimension(), schema.max_nonzeros()), (105, 14));
    assert!((schema.row_norm_bound() - 4.5).abs() < 1e-12);
    assert!((6.46..6.48).contains(&schema.worst_case_norm()));
    let Some(files) = shared(&["adult/adult.data.gz", "adult/adult.test.gz"]) else { return };
    let table = load_public(&schema, &files, None).unwrap().into_inner();
    assert_eq!((table.len(), table.records().len(), table.dimension()), (48_842, 48_842, 105));
    assert_eq!(table.records().filter(|record| record.target > 0.5).count(), 11_687);
    let (mut longest, mut most, mut norm): (f64, usize, f64) = (0.0, 0, 0.0);
    for record in table.records() {
        longest = longest.max(record.values.iter().map(|value| value * value).sum::<f64>().sqrt());
        most = most.max(record.indices.len());
        norm += record.values.iter().map(|value| value * value).sum::<f64>();
    }
    assert!(longest <= schema.row_norm_bound(), "{longest}");
    assert!(most <= 14, "{most}");
    println!("mean squared norm {}", norm / 48_842.0);
    // adult.data, first record: 39, State-gov, Bachelors, 13, Never-married, Adm-clerical, Not-in-family, White, Male, 2174, 0, 40.
    let names = schema.coefficient_names();
    let first: Vec<_> = table.records().next().unwrap().entries().map(|(index, value)| (names[index].as_str(), value)).collect();
    let expected = [
        ("age", -0.05),
        ("workclass=State-gov", 1.0),
        ("education=Bachelors", 1.0),
        ("education-num", 0.75),
        ("marital-status=Never-married", 1.0),
        ("occupation=Adm-clerical", 1.0),
        ("relationship=Not-in-family", 1.0),
        ("race=White", 1.0),
        ("sex=Male", 1.0),
        ("capital-gain", 2175_f64.ln() / 4.0),
        ("native-country=United-States", 1.0),
        ("(intercept)", 1.0),
    ];
    assert_eq!(first.len(), expected.len());
    for ((name, value), (expected_name, expected_value)) in first.iter().zip(expected) {
        assert_eq!(*name, expected_name);
        assert!((value - expected_value).abs() < 1e-15, "{name}: {value}");
    }
}

#[test]
fn inspecting_adult_counts_what_its_description_states() {
    let schema =
        Schema::asking("income ~ .", &std::fs::read_to_string(workspace().join("deploy/experiments/adult.schema.toml")).unwrap()).unwrap();
    let Some(files) = shared(&["adult/adult.data.gz", "adult/adult.test.gz"]) else { return };
    let seen = inspect(&schema, &files).unwrap();
    // A comment before the test set and an empty line after each: lines, and so records that contribute nothing.
    assert_eq!((seen.units, seen.records, seen.dropped, seen.empty_lines), (48_845, 48_845, 3, 3));
    assert_eq!((seen.rejected, seen.largest_unit), (0, 1));
    let missing = |name: &str| seen.columns.iter().find(|column| column.name == name).unwrap().counts.missing;
    assert_eq!((missing("workclass"), missing("occupation"), missing("native-country")), (1_836 + 963, 1_843 + 966, 583 + 274));
    assert_eq!((missing("age"), missing("sex")), (0, 0));
    let outcome = seen.columns.iter().find(|column| column.name == "income").unwrap();
    assert_eq!(outcome.levels, [("false".to_owned(), 48_842 - 11_687), ("true".to_owned(), 11_687)]);
    assert!(seen.columns.iter().all(|column| column.counts.invalid == 0 && column.counts.cells() == 48_842));
    // The declared ranges hold every record.
    assert!(seen.columns.iter().all(|column| column.counts.below + column.counts.above == 0));
    assert!(seen.scaled_share() < 0.01, "{}", seen.scaled_share());
    println!("{seen}");
}

const HEART: &str = r#"
[missing]
tokens = ["?"]
[csv]
names = ["age", "sex", "cp", "trestbps", "chol", "fbs", "restecg", "thalach", "exang", "oldpeak", "slope", "ca", "thal", "num"]
[[columns]]
name = "age"
kind = "number"
lower = 20
upper = 90
centre = 55
scale = 15
[[columns]]
name = "sex"
kind = "category"
coding = "full"
values = ["0", "1"]
matching = "number"
[[columns]]
name = "cp"
kind = "category"
coding = "full"
values = ["1", "2", "3", "4"]
matching = "number"
[[columns]]
name = "trestbps"
kind = "number"
lower = 60
upper = 220
centre = 130
scale = 25
missing = "centre"
[[columns]]
name = "chol"
kind = "number"
lower = 100
upper = 500
centre = 230
scale = 60
missing = "centre"
[[columns]]
name = "fbs"
kind = "boolean"
true_values = ["1", "1.0"]
false_values = ["0", "0.0"]
missing = "zero"
[[columns]]
name = "restecg"
kind = "category"
coding = "full"
values = ["0", "1", "2"]
matching = "number"
missing = "zero"
[[columns]]
name = "thalach"
kind = "number"
lower = 50
upper = 220
centre = 140
scale = 30
missing = "centre"
[[columns]]
name = "exang"
kind = "boolean"
true_values = ["1", "1.0"]
false_values = ["0", "0.0"]
missing = "zero"
[[columns]]
name = "oldpeak"
kind = "number"
lower = -3
upper = 7
centre = 1
scale = 1
missing = "drop"
[[columns]]
name = "slope"
kind = "category"
coding = "full"
values = ["1", "2", "3"]
matching = "number"
missing = "zero"
[[columns]]
name = "ca"
kind = "number"
lower = 0
upper = 3
centre = 0
scale = 1
missing = "zero"
[[columns]]
name = "thal"
kind = "category"
coding = "full"
values = ["3", "6", "7"]
matching = "number"
missing = "zero"
[[columns]]
name = "num"
kind = "boolean"
true_values = ["1", "2", "3", "4"]
false_values = ["0"]
"#;

#[test]
fn four_hospitals_with_numbers_written_in_three_ways_load_through_one_schema() {
    let schema = Schema::asking("num ~ .", HEART).unwrap();
    let places = [("cleveland", 303, 0), ("hungarian", 294, 0), ("switzerland", 123, 6), ("va", 200, 56)];
    for (place, records, dropped) in places {
        let Some(files) = shared(&[&format!("health/heart-disease/processed.{place}.data")]) else { return };
        let loaded = load(&schema, &files).unwrap();
        assert_eq!((loaded.counts.records, loaded.counts.units, loaded.counts.dropped), (records, records, dropped), "{place}");
        // Dropped records stay units, so that slices do not move.
        let table = load_public(&schema, &files, None).unwrap().into_inner();
        assert_eq!((table.len() as u64, table.records().len() as u64), (records, records - dropped), "{place}");
    }
}

#[test]
fn encounters_of_one_diabetes_patient_are_one_unit() {
    let text = r#"
        unit_column = "patient_nbr"
        other_columns = "ignore"
        [missing]
        tokens = ["?"]
        [[columns]]
        name = "gender"
        kind = "category"
        coding = "full"
        values = ["Female", "Male"]
        invalid = "zero"
        [[columns]]
        name = "age"
        kind = "category"
        coding = "full"
        values = ["[0-10)", "[10-20)", "[20-30)", "[30-40)", "[40-50)", "[50-60)", "[60-70)", "[70-80)", "[80-90)", "[90-100)"]
        [[columns]]
        name = "race"
        kind = "category"
        coding = "full"
        values = ["Caucasian", "AfricanAmerican", "Hispanic", "Asian", "Other"]
        missing = "zero"
        [[columns]]
        name = "time_in_hospital"
        kind = "number"
        lower = 1
        upper = 14
        centre = 4
        scale = 3
        [[columns]]
        name = "number_inpatient"
        kind = "number"
        lower = 0
        upper = 20
        transform = "log1p"
        centre = 0
        scale = 1
        [[columns]]
        name = "diabetesMed"
        kind = "boolean"
        true_values = ["Yes"]
        false_values = ["No"]
        [[columns]]
        name = "readmitted"
        kind = "boolean"
        true_values = ["<30"]
        false_values = [">30", "NO"]
    "#;
    let schema = Schema::asking("readmitted ~ .", text).unwrap();
    let Some(files) = shared(&["health/diabetes-130/diabetic_data.csv.gz"]) else { return };
    let table = load_public(&schema, &files, None).unwrap().into_inner();
    assert_eq!((table.len(), table.records().len()), (71_518, 101_766));
    assert_eq!(table.records().filter(|record| record.target > 0.5).count(), 11_357);
    let seen = inspect(&schema, &files).unwrap();
    assert_eq!((seen.units, seen.records, seen.columns[0].counts.invalid, seen.columns[2].counts.missing), (71_518, 101_766, 3, 2_273));
    let most = (0..table.len()).map(|unit| table.unit(unit).records().count()).max().unwrap();
    assert_eq!(most as u64, seen.largest_unit);
}
