#![allow(clippy::unwrap_used)]
use super::*;

const SMALL: &str = r#"
norm_bound = 3.0
[missing]
tokens = ["?", ""]
[csv]
names = ["age", "ward", "smoker", "note", "died"]
comment = "|"
[[columns]]
name = "age"
kind = "number"
lower = 0
upper = 110
centre = 50
scale = 20
missing = "centre"
[[columns]]
name = "ward"
kind = "category"
coding = "full"
values = ["surgery", "medicine"]
missing = "zero"
[[columns]]
name = "smoker"
kind = "boolean"
[[columns]]
name = "note"
kind = "ignored"
[[columns]]
name = "died"
kind = "boolean"
true_values = ["yes"]
false_values = ["no"]
"#;

fn message(text: &str) -> String {
    Schema::asking("died ~ .", text).unwrap_err().to_string()
}

#[test]
fn dimension_names_and_bounds_follow_from_the_text() {
    let schema = Schema::asking("died ~ .", SMALL).unwrap();
    assert_eq!(schema.dimension(), 5);
    assert_eq!(schema.coefficient_names(), ["age", "ward=surgery", "ward=medicine", "smoker", "(intercept)"]);
    assert_eq!(schema.max_nonzeros(), 4);
    assert_eq!(schema.intercept(), Some(4));
    // (110 − 50)/20 = 3, one level, smoker, intercept.
    assert!((schema.worst_case_norm() - 12_f64.sqrt()).abs() < 1e-11);
    assert!(schema.worst_case_norm() >= 12_f64.sqrt());
    assert!((schema.row_norm_bound() - 3.0).abs() < 1e-15);
    assert!((schema.max_abs_entry() - 3.0).abs() < 1e-15);
    assert_eq!(schema.label().column, "died");
    assert_eq!(schema.label().kind, LabelKind::Binary { positive: vec!["yes".into()] });
    assert_eq!(schema.outcome(), [4]);
    assert_eq!(schema.unit_column(), None);
    let places = [0, 1, 2].map(|column| schema.design().unwrap().only_place(column));
    assert_eq!(places, [Some(0), Some(1), Some(3)]);
}

#[test]
fn the_norm_bound_defaults_to_the_worst_case_and_never_exceeds_it() {
    let without = Schema::asking("died ~ .", &SMALL.replace("norm_bound = 3.0", "")).unwrap();
    assert!((without.row_norm_bound() - without.worst_case_norm()).abs() < 1e-15);
    let generous = Schema::asking("died ~ .", &SMALL.replace("norm_bound = 3.0", "norm_bound = 100")).unwrap();
    assert!((generous.row_norm_bound() - generous.worst_case_norm()).abs() < 1e-15);
}

#[test]
fn a_formula_without_intercept_has_one_entry_less() {
    let schema = Schema::asking("died ~ 0 + .", SMALL).unwrap();
    assert_eq!((schema.dimension(), schema.max_nonzeros(), schema.intercept()), (4, 3, None));
    assert_eq!(schema.coefficient_names().last().unwrap(), "smoker");
}

#[test]
fn numbers_are_clamped_transformed_centred_and_scaled() {
    let rule = NumberRule {
        lower: 0.0,
        upper: 100.0,
        outside: Outside::Clamp,
        transform: Transform::Log1p,
        centre: 1.0,
        scale: 2.0,
        report_per: 1.0,
        missing: CellPolicy::Zero,
        fill: None,
        invalid: CellPolicy::Reject,
        date: None,
    };
    assert!((rule.encode(0.0) + 0.5).abs() < 1e-15);
    assert!((rule.encode(1e9) - (101_f64.ln() - 1.0) / 2.0).abs() < 1e-15);
    assert_eq!(rule.place(-1.0), Place::Below);
    assert_eq!(rule.place(100.0), Place::Inside);
    assert_eq!(rule.place(100.5), Place::Above);
    assert!((rule.decode(rule.encode(37.5)) - 37.5).abs() < 1e-12);
}

/// It says how an effect is written, and nothing of a row.
#[test]
fn report_per_changes_no_entry_and_no_bound() {
    let number = |schema: &Schema| match &schema.columns()[0].kind {
        ColumnKind::Number(rule) => *rule,
        other => panic!("{other:?}"),
    };
    let (plain, per_ten) = (
        Schema::asking("died ~ .", SMALL).unwrap(),
        Schema::asking("died ~ .", &SMALL.replace("scale = 20", "scale = 20\nreport_per = 10")).unwrap(),
    );
    let (before, after) = (number(&plain), number(&per_ten));
    assert_eq!((before.report_per, after.report_per), (1.0, 10.0));
    assert_eq!(NumberRule { report_per: 1.0, ..after }, before);
    assert_eq!(plain.coefficient_names(), per_ten.coefficient_names());
    assert!((plain.worst_case_norm() - per_ten.worst_case_norm()).abs() < 1e-15);
}

#[test]
fn a_numeric_label_has_a_bound() {
    let text = "[[columns]]\nname = \"power\"\nkind = \"number\"\nlower = 400\nupper = 500\ncentre = 450\nscale = 20";
    let schema = Schema::asking("power ~ .", text).unwrap();
    assert!((schema.max_abs_target() - 2.5).abs() < 1e-15);
    assert_eq!(schema.dimension(), 1);
}

#[test]
fn a_label_of_several_classes_lists_each_once() {
    let schema =
        |values: &str| Schema::asking("ward ~ .", &format!("[[columns]]\nname = \"ward\"\nkind = \"category\"\nvalues = {values}"));
    let three = schema("[\"a\", \"b\", \"c\"]").unwrap();
    assert_eq!(three.label().kind, LabelKind::Classes { values: ["a", "b", "c"].map(str::to_owned).to_vec() });
    assert!((three.max_abs_target() - 2.0).abs() < f64::EPSILON);
    for (values, problem) in [
        ("[\"a\"]", "one level"),
        ("[]", "`values` is empty"),
        ("[\"a\", \"b\", \"a\"]", "`a` is listed twice"),
        ("[\"a\", \"\"]", "is missing"),
        ("[\"a\", \" a\"]", "`a` is listed twice"),
        ("[\"3\", \"3.0\"]", "`3` is listed twice"),
        // A cell `True` could be either.
        ("[\"true\", \"TRUE\"]", "`true` is listed twice in `values`, in capital and in small letters"),
        ("[\"true\", \"False\", \"false\"]", "`false` is listed twice"),
    ] {
        let error = schema(values).unwrap_err().to_string();
        assert!(error.contains("column `ward`") && error.contains(problem), "{error}");
    }
}

#[test]
fn every_error_names_the_column_and_says_what_to_write() {
    for (from, to, expected) in [
        ("scale = 20", "scale = 0", "column `age`: `scale` must be a finite number above 0"),
        ("scale = 20", "scale = nan", "column `age`: `scale` must be"),
        ("scale = 20", "scale = 20\nreport_per = 0", "column `age`: `report_per` must be a finite number above 0"),
        ("scale = 20", "scale = 20\nreport_per = -10", "column `age`: `report_per` must be"),
        ("scale = 20", "scale = 20\nreport_per = inf", "column `age`: `report_per` must be"),
        ("kind = \"boolean\"", "kind = \"boolean\"\nreport_per = 10", "column `smoker`: unknown field `report_per`"),
        ("upper = 110", "upper = inf", "column `age`: `lower` and `upper` must be finite"),
        ("upper = 110", "upper = -1", "with lower < upper"),
        ("upper = 110", "uper = 110", "column `age`: unknown field `uper`"),
        ("upper = 110", "", "column `age`: missing field `upper`"),
        ("lower = 0", "lower = -1\ntransform = \"log1p\"", "column `age`: `transform = \"log1p\"` needs `lower` above -1"),
        ("missing = \"centre\"", "missing = \"mean\"", "unknown variant `mean`"),
        ("missing = \"zero\"", "missing = \"centre\"", "column `ward`: `missing = \"centre\"` is for numbers"),
        ("kind = \"category\"", "kind = \"one-hot\"", "column `ward`: unknown variant `one-hot`"),
        ("[\"surgery\", \"medicine\"]", "[\"surgery\", \"?\"]", "column `ward`: no cell is ever `?`"),
        ("[\"surgery\", \"medicine\"]", "[\"surgery\", \"\"]", "column `ward`: no cell is ever ``"),
        ("false_values = [\"no\"]", "false_values = [\"no\", \"?\"]", "column `died`: no cell is ever `?`"),
        ("[\"surgery\", \"medicine\"]", "[]", "column `ward`: `values` is empty"),
        ("[\"surgery\", \"medicine\"]", "[\"a\", \"a\"]", "the level `a` is listed twice"),
        ("[\"surgery\", \"medicine\"]", "[\"1\", \"1.0\"]\nmatching = \"number\"", "two levels of `values` are the same number"),
        ("[\"surgery\", \"medicine\"]", "[\"1\", \"x\"]\nmatching = \"number\"", "the level `x` is no number"),
        ("kind = \"boolean\"", "kind = \"boolean\"\ntrue_values = []", "column `smoker`: `true_values` and `false_values`"),
        ("false_values = [\"no\"]", "false_values = [\"YES\"]", "the text `yes` is listed twice"),
        ("false_values = [\"no\"]\n", "", "column `died`: `true_values` and `false_values` stand together"),
        ("name = \"smoker\"", "name = \"age\"", "column `age`: is described more than once"),
        ("kind = \"ignored\"", "kind = \"ignored\"\nlower = 1", "column `note`: unknown field `lower`"),
        ("name = \"smoker\"", "", "entry 3 of `[[columns]]` needs `name"),
        ("norm_bound = 3.0", "label = 3", "`[label]` is no part of a schema"),
        ("norm_bound = 3.0", "intercept = true", "`intercept` is no part of a schema"),
        ("norm_bound = 3.0", "norm_bound = 0.0", "`norm_bound` must be"),
        ("norm_bound = 3.0", "norm = 3.0", "unknown field `norm`"),
        ("norm_bound = 3.0", "unit_column = \"age\"", "column `age`: is described more than once"),
        ("norm_bound = 3.0", "unit_column = \"person\"", "column `person`: is not in `csv.names`"),
        ("\"note\", \"died\"]", "\"died\"]", "column `note`: is not in `csv.names`"),
        ("\"note\", \"died\"]", "\"note\", \"died\", \"more\"]", "column `more`: is in `csv.names` but not described"),
        ("\"note\", \"died\"]", "\"note\", \"died\", \"died\"]", "column `died`: is listed twice in `csv.names`"),
        ("comment = \"|\"", "comment = \"||\"", "`csv.comment` must be one ASCII character"),
        ("comment = \"|\"", "comment = \",\"", "must be different characters"),
        ("comment = \"|\"", "decimal = \",\"", "`csv.decimal` and `csv.delimiter` must be different"),
        ("comment = \"|\"", "decimal = \"'\"", "`csv.decimal` must be"),
        ("comment = \"|\"", "encoding = \"utf-7\"", "`csv.encoding` must be one of \"utf-8\""),
        ("kind = \"number\"", "kind = \"date\"", "column `age`: missing field `since`"),
        ("kind = \"number\"", "kind = \"date\"\nsince = \"1.1.2015\"", "column `age`: `since` must be a date"),
        (
            "kind = \"number\"",
            "kind = \"date\"\nsince = \"2015-01-01\"\nformat = \"D.M.Y\"",
            "column `age`: `format` must be one of \"YYYY-MM-DD\"",
        ),
    ] {
        assert!(SMALL.contains(from), "{from}");
        let error = message(&SMALL.replacen(from, to, 1));
        assert!(error.contains(expected), "{to}: {error}");
    }
    assert!(message("norm_bound = ").contains("the schema cannot be read"));
    assert!(message("version = 2").contains("nothing to learn"));
    let alone = "[[columns]]\nname = \"y\"\nkind = \"boolean\"\n";
    assert!(Schema::asking("y ~ 0 + .", alone).unwrap_err().to_string().contains("nothing to learn"));
}

/// The keys that came later say what the absent ones have always meant.
#[test]
fn keys_for_files_have_the_old_meaning_by_default() {
    let stated = SMALL.replace("comment = \"|\"", "comment = \"|\"\ndecimal = \".\"\nencoding = \"UTF-8\"");
    assert_ne!(stated, SMALL);
    assert_eq!(Schema::asking("died ~ .", &stated).unwrap(), Schema::asking("died ~ .", SMALL).unwrap());
}

#[test]
fn a_date_is_a_number_in_days() {
    let dated = Schema::asking("died ~ .", &SMALL.replacen("kind = \"number\"", "kind = \"date\"\nsince = \"2015-01-01\"", 1)).unwrap();
    let plain = Schema::asking("died ~ .", SMALL).unwrap();
    assert_eq!((dated.coefficient_names(), dated.dimension()), (plain.coefficient_names(), plain.dimension()));
    let (ColumnKind::Number(with), ColumnKind::Number(without)) = (&dated.columns()[0].kind, &plain.columns()[0].kind) else { panic!() };
    assert_eq!(NumberRule { date: None, ..*with }, *without);
    assert!(with.date.is_some());
}
