//! Looks that are taken to θ by the model's curvature along the way: [`relinearised`](dp_pvi_math::relinearised) with the rows that a run's Gram matrix tells of.

use dp_pvi_math::expfam::gaussian::full::svec;
use nalgebra::{DMatrix, DVector};

use super::{Likelihood, Look, Looks, OnTheWay, mean};
use dp_pvi_models::expected::expected_curvature;
use dp_pvi_models::predictor::Shape;
use dp_pvi_math::relinearised::{Curvatures, Look as At, Scale, Taken};

impl Looks {
    /// What the model says of curvatures. `None` where looks are not taken to θ by it, or without an intercept.
    pub(super) fn of_model(&self) -> Option<Curvatures<'_>> {
        let OnTheWay::ToTheta((model, bound)) = &self.on_the_way else { return None };
        let (predictor, is_of_two_classes) = (model.rules().predictor()?, model.rules().has_two_classes());
        let mut rows = self.correlations.rows()?;
        rows.count /= bound;
        let moments = &rows.mean * rows.mean.transpose() + &rows.covariance;
        let weighted = self.weighted.as_ref().map(|weighted| (weighted, weighted.squares(&moments, &self.correlations)));
        let of_record = move |z: f64| {
            let both @ [zero, one] = [0.0, 1.0].map(|label| predictor.statistics(z, 0.0, label));
            let c = match predictor.shape() {
                _ if is_of_two_classes => expected_curvature(zero, one),
                // Residual and curvature of a count are linear in it: that of the count whose residual is 0.
                Shape::LogConcave => zero.curvature + zero.residual / (zero.residual - one.residual) * (one.curvature - zero.curvature),
                // By how far labels are off, whatever the predictor is.
                Shape::Normal { .. } | Shape::Other => 1.0,
            };
            let weight = weighted.map_or(1.0, |(weighted, squares)| weighted.weight(both, squares));
            [weight, c.min(*bound)]
        };
        Some(Curvatures { rows, of_record: Box::new(of_record), scale: if is_of_two_classes { Scale::Near } else { Scale::Free } })
    }

    /// By how much the curvature at θ differs from the mean of the looks', packed as those are, and its scale.
    pub(super) fn change(&self, of_model: &Curvatures<'_>, weights: &[f64], theta: &DVector<f64>) -> (DVector<f64>, f64) {
        let points = || self.looks.iter().zip(weights).map(|(look, weight)| (&look.point, *weight));
        let entries = || self.looks.iter().zip(weights).flat_map(|(look, w)| (0..theta.len()).map(move |j| (look.of_diagonal(j), *w)));
        let seen = entries().map(|((value, _), weight)| weight * value).sum();
        let noise = entries().map(|((_, variance), weight)| weight * weight * variance).sum();
        let (change, scale) = of_model.change(points(), theta, (seen, noise));
        let is_diagonal = self.looks.first().is_some_and(|look| look.curvature.len() == theta.len());
        (if is_diagonal { change.diagonal() } else { DVector::from_vec(svec(&change)) }, scale)
    }

    /// The same likelihood, with its H at θ, where gradients are taken there by the model times `scale`.
    pub(super) fn taken(
        &self,
        (of_model, scale): (&Curvatures<'_>, f64),
        weights: &[f64],
        theta: &DVector<f64>,
        linear: Likelihood,
    ) -> Option<Likelihood> {
        let at = self.looks.iter().zip(weights);
        let at: Vec<At<'_>> = at.map(|(look, w)| At { point: &look.point, gradient: &look.gradient, weight: *w }).collect();
        let taken = Taken::new(&at, theta, &linear.curvature, |theta| of_model.at(theta) * scale)?;
        let reference = taken.reference().unwrap_or_else(|| mean(self.looks.iter().map(|look: &Look| &look.point), weights));
        Some(Likelihood {
            // The residual at any θ is y − Aθ.
            gradient: &taken.pull - &taken.secant * &reference,
            reference,
            scores: &linear.curvature * of_model.score_share(theta),
            by_model: taken.by_model(),
            moved: DMatrix::zeros(theta.len(), theta.len()),
            there: linear.curvature,
            curvature: taken.secant,
            bends: Some(taken.bends),
            ..linear
        })
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use dp_pvi_math::expfam::any::Family;
    use dp_pvi_math::expfam::gaussian::full::svec;
    use dp_pvi_schema::EntryKind as Entry;
    use nalgebra::{DMatrix, DVector};

    use crate::methods::noise_aware::correlations::{Correlations, Products};
    use crate::methods::noise_aware::looks::{Look, Looks, OnTheWay};
    use dp_pvi_models::logistic_regression::LogisticRegression;
    use dp_pvi_math::expectation::expectation_of_two;
    use dp_pvi_models::spec::Prior;

    const RECORDS: f64 = 4000.0;

    /// E f(a, b) of rows (1, a, b) of two independent numbers.
    fn of_rows<const N: usize>(f: impl Fn(DVector<f64>) -> [f64; N]) -> [f64; N] {
        expectation_of_two([0.2, -0.1], [1.0, 0.0, 1.0], |[a, b]| f(DVector::from_vec(vec![1.0, a, b])))
    }

    fn chance(z: f64) -> f64 {
        1.0 / (1.0 + (-z).exp())
    }

    /// What so many records whose truth is `end` release at a point, by chance without noise of this standard deviation.
    fn look(point: DVector<f64>, end: &DVector<f64>, sd: f64) -> Look {
        let sums: [f64; 12] = of_rows(|x| {
            let (p, q) = (chance(x.dot(&point)), chance(x.dot(end)));
            std::array::from_fn(|k| if k < 3 { (q - p) * x[k] } else { p * (1.0 - p) * x[k / 3 - 1] * x[k % 3] })
        });
        let matrix = DMatrix::from_row_slice(3, 3, &sums[3..]) * RECORDS;
        Look {
            point,
            gradient: DVector::from_column_slice(&sums[..3]) * RECORDS,
            curvature: DVector::from_vec(svec(&matrix)),
            noise: DVector::repeat(3, sd * sd),
            curvature_noise: DVector::repeat(6, sd * sd),
        }
    }

    fn looks(end: &DVector<f64>, left: &[f64], on_the_way: OnTheWay) -> Looks {
        let moments: [f64; 9] = of_rows(|x| std::array::from_fn(|k| x[k / 3] * x[k % 3]));
        let matrix = DMatrix::from_row_slice(3, 3, &moments) * (0.25 * RECORDS);
        let products = Products { raised: DMatrix::zeros(3, 3), matrix, noise: 1e-6 };
        let entries = vec![Entry::Intercept, Entry::Number, Entry::Number];
        Looks {
            family: Family::FullGaussian { dimension: 3 },
            looks: left.iter().map(|left| look(end * (1.0 - left), end, 0.5)).collect(),
            correlations: Correlations::of_entries(entries, Some(products)).of_model(LogisticRegression {}.into()),
            weighted: None,
            on_the_way,
            prior: Prior { mean: vec![0.0; 3], precision: vec![1e-6; 3], groups: Vec::new() },
            near: None,
        }
    }

    /// A run that has not arrived at a far truth: the model takes its looks there, and says how wide the likelihood is there.
    #[test]
    fn looks_on_the_way_lead_to_a_far_truth() {
        let end = DVector::from_vec(vec![-2.0, 2.0, -1.5]);
        let left = [1.0, 0.75, 0.5, 0.4, 0.3];
        let carried = looks(&end, &left, OnTheWay::ToTheta((LogisticRegression {}.into(), 0.25))).carried().unwrap();
        assert!((&carried.mean - &end).norm() < 0.05 * end.norm(), "{}", carried.mean);
        let there = look(end.clone(), &end, 0.5);
        let h = dp_pvi_math::expfam::gaussian::full::unsvec(there.curvature.as_slice(), 3);
        for j in 0..3 {
            let ratio = (carried.precision[(j, j)] / h[(j, j)]).sqrt();
            // What the model may get wrong of the way is in it.
            assert!((0.3..1.1).contains(&ratio), "{j}: {ratio}");
        }
        let linear = looks(&end, &left, OnTheWay::Linear).carried().unwrap();
        assert!((&linear.mean - &end).norm() > 0.1 * end.norm(), "{}", linear.mean);
    }

    #[test]
    fn looks_that_have_arrived_are_the_likelihood() {
        let end = DVector::from_vec(vec![-0.5, 0.8, -0.4]);
        let carried = looks(&end, &[0.02, -0.01, 0.01, 0.0], OnTheWay::ToTheta((LogisticRegression {}.into(), 0.25))).carried().unwrap();
        assert!((&carried.mean - &end).norm() < 1e-3, "{}", carried.mean);
        let h = dp_pvi_math::expfam::gaussian::full::unsvec(look(end.clone(), &end, 0.5).curvature.as_slice(), 3);
        assert!((&carried.precision - &h).norm() < 0.02 * h.norm(), "{} {h}", carried.precision);
        assert!(carried.posterior.noise_share.unwrap() > 0.99);
    }
}
