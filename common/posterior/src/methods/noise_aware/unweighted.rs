//! Moments of rows without the weights that a released curvature gives them, for what the model [expects](dp_pvi_models::expected) of measurements.

use nalgebra::{DMatrix, DVector};

use super::correlations::Correlations;
use dp_pvi_models::ModelSpec;
use dp_pvi_models::expected::weighted_moments;

/// Passes in which moments are found whose weighted ones are known, and by how much an entry changes in one at most.
const PASSES: usize = 12;
const MOST: f64 = 2.0;

/// Moments of rows which, with the weights c that they have at `point`, have a diagonal in these proportions; of which the intercept's is 1. What the diagonal does not tell is
/// as [`Correlations::matrix`] says.
pub(super) fn unweighted(
    correlations: &Correlations,
    (weighted, intercept): (&DVector<f64>, usize),
    point: &DVector<f64>,
    model: &ModelSpec,
) -> Option<DMatrix<f64>> {
    let target = weighted / weighted[intercept];
    let mut own = target.clone();
    for _ in 0..PASSES {
        let with_weights = weighted_moments(&correlations.matrix(&own), intercept, point, model)?;
        let unit = with_weights[(intercept, intercept)];
        for (j, entry) in own.iter_mut().enumerate() {
            *entry *= (target[j] * unit / with_weights[(j, j)]).clamp(1.0 / MOST, MOST);
            if correlations.is_indicator(j) {
                *entry = entry.min(1.0);
            }
        }
        own[intercept] = 1.0;
    }
    Some(correlations.matrix(&own))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::unweighted;
    use crate::methods::noise_aware::correlations::Correlations;
    use dp_pvi_models::expected::weighted_moments;
    use dp_pvi_models::logistic_regression::LogisticRegression;
    use dp_pvi_schema::EntryKind as Entry;
    use nalgebra::DVector;

    #[test]
    fn weights_are_taken_out_of_moments() {
        let entries = vec![Entry::Number, Entry::Indicator { group: 0 }, Entry::Intercept];
        let correlations = Correlations::of_entries(entries, None);
        let (own, point) = (DVector::from_vec(vec![0.9, 0.2, 1.0]), DVector::from_vec(vec![1.8, -0.7, 0.4]));
        let model = LogisticRegression {}.into();
        let weighted = 7.0 * weighted_moments(&correlations.matrix(&own), 2, &point, &model).unwrap().diagonal();
        assert!(weighted[0] / weighted[2] < 0.75);
        let found = unweighted(&correlations, (&weighted, 2), &point, &model).unwrap();
        assert!((found.diagonal() - &own).norm() < 1e-3, "{found}");
    }
}
