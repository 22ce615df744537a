//! Two records compared: any contrast that a person asks for.
//!
//! L = row(one record) − row(another). Of the records only the columns that differ are written, as `age=60` and `ward=surgery`: what is the same in
//! both cancels. No record of anyone enters.

use dp_pvi_math::expfam::any::Standard;

use super::Effect;
use super::contrast::Contrast;
use super::formula;
use super::list::Outcome;
use crate::ModelSpec;
use dp_pvi_schema::formula::{Cell, Design};
use dp_pvi_schema::text::is_listed;
use dp_pvi_schema::{Column, ColumnKind, Matching, Place, Schema};

/// Why two records cannot be compared. Every message says what to write.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CompareError {
    /// The model's parameters are no effects.
    #[error("the parameters of {0} say nothing by themselves: contrasts are for regressions whose coefficients are effects")]
    NoEffects(String),
    /// Not of the form COLUMN=VALUE.
    #[error("`{0}` is no column with a value: write COLUMN=VALUE, as in `{1}`")]
    Form(String, String),
    /// A column that is no feature.
    #[error("`{column}` is no feature of the schema: it has {known}")]
    Column {
        /// As written.
        column: String,
        /// Those that there are.
        known: String,
    },
    /// A column twice in one record.
    #[error("column `{0}` stands twice in one record: write it once")]
    Twice(String),
    /// A column in one of the records only.
    #[error("column `{0}` stands in one record only: write what it is in the other, too")]
    OneSided(String),
    /// A column that was left out, and on which the difference depends.
    #[error("the difference depends on `{0}`, which stands in a product with a column that differs: write what it is in both records")]
    Depends(String),
    /// A value that the column cannot have.
    #[error("column `{column}`: `{value}` {problem}")]
    Value {
        /// Which column.
        column: String,
        /// As written.
        value: String,
        /// What is wrong, and what to write.
        problem: String,
    },
    /// Beyond what a computer holds.
    #[error("the difference is too large for a number: compare records that are nearer to each other")]
    TooLarge,
    /// No difference.
    #[error("the two records are the same to the model: write values that differ")]
    Same,
}

/// The effect that leads from the record `against` to the record `of`, each written as COLUMN=VALUE with values of the file. Where classes have coefficients of their
/// own, there is one for each.
///
/// # Errors
/// See [`CompareError`].
pub fn compare(
    model: &ModelSpec,
    schema: &Schema,
    posterior: &Standard,
    of: &[String],
    against: &[String],
) -> Result<Vec<Effect>, CompareError> {
    let outcome = Outcome::of(model, schema).ok_or_else(|| CompareError::NoEffects(model.to_string()))?;
    let (of, against) = (record(schema, of)?, record(schema, against)?);
    let one_sided = |these: &[Set<'_>], those: &[Set<'_>]| {
        these.iter().find(|set| those.iter().all(|other| other.column.name != set.column.name)).map(|set| set.column.name.clone())
    };
    if let Some(column) = one_sided(&of, &against).or_else(|| one_sided(&against, &of)) {
        return Err(CompareError::OneSided(column));
    }
    let mut contrast = Contrast::default();
    let design = schema.design().ok_or_else(|| CompareError::NoEffects(model.to_string()))?;
    refuse_what_depends(schema, design, &of, &against)?;
    for (record, factor) in [(&of, 1.0), (&against, -1.0)] {
        let mut cells = formula::reference_cells(schema, design);
        record.iter().for_each(|set| cells[set.position] = set.cell());
        formula::add_row(&mut contrast, design, &cells, factor);
    }
    if contrast.entries().0.is_empty() && contrast.constant == 0.0 {
        return Err(CompareError::Same);
    }
    let words: Vec<String> = of
        .iter()
        .filter_map(|set| {
            let other = against.iter().find(|other| other.column.name == set.column.name)?;
            Some(format!("{}: {} against {}", set.column.name, set.text, other.text))
        })
        .collect();
    let column = if let [only] = of.as_slice() { Some(only.column.name.clone()) } else { None };
    let contrast = outcome.difference(contrast);
    let (name, names) = (words.join("; "), model.rules().names(schema));
    let effect = |name: String, contrast: &Contrast| {
        let effect = Effect::new(name, column.clone(), outcome.comparison, contrast, &names, posterior);
        if effect.is_finite() { Ok(effect) } else { Err(CompareError::TooLarge) }
    };
    let classes = model.rules().classes_with_coefficients(schema);
    if classes.is_empty() {
        return effect(name, &contrast.shifted(model.rules().own_before_rows())).map(|effect| vec![effect]);
    }
    let of_class = |(number, class): (u32, &String)| effect(format!("{class}: {name}"), &contrast.shifted(number * schema.dimension()));
    (0_u32..).zip(&classes).map(of_class).collect()
}

/// What is not written has to cancel.
fn refuse_what_depends(schema: &Schema, design: &Design, of: &[Set<'_>], against: &[Set<'_>]) -> Result<(), CompareError> {
    let differs = |set: &&Set<'_>| against.iter().any(|other| other.position == set.position && other.cell() != set.cell());
    let companions = of.iter().filter(differs).flat_map(|set| design.companions(set.position));
    let left_out = companions.into_iter().find(|column| of.iter().all(|set| set.position != *column));
    left_out.map_or(Ok(()), |column| Err(CompareError::Depends(schema.columns()[column].name.clone())))
}

/// A column with its value.
struct Set<'a> {
    position: usize,
    column: &'a Column,
    text: &'a str,
    value: Value,
}

/// What a value is.
#[derive(Clone, Copy)]
enum Value {
    /// A number in the unit of the file.
    Number(f64),
    /// A truth value.
    Truth(bool),
    /// A level of a category.
    Level(u32),
}

impl Set<'_> {
    /// The cell that a formula sees.
    fn cell(&self) -> Cell {
        match self.value {
            Value::Number(value) => Cell::Number(value),
            Value::Truth(truth) => Cell::Level(u32::from(truth)),
            Value::Level(level) => Cell::Level(level),
        }
    }
}

fn record<'a>(schema: &'a Schema, texts: &'a [String]) -> Result<Vec<Set<'a>>, CompareError> {
    let mut sets: Vec<Set<'_>> = Vec::with_capacity(texts.len());
    for text in texts {
        let (position, column, value) = split(schema, text)?;
        if sets.iter().any(|set| set.column.name == column.name) {
            return Err(CompareError::Twice(column.name.clone()));
        }
        let problem = |problem| CompareError::Value { column: column.name.clone(), value: value.to_owned(), problem };
        sets.push(Set { position, column, text: value, value: parsed(column, value).map_err(problem)? });
    }
    Ok(sets)
}

/// Column and value; a name may hold an equals sign, so the longest that fits is it.
fn split<'a>(schema: &'a Schema, text: &'a str) -> Result<(usize, &'a Column, &'a str), CompareError> {
    let is_feature = |position: usize, column: &Column| column.kind != ColumnKind::Ignored && !schema.outcome().contains(&position);
    let features =
        || schema.columns().iter().enumerate().filter(|(position, column)| is_feature(*position, column)).map(|(_, column)| column);
    let of = |(position, column): (usize, &'a Column)| {
        let value = text.strip_prefix(column.name.as_str())?.strip_prefix('=')?;
        is_feature(position, column).then_some((position, column, value))
    };
    let columns = schema.columns().iter().enumerate();
    if let Some(found) = columns.filter_map(of).max_by_key(|(_, column, _)| column.name.len()) {
        return Ok(found);
    }
    let names: Vec<String> = features().map(|column| format!("`{}`", column.name)).collect();
    match text.split_once('=') {
        Some((column, _)) => Err(CompareError::Column { column: column.to_owned(), known: names.join(", ") }),
        None => Err(CompareError::Form(text.to_owned(), features().map(example).next().unwrap_or_default())),
    }
}

/// A value that a column can have.
fn example(column: &Column) -> String {
    let value = match &column.kind {
        ColumnKind::Number(rule) => rule.upper.to_string(),
        ColumnKind::Category(rule) => rule.values.first().cloned().unwrap_or_default(),
        ColumnKind::Boolean(rule) => rule.true_values.first().cloned().unwrap_or_default(),
        ColumnKind::Ignored => String::new(),
    };
    format!("{}={value}", column.name)
}

/// What a text means in a column, or why nothing.
fn parsed(column: &Column, text: &str) -> Result<Value, String> {
    match &column.kind {
        ColumnKind::Number(rule) => match text.parse::<f64>() {
            Ok(value) if value.is_finite() && rule.place(value) == Place::Inside => Ok(Value::Number(value)),
            Ok(value) if value.is_finite() => Err(format!(
                "is outside of the schema's range, beyond which the model knows nothing: write a number from {} to {}",
                rule.lower, rule.upper
            )),
            _ => Err(format!("is no number: write one from {} to {}", rule.lower, rule.upper)),
        },
        ColumnKind::Category(rule) => {
            let same = |level: &&String| match rule.matching {
                Matching::Text => is_listed(level.as_bytes(), text.as_bytes(), b'.'),
                Matching::Number => matches!((level.parse::<f64>(), text.parse::<f64>()), (Ok(level), Ok(value)) if level == value),
            };
            let found = (0_u32..).zip(&rule.values).find(|(_, level)| same(level));
            found.map(|(level, _)| Value::Level(level)).ok_or_else(|| format!("is no level: write {}", listed(&rule.values)))
        }
        ColumnKind::Boolean(rule) => {
            let is = |list: &[String]| {
                list.iter().any(|value| value.eq_ignore_ascii_case(text) || is_listed(value.as_bytes(), text.as_bytes(), b'.'))
            };
            match (is(&rule.true_values), is(&rule.false_values)) {
                (true, _) => Ok(Value::Truth(true)),
                (false, true) => Ok(Value::Truth(false)),
                (false, false) => Err(format!("is neither: write {}", listed(rule.true_values.iter().chain(&rule.false_values)))),
            }
        }
        ColumnKind::Ignored => Err("is of a column that is not used".into()),
    }
}

fn listed<'a>(values: impl IntoIterator<Item = &'a String>) -> String {
    values.into_iter().map(|value| format!("`{value}`")).collect::<Vec<_>>().join(" or ")
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use dp_pvi_math::expfam::any::{Family, Gaussian, Standard};
    use dp_pvi_math::expfam::gaussian::full;
    use nalgebra::{DMatrix, DVector};

    use super::{CompareError, compare};
    use crate::effects::{Effect, Measure, effects};
    use crate::logistic_regression::LogisticRegression;
    use dp_pvi_schema::Schema;

    const SCHEMA: &str = r#"
version = 2
[[columns]]
name = "age"
kind = "number"
lower = 0
upper = 110
centre = 60
scale = 20
report_per = 10
[[columns]]
name = "stays"
kind = "number"
lower = 0
upper = 20
transform = "log1p"
centre = 0
scale = 1
[[columns]]
name = "ward"
kind = "category"
values = ["surgery", "medicine", "intensive=care"]
coding = "sum"
[[columns]]
name = "grade"
kind = "category"
values = ["1", "2"]
matching = "number"
[[columns]]
name = "smoker"
kind = "boolean"
true_values = ["yes"]
false_values = ["no"]
[[columns]]
name = "note"
kind = "ignored"
[[columns]]
name = "died"
kind = "boolean"
true_values = ["yes"]
false_values = ["no"]
"#;

    fn texts(list: &[&str]) -> Vec<String> {
        list.iter().map(|text| (*text).to_owned()).collect()
    }

    /// Seven correlated coefficients: age, stays, two of the ward, grade, smoker, intercept.
    fn posterior() -> Standard {
        let factor = DMatrix::from_fn(7, 7, |i, j| if i == j { 0.4 } else { 0.1 / (1.0 + (2 * i + j) as f64) });
        let mean = DVector::from_fn(7, |i, _| 0.3 - 0.1 * i as f64);
        Standard::Full(full::Standard::new(mean, &factor * factor.transpose()).unwrap())
    }

    fn asked(of: &[&str], against: &[&str], posterior: &Standard) -> Result<Effect, CompareError> {
        let compared =
            compare(&LogisticRegression {}.into(), &Schema::asking("died ~ .", SCHEMA).unwrap(), posterior, &texts(of), &texts(against))?;
        Ok(compared.into_iter().next().unwrap())
    }

    /// What is in the list is found again.
    #[test]
    fn a_comparison_of_one_column_is_its_effect() {
        let q = posterior();
        let list = effects(&LogisticRegression {}.into(), &Schema::asking("died ~ .", SCHEMA).unwrap(), &q);
        for (name, of, against) in [
            ("age, per 10", "age=60", "age=50"),
            ("ward: medicine against surgery", "ward=medicine", "ward=surgery"),
            ("ward: intensive=care against surgery", "ward=intensive=care", "ward=surgery"),
            ("grade: 2 against 1", "grade=2.0", "grade=1"),
            ("smoker: yes against no", "smoker=yes", "smoker=no"),
        ] {
            let expected = list.iter().find(|effect| effect.name == name).unwrap_or_else(|| panic!("{name}"));
            let found = asked(&[of], &[against], &q).unwrap();
            assert!(
                (found.estimate - expected.estimate).abs() < 1e-14 && (found.sd.unwrap() - expected.sd.unwrap()).abs() < 1e-14,
                "{name}"
            );
            assert_eq!((found.measure, &found.column), (Measure::OddsRatio, &expected.column));
        }
    }

    #[test]
    fn several_columns_are_one_difference_of_rows() {
        let q = posterior();
        let found = asked(&["age=70", "stays=3", "ward=intensive=care"], &["ward=medicine", "age=60", "stays=0"], &q).unwrap();
        assert_eq!(found.name, "age: 70 against 60; stays: 3 against 0; ward: intensive=care against medicine");
        assert_eq!(found.column, None);
        let l = DVector::from_column_slice(&[0.5, 4_f64.ln(), -1.0, -2.0, 0.0, 0.0, 0.0]);
        let Standard::Full(standard) = &q else { panic!("full") };
        assert!((found.estimate - l.dot(standard.mean())).abs() < 1e-14);
        assert!((found.sd.unwrap().powi(2) - (l.transpose() * standard.covariance() * &l)[0]).abs() < 1e-14);
        assert_eq!(
            found.contrast.iter().map(|term| term.coefficient.as_str()).collect::<Vec<_>>(),
            ["age", "stays", "ward=surgery vs mean", "ward=medicine vs mean"]
        );
    }

    #[test]
    fn a_mean_field_gives_an_interval_to_one_coefficient_only() {
        let natural = [vec![0.1; 7], vec![4.0; 7]].concat();
        let q = Gaussian::from_natural(Family::DiagonalGaussian { dimension: 7 }, natural).unwrap();
        assert!(asked(&["age=60"], &["age=50"], q.standard()).unwrap().interval_90.is_some());
        let two = asked(&["age=60", "smoker=yes"], &["age=50", "smoker=no"], q.standard()).unwrap();
        assert!(two.interval_90.is_none() && two.no_interval.unwrap().contains("full-covariance"));
    }

    #[test]
    fn every_error_says_what_to_write() {
        let q = posterior();
        for (of, against, said) in [
            (&["age"][..], &["age=50"][..], "write COLUMN=VALUE, as in `age=110`"),
            (&["height=3"], &["height=4"], "`height` is no feature of the schema: it has `age`, `stays`, `ward`, `grade`, `smoker`"),
            (&["note=3"], &["note=4"], "`note` is no feature"),
            (&["died=yes"], &["died=no"], "`died` is no feature"),
            (&["age=60", "age=70"], &["age=50"], "`age` stands twice"),
            (&["age=60"], &["age=50", "smoker=no"], "`smoker` stands in one record only"),
            (&["age=60", "smoker=no"], &["age=50"], "`smoker` stands in one record only"),
            (&["age=old"], &["age=50"], "column `age`: `old` is no number: write one from 0 to 110"),
            (&["age=nan"], &["age=50"], "is no number"),
            (&["age=120"], &["age=50"], "outside of the schema's range"),
            (&["ward=Surgery"], &["ward=surgery"], "is no level: write `surgery` or `medicine` or `intensive=care`"),
            (&["grade=x"], &["grade=1"], "is no level"),
            (&["smoker=true"], &["smoker=no"], "is neither: write `yes` or `no`"),
            (&["age=60"], &["age=60.0"], "are the same"),
        ] {
            let error = asked(of, against, &q).unwrap_err().to_string();
            assert!(error.contains(said), "{error}");
        }
        let mixture = crate::gaussian_mixture::GaussianMixture { components: 2, noise_sd: 1.0, seed: 1 };
        let error = compare(&mixture.into(), &Schema::asking("died ~ .", SCHEMA).unwrap(), &q, &texts(&["age=60"]), &texts(&["age=50"]))
            .unwrap_err();
        assert!(matches!(&error, CompareError::NoEffects(_)), "{error}");
    }
}
