//! Bayesian Survival regression: hazards λ_b e^{xᵀβ}. Its mathematics is public: [`dp_pvi_models::survival_regression`].

use dp_pvi_models::survival_regression::SurvivalRegression;

use crate::capabilities::Model;
use crate::capabilities::many_rows::ManyRowsModel;
use crate::models::PrivateHalf;

impl PrivateHalf for SurvivalRegression {
    fn model(&self) -> Box<dyn Model> {
        Box::new(ManyRowsModel(self.clone()))
    }
}
