//! Levels whose curvature the last looks do not see.
//!
//! Where nearly all records of a level have one label, their predictor moves far out, and their curvature towards 0. The last looks then hold next to nothing of the level's coefficient: taken with their
//! curvature they allow whatever the prior does, though a coefficient near 0 would have had a large gradient there. The first looks, from where the curvature was another one, count for little.
//! What all looks tell together is how many records N the level has, and how many ones Y among them. With r₀ and r₁ the residuals of the two labels at the predictor m_t of the level at look t,
//! D = r₁ − r₀, p = −r₀/D the chance of a one there, and c the expected curvature,
//!
//! g_j/D = Y − N p(m_t), H_jj = N c(m_t), each with its noise: N and Y by least squares.
//!
//! Given the true predictor m of the level, Y is the sum of N labels: Poisson where few are expected (of two classes, of the rarer label), else about normal. With N unknown and flat, the density of
//! what was found is that of Y − N p(m) plus the noise that this combination has: it multiplies the posterior of m, and what that does to mean and variance of m is carried to all coefficients.
//!
//! Only levels are taken of which the looks tell less than the prior does: what they tell besides counts twice. Of labels, only two classes and counts are: others have no N p(m) of this form.
//! Source: this project; a density that is multiplied in and brought back to a Gaussian is a step of assumed-density filtering (Minka 2001).

use nalgebra::{Cholesky, DMatrix, DVector, Matrix2, Vector2};

use super::correlations::{Correlations, expected_curvature};
use super::looks::Look;
use crate::models::predictor::Predictor;

/// Error of a chance, or of a curvature, that the model gives for the records of a level, relative to what is left of it and to what it has changed by: predictors are not normal, and their moments are guessed.
const BY_MODEL: f64 = 0.5;

/// How many standard deviations N has to be above 0.
const SEEN: f64 = 3.0;

/// Passes in which the errors of the model, which are proportional to N, are brought into agreement with it.
const PASSES: usize = 3;

/// Variance of Y up to which it is summed over as a Poisson count, and up to which count.
const FEW: f64 = 25.0;
const COUNTS: u32 = 90;

/// Reach in standard deviations and number of points of the sums over m.
const REACH: f64 = 9.0;
const POINTS: i32 = 300;

/// The records of a level.
struct Level {
    /// Mean of their rows.
    row: DVector<f64>,
    /// Covariance of their rows.
    within: DMatrix<f64>,
}

/// N and Y, and their covariance.
struct Counts {
    mean: Vector2<f64>,
    covariance: Matrix2<f64>,
}

/// What the model says of the records of a level at one predictor.
struct At {
    difference: f64,
    chance: f64,
    curvature: f64,
}

impl At {
    fn new(model: &dyn Predictor, mean: f64, variance: f64) -> Option<Self> {
        let [zero, one] = [0.0, 1.0].map(|label| model.statistics(mean, variance, label));
        let difference = one.residual - zero.residual;
        let at = Self { difference, chance: -zero.residual / difference, curvature: expected_curvature(zero, one) };
        (at.chance.is_finite() && at.curvature > 0.0).then_some(at)
    }

    /// Variance of a label.
    fn variance(&self, two_classes: bool) -> f64 {
        if two_classes { (self.chance * (1.0 - self.chance)).max(0.0) } else { self.curvature / (self.difference * self.difference) }
    }

    /// Whether the labels are counts.
    fn is_of_counts(&self) -> bool {
        (self.variance(false) - self.chance).abs() <= 1e-9 * self.chance
    }
}

/// Mean and precision with what the looks tell of such levels, whatever they were without it.
pub(super) fn with_levels(
    looks: &[Look],
    correlations: &Correlations,
    prior_precision: &[f64],
    (mut mean, mut precision): (DVector<f64>, DMatrix<f64>),
) -> (DVector<f64>, DMatrix<f64>) {
    for j in (0..mean.len()).filter(|&j| correlations.is_indicator(j)) {
        if precision[(j, j)] > 2.0 * prior_precision[j] {
            continue;
        }
        if let Some(both) = with_level(looks, correlations, j, (&mean, &precision)) {
            (mean, precision) = both;
        }
    }
    (mean, precision)
}

fn with_level(
    looks: &[Look],
    correlations: &Correlations,
    j: usize,
    (mean, precision): (&DVector<f64>, &DMatrix<f64>),
) -> Option<(DVector<f64>, DMatrix<f64>)> {
    let (spec, two_classes) = correlations.model_of_expected_curvature()?;
    let model = spec.rules().predictor()?;
    if !two_classes && ![-1.0, 0.5].into_iter().all(|mean| At::new(model, mean, 0.0).is_some_and(|at| at.is_of_counts())) {
        return None;
    }
    let level = Level::new(correlations, j)?;
    let counts = level.counts(looks, j, model, two_classes)?;
    let along = Cholesky::new(precision.clone())?.solve(&level.row);
    let (centre, variance) = (level.row.dot(mean), level.row.dot(&along));
    let spread = level.spread(mean);
    let sd = variance.sqrt();
    let points: Option<Vec<(f64, f64)>> = (-POINTS..=POINTS)
        .map(|k| {
            let u = REACH * f64::from(k) / f64::from(POINTS);
            let at = At::new(model, centre + sd * u, spread)?;
            Some((u, counts.log_density(&at, two_classes) - 0.5 * u * u))
        })
        .collect();
    let points = points?;
    let best = points.iter().map(|(_, log)| *log).fold(f64::NEG_INFINITY, f64::max);
    let (mut total, mut first, mut second) = (0.0, 0.0, 0.0);
    for (u, log) in points {
        let weight = (log - best).exp();
        total += weight;
        first += weight * u;
        second += weight * u * u;
    }
    let (shift, share) = (first / total, second / total - (first / total).powi(2));
    (shift.is_finite() && share > 0.0).then(|| {
        let moved = precision + &level.row * level.row.transpose() * ((1.0 / share - 1.0) / variance);
        (mean + along * (shift / sd), moved)
    })
}

impl Level {
    /// By the moments of all rows: those of a level have it, and their other entries are about normal given that.
    fn new(correlations: &Correlations, j: usize) -> Option<Self> {
        let (moments, intercept) = (correlations.moments()?, correlations.intercept()?);
        let all = moments.column(intercept);
        let covariance = &moments - all * all.transpose();
        let own = moments[(j, j)];
        if own <= 0.0 {
            return None;
        }
        let mut row = moments.column(j) / own;
        for (i, entry) in row.iter_mut().enumerate().filter(|(i, _)| correlations.is_indicator(*i)) {
            *entry = if i == j {
                1.0
            } else if correlations.are_levels(i, j) {
                0.0
            } else {
                entry.clamp(0.0, 1.0)
            };
        }
        row[intercept] = 1.0;
        let beside = covariance.column(j).into_owned();
        let within = if covariance[(j, j)] > 0.0 { &covariance - &beside * beside.transpose() / covariance[(j, j)] } else { covariance };
        Some(Self { row, within })
    }

    /// Variance of the records' predictors at these coefficients.
    fn spread(&self, coefficients: &DVector<f64>) -> f64 {
        (&self.within * coefficients).dot(coefficients).max(0.0)
    }

    /// `None` where N is not seen.
    fn counts(&self, looks: &[Look], j: usize, model: &dyn Predictor, two_classes: bool) -> Option<Counts> {
        let ats: Option<Vec<At>> = looks.iter().map(|look| At::new(model, self.row.dot(&look.point), self.spread(&look.point))).collect();
        let ats = ats?;
        let start = At::new(model, 0.0, 0.0)?.chance;
        #[allow(clippy::cast_precision_loss, reason = "a number of rounds")]
        let shared = BY_MODEL * BY_MODEL * looks.len() as f64;
        let mut found: Option<Counts> = None;
        for _ in 0..PASSES {
            let size = found.as_ref().map_or(0.0, |counts| counts.mean[0]);
            let (mut information, mut told) = (Matrix2::zeros(), Vector2::zeros());
            let mut tell = |row: Vector2<f64>, value: f64, variance: f64| {
                information += row * row.transpose() / variance;
                told += row * (value / variance);
            };
            for (look, at) in looks.iter().zip(&ats) {
                let rest = if two_classes { at.chance.min(1.0 - at.chance) } else { at.chance };
                let unsure = rest.min((at.chance - start).abs());
                // The model is wrong in the same way in all looks: many of them do not make this smaller.
                let of_gradient = look.noise[j] / (at.difference * at.difference) + shared * (size * unsure).powi(2);
                tell(Vector2::new(-at.chance, 1.0), look.gradient[j] / at.difference, of_gradient);
                let (curvature, noise) = look.of_diagonal(j);
                tell(Vector2::new(at.curvature, 0.0), curvature, noise + shared * (size * at.curvature).powi(2));
            }
            let covariance = information.try_inverse()?;
            found = Some(Counts { mean: covariance * told, covariance });
        }
        found.filter(|counts| counts.mean[0] > SEEN * counts.covariance[(0, 0)].sqrt())
    }
}

impl Counts {
    /// Of what was found, if the records' predictor is this.
    fn log_density(&self, at: &At, two_classes: bool) -> f64 {
        let row = Vector2::new(-at.chance, 1.0);
        let (records, off) = (self.mean[0], row.dot(&self.mean));
        let (noise, own) = ((self.covariance * row).dot(&row), records * at.variance(two_classes));
        if own > FEW {
            let variance = noise + own;
            return -0.5 * (off * off / variance + variance.ln());
        }
        // Of the rarer label.
        let (rare, off) = if two_classes && at.chance > 0.5 { (1.0 - at.chance, -off) } else { (at.chance, off) };
        let mean = records * rare;
        let mut log_chance = -mean;
        let logs: Vec<f64> = (0..=COUNTS)
            .map(|count| {
                let count = f64::from(count);
                if count > 0.0 {
                    log_chance += (mean / count).ln();
                }
                log_chance - 0.5 * (off + mean - count).powi(2) / noise
            })
            .collect();
        let best = logs.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        best + logs.iter().map(|log| (log - best).exp()).sum::<f64>().ln() - 0.5 * noise.ln()
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::{Look, with_levels};
    use crate::methods::noise_aware::correlations::{Correlations, Products};
    use crate::models::linear_regression::LinearRegression;
    use crate::models::logistic_regression::LogisticRegression;
    use dp_pvi_expfam::gaussian::full::svec;
    use dp_pvi_schema::EntryKind as Entry;
    use nalgebra::{DMatrix, DVector};

    fn chance(predictor: f64) -> f64 {
        1.0 / (1.0 + (-predictor).exp())
    }

    /// 4,000 records of which so many have the level, and so many of these label 1.
    struct Records {
        level: f64,
        ones: f64,
    }

    impl Records {
        fn correlations(&self) -> Correlations {
            let matrix = DMatrix::from_row_slice(2, 2, &[self.level, self.level, self.level, 4000.0]);
            let products = Products { raised: DMatrix::zeros(2, 2), matrix, noise: 0.0 };
            Correlations::of_entries(vec![Entry::Indicator { group: 0 }, Entry::Intercept], Some(products))
                .of_model(LogisticRegression {}.into())
        }

        /// A run on its way from 0, whose noise has this standard deviation and is 0 by chance.
        fn looks(&self, sd: f64) -> Vec<Look> {
            let visit = |t: u32| {
                let way = 1.0 - 0.5_f64.powi(i32::try_from(t).unwrap());
                let point = DVector::from_vec(vec![-5.0 * way, -0.5 * way]);
                let (own, rest) = (chance(point[0] + point[1]), chance(point[1]));
                let gradient = self.ones - self.level * own;
                let of_others = 1500.0 - (4000.0 - self.level) * rest;
                let (curvature, others) = (self.level * own * (1.0 - own), (4000.0 - self.level) * rest * (1.0 - rest));
                Look {
                    point,
                    gradient: DVector::from_vec(vec![gradient, gradient + of_others]),
                    curvature: DVector::from_vec(svec(&DMatrix::from_row_slice(
                        2,
                        2,
                        &[curvature, curvature, curvature, curvature + others],
                    ))),
                    noise: DVector::from_element(2, sd * sd),
                    curvature_noise: DVector::from_element(3, sd * sd),
                }
            };
            (0..8).map(visit).collect()
        }
    }

    /// What a run knows whose last looks have not seen the level: the intercept, and the prior N(0, 1) of the level.
    fn unseen() -> (DVector<f64>, DMatrix<f64>) {
        (DVector::from_vec(vec![0.3, -0.5]), DMatrix::from_diagonal(&DVector::from_vec(vec![1.05, 900.0])))
    }

    /// Mean and standard deviation of the level's coefficient, given noise of this standard deviation on Y, which is 0 by chance, and N: by a sum over the coefficient and the label's ones.
    fn exact(records: &Records, sd: f64) -> (f64, f64) {
        let log_choose: Vec<f64> = (1..=400)
            .map(f64::from)
            .scan(0.0, |sum, y| {
                *sum += ((records.level - y + 1.0) / y).ln();
                Some(*sum)
            })
            .collect();
        let density = |m: f64| -> f64 {
            let p = chance(m - 0.5);
            let ones = (0..=400).map(f64::from).enumerate().map(|(k, y)| {
                let choose = if k == 0 { 0.0 } else { log_choose[k - 1] };
                (choose + y * p.ln() + (records.level - y) * (1.0 - p).ln()
                    - 0.5 * ((y - records.ones) / sd).powi(2)
                    - 0.5 * 1.05 * (m - 0.3).powi(2))
                .exp()
            });
            ones.filter(|value| value.is_finite()).sum()
        };
        let sums = (-800..=200)
            .map(|k| f64::from(k) * 0.01)
            .map(|m| (density(m), m))
            .fold([0.0; 3], |[a, b, c], (w, m)| [a + w, b + w * m, c + w * m * m]);
        let mean = sums[1] / sums[0];
        (mean, (sums[2] / sums[0] - mean * mean).sqrt())
    }

    #[test]
    fn a_level_that_the_last_looks_do_not_see_is_where_all_looks_say() {
        let cases =
            [(800.0, 4.0, 10.0), (300.0, 0.0, 0.5), (300.0, 0.0, 4.0), (1500.0, 30.0, 30.0), (1500.0, 0.0, 30.0), (200.0, 0.0, 15.0)];
        for (level, ones, noise) in cases {
            for turned in [false, true] {
                let records = Records { level, ones };
                let (expected, expected_sd) = exact(&records, noise / 8.0_f64.sqrt());
                let (mut looks, (mut mean, precision)) = (records.looks(noise), unseen());
                if turned {
                    // The other label.
                    looks.iter_mut().for_each(|look| {
                        look.point *= -1.0;
                        look.gradient *= -1.0;
                    });
                    mean *= -1.0;
                }
                let (mean, precision) = with_levels(&looks, &records.correlations(), &[1.0; 2], (mean, precision));
                let (mean, sd) = (if turned { -mean[0] } else { mean[0] }, precision.try_inverse().unwrap()[(0, 0)].sqrt());
                assert!((mean - expected).abs() < 0.6 * expected_sd, "{level} {ones} {noise}: {mean} {expected} {expected_sd}");
                assert!((0.9..1.15).contains(&(sd / expected_sd)), "{level} {ones} {noise}: {sd} {expected_sd}");
            }
        }
    }

    #[test]
    fn what_the_looks_see_or_do_not_count_stays_as_it_is() {
        let records = Records { level: 800.0, ones: 4.0 };
        let with = |noise: f64, correlations: &Correlations, own: f64| {
            let (mean, mut precision) = unseen();
            precision[(0, 0)] = own;
            let got = with_levels(&records.looks(noise), correlations, &[1.0; 2], (mean.clone(), precision.clone()));
            got == (mean, precision)
        };
        let correlations = records.correlations();
        assert!(!with(10.0, &correlations, 1.9));
        assert!(with(10.0, &correlations, 2.1) && with(1000.0, &correlations, 1.9));
        let alike = Correlations::of_entries(vec![Entry::Indicator { group: 0 }, Entry::Intercept], None);
        assert!(with(10.0, &alike.of_model(LogisticRegression {}.into()), 1.9), "without moments");
        assert!(with(10.0, &correlations.of_model(LinearRegression { noise_sd: 1.0 }.into()), 1.9));
    }
}
