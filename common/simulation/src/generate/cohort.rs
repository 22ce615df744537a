//! A generated cohort and its files.

use serde::Serialize;
use std::fmt::Write as _;

/// Hospitals, a public evaluation set, the schema of both, and what is true.
#[derive(Debug, Clone, PartialEq)]
pub struct Cohort {
    /// Text of `schema.toml`.
    pub schema: String,
    /// The hospitals in order.
    pub hospitals: Vec<Hospital>,
    /// Stays from all hospitals' distributions, in no hospital's file.
    pub evaluation: Vec<Stay>,
    /// What is true.
    pub truth: Truth,
}

/// The records of one hospital.
#[derive(Debug, Clone, PartialEq)]
pub struct Hospital {
    /// `hospital-1`, `hospital-2`, …; the file is named after it.
    pub name: String,
    /// Its records.
    pub stays: Vec<Stay>,
}

/// One record.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Stay {
    /// Years.
    pub age: u32,
    /// Sex.
    pub male: bool,
    /// Smoking habit, if asked.
    pub smoker: Option<bool>,
    /// Millimetres of mercury.
    pub systolic_pressure: u32,
    /// Tenths of a millimole per litre, if measured.
    pub cholesterol_tenths: Option<u32>,
    /// Known diabetes.
    pub diabetes: bool,
    /// Stays of the last five years.
    pub prior_stays: u32,
    /// Where the patient lay.
    pub ward: Ward,
    /// The outcome.
    pub cardiac_event: bool,
}

/// Wards, in the order of the schema.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ward {
    /// Heart.
    Cardiology,
    /// Operations.
    Surgery,
    /// Internal medicine.
    Medicine,
    /// The old.
    Geriatrics,
}

/// What the generator knows.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Truth {
    /// Seed of the cohort.
    pub seed: u64,
    /// θ, in the order and with the names of the schema.
    pub coefficients: Vec<Coefficient>,
    /// The hospitals.
    pub hospitals: Vec<HospitalSummary>,
    /// Records of the evaluation file.
    pub evaluation_rows: u64,
    /// Mean log P(outcome) of the evaluation file under θ: no fit can be expected to do better.
    pub evaluation_log_likelihood: f64,
    /// Share of the evaluation file that the likelier outcome under θ gets right.
    pub evaluation_accuracy: f64,
}

/// One true coefficient.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Coefficient {
    /// Name in the schema's order.
    pub name: String,
    /// Value.
    pub value: f64,
}

/// Size of one hospital.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct HospitalSummary {
    /// Its name.
    pub name: String,
    /// Its records.
    pub rows: u64,
    /// Its records with an event.
    pub events: u64,
}

impl Cohort {
    /// The files: `schema.toml`, `hospital-1.csv` …, `evaluation.csv`, `truth.json`, each with its content.
    #[must_use]
    pub fn files(&self) -> Vec<(String, String)> {
        let mut files = vec![("schema.toml".to_owned(), self.schema.clone())];
        files.extend(self.hospitals.iter().map(|hospital| (format!("{}.csv", hospital.name), csv(&hospital.stays))));
        files.push(("evaluation.csv".to_owned(), csv(&self.evaluation)));
        // Names and finite numbers: serialisation into memory cannot fail.
        let truth = serde_json::to_string_pretty(&self.truth).expect("the truth serialises");
        files.push(("truth.json".to_owned(), truth + "\n"));
        files
    }
}

impl Hospital {
    /// Its size.
    pub(super) fn summary(&self) -> HospitalSummary {
        HospitalSummary {
            name: self.name.clone(),
            rows: self.stays.len() as u64,
            events: self.stays.iter().filter(|stay| stay.cardiac_event).count() as u64,
        }
    }
}

impl Ward {
    /// All wards, in the order of the schema.
    pub const ALL: [Self; 4] = [Self::Cardiology, Self::Surgery, Self::Medicine, Self::Geriatrics];

    /// Name in the files.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Cardiology => "cardiology",
            Self::Surgery => "surgery",
            Self::Medicine => "medicine",
            Self::Geriatrics => "geriatrics",
        }
    }
}

fn csv(stays: &[Stay]) -> String {
    let mut text = "stay,age,male,smoker,systolic_pressure,cholesterol,diabetes,prior_stays,ward,cardiac_event\n".to_owned();
    for (number, stay) in stays.iter().enumerate() {
        let cholesterol = stay.cholesterol_tenths.map_or(String::new(), |tenths| format!("{}.{}", tenths / 10, tenths % 10));
        // Writing to a string cannot fail.
        _ = writeln!(
            text,
            "{},{},{},{},{},{cholesterol},{},{},{},{}",
            number + 1,
            stay.age,
            yes_no(stay.male),
            stay.smoker.map_or("", yes_no),
            stay.systolic_pressure,
            yes_no(stay.diabetes),
            stay.prior_stays,
            stay.ward.name(),
            yes_no(stay.cardiac_event),
        );
    }
    text
}

pub(super) fn yes_no(truth: bool) -> &'static str {
    if truth { "yes" } else { "no" }
}
