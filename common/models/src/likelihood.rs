//! What a record enters by.

use std::sync::Arc;

use crate::Own;
use crate::many_rows::ManyRows;
use crate::predictor::Predictor;

/// What a model says of a record, and so which engines work on it.
#[derive(Clone)]
pub enum Likelihood {
    /// A record enters through one linear predictor xᵀθ.
    Predictor(Arc<dyn Predictor>),
    /// A record becomes several rows.
    Rows(Arc<dyn ManyRows>),
    /// The model sums records by itself, and offers this to updates: its private half is registered in `dp-pvi-inference`.
    Own(Own),
}

impl Likelihood {
    /// Of one linear predictor.
    pub fn of(predictor: impl Predictor + 'static) -> Self {
        Self::Predictor(Arc::new(predictor))
    }

    /// Of several rows.
    pub fn of_rows(rows: impl ManyRows + 'static) -> Self {
        Self::Rows(Arc::new(rows))
    }
}
