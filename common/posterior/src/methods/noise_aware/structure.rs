//! The curvature H = Σ c xxᵀ from everything that is known of it.
//!
//! Every entry of H̃ was released with noise that is the same for all entries, while H itself has entries of very different sizes: a level that few records have adds next to
//! nothing, and the noise of its entries would act on all coefficients. So every entry is combined, by precisions, from
//!
//! * what was released, H̃ᵢⱼ. An indicator's own entry is that beside the intercept, too: Σ c x_j² = Σ c x_j.
//! * a Gram matrix with the weights c put in ([`Correlations::at`]), which has noise and is wrong by [`WEIGHT`] of an entry: about c, and because terms of H may have been shortened.
//!   Its unit is that of the intercept's entry, with its doubt.
//! * the schema. No entry on the diagonal is negative. The share of records that have one of K levels is exponential with mean 1/(K + 1). Two levels of one category are never
//!   seen together. Indicators of different columns are independent but for a correlation that is small where a level is rare, and numbers are uncorrelated with them: where x_j = 0
//!   for all records but a share p, its correlations are taken to be about √p at most.
//!
//! The result has a mean and a variance for every entry, and need not be positive semidefinite. Source: this project.

use dp_pvi_schema::EntryKind as Entry;
use nalgebra::{DMatrix, DVector};

use super::correlations::{Correlations, Products};
use dp_pvi_math::normal::log_cdf;
use dp_pvi_math::relinearised::Rows;
use dp_pvi_math::uncertain_curvature::without_negative_eigenvalues;

/// Standard deviation of the error of an entry that follows from a Gram matrix, over the entry.
const WEIGHT: f64 = 0.5;

/// The same of the correlation of two numbers.
const WEIGHT_OF_NUMBERS: f64 = 0.5;

/// The doubt of the Gram matrix's unit, relative to it, above which the matrix is left out.
pub(super) const UNKNOWN_UNIT: f64 = 0.5;

/// Standard deviation of an unknown correlation.
const UNSEEN: f64 = 0.5;

/// What was released of H.
pub(super) struct Seen<'a> {
    pub(super) diagonal: &'a DVector<f64>,
    /// Variances of its noise.
    pub(super) diagonal_noise: &'a DVector<f64>,
    /// All entries and the variances of their noise; only those off the diagonal are read.
    pub(super) entries: Option<(&'a DMatrix<f64>, &'a DMatrix<f64>)>,
}

/// A number with the variance of its error.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Estimate {
    value: f64,
    variance: f64,
}

impl Estimate {
    const NOTHING: Self = Self { value: 0.0, variance: f64::INFINITY };

    /// Both together, for independent errors.
    fn and(self, other: Self) -> Self {
        if self.variance.is_infinite() || other.variance == 0.0 {
            return other;
        }
        let gain = self.variance / (self.variance + other.variance);
        Self { value: self.value + gain * (other.value - self.value), variance: self.variance * (1.0 - gain) }
    }

    /// Mean and variance of the same for a number that is not negative, and exponential with this mean beforehand; an infinite mean stands for any number.
    fn not_negative(self, mean: f64) -> Self {
        let sd = self.variance.sqrt();
        if sd == 0.0 {
            return Self { value: self.value.max(0.0), ..self };
        }
        // A normal density that is cut at 0.
        let shifted = self.value - self.variance / mean;
        let cut = log_cdf(shifted / sd);
        Self { value: sd * cut.excess, variance: self.variance * (1.0 - cut.ratio * cut.excess).max(0.0) }
    }
}

impl Correlations {
    /// H and the variances of the errors of its entries, d × d. Off the diagonal it is [`Correlations::matrix`] where no entry was released there.
    pub(super) fn curvature(&self, seen: &Seen<'_>) -> (DMatrix<f64>, DMatrix<f64>) {
        let d = seen.diagonal.len();
        let known = Known::new(self, seen);
        let diagonal: Vec<Estimate> = (0..d).map(|j| known.diagonal(j)).collect();
        let values = DVector::from_iterator(d, diagonal.iter().map(|estimate| estimate.value));
        if seen.entries.is_none() {
            let mut doubt = self.doubt(&values);
            doubt.set_diagonal(&DVector::from_iterator(d, diagonal.iter().map(|estimate| estimate.variance)));
            return (self.matrix(&values), doubt);
        }
        let estimate = DMatrix::from_fn(d, d, |i, j| known.entry(i.min(j), i.max(j), &diagonal));
        (estimate.map(|estimate| estimate.value), estimate.map(|estimate| estimate.variance))
    }

    /// Rows by the moments of the Gram matrix, combined with what the schema implies. Their number is in units of c̄. `None` without an intercept.
    pub(super) fn rows(&self) -> Option<Rows> {
        let (products, k) = (self.released()?, self.intercept()?);
        let matrix = &products.matrix;
        // svec multiplies entries off the diagonal by √2, and then adds noise.
        let noise = |i, j| products.noise * if i == j { 1.0 } else { 0.5 } + products.below_floor(i, j);
        let noise = DMatrix::from_fn(matrix.nrows(), matrix.nrows(), noise);
        let seen = Seen { diagonal: &matrix.diagonal(), diagonal_noise: &noise.diagonal(), entries: Some((matrix, &noise)) };
        let (combined, _) = self.without_products().curvature(&seen);
        let count = combined[(k, k)];
        let moments = combined / count;
        let mean = moments.column(k).into_owned();
        let covariance = without_negative_eigenvalues(moments - &mean * mean.transpose())?;
        (count > 0.0).then_some(Rows { count, mean, covariance })
    }

    /// By how much H, which has this entry for the intercept, differs between two points, as the Gram matrix with weights says. `None` where it has none.
    pub(super) fn difference(&self, between: [&DVector<f64>; 2], all: f64) -> Option<DMatrix<f64>> {
        let [here, there] = between.map(|point| self.weighted_by(point));
        let (here, there, k) = (here?, there?, self.intercept()?);
        let factor = all.max(0.0) / here[(k, k)];
        Some((there - here) * factor)
    }
}

/// What is known before entries are put together.
struct Known<'a> {
    correlations: &'a Correlations,
    seen: &'a Seen<'a>,
    /// In units of H.
    products: Option<Products>,
    /// Relative variance of its unit.
    unit: f64,
    /// The intercept's coordinate, and its entry of H: that of all records.
    all: Option<(usize, f64)>,
}

impl<'a> Known<'a> {
    fn new(correlations: &'a Correlations, seen: &'a Seen<'a>) -> Self {
        let intercept = correlations.intercept();
        let products = correlations.products().and_then(|products| in_units_of(products, seen, correlations));
        let (products, unit) = products.map_or((None, 0.0), |(products, unit)| (Some(products), unit));
        let all = intercept.map(|k| (k, seen.diagonal[k])).filter(|(_, all)| *all > 0.0);
        Self { correlations, seen, products, unit, all }
    }

    fn released(&self, i: usize, j: usize) -> Estimate {
        self.seen.entries.map_or(Estimate::NOTHING, |(entries, noise)| Estimate { value: entries[(i, j)], variance: noise[(i, j)] })
    }

    /// Of entry (i, j) of the Gram matrix with its weights.
    fn gram(&self, i: usize, j: usize) -> Estimate {
        let Some(products) = &self.products else { return Estimate::NOTHING };
        let value = products.matrix[(i, j)];
        // svec multiplies entries off the diagonal by √2, and then adds noise.
        let noise = if i == j { products.noise } else { 0.5 * products.noise };
        Estimate { value, variance: noise + (WEIGHT * WEIGHT + self.unit) * value * value + products.below_floor(i, j) }
    }

    fn diagonal(&self, j: usize) -> Estimate {
        let own = Estimate { value: self.seen.diagonal[j], variance: self.seen.diagonal_noise[j] };
        match (self.correlations.entry(j), self.all) {
            (Entry::Indicator { group }, Some((k, all))) => {
                // Two thirds of what the Gram matrix tells are beside the intercept, with half of the noise; errors of the weights are the same in both.
                let (gram, var) = (self.gram(j, j), self.products.as_ref().map_or(0.0, |products| products.noise));
                let gram = Estimate { value: (gram.value + 2.0 * self.gram(j, k).value) / 3.0, variance: gram.variance - var * 2.0 / 3.0 };
                #[allow(clippy::cast_precision_loss, reason = "a number of levels")]
                let levels = self.correlations.levels(group) as f64;
                own.and(self.released(j, k)).and(gram).not_negative(all / (levels + 1.0))
            }
            // Columns of numbers may be far from normal, as those of a curve are: weights by moments say less of them than their own entry.
            _ => own.not_negative(f64::INFINITY),
        }
    }

    /// The share of records that an indicator holds for.
    fn share(&self, j: usize, diagonal: &[Estimate]) -> Option<f64> {
        let (_, all) = self.all?;
        matches!(self.correlations.entry(j), Entry::Indicator { .. }).then(|| (diagonal[j].value / all).min(1.0))
    }

    /// Of i ≤ j.
    fn entry(&self, i: usize, j: usize, diagonal: &[Estimate]) -> Estimate {
        let (a, b) = (diagonal[i], diagonal[j]);
        match (self.correlations.entry(i), self.correlations.entry(j)) {
            _ if i == j => return a,
            (Entry::Indicator { group }, Entry::Indicator { group: k }) if group == k => return Estimate { value: 0.0, variance: 0.0 },
            (Entry::Indicator { .. }, Entry::Intercept) => return a,
            (Entry::Intercept, Entry::Indicator { .. }) => return b,
            _ => {}
        }
        let (size, shares) = (a.value * b.value, (self.share(i, diagonal), self.share(j, diagonal)));
        let possible = UNSEEN * UNSEEN * shares.0.unwrap_or(1.0).min(shares.1.unwrap_or(1.0));
        let independent = match (shares, self.all) {
            ((Some(_), Some(_)), Some((_, all))) => size / all,
            _ => 0.0,
        };
        let beforehand = match (&self.products, shares) {
            // Of numbers it is the correlation: their own entries are known better than by the Gram matrix.
            (Some(products), (None, None)) => {
                let square = products.matrix[(i, i)] * products.matrix[(j, j)];
                let noise = (0.5 * products.noise + products.below_floor(i, j)) / square;
                Estimate {
                    value: products.matrix[(i, j)] * (size / square).sqrt(),
                    variance: size * (WEIGHT_OF_NUMBERS * WEIGHT_OF_NUMBERS + noise),
                }
            }
            _ => Estimate { value: independent, variance: size * possible }.and(self.gram(i, j)),
        };
        beforehand.and(self.released(i, j))
    }
}

/// The Gram matrix in units of H, and the relative variance of the unit. `None` where that is hardly known.
fn in_units_of(products: &Products, seen: &Seen<'_>, correlations: &Correlations) -> Option<(Products, f64)> {
    let own = products.matrix.diagonal();
    // The intercept has the same entry in both, or the traces are the same.
    let (of_h, of_gram, noises) = match correlations.intercept() {
        Some(k) => (seen.diagonal[k], own[k], [seen.diagonal_noise[k], products.noise]),
        #[allow(clippy::cast_precision_loss, reason = "a dimension")]
        None => (seen.diagonal.sum(), own.sum(), [seen.diagonal_noise.sum(), products.noise * own.len() as f64]),
    };
    let unit = noises[0] / (of_h * of_h) + noises[1] / (of_gram * of_gram);
    (of_h > 0.0 && of_gram > 0.0 && unit < UNKNOWN_UNIT * UNKNOWN_UNIT).then(|| (products.times(of_h / of_gram), unit))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests;
