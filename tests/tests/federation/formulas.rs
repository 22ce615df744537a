//! Formulas over processes: what a task's formula says is what sites compute, what is reported, and what is predicted.

use dp_pvi_tests::federation::{Federation, complete, outcome};
use dp_pvi_tests::regression::{Likelihood, Records, Schedule, Task};
use nalgebra::{DMatrix, DVector};

const FORMULA: &str = "y ~ x0*x1 + bin(x2, [-0.5, 0.5]) + poly(x3, 2)";

/// The schema of a task.
fn schema(task: &Task) -> String {
    task.schema(4)
}

/// The text of a task without what it predicts.
fn without_formula(task: &str) -> String {
    task.replace("formula = \"y ~ 0 + .\"\n", "")
}

fn with_formula(task: &Task) -> String {
    without_formula(&task.toml()).replacen("[model]\n", &format!("[model]\nformula = \"{FORMULA}\"\n"), 1)
}

/// A record's row, written down a second time: intercept, x0, x1, the two upper bins, P1 and P2 over the range, x0 x1.
fn row(x: &[f64], range: f64) -> Vec<f64> {
    let u = x[3] / range;
    let bin = |holds: bool| f64::from(u8::from(holds));
    vec![1.0, x[0], x[1], bin(x[2] > -0.5 && x[2] <= 0.5), bin(x[2] > 0.5), u, 0.5 * (3.0 * u * u - 1.0), x[0] * x[1]]
}

#[test]
fn a_formula_without_protection_ends_at_the_normal_equations_of_its_rows() {
    let mut records = Records::generated(90, 4, 3);
    for (x, y) in records.x.iter().zip(&mut records.y) {
        *y = 0.2 * *y + x[0] * x[1] - x[3] * x[3];
    }
    let (noise_sd, prior_scale) = (0.4, 2.0);
    let task = Task {
        likelihood: Likelihood::Linear { noise_sd },
        full_covariance: true,
        prior_scale,
        schedule: Schedule::Sequential(3),
        damping: Some(1.0),
        epsilon: None,
        ..Task::default()
    };
    let sites = records.sites(&[30, 40, 20], task.likelihood);
    let federation = Federation::new(&with_formula(&task), &schema(&task), &sites);
    complete(&federation, &sites);
    let document = federation.posterior();
    let coefficients = document["coefficients"].as_array().unwrap();
    let names: Vec<&str> = coefficients.iter().map(|c| c["name"].as_str().unwrap()).collect();
    assert_eq!(
        names,
        [
            "(Intercept)",
            "x0",
            "x1",
            "bin(x2, [-0.5, 0.5])(-0.5,0.5]",
            "bin(x2, [-0.5, 0.5])(0.5,10]",
            "poly(x3, 2)1",
            "poly(x3, 2)2",
            "x0:x1"
        ]
    );
    let x = DMatrix::from_fn(90, 8, |i, j| row(&records.x[i], 10.0)[j]);
    let precision = x.tr_mul(&x) / noise_sd.powi(2) + DMatrix::identity(8, 8) / prior_scale.powi(2);
    let mean = precision.clone().lu().solve(&(x.tr_mul(&DVector::from_vec(records.y.clone())) / noise_sd.powi(2))).unwrap();
    let covariance = precision.try_inverse().unwrap();
    for (j, coefficient) in coefficients.iter().enumerate() {
        assert!((coefficient["mean"].as_f64().unwrap() - mean[j]).abs() < 1e-8, "{coefficient}: {}", mean[j]);
        assert!((coefficient["sd"].as_f64().unwrap() - covariance[(j, j)].sqrt()).abs() < 1e-8, "{coefficient}");
    }

    // Predictions go through the same rows, and so does a contrast.
    let file = federation.home("server").join("results/posterior.json").display().to_string();
    let data = federation.home("site-1").join("rows.csv");
    std::fs::write(&data, "x0,x1,x2,x3\n0.5,-0.25,0.7,1\n").unwrap();
    let predict = &["predict", "--posterior", &file, "--data", data.to_str().unwrap(), "--format", "json"];
    let (code, out, err) = outcome(&mut federation.client_command("site-1", predict));
    assert_eq!(code, 0, "{err}");
    let predicted: serde_json::Value = serde_json::from_str(out.lines().next().unwrap()).unwrap();
    let expected: f64 = row(&[0.5, -0.25, 0.7, 1.0], 10.0).iter().zip(&mean).map(|(x, m)| x * m).sum();
    assert!((predicted["mean"].as_f64().unwrap() - expected).abs() < 1e-7, "{predicted} {expected}");
    let contrast = |of: &[&str], against: &[&str]| {
        let words = [&["contrast", "--posterior", &file, "--format", "json"], of, &["--against"], against].concat();
        outcome(&mut federation.client_command("site-1", &words))
    };
    let (code, out, err) = contrast(&["x0=1", "x1=1"], &["x0=0", "x1=1"]);
    assert_eq!(code, 0, "{err}");
    let effect: serde_json::Value = serde_json::from_str(&out).unwrap();
    assert!((effect["estimate"].as_f64().unwrap() - mean[1] - mean[7]).abs() < 1e-8, "{effect}");
    let (code, _, err) = contrast(&["x0=1"], &["x0=0"]);
    assert!(code == 2 && err.contains("depends on `x1`"), "{code} {err}");
}

#[test]
fn a_private_run_by_a_formula_states_its_bound_and_ends() {
    let records = Records::generated(120, 4, 0);
    let task = Task { schedule: Schedule::Synchronous(2), ..Task::default() };
    let sites = records.sites(&[40, 40, 40], task.likelihood);
    let federation = Federation::new(&with_formula(&task), &schema(&task), &sites);
    let (code, out, err) = outcome(&mut federation.server_command(&["check"]));
    assert_eq!(code, 0, "{err}");
    // Intercept, x0, x1, bin: 1 each; poly: 2; x0 x1: 1.
    assert!(out.contains("y ~ x0 * x1 + bin(x2, [-0.5, 0.5]) + poly(x3, 2)") && out.contains("at most 2.6458 long"), "{out}");
    complete(&federation, &sites);
    assert_eq!(federation.posterior()["coefficients"].as_array().unwrap().len(), 8);
}

/// Without protection an offset leaves the posterior of what is left of the label, and predictions have it again.
#[test]
fn an_offset_is_added_to_predictions_and_has_no_coefficient() {
    let records = Records::generated(60, 2, 1);
    let noise_sd = 0.5;
    let task = Task {
        likelihood: Likelihood::Linear { noise_sd },
        full_covariance: true,
        schedule: Schedule::Sequential(2),
        damping: Some(1.0),
        epsilon: None,
        ..Task::default()
    };
    let sites = records.sites(&[35, 25], task.likelihood);
    let text = without_formula(&task.toml()).replacen("[model]\n", "[model]\nformula = \"y ~ x0 + offset(scale(x1, 1, 2))\"\n", 1);
    let federation = Federation::new(&text, &task.schema(2), &sites);
    complete(&federation, &sites);
    let x = DMatrix::from_fn(60, 2, |i, j| if j == 0 { 1.0 } else { records.x[i][0] });
    let rest = DVector::from_fn(60, |i, _| records.y[i] - (records.x[i][1] - 1.0) / 2.0);
    let precision = x.tr_mul(&x) / noise_sd.powi(2) + DMatrix::identity(2, 2);
    let mean = precision.lu().solve(&(x.tr_mul(&rest) / noise_sd.powi(2))).unwrap();
    let document = federation.posterior();
    for (j, coefficient) in document["coefficients"].as_array().unwrap().iter().enumerate() {
        assert!((coefficient["mean"].as_f64().unwrap() - mean[j]).abs() < 1e-8, "{coefficient}: {}", mean[j]);
    }
    let file = federation.home("server").join("results/posterior.json").display().to_string();
    let data = federation.home("site-1").join("rows.csv");
    std::fs::write(&data, "x0,x1\n0.5,5\n").unwrap();
    let predict = &["predict", "--posterior", &file, "--data", data.to_str().unwrap(), "--format", "json"];
    let (code, out, err) = outcome(&mut federation.client_command("site-1", predict));
    assert_eq!(code, 0, "{err}");
    let predicted: serde_json::Value = serde_json::from_str(out.lines().next().unwrap()).unwrap();
    assert!((predicted["mean"].as_f64().unwrap() - mean[0] - 0.5 * mean[1] - 2.0).abs() < 1e-7, "{predicted}");
}

/// Effects of sites without protection: every round is a step of coordinate ascent over the coefficients and the sites' common scale, which the test does
/// beside it on the normal equations.
#[test]
fn effects_of_sites_and_their_scale_are_those_of_coordinate_ascent() {
    const ROUNDS: u32 = 5;
    let mut records = Records::generated(90, 1, 3);
    let of_site = |i: usize| if i < 30 { 0 } else { 1 + usize::from(i >= 70) };
    for (i, y) in records.y.iter_mut().enumerate() {
        *y = 0.2 * *y + [1.0, -0.7, 0.2][of_site(i)];
    }
    let noise_sd = 0.4;
    let task = Task {
        likelihood: Likelihood::Linear { noise_sd },
        full_covariance: true,
        schedule: Schedule::Synchronous(ROUNDS),
        damping: Some(1.0),
        epsilon: None,
        ..Task::default()
    };
    let sites = records.sites(&[30, 40, 20], task.likelihood);
    let named = "[model]\nformula = \"y ~ x0 + (1 | site)\"\nsites = [\"site-3\", \"site-1\", \"site-2\"]\n";
    let text = without_formula(&task.toml()).replacen("[model]\n", named, 1);
    let federation = Federation::new(&text, &task.schema(1), &sites);
    let (code, out, err) = outcome(&mut federation.server_command(&["check"]));
    assert!(code == 0 && out.contains("scale learned, 0.5 at first"), "{out}{err}");
    complete(&federation, &sites);

    // Intercept, x0, and the sites by their names.
    let x = DMatrix::from_fn(90, 5, |i, j| match j {
        0 => 1.0,
        1 => records.x[i][0],
        _ => f64::from(u8::from(j - 2 == of_site(i))),
    });
    let gram = x.tr_mul(&x) / noise_sd.powi(2);
    let h = x.tr_mul(&DVector::from_vec(records.y.clone())) / noise_sd.powi(2);
    let mut scale = 0.25;
    let at = |scale: f64| {
        let prior = DVector::from_vec(vec![1.0, 1.0, 1.0 / scale, 1.0 / scale, 1.0 / scale]);
        let covariance = (&gram + DMatrix::from_diagonal(&prior)).try_inverse().unwrap();
        (&covariance * &h, covariance)
    };
    for _ in 1..ROUNDS {
        let (mean, covariance) = at(scale);
        let square: f64 = (2..5).map(|j| mean[j] * mean[j] + covariance[(j, j)]).sum();
        scale = (square + 2.0 * 0.25) / (3.0 + 2.0);
    }
    let (mean, covariance) = at(scale);
    let document = federation.posterior();
    let coefficients = document["coefficients"].as_array().unwrap();
    let names: Vec<&str> = coefficients.iter().map(|c| c["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["(Intercept)", "x0", "b[(Intercept) site:site-1]", "b[(Intercept) site:site-2]", "b[(Intercept) site:site-3]"]);
    for (j, coefficient) in coefficients.iter().enumerate() {
        assert!((coefficient["mean"].as_f64().unwrap() - mean[j]).abs() < 1e-8, "{coefficient}: {}", mean[j]);
        assert!((coefficient["sd"].as_f64().unwrap() - covariance[(j, j)].sqrt()).abs() < 1e-8, "{coefficient}");
    }
    let scales = &document["scales"][0];
    let square: f64 = (2..5).map(|j| mean[j] * mean[j] + covariance[(j, j)]).sum();
    assert!((scales["estimate"].as_f64().unwrap() - ((square + 0.5) / 5.0).sqrt()).abs() < 1e-8, "{scales}");
    assert_eq!(scales["members"].as_array().unwrap().len(), 3);
    assert!(scales["interval_90"]["lower"].as_f64().unwrap() < scales["estimate"].as_f64().unwrap(), "{scales}");
}

/// A private run with effects of sites, smooth curves and priors of terms ends, and says what it learned.
#[test]
fn a_private_run_learns_the_scale_of_a_curve_and_of_the_sites() {
    let records = Records::generated(240, 2, 0);
    let task = Task { schedule: Schedule::Synchronous(4), full_covariance: true, ..Task::default() };
    let sites = records.sites(&[80, 80, 80], task.likelihood);
    let named = "[model]\nformula = \"y ~ x0 + s(x1, k = 5) + (1 | site)\"\nsites = [\"site-1\", \"site-2\", \"site-3\"]\n";
    let priors = "[[model.priors]]\nterm = \"(1 | site)\"\nrate = 0.1\n[pvi]\n";
    let text = without_formula(&task.toml()).replacen("[model]\n", named, 1).replacen("[pvi]\n", priors, 1);
    let text = text.replace("update = \"dp-optimisation\"", "update = \"natural-gradient\"");
    let federation = Federation::new(&text, &task.schema(2), &sites);
    complete(&federation, &sites);
    let document = federation.posterior();
    let scales = document["scales"].as_array().unwrap();
    assert_eq!(scales.iter().map(|scale| scale["term"].as_str().unwrap()).collect::<Vec<_>>(), ["s(x1, k = 5)", "(1 | site)"]);
    assert!(scales.iter().all(|scale| scale["estimate"].as_f64().unwrap() > 0.0), "{scales:?}");
    assert!(document["agreement"].to_string().contains("the formula has effects of sites"), "{}", document["agreement"]);
    let report = std::fs::read_to_string(federation.home("server").join("results/report.html")).unwrap();
    assert!(report.contains("Curves, and how groups differ"), "the report draws them");
}

/// Steps inside sites learn scales, too: sites send none, the server keeps them.
#[test]
fn private_steps_learn_the_scales_of_curves() {
    let records = Records::generated(240, 2, 0);
    let task = Task { schedule: Schedule::Synchronous(3), ..Task::default() };
    let sites = records.sites(&[80, 80, 80], task.likelihood);
    let text = without_formula(&task.toml()).replacen("[model]\n", "[model]\nformula = \"y ~ s(x0, k = 5) + s(x1)\"\n", 1);
    assert!(text.contains("update = \"dp-optimisation\""), "{text}");
    let federation = Federation::new(&text, &task.schema(2), &sites);
    complete(&federation, &sites);
    let document = federation.posterior();
    let scales = document["scales"].as_array().unwrap();
    assert_eq!(scales.iter().map(|scale| scale["term"].as_str().unwrap()).collect::<Vec<_>>(), ["s(x0, k = 5)", "s(x1)"]);
    assert!(scales.iter().all(|scale| scale["estimate"].as_f64().unwrap() > 0.0), "{scales:?}");
}
