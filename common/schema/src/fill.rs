//! What stands in for a missing number where it follows from the record's other cells: a public constant plus public multiples of them, clamped to the column's range.
//!
//! ```toml
//! missing = { fill = { constant = 27.1, age = 0.02, smoker = -0.4, ward = { medicine = 1.2 } } }
//! ```
//!
//! A number counts in the unit of the file, clamped to its range, and where it is missing by what stands in for it; a truth value as 1 or 0; a category by the number of its level. What
//! is missing of the last two, and levels without a number, add nothing. All coefficients are public values of the schema, so what is in is a function of the record alone.

use super::formula::Cell;
use super::{Column, ColumnKind, NumberRule, SchemaError};

/// Beside the columns of a fill.
const CONSTANT: &str = "constant";

/// What stands in for a missing number.
#[derive(Debug, Clone, PartialEq)]
pub struct Fill {
    column: usize,
    range: (f64, f64),
    constant: f64,
    parts: Vec<Part>,
}

/// What one other column adds.
#[derive(Debug, Clone, PartialEq)]
struct Part {
    column: usize,
    slope: Slope,
}

#[derive(Debug, Clone, PartialEq)]
enum Slope {
    /// Times the number; of a truth value, 1 or 0.
    Times(f64),
    /// By level.
    Levels(Vec<f64>),
}

impl Fill {
    /// Position of the column whose missing values it stands for.
    #[must_use]
    pub fn column(&self) -> usize {
        self.column
    }

    /// Positions of the columns that it looks at.
    pub fn sources(&self) -> impl Iterator<Item = usize> + '_ {
        self.parts.iter().map(|part| part.column)
    }

    /// The value, in the unit of the file, from the record's cells, one a column.
    #[must_use]
    pub fn value(&self, cells: &[Cell]) -> f64 {
        let part = |part: &Part| match (&part.slope, cells[part.column]) {
            (Slope::Times(slope), Cell::Number(value) | Cell::Gap(value)) => slope * value,
            (Slope::Times(slope), Cell::Level(truth)) => slope * f64::from(truth),
            (Slope::Levels(levels), Cell::Level(level)) => levels[level as usize],
            (_, Cell::Missing) | (Slope::Levels(_), Cell::Number(_) | Cell::Gap(_)) => 0.0,
        };
        let sum = self.constant + self.parts.iter().map(part).sum::<f64>();
        sum.clamp(self.range.0, self.range.1)
    }

    /// No record's sum is larger in absolute value.
    fn is_finite(&self, columns: &[Column]) -> bool {
        let part = |part: &Part| match (&part.slope, &columns[part.column].kind) {
            (Slope::Times(slope), ColumnKind::Number(rule)) => slope.abs() * rule.lower.abs().max(rule.upper.abs()),
            (Slope::Times(slope), _) => slope.abs(),
            (Slope::Levels(levels), _) => levels.iter().fold(0.0, |most, level| level.abs().max(most)),
        };
        (self.constant.abs() + self.parts.iter().map(part).sum::<f64>()).is_finite()
    }
}

/// Reads the fills of some columns. They come in an order in which each is behind those that it looks at, and otherwise in that of the columns.
pub(super) fn resolve(written: Vec<(usize, toml::Table)>, columns: &[Column]) -> Result<Vec<Fill>, SchemaError> {
    let fills = written.into_iter().map(|(column, table)| {
        read(column, &table, columns)
            .map_err(|problem| SchemaError::Column { column: columns[column].name.clone(), problem: format!("`fill`: {problem}") })
    });
    ordered(fills.collect::<Result<Vec<_>, _>>()?, columns)
}

fn read(column: usize, table: &toml::Table, columns: &[Column]) -> Result<Fill, String> {
    let ColumnKind::Number(NumberRule { lower, upper, .. }) = columns[column].kind else {
        return Err("is for numbers".into());
    };
    let Some(constant) = table.get(CONSTANT).and_then(number) else {
        return Err("needs `constant`, a number in the unit of the file, and beside it columns with their coefficients".into());
    };
    let others = table.iter().filter(|(key, _)| *key != CONSTANT);
    let mut parts = others.map(|(name, value)| part(name, value, columns)).collect::<Result<Vec<_>, _>>()?;
    // The order of the file's columns, whatever that of the keys is: sums come out the same.
    parts.sort_by_key(|part| part.column);
    let fill = Fill { column, range: (lower, upper), constant, parts };
    if fill.is_finite(columns) { Ok(fill) } else { Err("can be no finite number: use smaller coefficients".into()) }
}

fn part(name: &str, value: &toml::Value, columns: &[Column]) -> Result<Part, String> {
    let Some(column) = columns.iter().position(|column| column.name == name) else {
        return Err(format!("there is no column `{name}`: what stands in is a sum over described columns"));
    };
    let slope = match (&columns[column].kind, value) {
        (ColumnKind::Number(_) | ColumnKind::Boolean(_), value) => match number(value) {
            Some(slope) => Slope::Times(slope),
            None => return Err(format!("`{name}` needs one number, by which it is multiplied")),
        },
        (ColumnKind::Category(rule), toml::Value::Table(table)) => {
            let mut levels = vec![0.0; rule.values.len()];
            for (text, value) in table {
                let Some(level) = rule.values.iter().position(|level| level == text) else {
                    return Err(format!("`{text}` is no level of `{name}`: its levels are {}", rule.values.join(", ")));
                };
                levels[level] = number(value).ok_or_else(|| format!("the level `{text}` of `{name}` needs a number"))?;
            }
            Slope::Levels(levels)
        }
        (ColumnKind::Category(rule), _) => {
            let first = rule.values.first().map_or("", String::as_str);
            return Err(format!("`{name}` is a category: write a number for its levels, as `{name} = {{ {first:?} = 1.5 }}`"));
        }
        (ColumnKind::Ignored, _) => return Err(format!("`{name}` is ignored: describe it, or leave it out")),
    };
    Ok(Part { column, slope })
}

fn number(value: &toml::Value) -> Option<f64> {
    #[allow(clippy::cast_precision_loss, reason = "a whole number that somebody wrote for a real one")]
    let number = match value {
        toml::Value::Float(value) => *value,
        toml::Value::Integer(value) => *value as f64,
        _ => return None,
    };
    number.is_finite().then_some(number)
}

fn ordered(fills: Vec<Fill>, columns: &[Column]) -> Result<Vec<Fill>, SchemaError> {
    let mut left = fills;
    let mut done: Vec<Fill> = Vec::with_capacity(left.len());
    while !left.is_empty() {
        let waits = |fill: &Fill| fill.sources().any(|source| left.iter().any(|other| other.column == source));
        let Some(next) = left.iter().position(|fill| !waits(fill)) else {
            return Err(circle(&left, columns));
        };
        done.push(left.remove(next));
    }
    Ok(done)
}

/// Every one of `left` looks at another one of them: following the first leads into a circle.
fn circle(left: &[Fill], columns: &[Column]) -> SchemaError {
    let next = |column: usize| {
        let fill = left.iter().find(|fill| fill.column == column)?;
        fill.sources().find(|source| left.iter().any(|other| other.column == *source))
    };
    let mut way: Vec<usize> = left.iter().map(|fill| fill.column).take(1).collect();
    while let Some(source) = way.last().and_then(|column| next(*column)) {
        if let Some(start) = way.iter().position(|column| *column == source) {
            way.drain(..start);
            way.push(source);
            break;
        }
        way.push(source);
    }
    let names: Vec<String> = way.iter().map(|column| format!("`{}`", columns[*column].name)).collect();
    SchemaError::Column {
        column: way.first().map_or_else(String::new, |column| columns[*column].name.clone()),
        problem: format!("`fill` goes in a circle, {}: let one of them have a fill that does not look at the others", names.join(" from ")),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use crate::formula::Cell;
    use crate::{Schema, SchemaError};

    const SCHEMA: &str = r#"
version = 2
unit_column = "patient"
[[columns]]
name = "bmi"
kind = "number"
lower = 10
upper = 60
centre = 25
scale = 10
missing = { fill = { constant = 20, age = 0.1, smoker = -2, ward = { icu = 1.5 } } }
[[columns]]
name = "age"
kind = "number"
lower = 0
upper = 110
centre = 50
scale = 20
missing = "indicator"
fill = { constant = 40.0, weight = 0.25 }
[[columns]]
name = "weight"
kind = "number"
lower = 0
upper = 200
centre = 80
scale = 20
missing = { fill = 72 }
[[columns]]
name = "ward"
kind = "category"
values = ["surgery", "icu"]
missing = "zero"
[[columns]]
name = "smoker"
kind = "boolean"
missing = "zero"
[[columns]]
name = "note"
kind = "ignored"
[[columns]]
name = "died"
kind = "boolean"
true_values = ["yes"]
false_values = ["no"]
"#;

    /// What is said of another text in the place of one of the schema.
    fn refused(from: &str, to: &str) -> (String, String) {
        assert!(SCHEMA.contains(from));
        match Schema::asking("died ~ .", &SCHEMA.replace(from, to)) {
            Err(SchemaError::Column { column, problem }) => (column, problem),
            other => panic!("{to}: {other:?}"),
        }
    }

    #[test]
    fn what_stands_in_is_a_sum_over_other_cells_inside_the_range() {
        let schema = Schema::asking("died ~ .", SCHEMA).unwrap();
        // `bmi` looks at `age`, which is behind it in the file.
        assert_eq!(schema.fills().iter().map(super::Fill::column).collect::<Vec<_>>(), [1, 0]);
        let [age, bmi] = schema.fills() else { panic!("two") };
        let cells = |age: f64, weight: f64, ward: Cell, smoker: Cell| {
            [Cell::Number(0.0), Cell::Number(age), Cell::Number(weight), ward, smoker, Cell::Missing]
        };
        assert_eq!(age.value(&cells(0.0, 72.0, Cell::Missing, Cell::Missing)), 58.0);
        let of_bmi = |age: f64, ward, smoker| bmi.value(&cells(age, 0.0, ward, smoker));
        assert_eq!(of_bmi(50.0, Cell::Missing, Cell::Missing), 25.0);
        assert_eq!(of_bmi(50.0, Cell::Level(0), Cell::Level(0)), 25.0);
        assert_eq!(of_bmi(50.0, Cell::Level(1), Cell::Level(1)), 24.5);
        // 40 + 0.25 · 200 = 90 is inside; without the clamp at 110 a larger slope would leave the range.
        let steep = Schema::asking("died ~ .", &SCHEMA.replace("weight = 0.25", "weight = 0.5")).unwrap();
        assert_eq!(steep.fills()[0].value(&cells(0.0, 200.0, Cell::Missing, Cell::Missing)), 110.0);
        let falling = Schema::asking("died ~ .", &SCHEMA.replace("weight = 0.25", "weight = -0.5")).unwrap();
        assert_eq!(falling.fills()[0].value(&cells(0.0, 200.0, Cell::Missing, Cell::Missing)), 0.0);
    }

    #[test]
    fn a_fill_changes_neither_the_entries_nor_their_bounds() {
        let plain = SCHEMA
            .replace("missing = { fill = { constant = 20, age = 0.1, smoker = -2, ward = { icu = 1.5 } } }", "missing = { fill = 20 }");
        let plain = plain.replace("fill = { constant = 40.0, weight = 0.25 }", "fill = 40");
        for formula in [None, Some("died ~ s(age) + bmi*ward")] {
            let of = |text: &str| {
                let schema = Schema::asking("died ~ .", text).unwrap();
                formula.map_or(schema.clone(), |formula| schema.with_formula(formula, &[]).unwrap())
            };
            let (with, without) = (of(SCHEMA), of(&plain));
            assert_eq!(with.coefficient_names(), without.coefficient_names());
            assert_eq!(with.row_norm_bound(), without.row_norm_bound());
            assert_eq!((with.max_nonzeros(), without.fills().len()), (without.max_nonzeros(), 0));
        }
    }

    /// `bmi` alone is in the formula; its fill looks at the others, and that of `age` at `weight`.
    #[test]
    fn columns_that_fills_look_at_are_used() {
        let used = |formula: &str| {
            let schema = Schema::parse(SCHEMA).unwrap().with_formula(formula, &[]).unwrap();
            schema.used_columns().map(|column| column.name.clone()).collect::<Vec<_>>()
        };
        assert_eq!(used("died ~ bmi"), ["bmi", "age", "weight", "ward", "smoker"]);
        assert_eq!(used("died ~ age"), ["age", "weight"]);
        assert_eq!(used("died ~ ward"), ["ward"]);
    }

    #[test]
    fn every_error_names_the_column_and_says_what_to_write() {
        const AGE: &str = "fill = { constant = 40.0, weight = 0.25 }";
        for (to, words) in [
            ("fill = { weight = 0.25 }", "needs `constant`"),
            ("fill = { constant = \"a\", weight = 0.25 }", "needs `constant`"),
            ("fill = { constant = 40, height = 1 }", "no column `height`"),
            ("fill = { constant = 40, died = 1 }", "looks at `died`, which the formula predicts"),
            ("fill = { constant = 40, patient = 1 }", "no column `patient`"),
            ("fill = { constant = 40, note = 1 }", "`note` is ignored"),
            ("fill = { constant = 40, weight = \"x\" }", "`weight` needs one number"),
            ("fill = { constant = 40, weight = { a = 1 } }", "`weight` needs one number"),
            ("fill = { constant = 40, weight = nan }", "`weight` needs one number"),
            ("fill = { constant = 40, ward = 1 }", "`ward = { \"surgery\" = 1.5 }`"),
            ("fill = { constant = 40, ward = { er = 1 } }", "`er` is no level of `ward`: its levels are surgery, icu"),
            ("fill = { constant = 40, ward = { icu = true } }", "the level `icu` of `ward` needs a number"),
            ("fill = { constant = 40, weight = 1e308 }", "no finite number"),
            ("fill = { constant = 40, age = 1 }", "goes in a circle, `age` from `age`"),
            ("fill = { constant = 40, bmi = 1 }", "goes in a circle, `bmi` from `age` from `bmi`"),
            ("fill = \"mean\"", "a number, or a table"),
        ] {
            let (column, problem) = refused(AGE, to);
            assert!(problem.contains(words), "{to}: {problem}");
            assert!(["age", "bmi"].contains(&column.as_str()) && (column == "age" || words.contains("`bmi` from")), "{to}: {column}");
        }
        // A fill belongs to a number, and is said in one place.
        let (column, problem) = refused(
            "values = [\"surgery\", \"icu\"]\nmissing = \"zero\"",
            "values = [\"surgery\", \"icu\"]\nmissing = { fill = { constant = 1 } }",
        );
        assert!(column == "ward" && problem.contains("`fill` is for numbers"), "{column} {problem}");
        let (column, problem) = refused("missing = \"indicator\"\nfill", "missing = \"zero\"\nfill");
        assert!(column == "age" && problem.contains("belongs to `missing = \"indicator\"`"), "{column} {problem}");
    }

    #[test]
    fn the_weight_of_a_record_has_no_fill() {
        let schema = Schema::parse(SCHEMA).unwrap().with_formula("died ~ age", &[]).unwrap();
        assert!(schema.with_weights("bmi").unwrap_err().to_string().contains("nothing stands in"));
    }
}
