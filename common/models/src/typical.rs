//! What is typical of a row, from what is public of its columns, and the priors that follow: [`dp_pvi_math::typical`] for any formula.
//!
//! A number that is coded by centre and scale has its mean and standard deviation in closed form. For everything else 4,096 public rows go through the formula: numbers are normal about their published
//! mean, else the middle of the range, and within the range; truths and levels have their published shares, else equal ones; columns are independent. The rows are a Kronecker sequence: the same
//! every time.
//!
//! An entry in which a number takes part has the standard deviation of these rows for its typical spread, but at least a twentieth of the largest of its term; every other entry has 1.

use dp_pvi_math::normal::quantile;
use dp_pvi_math::typical::{Centre, Entry, Label, Rate};
use dp_pvi_schema::formula::{Cell, Design, Record, RowSpace};
use dp_pvi_schema::published::Marginal;
use dp_pvi_schema::{Column, ColumnKind, LabelKind, NumberRule, Schema, Transform};

use crate::ModelSpec;
use crate::response::PredictorScale;
use crate::spec::PriorSpec;

/// Rows that go through a formula.
const ROWS: u32 = 4096;

/// Least spread of an entry, over the largest of its term.
const LEAST_SPREAD: f64 = 0.05;

/// Least share of a class.
const LEAST_SHARE: f64 = 1e-4;

/// Of a number within its range where nothing is published.
const SPREAD_OF_RANGE: f64 = 0.15;

/// The logit has this many standard deviations of a probit.
const LOGIT_OF_PROBIT: f64 = 1.6;

/// The standard deviation of a coefficient in typical units where a task says nothing: 2.5, and 1 of logarithms of rates. `None` where coefficients are no effects.
#[must_use]
pub fn usual_scale(model: &ModelSpec) -> Option<f64> {
    Some(match model.rules().response().scale? {
        PredictorScale::LogRate | PredictorScale::LogHazard => 1.0,
        PredictorScale::LogOdds | PredictorScale::Probit | PredictorScale::Label => 2.5,
    })
}

/// Mean and standard deviation of every coefficient of a row, class by class where classes have their own. `None` where coefficients are no effects, or rows have no formula.
#[must_use]
pub fn priors(model: &ModelSpec, schema: &Schema, spec: PriorSpec) -> Option<Vec<[f64; 2]>> {
    let (design, rules) = (schema.design()?, model.rules());
    let scale = rules.response().scale?;
    let entries = entries(schema, design);
    let offset = middle_of_offset(design, scale);
    let classes = rules.classes_with_coefficients(schema);
    let labels = if classes.is_empty() { vec![label(schema, scale, offset)] } else { of_classes(schema, classes.len()) };
    // A probit's predictor is that much smaller than a logit's.
    let unit = if scale == PredictorScale::Probit { 1.0 / LOGIT_OF_PROBIT } else { 1.0 };
    let of_label = |label: Label| {
        let coefficient = label.coefficient(Some(spec.scale));
        let priors = label.priors(coefficient, &entries);
        let mean = |entry: &Entry| spec.mean * label.coefficient(Some(1.0)) / entry.spread;
        let mut all: Vec<[f64; 2]> = entries.iter().zip(&priors.coefficients).map(|(entry, sd)| [mean(entry) * unit, sd * unit]).collect();
        if let Some(intercept) = design.intercept() {
            let [mean, sd] = priors.intercept;
            // What is published of a count is a mean of records, and that of other labels is without their offset.
            let mean = if matches!(label, Label::Count(_)) { mean } else { mean * unit - offset };
            all[intercept as usize] = [mean, sd * unit];
        }
        all
    };
    Some(labels.into_iter().flat_map(of_label).collect())
}

/// What is typical of every entry of a row; of the intercept nothing differs.
fn entries(schema: &Schema, design: &Design) -> Vec<Entry> {
    let d = design.dimension() as usize;
    let (mut sums, mut squares) = (vec![0.0; d], vec![0.0; d]);
    for_each_row(schema, design, |position, value| {
        sums[position as usize] += value;
        squares[position as usize] += value * value;
    });
    let rows = f64::from(ROWS);
    let of_numbers = design.of_numbers();
    let spread = |j: usize| ((squares[j] - sums[j] * sums[j] / rows) / rows).max(0.0).sqrt();
    let mut entries: Vec<Entry> = (0..d)
        .map(|j| match of_numbers[j] {
            true => Entry { spread: spread(j), mean: sums[j] / rows, square: squares[j] / rows },
            false => Entry { spread: 1.0, mean: 0.0, square: squares[j] / rows },
        })
        .collect();
    for (position, column) in schema.columns().iter().enumerate() {
        if let (ColumnKind::Number(rule), dp_pvi_schema::formula::Use::Coded { coefficient }) = (&column.kind, design.use_of(position))
            && let Some([mean, spread]) = coded(rule, column)
        {
            entries[coefficient as usize] = Entry { spread, mean, square: spread * spread + mean * mean };
        }
    }
    for term in design.terms() {
        let own = &mut entries[term.first as usize..(term.first + term.count) as usize];
        let largest = own.iter().map(|entry| entry.spread).fold(0.0, f64::max);
        // An entry that is the same in all rows has no typical difference.
        let least = if largest > 0.0 { LEAST_SPREAD * largest } else { 1.0 };
        own.iter_mut().for_each(|entry| entry.spread = entry.spread.max(least));
    }
    if let Some(intercept) = design.intercept() {
        entries[intercept as usize] = Entry { spread: 1.0, mean: 0.0, square: 0.0 };
    }
    entries
}

/// Mean and standard deviation of the entry of a number. `None` where what is published is of the value before a transform.
fn coded(rule: &NumberRule, column: &Column) -> Option<[f64; 2]> {
    let (low, high) = (rule.encode(rule.lower), rule.encode(rule.upper));
    match column.published.as_ref().map(|published| &published.law) {
        Some(Marginal::Moments { mean, sd }) if rule.transform == Transform::Identity => Some([rule.encode(*mean), sd / rule.scale]),
        Some(_) => None,
        None => Some([f64::midpoint(low, high), SPREAD_OF_RANGE * (high - low)]),
    }
}

/// The entries of the public rows that are not 0.
fn for_each_row(schema: &Schema, design: &Design, mut push: impl FnMut(u32, f64)) {
    let filled = vec![false; schema.columns().len()];
    let steps: Vec<f64> = primes().take(schema.columns().len()).map(|prime| f64::from(prime).sqrt().fract()).collect();
    let mut space = RowSpace::default();
    for row in 1..=ROWS {
        let at = |step: &f64| (0.5 + f64::from(row) * step).fract();
        let cells: Vec<Cell> = schema.columns().iter().zip(&steps).map(|(column, step)| cell(column, at(step))).collect();
        design.row(&Record { cells: &cells, filled: &filled, site: None }, &mut space, &mut push);
    }
}

/// The value of a column below which it has this share.
fn cell(column: &Column, at: f64) -> Cell {
    let published = column.published.as_ref().map(|published| &published.law);
    match (&column.kind, published) {
        (ColumnKind::Ignored, _) => Cell::Missing,
        (ColumnKind::Number(rule), Some(Marginal::Moments { mean, sd })) => {
            Cell::Number((mean + sd * quantile(at)).clamp(rule.lower, rule.upper))
        }
        (ColumnKind::Number(rule), _) => {
            let (low, high) = (rule.encode(rule.lower), rule.encode(rule.upper));
            let entry = f64::midpoint(low, high) + SPREAD_OF_RANGE * (high - low) * quantile(at);
            Cell::Number(rule.decode(entry.clamp(low, high)).clamp(rule.lower, rule.upper))
        }
        (ColumnKind::Boolean(_), law) => {
            let share = if let Some(Marginal::Share(share)) = law { *share } else { 0.5 };
            Cell::Level(u32::from(at >= 1.0 - share))
        }
        (ColumnKind::Category(rule), law) => {
            let equal = vec![1.0; rule.values.len()];
            let shares = if let Some(Marginal::Shares(shares)) = law { shares } else { &equal };
            let mut left = at * shares.iter().sum::<f64>();
            let below = |share: &&f64| {
                left -= **share;
                left >= 0.0
            };
            let level = shares.iter().take_while(below).count().min(shares.len().saturating_sub(1));
            Cell::Level(u32::try_from(level).unwrap_or(u32::MAX))
        }
    }
}

fn primes() -> impl Iterator<Item = u32> {
    (2_u32..).filter(|n| (2..).take_while(|k| k * k <= *n).all(|k| n % k != 0))
}

/// The middle of what the formula adds to a predictor. The range of a logarithm is that of what is counted in, whose middle it is.
fn middle_of_offset(design: &Design, scale: PredictorScale) -> f64 {
    let (low, high) = design.offset_range();
    match scale {
        PredictorScale::LogRate | PredictorScale::LogHazard => high + ((low - high).exp() / 2.0 + 0.5).ln(),
        PredictorScale::LogOdds | PredictorScale::Probit | PredictorScale::Label => f64::midpoint(low, high),
    }
}

/// What is public of what is predicted, on the scale of the linear predictor.
fn label(schema: &Schema, scale: PredictorScale, offset: f64) -> Label {
    let label = schema.label();
    let published = label.published.as_ref().map(|published| &published.law);
    match (scale, &label.kind, published) {
        (PredictorScale::LogOdds | PredictorScale::Probit, _, law) => Label::Class {
            share: match law {
                Some(Marginal::Share(share)) => Some(share.clamp(LEAST_SHARE, 1.0 - LEAST_SHARE)),
                _ => None,
            },
        },
        (PredictorScale::LogRate, _, Some(Marginal::Moments { mean, .. })) if *mean > 0.0 => {
            Label::Count(Rate::Published { rate: mean / offset.exp(), units: offset.exp() })
        }
        (PredictorScale::LogRate | PredictorScale::LogHazard, ..) => Label::Count(Rate::Unknown { mean_offset: offset }),
        (PredictorScale::Label, LabelKind::Number { rule, .. }, law) => {
            let (low, high) = (rule.encode(rule.lower), rule.encode(rule.upper));
            match law {
                Some(Marginal::Moments { mean, sd }) => {
                    let spread = f64::midpoint(rule.encode(mean + sd), -rule.encode(mean - sd));
                    Label::Number { centre: Centre::Mean(rule.encode(*mean)), spread: spread.max(f64::MIN_POSITIVE) }
                }
                _ => Label::Number { centre: Centre::Middle(f64::midpoint(low, high)), spread: SPREAD_OF_RANGE * (high - low) },
            }
        }
        (PredictorScale::Label, ..) => Label::Number { centre: Centre::Middle(0.0), spread: 1.0 },
    }
}

/// The same of every class but the first, against the first.
fn of_classes(schema: &Schema, classes: usize) -> Vec<Label> {
    let shares = match schema.label().published.as_ref().map(|published| &published.law) {
        Some(Marginal::Shares(shares)) if shares.len() == classes + 1 => Some(shares),
        _ => None,
    };
    let share = |k: usize| {
        shares.map(|shares| {
            let [first, own] = [0, k].map(|k| shares[k].max(LEAST_SHARE));
            own / (own + first)
        })
    };
    (1..=classes).map(|k| Label::Class { share: share(k) }).collect()
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use dp_pvi_schema::Schema;

    use super::priors;
    use crate::ModelSpec;
    use crate::linear_regression::LinearRegression;
    use crate::logistic_regression::LogisticRegression;
    use crate::spec::PriorSpec;

    const COLUMNS: &str = r#"
[[columns]]
name = "age"
kind = "number"
lower = 20
upper = 100
centre = 60
scale = 20
mean = 70
sd = 10
source = "census"
[[columns]]
name = "dose"
kind = "number"
lower = 0
upper = 2
centre = 1
scale = 0.5
[[columns]]
name = "male"
kind = "boolean"
[[columns]]
name = "ward"
kind = "category"
values = ["a", "b", "c"]
"#;
    const DIED: &str = "[[columns]]\nname = \"died\"\nkind = \"boolean\"\n";
    const WAGE: &str = "[[columns]]\nname = \"wage\"\nkind = \"number\"\nlower = 0\nupper = 2000\ncentre = 0\nscale = 1\n";

    fn of(model: impl Into<ModelSpec>, formula: &str, label: &str, scale: Option<f64>) -> Vec<[f64; 2]> {
        let model = model.into();
        let scale = scale.or_else(|| super::usual_scale(&model)).unwrap();
        let schema = Schema::asking(formula, &format!("{COLUMNS}{label}")).unwrap();
        priors(&model, &schema, PriorSpec { mean: 0.0, scale }).unwrap()
    }

    fn near(found: &[[f64; 2]], expected: &[[f64; 2]], tolerance: f64) {
        assert_eq!(found.len(), expected.len());
        for (a, b) in found.iter().flatten().zip(expected.iter().flatten()) {
            assert!((a - b).abs() <= tolerance * (1.0 + b.abs()), "{found:?} is not {expected:?}");
        }
    }

    /// Coded by the schema: age has s = 0.5 and x̄ = 0.5, dose s = 0.6 and x̄ = 0.
    #[test]
    fn coefficients_have_the_unit_of_their_column_and_the_intercept_that_of_the_rest() {
        let sd = (25.0 + 2.5f64 * 2.5).sqrt();
        let rest = [[0.0, 2.5]; 3];
        let of_all = |label: &str, scale| of(LogisticRegression {}, "died ~ .", label, scale);
        let expected = |intercept: [f64; 2]| [&[[0.0, 5.0], [0.0, 2.5 / 0.6]], &rest[..], &[intercept]].concat();
        near(&of_all(DIED, None), &expected([0.0, sd]), 1e-12);
        let published = format!("{DIED}share = 0.012\nsource = \"register\"\n");
        near(&of_all(&published, None), &expected([(0.012f64 / 0.988).ln(), (2.25 + 6.25f64).sqrt()]), 1e-12);
        // Half as wide.
        assert!((of_all(DIED, Some(1.25))[0][1] - 2.5).abs() < 1e-12);
    }

    #[test]
    fn a_number_has_its_own_unit() {
        let model = LinearRegression { noise_sd: 1.0 };
        let found = of(model, "wage ~ dose + male", WAGE, None);
        // u = 300: an intercept, then dose and male.
        near(&found, &[[1000.0, 1500.0], [0.0, 750.0 / 0.6], [0.0, 750.0]], 5e-3);
    }

    /// Products and curves have the spread of what the public rows make of them.
    #[test]
    fn other_entries_have_the_spread_of_public_rows() {
        let found = of(LogisticRegression {}, "died ~ dose * male + bin(age, [50, 70])", DIED, None);
        // (Intercept), dose, male, two levels of age, dose:male.
        let names = Schema::asking("died ~ dose * male + bin(age, [50, 70])", &format!("{COLUMNS}{DIED}")).unwrap().coefficient_names();
        let at = |name: &str| found[names.iter().position(|own| own == name).unwrap_or_else(|| panic!("{names:?}"))];
        near(&[at("dose"), at("maleTRUE")], &[[0.0, 2.5 / 0.6], [0.0, 2.5]], 5e-3);
        // dose is centred: half of the rows have it, the others 0.
        let product = at("dose:maleTRUE")[1];
        assert!((product / (2.5 / (0.6 * 0.5f64.sqrt())) - 1.0).abs() < 0.02, "{product}");
    }
}
