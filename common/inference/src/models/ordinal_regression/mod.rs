//! Bayesian ordinal regression: P(y ≤ j) = σ(α_j − xᵀβ). Its mathematics is public: [`dp_pvi_models::ordinal_regression`].

use dp_pvi_models::ordinal_regression::OrdinalRegression;

use crate::capabilities::Model;
use crate::capabilities::many_rows::ManyRowsModel;
use crate::models::PrivateHalf;

impl PrivateHalf for OrdinalRegression {
    fn model(&self) -> Box<dyn Model> {
        Box::new(ManyRowsModel(*self))
    }
}
