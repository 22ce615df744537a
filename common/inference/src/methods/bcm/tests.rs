use dp_pvi_math::expfam::any::{Family, Gaussian};
use dp_pvi_math::expfam::gaussian::full::unsvec;
use dp_pvi_math::floor::PrecisionFloor;
use dp_pvi_models::{linear_regression, logistic_regression};
use dp_pvi_posterior::methods::PviRule;
use dp_pvi_posterior::task::ModelSpec;
use serde_json::Value;

use crate::models;
use crate::testing::{close, matrix, rows, table, vector, vectors};

/// λ0 + Σ (λ^(m) − w_m λ0) with exact fits, w_m = 1 or n_m/n.
fn committee(data: &Value, model: &ModelSpec, family: Family, variance: f64, split: bool) -> Vec<f64> {
    let (x, y) = (matrix(&data["X"]), vector(&data["y"]));
    let prior = family.isotropic(0.0, variance);
    let model = models::from_spec(model).unwrap();
    let mut sum = vec![0.0; family.len()];
    let mut start = 0;
    for size in vector(&data["client_sizes"]) {
        let range = start..start + size as usize;
        start = range.end;
        let share = if split { size / y.len() as f64 } else { 1.0 };
        let own: Vec<f64> = prior.iter().map(|value| share * value).collect();
        let own = Gaussian::from_natural(family, own).unwrap();
        let data = table(family.dimension(), &rows(&x[range.clone()], &y[range]));
        let fit = model.local_optimum().unwrap().local_optimum(&data, &own, &own).unwrap();
        sum.iter_mut().zip(fit.natural()).zip(own.natural()).for_each(|((s, fit), own)| *s += fit - own);
    }
    PviRule::from_parts(family, prior.clone(), PrecisionFloor::LogConcave, vec![1.0]).apply(&prior, 0, &sum).state
}

/// `bcm`: the conjugate committee is exact, the logistic one is the golden one.
#[test]
fn committees_are_the_golden_ones() {
    let (golden, linreg, logreg) = (vectors("bcm"), vectors("linreg"), vectors("logreg"));
    for (key, split) in [("same", false), ("split", true)] {
        let full = Family::FullGaussian { dimension: 3 };
        let noise_sd = linreg["noise_var"].as_f64().unwrap().sqrt();
        let variance = 1.0 / vector(&linreg["prior_prec"])[0];
        let lambda = committee(&linreg, &ModelSpec::from(linear_regression::LinearRegression { noise_sd }), full, variance, split);
        close(&lambda[..3], &vector(&golden["linreg_full"][key]["h"]), 1e-10);
        close(unsvec(&lambda[3..], 3).as_slice(), &matrix(&golden["linreg_full"][key]["prec"]).concat(), 1e-10);

        let diagonal = Family::DiagonalGaussian { dimension: 3 };
        let lambda = committee(&logreg, &ModelSpec::from(logistic_regression::LogisticRegression {}), diagonal, 1.0, split);
        close(&lambda[..3], &vector(&golden["logreg_mean_field"][key]["h"]), 1e-8);
        close(&lambda[3..], &vector(&golden["logreg_mean_field"][key]["prec"]), 1e-8);
    }
}
