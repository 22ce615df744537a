//! Random files: no panic, no cell in a message, and rows never longer than the schema promises.

use dp_pvi_data::{inspect, load, load_public};
use dp_pvi_schema::Schema;
use proptest::prelude::*;

/// Every value of the generated cells contains this; no message, name or path may.
const MARK: &str = "zQ7";

const COLUMNS: &str = r#"
[missing]
tokens = ["", "?"]
[[columns]]
name = "age"
kind = "number"
lower = 0
upper = 100
centre = 50
scale = 10
POLICY
[[columns]]
name = "gain"
kind = "number"
lower = 0
upper = 10000
transform = "log1p"
centre = 3
scale = 2
POLICY
[[columns]]
name = "ward"
kind = "category"
values = ["surgery", "medicine"]
POLICY
[[columns]]
name = "thal"
kind = "category"
values = ["3", "6", "7"]
matching = "number"
POLICY
[[columns]]
name = "smoker"
kind = "boolean"
POLICY
[[columns]]
name = "note"
kind = "ignored"
[[columns]]
name = "died"
kind = "boolean"
true_values = ["yes"]
false_values = ["no"]
LABEL
"#;

const HEADER: &str = "id,age,gain,ward,thal,smoker,note,died";

/// `coding` is that of both categories; "" is "full".
fn schema(policy: &str, coding: &str, bound: f64) -> Schema {
    let label = if policy == "zero" { "drop" } else { policy };
    let cells = |policy: &str| format!("missing = \"{policy}\"\ninvalid = \"{policy}\"");
    let text = COLUMNS.replace("POLICY", &cells(policy)).replace("LABEL", &cells(label));
    let coding = if coding.is_empty() { "full" } else { coding };
    let text = text.replace("kind = \"category\"", &format!("kind = \"category\"\ncoding = \"{coding}\""));
    Schema::asking("died ~ .", &format!("unit_column = \"id\"\nnorm_bound = {bound}\n{text}")).unwrap()
}

fn cell() -> impl Strategy<Value = String> {
    prop_oneof![
        4 => prop::sample::select(vec!["3", "6.0", "7", "1", "0", "true", "yes", "no", "surgery", "medicine", "", "?", "NaN", "-inf", "1e308"])
            .prop_map(str::to_owned),
        2 => (-200.0..20000.0).prop_map(|value: f64| value.to_string()),
        2 => "[ -~]{0,3}".prop_map(|text| format!("{}{MARK}", text.replace(['"', ',', '\n'], ""))),
        1 => "\\PC{0,4}".prop_map(|text| format!("\"{}{MARK}\"", text.replace('"', "\"\""))),
    ]
}

fn table() -> impl Strategy<Value = String> {
    let row = prop::collection::vec(cell(), 8).prop_map(|cells| cells.join(","));
    let odd = prop::collection::vec(cell(), 1..10).prop_map(|cells| cells.join(","));
    prop::collection::vec(prop_oneof![12 => row, 1 => odd], 0..6).prop_map(|rows| format!("{HEADER}\n{}\n", rows.join("\n")))
}

fn check(schema: &Schema, bytes: &[u8]) -> Result<(), TestCaseError> {
    let directory = tempfile::tempdir().unwrap();
    let files = [directory.path().join("cohort")];
    std::fs::write(&files[0], bytes).unwrap();
    // The folder's random name could hold the mark by itself.
    let folder = directory.path().display().to_string();
    let messages = |error: &dp_pvi_data::DataError| format!("{error} {error:?}").replace(&folder, "");
    match load_public(schema, &files, None) {
        Ok(table) => {
            for record in table.get().records() {
                let norm = record.values.iter().map(|value| value * value).sum::<f64>().sqrt();
                prop_assert!(record.is_finite() && norm <= schema.row_norm_bound());
                prop_assert!(record.indices.len() <= schema.max_nonzeros() as usize);
                prop_assert!(record.values.iter().all(|value| value.abs() <= schema.max_abs_entry()));
                prop_assert!(record.target.abs() <= schema.max_abs_target());
            }
        }
        Err(error) => prop_assert!(!messages(&error).contains(MARK), "{}", messages(&error)),
    }
    prop_assert_eq!(load(schema, &files).is_ok(), load_public(schema, &files, None).is_ok());
    match inspect(schema, &files) {
        Ok(seen) => {
            let shown = format!("{seen} {seen:?}").replace(&folder, "");
            prop_assert!(!shown.contains(MARK), "{}", shown);
            prop_assert_eq!(seen.rejected == 0, load(schema, &files).is_ok());
        }
        Err(error) => prop_assert!(!messages(&error).contains(MARK), "{}", messages(&error)),
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn no_cell_is_ever_in_a_message(text in table(), policy in prop::sample::select(vec!["zero", "drop", "reject"]), coding in prop::sample::select(vec!["", "treatment", "sum"]), bound in 0.5..20.0) {
        check(&schema(policy, coding, bound), text.as_bytes())?;
    }

    #[test]
    fn a_record_in_the_place_of_the_header_is_not_quoted(text in table()) {
        let headless = text.split_once('\n').unwrap().1;
        check(&schema("zero", "treatment", 3.0), headless.as_bytes())?;
    }

    #[test]
    fn arbitrary_bytes_do_not_panic(bytes in prop::collection::vec(any::<u8>(), 0..400), start in prop::sample::select(vec!["", "PAR1", "\u{1f}", HEADER, "id,age,gain,ward,thal,smoker,note,died\n"])) {
        check(&schema("drop", "", 3.0), &[start.as_bytes(), &bytes].concat())?;
        check(&schema("reject", "sum", 3.0), &[&[0x1f, 0x8b, 8, 0], bytes.as_slice()].concat())?;
    }
}
