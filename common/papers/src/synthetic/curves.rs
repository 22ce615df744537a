//! Federations whose labels follow a curve of age, for a test and for the example `curves`.
#![allow(clippy::unwrap_used, clippy::cast_precision_loss, clippy::cast_possible_truncation, clippy::cast_sign_loss)]

use dp_pvi_math::expfam::any::Gaussian;
use dp_pvi_models::effects::scales;
use dp_pvi_posterior::noise_aware::of_run;
use dp_pvi_posterior::task::{RawTask, ResolveContext, ResolvedTask};
use dp_pvi_records::RecordTable;
use dp_pvi_schema::formula::{Cell, Record, RowSpace};

use super::federation::{Random, federate};

/// Ages that are compared with 54.
const AGES: [f64; 9] = [18.0, 24.0, 30.0, 36.0, 45.0, 63.0, 72.0, 81.0, 90.0];

/// A truth with its name.
pub(crate) type Curve = (&'static str, fn(f64) -> f64);

pub(crate) const CURVES: [Curve; 4] = [
    ("none", |_| 0.0),
    ("straight", |age| 0.8 * (age - 54.0) / 36.0),
    ("wave", |age| 1.2 * (std::f64::consts::TAU * (age - 18.0) / 72.0).sin() + 0.8 * (age - 54.0) / 36.0),
    ("step", |age| 1.5 / (1.0 + (-(age - 40.0) / 5.0).exp())),
];

/// A federation that is drawn again and again. The predictor is f(age) − 0.4 x + 0.5 sex; wards make no difference.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Federation {
    /// Every site adds noise of its own; one of a sum is one site with all records.
    pub(crate) sites: u32,
    /// Records of a site.
    pub(crate) records: u32,
    pub(crate) epsilon: f64,
    pub(crate) family: &'static str,
    pub(crate) formula: &'static str,
    pub(crate) pvi: &'static str,
}

/// One federation's differences to an age of 54 beside the truth.
pub(crate) struct Outcome {
    /// (error, posterior standard deviation) at every age.
    pub(crate) differences: Vec<(f64, f64)>,
    /// Estimate of τ.
    pub(crate) scale: f64,
}

impl Federation {
    pub(crate) fn task(&self) -> ResolvedTask {
        let label = if self.family == "ordinal-regression" {
            "kind = \"category\"\nvalues = [\"0\", \"1\", \"2\"]"
        } else {
            "kind = \"boolean\"\ntrue_values = [\"1\"]\nfalse_values = [\"0\"]"
        };
        let number = |name: &str, lower: f64, upper: f64| {
            let (centre, scale) = (0.5 * (lower + upper), 0.5 * (upper - lower));
            format!(
                "[[columns]]\nname = \"{name}\"\nkind = \"number\"\nlower = {lower:?}\nupper = {upper:?}\ncentre = {centre:?}\nscale = {scale:?}\n"
            )
        };
        let schema = format!(
            "version = 2\n{}{}[[columns]]\nname = \"sex\"\nkind = \"boolean\"\ntrue_values = [\"1\"]\nfalse_values = [\"0\"]\n[[columns]]\nname = \"ward\"\n\
             kind = \"category\"\nvalues = [\"a\", \"b\", \"c\", \"d\"]\n[[columns]]\nname = \"y\"\n{label}\n",
            number("age", 18.0, 90.0),
            number("x", -3.0, 3.0)
        );
        let text = format!(
            "[model]\nfamily = {:?}\n{}formula = {:?}\n[schema]\nfile = \"schema.toml\"\n[pvi]\n{}\n[privacy]\nunit = \"record\"\n\
             adjacency = \"add-remove\"\nepsilon = {}\ndelta = 1e-5\ntrust = \"local\"\nmax_units = 1000000\n",
            self.family,
            if self.family == "ordinal-regression" { "classes = 3\n" } else { "" },
            self.formula,
            self.pvi,
            self.epsilon
        );
        let context = ResolveContext { name: "curves", update_deadline_seconds: 60, min_sites: self.sites, expected_sites: self.sites };
        RawTask::parse(&text).unwrap().resolve(&schema, context).unwrap()
    }

    /// What a run over drawn records says of the curve. `None` where it has no noise-aware posterior.
    pub(crate) fn run(&self, task: &ResolvedTask, curve: fn(f64) -> f64, seed: u64) -> Option<Outcome> {
        let mut random = Random(seed << 20);
        let tables = (0..self.sites).map(|_| self.table(task, curve, &mut random)).collect();
        let (_, history) = federate(task, tables, seed);
        let posterior = of_run(task, &history).ok()?;
        let q = Gaussian::from_natural(task.family(), posterior.natural_parameters).unwrap();
        let difference = |age: f64| {
            let (indices, values) = difference(task, age);
            let (mean, variance) = q.standard().project(&indices, &values);
            (mean - (curve(age) - curve(54.0)), variance.sqrt())
        };
        let (prior, schema) = (task.setting().priors(), task.parsed_schema().unwrap());
        let scale = scales(&task.model, &prior, &schema, &task.parameter_names().unwrap(), q.standard(), &posterior.scales)[0].estimate;
        Some(Outcome { differences: AGES.iter().map(|age| difference(*age)).collect(), scale })
    }

    /// Rows of one site by the task's formula.
    fn table(&self, task: &ResolvedTask, curve: fn(f64) -> f64, random: &mut Random) -> RecordTable {
        let schema = task.parsed_schema().unwrap();
        let design = schema.design().unwrap();
        let mut builder = RecordTable::builder(task.features as usize);
        let mut space = RowSpace::default();
        let sigmoid = |eta: f64| 1.0 / (1.0 + (-eta).exp());
        for _ in 0..self.records {
            let (age, x) = ((52.0 + 16.0 * random.normal()).clamp(18.0, 90.0), random.normal().clamp(-3.0, 3.0));
            let (sex, ward) = (random.uniform() < 0.5, (4.0 * random.uniform()) as u32);
            let eta = curve(age) - 0.4 * x + 0.5 * f64::from(u8::from(sex));
            let u = random.uniform();
            let label = if self.family == "ordinal-regression" {
                u8::from(u < sigmoid(eta + 0.5)) + u8::from(u < sigmoid(eta - 0.8))
            } else {
                u8::from(u < sigmoid(eta - 0.3))
            };
            let cells = [Cell::Number(age), Cell::Number(x), Cell::Level(u32::from(sex)), Cell::Level(ward)];
            let (mut indices, mut values) = (Vec::new(), Vec::new());
            design.row(&Record { cells: &cells, filled: &[false; 4], site: None }, &mut space, |position, value| {
                indices.push(position);
                values.push(value);
            });
            builder.start_unit();
            builder.push(&indices, &values, f64::from(label)).unwrap();
        }
        builder.finish()
    }
}

/// The row of an age, less that of 54, in the places of the model's coefficients.
fn difference(task: &ResolvedTask, age: f64) -> (Vec<u32>, Vec<f64>) {
    let schema = task.parsed_schema().unwrap();
    let design = schema.design().unwrap();
    let mut row = vec![0.0; task.features as usize];
    for (age, sign) in [(age, 1.0), (54.0, -1.0)] {
        let cells = [Cell::Number(age), Cell::Number(0.0), Cell::Level(0), Cell::Level(0)];
        let record = Record { cells: &cells, filled: &[false; 4], site: None };
        design.row(&record, &mut RowSpace::default(), |position, value| row[position as usize] += sign * value);
    }
    let first = task.model.rules().own_before_rows();
    ((first..first + task.features).collect(), row)
}
