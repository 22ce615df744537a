//! Clients by a column of the data: the value in a unit's first record says which client has the unit.
//!
//! The column is read beside the records, through their own schema with this column as one more category. So it need not be a column of the task, and the model sees
//! nothing of it.

use dp_pvi_inference::records::RecordTable;
use dp_pvi_privacy::UnitTable;
use dp_pvi_schema::Schema;
use toml::{Table, Value};

use super::ExperimentError;
use super::config::ClientsSection;

/// The schema with the column as a category of the clients' values, in the place of what it says of the column itself, and rows of all columns.
pub(super) fn schema(text: &str, formula: &str, clients: &ClientsSection) -> Result<Schema, ExperimentError> {
    let name = clients.column.as_deref().unwrap_or_default();
    let wrong = |problem: String| ExperimentError::Config(format!("[clients] column = {name:?}: {problem}"));
    let mut table: Table = toml::from_str(text).map_err(|error| wrong(error.to_string()))?;
    let Value::Array(columns) = table.entry("columns").or_insert_with(|| Value::Array(Vec::new())) else {
        return Err(wrong("the schema has no list of columns".to_owned()));
    };
    columns.retain(|column| column.get("name").and_then(Value::as_str) != Some(name));
    let mut own = Table::new();
    for (key, value) in [("name", name), ("kind", "category"), ("coding", "full"), ("missing", "zero"), ("invalid", "zero")] {
        own.insert(key.to_owned(), value.into());
    }
    own.insert("values".to_owned(), clients.values.clone().into());
    if let Some(Value::Array(columns)) = table.get_mut("columns") {
        columns.push(Value::Table(own));
    }
    let text = toml::to_string(&table).map_err(|error| wrong(error.to_string()))?;
    // Records without an outcome have no client either: the left side stays.
    let outcome = formula.split_once('~').map_or("", |(outcome, _)| outcome);
    let schema = Schema::asking(&format!("{outcome}~ ."), &text).map_err(|error| wrong(error.to_string()))?;
    if schema.label().columns().any(|column| column == name) {
        return Err(wrong("the task predicts it".to_owned()));
    }
    Ok(schema)
}

/// The client of every unit of `records`, by the rows that the [`schema`] above makes of the same files. A unit with another value has none.
pub(super) fn clients(
    records: &RecordTable,
    rows: &RecordTable,
    schema: &Schema,
    clients: &ClientsSection,
) -> Result<Vec<Option<usize>>, ExperimentError> {
    let name = clients.column.as_deref().unwrap_or_default();
    let wrong = |problem: String| Err(ExperimentError::Config(format!("[clients] column = {name:?}: {problem}")));
    let sizes = |table: &RecordTable| (0..table.len()).map(|unit| table.unit(unit).records().count()).collect::<Vec<_>>();
    if sizes(records) != sizes(rows) {
        return wrong("the schema drops records for what stands there, so that some have no client: let it keep them".to_owned());
    }
    let column = schema.columns().iter().position(|column| column.name == name);
    let first = column.and_then(|column| schema.design()?.only_place(column)).map_or(0, |first| first as usize);
    let level = |index: usize| index.checked_sub(first).filter(|level| *level < clients.values.len());
    let of = |unit: usize| rows.unit(unit).records().next().and_then(|record| record.entries().find_map(|(index, _)| level(index)));
    let found: Vec<Option<usize>> = (0..rows.len()).map(of).collect();
    match clients.values.iter().zip(0..).find(|(_, client)| !found.contains(&Some(*client))) {
        None => Ok(found),
        Some((value, _)) => wrong(format!("no unit's first record has {value:?}: take it out of values")),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use dp_pvi_data::load_public;

    use super::super::config::Slicing;
    use super::*;

    const SCHEMA: &str = r#"
version = 2
unit_column = "patient"
other_columns = "ignore"
[[columns]]
name = "age"
kind = "number"
lower = 0
upper = 100
centre = 50
scale = 25
missing = "indicator"
[[columns]]
name = "town"
kind = "category"
values = ["A", "B"]
missing = "drop"
[[columns]]
name = "ill"
kind = "boolean"
true_values = ["yes"]
false_values = ["no"]
"#;

    const ROWS: &str = "patient,ill,age,town,ward\n1,yes,50,A,heart\n2,no,,B,lungs\n1,no,60,A,lungs\n3,no,70,A,?\n4,yes,80,B,heart\n";

    fn found(rows: &str, column: &str, values: &[&str]) -> Result<Vec<Option<usize>>, String> {
        let values = values.iter().map(|value| (*value).to_owned()).collect();
        let how = ClientsSection { number: None, rho: 0.0, kappa: 0.0, slicing: Slicing::Column, column: Some(column.to_owned()), values };
        let folder = tempfile::tempdir().unwrap();
        let files = [folder.path().join("records.csv")];
        std::fs::write(&files[0], rows).unwrap();
        let load = |schema: &Schema| load_public(schema, &files, None).unwrap().into_inner();
        let records = load(&Schema::parse(SCHEMA).unwrap().with_formula("ill ~ age + town", &[]).unwrap());
        let side = schema(SCHEMA, "ill ~ age + town", &how).map_err(|error| error.to_string())?;
        clients(&records, &load(&side), &side, &how).map_err(|error| error.to_string())
    }

    #[test]
    fn the_first_record_of_a_unit_decides_its_client() {
        // Not a column of the schema; the third patient's ward is none of them.
        assert_eq!(found(ROWS, "ward", &["lungs", "heart"]), Ok(vec![Some(1), Some(0), None, Some(1)]));
        assert_eq!(found(ROWS, "ward", &["heart"]), Ok(vec![Some(0), None, None, Some(0)]));
        // A column of the schema.
        assert_eq!(found(ROWS, "town", &["B"]), Ok(vec![None, Some(0), None, Some(0)]));
    }

    #[test]
    fn values_that_nobody_has_and_columns_that_cannot_decide_are_refused() {
        assert!(found(ROWS, "ward", &["heart", "feet"]).unwrap_err().contains("\"feet\": take it out"));
        assert!(found(ROWS, "ill", &["yes"]).unwrap_err().contains("[clients] column = \"ill\""));
        // A record without a town is dropped by the task's schema, but has a ward.
        let dropped = ROWS.replace("1,no,60,A", "1,no,60,");
        assert!(found(&dropped, "town", &["A"]).unwrap_err().contains("drops records"));
    }
}
