//! Covariance and correlation as plain matrices, in the order of the coefficients.

use dp_pvi_math::expfam::any::Standard;

/// Most coefficients whose covariance is written out.
const LARGEST: usize = 256;

/// The covariance as it is written, where every coordinate is a coefficient.
pub(super) fn covariance(posterior: &Standard, coefficients: usize) -> Option<Vec<Vec<f64>>> {
    match posterior {
        Standard::Full(full) if full.mean().len() == coefficients && coefficients <= LARGEST => {
            let matrix = full.covariance();
            Some((0..matrix.nrows()).map(|i| matrix.row(i).iter().copied().collect()).collect())
        }
        Standard::Full(_) | Standard::Diagonal(_) => None,
    }
}

/// Largest difference of two derivations of an entry, in parts of the standard deviations.
pub(super) const ROUNDING: f64 = 1e-9;

/// The same of a correlation, whose entries are rounded to six decimals.
pub(super) const SIX_DECIMALS: f64 = 1.5e-6;

/// The correlation of a covariance, to six decimals.
pub(super) fn correlation(covariance: &[Vec<f64>]) -> Vec<Vec<f64>> {
    let sds: Vec<f64> = covariance.iter().enumerate().filter_map(|(i, row)| row.get(i)).map(|variance| variance.sqrt()).collect();
    let row = |(row, sd): (&Vec<f64>, &f64)| row.iter().zip(&sds).map(|(c, other)| rounded(c / (sd * other))).collect();
    covariance.iter().zip(&sds).map(row).collect()
}

/// To six decimals, without a negative 0.
fn rounded(correlation: f64) -> f64 {
    (1e6 * correlation).round() / 1e6 + 0.0
}

/// Whether two covariances, or two correlations, are the same up to the rounding of different machines.
pub(super) fn agree(stated: &Option<Vec<Vec<f64>>>, expected: &Option<Vec<Vec<f64>>>, tolerance: f64) -> bool {
    let (stated, expected) = match (stated, expected) {
        (Some(stated), Some(expected)) => (stated, expected),
        (None, None) => return true,
        _ => return false,
    };
    let variances: Vec<f64> = expected.iter().enumerate().filter_map(|(i, row)| row.get(i)).copied().collect();
    let close = |((a, b), (variance, other)): ((&f64, &f64), (&f64, &f64))| (a - b).abs() <= tolerance * (variance * other).sqrt();
    let row = |((stated, expected), variance): ((&Vec<f64>, &Vec<f64>), &f64)| {
        stated.len() == expected.len() && stated.iter().zip(expected).zip(variances.iter().map(|other| (variance, other))).all(close)
    };
    stated.len() == expected.len() && stated.iter().zip(expected).zip(&variances).all(row)
}
