//! The rows of `tests/vectors/accounting.json` (made by two independent engines) that the engines here answer.

use std::path::{Path, PathBuf};
use std::sync::LazyLock;

use serde_json::Value;

use super::gdp::Gdp;
use super::rdp;
use super::zcdp::Zcdp;
use super::*;

/// The rows of the reference table: of the folder that `DP_PVI_SHARED` names (by default `../shared` beside the workspace, where it is there),
/// else of the tree.
pub(crate) static ROWS: LazyLock<Vec<Value>> = LazyLock::new(|| {
    let workspace = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."));
    let shared = std::env::var_os("DP_PVI_SHARED").map_or_else(|| workspace.join("../shared"), PathBuf::from);
    let places = [shared.join("reference/accounting.json"), workspace.join("tests/vectors/accounting.json")];
    let text = places.iter().find_map(|path| std::fs::read_to_string(path).ok()).expect("the table is in the tree");
    serde_json::from_str::<Value>(&text).unwrap()["rows"].as_array().unwrap().clone()
});

fn number(row: &Value, key: &str) -> f64 {
    row[key].as_f64().unwrap_or_else(|| panic!("{} has no number {key}", row["id"]))
}

fn rows(mechanism: &str, query: &str) -> impl Iterator<Item = &'static Value> {
    let chosen: Vec<_> = ROWS
        .iter()
        .filter(|row| row["mechanism"] == mechanism && row["query"] == query && row["sampling"] != "without_replacement")
        .collect();
    assert!(!chosen.is_empty(), "no rows {mechanism} {query}");
    chosen.into_iter()
}

fn relation(row: &Value) -> Relation {
    match row["relation"].as_str().unwrap() {
        "add_remove" => Relation::AddRemove,
        "substitute" => Relation::ReplaceOne,
        other => panic!("relation {other}"),
    }
}

fn delta(row: &Value) -> Delta {
    Delta::new(number(row, "delta")).unwrap()
}

fn gaussian(sigma: f64) -> DpEvent {
    DpEvent::Gaussian { noise: NoiseMultiplier::new(sigma).unwrap(), terms: Terms::Units }
}

/// Continuous noise, as the rows have it; q as the nearest representable rate.
fn event(sigma: f64, q: f64, count: f64) -> DpEvent {
    let plain = gaussian(sigma);
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "whole numbers of steps")]
    let count = count as u64;
    if q >= 1.0 { plain } else { DpEvent::PoissonSampled { rate: SamplingRate::nearest(q).unwrap(), event: Box::new(plain) } }
        .repeated(count)
}

/// q is rounded to a multiple of 2⁻³²; to first order ε moves by the same relative amount, doubled for safety.
fn rate_slack(q: f64) -> f64 {
    2.0 * (SamplingRate::nearest(q).unwrap().get() / q - 1.0).abs()
}

fn close(actual: f64, expected: f64, relative: f64, what: &Value) {
    assert!((actual - expected).abs() <= relative * expected, "{what}: {actual} is not {expected}");
}

#[test]
fn plain_gaussian_rows_to_1e_12() {
    for row in rows("gaussian", "eps") {
        let event = event(number(row, "sigma"), 1.0, number(row, "T"));
        let loss = epsilon_upper([&event], relation(row), delta(row)).unwrap();
        assert_eq!((loss.method, loss.numerical_margin), (Method::GaussianDp, false));
        let expected = number(row, "eps");
        close(loss.epsilon.get(), expected, 1e-12, &row["id"]);
        let gdp = Gdp::of_ratio(number(row, "mu"));
        for point in row["delta_points"].as_array().unwrap() {
            let (epsilon, delta) = (point[0].as_f64().unwrap(), point[1].as_f64().unwrap());
            // The stated μ is rounded: δ moves by (ε/μ)² times its relative error.
            let slack = 1e-12 + (epsilon / gdp.mu()).powi(2) * 4.0 * f64::EPSILON;
            close(gdp.delta(Epsilon::new(epsilon).unwrap()), delta, slack, &row["id"]);
        }
    }
}

#[test]
fn advantage_of_the_gaussian() {
    for row in rows("gaussian", "advantage") {
        let ratio = relation(row).sensitivity_factor(Terms::Units) / number(row, "sigma");
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "whole numbers of steps")]
        let gdp = Gdp::of_ratio(ratio).repeated(number(row, "T") as u64);
        close(gdp.delta(Epsilon::ZERO), number(row, "advantage"), 1e-12, &row["id"]);
    }
}

#[test]
fn rdp_rows_of_poisson_sampling() {
    for row in rows("rdp_subsampled_gaussian", "rdp") {
        let (sigma, q) = (number(row, "sigma"), number(row, "q"));
        for (order, expected) in row["orders"].as_array().unwrap().iter().zip(row["rdp"].as_array().unwrap()) {
            let (order, expected) = (order.as_f64().unwrap(), expected.as_f64().unwrap());
            let actual = rdp::add_remove(order, 1.0 / sigma, q);
            if order.fract() == 0.0 {
                close(actual, expected, number(row, "tol_rdp_rel"), &row["id"]);
            }
            // Between integers a chord: never below.
            assert!(actual >= expected * (1.0 - number(row, "tol_rdp_rel")), "{}: order {order}", row["id"]);
        }
    }
}

/// Every ε is an upper bound on the exact one; where the noise is not below the clipping norm it is also as tight as another
/// Rényi accountant that has fractional orders (3 %, from chords between integers).
#[test]
fn upper_bounds_cover_every_poisson_row() {
    for row in rows("subsampled_gaussian", "eps") {
        let (sigma, q) = (number(row, "sigma"), number(row, "q"));
        let loss = epsilon_upper([&event(sigma, q, number(row, "T"))], relation(row), delta(row)).unwrap();
        let (upper, exact) = (loss.epsilon.get(), number(row, "eps"));
        assert!(upper * (1.0 + rate_slack(q)) >= exact - number(row, "tol_eps"), "{}: {upper} < {exact}", row["id"]);
        match row["crosscheck"]["rdp_google"].as_f64() {
            Some(other) if sigma >= 1.0 => assert!(upper <= 1.035 * other, "{}: {upper} {other}", row["id"]),
            _ => {}
        }
    }
    for row in rows("subsampled_gaussian_heterogeneous", "eps") {
        let phases = row["phases"].as_array().unwrap();
        let events: Vec<_> = phases.iter().map(|p| event(number(p, "sigma"), number(p, "q"), number(p, "T"))).collect();
        let slack = phases.iter().map(|p| rate_slack(number(p, "q"))).fold(0.0, f64::max);
        let loss = epsilon_upper(&events, relation(row), delta(row)).unwrap();
        let (upper, exact) = (loss.epsilon.get(), number(row, "eps"));
        assert!(upper * (1.0 + slack) >= exact - number(row, "tol_eps"), "{}: {upper} < {exact}", row["id"]);
    }
}

#[test]
fn zcdp_conversion_rows() {
    for row in rows("zcdp_to_approx_dp", "zcdp_to_eps") {
        let rho = number(row, "rho");
        let upper = Zcdp::of_ratio((2.0 * rho).sqrt()).epsilon_upper(delta(row)).get();
        let expected = number(row, "eps");
        assert!(
            (upper - expected).abs() <= number(row, "tol_eps") && upper >= number(row, "eps_gaussian_exact"),
            "{}: {upper} {expected}",
            row["id"]
        );
    }
}

#[test]
fn discrete_gaussian_rows_are_covered() {
    for row in rows("discrete_gaussian", "eps") {
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "whole numbers")]
        let (scale, shift, count) = (number(row, "sigma") as u64, number(row, "sensitivity") as u64, number(row, "T") as u64);
        let noise = DiscreteGaussian {
            exponent: 0,
            scale,
            bound_squared: u128::from(shift * shift),
            excess: 0,
            dimension: 1,
            terms: Terms::Units,
            path: LatticePath::Term,
        };
        let loss = epsilon_upper([&DpEvent::DiscreteGaussian(noise).repeated(count)], relation(row), delta(row)).unwrap();
        assert_eq!((loss.method, loss.numerical_margin), (Method::Zcdp, false));
        assert!(loss.epsilon.get() >= number(row, "eps") - number(row, "tol_eps"), "{}", row["id"]);
    }
}

#[test]
fn calibration_rows() {
    for row in rows("gaussian", "calibrate_sigma").chain(rows("subsampled_gaussian", "calibrate_sigma")) {
        let target = Epsilon::new(number(row, "eps")).unwrap();
        let (q, count) = (number(row, "q"), number(row, "T"));
        let make = |z: NoiseMultiplier| event(z.get(), q, count);
        let z = calibrate(make, relation(row), target, delta(row)).unwrap();
        assert!(epsilon_upper([&make(z)], relation(row), delta(row)).unwrap().epsilon <= target);
        let less = NoiseMultiplier::new(z.get() * (1.0 - 1e-4)).unwrap();
        assert!(epsilon_upper([&make(less)], relation(row), delta(row)).unwrap().epsilon > target, "{}: not the smallest", row["id"]);
        let exact = number(row, "sigma");
        assert!(z.get() * (1.0 + rate_slack(q)) >= exact * (1.0 - number(row, "tol_sigma_rel")), "{}: {z:?} < {exact}", row["id"]);
        if q >= 1.0 {
            assert!(z.get() <= exact * (1.0 + 1e-4), "{}: {z:?} {exact}", row["id"]);
        }
    }
}
