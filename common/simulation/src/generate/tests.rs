#![allow(clippy::unwrap_used)]
use super::*;
use dp_pvi_data::{inspect, load, load_public};
use dp_pvi_privacy::UnitTable;
use dp_pvi_schema::Schema;

fn small() -> Options {
    Options { rows: 1000, evaluation_rows: 500, ..Options::default() }
}

#[test]
fn the_same_options_give_the_same_bytes_and_another_seed_other_ones() {
    let files = hospitals(small()).unwrap().files();
    assert_eq!(files, hospitals(small()).unwrap().files());
    let other = hospitals(Options { seed: 2, ..small() }).unwrap().files();
    assert!(files.iter().zip(&other).filter(|(file, _)| file.0.ends_with("csv")).all(|(file, other)| file != other));
    assert_eq!(
        files.iter().map(|(name, _)| name.as_str()).collect::<Vec<_>>(),
        ["schema.toml", "hospital-1.csv", "hospital-2.csv", "hospital-3.csv", "evaluation.csv", "truth.json"]
    );
}

#[test]
fn a_hospital_does_not_depend_on_how_many_there_are() {
    let three = hospitals(small()).unwrap();
    let seven = hospitals(Options { hospitals: 7, ..small() }).unwrap();
    assert_eq!(three.hospitals[..], seven.hospitals[..3]);
    assert_ne!(seven.hospitals[0].stays[..100], seven.hospitals[3].stays[..100]);
}

#[test]
fn too_few_of_anything_is_refused() {
    for options in [Options { hospitals: 0, ..small() }, Options { rows: 9, ..small() }, Options { evaluation_rows: 0, ..small() }] {
        assert!(matches!(hospitals(options), Err(GenerateError::Options)));
    }
}

#[test]
fn files_load_through_their_schema_without_a_rejected_cell() {
    let cohort = hospitals(small()).unwrap();
    let directory = tempfile::tempdir().unwrap();
    write(&cohort.files(), directory.path()).unwrap();
    // Once more: nothing changes, nothing is refused.
    write(&cohort.files(), directory.path()).unwrap();
    let schema = Schema::asking("cardiac_event ~ .", &std::fs::read_to_string(directory.path().join("schema.toml")).unwrap()).unwrap();
    assert_eq!((schema.dimension(), schema.max_nonzeros()), (11, 9));
    for (hospital, rows) in cohort.hospitals.iter().zip([1400, 1000, 600]) {
        let files = [directory.path().join(format!("{}.csv", hospital.name))];
        let loaded = load(&schema, &files).unwrap();
        assert_eq!((loaded.counts.units, loaded.counts.records, loaded.counts.dropped), (rows, rows, 0));
        let seen = inspect(&schema, &files).unwrap();
        assert_eq!(seen.rejected, 0);
        assert!(seen.scaled_share() < 0.01, "{}", seen.scaled_share());
    }
    std::fs::write(directory.path().join("hospital-2.csv"), "other").unwrap();
    assert!(matches!(write(&cohort.files(), directory.path()), Err(WriteError::InTheWay(path)) if path.ends_with("hospital-2.csv")));
}

/// Row groups as they are drawn: the same units, numbers and truth as the text.
#[test]
fn columns_hold_what_the_text_holds() {
    let options = Options { rows: 100_000, hospitals: 2, ..small() };
    let (text, columns) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let cohort = hospitals(options).unwrap();
    write(&cohort.files(), text.path()).unwrap();
    assert_eq!(write_columns(options, columns.path()).unwrap(), cohort.truth);
    let schema = Schema::asking("cardiac_event ~ .", &cohort.schema).unwrap();
    for name in ["hospital-1", "hospital-2"] {
        let of = |folder: &std::path::Path, ending: &str| {
            dp_pvi_data::load_for_run(&schema, &[folder.join(format!("{name}.{ending}"))], &[3; 32]).unwrap().fingerprint
        };
        assert_eq!(of(text.path(), "csv"), of(columns.path(), "parquet"), "{name}");
    }
    for same in ["schema.toml", "evaluation.csv", "truth.json"] {
        assert_eq!(std::fs::read(text.path().join(same)).unwrap(), std::fs::read(columns.path().join(same)).unwrap());
    }
    assert!(matches!(write_columns(options, columns.path()), Err(GenerateError::Write(WriteError::InTheWay(_)))));
}

/// The stated log-likelihood comes from the generator's own feature rows; here it is computed from the rows that a loader makes.
#[test]
fn the_stated_truth_is_the_truth_of_the_loaded_rows() {
    let cohort = hospitals(small()).unwrap();
    let directory = tempfile::tempdir().unwrap();
    write(&cohort.files(), directory.path()).unwrap();
    let schema = Schema::asking("cardiac_event ~ .", &cohort.schema).unwrap();
    let table = load_public(&schema, &[directory.path().join("evaluation.csv")], None).unwrap().into_inner();
    let (mut log_likelihood, mut correct) = (0.0, 0.0);
    for record in table.records() {
        let logit: f64 = record.entries().map(|(index, value)| value * cohort.truth.coefficients[index].value).sum();
        let signed = logit * (2.0 * record.target - 1.0);
        log_likelihood -= (-signed).exp().ln_1p();
        correct += if signed > 0.0 { 1.0 } else { 0.0 };
    }
    assert_eq!(table.len(), 500);
    assert!((log_likelihood / 500.0 - cohort.truth.evaluation_log_likelihood).abs() < 1e-10);
    assert!((correct / 500.0 - cohort.truth.evaluation_accuracy).abs() < 1e-12);
}

/// At the truth the score Σ x(y − σ(xᵀθ)) has mean 0 and variance Σ x²σ(1−σ): every coordinate lies within 4.5 standard deviations
/// (false alarm below 1e-4 over 11 coordinates and 3 hospitals), in every hospital alone.
#[test]
fn outcomes_follow_the_stated_coefficients_in_every_hospital() {
    let cohort = hospitals(Options { rows: 6000, ..Options::default() }).unwrap();
    let directory = tempfile::tempdir().unwrap();
    write(&cohort.files(), directory.path()).unwrap();
    let schema = Schema::asking("cardiac_event ~ .", &cohort.schema).unwrap();
    let theta: Vec<f64> = cohort.truth.coefficients.iter().map(|coefficient| coefficient.value).collect();
    for hospital in &cohort.hospitals {
        let path = directory.path().join(format!("{}.csv", hospital.name));
        let table = load_public(&schema, &[path], None).unwrap().into_inner();
        let (mut score, mut information) = (vec![0.0; theta.len()], vec![0.0; theta.len()]);
        for record in table.records() {
            let logit: f64 = record.entries().map(|(index, value)| value * theta[index]).sum();
            let probability = 1.0 / (1.0 + (-logit).exp());
            for (index, value) in record.entries() {
                score[index] += value * (record.target - probability);
                information[index] += value * value * probability * (1.0 - probability);
            }
        }
        for index in 0..theta.len() {
            let deviation = score[index] / information[index].sqrt();
            assert!(deviation.abs() < 4.5, "{} {}: {deviation}", hospital.name, cohort.truth.coefficients[index].name);
        }
        // The test can fail: a coefficient that is wrong by 0.35 moves the score by 0.35 × information, which most would show.
        let wrong = theta.iter().zip(&information).filter(|(_, information)| 0.35 * information.sqrt() > 4.5).count();
        assert!(wrong >= 6, "{}: the data can tell only {wrong} coefficients from wrong ones", hospital.name);
    }
}

#[test]
fn hospitals_differ_in_size_and_case_mix() {
    let cohort = hospitals(Options::default()).unwrap();
    let mean_age = |number: usize| {
        let stays = &cohort.hospitals[number].stays;
        f64::from(stays.iter().map(|stay| stay.age).sum::<u32>()) / stays.len() as f64
    };
    assert_eq!(cohort.hospitals.iter().map(|hospital| hospital.stays.len()).collect::<Vec<_>>(), [5600, 4000, 2400]);
    assert!(mean_age(0) + 5.0 < mean_age(1) && mean_age(1) + 5.0 < mean_age(2));
    for hospital in &cohort.truth.hospitals {
        let rate = hospital.events as f64 / hospital.rows as f64;
        assert!((0.1..0.6).contains(&rate), "{}: {rate}", hospital.name);
    }
    assert!(cohort.truth.evaluation_log_likelihood > -0.6, "{:?}", cohort.truth);
}

#[test]
fn a_survival_study_has_the_same_bytes_for_the_same_options_and_loads_through_its_schema() {
    let study = survival(small()).unwrap();
    let files = study.files();
    assert_eq!(files, survival(small()).unwrap().files());
    assert_ne!(files[1], survival(Options { seed: 2, ..small() }).unwrap().files()[1]);
    assert_eq!(survival(Options { hospitals: 5, ..small() }).unwrap().hospitals[..3], study.hospitals);
    assert!(matches!(survival(Options { hospitals: 0, ..small() }), Err(GenerateError::Options)));

    let directory = tempfile::tempdir().unwrap();
    write(&files, directory.path()).unwrap();
    let formula = "Surv(months, died) ~ treated + age + stage";
    let schema = Schema::parse(&study.schema).unwrap().with_formula(formula, &[]).unwrap();
    let names: Vec<&str> = study.truth.coefficients.iter().map(|coefficient| coefficient.name.as_str()).collect();
    // Before them stands the intercept, which the model has as its baseline.
    assert!(schema.coefficient_names().iter().map(String::as_str).filter(|name| *name != "(Intercept)").eq(names));
    for (hospital, summary) in study.hospitals.iter().zip(&study.truth.hospitals) {
        let files = [directory.path().join(format!("{}.csv", summary.name))];
        assert_eq!(inspect(&schema, &files).unwrap().rejected, 0);
        let table = load_public(&schema, &files, None).unwrap().into_inner();
        let loaded: Vec<(f64, bool)> = table.records().map(|record| (record.target, record.extra.event)).collect();
        assert_eq!(loaded, hospital.iter().map(|patient| (patient.months, patient.died)).collect::<Vec<_>>());
        assert_eq!((summary.rows, summary.events), (1000, loaded.iter().filter(|(_, died)| *died).count() as u64));
    }
}

/// At the truth Σ x(d − H(t)), with H the cumulative hazard, has mean 0 and variance E Σ x²H(t): every hazard ratio, and every hazard of the baseline, lies within 4.5
/// standard deviations of what is stated (false alarm below 1e-4 over the seven).
#[test]
fn deaths_follow_the_stated_hazards_and_their_ratios() {
    let study = survival(Options { hospitals: 1, rows: 40_000, ..Options::default() }).unwrap();
    let ratios: Vec<f64> = study.truth.coefficients.iter().map(|coefficient| coefficient.value).collect();
    let (mut score, mut information) = ([0.0; 7], [0.0; 7]);
    for patient in &study.hospitals[0] {
        let stage = |number| f64::from(u8::from(patient.stage == number));
        let x = [f64::from(u8::from(patient.treated)), (f64::from(patient.age) - 60.0) / 15.0, stage(1), stage(2)];
        let ratio = x.iter().zip(&ratios).map(|(x, ratio)| x * ratio).sum::<f64>().exp();
        for (number, interval) in study.truth.hazards.iter().enumerate() {
            let watched = (patient.months.min(interval.to) - interval.from).max(0.0);
            let died = patient.died && interval.from < patient.months && patient.months <= interval.to;
            let expected = watched * interval.hazard * ratio;
            let surprise = f64::from(u8::from(died)) - expected;
            for (index, x) in x.into_iter().enumerate() {
                score[index] += x * surprise;
                information[index] += x * x * expected;
            }
            score[4 + number] += surprise;
            information[4 + number] += expected;
        }
    }
    for (index, (score, information)) in score.iter().zip(&information).enumerate() {
        assert!((score / information.sqrt()).abs() < 4.5, "{index}: {score} {information}");
        // One step from the truth: no estimate is further than 0.1 away, and a stated one that is wrong by 0.1 would show.
        assert!((score / information).abs() < 0.1 && 0.1 * information.sqrt() > 4.5, "{index}: {score} {information}");
    }
    assert!((0.6..0.7).contains(&study.truth.evaluation_concordance.unwrap()));
}
