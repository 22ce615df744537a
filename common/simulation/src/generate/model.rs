//! The generative model.

use super::Options;
use super::cohort::{Coefficient, Cohort, Hospital, HospitalSummary, Stay, Truth, Ward};
use super::columns::write_stays;
use super::draw::Draw;
use super::files::{WriteError, write};
use dp_pvi_schema::formula::{Cell, Record, RowSpace};
use dp_pvi_schema::{Column, ColumnKind, NumberRule, Schema, SchemaError};
use std::path::Path;

/// Case mix of a hospital.
#[derive(Debug, Clone, Copy)]
struct Profile {
    /// Stays, relative to the average hospital.
    size: f64,
    /// Mean and standard deviation of the age.
    age: (f64, f64),
    male: f64,
    smoker: f64,
    /// Chance that the smoking habit was not asked, that cholesterol was not measured.
    missing: (f64, f64),
    /// Mean systolic pressure at 60.
    pressure: f64,
    /// Chance of diabetes at 60.
    diabetes: f64,
    /// Relative frequencies of the wards at 60.
    wards: [f64; 4],
}

/// A university hospital, a district hospital, a geriatric hospital; further hospitals repeat these with shifted ages.
const PROFILES: [Profile; 3] = [
    Profile {
        size: 1.4,
        age: (52.0, 17.0),
        male: 0.54,
        smoker: 0.22,
        missing: (0.02, 0.05),
        pressure: 132.0,
        diabetes: 0.14,
        wards: [0.35, 0.40, 0.20, 0.05],
    },
    Profile {
        size: 1.0,
        age: (61.0, 16.0),
        male: 0.50,
        smoker: 0.30,
        missing: (0.08, 0.15),
        pressure: 138.0,
        diabetes: 0.20,
        wards: [0.20, 0.25, 0.45, 0.10],
    },
    Profile {
        size: 0.6,
        age: (76.0, 10.0),
        male: 0.42,
        smoker: 0.15,
        missing: (0.15, 0.55),
        pressure: 141.0,
        diabetes: 0.24,
        wards: [0.10, 0.05, 0.35, 0.50],
    },
];

/// Names the cohort's streams.
const COHORT: &str = "dp-pvi synthetic hospitals v1";

const SCHEMA: &str = include_str!("schema.toml");

/// θ by name. The intercept is the sum of the wards (see the module documentation).
const TRUTH: [(&str, f64); 11] = [
    ("age", 0.9),
    ("male", 0.35),
    ("smoker", 0.6),
    ("systolic_pressure", 0.5),
    ("cholesterol", 0.4),
    ("diabetes", 0.7),
    ("prior_stays", 0.5),
    ("ward=surgery", -1.0),
    ("ward=medicine", -0.6),
    ("ward=geriatrics", -0.3),
    ("(intercept)", -1.4),
];

/// Why there is no cohort.
#[derive(Debug, thiserror::Error)]
pub enum GenerateError {
    /// Options outside what the generator promises.
    #[error("at least 1 hospital, 10 rows and 1 evaluation row are needed")]
    Options,
    /// The built-in schema is not one: our bug.
    #[error(transparent)]
    Schema(#[from] SchemaError),
    /// A file.
    #[error(transparent)]
    Write(#[from] WriteError),
}

/// Generates a cohort: a pure function of the options.
///
/// # Errors
/// No hospital or too few rows.
pub fn hospitals(options: Options) -> Result<Cohort, GenerateError> {
    if options.hospitals == 0 || options.rows < 10 || options.evaluation_rows == 0 {
        return Err(GenerateError::Options);
    }
    let model = Model::new()?;
    let profiles = profiles(options);
    let mut hospitals = Vec::with_capacity(profiles.len());
    for (number, profile) in (1_u32..).zip(&profiles) {
        hospitals.push(Hospital { name: name(number), stays: model.stays(options, profile, number).collect() });
    }
    let evaluation = model.evaluation(options, &profiles);
    let truth = model.truth(options, hospitals.iter().map(Hospital::summary).collect(), &evaluation);
    Ok(Cohort { schema: SCHEMA.to_owned(), hospitals, evaluation, truth })
}

/// Writes the cohort of [`hospitals`] with its hospitals as Parquet files, row group by row group as they are drawn: memory does not grow with their size. The other files are
/// those of the cohort ([`Cohort::files`]). A Parquet file that is there already is in the way, whatever it holds.
///
/// # Errors
/// As [`hospitals`], and as [`write`](super::write).
pub fn write_columns(options: Options, directory: &Path) -> Result<Truth, GenerateError> {
    if options.hospitals == 0 || options.rows < 10 || options.evaluation_rows == 0 {
        return Err(GenerateError::Options);
    }
    let model = Model::new()?;
    let profiles = profiles(options);
    let evaluation = model.evaluation(options, &profiles);
    std::fs::create_dir_all(directory).map_err(|source| WriteError::Io { path: directory.to_owned(), source })?;
    let mut hospitals = Vec::with_capacity(profiles.len());
    for (number, profile) in (1_u32..).zip(&profiles) {
        hospitals.push(write_stays(&name(number), model.stays(options, profile, number), directory)?);
    }
    let truth = model.truth(options, hospitals, &evaluation);
    let rest = Cohort { schema: SCHEMA.to_owned(), hospitals: Vec::new(), evaluation, truth };
    write(&rest.files(), directory)?;
    Ok(rest.truth)
}

fn name(number: u32) -> String {
    format!("hospital-{number}")
}

fn profiles(options: Options) -> Vec<Profile> {
    (0..options.hospitals).map(|number| profile(options.seed, number)).collect()
}

fn size(profile: &Profile, rows: u32) -> u32 {
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "at most 1.4 times a u32, and `as` saturates")]
    {
        (f64::from(rows) * profile.size).round() as u32
    }
}

/// The case mix of the hospital at a position from 0.
fn profile(seed: u64, number: u32) -> Profile {
    let mut profile = PROFILES[number as usize % PROFILES.len()];
    if number as usize >= PROFILES.len() {
        let mut draw = Draw::new(COHORT, seed, "profile", number);
        profile.age.0 += 10.0 * (draw.uniform() - 0.5);
        profile.smoker *= 0.7 + 0.6 * draw.uniform();
        profile.diabetes *= 0.7 + 0.6 * draw.uniform();
    }
    profile
}

/// The schema with θ.
struct Model {
    schema: Schema,
    coefficients: Vec<f64>,
}

impl Model {
    fn new() -> Result<Self, GenerateError> {
        let schema = Schema::asking("cardiac_event ~ .", SCHEMA)?;
        let names = schema.coefficient_names();
        assert!(names.iter().eq(TRUTH.iter().map(|(name, _)| name)), "the built-in schema and truth name the same coefficients");
        Ok(Self { schema, coefficients: TRUTH.iter().map(|(_, value)| *value).collect() })
    }

    /// The stays of a hospital, numbered from 1.
    fn stays(&self, options: Options, profile: &Profile, number: u32) -> impl Iterator<Item = Stay> + Send {
        let mut draw = Draw::new(COHORT, options.seed, "stays", number);
        (0..size(profile, options.rows)).map(move |_| self.stay(profile, &mut draw))
    }

    fn evaluation(&self, options: Options, profiles: &[Profile]) -> Vec<Stay> {
        let mut draw = Draw::new(COHORT, options.seed, "evaluation", 0);
        let sizes: Vec<f64> = profiles.iter().map(|profile| profile.size).collect();
        (0..options.evaluation_rows).map(|_| self.stay(&profiles[draw.choice(&sizes)], &mut draw)).collect()
    }

    /// Draws one stay: case mix first, then the outcome given the feature row.
    fn stay(&self, profile: &Profile, draw: &mut Draw) -> Stay {
        let age = (profile.age.0 + profile.age.1 * draw.normal()).round().clamp(18.0, 99.0);
        let decades = (age - 60.0) / 10.0;
        let male = draw.chance(profile.male);
        let smokes = draw.chance(profile.smoker * (1.0 - 0.1 * decades).max(0.2));
        let pressure = (profile.pressure + 3.5 * decades + 17.0 * draw.normal()).round().clamp(80.0, 230.0);
        let cholesterol = (51.0 + 10.5 * draw.normal() + if smokes { 3.0 } else { 0.0 }).round().clamp(20.0, 120.0);
        let diabetes = draw.chance((profile.diabetes * (1.0 + 0.25 * decades)).clamp(0.02, 0.6));
        let prior_stays = draw.count((0.8 + 0.35 * decades).max(0.1)).min(30);
        let mut wards = profile.wards;
        wards[3] *= libm::exp(0.6 * decades);
        let ward = Ward::ALL[draw.choice(&wards)];
        let smoker = (!draw.chance(profile.missing.0)).then_some(smokes);
        let measured = !draw.chance(profile.missing.1);
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "clamped to small positive ranges above")]
        let mut stay = Stay {
            age: age as u32,
            male,
            smoker,
            systolic_pressure: pressure as u32,
            cholesterol_tenths: measured.then_some(cholesterol as u32),
            diabetes,
            prior_stays,
            ward,
            cardiac_event: false,
        };
        stay.cardiac_event = draw.chance(self.probability(&stay));
        stay
    }

    /// σ(xᵀθ).
    fn probability(&self, stay: &Stay) -> f64 {
        1.0 / (1.0 + libm::exp(-self.logit(stay)))
    }

    /// xᵀθ, with x as the schema makes it.
    fn logit(&self, stay: &Stay) -> f64 {
        let (mut logit, mut square) = (0.0, 0.0);
        let add = |index: u32, value: f64| {
            logit += value * self.coefficients[index as usize];
            square += value * value;
        };
        let cell = |column: &Column| match &column.kind {
            ColumnKind::Number(rule) => number(rule, stay, &column.name),
            ColumnKind::Boolean(_) => Cell::Level(u32::from(truth(stay, &column.name))),
            ColumnKind::Category(rule) => {
                let level = rule.values.iter().position(|value| *value == stay.ward.name());
                level.and_then(|level| u32::try_from(level).ok()).map_or(Cell::Missing, Cell::Level)
            }
            ColumnKind::Ignored => Cell::Missing,
        };
        let cells: Vec<Cell> = self.schema.columns().iter().map(cell).collect();
        let filled = vec![false; cells.len()];
        if let Some(design) = self.schema.design() {
            design.row(&Record { cells: &cells, filled: &filled, site: None }, &mut RowSpace::default(), add);
        }
        logit * (self.schema.row_norm_bound() / square.sqrt()).min(1.0)
    }

    fn truth(&self, options: Options, hospitals: Vec<HospitalSummary>, evaluation: &[Stay]) -> Truth {
        let names = self.schema.coefficient_names();
        let (mut log_likelihood, mut correct) = (0.0, 0.0);
        for stay in evaluation {
            let logit = self.logit(stay);
            let signed = if stay.cardiac_event { logit } else { -logit };
            log_likelihood -= (-signed).max(0.0) + libm::log1p(libm::exp(-signed.abs()));
            correct += if (logit > 0.0) == stay.cardiac_event { 1.0 } else { 0.0 };
        }
        let rows = evaluation.len() as f64;
        Truth {
            seed: options.seed,
            coefficients: names.into_iter().zip(&self.coefficients).map(|(name, &value)| Coefficient { name, value }).collect(),
            hospitals,
            evaluation_rows: evaluation.len() as u64,
            evaluation_log_likelihood: log_likelihood / rows,
            evaluation_accuracy: correct / rows,
        }
    }
}

/// The entry of a numeric column; a value that was not measured is 0.
fn number(rule: &NumberRule, stay: &Stay, name: &str) -> Cell {
    let value = match name {
        "age" => Some(stay.age.into()),
        "systolic_pressure" => Some(stay.systolic_pressure.into()),
        "cholesterol" => stay.cholesterol_tenths.map(|tenths| f64::from(tenths) / 10.0),
        _ => Some(stay.prior_stays.into()),
    };
    value.map_or_else(|| Cell::Gap(rule.stand_in()), |value: f64| Cell::Number(value.clamp(rule.lower, rule.upper)))
}

fn truth(stay: &Stay, name: &str) -> bool {
    match name {
        "male" => stay.male,
        "smoker" => stay.smoker == Some(true),
        _ => stay.diabetes,
    }
}
