//! Linear functions of the coefficients, as differences of rows.

use std::collections::BTreeMap;

use dp_pvi_schema::CategoryRule;
use dp_pvi_schema::coding::Coding;

/// The level with which others are compared.
pub(super) fn reference(rule: &CategoryRule) -> u32 {
    match rule.coding {
        Coding::Treatment { reference } => u32::try_from(reference).unwrap_or(0),
        Coding::Full | Coding::Sum => 0,
    }
}

/// L θ + c: sparse weights of the coefficients by position, and a constant.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Contrast {
    weights: BTreeMap<u32, f64>,
    /// c.
    pub(crate) constant: f64,
}

impl Contrast {
    /// From dense weights, one for every coefficient.
    #[must_use]
    pub fn dense(weights: &[f64]) -> Self {
        let mut contrast = Self::default();
        (0_u32..).zip(weights).for_each(|(position, weight)| contrast.add(position, *weight));
        contrast
    }

    /// Adds to the weight of a coefficient.
    pub(super) fn add(&mut self, position: u32, weight: f64) {
        *self.weights.entry(position).or_insert(0.0) += weight;
    }

    /// The contrast and its constant times a factor.
    #[must_use]
    pub(super) fn times(mut self, factor: f64) -> Self {
        self.weights.values_mut().for_each(|weight| *weight *= factor);
        self.constant *= factor;
        self
    }

    /// The same of coefficients that stand so many places further.
    #[must_use]
    pub(super) fn shifted(&self, places: u32) -> Self {
        Self { weights: self.weights.iter().map(|(position, weight)| (position + places, *weight)).collect(), constant: self.constant }
    }

    /// Ascending positions whose weight is not 0, and their weights.
    pub(super) fn entries(&self) -> (Vec<u32>, Vec<f64>) {
        self.weights.iter().filter(|(_, weight)| **weight != 0.0).map(|(position, weight)| (*position, *weight)).unzip()
    }
}
