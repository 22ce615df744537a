//! Bayesian Weibull regression: the cumulative hazard t^k e^{xᵀθ}. Its mathematics is public: [`dp_pvi_models::weibull_regression`].

use dp_pvi_models::weibull_regression::WeibullRegression;

use crate::capabilities::Model;
use crate::capabilities::many_rows::ManyRowsModel;
use crate::models::PrivateHalf;

impl PrivateHalf for WeibullRegression {
    fn model(&self) -> Box<dyn Model> {
        Box::new(ManyRowsModel(*self))
    }
}
