//! Effects and contrasts where a formula makes the rows.

use dp_pvi_math::expfam::any::{Family, Gaussian};
use dp_pvi_models::effects::{CompareError, Effect, compare, effects};
use dp_pvi_models::poisson_regression::PoissonRegression;
use dp_pvi_schema::Schema;

const SCHEMA: &str = r#"
version = 2
[[columns]]
name = "age"
kind = "number"
lower = 0
upper = 100
centre = 50
scale = 25
report_per = 10
[[columns]]
name = "bmi"
kind = "number"
lower = 10
upper = 60
centre = 25
scale = 10
[[columns]]
name = "days"
kind = "number"
lower = 1
upper = 365
centre = 30
scale = 10
[[columns]]
name = "ward"
kind = "category"
values = ["a", "b", "c"]
reference = "b"
[[columns]]
name = "smoker"
kind = "boolean"
[[columns]]
name = "visits"
kind = "number"
lower = 0
upper = 20
centre = 0
scale = 1
"#;

fn schema(formula: &str) -> Schema {
    Schema::parse(SCHEMA).unwrap().with_formula(formula, &[]).unwrap()
}

/// Coefficients 0.1, 0.2, … with variance 0.01.
fn posterior(schema: &Schema) -> Gaussian {
    let dimension = schema.dimension() as usize;
    let means = (1..=dimension).map(|j| 10.0 * j as f64);
    let natural = means.chain(std::iter::repeat_n(100.0, dimension)).collect();
    Gaussian::from_natural(Family::DiagonalGaussian { dimension }, natural).unwrap()
}

fn listed(formula: &str) -> Vec<(String, f64)> {
    let schema = schema(formula);
    let list = effects(&PoissonRegression {}.into(), &schema, posterior(&schema).standard());
    list.into_iter().map(|effect| (effect.name, effect.estimate)).collect()
}

fn compared(formula: &str, of: &[&str], against: &[&str]) -> Result<Effect, CompareError> {
    let schema = schema(formula);
    let texts = |list: &[&str]| list.iter().map(|text| (*text).to_owned()).collect::<Vec<_>>();
    let compared = compare(&PoissonRegression {}.into(), &schema, posterior(&schema).standard(), &texts(of), &texts(against))?;
    Ok(compared.into_iter().next().unwrap())
}

#[track_caller]
fn assert_effects(formula: &str, expected: &[(&str, f64)]) {
    let found = listed(formula);
    assert_eq!(found.iter().map(|(name, _)| name.as_str()).collect::<Vec<_>>(), expected.iter().map(|(name, _)| *name).collect::<Vec<_>>());
    for ((name, found), (_, expected)) in found.iter().zip(expected) {
        assert!((found - expected).abs() < 1e-12, "{name}: {found} {expected}");
    }
}

/// Intercept 0.1, age 0.2 for 25 years, bins 0.3 and 0.4, wards a 0.5 and c 0.6 against b.
#[test]
fn straight_lines_bins_and_levels_have_effects_and_curves_and_products_have_none() {
    assert_effects(
        "visits ~ age + bin(bmi, [20, 30]) + ward + poly(days, 2)",
        &[
            ("age, per 10", 0.08),
            ("bmi: (20,30] against [10,20]", 0.3),
            ("bmi: (30,60] against [10,20]", 0.4),
            ("ward: a against b", 0.5),
            ("ward: c against b", 0.6),
            // Bin (20,30] at bmi = 25, and poly at 30 of 1 to 365.
            ("intercept, numbers at their centres", 0.1 + 0.3 + poly(30.0)),
        ],
    );
    assert_effects("visits ~ 0 + age*smoker", &[]);
    assert_effects("visits ~ 0 + age + age:center(age, 50)", &[]);
}

fn poly(days: f64) -> f64 {
    let u = (2.0 * days - 366.0) / 364.0;
    0.7 * u + 0.8 * 0.5 * (3.0 * u * u - 1.0)
}

#[test]
fn an_offset_is_part_of_what_two_records_differ_by() {
    let formula = "visits ~ age + offset(log(days))";
    let effect = compared(formula, &["days=20"], &["days=10"]).unwrap();
    assert!((effect.estimate - 2_f64.ln()).abs() < 1e-12 && effect.sd.unwrap() < 1e-12, "{effect:?}");
    let effect = compared(formula, &["days=20", "age=75"], &["days=10", "age=50"]).unwrap();
    assert!((effect.estimate - 2_f64.ln() - 0.2).abs() < 1e-12, "{effect:?}");
    assert_eq!(compared(formula, &["bmi=20"], &["bmi=30"]), Err(CompareError::Same));
    // A column with an offset that bends has no effect for a step.
    assert_effects("visits ~ 0 + bmi + offset(log(bmi))", &[]);
}

#[test]
fn what_is_left_out_of_two_records_has_to_cancel() {
    let formula = "visits ~ age*ward";
    assert_eq!(compared(formula, &["age=75"], &["age=50"]), Err(CompareError::Depends("ward".into())));
    // age 0.2, wards a and c 0.3 and 0.4, age:warda 0.5, age:wardc 0.6.
    let effect = compared(formula, &["age=75", "ward=c"], &["age=50", "ward=c"]).unwrap();
    assert!((effect.estimate - 0.2 - 0.6).abs() < 1e-12, "{effect:?}");
}
