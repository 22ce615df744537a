//! Measurements that the model's curvature along the way takes to θ: [`relinearised`](dp_pvi_math::relinearised), with the moments of rows from a run's Gram matrix.

use dp_pvi_math::expfam::gaussian::full::svec;
use nalgebra::{DMatrix, DVector};

use super::{Likelihood, Measurement, Measurements, OnTheWay, mean};
use dp_pvi_math::relinearised::{Curvatures, Measurement as At, Scale, Taken};
use dp_pvi_models::expected::expected_curvature;

impl Measurements {
    /// The model's curvatures of records. `None` if measurements are not re-linearised, or without an intercept.
    pub(super) fn of_model(&self) -> Option<Curvatures<'_>> {
        let OnTheWay::Relinearised(model, bound) = &self.on_the_way else { return None };
        let (predictor, is_of_two_classes) = (model.rules().predictor()?, model.rules().has_two_classes());
        let mut rows = self.correlations.rows()?;
        rows.count /= bound;
        let moments = &rows.mean * rows.mean.transpose() + &rows.covariance;
        let weighted = self.weighted.as_ref().map(|weighted| (weighted, weighted.squares(&moments, &self.correlations)));
        let of_record = move |z: f64| {
            let both @ [zero, one] = [0.0, 1.0].map(|label| predictor.statistics(z, 0.0, label));
            // Other curvatures are the same at every predictor.
            let c = if is_of_two_classes { expected_curvature(zero, one) } else { 1.0 };
            let weight = weighted.map_or(1.0, |(weighted, squares)| weighted.weight(both, squares));
            [weight, c.min(*bound)]
        };
        Some(Curvatures { rows, of_record: Box::new(of_record), scale: if is_of_two_classes { Scale::Near } else { Scale::Free } })
    }

    /// The difference between the curvature at θ and the mean curvature of the measurements, packed as those are, and the scale of the model.
    pub(super) fn change(&self, of_model: &Curvatures<'_>, weights: &[f64], theta: &DVector<f64>) -> (DVector<f64>, f64) {
        let points = || self.measurements.iter().zip(weights).map(|(measurement, weight)| (&measurement.point, *weight));
        let entries = || {
            self.measurements
                .iter()
                .zip(weights)
                .flat_map(|(measurement, w)| (0..theta.len()).map(move |j| (measurement.of_diagonal(j), *w)))
        };
        let seen = entries().map(|((value, _), weight)| weight * value).sum();
        let noise = entries().map(|((_, variance), weight)| weight * weight * variance).sum();
        let (change, scale) = of_model.change(points(), theta, (seen, noise));
        let is_diagonal = self.measurements.first().is_some_and(|measurement| measurement.curvature.len() == theta.len());
        (if is_diagonal { change.diagonal() } else { DVector::from_vec(svec(&change)) }, scale)
    }

    /// The likelihood `linear`, whose H is that at θ, with gradients that the model times `scale` takes to θ.
    pub(super) fn taken(
        &self,
        (of_model, scale): (&Curvatures<'_>, f64),
        weights: &[f64],
        theta: &DVector<f64>,
        linear: Likelihood,
    ) -> Option<Likelihood> {
        let at = self.measurements.iter().zip(weights);
        let at: Vec<At<'_>> = at.map(|(m, w)| At { point: &m.point, gradient: &m.gradient, weight: *w }).collect();
        let taken = Taken::new(&at, theta, &linear.curvature, |theta| of_model.at(theta) * scale)?;
        let reference = taken
            .reference()
            .unwrap_or_else(|| mean(self.measurements.iter().map(|measurement: &Measurement| &measurement.point), weights));
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
    use crate::methods::noise_aware::measurements::{Measurement, Measurements, OnTheWay};
    use dp_pvi_math::expectation::expectation_of_two;
    use dp_pvi_models::logistic_regression::LogisticRegression;
    use dp_pvi_models::spec::Prior;

    const RECORDS: f64 = 4000.0;

    /// E f(x) for rows x = (1, a, b) with two independent normal numbers.
    fn of_rows<const N: usize>(f: impl Fn(DVector<f64>) -> [f64; N]) -> [f64; N] {
        expectation_of_two([0.2, -0.1], [1.0, 0.0, 1.0], |[a, b]| f(DVector::from_vec(vec![1.0, a, b])))
    }

    fn chance(z: f64) -> f64 {
        1.0 / (1.0 + (-z).exp())
    }

    /// The expected release at a point of [`RECORDS`] records whose truth is `end`. The stated standard deviation of the noise is `sd`.
    fn measurement(point: DVector<f64>, end: &DVector<f64>, sd: f64) -> Measurement {
        let sums: [f64; 12] = of_rows(|x| {
            let (p, q) = (chance(x.dot(&point)), chance(x.dot(end)));
            std::array::from_fn(|k| if k < 3 { (q - p) * x[k] } else { p * (1.0 - p) * x[k / 3 - 1] * x[k % 3] })
        });
        let matrix = DMatrix::from_row_slice(3, 3, &sums[3..]) * RECORDS;
        Measurement {
            point,
            gradient: DVector::from_column_slice(&sums[..3]) * RECORDS,
            curvature: DVector::from_vec(svec(&matrix)),
            noise: DVector::repeat(3, sd * sd),
            curvature_noise: DVector::repeat(6, sd * sd),
        }
    }

    fn measurements(end: &DVector<f64>, left: &[f64], on_the_way: OnTheWay) -> Measurements {
        let moments: [f64; 9] = of_rows(|x| std::array::from_fn(|k| x[k / 3] * x[k % 3]));
        let matrix = DMatrix::from_row_slice(3, 3, &moments) * (0.25 * RECORDS);
        let products = Products { raised: DMatrix::zeros(3, 3), matrix, noise: 1e-6 };
        let entries = vec![Entry::Intercept, Entry::Number, Entry::Number];
        Measurements {
            family: Family::FullGaussian { dimension: 3 },
            measurements: left.iter().map(|left| measurement(end * (1.0 - left), end, 0.5)).collect(),
            correlations: Correlations::of_entries(entries, Some(products)).of_model(LogisticRegression {}.into()),
            weighted: None,
            on_the_way,
            prior: Prior { mean: vec![0.0; 3], precision: vec![1e-6; 3], groups: Vec::new() },
            near: None,
        }
    }

    /// A run that has not converged to a far truth: the model takes its measurements there, and gives the curvature of the likelihood there.
    #[test]
    fn measurements_on_the_way_lead_to_a_far_truth() {
        let end = DVector::from_vec(vec![-2.0, 2.0, -1.5]);
        let left = [1.0, 0.75, 0.5, 0.4, 0.3];
        let extrapolated = measurements(&end, &left, OnTheWay::Relinearised(LogisticRegression {}.into(), 0.25)).extrapolated().unwrap();
        assert!((&extrapolated.mean - &end).norm() < 0.05 * end.norm(), "{}", extrapolated.mean);
        let there = measurement(end.clone(), &end, 0.5);
        let h = dp_pvi_math::expfam::gaussian::full::unsvec(there.curvature.as_slice(), 3);
        for j in 0..3 {
            let ratio = (extrapolated.precision[(j, j)] / h[(j, j)]).sqrt();
            // The precision also counts the model's error on the way.
            assert!((0.3..1.1).contains(&ratio), "{j}: {ratio}");
        }
        let linear = measurements(&end, &left, OnTheWay::Linear).extrapolated().unwrap();
        assert!((&linear.mean - &end).norm() > 0.1 * end.norm(), "{}", linear.mean);
    }

    #[test]
    fn measurements_near_the_mode_are_the_likelihood() {
        let end = DVector::from_vec(vec![-0.5, 0.8, -0.4]);
        let extrapolated = measurements(&end, &[0.02, -0.01, 0.01, 0.0], OnTheWay::Relinearised(LogisticRegression {}.into(), 0.25))
            .extrapolated()
            .unwrap();
        assert!((&extrapolated.mean - &end).norm() < 1e-3, "{}", extrapolated.mean);
        let h = dp_pvi_math::expfam::gaussian::full::unsvec(measurement(end.clone(), &end, 0.5).curvature.as_slice(), 3);
        assert!((&extrapolated.precision - &h).norm() < 0.02 * h.norm(), "{} {h}", extrapolated.precision);
        assert!(extrapolated.posterior.noise_share.unwrap() > 0.99);
    }
}
