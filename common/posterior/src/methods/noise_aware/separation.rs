//! Correction for (quasi-)separated levels.
//!
//! If nearly all records of a level have one label, its coefficient is large and its curvature near 0. The late measurements then carry almost no information
//! on that coefficient, and the posterior falls back to the prior; the early ones, where the curvature was different, have little weight. All measurements
//! together still estimate the number of the level's records and of its ones ([`level`](dp_pvi_models::level)). The likelihood of these counts, as a function of
//! the level's predictor m, multiplies the posterior of m; the change of its mean and variance is carried over to all coefficients.
//!
//! Only levels are corrected on which the measurements carry less information than a known prior, because that little information is counted twice.

use dp_pvi_math::expfam::any::{Gaussian, Standard};
use nalgebra::{Cholesky, DMatrix, DVector};

use super::measurements::{Extrapolated, Measurement, Measurements};
use dp_pvi_models::level::{Counts, LevelMeasurement};
use dp_pvi_models::predictor::{Predictor, Statistics};

/// The records of a level.
struct Level {
    coordinate: usize,
    /// Mean of their rows.
    row: DVector<f64>,
    /// Covariance of their rows.
    within: DMatrix<f64>,
}

impl Measurements {
    /// Natural parameters of the posterior, corrected for separated levels. `around` gives q_t of every measurement; it is called only if there are such levels.
    pub(crate) fn with_separation(&self, extrapolated: &Extrapolated, around: impl FnOnce() -> Option<Vec<Gaussian>>) -> Option<Vec<f64>> {
        let (mut mean, mut precision) = (extrapolated.mean.clone(), extrapolated.precision.clone());
        // A prior whose scale is learned is not known.
        let learned = |j: usize| self.prior.groups.iter().any(|group| (group.first..group.first + group.count).contains(&j));
        let unseen = |j: &usize| precision[(*j, *j)] <= 2.0 * self.prior.precision[*j] && !learned(*j);
        let levels: Vec<usize> = (0..mean.len()).filter(|&j| self.correlations.is_indicator(j)).filter(unseen).collect();
        let model = self.correlations.model().filter(|model| model.rules().has_two_classes()).and_then(|model| model.rules().predictor());
        let (Some(model), false) = (model, levels.is_empty()) else { return Some(extrapolated.posterior.natural_parameters.clone()) };
        let around = around()?;
        for j in levels {
            if let Some(both) = self.with_level(model.as_ref(), j, &around, (&mean, &precision)) {
                (mean, precision) = both;
            }
        }
        self.natural(&mean, &precision).filter(|natural| natural.iter().all(|v| v.is_finite()))
    }

    fn with_level(
        &self,
        model: &dyn Predictor,
        j: usize,
        around: &[Gaussian],
        (mean, precision): (&DVector<f64>, &DMatrix<f64>),
    ) -> Option<(DVector<f64>, DMatrix<f64>)> {
        let level = self.level(j)?;
        let counts = self.counts(&level, around, model)?;
        let along = Cholesky::new(precision.clone())?.solve(&level.row);
        let variance = level.row.dot(&along);
        let sd = variance.sqrt();
        let (shift, share) = counts.moved(model, (level.row.dot(mean), sd), level.spread(mean))?;
        let moved = precision + &level.row * level.row.transpose() * ((1.0 / share - 1.0) / variance);
        Some((mean + along * (shift / sd), moved))
    }

    /// By the moments of all rows: those of a level have it, and their other entries are about normal given that.
    fn level(&self, j: usize) -> Option<Level> {
        let (moments, intercept) = (self.correlations.moments()?, self.correlations.intercept()?);
        let all = moments.column(intercept);
        let (covariance, own) = (&moments - all * all.transpose(), moments[(j, j)]);
        if own <= 0.0 {
            return None;
        }
        let mut row = moments.column(j) / own;
        for (i, entry) in row.iter_mut().enumerate() {
            // A mean is at most the root of a mean square, whatever noise the moments have.
            let most = (moments[(i, i)] / own).max(0.0).sqrt();
            *entry = match i {
                _ if i == j || i == intercept => 1.0,
                _ if self.correlations.are_levels(i, j) => 0.0,
                _ if self.correlations.is_indicator(i) => entry.clamp(0.0, 1.0),
                _ => entry.clamp(-most, most),
            };
        }
        let beside = covariance.column(j).into_owned();
        let mut within =
            if covariance[(j, j)] > 0.0 { &covariance - &beside * beside.transpose() / covariance[(j, j)] } else { covariance };
        for i in (0..row.len()).filter(|&i| self.correlations.are_levels(i, j) || i == intercept) {
            within.row_mut(i).fill(0.0);
            within.column_mut(i).fill(0.0);
        }
        Some(Level { coordinate: j, row, within })
    }

    fn counts(&self, level: &Level, around: &[Gaussian], model: &dyn Predictor) -> Option<Counts> {
        let moments = &level.within + &level.row * level.row.transpose();
        let weighted = self.weighted.as_ref().map(|weighted| (weighted, weighted.squares(&moments, &self.correlations)));
        let weight = |labels: [Statistics; 2]| weighted.map_or(1.0, |(weighted, squares)| weighted.weight(labels, squares));
        let measurement = |(measurement, q): (&Measurement, &Gaussian)| LevelMeasurement {
            predictor: (level.row.dot(&measurement.point), level.spread(&measurement.point) + uncertainty(&moments, q.standard())),
            gradient: (measurement.gradient[level.coordinate], measurement.noise[level.coordinate]),
            curvature: measurement.of_diagonal(level.coordinate),
        };
        Counts::new(model, &self.measurements.iter().zip(around).map(measurement).collect::<Vec<_>>(), &weight)
    }
}

impl Level {
    /// Variance of the records' predictors at these coefficients.
    fn spread(&self, coefficients: &DVector<f64>) -> f64 {
        (&self.within * coefficients).dot(coefficients).max(0.0)
    }
}

/// Mean variance under q of the predictor of rows with these second moments.
fn uncertainty(moments: &DMatrix<f64>, q: &Standard) -> f64 {
    let sum = match q {
        Standard::Diagonal(q) => q.variance().iter().enumerate().map(|(i, variance)| variance * moments[(i, i)]).sum(),
        Standard::Full(q) => q.covariance().dot(moments),
    };
    sum.max(0.0)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::uncertainty;
    use crate::methods::noise_aware::Posterior;
    use crate::methods::noise_aware::correlations::{Correlations, Products};
    use crate::methods::noise_aware::measurements::{Extrapolated, Measurement, Measurements, OnTheWay};
    use crate::methods::noise_aware::weighted::{Weighted, weight_within};
    use dp_pvi_math::expfam::any::{Family, Gaussian};
    use dp_pvi_math::expfam::gaussian::full::{svec, unsvec};
    use dp_pvi_math::scales::Group;
    use dp_pvi_models::ModelSpec;
    use dp_pvi_models::linear_regression::LinearRegression;
    use dp_pvi_models::logistic_regression::LogisticRegression;
    use dp_pvi_models::poisson_regression::PoissonRegression;
    use dp_pvi_models::predictor::Predictor;
    use dp_pvi_models::spec::Prior;
    use dp_pvi_schema::EntryKind as Entry;
    use nalgebra::{DMatrix, DVector};

    const CASES: [(f64, f64, f64); 6] =
        [(800.0, 4.0, 10.0), (300.0, 0.0, 0.5), (300.0, 0.0, 4.0), (1500.0, 30.0, 30.0), (1500.0, 0.0, 30.0), (200.0, 0.0, 12.0)];

    fn chance(predictor: f64) -> f64 {
        1.0 / (1.0 + (-predictor).exp())
    }

    /// 4,000 records of which so many have the level, and so many of these label 1.
    #[derive(Clone, Copy)]
    struct Records {
        level: f64,
        ones: f64,
        /// Clipping norm that weights keep to.
        clip_norm: Option<f64>,
    }

    /// Measurements, and every measurement's q_t.
    struct Released {
        measurements: Measurements,
        around: Vec<Gaussian>,
    }

    impl Released {
        fn with_separation(&self, (mean, precision): (DVector<f64>, DMatrix<f64>)) -> (DVector<f64>, DMatrix<f64>) {
            let natural_parameters = self.measurements.natural(&mean, &precision).unwrap();
            let posterior = Posterior { natural_parameters, signal_to_noise: 9.0, noise_share: None, scales: Vec::new(), precision: None };
            let covariance = precision.clone().try_inverse().unwrap();
            let (weights, bends, ahead, curvature) = (Vec::new(), Vec::new(), precision.clone(), precision.clone());
            let extrapolated = Extrapolated { posterior, mean, covariance, precision, weights, bends, ahead, curvature };
            let natural = self.measurements.with_separation(&extrapolated, || Some(self.around.clone())).unwrap();
            let precision = unsvec(&natural[2..], 2);
            (precision.clone().try_inverse().unwrap() * DVector::from_column_slice(&natural[..2]), precision)
        }
    }

    impl Records {
        /// A run on its way from 0, whose noise has this standard deviation and is 0 by chance. A `sign` of −1 exchanges the labels.
        fn released(&self, sd: f64, sign: f64) -> Released {
            let model = LogisticRegression {};
            let weight = |labels| self.clip_norm.map_or(1.0, |norm| weight_within(norm, 1.0, labels, [2.0, 4.0]));
            let (mut measurements, mut around) = (Vec::new(), Vec::new());
            for t in 0..8 {
                let left = 0.5_f64.powi(t);
                let point = DVector::from_vec(vec![-5.0 * sign * (1.0 - left), -0.5 * sign * (1.0 - left)]);
                // Nothing tells of the level: q knows as much as the prior.
                let variances = [1.0, left];
                let labels = |mean: f64, variance: f64| [0.0, 1.0].map(|label| model.statistics(mean, variance, label));
                let own = labels(point[0] + point[1], variances[0] + variances[1]);
                let rest = labels(point[1], variances[1]);
                let ones = if sign > 0.0 { self.ones } else { self.level - self.ones };
                let gradient = weight(own) * (ones * own[1].residual + (self.level - ones) * own[0].residual);
                let curvature = weight(own) * self.level * own[0].curvature;
                let others = 4000.0 - self.level;
                let matrix = DMatrix::from_row_slice(2, 2, &[curvature, curvature, curvature, curvature + others * rest[0].curvature]);
                measurements.push(Measurement {
                    gradient: DVector::from_vec(vec![gradient, gradient + others * (0.4 + rest[0].residual)]),
                    curvature: DVector::from_vec(svec(&matrix)),
                    noise: DVector::from_element(2, sd * sd),
                    curvature_noise: DVector::from_element(3, sd * sd),
                    point: point.clone(),
                });
                let precision = DMatrix::from_diagonal(&DVector::from_vec(variances.map(f64::recip).to_vec()));
                let natural = [(&precision * point).as_slice(), &svec(&precision)].concat();
                around.push(Gaussian::from_natural(Family::FullGaussian { dimension: 2 }, natural).unwrap());
            }
            let matrix = DMatrix::from_row_slice(2, 2, &[self.level, self.level, self.level, 4000.0]);
            let products = Products { raised: DMatrix::zeros(2, 2), matrix, noise: 0.0 };
            let correlations =
                Correlations::of_entries(vec![Entry::Indicator { group: 0 }, Entry::Intercept], Some(products)).of_model(model.into());
            let weighted = self.clip_norm.map(|clip_norm| Weighted { model: model.into(), clip_norm, curvature_weight: 1.0, scales: None });
            let prior = Prior { mean: vec![0.0; 2], precision: vec![1.0; 2], groups: Vec::new() };
            let (family, on_the_way, near) = (Family::FullGaussian { dimension: 2 }, OnTheWay::Linear, None);
            Released { measurements: Measurements { family, measurements, correlations, weighted, on_the_way, prior, near }, around }
        }

        /// Mean and standard deviation of the level's coefficient, given noise of this standard deviation on Y, which is 0 by chance, and N: by a sum over the coefficient and the label's ones.
        fn exact(&self, sd: f64) -> (f64, f64) {
            let log_choose: Vec<f64> = (1..=400)
                .map(f64::from)
                .scan(0.0, |sum, y| {
                    *sum += ((self.level - y + 1.0) / y).ln();
                    Some(*sum)
                })
                .collect();
            let density = |m: f64| -> f64 {
                let p = chance(m - 0.5);
                let ones = (0..=400).map(f64::from).enumerate().map(|(k, y)| {
                    let choose = if k == 0 { 0.0 } else { log_choose[k - 1] };
                    let noise = 0.5 * ((y - self.ones) / sd).powi(2);
                    (choose + y * p.ln() + (self.level - y) * (1.0 - p).ln() - noise - 0.5 * 1.05 * (m - 0.3).powi(2)).exp()
                });
                ones.filter(|value| value.is_finite()).sum()
            };
            let points = (-800..=200).map(|k| f64::from(k) * 0.01).map(|m| (density(m), m));
            let sums = points.fold([0.0; 3], |[a, b, c], (w, m)| [a + w, b + w * m, c + w * m * m]);
            let mean = sums[1] / sums[0];
            (mean, (sums[2] / sums[0] - mean * mean).sqrt())
        }
    }

    /// What a run knows whose last measurements have not seen the level: the intercept, and next to nothing of the level.
    fn unseen(own: f64) -> (DVector<f64>, DMatrix<f64>) {
        (DVector::from_vec(vec![0.3, -0.5]), DMatrix::from_diagonal(&DVector::from_vec(vec![own, 900.0])))
    }

    /// Of either label; also where weights differ between measurements. The exact posterior knows N and has no errors of a model, so that it is narrower and less drawn to the prior.
    #[test]
    fn a_level_that_the_last_measurements_do_not_see_is_where_all_measurements_say() {
        for (level, ones, noise) in CASES {
            for (sign, clip_norm) in [(1.0, None), (-1.0, None), (1.0, Some(0.9))] {
                let records = Records { level, ones, clip_norm };
                let released = records.released(noise, sign);
                let (mean, precision) = unseen(1.05);
                let (mean, precision) = released.with_separation((mean * sign, precision));
                let (mean, sd) = (sign * mean[0], precision.try_inverse().unwrap()[(0, 0)].sqrt());
                // A weight that most measurements have makes their noise larger beside what they tell.
                let weight = clip_norm.map_or(1.0, |_| 0.7);
                let (expected, expected_sd) = records.exact(noise / 8.0_f64.sqrt() / weight);
                let case = format!("{level} {ones} {noise} {sign} {clip_norm:?}: {mean} {sd}, {expected} {expected_sd}");
                assert!((mean - expected).abs() < 0.9 * expected_sd, "{case}");
                assert!((0.85..1.2).contains(&(sd / expected_sd)), "{case}");
            }
        }
    }

    /// E xᵀΣx over two rows.
    #[test]
    fn what_q_does_not_know_of_a_predictor_is_the_mean_over_rows() {
        let rows = [DVector::from_vec(vec![1.0, 2.0]), DVector::from_vec(vec![-0.5, 1.0])];
        let moments = rows.iter().map(|x| x * x.transpose()).sum::<DMatrix<f64>>() * 0.5;
        for covariance in [DMatrix::from_row_slice(2, 2, &[2.0, 0.7, 0.7, 1.5]), DMatrix::from_diagonal(&DVector::from_vec(vec![2.0, 1.5]))]
        {
            let expected = rows.iter().map(|x| x.dot(&(&covariance * x))).sum::<f64>() * 0.5;
            let precision = covariance.clone().try_inverse().unwrap();
            let full = Gaussian::from_natural(Family::FullGaussian { dimension: 2 }, [vec![0.0; 2], svec(&precision)].concat()).unwrap();
            assert!((uncertainty(&moments, full.standard()) - expected).abs() < 1e-12);
            if covariance[(0, 1)] == 0.0 {
                let natural = [vec![0.0; 2], precision.diagonal().as_slice().to_vec()].concat();
                let diagonal = Gaussian::from_natural(Family::DiagonalGaussian { dimension: 2 }, natural).unwrap();
                assert!((uncertainty(&moments, diagonal.standard()) - expected).abs() < 1e-12);
            }
        }
    }

    /// A prior that is so wide, and records that are so many, that the density is much narrower than the prior.
    #[test]
    fn a_density_that_is_narrow_beside_the_prior_is_found() {
        let mut released = Records { level: 3500.0, ones: 300.0, clip_norm: None }.released(1.0, 1.0);
        released.measurements.prior.precision[0] = 0.01;
        let (mean, precision) = released.with_separation(unseen(0.01));
        let (expected, expected_sd) = ((300.0_f64 / 3200.0).ln() + 0.5, (3500.0_f64 / 300.0 / 3200.0).sqrt());
        let sd = precision.try_inverse().unwrap()[(0, 0)].sqrt();
        assert!((mean[0] - expected).abs() < expected_sd, "{} {expected}", mean[0]);
        assert!((1.0..2.0).contains(&(sd / expected_sd)), "{sd} {expected_sd}");
    }

    #[test]
    fn what_the_measurements_see_or_do_not_count_stays_as_it_is() {
        let records = Records { level: 800.0, ones: 4.0, clip_norm: None };
        let stays = |released: &Released, own: f64| (released.with_separation(unseen(own)).0 - unseen(own).0).norm() < 1e-12;
        let with = |change: &dyn Fn(&mut Measurements)| {
            let mut released = records.released(10.0, 1.0);
            change(&mut released.measurements);
            released
        };
        assert!(!stays(&with(&|_| ()), 1.9) && stays(&with(&|_| ()), 2.1));
        assert!(stays(&records.released(1000.0, 1.0), 1.9), "N is not seen");
        let group = Group { first: 0, count: 1, shape: 1.0, rate: 0.25, fixed: None };
        assert!(stays(&with(&|measurements| measurements.prior.groups = vec![group]), 1.9), "the prior is not known");
        for model in [LinearRegression { noise_sd: 1.0 }.into(), PoissonRegression {}.into()] {
            let model: ModelSpec = model;
            let other = with(&|measurements| measurements.correlations = measurements.correlations.clone().of_model(model.clone()));
            assert!(stays(&other, 1.9), "not of two classes");
        }
        let entries = || vec![Entry::Indicator { group: 0 }, Entry::Intercept];
        let alone = |measurements: &mut Measurements| {
            measurements.correlations = Correlations::of_entries(entries(), None).of_model(LogisticRegression {}.into());
        };
        assert!(stays(&with(&alone), 1.9), "without moments");
    }
}
