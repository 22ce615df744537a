//! Bayesian multinomial regression: P(y = k) ∝ exp(xᵀθ_k), θ_0 = 0. Its mathematics is public: [`dp_pvi_models::multinomial_regression`].

use dp_pvi_models::multinomial_regression::MultinomialRegression;

use crate::capabilities::Model;
use crate::capabilities::many_rows::ManyRowsModel;
use crate::models::PrivateHalf;

impl PrivateHalf for MultinomialRegression {
    fn model(&self) -> Box<dyn Model> {
        Box::new(ManyRowsModel(*self))
    }
}
