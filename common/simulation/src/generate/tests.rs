#![allow(clippy::unwrap_used)]
use super::*;
use dp_pvi_data::{inspect, load, load_public};
use dp_pvi_posterior::schema::Schema;
use dp_pvi_privacy::UnitTable;

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
    cohort.write(directory.path()).unwrap();
    // Once more: nothing changes, nothing is refused.
    cohort.write(directory.path()).unwrap();
    let schema = Schema::parse(&std::fs::read_to_string(directory.path().join("schema.toml")).unwrap()).unwrap();
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
    assert!(matches!(cohort.write(directory.path()), Err(WriteError::InTheWay(path)) if path.ends_with("hospital-2.csv")));
}

/// The stated log-likelihood comes from the generator's own feature rows; here it is computed from the rows that a loader makes.
#[test]
fn the_stated_truth_is_the_truth_of_the_loaded_rows() {
    let cohort = hospitals(small()).unwrap();
    let directory = tempfile::tempdir().unwrap();
    cohort.write(directory.path()).unwrap();
    let schema = Schema::parse(&cohort.schema).unwrap();
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
    cohort.write(directory.path()).unwrap();
    let schema = Schema::parse(&cohort.schema).unwrap();
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
