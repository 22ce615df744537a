#![allow(clippy::unwrap_used)]

use dp_pvi_math::expfam::any::{Family, Gaussian, Standard};
use dp_pvi_math::expfam::gaussian::full;
use nalgebra::{DMatrix, DVector, dmatrix, dvector};

use super::{CompareError, Contrast, Effect, Measure, agree, compare, curves, effects};
use crate::ModelSpec;
use crate::linear_regression::LinearRegression;
use crate::logistic_regression::LogisticRegression;
use crate::multinomial_regression::MultinomialRegression;
use crate::negative_binomial_regression::NegativeBinomialRegression;
use crate::poisson_regression::PoissonRegression;
use crate::prediction::Level;
use crate::probit_regression::ProbitRegression;
use crate::robust_regression::RobustRegression;
use crate::survival_regression::SurvivalRegression;
use dp_pvi_schema::Schema;

const CLASS: &str = "[[columns]]\nname = \"died\"\nkind = \"boolean\"\ntrue_values = [\"yes\"]\nfalse_values = [\"no\"]\n";
const AGE: &str = "[[columns]]\nname = \"age\"\nkind = \"number\"\nlower = 0\nupper = 110\ncentre = 60\nscale = 20\nreport_per = 10\n";
const STAYS: &str =
    "[[columns]]\nname = \"stays\"\nkind = \"number\"\nlower = 0\nupper = 20\ntransform = \"log1p\"\ncentre = 1\nscale = 2\n";
const SMOKER: &str = "[[columns]]\nname = \"smoker\"\nkind = \"boolean\"\n";

fn ward(coding: &str) -> String {
    format!("[[columns]]\nname = \"ward\"\nkind = \"category\"\nvalues = [\"a\", \"b\", \"c\"]\n{coding}\n")
}

/// The first column is the outcome.
fn schema(outcome: &str, columns: &str) -> Schema {
    let schema = Schema::parse(&format!("version = 2\n{outcome}{columns}")).unwrap();
    let formula = format!("{} ~ .", schema.columns()[0].name);
    schema.with_formula(&formula, &[]).unwrap()
}

fn gaussian(mean: DVector<f64>, covariance: DMatrix<f64>) -> Standard {
    Standard::Full(full::Standard::new(mean, covariance).unwrap())
}

fn logistic() -> ModelSpec {
    LogisticRegression {}.into()
}

fn names(list: &[Effect]) -> Vec<&str> {
    list.iter().map(|effect| effect.name.as_str()).collect()
}

fn near(a: f64, b: f64) {
    assert!((a - b).abs() < 1e-12 * (1.0 + b.abs()), "{a} against {b}");
}

#[test]
fn a_truth_is_named_by_the_words_of_the_schema() {
    let gender =
        "[[columns]]\nname = \"gender\"\nkind = \"boolean\"\ntrue_values = [\"male\", \"m\"]\nfalse_values = [\"female\", \"f\"]\n";
    let q = gaussian(dvector![0.3, -1.0], dmatrix![0.25, 0.0; 0.0, 0.16]);
    assert_eq!(names(&effects(&logistic(), &schema(CLASS, gender), &q)), ["gender: male against female", "intercept"]);
}

#[test]
fn numbers_are_reported_per_units_of_the_file_and_the_intercept_also_at_their_zero() {
    let schema = schema(CLASS, &format!("{AGE}{STAYS}{SMOKER}"));
    let covariance = dmatrix![0.09, 0.01, 0.0, -0.02; 0.01, 0.04, 0.0, 0.01; 0.0, 0.0, 0.25, 0.0; -0.02, 0.01, 0.0, 0.16];
    let q = gaussian(dvector![0.8, -0.4, 0.3, -1.0], covariance);
    let list = effects(&logistic(), &schema, &q);
    assert_eq!(
        names(&list),
        [
            "age, per 10",
            "stays, per 1 of log(1 + stays)",
            "smoker: true against false",
            "intercept, numbers at their centres",
            "intercept, numbers at 0"
        ]
    );
    assert_eq!(list[0].column.as_deref(), Some("age"));
    assert_eq!((list[0].measure, list[4].measure, list[4].column.as_ref()), (Measure::OddsRatio, Measure::Odds, None));
    // Ten years are half of the scale.
    near(list[0].estimate, 0.4);
    near(list[0].sd.unwrap(), 0.15);
    let ratio = list[0].ratio.unwrap();
    near(ratio.estimate, 0.4_f64.exp());
    near(ratio.interval_95.unwrap().upper, (0.4 + Level::P95.half_width() * 0.15).exp());
    near(ratio.interval_90.unwrap().lower, (0.4 - Level::P90.half_width() * 0.15).exp());
    near(list[1].estimate, -0.2);
    near(list[2].sd.unwrap(), 0.5);
    near(list[3].estimate, -1.0);
    // 0 of the file is 3 scales below the centre of age, and half a scale below that of stays.
    near(list[4].estimate, -1.0 - 3.0 * 0.8 + 0.5 * 0.4);
    near(list[4].sd.unwrap().powi(2), 0.16 + 9.0 * 0.09 + 0.25 * 0.04 + 2.0 * (3.0 * 0.02 - 0.5 * 0.01 + 1.5 * 0.01));
    assert_eq!(list[4].contrast.len(), 3);
}

/// The same belief in three codings: treatment (β_b, β_c, α), sum (deviations of a and b, their mean), full with one level known.
#[test]
fn differences_of_levels_do_not_depend_on_the_coding() {
    let (mean, covariance) = (dvector![0.5, -0.7, -1.2], dmatrix![0.3, 0.1, -0.1; 0.1, 0.5, -0.2; -0.1, -0.2, 0.4]);
    let treatment = effects(&logistic(), &schema(CLASS, &ward("")), &gaussian(mean.clone(), covariance.clone()));
    assert_eq!(names(&treatment), ["ward: b against a", "ward: c against a", "intercept"]);
    near(treatment[1].estimate, -0.7);

    let third = 1.0 / 3.0;
    let to_sum = dmatrix![-third, -third, 0.0; 2.0 * third, -third, 0.0; third, third, 1.0];
    let q = gaussian(&to_sum * &mean, &to_sum * &covariance * to_sum.transpose());
    let sum = effects(&logistic(), &schema(CLASS, &ward("coding = \"sum\"")), &q);

    // Any amount may move from the intercept to all levels: a is 0.2 with a variance of its own.
    let shift = 0.2;
    let to_full = dmatrix![0.0, 0.0, 0.0, 1.0; 1.0, 0.0, 0.0, 1.0; 0.0, 1.0, 0.0, 1.0; 0.0, 0.0, 1.0, -1.0];
    let (longer, wider) = (mean.push(shift), {
        let mut wider = covariance.clone().resize(4, 4, 0.0);
        wider[(3, 3)] = 5.0;
        wider
    });
    let q = gaussian(&to_full * longer, &to_full * wider * to_full.transpose());
    let full = effects(&logistic(), &schema(CLASS, &ward("coding = \"full\"")), &q);
    for other in [sum, full] {
        assert_eq!(names(&other), names(&treatment));
        for (a, b) in other.iter().zip(&treatment) {
            near(a.estimate, b.estimate);
            near(a.sd.unwrap(), b.sd.unwrap());
        }
    }
}

#[test]
fn a_named_reference_is_what_levels_are_compared_with() {
    let q = gaussian(dvector![0.5, -0.7, -1.2], DMatrix::identity(3, 3));
    let list = effects(&logistic(), &schema(CLASS, &ward("reference = \"b\"")), &q);
    assert_eq!(names(&list), ["ward: a against b", "ward: c against b", "intercept"]);
    near(list[0].estimate, 0.5);
}

#[test]
fn a_label_in_numbers_is_reported_in_the_unit_of_the_file() {
    let label = |transform| {
        format!(
            "[[columns]]\nname = \"days\"\nkind = \"number\"\nlower = 0\nupper = 90\ncentre = 7\nscale = 5\ntransform = \"{transform}\"\n"
        )
    };
    let q = gaussian(dvector![0.8, -0.4], DMatrix::from_diagonal(&dvector![0.04, 0.01]));
    for (transform, measures) in
        [("identity", [Measure::Difference, Measure::Value]), ("log1p", [Measure::LogDifference, Measure::LogValue])]
    {
        let list = effects(&LinearRegression { noise_sd: 1.0 }.into(), &schema(&label(transform), AGE), &q);
        assert_eq!([list[0].measure, list[1].measure], measures);
        // Ten years more: 0.5 · 0.8 of five days.
        near(list[0].estimate, 2.0);
        near(list[0].sd.unwrap(), 0.5 * 0.2 * 5.0);
        near(list[1].estimate, 7.0 - 0.4 * 5.0);
        near(list[1].constant, 7.0);
        near(list[2].estimate, 7.0 + 5.0 * (-0.4 - 3.0 * 0.8));
        assert!(list.iter().all(|effect| effect.ratio.is_none()));
    }
}

#[test]
fn the_measure_follows_the_likelihood() {
    let q = gaussian(dvector![0.8, -0.4], DMatrix::identity(2, 2));
    let counts = "[[columns]]\nname = \"n\"\nkind = \"number\"\nlower = 0\nupper = 90\ncentre = 0\nscale = 1\n";
    let of = |model: &ModelSpec, label: &str| effects(model, &schema(label, AGE), &q);
    let poisson = of(&PoissonRegression {}.into(), counts);
    assert_eq!([poisson[0].measure, poisson[1].measure], [Measure::RateRatio, Measure::Rate]);
    assert!(poisson[0].ratio.is_some());
    let spread = of(&NegativeBinomialRegression { dispersion: 1.5 }.into(), counts);
    assert_eq!([spread[0].measure, spread[1].measure], [Measure::RateRatio, Measure::Rate]);
    let robust = of(&RobustRegression { degrees_of_freedom: 4.0, scale: 1.0, learned: None }.into(), counts);
    assert_eq!([robust[0].measure, robust[1].measure], [Measure::Difference, Measure::Value]);
    let probit = of(&ProbitRegression {}.into(), CLASS);
    assert_eq!([probit[0].measure, probit[1].measure], [Measure::ProbitDifference, Measure::Probit]);
    assert!(probit[0].ratio.is_none() && probit[0].interval_90.is_some());
    let mixture = crate::gaussian_mixture::GaussianMixture { components: 2, noise_sd: 1.0, seed: 1 };
    assert!(of(&mixture.into(), counts).is_empty());
}

#[test]
fn a_mean_field_gives_an_interval_to_one_coefficient_only() {
    let family = Family::DiagonalGaussian { dimension: 4 };
    let q = Gaussian::from_natural(family, vec![0.4, 0.2, 0.1, -2.0, 4.0, 2.0, 2.0, 1.0]).unwrap();
    let list = effects(&logistic(), &schema(CLASS, &format!("{AGE}{}", ward("coding = \"sum\""))), q.standard());
    let known: Vec<_> = list.iter().map(|effect| effect.interval_95.is_some()).collect();
    // Age alone; a against b and c, and the intercept with the entry of a, are of several.
    assert_eq!(known, [true, false, false, false, false], "{:?}", names(&list));
    for effect in &list {
        assert_eq!(effect.no_interval.is_some(), effect.sd.is_none());
        assert!(effect.ratio.unwrap().estimate.is_finite() && effect.ratio.unwrap().interval_90.is_some() == effect.sd.is_some());
    }
    near(list[1].estimate, 0.05 - 0.1);
}

#[test]
fn a_ratio_that_no_number_holds_is_absent() {
    let effect = |mean: f64| {
        let q = gaussian(dvector![mean], dmatrix![1.0]);
        Effect::new("x".into(), None, Measure::OddsRatio, &Contrast::dense(&[1.0]), &["x".into()], &q)
    };
    assert!(effect(700.0).ratio.is_some() && effect(709.0).ratio.is_none() && effect(-900.0).ratio.is_some());
}

/// JSON has no infinity: a file that held one could not be read.
#[test]
fn an_effect_that_no_number_holds_is_left_out() {
    let far = AGE.replace("upper = 110\ncentre = 60\nscale = 20", "upper = 1e20\ncentre = 1e20\nscale = 1e-130");
    let q = gaussian(dvector![1e200, 0.5], DMatrix::identity(2, 2));
    let schema = schema(CLASS, &far);
    let list = effects(&logistic(), &schema, &q);
    assert_eq!(names(&list), ["intercept, numbers at their centres"]);
    assert!(agree(&list, &logistic(), &schema, &q));
    let error = compare(&logistic(), &schema, &q, &["age=1e20".into()], &["age=0".into()]).unwrap_err();
    assert_eq!(error, CompareError::TooLarge);
}

/// A list is compared with the one that follows from the posterior, number by number.
#[test]
fn a_changed_list_does_not_agree() {
    let schema = schema(CLASS, &format!("{AGE}{}", ward("")));
    let q = gaussian(dvector![0.8, -0.4, 0.3, -1.0], DMatrix::identity(4, 4) * 0.1);
    let list = effects(&logistic(), &schema, &q);
    let agrees = |list: &[Effect]| agree(list, &logistic(), &schema, &q);
    assert!(agrees(&list) && !agrees(&list[1..]));
    let changed = |change: &dyn Fn(&mut Effect)| {
        let mut other = list.clone();
        change(&mut other[0]);
        other
    };
    assert!(agrees(&changed(&|effect| effect.estimate *= 1.0 + 1e-14)));
    let changes: [&dyn Fn(&mut Effect); 11] = [
        &|effect| effect.estimate += 1e-6,
        &|effect| effect.sd = effect.sd.map(|sd| sd * 1.001),
        &|effect| effect.sd = None,
        &|effect| effect.interval_95 = None,
        &|effect| effect.interval_90 = effect.interval_95,
        &|effect| effect.ratio = None,
        &|effect| effect.ratio.as_mut().unwrap().estimate *= 1.001,
        &|effect| effect.name.push('!'),
        &|effect| effect.measure = Measure::RateRatio,
        &|effect| effect.contrast[0].weight = 1.0,
        &|effect| effect.no_interval = Some("none".into()),
    ];
    for (number, change) in changes.iter().enumerate() {
        assert!(!agrees(&changed(change)), "change {number}");
    }
}

/// Every class has the list of its own coefficients, against the first.
#[test]
fn classes_have_effects_of_their_own() {
    let label = "[[columns]]\nname = \"died\"\nkind = \"category\"\nvalues = [\"none\", \"late\", \"early\"]\n";
    let schema = schema(label, AGE);
    let model: crate::ModelSpec = MultinomialRegression { classes: 3 }.into();
    let q = gaussian(dvector![0.4, -1.0, 0.2, -2.0], DMatrix::identity(4, 4) * 0.01);
    let list = effects(&model, &schema, &q);
    let intercept = "intercept, numbers at their centres";
    let first = |class: &str| list.iter().find(|effect| effect.name.starts_with(&format!("{class}: age"))).unwrap();
    assert!(list.iter().any(|effect| effect.name == format!("early: {intercept}")) && list.len() == 6);
    assert_eq!((first("late").measure, first("late").contrast[0].coefficient.as_str()), (Measure::OddsRatio, "late: age"));
    assert!((first("early").estimate / first("late").estimate - 0.5).abs() < 1e-12);
    assert!(agree(&list, &model, &schema, &q));
    let compared = compare(&model, &schema, &q, &["age=60".into()], &["age=50".into()]).unwrap();
    assert_eq!(
        compared.iter().map(|effect| effect.name.as_str()).collect::<Vec<_>>(),
        ["late: age: 60 against 50", "early: age: 60 against 50"]
    );
    assert!((compared[1].estimate - 0.2 * 10.0 / 20.0).abs() < 1e-12, "{}", compared[1].estimate);
}

/// The coefficients of a curve are behind what a model puts before the row.
#[test]
fn a_curve_is_drawn_from_its_own_coefficients() {
    let survival = "[[columns]]\nname = \"t\"\nkind = \"number\"\nlower = 0\nupper = 9\ncentre = 0\nscale = 1\n[[columns]]\nname = \"d\"\nkind = \"boolean\"\n";
    let formula = "Surv(t, d) ~ smoker + bs(age, df = 4)";
    let rows = schema(survival, &format!("{SMOKER}{AGE}")).with_formula(formula, &[]).unwrap().without_intercept();
    let model = SurvivalRegression { cuts: vec![0.0, 3.0, 9.0], baseline_mean: 0.0, baseline_scale: 2.5, least_exposure: 0.5 };
    // Two baselines and the smoker, which no curve may show; then the four of the curve, of which the last is 1 at the upper end.
    let mean = dvector![50.0, -70.0, 30.0, 0.0, 0.0, 0.0, 2.0];
    let curve = curves(&model.into(), &rows, &gaussian(mean, DMatrix::identity(7, 7))).pop().unwrap();
    near(curve.points[100].mean - curve.points[0].mean, 2.0);
}
