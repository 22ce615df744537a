//! A survival study: hazards that are constant between public cuts, times ratios that are the same in every hospital.
//!
//! A patient is treated or not by a fair coin, is of an age around 60 and of one of three stages. The hazard is [`HAZARDS`] e^η, with η = −0.5 for the treated,
//! 0.45 for every 15 years more, 0.5 for stage II and 1.1 for stage III. Watching ends between 12 and 60 months, whatever the patient is like. Ages are whole years
//! and months have two digits; the hazard is that of the age as written.

use std::fmt::Write as _;

use dp_pvi_protocol::concordance::{Outcome, concordance};
use serde::Serialize;

use super::cohort::{Coefficient, HospitalSummary, yes_no};
use super::draw::Draw;
use super::{GenerateError, Options};

/// Names the study's streams.
const STUDY: &str = "dp-pvi synthetic survival v1";

const SCHEMA: &str = include_str!("survival.toml");

/// From when on in months, and the hazard a month of an untreated patient of 60 in stage I.
const HAZARDS: [(f64, f64); 3] = [(0.0, 0.03), (6.0, 0.02), (18.0, 0.012)];
/// End of follow-up.
const END: f64 = 60.0;
/// Logarithms of hazard ratios, with the names that a formula `treated + age + stage` gives them.
const RATIOS: [(&str, f64); 4] = [("treatedTRUE", -0.5), ("age", 0.45), ("stageII", 0.5), ("stageIII", 1.1)];
const STAGES: [&str; 3] = ["I", "II", "III"];

/// Hospitals, a public evaluation set, the schema of both, and what is true.
#[derive(Debug, Clone, PartialEq)]
pub struct Study {
    /// Text of `schema.toml`.
    pub schema: String,
    /// `hospital-1`, `hospital-2`, …: the records of each.
    pub hospitals: Vec<Vec<Patient>>,
    /// Patients of no hospital's file.
    pub evaluation: Vec<Patient>,
    /// What is true.
    pub truth: StudyTruth,
}

/// One record.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Patient {
    /// Whether treated.
    pub treated: bool,
    /// Years.
    pub age: u32,
    /// Position of the stage, from 0.
    pub stage: usize,
    /// Until death, or until watching ended.
    pub months: f64,
    /// Whether it ended with death.
    pub died: bool,
}

/// What the generator knows.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct StudyTruth {
    /// Seed of the study.
    pub seed: u64,
    /// The baseline.
    pub hazards: Vec<Interval>,
    /// Logarithms of the hazard ratios, of an age for 15 years more.
    pub coefficients: Vec<Coefficient>,
    /// The hospitals.
    pub hospitals: Vec<HospitalSummary>,
    /// Records of the evaluation file.
    pub evaluation_rows: u64,
    /// Mean log density of the evaluation file under the truth: no fit can be expected to do better.
    pub evaluation_log_likelihood: f64,
    /// Concordance index of the true hazards on the evaluation file; absent without two patients to compare.
    pub evaluation_concordance: Option<f64>,
}

/// A part of the baseline.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Interval {
    /// Where it begins, in months.
    pub from: f64,
    /// Where it ends.
    pub to: f64,
    /// Hazard a month of an untreated patient of 60 in stage I.
    pub hazard: f64,
}

/// Generates a study: a pure function of the options. Every hospital has as many records.
///
/// # Errors
/// No hospital or too few rows.
pub fn survival(options: Options) -> Result<Study, GenerateError> {
    if options.hospitals == 0 || options.rows < 10 || options.evaluation_rows == 0 {
        return Err(GenerateError::Options);
    }
    let patients = |purpose, number, count| -> Vec<Patient> {
        let mut draw = Draw::new(STUDY, options.seed, purpose, number);
        (0..count).map(|_| patient(&mut draw)).collect()
    };
    let hospitals: Vec<_> = (1..=options.hospitals).map(|number| patients("patients", number, options.rows)).collect();
    let evaluation = patients("evaluation", 0, options.evaluation_rows);
    let summary = |(number, hospital): (u32, &Vec<Patient>)| HospitalSummary {
        name: format!("hospital-{number}"),
        rows: hospital.len() as u64,
        events: hospital.iter().filter(|patient| patient.died).count() as u64,
    };
    let outcome = |patient: &Patient| Outcome { entry: 0.0, time: patient.months, event: patient.died, risk: patient.log_ratio() };
    let truth = StudyTruth {
        seed: options.seed,
        hazards: intervals().collect(),
        coefficients: RATIOS.iter().map(|&(name, value)| Coefficient { name: name.to_owned(), value }).collect(),
        hospitals: (1..).zip(&hospitals).map(summary).collect(),
        evaluation_rows: evaluation.len() as u64,
        evaluation_log_likelihood: evaluation.iter().map(Patient::log_density).sum::<f64>() / evaluation.len() as f64,
        evaluation_concordance: concordance(&evaluation.iter().map(outcome).collect::<Vec<_>>()),
    };
    Ok(Study { schema: SCHEMA.to_owned(), hospitals, evaluation, truth })
}

fn intervals() -> impl Iterator<Item = Interval> {
    let ends = HAZARDS.iter().skip(1).map(|(from, _)| *from).chain([END]);
    HAZARDS.iter().zip(ends).map(|(&(from, hazard), to)| Interval { from, to, hazard })
}

fn patient(draw: &mut Draw) -> Patient {
    let treated = draw.chance(0.5);
    let stage = draw.choice(&[0.5, 0.3, 0.2]);
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "clamped to a small positive range")]
    let age = (60.0 + 12.0 * draw.normal()).round().clamp(30.0, 90.0) as u32;
    let mut patient = Patient { treated, age, stage, months: END, died: false };
    // The cumulative hazard at death is exponential.
    let mut left = -libm::log1p(-draw.uniform()) / libm::exp(patient.log_ratio());
    let mut death = f64::INFINITY;
    for Interval { from, to, hazard } in intervals() {
        let part = hazard * (to - from);
        if left <= part {
            death = from + left / hazard;
            break;
        }
        left -= part;
    }
    let watched = 12.0 + (END - 12.0) * draw.uniform();
    // Two digits, and never none at all.
    patient.months = ((100.0 * death.min(watched)).round() / 100.0).max(0.01);
    patient.died = death <= watched;
    patient
}

impl Patient {
    /// η.
    fn log_ratio(&self) -> f64 {
        let [treated, age, second, third] = RATIOS.map(|(_, value)| value);
        let treated = if self.treated { treated } else { 0.0 };
        treated + age * (f64::from(self.age) - 60.0) / 15.0 + [0.0, second, third][self.stage]
    }

    /// ln of the density of the time if the patient died, else of being alive then.
    fn log_density(&self) -> f64 {
        let eta = self.log_ratio();
        let watched = |interval: &Interval| (self.months.min(interval.to) - interval.from).max(0.0);
        let cumulative: f64 = intervals().map(|interval| interval.hazard * watched(&interval)).sum();
        // An interval holds its end, as in the model.
        let hazard = intervals().filter(|interval| interval.from < self.months).last().map_or(0.0, |interval| libm::log(interval.hazard));
        (if self.died { hazard + eta } else { 0.0 }) - cumulative * libm::exp(eta)
    }
}

impl Study {
    /// The files: `schema.toml`, `hospital-1.csv` …, `evaluation.csv`, `truth.json`, each with its content.
    #[must_use]
    pub fn files(&self) -> Vec<(String, String)> {
        let mut files = vec![("schema.toml".to_owned(), self.schema.clone())];
        let summaries = self.truth.hospitals.iter().zip(&self.hospitals);
        files.extend(summaries.map(|(summary, patients)| (format!("{}.csv", summary.name), csv(patients))));
        files.push(("evaluation.csv".to_owned(), csv(&self.evaluation)));
        // Names and finite numbers: serialisation into memory cannot fail.
        let truth = serde_json::to_string_pretty(&self.truth).expect("the truth serialises");
        files.push(("truth.json".to_owned(), truth + "\n"));
        files
    }
}

fn csv(patients: &[Patient]) -> String {
    let mut text = "patient,treated,age,stage,months,died\n".to_owned();
    for (number, patient) in (1..).zip(patients) {
        let Patient { treated, age, stage, months, died } = *patient;
        // Writing to a string cannot fail.
        _ = writeln!(text, "{number},{},{age},{},{months:.2},{}", yes_no(treated), STAGES[stage], yes_no(died));
    }
    text
}
