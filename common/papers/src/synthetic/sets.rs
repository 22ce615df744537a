//! Real data sets as regressions see them: schemas from what is public, and the files.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use dp_pvi_data::load_public;
use dp_pvi_privacy::UnitTable;
use dp_pvi_records::{RecordTable, RecordView};
use dp_pvi_schema::Schema;

use super::federation::Random;

/// A data set.
pub(crate) struct Set {
    pub(crate) name: &'static str,
    pub(crate) schema: String,
    pub(crate) files: &'static [&'static str],
    /// The column that is predicted.
    pub(crate) outcome: &'static str,
    /// Keys of `[model]`.
    pub(crate) model: &'static str,
    /// Keys of `[pvi]` that have no default.
    pub(crate) bounds: &'static str,
}

const HEART: &[&str] = &[
    "health/heart-disease/processed.cleveland.data",
    "health/heart-disease/processed.hungarian.data",
    "health/heart-disease/processed.switzerland.data",
    "health/heart-disease/processed.va.data",
];

/// Cleveland's 13 columns; ranges and centres are those of an ordinary examination.
fn heart() -> String {
    let mut text = String::from(
        "version = 2\nnorm_bound = 4.0\n[csv]\nnames = [\"age\", \"sex\", \"cp\", \"trestbps\", \"chol\", \"fbs\", \"restecg\", \"thalach\", \"exang\", \"oldpeak\", \"slope\", \"ca\", \"thal\", \"num\"]\n\
         [missing]\ntokens = [\"?\"]\n[[columns]]\nname = \"num\"\nkind = \"boolean\"\ntrue_values = [\"1\", \"2\", \"3\", \"4\"]\nfalse_values = [\"0\"]\n",
    );
    for (name, lower, upper, centre, scale) in [
        ("age", 20, 90, 55, 20),
        ("trestbps", 80, 220, 130, 40),
        ("chol", 100, 600, 220, 100),
        ("thalach", 60, 220, 150, 40),
        ("oldpeak", -3, 7, 0, 2),
        ("ca", 0, 3, 0, 2),
    ] {
        let _ = write!(
            text,
            "[[columns]]\nname = \"{name}\"\nkind = \"number\"\nlower = {lower}\nupper = {upper}\ncentre = {centre}\nscale = {scale}\nmissing = \"centre\"\n"
        );
    }
    for (name, values) in [
        ("sex", "\"0\", \"1\""),
        ("cp", "\"1\", \"2\", \"3\", \"4\""),
        ("fbs", "\"0\", \"1\""),
        ("restecg", "\"0\", \"1\", \"2\""),
        ("exang", "\"0\", \"1\""),
        ("slope", "\"1\", \"2\", \"3\""),
        ("thal", "\"3\", \"6\", \"7\""),
    ] {
        let _ = write!(
            text,
            "[[columns]]\nname = \"{name}\"\nkind = \"category\"\nvalues = [{values}]\nmatching = \"number\"\nmissing = \"zero\"\n"
        );
    }
    text
}

/// Ten means of a cell nucleus; ranges as they are possible, in units of about a fifth of them.
fn breast_cancer() -> String {
    let columns = [
        ("radius", 5.0, 30.0),
        ("texture", 5.0, 40.0),
        ("perimeter", 40.0, 190.0),
        ("area", 100.0, 2600.0),
        ("smoothness", 0.05, 0.17),
        ("compactness", 0.0, 0.35),
        ("concavity", 0.0, 0.45),
        ("points", 0.0, 0.21),
        ("symmetry", 0.1, 0.31),
        ("fractal", 0.04, 0.1),
    ];
    let rest: Vec<String> = (0..20).map(|i| format!("\"other{i}\"")).collect();
    let names: Vec<String> = columns.iter().map(|(name, ..)| format!("\"{name}\"")).collect();
    let mut text = format!(
        "version = 2\nnorm_bound = 4.0\nother_columns = \"ignore\"\n[csv]\nnames = [\"id\", \"diagnosis\", {}, {}]\n[[columns]]\nname = \"diagnosis\"\nkind = \"boolean\"\ntrue_values = [\"M\"]\nfalse_values = [\"B\"]\n",
        names.join(", "),
        rest.join(", ")
    );
    for (name, lower, upper) in columns {
        let (centre, scale) = (lower + 0.4 * (upper - lower), 0.25 * (upper - lower));
        let _ = write!(
            text,
            "[[columns]]\nname = \"{name}\"\nkind = \"number\"\nlower = {lower:?}\nupper = {upper:?}\ncentre = {centre:?}\nscale = {scale:?}\n"
        );
    }
    text
}

/// Output of a power plant in megawatts from the weather; a standard deviation of 5 MW about the line.
fn power() -> String {
    numbers(
        ("output", 400.0, 520.0, 450.0, 20.0),
        &[
            ("temperature", 0.0, 40.0, 20.0, 10.0),
            ("vacuum", 20.0, 85.0, 50.0, 15.0),
            ("pressure", 980.0, 1040.0, 1013.0, 10.0),
            ("humidity", 0.0, 100.0, 70.0, 20.0),
        ],
        3.0,
        "\\t",
    )
}

/// Grades of wines by tasters, 0 to 10, from chemistry.
fn wine() -> String {
    numbers(
        ("grade", 0.0, 10.0, 5.0, 1.0),
        &[
            ("fixed acidity", 3.0, 17.0, 8.0, 2.0),
            ("volatile acidity", 0.0, 2.0, 0.5, 0.2),
            ("citric acid", 0.0, 1.5, 0.3, 0.2),
            ("sugar", 0.0, 20.0, 3.0, 3.0),
            ("chlorides", 0.0, 0.7, 0.08, 0.05),
            ("free sulphur", 0.0, 100.0, 15.0, 10.0),
            ("total sulphur", 0.0, 300.0, 50.0, 40.0),
            ("density", 0.98, 1.01, 0.997, 0.003),
            ("acidity", 2.5, 4.5, 3.3, 0.2),
            ("sulphates", 0.0, 2.0, 0.6, 0.2),
            ("alcohol", 8.0, 15.0, 10.5, 1.5),
        ],
        5.0,
        " ",
    )
}

type Number = (&'static str, f64, f64, f64, f64);

/// Columns of numbers (name, lower, upper, centre, scale), separated by spaces, the label behind them.
fn numbers(label: Number, columns: &[Number], norm_bound: f64, delimiter: &str) -> String {
    let names: Vec<String> = columns.iter().chain([&label]).map(|column| format!("\"{}\"", column.0)).collect();
    let keys = |(_, lower, upper, centre, scale): &Number| {
        format!("kind = \"number\"\nlower = {lower:?}\nupper = {upper:?}\ncentre = {centre:?}\nscale = {scale:?}\n")
    };
    let mut text = format!(
        "version = 2\nnorm_bound = {norm_bound:?}\n[csv]\ndelimiter = \"{delimiter}\"\nnames = [{}]\n[[columns]]\nname = \"{}\"\n{}",
        names.join(", "),
        label.0,
        keys(&label)
    );
    columns.iter().for_each(|column| write!(text, "[[columns]]\nname = \"{}\"\n{}", column.0, keys(column)).unwrap());
    text
}

pub(crate) fn sets() -> Vec<Set> {
    const LOGISTIC: (&str, &str) = ("family = \"logistic-regression\"", "");
    let read =
        |name: &str| std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy/experiments").join(name)).unwrap();
    // Every record is a unit here.
    let treatment = |name| {
        let text = read(name).replace(FULL, "");
        text.lines().filter(|line| !line.starts_with("unit_column")).collect::<Vec<_>>().join("\n")
    };
    let set = |name, outcome, schema, files, (model, bounds)| Set { name, outcome, schema, files, model, bounds };
    const ADULT: &[&str] = &["adult/adult.data.gz", "adult/adult.test.gz"];
    const DIABETES: &[&str] = &["health/diabetes-130/diabetic_data.csv.gz"];
    // Four standard deviations of the noise, in units of the gradient.
    let power_keys = ("family = \"linear-regression\"\nnoise_sd = 0.25", "residual_bound = 16.0\ncurvature_bound = 16.0");
    let wine_keys = ("family = \"linear-regression\"\nnoise_sd = 0.7", "residual_bound = 5.7\ncurvature_bound = 2.05");
    vec![
        set("heart disease", "num", heart(), HEART, LOGISTIC),
        set("breast cancer", "diagnosis", breast_cancer(), &["health/breast-cancer-wdbc/wdbc.data"], LOGISTIC),
        set("wine", "grade", wine(), &["uci-regression/wine/data.txt.gz"], wine_keys),
        set("power", "output", power(), &["uci-regression/power/data.txt.gz"], power_keys),
        set("Adult", "income", treatment("adult.schema.toml"), ADULT, LOGISTIC),
        set("diabetes, death", "discharge_disposition_id", treatment("diabetes-mortality.schema.toml"), DIABETES, LOGISTIC),
        set("diabetes, readmission", "readmitted", treatment("diabetes.schema.toml"), DIABETES, LOGISTIC),
    ]
}

/// An entry for every level.
const FULL: &str = "coding = \"full\"\n";

/// Adult with an entry for every level.
pub(crate) fn full_coding() -> Set {
    let adult = sets().into_iter().find(|set| set.name == "Adult").unwrap();
    let schema = adult.schema.replace("kind = \"category\"\n", &format!("kind = \"category\"\n{FULL}"));
    Set { name: "Adult, full coding", schema, ..adult }
}

pub(crate) fn load(outcome: &str, schema: &str, files: &[PathBuf]) -> RecordTable {
    load_public(&Schema::asking(&format!("{outcome} ~ ."), schema).unwrap(), files, None).unwrap().into_inner()
}

/// The records in random order: a fifth that is held out, and the others, cut into sites of one size.
pub(crate) fn split(records: &RecordTable, sites: usize, seed: u64) -> (RecordTable, Vec<RecordTable>) {
    let mut random = Random(seed);
    let mut order: Vec<usize> = (0..records.len()).collect();
    for i in (1..order.len()).rev() {
        order.swap(i, (random.uniform() * (i as f64 + 1.0)) as usize);
    }
    let all: Vec<RecordView<'_>> = records.records().collect();
    let table = |positions: &[usize]| {
        let mut builder = RecordTable::builder(records.dimension());
        for &at in positions {
            builder.start_unit();
            builder.push(all[at].indices, all[at].values, all[at].target).unwrap();
        }
        builder.finish()
    };
    let (held_out, training) = order.split_at(order.len() / 5);
    (table(held_out), training.chunks(training.len().div_ceil(sites)).map(table).collect())
}
