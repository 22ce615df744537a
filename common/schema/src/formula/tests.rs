#![allow(clippy::unwrap_used)]

use proptest::prelude::*;

use super::{Cell, Formula, Record, RowSpace, Use};
use crate::{ColumnKind, LabelKind, Schema, SchemaError};

const SCHEMA: &str = r#"
version = 2
unit_column = "patient"
[[columns]]
name = "age"
kind = "number"
lower = 0
upper = 110
centre = 50
scale = 20
report_per = 10
missing = "indicator"
[[columns]]
name = "bmi"
kind = "number"
lower = 10
upper = 60
centre = 25
scale = 10
missing = { fill = 24 }
[[columns]]
name = "sex"
kind = "category"
values = ["f", "m"]
missing = "indicator"
[[columns]]
name = "ward"
kind = "category"
values = ["surgery", "medicine", "icu"]
reference = "icu"
missing = "zero"
[[columns]]
name = "smoker"
kind = "boolean"
missing = "zero"
[[columns]]
name = "only"
kind = "category"
values = ["x"]
coding = "full"
[[columns]]
name = "note"
kind = "ignored"
[[columns]]
name = "died"
kind = "boolean"
true_values = ["yes"]
false_values = ["no"]
"#;

fn schema() -> Schema {
    Schema::asking("died ~ .", SCHEMA).unwrap()
}

fn with(formula: &str) -> Schema {
    schema().with_formula(formula, &["north".into(), "south".into()]).unwrap()
}

/// What is said of a formula, and the byte it points at.
fn refused(formula: &str) -> (usize, String) {
    match schema().with_formula(formula, &[]) {
        Err(SchemaError::Formula(error)) => (error.at(), error.problem().to_owned()),
        other => panic!("{formula}: {other:?}"),
    }
}

#[test]
fn every_error_points_at_its_place_and_says_what_to_write() {
    for (formula, at, part) in [
        ("", 0, "name of a column is missing"),
        ("died", 4, "`~` is missing"),
        ("died ~", 6, "nothing stands after"),
        ("died ~ age +", 12, "a term is missing"),
        ("died ~ age sex", 11, "joined by"),
        ("died ~ (age", 11, "`)` is missing"),
        ("died ~ age/sex", 10, "write `a + a:b`"),
        ("died ~ age %in% sex", 11, "%in%"),
        ("died ~ age ~ sex", 11, "does not continue"),
        ("died ~ 'age", 7, "closing '"),
        ("died ~ `` + age", 7, "column has a name"),
        ("died ~ 2*age", 7, "only 0 and 1"),
        ("died ~ 1|site", 8, "in parentheses"),
        ("died ~ height", 7, "no column `height`"),
        ("died ~ .x", 7, "in backticks"),
        ("died ~ age + bs(.)", 16, "an argument is missing"),
        ("died ~ I(age^2)", 7, "no call `I`: powers are `poly"),
        ("died ~ (1 | log(bmi))", 12, "a group stands over levels"),
        ("died ~ (1 | C(ward, sum))", 12, "a group stands over levels"),
        ("died ~ (1 | `bin`(bmi, [20]))", 17, "a group is"),
        ("died ~ (1 | bin(bmi))", 12, "needs the cuts"),
        ("died ~ (1 | s(bmi))", 12, "a group stands over levels"),
        ("died ~ note", 7, "ignored"),
        ("died ~ age + died", 13, "it is predicted"),
        ("died ~ patient", 7, "unit_column"),
        ("nobody ~ bmi", 0, "no column `nobody`"),
        ("patient ~ bmi", 0, "says whose record a row is"),
        ("Surv(ward, died) ~ bmi", 5, "is a time here"),
        ("Surv(age) ~ bmi", 0, "Surv(time, event)"),
        ("died ~ cube(age)", 7, "no call `cube`"),
        ("died ~ I(bmi)", 7, "no call `I`: powers are `poly"),
        ("died ~ age + log(age)", 13, "above 0, and they begin at 0"),
        ("died ~ log1p(center(age, 3))", 7, "above -1"),
        ("died ~ sqrt(center(age))", 7, "0 or more"),
        ("died ~ scale(age, 3, 0)", 21, "above 0"),
        ("died ~ scale(age, z = 3)", 18, "no argument `z`"),
        ("died ~ scale(age, c = 3, c = 4)", 25, "given twice"),
        ("died ~ log(bmi, 2)", 16, "fewer arguments"),
        ("died ~ log(sex)", 11, "is no number"),
        ("died ~ log(poly(bmi, 2))", 11, "no single number"),
        ("died ~ poly(age)", 7, "needs a degree"),
        ("died ~ poly(age, 11)", 17, "from 1 to 10"),
        ("died ~ poly(age, 2, raw = 1)", 20, "TRUE or FALSE"),
        ("died ~ bs(age)", 7, "give `df = 5`"),
        ("died ~ bs(age, df = 5, knots = [40])", 15, "not both"),
        ("died ~ bs(age, df = 2)", 15, "3 or more"),
        ("died ~ bs(age, df = 5, degree = 6)", 23, "from 1 to 5"),
        ("died ~ ns(age, knots = [40, 30])", 15, "ascend"),
        ("died ~ ns(age, knots = [40, 110])", 15, "below 110"),
        ("died ~ s(age, k = 4)", 14, "from 5 to 200"),
        ("died ~ s(age, sd = -1)", 14, "\"learned\""),
        ("died ~ 0 + s(age)", 11, "needs an intercept"),
        ("died ~ s(age):sex", 7, "takes part in no"),
        ("died ~ sex*offset(age)", 11, "takes part in no"),
        ("died ~ age - s(age)", 13, "takes part in no"),
        ("died ~ s(age) + s(age)", 16, "stands twice"),
        ("died ~ bin(bmi)", 7, "needs the cuts"),
        ("died ~ bin(bmi, [5, 25])", 16, "above 10"),
        ("died ~ bin(bmi, [25, 25])", 16, "ascend"),
        ("died ~ C(ward, treatment('er'))", 25, "no level of `ward`"),
        ("died ~ C(ward, helmert)", 15, "the coding is"),
        ("died ~ C(age, sum)", 9, "no category"),
        ("died ~ only", 7, "one level"),
        ("died ~ age^0", 11, "whole number from 1 to 8"),
        ("died ~ (age + sex)^2.5", 19, "whole number"),
        ("died ~ (1|bmi)", 10, "is a number"),
        ("died ~ (1|patient)", 10, "unit_column"),
        ("died ~ (1|site)", 10, "list of all sites"),
        ("died ~ (sex|ward)", 7, "only numbers"),
        ("died ~ (0|ward)", 7, "no effect"),
        ("died ~ age:(1|ward)", 11, "a group takes part in no"),
        ("died ~ 0", 7, "nothing to learn"),
        ("died ~ age - age - 1", 7, "nothing to learn"),
        ("died ~ s(height)", 9, "no column `height`"),
        ("died ~ s(died)", 9, "it is predicted"),
        ("died ~ bin(patient, [3])", 11, "unit_column"),
        ("died ~ (1|died)", 10, "it is predicted"),
        ("died ~ offset(log(note))", 18, "ignored"),
        ("died ~ (height|ward)", 8, "no column `height`"),
        ("died ~ poly(age, 0)", 17, "from 1 to 10"),
        ("died ~ bs(age, df = 5, degree = 0)", 23, "from 1 to 5"),
        ("died ~ bs(age, knots = [40, 40])", 15, "ascend"),
        ("died ~ bs(age, knots = [0, 40])", 15, "above 0"),
        ("died ~ ns(age)", 7, "give `df = 5`"),
        ("died ~ ns(age, df = 3, knots = [40])", 15, "not both"),
        ("died ~ ns(age, df = 0)", 15, "from 1 to 200"),
        ("died ~ ns(age, df = 1, intercept = TRUE)", 15, "2 or more"),
        ("died ~ bs(age, df = 3, intercept = TRUE)", 15, "4 or more"),
        ("died ~ bin(bmi, [25, 60])", 16, "below 60"),
        ("died ~ sqrt(center(age, 1))", 7, "0 or more"),
        ("died ~ offset(log(age))", 14, "above 0"),
        ("died ~ s(age)*sex", 7, "takes part in no"),
        ("died ~ (s(age) + sex)^2", 8, "takes part in no"),
        ("died ~ sex:offset(age)", 11, "takes part in no"),
        ("died ~ (offset(age) + sex)^2", 8, "takes part in no"),
        ("died ~ age*(1|ward)", 11, "a group takes part in no"),
        ("died ~ ((1|ward) + age)^2", 8, "a group takes part in no"),
        ("died ~ age - (1|ward)", 13, "a group takes part in no"),
        ("died ~ age^9", 11, "whole number from 1 to 8"),
        ("died ~ age^-1", 11, "whole number from 1 to 8"),
        ("died ~ s(age) - 1", 7, "needs an intercept"),
    ] {
        let (found, problem) = refused(formula);
        assert!(problem.contains(part), "{formula}: {problem}");
        assert_eq!(found, at, "{formula}: {problem}");
    }
}

#[test]
fn too_many_coefficients_and_parentheses_are_refused_before_they_are_built() {
    let names: Vec<String> = (0..1100).map(|level| format!("\"l{level}\"")).collect();
    let column = |name: &str| format!("[[columns]]\nname = \"{name}\"\nkind = \"category\"\nvalues = [{}]\n", names.join(", "));
    let text = format!(
        "[[columns]]\nname = \"y\"\nkind = \"boolean\"\ntrue_values = [\"1\"]\nfalse_values = [\"0\"]\n{}{}{}",
        column("a"),
        column("b"),
        column("c")
    );
    let error = Schema::parse(&text).unwrap().with_formula("y ~ 1 + b:c:a", &[]).unwrap_err();
    assert!(error.to_string().contains("at byte 8, `b:c:a`") && error.to_string().contains("1048576 coefficients"), "{error}");
    let deep = format!("died ~ {}age{}", "(".repeat(40), ")".repeat(40));
    assert!(refused(&deep).1.contains("inside each other"));
    let many: Vec<String> = (0..20).map(|i| format!("c{i}")).collect();
    let columns: String = many.iter().map(|name| format!("[[columns]]\nname = \"{name}\"\nkind = \"boolean\"\n")).collect();
    let text = format!("[[columns]]\nname = \"y\"\nkind = \"boolean\"\ntrue_values = [\"1\"]\nfalse_values = [\"0\"]\n{columns}");
    let error = Schema::parse(&text).unwrap().with_formula(&format!("y ~ ({})^8", many.join(" + ")), &[]).unwrap_err();
    assert!(error.to_string().contains("terms come out"), "{error}");
    // What is small as text and large as names, factors or trees.
    let cuts: Vec<String> = (1..=201).map(|cut| (f64::from(cut) / 2.0).to_string()).collect();
    for (formula, part) in [
        (format!("died ~ bin(age, [{}])", cuts[..150].join(", ")), "more than 512 bytes"),
        (format!("died ~ {}age", "age:".repeat(400)) + &"^1".repeat(2), "does not continue"),
        (format!("died ~ age{}", "^1".repeat(30000)), "does not continue"),
        (
            format!("died ~ {}", (0..300).map(|i| format!("poly(age, 1, raw = TRUE, c{i} = 1)")).collect::<Vec<_>>().join(":")),
            "more than 16 columns",
        ),
        (format!("died ~ {}", (0..300).map(|i| format!("center(age, {i})")).collect::<Vec<_>>().join(" + ")), "more than 256 columns"),
        (format!("died ~ {}", (0..70).map(|i| format!("s(age, 5, {})", i + 1)).collect::<Vec<_>>().join(" + ")), "more than 64 curves"),
        ("died ~ (1|ward) + (1|ward)".into(), "stands twice"),
        ("died ~ poly(age, 10):poly(bmi, 10):poly(center(age), 10)".into(), "first argument of `poly`"),
        ("died ~ poly(age, 10):poly(bmi, 10):poly(age, 9):poly(bmi, 9)".into(), "more than 4096 entries"),
        ("died ~ 0 + scale(bmi, 0, 1e200)".into(), "too long or too short"),
    ] {
        let (_, problem) = refused(&formula);
        assert!(problem.contains(part), "{formula:.60}: {problem}");
    }
    // Few terms, and many ways to them.
    let sum = format!("({})^8", many[..9].join(" + "));
    let error = Schema::parse(&text).unwrap().with_formula(&format!("y ~ {sum}{}", format!(":{sum}").repeat(8)), &[]).unwrap_err();
    assert!(error.to_string().contains("products are formed"), "{error}");
    assert!(refused(&format!("died ~ age{}", " ".repeat(1 << 16))).1.contains("65536 bytes"));
}

#[test]
fn an_error_shows_what_stands_at_its_place_in_one_line() {
    let message = |formula: &str| schema().with_formula(formula, &[]).unwrap_err().to_string();
    assert!(message("died ~ age + hight").starts_with("formula, at byte 13, `hight`: the schema has no column `hight`"));
    assert!(message("died ~ age +").starts_with("formula, at byte 12, its end: a term"));
    let long = message("died ~ hight + scale(age) + poly(bmi, 3)\n + ward");
    assert!(long.starts_with("formula, at byte 7, `hight + scale(age) + poly(bmi, 3…`: ") && !long.contains('\n'), "{long}");
}

#[test]
fn a_column_whose_name_is_no_word_is_recognised_and_its_backticks_are_asked_for() {
    let names = [
        "2h_glucose",
        "1st.visit",
        "body mass",
        "x[1]",
        "e-mail",
        "a+b",
        "a:b",
        "p%",
        "a/b",
        "x^2",
        "temp °C",
        "f(x)",
        "_id",
        "a, b",
        "q=1",
        "α-β",
        "7",
        "it's",
        "(log) z",
        "b|c",
    ];
    let columns: String = names
        .iter()
        .map(|name| format!("[[columns]]\nname = \"{name}\"\nkind = \"number\"\nlower = 0\nupper = 1\ncentre = 0\nscale = 1\n"))
        .collect();
    let schema = Schema::asking("died ~ .", &format!("{SCHEMA}{columns}")).unwrap();
    for name in names {
        for formula in
            [format!("died ~ {name}"), format!("died ~ age + {name}"), format!("died ~ {name} + bmi"), format!("died ~ age + {name}*sex")]
        {
            let error = schema.clone().with_formula(&formula, &[]).unwrap_err().to_string();
            assert!(error.contains(&format!("`{name}`")) && error.contains("backticks"), "{formula}: {error}");
            schema.clone().with_formula(&formula.replacen(name, &format!("`{name}`"), 1), &[]).unwrap();
        }
    }
    // Others keep their own words, also beside such a name.
    for (formula, word) in
        [("died ~ `2h_glucose` + hight", "no column `hight`"), ("died ~ 3 + age", "only 0 and 1"), ("died ~ 27", "only 0 and 1")]
    {
        let error = schema.clone().with_formula(formula, &[]).unwrap_err().to_string();
        assert!(error.contains(word), "{formula}: {error}");
    }
}

#[test]
fn names_of_two_coefficients_differ() {
    let text = "[[columns]]\nname = \"y\"\nkind = \"boolean\"\ntrue_values = [\"1\"]\nfalse_values = [\"0\"]\n[[columns]]\nname = \"a\"\nkind = \"category\"\nvalues = [\"p\", \"b\"]\n\
                [[columns]]\nname = \"ab\"\nkind = \"number\"\nlower = 0\nupper = 1\ncentre = 0\nscale = 1\n";
    let error = Schema::parse(text).unwrap().with_formula("y ~ a + ab", &[]).unwrap_err();
    assert!(error.to_string().contains("two coefficients have the name `ab`"), "{error}");
    assert!(error.to_string().starts_with("formula, at byte 4, `a + ab`: "), "{error}");
}

/// A number has a range before a formula can name it.
#[test]
fn a_number_without_a_range_is_refused_by_its_column() {
    for key in ["lower", "upper"] {
        let text: String = SCHEMA
            .lines()
            .filter(|line| *line != format!("{key} = 0") && *line != format!("{key} = 110"))
            .map(|line| format!("{line}\n"))
            .collect();
        let error = Schema::asking("died ~ .", &text).unwrap_err().to_string();
        assert!(error.contains("column `age`") && error.contains(key), "{error}");
    }
}

#[test]
fn a_formula_takes_the_place_of_intercept_order_and_bound() {
    let schema = with("died ~ ward + age + sex");
    assert_eq!(
        schema.coefficient_names(),
        ["(Intercept)", "wardsurgery", "wardmedicine", "age", "sexm", "is.na(age)TRUE", "is.na(sex)TRUE"]
    );
    assert_eq!((schema.dimension(), schema.intercept(), schema.max_nonzeros()), (7, Some(0), 6));
    // Intercept, ward, (110 − 50)/20 = 3, sex, two indicators.
    assert!((schema.row_norm_bound() - 14_f64.sqrt()).abs() < 1e-11 && schema.row_norm_bound() >= 14_f64.sqrt());
    assert!(schema.max_abs_entry() >= 3.0 && schema.max_abs_entry() < 3.0 + 1e-11);
    let bounded = Schema::asking("died ~ .", &SCHEMA.replacen("version = 2", "version = 2\nnorm_bound = 2.5", 1)).unwrap();
    assert!((bounded.with_formula("died ~ age", &[]).unwrap().row_norm_bound() - 2.5).abs() < 1e-15);
}

/// As R's `terms`: `1` in a product is nothing, and what is taken away takes the intercept with it.
#[test]
fn the_intercept_follows_the_sign_of_its_sum() {
    for (formula, names) in [
        ("died ~ bmi - (sex + 1)", vec!["bmi"]),
        ("died ~ bmi - (1 + sex)", vec!["bmi"]),
        ("died ~ bmi - 1 - (0 + sex)", vec!["(Intercept)", "bmi"]),
        ("died ~ bmi - (sex - 1)", vec!["(Intercept)", "bmi"]),
        ("died ~ (1 + bmi):ward - 1", vec!["bmi:wardsurgery", "bmi:wardmedicine", "bmi:wardicu"]),
        ("died ~ 1", vec!["(Intercept)"]),
    ] {
        assert_eq!(with(formula).coefficient_names(), names, "{formula}");
    }
}

#[test]
fn sites_are_ordered_by_their_bytes_whatever_order_they_are_listed_in() {
    let sites = ["zürich", "Bern", "basel", "Bern"].map(str::to_owned);
    let schema = schema().with_formula("died ~ (1 | site)", &sites).unwrap();
    assert_eq!(schema.design().unwrap().sites(), ["Bern", "basel", "zürich"]);
    assert_eq!(schema.coefficient_names()[1..], ["b[(Intercept) site:Bern]", "b[(Intercept) site:basel]", "b[(Intercept) site:zürich]"]);
}

/// A number that is cut has levels, as a category has.
#[test]
fn a_group_stands_over_a_number_that_is_cut() {
    let schema = with("died ~ sex + (1 | bin(bmi, [20,30]))");
    let names = schema.coefficient_names();
    let levels = names.len() - 3;
    assert_eq!(names[levels..], ["[10,20]", "(20,30]", "(30,60]"].map(|level| format!("b[(Intercept) bin(bmi, [20, 30]):{level}]")));
    let design = schema.design().unwrap();
    assert_eq!(design.scale_groups()[0].term, "(1 | bin(bmi, [20, 30]))");
    let mut cells = [Cell::Number(0.0); 7];
    cells[1] = Cell::Number(25.0);
    for level in [2, 3, 4] {
        cells[level] = Cell::Level(0);
    }
    let mut filled = Vec::new();
    let record = Record { cells: &cells, filled: &[false; 7], site: None };
    design.row(&record, &mut RowSpace::default(), |position, value| filled.push((position, value)));
    let own: Vec<_> = filled.into_iter().filter(|(position, _)| *position as usize >= levels).collect();
    assert_eq!(own, [(levels as u32 + 1, 1.0)]);
}

#[test]
fn what_a_formula_makes_of_a_column_is_told() {
    let schema = with("died ~ scale(age) + bin(bmi, [20, 30]) + sex*smoker + ward");
    let design = schema.design().unwrap();
    assert_eq!(design.use_of(0), Use::Straight);
    assert!(matches!(design.use_of(1), Use::Bins { cuts: [20.0, 30.0], .. }));
    assert_eq!(design.use_of(3), Use::Levels { reference: Some(2) });
    assert_eq!(design.use_of(5), Use::None);
    assert_eq!(design.companions(2).into_iter().collect::<Vec<_>>(), [4]);
    assert!(design.companions(3).is_empty());
    let schema = with("died ~ age + age:center(age, 50) + bmi + offset(log(bmi))");
    let design = schema.design().unwrap();
    assert_eq!((design.use_of(0), design.use_of(1)), (Use::Curve, Use::Curve));
}

/// Random formulas over the columns of the schema.
fn formulas() -> impl Strategy<Value = String> {
    let atom = prop_oneof![
        Just("age".to_owned()),
        Just("`bmi`".to_owned()),
        Just("sex".to_owned()),
        Just("C(ward, sum)".to_owned()),
        Just("smoker".to_owned()),
        Just("bs(age,df=5)".to_owned()),
        Just("ns(bmi, knots=[20, 27.5])".to_owned()),
        Just("poly( age , 3 )".to_owned()),
        Just("poly(bmi, 2, raw=TRUE)".to_owned()),
        Just("bin(bmi, [18.5,25,30])".to_owned()),
        Just("scale(log1p(age))".to_owned()),
        Just("C(ward, treatment('surgery'))".to_owned()),
        Just("1".to_owned()),
    ];
    let inner = atom.prop_recursive(3, 10, 3, |inner| {
        prop_oneof![
            (inner.clone(), inner.clone()).prop_map(|(a, b)| format!("({a} + {b})")),
            (inner.clone(), inner.clone()).prop_map(|(a, b)| format!("({a}-{b})")),
            (inner.clone(), inner.clone()).prop_map(|(a, b)| format!("({a}*{b})")),
            (inner.clone(), inner.clone()).prop_map(|(a, b)| format!("{a}:{b}")),
            (inner, 1_u32..4).prop_map(|(a, n)| format!("({a})^{n}")),
        ]
    });
    let tail = prop_oneof![
        Just(""),
        Just(" + s(age)"),
        Just(" + s(bmi, k=6, sd=0.5) + offset(log(bmi))"),
        Just(" + (1 + age|site)"),
        Just(" + (0+bmi||ward)"),
        Just(" + (1 | bin(age, [20,40.5]))"),
    ];
    (prop::collection::vec(inner, 1..4), tail).prop_map(|(sums, tail)| format!("died ~ age + {}{tail}", sums.join(" + ")))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    #[test]
    fn reading_the_canonical_text_gives_the_same_formula(text in formulas()) {
        let canonical = Formula::parse(&text).unwrap().to_string();
        prop_assert_eq!(&Formula::parse(&canonical).unwrap().to_string(), &canonical);
        let sites = ["north".to_owned()];
        let (written, again) = (schema().with_formula(&text, &sites), schema().with_formula(&canonical, &sites));
        match (written, again) {
            (Ok(written), Ok(again)) => prop_assert_eq!(written.design(), again.design()),
            (written, again) => prop_assert!(written.is_err() && again.is_err(), "{}", text),
        }
    }

    /// Corners and random values; the bound holds in floating point, and what is promised of positions and entries.
    #[test]
    fn rows_keep_to_the_bounds(text in formulas(), values in prop::collection::vec(0.0..=1.0_f64, 8), corners in prop::collection::vec(0..4_u32, 8)) {
        let Ok(schema) = schema().with_formula(&text, &["north".into(), "south".into()]) else { return Ok(()) };
        let design = schema.design().unwrap();
        let place = |position: usize| match corners[position] { 0 => 0.0, 1 => 1.0, _ => values[position] };
        let cell = |(position, kind): (usize, &ColumnKind)| match kind {
            ColumnKind::Number(rule) => Cell::Number(rule.lower + place(position) * (rule.upper - rule.lower)),
            ColumnKind::Category(rule) => Cell::Level((place(position) * (rule.values.len() - 1) as f64).round() as u32),
            ColumnKind::Boolean(_) => Cell::Level(place(position).round() as u32),
            ColumnKind::Ignored => Cell::Missing,
        };
        let cells: Vec<Cell> = schema.columns().iter().map(|column| &column.kind).enumerate().map(cell).collect();
        let filled: Vec<bool> = corners.iter().map(|corner| *corner == 1).collect();
        let (mut square, mut count, mut last) = (0.0, 0, None);
        design.row(&Record { cells: &cells, filled: &filled, site: Some(1) }, &mut RowSpace::default(), |position, value| {
            assert!(last.is_none_or(|last| position > last) && position < schema.dimension() && value != 0.0);
            assert!(value.abs() <= schema.max_abs_entry() * (1.0 + 1e-12));
            (square, count, last) = (square + value * value, count + 1, Some(position));
        });
        prop_assert!(f64::sqrt(square) <= schema.row_norm_bound());
        prop_assert!(count <= schema.max_nonzeros());
        prop_assert_eq!(schema.entries().len(), schema.dimension() as usize);
        prop_assert_eq!(schema.widths().iter().sum::<usize>(), schema.dimension() as usize);
    }
}

const SURVIVAL: &str = r#"
[[columns]]
name = "age"
kind = "number"
lower = 0
upper = 100
centre = 50
scale = 25
[[columns]]
name = "w"
kind = "number"
lower = 0
upper = 4
centre = 0
scale = 1
[[columns]]
name = "ward"
kind = "category"
values = ["a", "b"]
[[columns]]
name = "died"
kind = "boolean"
[[columns]]
name = "days"
kind = "number"
lower = 0
upper = 365
centre = 0
scale = 1
"#;

#[test]
fn an_outcome_is_what_the_columns_say() {
    let with_entry = format!("{SURVIVAL}[[columns]]\nname = \"since\"\nkind = \"number\"\nlower = 0\nupper = 9\ncentre = 4\nscale = 2\n");
    let of = |formula: &str| Schema::asking(formula, &with_entry);
    assert_eq!(of("Surv(days, died) ~ age").unwrap().coefficient_names(), ["(Intercept)", "age"]);
    let entered = of("Surv(since, days, died) ~ .").unwrap();
    assert_eq!(
        (entered.outcome(), entered.coefficient_names()),
        (&[4, 3, 5][..], ["age", "w", "ward=b", "(intercept)"].map(str::to_owned).to_vec())
    );
    let LabelKind::Survival(rule) = &entered.label().kind else { panic!("times") };
    // Times stay in the unit of the file.
    assert_eq!((rule.time.encode(20.0), rule.entry.as_ref().unwrap().rule.encode(5.0)), (20.0, 5.0));
    assert!(matches!(&of("died ~ age").unwrap().label().kind, LabelKind::Binary { positive } if positive == &["true", "1"]));
    assert!(matches!(&of("ward ~ age").unwrap().label().kind, LabelKind::Classes { values } if values == &["a", "b"]));
    assert!(matches!(of("age ~ w").unwrap().label().kind, LabelKind::Number { whole: false, .. }));
    let counts = of("since ~ w").unwrap().with_counts();
    assert!(matches!(counts.label().kind, LabelKind::Number { rule, whole: true } if rule.encode(3.0) == 3.0));
    let nothing = of("~ age").unwrap();
    assert_eq!((nothing.label().columns().count(), nothing.outcome().len(), nothing.dimension()), (0, 0, 2));
    for (formula, at, words) in [
        ("Surv(died, days) ~ age", 5, "kind = \"number\""),
        ("Surv(days, age) ~ w", 11, "kind = \"boolean\""),
        ("Surv(days, days, died) ~ w", 11, "stands twice"),
        ("Surv(days, died) ~ age + died", 25, "it is predicted"),
        ("Surv(since, days, died) ~ since", 26, "it is predicted"),
        ("nobody ~ age", 0, "no column `nobody`"),
    ] {
        let Err(SchemaError::Formula(error)) = of(formula) else { panic!("{formula}") };
        assert_eq!(error.at(), at, "{error}");
        assert!(error.problem().contains(words), "{error}");
    }
    let negative = with_entry.replace("lower = 0\nupper = 9", "lower = -1\nupper = 9");
    let refused = Schema::asking("Surv(since, days, died) ~ age", &negative).unwrap_err().to_string();
    assert!(refused.contains("`lower` of 0 or more"), "{refused}");
}

/// `.` is what has no other part: neither the outcome, nor an offset, a weight, an id, or a column that is ignored.
#[test]
fn a_dot_stands_for_all_other_columns() {
    let names = |formula: &str| Schema::asking(formula, SURVIVAL).unwrap().coefficient_names();
    assert_eq!(names("Surv(days, died) ~ . + offset(log1p(w))"), ["age", "ward=b", "(intercept)"]);
    assert_eq!(names("died ~ . - 1"), ["age", "w", "ward=a", "ward=b", "days"]);
    // With other terms they are those of a formula.
    assert_eq!(names("died ~ . + age:w"), ["(Intercept)", "age", "w", "wardb", "days", "age:w"]);
    assert_eq!(names("died ~ . - days"), ["(Intercept)", "age", "w", "wardb"]);
    let weighted = Schema::asking("died ~ .", SURVIVAL).unwrap().with_weights("w").unwrap();
    assert_eq!(weighted.coefficient_names(), ["age", "ward=b", "days", "(intercept)"]);
    assert_eq!(Formula::parse("died~.-1").unwrap().to_string(), "died ~ . - 1");
    assert_eq!(Formula::parse("~ 0+.").unwrap().to_string(), "~ 0 + .");
}

#[test]
fn an_intercept_that_the_model_replaces_counts_for_the_coding_alone() {
    let all = Schema::parse(SURVIVAL).unwrap().with_formula("Surv(days, died) ~ ward + age", &[]).unwrap();
    let without = all.clone().without_intercept();
    assert_eq!((all.intercept(), without.intercept(), without.dimension(), without.max_nonzeros()), (Some(0), None, 2, 2));
    assert_eq!(without.coefficient_names(), ["wardb", "age"]);
    assert!((all.worst_case_norm().powi(2) - without.worst_case_norm().powi(2) - 1.0).abs() < 1e-9);
    let record = |schema: &Schema| {
        let cells = [Cell::Number(75.0), Cell::Number(1.0), Cell::Level(1)];
        let mut row = Vec::new();
        let record = Record { cells: &cells, filled: &[false; 3], site: None };
        schema.design().unwrap().row(&record, &mut RowSpace::default(), |j, x| row.push((j, x)));
        row
    };
    assert_eq!(record(&all), [(0, 1.0), (1, 1.0), (2, 1.0)]);
    assert_eq!(record(&without), [(0, 1.0), (1, 1.0)]);
    // Without an intercept in the formula the factor has all its levels.
    let full = Schema::parse(SURVIVAL).unwrap().with_formula("Surv(days, died) ~ 0 + ward", &[]).unwrap().without_intercept();
    assert_eq!(full.coefficient_names(), ["warda", "wardb"]);
}

#[test]
fn the_weight_of_a_record_is_a_number_that_every_record_has() {
    let with = |schema: &str, formula: &str, column: &str| {
        Schema::parse(schema).unwrap().with_formula(formula, &[]).unwrap().with_weights(column).map_err(|error| error.to_string())
    };
    let weighted = with(SURVIVAL, "Surv(days, died) ~ age", "w").unwrap();
    let cells = [Cell::Number(75.0), Cell::Number(2.5), Cell::Level(1)];
    let record = Record { cells: &cells, filled: &[false; 3], site: None };
    assert_eq!((weighted.design().unwrap().weight(&record), weighted.max_weight(), weighted.dimension()), (2.5, 4.0, 2));
    let own = |from: &str, to: &str| SURVIVAL.replace(from, to);
    for (schema, column, words) in [
        (SURVIVAL.to_owned(), "v", "not described"),
        (SURVIVAL.to_owned(), "ward", "no number"),
        (SURVIVAL.to_owned(), "age", "no term"),
        (own("upper = 4", "upper = 4\nmissing = \"zero\""), "w", "nothing stands in"),
        (own("lower = 0\nupper = 4", "lower = -1\nupper = 4"), "w", "0 or more"),
    ] {
        let error = with(&schema, "Surv(days, died) ~ age", column).unwrap_err();
        assert!(error.contains(words) && error.contains(column), "{error}");
    }
}
