//! Entries of a curvature matrix H = Σ c xxᵀ off its diagonal, of which a mean field releases the diagonal only.
//!
//! The public schema knows a part of them. Two levels of one category are never seen together: 0. An indicator (of a level, or a boolean)
//! beside the intercept: Σ c x_j·1 = Σ c x_j², the indicator's own entry. The rest has the correlations of a released Gram matrix where there is
//! one. Without one, numbers are taken for uncorrelated with everything, and indicators of different columns for independent of each other.
//!
//! **Weights.** A Gram matrix lacks the weights c. They are functions of the predictor η = xᵀθ, and [`Correlations::at`] puts them in as if rows were normal with the
//! moments M = Σ xxᵀ/n, which an intercept makes known. Then E c xxᵀ follows from integrals over η alone: with m = E x, u = Cov(x, η), s² = Var η and t = η − E η,
//!
//! E c xxᵀ = E[c] M + E[ct]/s² (m uᵀ + u mᵀ) + (E[ct²]/s² − E[c])/s² u uᵀ.
//!
//! What is taken for known may be wrong: [`Correlations::doubt`] says by how much.

use dp_pvi_schema::EntryKind as Entry;
use nalgebra::{DMatrix, DVector};

use crate::methods::Setting;
pub(crate) use dp_pvi_math::products::Products;
use dp_pvi_models::ModelSpec;
use dp_pvi_models::expected::weighted_moments;

/// Standard deviation of the error of an unknown correlation, and of one from a Gram matrix, which lacks the weights c.
const WITHOUT_GRAM: f64 = 0.08;
const WITH_GRAM: f64 = 0.05;

/// How entries of H off the diagonal follow from the diagonal.
#[derive(Debug, Clone)]
pub(crate) struct Correlations {
    entries: Vec<Entry>,
    products: Option<Products>,
    /// c at (η, label), unless all records have the same.
    weight: Option<ModelSpec>,
    /// Whether the Gram matrix is of the records that H is of.
    same_records: bool,
}

impl Correlations {
    /// Of a model with one coefficient for every entry of a feature row; others have no structure.
    pub(crate) fn new(task: &Setting<'_>, products: Option<Products>) -> Self {
        let dimension = task.dimension as usize;
        let entries = task.parsed_schema().map(|schema| schema.entries());
        let entries = entries.ok().filter(|entries| entries.len() == dimension).unwrap_or_else(|| vec![Entry::Number; dimension]);
        let products = products.filter(|products| products.matrix.diagonal().iter().all(|entry| *entry > 0.0));
        let alike = task.model.rules().predictor().is_some_and(|predictor| predictor.has_constant_curvature());
        Self { entries, products, weight: (!alike).then(|| task.model.clone()), same_records: true }
    }

    /// The same for an H of some of the records of the Gram matrix only.
    #[must_use]
    pub(crate) fn of_some(mut self) -> Self {
        self.same_records = false;
        self
    }

    /// The same with the weights that records have at these coefficients.
    #[must_use]
    pub(crate) fn at(&self, coefficients: &DVector<f64>) -> Self {
        let weighted = || -> Option<Products> {
            let (products, matrix) = (self.products.as_ref()?, self.weighted_by(coefficients)?);
            // The noise is that of a matrix of this size.
            let factor = matrix.trace() / products.matrix.trace();
            Some(Products { matrix, ..products.times(factor) })
        };
        Self { products: weighted().or_else(|| self.products.clone()), ..self.clone() }
    }

    /// E c xxᵀ of a record, by the moments of the Gram matrix. `None` where it lacks no weights, where they depend on other labels than two classes, or without an intercept.
    pub(super) fn weighted_by(&self, coefficients: &DVector<f64>) -> Option<DMatrix<f64>> {
        let (moments, intercept, model) = (self.moments()?, self.intercept()?, self.model()?);
        let (predictor, two) = (model.rules().predictor()?, model.rules().has_two_classes());
        let of = |mean: f64, label: f64| predictor.statistics(mean, 0.0, label).curvature;
        let same = [-1.0, 0.5, 2.0].into_iter().all(|mean| (of(mean, 0.0) - of(mean, 1.0)).abs() <= 1e-12 * of(mean, 0.0).abs());
        if two || same { weighted_moments(&moments, intercept, coefficients, model) } else { None }
    }

    /// The model, unless all records have the same weight.
    pub(super) fn model(&self) -> Option<&ModelSpec> {
        self.weight.as_ref()
    }

    /// Second moments of rows, of which the intercept's is 1.
    pub(super) fn moments(&self) -> Option<DMatrix<f64>> {
        let (products, intercept) = (self.products.as_ref()?, self.intercept()?);
        Some(&products.matrix / products.matrix[(intercept, intercept)])
    }

    /// Σ xxᵀ of the records that H is of, with the weights that they have where [`Self::at`] has put them in.
    pub(super) fn products(&self) -> Option<&Products> {
        self.products.as_ref().filter(|_| self.same_records)
    }

    /// Σ xxᵀ as it was released, of the records of H or of others.
    pub(super) fn released(&self) -> Option<&Products> {
        self.products.as_ref()
    }

    /// The structure that the schema alone implies.
    #[must_use]
    pub(super) fn without_products(&self) -> Self {
        Self { products: None, ..self.clone() }
    }

    /// What is public about an entry of a row.
    pub(super) fn entry(&self, j: usize) -> Entry {
        self.entries[j]
    }

    /// Whether an entry is 0 or 1.
    pub(super) fn is_indicator(&self, j: usize) -> bool {
        matches!(self.entries[j], Entry::Indicator { .. })
    }

    /// Whether two entries are of one group.
    pub(super) fn are_levels(&self, i: usize, j: usize) -> bool {
        matches!((self.entries[i], self.entries[j]), (Entry::Indicator { group }, Entry::Indicator { group: other }) if group == other)
    }

    /// Number of entries of a group.
    pub(super) fn levels(&self, group: usize) -> usize {
        self.entries.iter().filter(|entry| **entry == Entry::Indicator { group }).count()
    }

    /// The intercept's coordinate.
    pub(crate) fn intercept(&self) -> Option<usize> {
        self.entries.iter().position(|entry| *entry == Entry::Intercept)
    }

    /// H with this diagonal, which is not negative.
    pub(crate) fn matrix(&self, diagonal: &DVector<f64>) -> DMatrix<f64> {
        let (products, intercept) = (self.products.as_ref(), self.intercept());
        let of_gram = |gram: &DMatrix<f64>, i: usize, j: usize| {
            let scale = |k: usize| (diagonal[k] / gram[(k, k)]).sqrt();
            gram[(i, j)] * scale(i) * scale(j)
        };
        DMatrix::from_fn(diagonal.len(), diagonal.len(), |i, j| match (self.entries[i], self.entries[j], products) {
            _ if i == j => diagonal[i],
            (Entry::Indicator { group }, Entry::Indicator { group: other }, _) if group == other => 0.0,
            (Entry::Indicator { .. }, Entry::Intercept, _) | (Entry::Intercept, Entry::Indicator { .. }, _) => diagonal[i].min(diagonal[j]),
            (_, _, Some(products)) => of_gram(&products.matrix, i, j),
            (Entry::Indicator { .. }, Entry::Indicator { .. }, None) => match intercept {
                Some(k) if diagonal[k] > 0.0 => diagonal[i].min(diagonal[k]) * diagonal[j].min(diagonal[k]) / diagonal[k],
                _ => 0.0,
            },
            (_, _, None) => 0.0,
        })
    }

    /// Ω: variances of the errors of entries off the diagonal of [`Self::matrix`]; 0 where the schema determines them.
    pub(crate) fn doubt(&self, diagonal: &DVector<f64>) -> DMatrix<f64> {
        let relative: f64 = match (&self.products, &self.weight) {
            (None, _) => WITHOUT_GRAM,
            (Some(_), None) => 0.0,
            (Some(_), Some(_)) => WITH_GRAM,
        };
        // svec multiplies entries off the diagonal by √2, and then adds noise.
        let noise = |products: &Products, i: usize, j: usize| 0.5 * products.noise / (products.matrix[(i, i)] * products.matrix[(j, j)]);
        let of = |i: usize, j: usize| {
            let seen = self.products.as_ref().map_or(0.0, |products| noise(products, i, j));
            if self.is_known(i, j) { 0.0 } else { diagonal[i] * diagonal[j] * (relative * relative + seen) }
        };
        DMatrix::from_fn(diagonal.len(), diagonal.len(), of)
    }

    /// Whether the schema determines an entry: two levels of a category, or an indicator beside the intercept.
    fn is_known(&self, i: usize, j: usize) -> bool {
        match (self.entries[i], self.entries[j]) {
            _ if i == j => true,
            (Entry::Indicator { group }, Entry::Indicator { group: other }) => group == other,
            (Entry::Indicator { .. }, Entry::Intercept) | (Entry::Intercept, Entry::Indicator { .. }) => true,
            _ => false,
        }
    }

    /// Without a schema: the correlations of a matrix.
    #[cfg(test)]
    pub(crate) fn of_gram(matrix: DMatrix<f64>) -> Self {
        let entries = vec![Entry::Number; matrix.nrows()];
        Self::of_entries(entries, Some(Products { raised: DMatrix::zeros(matrix.nrows(), matrix.nrows()), matrix, noise: 0.0 }))
    }

    /// Of records that have the same weight.
    #[cfg(test)]
    pub(crate) fn of_entries(entries: Vec<Entry>, products: Option<Products>) -> Self {
        Self { entries, products, weight: None, same_records: true }
    }

    /// The same of records of this model.
    #[cfg(test)]
    pub(crate) fn of_model(mut self, model: ModelSpec) -> Self {
        self.weight = Some(model);
        self
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::{Correlations, Entry};
    use nalgebra::{DMatrix, DVector};

    /// Σ c xxᵀ over all combinations of two independent columns: a category of three levels under treatment coding, a boolean, the intercept.
    #[test]
    fn independent_indicators_have_the_matrix_of_their_records() {
        let mut matrix = DMatrix::zeros(4, 4);
        for (level, share) in [(0, 0.5), (1, 0.3), (2, 0.2)] {
            for (yes, chance) in [(0.0, 0.9), (1.0, 0.1)] {
                let row = DVector::from_vec(vec![f64::from(u8::from(level == 1)), f64::from(u8::from(level == 2)), yes, 1.0]);
                matrix += &row * row.transpose() * (share * chance * 1000.0);
            }
        }
        let entries = vec![Entry::Indicator { group: 0 }, Entry::Indicator { group: 0 }, Entry::Indicator { group: 1 }, Entry::Intercept];
        let correlations = Correlations::of_entries(entries, None);
        assert!((correlations.matrix(&matrix.diagonal()) - &matrix).norm() < 1e-9);
        // Only that of a level beside another column's indicator is a guess.
        let doubt = correlations.doubt(&matrix.diagonal());
        assert!(
            (doubt[(0, 2)] - 0.0064 * matrix[(0, 0)] * matrix[(2, 2)]).abs() < 1e-9 && doubt[(0, 1)] + doubt[(0, 3)] + doubt[(2, 3)] == 0.0
        );
    }

    #[test]
    fn linear_regression_weighs_all_records_alike() {
        use dp_pvi_models::ModelSpec;
        use dp_pvi_models::linear_regression::LinearRegression;
        use dp_pvi_models::poisson_regression::PoissonRegression;
        let alike = |model: ModelSpec| model.rules().predictor().unwrap().has_constant_curvature();
        assert!(alike(LinearRegression { noise_sd: 3.0 }.into()) && !alike(PoissonRegression {}.into()));
    }

    #[test]
    fn a_gram_matrix_lends_its_correlations() {
        let gram = DMatrix::from_row_slice(2, 2, &[4.0, 3.0, 3.0, 9.0]);
        let guessed = Correlations::of_gram(gram).matrix(&DVector::from_vec(vec![1.0, 36.0]));
        assert!((guessed - DMatrix::from_row_slice(2, 2, &[1.0, 3.0, 3.0, 36.0])).norm() < 1e-12);
    }
}
