//! What a visit of natural gradients sends if drawn rows are in place of records: the sum of the terms that the private half of the module computes.

use dp_pvi_math::expfam::any::{Gaussian, Standard};
use dp_pvi_math::expfam::gaussian::full::svec;

use crate::methods::prior_predictive::{NotForecast, Sent, Stage};
use crate::methods::{NaturalGradientRule, NaturalGradientSpec, NaturalGradientVisit, Setting, SumSpec};
use dp_pvi_models::predictor::Statistics;
use dp_pvi_models::rows::{Row, Sums};

/// The sum of a visit at a state.
pub(super) fn sum(
    spec: &NaturalGradientSpec,
    task: &Setting<'_>,
    (visit, noised): (u32, &SumSpec),
    state: &[f64],
    stage: &mut Stage<'_>,
) -> Result<Sent, NotForecast> {
    let mut sum = match spec.visit(visit) {
        NaturalGradientVisit::Gram => svec(&stage.rows.gram(|target| stage.predictor.largest_curvature(spec.curvature_bound, target))),
        NaturalGradientVisit::Gradient => {
            let point: Gaussian = NaturalGradientRule::point(task.family(), state).map_err(|_| NotForecast::Fails)?;
            let sums = stage.rows.sums(stage.predictor, point.standard(), |row, own, other| spec.cut(point.standard(), row, own, other));
            let curvature = sums.packed(point.standard());
            let Sums { first, .. } = sums;
            first.iter().copied().chain(curvature.iter().map(|c| spec.curvature_weight * c)).collect()
        }
    };
    let share = stage.share();
    sum.iter_mut().for_each(|value| *value *= share);
    stage.add_noise(task, noised, &mut sum);
    Ok(Sent::Sum(sum))
}

impl NaturalGradientSpec {
    /// Residual and curvature of a row, weighted or within their bounds, times what keeps the term within C.
    fn cut(&self, point: &Standard, row: Row<'_>, own: Statistics, other: Statistics) -> Statistics {
        let own = self.bounded(own);
        let other = if self.weighted { self.bounded(other) } else { own };
        let square = row.square();
        let fourth = match point {
            Standard::Diagonal(_) => row.fourth(),
            Standard::Full(_) => square * square,
        };
        let factor = self.weight([own, other], square, fourth);
        Statistics { residual: factor * own.residual, curvature: factor * own.curvature }
    }
}
