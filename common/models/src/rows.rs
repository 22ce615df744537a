//! Rows that were drawn from public values, in place of records, and the sums over them that a regression asks for. Forecasts are made of them.
//! Each row stands for many records.

use dp_pvi_math::expfam::any::Standard;
use dp_pvi_math::expfam::gaussian::full::svec;
use nalgebra::{DMatrix, DVector};

use crate::predictor::{Predictor, Statistics};

/// Rows that stand for the records of a federation.
#[derive(Debug, Clone)]
pub struct Rows {
    dimension: usize,
    /// Where every row begins, and where the last one ends.
    starts: Vec<usize>,
    indices: Vec<u32>,
    values: Vec<f64>,
    offsets: Vec<f64>,
    /// Targets of every row with their probabilities: one, or the two classes.
    targets: Vec<[(f64, f64); 2]>,
    /// Records that a row stands for.
    weight: f64,
}

/// One of them.
#[derive(Debug, Clone, Copy)]
pub struct Row<'a> {
    /// Ascending positions of the entries that are not 0.
    pub indices: &'a [u32],
    /// Their values.
    pub values: &'a [f64],
    /// What is added to the linear predictor without a coefficient.
    pub offset: f64,
    /// Targets with their probabilities; a probability of 0 is no target.
    pub targets: &'a [(f64, f64); 2],
}

/// Σ r x and Σ c xxᵀ.
pub struct Sums {
    /// Σ r x.
    pub first: DVector<f64>,
    /// Σ c xxᵀ.
    pub second: DMatrix<f64>,
}

impl Sums {
    /// svec of the second sum, or its diagonal, as the family's precision is packed.
    #[must_use]
    pub fn packed(&self, point: &Standard) -> Vec<f64> {
        match point {
            Standard::Diagonal(_) => self.second.diagonal().as_slice().to_vec(),
            Standard::Full(_) => svec(&self.second),
        }
    }
}

impl Rows {
    /// None yet.
    #[must_use]
    pub fn new(dimension: usize) -> Self {
        Self { dimension, starts: vec![0], indices: Vec::new(), values: Vec::new(), offsets: Vec::new(), targets: Vec::new(), weight: 1.0 }
    }

    /// One more row; `indices` ascend and lie below the dimension.
    pub fn push(&mut self, indices: &[u32], values: &[f64], offset: f64) {
        self.offsets.push(offset);
        self.indices.extend_from_slice(indices);
        self.values.extend_from_slice(values);
        self.starts.push(self.indices.len());
        self.targets.push([(0.0, 1.0), (0.0, 0.0)]);
    }

    /// Number of rows.
    #[must_use]
    pub fn len(&self) -> usize {
        self.targets.len()
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.targets.is_empty()
    }

    /// Records that all rows together stand for.
    #[allow(clippy::cast_precision_loss, reason = "a number of rows")]
    pub fn stand_for(&mut self, records: f64) {
        self.weight = records / self.len().max(1) as f64;
    }

    /// Records that one row stands for.
    #[must_use]
    pub fn weight(&self) -> f64 {
        self.weight
    }

    /// Sets the targets of all rows.
    pub fn set_targets(&mut self, mut of: impl FnMut(Row<'_>) -> [(f64, f64); 2]) {
        let targets = (0..self.len()).map(|number| of(self.row(number))).collect();
        self.targets = targets;
    }

    /// All rows.
    pub fn iter(&self) -> impl Iterator<Item = Row<'_>> {
        (0..self.len()).map(|number| self.row(number))
    }

    fn row(&self, number: usize) -> Row<'_> {
        let range = self.starts[number]..self.starts[number + 1];
        Row {
            indices: &self.indices[range.clone()],
            values: &self.values[range],
            offset: self.offsets[number],
            targets: &self.targets[number],
        }
    }

    /// Σ r x and Σ c xxᵀ over all records, (r, c) being what `of` makes of a row's statistics at q with its own target and with the other
    /// class, which is its own where there are no classes.
    pub fn sums(&self, predictor: &dyn Predictor, q: &Standard, of: impl Fn(Row<'_>, Statistics, Statistics) -> Statistics) -> Sums {
        self.accumulate(|row| {
            let (mean, variance) = q.project(row.indices, row.values);
            row.expected(predictor, (mean + row.offset, variance), &of)
        })
    }

    /// Σ r x and Σ c x∘x over all records at a mean field, (r, c) as in [`Self::sums`].
    #[must_use]
    pub fn marginal_sums(
        &self,
        predictor: &dyn Predictor,
        (mean, variance): (&[f64], &[f64]),
        of: impl Fn(Row<'_>, Statistics, Statistics) -> Statistics,
    ) -> (Vec<f64>, Vec<f64>) {
        let (mut first, mut second) = (vec![0.0; self.dimension], vec![0.0; self.dimension]);
        for row in self.iter() {
            let entries = || row.indices.iter().map(|&j| j as usize).zip(row.values);
            let at = entries().fold((row.offset, 0.0), |(a, v), (j, x)| (a + x * mean[j], v + x * x * variance[j]));
            let Statistics { residual, curvature } = row.expected(predictor, at, &of);
            for (j, x) in entries() {
                first[j] += self.weight * residual * x;
                second[j] += self.weight * curvature * x * x;
            }
        }
        (first, second)
    }

    /// Σ w xxᵀ over all records, w being what `weight` makes of a target.
    #[must_use]
    pub fn gram(&self, weight: impl Fn(f64) -> f64) -> DMatrix<f64> {
        let expected = |row: Row<'_>| row.targets.iter().map(|&(target, probability)| probability * weight(target)).sum();
        self.accumulate(|row| Statistics { residual: 0.0, curvature: expected(row) }).second
    }

    fn accumulate(&self, of: impl Fn(Row<'_>) -> Statistics) -> Sums {
        let mut first = DVector::zeros(self.dimension);
        let mut second = DMatrix::zeros(self.dimension, self.dimension);
        for row in self.iter() {
            let Statistics { residual, curvature } = of(row);
            let (residual, curvature) = (self.weight * residual, self.weight * curvature);
            for (k, (&j, x)) in row.indices.iter().zip(row.values).enumerate() {
                first[j as usize] += residual * x;
                let factor = curvature * x;
                for (&i, y) in row.indices[..=k].iter().zip(row.values) {
                    second[(i as usize, j as usize)] += factor * y;
                }
            }
        }
        second.fill_lower_triangle_with_upper_triangle();
        Sums { first, second }
    }
}

impl Row<'_> {
    /// The mean over its targets of what `of` makes of the statistics at a predictor.
    fn expected(
        &self,
        predictor: &dyn Predictor,
        (mean, variance): (f64, f64),
        of: &impl Fn(Row<'_>, Statistics, Statistics) -> Statistics,
    ) -> Statistics {
        let mut sum = Statistics { residual: 0.0, curvature: 0.0 };
        let [first, second] = *self.targets;
        let at = |(target, _): (f64, f64)| predictor.statistics(mean, variance, target);
        let one = at(first);
        let two = if second.1 > 0.0 { at(second) } else { one };
        for (probability, own, other) in [(first.1, one, two), (second.1, two, one)] {
            let Statistics { residual, curvature } = of(*self, own, other);
            // As at a site, what is not finite contributes 0.
            if probability > 0.0 && residual.is_finite() && curvature.is_finite() {
                sum.residual += probability * residual;
                sum.curvature += probability * curvature;
            }
        }
        sum
    }

    /// ‖x‖².
    #[must_use]
    pub fn square(&self) -> f64 {
        self.values.iter().map(|x| x * x).sum()
    }

    /// Σ x⁴.
    #[must_use]
    pub fn fourth(&self) -> f64 {
        self.values.iter().map(|x| x * x * x * x).sum()
    }
}
